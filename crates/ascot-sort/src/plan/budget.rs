//! Divides the memory of a job. No other file does.
//!
//! ```text
//!   memory  = blocks of the merging threads + blocks of the output + codecs of spills + scratch of the sorting threads
//!           + chunks of records (form)  or  blocks of the inputs (merge)  or  blocks of the parts
//! ```
//!
//! The process itself (code, stacks, small allocations) needs a constant amount beside the cap.

use ascot_io::{PAGE_BYTES, codec_bytes};
use ascot_model::codec::Codec;
use ascot_model::volume::VolumeProfile;

use crate::api::{Result, SortError, SortRequest, Volumes};
pub use crate::resources::control_group::MIN_MEMORY_BYTES;
use crate::resources::{CHUNKS_READ, GroupMemory, descriptors};

/// Inverse of the share of the blocks of parts in the memory of streams.
const PARTS_SHARE: usize = 2;
/// Inverse of the share of the inputs in the memory of a split in long runs, and their bytes at least: the threads that
/// group records by part need a dozen chunks, and space for a long record if lengths vary.
const INPUT_SHARE: usize = 16;
const MIN_INPUT_BYTES: usize = 768 << 10;
const MIN_VARYING_INPUT_BYTES: usize = 960 << 10;
/// Longest record of a fixed length of which any chunk has a few.
const SHORT_RECORD_BYTES: usize = 16 << 10;
/// Smallest block: smaller requests cost more than they move.
pub const BLOCK_BYTES_MIN: usize = 32 << 10;
/// Largest block: larger ones are no faster on a device with a queue.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;
/// Blocks of this size are nearly as fast as larger ones: smaller memories have blocks of it as long as the number of
/// blocks allows. Measured within 24 and 57 MiB, sorts with blocks of a quarter of it took 1.3 to 1.7 times as long.
const GOOD_BLOCK_BYTES: usize = 256 << 10;
/// Number of blocks in memory: at least the first where reading follows the need, and the second where files are read
/// in long runs, whose schedule shares out single blocks.
const MIN_BLOCKS: usize = 256;
const LONG_RUN_BLOCKS: usize = 512;
/// Inverse of the share of memory that the blocks of merging threads and output may take.
const COMMON_SHARE: usize = 6;
/// Blocks of one merging thread, and of the output.
const EMIT_BLOCKS: usize = 6;
const OUTPUT_BLOCKS: usize = 8;
/// Memory for the facts about each block of a run while it is merged, bytes.
pub const BLOCK_FACTS_BYTES: usize = 64;
/// Inverse of the share of memory that the facts about the blocks of all runs may take before blocks are larger.
const FACTS_SHARE: usize = 4;
/// Largest chunk that is sorted and gathered within the cache. Chunks are larger only where memory would hold very
/// many.
const CACHED_CHUNK_BYTES: usize = 4 << 20;
/// Largest chunk. A merge of 1,900 sorted chunks takes three times as long as one of 250: its sources no longer fit the
/// cache. 6.4 GB of rows sorted in memory in 0.87 of the time that chunks of 4 MiB took, 4 GB of u64 in 0.85.
const CHUNK_BYTES_MAX: usize = 32 << 20;
/// Inverse of the share of memory that larger chunks may keep from records that are held; and the least number of them
/// for each thread.
const UNSORTED_SHARE: usize = 32;
const CHUNKS_PER_THREAD: usize = 8;
/// Smallest chunk.
const CHUNK_BYTES_MIN: usize = 128 << 10;
/// Bytes/s that a volume writes faster than a thread compresses: there spills are not compressed unless on request.
const CODEC_BYTES_PER_S: f64 = 1e9;
/// Number of chunks, if memory allows.
const CHUNKS: usize = 64;

/// How memory is divided, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The cap.
    pub memory: usize,
    /// Compute threads of each kind.
    pub threads: usize,
    /// Bytes of a block of merged records, in runs and for the output.
    pub block: usize,
    /// Blocks of one merging thread.
    pub emit_blocks: usize,
    /// Blocks of the output.
    pub output_blocks: usize,
    /// Bytes for compressing and expanding spills.
    pub codecs: usize,
    /// Bytes of the largest chunk that is sorted at once.
    pub chunk_max: usize,
    /// Whether files are read and written in long runs.
    pub long_runs: bool,
    /// Whether a run takes all chunks of a pass that sorts.
    pub whole_runs: bool,
}

/// The chunks of a pass that sorts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkShare {
    /// Bytes of a chunk.
    pub bytes: usize,
    /// Number of chunks.
    pub count: usize,
    /// Maximum number of chunks that are being read or sorted.
    pub unsorted: usize,
    /// Whether a run buffer takes all other chunks.
    pub whole_runs: bool,
}

impl ChunkShare {
    /// Chunks of one run buffer: all that can be sorted at once, or half of them, so that the next run buffer is read
    /// while this one is written.
    pub fn run_buffer(&self) -> usize {
        if self.whole_runs { self.count.saturating_sub(self.unsorted).max(1) } else { self.part_buffer() }
    }

    /// Chunks of a part that is sorted while the part before it is written: half of those that can be sorted at once.
    pub fn part_buffer(&self) -> usize {
        (self.count.saturating_sub(self.unsorted) / 2).max(1)
    }

    /// Whether there are enough chunks to sort parts beside held records.
    pub fn can_sort(&self) -> bool {
        self.count >= 2 * self.unsorted
    }
}

impl Budget {
    /// Divides `memory` for a job on about `data_bytes` of records, if that is known. `long_runs`: its volume wants
    /// long runs.
    pub fn new(memory: u64, threads: usize, data_bytes: Option<u64>, long_runs: bool) -> Result<Budget> {
        if memory < MIN_MEMORY_BYTES {
            return Err(too_little(memory, MIN_MEMORY_BYTES));
        }
        let memory = usize::try_from(memory).unwrap_or(usize::MAX);
        let threads = threads.clamp(1, (memory / (4 << 20)).max(1));
        let common = threads * EMIT_BLOCKS + OUTPUT_BLOCKS;
        let blocks = if long_runs { LONG_RUN_BLOCKS } else { (COMMON_SHARE * common).max(MIN_BLOCKS) };
        let good = (memory / blocks).min(GOOD_BLOCK_BYTES);
        let block_max = (memory / LONG_RUN_BLOCKS).max(good).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
        // Smaller blocks let many runs be merged at once.
        let runs = data_bytes.map_or(1, |bytes| bytes as usize / (memory * 2 / 5) + 1);
        let fair = memory / (4 * runs);
        let block = 1 << block_max.min(fair.max(BLOCK_BYTES_MIN)).max(1).ilog2();
        Ok(Budget {
            memory,
            threads,
            block,
            emit_blocks: EMIT_BLOCKS,
            output_blocks: OUTPUT_BLOCKS,
            codecs: 0,
            chunk_max: chunk_max(memory, threads, data_bytes),
            long_runs,
            whole_runs: false,
        })
    }

    /// With runs as long as memory allows, if reading and writing alternate in the first pass: then no second run
    /// buffer is read while one is written. An input that is not a file (`from_files`) or has a volume of its own is
    /// read meanwhile, so its run buffers have half of the memory.
    #[must_use]
    pub fn with_run_buffers(self, volumes: &Volumes, from_files: bool) -> Budget {
        let whole_runs = self.long_runs && from_files && volumes.input_volume.is_none();
        Budget { whole_runs, ..self }
    }

    /// With blocks for a sort of `data_bytes`. The last merge has the facts about the blocks of all runs in memory:
    /// where many small blocks would leave little beside them, blocks are larger. Sorts of 3 GB within 16 MiB take two
    /// thirds of the time with blocks of 64 KiB instead of 32, although they merge more.
    #[must_use]
    pub fn with_blocks_for(self, data_bytes: u64) -> Budget {
        let facts_bytes = self.memory / FACTS_SHARE;
        let blocks = (facts_bytes / BLOCK_FACTS_BYTES).max(1);
        let wanted = (data_bytes as usize / blocks).next_power_of_two();
        let common = self.threads * self.emit_blocks + self.output_blocks;
        let most = (self.memory / (COMMON_SHARE * common)).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
        Budget { block: wanted.min(1 << most.ilog2()).max(self.block), ..self }
    }

    /// With memory for the codecs that the spills of a request may need.
    #[must_use]
    pub fn with_codecs(self, request: &SortRequest) -> Budget {
        let may_pay = |volume: &VolumeProfile| {
            !volume.is_assumed_flash() && volume.write_bytes_per_s < CODEC_BYTES_PER_S
        };
        let codec = match request.compression.fixed() {
            Some(codec) => codec,
            None if request.volumes.volume.as_ref().is_some_and(may_pay) => Codec::Zstd,
            None => Codec::None,
        };
        Budget { codecs: codec_bytes(codec, self.block), ..self }
    }

    /// Memory of merging threads, output and codecs, which every pass has.
    pub fn common(&self) -> usize {
        (self.threads * self.emit_blocks + self.output_blocks) * self.block + self.codecs
    }

    /// Chunks of a pass that sorts. `scratch_bytes`: scratch memory of a sorting thread for chunks of a size.
    pub fn chunks(&self, scratch_bytes: &dyn Fn(usize) -> usize) -> ChunkShare {
        let mut bytes = self.chunk_max;
        let unsorted = unsorted_chunks(self.threads);
        loop {
            let taken = self.common() + self.threads * scratch_bytes(bytes);
            let left = self.memory.saturating_sub(taken);
            if left / bytes >= CHUNKS.max(3 * unsorted) || bytes <= CHUNK_BYTES_MIN {
                return ChunkShare { bytes, count: left / bytes, unsorted, whole_runs: self.whole_runs };
            }
            bytes = (bytes / 2).max(CHUNK_BYTES_MIN);
        }
    }

    /// Memory left for the blocks of inputs or parts.
    pub fn streams(&self) -> usize {
        self.memory.saturating_sub(self.common())
    }

    /// Whether a distribution reserves memory for its merging threads and its output only after its split. Records have
    /// `record_bytes` bytes, if their length is fixed.
    pub fn splits_alone(&self, record_bytes: Option<usize>) -> bool {
        self.long_runs && record_bytes.is_some_and(|len| len <= SHORT_RECORD_BYTES)
    }

    /// Memory for the blocks of the parts of a split in long runs, of records of `record_bytes` bytes if their length
    /// is fixed. A split has no merging threads and no other output. Where lengths vary, their memory is left to long
    /// records.
    pub fn split_in_long_runs(&self, record_bytes: Option<usize>) -> usize {
        match record_bytes {
            Some(len) if len <= SHORT_RECORD_BYTES => {
                beside_inputs(self.memory.saturating_sub(self.codecs), MIN_INPUT_BYTES)
            }
            _ => self.distribution_in_long_runs(),
        }
    }

    /// Memory for the blocks of the parts of a distribution in long runs that has its merging threads from the start.
    pub fn distribution_in_long_runs(&self) -> usize {
        beside_inputs(self.streams(), MIN_VARYING_INPUT_BYTES)
    }
}

/// The part of `bytes` that the inputs of a split in long runs leave, with `inputs_min` bytes for them at least.
fn beside_inputs(bytes: usize, inputs_min: usize) -> usize {
    bytes - (bytes / INPUT_SHARE).max(inputs_min).min(bytes / 4)
}

/// Chunks being read; and chunks that wait for sorting or are sorted, each with the chunk it is gathered to.
fn unsorted_chunks(threads: usize) -> usize {
    CHUNKS_READ + 2 * (threads + 2)
}

/// Bytes of the largest chunk of a job on about `data_bytes` of records, if that is known. A job that will spill gains
/// more from long runs than from few chunks in each.
fn chunk_max(memory: usize, threads: usize, data_bytes: Option<u64>) -> usize {
    let data = data_bytes.map_or(memory, |bytes| bytes as usize);
    if data > memory {
        return CACHED_CHUNK_BYTES;
    }
    let of_memory = memory / (UNSORTED_SHARE * unsorted_chunks(threads));
    let of_data = data / (CHUNKS_PER_THREAD * threads);
    1 << of_memory.min(of_data).clamp(CACHED_CHUNK_BYTES, CHUNK_BYTES_MAX).ilog2()
}

/// Maximum number of inputs merged at once.
pub fn merge_fan_in(budget: &Budget, request: &SortRequest) -> usize {
    let open = descriptors().saturating_sub(request.output.parts_held());
    (budget.streams() / (3 * budget.block)).min(open).min(request.batch_size.unwrap_or(usize::MAX)).max(2)
}

/// How a merge of inputs divides memory between blocks and records that span blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeShare {
    /// Memory of records that span blocks, bytes.
    pub long_bytes: usize,
    /// Bytes before each block of an input for the cut record at the end of the block before it. A longer one gets
    /// memory of its own.
    pub carry_bytes: usize,
    /// Bytes beside each block for the record cut by its start, where there are none before it.
    pub straddle_bytes: usize,
    /// Memory that surely suffices for a long record, in lengths of it.
    pub memory_per_length: u64,
}

/// Longest record of a fixed length that is kept beside the block by whose start it is cut.
const STRADDLE_BYTES_MAX: usize = 512;
/// Maximum number of such records in memory for each block: one with a block in memory, and one in the batch being
/// merged, whose block may be free already.
const STRADDLING: usize = 2;

/// Maximum number of long records of an input in memory: one being merged, one being read.
const LONG_RECORDS: usize = 2;

impl MergeShare {
    /// Divides `bytes` between blocks of `block` bytes of `inputs` and their long records. A merge that reads in
    /// `long_runs` takes as many switches as its blocks are few, so it leaves a tenth to long records. Without long
    /// runs more blocks do not help: a merge of 16 files was 25 percent slower with all memory, which it must touch.
    /// Records of a fixed length that fit in the carry need only a block, for an error about the last one.
    pub fn new(
        bytes: usize,
        block: usize,
        inputs: usize,
        record_bytes: Option<usize>,
        long_runs: bool,
    ) -> MergeShare {
        // Inverses of the shares of long records in memory, and of the carry in a block.
        let (long_share, carry_share) = if long_runs { (10, 16) } else { (2, 4) };
        let carry_max = block / carry_share;
        let fits = record_bytes.is_some_and(|len| len <= carry_max.next_multiple_of(PAGE_BYTES));
        // A page before each block shortens runs by an eighth where blocks have 32 KiB.
        let straddle = record_bytes.filter(|&len| long_runs && len <= STRADDLE_BYTES_MAX);
        MergeShare {
            long_bytes: if long_runs && fits { block } else { bytes / long_share },
            carry_bytes: match straddle {
                Some(_) => 0,
                None => record_bytes.map_or(carry_max, |len| len.min(carry_max)).next_multiple_of(PAGE_BYTES),
            },
            straddle_bytes: straddle.map_or(0, |len| STRADDLING * len),
            // An eighth more: `bytes` are a little less than all memory.
            memory_per_length: (long_share * LONG_RECORDS * inputs * 9 / 8 + 1) as u64,
        }
    }
}

impl MergeShare {
    /// Bytes of a record that is kept beside its block.
    pub fn record_bytes(&self) -> usize {
        self.straddle_bytes / STRADDLING
    }

    /// Blocks of `block` bytes in `bytes` of memory.
    pub fn blocks(&self, bytes: usize, block: usize) -> usize {
        bytes.saturating_sub(self.long_bytes) / (block + self.straddle_bytes)
    }
}

/// Number and bytes of the blocks of `parts` outputs; an error if memory is too small for one block each.
pub fn part_block(budget: &Budget, parts: usize) -> Result<(usize, usize)> {
    let blocks = 2 * parts + budget.output_blocks;
    let share = budget.streams() / PARTS_SHARE;
    let block = (share / blocks).min(budget.block) / BLOCK_BYTES_MIN * BLOCK_BYTES_MIN;
    if block == 0 {
        let min_bytes = min_memory(blocks * BLOCK_BYTES_MIN * PARTS_SHARE, budget)?;
        return Err(SortError::TooLittleMemory { given_bytes: budget.memory as u64, min_bytes });
    }
    Ok((blocks, block))
}

/// Maximum number of parts of a split that memory and descriptors allow to write at once, out of `all` parts. A
/// complete part keeps one descriptor, a part being written two more.
pub fn max_parts(budget: &Budget, all: usize) -> usize {
    let blocks = budget.streams() / PARTS_SHARE / BLOCK_BYTES_MIN;
    let open = descriptors().saturating_sub(all) / 2;
    (blocks.saturating_sub(budget.output_blocks) / 2).min(open)
}

/// Maximum number of intermediate files of a split that memory and descriptors allow to write at once.
pub fn max_intermediates(budget: &Budget) -> usize {
    (budget.streams() / PARTS_SHARE / (2 * BLOCK_BYTES_MIN)).min(descriptors() / 3)
}

/// Bytes of a block of `parts` intermediate files: at most `block`, and two for each file within `max_bytes`.
pub fn intermediate_block(mut block: usize, parts: usize, max_bytes: usize) -> usize {
    while 2 * parts * block > max_bytes && block > PAGE_BYTES {
        block /= 2;
    }
    block
}

/// The memory that leaves `streams` bytes for streams. It is found step by step, because more memory also makes the
/// blocks of threads and output larger and allows more threads.
fn min_memory(streams: usize, budget: &Budget) -> Result<u64> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).max(budget.threads);
    let mut min_bytes = (streams + budget.common()).next_multiple_of(1 << 20);
    loop {
        let budget = Budget::new(min_bytes as u64, threads, None, budget.long_runs)?;
        match streams.saturating_sub(budget.streams()) {
            0 => return Ok(min_bytes as u64),
            short => min_bytes = (min_bytes + short).next_multiple_of(1 << 20),
        }
    }
}

/// The cap if none is given: half of the memory left to the machine or to the control group of this process, and no
/// more than the group can hold together with the process itself.
pub fn default_memory() -> u64 {
    let machine = meminfo_available().unwrap_or(1 << 30);
    let usual = |left: u64| (left / 2).clamp(MIN_MEMORY_BYTES, 64 << 30);
    match GroupMemory::of_this_process() {
        Some(group) => usual(machine.min(group.left)).min(group.cap()),
        None => usual(machine),
    }
}

/// Error for a cap of `given` bytes below `min_bytes`, the smallest that works. It names the control group if that is
/// the cause.
pub fn too_little(given: u64, min_bytes: u64) -> SortError {
    match GroupMemory::of_this_process().filter(|group| group.cap() < min_bytes) {
        Some(group) => SortError::SmallControlGroup { group, min_bytes },
        None => SortError::TooLittleMemory { given_bytes: given, min_bytes },
    }
}

fn meminfo_available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_never_exceed_the_cap() {
        for memory in [8u64 << 20, 64 << 20, 256 << 20, 1 << 30, 16 << 30] {
            for data in [None, Some(1 << 30), Some(60_000_000_000)] {
                for threads in [1, 2, 16] {
                    let long_runs = threads == 2;
                    let budget = Budget::new(memory, threads, data, long_runs).expect("enough");
                    let share = budget.chunks(&|bytes| bytes / 3);
                    let taken =
                        budget.common() + budget.threads * share.bytes / 3 + share.bytes * share.count;
                    assert!(taken <= budget.memory, "{budget:?} {share:?}");
                    assert!(
                        budget.block.is_power_of_two() && share.count > share.unsorted + 4,
                        "{budget:?} {share:?}"
                    );
                }
            }
        }
        assert!(Budget::new(1 << 20, 2, None, false).is_err());
    }

    /// Chunks that are read and sorted keep little memory from records, and threads have enough of them.
    #[test]
    fn chunks_grow_with_memory_and_never_beyond_a_share_of_it() {
        let share = |memory: u64, threads, data| {
            Budget::new(memory, threads, data, false).expect("enough").chunks(&|bytes| bytes / 3)
        };
        let mib = |memory, threads, data| share(memory, threads, data).bytes >> 20;
        assert_eq!([mib(512 << 20, 2, None), mib(2 << 30, 2, None), mib(12 << 30, 2, None)], [4, 4, 32]);
        assert_eq!([mib(12 << 30, 2, Some(100_000_000)), mib(12 << 30, 2, Some(13 << 30))], [4, 4]);
        assert_eq!(mib(12 << 30, 16, None), 8);
        for gib in 1..64 {
            for threads in [1, 2, 16, 64] {
                let share = share(gib << 30, threads, None);
                let kept = share.bytes * share.unsorted;
                assert!(share.bytes <= CACHED_CHUNK_BYTES || kept <= (gib as usize) << 25, "{gib} {share:?}");
            }
        }
    }

    #[test]
    fn small_memories_have_few_large_blocks_unless_runs_are_long() {
        let block = |mib: u64, threads, long_runs| {
            Budget::new(mib << 20, threads, Some(300_000_000), long_runs).expect("enough").block >> 10
        };
        assert_eq!([block(24, 2, true), block(24, 2, false)], [32, 64]);
        assert_eq!([block(57, 2, true), block(57, 2, false)], [64, 128]);
        assert_eq!([block(1024, 2, true), block(1024, 2, false)], [1024, 1024]);
        // Many threads have many blocks.
        assert_eq!(block(57, 16, false), 64);
    }

    /// Runs take all chunks only where reading and writing alternate; parts never do.
    #[test]
    fn runs_take_all_chunks_where_reading_and_writing_alternate() {
        let array = || VolumeProfile::simple("array", 3.5e9, 3.5e9, 0.0155);
        let alone = Volumes { volume: Some(array()), ..Volumes::default() };
        let apart = Volumes { input_volume: Some(array()), ..alone.clone() };
        let share = |volumes: &Volumes, from_files| {
            let long_runs = volumes.wants_runs(2);
            let budget = Budget::new(512 << 20, 2, Some(4 << 30), long_runs).expect("enough");
            budget.with_run_buffers(volumes, from_files).chunks(&|_| 0)
        };
        let whole = share(&alone, true);
        assert_eq!(whole.run_buffer() + whole.unsorted, whole.count);
        assert_eq!(whole.part_buffer(), whole.run_buffer() / 2);
        for (volumes, from_files) in [(&alone, false), (&apart, true), (&Volumes::default(), true)] {
            let half = share(volumes, from_files);
            assert_eq!(half.run_buffer(), half.part_buffer(), "{volumes:?} {from_files}");
            assert!(2 * half.run_buffer() + half.unsorted <= half.count);
        }
    }

    #[test]
    fn there_is_a_default() {
        assert!(default_memory() >= MIN_MEMORY_BYTES);
    }
}
