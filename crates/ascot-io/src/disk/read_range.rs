//! Reads a short range of a file at once.

use std::ops::Range;
use std::path::Path;

use super::Disk;
use crate::PAGE_BYTES;
use crate::buf::Buf;
use crate::error::{Action, During, IoError, Result};
use crate::stream::Filled;

/// Reads `range` of the file at `path`, in one request where the device takes one as long. A file that ends before the
/// range does is an error, and takes no memory.
pub fn read_range(disk: &Disk, path: &Path, range: Range<u64>, name: &str) -> Result<Filled> {
    let size = std::fs::metadata(path).during_at(Action::Inspect, path, range.start)?.len();
    let truncated = |offset| IoError::Truncated { path: path.to_path_buf(), offset, expected: range.end };
    if size < range.end {
        return Err(truncated(size));
    }
    let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
    if len == 0 {
        return Ok(Filled { buf: Buf::heap(0), start: 0, end: 0 });
    }
    let mut stream = disk.open_read(path, range.clone(), name)?;
    // One page more: a direct read may start before the range.
    let buf = Buf::try_heap(len.saturating_add(PAGE_BYTES).next_multiple_of(PAGE_BYTES));
    stream.begin(buf.during_at(Action::Read, path, range.start)?)?;
    let filled = stream.complete()?;
    if filled.len() < len {
        return Err(truncated(range.start + filled.len() as u64));
    }
    Ok(Filled { end: filled.start + len, ..filled })
}
