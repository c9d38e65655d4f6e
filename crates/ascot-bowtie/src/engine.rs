//! Drives real streams as a schedule says and calls the flow.
//!
//! One thread runs the flow; the streams' own arms perform the requests. Between two steps of the
//! flow the engine asks for every block the schedule grants, so that the device always has work
//! while the flow computes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ascot_io::IoError;
use ascot_io::{BlockPool, Buf};

use crate::schedule::{Occupancies, Schedule};

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

/// What the flow wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Call again; blocks may have been consumed.
    Progress,
    /// This input must give another block, or end, first.
    Need(usize),
    /// All is consumed and emitted.
    Done,
}

/// The function in the middle.
pub trait Flow<I: BlockInput> {
    /// What can go wrong in it, besides the streams.
    type Error: From<IoError>;
    /// Consumes what it can from the inputs.
    fn step(&mut self, inputs: &mut Inputs<I>) -> Result<Step, Self::Error>;
}

struct Input<I: BlockInput> {
    stream: I,
    filled: VecDeque<I::Block>,
    in_flight: u32,
    ended: bool,
}

/// The input side: streams, what they hold, and the schedule.
pub struct Inputs<I: BlockInput> {
    inputs: Vec<Input<I>>,
    pool: BlockPool,
    schedule: Box<dyn Schedule>,
    held: Vec<u32>,
    remaining: Vec<u32>,
    waited: Duration,
}

impl<I: BlockInput> Inputs<I> {
    /// Inputs that share the blocks of `pool`; there must be at least one block for each.
    pub fn new(streams: Vec<I>, pool: BlockPool, schedule: Box<dyn Schedule>) -> Self {
        let count = streams.len();
        let inputs = streams
            .into_iter()
            .map(|stream| Input { stream, filled: VecDeque::new(), in_flight: 0, ended: false })
            .collect();
        let mut this = Inputs {
            inputs,
            pool,
            schedule,
            held: vec![0; count],
            remaining: vec![0; count],
            waited: Duration::ZERO,
        };
        for index in 0..count {
            this.remaining[index] = this.inputs[index].stream.remaining();
        }
        this
    }

    /// Number of inputs.
    pub fn len(&self) -> usize {
        self.inputs.len()
    }

    /// Whether there are no inputs.
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// The next filled block of `input`, if one has arrived. The caller keeps it as long as it
    /// needs and says so by [`Inputs::released`] when its memory is back in the pool.
    pub fn take(&mut self, input: usize) -> Option<I::Block> {
        self.inputs[input].filled.pop_front()
    }

    /// Whether `input` has no more blocks, filled or to come.
    pub fn exhausted(&self, input: usize) -> bool {
        let this = &self.inputs[input];
        this.filled.is_empty() && this.in_flight == 0 && (this.ended || self.remaining[input] == 0)
    }

    /// The streams themselves, when the flow is done.
    pub fn streams(&self) -> impl Iterator<Item = &I> {
        self.inputs.iter().map(|input| &input.stream)
    }

    /// Blocks of `input` asked for and not yet arrived.
    pub fn in_flight(&self, input: usize) -> u32 {
        self.inputs[input].in_flight
    }

    /// The flow dropped `count` blocks of `input`.
    pub fn released(&mut self, input: usize, count: u32) {
        self.held[input] -= count;
    }

    /// Time the flow stood still for want of data.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Asks for every block the schedule grants, and collects those that have arrived.
    pub fn pump(&mut self) -> Result<(), IoError> {
        for index in 0..self.inputs.len() {
            while self.inputs[index].in_flight > 0 && self.inputs[index].stream.ready() {
                self.collect(index)?;
            }
        }
        loop {
            let now = Occupancies { held: &self.held, remaining: &self.remaining, free: self.pool.free() };
            let Some(index) = self.schedule.next_read(&now) else { return Ok(()) };
            let Some(buf) = self.pool.try_take() else { return Ok(()) };
            let input = &mut self.inputs[index];
            input.stream.begin(buf)?;
            input.in_flight += 1;
            self.held[index] += 1;
            self.remaining[index] = input.stream.remaining();
        }
    }

    /// Waits until `input` has given a block or ended.
    fn wait(&mut self, index: usize) -> Result<(), IoError> {
        if !self.inputs[index].filled.is_empty() || self.exhausted(index) {
            return Ok(());
        }
        if self.inputs[index].in_flight == 0 {
            self.pump()?;
        }
        let since = Instant::now();
        while self.inputs[index].filled.is_empty() && self.inputs[index].in_flight > 0 {
            self.collect(index)?;
            if self.inputs[index].in_flight == 0 {
                self.pump()?;
            }
        }
        self.waited += since.elapsed();
        Ok(())
    }

    fn collect(&mut self, index: usize) -> Result<(), IoError> {
        let input = &mut self.inputs[index];
        let block = input.stream.complete();
        input.in_flight -= 1;
        match block? {
            Completed::Block(block) => input.filled.push_back(block),
            Completed::Nothing => self.held[index] -= 1,
            Completed::Ended => {
                input.ended = true;
                self.held[index] -= 1;
            }
        }
        self.remaining[index] = if input.ended { 0 } else { input.stream.remaining() };
        Ok(())
    }
}

/// Runs a flow over its inputs until it is done. `between` is called between steps (progress,
/// cancelling); it may end the run by an error.
pub fn run<I, F>(
    inputs: &mut Inputs<I>,
    flow: &mut F,
    mut between: impl FnMut() -> Result<(), F::Error>,
) -> Result<(), F::Error>
where
    I: BlockInput,
    F: Flow<I>,
{
    loop {
        inputs.pump()?;
        match flow.step(inputs)? {
            Step::Progress => {}
            Step::Need(index) => inputs.wait(index)?,
            Step::Done => return Ok(()),
        }
        between()?;
    }
}
