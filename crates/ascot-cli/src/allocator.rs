//! The command's allocator: the system's, but where that has no memory the process ends in order.
//!
//! Large memory is asked for in ways that can fail, and its lack is an error like any other. All else (a name, a
//! list, a message) cannot be done without: then the process says so in one line, removes its spills and
//! unfinished outputs, and ends with the status of an error. Without this it would abort and leave them.
//!
//! Invariant: from the failure to the end nothing allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;

use ascot_io::emergency;

use crate::failure::STATUS_OF_ERROR;

/// The system's allocator, which does not return without memory unless the caller can do without.
struct Orderly;

#[global_allocator]
static ALLOCATOR: Orderly = Orderly;

// SAFETY: memory comes from `System` and goes back to it as it is asked for; a null pointer is passed on only
// where `System` gives one.
#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
unsafe impl GlobalAlloc for Orderly {
    #[inline]
    #[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those of `System`, here and below.
        checked(unsafe { System.alloc(layout) }, layout.size())
    }

    #[inline]
    #[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    #[inline]
    #[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { System.realloc(block, layout, new_bytes) }, new_bytes)
    }

    #[inline]
    #[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[inline]
fn checked(block: *mut u8, bytes: usize) -> *mut u8 {
    if block.is_null() {
        refused(bytes);
    }
    block
}

/// Returns only where the caller can do without the memory.
#[cold]
fn refused(bytes: usize) {
    if !emergency::is_fallible() {
        end(bytes);
    }
}

/// Has an abort end the process in order, too: the C library aborts, with a word, where a thread that starts finds no
/// memory for the least of its needs.
#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
pub fn end_in_order_on_abort() {
    let handler: extern "C" fn(libc::c_int) = on_abort;
    // SAFETY: the handler neither allocates nor locks, and does not return.
    unsafe { libc::signal(libc::SIGABRT, handler as libc::sighandler_t) };
}

extern "C" fn on_abort(_signal: libc::c_int) {
    emergency::claim_end();
    remove_and_exit();
}

/// Ends the process in order, for want of so many bytes.
#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
pub fn end(bytes: usize) -> ! {
    emergency::claim_end();
    let mut text = [0_u8; 200];
    let mut rest = &mut text[..];
    // What does not fit is cut off.
    let _ = writeln!(
        rest,
        "ascot: out of memory: the system refused {bytes} bytes; allow the process more (ulimit -v, ulimit -d), \
         or use a smaller --memory"
    );
    let left = rest.len();
    let text = &text[..text.len() - left];
    // SAFETY: the bytes are valid; there is nothing to do where nobody reads them.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    remove_and_exit();
}

#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
fn remove_and_exit() -> ! {
    emergency::remove_all();
    // SAFETY: ends the process without its destructors, which could need memory or wait for a lock.
    unsafe { libc::_exit(i32::from(STATUS_OF_ERROR)) };
}
