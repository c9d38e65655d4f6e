//! An indexed directory open for reading: its manifest, the memory of its queries, and the cache of its index: the
//! segment lists of open logs, and segment heads, within a memory cap.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use ascot_io::{Disk, MetadataCalls, Pool, Unpoisoned, crc32c};

use crate::error::{IndexError, Result};
use crate::format::footer::Entry;
use crate::format::head::{Kind, SegmentHead};
use crate::format::layout::Layout;
use crate::format::manifest::Manifest;
use crate::format::names::Log;
use crate::read::counters::QueryCounts;
use crate::read::files::{ByteRange, Files};
use crate::read::log::{LogReader, Segment, Tail};
use crate::read::notices::Notices;
use crate::read::stamp::Stamp;

/// Default memory of a reader, bytes.
pub const USUAL_MEMORY_BYTES: usize = 64 << 20;
/// Least memory of a reader, bytes.
pub const MIN_MEMORY_BYTES: usize = 4 << 20;
/// Logs opened at once.
pub(crate) const LOGS_AT_ONCE: usize = 16;
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
        let pool = Pool::new(memory_bytes - kept_bytes);
        let bounded = 0..manifest.boundaries.len() as u64;
        Ok(Self {
            disk: disk.clone(),
            path: path.to_path_buf(),
            boundaries: bounded.map(|epoch| manifest.boundaries_of(epoch)).collect(),
            manifest,
            stamp,
            memory_bytes,
            cache: Mutex::new(Cache::new(kept_bytes)),
            files: Files::new(disk, calls, &pool),
            pool,
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
        self.files.counts()
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

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unpoisoned()
    }

    /// The partition of a key in an epoch.
    pub(crate) fn partition_at(&self, key: &[u8], epoch: u64) -> u32 {
        let partitions = self.manifest.shape_at(epoch).partitions;
        self.layout().partition_among(partitions, key, self.boundaries_at(epoch))
    }

    /// The requested epoch, if it is complete, or all epochs.
    pub(super) fn epochs(&self, epoch: Option<u64>) -> Range<u64> {
        match epoch {
            Some(epoch) => epoch..epoch.saturating_add(1).min(self.manifest.epochs).max(epoch),
            None => 0..self.manifest.epochs,
        }
    }

    /// The boundaries of an epoch; empty if partitions are by hash.
    pub(super) fn boundaries_at(&self, epoch: u64) -> &[Vec<u8>] {
        let epoch = usize::try_from(epoch).unwrap_or(usize::MAX);
        self.boundaries.get(epoch).map_or(&[], Vec::as_slice)
    }
}

impl Directory {
    /// A log, opened if it is not cached.
    pub(crate) fn log(&self, log: Log) -> Result<Arc<LogReader>> {
        if let Some(found) = self.cache().log(log) {
            return Ok(found);
        }
        self.open_log(log, None)
    }

    fn open_log(&self, log: Log, tail: Option<Tail>) -> Result<Arc<LogReader>> {
        let opened = Arc::new(LogReader::open(&self.manifest, &self.path, &self.files, log, tail)?);
        self.cache().keep_log(&opened);
        Ok(opened)
    }

    /// Opens logs that are needed next, reading the ends of several at once. Errors are reported when the log
    /// itself is requested.
    pub(crate) fn open_logs(&self, wanted: impl Iterator<Item = Log>) {
        let mut absent: Vec<Log> = Vec::new();
        if self.manifest.epochs == 0 {
            return;
        }
        for log in wanted {
            if self.cache().log(log).is_some() || absent.contains(&log) {
                continue;
            }
            absent.push(log);
            if absent.len() == LOGS_AT_ONCE {
                self.open_absent(&std::mem::take(&mut absent));
            }
        }
        self.open_absent(&absent);
    }

    fn open_absent(&self, logs: &[Log]) {
        if logs.len() < 2 {
            return;
        }
        let byte_range = |log: &Log| {
            let path = log.index(&self.path);
            let size = self.files.get(&path).ok()?.size();
            Some((*log, Tail::byte_range(path, size)))
        };
        let (logs, byte_ranges): (Vec<Log>, Vec<ByteRange>) = logs.iter().filter_map(byte_range).unzip();
        let mut tails: Vec<Tail> = Vec::new();
        let done = self.files.fetch_all(&byte_ranges, |number, bytes| {
            tails.push(Tail::new(&byte_ranges[number], bytes));
            Ok(())
        });
        self.files.count(|counts| counts.opening_reads += tails.len() as u64);
        if done.is_ok() {
            for (log, tail) in logs.into_iter().zip(tails) {
                let _ = self.open_log(log, Some(tail));
            }
        }
    }

    /// The heads of segments, read if they are not cached.
    pub(crate) fn segments(&self, wanted: &[(Arc<LogReader>, Entry)]) -> Result<Vec<Segment>> {
        let mut found: Vec<Option<Arc<SegmentHead>>> = {
            let mut cache = self.cache();
            wanted.iter().map(|(log, entry)| cache.head(log.log, entry.head.at)).collect()
        };
        let absent: Vec<usize> = (0..wanted.len()).filter(|&index| found[index].is_none()).collect();
        let byte_range = |&index: &usize| {
            let (log, entry) = &wanted[index];
            ByteRange { path: log.index.clone(), at: entry.head.at, bytes: entry.head.bytes as usize }
        };
        let byte_ranges: Vec<ByteRange> = absent.iter().map(byte_range).collect();
        self.files.count(|counts| counts.opening_reads += byte_ranges.len() as u64);
        self.files.fetch_all(&byte_ranges, |number, bytes| {
            let (log, entry) = &wanted[absent[number]];
            let head = Arc::new(self.parse_head(log, entry, bytes)?);
            self.cache().keep_head(log.log, entry.head.at, &head);
            found[absent[number]] = Some(head);
            Ok(())
        })?;
        let segments = wanted.iter().zip(found);
        Ok(segments
            .filter_map(|((log, _), head)| Some(Segment { log: Arc::clone(log), head: head? }))
            .collect())
    }

    fn parse_head(&self, log: &LogReader, entry: &Entry, bytes: &[u8]) -> Result<SegmentHead> {
        let damaged = |what| IndexError::damaged(&log.index, entry.head.at, what);
        if crc32c(&[bytes]) != entry.head.crc {
            return Err(damaged("the checksum of a segment's head is wrong"));
        }
        // A parsed head takes at most a few times its bytes.
        let _memory = self.pool.reserve(bytes.len(), "the head of a segment")?;
        let head = SegmentHead::parse(bytes.to_vec()).map_err(damaged)?;
        let facts = &head.facts;
        let kind = if log.log.has_data() { Kind::Tables } else { Kind::Auxiliary };
        if facts.log != log.id.0
            || facts.epoch != entry.epoch
            || facts.kind != kind
            || facts.records != entry.records
        {
            return Err(damaged("a segment's head belongs somewhere else"));
        }
        Ok(head)
    }
}

/// Open logs and heads; the least recently used are evicted first.
struct Cache {
    max_bytes: usize,
    used: usize,
    /// Number of uses so far.
    clock: u64,
    logs: HashMap<Log, (Arc<LogReader>, u64)>,
    heads: HashMap<(Log, u64), (Arc<SegmentHead>, u64)>,
}

impl Cache {
    /// A cache of `max_bytes` bytes.
    fn new(max_bytes: usize) -> Self {
        Self { max_bytes, used: 0, clock: 0, logs: HashMap::new(), heads: HashMap::new() }
    }

    fn log(&mut self, log: Log) -> Option<Arc<LogReader>> {
        self.clock += 1;
        let (found, used) = self.logs.get_mut(&log)?;
        *used = self.clock;
        Some(Arc::clone(found))
    }

    fn keep_log(&mut self, log: &Arc<LogReader>) {
        self.make_space(log.memory());
        self.used += log.memory();
        self.logs.insert(log.log, (Arc::clone(log), self.clock));
    }

    fn head(&mut self, log: Log, at: u64) -> Option<Arc<SegmentHead>> {
        self.clock += 1;
        let (found, used) = self.heads.get_mut(&(log, at))?;
        *used = self.clock;
        Some(Arc::clone(found))
    }

    fn keep_head(&mut self, log: Log, at: u64, head: &Arc<SegmentHead>) {
        if head.memory() > self.max_bytes / 2 || self.heads.contains_key(&(log, at)) {
            return;
        }
        self.make_space(head.memory());
        self.used += head.memory();
        self.heads.insert((log, at), (Arc::clone(head), self.clock));
    }

    /// Evicts the least recently used quarter until `bytes` fit.
    fn make_space(&mut self, bytes: usize) {
        while self.used + bytes > self.max_bytes && !(self.heads.is_empty() && self.logs.is_empty()) {
            let mut uses: Vec<u64> =
                self.heads.values().map(|one| one.1).chain(self.logs.values().map(|one| one.1)).collect();
            uses.sort_unstable();
            let limit = uses[uses.len() / 4];
            self.heads.retain(|_, one| one.1 > limit);
            self.logs.retain(|_, one| one.1 > limit);
            let heads: usize = self.heads.values().map(|one| one.0.memory()).sum();
            self.used = heads + self.logs.values().map(|one| one.0.memory()).sum::<usize>();
        }
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
