//! The cost of routing records among many processes: connections, batches in memory and messages of one process, if
//! records are sent directly or in three hops (Zheng et al., "Scaling Embedded In-Situ Indexing with DeltaFS", on
//! three-hop routing).
//!
//! ```text
//!   direct      rank ─▶ every other rank
//!   three hops  rank ─▶ the rank of its node for the other node ─▶ that node's rank for ours ─▶ destination
//! ```
//!
//! A record stays in a batch until the batch is full; a rank has one batch for every neighbour of a hop. With N nodes
//! of K ranks each, a rank represents at most ⌈(N - 1) / K⌉ other nodes. It has K - 1 neighbours on its node and this
//! number on other nodes, instead of R - 1.

use serde::Serialize;

/// A job whose ranks send records to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutingJob {
    /// Processes, at least one.
    pub ranks: u64,
    /// Processes on each node, at least one; the last node may have fewer.
    pub ranks_per_node: u64,
    /// Bytes of a batch.
    pub batch_bytes: u64,
    /// Bytes of records that each rank sends in an epoch, evenly to all ranks.
    pub epoch_bytes: u64,
}

/// Upper bounds of the cost of one rank in an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RoutingCost {
    /// Ranks of its own node that it sends to.
    pub local_connections: u64,
    /// Ranks of other nodes that it sends to.
    pub remote_connections: u64,
    /// Bytes of the batches it fills.
    pub memory_bytes: u64,
    /// Batches sent to other nodes.
    pub remote_messages: u64,
    /// Bytes sent to other nodes.
    pub remote_bytes: u64,
    /// Batches sent within its node.
    pub local_messages: u64,
}

impl RoutingJob {
    /// Nodes.
    pub fn nodes(&self) -> u64 {
        self.ranks.div_ceil(self.ranks_per_node.max(1)).max(1)
    }

    fn on_a_node(&self) -> u64 {
        self.ranks_per_node.clamp(1, self.ranks.max(1))
    }

    /// Batches for `bytes` to each of `neighbours` neighbours.
    fn batches(&self, neighbours: u64, bytes: f64) -> u64 {
        // Sums of an epoch are far below 2^53.
        neighbours * (bytes / self.batch_bytes.max(1) as f64).ceil() as u64
    }

    /// Bytes for each rank.
    fn share(&self) -> f64 {
        self.epoch_bytes as f64 / self.ranks.max(1) as f64
    }

    /// Every rank sends to every other.
    pub fn direct(&self) -> RoutingCost {
        let local = self.on_a_node() - 1;
        let remote = self.ranks.saturating_sub(self.on_a_node());
        RoutingCost {
            local_connections: local,
            remote_connections: remote,
            memory_bytes: (local + remote) * self.batch_bytes,
            remote_messages: self.batches(remote, self.share()),
            remote_bytes: (self.share() * remote as f64) as u64,
            local_messages: self.batches(local, self.share()),
        }
    }

    /// Three hops. Batches for the first and the third hop are separate, so that neither blocks the other.
    pub fn three_hop(&self) -> RoutingCost {
        let on_a_node = self.on_a_node();
        let local = on_a_node - 1;
        let remote = (self.nodes() - 1).div_ceil(on_a_node);
        // To a rank of the node: the records for the nodes that it represents, and for itself.
        let first = self.share() * (remote * on_a_node + 1) as f64;
        // Between two nodes: all records of ranks of one for ranks of the other.
        let second = self.share() * (on_a_node * on_a_node) as f64;
        // To a rank of the node: its records from the nodes that this rank represents.
        let third = self.share() * (remote * on_a_node) as f64;
        RoutingCost {
            local_connections: local,
            remote_connections: remote,
            memory_bytes: (2 * local + remote) * self.batch_bytes,
            remote_messages: self.batches(remote, second),
            remote_bytes: (second * remote as f64) as u64,
            local_messages: self.batches(local, first) + self.batches(local, third),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: u64 = 32 << 10;

    fn job(ranks: u64, ranks_per_node: u64) -> RoutingJob {
        RoutingJob { ranks, ranks_per_node, batch_bytes: BATCH, epoch_bytes: 100 << 20 }
    }

    #[test]
    fn the_published_bound_holds() {
        let three = job(131_072, 32).three_hop();
        assert_eq!((three.local_connections, three.remote_connections), (31, 128));
        assert!(three.memory_bytes < 16_000_000, "{three:?}");
        let direct = job(131_072, 32).direct();
        assert_eq!(direct.local_connections + direct.remote_connections, 131_071);
        assert_eq!(direct.memory_bytes, 131_071 * BATCH);
        assert!(three.remote_messages < direct.remote_messages / 20);
    }

    #[test]
    fn the_published_example() {
        // Four nodes of four: three local connections, one remote at most, and 15 directly.
        let three = job(16, 4).three_hop();
        assert_eq!((three.local_connections, three.remote_connections), (3, 1));
        let direct = job(16, 4).direct();
        assert_eq!(direct.local_connections + direct.remote_connections, 15);
        // Equally many bytes leave a node on both routes.
        assert_eq!(three.remote_bytes, job(16, 4).share() as u64 * 16);
    }

    #[test]
    fn one_node_sends_nothing_away() {
        for cost in [job(8, 8).direct(), job(8, 8).three_hop(), job(1, 32).three_hop()] {
            assert_eq!((cost.remote_connections, cost.remote_messages, cost.remote_bytes), (0, 0, 0));
        }
    }
}
