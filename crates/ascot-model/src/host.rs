//! The speeds of a host's processors, from which plans determine whether they are the bottleneck.

use serde::{Deserialize, Serialize};

/// Bytes/s of one thread for each step of a job, for one kind of record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelRates {
    /// Dividing into records and sorting a chunk in memory.
    pub sort_bytes_per_s: f64,
    /// Merging sorted chunks in memory, copying included.
    pub merge_bytes_per_s: f64,
    /// Merging runs or files block by block, copying included.
    pub merge_runs_bytes_per_s: f64,
    /// Splitting by key range, copying included.
    pub split_bytes_per_s: f64,
}

/// A host: its cores and their speeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostProfile {
    /// Compute threads a job may use.
    pub threads: usize,
    /// Speeds for the records at hand.
    pub rates: KernelRates,
    /// Seconds of a processor for a request to a device and for handing its block on; 0: not measured.
    #[serde(default)]
    pub request_seconds: f64,
    /// Seconds of a processor for a byte on its way from or to a device, beyond those of its request; 0: not measured.
    #[serde(default)]
    pub byte_seconds: f64,
}

impl HostProfile {
    /// A host without measurements, for records of a kind.
    pub fn assumed(threads: usize, kind: RecordKind) -> Self {
        let rates = KernelRates::assumed(kind);
        HostProfile { threads, rates, request_seconds: 0.0, byte_seconds: 0.0 }
    }
}

/// Classes of records with equal costs per byte and per record.
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

/// What the cost of a record depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordKind {
    /// Its class.
    pub class: RecordClass,
    /// Its mean length, bytes.
    pub bytes: f64,
    /// Number of its keys.
    pub keys: u32,
}

impl KernelRates {
    /// Rates for plans without a measurement: the time per byte plus the time per record of a current server core.
    pub fn assumed(kind: RecordKind) -> Self {
        let per = |byte_ns: f64, record_ns: f64| 1e9 / (byte_ns + record_ns / kind.bytes.max(1.0));
        let rates = |sort, merge, split| KernelRates {
            sort_bytes_per_s: sort,
            merge_bytes_per_s: merge,
            merge_runs_bytes_per_s: merge,
            split_bytes_per_s: split,
        };
        match kind.class {
            RecordClass::Number => rates(per(0.7, 0.0), per(0.9, 0.0), per(0.45, 0.0)),
            RecordClass::Fixed => rates(per(0.1, 20.0), per(0.15, 25.0), per(0.2, 55.0)),
            RecordClass::Line => rates(per(0.15, 35.0), per(0.2, 40.0), per(0.2, 105.0)),
            RecordClass::Computed => rates(per(0.3, 180.0), per(0.3, 120.0), per(0.3, 200.0)),
        }
    }
}
