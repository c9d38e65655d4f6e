//! The allreduce that tells all ranks whether any of them failed.

use super::error::RankError;
use crate::routing::{Outcome, Router, Transport};

/// The outcome of a rank, in the form in which it is sent.
pub(super) fn outcome_of<R>(purpose: u8, own: &Result<R, RankError>) -> Outcome {
    match own {
        Ok(_) => Outcome::Well,
        Err(error) => Outcome::Failed { code: u32::from(purpose), text: error.to_string() },
    }
}

/// Combines the outcomes of all ranks. A rank that failed gets its own error.
pub(super) fn together<T: Transport, R>(
    router: &mut Router<T>,
    purpose: u8,
    own: Result<R, RankError>,
    sums: &[u64],
) -> Result<(R, Vec<u64>), RankError> {
    let agreement = router.allreduce(purpose, outcome_of(purpose, &own), sums);
    let result = own?;
    let agreement = agreement?;
    match agreement.failure {
        Some((rank, _, text)) => Err(RankError::Peer { rank, text }),
        None => Ok((result, agreement.sums)),
    }
}
