//! Reads the blocks of a run file in order, several ahead, and verifies each.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use super::codec::BlockDecoder;
use super::file::{PendingBlock, RunFile};
use super::index::RunIndex;
use crate::backend::NOTHING_BEGUN;
use crate::buf::Buf;
use crate::disk::Disk;
use crate::error::IoError;
use crate::stream::Filled;

/// Reads the blocks of one run file in order.
pub struct RunReader {
    file: Arc<RunFile>,
    index: Arc<RunIndex>,
    /// The block that the next `begin` requests.
    next: usize,
    /// The oldest first.
    begun: VecDeque<PendingBlock>,
    decoder: BlockDecoder,
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
            decoder: BlockDecoder::new(file.path(), index.codec)?,
            index,
        })
    }

    /// Its device, as in [`ReadStream::channel`](crate::ReadStream::channel).
    pub fn channel(&self) -> Option<u64> {
        Some(self.file.device())
    }

    /// Requests the next block; `buf` must hold [`BlockEntry::buffer_bytes`](super::BlockEntry::buffer_bytes).
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
        self.file.complete(pending, &mut self.decoder)
    }

    /// Whether [`complete`](Self::complete) would not wait for the device.
    pub fn ready(&mut self) -> bool {
        self.begun.front().is_some_and(PendingBlock::is_finished)
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
        IoError::Misuse { path: self.file.path().to_path_buf(), offset, what }
    }
}
