//! Sizes, counts and shares as people write them.
//!
//! Four dialects with one parser:
//!
//! | where | `512` | `1G` | `1GB` | `1GiB` | `10%` |
//! | --- | --- | --- | --- | --- | --- |
//! | `--memory` | asked about | 2^30 | 10^9 | 2^30 | of the memory |
//! | `--bytes` | asked about | 2^30 | 10^9 | 2^30 | no |
//! | `-S` (the sort command's) | KiB | 2^30 | 10^9 | 2^30 | of the memory |
//! | counts (`ascot gen 100M`) | 512 | 10^9 | no | no | no |

use thiserror::Error;

/// An amount of memory, as requested.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// Bytes.
    Bytes(u64),
    /// Percent of the machine's memory.
    Percent(f64),
}

impl Amount {
    /// The amount in bytes; a share is taken of `total_bytes`.
    pub fn bytes_of(self, total_bytes: u64) -> u64 {
        match self {
            Amount::Bytes(bytes) => bytes,
            Amount::Percent(percent) => (total_bytes as f64 * percent / 100.0) as u64,
        }
    }
}

/// Why a size or count could not be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SizeError {
    /// A number without a unit, which is ambiguous.
    #[error(
        "{number} needs a unit\n  write {number}MiB, {number}GiB, {number}MB, {number}GB or {number}b \
         (bytes){or_share}"
    )]
    NoUnit {
        /// The number given.
        number: String,
        /// The alternative, if a share is possible.
        or_share: &'static str,
    },
    /// The text does not begin with a number.
    #[error("{text:?} is not a size\n  accepted: 512MiB, 1.5GiB, 2GB, 1G (the same as 1GiB), 10%")]
    NotASize {
        /// The text.
        text: String,
    },
    /// A number, followed by an unknown unit.
    #[error(
        "{unit:?} is not a unit\n  accepted: K M G T P or KiB MiB GiB (powers of 1024), KB MB GB (powers \
         of 1000), b (bytes), %"
    )]
    Unit {
        /// The unit given.
        unit: String,
    },
    /// A share where only bytes are possible.
    #[error("{text} is a share\n  give bytes, such as 512MiB")]
    Share {
        /// The text.
        text: String,
    },
    /// The text is not a count.
    #[error("{text:?} is not a count\n  accepted: 1000000, 1_000_000, 1M, 100k (powers of 1000)")]
    NotACount {
        /// The text.
        text: String,
    },
    /// More than 64 bits, or less than one byte.
    #[error("{text} is out of range")]
    OutOfRange {
        /// The text.
        text: String,
    },
}

/// Reads `--memory`: a number with a unit.
pub fn memory_size(text: &str) -> Result<Amount, SizeError> {
    let (number, unit) = split(text);
    if unit.is_empty() && !number.is_empty() {
        return Err(SizeError::NoUnit { number: number.to_owned(), or_share: ", or a share such as 25%" });
    }
    amount(text, number, unit)
}

/// Reads an amount of data: like `--memory`, but not as a share, in bytes.
pub fn data_size(text: &str) -> Result<u64, SizeError> {
    match memory_size(text) {
        Ok(Amount::Bytes(bytes)) => Ok(bytes),
        Ok(Amount::Percent(_)) => Err(SizeError::Share { text: text.to_owned() }),
        Err(SizeError::NoUnit { number, .. }) => Err(SizeError::NoUnit { number, or_share: "" }),
        Err(error) => Err(error),
    }
}

/// Reads `-S` as the sort command does: a bare number counts KiB, a bare unit is one of it, a leading plus sign is
/// allowed, nothing is too small, shares may exceed 100 %, and numbers beyond 64 bits are refused.
pub fn buffer_size(text: &str) -> Result<Amount, SizeError> {
    let (number, unit) = split(text.strip_prefix('+').unwrap_or(text));
    let (number, unit) = match (number, unit) {
        ("", "" | "b" | "%") => return Err(SizeError::NotASize { text: text.to_owned() }),
        ("", unit) if !text.starts_with('+') => ("1", unit),
        (number, "") => (number, "K"),
        other => other,
    };
    match (amount(text, number, unit), number.parse::<f64>()) {
        (Err(SizeError::OutOfRange { .. }), Ok(share)) if unit == "%" => Ok(Amount::Percent(share)),
        (Err(SizeError::OutOfRange { .. }), Ok(0.0)) => Ok(Amount::Bytes(0)),
        (result, _) => result,
    }
}

/// Reads a count: digits (underscores between them are allowed) and a power of 1000.
pub fn count(text: &str) -> Result<u64, SizeError> {
    let bad = || SizeError::NotACount { text: text.to_owned() };
    let (number, unit) = split(text);
    let power = match unit {
        "" => 0,
        "k" | "K" => 1,
        "m" | "M" => 2,
        "g" | "G" => 3,
        "t" | "T" => 4,
        _ => return Err(bad()),
    };
    whole(number, 3 * power).ok_or_else(bad)
}

/// `number` with its point moved right by `digits`; none if a fraction remains.
fn whole(number: &str, digits: usize) -> Option<u64> {
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let fraction = fraction.trim_end_matches('0');
    if number.trim_matches('.').is_empty() || fraction.len() > digits {
        return None;
    }
    format!("{whole}{fraction:0<digits$}").parse().ok()
}

/// Reads a record's number: like a count, but up to 128 bits if all digits are written out.
pub fn record_number(text: &str) -> Result<u128, SizeError> {
    match text.replace('_', "").parse::<u128>() {
        Ok(number) => Ok(number),
        Err(_) => count(text).map(u128::from),
    }
}

/// The leading number and the text after it.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end =
        text.bytes().position(|b| !(b.is_ascii_digit() || b == b'.' || b == b'_')).unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

fn amount(text: &str, number: &str, unit: &str) -> Result<Amount, SizeError> {
    let not_a_size = || SizeError::NotASize { text: text.to_owned() };
    let out_of_range = || SizeError::OutOfRange { text: text.to_owned() };
    if number.is_empty() {
        return Err(not_a_size());
    }
    if unit == "%" {
        let percent: f64 = number.parse().map_err(|_| not_a_size())?;
        return if percent > 0.0 && percent <= 100.0 {
            Ok(Amount::Percent(percent))
        } else {
            Err(out_of_range())
        };
    }
    let multiplier = multiplier(unit).ok_or_else(|| SizeError::Unit { unit: unit.to_owned() })?;
    if number.parse::<f64>().is_err() && !number.contains('_') {
        return Err(not_a_size());
    }
    let bytes = multiplier.and_then(|by| scaled(number, by)).ok_or_else(out_of_range)?;
    if bytes == 0 { Err(out_of_range()) } else { Ok(Amount::Bytes(bytes)) }
}

/// Bytes in a unit; the inner `None` is a unit that exists but does not fit 64 bits.
fn multiplier(unit: &str) -> Option<Option<u64>> {
    let lower = unit.to_ascii_lowercase();
    if lower == "b" {
        return Some(Some(1));
    }
    let power = "kmgtpezyrq".find(lower.chars().next()?)? as u32 + 1;
    match &lower[1..] {
        "" | "ib" => Some(1024_u64.checked_pow(power)),
        "b" => Some(1000_u64.checked_pow(power)),
        _ => None,
    }
}

/// `number` times `by`, exactly for whole numbers; a fraction is rounded down.
fn scaled(number: &str, by: u64) -> Option<u64> {
    let digits = number.replace('_', "");
    if let Some((whole, fraction)) = digits.split_once('.') {
        let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
        let fraction: f64 = format!("0.{fraction}0").parse().ok()?;
        return whole.checked_mul(by)?.checked_add((fraction * by as f64) as u64);
    }
    digits.parse::<u64>().ok()?.checked_mul(by)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn memory_takes_binary_and_decimal_units() {
        for (text, bytes) in [
            ("1GiB", GIB),
            ("1G", GIB),
            ("1g", GIB),
            ("2GB", 2_000_000_000),
            ("512MiB", GIB / 2),
            ("512 MiB", GIB / 2),
            ("1.5GiB", GIB + GIB / 2),
            ("64kib", 65536),
            ("4096b", 4096),
            ("1T", 1 << 40),
            (".5K", 512),
        ] {
            assert_eq!(memory_size(text), Ok(Amount::Bytes(bytes)), "{text}");
        }
        assert_eq!(memory_size("10%"), Ok(Amount::Percent(10.0)));
        assert_eq!(Amount::Percent(10.0).bytes_of(1000), 100);
    }

    #[test]
    fn memory_asks_about_a_bare_number() {
        let message = memory_size("512").unwrap_err().to_string();
        assert!(message.contains("512MiB") && message.contains("%"), "{message}");
    }

    #[test]
    fn sizes_that_are_none_are_refused() {
        for text in ["", "G", "1X", "1GiBB", "-1G", "1..5G", "0G", "0%", "101%", "99999999999G"] {
            assert!(memory_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_amount_of_data_is_no_share() {
        assert_eq!(data_size("2MB"), Ok(2_000_000));
        assert!(!data_size("25").unwrap_err().to_string().contains("share"));
        assert_eq!(data_size("25%"), Err(SizeError::Share { text: "25%".into() }));
    }

    #[test]
    fn buffer_size_counts_kibibytes() {
        assert_eq!(buffer_size("1"), Ok(Amount::Bytes(1024)));
        assert_eq!(buffer_size("1b"), Ok(Amount::Bytes(1)));
        assert_eq!(buffer_size("1M"), Ok(Amount::Bytes(1 << 20)));
        assert_eq!(buffer_size("50%"), Ok(Amount::Percent(50.0)));
        assert_eq!(buffer_size("32b"), Ok(Amount::Bytes(32)));
        assert_eq!(buffer_size("15E"), Ok(Amount::Bytes(15 << 60)));
        assert_eq!(buffer_size("K"), Ok(Amount::Bytes(1024)));
        assert_eq!(buffer_size("+5M"), Ok(Amount::Bytes(5 << 20)));
        assert_eq!(buffer_size("0"), Ok(Amount::Bytes(0)));
        assert_eq!(buffer_size("200%"), Ok(Amount::Percent(200.0)));
        assert_eq!(buffer_size("0%"), Ok(Amount::Percent(0.0)));
        for text in
            ["x", "1Q1", "", "b", "%", "-1", "+", "16E", "1Z", "1Y", "1R", "1Q", "99999999999999999999"]
        {
            assert!(buffer_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_are_decimal() {
        for (text, value) in [
            ("0", 0),
            ("7", 7),
            ("1k", 1000),
            ("1K", 1000),
            ("100M", 100_000_000),
            ("1_000", 1000),
            ("1.5M", 1_500_000),
        ] {
            assert_eq!(count(text), Ok(value), "{text}");
        }
        for text in ["", "M", "1MiB", "1%", "-1", "20000000T", "1e6"] {
            assert!(count(text).is_err(), "{text}");
        }
        assert_eq!(record_number("340282366920938463463374607431768211455"), Ok(u128::MAX));
        assert_eq!(record_number("1M"), Ok(1_000_000));
        assert!(record_number("-1").is_err());
    }
}
