//! The switches of merges in a plan, counted by simulation. The formulas hold for long merges; a merge of a few
//! memories takes more switches, because it begins and ends with memory that is not full.

use ascot_bowtie::simulate::{Setup, Skew, simulate};
use ascot_model::plan::{PassPlan, Plan};
use ascot_model::run_length::{Algorithm, Scheme, Shape};
use ascot_model::volume::VolumeProfile;

/// Blocks of one merge above which the formula is exact enough, and a simulation would take long.
const MAX_BLOCKS: u64 = 1 << 17;

/// Counts the switches of all merges of a plan on `volume`. `memory_bytes` is the memory of the merged files, in blocks
/// of `block` bytes.
pub(super) fn count_switches(plan: &mut Plan, volume: &VolumeProfile, memory_bytes: u64, block: u64) {
    let methods = std::iter::once(&mut plan.chosen).chain(&mut plan.others);
    for pass in methods.flat_map(|method| &mut method.passes).filter(|pass| pass.name.starts_with("merge")) {
        if let Some(runs) = runs_of_merge(pass, volume, memory_bytes, block) {
            pass.set_switches(runs * pass.times, volume);
        }
    }
}

/// The runs of one merge of a pass; none if it is not simulated.
fn runs_of_merge(pass: &PassPlan, volume: &VolumeProfile, memory_bytes: u64, block: u64) -> Option<u64> {
    if pass.inputs < 2 || !volume.wants_runs((pass.inputs + 1) as f64) {
        return None;
    }
    let inputs = u32::try_from(pass.inputs).ok()?;
    let shape = Shape::moving(inputs, 1, pass.read_bytes as f64, pass.written_bytes as f64);
    let total_blocks = (pass.read_bytes + pass.written_bytes) / pass.times.max(1) / block.max(1);
    if total_blocks > MAX_BLOCKS {
        return None;
    }
    let setup = Setup {
        scheme: Scheme::best_of(shape, Algorithm::A4)?,
        memory_blocks: u32::try_from(memory_bytes / block.max(1)).ok()?,
        total_blocks,
        input_skew: Skew::Equal,
        output_skew: Skew::Equal,
        seed: 1,
    };
    simulate(&setup, false).ok().map(|outcome| outcome.runs)
}
