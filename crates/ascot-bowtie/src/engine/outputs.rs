//! The output side: streams of blocks, the block each of them fills, and full ones that wait.

use std::collections::VecDeque;

use ascot_io::{Buf, IoError};

use crate::engine::{BlockInput, Bowtie, Stall};

/// A stream of blocks, written forward.
pub trait BlockOutput: Send {
    /// Appends the first `len` bytes of `buf`.
    fn begin(&mut self, buf: Buf, len: usize) -> Result<(), IoError>;
    /// Waits until the oldest block begun is written, and its memory free.
    fn complete(&mut self) -> Result<(), IoError>;
    /// Whether `complete` would return at once.
    fn ready(&mut self) -> bool {
        false
    }
    /// The device behind it, as [`channel`](ascot_io::WriteStream::channel) has it.
    fn channel(&self) -> Option<u64> {
        None
    }
    /// Nothing follows: waits for the end; the bytes written in all.
    fn finish(&mut self) -> Result<u64, IoError>;
}

struct Output<O> {
    stream: O,
    /// The block being filled and the bytes in it; none before the first byte.
    block: Option<(Buf, usize)>,
    full: VecDeque<(Buf, usize)>,
    /// Bytes written, when all are.
    written: u64,
}

/// All outputs.
pub(super) struct Outputs<O> {
    outputs: Vec<Output<O>>,
    /// Blocks they hold.
    blocks: u32,
}

impl<O: BlockOutput> Outputs<O> {
    pub(super) fn new(streams: Vec<O>) -> Self {
        let output = |stream| Output { stream, block: None, full: VecDeque::new(), written: 0 };
        Outputs { outputs: streams.into_iter().map(output).collect(), blocks: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.outputs.len()
    }

    /// The devices behind them.
    pub(super) fn channels(&self) -> Vec<Option<u64>> {
        self.outputs.iter().map(|output| output.stream.channel()).collect()
    }

    /// Blocks being filled, waiting, or being written.
    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Begins to write the oldest full block.
    pub(super) fn begin(&mut self, output: usize) -> Result<(), IoError> {
        let output = &mut self.outputs[output];
        output.full.pop_front().map_or(Ok(()), |(buf, len)| output.stream.begin(buf, len))
    }

    pub(super) fn ready(&mut self, output: usize) -> bool {
        self.outputs[output].stream.ready()
    }

    pub(super) fn complete(&mut self, output: usize) -> Result<(), IoError> {
        self.outputs[output].stream.complete()?;
        self.blocks -= 1;
        Ok(())
    }

    /// Last blocks, full or not, wait to be written.
    pub(super) fn close(&mut self) {
        for Output { block, full, .. } in &mut self.outputs {
            full.extend(block.take());
        }
    }

    /// Whether `output` has begun a block that is not queued.
    pub(super) fn fills(&self, output: usize) -> bool {
        self.outputs[output].block.is_some()
    }

    pub(super) fn finish(&mut self) -> Result<(), IoError> {
        for output in &mut self.outputs {
            output.written = output.stream.finish()?;
        }
        Ok(())
    }
}

impl<I: BlockInput, O: BlockOutput> Bowtie<I, O> {
    /// Number of outputs.
    pub fn outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Bytes that `output` takes now at least. Other outputs share them.
    pub fn room(&self, output: usize) -> usize {
        let block_bytes = self.pool.block_bytes();
        let left = match &self.outputs.outputs[output].block {
            Some((_, filled)) => block_bytes - filled,
            None => block_bytes,
        };
        if left == 0 { 0 } else { left + self.occupancy.free_to_write() as usize * block_bytes }
    }

    /// Appends to `output` as much of `bytes` as there is room for; says how much that was. What is left
    /// has to wait for room ([`Step::Full`](crate::flow::Step)).
    pub fn put(&mut self, output: usize, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() {
            let block = &mut self.outputs.outputs[output].block;
            let (buf, filled) = match block {
                Some((buf, filled)) => (buf, filled),
                None => {
                    let Some(buf) = self.pool.try_take() else { break };
                    self.outputs.blocks += 1;
                    let (buf, filled) = block.insert((buf, 0));
                    (buf, filled)
                }
            };
            let more = (bytes.len() - taken).min(buf.len() - *filled);
            buf[*filled..*filled + more].copy_from_slice(&bytes[taken..taken + more]);
            *filled += more;
            taken += more;
            if *filled == buf.len() && !self.queue(output) {
                break;
            }
        }
        self.occupancy.filled(taken as u64);
        taken
    }

    /// Bytes that the block which `output` fills still takes; a whole block where none is begun.
    pub fn left_in_block(&self, output: usize) -> usize {
        let filled = self.outputs.outputs[output].block.as_ref().map_or(0, |(_, filled)| *filled);
        self.pool.block_bytes() - filled
    }

    /// Ends the block that `output` fills where it is, so that what follows starts another. False where
    /// that has to wait for room; where none is begun there is nothing to end.
    pub fn end_block(&mut self, output: usize) -> bool {
        self.outputs.outputs[output].block.is_none() || self.queue(output)
    }

    /// Appends all of `bytes` to `output`, waiting for room as often as it takes: for a caller who has bytes when
    /// it has them, and no flow to be asked for them.
    pub fn give(&mut self, output: usize, bytes: &[u8]) -> Result<(), IoError> {
        let mut given = 0;
        loop {
            given += self.put(output, &bytes[given..]);
            self.pump()?;
            self.settle();
            if given == bytes.len() {
                return Ok(());
            }
            if self.room(output) == 0 {
                self.wait(Stall::Room)?;
            }
        }
    }

    /// Ends all outputs of a bowtie that was [given](Self::give) what they have, when all of it is written.
    pub fn finish(&mut self) -> Result<(), IoError> {
        self.close()
    }

    /// Writes all that outputs hold, the blocks they are filling too, and waits until it is written.
    pub fn flush(&mut self) -> Result<(), IoError> {
        for output in 0..self.outputs.len() {
            while !self.end_block(output) {
                self.wait(Stall::Room)?;
            }
        }
        while self.occupancy.full_all() > 0 || self.occupancy.writing() > 0 {
            self.wait(Stall::Ended)?;
        }
        Ok(())
    }

    /// The stream of `output`.
    pub fn output_stream(&mut self, output: usize) -> &mut O {
        &mut self.outputs.outputs[output].stream
    }

    /// The streams of all outputs, when the run is over.
    pub fn into_outputs(self) -> impl Iterator<Item = O> {
        self.outputs.outputs.into_iter().map(|output| output.stream)
    }

    /// Bytes of `output` in all, when the run is over.
    pub fn written(&self, output: usize) -> u64 {
        self.outputs.outputs[output].written
    }

    /// Queues the full block of `output`, where there is room for the next.
    fn queue(&mut self, output: usize) -> bool {
        let queued = self.occupancy.queue(output);
        if queued {
            let Output { block, full, .. } = &mut self.outputs.outputs[output];
            full.extend(block.take());
        }
        queued
    }

    /// Queues full blocks that had no room before.
    pub(super) fn settle(&mut self) {
        let block_bytes = self.pool.block_bytes();
        for output in 0..self.outputs.len() {
            if matches!(self.outputs.outputs[output].block, Some((_, filled)) if filled == block_bytes) {
                self.queue(output);
            }
        }
    }
}
