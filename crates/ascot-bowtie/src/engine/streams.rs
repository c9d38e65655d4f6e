//! Streams of blocks, read or written forward: what the engine needs of them, and files as such streams.

use ascot_io::{AtomicOutput, Buf, Filled, IoError, ReadStream, WriteStream};

use crate::occupancy::UNKNOWN_BLOCKS;

/// A stream of blocks, read forward.
pub trait BlockInput: Send {
    /// A filled block as the flow gets it.
    type Block: Send;
    /// Blocks not yet requested; an upper bound where the end is unknown.
    fn remaining(&self) -> u32;
    /// Its length, in a unit that all inputs of a bowtie have in common; none if it is not known.
    fn length(&self) -> Option<u64> {
        Some(self.remaining()).filter(|&blocks| blocks < UNKNOWN_BLOCKS).map(u64::from)
    }
    /// Requests the next block into `buf`.
    fn begin(&mut self, buf: Buf) -> Result<(), IoError>;
    /// Waits for the oldest request.
    fn complete(&mut self) -> Result<Completed<Self::Block>, IoError>;
    /// Whether there is memory to complete a block. Where there is none, it is completed only if the flow needs it.
    fn has_room(&self) -> bool {
        true
    }
    /// Whether `complete` would return at once.
    fn ready(&mut self) -> bool;
    /// The device of the stream, as [`ascot_io::ReadStream::channel`] gives it.
    fn channel(&self) -> Option<u64> {
        None
    }
}

impl<I: BlockInput + ?Sized> BlockInput for Box<I> {
    type Block = I::Block;

    fn remaining(&self) -> u32 {
        (**self).remaining()
    }

    fn length(&self) -> Option<u64> {
        (**self).length()
    }

    fn begin(&mut self, buf: Buf) -> Result<(), IoError> {
        (**self).begin(buf)
    }

    fn complete(&mut self) -> Result<Completed<I::Block>, IoError> {
        (**self).complete()
    }

    fn has_room(&self) -> bool {
        (**self).has_room()
    }

    fn ready(&mut self) -> bool {
        (**self).ready()
    }

    fn channel(&self) -> Option<u64> {
        (**self).channel()
    }
}

/// The result of a request for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed<B> {
    /// The block.
    Block(B),
    /// The stream keeps the bytes: they form a block together with later ones.
    Nothing,
    /// The stream had already ended.
    Ended,
}

/// A stream of blocks, written forward.
pub trait BlockOutput: Send {
    /// Appends the first `len` bytes of `buf`.
    fn begin(&mut self, buf: Buf, len: usize) -> Result<(), IoError>;
    /// The block begun before was the last one. What follows the blocks, such as an index, can be begun now, without a
    /// switch: later another stream is written.
    fn end(&mut self) -> Result<(), IoError> {
        Ok(())
    }
    /// Waits until the oldest block is written and its memory is free.
    fn complete(&mut self) -> Result<(), IoError>;
    /// Whether `complete` would return at once.
    fn ready(&mut self) -> bool {
        false
    }
    /// The device of the stream, as [`ascot_io::WriteStream::channel`] gives it.
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

/// A file read forward.
pub struct Reader {
    stream: Box<dyn ReadStream>,
    block_bytes: u64,
    arrived: u64,
    ended: bool,
}

impl Reader {
    /// Reads `stream` in blocks of `block_bytes`.
    pub fn new(stream: Box<dyn ReadStream>, block_bytes: usize) -> Self {
        Reader { stream, block_bytes: block_bytes.max(1) as u64, arrived: 0, ended: false }
    }
}

impl BlockInput for Reader {
    type Block = Filled;

    fn remaining(&self) -> u32 {
        let bytes = match self.stream.len_hint() {
            _ if self.ended => 0,
            Some(bytes) => bytes,
            None => return UNKNOWN_BLOCKS,
        };
        let requested = self.arrived + self.stream.in_flight() as u64 * self.block_bytes;
        bytes.saturating_sub(requested).div_ceil(self.block_bytes).min(u64::from(UNKNOWN_BLOCKS - 1)) as u32
    }

    fn begin(&mut self, buf: Buf) -> Result<(), IoError> {
        self.stream.begin(buf)
    }

    fn complete(&mut self) -> Result<Completed<Filled>, IoError> {
        let filled = self.stream.complete()?;
        self.arrived += filled.len() as u64;
        self.ended |= filled.is_empty();
        Ok(if filled.is_empty() { Completed::Ended } else { Completed::Block(filled) })
    }

    fn ready(&mut self) -> bool {
        self.stream.ready()
    }

    fn channel(&self) -> Option<u64> {
        self.stream.channel()
    }
}

/// A file written forward.
pub struct Writer {
    /// None after the end.
    stream: Option<Box<dyn WriteStream>>,
    /// Blocks begun and not completed.
    begun: usize,
    written: u64,
}

impl Writer {
    /// Writes to `stream`.
    pub fn new(stream: Box<dyn WriteStream>) -> Self {
        Writer { stream: Some(stream), begun: 0, written: 0 }
    }

    /// Makes all blocks completed so far durable.
    pub fn sync(&mut self) -> Result<(), IoError> {
        self.stream()?.sync()
    }

    fn stream(&mut self) -> Result<&mut (dyn WriteStream + 'static), IoError> {
        let what = "a stream that has ended is written to";
        let ended = || IoError::Misuse { path: "an output".into(), offset: self.written, what };
        self.stream.as_deref_mut().ok_or_else(ended)
    }
}

impl BlockOutput for Writer {
    fn begin(&mut self, buf: Buf, len: usize) -> Result<(), IoError> {
        self.stream()?.begin(buf, len)?;
        self.begun += 1;
        Ok(())
    }

    fn complete(&mut self) -> Result<(), IoError> {
        debug_assert!(self.begun > 0, "a block completes that was not begun");
        self.begun = self.begun.saturating_sub(1);
        let begun = self.begun;
        complete_down_to(self.stream()?, begun)
    }

    fn ready(&mut self) -> bool {
        self.stream.as_mut().map_or(0, |stream| stream.in_flight()) < self.begun
    }

    fn channel(&self) -> Option<u64> {
        self.stream.as_ref().and_then(|stream| stream.channel())
    }

    fn finish(&mut self) -> Result<u64, IoError> {
        if let Some(stream) = self.stream.take() {
            self.written = stream.finish()?;
        }
        Ok(self.written)
    }
}

/// A file of an output, written forward under a temporary name.
pub struct FileWriter {
    file: AtomicOutput,
    /// Blocks begun and not completed.
    begun: usize,
}

impl FileWriter {
    /// Writes to `file`.
    pub fn new(file: AtomicOutput) -> Self {
        FileWriter { file, begun: 0 }
    }

    /// The file, sealed if it is finished.
    pub fn into_file(self) -> AtomicOutput {
        self.file
    }
}

impl BlockOutput for FileWriter {
    fn begin(&mut self, buf: Buf, len: usize) -> Result<(), IoError> {
        self.begun += 1;
        self.file.stream()?.begin(buf, len)
    }

    fn complete(&mut self) -> Result<(), IoError> {
        self.begun = self.begun.saturating_sub(1);
        complete_down_to(self.file.stream()?, self.begun)
    }

    fn ready(&mut self) -> bool {
        self.file.stream().map_or(true, |stream| stream.in_flight() < self.begun)
    }

    fn channel(&self) -> Option<u64> {
        self.file.channel()
    }

    fn finish(&mut self) -> Result<u64, IoError> {
        self.file.seal()
    }
}

/// Waits until at most `blocks` blocks of a stream are not yet written.
pub fn complete_down_to(stream: &mut dyn WriteStream, blocks: usize) -> Result<(), IoError> {
    while stream.in_flight() > blocks {
        stream.complete()?;
    }
    // A failure is reported even if there is nothing left to wait for.
    if blocks == 0 { stream.drain() } else { Ok(()) }
}

/// A pool that is too small for a bowtie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{inputs} inputs and {outputs} outputs need {needed} blocks of memory, but there are {blocks}; \
     allow more memory, or make blocks smaller"
)]
pub struct TooFewBlocks {
    /// Input streams.
    pub inputs: usize,
    /// Output streams.
    pub outputs: usize,
    /// Blocks needed.
    pub needed: usize,
    /// Blocks in the pool.
    pub blocks: usize,
}
