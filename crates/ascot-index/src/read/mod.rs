//! Reading: a key's values in a few reads, ranges, everything, and whether all of it is whole.
//!
//! ```text
//!   Directory ─ get ─▶ [auxiliary regions] ─▶ filter regions ─▶ blocks ─▶ [values]     each arrow: one round of reads
//!             ─ scan ─▶ tables, merged by key or one after the other
//!             ─ verify, info
//! ```
//!
//! Invariants: nothing is given out whose checksum was not looked at; memory is a cap given on opening, of which heads of segments
//! are kept as long as they fit; epochs that the manifest does not name are not there.

mod block;
mod cache;
mod covered;
pub(crate) mod fetch;
mod files;
mod gaps;
mod info;
mod log;
mod long_value;
mod lookup;
mod many;
mod merge;
mod notices;
mod scan;
mod stamp;
mod stored;
pub(crate) mod tail;
#[cfg(test)]
mod tests;
mod values;
mod verify;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ascot_io::{Disk, MetadataCalls, Pool};

use crate::error::{IndexError, Result};
use crate::format::manifest::{Layout, Manifest};
use crate::read::cache::Cache;
use crate::read::files::Files;
pub use crate::read::gaps::Unread;
pub use crate::read::info::{EpochInfo, Info};
pub use crate::read::long_value::LongValue;
pub use crate::read::many::Gap;
pub use crate::read::notices::Notices;
pub use crate::read::scan::{Condition, RecordValue, Scan, ScanRecord, Sign, StoredRecord};
use crate::read::stamp::Stamp;
pub use crate::read::stored::{Content, StoredValue};
pub use crate::read::verify::Verified;

/// Memory of a reader where nothing else is said, bytes.
pub const USUAL_MEMORY_BYTES: usize = 64 << 20;
/// Least memory of a reader, bytes.
pub const LEAST_MEMORY_BYTES: usize = 4 << 20;
/// One part of so many is for indexes that are kept.
const KEPT_SHARE: usize = 4;

/// A value that was appended to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// What queries have read so far; each read is one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryCounts {
    /// Footers, roots and heads of segments: what opening takes.
    pub opening_reads: u64,
    /// Regions of auxiliary tables.
    pub auxiliary_reads: u64,
    /// Ranks they named.
    pub ranks_named: u64,
    /// Regions of filters.
    pub filter_reads: u64,
    /// Blocks, or neighbouring blocks at once.
    pub block_reads: u64,
    /// Of these, reads that a filter's false positive caused.
    pub false_positives: u64,
    /// Values in writers' logs.
    pub value_reads: u64,
    /// Bytes of all of these.
    pub bytes: u64,
    /// Files opened.
    pub files_opened: u64,
    /// Calls that asked for a file's size or time.
    pub files_inspected: u64,
}

/// The same, counted by several threads.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub opening_reads: AtomicU64,
    pub auxiliary_reads: AtomicU64,
    pub ranks_named: AtomicU64,
    pub filter_reads: AtomicU64,
    pub block_reads: AtomicU64,
    pub false_positives: AtomicU64,
    pub value_reads: AtomicU64,
    pub bytes: AtomicU64,
}

/// Adds to a counter.
pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// An indexed directory, open for reading. Any number of threads may ask it at once.
pub struct Directory {
    disk: Disk,
    path: PathBuf,
    manifest: Manifest,
    /// Of the manifest, before it was read.
    stamp: Stamp,
    /// Of each epoch the boundaries of partitions, where they are by range.
    boundaries: Vec<Vec<Vec<u8>>>,
    /// What it was opened with, bytes: `pool` and `cache` together.
    memory_bytes: usize,
    pool: Pool,
    cache: Mutex<Cache>,
    files: Files,
    counters: Counters,
    notices: Mutex<Notices>,
}

impl Directory {
    /// Opens a directory as it is: the epochs that are complete now. It may be written meanwhile; what is completed later is
    /// seen by who opens it later.
    ///
    /// # Errors
    /// [`IndexError::NotIndexed`], what is wrong with the manifest, a newer version; [`IndexError::TooLittle`] for less
    /// than [`LEAST_MEMORY_BYTES`].
    pub fn open(disk: &Disk, path: &Path, memory_bytes: usize) -> Result<Self> {
        if memory_bytes < LEAST_MEMORY_BYTES {
            return Err(IndexError::TooLittle {
                what: "reading an indexed directory".to_owned(),
                least_kib: LEAST_MEMORY_BYTES / 1024,
                allowed_kib: memory_bytes / 1024,
                advice: "allow more memory",
            });
        }
        let stamp = Stamp::of(path);
        let calls = Arc::new(MetadataCalls::default());
        // The manifest: the stamp, its size before it is read, and while it is.
        calls.count_opened(1);
        calls.count_inspected(3);
        // Divided beforehand, so that the sum is the cap.
        let (manifest, kept_bytes) = (Manifest::read(path)?, memory_bytes / KEPT_SHARE);
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
            counters: Counters::default(),
            notices: Mutex::default(),
        })
    }

    /// What the directory is, and how many epochs are complete.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All values of `key`, by epoch, those of one epoch in the order in which their writer appended them; none where it was never
    /// written.
    ///
    /// # Errors
    /// A key of another length than the directory's; files that are missing, cut short or damaged.
    pub fn get(&self, key: &[u8]) -> Result<Vec<Value>> {
        self.get_one(key, None)
    }

    /// The values of `key` in one epoch.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_at(&self, key: &[u8], epoch: u64) -> Result<Vec<Value>> {
        self.get_one(key, Some(epoch))
    }

    fn get_one(&self, key: &[u8], epoch: Option<u64>) -> Result<Vec<Value>> {
        let mut values = Vec::new();
        self.get_many(&[key], epoch, |_, found| {
            values = found;
            Ok(())
        })?;
        Ok(values)
    }

    /// What queries have read so far.
    pub fn counts(&self) -> QueryCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        QueryCounts {
            opening_reads: of(&counters.opening_reads),
            auxiliary_reads: of(&counters.auxiliary_reads),
            ranks_named: of(&counters.ranks_named),
            filter_reads: of(&counters.filter_reads),
            block_reads: of(&counters.block_reads),
            false_positives: of(&counters.false_positives),
            value_reads: of(&counters.value_reads),
            bytes: of(&counters.bytes),
            files_opened: self.files.calls().opened(),
            files_inspected: self.files.calls().inspected(),
        }
    }

    /// What a user should know: damaged filters that were read around. Empty afterwards.
    pub fn take_notices(&self) -> Notices {
        std::mem::take(&mut *self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn notice(&self, text: String) {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).add(text);
    }

    fn layout(&self) -> &Layout {
        &self.manifest.layout
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The partition of a key in an epoch.
    pub(crate) fn partition_at(&self, key: &[u8], epoch: u64) -> u32 {
        let partitions = self.manifest.shape_at(epoch).partitions;
        self.layout().partition_among(partitions, key, self.boundaries_at(epoch))
    }

    /// The boundaries of an epoch; none where partitions are by hash.
    fn boundaries_at(&self, epoch: u64) -> &[Vec<u8>] {
        let epoch = usize::try_from(epoch).unwrap_or(usize::MAX);
        self.boundaries.get(epoch).map_or(&[], Vec::as_slice)
    }
}

/// A log and what is known of one of its segments.
#[derive(Clone)]
pub(crate) struct Segment {
    pub log: Arc<log::LogReader>,
    pub head: Arc<crate::format::head::Head>,
}
