//! Batches as the records of a job's input.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use ascot_columns::files::{CsvRows, FixedFields, to_bytes};
use ascot_columns::{ColumnsError, Encoder};
use ascot_io::ByteSource;
use ascot_record::layout::Layout;

use super::capsule::ForeignStream;
use super::import::Source;
use super::job::Shared;
use crate::errors::{Failure, Result};

/// Bytes of records that are made at once, unless one has more: they stay in the processor's cache.
const STEP_BYTES: usize = 256 << 10;
/// Rows of a file's records that are made at once.
const STEP_ROWS: usize = 4096;
/// Memory for records on their way: a step, the excess of its last block of rows, and the growth of the buffer.
pub const RECORDS_BYTES: u64 = 4 * STEP_BYTES as u64;

/// How rows become records.
pub enum Encoding {
    /// All columns, and the key before them.
    Rows(Encoder),
    /// The only column is the record.
    Column(Layout),
    /// The columns are the fields of the record.
    Fields(FixedFields),
    /// The columns are those of CSV.
    Csv(CsvRows),
}

impl Encoding {
    /// The encoding of rows of `schema` as the records of a file.
    ///
    /// # Errors
    /// More than one column, where the layout has no fields.
    pub fn of_file(layout: Layout, fields: Option<FixedFields>, schema: &Schema) -> Result<Encoding> {
        if let Some(fields) = fields {
            return Ok(Encoding::Fields(fields));
        }
        if let Layout::Csv { .. } = layout {
            return Err(Failure::Request(
                "Arrow batches have no rows of CSV\n  leave out layout=, and name their columns with key="
                    .into(),
            ));
        }
        if schema.fields().len() != 1 {
            let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            return Err(Failure::Batch(format!(
                "a file of format {layout} has one column, and the source has {}: {}\n  select one, give \
                 layout=ascot.Fixed(length, fields={{...}}), or leave out to= for sorted batches",
                names.len(),
                names.join(", ")
            )));
        }
        Ok(Encoding::Column(layout))
    }

    /// Appends records of rows from `row` on; returns the row to go on with.
    pub fn append(
        &mut self,
        batch: &RecordBatch,
        row: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, ColumnsError> {
        if let Encoding::Rows(encoder) = self {
            return encoder.encode_some(batch, row, STEP_BYTES, out);
        }
        let rows = STEP_ROWS.min(batch.num_rows() - row);
        match self {
            Encoding::Column(layout) => to_bytes(*layout, &batch.column(0).slice(row, rows), out)?,
            Encoding::Fields(fields) => fields.to_bytes(&batch.slice(row, rows), out)?,
            Encoding::Csv(csv) => csv.to_bytes(batch, row..row + rows, out)?,
            Encoding::Rows(_) => {}
        }
        Ok(row + rows)
    }
}

/// The place from which batches come.
pub enum Batches {
    /// The calling thread passes them.
    Passed,
    /// Another library's stream.
    Stream(ForeignStream),
}

/// The inputs of a job for `sources`: the sources whose batches the calling thread passes, none in the places of those
/// that the job reads itself, and what makes their records.
pub fn record_sources(
    shared: &Arc<Shared>,
    sources: Vec<(Source, Encoding)>,
) -> (Vec<Option<Source>>, Vec<Box<dyn ByteSource>>) {
    let one = |(input, (mut source, encoding)): (usize, (Source, Encoding))| {
        let stream = source.take_stream();
        let passed = stream.is_none().then_some(source);
        let batches = stream.map_or(Batches::Passed, Batches::Stream);
        let made: Box<dyn ByteSource> = Box::new(RecordSource::new(shared, input, batches, encoding));
        (passed, made)
    };
    sources.into_iter().enumerate().map(one).unzip()
}

/// The records of batches. It holds one batch, and the records of a few of its rows.
pub struct RecordSource {
    shared: Arc<Shared>,
    /// The number of the input.
    input: usize,
    batches: Batches,
    encoding: Encoding,
    /// The batch being encoded, and the next row of it.
    batch: Option<(RecordBatch, usize)>,
    /// Rows encoded.
    rows: u64,
    records: Vec<u8>,
    /// Bytes of `records` that were taken.
    taken: usize,
}

impl RecordSource {
    /// The records of `batches`, for the input `input` of a job.
    pub fn new(shared: &Arc<Shared>, input: usize, batches: Batches, encoding: Encoding) -> RecordSource {
        RecordSource {
            shared: Arc::clone(shared),
            input,
            batches,
            encoding,
            batch: None,
            rows: 0,
            records: Vec::new(),
            taken: 0,
        }
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        match &mut self.batches {
            Batches::Passed => Ok(self.shared.next_batch(self.input)),
            Batches::Stream(_) if self.shared.cancel().is_cancelled() => Ok(None),
            Batches::Stream(stream) => stream.next(),
        }
    }

    /// Makes the next records; `false` at the end.
    fn advance(&mut self) -> Result<bool> {
        self.records.clear();
        self.taken = 0;
        let (batch, row) = match self.batch.take() {
            Some(rest) => rest,
            None => match self.next_batch()? {
                Some(batch) => (batch, 0),
                None => return Ok(false),
            },
        };
        if row < batch.num_rows() {
            let next = self.encoding.append(&batch, row, &mut self.records);
            let next = next.map_err(|error| error.after(self.rows))?;
            self.rows += (next - row) as u64;
            if next < batch.num_rows() {
                self.batch = Some((batch, next));
            }
        }
        Ok(true)
    }
}

impl ByteSource for RecordSource {
    fn fill(&mut self, out: &mut [u8]) -> Option<usize> {
        let mut filled = 0;
        while filled < out.len() {
            let ready = &self.records[self.taken..];
            if ready.is_empty() {
                match self.advance() {
                    Ok(true) => continue,
                    Ok(false) if self.shared.cancel().is_cancelled() => return None,
                    Ok(false) => break,
                    Err(failure) => {
                        self.shared.fail(failure);
                        return None;
                    }
                }
            }
            let count = ready.len().min(out.len() - filled);
            out[filled..filled + count].copy_from_slice(&ready[..count]);
            filled += count;
            self.taken += count;
        }
        Some(filled)
    }
}
