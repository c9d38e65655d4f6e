//! Sorting by a partitioned write: sampled keys divide the records into parts that fit in memory; each part is sorted
//! and appended to the output.
//!
//! ```text
//!   inputs ─▶ chunks ─▶ splitting threads: records grouped by part ─▶ partitioned write, in input order
//!                                                                        │
//!   part 0 [block]  part 1 [block]  ...  part m [block]  ◀───────────────╯   full ones are written
//! ```
//!
//! Invariants: a part holds its records in input order, so sorting its parts stably sorts the input stably; the
//! keys of part i all come before those of part i + 1. A part that turns out larger than a run buffer is
//! sorted by runs and merges, like an input of its own; a part whose keys are all equal needs no sort.

use std::sync::{Arc, Mutex};

use ascot_io::sync::Unpoisoned;
use ascot_io::{BlockPool, PAGE_BYTES};
use ascot_model::report::Report;
use ascot_model::sort_plan::{long_run_bytes, uneven_part_bytes};
use ascot_record::checksum::RecordSum;

use crate::api::error::SortError;
use crate::job::Job;
use crate::methods::freeing_sink::Destination;
use crate::output::writer::OutputWriter;
use crate::partition::key_sample::KeySample;
use crate::partition::route::{Grouped, Router, SPLIT_CHUNK_BYTES, split_chunks};
use crate::partition::write_parts::{BetweenChunks, PartRun, open_parts, write_partitioned};
use crate::plan::planner::{part_count, partition_in_long_runs};
use crate::read::inputs::{InputPosition, Inputs, part_ahead_bytes};
use crate::read::record_reader::{CARRY_BYTES_MIN, RecordReader};
use crate::records::emitter::Merged;
use crate::records::misfits::Misfits;
use crate::records::{Records, Splitters};
use crate::report::account::PassFacts;
use crate::resources::chunk_pool::{CHUNKS_READ, ChunkPool};
use crate::runs::form::{Gather, Grouping, RunBuffer, sort_run_buffers};
use crate::runs::run_file::{Run, RunSink, decode_index};
use crate::runs::store::{LargePart, OutputState, StoredMethod};

/// Number of sampled keys per part: if keys are spread evenly, the sizes of parts vary by 4 percent.
const KEYS_PER_PART: usize = 512;
/// Number of positions from which the sample of each part comes.
const PLACES_PER_PART: usize = 8;
/// Maximum bytes read at each position.
const SAMPLE_BYTES: usize = 64 << 10;
/// Minimum distance between positions, bytes.
const MIN_SAMPLE_BYTES: u64 = 4 << 10;
/// Maximum bytes of sampled keys; beyond it every second key is dropped, and half as many are sampled from then on.
const SAMPLED_BYTES: usize = 8 << 20;
/// Memory of a key beside its bytes.
const KEY_OVERHEAD_BYTES: usize = 48;
/// Maximum bytes kept of a sampled key.
const MAX_KEY_BYTES: usize = 1 << 10;
/// Approximate number of checkpoints of the splitting pass.
const CHECKPOINTS: u64 = 12;
/// Inverse of the fraction by which a part may exceed its fair share.
const UNEVEN_SHARE: u64 = 4;
/// Inverse of the memory share for the blocks of the parts.
const PARTS_SHARE: usize = 2;

/// Minimum size of a chunk that is split.
const MIN_SPLIT_CHUNK_BYTES: usize = 64 << 10;
/// Minimum number of chunks for splitting: the reader holds some, and waits for one more to group records in.
const MIN_SPLIT_CHUNKS: usize = 2 * (CHUNKS_READ + 1);

/// Bytes of input between two checkpoints of the splitting pass. A resumed job moves again at most twice the bytes
/// that the killed job read and wrote since its last checkpoint: less than a twelfth of all bytes that a job of
/// `total` bytes moves, or than a run buffer: the limits for a resume.
fn split_checkpoint_bytes(total: u64, memory: u64) -> u64 {
    const MAX_STEP_BYTES: u64 = 64 << 20;
    (total / CHECKPOINTS).max((memory / 2).min(MAX_STEP_BYTES))
}

impl<R: Records> Job<'_, R> {
    /// Sorts the inputs by a partitioned write.
    pub fn sort_by_distribution(mut self) -> Result<Report, SortError> {
        self.begin_spilling()?;
        let mut output = self.open_output()?;
        if !self.manifest.all_read {
            self.key_sample = self.new_key_sample();
            let splitters = self.splitters()?;
            self.store()?;
            self.split(&splitters)?;
        }
        let sums = self.sort_parts(&mut output)?;
        self.finish(output, &sums.out, &sums.dropped)
    }

    /// Memory for a sample of each part; none for a resumed job, which has not seen all records.
    fn new_key_sample(&self) -> Option<KeySample> {
        let bytes = self.inputs.record_bytes().filter(|_| self.manifest.parts.is_empty())?;
        let width = self.records.record_bytes().filter(|_| self.records.groups_parts())?;
        KeySample::new(&self.pool, bytes, width as u64, self.budget.block)
    }

    /// The splitters of the killed job, or new ones from a sample.
    fn splitters(&mut self) -> Result<Splitters, SortError> {
        if let StoredMethod::Distribute(keys) = &self.manifest.method {
            return Ok(Splitters::new(keys, self.records.descending()));
        }
        let total = self.inputs.record_bytes().unwrap_or(0);
        let memory = self.sort_memory(self.part_stream_bytes());
        let buffer = (memory.chunks.chunk_bytes() * memory.run_buffer_chunks) as u64;
        let most = (self.budget.streams() / PARTS_SHARE / (2 * self.budget.block))
            .min(crate::resources::limits::descriptors()) as u64;
        let parts = part_count(total, buffer).min(most.max(2)) as usize;
        let chosen = self.sampled_bounds(parts, total)?;
        self.manifest.method = StoredMethod::Distribute(chosen.clone());
        Ok(Splitters::new(&chosen, self.records.descending()))
    }

    /// Ascending keys that bound `parts` parts of about the same size; frequent keys are doubled.
    pub fn sampled_bounds(&self, parts: usize, total: u64) -> Result<Vec<Vec<u8>>, SortError> {
        let mut keys = self.sample_keys(parts, total)?;
        keys.sort_unstable();
        if self.records.descending() {
            keys.reverse();
        }
        Ok((1..parts).filter_map(|i| keys.get(keys.len() * i / parts).cloned()).collect())
    }

    /// Sampled keys for `parts` parts, from positions spread evenly over the inputs.
    fn sample_keys(&self, parts: usize, total: u64) -> Result<Vec<Vec<u8>>, SortError> {
        // Small inputs are read completely, once.
        let places = ((parts * PLACES_PER_PART) as u64).min(total / MIN_SAMPLE_BYTES).max(1);
        let mut keys_per_place = parts * KEYS_PER_PART / places as usize;
        let (mut keys, mut bytes_kept): (Vec<Vec<u8>>, usize) = (Vec::new(), 0);
        let bytes_of = |key: &Vec<u8>| key.len() + KEY_OVERHEAD_BYTES;
        for file in self.inputs.iter() {
            let size = file.size.unwrap_or(0).saturating_sub(file.start);
            let here = (places * size).div_ceil(total.max(1)).max(1);
            for place in 0..here {
                let at = size / here * place;
                let at = self.records.record_bytes().map_or(at, |len| at / len as u64 * len as u64);
                // The samples do not overlap, unless records are longer than the distance between positions.
                let apart = (size / here) as usize;
                let mut bytes = file.sample(file.start + at, apart.clamp(1, SAMPLE_BYTES))?;
                if self.records.cut(&bytes, 2).records < 2 {
                    bytes = file.sample(file.start + at, SAMPLE_BYTES)?;
                }
                // Without a fixed record length the first record is most likely cut in two.
                let skip = if at == 0 || self.records.record_bytes().is_some() {
                    0
                } else {
                    self.records.cut(&bytes, 1).bytes
                };
                let whole = self.records.cut(&bytes[skip..], usize::MAX).bytes;
                self.records.normalise(&mut bytes[skip..skip + whole]);
                let known = keys.len();
                self.records.sample_keys(&bytes[skip..skip + whole], keys_per_place, &mut keys);
                // Any key between two keys divides them, so a prefix suffices; long keys would take memory.
                keys[known..].iter_mut().for_each(|key| key.truncate(MAX_KEY_BYTES));
                bytes_kept += keys[known..].iter().map(bytes_of).sum::<usize>();
                while bytes_kept > SAMPLED_BYTES && keys_per_place > 1 {
                    keys_per_place /= 2;
                    keys = keys.into_iter().step_by(2).collect();
                    bytes_kept = keys.iter().map(bytes_of).sum();
                }
            }
        }
        Ok(keys)
    }

    /// Pass one: writes every record to its part.
    fn split(&mut self, splitters: &Splitters) -> Result<(), SortError> {
        let long_runs = partition_in_long_runs(&self.request.volumes, splitters.parts());
        let blocks = self.part_blocks(splitters.parts(), long_runs.is_some())?;
        let share = self.pool.available();
        let chunk = SPLIT_CHUNK_BYTES.min(share / 16).max(MIN_SPLIT_CHUNK_BYTES) / PAGE_BYTES * PAGE_BYTES;
        let chunks = ChunkPool::new(&self.pool, chunk, (share / chunk).min(64), share);
        let parts = open_parts(self.part_runs(splitters)?, blocks, long_runs)?;
        let count = parts.outputs();
        let mut key_sample = self.key_sample.take();
        if let Some(sample) = &mut key_sample {
            sample.divide(count);
        }
        let turns = self.turns_of_forming();
        let mut parts = parts.alternating(turns.is_some());
        let buffers = self.buffers_of(&parts);
        let reader = self.reader(&chunks).in_turn(turns);
        let every =
            split_checkpoint_bytes(self.inputs.record_bytes().unwrap_or(0), self.budget.memory as u64);
        // A checkpoint writes all parts: if switches cost time, only after many natural runs of each.
        let every = if long_runs.is_some() { every.max(8 * self.budget.streams() as u64) } else { every };
        let mut next = self.manifest.sum_in.bytes + every;
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
            self.manifest.sum_in.combine(&grouped.sum);
            self.take_in(&grouped.misfits)?;
            self.manifest.read_end = grouped.end;
            if self.resumable && self.manifest.sum_in.bytes >= next {
                next = self.manifest.sum_in.bytes + every;
                self.manifest.parts = between.checkpoint(PartRun::checkpoint)?;
                self.store()?;
                // The indexes of all parts would take memory until the next checkpoint.
                self.manifest.parts = Vec::new();
            }
            Ok(())
        };
        split_chunks(&records, reader, &chunks, Router::Ranges(splitters), threads, cancel, |chunks| {
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
        let inputs = self.inputs.iter().count() as u64;
        self.passes.done("split", PassFacts { inputs, outputs: count as u64, buffers: Some(buffers) });
        self.store()
    }

    /// Blocks of the parts, at least two each: a third is filled while others are written, and long
    /// runs take the memory there is. They are smaller if a resumed job has less memory than the one that
    /// chose the parts.
    fn part_blocks(&self, parts: usize, long_runs: bool) -> Result<BlockPool, SortError> {
        let memory = self.budget.streams().min(self.pool.available());
        let max_bytes = memory.saturating_sub(MIN_SPLIT_CHUNKS * MIN_SPLIT_CHUNK_BYTES);
        let min_blocks = 2 * parts;
        let mut block = self.budget.block;
        while min_blocks * block > max_bytes && block > PAGE_BYTES {
            block /= 2;
        }
        if min_blocks * block > max_bytes {
            let given_bytes = self.budget.memory as u64;
            let min_bytes = given_bytes + (min_blocks * block - max_bytes) as u64;
            return Err(SortError::TooLittleMemory { given_bytes, min_bytes });
        }
        let blocks = if long_runs {
            long_run_bytes(memory as u64) as usize / block
        } else {
            (memory / PARTS_SHARE / block).min(3 * parts)
        };
        let blocks = blocks.max(min_blocks);
        Ok(BlockPool::new(self.pool.region(blocks * block, "blocks of parts")?, block))
    }

    fn part_runs(&mut self, splitters: &Splitters) -> Result<Vec<PartRun<R>>, SortError> {
        let stored = std::mem::take(&mut self.manifest.parts);
        if stored.is_empty() {
            self.manifest.read_end = InputPosition::default();
            self.manifest.sum_in = RecordSum::new();
            self.manifest.misfits = Misfits::default();
        }
        let mut parts = Vec::with_capacity(splitters.parts());
        for part in stored {
            let sink = RunSink::resume(&self.records, &self.disk, part.run, decode_index(&part.index)?)?;
            parts.push(PartRun::new(sink));
        }
        let dirs = self.spill_dirs()?;
        let fair = self.inputs.record_bytes().unwrap_or(0) / splitters.parts() as u64;
        let expected = fair + fair / UNEVEN_SHARE;
        for number in self.new_numbers((splitters.parts() - parts.len()) as u64) {
            let dir = dirs.choose(expected, &[]).ok_or_else(|| dirs.no_space(expected))?;
            dirs.reserve(dir, expected);
            let path = dirs.run_path(dir, number);
            let sink = RunSink::create(&self.records, &self.disk, path, number, self.request.compression)?;
            parts.push(PartRun::new(sink));
        }
        Ok(parts)
    }

    /// Pass two: sorts one part after another.
    fn sort_parts(&mut self, output: &mut OutputWriter<R>) -> Result<Merged, SortError> {
        let StoredMethod::Distribute(keys) = &self.manifest.method else {
            return Err(SortError::Internal("parts without splitters"));
        };
        let splitters = Splitters::new(keys, self.records.descending());
        let planned_parts = keys.len() as u64 + 1;
        let mut sums = Merged::default();
        if let Some(state) = &self.manifest.output {
            sums = state.so_far.clone();
        }
        if self.manifest.large.is_some() {
            self.sort_large_part(output, &mut sums)?;
        }
        let first = splitters.parts() - self.manifest.runs.len();
        let memory = self.sort_memory(self.part_stream_bytes());
        let mut buffer = (memory.chunks.chunk_bytes() * memory.run_buffer_chunks) as u64;
        drop(memory);
        // A larger part would take more disk than the plan allows.
        if let Some(total) = self.inputs.record_bytes() {
            buffer = buffer.min(uneven_part_bytes(total, planned_parts));
        }
        let parts: Vec<(Run, bool)> = std::mem::take(&mut self.manifest.runs)
            .into_iter()
            .enumerate()
            .map(|(at, run)| {
                let equal = splitters.all_equal(first + at) && self.records.keys_decide();
                // Long records leave chunks part empty.
                let buffer = if run.longest > CARRY_BYTES_MIN as u64 { buffer / 5 * 4 } else { buffer };
                let normal = !equal && run.bytes <= buffer;
                (run, normal)
            })
            .collect();
        self.manifest.runs = parts.iter().map(|(run, _)| run.clone()).collect();
        let mut at = 0;
        while at < parts.len() {
            let normal = parts[at..].iter().take_while(|(_, normal)| *normal).count();
            if normal > 0 {
                let group: Vec<Run> = parts[at..at + normal].iter().map(|(run, _)| run.clone()).collect();
                self.sort_small_parts(first + at, &group, output, &mut sums)?;
                at += normal;
            } else {
                if splitters.all_equal(first + at) && self.records.keys_decide() {
                    self.append_equal_part(output, &mut sums)?;
                } else {
                    self.sort_large_part(output, &mut sums)?;
                }
                at += 1;
            }
        }
        Ok(sums)
    }

    /// Sorts parts that fit in memory; the first has the number `first`.
    fn sort_small_parts(
        &mut self,
        first: usize,
        parts: &[Run],
        output: &mut OutputWriter<R>,
        sums: &mut Merged,
    ) -> Result<(), SortError> {
        let memory = self.sort_memory(self.part_stream_bytes());
        let inputs = Inputs::from_files(parts.iter().map(|part| part.as_input(&self.pool)).collect());
        let start = InputPosition::default();
        let reader = RecordReader::new(&self.records, &self.disk, inputs, &memory.chunks, start, self.cancel)
            .over_parts()
            .in_turn(self.turns_of_spills());
        let records = Arc::clone(&self.records);
        let cancel = self.cancel;
        let threads = self.budget.threads;
        let mut done = 0;
        let key_sample = self.key_sample.take().map(Mutex::new);
        let bounds = |input: usize| {
            let mut sample = key_sample.as_ref()?.lock().unpoisoned();
            sample.bounds(first + input, parts.get(input)?.bytes)
        };
        let grouping: Option<Grouping<'_>> = if key_sample.is_some() { Some(&bounds) } else { None };
        let gather = Gather::ByInput(grouping);
        sort_run_buffers(&records, reader, &memory, threads, gather, cancel, &mut |buffer: RunBuffer| {
            if buffer.sources.is_empty() {
                return Ok(());
            }
            let end = buffer.input + 1;
            let last = buffer.last || end == parts.len();
            let limit = self.request.top.map(|top| top.saturating_sub(sums.out.count));
            sums.add(self.run_buffer_to_output(buffer, limit, output)?);
            // Parts without records are removed together with the one after them.
            let freed = if last { parts.len() - done } else { end - done };
            done += freed;
            self.parts_done(freed, output, sums)
        })?;
        self.parts_done(parts.len() - done, output, sums)?;
        self.key_sample = key_sample.and_then(|sample| sample.into_inner().ok());
        let facts = PassFacts { inputs: parts.len() as u64, outputs: 1, buffers: None };
        self.passes.done("sort parts", facts);
        Ok(())
    }

    /// The first `count` parts are in the output: stores that, then removes them.
    fn parts_done(
        &mut self,
        count: usize,
        output: &mut OutputWriter<R>,
        sums: &mut Merged,
    ) -> Result<(), SortError> {
        if count == 0 {
            return Ok(());
        }
        // The next part has other keys.
        sums.last_key = None;
        let gone: Vec<Run> = self.manifest.runs.drain(..count).collect();
        if self.resumable
            && let Some(durable) = output.checkpoint()?
        {
            self.store_output(output, OutputState { durable, so_far: sums.clone() })?;
        }
        self.remove_runs(&gone)
    }

    /// Appends a part of equal keys, which is a sorted run already. It is freed as it is copied, so the manifest
    /// stores the progress.
    fn append_equal_part(
        &mut self,
        output: &mut OutputWriter<R>,
        sums: &mut Merged,
    ) -> Result<(), SortError> {
        *sums = self.merge_freeing(0..1, Destination::Output(output), sums.clone())?;
        self.parts_done(1, output, sums)
    }

    /// Sorts the first part, or the one of the killed job, by runs and merges, as it is larger than memory. The part is
    /// freed while its runs are formed, and the runs while they are merged, so its size does not matter to the disk.
    fn sort_large_part(&mut self, output: &mut OutputWriter<R>, sums: &mut Merged) -> Result<(), SortError> {
        if self.manifest.large.is_none() {
            let mut runs = std::mem::take(&mut self.manifest.runs).into_iter();
            let part = runs.next().ok_or(SortError::Internal("a part that is not there"))?;
            self.manifest.large = Some(LargePart { part, later: runs.collect(), formed: false });
            self.manifest.read_end = InputPosition::default();
        }
        if let Some(LargePart { part, formed: false, .. }) = self.manifest.large.clone() {
            self.form_large_part(&part)?;
        }
        self.reduce_runs()?;
        let runs = 0..self.manifest.runs.len();
        *sums = self.merge_freeing(runs, Destination::Output(output), sums.clone())?;
        let Some(LargePart { part, later, .. }) = self.manifest.large.take() else { return Ok(()) };
        self.manifest.runs.push(part);
        let done = self.manifest.runs.len();
        self.manifest.runs.extend(later);
        self.parts_done(done, output, sums)
    }

    /// Forms sorted runs of the rest of a large part.
    fn form_large_part(&mut self, part: &Run) -> Result<(), SortError> {
        let memory = self.sort_memory(self.part_stream_bytes());
        let inputs = Inputs::from_files(vec![part.as_input(&self.pool)]);
        let start = self.manifest.read_end;
        let reader = RecordReader::new(&self.records, &self.disk, inputs, &memory.chunks, start, self.cancel)
            .over_spills()
            .in_turn(self.turns_of_spills());
        self.form(reader, &memory, Gather::Halves, None)?;
        if let Some(large) = &mut self.manifest.large {
            large.formed = true;
        }
        self.store()
    }

    /// Memory for reading a part ahead: its blocks have the size with which they were written.
    fn part_stream_bytes(&self) -> usize {
        let written = self.manifest.runs.iter().map(|run| run.block_bytes).max().unwrap_or(0);
        let ahead = part_ahead_bytes(written.max(self.budget.block), self.budget.memory);
        ahead + self.key_sample.as_ref().map_or(0, KeySample::bytes)
    }
}
