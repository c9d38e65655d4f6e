//! Errors of indexed directories. Each names the file, the byte and a remedy, so that a user can act on it.

use std::path::{Path, PathBuf};

use ascot_io::{IoError, PoolError};

/// An error of an indexed directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// A file or volume refused.
    #[error(transparent)]
    Io(#[from] IoError),
    /// There is too little memory for what was asked.
    #[error(transparent)]
    Memory(#[from] PoolError),
    /// Less memory was allowed than it takes at least.
    #[error("{what} needs {min_kib} KiB of memory at least, and {allowed_kib} KiB are allowed; {advice}")]
    TooLittle {
        /// The part that needs the memory.
        what: String,
        /// The least, KiB.
        min_kib: usize,
        /// The memory allowed, KiB.
        allowed_kib: usize,
        /// A remedy.
        advice: &'static str,
    },
    /// There is no indexed directory here.
    #[error("{} is not an indexed directory: it has no file MANIFEST", path.display())]
    NotIndexed {
        /// The directory.
        path: PathBuf,
    },
    /// A file does not hold the bytes that were written.
    #[error("{} is damaged at byte {offset}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// The fault.
        what: &'static str,
    },
    /// A file of the directory is not there.
    #[error("{} is missing: the directory is not complete; copy it again, or leave this file's keys out", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A file ends before the epochs that the manifest names.
    #[error("{} holds {held} complete epochs, and the manifest names {named}: it was cut short", path.display())]
    CutShort {
        /// The file.
        path: PathBuf,
        /// Epochs found.
        held: u64,
        /// Epochs in the manifest.
        named: u64,
    },
    /// A format this version does not know.
    #[error("{} has version {version} of its format, and this program knows version {known}: use a newer program", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The version known here.
        known: u32,
    },
    /// Another process writes here.
    #[error("{} is being written by another process: wait until it is done, or name another directory", path.display())]
    Locked {
        /// The file that is locked.
        path: PathBuf,
    },
    /// A directory was to be made where something is.
    #[error("{} exists already{}", path.display(), instead(*indexed))]
    Exists {
        /// The path that exists.
        path: PathBuf,
        /// It is an indexed directory.
        indexed: bool,
    },
    /// A key or value of another length than the directory's.
    #[error("a {what} of {}, where the directory has {what}s of {expected}", bytes_of(*got as u64))]
    Length {
        /// Key or value.
        what: &'static str,
        /// Bytes given.
        got: usize,
        /// Bytes there must be.
        expected: usize,
    },
    /// A record is longer than formats hold.
    #[error("a {what} of {}: the longest is {most}", bytes_of(*got))]
    TooLong {
        /// Key or value.
        what: &'static str,
        /// Bytes given.
        got: u64,
        /// Most bytes.
        most: u64,
    },
    /// Something was asked that this directory or writer cannot do.
    #[error("{0}")]
    Request(String),
    /// The writer failed before; nothing more is taken.
    #[error("the writer of {} failed before, and takes nothing more: epochs that were complete stay", path.display())]
    Failed {
        /// The directory.
        path: PathBuf,
    },
}

/// A remedy where a directory cannot be made.
fn instead(indexed: bool) -> &'static str {
    if indexed {
        ": name another directory, or append to this one"
    } else {
        " and is not an indexed directory: name another one, or an empty one"
    }
}

/// Bytes and their noun.
pub(crate) fn bytes_of(count: u64) -> String {
    counted(count, "byte")
}

/// A count and its noun.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The result of functions of this crate.
pub type Result<T> = std::result::Result<T, IndexError>;

impl IndexError {
    /// A file is not what was written.
    pub(crate) fn damaged(path: &Path, offset: u64, what: &'static str) -> Self {
        Self::Damaged { path: path.to_path_buf(), offset, what }
    }
}
