//! The shape of a split: its parts, and the numbers of files that it may write at once.

/// Maximum number of parts of a distribution in several splits: a part has a number of 16 bits.
pub const MAX_PARTS: u64 = 1 << 15;

/// The split of a job: its parts, and the files that it may write at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitShape {
    /// Number of parts.
    pub parts: u64,
    /// Maximum number of intermediate files written at once.
    pub max_intermediates: u64,
    /// Maximum number of parts written at once.
    pub max_parts: u64,
    /// Bytes of the largest intermediate file, as a share of the mean of its pass; infinite if one may have all
    /// records.
    pub unevenness: f64,
    /// Whether parts are ranges of keys that a sample bounds.
    pub sampled: bool,
    /// Whether a part can be any range of bytes: parts are written one after another, in one pass.
    pub in_turn: bool,
    /// Whether lengths of records vary.
    pub varying: bool,
}

/// The work of a split into `parts` of records whose lengths vary, over that of the distribution that measures its
/// speed. Processor seconds of CSV, where the distribution has 1: 1.16 into 2 parts, 1.22 into 8, 1.35 into 64.
pub(super) fn varying_work(parts: u64) -> f64 {
    1.12 + 0.038 * (parts.max(1) as f64).log2()
}

/// Fan-outs as a product.
pub(super) fn in_words(factors: &[u64]) -> String {
    factors.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ")
}
