//! The rates and the switch cost of a volume as a job saw them, and the profile that they correct.
//!
//! The time between two completions on a device belongs to the request that completed second; the times add up to the
//! device's busy time. Requests that continue where the device's last one ended give the rates. A request after a
//! switch takes longer than its bytes would; the difference is the cost of the switch.

use serde::{Deserialize, Serialize};

use crate::volume::{MAX_DUPLEX_GAIN, SwitchCost, VolumeProfile};

/// Fewer bytes or seconds give no rate: the first requests wait for the device to wake up, and caches hide the rest.
const MIN_BYTES: u64 = 32 << 20;
const MIN_SECONDS: f64 = 0.02;
/// Fewer bytes of requests that wait behind each other give no rate; the device is awake when they wait.
const MIN_QUEUED_BYTES: u64 = 8 << 20;
/// Fewer switches give no cost.
const MIN_SWITCHES: u64 = 8;
/// A switch that costs more than predicted counts only from this factor on: a request that waits for another program
/// looks the same, and long runs gain nothing there.
const DEARER: f64 = 4.0;

/// Requests, their bytes and their time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Number of requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their time.
    pub seconds: f64,
}

impl Pace {
    /// Adds a request, or the requests of another device.
    pub fn add(&mut self, more: Pace) {
        self.requests += more.requests;
        self.bytes += more.bytes;
        self.seconds += more.seconds;
    }

    /// The rate of requests that waited in a queue, bytes/s; none if there were few.
    pub fn queued_rate(self) -> Option<f64> {
        let enough = self.bytes >= MIN_QUEUED_BYTES && self.seconds >= MIN_SECONDS;
        enough.then(|| self.bytes as f64 / self.seconds)
    }

    fn rate(self) -> Option<f64> {
        (self.bytes >= MIN_BYTES && self.seconds >= MIN_SECONDS).then(|| self.bytes as f64 / self.seconds)
    }
}

/// The requests to a volume, divided by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VolumePace {
    /// Reads that continue the last request, without a write in flight.
    pub read: Pace,
    /// Writes that continue the last request, without a read in flight.
    pub write: Pace,
    /// Requests of both directions with the other one in flight.
    pub both: Pace,
    /// Reads after a switch.
    pub switched_read: Pace,
    /// Writes after a switch.
    pub switched_write: Pace,
    /// Writes that ended while others were queued: the volume, and not the job, set their pace.
    pub queued_write: Pace,
}

/// The figures of a volume in one job; those without enough requests are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeenRates {
    /// Reading alone, bytes/s.
    pub read_bytes_per_s: Option<f64>,
    /// Writing alone, bytes/s.
    pub write_bytes_per_s: Option<f64>,
    /// Each direction with both busy, bytes/s.
    pub duplex_bytes_per_s: Option<f64>,
    /// The mean cost of a switch, seconds.
    pub switch_seconds: Option<f64>,
}

impl VolumePace {
    /// Adds the requests to another device of the same volume.
    pub fn add(&mut self, more: &VolumePace) {
        self.read.add(more.read);
        self.write.add(more.write);
        self.both.add(more.both);
        self.switched_read.add(more.switched_read);
        self.switched_write.add(more.switched_write);
        self.queued_write.add(more.queued_write);
    }

    /// The figures.
    pub fn rates(&self) -> SeenRates {
        SeenRates {
            read_bytes_per_s: self.read.rate(),
            write_bytes_per_s: self.write.rate(),
            duplex_bytes_per_s: self.both.rate().map(|both| both / 2.0),
            switch_seconds: self.switch_seconds(),
        }
    }

    /// The time of requests after a switch beyond that of their bytes, by request.
    fn switch_seconds(&self) -> Option<f64> {
        let mut switches = 0;
        let mut seconds = 0.0;
        for (switched, alone) in [(self.switched_read, self.read), (self.switched_write, self.write)] {
            let mut steady = alone;
            steady.add(self.both);
            if let Some(rate) = steady.rate() {
                switches += switched.requests;
                seconds += switched.seconds - switched.bytes as f64 / rate;
            }
        }
        (switches >= MIN_SWITCHES).then(|| (seconds / switches as f64).max(0.0))
    }
}

impl SeenRates {
    /// Whether any figure is known.
    pub fn is_empty(&self) -> bool {
        *self == SeenRates::default()
    }

    /// The profile with these figures in place of its own. `files`: the files among which the job switched. A curve of
    /// switch costs keeps its form.
    pub fn correct(&self, profile: &VolumeProfile, files: f64) -> VolumeProfile {
        let mut corrected = profile.clone();
        corrected.read_bytes_per_s = self.read_bytes_per_s.unwrap_or(profile.read_bytes_per_s);
        corrected.write_bytes_per_s = self.write_bytes_per_s.unwrap_or(profile.write_bytes_per_s);
        let max_duplex = MAX_DUPLEX_GAIN * corrected.read_bytes_per_s.min(corrected.write_bytes_per_s);
        let duplex = profile.duplex_bytes_per_s.map(|each| self.duplex_bytes_per_s.unwrap_or(each));
        corrected.duplex_bytes_per_s = duplex.map(|each| each.min(max_duplex));
        let predicted = profile.switch_seconds.seconds(files);
        if let Some(seen) = self.switch_seconds.filter(|seen| *seen < predicted || *seen > DEARER * predicted)
        {
            corrected.switch_seconds = match &profile.switch_seconds {
                SwitchCost::Curve(points) if predicted > 0.0 => {
                    SwitchCost::Curve(points.iter().map(|(x, y)| (*x, y * seen / predicted)).collect())
                }
                _ => SwitchCost::Constant(seen),
            };
        }
        if corrected.check().is_ok() { corrected } else { profile.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(requests: u64, megabytes: u64, seconds: f64) -> Pace {
        Pace { requests, bytes: megabytes * 1_000_000, seconds }
    }

    #[test]
    fn switches_cost_what_their_requests_take_beyond_their_bytes() {
        let seen = VolumePace {
            read: pace(190, 190, 1.9),
            write: pace(100, 100, 0.5),
            switched_read: pace(10, 10, 0.1 + 0.04),
            switched_write: pace(10, 10, 0.05 + 0.02),
            ..VolumePace::default()
        };
        let rates = seen.rates();
        assert!((rates.read_bytes_per_s.unwrap() - 1e8).abs() < 1.0);
        assert!((rates.write_bytes_per_s.unwrap() - 2e8).abs() < 1.0);
        assert_eq!(rates.duplex_bytes_per_s, None);
        assert!((rates.switch_seconds.unwrap() - 0.003).abs() < 1e-9);
    }

    #[test]
    fn few_requests_tell_nothing() {
        let seen =
            VolumePace { read: pace(9, 9, 3.0), switched_read: pace(7, 7, 3.0), ..VolumePace::default() };
        assert!(seen.rates().is_empty());
        let fast = VolumePace { read: pace(40, 40, 0.001), ..VolumePace::default() };
        assert!(fast.rates().is_empty());
        let few =
            VolumePace { read: pace(40, 40, 1.0), switched_read: pace(7, 7, 3.0), ..VolumePace::default() };
        assert_eq!(few.rates().switch_seconds, None);
    }

    #[test]
    fn a_profile_takes_the_figures_that_are_known() {
        let disk = VolumeProfile::simple("disk", 150e6, 150e6, 10e-3);
        let seen =
            SeenRates { read_bytes_per_s: Some(5e8), switch_seconds: Some(1e-4), ..SeenRates::default() };
        let corrected = seen.correct(&disk, 4.0);
        assert_eq!((corrected.read_bytes_per_s, corrected.write_bytes_per_s), (5e8, 150e6));
        assert!(disk.wants_runs(4.0) && !corrected.wants_runs(4.0));
        // One direction at a time stays so.
        let both = SeenRates { duplex_bytes_per_s: Some(1e8), ..seen };
        assert_eq!(both.correct(&disk, 4.0).duplex_bytes_per_s, None);
        let curve =
            VolumeProfile { switch_seconds: SwitchCost::Curve(vec![(2.0, 0.004), (32.0, 0.012)]), ..disk };
        let halved = SeenRates { switch_seconds: Some(0.004), ..SeenRates::default() }.correct(&curve, 8.0);
        assert!((halved.switch_seconds.seconds(32.0) - 0.006).abs() < 1e-12);
    }

    #[test]
    fn somewhat_dearer_switches_may_be_the_work_of_others() {
        let flash = VolumeProfile::assumed_flash();
        let seen = |seconds| SeenRates { switch_seconds: Some(seconds), ..SeenRates::default() };
        assert_eq!(seen(300e-6).correct(&flash, 4.0), flash);
        assert!(seen(5e-3).correct(&flash, 4.0).wants_runs(4.0));
        // Figures that no profile may have change nothing.
        assert_eq!(seen(f64::INFINITY).correct(&flash, 4.0), flash);
    }
}
