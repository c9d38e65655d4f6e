//! Whether the files of a pass are moved in the long runs of the published schedules, or block by block as they are
//! needed. The latter never waits, and is better on a volume where switches cost nothing. Without a measurement a
//! volume is taken to be flash.

use ascot_bowtie::schedule::Staircase;
use ascot_model::run_length::{Algorithm, Scheme, Shape};

use crate::api::volumes::Volumes;

/// The schedule of a merge of `inputs` spills into a file on the same volume (A4), if long runs are better.
pub fn merge_in_long_runs(volumes: &Volumes, inputs: usize, blocks: usize) -> Option<Staircase> {
    let shape = Shape { inputs: inputs as u32, outputs: 1, alpha: 0.5 };
    let scheme = Scheme::best_of(shape, Algorithm::A4).filter(|_| inputs > 1)?;
    volumes.wants_runs(inputs + 1).then(|| Staircase::new(scheme, blocks as u32))
}

/// The schedule of a merge of `inputs` files into memory or onto another volume (A3), if `long` runs are better.
fn read_only(long: bool, inputs: usize, blocks: usize) -> Option<Staircase> {
    let shape = Shape { inputs: inputs as u32, outputs: 0, alpha: 1.0 };
    let scheme = Scheme::best_of(shape, Algorithm::A3).filter(|_| inputs > 1)?;
    long.then(|| Staircase::new(scheme, blocks as u32))
}

/// The schedule of a merge of the `inputs` of a job, if long runs are better.
pub fn merge_inputs_in_long_runs(volumes: &Volumes, inputs: usize, blocks: usize) -> Option<Staircase> {
    match &volumes.input_volume {
        Some(volume) => read_only(volume.wants_runs(inputs as f64), inputs, blocks),
        None => merge_in_long_runs(volumes, inputs, blocks),
    }
}

/// The schedule of reading `inputs` runs of a view, if long runs are better.
pub fn read_in_long_runs(volumes: &Volumes, inputs: usize, blocks: usize) -> Option<Staircase> {
    read_only(volumes.wants_runs(inputs + 1), inputs, blocks)
}

/// The algorithm of a partitioned write to `files`, if long runs are better: A2, or A1 where the inputs are on another
/// volume and reading them costs no switch.
pub fn partition_in_long_runs(volumes: &Volumes, files: usize) -> Option<Algorithm> {
    let algorithm = if volumes.input_volume.is_some() { Algorithm::A1 } else { Algorithm::A2 };
    volumes.wants_runs(files + 1).then_some(algorithm)
}
