//! Measured speeds of a host's processors, by the length of records and the number of keys.

use serde::{Deserialize, Serialize};

use crate::host::{HostProfile, KernelRates, RecordClass, RecordKind};
use crate::measurement::{Figure, positive};
use crate::volume::BadProfile;

/// The work of a job on records with computed keys, over that of the kernels, which repeat one step with the same
/// records. Processor seconds on CSV: 1.15 times the kernels' in the median of 40 passes, and more in seven drawn
/// later.
const COMPUTED_WORK: f64 = 1.2;

/// The speeds of the steps of a job for one kind of record: of one thread while all threads work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelMeasurement {
    /// The records, as a value of `--format`.
    pub layout: String,
    /// Their class.
    pub class: RecordClass,
    /// Mean length of a record, bytes.
    pub record_bytes: f64,
    /// Number of keys.
    #[serde(default = "one_key")]
    pub keys: u32,
    /// Cutting into records and sorting in memory, bytes/s.
    pub sort: Figure,
    /// Merging sorted chunks in memory, copying included, bytes/s.
    pub merge: Figure,
    /// Merging runs block by block, bytes/s; `None`: not measured, counted as equally fast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_runs: Option<Figure>,
    /// Splitting by key range, bytes/s; `None`: not measured, taken from merging.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Figure>,
    /// A figure of earlier measurements, which plans do not use.
    #[serde(default, skip_serializing)]
    pub wide_merge: Option<Figure>,
}

fn one_key() -> u32 {
    1
}

/// A step of a job, as one of its rates.
type Rate = fn(&KernelRates) -> f64;

impl KernelMeasurement {
    /// The kind of its records.
    fn kind(&self) -> RecordKind {
        RecordKind { class: self.class, bytes: self.record_bytes, keys: self.keys }
    }

    /// Its figures; a step that was not measured is as fast as merging, in proportion to the assumed rates.
    fn rates(&self) -> KernelRates {
        let assumed = KernelRates::assumed(self.kind());
        let merge = self.merge.value;
        let split = merge * assumed.split_bytes_per_s / assumed.merge_bytes_per_s;
        KernelRates {
            sort_bytes_per_s: self.sort.value,
            merge_bytes_per_s: merge,
            merge_runs_bytes_per_s: self.merge_runs.map_or(merge, |figure| figure.value),
            split_bytes_per_s: self.split.map_or(split, |figure| figure.value),
        }
    }

    /// Seconds of a record for a step.
    fn seconds(&self, rate: Rate) -> f64 {
        self.record_bytes / rate(&self.rates())
    }
}

/// The measured speeds of a host's processors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostMeasurement {
    /// Number of compute threads.
    pub threads: usize,
    /// A figure of earlier measurements, which plans do not use.
    #[serde(default, skip_serializing)]
    pub fresh_memory: Option<Figure>,
    /// Seconds of a processor for a request to a device and for handing its block on; `None`: not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_seconds: Option<Figure>,
    /// Bytes/s that one thread moves between a device and the steps of a job, beyond the time of requests; `None`: not
    /// measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving: Option<Figure>,
    /// Speeds by kind of record.
    pub kernels: Vec<KernelMeasurement>,
}

impl HostMeasurement {
    /// Checks that the figures are possible.
    pub fn check(&self) -> Result<(), BadProfile> {
        let optional = |figure: Option<Figure>| figure.map_or(1.0, |figure| figure.value);
        positive(self.threads as f64, "host.threads")?;
        positive(optional(self.request_seconds), "host.request_seconds.value")?;
        positive(optional(self.moving), "host.moving.value")?;
        for kernel in &self.kernels {
            positive(kernel.record_bytes, "host.kernels.record_bytes")?;
            positive(kernel.keys.into(), "host.kernels.keys")?;
            positive(kernel.sort.value, "host.kernels.sort.value")?;
            positive(kernel.merge.value, "host.kernels.merge.value")?;
            positive(optional(kernel.merge_runs), "host.kernels.merge_runs.value")?;
            positive(optional(kernel.split), "host.kernels.split.value")?;
        }
        Ok(())
    }

    /// The host for records of a kind. The time of a record is a line over its length, through the measured lengths on
    /// both sides, and another line over the number of keys. If only one length was measured, the assumed rates are
    /// scaled; a class without a measurement keeps them.
    pub fn profile(&self, kind: RecordKind) -> HostProfile {
        let work = if kind.class == RecordClass::Computed { COMPUTED_WORK } else { 1.0 };
        let measured = |rate: Rate| self.rate(kind, rate).map(|rate| rate / work);
        let rate = |rate: Rate| measured(rate).unwrap_or_else(|| rate(&KernelRates::assumed(kind)));
        HostProfile {
            threads: self.threads,
            rates: KernelRates {
                sort_bytes_per_s: rate(|rates| rates.sort_bytes_per_s),
                merge_bytes_per_s: rate(|rates| rates.merge_bytes_per_s),
                merge_runs_bytes_per_s: rate(|rates| rates.merge_runs_bytes_per_s),
                split_bytes_per_s: rate(|rates| rates.split_bytes_per_s),
            },
            request_seconds: self.request_seconds.map_or(0.0, |figure| figure.value),
            byte_seconds: self.moving.map_or(0.0, |figure| 1.0 / figure.value),
        }
    }

    /// Bytes/s of a step; none if no kernel of the class was measured.
    fn rate(&self, kind: RecordKind, rate: Rate) -> Option<f64> {
        let of_class = || self.kernels.iter().filter(|kernel| kernel.class == kind.class);
        let mut keys: Vec<u32> = of_class().map(|kernel| kernel.keys).collect();
        keys.sort_unstable();
        keys.dedup();
        let points: Vec<(f64, f64)> = keys
            .iter()
            .map(|&keys| {
                let kernels = of_class().filter(|kernel| kernel.keys == keys);
                (f64::from(keys), seconds_at(kernels, kind.bytes, rate))
            })
            .collect();
        let seconds = on_line(&points, f64::from(kind.keys.max(1)))?;
        Some(kind.bytes.max(1.0) / seconds)
    }
}

/// Seconds of a record of `bytes` for a step, from kernels of other lengths.
fn seconds_at<'a>(kernels: impl Iterator<Item = &'a KernelMeasurement>, bytes: f64, rate: Rate) -> f64 {
    let mut kernels: Vec<&KernelMeasurement> = kernels.collect();
    kernels.sort_by(|a, b| a.record_bytes.total_cmp(&b.record_bytes));
    if let [one] = kernels[..] {
        let assumed = |bytes| bytes / rate(&KernelRates::assumed(RecordKind { bytes, ..one.kind() }));
        return one.seconds(rate) * assumed(bytes) / assumed(one.record_bytes);
    }
    let points: Vec<(f64, f64)> =
        kernels.iter().map(|kernel| (kernel.record_bytes, kernel.seconds(rate))).collect();
    on_line(&points, bytes).unwrap_or(0.0)
}

/// The value at `x` of the line through the points on both sides of it, or through the two nearest; the value of the
/// only point. Noise must not lead to absurd values: none is below a quarter of the smallest point.
fn on_line(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let smallest = points.iter().map(|point| point.1).min_by(f64::total_cmp)?;
    let after = points.partition_point(|point| point.0 < x).clamp(1, points.len().max(2) - 1);
    let value = match (points.get(after - 1), points.get(after)) {
        (Some(&(x0, y0)), Some(&(x1, y1))) if x1 > x0 => y0 + (x - x0) / (x1 - x0) * (y1 - y0),
        (Some(&(_, y)), _) | (None, Some(&(_, y))) => y,
        (None, None) => return None,
    };
    Some(value.max(smallest / 4.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel whose steps take `record_ns` for each record.
    fn kernel(class: RecordClass, record_bytes: f64, keys: u32, record_ns: f64) -> KernelMeasurement {
        let figure = Figure { value: record_bytes / record_ns * 1e9, spread: 0.0 };
        KernelMeasurement {
            layout: "x".into(),
            class,
            record_bytes,
            keys,
            sort: figure,
            merge: figure,
            merge_runs: None,
            split: None,
            wide_merge: None,
        }
    }

    fn host(kernels: Vec<KernelMeasurement>) -> HostMeasurement {
        HostMeasurement { threads: 3, fresh_memory: None, request_seconds: None, moving: None, kernels }
    }

    #[test]
    fn one_length_scales_what_is_assumed() {
        let kind = |bytes| RecordKind { class: RecordClass::Fixed, bytes, keys: 1 };
        let short = KernelRates::assumed(kind(100.0));
        let ns = 100.0 / short.sort_bytes_per_s * 1e9;
        let rates = host(vec![kernel(RecordClass::Fixed, 100.0, 1, ns / 2.0)]).profile(kind(500.0)).rates;
        let usual = KernelRates::assumed(kind(500.0));
        assert!((rates.sort_bytes_per_s / usual.sort_bytes_per_s - 2.0).abs() < 1e-9);
        assert!((rates.split_bytes_per_s / rates.merge_bytes_per_s).is_finite());
        let other = RecordKind { class: RecordClass::Line, bytes: 50.0, keys: 1 };
        assert_eq!(host(Vec::new()).profile(other).rates, KernelRates::assumed(other));
    }

    #[test]
    fn lengths_and_keys_between_and_beyond_the_measured_ones() {
        let measured = host(vec![
            kernel(RecordClass::Computed, 20.0, 1, 100.0),
            kernel(RecordClass::Computed, 120.0, 1, 200.0),
            kernel(RecordClass::Computed, 20.0, 2, 160.0),
            kernel(RecordClass::Computed, 120.0, 2, 260.0),
        ]);
        let ns = |bytes: f64, keys| {
            let kind = RecordKind { class: RecordClass::Computed, bytes, keys };
            (bytes / measured.profile(kind).rates.sort_bytes_per_s / COMPUTED_WORK * 1e9).round() as u64
        };
        assert_eq!([ns(20.0, 1), ns(70.0, 1), ns(220.0, 1)], [100, 150, 300]);
        assert_eq!([ns(20.0, 2), ns(70.0, 2), ns(20.0, 4)], [160, 210, 280]);
        // A line through noise may fall; the time of a record does not fall below a quarter of the smallest one.
        let noise =
            host(vec![kernel(RecordClass::Line, 20.0, 1, 100.0), kernel(RecordClass::Line, 120.0, 1, 60.0)]);
        let kind = RecordKind { class: RecordClass::Line, bytes: 900.0, keys: 1 };
        let seconds = 900.0 / noise.profile(kind).rates.merge_bytes_per_s;
        assert!((seconds * 1e9 - 15.0).abs() < 1e-6, "{seconds}");
    }
}
