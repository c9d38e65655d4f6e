//! Inputs that are pipes, beside outputs in long runs. Reading a pipe costs no switch, so that the outputs are written
//! as if there were no inputs (A1), with all memory but a few blocks of each pipe.
//!
//! ```text
//!   blocked on memory      the schedule of the outputs, then pipes
//!   blocked on anything    pipes, then the schedule of the outputs
//! ```
//!
//! Invariant: an input holds no more blocks than [`PIPE_BLOCKS`], those being read among them.

use ascot_model::run_length::Scheme;

use super::split::Split;
use super::staircase::Staircase;
use super::view::{BlockedOn, Move, Schedule, SchedulerView, Staircases};
use crate::constants::PIPE_BLOCKS;

/// A1 for the outputs, and a few blocks of each input.
#[derive(Clone, Debug)]
pub struct PipedInputs {
    outputs: Staircase,
}

impl PipedInputs {
    /// Reads pipes beside outputs that are written by `scheme`, which has no inputs.
    pub fn new(scheme: Scheme) -> Self {
        debug_assert_eq!(scheme.shape.inputs, 0, "pipes are no inputs of the scheme");
        PipedInputs { outputs: Staircase::new(scheme, 0) }
    }

    /// The memory of `pipes` pipes, and of outputs that get the rest of `memory_blocks`.
    pub fn split(pipes: u32, memory_blocks: u32) -> Split {
        let read = pipes * PIPE_BLOCKS;
        Split { read, write: memory_blocks.saturating_sub(read) }
    }

    /// The pipe that holds the fewest blocks, if any may hold another one.
    fn read(view: &SchedulerView<'_>) -> Option<Move> {
        let may_hold = |&input: &usize| view.held[input] < PIPE_BLOCKS && view.may_read(input);
        let pipes = (0..view.held.len()).filter(may_hold);
        pipes.min_by_key(|&input| view.held[input]).map(Move::Read)
    }

    fn write(&mut self, view: &SchedulerView<'_>) -> Option<Move> {
        let blocked_on = match view.blocked_on {
            BlockedOn::Input(_) | BlockedOn::InputInFlight(_) => BlockedOn::Nothing,
            other => other,
        };
        self.outputs.next(&SchedulerView {
            held: &[],
            remaining: &[],
            shares: &[],
            runs_out: &[],
            busy: &[],
            free_to_read: 0,
            blocked_on,
            ..*view
        })
    }
}

impl Schedule for PipedInputs {
    fn next(&mut self, view: &SchedulerView<'_>) -> Option<Move> {
        if matches!(view.blocked_on, BlockedOn::OutputMemory | BlockedOn::End) {
            return self.write(view).or_else(|| Self::read(view));
        }
        Self::read(view).or_else(|| self.write(view))
    }

    fn staircases(&self, _live_inputs: u32, split: Split) -> Staircases {
        self.outputs.staircases(0, split)
    }
}
