//! Splits inputs into many files, where several passes are faster or memory does not allow all files at once.
//!
//! ```text
//!   pass 1   inputs ─▶ run 0: parts 0..22 │ run 1: parts 23..45 │ ...     intermediate files in the job's directory
//!   pass 2   run 0 ─▶ part 0, part 1, ... part 22                         under temporary names
//!            run 1 ─▶ part 23, ...
//! ```
//!
//! Consecutive parts share an intermediate file. The files are split one after another, and each is removed when its
//! parts are durable and the manifest says so; a killed job that read files continues with the files that are left.
//!
//! Invariants: every record is in one intermediate file or one complete part; a file holds records in the order of the
//! inputs, so the parts equal those of one pass. `runs` of the manifest and `nodes` of its split correspond. No part
//! gets its name before all of them are complete.

use std::ops::Range;

use ascot_io::AtomicOutput;
use ascot_model::report::Report;
use ascot_model::sort_plan::parts_of_files;
use ascot_record::checksum::RecordSum;

use crate::api::{Parts, Result, SortError, SplitBy};
use crate::job::Job;
use crate::methods::part_files::open_files;
use crate::output::{SealedPart, temporary_names};
use crate::partition::{
    AfterChunk, BetweenChunks, Grouped, HashGroups, OpenParts, PartFile, PartRun, PartStream, Router,
    open_parts, split_chunks, write_partitioned,
};
use crate::plan::{max_intermediates, max_parts, split_again_in_long_runs};
use crate::read::{InputPosition, Inputs, RecordReader, part_ahead_bytes};
use crate::records::{Records, Splitters};
use crate::report::PassFacts;
use crate::runs::{Run, SplitNode, SplitState};

/// Splits the inputs by the plan of the job, or continues the split that its manifest describes. `bounds` are the first
/// keys of the parts but the first; without any, records are split by hash.
pub fn split_in_passes<R: Records>(
    mut job: Job<'_, R>,
    parts: &Parts,
    by: SplitBy,
    bounds: Vec<Vec<u8>>,
) -> Result<Report> {
    job.resumable = job.inputs.can_be_reopened() && job.manifest.is_storable();
    if job.manifest.split.is_none() {
        let split = new_split(&job, parts, by, bounds)?;
        job.manifest.split = Some(split);
    }
    job.begin_spilling()?;
    if !job.manifest.all_read {
        job.split_inputs(parts.count)?;
    }
    let mut files = job.sealed_parts(parts)?;
    while let Some(node) = job.split_state()?.nodes.first().copied() {
        match job.fan_out(node)? {
            None => files.extend(job.split_into_parts(parts, node)?),
            Some(count) => job.split_again(node, count)?,
        }
    }
    files.sort_unstable_by_key(|(part, _)| *part);
    let out = job.split_state()?.out;
    let files: Vec<AtomicOutput> = files.into_iter().map(|(_, file)| file).collect();
    job.finish(files, &out, &RecordSum::new())
}

fn new_split<R: Records>(
    job: &Job<'_, R>,
    parts: &Parts,
    by: SplitBy,
    bounds: Vec<Vec<u8>>,
) -> Result<SplitState> {
    Ok(SplitState {
        by,
        bounds,
        factors: job.plan.chosen.factors.clone(),
        temporaries: temporary_names(parts)?,
        nodes: Vec::new(),
        done: Vec::new(),
        out: RecordSum::new(),
    })
}

/// The files that a file is split into.
pub(super) fn children(node: SplitNode, count: usize) -> Vec<SplitNode> {
    let child = |parts: Range<u64>| SplitNode {
        first: node.first + parts.start as u32,
        count: (parts.end - parts.start) as u32,
        pass: node.pass + 1,
    };
    parts_of_files(u64::from(node.count), count as u64).map(child).collect()
}

/// Assigns records to files that have the records of several parts.
pub(super) enum FileRule {
    Hash(HashGroups),
    Ranges(Splitters),
    /// The part of a key, and the file of each part.
    RangeGroups(Splitters, Vec<usize>),
}

impl FileRule {
    fn router(&self) -> Router<'_> {
        match self {
            FileRule::Hash(groups) => Router::HashGroups(groups),
            FileRule::Ranges(splitters) => Router::Ranges(splitters),
            FileRule::RangeGroups(splitters, file_of) => Router::RangeGroups(splitters, file_of),
        }
    }
}

/// The source and the destinations of a split of an intermediate file.
struct Again<'a, P: PartStream> {
    run: &'a Run,
    rule: &'a FileRule,
    files: OpenParts<P>,
    /// The name of the pass.
    pass: &'a str,
}

impl<R: Records> Job<'_, R> {
    fn split_state(&mut self) -> Result<&mut SplitState> {
        self.manifest.split.as_mut().ok_or(SortError::Internal("a split without its state"))
    }

    /// The rule by which `files` get the records of their parts.
    fn rule_of(&mut self, files: &[SplitNode], parts: u32) -> Result<FileRule> {
        let descending = self.records.descending();
        let split = self.split_state()?;
        Ok(match split.by {
            SplitBy::Size => return Err(SortError::Internal("a split by size in several passes")),
            SplitBy::Hash => {
                let firsts: Vec<usize> = files.iter().map(|file| file.first as usize).collect();
                FileRule::Hash(HashGroups::new(parts as usize, &firsts))
            }
            SplitBy::Range => {
                // Parts after the last bound get no records.
                let bound_before = |file: &SplitNode| split.bounds.get(file.first as usize - 1).cloned();
                let bounds: Vec<Vec<u8>> = files.iter().skip(1).filter_map(bound_before).collect();
                FileRule::Ranges(Splitters::new(&bounds, descending))
            }
        })
    }

    /// Number of intermediate files that a file is split into; none if it is split into its parts.
    fn fan_out(&mut self, node: SplitNode) -> Result<Option<usize>> {
        let factors = &self.split_state()?.factors;
        let planned = factors.get(node.pass).copied().filter(|_| node.pass + 1 < factors.len());
        let all = self.split_state()?.temporaries.len();
        let at_once = max_parts(&self.budget, all).max(1);
        Ok(match planned {
            Some(count) => Some(count as usize),
            None if node.count as usize <= at_once => None,
            // A resumed job may have less memory.
            None => Some((node.count as usize).div_ceil(at_once).min(max_intermediates(&self.budget)).max(2)),
        })
    }

    /// Pass one: the inputs into intermediate files.
    fn split_inputs(&mut self, parts: u32) -> Result<()> {
        let split = self.split_state()?;
        let count = split.factors.first().map_or(1, |&factor| factor as usize);
        let files = children(SplitNode { first: 0, count: parts, pass: 0 }, count);
        split.nodes.clone_from(&files);
        let rule = self.rule_of(&files, parts)?;
        // Files whose parts are all after the last bound stay empty.
        self.split_to_runs("split some", rule.router(), files.len())
    }

    /// A further pass over an intermediate file: into smaller ones.
    fn split_again(&mut self, node: SplitNode, count: usize) -> Result<()> {
        let run = self.first_run()?;
        let parts = self.split_state()?.temporaries.len() as u32;
        let new = children(node, count);
        let rule = self.rule_of(&new, parts)?;
        let runs = self.split_run_to_runs(&run, &rule, new.len(), "split some again")?;
        self.manifest.runs.extend(runs);
        self.split_state()?.nodes.extend(new);
        self.first_run_done()
    }

    /// Splits an intermediate file into `count` smaller ones, in the pass `pass`.
    pub(super) fn split_run_to_runs(
        &mut self,
        run: &Run,
        rule: &FileRule,
        count: usize,
        pass: &str,
    ) -> Result<Vec<Run>> {
        let long_runs = split_again_in_long_runs(&self.volumes(), count);
        let blocks = self.part_blocks(count, long_runs.is_some(), self.ahead_bytes(run))?;
        let sinks = self.new_part_runs(count, run.bytes / count.max(1) as u64)?;
        let files = open_parts(sinks, blocks, long_runs)?.observing(self.disk.ledger(), "split");
        let again = Again { run, rule, files, pass };
        let files = self.split_run(again, &mut |_, _| Ok(()))?;
        let runs: Vec<Run> = files.into_outputs().filter_map(PartRun::into_run).collect();
        self.spill_dirs()?.end_reservations();
        self.passes.spilled(runs.iter().map(|run| run.bytes).sum());
        Ok(runs)
    }

    /// The last pass over an intermediate file: into its parts. Returns them, complete under their temporary names.
    fn split_into_parts(&mut self, parts: &Parts, node: SplitNode) -> Result<Vec<(u32, AtomicOutput)>> {
        let run = self.first_run()?;
        let files = children(node, node.count as usize);
        let rule = self.rule_of(&files, parts.count)?;
        let long_runs = split_again_in_long_runs(&self.volumes(), files.len());
        let numbers = node.first..node.first + node.count;
        let temporaries = &self.split_state()?.temporaries;
        let named = numbers.clone().filter_map(|part| Some((part, temporaries.get(part as usize)?.clone())));
        let named: Vec<_> = named.map(|(part, name)| (parts.path(part), Some(name))).collect();
        let files = open_files(self, named, long_runs, self.ahead_bytes(&run))?;
        let records = self.records.clone();
        let mut out = RecordSum::new();
        let mut add = |grouped: &Grouped, _: &mut BetweenChunks<'_, PartFile<R>>| {
            for (_, range) in &grouped.groups {
                records.sum(&grouped.lease.bytes()[range.clone()], &mut out);
            }
            Ok(())
        };
        let again = Again { run: &run, rule: &rule, files, pass: "split" };
        let files = self.split_run(again, &mut add)?.into_outputs().map(PartFile::into_file);
        let mut files: Vec<(u32, AtomicOutput)> = numbers.zip(files).collect();
        self.split_state()?.out.combine(&out);
        self.keep_parts(&mut files)?;
        self.first_run_done()?;
        Ok(files)
    }

    /// Memory for reading an intermediate file ahead.
    fn ahead_bytes(&self, run: &Run) -> usize {
        part_ahead_bytes(run.block_bytes.max(self.budget.block), self.budget.memory)
    }

    /// Reads an intermediate file, and writes its records to the files of `again`.
    fn split_run<P: PartStream>(
        &mut self,
        again: Again<'_, P>,
        after_chunk: AfterChunk<'_, P>,
    ) -> Result<OpenParts<P>> {
        let Again { run, rule, files, pass } = again;
        let turns = self.turns_of_spills();
        let mut files = files.alternating(turns.is_some());
        let buffers = self.buffers_of(&files);
        let chunks = self.split_chunk_pool(self.ahead_bytes(run))?;
        let inputs = Inputs::from_files(vec![run.as_input(&self.pool)]);
        let start = InputPosition::default();
        let reader = RecordReader::new(&self.records, &self.disk, inputs, &chunks, start, self.cancel)
            .over_spills()
            .in_turn(turns);
        let records = self.records.clone();
        let threads = self.budget.threads;
        let cancel = self.cancel;
        split_chunks(&records, reader, &chunks, rule.router(), threads, cancel, |chunks| {
            write_partitioned(&*records, chunks, &mut files, cancel, after_chunk)
        })?;
        let outputs = files.outputs() as u64;
        self.passes.done(pass, PassFacts { inputs: 1, outputs, buffers: Some(buffers) });
        Ok(files)
    }

    fn first_run(&self) -> Result<Run> {
        self.manifest.runs.first().cloned().ok_or(SortError::Internal("an intermediate file is missing"))
    }

    /// The records of the first intermediate file are in other files, which are durable: stores that, then removes it.
    fn first_run_done(&mut self) -> Result<()> {
        let gone = self.manifest.runs.remove(0);
        self.split_state()?.nodes.remove(0);
        self.manifest.limit_indexes();
        self.store()?;
        self.remove_runs(&[gone])
    }

    /// Keeps or removes complete parts together with the job's directory, and names them in the manifest.
    fn keep_parts(&mut self, files: &mut [(u32, AtomicOutput)]) -> Result<()> {
        if !self.resumable {
            return Ok(());
        }
        let mut done = Vec::with_capacity(files.len());
        for (part, file) in files {
            done.push(SealedPart::of(*part, file)?);
            file.keep();
            if let Some(temporary) = file.persist_name() {
                self.dir()?.adopt(temporary);
            }
        }
        self.output_dirs().iter().try_for_each(|dir| self.disk.sync_dir(dir))?;
        self.split_state()?.done.extend(done);
        Ok(())
    }

    /// The complete parts of a killed job, except those that have got their names already.
    fn sealed_parts(&mut self, parts: &Parts) -> Result<Vec<(u32, AtomicOutput)>> {
        let split = self.split_state()?;
        let temporaries = split.temporaries.clone();
        let done = split.done.clone();
        let mut files = Vec::with_capacity(done.len());
        for sealed in done {
            let Some(temporary) = temporaries.get(sealed.part as usize) else { continue };
            let Some(file) = sealed.take_over(&self.disk, parts, temporary)? else { continue };
            self.dir()?.adopt(temporary);
            files.push((sealed.part, file));
        }
        Ok(files)
    }
}
