//! Counts of the reads of queries.

/// Counts of the reads of queries; each read is one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryCounts {
    /// Reads that open logs: footers, roots and heads of segments.
    pub opening_reads: u64,
    /// Reads of regions of auxiliary tables.
    pub auxiliary_reads: u64,
    /// Ranks that auxiliary tables named.
    pub ranks_named: u64,
    /// Reads of regions of filters.
    pub filter_reads: u64,
    /// Reads of blocks; neighbouring blocks are one read.
    pub block_reads: u64,
    /// Block reads caused by false positives of filters.
    pub false_positives: u64,
    /// Reads of values in writers' logs.
    pub value_reads: u64,
    /// Bytes of all reads.
    pub bytes: u64,
    /// Files opened.
    pub files_opened: u64,
    /// Calls for a file's size or time.
    pub files_inspected: u64,
}
