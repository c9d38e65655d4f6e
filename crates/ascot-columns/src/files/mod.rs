//! Files of Ascot's layouts as Arrow arrays, and arrays as the bytes of such files.
//!
//! | layout | array |
//! | --- | --- |
//! | `u32` ... `f64` | the array of that type; without a copy if little-endian and aligned |
//! | `fixed:N` | fixed-size binary of N bytes, without a copy; or a column for each of its [fields](FixedFields) |
//! | `lines`, `csv`, `tsv` | UTF-8 or binary, without the terminators |
//! | `prefixed`, `keyed` | UTF-8 or binary: what follows the length |
//!
//! A [`FileDecoder`] makes batches of bytes that arrive in parts, and of CSV its [columns](CsvColumns). Columns become
//! [rows of CSV](CsvRows).
//!
//! The bytes hold whole records; a last line may lack its terminator. Answers of an index become a
//! [batch](Answers) of keys, epochs and values.

mod answers;
mod csv;
mod csv_rows;
mod decoder;
mod fields;
mod numbers;
mod text;

pub use answers::Answers;
pub use csv::{CsvColumns, CsvName};
pub use csv_rows::CsvRows;
pub use decoder::{FileColumns, FileDecoder};
pub use fields::{FixedField, FixedFields};
pub use text::TextType;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeBinaryArray};
use arrow_buffer::Buffer;
use arrow_schema::DataType;
use ascot_record::layout::Layout;

use crate::error::{ColumnsError, Result};

/// The records of `bytes` as an array. `text` is the type of lines, rows and length-prefixed records.
///
/// # Errors
/// A last record that is cut short; text that is not UTF-8 where `text` demands it, or too long for 32-bit offsets.
pub fn to_array(layout: Layout, bytes: &Buffer, text: TextType) -> Result<ArrayRef> {
    match layout {
        Layout::Number(format) => numbers::to_array(format, bytes),
        Layout::Fixed { len } => {
            whole_records(layout, len, bytes.len())?;
            let len = i32::try_from(len).map_err(|_| ColumnsError::FileBytes {
                reason: format!("records of {len} bytes are too long for Arrow, which allows {}", i32::MAX),
            })?;
            Ok(Arc::new(FixedSizeBinaryArray::try_new(len, bytes.clone(), None)?))
        }
        Layout::Lines { .. } | Layout::Csv { .. } | Layout::Prefixed { .. } => {
            text::to_array(layout, bytes, text)
        }
    }
}

/// Appends the values of `array` to `out` as records of `layout`.
///
/// # Errors
/// An array of another type than the layout has, with nulls, or with values that the layout cannot hold, such as a
/// line break within a line. Then `out` is as it was before.
pub fn to_bytes(layout: Layout, array: &dyn Array, out: &mut Vec<u8>) -> Result<()> {
    let nulls = array.logical_nulls();
    if let Some(row) = nulls.and_then(|nulls| (0..nulls.len()).find(|row| nulls.is_null(*row))) {
        let reason = format!("is null, which format {layout} cannot hold\n  fill or drop the nulls");
        return Err(ColumnsError::Value { record: row as u64 + 1, reason });
    }
    match layout {
        Layout::Number(format) => numbers::to_bytes(format, array, out),
        Layout::Fixed { len } => match array.data_type() {
            DataType::FixedSizeBinary(width) if usize::try_from(*width) == Ok(len) => {
                out.extend_from_slice(&crate::row::fixed_values(array.as_fixed_size_binary(), len));
                Ok(())
            }
            found => Err(wrong_type(layout, format!("fixed_size_binary[{len}]"), found)),
        },
        Layout::Lines { .. } | Layout::Csv { .. } | Layout::Prefixed { .. } => {
            text::to_bytes(layout, array, out)
        }
    }
}

/// Refuses bytes that end within a record.
fn whole_records(layout: Layout, len: usize, bytes: usize) -> Result<()> {
    if len > 0 && bytes.is_multiple_of(len) {
        return Ok(());
    }
    Err(ColumnsError::FileBytes {
        reason: format!(
            "{bytes} bytes are no whole number of records of format {layout}: the last one is cut short"
        ),
    })
}

fn wrong_type(layout: Layout, expected: String, found: &DataType) -> ColumnsError {
    ColumnsError::FileType { layout: layout.to_string(), expected, found: found.clone() }
}
