//! A round, and a peer's part of it.

use serde::{Deserialize, Serialize};

/// A round: the first `peers` peers send to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Round {
    pub(super) number: u32,
    pub(super) peers: u32,
    /// Connections from each peer to each other.
    pub(super) connections: u32,
    /// Bytes from each peer to each other.
    pub(super) bytes: u64,
}

/// A peer's part of a round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Done {
    /// Bytes received from all others.
    pub(super) received_bytes: u64,
    /// Seconds from the first buffer to the last, sent or received.
    pub(super) seconds: f64,
}
