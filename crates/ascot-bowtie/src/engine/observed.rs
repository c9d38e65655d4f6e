//! What an observer sees of the buckets of a bowtie: their bytes at each switch of its schedule.
//!
//! A *switch* is an answer of the schedule that names another stream than the one before. The buckets are reported
//! before the first block after a switch moves, as the schedule saw them when it decided. They are reported once more
//! when nothing moves any longer after a switch: a group of inputs that was filled is then full.

use std::sync::Arc;
use std::time::Instant;

use ascot_io::{Occupancies, RequestObserver, SharingStreams};
use ascot_model::bucket_steps::Steps;

use crate::occupancy::Occupancy;
use crate::schedule::{Move, Staircases};

/// The observer of a bowtie.
pub(super) struct Observed {
    observer: Arc<dyn RequestObserver>,
    /// The number of the bowtie.
    sharing: u32,
    block_bytes: u64,
    last: Option<Move>,
    /// Whether the schedule switched since nothing moved.
    switched: bool,
    /// Bytes of each bucket, filled for each report.
    bytes: Vec<u64>,
}

impl Observed {
    /// Lets the observer see these streams.
    pub(super) fn new(observer: &Arc<dyn RequestObserver>, streams: &SharingStreams<'_>) -> Self {
        let observer = Arc::clone(observer);
        let sharing = observer.share(streams);
        let block_bytes = streams.block_bytes;
        Observed { observer, sharing, block_bytes, last: None, switched: false, bytes: Vec::new() }
    }

    /// Whether the answer of the schedule is to be reported.
    pub(super) fn is_switch(&mut self, answer: Option<Move>) -> bool {
        if answer.is_none() {
            return std::mem::take(&mut self.switched);
        }
        let is_switch = self.last != answer;
        self.last = answer;
        self.switched |= is_switch;
        is_switch
    }

    /// Reports the buckets before `answer` is followed. `filled`: bytes of the block that each output fills.
    pub(super) fn report(
        &mut self,
        answer: Option<Move>,
        occupancy: &Occupancy,
        filled: impl Iterator<Item = usize>,
        staircases: Staircases,
    ) {
        let inputs = occupancy.inputs();
        self.bytes.clear();
        self.bytes.extend((0..inputs).map(|input| occupancy.held_units(input)));
        for (output, filled) in filled.enumerate() {
            self.bytes.push(u64::from(occupancy.full(output)) * self.block_bytes + filled as u64);
        }
        let in_bytes = |steps: Steps| Steps { memory: steps.memory * self.block_bytes as f64, ..steps };
        let next = answer.map(|step| match step {
            Move::Read(index) => index as u32,
            Move::Write(index) => (inputs + index) as u32,
        });
        self.observer.occupied(&Occupancies {
            at: Instant::now(),
            sharing: self.sharing,
            next,
            input_steps: staircases.inputs.map(in_bytes),
            output_steps: staircases.outputs.map(in_bytes),
            bytes: &self.bytes,
        });
    }
}
