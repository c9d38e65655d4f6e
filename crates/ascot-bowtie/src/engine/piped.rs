//! A bowtie some of whose inputs are pipes.

use ascot_io::BlockPool;
use ascot_model::run_length::Scheme;

use crate::constants::PIPED_DEPTH;
use crate::engine::bowtie::Bowtie;
use crate::engine::streams::{BlockInput, BlockOutput, TooFewBlocks};
use crate::schedule::{PipedInputs, Split, Staircase};

/// The share of reading that stands for one that does not matter.
const ANY_ALPHA: f64 = 0.5;

impl<I: BlockInput, O: BlockOutput> Bowtie<I, O> {
    /// A bowtie some of whose inputs are pipes, which cost no switch. Files are moved by `scheme`, which must be one
    /// for their number: by A1 if all inputs are pipes. Reads of pipes may wait for a slow partner: they do not count
    /// against its depth, and a flow that needs a file waits for none of them.
    ///
    /// # Errors
    /// The pool has not enough blocks.
    pub fn with_pipes(
        inputs: Vec<I>,
        is_pipe: Vec<bool>,
        outputs: Vec<O>,
        pool: BlockPool,
        scheme: &Scheme,
    ) -> Result<Self, TooFewBlocks> {
        debug_assert_eq!(inputs.len(), is_pipe.len(), "each input is a pipe or a file");
        let only_pipes = scheme.shape.inputs == 0;
        let of_pipes = PipedInputs::pipe_blocks(&is_pipe);
        let of_files = Split::new(scheme, (pool.total() as u32).saturating_sub(of_pipes));
        let split = Split { read: of_files.read + of_pipes, ..of_files };
        let alpha = if only_pipes { ANY_ALPHA } else { scheme.shape.alpha };
        let schedule = Box::new(PipedInputs::new(Staircase::new(*scheme, of_files.read), is_pipe.clone()));
        let mut bowtie = Self::with_schedule(inputs, outputs, pool, alpha, split, schedule)?;
        bowtie.occupancy.set_pipes(is_pipe);
        Ok(bowtie.depth(PIPED_DEPTH))
    }
}
