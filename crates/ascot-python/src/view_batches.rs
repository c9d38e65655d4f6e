//! Records of views as batches, merged while they are read.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use ascot_columns::BatchLimits;
use ascot_columns::files::FileDecoder;
use ascot_io::Reservation;
use ascot_sort::Cancel;
use ascot_sort::view::{Reading, Stream, View};
use pyo3::prelude::*;

use crate::arrow::{ArrowOptions, BatchReader, BatchStream, FirstRow, decoder_of, first_record};
use crate::errors::{Failure, Result};
use crate::running::run;
use crate::views::OpenedView;

/// Maximum bytes of a batch, and the inverse of its maximum share of the view's memory.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_SHARE: usize = 16;
/// Batches for which memory is set aside.
const BATCHES_HELD: usize = 3;
/// The stream takes one part in this many of the view's memory.
const STREAM_SHARE: usize = 4;
/// Bytes in which the first row of CSV ends.
const FIRST_ROW_BYTES: usize = 64 << 10;

/// The records of `view` from byte `start` to byte `stop` as batches.
#[pyfunction]
pub fn view_batches(
    py: Python<'_>,
    view: &OpenedView,
    start: u64,
    stop: u64,
    arrow: ArrowOptions,
) -> PyResult<BatchStream> {
    let view = Arc::clone(view.view()?);
    let begun = run(py, None, |_, _| ViewBatches::begin(view, start, stop, &arrow))?;
    Ok(BatchStream::new(Box::new(begun.result), &Cancel::new()))
}

/// Batches of a view.
struct ViewBatches {
    stream: Stream,
    decoder: FileDecoder,
    /// Bytes of records that were not decoded.
    left: u64,
    _memory: Reservation,
    /// The view stays open while it is read.
    _view: Arc<dyn View>,
}

impl ViewBatches {
    fn begin(view: Arc<dyn View>, start: u64, stop: u64, arrow: &ArrowOptions) -> Result<ViewBatches> {
        let start = start.max(view.header_bytes());
        let stop = stop.min(view.bytes()).max(start);
        let request = view.request();
        let header = view.header_bytes() > 0;
        let head_bytes = if header { view.header_bytes() as usize } else { FIRST_ROW_BYTES };
        let head = view.read_at(0, head_bytes).map_err(Failure::from)?;
        let first = FirstRow { bytes: first_record(request.layout, &head), header, keys: &request.keys };
        let pool = view.pool();
        let bytes = (pool.budget() / BATCH_SHARE).min(BATCH_BYTES);
        let memory = pool.reserve(BATCHES_HELD * bytes, "batches of a view");
        let memory = memory.map_err(|error| Failure::Sort(error.into()))?;
        let limits = BatchLimits { bytes, ..BatchLimits::default() };
        let decoder = decoder_of(arrow, request.layout, first, limits)?;
        let share = (pool.budget() / STREAM_SHARE).min(pool.available());
        let stream = view.stream(start, stop, Reading { memory: share, ..Reading::default() })?;
        Ok(ViewBatches { stream, decoder, left: stop - start, _memory: memory, _view: view })
    }
}

impl BatchReader for ViewBatches {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(self.decoder.schema())
    }

    fn next(&mut self, look: &mut dyn FnMut() -> PyResult<()>) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.decoder.next_batch() {
                return Ok(Some(batch));
            }
            if self.left == 0 {
                self.decoder.finish()?;
                return Ok(self.decoder.next_batch());
            }
            look()?;
            let bytes = self.stream.next_bytes()?;
            if bytes.is_empty() {
                return Err(Failure::Source("the view ended before its last record".into()));
            }
            let used = self.decoder.push(bytes)?;
            self.stream.consume(used);
            self.left = self.left.saturating_sub(used as u64);
        }
    }
}
