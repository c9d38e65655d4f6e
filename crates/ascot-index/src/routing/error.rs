//! Errors of routing between ranks.

use ascot_io::PoolError;

use super::transport::TransportError;
use crate::error::counted;

/// An error of sending a message or ending an epoch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// A message for a rank that does not exist.
    #[error("there is no rank {rank}: there are {size}")]
    NoSuchRank {
        /// The requested rank.
        rank: u32,
        /// Number of ranks.
        size: u32,
    },
    /// A message longer than the agreed maximum.
    #[error(
        "a message of {bytes} bytes is longer than the {max_bytes} agreed on; allow longer ones (max_message), \
         or send keys only (scheme pointers or ranks)"
    )]
    TooLong {
        /// Its length, bytes.
        bytes: usize,
        /// The maximum, bytes.
        max_bytes: usize,
    },
    /// An invalid setting.
    #[error("{setting} cannot be {value}: {why}")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// The requested value.
        value: u64,
        /// The values allowed.
        why: &'static str,
    },
    /// The buffers do not fit the memory allowed.
    #[error("{} on {}, {way}: {source}{hint}", counted((*ranks).into(), "rank"), counted((*nodes).into(), "node"))]
    Memory {
        /// Number of ranks.
        ranks: u32,
        /// Number of nodes.
        nodes: u32,
        /// The route's name.
        way: &'static str,
        /// The error of the pool.
        source: PoolError,
        /// A setting that needs less.
        hint: String,
    },
    /// A rank is gone, or the transport failed.
    #[error("{0}; what was ended before stays readable")]
    Transport(#[from] TransportError),
    /// Nothing arrived for too long.
    #[error("no word for {seconds} s from {waited_for}; it may have died, or allow a longer wait (patience)")]
    Silent {
        /// The wait, seconds.
        seconds: u64,
        /// The ranks that did not answer.
        waited_for: String,
    },
    /// Nothing moves, although all ranks that were asked answer.
    #[error(
        "nothing has moved for {seconds} s, though all ranks that this one waits for answer: do all call the \
         same things in the same order? Or allow a longer wait (patience)"
    )]
    Stuck {
        /// The wait, seconds.
        seconds: u64,
    },
    /// A rank gave up and informed all ranks.
    #[error("rank {rank} gave up: {text}")]
    Abandoned {
        /// The rank.
        rank: u32,
        /// The reason.
        text: String,
    },
    /// A malformed batch.
    #[error(
        "what came from rank {from} cannot be: {what}; do all ranks use the same version of the library?"
    )]
    Garbled {
        /// The sender.
        from: u32,
        /// The fault.
        what: &'static str,
    },
    /// A connection lost messages.
    #[error("{lost_from} sent {sent} messages of epoch {epoch} on one connection, {arrived} arrived")]
    Lost {
        /// The sender.
        lost_from: String,
        /// Number of messages sent, by the sender's count.
        sent: u64,
        /// Number of messages that arrived.
        arrived: u64,
        /// The epoch, counted from 0.
        epoch: u32,
    },
}
