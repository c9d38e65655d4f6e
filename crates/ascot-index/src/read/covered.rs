//! The bytes of a file that a checksum covers; all others are padding and must be zeros.
//!
//! ```text
//!   |== block ==|0|== block ==|0|== ...       bytes that were not added are checked to be zeros
//! ```

use std::ops::Range;
use std::path::Path;

use crate::error::{IndexError, Result};
use crate::read::Directory;
use crate::read::long_value::part_bytes;

/// The fault text of nonzero padding.
pub const NOT_ZERO: &str = "the padding here is not zero";

/// The byte ranges of a file that checksums cover.
#[derive(Debug, Default)]
pub struct Covered {
    ranges: Vec<Range<u64>>,
    /// Whether a read failed, so that further covered ranges are unknown.
    incomplete: bool,
}

impl Covered {
    /// Adds bytes that a verified checksum covers.
    pub fn add(&mut self, at: u64, bytes: u64) {
        let end = at.saturating_add(bytes);
        match self.ranges.last_mut() {
            Some(last) if last.end == at => last.end = end,
            _ => self.ranges.push(at..end),
        }
    }

    /// Marks that further covered ranges are unknown.
    pub fn give_up(&mut self) {
        self.incomplete = true;
    }

    /// Checks that all uncovered bytes before `end` are zeros, unless covered ranges are unknown.
    ///
    /// # Errors
    /// The first byte that is not zero; truncated files.
    pub fn check_padding(mut self, directory: &Directory, path: &Path, end: u64) -> Result<()> {
        if self.incomplete {
            return Ok(());
        }
        self.ranges.sort_unstable_by_key(|range| range.start);
        let mut at = 0;
        for range in self.ranges {
            check_zeros(directory, path, at..range.start.min(end))?;
            at = at.max(range.end);
        }
        check_zeros(directory, path, at..end)
    }
}

fn check_zeros(directory: &Directory, path: &Path, range: Range<u64>) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        // At most a part.
        let bytes = (range.end - at).min(part_bytes(directory) as u64) as usize;
        let read = directory.files.fetch_one(path, at, bytes)?;
        check_padding_bytes(path, at, read.bytes())?;
        at += bytes as u64;
    }
    Ok(())
}

/// Checks that `bytes`, which are padding at offset `at`, are zeros.
///
/// # Errors
/// The first byte that is not zero.
pub fn check_padding_bytes(path: &Path, at: u64, bytes: &[u8]) -> Result<()> {
    match bytes.iter().position(|&byte| byte != 0) {
        Some(place) => Err(IndexError::damaged(path, at + place as u64, NOT_ZERO)),
        None => Ok(()),
    }
}
