//! Errors of indexed directories. Each names the file, the byte and a remedy, so that a user can act on it.

use std::path::{Path, PathBuf};

use ascot_io::{IoError, PoolError};

/// An error of an indexed directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// A file or volume failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The memory pool refused a reservation.
    #[error(transparent)]
    Memory(#[from] PoolError),
    /// The memory allowed is below the minimum.
    #[error("{what} needs {min_kib} KiB of memory at least, and {allowed_kib} KiB are allowed; {advice}")]
    TooLittle {
        /// The part that needs the memory.
        what: String,
        /// The minimum, KiB.
        min_kib: usize,
        /// The memory allowed, KiB.
        allowed_kib: usize,
        /// A remedy.
        advice: &'static str,
    },
    /// The path is not an indexed directory.
    #[error("{} is not an indexed directory: there is no file MANIFEST in it", path.display())]
    NotIndexed {
        /// The directory.
        path: PathBuf,
    },
    /// A file does not hold the bytes that were written.
    #[error("{} is damaged at byte {offset}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Offset of the damage, bytes.
        offset: u64,
        /// The fault.
        what: &'static str,
    },
    /// A file of the directory is missing.
    #[error(
        "{} is missing: the directory is not complete; copy it again, or leave this file's keys out",
        path.display()
    )]
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
    /// A format version that this program does not know.
    #[error(
        "{} has version {version} of its format, and this program knows version {known}: use a newer \
         program",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The version known here.
        known: u32,
    },
    /// Another process writes the directory.
    #[error("{} is open in another writer: wait until that is closed, or name another directory", path.display())]
    Locked {
        /// The file that is locked.
        path: PathBuf,
    },
    /// The path of a new directory exists already.
    #[error("{} exists already{}", path.display(), instead(*indexed))]
    Exists {
        /// The path that exists.
        path: PathBuf,
        /// Whether it is an indexed directory.
        indexed: bool,
    },
    /// The length of a key or value differs from the directory's fixed length.
    #[error("a {what} of {}, where the directory has {what}s of {expected}", bytes_of(*got as u64))]
    Length {
        /// Key or value.
        what: &'static str,
        /// Bytes given.
        got: usize,
        /// Bytes required.
        expected: usize,
    },
    /// A key or value is longer than the format allows.
    #[error("a {what} of {}: the longest is {max}", bytes_of(*got))]
    TooLong {
        /// Key or value.
        what: &'static str,
        /// Bytes given.
        got: u64,
        /// Maximum bytes.
        max: u64,
    },
    /// A request that this directory or writer cannot fulfil.
    #[error("{0}")]
    Request(String),
    /// The caller stopped the writer.
    #[error("the writer of {} was stopped: epochs that were complete stay", path.display())]
    Stopped {
        /// The directory.
        path: PathBuf,
    },
    /// The writer failed before and accepts no more records.
    #[error("the writer of {} failed before, and takes nothing more: epochs that were complete stay", path.display())]
    Failed {
        /// The directory.
        path: PathBuf,
    },
}

/// A remedy if a directory cannot be made.
fn instead(indexed: bool) -> &'static str {
    if indexed {
        ": name another directory, or append to this one"
    } else {
        " and is not an indexed directory: name another one, or an empty one"
    }
}

/// A number of bytes with its noun.
pub(crate) fn bytes_of(count: u64) -> String {
    counted(count, "byte")
}

/// A count with its noun.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, IndexError>;

impl IndexError {
    /// An error for a file with wrong contents.
    pub(crate) fn damaged(path: &Path, offset: u64, what: &'static str) -> Self {
        Self::Damaged { path: path.to_path_buf(), offset, what }
    }
}
