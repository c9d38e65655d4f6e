//! Keys that are columns of a CSV file.
//!
//! A description is a list of columns by name or number, each with its direction, type and position of nulls:
//!
//! ```text
//! tenant:desc,#3:number:nulls-first     -ts (a leading minus: descending)     "a, b":date
//! ```
//!
//! An empty field, quoted or not, a field beyond the end of the row and content declared as null (`--null`) are null.
//! By default nulls come last, in either direction. In a column of numbers or dates, a value that is neither null nor
//! of the type sorts after all others, as text; so a type taken from a sample cannot lose or mix up later values.
//!
//! ```text
//! 00 or FF FF null   |   a text, FF as its first byte written FF FE   |   17..E9 number   40 date   F0 text
//! ```
//!
//! A descending column is the complement of these bytes.

use super::bytes::{Ending, append_escaped, append_text, complement_from};
use super::csv_row::{Field, Row};
use super::date::Moment;
use super::date_format::DateFormat;
use super::numeric::{Number, NumberMarks, TEXT};
use serde::{Deserialize, Serialize};
use std::cell::Cell;

/// How the values of a column are ordered.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CsvType {
    /// As bytes.
    Text,
    /// As decimal numbers of any length, with an optional exponent; infinities and NaNs by name.
    Number,
    /// As such numbers with other marks.
    MarkedNumber(NumberMarks),
    /// As ISO 8601 dates and times, to the nanosecond; UTC if there is no zone.
    Date,
    /// As dates and times in a described format.
    FormattedDate(DateFormat),
}

/// The name of the type in a key.
impl std::fmt::Display for CsvType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CsvType::Text => f.write_str("text"),
            CsvType::Number => f.write_str("number"),
            CsvType::MarkedNumber(marks) => write!(f, "number({marks})"),
            CsvType::Date => f.write_str("date"),
            CsvType::FormattedDate(format) => write!(f, "date({format})"),
        }
    }
}

impl CsvType {
    /// Whether every content has this type.
    #[must_use]
    pub fn takes_all(&self) -> bool {
        *self == CsvType::Text
    }

    /// Whether `content` has this type.
    pub(super) fn takes(&self, content: &[u8]) -> bool {
        match self {
            CsvType::Text => true,
            CsvType::Number => Number::parse(content).is_some(),
            CsvType::MarkedNumber(marks) => marks.append(content, &mut Vec::new()),
            CsvType::Date => Moment::parse(content).is_some(),
            CsvType::FormattedDate(format) => format.parse(content).is_some(),
        }
    }
}

thread_local! {
    /// See [`misfits_written`].
    static MISFITS: Cell<u64> = const { Cell::new(0) };
}

/// The number of keys this thread has written for values that are not of their column's type, counted once per write.
/// Keys are written deep inside sorts: a caller that compares this number before and after a sort knows whether its
/// records must be searched for such values, at no cost if there are none.
#[must_use]
pub fn misfits_written() -> u64 {
    MISFITS.get()
}

/// The type that all of `sample` have: numbers, else dates, else text. Empty values do not count; if all are empty,
/// the type is text.
pub fn infer_type<'v>(sample: impl IntoIterator<Item = &'v [u8]>) -> CsvType {
    let mut any = false;
    let mut numbers = true;
    let mut dates = true;
    for value in sample.into_iter().filter(|value| !value.is_empty()) {
        any = true;
        numbers = numbers && Number::parse(value).is_some();
        dates = dates && Moment::parse(value).is_some();
        if !numbers && !dates {
            break;
        }
    }
    match (any && numbers, any && dates) {
        (true, _) => CsvType::Number,
        (_, true) => CsvType::Date,
        _ => CsvType::Text,
    }
}

/// One column, compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CsvKey {
    /// From 0.
    pub(super) column: usize,
    pub(super) kind: CsvType,
    pub(super) descending: bool,
    pub(super) nulls_first: bool,
    pub(super) ending: Ending,
    /// Content that counts as null, besides empty content.
    pub(super) nulls: Vec<Vec<u8>>,
}

impl CsvKey {
    fn append(&self, field: Option<Field<'_>>, out: &mut Vec<u8>) {
        let base = out.len();
        // The complement of a descending column would move nulls to the other end.
        let nulls_low = self.nulls_first != self.descending;
        match field {
            Some(field) if !self.is_null(&field) => self.append_value(&field, nulls_low, out),
            _ if nulls_low => out.push(0),
            _ => out.extend_from_slice(&[0xFF, 0xFF]),
        }
        if self.descending {
            complement_from(out, base);
        }
    }

    fn append_value(&self, field: &Field<'_>, nulls_low: bool, out: &mut Vec<u8>) {
        match (&self.kind, field.contiguous()) {
            (CsvType::Text, Some(text)) if !nulls_low && text.first() == Some(&0xFF) => {
                out.extend_from_slice(&[0xFF, 0xFE]);
                append_text(text.get(1..).unwrap_or_default(), self.ending, out);
            }
            (CsvType::Text, Some(text)) if self.ending == Ending::Open && !nulls_low => {
                out.extend_from_slice(text)
            }
            (CsvType::Text, Some(text)) => append_text(text, Ending::Closed, out),
            (CsvType::Text, None) => self.append_pieces(field, nulls_low, out),
            (CsvType::Number, Some(text)) => match Number::parse(text) {
                Some(number) => number.append(out),
                None => append_misfit(field, out),
            },
            (CsvType::Date, Some(text)) => match Moment::parse(text) {
                Some(moment) => moment.append(out),
                None => append_misfit(field, out),
            },
            (_, Some(text)) => self.append_own_form(field, text, out),
            // Content that contains quotes is neither number nor date.
            (_, None) => append_misfit(field, out),
        }
    }

    /// Separate, since keys of the common types are written faster without this code between them.
    #[inline(never)]
    fn append_own_form(&self, field: &Field<'_>, text: &[u8], out: &mut Vec<u8>) {
        let fits = match &self.kind {
            CsvType::MarkedNumber(marks) => marks.append(text, out),
            CsvType::FormattedDate(format) => format.parse(text).is_some_and(|moment| {
                moment.append(out);
                true
            }),
            CsvType::Text | CsvType::Number | CsvType::Date => false,
        };
        if !fits {
            append_misfit(field, out);
        }
    }

    #[inline]
    fn is_null(&self, field: &Field<'_>) -> bool {
        is_empty(field) || (!self.nulls.is_empty() && self.is_spelled_null(field))
    }

    /// Whether the content is one of the declared nulls.
    #[inline(never)]
    fn is_spelled_null(&self, field: &Field<'_>) -> bool {
        match field.contiguous() {
            Some(text) => self.nulls.iter().any(|null| null == text),
            None => self.nulls.contains(&field.content()),
        }
    }

    /// Whether `field` is neither null nor of the column's type.
    fn is_misfit(&self, field: &Field<'_>) -> bool {
        !self.is_null(field)
            && !field.contiguous().map_or(self.kind.takes_all(), |text| self.kind.takes(text))
    }

    /// Appends content that consists of several pieces of the row.
    fn append_pieces(&self, field: &Field<'_>, nulls_low: bool, out: &mut Vec<u8>) {
        let raw = self.ending == Ending::Open && !nulls_low;
        let mut begun = nulls_low;
        field.pieces(|piece| {
            let mut piece = piece;
            if !begun && let Some((first, rest)) = piece.split_first() {
                begun = true;
                if *first == 0xFF {
                    out.extend_from_slice(&[0xFF, 0xFE]);
                    piece = rest;
                }
            }
            match raw {
                true => out.extend_from_slice(piece),
                false => append_escaped(piece, out),
            }
        });
        if !raw {
            out.push(0);
        }
    }
}

/// Appends a value that does not have its column's type.
#[cold]
fn append_misfit(field: &Field<'_>, out: &mut Vec<u8>) {
    MISFITS.set(MISFITS.get().wrapping_add(1));
    out.push(TEXT);
    field.pieces(|piece| append_escaped(piece, out));
    out.push(0);
}

#[inline]
fn is_empty(field: &Field<'_>) -> bool {
    match field.contiguous() {
        Some(text) => text.is_empty(),
        None => {
            let mut empty = true;
            field.pieces(|piece| empty &= piece.is_empty());
            empty
        }
    }
}

/// Appends the keys of a row. Columns in ascending order need one pass over it.
pub(super) fn append_row(body: &[u8], separator: u8, quote: u8, keys: &[CsvKey], out: &mut Vec<u8>) {
    let mut row = Row::new(body, separator, quote);
    let mut next = 0;
    for key in keys {
        if key.column < next {
            row = Row::new(body, separator, quote);
            next = 0;
        }
        key.append(row.nth(key.column - next), out);
        next = key.column + 1;
    }
}

/// Passes on the values of a row that do not have their column's type, each with the number of its key.
pub(super) fn row_misfits(
    body: &[u8],
    separator: u8,
    quote: u8,
    keys: &[CsvKey],
    note: &mut dyn FnMut(usize, &[u8]),
) {
    for (number, key) in keys.iter().enumerate().filter(|(_, key)| !key.kind.takes_all()) {
        let field = Row::new(body, separator, quote).nth(key.column);
        if let Some(field) = field.filter(|field| key.is_misfit(field)) {
            note(number, &field.content());
        }
    }
}

#[cfg(test)]
#[path = "csv_tests.rs"]
mod tests;
