//! Whether all of a directory is what was written: every checksum, every order, every count, and that each record
//! is found where a query would look for it.

use std::path::Path;
use std::sync::Arc;

use ascot_io::{Action, IoError};

use crate::auxiliary::ranks;
use crate::error::{IndexError, Result};
use crate::format::filter::may_contain;
use crate::format::footer::{Entry, FOOTER_BYTES, Footer, PAGE};
use crate::format::head::{Kind, Region, Table};
use crate::format::manifest::Scheme;
use crate::format::names::Log;
use crate::format::pointer::{VALUE_HEAD_MOST, value_is_whole, value_lengths};
use crate::hash::local_hash;
use crate::read::block::Stretch;
use crate::read::fetch::{Spot, fetch, fetch_all, missing};
use crate::read::gaps::Gaps;
use crate::read::log::LogReader;
use crate::read::lookup::{filter, region_is_whole, region_of};
use crate::read::tail::read_root;
use crate::read::{Directory, Scan, Segment};

/// Most problems that are told one by one.
const TOLD_MOST: usize = 100;

/// What was looked at, and what is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Index logs.
    pub logs: u64,
    /// Tables.
    pub tables: u64,
    /// Data blocks.
    pub blocks: u64,
    /// Records in tables, pointers among them.
    pub records: u64,
    /// Values in writers' logs.
    pub values: u64,
    /// Entries of auxiliary tables.
    pub auxiliary_entries: u64,
    /// What is wrong: file, byte, what.
    pub problems: Vec<String>,
    /// Problems beyond those that are told.
    pub more_problems: u64,
}

impl Verified {
    fn problem_of(&mut self, error: impl FnOnce() -> IndexError) {
        if self.problems.len() < TOLD_MOST {
            self.problems.push(error().to_string());
        } else {
            self.more_problems += 1;
        }
    }

    /// Keeps what is wrong, and goes on.
    fn note<T>(&mut self, done: Result<T>) -> Option<T> {
        done.map_err(|error| self.problem_of(|| error)).ok()
    }

    /// Whether nothing is wrong.
    pub fn is_whole(&self) -> bool {
        self.problems.is_empty()
    }
}

impl Directory {
    /// Reads everything. What is wrong is in the answer; an error is only what keeps from looking.
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
        for log in there {
            verified.logs += 1;
            let opened = self.log(log);
            let Some(reader) = verified.note(opened) else { continue };
            verified.note(self.verify_footers(&reader));
            if self.manifest.epochs_of(log) > 0 {
                // Before the first epoch's end files may not have been made yet.
                verified.note(verify_size(&reader.data, reader.ends.1));
            }
            for (number, entry) in reader.entries.iter().enumerate() {
                let start = number.checked_sub(1).map_or(0, |before| reader.entries[before].data_end);
                self.verify_entry(&reader, entry, start, &mut verified);
            }
        }
        self.verify_sums(&mut verified);
        Ok(verified)
    }

    /// Looks at the ends of all epochs, those that later ones have taken the place of, too: whoever opened the directory earlier
    /// reads by them, and so does a writer that goes on after a stop.
    fn verify_footers(&self, reader: &LogReader) -> Result<()> {
        const WINDOW: u64 = 1 << 20;
        let path = &reader.index;
        let (mut at, mut epochs) = (0, 0);
        let complete = self.manifest.epochs_of(reader.log);
        while at < reader.ends.0 {
            // At most 1 MiB.
            let bytes = (reader.ends.0 - at).min(WINDOW) as usize;
            let _memory = self.pool.reserve(bytes, "an index being checked")?;
            let filled = fetch(&self.disk, "index read", path, at, bytes)?;
            for page in filled.bytes().chunks(PAGE as usize) {
                at += page.len() as u64;
                let place = at - FOOTER_BYTES as u64;
                let end = page.get(page.len().saturating_sub(FOOTER_BYTES)..).unwrap_or_default();
                let Some(footer) = Footer::parse(end, place, reader.id.0) else { continue };
                if epochs == complete {
                    // Behind the last epoch that the manifest names is the tail of a writer.
                    return Ok(());
                }
                // The next epoch that this log takes part in.
                epochs = self.manifest.next_epoch_of(reader.log, epochs).map_or(epochs, |epoch| epoch + 1);
                if footer.epochs != epochs {
                    return Err(IndexError::damaged(path, place, "an epoch's footer is missing before this"));
                }
                let root = read_root(&self.disk, path, &footer.root, reader.id.0)?;
                let own = root.entries.iter().filter(|entry| entry.epoch + 1 == epochs);
                if !own.eq(reader.of_epoch(epochs - 1)) {
                    return Err(IndexError::damaged(
                        path,
                        footer.root.at,
                        "an epoch's root names other segments",
                    ));
                }
            }
        }
        if epochs < complete {
            return Err(IndexError::damaged(path, at, "the footer of an epoch is missing"));
        }
        Ok(())
    }

    fn verify_entry(&self, reader: &Arc<LogReader>, entry: &Entry, start: u64, verified: &mut Verified) {
        let values = self.layout().scheme == Scheme::Pointers && matches!(reader.log, Log::Writer(_));
        if values {
            let done = self.verify_values(reader, entry, start);
            verified.values += verified.note(done).unwrap_or_default();
            return;
        }
        let kind = if matches!(reader.log, Log::Auxiliary(_)) { Kind::Auxiliary } else { Kind::Tables };
        let segments = self.segments(&[(Arc::clone(reader), *entry)], kind);
        for segment in verified.note(segments).unwrap_or_default() {
            let regions = self.verify_regions(&segment, verified);
            if kind == Kind::Auxiliary {
                verified.auxiliary_entries += segment.head.facts.records;
                continue;
            }
            for (number, table) in segment.head.tables.iter().enumerate() {
                verified.tables += 1;
                verified.blocks += table.blocks.len() as u64;
                let done = self.verify_table(&segment, number, table, regions);
                verified.records += verified.note(done).unwrap_or_default();
            }
        }
    }

    /// Looks at all regions of a segment; whether they are whole.
    fn verify_regions(&self, segment: &Segment, verified: &mut Verified) -> bool {
        let path = &segment.log.index;
        let regions = &segment.head.regions;
        let spot = |region: &Region| Spot { path: path.clone(), at: region.at, bytes: region.bytes as usize };
        let spots: Vec<Spot> = regions.iter().map(spot).collect();
        let mut whole = true;
        let tables = segment.head.tables.len();
        let done = fetch_all(self, "index read", &spots, |number, bytes| {
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
        verified.note(done).is_some() && whole
    }

    /// Looks at all blocks of a table; its records.
    fn verify_table(&self, segment: &Segment, number: usize, table: &Table, regions: bool) -> Result<u64> {
        let everything = Scan::default();
        let stretches = self.stretches(&everything, segment, table, 1 << 20);
        let spots: Vec<Spot> = stretches.iter().map(Stretch::spot).collect();
        let damaged = |at, what| IndexError::damaged(&segment.log.data, at, what);
        let (mut records, mut last, mut sample) = (0u64, Vec::new(), Vec::new());
        fetch_all(self, "block read", &spots, |stretch, bytes| {
            stretches[stretch].records(self.layout().form(), bytes, &Gaps::strict(), |record| {
                if records > 0 && record.key < last.as_slice() {
                    return Err(damaged(spots[stretch].at, "keys of a table are not in their order"));
                }
                if records == 0 || record.key != last.as_slice() {
                    self.verify_place(segment, record.key, spots[stretch].at)?;
                    sample.push(local_hash(self.layout().hash(record.key)));
                }
                last.clear();
                last.extend_from_slice(record.key);
                records += 1;
                Ok(())
            })?;
            if regions { self.verify_filters(segment, number, &std::mem::take(&mut sample)) } else { Ok(()) }
        })?;
        if records != table.records || table.greatest.as_ref().is_some_and(|greatest| *greatest != last) {
            return Err(damaged(table.at, "a table has not the records its head names"));
        }
        Ok(records)
    }

    /// Whether a key is in the partition it belongs to.
    fn verify_place(&self, segment: &Segment, key: &[u8], at: u64) -> Result<()> {
        let Log::Partition(number) = segment.log.log else { return Ok(()) };
        let epoch = segment.head.facts.epoch;
        if self.partition_at(key, epoch) == number {
            return Ok(());
        }
        Err(IndexError::damaged(&segment.log.data, at, "a key is in a partition it does not belong to"))
    }

    /// Whether the filters of a table let its keys pass: of some of them, as many as regions there are.
    fn verify_filters(&self, segment: &Segment, table: usize, hashes: &[u64]) -> Result<()> {
        let step = (hashes.len() / segment.head.regions.len().max(1)).max(hashes.len() / 16).max(1);
        let sample: Vec<u64> = hashes.iter().copied().step_by(step).collect();
        let regions: Vec<Region> =
            sample.iter().filter_map(|&hash| region_of(&segment.head, hash).copied()).collect();
        let path = &segment.log.index;
        let spot = |region: &Region| Spot { path: path.clone(), at: region.at, bytes: region.bytes as usize };
        let spots: Vec<Spot> = regions.iter().map(spot).collect();
        fetch_all(self, "index read", &spots, |number, bytes| {
            let own = filter(bytes, segment.head.tables.len(), table);
            if own.and_then(|own| may_contain(own, sample[number])) == Some(true) {
                return Ok(());
            }
            Err(IndexError::damaged(path, regions[number].at, "a filter does not know a key of its table"))
        })
    }

    /// Looks at the values of an epoch; how many they are.
    fn verify_values(&self, reader: &LogReader, entry: &Entry, start: u64) -> Result<u64> {
        const WINDOW: u64 = 1 << 20;
        let damaged = |at, what| Err(IndexError::damaged(&reader.data, at, what));
        let mut at = start;
        let (mut window, mut window_at) = (Vec::new(), start);
        for _ in 0..entry.records {
            // What is left of the window holds the value, or another is read.
            loop {
                let from = usize::try_from(at - window_at).unwrap_or(usize::MAX);
                let have: &[u8] = window.get(from..).unwrap_or_default();
                let needed = match value_lengths(self.layout().value_bytes, have) {
                    Some((head, length)) => (head as u64).saturating_add(length),
                    None => VALUE_HEAD_MOST as u64,
                };
                if needed <= have.len() as u64 {
                    // No more than what is there.
                    if !value_is_whole(reader.id, at, &have[..needed as usize]) {
                        return damaged(at, "the checksum of a value is wrong");
                    }
                    at += needed;
                    break;
                }
                let left = entry.data_end.saturating_sub(at);
                if have.len() as u64 >= left
                    || (needed > left && value_lengths(self.layout().value_bytes, have).is_some())
                {
                    return damaged(at, "a value ends outside its epoch");
                }
                let bytes = usize::try_from(needed.max(WINDOW).min(left)).unwrap_or(usize::MAX);
                let _memory = self.pool.reserve(bytes, "values being checked")?;
                window = fetch(&self.disk, "value read", &reader.data, at, bytes)?.bytes().to_vec();
                window_at = at;
            }
        }
        if at.next_multiple_of(4096) != entry.data_end {
            damaged(at, "an epoch's values are not all there")
        } else {
            Ok(entry.records)
        }
    }

    /// Whether what partitions have, writers have.
    fn verify_sums(&self, verified: &mut Verified) {
        let (one, other, what) = match self.layout().scheme {
            Scheme::Records => return,
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
            verified.note(done);
        }
    }

    /// Whether records of writers are found by their keys: some of each table.
    fn verify_named(&self) -> Result<()> {
        for log in self.table_logs() {
            let reader = self.log(log)?;
            for entry in &reader.entries {
                for segment in self.segments(&[(Arc::clone(&reader), *entry)], Kind::Tables)? {
                    let keys: Vec<Vec<u8>> =
                        segment.head.tables.iter().filter_map(|table| table.greatest.clone()).collect();
                    let path = &segment.log.data;
                    let epoch = segment.head.facts.epoch;
                    self.get_many(&keys, Some(epoch), |_, values| match values.is_empty() {
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
}

/// Whether a data log is as long as its index says; behind that there may be more.
fn verify_size(path: &Path, end: u64) -> Result<()> {
    let failed = |error| missing(IoError::from_os(Action::Inspect, path, 0, error), path);
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size >= end {
        Ok(())
    } else {
        Err(IndexError::damaged(path, size, "it ends before what its index names: it was cut short"))
    }
}
