//! Reads of places in files, several at a time; each is one request, and counted.

use std::path::{Path, PathBuf};

use ascot_io::{Buf, Disk, Filled, IoError, PAGE_BYTES, ReadStream};

use crate::error::{IndexError, Result};

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

/// Reads places in the order given, which should be that of files; each is handed to `take` with its number.
pub fn fetch_all(
    disk: &Disk,
    name: &str,
    spots: &[Spot],
    mut take: impl FnMut(usize, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut begun = std::collections::VecDeque::with_capacity(DEPTH);
    let mut next = 0;
    for (number, spot) in spots.iter().enumerate() {
        while next < spots.len() && begun.len() < DEPTH {
            let ahead = &spots[next];
            begun.push_back(begin(disk, name, &ahead.path, ahead.at, ahead.bytes)?);
            next += 1;
        }
        if let Some(mut stream) = begun.pop_front() {
            let filled = complete(stream.as_mut(), &spot.path, spot.at, spot.bytes)?;
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
        return Err(IndexError::damaged(
            path,
            at + left,
            "it ends before what its index names: it was cut short",
        ));
    }
    // A page more: a direct read may start before the place.
    stream.begin(Buf::heap((bytes + PAGE_BYTES).next_multiple_of(PAGE_BYTES)))?;
    Ok(stream)
}

fn complete(stream: &mut dyn ReadStream, path: &Path, at: u64, bytes: usize) -> Result<Filled> {
    let filled = stream.complete()?;
    if filled.len() < bytes {
        let what = "it ends before what its index names: it was cut short";
        return Err(IndexError::damaged(path, at + filled.len() as u64, what));
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
