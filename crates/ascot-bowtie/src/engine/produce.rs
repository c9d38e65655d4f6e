//! How a flow fills its outputs: by bytes. Full blocks wait for the schedule; the end writes what is left.

use ascot_io::IoError;

use crate::engine::bowtie::Bowtie;
use crate::engine::streams::{BlockInput, BlockOutput, PartBlock};
use crate::schedule::{BlockedOn, Move};

impl<I: BlockInput, O: BlockOutput> Bowtie<I, O> {
    /// Number of outputs.
    pub fn outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Blocks of outputs that may be in the pool again, but still count as being written: their streams have seen the
    /// end of writes that are not completed here. They are for outputs.
    pub(super) fn returned_blocks(&mut self) -> u32 {
        let Bowtie { in_flight, outputs, .. } = self;
        let is_written = |step: &&Move| match **step {
            Move::Read(_) => false,
            Move::Write(index) => outputs[index].stream.ready(),
        };
        in_flight.iter().filter(is_written).count() as u32
    }

    /// Bytes that `output` takes now at least. Part of them is memory that all outputs share.
    pub fn free_bytes(&self, output: usize) -> usize {
        let left = self.left_in_block(output);
        if left == 0 { 0 } else { left + self.occupancy.free_to_write() as usize * self.pool.block_bytes() }
    }

    /// Appends as much of `bytes` to `output` as memory holds; says how much that was. The rest waits for memory
    /// ([`Step::Full`](crate::flow::Step)).
    pub fn put(&mut self, output: usize, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() {
            let Some(block) = self.block(output) else { break };
            taken += block.append(&bytes[taken..]);
            if block.is_full() && !self.queue(output) {
                break;
            }
        }
        self.occupancy.fill(taken as u64);
        taken
    }

    /// The block that `output` fills, if the pool has one.
    fn block(&mut self, output: usize) -> Option<&mut PartBlock> {
        let block = &mut self.outputs[output].block;
        if block.is_none() {
            let buf = self.pool.try_take()?;
            self.output_blocks += 1;
            *block = Some(PartBlock { buf, len: 0 });
        }
        block.as_mut()
    }

    /// Bytes that fit into the block which `output` fills; a whole block if none is begun.
    pub fn left_in_block(&self, output: usize) -> usize {
        self.pool.block_bytes() - self.outputs[output].filled()
    }

    /// Ends the block that `output` fills, so that the following bytes start another. Returns false if this must wait
    /// for memory. If no block is begun there is nothing to end.
    pub fn end_block(&mut self, output: usize) -> bool {
        self.outputs[output].block.is_none() || self.queue(output)
    }

    /// Queues the block that `output` fills, if there is memory for the next one; says whether it did.
    fn queue(&mut self, output: usize) -> bool {
        let is_queued = self.occupancy.queue(output);
        if is_queued {
            self.outputs[output].queue();
        } else {
            self.full_block_waits = true;
        }
        is_queued
    }

    /// Queues the full blocks that memory had no room for before.
    pub(crate) fn queue_full_blocks(&mut self) {
        if !std::mem::take(&mut self.full_block_waits) {
            return;
        }
        for output in 0..self.outputs.len() {
            if self.outputs[output].block.as_ref().is_some_and(PartBlock::is_full) {
                self.queue(output);
            }
        }
    }

    /// Appends all of `bytes` to `output` and waits for memory as often as needed: for a caller that has no flow.
    /// Such a caller ends with [`finish`](Self::finish).
    pub fn write_all(&mut self, output: usize, bytes: &[u8]) -> Result<(), IoError> {
        let mut written = 0;
        loop {
            written += self.put(output, &bytes[written..]);
            self.pump()?;
            self.queue_full_blocks();
            if written == bytes.len() {
                return Ok(());
            }
            if self.free_bytes(output) == 0 {
                self.wait(BlockedOn::OutputMemory)?;
            }
        }
    }

    /// Writes everything that outputs hold, with the blocks that they fill, and waits until it is written.
    pub fn flush(&mut self) -> Result<(), IoError> {
        for output in 0..self.outputs.len() {
            while !self.end_block(output) {
                self.wait(BlockedOn::OutputMemory)?;
            }
        }
        self.write_full_blocks()
    }

    /// Waits until no output holds a full block.
    pub(super) fn write_full_blocks(&mut self) -> Result<(), IoError> {
        while self.occupancy.full_all() > 0 || self.occupancy.writing() > 0 {
            self.wait(BlockedOn::End)?;
        }
        Ok(())
    }

    /// Writes all that outputs hold, and ends them.
    pub fn finish(&mut self) -> Result<(), IoError> {
        if self.outputs.is_empty() {
            return Ok(());
        }
        while let Some(step) = self.in_flight.front().copied() {
            self.complete(step)?;
        }
        self.occupancy.close(|output| self.outputs[output].block.is_some());
        for output in &mut self.outputs {
            output.queue();
            output.ending = true;
        }
        self.write_full_blocks()?;
        for output in &mut self.outputs {
            output.written = output.stream.finish()?;
        }
        Ok(())
    }

    /// The stream of `output`.
    pub fn output_stream(&mut self, output: usize) -> &mut O {
        &mut self.outputs[output].stream
    }

    /// The streams of all outputs, after the end.
    pub fn into_outputs(self) -> impl Iterator<Item = O> {
        self.outputs.into_iter().map(|output| output.stream)
    }

    /// Bytes written to `output`, after the end.
    pub fn written(&self, output: usize) -> u64 {
        self.outputs[output].written
    }
}
