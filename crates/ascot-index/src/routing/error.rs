//! What can go wrong on the way between ranks.

use ascot_io::PoolError;

use super::transport::TransportError;
use crate::error::counted;

/// Why a message cannot be sent or an epoch not ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// A message for a rank that does not exist.
    #[error("there is no rank {rank}: there are {size}")]
    NoSuchRank {
        /// Whom it was for.
        rank: u32,
        /// How many there are.
        size: u32,
    },
    /// A message longer than was agreed.
    #[error(
        "a message of {bytes} bytes is longer than the {most} agreed on; allow longer ones (max_message), \
         or send keys only (scheme pointers or ranks)"
    )]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The most allowed.
        most: usize,
    },
    /// A setting that cannot be.
    #[error("{setting} cannot be {value}: {why}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// The value asked for.
        value: u64,
        /// The values allowed.
        why: &'static str,
    },
    /// The buffers do not fit the memory allowed.
    #[error("{} on {}, {way}: {source}{hint}", counted((*ranks).into(), "rank"), counted((*nodes).into(), "node"))]
    Memory {
        /// How many ranks.
        ranks: u32,
        /// How many nodes.
        nodes: u32,
        /// The route's name.
        way: &'static str,
        /// The error of the pool.
        source: PoolError,
        /// A setting that needs less.
        hint: String,
    },
    /// A rank is not there any more, or the transport fails.
    #[error("{0}; what was ended before stays readable")]
    Transport(#[from] TransportError),
    /// Nothing came for too long.
    #[error("no word for {seconds} s from {waited_for}; it may have died, or allow a longer wait (patience)")]
    Silent {
        /// How long.
        seconds: u64,
        /// The ranks that did not answer.
        waited_for: String,
    },
    /// Nothing moves, and all ranks that were asked answer.
    #[error(
        "nothing has moved for {seconds} s, though all ranks that this one waits for answer: do all call the same things \
         in the same order? Or allow a longer wait (patience)"
    )]
    Stuck {
        /// How long.
        seconds: u64,
    },
    /// A rank gave up, and all ranks learned it.
    #[error("rank {rank} gave up: {text}")]
    Abandoned {
        /// Who.
        rank: u32,
        /// Why.
        text: String,
    },
    /// A batch is not one that a peer of this version sends.
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
        /// The sender, named.
        lost_from: String,
        /// The number of messages it sent, by its own count.
        sent: u64,
        /// How many there were.
        arrived: u64,
        /// The epoch, counted from 0.
        epoch: u32,
    },
}
