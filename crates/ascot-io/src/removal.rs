//! Removes large files at once: their names go first, their blocks after the call.
//!
//! A file system needs a third of a second to free a gigabyte, and whoever stops a job should not wait for that.
//!
//! ```text
//!   open ─▶ remove the name ─▶ [ thread: close, and the blocks are free ]
//! ```
//!
//! Invariants: a file whose name could be removed is freed at the latest when the process ends, however it ends. Whoever
//! asks for the free space of a volume waits for the files that are being freed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::sync::Unpoisoned;
use crate::system::descriptor_limit;
use crate::threads::spawn;
use crate::waits::{Need, wait_for};

/// Smaller files are freed at once: that takes less time than a thread.
const MIN_BYTES: u64 = 8 << 20;
/// Maximum number of open files, and the inverse of their maximum share of the descriptors of this process.
const MAX_FILES: usize = 256;
const FILES_SHARE: usize = 4;

/// Threads that free files, in this process.
static FREEING: Mutex<usize> = Mutex::new(0);
static FREED: Condvar = Condvar::new();
/// Maximum wait for them: a process that was forked meanwhile has no such threads.
const PATIENCE: Duration = Duration::from_secs(10);

/// A thread that frees files.
struct Freeing;

impl Freeing {
    fn begin() -> Freeing {
        *FREEING.lock().unpoisoned() += 1;
        Freeing
    }
}

impl Drop for Freeing {
    fn drop(&mut self) {
        let mut freeing = FREEING.lock().unpoisoned();
        *freeing = freeing.saturating_sub(1);
        FREED.notify_all();
    }
}

/// Waits until the blocks of removed files are free.
pub(crate) fn wait_until_freed() {
    let deadline = Instant::now() + PATIENCE;
    let mut freeing = FREEING.lock().unpoisoned();
    let _waiting = (*freeing > 0).then(|| wait_for("files to be freed", Need::DEVICE, None));
    while *freeing > 0 {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        freeing = FREED.wait_timeout(freeing, left).unpoisoned().0;
    }
}

/// Files without names, whose blocks are freed on a thread of their own when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct RemovedFiles {
    files: Vec<File>,
}

impl RemovedFiles {
    /// Removes the name of a file. If too many files are open, its blocks are freed now.
    ///
    /// # Errors
    /// The name could not be removed.
    pub(crate) fn remove(&mut self, path: &Path) -> io::Result<()> {
        // Without a descriptor the blocks are freed with the name. A pipe that has taken the name keeps no one waiting.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
        fs::remove_file(path)?;
        file.into_iter().for_each(|file| self.hold(file));
        Ok(())
    }

    /// Frees the blocks of a file whose name was removed.
    pub(crate) fn hold(&mut self, file: File) {
        let is_large = file.metadata().is_ok_and(|stat| stat.is_file() && stat.len() >= MIN_BYTES);
        if is_large && self.files.len() < MAX_FILES.min(descriptor_limit() / FILES_SHARE) {
            self.files.push(file);
        }
    }
}

impl Drop for RemovedFiles {
    fn drop(&mut self) {
        let files = std::mem::take(&mut self.files);
        if !files.is_empty() {
            let freeing = Freeing::begin();
            // Without a thread, the files are closed with the function that it was to run.
            let _ = spawn("free", move || {
                let _freeing = freeing;
                drop(files);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The descriptors of this process whose file has lost the name `path`.
    fn held(path: &Path) -> usize {
        let gone = format!("{} (deleted)", path.display());
        let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let links = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
        links.filter(|link| link.to_string_lossy() == gone).count()
    }

    #[test]
    fn a_large_file_loses_its_name_before_its_blocks() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let [large, small] = [("large", MIN_BYTES), ("small", 10)].map(|(name, bytes)| {
            let path = directory.path().join(name);
            File::create(&path).unwrap().set_len(bytes).unwrap();
            path
        });
        let mut removed = RemovedFiles::default();
        removed.remove(&large).unwrap();
        removed.remove(&small).unwrap();
        assert!(!large.exists() && !small.exists());
        assert_eq!((held(&large), held(&small)), (1, 0));
        assert_eq!(removed.remove(&large).unwrap_err().kind(), io::ErrorKind::NotFound);
        drop(removed);
        wait_until_freed();
        assert_eq!(held(&large), 0);
    }
}
