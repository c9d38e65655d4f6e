//! CRC-32 of many short records of one length.
//!
//! A CRC is nearly linear: the CRC of a record is that of as many zeros, xor a sum over its words of the word times a
//! power of x, all modulo P. A general routine processes a long message in sequence; for short records it is faster
//! to multiply all words at once by the constants of their positions, add the products, and reduce once:
//!
//! ```text
//! record    w0   w1   w2  ...  w12      64-bit words, the first one partly zeros
//!           ·c0  ·c1  ·c2      ·c12     carry-less products, at most 96 bits
//!            └────┴─ xor ┴──────┘
//!                96 bits ──> 64 bits ──> 32 bits ──> xor CRC(zeros)
//! ```
//!
//! With AVX-512 one instruction computes four products, and four records are reduced together. Other processors, and
//! records too long for the table of constants, use the general routine, which is faster than products of two words
//! at a time.

use super::crc_tables::FOLD_BYTES;

/// Sums the CRC-32 (zlib's) of records of one length.
///
/// ```
/// let crc = ascot_record::gensort::RecordCrc::new(9);
/// assert_eq!(crc.sum(b"123456789"), 0xcbf4_3926);
/// ```
#[derive(Clone, Debug)]
pub struct RecordCrc {
    record_len: usize,
    kernel: Kernel,
}

/// The method of summing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    /// The general routine, record by record.
    General,
    /// Carry-less products of eight words at a time, given the CRC of a record of zeros. Created only if the
    /// processor has the instructions.
    #[cfg(target_arch = "x86_64")]
    Products { zeros: u32 },
}

impl RecordCrc {
    /// For records of `record_len` bytes, which must not be zero.
    pub fn new(record_len: usize) -> Self {
        #[cfg(target_arch = "x86_64")]
        if (1..=FOLD_BYTES).contains(&record_len) && super::crc_x86::available() {
            let zeros = crc32fast::hash(&[0; FOLD_BYTES][..record_len]);
            return RecordCrc { record_len, kernel: Kernel::Products { zeros } };
        }
        RecordCrc { record_len, kernel: Kernel::General }
    }

    /// The sum of the CRC-32 of every whole record in `records`; an incomplete record at the end does not count.
    #[expect(unsafe_code, reason = "calls a vector kernel that the processor has")]
    pub fn sum(&self, records: &[u8]) -> u128 {
        if self.record_len == 0 {
            return 0;
        }
        let whole = &records[..records.len() / self.record_len * self.record_len];
        match self.kernel {
            Kernel::General => {
                whole.chunks_exact(self.record_len).map(|record| u128::from(crc32fast::hash(record))).sum()
            }
            // SAFETY: `new` chooses this kernel only if the processor supports it.
            #[cfg(target_arch = "x86_64")]
            Kernel::Products { zeros } => unsafe {
                super::crc_x86::sum(whole, self.record_len, zeros).into()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reference(records: &[u8], record_len: usize) -> u128 {
        records.chunks_exact(record_len).map(|record| u128::from(crc32fast::hash(record))).sum()
    }

    /// Both kernels, on exactly `data`.
    fn check_all(data: &[u8], record_len: usize) {
        for crc in [RecordCrc::new(record_len), RecordCrc { record_len, kernel: Kernel::General }] {
            assert_eq!(crc.sum(data), reference(data, record_len), "{crc:?}");
        }
    }

    #[test]
    fn every_length_agrees_with_the_general_routine() {
        let data: Vec<u8> = (0..20_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for record_len in 1..=FOLD_BYTES + 1 {
            for count in [1, 4, 7] {
                check_all(&data[..record_len * count], record_len);
            }
        }
    }

    #[test]
    fn nothing_sums_to_nothing() {
        check_all(&[], 100);
        assert_eq!(RecordCrc::new(100).sum(&[1; 99]), 0, "an incomplete record does not count");
        assert_eq!(RecordCrc::new(0).sum(&[1; 99]), 0);
    }

    #[test]
    fn a_sum_passes_32_bits() {
        let data = vec![0xff; 100 * 1000];
        check_all(&data, 100);
        assert!(RecordCrc::new(100).sum(&data) > u128::from(u32::MAX));
    }

    proptest! {
        #[test]
        fn any_bytes_agree(data in prop::collection::vec(any::<u8>(), 0..3000), record_len in 1_usize..300) {
            check_all(&data, record_len);
        }
    }
}
