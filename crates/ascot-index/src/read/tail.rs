//! The last complete epoch of an index log: its footer and root, whatever a stopped writer left behind them.

use std::path::Path;

use ascot_io::{Action, Disk, IoError, crc32c};

use crate::error::{IndexError, Result};
use crate::format::footer::{FOOTER_BYTES, Footer, PAGE, Place, Root};
use crate::read::fetch::{fetch, missing};

/// What is read at a time in search of a footer: first a page, where it is when nothing was left behind.
const FIRST_BYTES: u64 = PAGE;
const MORE_BYTES: u64 = 1 << 20;

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
    let failed = |error| missing(IoError::from_os(Action::Inspect, path, 0, error), path);
    let size = std::fs::metadata(path).map_err(failed)?.len();
    let mut end = size / PAGE * PAGE;
    let mut step = FIRST_BYTES;
    while end > 0 {
        let start = end.saturating_sub(step);
        // At most 1 MiB.
        let filled = fetch(disk, "index read", path, start, (end - start) as usize)?;
        let pages = filled.bytes().chunks_exact(PAGE as usize).enumerate();
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
    let damaged = |what| IndexError::damaged(path, place.at, what);
    let filled = fetch(disk, "index read", path, place.at, place.bytes as usize)?;
    if crc32c(&[filled.bytes()]) != place.crc {
        return Err(damaged("the checksum of an epoch's root is wrong"));
    }
    Root::parse(filled.bytes(), id).ok_or_else(|| damaged("an epoch's root is not what it should be"))
}
