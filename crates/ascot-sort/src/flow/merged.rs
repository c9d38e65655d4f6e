//! A flow whose sorted inputs are merged into one ordered stream for the program.
//!
//! ```text
//!   sorted files ─▶ engine ─▶ merge ─▶ [records] ─▶ pipe ─▶ program ─▶ pipes ─▶ engine ─▶ files
//! ```
//!
//! The merge hands its records over in small batches, so that the schedule sees inputs as they are consumed and not a
//! whole memory at once. Invariant: the records given to the program are those read from the inputs (checksum).

use std::path::Path;
use std::sync::{Arc, Mutex};

use ascot_bowtie::engine::{BlockInput, BlockOutput, Bowtie};
use ascot_io::sync::Unpoisoned;
use ascot_model::report::Report;
use ascot_record::checksum::RecordSum;

use crate::api::{Caller, Cancel, Result, SortError};
use crate::flow::exchange::{Exchange, Source};
use crate::flow::job::{FlowJob, Memory, Streams};
use crate::job::Job;
use crate::merge::{Merge, MergeSink};
use crate::methods::{RawInput, straddling};
use crate::plan::{Budget, MergeShare, budget_of};
use crate::read::{Inputs, open_inputs};
use crate::records::{AnyRecords, InputHead, MergedBlock, Records, Rules, with_records};
use crate::resources::ChunkPool;

/// Inverse of the share of a batch in the memory of all streams.
const BATCH_SHARE: usize = 32;

/// The program, fed with records in order.
struct Ordered<'a, R> {
    exchange: Exchange,
    records: &'a R,
    cancel: &'a Cancel,
    batch_bytes: u64,
}

impl<R: Records, I: BlockInput, O: BlockOutput> MergeSink<I, O> for Ordered<'_, R> {
    fn block(&mut self, mut block: MergedBlock, streams: &mut Bowtie<I, O>) -> Result<()> {
        let bytes = &mut block.buf[..block.len];
        self.records.finish(bytes);
        self.exchange.hand_over(bytes, streams, self.cancel)
    }

    fn batch_bytes_max(&self) -> u64 {
        self.batch_bytes
    }

    fn end(&mut self, streams: &mut Bowtie<I, O>) -> Result<()> {
        self.exchange.end(streams, self.cancel)
    }
}

impl FlowJob<'_> {
    /// Gives the records of all inputs to the program in order.
    pub(super) fn run_merged(&self) -> Result<Report> {
        let (inputs, head) = open_inputs(&self.request.sort)?;
        with_records!(AnyRecords::new(&self.request.sort, &head)?, records => self.merge(records, inputs, head))
    }

    fn merge<R: Records>(&self, records: Arc<R>, inputs: Inputs, head: InputHead) -> Result<Report> {
        let request = &self.request.sort;
        let budget = budget_of(request, inputs.record_bytes())?;
        let budget = Budget { block: budget.block.min(self.layout.block), ..budget };
        let caller = Caller { observer: self.observer, cancel: self.cancel };
        let mut job =
            Job::new(records, request, self.plan.clone(), self.disk.clone(), budget, inputs, caller)?;
        let pool = job.pool.clone();
        let mut streams = Streams::default();
        self.open_outputs(&pool, &mut streams)?;
        self.add_feed(&pool, &mut streams, Path::new("the merged inputs"), Source::Records)?;
        let writers = std::mem::take(&mut streams.writers);
        let exchange = self.start(&pool, streams)?;
        let fault = Arc::new(Mutex::new(None));
        let count = job.inputs.iter().count();
        let long_records = ChunkPool::new(&job.pool, budget.block, 0, job.pool.budget());
        let block = budget.block;
        let available = job.pool.available();
        let share =
            MergeShare::new(available, block, count, job.records.record_bytes(), self.layout.long_runs);
        let blocks = share.blocks(available, block);
        let blocks = if self.layout.long_runs { blocks } else { blocks.min(self.layout.blocks) };
        let straddling = straddling(&job.pool, share, blocks)?;
        let open = |number| RawInput::open(&job, number, share, &long_records, straddling.as_ref(), &fault);
        let readers = (0..count).map(open).collect::<Result<Vec<_>, _>>()?;
        let memory = Memory { blocks, block };
        let mut bowtie = self.bowtie(&pool, memory, readers, writers)?;
        let batch_bytes = (memory.blocks * memory.block / BATCH_SHARE) as u64;
        let mut target = Ordered { exchange, records: &*job.records, cancel: self.cancel, batch_bytes };
        let header = head.header.unwrap_or_default();
        let rules = Rules { unique: false, sum: true };
        let merge = Merge::new(&*job.records, &job.emitters, rules, self.cancel);
        // Inputs are read from the first write on, so that either step may find a fault of theirs.
        let headed = target.exchange.hand_over(&header, &mut bowtie, self.cancel);
        let result = headed.and_then(|()| merge.run(&mut bowtie, vec![0; count], &mut target));
        let fault = fault.lock().unpoisoned().take();
        let merged = result.map_err(|error| fault.unwrap_or(error))?;
        let mut sum = RecordSum::new();
        bowtie.streams().for_each(|input| sum.combine(&input.sum()));
        if merged.out != sum {
            return Err(SortError::Checksum { read: sum, written: merged.out });
        }
        self.finish(&mut job.passes, bowtie, &target.exchange, &sum)
    }
}
