//! What everyone does, for comparison: every stream has its own equal part of memory. All parts of inputs are
//! filled, one after the other, and all outputs are written, one after the other.
//!
//! Source: the naive allocators of Stella and Loguinov, sections III.A and III.B: runs of M/m for 0 x m, and of
//! M/(m + 1) where a file is on the other side.
//!
//! ```text
//!   function waits for an input    write all outputs, then fill each input's part
//!   room                           write all outputs
//! ```
//!
//! Invariant: what is counted when a round is planned is moved, whatever arrives meanwhile.

use std::collections::VecDeque;

use ascot_model::run_length::Shape;

use super::{Move, Schedule, Sight, Stall};
use crate::occupancy::Split;

/// Equal parts of memory for all streams.
#[derive(Clone, Debug)]
pub struct EqualParts {
    /// Blocks of an input's part.
    part: u32,
    /// What is moved, and how many blocks of it.
    tasks: VecDeque<(Move, u32)>,
}

impl EqualParts {
    /// The schedule for so many inputs, with so many blocks for all of them.
    pub fn new(inputs: u32, read_blocks: u32) -> Self {
        EqualParts { part: (read_blocks / inputs.max(1)).max(1), tasks: VecDeque::new() }
    }

    /// How memory is divided: as the sides' bytes are, so that both are done with theirs at once. An output's
    /// block that is being filled is part of what it has.
    pub fn split(shape: &Shape, memory_blocks: u32) -> Split {
        let least = Split::least(shape);
        let share = f64::from(memory_blocks.saturating_sub(shape.outputs)) * shape.alpha;
        let read = (share.floor() as u32)
            .clamp(least.read, memory_blocks.saturating_sub(least.write).max(least.read));
        Split { read, write: memory_blocks.saturating_sub(read).max(least.write) }
    }

    fn write_all(&mut self, sight: &Sight<'_>) {
        let full = sight.full.iter().enumerate().filter(|&(_, &blocks)| blocks > 0);
        self.tasks.extend(full.map(|(output, &blocks)| (Move::Write(output), blocks)));
    }

    fn fill_all(&mut self, sight: &Sight<'_>) {
        let free = sight
            .held
            .iter()
            .enumerate()
            .filter(|&(input, &held)| held < self.part && sight.remaining[input] > 0);
        self.tasks.extend(free.map(|(input, &held)| (Move::Read(input), self.part - held)));
    }

    /// The first thing planned that can be moved.
    fn front(&mut self, sight: &Sight<'_>) -> Option<Move> {
        while let Some((step, left)) = self.tasks.front_mut() {
            let can = match *step {
                Move::Read(input) => sight.may_read(input),
                Move::Write(output) => sight.full[output] > 0,
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
    fn next(&mut self, sight: &Sight<'_>) -> Option<Move> {
        if let Some(step) = self.front(sight) {
            return Some(step);
        }
        match sight.stall {
            Stall::Running | Stall::Arriving(_) => return None,
            Stall::Room | Stall::Ended => self.write_all(sight),
            Stall::Input(waited) => {
                self.write_all(sight);
                self.fill_all(sight);
                // Whatever its part holds: it is what the function waits for.
                if sight.held[waited] >= self.part {
                    self.tasks.push_back((Move::Read(waited), 1));
                }
            }
        }
        self.front(sight)
    }
}
