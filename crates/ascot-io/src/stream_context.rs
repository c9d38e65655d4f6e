//! The context of a stream: the path for its errors, its meter, the space reservation, and the fault hook, by which
//! tests see every operation on files before it happens and can make it fail or store wrong bytes.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::clocks::{State, call};
use crate::error::{Action, IoError, Result};
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
    pub(crate) fn inject_fault(&self, action: Action, offset: u64) -> Result<Option<Effect>> {
        inject_fault(self.faults.as_deref(), action, &self.path, offset)
    }

    /// Calls the fault hook for a write. If the volume is full while files are being removed, it waits for their space.
    pub(crate) fn inject_fault_of_write(&self, offset: u64) -> Result<Option<Effect>> {
        let result = self.inject_fault(Action::Write, offset);
        if result.as_ref().is_err_and(|error| self.has_space_now(error)) {
            return self.inject_fault(Action::Write, offset);
        }
        result
    }

    /// Makes the bytes of the stream's `file`, written up to `end`, durable.
    pub(crate) fn sync(&self, file: &File, end: u64) -> Result<()> {
        self.inject_fault(Action::Sync, end)?;
        call(State::Device, || file.sync_data()).map_err(|error| self.error(Action::Sync, end, error))
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

/// The fault injected into an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Fails with EIO.
    Eio,
    /// Fails with ENOSPC.
    NoSpace,
    /// Fails with EMFILE.
    TooManyOpen,
    /// The first system call moves half of the bytes; reads and writes must continue on their own.
    Short,
    /// A write stores its first half only and reports success.
    Torn,
    /// A write stores zeros and reports success.
    Zeroed,
    /// A write lands at the offset of the block before it (the first block at that of the second) and reports
    /// success.
    Misdirected,
}

/// A hook that a disk calls before each operation on a file.
pub trait FaultHook: Debug + Send + Sync {
    /// The effect on the operation, or the error it fails with; `None` leaves it unchanged.
    fn before(&self, action: Action, path: &Path) -> io::Result<Option<Effect>>;
}

/// Calls the fault hook for an operation on `path`.
pub(crate) fn inject_fault(
    faults: Option<&dyn FaultHook>,
    action: Action,
    path: &Path,
    offset: u64,
) -> Result<Option<Effect>> {
    let Some(faults) = faults else { return Ok(None) };
    faults.before(action, path).map_err(|source| IoError::from_os(action, path, offset, source))
}

impl Effect {
    /// The error of an operation with this effect, if it fails.
    pub fn error(self) -> Option<io::Error> {
        let code = match self {
            Self::Eio => libc::EIO,
            Self::NoSpace => libc::ENOSPC,
            Self::TooManyOpen => libc::EMFILE,
            Self::Short | Self::Torn | Self::Zeroed | Self::Misdirected => return None,
        };
        Some(io::Error::from_raw_os_error(code))
    }
}
