//! One flow on every back-end: the outputs and the ledger are the same, and a fault of any request is an error that
//! names a file, or does no harm.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

use std::path::Path;
use std::time::{Duration, Instant};

use ascot_bowtie::engine::{Bowtie, Reader, Writer};
use ascot_bowtie::flow::{Flow, Step, run};
use ascot_io::{
    Action, Backend, BlockPool, Direction, Disk, DiskOptions, Effect, IoError, IoQueue, Ledger, Pool,
};
use ascot_model::run_length::{Scheme, Shape};
use ascot_model::volume::VolumeProfile;
use ascot_testing::faults::{FaultPlan, Faults};
use ascot_testing::virtual_disk::VirtualDisk;
use proptest::prelude::*;

const BLOCK: usize = 8 << 10;

/// Where files are.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Files(Backend),
    /// Direct access by threads, where the kernel has no io_uring.
    Threads,
    /// Memory, and a clock of its own.
    Virtual,
}

const KINDS: [Kind; 7] = [
    Kind::Virtual,
    Kind::Files(Backend::Sized(4)),
    Kind::Files(Backend::Sized(8 << 10)),
    Kind::Files(Backend::Sized(1000)),
    Kind::Files(Backend::Sized(1 << 20)),
    Kind::Files(Backend::Direct),
    Kind::Threads,
];

/// Takes portions of its inputs one after the other and distributes their bytes by value. It depends on the bytes only,
/// not on the time of their arrival.
struct Deal {
    turn: usize,
    portion: Vec<u8>,
}

impl Flow for Deal {
    type Error = IoError;

    fn step(&mut self, streams: &mut Bowtie) -> Result<Step, IoError> {
        while let Some(&byte) = self.portion.first() {
            let output = usize::from(byte) % streams.outputs();
            let same = self.portion.iter().take_while(|&&other| other == byte).count();
            let taken = streams.put(output, &self.portion[..same]);
            self.portion.drain(..taken);
            if taken < same {
                return Ok(Step::Full);
            }
        }
        let live = |&input: &usize| !streams.exhausted(input);
        let inputs = streams.inputs();
        let Some(input) = (0..inputs).map(|next| (self.turn + next) % inputs).find(live) else {
            return Ok(Step::Done);
        };
        if streams.data(input).is_empty() {
            return Ok(Step::Need(input));
        }
        let bytes = streams.data(input).len().min(100 + 900 * input);
        self.portion.extend_from_slice(&streams.data(input)[..bytes]);
        streams.consume(input, bytes);
        self.turn = input + 1;
        Ok(Step::Progress)
    }
}

/// A job: the bytes of its inputs, the number of outputs, and the memory.
#[derive(Clone, Debug)]
struct Job {
    inputs: Vec<Vec<u8>>,
    outputs: usize,
    memory_blocks: usize,
    depth: usize,
}

impl Job {
    /// Random bytes, each repeated a random number of times.
    fn new(lengths: &[usize], outputs: usize, more_blocks: usize, depth: usize, seed: u64) -> Job {
        let mut chance = seed | 1;
        let mut next = |below: u64| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (chance >> 33) % below
        };
        let mut bytes = |length: usize| {
            let mut bytes = Vec::with_capacity(length);
            while bytes.len() < length {
                let (byte, many) = (next(256) as u8, 1 + next(700) as usize);
                bytes.resize(length.min(bytes.len() + many), byte);
            }
            bytes
        };
        let inputs: Vec<Vec<u8>> = lengths.iter().map(|&length| bytes(length)).collect();
        Job { memory_blocks: inputs.len() + 1 + 2 * outputs + more_blocks, inputs, outputs, depth }
    }

    /// The expected bytes of each output.
    fn expected(&self) -> Vec<Vec<u8>> {
        let mut outputs = vec![Vec::new(); self.outputs];
        let mut places = vec![0; self.inputs.len()];
        let mut turn = 0;
        loop {
            let inputs = self.inputs.len();
            let live = |&input: &usize| places[input] < self.inputs[input].len();
            let Some(input) = (0..inputs).map(|next| (turn + next) % inputs).find(live) else {
                return outputs;
            };
            let at = places[input];
            let end = (at + 100 + 900 * input).min((at / BLOCK + 1) * BLOCK).min(self.inputs[input].len());
            for &byte in &self.inputs[input][at..end] {
                outputs[usize::from(byte) % self.outputs].push(byte);
            }
            places[input] = end;
            turn = input + 1;
        }
    }

    /// Runs the job; returns the bytes of the outputs and the ledger.
    fn run(&self, kind: Kind, dir: &Path, faults: Option<Faults>) -> Result<(Vec<Vec<u8>>, Ledger), IoError> {
        let name = |side: &str, number: usize| dir.join(format!("{side}-{number}"));
        let (inputs, outputs) = (0..self.inputs.len(), 0..self.outputs);
        if let Kind::Virtual = kind {
            let disk = VirtualDisk::new(VolumeProfile::simple("memory", 1e9, 1e9, 1e-3));
            for (number, bytes) in self.inputs.iter().enumerate() {
                disk.store(&format!("in-{number}"), bytes.clone());
            }
            let read = |k| Reader::new(disk.open_read(&format!("in-{k}"), 0..u64::MAX), BLOCK);
            let written = |k| Writer::new(disk.create(&format!("out-{k}")));
            self.drive(inputs.map(read).collect(), outputs.clone().map(written).collect())?;
            return Ok((
                outputs.map(|k| disk.contents(&format!("out-{k}"))).collect(),
                disk.ledger().clone(),
            ));
        }
        let backend = if let Kind::Files(backend) = kind { backend } else { Backend::Direct };
        let options = DiskOptions {
            backend,
            depth: 3,
            request_bytes: 4096,
            faults: faults.map(Into::into),
            ..DiskOptions::default()
        };
        let disk = Disk::new(options);
        if let Kind::Threads = kind {
            assert!(disk.use_io_queue(IoQueue::start_threads(2)));
        }
        let read = |k| {
            let stream = disk.open_read(&name("in", k), 0..u64::MAX, &format!("in-{k}"))?;
            Ok(Reader::new(stream, BLOCK))
        };
        let written = |k| Ok(Writer::new(disk.create(&name("out", k), &format!("out-{k}"))?));
        let readers = inputs.map(read).collect::<Result<_, IoError>>()?;
        self.drive(readers, outputs.clone().map(written).collect::<Result<_, IoError>>()?)?;
        Ok((outputs.map(|k| std::fs::read(name("out", k)).unwrap()).collect(), disk.ledger().clone()))
    }

    fn drive(&self, readers: Vec<Reader>, writers: Vec<Writer>) -> Result<(), IoError> {
        let region = Pool::new(self.memory_blocks * BLOCK).region(self.memory_blocks * BLOCK, "a test");
        let pool = BlockPool::new(region.unwrap(), BLOCK);
        let scheme =
            Scheme::best(Shape { inputs: readers.len() as u32, outputs: writers.len() as u32, alpha: 0.5 });
        let bowtie = Bowtie::new(readers, writers, pool.clone(), &scheme);
        let mut bowtie = bowtie.unwrap_or_else(|few| panic!("{few}")).depth(self.depth);
        let result = run(&mut bowtie, &mut Deal { turn: 0, portion: Vec::new() }, || Ok(()));
        drop(bowtie);
        // After a failure the device still performs requests that were abandoned.
        let patience = Instant::now() + Duration::from_secs(10);
        while pool.free() < pool.total() && result.is_err() && Instant::now() < patience {
            std::thread::yield_now();
        }
        assert_eq!(pool.free(), pool.total(), "every block came back, whatever happened");
        result
    }

    fn store(&self, dir: &Path) {
        for (number, bytes) in self.inputs.iter().enumerate() {
            std::fs::write(dir.join(format!("in-{number}")), bytes).unwrap();
        }
    }
}

/// The name, direction and bytes of each stream, and its runs if `runs`.
fn told(ledger: &Ledger, runs: bool) -> Vec<(String, Direction, u64, u64, u64)> {
    let stream = |one: ascot_io::StreamAccount| {
        let (on_device, in_file) = if runs { (one.runs, one.file_runs) } else { (0, 0) };
        (one.name, one.direction, one.bytes, on_device, in_file)
    };
    let mut streams: Vec<_> = ledger.account().into_iter().map(stream).collect();
    streams.sort();
    streams
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Runs the job on all kinds: the outputs are as expected and the ledgers equal.
fn same_everywhere(job: &Job, kinds: &[Kind]) -> Result<(), TestCaseError> {
    let dir = directory();
    job.store(dir.path());
    let expected = job.expected();
    // One request at a time, the order of all of them is the schedule's; with more it is the device's too.
    let in_order = job.depth == 1;
    let mut first = None;
    for &kind in kinds {
        let (outputs, ledger) = job.run(kind, dir.path(), None).unwrap();
        prop_assert!(outputs == expected, "{:?} wrote other bytes", kind);
        let told = told(&ledger, in_order);
        prop_assert_eq!(first.get_or_insert_with(|| told.clone()), &told, "{:?}", kind);
        let totals = ledger.totals();
        let bytes = job.inputs.iter().map(Vec::len).sum::<usize>() as u64;
        prop_assert_eq!((totals.read_bytes, totals.written_bytes), (bytes, bytes), "{:?}", kind);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn every_backend_moves_the_same(
        lengths in proptest::collection::vec(0usize..60_000, 1..5),
        outputs in 1usize..6,
        more in 0usize..20,
        depth in 1usize..6,
        seed in any::<u64>(),
    ) {
        same_everywhere(&Job::new(&lengths, outputs, more, depth, seed), &KINDS)?;
    }
}

/// Files that are large enough for direct access and do not end at a page.
#[test]
fn every_backend_moves_large_files() {
    let kinds: Vec<Kind> =
        KINDS.into_iter().filter(|kind| !matches!(kind, Kind::Files(Backend::Sized(4)))).collect();
    for depth in [1, 5] {
        let job = Job::new(&[3_000_001, 0, 2_100_000, 1_048_577], 7, 64, depth, 11);
        same_everywhere(&job, &kinds).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Each request fails once, or moves half of its bytes first. The result is an error that names the file, or the right
/// bytes; the job never hangs.
#[test]
fn a_fault_anywhere_is_told_on_every_backend() {
    for kind in KINDS.into_iter().filter(|kind| !matches!(kind, Kind::Virtual)) {
        let job = Job::new(&[30_000, 9_000, 20_480], 3, 6, 3, 5);
        let dir = directory();
        job.store(dir.path());
        let counting = Faults::counting();
        job.run(kind, dir.path(), Some(counting.clone())).unwrap();
        assert!(counting.counted() > 12, "{kind:?}: {}", counting.counted());
        for effect in [Effect::Eio, Effect::NoSpace, Effect::Short] {
            for at in 0..counting.counted() {
                let operations = vec![Action::Open, Action::Create, Action::Read, Action::Write];
                let plan = FaultPlan { at, effect, operations, path_contains: String::new(), lasting: false };
                let faults = Faults::new(plan);
                let result = job.run(kind, dir.path(), Some(faults.clone()));
                match (result, effect) {
                    (Ok((outputs, _)), Effect::Short) => assert!(outputs == job.expected(), "{kind:?} {at}"),
                    (Ok(_), _) => assert_eq!(faults.fired(), 0, "{kind:?}: fault {at} was not told"),
                    (Err(error), Effect::Short) => panic!("{kind:?}: a short request is no error: {error}"),
                    (Err(error), _) => {
                        let told = error.to_string();
                        assert!(told.contains("in-") || told.contains("out-"), "{kind:?}: {told}");
                    }
                }
            }
        }
    }
}
