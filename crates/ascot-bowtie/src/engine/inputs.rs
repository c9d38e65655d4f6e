//! The input side: streams of blocks, and the blocks of them that have arrived.

use std::collections::VecDeque;

use ascot_io::{Buf, Filled, IoError};

use crate::engine::{BlockOutput, Bowtie};

/// A stream of blocks, read forward.
pub trait BlockInput: Send {
    /// What a filled block is to the flow.
    type Block: Send;
    /// Blocks not yet asked for; an upper bound where the end is not known.
    fn remaining(&self) -> u32;
    /// Asks for the next block into `buf`.
    fn begin(&mut self, buf: Buf) -> Result<(), IoError>;
    /// Waits for the oldest block asked for.
    fn complete(&mut self) -> Result<Completed<Self::Block>, IoError>;
    /// Whether `complete` would return at once.
    fn ready(&mut self) -> bool;
    /// The device behind it, as [`channel`](ascot_io::ReadStream::channel) has it.
    fn channel(&self) -> Option<u64> {
        None
    }
}

/// What became of a block asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed<B> {
    /// Here it is.
    Block(B),
    /// It was taken in, and makes a block together with those to come.
    Nothing,
    /// The stream had ended before it.
    Ended,
}

struct Input<I: BlockInput> {
    stream: I,
    filled: VecDeque<I::Block>,
    in_flight: u32,
    ended: bool,
}

/// All inputs.
pub(super) struct Inputs<I: BlockInput>(Vec<Input<I>>);

impl<I: BlockInput> Inputs<I> {
    pub(super) fn new(streams: Vec<I>) -> Self {
        let input = |stream| Input { stream, filled: VecDeque::new(), in_flight: 0, ended: false };
        Inputs(streams.into_iter().map(input).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The devices behind them.
    pub(super) fn channels(&self) -> Vec<Option<u64>> {
        self.0.iter().map(|input| input.stream.channel()).collect()
    }

    pub(super) fn remaining(&self, input: usize) -> u32 {
        let Input { stream, ended, .. } = &self.0[input];
        if *ended { 0 } else { stream.remaining() }
    }

    pub(super) fn in_flight(&self, input: usize) -> u32 {
        self.0[input].in_flight
    }

    pub(super) fn has_block(&self, input: usize) -> bool {
        !self.0[input].filled.is_empty()
    }

    /// Blocks that have arrived and were not taken.
    pub(super) fn blocks(&self) -> usize {
        self.0.iter().map(|input| input.filled.len()).sum()
    }

    /// Whether a block has arrived and was not collected.
    pub(super) fn ready(&mut self, input: usize) -> bool {
        let input = &mut self.0[input];
        input.in_flight > 0 && input.stream.ready()
    }

    pub(super) fn begin(&mut self, input: usize, buf: Buf) -> Result<(), IoError> {
        let input = &mut self.0[input];
        input.stream.begin(buf)?;
        input.in_flight += 1;
        Ok(())
    }

    /// Waits for the oldest block asked for; says whether it was one.
    pub(super) fn collect(&mut self, input: usize) -> Result<bool, IoError> {
        let input = &mut self.0[input];
        let completed = input.stream.complete();
        input.in_flight -= 1;
        match completed? {
            Completed::Block(block) => {
                input.filled.push_back(block);
                return Ok(true);
            }
            Completed::Nothing => {}
            Completed::Ended => input.ended = true,
        }
        Ok(false)
    }
}

/// Whole blocks.
impl<I: BlockInput, O: BlockOutput> Bowtie<I, O> {
    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The next filled block of `input`, if one has arrived. The caller keeps it as long as it needs and
    /// says so by [`Bowtie::released`] when its memory is back in the pool.
    pub fn take(&mut self, input: usize) -> Option<I::Block> {
        self.inputs.0[input].filled.pop_front()
    }

    /// The flow dropped `count` blocks of `input`.
    pub fn released(&mut self, input: usize, count: u32) {
        for _ in 0..count {
            self.occupancy.consumed(input, self.pool.block_bytes() as u64);
            self.occupancy.let_go(input);
        }
    }

    /// Whether `input` has no more blocks, filled or to come.
    pub fn exhausted(&self, input: usize) -> bool {
        let this = &self.inputs.0[input];
        this.filled.is_empty() && this.in_flight == 0 && self.occupancy.remaining(input) == 0
    }

    /// Blocks of `input` asked for and not yet arrived.
    pub fn in_flight(&self, input: usize) -> u32 {
        self.inputs.in_flight(input)
    }

    /// The input streams themselves, when the flow is done.
    pub fn streams(&self) -> impl Iterator<Item = &I> {
        self.inputs.0.iter().map(|input| &input.stream)
    }
}

/// Bytes.
impl<I: BlockInput<Block = Filled>, O: BlockOutput> Bowtie<I, O> {
    /// What is there of `input`, up to the end of a block. Nothing: it has ended, as
    /// [`exhausted`](Self::exhausted) says, or must be waited for ([`Step::Need`](crate::flow::Step)).
    pub fn data(&self, input: usize) -> &[u8] {
        self.inputs.0[input].filled.front().map_or(&[], Filled::bytes)
    }

    /// The first `bytes` of [`data`](Self::data) are done with.
    pub fn consume(&mut self, input: usize, bytes: usize) {
        let filled = &mut self.inputs.0[input].filled;
        let Some(front) = filled.front_mut() else { return };
        let bytes = bytes.min(front.len());
        front.start += bytes;
        self.occupancy.consumed(input, bytes as u64);
        if front.is_empty() {
            filled.pop_front();
            self.occupancy.let_go(input);
        }
    }
}
