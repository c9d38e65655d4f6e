//! The carry-less products of `crc`, with x86 instructions.
//!
//! Invariants: callers have checked [`available`]; a record has 1 to [`FOLD_BYTES`](super::crc_tables::FOLD_BYTES)
//! bytes and `records` holds whole ones. Words are counted from the end of a record, so that its first block is the
//! incomplete one; the bytes missing at its front read as zeros and add nothing.

use super::crc_tables::{BARRETT_P, BARRETT_QUOTIENT, FOLD, FOLD_96};
use std::arch::x86_64::*;

/// Bytes of a block.
const BLOCK: usize = 64;

/// The halves of its operands that a product uses: first operand, then second.
const LOW_LOW: i32 = 0x00;
const HIGH_LOW: i32 = 0x01;
const HIGH_HIGH: i32 = 0x11;

/// Whether [`sum`] works on this processor.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("vpclmulqdq")
}

/// The sum of the CRC-32 of every record; `zeros` is that of a record of zeros.
///
/// # Safety
/// The processor must have the features that [`available`] checks.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,vpclmulqdq")]
pub(super) fn sum(records: &[u8], record_len: usize, zeros: u32) -> u64 {
    let missing = record_len.next_multiple_of(BLOCK) - record_len;
    let blocks = record_len.div_ceil(BLOCK);
    let factors = &FOLD[FOLD.len() - blocks * (BLOCK / 8)..];
    let zero_crc = _mm512_set1_epi64(zeros.into());
    let mut sums = _mm512_setzero_si512();

    let mut quads = records.chunks_exact(4 * record_len);
    for quad in quads.by_ref() {
        let mut products = [_mm512_setzero_si512(); 4];
        for (product, record) in products.iter_mut().zip(quad.chunks_exact(record_len)) {
            *product = products_of(record, missing, factors);
        }
        let crcs = _mm512_xor_si512(reduce(add_lanes(products)), zero_crc);
        // The odd halves hold leftovers of the reduction.
        sums = _mm512_add_epi64(sums, _mm512_maskz_mov_epi64(0b0101_0101, crcs));
    }
    let mut sum = _mm512_reduce_add_epi64(sums) as u64;
    for record in quads.remainder().chunks_exact(record_len) {
        let mut products = [_mm512_setzero_si512(); 4];
        products[0] = products_of(record, missing, factors);
        let crcs = _mm512_xor_si512(reduce(add_lanes(products)), zero_crc);
        sum += _mm_cvtsi128_si64(_mm512_castsi512_si128(crcs)) as u64;
    }
    sum
}

/// The products of all words of one record, added up by position within a block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,vpclmulqdq")]
#[expect(unsafe_code, reason = "vector instructions that the processor has")]
fn products_of(record: &[u8], missing: usize, factors: &[u64]) -> __m512i {
    let mut sum = _mm512_setzero_si512();
    let mut mask = u64::MAX << missing;
    let mut block_at = record.as_ptr().wrapping_sub(missing);
    for factor in factors.chunks_exact(BLOCK / 8) {
        // SAFETY: the mask leaves out the bytes before the record, and the last block ends where
        // the record ends; bytes that are masked out are not touched. The constants are eight.
        let (words, factor) = unsafe {
            (_mm512_maskz_loadu_epi8(mask, block_at.cast()), _mm512_loadu_si512(factor.as_ptr().cast()))
        };
        let low = _mm512_clmulepi64_epi128::<LOW_LOW>(words, factor);
        let high = _mm512_clmulepi64_epi128::<HIGH_HIGH>(words, factor);
        sum = _mm512_ternarylogic_epi64::<0x96>(sum, low, high);
        mask = u64::MAX;
        block_at = block_at.wrapping_add(BLOCK);
    }
    sum
}

/// Adds the four lanes of each of four vectors; lane i of the result belongs to vector i.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,vpclmulqdq")]
fn add_lanes([a, b, c, d]: [__m512i; 4]) -> __m512i {
    const FRONT: i32 = 0b01_00_01_00;
    const BACK: i32 = 0b11_10_11_10;
    const EVEN: i32 = 0b10_00_10_00;
    const ODD: i32 = 0b11_01_11_01;
    let ab = _mm512_xor_si512(_mm512_shuffle_i64x2::<FRONT>(a, b), _mm512_shuffle_i64x2::<BACK>(a, b));
    let cd = _mm512_xor_si512(_mm512_shuffle_i64x2::<FRONT>(c, d), _mm512_shuffle_i64x2::<BACK>(c, d));
    _mm512_xor_si512(_mm512_shuffle_i64x2::<EVEN>(ab, cd), _mm512_shuffle_i64x2::<ODD>(ab, cd))
}

/// Reduces each lane from 96 bits to the 32 of a remainder, in the lane's low half.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,vpclmulqdq")]
fn reduce(sum: __m512i) -> __m512i {
    let low_32 = _mm512_set1_epi64(0xffff_ffff);
    let times = |value, factor: u64| (value, _mm512_set1_epi64(factor as i64));
    let (value, factor) = times(sum, FOLD_96);
    // From here on the value is the high half of each lane.
    let value = _mm512_xor_si512(sum, _mm512_clmulepi64_epi128::<LOW_LOW>(value, factor));
    let (top, factor) = times(_mm512_and_si512(value, low_32), BARRETT_QUOTIENT);
    let quotient = _mm512_clmulepi64_epi128::<HIGH_LOW>(top, factor);
    let (quotient, factor) = times(_mm512_and_si512(quotient, low_32), BARRETT_P);
    let multiple = _mm512_clmulepi64_epi128::<LOW_LOW>(quotient, factor);
    let value = _mm512_unpackhi_epi64(value, value);
    _mm512_srli_epi64::<32>(_mm512_xor_si512(value, multiple))
}
