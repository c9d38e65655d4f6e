//! The output side: streams of blocks, the block that each of them fills, and the full ones that wait.

use std::collections::VecDeque;

use ascot_io::{Buf, IoError};

/// A stream of blocks, written forward.
pub trait BlockOutput: Send {
    /// Appends the first `len` bytes of `buf`.
    fn begin(&mut self, buf: Buf, len: usize) -> Result<(), IoError>;
    /// Waits until the oldest block is written and its memory is free.
    fn complete(&mut self) -> Result<(), IoError>;
    /// Whether `complete` would return at once.
    fn ready(&mut self) -> bool {
        false
    }
    /// The device of the stream, as [`WriteStream::channel`](ascot_io::WriteStream::channel) gives it.
    fn channel(&self) -> Option<u64> {
        None
    }
    /// Ends the stream: waits until all is written, and returns the number of bytes.
    fn finish(&mut self) -> Result<u64, IoError>;
}

/// A block and the bytes in it.
pub(super) struct PartBlock {
    pub(super) buf: Buf,
    pub(super) len: usize,
}

impl PartBlock {
    /// Copies as many bytes as fit; says how many.
    pub(super) fn append(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.buf.len() - self.len);
        self.buf[self.len..self.len + taken].copy_from_slice(&bytes[..taken]);
        self.len += taken;
        taken
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == self.buf.len()
    }
}

pub(super) struct Output<O> {
    pub(super) stream: O,
    /// The block being filled; none before its first byte.
    pub(super) block: Option<PartBlock>,
    full: VecDeque<PartBlock>,
    /// Bytes written, once the stream has ended.
    pub(super) written: u64,
}

impl<O: BlockOutput> Output<O> {
    pub(super) fn new(stream: O) -> Self {
        Output { stream, block: None, full: VecDeque::new(), written: 0 }
    }

    /// Bytes in the block being filled.
    pub(super) fn filled(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.len)
    }

    /// The block being filled, full or not, waits to be written.
    pub(super) fn queue(&mut self) {
        self.full.extend(self.block.take());
    }

    /// Begins to write the oldest full block; says whether there was one.
    pub(super) fn begin(&mut self) -> Result<bool, IoError> {
        let Some(PartBlock { buf, len }) = self.full.pop_front() else { return Ok(false) };
        self.stream.begin(buf, len)?;
        Ok(true)
    }
}
