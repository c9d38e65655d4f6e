//! An input of a flow as batches.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use ascot_columns::files::FileDecoder;
use ascot_columns::{BatchLimits, ColumnsError};
use ascot_record::layout::Layout;
use ascot_sort::Cancel;
use ascot_sort::flow::Moved;
use pyo3::prelude::*;

use super::batch_reader::BatchReader;
use super::columns::{ArrowOptions, FirstRow, decoder_of, first_record};
use super::flow_engine::{Engine, QUEUE_BYTES};
use crate::errors::{Failure, Result};
use crate::request::Records;
use crate::running::PAUSE;

/// The batches of an input.
pub struct FlowInput {
    engine: Engine,
    number: usize,
    /// The name of its file.
    name: String,
    /// On once the stream is closed.
    closed: Cancel,
    decoder: FileDecoder,
    /// Bytes of the queue, of which those from `at` to `len` were not decoded.
    buffer: Vec<u8>,
    at: usize,
    len: usize,
    /// Bytes of a header that are left out.
    skip: usize,
    ended: bool,
}

/// The records of an input, and the batches that they become.
#[derive(Clone, Copy)]
pub struct InputKind<'a> {
    /// How the file is divided into records.
    pub records: &'a Records,
    /// The columns.
    pub arrow: &'a ArrowOptions,
    /// Maximum size of a batch.
    pub limits: BatchLimits,
    /// Maximum length of a record, bytes.
    pub record_bytes_max: usize,
}

impl FlowInput {
    /// The batches of input `number`, named `name`. The columns of CSV are known when its first row has come; it calls
    /// `look` while it waits.
    ///
    /// # Errors
    /// The job has failed, or the first row is too long; that of `look`.
    pub fn open(
        engine: Engine,
        number: usize,
        name: &str,
        kind: InputKind<'_>,
        look: &mut dyn FnMut() -> PyResult<()>,
    ) -> Result<FlowInput> {
        let InputKind { records, arrow, limits, record_bytes_max } = kind;
        let layout = records.layout;
        let first = match layout {
            Layout::Csv { .. } => first_row(&engine, number, name, layout, look)?,
            Layout::Lines { .. } if records.header => first_row(&engine, number, name, layout, look)?,
            _ => Vec::new(),
        };
        let skip = if records.header { first.len() } else { 0 };
        let row = FirstRow { bytes: &first, header: records.header, keys: &records.keys };
        let decoder = decoder_of(arrow, layout, row, limits)?.records_up_to(record_bytes_max);
        let buffer = vec![0; QUEUE_BYTES];
        Ok(FlowInput {
            engine,
            number,
            name: name.to_owned(),
            closed: Cancel::new(),
            decoder,
            buffer,
            at: 0,
            len: 0,
            skip,
            ended: false,
        })
    }

    /// The switch that ends a wait for bytes.
    pub fn closed(&self) -> &Cancel {
        &self.closed
    }

    fn decode(&mut self, look: &mut dyn FnMut() -> PyResult<()>) -> Result<()> {
        if self.at == self.len {
            self.at = 0;
            self.len = match self.engine.streams.read(self.number, &mut self.buffer, PAUSE) {
                Moved::Bytes(count) => count,
                Moved::Nothing if self.closed.is_cancelled() => {
                    return Err(Failure::Request("the batches are closed".into()));
                }
                Moved::Nothing => {
                    look()?;
                    0
                }
                Moved::End => {
                    self.ended = true;
                    return self.decoder.finish().map_err(|error| self.wrong(error));
                }
                Moved::Over => return Err(self.engine.failure()),
            };
        }
        let skipped = self.skip.min(self.len - self.at);
        self.skip -= skipped;
        self.at += skipped;
        let pushed = self.decoder.push(&self.buffer[self.at..self.len]);
        self.at += pushed.map_err(|error| self.wrong(error))?;
        Ok(())
    }

    /// The failure of the flow because of the bytes of this input, also if the function goes on without them.
    fn wrong(&self, error: ColumnsError) -> Failure {
        self.engine.first.note(Failure::Batch(format!("{}: {error}", self.name)))
    }
}

impl BatchReader for FlowInput {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(self.decoder.schema())
    }

    fn next(&mut self, look: &mut dyn FnMut() -> PyResult<()>) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.decoder.next_batch() {
                return Ok(Some(batch));
            }
            if self.ended {
                return Ok(None);
            }
            self.decode(look)?;
        }
    }
}

/// The first row of an input, which stays in its queue.
fn first_row(
    engine: &Engine,
    number: usize,
    name: &str,
    layout: Layout,
    look: &mut dyn FnMut() -> PyResult<()>,
) -> Result<Vec<u8>> {
    let mut head = vec![0; QUEUE_BYTES];
    let mut known = 0;
    loop {
        match engine.streams.peek(number, known, &mut head, PAUSE) {
            Moved::Bytes(count) => {
                known = count;
                let row = first_record(layout, &head[..known]);
                if row.len() < known || row.ends_with(b"\n") {
                    return Ok(row.to_vec());
                }
            }
            Moved::Nothing => look()?,
            Moved::End if known == QUEUE_BYTES => {
                return Err(Failure::Batch(format!(
                    "the first row of {name} is longer than {} KiB\n  the separator or the quote may be another",
                    QUEUE_BYTES >> 10
                )));
            }
            Moved::End => {
                head.truncate(known);
                return Ok(head);
            }
            Moved::Over => return Err(engine.failure()),
        }
    }
}
