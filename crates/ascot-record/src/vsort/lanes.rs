//! Vectors of integers: the few operations that sorting needs.

use std::arch::x86_64::{
    __m512i, __mmask8, __mmask16, _mm_loadl_epi64, _mm512_cmple_epu32_mask, _mm512_cmple_epu64_mask,
    _mm512_cmplt_epu32_mask, _mm512_cmplt_epu64_mask, _mm512_cvtepu8_epi64, _mm512_loadu_si512,
    _mm512_mask_blend_epi32, _mm512_mask_blend_epi64, _mm512_mask_expand_epi32, _mm512_mask_loadu_epi32,
    _mm512_mask_loadu_epi64, _mm512_mask_storeu_epi32, _mm512_mask_storeu_epi64, _mm512_maskz_compress_epi32,
    _mm512_max_epu32, _mm512_max_epu64, _mm512_min_epu32, _mm512_min_epu64, _mm512_permutex_epi64,
    _mm512_permutexvar_epi32, _mm512_permutexvar_epi64, _mm512_set1_epi32, _mm512_set1_epi64,
    _mm512_setr_epi32, _mm512_setr_epi64, _mm512_shuffle_epi32, _mm512_shuffle_i64x2, _mm512_storeu_si512,
};

/// A vector register of unsigned integers.
///
/// # Safety
/// Every method needs AVX-512F: call them only from functions compiled for it. Methods that take
/// pointers touch exactly the elements they name; the rest of the vector may lie outside memory.
#[expect(unsafe_code, reason = "vector instructions that the processor has")]
pub(super) trait Lanes: Copy {
    /// The integer.
    type Item: Copy + Ord;
    /// Integers in a vector.
    const COUNT: usize;
    /// Binary logarithm of `COUNT`.
    const BITS: u32;

    /// All lanes equal `item`.
    unsafe fn splat(item: Self::Item) -> Self;
    /// `COUNT` integers.
    unsafe fn load(from: *const Self::Item) -> Self;
    /// The first `count` integers; the greatest value in the other lanes.
    unsafe fn load_first(from: *const Self::Item, count: usize) -> Self;
    /// All lanes.
    unsafe fn store(self, to: *mut Self::Item);
    /// Lane i to `to[i]`, for the lanes set in `mask`.
    unsafe fn store_masked(self, to: *mut Self::Item, mask: u32);
    /// The minimum, lane by lane.
    unsafe fn min(self, other: Self) -> Self;
    /// The maximum, lane by lane.
    unsafe fn max(self, other: Self) -> Self;
    /// Lanes at most those of `pivot`, or less than those if `STRICT`.
    unsafe fn below<const STRICT: bool>(self, pivot: Self) -> u32;
    /// Lanes in `mask` first, the others after them.
    unsafe fn split(self, mask: u32) -> Self;
    /// Lane i from lane `i ^ (1 << BIT)`.
    unsafe fn swap<const BIT: u32>(self) -> Self;
    /// Lane i from lane `i ^ ((2 << BIT) - 1)`.
    unsafe fn flip<const BIT: u32>(self) -> Self;
    /// Lanes whose number has `BIT` clear from `self`, the others from `set`.
    unsafe fn blend<const BIT: u32>(self, set: Self) -> Self;
}

/// Lane numbers that have `BIT` set.
const fn lanes_with(bit: u32) -> u32 {
    [0xaaaa, 0xcccc, 0xf0f0, 0xff00][bit as usize]
}

/// For every mask, the lanes it holds in ascending order, then the others.
const fn split_table() -> [[u8; 8]; 256] {
    let mut table = [[0; 8]; 256];
    let mut mask = 0;
    while mask < 256 {
        let mut lane = 0;
        let mut chosen = 0;
        let mut other = (mask as u32).count_ones() as usize;
        while lane < 8 {
            if mask >> lane & 1 == 1 {
                table[mask][chosen] = lane as u8;
                chosen += 1;
            } else {
                table[mask][other] = lane as u8;
                other += 1;
            }
            lane += 1;
        }
        mask += 1;
    }
    table
}

static SPLIT: [[u8; 8]; 256] = split_table();

/// Mask of the first `count` lanes, of at most 16.
#[inline(always)]
pub(super) fn first_lanes(count: usize) -> u32 {
    (1 << count) - 1
}

/// Eight u64.
#[derive(Clone, Copy)]
pub(super) struct U64x8(__m512i);

// SAFETY of the intrinsics below: the trait's rule provides AVX-512F, and memory is touched
// through the caller's pointers only, in the lanes that the masks name.
#[expect(unsafe_code, reason = "vector instructions that the processor has")]
#[expect(clippy::undocumented_unsafe_blocks, reason = "one reason for all, just above")]
impl Lanes for U64x8 {
    type Item = u64;
    const COUNT: usize = 8;
    const BITS: u32 = 3;

    #[inline(always)]
    unsafe fn splat(item: u64) -> Self {
        U64x8(unsafe { _mm512_set1_epi64(item as i64) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u64) -> Self {
        U64x8(unsafe { _mm512_loadu_si512(from.cast()) })
    }

    #[inline(always)]
    unsafe fn load_first(from: *const u64, count: usize) -> Self {
        U64x8(unsafe {
            _mm512_mask_loadu_epi64(_mm512_set1_epi64(-1), first_lanes(count) as __mmask8, from.cast())
        })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u64) {
        unsafe { _mm512_storeu_si512(to.cast(), self.0) };
    }

    #[inline(always)]
    unsafe fn store_masked(self, to: *mut u64, mask: u32) {
        unsafe { _mm512_mask_storeu_epi64(to.cast(), mask as __mmask8, self.0) };
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        U64x8(unsafe { _mm512_min_epu64(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        U64x8(unsafe { _mm512_max_epu64(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn below<const STRICT: bool>(self, pivot: Self) -> u32 {
        u32::from(unsafe {
            if STRICT {
                _mm512_cmplt_epu64_mask(self.0, pivot.0)
            } else {
                _mm512_cmple_epu64_mask(self.0, pivot.0)
            }
        })
    }

    #[inline(always)]
    unsafe fn split(self, mask: u32) -> Self {
        U64x8(unsafe {
            let lanes = SPLIT.as_ptr().add((mask & 0xff) as usize);
            _mm512_permutexvar_epi64(_mm512_cvtepu8_epi64(_mm_loadl_epi64(lanes.cast())), self.0)
        })
    }

    #[inline(always)]
    unsafe fn swap<const BIT: u32>(self) -> Self {
        U64x8(unsafe {
            match BIT {
                0 => _mm512_permutex_epi64::<0b10_11_00_01>(self.0),
                1 => _mm512_permutex_epi64::<0b01_00_11_10>(self.0),
                _ => _mm512_shuffle_i64x2::<0b01_00_11_10>(self.0, self.0),
            }
        })
    }

    #[inline(always)]
    unsafe fn flip<const BIT: u32>(self) -> Self {
        U64x8(unsafe {
            match BIT {
                0 => _mm512_permutex_epi64::<0b10_11_00_01>(self.0),
                1 => _mm512_permutex_epi64::<0b00_01_10_11>(self.0),
                _ => _mm512_permutexvar_epi64(_mm512_setr_epi64(7, 6, 5, 4, 3, 2, 1, 0), self.0),
            }
        })
    }

    #[inline(always)]
    unsafe fn blend<const BIT: u32>(self, set: Self) -> Self {
        U64x8(unsafe { _mm512_mask_blend_epi64(lanes_with(BIT) as __mmask8, self.0, set.0) })
    }
}

/// Sixteen u32.
#[derive(Clone, Copy)]
pub(super) struct U32x16(__m512i);

// SAFETY of the intrinsics below: as above.
#[expect(unsafe_code, reason = "vector instructions that the processor has")]
#[expect(clippy::undocumented_unsafe_blocks, reason = "one reason for all, just above")]
impl Lanes for U32x16 {
    type Item = u32;
    const COUNT: usize = 16;
    const BITS: u32 = 4;

    #[inline(always)]
    unsafe fn splat(item: u32) -> Self {
        U32x16(unsafe { _mm512_set1_epi32(item as i32) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        U32x16(unsafe { _mm512_loadu_si512(from.cast()) })
    }

    #[inline(always)]
    unsafe fn load_first(from: *const u32, count: usize) -> Self {
        U32x16(unsafe {
            _mm512_mask_loadu_epi32(_mm512_set1_epi32(-1), first_lanes(count) as __mmask16, from.cast())
        })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        unsafe { _mm512_storeu_si512(to.cast(), self.0) };
    }

    #[inline(always)]
    unsafe fn store_masked(self, to: *mut u32, mask: u32) {
        unsafe { _mm512_mask_storeu_epi32(to.cast(), mask as __mmask16, self.0) };
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        U32x16(unsafe { _mm512_min_epu32(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        U32x16(unsafe { _mm512_max_epu32(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn below<const STRICT: bool>(self, pivot: Self) -> u32 {
        u32::from(unsafe {
            if STRICT {
                _mm512_cmplt_epu32_mask(self.0, pivot.0)
            } else {
                _mm512_cmple_epu32_mask(self.0, pivot.0)
            }
        })
    }

    /// No table can hold 65,536 permutations: the other lanes are expanded after the chosen ones.
    #[inline(always)]
    unsafe fn split(self, mask: u32) -> Self {
        let behind = !first_lanes(mask.count_ones() as usize) as __mmask16;
        U32x16(unsafe {
            let chosen = _mm512_maskz_compress_epi32(mask as __mmask16, self.0);
            let others = _mm512_maskz_compress_epi32(!mask as __mmask16, self.0);
            _mm512_mask_expand_epi32(chosen, behind, others)
        })
    }

    #[inline(always)]
    unsafe fn swap<const BIT: u32>(self) -> Self {
        U32x16(unsafe {
            match BIT {
                0 => _mm512_shuffle_epi32::<0b10_11_00_01>(self.0),
                1 => _mm512_shuffle_epi32::<0b01_00_11_10>(self.0),
                2 => _mm512_permutex_epi64::<0b01_00_11_10>(self.0),
                _ => _mm512_shuffle_i64x2::<0b01_00_11_10>(self.0, self.0),
            }
        })
    }

    #[inline(always)]
    unsafe fn flip<const BIT: u32>(self) -> Self {
        U32x16(unsafe {
            match BIT {
                0 => _mm512_shuffle_epi32::<0b10_11_00_01>(self.0),
                1 => _mm512_shuffle_epi32::<0b00_01_10_11>(self.0),
                2 => {
                    let lanes = _mm512_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8);
                    _mm512_permutexvar_epi32(lanes, self.0)
                }
                _ => {
                    let lanes = _mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
                    _mm512_permutexvar_epi32(lanes, self.0)
                }
            }
        })
    }

    #[inline(always)]
    unsafe fn blend<const BIT: u32>(self, set: Self) -> Self {
        U32x16(unsafe { _mm512_mask_blend_epi32(lanes_with(BIT) as __mmask16, self.0, set.0) })
    }
}
