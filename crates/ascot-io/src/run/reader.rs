//! Run files being read. Each stays open; its blocks are read in any order, or forward with several in flight. Every
//! block is verified.
//!
//! In a user's file blocks do not begin with pages, but requests do. A reader in order requests the page in which one
//! block ends and the next begins only once, so that each request continues where the last one ended:
//!
//! ```text
//!   blocks    |----- 0 -----|------ 1 ------|---- 2 ----|
//!   pages     |    |    |    |    |    |    |    |    |
//!   requests  [------- 0 ----][----- 1 -----][--- 2 ---]      the first page of 1 is the last of 0
//! ```

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::index::{BlockEntry, RunIndex};
use super::stored_block::{RunId, block_checksum, expand};
use crate::PAGE_BYTES;
use crate::backend::NOTHING_BEGUN;
use crate::buf::Buf;
use crate::direct::{Descriptor, PendingRead};
use crate::disk::Disk;
use crate::error::{IoError, Result};
use crate::stream::Filled;

/// The ledger's name for run files being read.
const NAME: &str = "run read";
const PAGE: u64 = PAGE_BYTES as u64;

/// The page in which the bytes of a block end.
fn last_page(filled: &Filled) -> &[u8] {
    let start = (filled.end - 1) / PAGE_BYTES * PAGE_BYTES;
    &filled.buf[start..start + PAGE_BYTES]
}

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
    pub fn open(disk: &Disk, path: &Path, id: RunId) -> Result<Self> {
        Ok(Self { path: path.to_path_buf(), id, file: disk.open_random(path, NAME, true)? })
    }

    /// Begins the read of block `number`, whose index entry is `block`; `buf` must hold [`BlockEntry::buffer_bytes`].
    pub fn begin(&self, number: usize, block: &BlockEntry, buf: Buf) -> Result<PendingBlock> {
        Ok(self.begin_after(0, number, block, buf)?.pending)
    }

    /// Begins the read of a block after its first `in_page` bytes; if there are any, without the page that they are in.
    fn begin_after(&self, in_page: usize, number: usize, block: &BlockEntry, mut buf: Buf) -> Result<Begun> {
        if buf.len() < block.buffer_bytes() {
            let what = "a buffer is smaller than the block to be read";
            return Err(IoError::Misuse { path: self.path.clone(), offset: block.offset, what });
        }
        let first_page = (in_page > 0).then(|| buf.split_to(PAGE_BYTES));
        let read = self.file.begin(block.offset + in_page as u64, block.stored as usize - in_page, buf)?;
        let pending = PendingBlock { read, number: number as u64, block: *block };
        Ok(Begun { pending, first_page })
    }

    /// Waits for a block, and verifies it: an error if it is not the block in the index.
    pub fn complete(&self, pending: PendingBlock) -> Result<Filled> {
        let PendingBlock { read, number, block } = pending;
        self.verify(number, &block, read.complete()?)
    }

    fn verify(&self, number: u64, block: &BlockEntry, filled: Filled) -> Result<Filled> {
        let Filled { mut buf, start, .. } = filled;
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
    begun: VecDeque<Begun>,
    /// The page in which the block completed last ends, if the next one begins in it.
    shared_page: Option<Box<[u8]>>,
}

/// A block that a reader in order has begun.
struct Begun {
    pending: PendingBlock,
    /// The first page of its buffer, which comes from the block before.
    first_page: Option<Buf>,
}

impl RunReader {
    /// Opens a run file to read it from block `from_block` on.
    pub fn open(disk: &Disk, path: &Path, index: Arc<RunIndex>, from_block: usize) -> Result<Self> {
        Self::from_file(&Arc::new(RunFile::open(disk, path, index.id)?), index, from_block)
    }

    /// Reads an open run file from block `from_block` on.
    pub fn from_file(file: &Arc<RunFile>, index: Arc<RunIndex>, from_block: usize) -> Result<Self> {
        Ok(Self {
            file: Arc::clone(file),
            next: from_block.min(index.blocks.len()),
            begun: VecDeque::new(),
            shared_page: None,
            index,
        })
    }

    /// Its device, as in [`ReadStream::channel`](crate::ReadStream::channel).
    pub fn channel(&self) -> Option<u64> {
        Some(self.file.file.device())
    }

    /// Requests the next block; `buf` must hold [`BlockEntry::buffer_bytes`].
    pub fn begin(&mut self, buf: Buf) -> Result<()> {
        let Some(block) = self.index.blocks.get(self.next) else {
            return Err(self.misuse("a block was asked for after the last"));
        };
        let shares_page = self.shares_page(self.next) && self.expects_page();
        let in_page = if shares_page { PAGE - block.offset % PAGE } else { 0 };
        self.begun.push_back(self.file.begin_after(in_page as usize, self.next, block, buf)?);
        self.next += 1;
        Ok(())
    }

    /// Whether block `number` begins in the page in which the one before ends, and ends in another.
    fn shares_page(&self, number: usize) -> bool {
        let pair = number.checked_sub(1).and_then(|before| self.index.blocks.get(before..=number));
        let Some([before, block]) = pair else { return false };
        let end = before.offset + u64::from(before.stored);
        end == block.offset && !end.is_multiple_of(PAGE) && before.stored > 0 && block.padded() > PAGE
    }

    /// Whether this reader has read the block before the next one, or is reading it.
    fn expects_page(&self) -> bool {
        !self.begun.is_empty() || self.shared_page.is_some()
    }

    /// Waits for the oldest block begun and verifies it.
    pub fn complete(&mut self) -> Result<Filled> {
        let number = self.next - self.begun.len();
        let Some(Begun { pending, first_page }) = self.begun.pop_front() else {
            return Err(self.misuse(NOTHING_BEGUN));
        };
        let PendingBlock { read, number: of_run, block } = pending;
        let mut filled = read.complete()?;
        if let Some(mut page) = first_page {
            let Some(shared) = self.shared_page.take() else { return Err(self.misuse(NOTHING_BEGUN)) };
            page.copy_from_slice(&shared);
            page.unsplit(filled.buf).map_err(|_| self.misuse("two parts of a buffer do not fit together"))?;
            let start = (block.offset % PAGE) as usize;
            filled = Filled { buf: page, start, end: start + block.stored as usize };
        }
        let shares = self.shares_page(number + 1);
        self.shared_page = shares.then(|| last_page(&filled).into());
        self.file.verify(of_run, &block, filled)
    }

    /// Whether [`complete`](Self::complete) would not wait for the device.
    pub fn ready(&mut self) -> bool {
        self.begun.front().is_some_and(|begun| begun.pending.read.is_finished())
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
