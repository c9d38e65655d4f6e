//! Merging runs while what is consumed of them is freed: the sink of a merge that, step by step, makes durable what it
//! has, writes that down, and gives the blocks before it back to their volumes.
//!
//! ```text
//!   run 0   |......|=====|          ....  given back
//!   run 1   |...|========|
//!   into    |==== durable ====|~~~|  ~~~  one step at most: it is in the runs, too
//! ```
//!
//! Invariant: nothing is freed that a killed job would need to go on, where it can go on.

use std::ops::Range;
use std::sync::Arc;

use ascot_io::{IoError, read_index};
use ascot_model::disk_use::MIN_STEP_BYTES;

use crate::api::error::SortError;
use crate::api::observe::Cancel;
use crate::job::Job;
use crate::merge::emit::EmitThreads;
use crate::merge::flow::MergeSink;
use crate::output::writer::OutputWriter;
use crate::plan::planner::checkpoint_bytes;
use crate::read::inputs::InputPosition;
use crate::records::Records;
use crate::records::emitter::{Chunk, PassSums};
use crate::runs::run::{Run, RunStart};
use crate::runs::spill::Spill;
use crate::runs::store::{MergingGroup, OutputState, SoFar};

/// Longest key that is stored with how far a job has come, bytes.
const MOST_KEY_BYTES: usize = 64 << 10;
/// A step may end so much earlier as a share of it: one in so many.
const EARLY_SHARE: u64 = 8;

/// Where merged runs go.
pub enum Into<'t, R: Records> {
    /// The output.
    Output(&'t mut OutputWriter<R>),
    /// A spill.
    Spill(&'t mut Spill<R>),
}

/// The sink of a merge of runs.
pub struct FreeingSink<'s, 'a, R: Records> {
    into: Into<'s, R>,
    job: &'s mut Job<'a, R>,
    /// The runs of the manifest that are merged.
    which: Range<usize>,
    /// Where each block of each of them lies in its file.
    offsets: Vec<Vec<u64>>,
    /// Bytes of a step.
    every: u64,
    /// Bytes of output at which the step under way ends.
    next: u64,
    /// Bytes of each run that were given back.
    freed: Vec<u64>,
}

impl<'s, 'a, R: Records> FreeingSink<'s, 'a, R> {
    /// A merge of some of the job's runs.
    pub fn new(job: &'s mut Job<'a, R>, which: Range<usize>, into: Into<'s, R>) -> Result<Self, SortError> {
        let runs = &job.manifest.runs[which.clone()];
        let total: u64 = runs.iter().map(|run| run.bytes).sum();
        let offsets = runs.iter().map(|run| block_offsets(job, run)).collect::<Result<Vec<_>, _>>()?;
        let freed = vec![0; runs.len()];
        let mut every = checkpoint_bytes(total, job.budget.memory as u64).max(1);
        if job.plan.chosen.disk.step_bytes > 0 {
            every = every.min(job.plan.chosen.disk.step_bytes);
        }
        let mut this = FreeingSink { into, job, which, offsets, every, next: 0, freed };
        this.next = this.bytes() + this.step();
        Ok(this)
    }

    /// How records look, and who may stop the job.
    pub fn shared(&self) -> (Arc<R>, &'a Cancel) {
        (Arc::clone(&self.job.records), self.job.cancel)
    }

    /// Who merges.
    pub fn emitters(&self) -> Arc<EmitThreads> {
        Arc::clone(&self.job.emitters)
    }

    fn bytes(&self) -> u64 {
        match &self.into {
            Into::Output(output) => output.bytes(),
            Into::Spill(spill) => spill.bytes(),
        }
    }

    /// Bytes until what is consumed is freed the next time: fewer where the volume written to, which may be that of
    /// the runs too, has little left, or the job has taken what it was planned to.
    fn step(&self) -> u64 {
        let path = match &self.into {
            Into::Output(output) => output.temporary(),
            Into::Spill(spill) => Some(spill.path()),
        };
        let free = path.and_then(|path| self.job.disk.free_space(path).ok()).map(|free| free / 2);
        let planned = self.job.disk.space_left();
        let most = free.into_iter().chain(planned).min().unwrap_or(self.every);
        self.every.min(most.max(MIN_STEP_BYTES))
    }

    /// Makes what has been merged durable, and stores how far that is.
    fn write_down(
        &mut self,
        starts: &[RunStart],
        sums: &PassSums,
        last: Option<&[u8]>,
    ) -> Result<(), SortError> {
        let so_far = SoFar { out: sums.out, dropped: sums.dropped, last_key: last.map(<[u8]>::to_vec) };
        match &mut self.into {
            Into::Output(output) => {
                let Some(durable) = output.checkpoint()? else { return Ok(()) };
                self.job.manifest.move_starts(self.which.clone(), starts);
                self.job.store_output(output, OutputState { durable, so_far })
            }
            Into::Spill(spill) => {
                let (first, count) = (self.which.start, self.which.len());
                let open = spill.checkpoint()?;
                self.job.manifest.merging = Some(MergingGroup { first, count, open, so_far });
                self.job.manifest.move_starts(self.which.clone(), starts);
                self.job.store()
            }
        }
    }

    /// Gives the blocks before `starts` back to their volumes.
    fn free(&mut self, starts: &[RunStart]) -> Result<(), SortError> {
        for (index, start) in starts.iter().enumerate() {
            let Some(&upto) = self.offsets[index].get(start.block).or(self.offsets[index].last()) else {
                continue;
            };
            if upto > self.freed[index] {
                let run = &self.job.manifest.runs[self.which.start + index];
                give_back(self.job, run, upto)?;
                self.job.passes.freed(upto - self.freed[index]);
                self.freed[index] = upto;
            }
        }
        Ok(())
    }
}

impl<R: Records> MergeSink for FreeingSink<'_, '_, R> {
    fn chunk(&mut self, chunk: Chunk) -> Result<(), SortError> {
        match &mut self.into {
            Into::Output(output) => output.write(chunk),
            Into::Spill(spill) => spill.write(chunk),
        }
    }

    fn batch_bytes_max(&self) -> u64 {
        self.next.saturating_sub(self.bytes())
    }

    fn batch(
        &mut self,
        done: &dyn Fn() -> Vec<RunStart>,
        sums: &PassSums,
        last: Option<&[u8]>,
    ) -> Result<(), SortError> {
        // A key too long to be stored is no place to stop at.
        let stores = self.job.resumable;
        if self.batch_bytes_max() > self.every / EARLY_SHARE
            || (stores && last.is_some_and(|key| key.len() > MOST_KEY_BYTES))
        {
            return Ok(());
        }
        let starts = done();
        if stores {
            self.write_down(&starts, sums, last)?;
        }
        self.free(&starts)?;
        self.next = self.bytes() + self.step();
        Ok(())
    }
}

impl<R: Records> Job<'_, R> {
    /// Gives back what of a part larger than memory is in sorted runs, which are durable: all before `upto`.
    pub fn free_large_part(&mut self, upto: InputPosition) -> Result<(), SortError> {
        let Some(large) = &self.manifest.large else { return Ok(()) };
        let part = &large.part;
        let index = read_index(&self.disk, &part.path)?;
        // Behind its last record stands the next input, which there is none of.
        let all = upto.input > 0;
        let mut before = 0;
        let kept = index.blocks.iter().find(|block| {
            before += u64::from(block.raw);
            !all && before > upto.offset
        });
        give_back(self, part, kept.map_or(index.data_end(), |block| block.offset))
    }
}

/// Gives the blocks of a spill before `upto` back to its volume.
fn give_back<R: Records>(job: &Job<'_, R>, run: &Run, upto: u64) -> Result<(), SortError> {
    if run.input.is_some() || upto == 0 {
        return Ok(());
    }
    match job.disk.punch(&run.path, upto) {
        // Freed space is a courtesy: the job goes on without.
        Ok(_) | Err(IoError::Os { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn block_offsets<R: Records>(job: &Job<'_, R>, run: &Run) -> Result<Vec<u64>, SortError> {
    if run.input.is_some() {
        return Ok(Vec::new());
    }
    Ok(read_index(&job.disk, &run.path)?.blocks.iter().map(|block| block.offset).collect())
}
