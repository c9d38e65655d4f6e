//! A3 with forecasting: for merges into memory on devices whose switches cost more than moving a block, if the first
//! keys of all blocks are known. The order of all reads is decided before the first one.
//!
//! A merge needs a block when it reaches the block's first key. The *position* of a block is the number of blocks that
//! the merge reaches before it, so `position` is also the time, in blocks consumed. At every time it is known how many
//! blocks of an input are consumed, when an input runs out, and how full memory is:
//!
//! ```text
//!   time          now                    next
//!   input 0       runs out: its run begins, and is read while the merge consumes
//!   input 1       |----------------------> runs out: memory is full by now
//!   input 2       |--------------------------------------->
//!   input 0                              |------ one step --|-------------> lasts one step longer than all others
//! ```
//!
//! The run of an input is as long as theorem 6 asks: the input then runs out one step after all others. A step is what
//! the input gives in a cycle, in which each input has one run. A longer cycle has fewer runs and needs more memory; if
//! it needs more than there is, runs are cut short and the steps become uneven. Where inputs have few blocks in memory,
//! the rounding to whole blocks makes steps uneven as well. Therefore many orders are tried, with other cycles and with
//! steps that vary at random, and the one with the fewest runs is taken.
//!
//! Invariant: the order is followed whenever memory has room for the next block, so the number of runs does not depend
//! on the timing of requests. If the merge waits for another input than planned, which equal prefixes of keys or blocks
//! that are freed late can cause, this input gets one block out of order.

use std::collections::BTreeSet;

use ascot_model::random::SplitMix64;

use super::grouped_forecast::positions_of_need;
use super::split::Split;
use super::view::{BlockedOn, Move, Schedule, SchedulerView, Staircases};
use crate::constants::{CYCLE_SHARES, LATE_BLOCKS, LATE_SHARE, STEP_SPREAD, TRIED_RUNS};

/// Blocks that are read of one input, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReadRun {
    input: usize,
    blocks: u32,
}

/// Reads blocks in a planned order of long runs.
#[derive(Clone, Debug)]
pub struct PlannedReads {
    runs: Vec<ReadRun>,
    /// The run that is read now.
    current: usize,
    /// Blocks of each input that were read out of order.
    ahead: Vec<u32>,
}

impl Schedule for PlannedReads {
    fn next(&mut self, view: &SchedulerView<'_>) -> Option<Move> {
        while let Some(run) = self.runs.get_mut(self.current) {
            let input = run.input;
            if run.blocks == 0 || view.remaining[input] == 0 {
                self.current += 1;
            } else if self.ahead[input] > 0 {
                self.ahead[input] -= 1;
                run.blocks -= 1;
            } else if view.may_read(input) {
                run.blocks -= 1;
                return Some(Move::Read(input));
            } else {
                break;
            }
        }
        // While the flow runs or a block arrives, memory may become free for the next block in order.
        let BlockedOn::Input(waited) = view.blocked_on else { return None };
        if !view.may_read(waited) {
            return None;
        }
        self.ahead[waited] += 1;
        Some(Move::Read(waited))
    }

    fn staircases(&self, live_inputs: u32, split: Split) -> Staircases {
        Staircases { inputs: Staircases::of_inputs(live_inputs, None, split.read), outputs: None }
    }
}

impl PlannedReads {
    /// For a merge into memory (A3). `first_keys[i]` holds the prefixes of the first keys of all blocks of input `i`,
    /// ascending; `memory` is in blocks.
    pub fn new(first_keys: &[Vec<u64>], memory: u32) -> Self {
        let positions = positions_of_need(first_keys);
        let inputs = positions.len() as u32;
        let late = LATE_BLOCKS + (LATE_SHARE * f64::from(inputs)) as u32;
        let planner = Planner::new(&positions, memory.saturating_sub(late).max(inputs));
        let runs = planner.fewest_runs();
        PlannedReads { runs, current: 0, ahead: vec![0; positions.len()] }
    }
}

/// What is known before the merge.
struct Planner<'a> {
    /// The positions of the blocks of each input, ascending.
    positions: &'a [Vec<u32>],
    /// Blocks of all inputs.
    end: u32,
    /// The positions of the first blocks, ascending.
    firsts: Vec<u32>,
    /// Blocks of memory.
    memory: u32,
}

/// How long steps are.
struct Steps {
    /// Blocks consumed of all inputs while each of them has one run.
    cycle: f64,
    /// How much steps vary at random, as a share of them.
    spread: f64,
}

/// How far the reads are planned.
struct Progress {
    /// Blocks of each input that are read.
    read: Vec<usize>,
    /// Blocks of all inputs that are read.
    read_all: u32,
    /// The inputs with unread blocks, by the position at which they run out.
    by_run_out: BTreeSet<(u32, usize)>,
    runs: Vec<ReadRun>,
}

impl Progress {
    /// Reads an input until `end` of its blocks are read.
    fn read(&mut self, positions: &[Vec<u32>], input: usize, end: usize) {
        let blocks = &positions[input];
        let before = self.read[input];
        if end <= before {
            return;
        }
        if let Some(&at) = blocks.get(before) {
            self.by_run_out.remove(&(at, input));
        }
        if let Some(&at) = blocks.get(end) {
            self.by_run_out.insert((at, input));
        }
        self.read[input] = end;
        self.read_all += (end - before) as u32;
        let count = (end - before) as u32;
        match self.runs.last_mut() {
            Some(last) if last.input == input => last.blocks += count,
            _ => self.runs.push(ReadRun { input, blocks: count }),
        }
    }
}

impl<'a> Planner<'a> {
    fn new(positions: &'a [Vec<u32>], memory: u32) -> Self {
        let end = positions.iter().map(Vec::len).sum::<usize>() as u32;
        let mut firsts: Vec<u32> = positions.iter().filter_map(|blocks| blocks.first().copied()).collect();
        firsts.sort_unstable();
        Planner { positions, end, firsts, memory }
    }

    /// The cycle that fills memory if all shares stay as they are on average: with shares s, inputs that run out one
    /// after the other hold half a cycle times the sum of s (1 - s).
    fn longest_cycle(&self) -> f64 {
        let all = f64::from(self.end.max(1));
        let shares = self.positions.iter().map(|blocks| blocks.len() as f64 / all);
        let spread: f64 = shares.map(|share| share * (1.0 - share)).sum();
        let cycle = 2.0 * f64::from(self.memory) / spread;
        if cycle.is_finite() { cycle.min(all) } else { all }
    }

    /// Blocks of an input before a position.
    fn before(&self, input: usize, position: f64) -> usize {
        self.positions[input].partition_point(|&at| f64::from(at) < position)
    }

    /// Blocks in memory when the merge reaches `position`, if `read_all` blocks are read. All blocks before it are
    /// consumed but the last one of each input.
    fn held(&self, read_all: u32, position: u32) -> u32 {
        let begun = self.firsts.partition_point(|&first| first <= position) as u32;
        (read_all + begun).saturating_sub(position + 1)
    }

    /// The order with the fewest runs of those tried.
    fn fewest_runs(&self) -> Vec<ReadRun> {
        let longest = self.longest_cycle();
        let mut random = SplitMix64(1);
        let mut best: Vec<ReadRun> = Vec::new();
        let mut planned = 0;
        for number in 0.. {
            let even = CYCLE_SHARES.get(number).map(|&share| Steps { cycle: share * longest, spread: 0.0 });
            if even.is_none() && planned >= TRIED_RUNS {
                break;
            }
            let mut share = || random.next_u64() as f64 / u64::MAX as f64;
            let [shortest, .., most] = CYCLE_SHARES;
            let cycle = (shortest + share() * (most - shortest)) * longest;
            let steps = even.unwrap_or(Steps { cycle, spread: STEP_SPREAD });
            let bound = if best.is_empty() { usize::MAX } else { best.len() };
            let runs = self.plan(&steps, &mut share, bound);
            // A plan that is given up has as many runs as the best one.
            planned += runs.len().max(1);
            if runs.len() < bound {
                best = runs;
            }
        }
        best
    }

    /// All runs, in order; given up when there are `bound`. `share`: random shares of one.
    fn plan(&self, steps: &Steps, share: &mut dyn FnMut() -> f64, bound: usize) -> Vec<ReadRun> {
        let cycle = steps.cycle;
        let mut progress = Progress {
            read: vec![0; self.positions.len()],
            read_all: 0,
            by_run_out: BTreeSet::new(),
            runs: Vec::new(),
        };
        let mut until = self.preload(cycle, &mut progress);
        while let Some(&(now, input)) = progress.by_run_out.first() {
            if self.held(self.end, now) <= self.memory || progress.runs.len() >= bound {
                break;
            }
            let step = self.before(input, f64::from(now) + cycle) - self.before(input, f64::from(now));
            let varied = 1.0 + steps.spread * (2.0 * share() - 1.0);
            let wanted = until.max(f64::from(now)) + step as f64 * varied;
            let most = self.most_blocks(&progress, input);
            let end = self.before(input, wanted).max(progress.read[input] + 1);
            until = if end < most { wanted } else { wanted.min(self.run_out(input, most)) };
            progress.read(self.positions, input, end.min(most));
        }
        // The rest fits into memory.
        while let Some(&(_, input)) = progress.by_run_out.first() {
            progress.read(self.positions, input, self.positions[input].len());
        }
        progress.runs
    }

    /// Fills inputs so that they run out one step after the other; says when the last one does.
    fn preload(&self, cycle: f64, progress: &mut Progress) -> f64 {
        let inputs: Vec<usize> =
            (0..self.positions.len()).filter(|&input| !self.positions[input].is_empty()).collect();
        let mut until = 0.0;
        for (number, &input) in inputs.iter().enumerate() {
            let others = (inputs.len() - number - 1) as u32;
            let most = self.memory.saturating_sub(progress.read_all + others).max(1) as usize;
            let end = self.before(input, until).clamp(1, most);
            progress.read(self.positions, input, end.min(self.positions[input].len()));
            until += self.before(input, cycle) as f64;
        }
        until
    }

    /// The most blocks of `input` that may be read before the next run: memory must hold all of them, and the first
    /// block of the next run, when another input runs out.
    fn most_blocks(&self, progress: &Progress, input: usize) -> usize {
        let blocks = &self.positions[input];
        let read = progress.read[input];
        let Some(&(next, _)) = progress.by_run_out.iter().find(|&&(_, other)| other != input) else {
            return blocks.len();
        };
        let free = (self.memory - 1).saturating_sub(self.held(progress.read_all, next)) as usize;
        // Until then the input is read as it is consumed.
        let needed = self.before(input, f64::from(next) + 1.0);
        (read + free).max(needed).max(read + 1).min(blocks.len())
    }

    /// The position at which an input runs out if `read` of its blocks are read.
    fn run_out(&self, input: usize, read: usize) -> f64 {
        f64::from(self.positions[input].get(read).copied().unwrap_or(self.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::played::{play, uniform};
    use crate::simulate::{Setup, Skew, simulate};
    use ascot_model::run_length::{Algorithm, Scheme, Shape};

    /// First keys at random: as in runs of records in random order.
    fn by_chance(blocks: &[usize], seed: u64) -> Vec<Vec<u64>> {
        let mut random = SplitMix64(seed);
        let keys = |&blocks: &usize| {
            let mut keys: Vec<u64> = (0..blocks).map(|_| random.next_u64()).collect();
            keys.sort_unstable();
            keys
        };
        blocks.iter().map(keys).collect()
    }

    fn simulated(inputs: usize, blocks: usize, memory: u32) -> f64 {
        let shape = Shape { inputs: inputs as u32, outputs: 0, alpha: 1.0 };
        let setup = Setup {
            scheme: Scheme::best_of(shape, Algorithm::A3).expect("A3 fits every merge into memory"),
            memory_blocks: memory,
            total_blocks: blocks as u64,
            input_skew: Skew::Equal,
            output_skew: Skew::Equal,
            seed: 1,
        };
        simulate(&setup, false).expect("memory suffices").runs as f64
    }

    /// At most a tenth more switches than the simulator takes for equal rates, and all of them planned. With seven
    /// blocks for each input, random keys cost a little more.
    #[test]
    fn switches_are_those_of_the_simulator() {
        let shapes =
            [(4, 400, 200), (16, 96, 220), (16, 1000, 640), (64, 300, 1900), (64, 100, 1000), (16, 96, 114)];
        for (inputs, blocks, memory) in shapes {
            let lengths = vec![blocks; inputs];
            let simulated = simulated(inputs, inputs * blocks, memory);
            let bound = if memory >= 8 * inputs as u32 { 1.10 } else { 1.13 };
            for keys in [uniform(&lengths, 3), by_chance(&lengths, 1), by_chance(&lengths, 2)] {
                let mut schedule = PlannedReads::new(&keys, memory);
                let planned = (schedule.runs.len() - schedule.current) as u32;
                let runs = play(&mut schedule, &keys, memory).reads;
                assert_eq!(runs, planned, "{inputs} inputs");
                assert!(
                    f64::from(runs) <= bound * simulated,
                    "{inputs} inputs: {runs}, simulated {simulated}"
                );
            }
        }
    }

    /// Inputs of other lengths take few switches, too: a tenth more than those of one length with as many blocks.
    #[test]
    fn uneven_inputs_take_few_switches() {
        let shapes = [(vec![400, 400, 400, 400, 400, 400, 100, 100], 320), (vec![900, 300, 100, 30], 200)];
        for (lengths, memory) in shapes {
            let keys = by_chance(&lengths, 5);
            let runs = play(&mut PlannedReads::new(&keys, memory), &keys, memory).reads;
            let even = simulated(lengths.len(), lengths.iter().sum(), memory);
            assert!(f64::from(runs) <= 1.10 * even, "{lengths:?}: {runs}, {even} for even inputs");
        }
    }
}
