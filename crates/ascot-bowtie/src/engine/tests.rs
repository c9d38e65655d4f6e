//! The engine against the simulator, and flows that are hard to serve.

use ascot_io::{BlockPool, Buf, Direction, IoError};
use ascot_model::run_length::{Algorithm, Scheme, Shape};
use ascot_model::volume::VolumeProfile;
use ascot_testing::virtual_disk::VirtualDisk;
use proptest::prelude::*;

use super::*;
use crate::flow::{Flow, Step, run};
use crate::schedule::{BlockedOn, FewestHeld, Forecast, Move, Schedule, SchedulerView, Split, Staircase};
use crate::simulate::{RateModel, Setup, Skew, StreamState, UNITS, simulate};

mod gain;
mod promised_blocks;
mod silent_pipe;

const BLOCK: usize = UNITS as usize;

fn blocks(count: u32) -> BlockPool {
    BlockPool::new(Buf::heap(count as usize * BLOCK), BLOCK)
}

fn disk() -> VirtualDisk {
    VirtualDisk::new(VolumeProfile::simple("array", 1e9, 1e9, 0.01)).keeping_runs()
}

/// The function of the simulator, on bytes.
struct Simulated {
    function: RateModel,
}

impl StreamState for Bowtie {
    fn is_live(&self, input: usize) -> bool {
        !self.exhausted(input)
    }

    fn has_data(&self, input: usize) -> bool {
        !self.data(input).is_empty()
    }

    fn has_free(&self, output: usize) -> bool {
        self.free_bytes(output) > 0
    }
}

impl Flow for Simulated {
    type Error = IoError;

    fn step(&mut self, streams: &mut Bowtie) -> Result<Step, IoError> {
        let portion = match self.function.advance(streams) {
            Ok(portion) => portion,
            Err(BlockedOn::Input(input)) => return Ok(Step::Need(input)),
            Err(BlockedOn::OutputMemory) => return Ok(Step::Full),
            Err(_) => return Ok(Step::Done),
        };
        for (input, &bytes) in portion.consumed.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
            streams.consume(input, bytes as usize);
        }
        let zeros = [0; BLOCK];
        for (output, &bytes) in portion.filled.iter().enumerate() {
            assert_eq!(streams.put(output, &zeros[..bytes as usize]), bytes as usize);
        }
        Ok(Step::Progress)
    }
}

/// The streams of a setup on a virtual disk, and the engine that drives them with its scheme.
fn bowtie_of(setup: &Setup, disk: &VirtualDisk) -> Bowtie {
    let Streams { inputs, outputs } = streams_of(setup, disk);
    Bowtie::new(inputs, outputs, blocks(setup.memory_blocks), &setup.scheme).expect("there is memory")
}

struct Streams {
    inputs: Vec<Reader>,
    outputs: Vec<Writer>,
}

fn streams_of(setup: &Setup, disk: &VirtualDisk) -> Streams {
    let lengths = setup.input_blocks();
    for (input, &length) in lengths.iter().enumerate() {
        disk.store(&format!("in {input}"), vec![0; length as usize * BLOCK]);
    }
    let reader = |input| Reader::new(disk.open_read(&format!("in {input}"), 0..u64::MAX), BLOCK);
    let inputs = (0..lengths.len()).map(reader).collect();
    let writer = |output| Writer::new(disk.create(&format!("out {output}")));
    Streams { inputs, outputs: (0..setup.scheme.shape.outputs).map(writer).collect() }
}

fn steps(disk: &VirtualDisk) -> Vec<(Move, u64)> {
    let step = |run: ascot_testing::virtual_disk::VirtualRun| {
        let index = run.file.split(' ').nth(1).and_then(|k| k.parse().ok()).expect("a number");
        match run.direction {
            Direction::Read => (Move::Read(index), run.bytes),
            Direction::Write => (Move::Write(index), run.bytes),
        }
    };
    disk.runs().into_iter().map(step).collect()
}

fn setup(n: u32, m: u32, alpha: f64, algorithm: Algorithm, memory_blocks: u32) -> Setup {
    let scheme = Scheme::best_of(Shape { inputs: n, outputs: m, alpha }, algorithm).expect("it fits");
    Setup {
        scheme,
        memory_blocks,
        total_blocks: 12 * u64::from(memory_blocks),
        input_skew: Skew::Equal,
        output_skew: Skew::Equal,
        seed: 7,
    }
}

/// The engine and the simulator perform the same runs, to the last byte.
#[test]
fn the_engine_performs_the_runs_of_the_simulator() {
    for (n, m, alpha, algorithm) in [
        (0, 16, 0.0, Algorithm::A1),
        (1, 16, 0.5, Algorithm::A2),
        (1, 31, 0.2, Algorithm::A2),
        (16, 0, 1.0, Algorithm::A3),
        (13, 1, 0.5, Algorithm::A4),
        (31, 1, 0.8, Algorithm::A4),
        (16, 16, 0.5, Algorithm::A5),
        (5, 7, 0.3, Algorithm::A5),
        (3, 16, 0.5, Algorithm::A6r),
        (8, 13, 0.2, Algorithm::A6r),
        (16, 4, 0.5, Algorithm::A6w),
        (13, 8, 0.8, Algorithm::A6w),
    ] {
        for skew in [Skew::Equal, Skew::Noise(0.5), Skew::Zipf(1.0), Skew::Bursts(50.0), Skew::Ends] {
            let setup = Setup {
                input_skew: skew.clone(),
                output_skew: if skew == Skew::Ends { Skew::Equal } else { skew },
                ..setup(n, m, alpha, algorithm, 512)
            };
            let simulated = simulate(&setup, true).unwrap_or_else(|stuck| panic!("{setup:?}: {stuck:?}"));
            let disk = disk();
            let mut bowtie = bowtie_of(&setup, &disk).depth(1);
            run(&mut bowtie, &mut Simulated { function: RateModel::new(&setup) }, || Ok(()))
                .expect("it runs");
            let done = steps(&disk);
            let differs = simulated.steps.iter().zip(&done).position(|(expected, done)| expected != done);
            assert_eq!(differs, None, "{setup:?}: {:?}", differs.map(|at| (simulated.steps[at], done[at])));
            assert_eq!(simulated.steps.len(), done.len(), "{setup:?}");
            assert_eq!(disk.ledger().totals().runs, simulated.runs);
        }
    }
}

/// With several requests in flight the runs are nearly as long.
#[test]
fn requests_that_follow_each_other_cost_few_switches() {
    for (n, m, alpha, algorithm) in [
        (1, 16, 0.5, Algorithm::A2),
        (16, 1, 0.5, Algorithm::A4),
        (16, 16, 0.5, Algorithm::A5),
        (3, 16, 0.5, Algorithm::A6r),
        (16, 4, 0.5, Algorithm::A6w),
    ] {
        let setup = setup(n, m, alpha, algorithm, 1024);
        let runs_at = |depth| {
            let disk = disk();
            let mut bowtie = bowtie_of(&setup, &disk).depth(depth);
            run(&mut bowtie, &mut Simulated { function: RateModel::new(&setup) }, || Ok(()))
                .expect("it runs");
            disk.ledger().totals().runs as f64
        };
        let (one, several) = (runs_at(1), runs_at(8));
        assert!(several < 1.1 * one, "{n} x {m} by {algorithm:?}: {several} runs for {one}");
    }
}

/// Moves random numbers of bytes from random inputs to random outputs, and drops or repeats some. The value of every
/// byte is the number of its output.
struct Route {
    chance: u64,
    /// Bytes put for each ten bytes read.
    tenths: u64,
    owed: u64,
    pending: Vec<u8>,
    /// Bytes of each output so far.
    sums: Vec<u64>,
}

impl Route {
    fn new(outputs: usize, tenths: u64, seed: u64) -> Self {
        Route { chance: seed | 1, tenths, owed: 0, pending: Vec::new(), sums: vec![0; outputs] }
    }

    fn next(&mut self, below: u64) -> u64 {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.chance >> 33) % below.max(1)
    }

    /// Puts the pending bytes; says whether all of them went.
    fn put(&mut self, streams: &mut Bowtie) -> bool {
        while let Some(&output) = self.pending.first() {
            let same = self.pending.iter().take_while(|&&byte| byte == output).count();
            let taken = streams.put(output.into(), &self.pending[..same]);
            self.sums[usize::from(output)] += taken as u64;
            self.pending.drain(..taken);
            if taken < same {
                return false;
            }
        }
        true
    }
}

impl Flow for Route {
    type Error = IoError;

    fn step(&mut self, streams: &mut Bowtie) -> Result<Step, IoError> {
        // Every block is accounted for, and memory holds them.
        let reading = streams.in_flight.iter().filter(|step| matches!(step, Move::Read(_))).count();
        let arrived: usize = streams.inputs.iter().map(|input| input.filled.len()).sum();
        let blocks = arrived + reading + streams.output_blocks as usize;
        let taken = streams.pool.total() - streams.pool.free();
        assert!(taken <= blocks && blocks <= streams.occupancy.used() as usize);
        assert!(streams.occupancy.used() as usize <= streams.pool.total());
        if !self.put(streams) {
            return Ok(Step::Full);
        }
        let live: Vec<usize> = (0..streams.inputs()).filter(|&input| !streams.exhausted(input)).collect();
        let Some(&input) = live.get(self.next(live.len() as u64) as usize) else { return Ok(Step::Done) };
        let there = streams.data(input).len();
        if there == 0 {
            return Ok(Step::Need(input));
        }
        let bytes = (1 + self.next(3000) as usize).min(there);
        streams.consume(input, bytes);
        self.owed += bytes as u64 * self.tenths;
        let outputs = self.sums.len() as u64;
        // Low numbers are more likely.
        let output = self.next(outputs).min(self.next(outputs)) as u8;
        if outputs > 0 {
            self.pending.resize((self.owed / 10) as usize, output);
            self.owed %= 10;
        }
        Ok(Step::Progress)
    }
}

/// Runs a random flow over inputs of these lengths: everything arrives and memory holds.
fn route(
    lengths: &[usize],
    outputs: usize,
    tenths: u64,
    seed: u64,
    memory: u32,
    algorithm: Option<Algorithm>,
    depth: usize,
) -> Result<(), TestCaseError> {
    let disk = disk();
    let channels = 1 + (seed % 4) as usize;
    for (input, &length) in lengths.iter().enumerate() {
        disk.store(&format!("in {input}"), vec![1; length]);
        disk.assign(&format!("in {input}"), input % channels);
    }
    (0..outputs).for_each(|output| disk.assign(&format!("out {output}"), (output + 1) % channels));
    let reader = |input| Reader::new(disk.open_read(&format!("in {input}"), 0..u64::MAX), BLOCK);
    let inputs: Vec<Reader> = (0..lengths.len()).map(reader).collect();
    let outs: Vec<Writer> = (0..outputs).map(|k| Writer::new(disk.create(&format!("out {k}")))).collect();
    let read = lengths.iter().sum::<usize>() as f64;
    let shape = Shape::moving(
        lengths.len() as u32,
        outputs as u32,
        read.max(1.0),
        read.max(1.0) * tenths as f64 / 10.0,
    );
    let pool = blocks(memory.max(Split::min(&shape).total()));
    let scheme = algorithm.and_then(|algorithm| Scheme::best_of(shape, algorithm));
    let mut bowtie = match scheme {
        Some(scheme) => Bowtie::new(inputs, outs, pool.clone(), &scheme),
        None => {
            let split = Split::new(&Scheme::best(shape), pool.total() as u32);
            Bowtie::with_schedule(inputs, outs, pool.clone(), shape.alpha, split, Box::new(FewestHeld))
        }
    };
    let bowtie = bowtie.as_mut().map_err(|few| TestCaseError::fail(few.to_string()))?;
    bowtie.depth = depth;
    let mut flow = Route::new(outputs, tenths, seed);
    run(bowtie, &mut flow, || Ok(())).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(disk.ledger().totals().read_bytes, lengths.iter().sum::<usize>() as u64);
    for output in 0..outputs {
        let written = disk.contents(&format!("out {output}"));
        prop_assert_eq!(written.len() as u64, flow.sums[output]);
        prop_assert_eq!(bowtie.written(output), flow.sums[output]);
        prop_assert!(written.iter().all(|&byte| usize::from(byte) == output));
    }
    prop_assert_eq!(pool.free(), pool.total(), "every block came back");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Skewed flows, inputs that end early or are empty, memory that just suffices, and all schedules.
    #[test]
    fn nothing_waits_for_ever(
        lengths in proptest::collection::vec(0usize..200_000, 1..9),
        outputs in 0usize..9,
        tenths in 0u64..40,
        seed in any::<u64>(),
        more in 0u32..60,
        which in 0usize..8,
        depth in 1usize..10,
    ) {
        use Algorithm::{A2, A3, A4, A5, A6r, A6w};
        let algorithm = [None, Some(A2), Some(A3), Some(A4), Some(A5), Some(A6r), Some(A6w), None][which];
        let memory = lengths.len() as u32 + 1 + 2 * outputs as u32 + more;
        route(&lengths, outputs, tenths, seed, memory, algorithm, depth)?;
    }
}

/// The share of reading need not be one half.
#[test]
fn any_share_of_reading() {
    for (alpha, tenths) in [(0.2, 40), (0.5, 10), (0.8, 2)] {
        for algorithm in [Algorithm::A5, Algorithm::A6r, Algorithm::A6w] {
            let lengths = vec![1_000_000; 6];
            route(&lengths, 7, tenths, 3, 256, Some(algorithm), 1)
                .unwrap_or_else(|error| panic!("{alpha} by {algorithm:?}: {error}"));
        }
    }
}

/// Runs on the device are as long as the formulas say, except at the beginning, at the end, and for half-full blocks.
#[test]
fn runs_are_as_long_as_the_formulas_say() {
    for alpha in [0.2, 0.5, 0.8] {
        for (n, m, algorithm) in
            [(1, 16, Algorithm::A2), (16, 1, Algorithm::A4), (8, 8, Algorithm::A6r), (8, 8, Algorithm::A6w)]
        {
            let setup = Setup { total_blocks: 24_000, ..setup(n, m, alpha, algorithm, 512) };
            let disk = disk();
            let mut bowtie = bowtie_of(&setup, &disk).depth(1);
            run(&mut bowtie, &mut Simulated { function: RateModel::new(&setup) }, || Ok(()))
                .expect("it runs");
            let moved = disk.ledger().totals();
            let blocks = (moved.read_bytes + moved.written_bytes) as f64 / BLOCK as f64;
            let share = blocks / moved.runs as f64 / setup.scheme.run_length(512.0);
            println!("{n} x {m} at {alpha} by {algorithm:?}: {share:.3}");
            assert!((0.8..1.2).contains(&share), "{n} x {m} at {alpha} by {algorithm:?}: {share:.3}");
        }
    }
}

#[test]
fn too_little_memory_is_an_error() {
    let disk = disk();
    let scheme = Scheme::best(Shape { inputs: 2, outputs: 3, alpha: 0.5 });
    let inputs = (0..2).map(|_| Reader::new(disk.open_read("in", 0..9), BLOCK)).collect();
    let outputs = (0..3).map(|k| Writer::new(disk.create(&format!("out {k}")))).collect();
    let few = Bowtie::new(inputs, outputs, blocks(8), &scheme).err().expect("refused");
    assert_eq!(few, TooFewBlocks { inputs: 2, outputs: 3, needed: 9, blocks: 8 });
}

/// A flow that waits for more memory than its side has gets an error.
#[test]
fn an_endless_wait_is_an_error() {
    struct Greedy;
    impl Flow for Greedy {
        type Error = IoError;
        fn step(&mut self, streams: &mut Bowtie) -> Result<Step, IoError> {
            Ok(if streams.free_bytes(0) > 100 * BLOCK { Step::Done } else { Step::Full })
        }
    }
    let disk = disk();
    let scheme = Scheme::best(Shape { inputs: 0, outputs: 1, alpha: 0.0 });
    let outputs = vec![Writer::new(disk.create("out"))];
    let mut bowtie = Bowtie::new(Vec::new(), outputs, blocks(8), &scheme).expect("there is memory");
    let error = run(&mut bowtie, &mut Greedy, || Ok(())).expect_err("it cannot go on");
    assert!(error.to_string().contains("nothing to move"), "{error}");
}

/// A merge that needs blocks in a given order.
struct Needing {
    order: Vec<usize>,
    at: usize,
}

impl Flow for Needing {
    type Error = IoError;

    fn step(&mut self, streams: &mut Bowtie) -> Result<Step, IoError> {
        let Some(&input) = self.order.get(self.at) else { return Ok(Step::Done) };
        if streams.data(input).is_empty() {
            return Ok(Step::Need(input));
        }
        streams.consume(input, BLOCK);
        self.at += 1;
        Ok(Step::Progress)
    }
}

/// Forecasting that waits for the device of the next block, as simple prefetching does.
struct Waiting(Forecast);

impl Schedule for Waiting {
    fn next(&mut self, view: &SchedulerView<'_>) -> Option<Move> {
        let step = self.0.clone().next(&SchedulerView { busy: &[], ..*view });
        if matches!(step, Some(Move::Read(input)) if view.is_busy(input)) {
            return None;
        }
        self.0.next(&SchedulerView { busy: &[], ..*view })
    }
}

/// Seconds for reading in a merge of 16 inputs on four devices; `keys` gives the first key of a block of an input.
fn seconds_on_four_devices(waits: bool, keys: impl Fn(u64, u64) -> u64) -> f64 {
    const INPUTS: u64 = 16;
    const BLOCKS: u64 = 64;
    let disk = disk();
    let keys: Vec<Vec<u64>> = (0..INPUTS)
        .map(|input| {
            let mut keys: Vec<u64> = (0..BLOCKS).map(|block| keys(input, block)).collect();
            keys.sort_unstable();
            keys
        })
        .collect();
    let mut order: Vec<(u64, usize)> = Vec::new();
    for (input, keys) in keys.iter().enumerate() {
        let name = format!("in {input}");
        disk.store(&name, vec![0; BLOCKS as usize * BLOCK]);
        disk.assign(&name, input % 4);
        order.extend(keys.iter().map(|&key| (key, input)));
    }
    order.sort_unstable();
    let reader = |input: u64| Reader::new(disk.open_read(&format!("in {input}"), 0..u64::MAX), BLOCK);
    let forecast = Forecast::new(&keys);
    let schedule: Box<dyn Schedule> = if waits { Box::new(Waiting(forecast)) } else { Box::new(forecast) };
    let pool = blocks(2 * INPUTS as u32);
    let shape = Shape { inputs: INPUTS as u32, outputs: 0, alpha: 1.0 };
    let split = Split { read: pool.total() as u32, write: 0 };
    let mut bowtie: Bowtie =
        Bowtie::build((0..INPUTS).map(reader).collect(), Vec::new(), pool, &shape, split, schedule);
    bowtie.depth = usize::MAX;
    let mut flow = Needing { order: order.into_iter().map(|(_, input)| input).collect(), at: 0 };
    run(&mut bowtie, &mut flow, || Ok(())).expect("it is read");
    disk.seconds()
}

/// A block on an idle device is read before one on a busy device: with keys spread evenly, and with keys for which the
/// inputs of one device are needed for a while before those of the next.
#[test]
fn a_busy_device_is_not_waited_for() {
    let spread = |input: u64, block: u64| (input * 64 + block).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let skewed = |input: u64, block: u64| {
        let turn = (block / 2 * 4 + input % 4) << 24;
        turn + (spread(input, block) & 0xff_ffff)
    };
    let ideal = 16.0 / 4.0 * 64.0 * (BLOCK as f64 / 1e9 + 0.01);
    for (name, most, waiting, skipping) in [
        ("spread", 0.96, seconds_on_four_devices(true, spread), seconds_on_four_devices(false, spread)),
        ("skewed", 0.4, seconds_on_four_devices(true, skewed), seconds_on_four_devices(false, skewed)),
    ] {
        println!("{name}: waiting {waiting:.3} s, skipping {skipping:.3} s");
        assert!(skipping < most * waiting, "{name}: {skipping} s, waiting {waiting} s");
        assert!(skipping < 1.01 * ideal, "{name}: {skipping} s, the devices need {ideal} s");
    }
}

/// A stream whose device the engine does not know.
struct Hidden(Writer);

impl BlockOutput for Hidden {
    fn begin(&mut self, buf: Buf, len: usize) -> Result<(), IoError> {
        self.0.begin(buf, len)
    }

    fn complete(&mut self) -> Result<(), IoError> {
        self.0.complete()
    }

    fn ready(&mut self) -> bool {
        self.0.ready()
    }

    fn finish(&mut self) -> Result<u64, IoError> {
        self.0.finish()
    }
}

/// Brings blocks for outputs in a given order.
struct Bringing {
    order: Vec<usize>,
    at: usize,
    given: usize,
}

impl<O: BlockOutput> Flow<Reader, O> for Bringing {
    type Error = IoError;

    fn step(&mut self, streams: &mut Bowtie<Reader, O>) -> Result<Step, IoError> {
        let Some(&output) = self.order.get(self.at) else { return Ok(Step::Done) };
        self.given += streams.put(output, &[output as u8; BLOCK][self.given..]);
        if self.given < BLOCK {
            return Ok(Step::Full);
        }
        (self.at, self.given) = (self.at + 1, 0);
        Ok(Step::Progress)
    }
}

const OUTPUTS: u64 = 16;
const BLOCKS_EACH: u64 = 64;

/// Seconds that writing takes to 16 outputs on four devices, and the share of them that the devices worked in the
/// mean; `keys` says when a block of an output comes.
fn seconds_of_writing<O: BlockOutput>(
    schedule: Box<dyn Schedule>,
    keys: impl Fn(u64, u64) -> u64,
    output: impl Fn(Writer) -> O,
) -> (f64, f64) {
    let disk = disk();
    let mut order: Vec<(u64, usize)> = Vec::new();
    for number in 0..OUTPUTS {
        disk.assign(&format!("out {number}"), number as usize % 4);
        order.extend((0..BLOCKS_EACH).map(|block| (keys(number, block), number as usize)));
    }
    order.sort_unstable();
    let writer = |number: u64| output(Writer::new(disk.create(&format!("out {number}"))));
    let pool = blocks(4 * OUTPUTS as u32);
    let split = Split { read: 0, write: pool.total() as u32 };
    let outputs = (0..OUTPUTS).map(writer).collect();
    let mut bowtie: Bowtie<Reader, O> =
        Bowtie::with_schedule(Vec::new(), outputs, pool, 0.0, split, schedule).expect("there is memory");
    let mut flow = Bringing { order: order.into_iter().map(|(_, output)| output).collect(), at: 0, given: 0 };
    run(&mut bowtie, &mut flow, || Ok(())).expect("it is written");
    for number in 0..OUTPUTS {
        let written = disk.contents(&format!("out {number}"));
        assert_eq!(written.len() as u64, BLOCKS_EACH * BLOCK as u64);
        assert!(written.iter().all(|&byte| u64::from(byte) == number));
    }
    let moving = (OUTPUTS * BLOCKS_EACH) as f64 * BLOCK as f64 / 1e9;
    let worked = (disk.switches() as f64 * 0.01 + moving) / 4.0;
    (disk.seconds(), worked / disk.seconds())
}

/// A full block on an idle device is written before one whose device is busy, block by block and in long runs,
/// with a few requests in flight: with outputs that fill evenly, and with those of one device filling for a
/// while before those of the next.
#[test]
fn a_busy_device_is_not_waited_for_in_writing() {
    fn spread(output: u64, block: u64) -> u64 {
        (output * 64 + block).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
    }
    fn skewed(output: u64, block: u64) -> u64 {
        ((block / 2 * 4 + output % 4) << 24) + (spread(output, block) & 0xff_ffff)
    }
    let scheme = Scheme::best(Shape { inputs: 0, outputs: OUTPUTS as u32, alpha: 0.0 });
    let runs = || -> Box<dyn Schedule> { Box::new(Staircase::new(scheme, 0)) };
    let block_by_block = || -> Box<dyn Schedule> { Box::new(FewestHeld) };
    let one = |keys: fn(u64, u64) -> u64, schedule: &dyn Fn() -> Box<dyn Schedule>| {
        let (waiting, _) = seconds_of_writing(schedule(), keys, Hidden);
        (waiting, seconds_of_writing(schedule(), keys, |writer| writer))
    };
    for (name, keys, schedule, most) in [
        ("spread, in blocks", spread as fn(u64, u64) -> u64, &block_by_block as &dyn Fn() -> _, 0.8),
        ("spread, in runs", spread, &runs, 0.7),
        ("skewed, in blocks", skewed, &block_by_block, 0.6),
        ("skewed, in runs", skewed, &runs, 0.75),
    ] {
        let (waiting, (going_on, worked)) = one(keys, schedule);
        println!("{name}: waiting {waiting:.3} s, going on {going_on:.3} s, at work {worked:.2} of it");
        // In long runs a device is idle while none of its outputs is full. Whenever the engine waits, it asserts that
        // no device with a full output is idle.
        let least = if name.ends_with("blocks") { 0.9 } else { 0.6 };
        assert!(worked > least, "{name}: devices worked {worked} of the time");
        assert!(going_on < most * waiting, "{name}: {going_on} s, waiting {waiting} s");
    }
}
