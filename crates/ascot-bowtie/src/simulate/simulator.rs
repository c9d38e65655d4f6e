//! The loop: the function advances until it is blocked, the schedule moves a block.

use std::mem::take;

use super::rate_model::{Portion, RateModel, Setup, StreamState, UNITS};
use crate::constants::BEGINNING_MEMORIES;
use crate::occupancy::Occupancy;
use crate::schedule::{BlockedOn, Move, Schedule, Split, Staircase};

/// The result of a simulation.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Blocks moved.
    pub blocks: u64,
    /// Runs: blocks of the same stream, one after the other.
    pub runs: u64,
    /// Blocks moved in the steady state: while all streams were live, after the beginning.
    pub steady_blocks: u64,
    /// Runs of the steady state.
    pub steady_runs: u64,
    /// Mean number of blocks held by inputs when the function waited for one, in descending order.
    pub input_staircase: Vec<f64>,
    /// Mean number of blocks held by outputs when their memory was full, in descending order.
    pub output_staircase: Vec<f64>,
    /// The most blocks of memory in use at once.
    pub peak_blocks: u32,
    /// The most blocks that moved while the function stood still.
    pub longest_wait_blocks: u64,
    /// Every run, on request: the stream and what was moved, [`UNITS`] to a block.
    pub steps: Vec<(Move, u64)>,
}

impl Outcome {
    /// Mean blocks of a run in the steady state.
    pub fn run_length(&self) -> f64 {
        self.steady_blocks as f64 / self.steady_runs.max(1) as f64
    }
}

/// A simulation that cannot go on: the schedule moves nothing although the function waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the schedule cannot go on after {blocks} blocks: it is blocked on {blocked_on}")]
pub struct Deadlock {
    /// Blocks moved before.
    pub blocks: u64,
    /// What the function is blocked on.
    pub blocked_on: BlockedOn,
}

/// Runs a simulation to its end. `keep_steps`: the outcome lists every run.
pub fn simulate(setup: &Setup, keep_steps: bool) -> Result<Outcome, Deadlock> {
    let split = Split::new(&setup.scheme, setup.memory_blocks);
    simulate_by(setup, split, &mut Staircase::new(setup.scheme, split.read), keep_steps)
}

/// The same with another schedule than that of the setup's scheme, and memory divided for it.
pub fn simulate_by(
    setup: &Setup,
    split: Split,
    schedule: &mut dyn Schedule,
    keep_steps: bool,
) -> Result<Outcome, Deadlock> {
    let mut simulator = Simulator::new(setup, split, schedule);
    let mut outcome = Outcome::default();
    let mut observer = Observer::default();
    let mut last: Option<Move> = None;
    // The function's progress, and the blocks moved when it last made any.
    let mut produced = 0.0;
    let mut blocks_then = 0;
    loop {
        let blocked_on = simulator.advance();
        if produced == simulator.function.produced() && blocked_on != BlockedOn::End {
            outcome.longest_wait_blocks = outcome.longest_wait_blocks.max(outcome.blocks - blocks_then);
        } else {
            blocks_then = outcome.blocks;
        }
        produced = simulator.function.produced();
        let Some(step) = simulator.next_move(blocked_on) else {
            if blocked_on == BlockedOn::End {
                break;
            }
            return Err(Deadlock { blocks: outcome.blocks, blocked_on });
        };
        let is_new_run = last != Some(step);
        if simulator.is_steady(outcome.blocks) {
            outcome.steady_blocks += 1;
            outcome.steady_runs += u64::from(is_new_run);
            // Of a group, only the state before the first run counts.
            let algorithm = setup.scheme.algorithm;
            let is_within_group = match (last, step) {
                (Some(Move::Read(_)), Move::Read(_)) => algorithm.reads_in_groups(),
                (Some(Move::Write(_)), Move::Write(_)) => algorithm.writes_in_groups(),
                _ => false,
            };
            if is_new_run && !is_within_group {
                observer.note(&simulator.counters, blocked_on);
            }
        }
        outcome.blocks += 1;
        outcome.runs += u64::from(is_new_run);
        let moved = simulator.perform(step);
        if keep_steps {
            match outcome.steps.last_mut() {
                Some((_, units)) if !is_new_run => *units += moved,
                _ => outcome.steps.push((step, moved)),
            }
        }
        outcome.peak_blocks = outcome.peak_blocks.max(simulator.counters.occupancy.used());
        last = Some(step);
    }
    outcome.input_staircase = observer.inputs.values();
    outcome.output_staircase = observer.outputs.values();
    Ok(outcome)
}

/// The schedule, the function and the counters between them.
struct Simulator<'a> {
    setup: &'a Setup,
    schedule: &'a mut dyn Schedule,
    function: RateModel,
    counters: Counters,
    closed: bool,
}

/// What streams hold, and the units of their blocks.
struct Counters {
    occupancy: Occupancy,
    /// Units consumed of each input's first block.
    consumed: Vec<u64>,
    /// Units in the block that each output fills.
    filled: Vec<u64>,
}

impl StreamState for Counters {
    fn is_live(&self, input: usize) -> bool {
        self.occupancy.is_live(input)
    }

    fn has_data(&self, input: usize) -> bool {
        self.occupancy.held(input) > 0
    }

    fn has_free(&self, output: usize) -> bool {
        self.filled[output] < UNITS
    }
}

impl Counters {
    /// Queues full blocks as far as there is memory for the next ones.
    fn queue_full_blocks(&mut self) {
        for output in 0..self.filled.len() {
            if self.filled[output] == UNITS && self.occupancy.queue(output) {
                self.filled[output] = 0;
            }
        }
    }

    fn apply(&mut self, portion: &Portion) {
        for (input, &units) in portion.consumed.iter().enumerate().filter(|&(_, &units)| units > 0) {
            self.occupancy.consume(input, units);
            self.consumed[input] += units;
            if self.consumed[input] == UNITS {
                self.consumed[input] = 0;
                self.occupancy.release(input);
            }
        }
        for (filled, &units) in self.filled.iter_mut().zip(&portion.filled) {
            *filled += units;
            self.occupancy.fill(units);
        }
        self.queue_full_blocks();
    }
}

impl<'a> Simulator<'a> {
    fn new(setup: &'a Setup, split: Split, schedule: &'a mut dyn Schedule) -> Self {
        let shape = setup.scheme.shape;
        let mut occupancy = Occupancy::new(&shape, split, UNITS);
        let lengths = setup.input_blocks();
        for (input, &blocks) in lengths.iter().enumerate() {
            occupancy.set_remaining(input, blocks);
        }
        occupancy.expect_rates_by_length(lengths.into_iter().map(|blocks| Some(u64::from(blocks))).collect());
        let consumed = vec![0; shape.inputs as usize];
        let filled = vec![0; shape.outputs as usize];
        Simulator {
            setup,
            schedule,
            function: RateModel::new(setup),
            counters: Counters { occupancy, consumed, filled },
            closed: false,
        }
    }

    fn next_move(&mut self, blocked_on: BlockedOn) -> Option<Move> {
        let occupancy = &mut self.counters.occupancy;
        let free = occupancy.free_to_read();
        self.schedule.next(&occupancy.view(blocked_on, free, None, &[]))
    }

    /// Moves a block; returns its units.
    fn perform(&mut self, step: Move) -> u64 {
        let Counters { occupancy, filled, .. } = &mut self.counters;
        match step {
            Move::Read(input) => {
                occupancy.begin_read(input);
                occupancy.set_remaining(input, occupancy.remaining(input) - 1);
                UNITS
            }
            Move::Write(output) => {
                occupancy.begin_write(output);
                occupancy.end_write();
                // The last block of an output may not be full.
                let is_last = self.closed && occupancy.full(output) == 0;
                if is_last && filled[output] > 0 { take(&mut filled[output]) } else { UNITS }
            }
        }
    }

    /// Whether all streams are live and the beginning is over.
    fn is_steady(&self, moved: u64) -> bool {
        let begun = moved > u64::from(BEGINNING_MEMORIES) * u64::from(self.setup.memory_blocks);
        let occupancy = &self.counters.occupancy;
        let live = (0..occupancy.inputs()).all(|input| occupancy.remaining(input) > 0);
        begun && live && (occupancy.inputs() > 0 || self.function.has_source())
    }

    /// The function runs until it is blocked.
    fn advance(&mut self) -> BlockedOn {
        if self.closed {
            return BlockedOn::End;
        }
        self.counters.queue_full_blocks();
        loop {
            match self.function.advance(&self.counters) {
                Ok(portion) => self.counters.apply(portion),
                Err(blocked_on) => {
                    self.closed = blocked_on == BlockedOn::End;
                    if self.closed {
                        let filled = &self.counters.filled;
                        self.counters.occupancy.close(|output| filled[output] > 0);
                    }
                    return blocked_on;
                }
            }
        }
    }
}

/// Means of what streams hold when runs begin.
#[derive(Default)]
struct Observer {
    inputs: Means,
    outputs: Means,
}

impl Observer {
    fn note(&mut self, counters: &Counters, blocked_on: BlockedOn) {
        let Counters { occupancy, filled, .. } = counters;
        match blocked_on {
            BlockedOn::Input(_) => {
                self.inputs.add((0..occupancy.inputs()).map(|input| occupancy.held_part(input)).collect());
            }
            BlockedOn::OutputMemory => {
                let holds = |output| f64::from(occupancy.full(output)) + filled[output] as f64 / UNITS as f64;
                self.outputs.add((0..occupancy.outputs()).map(holds).collect());
            }
            BlockedOn::Nothing | BlockedOn::InputInFlight(_) | BlockedOn::End => {}
        }
    }
}

/// Means of values that are sorted first, in descending order.
#[derive(Default)]
struct Means {
    sums: Vec<f64>,
    count: u32,
}

impl Means {
    fn add(&mut self, mut values: Vec<f64>) {
        values.sort_by(|a, b| b.total_cmp(a));
        self.sums.resize(values.len(), 0.0);
        self.sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        self.count += 1;
    }

    fn values(&self) -> Vec<f64> {
        self.sums.iter().map(|sum| sum / f64::from(self.count.max(1))).collect()
    }
}
