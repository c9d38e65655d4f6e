//! The records of a part of a partitioned write, as one stream of bytes: the contents of its blocks without the block
//! headers, read ahead through buffers of the job's pool.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use ascot_io::{BlockPool, Buf, Disk, Filled, IoError, Pool, ReadStream, RunIndex, RunReader};

use crate::api::Result;

/// The stream.
pub(super) struct PartStream {
    reader: RunReader,
    blocks: BlockPool,
    /// The block being copied from.
    current: Option<Filled>,
    /// Bytes of the next block to leave out.
    skip: usize,
    begun: VecDeque<Buf>,
}

/// Maximum number of blocks of a part read ahead.
pub const PART_AHEAD_BLOCKS: usize = 6;
/// Inverse of their maximum share of memory.
const PART_AHEAD_SHARE: usize = 4;

/// Memory for reading ahead a part whose blocks take `block` bytes, out of `memory` bytes: a resumed job may have far
/// less memory than the one that wrote the blocks.
pub fn part_ahead_bytes(block: usize, memory: usize) -> usize {
    (memory / PART_AHEAD_SHARE / block.max(1)).clamp(2, PART_AHEAD_BLOCKS) * block
}

impl PartStream {
    /// The records from `offset` on, in bytes of records.
    pub(super) fn open(
        disk: &Disk,
        path: &Path,
        index: Arc<RunIndex>,
        offset: u64,
        pool: &Pool,
    ) -> Result<Self> {
        let mut first_block = 0;
        let mut skip = offset;
        for block in index.blocks.iter() {
            if u64::from(block.raw) > skip {
                break;
            }
            skip -= u64::from(block.raw);
            first_block += 1;
        }
        let block_bytes = index.buffer_bytes().max(ascot_io::PAGE_BYTES);
        let region = pool.region(part_ahead_bytes(block_bytes, pool.budget()), "blocks of a part")?;
        let reader = RunReader::open(disk, path, index, first_block)?;
        Ok(PartStream {
            reader,
            blocks: BlockPool::new(region, block_bytes),
            current: None,
            skip: skip as usize,
            begun: VecDeque::new(),
        })
    }

    fn read_ahead(&mut self) -> Result<(), IoError> {
        while self.reader.remaining_to_begin() > 0 {
            let Some(block) = self.blocks.try_take() else { return Ok(()) };
            self.reader.begin(block)?;
        }
        Ok(())
    }

    fn next_block(&mut self) -> Result<bool, IoError> {
        self.current = None;
        self.read_ahead()?;
        if self.reader.in_flight() == 0 {
            return Ok(false);
        }
        let mut block = self.reader.complete()?;
        block.start += std::mem::take(&mut self.skip).min(block.len());
        self.current = Some(block);
        self.read_ahead()?;
        Ok(true)
    }
}

impl ReadStream for PartStream {
    fn begin(&mut self, buf: Buf) -> Result<(), IoError> {
        self.begun.push_back(buf);
        self.read_ahead()
    }

    fn complete(&mut self) -> Result<Filled, IoError> {
        let mut buf = self.begun.pop_front().unwrap_or_else(|| Buf::heap(0));
        let mut end = 0;
        while end < buf.len() {
            let Some(block) = self.current.as_mut().filter(|block| !block.is_empty()) else {
                if self.next_block()? {
                    continue;
                }
                break;
            };
            let count = block.len().min(buf.len() - end);
            buf[end..end + count].copy_from_slice(&block.bytes()[..count]);
            block.start += count;
            end += count;
        }
        Ok(Filled { buf, start: 0, end })
    }

    fn ready(&mut self) -> bool {
        self.current.is_some() || self.reader.in_flight() == 0 || self.reader.ready()
    }

    fn in_flight(&self) -> usize {
        self.begun.len()
    }
}
