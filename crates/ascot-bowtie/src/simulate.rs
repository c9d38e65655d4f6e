//! Bowties of numbers: the schedules drive streams that are nothing but counters, and a function that
//! consumes from its inputs and fills its outputs at given rates. What comes out is what a device would
//! see: runs, their lengths, and what the streams hold.
//!
//! The function is infinitely fast and goes as far as it can between any two blocks that move, as in
//! the published model (section II.A: the device is the bottleneck).

use ascot_model::run_length::Scheme;

use crate::occupancy::{Occupancy, Split};
use crate::schedule::{Move, Schedule, Staircase, Stall};

mod mill;

#[cfg(test)]
pub(crate) use mill::Streams as MillStreams;
pub use mill::UNITS;
pub(crate) use mill::{Mill, Portion};

/// How fast streams are consumed or filled, relative to each other.
#[derive(Clone, Debug, PartialEq)]
pub enum Skew {
    /// All alike.
    Equal,
    /// The k-th as `1 / k^exponent`.
    Zipf(f64),
    /// The first so many times as fast as each other.
    OneFast(f64),
    /// Each is as fast as it happens to be, up to so much more or less, anew for every block.
    Noise(f64),
    /// One after the other has all, for so many blocks.
    Bursts(f64),
    /// The k-th ends after `k / count` of what the last one has.
    Ends,
}

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The schedule.
    pub scheme: Scheme,
    /// Blocks of memory, all.
    pub memory_blocks: u32,
    /// Blocks moved in all before the end, about.
    pub total_blocks: u64,
    /// Rates of the inputs.
    pub input_skew: Skew,
    /// Rates of the outputs.
    pub output_skew: Skew,
    /// Seed of what happens by chance.
    pub seed: u64,
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Blocks moved.
    pub blocks: u64,
    /// Runs: blocks of the same stream, one after the other.
    pub runs: u64,
    /// Blocks moved while all streams were live, after the beginning.
    pub steady_blocks: u64,
    /// Runs of those.
    pub steady_runs: u64,
    /// Mean number of blocks held by inputs when the function waited for one, in descending order.
    pub input_stairs: Vec<f64>,
    /// Mean number of blocks held by outputs when there was no room, in descending order.
    pub output_stairs: Vec<f64>,
    /// The most blocks of memory in use at once.
    pub peak_blocks: u32,
    /// The most blocks that moved while the function stood still.
    pub longest_wait_blocks: u64,
    /// Every run, where asked for: the stream and what was moved, [`UNITS`] to a block.
    pub steps: Vec<(Move, u64)>,
}

impl Outcome {
    /// Mean blocks of a run in the steady state.
    pub fn run_length(&self) -> f64 {
        self.steady_blocks as f64 / self.steady_runs.max(1) as f64
    }
}

/// A simulation that cannot go on: the schedule moves nothing though the function waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// After so many blocks.
    pub blocks: u64,
    /// Why the function stood still.
    pub stall: Stall,
}

/// Runs a simulation to its end. `keep_steps`: the outcome lists every run.
pub fn simulate(setup: &Setup, keep_steps: bool) -> Result<Outcome, Deadlock> {
    let split = Split::of(&setup.scheme, setup.memory_blocks);
    simulate_by(setup, split, &mut Staircase::new(setup.scheme, split.read), keep_steps)
}

/// The same by another schedule than that of the setup's scheme, with memory divided as it needs it.
pub fn simulate_by(
    setup: &Setup,
    split: Split,
    schedule: &mut dyn Schedule,
    keep_steps: bool,
) -> Result<Outcome, Deadlock> {
    let mut world = World::new(setup, split, schedule);
    let mut outcome = Outcome::default();
    let mut observer = Stairs::default();
    let mut last: Option<Move> = None;
    let mut standing = (0.0, 0);
    loop {
        let stall = world.advance();
        let (produced, since) = standing;
        standing = (world.mill.produced(), outcome.blocks);
        if produced == standing.0 && stall != Stall::Ended {
            standing.1 = since;
            outcome.longest_wait_blocks = outcome.longest_wait_blocks.max(outcome.blocks - since);
        }
        let Some(step) = world.ask(stall) else {
            if stall == Stall::Ended {
                break;
            }
            return Err(Deadlock { blocks: outcome.blocks, stall });
        };
        let steady = world.is_steady(outcome.blocks);
        let new_run = last != Some(step);
        outcome.blocks += 1;
        outcome.runs += u64::from(new_run);
        if steady {
            outcome.steady_blocks += 1;
            outcome.steady_runs += u64::from(new_run);
            // Of a group, only before the first is moved.
            let algorithm = setup.scheme.algorithm;
            let within = match (last, step) {
                (Some(Move::Read(_)), Move::Read(_)) => algorithm.reads_in_groups(),
                (Some(Move::Write(_)), Move::Write(_)) => algorithm.writes_in_groups(),
                _ => false,
            };
            if new_run && !within {
                observer.note(&world, stall);
            }
        }
        let moved = world.perform(step);
        if keep_steps {
            match outcome.steps.last_mut() {
                Some((_, units)) if !new_run => *units += moved,
                _ => outcome.steps.push((step, moved)),
            }
        }
        outcome.peak_blocks = outcome.peak_blocks.max(world.streams.occupancy.used());
        last = Some(step);
    }
    outcome.input_stairs = observer.inputs.mean();
    outcome.output_stairs = observer.outputs.mean();
    Ok(outcome)
}

/// Counters for streams.
struct World<'a> {
    setup: &'a Setup,
    schedule: &'a mut dyn Schedule,
    mill: Mill,
    streams: Counters,
    closed: bool,
}

/// What streams hold, and where their blocks stand.
struct Counters {
    occupancy: Occupancy,
    /// What is consumed of each input's first block, and filled of each output's last one, units.
    eaten: Vec<u64>,
    filled: Vec<u64>,
}

impl mill::Streams for Counters {
    fn live(&self, input: usize) -> bool {
        self.occupancy.live(input)
    }

    fn has_data(&self, input: usize) -> bool {
        self.occupancy.held(input) > 0
    }

    fn has_room(&self, output: usize) -> bool {
        self.filled[output] < UNITS
    }
}

impl Counters {
    /// Queues blocks that are full as far as there is room.
    fn settle(&mut self) {
        for output in 0..self.filled.len() {
            if self.filled[output] == UNITS && self.occupancy.queue(output) {
                self.filled[output] = 0;
            }
        }
    }

    fn pass(&mut self, portion: &Portion) {
        for (input, &units) in portion.consumed.iter().enumerate().filter(|&(_, &units)| units > 0) {
            self.occupancy.consumed(input, units);
            self.eaten[input] += units;
            if self.eaten[input] == UNITS {
                self.eaten[input] = 0;
                self.occupancy.let_go(input);
            }
        }
        for (filled, &units) in self.filled.iter_mut().zip(&portion.filled) {
            *filled += units;
            self.occupancy.filled(units);
        }
        self.settle();
    }
}

impl<'a> World<'a> {
    fn new(setup: &'a Setup, split: Split, schedule: &'a mut dyn Schedule) -> Self {
        let shape = setup.scheme.shape;
        let mut occupancy = Occupancy::new(&shape, split, UNITS);
        for (input, blocks) in Mill::lengths(setup).into_iter().enumerate() {
            occupancy.set_remaining(input, blocks);
        }
        let (eaten, filled) = (vec![0; shape.inputs as usize], vec![0; shape.outputs as usize]);
        World {
            setup,
            schedule,
            mill: Mill::new(setup),
            streams: Counters { occupancy, eaten, filled },
            closed: false,
        }
    }

    fn ask(&mut self, stall: Stall) -> Option<Move> {
        let occupancy = &mut self.streams.occupancy;
        let free = occupancy.free_to_read();
        self.schedule.next(&occupancy.look(stall, free, None, &[]))
    }

    /// Moves a block; says how much was in it, units.
    fn perform(&mut self, step: Move) -> u64 {
        let streams = &mut self.streams;
        match step {
            Move::Read(input) => {
                streams.occupancy.reads(input);
                let remaining = streams.occupancy.remaining(input);
                streams.occupancy.set_remaining(input, remaining - 1);
                UNITS
            }
            Move::Write(output) => {
                streams.occupancy.writes(output);
                streams.occupancy.written();
                // The last block of an output is what was filled of it.
                let last = self.closed && streams.occupancy.full(output) == 0;
                let part = &mut streams.filled[output];
                if last && *part > 0 { std::mem::take(part) } else { UNITS }
            }
        }
    }

    /// All streams are live, and the beginning is over.
    fn is_steady(&self, moved: u64) -> bool {
        let begun = moved > 4 * u64::from(self.setup.memory_blocks);
        let occupancy = &self.streams.occupancy;
        let live = (0..occupancy.inputs()).all(|input| occupancy.remaining(input) > 0);
        begun && live && (occupancy.inputs() > 0 || self.mill.source() > 0.0)
    }

    /// The function goes on until it cannot.
    fn advance(&mut self) -> Stall {
        if self.closed {
            return Stall::Ended;
        }
        self.streams.settle();
        loop {
            match self.mill.grind(&self.streams) {
                Ok(portion) => self.streams.pass(portion),
                Err(Stall::Ended) => {
                    self.closed = true;
                    let filled = &self.streams.filled;
                    self.streams.occupancy.close(|output| filled[output] > 0);
                    return Stall::Ended;
                }
                Err(stall) => return stall,
            }
        }
    }
}

/// Means of sorted occupancies.
#[derive(Default)]
struct Stairs {
    inputs: Means,
    outputs: Means,
}

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

    fn mean(&self) -> Vec<f64> {
        self.sums.iter().map(|sum| sum / f64::from(self.count.max(1))).collect()
    }
}

impl Stairs {
    fn note(&mut self, world: &World<'_>, stall: Stall) {
        let Counters { occupancy, filled, .. } = &world.streams;
        match stall {
            Stall::Input(_) => {
                self.inputs.add((0..occupancy.inputs()).map(|input| occupancy.held_part(input)).collect());
            }
            Stall::Room => {
                let holds = |output| f64::from(occupancy.full(output)) + filled[output] as f64 / UNITS as f64;
                self.outputs.add((0..occupancy.outputs()).map(holds).collect());
            }
            Stall::Running | Stall::Arriving(_) | Stall::Ended => {}
        }
    }
}

#[cfg(test)]
mod tests;
