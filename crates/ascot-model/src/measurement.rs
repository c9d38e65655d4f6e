//! Measured figures of a volume with their spread: its speeds, its requests, and its switch cost by the number of
//! files.

use std::ops::RangeInclusive;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::volume::{BadProfile, MAX_DUPLEX_GAIN, SwitchCost, VolumeProfile};

/// A measured figure: the median of its repetitions and their spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The median.
    pub value: f64,
    /// Half of the distance from the smallest to the largest repetition, in the unit of the value.
    pub spread: f64,
}

impl Figure {
    /// The figure of these repetitions; 0 without any.
    pub fn new(repetitions: &[f64]) -> Figure {
        let mut sorted = repetitions.to_vec();
        sorted.sort_by(f64::total_cmp);
        let [min, .., max] = sorted[..] else {
            return Figure { value: sorted.first().copied().unwrap_or(0.0), spread: 0.0 };
        };
        let median = f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Figure { value: median, spread: (max - min) / 2.0 }
    }

    /// The spread as a share of the value; 0 if the value is 0.
    pub fn relative_spread(&self) -> f64 {
        if self.value == 0.0 { 0.0 } else { (self.spread / self.value).abs() }
    }
}

/// The switch cost for one number of files.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchPoint {
    /// Files that requests alternate between.
    pub files: u32,
    /// Seconds of a switch. A figure below zero is within the spread.
    pub seconds: Figure,
}

/// The speed of one direction, and the requests that reached it.
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
    /// Number in flight.
    pub depth: u32,
}

/// The requests for reading and writing a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRequests {
    /// For reading.
    pub read: Requests,
    /// For writing.
    pub write: Requests,
}

/// Minimum and maximum bytes of a request: no device gains from others.
const REQUEST_BYTES: RangeInclusive<u64> = 4 << 10..=16 << 20;
/// Minimum and maximum number of requests in flight.
const REQUEST_DEPTH: RangeInclusive<u32> = 2..=128;
/// Requests in flight of one direction may take 1 / 8 of a job's memory.
const IN_FLIGHT_SHARE: u64 = 8;

impl Requests {
    /// Bytes in flight.
    fn in_flight(self) -> u64 {
        self.bytes.saturating_mul(self.depth.into())
    }

    /// The requests of a job that moves at most `block_bytes` at once: whole pages, no larger than a block, and enough
    /// of them to keep the measured bytes in flight. The bytes in flight are at least those of `usual`, the requests
    /// without a measurement, and at most a share of `memory_bytes`.
    pub fn within(self, memory_bytes: u64, block_bytes: u64, usual: Requests) -> Requests {
        let (page, max_bytes) = REQUEST_BYTES.into_inner();
        let (min_depth, max_depth) = REQUEST_DEPTH.into_inner();
        let max_in_flight = (memory_bytes / IN_FLIGHT_SHARE).max(page * u64::from(min_depth));
        let min_in_flight = usual.in_flight().min(max_in_flight);
        // No number in flight compensates for smaller requests.
        let smallest = min_in_flight.div_ceil(max_depth.into()).clamp(page, max_bytes).next_multiple_of(page);
        let largest = block_bytes.min(max_in_flight / u64::from(min_depth)).clamp(smallest, max_bytes);
        let bytes = self.bytes.clamp(smallest, largest) / page * page;
        let in_flight = self.in_flight().clamp(min_in_flight, max_in_flight);
        let depth = in_flight.div_ceil(bytes).min(max_in_flight / bytes);
        let depth = u32::try_from(depth).unwrap_or(max_depth);
        Requests { bytes, depth: depth.clamp(min_depth, max_depth) }
    }
}

/// Checks that a figure is a positive, finite number.
pub(crate) fn positive(value: f64, field: &'static str) -> Result<(), BadProfile> {
    (value.is_finite() && value > 0.0).then_some(()).ok_or(BadProfile::NotPositive(field))
}

/// A cache that shows in a burst of writes: until it is full, the device is faster than after.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheMeasurement {
    /// Bytes written before the rate falls.
    pub bytes: u64,
    /// Bytes/s before that.
    pub filling: f64,
    /// Bytes/s after that.
    pub full: f64,
}

/// The parameters and figures of a volume's measurement. Reading refuses impossible figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct VolumeMeasurement {
    /// Sequential reading.
    pub read: Speed,
    /// Sequential writing.
    pub write: Speed,
    /// Each direction with both busy, bytes/s.
    pub duplex: Figure,
    /// Seconds of a request beyond those of its bytes, as jobs with small blocks issue them; `None`: not measured. A
    /// figure below zero is within the spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_seconds: Option<Figure>,
    /// Seconds of a checkpoint: to make written bytes durable, and to replace a small file durably; `None`: not
    /// measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_seconds: Option<Figure>,
    /// Bytes of a run in the measurement of switches.
    pub run_bytes: u64,
    /// Switches between files that are read.
    pub read_switches: Vec<SwitchPoint>,
    /// Switches between files that are written.
    pub write_switches: Vec<SwitchPoint>,
    /// The device's write cache; `None`: it is not visible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheMeasurement>,
    /// Bytes of the files used.
    pub used_bytes: u64,
    /// Measurements of each figure.
    pub repeats: u32,
    /// Duration, seconds.
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
    /// Checks that the figures are possible. A switch cost may be below zero, within its spread.
    pub fn check(&self) -> Result<(), BadProfile> {
        positive(self.read.rate.value, "measurement.read.rate.value")?;
        positive(self.read.request_bytes as f64, "measurement.read.request_bytes")?;
        positive(self.read.depth.into(), "measurement.read.depth")?;
        positive(self.write.rate.value, "measurement.write.rate.value")?;
        positive(self.write.request_bytes as f64, "measurement.write.request_bytes")?;
        positive(self.write.depth.into(), "measurement.write.depth")?;
        positive(self.duplex.value, "measurement.duplex.value")?;
        let request = self.request_seconds.map_or(0.0, |figure| figure.value);
        request
            .is_finite()
            .then_some(())
            .ok_or(BadProfile::NotFinite("measurement.request_seconds.value"))?;
        if let Some(checkpoint) = self.checkpoint_seconds {
            positive(checkpoint.value, "measurement.checkpoint_seconds.value")?;
        }
        positive(self.run_bytes as f64, "measurement.run_bytes")?;
        if let Some(cache) = self.cache {
            positive(cache.bytes as f64, "measurement.cache.bytes")?;
            positive(cache.filling, "measurement.cache.filling")?;
            positive(cache.full, "measurement.cache.full")?;
        }
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

    /// The switch cost for plans: the mean of reading and writing, because a job switches between the files that it
    /// reads about as often as between those that it writes. A cost within the spread counts as zero.
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

    /// The fastest requests; of equally fast ones, those with the fewest bytes in flight.
    pub fn requests(&self) -> VolumeRequests {
        let requests = |speed: Speed| Requests { bytes: speed.request_bytes, depth: speed.depth };
        VolumeRequests { read: requests(self.read), write: requests(self.write) }
    }

    /// The profile for plans. If a short measurement found both directions together faster than any volume is, the
    /// profile has the greatest possible rate.
    pub fn profile(&self, name: &str) -> VolumeProfile {
        let max_duplex = MAX_DUPLEX_GAIN * self.read.rate.value.min(self.write.rate.value);
        VolumeProfile {
            duplex_bytes_per_s: Some(self.duplex.value.min(max_duplex)),
            switch_seconds: self.switch_cost(),
            cache_bytes: self.cache.map_or(0, |cache| cache.bytes),
            request_seconds: self.request_seconds.map_or(0.0, |figure| figure.value.max(0.0)),
            checkpoint_seconds: self.checkpoint_seconds.map_or(0.0, |figure| figure.value),
            measured: true,
            ..VolumeProfile::simple(name, self.read.rate.value, self.write.rate.value, 0.0)
        }
    }
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
            // The same bytes in flight in smaller requests, the ones that jobs use.
            (requests(4 << 20, 16), 1 << 30, 1 << 20, requests(1 << 20, 64)),
            (requests(4 << 20, 4), 16 << 20, 32 << 10, requests(32 << 10, 64)),
            (requests(3 << 20, 4), 1 << 30, 1 << 20, requests(1 << 20, 12)),
            // At least as many as without a measurement.
            (requests(4 << 20, 1), 1 << 30, 1 << 20, requests(1 << 20, 8)),
            (requests(1 << 18, 4), 1 << 30, 1 << 20, requests(1 << 18, 32)),
            (requests(0, 0), 16 << 20, 32 << 10, requests(16 << 10, 128)),
            (requests(u64::MAX, u32::MAX), u64::MAX, u64::MAX, requests(16 << 20, 128)),
        ] {
            assert_eq!(measured.within(memory, block, usual), followed, "{measured:?} {memory} {block}");
        }
    }

    proptest::proptest! {
        /// Whatever was measured, a job has at least the bytes in flight of an unmeasured volume, and at most what
        /// memory allows.
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
    fn a_profile_is_valid_whatever_the_noise() {
        let mut noisy = measurement();
        noisy.duplex.value = 3.0 * noisy.read.rate.value;
        assert_eq!(noisy.profile("x").check(), Ok(()));
        assert_eq!(measurement().profile("x").duplex_bytes_per_s, Some(measurement().duplex.value));
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
            request_seconds: Some(Figure { value: -1e-6, spread: 1e-6 }),
            checkpoint_seconds: Some(Figure { value: 2e-3, spread: 1e-4 }),
            run_bytes: 1 << 18,
            read_switches: vec![point(2, 4e-3), point(4, -1e-6), point(8, 9e-7)],
            write_switches: vec![point(2, 8e-3), point(4, 2e-3), point(8, 5e-7)],
            cache: None,
            used_bytes: 1 << 30,
            repeats: 5,
            seconds: 20.0,
        }
    }

    #[test]
    fn a_figure_is_the_median_and_half_the_range() {
        assert_eq!(Figure::new(&[3.0, 1.0, 2.0]), Figure { value: 2.0, spread: 1.0 });
        assert_eq!(Figure::new(&[1.0, 4.0]), Figure { value: 2.5, spread: 1.5 });
        assert_eq!(Figure::new(&[]), Figure::default());
        assert!((Figure::new(&[9.0, 10.0, 11.0]).relative_spread() - 0.1).abs() < 1e-12);
    }

    #[test]
    fn a_switch_is_the_mean_of_both_and_nothing_within_its_spread() {
        let profile = measurement().profile("disk");
        assert_eq!(profile.switch_seconds, SwitchCost::Curve(vec![(2.0, 6e-3), (4.0, 1e-3), (8.0, 0.0)]));
        assert!(profile.measured);
        assert_eq!(profile.check(), Ok(()));
    }
}
