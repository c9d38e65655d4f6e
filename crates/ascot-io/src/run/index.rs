//! The index of a run file: the offset, length and checksum of each block.
//!
//! ```text
//!   entry (16 bytes)   codec and stored u32 | raw u32 | crc u32 | first_record u32
//!   footer (64 bytes)  magic 8 | version u32 | codec u32 | id u64 | index offset u64
//!                      | blocks u64 | raw bytes u64 | entries crc u32 | zero 8 | footer crc u32
//! ```
//!
//! Every block has its own codec, in the two highest bits of its first number. In version 1 all compressed blocks of a
//! file have the codec of its footer, which is zero in version 2.
//!
//! All numbers are little-endian. Offsets are not stored: a block starts at the first multiple of
//! 4096 after its predecessor. Nothing is allocated from a length that has not been checked
//! against the file's size.

use std::path::Path;

use ascot_model::codec::Codec;

use super::stored_block::{RunId, crc32c};
use crate::PAGE_BYTES;
use crate::direct::pages_of;
use crate::disk::{Disk, read_range};
use crate::error::{Action, During, IoError, Result};

/// The first bytes of every footer.
const MAGIC: [u8; 8] = *b"ASCOTRUN";
const VERSION: u32 = 2;
pub(super) const ENTRY_BYTES: usize = 16;
pub(super) const FOOTER_BYTES: usize = 64;
const PAGE: u64 = PAGE_BYTES as u64;

/// The version whose codec is that of the whole file: a view of it is still read.
const VERSION_OF_ONE_CODEC: u32 = 1;
/// Bits of a block's first number that hold its length; those above hold its codec.
const STORED_BITS: u32 = 30;
/// Maximum bytes of a block.
pub(super) const MAX_BLOCK_BYTES: u32 = (1 << STORED_BITS) - 1;

/// The number of a codec in a run file.
fn number_of(codec: Codec) -> u32 {
    match codec {
        Codec::None => 0,
        Codec::Lz4 => 1,
        Codec::Zstd => 2,
    }
}

fn codec_of(number: u32) -> Option<Codec> {
    [Codec::None, Codec::Lz4, Codec::Zstd].into_iter().find(|codec| number_of(*codec) == number)
}

/// One block of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockEntry {
    /// Its offset in the file: a multiple of 4096 in a run file.
    pub offset: u64,
    /// Bytes in the file; fewer than `raw` means compressed.
    pub stored: u32,
    /// Bytes of the block itself.
    pub raw: u32,
    /// CRC-32C of run id, block number and the stored bytes.
    pub crc: u32,
    /// Offset in the block of the first record that starts in it; `raw` if none does.
    pub first_record: u32,
    /// Its compression; none if `stored` is `raw`.
    pub codec: Codec,
}

/// A block to be appended to an index: a [`BlockEntry`] without an offset.
pub(super) struct NewBlock {
    pub(super) stored: u32,
    pub(super) raw: u32,
    pub(super) crc: u32,
    pub(super) first_record: u32,
    pub(super) codec: Codec,
}

impl BlockEntry {
    /// Bytes of the pages that the block lies in; in a run file, zeros at its end included.
    pub fn padded(&self) -> u64 {
        pages_of(self.offset, u64::from(self.stored))
    }

    /// Bytes of a buffer to read the block into: whole pages.
    pub fn buffer_bytes(&self) -> usize {
        pages_of(self.offset, u64::from(self.stored.max(self.raw))) as usize
    }
}

/// The blocks of a run file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunIndex {
    /// The run's number.
    pub id: RunId,
    /// The blocks, in file order.
    pub blocks: Vec<BlockEntry>,
    /// Raw bytes of all blocks.
    pub bytes: u64,
}

impl RunIndex {
    /// An index of no blocks.
    pub fn new(id: RunId) -> Self {
        Self { id, blocks: Vec::new(), bytes: 0 }
    }

    /// An index of consecutive blocks from `start` in a file that is not a run file, each with its length and its
    /// [checksum](super::block_checksum).
    pub fn from_ranges(id: RunId, start: u64, blocks: impl Iterator<Item = (u32, u32)>) -> Self {
        let mut index = Self::new(id);
        let mut offset = start;
        for (len, crc) in blocks {
            let codec = Codec::None;
            index.blocks.push(BlockEntry { offset, stored: len, raw: len, crc, first_record: 0, codec });
            offset = offset.saturating_add(len.into());
            index.bytes += u64::from(len);
        }
        index
    }

    /// The end of the last block: the offset of the next block, or of the index.
    pub fn data_end(&self) -> u64 {
        self.blocks.last().map_or(0, |block| block.offset + block.padded())
    }

    /// Bytes of a buffer that holds any block of this run.
    pub fn buffer_bytes(&self) -> usize {
        self.blocks.iter().map(BlockEntry::buffer_bytes).max().unwrap_or(PAGE_BYTES)
    }

    pub(super) fn push(&mut self, block: NewBlock) {
        let NewBlock { stored, raw, crc, first_record, codec } = block;
        let offset = self.data_end();
        self.blocks.push(BlockEntry { offset, stored, raw, crc, first_record, codec });
        self.bytes += u64::from(raw);
    }

    /// Entries and footer, as at the end of a run file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.blocks.len() * ENTRY_BYTES + FOOTER_BYTES);
        for block in &self.blocks {
            let stored = block.stored | number_of(block.codec) << STORED_BITS;
            for field in [stored, block.raw, block.crc, block.first_record] {
                bytes.extend_from_slice(&field.to_le_bytes());
            }
        }
        let entries_crc = crc32c(&[&bytes]);
        let footer = bytes.len();
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for field in [self.id.0, self.data_end(), self.blocks.len() as u64, self.bytes] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(&entries_crc.to_le_bytes());
        bytes.extend_from_slice(&[0; 8]);
        let footer_crc = crc32c(&[&bytes[footer..]]);
        bytes.extend_from_slice(&footer_crc.to_le_bytes());
        bytes
    }

    /// Parses the bytes of [`to_bytes`](Self::to_bytes); the error says what is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, &'static str> {
        let Some((entries, footer)) = bytes.split_last_chunk::<FOOTER_BYTES>() else {
            return Err("it is shorter than a footer");
        };
        let footer = Footer::parse(footer)?;
        if footer.entries_bytes() != entries.len() as u64 {
            return Err("its length and its number of blocks do not agree");
        }
        footer.index(entries)
    }
}

/// The parsed end of a run file.
struct Footer {
    /// The codec of all compressed blocks; none: each block has its own.
    codec: Option<Codec>,
    id: RunId,
    data_end: u64,
    blocks: u64,
    bytes: u64,
    entries_crc: u32,
}

impl Footer {
    fn parse(bytes: &[u8; FOOTER_BYTES]) -> Result<Self, &'static str> {
        if bytes[..8] != MAGIC {
            return Err("the magic number is not there");
        }
        if u32_at(bytes, 60) != crc32c(&[&bytes[..60]]) {
            return Err("the footer's checksum is wrong");
        }
        let codec = match (u32_at(bytes, 8), u32_at(bytes, 12)) {
            (VERSION, 0) => None,
            (VERSION_OF_ONE_CODEC, number) => Some(codec_of(number).ok_or("its codec is not known here")?),
            (VERSION, _) => return Err("its reserved bytes are not zero"),
            _ => return Err("its version is not known here"),
        };
        if bytes[52..60] != [0; 8] {
            return Err("its reserved bytes are not zero");
        }
        let footer = Self {
            codec,
            id: RunId(u64_at(bytes, 16)),
            data_end: u64_at(bytes, 24),
            blocks: u64_at(bytes, 32),
            bytes: u64_at(bytes, 40),
            entries_crc: u32_at(bytes, 48),
        };
        // Every block takes at least a page, so the file's size bounds the allocation.
        if footer.blocks > footer.data_end / PAGE || !footer.data_end.is_multiple_of(PAGE) {
            return Err("its blocks do not fit the file");
        }
        Ok(footer)
    }

    /// No overflow: at most 2^64 / 4096 blocks.
    fn entries_bytes(&self) -> u64 {
        self.blocks * ENTRY_BYTES as u64
    }

    fn index(&self, entries: &[u8]) -> Result<RunIndex, &'static str> {
        if crc32c(&[entries]) != self.entries_crc {
            return Err("the index's checksum is wrong");
        }
        let mut index = RunIndex::new(self.id);
        index.blocks.reserve_exact(entries.len() / ENTRY_BYTES);
        for entry in entries.chunks_exact(ENTRY_BYTES) {
            let [stored, raw, crc, first_record] = [0, 4, 8, 12].map(|at| u32_at(entry, at));
            let block =
                self.block(stored, NewBlock { stored, raw, crc, first_record, codec: Codec::None })?;
            if block.stored == 0 || block.stored > raw || first_record > raw {
                return Err("a block's lengths contradict each other");
            }
            if (block.stored < raw) != (block.codec != Codec::None) {
                return Err("a block's lengths and its codec contradict each other");
            }
            index.push(block);
        }
        if index.data_end() != self.data_end || index.bytes != self.bytes {
            return Err("its blocks do not add up to the footer's sums");
        }
        Ok(index)
    }
}

impl Footer {
    /// A block with its length and codec, from the first number of its entry.
    fn block(&self, number: u32, block: NewBlock) -> Result<NewBlock, &'static str> {
        Ok(match self.codec {
            Some(codec) if number < block.raw => NewBlock { codec, ..block },
            Some(_) => block,
            None => {
                let codec =
                    codec_of(number >> STORED_BITS).ok_or("the codec of a block is not known here")?;
                NewBlock { stored: number & MAX_BLOCK_BYTES, codec, ..block }
            }
        })
    }
}

/// The little-endian number at `at` of bytes that are long enough.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

/// As [`u32_at`], of eight bytes.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

/// The ledger's name for indexes being read.
const NAME: &str = "run index";
/// Bytes of data for each byte of the index in the last bytes of a file that are read first: fewer than in any run of
/// usual blocks.
const DATA_BYTES_PER_INDEX_BYTE: u64 = 2048;

/// Reads the index at the end of a run file: in one request, unless blocks are unusually short.
pub fn read_index(disk: &Disk, path: &Path) -> Result<RunIndex> {
    let size = std::fs::metadata(path).during(Action::Inspect, path)?.len();
    let bad = |offset, what| IoError::BadIndex { path: path.to_path_buf(), offset, what };
    let Some(footer_at) = size.checked_sub(FOOTER_BYTES as u64) else {
        return Err(bad(0, "the file is shorter than a footer"));
    };
    let tail_at = footer_at.saturating_sub(size / DATA_BYTES_PER_INDEX_BYTE + PAGE);
    let tail = read_range(disk, path, tail_at..size, NAME)?;
    let tail = tail.bytes();
    let mut footer = [0; FOOTER_BYTES];
    footer.copy_from_slice(&tail[tail.len() - FOOTER_BYTES..]);
    let footer = Footer::parse(&footer).map_err(|what| bad(footer_at, what))?;
    if footer.data_end.checked_add(footer.entries_bytes()) != Some(footer_at) {
        return Err(bad(footer_at, "the file's size is not what the footer says"));
    }
    let damaged = |what| bad(footer.data_end, what);
    if let Some(before) = footer.data_end.checked_sub(tail_at) {
        return footer.index(&tail[before as usize..tail.len() - FOOTER_BYTES]).map_err(damaged);
    }
    // Fits: no longer than the file, and its memory is at most a 256th of the file.
    let entries = read_range(disk, path, footer.data_end..footer_at, NAME)?;
    footer.index(entries.bytes()).map_err(damaged)
}
