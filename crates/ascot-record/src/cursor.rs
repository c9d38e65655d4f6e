//! Sorted sources of records, read one record at a time.
//!
//! A merge reads from many places in turn, faster than a processor predicts. So a [`SliceCursor`] prefetches the bytes
//! some hundred bytes ahead.

use crate::framing::Framing;

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

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

/// Most bytes prefetched; the rest of a long record is left to the hardware.
pub(crate) const ASKED_MAX: usize = 4 * LINE;

/// Records in order in a list of slices, each of whole records.
#[derive(Clone, Debug)]
pub struct SliceCursor<'a, F> {
    framing: F,
    slices: &'a [&'a [u8]],
    /// The slice being read, from the current record on.
    bytes: &'a [u8],
    /// Bytes of the current record; 0 at the end.
    len: usize,
}

/// Distance from the record at which a slice is prefetched.
const BYTES_AHEAD: usize = 384;

impl<'a, F: Framing> SliceCursor<'a, F> {
    /// A cursor over the records of `slices`, one slice after the other.
    pub fn new(framing: F, slices: &'a [&'a [u8]]) -> Self {
        let mut cursor = SliceCursor { framing, slices, bytes: &[], len: 0 };
        cursor.find_record();
        let mut at = 0;
        while at < BYTES_AHEAD {
            prefetch_byte(cursor.bytes, at);
            at += LINE;
        }
        cursor
    }

    /// Finds the record at the start of the remaining bytes.
    #[inline]
    fn find_record(&mut self) {
        loop {
            if let Some(len) = self.framing.end(self.bytes, 0) {
                self.len = len;
                return;
            }
            let Some((next, rest)) = self.slices.split_first() else {
                self.bytes = &[];
                self.len = 0;
                return;
            };
            self.bytes = next;
            self.slices = rest;
        }
    }

    /// The current record; `None` at the end.
    #[inline]
    pub fn current(&self) -> Option<&'a [u8]> {
        if self.len == 0 { None } else { self.bytes.get(..self.len) }
    }

    /// Steps to the next record.
    #[inline]
    pub fn advance(&mut self) {
        self.bytes = self.bytes.get(self.len..).unwrap_or_default();
        self.find_record();
    }

    /// Prefetches memory that later steps will read; called after each step.
    #[inline]
    pub fn prefetch(&self) {
        let mut at = BYTES_AHEAD;
        let end = BYTES_AHEAD + self.len.min(ASKED_MAX);
        while at < end {
            prefetch_byte(self.bytes, at);
            at += LINE;
        }
    }
}
