//! What a measurement found: figures with their spread, the switch cost by number of streams, the
//! speeds of the compute kernels; and the whole of it as the text of a profile (docs/formats/volume.md).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::host::{HostProfile, KernelRates, RecordClass};
use crate::switch_cost::SwitchCost;
use crate::volume::{BadProfile, VolumeProfile};

/// A measured figure: the median of its repetitions, and how far they lie apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The median.
    pub value: f64,
    /// Half of the distance from the least to the greatest repetition, in the unit of the value.
    pub spread: f64,
}

impl Figure {
    /// The figure of some repetitions; 0 without any.
    pub fn of(repetitions: &[f64]) -> Figure {
        let mut sorted = repetitions.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(&least), Some(&most)) = (sorted.first(), sorted.last()) else { return Figure::default() };
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Figure { value: f64::midpoint(low, high), spread: (most - least) / 2.0 }
    }

    /// The spread as a share of the value; 0 where there is no value.
    pub fn relative_spread(&self) -> f64 {
        if self.value == 0.0 { 0.0 } else { (self.spread / self.value).abs() }
    }
}

/// What a switch costs among so many streams.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchPoint {
    /// Files that requests alternate between.
    pub files: u32,
    /// Seconds of a switch. Below zero: a switch is lost in the spread.
    pub seconds: Figure,
}

/// The speed of one direction, with the requests that reached it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Speed {
    /// Bytes/s.
    pub rate: Figure,
    /// Bytes of a request.
    pub request_bytes: u64,
    /// Requests in flight.
    pub depth: u32,
}

/// Requests of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// Bytes of the largest.
    pub bytes: u64,
    /// So many in flight.
    pub depth: u32,
}

/// The requests a volume is read and written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRequests {
    /// Of reading.
    pub read: Requests,
    /// Of writing.
    pub write: Requests,
}

/// Sizes and depths that are followed: what is beyond them is no gain on any device.
const REQUEST_BYTES: (u64, u64) = (4 << 10, 16 << 20);
const REQUEST_DEPTH: (u32, u32) = (2, 128);
/// Of the memory of a job, what requests of one direction may have in flight: one part in so many.
const IN_FLIGHT_SHARE: u64 = 8;

impl Requests {
    /// Bytes in flight.
    fn in_flight(self) -> u64 {
        self.bytes.saturating_mul(self.depth.into())
    }

    /// The requests of a job that moves no more than `block_bytes` at once: whole pages, no larger than that, and
    /// so many more of them that as much is in flight as was measured. What is `usual` without a measurement is
    /// the least in flight, a share of `memory_bytes` the most.
    pub fn within(self, memory_bytes: u64, block_bytes: u64, usual: Requests) -> Requests {
        let ((page, most), (fewest, deepest)) = (REQUEST_BYTES, REQUEST_DEPTH);
        let share = (memory_bytes / IN_FLIGHT_SHARE).max(page * u64::from(fewest));
        let least = usual.in_flight().min(share);
        // Smaller than this, no depth would make up for it.
        let smallest = least.div_ceil(deepest.into()).clamp(page, most).next_multiple_of(page);
        let largest = block_bytes.min(share / u64::from(fewest)).clamp(smallest, most);
        let bytes = self.bytes.clamp(smallest, largest) / page * page;
        let depth = self.in_flight().clamp(least, share).div_ceil(bytes).min(share / bytes);
        let depth = u32::try_from(depth).unwrap_or(u32::MAX);
        Requests { bytes, depth: depth.clamp(fewest, deepest) }
    }
}

/// How a volume was measured, and what came out in full. One that cannot be true is not read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct VolumeMeasurement {
    /// Sequential reading.
    pub read: Speed,
    /// Sequential writing.
    pub write: Speed,
    /// Each way while both are busy, bytes/s.
    pub duplex: Figure,
    /// Bytes of a run in the measurement of switches.
    pub run_bytes: u64,
    /// Switches between files that are read.
    pub read_switches: Vec<SwitchPoint>,
    /// Switches between files that are written.
    pub write_switches: Vec<SwitchPoint>,
    /// Bytes of the files that were used.
    pub used_bytes: u64,
    /// Times each figure was measured.
    pub repeats: u32,
    /// Seconds it took.
    pub seconds: f64,
}

impl Serialize for VolumeMeasurement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for VolumeMeasurement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = Self::deserialize(deserializer)?;
        read.check().map_err(serde::de::Error::custom)?;
        Ok(read)
    }
}

impl VolumeMeasurement {
    /// Whether the figures can be true. What a switch costs may be lost in its spread, below zero.
    pub fn check(&self) -> Result<(), BadProfile> {
        let positive = |value: f64, field| {
            (value.is_finite() && value > 0.0).then_some(()).ok_or(BadProfile::NotPositive(field))
        };
        positive(self.read.rate.value, "measurement.read.rate.value")?;
        positive(self.read.request_bytes as f64, "measurement.read.request_bytes")?;
        positive(self.read.depth.into(), "measurement.read.depth")?;
        positive(self.write.rate.value, "measurement.write.rate.value")?;
        positive(self.write.request_bytes as f64, "measurement.write.request_bytes")?;
        positive(self.write.depth.into(), "measurement.write.depth")?;
        positive(self.duplex.value, "measurement.duplex.value")?;
        positive(self.run_bytes as f64, "measurement.run_bytes")?;
        positive(self.used_bytes as f64, "measurement.used_bytes")?;
        positive(self.repeats.into(), "measurement.repeats")?;
        positive(self.seconds, "measurement.seconds")?;
        for point in self.read_switches.iter().chain(&self.write_switches) {
            positive(point.files.into(), "measurement.*_switches.files")?;
            let finite = point.seconds.value.is_finite();
            finite.then_some(()).ok_or(BadProfile::NotFinite("measurement.*_switches.seconds.value"))?;
        }
        Ok(())
    }

    /// What plans use: a job switches between files it reads about as often as between those it writes,
    /// so a switch is the mean of the two. What is lost in the spread costs nothing.
    pub fn switch_cost(&self) -> SwitchCost {
        let pairs = self.read_switches.iter().zip(&self.write_switches);
        let points: Vec<(f64, f64)> = pairs
            .map(|(read, write)| {
                let cost = |point: &SwitchPoint| {
                    let Figure { value, spread } = point.seconds;
                    if value > spread { value } else { 0.0 }
                };
                (f64::from(read.files), f64::midpoint(cost(read), cost(write)))
            })
            .collect();
        if points.is_empty() { SwitchCost::Constant(0.0) } else { SwitchCost::Curve(points) }
    }

    /// The requests that were fastest, of those about as fast the ones with the fewest bytes in flight.
    pub fn requests(&self) -> VolumeRequests {
        let of = |speed: Speed| Requests { bytes: speed.request_bytes, depth: speed.depth };
        VolumeRequests { read: of(self.read), write: of(self.write) }
    }

    /// The profile that plans read.
    pub fn profile(&self, name: &str) -> VolumeProfile {
        VolumeProfile {
            duplex_bytes_per_s: Some(self.duplex.value),
            switch_seconds: self.switch_cost(),
            measured: true,
            ..VolumeProfile::simple(name, self.read.rate.value, self.write.rate.value, 0.0)
        }
    }
}

/// What the kernels do to one kind of record, on one of all threads that are at it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelMeasurement {
    /// The records, as `--format` calls them.
    pub layout: String,
    /// What kernels are at work.
    pub class: RecordClass,
    /// Mean length of a record, bytes.
    pub record_bytes: f64,
    /// Cutting into records and sorting in memory, bytes/s.
    pub sort: Figure,
    /// Merging [`NARROW_MERGE`](crate::host::NARROW_MERGE) sorted pieces, copying included, bytes/s.
    pub merge: Figure,
    /// The same of [`WIDE_MERGE`](crate::host::WIDE_MERGE); none: not measured, taken to be as fast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wide_merge: Option<Figure>,
}

/// What a host's kernels do, measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostMeasurement {
    /// Compute threads there are.
    pub threads: usize,
    /// Memory that was not used before, as one thread gets it, bytes/s; none: not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fresh_memory: Option<Figure>,
    /// By kind of record.
    pub kernels: Vec<KernelMeasurement>,
}

impl HostMeasurement {
    /// Whether the figures can be true.
    pub fn check(&self) -> Result<(), BadProfile> {
        let positive = |value: f64, field| {
            (value.is_finite() && value > 0.0).then_some(()).ok_or(BadProfile::NotPositive(field))
        };
        positive(self.threads as f64, "host.threads")?;
        positive(self.fresh_memory.map_or(1.0, |figure| figure.value), "host.fresh_memory.value")?;
        for kernel in &self.kernels {
            positive(kernel.record_bytes, "host.kernels.record_bytes")?;
            positive(kernel.sort.value, "host.kernels.sort.value")?;
            positive(kernel.merge.value, "host.kernels.merge.value")?;
            positive(kernel.wide_merge.map_or(1.0, |figure| figure.value), "host.kernels.wide_merge.value")?;
        }
        Ok(())
    }

    /// The host for records of a class and mean length: what is assumed of them, as much faster or
    /// slower as the kernels of that class were found to be. Splitting copies as merging does and is
    /// taken to differ as much; a class that was not measured stays as assumed.
    pub fn profile(&self, class: RecordClass, record_bytes: f64) -> HostProfile {
        let assumed = KernelRates::assumed(class, record_bytes);
        let rates = match self.kernels.iter().find(|kernel| kernel.class == class) {
            Some(kernel) => {
                let there = KernelRates::assumed(class, kernel.record_bytes);
                let merging = kernel.merge.value / there.merge_bytes_per_s;
                let wide = kernel.wide_merge.unwrap_or(kernel.merge).value / there.wide_merge_bytes_per_s;
                KernelRates {
                    sort_bytes_per_s: assumed.sort_bytes_per_s * kernel.sort.value / there.sort_bytes_per_s,
                    merge_bytes_per_s: assumed.merge_bytes_per_s * merging,
                    wide_merge_bytes_per_s: assumed.wide_merge_bytes_per_s * wide,
                    split_bytes_per_s: assumed.split_bytes_per_s * merging,
                }
            }
            None => assumed,
        };
        let fresh_bytes_per_s = self.fresh_memory.map(|figure| figure.value);
        HostProfile { threads: self.threads, rates, fresh_bytes_per_s }
    }
}

/// A profile with all that was measured. Its `Display` is the text of the file that plans read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredProfile {
    /// What plans use.
    pub volume: VolumeProfile,
    /// What it was made from.
    pub measurement: VolumeMeasurement,
    /// The processors.
    pub host: HostMeasurement,
}

impl fmt::Display for MeasuredProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VolumeProfile { name, read_bytes_per_s, write_bytes_per_s, .. } = &self.volume;
        writeln!(f, "# What `ascot plan --volume FILE` reads: docs/formats/volume.md.")?;
        writeln!(f, "name = {}", quoted(name))?;
        writeln!(f, "read_bytes_per_s = {read_bytes_per_s:e}")?;
        writeln!(f, "write_bytes_per_s = {write_bytes_per_s:e}")?;
        if let Some(duplex) = self.volume.duplex_bytes_per_s {
            writeln!(f, "duplex_bytes_per_s = {duplex:e}")?;
        }
        match &self.volume.switch_seconds {
            SwitchCost::Constant(seconds) => writeln!(f, "switch_seconds = {seconds:e}")?,
            SwitchCost::Curve(points) => {
                let points: Vec<String> = points.iter().map(|(x, y)| format!("[{x}, {y:e}]")).collect();
                writeln!(f, "switch_seconds = [{}]", points.join(", "))?;
            }
        }
        writeln!(f, "measured = {}", self.volume.measured)?;
        write_measurement(f, &self.measurement)?;
        writeln!(f, "\n[host]\nthreads = {}", self.host.threads)?;
        if let Some(fresh) = self.host.fresh_memory {
            writeln!(f, "fresh_memory = {}", table(fresh))?;
        }
        for kernel in &self.host.kernels {
            writeln!(f, "\n[[host.kernels]]\nlayout = {}", quoted(&kernel.layout))?;
            writeln!(f, "class = \"{:?}\"\nrecord_bytes = {:e}", kernel.class, kernel.record_bytes)?;
            writeln!(f, "sort = {}\nmerge = {}", table(kernel.sort), table(kernel.merge))?;
            if let Some(wide) = kernel.wide_merge {
                writeln!(f, "wide_merge = {}", table(wide))?;
            }
        }
        Ok(())
    }
}

fn write_measurement(f: &mut fmt::Formatter<'_>, measured: &VolumeMeasurement) -> fmt::Result {
    let VolumeMeasurement { run_bytes, used_bytes, repeats, seconds, .. } = measured;
    writeln!(f, "\n[measurement]\nduplex = {}", table(measured.duplex))?;
    writeln!(f, "run_bytes = {run_bytes}\nused_bytes = {used_bytes}")?;
    writeln!(f, "repeats = {repeats}\nseconds = {seconds:e}")?;
    for (name, speed) in [("read", &measured.read), ("write", &measured.write)] {
        writeln!(
            f,
            "{name} = {{ rate = {}, request_bytes = {}, depth = {} }}",
            table(speed.rate),
            speed.request_bytes,
            speed.depth
        )?;
    }
    for (name, points) in
        [("read_switches", &measured.read_switches), ("write_switches", &measured.write_switches)]
    {
        writeln!(f, "{name} = [")?;
        for point in points {
            writeln!(f, "  {{ files = {}, seconds = {} }},", point.files, table(point.seconds))?;
        }
        writeln!(f, "]")?;
    }
    Ok(())
}

fn table(figure: Figure) -> String {
    format!("{{ value = {:e}, spread = {:e} }}", figure.value, figure.spread)
}

/// A string as TOML writes it.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            _ if letter.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(letter))),
            _ => out.push(letter),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_stay_within_memory_and_reason() {
        let requests = |bytes, depth| Requests { bytes, depth };
        let usual = requests(1 << 20, 8);
        for (measured, memory, block, followed) in [
            (requests(1 << 20, 16), 1 << 30, 1 << 20, requests(1 << 20, 16)),
            // As much in flight in smaller requests: those that are moved.
            (requests(4 << 20, 16), 1 << 30, 1 << 20, requests(1 << 20, 64)),
            (requests(4 << 20, 4), 16 << 20, 32 << 10, requests(32 << 10, 64)),
            (requests(3 << 20, 4), 1 << 30, 1 << 20, requests(1 << 20, 12)),
            // No less than without a measurement.
            (requests(4 << 20, 1), 1 << 30, 1 << 20, requests(1 << 20, 8)),
            (requests(1 << 18, 4), 1 << 30, 1 << 20, requests(1 << 18, 32)),
            (requests(0, 0), 16 << 20, 32 << 10, requests(16 << 10, 128)),
            (requests(u64::MAX, u32::MAX), u64::MAX, u64::MAX, requests(16 << 20, 128)),
        ] {
            assert_eq!(measured.within(memory, block, usual), followed, "{measured:?} {memory} {block}");
        }
    }

    proptest::proptest! {
        /// Whatever was measured, a job has no less in flight than without, and no more than memory allows.
        #[test]
        fn a_measurement_takes_nothing_away(
            bytes in 0u64..64 << 20, depth in 0u32..300, memory in 8u64 << 20..64 << 30, shift in 15u32..21
        ) {
            let (usual, block) = (Requests { bytes: 1 << 20, depth: 8 }, 1 << shift);
            let followed = Requests { bytes, depth }.within(memory, block, usual);
            let (share, page) = (memory / IN_FLIGHT_SHARE, 4 << 10);
            assert!(followed.bytes.is_multiple_of(page) && followed.bytes <= block.max(1 << 16) && followed.depth >= 2);
            assert!(followed.in_flight() <= share, "{followed:?}");
            assert!(followed.in_flight() + followed.bytes > usual.in_flight().min(share), "{followed:?}");
        }
    }

    #[test]
    fn measurements_that_cannot_be_are_refused() {
        assert_eq!(measurement().check(), Ok(()));
        for (change, field) in [
            ((|m| m.read.rate.value = -5.0) as fn(&mut VolumeMeasurement), "measurement.read.rate.value"),
            (|m| m.read.request_bytes = 0, "measurement.read.request_bytes"),
            (|m| m.write.depth = 0, "measurement.write.depth"),
            (|m| m.duplex.value = f64::NAN, "measurement.duplex.value"),
            (|m| m.seconds = 0.0, "measurement.seconds"),
            (|m| m.write_switches[1].files = 0, "measurement.*_switches.files"),
        ] {
            let mut wrong = measurement();
            change(&mut wrong);
            assert_eq!(wrong.check(), Err(BadProfile::NotPositive(field)));
        }
        let mut wrong = measurement();
        wrong.read_switches[0].seconds.value = f64::INFINITY;
        assert!(matches!(wrong.check(), Err(BadProfile::NotFinite(_))));
    }

    fn point(files: u32, value: f64) -> SwitchPoint {
        SwitchPoint { files, seconds: Figure { value, spread: 1e-6 } }
    }

    fn measurement() -> VolumeMeasurement {
        let speed = Speed { rate: Figure { value: 2e9, spread: 1e8 }, request_bytes: 1 << 20, depth: 4 };
        VolumeMeasurement {
            read: speed,
            write: speed,
            duplex: Figure { value: 1e9, spread: 0.0 },
            run_bytes: 1 << 18,
            read_switches: vec![point(2, 4e-3), point(4, -1e-6), point(8, 9e-7)],
            write_switches: vec![point(2, 8e-3), point(4, 2e-3), point(8, 5e-7)],
            used_bytes: 1 << 30,
            repeats: 5,
            seconds: 20.0,
        }
    }

    #[test]
    fn a_figure_is_the_median_and_half_the_range() {
        assert_eq!(Figure::of(&[3.0, 1.0, 2.0]), Figure { value: 2.0, spread: 1.0 });
        assert_eq!(Figure::of(&[1.0, 4.0]), Figure { value: 2.5, spread: 1.5 });
        assert_eq!(Figure::of(&[]), Figure::default());
        assert!((Figure::of(&[9.0, 10.0, 11.0]).relative_spread() - 0.1).abs() < 1e-12);
    }

    #[test]
    fn a_switch_is_the_mean_of_both_and_nothing_within_its_spread() {
        let profile = measurement().profile("disk");
        assert_eq!(profile.switch_seconds, SwitchCost::Curve(vec![(2.0, 6e-3), (4.0, 1e-3), (8.0, 0.0)]));
        assert!(profile.measured);
        assert_eq!(profile.check(), Ok(()));
    }

    #[test]
    fn a_host_scales_what_is_assumed() {
        let assumed = KernelRates::assumed(RecordClass::Fixed, 100.0);
        let twice = |value: f64| Figure { value: 2.0 * value, spread: 0.0 };
        let host = HostMeasurement {
            threads: 3,
            fresh_memory: Some(Figure { value: 2e9, spread: 1e8 }),
            kernels: vec![KernelMeasurement {
                layout: "fixed:100".into(),
                class: RecordClass::Fixed,
                record_bytes: 100.0,
                sort: twice(assumed.sort_bytes_per_s),
                merge: twice(assumed.merge_bytes_per_s),
                wide_merge: Some(Figure { value: assumed.merge_bytes_per_s, spread: 0.0 }),
            }],
        };
        assert_eq!(host.profile(RecordClass::Fixed, 500.0).fresh_bytes_per_s, Some(2e9));
        let (measured, usual) =
            (host.profile(RecordClass::Fixed, 500.0).rates, KernelRates::assumed(RecordClass::Fixed, 500.0));
        assert!((measured.sort_bytes_per_s / usual.sort_bytes_per_s - 2.0).abs() < 1e-9);
        assert!((measured.wide_merge_bytes_per_s / usual.wide_merge_bytes_per_s - 1.0).abs() < 1e-9);
        assert!((measured.split_bytes_per_s / usual.split_bytes_per_s - 2.0).abs() < 1e-9);
        assert_eq!(
            host.profile(RecordClass::Line, 50.0).rates,
            KernelRates::assumed(RecordClass::Line, 50.0)
        );
    }

    #[test]
    fn names_are_quoted() {
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000A\"");
    }
}
