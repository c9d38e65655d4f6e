//! Finding keys: rounds of reads; each round covers all keys, epochs and logs at once, in file order.
//!
//! ```text
//!   ranks      auxiliary regions ─▶ (key, epoch, writer)
//!   all        filter regions    ─▶ tables that may have the key
//!              blocks            ─▶ values, or pointers
//!   pointers   value logs        ─▶ values
//! ```
//!
//! Invariant: no value is missed. A damaged filter region counts as a match for all its tables, a damaged
//! auxiliary region names all ranks, and a notice reports it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use ascot_io::{Reservation, crc32c};

use crate::auxiliary::{hash_of, ranks};
use crate::error::Result;
use crate::format::bytes::Cursor;
use crate::format::filter::may_contain;
use crate::format::footer::Entry;
use crate::format::head::{Kind, Region, SegmentHead};
use crate::format::layout::{PartitionBy, Scheme};
use crate::format::names::Log;
use crate::hash::{local_hash, share};
use crate::read::block::BlockRange;
use crate::read::files::ByteRange;
use crate::read::log::LogReader;
use crate::read::long_value::part_bytes;
use crate::read::read_policy::ReadPolicy;
use crate::read::stored::{Content, Inline, StoredValue};
use crate::read::{Directory, LongValue, Segment};

/// A key to be found in one epoch of one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Want {
    log: Log,
    epoch: u64,
    /// Number of the key.
    key: usize,
}

/// A value found, and its order among the values of its key.
struct Found {
    key: usize,
    epoch: u64,
    order: (Log, u64, usize),
    content: Content,
}

/// A search for keys in tables, and the values found so far.
struct Search<'a> {
    directory: &'a Directory,
    keys: &'a [&'a [u8]],
    /// Their local hashes.
    hashes: Vec<u64>,
    inline: Inline,
    found: Vec<Found>,
    /// The memory of the values.
    memory: Reservation,
}

/// A table that may have a key.
struct Candidate {
    key: usize,
    block_range: BlockRange,
}

/// Segments searched at once.
const SEGMENTS_AT_ONCE: usize = 64;

impl Directory {
    /// The values of `keys`, of all epochs or one, and their memory reservation.
    pub(crate) fn find(
        &self,
        keys: &[&[u8]],
        epoch: Option<u64>,
        inline: Inline,
    ) -> Result<(Vec<Vec<StoredValue>>, Reservation)> {
        let epochs = self.epochs(epoch);
        let mut wants = Vec::new();
        // Opening one log per section verifies the number of epochs: a manifest that claims more is refused
        // before each epoch is searched.
        if let Some(key) = keys.first() {
            for (section, _) in self.manifest.sections() {
                let first = section.start.max(epochs.start);
                if section.contains(&first) && epochs.contains(&first) {
                    self.log(self.first_log(self.partition_at(key, first)))?;
                }
            }
        }
        for (number, key) in keys.iter().enumerate() {
            for epoch in epochs.clone() {
                let partition = self.partition_at(key, epoch);
                wants.push(Want { log: self.first_log(partition), epoch, key: number });
            }
        }
        let hashes: Vec<u64> = keys.iter().map(|key| local_hash(self.layout().hash(key))).collect();
        if self.layout().scheme == Scheme::Ranks {
            wants = self.named(wants, &hashes)?;
        }
        let memory = self.pool.reserve(wants.len() * size_of::<Want>(), "keys to be found")?;
        let mut search = Search { directory: self, keys, hashes, inline, found: Vec::new(), memory };
        for batch in self.batches(wants)? {
            search.tables(&batch)?;
        }
        let Search { mut found, mut memory, .. } = search;
        if self.layout().scheme == Scheme::Pointers {
            let pointers: Vec<&[u8]> = found.iter().map(|one| one.content.in_memory()).collect();
            let (contents, more) = self.resolve(&pointers, inline)?;
            memory.absorb(more);
            found.iter_mut().zip(contents).for_each(|(one, content)| one.content = content);
        }
        found.sort_by_key(|one| (one.key, one.epoch, one.order));
        let mut values: Vec<Vec<StoredValue>> = vec![Vec::new(); keys.len()];
        for one in found {
            values[one.key].push(StoredValue { epoch: one.epoch, content: one.content });
        }
        Ok((values, memory))
    }

    /// Checks that the epochs of a section may be searched one by one for a key: the log searched first
    /// confirms their number.
    pub(crate) fn check_held(&self, key: &[u8], section: &Range<u64>) -> Result<()> {
        // By range, a manifest has boundaries of every epoch, so its length bounds their number.
        if self.layout().partition_by == PartitionBy::Range {
            return Ok(());
        }
        self.log(self.first_log(self.partition_at(key, section.start))).map(drop)
    }

    /// The log of a partition that is searched first.
    fn first_log(&self, partition: u32) -> Log {
        Log::of_partition(self.layout().scheme, partition)
    }

    /// Groups wants into batches of segments to search, at most [`SEGMENTS_AT_ONCE`] each.
    fn batches(&self, mut wants: Vec<Want>) -> Result<Vec<Batch>> {
        wants.sort_unstable();
        let mut batches: Vec<Batch> = Vec::new();
        self.open_logs(wants.chunk_by(|one, other| one.log == other.log).map(|same| same[0].log));
        for same in wants.chunk_by(|one, other| (one.log, one.epoch) == (other.log, other.epoch)) {
            let log = self.log(same[0].log)?;
            for entry in log.of_epoch(same[0].epoch) {
                if batches.last().is_none_or(|batch| batch.segments.len() == SEGMENTS_AT_ONCE) {
                    batches.push(Batch::default());
                }
                if let Some(batch) = batches.last_mut() {
                    batch.segments.push((Arc::clone(&log), *entry));
                    batch.keys.push(same.iter().map(|want| want.key).collect());
                }
            }
        }
        Ok(batches)
    }

    /// The writers that auxiliary tables name for each want.
    fn named(&self, wants: Vec<Want>, hashes: &[u64]) -> Result<Vec<Want>> {
        let mut named = Vec::new();
        for batch in self.batches(wants)? {
            let segments = self.segments(&batch.segments)?;
            let regions = Regions::new(&segments, &batch.keys, |key| hash_of(hashes[key]));
            self.files.count(|counts| counts.auxiliary_reads += regions.byte_ranges.len() as u64);
            self.files.fetch_all(&regions.byte_ranges, |number, bytes| {
                let WantedRegion { segment, region, keys } = &regions.wanted[number];
                let epoch = segments[*segment].head.facts.epoch;
                let whole = self.is_whole(&segments[*segment], region, bytes);
                for &key in keys {
                    let found = if whole { ranks(bytes, hashes[key]) } else { None };
                    let found = found.unwrap_or_else(|| (0..self.manifest.shape_at(epoch).writers).collect());
                    self.files.count(|counts| counts.ranks_named += found.len() as u64);
                    let writers =
                        found.into_iter().filter(|&rank| rank < self.manifest.shape_at(epoch).writers);
                    named.extend(writers.map(|rank| Want { log: Log::Writer(rank), epoch, key }));
                }
                Ok(())
            })?;
        }
        named.sort_unstable();
        named.dedup();
        Ok(named)
    }

    /// Whether the filter of a table may contain a hash; a damaged filter counts as a match.
    fn passes(&self, segment: &Segment, region: &Region, bytes: &[u8], table: usize, hash: u64) -> bool {
        let answer =
            filter(bytes, segment.head.tables.len(), table).and_then(|filter| may_contain(filter, hash));
        answer.unwrap_or_else(|| {
            self.note_damaged(segment, region);
            true
        })
    }

    /// Whether the checksum of a region is right; a notice is added if not.
    fn is_whole(&self, segment: &Segment, region: &Region, bytes: &[u8]) -> bool {
        let whole = region_is_whole(segment, region, bytes);
        if !whole {
            self.note_damaged(segment, region);
        }
        whole
    }

    fn note_damaged(&self, segment: &Segment, region: &Region) {
        let kind = match segment.head.facts.kind {
            Kind::Tables => "the filters are damaged, so all tables were looked into",
            Kind::Auxiliary => "an auxiliary table is damaged, so all writers were asked",
        };
        self.notice(format!("{}, byte {}: {kind}", segment.log.index.display(), region.at));
    }
}

impl Search<'_> {
    /// Finds values in the tables of a batch of segments.
    fn tables(&mut self, batch: &Batch) -> Result<()> {
        let Self { directory, keys, ref hashes, .. } = *self;
        let segments = directory.segments(&batch.segments)?;
        let regions = Regions::new(&segments, &batch.keys, |key| hashes[key]);
        directory.files.count(|counts| counts.filter_reads += regions.byte_ranges.len() as u64);
        let mut candidates = Vec::new();
        directory.files.fetch_all(&regions.byte_ranges, |number, bytes| {
            let WantedRegion { segment, region, keys: wanted } = &regions.wanted[number];
            let segment = &segments[*segment];
            let whole = directory.is_whole(segment, region, bytes);
            for &key in wanted {
                let tables = segment.head.tables.iter().enumerate();
                let tables = tables.filter(|(number, table)| {
                    table.greatest.as_ref().is_none_or(|greatest| keys[key] <= greatest.as_slice())
                        && (!whole || directory.passes(segment, region, bytes, *number, hashes[key]))
                });
                for (_, table) in tables {
                    let blocks = segment.head.blocks_for(table, keys[key], Some(keys[key]));
                    if !blocks.is_empty() {
                        let block_range = BlockRange { segment: segment.clone(), blocks };
                        candidates.push(Candidate { key, block_range });
                    }
                }
            }
            Ok(())
        })?;
        self.blocks(candidates)
    }

    fn blocks(&mut self, candidates: Vec<Candidate>) -> Result<()> {
        let directory = self.directory;
        let mut short = BTreeMap::<ByteRange, Vec<Candidate>>::new();
        let mut long = Vec::new();
        let max_bytes = part_bytes(directory) as u64;
        let inline = self.inline.bytes(directory) as u64;
        for Candidate { key, block_range } in candidates {
            for block_range in block_range.parts(max_bytes) {
                let is_long = block_range.is_longer_record(inline);
                let candidate = Candidate { key, block_range };
                match is_long {
                    true => long.push(candidate),
                    false => short.entry(candidate.block_range.byte_range()).or_default().push(candidate),
                }
            }
        }
        long.iter().try_for_each(|one| self.long(one))?;
        let (byte_ranges, candidates): (Vec<ByteRange>, Vec<Vec<Candidate>>) = short.into_iter().unzip();
        directory.files.count(|counts| counts.block_reads += byte_ranges.len() as u64);
        directory.files.fetch_all(&byte_ranges, |number, bytes| self.short(&candidates[number], bytes))
    }

    /// Finds values in blocks that were read.
    fn short(&mut self, candidates: &[Candidate], bytes: &[u8]) -> Result<()> {
        let Self { directory, keys, .. } = *self;
        let Some(Candidate { block_range, .. }) = candidates.first() else { return Ok(()) };
        let before = self.found.len();
        let mut wanted: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
        candidates.iter().for_each(|one| wanted.entry(keys[one.key]).or_default().push(one.key));
        let at = block_range.byte_range().at;
        let mut place = 0;
        let inline = match directory.layout().scheme {
            // Pointers, which are followed later.
            Scheme::Pointers => usize::MAX,
            Scheme::Records | Scheme::Ranks => self.inline.bytes(directory),
        };
        block_range.records(directory.layout().form(), bytes, &ReadPolicy::strict(), |record, unit| {
            place += 1;
            for &key in wanted.get(record.key).map_or(&[][..], Vec::as_slice) {
                let content = if record.value.len() <= inline {
                    self.memory.absorb(directory.pool.reserve(record.value.len(), "values of keys")?);
                    Content::Bytes(record.value.to_vec())
                } else {
                    let blocks = unit.blocks.clone();
                    let length = record.value.len() as u64;
                    let segment = block_range.segment.clone();
                    Content::Long(LongValue::in_blocks(segment, blocks, unit.value_at, length))
                };
                self.keep(block_range, key, at, place, content)?;
            }
            Ok(())
        })?;
        let is_false = u64::from(self.found.len() == before);
        directory.files.count(|counts| counts.false_positives += is_false);
        Ok(())
    }

    /// Keeps the value of a record in blocks of its own if its key is the wanted one.
    fn long(&mut self, Candidate { key, block_range }: &Candidate) -> Result<()> {
        let (own, value) = block_range.long_record(self.directory)?;
        if own != self.keys[*key] {
            self.directory.files.count(|counts| counts.false_positives += 1);
            return Ok(());
        }
        self.keep(block_range, *key, block_range.byte_range().at, 1, value)
    }

    /// Keeps a value of a key; it is record `number` of the blocks read at `at` in the data log.
    fn keep(
        &mut self,
        block_range: &BlockRange,
        key: usize,
        at: u64,
        number: usize,
        content: Content,
    ) -> Result<()> {
        self.memory.absorb(self.directory.pool.reserve(size_of::<Found>(), "values of keys")?);
        let log = block_range.segment.log.log;
        let epoch = block_range.segment.head.facts.epoch;
        self.found.push(Found { key, epoch, order: (log, at, number), content });
        Ok(())
    }
}

/// Segments that are searched at once.
#[derive(Default)]
struct Batch {
    segments: Vec<(Arc<LogReader>, Entry)>,
    /// For each segment, the numbers of the keys to look for.
    keys: Vec<Vec<usize>>,
}

/// Whether the checksum of a region is right.
pub(crate) fn region_is_whole(segment: &Segment, region: &Region, bytes: &[u8]) -> bool {
    crc32c(&[&segment.log.id.0.to_le_bytes(), &region.at.to_le_bytes(), bytes]) == region.crc
}

/// The filter of a table in a region of `tables` tables.
pub(crate) fn filter(bytes: &[u8], tables: usize, table: usize) -> Option<&[u8]> {
    let mut cursor = Cursor::new(bytes);
    let lengths: Option<Vec<usize>> = (0..tables).map(|_| Some(cursor.u32()? as usize)).collect();
    let lengths = lengths?;
    let before = lengths[..table].iter().try_fold(0usize, |sum, &length| sum.checked_add(length))?;
    cursor.take(before)?;
    cursor.take(lengths[table])
}

/// The region of a hash.
pub(crate) fn region_of(head: &SegmentHead, hash: u64) -> Option<&Region> {
    // The number of regions has 32 bits in the format.
    head.regions.get(share(hash, head.regions.len() as u32) as usize)
}

/// Regions to read, in file order.
struct Regions {
    byte_ranges: Vec<ByteRange>,
    /// The region of each byte range.
    wanted: Vec<WantedRegion>,
}

/// A region that may tell where keys are.
struct WantedRegion {
    /// Number of the segment in its batch.
    segment: usize,
    region: Region,
    /// Numbers of the keys.
    keys: Vec<usize>,
}

impl Regions {
    /// The regions of the hashes of keys: `keys` has the numbers of those to look for in each segment.
    fn new(segments: &[Segment], keys: &[Vec<usize>], hash: impl Fn(usize) -> u64) -> Self {
        let mut regions: BTreeMap<ByteRange, WantedRegion> = BTreeMap::new();
        for (number, (segment, keys)) in segments.iter().zip(keys).enumerate() {
            for &key in keys {
                let Some(region) = region_of(&segment.head, hash(key)) else { continue };
                regions
                    .entry(segment.region_bytes(region))
                    .or_insert_with(|| WantedRegion { segment: number, region: *region, keys: Vec::new() })
                    .keys
                    .push(key);
            }
        }
        let (byte_ranges, wanted) = regions.into_iter().unzip();
        Self { byte_ranges, wanted }
    }
}
