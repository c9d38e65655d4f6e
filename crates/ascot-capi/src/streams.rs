//! Streams of elements for C: a file read or written forward, one fixed-size value at a time.
//!
//! C moves elements itself, within the current block, and calls the library at the block's ends:
//!
//! ```text
//!   ascot_stream_in   next ──▶ |####.....|  end        unread bytes of the block
//!   ascot_stream_out  next ──▶ |.........|  end        space of the block
//! ```
//!
//! Invariants: the library remembers the part of the block that it has lent; `next` may only move forward within it,
//! which is checked; a block stays valid until the next call with its stream. An element that spans two blocks is put
//! together here.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, TryLockError};

use ascot_io::elements::{ElementReader, ElementWriter, StreamKind};

use crate::arguments::{options_of, path_of, put_if, slice_of};
use crate::fault::{Fault, guard};
use crate::handles::Shelf;
use crate::options::stream_kind;

/// The largest element, bytes.
const MAX_ELEMENT_BYTES: usize = 1 << 20;

/// `ascot_stream_in`, the unread bytes of a block, and `ascot_stream_out`, the space of a block. C may move `next` up
/// to `end`; it only reads the bytes of the former.
#[repr(C)]
pub struct Stream {
    next: *mut u8,
    end: *mut u8,
    element_bytes: usize,
    handle: *mut c_void,
}

struct In {
    reader: ElementReader<u8>,
    element_bytes: usize,
    /// Bytes of the block that C has.
    lent: usize,
}

struct Out {
    writer: ElementWriter<u8>,
    element_bytes: usize,
    lent: usize,
}

static IN: Shelf<Mutex<In>> = Shelf::new("stream");
static OUT: Shelf<Mutex<Out>> = Shelf::new("stream");

fn locked<T>(stream: &Mutex<T>) -> Result<MutexGuard<'_, T>, Fault> {
    match stream.try_lock() {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(_)) => Err(Fault::invalid("the stream failed before")),
        Err(TryLockError::WouldBlock) => {
            Err(Fault::invalid("the stream is in use by a call that has not returned"))
        }
    }
}

/// # Safety
/// `stream` is null or a stream.
#[expect(unsafe_code, reason = "it takes raw pointers of C")]
unsafe fn stream_of<'s>(stream: *mut Stream) -> Result<&'s mut Stream, Fault> {
    // SAFETY: null or a stream, as the caller promises.
    unsafe { stream.as_mut() }.ok_or_else(|| Fault::invalid("the stream is NULL"))
}

/// The bytes that C has left of `lent`; an error if it moved `next` out of its block.
fn left_of(next: *const u8, end: *const u8, lent: usize) -> Result<usize, Fault> {
    let left = end.addr().checked_sub(next.addr()).filter(|left| *left <= lent);
    left.ok_or_else(|| Fault::invalid("next of the stream is not within its block"))
}

fn checked_bytes(element_bytes: usize) -> Result<usize, Fault> {
    match element_bytes {
        1..=MAX_ELEMENT_BYTES => Ok(element_bytes),
        _ => {
            Err(Fault::invalid(format!("elements of {element_bytes} bytes: they have from 1 byte to 1 MiB")))
        }
    }
}

/// Opens a stream by `open`, which returns its handle.
///
/// # Safety
/// `path` is a C string, `options` null or a C string, `stream` null or memory for a stream.
#[expect(unsafe_code, reason = "it takes raw pointers of C")]
unsafe fn opened(
    path: *const c_char,
    options: *const c_char,
    element_bytes: usize,
    stream: *mut Stream,
    open: impl FnOnce(&Path, StreamKind) -> Result<*mut c_void, Fault>,
) -> c_int {
    guard(|| {
        let null = std::ptr::null_mut();
        let none = Stream { next: null, end: null, element_bytes, handle: std::ptr::null_mut() };
        // SAFETY: null or memory for a stream, as the caller promises.
        unsafe { put_if(stream, none) };
        // SAFETY: null or memory that now holds a stream.
        let Some(stream) = (unsafe { stream.as_mut() }) else {
            return Err(Fault::invalid("there is no place for the stream (NULL)"));
        };
        // SAFETY: C strings or null, as the caller promises.
        let (path, options) = unsafe { (path_of(path)?, options_of(options)?) };
        stream.handle = open(&path, stream_kind(options, checked_bytes(element_bytes)?)?)?;
        Ok(())
    })
}

/// `ascot_stream_open`.
///
/// # Safety
/// `path` is a C string, `options` null or a C string, `stream` null or memory for a stream.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_stream_open(
    path: *const c_char,
    options: *const c_char,
    element_bytes: usize,
    stream: *mut Stream,
) -> c_int {
    let open = |path: &Path, kind| {
        let reader = ElementReader::<u8>::open(path, kind)?;
        if !reader.remaining().is_multiple_of(element_bytes as u64) {
            let text = format!("the length of {} is not a multiple of {element_bytes} bytes", path.display());
            return Err(Fault::invalid(text));
        }
        Ok(IN.put(Mutex::new(In { reader, element_bytes, lent: 0 })))
    };
    // SAFETY: what the caller promises.
    unsafe { opened(path, options, element_bytes, stream, open) }
}

/// `ascot_stream_next_in`: reads the next element from the block, or from those that follow.
///
/// # Safety
/// `stream` is null or a stream that `ascot_stream_open` made; `element` has its bytes; `ended` is null or an int.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_stream_next_in(
    stream: *mut Stream,
    element: *mut c_void,
    ended: *mut c_int,
) -> c_int {
    guard(|| {
        // SAFETY: null or a stream, as the caller promises.
        let stream = unsafe { stream_of(stream)? };
        let shelved = IN.get(stream.handle)?;
        let mut open = locked(&shelved)?;
        let In { reader, element_bytes, lent } = &mut *open;
        reader.consume(*lent - left_of(stream.next, stream.end, *lent)?);
        // Nothing is lent until this call has succeeded.
        *lent = 0;
        (stream.next, stream.end) = (std::ptr::null_mut(), std::ptr::null_mut());
        let is_over = reader.end_of_stream();
        if !is_over && !element.is_null() {
            let mut at = 0;
            while at < *element_bytes {
                let block = reader.fill()?;
                let some = block.len().min(*element_bytes - at);
                if some == 0 {
                    return Err(Fault::invalid("the stream ended within an element"));
                }
                // SAFETY: `element` has `element_bytes` bytes, of which `at + some` are used; the block is ours.
                unsafe { std::ptr::copy_nonoverlapping(block.as_ptr(), element.cast::<u8>().add(at), some) };
                reader.consume(some);
                at += some;
            }
        }
        // The rest of the block that is in memory: no request is made before an element of it is needed.
        let block = if reader.has_bytes() { reader.fill()? } else { &[] };
        *lent = block.len();
        let range = block.as_ptr_range();
        (stream.next, stream.end) = (range.start.cast_mut(), range.end.cast_mut());
        // SAFETY: null or an int, as the caller promises.
        unsafe { put_if(ended, c_int::from(is_over)) };
        if is_over && !element.is_null() {
            return Err(Fault::invalid("an element was read after the end of the stream"));
        }
        Ok(())
    })
}

/// `ascot_stream_close_in`.
///
/// # Safety
/// `stream` is null or a stream that `ascot_stream_open` made; `requests` is null or a number.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_stream_close_in(stream: *mut Stream, requests: *mut u64) -> c_int {
    guard(|| {
        // SAFETY: null or a stream, as the caller promises.
        let stream = unsafe { stream_of(stream)? };
        let open = IN.take(stream.handle)?;
        (stream.next, stream.end) = (std::ptr::null_mut(), std::ptr::null_mut());
        let open = open.into_inner().map_err(|_| Fault::invalid("the stream failed before"))?;
        // SAFETY: null or a number, as the caller promises.
        unsafe { put_if(requests, open.reader.close()) };
        Ok(())
    })
}

/// `ascot_stream_create`.
///
/// # Safety
/// As `ascot_stream_open`.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_stream_create(
    path: *const c_char,
    options: *const c_char,
    element_bytes: usize,
    stream: *mut Stream,
) -> c_int {
    let create = |path: &Path, kind| {
        let writer = ElementWriter::<u8>::create(path, kind)?;
        Ok(OUT.put(Mutex::new(Out { writer, element_bytes, lent: 0 })))
    };
    // SAFETY: what the caller promises.
    unsafe { opened(path, options, element_bytes, stream, create) }
}

/// `ascot_stream_next_out`: appends an element to the block, and to those that follow.
///
/// # Safety
/// `stream` is null or a stream that `ascot_stream_create` made; `element` has its bytes.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_stream_next_out(stream: *mut Stream, element: *const c_void) -> c_int {
    guard(|| {
        // SAFETY: null or a stream, as the caller promises.
        let stream = unsafe { stream_of(stream)? };
        let shelved = OUT.get(stream.handle)?;
        let mut open = locked(&shelved)?;
        open.take_back(stream)?;
        let element_bytes = open.element_bytes;
        // SAFETY: `element` has that many bytes, as the caller promises.
        let mut rest: &[u8] = unsafe { slice_of(element.cast(), element_bytes)? };
        while !rest.is_empty() {
            let space = open.writer.space()?;
            let (now, later) = rest.split_at(rest.len().min(space.len()));
            space[..now.len()].copy_from_slice(now);
            open.writer.advance(now.len())?;
            rest = later;
        }
        open.lend(stream)
    })
}

impl Out {
    /// Counts the elements that C has put into the block.
    fn take_back(&mut self, stream: &mut Stream) -> Result<(), Fault> {
        let used = self.lent - left_of(stream.next, stream.end, self.lent)?;
        self.lent = 0;
        (stream.next, stream.end) = (std::ptr::null_mut(), std::ptr::null_mut());
        Ok(self.writer.advance(used)?)
    }

    /// Lends the space of the current block, if there is one: none is begun before an element needs it.
    fn lend(&mut self, stream: &mut Stream) -> Result<(), Fault> {
        let space = if self.writer.has_space() { self.writer.space()? } else { &mut [] };
        self.lent = space.len();
        let range = space.as_mut_ptr_range();
        (stream.next, stream.end) = (range.start, range.end);
        Ok(())
    }
}

/// `ascot_stream_close_out`.
///
/// # Safety
/// `stream` is null or a stream that `ascot_stream_create` made; `requests` is null or a number.
#[expect(unsafe_code, reason = "C calls it with raw pointers")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ascot_stream_close_out(
    stream: *mut Stream,
    sync: c_int,
    requests: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: null or a stream, as the caller promises.
        let stream = unsafe { stream_of(stream)? };
        let open = OUT.take(stream.handle)?;
        let mut open = open.into_inner().map_err(|_| Fault::invalid("the stream failed before"))?;
        open.take_back(stream)?;
        let written = if sync == 0 { open.writer.close()? } else { open.writer.sync_and_close()? };
        // SAFETY: null or a number, as the caller promises.
        unsafe { put_if(requests, written.requests) };
        Ok(())
    })
}
