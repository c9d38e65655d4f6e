//! What the streams of a bowtie hold: the counts from which a schedule's view is made. The simulator and the engine
//! keep them the same way, so that both show a schedule the same views.
//!
//! ```text
//!   memory   | held by inputs | free to read ||| being filled | full | being written | free to write |
//!            |<------- read blocks --------->|||<---------------- write blocks --------------------->|
//! ```
//!
//! Every output counts with the block that it fills, from the start. Parts of blocks are counted in units (bytes, in
//! the engine).
//!
//! Invariants: a full block is queued only if there is a free one to take its place; nothing is completed that was
//! not begun.
//!
//! [`Rates`] and [`Gain`] learn how fast inputs are consumed relative to each other, and how much is written for it.
//! Both forget: after as many blocks as the window holds, the past counts a third. [`Gain`] counts
//! blocks of files alone.

use ascot_model::run_length::Shape;

use crate::constants::{EVEN_PART, LENGTH_MEMORIES, MIN_RATE, MIN_RATE_SHARE, RATE_WINDOW_MEMORIES};
use crate::schedule::{BlockedOn, PipedInputs, SchedulerView, Split};

/// The least number of blocks to come that stands for a length that is not known.
pub const UNKNOWN_BLOCKS: u32 = u32::MAX / 2;

/// What streams hold.
#[derive(Clone, Debug)]
pub struct Occupancy {
    split: Split,
    block_units: u64,
    held: Vec<u32>,
    remaining: Vec<u32>,
    /// Whether each input is a pipe; empty if none is.
    is_pipe: Vec<bool>,
    /// Units consumed of each input's first block.
    consumed: Vec<u64>,
    /// Units consumed of each input since the rates were learned.
    new_consumed: Vec<u64>,
    /// Units filled into outputs since then.
    new_filled: u64,
    full: Vec<u32>,
    held_all: u32,
    full_all: u32,
    /// Blocks being filled, one of each output until it is closed.
    filling: u32,
    /// Blocks being written.
    writing: u32,
    rates: Rates,
    gain: Gain,
    /// Nothing was consumed and no input has ended since the shares, and when inputs run out, were computed.
    shares_are_current: bool,
    shares: Vec<f64>,
    /// As in [`SchedulerView::runs_out`].
    runs_out: Vec<f64>,
    /// The input that the last view showed to run out first, because the flow knew it.
    first_out: Option<usize>,
}

impl Occupancy {
    /// Streams that hold nothing; `shape` says how many, and how much is written for what is read.
    pub fn new(shape: &Shape, split: Split, block_units: u64) -> Self {
        let n = shape.inputs as usize;
        let m = shape.outputs as usize;
        let window = (RATE_WINDOW_MEMORIES * f64::from(split.read)).max(1.0);
        let gain = if n > 0 && m > 0 { (1.0 - shape.alpha) / shape.alpha } else { 1.0 };
        Occupancy {
            split,
            block_units: block_units.max(1),
            held: vec![0; n],
            remaining: vec![0; n],
            is_pipe: Vec::new(),
            consumed: vec![0; n],
            new_consumed: vec![0; n],
            new_filled: 0,
            full: vec![0; m],
            held_all: 0,
            full_all: 0,
            filling: shape.outputs,
            writing: 0,
            rates: Rates::new(n, window),
            gain: Gain::new(gain, window),
            shares_are_current: false,
            shares: Vec::with_capacity(n),
            runs_out: Vec::with_capacity(n),
            first_out: None,
        }
    }

    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        self.held.len()
    }

    /// Number of outputs.
    pub fn outputs(&self) -> usize {
        self.full.len()
    }

    /// Blocks an input holds, with the one being consumed and those being read.
    pub fn held(&self, input: usize) -> u32 {
        self.held[input]
    }

    /// What an input holds, in blocks and the rest of the first one.
    pub fn held_part(&self, input: usize) -> f64 {
        f64::from(self.held[input]) - self.consumed[input] as f64 / self.block_units as f64
    }

    /// What an input holds, in units.
    pub fn held_units(&self, input: usize) -> u64 {
        (u64::from(self.held[input]) * self.block_units).saturating_sub(self.consumed[input])
    }

    /// Blocks of an input that are not yet requested.
    pub fn remaining(&self, input: usize) -> u32 {
        self.remaining[input]
    }

    /// Full blocks of an output that wait.
    pub fn full(&self, output: usize) -> u32 {
        self.full[output]
    }

    /// Full blocks that wait, of all outputs.
    pub fn full_all(&self) -> u32 {
        self.full_all
    }

    /// Blocks being written.
    pub fn writing(&self) -> u32 {
        self.writing
    }

    /// Whether an input holds blocks or has blocks to come.
    pub fn is_live(&self, input: usize) -> bool {
        self.held[input] > 0 || self.remaining[input] > 0
    }

    /// Makes inputs pipes, whose blocks do not count in the share of reading.
    pub fn set_pipes(&mut self, is_pipe: Vec<bool>) {
        self.is_pipe = is_pipe;
    }

    /// Whether an input is a file.
    pub fn is_file(&self, input: usize) -> bool {
        self.is_pipe.get(input).is_none_or(|is_pipe| !is_pipe)
    }

    /// Number of files among the inputs that hold blocks or have blocks to come.
    pub fn live_files(&self) -> u32 {
        (0..self.inputs()).filter(|&input| self.is_live(input) && self.is_file(input)).count() as u32
    }

    /// Blocks of the inputs' memory that are for pipes.
    pub fn pipe_blocks(&self) -> u32 {
        PipedInputs::pipe_blocks(&self.is_pipe)
    }

    /// Blocks in use.
    pub fn used(&self) -> u32 {
        self.held_all + self.full_all + self.filling + self.writing
    }

    /// Free blocks of the inputs' memory.
    pub fn free_to_read(&self) -> u32 {
        self.split.read.saturating_sub(self.held_all)
    }

    /// Free blocks of the outputs' memory.
    pub fn free_to_write(&self) -> u32 {
        self.split.write.saturating_sub(self.full_all + self.filling + self.writing)
    }

    /// Blocks of the outputs' memory.
    pub fn write_blocks(&self) -> u32 {
        self.split.write
    }

    /// Memory of both sides.
    pub fn split(&self) -> Split {
        self.split
    }

    /// Moves free memory from one side to the other until it is divided as `wanted`; says whether any moved. Inputs
    /// that hold no block keep a free one each. Memory in use moves later, when this is called again. `free_to_read`:
    /// free blocks for inputs. These may be fewer than [`Self::free_to_read`], because a flow frees blocks a while
    /// after it has consumed them.
    pub fn divide(&mut self, wanted: Split, free_to_read: u32) -> bool {
        let starving = (0..self.held.len()).filter(|&input| self.held[input] == 0).count() as u32;
        let to_write = self.split.read.saturating_sub(wanted.read);
        let free_to_read = free_to_read.min(self.free_to_read());
        let to_write = to_write.min(free_to_read.saturating_sub(starving));
        let to_read = self.split.write.saturating_sub(wanted.write).min(self.free_to_write());
        let moved = if self.split.read > wanted.read { to_write } else { to_read };
        if self.split.read > wanted.read {
            self.split = Split { read: self.split.read - moved, write: self.split.write + moved };
        } else {
            self.split = Split { read: self.split.read + moved, write: self.split.write - moved };
        }
        moved > 0
    }

    /// Treats the share of reading as an estimate, which counts for no more blocks than the smaller side has.
    pub fn doubt_alpha(&mut self) {
        self.gain.doubt(f64::from(self.split.read.min(self.split.write)));
    }

    /// The share of reading in all bytes moved of late.
    pub fn alpha(&self) -> f64 {
        1.0 / (1.0 + self.gain.value())
    }

    /// Sets the blocks of an input that are not yet requested.
    pub fn set_remaining(&mut self, input: usize, blocks: u32) {
        self.shares_are_current &= (self.remaining[input] > 0) == (blocks > 0);
        self.remaining[input] = blocks;
    }

    /// Expects inputs to be consumed at rates in proportion to their lengths, so that they end together. Where a length
    /// is not known, equal rates are expected.
    pub fn expect_rates_by_length(&mut self, lengths: Option<Vec<u64>>) {
        if let Some(lengths) = lengths {
            self.rates.expect(&lengths);
            self.shares_are_current = false;
        }
    }

    /// A read of a block of `input` has begun.
    pub fn begin_read(&mut self, input: usize) {
        self.held[input] += 1;
        self.held_all += 1;
        if self.shares_are_current {
            self.runs_out[input] = self.when_runs_out(input);
        }
    }

    /// `units` of the first block of `input` were consumed.
    pub fn consume(&mut self, input: usize, units: u64) {
        self.consumed[input] += units;
        self.new_consumed[input] += units;
        self.shares_are_current = false;
    }

    /// The first `units` of the first block of `input` were consumed.
    pub fn consume_to(&mut self, input: usize, units: u64) {
        self.consume(input, units.saturating_sub(self.consumed[input]));
    }

    /// The first block of `input` is empty and returned, or was read beyond the end of its file.
    pub fn release(&mut self, input: usize) {
        debug_assert!(self.held[input] > 0, "input {input} releases a block that it does not hold");
        self.consumed[input] = 0;
        self.held[input] = self.held[input].saturating_sub(1);
        self.held_all = self.held_all.saturating_sub(1);
        self.shares_are_current = false;
    }

    /// `units` were filled into outputs.
    pub fn fill(&mut self, units: u64) {
        self.new_filled += units;
    }

    /// The block that `output` fills is full: queues it if a free one can take its place, and says whether it did.
    pub fn queue(&mut self, output: usize) -> bool {
        let has_free = self.free_to_write() > 0;
        if has_free {
            self.full[output] += 1;
            self.full_all += 1;
        }
        has_free
    }

    /// The function is done: no input is read any more and no output fills a block. The last blocks of the outputs
    /// for which `has_block` holds wait to be written.
    pub fn close(&mut self, has_block: impl Fn(usize) -> bool) {
        self.remaining.fill(0);
        self.filling = 0;
        for output in (0..self.full.len()).filter(|&output| has_block(output)) {
            self.full[output] += 1;
            self.full_all += 1;
        }
    }

    /// A write of a block of `output` has begun.
    pub fn begin_write(&mut self, output: usize) {
        debug_assert!(self.full[output] > 0, "output {output} writes a block that it does not hold");
        self.full[output] -= 1;
        self.full_all -= 1;
        self.writing += 1;
    }

    /// A block has been written.
    pub fn end_write(&mut self) {
        debug_assert!(self.writing > 0, "a write ends that was not begun");
        self.writing -= 1;
    }

    /// What a schedule sees. `free_to_read`: free blocks for inputs, at most [`Self::free_to_read`]; `first_out`: the
    /// input that the flow knows to run out first; `busy`: as [`SchedulerView::busy`].
    pub fn view<'a>(
        &'a mut self,
        blocked_on: BlockedOn,
        free_to_read: u32,
        first_out: Option<usize>,
        busy: &'a [bool],
    ) -> SchedulerView<'a> {
        self.learn();
        if let Some(input) = self.first_out.take() {
            self.runs_out[input] = self.when_runs_out(input);
        }
        if let Some(input) = first_out.filter(|&input| input < self.held.len()) {
            let first = self.runs_out.iter().copied().fold(f64::INFINITY, f64::min);
            self.runs_out[input] = first * (1.0 - f64::EPSILON);
            self.first_out = Some(input);
        }
        SchedulerView {
            held: &self.held,
            remaining: &self.remaining,
            free_to_read,
            full: &self.full,
            free_to_write: self.free_to_write(),
            shares: &self.shares,
            runs_out: &self.runs_out,
            gain: self.gain.value(),
            busy,
            blocked_on,
        }
    }

    /// When an input runs out, in blocks consumed of all inputs together.
    fn when_runs_out(&self, input: usize) -> f64 {
        self.held_part(input) / self.shares[input].max(MIN_RATE)
    }

    /// Learns rates and gain from what was consumed and filled since the last time, and when inputs run out.
    fn learn(&mut self) {
        if std::mem::replace(&mut self.shares_are_current, true) {
            return;
        }
        let block_units = self.block_units as f64;
        let mut blocks = 0.0;
        let mut of_files = 0.0;
        for input in 0..self.new_consumed.len() {
            let consumed = std::mem::take(&mut self.new_consumed[input]) as f64 / block_units;
            self.rates.add(input, consumed);
            blocks += consumed;
            of_files += if self.is_file(input) { consumed } else { 0.0 };
        }
        self.rates.fade(blocks);
        self.gain.add(of_files, std::mem::take(&mut self.new_filled) as f64 / block_units);
        let Occupancy { held, remaining, rates, shares, .. } = self;
        rates.write_shares(|input| held[input] > 0 || remaining[input] > 0, shares);
        self.runs_out.clear();
        for input in 0..self.held.len() {
            self.runs_out.push(self.when_runs_out(input));
        }
    }
}

/// The share of each input in the consumed bytes.
#[derive(Clone, Debug)]
pub struct Rates {
    consumed: Vec<f64>,
    window: f64,
}

impl Rates {
    /// Equal shares, to be corrected over `window` blocks.
    pub fn new(inputs: usize, window: f64) -> Self {
        let equal = window / inputs.max(1) as f64;
        Rates { consumed: vec![equal; inputs], window: window.max(1.0) }
    }

    /// Shares in proportion to `lengths` if they differ, to be corrected within a memory.
    pub fn expect(&mut self, lengths: &[u64]) {
        let shortest = lengths.iter().min();
        let longest = lengths.iter().max();
        if shortest
            .zip(longest)
            .is_none_or(|(&shortest, &longest)| longest <= shortest + shortest / EVEN_PART)
        {
            return;
        }
        let all: f64 = lengths.iter().map(|&length| length as f64).sum();
        let weight = self.window / RATE_WINDOW_MEMORIES * LENGTH_MEMORIES;
        for (consumed, &length) in self.consumed.iter_mut().zip(lengths) {
            *consumed = weight * length as f64 / all;
        }
    }

    /// Counts `blocks`, or a part of one, consumed of `input`.
    pub fn add(&mut self, input: usize, blocks: f64) {
        self.consumed[input] += blocks;
    }

    /// Lets the past fade after `blocks` were consumed of all inputs together.
    pub fn fade(&mut self, blocks: f64) {
        let kept = (-blocks / self.window).exp();
        for consumed in &mut self.consumed {
            *consumed *= kept;
        }
    }

    /// Writes the shares into `shares`: they add up to one over the inputs for which `live` holds and are zero for
    /// others. No live input has less than `MIN_RATE_SHARE` of an equal share.
    pub fn write_shares(&self, live: impl Fn(usize) -> bool, shares: &mut Vec<f64>) {
        let inputs = 0..self.consumed.len();
        let count = inputs.clone().filter(|&input| live(input)).count().max(1) as f64;
        let all: f64 = inputs.clone().filter(|&input| live(input)).map(|input| self.consumed[input]).sum();
        let min = MIN_RATE_SHARE * all.max(f64::MIN_POSITIVE) / count;
        shares.clear();
        shares.extend(inputs.map(|input| if live(input) { self.consumed[input].max(min) } else { 0.0 }));
        let sum: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share = if sum > 0.0 { *share / sum } else { 0.0 });
    }
}

/// Blocks written for each block read.
#[derive(Clone, Debug)]
pub struct Gain {
    window: f64,
    read: f64,
    written: f64,
}

impl Gain {
    /// Expects `gain`, to be corrected over `window` blocks.
    pub fn new(gain: f64, window: f64) -> Self {
        Gain { window, read: window, written: window * gain }
    }

    /// Lets what it expects count for no more than what is seen over `blocks`.
    fn doubt(&mut self, blocks: f64) {
        let kept = (blocks.max(1.0) / self.read).min(1.0);
        self.read *= kept;
        self.written *= kept;
    }

    /// Counts blocks that were consumed of files, and those that outputs were filled by meanwhile.
    pub fn add(&mut self, read: f64, written: f64) {
        let kept = (-read / self.window).exp();
        self.read = (self.read + read) * kept;
        self.written = (self.written + written) * kept;
    }

    /// The recent mean.
    pub fn value(&self) -> f64 {
        self.written / self.read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three inputs of four blocks each, in a memory of twelve, and two outputs.
    fn loaded() -> Occupancy {
        let shape = Shape { inputs: 3, outputs: 2, alpha: 0.5 };
        let mut occupancy = Occupancy::new(&shape, Split { read: 12, write: 6 }, 10);
        for input in 0..3 {
            occupancy.set_remaining(input, 9);
            (0..4).for_each(|_| occupancy.begin_read(input));
        }
        occupancy
    }

    #[test]
    fn inputs_run_out_as_they_are_consumed() {
        let mut occupancy = loaded();
        assert_eq!((occupancy.free_to_read(), occupancy.used()), (0, 14));
        let view = occupancy.view(BlockedOn::Nothing, 0, None, &[]);
        assert!(view.runs_out.iter().all(|&end| (end - 12.0).abs() < 1e-9), "{:?}", view.runs_out);
        occupancy.consume(1, 10);
        occupancy.release(1);
        occupancy.consume(1, 5);
        assert!((occupancy.held_part(1) - 2.5).abs() < 1e-12);
        let view = occupancy.view(BlockedOn::Nothing, 1, None, &[]);
        assert!(view.runs_out[1] < view.runs_out[0] && view.shares[1] > view.shares[0]);
    }

    #[test]
    fn reads_alone_put_off_when_their_input_runs_out() {
        let mut occupancy = loaded();
        occupancy.begin_read(2);
        let view = occupancy.view(BlockedOn::Nothing, 3, Some(2), &[]);
        assert!(view.runs_out[2] < view.runs_out[0]);
        occupancy.begin_read(0);
        // The flow no longer knows which input runs out first.
        let view = occupancy.view(BlockedOn::Nothing, 2, None, &[]);
        for (found, wanted) in view.runs_out.iter().zip([15.0, 12.0, 15.0]) {
            assert!((found - wanted).abs() < 1e-9, "{:?}", view.runs_out);
        }
    }

    #[test]
    fn the_flow_s_knowledge_comes_first() {
        let mut occupancy = loaded();
        occupancy.consume(1, 5);
        let view = occupancy.view(BlockedOn::Nothing, 0, Some(2), &[]);
        assert!(view.runs_out[2] < view.runs_out[0] && view.runs_out[2] < view.runs_out[1]);
    }

    #[test]
    fn free_memory_moves_between_the_sides() {
        let mut occupancy = loaded();
        assert!(!occupancy.divide(Split { read: 4, write: 14 }, 12), "inputs hold all of their memory");
        (0..4).for_each(|_| occupancy.release(2));
        assert!(
            !occupancy.divide(Split { read: 4, write: 14 }, 1),
            "the flow has not freed what it consumed"
        );
        assert!(occupancy.divide(Split { read: 4, write: 14 }, 4));
        assert_eq!(occupancy.split(), Split { read: 9, write: 9 }, "input 2 keeps a block");
        (0..5).for_each(|_| assert!(occupancy.queue(0)));
        assert!(occupancy.divide(Split { read: 18, write: 0 }, 0));
        assert_eq!(occupancy.split(), Split { read: 11, write: 7 }, "blocks in use stay");
    }

    #[test]
    fn a_full_block_waits_only_if_another_can_take_its_place() {
        let mut occupancy = loaded();
        let queued = (0..9).take_while(|_| occupancy.queue(0)).count();
        assert_eq!((queued, occupancy.free_to_write(), occupancy.full(0)), (4, 0, 4));
        occupancy.begin_write(0);
        assert!(!occupancy.queue(1), "a block that is being written is not free");
        occupancy.end_write();
        assert!(occupancy.queue(1));
        occupancy.close(|output| output == 1);
        assert_eq!((occupancy.full(0), occupancy.full(1), occupancy.full_all()), (3, 2, 5));
    }
}

#[cfg(test)]
mod rate_tests {
    use super::*;

    fn shares_of(rates: &Rates, live: impl Fn(usize) -> bool) -> Vec<f64> {
        let mut shares = Vec::new();
        rates.write_shares(live, &mut shares);
        shares
    }

    #[test]
    fn shares_follow_consumption() {
        let mut rates = Rates::new(4, 100.0);
        assert!(shares_of(&rates, |_| true).iter().all(|share| (share - 0.25).abs() < 1e-12));
        for _ in 0..1000 {
            rates.add(0, 0.75);
            rates.add(1, 0.25);
            rates.fade(1.0);
        }
        let shares = shares_of(&rates, |_| true);
        assert!((shares[0] / shares[1] - 3.0).abs() < 0.01, "{shares:?}");
        assert!(shares[2] > 0.0 && shares[2] < 0.02, "{shares:?}");
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let without = shares_of(&rates, |input| input != 0);
        assert!(without[0] == 0.0 && (without.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
}
