//! The buckets of the engine are near the staircase that theory predicts for its schedule, and those of equal parts are
//! not. Published: Stella and Loguinov, theorems 1, 3, 6 and 8, and figure 5.
//!
//! A flow takes and puts bytes of random streams on the virtual disk. The distance is the sum of the differences of all
//! buckets, both sorted, as a share of the memory, in the mean over the switches at which it is full. Buckets of equal
//! size have a distance of nearly one half from the linear staircase of single streams: the mean of |1 - 2x| for x from
//! 0 to 1.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;
use std::sync::{Arc, Mutex};

use ascot_bowtie::engine::{Bowtie, Reader, Writer};
use ascot_bowtie::flow::{Flow, Step, run};
use ascot_bowtie::schedule::{EqualParts, Move, Schedule, SchedulerView, Split, Staircase, Staircases};
use ascot_io::{
    BlockPool, Buf, FileNumber, IoError, IssuedRequest, Ledger, Occupancies, RequestObserver, SharingStreams,
};
use ascot_model::random::SplitMix64;
use ascot_model::run_length::{Scheme, Shape};
use ascot_model::volume::VolumeProfile;
use ascot_testing::virtual_disk::VirtualDisk;

const BLOCK_BYTES: usize = 16;
/// Blocks of memory for each stream of the larger side.
const BLOCKS_EACH: u32 = 32;
/// How often the memory moves.
const MEMORIES: usize = 32;
/// From this share of its memory on, a side counts as full.
const FULL_SHARE: f64 = 0.9;
/// Switches before the memory was moved this often are left out: outputs begin with equal buckets.
const WARM_UP: usize = 4;

/// The distances of each side, switch by switch.
#[derive(Debug, Default)]
struct Seen {
    distances: Mutex<[Vec<f64>; 2]>,
    inputs: Mutex<usize>,
}

impl RequestObserver for Seen {
    fn opened(&self, _: FileNumber, _: &Path) {}
    fn renamed(&self, _: &Path, _: &Path) {}
    fn removed(&self, _: FileNumber) {}
    fn issued(&self, _: &IssuedRequest) {}

    fn share(&self, streams: &SharingStreams<'_>) -> u32 {
        *self.inputs.lock().unwrap() = streams.inputs as usize;
        7
    }

    fn occupied(&self, buckets: &Occupancies<'_>) {
        assert_eq!(buckets.sharing, 7);
        let (inputs, outputs) = buckets.bytes.split_at(*self.inputs.lock().unwrap());
        let sides = [(inputs, buckets.input_steps), (outputs, buckets.output_steps)];
        for (distances, (bytes, steps)) in self.distances.lock().unwrap().iter_mut().zip(sides) {
            let held = bytes.iter().sum::<u64>() as f64;
            if let Some(steps) = steps.filter(|steps| held >= FULL_SHARE * steps.memory) {
                distances.push(steps.distance(bytes));
            }
        }
    }
}

/// Moves a byte of a random input to a random output.
struct Mix {
    random: SplitMix64,
    /// The input of the next byte.
    input: Option<usize>,
    output: usize,
    /// Bytes that the flow brings itself, if it has no inputs.
    own: usize,
}

impl Flow for Mix {
    type Error = IoError;

    fn step(&mut self, streams: &mut Bowtie) -> Result<Step, IoError> {
        let mut next = |count: usize| self.random.below(count as u64) as usize;
        if streams.inputs() == 0 && self.own > 0 {
            if streams.put(self.output, &[7]) == 0 {
                return Ok(Step::Full);
            }
            self.own -= 1;
            self.output = next(streams.outputs());
            return Ok(Step::Progress);
        }
        let live: Vec<usize> = (0..streams.inputs()).filter(|&input| !streams.exhausted(input)).collect();
        if live.is_empty() {
            return Ok(Step::Done);
        }
        let input = match self.input.filter(|input| live.contains(input)) {
            Some(input) => input,
            None => live[next(live.len())],
        };
        self.input = Some(input);
        let Some(&byte) = streams.data(input).first() else { return Ok(Step::Need(input)) };
        if streams.outputs() > 0 {
            if streams.put(self.output, &[byte]) == 0 {
                return Ok(Step::Full);
            }
            self.output = next(streams.outputs());
        }
        streams.consume(input, 1);
        self.input = None;
        Ok(Step::Progress)
    }
}

/// Equal parts that claim to keep the staircase.
struct Pretending(EqualParts, Staircase);

impl Schedule for Pretending {
    fn next(&mut self, view: &SchedulerView<'_>) -> Option<Move> {
        self.0.next(view)
    }

    fn staircases(&self, live_inputs: u32, split: Split) -> Staircases {
        self.1.staircases(live_inputs, split)
    }
}

/// The mean distance of the larger side from its staircase.
fn distance(shape: Shape, equal_parts: bool) -> f64 {
    let memory_blocks = BLOCKS_EACH * shape.inputs.max(shape.outputs);
    let moved = MEMORIES * memory_blocks as usize * BLOCK_BYTES;
    let disk = VirtualDisk::new(VolumeProfile::simple("array", 1e9, 1e9, 0.01));
    let input_bytes = (moved as f64 * shape.alpha) as usize / shape.inputs.max(1) as usize;
    let readers = (0..shape.inputs).map(|input| {
        let name = format!("in {input}");
        disk.store(&name, vec![7; input_bytes]);
        Reader::new(disk.open_read(&name, 0..u64::MAX), BLOCK_BYTES)
    });
    let readers = readers.collect();
    let writers = (0..shape.outputs).map(|output| Writer::new(disk.create(&format!("out {output}"))));
    let pool = BlockPool::new(Buf::heap(memory_blocks as usize * BLOCK_BYTES), BLOCK_BYTES);
    let scheme = Scheme::best(shape);
    let split = match equal_parts {
        true => EqualParts::split(&shape, memory_blocks),
        false => Split::new(&scheme, memory_blocks),
    };
    let staircase = Staircase::new(scheme, split.read);
    let schedule: Box<dyn Schedule> = if equal_parts {
        Box::new(Pretending(EqualParts::new(shape.inputs, split.read), staircase))
    } else {
        Box::new(staircase)
    };
    let seen = Arc::new(Seen::default());
    let ledger = Ledger::observed(Some(Arc::clone(&seen) as Arc<dyn RequestObserver>));
    let bowtie = Bowtie::with_schedule(readers, writers.collect(), pool, shape.alpha, split, schedule);
    let mut bowtie = bowtie.unwrap().depth(1).observing(&ledger, "mix");
    let own = if shape.inputs == 0 { moved } else { 0 };
    let mut flow = Mix { random: SplitMix64(5), input: None, output: 0, own };
    run(&mut bowtie, &mut flow, || Ok(())).unwrap();
    let distances = &seen.distances.lock().unwrap()[usize::from(shape.outputs > shape.inputs)];
    // Ends are left out: outputs begin with equal buckets, and memory empties when inputs end.
    let ends = distances.len() * WARM_UP / MEMORIES;
    let steady = &distances[ends..distances.len() - ends];
    assert!(steady.len() > 4, "{shape:?}: {} switches with a full memory", steady.len());
    steady.iter().sum::<f64>() / steady.len() as f64
}

#[test]
fn the_engine_keeps_the_staircase_and_equal_parts_do_not() {
    let shapes = [
        Shape { inputs: 0, outputs: 24, alpha: 0.0 },
        Shape { inputs: 1, outputs: 64, alpha: 0.5 },
        Shape { inputs: 24, outputs: 0, alpha: 1.0 },
        Shape { inputs: 64, outputs: 1, alpha: 0.5 },
    ];
    for shape in shapes {
        let ours = distance(shape, false);
        let equal = distance(shape, true);
        println!("{} x {}: {ours:.3}, equal parts {equal:.3}", shape.inputs, shape.outputs);
        assert!(ours < 0.125, "{shape:?}: {ours:.3} from the staircase");
        assert!(equal > 0.25, "{shape:?}: equal parts are {equal:.3} from the staircase");
    }
}
