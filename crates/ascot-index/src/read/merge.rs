//! Scans in key order: tables are sorted, so they are merged, each read in chunks.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::vec::IntoIter;

use ascot_io::Reservation;

use crate::error::Result;
use crate::format::footer::Entry;
use crate::read::block::BlockRange;
use crate::read::log::LogReader;
use crate::read::scan::{Scanning, StoredRecord, Take};
use crate::read::stored::{Content, RecordValue};

/// Minimum and maximum bytes of a table in memory.
const PIECE_MIN: u64 = 64 << 10;
const PIECE_MAX: u64 = 1 << 20;

/// The answers of one table, a chunk of them in memory.
struct Source {
    epoch: u64,
    rest: IntoIter<BlockRange>,
    bytes: Vec<u8>,
    /// For each record, the ends of its key and of its value in `bytes`.
    ends: Vec<(usize, usize)>,
    next: usize,
    /// The value of the only record of the chunk, if it is longer than a chunk.
    long: Option<Content>,
    /// Maximum bytes of a chunk.
    piece: u64,
    memory: Reservation,
}

impl Source {
    /// The next record, if the chunk has one.
    fn current(&self) -> Option<(&[u8], RecordValue<'_>)> {
        let &(key_end, value_end) = self.ends.get(self.next)?;
        let start = self.next.checked_sub(1).map_or(0, |before| self.ends[before].1);
        let value = match &self.long {
            Some(content) => content.into(),
            None => RecordValue::Bytes(&self.bytes[key_end..value_end]),
        };
        Some((&self.bytes[start..key_end], value))
    }
}

impl Scanning<'_> {
    pub(crate) fn merge(&self, entries: &[(Arc<LogReader>, Entry)], take: Take<'_>) -> Result<()> {
        let mut sources = self.sources(entries)?;
        let mut heap = BinaryHeap::new();
        for (number, source) in sources.iter_mut().enumerate() {
            self.fill(source)?;
            if let Some((key, _)) = source.current() {
                heap.push(Reverse((key.to_vec(), source.epoch, number)));
            }
        }
        while let Some(Reverse((mut smallest, epoch, number))) = heap.pop() {
            let source = &mut sources[number];
            if let Some((key, value)) = source.current() {
                self.policy.note_taken(take(StoredRecord { epoch, key, value }))?;
            }
            source.next += 1;
            if source.current().is_none() {
                self.fill(source)?;
            }
            if let Some((key, _)) = source.current() {
                smallest.clear();
                smallest.extend_from_slice(key);
                heap.push(Reverse((smallest, epoch, number)));
            }
        }
        Ok(())
    }

    /// The tables that overlap the range, by epoch and file.
    fn sources(&self, entries: &[(Arc<LogReader>, Entry)]) -> Result<Vec<Source>> {
        let Scanning { directory, scan, policy } = *self;
        let mut open = Vec::new();
        for entry in entries {
            let segments = policy.allow(directory.segments(std::slice::from_ref(entry)))?;
            for segment in segments.unwrap_or_default() {
                let tables = segment.head.tables.iter();
                let wanted = tables.filter(|table| !scan.block_ranges(&segment, table, u64::MAX).is_empty());
                open.extend(wanted.map(|table| (segment.clone(), table.clone())));
            }
        }
        open.sort_by_key(|(segment, table)| (segment.head.facts.epoch, segment.log.log, table.at));
        let share = directory.pool.available() as u64 / 4 / open.len().max(1) as u64;
        let piece = share.clamp(PIECE_MIN, PIECE_MAX);
        let sources = open.into_iter().map(|(segment, table)| {
            // A chunk of a table, and the ends of its records.
            let memory =
                directory.pool.reserve(2 * piece as usize, "the tables of a range, all open at once")?;
            let rest = scan.block_ranges(&segment, &table, piece).into_iter();
            let epoch = segment.head.facts.epoch;
            let bytes = Vec::new();
            let ends = Vec::new();
            Ok(Source { epoch, rest, bytes, ends, next: 0, long: None, piece, memory })
        });
        sources.collect()
    }

    /// Reads chunks of a table until one has an answer.
    fn fill(&self, source: &mut Source) -> Result<()> {
        source.next = 0;
        source.ends = Vec::new();
        source.long = None;
        source.bytes.clear();
        while source.ends.is_empty() {
            let Some(block_range) = source.rest.next() else { return Ok(()) };
            if block_range.is_longer_record(source.piece) {
                if let Some(Some((key, value))) = self.policy.allow(self.long_answer(&block_range))? {
                    source.ends = vec![(key.len(), key.len())];
                    source.bytes = key;
                    source.long = Some(value);
                }
            } else {
                self.fill_from(source, &block_range)?;
            }
            // A block or a key may be longer than a chunk.
            let taken = source.bytes.capacity() + source.ends.capacity() * size_of::<(usize, usize)>();
            if taken > source.memory.bytes() {
                let more = taken - source.memory.bytes();
                source
                    .memory
                    .absorb(self.directory.pool.reserve(more, "the tables of a range, all open at once")?);
            }
        }
        Ok(())
    }

    /// Reads the answers of a chunk.
    fn fill_from(&self, source: &mut Source, block_range: &BlockRange) -> Result<()> {
        let Scanning { directory, policy, .. } = *self;
        directory.files.count(|counts| counts.block_reads += 1);
        let bytes = &mut source.bytes;
        let ends = &mut source.ends;
        let done = directory.files.fetch_all(&[block_range.byte_range()], |_, read| {
            block_range.records(directory.layout().form(), read, policy, |record, _| {
                if self.is_answer(&record) {
                    bytes.extend_from_slice(record.key);
                    let key_end = bytes.len();
                    bytes.extend_from_slice(record.value);
                    ends.push((key_end, bytes.len()));
                }
                Ok(())
            })
        });
        policy.allow(done)?;
        Ok(())
    }
}
