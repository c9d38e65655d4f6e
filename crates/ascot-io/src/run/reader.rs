//! Reads a run file block by block, and verifies each block.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::codec::BlockDecoder;
use super::file::{BlockStream, NAME, RunFile, verified};
use super::index::{BlockEntry, RunIndex, read_index};
use crate::PAGE_BYTES;
use crate::buf::Buf;
use crate::disk::Disk;
use crate::error::IoError;
use crate::stream::{Filled, ReadStream};

const PAGE: u64 = PAGE_BYTES as u64;

/// Reads the blocks of one run file in order.
pub struct RunReader {
    path: PathBuf,
    stream: Box<dyn ReadStream>,
    index: Arc<RunIndex>,
    /// The block that the next `begin` requests.
    next: usize,
    /// The number of the oldest block begun, and the part cut off each buffer begun.
    oldest: usize,
    rests: VecDeque<Buf>,
    decoder: BlockDecoder,
}

impl RunReader {
    /// Opens a run file to read it from block `from_block` on.
    pub fn open(disk: &Disk, path: &Path, index: Arc<RunIndex>, from_block: usize) -> Result<Self, IoError> {
        let start = index.blocks.get(from_block).map_or(index.data_end(), |block| block.offset);
        let stream = disk.open_read(path, start..index.data_end(), NAME)?;
        Self::new(path, index, from_block, stream)
    }

    /// Reads an open run file from block `from_block` on.
    pub fn from_file(
        path: &Path,
        file: &Arc<RunFile>,
        index: Arc<RunIndex>,
        from_block: usize,
    ) -> Result<Self, IoError> {
        let blocks = index.blocks.get(from_block..).unwrap_or_default();
        let stream = BlockStream::new(Arc::clone(file), blocks);
        Self::new(path, index, from_block, Box::new(stream))
    }

    fn new(
        path: &Path,
        index: Arc<RunIndex>,
        from_block: usize,
        stream: Box<dyn ReadStream>,
    ) -> Result<Self, IoError> {
        let from = from_block.min(index.blocks.len());
        Ok(Self {
            path: path.to_path_buf(),
            stream,
            next: from,
            oldest: from,
            rests: VecDeque::new(),
            decoder: BlockDecoder::new(path, index.codec)?,
            index,
        })
    }

    /// Its device, as in [`ReadStream::channel`].
    pub fn channel(&self) -> Option<u64> {
        self.stream.channel()
    }

    /// Opens a run file by its own index.
    pub fn open_file(disk: &Disk, path: &Path, from_block: usize) -> Result<Self, IoError> {
        Self::open(disk, path, Arc::new(read_index(disk, path)?), from_block)
    }

    /// The block that the next [`begin`](Self::begin) requests.
    pub fn next_entry(&self) -> Option<&BlockEntry> {
        self.index.blocks.get(self.next)
    }

    /// Requests the next block; `buf` must hold [`BlockEntry::buffer_bytes`].
    pub fn begin(&mut self, mut buf: Buf) -> Result<(), IoError> {
        let Some(block) = self.index.blocks.get(self.next) else {
            return Err(self.misuse("a block was asked for after the last"));
        };
        if buf.len() < block.buffer_bytes() {
            return Err(self.misuse("a buffer is smaller than the block to be read"));
        }
        // No more than the buffer's length, checked above.
        let rest = buf.split_off(block.padded() as usize);
        self.stream.begin(buf)?;
        self.rests.push_back(rest);
        self.next += 1;
        Ok(())
    }

    /// Waits for the oldest block begun and verifies it.
    pub fn complete(&mut self) -> Result<(Filled, BlockEntry), IoError> {
        let (Some(rest), Some(block)) = (self.rests.pop_front(), self.index.blocks.get(self.oldest).copied())
        else {
            return Err(self.misuse("a block was completed that had not been begun"));
        };
        let number = self.oldest as u64;
        self.oldest += 1;
        let filled = self.stream.complete()?;
        if filled.start as u64 != block.offset % PAGE || filled.len() < block.stored as usize {
            let offset = block.offset + filled.len() as u64;
            let expected = block.offset + u64::from(block.stored);
            return Err(IoError::Truncated { path: self.path.clone(), offset, expected });
        }
        let Filled { mut buf, start, end } = filled;
        let joined = buf.unsplit(rest);
        assert!(joined.is_ok(), "the rest was split off this buffer");
        let filled = Filled { buf, start, end };
        let filled = verified(&self.path, self.index.id, number, &block, filled, &mut self.decoder)?;
        Ok((filled, block))
    }

    /// Whether [`complete`](Self::complete) would not wait for the device.
    pub fn ready(&mut self) -> bool {
        self.stream.ready()
    }

    /// Blocks begun and not completed.
    pub fn in_flight(&self) -> usize {
        self.rests.len()
    }

    /// Blocks that can still be begun.
    pub fn remaining_to_begin(&self) -> usize {
        self.index.blocks.len() - self.next
    }

    fn misuse(&self, what: &'static str) -> IoError {
        let offset = self.index.blocks.get(self.next).map_or(0, |block| block.offset);
        IoError::Misuse { path: self.path.clone(), offset, what }
    }
}
