//! The next hop of a message, and its connection: arithmetic on ranks, no state.

use super::topology::{Route, Topology};
use super::transport::Lane;

/// The next hop of a message.
pub(super) struct Hop {
    pub lane: Lane,
    pub place: usize,
    pub address: Option<u32>,
}

/// The next hops from one rank.
pub(super) struct NextHops {
    pub topology: Topology,
    pub rank: u32,
    pub node: u32,
    route: Route,
    own_index: u32,
    ranks_on_node: u32,
    /// The first node represented, as in [`Topology::represented`], and whether the rank's own node is in that
    /// sequence, which omits it.
    first_represented: u32,
    own_is_among: bool,
}

/// The index of `other` among all but `own`.
fn beside(own: u32, other: u32) -> usize {
    (other - u32::from(other > own)) as usize
}

impl NextHops {
    pub fn new(topology: Topology, rank: u32, route: Route) -> Self {
        let node = topology.node_of(rank);
        let own_index = topology.index_on_node(rank);
        Self {
            own_index,
            ranks_on_node: topology.ranks_on(node),
            first_represented: topology.first_represented(rank),
            own_is_among: topology.representative(node, node) == rank,
            topology,
            rank,
            node,
            route,
        }
    }

    /// The index of a node among those that this rank [represents](Topology::represented) its own node to.
    fn place_of_node(&self, other: u32) -> Option<usize> {
        let from_first = other.checked_sub(self.first_represented)?;
        if other == self.node || !from_first.is_multiple_of(self.ranks_on_node) {
            return None;
        }
        let own_is_before = self.own_is_among && self.node < other;
        Some((from_first / self.ranks_on_node) as usize - usize::from(own_is_before))
    }

    pub fn on_own_node(&self, rank: u32) -> bool {
        self.topology.node_of(rank) == self.node
    }

    /// The next hop of a message for `to`; `None`: it is for this rank.
    pub fn next_hop(&self, to: u32) -> Option<Hop> {
        if to == self.rank {
            return None;
        }
        if self.route == Route::Direct {
            return Some(Hop { lane: Lane::Deliver, place: beside(self.rank, to), address: None });
        }
        let topology = &self.topology;
        let node = topology.node_of(to);
        let index = topology.index_on_node(to);
        let own_index = self.own_index;
        if node == self.node {
            return Some(Hop { lane: Lane::Deliver, place: beside(own_index, index), address: None });
        }
        if let Some(place) = self.place_of_node(node) {
            return Some(Hop { lane: Lane::Wire, place, address: Some(index) });
        }
        let representative = topology.index_on_node(topology.representative(self.node, node));
        Some(Hop { lane: Lane::Local, place: beside(own_index, representative), address: Some(to) })
    }

    /// The index of a peer among the connections of a lane.
    pub fn place_of(&self, lane: Lane, peer: u32) -> Option<usize> {
        let topology = &self.topology;
        if peer >= topology.size() || peer == self.rank {
            return None;
        }
        if lane == Lane::Deliver && self.route == Route::Direct {
            return Some(beside(self.rank, peer));
        }
        let node = topology.node_of(peer);
        if lane == Lane::Wire {
            let place = self.place_of_node(node)?;
            return (topology.representative(node, self.node) == peer).then_some(place);
        }
        (node == self.node).then(|| beside(self.own_index, topology.index_on_node(peer)))
    }

    /// Whether messages to `to` leave the node here. A batch of the local lane has no others, because a message could
    /// otherwise circulate.
    pub fn represents(&self, to: u32) -> bool {
        self.place_of_node(self.topology.node_of(to)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::layout::peers;

    /// Follows a message; returns its number of hops, and how many of them left a node.
    fn follow(topology: &Topology, route: Route, from: u32, to: u32) -> (u32, u32) {
        let (mut at, mut hops, mut off_node) = (from, 0, 0);
        loop {
            let next_hops = NextHops::new(topology.clone(), at, route);
            let Some(hop) = next_hops.next_hop(to) else { return (hops, off_node) };
            let next = peers(topology, at, route, hop.lane)[hop.place];
            for node in 0..topology.nodes() {
                assert_eq!(
                    next_hops.place_of_node(node),
                    topology.represented(at).position(|other| other == node)
                );
            }
            assert!(NextHops::new(topology.clone(), next, route).place_of(hop.lane, at).is_some());
            assert_eq!(next_hops.place_of(hop.lane, next), Some(hop.place));
            off_node += u32::from(!next_hops.on_own_node(next));
            (at, hops) = (next, hops + 1);
        }
    }

    #[test]
    fn every_message_arrives_in_three_hops_at_most_and_one_on_the_wire() {
        let odd: Vec<u32> = (0..13).map(|rank| rank * rank % 5).collect();
        let placements =
            [Topology::even(8, 2), Topology::even(10, 4), Topology::even(9, 1), Topology::listed(&odd)];
        for topology in &placements {
            for from in 0..topology.size() {
                for to in 0..topology.size() {
                    let off = u32::from(topology.node_of(from) != topology.node_of(to));
                    let (hops, off_node) = follow(topology, Route::ThreeHop, from, to);
                    assert!(
                        hops <= 3 && off_node == off,
                        "{from} to {to}: {hops} hops, {off_node} off the node"
                    );
                    let direct = follow(topology, Route::Direct, from, to);
                    assert_eq!(direct, (u32::from(from != to), off));
                }
            }
        }
    }
}
