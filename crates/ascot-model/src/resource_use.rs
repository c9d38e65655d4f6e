//! The use of resources over time, as `--monitor` samples it (schema: docs/report.md).
//!
//! [`Series`] collects samples; [`ResourceUse`] is its result, a part of the report. A sample covers the time from the
//! end of the sample before it to its own end, and holds for each [`Quantity`] its mean over this time. When the series
//! is full, neighbours are merged in pairs, and from then on each sample covers twice the time:
//!
//! ```text
//!   ├─a─┼─b─┼─c─┼─d─┤ full  ──>  ├──ab──┼──cd──┤ then ├──ab──┼──cd──┼──e..
//! ```
//!
//! Invariants: the ends of samples increase; the number of samples never exceeds the limit of the series; the mean,
//! minimum and maximum of a quantity are those of the samples before any merge.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::units;

/// Most samples that a series keeps.
pub const MAX_SAMPLES: usize = 4096;
/// Most values that a series keeps: with many quantities it keeps fewer samples, so that its memory (1 MiB) stays small
/// beside the memory that a job's program may take.
pub const MAX_VALUES: usize = 1 << 17;
/// Fewest samples that a full series keeps.
const MIN_SAMPLES: usize = 16;

/// A kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Processors.
    Processor,
    /// Memory.
    Memory,
    /// Disks.
    Disk,
    /// Network interfaces.
    Network,
}

/// A quantity that is measured of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Share of the time in which a core or a disk had work.
    Busy,
    /// Processors that a process used: its processor time over the time.
    Used,
    /// Resident memory of a process.
    Resident,
    /// The most resident memory so far.
    PeakResident,
    /// Memory that programs can still take without swapping.
    Available,
    /// Bytes read.
    Read,
    /// Bytes written.
    Written,
    /// Bytes received.
    Received,
    /// Bytes sent.
    Sent,
}

impl Measure {
    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Used => "processors",
            Self::Resident => "resident",
            Self::PeakResident => "most resident",
            Self::Available => "available",
            Self::Read => "read",
            Self::Written => "written",
            Self::Received => "received",
            Self::Sent => "sent",
        }
    }
}

/// The unit of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A share, 0 to 1.
    Share,
    /// A number of processors.
    Processors,
    /// Bytes.
    Bytes,
    /// Bytes a second.
    BytesPerS,
}

impl Unit {
    /// A value of this unit as text: `71 %`, `1.50`, `3.00 GiB`, `310 MB/s`.
    pub fn text(self, value: f64) -> String {
        match self {
            Self::Share => format!("{:.0} %", 100.0 * value),
            Self::Processors => format!("{value:.2}"),
            Self::Bytes => units::rounded_memory(value),
            Self::BytesPerS => units::rate(value),
        }
    }
}

/// A column of samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantity {
    /// The kind of resource.
    pub resource: Resource,
    /// Its name: `cpu0`, `vda`, `eth0`; `process` for this process, `machine` for all of the machine.
    pub of: String,
    /// The quantity.
    pub measure: Measure,
    /// Its unit.
    pub unit: Unit,
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.of, self.measure.word())
    }
}

/// `of` for the process itself.
pub const PROCESS: &str = "process";
/// `of` for the whole machine.
pub const MACHINE: &str = "machine";

/// The samples of one quantity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourceColumn {
    /// The quantity.
    #[serde(flatten)]
    pub quantity: Quantity,
    /// Mean over the time in which it is known; `None` if it never is.
    pub mean: Option<f64>,
    /// The least of all samples before any merge.
    pub minimum: Option<f64>,
    /// The greatest of all samples before any merge.
    pub maximum: Option<f64>,
    /// One value for each sample; `None` where it is not known.
    #[serde(serialize_with = "on_one_line")]
    pub samples: Vec<Option<f64>>,
}

/// The use of resources during a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceUse {
    /// Seconds between two samples, as asked for.
    pub interval_seconds: f64,
    /// Number of intervals that each sample covers; a power of two. The last sample, and samples taken late, may
    /// differ.
    pub intervals_per_sample: u64,
    /// Processor time that sampling took, seconds.
    pub processor_seconds: f64,
    /// The end of each sample, in seconds since the job began.
    #[serde(serialize_with = "seconds_on_one_line")]
    pub seconds: Vec<f64>,
    /// The samples, by quantity.
    pub columns: Vec<ResourceColumn>,
    /// Disks and interfaces that moved nothing, and have no columns.
    pub idle: Vec<String>,
    /// What could not be sampled, and why.
    pub notices: Vec<String>,
}

/// Numbers as JSON on one line, also in a report with one member a line. Whole numbers have no point.
fn on_one_line<S: Serializer>(values: &[Option<f64>], serializer: S) -> Result<S::Ok, S::Error> {
    let mut text = String::with_capacity(8 * values.len() + 2);
    text.push('[');
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        match value.filter(|value| value.is_finite()) {
            Some(value) => text += &value.to_string(),
            None => text += "null",
        }
    }
    text.push(']');
    RawValue::from_string(text).map_err(serde::ser::Error::custom)?.serialize(serializer)
}

fn seconds_on_one_line<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    on_one_line(&values.iter().copied().map(Some).collect::<Vec<_>>(), serializer)
}

/// Samples of some quantities, in bounded memory. A value that is not known is NaN.
#[derive(Clone, Debug)]
pub struct Series {
    quantities: Vec<Quantity>,
    /// Most samples; even.
    limit: usize,
    /// The end of each sample, seconds.
    ends: Vec<f64>,
    /// A row of values for each sample.
    values: Vec<f64>,
    totals: Vec<Total>,
    /// Samples as taken that each kept one holds.
    per_sample: u64,
    /// Samples as taken in the last kept one.
    in_last: u64,
}

/// What merging must not change.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    /// Time in which the quantity was known.
    seconds: f64,
    /// Its sum over this time.
    integral: f64,
    range: Option<(f64, f64)>,
}

impl Total {
    fn add(&mut self, value: f64, seconds: f64) {
        if value.is_nan() {
            return;
        }
        self.seconds += seconds;
        self.integral += value * seconds;
        let (min, max) = self.range.unwrap_or((value, value));
        self.range = Some((min.min(value), max.max(value)));
    }
}

impl Series {
    /// An empty series.
    pub fn new(quantities: Vec<Quantity>) -> Self {
        let most = (MAX_VALUES / quantities.len().max(1)).clamp(MIN_SAMPLES, MAX_SAMPLES);
        Series::with_limit(quantities, most)
    }

    /// An empty series that keeps at most `most` samples, rounded down to an even number of at least 2.
    pub fn with_limit(quantities: Vec<Quantity>, most: usize) -> Self {
        let totals = vec![Total::default(); quantities.len()];
        let limit = (most / 2 * 2).max(2);
        Series { quantities, limit, ends: Vec::new(), values: Vec::new(), totals, per_sample: 1, in_last: 0 }
    }

    /// The columns.
    pub fn quantities(&self) -> &[Quantity] {
        &self.quantities
    }

    /// Number of samples kept.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Adds a sample from the end of the latest one to `end_seconds`, with a value for each quantity; NaN if it is not
    /// known. A sample that does not end later than the latest one is left out.
    pub fn add(&mut self, end_seconds: f64, values: &[f64]) {
        let since = self.ends.last().copied().unwrap_or(0.0);
        let seconds = end_seconds - since;
        if seconds <= 0.0 || !seconds.is_finite() || values.len() != self.quantities.len() {
            return;
        }
        self.totals.iter_mut().zip(values).for_each(|(total, value)| total.add(*value, seconds));
        if self.in_last < self.per_sample && !self.is_empty() {
            self.extend_last(end_seconds, values);
            return;
        }
        if self.len() == self.limit {
            self.halve();
        }
        self.ends.push(end_seconds);
        self.values.extend_from_slice(values);
        self.in_last = 1;
    }

    /// Lets the last sample end at `end_seconds`.
    fn extend_last(&mut self, end_seconds: f64, values: &[f64]) {
        let last = self.len() - 1;
        let before = self.duration(last);
        let row = last * self.quantities.len();
        let more = end_seconds - self.ends[last];
        for (known, value) in self.values[row..].iter_mut().zip(values) {
            *known = mean_of_two(*known, before, *value, more);
        }
        self.ends[last] = end_seconds;
        self.in_last += 1;
    }

    /// Merges the samples in pairs.
    fn halve(&mut self) {
        let columns = self.quantities.len();
        for pair in 0..self.len() / 2 {
            let one = 2 * pair;
            let other = 2 * pair + 1;
            let one_seconds = self.duration(one);
            let other_seconds = self.duration(other);
            for column in 0..columns {
                let a = self.values[one * columns + column];
                let b = self.values[other * columns + column];
                self.values[pair * columns + column] = mean_of_two(a, one_seconds, b, other_seconds);
            }
        }
        let kept = self.len() / 2;
        for pair in 0..kept {
            self.ends[pair] = self.ends[2 * pair + 1];
        }
        self.ends.truncate(kept);
        self.values.truncate(kept * columns);
        self.per_sample *= 2;
        self.in_last = self.per_sample;
    }

    /// Seconds that a sample covers.
    fn duration(&self, sample: usize) -> f64 {
        let since = sample.checked_sub(1).map_or(0.0, |before| self.ends[before]);
        self.ends[sample] - since
    }

    /// The samples as a part of a report. Devices and interfaces that moved nothing have no columns.
    pub fn result(&self, interval_seconds: f64) -> ResourceUse {
        let idle = self.idle();
        let shown = |quantity: &Quantity| !idle.contains(&quantity.of);
        let columns = self.quantities.iter().enumerate().filter(|(_, quantity)| shown(quantity));
        ResourceUse {
            interval_seconds,
            intervals_per_sample: self.per_sample,
            processor_seconds: 0.0,
            seconds: self.ends.iter().map(|end| rounded(*end, 1e6)).collect(),
            columns: columns.map(|(number, _)| self.column(number)).collect(),
            idle,
            notices: Vec::new(),
        }
    }

    fn column(&self, number: usize) -> ResourceColumn {
        let quantity = self.quantities[number].clone();
        let Total { seconds, integral, range } = self.totals[number];
        let steps = match quantity.unit {
            Unit::Share | Unit::Processors => 1e4,
            Unit::Bytes | Unit::BytesPerS => 1.0,
        };
        let known = |value: f64| (!value.is_nan()).then(|| rounded(value, steps));
        let values = self.values.iter().skip(number).step_by(self.quantities.len());
        ResourceColumn {
            mean: (seconds > 0.0).then(|| integral / seconds),
            minimum: range.map(|(min, _)| min),
            maximum: range.map(|(_, max)| max),
            samples: values.map(|value| known(*value)).collect(),
            quantity,
        }
    }

    /// The disks and interfaces that moved nothing, or whose counters were never known.
    fn idle(&self) -> Vec<String> {
        let moves = |number: usize| self.totals[number].range.is_some_and(|(_, max)| max > 0.0);
        let mut idle: Vec<String> = Vec::new();
        for Quantity { resource, of, .. } in &self.quantities {
            let is_device = matches!(resource, Resource::Disk | Resource::Network) && of != PROCESS;
            let mut own = (0..self.quantities.len()).filter(|&number| self.quantities[number].of == *of);
            if is_device && !idle.contains(of) && !own.any(moves) {
                idle.push(of.clone());
            }
        }
        idle
    }
}

/// The mean of two values that were taken for some seconds each; the known one if the other is NaN.
fn mean_of_two(one: f64, one_seconds: f64, other: f64, other_seconds: f64) -> f64 {
    match (one.is_nan(), other.is_nan()) {
        (true, _) => other,
        (_, true) => one,
        _ => (one * one_seconds + other * other_seconds) / (one_seconds + other_seconds),
    }
}

/// The nearest multiple of one over `steps`.
fn rounded(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn quantity(resource: Resource, of: &str, measure: Measure, unit: Unit) -> Quantity {
        Quantity { resource, of: of.into(), measure, unit }
    }

    fn resident() -> Quantity {
        quantity(Resource::Memory, PROCESS, Measure::Resident, Unit::Bytes)
    }

    /// The time-weighted mean of the kept samples of a column.
    fn kept_mean(series: &Series, column: usize) -> f64 {
        let columns = series.quantities.len();
        let seconds = |sample| series.duration(sample);
        let integral: f64 = (0..series.len()).map(|s| series.values[s * columns + column] * seconds(s)).sum();
        integral / series.ends.last().unwrap()
    }

    proptest! {
        #[test]
        fn merging_keeps_means_and_extremes(
            samples in prop::collection::vec((0.001_f64..3.0, 0.0_f64..1e9, 0.0_f64..1.0), 1..400),
            most in 2_usize..24,
        ) {
            let busy = quantity(Resource::Processor, "cpu0", Measure::Busy, Unit::Share);
            let mut series = Series::with_limit(vec![resident(), busy], most);
            let mut end = 0.0;
            let mut sums = [0.0, 0.0];
            for (seconds, bytes, share) in &samples {
                end += seconds;
                sums[0] += bytes * seconds;
                sums[1] += share * seconds;
                series.add(end, &[*bytes, *share]);
                prop_assert!(series.len() <= most.max(2));
            }
            prop_assert_eq!(series.ends.last().copied(), Some(end));
            prop_assert!(series.ends.is_sorted_by(|a, b| a < b));
            let shown = series.result(1.0);
            prop_assert!(shown.intervals_per_sample.is_power_of_two());
            let most_kept = samples.len().div_ceil(shown.intervals_per_sample as usize);
            prop_assert_eq!(series.len(), most_kept);
            for (column, sum) in sums.into_iter().enumerate() {
                let mean = sum / end;
                let value = |index: usize| if column == 0 { samples[index].1 } else { samples[index].2 };
                let all = || (0..samples.len()).map(value);
                let near = |seen: f64| (seen - mean).abs() <= 1e-9 * mean.abs().max(1e-9);
                prop_assert!(near(kept_mean(&series, column)), "{} {mean}", kept_mean(&series, column));
                let told = &shown.columns[column];
                prop_assert!(near(told.mean.unwrap()));
                prop_assert_eq!(told.maximum.unwrap(), all().fold(f64::MIN, f64::max));
                prop_assert_eq!(told.minimum.unwrap(), all().fold(f64::MAX, f64::min));
            }
        }
    }

    #[test]
    fn a_full_series_halves_its_resolution() {
        let mut series = Series::with_limit(vec![resident()], 4);
        for second in 1..=9 {
            series.add(f64::from(second), &[f64::from(second)]);
        }
        // 1 to 4 became two pairs, and then 1 to 8 two samples of four.
        assert_eq!(series.ends, [4.0, 8.0, 9.0]);
        assert_eq!(series.values, [2.5, 6.5, 9.0]);
        assert_eq!(series.result(1.0).intervals_per_sample, 4);
    }

    #[test]
    fn a_day_of_samples_stays_small() {
        let cores = |count: usize| (0..count).map(|_| resident()).collect::<Vec<_>>();
        for columns in [12, 300, 5000] {
            let mut series = Series::new(cores(columns));
            let row = vec![1.0; columns];
            (1..20_000).for_each(|end| series.add(f64::from(end), &row));
            assert!(series.len() <= MAX_SAMPLES && series.len() >= MIN_SAMPLES / 2);
            assert!(series.values.len() <= MAX_VALUES.max(MIN_SAMPLES * columns), "{columns}");
        }
    }

    #[test]
    fn unknown_values_count_for_nothing() {
        let mut series = Series::with_limit(vec![resident(), resident()], 2);
        series.add(1.0, &[f64::NAN, f64::NAN]);
        series.add(3.0, &[8.0, f64::NAN]);
        series.add(4.0, &[2.0, f64::NAN]);
        // Neither a sample that ends before the latest one, nor one of another form.
        series.add(3.5, &[1e9, 1e9]);
        series.add(5.0, &[1e9]);
        let [known, unknown] = &series.result(1.0).columns[..] else { panic!("two columns") };
        assert_eq!(known.samples, [Some(8.0), Some(2.0)]);
        assert_eq!((known.mean, known.minimum, known.maximum), (Some(6.0), Some(2.0), Some(8.0)));
        assert_eq!(unknown.samples, [None, None]);
        assert_eq!((unknown.mean, unknown.maximum), (None, None));
    }

    #[test]
    fn idle_devices_have_no_columns() {
        let disk = |of, measure| quantity(Resource::Disk, of, measure, Unit::BytesPerS);
        let quantities = vec![
            disk("process", Measure::Read),
            disk("vda", Measure::Read),
            disk("vda", Measure::Written),
            disk("vdb", Measure::Read),
            disk("vdb", Measure::Written),
        ];
        let mut series = Series::new(quantities);
        series.add(1.0, &[0.0, 0.0, 7.0, 0.0, 0.0]);
        let shown = series.result(1.0);
        let names: Vec<&str> = shown.columns.iter().map(|column| &*column.quantity.of).collect();
        assert_eq!(names, ["process", "vda", "vda"]);
        assert_eq!(shown.idle, ["vdb"]);
    }

    #[test]
    fn samples_are_on_one_line_of_a_report() {
        let mut series = Series::new(vec![resident()]);
        series.add(0.5, &[1234.4]);
        series.add(1.0, &[f64::NAN]);
        series.add(1.5, &[7.0]);
        let shown = series.result(0.5);
        let text = serde_json::to_string_pretty(&shown).unwrap();
        assert!(text.contains("\"samples\": [1234,null,7]\n"), "{text}");
        assert!(text.contains("\"seconds\": [0.5,1,1.5],\n"), "{text}");
        assert_eq!(serde_json::from_str::<ResourceUse>(&text).unwrap(), shown);
        let value = serde_json::to_value(&shown).unwrap();
        assert_eq!(value["columns"][0]["samples"][2], 7);
        assert_eq!(value["columns"][0]["of"], "process");
        assert_eq!(value["columns"][0]["unit"], "bytes");
    }
}
