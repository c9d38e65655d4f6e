//! Sorts by forming runs and merging them, or in memory if everything fits.
//!
//! A merge of runs makes its output durable step by step, stores its progress, and frees the consumed blocks of the
//! runs:
//!
//! ```text
//!   run 0   |......|=====|          ....  freed
//!   run 1   |...|========|
//!   into    |==== durable ====|~~~|  ~~~  at most one step: still in the runs, too
//! ```
//!
//! Invariant: nothing is freed that a killed job needs to continue, if it can be resumed.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ascot_bowtie::engine::{BlockInput, BlockOutput, Bowtie};
use ascot_bowtie::schedule::{Forecast, GroupedForecast, Schedule};
use ascot_io::{BlockPool, IoError};
use ascot_model::account::BufferAccount;
use ascot_model::disk_use::MIN_STEP_BYTES;
use ascot_model::report::Report;

use crate::api::SortError;
use crate::job::Job;
use crate::merge::{CutRules, Merge, MergeSink, cut_tasks};
use crate::output::OutputWriter;
use crate::pipeline::Times;
use crate::plan::{checkpoint_bytes, merges_in_long_runs};
use crate::read::{InputPosition, RecordReader};
use crate::records::{Merged, MergedBlock, Records, Rules, Segment};
use crate::report::{PassFacts, stage};
use crate::resources::descriptors;
use crate::runs::{
    Bench, ChunkInput, Gather, MergingGroup, NaturalRuns, OutputState, Run, RunBlock, RunBuffer, RunInput,
    RunStart, SortMemory, Spill, find_natural_runs, sort_run_buffers,
};

/// Bytes of a run buffer merged as one task.
const TASK_BYTES: u64 = 8 << 20;

impl<R: Records> Job<'_, R> {
    /// Sorts the inputs; the output gets the result.
    pub fn sort_by_merge(mut self) -> Result<Report, SortError> {
        let fits = self.fits_in_memory();
        if !fits {
            self.begin_spilling()?;
        }
        let mut output = self.open_output()?;
        if !self.manifest.all_read {
            let gather = if fits { Gather::AllThatFits } else { Gather::Halves };
            let memory = self.sort_memory(0);
            let reader = self.reader(&memory.chunks).in_turn(self.turns_of_forming());
            let in_memory = self.form(reader, &memory, gather, Some(&mut output))?;
            if let Some(sums) = in_memory {
                return self.finish(output, &sums.out, &sums.dropped);
            }
            self.manifest.all_read = true;
            self.disk.space().reserve(self.manifest.sum_in.bytes);
            self.store()?;
        }
        self.reduce_runs()?;
        let sums = self.merge_to_output(&mut output)?;
        self.finish(output, &sums.out, &sums.dropped)
    }

    /// Forms sorted runs of all records of `reader`. With an output, records that turn out to fit in
    /// memory are written there instead: then their sums are returned.
    pub fn form(
        &mut self,
        reader: RecordReader<R>,
        memory: &SortMemory,
        gather: Gather<'_>,
        mut output: Option<&mut OutputWriter<R>>,
    ) -> Result<Option<Merged>, SortError> {
        let records = Arc::clone(&self.records);
        let cancel = self.cancel;
        let mut straight = None;
        let mut runs = 0;
        let times = sort_run_buffers(
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
                    straight = Some(self.run_buffer_to_output(buffer, self.request.top, output)?);
                } else if buffer.records > 0 {
                    runs += self.run_buffer_to_runs(buffer)?;
                }
                Ok(())
            },
        )?;
        let name = if straight.is_some() { "sort" } else { "form runs" };
        self.passes.done(name, self.form_facts(&times, runs));
        Ok(straight)
    }

    /// The facts of a pass that sorted, for its account.
    pub fn form_facts(&self, times: &Times, runs: u64) -> PassFacts {
        let none = Duration::ZERO;
        let threads = self.budget.threads;
        let emitted = self.emitters.take_times();
        let stages = vec![
            stage("read", 1, none, none, times.read.memory, times.read.device),
            stage("sort", threads, times.busy, none, none, none),
            stage("merge", threads, emitted.busy, none, emitted.waited, none),
            stage("write", 1, none, times.waited, none, emitted.sink),
        ];
        PassFacts { inputs: self.inputs.iter().count() as u64, outputs: runs, stages, buffers: None }
    }

    /// Merges a run buffer into the output.
    pub fn run_buffer_to_output(
        &mut self,
        buffer: RunBuffer,
        limit: Option<u64>,
        output: &mut OutputWriter<R>,
    ) -> Result<Merged, SortError> {
        let rules = Rules { unique: self.request.unique, sum: true };
        self.merge_run_buffer(buffer.sources, buffer.bytes, rules, limit, Destination::Output(output))
    }

    /// Makes runs of a run buffer: one, or several if parts of it are natural runs. Returns the
    /// number of runs written.
    fn run_buffer_to_runs(&mut self, buffer: RunBuffer) -> Result<u64, SortError> {
        let end = buffer.end;
        let refers = self.inputs.are_files() && self.request.top.is_none() && self.manifest.view.is_none();
        let latest = self.manifest.runs.iter().rev().find(|run| run.input.is_some());
        let written = match refers.then(|| find_natural_runs(&*self.records, &buffer, latest)).flatten() {
            Some(found) => {
                drop(buffer);
                self.refer(found)?
            }
            None => {
                let runs = self.spill(buffer.sources, buffer.bytes)?;
                self.manifest.runs.iter_mut().for_each(Run::close);
                let count = runs.len() as u64;
                self.manifest.runs.extend(runs);
                count
            }
        };
        self.manifest.read_end = end;
        self.manifest.limit_indexes();
        self.store()?;
        self.free_large_part(end)?;
        Ok(written)
    }

    /// Adds runs that refer to the inputs, and spills the records between them.
    fn refer(&mut self, found: NaturalRuns) -> Result<u64, SortError> {
        self.dir()?;
        let mut written = 0;
        let mut runs = found.runs.into_iter().peekable();
        for (number, (between, mixed)) in found.spilled.into_iter().zip(found.mixed).enumerate() {
            let bytes = between.iter().flatten().map(|segment| self.records.bytes_in(segment)).sum();
            let spilled = if bytes > 0 { self.spill(between, bytes)? } else { Vec::new() };
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

    /// Merges sorted sources into a new run, or several if volumes fill up.
    fn spill(&mut self, sources: Vec<Vec<Segment>>, bytes: u64) -> Result<Vec<Run>, SortError> {
        let mut spill = self.new_spill(bytes)?;
        if self.manifest.view.is_some() {
            spill.keep_keys();
        }
        let rules = Rules { unique: self.request.unique, sum: self.manifest.view.is_some() };
        let into = Destination::Spill(&mut spill);
        let merged = self.merge_run_buffer(sources, bytes, rules, self.request.top, into)?;
        let runs = spill.finish()?;
        self.passes.spilled(runs.iter().map(|run| run.bytes).sum());
        self.manifest.dropped.combine(&merged.dropped);
        if let Some(view) = &mut self.manifest.view {
            view.sum.combine(&merged.out);
        }
        Ok(runs)
    }

    fn merge_run_buffer(
        &mut self,
        sources: Vec<Vec<Segment>>,
        bytes: u64,
        rules: Rules,
        limit: Option<u64>,
        mut into: Destination<'_, R>,
    ) -> Result<Merged, SortError> {
        let tasks = (bytes / TASK_BYTES + 1).max(self.budget.threads as u64 * 2);
        let tasks = if bytes < (1 << 20) { 1 } else { tasks as usize };
        let rules_of_cut = CutRules { previous: None, limit, keeps_key: false };
        let tasks = cut_tasks(&*self.records, sources, tasks, rules_of_cut);
        self.emitters.run(tasks, rules, self.cancel, &mut |block| into.block(block))
    }

    /// Number of runs, from the front of `runs`, that memory and descriptors allow to merge at once.
    fn fan_in(&self, runs: &[Run]) -> usize {
        let memory = self.budget.streams().saturating_sub(self.budget.output_blocks * self.budget.block);
        let block = runs.iter().map(|run| run.block_bytes).max().unwrap_or(1);
        let memory = memory.saturating_sub(self.bench_bytes(runs, block) + self.key_bytes(runs));
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
        let open = descriptors().saturating_sub(self.request.output.parts_held());
        count.min(open).min(self.request.batch_size.unwrap_or(usize::MAX)).max(2)
    }

    /// Merges runs until the rest can be merged at once, or are no more than the plan's factor. Each merge takes
    /// neighbours, the smallest first, and no more of them than needed.
    pub fn reduce_runs(&mut self) -> Result<(), SortError> {
        if let Some(MergingGroup { first, count, .. }) = self.manifest.merging {
            self.merge_group(first, count)?;
        }
        let factor = self.merge_factor();
        loop {
            let most = self.fan_in(&self.manifest.runs);
            let count = self.manifest.runs.len();
            // Slightly more runs than planned are no reason for another merge.
            if count <= most.min(factor.saturating_add(factor / MORE_AT_LAST)) {
                return Ok(());
            }
            let factor = most.min(factor);
            let take = factor.min(count - factor + 1).max(2);
            let sizes: Vec<u64> = self.manifest.runs.iter().map(|run| run.bytes).collect();
            let first =
                (0..=count - take).min_by_key(|&at| sizes[at..at + take].iter().sum::<u64>()).unwrap_or(0);
            self.merge_group(first, take)?;
        }
    }

    /// Merges some runs into one, or resumes that merge of a killed job.
    fn merge_group(&mut self, first: usize, count: usize) -> Result<(), SortError> {
        let begun = self.manifest.merging.clone();
        let group = &self.manifest.runs[first..first + count];
        let mut spill = match &begun {
            Some(MergingGroup { open, .. }) => self.resume_spill(open.clone())?,
            None => self.new_spill(group.iter().map(|run| run.bytes).sum())?,
        };
        let so_far = begun.map(|group| group.so_far).unwrap_or_default();
        let sums = self.merge_freeing(first..first + count, Destination::Spill(&mut spill), so_far)?;
        let runs = spill.finish()?;
        self.passes.spilled(runs.iter().map(|run| run.bytes).sum());
        self.manifest.dropped.combine(&sums.dropped);
        let group: Vec<Run> = self.manifest.runs.splice(first..first + count, runs).collect();
        self.manifest.merging = None;
        self.manifest.limit_indexes();
        self.store()?;
        self.remove_runs(&group)
    }

    /// Merges all runs into the output, or the rest that a killed job left of them.
    pub fn merge_to_output(&mut self, output: &mut OutputWriter<R>) -> Result<Merged, SortError> {
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
    ) -> Result<Merged, SortError> {
        self.load_indexes(which.clone())?;
        let runs = self.manifest.runs[which.clone()].to_vec();
        let is_output = matches!(into, Destination::Output(_));
        let mut inputs = self.open_runs(&runs)?;
        let starts = runs.iter().map(|run| run.start.block).collect();
        let records = Arc::clone(&self.records);
        let threads = Arc::clone(&self.emitters);
        let merge = Merge {
            records: &*records,
            threads: &threads,
            rules: Rules { unique: self.request.unique, sum: is_output },
            limit: self.request.top,
            cancel: self.cancel,
            so_far,
        };
        // The sink borrows the job, to store the progress of the merge.
        let buffers = self.buffers_of(&inputs);
        let result = merge.run(&mut inputs, starts, &mut FreeingSink::new(self, which, into));
        drop(inputs);
        let (merged, waited) = result?;
        self.merge_done(if is_output { "merge" } else { "merge some" }, runs.len(), buffers, waited);
        Ok(merged)
    }

    /// Reads the indexes of the runs `which` that memory does not hold.
    fn load_indexes(&mut self, which: Range<usize>) -> Result<(), SortError> {
        for run in self.manifest.runs[which].iter_mut().filter(|run| run.input.is_none()) {
            run.index = Some(run.index(&self.disk)?);
        }
        Ok(())
    }

    /// The buffers of the streams of a pass.
    pub fn buffers_of<I: BlockInput, O: BlockOutput>(&self, streams: &Bowtie<I, O>) -> BufferAccount {
        let blocks = streams.pool().total() as u64;
        let block_bytes = streams.pool().block_bytes() as u64;
        let memory_share = (blocks * block_bytes) as f64 / self.budget.memory as f64;
        BufferAccount { blocks, block_bytes, memory_share }
    }

    /// Adds a merge to the account; `waited`: for blocks of its inputs.
    pub fn merge_done(&mut self, name: &str, inputs: usize, buffers: BufferAccount, waited: Duration) {
        let none = Duration::ZERO;
        let emitted = self.emitters.take_times();
        let stages = vec![
            stage("read", 1, none, none, none, waited),
            stage("merge", self.budget.threads, emitted.busy, none, emitted.waited, none),
            stage("write", 1, none, none, none, emitted.sink),
        ];
        let facts = PassFacts { inputs: inputs as u64, outputs: 1, stages, buffers: Some(buffers) };
        self.passes.done(name, facts);
    }

    /// Memory for sorting chunks of inputs again, if any run refers to inputs, bytes.
    fn bench_bytes(&self, runs: &[Run], block: usize) -> usize {
        let refers = runs.iter().any(|run| run.input.is_some());
        if refers { Bench::bytes(&*self.records, self.chunk_bytes(), block) } else { 0 }
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

    fn open_run(&self, run: &Run, bench: Option<&Arc<Bench<R>>>) -> Result<AnyRun, SortError> {
        Ok(match bench.filter(|_| run.input.is_some()) {
            Some(bench) => Box::new(ChunkInput::new(&self.records, &self.disk, &self.inputs, run, bench)),
            None => Box::new(RunInput::open(&self.records, &self.disk, &self.pool, run)?),
        })
    }

    /// Opens runs for the engine; their blocks take all memory left.
    fn open_runs(&self, runs: &[Run]) -> Result<Bowtie<AnyRun>, SortError> {
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
            return Err(SortError::TooLittleMemory { given, least: given + short as u64 });
        }
        let region = self.pool.region((blocks * block).max(1), "blocks of runs")?;
        let refers = runs.iter().any(|run| run.input.is_some());
        let bench =
            refers.then(|| Arc::new(Bench::new(&*self.records, &self.pool, self.chunk_bytes(), block)));
        let streams =
            runs.iter().map(|run| self.open_run(run, bench.as_ref())).collect::<Result<Vec<_>, _>>()?;
        let keys: Vec<Vec<u64>> = runs
            .iter()
            .map(|run| run.first_keys.get(run.start.block..).unwrap_or_default().to_vec())
            .collect();
        let schedule: Box<dyn Schedule> = if merges_in_long_runs(&self.volumes(), runs.len()) {
            Box::new(GroupedForecast::new(&keys, blocks as u32))
        } else {
            Box::new(Forecast::new(&keys))
        };
        let inputs = Bowtie::from_inputs(streams, BlockPool::new(region, block), schedule);
        Ok(inputs.alternating(self.turns_of_spills().is_some()))
    }
}

/// Memory for the facts about each block of a run while it is merged, bytes.
const BLOCK_FACTS_BYTES: usize = 64;

/// Inverse of the fraction by which the last merge may exceed the plan's factor.
const MORE_AT_LAST: usize = 4;

/// A run of either kind: spilled, or in the inputs.
type AnyRun = Box<dyn BlockInput<Block = RunBlock>>;

/// Maximum length of a key that the manifest stores with the progress of a job, bytes.
const MAX_KEY_BYTES: usize = 64 << 10;
/// Inverse of the fraction of a step by which it may end early.
const EARLY_SHARE: u64 = 8;

/// The destination of merged records.
pub enum Destination<'t, R: Records> {
    /// The output.
    Output(&'t mut OutputWriter<R>),
    /// A spill.
    Spill(&'t mut Spill<R>),
}

impl<R: Records> MergeSink for Destination<'_, R> {
    fn block(&mut self, block: MergedBlock) -> Result<(), SortError> {
        match self {
            Destination::Output(output) => output.write(block),
            Destination::Spill(spill) => spill.write(block),
        }
    }
}

/// The sink of a merge of runs.
pub struct FreeingSink<'s, 'a, R: Records> {
    into: Destination<'s, R>,
    job: &'s mut Job<'a, R>,
    /// The runs of the manifest that are merged.
    which: Range<usize>,
    /// Bytes of a step.
    every: u64,
    /// Length of the output at which the current step ends, bytes.
    next: u64,
    /// Bytes of each run that were freed.
    freed: Vec<u64>,
}

impl<'s, 'a, R: Records> FreeingSink<'s, 'a, R> {
    /// A merge of some of the job's runs.
    pub fn new(job: &'s mut Job<'a, R>, which: Range<usize>, into: Destination<'s, R>) -> Self {
        let runs = &job.manifest.runs[which.clone()];
        let total: u64 = runs.iter().map(|run| run.bytes).sum();
        let freed = vec![0; runs.len()];
        let mut every = checkpoint_bytes(total, job.budget.memory as u64).max(1);
        if job.plan.chosen.disk.step_bytes > 0 {
            every = every.min(job.plan.chosen.disk.step_bytes);
        }
        let mut this = FreeingSink { into, job, which, every, next: 0, freed };
        this.next = this.bytes() + this.step();
        this
    }

    fn bytes(&self) -> u64 {
        match &self.into {
            Destination::Output(output) => output.bytes(),
            Destination::Spill(spill) => spill.bytes(),
        }
    }

    /// Bytes until consumed blocks are freed again: fewer if the volume written to, which may also be that of
    /// the runs, has little space left, or the job has used its planned disk space.
    fn step(&self) -> u64 {
        let path = match &self.into {
            Destination::Output(output) => output.temporary(),
            Destination::Spill(spill) => Some(spill.path()),
        };
        let free = path.and_then(|path| self.job.disk.free_space(path).ok()).map(|free| free / 2);
        let planned = self.job.disk.space().left();
        let most = free.into_iter().chain(planned).min().unwrap_or(self.every);
        self.every.min(most.max(MIN_STEP_BYTES))
    }

    /// Makes the merged records durable, and stores the progress.
    fn write_down(&mut self, starts: &[RunStart], so_far: &Merged) -> Result<(), SortError> {
        let so_far = so_far.clone();
        match &mut self.into {
            Destination::Output(output) => {
                let Some(durable) = output.checkpoint()? else { return Ok(()) };
                self.job.manifest.move_starts(self.which.clone(), starts);
                self.job.store_output(output, OutputState { durable, so_far })
            }
            Destination::Spill(spill) => {
                let open = spill.checkpoint()?;
                let Range { start: first, end } = self.which;
                self.job.manifest.merging = Some(MergingGroup { first, count: end - first, open, so_far });
                self.job.manifest.move_starts(self.which.clone(), starts);
                self.job.store()
            }
        }
    }

    /// Frees the blocks before `starts`.
    fn free(&mut self, starts: &[RunStart]) -> Result<(), SortError> {
        for (index, start) in starts.iter().enumerate() {
            let run = &self.job.manifest.runs[self.which.start + index];
            let blocks = run.index.as_ref().map_or(&[][..], |index| &index.blocks);
            let Some(end) = blocks.get(start.block).or(blocks.last()).map(|block| block.offset) else {
                continue;
            };
            if end > self.freed[index] {
                give_back(self.job, run, end)?;
                self.job.passes.freed(end - self.freed[index]);
                self.freed[index] = end;
            }
        }
        Ok(())
    }
}

impl<R: Records> MergeSink for FreeingSink<'_, '_, R> {
    fn block(&mut self, block: MergedBlock) -> Result<(), SortError> {
        self.into.block(block)
    }

    fn batch_bytes_max(&self) -> u64 {
        self.next.saturating_sub(self.bytes())
    }

    fn batch(&mut self, done: &dyn Fn() -> Vec<RunStart>, so_far: &Merged) -> Result<(), SortError> {
        // A step cannot end at a key too long to be stored.
        let stores = self.job.resumable;
        if self.batch_bytes_max() > self.every / EARLY_SHARE
            || (stores && so_far.last_key.as_ref().is_some_and(|key| key.len() > MAX_KEY_BYTES))
        {
            return Ok(());
        }
        let starts = done();
        if stores {
            self.write_down(&starts, so_far)?;
        }
        self.free(&starts)?;
        self.next = self.bytes() + self.step();
        Ok(())
    }
}

impl<R: Records> Job<'_, R> {
    /// Frees the blocks of a part larger than memory whose records are in durable sorted runs: all before `end`.
    pub fn free_large_part(&mut self, end: InputPosition) -> Result<(), SortError> {
        let Some(large) = &self.manifest.large else { return Ok(()) };
        let part = &large.part;
        let index = part.index(&self.disk)?;
        // Beyond its last record the position is in the next input, which does not exist.
        let all = end.input > 0;
        let mut before = 0;
        let kept = index.blocks.iter().find(|block| {
            before += u64::from(block.raw);
            !all && before > end.offset
        });
        give_back(self, part, kept.map_or(index.data_end(), |block| block.offset))
    }
}

/// Frees the blocks of a spill before `end`.
fn give_back<R: Records>(job: &Job<'_, R>, run: &Run, end: u64) -> Result<(), SortError> {
    if run.input.is_some() || end == 0 {
        return Ok(());
    }
    match job.disk.punch(&run.path, end) {
        // Freeing space is optional: the job continues without it.
        Ok(_) | Err(IoError::Os { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
