//! Inputs that are pipes, beside files in long runs. Reading a pipe costs no switch, so that files are moved as if
//! there were no pipes (A1 if all inputs are pipes), with all memory but a few blocks of each pipe.
//!
//! ```text
//!   blocked on memory      the schedule of the files, then pipes
//!   blocked on anything    pipes, then the schedule of the files
//! ```
//!
//! Invariants: a pipe holds no more blocks than [`PIPE_BLOCKS`], those being read among them, and files leave these
//! free. But a file that holds no block takes any that is free: a flow returns blocks a while after it has consumed
//! them, and may need the file first.

use ascot_model::run_length::Scheme;

use super::split::Split;
use super::staircase::Staircase;
use super::view::{BlockedOn, Move, Schedule, SchedulerView, Staircases};
use crate::constants::PIPE_BLOCKS;

/// The staircase of files, and a few blocks of each pipe.
#[derive(Clone, Debug)]
pub struct PipedInputs {
    files: Staircase,
    is_pipe: Vec<bool>,
    seen: FileInputs,
}

/// What the staircase sees of the inputs that are files.
#[derive(Clone, Debug, Default)]
struct FileInputs {
    /// The input that each of them is.
    inputs: Vec<usize>,
    held: Vec<u32>,
    remaining: Vec<u32>,
    shares: Vec<f64>,
    runs_out: Vec<f64>,
    busy: Vec<bool>,
}

impl PipedInputs {
    /// Reads the inputs for which `is_pipe` holds beside the staircase of the files.
    pub fn new(files: Staircase, is_pipe: Vec<bool>) -> Self {
        let inputs = (0..is_pipe.len()).filter(|&input| !is_pipe[input]).collect();
        PipedInputs { files, is_pipe, seen: FileInputs { inputs, ..FileInputs::default() } }
    }

    /// Blocks of the pipes among inputs.
    pub fn pipe_blocks(is_pipe: &[bool]) -> u32 {
        is_pipe.iter().filter(|&&is_pipe| is_pipe).count() as u32 * PIPE_BLOCKS
    }

    /// The pipe that holds the fewest blocks, if any may hold another one.
    fn read(&self, view: &SchedulerView<'_>) -> Option<Move> {
        let may_hold =
            |&input: &usize| self.is_pipe[input] && view.held[input] < PIPE_BLOCKS && view.may_read(input);
        let pipes = (0..view.held.len()).filter(may_hold);
        pipes.min_by_key(|&input| view.held[input]).map(Move::Read)
    }

    /// The next block of a file.
    fn of_files(&mut self, view: &SchedulerView<'_>) -> Option<Move> {
        self.seen.look(view);
        let seen = &self.seen;
        let is_waiting = |input: &usize| self.is_pipe[*input] && view.remaining[*input] > 0;
        let waiting = (0..view.held.len()).filter(is_waiting);
        let kept: u32 = waiting.map(|input| PIPE_BLOCKS.saturating_sub(view.held[input])).sum();
        let number = |input| seen.inputs.iter().position(|&file| file == input);
        let blocked_on = match view.blocked_on {
            BlockedOn::Input(input) => number(input).map(BlockedOn::Input),
            BlockedOn::InputInFlight(input) => number(input).map(BlockedOn::InputInFlight),
            other => Some(other),
        };
        let step = self.files.next(&SchedulerView {
            held: &seen.held,
            remaining: &seen.remaining,
            shares: &seen.shares,
            runs_out: &seen.runs_out,
            busy: &seen.busy,
            free_to_read: view
                .free_to_read
                .saturating_sub(kept)
                .max(u32::from(seen.any_starves()).min(view.free_to_read)),
            blocked_on: blocked_on.unwrap_or(BlockedOn::Nothing),
            ..*view
        })?;
        Some(match step {
            Move::Read(file) => Move::Read(seen.inputs[file]),
            write => write,
        })
    }
}

impl FileInputs {
    /// Whether a file that has more blocks to come holds none.
    fn any_starves(&self) -> bool {
        self.held.iter().zip(&self.remaining).any(|(&held, &remaining)| held == 0 && remaining > 0)
    }

    /// Takes the files from `view`. Shares and the ends of buckets then count what is consumed of files alone.
    fn look(&mut self, view: &SchedulerView<'_>) {
        let FileInputs { inputs, held, remaining, shares, runs_out, busy } = self;
        let of_files: f64 = inputs.iter().map(|&input| view.shares[input]).sum();
        let share = if of_files > 0.0 { of_files } else { 1.0 };
        copy(held, inputs, |input| view.held[input]);
        copy(remaining, inputs, |input| view.remaining[input]);
        copy(shares, inputs, |input| view.shares[input] / share);
        copy(runs_out, inputs, |input| view.runs_out[input] * share);
        if !view.busy.is_empty() {
            copy(busy, inputs, |input| view.busy[input]);
        }
    }
}

/// Fills `to` with what `of` says of each input.
fn copy<T>(to: &mut Vec<T>, inputs: &[usize], of: impl Fn(usize) -> T) {
    to.clear();
    to.extend(inputs.iter().map(|&input| of(input)));
}

impl Schedule for PipedInputs {
    fn next(&mut self, view: &SchedulerView<'_>) -> Option<Move> {
        if matches!(view.blocked_on, BlockedOn::OutputMemory | BlockedOn::End) {
            return self.of_files(view).or_else(|| self.read(view));
        }
        self.read(view).or_else(|| self.of_files(view))
    }

    fn adapt(&mut self, scheme: &Scheme, read_blocks: u32) {
        self.files.adapt(scheme, read_blocks);
    }

    fn staircases(&self, live_inputs: u32, split: Split) -> Staircases {
        self.files.staircases(live_inputs.min(self.seen.inputs.len() as u32), split)
    }
}

#[cfg(test)]
mod tests {
    use ascot_model::random::SplitMix64;
    use ascot_model::run_length::{Algorithm, Shape};
    use proptest::prelude::*;

    use super::*;

    /// Consumes inputs in random order, and asks the schedule before each block. Panics on deadlock.
    struct Consumer {
        schedule: PipedInputs,
        is_pipe: Vec<bool>,
        memory: u32,
        held: Vec<u32>,
        remaining: Vec<u32>,
        shares: Vec<f64>,
        is_shrunk: bool,
    }

    impl Consumer {
        fn next(&mut self, blocked_on: BlockedOn) -> Option<usize> {
            let shares = self.shares.clone();
            let runs_out: Vec<f64> =
                self.held.iter().zip(&shares).map(|(&held, share)| f64::from(held) / share).collect();
            let step = self.schedule.next(&SchedulerView {
                held: &self.held,
                remaining: &self.remaining,
                free_to_read: self.free(),
                full: &[],
                free_to_write: 0,
                shares: &shares,
                runs_out: &runs_out,
                gain: 0.0,
                busy: &[],
                blocked_on,
            });
            let Some(Move::Read(input)) = step else { return None };
            let starved = self.held[input] == 0;
            self.held[input] += 1;
            self.remaining[input] -= 1;
            let of_pipes = |input: &usize| self.is_pipe[*input] && self.remaining[*input] > 0;
            let kept: u32 =
                (0..self.held.len()).filter(of_pipes).map(|pipe| PIPE_BLOCKS - self.held[pipe]).sum();
            assert!(starved || self.is_shrunk || self.free() >= kept, "a file took a block of a pipe");
            Some(input)
        }

        /// Gives memory away, except a block for each input that holds none and what inputs need at least.
        fn shrink(&mut self) {
            let inputs = self.held.iter().zip(&self.remaining);
            let starving = inputs.filter(|&(&held, &remaining)| held == 0 && remaining > 0).count() as u32;
            let least = self.held.len() as u32 + 1 + PipedInputs::pipe_blocks(&self.is_pipe);
            self.memory = self.memory.min((self.memory - self.free() + starving).max(least));
            self.is_shrunk = true;
        }

        fn free(&self) -> u32 {
            self.memory - self.held.iter().sum::<u32>()
        }

        fn consume(&mut self, input: usize) {
            while self.held[input] == 0 {
                assert!(self.next(BlockedOn::Input(input)).is_some(), "deadlock");
            }
            self.held[input] -= 1;
        }
    }

    /// A file that holds blocks takes none that is for a pipe, although it has more to read.
    #[test]
    fn a_file_leaves_the_blocks_of_a_pipe_free() {
        let scheme = Scheme::new(Shape { inputs: 2, outputs: 0, alpha: 1.0 }, Algorithm::A3, 1.0, 1.0);
        let schedule = PipedInputs::new(Staircase::new(scheme, 20), vec![false, true, false]);
        let view = SchedulerView {
            held: &[1, 0, 1],
            remaining: &[50; 3],
            free_to_read: PIPE_BLOCKS,
            full: &[],
            free_to_write: 0,
            shares: &[1.0 / 3.0; 3],
            runs_out: &[3.0, 0.0, 3.0],
            gain: 0.0,
            busy: &[],
            // Files come first, and then the pipe.
            blocked_on: BlockedOn::OutputMemory,
        };
        assert_eq!(schedule.clone().next(&view), Some(Move::Read(1)));
        let view = SchedulerView { free_to_read: PIPE_BLOCKS + 1, ..view };
        assert!(matches!(schedule.clone().next(&view), Some(Move::Read(0 | 2))));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Files and pipes in any order and of any length end, also if memory becomes smaller; and if it does not,
        /// a pipe always finds the blocks that are for it.
        #[test]
        fn pipes_find_their_blocks_beside_files(
            is_pipe in prop::collection::vec(any::<bool>(), 1..12),
            spare in 0_u32..60,
            blocks in 1_u32..80,
            shrinks in any::<bool>(),
            seed in any::<u64>(),
        ) {
            let count = is_pipe.len();
            let files = is_pipe.iter().filter(|&&is_pipe| !is_pipe).count() as u32;
            let shape = Shape { inputs: files, outputs: 1, alpha: 0.5 };
            let read_blocks = files + 1 + spare;
            let scheme = Scheme::best_of(shape, Algorithm::A4).unwrap_or_else(|| Scheme::best(shape));
            let mut random = SplitMix64(seed);
            let shares: Vec<f64> = (0..count).map(|_| 0.01 + random.fraction()).collect();
            let sum: f64 = shares.iter().sum();
            let remaining = (0..count).map(|_| 1 + random.below(u64::from(blocks)) as u32).collect();
            let mut consumer = Consumer {
                schedule: PipedInputs::new(Staircase::new(scheme, read_blocks), is_pipe.clone()),
                memory: read_blocks + PipedInputs::pipe_blocks(&is_pipe),
                is_pipe,
                held: vec![0; count],
                remaining,
                shares: shares.iter().map(|share| share / sum).collect(),
                is_shrunk: false,
            };
            loop {
                let live: Vec<usize> =
                    (0..count).filter(|&input| consumer.held[input] + consumer.remaining[input] > 0).collect();
                if live.is_empty() {
                    break;
                }
                consumer.consume(live[random.below(live.len() as u64) as usize]);
                if shrinks && random.below(10) == 0 {
                    consumer.shrink();
                }
                while random.below(20) > 0 && consumer.next(BlockedOn::Nothing).is_some() {}
            }
        }
    }
}
