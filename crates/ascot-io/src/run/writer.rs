//! Writes a run file: blocks forward, then the index.

use std::path::{Path, PathBuf};

use super::index::{ENTRY_BYTES, FOOTER_BYTES, MAX_BLOCK_BYTES, NewBlock, RunIndex};
use super::stored_block::{Compressed, RunId, SpillCodec, block_checksum};
use crate::PAGE_BYTES;
use crate::buf::Buf;
use crate::disk::Disk;
use crate::error::{Action, During, IoError, Result};
use crate::stream::WriteStream;

/// The ledger's name for the streams of run files being written.
const NAME: &str = "run write";

/// Writes one run file.
pub struct RunWriter {
    path: PathBuf,
    stream: Box<dyn WriteStream>,
    index: RunIndex,
    codec: SpillCodec,
    /// Whether the index after the blocks is begun.
    ended: bool,
}

impl RunWriter {
    /// Creates the file, which must not exist yet.
    pub fn create(disk: &Disk, path: &Path, id: RunId, codec: impl Into<SpillCodec>) -> Result<Self> {
        let stream = disk.create_new(path, NAME)?;
        Ok(Self::new(path, stream, RunIndex::new(id), codec.into()))
    }

    /// Continues after the blocks of `index`, from a [`checkpoint`](Self::checkpoint); bytes of the file after them
    /// are cut off.
    pub fn resume(disk: &Disk, path: &Path, index: RunIndex, codec: impl Into<SpillCodec>) -> Result<Self> {
        let stream = disk.open_append(path, index.data_end(), NAME)?;
        Ok(Self::new(path, stream, index, codec.into()))
    }

    fn new(path: &Path, stream: Box<dyn WriteStream>, index: RunIndex, codec: SpillCodec) -> Self {
        Self { path: path.to_path_buf(), stream, index, codec, ended: false }
    }

    /// The blocks written so far.
    pub fn index(&self) -> &RunIndex {
        &self.index
    }

    /// Appends `buf[..len]` as a block; `first_record` is the offset in it of the first record that starts in it,
    /// `len` if none does. Writes no block if `len` is 0.
    pub fn write_block(&mut self, mut buf: Buf, len: usize, first_record: u32) -> Result<()> {
        let fits = u32::try_from(len).ok().filter(|&raw| len <= buf.len() && raw <= MAX_BLOCK_BYTES);
        let Some(raw) = fits else {
            return Err(self.misuse("a block's length is more than its buffer or 1 GiB hold"));
        };
        if first_record > raw {
            return Err(self.misuse("a block's first record starts outside it"));
        }
        if len == 0 {
            return Ok(());
        }
        let Compressed { codec, bytes: stored } = self.codec.compress(&mut buf, len);
        let crc = block_checksum(self.index.id, self.index.blocks.len() as u64, &buf[..stored]);
        let padded = stored.next_multiple_of(PAGE_BYTES);
        if padded > buf.len() {
            let mut longer = self.buffer(padded)?;
            longer[..stored].copy_from_slice(&buf[..stored]);
            buf = longer;
        }
        buf[stored..padded].fill(0);
        self.stream.begin(buf, padded)?;
        // No more than `raw`.
        self.index.push(NewBlock { stored: stored as u32, raw, crc, first_record, codec });
        Ok(())
    }

    /// Ensures that a block of `len` bytes and the index after it can be written, before the block is handed over. A
    /// full volume is an error here only if it is known to be full; the run can then still be finished with its
    /// blocks so far.
    pub fn reserve(&mut self, len: usize) -> Result<()> {
        let index = (self.index.blocks.len() + 1) * ENTRY_BYTES + FOOTER_BYTES;
        self.stream.reserve((len.next_multiple_of(PAGE_BYTES) + index) as u64)
    }

    /// Blocks handed over and not known to be written.
    pub fn in_flight(&mut self) -> usize {
        self.stream.in_flight()
    }

    /// Its device, if known.
    pub fn channel(&self) -> Option<u64> {
        self.stream.channel()
    }

    /// Waits until the oldest block in flight is written.
    pub fn complete(&mut self) -> Result<()> {
        self.stream.complete()
    }

    fn misuse(&self, what: &'static str) -> IoError {
        IoError::Misuse { path: self.path.clone(), offset: self.index.data_end(), what }
    }

    /// Makes all blocks so far durable; returns the index for [`resume`](Self::resume), for the caller to keep.
    pub fn checkpoint(&mut self) -> Result<RunIndex> {
        self.stream.sync()?;
        Ok(self.index.clone())
    }

    fn buffer(&self, len: usize) -> Result<Buf> {
        Buf::try_heap(len).during_at(Action::Write, &self.path, self.index.data_end())
    }

    /// Begins to write the index: no more blocks follow.
    pub fn end(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        let bytes = self.index.to_bytes();
        let mut buf = self.buffer(bytes.len())?;
        buf.copy_from_slice(&bytes);
        self.stream.begin(buf, bytes.len())
    }

    /// Writes the index, makes the file durable and closes it.
    pub fn finish(mut self) -> Result<RunIndex> {
        self.end()?;
        self.stream.sync()?;
        self.stream.finish()?;
        Ok(self.index)
    }
}
