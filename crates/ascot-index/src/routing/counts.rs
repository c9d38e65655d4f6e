//! Counts of a router's work.

/// Counts of one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HopCount {
    /// Batches sent.
    pub batches: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// Batches sent to other nodes.
    pub batches_off_node: u64,
    /// Bytes of those.
    pub bytes_off_node: u64,
}

/// Counts of a router since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoutingCounts {
    /// Messages appended here.
    pub appended: u64,
    /// Their bytes.
    pub appended_bytes: u64,
    /// Messages delivered here.
    pub delivered: u64,
    /// By lane: local, wire, deliver.
    pub hops: [HopCount; 3],
    /// Number of waits for other ranks.
    pub waits: u64,
}

impl RoutingCounts {
    /// Bytes that went to other nodes.
    pub fn bytes_off_node(&self) -> u64 {
        self.hops.iter().map(|hop| hop.bytes_off_node).sum()
    }

    /// Batches that went to other nodes.
    pub fn batches_off_node(&self) -> u64 {
        self.hops.iter().map(|hop| hop.batches_off_node).sum()
    }
}
