//! The fault hook: tests see every operation on files before it happens, and may make it fail or lie.

use std::fmt::Debug;
use std::io;
use std::path::Path;

/// The operations that a hook sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Opening a file to read.
    Open,
    /// Creating a file, or opening one to append.
    Create,
    /// One begun read.
    Read,
    /// One begun write.
    Write,
    /// Making a file or directory durable.
    Sync,
    /// Renaming.
    Rename,
    /// Removing.
    Remove,
}

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
    /// What must happen to the operation, or the error it fails with; none where it takes place as usual.
    fn before(&self, operation: Operation, path: &Path) -> io::Result<Option<Effect>>;
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
