//! Writing from C.

use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::{Mutex, TryLockError};

use ascot_index::IndexError;
use ascot_index::rank_writer::{RankOptions, RankWriter};
use ascot_io::Disk;

use crate::arguments::{bytes_of, options_of, path_of, put, put_if};
use crate::fault::{Code, Fault, guard};
use crate::handles::{Shelf, give};
use crate::options::writer_options;
use crate::transport::{Host, Table};

/// `ascot_writer`: opaque for C.
pub struct Writer {
    _nothing: (),
}

/// All open writers.
static WRITERS: Shelf<Mutex<RankWriter<Host>>> = Shelf::new("writer");

/// `ascot_stats`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    memory_routing: u64,
    memory_logs: u64,
    memory_logs_peak: u64,
    records: u64,
    batches_local: u64,
    batches_wire: u64,
    batches_deliver: u64,
    batches_off_node: u64,
    bytes_off_node: u64,
    waits: u64,
}

/// Error for a writer left in an unknown state by an internal fault.
fn broken() -> Fault {
    let text = "a fault of the library ended this writer before; epochs that were complete stay".to_owned();
    Fault { code: Code::Failed, text }
}

/// Runs a function on a writer that no other call is using.
fn with<R>(
    handle: *const Writer,
    act: impl FnOnce(&mut RankWriter<Host>) -> Result<R, Fault>,
) -> Result<R, Fault> {
    let writer = WRITERS.get(handle)?;
    let mut writer = match writer.try_lock() {
        Ok(writer) => writer,
        Err(TryLockError::Poisoned(_)) => return Err(broken()),
        Err(TryLockError::WouldBlock) => return Err(WRITERS.busy()),
    };
    act(&mut writer)
}

/// `ascot_writer_open`.
///
/// # Safety
/// As the header says: C strings, a table or null, and memory for the handle.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_writer_open(
    directory: *const c_char,
    options: *const c_char,
    transport: *const Table,
    writer: *mut *mut Writer,
) -> c_int {
    guard(|| {
        if !writer.is_null() {
            // SAFETY: memory for a handle, as the caller promises; from here on it holds null or a handle.
            unsafe { *writer = std::ptr::null_mut() };
        }
        // SAFETY: a table or null, as the caller promises.
        let host = unsafe { Host::new(transport)? };
        // SAFETY: C strings, as the caller promises.
        let asked = unsafe { asked(directory, options, writer.is_null()) };
        let opened = match asked {
            Ok((path, options)) => RankWriter::open(host, &Disk::default(), &path, &options)?,
            // The other ranks are informed, so that they do not wait for this one.
            Err(fault) => return Err(RankWriter::decline(host, IndexError::Request(fault.text)).into()),
        };
        // SAFETY: memory for a handle, as `asked` has checked.
        unsafe { give(&WRITERS, writer, || Ok(Mutex::new(opened))) }
    })
}

/// The requested path and options of a writer.
///
/// # Safety
/// C strings.
#[expect(unsafe_code, reason = "it takes raw pointers of C")]
unsafe fn asked(
    directory: *const c_char,
    options: *const c_char,
    nowhere: bool,
) -> Result<(PathBuf, RankOptions), Fault> {
    if nowhere {
        return Err(Fault::invalid("there is no place for the writer (NULL)"));
    }
    // SAFETY: C strings, as the caller promises.
    let (path, text) = unsafe { (path_of(directory)?, options_of(options)?) };
    Ok((path, writer_options(text)?))
}

/// `ascot_append`.
///
/// # Safety
/// Key and value have the given lengths.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_append(
    writer: *mut Writer,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (key, value) = unsafe { (bytes_of(key, key_length)?, bytes_of(value, value_length)?) };
        with(writer, |writer| Ok(writer.append(key, value)?))
    })
}

/// `ascot_progress`.
#[expect(unsafe_code, reason = "C finds it by its name")]
#[unsafe(no_mangle)]
pub extern "C" fn ascot_progress(writer: *mut Writer) -> c_int {
    guard(|| with(writer, |writer| Ok(writer.progress()?)))
}

/// `ascot_end_epoch`.
///
/// # Safety
/// `records` is null or points to a number.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_end_epoch(writer: *mut Writer, records: *mut u64) -> c_int {
    guard(|| {
        let epoch = with(writer, |writer| Ok(writer.end_epoch()?))?;
        // SAFETY: null or memory for a number, as the caller promises.
        unsafe { put_if(records, epoch.records) };
        Ok(())
    })
}

/// `ascot_writer_epochs`.
///
/// # Safety
/// `epochs` is null or points to a number.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_writer_epochs(writer: *const Writer, epochs: *mut u64) -> c_int {
    guard(|| {
        let complete = || with(writer, |writer| Ok(writer.epochs()));
        // SAFETY: null or a place, as the caller promises.
        unsafe { put(epochs, "the number of epochs", complete) }
    })
}

/// `ascot_writer_stats`.
///
/// # Safety
/// `stats` is null or points to memory for the counts.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_writer_stats(writer: *const Writer, stats: *mut Stats) -> c_int {
    guard(|| {
        let now = |writer: &mut RankWriter<Host>| {
            let counts = writer.counts();
            let memory = writer.memory();
            let [local, wire, deliver] = counts.hops;
            Ok(Stats {
                memory_routing: memory.routing as u64,
                memory_logs: memory.logs as u64,
                memory_logs_peak: memory.logs_peak as u64,
                records: writer.records(),
                batches_local: local.batches,
                batches_wire: wire.batches,
                batches_deliver: deliver.batches,
                batches_off_node: counts.batches_off_node(),
                bytes_off_node: counts.bytes_off_node(),
                waits: counts.waits,
            })
        };
        // SAFETY: null or a place, as the caller promises.
        unsafe { put(stats, "the counts", || with(writer, now)) }
    })
}

/// `ascot_writer_close`.
#[expect(unsafe_code, reason = "C finds it by its name")]
#[unsafe(no_mangle)]
pub extern "C" fn ascot_writer_close(writer: *mut Writer) -> c_int {
    guard(|| {
        if writer.is_null() {
            return Ok(());
        }
        let writer = WRITERS.take(writer)?.into_inner().map_err(|_| broken())?;
        Ok(writer.close()?)
    })
}

/// `ascot_writer_abandon`.
#[expect(unsafe_code, reason = "C finds it by its name")]
#[unsafe(no_mangle)]
pub extern "C" fn ascot_writer_abandon(writer: *mut Writer) -> c_int {
    guard(|| WRITERS.free(writer))
}
