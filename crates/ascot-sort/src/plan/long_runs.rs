//! Whether the passes of a job move in long runs, and by which schedule.

use ascot_bowtie::schedule::Staircase;
use ascot_model::run_length::{Algorithm, Scheme, Shape};

use crate::api::Volumes;

/// Whether long runs are better for a merge of `inputs` spills; `to_file`: into a file on the same volume, and not into
/// a pipe. Even one is read and written in turns.
pub fn merges_in_long_runs(volumes: &Volumes, inputs: usize, to_file: bool) -> bool {
    let files = inputs + usize::from(to_file);
    inputs > 0 && files > 1 && volumes.wants_runs(files)
}

/// The algorithm of a split of an intermediate file into `files` on the same volume, if long runs are better.
pub fn split_again_in_long_runs(volumes: &Volumes, files: usize) -> Option<Algorithm> {
    volumes.wants_runs(files + 1).then_some(Algorithm::A2)
}

/// The schedule of a merge of `inputs` files that is written elsewhere (A3).
fn read_only(inputs: usize, blocks: usize) -> Option<Staircase> {
    let shape = Shape { inputs: inputs as u32, outputs: 0, alpha: 1.0 };
    Some(Staircase::new(Scheme::best_of(shape, Algorithm::A3)?, blocks as u32))
}

/// Whether long runs are better for a merge of the `inputs` of a job into a file or a pipe.
pub fn inputs_want_runs(volumes: &Volumes, inputs: usize, to_file: bool) -> bool {
    match &volumes.input_volume {
        Some(volume) => inputs > 1 && volume.wants_runs(inputs as f64),
        None => merges_in_long_runs(volumes, inputs, to_file),
    }
}

/// The schedule of a merge of the `inputs` of a job into a file or a pipe in long runs, if they are better.
pub fn merge_inputs_in_long_runs(
    volumes: &Volumes,
    inputs: usize,
    to_file: bool,
    blocks: usize,
) -> Option<Staircase> {
    if !inputs_want_runs(volumes, inputs, to_file) {
        return None;
    }
    if volumes.input_volume.is_some() || !to_file {
        return read_only(inputs, blocks);
    }
    let shape = Shape { inputs: inputs as u32, outputs: 1, alpha: 0.5 };
    Some(Staircase::new(Scheme::best_of(shape, Algorithm::A4)?, blocks as u32))
}

/// The algorithm of a partitioned write to `files`, if long runs are better: A2, or A1 if the inputs are on another
/// volume and reading them costs no switch.
pub fn partition_in_long_runs(volumes: &Volumes, files: usize) -> Option<Algorithm> {
    let algorithm = if volumes.input_volume.is_some() { Algorithm::A1 } else { Algorithm::A2 };
    volumes.wants_runs(files + 1).then_some(algorithm)
}
