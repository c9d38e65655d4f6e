//! Handles: C holds a number that looks like a pointer; this module keeps the value of each number while it is open.
//!
//! ```text
//!   ascot_writer *  ──▶ number ──▶ Shelf of writers ──▶ Mutex<Writer>     one call at a time
//!   ascot_reader *  ──▶ number ──▶ Shelf of readers ──▶ Reader            any number at once
//!   ascot_values *  ──▶ number ──▶ Shelf of values  ──▶ Values
//! ```
//!
//! Invariants: a number is used only once in a process, whatever its kind; nothing that C passes is dereferenced as a
//! handle. So a handle that is closed, of another kind, or made up is an error, never undefined behaviour.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

use crate::fault::Fault;
use ascot_io::Unpoisoned;

/// The next number.
static NEXT: AtomicUsize = AtomicUsize::new(16);
/// The step between numbers: handles look aligned like pointers.
const STEP: usize = 16;

/// All open handles of a kind.
pub struct Shelf<T> {
    what: &'static str,
    open: RwLock<BTreeMap<usize, Arc<T>>>,
}

impl<T> Shelf<T> {
    /// An empty shelf; `what` names its kind in errors.
    pub const fn new(what: &'static str) -> Self {
        Self { what, open: RwLock::new(BTreeMap::new()) }
    }

    /// Keeps a value; returns its handle.
    pub fn put<H>(&self, kept: T) -> *mut H {
        let number = NEXT.fetch_add(STEP, Ordering::Relaxed);
        self.open.write().unpoisoned().insert(number, Arc::new(kept));
        std::ptr::without_provenance_mut(number)
    }

    /// The value of a handle; it lives while the caller holds it, even if the handle is closed before.
    pub fn get<H>(&self, handle: *const H) -> Result<Arc<T>, Fault> {
        let open = self.open.read().unpoisoned();
        open.get(&handle.addr()).cloned().ok_or_else(|| self.unknown(handle.is_null()))
    }

    /// Removes and returns the value of a handle, unless a call is using it.
    pub fn take<H>(&self, handle: *mut H) -> Result<T, Fault> {
        let mut open = self.open.write().unpoisoned();
        let kept = open.remove(&handle.addr()).ok_or_else(|| self.unknown(handle.is_null()))?;
        Arc::try_unwrap(kept).map_err(|kept| {
            open.insert(handle.addr(), kept);
            self.busy()
        })
    }

    /// Drops the value of a handle; nothing for NULL.
    pub fn free<H>(&self, handle: *mut H) -> Result<(), Fault> {
        if handle.is_null() { Ok(()) } else { self.take(handle).map(drop) }
    }

    /// The error of two concurrent calls on a value that allows one at a time.
    pub fn busy(&self) -> Fault {
        let what = self.what;
        Fault::invalid(format!("the {what} is in use by a call that has not returned: one at a time"))
    }

    fn unknown(&self, null: bool) -> Fault {
        let what = self.what;
        Fault::invalid(match null {
            true => format!("the {what} is NULL"),
            false => format!("there is no such {what}: it was closed before, or is something else"),
        })
    }
}

/// Makes a value and stores its handle in `place`, which holds NULL until then.
///
/// # Safety
/// `place` is null or points to memory for a handle.
#[expect(unsafe_code, reason = "it takes raw pointers of C")]
pub unsafe fn give<T, H>(
    shelf: &Shelf<T>,
    place: *mut *mut H,
    make: impl FnOnce() -> Result<T, Fault>,
) -> Result<(), Fault> {
    if place.is_null() {
        return Err(Fault::invalid(format!("there is no place for the {} (NULL)", shelf.what)));
    }
    // SAFETY: not null, and memory for a handle as the caller promises.
    unsafe { *place = std::ptr::null_mut() };
    let made = shelf.put(make()?);
    // SAFETY: as above.
    unsafe { *place = made };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Code;

    #[test]
    fn what_is_not_open_is_an_error_and_nothing_else() {
        static ONE: Shelf<u32> = Shelf::new("thing");
        static OTHER: Shelf<u32> = Shelf::new("other");
        let handle: *mut u8 = ONE.put(5);
        assert_eq!(*ONE.get(handle).unwrap(), 5);
        assert!(OTHER.get(handle).unwrap_err().text.contains("there is no such other"));
        let held = ONE.get(handle).unwrap();
        assert!(ONE.take(handle).unwrap_err().text.contains("one at a time"));
        drop(held);
        assert_eq!(ONE.take(handle).unwrap(), 5);
        for gone in [handle.cast_const(), std::ptr::null(), std::ptr::without_provenance(7)] {
            let fault = ONE.get(gone).unwrap_err();
            assert_eq!(fault.code, Code::Invalid);
        }
        assert_ne!(ONE.put::<u8>(6), handle, "numbers are not used again");
    }
}
