//! The fault hook: tests see every operation on files before it happens, and can make it fail or store wrong bytes.

use std::fmt::Debug;
use std::io;
use std::path::Path;

use crate::error::{Action, IoError};

/// What happens to an operation that a hook picks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Fails with EIO.
    Eio,
    /// Fails with ENOSPC.
    NoSpace,
    /// Fails with EMFILE.
    TooManyOpen,
    /// The first system call moves half of the bytes; reads and writes must go on by themselves.
    Short,
    /// A write stores its first half only and reports success.
    Torn,
    /// A write stores zeros and reports success.
    Zeroed,
    /// A write lands at the place of the block before it (the first at the second's place) and
    /// reports success.
    Misdirected,
}

/// What a disk asks before each operation on a file.
pub trait FaultHook: Debug + Send + Sync {
    /// The effect on the operation, or the error it fails with; `None` lets it take place as usual.
    fn before(&self, action: Action, path: &Path) -> io::Result<Option<Effect>>;
}

/// Asks the fault hook about an operation on `path`.
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
    /// The error of an operation that it makes fail.
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
