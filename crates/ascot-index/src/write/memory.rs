//! The memory of a writer: a fixed share for each of its parts; the shares add up to the cap.
//!
//! ```text
//!   cap = blocks of the engine (an eighth)
//!       + scratch: a block and a filter under construction
//!       + for each table log   records | offsets and sorting | filters and block index of the open segment
//!       + for an auxiliary log hashes and ranks, eight bytes each | a region under construction
//! ```

use ascot_record::chunk;

use crate::error::{IndexError, Result, counted};
use crate::format::layout::Layout;

/// Memory for building a region of an auxiliary table.
const AUXILIARY_SCRATCH_BYTES: usize = 1 << 20;
/// Minimum memory of a writer, bytes, besides 512 KiB for each log.
pub const MIN_BYTES: usize = 2 << 20;
/// Minimum bytes of memory for each further log.
const MIN_LOG_BYTES: usize = 512 << 10;
/// Maximum block of the engine: devices reach full speed with it.
const ENGINE_BLOCK_MAX: usize = 1 << 20;
/// Maximum buffer of records, or of entries of an auxiliary table: a larger one makes larger tables without benefit.
const BUFFER_MAX: usize = 256 << 20;
/// Maximum memory of the engine's blocks: no device needs more.
const ENGINE_MAX: usize = 16 << 30;
/// Assumed bytes of a record if lengths differ.
const USUAL_RECORD_BYTES: usize = 64;
/// Approximate number of keys of a table that share a region.
pub const REGION_KEYS: usize = 2048;
/// Maximum keys per region of a table that joins a segment of smaller tables.
pub const REGION_KEYS_MAX: usize = 4 * REGION_KEYS;

/// Numbers of logs of a writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Logs of tables.
    pub tables: usize,
    /// Logs of auxiliary tables.
    pub auxiliary: usize,
    /// Logs of values.
    pub values: usize,
}

impl LogCounts {
    /// Number of files of the logs.
    fn files(&self) -> usize {
        2 * self.tables + self.auxiliary + 2 * self.values
    }
}

/// Shares of the memory, in bytes unless noted otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// A block of the engine.
    pub engine_block_bytes: usize,
    /// Number of engine blocks.
    pub engine_blocks: usize,
    /// Memory for building a block and a filter.
    pub scratch_bytes: usize,
    /// Bytes of the records in a table log's buffer.
    pub buffer_bytes: usize,
    /// Maximum number of records in the buffer.
    pub buffer_records: usize,
    /// Filters and block index of a table log's open segment.
    pub segment_bytes: usize,
    /// Maximum number of entries in an auxiliary log's memory.
    pub auxiliary_entries: usize,
}

impl Plan {
    /// Divides `memory` bytes into shares; an error if that is too little.
    pub fn new(memory: usize, layout: &Layout, counts: LogCounts) -> Result<Self> {
        let logs = counts.tables + counts.auxiliary + counts.values;
        let block = layout.block_bytes as usize;
        let scratch_bytes = block + AUXILIARY_SCRATCH_BYTES;
        let min_bytes = MIN_BYTES + scratch_bytes + logs * MIN_LOG_BYTES;
        if memory < min_bytes {
            return Err(IndexError::TooLittle {
                what: format!("a writer of {}", counted(logs as u64, "log")),
                min_kib: min_bytes.div_ceil(1024),
                allowed_kib: memory / 1024,
                advice: "allow more memory, or make fewer partitions",
            });
        }
        let outputs = counts.files();
        let engine = (memory / 8).min(ENGINE_MAX);
        let fits = engine / (2 * outputs + 2);
        let engine_block_bytes = (fits.max(4096) / 4096 * 4096).min(ENGINE_BLOCK_MAX);
        let engine_blocks = (engine / engine_block_bytes).max(2 * outputs + 1);
        let rest = memory - scratch_bytes - engine_blocks * engine_block_bytes;
        let shares = (counts.tables + counts.auxiliary).max(1);
        let share = rest / shares;
        let segment_bytes = share / 4;
        let form = layout.form();
        let record = match (form.key, form.value) {
            (Some(key), Some(value)) => (key + value).max(1) as usize,
            _ => USUAL_RECORD_BYTES,
        };
        let buffer = (share - segment_bytes).min(BUFFER_MAX);
        let each = beside_bytes(1) - beside_bytes(0);
        let buffer_records = buffer.saturating_sub(beside_bytes(0)) / (record + each);
        let buffer_bytes = buffer - beside_bytes(buffer_records);
        let auxiliary_entries = (share / 8 - share / 64).min(BUFFER_MAX / size_of::<u64>());
        Ok(Self {
            engine_block_bytes,
            engine_blocks,
            scratch_bytes,
            buffer_bytes,
            buffer_records,
            segment_bytes,
            auxiliary_entries,
        })
    }
}

/// Bytes of memory for `records` records in addition to the records themselves.
pub fn beside_bytes(records: usize) -> usize {
    records * size_of::<u32>() + chunk::scratch_bytes(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::layout::Scheme;

    impl Plan {
        /// Bytes of all shares.
        fn total(&self, counts: LogCounts) -> usize {
            let table = self.buffer_bytes + beside_bytes(self.buffer_records) + self.segment_bytes;
            self.engine_blocks * self.engine_block_bytes
                + self.scratch_bytes
                + counts.tables * table
                + counts.auxiliary * self.auxiliary_entries * 8
        }
    }

    #[test]
    fn shares_are_within_the_cap() {
        let mut layout = Layout::new(Scheme::Records, 1, 1);
        for (key, value) in [(None, None), (Some(8), Some(40)), (Some(0), Some(0)), (Some(8), Some(1 << 20))]
        {
            (layout.key_bytes, layout.value_bytes) = (key, value);
            for memory in [8 << 20, 64 << 20, 1 << 30, 64 << 30, 1 << 60] {
                for (tables, auxiliary, values) in [(1, 0, 0), (8, 0, 1), (1, 1, 0), (1, 8, 0)] {
                    let counts = LogCounts { tables, auxiliary, values };
                    let plan = Plan::new(memory, &layout, counts).unwrap();
                    assert!(plan.total(counts) <= memory, "{plan:?}");
                    assert!(plan.engine_blocks > 2 * counts.files());
                    assert!(plan.buffer_bytes.max(plan.auxiliary_entries * 8) <= BUFFER_MAX);
                }
            }
        }
        let counts = LogCounts { tables: 1000, ..LogCounts::default() };
        let error = Plan::new(64 << 20, &layout, counts).unwrap_err().to_string();
        assert!(error.contains("allow more memory"), "{error}");
    }
}
