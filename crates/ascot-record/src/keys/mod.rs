//! Sort keys: converts their description to bytes that memcmp orders.
//!
//! A description - the sort command's `-k` and options, columns of a CSV file, byte ranges of a record - is
//! compiled once to a [`KeyProgram`], which then writes the key of one record after another:
//!
//! ```text
//! record  "2024-05-01,bob,17"      #2, #3:number:desc
//! key      62 6F 62 00 | 67 ED FF        "bob" closed | complement of 17
//! ```
//!
//! Invariants of every key: two keys compare as byte strings in the order of their records, equal keys have equal
//! bytes, and every part except the last is self-delimiting, so that parts never run into each other. Writing a key
//! cannot fail: every byte string is a record of some kind, and every record has a key.
//!
//! Ties are not part of the key: [`LastResort`] decides them.
//!
//! ```text
//!   spec, flags, csv_spec, range                     descriptions of keys, parsed
//!   field; csv, csv_columns, csv_header, csv_row     where a key is: in a line; in the columns of a CSV file
//!   bytes, numeric, general (extended), human,       the kinds of values, each as bytes
//!     month, version, random, date (date_format)
//! ```

mod bytes;
mod csv;
mod csv_columns;
mod csv_header;
mod csv_row;
mod csv_spec;
mod date;
mod date_format;
mod error;
mod extended;
mod field;
mod flags;
mod general;
mod human;
mod month;
mod numeric;
mod random;
mod range;
mod spec;
mod version;

pub use csv::{CsvType, infer_type, misfits_written};
pub use csv_columns::{Fallback, KeyColumn, compile_columns, compile_csv, csv_columns, header_like, shown};
pub use csv_header::{HeaderDifference, header_columns, header_difference};
pub use csv_row::{Field as CsvField, Row as CsvRow};
pub use csv_spec::{CsvColumn, CsvKeySpec, parse_csv_keys};
pub use date_format::DateFormat;
pub use error::KeyError;
pub use flags::KeyFlags;
pub use numeric::NumberMarks;
pub use random::Salt;
pub use range::{ByteRangeKey, parse_range_keys, parse_ranges};
pub use spec::{KeyDef, KeyOptions, KeyPosition, compile, parse_separator};

use csv::CsvKey;
use field::{Cursor, LineKey};
use range::RangeKey;

/// The result of compiling a description of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compiled {
    /// The record itself, compared as bytes.
    WholeBody {
        /// Whether the greatest come first.
        reverse: bool,
    },
    /// Keys that must be computed.
    Program(KeyProgram),
}

/// The order of records whose keys are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LastResort {
    /// Their input order.
    #[default]
    None,
    /// The bytes of their bodies, ascending.
    Bytes,
    /// The bytes of their bodies, descending.
    BytesReversed,
}

/// Compiled keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyProgram {
    source: Source,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Lines { separator: Option<u8>, keys: Vec<LineKey> },
    Csv { separator: u8, quote: u8, keys: Vec<CsvKey> },
    Ranges { keys: Vec<RangeKey> },
}

/// Computes normalised keys from bodies.
pub trait WriteKey: Send + Sync {
    /// Appends the key of `body` to `out`.
    fn write_key(&self, body: &[u8], out: &mut Vec<u8>);

    /// Passes the values of `body` that do not have their column's type to `note`, each with the number of its key.
    fn misfits(&self, _body: &[u8], _note: &mut dyn FnMut(usize, &[u8])) {}

    /// Bytes of every key, if known to be the same.
    fn fixed_key_len(&self) -> Option<usize> {
        None
    }
}

impl WriteKey for KeyProgram {
    #[inline]
    fn write_key(&self, record: &[u8], out: &mut Vec<u8>) {
        match &self.source {
            Source::Lines { separator, keys } => {
                let mut cursor = Cursor::new(record, *separator);
                keys.iter().for_each(|key| key.append(&mut cursor, out));
            }
            Source::Csv { separator, quote, keys } => csv::append_row(record, *separator, *quote, keys, out),
            Source::Ranges { keys } => keys.iter().for_each(|key| key.append(record, out)),
        }
    }

    fn misfits(&self, record: &[u8], note: &mut dyn FnMut(usize, &[u8])) {
        if let Source::Csv { separator, quote, keys } = &self.source {
            csv::row_misfits(record, *separator, *quote, keys, note);
        }
    }
}

/// Compiles byte ranges of records that are all `fixed_len` bytes long, or of any length.
///
/// # Errors
/// A range that extends beyond a record of fixed length.
pub fn compile_ranges(ranges: &[ByteRangeKey], fixed_len: Option<usize>) -> Result<KeyProgram, KeyError> {
    let keys = range::compile(ranges, fixed_len)?;
    Ok(KeyProgram { source: Source::Ranges { keys } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn programs() -> Vec<KeyProgram> {
        let mut programs = Vec::new();
        for keys in ["1", "2,2r", "1n", "1.2g", "2h,3", "M", "2V", "1,1Vdf", "2b,1.3b", "2,2fir"] {
            let mut options = KeyOptions::default();
            match KeyDef::parse(keys) {
                Ok(key) => options.keys.extend([key, KeyDef::parse("2nr").unwrap()]),
                Err(_) => assert!(options.global.set('M')),
            }
            for separator in [None, Some(b',')] {
                match compile(&KeyOptions { separator, ..options.clone() }).unwrap() {
                    Compiled::Program(program) => programs.push(program),
                    Compiled::WholeBody { .. } => unreachable!("{keys} is a key"),
                }
            }
        }
        for keys in [
            "#1:text",
            "-#2:text,#1:number",
            "#2:date:nulls-first",
            "#1:number:desc",
            "#1:number(.,),-#2:date(%d.%m.%Y)",
        ] {
            programs.push(compile_csv(&parse_csv_keys(keys).unwrap(), None, b',', b'"', &[]).unwrap());
        }
        programs.push(compile_ranges(&parse_ranges("1..3,0..2:desc").unwrap(), None).unwrap());
        programs
    }

    #[test]
    fn the_example_of_the_page() {
        let keys = parse_csv_keys("#2,#3:number:desc").unwrap();
        let program = compile_csv(&keys, None, b',', b'"', &[b"2024-05-01,bob,17"]).unwrap();
        let mut key = Vec::new();
        program.write_key(b"2024-05-01,bob,17", &mut key);
        assert_eq!(key, [b'b', b'o', b'b', 0, 0x67, 0xED, 0xFF]);
    }

    proptest! {
        #[test]
        fn every_record_has_a_key_that_is_appended(
            record in prop::collection::vec(
                prop_oneof![any::<u8>(), prop::sample::select(b"0159.-ex+, \"~:TZ".to_vec())],
                0..40,
            ),
        ) {
            for program in programs() {
                let mut alone = Vec::new();
                program.write_key(&record, &mut alone);
                let mut behind = b"before".to_vec();
                program.write_key(&record, &mut behind);
                prop_assert_eq!(&behind[6..], &alone[..]);
            }
        }
    }
}
