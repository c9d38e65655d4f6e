//! Removes large files at once: their names go first, their blocks after the call.
//!
//! A file system needs a third of a second to free a gigabyte, and a user who stops a job should not wait for that.
//!
//! ```text
//!   open ─▶ remove the name ─▶ [ thread: close, and the blocks are free ]
//! ```
//!
//! On other file systems than those of a disk, such as NFS, an open file keeps a hidden name, and its directory cannot
//! be removed: there both go at once.
//!
//! Invariants: a file whose name could be removed is freed at the latest when the process ends, however it ends. A
//! caller that asks for the free space of a volume waits for the files that are being freed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use ascot_model::stages;

use crate::sync::Unpoisoned;
use crate::system::descriptor_limit;
use crate::threads::spawn;
use crate::waits::{Need, wait_for};

/// Smaller files are freed at once: that takes less time than a thread.
const MIN_BYTES: u64 = 8 << 20;
/// Maximum number of open files, and the inverse of their maximum share of the descriptors of this process.
const MAX_FILES: usize = 256;
const FILES_SHARE: usize = 4;

/// File systems of disks: ext2 to ext4, XFS, Btrfs, F2FS, and those in the layers of a container.
const OF_DISKS: [u64; 5] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x794C_7630];

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
    /// Removes the name of a file. If it is not worth a thread, or too many files are open, its blocks are freed now.
    ///
    /// # Errors
    /// The name could not be removed.
    pub(crate) fn remove(&mut self, path: &Path) -> io::Result<()> {
        // A pipe that has taken the name keeps no one waiting.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let file = file.ok().filter(|file| self.takes(file));
        fs::remove_file(path)?;
        self.files.extend(file);
        Ok(())
    }

    /// Frees the blocks of a file whose name was removed.
    pub(crate) fn hold(&mut self, file: File) {
        if self.takes(&file) {
            self.files.push(file);
        }
    }

    fn takes(&self, file: &File) -> bool {
        let is_large = file.metadata().is_ok_and(|stat| stat.is_file() && stat.len() >= MIN_BYTES);
        let of_disk =
            || rustix::fs::fstatfs(file).is_ok_and(|state| OF_DISKS.contains(&(state.f_type as u64)));
        is_large && of_disk() && self.files.len() < MAX_FILES.min(descriptor_limit() / FILES_SHARE)
    }
}

impl Drop for RemovedFiles {
    fn drop(&mut self) {
        let files = std::mem::take(&mut self.files);
        if !files.is_empty() {
            let freeing = Freeing::begin();
            // Without a thread, the files are closed with the function that it was to run.
            let _ = spawn(stages::REMOVE, move || {
                let _freeing = freeing;
                drop(files);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// The descriptors of this process whose file has lost the name `path`.
    fn held(path: &Path) -> usize {
        let gone = format!("{} (deleted)", path.display());
        let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let links = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
        links.filter(|link| link.to_string_lossy() == gone).count()
    }

    /// A file of `bytes` bytes.
    fn made(directory: &Path, name: &str, bytes: u64) -> PathBuf {
        let path = directory.join(name);
        File::create(&path).unwrap().set_len(bytes).unwrap();
        path
    }

    #[test]
    fn a_file_that_is_on_no_disk_loses_both_at_once() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let large = made(directory.path(), "large", MIN_BYTES);
        let mut removed = RemovedFiles::default();
        removed.remove(&large).unwrap();
        assert!(!large.exists() && held(&large) == 0);
    }

    #[test]
    fn a_large_file_loses_its_name_before_its_blocks() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let [large, small] =
            [("large", MIN_BYTES), ("small", 10)].map(|(name, bytes)| made(directory.path(), name, bytes));
        let mut removed = RemovedFiles::default();
        if !removed.takes(&File::open(&large).unwrap()) {
            println!("not tested: {} is on no disk", large.display());
            return;
        }
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
