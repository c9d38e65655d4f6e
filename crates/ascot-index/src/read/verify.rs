//! Verification of a directory: every checksum, order and count; every record is where a query would look for
//! it; and bytes that no checksum covers are zeros.
//!
//! Invariant: memory stays within the reader's cap, however long records are. Too little memory is an error
//! and is never reported as damage.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use crate::auxiliary::ranks;
use crate::error::{IndexError, Result};
use crate::format::filter::may_contain;
use crate::format::footer::{Entry, FOOTER_BYTES, Footer, PAGE};
use crate::format::head::{Kind, Region, Table};
use crate::format::layout::Scheme;
use crate::format::names::{LOCK, Log};
use crate::format::pointer::{VALUE_HEAD_MAX, value_is_whole, value_lengths};
use crate::hash::local_hash;
use crate::read::block::{BlockRange, Group, groups};
use crate::read::covered::Covered;
use crate::read::directory::LOGS_AT_ONCE;
use crate::read::files::{ByteRange, is_too_many_open};
use crate::read::log::LogReader;
use crate::read::log::parse_root;
use crate::read::long_value::part_bytes;
use crate::read::lookup::{filter, region_is_whole, region_of};
use crate::read::read_policy::ReadPolicy;
use crate::read::{Directory, LongValue, Scan, Segment};

/// Maximum number of problems that are listed.
const TOLD_MAX: usize = 100;

/// The counts of a verification, and the problems it found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Index logs.
    pub logs: u64,
    /// Tables.
    pub tables: u64,
    /// Data blocks.
    pub blocks: u64,
    /// Records in tables, including pointers.
    pub records: u64,
    /// Values in writers' logs.
    pub values: u64,
    /// Entries of auxiliary tables.
    pub auxiliary_entries: u64,
    /// The problems: file, byte, fault.
    pub problems: Vec<String>,
    /// Problems beyond those that are listed.
    pub more_problems: u64,
}

impl Verified {
    fn problem_of(&mut self, error: impl FnOnce() -> IndexError) {
        if self.problems.len() < TOLD_MAX {
            self.problems.push(error().to_string());
        } else {
            self.more_problems += 1;
        }
    }

    /// Notes damage and continues; errors that prevent the verification are returned.
    fn note<T>(&mut self, done: Result<T>) -> Result<Option<T>> {
        match done {
            Ok(done) => Ok(Some(done)),
            Err(error @ (IndexError::Memory(_) | IndexError::TooLittle { .. })) => Err(error),
            Err(error) if is_too_many_open(&error) => Err(error),
            Err(error) => {
                self.problem_of(|| error);
                Ok(None)
            }
        }
    }

    /// Whether no problem was found.
    pub fn is_whole(&self) -> bool {
        self.problems.is_empty()
    }
}

impl Directory {
    /// Reads everything. The result lists the problems; an error means that the verification itself could not
    /// continue.
    ///
    /// # Errors
    /// Too little memory.
    pub fn verify(&self) -> Result<Verified> {
        let mut verified = Verified::default();
        let there = self.logs_there(|log| {
            verified.logs += 1;
            verified.problem_of(|| self.missing_log(log));
            Ok(())
        })?;
        for group in there.chunks(LOGS_AT_ONCE) {
            self.open_logs(group.iter().copied());
            for &log in group {
                verified.logs += 1;
                let opened = self.log(log).map_err(|error| self.without_footer(error));
                if let Some(reader) = verified.note(opened)? {
                    self.verify_log(&reader, &mut verified)?;
                }
            }
        }
        verified.note(self.verify_lock())?;
        self.verify_sums(&mut verified)?;
        Ok(verified)
    }

    /// The error for an index without the footer of its last epoch, located where that footer should be.
    fn without_footer(&self, error: IndexError) -> IndexError {
        let IndexError::CutShort { path, .. } = &error else { return error };
        let size = self.files.get(path).map_or(0, |file| file.size());
        let place = (size / PAGE * PAGE).saturating_sub(FOOTER_BYTES as u64);
        IndexError::damaged(path, place, "it was cut short, or the footer of its last epoch is damaged")
    }

    /// Checks that the lock file is empty.
    fn verify_lock(&self) -> Result<()> {
        let path = self.path.join(LOCK);
        match self.files.get(&path) {
            Ok(file) if file.size() > 0 => Err(IndexError::damaged(&path, 0, "it should have no bytes")),
            // A copy of the directory may lack the lock file.
            Ok(_) | Err(IndexError::Missing { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn verify_log(&self, reader: &Arc<LogReader>, verified: &mut Verified) -> Result<()> {
        let mut index = Covered::default();
        let mut data = Covered::default();
        let footers = self.verify_footers(reader, &mut index);
        let ends = verified.note(footers)?;
        if self.manifest.epochs_of(reader.log) > 0 {
            // Before the end of the first epoch, files may not exist yet.
            verified.note(self.verify_size(&reader.data, reader.ends.1))?;
        }
        for (number, entry) in reader.entries.iter().enumerate() {
            let start = number.checked_sub(1).map_or(0, |before| reader.entries[before].data_end);
            self.verify_entry(reader, entry, start, &mut index, &mut data, verified)?;
        }
        let Some(index_end) = ends else { return Ok(()) };
        verified.note(index.check_padding(self, &reader.index, index_end))?;
        if reader.log.has_data() {
            verified.note(data.check_padding(self, &reader.data, reader.ends.1))?;
        }
        Ok(())
    }

    /// Verifies the footers of all epochs, superseded ones too: readers that opened the directory earlier use
    /// them, and so does a writer that continues after a stop. Returns the end of the last epoch that the
    /// manifest names.
    fn verify_footers(&self, reader: &LogReader, covered: &mut Covered) -> Result<u64> {
        let path = &reader.index;
        let mut at = 0;
        let mut epochs = 0;
        let mut ended = 0;
        let window = (part_bytes(self) as u64 / PAGE).max(1) * PAGE;
        let complete = self.manifest.epochs_of(reader.log);
        let lacks_footer =
            |at| Err(IndexError::damaged(path, at, "the footer of the epoch that starts here is missing"));
        while at < reader.ends.0 {
            // At most 1 MiB.
            let bytes = (reader.ends.0 - at).min(window) as usize;
            let filled = self.files.fetch_one(path, at, bytes)?;
            for page in filled.bytes().chunks(PAGE as usize) {
                at += page.len() as u64;
                let place = at - FOOTER_BYTES as u64;
                let end = page.get(page.len().saturating_sub(FOOTER_BYTES)..).unwrap_or_default();
                let Some(footer) = Footer::parse(end, place, reader.id.0) else { continue };
                if epochs == complete {
                    // After the last epoch that the manifest names is the tail of a writer.
                    return Ok(ended);
                }
                // The next epoch in which this log takes part.
                epochs = self.manifest.next_epoch_of(reader.log, epochs).map_or(epochs, |epoch| epoch + 1);
                if footer.epochs != epochs {
                    return lacks_footer(ended);
                }
                self.verify_root(reader, &footer)?;
                covered.add(footer.root.at, footer.root.bytes.into());
                covered.add(footer.at, FOOTER_BYTES as u64);
                ended = footer.end();
            }
        }
        if epochs < complete { lacks_footer(ended) } else { Ok(ended) }
    }

    /// Verifies the root that ends an epoch.
    fn verify_root(&self, reader: &LogReader, footer: &Footer) -> Result<()> {
        let path = &reader.index;
        let place = &footer.root;
        let read = self.files.fetch_one(path, place.at, place.bytes as usize)?;
        let root = parse_root(path, place, reader.id.0, read.bytes())?;
        let own = root.entries.iter().filter(|entry| entry.epoch + 1 == footer.epochs);
        if !own.eq(reader.of_epoch(footer.epochs - 1)) {
            return Err(IndexError::damaged(path, place.at, "an epoch's root names other segments"));
        }
        Ok(())
    }

    fn verify_entry(
        &self,
        reader: &Arc<LogReader>,
        entry: &Entry,
        start: u64,
        index: &mut Covered,
        data: &mut Covered,
        verified: &mut Verified,
    ) -> Result<()> {
        let values = self.layout().scheme == Scheme::Pointers && matches!(reader.log, Log::Writer(_));
        if values {
            let done = self.verify_values(reader, entry, start, data);
            match verified.note(done)? {
                Some(values) => verified.values += values,
                None => data.give_up(),
            }
            return Ok(());
        }
        let segments = self.segments(&[(Arc::clone(reader), *entry)]);
        let Some(segments) = verified.note(segments)? else {
            index.give_up();
            data.give_up();
            return Ok(());
        };
        for segment in segments {
            let regions = self.verify_regions(&segment, verified)?;
            segment.head.regions.iter().for_each(|region| index.add(region.at, region.bytes.into()));
            index.add(entry.head.at, entry.head.bytes.into());
            if !reader.log.has_data() {
                verified.auxiliary_entries += segment.head.facts.records;
                continue;
            }
            for (number, table) in segment.head.tables.iter().enumerate() {
                verified.tables += 1;
                verified.blocks += table.blocks.len() as u64;
                let done = self.verify_table(&segment, number, table, regions);
                let blocks = &segment.head.blocks[table.blocks.clone()];
                let end = blocks.last().map_or(table.at, |block| block.at + block.padded());
                data.add(table.at, end - table.at);
                verified.records += verified.note(done)?.unwrap_or_default();
            }
        }
        Ok(())
    }

    /// Verifies all regions of a segment; returns whether all are whole.
    fn verify_regions(&self, segment: &Segment, verified: &mut Verified) -> Result<bool> {
        let path = &segment.log.index;
        let regions = &segment.head.regions;
        let byte_ranges: Vec<ByteRange> = regions.iter().map(|region| segment.region_bytes(region)).collect();
        let mut whole = true;
        let tables = segment.head.tables.len();
        let done = self.files.fetch_all(&byte_ranges, |number, bytes| {
            let sound = region_is_whole(segment, &regions[number], bytes)
                && match segment.head.facts.kind {
                    Kind::Auxiliary => ranks(bytes, 0).is_some(),
                    Kind::Tables => (0..tables).all(|table| {
                        filter(bytes, tables, table).and_then(|one| may_contain(one, 0)).is_some()
                    }),
                };
            if !sound {
                whole = false;
                let damaged =
                    || IndexError::damaged(path, regions[number].at, "the checksum of a region is wrong");
                verified.problem_of(damaged);
            }
            Ok(())
        });
        Ok(verified.note(done)?.is_some() && whole)
    }

    /// Verifies all blocks of a table; returns the number of records.
    fn verify_table(&self, segment: &Segment, number: usize, table: &Table, regions: bool) -> Result<u64> {
        let max_bytes = part_bytes(self) as u64;
        let block_ranges = Scan::default().block_ranges(segment, table, max_bytes);
        let mut seen = Seen { segment, number, regions, records: 0, last: Vec::new(), sample: Vec::new() };
        for same in groups(&block_ranges, max_bytes) {
            match same {
                Group::Long(one) => {
                    self.verify_long(one)?;
                    let (key, _) = one.long_record(self)?;
                    self.see_key(&mut seen, &key, one.byte_range().at)?;
                    self.verify_seen(&mut seen)?;
                }
                Group::Short(several) => self.verify_short(several, &mut seen)?,
            }
        }
        let Seen { records, last, .. } = seen;
        if records != table.records || table.greatest.as_ref().is_some_and(|greatest| *greatest != last) {
            return Err(IndexError::damaged(
                &segment.log.data,
                table.at,
                "a table has not the records its head names",
            ));
        }
        Ok(records)
    }

    fn verify_short(&self, block_ranges: &[BlockRange], seen: &mut Seen<'_>) -> Result<()> {
        let byte_ranges: Vec<ByteRange> = block_ranges.iter().map(BlockRange::padded_range).collect();
        self.files.fetch_all(&byte_ranges, |block_range, bytes| {
            block_ranges[block_range].check_padding(bytes)?;
            block_ranges[block_range].records(
                self.layout().form(),
                bytes,
                &ReadPolicy::strict(),
                |record, _| self.see_key(seen, record.key, byte_ranges[block_range].at),
            )?;
            self.verify_seen(seen)
        })
    }

    /// Verifies the blocks of a record that is longer than one read.
    fn verify_long(&self, block_range: &BlockRange) -> Result<()> {
        let max_bytes = part_bytes(self) as u64;
        let mut first = block_range.blocks.start;
        let end = block_range.blocks.end;
        while first < end {
            let blocks = &block_range.segment.head.blocks[first..end];
            let fits =
                blocks.iter().take_while(|block| block.at + block.padded() - blocks[0].at <= max_bytes);
            let end = first + fits.count().max(1);
            let part = BlockRange { segment: block_range.segment.clone(), blocks: first..end };
            self.files.fetch_all(&[part.padded_range()], |_, bytes| {
                part.check_sums(bytes)?;
                part.check_padding(bytes)
            })?;
            first = end;
        }
        Ok(())
    }

    /// Verifies the key of the next record, in blocks that were read at `at`.
    fn see_key(&self, seen: &mut Seen<'_>, key: &[u8], at: u64) -> Result<()> {
        if seen.records > 0 && key < seen.last.as_slice() {
            let what = "keys of a table are not in their order";
            return Err(IndexError::damaged(&seen.segment.log.data, at, what));
        }
        if seen.records == 0 || key != seen.last.as_slice() {
            self.verify_place(seen.segment, key, at)?;
            seen.sample.push(local_hash(self.layout().hash(key)));
        }
        seen.last.clear();
        seen.last.extend_from_slice(key);
        seen.records += 1;
        Ok(())
    }

    /// Verifies the filters for the keys sampled so far.
    fn verify_seen(&self, seen: &mut Seen<'_>) -> Result<()> {
        let sample = std::mem::take(&mut seen.sample);
        if seen.regions { self.verify_filters(seen.segment, seen.number, &sample) } else { Ok(()) }
    }

    /// Checks that a key is in the partition it belongs to.
    fn verify_place(&self, segment: &Segment, key: &[u8], at: u64) -> Result<()> {
        let Log::Partition(number) = segment.log.log else { return Ok(()) };
        let epoch = segment.head.facts.epoch;
        if self.partition_at(key, epoch) == number {
            return Ok(());
        }
        Err(IndexError::damaged(&segment.log.data, at, "a key is in a partition it does not belong to"))
    }

    /// Checks that the filters of a table contain its keys: a sample, at most about one key a region.
    fn verify_filters(&self, segment: &Segment, table: usize, hashes: &[u64]) -> Result<()> {
        let step = (hashes.len() / segment.head.regions.len().max(1)).max(hashes.len() / 16).max(1);
        let sample: Vec<u64> = hashes.iter().copied().step_by(step).collect();
        let regions: Vec<Region> =
            sample.iter().filter_map(|&hash| region_of(&segment.head, hash).copied()).collect();
        let path = &segment.log.index;
        let byte_ranges: Vec<ByteRange> = regions.iter().map(|region| segment.region_bytes(region)).collect();
        self.files.fetch_all(&byte_ranges, |number, bytes| {
            let own = filter(bytes, segment.head.tables.len(), table);
            if own.and_then(|own| may_contain(own, sample[number])) == Some(true) {
                return Ok(());
            }
            Err(IndexError::damaged(path, regions[number].at, "a filter does not know a key of its table"))
        })
    }

    /// Verifies the values of an epoch; returns their number.
    fn verify_values(
        &self,
        reader: &LogReader,
        entry: &Entry,
        start: u64,
        covered: &mut Covered,
    ) -> Result<u64> {
        let damaged = |at, what| Err(IndexError::damaged(&reader.data, at, what));
        let max_window = part_bytes(self) as u64;
        let fixed = self.layout().value_bytes;
        let mut at = start;
        let mut window = Vec::new();
        let mut window_at = start;
        for _ in 0..entry.records {
            // If the rest of the window does not hold the value, another window is read; a value longer than
            // a window is read part by part.
            loop {
                let from = usize::try_from(at - window_at).unwrap_or(usize::MAX);
                let have: &[u8] = window.get(from..).unwrap_or_default();
                let left = entry.data_end.saturating_sub(at);
                let lengths = value_lengths(fixed, have);
                let needed = match lengths {
                    Some((head, length)) => (head as u64).saturating_add(length),
                    None => VALUE_HEAD_MAX as u64,
                };
                if needed <= have.len() as u64 {
                    // At most the bytes of the window.
                    if !value_is_whole(reader.id, at, &have[..needed as usize]) {
                        return damaged(at, "the checksum of a value is wrong");
                    }
                    at += needed;
                    break;
                }
                if have.len() as u64 >= left || (needed > left && lengths.is_some()) {
                    return damaged(at, "a value ends outside its epoch");
                }
                if let Some((head, length)) = lengths.filter(|_| needed > max_window) {
                    LongValue::in_log(reader.data.clone(), reader.id, at, head, length).check(self)?;
                    at += needed;
                    window = Vec::new();
                    window_at = at;
                    break;
                }
                // At most a window.
                let bytes = max_window.min(left) as usize;
                let _memory = self.pool.reserve(bytes, "values being checked")?;
                window = self.files.fetch_one(&reader.data, at, bytes)?.bytes().to_vec();
                window_at = at;
            }
        }
        if at.next_multiple_of(PAGE) != entry.data_end {
            return damaged(at, "an epoch's values are not all there");
        }
        covered.add(start, at - start);
        Ok(entry.records)
    }

    /// Checks that the counts of partitions and of writers agree.
    fn verify_sums(&self, verified: &mut Verified) -> Result<()> {
        let (one, other, what) = match self.layout().scheme {
            Scheme::Records => return Ok(()),
            Scheme::Pointers => (verified.records, verified.values, "pointers and values"),
            Scheme::Ranks => {
                (verified.auxiliary_entries, verified.records, "entries of auxiliary tables and records")
            }
        };
        if one != other && verified.is_whole() {
            verified.problems.push(format!("{}: {one} and {other} {what} do not agree", self.path.display()));
        }
        if self.layout().scheme == Scheme::Ranks && verified.is_whole() {
            let done = self.verify_named();
            verified.note(done)?;
        }
        Ok(())
    }

    /// Checks that records of writers are found by their keys: one key of each table.
    fn verify_named(&self) -> Result<()> {
        for log in self.table_logs() {
            let reader = self.log(log)?;
            for entry in &reader.entries {
                for segment in self.segments(&[(Arc::clone(&reader), *entry)])? {
                    let keys: Vec<Vec<u8>> =
                        segment.head.tables.iter().filter_map(|table| table.greatest.clone()).collect();
                    let path = &segment.log.data;
                    let epoch = segment.head.facts.epoch;
                    self.stored_many(&keys, Some(epoch), |_, values| match values.is_empty() {
                        true => Err(IndexError::damaged(
                            path,
                            0,
                            "the auxiliary table does not name this writer for a key it has",
                        )),
                        false => Ok(()),
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Whether a data log is at least as long as its index requires.
    fn verify_size(&self, path: &Path, end: u64) -> Result<()> {
        let size = self.files.get(path)?.size();
        if size >= end {
            Ok(())
        } else {
            Err(IndexError::damaged(path, size, "it ends before what its index names: it was cut short"))
        }
    }
}

/// The state of verifying a table.
struct Seen<'a> {
    segment: &'a Segment,
    /// The table's number in its segment.
    number: usize,
    /// Whether its filters are whole.
    regions: bool,
    records: u64,
    last: Vec<u8>,
    /// Hashes of keys whose filters are not yet checked.
    sample: Vec<u64>,
}
