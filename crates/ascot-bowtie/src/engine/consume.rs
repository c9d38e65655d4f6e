//! How a flow that reads bytes consumes its inputs. A block whose bytes are consumed goes back to the pool.

use ascot_io::Filled;

use crate::engine::bowtie::Bowtie;
use crate::engine::streams::{BlockInput, BlockOutput};

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
