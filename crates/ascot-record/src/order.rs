//! The order of records.
//!
//! An order converts a record to a *normalised key*: bytes that compare by `memcmp` in the order of the records. The
//! last resort, if the order has one, decides between records of equal keys; after that they stay in input order, so
//! that every sort is stable.
//!
//! ```text
//! record ──body──> bytes ──key──> normalised key ──prefix──> u64
//!                                 memcmp                     decides almost every comparison
//! ```

use std::cmp::Ordering;
use std::ops::Range;

use crate::framing::Framing;

pub use crate::keys::{LastResort, WriteKey};

/// Bytes allocated for a computed key at first.
const KEY_BYTES: usize = 64;

/// The order of records. Its methods get records as framed, terminator included.
pub trait RecordOrder: Send + Sync {
    /// The normalised key, which may lie in the record or be written to `scratch` (cleared first). Even an empty key
    /// lies in mapped memory: `memcmp` reads vectors with a mask, and a processor takes hundreds of cycles to suppress
    /// the fault of an address that is not mapped, such as that of an empty vector.
    fn key<'a>(&self, record: &'a [u8], scratch: &'a mut Vec<u8>) -> &'a [u8];

    /// The part of a record that the last resort compares.
    fn body<'a>(&self, record: &'a [u8]) -> &'a [u8];

    /// Whether greater keys come first. Records of equal keys keep their input order even then.
    #[inline]
    fn descending(&self) -> bool {
        false
    }

    /// The kind of last resort that decides equal keys.
    #[inline]
    fn last_resort_kind(&self) -> LastResort {
        LastResort::None
    }

    /// Decides between two records of equal keys; `Equal` leaves them in input order.
    #[inline]
    fn last_resort(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self.last_resort_kind() {
            LastResort::None => Ordering::Equal,
            LastResort::Bytes => self.body(a).cmp(self.body(b)),
            LastResort::BytesReversed => self.body(b).cmp(self.body(a)),
        }
    }

    /// Bytes of every key, if known to be the same for all but malformed records.
    fn fixed_key_len(&self) -> Option<usize>;

    /// Passes the values of a record that do not have their column's type to `note`, each with the number of its key.
    fn misfits(&self, _record: &[u8], _note: &mut dyn FnMut(usize, &[u8])) {}

    /// Whether [`key`](Self::key) writes to its scratch, so that its result is worth keeping.
    fn computed(&self) -> bool {
        false
    }
}

/// The first eight bytes of a key as a big-endian number, zero padded. Different prefixes order as their keys do;
/// equal ones decide nothing.
#[inline]
pub fn prefix(key: &[u8]) -> u64 {
    if let Some(head) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*head);
    }
    // Two overlapping loads: the bytes they share agree.
    if let (Some(head), Some(tail)) = (key.first_chunk::<4>(), key.last_chunk::<4>()) {
        let tail = u64::from(u32::from_be_bytes(*tail)) << (64 - 8 * key.len());
        return (u64::from(u32::from_be_bytes(*head)) << 32) | tail;
    }
    match *key {
        [a, b, c] => u64::from_be_bytes([a, b, c, 0, 0, 0, 0, 0]),
        [a, b] => u64::from_be_bytes([a, b, 0, 0, 0, 0, 0, 0]),
        [a] => u64::from(a) << 56,
        _ => 0,
    }
}

/// Full comparison of two records by `order`; `Equal` means that input order decides.
pub fn compare<O: RecordOrder + ?Sized>(
    order: &O,
    a: &[u8],
    b: &[u8],
    scratch_a: &mut Vec<u8>,
    scratch_b: &mut Vec<u8>,
) -> Ordering {
    let by_key = order.key(a, scratch_a).cmp(order.key(b, scratch_b));
    let by_key = if order.descending() { by_key.reverse() } else { by_key };
    by_key.then_with(|| order.last_resort(a, b))
}

/// The number of elements at the start of `slice` that satisfy `belongs`, found in doubling steps: few of them are
/// looked at if it is small compared with the slice.
pub fn head_len<T>(slice: &[T], mut belongs: impl FnMut(&T) -> bool) -> usize {
    let mut low = 0;
    let mut step = 1;
    while low + step <= slice.len() && belongs(&slice[low + step - 1]) {
        low += step;
        step *= 2;
    }
    let high = (low + step).min(slice.len());
    low + slice[low..high].partition_point(belongs)
}

/// Order by a range of the body's bytes. A record shorter than the range uses the bytes it has.
#[derive(Clone, Debug)]
pub struct RangeOrder<F> {
    framing: F,
    range: Range<usize>,
    descending: bool,
    last_resort: LastResort,
}

impl<F: Framing> RangeOrder<F> {
    /// Order by `range` of the bodies that `framing` finds.
    pub fn new(framing: F, range: Range<usize>, descending: bool, last_resort: LastResort) -> Self {
        RangeOrder { framing, range, descending, last_resort }
    }

    /// Order by all bytes of the bodies that `framing` finds.
    pub fn whole(framing: F, descending: bool) -> Self {
        RangeOrder::new(framing, 0..usize::MAX, descending, LastResort::None)
    }
}

impl<F: Framing> RecordOrder for RangeOrder<F> {
    #[inline]
    fn key<'a>(&self, record: &'a [u8], _scratch: &'a mut Vec<u8>) -> &'a [u8] {
        let body = self.framing.body(record);
        let end = self.range.end.min(body.len());
        body.get(self.range.start.min(end)..end).unwrap_or_default()
    }

    #[inline]
    fn body<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        self.framing.body(record)
    }

    #[inline]
    fn descending(&self) -> bool {
        self.descending
    }

    #[inline]
    fn last_resort_kind(&self) -> LastResort {
        self.last_resort
    }

    #[inline]
    fn fixed_key_len(&self) -> Option<usize> {
        let bounded = Some(self.range.end).filter(|&end| end != usize::MAX);
        let end = self.framing.fixed_len().map_or(bounded, |len| Some(self.range.end.min(len)))?;
        Some(end.saturating_sub(self.range.start))
    }
}

/// Order by a computed key. Directions are part of the key: it always compares ascending.
#[derive(Clone, Debug)]
pub struct ProgramOrder<F, W> {
    framing: F,
    program: W,
    last_resort: LastResort,
}

impl<F: Framing, W: WriteKey> ProgramOrder<F, W> {
    /// Order by the keys that `program` computes from the bodies that `framing` finds.
    pub fn new(framing: F, program: W, last_resort: LastResort) -> Self {
        ProgramOrder { framing, program, last_resort }
    }
}

impl<F: Framing, W: WriteKey> RecordOrder for ProgramOrder<F, W> {
    #[inline]
    fn key<'a>(&self, record: &'a [u8], scratch: &'a mut Vec<u8>) -> &'a [u8] {
        scratch.clear();
        if scratch.capacity() == 0 {
            scratch.reserve(KEY_BYTES);
        }
        self.program.write_key(self.framing.body(record), scratch);
        scratch
    }

    #[inline]
    fn body<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        self.framing.body(record)
    }

    #[inline]
    fn last_resort_kind(&self) -> LastResort {
        self.last_resort
    }

    #[inline]
    fn fixed_key_len(&self) -> Option<usize> {
        self.program.fixed_key_len()
    }

    fn misfits(&self, record: &[u8], note: &mut dyn FnMut(usize, &[u8])) {
        self.program.misfits(self.framing.body(record), note);
    }

    #[inline]
    fn computed(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::framing::{FixedFraming, LineFraming};
    use crate::keys::{compile_ranges, parse_ranges};

    #[test]
    fn a_range_beyond_the_record_uses_what_is_there() {
        let order = RangeOrder::new(LineFraming(b'\n'), 2..5, false, LastResort::None);
        let scratch = &mut Vec::new();
        assert_eq!(order.key(b"abcdefg\n", scratch), b"cde");
        assert_eq!(order.key(b"abcd\n", scratch), b"cd");
        assert_eq!(order.key(b"a\n", scratch), b"");
        assert_eq!(order.fixed_key_len(), Some(3));
        let fixed = RangeOrder::new(FixedFraming(4), 2..9, false, LastResort::None);
        assert_eq!(fixed.fixed_key_len(), Some(2));
    }

    #[test]
    fn the_last_resort_is_asked_last() {
        let order = RangeOrder::new(LineFraming(b'\n'), 0..1, true, LastResort::Bytes);
        let (a, b) = (&mut Vec::new(), &mut Vec::new());
        assert_eq!(compare(&order, b"b\n", b"a\n", a, b), Ordering::Less);
        assert_eq!(compare(&order, b"ax\n", b"ay\n", a, b), Ordering::Less);
        assert_eq!(compare(&order, b"ax\n", b"ax\n", a, b), Ordering::Equal);
    }

    #[test]
    fn an_empty_key_lies_in_mapped_memory() {
        let record = b"ab\n";
        let range = RangeOrder::new(LineFraming(b'\n'), 5..9, false, LastResort::None);
        let key = range.key(record, &mut Vec::new()).as_ptr();
        assert!(record.as_ptr_range().contains(&key));
        let ranges = compile_ranges(&parse_ranges("5..9").unwrap(), None).unwrap();
        let program = ProgramOrder::new(LineFraming(b'\n'), ranges, LastResort::None);
        let scratch = &mut Vec::new();
        let key = program.key(record, scratch).as_ptr();
        assert!(scratch.capacity() > 0 && key == scratch.as_ptr());
    }

    proptest! {
        #[test]
        fn prefix_is_the_padded_head(key in proptest::collection::vec(any::<u8>(), 0..12)) {
            let mut head = [0; 8];
            let n = key.len().min(8);
            head[..n].copy_from_slice(&key[..n]);
            prop_assert_eq!(prefix(&key), u64::from_be_bytes(head));
        }
    }
}
