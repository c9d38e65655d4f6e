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
//! sorted by runs and merges, like an input of its own; a part whose keys are all equal needs no sort. Memory may hold
//! the end of the inputs instead of the parts ([`held_rest`](crate::methods::held_rest)).

use std::sync::{Arc, Mutex};

use ascot_io::sync::Unpoisoned;
use ascot_io::{BlockPool, Buf};
use ascot_model::report::Report;
use ascot_model::sort_plan::{MAX_PARTS, MAX_READ_BYTES, SamplePlaces, uneven_part_bytes};

use crate::api::error::{Result, SortError};
use crate::job::Job;
use crate::merge::CutRules;
use crate::methods::freeing_sink::Destination;
use crate::methods::held_rest::{HeldRest, LastPass};
use crate::output::OutputWriter;
use crate::partition::key_sample::KeySample;
use crate::partition::route::Router;
use crate::plan::planner::part_count;
use crate::read::inputs::{InputPosition, Inputs};
use crate::read::part_ahead_bytes;
use crate::read::record_reader::{CARRY_BYTES_MIN, RecordReader};
use crate::records::{Records, Segment, Splitters};
use crate::report::account::PassFacts;
use crate::runs::form::{Gather, Grouping, RunBuffer, sort_run_buffers};
use crate::runs::run_file::Run;
use crate::runs::store::{LargePart, OutputState, StoredMethod};

/// Maximum bytes of sampled keys; beyond it every second key is dropped, and half as many are sampled from then on.
const SAMPLED_BYTES: usize = 8 << 20;
/// Memory of a key beside its bytes.
const KEY_OVERHEAD_BYTES: usize = 48;
/// Maximum bytes kept of a sampled key.
const MAX_KEY_BYTES: usize = 1 << 10;
/// Inverse of the memory share for the blocks of the parts.
pub(super) const PARTS_SHARE: usize = 2;

/// Parts that fit in memory.
#[derive(Clone, Copy)]
struct SmallParts<'a> {
    /// The number of the first one.
    first: usize,
    runs: &'a [Run],
    splitters: &'a Splitters,
}

impl<R: Records> Job<'_, R> {
    /// Sorts the inputs by a partitioned write.
    pub fn sort_by_distribution(mut self) -> Result<Report> {
        self.begin_spilling()?;
        let output = self.open_output_and_split()?;
        let StoredMethod::Distribute(keys) = &self.manifest.method else {
            return Err(SortError::Internal("parts without splitters"));
        };
        let splitters = Splitters::new(keys, self.records.descending());
        let sums = self.manifest.output.as_ref().map(|state| state.so_far.clone()).unwrap_or_default();
        let mut pass = LastPass { rest: HeldRest::default(), output, sums };
        if self.manifest.large.is_some() {
            // Its runs hold what memory held of it.
            self.sort_large_part(Vec::new(), &mut pass)?;
        }
        pass.rest = self.hold_rest(&splitters)?;
        self.sort_parts(&splitters, &mut pass)?;
        self.finish(pass.output, &pass.sums.out, &pass.sums.dropped)
    }

    /// Opens the output and splits the inputs. If the job began without merging threads, they and the output get their
    /// memory after the split, which uses it for the blocks of the parts. A killed job that left an output needs it at
    /// once.
    fn open_output_and_split(&mut self) -> Result<OutputWriter<R>> {
        let splits_alone =
            self.emitters.are_none() && self.manifest.output.is_none() && !self.manifest.all_read;
        let mut output = if splits_alone {
            self.open_output_through(BlockPool::new(Buf::heap(0), self.budget.block))?
        } else {
            self.start_merging_threads()?;
            self.open_output()?
        };
        if !self.manifest.all_read {
            self.distribute()?;
        }
        self.split_groups()?;
        if splits_alone {
            self.start_merging_threads()?;
            output.use_blocks(self.output_blocks()?);
        }
        Ok(output)
    }

    /// Splits the inputs into parts, or into groups of them if the plan has several splits.
    pub(super) fn distribute(&mut self) -> Result<()> {
        let several = self.planned_fan_outs().len() > 1 && self.manifest.parts.is_empty();
        if several || !self.manifest.groups.is_empty() {
            let splitters = self.splitters(MAX_PARTS as usize)?;
            return self.split_to_groups(&splitters);
        }
        self.key_sample = self.new_key_sample();
        let max_parts = self.budget.streams() / PARTS_SHARE / (2 * self.budget.block);
        let splitters = self.splitters(max_parts.min(crate::resources::limits::descriptors()))?;
        self.store()?;
        let all = splitters.parts();
        let left = if self.manifest.parts.is_empty() { all } else { self.manifest.parts.len() };
        if left == all {
            return self.split_to_runs("split", Router::Ranges(&splitters), all);
        }
        // The records of the first parts are in the output.
        let file_of: Vec<usize> = (0..all).map(|part| part.checked_sub(all - left).unwrap_or(all)).collect();
        self.split_to_runs("split", Router::RangeGroups(&splitters, &file_of), left)
    }

    /// Memory for a sample of each part; none for a resumed job, which has not seen all records.
    fn new_key_sample(&self) -> Option<KeySample> {
        let begins = self.manifest.parts.is_empty() && self.rest_bytes == 0;
        let bytes = self.inputs.record_bytes().filter(|_| begins)?;
        let width = self.records.record_bytes().filter(|_| self.records.groups_parts())?;
        KeySample::new(&self.pool, bytes, width as u64, self.budget.block)
    }

    /// The splitters of the killed job, or new ones from a sample, for at most `max_parts` parts.
    fn splitters(&mut self, max_parts: usize) -> Result<Splitters> {
        if let StoredMethod::Distribute(keys) = &self.manifest.method {
            return Ok(Splitters::new(keys, self.records.descending()));
        }
        let total = self.inputs.record_bytes().unwrap_or(0);
        let memory = self.sort_memory(self.part_stream_bytes());
        let buffer = (memory.chunks.chunk_bytes() * memory.part_chunks) as u64;
        // The plan knows the memory that is left beside held records.
        let wanted = if self.rest_bytes > 0 { self.plan.chosen.pieces } else { part_count(total, buffer) };
        let parts = wanted.min(max_parts.max(2) as u64) as usize;
        let chosen = self.sampled_bounds(parts, total)?;
        self.manifest.method = StoredMethod::Distribute(chosen.clone());
        Ok(Splitters::new(&chosen, self.records.descending()))
    }

    /// Ascending keys that bound `parts` parts of about the same size; frequent keys are doubled.
    pub fn sampled_bounds(&self, parts: usize, total: u64) -> Result<Vec<Vec<u8>>> {
        let mut keys = self.sample_keys(parts, total)?;
        keys.sort_unstable();
        if self.records.descending() {
            keys.reverse();
        }
        Ok((1..parts).filter_map(|i| keys.get(keys.len() * i / parts).cloned()).collect())
    }

    /// Sampled keys for `parts` parts, from positions spread evenly over the inputs.
    fn sample_keys(&self, parts: usize, total: u64) -> Result<Vec<Vec<u8>>> {
        let record_bytes =
            self.records.record_bytes().map_or_else(|| self.mean_record_bytes(), |bytes| bytes as u64);
        let SamplePlaces { places, bytes: sample_bytes, keys } =
            SamplePlaces::new(parts as u64, total, record_bytes);
        let sample_bytes = sample_bytes as usize;
        let mut keys_per_place = keys as usize;
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut bytes_kept = 0;
        let bytes_of = |key: &Vec<u8>| key.len() + KEY_OVERHEAD_BYTES;
        for file in self.inputs.iter() {
            let size = file.size.unwrap_or(0).saturating_sub(file.start);
            let here = (places * size).div_ceil(total.max(1)).max(1);
            for place in 0..here {
                let at = self.records.sample_offset(size / here * place);
                // The samples do not overlap, unless records are longer than the distance between positions.
                let apart = (size / here) as usize;
                let mut bytes = file.sample(file.start + at, apart.clamp(1, sample_bytes))?;
                if self.records.cut(&bytes, 2).records < 2 {
                    bytes = file.sample(file.start + at, MAX_READ_BYTES as usize)?;
                }
                let known = keys.len();
                self.records.sample_keys_within(&mut bytes, at == 0, keys_per_place, &mut keys);
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

    /// Mean length of a record in the plan.
    fn mean_record_bytes(&self) -> u64 {
        let records = self.plan.input_records.unwrap_or(0).max(1);
        self.plan.input_bytes.map_or(MAX_READ_BYTES, |bytes| bytes / records)
    }

    /// Pass two: sorts one part after another.
    fn sort_parts(&mut self, splitters: &Splitters, pass: &mut LastPass<R>) -> Result<()> {
        let first = splitters.parts() - self.manifest.runs.len();
        let parts = self.parts_that_fit(splitters, first);
        let mut at = 0;
        while at < parts.len() {
            let normal = parts[at..].iter().take_while(|(_, normal)| *normal).count();
            if normal > 0 {
                let group: Vec<Run> = parts[at..at + normal].iter().map(|(run, _)| run.clone()).collect();
                let parts = SmallParts { first: first + at, runs: &group, splitters };
                self.sort_small_parts(&parts, pass)?;
                at += normal;
            } else {
                let held = pass.rest.take_up_to(&*self.records, splitters, first + at);
                if splitters.all_equal(first + at) && self.records.keys_decide() {
                    self.append_equal_part(held, pass)?;
                } else {
                    self.sort_large_part(held, pass)?;
                }
                at += 1;
            }
        }
        Ok(())
    }

    /// The parts that are left, of which the first has the number `first`, and whether each is sorted in memory.
    fn parts_that_fit(&self, splitters: &Splitters, first: usize) -> Vec<(Run, bool)> {
        let memory = self.sort_memory(self.part_stream_bytes());
        let mut buffer = (memory.chunks.chunk_bytes() * memory.part_chunks) as u64;
        drop(memory);
        // A larger part would take more disk than the plan allows. Plans that hold records allow any that fits.
        if let Some(total) = self.inputs.record_bytes().filter(|_| self.manifest.held.is_none())
            && let StoredMethod::Distribute(keys) = &self.manifest.method
        {
            buffer = buffer.min(uneven_part_bytes(total, keys.len() as u64 + 1));
        }
        let fits = |(at, run): (usize, &Run)| {
            let equal = splitters.all_equal(first + at) && self.records.keys_decide();
            // Long records leave chunks part empty.
            let buffer = if run.longest > CARRY_BYTES_MIN as u64 { buffer / 5 * 4 } else { buffer };
            (run.clone(), !equal && run.bytes <= buffer)
        };
        self.manifest.runs.iter().enumerate().map(fits).collect()
    }

    /// Sorts parts that fit in memory.
    fn sort_small_parts(&mut self, small: &SmallParts<'_>, pass: &mut LastPass<R>) -> Result<()> {
        let SmallParts { first, runs: parts, splitters } = *small;
        let memory = self.sort_memory(self.part_stream_bytes());
        let inputs = Inputs::from_files(parts.iter().map(|part| part.as_input(&self.pool)).collect());
        let start = InputPosition::default();
        let reader = RecordReader::new(&self.records, &self.disk, inputs, &memory.chunks, start, self.cancel)
            .over_parts(memory.chunks.max_chunks().saturating_sub(2 * memory.part_chunks))
            .in_turn(self.turns_of_spills().filter(|_| self.writes_files()));
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
            let limit = self.request.top.map(|top| top.saturating_sub(pass.sums.out.count));
            // With the held records of empty parts before this one.
            let held = pass.rest.take_up_to(&*self.records, splitters, first + buffer.input);
            let sources = buffer.sources.into_iter().chain(held).collect();
            let cut = CutRules { limit, ..CutRules::default() };
            pass.sums.add(self.sources_to_output(sources, cut, &mut pass.output)?);
            if last && end < parts.len() {
                self.last_held(small, pass)?;
            }
            // Parts without records are removed together with the one after them.
            let freed = if last { parts.len() - done } else { end - done };
            done += freed;
            self.parts_done(freed, pass)
        })?;
        if done < parts.len() {
            self.last_held(small, pass)?;
        }
        self.parts_done(parts.len() - done, pass)?;
        self.key_sample = key_sample.and_then(|sample| sample.into_inner().ok());
        let outputs = u64::from(self.writes_files());
        let facts = PassFacts { inputs: parts.len() as u64, outputs, buffers: None };
        self.passes.done("sort parts", facts);
        Ok(())
    }

    /// Merges the held records of the last parts, which are empty on disk, into the output.
    fn last_held(&mut self, small: &SmallParts<'_>, pass: &mut LastPass<R>) -> Result<()> {
        let last = small.first + small.runs.len() - 1;
        let held = pass.rest.take_up_to(&*self.records, small.splitters, last);
        pass.sums.last_key = None;
        self.held_to_output(held, pass)
    }

    /// The first `count` parts are in the output: stores that, then removes them.
    fn parts_done(&mut self, count: usize, pass: &mut LastPass<R>) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        // The next part has other keys.
        pass.sums.last_key = None;
        let gone: Vec<Run> = self.manifest.runs.drain(..count).collect();
        if self.resumable
            && let Some(durable) = pass.output.checkpoint()?
        {
            self.store_output(&mut pass.output, OutputState { durable, so_far: pass.sums.clone() })?;
        }
        self.remove_runs(&gone)
    }

    /// Appends a part of equal keys, which is a sorted run already, and its `held` records. It is freed as it is
    /// copied, so the manifest stores the progress.
    fn append_equal_part(&mut self, held: Vec<Vec<Segment>>, pass: &mut LastPass<R>) -> Result<()> {
        pass.sums = self.merge_freeing(0..1, Destination::Output(&mut pass.output), pass.sums.clone())?;
        self.held_to_output(held, pass)?;
        self.parts_done(1, pass)
    }

    /// Sorts the first part, or the one of the killed job, by runs and merges, as it is larger than memory. The part is
    /// freed while its runs are formed, and the runs while they are merged, so its size does not matter to the disk.
    /// Its `held` records become runs first: then a resumed job needs no memory for them.
    fn sort_large_part(&mut self, held: Vec<Vec<Segment>>, pass: &mut LastPass<R>) -> Result<()> {
        if self.manifest.large.is_none() {
            let mut runs = std::mem::take(&mut self.manifest.runs).into_iter();
            let part = runs.next().ok_or(SortError::Internal("a part that is not there"))?;
            let later = runs.collect();
            self.manifest.runs = self.spill(held)?;
            let held_runs = self.manifest.runs.len();
            self.manifest.large = Some(LargePart { part, later, formed: false, held_runs });
            self.manifest.read_end = InputPosition::default();
        }
        if let Some(LargePart { part, formed: false, .. }) = self.manifest.large.clone() {
            self.form_large_part(&part)?;
        }
        self.reduce_runs()?;
        let runs = 0..self.manifest.runs.len();
        pass.sums = self.merge_freeing(runs, Destination::Output(&mut pass.output), pass.sums.clone())?;
        let Some(LargePart { part, later, .. }) = self.manifest.large.take() else { return Ok(()) };
        self.manifest.runs.push(part);
        let done = self.manifest.runs.len();
        self.manifest.runs.extend(later);
        self.parts_done(done, pass)
    }

    /// Forms sorted runs of the rest of a large part.
    fn form_large_part(&mut self, part: &Run) -> Result<()> {
        let memory = self.sort_memory(self.part_stream_bytes());
        let inputs = Inputs::from_files(vec![part.as_input(&self.pool)]);
        let start = self.manifest.read_end;
        let reader = RecordReader::new(&self.records, &self.disk, inputs, &memory.chunks, start, self.cancel)
            .over_spills()
            .in_turn(self.turns_of_spills());
        self.form(reader, &memory, Gather::Buffers, None)?;
        if let Some(large) = &mut self.manifest.large {
            large.formed = true;
            // The records that memory held come last among equals.
            self.manifest.runs.rotate_left(std::mem::take(&mut large.held_runs));
        }
        self.store()
    }

    /// Memory for reading a part ahead: its blocks have the size with which they were written.
    pub(super) fn part_stream_bytes(&self) -> usize {
        let written = self.manifest.runs.iter().map(|run| run.block_bytes).max().unwrap_or(0);
        let ahead = part_ahead_bytes(written.max(self.budget.block), self.budget.memory);
        ahead + self.key_sample.as_ref().map_or(0, KeySample::bytes)
    }
}
