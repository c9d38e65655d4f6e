//! Removes unfinished files if the process must end at once because the smallest allocation failed.
//!
//! Such a failure can happen anywhere, with any lock held, and destructors may not run. Unfinished files are therefore
//! registered while they exist, and the allocator of the command calls [`remove_all`].
//!
//! Invariants: [`remove_all`] allocates nothing and takes no lock. A path that it can see is never freed. It removes
//! registered files only, and from a registered directory only the entries whose names the owner knows.

use std::alloc::{Layout, handle_alloc_error};
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, RawDir};

/// Decides by its name whether a directory entry may be removed.
pub type IsOurs = fn(&[u8]) -> bool;

/// A slot for one path; slots are reused and never freed.
struct Slot {
    /// Null if the slot is free.
    path: AtomicPtr<c_char>,
    /// None for a file. Fixed for the slot's lifetime.
    is_ours: Option<IsOurs>,
    next: *const Slot,
}

/// The newest slot.
static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
/// Held while paths change.
static CHANGING: Mutex<()> = Mutex::new(());
/// A removal of everything has begun: paths that it may read are not freed.
static REMOVING: AtomicBool = AtomicBool::new(false);

/// Ends the process after a refused allocation of this many bytes.
pub type End = fn(usize) -> !;

static END: OnceLock<End> = OnceLock::new();

/// Sets the function that ends the process when required memory is refused; called once at most.
pub fn end_by(end: End) {
    assert!(END.set(end).is_ok(), "the function that ends the process is set once");
}

/// Ends the process because required memory was refused: by the function set with [`end_by`], else as the standard
/// library does.
pub(crate) fn out_of_memory(bytes: usize) -> ! {
    match END.get() {
        Some(end) => end(bytes),
        None => handle_alloc_error(Layout::from_size_align(bytes, 1).unwrap_or(Layout::new::<u8>())),
    }
}

/// Registers a file before it is created: afterwards there may be no memory for that.
pub fn register_file(path: &Path) {
    register(path, None);
}

/// Registers a directory: its entries that are `is_ours` are removed, and then the directory if it is empty.
pub fn register_directory(path: &Path, is_ours: IsOurs) {
    register(path, Some(is_ours));
}

fn register(path: &Path, is_ours: Option<IsOurs>) {
    link(path, is_ours);
    if REMOVING.load(SeqCst) {
        // After that, nothing may be created.
        wait_for_the_end();
    }
}

/// The lock of all changes. It never panics, since files have to be registered and forgotten while a process ends. A
/// panic of another thread leaves the list whole: each change of it is one atomic store.
fn changing() -> MutexGuard<'static, ()> {
    CHANGING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn link(path: &Path, is_ours: Option<IsOurs>) {
    // A path with a NUL in it names nothing.
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return };
    let _changing = changing();
    let path = path.into_raw();
    // Directories are few: their slots are not reused, since a slot keeps its `is_ours`.
    for slot in slots().filter(|slot| is_ours.is_none() && slot.is_ours.is_none()) {
        if slot.path.load(SeqCst).is_null() {
            slot.path.store(path, SeqCst);
            return;
        }
    }
    let slot = Slot { path: AtomicPtr::new(path), is_ours, next: SLOTS.load(SeqCst) };
    SLOTS.store(Box::into_raw(Box::new(slot)), SeqCst);
}

/// Forgets a file or directory that is gone or is kept. Once a removal has begun, this does not return: the removal may
/// have seen the path, so the caller must not rely on the file.
pub fn forget(path: &Path) {
    clear_slot(path);
    if REMOVING.load(SeqCst) {
        wait_for_the_end();
    }
}

#[expect(unsafe_code, reason = "an abort reads the list without a lock")]
fn clear_slot(path: &Path) {
    let _changing = changing();
    for slot in slots() {
        let held = slot.path.load(SeqCst);
        // SAFETY: a path that is not null is a C string, and is freed only below, under the lock that we hold.
        if !held.is_null() && unsafe { CStr::from_ptr(held) }.to_bytes() == path.as_os_str().as_bytes() {
            slot.path.store(ptr::null_mut(), SeqCst);
            if !REMOVING.load(SeqCst) {
                // SAFETY: it came from `into_raw`, and no slot has it any more. A removal sets its flag before it
                // reads slots, so it has not seen this path.
                drop(unsafe { CString::from_raw(held) });
            }
        }
    }
}

#[expect(unsafe_code, reason = "an abort reads the list without a lock")]
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

/// Waits for another thread to end the process.
fn wait_for_the_end() -> ! {
    loop {
        rustix::event::pause();
    }
}

/// Time for other threads to create the files that they registered before the removal began.
const GRACE: Duration = Duration::from_millis(10);

/// Claims the end of the process for this thread, which alone reports it and then calls [`remove_all`]. Every other
/// thread that calls this waits for the end.
pub fn claim_end() {
    if REMOVING.swap(true, SeqCst) {
        wait_for_the_end();
    }
}

/// Removes everything registered; called by the thread that has claimed the end of the process.
pub fn remove_all() {
    remove_registered();
    std::thread::sleep(GRACE);
    remove_registered();
}

#[expect(unsafe_code, reason = "an abort reads the list without a lock")]
fn remove_registered() {
    for slot in slots() {
        let path = slot.path.load(SeqCst);
        if path.is_null() {
            continue;
        }
        // SAFETY: a C string that is not freed from now on.
        let path = unsafe { CStr::from_ptr(path) };
        match slot.is_ours {
            None => _ = rustix::fs::unlink(path),
            Some(is_ours) => remove_directory(path, is_ours),
        }
    }
}

/// Other threads still run, and may create another spill meanwhile.
const ATTEMPTS: usize = 20;

fn remove_directory(path: &CStr, is_ours: IsOurs) {
    for _ in 0..ATTEMPTS {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(directory) = rustix::fs::open(path, flags, Mode::empty()) else { return };
        remove_entries(directory.as_fd(), is_ours);
        if rustix::fs::rmdir(path).is_ok() {
            return;
        }
    }
}

fn remove_entries(directory: BorrowedFd<'_>, is_ours: IsOurs) {
    let mut buffer = [const { MaybeUninit::uninit() }; 4096];
    let mut entries = RawDir::new(directory, &mut buffer);
    while let Some(Ok(entry)) = entries.next() {
        if is_ours(entry.file_name().to_bytes()) {
            let _ = rustix::fs::unlinkat(directory, entry.file_name(), AtFlags::empty());
        }
    }
}

thread_local! {
    /// Whether a refusal of memory on this thread is handled by the caller.
    static FALLIBLE: Cell<bool> = const { Cell::new(false) };
}

/// Calls `ask`, which requests memory from the global allocator and handles a refusal (`try_reserve`).
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
            // More entries than one system call returns.
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
    #[expect(unsafe_code, reason = "an abort reads the list without a lock")]
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
