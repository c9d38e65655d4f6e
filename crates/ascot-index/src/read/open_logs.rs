//! Opening index logs: the ends of complete epochs and their segments; and reading segment heads that are not
//! cached.

use std::path::PathBuf;
use std::sync::Arc;

use ascot_io::crc32c;

use crate::error::{IndexError, Result};
use crate::format::footer::{Entry, Footer, PAGE, Root};
use crate::format::head::{Kind, SegmentHead};
use crate::format::names::Log;
use crate::read::fetch::{ByteRange, fetch_all, fetch_one};
use crate::read::log::LogReader;
use crate::read::tail::{FIRST_BYTES, IndexFile, find_footer, root_at};
use crate::read::{Directory, Segment};

/// Logs opened at once.
pub(crate) const LOGS_AT_ONCE: usize = 16;

/// The last bytes of an index log, which contain its footer and usually its root.
pub struct Tail {
    at: u64,
    bytes: Vec<u8>,
}

impl Tail {
    /// The byte range of the tail of a file of `size` bytes.
    pub fn byte_range(path: PathBuf, size: u64) -> ByteRange {
        let end = size / PAGE * PAGE;
        let at = end.saturating_sub(FIRST_BYTES);
        // A few pages.
        ByteRange { path, at, bytes: (end - at) as usize }
    }

    /// A tail of the `bytes` read at `byte_range`.
    pub fn new(byte_range: &ByteRange, bytes: &[u8]) -> Self {
        Self { at: byte_range.at, bytes: bytes.to_vec() }
    }

    /// The `bytes` bytes at `at`, if the tail contains them.
    fn part(&self, at: u64, bytes: usize) -> Option<Vec<u8>> {
        let from = usize::try_from(at.checked_sub(self.at)?).ok()?;
        self.bytes.get(from..from.checked_add(bytes)?).map(<[u8]>::to_vec)
    }
}

impl LogReader {
    /// Opens `log`; `tail` is its end if it was read before.
    pub fn open(directory: &Directory, log: Log, tail: Option<Tail>) -> Result<Self> {
        let manifest = directory.manifest();
        let index = log.index(directory.path());
        let id = log.id(manifest.id);
        let data = log.data(directory.path()).unwrap_or_else(|| index.clone());
        let mut this = Self { log, id, index, data, entries: Vec::new(), ends: (0, 0) };
        let epochs = manifest.epochs_of(log);
        if epochs == 0 {
            return Ok(this);
        }
        let path = this.index.clone();
        let tail = match tail {
            Some(tail) => tail,
            None => {
                let byte_range = Tail::byte_range(path.clone(), directory.files.get(&path)?.size());
                directory.count(|counts| counts.opening_reads += 1);
                Tail::new(&byte_range, fetch_one(directory, &path, byte_range.at, byte_range.bytes)?.bytes())
            }
        };
        let read = |at, bytes| {
            if let Some(part) = tail.part(at, bytes) {
                return Ok(part);
            }
            directory.count(|counts| counts.opening_reads += 1);
            Ok(fetch_one(directory, &path, at, bytes)?.bytes().to_vec())
        };
        let file = IndexFile { path: &path, size: directory.files.get(&path)?.size(), read: &read };
        let footer = find_footer(&file, id.0, epochs, |footer| footer.epochs >= epochs)?;
        // An epoch's end takes at least a page, so a log has at most as many epochs as pages.
        if manifest.epochs_taken(log) > footer.end() / PAGE {
            let what = "the manifest counts more epochs than it has room for";
            return Err(IndexError::damaged(&path, footer.at, what));
        }
        let read = this.read_roots(&file, &footer, epochs);
        if footer.epochs > epochs && read.is_err() {
            // Parts of an incomplete epoch may be missing; the complete epochs have a footer of their own.
            let footer = find_footer(&file, id.0, epochs, |footer| footer.epochs == epochs)?;
            this.read_roots(&file, &footer, epochs)?;
        } else {
            read?;
        }
        Ok(this)
    }

    /// Reads the chain of roots that starts at a footer, and keeps the segments of the first `epochs` epochs.
    fn read_roots(&mut self, file: &IndexFile<'_>, footer: &Footer, epochs: u64) -> Result<()> {
        let damaged = |at, what| Err(IndexError::damaged(&self.index, at, what));
        let mut place = footer.root;
        let mut limit = footer.at;
        let mut roots: Vec<Root> = Vec::new();
        while place.bytes > 0 {
            if place.at.checked_add(u64::from(place.bytes)).is_none_or(|end| end > limit) {
                return damaged(place.at, "an epoch's root is not before what names it");
            }
            limit = place.at;
            let root = root_at(file, &place, self.id.0)?;
            place = root.before;
            roots.push(root);
        }
        let entries = roots.into_iter().rev().flat_map(|root| root.entries);
        let entries: Vec<Entry> = entries.filter(|entry| entry.epoch < epochs).collect();
        if !entries.is_sorted_by_key(|entry| entry.epoch) {
            return damaged(footer.root.at, "epochs are not in their order");
        }
        // A later footer has the end of later data, which may be missing.
        let data_end = match footer.epochs == epochs {
            true => footer.data_end,
            false => entries.last().map_or(0, |entry| entry.data_end),
        };
        self.ends = (footer.end(), data_end);
        self.entries = entries;
        Ok(())
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
        let opened = Arc::new(LogReader::open(self, log, tail)?);
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
        let done = fetch_all(self, &byte_ranges, |number, bytes| {
            tails.push(Tail::new(&byte_ranges[number], bytes));
            Ok(())
        });
        self.count(|counts| counts.opening_reads += tails.len() as u64);
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
        self.count(|counts| counts.opening_reads += byte_ranges.len() as u64);
        fetch_all(self, &byte_ranges, |number, bytes| {
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
