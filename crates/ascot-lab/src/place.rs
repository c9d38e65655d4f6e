//! The place where a study measures: results of another machine or another volume are not its results.

use std::fs;
use std::path::{Path, PathBuf};

use ascot_io::Disk;

use crate::error::LabError;

/// The file system type of memory that looks like a volume (tmpfs).
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// The name of a place: the machine, and the directory in which files are measured: `host:/data`.
///
/// # Errors
/// The system's, if the directory does not exist.
pub fn name_of(work: &Path) -> Result<String, LabError> {
    let failed = LabError::file("measure in", work);
    let path: PathBuf = fs::canonicalize(work).map_err(failed)?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    // A separator of the table cannot be part of a field.
    Ok(format!("{host}:{}", path.display()).replace([';', '\n', '\r'], "_"))
}

/// A notice if the files of the directory are in memory, where a cold cache is a warm one.
pub fn notice(work: &Path) -> Option<String> {
    let stat = rustix::fs::statfs(work).ok()?;
    let is_memory = stat.f_type as i64 == TMPFS_MAGIC;
    is_memory.then(|| format!("{} is memory: there, a cold cache is a warm one", work.display()))
}

/// Checks that files of `needed_bytes` fit into `path`, the directory of `flag`.
pub(crate) fn check_free(path: &Path, flag: &'static str, needed_bytes: u64) -> Result<(), LabError> {
    let free_bytes = Disk::default().free_space(path)?;
    if needed_bytes > free_bytes {
        return Err(LabError::Space { path: path.to_path_buf(), flag, needed_bytes, free_bytes });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_machine_and_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("a;b");
        fs::create_dir(&inside).unwrap();
        let name = name_of(&inside.join("..").join("a;b")).unwrap();
        assert!(name.contains(':') && name.ends_with("/a_b"), "{name}");
        assert_ne!(name_of(dir.path()).unwrap(), name);
        assert!(name_of(&dir.path().join("none")).is_err());
        assert_eq!(notice(Path::new("/dev/shm")).is_some(), Path::new("/dev/shm").exists());
    }
}
