//! Errors of directories that several processes write.

use std::sync::Arc;

use crate::error::IndexError;
use crate::routing::RouteError;

/// An error of a rank's writer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    /// An error of this rank's files or settings.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// An error of routing between ranks.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// Another rank failed; all ranks are informed.
    #[error("rank {rank} failed, so that nothing more is written; epochs that were complete stay: {text}")]
    Peer {
        /// The lowest rank that failed.
        rank: u32,
        /// Its message.
        text: String,
    },
    /// The first report of a failure; later calls return [`Failed`](Self::Failed) with the same cause.
    #[error(transparent)]
    Now(Arc<Self>),
    /// The writer failed before.
    #[error("this writer failed before, and takes nothing more; epochs that were complete stay: {cause}")]
    Failed {
        /// The first failure.
        cause: Arc<Self>,
    },
    /// Records were lost in transit.
    #[error("{appended} records were appended and {arrived} arrived; the epoch does not count")]
    Count {
        /// Records appended at all ranks.
        appended: u64,
        /// Records that arrived at a partition.
        arrived: u64,
    },
    /// Ranks were opened with different options.
    #[error("all ranks need the same options: {text}; nothing was opened")]
    Options {
        /// The two ranks and the options that differ.
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
    /// The failure itself, for its first report and for later ones.
    pub fn cause(&self) -> &Self {
        match self {
            Self::Now(cause) | Self::Failed { cause } => cause.cause(),
            other => other,
        }
    }
}
