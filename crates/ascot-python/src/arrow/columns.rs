//! The columns of records and of keys, as the package describes them.

use arrow_schema::DataType;
use ascot_columns::files::{
    CsvColumns, CsvName, FileColumns, FileDecoder, FixedField, FixedFields, TextType,
};
use ascot_columns::{BatchLimits, SortColumn};
use ascot_record::keys::{CsvColumn, CsvType};
use ascot_record::layout::{CsvFraming, Endian, Framing, Layout, LineFraming};
use ascot_sort::Keys;
use pyo3::prelude::*;

use crate::errors::{Failure, Result};
use crate::request::unknown;

/// The Arrow side of a job.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct ArrowOptions {
    /// The key columns: name, whether descending, whether nulls come first.
    keys: Vec<(String, bool, bool)>,
    /// The fields of records of fixed length: name, offset and type.
    fields: Option<Vec<(String, usize, String)>>,
    /// Whether text is read as bytes.
    binary: bool,
}

impl ArrowOptions {
    /// The key columns.
    pub fn sort_columns(&self) -> Vec<SortColumn> {
        let column = |(name, descending, nulls_first): &(String, bool, bool)| SortColumn {
            name: name.clone(),
            descending: *descending,
            nulls_first: *nulls_first,
        };
        self.keys.iter().map(column).collect()
    }

    /// The fields of records of `layout`, if they are named.
    ///
    /// # Errors
    /// A field of an unknown type, or beyond the record.
    pub fn fields(&self, layout: Layout) -> Result<Option<FixedFields>> {
        let (Some(fields), Layout::Fixed { len }) = (&self.fields, layout) else { return Ok(None) };
        let field = |(name, offset, text): &(String, usize, String)| {
            let (data_type, endian) = field_type(text)?;
            Ok(FixedField { name: name.clone(), offset: *offset, data_type, endian })
        };
        let fields = fields.iter().map(field).collect::<Result<_>>()?;
        Ok(Some(FixedFields::new(len, fields)?))
    }

    fn text(&self) -> TextType {
        if self.binary { TextType::Binary } else { TextType::Utf8 }
    }

    /// The columns of a file's records. `fields` are those of [`fields`](Self::fields); `first` is the first record, of
    /// which only CSV needs the fields.
    ///
    /// # Errors
    /// A key that names no column.
    fn columns(
        &self,
        layout: Layout,
        fields: Option<FixedFields>,
        first: FirstRow<'_>,
    ) -> Result<FileColumns> {
        Ok(match (fields, layout) {
            (Some(fields), _) => FileColumns::Fields(fields),
            (None, Layout::Csv { separator, quote }) => {
                let FirstRow { bytes, header, keys } = first;
                let framing = CsvFraming { separator, quote };
                let numbers = number_columns(keys);
                let nulls = nulls(keys);
                FileColumns::Csv(CsvColumns::new(framing, bytes, header, self.text(), &numbers, nulls)?)
            }
            (None, Layout::Prefixed { .. }) => FileColumns::One { layout, text: TextType::Binary },
            (None, _) => FileColumns::One { layout, text: self.text() },
        })
    }
}

/// The decoder of records of `layout`, whose `first` record is a header if `header` says so. The header of lines is
/// the name of their column, as the header of CSV has the names of its columns.
///
/// # Errors
/// A key that names no column; a header of lines that is not UTF-8.
pub fn decoder_of(
    arrow: &ArrowOptions,
    layout: Layout,
    first: FirstRow<'_>,
    limits: BatchLimits,
) -> Result<FileDecoder> {
    let name = match layout {
        Layout::Lines { delimiter } if first.header => {
            let line = first.bytes.strip_suffix(&[delimiter]).unwrap_or(first.bytes);
            let name = std::str::from_utf8(line).map_err(|_| {
                Failure::Batch(
                    "the header is not UTF-8, and is the name of the column\n  leave out header".into(),
                )
            })?;
            (!name.is_empty()).then(|| name.to_owned())
        }
        _ => None,
    };
    let decoder = FileDecoder::new(arrow.columns(layout, arrow.fields(layout)?, first)?, limits)?;
    Ok(match name {
        Some(name) => decoder.with_column_name(&name),
        None => decoder,
    })
}

/// The first row of CSV, or of lines with a header.
pub struct FirstRow<'r> {
    /// Its bytes.
    pub bytes: &'r [u8],
    /// It is a header.
    pub header: bool,
    /// The keys, which may declare types and spellings of null.
    pub keys: &'r Keys,
}

/// The first record of `bytes`, all of them if it does not end in them.
pub fn first_record(layout: Layout, bytes: &[u8]) -> &[u8] {
    let end = match layout {
        Layout::Csv { separator, quote } => CsvFraming { separator, quote }.end(bytes, 0),
        Layout::Lines { delimiter } => LineFraming(delimiter).end(bytes, 0),
        _ => Some(0),
    };
    &bytes[..end.unwrap_or(bytes.len())]
}

/// Spellings of null.
fn nulls(keys: &Keys) -> &[String] {
    match keys {
        Keys::Columns(columns) => columns.first().map_or(&[], |key| &key.nulls),
        _ => &[],
    }
}

/// The type of a field: `u8` to `u64`, `i8` to `i64`, `f32`, `f64`, with `-be` for big endian, or `bytes:N`.
fn field_type(text: &str) -> Result<(DataType, Endian)> {
    if let Some(width) = text.strip_prefix("bytes:").and_then(|width| width.parse().ok()) {
        return Ok((DataType::FixedSizeBinary(width), Endian::Little));
    }
    let (name, endian) = match text.strip_suffix("-be") {
        Some(name) => (name, Endian::Big),
        None => (text.strip_suffix("-le").unwrap_or(text), Endian::Little),
    };
    let data_type = match name {
        "u8" => DataType::UInt8,
        "u16" => DataType::UInt16,
        "u32" => DataType::UInt32,
        "u64" => DataType::UInt64,
        "i8" => DataType::Int8,
        "i16" => DataType::Int16,
        "i32" => DataType::Int32,
        "i64" => DataType::Int64,
        "f32" => DataType::Float32,
        "f64" => DataType::Float64,
        _ => {
            return Err(unknown(
                "the type of a field",
                text,
                "u8, ... u64, i8, ... i64, f32, f64, -be, bytes:N",
            ));
        }
    };
    Ok((data_type, endian))
}

/// The columns of CSV that a key declares to be numbers.
fn number_columns(keys: &Keys) -> Vec<CsvName> {
    let Keys::Columns(columns) = keys else { return Vec::new() };
    let numbers = columns.iter().filter(|key| key.kind == Some(CsvType::Number));
    numbers
        .map(|key| match &key.column {
            CsvColumn::Name(name) => CsvName::Name(name.clone()),
            CsvColumn::Number(number) => CsvName::Number(*number),
        })
        .collect()
}
