//! The switches of merges and splits in a plan, counted by simulation. The formulas hold for passes that move many
//! times the memory; a shorter pass takes more switches, because it begins and ends with memory that is not full.

use ascot_bowtie::schedule::BLOCKS_PER_STREAM;
use ascot_bowtie::simulate::{Setup, Skew, simulate, simulate_equal_parts};
use ascot_model::plan::{MethodPlan, PassPlan};
use ascot_model::run_length::{Algorithm, Baseline, Scheme, Shape};
use ascot_model::sort_plan::{KEYS_PER_RANGE, SplitFiles, files_of_passes};
use ascot_model::volume::VolumeProfile;

/// Maximum number of blocks that a simulation moves: more would take long.
const MAX_BLOCKS: u64 = 1 << 17;
/// Maximum product of the streams and the blocks of a simulation: each block looks at all streams.
const MAX_WORK: u64 = 1 << 27;
/// Memories that a simulated part of a pass moves at least: its beginning is longer than one.
const MIN_MEMORIES: u64 = 8;

/// Equally likely deviations of the size of a file, in standard deviations: their mean is zero and their variance one.
const DEVIATIONS: [f64; 3] = [-1.22, 0.0, 1.22];

/// Memory of the streams of a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers {
    pub(crate) bytes: u64,
    /// Bytes of a block.
    pub(crate) block: u64,
}

/// The switches by `scheme` of a pass that moves `bytes`: simulated, or by the formula if memory does not suffice for a
/// simulation.
pub(crate) fn scheduled_switches(scheme: &Scheme, buffers: Buffers, bytes: u64) -> u64 {
    let formula = || (bytes as f64 / scheme.run_length(buffers.bytes as f64)).ceil() as u64;
    simulated_runs(scheme, buffers, bytes, false).unwrap_or_else(formula)
}

/// The same if each of its streams has an equal part of the memory.
pub(crate) fn equal_parts_switches(scheme: &Scheme, buffers: Buffers, bytes: u64) -> u64 {
    let run = Baseline::EqualParts.run_length(&scheme.shape, buffers.bytes as f64);
    simulated_runs(scheme, buffers, bytes, true).unwrap_or_else(|| (bytes as f64 / run).ceil() as u64)
}

/// The simulated switches by `scheme` of a pass that moves `bytes`; none without a block, without memory for the
/// streams, or with so many streams that a simulation would take long. A long pass is simulated with larger blocks if
/// memory has many. If it is still long, only its beginning and its end are simulated, and the steady state between
/// them is taken to last longer.
fn simulated_runs(scheme: &Scheme, buffers: Buffers, bytes: u64, equal_parts: bool) -> Option<u64> {
    let block = buffers.block.max(1);
    let streams = u64::from(scheme.shape.streams().max(1));
    let max_blocks = MAX_BLOCKS.min(MAX_WORK / streams);
    let most = (buffers.bytes / block) / (u64::from(BLOCKS_PER_STREAM) * streams);
    let larger = (bytes / block).div_ceil(max_blocks).min(most).max(1);
    let total_blocks = bytes / (block * larger);
    let memory_blocks = buffers.bytes / (block * larger);
    let is_part = total_blocks > max_blocks;
    if total_blocks == 0 || (is_part && max_blocks < MIN_MEMORIES.saturating_mul(memory_blocks)) {
        return None;
    }
    let setup = Setup {
        scheme: *scheme,
        memory_blocks: u32::try_from(memory_blocks).ok()?,
        total_blocks: total_blocks.min(max_blocks),
        input_skew: Skew::Equal,
        output_skew: Skew::Equal,
        seed: 1,
    };
    let outcome = if equal_parts { simulate_equal_parts(&setup) } else { simulate(&setup, false) }.ok()?;
    let left = (total_blocks - setup.total_blocks) as f64;
    // Without a steady state, the mean of the whole pass.
    let run = if outcome.steady_runs > 0 {
        outcome.run_length()
    } else {
        outcome.blocks as f64 / outcome.runs.max(1) as f64
    };
    Some(outcome.runs + (left / run.max(1.0)) as u64)
}

/// The switches of a merge of `inputs` inputs in long runs; without an output on their volume `written_bytes` is 0.
pub(crate) fn merge_switches(
    inputs: u64,
    read_bytes: u64,
    written_bytes: u64,
    buffers: Buffers,
) -> Option<u64> {
    let shape = Shape {
        inputs: u32::try_from(inputs).ok().filter(|&inputs| inputs > 1)?,
        outputs: u32::from(written_bytes > 0),
        alpha: read_bytes as f64 / (read_bytes + written_bytes).max(1) as f64,
    };
    simulated_runs(&Scheme::of_merge(shape)?, buffers, read_bytes + written_bytes, false)
}

/// The buffers of the files that a pass splits into; `first`: it reads the inputs. None if it does not both read and
/// write on the volume.
pub(super) type SplitBuffers<'a> = &'a dyn Fn(&PassPlan, bool) -> Option<Buffers>;

/// The buffers of the files that a pass merges beside some bytes held in memory.
pub(super) type MergeBuffers<'a> = &'a dyn Fn(&PassPlan, u64) -> Buffers;

/// Counts the switches of all merges and splits of a method on `volume`.
pub(super) fn count_switches(
    method: &mut MethodPlan,
    volume: &VolumeProfile,
    merged: MergeBuffers<'_>,
    parts: SplitBuffers<'_>,
) {
    let held = method.held_bytes;
    let mut files_of_splits = files_of_passes(method.pieces, &method.factors).into_iter();
    for (number, pass) in method.passes.iter_mut().enumerate() {
        let runs = match pass.name.as_str() {
            "merge" | "merge some" | "merge some again" => {
                let moved = [pass.read_bytes, pass.bytes_to_files()].map(|bytes| bytes / pass.times.max(1));
                runs_of(pass.inputs, pass.outputs.min(1), moved, volume, merged(pass, held))
                    .map(|runs| runs * pass.times)
            }
            "split" | "split some" | "split some again" => {
                let files = files_of_splits.next().unwrap_or_default();
                let buffers = parts(pass, number == 0);
                let sampled = method.sample.is_some();
                buffers.and_then(|buffers| runs_of_split(pass, &files, sampled, volume, buffers))
            }
            _ => None,
        };
        if let Some(runs) = runs {
            pass.set_switches(runs, volume);
        }
    }
}

/// The runs of a pass that splits `files`; none if one of them is not simulated. `sampled`: a sample bounds their keys,
/// so that their sizes vary. A file that is as large as memory takes few runs, a larger one nearly twice as many.
fn runs_of_split(
    pass: &PassPlan,
    files: &[SplitFiles],
    sampled: bool,
    volume: &VolumeProfile,
    buffers: Buffers,
) -> Option<u64> {
    let parts = files.iter().map(|file| file.count * file.parts).sum::<u64>().max(1) as f64;
    let of_file = |file: &SplitFiles, deviation: f64| {
        if file.outputs < 2 {
            // A file with a single part is copied.
            return Some(2).filter(|_| pass.outputs > 1 && volume.wants_runs(2.0));
        }
        let share = file.parts as f64 / parts;
        let keys = (file.parts * KEYS_PER_RANGE) as f64;
        let size = share * (1.0 + deviation * ((1.0 - share) / keys).sqrt());
        let moved = [pass.read_bytes, pass.bytes_to_files()].map(|bytes| (bytes as f64 * size) as u64);
        runs_of(1, file.outputs, moved, volume, buffers)
    };
    let is_whole = matches!(files, [SplitFiles { count: 1, .. }]);
    let deviations: &[f64] = if sampled && !is_whole { &DEVIATIONS } else { &[0.0] };
    let mut runs = 0;
    for file in files {
        for &deviation in deviations {
            runs += file.count * of_file(file, deviation)?;
        }
    }
    Some(runs.div_ceil(deviations.len() as u64))
}

/// The runs of a bowtie that moves so many bytes, read and written; none if it is not simulated.
fn runs_of(
    inputs: u64,
    outputs: u64,
    [read, written]: [u64; 2],
    volume: &VolumeProfile,
    buffers: Buffers,
) -> Option<u64> {
    let one_at_once = inputs < 2 && outputs < 2;
    if one_at_once || !volume.wants_runs((inputs + outputs) as f64) {
        return None;
    }
    let shape = Shape {
        inputs: u32::try_from(inputs).ok()?,
        outputs: u32::try_from(outputs).ok()?,
        alpha: read as f64 / (read + written).max(1) as f64,
    };
    let scheme = if outputs > 1 { Scheme::best_of(shape, Algorithm::A2) } else { Scheme::of_merge(shape) };
    simulated_runs(&scheme?, buffers, read + written, false)
}
