//! A bowtie whose inputs are pipes.

use ascot_io::BlockPool;
use ascot_model::run_length::{Algorithm, Scheme, Shape};

use crate::constants::PIPED_DEPTH;
use crate::engine::bowtie::Bowtie;
use crate::engine::streams::{BlockInput, BlockOutput, TooFewBlocks};
use crate::schedule::{PipedInputs, Split, Staircase};

/// The share of reading that stands for one that does not matter.
const ANY_ALPHA: f64 = 0.5;

impl<I: BlockInput, O: BlockOutput> Bowtie<I, O> {
    /// A bowtie whose `pipes` cost no switch: its outputs are written by A1. Reads of pipes may wait for a slow
    /// partner, and do not count against its depth.
    ///
    /// # Errors
    /// The pool has not enough blocks.
    pub fn from_pipes(pipes: Vec<I>, outputs: Vec<O>, pool: BlockPool) -> Result<Self, TooFewBlocks> {
        let shape = Shape { inputs: 0, outputs: outputs.len() as u32, alpha: 0.0 };
        let is_pipe = vec![true; pipes.len()];
        let read = PipedInputs::pipe_blocks(&is_pipe);
        let split = Split { read, write: (pool.total() as u32).saturating_sub(read) };
        let outputs_alone = Staircase::new(Scheme::new(shape, Algorithm::A1, 1.0, 1.0), 0);
        let schedule = PipedInputs::new(outputs_alone, is_pipe);
        let mut bowtie = Self::with_schedule(pipes, outputs, pool, ANY_ALPHA, split, Box::new(schedule))?;
        bowtie.inputs_are_pipes = true;
        Ok(bowtie.depth(PIPED_DEPTH))
    }
}
