//! The bytes of a file, which arrive in parts of any size, as batches.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use ascot_record::framing::{CsvFraming, Framing, LineFraming, Partial, PrefixedFraming};
use ascot_record::layout::Layout;

use super::{CsvColumns, FixedFields, TextType, numbers, to_array};
use crate::decoder::BatchLimits;
use crate::error::{ColumnsError, Result};

/// The columns of a file's records.
#[derive(Clone, Debug)]
pub enum FileColumns {
    /// One column: `value` for numbers, `line` for lines, else `record`.
    One {
        /// The layout of the file.
        layout: Layout,
        /// The type of lines and length-prefixed records; [`TextType::Auto`] means UTF-8.
        text: TextType,
    },
    /// A column for each field of records of fixed length.
    Fields(FixedFields),
    /// A column for each column of CSV.
    Csv(CsvColumns),
}

impl FileColumns {
    /// The schema of the batches.
    ///
    /// # Errors
    /// Records that are too long for Arrow.
    pub fn schema(&self) -> Result<SchemaRef> {
        let (layout, text) = match self {
            FileColumns::One { layout, text } => (*layout, *text),
            FileColumns::Fields(fields) => return Ok(Arc::clone(fields.schema())),
            FileColumns::Csv(columns) => return Ok(Arc::clone(columns.schema())),
        };
        let of_text = if text == TextType::Binary { DataType::Binary } else { DataType::Utf8 };
        let (name, data_type) = match layout {
            Layout::Number(format) => ("value", numbers::type_of(format.kind)),
            Layout::Fixed { .. } => {
                let empty = to_array(layout, &Buffer::from(&[][..]), TextType::Binary)?;
                ("record", empty.data_type().clone())
            }
            Layout::Lines { .. } => ("line", of_text),
            Layout::Csv { .. } | Layout::Prefixed { .. } => ("record", of_text),
        };
        Ok(Arc::new(Schema::new(vec![Field::new(name, data_type, false)])))
    }

    /// Length of the whole records at the front of `bytes`.
    fn whole(&self, bytes: &[u8]) -> usize {
        match self {
            FileColumns::Fields(fields) => bytes.len() / fields.record_bytes() * fields.record_bytes(),
            FileColumns::Csv(columns) => columns.framing().cut(bytes, usize::MAX).bytes,
            FileColumns::One { layout, .. } => match *layout {
                Layout::Number(format) => bytes.len() / format.kind.width() * format.kind.width(),
                Layout::Fixed { len } => bytes.len() / len.max(1) * len,
                Layout::Lines { delimiter } => LineFraming(delimiter).cut(bytes, usize::MAX).bytes,
                Layout::Csv { separator, quote } => {
                    CsvFraming { separator, quote }.cut(bytes, usize::MAX).bytes
                }
                Layout::Prefixed { width, endian, keyed } => {
                    PrefixedFraming { width, endian, keyed }.cut(bytes, usize::MAX).bytes
                }
            },
        }
    }
}

/// Decodes the bytes of a file to batches.
#[derive(Debug)]
pub struct FileDecoder {
    columns: FileColumns,
    schema: SchemaRef,
    limits: BatchLimits,
    /// Bytes of records that are no batch yet.
    pending: Vec<u8>,
    /// Number of these bytes at which a batch is made.
    enough: usize,
    /// Maximum bytes of a record.
    record_bytes_max: usize,
    /// Records in batches so far.
    records: u64,
    ready: VecDeque<RecordBatch>,
}

impl FileDecoder {
    /// A decoder of records with these columns. The limit of rows has no effect: a batch ends at the limit of bytes.
    ///
    /// # Errors
    /// Records that are too long for Arrow.
    pub fn new(columns: FileColumns, limits: BatchLimits) -> Result<FileDecoder> {
        let limits = BatchLimits { bytes: limits.bytes.clamp(1, BatchLimits::BYTES_MAX), ..limits };
        Ok(FileDecoder {
            schema: columns.schema()?,
            columns,
            limits,
            pending: Vec::new(),
            enough: limits.bytes,
            record_bytes_max: usize::MAX,
            records: 0,
            ready: VecDeque::new(),
        })
    }

    /// The same decoder, whose only column has another name. Several columns keep theirs.
    #[must_use]
    pub fn with_column_name(mut self, name: &str) -> FileDecoder {
        if let (FileColumns::One { .. }, Some(field)) = (&self.columns, self.schema.fields().first()) {
            self.schema = Arc::new(Schema::new(vec![field.as_ref().clone().with_name(name)]));
        }
        self
    }

    /// Refuses records of more than `bytes` bytes: memory holds a record twice.
    #[must_use]
    pub fn records_up_to(self, bytes: usize) -> FileDecoder {
        FileDecoder { record_bytes_max: bytes, ..self }
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Takes the next part of the bytes, until a batch is complete; returns how many bytes were used. If bytes are
    /// left, the caller takes the [next batch](Self::next_batch) and pushes the rest.
    ///
    /// # Errors
    /// Records that do not have the types of the columns, or are too long.
    pub fn push(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut used = 0;
        while used < bytes.len() && self.ready.is_empty() {
            if self.pending.capacity() == 0 {
                self.pending.reserve_exact(self.enough);
            }
            let part = (self.enough - self.pending.len()).min(bytes.len() - used);
            self.pending.extend_from_slice(&bytes[used..used + part]);
            used += part;
            if self.pending.len() >= self.enough {
                match self.columns.whole(&self.pending) {
                    0 if self.enough >= self.record_bytes_max => {
                        return Err(ColumnsError::LongRecord {
                            bytes: self.enough,
                            record: self.records + 1,
                        });
                    }
                    // A record longer than a batch.
                    0 => self.enough = (2 * self.enough).min(self.record_bytes_max),
                    whole => self.make(whole)?,
                }
            }
        }
        Ok(used)
    }

    /// Declares the end of the bytes: the remaining records become a batch.
    ///
    /// # Errors
    /// As those of [`push`](Self::push), and a last record that is cut short, or in which a quote is open.
    pub fn finish(&mut self) -> Result<()> {
        if let FileColumns::Csv(columns) = &self.columns {
            let framing = columns.framing();
            let whole = framing.cut(&self.pending, usize::MAX);
            let last = self.records + whole.records as u64 + 1;
            let mut partial = Partial::default();
            // The last row may lack its terminator.
            let ends = [&self.pending[whole.bytes..], b"\n"]
                .into_iter()
                .any(|part| framing.go_on(part, &mut partial).is_some());
            if !ends && whole.bytes < self.pending.len() {
                return Err(ColumnsError::FileBytes {
                    reason: format!(
                        "row {last} has a quote that is never closed\n  the file may still be growing, or the quote is \
                         a stray one: double it, or close it"
                    ),
                });
            }
        }
        match self.pending.len() {
            0 => Ok(()),
            all => self.make(all),
        }
    }

    /// A complete batch, if there is one.
    pub fn next_batch(&mut self) -> Option<RecordBatch> {
        self.ready.pop_front()
    }

    /// Makes a batch of the first `bytes` bytes.
    fn make(&mut self, bytes: usize) -> Result<()> {
        let rest = self.pending.split_off(bytes);
        let records = std::mem::take(&mut self.pending);
        if !rest.is_empty() {
            self.pending = Vec::with_capacity(self.limits.bytes.max(rest.len()));
            self.pending.extend_from_slice(&rest);
        }
        self.enough = self.limits.bytes.max(self.pending.len() + 1);
        let batch = match &self.columns {
            FileColumns::Fields(fields) => fields.to_batch(&records)?,
            FileColumns::Csv(columns) => columns.to_batch(&records, self.records)?,
            FileColumns::One { layout, text } => {
                let text = if *text == TextType::Binary { TextType::Binary } else { TextType::Utf8 };
                let column = to_array(*layout, &Buffer::from_vec(records), text);
                let column: ArrayRef = column.map_err(|error| match error {
                    ColumnsError::NotUtf8 { record } => {
                        ColumnsError::NotUtf8 { record: self.records + record }
                    }
                    other => other,
                })?;
                RecordBatch::try_new(Arc::clone(&self.schema), vec![column])?
            }
        };
        self.records += batch.num_rows() as u64;
        self.ready.push_back(batch);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use proptest::prelude::*;

    use super::*;

    fn decoded(layout: &str, bytes: &[u8], step: usize, limit: usize) -> Vec<RecordBatch> {
        let columns = FileColumns::One { layout: Layout::parse(layout).unwrap(), text: TextType::Utf8 };
        let limits = BatchLimits { bytes: limit, ..BatchLimits::default() };
        let mut decoder = FileDecoder::new(columns, limits).unwrap();
        let mut batches = Vec::new();
        for part in bytes.chunks(step) {
            let mut used = 0;
            while used < part.len() {
                used += decoder.push(&part[used..]).unwrap();
                batches.extend(decoder.next_batch());
            }
        }
        decoder.finish().unwrap();
        batches.extend(decoder.next_batch());
        batches
    }

    proptest! {
        #[test]
        fn parts_of_any_size_become_the_lines(lines in prop::collection::vec("[a-c]{0,9}", 0..40), step in 1..50usize,
                                              limit in 1..60usize) {
            let bytes: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let batches = decoded("lines", bytes.as_bytes(), step, limit);
            let lines_of = |batch: &RecordBatch| -> Vec<String> {
                batch.column(0).as_string::<i32>().iter().flatten().map(str::to_owned).collect()
            };
            let found: Vec<String> = batches.iter().flat_map(lines_of).collect();
            prop_assert_eq!(found, lines);
            prop_assert!(batches.iter().all(|batch| batch.num_rows() > 0));
        }
    }

    #[test]
    fn batches_of_fixed_records_have_about_the_bytes_of_the_limit() {
        let batches = decoded("fixed:3", &[7; 30], 4, 10);
        assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [3, 3, 3, 1]);
        assert_eq!(batches[0].column(0).as_fixed_size_binary().value(2), [7; 3]);
        assert_eq!(batches[0].schema().field(0).name(), "record");
    }

    fn fails(columns: FileColumns, bytes: &[u8], record_bytes_max: usize) -> Option<ColumnsError> {
        let limits = BatchLimits { bytes: 64, ..BatchLimits::default() };
        let mut decoder = FileDecoder::new(columns, limits).unwrap().records_up_to(record_bytes_max);
        let mut used = 0;
        while used < bytes.len() {
            match decoder.push(&bytes[used..]) {
                Ok(more) => used += more,
                Err(error) => return Some(error),
            }
            decoder.next_batch();
        }
        decoder.finish().err()
    }

    #[test]
    fn a_record_is_at_most_as_long_as_allowed() {
        let lines = || FileColumns::One { layout: Layout::parse("lines").unwrap(), text: TextType::Utf8 };
        let line = |len: usize| [&b"first\n"[..], &vec![b'x'; len - 1], b"\n"].concat();
        for allowed in [64, 100, 1000] {
            assert!(fails(lines(), &line(allowed), allowed).is_none(), "{allowed}");
            let error = fails(lines(), &line(2 * allowed + 1), allowed);
            assert!(matches!(error, Some(ColumnsError::LongRecord { record: 1 | 2, .. })), "{error:?}");
        }
    }

    #[test]
    fn a_quote_that_stays_open_is_an_error_and_one_that_ends_the_file_is_not() {
        let framing = CsvFraming { separator: b',', quote: b'"' };
        let csv =
            || FileColumns::Csv(CsvColumns::new(framing, b"a,b\n", true, TextType::Utf8, &[], &[]).unwrap());
        for whole in ["1,2\n", "1,2", "1,\"x\"", "1,\"x\ny\"\n", "1,\"x\"\"\""] {
            assert!(fails(csv(), whole.as_bytes(), usize::MAX).is_none(), "{whole:?}");
        }
        for open in ["1,\"x", "1,\"x\n", "1,2\n3,\"", "1,\"x\"\""] {
            assert!(fails(csv(), open.as_bytes(), usize::MAX).is_some(), "{open:?}");
        }
    }
}
