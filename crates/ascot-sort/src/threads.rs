//! How many threads compute, and what is said where one cannot be started.

use std::num::NonZero;

use crate::error::SortError;

/// As many as asked for, at least one; one a core where nothing was asked.
pub(crate) fn compute_threads(asked: Option<usize>) -> usize {
    asked.map_or_else(|| std::thread::available_parallelism().map_or(1, NonZero::get), |asked| asked.max(1))
}

/// The system starts no more threads.
pub(crate) fn no_thread(error: std::io::Error) -> SortError {
    SortError::Request(format!(
        "the system starts no more threads: {error}\n  allow more processes (ulimit -u), or take fewer threads (--threads)"
    ))
}
