//! The fault hook: tests see every operation on files before it happens, and can make it fail or store wrong bytes.

use std::fmt::Debug;
use std::io;
use std::path::Path;

use crate::error::{Action, IoError};

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
) -> Result<Option<Effect>, IoError> {
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
