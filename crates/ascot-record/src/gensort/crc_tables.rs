//! Constants of the CRC-32 that zlib, PNG and Ethernet use, for carry-less multiplication.
//!
//! Bytes are read little-endian and bits are coefficients from the highest down: bit i of a 64-bit word w is the
//! coefficient of x^(63-i), and bit i of a 128-bit product that of x^(127-i). In these terms the product of two words
//! has one factor x too many, which the exponents below correct.

/// The generator polynomial without its highest term.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// Longest record, in bytes, that [`FOLD`] covers.
pub(super) const FOLD_BYTES: usize = 1024;

/// The factor of each 64-bit word of a record, chosen so that the products just add up: the word that ends d bytes
/// before the record's end gets x^(8d + 31) mod P. The last words come last, so that a shorter record uses a suffix
/// of the table.
pub(super) static FOLD: [u64; FOLD_BYTES / 8] = {
    let mut table = [0; FOLD_BYTES / 8];
    let mut word = table.len();
    let mut power = power_of_x(31);
    while word > 0 {
        word -= 1;
        table[word] = power;
        power = times_x(power, 64);
    }
    table
};

/// Folds the upper 32 bits of a 96-bit sum onto its lower 64: x^63 mod P.
pub(super) const FOLD_96: u64 = power_of_x(63);

/// P itself, and the quotient of x^64 by P: the two factors of Barrett's reduction from 64 bits.
pub(super) const BARRETT_P: u64 = 0x1_db71_0641;
pub(super) const BARRETT_QUOTIENT: u64 = 0x1_f701_1641;

/// The word for x^0.
const ONE: u64 = 1 << 63;

/// x^exponent mod P as a word.
const fn power_of_x(exponent: usize) -> u64 {
    times_x(ONE, exponent)
}

/// A word below x^32, whose lower half is therefore zero, times x^exponent, mod P.
const fn times_x(word: u64, exponent: usize) -> u64 {
    let mut remainder = (word >> 32) as u32;
    let mut i = 0;
    while i < exponent {
        let carry = remainder & 1;
        remainder >>= 1;
        if carry == 1 {
            remainder ^= POLYNOMIAL;
        }
        i += 1;
    }
    (remainder as u64) << 32
}
