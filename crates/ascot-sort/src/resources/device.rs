//! The device that a file or a directory is on.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The number of the device that `path` is on; none if the path cannot be inspected.
pub fn device_of(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|stat| stat.dev())
}
