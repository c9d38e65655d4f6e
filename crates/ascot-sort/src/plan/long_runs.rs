//! Whether a job's files are better read and written in the long runs of the published schedules, or block by
//! block as they are needed: on a volume whose switches cost nothing the latter has no waiting.

use ascot_bowtie::schedule::Staircase;
use ascot_model::run_length::{Algorithm, Scheme, Shape};

use crate::api::request::SortRequest;

/// Whether moving `files` files on one side and one on the other block by block would spend its time on
/// switches, as the plan has it. Without a profile a volume is taken to be flash.
fn wants_long_runs(request: &SortRequest, files: usize) -> bool {
    request.volume.as_ref().is_some_and(|volume| volume.wants_runs((files + 1) as f64))
}

/// The schedule of a merge of `inputs` files in long runs (A4), where they are wanted.
pub fn merge_in_long_runs(request: &SortRequest, inputs: usize, blocks: usize) -> Option<Staircase> {
    let shape = Shape { inputs: inputs as u32, outputs: 1, alpha: 0.5 };
    let scheme = Scheme::best_of(shape, Algorithm::A4).filter(|_| inputs > 1)?;
    wants_long_runs(request, inputs).then(|| Staircase::new(scheme, blocks as u32))
}

/// The algorithm by which records are dealt out to `files` in long runs, where those are wanted: A2, or A1 where
/// the inputs are elsewhere and reading them costs no switch here.
pub fn deal_in_long_runs(request: &SortRequest, files: usize) -> Option<Algorithm> {
    let algorithm = if request.input_volume.is_some() { Algorithm::A1 } else { Algorithm::A2 };
    wants_long_runs(request, files).then_some(algorithm)
}

/// The schedule of a merge of the `inputs` of a job in long runs, where they are wanted: A4, or A3 where they are
/// on a volume of their own and writing costs no switch there.
pub fn merge_inputs_in_long_runs(request: &SortRequest, inputs: usize, blocks: usize) -> Option<Staircase> {
    let Some(volume) = &request.input_volume else { return merge_in_long_runs(request, inputs, blocks) };
    let shape = Shape { inputs: inputs as u32, outputs: 0, alpha: 1.0 };
    let scheme = Scheme::best_of(shape, Algorithm::A3).filter(|_| inputs > 1)?;
    volume.wants_runs(inputs as f64).then(|| Staircase::new(scheme, blocks as u32))
}

/// The schedule of a merge of `inputs` files into a reader's hands in long runs (A3), where they are wanted.
pub fn read_in_long_runs(request: &SortRequest, inputs: usize, blocks: usize) -> Option<Staircase> {
    let shape = Shape { inputs: inputs as u32, outputs: 0, alpha: 1.0 };
    let scheme = Scheme::best_of(shape, Algorithm::A3).filter(|_| inputs > 1)?;
    wants_long_runs(request, inputs).then(|| Staircase::new(scheme, blocks as u32))
}
