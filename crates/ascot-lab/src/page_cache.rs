//! The page cache: takes the pages of a file out of it.

use std::fs::File;
use std::path::Path;

use rustix::fs::Advice;

use crate::error::LabError;

/// Puts a file on the device, and drops its pages from the cache. Pages that are not on the device cannot be dropped.
///
/// # Errors
/// The system's.
pub(crate) fn drop_file(path: &Path) -> Result<(), LabError> {
    let dropped = File::open(path).and_then(|file| {
        file.sync_data()?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
        Ok(())
    });
    dropped.map_err(LabError::file("drop from the page cache", path))
}

/// For tests: bytes that this thread has read from devices.
#[cfg(test)]
pub(crate) fn bytes_read() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    text.lines().find_map(|line| line.strip_prefix("read_bytes: ")).unwrap().parse().unwrap()
}
