//! Bowties of numbers: the schedules drive streams that are nothing but counters, and a function that
//! consumes from its inputs and fills its outputs at given rates. What comes out is what a device would
//! see: runs, their lengths, and what the streams hold.
//!
//! The function is infinitely fast and goes as far as it can between any two blocks that move, as in
//! the published model (section II.A: the device is the bottleneck).

use ascot_model::run_length::Scheme;

use crate::schedule::{Rates, Sight, Staircase, Stall, Step};

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
    /// Every run, where asked for: the stream and its blocks.
    pub steps: Vec<(Step, u32)>,
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
    let mut world = World::new(setup);
    let mut outcome = Outcome::default();
    let mut observer = Stairs::default();
    let mut last: Option<Step> = None;
    loop {
        let stall = world.advance();
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
                (Some(Step::Read(_)), Step::Read(_)) => algorithm.reads_in_groups(),
                (Some(Step::Write(_)), Step::Write(_)) => algorithm.writes_in_groups(),
                _ => false,
            };
            if new_run && !within {
                observer.note(&world, stall);
            }
        }
        if keep_steps {
            match outcome.steps.last_mut() {
                Some((_, blocks)) if !new_run => *blocks += 1,
                _ => outcome.steps.push((step, 1)),
            }
        }
        world.perform(step);
        outcome.peak_blocks = outcome.peak_blocks.max(world.used());
        last = Some(step);
    }
    outcome.input_stairs = observer.inputs.mean();
    outcome.output_stairs = observer.outputs.mean();
    Ok(outcome)
}

/// Counters for streams.
struct World<'a> {
    setup: &'a Setup,
    schedule: Staircase,
    chance: Chance,
    rates: Rates,
    read_blocks: u32,
    write_blocks: u32,
    held: Vec<u32>,
    remaining: Vec<u32>,
    /// Of each input's first block, what has been consumed.
    eaten: Vec<f64>,
    full: Vec<u32>,
    /// Of each output's last block, what has been filled.
    filled: Vec<f64>,
    input_rates: Vec<f64>,
    output_rates: Vec<f64>,
    /// Blocks written for one consumed.
    gain: f64,
    /// Blocks a source without streams has still to give.
    source: f64,
    produced: f64,
}

impl<'a> World<'a> {
    fn new(setup: &'a Setup) -> Self {
        let shape = setup.scheme.shape;
        let (n, m) = (shape.inputs as usize, shape.outputs as usize);
        let (read_blocks, write_blocks) = blocks_of(&setup.scheme, setup.memory_blocks);
        let alpha = shape.alpha;
        let total = setup.total_blocks as f64;
        let mut input_rates = rates(&setup.input_skew, n);
        let mut shares = normalised(&input_rates);
        if setup.input_skew == Skew::Ends {
            input_rates = vec![1.0; n];
            let ends: Vec<f64> = (1..=n).map(|k| k as f64 / n as f64).collect();
            shares = normalised(&ends);
        }
        let remaining = shares.iter().map(|share| ((total * alpha * share).ceil() as u32).max(1)).collect();
        World {
            setup,
            schedule: Staircase::new(setup.scheme, read_blocks),
            rates: Rates::new(n, 4.0 * f64::from(read_blocks)),
            read_blocks,
            write_blocks,
            held: vec![0; n],
            remaining,
            eaten: vec![0.0; n],
            full: vec![0; m],
            filled: vec![0.0; m],
            output_rates: rates(&setup.output_skew, m),
            input_rates,
            gain: if n > 0 && m > 0 { (1.0 - alpha) / alpha } else { 1.0 },
            source: if n == 0 { total } else { 0.0 },
            produced: 0.0,
            chance: Chance(setup.seed),
        }
    }

    fn used(&self) -> u32 {
        self.held.iter().sum::<u32>() + self.full.iter().sum::<u32>() + self.full.len() as u32
    }

    fn free_to_read(&self) -> u32 {
        self.read_blocks - self.held.iter().sum::<u32>()
    }

    /// Every output has a block it fills.
    fn free_to_write(&self) -> u32 {
        self.write_blocks - self.full.len() as u32 - self.full.iter().sum::<u32>()
    }

    fn live(&self, input: usize) -> bool {
        self.held[input] > 0 || self.remaining[input] > 0
    }

    fn ask(&mut self, stall: Stall) -> Option<Step> {
        let shares = self.rates.shares(|input| self.held[input] > 0 || self.remaining[input] > 0);
        let runs_out: Vec<f64> = (0..self.held.len())
            .map(|input| (f64::from(self.held[input]) - self.eaten[input]) / shares[input].max(1e-12))
            .collect();
        let sight = Sight {
            held: &self.held,
            remaining: &self.remaining,
            free_to_read: self.free_to_read(),
            full: &self.full,
            free_to_write: self.free_to_write(),
            shares: &shares,
            runs_out: &runs_out,
            gain: self.gain,
            stall,
        };
        self.schedule.next(&sight)
    }

    fn perform(&mut self, step: Step) {
        match step {
            Step::Read(input) => {
                self.held[input] += 1;
                self.remaining[input] -= 1;
            }
            Step::Write(output) => self.full[output] -= 1,
        }
    }

    /// All streams are live, and the beginning is over.
    fn is_steady(&self, moved: u64) -> bool {
        let begun = moved > 4 * u64::from(self.setup.memory_blocks);
        let live = (0..self.held.len()).all(|input| self.remaining[input] > 0);
        begun && live && (!self.held.is_empty() || self.source > 0.0)
    }

    /// The function goes on until it cannot.
    fn advance(&mut self) -> Stall {
        loop {
            self.vary();
            if self.held.is_empty() {
                if self.source <= 0.0 {
                    return Stall::Ended;
                }
            } else if (0..self.held.len()).all(|input| !self.live(input)) {
                return Stall::Ended;
            }
            if let Some(empty) = (0..self.held.len()).find(|&i| self.wants(i) && self.held[i] == 0) {
                return Stall::Input(empty);
            }
            if let Some(output) = (0..self.full.len()).find(|&output| self.filled[output] >= 1.0) {
                if self.free_to_write() == 0 {
                    return Stall::Room;
                }
                self.filled[output] -= 1.0;
                self.full[output] += 1;
                continue;
            }
            self.flow();
        }
    }

    /// Whether the function needs data of an input to go on.
    fn wants(&self, input: usize) -> bool {
        self.live(input) && self.input_rates[input] > 0.0
    }

    /// Consumes and fills up to the next end of a block.
    fn flow(&mut self) {
        let consuming: f64 =
            (0..self.held.len()).filter(|&i| self.live(i)).map(|i| self.input_rates[i]).sum();
        let filling: f64 = self.output_rates.iter().sum();
        let mut amount = if self.held.is_empty() { self.source } else { f64::INFINITY };
        for input in (0..self.held.len()).filter(|&input| self.wants(input)) {
            amount = amount.min((1.0 - self.eaten[input]) * consuming / self.input_rates[input]);
        }
        for output in (0..self.full.len()).filter(|&output| self.output_rates[output] > 0.0) {
            let room = (1.0 - self.filled[output]).max(0.0);
            amount = amount.min(room * filling / (self.output_rates[output] * self.gain));
        }
        let amount = if amount.is_finite() { amount } else { 1.0 };
        for input in 0..self.held.len() {
            if !self.wants(input) {
                continue;
            }
            let eaten = amount * self.input_rates[input] / consuming;
            self.rates.consumed(input, eaten);
            self.eaten[input] += eaten;
            if self.eaten[input] >= 1.0 - 1e-9 {
                self.eaten[input] = 0.0;
                self.held[input] -= 1;
            }
        }
        self.rates.fade(amount);
        for output in 0..self.full.len() {
            self.filled[output] += amount * self.gain * self.output_rates[output] / filling;
            if (self.filled[output] - 1.0).abs() < 1e-9 {
                self.filled[output] = 1.0;
            }
        }
        self.source -= if self.held.is_empty() { amount } else { 0.0 };
        if self.source < 1e-9 {
            self.source = 0.0;
        }
        self.produced += amount;
    }

    /// Rates that change as time goes.
    fn vary(&mut self) {
        let produced = self.produced;
        let change = |skew: &Skew, rates: &mut [f64], chance: &mut Chance| match skew {
            Skew::Noise(most) => {
                for rate in rates {
                    *rate = (1.0 + most * (2.0 * chance.next() - 1.0)).max(0.01);
                }
            }
            Skew::Bursts(blocks) if !rates.is_empty() => {
                let now = (produced / blocks) as usize % rates.len();
                for (at, rate) in rates.iter_mut().enumerate() {
                    *rate = if at == now { 1.0 } else { 0.0 };
                }
            }
            _ => {}
        };
        change(&self.setup.input_skew, &mut self.input_rates, &mut self.chance);
        change(&self.setup.output_skew, &mut self.output_rates, &mut self.chance);
        // A burst of an input that has ended is over.
        if !self.held.is_empty() && !(0..self.held.len()).any(|input| self.wants(input)) {
            for input in 0..self.held.len() {
                self.input_rates[input] = 1.0;
            }
        }
    }
}

/// How memory is divided: blocks for inputs, blocks for outputs. A side that is a single stream needs
/// no more than two; every stream has at least one.
pub fn blocks_of(scheme: &Scheme, memory_blocks: u32) -> (u32, u32) {
    let (n, m) = (scheme.shape.inputs, scheme.shape.outputs);
    let share = (f64::from(memory_blocks) * scheme.read_share()).round() as u32;
    // An output fills a block while full ones wait, so each needs two.
    let least_read = if n == 0 { 0 } else { n + 1 };
    let least_write = if m == 0 { 0 } else { 2 * m };
    let read = share.clamp(least_read, memory_blocks.saturating_sub(least_write).max(least_read));
    (read, memory_blocks.saturating_sub(read).max(least_write))
}

fn rates(skew: &Skew, count: usize) -> Vec<f64> {
    (1..=count)
        .map(|k| match skew {
            Skew::Zipf(exponent) => (k as f64).powf(-exponent),
            Skew::OneFast(times) if k == 1 => *times,
            _ => 1.0,
        })
        .collect()
}

fn normalised(rates: &[f64]) -> Vec<f64> {
    let sum: f64 = rates.iter().sum();
    rates.iter().map(|rate| rate / sum).collect()
}

/// Numbers by chance, the same for the same seed (splitmix64).
struct Chance(u64);

impl Chance {
    /// Between 0 and 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) as f64 / u64::MAX as f64
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
        match stall {
            Stall::Input(_) => {
                let held = world.held.iter().zip(&world.eaten);
                self.inputs.add(held.map(|(&held, eaten)| f64::from(held) - eaten).collect());
            }
            Stall::Room => {
                let full = world.full.iter().zip(&world.filled);
                self.outputs.add(full.map(|(&full, filled)| f64::from(full) + filled).collect());
            }
            Stall::Running | Stall::Ended => {}
        }
    }
}

#[cfg(test)]
mod tests;
