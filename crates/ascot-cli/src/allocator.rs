//! The command's allocator: the system's, except that the process ends in order if memory runs out.
//!
//! Large memory is requested in ways that can fail, and its lack is an error like any other. All other memory (for a
//! name, a list, a message) is required: if it is refused, the process says so in one line, removes its spill files
//! and unfinished outputs, and exits with the status of an error. With the system's allocator it would abort and
//! leave them.
//!
//! Invariant: between the failure and the end of the process nothing allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;

use ascot_io::emergency;

use crate::failure::STATUS_OF_ERROR;

/// The system's allocator; it returns a null pointer only if the caller handles that.
struct Orderly;

#[global_allocator]
static ALLOCATOR: Orderly = Orderly;

// SAFETY: memory comes from `System` and returns to it as requested; a null pointer is passed on only if `System`
// returns one.
#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
unsafe impl GlobalAlloc for Orderly {
    #[inline]
    #[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees the conditions of `System`, here and below.
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

/// Returns only if the caller handles the lack of memory.
#[cold]
fn refused(bytes: usize) {
    if !emergency::is_fallible() {
        end(bytes);
    }
}

/// Ends the process in order after an abort, too: the C library aborts, with a message, if a starting thread lacks
/// even the memory it requires.
#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
pub fn end_in_order_on_abort() {
    let handler: extern "C" fn(libc::c_int) = on_abort;
    // SAFETY: the handler neither allocates nor locks, and does not return.
    unsafe { libc::signal(libc::SIGABRT, handler as libc::sighandler_t) };
}

const ABORTED: &str = "ascot: aborted, probably for lack of memory\n  allow the process more (ulimit -v, ulimit -d), \
                       or use a smaller --memory\n";

extern "C" fn on_abort(_signal: libc::c_int) {
    emergency::claim_end();
    say(ABORTED.as_bytes());
    remove_and_exit();
}

/// Ends the process in order after a refused allocation of `bytes`.
pub fn end(bytes: usize) -> ! {
    emergency::claim_end();
    let mut text = [0_u8; 200];
    let mut rest = &mut text[..];
    // Text that does not fit is cut off.
    let _ = writeln!(
        rest,
        "ascot: out of memory: the system refused {bytes} bytes; allow the process more (ulimit -v, ulimit -d), \
         or use a smaller --memory"
    );
    let left = rest.len();
    say(&text[..text.len() - left]);
    remove_and_exit();
}

/// Writes a line to standard error.
#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
fn say(line: &[u8]) {
    // SAFETY: the bytes are valid; a failed write changes nothing.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}

#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
fn remove_and_exit() -> ! {
    emergency::remove_all();
    // SAFETY: ends the process without its destructors, which could need memory or wait for a lock.
    unsafe { libc::_exit(i32::from(STATUS_OF_ERROR)) };
}
