//! The input side: streams of blocks, and their blocks that have arrived.

use std::collections::VecDeque;

use ascot_io::{Buf, IoError};

/// A stream of blocks, read forward.
pub trait BlockInput: Send {
    /// A filled block as the flow gets it.
    type Block: Send;
    /// Blocks not yet requested; an upper bound where the end is unknown.
    fn remaining(&self) -> u32;
    /// Requests the next block into `buf`.
    fn begin(&mut self, buf: Buf) -> Result<(), IoError>;
    /// Waits for the oldest request.
    fn complete(&mut self) -> Result<Completed<Self::Block>, IoError>;
    /// Whether `complete` would return at once.
    fn ready(&mut self) -> bool;
    /// The device of the stream, as [`ReadStream::channel`](ascot_io::ReadStream::channel) gives it.
    fn channel(&self) -> Option<u64> {
        None
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

pub(super) struct Input<I: BlockInput> {
    pub(super) stream: I,
    /// Blocks that have arrived and were not taken.
    pub(super) filled: VecDeque<I::Block>,
    pub(super) in_flight: u32,
    ended: bool,
}

impl<I: BlockInput> Input<I> {
    pub(super) fn new(stream: I) -> Self {
        Input { stream, filled: VecDeque::new(), in_flight: 0, ended: false }
    }

    pub(super) fn remaining(&self) -> u32 {
        if self.ended { 0 } else { self.stream.remaining() }
    }

    /// Whether the oldest request is complete.
    pub(super) fn ready(&mut self) -> bool {
        self.in_flight > 0 && self.stream.ready()
    }

    pub(super) fn begin(&mut self, buf: Buf) -> Result<(), IoError> {
        self.stream.begin(buf)?;
        self.in_flight += 1;
        Ok(())
    }

    /// Waits for the oldest request; says whether it brought a block.
    pub(super) fn complete(&mut self) -> Result<bool, IoError> {
        let completed = self.stream.complete();
        self.in_flight -= 1;
        match completed? {
            Completed::Block(block) => {
                self.filled.push_back(block);
                return Ok(true);
            }
            Completed::Nothing => {}
            Completed::Ended => self.ended = true,
        }
        Ok(false)
    }
}
