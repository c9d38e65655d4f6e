//! The peak disk use of a sort: a close upper bound.
//!
//! ```text
//!   forming, splitting   |== spills, blocks padded to pages ==|..|          ..  allocated ahead
//!   merging              |== output ==|~~|== spills left =====|..|          ~~  on disk twice: the step
//!   sorting parts        |== output ==|~ part ~|== parts left =|..|
//! ```
//!
//! After every step or part, the records that are durable in the output are freed from the spills. So spills and
//! output together hold the records once, and those of a step twice; a merge of some runs into one frees its inputs in
//! the same manner. The padding of blocks, their indexes, the manifest and the space allocated ahead of writing come
//! on top.

use serde::{Deserialize, Serialize};

/// Pages that blocks of spills are padded to, bytes.
const PAGE_BYTES: u64 = 4096;
/// Bytes of an entry in the index of a spill.
const ENTRY_BYTES: u64 = 16;
/// Bytes at the end of a spill.
const FOOTER_BYTES: u64 = 64;
/// Bytes in the manifest for each block.
const MANIFEST_ENTRY_BYTES: u64 = 22;
/// Bytes in the manifest for each block of a run that is not complete.
const OPEN_ENTRY_BYTES: u64 = 60;
/// Minimum space reserved for the next manifest in addition to the present one, bytes.
const MANIFEST_RESERVE_BYTES: u64 = 256 << 10;
/// Bytes lost in the last block of a task. It is half empty on average; the bound is a fourth of a page more.
const TASK_BYTES: u64 = PAGE_BYTES / 4 * 3;
/// Bytes that one task merges when a run is formed.
const TASK_RUN_BYTES: u64 = 8 << 20;
/// Bytes that one task merges when runs are merged: block by block, if one run delays the others.
const TASK_MERGED_BYTES: u64 = 48 << 10;
/// While a part larger than memory is sorted by runs, additional spills take up to 1 / 8 of it.
const BESIDE_PART_SHARE: u64 = 8;
/// Bytes that a view stores for each block of its runs, in addition to the first key.
const KNOWN_OF_BLOCK_BYTES: u64 = 24;
/// Blocks of a view's run that are not full.
const PARTIAL_BLOCKS: u64 = 4;
/// The smallest step, bytes: consumed spills are not freed more often, however little space is free.
pub const MIN_STEP_BYTES: u64 = 4 << 20;

/// Disk use of a job in addition to its records.
#[derive(Clone, Copy, Debug)]
pub struct DiskUse {
    /// Bytes allocated ahead of writing, from the bytes that a job expects to store.
    pub ahead_bytes: fn(u64) -> u64,
    /// Bytes of a step, from the bytes merged and the memory.
    pub step_bytes: fn(u64, u64) -> u64,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Bytes of a spill for each byte of records in it.
    pub packing: f64,
    /// Number of output files; 0: a pipe or a device.
    pub output_files: u64,
    /// Bytes of the header.
    pub header_bytes: u64,
    /// Minimum number of tasks that form a run.
    pub tasks: u64,
    /// Bytes of a block.
    pub block: u64,
}

/// Peak disk use of a method, bytes; also for each volume, if spills and output are on two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskNeed {
    /// Spills and output together.
    pub peak_bytes: u64,
    /// Spills alone.
    pub spills_bytes: u64,
    /// The output alone.
    pub output_bytes: u64,
    /// Spills and output together, if space is so short that consumed spills are freed as often as possible.
    pub least_bytes: u64,
    /// Maximum bytes that are on disk twice, in a spill and in the output.
    pub step_bytes: u64,
}

/// Inverse of the share of the bytes held in memory that a step has at least.
const HELD_SHARE: u64 = 2;

/// The step of a merge beside `held` bytes in memory, instead of `step` bytes. A resumed job reads and sorts those
/// again anyway, so it gains little from shorter steps.
#[must_use]
pub fn step_beside(step: u64, held: u64) -> u64 {
    step.max(held / HELD_SHARE)
}

/// Spills that are merged into an output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MergeUse {
    /// Bytes of records in spills.
    pub spilled: u64,
    /// Bytes of records in memory that are merged with them.
    pub held: u64,
    /// Bytes of records in the output.
    pub kept: u64,
    /// Sorted runs.
    pub runs: u64,
    /// Runs merged at once.
    pub at_once: u64,
    /// Bytes of the largest merge before the last pass; 0 without one.
    pub largest_group: u64,
}

impl DiskUse {
    /// An output without spills.
    pub(crate) fn output_alone(&self, kept: u64) -> DiskNeed {
        let bytes = self.output_bytes(kept);
        // One file gets what is allocated ahead of it; of several, some end before.
        let ahead = if self.output_files > 1 { (self.ahead_bytes)(kept) } else { 0 };
        let peak_bytes = bytes.saturating_add(ahead);
        DiskNeed { peak_bytes, output_bytes: bytes, least_bytes: bytes, ..DiskNeed::default() }
    }

    fn step(&self, merged: u64) -> u64 {
        (self.step_bytes)(merged, self.memory_bytes)
    }

    /// Checkpoints of a merge of `merged` bytes, of which memory holds `held`: one after each step, and one at the end.
    pub(crate) fn merge_checkpoints(&self, merged: u64, held: u64) -> u64 {
        merged / step_beside(self.step(merged), held).max(MIN_STEP_BYTES) + 1
    }

    fn output_bytes(&self, kept: u64) -> u64 {
        let kept = if self.output_files > 0 { kept } else { 0 };
        // Each file ends with a page that is not full, and may have a page of the file system's own.
        kept.saturating_add(self.output_files.saturating_mul(self.header_bytes + 2 * PAGE_BYTES))
    }

    /// Bytes of `files` spills, each written by `tasks` tasks.
    fn spill_bytes(&self, records: u64, files: u64, tasks: u64) -> u64 {
        let packed = (records as f64 * self.packing.max(1.0)) as u64;
        let blocks = records.div_ceil(self.block.max(1)) + files;
        let of_files = tasks * TASK_BYTES + FOOTER_BYTES + PAGE_BYTES;
        packed.saturating_add(blocks * ENTRY_BYTES).saturating_add(files.saturating_mul(of_files))
    }

    /// Bytes of the manifest and the space reserved for the next one.
    fn manifest_bytes(&self, records: u64, of_open: u64) -> u64 {
        let blocks = |bytes: u64| bytes / self.block.max(1);
        let text = blocks(records) * MANIFEST_ENTRY_BYTES + blocks(of_open) * OPEN_ENTRY_BYTES;
        2 * MANIFEST_RESERVE_BYTES.max(2 * text)
    }

    /// The peak of runs that are merged and of their output.
    pub(crate) fn merging(&self, merge: &MergeUse) -> DiskNeed {
        let MergeUse { spilled, held, kept, runs, at_once, largest_group } = *merge;
        let each = spilled / runs.max(1);
        let tasks = self.tasks.max(each / TASK_RUN_BYTES + 1);
        let merged_tasks = if largest_group == 0 { 0 } else { spilled / TASK_MERGED_BYTES };
        let spills = self.spill_bytes(spilled, runs, tasks) + merged_tasks * TASK_BYTES;
        let output = self.output_bytes(kept);
        // The block of each run that is being merged cannot be freed; on average half of it is in the output.
        let torn = (at_once * self.block / 4 * 3).min(kept);
        let group_step = if largest_group == 0 { 0 } else { self.step(largest_group) + torn };
        let frees = self.output_files > 0 && spilled > 0;
        // What is held in memory is in the output alone.
        let merged = spilled + held;
        let of_spills = |step: u64| (step as f64 * spilled as f64 / merged as f64).ceil() as u64;
        let last_step =
            if frees { of_spills(step_beside(self.step(merged), held)).min(kept) + torn } else { 0 };
        let step = last_step.max(group_step.min(largest_group));
        let stored = spills.max(output) + self.manifest_bytes(spilled, largest_group);
        self.need(stored, step, spills, output)
    }

    /// The peak of parts that are sorted one by one: one part is on disk twice, or as much of a larger part as memory
    /// sorts. What is `held` in memory is in the output alone, or in the spills of a larger part.
    pub(crate) fn parts(&self, spilled: u64, held: u64, parts: u64, part_bytes: u64) -> DiskNeed {
        let spills = self.spill_bytes(spilled, parts, 1);
        let output = self.output_bytes(spilled + held);
        let stored = spills.max(output) + self.manifest_bytes(spilled, 0);
        let step = part_bytes.min(spilled) + part_bytes.min(spilled) / BESIDE_PART_SHARE + self.block;
        let need = self.need(stored, step, spills, output);
        // A part is freed as a whole.
        DiskNeed { least_bytes: need.peak_bytes, ..need }
    }

    fn need(&self, stored: u64, step_bytes: u64, spills: u64, output: u64) -> DiskNeed {
        let ahead = (self.ahead_bytes)(stored);
        let least = stored + step_bytes.min(MIN_STEP_BYTES);
        DiskNeed {
            peak_bytes: stored.saturating_add(step_bytes).saturating_add(ahead),
            spills_bytes: if spills == 0 { 0 } else { spills + ahead },
            output_bytes: output,
            least_bytes: least,
            step_bytes,
        }
    }
}

/// An upper bound of the bytes that a view stores in addition to its runs: an entry for each block with the first
/// `kept` bytes of its first key, and the manifest with the space reserved for the next one.
#[must_use]
pub fn beside_view(records: u64, runs: u64, block: u64, kept: u64) -> u64 {
    let blocks = records / block.max(1) + PARTIAL_BLOCKS * runs;
    // Two files for each run; the lock, the header and both manifests: each takes whole pages.
    let pages = 2 * runs + 4;
    let known = blocks * (KNOWN_OF_BLOCK_BYTES + kept) + pages * PAGE_BYTES;
    known + 2 * MANIFEST_RESERVE_BYTES.max(2 * blocks * MANIFEST_ENTRY_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn disk() -> DiskUse {
        DiskUse {
            ahead_bytes: |_| MIB,
            step_bytes: |bytes, _| (bytes / 24).max(4 * MIB),
            memory_bytes: 64 * MIB,
            packing: 1.0,
            output_files: 1,
            header_bytes: 0,
            tasks: 4,
            block: 32 << 10,
        }
    }

    #[test]
    fn records_are_stored_once_and_a_step_twice() {
        let merge =
            MergeUse { spilled: 960 * MIB, held: 0, kept: 960 * MIB, runs: 8, at_once: 8, largest_group: 0 };
        let need = disk().merging(&merge);
        let beside = need.peak_bytes - 960 * MIB;
        assert!((41 * MIB..46 * MIB).contains(&beside), "{need:?}");
        assert!(need.least_bytes < need.peak_bytes - 30 * MIB, "{need:?}");
        let piped = DiskUse { output_files: 0, ..disk() }.merging(&merge);
        assert!(piped.peak_bytes < 966 * MIB && piped.output_bytes == 0, "{piped:?}");
    }

    #[test]
    fn unwanted_records_take_no_space() {
        let merge = MergeUse { spilled: 96 * MIB, held: 0, kept: MIB, runs: 8, at_once: 8, largest_group: 0 };
        assert!(disk().merging(&merge).peak_bytes < 101 * MIB);
        assert_eq!(disk().output_alone(MIB).peak_bytes, MIB + 2 * PAGE_BYTES);
    }

    #[test]
    fn a_part_is_stored_twice() {
        let need = disk().parts(100 * MIB, 0, 20, 6 * MIB);
        assert!((107 * MIB..109 * MIB).contains(&need.peak_bytes), "{need:?}");
        assert_eq!(need.least_bytes, need.peak_bytes);
    }
}
