//! How often a job stores its state, so that it goes on after a kill (`ascot sort --resume`).
//!
//! A checkpoint syncs what is written, stores the manifest and frees what is consumed. A job that is killed once and
//! resumed moves at most 1.1 times the bytes of an undisturbed job, and the size of the memory: the intervals here
//! follow from this limit. Run formation stores the state after every run buffer, which is at most half of the memory.
//! On a volume that wants long runs it is nearly all of the memory, and up to twice the size of the memory is moved
//! again: a run buffer is read, and written, once more.

use crate::disk_use::MIN_STEP_BYTES;

/// Bytes of output between two checkpoints of a merge of `total` bytes within `memory`. Syncing this often costs
/// little, and little is merged twice after a kill. More memory merges more at once, and each checkpoint that cuts a
/// batch short makes the device wait once more.
pub fn merge_checkpoint_bytes(total: u64, memory: u64) -> u64 {
    const SHARE: u64 = 24;
    const SHARE_OF_SMALL: u64 = 8;
    const BATCH_BYTES: u64 = 64 << 20;
    let batch = memory.max(BATCH_BYTES);
    (total / SHARE).max((total / SHARE_OF_SMALL).min(batch)).max(MIN_STEP_BYTES)
}

/// Bytes of input between two checkpoints of a split of `total` bytes within `memory`. A resumed job moves again at
/// most twice the bytes that the killed job read and wrote since its last checkpoint: less than a twelfth of all bytes
/// that a job moves, or than a run buffer.
pub fn split_checkpoint_bytes(total: u64, memory: u64) -> u64 {
    const CHECKPOINTS: u64 = 12;
    const MAX_STEP_BYTES: u64 = 64 << 20;
    (total / CHECKPOINTS).max((memory / 2).min(MAX_STEP_BYTES))
}
