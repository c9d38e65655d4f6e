//! The result of DiskBench.

use ascot_model::measurement::Figure;
use ascot_model::members::{MemberRate, MemberRates};
use serde::Serialize;

use super::bench::{Bench, PassResult};
use super::lane::Moved;
use super::phase::Pass;
use super::prediction::Prediction;
use super::volume::Volume;

/// The result of DiskBench. Rates are bytes/s.
#[derive(Clone, Debug, Serialize)]
pub struct DiskReport {
    /// The volumes that were read.
    pub inputs: Vec<VolumeFacts>,
    /// The volumes that were written.
    pub outputs: Vec<VolumeFacts>,
    /// Bytes of a request.
    pub request_bytes: u64,
    /// Bytes of the buffers.
    pub memory_bytes: u64,
    /// Bytes of each input.
    pub input_bytes: u64,
    /// Rounds; a rate is the median of its rounds.
    pub rounds: u32,
    /// The prediction before the start.
    pub prediction: Prediction,
    /// Seconds from the first request to the last, with the layout of the inputs.
    pub seconds: f64,
    /// The passes.
    pub passes: Vec<PassReport>,
    /// Deviations from the request.
    pub notices: Vec<String>,
}

/// A volume of the result.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeFacts {
    /// Its directory.
    pub directory: String,
    /// Whether it was accessed by O_DIRECT; else by the page cache.
    pub direct: bool,
}

impl VolumeFacts {
    pub(super) fn of(volume: &Volume) -> VolumeFacts {
        VolumeFacts { directory: volume.name.clone(), direct: volume.is_direct }
    }
}

/// The rates of a pass, from the first buffer to the last of each volume.
#[derive(Clone, Debug, Serialize)]
pub struct PassReport {
    /// The pass.
    #[serde(flatten)]
    pub pass: Pass,
    /// The volumes that are read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reading: Option<MemberRates>,
    /// The volumes that are written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writing: Option<MemberRates>,
    /// Half of the distance from the slowest to the fastest round, as a share of the rate, in the volume where it is
    /// largest.
    pub relative_spread: f64,
    /// Median of the seconds in which the written bytes reach the devices after the last buffer.
    pub sync_seconds: f64,
}

impl PassReport {
    pub(super) fn new(pass: Pass, rounds: &[PassResult], bench: &Bench<'_>) -> PassReport {
        let input_names = bench.inputs.iter().map(|file| file.volume.name.as_str()).collect::<Vec<_>>();
        let output_names = bench.outputs.iter().map(|volume| volume.name.as_str()).collect::<Vec<_>>();
        let (reading, read_spread) = rates(&input_names, rounds, |round| &round.read);
        let (writing, write_spread) = rates(&output_names, rounds, |round| &round.written);
        let sync: Vec<f64> = rounds.iter().map(|round| round.sync_seconds).collect();
        PassReport {
            pass,
            reading,
            writing,
            relative_spread: read_spread.max(write_spread),
            sync_seconds: Figure::new(&sync).value,
        }
    }
}

/// The median rate of each volume over the rounds, and the largest relative spread.
fn rates(
    names: &[&str],
    rounds: &[PassResult],
    lanes: impl Fn(&PassResult) -> &Vec<Moved>,
) -> (Option<MemberRates>, f64) {
    let mut spread: f64 = 0.0;
    let mut members = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let of_volume: Vec<f64> =
            rounds.iter().filter_map(|round| lanes(round).get(number)).map(Moved::rate).collect();
        if of_volume.is_empty() {
            continue;
        }
        let figure = Figure::new(&of_volume);
        spread = spread.max(figure.relative_spread());
        members.push(MemberRate { name: (*name).to_owned(), bytes_per_s: figure.value });
    }
    (MemberRates::of(members), spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_median_of_its_rounds() {
        let round = |bytes: [u64; 2]| PassResult {
            read: bytes.map(|bytes| Moved { bytes, seconds: 2.0 }).to_vec(),
            ..PassResult::default()
        };
        let rounds = [round([20, 40]), round([60, 80]), round([40, 48])];
        let (found, spread) = rates(&["a", "b"], &rounds, |round| &round.read);
        let found = found.unwrap();
        let medians: Vec<f64> = found.members.iter().map(|member| member.bytes_per_s).collect();
        assert_eq!(medians, [20.0, 24.0]);
        assert_eq!((found.mean, found.slowest.name.as_str()), (22.0, "a"));
        assert!((spread - 0.5).abs() < 1e-12);
        assert!(rates(&["a"], &rounds, |round| &round.written).0.is_none());
    }
}
