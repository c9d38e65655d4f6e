//! Merging n sorted inputs into one stream: the flow in the middle of an n x 1 bowtie.
//!
//! The inputs hold blocks in memory. What is smaller than the last record of every input that has
//! more to come can be merged now, whatever comes later; this is a *batch*. A batch is cut into
//! tasks by key range and merged by all threads, while the engine reads on.
//!
//! ```text
//!   input 0  [==========|..]           |: the bound, the smallest of the inputs' last records
//!   input 1  [=====|......]            =: the batch
//!   input 2  [=============|]  <- its last record is the bound
//! ```
//!
//! Where equal records fill an input's blocks, nothing is below the bound. Then the first input
//! that stands on such a record gives all of them it holds, by itself: equal records come input by
//! input.

use std::collections::VecDeque;
use std::time::Duration;

use ascot_bowtie::engine::{BlockInput, Bowtie};
use ascot_bowtie::flow::{self, Flow, Step};

use crate::api::error::SortError;
use crate::api::observe::Cancel;
use crate::merge::emit::{CutRules, EmitThreads, cut_tasks};
use crate::records::emitter::{Chunk, Merged};
use crate::records::{Records, Rules, Segment, Side};
use crate::runs::run::RunStart;
use crate::runs::run_file::RunBlock;

/// Takes the merged records of a merge, and may store its progress.
pub trait MergeSink {
    /// Takes merged records, in order.
    fn chunk(&mut self, chunk: Chunk) -> Result<(), SortError>;
    /// Most bytes of a batch, where records allow.
    fn batch_bytes_max(&self) -> u64 {
        u64::MAX
    }
    /// A batch is done: the sink has all records before the positions that `done` returns. A sink that stores no
    /// progress ignores it.
    fn batch(&mut self, _done: &dyn Fn() -> Vec<RunStart>, _so_far: &Merged) -> Result<(), SortError> {
        Ok(())
    }
}

/// A merge of sorted inputs.
pub struct Merge<'a, R> {
    /// Their records.
    pub records: &'a R,
    /// The threads that merge.
    pub threads: &'a EmitThreads,
    /// Which records it leaves out, and whether it sums them up.
    pub rules: Rules,
    /// Most records of the result.
    pub limit: Option<u64>,
    /// Stops it.
    pub cancel: &'a Cancel,
    /// What was merged before, if it continues.
    pub so_far: Merged,
}

impl<R: Records> Merge<'_, R> {
    /// Merges `inputs`, of which the first blocks have the numbers `starts`, into `sink`. Returns the sums of all that is
    /// merged now, and the time waited for blocks.
    pub fn run<I: BlockInput<Block = RunBlock>>(
        self,
        inputs: &mut Bowtie<I>,
        starts: Vec<usize>,
        sink: &mut dyn MergeSink,
    ) -> Result<(Merged, Duration), SortError> {
        let cancel = self.cancel;
        let mut flow = MergeFlow {
            held: starts.iter().map(|_| VecDeque::new()).collect(),
            next_block: starts,
            merge: self,
            sink,
            small_batch: false,
            bounding: None,
        };
        flow::run(inputs, &mut flow, || cancel.check())?;
        Ok((flow.merge.so_far, inputs.waited()))
    }
}

struct Held {
    segment: Segment,
    block: usize,
    long: bool,
}

struct MergeFlow<'a, R> {
    merge: Merge<'a, R>,
    sink: &'a mut dyn MergeSink,
    held: Vec<VecDeque<Held>>,
    /// The block of each input after those taken.
    next_block: Vec<usize>,
    /// It has waited once for the bounding input.
    small_batch: bool,
    /// The input whose last record in memory is the smallest: it runs out first.
    bounding: Option<usize>,
}

/// Bytes below which a batch waits for more blocks of the input that bounds it.
const SMALL_BATCH_BYTES: u64 = 4 << 20;

/// Bytes of a task at least; smaller ones cost more to cut than they gain.
const TASK_BYTES: u64 = 1 << 20;

impl<R: Records> MergeFlow<'_, R> {
    fn gather<I: BlockInput<Block = RunBlock>>(&mut self, inputs: &mut Bowtie<I>) {
        for (index, held) in self.held.iter_mut().enumerate() {
            while let Some(RunBlock { segment, block, end, long }) = inputs.take(index) {
                self.next_block[index] = end;
                held.push_back(Held { segment, block, long });
            }
        }
    }

    /// The smallest last record of the inputs that have more to come, and its input.
    fn bound<I: BlockInput<Block = RunBlock>>(&self, inputs: &Bowtie<I>) -> Option<(R::Bound, usize)> {
        self.smallest_last(|index, held| held.back().filter(|_| !inputs.exhausted(index)))
    }

    /// The smallest last record of one block of each input, and its input. `block` chooses the block.
    fn smallest_last(
        &self,
        block: impl Fn(usize, &VecDeque<Held>) -> Option<&Held>,
    ) -> Option<(R::Bound, usize)> {
        let records = self.merge.records;
        let mut smallest: Option<(R::Bound, usize)> = None;
        for (index, held) in self.held.iter().enumerate() {
            let Some(block) = block(index, held) else { continue };
            let last = records.last(&block.segment);
            if smallest.as_ref().is_none_or(|(bound, _)| records.compare(&last, bound).is_lt()) {
                smallest = Some((last, index));
            }
        }
        smallest
    }

    /// Takes the records below `bound` off the inputs.
    fn take_batch(&mut self, bound: Option<&R::Bound>) -> Vec<Vec<Segment>> {
        let records = self.merge.records;
        let sources = self.held.iter_mut().map(|held| take_up_to(records, held, bound, Side::Lower));
        sources.filter(|source| !source.is_empty()).collect()
    }

    /// Everything in memory that equals `bound`, of the first input that has such a record.
    fn take_equals(&mut self, bound: &R::Bound) -> Vec<Vec<Segment>> {
        let records = self.merge.records;
        let mut sources =
            self.held.iter_mut().map(|held| take_up_to(records, held, Some(bound), Side::Upper));
        sources.find(|source| !source.is_empty()).into_iter().collect()
    }

    fn emit<I: BlockInput<Block = RunBlock>>(
        &mut self,
        batch: Vec<Vec<Segment>>,
        inputs: &mut Bowtie<I>,
    ) -> Result<(), SortError> {
        let bytes: u64 = batch.iter().flatten().map(|segment| self.merge.records.bytes_in(segment)).sum();
        let Merge { records, threads, rules, limit, cancel, so_far } = &mut self.merge;
        let most = 8 * threads.count() as u64;
        let tasks = (bytes / TASK_BYTES.max(batch.len() as u64 * (64 << 10))).clamp(1, most) as usize;
        let left = limit.map(|limit| limit.saturating_sub(so_far.out.count));
        // The last task gives the key back, or one that comes after it.
        let cut = CutRules { previous: so_far.last_key.take(), limit: left, keeps_key: true };
        let tasks = cut_tasks(*records, batch, tasks, cut);
        let sink = &mut *self.sink;
        let merged = threads.run(tasks, *rules, cancel, &mut |chunk| {
            sink.chunk(chunk)?;
            // Blocks come free while the batch is merged: the device must not run dry.
            Ok(inputs.pump()?)
        })?;
        so_far.add(merged);
        Ok(())
    }

    /// Reports to the sink how far the merge has come.
    fn report_progress(&mut self) -> Result<(), SortError> {
        let held = &self.held;
        let next_block = &self.next_block;
        let records = self.merge.records;
        let done = || {
            let position = |(held, &next): (&VecDeque<Held>, &usize)| match held.front() {
                Some(front) => RunStart { block: front.block, offset: records.offset_of(front.segment.lo) },
                None => RunStart { block: next, offset: 0 },
            };
            held.iter().zip(next_block).map(position).collect()
        };
        self.sink.batch(&done, &self.merge.so_far)
    }
}

/// Takes the segments of one input up to `bound` (all without one).
fn take_up_to<R: Records>(
    records: &R,
    held: &mut VecDeque<Held>,
    bound: Option<&R::Bound>,
    side: Side,
) -> Vec<Segment> {
    let mut source = Vec::new();
    while let Some(front) = held.front_mut() {
        let at = bound.map_or(front.segment.hi, |bound| records.position(&front.segment, bound, side, false));
        let whole = at >= front.segment.hi;
        if at > front.segment.lo {
            source.push(Segment { hi: at, ..front.segment.clone() });
            front.segment.lo = at;
        }
        if !whole {
            break;
        }
        held.pop_front();
    }
    source
}

impl<R: Records, I: BlockInput<Block = RunBlock>> Flow<I> for MergeFlow<'_, R> {
    type Error = SortError;

    fn step(&mut self, inputs: &mut Bowtie<I>) -> Result<Step, SortError> {
        self.gather(inputs);
        if let Some(empty) = (0..self.held.len()).find(|&i| self.held[i].is_empty() && !inputs.exhausted(i)) {
            return Ok(Step::Need(empty));
        }
        let before: Vec<usize> = self.held.iter().map(VecDeque::len).collect();
        let batch = match self.bound(inputs) {
            None => {
                let nearer = self.nearer_bound(inputs);
                self.take_batch(nearer.as_ref())
            }
            Some((bound, bounding)) => {
                self.bounding = Some(bounding);
                let ready = self.bytes_below(&bound);
                // A long record goes first: there is no memory for another of its input.
                let waits =
                    inputs.in_flight(bounding) > 0 && !self.held[bounding].iter().any(|held| held.long);
                if ready < SMALL_BATCH_BYTES && !self.small_batch && waits {
                    self.small_batch = true;
                    return Ok(Step::Need(bounding));
                }
                self.small_batch = false;
                match self.nearer_bound(inputs) {
                    Some(nearer) => self.take_batch(Some(&nearer)),
                    None if ready > 0 => self.take_batch(Some(&bound)),
                    None => self.take_equals(&bound),
                }
            }
        };
        if batch.is_empty() {
            return Ok(Step::Done);
        }
        // Before the blocks come free one by one: the schedule must know by then which input starves.
        for (index, held) in self.held.iter().enumerate() {
            inputs.release(index, (before[index] - held.len()) as u32);
        }
        self.emit(batch, inputs)?;
        self.report_progress()?;
        Ok(Step::Progress)
    }

    fn runs_out_first(&self) -> Option<usize> {
        self.bounding
    }
}

impl<R: Records> MergeFlow<'_, R> {
    /// A record that bounds a batch of about as many bytes as the sink takes at most; none where all records in
    /// memory are fewer, or no smaller batch exists.
    fn nearer_bound<I: BlockInput<Block = RunBlock>>(&self, inputs: &Bowtie<I>) -> Option<R::Bound> {
        let most = self.sink.batch_bytes_max();
        let held: u64 =
            self.held.iter().flatten().map(|held| self.merge.records.bytes_in(&held.segment)).sum();
        if held <= most {
            return None;
        }
        // The last record of one block of each input: the smallest of them bounds no more than these blocks.
        let bound_at = |depth: usize| {
            let smallest = self.smallest_last(|index, held| {
                held.get(if inputs.exhausted(index) {
                    depth
                } else {
                    depth.min(held.len().saturating_sub(1))
                })
            });
            smallest.map(|(bound, _)| (self.bytes_below(&bound), bound))
        };
        // The deepest that is not too much.
        let deepest = self.held.iter().map(VecDeque::len).max().unwrap_or(0);
        let (mut fits, mut too_deep) = (0, deepest);
        while fits + 1 < too_deep {
            let middle = usize::midpoint(fits, too_deep);
            match bound_at(middle) {
                Some((bytes, _)) if bytes <= most => fits = middle,
                _ => too_deep = middle,
            }
        }
        bound_at(fits).filter(|(bytes, _)| *bytes > 0).map(|(_, bound)| bound)
    }

    /// Bytes in memory below a record.
    fn bytes_below(&self, bound: &R::Bound) -> u64 {
        let mut bytes = 0;
        for segment in self.held.iter().flatten().map(|held| &held.segment) {
            let at = self.merge.records.position(segment, bound, Side::Lower, false);
            bytes += self.merge.records.bytes_in(&Segment { hi: at, ..segment.clone() });
        }
        bytes
    }
}
