//! Order, duplicates and checksum of records of one length, part by part.
//!
//! Any thread can validate a part of a file on its own; the results of two consecutive parts are combined without
//! reading the parts again, because a result holds its first and last key:
//!
//! ```text
//! part 1 │ first .. last │ ── compare ── │ first .. last │ part 2
//!        └ records, duplicates, unordered, checksum: added up ┘
//! ```

use super::RecordCrc;
use std::cmp::Ordering;
use std::ops::Range;

/// Bytes that are checksummed and then compared while they are still in the first cache.
const SLICE_BYTES: usize = 32 << 10;

/// Bytes of a key that a comparison of two integers covers.
const WINDOW: usize = 16;

/// The properties of a sequence of records. The default is that of no records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validation {
    /// Number of records.
    pub records: u64,
    /// Records whose key equals the previous one.
    pub duplicates: u64,
    /// Records whose key is less than the previous one.
    pub unordered: u64,
    /// Number, from 0, of the first such record.
    pub first_unordered: Option<u64>,
    /// Sum of the CRC-32 (zlib's) of every record.
    pub checksum: u128,
    /// The bytes of the first record's key; empty if there are no records.
    pub first_key: Vec<u8>,
    /// The bytes of the last record's key; empty if there are no records.
    pub last_key: Vec<u8>,
}

impl Validation {
    /// Whether no key is less than the previous one.
    pub fn is_ordered(&self) -> bool {
        self.first_unordered.is_none()
    }

    /// Notes how the key of the next record, not counted yet, compares with the previous one.
    pub fn note(&mut self, comparison: Ordering) {
        match comparison {
            Ordering::Less => {
                self.unordered += 1;
                self.first_unordered.get_or_insert(self.records);
            }
            Ordering::Equal => self.duplicates += 1,
            Ordering::Greater => {}
        }
    }

    /// The properties of this part and the `next` one together; `compare` compares the first key of `next` with the
    /// last key of this part.
    pub fn combine(mut self, next: Validation, compare: impl FnOnce(&[u8], &[u8]) -> Ordering) -> Validation {
        if next.records == 0 {
            return self;
        }
        if self.records == 0 {
            return next;
        }
        let seam = compare(&next.first_key, &self.last_key);
        self.note(seam);
        self.first_unordered =
            self.first_unordered.or(next.first_unordered.map(|number| self.records + number));
        self.records += next.records;
        self.duplicates += next.duplicates;
        self.unordered += next.unordered;
        self.checksum = self.checksum.wrapping_add(next.checksum);
        self.last_key = next.last_key;
        self
    }
}

/// Validates records of one length with keys at fixed positions.
///
/// ```
/// use ascot_record::gensort::Validator;
/// let validation = Validator::new(4, vec![0..2]).validate(b"aa11ab22ab33");
/// assert_eq!((validation.records, validation.duplicates), (3, 1));
/// assert!(validation.is_ordered());
/// ```
#[derive(Clone, Debug)]
pub struct Validator {
    record_len: usize,
    keys: Vec<Range<usize>>,
    crc: RecordCrc,
    window: Option<KeyWindow>,
}

impl Validator {
    /// For records of `record_len` bytes, ordered by the bytes of `keys`, the first range first.
    ///
    /// # Panics
    /// If a record or key has no bytes, or a key ends after the record.
    pub fn new(record_len: usize, keys: Vec<Range<usize>>) -> Self {
        assert!(record_len > 0 && !keys.is_empty(), "records and keys have bytes");
        assert!(
            keys.iter().all(|key| !key.is_empty() && key.end <= record_len),
            "keys are inside the record"
        );
        let window = match keys.as_slice() {
            [key] => KeyWindow::new(key, record_len),
            _ => None,
        };
        Validator { record_len, keys, crc: RecordCrc::new(record_len), window }
    }

    /// Validates the whole records of one part; an incomplete record at its end does not count.
    pub fn validate(&self, part: &[u8]) -> Validation {
        let count = part.len() / self.record_len;
        let part = &part[..count * self.record_len];
        let mut validation = Validation {
            records: count as u64,
            first_key: self.key_of(part.chunks_exact(self.record_len).next()),
            last_key: self.key_of(part.chunks_exact(self.record_len).next_back()),
            ..Validation::default()
        };
        let records_at_once = (SLICE_BYTES / self.record_len).max(1);
        let mut start = 0;
        while start < count {
            let end = count.min(start + records_at_once);
            let slice = &part[start * self.record_len..end * self.record_len];
            validation.checksum = validation.checksum.wrapping_add(self.crc.sum(slice));
            // The comparisons begin with the last record of the slice before.
            let before = start.saturating_sub(1);
            self.compare(&part[before * self.record_len..end * self.record_len], before, &mut validation);
            start = end;
        }
        validation
    }

    /// Compares each of `records` except the first with the previous one; `first` is the number of the first.
    fn compare(&self, records: &[u8], first: usize, validation: &mut Validation) {
        let (unordered, duplicates) = match &self.window {
            Some(window) => window.count(records, self.record_len),
            None => self.count(records),
        };
        if unordered > 0 && validation.first_unordered.is_none() {
            validation.first_unordered = self.find_unordered(records).map(|at| (first + at) as u64);
        }
        validation.unordered += unordered;
        validation.duplicates += duplicates;
    }

    /// Neighbours out of order, and neighbours with equal keys.
    fn count(&self, records: &[u8]) -> (u64, u64) {
        let mut unordered = 0;
        let mut duplicates = 0;
        for (before, record) in self.neighbours(records) {
            match self.compare_keys(record, before) {
                Ordering::Less => unordered += 1,
                Ordering::Equal => duplicates += 1,
                Ordering::Greater => {}
            }
        }
        (unordered, duplicates)
    }

    /// The position of the first record that is less than the previous one.
    fn find_unordered(&self, records: &[u8]) -> Option<usize> {
        self.neighbours(records)
            .position(|(before, record)| self.compare_keys(record, before).is_lt())
            .map(|at| at + 1)
    }

    fn neighbours<'a>(&self, records: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let all = records.chunks_exact(self.record_len);
        all.clone().zip(all.skip(1))
    }

    fn compare_keys(&self, a: &[u8], b: &[u8]) -> Ordering {
        let ranges = self.keys.iter();
        ranges.fold(Ordering::Equal, |so_far, key| so_far.then_with(|| a[key.clone()].cmp(&b[key.clone()])))
    }

    fn key_of(&self, record: Option<&[u8]>) -> Vec<u8> {
        let bytes =
            |record| self.keys.iter().flat_map(move |key: &Range<usize>| &(record as &[u8])[key.clone()]);
        record.map(|record| bytes(record).copied().collect()).unwrap_or_default()
    }
}

/// A short key as the bits that a mask selects of a 16-byte big-endian integer.
#[derive(Clone, Debug)]
struct KeyWindow {
    start: usize,
    mask: u128,
}

impl KeyWindow {
    /// `None` if the key or the record is too long or too short.
    fn new(key: &Range<usize>, record_len: usize) -> Option<Self> {
        let start = key.start.min(record_len.checked_sub(WINDOW)?);
        let behind = (start + WINDOW).checked_sub(key.end)?;
        let below = u128::MAX.checked_shl(8 * behind as u32)?;
        let mask = below & (u128::MAX >> (8 * (key.start - start)));
        Some(KeyWindow { start, mask })
    }

    /// Neighbours out of order, and neighbours with equal keys, without a branch on either.
    fn count(&self, records: &[u8], record_len: usize) -> (u64, u64) {
        let key_of = |record: &[u8]| {
            let window = record[self.start..].first_chunk().copied().unwrap_or([0; WINDOW]);
            u128::from_be_bytes(window) & self.mask
        };
        let mut all = records.chunks_exact(record_len);
        let Some(first) = all.next() else { return (0, 0) };
        let mut before = key_of(first);
        let mut unordered = 0;
        let mut duplicates = 0;
        for record in all {
            let key = key_of(record);
            unordered += u64::from(key < before);
            duplicates += u64::from(key == before);
            before = key;
        }
        (unordered, duplicates)
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a key of one range is one range")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Follows the definition directly.
    fn reference(data: &[u8], record_len: usize, keys: &[Range<usize>]) -> Validation {
        let key =
            |record: &[u8]| keys.iter().flat_map(|key| record[key.clone()].to_vec()).collect::<Vec<u8>>();
        let all: Vec<&[u8]> = data.chunks_exact(record_len).collect();
        let mut validation = Validation { records: all.len() as u64, ..Validation::default() };
        for (i, record) in all.iter().enumerate() {
            validation.checksum += u128::from(crc32fast::hash(record));
            if i > 0 && key(record) < key(all[i - 1]) {
                validation.unordered += 1;
                validation.first_unordered.get_or_insert(i as u64);
            }
            validation.duplicates += u64::from(i > 0 && key(record) == key(all[i - 1]));
        }
        validation.first_key = all.first().map(|record| key(record)).unwrap_or_default();
        validation.last_key = all.last().map(|record| key(record)).unwrap_or_default();
        validation
    }

    #[test]
    fn long_parts_agree_with_the_definition() {
        for byte_of in [|i: u32| (i / 50_000) as u8, |i: u32| (i.wrapping_mul(2_654_435_761) >> 29) as u8] {
            let data: Vec<u8> = (0..300_000).map(byte_of).collect();
            for (record_len, keys) in [(100, vec![0..10]), (7, vec![1..3, 0..1]), (100_000, vec![9..10])] {
                let validator = Validator::new(record_len, keys.clone());
                assert_eq!(validator.validate(&data), reference(&data, record_len, &keys));
            }
        }
    }

    fn combined(part: Validation, next: Validation) -> Validation {
        part.combine(next, |first, last| first.cmp(last))
    }

    #[test]
    fn no_records_are_in_order() {
        let validation = Validator::new(100, vec![0..10]).validate(&[0; 99]);
        assert_eq!(validation, Validation::default());
        assert!(validation.is_ordered());
    }

    #[test]
    fn a_seam_out_of_order_is_the_first() {
        let validator = Validator::new(2, vec![0..1]);
        let whole = combined(validator.validate(b"b.c."), validator.validate(b"a.a.0."));
        assert_eq!(whole.first_unordered, Some(2));
        assert_eq!((whole.unordered, whole.duplicates), (2, 1));
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same(
            data in prop::collection::vec(0_u8..4, 0..600),
            (record_len, key) in (1_usize..40).prop_flat_map(|len| {
                (Just(len), (0..len).prop_flat_map(move |start| (start + 1..=len).prop_map(move |end| start..end)))
            }),
            cuts in (0_usize..20, 0_usize..20),
        ) {
            let validator = Validator::new(record_len, vec![key.clone()]);
            let whole = validator.validate(&data);
            prop_assert_eq!(&whole, &reference(&data, record_len, &[key]));

            let (first, rest) = data.split_at(data.len().min(cuts.0 * record_len));
            let (second, third) = rest.split_at(rest.len().min(cuts.1 * record_len));
            let [a, b, c] = [first, second, third].map(|part| validator.validate(part));
            prop_assert_eq!(&combined(combined(a.clone(), b.clone()), c.clone()), &whole);
            prop_assert_eq!(&combined(a, combined(b, c)), &whole);
        }
    }
}
