//! Files as streams of blocks.

use ascot_io::{Buf, Filled, IoError, ReadStream, WriteStream};

use super::inputs::{BlockInput, Completed};
use super::outputs::BlockOutput;

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
            None => return u32::MAX / 2,
        };
        let requested = self.arrived + self.stream.in_flight() as u64 * self.block_bytes;
        bytes.saturating_sub(requested).div_ceil(self.block_bytes).min(u64::from(u32::MAX / 2)) as u32
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

/// Waits until at most `blocks` blocks of a stream are not yet written.
pub fn complete_down_to(stream: &mut dyn WriteStream, blocks: usize) -> Result<(), IoError> {
    while stream.in_flight() > blocks {
        stream.complete()?;
    }
    // A failure is reported even if there is nothing left to wait for.
    if blocks == 0 { stream.drain() } else { Ok(()) }
}

/// The input type of a bowtie without inputs: the flow brings the data.
#[derive(Clone, Copy, Debug)]
pub enum NoInput {}

impl BlockInput for NoInput {
    type Block = Filled;

    fn remaining(&self) -> u32 {
        match *self {}
    }

    fn begin(&mut self, _: Buf) -> Result<(), IoError> {
        match *self {}
    }

    fn complete(&mut self) -> Result<Completed<Filled>, IoError> {
        match *self {}
    }

    fn ready(&mut self) -> bool {
        match *self {}
    }
}

/// The output type of a bowtie without outputs: the flow takes the data away.
#[derive(Clone, Copy, Debug)]
pub enum NoOutput {}

impl BlockOutput for NoOutput {
    fn begin(&mut self, _: Buf, _: usize) -> Result<(), IoError> {
        match *self {}
    }

    fn complete(&mut self) -> Result<(), IoError> {
        match *self {}
    }

    fn finish(&mut self) -> Result<u64, IoError> {
        match *self {}
    }
}
