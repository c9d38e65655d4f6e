//! Records to record batches.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, SchemaRef};

use crate::error::{ColumnsError, Result};
use crate::key::KeyScratch;
use crate::plain::{Restore, from_plain};
use crate::plan::{Form, Plan, SharedPlan};
use crate::row::{ColumnBuilder, Malformed, RowScratch, Span, decode_rows, length_at};
use crate::sort_column::SortColumn;
use crate::width::LENGTH;

/// Rows decoded at a time: their records stay in the processor's cache while their columns are read.
const BLOCK_ROWS: usize = 1024;

/// Limits of a decoded batch. A batch has at least one row, however long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Maximum number of rows, at least one.
    pub rows: usize,
    /// Maximum number of bytes of its records, at least one. The arrays have about as many. More than
    /// [`BYTES_MAX`](Self::BYTES_MAX) count as that.
    pub bytes: usize,
}

impl BatchLimits {
    /// The highest limit of bytes: within it, offsets of 32 bits count the bytes of any column.
    pub const BYTES_MAX: usize = 1 << 30;
}

impl Default for BatchLimits {
    /// 64 Ki rows, 4 MiB.
    fn default() -> BatchLimits {
        BatchLimits { rows: 64 << 10, bytes: 4 << 20 }
    }
}

/// Decodes records, which arrive in parts of any size, to batches of the encoder's schema.
pub struct Decoder {
    plan: SharedPlan,
    limits: BatchLimits,
    /// Of every column of the schema.
    builders: Vec<ColumnBuilder>,
    /// Rows and bytes of records in the builders.
    rows: usize,
    bytes: usize,
    /// The beginning of a record whose end is still to come.
    carry: Vec<u8>,
    /// Bytes of all records decoded so far.
    offset: u64,
    ready: VecDeque<RecordBatch>,
    /// A record was malformed: the builders are unusable.
    failed: bool,
    scratch: Scratch,
}

/// Positions of the records of a block.
#[derive(Default)]
struct Scratch {
    records: Vec<Span>,
    keys: Vec<Span>,
    rows: Vec<Span>,
    key: KeyScratch,
    row: RowScratch,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("rows", &self.rows)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

impl Decoder {
    /// A decoder of the records that an [`Encoder`](crate::Encoder) with the same arguments makes.
    ///
    /// # Errors
    /// As those of [`Encoder::new`](crate::Encoder::new).
    pub fn new(schema: SchemaRef, keys: &[SortColumn], limits: BatchLimits) -> Result<Decoder> {
        Ok(Decoder::of_plan(Arc::new(Plan::new(schema, keys)?), limits))
    }

    pub(crate) fn of_plan(plan: SharedPlan, limits: BatchLimits) -> Decoder {
        let builders = plan.plain.iter().map(|field| ColumnBuilder::new(field.data_type())).collect();
        let limits =
            BatchLimits { rows: limits.rows.max(1), bytes: limits.bytes.clamp(1, BatchLimits::BYTES_MAX) };
        Decoder {
            plan,
            limits,
            builders,
            rows: 0,
            bytes: 0,
            carry: Vec::new(),
            offset: 0,
            ready: VecDeque::new(),
            failed: false,
            scratch: Scratch::default(),
        }
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.plan.schema
    }

    /// Decodes the next part of the records, until a batch is complete; returns how many bytes were used. If bytes are
    /// left, the caller takes the [next batch](Self::next_batch) and pushes the rest.
    ///
    /// # Errors
    /// A malformed record. The decoder is then unusable: its rows are lost.
    pub fn push(&mut self, bytes: &[u8]) -> Result<usize> {
        self.refuse_if_failed()?;
        let mut used = 0;
        while used < bytes.len() && self.ready.is_empty() {
            let rest = &bytes[used..];
            let step = if self.carry.is_empty() { self.block(rest) } else { self.complete(rest) };
            used += step.inspect_err(|_| self.failed = true)?;
        }
        Ok(used)
    }

    /// Declares the end of the records: the remaining rows become a batch.
    ///
    /// # Errors
    /// A last record that is cut short, or a malformed one.
    pub fn finish(&mut self) -> Result<()> {
        self.refuse_if_failed()?;
        if !self.carry.is_empty() {
            let reason = format!("it is cut short after {} bytes", self.carry.len());
            return Err(ColumnsError::Corrupt { offset: self.offset, reason });
        }
        self.close().inspect_err(|_| self.failed = true)
    }

    fn refuse_if_failed(&self) -> Result<()> {
        match self.failed {
            true => Err(ColumnsError::Corrupt {
                offset: self.offset,
                reason: "an earlier error ended the decoding".into(),
            }),
            false => Ok(()),
        }
    }

    /// A complete batch, if there is one.
    pub fn next_batch(&mut self) -> Option<RecordBatch> {
        self.ready.pop_front()
    }

    /// Decodes a block of whole records, or keeps the beginning of one; returns how many bytes were used.
    fn block(&mut self, bytes: &[u8]) -> Result<usize> {
        let rows_left = BLOCK_ROWS.min(self.limits.rows - self.rows);
        self.scratch.records.clear();
        let mut at = 0;
        let mut full = false;
        while self.scratch.records.len() < rows_left {
            let Some(len) = self.record_len(&bytes[at..]) else { break };
            let Some(end) = at.checked_add(len).filter(|&end| end <= bytes.len()) else { break };
            full = self.bytes + end > self.limits.bytes && self.rows + self.scratch.records.len() > 0;
            if full {
                break;
            }
            self.scratch.records.push(Span { start: at, end });
            at = end;
        }
        self.decode(bytes, at)?;
        if full || self.rows >= self.limits.rows {
            self.close()?;
        } else if self.scratch.records.is_empty() {
            self.carry.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        Ok(at)
    }

    /// Completes the record that was begun; returns how many bytes were used.
    fn complete(&mut self, bytes: &[u8]) -> Result<usize> {
        let wanted = self.record_len(&self.carry).unwrap_or(LENGTH);
        let part = wanted.saturating_sub(self.carry.len()).min(bytes.len());
        self.carry.extend_from_slice(&bytes[..part]);
        if self.record_len(&self.carry) == Some(self.carry.len()) {
            let record = std::mem::take(&mut self.carry);
            if self.block(&record)? == 0 {
                // The record belongs to the next batch, and is decoded first.
                self.block(&record)?;
            }
        }
        Ok(part)
    }

    /// The length of the record that begins with `bytes`, if they state it.
    fn record_len(&self, bytes: &[u8]) -> Option<usize> {
        match self.plan.form {
            Form::Fixed { record, .. } => Some(record),
            Form::Prefixed { .. } | Form::Keyed => length_at(bytes, 0)?.checked_add(LENGTH),
        }
    }

    /// Appends the records of the scratch, which end at `end`, to the builders.
    fn decode(&mut self, bytes: &[u8], end: usize) -> Result<()> {
        let Decoder { plan, builders, scratch, offset, .. } = self;
        split(plan.form, bytes, scratch)
            .and_then(|()| plan.key.decode(bytes, &scratch.keys, builders, &mut scratch.key))
            .and_then(|()| {
                let builders = row_builders(builders, &plan.row_columns);
                decode_rows(&plan.row, bytes, &scratch.rows, builders, &mut scratch.row)
            })
            .map_err(|Malformed { at, reason }| {
                let start =
                    scratch.records.iter().rev().map(|record| record.start).find(|start| *start <= at);
                ColumnsError::Corrupt {
                    offset: *offset + start.unwrap_or(0) as u64,
                    reason: reason.to_owned(),
                }
            })?;
        self.rows += self.scratch.records.len();
        self.bytes += end;
        self.offset += end as u64;
        Ok(())
    }

    /// Makes a batch of the rows in the builders, or several if their dictionaries demand it.
    fn close(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        let bytes = std::mem::take(&mut self.bytes) as u64;
        if rows == 0 {
            return Ok(());
        }
        let columns = self.builders.iter_mut().map(ColumnBuilder::finish).collect::<Result<Vec<_>, _>>();
        let offset = self.offset - bytes;
        let damaged =
            |reason: String| ColumnsError::Corrupt { offset, reason: format!("in its batch: {reason}") };
        let columns = columns.map_err(|error| damaged(error.to_string()))?;
        let mut first = 0;
        let mut count = rows;
        while first < rows {
            count = count.min(rows - first);
            match self.restore(&columns, first, count) {
                Ok(batch) => {
                    self.ready.push_back(batch);
                    first += count;
                }
                Err(Restore::TooMany) if count > 1 => count = count.div_ceil(2),
                Err(Restore::TooMany) => {
                    return Err(damaged("a row has more values than its dictionary".into()));
                }
                Err(Restore::Arrow(error)) => return Err(damaged(error.to_string())),
            }
        }
        Ok(())
    }

    /// A batch of some rows of plain columns.
    fn restore(&self, columns: &[ArrayRef], first: usize, rows: usize) -> Result<RecordBatch, Restore> {
        let column = |(column, field): (&ArrayRef, &Arc<Field>)| match first == 0 && rows == column.len() {
            true => from_plain(column, field.data_type()),
            false => from_plain(&column.slice(first, rows), field.data_type()),
        };
        let columns = columns.iter().zip(self.plan.schema.fields()).map(column).collect::<Result<_, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.plan.schema), columns, &options)?)
    }
}

/// Finds the keys and rows of the records.
fn split(form: Form, bytes: &[u8], scratch: &mut Scratch) -> Result<(), Malformed> {
    let Scratch { records, keys, rows, .. } = scratch;
    keys.clear();
    rows.clear();
    for record in records {
        let start = record.start + form.prefix();
        let key_len = match form {
            Form::Fixed { key, .. } | Form::Prefixed { key } => Some(key),
            Form::Keyed => length_at(&bytes[..record.end], record.start + LENGTH),
        };
        let end = key_len.and_then(|len| start.checked_add(len)).filter(|&end| end <= record.end);
        let Some(end) = end else {
            return Err(Malformed { at: record.start, reason: "its key extends beyond its end" });
        };
        keys.push(Span { start, end });
        rows.push(Span { start: end, end: record.end });
    }
    Ok(())
}

/// The builders of some columns, which are in ascending order.
fn row_builders<'b>(
    builders: &'b mut [ColumnBuilder],
    columns: &[usize],
) -> impl Iterator<Item = &'b mut ColumnBuilder> {
    builders
        .iter_mut()
        .enumerate()
        .filter(|(column, _)| columns.binary_search(column).is_ok())
        .map(|(_, builder)| builder)
}
