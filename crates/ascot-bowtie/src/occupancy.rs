//! What the streams of a bowtie hold, and what a schedule sees of it: kept the same way for the simulator
//! and for the engine, so that both show a schedule the very same sights.
//!
//! ```text
//!   memory   | held by inputs | free to read ||| being filled | full | written | free to write |
//!            |<------- read blocks --------->|||<------------- write blocks ------------------>|
//! ```
//!
//! Every output has a block it fills, counted from the start. Parts of blocks are counted in units (bytes,
//! in the engine).
//!
//! Invariant: a full block is queued only while there is a free one to take its place.

use ascot_model::run_length::{Algorithm, Scheme, Shape};

use crate::schedule::{Rates, Sight, Stall};

/// Rates of inputs are learnt over so many times their memory.
const WINDOW_MEMORIES: f64 = 4.0;

/// How much more inputs have (A6w) than would last for the rounds of the outputs.
const MARGIN: f64 = 1.01;

/// How memory is divided, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// For inputs.
    pub read: u32,
    /// For outputs.
    pub write: u32,
}

impl Split {
    /// What a scheme makes of so many blocks. A side that is a single stream needs no more than two; an
    /// output fills a block while full ones wait, so each needs two, whatever there is.
    pub fn of(scheme: &Scheme, memory_blocks: u32) -> Self {
        let least = Self::least(&scheme.shape);
        let share = Self::read_blocks(scheme, f64::from(memory_blocks)).round() as u32;
        let read = share.clamp(least.read, memory_blocks.saturating_sub(least.write).max(least.read));
        Split { read, write: memory_blocks.saturating_sub(read).max(least.write) }
    }

    /// Blocks for inputs. Where one side of an interconnect sets the pace (A6), the other side's part lasts for
    /// a round of it with the blocks in mind that are not full when memory is: half a block of each stream on
    /// the side that sets the pace, and one of each on the side that follows.
    fn read_blocks(scheme: &Scheme, memory: f64) -> f64 {
        let (reads, writes) = scheme.memory_of_a_round();
        let (n, m) = (f64::from(scheme.shape.inputs), f64::from(scheme.shape.outputs));
        if !scheme.in_step() {
            return memory * scheme.read_share();
        }
        if scheme.algorithm == Algorithm::A6r {
            return (memory - n / 2.0 - m).max(0.0) * reads / (reads + writes) + n / 2.0;
        }
        let reads = reads * MARGIN;
        (memory - n - m / 2.0).max(0.0) * reads / (reads + writes) + n
    }

    /// The least a bowtie can work with.
    pub fn least(shape: &Shape) -> Self {
        let read = if shape.inputs == 0 { 0 } else { shape.inputs + 1 };
        Split { read, write: 2 * shape.outputs }
    }

    /// Blocks in all.
    pub fn total(&self) -> u32 {
        self.read + self.write
    }
}

/// What streams hold.
#[derive(Clone, Debug)]
pub struct Occupancy {
    split: Split,
    block_units: u64,
    held: Vec<u32>,
    remaining: Vec<u32>,
    /// Of each input's first block, what has been consumed, units.
    eaten: Vec<u64>,
    /// What each input gave since the last look, units.
    fresh: Vec<u64>,
    full: Vec<u32>,
    held_all: u32,
    full_all: u32,
    /// Blocks being filled, one of each output until it is closed, and blocks being written.
    filling: u32,
    writing: u32,
    rates: Rates,
    shares: Vec<f64>,
    runs_out: Vec<f64>,
    gain: Gain,
    /// Shares are as they were: nothing was consumed and nothing has ended.
    settled: bool,
}

/// Blocks written for a block read, of late.
#[derive(Clone, Debug)]
struct Gain {
    window: f64,
    read: f64,
    written: f64,
    /// Filled since the last look, units.
    fresh: u64,
}

impl Gain {
    fn expecting(gain: f64, window: f64) -> Self {
        Gain { window, read: window, written: window * gain, fresh: 0 }
    }

    fn note(&mut self, read: f64, block_units: u64) {
        let kept = (-read / self.window).exp();
        self.read = (self.read + read) * kept;
        let written = std::mem::take(&mut self.fresh) as f64 / block_units as f64;
        self.written = (self.written + written) * kept;
    }
}

impl Occupancy {
    /// Streams that hold nothing; `shape` says how many, and what is written for what is read.
    pub fn new(shape: &Shape, split: Split, block_units: u64) -> Self {
        let (n, m) = (shape.inputs as usize, shape.outputs as usize);
        let window = (WINDOW_MEMORIES * f64::from(split.read)).max(1.0);
        let gain = if n > 0 && m > 0 { (1.0 - shape.alpha) / shape.alpha } else { 1.0 };
        Occupancy {
            split,
            block_units: block_units.max(1),
            held: vec![0; n],
            remaining: vec![0; n],
            eaten: vec![0; n],
            fresh: vec![0; n],
            full: vec![0; m],
            held_all: 0,
            full_all: 0,
            filling: shape.outputs,
            writing: 0,
            rates: Rates::new(n, window),
            shares: Vec::with_capacity(n),
            runs_out: Vec::with_capacity(n),
            gain: Gain::expecting(gain, window),
            settled: false,
        }
    }

    /// Inputs.
    pub fn inputs(&self) -> usize {
        self.held.len()
    }

    /// Outputs.
    pub fn outputs(&self) -> usize {
        self.full.len()
    }

    /// Blocks an input holds, the one being consumed and those being read among them.
    pub fn held(&self, input: usize) -> u32 {
        self.held[input]
    }

    /// What an input holds, in blocks and the part of one that is left of the first.
    pub fn held_part(&self, input: usize) -> f64 {
        f64::from(self.held[input]) - self.eaten[input] as f64 / self.block_units as f64
    }

    /// Blocks an input has still to be asked for.
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

    /// Whether an input has more to give.
    pub fn live(&self, input: usize) -> bool {
        self.held[input] > 0 || self.remaining[input] > 0
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

    /// Blocks of the outputs' memory, in all.
    pub fn write_blocks(&self) -> u32 {
        self.split.write
    }

    /// An input has so many blocks left to be asked for.
    pub fn set_remaining(&mut self, input: usize, blocks: u32) {
        self.settled &= (self.remaining[input] > 0) == (blocks > 0);
        self.remaining[input] = blocks;
    }

    /// A block of `input` is being read.
    pub fn reads(&mut self, input: usize) {
        self.held[input] += 1;
        self.held_all += 1;
    }

    /// So much of the first block of `input` was consumed.
    pub fn consumed(&mut self, input: usize, units: u64) {
        self.eaten[input] += units;
        self.fresh[input] += units;
        self.settled = false;
    }

    /// The first block of `input` is empty and gone, or came to nothing.
    pub fn let_go(&mut self, input: usize) {
        self.eaten[input] = 0;
        self.held[input] = self.held[input].saturating_sub(1);
        self.held_all = self.held_all.saturating_sub(1);
        self.settled = false;
    }

    /// So much was filled into outputs.
    pub fn filled(&mut self, units: u64) {
        self.gain.fresh += units;
    }

    /// The block that `output` fills is full: queues it, where a free one can take its place.
    pub fn queue(&mut self, output: usize) -> bool {
        let room = self.free_to_write() > 0;
        if room {
            self.full[output] += 1;
            self.full_all += 1;
        }
        room
    }

    /// The function is done: no input is read any more, and no output fills a block. Those for which
    /// `begun` holds have one more that waits.
    pub fn close(&mut self, begun: impl Fn(usize) -> bool) {
        self.remaining.fill(0);
        self.filling = 0;
        for output in (0..self.full.len()).filter(|&output| begun(output)) {
            self.full[output] += 1;
            self.full_all += 1;
        }
    }

    /// A block of `output` is being written.
    pub fn writes(&mut self, output: usize) {
        self.full[output] -= 1;
        self.full_all -= 1;
        self.writing += 1;
    }

    /// A block has been written.
    pub fn written(&mut self) {
        self.writing -= 1;
    }

    /// What a schedule sees. `free_to_read`: blocks that are there for inputs, which may be fewer than
    /// theirs; `first_out`: the input the flow knows to run out first; `busy`: as [`Sight::busy`].
    pub fn look<'a>(
        &'a mut self,
        stall: Stall,
        free_to_read: u32,
        first_out: Option<usize>,
        busy: &'a [bool],
    ) -> Sight<'a> {
        self.learn();
        self.runs_out.clear();
        for input in 0..self.held.len() {
            self.runs_out.push(self.held_part(input) / self.shares[input].max(1e-12));
        }
        if let Some(input) = first_out.filter(|&input| input < self.held.len()) {
            let first = self.runs_out.iter().copied().fold(f64::INFINITY, f64::min);
            self.runs_out[input] = first * (1.0 - f64::EPSILON);
        }
        Sight {
            held: &self.held,
            remaining: &self.remaining,
            free_to_read,
            full: &self.full,
            free_to_write: self.free_to_write(),
            shares: &self.shares,
            runs_out: &self.runs_out,
            gain: self.gain.written / self.gain.read,
            busy,
            stall,
        }
    }

    /// Takes what was consumed since the last look into the rates.
    fn learn(&mut self) {
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        let mut blocks = 0.0;
        for (input, fresh) in self.fresh.iter_mut().enumerate().filter(|(_, fresh)| **fresh > 0) {
            let consumed = std::mem::take(fresh) as f64 / self.block_units as f64;
            self.rates.consumed(input, consumed);
            blocks += consumed;
        }
        self.rates.fade(blocks);
        self.gain.note(blocks, self.block_units);
        let (held, remaining) = (&self.held, &self.remaining);
        self.rates.shares(|input| held[input] > 0 || remaining[input] > 0, &mut self.shares);
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
            (0..4).for_each(|_| occupancy.reads(input));
        }
        occupancy
    }

    #[test]
    fn inputs_run_out_as_they_are_consumed() {
        let mut occupancy = loaded();
        assert_eq!((occupancy.free_to_read(), occupancy.used()), (0, 14));
        let sight = occupancy.look(Stall::Running, 0, None, &[]);
        assert!(sight.runs_out.iter().all(|&end| (end - 12.0).abs() < 1e-9), "{:?}", sight.runs_out);
        occupancy.consumed(1, 10);
        occupancy.let_go(1);
        occupancy.consumed(1, 5);
        assert!((occupancy.held_part(1) - 2.5).abs() < 1e-12);
        let sight = occupancy.look(Stall::Running, 1, None, &[]);
        assert!(sight.runs_out[1] < sight.runs_out[0] && sight.shares[1] > sight.shares[0]);
    }

    #[test]
    fn a_flow_that_knows_is_believed() {
        let mut occupancy = loaded();
        occupancy.consumed(1, 5);
        let sight = occupancy.look(Stall::Running, 0, Some(2), &[]);
        assert!(sight.runs_out[2] < sight.runs_out[0] && sight.runs_out[2] < sight.runs_out[1]);
    }

    #[test]
    fn a_full_block_waits_only_if_another_can_take_its_place() {
        let mut occupancy = loaded();
        let queued = (0..9).take_while(|_| occupancy.queue(0)).count();
        assert_eq!((queued, occupancy.free_to_write(), occupancy.full(0)), (4, 0, 4));
        occupancy.writes(0);
        assert!(!occupancy.queue(1), "a block that is being written is not free");
        occupancy.written();
        assert!(occupancy.queue(1));
        occupancy.close(|output| output == 1);
        assert_eq!((occupancy.full(0), occupancy.full(1), occupancy.full_all()), (3, 2, 5));
    }
}
