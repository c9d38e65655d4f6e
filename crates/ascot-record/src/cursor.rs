//! Sorted sources of records, read one record at a time.
//!
//! A merge reads from many places in turn, faster than a processor predicts. So a [`SliceCursor`] prefetches the bytes
//! some hundred bytes ahead, and [`gather`] the records to come.

use crate::framing::{Cut, Framing};

/// Bytes of a cache line.
const LINE: usize = 64;

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

/// Bytes prefetched for a record of unknown length.
const UNKNOWN_LEN: usize = 2 * LINE;

/// Most bytes prefetched; the rest of a long record is left to the hardware.
const ASKED_MAX: usize = 4 * LINE;

/// Prefetches the record that starts at `start`.
#[inline(always)]
fn prefetch_record<F: Framing>(framing: &F, bytes: &[u8], start: u32) {
    let start = start as usize;
    let end = start + framing.fixed_len().unwrap_or(UNKNOWN_LEN).min(ASKED_MAX);
    let mut at = start;
    while at < end {
        prefetch_byte(bytes, at);
        at += LINE;
    }
    prefetch_byte(bytes, end - 1);
}

/// Copies the records that start at `starts`, in that order, to `out` until the next does not fit; returns the number
/// of records and bytes copied.
///
/// Copying a chunk while it is in the cache, and merging the copies later as slices, costs less than merging chunks
/// in place long after they have left the cache.
pub fn gather<F: Framing>(framing: &F, bytes: &[u8], starts: &[u32], out: &mut [u8]) -> Cut {
    let mut copied = Cut::default();
    for (at, start) in starts.iter().enumerate() {
        if let Some(ahead) = starts.get(at + GATHERED_AHEAD) {
            prefetch_record(framing, bytes, *ahead);
        }
        let start = *start as usize;
        let Some(record) = framing.end(bytes, start).and_then(|end| bytes.get(start..end)) else { break };
        let Some(space) = out.get_mut(copied.bytes..copied.bytes + record.len()) else { break };
        space.copy_from_slice(record);
        copied.records += 1;
        copied.bytes += record.len();
    }
    copied
}

/// Number of records that [`gather`] prefetches ahead: it has only one source.
const GATHERED_AHEAD: usize = 8;

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
    pub fn current(&self) -> Option<&[u8]> {
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
