//! CRC-32 of many short records of one length.
//!
//! A CRC is nearly linear: that of a record is that of as many zeros, xor a sum over its words
//! of the word times a power of x, all modulo P. A general routine walks along a long message;
//! for short records it is quicker to multiply all the words at once by the constants of their
//! places, add the products, and reduce once:
//!
//! ```text
//! record    w0   w1   w2  ...  w12      64-bit words, the first one partly zeros
//!           ·c0  ·c1  ·c2      ·c12     carry-less products, at most 96 bits
//!            └────┴─ xor ┴──────┘
//!                96 bits ──> 64 bits ──> 32 bits ──> xor CRC(zeros)
//! ```
//!
//! With AVX-512 one instruction makes four products and four records are reduced together.
//! Processors without carry-less multiplication, and records too long for the table of
//! constants, take the general routine.

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

/// How sums are taken. The two x86 variants hold the CRC of a record of zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    /// The general routine, record by record.
    General,
    /// Carry-less products of two words at a time. Made only where the processor has them.
    #[cfg(target_arch = "x86_64")]
    Narrow { zeros: u32 },
    /// Carry-less products of eight words at a time. Made only where the processor has them.
    #[cfg(target_arch = "x86_64")]
    Wide { zeros: u32 },
}

impl RecordCrc {
    /// For records of `record_len` bytes, which must not be zero.
    pub fn new(record_len: usize) -> Self {
        let kernel = *Kernel::available(record_len).last().unwrap_or(&Kernel::General);
        RecordCrc { record_len, kernel }
    }

    /// The sum of the CRC-32 of every whole record in `records`; what is left over at the end
    /// does not count.
    pub fn sum(&self, records: &[u8]) -> u128 {
        if self.record_len == 0 {
            return 0;
        }
        let whole = &records[..records.len() / self.record_len * self.record_len];
        match self.kernel {
            Kernel::General => {
                whole.chunks_exact(self.record_len).map(|record| u128::from(crc32fast::hash(record))).sum()
            }
            // SAFETY: `available` makes this kernel only where the processor has what it needs.
            #[cfg(target_arch = "x86_64")]
            Kernel::Narrow { zeros } => unsafe {
                super::crc_x86::sum_narrow(whole, self.record_len, zeros).into()
            },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kernel::Wide { zeros } => unsafe {
                super::crc_x86::sum_wide(whole, self.record_len, zeros).into()
            },
        }
    }
}

impl Kernel {
    /// The kernels that work here for records of this length, the best one last.
    fn available(record_len: usize) -> Vec<Kernel> {
        let mut kernels = vec![Kernel::General];
        #[cfg(target_arch = "x86_64")]
        if (1..=FOLD_BYTES).contains(&record_len) {
            let zeros = crc32fast::hash(&[0; FOLD_BYTES][..record_len]);
            if super::crc_x86::has_narrow() {
                kernels.push(Kernel::Narrow { zeros });
            }
            if super::crc_x86::has_wide() {
                kernels.push(Kernel::Wide { zeros });
            }
        }
        kernels
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reference(records: &[u8], record_len: usize) -> u128 {
        records.chunks_exact(record_len).map(|record| u128::from(crc32fast::hash(record))).sum()
    }

    /// Every kernel that works on this machine, on exactly `data`.
    fn check_all(data: &[u8], record_len: usize) {
        for kernel in Kernel::available(record_len) {
            let crc = RecordCrc { record_len, kernel };
            assert_eq!(crc.sum(data), reference(data, record_len), "{kernel:?}, {record_len} bytes");
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
