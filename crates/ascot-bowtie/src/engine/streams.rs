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
}

/// A file written forward.
pub struct Writer {
    /// None once it is finished.
    stream: Option<Box<dyn WriteStream>>,
    begun: bool,
    written: u64,
}

impl Writer {
    /// Writes to `stream`.
    pub fn new(stream: Box<dyn WriteStream>) -> Self {
        Writer { stream: Some(stream), begun: false, written: 0 }
    }
}

impl BlockOutput for Writer {
    fn begin(&mut self, buf: Buf, len: usize) -> Result<(), IoError> {
        self.begun = true;
        self.stream.as_mut().map_or(Ok(()), |stream| stream.begin(buf, len))
    }

    /// A stream waits for all it was given: blocks begun after the oldest are written, too.
    fn complete(&mut self) -> Result<(), IoError> {
        match &mut self.stream {
            Some(stream) if std::mem::take(&mut self.begun) => stream.drain(),
            _ => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<u64, IoError> {
        if let Some(stream) = self.stream.take() {
            self.written = stream.finish()?;
        }
        Ok(self.written)
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
