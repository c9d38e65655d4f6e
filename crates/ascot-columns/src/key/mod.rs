//! The encoding of key columns as bytes that memcmp orders.
//!
//! ```text
//! key          [ part of the first column | part of the second | ... ]
//!
//! part         [ marker | value ]       marker: only if the column may be null
//!                                         nulls first   null 00   value 01
//!                                         nulls last    null 01   value 00
//!
//! unsigned     big-endian
//! signed       big-endian, the sign bit flipped         also dates, times, decimals, months
//! float        big-endian; positive: the sign bit flipped; negative: all bits flipped
//! boolean      00, 01
//! fixed bytes  themselves
//! text, bytes  00 -> 01 01, 01 -> 01 02, every other byte itself; the end is 00
//!              as the last, ascending part of a key: themselves, without an end
//! nested       as arrow-row encodes them
//!
//! descending   every byte of the value complemented, the marker not
//! ```
//!
//! A null of fixed width has a value of zeros, so that all keys have one length if all parts have; a null text has no
//! value. Dictionaries and run ends are encoded by their values.
//!
//! Invariants: no part is a prefix of another value's part, so that later parts never decide between different values.
//! All parts before the first nested one can be decoded; these columns are not stored in the row.

mod decode;
mod encode;
mod fixed;
mod text;

use std::sync::Arc;

use arrow_row::{RowConverter, SortField};
use arrow_schema::{DataType, Field, IntervalUnit, SchemaRef, SortOptions};

use crate::error::{ColumnsError, Result};
use crate::sort_column::{SortColumn, key_columns};
use crate::width::fixed_width;
use fixed::ValueOrder;

pub(crate) use decode::KeyScratch;

/// The encoding of the key of a row.
#[derive(Debug)]
pub(crate) struct KeyFormat {
    parts: Vec<KeyPart>,
    /// Parts from the first on that can be decoded.
    decodable: usize,
}

/// The encoding of one key column.
#[derive(Debug)]
struct KeyPart {
    /// Position in the schema.
    column: usize,
    name: String,
    /// The bytes before a null and before a value, if there may be nulls.
    marker: Option<Marker>,
    /// What the bytes of a value are combined with: all ones if the greatest come first.
    flip: u8,
    kind: KeyPartKind,
}

#[derive(Clone, Copy, Debug)]
struct Marker {
    null: u8,
    value: u8,
}

#[derive(Debug)]
enum KeyPartKind {
    Bool,
    Fixed {
        width: usize,
        order: ValueOrder,
    },
    /// `open`: without an end, as the last part.
    Bytes {
        open: bool,
    },
    Nested(Arc<RowConverter>),
}

impl KeyFormat {
    /// The encoding of `keys`, columns of `schema`, whose plain types are those of `plain`.
    pub(crate) fn new(schema: &SchemaRef, plain: &[Field], keys: &[SortColumn]) -> Result<KeyFormat> {
        let mut parts = Vec::new();
        for (column, key) in key_columns(schema, keys)? {
            let field = &plain[column];
            let data_type = schema.field(column).data_type().clone();
            if !has_order(&data_type) {
                return Err(ColumnsError::NoOrder { column: key.name.clone(), data_type });
            }
            // All values of a column of nulls are equal.
            if *field.data_type() != DataType::Null {
                parts.push(KeyPart::new(column, field, key)?);
            }
        }
        if let Some(KeyPart { kind: KeyPartKind::Bytes { open }, flip: 0, .. }) = parts.last_mut() {
            *open = true;
        }
        let nested = parts.iter().position(|part| matches!(part.kind, KeyPartKind::Nested(_)));
        Ok(KeyFormat { decodable: nested.unwrap_or(parts.len()), parts })
    }

    /// Whether the key holds all of a column's values.
    pub(crate) fn gives_back(&self, column: usize) -> bool {
        self.parts[..self.decodable].iter().any(|part| part.column == column)
    }

    /// Bytes of every key, if they have one length.
    pub(crate) fn fixed_len(&self) -> Option<usize> {
        self.parts.iter().map(KeyPart::fixed_len).sum()
    }
}

impl KeyPart {
    fn new(column: usize, field: &Field, key: &SortColumn) -> Result<KeyPart> {
        let marker = match (field.is_nullable(), key.nulls_first) {
            (false, _) => None,
            (true, true) => Some(Marker { null: 0, value: 1 }),
            (true, false) => Some(Marker { null: 1, value: 0 }),
        };
        let flip = if key.descending { 0xff } else { 0 };
        let part = |marker, flip, kind| KeyPart { column, name: key.name.clone(), marker, flip, kind };
        Ok(match field.data_type() {
            DataType::Boolean => part(marker, flip, KeyPartKind::Bool),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                part(marker, flip, KeyPartKind::Bytes { open: false })
            }
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
                part(marker, flip, KeyPartKind::Bytes { open: false })
            }
            other => match (fixed_width(other), ValueOrder::of(other)) {
                (Some(width), Some(order)) => part(marker, flip, KeyPartKind::Fixed { width, order }),
                _ => {
                    let options = SortOptions { descending: key.descending, nulls_first: key.nulls_first };
                    let converter =
                        RowConverter::new(vec![SortField::new_with_options(other.clone(), options)])?;
                    // The converter encodes nulls and direction.
                    part(None, 0, KeyPartKind::Nested(Arc::new(converter)))
                }
            },
        })
    }

    fn fixed_len(&self) -> Option<usize> {
        let marker = usize::from(self.marker.is_some());
        match self.kind {
            KeyPartKind::Bool => Some(marker + 1),
            KeyPartKind::Fixed { width, .. } => Some(marker + width),
            KeyPartKind::Bytes { .. } | KeyPartKind::Nested(_) => None,
        }
    }
}

/// Whether values of a type have an order. Unions have none. Nor have intervals of days or of months and days, because
/// a month has no fixed number of days, and a day no fixed number of hours.
fn has_order(data_type: &DataType) -> bool {
    use DataType as T;
    match data_type {
        T::Interval(unit) => *unit == IntervalUnit::YearMonth,
        T::Union(..) => false,
        T::Dictionary(_, values) => has_order(values),
        T::List(field) | T::LargeList(field) | T::ListView(field) | T::LargeListView(field) => {
            has_order(field.data_type())
        }
        T::FixedSizeList(field, _) | T::Map(field, _) | T::RunEndEncoded(_, field) => {
            has_order(field.data_type())
        }
        T::Struct(fields) => fields.iter().all(|field| has_order(field.data_type())),
        _ => true,
    }
}
