//! Decimal numbers of any length as memcmp-comparable bytes, and the sort command's `-n`.
//!
//! A number other than zero is `0.d1d2d3... x 10^E` with `d1` and the last digit not zero; it becomes
//!
//! ```text
//! tag(E)  [E as 8 bytes, only at both ends of the range]  d1d2+1  d3d4+1  ...  00
//! ```
//!
//! with two digits per byte, the last one paired with a 0 if the count is odd. A negative number is the complement of
//! all bytes of its magnitude. Tags:
//!
//! ```text
//! 80 zero   81 E < -20   82..E6 E from -20 to 80   E7 E > 80   E8 infinity   E9 not a number   F0 text
//! ```
//!
//! The C locale has no thousands separator, but the sort command treats byte 80 as one: `-n` and `-h` skip it before
//! the point, and so does this code.
//!
//! Invariants: equal values have equal bytes, the encoding ends itself, no tag is 00 or FF (left for nulls),
//! and the work is linear in the length of the text.

use super::bytes::{complement_from, skip_blanks};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

const ZERO: u8 = 0x80;
const TINY: u8 = 0x81;
const FIRST: u8 = 0x82;
const HUGE: u8 = 0xE7;
const INFINITY: u8 = 0xE8;
const NAN: u8 = 0xE9;
/// Tag of a value that is not a number in a column of numbers: after all of them.
pub(super) const TEXT: u8 = 0xF0;

/// The byte that the sort command skips in the integer part of a number.
const SKIPPED: u8 = 0x80;

const LOWEST_EXPONENT: i64 = -20;
const HIGHEST_EXPONENT: i64 = 80;
/// Written exponents are limited to this value, far beyond any use and far from overflow.
const EXPONENT_LIMIT: i64 = 1 << 60;

/// The parts of a decimal number as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Decimal<'t> {
    pub(super) negative: bool,
    /// Digits before the point.
    pub(super) whole: &'t [u8],
    /// Digits after the point.
    pub(super) fraction: &'t [u8],
    /// Power of ten to multiply by.
    pub(super) exponent: i64,
}

/// Splits `text` after its leading ASCII digits.
#[inline]
pub(super) fn take_digits(text: &[u8]) -> (&[u8], &[u8]) {
    let count = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(count)
}

/// Whether `text` begins with a minus, and the text after its sign, if it has one.
#[inline]
pub(super) fn take_sign(text: &[u8]) -> (bool, &[u8]) {
    match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, text),
    }
}

/// The digits of a fraction and the text after them, if `text` begins with a point.
#[inline]
pub(super) fn take_fraction(text: &[u8]) -> (&[u8], &[u8]) {
    match text.split_first() {
        Some((b'.', rest)) => take_digits(rest),
        _ => (&[], text),
    }
}

#[inline]
fn trim_leading_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().position(|&digit| digit != b'0').unwrap_or(digits.len());
    digits.get(zeros..).unwrap_or_default()
}

#[inline]
fn trim_trailing_zeros(digits: &[u8]) -> &[u8] {
    let kept = digits.iter().rposition(|&digit| digit != b'0').map_or(0, |last| last + 1);
    digits.get(..kept).unwrap_or_default()
}

/// Appends the number at the start of `text` as `-n` reads it: blanks, `-`, digits, point, digits. A text that is not
/// a number counts as zero.
#[inline]
pub(super) fn append_numeric(text: &[u8], out: &mut Vec<u8>) {
    append_leading_decimal(skip_blanks(text), out);
}

/// Like [`append_numeric`], for a text without leading blanks.
#[inline]
pub(super) fn append_leading_decimal(text: &[u8], out: &mut Vec<u8>) {
    let number = leading_decimal(text);
    let after_sign = text.get(usize::from(number.negative)..).unwrap_or_default();
    match after_sign.get(number.whole.len()) {
        Some(&SKIPPED) => append_without_skipped(number.negative, after_sign, out),
        _ => append_decimal(&number, out),
    }
}

/// Appends the number at the start of `text`, whose integer part contains bytes to skip.
#[cold]
fn append_without_skipped(negative: bool, text: &[u8], out: &mut Vec<u8>) {
    let of_whole = |byte: &u8| byte.is_ascii_digit() || *byte == SKIPPED;
    let end = text.iter().position(|byte| !of_whole(byte)).unwrap_or(text.len());
    let (written, rest) = text.split_at(end);
    let whole: Vec<u8> = written.iter().copied().filter(u8::is_ascii_digit).collect();
    let (fraction, _) = take_fraction(rest);
    append_decimal(&Decimal { negative, whole: &whole, fraction, exponent: 0 }, out);
}

/// The number at the start of `text`, without blanks or exponent.
#[inline]
pub(super) fn leading_decimal(text: &[u8]) -> Decimal<'_> {
    let (negative, text) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        _ => (false, text),
    };
    let (whole, rest) = take_digits(text);
    let (fraction, _) = take_fraction(rest);
    Decimal { negative, whole, fraction, exponent: 0 }
}

/// Appends the encoding of `number`.
#[inline]
pub(super) fn append_decimal(number: &Decimal<'_>, out: &mut Vec<u8>) {
    let whole = trim_leading_zeros(number.whole);
    let mut fraction = trim_trailing_zeros(number.fraction);
    let mut exponent = whole.len() as i64;
    if whole.is_empty() {
        let significant = trim_leading_zeros(fraction);
        exponent = -((fraction.len() - significant.len()) as i64);
        fraction = significant;
    }
    let whole = if fraction.is_empty() { trim_trailing_zeros(whole) } else { whole };
    if whole.is_empty() && fraction.is_empty() {
        out.push(ZERO);
        return;
    }
    let base = out.len();
    append_exponent(exponent.saturating_add(number.exponent), out);
    append_pairs(whole, fraction, out);
    if number.negative {
        complement_from(out, base);
    }
}

#[inline]
fn append_exponent(exponent: i64, out: &mut Vec<u8>) {
    let tag = match exponent {
        LOWEST_EXPONENT..=HIGHEST_EXPONENT => {
            out.push(FIRST + (exponent - LOWEST_EXPONENT) as u8);
            return;
        }
        ..LOWEST_EXPONENT => TINY,
        _ => HUGE,
    };
    out.push(tag);
    out.extend_from_slice(&((exponent as u64) ^ (1 << 63)).to_be_bytes());
}

/// Two ASCII digits as 1 to 100.
#[inline]
fn pair(tens: u8, ones: u8) -> u8 {
    (tens & 15) * 10 + (ones & 15) + 1
}

#[inline]
fn append_pairs(whole: &[u8], fraction: &[u8], out: &mut Vec<u8>) {
    out.reserve((whole.len() + fraction.len()) / 2 + 2);
    let (pairs, odd) = whole.as_chunks::<2>();
    out.extend(pairs.iter().map(|&[tens, ones]| pair(tens, ones)));
    let mut fraction = fraction;
    if let [tens] = *odd {
        let ones = match fraction.split_first() {
            Some((&first, rest)) => {
                fraction = rest;
                first
            }
            None => b'0',
        };
        out.push(pair(tens, ones));
    }
    let (pairs, odd) = fraction.as_chunks::<2>();
    out.extend(pairs.iter().map(|&[tens, ones]| pair(tens, ones)));
    if let [tens] = *odd {
        out.push(pair(tens, b'0'));
    }
    out.push(0);
}

/// A text that is entirely a number: sign, digits with an optional point, optional exponent, or an infinity or NaN by
/// name in any case; spaces and tabs around it do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number<'t> {
    Finite(Decimal<'t>),
    Infinity { negative: bool },
    Nan,
}

impl<'t> Number<'t> {
    /// Parses all of `text`.
    pub(super) fn parse(text: &'t [u8]) -> Option<Number<'t>> {
        Number::parse_by(text, b'.')
    }

    /// Like [`parse`](Self::parse), with another decimal mark.
    #[inline]
    fn parse_by(text: &'t [u8], decimal: u8) -> Option<Number<'t>> {
        let text = text.trim_ascii();
        let (negative, magnitude) = take_sign(text);
        let (whole, rest) = take_digits(magnitude);
        let (fraction, rest) = match rest.split_first() {
            Some((mark, rest)) if *mark == decimal => take_digits(rest),
            _ => (&[][..], rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Number::named(negative, magnitude);
        }
        let exponent = match rest.split_first() {
            None => 0,
            Some((b'e' | b'E', rest)) => whole_exponent(rest)?,
            _ => return None,
        };
        Some(Number::Finite(Decimal { negative, whole, fraction, exponent }))
    }

    fn named(negative: bool, name: &[u8]) -> Option<Number<'static>> {
        if name.eq_ignore_ascii_case(b"inf") || name.eq_ignore_ascii_case(b"infinity") {
            Some(Number::Infinity { negative })
        } else if name.eq_ignore_ascii_case(b"nan") {
            Some(Number::Nan)
        } else {
            None
        }
    }

    /// Appends the encoding: -infinity, numbers, infinity, NaN.
    pub(super) fn append(&self, out: &mut Vec<u8>) {
        match self {
            Number::Finite(decimal) => append_decimal(decimal, out),
            Number::Infinity { negative: false } => out.push(INFINITY),
            Number::Infinity { negative: true } => out.push(!INFINITY),
            Number::Nan => out.push(NAN),
        }
    }
}

/// The marks within numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NumberMarks {
    /// Between the integer part and the fraction.
    pub decimal: u8,
    /// Between groups of three digits of the integer part, if any.
    pub group: Option<u8>,
}

impl NumberMarks {
    /// Parses the decimal mark, or the group mark and the decimal mark: `,` and `.,`.
    pub(super) fn read(text: &str) -> Option<NumberMarks> {
        let marks = match *text.as_bytes() {
            [decimal] => NumberMarks { decimal, group: None },
            [group, decimal] => NumberMarks { decimal, group: Some(group) },
            _ => return None,
        };
        let is_mark =
            |byte: u8| matches!(byte, b'.' | b',' | b'\'' | b'_' | b' ' | b'*' | b'/' | b';' | b':');
        let all = is_mark(marks.decimal) && marks.group.is_none_or(is_mark);
        (all && marks.decimal != b' ' && marks.group != Some(marks.decimal)).then_some(marks)
    }

    /// Appends the number if all of `text` is one; otherwise returns false and appends nothing.
    pub(super) fn append(self, text: &[u8], out: &mut Vec<u8>) -> bool {
        let text = text.trim_ascii();
        let plain = match self.group.filter(|group| text.contains(group)) {
            Some(group) => self.without_groups(text, group).map(Cow::Owned),
            None => Some(Cow::Borrowed(text)),
        };
        let number = plain.as_deref().and_then(|plain| Number::parse_by(plain, self.decimal));
        number.inspect(|number| number.append(out));
        number.is_some()
    }

    /// `text` without its group marks, if all groups are complete.
    fn without_groups(self, text: &[u8], group: u8) -> Option<Vec<u8>> {
        let sign = usize::from(matches!(text.first(), Some(b'-' | b'+')));
        let ends = |byte: &u8| *byte != group && !byte.is_ascii_digit();
        let end = text.iter().skip(sign).position(ends).map_or(text.len(), |end| end + sign);
        let mut groups = text.get(sign..end)?.split(|byte| *byte == group);
        let first = groups.next()?;
        if !(1..=3).contains(&first.len()) || groups.any(|group| group.len() != 3) {
            return None;
        }
        let rest = text.get(end..)?;
        let whole = text.get(..end)?.iter().copied().filter(|byte| *byte != group);
        (!rest.contains(&group)).then(|| whole.chain(rest.iter().copied()).collect())
    }
}

impl std::fmt::Display for NumberMarks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.group {
            Some(group) => write!(f, "{}{}", char::from(group), char::from(self.decimal)),
            None => write!(f, "{}", char::from(self.decimal)),
        }
    }
}

/// A signed exponent that is all of `text`.
fn whole_exponent(text: &[u8]) -> Option<i64> {
    let (exponent, rest) = take_exponent(text)?;
    rest.is_empty().then_some(exponent)
}

/// A signed exponent at the start of `text` and the text after it; `None` without a digit.
pub(super) fn take_exponent(text: &[u8]) -> Option<(i64, &[u8])> {
    let (negative, text) = take_sign(text);
    let (digits, rest) = take_digits(text);
    if digits.is_empty() {
        return None;
    }
    let value = digits.iter().fold(0i64, |value, &digit| {
        value.saturating_mul(10).saturating_add(i64::from(digit & 15)).min(EXPONENT_LIMIT)
    });
    Some((if negative { -value } else { value }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numeric(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        append_numeric(text.as_bytes(), &mut out);
        out
    }

    fn number(text: &str) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        Number::parse(text.as_bytes())?.append(&mut out);
        Some(out)
    }

    #[test]
    fn bytes_are_as_drawn() {
        assert_eq!(numeric("0"), [0x80]);
        assert_eq!(numeric("123"), [0x82 + 23, 13, 31, 0]);
        assert_eq!(numeric("-123.0"), [!(0x82 + 23), !13, !31, !0]);
        assert_eq!(numeric("1.234"), [0x82 + 21, 13, 35, 0]);
        assert_eq!(numeric("0.00500"), [0x82 + 18, 51, 0]);
    }

    #[test]
    fn ascending_table() {
        let big = "9".repeat(200);
        let tiny = format!("0.{}1", "0".repeat(200));
        let texts = [
            &format!("-{big}"),
            "-100",
            "-12.5",
            "-12",
            "-1",
            "-0.5",
            &format!("-{tiny}"),
            "0",
            &tiny,
            "0.05",
            "0.5",
            "1",
            "1.01",
            "1.1",
            "2",
            "9",
            "10",
            "12",
            "12.5",
            "99",
            "100",
            "101",
            &big,
            &format!("{big}0"),
        ];
        for pair in texts.windows(2) {
            assert!(numeric(pair[0]) < numeric(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn zeros_and_non_numbers_are_equal() {
        for text in ["", "abc", "-", "-0", "0.0", ".", "-.", "+5", "--5", "- 5", " \t-0.00x", "e5"] {
            assert_eq!(numeric(text), [0x80], "{text:?}");
        }
        assert_eq!(numeric("007.50e9"), numeric(" 7.5"));
        assert_eq!(numeric("1."), numeric("1"));
        assert_eq!(numeric("1,000"), numeric("1"));
    }

    #[test]
    fn byte_80_does_not_count_before_the_point() {
        let bytes = |text: &[u8]| {
            let mut out = Vec::new();
            append_numeric(text, &mut out);
            out
        };
        for text in [&b"\x8012.5"[..], b" 1\x802.5", b"1\x80\x802\x80.5", b"\x80\x8012.5\x80"] {
            assert_eq!(bytes(text), numeric("12.5"), "{text:?}");
            assert_eq!(bytes(&[b"-", text.trim_ascii_start()].concat()), numeric("-12.5"), "{text:?}");
        }
        assert_eq!(bytes(b"1.2\x805"), numeric("1.2"));
        assert_eq!(bytes(b".\x805"), numeric("0"));
        assert_eq!(bytes(b"\x80-5"), numeric("0"));
        assert_eq!(bytes(b"\x80 5"), numeric("0"));
        assert_eq!(bytes(b"1\x812"), numeric("1"));
    }

    #[test]
    fn whole_numbers_take_exponents() {
        let ascending = [
            "-inf",
            "-1e999999999999999999999",
            "-1e3",
            "-999",
            "-1e-400",
            "0",
            "1E-400",
            "2.5",
            "1e3",
            "+Infinity",
        ];
        for pair in ascending.windows(2) {
            assert!(number(pair[0]) < number(pair[1]), "{pair:?}");
        }
        assert_eq!(number("1.5e+3"), number(" 1500.00 "));
        assert_eq!(number("0e5"), number("-0"));
        assert!(number("NaN") > number("inf"));
        for text in ["", "-", ".", "1e", "1e+", "1x", "0x10", "1 2", "e5", "1e5.5", "in"] {
            assert_eq!(number(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn order_is_that_of_scaled_integers(a in any::<i64>(), b in any::<i64>(), sa in 0u32..30, sb in 0u32..30) {
            let write = |v: i64, scale: u32| {
                let digits = format!("{:0>40}", v.unsigned_abs());
                let (whole, fraction) = digits.split_at(40 - scale as usize);
                format!("{}{whole}.{fraction}", if v < 0 { "-" } else { "" })
            };
            // The exact values as integers of one scale, in digits of one length.
            let rescale = |v: i64, scale: u32| {
                let text = format!("{:0>70}{}", v.unsigned_abs(), "0".repeat(30 - scale as usize));
                (v < 0, format!("{text:0>110}"))
            };
            let direct = match (rescale(a, sa), rescale(b, sb)) {
                ((false, x), (false, y)) => x.cmp(&y),
                ((true, x), (true, y)) => y.cmp(&x),
                ((na, _), (nb, _)) => nb.cmp(&na),
            };
            prop_assert_eq!(numeric(&write(a, sa)).cmp(&numeric(&write(b, sb))), direct);
        }

        #[test]
        fn long_integers_order_by_length_then_digits(a in "[1-9][0-9]{0,300}", b in "[1-9][0-9]{0,300}") {
            let direct = a.len().cmp(&b.len()).then_with(|| a.cmp(&b));
            prop_assert_eq!(numeric(&a).cmp(&numeric(&b)), direct);
            prop_assert_eq!(numeric(&format!("-{a}")).cmp(&numeric(&format!("-{b}"))), direct.reverse());
        }
    }
}
