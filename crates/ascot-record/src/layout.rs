//! The layout of a file of records, as a user names it: `lines`, `csv`, `fixed:100`, `u64-be`.
//!
//! A [`Layout`] is a plain value. It is parsed from text and written back to the same text, so that command lines,
//! manifests and reports all spell it alike. [`Framing`] finds the records in the bytes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use crate::framing::{CsvFraming, Cut, FixedFraming, Framing, LineFraming, PrefixedFraming};

/// Order of the bytes of an integer in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endian {
    /// Lowest byte first.
    Little,
    /// Highest byte first.
    Big,
}

/// Kind of the numbers of a file of bare numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NumberType {
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// Two's complement, 32 bits.
    I32,
    /// Two's complement, 64 bits.
    I64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}

impl NumberType {
    /// Bytes of one number.
    pub fn width(self) -> usize {
        match self {
            NumberType::U32 | NumberType::I32 | NumberType::F32 => 4,
            NumberType::U64 | NumberType::I64 | NumberType::F64 => 8,
        }
    }

    fn name(self) -> &'static str {
        match self {
            NumberType::U32 => "u32",
            NumberType::U64 => "u64",
            NumberType::I32 => "i32",
            NumberType::I64 => "i64",
            NumberType::F32 => "f32",
            NumberType::F64 => "f64",
        }
    }

    fn from_name(name: &str) -> Option<NumberType> {
        use NumberType::{F32, F64, I32, I64, U32, U64};
        [U32, U64, I32, I64, F32, F64].into_iter().find(|kind| kind.name() == name)
    }
}

/// The storage format of a file of bare numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NumberFormat {
    /// Kind and width.
    pub kind: NumberType,
    /// Order of the bytes.
    pub endian: Endian,
}

/// The record structure of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Layout {
    /// Records end at a delimiter byte.
    Lines {
        /// The byte that ends a record.
        delimiter: u8,
    },
    /// Rows of RFC 4180: a newline within a quoted field does not end the row.
    Csv {
        /// The byte between fields.
        separator: u8,
        /// The byte around fields that hold separators or newlines.
        quote: u8,
    },
    /// Records of one length.
    Fixed {
        /// Bytes of a record, at least one.
        len: usize,
    },
    /// Bare numbers; the record is its own key.
    Number(NumberFormat),
    /// Every record follows an unsigned integer that holds its length.
    Prefixed {
        /// Bytes of the length: 1, 2, 4 or 8.
        width: u8,
        /// Order of the bytes of the length.
        endian: Endian,
        /// The record begins with a second such integer, the length of its key, and with the key.
        keyed: bool,
    },
}

/// A layout that could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown record format '{text}'{hint}; write one of: lines, lines:nul, lines:BYTE, csv, tsv, \
     csv:SEPARATOR, fixed:BYTES, u32, u64, i32, i64, f32, f64 (each with -le or -be), \
     prefixed:u8, prefixed:u16, prefixed:u32, prefixed:u64, keyed:u8, keyed:u16, keyed:u32, keyed:u64 (each with \
     -le or -be)"
)]
pub struct LayoutError {
    text: String,
    hint: &'static str,
}

impl Layout {
    /// Newline-ended lines, the default.
    pub const LINES: Layout = Layout::Lines { delimiter: b'\n' };

    /// Parses a layout as users write it; [`LayoutError`] lists the accepted forms.
    pub fn parse(text: &str) -> Result<Layout, LayoutError> {
        let (name, argument) = match text.split_once(':') {
            Some((name, argument)) => (name, Some(argument)),
            None => (text, None),
        };
        let parsed = match (name, argument) {
            ("lines", None) => Ok(Layout::LINES),
            ("lines", Some(byte)) => byte_named(byte).map(|delimiter| Layout::Lines { delimiter }),
            ("csv", None) => Ok(Layout::Csv { separator: b',', quote: b'"' }),
            ("tsv", None) => Ok(Layout::Csv { separator: b'\t', quote: b'"' }),
            ("csv", Some(byte)) => separator_named(byte),
            ("fixed", Some(len)) => fixed_len(len),
            ("prefixed", Some(kind)) => prefixed(kind, false),
            ("keyed", Some(kind)) => prefixed(kind, true),
            (_, None) => number(name),
            _ => Err(""),
        };
        parsed.map_err(|hint| LayoutError { text: text.to_owned(), hint })
    }
}

fn separator_named(text: &str) -> Result<Layout, &'static str> {
    match byte_named(text)? {
        b'"' | b'\n' | b'\r' => Err(" (a separator is neither a quote nor a newline)"),
        separator => Ok(Layout::Csv { separator, quote: b'"' }),
    }
}

/// A byte by name (`nul`, `tab`), by number (`0x1f`) or as itself (`;`).
fn byte_named(text: &str) -> Result<u8, &'static str> {
    const HINT: &str = " (a byte is one ASCII character, nul, tab, newline or 0xNN)";
    match text {
        "nul" => return Ok(0),
        "tab" => return Ok(b'\t'),
        "newline" => return Ok(b'\n'),
        _ => {}
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return u8::from_str_radix(digits, 16).map_err(|_| HINT);
    }
    match text.as_bytes() {
        [byte] => Ok(*byte),
        _ => Err(HINT),
    }
}

fn byte_name(byte: u8) -> String {
    match byte {
        0 => "nul".to_owned(),
        b'\t' => "tab".to_owned(),
        b'\n' => "newline".to_owned(),
        byte if byte.is_ascii_graphic() => char::from(byte).to_string(),
        byte => format!("0x{byte:02x}"),
    }
}

fn fixed_len(text: &str) -> Result<Layout, &'static str> {
    match text.parse::<usize>() {
        Ok(len) if len > 0 => Ok(Layout::Fixed { len }),
        _ => Err(" (fixed: wants the bytes of a record, at least 1, as in fixed:100)"),
    }
}

fn split_endian(text: &str) -> (&str, Endian) {
    if let Some(kind) = text.strip_suffix("-be") {
        return (kind, Endian::Big);
    }
    (text.strip_suffix("-le").unwrap_or(text), Endian::Little)
}

fn number(text: &str) -> Result<Layout, &'static str> {
    let (kind, endian) = split_endian(text);
    let kind = NumberType::from_name(kind).ok_or("")?;
    Ok(Layout::Number(NumberFormat { kind, endian }))
}

fn prefixed(text: &str, keyed: bool) -> Result<Layout, &'static str> {
    let (kind, endian) = split_endian(text);
    let width = match kind {
        "u8" => 1,
        "u16" => 2,
        "u32" => 4,
        "u64" => 8,
        _ => return Err(" (the type of the length follows, as in prefixed:u32)"),
    };
    Ok(Layout::Prefixed { width, endian, keyed })
}

fn endian_suffix(endian: Endian) -> &'static str {
    match endian {
        Endian::Little => "",
        Endian::Big => "-be",
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Layout::Lines { delimiter: b'\n' } => f.write_str("lines"),
            Layout::Lines { delimiter } => write!(f, "lines:{}", byte_name(delimiter)),
            Layout::Csv { separator: b',', .. } => f.write_str("csv"),
            Layout::Csv { separator: b'\t', .. } => f.write_str("tsv"),
            Layout::Csv { separator, .. } => write!(f, "csv:{}", byte_name(separator)),
            Layout::Fixed { len } => write!(f, "fixed:{len}"),
            Layout::Number(format) => write!(f, "{}{}", format.kind.name(), endian_suffix(format.endian)),
            Layout::Prefixed { width, endian, keyed } => {
                let name = if keyed { "keyed" } else { "prefixed" };
                write!(f, "{name}:u{}{}", u32::from(width) * 8, endian_suffix(endian))
            }
        }
    }
}

impl FromStr for Layout {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Layout, LayoutError> {
        Layout::parse(text)
    }
}

impl TryFrom<String> for Layout {
    type Error = LayoutError;

    fn try_from(text: String) -> Result<Layout, LayoutError> {
        Layout::parse(&text)
    }
}

impl From<Layout> for String {
    fn from(layout: Layout) -> String {
        layout.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_read_and_written_back() {
        let spellings = [
            "lines",
            "lines:nul",
            "lines:;",
            "lines:0x1f",
            "csv",
            "tsv",
            "csv:;",
            "csv:|",
            "fixed:100",
            "u32",
            "u64",
            "u64-be",
            "i32-be",
            "i64",
            "f32",
            "f64-be",
            "prefixed:u8",
            "prefixed:u16",
            "prefixed:u32-be",
            "prefixed:u64",
            "keyed:u32",
            "keyed:u16-be",
        ];
        for text in spellings {
            assert_eq!(Layout::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn little_endian_may_be_said() {
        assert_eq!(Layout::parse("u64-le"), Layout::parse("u64"));
        assert_eq!(Layout::parse("prefixed:u32-le"), Layout::parse("prefixed:u32"));
    }

    #[test]
    fn nonsense_is_answered_with_what_is_accepted() {
        for text in [
            "",
            "line",
            "fixed",
            "fixed:0",
            "fixed:-1",
            "u16",
            "prefixed:u24",
            "keyed:8",
            "csv:ab",
            "lines:0x1ff",
        ] {
            let message = Layout::parse(text).unwrap_err().to_string();
            assert!(message.contains("fixed:BYTES"), "{message}");
            assert!(message.contains(&format!("'{text}'")), "{message}");
        }
    }
}
