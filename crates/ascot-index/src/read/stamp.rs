//! Detects that a directory has changed since it was opened: the end of every epoch replaces the manifest
//! file.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use crate::format::names::MANIFEST;

/// File attributes that distinguish one manifest from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Inode, length, seconds and nanoseconds of the last change; `None` if there is no file.
    facts: Option<(u64, u64, i64, i64)>,
    /// Time of the last change, if known.
    pub modified: Option<SystemTime>,
}

impl Stamp {
    /// The current stamp of a directory's manifest.
    pub fn from_path(directory: &Path) -> Self {
        let stat = std::fs::metadata(directory.join(MANIFEST)).ok();
        let facts = |stat: &Metadata| (stat.ino(), stat.len(), stat.mtime(), stat.mtime_nsec());
        Self { facts: stat.as_ref().map(facts), modified: stat.and_then(|stat| stat.modified().ok()) }
    }
}
