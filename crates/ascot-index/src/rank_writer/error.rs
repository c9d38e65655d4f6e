//! Errors of several processes that write one directory.

use std::sync::Arc;

use crate::error::IndexError;
use crate::routing::RouteError;

/// Why a record is not taken, or an epoch not complete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    /// This rank's files or settings.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The way between ranks.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// Another rank failed; all ranks learn it.
    #[error("rank {rank} failed, so that nothing more is written; epochs that were complete stay: {text}")]
    Peer {
        /// The lowest rank that failed.
        rank: u32,
        /// Its message.
        text: String,
    },
    /// It has failed, now: later calls get [`Failed`](Self::Failed) with the same cause.
    #[error(transparent)]
    Now(Arc<Self>),
    /// It failed before.
    #[error("this writer failed before, and takes nothing more; epochs that were complete stay: {cause}")]
    Failed {
        /// How it failed.
        cause: Arc<Self>,
    },
    /// Records went missing on their way.
    #[error("{appended} records were appended and {arrived} arrived; the epoch does not count")]
    Count {
        /// Records of all ranks.
        appended: u64,
        /// Records that came to a partition.
        arrived: u64,
    },
    /// Ranks were opened with different options.
    #[error("all ranks need the same options: {text}; nothing was opened")]
    Options {
        /// Which two ranks, and in what they differ.
        text: String,
    },
    /// Ranks do not see the same directory.
    #[error(
        "rank {rank} finds another directory at this path than rank 0 has, or an older state of it: is it on a file \
         system that all share?"
    )]
    NotShared {
        /// The rank.
        rank: u32,
    },
}

impl RankError {
    /// The failure itself, whether it is reported for the first time or again.
    pub fn cause(&self) -> &Self {
        match self {
            Self::Now(cause) | Self::Failed { cause } => cause.cause(),
            other => other,
        }
    }
}
