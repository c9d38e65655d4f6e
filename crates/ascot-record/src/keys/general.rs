//! Numbers as the C library reads them, for the sort command's `-g`: decimal or hexadecimal, with an exponent,
//! infinities and NaNs.
//!
//! A key has ten bytes:
//!
//! ```text
//! 00 x 10                    no number
//! 00 x 9, 01 | 02            not a number, with | without a minus sign
//! exponent 2, significand 8  a value: the top bit set if not negative, all bits complemented if negative
//! ```
//!
//! Values are rounded to the 80-bit format first (see `extended`), so equality is that of the sort command. NaNs of
//! one sign are equal here, whatever their brackets contain; some versions of the sort command order them at random.

use super::bytes::complement_from;
use super::extended::Extended;
use super::numeric::{take_digits, take_exponent, take_fraction, take_sign};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum General {
    None,
    Nan { negative: bool },
    Value { negative: bool, magnitude: Extended },
}

/// Appends the key of the number at the start of `text`.
pub(super) fn append_general(text: &[u8], out: &mut Vec<u8>) {
    match parse(text) {
        General::None => out.extend_from_slice(&[0; 10]),
        General::Nan { negative } => {
            out.extend_from_slice(&[0; 9]);
            out.push(if negative { 1 } else { 2 });
        }
        General::Value { negative, magnitude } => {
            let base = out.len();
            out.extend_from_slice(&(magnitude.exponent | 0x8000).to_be_bytes());
            out.extend_from_slice(&magnitude.significand.to_be_bytes());
            if negative && magnitude != Extended::ZERO {
                complement_from(out, base);
            }
        }
    }
}

fn parse(text: &[u8]) -> General {
    let spaces = text.iter().position(|byte| !matches!(byte, b' ' | 9..=13)).unwrap_or(text.len());
    let text = text.get(spaces..).unwrap_or_default();
    let (negative, text) = take_sign(text);
    if let [b'0', b'x' | b'X', rest @ ..] = text
        && let Some(magnitude) = hexadecimal(rest)
    {
        return General::Value { negative, magnitude };
    }
    let (whole, rest) = take_digits(text);
    let (fraction, rest) = take_fraction(rest);
    if whole.is_empty() && fraction.is_empty() {
        return named(negative, text);
    }
    let exponent = match rest.split_first() {
        Some((b'e' | b'E', rest)) => take_exponent(rest).map_or(0, |(exponent, _)| exponent),
        _ => 0,
    };
    General::Value { negative, magnitude: decimal(whole, fraction, exponent) }
}

fn named(negative: bool, text: &[u8]) -> General {
    match text.first_chunk::<3>() {
        Some(name) if name.eq_ignore_ascii_case(b"inf") => {
            General::Value { negative, magnitude: Extended::INFINITY }
        }
        Some(name) if name.eq_ignore_ascii_case(b"nan") => General::Nan { negative },
        _ => General::None,
    }
}

fn decimal(whole: &[u8], fraction: &[u8], exponent: i64) -> Extended {
    let significant = fraction.iter().rposition(|&digit| digit != b'0').map_or(0, |last| last + 1);
    let fraction = fraction.get(..significant).unwrap_or_default();
    let digits = whole.iter().chain(fraction).skip_while(|&&digit| digit == b'0').map(|digit| digit & 15);
    if fraction.is_empty() {
        let significant = whole.iter().rposition(|&digit| digit != b'0').map_or(0, |last| last + 1);
        let zeros = whole.len() - significant;
        let kept = whole.get(..significant).unwrap_or_default();
        let digits = kept.iter().skip_while(|&&digit| digit == b'0').map(|digit| digit & 15);
        return Extended::from_decimal(digits, exponent.saturating_add(zeros as i64));
    }
    Extended::from_decimal(digits, exponent.saturating_sub(fraction.len() as i64))
}

/// The magnitude after `0x`; `None` without a digit.
fn hexadecimal(text: &[u8]) -> Option<Extended> {
    let mut has_point = false;
    let is_part = |byte: &u8| match byte {
        b'.' => !std::mem::replace(&mut has_point, true),
        byte => byte.is_ascii_hexdigit(),
    };
    let (digits, rest) = text.split_at(text.iter().copied().take_while(is_part).count());
    if !digits.iter().any(u8::is_ascii_hexdigit) {
        return None;
    }
    let power = match rest.split_first() {
        Some((b'p' | b'P', rest)) => take_exponent(rest).map_or(0, |(power, _)| power),
        _ => 0,
    };
    Some(Extended::from_text(&format!("0x{}p{power}", String::from_utf8_lossy(digits))))
}

#[cfg(test)]
mod tests {
    use super::append_general;

    fn general(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        append_general(text.as_bytes(), &mut out);
        out
    }

    #[test]
    fn ascending_table() {
        let texts = [
            "",
            "-nan",
            "nan",
            "-inf",
            "-1e5000x",
            "-1e4000",
            "-2",
            "-1",
            "-1e-4940",
            "0",
            "1e-4950",
            "0x1p-16382",
            "1e-3",
            ".5",
            "0x.9",
            "1",
            "1.0000000000000000002",
            "0x1.1",
            "2",
            "0xA",
            "1e1000",
            "1e4932",
            "infinity",
        ];
        for pair in texts.windows(2) {
            assert!(general(pair[0]) <= general(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn equal_table() {
        let equal = [
            ("abc", ""),
            ("-", "."),
            (".e5", "+"),
            ("-0", "0x"),
            ("0e99999999999999999999", "+0.0"),
            ("1e", "1e+"),
            ("1e2", " \x0b\t100.000"),
            ("1e99999", "inf"),
            ("nan(12)", "NaNx"),
            ("0x1P4", "16"),
            ("0x.", "0"),
            ("0x1p", "1"),
            ("0x1p99999999999999999999", "inf"),
            ("0x1p-99999999999999999999", "0"),
            ("0x0000.00008p17", "1"),
            ("0x1.8.1", "1.5"),
            ("1.00000000000000000001", "1"),
            ("1000e-3", "0.01e2"),
            ("0x1000000000000000000000000000000000001p-144", "0x1p0"),
            ("1e-99999999999999999999", "0"),
        ];
        for (a, b) in equal {
            assert_eq!(general(a), general(b), "{a:?} {b:?}");
        }
    }
}
