//! Record batches to records.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use ascot_record::keys::ByteRangeKey;
use ascot_record::layout::Layout;

use crate::decoder::{BatchLimits, Decoder};
use crate::error::{ColumnsError, Result};
use crate::plan::{Form, Plan, SharedPlan};
use crate::sort_column::SortColumn;
use crate::width::LENGTH;

/// Rows encoded at a time: their part of every column and their records stay in the processor's cache.
const BLOCK_ROWS: usize = 1024;

/// Bytes of records encoded at a time, unless one row has more.
const BLOCK_BYTES: usize = 256 << 10;

/// Encodes batches of one schema as records whose keys order them.
///
/// A clone shares the plan, so that several threads can encode.
#[derive(Clone, Debug)]
pub struct Encoder {
    plan: SharedPlan,
    scratch: Scratch,
}

/// Positions of the rows of a block.
#[derive(Clone, Debug, Default)]
struct Scratch {
    key_lengths: Vec<usize>,
    row_lengths: Vec<usize>,
    cursors: Vec<usize>,
    starts: Vec<usize>,
}

impl Encoder {
    /// An encoder of batches of `schema`, ordered by `keys`, the first of which decides first.
    ///
    /// # Errors
    /// No key, a key that names no column or several, or a column whose type has no order.
    pub fn new(schema: SchemaRef, keys: &[SortColumn]) -> Result<Encoder> {
        Ok(Encoder { plan: Arc::new(Plan::new(schema, keys)?), scratch: Scratch::default() })
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.plan.schema
    }

    /// The layout of the records.
    pub fn layout(&self) -> Layout {
        self.plan.layout()
    }

    /// The key of a record, as byte ranges of its body; empty: the whole body.
    pub fn keys(&self) -> Vec<ByteRangeKey> {
        self.plan.keys()
    }

    /// A decoder of these records.
    pub fn decoder(&self, limits: BatchLimits) -> Decoder {
        Decoder::of_plan(Arc::clone(&self.plan), limits)
    }

    /// Appends a record for every row of `batch` to `out`.
    ///
    /// # Errors
    /// A batch of another schema, a null in a column without nulls, or a row too long for a record. Then `out` is as
    /// it was before.
    pub fn encode(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<()> {
        self.encode_some(batch, 0, usize::MAX, out).map(drop)
    }

    /// Appends records of rows from `first_row` on, until at least `bytes` bytes are appended or the batch ends;
    /// returns the row to go on with. The excess is at most 256 KiB or one row.
    ///
    /// # Errors
    /// As those of [`encode`](Self::encode).
    pub fn encode_some(
        &mut self,
        batch: &RecordBatch,
        first_row: usize,
        bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize> {
        self.plan.check(batch)?;
        let base = out.len();
        let mut row = first_row;
        let mut block = BLOCK_ROWS;
        while row < batch.num_rows() && out.len() - base < bytes {
            let rows = block.min(batch.num_rows() - row);
            let encoded = self.block(batch, row, rows, out).inspect_err(|_| out.truncate(base))?;
            // Long rows tend to follow long rows.
            block = if encoded < rows { encoded } else { BLOCK_ROWS.min(2 * block) };
            row += encoded;
        }
        Ok(row)
    }

    /// Appends records of at most `rows` rows, and returns how many it were: fewer if they are long.
    fn block(&mut self, batch: &RecordBatch, first: usize, rows: usize, out: &mut Vec<u8>) -> Result<usize> {
        let Encoder { plan, scratch } = self;
        let columns = plan.columns(batch, first, rows)?;
        let key = plan.key.gather(&columns)?;
        let row = plan.row.gather(plan.row_columns.iter().map(|&column| &columns[column]), rows)?;
        let Scratch { key_lengths, row_lengths, cursors, starts } = scratch;
        key_lengths.clear();
        key_lengths.resize(rows, 0);
        key.add_lengths(key_lengths);
        row_lengths.clear();
        row_lengths.resize(rows, plan.row.head());
        row.add_lengths(row_lengths);

        let prefix = plan.form.prefix();
        cursors.clear();
        starts.clear();
        let mut at = out.len();
        for (number, (key, row)) in key_lengths.iter().zip(row_lengths.iter()).enumerate() {
            let bytes = prefix + key + row;
            if number > 0 && at + bytes - out.len() > BLOCK_BYTES {
                return self.block(batch, first, number, out);
            }
            if u32::try_from(bytes).is_err() {
                return Err(ColumnsError::RowTooLong { row: first + number, bytes });
            }
            cursors.push(at + prefix);
            starts.push(at + prefix + key);
            at += bytes;
        }
        out.resize(at, 0);
        write_lengths(plan.form, cursors, key_lengths, row_lengths, out);
        key.write(out, cursors);
        row.write(out, starts, cursors);
        Ok(rows)
    }
}

/// Writes the lengths before the keys at `key_starts`.
fn write_lengths(
    form: Form,
    key_starts: &[usize],
    key_lengths: &[usize],
    row_lengths: &[usize],
    out: &mut [u8],
) {
    if let Form::Fixed { .. } = form {
        return;
    }
    for ((start, key), row) in key_starts.iter().zip(key_lengths).zip(row_lengths) {
        let record = start - form.prefix();
        let length = (form.prefix() - LENGTH + key + row) as u32;
        out[record..record + LENGTH].copy_from_slice(&length.to_le_bytes());
        if form == Form::Keyed {
            out[start - LENGTH..*start].copy_from_slice(&(*key as u32).to_le_bytes());
        }
    }
}
