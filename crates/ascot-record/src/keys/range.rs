//! Keys that are byte ranges of the record, for records of fixed length or with a length prefix.
//!
//! If every record is long enough, the key is the ranges in sequence, the descending ones complemented. If a record
//! may end within or before a range, its available bytes count and the shorter sorts first; such ranges are closed
//! like texts.

use super::KeyError;
use super::bytes::{Ending, append_text, complement_from};
use serde::{Deserialize, Serialize};

/// A range of bytes of the record, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteRangeKey {
    /// The first byte.
    pub start: usize,
    /// The byte after the last one; `usize::MAX` for the end of the record.
    pub end: usize,
    /// Whether the greatest come first.
    pub descending: bool,
}

impl ByteRangeKey {
    fn parse(text: &str) -> Result<ByteRangeKey, KeyError> {
        let refuse = || KeyError::Range { text: text.to_owned() };
        let (range, descending) = match text.split_once(':') {
            None => (text, false),
            Some((range, "asc")) => (range, false),
            Some((range, "desc")) => (range, true),
            Some(_) => return Err(refuse()),
        };
        let (start, end) = range.split_once("..").ok_or_else(refuse)?;
        let number = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => digits.parse::<usize>().map_err(|_| refuse()),
            false => Err(refuse()),
        };
        let start = number(start)?;
        let end = if end.is_empty() { usize::MAX } else { number(end)? };
        if start >= end {
            return Err(refuse());
        }
        Ok(ByteRangeKey { start, end, descending })
    }

    /// The bytes of `record` in the range; fewer if the record ends within or before it.
    #[inline]
    fn slice<'r>(&self, record: &'r [u8]) -> &'r [u8] {
        let end = self.end.min(record.len());
        record.get(self.start..end).unwrap_or_default()
    }
}

/// Parses `START..END[:desc],...`, each range with its own direction; without `END` a range extends to the end of the
/// record.
///
/// # Errors
/// Invalid text, and empty ranges.
pub fn parse_ranges(text: &str) -> Result<Vec<ByteRangeKey>, KeyError> {
    text.split(',').map(ByteRangeKey::parse).collect()
}

/// The ranges of several keys; `reverse` turns their directions around, or that of the whole record if there are none.
///
/// # Errors
/// As [`parse_ranges`].
pub fn parse_range_keys(texts: &[String], reverse: bool) -> Result<Vec<ByteRangeKey>, KeyError> {
    let parsed: Vec<_> = texts.iter().map(|text| parse_ranges(text)).collect::<Result<_, _>>()?;
    let mut ranges = parsed.concat();
    if ranges.is_empty() && reverse {
        ranges.push(ByteRangeKey { start: 0, end: usize::MAX, descending: false });
    }
    ranges.iter_mut().for_each(|range| range.descending ^= reverse);
    Ok(ranges)
}

/// Compiles ranges of records that are all `fixed_len` bytes long, or of any length.
///
/// # Errors
/// A range that extends beyond a record of fixed length.
pub(super) fn compile(ranges: &[ByteRangeKey], fixed_len: Option<usize>) -> Result<Vec<RangeKey>, KeyError> {
    let last = ranges.len().saturating_sub(1);
    let key = |(at, range): (usize, &ByteRangeKey)| {
        let mut range = *range;
        let ending = match fixed_len {
            Some(len) => {
                range.end = if range.end == usize::MAX { len } else { range.end };
                if range.end > len || range.start >= len {
                    return Err(KeyError::RangeBeyond { start: range.start, end: range.end, len });
                }
                Ending::Open
            }
            None if at == last && !range.descending => Ending::Open,
            None => Ending::Closed,
        };
        Ok(RangeKey { range, ending })
    };
    ranges.iter().enumerate().map(key).collect()
}

/// A range, and whether every record fills it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RangeKey {
    range: ByteRangeKey,
    ending: Ending,
}

impl RangeKey {
    #[inline]
    pub(super) fn append(&self, record: &[u8], out: &mut Vec<u8>) {
        let base = out.len();
        append_text(self.range.slice(record), self.ending, out);
        if self.range.descending {
            complement_from(out, base);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::compile_ranges;
    use super::*;
    use crate::keys::WriteKey;

    fn key(ranges: &str, fixed_len: Option<usize>, record: &[u8]) -> Vec<u8> {
        let program = compile_ranges(&parse_ranges(ranges).unwrap(), fixed_len).unwrap();
        let mut out = Vec::new();
        program.write_key(record, &mut out);
        out
    }

    #[test]
    fn ranges_read() {
        let range = |start, end, descending| ByteRangeKey { start, end, descending };
        assert_eq!(parse_ranges("0..10"), Ok(vec![range(0, 10, false)]));
        assert_eq!(
            parse_ranges("4..8:desc,0..4:asc,9.."),
            Ok(vec![range(4, 8, true), range(0, 4, false), range(9, usize::MAX, false)])
        );
        for text in
            ["", "4", "4..4", "5..4", "a..b", "+1..2", "0..4:up", "0..4,", "1...2", "0..99999999999999999999"]
        {
            assert!(matches!(parse_ranges(text), Err(KeyError::Range { .. })), "{text:?}");
        }
    }

    #[test]
    fn fixed_records() {
        assert_eq!(key("1..3", Some(4), b"abcd"), b"bc");
        assert_eq!(key("2..,0..1:desc", Some(4), b"abcd"), [b'c', b'd', !b'a']);
        let beyond = compile_ranges(&parse_ranges("2..5").unwrap(), Some(4));
        assert_eq!(beyond, Err(KeyError::RangeBeyond { start: 2, end: 5, len: 4 }));
        assert!(compile_ranges(&parse_ranges("4..").unwrap(), Some(4)).is_err());
    }

    #[test]
    fn short_records_are_smaller() {
        assert_eq!(key("2..4", None, b"abc"), b"c");
        for ranges in ["0..2,2..4", "2..4,0..2", "1..9:desc,0..1"] {
            let sign = ranges.contains("desc");
            let order = key(ranges, None, b"ab").cmp(&key(ranges, None, b"ab\0"));
            assert_eq!(order.is_gt(), sign, "{ranges}");
        }
    }
}
