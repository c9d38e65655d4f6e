//! Counts of the reads of queries, which several threads add to.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of the reads of queries; each read is one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryCounts {
    /// Footers, roots and heads of segments: what opening takes.
    pub opening_reads: u64,
    /// Regions of auxiliary tables.
    pub auxiliary_reads: u64,
    /// Ranks they named.
    pub ranks_named: u64,
    /// Regions of filters.
    pub filter_reads: u64,
    /// Blocks, or neighbouring blocks at once.
    pub block_reads: u64,
    /// Of these, reads that a filter's false positive caused.
    pub false_positives: u64,
    /// Values in writers' logs.
    pub value_reads: u64,
    /// Bytes of all of these.
    pub bytes: u64,
    /// Files opened.
    pub files_opened: u64,
    /// Calls that asked for a file's size or time.
    pub files_inspected: u64,
}

/// The same, counted by several threads.
#[derive(Debug, Default)]
pub struct Counters {
    pub opening_reads: AtomicU64,
    pub auxiliary_reads: AtomicU64,
    pub ranks_named: AtomicU64,
    pub filter_reads: AtomicU64,
    pub block_reads: AtomicU64,
    pub false_positives: AtomicU64,
    pub value_reads: AtomicU64,
    pub bytes: AtomicU64,
}

/// Adds to a counter.
pub fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Counters {
    /// Their values now; files are counted elsewhere.
    pub fn counts(&self) -> QueryCounts {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        QueryCounts {
            opening_reads: value(&self.opening_reads),
            auxiliary_reads: value(&self.auxiliary_reads),
            ranks_named: value(&self.ranks_named),
            filter_reads: value(&self.filter_reads),
            block_reads: value(&self.block_reads),
            false_positives: value(&self.false_positives),
            value_reads: value(&self.value_reads),
            bytes: value(&self.bytes),
            ..QueryCounts::default()
        }
    }
}
