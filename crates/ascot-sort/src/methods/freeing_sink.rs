//! The sink of a merge of runs: it makes the merged records durable step by step, stores the progress of the job, and
//! frees the consumed blocks of the runs.
//!
//! ```text
//!   run 0   |......|=====|          ....  freed
//!   run 1   |...|========|
//!   into    |==== durable ====|~~~|  ~~~  at most one step: still in the runs, too
//! ```
//!
//! Invariant: nothing is freed that a killed job needs to continue, if it can be resumed.

use std::ops::Range;

use ascot_bowtie::engine::{BlockInput, Bowtie};
use ascot_io::IoError;
use ascot_model::checkpoints::merge_checkpoint_bytes;
use ascot_model::disk_use::{MIN_STEP_BYTES, step_beside};

use crate::api::Result;
use crate::job::Job;
use crate::merge::MergeSink;
use crate::output::OutputWriter;
use crate::read::InputPosition;
use crate::records::{Merged, MergedBlock, Records};
use crate::runs::{MergingGroup, OutputState, Run, RunStart, Spill};

/// Maximum length of a key that the manifest stores with the progress of a job, bytes.
const MAX_KEY_BYTES: usize = 64 << 10;
/// A step may end early by this inverse part of it.
const EARLY_SHARE: u64 = 8;

/// The destination of merged records.
pub enum Destination<'t, R: Records> {
    /// The output.
    Output(&'t mut OutputWriter<R>),
    /// A spill.
    Spill(&'t mut Spill<R>),
}

impl<R: Records> Destination<'_, R> {
    fn write(&mut self, block: MergedBlock) -> Result<()> {
        match self {
            Destination::Output(output) => output.write(block),
            Destination::Spill(spill) => spill.write(block),
        }
    }
}

impl<R: Records, I: BlockInput> MergeSink<I> for Destination<'_, R> {
    fn block(&mut self, block: MergedBlock, _: &mut Bowtie<I>) -> Result<()> {
        self.write(block)
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
    /// A merge of some of the job's runs, of which memory holds `held_bytes`.
    pub fn new(
        job: &'s mut Job<'a, R>,
        which: Range<usize>,
        into: Destination<'s, R>,
        held_bytes: u64,
    ) -> Self {
        let runs = &job.manifest.runs[which.clone()];
        let total: u64 = runs.iter().map(|run| run.bytes).sum();
        let freed = vec![0; runs.len()];
        let mut every =
            step_beside(merge_checkpoint_bytes(total, job.budget.memory as u64), held_bytes).max(1);
        let planned = job.plan.chosen.disk.step_bytes;
        if planned > 0 {
            // Only spilled bytes are on disk twice.
            let in_all = planned as f64 * total as f64 / total.saturating_sub(held_bytes).max(1) as f64;
            every = every.min(in_all as u64);
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

    /// Bytes until the current step ends.
    fn left_of_step(&self) -> u64 {
        self.next.saturating_sub(self.bytes())
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
        let max_bytes = free.into_iter().chain(planned).min().unwrap_or(self.every);
        self.every.min(max_bytes.max(MIN_STEP_BYTES))
    }

    /// Makes the merged records durable, and stores the progress.
    fn write_down(&mut self, starts: &[RunStart], so_far: &Merged) -> Result<()> {
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
    fn free(&mut self, starts: &[RunStart]) -> Result<()> {
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

impl<R: Records, I: BlockInput> MergeSink<I> for FreeingSink<'_, '_, R> {
    fn block(&mut self, block: MergedBlock, _: &mut Bowtie<I>) -> Result<()> {
        self.into.write(block)
    }

    fn batch_bytes_max(&self) -> u64 {
        self.left_of_step()
    }

    fn batch(&mut self, done: &dyn Fn() -> Vec<RunStart>, so_far: &Merged) -> Result<()> {
        // A step cannot end at a key too long to be stored.
        let stores = self.job.resumable;
        if self.left_of_step() > self.every / EARLY_SHARE
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
    pub fn free_large_part(&mut self, end: InputPosition) -> Result<()> {
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
fn give_back<R: Records>(job: &Job<'_, R>, run: &Run, end: u64) -> Result<()> {
    if run.input.is_some() || end == 0 {
        return Ok(());
    }
    match job.disk.punch(&run.path, end) {
        // Freeing space is optional: the job continues without it.
        Ok(_) | Err(IoError::Os { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
