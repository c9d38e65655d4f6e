//! Files of lines, rows and length-prefixed records.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BinaryArray, StringArray};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType;
use ascot_record::framing::{CsvFraming, Framing, LineFraming, PrefixedFraming};
use ascot_record::layout::{Endian, Layout};

use super::wrong_type;
use crate::error::{ColumnsError, Result};
use crate::row::VarValues;

/// The type of the array of some text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextType {
    /// UTF-8; other text is refused.
    Utf8,
    /// Bytes.
    Binary,
    /// UTF-8 if the given bytes are, else bytes.
    #[default]
    Auto,
}

pub(super) fn to_array(layout: Layout, bytes: &[u8], text: TextType) -> Result<ArrayRef> {
    let (offsets, values) = match layout {
        Layout::Csv { separator, quote } => records(layout, CsvFraming { separator, quote }, bytes)?,
        Layout::Prefixed { width, endian, .. } => {
            records(layout, PrefixedFraming { width, endian, keyed: false }, bytes)?
        }
        Layout::Lines { delimiter } => records(layout, LineFraming(delimiter), bytes)?,
        Layout::Fixed { .. } | Layout::Number(_) => (vec![0], Vec::new()),
    };
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    let values = Buffer::from_vec(values);
    if text != TextType::Binary {
        match StringArray::try_new(offsets.clone(), values.clone(), None) {
            Ok(array) => return Ok(Arc::new(array)),
            Err(_) if text == TextType::Utf8 => return Err(not_utf8(&offsets, &values)),
            Err(_) => {}
        }
    }
    Ok(Arc::new(BinaryArray::try_new(offsets, values, None)?))
}

/// The bodies of all records, back to back, and their offsets.
fn records<F: Framing>(layout: Layout, framing: F, bytes: &[u8]) -> Result<(Vec<i32>, Vec<u8>)> {
    let mut values: Vec<u8> = Vec::with_capacity(bytes.len());
    let mut offsets = vec![0];
    let mut at = 0;
    while at < bytes.len() {
        let end = match framing.end(bytes, at) {
            Some(end) => end,
            None if framing.completes().is_some() => bytes.len(),
            None => {
                let reason = format!("the last record of format {layout}, at byte {at}, is cut short");
                return Err(ColumnsError::FileBytes { reason });
            }
        };
        values.extend_from_slice(framing.body(&bytes[at..end]));
        let offset = i32::try_from(values.len()).map_err(|_| ColumnsError::FileBytes {
            reason: format!(
                "more than {} bytes of text do not fit one Arrow array\n  read fewer at a time",
                i32::MAX
            ),
        })?;
        offsets.push(offset);
        at = end;
    }
    Ok((offsets, values))
}

fn not_utf8(offsets: &[i32], values: &[u8]) -> ColumnsError {
    let is_wrong = |ends: &[i32]| std::str::from_utf8(&values[ends[0] as usize..ends[1] as usize]).is_err();
    let record = offsets.windows(2).position(is_wrong).map_or(0, |record| record + 1);
    ColumnsError::NotUtf8 { record: record as u64 }
}

pub(super) fn to_bytes(layout: Layout, array: &dyn Array, out: &mut Vec<u8>) -> Result<()> {
    match array.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {}
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {}
        found => return Err(wrong_type(layout, "string or binary".to_owned(), found)),
    }
    let base = out.len();
    let mut wrong = None;
    VarValues::of_array(array).for_each(|row, value| {
        if wrong.is_none() && !append(layout, value, out) {
            wrong = Some(row);
        }
    });
    let Some(row) = wrong else { return Ok(()) };
    out.truncate(base);
    let reason = format!(
        "cannot have format {layout}: it holds a delimiter, an open quote, or more bytes than its length counts\n  \
         write another layout, such as prefixed:u32"
    );
    Err(ColumnsError::Value { record: row as u64 + 1, reason })
}

/// Appends a value as a record; `false` if the layout cannot hold it.
fn append(layout: Layout, value: &[u8], out: &mut Vec<u8>) -> bool {
    let base = out.len();
    match layout {
        Layout::Lines { delimiter } => {
            out.extend_from_slice(value);
            out.push(delimiter);
            LineFraming(delimiter).end(&out[base..], 0) == Some(value.len() + 1)
        }
        Layout::Csv { separator, quote } => {
            let framing = CsvFraming { separator, quote };
            out.extend_from_slice(value);
            out.push(b'\n');
            let record = &out[base..];
            framing.end(record, 0) == Some(record.len()) && framing.body(record) == value
        }
        Layout::Prefixed { width, endian, keyed } => {
            let width = usize::from(width);
            if width < 8 && (value.len() as u64) >> (8 * width) != 0 {
                return false;
            }
            let mut digits = (value.len() as u64).to_le_bytes();
            let digits = &mut digits[..width];
            if endian == Endian::Big {
                digits.reverse();
            }
            out.extend_from_slice(digits);
            out.extend_from_slice(value);
            // The value of a keyed record begins with the length of its key, and with the key.
            let digits = PrefixedFraming { width: width as u8, endian, keyed: false };
            !keyed || digits.end(value, 0).is_some()
        }
        Layout::Fixed { .. } | Layout::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;

    use super::*;

    fn layout(text: &str) -> Layout {
        Layout::parse(text).unwrap()
    }

    #[test]
    fn records_become_text_and_come_back() {
        let files: [(&str, &[u8], &[&str]); 4] = [
            ("lines", b"one\n\nthree\n", &["one", "", "three"]),
            ("lines:nul", b"a\nb\0c\0", &["a\nb", "c"]),
            ("csv", b"a,\"b\nc\"\n1,2\n", &["a,\"b\nc\"", "1,2"]),
            ("prefixed:u16-be", b"\0\x02ab\0\0", &["ab", ""]),
        ];
        for (format, bytes, expected) in files {
            let array = to_array(layout(format), bytes, TextType::Auto).unwrap();
            assert_eq!(array.as_string::<i32>().iter().flatten().collect::<Vec<_>>(), expected, "{format}");
            let mut out = Vec::new();
            to_bytes(layout(format), &array, &mut out).unwrap();
            assert_eq!(out, bytes, "{format}");
        }
    }

    #[test]
    fn a_last_line_may_lack_its_end_but_a_last_prefixed_record_may_not() {
        let array = to_array(Layout::LINES, b"a\nb", TextType::Utf8).unwrap();
        assert_eq!(array.as_string::<i32>().value(1), "b");
        assert!(to_array(layout("prefixed:u16"), b"\x05\0ab", TextType::Auto).is_err());
    }

    #[test]
    fn other_text_than_utf_8_is_binary_or_refused() {
        // Whole bytes that are UTF-8, cut within a character by the framing, are not.
        for bytes in [&b"a\n\xff\n"[..], "a\n\u{e9}".as_bytes().split_last().unwrap().1] {
            let array = to_array(Layout::LINES, bytes, TextType::Auto).unwrap();
            assert_eq!(array.data_type(), &DataType::Binary);
            let error = to_array(Layout::LINES, bytes, TextType::Utf8).unwrap_err().to_string();
            assert!(error.contains("record 2"), "{error}");
        }
        let cut = to_array(layout("lines:0xa9"), "\u{e9}".as_bytes(), TextType::Auto).unwrap();
        assert_eq!(cut.data_type(), &DataType::Binary);
        assert_eq!(cut.as_binary::<i32>().value(0), b"\xc3");
    }

    #[test]
    fn values_that_hold_a_delimiter_are_refused() {
        let wrong =
            [("lines", "a\nb"), ("csv", "a\nb"), ("csv", "\"a"), ("csv", "a\r"), ("keyed:u16", "\x05\0ab")];
        for (format, value) in wrong {
            let mut out = b"before".to_vec();
            let array = StringArray::from(vec!["x", value]);
            let array = if format == "keyed:u16" { array.slice(1, 1) } else { array };
            assert!(to_bytes(layout(format), &array, &mut out).is_err(), "{format} {value:?}");
            assert_eq!(out, b"before");
        }
        let long = StringArray::from(vec!["x".repeat(256)]);
        assert!(to_bytes(layout("prefixed:u8"), &long, &mut Vec::new()).is_err());
    }
}
