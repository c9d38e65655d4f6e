//! Errors of DiskBench, with remedies for the user.

use std::io;
use std::path::PathBuf;

use ascot_io::{PoolError, ThreadError};
use ascot_model::units;

/// An error of DiskBench.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// A path is not a directory in which files may be made.
    #[error(
        "{}: cannot be measured: {source}\n  name directories on the volumes, where files may be made",
        path.display()
    )]
    Directory {
        /// The path as requested.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A directory is named twice as an input, or twice as an output.
    #[error("{} is named twice as --{role}\n  name each volume once for each role", path.display())]
    Twice {
        /// The directory.
        path: PathBuf,
        /// `input` or `output`.
        role: &'static str,
    },
    /// No volume is named for a role.
    #[error("no volume to {doing}\n  name at least one with --{role} DIR")]
    NoVolume {
        /// `read` or `write`.
        doing: &'static str,
        /// `input` or `output`.
        role: &'static str,
    },
    /// Requests that direct access does not allow.
    #[error(
        "--request {}: not a size of requests\n  give a multiple of 4 KiB, at most {}",
        units::memory(*asked), units::memory(*max)
    )]
    Request {
        /// Bytes requested.
        asked: u64,
        /// The maximum in bytes.
        max: u64,
    },
    /// Too few bytes for a rate.
    #[error(
        "--bytes {} is too little to measure with\n  {} is the least: {} requests",
        units::memory(*asked), units::memory(*needed), needed / request
    )]
    TooFewBytes {
        /// Bytes requested.
        asked: u64,
        /// The minimum in bytes.
        needed: u64,
        /// Bytes of a request.
        request: u64,
    },
    /// Memory that does not hold the requests in flight.
    #[error(
        "--memory {} does not hold the requests in flight\n  {} is the least: {blocks} buffers of {}; allow more, or \
         give a smaller --request",
        units::memory(*asked), units::memory(*needed), units::memory(needed / blocks)
    )]
    Memory {
        /// Bytes allowed.
        asked: u64,
        /// The minimum in bytes.
        needed: u64,
        /// Number of buffers.
        blocks: u64,
    },
    /// Too little free space.
    #[error(
        "not enough space on the volume of {}: {} needed, {} free\n  free some space, or allow less with --bytes; \
         nothing was written",
        path.display(), units::memory(*needed), units::memory(*free)
    )]
    NoSpace {
        /// A directory on the volume.
        path: PathBuf,
        /// Bytes needed on the volume.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// A file could not be made, read or written.
    #[error("cannot {doing} a file in {}: {source}\n  {}", path.display(), remedy(source))]
    File {
        /// `make`, `read`, ...
        doing: &'static str,
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A thread could not be started, or died.
    #[error(transparent)]
    Thread(#[from] ThreadError),
    /// Too little memory for the buffers.
    #[error("no memory for the buffers: {0}\n  run it where more memory is free")]
    Buffers(#[from] PoolError),
    /// The caller cancelled the measurement.
    #[error("stopped; nothing is left of its files")]
    Cancelled,
}

fn remedy(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => {
            "the volume is full: free some space, or allow less with --bytes; nothing is left of the files"
        }
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files (ulimit -n)",
        Some(libc::EFBIG) => "raise the limit of file sizes (ulimit -f); nothing is left of the files",
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => "name a directory where files may be made",
        _ => "the volume may be damaged: see the system's log; nothing is left of the files",
    }
}
