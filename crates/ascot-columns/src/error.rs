//! The errors of encoding and decoding, with messages that a user can act on.

use arrow_schema::{ArrowError, DataType};

use crate::type_name::type_name;

/// The reason why batches could not be encoded or records not decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ColumnsError {
    /// A key names a column that the schema lacks.
    #[error("there is no column '{name}'\n  the columns are: {}", known.join(", "))]
    UnknownColumn {
        /// The name.
        name: String,
        /// The names of the schema.
        known: Vec<String>,
    },
    /// A key names a column of which there are several.
    #[error("several columns are named '{name}'\n  rename them, so that the key is unambiguous")]
    AmbiguousColumn {
        /// The name.
        name: String,
    },
    /// No key column is given.
    #[error("a sort needs a key\n  name at least one column")]
    NoKey,
    /// The values of a key column have no order.
    #[error("column '{column}' cannot be a key: values of type {} have no order", type_name(data_type))]
    NoOrder {
        /// The column.
        column: String,
        /// Its type.
        data_type: DataType,
    },
    /// A batch has another number of columns than the schema.
    #[error("a batch has {found} columns, the schema has {expected}")]
    ColumnCount {
        /// Columns of the schema.
        expected: usize,
        /// Columns of the batch.
        found: usize,
    },
    /// A column of a batch has another name than in the schema.
    #[error("column {position} of a batch is named '{found}', in the schema '{expected}'")]
    ColumnName {
        /// Position, from 1.
        position: usize,
        /// The name in the schema.
        expected: String,
        /// The name in the batch.
        found: String,
    },
    /// A column of a batch has another type than in the schema.
    #[error(
        "column '{column}' of a batch has type {}, in the schema {}",
        type_name(found),
        type_name(expected)
    )]
    ColumnType {
        /// The column.
        column: String,
        /// The type in the schema.
        expected: DataType,
        /// The type in the batch.
        found: DataType,
    },
    /// A column that the schema declares free of nulls has one.
    #[error("column '{column}' has a null, which the schema excludes\n  declare the column nullable")]
    UnexpectedNull {
        /// The column; within a nested type, the field.
        column: String,
    },
    /// A record of a file is longer than memory allows.
    #[error("record {record} is longer than {bytes} bytes, for which there is memory\n  give more memory")]
    LongRecord {
        /// The bytes searched without finding its end.
        bytes: usize,
        /// Its number, from 1.
        record: u64,
    },
    /// A row is longer than a record can be.
    #[error("row {row} of a batch takes {bytes} bytes; a record has at most {}", u32::MAX)]
    RowTooLong {
        /// The row in its batch, from 0.
        row: usize,
        /// Bytes of its record.
        bytes: usize,
    },
    /// A record is malformed.
    #[error("the record at byte {offset} is damaged: {reason}")]
    Corrupt {
        /// Offset of the record in the bytes that the decoder has been given.
        offset: u64,
        /// The violation.
        reason: String,
    },
    /// Text of a file is not UTF-8.
    #[error("record {record} is not UTF-8\n  read the file as binary (layout=ascot.Lines(binary=True))")]
    NotUtf8 {
        /// The number of the record, from 1.
        record: u64,
    },
    /// The array does not have the type of a file's layout.
    #[error(
        "a column of type {} cannot become a file of format {layout}, which takes {expected}\n  cast the column to \
         that type",
        type_name(found)
    )]
    FileType {
        /// The layout.
        layout: String,
        /// The types that fit.
        expected: String,
        /// The type of the array.
        found: DataType,
    },
    /// A value does not fit the layout.
    #[error("record {record} {reason}")]
    Value {
        /// The number of its record, from 1, in the arrays that were given.
        record: u64,
        /// The violation and a remedy.
        reason: String,
    },
    /// A file's bytes or an array's values do not fit the layout.
    #[error("{reason}")]
    FileBytes {
        /// The violation and a remedy.
        reason: String,
    },
    /// The Arrow library refuses an operation.
    #[error("Arrow: {0}")]
    Arrow(#[from] ArrowError),
}

impl ColumnsError {
    /// The error if `records` came before the arrays that were given.
    pub fn after(self, records: u64) -> ColumnsError {
        match self {
            ColumnsError::Value { record, reason } => {
                ColumnsError::Value { record: record + records, reason }
            }
            other => other,
        }
    }
}

/// What the functions of this crate return.
pub(crate) type Result<T, E = ColumnsError> = std::result::Result<T, E>;
