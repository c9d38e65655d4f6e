//! The open segment of a table log: filters and block index of tables already flushed, kept in memory until they can
//! be written region by region.
//!
//! ```text
//!   table 0   f00 f01 f02 ...     ╮  sealed:  | f00 f10 f20 | f01 f11 f21 | ... | head |
//!   table 1   f10 f11 f12 ...     ├─▶           region 0      region 1
//!   table 2   f20 f21 f22 ...     ╯
//! ```
//!
//! Invariant: a segment is sealed before it outgrows its share, so an epoch with more filters has several segments;
//! each costs a query one more read.

use ascot_io::{Pool, Reservation};

use crate::error::Result;
use crate::format::filter::{add_to_filter, begin_filter, filter_bytes};
use crate::format::head::{HeadMaker, Kind, SegmentFacts};
use crate::hash::share;
use crate::write::index_log::IndexLog;
use crate::write::logs::Logs;
use crate::write::memory::{REGION_KEYS, REGION_KEYS_MAX};

/// Filters of one table, one for each region, of equal length.
struct Filters {
    bytes: Vec<u8>,
    each: usize,
}

/// A segment that accepts tables.
pub struct OpenSegment {
    /// The index of the blocks of its tables.
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
        let head = HeadMaker::default();
        let filters = Vec::new();
        Ok(Self { head, filters, regions: 0, attribute, share, memory, pool: pool.clone() })
    }

    /// Whether a table of `records` records and `blocks` blocks may join the segment.
    pub fn fits(&self, records: usize, blocks: usize) -> bool {
        if self.head.tables() == 0 {
            return true;
        }
        let regions = self.regions.max(1) as usize;
        let filters = filter_bytes(records / regions) * regions;
        let next = filters + blocks * 64 + 1024;
        records / regions <= REGION_KEYS_MAX && self.used() + next <= self.share
    }

    fn used(&self) -> usize {
        let filters: usize = self.filters.iter().map(|one| one.bytes.len()).sum();
        filters + self.head.memory()
    }

    /// Builds the filters of a table from the distinct hashes of its keys.
    pub fn add_filters(&mut self, hashes: &[u64]) -> Result<()> {
        if self.filters.is_empty() {
            // A share has at most 2^32 records.
            self.regions = (hashes.len() / REGION_KEYS).max(1) as u32;
        }
        let each = filter_bytes(hashes.len() / self.regions as usize);
        let mut bytes = vec![0; each * self.regions as usize];
        bytes.chunks_exact_mut(each).for_each(begin_filter);
        for &hash in hashes {
            let at = share(hash, self.regions) as usize * each;
            add_to_filter(&mut bytes[at..at + each], hash);
        }
        self.filters.push(Filters { bytes, each });
        if self.used() > self.memory.bytes() {
            // Long keys made the block index larger than estimated; it is charged to the pool, so the cap holds.
            let more = self.used() - self.memory.bytes();
            let more = self.pool.reserve(more, "block index of a segment with long keys")?;
            self.memory.absorb(more);
        }
        Ok(())
    }

    /// Writes the regions and the head; writes nothing if there is no table.
    pub fn seal(&mut self, logs: &mut Logs, index: &mut IndexLog, data_end: u64) -> Result<()> {
        if self.head.tables() == 0 {
            return Ok(());
        }
        let regions_at = logs.end(index.file);
        for region in 0..self.regions as usize {
            // A filter has a few thousand keys.
            let lengths: Vec<u8> =
                self.filters.iter().flat_map(|one| (one.each as u32).to_le_bytes()).collect();
            let own = self.filters.iter().map(|one| &one.bytes[region * one.each..][..one.each]);
            let parts: Vec<&[u8]> = std::iter::once(lengths.as_slice()).chain(own).collect();
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
