//! Generates the benchmark's records, any range of them, at several gigabytes per second and core.
//!
//! Binary records overlap. Written one after another as ten bytes each, the states form one
//! stream, and a record is a window of it masked with a constant, so that each record costs one
//! step of the generator and one masked copy of 100 bytes:
//!
//! ```text
//! stream     Y(n+1) Y(n+2) Y(n+3) ... Y(n+10) Y(n+11)      ten bytes each
//! record n   ├───────────── 100 bytes ──────┤              xor MASK
//! record n+1        ├───────────── 100 bytes ───────┤      xor MASK
//! ```
//!
//! Skewed records differ only in their key: its first bits come from one of 129 hot keys.

use super::{KEY_LEN, RECORD_LEN, lcg};

/// The benchmark's two kinds of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A key of ten arbitrary bytes and a binary payload.
    Binary,
    /// A key of ten printable characters, and a line that ends in CR LF.
    Ascii,
}

/// Records whose states are generated at a time.
const BATCH: usize = 512;

/// Bytes that the windows of two neighbouring records share.
const OVERLAP: usize = RECORD_LEN - KEY_LEN;

/// The mask of each byte of a binary record: ten blocks of ten.
const MASK: [u8; RECORD_LEN] = mask();

/// Bytes of a hot key that a skewed key can use.
const HOT_LEN: usize = 6;

/// Generates consecutive records, like an iterator.
///
/// ```
/// use ascot_record::gensort::{Encoding, RecordGenerator};
/// let mut generator = RecordGenerator::new(Encoding::Ascii, false, 0);
/// let mut records = [0; 200];
/// assert_eq!(generator.fill(&mut records), 2);
/// assert_eq!(&records[..10], b"AsfAGHM5om");
/// ```
#[derive(Clone)]
pub struct RecordGenerator {
    encoding: Encoding,
    /// Hot keys by the bit length of the record number, if the data are skewed.
    hot: Option<Box<[[u8; HOT_LEN]; 129]>>,
    /// Number of the next record.
    number: u128,
    /// X(number + 1), the state of its key.
    key_state: u128,
    /// Binary only: the next state of the stream, and the stream itself, which between calls begins with the nine
    /// blocks that the next record shares with the last.
    stream_state: u128,
    stream: Vec<u8>,
}

impl RecordGenerator {
    /// A generator whose first record has the number `start`.
    pub fn new(encoding: Encoding, skewed: bool, start: u128) -> Self {
        let key_state = lcg::state(start.wrapping_add(1));
        let mut generator = RecordGenerator {
            encoding,
            hot: skewed.then(|| hot_keys(encoding)),
            number: start,
            key_state,
            stream_state: key_state,
            stream: Vec::new(),
        };
        if encoding == Encoding::Binary {
            generator.stream = vec![0; OVERLAP + BATCH * KEY_LEN];
            generator.stream_state = extend(&mut generator.stream[..OVERLAP], key_state);
        }
        generator
    }

    /// Number of the next record.
    pub fn number(&self) -> u128 {
        self.number
    }

    /// Fills `out` with as many whole records as fit, and returns their number; bytes after them keep their values.
    pub fn fill(&mut self, out: &mut [u8]) -> usize {
        let count = out.len() / RECORD_LEN;
        let (records, _) = out.split_at_mut(count * RECORD_LEN);
        for batch in records.chunks_mut(BATCH * RECORD_LEN) {
            match self.encoding {
                Encoding::Binary => self.fill_binary(batch),
                Encoding::Ascii => self.fill_ascii(batch),
            }
        }
        count
    }

    /// Generates at most [`BATCH`] binary records.
    fn fill_binary(&mut self, batch: &mut [u8]) {
        let new_bytes = batch.len() / RECORD_LEN * KEY_LEN;
        let window_end = OVERLAP + new_bytes;
        self.stream_state = extend(&mut self.stream[OVERLAP..window_end], self.stream_state);

        let (records, _) = batch.as_chunks_mut::<RECORD_LEN>();
        for (record, window) in
            records.iter_mut().zip(self.stream[..window_end].windows(RECORD_LEN).step_by(KEY_LEN))
        {
            for ((out, byte), mask) in record.iter_mut().zip(window).zip(&MASK) {
                *out = byte ^ mask;
            }
        }
        self.stream.copy_within(new_bytes..window_end, 0);
        self.finish_binary(records);
    }

    /// Skews the keys of a batch, and steps over it.
    fn finish_binary(&mut self, records: &mut [[u8; RECORD_LEN]]) {
        if let Some(hot) = &self.hot {
            for record in records.iter_mut() {
                let bits = (self.key_state as u64 >> 32) & 63;
                if (1..=48).contains(&bits) {
                    mix_bits(record, &hot[bit_length(self.number)], bits as u32);
                }
                self.number = self.number.wrapping_add(1);
                self.key_state = lcg::next(self.key_state);
            }
        } else {
            // Without skew the key states, which are those of the stream nine steps back, are not used.
            self.number = self.number.wrapping_add(records.len() as u128);
        }
    }

    /// Generates at most [`BATCH`] ASCII records.
    fn fill_ascii(&mut self, batch: &mut [u8]) {
        let (records, _) = batch.as_chunks_mut::<RECORD_LEN>();
        let mut number_digits = NumberDigits::new(self.number);
        for record in records {
            write_ascii_key(record, self.key_state);
            if let Some(hot) = &self.hot {
                let bytes = (self.key_state as u64 >> 32) as usize & 7;
                if bytes <= HOT_LEN {
                    record[..bytes].copy_from_slice(&hot[bit_length(self.number)][..bytes]);
                }
            }
            record[10..12].copy_from_slice(b"  ");
            record[12..44].copy_from_slice(number_digits.of(self.number));
            record[44..46].copy_from_slice(b"  ");
            write_filler(record, self.key_state as u64);
            record[98..].copy_from_slice(b"\r\n");
            self.number = self.number.wrapping_add(1);
            self.key_state = lcg::next(self.key_state);
        }
    }
}

/// Writes `state` and its successors as ten bytes each; returns the next state.
#[inline]
fn extend(stream: &mut [u8], mut state: u128) -> u128 {
    for block in stream.as_chunks_mut::<KEY_LEN>().0 {
        let high = (state >> 64) as u64;
        let low = (state >> 48) as u16;
        block[..8].copy_from_slice(&high.to_be_bytes());
        block[8..].copy_from_slice(&low.to_be_bytes());
        state = lcg::next(state);
    }
    state
}

/// Takes the first `bits` (1 to 48) bits of the key from `hot`.
#[inline]
fn mix_bits(record: &mut [u8; RECORD_LEN], hot: &[u8; HOT_LEN], bits: u32) {
    let widen = |six: &[u8]| {
        let mut eight = [0; 8];
        eight[..HOT_LEN].copy_from_slice(&six[..HOT_LEN]);
        u64::from_be_bytes(eight)
    };
    let from_hot = u64::MAX << (64 - bits);
    let mixed = (widen(hot) & from_hot) | (widen(record) & !from_hot);
    record[..HOT_LEN].copy_from_slice(&mixed.to_be_bytes()[..HOT_LEN]);
}

/// Eight characters from the high half of the state and two from the low half, each half's
/// least significant digit in base 95 first.
#[inline]
fn write_ascii_key(record: &mut [u8; RECORD_LEN], state: u128) {
    let mut digits = |chars: std::ops::Range<usize>, mut rest: u64| {
        for char in &mut record[chars] {
            *char = b' ' + (rest % 95) as u8;
            rest /= 95;
        }
    };
    digits(0..8, (state >> 64) as u64);
    digits(8..10, state as u64);
}

/// Thirteen hexadecimal digits of the low half, four times each.
#[inline]
fn write_filler(record: &mut [u8; RECORD_LEN], low: u64) {
    for (i, four) in record[46..98].as_chunks_mut::<4>().0.iter_mut().enumerate() {
        *four = FOUR_DIGITS[(low >> (48 - 4 * i)) as usize & 15];
    }
}

/// The bits of a record number: 0 for 0, 128 at most.
fn bit_length(number: u128) -> usize {
    (u128::BITS - number.leading_zeros()) as usize
}

/// First bytes of the unskewed keys of the records 0 to 128.
fn hot_keys(encoding: Encoding) -> Box<[[u8; HOT_LEN]; 129]> {
    let mut plain = RecordGenerator::new(encoding, false, 0);
    let mut record = [0; RECORD_LEN];
    let mut keys = Box::new([[0; HOT_LEN]; 129]);
    for key in keys.iter_mut() {
        plain.fill(&mut record);
        key.copy_from_slice(&record[..HOT_LEN]);
    }
    keys
}

/// The 32 hexadecimal digits of ascending record numbers: only the last four change often.
struct NumberDigits {
    digits: [u8; 32],
    /// The number of the first 28 digits.
    upper: u128,
}

impl NumberDigits {
    fn new(number: u128) -> Self {
        let mut this = NumberDigits { digits: [0; 32], upper: 0 };
        this.set_upper(number >> 16);
        this
    }

    fn set_upper(&mut self, upper: u128) {
        self.upper = upper;
        for (pair, byte) in self.digits.as_chunks_mut::<2>().0.iter_mut().zip((upper << 16).to_be_bytes()) {
            *pair = TWO_DIGITS[byte as usize];
        }
    }

    #[inline]
    fn of(&mut self, number: u128) -> &[u8; 32] {
        if number >> 16 != self.upper {
            self.set_upper(number >> 16);
        }
        let [high, low] = (number as u16).to_be_bytes();
        self.digits[28..30].copy_from_slice(&TWO_DIGITS[high as usize]);
        self.digits[30..].copy_from_slice(&TWO_DIGITS[low as usize]);
        &self.digits
    }
}

const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// Two hexadecimal digits of every byte.
static TWO_DIGITS: [[u8; 2]; 256] = {
    let mut table = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    table
};

/// Every hexadecimal digit four times.
static FOUR_DIGITS: [[u8; 4]; 16] = {
    let mut table = [[0; 4]; 16];
    let mut digit = 0;
    while digit < 16 {
        table[digit] = [DIGITS[digit]; 4];
        digit += 1;
    }
    table
};

const fn mask() -> [u8; RECORD_LEN] {
    const BLOCKS: [u128; 10] = [
        0,
        0xF0E8_E4E2_E1D8_D4D2_D1CC,
        0xCAC9_C6C5_C3B8_B4B2_B1AC,
        0xAAA9_A6A5_A39C_9A99_9695,
        0x938E_8D8B_8778_7472_716C,
        0x6A69_6665_635C_5A59_5655,
        0x534E_4D4B_473C_3A39_3635,
        0x332E_2D2B_271E_1D1B_170F,
        0xC8C4_C2C1_9894_9291_8CE0,
        0x170F_332E_2D2B_271E_1D1B,
    ];
    let mut mask = [0; RECORD_LEN];
    let mut i = 0;
    while i < RECORD_LEN {
        mask[i] = BLOCKS[i / KEY_LEN].to_be_bytes()[6 + i % KEY_LEN];
        i += 1;
    }
    mask
}

#[cfg(test)]
#[path = "generator_tests.rs"]
mod tests;
