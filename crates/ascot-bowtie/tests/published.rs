//! The published machine at a smaller scale, through the engine: passes, rates and switches.
//!
//! Memory, data, blocks and the switch cost are divided by the same factor; the number of files is not.
//! Source of the rows: Stella and Loguinov, Tables I to III. The device has one speed and one switch cost for all rows,
//! which `docs/published.md` derives from figures outside the tables.

#![allow(clippy::expect_used, reason = "a test may fail")]

use ascot_bowtie::engine::{Bowtie, Reader, Writer};
use ascot_bowtie::flow::{Flow, Step, run};
use ascot_bowtie::schedule::Split;
use ascot_bowtie::schedule::{EqualParts, Schedule, Staircase};
use ascot_io::{BlockPool, Buf, IoError};
use ascot_model::multipass::{DeviceCost, Pass, split};
use ascot_model::run_length::{Baseline, Scheme, Shape};
use ascot_model::volume::VolumeProfile;
use ascot_testing::virtual_disk::VirtualDisk;

/// Bytes/s, both ways.
const SPEED: f64 = 3562e6;
/// Seconds of a switch.
const SWITCH_S: f64 = 0.01644;
/// Bytes, as the paper converts.
const GB: f64 = 1024e6;
const BLOCK: usize = 8;
/// Bytes that the function distributes at a time.
const RECORD: usize = 4;
/// Blocks of memory for each output.
const BLOCKS_EACH: u32 = 20;

/// Distributes records to outputs by the part of their value that earlier passes have not used.
struct Deal {
    /// The product of the numbers of outputs of earlier passes.
    dealt: u32,
}

impl Flow for Deal {
    type Error = IoError;

    fn step(&mut self, streams: &mut Bowtie) -> Result<Step, IoError> {
        loop {
            let Some(&record) = streams.data(0).first_chunk::<RECORD>() else {
                return Ok(if streams.exhausted(0) { Step::Done } else { Step::Need(0) });
            };
            let output = (u32::from_le_bytes(record) / self.dealt) as usize % streams.outputs();
            if streams.put(output, &record) == 0 {
                return Ok(Step::Full);
            }
            streams.consume(0, RECORD);
        }
    }
}

/// Random bytes.
fn by_chance(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

/// A row of the table, at a smaller scale.
struct Row {
    memory_gb: f64,
    input_gb: f64,
    chunks: u32,
    passes: usize,
}

struct Told {
    passes: Vec<Pass>,
    model_mb_s: f64,
    engine_mb_s: f64,
    switches: u64,
    expected: f64,
}

/// Runs one bowtie, 1 x m, with its best scheme, and removes its input.
fn distribute(disk: &VirtualDisk, input: &str, outputs: u32, memory_blocks: u32, dealt: u32) -> Vec<String> {
    let scheme = Scheme::best(Shape { inputs: 1, outputs, alpha: 0.5 });
    let split = Split::new(&scheme, memory_blocks);
    let schedule = Box::new(Staircase::new(scheme, split.read));
    distribute_by(disk, input, outputs, memory_blocks, split, schedule, dealt)
}

/// The same with any schedule and division of memory.
fn distribute_by(
    disk: &VirtualDisk,
    input: &str,
    outputs: u32,
    memory_blocks: u32,
    split: Split,
    schedule: Box<dyn Schedule>,
    dealt: u32,
) -> Vec<String> {
    let names: Vec<String> = (0..outputs).map(|k| format!("{input}.{k}")).collect();
    let reader = Reader::new(disk.open_read(input, 0..u64::MAX), BLOCK);
    let writers = names.iter().map(|name| Writer::new(disk.create(name))).collect();
    let pool = BlockPool::new(Buf::heap(memory_blocks as usize * BLOCK), BLOCK);
    let bowtie = Bowtie::with_schedule(vec![reader], writers, pool, 0.5, split, schedule);
    let mut bowtie = bowtie.expect("there is memory").depth(1);
    run(&mut bowtie, &mut Deal { dealt }, || Ok(())).expect("it runs");
    disk.remove(input);
    names
}

/// Runs a row as planned.
fn tell(row: &Row) -> Told {
    let shape = |outputs| Shape { inputs: 1, outputs, alpha: 0.5 };
    let full = VolumeProfile::simple("24 disks", SPEED, SPEED, SWITCH_S);
    let memory_bytes = row.memory_gb * GB;
    let cost = DeviceCost { volume: &full, memory_bytes, max_streams: u32::MAX, baseline: None };
    let way = split(row.chunks, &|_| row.input_gb * GB, &cost).expect("it can be done");
    let widest = way.factors().into_iter().max().expect("a pass");
    let memory_blocks = (BLOCKS_EACH * widest).max(1024);
    let memory = f64::from(memory_blocks) * BLOCK as f64;
    let factor = row.memory_gb * GB / memory;
    let volume = VolumeProfile::simple("24 disks", SPEED, SPEED, SWITCH_S / factor);
    let disk = VirtualDisk::new(volume);
    let input = (row.input_gb * GB / factor) as usize / RECORD * RECORD;
    disk.store("in", by_chance(input));
    let mut files = vec!["in".to_owned()];
    let mut expected = 0.0;
    for pass in &way.passes {
        let outputs = pass.shape.outputs;
        let moved = 2.0 * input as f64 - 2.0 * memory * files.len() as f64;
        let run_length = Scheme::best(shape(outputs)).run_length(memory);
        // At first memory is filled in one run, at last it is written, a run for each output.
        expected += moved / run_length + f64::from(1 + outputs) * files.len() as f64;
        let deal = |file: &String| distribute(&disk, file, outputs, memory_blocks, files.len() as u32);
        files = files.iter().flat_map(deal).collect();
    }
    let written: usize = files.iter().map(|file| disk.contents(file).len()).sum();
    assert_eq!(written, input, "all is there");
    let totals = disk.ledger().totals();
    assert_eq!(totals.written_bytes, (input * way.passes.len()) as u64);
    Told {
        model_mb_s: 2.0 * row.input_gb * GB / 1e6 / way.seconds,
        engine_mb_s: 2.0 * input as f64 / disk.seconds() / 1e6,
        passes: way.passes,
        switches: totals.runs,
        expected,
    }
}

/// Rows with these gigabytes of memory and of input, files and passes.
fn check_rows(rows: &[(f64, f64, u32, usize)]) {
    for &(memory_gb, input_gb, chunks, passes) in rows {
        let row = Row { memory_gb, input_gb, chunks, passes };
        let Told { passes, model_mb_s, engine_mb_s, switches, expected } = tell(&row);
        let factors: Vec<u32> = passes.iter().map(|pass| pass.shape.outputs).collect();
        println!(
            "({memory_gb}, {input_gb}) by {factors:?}: {model_mb_s:.0} MB/s by the model, {engine_mb_s:.0} by the \
             engine; {switches} switches for {expected:.0}"
        );
        assert_eq!(passes.len(), row.passes, "({memory_gb}, {input_gb})");
        assert!((engine_mb_s / model_mb_s - 1.0).abs() < 0.10, "{engine_mb_s:.0} for {model_mb_s:.0} MB/s");
        assert!((switches as f64 / expected - 1.0).abs() < 0.05, "{switches} switches for {expected:.0}");
    }
}

#[test]
fn the_published_rows() {
    check_rows(&[
        (1.0, 8.0, 8, 1),
        (2.0, 128.0, 64, 1),
        (2.0, 1024.0, 512, 2),
        (8.0, 512.0, 64, 1),
        (8.0, 4096.0, 512, 1),
        (20.0, 1280.0, 64, 1),
    ]);
}

/// As many bytes as all others together.
#[test]
fn the_published_row_of_the_most_files() {
    check_rows(&[(2.0, 8192.0, 4096, 2)]);
}

/// 8 GB with 1 GB, as in Fig. 5: two orders of magnitude fewer switches than by runs of 4 and 2 MB.
#[test]
fn far_fewer_switches_than_by_small_requests() {
    const MEMORY: usize = 1 << 16;
    let disk = VirtualDisk::new(VolumeProfile::simple("24 disks", SPEED, SPEED, SWITCH_S));
    disk.store("in", by_chance(8 * MEMORY));
    distribute(&disk, "in", 8, (MEMORY / BLOCK) as u32, 1);
    let ours = disk.ledger().totals().runs as f64;
    let shape = Shape { inputs: 1, outputs: 8, alpha: 0.5 };
    let formula = Scheme::best(shape).run_length(1024.0);
    for (run_mb, times) in [(4.0, 66.0), (2.0, 130.0)] {
        let theirs = 16.0 * 1024.0 / Baseline::FixedBlocks { bytes: run_mb }.run_length(&shape, 1024.0);
        println!("{ours} switches; by runs of {run_mb} MB {theirs}, {:.1} times as many", theirs / ours);
        assert!(formula / run_mb >= times, "the formulas say so");
        assert!(theirs >= times * ours, "{theirs} by {run_mb} MB for {ours}");
    }
}

/// The same engine with an equal part of memory for each stream, which is what everyone does: as many switches more
/// as the formulas say.
#[test]
fn fewer_switches_than_with_equal_parts_as_the_formulas_say() {
    for outputs in [8, 64, 128] {
        let memory_blocks = 64 * (outputs + 1);
        let memory = memory_blocks as usize * BLOCK;
        let shape = Shape { inputs: 1, outputs, alpha: 0.5 };
        let split = EqualParts::split(&shape, memory_blocks);
        let equal = Box::new(EqualParts::new(1, split.read));
        let switches = |way: &str| {
            let disk = VirtualDisk::new(VolumeProfile::simple("24 disks", SPEED, SPEED, SWITCH_S));
            disk.store("in", by_chance(40 * memory));
            match way {
                "equal" => distribute_by(&disk, "in", outputs, memory_blocks, split, equal.clone(), 1),
                _ => distribute(&disk, "in", outputs, memory_blocks, 1),
            };
            disk.ledger().totals().runs as f64
        };
        let (theirs, ours) = (switches("equal"), switches("ours"));
        let run = Baseline::EqualParts.run_length(&shape, 1.0);
        let promised = Scheme::best(shape).run_length(1.0) / run;
        println!("1 x {outputs}: {:.2} times fewer switches; {promised:.2} by the formulas", theirs / ours);
        assert!((theirs / ours / promised - 1.0).abs() < 0.10, "{theirs} and {ours} for {promised:.2}");
    }
}
