//! The switches of merges and splits in a plan, counted by simulation. The formulas hold for passes that move many
//! times the memory; a shorter pass takes more switches, because it begins and ends with memory that is not full.

use ascot_bowtie::simulate::{Setup, Skew, simulate};
use ascot_model::plan::{MethodPlan, PassPlan, Plan};
use ascot_model::run_length::{Algorithm, Scheme, Shape};
use ascot_model::volume::VolumeProfile;

/// Blocks of one pass above which the formula is exact enough, and a simulation would take long.
const MAX_BLOCKS: u64 = 1 << 17;

/// Memory of the streams of a pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffers {
    pub(super) bytes: u64,
    /// Bytes of a block.
    pub(super) block: u64,
}

/// The buffers of the files that a pass splits into; `first`: it reads the inputs. None if it does not both read and write
/// on the volume.
pub(super) type SplitBuffers<'a> = &'a dyn Fn(&PassPlan, bool) -> Option<Buffers>;

/// Counts the switches of all merges and splits of a plan on `volume`. `merged`: the buffers of merged files beside some
/// bytes held in memory; `parts`: those of a split.
pub(super) fn count_switches(
    plan: &mut Plan,
    volume: &VolumeProfile,
    merged: &dyn Fn(u64) -> Buffers,
    parts: SplitBuffers<'_>,
) {
    for method in std::iter::once(&mut plan.chosen).chain(&mut plan.others) {
        let merged = merged(method.held_bytes);
        count_in(method, volume, merged, parts);
    }
}

fn count_in(method: &mut MethodPlan, volume: &VolumeProfile, merged: Buffers, parts: SplitBuffers<'_>) {
    for (number, pass) in method.passes.iter_mut().enumerate() {
        let runs = match pass.name.as_str() {
            "merge" | "merge some" | "merge some again" => {
                runs_of(pass, Algorithm::A4, pass.inputs, 1, volume, merged)
            }
            "split" | "split some" | "split some again" => parts(pass, number == 0)
                .and_then(|parts| runs_of(pass, Algorithm::A2, 1, pass.outputs, volume, parts)),
            _ => None,
        };
        if let Some(runs) = runs {
            pass.set_switches(runs * pass.times, volume);
        }
    }
}

/// The runs of a pass, each time that it is executed; none if it is not simulated.
fn runs_of(
    pass: &PassPlan,
    algorithm: Algorithm,
    inputs: u64,
    outputs: u64,
    volume: &VolumeProfile,
    buffers: Buffers,
) -> Option<u64> {
    if inputs + outputs < 3 || !volume.wants_runs((inputs + outputs) as f64) {
        return None;
    }
    let read = pass.read_bytes as f64;
    let shape = Shape {
        inputs: u32::try_from(inputs).ok()?,
        outputs: u32::try_from(outputs).ok()?,
        alpha: read / (read + pass.written_bytes as f64),
    };
    let block = buffers.block.max(1);
    let total_blocks = (pass.read_bytes + pass.written_bytes) / pass.times.max(1) / block;
    if total_blocks == 0 || total_blocks > MAX_BLOCKS {
        return None;
    }
    let setup = Setup {
        scheme: Scheme::best_of(shape, algorithm)?,
        memory_blocks: u32::try_from(buffers.bytes / block).ok()?,
        total_blocks,
        input_skew: Skew::Equal,
        output_skew: Skew::Equal,
        seed: 1,
    };
    simulate(&setup, false).ok().map(|outcome| outcome.runs)
}
