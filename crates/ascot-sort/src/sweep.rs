//! Removing spills beside the work: a file system takes a tenth of a second to free a third of a
//! gigabyte, in which nothing would be merged.
//!
//! Invariant: one removal is under way at most, and the next waits for it. What would take more of the disk than
//! the job's plan says waits for it, too.

use std::path::PathBuf;
use std::thread::JoinHandle;

use ascot_io::{Disk, IoError};

use crate::error::SortError;
use crate::threads::no_thread;

/// Removes files of a job, the latest while the job goes on.
pub struct Sweeper {
    disk: Disk,
    under_way: Option<(JoinHandle<Result<(), IoError>>, u64)>,
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
        let all = move || files.iter().try_for_each(|file| disk.remove_file(file));
        if bytes <= Self::FEW_BYTES {
            all()?;
            return Ok(gone + bytes);
        }
        let under_way = self.disk.removal();
        let all = move || {
            let _under_way = under_way;
            all()
        };
        let thread = std::thread::Builder::new().spawn(all).map_err(no_thread)?;
        self.under_way = Some((thread, bytes));
        Ok(gone)
    }

    /// Waits for what is under way; gives its bytes.
    pub fn wait(&mut self) -> Result<u64, SortError> {
        let Some((thread, bytes)) = self.under_way.take() else { return Ok(0) };
        thread.join().map_err(|_| SortError::Internal("removing spills ended early"))??;
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
