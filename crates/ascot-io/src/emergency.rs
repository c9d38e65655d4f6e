//! What is removed where the process must end at once because there is no memory for the smallest allocation.
//!
//! Such a failure can come at any place, with any lock held, so that no destructor can be counted on. Files that
//! nobody should find are registered while they exist; the allocator of the command then calls [`remove_all`].
//!
//! Invariants: [`remove_all`] allocates nothing and takes no lock. A path that it can see is never freed.
//! Only registered files are removed, and of a directory only entries with names that its owner knows.

use std::alloc::{Layout, handle_alloc_error};
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Tells by its name whether an entry of a directory may be removed.
pub type IsOurs = fn(&[u8]) -> bool;

/// SpaceReservation for one path; slots are reused and never freed.
struct Slot {
    /// Null where the slot is free.
    path: AtomicPtr<c_char>,
    /// None for a file. It stays with the slot.
    is_ours: Option<IsOurs>,
    next: *const Slot,
}

/// The newest slot.
static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
/// Held by those who change paths.
static CHANGING: Mutex<()> = Mutex::new(());
/// Somebody removes everything: paths that it may see stay.
static REMOVING: AtomicBool = AtomicBool::new(false);

/// Ends the process for want of so many bytes.
pub type End = fn(usize) -> !;

static END: OnceLock<End> = OnceLock::new();

/// Has memory that cannot be done without, and is refused, end the process by `end`. The first call counts.
pub fn end_by(end: End) {
    let _ = END.set(end);
}

/// Memory that cannot be done without is refused: ends the process as [`end_by`] says, else as the standard library does.
pub(crate) fn out_of_memory(bytes: usize) -> ! {
    match END.get() {
        Some(end) => end(bytes),
        None => handle_alloc_error(Layout::from_size_align(bytes, 1).unwrap_or(Layout::new::<u8>())),
    }
}

/// Registers a file, before it is created: afterwards there may be no memory for that.
pub fn register_file(path: &Path) {
    register(path, None);
}

/// Registers a directory, of which entries that are `is_ours` are removed, and itself if nothing else is in it.
pub fn register_directory(path: &Path, is_ours: IsOurs) {
    register(path, Some(is_ours));
}

fn register(path: &Path, is_ours: Option<IsOurs>) {
    link(path, is_ours);
    if REMOVING.load(SeqCst) {
        // Nothing is created any more.
        wait_for_the_end();
    }
}

fn link(path: &Path, is_ours: Option<IsOurs>) {
    // A path with a NUL in it names nothing.
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return };
    let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    let path = path.into_raw();
    // Directories are few: their slots are not used again, since a slot keeps what it says of names.
    for slot in slots().filter(|slot| is_ours.is_none() && slot.is_ours.is_none()) {
        if slot.path.load(SeqCst).is_null() {
            slot.path.store(path, SeqCst);
            return;
        }
    }
    let slot = Slot { path: AtomicPtr::new(path), is_ours, next: SLOTS.load(SeqCst) };
    SLOTS.store(Box::into_raw(Box::new(slot)), SeqCst);
}

/// Forgets a file or directory: it is gone, or shall stay.
pub fn forget(path: &Path) {
    let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    for slot in slots() {
        let held = slot.path.load(SeqCst);
        // SAFETY: a path that is not null is a C string, and is freed only below, under the lock that we hold.
        if !held.is_null() && unsafe { CStr::from_ptr(held) }.to_bytes() == path.as_os_str().as_bytes() {
            slot.path.store(ptr::null_mut(), SeqCst);
            if !REMOVING.load(SeqCst) {
                // SAFETY: it came from `into_raw`, and no slot has it any more. Whoever removes everything says so
                // before it looks at slots, so that it has not seen this path.
                drop(unsafe { CString::from_raw(held) });
            }
        }
    }
}

fn slots() -> impl Iterator<Item = &'static Slot> {
    let mut next = SLOTS.load(SeqCst).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: slots are made by `register`, linked before they are seen, and never freed or changed but for
        // their atomic path.
        let slot = unsafe { next.as_ref() }?;
        next = slot.next;
        Some(slot)
    })
}

/// Waits for the end of the process, which another thread brings about.
fn wait_for_the_end() -> ! {
    loop {
        // SAFETY: waits for a signal.
        unsafe { libc::pause() };
    }
}

/// Time for other threads to create what they registered before the removal began, microseconds.
const GRACE_US: libc::useconds_t = 10_000;

/// Claims the end of the process for this thread, which alone reports it and then calls [`remove_all`]. Every other
/// thread that calls this waits for the end.
pub fn claim_end() {
    if REMOVING.swap(true, SeqCst) {
        wait_for_the_end();
    }
}

/// Removes everything registered, for a thread that has claimed the end of the process.
pub fn remove_all() {
    remove_registered();
    // SAFETY: sleeps.
    unsafe { libc::usleep(GRACE_US) };
    remove_registered();
}

fn remove_registered() {
    for slot in slots() {
        let path = slot.path.load(SeqCst);
        if path.is_null() {
            continue;
        }
        // SAFETY: a C string that is not freed from now on.
        let path = unsafe { CStr::from_ptr(path) };
        match slot.is_ours {
            // SAFETY: a C string.
            None => _ = unsafe { libc::unlink(path.as_ptr()) },
            Some(is_ours) => remove_directory(path, is_ours),
        }
    }
}

/// Other threads still run, and may make another spill in the meantime.
const ATTEMPTS: usize = 20;

fn remove_directory(path: &CStr, is_ours: IsOurs) {
    for _ in 0..ATTEMPTS {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: a C string, and flags that create nothing.
        let directory = unsafe { libc::open(path.as_ptr(), flags) };
        if directory < 0 {
            return;
        }
        remove_entries(directory, is_ours);
        // SAFETY: our own descriptor, closed once, and a C string.
        unsafe {
            libc::close(directory);
            if libc::rmdir(path.as_ptr()) == 0 {
                return;
            }
        }
    }
}

/// Where the name begins in what the kernel tells of an entry (`struct linux_dirent64`), and its length field.
const NAME_AT: usize = 19;
const LENGTH_AT: usize = 16;

fn remove_entries(directory: libc::c_int, is_ours: IsOurs) {
    // The kernel aligns entries to eight bytes.
    let mut entries = [0_u64; 512];
    loop {
        let bytes = size_of_val(&entries);
        // SAFETY: the kernel writes at most `bytes` to the array, which is valid for them.
        let filled = unsafe { libc::syscall(libc::SYS_getdents64, directory, entries.as_mut_ptr(), bytes) };
        let Ok(filled @ 1..) = usize::try_from(filled) else { return };
        // SAFETY: the kernel has written these bytes, which are within the array.
        let mut left = unsafe { std::slice::from_raw_parts(entries.as_ptr().cast::<u8>(), filled) };
        while let Some(&[low, high]) = left.get(LENGTH_AT..LENGTH_AT + 2) {
            let length = usize::from(u16::from_ne_bytes([low, high]));
            let Some(name) = left.get(NAME_AT..length) else { return };
            if let Ok(name) = CStr::from_bytes_until_nul(name)
                && is_ours(name.to_bytes())
            {
                // SAFETY: an open directory and a C string.
                unsafe { libc::unlinkat(directory, name.as_ptr(), 0) };
            }
            left = left.get(length..).unwrap_or_default();
        }
    }
}

thread_local! {
    /// Whether this thread asks for memory that it can do without.
    static FALLIBLE: Cell<bool> = const { Cell::new(false) };
}

/// Calls `ask`, which asks the global allocator for memory and copes with a refusal (`try_reserve`).
pub fn fallible<T>(ask: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            FALLIBLE.set(self.0);
        }
    }
    let _restore = Restore(FALLIBLE.replace(true));
    ask()
}

/// Whether this thread is inside [`fallible`].
pub fn is_fallible() -> bool {
    FALLIBLE.try_with(Cell::get).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_flag_holds_inside_only() {
        assert!(!is_fallible());
        assert!(fallible(|| fallible(is_fallible) && is_fallible()));
        assert!(!is_fallible());
    }

    #[test]
    fn a_directory_goes_with_what_is_ours() {
        let place = tempfile::tempdir().unwrap();
        let [whole, shared] = ["whole", "shared"].map(|name| place.path().join(name));
        for dir in [&whole, &shared] {
            fs::create_dir(dir).unwrap();
            // More than one call of the kernel's tells.
            (0..300).for_each(|at| fs::write(dir.join(format!("run-{at:06}.run")), b"x").unwrap());
        }
        fs::write(shared.join("notes.txt"), b"x").unwrap();
        for dir in [&whole, &shared] {
            let path = CString::new(dir.as_os_str().as_bytes()).unwrap();
            remove_directory(&path, |name| name.starts_with(b"run-"));
        }
        assert!(!whole.exists());
        let left: Vec<_> = fs::read_dir(&shared).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["notes.txt"]);
    }

    #[test]
    fn paths_come_and_go() {
        let held = || {
            let paths = slots().map(|slot| slot.path.load(SeqCst)).filter(|path| !path.is_null());
            // SAFETY: this test's paths are freed by this test only, and it compares no others after they go.
            let paths = paths.map(|path| unsafe { CStr::from_ptr(path) }.to_string_lossy().into_owned());
            paths.filter(|path| path.starts_with("/emergency-test")).count()
        };
        let names: Vec<String> = (0..9).map(|at| format!("/emergency-test/{at}")).collect();
        names.iter().for_each(|name| register_file(Path::new(name)));
        register_directory(Path::new("/emergency-test"), |_| false);
        assert_eq!(held(), 10);
        names.iter().for_each(|name| forget(Path::new(name)));
        forget(Path::new("/emergency-test"));
        assert_eq!(held(), 0);
    }
}
