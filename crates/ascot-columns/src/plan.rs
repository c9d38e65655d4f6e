//! The plan that an encoder and its decoder share: which columns are keys, which are in the row, and the layout.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, SchemaRef};
use ascot_record::keys::ByteRangeKey;
use ascot_record::layout::{Endian, Layout};

use crate::error::{ColumnsError, Result};
use crate::key::KeyFormat;
use crate::plain::{plain_field, to_plain};
use crate::row::RowFormat;
use crate::sort_column::SortColumn;
use crate::width::LENGTH;

/// How a record is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// All records have one length.
    Fixed { record: usize, key: usize },
    /// The record's length comes first; all keys have one length.
    Prefixed { key: usize },
    /// The lengths of the record and of its key come first.
    Keyed,
}

impl Form {
    /// Bytes before the key.
    pub(crate) fn prefix(self) -> usize {
        match self {
            Form::Fixed { .. } => 0,
            Form::Prefixed { .. } => LENGTH,
            Form::Keyed => 2 * LENGTH,
        }
    }
}

/// The encoding of batches of one schema by one list of keys.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) schema: SchemaRef,
    /// The columns as they are encoded: nested encodings such as dictionaries replaced by their values.
    pub(crate) plain: Vec<Field>,
    pub(crate) key: KeyFormat,
    pub(crate) row: RowFormat,
    /// Columns of the row, by position in the schema.
    pub(crate) row_columns: Vec<usize>,
    pub(crate) form: Form,
}

impl Plan {
    pub(crate) fn new(schema: SchemaRef, keys: &[SortColumn]) -> Result<Plan> {
        let plain: Vec<Field> = schema.fields().iter().map(|field| plain_field(field)).collect();
        let key = KeyFormat::new(&schema, &plain, keys)?;
        let row_columns: Vec<usize> = (0..plain.len()).filter(|&column| !key.gives_back(column)).collect();
        let row = RowFormat::new(row_columns.iter().map(|&column| &plain[column]));
        let form = match (key.fixed_len().filter(|&len| len > 0), row.vars) {
            (Some(key), 0) => Form::Fixed { record: key + row.head(), key },
            (Some(key), _) => Form::Prefixed { key },
            (None, _) => Form::Keyed,
        };
        Ok(Plan { schema, plain, key, row, row_columns, form })
    }

    pub(crate) fn layout(&self) -> Layout {
        let prefixed = |keyed| Layout::Prefixed { width: LENGTH as u8, endian: Endian::Little, keyed };
        match self.form {
            Form::Fixed { record, .. } => Layout::Fixed { len: record },
            Form::Prefixed { .. } => prefixed(false),
            Form::Keyed => prefixed(true),
        }
    }

    pub(crate) fn keys(&self) -> Vec<ByteRangeKey> {
        match self.form {
            Form::Fixed { key, .. } | Form::Prefixed { key } => {
                vec![ByteRangeKey { start: 0, end: key, descending: false }]
            }
            Form::Keyed => Vec::new(),
        }
    }

    /// Refuses a batch with other columns than the schema has.
    pub(crate) fn check(&self, batch: &RecordBatch) -> Result<()> {
        let expected = self.schema.fields();
        let found = batch.schema_ref().fields();
        if expected.len() != found.len() {
            return Err(ColumnsError::ColumnCount { expected: expected.len(), found: found.len() });
        }
        for (at, (expected, found)) in expected.iter().zip(found).enumerate() {
            if expected.name() != found.name() {
                let expected = expected.name().clone();
                let found = found.name().clone();
                return Err(ColumnsError::ColumnName { position: at + 1, expected, found });
            }
            if !expected.data_type().equals_datatype(found.data_type()) {
                let column = expected.name().clone();
                let found = found.data_type().clone();
                return Err(ColumnsError::ColumnType {
                    column,
                    expected: expected.data_type().clone(),
                    found,
                });
            }
        }
        Ok(())
    }

    /// Rows of a batch, in plain types.
    pub(crate) fn columns(&self, batch: &RecordBatch, first: usize, rows: usize) -> Result<Vec<ArrayRef>> {
        let column =
            |(array, plain): (&ArrayRef, &Field)| to_plain(&array.slice(first, rows), plain.data_type());
        Ok(batch.columns().iter().zip(&self.plain).map(column).collect::<Result<_, _>>()?)
    }
}

/// A shared plan.
pub(crate) type SharedPlan = Arc<Plan>;
