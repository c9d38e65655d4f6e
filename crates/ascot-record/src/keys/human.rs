//! Numbers with a unit, as the sort command's `-h` reads them: `2K`, `1.5G`, `-3M`.
//!
//! The unit decides before the number: a key is the unit's order (`-8` to `8`, negative for negative numbers) and
//! then the number encoded as for `-n`. A number that consists only of zeros has no unit, and byte 80, which `-n`
//! skips, ends the digits before the unit.

use super::bytes::skip_blanks;
use super::numeric::{append_leading_decimal, leading_decimal};

/// The byte for a number without a unit.
const NO_UNIT: u8 = 0x80;

/// Appends the key of `text`; `fold` treats small letters as capitals (`-f`).
pub(super) fn append_human(text: &[u8], fold: bool, out: &mut Vec<u8>) {
    let text = skip_blanks(text);
    let number = leading_decimal(text);
    let digits = || number.whole.iter().chain(number.fraction);
    let order = if digits().any(|&digit| digit != b'0') { unit_order(unit(text), fold) } else { 0 };
    out.push(if number.negative { NO_UNIT - order } else { NO_UNIT + order });
    append_leading_decimal(text, out);
}

/// The byte after the number at the start of `text`.
fn unit(text: &[u8]) -> Option<u8> {
    let rest = text.strip_prefix(b"-").unwrap_or(text);
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let mut bytes = rest.iter().copied().skip_while(is_digit);
    let behind = bytes.next();
    if behind == Some(b'.') { bytes.find(|byte| !is_digit(byte)) } else { behind }
}

fn unit_order(unit: Option<u8>, fold: bool) -> u8 {
    let unit = unit.map(|byte| if fold { byte.to_ascii_uppercase() } else { byte });
    match unit {
        Some(b'K' | b'k') => 1,
        Some(b'M') => 2,
        Some(b'G') => 3,
        Some(b'T') => 4,
        Some(b'P') => 5,
        Some(b'E') => 6,
        Some(b'Z') => 7,
        Some(b'Y') => 8,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::append_human;

    fn human(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        append_human(text.as_bytes(), false, &mut out);
        out
    }

    #[test]
    fn ascending_table() {
        let texts = [
            "-1Y", "-1G", "-2K", "-1k", "-5000", "-1", "0G", "1", "999", "1023m", "1K", "1.5k", "2K", "1M",
            "1Y",
        ];
        for pair in texts.windows(2) {
            assert!(human(pair[0]) < human(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn equal_table() {
        assert_eq!(human(" 1.50K"), human("1.5kB"));
        assert_eq!(human("0K"), human(""));
        assert_eq!(human(".K"), human("-"));
        assert_eq!(human("5.K"), human("5K"));
        assert_eq!(human("1R"), human("1"));
        let mut out = Vec::new();
        append_human(b"1\x802K", false, &mut out);
        assert_eq!(out, human("12"));
    }
}
