//! The interface between routing and the transport of batches: threads of one process, MPI, or a transport of the
//! host.
//!
//! A transport carries *batches* between ranks on *lanes*. It must
//!
//! - keep the order of batches between two ranks on one lane;
//! - return a batch's buffer ([`Transport::sent`]) only after the receiver has taken the batch out: this is the whole
//!   flow control;
//! - let a lane stop, its batches untaken, without blocking other lanes;
//! - never wait in [`send`](Transport::send), [`sent`](Transport::sent) or [`receive`](Transport::receive).
//!
//! Few batches are in transit at once: two for each connection, and one more for one long message per lane.

use std::time::Duration;

use super::topology::Topology;

/// The step of the route for which a batch is sent. Batches wait only for later lanes, never for earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Lane {
    /// To the representative on the sender's own node.
    Local = 0,
    /// From one node's representative to another's.
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
    /// The receiver.
    pub to: u32,
    /// The lane it went on.
    pub lane: Lane,
    /// Its buffer, as passed to [`Transport::send`], for reuse.
    pub buffer: Vec<u8>,
}

/// Errors of a transport.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// A rank is gone.
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

    /// The ranks and their nodes.
    fn topology(&self) -> Topology;

    /// Starts to send `batch`; [`sent`](Self::sent) returns its buffer.
    fn send(&mut self, to: u32, lane: Lane, batch: Vec<u8>) -> Result<(), TransportError>;

    /// A buffer whose batch the receiver has taken, if there is one.
    fn sent(&mut self) -> Result<Option<Sent>, TransportError>;

    /// Takes the next batch of a lane, if a whole one has arrived, and returns its sender: its bytes replace those of
    /// `into`, which has capacity for the longest batch. If there is none, the transport may keep the buffer and leave
    /// an empty one; the next call for the lane then returns the batch in the buffer that was kept.
    fn receive(&mut self, lane: Lane, into: &mut Vec<u8>) -> Result<Option<u32>, TransportError>;

    /// Waits at most `timeout` until something may have changed. An error if a rank is known to be gone.
    fn wait(&mut self, timeout: Duration) -> Result<(), TransportError>;

    /// Marks that this rank leaves in good order. Dropping a transport without this call counts as a failure.
    fn leave(&mut self) {}
}
