//! Outputs whose bytes wait in files that the system holds in memory: the schedule says which of them the device gets.
//!
//! Somebody else appends bytes to the files, at any output and in any order. What the device does not have yet is
//! bounded, and divided as in a bowtie without inputs (0 x m, A1):
//!
//! ```text
//!   append ─▶ output 0 [####|####|##  ]
//!      ...    output 1 [####|###      ] ──▶ Schedule: the fullest, all of it ──▶ ranges to write ──▶ written
//!   append ─▶ output m [##            ]
//!              full blocks | being filled
//! ```
//!
//! This is a state machine: it says what to write, and is told what was appended and what was written. It never touches
//! a file.
//!
//! Invariants: what waits never exceeds its limit, unless a single append does. The ranges of an output are adjacent.

use std::ops::Range;

use ascot_model::run_length::{Algorithm, Scheme, Shape};

use crate::constants::{SLACK_BYTES, WAITING_BLOCKS, WRITE_AHEAD_BYTES, WRITE_AHEAD_SHARE};
use crate::schedule::{BlockedOn, Move, Schedule, SchedulerView, Staircase};

/// The smallest block, bytes: a page.
const MIN_BLOCK_BYTES: u64 = 4096;

/// How much of what outputs hold may wait for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingMemory {
    /// The mean length of a run that the device needs, bytes: as soon as outputs hold enough for it, the device works.
    pub run_bytes: u64,
    /// The most bytes that wait. Runs are shorter where they do not suffice. If the device does not follow, runs are
    /// longer, but no more waits than it writes within a short time.
    pub max_bytes: u64,
}

/// Bytes of an output that the device gets now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The output.
    pub output: usize,
    /// Offsets in its file.
    pub range: Range<u64>,
}

/// Outputs whose bytes wait for the device.
pub struct WriteBehind {
    limits: WaitingMemory,
    outputs: Vec<Waiting>,
    /// Full blocks of each output.
    full: Vec<u32>,
    schedule: Staircase,
    /// Bytes that outputs hold before the device gets some, those of a block, and those that the device has at most.
    memory: u64,
    block: u64,
    ahead: u64,
    /// Bytes that wait at most.
    cap: u64,
    /// Bytes that wait, with those in flight.
    waiting: u64,
    in_flight: u64,
    runs: u64,
    last: Option<usize>,
}

/// What an output holds: the bytes from `begun` to `end` of its file.
struct Waiting {
    begun: u64,
    end: u64,
}

impl Waiting {
    fn bytes(&self) -> u64 {
        self.end - self.begun
    }
}

impl WriteBehind {
    /// No outputs yet.
    pub fn new(limits: WaitingMemory) -> Self {
        let mut behind = WriteBehind {
            limits,
            outputs: Vec::new(),
            full: Vec::new(),
            schedule: schedule_of(0),
            memory: 0,
            block: 0,
            ahead: 0,
            cap: 0,
            waiting: 0,
            in_flight: 0,
            runs: 0,
            last: None,
        };
        behind.divide();
        behind
    }

    /// Adds an output whose file has `bytes`, which do not wait. Returns its number.
    pub fn add_output(&mut self, bytes: u64) -> usize {
        self.outputs.push(Waiting { begun: bytes, end: bytes });
        self.full.push(0);
        let outputs = self.outputs.len() as u64;
        self.schedule = schedule_of(outputs as u32);
        self.divide();
        self.outputs.len() - 1
    }

    /// Sets other limits. What waits beyond them goes to the device before more is appended.
    pub fn limit(&mut self, limits: WaitingMemory) {
        self.limits = limits;
        self.divide();
    }

    /// Sets the memory and the block for the outputs that there are.
    fn divide(&mut self) {
        let outputs = self.outputs.len() as u64;
        self.ahead = (self.limits.max_bytes / WRITE_AHEAD_SHARE).min(WRITE_AHEAD_BYTES);
        // Buckets descend in equal steps from the largest, a run (theorem 1). One more run is for the blocks being
        // filled.
        let wanted = self.limits.run_bytes.saturating_mul(outputs + 1) / 2;
        self.memory = wanted.min(self.limits.max_bytes - self.ahead);
        self.cap = self.limits.max_bytes.min(self.memory.saturating_mul(2).max(SLACK_BYTES));
        let block =
            self.memory / (outputs.max(1) * u64::from(WAITING_BLOCKS)) / MIN_BLOCK_BYTES * MIN_BLOCK_BYTES;
        let before = std::mem::replace(&mut self.block, block.max(MIN_BLOCK_BYTES));
        if self.block != before {
            (0..self.outputs.len()).for_each(|output| self.count_full(output));
        }
    }

    /// Bytes that outputs hold before the device gets some, with the outputs so far.
    pub fn memory_bytes(&self) -> u64 {
        self.memory
    }

    /// Bytes that wait, with those whose writing has begun.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting
    }

    /// Whether `bytes` more may wait.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.waiting == 0 || self.waiting.saturating_add(bytes) <= self.cap
    }

    /// `bytes` were appended to the file of `output`.
    pub fn append(&mut self, output: usize, bytes: u64) {
        self.outputs[output].end += bytes;
        self.waiting += bytes;
        self.count_full(output);
    }

    /// What the device gets next, before `bytes` more are appended; `None`: nothing before some of what is in flight is
    /// written, or more is appended.
    pub fn next(&mut self, bytes: u64) -> Option<Write> {
        let held = self.waiting - self.in_flight;
        let free = self.memory.saturating_sub(held.saturating_add(bytes));
        // An output is drained while bytes arrive, some of them for it (A1): the device gets no more than it needs.
        if free > 0 || self.in_flight >= self.ahead.max(self.block) {
            return None;
        }
        // The device goes on with the next output when little is left of the last one.
        let is_nearly_idle = self.in_flight <= self.block.max(self.ahead / 2);
        let blocked_on = if is_nearly_idle { BlockedOn::OutputMemory } else { BlockedOn::Nothing };
        let view = SchedulerView {
            held: &[],
            remaining: &[],
            free_to_read: 0,
            full: &self.full,
            free_to_write: 0,
            shares: &[],
            runs_out: &[],
            gain: 1.0,
            busy: &[],
            blocked_on,
        };
        match self.schedule.next(&view) {
            Some(Move::Write(output)) => Some(self.begin(output, self.block)),
            _ if is_nearly_idle && !self.has_room(bytes) => self.rest(),
            _ => None,
        }
    }

    /// What the device gets next when nothing more is appended: all that the fullest output holds. `None`: the device
    /// has or gets everything.
    pub fn rest(&mut self) -> Option<Write> {
        let output = (0..self.outputs.len()).max_by_key(|&output| self.outputs[output].bytes())?;
        let bytes = self.outputs[output].bytes();
        (bytes > 0).then(|| self.begin(output, bytes))
    }

    /// `bytes` that were in flight are written.
    pub fn written(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.in_flight, "{bytes} bytes are written, but {} in flight", self.in_flight);
        self.in_flight -= bytes;
        self.waiting -= bytes;
    }

    /// The file of `output` is gone: what it held does not wait any more.
    pub fn forget(&mut self, output: usize) {
        self.waiting -= self.outputs[output].bytes();
        self.outputs[output].begun = self.outputs[output].end;
        self.full[output] = 0;
    }

    /// Times that the device turned to another output.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    fn begin(&mut self, output: usize, bytes: u64) -> Write {
        let begun = self.outputs[output].begun;
        let range = begun..begun + bytes;
        self.outputs[output].begun = range.end;
        self.in_flight += bytes;
        self.count_full(output);
        self.runs += u64::from(self.last.replace(output) != Some(output));
        Write { output, range }
    }

    fn count_full(&mut self, output: usize) {
        self.full[output] = (self.outputs[output].bytes() / self.block) as u32;
    }
}

fn schedule_of(outputs: u32) -> Staircase {
    let shape = Shape { inputs: 0, outputs, alpha: 0.0 };
    Staircase::new(Scheme::new(shape, Algorithm::A1, 1.0, 1.0), 0)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::simulate::{Setup, Skew, simulate};

    const PIECE: u64 = 256 << 10;

    /// A device that has up to `depth` writes in flight.
    struct Device {
        behind: WriteBehind,
        in_flight: VecDeque<u64>,
        depth: usize,
        written: Vec<u64>,
    }

    impl Device {
        fn new(outputs: usize, limits: WaitingMemory, depth: usize) -> Self {
            let mut behind = WriteBehind::new(limits);
            (0..outputs).for_each(|_| _ = behind.add_output(0));
            Device { behind, in_flight: VecDeque::new(), depth, written: vec![0; outputs] }
        }

        fn take(&mut self, write: &Write) {
            assert_eq!(write.range.start, self.written[write.output], "the ranges of a file are adjacent");
            self.written[write.output] = write.range.end;
            self.in_flight.push_back(write.range.end - write.range.start);
        }

        fn complete_down_to(&mut self, left: usize) {
            while self.in_flight.len() > left {
                self.behind.written(self.in_flight.pop_front().expect("a write"));
            }
        }

        fn append(&mut self, output: usize, bytes: u64) {
            loop {
                while let Some(write) = self.behind.next(bytes) {
                    self.take(&write);
                }
                if self.behind.has_room(bytes) {
                    break;
                }
                let left = self.in_flight.len().checked_sub(1).expect("nothing moves, and there is no room");
                self.complete_down_to(left);
            }
            self.behind.append(output, bytes);
            assert!(self.behind.waiting_bytes() <= self.behind.limits.max_bytes.max(bytes));
            self.complete_down_to(self.depth);
        }

        fn end(&mut self) {
            while let Some(write) = self.behind.rest() {
                self.take(&write);
            }
            self.complete_down_to(0);
            assert_eq!(self.behind.waiting_bytes(), 0);
        }
    }

    /// The device turns to another file as rarely as in the simulation of the published algorithm with the same
    /// memory, whether it is faster or slower than what is appended.
    #[test]
    fn the_device_switches_as_rarely_as_the_simulation() {
        for (outputs, depth) in [(8, 0), (32, 0), (32, 4), (32, usize::MAX), (100, 2)] {
            let memory = 256 << 20;
            let limits = WaitingMemory { run_bytes: u64::MAX, max_bytes: memory };
            let mut device = Device::new(outputs, limits, depth);
            let total = 40 * memory / PIECE;
            let mut random = 1_u64;
            for _ in 0..total {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                device.append((random >> 33) as usize % outputs, PIECE);
            }
            device.end();
            assert_eq!(device.written.iter().sum::<u64>(), total * PIECE);
            let scheme = Scheme::new(
                Shape { inputs: 0, outputs: outputs as u32, alpha: 0.0 },
                Algorithm::A1,
                1.0,
                1.0,
            );
            let setup = Setup {
                scheme,
                memory_blocks: (memory / PIECE) as u32,
                total_blocks: total,
                input_skew: Skew::Equal,
                output_skew: Skew::Equal,
                seed: 1,
            };
            let simulated = simulate(&setup, false).expect("no deadlock").runs;
            let runs = device.behind.runs();
            assert!(
                runs as f64 <= 1.1 * simulated as f64,
                "{outputs}, {depth}: {runs} runs, {simulated} simulated"
            );
        }
    }

    #[test]
    fn memory_is_what_the_runs_of_the_device_need() {
        let limits = WaitingMemory { run_bytes: 4 << 20, max_bytes: 1 << 30 };
        let mut device = Device::new(16, limits, 2);
        assert_eq!(device.behind.memory_bytes(), 34 << 20);
        (0..100_000).for_each(|piece| device.append(piece * 7 % 16, PIECE));
        device.end();
        let mean = 100_000 * PIECE / device.behind.runs();
        assert!((4 << 20..6 << 20).contains(&mean), "runs of {mean} bytes");
        // A device that does not follow gets longer runs, from what it writes within a short time.
        let mut slow = Device::new(16, limits, usize::MAX);
        (0..100_000).for_each(|piece| slow.append(piece * 7 % 16, PIECE));
        let waiting = slow.behind.waiting_bytes();
        assert!((200 << 20..=256 << 20).contains(&waiting), "{waiting} bytes wait");
        slow.end();
        let longer = 100_000 * PIECE / slow.behind.runs();
        assert!(longer > 25 << 20, "runs of {longer} bytes");
    }

    #[test]
    fn less_memory_holds_from_the_next_append_on() {
        let mut device = Device::new(4, WaitingMemory { run_bytes: u64::MAX, max_bytes: 64 << 20 }, 1);
        (0..256).for_each(|piece| device.append(piece % 4, PIECE));
        assert!(device.behind.waiting_bytes() > 32 << 20);
        device.behind.limit(WaitingMemory { run_bytes: u64::MAX, max_bytes: 8 << 20 });
        device.append(0, PIECE);
        assert!(device.behind.waiting_bytes() <= 8 << 20);
        device.end();
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Append(usize, u64),
        Add,
        Limit(u64),
        Forget(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            16 => (any::<usize>(), 1u64..1 << 20).prop_map(|(output, bytes)| Step::Append(output, bytes)),
            1 => Just(Step::Add),
            1 => prop_oneof![Just(0), Just(1), Just(4096), 1u64..1 << 22].prop_map(Step::Limit),
            1 => any::<usize>().prop_map(Step::Forget),
        ];
        prop::collection::vec(step, 0..300)
    }

    proptest! {
        /// Any appends to any number of outputs end, within the memory, with every byte written once, whatever outputs
        /// come and go and however the limit changes.
        #[test]
        fn everything_is_written_within_the_memory(
            outputs in 1usize..40,
            run in 0u64..1 << 22,
            memory in 0u64..1 << 22,
            depth in 0usize..5,
            steps in steps(),
        ) {
            let mut device = Device::new(outputs, WaitingMemory { run_bytes: run, max_bytes: memory }, depth);
            let mut ends: Vec<Option<u64>> = vec![Some(0); outputs];
            for step in steps {
                match step {
                    Step::Append(output, bytes) => {
                        let output = output % ends.len();
                        if let Some(end) = &mut ends[output] {
                            *end += bytes;
                            device.append(output, bytes);
                        }
                    }
                    Step::Add => {
                        ends.push(Some(0));
                        device.written.push(0);
                        device.behind.add_output(0);
                    }
                    Step::Limit(max_bytes) => device.behind.limit(WaitingMemory { run_bytes: run, max_bytes }),
                    Step::Forget(output) => {
                        let output = output % ends.len();
                        device.behind.forget(output);
                        ends[output] = None;
                    }
                }
            }
            device.end();
            for (written, end) in device.written.iter().zip(ends) {
                prop_assert!(end.is_none_or(|end| end == *written));
            }
        }
    }
}
