//! Errors of studies.

use std::io;
use std::path::{Path, PathBuf};

use ascot_io::IoError;
use ascot_model::units;
use ascot_sort::error::SortError;

/// An error that stops a study. Measurements that were finished before it stay in the table of results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A stream or a file of the study failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A sort of the study failed.
    #[error(transparent)]
    Sort(#[from] SortError),
    /// A file of parameters or results cannot be read or written.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// The operation: "read", "write", "create".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A value of a parameter file is impossible.
    #[error("{}: row {row}, column {column} ({name}): '{value}' {problem}", path.display())]
    Parameter {
        /// The file.
        path: PathBuf,
        /// The row, counted from 1 with the header.
        row: usize,
        /// The column, counted from 1.
        column: usize,
        /// The column's name.
        name: &'static str,
        /// The value as written.
        value: String,
        /// The problem, and the values that are possible.
        problem: String,
    },
    /// A value of the request is impossible.
    #[error("{0}")]
    Request(String),
    /// The table of results is not one of this study.
    #[error(
        "{}: line {line}: {problem}\n  the file is not a table of this study: name another directory, or move the \
         file away",
        path.display()
    )]
    Table {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The problem.
        problem: String,
    },
    /// Another study writes the table of results.
    #[error("{}: another study is writing it: wait for its end, or name another directory (--out DIR)", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The volume has less space than the study needs. Nothing has been written.
    #[error(
        "the study needs {} on the volume of {}, which has {} left\n  free some space, name a directory of \
         another volume ({flag} DIR), or measure smaller files",
        units::bytes(*needed_bytes), path.display(), units::bytes(*free_bytes)
    )]
    Space {
        /// The directory of the files.
        path: PathBuf,
        /// The flag that names it.
        flag: &'static str,
        /// Bytes needed at once.
        needed_bytes: u64,
        /// Bytes free.
        free_bytes: u64,
    },
    /// The streams of a measurement need more memory than the study may use.
    #[error(
        "{what} needs {} of memory, and the study may use {}\n  raise --memory, or measure fewer streams with \
         smaller blocks",
        units::memory(*needed_bytes), units::memory(*memory_bytes)
    )]
    Memory {
        /// The measurement.
        what: String,
        /// Bytes needed.
        needed_bytes: u64,
        /// Bytes allowed.
        memory_bytes: u64,
    },
    /// A merge sort of a measurement needs more memory than the study may use.
    #[error(
        "{what} needs {} of memory, and the study may use {}\n  raise --memory-limit, or sort with a smaller M, \
         B or d",
        units::memory(*needed_bytes), units::memory(*memory_bytes)
    )]
    SortMemory {
        /// The measurement.
        what: String,
        /// Bytes needed.
        needed_bytes: u64,
        /// Bytes allowed.
        memory_bytes: u64,
    },
    /// A sort wrote other integers than it read, or in another order.
    #[error("{what} wrote a wrong file: {problem}\n  please report this; no result was stored for it")]
    WrongSort {
        /// The measurement.
        what: String,
        /// The problem.
        problem: &'static str,
    },
    /// A stream carried other elements than were written.
    #[error(
        "{what} read other elements than were written to {}\n  the volume or its memory damages data: check it before \
         trusting any file on it",
        path.display()
    )]
    Damaged {
        /// The measurement.
        what: String,
        /// The first file.
        path: PathBuf,
    },
    /// The user asked to stop.
    #[error("stopped; finished measurements are in {}, and the same command continues after them", path.display())]
    Stopped {
        /// The table of results.
        path: PathBuf,
    },
}

impl LabError {
    /// An error of the file `path`.
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { doing, path, source }
    }
}
