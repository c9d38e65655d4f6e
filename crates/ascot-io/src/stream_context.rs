//! The context of a stream: the path for its errors, its meter, the fault hook and the space reservation.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::error::{Action, IoError};
use crate::fault_hook::{Effect, FaultHook, inject_fault};
use crate::ledger::Meter;
use crate::space_reservation::SpaceReservation;

/// The parts of a disk that a stream uses.
#[derive(Debug)]
pub(crate) struct StreamContext {
    pub(crate) path: PathBuf,
    pub(crate) meter: Meter,
    pub(crate) faults: Option<Arc<dyn FaultHook>>,
    /// Counts the space that files take.
    pub(crate) space: SpaceReservation,
    /// If it is set, the stream stops waiting for the other end of a pipe.
    pub(crate) stop: Option<Arc<AtomicBool>>,
}

impl StreamContext {
    /// Calls the fault hook for an operation.
    pub(crate) fn inject_fault(&self, action: Action, offset: u64) -> Result<Option<Effect>, IoError> {
        inject_fault(self.faults.as_deref(), action, &self.path, offset)
    }

    /// Calls the fault hook for a write. If the volume is full while files are being removed, it waits for their space.
    pub(crate) fn inject_fault_of_write(&self, offset: u64) -> Result<Option<Effect>, IoError> {
        let result = self.inject_fault(Action::Write, offset);
        if result.as_ref().is_err_and(|error| self.has_space_now(error)) {
            return self.inject_fault(Action::Write, offset);
        }
        result
    }

    /// Whether `error` was a full volume and files were being removed: their space is free when this returns.
    pub(crate) fn has_space_now(&self, error: &IoError) -> bool {
        error.is_disk_full() && self.space.outlast_removals()
    }

    /// An error of this stream's file.
    pub(crate) fn error(&self, action: Action, offset: u64, source: io::Error) -> IoError {
        IoError::from_os(action, &self.path, offset, source)
    }

    /// The error of a file that ended early.
    pub(crate) fn truncated(&self, offset: u64, expected: u64) -> IoError {
        IoError::Truncated { path: self.path.clone(), offset, expected }
    }

    /// The error of a caller that broke the stream's rules.
    pub(crate) fn misuse(&self, offset: u64, what: &'static str) -> IoError {
        IoError::Misuse { path: self.path.clone(), offset, what }
    }
}
