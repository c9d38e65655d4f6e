//! The sample of keys that bounds ranges of keys: where it reads the inputs, and the time that this takes.
//!
//! ```text
//!   inputs   ▮      ▮      ▮      ▮      ▮      8 places for each range, 64 keys at each
//! ```

use super::RecordJob;
use crate::plan::{Moved, PassPlan};

/// Number of sampled keys per range: if keys are spread evenly, the sizes of ranges vary by 4 percent.
pub const KEYS_PER_RANGE: u64 = 512;
/// Number of places from which the sample of each range comes.
const PLACES_PER_RANGE: u64 = 8;
/// Bounds of the bytes read at a place.
const MIN_READ_BYTES: u64 = 4 << 10;
/// The upper bound: also read for a record that is longer than the bytes of its place.
pub const MAX_READ_BYTES: u64 = 64 << 10;

/// The places of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplePlaces {
    /// Their number, spread evenly over the inputs.
    pub places: u64,
    /// Bytes read at each, if the next place is not nearer.
    pub bytes: u64,
    /// Keys taken at each.
    pub keys: u64,
}

impl SamplePlaces {
    /// The sample for `ranges` ranges of `total` bytes of records of about `record_bytes`. Small inputs are read
    /// completely, once.
    pub fn new(ranges: u64, total: u64, record_bytes: u64) -> SamplePlaces {
        let places = ranges.saturating_mul(PLACES_PER_RANGE).min(total / MIN_READ_BYTES).max(1);
        let keys = ranges.saturating_mul(KEYS_PER_RANGE) / places;
        // Every second record of these bytes is sampled.
        let bytes = keys.saturating_mul(2).saturating_mul(record_bytes);
        SamplePlaces { places, bytes: bytes.clamp(MIN_READ_BYTES, MAX_READ_BYTES), keys }
    }

    /// Bytes of all places of `total` bytes.
    pub fn read_bytes(&self, total: u64) -> u64 {
        self.places.saturating_mul(self.bytes.min(total / self.places))
    }
}

impl RecordJob<'_> {
    /// Reading the sample of keys for `ranges` ranges, before the first pass: one request at a time.
    pub(super) fn key_sample(&self, ranges: u64) -> PassPlan {
        let total = self.data();
        let sample = SamplePlaces::new(ranges, total, self.record_bytes.max(1.0) as u64);
        let read_bytes = sample.read_bytes(total);
        let moved = Moved {
            read_bytes,
            switches: sample.places,
            inputs: self.inputs,
            requests: sample.places,
            ..Moved::default()
        };
        let work = [(read_bytes, self.host.rates.sort_bytes_per_s)];
        PassPlan::new("sample keys", moved, &work, self.input_volume.unwrap_or(self.volume), self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_the_keys_of_every_range() {
        // 100 bytes a record: 64 keys are every second one of 128 records.
        let records = SamplePlaces::new(20, 1 << 30, 100);
        assert_eq!(records, SamplePlaces { places: 160, bytes: 12_800, keys: 64 });
        assert_eq!(records.read_bytes(1 << 30), 160 * 12_800);
        // Long records fill what is read at most; short ones a page.
        assert_eq!(SamplePlaces::new(20, 1 << 30, 5000).bytes, 64 << 10);
        assert_eq!(SamplePlaces::new(20, 1 << 30, 8).bytes, 4 << 10);
    }

    #[test]
    fn small_inputs_are_read_once() {
        let small = SamplePlaces::new(20, 40 << 10, 100);
        assert_eq!((small.places, small.keys), (10, 1024));
        assert_eq!(small.read_bytes(40 << 10), 40 << 10);
        assert_eq!(SamplePlaces::new(2, 0, 100).read_bytes(0), 0);
    }
}
