//! Finds a key in a line, and its bytes.
//!
//! ```text
//! without -t:  "  alice  42 x"      with -t,:  "alice,,x"
//!               1111111222233                  11111 (2 is empty) 3
//! ```
//!
//! Without a separator a field begins with the blanks before it. Positions beyond the line mean its end; an end
//! before the start makes an empty key.

use super::bytes::{Ending, Ignore, append_filtered, complement_from, is_blank, skip_blanks};
use super::random::Salt;
use super::{general, human, month, numeric, random, version};
use memchr::{memchr, memchr_iter};

/// The order of the bytes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineOrder {
    Text,
    Numeric,
    General,
    Human,
    Month,
    Random { salt: Salt },
    Version,
}

/// Start or end of a key; the field counts from 0. At the start the character counts from 0, too; at the end it is
/// the number of the field's characters that belong to the key, 0 for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LinePosition {
    pub(super) field: usize,
    pub(super) char: usize,
    pub(super) skip_blanks: bool,
}

/// One key of lines, compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LineKey {
    pub(super) start: LinePosition,
    pub(super) end: Option<LinePosition>,
    pub(super) order: LineOrder,
    pub(super) fold: bool,
    pub(super) ignore: Ignore,
    pub(super) reverse: bool,
    pub(super) ending: Ending,
}

impl LineKey {
    /// Appends the key of the cursor's line.
    #[inline]
    pub(super) fn append(&self, cursor: &mut Cursor<'_>, out: &mut Vec<u8>) {
        let base = out.len();
        let text = self.slice(cursor);
        match self.order {
            LineOrder::Text => append_filtered(text, self.ignore, self.fold, self.ending, out),
            LineOrder::Numeric => numeric::append_numeric(text, out),
            LineOrder::General => general::append_general(text, out),
            LineOrder::Human => human::append_human(text, self.fold, out),
            LineOrder::Month => out.push(month::month(text)),
            LineOrder::Random { salt } => {
                self.with_filtered(text, |text| random::append_random(text, salt, self.ending, out));
            }
            LineOrder::Version => self.with_filtered(text, |text| version::append_version(text, out)),
        }
        if self.reverse {
            complement_from(out, base);
        }
    }

    /// Passes `text` to `append`, without the bytes that the key ignores and in capitals if the key folds case.
    fn with_filtered(&self, text: &[u8], append: impl FnOnce(&[u8])) {
        if self.ignore == Ignore::Nothing && !self.fold {
            return append(text);
        }
        let mut filtered = Vec::with_capacity(text.len());
        append_filtered(text, self.ignore, self.fold, Ending::Open, &mut filtered);
        append(&filtered);
    }

    /// The bytes of the key in the cursor's line.
    #[inline]
    fn slice<'r>(&self, cursor: &mut Cursor<'r>) -> &'r [u8] {
        let separator = cursor.separator;
        let from_field = cursor.seek(self.start.field);
        let mut from = from_field;
        if self.start.skip_blanks {
            from = skip_blanks(from);
        }
        from = from.get(self.start.char..).unwrap_or_default();
        let Some(end) = self.end else { return from };
        // Every slice is a tail of the line, so lengths serve as positions.
        let behind = match end.field.checked_sub(self.start.field) {
            Some(fields) => behind_end(from_field, fields, end, separator),
            None => behind_end(cursor.body, end.field, end, separator),
        };
        from.get(..from.len().saturating_sub(behind)).unwrap_or_default()
    }
}

/// A line and the field last found; the search for a later field continues from there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'r> {
    body: &'r [u8],
    separator: Option<u8>,
    field: usize,
    tail: &'r [u8],
}

impl<'r> Cursor<'r> {
    #[inline]
    pub(super) fn new(body: &'r [u8], separator: Option<u8>) -> Cursor<'r> {
        Cursor { body, separator, field: 0, tail: body }
    }

    /// The line from the start of `field` on.
    #[inline]
    fn seek(&mut self, field: usize) -> &'r [u8] {
        self.tail = match field.checked_sub(self.field) {
            Some(fields) => skip_fields(self.tail, fields, self.separator),
            None => skip_fields(self.body, field, self.separator),
        };
        self.field = field;
        self.tail
    }
}

/// The number of bytes of `text` after the end of a key, `fields` further on.
#[inline]
fn behind_end(text: &[u8], fields: usize, end: LinePosition, separator: Option<u8>) -> usize {
    let field = skip_fields(text, fields, separator);
    if end.char == 0 {
        return match separator {
            Some(separator) => memchr(separator, field).map_or(0, |at| field.len() - at),
            None => skip_word(field).len(),
        };
    }
    let field = if end.skip_blanks { skip_blanks(field) } else { field };
    field.len().saturating_sub(end.char)
}

/// `text` after its first `fields` fields.
#[inline]
fn skip_fields(text: &[u8], fields: usize, separator: Option<u8>) -> &[u8] {
    let Some(last) = fields.checked_sub(1) else { return text };
    match separator {
        Some(separator) => match memchr_iter(separator, text).nth(last) {
            Some(at) => text.get(at + 1..).unwrap_or_default(),
            None => text.get(text.len()..).unwrap_or_default(),
        },
        None => {
            let mut rest = text;
            for _ in 0..fields {
                if rest.is_empty() {
                    break;
                }
                rest = skip_word(rest);
            }
            rest
        }
    }
}

/// `text` after its leading blanks and the characters up to the next blank.
#[inline]
fn skip_word(text: &[u8]) -> &[u8] {
    let mut rest = skip_blanks(text);
    // Words are short: eight bytes at a time, without the cost of a call.
    while let Some((eight, behind)) = rest.split_first_chunk::<8>() {
        let blanks = blanks_of(u64::from_le_bytes(*eight));
        if blanks != 0 {
            return rest.get(blanks.trailing_zeros() as usize / 8..).unwrap_or_default();
        }
        rest = behind;
    }
    let len = rest.iter().position(|&byte| is_blank(byte)).unwrap_or(rest.len());
    rest.get(len..).unwrap_or_default()
}

/// Bit 80 of each byte of `eight` that is a blank; above the lowest such bit there may be false ones.
#[inline]
fn blanks_of(eight: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & (ONES << 7);
    let equal = |byte: u8| zeros(eight ^ (ONES * u64::from(byte)));
    equal(b' ') | equal(b'\t') | equal(b'\n')
}
