//! Whether a job's files are better read and written in the long runs of the published schedules, or block by
//! block as they are needed: on a volume whose switches cost nothing the latter has no waiting.

use ascot_bowtie::schedule::Staircase;
use ascot_model::run_length::{Algorithm, Scheme, Shape};

use crate::request::SortRequest;

/// Share of its time that switches may take before long runs are worth it.
const SWITCHES_MATTER: f64 = 0.05;

/// Whether moving `files` files block by block would spend its time on switches. Without a profile a volume
/// is taken to be flash.
pub fn wants_long_runs(request: &SortRequest, files: usize, block_bytes: usize) -> bool {
    request.volume.as_ref().is_some_and(|volume| {
        let (bytes, files) = (block_bytes as f64, files as f64);
        let streaming = volume.seconds(bytes, bytes, 0.0, files);
        volume.seconds(bytes, bytes, 1.0, files) > streaming * (1.0 + SWITCHES_MATTER)
    })
}

/// The schedule of a merge of `inputs` files in long runs (A4), where they are wanted.
pub fn merge_in_long_runs(
    request: &SortRequest,
    inputs: usize,
    block_bytes: usize,
    blocks: usize,
) -> Option<Staircase> {
    let shape = Shape { inputs: inputs as u32, outputs: 1, alpha: 0.5 };
    let scheme = Scheme::best_of(shape, Algorithm::A4).filter(|_| inputs > 1)?;
    wants_long_runs(request, inputs, block_bytes).then(|| Staircase::new(scheme, blocks as u32))
}
