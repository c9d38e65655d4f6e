//! The result of NetBench.

use ascot_model::all_to_all::{AllToAll, AllToAllRate, FittedAllToAll};
use ascot_model::members::{MemberRate, MemberRates};
use serde::{Deserialize, Serialize};

use super::round::{Done, Round};

/// Numbers of peers for which the model's rate is shown, if they are more than were measured.
const LARGER: [u32; 7] = [4, 10, 30, 100, 300, 1000, 3000];
/// The most of them that are shown.
const MAX_LARGER: usize = 4;

/// The result of NetBench. Rates are bytes/s of a peer: it sends and receives at this rate at the same time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NetReport {
    /// The peers; the first one has collected the result.
    pub peers: Vec<String>,
    /// Whether all peers share one machine.
    pub local: bool,
    /// Bytes from each peer to each other in a round.
    pub bytes_per_pair: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Predicted seconds of all rounds, from a short one.
    pub predicted_seconds: f64,
    /// Seconds of all rounds, with opening their connections.
    pub seconds: f64,
    /// The rounds.
    pub rounds: Vec<RoundReport>,
    /// The model through the measured rates, and its rates for more peers.
    pub model: Option<ModelReport>,
}

/// The rates of a round, each from a peer's first buffer to its last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundReport {
    /// The number of peers; they are the first ones of the list.
    pub peers: u32,
    /// Connections from each peer to each other.
    pub connections: u32,
    /// The rates of the peers.
    pub rates: MemberRates,
}

/// The model of the rate with more peers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelReport {
    /// Its parameters, and where the cost of a peer comes from.
    #[serde(flatten)]
    pub fitted: FittedAllToAll,
    /// The rates for more peers than were measured, with the fewest connections of the measurement.
    pub rates: Vec<AllToAllRate>,
}

impl RoundReport {
    /// `done` has an entry for each peer of the round.
    pub(super) fn new(round: &Round, names: &[String], done: &[Done]) -> Option<RoundReport> {
        let member = |(name, done): (&String, &Done)| {
            let bytes_per_s = done.received_bytes as f64 / done.seconds.max(1e-9);
            MemberRate { name: name.clone(), bytes_per_s }
        };
        let rates = MemberRates::of(names.iter().zip(done).map(member).collect())?;
        Some(RoundReport { peers: round.peers, connections: round.connections, rates })
    }

    /// The mean rate.
    pub(super) fn point(&self) -> AllToAllRate {
        AllToAllRate { peers: self.peers, connections: self.connections, bytes_per_s: self.rates.mean }
    }
}

impl ModelReport {
    /// The model through the rates of these rounds.
    pub(super) fn new(rounds: &[RoundReport]) -> Option<ModelReport> {
        let points: Vec<AllToAllRate> = rounds.iter().map(RoundReport::point).collect();
        let fitted = AllToAll::fitted(&points)?;
        let measured = points.iter().map(|point| point.peers).max()?;
        let connections = points.iter().map(|point| point.connections).min()?;
        let rate = |peers: u32| {
            let bytes_per_s = fitted.model.rate(peers, connections);
            AllToAllRate { peers, connections, bytes_per_s }
        };
        let larger = LARGER.into_iter().filter(|peers| *peers > measured).take(MAX_LARGER);
        Some(ModelReport { fitted, rates: larger.map(rate).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_named_and_extrapolated() {
        let names = ["a:1".to_owned(), "b:1".to_owned(), "c:1".to_owned()];
        let round = Round { number: 0, peers: 3, connections: 2, bytes: 500 };
        let done = [1.0, 2.0, 4.0].map(|seconds| Done { received_bytes: 1_000_000_000, seconds });
        let report = RoundReport::new(&round, &names, &done).unwrap();
        assert_eq!((report.rates.slowest.name.as_str(), report.rates.slowest.bytes_per_s), ("c:1", 2.5e8));
        let model = ModelReport::new(std::slice::from_ref(&report)).unwrap();
        let larger: Vec<u32> = model.rates.iter().map(|rate| rate.peers).collect();
        assert_eq!(larger, [4, 10, 30, 100]);
        assert!(!model.fitted.own_cost);
        assert!(model.rates.windows(2).all(|pair| pair[1].bytes_per_s < pair[0].bytes_per_s));
        assert!(model.rates[0].bytes_per_s < report.rates.mean);
        assert!(model.rates.iter().all(|rate| rate.connections == 2));
    }
}
