//! Switches of reading a view on a device where they cost time, counted by the ledger, beside those that the simulator
//! takes for the same files and memory.

use std::path::{Path, PathBuf};

use ascot_bowtie::simulate::{Setup, Simulation, Skew};
use ascot_model::account::BufferAccount;
use ascot_model::run_length::{Algorithm, Scheme, Shape};
use ascot_model::volume::VolumeProfile;

use super::tests::{data, request};
use super::*;
use crate::api::request::{Output, SortRequest, Volumes};
use crate::{Cancel, RunOptions, Silent};

const ARRAY_BYTES_PER_S: f64 = 3.549e9;
const ARRAY_SWITCH_S: f64 = 0.0155;

/// What a view consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parts {
    /// Sorted runs, whose blocks begin with pages.
    Runs,
    /// A user's sorted files, whose blocks do not.
    Files,
}

/// A view of parts of these lengths, in records of 100 bytes with random keys.
fn view_of(parts: Parts, dir: &Path, lengths: &[usize]) -> PathBuf {
    let (cancel, options) = (Cancel::new(), RunOptions::default());
    let mut paths = Vec::new();
    for (number, &bytes) in lengths.iter().enumerate() {
        let (layout, keys, data) = data(0, bytes, u64::MAX, 77 + ((number as u64) << 32));
        let input = dir.join("input");
        std::fs::write(&input, &data).expect("an input");
        let part = dir.join(format!("part-{number}"));
        let asked = SortRequest { memory_bytes: None, ..request(&input, layout, keys) };
        if parts == Parts::Runs {
            crate::make_view(&asked, &part, &options, &Silent, &cancel).expect("a view");
        } else {
            let asked = SortRequest { output: Output::Path(part.clone()), ..asked };
            crate::sort(&asked, &options, &Silent, &cancel).expect("a sort");
        }
        paths.push(part);
    }
    let (layout, keys, _) = data(0, 1, 1, 1);
    let view = dir.join("v.view");
    let asked = (parts == Parts::Files).then(|| request(&dir.join("input"), layout, keys));
    join_parts(&paths, asked.as_ref(), &view, &Silent, &cancel).expect("a view of parts");
    view
}

struct Read {
    /// To open all parts.
    opening: u64,
    switches: u64,
    /// Blocks read: each is a request.
    blocks: u64,
    buffers: BufferAccount,
}

/// Reads a view from end to end on the array.
fn read_through(view: &Path, memory_bytes: u64) -> Read {
    let volume = VolumeProfile::simple("array", ARRAY_BYTES_PER_S, ARRAY_BYTES_PER_S, ARRAY_SWITCH_S);
    let volumes = Some(Volumes { volume: Some(volume), ..Volumes::default() });
    let opening =
        OpenView { memory_bytes: Some(memory_bytes), threads: Some(2), volumes, ..OpenView::default() };
    let view = opening.open(view).expect("a view");
    let opened = view.ledger().totals();
    let mut stream = view
        .stream(0, view.bytes(), Reading { memory: view.pool().available(), sums: true, in_turns: false })
        .expect("a stream");
    let mut out = vec![0; 1 << 20];
    while stream.read(&mut out).expect("bytes") > 0 {}
    assert_eq!(stream.sum().expect("the end"), Some(view.sum()));
    let after = view.ledger().totals();
    Read {
        opening: opened.runs,
        switches: after.runs - opened.runs,
        blocks: after.requests - opened.requests,
        buffers: stream.buffers(),
    }
}

/// Switches of the simulator for as many files, blocks and blocks of memory; with equal parts of memory if so asked.
fn simulated(inputs: usize, read: &Read, equal_parts: bool) -> f64 {
    let BufferAccount { blocks, block_bytes, .. } = read.buffers;
    let shape = Shape { inputs: inputs as u32, outputs: 0, alpha: 1.0 };
    let setup = Setup {
        scheme: Scheme::best_of(shape, Algorithm::A3).expect("A3 fits every merge into memory"),
        memory_blocks: blocks as u32,
        total_blocks: read.blocks,
        input_skew: Skew::Equal,
        output_skew: Skew::Equal,
        seed: 1,
    };
    let memory_bytes = blocks * block_bytes;
    let simulation = Simulation { setup, equal_parts, memory_bytes, block_bytes };
    simulation.run().expect("memory suffices").switches as f64
}

/// Lengths of the parts, and memory of the reader.
fn cases() -> Vec<(Vec<usize>, u64)> {
    let mut uneven = vec![8 << 20; 6];
    uneven.extend([2 << 20; 2]);
    let even =
        [(4, 10 << 20, 8 << 20), (16, 6 << 20, 16 << 20), (16, 6 << 20, 8 << 20), (64, 2 << 20, 32 << 20)];
    let even = even.into_iter().map(|(parts, bytes, memory)| (vec![bytes; parts], memory));
    even.chain([(uneven, 12 << 20)]).collect()
}

/// At most a tenth more than the simulator takes. Opening takes one: the indexes of all parts are in one file.
#[test]
fn reading_takes_the_switches_of_the_simulator() {
    for (lengths, memory) in cases() {
        for kind in [Parts::Runs, Parts::Files] {
            let dir = tempfile::tempdir().expect("a directory");
            let parts = lengths.len();
            let read = read_through(&view_of(kind, dir.path(), &lengths), memory);
            let (schedule, equal) = (simulated(parts, &read, false), simulated(parts, &read, true));
            let told = format!(
                "{parts} {kind:?} within {memory}: {} switches, {} to open, {schedule} simulated, {equal} with equal \
                 parts, {:?}",
                read.switches, read.opening, read.buffers
            );
            println!("{told}");
            assert!(read.switches as f64 <= 1.10 * schedule, "{told}");
            assert_eq!(read.opening, 1, "{told}");
            assert!(read.buffers.memory_share >= 0.90, "{told}");
        }
    }
}

/// Making a view takes the switches of its runs: the first read, the first write, and both again for every further run;
/// and one for the indexes and keys of all runs.
#[test]
fn the_index_of_a_run_costs_no_switch_of_its_own() {
    let dir = tempfile::tempdir().expect("a directory");
    let (layout, keys, data) = data(0, 60 << 20, u64::MAX, 5);
    let input = dir.path().join("input");
    std::fs::write(&input, &data).expect("an input");
    let view = dir.path().join("v.view");
    let volume = VolumeProfile::simple("array", ARRAY_BYTES_PER_S, ARRAY_BYTES_PER_S, ARRAY_SWITCH_S);
    let volumes = Volumes { volume: Some(volume), ..Volumes::default() };
    let asked = SortRequest { volumes, ..request(&input, layout, keys) };
    let report = crate::make_view(&asked, &view, &RunOptions::default(), &Silent, &Cancel::new());
    let report = report.expect("a view");
    let runs = ViewManifest::load(&view).expect("a manifest").members.len() as u64;
    assert!(runs > 10, "{runs}");
    let streams = report.passes.iter().flat_map(|pass| &pass.streams);
    let switches: u64 = streams.map(|stream| stream.switches()).sum();
    println!("{switches} switches of {runs} runs");
    assert!(switches <= 2 * runs + 2, "{switches} of {runs} runs");
}
