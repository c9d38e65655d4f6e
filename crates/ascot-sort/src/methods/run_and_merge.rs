//! Sorting by forming runs and merging them, or in memory where everything fits.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ascot_bowtie::engine::{Bowtie, NoOutput};
use ascot_bowtie::schedule::{Forecast, Schedule};
use ascot_io::BlockPool;
use ascot_model::report::Report;

use crate::api::error::SortError;
use crate::job::{Job, drive};
use crate::merge::flow::MergeFlow;
use crate::merge::tasks::{CutRules, cut_tasks};
use crate::methods::freeing::{FreeingSink, Into};
use crate::output::writer::OutputWriter;
use crate::pipeline::Times;
use crate::plan::long_runs::merge_in_long_runs;
use crate::read::record_reader::RecordReader;
use crate::records::emitter::{Chunk, Merged, PassSums};
use crate::records::{Records, Rules, Segment};
use crate::report::account::{PassFacts, stage};
use crate::resources::limits::descriptors;
use crate::runs::form::{Gather, Load, SortMemory, sort_loads};
use crate::runs::input_chunks::{AnyInput, Bench, ChunkInput};
use crate::runs::natural_runs::{NaturalRuns, find_natural_runs};
use crate::runs::run::Run;
use crate::runs::run_file::RunInput;
use crate::runs::spill::Spill;
use crate::runs::store::MergingGroup;

/// Bytes of a load merged as one task.
const TASK_BYTES: u64 = 8 << 20;

/// Where a load or a batch goes.
enum Destination<'t, R: Records> {
    Output(&'t mut OutputWriter<R>),
    Spill(&'t mut Spill<R>),
}

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
            let reader = self.reader(&memory.pieces).in_turn(self.turns_of_forming());
            let in_memory = self.form(reader, &memory, gather, Some(&mut output))?;
            if let Some(sums) = in_memory {
                return self.finish(output, &sums.out, &sums.dropped);
            }
            self.manifest.all_read = true;
            self.disk.reserve_space(self.manifest.sum_in.bytes);
            self.store()?;
        }
        self.reduce_runs()?;
        let sums = self.merge_to_output(&mut output)?;
        self.finish(output, &sums.out, &sums.dropped)
    }

    /// Forms sorted runs of everything `reader` gives. With an output, what turns out to fit in
    /// memory goes straight there: then its sums are returned.
    pub fn form(
        &mut self,
        reader: RecordReader<R>,
        memory: &SortMemory,
        gather: Gather<'_>,
        mut output: Option<&mut OutputWriter<R>>,
    ) -> Result<Option<PassSums>, SortError> {
        let (records, cancel) = (Arc::clone(&self.records), self.cancel);
        let mut straight = None;
        let mut runs = 0;
        let times =
            sort_loads(&records, reader, memory, self.budget.threads, gather, cancel, &mut |load: Load| {
                self.manifest.sum_in.combine(&load.sum);
                self.take_in(&load.misfits)?;
                if let (true, true, Some(output)) =
                    (load.last, self.manifest.runs.is_empty(), output.as_deref_mut())
                {
                    straight = Some(self.load_to_output(load, self.request.top, output)?);
                } else if load.records > 0 {
                    runs += self.load_to_runs(load)?;
                }
                Ok(())
            })?;
        let name = if straight.is_some() { "sort" } else { "form runs" };
        self.passes.done(name, self.form_facts(&times, runs));
        Ok(straight)
    }

    /// What a pass that sorted tells of itself.
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
        PassFacts { inputs: self.inputs.iter().count() as u64, outputs: runs, stages }
    }

    /// Merges a load into the output.
    pub fn load_to_output(
        &mut self,
        load: Load,
        limit: Option<u64>,
        output: &mut OutputWriter<R>,
    ) -> Result<PassSums, SortError> {
        let rules = Rules { unique: self.request.unique, sum: true };
        let mut sums = PassSums::default();
        sums.add(&self.emit_load(load.sources, load.bytes, rules, limit, Destination::Output(output))?);
        Ok(sums)
    }

    /// Makes runs of a load: one, or several where parts of it are in order in the inputs. Gives the
    /// number of those written.
    fn load_to_runs(&mut self, load: Load) -> Result<u64, SortError> {
        let end = load.end;
        let refers = self.inputs.are_files() && self.request.top.is_none() && self.manifest.view.is_none();
        let latest = self.manifest.runs.iter().rev().find(|run| run.input.is_some());
        let written = match refers.then(|| find_natural_runs(&*self.records, &load, latest)).flatten() {
            Some(found) => {
                drop(load);
                self.refer(found)?
            }
            None => {
                let runs = self.spill(load.sources, load.bytes)?;
                self.manifest.runs.iter_mut().for_each(Run::close);
                let count = runs.len() as u64;
                self.manifest.runs.extend(runs);
                count
            }
        };
        self.manifest.read_upto = end;
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

    /// Merges sorted sources into a new run, or several where volumes fill up.
    fn spill(&mut self, sources: Vec<Vec<Segment>>, bytes: u64) -> Result<Vec<Run>, SortError> {
        let mut spill = self.new_spill(bytes)?;
        if self.manifest.view.is_some() {
            spill.keep_keys();
        }
        let rules = Rules { unique: self.request.unique, sum: self.manifest.view.is_some() };
        let into = Destination::Spill(&mut spill);
        let merged = self.emit_load(sources, bytes, rules, self.request.top, into)?;
        let runs = spill.finish()?;
        self.passes.spilled(runs.iter().map(|run| run.bytes).sum());
        self.manifest.dropped.combine(&merged.dropped);
        if let Some(view) = &mut self.manifest.view {
            view.sum.combine(&merged.out);
        }
        Ok(runs)
    }

    fn emit_load(
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
        self.emitters.run(tasks, rules, self.cancel, &mut |chunk: Chunk| match &mut into {
            Destination::Output(output) => output.write(chunk),
            Destination::Spill(spill) => spill.write(chunk),
        })
    }

    /// Runs that can be merged at once, by memory and by descriptors, beginning with `runs`.
    fn fan_in(&self, runs: &[Run]) -> usize {
        let memory = self.budget.streams().saturating_sub(self.budget.output_blocks * self.budget.block);
        let block = runs.iter().map(|run| run.block_bytes).max().unwrap_or(1);
        let memory = memory.saturating_sub(self.bench_bytes(runs, block) + self.key_bytes(runs));
        let mut taken = 0;
        let mut count = 0;
        for run in runs {
            // A block being merged and one being read; what is known of each block; long records.
            taken += 2 * block + run.first_keys.len() * BLOCK_FACTS_BYTES + run.long_bytes();
            if taken > memory {
                break;
            }
            count += 1;
        }
        let open = descriptors().saturating_sub(self.request.output.parts_held());
        count.min(open).min(self.request.batch_size.unwrap_or(usize::MAX)).max(2)
    }

    /// Merges runs until all that are left can be merged at once, or are no more than the plan's factor:
    /// neighbours, the smallest first, and no more of them than needed.
    pub fn reduce_runs(&mut self) -> Result<(), SortError> {
        if let Some(MergingGroup { first, count, .. }) = self.manifest.merging {
            self.merge_group(first, count)?;
        }
        let factor = self.merge_factor();
        loop {
            let most = self.fan_in(&self.manifest.runs);
            let count = self.manifest.runs.len();
            // Some more runs than planned are no reason to merge once again.
            let last = most.min(factor.saturating_add(factor / MORE_AT_LAST));
            if count <= last {
                return Ok(());
            }
            let take = most.min(factor).min(count - last + 1).max(2);
            let sizes: Vec<u64> = self.manifest.runs.iter().map(|run| run.bytes).collect();
            let first =
                (0..=count - take).min_by_key(|&at| sizes[at..at + take].iter().sum::<u64>()).unwrap_or(0);
            self.merge_group(first, take)?;
        }
    }

    /// Merges some runs into one, or goes on with that where a killed job had begun it.
    fn merge_group(&mut self, first: usize, count: usize) -> Result<(), SortError> {
        let begun = self.manifest.merging.clone();
        let group = &self.manifest.runs[first..first + count];
        let mut spill = match &begun {
            Some(MergingGroup { open, .. }) => self.resume_spill(open.clone())?,
            None => self.new_spill(group.iter().map(|run| run.bytes).sum())?,
        };
        let (sums, last_key) = match begun {
            Some(MergingGroup { so_far, .. }) => so_far.into_sums(),
            None => (PassSums::default(), None),
        };
        let rules = Rules { unique: self.request.unique, sum: false };
        let limit = self.request.top;
        let sums =
            self.merge_freeing(first..first + count, Into::Spill(&mut spill), rules, limit, sums, last_key)?;
        let runs = spill.finish()?;
        self.passes.spilled(runs.iter().map(|run| run.bytes).sum());
        self.manifest.dropped.combine(&sums.dropped);
        let group: Vec<Run> = self.manifest.runs.splice(first..first + count, runs).collect();
        self.manifest.merging = None;
        self.store()?;
        self.remove_runs(&group)
    }

    /// Merges all runs into the output.
    pub fn merge_to_output(&mut self, output: &mut OutputWriter<R>) -> Result<PassSums, SortError> {
        let (sums, last_key) = self.output_so_far();
        self.merge_limited(self.manifest.runs.len(), output, self.request.top, sums, last_key)
    }

    /// Sums of what a killed job had in its output, and the last key of it where that matters.
    fn output_so_far(&self) -> (PassSums, Option<Vec<u8>>) {
        match &self.manifest.output {
            Some(state) => state.so_far.clone().into_sums(),
            None => (PassSums::default(), None),
        }
    }

    /// Merges the first `count` runs into the output, which holds what `sums` and `last_key` tell,
    /// until it has `limit` records.
    pub fn merge_limited(
        &mut self,
        count: usize,
        output: &mut OutputWriter<R>,
        limit: Option<u64>,
        sums: PassSums,
        last_key: Option<Vec<u8>>,
    ) -> Result<PassSums, SortError> {
        let rules = Rules { unique: self.request.unique, sum: true };
        self.merge_freeing(0..count, Into::Output(output), rules, limit, sums, last_key)
    }

    /// Merges the runs `which` of the manifest, of which are in `into` what `sums` and `last_key` tell, and frees
    /// what it consumes.
    fn merge_freeing(
        &mut self,
        which: Range<usize>,
        into: Into<'_, R>,
        rules: Rules,
        limit: Option<u64>,
        sums: PassSums,
        last_key: Option<Vec<u8>>,
    ) -> Result<PassSums, SortError> {
        let runs = self.manifest.runs[which.clone()].to_vec();
        let name = if matches!(into, Into::Output(_)) { "merge" } else { "merge some" };
        // The job itself is lent to the sink, which stores how far the merge has come.
        let mut inputs = self.open_runs(&runs)?;
        let starts: Vec<usize> = runs.iter().map(|run| run.start.block).collect();
        let mut sink = FreeingSink::new(self, which, into)?;
        let (records, cancel) = sink.shared();
        let emitters = sink.emitters();
        let mut flow = MergeFlow::new(&*records, &emitters, rules, limit, cancel, &mut sink, &starts);
        flow.resume(sums, last_key);
        let waited = drive(&mut inputs, &mut flow, cancel);
        let sums = flow.sums().clone();
        drop(inputs);
        let waited = waited?;
        self.merge_done(name, runs.len(), 1, waited);
        Ok(sums)
    }

    /// Enters a merge into the account, `waited`: for blocks of its inputs.
    pub fn merge_done(&mut self, name: &str, inputs: usize, outputs: u64, waited: Duration) {
        let none = Duration::ZERO;
        let emitted = self.emitters.take_times();
        let stages = vec![
            stage("read", 1, none, none, none, waited),
            stage("merge", self.budget.threads, emitted.busy, none, emitted.waited, none),
            stage("write", 1, none, none, none, emitted.sink),
        ];
        self.passes.done(name, PassFacts { inputs: inputs as u64, outputs, stages });
    }

    /// Bytes it takes to sort chunks of inputs again, if any run refers to them.
    fn bench_bytes(&self, runs: &[Run], block: usize) -> usize {
        let refers = runs.iter().any(|run| run.input.is_some());
        if refers { Bench::bytes(&*self.records, self.piece_bytes(), block) } else { 0 }
    }

    /// Bytes of the long keys that are kept from batch to batch where duplicates are left out: the
    /// last one of the batch before, and of this one.
    fn key_bytes(&self, runs: &[Run]) -> usize {
        let longest = runs.iter().map(Run::long_bytes).max().unwrap_or(0);
        if self.request.unique { 2 * longest } else { 0 }
    }

    fn piece_bytes(&self) -> usize {
        self.budget.pieces(&|bytes| self.records.scratch_bytes(bytes)).bytes
    }

    fn open_run(&self, run: &Run, bench: Option<&Arc<Bench<R>>>) -> Result<AnyInput<R>, SortError> {
        Ok(match bench.filter(|_| run.input.is_some()) {
            Some(bench) => {
                AnyInput::Chunks(ChunkInput::new(&self.records, &self.disk, &self.inputs, run, bench))
            }
            None => AnyInput::Run(RunInput::open(&self.records, &self.disk, &self.pool, run)?),
        })
    }

    /// Opens runs for the engine, with all the memory there is for their blocks.
    fn open_runs(&self, runs: &[Run]) -> Result<Bowtie<AnyInput<R>, NoOutput>, SortError> {
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
            refers.then(|| Arc::new(Bench::new(&*self.records, &self.pool, self.piece_bytes(), block)));
        let streams =
            runs.iter().map(|run| self.open_run(run, bench.as_ref())).collect::<Result<Vec<_>, _>>()?;
        let keys: Vec<Vec<u64>> = runs
            .iter()
            .map(|run| run.first_keys.get(run.start.block..).unwrap_or_default().to_vec())
            .collect();
        let schedule: Box<dyn Schedule> = match merge_in_long_runs(&self.request.volumes, runs.len(), blocks)
        {
            Some(staircase) => Box::new(staircase),
            None => Box::new(Forecast::new(&keys)),
        };
        let inputs = Bowtie::from_inputs(streams, BlockPool::new(region, block), schedule);
        Ok(inputs.alternating(self.turns_of_spills().is_some()))
    }
}

/// Memory for what is known of each block of a run while it is merged, bytes.
const BLOCK_FACTS_BYTES: usize = 64;

/// The last merge takes more runs than the plan's factor: one in so many.
const MORE_AT_LAST: usize = 4;
