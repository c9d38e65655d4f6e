//! The connections of a rank and the memory of its buffers: the bound is computed by the arithmetic that allocates
//! them.
//!
//! ```text
//!   lane      three-hop: a buffer for each     direct: a buffer for each
//!   local     other rank of the node
//!   wire      other node represented
//!   deliver   other rank of the node           other rank
//!   control   parent and children in a tree    the same; two, one of them for the message that a rank gives up
//!
//!   and per lane in use: the last batch received; a long message each direction, if any may be longer
//!   than a batch; spare batches, shared
//! ```
//!
//! A receiver needs no buffer per sender, because a batch stays with the transport until it is taken.

use std::time::Duration;

use super::allreduce::CONTROL_BYTES;
use super::batch::{HEADER_BYTES, PREFIX_BYTES_MAX};
use super::error::RouteError;
use super::topology::{Route, Topology};
use super::transport::Lane;

/// Default bytes of a batch.
const BATCH_BYTES: usize = 32 << 10;
/// Minimum bytes of a batch: a smaller one is mostly headers.
const BATCH_BYTES_MIN: usize = 64;
/// Maximum batches in transit to one rank on one lane.
pub(super) const UNDER_WAY_MAX: u32 = 2;

/// How messages are routed. All ranks use the same settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutingSettings {
    /// The next hops.
    pub route: Route,
    /// Bytes of a batch.
    pub batch_bytes: usize,
    /// Maximum bytes of a message; one that does not fit a batch travels alone.
    pub max_message_bytes: usize,
    /// Batches that may be in transit in addition to one for each connection.
    pub spare_batches: usize,
    /// Ranks on a node, regardless of the transport's nodes: one machine then acts as several.
    pub ranks_per_node: Option<u32>,
    /// How long to wait for other ranks while nothing arrives.
    pub patience: Duration,
}

impl Default for RoutingSettings {
    fn default() -> Self {
        Self {
            route: Route::ThreeHop,
            batch_bytes: BATCH_BYTES,
            max_message_bytes: BATCH_BYTES / 2,
            spare_batches: 16,
            ranks_per_node: None,
            patience: Duration::from_secs(1800),
        }
    }
}

impl RoutingSettings {
    /// Refuses invalid settings.
    pub fn check(&self) -> Result<(), RouteError> {
        let refuse =
            |setting, value: usize, why| Err(RouteError::Setting { setting, value: value as u64, why });
        if !(BATCH_BYTES_MIN..=1 << 30).contains(&self.batch_bytes) {
            return refuse("batch", self.batch_bytes, "64 bytes to 1 GiB are possible");
        }
        if self.max_message_bytes > 1 << 30 {
            return refuse("max_message", self.max_message_bytes, "1 GiB is the most");
        }
        if self.ranks_per_node == Some(0) {
            return refuse("ranks_per_node", 0, "a node has at least one");
        }
        Ok(())
    }

    /// Maximum bytes of a batch that can arrive.
    pub(super) fn longest_batch(&self) -> usize {
        self.batch_bytes.max(self.long_batch().unwrap_or(0))
    }

    /// Bytes of a batch for one long message, if there can be any.
    pub(super) fn long_batch(&self) -> Option<usize> {
        let alone = HEADER_BYTES + PREFIX_BYTES_MAX + self.max_message_bytes;
        (alone > self.batch_bytes).then_some(alone)
    }
}

/// The connections of one rank and the memory of its buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub(super) settings: RoutingSettings,
    /// By lane.
    connections: [usize; 4],
    topology_bytes: usize,
}

impl Layout {
    /// The layout of `rank` among the ranks of `topology`.
    pub fn new(topology: &Topology, rank: u32, settings: &RoutingSettings) -> Self {
        let lanes = [Lane::Local, Lane::Wire, Lane::Deliver, Lane::Control];
        let connections = lanes.map(|lane| peers(topology, rank, settings.route, lane).len());
        Self { settings: settings.clone(), connections, topology_bytes: topology.memory_bytes() }
    }

    /// The layout of the rank that needs the most memory.
    pub fn heaviest(topology: &Topology, settings: &RoutingSettings) -> Self {
        // The rank that represents the most nodes is on one of the first nodes, whose places are all tried, or on the
        // last node, which may have fewer ranks that represent more nodes each.
        let nodes = topology.nodes();
        let ranks = (0..nodes.min(2))
            .chain(nodes.saturating_sub(2)..nodes)
            .flat_map(|node| (0..topology.ranks_on(node)).map(move |index| topology.rank_at(node, index)));
        let layouts = ranks.map(|rank| Self::new(topology, rank, settings));
        layouts.max_by_key(Self::memory_bytes).unwrap_or_else(|| Self::new(topology, 0, settings))
    }

    /// The route it is for.
    pub fn route(&self) -> Route {
        self.settings.route
    }

    /// Outgoing connections on a lane; there are as many incoming ones.
    pub fn connections(&self, lane: Lane) -> usize {
        self.connections[lane as usize]
    }

    /// Number of batches that this rank owns, in transit or not.
    pub fn batches(&self) -> usize {
        let connected: usize = Lane::DATA.iter().map(|&lane| self.connections(lane)).sum();
        if connected == 0 { 0 } else { connected + self.settings.spare_batches }
    }

    /// Number of message lanes in use.
    pub fn lanes(&self) -> usize {
        Lane::DATA.iter().filter(|&&lane| self.connections(lane) > 0).count()
    }

    /// Bytes of the topology; part of [`memory_bytes`](Self::memory_bytes).
    pub fn topology_bytes(&self) -> usize {
        self.topology_bytes
    }

    /// Bytes of all buffers: reserved and allocated in advance, never exceeded.
    pub fn memory_bytes(&self) -> usize {
        let taken = self.lanes() * self.settings.longest_batch();
        let long = self.lanes() * self.settings.long_batch().unwrap_or(0);
        let control = (2 * self.connections(Lane::Control) + 1) * CONTROL_BYTES;
        self.batches() * self.settings.batch_bytes + taken + long + control + self.topology_bytes
    }
}

/// The peers of `rank` on a lane, ordered by their address there. Those of the control lane are its neighbours in the
/// tree of the allreduce.
pub(super) fn peers(topology: &Topology, rank: u32, route: Route, lane: Lane) -> Vec<u32> {
    let node = topology.node_of(rank);
    match (route, lane) {
        (_, Lane::Control) => {
            let parent = rank.checked_sub(1).map(|rank| rank / 2);
            let children = [1, 2].into_iter().filter_map(|child| rank.checked_mul(2)?.checked_add(child));
            parent.into_iter().chain(children).filter(|&peer| peer < topology.size()).collect()
        }
        (Route::Direct, Lane::Deliver) => (0..topology.size()).filter(|&other| other != rank).collect(),
        (Route::ThreeHop, Lane::Wire) => {
            topology.represented(rank).map(|other| topology.representative(other, node)).collect()
        }
        (Route::ThreeHop, Lane::Local) if topology.nodes() == 1 => Vec::new(),
        (Route::ThreeHop, Lane::Local | Lane::Deliver) => {
            let on_node = (0..topology.ranks_on(node)).map(|index| topology.rank_at(node, index));
            on_node.filter(|&other| other != rank).collect()
        }
        (Route::Direct, Lane::Local | Lane::Wire) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_hops_stay_within_the_published_bound_where_direct_does_not() {
        let topology = Topology::even(131_072, 32);
        let three = Layout::heaviest(&topology, &RoutingSettings::default());
        assert_eq!((three.connections(Lane::Deliver), three.connections(Lane::Wire)), (31, 128));
        assert!(three.memory_bytes() < 16_000_000, "{} bytes", three.memory_bytes());
        let settings = RoutingSettings { route: Route::Direct, ..RoutingSettings::default() };
        let direct = Layout::heaviest(&topology, &settings);
        assert_eq!(direct.connections(Lane::Deliver), 31 + 131_040);
        assert!(direct.memory_bytes() > 4_000_000_000, "{} bytes", direct.memory_bytes());
    }

    #[test]
    fn long_messages_cost_one_buffer_each_way_on_each_lane() {
        let topology = Topology::even(8, 2);
        let usual = RoutingSettings::default();
        let long = RoutingSettings { max_message_bytes: 1 << 20, ..usual.clone() };
        let bytes = |settings| Layout::new(&topology, 0, settings).memory_bytes();
        let (alone, batch) = ((1 << 20) + HEADER_BYTES + PREFIX_BYTES_MAX, usual.batch_bytes);
        assert_eq!(bytes(&long) - bytes(&usual), 3 * (2 * alone - batch));
    }

    #[test]
    fn settings_that_cannot_work_are_refused_by_name() {
        let bad = RoutingSettings { batch_bytes: 10, ..RoutingSettings::default() };
        assert!(bad.check().unwrap_err().to_string().contains("batch cannot be 10"));
        let bad = RoutingSettings { ranks_per_node: Some(0), ..RoutingSettings::default() };
        assert!(bad.check().is_err());
        assert!(RoutingSettings::default().check().is_ok());
    }
}
