//! Records held in memory until the last merge: what memory has when the input is read need not be spilled.
//!
//! ```text
//!   memory, forming runs    chunks of records                                    | free chunks
//!   memory, last merge      held chunks                   | blocks of n runs     |
//! ```
//!
//! Held bytes are neither written nor read again. But they leave less memory for the blocks of the runs: on a volume
//! that wants long runs, these are shorter. So several fractions of the memory are tried, and the fastest is planned.

use super::{MIN_SPILLED_PART, RecordJob, Shares};
use crate::plan::MethodPlan;

/// Fractions of the memory that may hold records until the last merge.
const HELD_STEPS: u64 = 8;
/// Blocks of each run that is merged beside records held in memory.
const HELD_BLOCKS: u64 = 4;

impl Shares {
    /// Memory of `held` bytes of records in chunks, bytes.
    pub fn memory_of(&self, held: u64) -> u64 {
        held.div_ceil(self.chunk.max(1)) * self.chunk_memory
    }
}

impl RecordJob<'_> {
    /// The best merge. What memory holds at the end of the input need not be spilled, but then the merge has less
    /// memory for its blocks, and the runs of a volume that wants long runs are shorter.
    pub(super) fn merge(&self) -> MethodPlan {
        let alternatives = (1..=HELD_STEPS).filter_map(|step| self.merge_holding(step));
        alternatives.fold(
            self.merge_spilling(0),
            |best, next| {
                if next.seconds() < best.seconds() { next } else { best }
            },
        )
    }

    /// The merge that holds `step` of [`HELD_STEPS`] of the bytes that memory can hold; none if the runs do not fit
    /// beside them.
    fn merge_holding(&self, step: u64) -> Option<MethodPlan> {
        let data = self.input_bytes.filter(|_| !self.in_order)?;
        let all = self.shares.held.min(data);
        let runs = (data - all).div_ceil(self.shares.load.max(1)).max(1);
        let lacking = (runs * HELD_BLOCKS * self.shares.block).saturating_sub(self.shares.beside_held);
        let held =
            (self.shares.held.checked_sub(lacking)? / HELD_STEPS * step).min(data - data / MIN_SPILLED_PART);
        let streams = self.shares.streams.saturating_sub(self.shares.memory_of(held));
        let beside = RecordJob { shares: Shares { streams, ..self.shares }, ..self.clone() };
        let plan = beside.merge_spilling(held);
        (plan.factors.len() == 1 && runs <= self.shares.last_fan_in).then_some(plan)
    }
}
