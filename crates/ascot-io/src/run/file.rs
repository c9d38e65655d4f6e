//! A run file held open: any number of readers read and verify any of its blocks.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::codec::BlockDecoder;
use super::index::BlockEntry;
use super::{RunId, block_checksum};
use crate::buf::Buf;
use crate::descriptor::{Descriptor, PendingRead};
use crate::disk::Disk;
use crate::error::IoError;
use crate::stream::{Filled, ReadStream};

/// The ledger's name for run files being read.
pub(super) const NAME: &str = "run read";

/// A run file, or a file whose bytes are a run's, that stays open.
pub struct RunFile {
    path: PathBuf,
    id: RunId,
    file: Descriptor,
}

/// A block that is being read.
pub struct PendingBlock {
    read: PendingRead,
    number: u64,
    block: BlockEntry,
}

impl RunFile {
    /// Opens the file of run `id`.
    pub fn open(disk: &Disk, path: &Path, id: RunId) -> Result<Self, IoError> {
        Ok(Self { path: path.to_path_buf(), id, file: disk.open_random(path, NAME, true)? })
    }

    /// Begins the read of block `number`, whose index entry is `block`; `buf` must hold [`BlockEntry::buffer_bytes`].
    pub fn begin(&self, number: usize, block: &BlockEntry, buf: Buf) -> Result<PendingBlock, IoError> {
        if buf.len() < block.buffer_bytes() {
            return Err(IoError::Misuse {
                path: self.path.clone(),
                offset: block.offset,
                what: "a buffer is smaller than the block to be read",
            });
        }
        let read = self.file.begin(block.offset, block.stored as usize, buf)?;
        Ok(PendingBlock { read, number: number as u64, block: *block })
    }

    /// Waits for a block, and verifies it.
    pub fn complete(&self, pending: PendingBlock, decoder: &mut BlockDecoder) -> Result<Filled, IoError> {
        let PendingBlock { read, number, block } = pending;
        let filled = read.complete()?;
        verified(&self.path, self.id, number, &block, filled, decoder)
    }
}

/// The records' bytes of a block that was read: an error if it is not the block in the index.
pub(super) fn verified(
    path: &Path,
    id: RunId,
    number: u64,
    block: &BlockEntry,
    filled: Filled,
    decoder: &mut BlockDecoder,
) -> Result<Filled, IoError> {
    let corrupt =
        |what| IoError::Corrupt { path: path.to_path_buf(), offset: block.offset, block: number, what };
    let stored = block.stored as usize;
    let raw = block.raw as usize;
    let Filled { mut buf, start, .. } = filled;
    if block_checksum(id, number, &buf[start..start + stored]) != block.crc {
        return Err(corrupt("its checksum is wrong"));
    }
    if stored < raw {
        // Compressed blocks occur only in run files, where blocks start with pages.
        if start != 0 || !decoder.expand(&mut buf, stored, raw) {
            return Err(corrupt("it does not decompress to its length"));
        }
    }
    Ok(Filled { buf, start, end: start + raw })
}

/// The blocks of an open file in order, as a stream: each `begin` requests the next.
pub(super) struct BlockStream {
    file: Arc<RunFile>,
    /// Offsets and lengths of the blocks to come.
    places: VecDeque<(u64, u32)>,
    begun: VecDeque<PendingRead>,
}

impl BlockStream {
    pub(super) fn new(file: Arc<RunFile>, blocks: &[BlockEntry]) -> Self {
        let places = blocks.iter().map(|block| (block.offset, block.stored)).collect();
        Self { file, places, begun: VecDeque::new() }
    }
}

impl ReadStream for BlockStream {
    fn begin(&mut self, buf: Buf) -> Result<(), IoError> {
        let Some((offset, stored)) = self.places.pop_front() else {
            let what = "a block was asked for after the last";
            return Err(IoError::Misuse { path: self.file.path.clone(), offset: 0, what });
        };
        self.begun.push_back(self.file.file.begin(offset, stored as usize, buf)?);
        Ok(())
    }

    fn complete(&mut self) -> Result<Filled, IoError> {
        let what = crate::backend::NOTHING_BEGUN;
        let misuse = || IoError::Misuse { path: self.file.path.clone(), offset: 0, what };
        self.begun.pop_front().ok_or_else(misuse)?.complete()
    }

    fn ready(&mut self) -> bool {
        self.begun.front().is_some_and(PendingRead::is_finished)
    }

    fn in_flight(&self) -> usize {
        self.begun.len()
    }

    fn len_hint(&self) -> Option<u64> {
        None
    }

    fn channel(&self) -> Option<u64> {
        Some(self.file.file.device())
    }
}
