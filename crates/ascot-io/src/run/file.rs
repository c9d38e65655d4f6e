//! A run file held open: any number of readers read and verify any of its blocks.

use std::path::{Path, PathBuf};

use super::codec::BlockDecoder;
use super::index::BlockEntry;
use super::{RunId, block_checksum};
use crate::buf::Buf;
use crate::descriptor::{Descriptor, PendingRead};
use crate::disk::Disk;
use crate::error::IoError;
use crate::stream::Filled;

/// The ledger's name for run files being read.
const NAME: &str = "run read";

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
            let what = "a buffer is smaller than the block to be read";
            return Err(IoError::Misuse { path: self.path.clone(), offset: block.offset, what });
        }
        let read = self.file.begin(block.offset, block.stored as usize, buf)?;
        Ok(PendingBlock { read, number: number as u64, block: *block })
    }

    /// Waits for a block, and verifies it: an error if it is not the block in the index.
    pub fn complete(&self, pending: PendingBlock, decoder: &mut BlockDecoder) -> Result<Filled, IoError> {
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
            if start != 0 || !decoder.expand(&mut buf, stored, raw) {
                return Err(corrupt("it does not decompress to its length"));
            }
        }
        Ok(Filled { buf, start, end: start + raw })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn device(&self) -> u64 {
        self.file.device()
    }
}

impl PendingBlock {
    /// Whether [`RunFile::complete`] would not wait for the device.
    pub(super) fn is_finished(&self) -> bool {
        self.read.is_finished()
    }
}
