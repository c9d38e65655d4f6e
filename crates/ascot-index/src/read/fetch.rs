//! Reads byte ranges of files, several at a time; each is one request and is counted.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use ascot_io::{Action, Buf, Disk, Filled, IoError, PAGE_BYTES, PendingRead, RandomAccessFile};

use crate::error::{IndexError, Result};
use crate::format::head::Region;
use crate::read::files::{is_too_many_open, missing};
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

/// Reads one byte range of a file that is not held open.
pub fn fetch(disk: &Disk, name: &str, path: &Path, at: u64, bytes: usize) -> Result<Filled> {
    let end = end_of(path, at, bytes)?;
    let mut stream = disk.open_read(path, at..end, name).map_err(|error| missing(error, path))?;
    let left = stream.len_hint().unwrap_or(0);
    if left < bytes as u64 {
        return Err(IndexError::damaged(path, at + left, CUT_SHORT));
    }
    // One page more: a direct read may start before `at`.
    let buf = Buf::try_heap((bytes + PAGE_BYTES).next_multiple_of(PAGE_BYTES));
    stream.begin(buf.map_err(|error| IoError::from_os(Action::Read, path, at, error))?)?;
    let filled = stream.complete()?;
    if filled.len() < bytes {
        return Err(IndexError::damaged(path, at + filled.len() as u64, CUT_SHORT));
    }
    Ok(filled)
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
            match begin(directory, ahead) {
                Ok(read) => begun.push_back(read),
                // Reads in flight hold their files open: descriptors become free when they complete.
                Err(error) if is_too_many_open(&error) && !begun.is_empty() => break,
                Err(error) => return Err(error),
            }
            in_flight += ahead.bytes;
            next += 1;
        }
        if let Some(read) = begun.pop_front() {
            let filled = complete(read, byte_range)?;
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
    let filled = complete(begin(directory, &byte_range)?, &byte_range)?;
    directory.count(|counts| counts.bytes += bytes as u64);
    Ok(filled)
}

fn begin(directory: &Directory, byte_range: &ByteRange) -> Result<PendingRead> {
    let ByteRange { path, at, bytes } = byte_range;
    let end = end_of(path, *at, *bytes)?;
    let file = directory.files.get(path)?;
    if end > file.size() {
        return Err(IndexError::damaged(path, file.size().max(*at), CUT_SHORT));
    }
    let buf =
        directory.pool.region(RandomAccessFile::buffer_bytes(*at, *bytes), "what is read of a directory")?;
    Ok(file.begin(*at, *bytes, buf)?)
}

fn complete(read: PendingRead, byte_range: &ByteRange) -> Result<Filled> {
    read.complete().map_err(|error| match error {
        IoError::Truncated { offset, .. } => IndexError::damaged(&byte_range.path, offset, CUT_SHORT),
        error => error.into(),
    })
}

fn end_of(path: &Path, at: u64, bytes: usize) -> Result<u64> {
    at.checked_add(bytes as u64).ok_or_else(|| IndexError::damaged(path, at, "a place is beyond all files"))
}

const CUT_SHORT: &str = "it ends before what its index names: it was cut short";
