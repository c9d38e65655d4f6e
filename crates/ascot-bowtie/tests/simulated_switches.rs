//! With several requests in flight, flows take the switches of the simulation for the same streams, memory and bytes.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use ascot_bowtie::engine::{Bowtie, Reader, Writer};
use ascot_bowtie::flow::{Flow, Step, run};
use ascot_bowtie::simulate::{Setup, Skew, simulate};
use ascot_io::{BlockPool, Buf, IoError};
use ascot_model::run_length::{Scheme, Shape};
use ascot_model::volume::VolumeProfile;
use ascot_testing::virtual_disk::VirtualDisk;

const BLOCK_BYTES: usize = 512;
const MEMORY_BLOCKS: usize = 254;
/// How often the memory moves.
const MEMORIES: f64 = 40.0;
/// Requests in flight of a real job.
const DEPTH: usize = 4;
/// Bytes that are taken of an input at a time.
const PORTION: usize = 64;

/// Takes a portion of each input in turn, and puts `gain` times as many bytes to each output in turn.
struct InTurn {
    gain: f64,
    /// Bytes to be put, with the fraction that is left of them.
    owed: f64,
    /// The next input.
    input: usize,
    output: usize,
}

impl Flow for InTurn {
    type Error = IoError;

    fn step(&mut self, streams: &mut Bowtie) -> Result<Step, IoError> {
        if self.owed >= 1.0 {
            let put = streams.put(self.output, &vec![7; self.owed as usize]);
            self.owed -= put as f64;
            return Ok(if put == 0 { Step::Full } else { Step::Progress });
        }
        let inputs = streams.inputs();
        let Some(input) = (0..inputs).map(|k| (self.input + k) % inputs).find(|&i| !streams.exhausted(i))
        else {
            return Ok(Step::Done);
        };
        let taken = streams.data(input).len().min(PORTION);
        if taken == 0 {
            return Ok(Step::Need(input));
        }
        streams.consume(input, taken);
        self.input = input + 1;
        self.output = (self.output + 1) % streams.outputs();
        self.owed += taken as f64 * self.gain;
        Ok(Step::Progress)
    }
}

/// Switches of a flow, and those of the simulation. `guess`: the assumed share of reading, which is followed.
fn switches(shape: Shape, guess: f64) -> (u64, u64) {
    let moved = MEMORIES * MEMORY_BLOCKS as f64;
    let input_bytes = moved * BLOCK_BYTES as f64 * shape.alpha / f64::from(shape.inputs);
    let disk = VirtualDisk::new(VolumeProfile::simple("array", 1e9, 1e9, 0.01));
    let readers = (0..shape.inputs).map(|input| {
        let name = format!("in {input}");
        disk.store(&name, vec![7; input_bytes as usize]);
        Reader::new(disk.open_read(&name, 0..u64::MAX), BLOCK_BYTES)
    });
    let readers = readers.collect();
    let writers = (0..shape.outputs).map(|output| Writer::new(disk.create(&format!("out {output}"))));
    let blocks = BlockPool::new(Buf::heap(MEMORY_BLOCKS * BLOCK_BYTES), BLOCK_BYTES);
    let scheme = Scheme::best(Shape { alpha: guess, ..shape });
    let bowtie = Bowtie::new(readers, writers.collect(), blocks, &scheme).unwrap();
    let mut bowtie = bowtie.depth(DEPTH).adapting(&scheme);
    if guess != shape.alpha {
        bowtie = bowtie.doubting_alpha();
    }
    let gain = (1.0 - shape.alpha) / shape.alpha;
    run(&mut bowtie, &mut InTurn { gain, owed: 0.0, input: 0, output: 0 }, || Ok(())).unwrap();
    let setup = Setup {
        scheme: Scheme::best(shape),
        memory_blocks: MEMORY_BLOCKS as u32,
        total_blocks: moved as u64,
        input_skew: Skew::Equal,
        output_skew: Skew::Equal,
        seed: 1,
    };
    (disk.switches(), simulate(&setup, false).unwrap().runs)
}

/// Checks that flows of these shapes take no more switches than this multiple of the simulated ones.
fn check(shapes: &[(u32, u32, f64)], guess: Option<f64>, bound: f64) {
    for &(inputs, outputs, alpha) in shapes {
        let (taken, simulated) = switches(Shape { inputs, outputs, alpha }, guess.unwrap_or(alpha));
        println!("{inputs} x {outputs} at {alpha}: {taken}, simulated {simulated}");
        assert!(
            taken as f64 <= bound * simulated as f64,
            "{inputs} x {outputs} at {alpha}: {taken}, simulated {simulated}"
        );
    }
}

#[test]
fn requests_in_flight_cost_no_switches() {
    let shapes = [(7, 2, 0.2), (7, 2, 0.5), (16, 4, 0.5), (5, 3, 0.2), (4, 6, 0.8), (9, 9, 0.5), (3, 5, 0.5)];
    check(&shapes, None, 1.04);
}

/// Where the assumption counts for four memories of the inputs, some of these shapes take more.
#[test]
fn an_unknown_share_of_reading_is_learned_soon() {
    let files = [
        (1, 9),
        (2, 2),
        (2, 4),
        (2, 7),
        (3, 3),
        (3, 5),
        (3, 12),
        (4, 2),
        (4, 6),
        (4, 16),
        (5, 3),
        (6, 6),
        (7, 2),
        (8, 8),
        (9, 1),
        (9, 7),
        (10, 5),
        (12, 3),
        (16, 4),
    ];
    let shares = [0.2, 0.35, 0.65, 0.8];
    let shapes: Vec<_> = files.iter().flat_map(|&(n, m)| shares.map(|alpha| (n, m, alpha))).collect();
    check(&shapes, Some(0.5), 1.10);
}
