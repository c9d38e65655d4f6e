//! The lengths and checksums of the blocks of a sorted file that a view refers to (docs/formats/view.md).

use std::path::Path;

use ascot_io::{IoError, RunId, RunIndex};

use crate::api::error::SortError;

/// Opens every file of blocks.
pub(crate) const MAGIC: [u8; 8] = *b"ASCOTBLK";
pub(crate) const VERSION: u32 = 1;
pub(crate) const HEADER_BYTES: usize = 40;
pub(crate) const ENTRY_BYTES: usize = 8;

/// What a view's manifest keeps of a sorted file.
#[derive(Clone, Copy)]
pub(crate) struct Kept {
    /// The number of its run.
    pub(crate) number: u64,
    /// Bytes of its records.
    pub(crate) bytes: u64,
    /// Bytes of the file.
    pub(crate) size: u64,
}

/// The index of a member that is a file, from the file of its blocks at `path`.
pub(crate) fn blocks_of(bytes: &[u8], member: Kept, path: &Path) -> Result<RunIndex, SortError> {
    let bad = |what| IoError::BadIndex { path: path.to_path_buf(), offset: 0, what };
    let parsed = Parsed::of(bytes, member).map_err(bad)?;
    let index = RunIndex::from_ranges(RunId(member.number), parsed.start, parsed.entries());
    let ends_inside = parsed.start.checked_add(index.bytes).is_some_and(|end| end <= member.size);
    if index.bytes != member.bytes || !ends_inside {
        return Err(bad("its blocks are not those of the file").into());
    }
    Ok(index)
}

/// A file of blocks, taken apart.
struct Parsed<'a> {
    start: u64,
    entries: &'a [u8],
}

impl<'a> Parsed<'a> {
    fn of(bytes: &'a [u8], member: Kept) -> Result<Self, &'static str> {
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or("it is shorter than its checksum")?;
        if crc32fast::hash(body) != u32::from_le_bytes(*sum) {
            return Err("its checksum is wrong");
        }
        let (header, entries) =
            body.split_first_chunk::<HEADER_BYTES>().ok_or("it is shorter than its header")?;
        let number = |at: usize| {
            let mut field = [0; 8];
            field.copy_from_slice(&header[at..at + 8]);
            u64::from_le_bytes(field)
        };
        if header[..8] != MAGIC || number(8) != u64::from(VERSION) {
            return Err("it holds no blocks of a version known here");
        }
        if number(16) != member.number {
            return Err("it belongs to another file");
        }
        if number(32).checked_mul(ENTRY_BYTES as u64) != Some(entries.len() as u64) {
            return Err("its length and its number of blocks do not agree");
        }
        Ok(Parsed { start: number(24), entries })
    }

    /// Length and checksum of each block.
    fn entries(&self) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte));
        self.entries.chunks_exact(ENTRY_BYTES).map(move |entry| (number(&entry[..4]), number(&entry[4..])))
    }
}
