//! The seam between routing and whatever moves batches: threads of one process, MPI, or what a host brings.
//!
//! A transport carries *batches* between ranks on *lanes*. It must
//!
//! - keep the order of batches between two ranks on one lane;
//! - give a batch's buffer back ([`Transport::sent`]) only when the receiver has taken the batch out: this is
//!   the whole of flow control;
//! - let a lane stand still, its batches untaken, without holding up other lanes;
//! - never wait in [`send`](Transport::send), [`sent`](Transport::sent) or [`receive`](Transport::receive).
//!
//! Few batches are under way at once: two for each connection, one more for one long message a lane.

use std::time::Duration;

use super::topology::Topology;

/// The step of the route that a batch is on. Batches wait only for later lanes, never for earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Lane {
    /// To the representative on the sender's own node.
    Local = 0,
    /// From a node's representative to that of another.
    Wire = 1,
    /// To the destination.
    Deliver = 2,
    /// Allreduce of all ranks, and reports of failures.
    Control = 3,
}

impl Lane {
    /// The lanes that carry messages.
    pub const DATA: [Self; 3] = [Self::Local, Self::Wire, Self::Deliver];
}

/// A batch that its receiver has taken.
#[derive(Debug)]
pub struct Sent {
    /// Who took it.
    pub to: u32,
    /// The lane it went on.
    pub lane: Lane,
    /// Its buffer, as it was given to [`Transport::send`], for use again.
    pub buffer: Vec<u8>,
}

/// Errors of a transport.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// A rank is not there any more.
    #[error("rank {rank} is gone")]
    PeerGone {
        /// The rank.
        rank: u32,
    },
    /// The transport itself failed.
    #[error("{what}")]
    Failed {
        /// Its message.
        what: String,
    },
}

/// Moves batches between ranks. One thread uses it.
pub trait Transport {
    /// This rank.
    fn rank(&self) -> u32;

    /// Which ranks there are, on which nodes.
    fn topology(&self) -> Topology;

    /// Begins to send `batch`; its buffer comes back by [`sent`](Self::sent).
    fn send(&mut self, to: u32, lane: Lane, batch: Vec<u8>) -> Result<(), TransportError>;

    /// A buffer whose batch has been taken by its receiver, if there is one.
    fn sent(&mut self) -> Result<Option<Sent>, TransportError>;

    /// Takes the next batch of a lane, if all of one has come: its bytes replace those of `into`, which has room for
    /// the longest there can be. The answer is who sent it. While there is none it may keep the buffer and leave an
    /// empty one; the next call for the lane then gets the batch in the buffer that was kept.
    fn receive(&mut self, lane: Lane, into: &mut Vec<u8>) -> Result<Option<u32>, TransportError>;

    /// Waits until something may have changed, at most `most`. An error if a rank is known to be gone.
    fn wait(&mut self, most: Duration) -> Result<(), TransportError>;

    /// Says that this rank leaves in good order. A transport dropped without it was left by a failure.
    fn leave(&mut self) {}
}
