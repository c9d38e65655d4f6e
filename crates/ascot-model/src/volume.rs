//! What a volume can do, and how long a pass over it takes.
//!
//! The rate formula (Stella and Loguinov, section II.B): moving N bytes, a share `a` of them read, in
//! runs of mean length L costs `N (a/S_r + (1 - a)/S_w + delta/L)` seconds where reads and writes
//! alternate. Where a volume gains from doing both at once the two directions overlap and the longer
//! one counts. An object store fits the formula: a request is a switch, its bytes are a run.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::switch_cost::{BadSwitchCost, SwitchCost};
use crate::units;

/// Bytes of the largest block that is moved at once where switches cost next to nothing.
const BLOCK_BYTES: f64 = 1_048_576.0;
/// Rates that can be computed with, bytes/s: what is beyond them is a slip of the pen.
const LEAST_RATE: f64 = 1.0;
const MOST_RATE: f64 = 1e15;
/// Least bytes that the largest request of an object store has: a sector.
const LEAST_REQUEST_BYTES: u64 = 512;

/// Speeds of a volume in bytes/s, and the cost of a switch in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeProfile {
    /// What it is called in plans.
    pub name: String,
    /// Sequential reading, bytes/s.
    pub read_bytes_per_s: f64,
    /// Sequential writing, bytes/s.
    pub write_bytes_per_s: f64,
    /// Each way while doing both at once, bytes/s; none: they take turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplex_bytes_per_s: Option<f64>,
    /// Seconds lost when a request does not continue the last one: a number, or a curve over the
    /// number of files, `[[files, seconds], ...]`.
    pub switch_seconds: SwitchCost,
    /// The device's own cache, bytes: runs of all streams that fit into it together are joined there.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_bytes: u64,
    /// Of an object store: the most bytes a request may move. A longer run is several requests, and
    /// each of them is a switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_request_bytes: Option<u64>,
    /// What using it costs, where that is money.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
    /// Whether somebody measured these figures.
    #[serde(default)]
    pub measured: bool,
}

/// Prices, in whatever currency the profile is written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prices {
    /// Of one reading request.
    pub read_request: f64,
    /// Of one writing request.
    pub write_request: f64,
    /// Of an hour of the machine that does the job.
    pub hour: f64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A profile that cannot be true, and what of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadProfile {
    /// A figure that must be a positive, finite number is none.
    NotPositive(&'static str),
    /// A figure that must be a finite number is none.
    NotFinite(&'static str),
    /// A rate that no volume has.
    Rate(&'static str),
    /// Requests of less than a sector.
    ShortRequests,
    /// A figure that must not be negative is, or it is no number.
    Negative(&'static str),
    /// Half of the rate of both directions at once is above the rate of one alone by more than
    /// measuring explains.
    DuplexAboveAlone,
    /// The switch cost.
    Switch(BadSwitchCost),
}

impl std::fmt::Display for BadProfile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BadProfile::NotPositive(field) => write!(f, "{field} must be a positive number"),
            BadProfile::NotFinite(field) => write!(f, "{field} must be a finite number"),
            BadProfile::Rate(field) => {
                write!(f, "{field} must be a rate from {LEAST_RATE} to {MOST_RATE:e} bytes/s")
            }
            BadProfile::ShortRequests => {
                write!(f, "most_request_bytes must be at least {LEAST_REQUEST_BYTES}, a sector")
            }
            BadProfile::Negative(field) => write!(f, "{field} must not be negative"),
            BadProfile::DuplexAboveAlone => write!(
                f,
                "duplex_bytes_per_s, the rate of each direction while both are busy, is above what a \
                 direction does alone"
            ),
            BadProfile::Switch(why) => write!(f, "switch_seconds: {why}"),
        }
    }
}

impl VolumeProfile {
    /// The profile in one line, its switch cost as among `files` files.
    pub fn summary(&self, files: u32) -> String {
        let mut text = format!(
            "{}: reads {}, writes {}",
            self.name,
            units::rate(self.read_bytes_per_s),
            units::rate(self.write_bytes_per_s)
        );
        if let Some(duplex) = self.duplex_bytes_per_s {
            let _ = write!(text, ", both at once {} each", units::rate(duplex));
        }
        let switch_ms = self.switch_seconds.seconds(f64::from(files)) * 1e3;
        let _ = write!(text, ", {switch_ms:.3} ms a switch");
        text
    }

    /// A volume of these speeds and nothing else.
    pub fn simple(name: &str, read_bytes_per_s: f64, write_bytes_per_s: f64, switch_seconds: f64) -> Self {
        VolumeProfile {
            name: name.into(),
            read_bytes_per_s,
            write_bytes_per_s,
            duplex_bytes_per_s: None,
            switch_seconds: SwitchCost::Constant(switch_seconds),
            cache_bytes: 0,
            most_request_bytes: None,
            prices: None,
            measured: false,
        }
    }

    /// What a plain solid-state volume does, for plans made before anything was measured.
    pub fn assumed_flash() -> Self {
        let duplex_bytes_per_s = Some(1.0e9);
        VolumeProfile { duplex_bytes_per_s, ..Self::simple("flash, assumed", 1.4e9, 1.8e9, 100e-6) }
    }

    /// Whether the figures can be true.
    pub fn check(&self) -> Result<(), BadProfile> {
        let rate = |value: f64, field| {
            if !(value.is_finite() && value > 0.0) {
                return Err(BadProfile::NotPositive(field));
            }
            (LEAST_RATE..=MOST_RATE).contains(&value).then_some(()).ok_or(BadProfile::Rate(field))
        };
        let not_negative = |value: f64, field| {
            (value.is_finite() && value >= 0.0).then_some(()).ok_or(BadProfile::Negative(field))
        };
        rate(self.read_bytes_per_s, "read_bytes_per_s")?;
        rate(self.write_bytes_per_s, "write_bytes_per_s")?;
        self.switch_seconds.check().map_err(BadProfile::Switch)?;
        if let Some(duplex) = self.duplex_bytes_per_s {
            rate(duplex, "duplex_bytes_per_s")?;
            if duplex > 1.5 * self.read_bytes_per_s.min(self.write_bytes_per_s) {
                return Err(BadProfile::DuplexAboveAlone);
            }
        }
        if self.most_request_bytes.is_some_and(|bytes| bytes < LEAST_REQUEST_BYTES) {
            return Err(BadProfile::ShortRequests);
        }
        let prices = self.prices.unwrap_or_default();
        not_negative(prices.read_request, "prices.read_request")?;
        not_negative(prices.write_request, "prices.write_request")?;
        not_negative(prices.hour, "prices.hour")
    }

    /// Seconds to read and write so many bytes in so many switches among so many files, both
    /// directions going on at once where the volume gains from it.
    pub fn seconds(&self, read_bytes: f64, written_bytes: f64, switches: f64, files: f64) -> f64 {
        let alone_s = read_bytes / self.read_bytes_per_s + written_bytes / self.write_bytes_per_s;
        let moving_s = match self.duplex_bytes_per_s {
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

    /// Whether a switch among so many files costs more than moving a block: reading and writing then pay in
    /// long runs, and the fewest passes need not be the fastest.
    pub fn wants_runs(&self, files: f64) -> bool {
        self.switch_seconds.seconds(files) * self.read_bytes_per_s.min(self.write_bytes_per_s) > BLOCK_BYTES
    }

    /// Whether it moves more when it reads and writes at once than in turn.
    pub fn gains_from_both(&self) -> bool {
        let in_turn = 1.0 / (1.0 / self.read_bytes_per_s + 1.0 / self.write_bytes_per_s);
        self.duplex_bytes_per_s.is_some_and(|each| each > in_turn)
    }

    /// The rate formula: bytes/s read and written together, a share `alpha` of them read, in runs of
    /// a mean length among so many files.
    pub fn rate(&self, alpha: f64, run_bytes: f64, files: f64) -> f64 {
        let unbroken = self.unbroken(run_bytes);
        let switches = if unbroken.is_infinite() { 0.0 } else { 1.0 / unbroken };
        1.0 / self.seconds(alpha, 1.0 - alpha, switches, files)
    }

    /// Whether runs are long enough for the rate formula: shorter ones are joined by the device's own
    /// cache, and it does better than the formula says (section VII.B).
    pub fn formula_holds(&self, run_bytes: f64, files: f64) -> bool {
        files * run_bytes >= self.cache_bytes as f64
    }

    /// What of runs of a mean length is moved between two switches: less where a request has a limit.
    pub fn unbroken(&self, run_bytes: f64) -> f64 {
        self.most_request_bytes.map_or(run_bytes, |limit| run_bytes.min(limit as f64))
    }

    /// The switches of so many runs that move so many bytes: as many, or more where a request has a
    /// limit.
    pub fn switches(&self, bytes: f64, runs: f64) -> f64 {
        self.most_request_bytes.map_or(runs, |limit| runs.max((bytes / limit as f64).ceil()))
    }

    /// What a pass costs, in the currency of the profile.
    pub fn money(&self, reads: f64, writes: f64, seconds: f64) -> f64 {
        let prices = self.prices.unwrap_or_default();
        reads * prices.read_request + writes * prices.write_request + seconds / 3600.0 * prices.hour
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
    fn switches_cost_time() {
        let volume = VolumeProfile::assumed_flash();
        let extra = volume.seconds(1e9, 0.0, 1000.0, 9.0) - volume.seconds(1e9, 0.0, 0.0, 9.0);
        assert!((extra - 0.1).abs() < 1e-9);
    }

    #[test]
    fn flash_wants_no_runs_and_whatever_seeks_does() {
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
            most_request_bytes: Some(8 << 20),
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
    fn profiles_that_cannot_be_are_refused() {
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
        assert_eq!(bad(|v| v.most_request_bytes = Some(511)), BadProfile::ShortRequests);
        assert_eq!(bad(|v| v.read_bytes_per_s = 2e15), BadProfile::Rate("read_bytes_per_s"));
        assert_eq!(bad(|v| v.write_bytes_per_s = 0.5), BadProfile::Rate("write_bytes_per_s"));
        let negative = Prices { hour: -1.0, ..Prices::default() };
        let refused = VolumeProfile { prices: Some(negative), ..good.clone() }.check();
        assert_eq!(refused, Err(BadProfile::Negative("prices.hour")));
        assert!(matches!(bad(|v| v.switch_seconds = SwitchCost::Constant(-1.0)), BadProfile::Switch(_)));
    }
}
