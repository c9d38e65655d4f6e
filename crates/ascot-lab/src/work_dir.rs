//! The private directory of the files that a study measures.
//!
//! Its name begins with [`PREFIX`] and ends with random digits; only its owner may enter it, and a lock on the
//! directory itself shows that the study is running. Dropping it removes it. A killed process leaves it without a lock,
//! and the next study in the same place removes it.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::error::LabError;

/// The beginning of the names of these directories.
pub const PREFIX: &str = ".ascot-lab-";

/// The beginning of the name of a directory that is not locked yet.
const NEW_PREFIX: &str = ".new-ascot-lab-";

/// A directory that is removed when it is dropped.
#[derive(Debug)]
pub struct WorkDir {
    path: PathBuf,
    _lock: File,
}

impl WorkDir {
    /// Makes a directory in `parent`, and removes those that killed studies left there.
    ///
    /// # Errors
    /// The system's.
    pub fn create(parent: &Path) -> Result<Self, LabError> {
        remove_leftovers(parent);
        let random = u64::from_le_bytes(
            ascot_io::random_bytes().map_err(LabError::file("name a directory in", parent))?,
        );
        // Locked before it has a name by which another study could take it for a leftover.
        let unlocked = parent.join(format!("{NEW_PREFIX}{random:016x}"));
        let path = parent.join(format!("{PREFIX}{random:016x}"));
        DirBuilder::new().mode(0o700).create(&unlocked).map_err(LabError::file("make", &path))?;
        let locked = File::open(&unlocked).and_then(|directory| {
            rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
            fs::rename(&unlocked, &path)?;
            Ok(directory)
        });
        match locked {
            Ok(lock) => Ok(Self { path, _lock: lock }),
            Err(error) => {
                // Empty and ours: the error that is reported is the first.
                let _ = fs::remove_dir(&unlocked);
                Err(LabError::file("make", &path)(error))
            }
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        // A directory that stays is removed by the next study.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the directories of studies that are no longer running.
fn remove_leftovers(parent: &Path) {
    for path in leftovers(parent) {
        // The files are useless; a refusal only costs space, and the next study tries again.
        let _ = fs::remove_dir_all(path);
    }
}

/// The directories in `parent` of studies that are no longer running, in the order of their names; `parent` itself, if
/// it is one.
pub fn leftovers(parent: &Path) -> Vec<PathBuf> {
    if is_left_over(parent) {
        return vec![parent.to_path_buf()];
    }
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let mut found: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| is_left_over(path)).collect();
    found.sort();
    found
}

/// Whether a path is the directory of a study of this user, and no process holds its lock.
fn is_left_over(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let me = rustix::process::geteuid().as_raw();
    let is_free =
        |directory: File| rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok();
    name.starts_with(PREFIX)
        && fs::symlink_metadata(path).is_ok_and(|stat| stat.is_dir() && stat.uid() == me)
        && File::open(path).is_ok_and(is_free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_goes_with_its_study_and_a_leftover_with_the_next() {
        let parent = tempfile::tempdir().unwrap();
        let left_over = parent.path().join(format!("{PREFIX}0123"));
        let foreign = parent.path().join("other");
        for path in [&left_over, &foreign] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("file"), "x").unwrap();
        }
        let running = WorkDir::create(parent.path()).unwrap();
        assert!(!left_over.exists() && foreign.exists());
        fs::write(running.path().join("file"), "x").unwrap();
        let second = WorkDir::create(parent.path()).unwrap();
        assert!(running.path().join("file").exists(), "a study that is running keeps its files");
        let paths = [running.path().to_path_buf(), second.path().to_path_buf()];
        drop((running, second));
        assert!(paths.iter().all(|path| !path.exists()));
    }
}
