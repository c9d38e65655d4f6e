//! Pass one of a split or a distribution: the inputs are read, and every record is written to its part.
//!
//! While parts are written, the state of the job is stored several times (*checkpoints*), so that a killed job goes on.
//! Where switches cost nothing, all blocks are written before. On a volume that wants long runs that would cut the run
//! of each part short. There a checkpoint writes no record: it stores the latest position in the inputs before which
//! all records are on disk, and a resumed job reads from there ([`boundaries`](crate::partition::boundaries)).

use std::sync::Arc;

use ascot_io::{BlockPool, PAGE_BYTES};
use ascot_model::checkpoints::split_checkpoint_bytes;
use ascot_record::checksum::RecordSum;

use crate::api::{Result, SortError};
use crate::job::Job;
use crate::methods::partition_and_sort::PARTS_SHARE;
use crate::partition::{
    BetweenChunks, Boundaries, Boundary, Grouped, PartRun, Router, SPLIT_CHUNK_BYTES, open_parts,
    split_chunks, write_partitioned,
};
use crate::plan::budget::intermediate_block;
use crate::plan::partition_in_long_runs;
use crate::read::InputPosition;
use crate::records::{Misfits, Records};
use crate::report::PassFacts;
use crate::resources::{CHUNKS_READ, ChunkPool};
use crate::runs::run_file::decode_index;
use crate::runs::{OpenPart, Run, RunSink};

/// A part may exceed its fair share by this inverse part of it.
const UNEVEN_SHARE: u64 = 4;
/// Bytes of input, as a multiple of the memory, that a job killed while it writes in long runs reads again at most.
/// Then all blocks are written, which cuts a natural run of each part short.
const MEMORIES_BETWEEN_FLUSHES: u64 = 32;
/// Inverse of the share of checkpoints in the time of a pass that writes in long runs.
const CHECKPOINT_TIME_SHARE: f64 = 24.0;
/// Inverse of the distance between two boundaries, in memories.
const BOUNDARIES_PER_MEMORY: u64 = 4;
/// Minimum size of a chunk that is split.
const MIN_SPLIT_CHUNK_BYTES: usize = 64 << 10;
/// Minimum number of chunks for splitting: the reader holds some, and waits for one more to group records in.
const MIN_SPLIT_CHUNKS: usize = 2 * (CHUNKS_READ + 1);
/// Memory that the blocks of the parts leave to these chunks.
const MIN_SPLIT_BYTES: usize = MIN_SPLIT_CHUNKS * MIN_SPLIT_CHUNK_BYTES;

/// The times when a split stores its state.
struct Checkpoints {
    /// Bytes of input between two checkpoints, and where the next one is.
    every: u64,
    next: u64,
    /// Positions from which a killed job can go on, if parts are written in long runs.
    boundaries: Option<Boundaries>,
    /// Bytes of input that a killed job reads again at most.
    lag_max: u64,
}

impl<R: Records> Job<'_, R> {
    /// Pass one, called `name`: writes every record to its part.
    pub(super) fn split_to_runs(&mut self, name: &str, router: Router<'_>, count: usize) -> Result<()> {
        let long_runs = partition_in_long_runs(&self.request.volumes, count);
        let blocks = self.part_blocks(count, long_runs.is_some(), 0)?;
        let chunks = self.split_chunk_pool(0)?;
        let parts = self.part_runs(count)?;
        let written: Vec<u64> = parts.iter().map(PartRun::bytes_before).collect();
        let parts = open_parts(parts, blocks, long_runs)?.observing(self.disk.ledger(), "split");
        let mut key_sample = self.key_sample.take();
        if let Some(sample) = &mut key_sample {
            sample.divide(count);
        }
        let turns = self.turns_of_forming();
        let mut parts = parts.alternating(turns.is_some());
        let buffers = self.buffers_of(&parts);
        let reader = self.reader(&chunks).in_turn(turns).stopping_after(self.bytes_to_split());
        let mut checkpoints = self.checkpoints(written, long_runs.is_some());
        let records = Arc::clone(&self.records);
        let cancel = self.cancel;
        let threads = self.budget.threads;
        let mut after_chunk = |grouped: &Grouped, between: &mut BetweenChunks<'_, PartRun<R>>| {
            if let (Some(sample), Some(width)) = (&mut key_sample, records.record_bytes()) {
                for (part, range) in &grouped.groups {
                    let bytes = &grouped.lease.bytes()[range.clone()];
                    sample.add(*part, bytes.len() / width, |at| records.first_prefix(&bytes[at * width..]));
                }
            }
            self.note_split(&mut checkpoints, grouped, between)
        };
        split_chunks(&records, reader, &chunks, router, threads, cancel, |chunks| {
            write_partitioned(&*records, chunks, &mut parts, cancel, &mut after_chunk)
        })?;
        self.key_sample = key_sample;
        let runs: Vec<Run> = parts.into_outputs().filter_map(PartRun::into_run).collect();
        self.spill_dirs()?.end_reservations();
        self.passes.spilled(runs.iter().map(|run| run.bytes).sum());
        self.manifest.runs = runs;
        self.manifest.limit_indexes();
        self.manifest.parts.clear();
        self.manifest.all_read = true;
        self.begin_rest();
        let inputs = self.inputs.iter().count() as u64;
        self.passes.done(name, PassFacts { inputs, outputs: count as u64, buffers: Some(buffers) });
        self.store()
    }

    /// The times when a split whose parts have got `written` bytes each stores its state.
    fn checkpoints(&self, written: Vec<u64>, long_runs: bool) -> Checkpoints {
        let total = self.inputs.record_bytes().unwrap_or(0);
        let streams = self.budget.streams() as u64;
        let every = split_checkpoint_bytes(total, self.budget.memory as u64);
        let sum = self.manifest.sum_in;
        let lag_max = MEMORIES_BETWEEN_FLUSHES * streams;
        if !long_runs {
            return Checkpoints { every, next: sum.bytes + every, boundaries: None, lag_max };
        }
        // Each part is synced, which costs about a switch.
        let volume = self.request.volumes.profile();
        let cost = written.len() as f64 * volume.switch_seconds.seconds(written.len() as f64);
        let pass_seconds = self.plan.chosen.passes.first().map_or(0.0, |pass| pass.seconds()).max(1e-9);
        let worth = (CHECKPOINT_TIME_SHARE * cost / pass_seconds * total as f64) as u64;
        let every = every.max(worth).min((total / 2).max(1));
        let first = Boundary {
            end: self.manifest.read_end,
            sum,
            misfits: self.manifest.misfits.clone(),
            given: written,
        };
        let boundaries = Some(Boundaries::new(first, streams / BOUNDARIES_PER_MEMORY));
        Checkpoints { every, next: sum.bytes + every, boundaries, lag_max }
    }

    /// The records of a chunk are given to their parts.
    fn note_split(
        &mut self,
        checkpoints: &mut Checkpoints,
        grouped: &Grouped,
        between: &mut BetweenChunks<'_, PartRun<R>>,
    ) -> Result<()> {
        self.manifest.sum_in.combine(&grouped.sum);
        self.take_in(&grouped.misfits)?;
        self.manifest.read_end = grouped.end;
        let Checkpoints { every, next, boundaries, lag_max } = checkpoints;
        let sum = self.manifest.sum_in;
        if let Some(boundaries) = boundaries {
            grouped.groups.iter().for_each(|(part, range)| boundaries.give(*part, range.len()));
            boundaries.note(grouped.end, sum, &self.manifest.misfits);
        }
        if !self.resumable || sum.bytes < *next {
            return Ok(());
        }
        *next = sum.bytes + *every;
        let Some(boundaries) = boundaries.as_mut() else { return self.store_all_written(between) };
        if !between.has_long_records() {
            let parts = between.written(PartRun::checkpoint)?;
            let written: Vec<u64> = parts.iter().map(|part| part.run.bytes).collect();
            let latest = boundaries.latest(&written).cloned();
            if let Some(latest) = latest.filter(|latest| sum.bytes - latest.sum.bytes <= *lag_max) {
                return self.store_from(&latest, parts);
            }
        }
        // Long records are cut at the end of a block, and small parts are seldom written.
        *next = sum.bytes + (*lag_max).max(*every);
        self.store_all_written(between)
    }

    /// Writes all records of the parts, and stores the state of the job.
    fn store_all_written(&mut self, between: &mut BetweenChunks<'_, PartRun<R>>) -> Result<()> {
        let parts = between.checkpoint(PartRun::checkpoint)?.into_iter().zip(between.skips());
        self.manifest.parts = parts.map(|(part, &skip)| OpenPart { skip, ..part }).collect();
        let stored = self.store();
        // The indexes of all parts would take memory until the next checkpoint.
        self.manifest.parts = Vec::new();
        stored
    }

    /// Stores a state from which a resumed job reads the inputs from an earlier position on.
    fn store_from(&mut self, from: &Boundary, parts: Vec<OpenPart>) -> Result<()> {
        let skipping = |(part, given): (OpenPart, &u64)| OpenPart { skip: part.run.bytes - given, ..part };
        self.manifest.parts = parts.into_iter().zip(&from.given).map(skipping).collect();
        let now = (self.manifest.read_end, self.manifest.sum_in, self.manifest.misfits.clone());
        self.manifest.read_end = from.end;
        self.manifest.sum_in = from.sum;
        self.manifest.misfits = from.misfits.clone();
        let stored = self.store();
        (self.manifest.read_end, self.manifest.sum_in, self.manifest.misfits) = now;
        self.manifest.parts = Vec::new();
        stored
    }

    /// Blocks of the parts, at least two each: a third is filled while others are written, and long
    /// runs take the memory there is. They are smaller if a resumed job has less memory than the one that
    /// chose the parts. `ahead_bytes`: for reading ahead.
    pub(super) fn part_blocks(&self, parts: usize, long_runs: bool, ahead_bytes: usize) -> Result<BlockPool> {
        let memory = self.budget.streams().min(self.pool.available());
        let max_bytes = memory.saturating_sub(MIN_SPLIT_BYTES + ahead_bytes);
        let min_blocks = 2 * parts;
        let block = intermediate_block(self.budget.block, parts, max_bytes);
        if min_blocks * block > max_bytes {
            let given_bytes = self.budget.memory as u64;
            let min_bytes = given_bytes + (min_blocks * block - max_bytes) as u64;
            return Err(SortError::TooLittleMemory { given_bytes, min_bytes });
        }
        let blocks = if long_runs {
            self.long_run_bytes(ahead_bytes) / block
        } else {
            (memory / PARTS_SHARE / block).min(3 * parts)
        };
        let blocks = blocks.max(min_blocks);
        Ok(BlockPool::new(self.pool.region(blocks * block, "blocks of parts")?, block))
    }

    /// Memory for the blocks of parts in long runs: what is left beside chunks and `ahead_bytes`, and no more than is
    /// planned.
    pub(super) fn long_run_bytes(&self, ahead_bytes: usize) -> usize {
        let planned = if self.emitters.are_none() {
            self.budget.split_in_long_runs(self.records.record_bytes())
        } else {
            self.budget.distribution_in_long_runs()
        };
        planned.min(self.pool.available().saturating_sub(MIN_SPLIT_BYTES + ahead_bytes))
    }

    /// Memory for chunks that are split: all that is left, but for `bytes`. With too few, the reader would wait for
    /// ever.
    pub(super) fn split_chunk_pool(&self, bytes: usize) -> Result<ChunkPool> {
        let share = self.pool.available().saturating_sub(bytes);
        if share < MIN_SPLIT_BYTES {
            let given_bytes = self.budget.memory as u64;
            let min_bytes = given_bytes + (MIN_SPLIT_BYTES - share) as u64;
            return Err(SortError::TooLittleMemory { given_bytes, min_bytes });
        }
        let chunk = SPLIT_CHUNK_BYTES.min(share / 16).max(MIN_SPLIT_CHUNK_BYTES) / PAGE_BYTES * PAGE_BYTES;
        Ok(ChunkPool::new(&self.pool, chunk, (share / chunk).min(64), share))
    }

    /// The `count` parts of pass one, new or as the killed job left them.
    fn part_runs(&mut self, count: usize) -> Result<Vec<PartRun<R>>> {
        let stored = std::mem::take(&mut self.manifest.parts);
        if stored.is_empty() {
            self.manifest.read_end = InputPosition::default();
            self.manifest.sum_in = RecordSum::new();
            self.manifest.misfits = Misfits::default();
        }
        let codec = self.compression.of_pass("split");
        let mut parts = Vec::with_capacity(count);
        for part in stored {
            let OpenPart { run, index, skip } = part;
            let sink = RunSink::resume(&self.records, &self.disk, run, decode_index(&index)?, &codec)?;
            parts.push(PartRun::new(sink).skipping(skip));
        }
        let fair = self.inputs.record_bytes().unwrap_or(0) / count.max(1) as u64;
        let new = self.new_part_runs(count.saturating_sub(parts.len()), fair)?;
        parts.extend(new);
        Ok(parts)
    }

    /// `count` new parts of about `fair_bytes` each.
    pub(super) fn new_part_runs(&mut self, count: usize, fair_bytes: u64) -> Result<Vec<PartRun<R>>> {
        let codec = self.compression.of_pass("split");
        let mut parts = Vec::with_capacity(count);
        let dirs = self.spill_dirs()?;
        let expected = fair_bytes + fair_bytes / UNEVEN_SHARE;
        for number in self.new_numbers(count as u64) {
            let dir = dirs.choose(expected, &[]).ok_or_else(|| dirs.no_space(expected))?;
            dirs.reserve(dir, expected);
            let path = dirs.run_path(dir, number);
            let sink = RunSink::create(&self.records, &self.disk, path, number, &codec)?;
            parts.push(PartRun::new(sink));
        }
        Ok(parts)
    }
}
