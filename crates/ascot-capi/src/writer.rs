//! Writing from C.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ascot_index::rank_writer::RankWriter;
use ascot_io::Disk;

use crate::fault::{Fault, guard};
use crate::options::writer_options;
use crate::transport::{Host, Table};

/// `ascot_writer`.
pub struct Writer {
    writer: RankWriter<Host>,
}

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

/// A path from C.
///
/// # Safety
/// `text` is null or a C string.
pub unsafe fn path_of(text: *const c_char) -> Result<PathBuf, Fault> {
    if text.is_null() {
        return Err(Fault::invalid("the directory's name is NULL"));
    }
    // SAFETY: a C string, as the caller promises.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    Ok(PathBuf::from(OsStr::from_bytes(bytes)))
}

/// Options from C; none where there are none.
///
/// # Safety
/// `text` is null or a C string that lives as long as is asked.
pub unsafe fn options_of<'a>(text: *const c_char) -> Result<&'a str, Fault> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: a C string, as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| Fault::invalid("the options are not UTF-8"))
}

/// Bytes from C.
///
/// # Safety
/// `bytes` is null or points to `length` bytes that live as long as is asked.
pub unsafe fn bytes_of<'a>(bytes: *const c_void, length: usize) -> Result<&'a [u8], Fault> {
    if length == 0 {
        return Ok(&[]);
    }
    if bytes.is_null() {
        return Err(Fault::invalid(format!("NULL was given for {length} bytes")));
    }
    if length > isize::MAX as usize {
        return Err(Fault::invalid(format!("{length} bytes are more than there can be")));
    }
    // SAFETY: not null, and so many bytes as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(bytes.cast(), length) })
}

/// What a pointer points to.
///
/// # Safety
/// `handle` is null or a live handle.
unsafe fn writer_of<'a>(handle: *mut Writer) -> Result<&'a mut Writer, Fault> {
    // SAFETY: null or live, as the caller promises; one thread uses it at a time.
    unsafe { handle.as_mut() }.ok_or_else(|| Fault::invalid("the writer is NULL"))
}

/// `ascot_writer_open`.
///
/// # Safety
/// As the header says: C strings, a table or null, and a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_writer_open(
    directory: *const c_char,
    options: *const c_char,
    transport: *const Table,
    writer: *mut *mut Writer,
) -> c_int {
    guard(|| {
        if writer.is_null() {
            return Err(Fault::invalid("there is no place for the writer (NULL)"));
        }
        // SAFETY: not null; from here on it holds null or a handle.
        unsafe { *writer = std::ptr::null_mut() };
        // SAFETY: C strings and a table, as the caller promises.
        let (path, text, host) =
            unsafe { (path_of(directory)?, options_of(options)?, Host::new(transport)?) };
        let options = writer_options(text)?;
        let opened = RankWriter::open(host, &Disk::default(), &path, &options)?;
        // SAFETY: not null.
        unsafe { *writer = Box::into_raw(Box::new(Writer { writer: opened })) };
        Ok(())
    })
}

/// `ascot_append`.
///
/// # Safety
/// A live handle, and so many bytes where they are said to be.
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
        let (writer, key, value) =
            unsafe { (writer_of(writer)?, bytes_of(key, key_length)?, bytes_of(value, value_length)?) };
        Ok(writer.writer.append(key, value)?)
    })
}

/// `ascot_progress`.
///
/// # Safety
/// A live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_progress(writer: *mut Writer) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let writer = unsafe { writer_of(writer)? };
        Ok(writer.writer.progress()?)
    })
}

/// `ascot_end_epoch`.
///
/// # Safety
/// A live handle, and null or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_end_epoch(writer: *mut Writer, records: *mut u64) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let writer = unsafe { writer_of(writer)? };
        let epoch = writer.writer.end_epoch()?;
        if !records.is_null() {
            // SAFETY: a place for a number, as the caller promises.
            unsafe { *records = epoch.records };
        }
        Ok(())
    })
}

/// `ascot_writer_stats`.
///
/// # Safety
/// A live handle and a place for the counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_writer_stats(writer: *const Writer, stats: *mut Stats) -> c_int {
    guard(|| {
        if stats.is_null() {
            return Err(Fault::invalid("there is no place for the counts (NULL)"));
        }
        // SAFETY: as the caller promises; it is only read.
        let writer = unsafe { writer.as_ref() }.ok_or_else(|| Fault::invalid("the writer is NULL"))?;
        let (counts, memory) = (writer.writer.counts(), writer.writer.memory());
        let [local, wire, deliver] = counts.hops;
        let told = Stats {
            memory_routing: memory.routing as u64,
            memory_logs: memory.logs as u64,
            memory_logs_peak: memory.logs_peak as u64,
            records: counts.appended,
            batches_local: local.batches,
            batches_wire: wire.batches,
            batches_deliver: deliver.batches,
            batches_off_node: counts.batches_off_node(),
            bytes_off_node: counts.bytes_off_node(),
            waits: counts.waits,
        };
        // SAFETY: not null.
        unsafe { *stats = told };
        Ok(())
    })
}

/// `ascot_writer_close`.
///
/// # Safety
/// Null or a live handle, which is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_writer_close(writer: *mut Writer) -> c_int {
    guard(|| {
        if writer.is_null() {
            return Ok(());
        }
        // SAFETY: it came from a Box, and is not used again.
        let writer = unsafe { Box::from_raw(writer) };
        Ok(writer.writer.close()?)
    })
}

/// `ascot_writer_abandon`.
///
/// # Safety
/// Null or a live handle, which is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_writer_abandon(writer: *mut Writer) {
    guard(|| {
        if !writer.is_null() {
            // SAFETY: it came from a Box, and is not used again.
            drop(unsafe { Box::from_raw(writer) });
        }
        Ok(())
    });
}
