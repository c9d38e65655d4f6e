//! Prefetches memory that is read soon, where a processor does not predict it.

use std::ops::Range;

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// Most bytes of a record that are prefetched; the rest of a long one is left to the hardware.
pub(crate) const RECORD_BYTES_MAX: usize = 4 * LINE;

/// Prefetches the cache line that holds `bytes[at]`, if there is such a byte.
#[inline(always)]
#[expect(unsafe_code, reason = "prefetching is an instruction of the processor")]
pub fn prefetch_byte(bytes: &[u8], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(byte) = bytes.get(at) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of a valid reference; it reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, at);
}

/// Prefetches a range of `bytes`, a cache line at a time.
#[inline(always)]
pub(crate) fn prefetch_range(bytes: &[u8], range: Range<usize>) {
    let mut at = range.start;
    while at < range.end {
        prefetch_byte(bytes, at);
        at += LINE;
    }
}
