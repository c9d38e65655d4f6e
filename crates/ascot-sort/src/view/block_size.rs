//! How large the blocks of a view's runs are.

use ascot_record::keys::ByteRangeKey;

use crate::api::{Keys, SortRequest};

/// Least and usual block of a view's runs: a reader that seeks reads one of each run, at least.
const BLOCK_BYTES: usize = 64 << 10;
/// Blocks of a view at most, about: each takes memory while the view is open.
const MOST_BLOCKS: u64 = 1 << 18;
/// Records of a block at least, where memory allows: those of more than a block are put together in
/// memory of their own.
const BLOCK_RECORDS: usize = 4;
/// Bytes of a block, at least, for each that the view keeps of it.
const BLOCK_FIRSTS: usize = 64;

/// Bytes of a block, where memory allows: of records of so many bytes, of which so many are kept.
pub fn block_bytes(mean_bytes: f64, kept_bytes: f64, data_bytes: u64) -> usize {
    let for_records = (mean_bytes as usize).saturating_mul(BLOCK_RECORDS);
    let for_firsts = (kept_bytes as usize).saturating_mul(BLOCK_FIRSTS);
    let wanted = for_records.max(for_firsts).max((data_bytes / MOST_BLOCKS) as usize);
    wanted.clamp(BLOCK_BYTES, 1 << 30).next_power_of_two()
}

/// Bytes that a view keeps of a first record: of its key, where that is known to be shorter.
pub fn kept_bytes(request: &SortRequest, mean_bytes: f64) -> f64 {
    match &request.keys {
        Keys::Ranges(ranges) if !ranges.is_empty() => {
            let bytes = |range: &ByteRangeKey| range.end.saturating_sub(range.start) as f64;
            ranges.iter().map(bytes).sum::<f64>().min(mean_bytes)
        }
        _ => mean_bytes,
    }
}
