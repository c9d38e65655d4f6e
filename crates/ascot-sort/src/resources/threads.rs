//! How many threads compute.

use std::num::NonZero;

/// As many as asked for, at least one; one a core where nothing was asked.
pub(crate) fn compute_threads(asked: Option<usize>) -> usize {
    asked.map_or_else(|| std::thread::available_parallelism().map_or(1, NonZero::get), |asked| asked.max(1))
}
