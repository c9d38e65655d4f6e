//! Scans: the records of a key range, of an epoch, or all; in key order or in file order.
//!
//! ```text
//!   logs ─▶ tables whose keys may be in the range ─▶ their blocks ─▶ [bounds of the attribute] ─▶ records
//! ```
//!
//! Invariants: only blocks that may hold an answer are read, each once. In key order, all tables that overlap
//! the range are open at once, with a chunk of memory each.

use std::sync::Arc;

use crate::error::{IndexError, Result};
use crate::format::footer::Entry;
use crate::format::head::{Block, Table};
use crate::format::layout::{Attribute, PartitionBy, Scheme};
use crate::format::names::Log;
use crate::format::record::Record;
use crate::read::block::{BlockRange, Group, block_range_end, groups, unit_end};
use crate::read::directory::LOGS_AT_ONCE;
use crate::read::files::ByteRange;
use crate::read::log::LogReader;
use crate::read::long_value::part_bytes;
use crate::read::read_policy::{ReadPolicy, Unread, fetch_each};
use crate::read::stored::{Content, Inline, RecordValue};
use crate::read::{Directory, Segment};

/// How an attribute is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// Greater.
    Above,
    /// Greater or equal.
    AtLeast,
    /// Less.
    Below,
    /// Less or equal.
    AtMost,
}

/// A condition on the directory's attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// How it is compared.
    pub sign: Sign,
    /// The number to compare with.
    pub number: f64,
}

impl Condition {
    fn holds(&self, number: f64) -> bool {
        match self.sign {
            Sign::Above => number > self.number,
            Sign::AtLeast => number >= self.number,
            Sign::Below => number < self.number,
            Sign::AtMost => number <= self.number,
        }
    }

    /// Whether a block with these bounds may contain a number that satisfies the condition.
    fn may_hold(&self, bounds: Option<(f64, f64)>) -> bool {
        let Some((min, max)) = bounds else { return true };
        match self.sign {
            Sign::Above | Sign::AtLeast => self.holds(max),
            Sign::Below | Sign::AtMost => self.holds(min),
        }
    }
}

/// A scan request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scan {
    /// Least key.
    pub from: Vec<u8>,
    /// Exclusive upper bound of keys; `None`: no bound.
    pub end: Option<Vec<u8>>,
    /// The epoch; `None`: all epochs.
    pub epoch: Option<u64>,
    /// The condition on the attribute.
    pub condition: Option<Condition>,
    /// In key order, and by epoch within a key; otherwise in file order.
    pub by_key: bool,
}

impl Scan {
    /// Whether a key is in the range.
    fn has(&self, key: &[u8]) -> bool {
        key >= self.from.as_slice() && self.end.as_ref().is_none_or(|end| key < end.as_slice())
    }

    /// The block ranges of a table that may hold answers, at most `bytes` each.
    pub(crate) fn block_ranges(&self, segment: &Segment, table: &Table, bytes: u64) -> Vec<BlockRange> {
        let head = &segment.head;
        if table.greatest.as_ref().is_some_and(|greatest| *greatest < self.from) {
            return Vec::new();
        }
        let blocks = head.blocks_for(table, &self.from, self.end.as_deref());
        let passes = |block: &Block| self.condition.is_none_or(|condition| condition.may_hold(block.bounds));
        let mut block_ranges = Vec::new();
        let mut first = blocks.start;
        while first < blocks.end {
            let end = unit_end(&head.blocks, first).min(blocks.end);
            if !passes(&head.blocks[first]) {
                first = end;
                continue;
            }
            let run =
                head.blocks[first..blocks.end].iter().position(|block| block.starts() && !passes(block));
            let end = block_range_end(head, first, run.map_or(blocks.end, |run| first + run), bytes);
            block_ranges.push(BlockRange { segment: segment.clone(), blocks: first..end });
            first = end;
        }
        block_ranges
    }
}

/// A record of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanRecord<'a> {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

/// A record of an answer, whose value may still be in the files.
#[derive(Clone, Copy, Debug)]
pub struct StoredRecord<'a> {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: RecordValue<'a>,
}

/// A record of scheme `pointers`: its epoch, its key, and its pointer.
type Waiting = (u64, Vec<u8>, Vec<u8>);

/// Maximum bytes of one read.
const PIECE_MAX: u64 = 1 << 20;
/// Records whose values are fetched at once.
const VALUES_AT_ONCE: usize = 4096;

impl Directory {
    /// Hands the requested records to `take`.
    ///
    /// # Errors
    /// A condition on a directory without an attribute; missing, truncated or damaged files; too
    /// little memory for all tables of a range at once; errors of `take`.
    pub fn scan(&self, scan: &Scan, mut take: impl FnMut(ScanRecord<'_>) -> Result<()>) -> Result<()> {
        self.scan_stored(scan, |StoredRecord { epoch, key, value }| match value {
            RecordValue::Bytes(value) => take(ScanRecord { epoch, key, value }),
            RecordValue::Long(long) => {
                let (value, _memory) = long.to_bytes(self)?;
                take(ScanRecord { epoch, key, value: &value })
            }
        })
    }

    /// As [`scan`](Self::scan), for values of any length: `take` reads long ones part by part.
    ///
    /// # Errors
    /// As `scan`.
    pub fn scan_stored(
        &self,
        scan: &Scan,
        mut take: impl FnMut(StoredRecord<'_>) -> Result<()>,
    ) -> Result<()> {
        Scanning { directory: self, scan, policy: &ReadPolicy::strict() }.run(&mut take)
    }

    /// As [`scan_stored`](Self::scan_stored) for incomplete directories: parts that cannot be read are left
    /// out and added to `unread`. A long value is verified before it is handed over, so a damaged one is left
    /// out, never cut off.
    ///
    /// # Errors
    /// A condition on a directory without an attribute; too little memory; errors of `take`.
    pub fn scan_stored_there(
        &self,
        scan: &Scan,
        unread: &mut Unread,
        mut take: impl FnMut(StoredRecord<'_>) -> Result<()>,
    ) -> Result<()> {
        let policy = ReadPolicy::lenient();
        let done = Scanning { directory: self, scan, policy: &policy }.run(&mut |record| {
            let checked = match record.value {
                RecordValue::Bytes(_) => Some(()),
                RecordValue::Long(long) => policy.allow(long.check(self))?,
            };
            checked.map_or(Ok(()), |()| take(record))
        });
        unread.append(policy.into_unread());
        done
    }

    fn has_tables(&self, log: Log) -> bool {
        if self.layout().scheme == Scheme::Ranks {
            matches!(log, Log::Writer(_))
        } else {
            matches!(log, Log::Partition(_))
        }
    }

    /// All logs that have tables.
    pub(crate) fn table_logs(&self) -> impl Iterator<Item = Log> + '_ {
        self.manifest.logs().filter(|&log| self.has_tables(log))
    }
}

/// A scan in progress.
pub(crate) struct Scanning<'a> {
    pub directory: &'a Directory,
    pub scan: &'a Scan,
    /// The treatment of files that cannot be read.
    pub policy: &'a ReadPolicy,
}

impl Scanning<'_> {
    fn run(&self, take: Take<'_>) -> Result<()> {
        let Scanning { directory, scan, .. } = *self;
        if scan.condition.is_some() && directory.layout().attribute.is_none() {
            let text = "the directory was made without an attribute: there is no number to compare";
            return Err(IndexError::Request(text.into()));
        }
        if scan.end.as_ref().is_some_and(|end| *end <= scan.from) {
            return Ok(());
        }
        if directory.layout().scheme != Scheme::Pointers {
            return self.tables(take);
        }
        let mut waiting: Vec<Waiting> = Vec::new();
        self.tables(&mut |record| {
            // Pointers are short, so they are in memory.
            let RecordValue::Bytes(pointer) = record.value else { return Ok(()) };
            waiting.push((record.epoch, record.key.to_vec(), pointer.to_vec()));
            if waiting.len() < VALUES_AT_ONCE {
                return Ok(());
            }
            self.hand_over(&std::mem::take(&mut waiting), take)
        })?;
        self.hand_over(&waiting, take)
    }

    /// Follows pointers and hands the records over, in batches that fit the memory.
    fn hand_over(&self, waiting: &[Waiting], take: Take<'_>) -> Result<()> {
        let Scanning { directory, policy, .. } = *self;
        let pointers: Vec<&[u8]> = waiting.iter().map(|one| one.2.as_slice()).collect();
        let before = directory.pool.available();
        let resolved = directory.resolve(&pointers, Inline::Usual).and_then(|(contents, memory)| {
            let several = contents.len() > 1 && contents.iter().any(|one| matches!(one, Content::Long(_)));
            if several {
                directory.leave_half(before, &memory)?;
            }
            Ok((contents, memory))
        });
        let halves = match &resolved {
            Err(IndexError::Memory(_)) => waiting.len() > 1,
            Err(_) => waiting.len() > 1 && policy.is_lenient(),
            Ok(_) => false,
        };
        if halves {
            let (one, other) = waiting.split_at(waiting.len() / 2);
            self.hand_over(one, take)?;
            return self.hand_over(other, take);
        }
        let Some((contents, _memory)) = policy.allow(resolved)? else { return Ok(()) };
        waiting.iter().zip(&contents).try_for_each(|((epoch, key, _), content)| {
            policy.note_taken(take(StoredRecord { epoch: *epoch, key, value: content.into() }))
        })
    }

    fn tables(&self, take: Take<'_>) -> Result<()> {
        let Scanning { directory, scan, policy } = *self;
        let epochs = directory.epochs(scan.epoch);
        let mut entries = Vec::new();
        // By range, a manifest has boundaries of every epoch, so its length bounds their number.
        let wanted = |log| {
            directory.has_tables(log)
                && (!self.is_by_range(log) || epochs.clone().any(|epoch| self.may_hold(log, epoch)))
        };
        for group in directory.logs_wanted(policy, wanted)?.chunks(LOGS_AT_ONCE) {
            directory.open_logs(group.iter().copied());
            for &log in group {
                let Some(open) = policy.allow(directory.log(log))? else { continue };
                let wanted = open
                    .entries
                    .iter()
                    .filter(|entry| epochs.contains(&entry.epoch) && self.may_hold(log, entry.epoch));
                entries.extend(wanted.map(|entry| (Arc::clone(&open), *entry)));
            }
        }
        if scan.by_key {
            return self.merge(&entries, take);
        }
        for entry in entries {
            self.one_by_one(&[entry], take)?;
        }
        Ok(())
    }

    fn is_by_range(&self, log: Log) -> bool {
        matches!(log, Log::Partition(_)) && self.directory.layout().partition_by == PartitionBy::Range
    }

    /// Whether a log may have keys of the range in an epoch.
    fn may_hold(&self, log: Log, epoch: u64) -> bool {
        let Log::Partition(number) = log else { return true };
        if !self.is_by_range(log) {
            return true;
        }
        let Scanning { directory, scan, .. } = *self;
        let boundaries = directory.boundaries_at(epoch);
        let number = number as usize;
        let above = number.checked_sub(1).and_then(|before| boundaries.get(before));
        let starts_before = above.is_none_or(|start| scan.end.as_ref().is_none_or(|end| start < end));
        starts_before && boundaries.get(number).is_none_or(|end| *end > scan.from)
    }

    /// Whether a record is an answer.
    pub(crate) fn is_answer(&self, record: &Record<'_>) -> bool {
        let Scanning { directory, scan, .. } = *self;
        let number =
            || directory.layout().attribute.as_ref().and_then(|attribute| attribute.of(record.value));
        scan.has(record.key)
            && scan.condition.is_none_or(|condition| number().is_some_and(|number| condition.holds(number)))
    }

    /// The record of a range that is a single record, if it is an answer.
    pub(crate) fn long_answer(&self, block_range: &BlockRange) -> Result<Option<(Vec<u8>, Content)>> {
        let Scanning { directory, scan, .. } = *self;
        let (key, value) = block_range.long_record(directory)?;
        if !scan.has(&key) {
            return Ok(None);
        }
        let (Some(condition), Some(attribute)) = (scan.condition, &directory.layout().attribute) else {
            return Ok(Some((key, value)));
        };
        let mut number = [0; 8];
        let read = value.read_at(directory, attribute.offset.into(), &mut number)?;
        let number = Attribute { offset: 0, ..attribute.clone() }.of(&number[..read]);
        Ok(number.is_some_and(|number| condition.holds(number)).then_some((key, value)))
    }

    fn one_by_one(&self, entries: &[(Arc<LogReader>, Entry)], take: Take<'_>) -> Result<()> {
        let segments = self.policy.allow(self.directory.segments(entries))?;
        let max_bytes = PIECE_MAX.min(part_bytes(self.directory) as u64 * 2);
        for segment in segments.unwrap_or_default() {
            for table in &segment.head.tables {
                for same in groups(&self.scan.block_ranges(&segment, table, max_bytes), max_bytes) {
                    match same {
                        Group::Long(one) => self.one_long(one, take)?,
                        Group::Short(several) => self.many_short(several, take)?,
                    }
                }
            }
        }
        Ok(())
    }

    fn one_long(&self, block_range: &BlockRange, take: Take<'_>) -> Result<()> {
        let epoch = block_range.segment.head.facts.epoch;
        let Some(Some((key, value))) = self.policy.allow(self.long_answer(block_range))? else {
            return Ok(());
        };
        self.policy.note_taken(take(StoredRecord { epoch, key: &key, value: (&value).into() }))
    }

    fn many_short(&self, block_ranges: &[BlockRange], take: Take<'_>) -> Result<()> {
        let Scanning { directory, policy, .. } = *self;
        let byte_ranges: Vec<ByteRange> = block_ranges.iter().map(BlockRange::byte_range).collect();
        directory.files.count(|counts| counts.block_reads += byte_ranges.len() as u64);
        fetch_each(directory, policy, &byte_ranges, |number, bytes| {
            let block_range = &block_ranges[number];
            let epoch = block_range.segment.head.facts.epoch;
            block_range.records(directory.layout().form(), bytes, policy, |record, _| {
                if !self.is_answer(&record) {
                    return Ok(());
                }
                take(StoredRecord { epoch, key: record.key, value: RecordValue::Bytes(record.value) })
            })
        })
    }
}

/// Receives the records.
pub(crate) type Take<'a> = &'a mut dyn FnMut(StoredRecord<'_>) -> Result<()>;
