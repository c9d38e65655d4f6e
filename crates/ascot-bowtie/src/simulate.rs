//! Bowties of numbers: the schedules drive streams that are nothing but counters, and a function that
//! consumes from its inputs and fills its outputs at given rates. What comes out is what a device would
//! see: runs, their lengths, and what the streams hold.
//!
//! The function is infinitely fast and goes as far as it can between any two blocks that move, as in
//! the published model (section II.A: the device is the bottleneck).

use ascot_model::run_length::{Direction, Scheme};

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
        let mut chance = Chance(setup.seed);
        let mut input_rates = rates(&setup.input_skew, n, &mut chance);
        let mut shares = normalised(&input_rates);
        if setup.input_skew == Skew::Ends {
            input_rates = vec![1.0; n];
            let ends: Vec<f64> = (1..=n).map(|k| k as f64 / n as f64).collect();
            shares = normalised(&ends);
        }
        let remaining = shares.iter().map(|share| ((total * alpha * share).ceil() as u32).max(1)).collect();
        World {
            setup,
            schedule: Staircase::new(setup.scheme, read_blocks, write_blocks),
            rates: Rates::new(n, 4.0 * f64::from(read_blocks)),
            read_blocks,
            write_blocks,
            held: vec![0; n],
            remaining,
            eaten: vec![0.0; n],
            full: vec![0; m],
            filled: vec![0.0; m],
            output_rates: rates(&setup.output_skew, m, &mut chance),
            input_rates,
            gain: if n > 0 && m > 0 { (1.0 - alpha) / alpha } else { 1.0 },
            source: if n == 0 { total } else { 0.0 },
            produced: 0.0,
            chance,
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
        begun && live && (self.held.len() > 0 || self.source > 0.0)
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
        let consuming: f64 = (0..self.held.len()).filter(|&i| self.live(i)).map(|i| self.input_rates[i]).sum();
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

fn rates(skew: &Skew, count: usize, chance: &mut Chance) -> Vec<f64> {
    let _ = chance;
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

/// What the theory says these stairs are, blocks.
pub fn expected_stairs(setup: &Setup, side: Direction) -> Vec<f64> {
    setup.scheme.staircase(side, f64::from(setup.memory_blocks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascot_model::run_length::{Algorithm, Shape};

    fn setup(inputs: u32, outputs: u32, alpha: f64, algorithm: Algorithm, memory_blocks: u32) -> Setup {
        let shape = Shape { inputs, outputs, alpha };
        let scheme = Scheme::best_of(shape, algorithm).expect("it fits");
        Setup {
            scheme,
            memory_blocks,
            total_blocks: 40 * u64::from(memory_blocks),
            input_skew: Skew::Equal,
            output_skew: Skew::Equal,
            seed: 1,
        }
    }

    fn share_of_formula(setup: &Setup) -> f64 {
        let outcome = simulate(setup, false).unwrap_or_else(|stuck| panic!("{setup:?}: {stuck:?}"));
        assert!(outcome.peak_blocks <= setup.memory_blocks, "{setup:?}: {} blocks", outcome.peak_blocks);
        outcome.run_length() / setup.scheme.run_length(f64::from(setup.memory_blocks))
    }

    /// Every algorithm, at equal rates: within two percent of the formula at the groups in use.
    #[test]
    fn the_formulas_hold() {
        for (n, m, alpha, algorithm) in [
            (0, 16, 0.0, Algorithm::A1),
            (0, 64, 0.0, Algorithm::A1),
            (1, 16, 0.5, Algorithm::A2),
            (1, 31, 0.5, Algorithm::A2),
            (1, 64, 0.2, Algorithm::A2),
            (16, 0, 1.0, Algorithm::A3),
            (64, 0, 1.0, Algorithm::A3),
            (16, 1, 0.5, Algorithm::A4),
            (31, 1, 0.5, Algorithm::A4),
            (64, 1, 0.8, Algorithm::A4),
            (64, 16, 0.5, Algorithm::A5),
            (3, 100, 0.5, Algorithm::A6r),
            (64, 64, 0.5, Algorithm::A6r),
            (8, 16, 0.2, Algorithm::A6r),
            (64, 16, 0.5, Algorithm::A6w),
        ] {
            let setup = setup(n, m, alpha, algorithm, 32768);
            let share = share_of_formula(&setup);
            assert!((0.98..1.02).contains(&share), "{n} x {m} at {alpha} by {algorithm:?}: {share:.3}");
        }
    }

    /// Where groups are one below and one above the best, the formula at that group holds too.
    #[test]
    fn the_formulas_hold_for_other_groups() {
        for group in [1.0, 5.0, 13.0, 22.0] {
            for algorithm in [Algorithm::A2, Algorithm::A4] {
                let (n, m) = if algorithm == Algorithm::A2 { (1, 64) } else { (64, 1) };
                let mut setup = setup(n, m, 0.5, algorithm, 32768);
                setup.scheme = Scheme::new(setup.scheme.shape, algorithm, group, group);
                let share = share_of_formula(&setup);
                assert!((0.95..1.05).contains(&share), "{algorithm:?} by {group}: {share:.3}");
            }
        }
    }

    /// The staircases of theorems 1, 3, 6 and 8 are what the streams hold.
    #[test]
    fn the_staircases_are_seen() {
        let outputs = |setup: &Setup| {
            let seen = simulate(setup, false).expect("no deadlock").output_stairs;
            (seen, expected_stairs(setup, Direction::Write))
        };
        let inputs = |setup: &Setup| {
            let seen = simulate(setup, false).expect("no deadlock").input_stairs;
            (seen, expected_stairs(setup, Direction::Read))
        };
        for (seen, expected) in [
            outputs(&setup(0, 16, 0.0, Algorithm::A1, 16384)),
            outputs(&setup(1, 16, 0.5, Algorithm::A2, 16384)),
        ] {
            let off = seen.iter().zip(&expected).map(|(seen, expected)| (seen - expected).abs()).fold(0.0, f64::max);
            assert!(off < 0.03 * expected[0], "{seen:.0?} for {expected:.0?}");
        }
        let (seen, expected) = inputs(&setup(16, 0, 1.0, Algorithm::A3, 16384));
        let off = seen.iter().zip(&expected).map(|(seen, expected)| (seen - expected).abs()).fold(0.0, f64::max);
        assert!(off < 0.03 * expected[0], "{seen:.0?} for {expected:.0?}");
        // Seen when a group has run out, before it is filled: all are a stair lower.
        let (seen, expected) = inputs(&setup(16, 1, 0.5, Algorithm::A4, 16384));
        let lower = expected[4..].iter().copied().chain([0.0; 4]);
        let off = seen.iter().zip(lower).map(|(seen, expected)| (seen - expected).abs()).fold(0.0, f64::max);
        assert!(off < 0.03 * expected[0], "{seen:.0?} for {expected:.0?}");
    }

    /// Whatever the rates, everything moves, memory holds, and runs stay long.
    #[test]
    fn uneven_rates_cost_little() {
        for (n, m, alpha, algorithm) in [
            (0, 64, 0.0, Algorithm::A1),
            (1, 64, 0.5, Algorithm::A2),
            (64, 0, 1.0, Algorithm::A3),
            (64, 1, 0.5, Algorithm::A4),
            (16, 64, 0.5, Algorithm::A5),
            (16, 64, 0.5, Algorithm::A6r),
            (64, 16, 0.5, Algorithm::A6w),
        ] {
            let base = setup(n, m, alpha, algorithm, 8192);
            let formula = base.scheme.run_length(8192.0);
            for (skew, least) in [
                (Skew::Noise(0.1), 0.9),
                (Skew::Noise(0.5), 0.85),
                (Skew::Zipf(1.0), 0.85),
                (Skew::OneFast(10.0), 0.85),
                (Skew::Bursts(1000.0), 0.25),
                (Skew::Ends, 0.0),
            ] {
                let output_skew = if skew == Skew::Ends { Skew::Equal } else { skew.clone() };
                let setup = Setup { input_skew: skew.clone(), output_skew, ..base.clone() };
                let outcome = simulate(&setup, false).unwrap_or_else(|stuck| panic!("{setup:?}: {stuck:?}"));
                assert!(outcome.peak_blocks <= 8192, "{algorithm:?}, {skew:?}: {} blocks", outcome.peak_blocks);
                let share = outcome.run_length() / formula;
                assert!(share >= least, "{n} x {m} by {algorithm:?}, {skew:?}: {share:.3}");
                // All of it: from the first block to the last, ends of streams among them.
                let whole = outcome.blocks as f64 / outcome.runs as f64 / formula;
                assert!(whole >= 0.8 * least.max(0.9 * f64::from(least == 0.0)), "{algorithm:?}, {skew:?}: {whole:.3}");
            }
        }
    }

    #[test]
    fn a_block_or_two_a_stream_is_enough() {
        for (n, m, alpha, algorithm) in [
            (0, 9, 0.0, Algorithm::A1),
            (1, 9, 0.5, Algorithm::A2),
            (9, 0, 1.0, Algorithm::A3),
            (9, 1, 0.5, Algorithm::A4),
            (9, 9, 0.3, Algorithm::A5),
            (9, 9, 0.5, Algorithm::A6r),
            (9, 9, 0.7, Algorithm::A6w),
        ] {
            let least = if n > 0 { n + 1 } else { 0 } + 2 * m;
            for skew in [Skew::Equal, Skew::Noise(0.5), Skew::Zipf(2.0), Skew::Bursts(7.0), Skew::Ends] {
                for blocks in [least, least + 1, least + 7] {
                    let base = setup(n, m, alpha, algorithm, blocks);
                    let setup = Setup { input_skew: skew.clone(), output_skew: skew.clone(), total_blocks: 3000, ..base };
                    let outcome = simulate(&setup, false).unwrap_or_else(|stuck| panic!("{setup:?}: {stuck:?}"));
                    assert!(outcome.blocks >= 2900, "{setup:?}: {} blocks", outcome.blocks);
                }
            }
        }
    }

    #[test]
    fn steps_add_up() {
        let setup = setup(8, 4, 0.5, Algorithm::A6w, 512);
        let outcome = simulate(&setup, true).expect("no deadlock");
        assert_eq!(outcome.steps.len() as u64, outcome.runs);
        assert_eq!(outcome.steps.iter().map(|step| u64::from(step.1)).sum::<u64>(), outcome.blocks);
        assert!(outcome.steps.windows(2).all(|pair| pair[0].0 != pair[1].0));
    }
}
