//! The rate of an all-to-all transfer, and its fall with more peers.
//!
//! Every peer sends the same number of bytes to every other, over P connections for each pair. The model counts the
//! time that a peer needs for each byte it sends (and receives at the same time):
//!
//! ```text
//!   1 / R(N, P)  =  1 / R0  +  c (N - 1) (1 + w (P - 1))
//!
//!   R0  the rate of the line: that of a transfer to few peers
//!   c   seconds per byte for each further peer
//!   w   the cost of a further connection to the same peer, as a share of the cost of a peer
//! ```
//!
//! Why the cost is linear in the number of peers: the memory for sending is fixed and divided among N - 1 peers, so the
//! bytes that a peer hands to one connection at a time shrink as 1 / (N - 1), and each hand-over takes a constant time
//! of its processors. Conley, Vahdat and Porter ("Sorting 100 TB on Google Compute Engine") name this mechanism:
//! sections 6.2.2 (buffers that fill too slowly among 299 connections) and 8.1 (the shuffle loses speed at a few
//! hundred nodes because it opens connections to every node).
//!
//! [`AllToAll::published`] derives the three parameters from three of the four published rates; `docs/published.md`
//! shows the deviation of every row, and of two simpler models.

use serde::{Deserialize, Serialize};

/// A measured all-to-all transfer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllToAllRate {
    /// Peers, N.
    pub peers: u32,
    /// Connections per ordered pair, P.
    pub connections: u32,
    /// Mean rate of a peer: bytes that it sends (and receives) in a second.
    pub bytes_per_s: f64,
}

/// The published rates of NetBench (Conley, Vahdat and Porter, sections 5.1.1, 5.2.1, 6.1.1 and 6.2.1): virtual
/// machines of type n1-standard-32; the clusters A were measured on one day, the clusters B on another.
pub mod published {
    use super::AllToAllRate;

    /// Cluster A-100.
    pub const A_100: AllToAllRate = AllToAllRate { peers: 100, connections: 4, bytes_per_s: 1531.76e6 };
    /// Cluster B-100.
    pub const B_100: AllToAllRate = AllToAllRate { peers: 100, connections: 1, bytes_per_s: 1654.82e6 };
    /// Cluster A-299.
    pub const A_299: AllToAllRate = AllToAllRate { peers: 299, connections: 1, bytes_per_s: 1216.59e6 };
    /// Cluster B-299.
    pub const B_299: AllToAllRate = AllToAllRate { peers: 299, connections: 1, bytes_per_s: 1237.19e6 };
}

/// The model's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllToAll {
    /// 1 / R0: seconds per byte of the line.
    pub line_seconds_per_byte: f64,
    /// c: seconds per byte for each further peer.
    pub peer_seconds_per_byte: f64,
    /// w: the cost of a further connection to the same peer, as a share of that of a peer.
    pub connection_share: f64,
}

impl AllToAll {
    /// The parameters of the published machines: R0 and c of the clusters B (100 and 299 nodes with one connection, on
    /// the same day), and w of cluster A-100 (four connections). Cluster A-299 remains as a check.
    pub fn published() -> AllToAll {
        AllToAll::through_pair(published::B_100, published::B_299).with_connections(published::A_100)
    }

    /// R0 and c of two rates with one connection and different numbers of peers. The cost of connections is that of
    /// peers (w = 1).
    pub fn through_pair(few: AllToAllRate, many: AllToAllRate) -> AllToAll {
        let further = f64::from(many.peers) - f64::from(few.peers);
        let peer_seconds_per_byte = (1.0 / many.bytes_per_s - 1.0 / few.bytes_per_s) / further;
        let line_seconds_per_byte =
            1.0 / few.bytes_per_s - peer_seconds_per_byte * (f64::from(few.peers) - 1.0);
        AllToAll { line_seconds_per_byte, peer_seconds_per_byte, connection_share: 1.0 }
    }

    /// The same, with the w of a rate that was measured with several connections.
    #[must_use]
    pub fn with_connections(self, several: AllToAllRate) -> AllToAll {
        let others = f64::from(several.peers) - 1.0;
        let one = self.line_seconds_per_byte + self.peer_seconds_per_byte * others;
        let further = self.peer_seconds_per_byte * others * (f64::from(several.connections) - 1.0);
        AllToAll { connection_share: (1.0 / several.bytes_per_s - one) / further, ..self }
    }

    /// The model of a machine of which these rates were measured. The cost c of a peer is fitted (least squares over
    /// 1 / R) if the rates differ in their numbers of peers; else it is the published one. w is the published one.
    /// `None` without a positive rate, or if one is measured for fewer than two peers.
    pub fn fitted(rates: &[AllToAllRate]) -> Option<FittedAllToAll> {
        let valid = |rate: &AllToAllRate| rate.bytes_per_s > 0.0 && rate.peers > 1;
        if rates.is_empty() || !rates.iter().all(valid) {
            return None;
        }
        let published = AllToAll::published();
        let count = rates.len() as f64;
        let points: Vec<(f64, f64)> = rates
            .iter()
            .map(|rate| (published.load(rate.peers, rate.connections), 1.0 / rate.bytes_per_s))
            .collect();
        let mean_load = points.iter().map(|(load, _)| load).sum::<f64>() / count;
        let mean_cost = points.iter().map(|(_, cost)| cost).sum::<f64>() / count;
        let sizes = rates.iter().any(|rate| rate.peers != rates[0].peers);
        let cost = if sizes {
            let along =
                points.iter().map(|(load, cost)| (load - mean_load) * (cost - mean_cost)).sum::<f64>();
            // A rate that rises with more peers has another cause: the model has no gain.
            (along / points.iter().map(|(load, _)| (load - mean_load).powi(2)).sum::<f64>()).max(0.0)
        } else {
            published.peer_seconds_per_byte
        };
        // Few bytes per second leave a positive remainder; a cost above the measured time is cut to that time.
        let cost = cost.min(mean_cost / mean_load);
        let model = AllToAll {
            line_seconds_per_byte: mean_cost - cost * mean_load,
            peer_seconds_per_byte: cost,
            ..published
        };
        Some(FittedAllToAll { model, own_cost: sizes })
    }

    /// (N - 1) (1 + w (P - 1)): the peers that a peer sends to, weighted by their connections.
    fn load(&self, peers: u32, connections: u32) -> f64 {
        let others = f64::from(peers.saturating_sub(1));
        others * (1.0 + self.connection_share * f64::from(connections.saturating_sub(1)))
    }

    /// The rate of each peer, bytes/s.
    pub fn rate(&self, peers: u32, connections: u32) -> f64 {
        1.0 / (self.line_seconds_per_byte + self.peer_seconds_per_byte * self.load(peers, connections))
    }

    /// R0: the rate of the line, bytes/s.
    pub fn line_rate(&self) -> f64 {
        1.0 / self.line_seconds_per_byte
    }
}

/// A model of a measured machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FittedAllToAll {
    /// The parameters.
    pub model: AllToAll,
    /// Whether the cost of a peer comes from the measurement; else it is the published one.
    pub own_cost: bool,
}

#[cfg(test)]
mod tests {
    use super::published::{A_100, A_299, B_100, B_299};
    use super::*;

    /// By which share the model differs from a published rate.
    fn deviation(model: &AllToAll, row: AllToAllRate) -> f64 {
        model.rate(row.peers, row.connections) / row.bytes_per_s - 1.0
    }

    #[test]
    fn the_published_rates_are_met() {
        let model = AllToAll::published();
        for row in [A_100, B_100, B_299] {
            assert!(deviation(&model, row).abs() < 1e-9, "{row:?}");
        }
        let check = deviation(&model, A_299);
        assert!((0.016..0.018).contains(&check), "the row that is not used: {check}");
        // Parameters that mean something: a line of 16 Gb/s, a thousandth of the time of a byte for each peer, and a
        // further connection that costs a sixth of a peer.
        assert!((15.5e9..16.5e9).contains(&(8.0 * model.line_rate())), "{}", model.line_rate());
        let share = model.peer_seconds_per_byte * model.line_rate();
        assert!((0.0015..0.0025).contains(&share), "{share}");
        assert!((0.1..0.2).contains(&model.connection_share), "{}", model.connection_share);
    }

    #[test]
    fn simpler_models_miss_the_row_with_four_connections() {
        let pair = AllToAll::through_pair(B_100, B_299);
        let as_peers = deviation(&pair, A_100);
        let for_nothing = deviation(&AllToAll { connection_share: 0.0, ..pair }, A_100);
        assert!(as_peers < -0.25 && (0.07..0.09).contains(&for_nothing), "{as_peers}, {for_nothing}");
    }

    #[test]
    fn the_rate_falls_with_peers_and_with_connections() {
        let model = AllToAll::published();
        for peers in 2..400 {
            assert!(model.rate(peers + 1, 1) < model.rate(peers, 1));
            assert!(model.rate(peers, 2) < model.rate(peers, 1));
        }
        assert!(model.rate(2, 1) < model.line_rate());
        assert!((1900.0e6..2000.0e6).contains(&model.rate(10, 1)));
    }

    #[test]
    fn a_fit_finds_the_parameters_that_made_the_rates() {
        let made = AllToAll { peer_seconds_per_byte: 5e-12, ..AllToAll::published() };
        let at = |peers, connections| {
            let bytes_per_s = made.rate(peers, connections);
            AllToAllRate { peers, connections, bytes_per_s }
        };
        let fitted = AllToAll::fitted(&[at(2, 1), at(4, 2), at(8, 1), at(8, 4)]).unwrap();
        assert!(fitted.own_cost);
        assert!((fitted.model.peer_seconds_per_byte / 5e-12 - 1.0).abs() < 1e-9);
        assert!((fitted.model.rate(100, 1) / made.rate(100, 1) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn one_size_takes_the_published_cost_and_passes_through_the_rate() {
        let rate = AllToAllRate { peers: 3, connections: 2, bytes_per_s: 1e9 };
        let fitted = AllToAll::fitted(&[rate]).unwrap();
        assert!(!fitted.own_cost);
        assert!((fitted.model.rate(3, 2) / 1e9 - 1.0).abs() < 1e-9);
        assert_eq!(fitted.model.peer_seconds_per_byte, AllToAll::published().peer_seconds_per_byte);
    }

    #[test]
    fn rates_that_no_model_explains_give_usable_numbers() {
        let at = |peers, bytes_per_s| AllToAllRate { peers, connections: 1, bytes_per_s };
        let rising = AllToAll::fitted(&[at(2, 1e9), at(4, 2e9)]).unwrap().model;
        assert_eq!(rising.peer_seconds_per_byte, 0.0);
        let steep = AllToAll::fitted(&[at(2, 1e9), at(4, 1e8)]).unwrap().model;
        assert!(steep.line_seconds_per_byte >= 0.0 && steep.rate(1000, 4) > 0.0);
        let fast = AllToAll::fitted(&[at(300, 1e12)]).unwrap().model;
        assert!(fast.line_seconds_per_byte >= 0.0 && fast.rate(300, 1).is_finite());
        assert_eq!(AllToAll::fitted(&[]), None);
        assert_eq!(AllToAll::fitted(&[at(1, 1e9)]), None);
        assert_eq!(AllToAll::fitted(&[at(2, 0.0)]), None);
    }
}
