//! Counts of the reads of queries.

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
