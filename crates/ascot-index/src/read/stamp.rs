//! Whether a directory has gone on since it was opened: by the file of its manifest, which every epoch's end replaces.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use crate::format::names::MANIFEST;

/// The facts of the file that tell one manifest from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// File, length, seconds and nanoseconds of its last change; none where there is no file.
    facts: Option<(u64, u64, i64, i64)>,
    /// Time of its last change, as far as is known.
    pub modified: Option<SystemTime>,
}

impl Stamp {
    /// That of a directory's manifest, now.
    pub fn of(directory: &Path) -> Self {
        let stat = std::fs::metadata(directory.join(MANIFEST)).ok();
        let facts = |stat: &Metadata| (stat.ino(), stat.len(), stat.mtime(), stat.mtime_nsec());
        Self { facts: stat.as_ref().map(facts), modified: stat.and_then(|stat| stat.modified().ok()) }
    }
}
