//! Rounds to the 80-bit extended format: a sign, 15 bits of exponent, 64 bits of significand.
//!
//! The sort command's `-g` compares such values, so two texts are equal exactly when they round to the same one.
//! Rounding is to nearest, ties to even, like the C library's: correct for any number of digits.
//!
//! ```text
//! value = significand x 2^(exponent - 16446), the top bit of the significand set
//!         exponent 0: subnormal, as exponent 1 without that bit; 7FFF: infinity
//! ```
//!
//! Up to 19 digits and a small power of ten are rounded here, exactly, in 128 bits: this is fast, and covers most
//! numbers. All others are rounded by `rustc_apfloat`, whose work is bounded because digits beyond [`DIGITS`] can
//! only break a tie.

use rustc_apfloat::ieee::X87DoubleExtended;
use rustc_apfloat::{Float, Round};

/// Significant digits that can matter: the midpoint of two neighbouring values never has more.
pub(super) const DIGITS: usize = 11_600;

const BIAS: i64 = 16_446;
const EXPONENT_INFINITY: u16 = 0x7FFF;
/// The decimal exponent from which every number is infinite, and the one below which every number is zero.
const DECIMAL_HIGHEST: i64 = 4_940;
const DECIMAL_LOWEST: i64 = -4_960;

/// The magnitude of a value; values order as (exponent, significand).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Extended {
    pub(super) exponent: u16,
    pub(super) significand: u64,
}

impl Extended {
    pub(super) const ZERO: Extended = Extended { exponent: 0, significand: 0 };
    pub(super) const INFINITY: Extended = Extended { exponent: EXPONENT_INFINITY, significand: 1 << 63 };

    /// The value that `text`, a valid number, is rounded to.
    pub(super) fn from_text(text: &str) -> Extended {
        let bits = X87DoubleExtended::from_str_r(text, Round::NearestTiesToEven)
            .map_or(0, |rounded| rounded.value.to_bits());
        // The lower half is the significand, its top bit included; the sign is not set.
        Extended { exponent: (bits >> 64) as u16, significand: bits as u64 }
    }

    /// `digits x 10^exponent`, each digit 0 to 9, the first one not 0.
    pub(super) fn from_decimal(digits: impl Iterator<Item = u8> + Clone, exponent: i64) -> Extended {
        let count = digits.clone().count();
        let highest = exponent.saturating_add(count as i64);
        if count == 0 || highest < DECIMAL_LOWEST {
            return Extended::ZERO;
        }
        if highest > DECIMAL_HIGHEST {
            return Extended::INFINITY;
        }
        if count <= 19 && (-27..=27).contains(&exponent) {
            let value = digits.fold(0u64, |value, digit| value * 10 + u64::from(digit));
            return small(value, exponent);
        }
        let mut text: String = digits.clone().take(DIGITS).map(|digit| char::from(b'0' + digit)).collect();
        let mut exponent = exponent;
        if count > DIGITS {
            // One more digit replaces all that follow.
            text.push(if digits.skip(DIGITS).any(|digit| digit != 0) { '1' } else { '0' });
            exponent += (count - DIGITS) as i64 - 1;
        }
        Extended::from_text(&format!("{text}e{exponent}"))
    }
}

/// Rounds `bits x 2^exponent`, which is far from both ends of the range; if `more`, the bits below the last one of
/// `bits` are not all zero.
fn round(bits: u128, exponent: i64, more: bool) -> Extended {
    let zeros = bits.leading_zeros();
    let bits = bits << zeros;
    let top = (bits >> 64) as u64;
    let below = bits as u64;
    let half = 1u64 << 63;
    let up = below > half || (below == half && (more || top & 1 == 1));
    let (significand, carry) = top.checked_add(u64::from(up)).map_or((half, 1), |sum| (sum, 0));
    Extended { exponent: (exponent - i64::from(zeros) + 64 + BIAS + carry) as u16, significand }
}

/// `value x 10^exponent` for exponents from -27 to 27: 5^27 fits 63 bits.
fn small(value: u64, exponent: i64) -> Extended {
    if value == 0 {
        return Extended::ZERO;
    }
    let power = u128::from(5u64.pow(exponent.unsigned_abs() as u32));
    if exponent >= 0 {
        return round(u128::from(value) * power, exponent, false);
    }
    // Numerator and divisor are scaled to 128 and at most 63 bits, so the quotient has at least 65.
    let shift = 64 + value.leading_zeros();
    let numerator = u128::from(value) << shift;
    let quotient = numerator / power;
    round(quotient, exponent - i64::from(shift), quotient * power != numerator)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(digits: &str, exponent: i64) -> Extended {
        Extended::from_decimal(digits.bytes().map(|digit| digit - b'0'), exponent)
    }

    #[test]
    fn known_values() {
        assert_eq!(decimal("1", 0), Extended { exponent: 16383, significand: 1 << 63 });
        assert_eq!(decimal("5", -1), Extended { exponent: 16382, significand: 1 << 63 });
        assert_eq!(decimal("1", -1), Extended { exponent: 16379, significand: 0xCCCC_CCCC_CCCC_CCCD });
        assert_eq!(decimal("36893488147419103231", 0).exponent, 16383 + 65);
        assert_eq!(
            decimal("18446744073709551615", 0),
            Extended { exponent: 16383 + 63, significand: u64::MAX }
        );
    }

    #[test]
    fn ties_go_to_even() {
        // 2^64 + 1 lies halfway between 2^64 and 2^64 + 2, 2^64 + 3 between + 2 and + 4.
        assert_eq!(decimal("18446744073709551617", 0), decimal("18446744073709551616", 0));
        assert_eq!(decimal("18446744073709551619", 0), decimal("18446744073709551620", 0));
        let above = format!("18446744073709551617{}1", "0".repeat(12_000));
        assert_eq!(decimal(&above, -12_001), decimal("18446744073709551618", 0));
    }

    #[test]
    fn ends_of_the_range() {
        assert_eq!(
            decimal("1", 4932),
            Extended { exponent: 0x7FFE, significand: decimal("1", 4932).significand }
        );
        assert_eq!(decimal("2", 4932), Extended::INFINITY);
        assert_eq!(decimal("1", i64::MAX), Extended::INFINITY);
        // The smallest subnormal is 3.6452e-4951; half of it and less is zero.
        assert_eq!(decimal("4", -4951), Extended { exponent: 0, significand: 1 });
        assert_eq!(decimal("18", -4952), Extended::ZERO);
        assert_eq!(decimal("19", -4952), Extended { exponent: 0, significand: 1 });
        assert_eq!(decimal("1", i64::MIN), Extended::ZERO);
    }

    #[test]
    fn both_ways_agree() {
        for exponent in -27..=27 {
            for value in [1u64, 3, 7, 999, 123_456_789_012_345_678, 9_999_999_999_999_999_999] {
                assert_eq!(
                    small(value, exponent),
                    Extended::from_text(&format!("{value}e{exponent}")),
                    "{value}e{exponent}"
                );
            }
        }
    }
}
