//! The order checker observes the records of one input as they are read, and finds the first one out of order. The
//! reader of that input is here, too.

use std::sync::Arc;

use ascot_io::Pool;

use crate::api::{Cancel, Result, SortRequest};
use crate::plan::{Budget, RunOptions, default_memory, job_disk};
use crate::read::{InputPosition, Inputs, RecordReader};
use crate::records::Records;
use crate::resources::ChunkPool;

/// Maximum number of chunks in memory.
const CHUNKS: usize = 6;

/// Observes records in the form of spills, any number of whole records at a time.
pub(crate) struct OrderCheck<R> {
    records: Arc<R>,
    /// Whether every key may occur only once. Otherwise equal keys are ordered as a sort orders them.
    unique: bool,
    /// The last record observed.
    previous: Option<Vec<u8>>,
}

/// A record that sorts before its predecessor.
pub(crate) struct Unordered {
    /// Number of records before it in the observed bytes.
    pub(crate) before: u64,
    /// Its offset in them.
    pub(crate) offset: usize,
}

impl<R: Records> OrderCheck<R> {
    /// Checks the order in which a sort puts records; `unique`: and that it drops equal ones.
    pub(crate) fn new(records: &Arc<R>, unique: bool) -> Self {
        OrderCheck { records: Arc::clone(records), unique, previous: None }
    }

    /// Observes the next records; returns the first one that is out of order.
    pub(crate) fn observe(&mut self, bytes: &[u8]) -> Option<Unordered> {
        let unordered = self.records.disorder(self.previous.as_deref(), bytes, self.unique);
        self.previous = Some(bytes[self.records.last_record(bytes)..].to_vec());
        unordered.map(|offset| {
            let before = self.records.cut(&bytes[..offset], usize::MAX).records as u64;
            Unordered { before, offset }
        })
    }
}

/// Reads one input from start to end, in the memory of `request`.
pub(crate) fn reader<R: Records>(
    records: &Arc<R>,
    request: &SortRequest,
    inputs: Inputs,
    cancel: &Cancel,
) -> Result<RecordReader<R>> {
    let memory = request.memory_bytes.unwrap_or_else(default_memory);
    let budget = Budget::new(memory, 1, None, false)?;
    let pool = Pool::new(budget.memory);
    // The other half is for a copy of the last record, which may be long.
    let share = budget.memory / 2;
    let chunks = ChunkPool::new(&pool, (share / CHUNKS).min(4 << 20) / 4096 * 4096, CHUNKS, share);
    let disk = job_disk(&RunOptions::default());
    disk.stop_when(cancel.flag());
    Ok(RecordReader::new(records, &disk, inputs, &chunks, InputPosition::default(), cancel))
}
