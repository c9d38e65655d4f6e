//! Whether a directory has gone on since it was opened: by the file of its manifest, which every epoch's end replaces.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use crate::error::Result;
use crate::format::names::MANIFEST;
use crate::read::Directory;

/// What tells one manifest from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// File, length, seconds and nanoseconds of its last change; none where there is no file.
    facts: Option<(u64, u64, i64, i64)>,
    modified: Option<SystemTime>,
}

impl Stamp {
    /// That of a directory's manifest, now.
    pub fn of(directory: &Path) -> Self {
        let stat = std::fs::metadata(directory.join(MANIFEST)).ok();
        let facts = |stat: &Metadata| (stat.ino(), stat.len(), stat.mtime(), stat.mtime_nsec());
        Self { facts: stat.as_ref().map(facts), modified: stat.and_then(|stat| stat.modified().ok()) }
    }
}

impl Directory {
    /// Whether another manifest is there than was read: costs asking the file system once.
    pub fn has_gone_on(&self) -> bool {
        self.files.calls().count_inspected(1);
        Stamp::of(&self.path) != self.stamp
    }

    /// When the manifest that was read had been written, as far as is known.
    pub fn modified(&self) -> Option<SystemTime> {
        self.stamp.modified
    }

    /// Opens the directory again, as it is now, with the same memory.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_again(&self) -> Result<Self> {
        Self::open(&self.disk, &self.path, self.memory_bytes)
    }
}

#[cfg(test)]
mod tests {
    use ascot_io::Disk;

    use super::*;
    use crate::read::LEAST_MEMORY_BYTES;
    use crate::{DirectoryWriter, Layout, Scheme};

    #[test]
    fn what_is_opened_again_and_again_keeps_its_memory() {
        let (disk, scratch) = (Disk::default(), tempfile::tempdir().unwrap());
        let path = scratch.path().join("run.dir");
        let mut writer =
            DirectoryWriter::create(&disk, &path, Layout::new(Scheme::Records, 1, 1), 8 << 20).unwrap();
        let mut reader: Option<Directory> = None;
        for epoch in 0..20u64 {
            writer.append_record(b"key", &epoch.to_le_bytes()).unwrap();
            writer.end_epoch().unwrap();
            let now = match &reader {
                Some(before) => before.open_again().unwrap(),
                None => Directory::open(&disk, &path, LEAST_MEMORY_BYTES).unwrap(),
            };
            assert_eq!(now.get(b"key").unwrap().len() as u64, epoch + 1);
            reader = Some(now);
        }
    }
}
