//! The last complete epoch of an index log: its footer and root, whatever a stopped writer left behind them.

use std::path::Path;

use ascot_io::{Action, Disk, IoError, crc32c};

use crate::error::{IndexError, Result};
use crate::format::footer::{FOOTER_BYTES, Footer, PAGE, Place, Root};
use crate::read::fetch::fetch;
use crate::read::files::missing;

/// Bytes read at a time in search of a footer. The first read is large enough to include most roots: 256 entries are
/// 10 KiB.
pub const FIRST_BYTES: u64 = 4 * PAGE;
const MORE_BYTES: u64 = 1 << 20;

/// An index log whose byte ranges are read.
pub trait IndexFile {
    /// The file.
    fn path(&self) -> &Path;
    /// Its size.
    fn size(&self) -> Result<u64>;
    /// Reads `bytes` bytes at `at`.
    fn read(&self, at: u64, bytes: usize) -> Result<Vec<u8>>;
}

/// One that is opened for each read.
struct ByPath<'a> {
    disk: &'a Disk,
    path: &'a Path,
}

impl IndexFile for ByPath<'_> {
    fn path(&self) -> &Path {
        self.path
    }

    fn size(&self) -> Result<u64> {
        let failed = |error| missing(IoError::from_os(Action::Inspect, self.path, 0, error), self.path);
        Ok(std::fs::metadata(self.path).map_err(failed)?.len())
    }

    fn read(&self, at: u64, bytes: usize) -> Result<Vec<u8>> {
        Ok(fetch(self.disk, "index read", self.path, at, bytes)?.bytes().to_vec())
    }
}

/// The last footer of the log `id` that is `wanted`, searched from the end; it has `epochs` epochs at least.
///
/// # Errors
/// [`IndexError::CutShort`] where the log has fewer epochs than that.
pub fn last_footer(
    disk: &Disk,
    path: &Path,
    id: u64,
    epochs: u64,
    wanted: impl Fn(&Footer) -> bool,
) -> Result<Footer> {
    find_footer(&ByPath { disk, path }, id, epochs, wanted)
}

/// As [`last_footer`], of a file that may be open.
pub fn find_footer(
    file: &dyn IndexFile,
    id: u64,
    epochs: u64,
    wanted: impl Fn(&Footer) -> bool,
) -> Result<Footer> {
    let path = file.path();
    let mut end = file.size()? / PAGE * PAGE;
    let mut step = FIRST_BYTES;
    while end > 0 {
        let start = end.saturating_sub(step);
        // At most 1 MiB.
        let read = file.read(start, (end - start) as usize)?;
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
        (end, step) = (start, MORE_BYTES);
    }
    Err(cut_short(path, 0, epochs))
}

fn cut_short(path: &Path, held: u64, named: u64) -> IndexError {
    IndexError::CutShort { path: path.to_path_buf(), held, named }
}

/// Reads a root.
pub fn read_root(disk: &Disk, path: &Path, place: &Place, id: u64) -> Result<Root> {
    root_at(&ByPath { disk, path }, place, id)
}

/// Reads a root of a file that may be open.
pub fn root_at(file: &dyn IndexFile, place: &Place, id: u64) -> Result<Root> {
    let damaged = |what| IndexError::damaged(file.path(), place.at, what);
    let read = file.read(place.at, place.bytes as usize)?;
    if crc32c(&[&read]) != place.crc {
        return Err(damaged("the checksum of an epoch's root is wrong"));
    }
    Root::parse(&read, id).ok_or_else(|| damaged("an epoch's root is not what it should be"))
}
