//! The open segment of a table log: filters and block index of tables that are flushed already, kept in memory
//! until they can be written region by region.
//!
//! ```text
//!   table 0   f00 f01 f02 ...     ╮  sealed:  | f00 f10 f20 | f01 f11 f21 | ... | head |
//!   table 1   f10 f11 f12 ...     ├─▶           region 0      region 1
//!   table 2   f20 f21 f22 ...     ╯
//! ```
//!
//! Invariant: it is sealed before it would outgrow its share, so an epoch with more filters than that has several segments; each of
//! them costs a query one more read.

use ascot_io::{Pool, Reservation};

use crate::error::Result;
use crate::format::filter::put_filter;
use crate::format::head::{HeadMaker, Kind, SegmentFacts};
use crate::hash::share;
use crate::write::buffer::Entry;
use crate::write::index_log::IndexLog;
use crate::write::logs::Logs;
use crate::write::memory::{REGION_KEYS, REGION_KEYS_MOST};

/// Filters of one table: all bytes, and the length of each region's.
struct Filters {
    bytes: Vec<u8>,
    lengths: Vec<u32>,
    /// Where the next region's starts, while they are written.
    at: usize,
}

/// A segment that takes tables.
pub struct OpenSegment {
    /// What finds blocks in its tables.
    pub head: HeadMaker,
    filters: Vec<Filters>,
    regions: u32,
    attribute: bool,
    share: usize,
    memory: Reservation,
    pool: Pool,
}

impl OpenSegment {
    /// An empty segment with its share of `pool`.
    pub fn new(pool: &Pool, share: usize, attribute: bool) -> Result<Self> {
        let memory = pool.reserve(share, "filters of a segment")?;
        let (head, filters) = (HeadMaker::default(), Vec::new());
        Ok(Self { head, filters, regions: 0, attribute, share, memory, pool: pool.clone() })
    }

    /// Whether a table of so many records and blocks may join.
    pub fn fits(&self, records: usize, blocks: usize) -> bool {
        if self.head.tables() == 0 {
            return true;
        }
        // Two bytes a key and a little for each region: more than small filters take.
        let filters = 2 * records + 64 * self.regions as usize;
        let next = filters + blocks * 64 + 1024;
        records / self.regions.max(1) as usize <= REGION_KEYS_MOST && self.used() + next <= self.share
    }

    fn used(&self) -> usize {
        let filters: usize =
            self.filters.iter().map(|one| one.bytes.capacity() + 4 * one.lengths.capacity()).sum();
        filters + self.head.memory()
    }

    /// Builds the filters of a table from the first column of hashes; the second is scratch.
    pub fn add_filters(&mut self, columns: &mut [Entry]) -> Result<()> {
        if self.filters.is_empty() {
            // A share of at most 2^32 records.
            self.regions = (columns.len() / REGION_KEYS).max(1) as u32;
        }
        let mut ends = vec![0u32; self.regions as usize + 1];
        for entry in columns.iter() {
            ends[share(entry.prefix, self.regions) as usize + 1] += 1;
        }
        for region in 1..ends.len() {
            ends[region] += ends[region - 1];
        }
        let mut next = ends.clone();
        for index in 0..columns.len() {
            let hash = columns[index].prefix;
            let place = &mut next[share(hash, self.regions) as usize];
            columns[*place as usize].place = hash;
            *place += 1;
        }
        let mut filters =
            Filters { bytes: Vec::with_capacity(columns.len() * 3 / 2), lengths: vec![], at: 0 };
        let mut hashes = Vec::with_capacity(REGION_KEYS);
        for range in ends.windows(2) {
            hashes.clear();
            hashes.extend(columns[range[0] as usize..range[1] as usize].iter().map(|entry| entry.place));
            let before = filters.bytes.len();
            put_filter(&mut filters.bytes, &hashes);
            filters.lengths.push((filters.bytes.len() - before) as u32);
        }
        filters.bytes.shrink_to_fit();
        self.filters.push(filters);
        if self.used() > self.memory.bytes() {
            // Long keys made the block index larger than was to be expected; the cap holds nevertheless.
            let more = self.used() - self.memory.bytes();
            let more = self.pool.reserve(more, "block index of a segment with long keys")?;
            self.memory.absorb(more);
        }
        Ok(())
    }

    /// Writes regions and head; nothing where there is no table.
    pub fn seal(&mut self, logs: &mut Logs, index: &mut IndexLog, data_end: u64) -> Result<()> {
        if self.head.tables() == 0 {
            return Ok(());
        }
        let regions_at = logs.end(index.file);
        for region in 0..self.regions as usize {
            let lengths: Vec<u8> =
                self.filters.iter().flat_map(|one| one.lengths[region].to_le_bytes()).collect();
            let mut parts = vec![lengths.as_slice()];
            for one in &mut self.filters {
                let end = one.at + one.lengths[region] as usize;
                parts.push(&one.bytes[one.at..end]);
                one.at = end;
            }
            let sealed = index.region(logs, &parts)?;
            self.head.regions.push(sealed);
        }
        let facts = SegmentFacts {
            kind: Kind::Tables,
            log: index.id.0,
            epoch: index.epoch(),
            records: self.head.records,
            regions_at,
            attribute: self.attribute,
        };
        let [first, tables] = self.head.parts(&facts);
        index.head(logs, &[&first, &tables, self.head.blocks()], facts.records, data_end)?;
        self.head = HeadMaker::default();
        self.filters.clear();
        self.memory.shrink_to(self.share);
        Ok(())
    }
}
