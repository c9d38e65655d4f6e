//! Streams of files as streams of blocks.

use ascot_io::{Buf, Filled, IoError, ReadStream, WriteStream};

use crate::engine::{BlockInput, BlockOutput, Completed};

/// A file read forward.
pub struct Reader {
    stream: Box<dyn ReadStream>,
    block_bytes: u64,
    arrived: u64,
    ended: bool,
}

impl Reader {
    /// `block_bytes`: bytes of the blocks it will be asked for.
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
        let asked = self.arrived + self.stream.in_flight() as u64 * self.block_bytes;
        bytes.saturating_sub(asked).div_ceil(self.block_bytes).min(u64::from(u32::MAX / 2)) as u32
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
    /// None once it is finished.
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
}

impl BlockOutput for Writer {
    fn begin(&mut self, buf: Buf, len: usize) -> Result<(), IoError> {
        self.begun += 1;
        self.stream.as_mut().map_or(Ok(()), |stream| stream.begin(buf, len))
    }

    fn complete(&mut self) -> Result<(), IoError> {
        self.begun = self.begun.saturating_sub(1);
        self.stream.as_mut().map_or(Ok(()), |stream| complete_down_to(stream.as_mut(), self.begun))
    }

    fn ready(&mut self) -> bool {
        let in_flight = self.stream.as_mut().map_or(0, |stream| stream.in_flight());
        in_flight < self.begun
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

/// Waits until no more than `blocks` of what a stream was given are not written.
pub fn complete_down_to(stream: &mut dyn WriteStream, blocks: usize) -> Result<(), IoError> {
    while stream.in_flight() > blocks {
        stream.complete()?;
    }
    // A failure is told even where nothing is left to wait for.
    if blocks == 0 { stream.drain() } else { Ok(()) }
}

/// No input: the flow brings what it gives.
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

/// No output: there is none of this kind.
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
