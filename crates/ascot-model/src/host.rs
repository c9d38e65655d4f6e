//! The speeds of a host's processors, from which plans determine whether they are the bottleneck.

use serde::{Deserialize, Serialize};

/// Memory within which the threads and the device of a job wait for each other at each block, bytes. Held against 94
/// passes of sixty jobs of all layouts on two cores, like the next two.
const LITTLE_MEMORY_BYTES: f64 = 8.0 * 1048576.0;
/// Memory from which on more does not help, bytes.
const MUCH_MEMORY_BYTES: f64 = 32.0 * 1048576.0;
/// Share of the processor time of requests and bytes that much memory saves.
const WAKING_SHARE: f64 = 0.5;

/// How far a memory is from little to much memory: 0 to 1.
pub(crate) fn memory_share(memory_bytes: u64) -> f64 {
    ((memory_bytes as f64 - LITTLE_MEMORY_BYTES) / (MUCH_MEMORY_BYTES - LITTLE_MEMORY_BYTES)).clamp(0.0, 1.0)
}

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

    /// The host for a job within `memory_bytes`. Requests are measured within 8 and 16 MiB, where nearly each block
    /// wakes a thread that waits for it. With more memory a thread finds the next block ready, and half of the cost is
    /// gone from 32 MiB on.
    #[must_use]
    pub fn within(self, memory_bytes: u64) -> Self {
        let left = 1.0 - WAKING_SHARE * memory_share(memory_bytes);
        HostProfile {
            request_seconds: self.request_seconds * left,
            byte_seconds: self.byte_seconds * left,
            ..self
        }
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
