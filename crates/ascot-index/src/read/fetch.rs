//! Reads of places in files, several at a time; each is one request, and counted.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use ascot_io::{Buf, Disk, Filled, IoError, PAGE_BYTES, ReadStream};

use crate::error::{IndexError, Result};
use crate::read::{Directory, count};

/// Reads in flight.
const DEPTH: usize = 32;

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// The file.
    pub path: PathBuf,
    /// The first byte.
    pub at: u64,
    /// Bytes.
    pub bytes: usize,
}

/// Reads one place.
pub fn fetch(disk: &Disk, name: &str, path: &Path, at: u64, bytes: usize) -> Result<Filled> {
    let mut stream = begin(disk, name, path, at, bytes)?;
    complete(stream.as_mut(), path, at, bytes)
}

/// Reads places in the order given, which should be that of files; each is handed to `take` with its number. What is in flight takes
/// no more than a quarter of the reader's memory, unless one place alone is larger.
pub fn fetch_all(
    directory: &Directory,
    name: &str,
    spots: &[Spot],
    mut take: impl FnMut(usize, &[u8]) -> Result<()>,
) -> Result<()> {
    let most = directory.pool.budget() / 4;
    let (mut begun, mut in_flight, mut next) = (VecDeque::with_capacity(DEPTH), 0, 0);
    for (number, spot) in spots.iter().enumerate() {
        while let Some(ahead) = spots.get(next) {
            if begun.len() >= DEPTH || (!begun.is_empty() && in_flight + ahead.bytes > most) {
                break;
            }
            let memory = directory.pool.reserve(ahead.bytes, "what is read of a directory")?;
            begun.push_back((begin(&directory.disk, name, &ahead.path, ahead.at, ahead.bytes)?, memory));
            (in_flight, next) = (in_flight + ahead.bytes, next + 1);
        }
        if let Some((mut stream, _memory)) = begun.pop_front() {
            let filled = complete(stream.as_mut(), &spot.path, spot.at, spot.bytes)?;
            count(&directory.counters.bytes, spot.bytes as u64);
            in_flight -= spot.bytes;
            take(number, filled.bytes())?;
        }
    }
    Ok(())
}

fn begin(disk: &Disk, name: &str, path: &Path, at: u64, bytes: usize) -> Result<Box<dyn ReadStream>> {
    let end = at
        .checked_add(bytes as u64)
        .ok_or_else(|| IndexError::damaged(path, at, "a place is beyond all files"))?;
    let mut stream = disk.open_read(path, at..end, name).map_err(|error| missing(error, path))?;
    let left = stream.len_hint().unwrap_or(0);
    if left < bytes as u64 {
        return Err(IndexError::damaged(path, at + left, CUT_SHORT));
    }
    // A page more: a direct read may start before the place.
    stream.begin(Buf::heap((bytes + PAGE_BYTES).next_multiple_of(PAGE_BYTES)))?;
    Ok(stream)
}

const CUT_SHORT: &str = "it ends before what its index names: it was cut short";

fn complete(stream: &mut dyn ReadStream, path: &Path, at: u64, bytes: usize) -> Result<Filled> {
    let filled = stream.complete()?;
    if filled.len() < bytes {
        return Err(IndexError::damaged(path, at + filled.len() as u64, CUT_SHORT));
    }
    Ok(filled)
}

/// Tells a file that is not there from other errors.
pub fn missing(error: IoError, path: &Path) -> IndexError {
    match error {
        IoError::Os { ref source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            IndexError::Missing { path: path.to_path_buf() }
        }
        error => error.into(),
    }
}
