//! How memory is divided between the inputs and the outputs.

use ascot_model::run_length::{Algorithm, Scheme, Shape};

use crate::constants::READER_MARGIN;

/// Memory of both sides, in blocks: `M_r` and `M_w` of section IV.A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// For inputs.
    pub read: u32,
    /// For outputs.
    pub write: u32,
}

impl Split {
    /// Divides `memory_blocks` as a scheme needs it. A side with a single stream gets two blocks. Each output gets
    /// two at least, because it fills one while full ones wait.
    pub fn new(scheme: &Scheme, memory_blocks: u32) -> Self {
        let min = Self::min(&scheme.shape);
        let share = Self::read_blocks(scheme, f64::from(memory_blocks)).round() as u32;
        let read = share.clamp(min.read, memory_blocks.saturating_sub(min.write).max(min.read));
        Split { read, write: memory_blocks.saturating_sub(read).max(min.write) }
    }

    /// Blocks for inputs. In an interconnect by A6 the memory of one side lasts for a round of the other. Blocks that
    /// are not full do not count: half a block of each stream on the side that sets the pace, and one block of each
    /// on the side that follows.
    fn read_blocks(scheme: &Scheme, memory: f64) -> f64 {
        let round = scheme.round_memory();
        let n = f64::from(scheme.shape.inputs);
        let m = f64::from(scheme.shape.outputs);
        if !scheme.is_overlapping_interconnect() {
            return memory * scheme.read_share();
        }
        if scheme.algorithm == Algorithm::A6r {
            return (memory - n / 2.0 - m).max(0.0) * round.read / (round.read + round.write) + n / 2.0;
        }
        let read = round.read * READER_MARGIN;
        (memory - n - m / 2.0).max(0.0) * read / (read + round.write) + n
    }

    /// The fewest blocks that a bowtie works with.
    pub fn min(shape: &Shape) -> Self {
        let read = if shape.inputs == 0 { 0 } else { shape.inputs + 1 };
        Split { read, write: 2 * shape.outputs }
    }

    /// Blocks of both sides.
    pub fn total(&self) -> u32 {
        self.read + self.write
    }
}
