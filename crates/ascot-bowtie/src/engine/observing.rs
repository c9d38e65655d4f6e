//! Lets an observer see the buckets of a bowtie.

use ascot_io::{Ledger, SharingStreams};

use crate::engine::bowtie::Bowtie;
use crate::engine::observed::Observed;
use crate::engine::streams::{BlockInput, BlockOutput};

/// More streams than this are not observed: every report has a number for each, and a trace takes no more. A limit of
/// that format (`MAX_STREAMS` in `ascot-trace`), not a tuned value.
const MAX_OBSERVED: usize = 16_384;

impl<I: BlockInput, O: BlockOutput> Bowtie<I, O> {
    /// Lets the observer of the job's requests, if it has one, see the buckets. `name`: the work, such as `merge`.
    #[must_use]
    pub fn observing(mut self, ledger: &Ledger, name: &str) -> Self {
        let inputs = self.inputs.len();
        let outputs = self.outputs.len();
        if let Some(observer) = ledger.observer().filter(|_| inputs + outputs <= MAX_OBSERVED) {
            let streams = SharingStreams {
                name,
                inputs: inputs as u32,
                outputs: outputs as u32,
                block_bytes: self.pool.block_bytes() as u64,
            };
            self.observed = Some(Observed::new(observer, &streams));
        }
        self
    }
}
