//! Run files being read: each held open, its blocks read in any order, or in theirs and several ahead. Every block is
//! verified.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::codec::expand;
use super::index::{BlockEntry, RunIndex};
use super::{RunId, block_checksum};
use crate::backend::NOTHING_BEGUN;
use crate::buf::Buf;
use crate::descriptor::{Descriptor, PendingRead};
use crate::disk::Disk;
use crate::error::IoError;
use crate::stream::Filled;

/// The ledger's name for run files being read.
const NAME: &str = "run read";

/// A run file, or a file whose bytes are a run's, that stays open for any number of readers.
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
            let what = "a buffer is smaller than the block to be read";
            return Err(IoError::Misuse { path: self.path.clone(), offset: block.offset, what });
        }
        let read = self.file.begin(block.offset, block.stored as usize, buf)?;
        Ok(PendingBlock { read, number: number as u64, block: *block })
    }

    /// Waits for a block, and verifies it: an error if it is not the block in the index.
    pub fn complete(&self, pending: PendingBlock) -> Result<Filled, IoError> {
        let PendingBlock { read, number, block } = pending;
        let Filled { mut buf, start, .. } = read.complete()?;
        let corrupt =
            |what| IoError::Corrupt { path: self.path.clone(), offset: block.offset, block: number, what };
        let stored = block.stored as usize;
        let raw = block.raw as usize;
        if block_checksum(self.id, number, &buf[start..start + stored]) != block.crc {
            return Err(corrupt("its checksum is wrong"));
        }
        if stored < raw {
            // Compressed blocks occur only in run files, where blocks start with pages.
            if start != 0 || !expand(block.codec, &mut buf, stored, raw) {
                return Err(corrupt("it does not decompress to its length"));
            }
        }
        Ok(Filled { buf, start, end: start + raw })
    }
}

/// Reads the blocks of one run file in order.
pub struct RunReader {
    file: Arc<RunFile>,
    index: Arc<RunIndex>,
    /// The block that the next `begin` requests.
    next: usize,
    /// The oldest first.
    begun: VecDeque<PendingBlock>,
}

impl RunReader {
    /// Opens a run file to read it from block `from_block` on.
    pub fn open(disk: &Disk, path: &Path, index: Arc<RunIndex>, from_block: usize) -> Result<Self, IoError> {
        Self::from_file(&Arc::new(RunFile::open(disk, path, index.id)?), index, from_block)
    }

    /// Reads an open run file from block `from_block` on.
    pub fn from_file(file: &Arc<RunFile>, index: Arc<RunIndex>, from_block: usize) -> Result<Self, IoError> {
        Ok(Self {
            file: Arc::clone(file),
            next: from_block.min(index.blocks.len()),
            begun: VecDeque::new(),
            index,
        })
    }

    /// Its device, as in [`ReadStream::channel`](crate::ReadStream::channel).
    pub fn channel(&self) -> Option<u64> {
        Some(self.file.file.device())
    }

    /// Requests the next block; `buf` must hold [`BlockEntry::buffer_bytes`].
    pub fn begin(&mut self, buf: Buf) -> Result<(), IoError> {
        let Some(block) = self.index.blocks.get(self.next) else {
            return Err(self.misuse("a block was asked for after the last"));
        };
        self.begun.push_back(self.file.begin(self.next, block, buf)?);
        self.next += 1;
        Ok(())
    }

    /// Waits for the oldest block begun and verifies it.
    pub fn complete(&mut self) -> Result<Filled, IoError> {
        let Some(pending) = self.begun.pop_front() else { return Err(self.misuse(NOTHING_BEGUN)) };
        self.file.complete(pending)
    }

    /// Whether [`complete`](Self::complete) would not wait for the device.
    pub fn ready(&mut self) -> bool {
        self.begun.front().is_some_and(|block| block.read.is_finished())
    }

    /// Blocks begun and not completed.
    pub fn in_flight(&self) -> usize {
        self.begun.len()
    }

    /// Blocks that can still be begun.
    pub fn remaining_to_begin(&self) -> usize {
        self.index.blocks.len() - self.next
    }

    fn misuse(&self, what: &'static str) -> IoError {
        let offset = self.index.blocks.get(self.next).map_or(0, |block| block.offset);
        IoError::Misuse { path: self.file.path.clone(), offset, what }
    }
}
