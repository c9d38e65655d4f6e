//! An output of a flow: batches become the records of its file.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use ascot_columns::ColumnsError;
use ascot_columns::files::{CsvRows, FixedFields};
use ascot_record::layout::{CsvFraming, Layout};
use ascot_sort::flow::Moved;
use pyo3::prelude::*;

use super::fit::fitted;
use super::flow_engine::Engine;
use super::records::Encoding;
use crate::errors::{Failure, Result};
use crate::running::PAUSE;

/// An output, whose columns are those of its first batch.
pub struct FlowOutput {
    number: usize,
    name: String,
    layout: Layout,
    fields: Option<FixedFields>,
    /// Its first line has the names of the columns.
    header: bool,
    begun: Option<(SchemaRef, Encoding)>,
    /// The header of lines, which is still to be written: the name of the column, as a line.
    header_due: Vec<u8>,
    /// Rows written.
    rows: u64,
}

impl FlowOutput {
    /// Output `number`, the file `name`.
    pub fn new(
        number: usize,
        name: String,
        layout: Layout,
        fields: Option<FixedFields>,
        header: bool,
    ) -> FlowOutput {
        FlowOutput { number, name, layout, fields, header, begun: None, header_due: Vec::new(), rows: 0 }
    }

    /// Appends a batch. It uses `records` for its records, and calls `look` while it waits.
    ///
    /// # Errors
    /// A batch that does not fit the layout or the first batch; the job has failed; that of `look`.
    pub fn put(
        &mut self,
        batch: &RecordBatch,
        engine: &Engine,
        records: &mut Vec<u8>,
        look: &mut dyn FnMut() -> PyResult<()>,
    ) -> Result<()> {
        let fitted = self.begin(batch).map_err(|failure| self.named(failure))?;
        let batch = &fitted;
        let mut row = 0;
        // A header is written with the first batch, even if that has no rows.
        let mut empty = batch.num_rows() == 0;
        while row < batch.num_rows() || std::mem::take(&mut empty) {
            records.clear();
            row = self.append(batch, row, records).map_err(|failure| self.named(failure))?;
            let mut at = 0;
            while at < records.len() {
                match engine.streams.write(self.number, &records[at..], PAUSE) {
                    Moved::Bytes(count) => at += count,
                    Moved::Over => return Err(engine.failure()),
                    Moved::Nothing | Moved::End => look()?,
                }
            }
        }
        Ok(())
    }

    fn append(&mut self, batch: &RecordBatch, row: usize, records: &mut Vec<u8>) -> Result<usize> {
        records.append(&mut self.header_due);
        let Some((_, encoding)) = &mut self.begun else { return Ok(batch.num_rows()) };
        let next = encoding.append(batch, row, records).map_err(|error| error.after(self.rows))?;
        self.rows += (next - row) as u64;
        Ok(next)
    }

    /// Takes the columns of the first batch; returns the batch with these columns, and refuses others.
    fn begin(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        if let Some((schema, _)) = &self.begun {
            return fitted(schema, batch).map_err(|text| {
                Failure::Batch(format!("a batch has another schema than the first: {text}"))
            });
        }
        let encoding = match self.layout {
            Layout::Csv { separator, quote } => {
                Encoding::Csv(CsvRows::new(CsvFraming { separator, quote }, self.header))
            }
            layout => Encoding::of_file(layout, self.fields.clone(), batch.schema_ref())?,
        };
        if let (Layout::Lines { delimiter }, true, Some(field)) =
            (self.layout, self.header, batch.schema_ref().fields().first())
        {
            if field.name().as_bytes().contains(&delimiter) {
                let name = field.name();
                return Err(Failure::Batch(format!("the name {name:?} of the column is more than a line")));
            }
            self.header_due = [field.name().as_bytes(), &[delimiter]].concat();
        }
        self.begun = Some((batch.schema(), encoding));
        Ok(batch.clone())
    }

    /// The failure of a batch, with the name of this output.
    fn named(&self, failure: Failure) -> Failure {
        let text = format!("output {} ({}): {failure}", self.number, self.name);
        match failure {
            Failure::Columns(ColumnsError::Value { record, .. }) => Failure::Row { text, record },
            Failure::Columns(_) | Failure::Batch(_) => Failure::Batch(text),
            other => other,
        }
    }
}
