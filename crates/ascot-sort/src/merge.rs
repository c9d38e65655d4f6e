//! Merges sorted inputs into one sequence: the flow in the middle of an n x 1 bowtie.
//!
//! The inputs hold blocks in memory. Every record that is smaller than the last record in memory of each input that has
//! more to come can be merged now; these records are a *batch*. A batch is cut into tasks by key range, and the merging
//! threads merge the tasks while the engine reads on:
//!
//! ```text
//!   input 0  [==========|..]           |: the bound, the smallest of the inputs' last records
//!   input 1  [=====|......]            =: the batch
//!   input 2  [=============|]  <- its last record is the bound
//!
//!   tasks ─▶ thread 0 ─▶ blocks of task 0, 2, ... ─╮
//!         ╰▶ thread 1 ─▶ blocks of task 1, 3, ... ─┴▶ the caller, in the order of tasks ─▶ sink
//! ```
//!
//! If the blocks of an input hold only equal records, nothing is below the bound. The first input that has such records
//! then gives all that it holds, because equal records are ordered by input.
//!
//! Invariants: a thread has blocks of its own, so that the thread with the first unfinished task always continues; the
//! memory of a task is freed before the task reports its end; records with equal keys stay in one task.
//!
//! `merge/threads.rs` cuts batches into tasks and merges them on threads; `merge/element_streams.rs` merges element
//! streams.

pub mod element_streams;
mod threads;

use std::cmp::Ordering;
use std::collections::VecDeque;

use ascot_bowtie::engine::{BlockInput, BlockOutput, Bowtie, Writer};
use ascot_bowtie::flow::{self, Flow, Step};
use ascot_io::clocks::in_stage;
use ascot_model::stages;

use crate::api::{Cancel, Result, SortError};
use crate::records::{Merged, MergedBlock, Records, Rules, Segment, Side};
use crate::runs::{RunBlock, RunStart};
pub use threads::{BlockSum, CutRules, EmitThreads, cut_tasks};

/// Takes the merged records of a merge, and may store its progress.
pub trait MergeSink<I: BlockInput, O: BlockOutput = Writer> {
    /// Takes merged records, in order. It may fill the outputs of `streams`, which share the memory of the inputs.
    fn block(&mut self, block: MergedBlock, streams: &mut Bowtie<I, O>) -> Result<()>;
    /// Maximum bytes of a batch, if records allow.
    fn batch_bytes_max(&self) -> u64 {
        u64::MAX
    }
    /// A batch is done: the sink has all records before the positions that `done` returns. A sink that stores no
    /// progress ignores it.
    fn batch(&mut self, _done: &dyn Fn() -> Vec<RunStart>, _so_far: &Merged) -> Result<()> {
        Ok(())
    }
    /// Called after the last record; the outputs end then.
    fn end(&mut self, _streams: &mut Bowtie<I, O>) -> Result<()> {
        Ok(())
    }
}

/// A merge of sorted inputs.
pub struct Merge<'a, R> {
    /// Their records.
    pub records: &'a R,
    /// The threads that merge.
    pub threads: &'a EmitThreads,
    /// Its rules: which records it drops, and whether it sums them up.
    pub rules: Rules,
    /// Maximum number of records of the result.
    pub limit: Option<u64>,
    /// Stops it.
    pub cancel: &'a Cancel,
    /// Sums of the records merged before, if it continues a merge.
    pub so_far: Merged,
    /// Sorted sources in memory, which follow the inputs in the order of equal records.
    pub in_memory: Vec<Vec<Segment>>,
}

impl<'a, R: Records> Merge<'a, R> {
    /// A merge of all records of its inputs, without any in memory.
    pub fn new(records: &'a R, threads: &'a EmitThreads, rules: Rules, cancel: &'a Cancel) -> Self {
        let so_far = Merged::default();
        Merge { records, threads, rules, limit: None, cancel, so_far, in_memory: Vec::new() }
    }

    /// Merges the inputs of `streams`, whose first blocks have the numbers `starts`, into `sink`. Returns the sums of
    /// all records merged so far. This thread reads and writes in turns, for the stages of these names.
    pub fn run<I: BlockInput<Block = RunBlock>, O: BlockOutput>(
        mut self,
        streams: &mut Bowtie<I, O>,
        starts: Vec<usize>,
        sink: &mut impl MergeSink<I, O>,
    ) -> Result<Merged> {
        let cancel = self.cancel;
        let mut held: Vec<VecDeque<Held<R::Bound>>> = starts.iter().map(|_| VecDeque::new()).collect();
        let mut next_block = starts;
        for source in std::mem::take(&mut self.in_memory) {
            next_block.push(source.len());
            held.push(
                source.into_iter().enumerate().map(|(block, segment)| self.hold(segment, block)).collect(),
            );
        }
        let mut flow = MergeFlow { held, next_block, merge: self, sink, small_batch: false, bounding: None };
        let _stage = in_stage(stages::READ);
        flow::run(streams, &mut flow, || cancel.check())?;
        Ok(flow.merge.so_far)
    }
}

impl<R: Records> Merge<'_, R> {
    fn hold(&self, segment: Segment, block: usize) -> Held<R::Bound> {
        let last = segment.is_in_order().then(|| self.records.last(&segment));
        Held { bytes: self.records.bytes_in(&segment), segment, last, block, long: false, straddles: false }
    }
}

struct Held<B> {
    segment: Segment,
    /// Its last record, if its records are in order: it is found once, and tells whether all of them are below a bound.
    last: Option<B>,
    /// Bytes of its records when it arrived.
    bytes: u64,
    block: usize,
    long: bool,
    /// It is the record before a block, and no block of the engine.
    straddles: bool,
}

impl<B> Held<B> {
    /// The position of the first record that is not below `bound`, or is above it for [`Side::Upper`].
    fn position<R: Records<Bound = B>>(&self, records: &R, bound: &B, side: Side) -> u32 {
        if self.is_below(records, bound, side) {
            return self.segment.hi;
        }
        records.position(&self.segment, bound, side, false)
    }

    /// Whether all of its records are known to be below `bound`, or not above it for [`Side::Upper`].
    fn is_below<R: Records<Bound = B>>(&self, records: &R, bound: &B, side: Side) -> bool {
        self.last.as_ref().is_some_and(|last| match records.compare(last, bound) {
            Ordering::Less => true,
            Ordering::Equal => side == Side::Upper,
            Ordering::Greater => false,
        })
    }
}

/// Blocks of the engine among these.
fn blocks_of<B>(held: &VecDeque<Held<B>>) -> usize {
    held.iter().filter(|held| !held.straddles).count()
}

struct MergeFlow<'a, R: Records, S> {
    merge: Merge<'a, R>,
    sink: &'a mut S,
    held: Vec<VecDeque<Held<R::Bound>>>,
    /// The block of each input after those taken.
    next_block: Vec<usize>,
    /// Whether the merge has waited once for the bounding input.
    small_batch: bool,
    /// The input whose last record in memory is the smallest: it runs out first.
    bounding: Option<usize>,
}

/// Bytes below which a batch waits for more blocks of the input that bounds it.
const SMALL_BATCH_BYTES: u64 = 4 << 20;

/// Minimum bytes of a task; smaller ones cost more to cut than they gain.
const TASK_BYTES: u64 = 1 << 20;

impl<R: Records, S> MergeFlow<'_, R, S> {
    fn gather<I: BlockInput<Block = RunBlock>, O: BlockOutput>(&mut self, inputs: &mut Bowtie<I, O>) {
        for (index, held) in self.held.iter_mut().enumerate().take(inputs.inputs()) {
            while let Some(RunBlock { segment, block, end, long, straddling }) = inputs.take(index) {
                self.next_block[index] = end;
                if let Some(segment) = straddling {
                    held.push_back(Held { straddles: true, ..self.merge.hold(segment, block) });
                }
                held.push_back(Held { long, ..self.merge.hold(segment, block) });
            }
        }
    }

    /// Takes the records below `bound` off the inputs.
    fn take_batch(&mut self, bound: Option<&R::Bound>) -> Vec<Vec<Segment>> {
        let records = self.merge.records;
        let sources = self.held.iter_mut().map(|held| take_up_to(records, held, bound, Side::Lower));
        sources.filter(|source| !source.is_empty()).collect()
    }

    fn emit<I: BlockInput<Block = RunBlock>, O: BlockOutput>(
        &mut self,
        batch: Vec<Vec<Segment>>,
        inputs: &mut Bowtie<I, O>,
    ) -> Result<()>
    where
        S: MergeSink<I, O>,
    {
        let bytes: u64 = batch.iter().flatten().map(|segment| self.merge.records.bytes_in(segment)).sum();
        let Merge { records, threads, rules, limit, cancel, so_far, .. } = &mut self.merge;
        let max_tasks = 8 * threads.count() as u64;
        let tasks = (bytes / TASK_BYTES.max(batch.len() as u64 * (64 << 10))).clamp(1, max_tasks) as usize;
        let left = limit.map(|limit| limit.saturating_sub(so_far.out.count));
        // The last task returns the key, or a later one.
        let cut = CutRules { previous: so_far.last_key.take(), limit: left, keeps_key: true };
        let tasks = cut_tasks(*records, batch, tasks, cut);
        let sink = &mut *self.sink;
        let merged = threads.run(tasks, *rules, cancel, &mut |block| {
            sink.block(block, inputs)?;
            // Blocks are freed while the batch is merged: the device must not become idle.
            Ok(inputs.pump()?)
        })?;
        so_far.add(merged);
        Ok(())
    }

    /// Reports the progress of the merge to the sink.
    fn report_progress<I: BlockInput, O: BlockOutput>(&mut self) -> Result<()>
    where
        S: MergeSink<I, O>,
    {
        let held = &self.held;
        let next_block = &self.next_block;
        let records = self.merge.records;
        let done = || {
            let position = |(held, &next): (&VecDeque<Held<R::Bound>>, &usize)| match held.front() {
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
    held: &mut VecDeque<Held<R::Bound>>,
    bound: Option<&R::Bound>,
    side: Side,
) -> Vec<Segment> {
    let mut source = Vec::new();
    while let Some(front) = held.front_mut() {
        let at = bound.map_or(front.segment.hi, |bound| front.position(records, bound, side));
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

impl<R, S, I, O> Flow<I, O> for MergeFlow<'_, R, S>
where
    R: Records,
    I: BlockInput<Block = RunBlock>,
    O: BlockOutput,
    S: MergeSink<I, O>,
{
    type Error = SortError;

    fn step(&mut self, inputs: &mut Bowtie<I, O>) -> Result<Step> {
        self.gather(inputs);
        if let Some(empty) = (0..inputs.inputs()).find(|&i| self.held[i].is_empty() && !inputs.exhausted(i)) {
            return Ok(Step::Need(empty));
        }
        let before: Vec<usize> = self.held.iter().map(blocks_of).collect();
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
                let nearer =
                    (ready > self.sink.batch_bytes_max()).then(|| self.nearer_bound(inputs)).flatten();
                match nearer {
                    Some(nearer) => self.take_batch(Some(&nearer)),
                    None if ready > 0 => self.take_batch(Some(&bound)),
                    None => self.take_equals(&bound, bounding),
                }
            }
        };
        if batch.is_empty() {
            self.sink.end(inputs)?;
            return Ok(Step::Done);
        }
        // Before the blocks are freed one by one: by then the schedule must know which input starves.
        for (index, held) in self.held.iter().enumerate().take(inputs.inputs()) {
            let left = |held: &Held<R::Bound>| {
                self.merge.records.bytes_in(&held.segment) as f64 / held.bytes.max(1) as f64
            };
            let consumed = held.front().map_or(0.0, |held| 1.0 - left(held));
            inputs.release(index, (before[index] - blocks_of(held)) as u32, consumed);
        }
        let _stage = in_stage(stages::WRITE);
        self.emit(batch, inputs)?;
        self.report_progress::<I, O>()?;
        Ok(Step::Progress)
    }

    fn runs_out_first(&self) -> Option<usize> {
        self.bounding
    }
}

/// Whether source number `index` is an input with more blocks to come; a source in memory has none.
fn has_more<I: BlockInput<Block = RunBlock>, O: BlockOutput>(inputs: &Bowtie<I, O>, index: usize) -> bool {
    index < inputs.inputs() && !inputs.exhausted(index)
}

/// Finds the records that can be merged now.
///
/// ```text
///   input 0  [      |       |         ]    `|` and `]`: the last record of each block in memory
///   input 1  [   |      |  ]               the bound: the smallest `]` of an input that has more to come
///   input 2  [     |      |    ]           a nearer bound, if the sink takes less: the smallest `|` of one depth
/// ```
impl<R: Records, S> MergeFlow<'_, R, S> {
    /// The smallest last record of the inputs that have more to come, and its input.
    fn bound<I: BlockInput<Block = RunBlock>, O: BlockOutput>(
        &self,
        inputs: &Bowtie<I, O>,
    ) -> Option<(R::Bound, usize)> {
        self.smallest_last(|index, held| held.back().filter(|_| has_more(inputs, index)))
    }

    /// The smallest last record of one block of each input, and its input. `block` chooses the block.
    fn smallest_last(
        &self,
        block: impl Fn(usize, &VecDeque<Held<R::Bound>>) -> Option<&Held<R::Bound>>,
    ) -> Option<(R::Bound, usize)> {
        let records = self.merge.records;
        let mut smallest: Option<(R::Bound, usize)> = None;
        for (index, held) in self.held.iter().enumerate() {
            let Some(block) = block(index, held) else { continue };
            let last = block.last.clone().unwrap_or_else(|| records.last(&block.segment));
            if smallest.as_ref().is_none_or(|(bound, _)| records.compare(&last, bound).is_lt()) {
                smallest = Some((last, index));
            }
        }
        smallest
    }

    /// A record that bounds a batch of about as many bytes as the sink takes at most; none if all records in
    /// memory are fewer, or no smaller batch exists.
    fn nearer_bound<I: BlockInput<Block = RunBlock>, O: BlockOutput>(
        &self,
        inputs: &Bowtie<I, O>,
    ) -> Option<R::Bound>
    where
        S: MergeSink<I, O>,
    {
        let bytes_max = self.sink.batch_bytes_max();
        let held: u64 =
            self.held.iter().flatten().map(|held| self.merge.records.bytes_in(&held.segment)).sum();
        if held <= bytes_max {
            return None;
        }
        // The last record of one block of each input: the smallest of them bounds no more than these blocks.
        let bound_at = |depth: usize| {
            let smallest = self.smallest_last(|index, held| {
                held.get(if has_more(inputs, index) {
                    depth.min(held.len().saturating_sub(1))
                } else {
                    depth
                })
            });
            smallest.map(|(bound, _)| (self.bytes_below(&bound), bound))
        };
        // The deepest bound that is not too much.
        let deepest = self.held.iter().map(VecDeque::len).max().unwrap_or(0);
        let mut fits = 0;
        let mut too_deep = deepest;
        while fits + 1 < too_deep {
            let middle = usize::midpoint(fits, too_deep);
            match bound_at(middle) {
                Some((bytes, _)) if bytes <= bytes_max => fits = middle,
                _ => too_deep = middle,
            }
        }
        bound_at(fits).filter(|(bytes, _)| *bytes > 0).map(|(_, bound)| bound)
    }

    /// Bytes in memory that a batch below a record takes.
    fn bytes_below(&self, bound: &R::Bound) -> u64 {
        let records = self.merge.records;
        let mut bytes = 0;
        for held in &self.held {
            let below = held.partition_point(|held| held.is_below(records, bound, Side::Lower));
            bytes += held.range(..below).map(|held| records.bytes_in(&held.segment)).sum::<u64>();
            for Held { segment, .. } in held.range(below..) {
                let at = records.position(segment, bound, Side::Lower, false);
                bytes += records.bytes_in(&Segment { hi: at, ..segment.clone() });
                if at < segment.hi {
                    break;
                }
            }
        }
        bytes
    }

    /// Everything in memory that equals `bound`, of the first input that has such a record. If there is none, the
    /// input `bounding` begins with records above its own last one: they are out of order, or their keys are equal, and
    /// it gives all that it holds.
    fn take_equals(&mut self, bound: &R::Bound, bounding: usize) -> Vec<Vec<Segment>> {
        let records = self.merge.records;
        let mut sources =
            self.held.iter_mut().map(|held| take_up_to(records, held, Some(bound), Side::Upper));
        let equals = sources.find(|source| !source.is_empty());
        let all = || take_up_to(records, &mut self.held[bounding], None, Side::Upper);
        vec![equals.unwrap_or_else(all)]
    }
}

#[cfg(test)]
mod tests;
