//! The arguments of C functions other than handles: strings and bytes, checked as far as C allows.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::fault::Fault;

/// A path from C.
///
/// # Safety
/// `text` is null or a C string.
#[expect(unsafe_code, reason = "it takes raw pointers of C")]
pub unsafe fn path_of(text: *const c_char) -> Result<PathBuf, Fault> {
    if text.is_null() {
        return Err(Fault::invalid("the path is NULL"));
    }
    // SAFETY: a C string, as the caller promises.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    Ok(PathBuf::from(OsStr::from_bytes(bytes)))
}

/// Options from C; null gives no options.
///
/// # Safety
/// `text` is null or a C string that lives for `'a`.
#[expect(unsafe_code, reason = "it takes raw pointers of C")]
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
/// `bytes` is null or points to `length` bytes that live for `'a`.
#[expect(unsafe_code, reason = "it takes raw pointers of C")]
pub unsafe fn bytes_of<'a>(bytes: *const c_void, length: usize) -> Result<&'a [u8], Fault> {
    // SAFETY: as the caller promises.
    unsafe { slice_of(bytes.cast(), length) }
}

/// An array from C.
///
/// # Safety
/// `first` is null or points to `count` aligned values that live for `'a`.
#[expect(unsafe_code, reason = "it takes raw pointers of C")]
pub unsafe fn slice_of<'a, T>(first: *const T, count: usize) -> Result<&'a [T], Fault> {
    if count == 0 {
        return Ok(&[]);
    }
    let bytes = count.checked_mul(size_of::<T>()).filter(|&bytes| isize::try_from(bytes).is_ok());
    let Some(bytes) = bytes else {
        return Err(Fault::invalid(format!("{count} are more than there can be")));
    };
    if first.is_null() {
        return Err(Fault::invalid(format!("NULL was given for {bytes} bytes")));
    }
    // SAFETY: not null, and as long as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// Stores an answer in `place`; an error if it is null.
///
/// # Safety
/// `place` is null or points to memory for a `T`.
#[expect(unsafe_code, reason = "it takes raw pointers of C")]
pub unsafe fn put<T>(
    place: *mut T,
    what: &str,
    answer: impl FnOnce() -> Result<T, Fault>,
) -> Result<(), Fault> {
    if place.is_null() {
        return Err(Fault::invalid(format!("there is no place for {what} (NULL)")));
    }
    let answer = answer()?;
    // SAFETY: not null, and memory for a `T` as the caller promises.
    unsafe { *place = answer };
    Ok(())
}

/// Writes `answer` to `place`, unless the caller does not want it.
///
/// # Safety
/// `place` is null or points to memory for a `T`.
#[expect(unsafe_code, reason = "it takes raw pointers of C")]
pub unsafe fn put_if<T>(place: *mut T, answer: T) {
    // SAFETY: null or memory for a `T`, as the caller promises.
    if let Some(place) = unsafe { place.as_mut() } {
        *place = answer;
    }
}
