//! Errors of measuring a volume, with remedies for the user.

use std::io;
use std::path::PathBuf;

use ascot_io::{PoolError, ThreadError};
use ascot_model::units;

/// An error of a measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The path is not an accessible directory.
    #[error(
        "{}: cannot be measured: {source}\n  name a directory on the volume, where files may be made",
        path.display()
    )]
    Directory {
        /// The path as requested.
        path: PathBuf,
        /// The system error.
        source: io::Error,
    },
    /// The files are in memory.
    #[error(
        "{} lies on a {kind}: its files are memory, there is no device to measure\n  name a directory on a disk",
        path.display()
    )]
    Memory {
        /// The directory.
        path: PathBuf,
        /// `tmpfs` or `ramfs`.
        kind: &'static str,
    },
    /// Without direct access, the page cache would be measured.
    #[error(
        "{}: its file system ({kind}) does not allow direct access ({source}): the page cache would be \
         measured, not the device\n  name a directory on a file system with O_DIRECT, such as ext4, xfs or \
         btrfs",
        path.display()
    )]
    NoDirect {
        /// The directory.
        path: PathBuf,
        /// The file system.
        kind: String,
        /// The system error.
        source: io::Error,
    },
    /// Too little free space.
    #[error(
        "not enough space on the volume of {}: {} needed, {} free, of which half may be used\n  free some \
         space, or name another volume; nothing was written",
        path.display(), units::memory(*needed), units::memory(*free)
    )]
    NoSpace {
        /// The directory.
        path: PathBuf,
        /// Minimum bytes of a measurement.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// The requested limit is below the minimum.
    #[error(
        "--bytes {} is too little to measure with\n  {} is the least",
        units::memory(*asked), units::memory(*needed)
    )]
    TooFewBytes {
        /// Bytes requested.
        asked: u64,
        /// Minimum bytes of a measurement.
        needed: u64,
    },
    /// A file could not be made, read or written.
    #[error("cannot {doing} a file in {}: {source}\n  {}", path.display(), remedy(source))]
    File {
        /// `make`, `read`, ...
        doing: &'static str,
        /// The directory.
        path: PathBuf,
        /// The system error.
        source: io::Error,
    },
    /// A thread could not be started, or died.
    #[error(transparent)]
    Thread(#[from] ThreadError),
    /// Too little memory for the buffers.
    #[error("no memory for the buffers of the measurement: {0}\n  run it where more memory is free")]
    Buffers(#[from] PoolError),
    /// The caller cancelled the measurement.
    #[error("stopped; nothing is left of the measurement's files")]
    Cancelled,
}

/// What measurements return.
pub(crate) type Result<T, E = ProbeError> = std::result::Result<T, E>;

fn remedy(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => {
            "free some space, or allow less with --bytes; nothing is left of the measurement's files"
        }
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files (ulimit -n)",
        Some(libc::EFBIG) => "raise the limit of file sizes (ulimit -f)",
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => {
            "name a directory on the volume where files may be made"
        }
        _ => "the volume may be damaged: see the system's log; nothing is left of the measurement's files",
    }
}
