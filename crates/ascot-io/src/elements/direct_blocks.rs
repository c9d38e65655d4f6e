//! Blocks that move past the page cache, several in flight: direct streams.

use std::fs::{File, Metadata};
use std::ops::Range;
use std::sync::Arc;

use super::blocks::{PAST_THE_END, Sink, Source};
use super::kind::direct_blocks;
use crate::buf::{BlockPool, Buf};
use crate::direct::{Allocation, DirectRead, DirectWrite};
use crate::disk::Disk;
use crate::error::{Action, IoError, Result};
use crate::ledger::Direction;
use crate::stream::{ReadStream, WriteStream};
use crate::stream_context::StreamContext;

const CLOSED: &str = "an element was written after the stream was closed";

/// The blocks of a file that is read.
pub(super) struct DirectBlocks {
    stream: DirectRead,
    misused: IoError,
    /// Blocks that no request has, before the first.
    idle: Vec<Buf>,
    begun_bytes: u64,
    block_bytes: usize,
    end: u64,
    requests: u64,
}

impl DirectBlocks {
    /// Reads a file by blocks of `block_bytes`; the disk keeps `depth` of them in flight. Returns the block that the
    /// reader consumes first, and gives back for the next: all blocks are parts of one region, which has huge
    /// pages if it is large.
    pub(super) fn open(
        disk: &Disk,
        context: StreamContext,
        file: File,
        stat: &Metadata,
        block_bytes: usize,
        depth: usize,
    ) -> Result<(Buf, Self)> {
        let end = stat.len();
        let most = direct_blocks(depth) - 1;
        let useful = usize::try_from(end.div_ceil(block_bytes as u64)).unwrap_or(most).clamp(1, most);
        let region = Buf::try_heap(block_bytes.saturating_mul(useful + 1));
        let mut region = region.map_err(|error| context.error(Action::Open, 0, error))?;
        let idle = (0..useful).map(|_| region.split_to(block_bytes)).collect();
        let misused = context.misuse(end, PAST_THE_END);
        let direct = disk.enter_direct(&file, &context.path, stat);
        let mut base = disk.queued_file(context, Direction::Read, Arc::new(file), direct, stat);
        base.request_bytes = block_bytes;
        let stream = DirectRead::new(base, 0, end);
        Ok((region, Self { stream, misused, idle, begun_bytes: 0, block_bytes, end, requests: 0 }))
    }

    fn begin(&mut self, block: Buf) -> Result<()> {
        if self.begun_bytes < self.end {
            self.stream.begin(block)?;
            self.begun_bytes += self.block_bytes as u64;
            self.requests += 1;
        }
        Ok(())
    }
}

impl Source for DirectBlocks {
    fn next_block(&mut self, block: &mut Buf) -> Result<Range<usize>> {
        for idle in std::mem::take(&mut self.idle) {
            self.begin(idle)?;
        }
        let filled = self.stream.complete()?;
        let consumed = std::mem::replace(block, filled.buf);
        self.begin(consumed)?;
        Ok(filled.start..filled.end)
    }

    fn requests(&self) -> u64 {
        self.requests
    }

    fn past_the_end(&self) -> IoError {
        self.misused.clone()
    }
}

/// The blocks of a file that is written.
pub(super) struct DirectSink {
    stream: Option<Box<DirectWrite>>,
    misused: IoError,
    blocks: BlockPool,
    /// Bytes handed over, and bytes for which space is allocated.
    written: u64,
    reserved: u64,
    requests: u64,
}

/// Bounds of one step of allocating space ahead of the data; between them, a step is as long as the file so far. An
/// allocation waits for the writes in flight, so steps are few. The excess is cut off when the stream is closed.
const MIN_STEP_BYTES: u64 = 64 << 20;
const MAX_STEP_BYTES: u64 = 1 << 30;
/// The share of a volume's free space that one step may take.
const STEP_FREE_SHARE: u64 = 16;

impl DirectSink {
    /// Writes a file by blocks of `block_bytes`; the disk keeps up to `depth` of them in flight.
    pub(super) fn create(
        disk: &Disk,
        context: StreamContext,
        file: File,
        stat: &Metadata,
        block_bytes: usize,
        depth: usize,
    ) -> Result<Self> {
        let region = Buf::try_heap(block_bytes.saturating_mul(direct_blocks(depth)));
        let region = region.map_err(|error| context.error(Action::Create, 0, error))?;
        let misused = context.misuse(0, CLOSED);
        let direct = disk.enter_direct(&file, &context.path, stat);
        let mut base = disk.queued_file(context, Direction::Write, Arc::new(file), direct, stat);
        base.request_bytes = block_bytes;
        let stream = Some(Box::new(DirectWrite::new(base, 0, Allocation::Ahead)));
        let blocks = BlockPool::new(region, block_bytes);
        Ok(Self { stream, misused, blocks, written: 0, reserved: 0, requests: 0 })
    }

    /// Allocates space for `bytes` more, and for blocks after them.
    fn reserve(&mut self, bytes: u64) -> Result<()> {
        self.written += bytes;
        // A short file needs no step; its blocks allocate their own space.
        if self.written <= self.reserved || self.written < MIN_STEP_BYTES / 4 {
            return Ok(());
        }
        let free = self.stream()?.free_space();
        let step = self.written.clamp(MIN_STEP_BYTES, MAX_STEP_BYTES).min(free / STEP_FREE_SHARE);
        // If there is no space for a step, the writes allocate their own, or report a full volume.
        let _ = self.stream()?.reserve(step);
        self.reserved = self.written + step;
        Ok(())
    }

    fn stream(&mut self) -> Result<&mut DirectWrite> {
        self.stream.as_deref_mut().ok_or_else(|| self.misused.clone())
    }
}

impl Sink for DirectSink {
    fn next_block(&mut self, block: &mut Buf) -> Result<Range<usize>> {
        let mut free = self.blocks.try_take();
        while free.is_none() {
            self.stream()?.complete()?;
            free = self.blocks.try_take();
        }
        if let Some(free) = free {
            *block = free;
        }
        Ok(0..self.blocks.block_bytes())
    }

    fn put(&mut self, block: &mut Buf, filled: Range<usize>) -> Result<()> {
        let nothing = block.split_to(0);
        let full = std::mem::replace(block, nothing);
        self.requests += 1;
        self.reserve(filled.len() as u64)?;
        self.stream()?.begin(full, filled.end)
    }

    fn close(&mut self, durable: bool) -> Result<u64> {
        let mut stream = self.stream.take().ok_or_else(|| self.misused.clone())?;
        if durable {
            stream.sync()?;
        }
        stream.finish()
    }

    fn requests(&self) -> u64 {
        self.requests
    }
}
