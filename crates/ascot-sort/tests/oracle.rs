//! Sorts of every layout, method, memory size and shape against a sort in memory, byte for byte.
//!
//! Not every combination is tried: kinds of records meet some of the shapes each, and methods, memory
//! sizes, options and numbers of inputs go round. With `ASCOT_ORACLE_SEED` set to another number other
//! combinations are tried; the ignored test tries every kind with every shape.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod common;

use std::fs;

use ascot_io::Compression;
use ascot_sort::{Input, Method, SortRequest};
use common::kinds::{Kind, binary_kinds, number_kinds, text_kinds};
use common::shapes::{SHAPES, Shape, data, sort};
use common::{Data, JobDirs, Random, Wanted, assert_same, expected, run};

const MIB: u64 = 1 << 20;

/// One combination.
#[derive(Debug)]
struct Case {
    shape: Shape,
    seed: u64,
    memory: u64,
    bytes: usize,
    inputs: usize,
    method: Method,
    batch_size: Option<usize>,
    compression: Compression,
    threads: usize,
    wanted: Wanted,
}

fn seed() -> u64 {
    std::env::var("ASCOT_ORACLE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn wanted(random: &mut Random) -> Wanted {
    let plain = Wanted::default();
    match random.below(7) {
        0 => Wanted { unique: true, ..plain },
        1 => Wanted { stable: true, ..plain },
        2 => Wanted { top: Some(random.of(&[0, 1, 1000, 100_000, 100_000_000])), ..plain },
        3 => Wanted { unique: true, top: Some(random.of(&[1, 777])), ..plain },
        _ => plain,
    }
}

/// A sort of more than fits in memory.
fn spilling(shape: Shape, random: &mut Random) -> Case {
    let memory = random.of(&[8 * MIB, 8 * MIB, 8 * MIB, 16 * MIB]);
    let size = memory * random.of(&[12, 14, 16, 20]) / 8;
    Case {
        shape,
        seed: random.next(),
        memory,
        bytes: size as usize,
        inputs: random.of(&[1, 1, 2, 7, 40]),
        method: random.of(&[Method::Merge, Method::Distribute, Method::Auto]),
        batch_size: random.of(&[None, Some(2), Some(2), Some(3)]),
        compression: random.of(&[Compression::None, Compression::None, Compression::Lz4]),
        threads: random.of(&[1, 2, 2, 3]),
        wanted: wanted(random),
    }
}

/// The inputs of a case: records dealt out in stretches, some files without any.
fn write_inputs(dirs: &JobDirs, kind: &Kind, data: &Data, inputs: usize, random: &mut Random) -> Vec<Input> {
    let header = kind.header.unwrap_or_default();
    let count = data.ends.len();
    let mut cuts: Vec<usize> = (1..inputs).map(|_| random.below(count as u64 + 1) as usize).collect();
    cuts.extend([0, count]);
    cuts.sort_unstable();
    let offset = |record: usize| if record == 0 { 0 } else { data.ends[record - 1] };
    let stretch = |pair: &[usize]| &data.bytes[offset(pair[0])..offset(pair[1])];
    cuts.windows(2).enumerate().map(|(number, pair)| dirs.input(number, &[header, stretch(pair)])).collect()
}

fn request(dirs: &JobDirs, kind: &Kind, case: &Case, inputs: Vec<Input>) -> SortRequest {
    SortRequest {
        unique: case.wanted.unique,
        stable: case.wanted.stable,
        top: case.wanted.top.map(|top| top as u64),
        method: case.method,
        batch_size: case.batch_size,
        compression: case.compression,
        threads: Some(case.threads),
        ..dirs.request(kind, inputs, case.memory)
    }
}

/// Runs a request and compares its output, its account and what it leaves behind.
fn check(dirs: &JobDirs, kind: &Kind, case: &Case, request: &SortRequest, records: &[&[u8]]) {
    let what = format!("{} {case:?} {}", kind.name, if request.merge_only { "merge only" } else { "" });
    let report = run(request, None).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = fs::read(dirs.out()).unwrap();
    let wanted = expected(kind, records, case.wanted);
    assert_same(&found, &wanted, &what);
    assert_eq!(report.records_in, records.len() as u64, "{what}");
    assert_eq!(report.records_in, report.records_out + report.records_dropped, "{what}");
    assert_eq!(dirs.litter(), Vec::<std::path::PathBuf>::new(), "{what}");
}

fn sort_case(kind: &Kind, case: &Case) {
    let dirs = JobDirs::new();
    let data = data(kind, case.shape, case.bytes, case.seed);
    let inputs = write_inputs(&dirs, kind, &data, case.inputs, &mut Random::new(case.seed));
    check(&dirs, kind, case, &request(&dirs, kind, case, inputs), &data.records());
}

fn sort_all(kinds: &[Kind], stream: u64) {
    let mut random = Random::new(stream ^ (seed() << 32));
    for kind in kinds {
        for shape in SHAPES {
            sort_case(kind, &spilling(shape, &mut random));
        }
    }
}

/// One shape in `one_in` for each kind, which ones going round.
fn sort_some(kinds: &[Kind], stream: u64, one_in: usize) {
    let mut random = Random::new(stream ^ (seed() << 32));
    for (number, kind) in kinds.iter().enumerate() {
        let first = (number + seed() as usize) % one_in;
        for shape in SHAPES.into_iter().skip(first).step_by(one_in) {
            sort_case(kind, &spilling(shape, &mut random));
        }
    }
}

#[test]
fn lines_and_csv_larger_than_memory() {
    sort_some(&text_kinds(), 1, 5);
}

#[test]
fn fixed_and_prefixed_records_larger_than_memory() {
    sort_some(&binary_kinds(), 2, 5);
}

#[test]
fn numbers_larger_than_memory() {
    sort_some(&number_kinds(), 3, 9);
}

#[test]
fn small_inputs_of_every_kind() {
    let kinds: Vec<Kind> = text_kinds().into_iter().chain(binary_kinds()).chain(number_kinds()).collect();
    let mut random = Random::new(4 ^ (seed() << 32));
    for kind in &kinds {
        for shape in SHAPES {
            for method in [Method::Auto, Method::Merge, Method::Distribute] {
                let bytes = random.of(&[0, 1, 200, 5000, 200_000]);
                let mut case = spilling(shape, &mut random);
                case = Case { bytes, method, memory: 8 * MIB, ..case };
                sort_case(kind, &case);
            }
        }
    }
}

/// Sorted inputs of a kind, merged; ties keep the order of the inputs.
fn merge_case(kind: &Kind, case: &Case) {
    let dirs = JobDirs::new();
    let data = data(kind, case.shape, case.bytes, case.seed);
    let mut random = Random::new(case.seed);
    let mut files: Vec<Vec<&[u8]>> = vec![Vec::new(); case.inputs];
    // The last file stays empty.
    let last = (case.inputs as u64 - 1).max(1);
    data.records().into_iter().for_each(|record| files[random.below(last) as usize].push(record));
    let header = kind.header.unwrap_or_default();
    let mut inputs = Vec::new();
    for (number, file) in files.iter_mut().enumerate() {
        sort(kind, file);
        inputs.push(dirs.input(number, &[header, &file.concat()]));
    }
    let request = SortRequest { merge_only: true, ..request(&dirs, kind, case, inputs) };
    check(&dirs, kind, case, &request, &files.concat());
}

#[test]
fn merges_of_sorted_inputs() {
    let kinds: Vec<Kind> = text_kinds().into_iter().chain(binary_kinds()).chain(number_kinds()).collect();
    let mut random = Random::new(5 ^ (seed() << 32));
    for kind in &kinds {
        for shape in [Shape::Random, Shape::AllEqual, Shape::Zipf] {
            let case = spilling(shape, &mut random);
            let bytes = random.of(&[0, 3000, 100_000, 1 << 20]);
            let inputs = random.of(&[1, 2, 3, 9, 40]);
            merge_case(kind, &Case { bytes, inputs, memory: 8 * MIB, ..case });
        }
    }
}

#[test]
fn merges_of_large_sorted_inputs() {
    let mut random = Random::new(6 ^ (seed() << 32));
    let kinds: Vec<Kind> = text_kinds().into_iter().chain(binary_kinds()).chain(number_kinds()).collect();
    for kind in kinds.iter().skip(seed() as usize % 3).step_by(3) {
        let case = spilling(random.of(&SHAPES), &mut random);
        let inputs = random.of(&[2, 5, 120]);
        merge_case(kind, &Case { inputs, memory: 8 * MIB, ..case });
    }
}

/// For looking for more than the others do.
#[test]
#[ignore = "takes minutes; tries everything with every shape"]
fn everything_with_every_shape() {
    sort_all(&text_kinds(), 11);
    sort_all(&binary_kinds(), 12);
    sort_all(&number_kinds(), 13);
}
