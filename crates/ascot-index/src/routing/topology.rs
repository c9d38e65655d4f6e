//! The ranks of each node, and the representatives of nodes.
//!
//! Node `a`'s representative for node `b` is its rank number `(a + b) mod ranks of a`, counted within the node. For a
//! fixed `a` this distributes the other nodes evenly among its ranks, and the two representatives of a pair of nodes
//! communicate only with each other, so a rank has as many incoming connections as outgoing ones.

use std::ops::Range;

/// The route of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Each rank sends to every other.
    Direct,
    /// Through a representative on each of the two nodes.
    ThreeHop,
}

/// Ranks on nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    size: u32,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// Consecutive ranks, `ranks_per_node` to a node; the last node may have fewer.
    Even { ranks_per_node: u32 },
    /// Any assignment: ranks ordered by node, the first index of each node in that order, and each rank's place on its
    /// node.
    Listed { order: Vec<u32>, begins: Vec<u32>, place: Vec<u32>, node: Vec<u32> },
}

impl Topology {
    /// `size` ranks, `ranks_per_node` consecutive ones on a node; at least one of each.
    pub fn even(size: u32, ranks_per_node: u32) -> Self {
        let size = size.max(1);
        Self { size, kind: Kind::Even { ranks_per_node: ranks_per_node.clamp(1, size) } }
    }

    /// Ranks with an identifier of the node each is on, such as the lowest rank there.
    pub fn listed(node_of_rank: &[u32]) -> Self {
        if node_of_rank.is_empty() {
            return Self::even(1, 1);
        }
        let mut order: Vec<u32> = (0..node_of_rank.len() as u32).collect();
        let mark = |rank: u32| node_of_rank.get(rank as usize).copied().unwrap_or(0);
        order.sort_by_key(|&rank| (mark(rank), rank));
        let mut begins = vec![0];
        let mut node = vec![0; order.len()];
        let mut place = vec![0; order.len()];
        let mut last = order.first().map(|&rank| mark(rank));
        for (at, &rank) in (0u32..).zip(&order) {
            if last != Some(mark(rank)) {
                last = Some(mark(rank));
                begins.push(at);
            }
            if let (Some(node), Some(place)) = (node.get_mut(rank as usize), place.get_mut(rank as usize)) {
                (*node, *place) = (begins.len() as u32 - 1, at);
            }
        }
        begins.push(order.len() as u32);
        Self { size: order.len() as u32, kind: Kind::Listed { order, begins, place, node } }
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u32 {
        match &self.kind {
            Kind::Even { ranks_per_node } => self.size.div_ceil(*ranks_per_node),
            Kind::Listed { begins, .. } => begins.len() as u32 - 1,
        }
    }

    /// The node of a rank.
    pub fn node_of(&self, rank: u32) -> u32 {
        match &self.kind {
            Kind::Even { ranks_per_node } => rank / ranks_per_node,
            Kind::Listed { node, .. } => node.get(rank as usize).copied().unwrap_or(0),
        }
    }

    /// Number of ranks of a node.
    pub fn ranks_on(&self, node: u32) -> u32 {
        self.places(node).len() as u32
    }

    /// The rank at a place of a node.
    pub fn rank_at(&self, node: u32, index: u32) -> u32 {
        let place = self.places(node).start + index;
        match &self.kind {
            Kind::Even { .. } => place,
            Kind::Listed { order, .. } => order.get(place as usize).copied().unwrap_or(0),
        }
    }

    /// A rank's place on its node.
    pub fn index_on_node(&self, rank: u32) -> u32 {
        match &self.kind {
            Kind::Even { ranks_per_node } => rank % ranks_per_node,
            Kind::Listed { place, .. } => {
                let place = place.get(rank as usize).copied().unwrap_or(0);
                place - self.places(self.node_of(rank)).start
            }
        }
    }

    /// The range of a node's ranks among all, ordered by node.
    fn places(&self, node: u32) -> Range<u32> {
        match &self.kind {
            Kind::Even { ranks_per_node } => {
                let begin = (node * ranks_per_node).min(self.size);
                begin..begin.saturating_add(*ranks_per_node).min(self.size)
            }
            Kind::Listed { begins, .. } => {
                let begin = |node: u32| begins.get(node as usize).copied().unwrap_or(self.size);
                begin(node)..begin(node + 1)
            }
        }
    }

    /// The rank of `node` that communicates with `other`.
    pub fn representative(&self, node: u32, other: u32) -> u32 {
        let index = (u64::from(node) + u64::from(other)) % u64::from(self.ranks_on(node).max(1));
        self.rank_at(node, index as u32)
    }

    /// The nodes that a rank represents its own node to, ascending.
    pub fn represented(&self, rank: u32) -> impl Iterator<Item = u32> + '_ {
        let node = self.node_of(rank);
        (self.first_represented(rank)..self.nodes())
            .step_by(self.ranks_on(node).max(1) as usize)
            .filter(move |&other| other != node)
    }

    /// The lowest node `other` with `(node + other) mod ranks` equal to the rank's place; it may be the rank's own
    /// node.
    pub(super) fn first_represented(&self, rank: u32) -> u32 {
        let node = self.node_of(rank);
        let index = self.index_on_node(rank);
        let ranks = self.ranks_on(node).max(1);
        (index + ranks - node % ranks) % ranks
    }

    /// Bytes of memory of the topology.
    pub fn memory_bytes(&self) -> usize {
        match &self.kind {
            Kind::Even { .. } => 0,
            Kind::Listed { order, begins, place, node } => {
                4 * (order.len() + begins.len() + place.len() + node.len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(topology: &Topology) {
        for node in 0..topology.nodes() {
            let mut share = vec![0; topology.ranks_on(node) as usize];
            for index in 0..topology.ranks_on(node) {
                let rank = topology.rank_at(node, index);
                assert_eq!((topology.node_of(rank), topology.index_on_node(rank)), (node, index));
                let represented: Vec<u32> = topology.represented(rank).collect();
                share[index as usize] = represented.len();
                for &other in &represented {
                    assert_eq!(topology.representative(node, other), rank);
                }
            }
            assert_eq!(share.iter().sum::<usize>(), topology.nodes() as usize - 1);
            let (most, least) = (share.iter().max(), share.iter().min());
            assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 2), "{share:?}");
        }
    }

    #[test]
    fn every_pair_of_nodes_has_one_representative_on_each_side() {
        for (size, ranks_per_node) in [(1, 1), (8, 2), (16, 4), (7, 3), (12, 1), (5, 9), (96, 8), (33, 32)] {
            check(&Topology::even(size, ranks_per_node));
        }
    }

    #[test]
    fn ranks_may_be_dealt_out_to_nodes_in_any_order() {
        let topology = Topology::listed(&[7, 3, 7, 3, 9, 7]);
        check(&topology);
        assert_eq!(topology.nodes(), 3);
        assert_eq!((topology.rank_at(0, 1), topology.rank_at(1, 2), topology.rank_at(2, 0)), (3, 5, 4));
        let even: Vec<u32> = (0..12).map(|rank| rank / 4).collect();
        check(&Topology::listed(&even));
    }

    #[test]
    fn a_large_machine_is_described_in_no_memory() {
        let topology = Topology::even(131_072, 32);
        let counts: Vec<usize> = (0..32).map(|rank| topology.represented(rank).count()).collect();
        assert!(counts.iter().all(|&count| count == 127 || count == 128));
        assert_eq!(topology.memory_bytes(), 0);
    }
}
