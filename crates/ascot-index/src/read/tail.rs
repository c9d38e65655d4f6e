//! Finds the footer and root of the last complete epoch of an index log, whatever a stopped writer left after
//! them.

use std::path::Path;
use std::sync::Arc;

use ascot_io::{Action, Buf, Disk, IoError, RandomAccessFile, crc32c};

use crate::error::{IndexError, Result};
use crate::format::footer::{FOOTER_BYTES, Footer, LogRange, PAGE, Root};
use crate::read::fetch::{begin, complete};
use crate::read::files::missing;

/// Bytes read at a time in search of a footer. The first read is large enough to include most roots: 256 entries are
/// 10 KiB.
pub const FIRST_BYTES: u64 = 4 * PAGE;
const MORE_BYTES: u64 = 1 << 20;

/// An index log whose byte ranges are read.
pub struct IndexFile<'a> {
    /// The file.
    pub path: &'a Path,
    /// Its size.
    pub size: u64,
    /// Reads a number of bytes at an offset: `read(at, bytes)`.
    pub read: &'a dyn Fn(u64, usize) -> Result<Vec<u8>>,
}

/// Runs `act` on an index log, which it opens.
fn by_path<R>(disk: &Disk, path: &Path, act: impl FnOnce(&IndexFile<'_>) -> Result<R>) -> Result<R> {
    let file = RandomAccessFile::open(disk, path, "index read", &Arc::default());
    let file = file.map_err(|error| missing(error, path))?;
    let read = |at, bytes| {
        let buf = |bytes| {
            let buf = Buf::try_heap(bytes);
            buf.map_err(|error| IoError::from_os(Action::Read, path, at, error).into())
        };
        Ok(complete(begin(&file, at, bytes, buf)?, path)?.bytes().to_vec())
    };
    act(&IndexFile { path, size: file.size(), read: &read })
}

/// The footer of the log `id` after `epochs` epochs, searched from the end.
///
/// # Errors
/// [`IndexError::CutShort`] if the log has fewer epochs.
pub fn last_footer(disk: &Disk, path: &Path, id: u64, epochs: u64) -> Result<Footer> {
    by_path(disk, path, |file| find_footer(file, id, epochs, |footer| footer.epochs == epochs))
}

/// The last footer of the log `id` for which `wanted` holds, searched from the end; it has at least `epochs`
/// epochs.
///
/// # Errors
/// [`IndexError::CutShort`] if the log has fewer epochs.
pub fn find_footer(
    file: &IndexFile<'_>,
    id: u64,
    epochs: u64,
    wanted: impl Fn(&Footer) -> bool,
) -> Result<Footer> {
    let path = file.path;
    let mut end = file.size / PAGE * PAGE;
    let mut step = FIRST_BYTES;
    while end > 0 {
        let start = end.saturating_sub(step);
        // At most 1 MiB.
        let read = (file.read)(start, (end - start) as usize)?;
        let pages = read.chunks_exact(PAGE as usize).enumerate();
        for (page, bytes) in pages.rev() {
            let at = start + (page as u64 + 1) * PAGE - FOOTER_BYTES as u64;
            let footer = Footer::parse(&bytes[bytes.len() - FOOTER_BYTES..], at, id);
            match footer {
                Some(footer) if footer.epochs < epochs => return Err(cut_short(path, footer.epochs, epochs)),
                Some(footer) if wanted(&footer) => return Ok(footer),
                _ => {}
            }
        }
        end = start;
        step = MORE_BYTES;
    }
    Err(cut_short(path, 0, epochs))
}

fn cut_short(path: &Path, held: u64, named: u64) -> IndexError {
    IndexError::CutShort { path: path.to_path_buf(), held, named }
}

/// Reads a root.
pub fn read_root(disk: &Disk, path: &Path, place: &LogRange, id: u64) -> Result<Root> {
    by_path(disk, path, |file| root_at(file, place, id))
}

/// Reads a root through an [`IndexFile`].
pub fn root_at(file: &IndexFile<'_>, place: &LogRange, id: u64) -> Result<Root> {
    parse_root(file.path, place, id, &(file.read)(place.at, place.bytes as usize)?)
}

/// The root in `read`, after its checksum is verified.
pub fn parse_root(path: &Path, place: &LogRange, id: u64, read: &[u8]) -> Result<Root> {
    let damaged = |what| IndexError::damaged(path, place.at, what);
    if crc32c(&[read]) != place.crc {
        return Err(damaged("the checksum of an epoch's root is wrong"));
    }
    Root::parse(read, id).ok_or_else(|| damaged("an epoch's root is not what it should be"))
}
