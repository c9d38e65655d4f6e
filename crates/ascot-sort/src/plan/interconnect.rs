//! The switches of a pass with several inputs and several outputs.

use ascot_bowtie::simulate::{Setup, Skew, simulate};
use ascot_model::run_length::Scheme;

/// Blocks of one pass above which the formula is exact enough, and a simulation would take long.
const MAX_BLOCKS: u64 = 1 << 17;

/// The switches by `scheme` of a pass that moves `bytes` within `blocks` blocks of `block` bytes: simulated, or by the
/// formula if it is long.
pub fn interconnect_switches(scheme: &Scheme, blocks: usize, block: usize, bytes: u64) -> u64 {
    let total_blocks = bytes / block.max(1) as u64;
    let setup = Setup {
        scheme: *scheme,
        memory_blocks: blocks as u32,
        total_blocks,
        input_skew: Skew::Equal,
        output_skew: Skew::Equal,
        seed: 1,
    };
    let simulated = (1..=MAX_BLOCKS).contains(&total_blocks).then(|| simulate(&setup, false).ok());
    match simulated.flatten() {
        Some(outcome) => outcome.runs,
        None => (bytes as f64 / scheme.run_length((blocks * block) as f64)).ceil() as u64,
    }
}
