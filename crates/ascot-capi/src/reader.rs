//! Reading from C.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Arc, Mutex};

use ascot_index::read::{Directory, Scan, Value};
use ascot_index::{Content, IndexError, Result as IndexResult, StoredValue};
use ascot_io::Disk;
use ascot_io::Unpoisoned;

use crate::arguments::{bytes_of, options_of, path_of, put, put_if, slice_of};
use crate::fault::{Code, Fault, guard};
use crate::handles::{Shelf, give};
use crate::options::reader_memory;

/// `ascot_reader`: opaque for C.
pub struct Reader {
    _nothing: (),
}

/// `ascot_values`: opaque for C.
pub struct Values {
    _nothing: (),
}

/// A directory, and its warnings of damage.
struct Open {
    /// Also held by values that are still in the files.
    directory: Arc<Directory>,
    warnings: Mutex<Warnings>,
}

/// Damaged parts that queries did without.
#[derive(Default)]
struct Warnings {
    count: u64,
    /// The first warning; once C has it, it does not change.
    first: Option<CString>,
}

/// Values of a key, and the directory from which long ones are read.
struct Found {
    directory: Arc<Directory>,
    values: Vec<StoredValue>,
}

impl Found {
    fn get(&self, number: usize) -> Result<&StoredValue, Fault> {
        let count = self.values.len();
        let value = self.values.get(number);
        value.ok_or_else(|| Fault::invalid(format!("there is no value {number} among {count}")))
    }
}

/// Finds the values of a key, and stores a handle to them.
///
/// # Safety
/// `key` has `key_length` bytes; `values` is null or points to memory for a handle.
#[expect(unsafe_code, reason = "it takes raw pointers of C")]
unsafe fn give_found(
    reader: *const Reader,
    key: *const c_void,
    key_length: usize,
    values: *mut *mut Values,
    look: impl FnOnce(&Directory, &[u8]) -> Result<Vec<StoredValue>, Fault>,
) -> c_int {
    guard(|| {
        let find = || {
            // SAFETY: as the caller promises.
            let key = unsafe { bytes_of(key, key_length)? };
            let directory = Arc::clone(&READERS.get(reader)?.directory);
            let values = look(&directory, key)?;
            Ok(Found { directory, values })
        };
        // SAFETY: null or a place, as the caller promises.
        unsafe { give(&VALUES, values, find) }
    })
}

/// The values of a key in memory; a refusal of memory names the way that needs less.
fn look(directory: &Directory, key: &[u8], epoch: Option<u64>) -> Result<Vec<StoredValue>, Fault> {
    let found = match epoch {
        Some(epoch) => directory.get_at(key, epoch),
        None => directory.get(key),
    };
    let stored = |Value { epoch, bytes }| StoredValue { epoch, content: Content::Bytes(bytes) };
    Ok(found.map_err(whole_fault)?.into_iter().map(stored).collect())
}

/// The fault of a query for whole values.
fn whole_fault(error: IndexError) -> Fault {
    let of_memory = matches!(error, IndexError::Memory(_));
    let mut fault = Fault::from(error);
    if of_memory {
        fault.text += "; ascot_find finds values of any length, and ascot_value_read reads them part by part";
    }
    fault
}

/// All open readers.
static READERS: Shelf<Open> = Shelf::new("reader");
static VALUES: Shelf<Found> = Shelf::new("values");

/// `ascot_record_fn`.
pub type RecordFn =
    unsafe extern "C" fn(*mut c_void, u64, *const c_void, usize, *const c_void, usize) -> c_int;

/// `ascot_part_fn`.
pub type PartFn =
    unsafe extern "C" fn(*mut c_void, u64, *const c_void, usize, u64, u64, *const c_void, usize) -> c_int;

/// `ascot_value_fn`.
pub type ValueFn = unsafe extern "C" fn(*mut c_void, usize, u64, *const c_void, usize) -> c_int;

/// `ascot_reader_open`.
///
/// # Safety
/// C strings; `reader` is null or points to memory for a handle.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_reader_open(
    directory: *const c_char,
    options: *const c_char,
    reader: *mut *mut Reader,
) -> c_int {
    guard(|| {
        let open = || {
            // SAFETY: C strings, as the caller promises.
            let (path, text) = unsafe { (path_of(directory)?, options_of(options)?) };
            let directory = Directory::open(&Disk::default(), &path, reader_memory(text)?)?;
            Ok(Open { directory: Arc::new(directory), warnings: Mutex::default() })
        };
        // SAFETY: null or memory for a handle, as the caller promises.
        unsafe { give(&READERS, reader, open) }
    })
}

/// `ascot_epochs`.
///
/// # Safety
/// `epochs` is null or points to a number.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_epochs(reader: *const Reader, epochs: *mut u64) -> c_int {
    guard(|| {
        let reader = READERS.get(reader)?;
        // SAFETY: null or a place, as the caller promises.
        unsafe { put(epochs, "the number of epochs", || Ok(reader.directory.manifest().epochs)) }
    })
}

/// `ascot_reader_warnings`.
///
/// # Safety
/// Each answer is null or points to memory for it.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_reader_warnings(
    reader: *const Reader,
    count: *mut u64,
    first: *mut *const c_char,
) -> c_int {
    guard(|| {
        let reader = READERS.get(reader)?;
        let mut warnings = reader.warnings.lock().unpoisoned();
        let notices = reader.directory.take_notices();
        warnings.count += notices.texts.len() as u64 + notices.more;
        if warnings.first.is_none() {
            let text = notices.texts.first().map(|notice| notice.replace('\0', " "));
            warnings.first = text.and_then(|text| CString::new(text).ok());
        }
        // SAFETY: each is null or a place, as the caller promises.
        unsafe {
            put_if(count, warnings.count);
            put_if(first, warnings.first.as_deref().unwrap_or(c"").as_ptr());
        }
        Ok(())
    })
}

/// `ascot_get`.
///
/// # Safety
/// `key` has `key_length` bytes; `values` is null or points to memory for a handle.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_get(
    reader: *const Reader,
    key: *const c_void,
    key_length: usize,
    values: *mut *mut Values,
) -> c_int {
    // SAFETY: what the caller promises.
    unsafe { give_found(reader, key, key_length, values, |directory, key| look(directory, key, None)) }
}

/// `ascot_get_at`.
///
/// # Safety
/// As `ascot_get`.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_get_at(
    reader: *const Reader,
    key: *const c_void,
    key_length: usize,
    epoch: u64,
    values: *mut *mut Values,
) -> c_int {
    // SAFETY: what the caller promises.
    unsafe { give_found(reader, key, key_length, values, |directory, key| look(directory, key, Some(epoch))) }
}

/// `ascot_values_count`.
#[expect(unsafe_code, reason = "C finds it by its name")]
#[unsafe(no_mangle)]
pub extern "C" fn ascot_values_count(values: *const Values) -> usize {
    VALUES.get(values).map_or(0, |found| found.values.len())
}

/// `ascot_values_at`.
///
/// # Safety
/// Each answer is null or points to memory for it.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_values_at(
    values: *const Values,
    number: usize,
    epoch: *mut u64,
    bytes: *mut *const c_void,
    length: *mut usize,
) -> c_int {
    guard(|| {
        let found = VALUES.get(values)?;
        let value = found.get(number)?;
        let in_memory = match &value.content {
            Content::Bytes(bytes) => bytes.as_ptr().cast(),
            Content::Long(_) if bytes.is_null() => std::ptr::null(),
            Content::Long(_) => return Err(left_in_files(number, value)),
        };
        // SAFETY: each is null or a place, as the caller promises. The bytes stay until the values are freed.
        unsafe {
            put_if(epoch, value.epoch);
            put_if(bytes, in_memory);
            // Values have at most 4 GiB.
            put_if(length, usize::try_from(value.content.length()).unwrap_or(usize::MAX));
        }
        Ok(())
    })
}

fn left_in_files(number: usize, value: &StoredValue) -> Fault {
    let length = value.content.length();
    let text =
        format!("value {number} of {length} bytes was left in the files: ascot_value_read reads parts of it");
    Fault { code: Code::Memory, text }
}

/// `ascot_find`.
///
/// # Safety
/// `key` has `key_length` bytes; `values` is null or points to memory for a handle.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_find(
    reader: *const Reader,
    key: *const c_void,
    key_length: usize,
    epoch: u64,
    values: *mut *mut Values,
) -> c_int {
    let epoch = (epoch != ALL_EPOCHS).then_some(epoch);
    let look = |directory: &Directory, key: &[u8]| Ok(directory.stored(key, epoch)?);
    // SAFETY: as the caller promises.
    unsafe { give_found(reader, key, key_length, values, look) }
}

/// `ASCOT_ALL_EPOCHS`.
const ALL_EPOCHS: u64 = u64::MAX;

/// `ascot_value_read`.
///
/// # Safety
/// `into` has `capacity` bytes; `read` is null or points to a number.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_value_read(
    values: *const Values,
    number: usize,
    offset: u64,
    into: *mut c_void,
    capacity: usize,
    read: *mut usize,
) -> c_int {
    guard(|| {
        let found = VALUES.get(values)?;
        let value = found.get(number)?;
        if read.is_null() || (into.is_null() && capacity > 0) {
            return Err(Fault::invalid("there is no place for the bytes or for their number (NULL)"));
        }
        let into = match capacity {
            0 => &mut [][..],
            // SAFETY: not null, and room for `capacity` bytes as the caller promises.
            _ => unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), capacity) },
        };
        let count = value.content.read_at(&found.directory, offset, into)?;
        // SAFETY: not null.
        unsafe { *read = count };
        Ok(())
    })
}

/// `ascot_values_free`.
#[expect(unsafe_code, reason = "C finds it by its name")]
#[unsafe(no_mangle)]
pub extern "C" fn ascot_values_free(values: *mut Values) -> c_int {
    guard(|| VALUES.free(values))
}

/// Runs a query that calls a function of C for each result; a nonzero answer of that function stops it.
fn handing_over(
    run: impl FnOnce(&mut dyn FnMut(c_int) -> IndexResult<()>) -> IndexResult<()>,
) -> Result<(), Fault> {
    let mut stopped = false;
    let done = run(&mut |answer| {
        stopped = answer != 0;
        if stopped { Err(IndexError::Request("the callback asked to stop".to_owned())) } else { Ok(()) }
    });
    match done {
        Err(error) if stopped => Err(Fault { code: Code::Stopped, text: error.to_string() }),
        other => Ok(other?),
    }
}

/// Hands the records of a scan to `each`.
///
/// # Safety
/// `each` may be called with the context.
#[expect(unsafe_code, reason = "it takes raw pointers of C")]
unsafe fn hand_records(
    reader: *const Reader,
    scan: &Scan,
    each: Option<RecordFn>,
    context: *mut c_void,
) -> Result<(), Fault> {
    let reader = READERS.get(reader)?;
    let each = each.ok_or_else(|| Fault::invalid("there is no function to give records to (NULL)"))?;
    handing_over(|go_on| {
        reader.directory.scan(scan, |record| {
            let key = record.key;
            let value = record.value;
            let key_at = key.as_ptr().cast();
            let value_at = value.as_ptr().cast();
            // SAFETY: as the caller promises; the bytes live during the call.
            go_on(unsafe { each(context, record.epoch, key_at, key.len(), value_at, value.len()) })
        })
    })
}

/// `ascot_iterate`.
///
/// # Safety
/// `each` may be called with the context.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_iterate(
    reader: *const Reader,
    each: Option<RecordFn>,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as the caller promises.
    guard(|| unsafe { hand_records(reader, &Scan::default(), each, context) })
}

/// `ascot_reader_range`.
///
/// # Safety
/// Keys have the given lengths; `each` may be called with the context.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_reader_range(
    reader: *const Reader,
    from: *const c_void,
    from_length: usize,
    end: *const c_void,
    end_length: usize,
    each: Option<RecordFn>,
    context: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let scan = unsafe { range_of(from, from_length, end, end_length)? };
        // SAFETY: as the caller promises.
        unsafe { hand_records(reader, &scan, each, context) }
    })
}

/// `ascot_reader_range_parts`.
///
/// # Safety
/// Keys have the given lengths; `each` may be called with the context.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_reader_range_parts(
    reader: *const Reader,
    from: *const c_void,
    from_length: usize,
    end: *const c_void,
    end_length: usize,
    each: Option<PartFn>,
    context: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let scan = unsafe { range_of(from, from_length, end, end_length)? };
        let reader = READERS.get(reader)?;
        let each = each.ok_or_else(|| Fault::invalid("there is no function to give parts to (NULL)"))?;
        handing_over(|go_on| {
            reader.directory.scan_stored(&scan, |record| {
                let key = record.key;
                let mut offset = 0u64;
                let length = record.value.length();
                record.value.for_each_part(&reader.directory, |part| {
                    let key_at = key.as_ptr().cast();
                    let part_at = part.as_ptr().cast();
                    let at = offset;
                    offset += part.len() as u64;
                    // SAFETY: as the caller promises; the bytes live during the call.
                    go_on(unsafe {
                        each(context, record.epoch, key_at, key.len(), length, at, part_at, part.len())
                    })
                })
            })
        })
    })
}

/// A scan of a key range.
///
/// # Safety
/// Keys have the given lengths.
#[expect(unsafe_code, reason = "it takes raw pointers of C")]
unsafe fn range_of(
    from: *const c_void,
    from_length: usize,
    end_key: *const c_void,
    end_length: usize,
) -> Result<Scan, Fault> {
    // SAFETY: as the caller promises.
    let (min, end) = unsafe { (bytes_of(from, from_length)?, bytes_of(end_key, end_length)?) };
    let end = (!end_key.is_null()).then(|| end.to_vec());
    Ok(Scan { from: min.to_vec(), end, by_key: true, ..Scan::default() })
}

/// `ascot_reader_get_many`.
///
/// # Safety
/// `count` keys with their lengths; `each` may be called with the context.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_reader_get_many(
    reader: *const Reader,
    keys: *const *const c_void,
    key_lengths: *const usize,
    count: usize,
    each: Option<ValueFn>,
    context: *mut c_void,
) -> c_int {
    guard(|| {
        let reader = READERS.get(reader)?;
        let each = each.ok_or_else(|| Fault::invalid("there is no function to give values to (NULL)"))?;
        // SAFETY: as the caller promises.
        let (keys, lengths) = unsafe { (slice_of(keys, count)?, slice_of(key_lengths, count)?) };
        let keys = keys.iter().zip(lengths);
        // SAFETY: as the caller promises.
        let keys = keys.map(|(&key, &length)| unsafe { bytes_of(key, length) });
        let keys = keys.collect::<Result<Vec<&[u8]>, Fault>>()?;
        handing_over(|go_on| {
            reader.directory.get_many(&keys, None, |number, values| {
                values.iter().try_for_each(|value| {
                    let at = value.bytes.as_ptr().cast();
                    let length = value.bytes.len();
                    // SAFETY: as the caller promises; the bytes live during the call.
                    go_on(unsafe { each(context, number, value.epoch, at, length) })
                })
            })
        })
    })
}

/// `ascot_reader_close`.
#[expect(unsafe_code, reason = "C finds it by its name")]
#[unsafe(no_mangle)]
pub extern "C" fn ascot_reader_close(reader: *mut Reader) -> c_int {
    guard(|| READERS.free(reader))
}
