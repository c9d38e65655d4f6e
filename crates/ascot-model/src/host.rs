//! What a host's compute kernels do, so that a plan knows when the processor binds.

use serde::{Deserialize, Serialize};

/// Bytes/s of one core for each step of a sort, for one kind of record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelRates {
    /// Cutting into records and sorting a piece in memory.
    pub sort_bytes_per_s: f64,
    /// Merging sorted pieces or runs, copying included.
    pub merge_bytes_per_s: f64,
    /// Splitting by key range, copying included.
    pub split_bytes_per_s: f64,
}

/// A host: its cores and what they do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostProfile {
    /// Compute threads a job may use.
    pub threads: usize,
    /// Speeds for the records at hand.
    pub rates: KernelRates,
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
        match class {
            RecordClass::Number => KernelRates {
                sort_bytes_per_s: per(0.7, 0.0),
                merge_bytes_per_s: per(0.9, 0.0),
                split_bytes_per_s: per(0.45, 0.0),
            },
            RecordClass::Fixed => KernelRates {
                sort_bytes_per_s: per(0.1, 20.0),
                merge_bytes_per_s: per(0.15, 25.0),
                split_bytes_per_s: per(0.2, 25.0),
            },
            RecordClass::Line => KernelRates {
                sort_bytes_per_s: per(0.15, 35.0),
                merge_bytes_per_s: per(0.2, 40.0),
                split_bytes_per_s: per(0.2, 45.0),
            },
            RecordClass::Computed => KernelRates {
                sort_bytes_per_s: per(0.3, 180.0),
                merge_bytes_per_s: per(0.3, 120.0),
                split_bytes_per_s: per(0.3, 140.0),
            },
        }
    }
}
