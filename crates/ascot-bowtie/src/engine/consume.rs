//! How a flow takes its inputs: by blocks or by bytes.

use ascot_io::Filled;

use crate::engine::bowtie::Bowtie;
use crate::engine::streams::{BlockInput, BlockOutput};

/// Inputs, by blocks.
impl<I: BlockInput, O: BlockOutput> Bowtie<I, O> {
    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The next filled block of `input`, if one has arrived. When its memory is back in the pool, the caller calls
    /// [`Bowtie::release`].
    pub fn take(&mut self, input: usize) -> Option<I::Block> {
        self.inputs[input].filled.pop_front()
    }

    /// The flow has dropped `count` blocks of `input`, and has consumed this share of the next one.
    pub fn release(&mut self, input: usize, count: u32, consumed: f64) {
        let block = self.pool.block_bytes() as u64;
        for _ in 0..count {
            self.occupancy.consume_to(input, block);
            self.occupancy.release(input);
        }
        self.occupancy.consume_to(input, (consumed * block as f64) as u64);
    }

    /// Blocks of `input` that are requested and have not arrived.
    pub fn in_flight(&self, input: usize) -> u32 {
        self.inputs[input].in_flight
    }

    /// The input streams, when the flow is done.
    pub fn streams(&self) -> impl Iterator<Item = &I> {
        self.inputs.iter().map(|input| &input.stream)
    }
}

/// Inputs, by bytes.
impl<I: BlockInput<Block = Filled>, O: BlockOutput> Bowtie<I, O> {
    /// The data of `input`, up to the end of a block. If it is empty, the input is
    /// [`exhausted`](Self::exhausted) or must be waited for ([`Step::Need`](crate::flow::Step)).
    pub fn data(&self, input: usize) -> &[u8] {
        self.inputs[input].filled.front().map_or(&[], Filled::bytes)
    }

    /// Consumes the first `bytes` of [`data`](Self::data).
    pub fn consume(&mut self, input: usize, bytes: usize) {
        let filled = &mut self.inputs[input].filled;
        let Some(front) = filled.front_mut() else {
            debug_assert_eq!(bytes, 0, "bytes are consumed that have not arrived");
            return;
        };
        debug_assert!(bytes <= front.len(), "more bytes are consumed than have arrived");
        let bytes = bytes.min(front.len());
        front.start += bytes;
        self.occupancy.consume(input, bytes as u64);
        if front.is_empty() {
            filled.pop_front();
            self.occupancy.release(input);
        }
    }
}
