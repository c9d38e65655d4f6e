//! Detects that a directory has changed since it was opened: the end of every epoch replaces the manifest
//! file.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use crate::format::names::MANIFEST;

/// File attributes that distinguish one manifest from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Inode and length; `None` if there is no file.
    file: Option<(u64, u64)>,
    /// Time of the last change, if known.
    pub modified: Option<SystemTime>,
}

impl Stamp {
    /// The current stamp of a directory's manifest.
    pub fn from_path(directory: &Path) -> Self {
        let stat = std::fs::metadata(directory.join(MANIFEST)).ok();
        let file = stat.as_ref().map(|stat| (stat.ino(), stat.len()));
        Self { file, modified: stat.and_then(|stat| stat.modified().ok()) }
    }
}
