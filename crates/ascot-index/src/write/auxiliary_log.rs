//! The auxiliary table of a partition during writing: which ranks may have a key. Entries accumulate as a hash of 40
//! bits and a rank of 24, and become regions when the epoch ends or memory is full.
//!
//! ```text
//!   entry    | upper 40 bits of the local hash | rank: 24 |
//!   sealed   | region 0 | region 1 | ... | head |         a region is a small table: one read
//! ```

use ascot_io::{Pool, Reservation};
use ascot_record::vsort;

use crate::auxiliary::{self, Shape};
use crate::error::Result;
use crate::format::head::{HeadMaker, Kind, SegmentFacts};
use crate::format::layout::Layout;
use crate::hash::{local_hash, share};
use crate::reserve::vec_with_capacity;
use crate::write::index_log::IndexLog;
use crate::write::logs::Logs;
use crate::write::memory::Plan;

/// Approximate number of entries of a region, which is read as a whole.
const REGION_ENTRIES: usize = 8192;

/// The writer of an auxiliary table.
pub struct AuxiliaryLog {
    index: IndexLog,
    shape: Shape,
    entries: Vec<u64>,
    max_entries: usize,
    /// Entries pushed, before duplicates are merged.
    records: u64,
    epoch_records: u64,
    _memory: Reservation,
}

impl AuxiliaryLog {
    /// A log with its share of `pool`.
    pub fn new(index: IndexLog, layout: &Layout, pool: &Pool, plan: &Plan) -> Result<Self> {
        let max_entries = plan.auxiliary_entries;
        let memory = pool.reserve(max_entries * 8, "entries of an auxiliary table")?;
        let entries = vec_with_capacity(pool, max_entries, "entries of an auxiliary table")?;
        let shape = Shape::from_layout(layout);
        Ok(Self { index, shape, entries, max_entries, records: 0, epoch_records: 0, _memory: memory })
    }

    /// Records that `rank` has a record with the key of this hash.
    pub fn push(&mut self, logs: &mut Logs, hash: u64, rank: u32) -> Result<()> {
        if self.entries.len() == self.max_entries {
            self.seal(logs)?;
        }
        self.entries.push(auxiliary::entry(local_hash(hash), rank));
        self.records += 1;
        Ok(())
    }

    /// Whether it has space for `records` more records.
    pub fn has_space(&self, records: usize) -> bool {
        self.entries.len().saturating_add(records) <= self.max_entries
    }

    /// Ends the epoch.
    pub fn end_epoch(&mut self, logs: &mut Logs) -> Result<u64> {
        self.seal(logs)?;
        self.index.end_epoch(logs, 0)?;
        Ok(std::mem::take(&mut self.epoch_records))
    }

    fn seal(&mut self, logs: &mut Logs) -> Result<()> {
        if self.entries.is_empty() {
            return Ok(());
        }
        vsort::sort(&mut self.entries);
        self.entries.dedup();
        // Bounded by the number of entries in memory.
        let regions = self.entries.len().div_ceil(REGION_ENTRIES) as u32;
        let mut head = HeadMaker::default();
        let regions_at = logs.end(self.index.file);
        let mut start = 0;
        for region in 0..regions {
            // A region is a range of the hash, and entries are sorted by hash.
            let own = self.entries[start..]
                .partition_point(|&entry| share(auxiliary::hash_of(entry), regions) <= region);
            let bytes = auxiliary::build(self.shape, &self.entries[start..start + own]);
            head.regions.push(self.index.region(logs, &[&bytes])?);
            start += own;
        }
        let facts = SegmentFacts {
            kind: Kind::Auxiliary,
            log: self.index.id.0,
            epoch: self.index.epoch(),
            records: self.records,
            regions_at,
            attribute: false,
        };
        let [first, tables] = head.parts(&facts);
        self.index.head(logs, &[&first, &tables], self.records, 0)?;
        self.entries.clear();
        self.epoch_records += std::mem::take(&mut self.records);
        Ok(())
    }
}
