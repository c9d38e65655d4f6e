//! Who is read and who is written next. A schedule is pure: it sees how many blocks each stream holds
//! and why the function in the middle stands still, and answers with one block to move. It never
//! touches a stream, so the simulator and the engine drive the very same one.
//!
//! * [`staircase`]: the algorithms A1 to A6, for long runs on devices whose switches cost time.
//! * [`equal_parts`]: what everyone does, for comparison.
//! * [`forecast`]: blocks in the order in which a merge needs them, for devices without.
//! * [`rates`]: how fast each input is being consumed, as far as that has been seen.
//!
//! Invariant (no deadlock): an input gets a block beyond its first only while as many blocks stay free
//! as there are live inputs with none. Whatever the function waits for can therefore always be read.

pub mod equal_parts;
pub mod forecast;
pub mod rates;
pub mod staircase;

pub use equal_parts::EqualParts;
pub use forecast::{FewestHeld, Forecast};
pub use rates::Rates;
pub use staircase::Staircase;

/// What a schedule sees. Memory is counted in blocks.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    /// Blocks each input holds: filled and not yet consumed, or being read.
    pub held: &'a [u32],
    /// Blocks each input has still to be asked for.
    pub remaining: &'a [u32],
    /// Free blocks of the inputs' memory.
    pub free_to_read: u32,
    /// Full blocks each output holds, not yet being written.
    pub full: &'a [u32],
    /// Free blocks of the outputs' memory.
    pub free_to_write: u32,
    /// The share of each input in what is consumed.
    pub shares: &'a [f64],
    /// For each input, after how many more blocks consumed of all inputs together it runs out: what it
    /// holds over its share, or sooner than all others where the flow says so.
    pub runs_out: &'a [f64],
    /// Blocks written for each block read, as the function has it of late.
    pub gain: f64,
    /// Inputs whose device has enough to do, where there are several devices; else empty.
    pub busy: &'a [bool],
    /// Why the function stands still.
    pub stall: Stall,
}

/// Why the function stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// It does not, or what it waits for is on its way.
    Running,
    /// For want of data of this input.
    Input(usize),
    /// For want of data of this input, of which a block is being read.
    Arriving(usize),
    /// For want of room for its output.
    Room,
    /// It has seen the end of all inputs.
    Ended,
}

/// One block to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Read a block of this input.
    Read(usize),
    /// Write a block of this output.
    Write(usize),
}

/// Decides the next block to move.
pub trait Schedule: Send {
    /// The next block to move; none: nothing before something changes.
    fn next(&mut self, sight: &Sight<'_>) -> Option<Move>;
}

impl Sight<'_> {
    /// Whether a block of `input` may be read without taking one that another input will need.
    pub fn may_read(&self, input: usize) -> bool {
        self.remaining[input] > 0
            && self.free_to_read > 0
            && (self.held[input] == 0 || self.free_to_read > self.starving())
    }

    /// Whether the device of `input` has enough to do.
    pub fn is_busy(&self, input: usize) -> bool {
        self.busy.get(input).copied().unwrap_or(false)
    }

    /// Inputs that have more to come and hold nothing.
    fn starving(&self) -> u32 {
        let starves = self.held.iter().zip(self.remaining);
        starves.filter(|&(&held, &remaining)| held == 0 && remaining > 0).count() as u32
    }

    /// The output with the most full blocks, if any has one.
    fn fullest(&self) -> Option<usize> {
        let most = (0..self.full.len()).max_by_key(|&output| (self.full[output], std::cmp::Reverse(output)));
        most.filter(|&output| self.full[output] > 0)
    }
}
