//! Answers of indexed directories as batches.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use ascot_columns::ColumnsError;
use ascot_columns::files::Answers;
use ascot_index::{Directory, IndexError, Scan};
use ascot_io::threads;
use ascot_sort::Cancel;
use pyo3::prelude::*;

use crate::arrow::{Batch, BatchReader, BatchStream};
use crate::errors::{Failure, Result};
use crate::index_columns::Column;
use crate::indexes::{Index, answered};
use crate::running::PAUSE;

/// Records and bytes of keys and values after which a batch is complete.
const BATCH_RECORDS: usize = 1 << 16;
const BATCH_BYTES: usize = 1 << 20;

fn answers_of(directory: &Directory) -> Result<Answers> {
    Ok(Answers::new(directory.manifest().layout.key_bytes.map(|bytes| bytes as usize))?)
}

/// The values of keys as a batch, as [`Index::get`] orders them.
#[pyfunction]
pub fn index_get(
    py: Python<'_>,
    index: &Index,
    keys: &Bound<'_, PyAny>,
    epoch: Option<u64>,
) -> PyResult<Batch> {
    let keys = Column::new("keys", keys)?;
    let rows = keys.rows(py, 0, keys.len())?;
    let directory = index.directory()?;
    let mut answers = answers_of(&directory)?;
    let query = move || {
        let keys: Vec<&[u8]> = rows.iter().collect();
        let mut refused: Option<ColumnsError> = None;
        directory.get_many(&keys, epoch, |number, values| {
            let key = keys.get(number).copied().unwrap_or_default();
            let pushed =
                values.into_iter().try_for_each(|value| answers.push(key, value.epoch, &value.bytes));
            if let Err(error) = pushed {
                refused.get_or_insert(error);
            }
            Ok(())
        })?;
        refused.map_or(Ok(()), Err)?;
        Ok(answers.finish()?)
    };
    Ok(Batch::new(answered(py, keys.len(), query)?))
}

/// The records with keys from `start` to `stop` as batches, in the order of their keys and epochs.
#[pyfunction]
pub fn index_range(
    index: &Index,
    start: Vec<u8>,
    stop: Option<Vec<u8>>,
    epoch: Option<u64>,
) -> PyResult<BatchStream> {
    let directory = index.directory()?;
    let answers = answers_of(&directory)?;
    let schema = SchemaRef::clone(answers.schema());
    let scan = Scan { from: start, end: stop, epoch, by_key: true, ..Scan::default() };
    let (send, receive) = sync_channel(1);
    let work = move || {
        let mut filling = Filling { send, answers };
        let scanned = directory.scan(&scan, |record| filling.push(record.key, record.epoch, record.value));
        filling.end(scanned);
    };
    threads::spawn("range", work).map_err(Failure::from)?;
    Ok(BatchStream::new(Box::new(RangeBatches { schema, receive }), &Cancel::new()))
}

/// A batch that fills.
struct Filling {
    send: SyncSender<Result<RecordBatch>>,
    answers: Answers,
}

impl Filling {
    fn push(&mut self, key: &[u8], epoch: u64, value: &[u8]) -> Result<(), IndexError> {
        let pushed = self.answers.push(key, epoch, value).map_err(Failure::from);
        if pushed.is_ok() && self.answers.len() < BATCH_RECORDS && self.answers.bytes() < BATCH_BYTES {
            return Ok(());
        }
        let batch = pushed.and_then(|()| Ok(self.answers.finish()?));
        let failed = batch.is_err();
        let sent = self.send.send(batch);
        if failed || sent.is_err() {
            return Err(IndexError::Request("the reader of this range is gone".into()));
        }
        Ok(())
    }

    /// Hands over the rest, or the error of the scan. A reader that has gone needs neither.
    fn end(mut self, scanned: Result<(), IndexError>) {
        let rest = scanned.map_err(Failure::from).and_then(|()| Ok(self.answers.finish()?));
        let _ = self.send.send(rest);
    }
}

/// The batches of a range.
struct RangeBatches {
    schema: SchemaRef,
    receive: Receiver<Result<RecordBatch>>,
}

impl BatchReader for RangeBatches {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    fn next(&mut self, look: &mut dyn FnMut() -> PyResult<()>) -> Result<Option<RecordBatch>> {
        loop {
            match self.receive.recv_timeout(PAUSE) {
                Ok(Ok(batch)) if batch.num_rows() == 0 => {}
                Ok(batch) => return batch.map(Some),
                Err(RecvTimeoutError::Timeout) => look()?,
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }
}
