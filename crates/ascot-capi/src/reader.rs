//! Reading from C.

use std::ffi::{c_char, c_int, c_void};

use ascot_index::IndexError;
use ascot_index::read::{Directory, Scan, Value};
use ascot_io::Disk;

use crate::fault::{Code, Fault, guard};
use crate::options::reader_memory;
use crate::writer::{bytes_of, options_of, path_of};

/// `ascot_reader`.
pub struct Reader {
    directory: Directory,
}

/// `ascot_values`.
pub struct Values {
    values: Vec<Value>,
}

/// `ascot_record_fn`.
pub type RecordFn =
    unsafe extern "C" fn(*mut c_void, u64, *const c_void, usize, *const c_void, usize) -> c_int;

/// What a pointer points to.
///
/// # Safety
/// `handle` is null or a live handle.
unsafe fn reader_of<'a>(handle: *const Reader) -> Result<&'a Reader, Fault> {
    // SAFETY: null or live, as the caller promises.
    unsafe { handle.as_ref() }.ok_or_else(|| Fault::invalid("the reader is NULL"))
}

/// `ascot_reader_open`.
///
/// # Safety
/// C strings, and a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_reader_open(
    directory: *const c_char,
    options: *const c_char,
    reader: *mut *mut Reader,
) -> c_int {
    guard(|| {
        if reader.is_null() {
            return Err(Fault::invalid("there is no place for the reader (NULL)"));
        }
        // SAFETY: not null; from here on it holds null or a handle.
        unsafe { *reader = std::ptr::null_mut() };
        // SAFETY: C strings, as the caller promises.
        let (path, text) = unsafe { (path_of(directory)?, options_of(options)?) };
        let directory = Directory::open(&Disk::default(), &path, reader_memory(text)?)?;
        // SAFETY: not null.
        unsafe { *reader = Box::into_raw(Box::new(Reader { directory })) };
        Ok(())
    })
}

/// `ascot_epochs`.
///
/// # Safety
/// A live handle and a place for the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_epochs(reader: *const Reader, epochs: *mut u64) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let reader = unsafe { reader_of(reader)? };
        if epochs.is_null() {
            return Err(Fault::invalid("there is no place for the number of epochs (NULL)"));
        }
        // SAFETY: not null.
        unsafe { *epochs = reader.directory.manifest().epochs };
        Ok(())
    })
}

/// Gives values away.
///
/// # Safety
/// `place` is null or a place for a handle.
unsafe fn give(
    place: *mut *mut Values,
    find: impl FnOnce() -> Result<Vec<Value>, Fault>,
) -> Result<(), Fault> {
    if place.is_null() {
        return Err(Fault::invalid("there is no place for the values (NULL)"));
    }
    // SAFETY: not null; it holds null or a handle from here on.
    unsafe { *place = std::ptr::null_mut() };
    let values = find()?;
    // SAFETY: not null.
    unsafe { *place = Box::into_raw(Box::new(Values { values })) };
    Ok(())
}

/// `ascot_get`.
///
/// # Safety
/// A live handle, so many bytes of a key, and a place for the values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_get(
    reader: *const Reader,
    key: *const c_void,
    key_length: usize,
    values: *mut *mut Values,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (reader, key) = unsafe { (reader_of(reader)?, bytes_of(key, key_length)?) };
        // SAFETY: as the caller promises.
        unsafe { give(values, || Ok(reader.directory.get(key)?)) }
    })
}

/// `ascot_get_at`.
///
/// # Safety
/// As `ascot_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_get_at(
    reader: *const Reader,
    key: *const c_void,
    key_length: usize,
    epoch: u64,
    values: *mut *mut Values,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (reader, key) = unsafe { (reader_of(reader)?, bytes_of(key, key_length)?) };
        // SAFETY: as the caller promises.
        unsafe { give(values, || Ok(reader.directory.get_at(key, epoch)?)) }
    })
}

/// `ascot_values_count`.
///
/// # Safety
/// Null or live values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_values_count(values: *const Values) -> usize {
    // SAFETY: as the caller promises.
    unsafe { values.as_ref() }.map_or(0, |values| values.values.len())
}

/// `ascot_values_at`.
///
/// # Safety
/// Live values, and null or places for the answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_values_at(
    values: *const Values,
    number: usize,
    epoch: *mut u64,
    bytes: *mut *const c_void,
    length: *mut usize,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let values = unsafe { values.as_ref() }.ok_or_else(|| Fault::invalid("the values are NULL"))?;
        let count = values.values.len();
        let value = values.values.get(number);
        let value =
            value.ok_or_else(|| Fault::invalid(format!("there is no value {number} among {count}")))?;
        // SAFETY: each is null or a place, as the caller promises.
        unsafe {
            if let Some(epoch) = epoch.as_mut() {
                *epoch = value.epoch;
            }
            if let Some(bytes) = bytes.as_mut() {
                *bytes = value.bytes.as_ptr().cast();
            }
            if let Some(length) = length.as_mut() {
                *length = value.bytes.len();
            }
        }
        Ok(())
    })
}

/// `ascot_values_free`.
///
/// # Safety
/// Null or live values, which are not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_values_free(values: *mut Values) {
    guard(|| {
        if !values.is_null() {
            // SAFETY: they came from a Box, and are not used again.
            drop(unsafe { Box::from_raw(values) });
        }
        Ok(())
    });
}

/// `ascot_iterate`.
///
/// # Safety
/// A live handle, and a function that may be called with the context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_iterate(
    reader: *const Reader,
    each: Option<RecordFn>,
    context: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let reader = unsafe { reader_of(reader)? };
        let each = each.ok_or_else(|| Fault::invalid("there is no function to give records to (NULL)"))?;
        let mut stopped = false;
        let scanned = reader.directory.scan(&Scan::default(), |record| {
            let (key, value) = (record.key, record.value);
            // SAFETY: as the caller promises; the bytes live during the call.
            let answer = unsafe {
                each(
                    context,
                    record.epoch,
                    key.as_ptr().cast(),
                    key.len(),
                    value.as_ptr().cast(),
                    value.len(),
                )
            };
            stopped = answer != 0;
            if stopped { Err(IndexError::Request("the callback asked to stop".to_owned())) } else { Ok(()) }
        });
        match scanned {
            Err(error) if stopped => Err(Fault { code: Code::Stopped, text: error.to_string() }),
            other => Ok(other?),
        }
    })
}

/// `ascot_reader_close`.
///
/// # Safety
/// Null or a live handle, which is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_reader_close(reader: *mut Reader) {
    guard(|| {
        if !reader.is_null() {
            // SAFETY: it came from a Box, and is not used again.
            drop(unsafe { Box::from_raw(reader) });
        }
        Ok(())
    });
}
