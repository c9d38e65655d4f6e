//! Streams, what they hold, and the schedule that moves their blocks: how a block is requested, awaited and taken.
//!
//! One thread runs the flow and asks the schedule. Device threads perform the requests, as many at a time as
//! [`Bowtie::depth`] allows. At a depth of one the flow runs as far as it can between any two blocks, as in the
//! published model, and the engine moves the same bytes as the simulator. At a larger depth requests overlap the
//! computing.
//!
//! Where streams are on several devices, or on a volume whose channels work side by side, a block for a busy device
//! waits while those for other devices are written:
//!
//! ```text
//!   schedule ─▶ Write(5) ─▶ device busy? ──no──▶ begun, in flight ─▶ completed
//!                               └──yes─▶ deferred ──┘ when the device has less to do
//! ```
//!
//! Invariants: all blocks come from one pool and never exceed it; a full block waits in its output's queue until the
//! schedule has it written; blocks of outputs stay free for them, and an input that holds no block finds one
//! ([`schedule`](crate::schedule)); while the flow waits for memory, no device is idle that has a full block to write.
//!
//! A flow that knows records in blocks uses [`take`](Bowtie::take) and [`release`](Bowtie::release) on inputs; one
//! that reads bytes uses [`data`](Bowtie::data) and [`consume`](Bowtie::consume). Outputs always get bytes.

use std::collections::VecDeque;

use ascot_io::clocks::{State, call, in_stage};
use ascot_io::{BlockPool, Buf, IoError};
use ascot_model::run_length::{Scheme, Shape};
use ascot_model::stages;

use crate::constants::{DEFAULT_DEPTH, MIN_DEVICE_DEPTH};
use crate::engine::adaption::Adaption;
use crate::engine::device_loads::DeviceLoads;
use crate::engine::observed::Observed;
use crate::engine::streams::{BlockInput, BlockOutput, Completed, PartBlock, Reader, TooFewBlocks, Writer};
use crate::occupancy::Occupancy;
use crate::schedule::{BlockedOn, Move, Schedule, SchedulerView, Split, Staircase};

/// Streams, what they hold, and the schedule that drives them.
pub struct Bowtie<I: BlockInput = Reader, O: BlockOutput = Writer> {
    pub(super) inputs: Vec<Input<I>>,
    pub(super) outputs: Vec<Output<O>>,
    /// Blocks that outputs fill, queue or write.
    pub(super) output_blocks: u32,
    /// Whether an output may hold a full block that there was no memory to replace.
    pub(super) full_block_waits: bool,
    pub(super) pool: BlockPool,
    pub(super) occupancy: Occupancy,
    schedule: Box<dyn Schedule>,
    /// The scheme that it follows as the share of reading changes; none: the share is given.
    adaption: Option<Adaption>,
    loads: DeviceLoads,
    /// Requests in flight, in the order begun.
    pub(super) in_flight: VecDeque<Move>,
    /// Outputs of which a block is written as soon as their device has less to do, in the order decided. Their blocks
    /// already count as being written.
    deferred_writes: VecDeque<usize>,
    /// Full blocks of the outputs whose device is idle.
    full_on_idle: Vec<u32>,
    pub(super) depth: usize,
    alternating: bool,
    /// The input that the flow knows to run out first.
    first_out: Option<usize>,
    /// The observer of the buckets, if there is one.
    pub(super) observed: Option<Observed>,
}

impl<I: BlockInput> Bowtie<I> {
    /// Inputs that share the blocks of `pool`, at least one for each. Every block that the schedule grants is
    /// requested at once.
    pub fn from_inputs(inputs: Vec<I>, pool: BlockPool, schedule: Box<dyn Schedule>) -> Self {
        let shape = Shape { inputs: inputs.len() as u32, outputs: 0, alpha: 1.0 };
        let split = Split { read: pool.total() as u32, write: 0 };
        Self::build(inputs, Vec::new(), pool, &shape, split, schedule).depth(usize::MAX)
    }
}

impl<O: BlockOutput> Bowtie<Reader, O> {
    /// Outputs that share the blocks of `pool`, at least two for each; the flow brings their data. Every block that
    /// the schedule grants is written at once.
    pub fn from_outputs(
        outputs: Vec<O>,
        pool: BlockPool,
        schedule: Box<dyn Schedule>,
    ) -> Result<Self, TooFewBlocks> {
        let split = Split { read: 0, write: pool.total() as u32 };
        Ok(Self::with_schedule(Vec::new(), outputs, pool, 0.0, split, schedule)?.depth(usize::MAX))
    }
}

impl<I: BlockInput, O: BlockOutput> Bowtie<I, O> {
    /// A bowtie driven by the staircase of a scheme, which must be one for this number of streams.
    pub fn new(
        inputs: Vec<I>,
        outputs: Vec<O>,
        pool: BlockPool,
        scheme: &Scheme,
    ) -> Result<Self, TooFewBlocks> {
        let split = Split::new(scheme, pool.total() as u32);
        let schedule = Box::new(Staircase::new(*scheme, split.read));
        Self::with_schedule(inputs, outputs, pool, scheme.shape.alpha, split, schedule)
    }

    /// A bowtie driven by any schedule, with memory divided by `split`. `alpha`: the share of reading in all bytes
    /// that move, as far as it is known beforehand.
    pub fn with_schedule(
        inputs: Vec<I>,
        outputs: Vec<O>,
        pool: BlockPool,
        alpha: f64,
        split: Split,
        schedule: Box<dyn Schedule>,
    ) -> Result<Self, TooFewBlocks> {
        let shape = Shape { inputs: inputs.len() as u32, outputs: outputs.len() as u32, alpha };
        let min = Split::min(&shape);
        let split = Split { read: split.read.max(min.read), write: split.write.max(min.write) };
        let needed = split.total() as usize;
        let blocks = pool.total();
        if blocks < needed {
            return Err(TooFewBlocks { inputs: inputs.len(), outputs: outputs.len(), needed, blocks });
        }
        Ok(Self::build(inputs, outputs, pool, &shape, split, schedule))
    }

    pub(super) fn build(
        inputs: Vec<I>,
        outputs: Vec<O>,
        pool: BlockPool,
        shape: &Shape,
        split: Split,
        schedule: Box<dyn Schedule>,
    ) -> Self {
        let mut occupancy = Occupancy::new(shape, split, pool.block_bytes() as u64);
        for (index, input) in inputs.iter().enumerate() {
            occupancy.set_remaining(index, input.remaining());
        }
        occupancy.expect_rates_by_length(inputs.iter().map(BlockInput::length).collect());
        let input_devices = inputs.iter().map(BlockInput::channel).collect();
        let output_devices = outputs.iter().map(BlockOutput::channel).collect();
        let this = Bowtie {
            inputs: inputs.into_iter().map(Input::new).collect(),
            outputs: outputs.into_iter().map(Output::new).collect(),
            output_blocks: 0,
            full_block_waits: false,
            pool,
            occupancy,
            schedule,
            adaption: None,
            loads: DeviceLoads::new(input_devices, output_devices),
            in_flight: VecDeque::new(),
            deferred_writes: VecDeque::new(),
            full_on_idle: Vec::new(),
            depth: 1,
            alternating: false,
            first_out: None,
            observed: None,
        };
        this.depth(DEFAULT_DEPTH)
    }

    /// Sets the number of requests in flight: at least one, and where there are several devices and more than one
    /// request, at least two for each device.
    #[must_use]
    pub fn depth(mut self, requests: usize) -> Self {
        self.depth = match requests {
            0 | 1 => 1,
            requests => requests.max(MIN_DEVICE_DEPTH * self.loads.devices()),
        };
        self
    }

    /// Sets whether moving and computing alternate: all requests begun while the flow waits are then completed before
    /// it goes on. Runs stay whole where others use the device meanwhile.
    #[must_use]
    pub fn alternating(mut self, alternating: bool) -> Self {
        self.alternating = alternating;
        self
    }

    /// Lets the bowtie, made with `scheme`, follow the share of reading as it is measured.
    #[must_use]
    pub fn adapting(mut self, scheme: &Scheme) -> Self {
        self.adaption = Adaption::new(scheme, self.occupancy.split());
        self
    }

    /// Treats the share of reading of its scheme as an estimate, which measurements soon replace.
    #[must_use]
    pub fn doubting_alpha(mut self) -> Self {
        self.occupancy.doubt_alpha();
        self
    }

    /// The share of reading in the bytes moved of late.
    pub fn alpha(&self) -> f64 {
        self.occupancy.alpha()
    }

    /// The memory that its streams share.
    pub fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// Whether requests are in flight.
    pub fn is_moving(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Tells the schedule which input runs out first, if the flow knows.
    pub(crate) fn set_first_out(&mut self, input: Option<usize>) {
        self.first_out = input;
    }

    /// Requests every block that the schedule grants while the flow runs, and collects those that are complete.
    pub fn pump(&mut self) -> Result<(), IoError> {
        for index in 0..self.inputs.len() {
            while self.inputs[index].ready() {
                self.complete(Move::Read(index))?;
            }
        }
        self.complete_written()?;
        if self.adaption.is_some() {
            let free = self.free_to_read().saturating_sub(self.returned_blocks());
            let Bowtie { adaption, occupancy, schedule, .. } = self;
            if let Some(adaption) = adaption {
                adaption.follow(occupancy, &mut **schedule, free);
            }
        }
        while self.requests() + 1 < self.depth && self.begin_next(BlockedOn::Nothing)? {}
        self.begin_deferred()
    }

    /// Requests in flight that count against the depth: those of files.
    fn requests(&self) -> usize {
        self.in_flight.iter().filter(|&&step| self.is_of_file(step)).count()
    }

    fn is_of_file(&self, step: Move) -> bool {
        match step {
            Move::Read(index) => self.occupancy.is_file(index),
            Move::Write(_) => true,
        }
    }

    /// Completes the writes that are done, which frees their memory.
    fn complete_written(&mut self) -> Result<(), IoError> {
        let mut at = 0;
        while let Some(&step) = self.in_flight.get(at) {
            match step {
                // The first write of an output here is its oldest.
                Move::Write(index) if self.outputs[index].stream.ready() => self.complete(step)?,
                _ => at += 1,
            }
        }
        Ok(())
    }

    /// Free blocks for inputs: those of the pool without the ones that outputs may still need.
    fn free_to_read(&self) -> u32 {
        let for_outputs = self.occupancy.write_blocks().saturating_sub(self.output_blocks);
        self.occupancy.free_to_read().min((self.pool.free() as u32).saturating_sub(for_outputs))
    }

    /// Begins the move that the schedule answers; says whether there was one.
    fn begin_next(&mut self, blocked_on: BlockedOn) -> Result<bool, IoError> {
        let free = self.free_to_read();
        let view = self.occupancy.view(blocked_on, free, self.first_out, self.loads.busy());
        let answer = self.schedule.next(&view);
        self.observe(answer);
        match answer {
            None => Ok(false),
            Some(Move::Read(index)) => self.begin_read(index),
            Some(Move::Write(index)) => {
                self.occupancy.begin_write(index);
                // With any number of requests in flight the devices have queues of their own.
                let is_limited = self.depth > 1 && self.depth < usize::MAX;
                if is_limited && self.loads.is_busy(index, self.depth) {
                    self.deferred_writes.push_back(index);
                } else {
                    self.begin_write(index)?;
                }
                Ok(true)
            }
        }
    }

    /// Reports the buckets before `answer` is followed, if someone observes them and it is a switch.
    fn observe(&mut self, answer: Option<Move>) {
        let Bowtie { observed, occupancy, outputs, schedule, .. } = self;
        let Some(observed) = observed.as_mut() else { return };
        if observed.is_switch(answer) {
            let staircases = schedule.staircases(occupancy.live_files(), occupancy.split());
            observed.report(answer, occupancy, outputs.iter().map(Output::filled), staircases);
        }
    }

    /// Requests a block of an input; says whether the pool had one for it.
    fn begin_read(&mut self, index: usize) -> Result<bool, IoError> {
        let for_outputs = self.occupancy.write_blocks().saturating_sub(self.output_blocks);
        if self.pool.free() as u32 <= for_outputs + self.returned_blocks() {
            return Ok(false);
        }
        let Some(buf) = self.pool.try_take() else { return Ok(false) };
        self.inputs[index].begin(buf)?;
        self.occupancy.begin_read(index);
        self.occupancy.set_remaining(index, self.inputs[index].remaining());
        self.note_begun(Move::Read(index));
        Ok(true)
    }

    fn begin_write(&mut self, index: usize) -> Result<(), IoError> {
        if !self.outputs[index].begin()? {
            return Err(misuse("the schedule writes an output that has no full block"));
        }
        self.note_begun(Move::Write(index));
        Ok(())
    }

    fn note_begun(&mut self, step: Move) {
        self.loads.begin(step);
        self.in_flight.push_back(step);
    }

    /// Begins the deferred writes whose device has less to do by now.
    fn begin_deferred(&mut self) -> Result<(), IoError> {
        let mut at = 0;
        while let Some(&index) = self.deferred_writes.get(at) {
            if self.loads.is_busy(index, self.depth) {
                at += 1;
            } else {
                self.deferred_writes.remove(at);
                self.begin_write(index)?;
            }
        }
        Ok(())
    }

    /// The flow waits for memory: idle devices get full blocks to write, in the order in which the schedule would
    /// write them if the outputs on idle devices were the only ones.
    fn begin_on_idle(&mut self) -> Result<(), IoError> {
        while self.depth > 1 && self.find_full_on_idle() {
            let free = self.free_to_read();
            let view = self.occupancy.view(BlockedOn::OutputMemory, free, self.first_out, self.loads.busy());
            let step = self.schedule.next(&SchedulerView { full: &self.full_on_idle, ..view });
            let index = match step {
                Some(Move::Read(index)) if self.begin_read(index)? => continue,
                Some(Move::Write(index)) if self.full_on_idle[index] > 0 => index,
                // It would read without memory, or leave the device idle: the fullest output is written.
                _ => (0..self.full_on_idle.len()).max_by_key(|&index| self.full_on_idle[index]).unwrap_or(0),
            };
            self.observe(Some(Move::Write(index)));
            self.occupancy.begin_write(index);
            self.begin_write(index)?;
        }
        Ok(())
    }

    /// Finds the full blocks of outputs whose device is idle; says whether there are any.
    fn find_full_on_idle(&mut self) -> bool {
        if self.loads.devices() == 0 {
            return false;
        }
        let Bowtie { full_on_idle, loads, occupancy, outputs, .. } = self;
        let full = |index| if loads.is_idle(index) { occupancy.full(index) } else { 0 };
        full_on_idle.clear();
        full_on_idle.extend((0..outputs.len()).map(full));
        full_on_idle.iter().any(|&full| full > 0)
    }

    /// Waits for the oldest request of a stream.
    pub(super) fn complete(&mut self, step: Move) -> Result<(), IoError> {
        let begun = self.in_flight.iter().position(|&begun| begun == step);
        debug_assert!(begun.is_some(), "{step:?} completes, but was not begun");
        begun.and_then(|at| self.in_flight.remove(at));
        self.loads.end(step);
        match step {
            Move::Read(index) => {
                if !self.inputs[index].complete()? {
                    self.occupancy.release(index);
                }
                self.occupancy.set_remaining(index, self.inputs[index].remaining());
            }
            Move::Write(index) => {
                self.outputs[index].stream.complete()?;
                self.output_blocks -= 1;
                self.occupancy.end_write();
            }
        }
        Ok(())
    }

    /// Waits until what the flow is blocked on may have changed.
    pub(crate) fn wait(&mut self, blocked_on: BlockedOn) -> Result<(), IoError> {
        let is_input = matches!(blocked_on, BlockedOn::Input(_) | BlockedOn::InputInFlight(_));
        let _stage = in_stage(if is_input { stages::READ } else { stages::WRITE });
        let mut result = self.wait_for(blocked_on);
        while self.alternating && result.is_ok() {
            let Some(step) = self.first_with_room() else { break };
            result = self.complete(step);
        }
        result
    }

    fn wait_for(&mut self, blocked_on: BlockedOn) -> Result<(), IoError> {
        let waits_for_writes = matches!(blocked_on, BlockedOn::OutputMemory | BlockedOn::End);
        loop {
            if let BlockedOn::Input(index) = blocked_on
                && (!self.inputs[index].filled.is_empty() || self.exhausted(index))
            {
                return Ok(());
            }
            while self.requests() < self.depth && self.begin_next(self.with_requests(blocked_on))? {}
            self.begin_deferred()?;
            if waits_for_writes {
                self.begin_on_idle()?;
            }
            let step = match blocked_on {
                BlockedOn::Input(index) if self.inputs[index].in_flight > 0 => Some(Move::Read(index)),
                _ if waits_for_writes => {
                    self.in_flight.iter().copied().find(|step| matches!(step, Move::Write(_)))
                }
                _ => None,
            };
            let first = || self.first_with_room().or_else(|| self.in_flight.front().copied());
            let Some(step) = step.or_else(first) else {
                return self.wait_for_foreign_blocks();
            };
            debug_assert!(
                !waits_for_writes || self.depth == 1 || !self.find_full_on_idle(),
                "a device is idle that has a full block to write"
            );
            self.complete(step)?;
            if !matches!((blocked_on, step), (BlockedOn::Input(wanted), Move::Read(index)) if wanted == index)
            {
                return Ok(());
            }
        }
    }

    /// The oldest request in flight that can be completed before the flow takes more of its stream; one of a file if
    /// there is any, because the partner of a pipe may be silent until the flow has moved what it waits for.
    fn first_with_room(&self) -> Option<Move> {
        let has_room = |step: &Move| match *step {
            Move::Read(index) => self.inputs[index].stream.has_room(),
            Move::Write(_) => true,
        };
        let mut steps = self.in_flight.iter().copied().filter(has_room);
        steps.clone().find(|&step| self.is_of_file(step)).or_else(|| steps.next())
    }

    /// What the flow is blocked on, seen with the requests in flight.
    fn with_requests(&self, blocked_on: BlockedOn) -> BlockedOn {
        match blocked_on {
            BlockedOn::Input(index) if self.inputs[index].in_flight > 0 => BlockedOn::InputInFlight(index),
            BlockedOn::OutputMemory if self.occupancy.writing() > 0 => BlockedOn::Nothing,
            other => other,
        }
    }

    /// Nothing is in flight and the schedule moves nothing. If others hold blocks of the pool, those come back.
    fn wait_for_foreign_blocks(&self) -> Result<(), IoError> {
        let arrived: usize = self.inputs.iter().map(|input| input.filled.len()).sum();
        let own = arrived + self.output_blocks as usize;
        if self.pool.total() - self.pool.free() > own {
            call(State::Memory, std::thread::yield_now);
            return Ok(());
        }
        Err(misuse(
            "the flow waits, and the schedule has nothing to move: a record may be larger than the memory of its side",
        ))
    }
}

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

    /// Whether `input` has no more blocks, arrived or to come.
    pub fn exhausted(&self, input: usize) -> bool {
        let Input { filled, in_flight, .. } = &self.inputs[input];
        filled.is_empty() && *in_flight == 0 && self.occupancy.remaining(input) == 0
    }

    /// The input streams, when the flow is done.
    pub fn streams(&self) -> impl Iterator<Item = &I> {
        self.inputs.iter().map(|input| &input.stream)
    }
}

fn misuse(what: &'static str) -> IoError {
    IoError::Misuse { path: "the streams".into(), offset: 0, what }
}

/// An input and the blocks that it holds.
pub(super) struct Input<I: BlockInput> {
    stream: I,
    /// Blocks that have arrived and were not taken.
    pub(super) filled: VecDeque<I::Block>,
    in_flight: u32,
    ended: bool,
}

impl<I: BlockInput> Input<I> {
    fn new(stream: I) -> Self {
        Input { stream, filled: VecDeque::new(), in_flight: 0, ended: false }
    }

    fn remaining(&self) -> u32 {
        if self.ended { 0 } else { self.stream.remaining() }
    }

    /// Whether the oldest request is complete.
    fn ready(&mut self) -> bool {
        self.in_flight > 0 && self.stream.has_room() && self.stream.ready()
    }

    fn begin(&mut self, buf: Buf) -> Result<(), IoError> {
        self.stream.begin(buf)?;
        self.in_flight += 1;
        Ok(())
    }

    /// Waits for the oldest request; says whether it brought a block.
    fn complete(&mut self) -> Result<bool, IoError> {
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

/// An output and the blocks that it holds.
pub(super) struct Output<O> {
    pub(super) stream: O,
    /// The block being filled; none before its first byte.
    pub(super) block: Option<PartBlock>,
    full: VecDeque<PartBlock>,
    /// Whether no more blocks will be filled.
    pub(super) ending: bool,
    /// Bytes written, once the stream has ended.
    pub(super) written: u64,
}

impl<O: BlockOutput> Output<O> {
    fn new(stream: O) -> Self {
        Output { stream, block: None, full: VecDeque::new(), ending: false, written: 0 }
    }

    /// Bytes in the block being filled.
    pub(super) fn filled(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.len)
    }

    /// The block being filled, full or not, waits to be written.
    pub(super) fn queue(&mut self) {
        self.full.extend(self.block.take());
    }

    /// Begins to write the oldest full block; says whether there was one.
    fn begin(&mut self) -> Result<bool, IoError> {
        let Some(PartBlock { buf, len }) = self.full.pop_front() else { return Ok(false) };
        self.stream.begin(buf, len)?;
        if self.ending && self.full.is_empty() {
            self.stream.end()?;
        }
        Ok(true)
    }
}
