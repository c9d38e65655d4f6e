//! Drives real streams as a schedule says and calls the flow: n inputs, m outputs, one memory.
//!
//! ```text
//!   input 0 ─▶ [filled] ─╮                 ╭─ [being filled][full] ─▶ output 0
//!      ...               ├──▶  Flow  ──────┤        ...
//!   input n ─▶ [filled] ─╯                 ╰─ [being filled][full] ─▶ output m
//!        ▲                                            ▲
//!        ╰────────── Schedule: the next block ────────╯
//! ```
//!
//! One thread runs the flow and asks the schedule; the streams' own arms perform the requests, as many at
//! a time as [`Bowtie::depth`] allows. At a depth of one the flow goes as far as it can between any two
//! blocks, as the published model has it, and what moves is what the simulator says to the last byte. With
//! more, requests follow each other while the flow computes.
//!
//! Where streams are on several devices, or on a volume whose channels work side by side, a block that is to
//! be written waits while its device has enough to do, and those of other devices go on.
//!
//! Invariants: all blocks come from one pool and are never more than it has; a full block waits in its
//! output's queue until the schedule has it written; blocks of outputs are kept free for them, and an input
//! without a block finds one ([`schedule`](crate::schedule)); while the flow waits for room, no device is idle
//! that has a full block to write.

mod channels;
mod inputs;
mod outputs;
mod streams;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ascot_io::{BlockPool, IoError};
use ascot_model::run_length::{Scheme, Shape};

use crate::engine::channels::Channels;
use crate::engine::inputs::Inputs;
pub use crate::engine::inputs::{BlockInput, Completed};
pub use crate::engine::outputs::BlockOutput;
use crate::engine::outputs::Outputs;
pub use crate::engine::streams::{NoInput, NoOutput, Reader, Writer, complete_down_to};
use crate::flow::{Flow, Step};
use crate::occupancy::{Occupancy, Split};
use crate::schedule::{Move, Schedule, Sight, Staircase, Stall};

/// Requests in flight where nothing else is said: one being performed, one that follows at once.
const USUAL_DEPTH: usize = 4;
/// Least requests in flight for each device, where there are several.
const LEAST_DEPTH: usize = 2;

/// A pool that is too small for a bowtie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{inputs} inputs and {outputs} outputs need {needed} blocks of memory, and there are {blocks}; allow more memory, or make blocks smaller"
)]
pub struct TooFewBlocks {
    /// Input streams.
    pub inputs: usize,
    /// Output streams.
    pub outputs: usize,
    /// Blocks needed.
    pub needed: usize,
    /// Blocks in the pool.
    pub blocks: usize,
}

/// Streams, what they hold, and the schedule that drives them.
pub struct Bowtie<I: BlockInput = Reader, O: BlockOutput = Writer> {
    inputs: Inputs<I>,
    channels: Channels,
    outputs: Outputs<O>,
    pool: BlockPool,
    schedule: Box<dyn Schedule>,
    occupancy: Occupancy,
    /// What is in flight, in the order begun.
    begun: VecDeque<Move>,
    /// Outputs of which a block is to be written when its device has less to do, in the order decided. Their
    /// blocks count as being written.
    held: VecDeque<usize>,
    /// Full blocks of the outputs whose device is idle.
    on_idle: Vec<u32>,
    depth: usize,
    /// What is begun while the flow stands still is done before it goes on.
    in_turn: bool,
    /// The input that the flow knows to run out first.
    first_out: Option<usize>,
    waited: Duration,
}

impl<I: BlockInput> Bowtie<I, NoOutput> {
    /// Inputs that share the blocks of `pool`; there must be at least one block for each. Every block the
    /// schedule grants is asked for at once.
    pub fn of_inputs(inputs: Vec<I>, pool: BlockPool, schedule: Box<dyn Schedule>) -> Self {
        let shape = Shape { inputs: inputs.len() as u32, outputs: 0, alpha: 1.0 };
        let split = Split { read: pool.total() as u32, write: 0 };
        let mut this = Self::build((inputs, Vec::new()), pool, &shape, split, schedule);
        this.depth = usize::MAX;
        this
    }
}

impl<O: BlockOutput> Bowtie<NoInput, O> {
    /// Outputs that share the blocks of `pool`, at least two for each; the flow brings what they get. Every
    /// block the schedule grants is written at once.
    pub fn of_outputs(
        outputs: Vec<O>,
        pool: BlockPool,
        schedule: Box<dyn Schedule>,
    ) -> Result<Self, TooFewBlocks> {
        let split = Split { read: 0, write: pool.total() as u32 };
        let this = Self::with_schedule((Vec::new(), outputs), pool, 0.0, split, schedule)?;
        Ok(this.depth(usize::MAX))
    }
}

impl<I: BlockInput, O: BlockOutput> Bowtie<I, O> {
    /// A bowtie driven by the staircase of a scheme, which must be one for as many streams.
    pub fn new(
        inputs: Vec<I>,
        outputs: Vec<O>,
        pool: BlockPool,
        scheme: &Scheme,
    ) -> Result<Self, TooFewBlocks> {
        let split = Split::of(scheme, pool.total() as u32);
        let schedule = Box::new(Staircase::new(*scheme, split.read));
        Self::with_schedule((inputs, outputs), pool, scheme.shape.alpha, split, schedule)
    }

    /// A bowtie driven by any schedule, with so many blocks for inputs and for outputs. `alpha`: the share
    /// of reading in all that moves, as far as it is known beforehand.
    pub fn with_schedule(
        (inputs, outputs): (Vec<I>, Vec<O>),
        pool: BlockPool,
        alpha: f64,
        split: Split,
        schedule: Box<dyn Schedule>,
    ) -> Result<Self, TooFewBlocks> {
        let shape = Shape { inputs: inputs.len() as u32, outputs: outputs.len() as u32, alpha };
        let least = Split::least(&shape);
        let (read, write) = (split.read.max(least.read), split.write.max(least.write));
        let needed = (read + write) as usize;
        if pool.total() < needed {
            let (inputs, outputs) = (inputs.len(), outputs.len());
            return Err(TooFewBlocks { inputs, outputs, needed, blocks: pool.total() });
        }
        Ok(Self::build((inputs, outputs), pool, &shape, Split { read, write }, schedule))
    }

    fn build(
        (inputs, outputs): (Vec<I>, Vec<O>),
        pool: BlockPool,
        shape: &Shape,
        split: Split,
        schedule: Box<dyn Schedule>,
    ) -> Self {
        let occupancy = Occupancy::new(shape, split, pool.block_bytes() as u64);
        let (inputs, outputs) = (Inputs::new(inputs), Outputs::new(outputs));
        let mut this = Bowtie {
            channels: Channels::of(&inputs.channels(), &outputs.channels()),
            inputs,
            outputs,
            pool,
            schedule,
            occupancy,
            begun: VecDeque::new(),
            held: VecDeque::new(),
            on_idle: Vec::new(),
            depth: USUAL_DEPTH,
            in_turn: false,
            first_out: None,
            waited: Duration::ZERO,
        };
        for index in 0..this.inputs.len() {
            this.occupancy.set_remaining(index, this.inputs.remaining(index));
        }
        this.depth(USUAL_DEPTH)
    }

    /// The same with so many requests in flight at most, one at least; where there are several devices and
    /// more than one request, two for each at least.
    #[must_use]
    pub fn depth(mut self, requests: usize) -> Self {
        self.depth = match requests {
            0 | 1 => 1,
            requests => requests.max(LEAST_DEPTH * self.channels.devices()),
        };
        self
    }

    /// The same, but all that the schedule has moved while the flow stands still is moved before it goes on:
    /// where others use the device meanwhile, runs stay whole.
    #[must_use]
    pub fn in_turn(mut self, in_turn: bool) -> Self {
        self.in_turn = in_turn;
        self
    }

    /// Time the flow stood still for want of data or room.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Asks for every block the schedule grants while the flow goes on, and collects those that have
    /// arrived.
    pub fn pump(&mut self) -> Result<(), IoError> {
        for index in 0..self.inputs.len() {
            while self.inputs.ready(index) {
                self.complete(Move::Read(index))?;
            }
        }
        self.complete_written()?;
        while self.begun.len() + 1 < self.depth && self.begin_next(Stall::Running)? {}
        self.begin_held()
    }

    /// Takes note of blocks that have been written, whose memory is free.
    fn complete_written(&mut self) -> Result<(), IoError> {
        let mut at = 0;
        while let Some(&step) = self.begun.get(at) {
            match step {
                // The oldest of an output is the first of them here.
                Move::Write(index) if self.outputs.ready(index) => self.complete(step)?,
                _ => at += 1,
            }
        }
        Ok(())
    }

    /// Blocks that are there for inputs: what outputs may still claim is not.
    fn free_to_read(&self) -> u32 {
        let claimed = self.occupancy.write_blocks().saturating_sub(self.outputs.blocks());
        self.occupancy.free_to_read().min((self.pool.free() as u32).saturating_sub(claimed))
    }

    /// Begins what the schedule answers; says whether it was anything.
    fn begin_next(&mut self, stall: Stall) -> Result<bool, IoError> {
        let free = self.free_to_read();
        let sight = self.occupancy.look(stall, free, self.first_out, self.channels.busy());
        let Some(step) = self.schedule.next(&sight) else { return Ok(false) };
        match step {
            Move::Read(index) => self.begin_read(index),
            Move::Write(index) => {
                self.occupancy.writes(index);
                // With any number of requests in flight the devices have their own queues.
                let limited = self.depth > 1 && self.depth < usize::MAX;
                if limited && self.channels.is_busy(index, self.depth) {
                    self.held.push_back(index);
                } else {
                    self.begin_write(index)?;
                }
                Ok(true)
            }
        }
    }

    fn begin_read(&mut self, index: usize) -> Result<bool, IoError> {
        let Some(buf) = self.pool.try_take() else { return Ok(false) };
        self.inputs.begin(index, buf)?;
        self.occupancy.reads(index);
        self.occupancy.set_remaining(index, self.inputs.remaining(index));
        self.note_begun(Move::Read(index));
        Ok(true)
    }

    fn begin_write(&mut self, index: usize) -> Result<(), IoError> {
        self.outputs.begin(index)?;
        self.note_begun(Move::Write(index));
        Ok(())
    }

    fn note_begun(&mut self, step: Move) {
        self.channels.count(step, 1);
        self.begun.push_back(step);
    }

    /// Begins what is held and whose device has less to do by now.
    fn begin_held(&mut self) -> Result<(), IoError> {
        let mut at = 0;
        while let Some(&index) = self.held.get(at) {
            if self.channels.is_busy(index, self.depth) {
                at += 1;
            } else {
                self.held.remove(at);
                self.begin_write(index)?;
            }
        }
        Ok(())
    }

    /// The flow waits for room: devices that are idle get full blocks of theirs to write, in the order that
    /// the schedule would write them in if there were no others.
    fn begin_on_idle(&mut self) -> Result<(), IoError> {
        while self.depth > 1 && self.find_on_idle() {
            let free = self.free_to_read();
            let sight = self.occupancy.look(Stall::Room, free, self.first_out, self.channels.busy());
            let step = self.schedule.next(&Sight { full: &self.on_idle, ..sight });
            let index = match step {
                Some(Move::Read(index)) if self.begin_read(index)? => continue,
                Some(Move::Write(index)) if self.on_idle[index] > 0 => index,
                // It would read, and has no memory, or would let the device be idle.
                _ => (0..self.on_idle.len()).max_by_key(|&index| self.on_idle[index]).unwrap_or(0),
            };
            self.occupancy.writes(index);
            self.begin_write(index)?;
        }
        Ok(())
    }

    /// Looks for full blocks of outputs whose device is idle; says whether there are any.
    fn find_on_idle(&mut self) -> bool {
        if self.channels.devices() == 0 {
            return false;
        }
        let Bowtie { on_idle, channels, occupancy, outputs, .. } = self;
        on_idle.clear();
        on_idle.extend(
            (0..outputs.len()).map(|index| if channels.is_idle(index) { occupancy.full(index) } else { 0 }),
        );
        on_idle.iter().any(|&full| full > 0)
    }

    /// Waits for the oldest request of a stream.
    fn complete(&mut self, step: Move) -> Result<(), IoError> {
        if let Some(at) = self.begun.iter().position(|&begun| begun == step) {
            self.begun.remove(at);
        }
        self.channels.count(step, -1);
        match step {
            Move::Read(index) => {
                if !self.inputs.collect(index)? {
                    self.occupancy.let_go(index);
                }
                self.occupancy.set_remaining(index, self.inputs.remaining(index));
            }
            Move::Write(index) => {
                self.outputs.complete(index)?;
                self.occupancy.written();
            }
        }
        Ok(())
    }

    /// Waits until what the flow stands still for may have changed.
    fn wait(&mut self, stall: Stall) -> Result<(), IoError> {
        let since = Instant::now();
        let mut result = self.wait_for(stall);
        while self.in_turn && result.is_ok() {
            let Some(step) = self.begun.front().copied() else { break };
            result = self.complete(step);
        }
        self.waited += since.elapsed();
        result
    }

    fn wait_for(&mut self, stall: Stall) -> Result<(), IoError> {
        loop {
            if matches!(stall, Stall::Input(index) if self.inputs.has_block(index) || self.exhausted(index)) {
                return Ok(());
            }
            while self.begun.len() < self.depth && self.begin_next(self.seen(stall))? {}
            self.begin_held()?;
            if matches!(stall, Stall::Room | Stall::Ended) {
                self.begin_on_idle()?;
            }
            let step = match stall {
                Stall::Input(index) if self.inputs.in_flight(index) > 0 => Some(Move::Read(index)),
                Stall::Room | Stall::Ended => {
                    self.begun.iter().copied().find(|step| matches!(step, Move::Write(_)))
                }
                _ => None,
            };
            let Some(step) = step.or_else(|| self.begun.front().copied()) else { return self.idle() };
            debug_assert!(
                !matches!(stall, Stall::Room | Stall::Ended) || self.depth == 1 || !self.find_on_idle(),
                "a device is idle that has a full block to write"
            );
            self.complete(step)?;
            if !matches!((stall, step), (Stall::Input(wanted), Move::Read(index)) if wanted == index) {
                return Ok(());
            }
        }
    }

    /// Why the flow stands still, as the schedule is to see it.
    fn seen(&self, stall: Stall) -> Stall {
        match stall {
            Stall::Input(index) if self.inputs.in_flight(index) > 0 => Stall::Arriving(index),
            Stall::Room if self.occupancy.writing() > 0 => Stall::Running,
            stall => stall,
        }
    }

    /// Nothing is in flight and nothing may be begun. Where others hold blocks, those will come back.
    fn idle(&self) -> Result<(), IoError> {
        let own = self.inputs.blocks() + self.outputs.blocks() as usize;
        if self.pool.total() - self.pool.free() > own {
            std::thread::yield_now();
            return Ok(());
        }
        let what = "the flow waits, and the schedule has nothing to move: a record may be larger than the \
                    memory of its side";
        Err(IoError::Misuse { path: "the streams".into(), offset: 0, what })
    }

    /// Writes what outputs still hold, and ends them.
    fn close(&mut self) -> Result<(), IoError> {
        if self.outputs.len() == 0 {
            return Ok(());
        }
        while let Some(step) = self.begun.front().copied() {
            self.complete(step)?;
        }
        self.occupancy.close(|output| self.outputs.fills(output));
        self.outputs.close();
        while self.occupancy.full_all() > 0 || self.occupancy.writing() > 0 {
            self.wait(Stall::Ended)?;
        }
        self.outputs.finish()
    }
}

/// Runs a flow over its streams until it is done and all its output is written. `between` is called between
/// steps (progress, cancelling); it may end the run by an error.
pub fn run<I, O, F>(
    bowtie: &mut Bowtie<I, O>,
    flow: &mut F,
    mut between: impl FnMut() -> Result<(), F::Error>,
) -> Result<(), F::Error>
where
    I: BlockInput,
    O: BlockOutput,
    F: Flow<I, O>,
{
    loop {
        bowtie.pump()?;
        bowtie.settle();
        let step = flow.step(bowtie)?;
        bowtie.first_out = flow.runs_out_first();
        match step {
            Step::Progress => {}
            Step::Need(index) => bowtie.wait(Stall::Input(index))?,
            Step::Full => bowtie.wait(Stall::Room)?,
            Step::Done => return Ok(bowtie.close()?),
        }
        between()?;
    }
}

#[cfg(test)]
mod tests;
