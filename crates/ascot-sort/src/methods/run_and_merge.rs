//! Sorts by forming runs and merging them, or in memory if everything fits.
//!
//! The end of the input need not be spilled: memory holds as many of its sorted chunks as the merge can spare, and
//! merges them with the runs.
//!
//! ```text
//!   spilled   run 0, run 1, ...                   read in blocks ─╮
//!   held      chunk | chunk | chunk | chunk       in memory ──────┴▶ merge ─▶ output
//! ```
//!
//! To the manifest each held chunk is a run that refers to the input, so a resumed job reads it there again.

use std::ops::Range;
use std::sync::Arc;

use ascot_bowtie::engine::{BlockInput, BlockOutput, Bowtie};
use ascot_bowtie::schedule::{Forecast, GroupedForecast, PlannedReads, Schedule};
use ascot_io::BlockPool;
use ascot_model::account::BufferAccount;
use ascot_model::report::Report;

use crate::api::{Result, SortError};
use crate::job::Job;
use crate::merge::{CutRules, Merge, cut_tasks};
use crate::methods::freeing_sink::{Destination, FreeingSink};
use crate::output::OutputWriter;
use crate::plan::{BLOCK_FACTS_BYTES, merges_in_long_runs};
use crate::read::RecordReader;
use crate::records::{Merged, MergedBlock, Records, Rules, Segment};
use crate::report::PassFacts;
use crate::resources::{Lease, descriptors};
use crate::runs::{
    Bench, ChunkInput, Gather, MergingGroup, NaturalRuns, Run, RunBlock, RunBuffer, RunInput, SortMemory,
    ViewIndex, find_natural_runs, sort_run_buffers,
};

/// Bytes of a run buffer merged as one task.
const TASK_BYTES: u64 = 8 << 20;

impl<R: Records> Job<'_, R> {
    /// Sorts the inputs; the output gets the result.
    pub fn sort_by_merge(mut self) -> Result<Report> {
        let fits = self.fits_in_memory();
        if !fits {
            self.begin_spilling()?;
        }
        let mut output = self.open_output()?;
        if !self.manifest.all_read {
            let gather = self.gather();
            let memory = self.sort_memory(0);
            let reader = self.reader(&memory.chunks).in_turn(self.turns_of_forming());
            let in_memory = self.form(reader, &memory, gather, Some(&mut output))?;
            memory.chunks.close();
            if let Some(sums) = in_memory {
                return self.finish(output, &sums.out, &sums.dropped);
            }
            self.manifest.all_read = true;
            self.disk.space().reserve(self.manifest.sum_in.bytes);
            self.store()?;
        }
        if self.held.is_empty() {
            self.reduce_runs()?;
        }
        let sums = self.merge_to_output(&mut output)?;
        self.finish(output, &sums.out, &sums.dropped)
    }

    /// Gathers runs that the plan spills; the rest of the input stays in memory. So does the end of a pipe, unless the
    /// volume wants long runs.
    fn gather(&self) -> Gather<'static> {
        match self.inputs.bytes_after(self.manifest.read_end) {
            None if !self.budget.long_runs => Gather::InSteps,
            _ if self.fits_in_memory() => Gather::AllThatFits,
            Some(left_bytes) if self.plan.chosen.held_bytes > 0 => {
                Gather::Holding { left_bytes, held_bytes: self.plan.chosen.held_bytes }
            }
            _ => Gather::Buffers,
        }
    }

    /// Forms sorted runs of all records of `reader`. With an output, the last records may stay in memory, and records
    /// that turn out to fit there wholly are written to the output instead: then their sums are returned.
    pub fn form(
        &mut self,
        reader: RecordReader<R>,
        memory: &SortMemory,
        gather: Gather<'_>,
        mut output: Option<&mut OutputWriter<R>>,
    ) -> Result<Option<Merged>> {
        let records = Arc::clone(&self.records);
        let cancel = self.cancel;
        let mut straight = None;
        let mut runs = 0;
        sort_run_buffers(
            &records,
            reader,
            memory,
            self.budget.threads,
            gather,
            cancel,
            &mut |buffer: RunBuffer| {
                self.manifest.sum_in.combine(&buffer.sum);
                self.take_in(&buffer.misfits)?;
                if let (true, true, Some(output)) =
                    (buffer.last, self.manifest.runs.is_empty(), output.as_deref_mut())
                {
                    let cut = CutRules { limit: self.request.top, ..CutRules::default() };
                    straight = Some(self.sources_to_output(buffer.sources, cut, output)?);
                } else if buffer.records > 0 {
                    let may_hold = buffer.last && output.is_some();
                    runs += self.run_buffer_to_runs(buffer, may_hold)?;
                }
                Ok(())
            },
        )?;
        let name = if straight.is_some() { "sort" } else { "form runs" };
        let inputs = self.inputs.iter().count() as u64;
        self.passes.done(name, PassFacts { inputs, outputs: runs, buffers: None });
        Ok(straight)
    }

    /// Merges sources in memory into the output.
    pub fn sources_to_output(
        &mut self,
        sources: Vec<Vec<Segment>>,
        cut: CutRules,
        output: &mut OutputWriter<R>,
    ) -> Result<Merged> {
        let rules = Rules { unique: self.request.unique, sum: true };
        self.merge_run_buffer(sources, rules, cut, &mut |block| output.write(block))
    }

    /// Makes runs of a run buffer: one, or several if parts of it are natural runs. A run buffer that memory may hold
    /// stays there if it can. Returns the number of runs written.
    fn run_buffer_to_runs(&mut self, buffer: RunBuffer, may_hold: bool) -> Result<u64> {
        let end = buffer.end;
        let refers = self.inputs.are_files() && self.request.top.is_none() && self.manifest.view.is_none();
        let latest = self.manifest.runs.iter().rev().find(|run| run.input.is_some());
        let written = match refers.then(|| find_natural_runs(&*self.records, &buffer, latest)).flatten() {
            Some(found) => {
                drop(buffer);
                self.refer(found)?
            }
            None => {
                self.manifest.runs.iter_mut().for_each(Run::close);
                let first = if may_hold { self.chunks_to_spill(&buffer) } else { buffer.sources.len() };
                self.spill_and_hold(buffer, first)?
            }
        };
        self.manifest.read_end = end;
        self.manifest.limit_indexes();
        self.store()?;
        self.free_large_part(end)?;
        Ok(written)
    }

    /// Spills the first chunks of a run buffer, and holds the others if memory allows. Returns the number of runs
    /// written.
    fn spill_and_hold(&mut self, mut buffer: RunBuffer, first: usize) -> Result<u64> {
        let mut count = 0;
        let mut spill = |job: &mut Self, sources: Vec<Vec<Segment>>| -> Result<()> {
            let runs = job.spill(sources)?;
            count += runs.len() as u64;
            job.manifest.runs.extend(runs);
            Ok(())
        };
        let held = buffer.sources.split_off(first);
        let spans = buffer.spans.split_off(first);
        spill(self, std::mem::take(&mut buffer.sources))?;
        // The first chunks had longer records than expected if memory does not hold the others now.
        if held.is_empty() || !self.can_hold(&self.manifest.runs, &held) {
            spill(self, held)?;
            return Ok(count);
        }
        let records = Arc::clone(&self.records);
        let chunks = held.iter().zip(&spans);
        self.manifest.runs.extend(chunks.map(|(source, spans)| Run::of_held_chunk(&*records, source, spans)));
        self.held = held;
        Ok(count)
    }

    /// Number of the first chunks of the last run buffer that are spilled so that the others can be merged from memory:
    /// all of them if the plan spills everything, or if a resumed job could not read the others again.
    fn chunks_to_spill(&self, buffer: &RunBuffer) -> usize {
        let all = buffer.sources.len();
        let spilled = &self.manifest.runs;
        let none_planned = self.plan.chosen.held_bytes == 0;
        let long_runs = merges_in_long_runs(&self.request.volumes, spilled.len(), self.writes_files());
        if none_planned && long_runs {
            return all;
        }
        if self.resumable && buffer.spans.iter().any(Vec::is_empty) {
            return all;
        }
        // The run of the first chunks is taken to be like the one before it.
        let runs: Vec<Run> = spilled.iter().chain(spilled.last()).cloned().collect();
        let fits = |first: &usize| {
            let runs = if *first == 0 { spilled } else { &runs };
            self.can_hold(runs, &buffer.sources[*first..])
        };
        (0..all).find(fits).unwrap_or(all)
    }

    /// Whether memory suffices to merge `runs` at once beside held chunks.
    fn can_hold(&self, runs: &[Run], held: &[Vec<Segment>]) -> bool {
        // Chunks that were sorted together share a buffer.
        let mut buffers: Vec<&Arc<Lease>> =
            held.iter().flatten().map(|segment| &segment.sorted.lease).collect();
        buffers.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let held_bytes: usize = buffers.iter().map(|buffer| buffer.bytes().len()).sum();
        self.mergeable(runs, self.last_merge_memory(runs, held_bytes)) == runs.len()
    }

    /// Adds runs that refer to the inputs, and spills the records between them.
    fn refer(&mut self, found: NaturalRuns) -> Result<u64> {
        self.dir()?;
        let mut written = 0;
        let mut runs = found.runs.into_iter().peekable();
        for (number, (between, mixed)) in found.spilled.into_iter().zip(found.mixed).enumerate() {
            let spilled = self.spill(between)?;
            written += spilled.len() as u64;
            let latest = self.manifest.runs.iter().rposition(|run| run.input.is_some());
            let continues = match (latest, runs.peek()) {
                (Some(latest), Some(next)) if number == 0 && !mixed => {
                    self.manifest.runs[latest].extend_with(&*self.records, next)
                }
                _ => false,
            };
            match latest {
                // Records before a run's continuation come before the run.
                Some(latest) if continues => {
                    runs.next();
                    self.manifest.runs.splice(latest..latest, spilled);
                }
                _ => {
                    let open = runs.peek().is_none() && !mixed;
                    if !open {
                        self.manifest.runs.iter_mut().for_each(Run::close);
                    }
                    self.manifest.runs.extend(spilled);
                    self.manifest.runs.extend(runs.next());
                }
            }
        }
        Ok(written)
    }

    /// Merges sorted sources into a new run, or several if volumes fill up; none if they have no records.
    pub(super) fn spill(&mut self, sources: Vec<Vec<Segment>>) -> Result<Vec<Run>> {
        let bytes = self.bytes_of(&sources);
        if bytes == 0 {
            return Ok(Vec::new());
        }
        let mut spill = self.new_spill("form runs", bytes)?;
        if self.manifest.view.is_some() {
            spill.keep_keys();
        }
        let rules = Rules { unique: self.request.unique, sum: self.manifest.view.is_some() };
        let cut = CutRules { limit: self.request.top, ..CutRules::default() };
        let merged = self.merge_run_buffer(sources, rules, cut, &mut |block| spill.write(block))?;
        let mut runs = self.end_spill(spill, &merged)?;
        if rules.unique && self.request.top.is_none() {
            self.manifest.duplicates.add_run(bytes, runs.iter().map(|run| run.bytes).sum());
        }
        if let Some(view) = &mut self.manifest.view {
            view.sum.combine(&merged.out);
            self.index_of_view(&mut runs)?;
        }
        Ok(runs)
    }

    /// Adds complete runs to the index of the view that the job makes.
    pub fn index_of_view(&mut self, runs: &mut [Run]) -> Result<()> {
        let dir = self.dir()?.path().to_path_buf();
        let index = self.view_index.get_or_insert_with(|| ViewIndex::new(&self.disk, &dir));
        runs.iter_mut().try_for_each(|run| index.add_run(&*self.records, run, self.cancel).map(|_| ()))
    }

    fn merge_run_buffer(
        &mut self,
        sources: Vec<Vec<Segment>>,
        rules: Rules,
        cut: CutRules,
        sink: &mut dyn FnMut(MergedBlock) -> Result<()>,
    ) -> Result<Merged> {
        let bytes = self.bytes_of(&sources);
        let tasks = (bytes / TASK_BYTES + 1).max(self.budget.threads as u64 * 2);
        let tasks = if bytes < (1 << 20) { 1 } else { tasks as usize };
        let tasks = cut_tasks(&*self.records, sources, tasks, cut);
        self.emitters.run(tasks, rules, self.cancel, sink)
    }

    /// Bytes of the records of some sources.
    pub(super) fn bytes_of(&self, sources: &[Vec<Segment>]) -> u64 {
        sources.iter().flatten().map(|segment| self.records.bytes_in(segment)).sum()
    }

    /// Number of runs, from the front of `runs`, that are merged at once: at least two.
    fn fan_in(&self, runs: &[Run]) -> usize {
        self.mergeable(runs, self.merge_memory(runs, self.held_memory)).max(2)
    }

    /// Number of runs, from the front of `runs`, that `memory` and descriptors allow to merge at once.
    fn mergeable(&self, runs: &[Run], memory: usize) -> usize {
        let block = runs.iter().map(|run| run.block_bytes).max().unwrap_or(1);
        let mut taken = 0;
        let mut count = 0;
        for run in runs {
            // A block being merged and one being read; facts about each block; long records.
            taken += 2 * block + run.first_keys.len() * BLOCK_FACTS_BYTES + run.long_bytes();
            if taken > memory {
                break;
            }
            count += 1;
        }
        self.at_most(count)
    }

    /// Number of runs of equal size that memory and descriptors allow to merge at last, beside the facts about the
    /// blocks of all `runs`, which early merges leave as they are.
    fn last_fan_in(&self, runs: &[Run]) -> usize {
        let block = runs.iter().map(|run| run.block_bytes).max().unwrap_or(1);
        let facts: usize = runs.iter().map(|run| run.first_keys.len() * BLOCK_FACTS_BYTES).sum();
        let long = runs.iter().map(Run::long_bytes).max().unwrap_or(0);
        let most = self.merge_memory(runs, self.held_memory).saturating_sub(facts) / (2 * block + long);
        self.at_most(most).max(2)
    }

    /// Memory of a merge of `runs` beside `held_bytes`, for their blocks and the facts about these.
    fn merge_memory(&self, runs: &[Run], held_bytes: usize) -> usize {
        let spare = self.budget.output_blocks * self.budget.block;
        self.last_merge_memory(runs, held_bytes).saturating_sub(spare)
    }

    /// The same with the blocks that are kept for reading ahead: beside records that memory holds, few are read.
    fn last_merge_memory(&self, runs: &[Run], held_bytes: usize) -> usize {
        let block = runs.iter().map(|run| run.block_bytes).max().unwrap_or(1);
        let others = held_bytes + self.bench_bytes(runs, block) + self.key_bytes(runs);
        self.budget.streams().saturating_sub(others)
    }

    /// `count` runs, or as many as descriptors and the request allow to merge at once.
    fn at_most(&self, count: usize) -> usize {
        let open = descriptors().saturating_sub(self.request.output.parts_held());
        count.min(open).min(self.request.batch_size.unwrap_or(usize::MAX))
    }

    /// Merges runs until the rest can be merged at once, or are no more than the plan's factor. Each merge takes
    /// neighbours, the smallest first, and no more of them than needed.
    pub fn reduce_runs(&mut self) -> Result<()> {
        if let Some(MergingGroup { first, count, .. }) = self.manifest.merging {
            self.merge_group(first, count)?;
        }
        let factor = self.merge_factor();
        // Slightly more runs than planned are no reason for another pass.
        let mut at_once = factor.saturating_add(factor / MORE_AT_LAST);
        loop {
            let fan_in = self.fan_in(&self.manifest.runs);
            let count = self.manifest.runs.len();
            if count <= fan_in.min(at_once) {
                return Ok(());
            }
            at_once = factor;
            let factor = fan_in.min(factor);
            let last = factor.min(self.last_fan_in(&self.manifest.runs));
            let take = factor.min((count - last.min(count) + 1).max(2));
            let sizes: Vec<u64> = self.manifest.runs.iter().map(|run| run.bytes).collect();
            let first = smallest_neighbours(&sizes, take);
            self.merge_group(first, take)?;
        }
    }

    /// Merges some runs into one, or resumes that merge of a killed job.
    fn merge_group(&mut self, first: usize, count: usize) -> Result<()> {
        let begun = self.manifest.merging.clone();
        let group = &self.manifest.runs[first..first + count];
        let mut spill = match &begun {
            Some(MergingGroup { open, .. }) => self.resume_spill(open.clone())?,
            None => self.new_spill("merge some", group.iter().map(|run| run.bytes).sum())?,
        };
        let so_far = begun.map(|group| group.so_far).unwrap_or_default();
        let sums = self.merge_freeing(first..first + count, Destination::Spill(&mut spill), so_far)?;
        let runs = self.end_spill(spill, &sums)?;
        let group: Vec<Run> = self.manifest.runs.splice(first..first + count, runs).collect();
        self.manifest.merging = None;
        self.manifest.limit_indexes();
        self.store()?;
        self.remove_runs(&group)
    }

    /// Merges all runs into the output, or the rest that a killed job left of them.
    pub fn merge_to_output(&mut self, output: &mut OutputWriter<R>) -> Result<Merged> {
        let so_far = self.manifest.output.as_ref().map(|state| state.so_far.clone()).unwrap_or_default();
        self.merge_freeing(0..self.manifest.runs.len(), Destination::Output(output), so_far)
    }

    /// Merges the runs `which` of the manifest into `into`, which already has `so_far` of them, and frees their
    /// consumed blocks.
    pub fn merge_freeing(
        &mut self,
        which: Range<usize>,
        into: Destination<'_, R>,
        so_far: Merged,
    ) -> Result<Merged> {
        self.load_indexes(which.clone())?;
        let runs = self.manifest.runs[which.clone()].to_vec();
        let is_output = matches!(into, Destination::Output(_));
        let in_memory = if is_output { std::mem::take(&mut self.held) } else { Vec::new() };
        let (spilled, held) = runs.split_at(runs.len() - in_memory.len());
        let held_bytes = held.iter().map(|run| run.bytes).sum();
        if is_output {
            self.expect_duplicates(spilled.iter().map(|run| run.bytes).sum());
        }
        let to_file = !is_output || self.writes_files();
        let mut inputs = self.open_runs(spilled, to_file)?;
        let starts = spilled.iter().map(|run| run.start.block).collect();
        let records = Arc::clone(&self.records);
        let threads = Arc::clone(&self.emitters);
        let rules = Rules { unique: self.request.unique, sum: is_output };
        let merge = Merge::new(&*records, &threads, rules, self.cancel);
        let merge = Merge { limit: self.request.top, so_far, in_memory, ..merge };
        // The sink borrows the job, to store the progress of the merge.
        let buffers = self.buffers_of(&inputs);
        let result = merge.run(&mut inputs, starts, &mut FreeingSink::new(self, which, into, held_bytes));
        drop(inputs);
        let merged = result?;
        self.merge_done(if is_output { "merge" } else { "merge some" }, spilled.len(), to_file, buffers);
        Ok(merged)
    }

    /// Reads the indexes of the runs `which` that memory does not hold.
    fn load_indexes(&mut self, which: Range<usize>) -> Result<()> {
        for run in self.manifest.runs[which].iter_mut().filter(|run| run.input.is_none()) {
            run.index = Some(run.index(&self.disk)?);
        }
        Ok(())
    }

    /// The buffers of the streams of a pass.
    pub fn buffers_of<I: BlockInput, O: BlockOutput>(&self, streams: &Bowtie<I, O>) -> BufferAccount {
        let pool = streams.pool();
        BufferAccount::new(pool.total(), pool.block_bytes(), self.budget.memory)
    }

    /// Adds a merge to the account.
    pub fn merge_done(&mut self, name: &str, inputs: usize, to_file: bool, buffers: BufferAccount) {
        let outputs = u64::from(to_file);
        self.passes.done(name, PassFacts { inputs: inputs as u64, outputs, buffers: Some(buffers) });
    }

    /// Memory for sorting chunks of inputs again, if any run refers to inputs, bytes.
    fn bench_bytes(&self, runs: &[Run], block: usize) -> usize {
        let refers = runs.iter().any(|run| run.input.is_some());
        if refers { Bench::bytes(&*self.records, self.chunk_bytes().max(block), block) } else { 0 }
    }

    /// Bytes of the long keys kept between batches if duplicates are dropped: the last key of the previous batch and
    /// that of this one.
    fn key_bytes(&self, runs: &[Run]) -> usize {
        let longest = runs.iter().map(Run::long_bytes).max().unwrap_or(0);
        if self.request.unique { 2 * longest } else { 0 }
    }

    fn chunk_bytes(&self) -> usize {
        self.budget.chunks(&|bytes| self.records.scratch_bytes(bytes)).bytes
    }

    fn open_run(&self, run: &Run, bench: Option<&Arc<Bench<R>>>, long_runs: bool) -> Result<AnyRun> {
        Ok(match bench.filter(|_| run.input.is_some()) {
            Some(bench) => {
                let chunks = ChunkInput::new(&self.records, &self.disk, &self.inputs, run, bench);
                Box::new(chunks.in_long_runs(long_runs, run))
            }
            None => Box::new(RunInput::open(&self.records, &self.disk, &self.pool, run)?),
        })
    }

    /// Opens runs for the engine; their blocks take all memory left. `to_file`: they are merged into a file.
    fn open_runs(&self, runs: &[Run], to_file: bool) -> Result<Bowtie<AnyRun>> {
        let block = runs.iter().map(|run| run.block_bytes).max().unwrap_or(1).max(ascot_io::PAGE_BYTES);
        let long: usize = runs.iter().map(Run::long_bytes).sum();
        let facts: usize = runs.iter().map(|run| run.first_keys.len() * BLOCK_FACTS_BYTES).sum();
        let facts = facts + self.bench_bytes(runs, block) + self.key_bytes(runs);
        let left = self.pool.available().saturating_sub(long + facts);
        let needed = runs
            .iter()
            .map(|run| run.first_keys.len() - run.start.block.min(run.first_keys.len()))
            .sum::<usize>();
        let blocks = (left / block).min(needed.max(runs.len()));
        if blocks < runs.len() {
            let short = runs.len() * block + long + facts - self.pool.available();
            let given = self.budget.memory as u64;
            return Err(SortError::TooLittleMemory { given_bytes: given, min_bytes: given + short as u64 });
        }
        let region = self.pool.region((blocks * block).max(1), "blocks of runs")?;
        let refers = runs.iter().any(|run| run.input.is_some());
        let bench = refers
            .then(|| Arc::new(Bench::new(&*self.records, &self.pool, self.chunk_bytes().max(block), block)));
        let long_runs = merges_in_long_runs(&self.volumes(), runs.len(), to_file);
        let streams = runs
            .iter()
            .map(|run| self.open_run(run, bench.as_ref(), long_runs))
            .collect::<Result<Vec<_>, _>>()?;
        let keys: Vec<Vec<u64>> = runs
            .iter()
            .map(|run| run.first_keys.get(run.start.block..).unwrap_or_default().to_vec())
            .collect();
        let schedule: Box<dyn Schedule> = match long_runs {
            true if to_file => Box::new(GroupedForecast::new(&keys, blocks as u32)),
            true => Box::new(PlannedReads::new(&keys, blocks as u32)),
            false => Box::new(Forecast::new(&keys)),
        };
        let inputs = Bowtie::from_inputs(streams, BlockPool::new(region, block), schedule)
            .observing(self.disk.ledger(), "merge");
        Ok(inputs.alternating(to_file && self.turns_of_spills().is_some()))
    }
}

/// The first `count` neighbours that together are about as small as any. Choosing the very smallest would leave fewer
/// than `count` small ones between merged ones, which then have to be merged with these.
fn smallest_neighbours(sizes: &[u64], count: usize) -> usize {
    let sums = || sizes.windows(count).map(|run_bytes| run_bytes.iter().sum::<u64>());
    let smallest = sums().min().unwrap_or(0);
    sums().position(|sum| sum <= smallest + smallest / ABOUT_SHARE).unwrap_or(0)
}

/// Sums of run lengths count as equal if they differ by no more than this inverse part.
const ABOUT_SHARE: u64 = 16;

/// The last merge may exceed the plan's factor by this inverse part of it.
const MORE_AT_LAST: usize = 4;

/// A run of either kind: spilled, or in the inputs.
type AnyRun = Box<dyn BlockInput<Block = RunBlock>>;

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of almost equal length are merged from the front, so that each is merged once before the last merge.
    #[test]
    fn neighbours_leave_no_gaps() {
        let mut sizes: Vec<u64> = (0..44).map(|number| 13_000_000 - number % 5 * 100).collect();
        let mut merged = 0;
        while sizes.len() > 8 {
            let first = smallest_neighbours(&sizes, 7);
            let sum = sizes[first..first + 7].iter().sum();
            merged += sum;
            sizes.splice(first..first + 7, [sum]);
        }
        assert!(merged < 42 * 13_000_000, "{merged}");
        assert_eq!(smallest_neighbours(&[9, 9, 1, 1, 9], 2), 2);
    }
}
