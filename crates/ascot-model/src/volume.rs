//! The speeds of a volume, and the time of a pass over it.
//!
//! The rate formula (Stella and Loguinov, section II.B, equation 2): N bytes, of which a share `a` is read, take `N
//! (a/S_r + (1 - a)/S_w + delta/L)` seconds in runs of mean length L if reading and writing alternate. An object store
//! fits the formula: a request is a switch, and its bytes are a run.
//!
//! If a volume is faster with both directions together, they overlap, unless a switch costs more than moving a block.
//! Then they take turns on every volume, because overlapping costs two switches for each block read and block written:
//!
//! ```text
//!   a block moves in b = 1 MiB / S seconds, where S is the slower of the two rates; a switch takes delta > b
//!   with both busy each direction moves at most at 1.5 S, so overlapping saves at most 2 b - b / 1.5 = 1.33 b
//!   it costs 2 delta > 2 b
//! ```
//!
//! The cost of a switch is the mean time between the end of one run and the start of the next, a curve over the number
//! of files that are read and written at once. More files are farther apart, and a controller that reads ahead for
//! each of them wastes more, so the cost rises with their number. Between measured points the curve is a straight line
//! over the logarithm of the number; beyond them it is constant.

use serde::{Deserialize, Serialize};

use crate::units;

/// Maximum bytes of a block that jobs move if switches cost almost nothing.
const BLOCK_BYTES: f64 = 1_048_576.0;
/// Bounds of the rates of real volumes, bytes/s: a figure beyond them is a typing error.
const MIN_RATE: f64 = 1.0;
const MAX_RATE: f64 = 1e15;
/// The rate of each direction with both busy exceeds that of the slower one alone at most by this factor: more is no
/// error of measuring.
pub(crate) const MAX_DUPLEX_GAIN: f64 = 1.5;
/// Minimum limit for requests of an object store: a sector, bytes.
const MIN_REQUEST_BYTES: u64 = 512;

/// Speeds of a volume in bytes/s, and the cost of a switch in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeProfile {
    /// Its name in plans.
    pub name: String,
    /// Sequential reading, bytes/s.
    pub read_bytes_per_s: f64,
    /// Sequential writing, bytes/s.
    pub write_bytes_per_s: f64,
    /// Each direction with both busy, bytes/s; `None`: reading and writing alternate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplex_bytes_per_s: Option<f64>,
    /// Seconds lost when a request does not continue the previous one: a number, or a curve over the number of files,
    /// `[[files, seconds], ...]`.
    pub switch_seconds: SwitchCost,
    /// Seconds of a request beyond those of its bytes.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub request_seconds: f64,
    /// Seconds of a checkpoint, which makes written data durable, and then a small file that replaces another.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub checkpoint_seconds: f64,
    /// The device's own cache, bytes: it joins runs if those of all streams fit into it together.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_bytes: u64,
    /// Maximum bytes of an object store's request. A longer run is several requests, each of them a switch.
    #[serde(rename = "most_request_bytes", default, skip_serializing_if = "Option::is_none")]
    pub max_request_bytes: Option<u64>,
    /// Prices, if using it costs money.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
    /// Whether these figures were measured.
    #[serde(default)]
    pub measured: bool,
}

/// Prices, in the currency of the profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prices {
    /// One reading request.
    pub read_request: f64,
    /// One writing request.
    pub write_request: f64,
    /// One hour of the machine that does the job.
    pub hour: f64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_nothing(seconds: &f64) -> bool {
    *seconds == 0.0
}

/// An impossible profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadProfile {
    /// A figure that must be a positive, finite number.
    #[error("{0} must be a positive number")]
    NotPositive(&'static str),
    /// A figure that must be a finite number.
    #[error("{0} must be a finite number")]
    NotFinite(&'static str),
    /// A rate that no volume has.
    #[error("{0} must be a rate from {MIN_RATE} to {MAX_RATE:e} bytes/s")]
    Rate(&'static str),
    /// A request limit below a sector.
    #[error("most_request_bytes must be at least {MIN_REQUEST_BYTES}, a sector")]
    ShortRequests,
    /// A figure that must not be negative.
    #[error("{0} must not be negative")]
    Negative(&'static str),
    /// The rate of each direction with both busy exceeds that of one direction alone by more than measurement errors
    /// explain.
    #[error(
        "duplex_bytes_per_s, the rate of each direction while both are busy, is above what a direction does alone"
    )]
    DuplexAboveAlone,
    /// The switch cost.
    #[error("switch_seconds: {0}")]
    Switch(BadSwitchCost),
}

impl VolumeProfile {
    /// The profile in one line, with its switch cost between `files` files.
    pub fn summary(&self, files: u32) -> String {
        let mut text = format!(
            "{}: reads {}, writes {}",
            self.name,
            units::rate(self.read_bytes_per_s),
            units::rate(self.write_bytes_per_s)
        );
        if let Some(duplex) = self.duplex_bytes_per_s {
            text += &format!(", both at once {} each", units::rate(duplex));
        }
        let switch_ms = self.switch_seconds.seconds(f64::from(files)) * 1e3;
        text + &format!(", {switch_ms:.3} ms a switch")
    }

    /// A volume with only these speeds.
    pub fn simple(name: &str, read_bytes_per_s: f64, write_bytes_per_s: f64, switch_seconds: f64) -> Self {
        VolumeProfile {
            name: name.into(),
            read_bytes_per_s,
            write_bytes_per_s,
            duplex_bytes_per_s: None,
            switch_seconds: SwitchCost::Constant(switch_seconds),
            request_seconds: 0.0,
            checkpoint_seconds: 0.0,
            cache_bytes: 0,
            max_request_bytes: None,
            prices: None,
            measured: false,
        }
    }

    /// A plain solid-state volume, for plans without a measurement.
    pub fn assumed_flash() -> Self {
        let duplex_bytes_per_s = Some(1.0e9);
        VolumeProfile { duplex_bytes_per_s, ..Self::simple("flash, assumed", 1.4e9, 1.8e9, 100e-6) }
    }

    /// Whether these are the rates assumed where nothing is known of the volume.
    pub fn is_assumed_flash(&self) -> bool {
        *self == Self::assumed_flash()
    }

    /// Checks that the figures are possible.
    pub fn check(&self) -> Result<(), BadProfile> {
        let rate = |value: f64, field| {
            if !(value.is_finite() && value > 0.0) {
                return Err(BadProfile::NotPositive(field));
            }
            (MIN_RATE..=MAX_RATE).contains(&value).then_some(()).ok_or(BadProfile::Rate(field))
        };
        let not_negative = |value: f64, field| {
            (value.is_finite() && value >= 0.0).then_some(()).ok_or(BadProfile::Negative(field))
        };
        rate(self.read_bytes_per_s, "read_bytes_per_s")?;
        rate(self.write_bytes_per_s, "write_bytes_per_s")?;
        self.switch_seconds.check().map_err(BadProfile::Switch)?;
        if let Some(duplex) = self.duplex_bytes_per_s {
            rate(duplex, "duplex_bytes_per_s")?;
            if duplex > MAX_DUPLEX_GAIN * self.read_bytes_per_s.min(self.write_bytes_per_s) {
                return Err(BadProfile::DuplexAboveAlone);
            }
        }
        if self.max_request_bytes.is_some_and(|bytes| bytes < MIN_REQUEST_BYTES) {
            return Err(BadProfile::ShortRequests);
        }
        not_negative(self.request_seconds, "request_seconds")?;
        not_negative(self.checkpoint_seconds, "checkpoint_seconds")?;
        let prices = self.prices.unwrap_or_default();
        not_negative(prices.read_request, "prices.read_request")?;
        not_negative(prices.write_request, "prices.write_request")?;
        not_negative(prices.hour, "prices.hour")
    }

    /// Seconds to read and write these bytes with `switches` switches between `files` files. Both directions overlap
    /// if the volume gains from it and they take no turns.
    pub fn seconds(&self, read_bytes: f64, written_bytes: f64, switches: f64, files: f64) -> f64 {
        let alone_s = read_bytes / self.read_bytes_per_s + written_bytes / self.write_bytes_per_s;
        let moving_s = match self.duplex_bytes_per_s.filter(|_| !self.wants_runs(files)) {
            Some(duplex) => {
                let both = read_bytes.min(written_bytes);
                let rest_s = (read_bytes - both) / self.read_bytes_per_s
                    + (written_bytes - both) / self.write_bytes_per_s;
                alone_s.min(both / duplex + rest_s)
            }
            None => alone_s,
        };
        moving_s + switches * self.switch_seconds.seconds(files)
    }

    /// Seconds of `requests` requests beyond those of their bytes, and of `checkpoints` checkpoints.
    pub fn seconds_of(&self, requests: u64, checkpoints: u64) -> f64 {
        requests as f64 * self.request_seconds + checkpoints as f64 * self.checkpoint_seconds
    }

    /// Whether a switch between `files` files costs more than moving a block. Then long runs are worthwhile, reading
    /// and writing take turns, and the fewest passes are not always the fastest.
    pub fn wants_runs(&self, files: f64) -> bool {
        self.switch_seconds.seconds(files) * self.read_bytes_per_s.min(self.write_bytes_per_s) > BLOCK_BYTES
    }

    /// The mean length of runs, bytes, in which switches between `files` files take this share of the time of writing.
    pub fn run_bytes(&self, switch_share: f64, files: f64) -> f64 {
        self.switch_seconds.seconds(files) * self.write_bytes_per_s * (1.0 - switch_share) / switch_share
    }

    /// The rate formula: bytes/s read and written together, with a share `alpha` of reading, in runs of a mean length
    /// between `files` files.
    pub fn rate(&self, alpha: f64, run_bytes: f64, files: f64) -> f64 {
        let unbroken = self.unbroken(run_bytes);
        let switches = if unbroken.is_infinite() { 0.0 } else { 1.0 / unbroken };
        1.0 / self.seconds(alpha, 1.0 - alpha, switches, files)
    }

    /// Whether runs are long enough for the rate formula. The device's own cache joins shorter ones, and then the
    /// device is faster than the formula (section VII.B).
    pub fn formula_holds(&self, run_bytes: f64, files: f64) -> bool {
        files * run_bytes >= self.cache_bytes as f64
    }

    /// Bytes moved between two switches in runs of a mean length: fewer if requests have a limit.
    pub fn unbroken(&self, run_bytes: f64) -> f64 {
        self.max_request_bytes.map_or(run_bytes, |limit| run_bytes.min(limit as f64))
    }

    /// The switches of `runs` runs that move `bytes` bytes: more than the runs if requests have a limit.
    pub fn switches(&self, bytes: f64, runs: f64) -> f64 {
        self.max_request_bytes.map_or(runs, |limit| runs.max((bytes / limit as f64).ceil()))
    }

    /// The price of a pass, in the currency of the profile.
    pub fn money(&self, reads: f64, writes: f64, seconds: f64) -> f64 {
        let prices = self.prices.unwrap_or_default();
        reads * prices.read_request + writes * prices.write_request + seconds / 3600.0 * prices.hour
    }
}

/// Seconds of a switch, over the number of files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SwitchCost {
    /// The same for any number of files.
    Constant(f64),
    /// `[files, seconds]`, by ascending files.
    Curve(Vec<(f64, f64)>),
}

/// Maximum seconds of a switch: winding a tape takes less.
const MAX_SECONDS: f64 = 3600.0;

/// An impossible switch cost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSwitchCost {
    /// The curve is empty.
    #[error("the curve of switch costs has no point")]
    Empty,
    /// Seconds that are negative, more than an hour, or not a number.
    #[error("a switch cannot cost such a number of seconds: give 0 to 3,600")]
    Seconds,
    /// Numbers of files that do not ascend, or are below one.
    #[error("the numbers of files of switch costs must ascend from 1")]
    Files,
}

impl SwitchCost {
    /// Seconds of a switch between `files` files.
    pub fn seconds(&self, files: f64) -> f64 {
        match self {
            SwitchCost::Constant(seconds) => *seconds,
            SwitchCost::Curve(points) => {
                let after = points.partition_point(|point| point.0 <= files);
                match (after.checked_sub(1).and_then(|before| points.get(before)), points.get(after)) {
                    (Some(&(x0, y0)), Some(&(x1, y1))) => {
                        let share = (files.ln() - x0.ln()) / (x1.ln() - x0.ln());
                        y0 + share * (y1 - y0)
                    }
                    (Some(end), None) | (None, Some(end)) => end.1,
                    (None, None) => 0.0,
                }
            }
        }
    }

    /// Checks that the figures are possible.
    pub fn check(&self) -> Result<(), BadSwitchCost> {
        let sane = |seconds: f64| (0.0..=MAX_SECONDS).contains(&seconds);
        match self {
            SwitchCost::Constant(seconds) => sane(*seconds).then_some(()).ok_or(BadSwitchCost::Seconds),
            SwitchCost::Curve(points) => {
                if points.is_empty() {
                    return Err(BadSwitchCost::Empty);
                }
                if !points.iter().all(|point| sane(point.1)) {
                    return Err(BadSwitchCost::Seconds);
                }
                let ascending = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
                let counts = points.iter().all(|point| point.0.is_finite() && point.0 >= 1.0);
                (ascending && counts).then_some(()).ok_or(BadSwitchCost::Files)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplex_is_used_only_where_it_wins() {
        let mut volume = VolumeProfile::assumed_flash();
        let both = volume.seconds(1e9, 1e9, 0.0, 2.0);
        assert!((both - 1.0).abs() < 1e-9);
        volume.duplex_bytes_per_s = Some(0.1e9);
        let alternating = volume.seconds(1e9, 1e9, 0.0, 2.0);
        assert!((alternating - (1.0 / 1.4 + 1.0 / 1.8)).abs() < 1e-9);
    }

    #[test]
    fn duplex_is_not_used_where_reading_and_writing_take_turns() {
        let seeks =
            VolumeProfile { switch_seconds: SwitchCost::Constant(1e-3), ..VolumeProfile::assumed_flash() };
        assert!(seeks.wants_runs(2.0));
        let alternating = seeks.seconds(1e9, 1e9, 0.0, 2.0);
        assert!((alternating - (1.0 / 1.4 + 1.0 / 1.8)).abs() < 1e-9);
        // At the largest gain and the smallest switch cost, overlapping by blocks is slower.
        let rate = 1e9;
        let edge = VolumeProfile::simple("edge", rate, rate, 1.001 * BLOCK_BYTES / rate);
        let pairs = 1e9 / BLOCK_BYTES;
        let overlapping = 1e9 / (MAX_DUPLEX_GAIN * rate) + 2.0 * pairs * edge.switch_seconds.seconds(2.0);
        assert!(edge.wants_runs(2.0) && edge.seconds(1e9, 1e9, 0.0, 2.0) < overlapping);
    }

    #[test]
    fn switches_take_their_share_of_runs() {
        let disk = VolumeProfile::simple("disk", 2e8, 1e8, 0.01);
        let run = disk.run_bytes(0.05, 8.0);
        assert!((run - 19e6).abs() < 1.0, "{run}");
        // Nineteen parts of writing, one of switching.
        assert!((disk.rate(0.0, run, 8.0) / 1e8 - 0.95).abs() < 1e-9);
    }

    #[test]
    fn switches_cost_time() {
        let volume = VolumeProfile::assumed_flash();
        let extra = volume.seconds(1e9, 0.0, 1000.0, 9.0) - volume.seconds(1e9, 0.0, 0.0, 9.0);
        assert!((extra - 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_volume_that_seeks_wants_runs_and_flash_does_not() {
        assert!(!VolumeProfile::assumed_flash().wants_runs(2.0));
        let seeks = [(2e8, 0.008), (3.5e9, 0.0155), (1e9, 0.03)];
        assert!(
            seeks.iter().all(|&(rate, delta)| VolumeProfile::simple("x", rate, rate, delta).wants_runs(9.0))
        );
    }

    #[test]
    fn the_rate_formula() {
        let array = VolumeProfile::simple("array", 4e9, 2e9, 0.01);
        let rate = array.rate(0.25, 100e6, 9.0);
        assert!((1.0 / rate - (0.25 / 4e9 + 0.75 / 2e9 + 0.01 / 100e6)).abs() < 1e-18);
        assert!((array.rate(1.0, f64::INFINITY, 1.0) - 4e9).abs() < 1.0);
    }

    #[test]
    fn requests_and_money() {
        let store = VolumeProfile {
            max_request_bytes: Some(8 << 20),
            prices: Some(Prices { read_request: 4e-7, write_request: 5e-6, hour: 0.36 }),
            ..VolumeProfile::simple("store", 1e9, 1e9, 0.03)
        };
        assert!((store.switches(80.0 * 1048576.0, 3.0) - 10.0).abs() < 1e-9);
        assert!((store.switches(1e6, 3.0) - 3.0).abs() < 1e-9);
        for (run_bytes, moved) in [(f64::INFINITY, 8388608.0), (1e9, 8388608.0), (1e6, 1e6)] {
            let rate = store.rate(1.0, run_bytes, 4.0);
            assert!((1.0 / rate - (1e-9 + 0.03 / moved)).abs() < 1e-15, "{run_bytes} {rate}");
        }
        assert!((store.money(1e6, 1e6, 1000.0) - (0.4 + 5.0 + 0.1)).abs() < 1e-9);
    }

    #[test]
    fn profiles_that_cannot_be_true_are_refused() {
        let good = VolumeProfile::assumed_flash();
        assert_eq!(good.check(), Ok(()));
        let bad = |change: fn(&mut VolumeProfile)| {
            let mut volume = good.clone();
            change(&mut volume);
            volume.check().expect_err("refused")
        };
        assert_eq!(bad(|v| v.read_bytes_per_s = 0.0), BadProfile::NotPositive("read_bytes_per_s"));
        assert_eq!(bad(|v| v.write_bytes_per_s = f64::NAN), BadProfile::NotPositive("write_bytes_per_s"));
        assert_eq!(bad(|v| v.duplex_bytes_per_s = Some(9e9)), BadProfile::DuplexAboveAlone);
        assert_eq!(bad(|v| v.max_request_bytes = Some(511)), BadProfile::ShortRequests);
        assert_eq!(bad(|v| v.read_bytes_per_s = 2e15), BadProfile::Rate("read_bytes_per_s"));
        assert_eq!(bad(|v| v.write_bytes_per_s = 0.5), BadProfile::Rate("write_bytes_per_s"));
        let negative = Prices { hour: -1.0, ..Prices::default() };
        let refused = VolumeProfile { prices: Some(negative), ..good.clone() }.check();
        assert_eq!(refused, Err(BadProfile::Negative("prices.hour")));
        assert!(matches!(bad(|v| v.switch_seconds = SwitchCost::Constant(-1.0)), BadProfile::Switch(_)));
    }
}

#[cfg(test)]
mod switch_tests {
    use super::*;

    #[test]
    fn between_points_a_line_over_the_logarithm() {
        let curve = SwitchCost::Curve(vec![(2.0, 0.004), (32.0, 0.012)]);
        for (files, wanted) in [(1.0, 0.004), (2.0, 0.004), (8.0, 0.008), (32.0, 0.012), (4096.0, 0.012)] {
            assert!((curve.seconds(files) - wanted).abs() < 1e-12, "{files} files");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        use SwitchCost::{Constant, Curve};
        assert_eq!(Constant(-1.0).check(), Err(BadSwitchCost::Seconds));
        assert_eq!(Constant(f64::NAN).check(), Err(BadSwitchCost::Seconds));
        assert_eq!(Curve(Vec::new()).check(), Err(BadSwitchCost::Empty));
        assert_eq!(Curve(vec![(2.0, 0.1), (2.0, 0.1)]).check(), Err(BadSwitchCost::Files));
        assert_eq!(Curve(vec![(0.0, 0.1)]).check(), Err(BadSwitchCost::Files));
        assert_eq!(Curve(vec![(1.0, 0.1), (9.0, 0.0)]).check(), Ok(()));
    }
}
