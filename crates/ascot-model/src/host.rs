//! The speeds of a host's compute kernels, from which plans determine whether the processor is the bottleneck.

use serde::{Deserialize, Serialize};

/// Bytes/s of one thread for each step of a sort, for one kind of record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelRates {
    /// Dividing into records and sorting a chunk in memory.
    pub sort_bytes_per_s: f64,
    /// Merging [`NARROW_MERGE`] sorted chunks or runs, copying included.
    pub merge_bytes_per_s: f64,
    /// Merging [`WIDE_MERGE`] of them.
    pub wide_merge_bytes_per_s: f64,
    /// Splitting by key range, copying included.
    pub split_bytes_per_s: f64,
}

/// The fan-in of a narrow merge.
pub const NARROW_MERGE: u32 = 8;
/// The fan-in of a wide merge.
pub const WIDE_MERGE: u32 = 64;

/// A host: its cores and their speeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostProfile {
    /// Compute threads a job may use.
    pub threads: usize,
    /// Speeds for the records at hand.
    pub rates: KernelRates,
    /// Bytes/s at which one thread allocates unused memory; `None`: not measured, counted as free.
    #[serde(default)]
    pub fresh_bytes_per_s: Option<f64>,
}

impl HostProfile {
    /// The work of allocating memory: bytes, and bytes/s of one thread.
    pub fn fresh_memory(&self, bytes: u64) -> (u64, f64) {
        self.fresh_bytes_per_s.map_or((0, 1.0), |rate| (bytes, rate))
    }
}

/// Kinds of records with equal costs per byte and per record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordClass {
    /// Integers and floats: sorted in place by vector instructions.
    Number,
    /// Fixed length, with the key at a fixed offset.
    Fixed,
    /// Ended by a delimiter, compared whole.
    Line,
    /// Keys computed from text for each comparison that needs them.
    Computed,
}

impl KernelRates {
    /// Rates for plans without a measurement: the time per byte plus the time per record of a current server core.
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

    /// Bytes/s of a merge. Each doubling of the fan-in is one more comparison for each record, so the time of a byte
    /// grows with the logarithm of the fan-in, through the two measured points.
    pub fn merging_bytes_per_s(&self, fan_in: f64) -> f64 {
        let narrow_s = 1.0 / self.merge_bytes_per_s;
        let wide_s = 1.0 / self.wide_merge_bytes_per_s;
        let narrow = f64::from(NARROW_MERGE).log2();
        let wide = f64::from(WIDE_MERGE).log2();
        let share = (fan_in.max(2.0).log2() - narrow) / (wide - narrow);
        // A noisy measurement must not lead to absurd rates far from the measured points.
        let min_s = narrow_s.min(wide_s) / 2.0;
        1.0 / (narrow_s + share * (wide_s - narrow_s)).max(min_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_fan_in_takes_longer_as_measured() {
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
