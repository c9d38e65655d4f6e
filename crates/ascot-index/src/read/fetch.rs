//! Reads byte ranges of files, several at a time; each is one request and is counted.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use ascot_io::{Buf, Filled, IoError, PendingRead, RandomAccessFile};

use crate::error::{IndexError, Result};
use crate::format::head::Region;
use crate::read::files::is_too_many_open;
use crate::read::{Directory, Segment};

/// Maximum number of reads in flight.
const DEPTH: usize = 32;

/// A byte range of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteRange {
    /// The file.
    pub path: PathBuf,
    /// The first byte.
    pub at: u64,
    /// Bytes.
    pub bytes: usize,
}

impl Segment {
    /// The bytes of a region in the index log.
    pub fn region_bytes(&self, region: &Region) -> ByteRange {
        ByteRange { path: self.log.index.clone(), at: region.at, bytes: region.bytes as usize }
    }
}

/// Reads byte ranges in the given order, which should be file order; hands each to `take` with its number.
/// Reads in flight take at most a quarter of the reader's memory, unless a single range is larger.
pub fn fetch_all(
    directory: &Directory,
    byte_ranges: &[ByteRange],
    mut take: impl FnMut(usize, &[u8]) -> Result<()>,
) -> Result<()> {
    let max_bytes = directory.pool.budget() / 4;
    let mut begun = VecDeque::with_capacity(DEPTH);
    let mut in_flight = 0;
    let mut next = 0;
    for (number, byte_range) in byte_ranges.iter().enumerate() {
        while let Some(ahead) = byte_ranges.get(next) {
            if begun.len() >= DEPTH || (!begun.is_empty() && in_flight + ahead.bytes > max_bytes) {
                break;
            }
            match begin_held(directory, ahead) {
                Ok(read) => begun.push_back(read),
                // Reads in flight hold their files open: descriptors become free when they complete.
                Err(error) if is_too_many_open(&error) && !begun.is_empty() => break,
                Err(error) => return Err(error),
            }
            in_flight += ahead.bytes;
            next += 1;
        }
        if let Some(read) = begun.pop_front() {
            let filled = complete(read, &byte_range.path)?;
            directory.count(|counts| counts.bytes += byte_range.bytes as u64);
            in_flight -= byte_range.bytes;
            take(number, filled.bytes())?;
        }
    }
    Ok(())
}

/// Reads one byte range.
pub fn fetch_one(directory: &Directory, path: &Path, at: u64, bytes: usize) -> Result<Filled> {
    let byte_range = ByteRange { path: path.to_path_buf(), at, bytes };
    let filled = complete(begin_held(directory, &byte_range)?, path)?;
    directory.count(|counts| counts.bytes += bytes as u64);
    Ok(filled)
}

fn begin_held(directory: &Directory, byte_range: &ByteRange) -> Result<PendingRead> {
    let ByteRange { path, at, bytes } = byte_range;
    let buf = |bytes| Ok(directory.pool.region(bytes, "what is read of a directory")?);
    begin(&*directory.files.get(path)?, *at, *bytes, buf)
}

/// Begins to read `bytes` at `at` of a file into a buffer that `buf` makes.
pub fn begin(
    file: &RandomAccessFile,
    at: u64,
    bytes: usize,
    buf: impl FnOnce(usize) -> Result<Buf>,
) -> Result<PendingRead> {
    let damaged = |at, what| IndexError::damaged(file.path(), at, what);
    let end = at.checked_add(bytes as u64).ok_or_else(|| damaged(at, "a place is beyond all files"))?;
    if end > file.size() {
        return Err(damaged(file.size().max(at), CUT_SHORT));
    }
    Ok(file.begin(at, bytes, buf(RandomAccessFile::buffer_bytes(at, bytes))?)?)
}

/// Completes a read of a file at `path`.
pub fn complete(read: PendingRead, path: &Path) -> Result<Filled> {
    read.complete().map_err(|error| match error {
        IoError::Truncated { offset, .. } => IndexError::damaged(path, offset, CUT_SHORT),
        error => error.into(),
    })
}

const CUT_SHORT: &str = "it ends before what its index names: it was cut short";
