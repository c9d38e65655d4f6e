//! The usual schedule, for comparison: every stream has an equal part of memory. The parts of all inputs are filled
//! one after the other, and all outputs are written one after the other.
//!
//! Source: the naive allocators of sections III.A and III.B: runs of M/m for 0 x m, and of M/(m + 1) with a file on
//! the other side.
//!
//! ```text
//!   function blocked on an input    write all outputs, then fill each input's part
//!   function blocked on memory      write all outputs
//! ```
//!
//! Invariant: the blocks counted when a round is planned are moved, whatever arrives meanwhile.

use std::collections::VecDeque;

use ascot_model::run_length::Shape;

use super::split::Split;
use super::view::{BlockedOn, Move, Schedule, SchedulerView};

/// Equal parts of memory for all streams.
#[derive(Clone, Debug)]
pub struct EqualParts {
    /// Blocks of an input's part.
    part: u32,
    tasks: VecDeque<Task>,
}

/// A stream to move, and how many of its blocks are left to move.
#[derive(Clone, Debug)]
struct Task {
    step: Move,
    left: u32,
}

impl EqualParts {
    /// The schedule for `inputs` inputs that share `read_blocks` blocks.
    pub fn new(inputs: u32, read_blocks: u32) -> Self {
        EqualParts { part: (read_blocks / inputs.max(1)).max(1), tasks: VecDeque::new() }
    }

    /// Divides memory in proportion to the bytes of both sides, so that both finish their parts at once. The block
    /// that an output is filling belongs to its part.
    pub fn split(shape: &Shape, memory_blocks: u32) -> Split {
        let min = Split::min(shape);
        let share = f64::from(memory_blocks.saturating_sub(shape.outputs)) * shape.alpha;
        let read =
            (share.floor() as u32).clamp(min.read, memory_blocks.saturating_sub(min.write).max(min.read));
        Split { read, write: memory_blocks.saturating_sub(read).max(min.write) }
    }

    fn write_all(&mut self, view: &SchedulerView<'_>) {
        let full = view.full.iter().enumerate().filter(|&(_, &blocks)| blocks > 0);
        self.tasks.extend(full.map(|(output, &left)| Task { step: Move::Write(output), left }));
    }

    fn fill_all(&mut self, view: &SchedulerView<'_>) {
        let free = view
            .held
            .iter()
            .enumerate()
            .filter(|&(input, &held)| held < self.part && view.remaining[input] > 0);
        self.tasks
            .extend(free.map(|(input, &held)| Task { step: Move::Read(input), left: self.part - held }));
    }

    /// The first planned block that can be moved.
    fn front(&mut self, view: &SchedulerView<'_>) -> Option<Move> {
        while let Some(Task { step, left }) = self.tasks.front_mut() {
            let can = match *step {
                Move::Read(input) => view.may_read(input),
                Move::Write(output) => view.full[output] > 0,
            };
            if can && *left > 0 {
                *left -= 1;
                return Some(*step);
            }
            self.tasks.pop_front();
        }
        None
    }
}

impl Schedule for EqualParts {
    fn next(&mut self, view: &SchedulerView<'_>) -> Option<Move> {
        if let Some(step) = self.front(view) {
            return Some(step);
        }
        match view.blocked_on {
            BlockedOn::Nothing | BlockedOn::InputInFlight(_) => return None,
            BlockedOn::OutputMemory | BlockedOn::End => self.write_all(view),
            BlockedOn::Input(waited) => {
                self.write_all(view);
                self.fill_all(view);
                // The function waits for this input, so it is read even if its part is full.
                if view.held[waited] >= self.part {
                    self.tasks.push_back(Task { step: Move::Read(waited), left: 1 });
                }
            }
        }
        self.front(view)
    }
}
