//! Removing spills beside the work: a file system takes a tenth of a second to free a third of a
//! gigabyte, in which nothing would be merged.
//!
//! Invariant: one removal is under way at most, and the next waits for it. What would take more of the disk than
//! the job's plan says waits for it, too.

use std::path::PathBuf;
use std::sync::Arc;

use ascot_io::threads::{Thread, spawn};
use ascot_io::{Disk, IoError};

use crate::api::error::SortError;

/// Removes files of a job, the latest while the job goes on.
pub struct Sweeper {
    disk: Disk,
    under_way: Option<(Thread<Result<(), IoError>>, u64)>,
}

impl Sweeper {
    /// So few bytes are gone sooner than a thread is there.
    const FEW_BYTES: u64 = 8 << 20;

    /// Removes from `disk`.
    pub fn new(disk: &Disk) -> Self {
        Sweeper { disk: disk.clone(), under_way: None }
    }

    /// Removes `files`, of `bytes` bytes; gives the bytes known to be gone since the last time. An error
    /// may be that of an earlier removal.
    pub fn remove(&mut self, files: Vec<PathBuf>, bytes: u64) -> Result<u64, SortError> {
        let gone = self.wait()?;
        let disk = self.disk.clone();
        let files = Arc::new(files);
        let all = move || files.iter().try_for_each(|file| disk.remove_file(file));
        if bytes > Self::FEW_BYTES {
            let (under_way, all) = (self.disk.removal(), all.clone());
            let beside = move || {
                let _under_way = under_way;
                all()
            };
            // Without a thread for it the job waits for the removal.
            if let Ok(thread) = spawn("remove", beside) {
                self.under_way = Some((thread, bytes));
                return Ok(gone);
            }
        }
        all()?;
        Ok(gone + bytes)
    }

    /// Waits for what is under way; gives its bytes.
    pub fn wait(&mut self) -> Result<u64, SortError> {
        let Some((thread, bytes)) = self.under_way.take() else { return Ok(0) };
        thread.join()??;
        Ok(bytes)
    }
}

impl Drop for Sweeper {
    /// Whoever comes after finds files that are there or gone.
    fn drop(&mut self) {
        // The job has failed already, for a reason of its own.
        let _ = self.wait();
    }
}
