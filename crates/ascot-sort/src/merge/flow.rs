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

use ascot_bowtie::engine::{BlockInput, Bowtie, NoOutput};
use ascot_bowtie::flow::{Flow, Step};

use crate::api::error::SortError;
use crate::api::observe::Cancel;
use crate::merge::emit::EmitThreads;
use crate::merge::tasks::{CutRules, cut_tasks};
use crate::records::emitter::{Chunk, PassSums};
use crate::records::{Records, Rules, Segment, Side};
use crate::runs::run::RunStart;
use crate::runs::run_file::RunBlock;
use crate::runs::spill::Spill;

/// What a merge hands its chunks to, and tells how far it has come.
pub trait MergeSink {
    /// Takes merged records, in order.
    fn chunk(&mut self, chunk: Chunk) -> Result<(), SortError>;
    /// Bytes that a batch should not have more of, where records allow.
    fn most(&self) -> u64 {
        u64::MAX
    }
    /// A batch is done: everything before these places of the inputs has been handed on. Only who keeps
    /// note of that need know.
    fn batch(
        &mut self,
        _done: &dyn Fn() -> Vec<RunStart>,
        _sums: &PassSums,
        _last_key: Option<&[u8]>,
    ) -> Result<(), SortError> {
        Ok(())
    }
}

struct Held {
    segment: Segment,
    block: usize,
    long: bool,
}

/// The merge.
pub struct MergeFlow<'a, R: Records, S> {
    records: &'a R,
    threads: &'a EmitThreads,
    rules: Rules,
    limit: Option<u64>,
    cancel: &'a Cancel,
    sink: &'a mut S,
    held: Vec<VecDeque<Held>>,
    /// The block that follows what each input has given.
    next_block: Vec<usize>,
    sums: PassSums,
    last_key: Option<Vec<u8>>,
    /// Waited once for the bounding input, in vain.
    small_batch: bool,
    /// The input whose last record in memory is the smallest: it runs out first.
    bounding: Option<usize>,
}

/// Bytes below which a batch waits for more blocks of the input that bounds it.
const SMALL_BATCH_BYTES: u64 = 4 << 20;

/// Bytes of a task at least; smaller ones cost more to cut than they gain.
const TASK_BYTES: u64 = 1 << 20;

impl<'a, R: Records, S: MergeSink> MergeFlow<'a, R, S> {
    /// A merge of `starts.len()` inputs into `sink`.
    pub fn new(
        records: &'a R,
        threads: &'a EmitThreads,
        rules: Rules,
        limit: Option<u64>,
        cancel: &'a Cancel,
        sink: &'a mut S,
        starts: &[usize],
    ) -> Self {
        MergeFlow {
            records,
            threads,
            rules,
            limit,
            cancel,
            sink,
            held: starts.iter().map(|_| VecDeque::new()).collect(),
            next_block: starts.to_vec(),
            sums: PassSums::default(),
            last_key: None,
            small_batch: false,
            bounding: None,
        }
    }

    /// Goes on after records whose sums and last key are known.
    pub fn resume(&mut self, sums: PassSums, last_key: Option<Vec<u8>>) {
        self.sums = sums;
        self.last_key = last_key;
    }

    /// Sums over everything merged.
    pub fn sums(&self) -> &PassSums {
        &self.sums
    }

    fn gather<I: BlockInput<Block = RunBlock>>(&mut self, inputs: &mut Bowtie<I, NoOutput>) {
        for (index, held) in self.held.iter_mut().enumerate() {
            while let Some(RunBlock { segment, block, end, long }) = inputs.take(index) {
                self.next_block[index] = end;
                held.push_back(Held { segment, block, long });
            }
        }
    }

    /// The smallest last record of the inputs that have more to come, and its input.
    fn bound<I: BlockInput<Block = RunBlock>>(
        &self,
        inputs: &Bowtie<I, NoOutput>,
    ) -> Option<(R::Bound, usize)> {
        let mut smallest: Option<(R::Bound, usize)> = None;
        for (index, held) in self.held.iter().enumerate() {
            let Some(last) = held.back().filter(|_| !inputs.exhausted(index)) else { continue };
            let last = self.records.last(&last.segment);
            if smallest.as_ref().is_none_or(|(bound, _)| self.records.compare(&last, bound).is_lt()) {
                smallest = Some((last, index));
            }
        }
        smallest
    }

    /// Takes what lies on the given side of `bound` off the inputs.
    fn take_batch(&mut self, bound: Option<&R::Bound>) -> Vec<Vec<Segment>> {
        let mut batch = Vec::with_capacity(self.held.len());
        for held in &mut self.held {
            let source = take_up_to(self.records, held, bound, Side::Lower);
            if !source.is_empty() {
                batch.push(source);
            }
        }
        batch
    }

    /// Everything in memory that equals `bound`, of the first input that has such a record.
    fn take_equals(&mut self, bound: &R::Bound) -> Vec<Vec<Segment>> {
        for held in &mut self.held {
            let source = take_up_to(self.records, held, Some(bound), Side::Upper);
            if !source.is_empty() {
                return vec![source];
            }
        }
        Vec::new()
    }

    fn emit<I: BlockInput<Block = RunBlock>>(
        &mut self,
        batch: Vec<Vec<Segment>>,
        inputs: &mut Bowtie<I, NoOutput>,
    ) -> Result<(), SortError> {
        let bytes: u64 = batch.iter().flatten().map(|segment| self.records.bytes_in(segment)).sum();
        let most = 8 * self.threads.count() as u64;
        let tasks = (bytes / TASK_BYTES.max(batch.len() as u64 * (64 << 10))).clamp(1, most) as usize;
        let left = self.limit.map(|limit| limit.saturating_sub(self.sums.out.count));
        // The last task gives the key back, or one that comes after it.
        let rules = CutRules { previous: self.last_key.take(), limit: left, keeps_key: true };
        let tasks = cut_tasks(self.records, batch, tasks, rules);
        let sink = &mut *self.sink;
        let merged = self.threads.run(tasks, self.rules, self.cancel, &mut |chunk| {
            sink.chunk(chunk)?;
            // Blocks come free while the batch is merged: the device must not run dry.
            Ok(inputs.pump()?)
        })?;
        self.sums.add(&merged);
        self.last_key = merged.last_key;
        Ok(())
    }

    /// Tells the sink how far the merge has come.
    fn settle(&mut self) -> Result<(), SortError> {
        let (held, next_block, records) = (&self.held, &self.next_block, self.records);
        let done = || {
            let place = |(held, &next): (&VecDeque<Held>, &usize)| match held.front() {
                Some(front) => RunStart { block: front.block, offset: records.offset_of(front.segment.lo) },
                None => RunStart { block: next, offset: 0 },
            };
            held.iter().zip(next_block).map(place).collect()
        };
        self.sink.batch(&done, &self.sums, self.last_key.as_deref())
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

impl<R: Records, S: MergeSink, I: BlockInput<Block = RunBlock>> Flow<I, NoOutput> for MergeFlow<'_, R, S> {
    type Error = SortError;

    fn step(&mut self, inputs: &mut Bowtie<I, NoOutput>) -> Result<Step, SortError> {
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
        // Said before the blocks come free one by one: the schedule must know by then who starves.
        for (index, held) in self.held.iter().enumerate() {
            inputs.release(index, (before[index] - held.len()) as u32);
        }
        self.emit(batch, inputs)?;
        self.settle()?;
        Ok(Step::Progress)
    }

    fn runs_out_first(&self) -> Option<usize> {
        self.bounding
    }
}

impl<R: Records, S: MergeSink> MergeFlow<'_, R, S> {
    /// A record below which lies as much as the sink wants at most, or not much more; none where all that can be
    /// merged is no more than that, or nothing smaller can be.
    fn nearer_bound<I: BlockInput<Block = RunBlock>>(
        &self,
        inputs: &Bowtie<I, NoOutput>,
    ) -> Option<R::Bound> {
        let most = self.sink.most();
        let held: u64 = self.held.iter().flatten().map(|held| self.records.bytes_in(&held.segment)).sum();
        if held <= most {
            return None;
        }
        // The last record of one block of each input: the smallest of them bounds no more than these blocks.
        let bound_at = |depth: usize| {
            let mut smallest: Option<R::Bound> = None;
            for (index, held) in self.held.iter().enumerate() {
                let ends = inputs.exhausted(index);
                let at = if ends { depth } else { depth.min(held.len().saturating_sub(1)) };
                let Some(block) = held.get(at) else { continue };
                let last = self.records.last(&block.segment);
                if smallest.as_ref().is_none_or(|bound| self.records.compare(&last, bound).is_lt()) {
                    smallest = Some(last);
                }
            }
            smallest.map(|bound| (self.bytes_below(&bound), bound))
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
            let at = self.records.position(segment, bound, Side::Lower, false);
            bytes += self.records.bytes_in(&Segment { hi: at, ..segment.clone() });
        }
        bytes
    }
}
impl<R: Records> MergeSink for Spill<R> {
    fn chunk(&mut self, chunk: Chunk) -> Result<(), SortError> {
        self.write(chunk)
    }
}
