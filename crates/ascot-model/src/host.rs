//! What a host's compute kernels do, so that a plan knows when the processor binds.

use serde::{Deserialize, Serialize};

/// Bytes/s of one thread for each step of a sort, for one kind of record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelRates {
    /// Cutting into records and sorting a piece in memory.
    pub sort_bytes_per_s: f64,
    /// Merging [`NARROW_MERGE`] sorted pieces or runs, copying included.
    pub merge_bytes_per_s: f64,
    /// The same of [`WIDE_MERGE`].
    pub wide_merge_bytes_per_s: f64,
    /// Splitting by key range, copying included.
    pub split_bytes_per_s: f64,
}

/// Pieces merged at once where a merge is narrow.
pub const NARROW_MERGE: u32 = 8;
/// Pieces merged at once where it is wide.
pub const WIDE_MERGE: u32 = 64;

/// A host: its cores and what they do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostProfile {
    /// Compute threads a job may use.
    pub threads: usize,
    /// Speeds for the records at hand.
    pub rates: KernelRates,
    /// Bytes/s at which one thread gets memory that was not used before; none: not measured, taken to
    /// cost nothing.
    #[serde(default)]
    pub fresh_bytes_per_s: Option<f64>,
}

impl HostProfile {
    /// Work of getting so much memory: bytes, and bytes/s of one thread.
    pub fn fresh_memory(&self, bytes: u64) -> (u64, f64) {
        self.fresh_bytes_per_s.map_or((0, 1.0), |rate| (bytes, rate))
    }
}

/// What records look like to a kernel: the cost per record next to the cost per byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordClass {
    /// Integers and floats: sorted in place by vector instructions.
    Number,
    /// Fixed length, key at a fixed place.
    Fixed,
    /// Ended by a delimiter, compared whole.
    Line,
    /// Keys computed from text for each comparison that needs them.
    Computed,
}

impl KernelRates {
    /// Rates to plan with before a host has been measured: time per byte plus time per record,
    /// of a current server core.
    pub fn assumed(class: RecordClass, record_bytes: f64) -> Self {
        let per = |byte_ns: f64, record_ns: f64| 1e9 / (byte_ns + record_ns / record_bytes.max(1.0));
        let rates = |sort, merge, split| KernelRates {
            sort_bytes_per_s: sort,
            merge_bytes_per_s: merge,
            wide_merge_bytes_per_s: merge,
            split_bytes_per_s: split,
        };
        match class {
            RecordClass::Number => rates(per(0.7, 0.0), per(0.9, 0.0), per(0.45, 0.0)),
            RecordClass::Fixed => rates(per(0.1, 20.0), per(0.15, 25.0), per(0.2, 55.0)),
            RecordClass::Line => rates(per(0.15, 35.0), per(0.2, 40.0), per(0.2, 105.0)),
            RecordClass::Computed => rates(per(0.3, 180.0), per(0.3, 120.0), per(0.3, 200.0)),
        }
    }

    /// Bytes/s of merging so many pieces: each doubling of their number is one more comparison a record,
    /// so the time of a byte follows the logarithm of the number, as the two that are known have it.
    pub fn merging_bytes_per_s(&self, pieces: f64) -> f64 {
        let (narrow_s, wide_s) = (1.0 / self.merge_bytes_per_s, 1.0 / self.wide_merge_bytes_per_s);
        let (narrow, wide) = (f64::from(NARROW_MERGE).log2(), f64::from(WIDE_MERGE).log2());
        let share = (pieces.max(2.0).log2() - narrow) / (wide - narrow);
        // What is measured with noise must not grow out of bounds far from where it was.
        let least_s = narrow_s.min(wide_s) / 2.0;
        1.0 / (narrow_s + share * (wide_s - narrow_s)).max(least_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_pieces_take_longer_as_measured() {
        let assumed = KernelRates::assumed(RecordClass::Fixed, 100.0);
        assert!((assumed.merging_bytes_per_s(500.0) / assumed.merge_bytes_per_s - 1.0).abs() < 1e-9);
        let rates = KernelRates { merge_bytes_per_s: 4e8, wide_merge_bytes_per_s: 2e8, ..assumed };
        let near = |pieces, wanted: f64| (rates.merging_bytes_per_s(pieces) / wanted - 1.0).abs() < 1e-9;
        assert!(near(8.0, 4e8) && near(64.0, 2e8) && near(512.0, 4e8 / 3.0));
        assert!(rates.merging_bytes_per_s(2.0) > 4e8);
        let noise = KernelRates { wide_merge_bytes_per_s: 9e8, ..rates };
        assert!(noise.merging_bytes_per_s(1e6) <= 1.8e9 + 1.0, "bounded");
    }
}
