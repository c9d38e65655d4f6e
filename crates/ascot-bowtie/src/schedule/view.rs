//! What a schedule sees and what it answers: the counts of both sides, and the next block to move.
//!
//! Invariant (no deadlock): an input gets a block beyond its first only while as many blocks stay free as there are
//! live inputs that hold none ([`SchedulerView::may_read`]). The function never waits for an input that cannot be
//! read.

use std::cmp::Reverse;

use ascot_model::bucket_steps::Steps;
use ascot_model::run_length::Scheme;

use super::split::Split;

/// What a schedule sees. Memory is counted in blocks.
#[derive(Clone, Copy, Debug)]
pub struct SchedulerView<'a> {
    /// Blocks that each input holds: filled and not yet consumed, or being read.
    pub held: &'a [u32],
    /// Blocks of each input that are not yet requested.
    pub remaining: &'a [u32],
    /// Free blocks of the inputs' memory.
    pub free_to_read: u32,
    /// Full blocks that each output holds, not yet being written.
    pub full: &'a [u32],
    /// Free blocks of the outputs' memory.
    pub free_to_write: u32,
    /// The share of each input in the consumed bytes.
    pub shares: &'a [f64],
    /// When each input runs out, in blocks consumed of all inputs together: its blocks over its share. An input that
    /// the flow knows to run out first comes before all others.
    pub runs_out: &'a [f64],
    /// Blocks written for each block read, of late.
    pub gain: f64,
    /// Inputs whose device is busy, where there are several devices; else empty.
    pub busy: &'a [bool],
    /// What the function is blocked on.
    pub blocked_on: BlockedOn,
}

/// What the function is blocked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockedOn {
    /// Nothing: it runs, or a write that frees memory is in flight.
    Nothing,
    /// The data of this input, of which no block is in flight.
    Input(usize),
    /// The data of this input, of which a block is in flight.
    InputInFlight(usize),
    /// Memory for its output.
    OutputMemory,
    /// The last writes: all inputs have ended.
    End,
}

impl std::fmt::Display for BlockedOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BlockedOn::Nothing => f.write_str("nothing"),
            BlockedOn::Input(input) | BlockedOn::InputInFlight(input) => write!(f, "input {input}"),
            BlockedOn::OutputMemory => f.write_str("memory for its output"),
            BlockedOn::End => f.write_str("the last writes"),
        }
    }
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
    /// The next block to move; none: nothing moves before something changes.
    fn next(&mut self, view: &SchedulerView<'_>) -> Option<Move>;

    /// Goes on with another scheme for the same streams, and with this number of blocks for inputs. A schedule that
    /// follows no scheme ignores it.
    fn adapt(&mut self, _scheme: &Scheme, _read_blocks: u32) {}

    /// The staircases that it keeps while memory is divided by `split` and this number of inputs has not ended, in
    /// blocks; none for a schedule that keeps none.
    fn staircases(&self, _live_inputs: u32, _split: Split) -> Staircases {
        Staircases::default()
    }
}

/// The staircases of both sides, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Staircases {
    /// That of the inputs.
    pub inputs: Option<Steps>,
    /// That of the outputs.
    pub outputs: Option<Steps>,
}

impl Staircases {
    /// That of inputs that share `blocks`, by theorem 6 or, for groups, theorem 8. A single input is read as it is
    /// consumed, and keeps none. Part of the first block of each input is consumed, half of it in the mean.
    pub fn of_inputs(live: u32, group: Option<f64>, blocks: u32) -> Option<Steps> {
        let memory = f64::from(blocks) - f64::from(live) / 2.0;
        (live > 1 && memory > 0.0).then_some(Steps { streams: live, group, memory })
    }

    /// That of outputs that share `blocks`, by theorem 1 or, for groups, theorem 3. The block that each of them fills
    /// is half full in the mean.
    pub fn of_outputs(outputs: u32, group: Option<f64>, blocks: u32) -> Option<Steps> {
        let memory = f64::from(blocks) - f64::from(outputs) / 2.0;
        (outputs > 1 && memory > 0.0).then_some(Steps { streams: outputs, group, memory })
    }
}

impl SchedulerView<'_> {
    /// Whether a block of `input` may be read without taking one that another input will need.
    pub fn may_read(&self, input: usize) -> bool {
        self.remaining[input] > 0
            && self.free_to_read > 0
            && (self.held[input] == 0 || self.free_to_read > self.starving())
    }

    /// Whether the device of `input` is busy.
    pub fn is_busy(&self, input: usize) -> bool {
        !self.busy.is_empty() && self.busy[input]
    }

    /// Inputs that have more blocks to come and hold none.
    fn starving(&self) -> u32 {
        let starves = self.held.iter().zip(self.remaining);
        starves.filter(|&(&held, &remaining)| held == 0 && remaining > 0).count() as u32
    }

    /// The output with the most full blocks, if any output has one.
    pub(crate) fn fullest(&self) -> Option<usize> {
        let fullest = (0..self.full.len()).max_by_key(|&output| (self.full[output], Reverse(output)));
        fullest.filter(|&output| self.full[output] > 0)
    }

    /// All outputs with full blocks, the fullest first.
    pub(crate) fn fullest_first(&self) -> Vec<usize> {
        let mut outputs: Vec<usize> = (0..self.full.len()).filter(|&output| self.full[output] > 0).collect();
        outputs.sort_by_key(|&output| (Reverse(self.full[output]), output));
        outputs
    }

    /// The inputs for which `wanted` holds, in the order in which they run out.
    pub(crate) fn by_run_out(&self, wanted: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut inputs: Vec<usize> = (0..self.held.len()).filter(|&input| wanted(input)).collect();
        inputs.sort_by(|&a, &b| self.runs_out[a].total_cmp(&self.runs_out[b]).then(a.cmp(&b)));
        inputs
    }
}
