//! The encoding of the columns that the key cannot give back.
//!
//! ```text
//! row   [ nulls | fixed parts ............ | lengths ........ | bytes .............. ]
//!         1 bit   values of fixed width,     u32 each, of       of the columns of any
//!         each    zero if null               all but the last   length, in turn
//!
//! (u32 7, null, "ab", "xyz")  of  (u32, nullable i16, utf8, utf8)
//!       [ 01 | 07 00 00 00 | 00 00 | 02 00 00 00 | 61 62 | 78 79 7A ]
//! ```
//!
//! A bit exists for every column that may be null; it is 1 for a null. Values are little-endian, a boolean is one byte.
//! The last length follows from the length of the record.
//!
//! Nested columns use the same parts. The fields of a struct are columns of the row, and the struct itself has only its
//! bit. A list is a column of any length; its bytes are its elements, each encoded as a row of one column, one after
//! the other. If such a row has columns of any length, its own length precedes it (u32). Fields below a struct or
//! fixed-size list that may be null have a bit, too: below a null, Arrow allows nulls anywhere.
//!
//! Invariants: all lengths and offsets in a row are checked against the row's end before they are used, and memory is
//! allocated only for bytes that are there.

mod builder;
mod decode;
mod encode;
mod reuse;
mod span;
mod values;

pub(crate) use builder::ColumnBuilder;
pub(crate) use decode::{RowScratch, decode_rows};
pub(crate) use encode::fixed_values;
pub(crate) use span::{Malformed, Span, length_at};
pub(crate) use values::VarValues;

use arrow_schema::{DataType, Field};

use crate::width::{LENGTH, fixed_width};

/// The encoding of rows of some columns.
#[derive(Debug)]
pub(crate) struct RowFormat {
    pub(crate) columns: Vec<Column>,
    /// Bytes of the null bits.
    bitmap: usize,
    /// Bytes of the fixed parts.
    fixed: usize,
    /// Columns of any length.
    pub(crate) vars: usize,
}

/// A column, or a field of a struct.
#[derive(Debug)]
pub(crate) struct Column {
    name: String,
    pub(crate) data_type: DataType,
    /// The bit that marks nulls.
    bit: Option<usize>,
    kind: Kind,
}

/// The parts of a column in a row.
#[derive(Debug)]
enum Kind {
    /// Nothing.
    Null,
    /// A byte in the fixed parts.
    Bool { at: usize },
    /// Some bytes in the fixed parts.
    Fixed { at: usize, width: usize },
    /// The bytes of a string or binary value.
    Bytes { var: usize },
    /// The elements of a list.
    List { var: usize, child: Box<RowFormat> },
    /// The elements of a list of fixed size.
    FixedList { var: usize, size: usize, child: Box<RowFormat> },
    /// The parts of the fields.
    Struct(Vec<Column>),
}

impl RowFormat {
    /// The encoding of rows of `fields`, which have plain types.
    pub(crate) fn new<'f>(fields: impl IntoIterator<Item = &'f Field>) -> RowFormat {
        RowFormat::below(fields, false)
    }

    /// The encoding of rows below a parent that may be null.
    fn below<'f>(fields: impl IntoIterator<Item = &'f Field>, null_parent: bool) -> RowFormat {
        let mut counts = Counts::default();
        let columns = fields.into_iter().map(|field| counts.column(field, null_parent)).collect();
        RowFormat { columns, bitmap: counts.bits.div_ceil(8), fixed: counts.fixed, vars: counts.vars }
    }

    /// Bytes before those of the columns of any length.
    pub(crate) fn head(&self) -> usize {
        self.length_at(self.vars.saturating_sub(1))
    }

    /// Bytes of every row, if they are the same and at least one.
    fn fixed_len(&self) -> Option<usize> {
        Some(self.head()).filter(|&head| self.vars == 0 && head > 0)
    }

    /// Position of the length of a column of any length.
    fn length_at(&self, var: usize) -> usize {
        self.bitmap + self.fixed + LENGTH * var
    }

    /// Whether the length of a column of any length is stored.
    fn has_length(&self, var: usize) -> bool {
        var + 1 < self.vars
    }
}

/// Parts assigned so far.
#[derive(Default)]
struct Counts {
    bits: usize,
    fixed: usize,
    vars: usize,
}

impl Counts {
    fn column(&mut self, field: &Field, null_parent: bool) -> Column {
        let data_type = field.data_type();
        let nullable = field.is_nullable() || null_parent;
        let bit = (nullable && *data_type != DataType::Null).then(|| next(&mut self.bits, 1));
        let child = |field: &Field, null_parent| Box::new(RowFormat::below([field], null_parent));
        let kind = match data_type {
            DataType::Null => Kind::Null,
            DataType::Boolean => Kind::Bool { at: next(&mut self.fixed, 1) },
            DataType::Struct(fields) => {
                Kind::Struct(fields.iter().map(|field| self.column(field, nullable)).collect())
            }
            DataType::List(field) | DataType::LargeList(field) => {
                Kind::List { var: next(&mut self.vars, 1), child: child(field, false) }
            }
            DataType::FixedSizeList(field, size) => Kind::FixedList {
                var: next(&mut self.vars, 1),
                size: usize::try_from(*size).unwrap_or(0),
                child: child(field, nullable),
            },
            other => match fixed_width(other) {
                Some(width) => Kind::Fixed { at: next(&mut self.fixed, width), width },
                None => Kind::Bytes { var: next(&mut self.vars, 1) },
            },
        };
        Column { name: field.name().clone(), data_type: data_type.clone(), bit, kind }
    }
}

/// The counter's value before it grows by `step`.
fn next(counter: &mut usize, step: usize) -> usize {
    let before = *counter;
    *counter += step;
    before
}
