//! What a sort takes of the disk at once, as an upper bound that is close.
//!
//! ```text
//!   forming, splitting   |== spills, blocks padded to pages ==|..|          ..  laid out ahead
//!   merging              |== output ==|~~|== spills left =====|..|          ~~  written twice: the step
//!   sorting parts        |== output ==|~ part ~|== parts left =|..|
//! ```
//!
//! What the output has safely on disk is freed from the spills after every step, or part, so that both together
//! take the records once, and once more the step; a merge of some runs into one frees what it takes likewise. To
//! that come the padding of blocks, their indexes, the manifest, and what is laid out ahead of writing.

use serde::{Deserialize, Serialize};

/// Pages that blocks of spills are padded to, bytes.
const PAGE_BYTES: u64 = 4096;
/// What the index of a spill has for each block, and at its end, bytes.
const ENTRY_BYTES: u64 = 16;
const FOOTER_BYTES: u64 = 64;
/// What the manifest has of each block, in figures, bytes; and of a block of a run that is half written.
const MANIFEST_ENTRY_BYTES: u64 = 22;
const OPEN_ENTRY_BYTES: u64 = 60;
/// Room kept for the next manifest beside the one there is, at least, bytes.
const MANIFEST_ROOM_BYTES: u64 = 256 << 10;
/// A merge thread's last block of a task is half empty on average; the bound is a fourth more of a page.
const TASK_BYTES: u64 = PAGE_BYTES / 4 * 3;
/// Bytes of a run merged as one task, when it is formed.
const TASK_RUN_BYTES: u64 = 8 << 20;
/// The same of a merge of a few runs, which goes on block by block where one of them holds the others up.
const TASK_MERGED_BYTES: u64 = 48 << 10;
/// What is beside a part that memory sorts while a larger one is sorted by runs: one in so many.
const BESIDE_PART_SHARE: u64 = 8;
/// What a view knows of a block of its runs beside the first key, bytes.
const KNOWN_OF_BLOCK_BYTES: u64 = 24;
/// Blocks of a run of a view that are not full.
const PART_BLOCKS: u64 = 4;
/// Least bytes between two times that what was consumed is freed, however little room there is.
pub const LEAST_STEP_BYTES: u64 = 4 << 20;

/// What a job takes of the disk beside its records.
#[derive(Clone, Copy, Debug)]
pub struct DiskUse {
    /// Bytes laid out ahead of writing, by the bytes a job expects to store.
    pub ahead_bytes: fn(u64) -> u64,
    /// Bytes of output between two times that what was consumed is freed, by the bytes merged and the memory.
    pub step_bytes: fn(u64, u64) -> u64,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Bytes a spill takes for each byte of records in it.
    pub packing: f64,
    /// Files that the output is; 0: a pipe or a device.
    pub output_files: u64,
    /// Bytes of its header.
    pub header_bytes: u64,
    /// Tasks that a run is merged by at least, when it is formed.
    pub tasks: u64,
    /// Bytes of a block.
    pub block: u64,
}

/// What a way to sort takes of the disk at once, bytes; where spills and output are on two volumes, each by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskNeed {
    /// Spills and output together.
    pub peak_bytes: u64,
    /// Spills alone.
    pub spills_bytes: u64,
    /// The output alone.
    pub output_bytes: u64,
    /// Both together where there is so little room that consumed spills are freed as often as possible.
    pub least_bytes: u64,
    /// Bytes that are there twice at most, as spill and as output.
    pub step_bytes: u64,
}

/// Spills that are merged into an output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MergeUse {
    /// Bytes of records in spills.
    pub spilled: u64,
    /// Bytes of records in the output.
    pub kept: u64,
    /// Sorted runs.
    pub runs: u64,
    /// Runs merged at once.
    pub at_once: u64,
    /// Bytes of the largest of those that are merged before the last pass; 0: none are.
    pub largest_group: u64,
}

impl DiskUse {
    /// An output that nothing is spilled for.
    pub(crate) fn output_alone(&self, kept: u64) -> DiskNeed {
        let bytes = self.output_bytes(kept);
        DiskNeed { peak_bytes: bytes, output_bytes: bytes, least_bytes: bytes, ..DiskNeed::default() }
    }

    fn step(&self, merged: u64) -> u64 {
        (self.step_bytes)(merged, self.memory_bytes)
    }

    fn output_bytes(&self, kept: u64) -> u64 {
        let kept = if self.output_files > 0 { kept } else { 0 };
        kept.saturating_add(self.output_files.saturating_mul(self.header_bytes + PAGE_BYTES))
    }

    /// Bytes that spills take, `files` of them, each written by so many tasks.
    fn spill_bytes(&self, records: u64, files: u64, tasks: u64) -> u64 {
        let packed = (records as f64 * self.packing.max(1.0)) as u64;
        let blocks = records.div_ceil(self.block.max(1)) + files;
        let of_files = tasks * TASK_BYTES + FOOTER_BYTES + PAGE_BYTES;
        packed.saturating_add(blocks * ENTRY_BYTES).saturating_add(files.saturating_mul(of_files))
    }

    /// The manifest and the room kept for the next one.
    fn manifest_bytes(&self, records: u64, of_open: u64) -> u64 {
        let blocks = |bytes: u64| bytes / self.block.max(1);
        let text = blocks(records) * MANIFEST_ENTRY_BYTES + blocks(of_open) * OPEN_ENTRY_BYTES;
        2 * MANIFEST_ROOM_BYTES.max(2 * text)
    }

    /// What runs take at most that are merged, and what comes of that.
    pub(crate) fn merging(&self, of: &MergeUse) -> DiskNeed {
        let MergeUse { spilled, kept, runs, at_once, largest_group } = *of;
        let each = spilled / runs.max(1);
        let tasks = self.tasks.max(each / TASK_RUN_BYTES + 1);
        let merged_tasks = if largest_group == 0 { 0 } else { spilled / TASK_MERGED_BYTES };
        let spills = self.spill_bytes(spilled, runs, tasks) + merged_tasks * TASK_BYTES;
        let output = self.output_bytes(kept);
        // Of each run the block in which the merge stands is still there: on average half of it is out.
        let torn = (at_once * self.block / 4 * 3).min(kept);
        let group_step = if largest_group == 0 { 0 } else { self.step(largest_group) + torn };
        let frees = self.output_files > 0 && spilled > 0;
        let last_step = if frees { self.step(spilled).min(kept) + torn } else { 0 };
        let step = last_step.max(group_step.min(largest_group));
        let stored = spills.max(output) + self.manifest_bytes(spilled, largest_group);
        self.need(stored, step, spills, output)
    }

    /// What parts take at most that are sorted one by one: of one as large as memory sorts, or of as much of a larger
    /// one, there are two.
    pub(crate) fn parts(&self, records: u64, parts: u64, part_bytes: u64) -> DiskNeed {
        let spills = self.spill_bytes(records, parts, 1);
        let output = self.output_bytes(records);
        let stored = spills.max(output) + self.manifest_bytes(records, 0);
        let step = part_bytes.min(records) + part_bytes.min(records) / BESIDE_PART_SHARE + self.block;
        let need = self.need(stored, step, spills, output);
        // A part is the least there is to free.
        DiskNeed { least_bytes: need.peak_bytes, ..need }
    }

    fn need(&self, stored: u64, step_bytes: u64, spills: u64, output: u64) -> DiskNeed {
        let ahead = (self.ahead_bytes)(stored);
        let least = stored + step_bytes.min(LEAST_STEP_BYTES);
        DiskNeed {
            peak_bytes: stored.saturating_add(step_bytes).saturating_add(ahead),
            spills_bytes: if spills == 0 { 0 } else { spills + ahead },
            output_bytes: output,
            least_bytes: least,
            step_bytes,
        }
    }
}

/// What is beside the runs of a view at most: what it knows of their blocks, of whose first keys it keeps `kept` bytes
/// each, and the manifest with the room kept for the next one.
#[must_use]
pub fn beside_view(records: u64, runs: u64, block: u64, kept: u64) -> u64 {
    let blocks = records / block.max(1) + PART_BLOCKS * runs;
    let known = blocks * (KNOWN_OF_BLOCK_BYTES + kept) + runs * 2 * PAGE_BYTES;
    known + 2 * MANIFEST_ROOM_BYTES.max(2 * blocks * MANIFEST_ENTRY_BYTES)
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
    fn records_are_there_once_and_a_step_twice() {
        let merge = MergeUse { spilled: 960 * MIB, kept: 960 * MIB, runs: 8, at_once: 8, largest_group: 0 };
        let need = disk().merging(&merge);
        let beside = need.peak_bytes - 960 * MIB;
        assert!((41 * MIB..46 * MIB).contains(&beside), "{need:?}");
        assert!(need.least_bytes < need.peak_bytes - 30 * MIB, "{need:?}");
        let piped = DiskUse { output_files: 0, ..disk() }.merging(&merge);
        assert!(piped.peak_bytes < 966 * MIB && piped.output_bytes == 0, "{piped:?}");
    }

    #[test]
    fn what_is_not_wanted_takes_no_room() {
        let merge = MergeUse { spilled: 96 * MIB, kept: MIB, runs: 8, at_once: 8, largest_group: 0 };
        assert!(disk().merging(&merge).peak_bytes < 101 * MIB);
        assert_eq!(disk().output_alone(MIB).peak_bytes, MIB + PAGE_BYTES);
    }

    #[test]
    fn a_part_is_there_twice() {
        let need = disk().parts(100 * MIB, 20, 6 * MIB);
        assert!((107 * MIB..109 * MIB).contains(&need.peak_bytes), "{need:?}");
        assert_eq!(need.least_bytes, need.peak_bytes);
    }
}
