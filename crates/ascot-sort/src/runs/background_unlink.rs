//! Removes spills on a thread of its own: a file system needs a tenth of a second to free a third of a gigabyte, and
//! the merge continues meanwhile.
//!
//! Invariant: at most one removal is under way, and the next one waits for it. A write that would exceed the planned
//! disk use waits for it too.

use std::path::PathBuf;
use std::sync::Arc;

use ascot_io::threads::{Thread, spawn};
use ascot_io::{Disk, IoError};
use ascot_model::stages;

use crate::api::Result;

/// Removes files of a job while the job continues.
pub struct BackgroundUnlink {
    disk: Disk,
    under_way: Option<(Thread<Result<(), IoError>>, u64)>,
}

impl BackgroundUnlink {
    /// Removing fewer bytes takes less time than starting a thread.
    const FEW_BYTES: u64 = 8 << 20;

    /// Removes from `disk`.
    pub fn new(disk: &Disk) -> Self {
        BackgroundUnlink { disk: disk.clone(), under_way: None }
    }

    /// Removes `files`, of `bytes` bytes. Returns the bytes of removals that have ended since the last call. An error
    /// may be that of an earlier removal.
    pub fn remove(&mut self, files: Vec<PathBuf>, bytes: u64) -> Result<u64> {
        let gone = self.wait()?;
        let disk = self.disk.clone();
        let files = Arc::new(files);
        let all = move || files.iter().try_for_each(|file| disk.remove_file(file));
        if bytes > Self::FEW_BYTES {
            let under_way = self.disk.space().begin_removal();
            let all = all.clone();
            let beside = move || {
                let _under_way = under_way;
                all()
            };
            // If no thread can be started, the job waits for the removal.
            if let Ok(thread) = spawn(stages::REMOVE, beside) {
                self.under_way = Some((thread, bytes));
                return Ok(gone);
            }
        }
        all()?;
        Ok(gone + bytes)
    }

    /// Waits for the removal under way, and returns its bytes.
    pub fn wait(&mut self) -> Result<u64> {
        let Some((thread, bytes)) = self.under_way.take() else { return Ok(0) };
        thread.join()??;
        Ok(bytes)
    }
}

impl Drop for BackgroundUnlink {
    /// Waits, so that no file is removed later.
    fn drop(&mut self) {
        // The job has already failed with an error of its own.
        let _ = self.wait();
    }
}
