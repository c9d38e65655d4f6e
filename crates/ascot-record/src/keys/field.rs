//! Where a key lies in a line, and its bytes there.
//!
//! ```text
//! without -t:  "  alice  42 x"      with -t,:  "alice,,x"
//!               1111111222233                  11111 (2 is empty) 3
//! ```
//!
//! Without a separator a field begins with the blanks before it. Positions beyond the line are its end; an end
//! before the start makes an empty key.

use super::bytes::{Ending, Ignore, append_filtered, complement_from, is_blank, skip_blanks};
use super::{general, human, month, numeric, version};
use memchr::{memchr, memchr_iter, memchr3};
use serde::{Deserialize, Serialize};

/// How the bytes of a key are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LineOrder {
    Text,
    Numeric,
    General,
    Human,
    Month,
    Version,
}

/// Start of a key; field and character count from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LineStart {
    pub(super) field: usize,
    pub(super) char: usize,
    pub(super) skip_blanks: bool,
}

/// End of a key; the field counts from 0, the characters are how many of it belong to the key, 0 for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LineEnd {
    pub(super) field: usize,
    pub(super) char: usize,
    pub(super) skip_blanks: bool,
}

/// One key of lines, ready to be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LineKey {
    pub(super) start: LineStart,
    pub(super) end: Option<LineEnd>,
    pub(super) order: LineOrder,
    pub(super) fold: bool,
    pub(super) ignore: Ignore,
    pub(super) reverse: bool,
    pub(super) ending: Ending,
}

impl LineKey {
    /// Whether the key is the bytes of the line where it lies.
    pub(super) fn is_slice(&self) -> bool {
        self.order == LineOrder::Text
            && self.ending == Ending::Open
            && self.ignore == Ignore::Nothing
            && !self.fold
            && !self.reverse
    }

    /// Appends the key of `body`.
    #[inline]
    pub(super) fn append(&self, body: &[u8], separator: Option<u8>, out: &mut Vec<u8>) {
        let base = out.len();
        let text = self.slice(body, separator);
        match self.order {
            LineOrder::Text => append_filtered(text, self.ignore, self.fold, self.ending, out),
            LineOrder::Numeric => numeric::append_numeric(text, out),
            LineOrder::General => general::append_general(text, out),
            LineOrder::Human => human::append_human(text, self.fold, out),
            LineOrder::Month => out.push(month::month(text)),
            LineOrder::Version => self.append_version(text, out),
        }
        if self.reverse {
            complement_from(out, base);
        }
    }

    fn append_version(&self, text: &[u8], out: &mut Vec<u8>) {
        if self.ignore == Ignore::Nothing && !self.fold {
            return version::append_version(text, out);
        }
        let mut filtered = Vec::with_capacity(text.len());
        append_filtered(text, self.ignore, self.fold, Ending::Open, &mut filtered);
        version::append_version(&filtered, out);
    }

    /// The bytes of `body` the key lies in.
    #[inline]
    pub(super) fn slice<'r>(&self, body: &'r [u8], separator: Option<u8>) -> &'r [u8] {
        let from_field = skip_fields(body, self.start.field, separator);
        let mut from = from_field;
        if self.start.skip_blanks {
            from = skip_blanks(from);
        }
        from = from.get(self.start.char..).unwrap_or_default();
        let Some(end) = self.end else { return from };
        // Everything is a tail of `body`, so lengths stand for positions.
        let behind = match end.field.checked_sub(self.start.field) {
            Some(fields) => behind_end(from_field, fields, end, separator),
            None => behind_end(body, end.field, end, separator),
        };
        from.get(..from.len().saturating_sub(behind)).unwrap_or_default()
    }
}

/// How many bytes of `text` lie behind the end of a key, `fields` further on.
#[inline]
fn behind_end(text: &[u8], fields: usize, end: LineEnd, separator: Option<u8>) -> usize {
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

/// `text` behind its first `fields` fields.
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

/// `text` behind its leading blanks and what follows up to the next blank.
#[inline]
fn skip_word(text: &[u8]) -> &[u8] {
    let word = skip_blanks(text);
    let len = word.iter().take(8).position(|&byte| is_blank(byte));
    let len = len.or_else(|| memchr3(b' ', b'\t', b'\n', word)).unwrap_or(word.len());
    word.get(len..).unwrap_or_default()
}
