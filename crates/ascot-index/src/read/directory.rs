//! An indexed directory open for reading: its manifest, the memory of its queries, and its caches.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use ascot_io::{Disk, MetadataCalls, Pool, Unpoisoned};

use crate::error::{IndexError, Result};
use crate::format::layout::Layout;
use crate::format::manifest::Manifest;
use crate::read::cache::Cache;
use crate::read::counters::QueryCounts;
use crate::read::files::Files;
use crate::read::notices::Notices;
use crate::read::stamp::Stamp;

/// Default memory of a reader, bytes.
pub const USUAL_MEMORY_BYTES: usize = 64 << 20;
/// Least memory of a reader, bytes.
pub const MIN_MEMORY_BYTES: usize = 4 << 20;
/// One part in this many of the memory is for cached indexes.
const KEPT_SHARE: usize = 4;

/// An indexed directory open for reading. Any number of threads may query it concurrently.
pub struct Directory {
    pub(super) disk: Disk,
    pub(super) path: PathBuf,
    pub(super) manifest: Manifest,
    /// Stamp of the manifest, taken before it was read.
    stamp: Stamp,
    /// The partition boundaries of each epoch, if partitions are by key range.
    boundaries: Vec<Vec<Vec<u8>>>,
    /// The memory it was opened with, bytes: `pool` and `cache` together.
    memory_bytes: usize,
    pub(super) pool: Pool,
    cache: Mutex<Cache>,
    pub(super) files: Files,
    counts: Mutex<QueryCounts>,
    notices: Mutex<Notices>,
}

impl Directory {
    /// Opens a directory with the epochs that are complete now. It may be written at the same time; epochs
    /// completed later are visible after opening it again.
    ///
    /// # Errors
    /// [`IndexError::NotIndexed`], a damaged manifest, a newer version; [`IndexError::TooLittle`]
    /// for less than [`MIN_MEMORY_BYTES`].
    pub fn open(disk: &Disk, path: &Path, memory_bytes: usize) -> Result<Self> {
        if memory_bytes < MIN_MEMORY_BYTES {
            return Err(IndexError::TooLittle {
                what: "reading an indexed directory".to_owned(),
                min_kib: MIN_MEMORY_BYTES / 1024,
                allowed_kib: memory_bytes / 1024,
                advice: "allow more memory",
            });
        }
        let stamp = Stamp::from_path(path);
        let calls = Arc::new(MetadataCalls::default());
        // Three inspections: the stamp, and the manifest's size before and during the read.
        calls.count_opened(1);
        calls.count_inspected(3);
        // Memory is divided in advance, so that the shares add up to the cap.
        let manifest = Manifest::read(path)?;
        let kept_bytes = memory_bytes / KEPT_SHARE;
        let bounded = 0..manifest.boundaries.len() as u64;
        Ok(Self {
            disk: disk.clone(),
            path: path.to_path_buf(),
            boundaries: bounded.map(|epoch| manifest.boundaries_of(epoch)).collect(),
            manifest,
            stamp,
            memory_bytes,
            pool: Pool::new(memory_bytes - kept_bytes),
            cache: Mutex::new(Cache::new(kept_bytes)),
            files: Files::new(disk, calls),
            counts: Mutex::default(),
            notices: Mutex::default(),
        })
    }

    /// The manifest: the layout and the number of complete epochs.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Whether the manifest was replaced since it was read; costs one file system call.
    pub fn has_gone_on(&self) -> bool {
        self.files.calls().count_inspected(1);
        Stamp::from_path(&self.path) != self.stamp
    }

    /// When the manifest that was read was last written, if known.
    pub fn modified(&self) -> Option<SystemTime> {
        self.stamp.modified
    }

    /// Opens the current state of the directory, with the same memory.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_again(&self) -> Result<Self> {
        Self::open(&self.disk, &self.path, self.memory_bytes)
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Counts of the queries so far.
    pub fn counts(&self) -> QueryCounts {
        QueryCounts {
            files_opened: self.files.calls().opened(),
            files_inspected: self.files.calls().inspected(),
            ..*self.counts.lock().unpoisoned()
        }
    }

    /// Adds to the counts.
    pub(super) fn count(&self, add: impl FnOnce(&mut QueryCounts)) {
        add(&mut self.counts.lock().unpoisoned());
    }

    /// Takes the notices about damaged filters that queries did without; they are empty afterwards.
    pub fn take_notices(&self) -> Notices {
        std::mem::take(&mut *self.notices.lock().unpoisoned())
    }

    pub(super) fn notice(&self, text: String) {
        self.notices.lock().unpoisoned().add(text);
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.manifest.layout
    }

    pub(super) fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unpoisoned()
    }

    /// The partition of a key in an epoch.
    pub(crate) fn partition_at(&self, key: &[u8], epoch: u64) -> u32 {
        let partitions = self.manifest.shape_at(epoch).partitions;
        self.layout().partition_among(partitions, key, self.boundaries_at(epoch))
    }

    /// The boundaries of an epoch; empty if partitions are by hash.
    /// The requested epoch, if it is complete, or all epochs.
    pub(super) fn epochs(&self, epoch: Option<u64>) -> Range<u64> {
        match epoch {
            Some(epoch) => epoch..epoch.saturating_add(1).min(self.manifest.epochs).max(epoch),
            None => 0..self.manifest.epochs,
        }
    }

    pub(super) fn boundaries_at(&self, epoch: u64) -> &[Vec<u8>] {
        let epoch = usize::try_from(epoch).unwrap_or(usize::MAX);
        self.boundaries.get(epoch).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
                None => Directory::open(&disk, &path, MIN_MEMORY_BYTES).unwrap(),
            };
            assert_eq!(now.get(b"key").unwrap().len() as u64, epoch + 1);
            reader = Some(now);
        }
    }
}
