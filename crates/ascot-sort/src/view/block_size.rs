//! The block size of a view's runs.

use ascot_record::keys::ByteRangeKey;

use crate::api::{Keys, SortRequest};

/// Minimum and usual block size, bytes. A reader that seeks reads at least one block of each run.
const BLOCK_BYTES: usize = 64 << 10;
/// Maximum number of blocks in a view, roughly: each takes memory while the view is open.
const MAX_BLOCKS: u64 = 1 << 18;
/// Minimum number of records per block, if memory allows: a record larger than a block is assembled in a
/// buffer of its own.
const BLOCK_RECORDS: usize = 4;
/// Minimum ratio of a block's bytes to the bytes of its fence key.
const BLOCK_FIRSTS: usize = 64;

/// Block size in bytes, if memory allows, for records of `mean_bytes` with fence keys of `kept_bytes`.
pub fn block_bytes(mean_bytes: f64, kept_bytes: f64, data_bytes: u64) -> usize {
    let for_records = (mean_bytes as usize).saturating_mul(BLOCK_RECORDS);
    let for_firsts = (kept_bytes as usize).saturating_mul(BLOCK_FIRSTS);
    let wanted = for_records.max(for_firsts).max((data_bytes / MAX_BLOCKS) as usize);
    wanted.clamp(BLOCK_BYTES, 1 << 30).next_power_of_two()
}

/// Bytes that a view keeps of a first record: its key, if that is known to be shorter.
pub fn kept_bytes(request: &SortRequest, mean_bytes: f64) -> f64 {
    match &request.keys {
        Keys::Ranges(ranges) if !ranges.is_empty() => {
            let bytes = |range: &ByteRangeKey| range.end.saturating_sub(range.start) as f64;
            ranges.iter().map(bytes).sum::<f64>().min(mean_bytes)
        }
        _ => mean_bytes,
    }
}
