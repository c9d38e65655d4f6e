//! Inputs that are in order already, or nearly: the output is right and few bytes are moved.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use ascot_io::Compression;
use ascot_model::random::SplitMix64;
use ascot_model::report::Report;
use ascot_record::keys::{ByteRangeKey, KeyOptions};
use ascot_record::layout::{Endian, Layout, NumberFormat, NumberType};
use ascot_sort::{Cancel, Input, Keys, Method, Output, RunOptions, Silent, SortRequest, sort};

const MEMORY: u64 = 16 << 20;
const BYTES: usize = 64 << 20;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Shape {
    Sorted,
    Reversed,
    Displaced,
    Joined,
    Random,
}

const SHAPES: [(Shape, f64); 5] = [
    (Shape::Sorted, 3.1),
    (Shape::Reversed, 3.1),
    (Shape::Displaced, 3.5),
    (Shape::Joined, 3.4),
    (Shape::Random, 4.2),
];

struct Case {
    layout: Layout,
    keys: Keys,
    unique: bool,
    method: Method,
}

/// Brings random keys into a shape.
fn shaped(mut keys: Vec<u64>, shape: Shape) -> Vec<u64> {
    let count = keys.len();
    match shape {
        Shape::Random => {}
        Shape::Reversed => keys.sort_by_key(|&key| Reverse(key)),
        Shape::Joined => keys.chunks_mut(count / 10 + 1).for_each(<[u64]>::sort_unstable),
        Shape::Sorted | Shape::Displaced => keys.sort_unstable(),
    }
    if shape == Shape::Displaced {
        let mut random = SplitMix64(7);
        for _ in 0..count / 200 {
            let (one, two) = (random.next_u64() as usize % count, random.next_u64() as usize % count);
            keys.swap(one, two);
        }
    }
    keys
}

/// `count` keys, about `repeats` of each value.
fn keys(count: usize, repeats: u64) -> Vec<u64> {
    let mut random = SplitMix64(count as u64);
    (0..count).map(|_| random.next_u64() % (count as u64 / repeats).max(1)).collect()
}

fn run(dir: &Path, case: &Case, input: &[u8]) -> (Vec<u8>, Report) {
    let (from, to): (PathBuf, PathBuf) = (dir.join("in"), dir.join("out"));
    std::fs::write(&from, input).expect("room");
    let request = SortRequest {
        unique: case.unique,
        stable: true,
        memory_bytes: Some(MEMORY),
        temp_dirs: vec![dir.to_path_buf()],
        method: case.method,
        compression: Compression::None,
        threads: Some(2),
        ..SortRequest::new(vec![Input::Path(from)], Output::Path(to.clone()), case.layout, case.keys.clone())
    };
    let report = sort(&request, &RunOptions::default(), &Silent, &Cancel::default()).expect("sorts");
    (std::fs::read(to).expect("there is output"), report)
}

fn moved(report: &Report, bytes: usize) -> f64 {
    let moved: u64 = report
        .passes
        .iter()
        .map(|pass| pass.moved())
        .map(|moved| moved.read_bytes + moved.written_bytes)
        .sum();
    moved as f64 / bytes as f64
}

fn check(case: &Case, shape: Shape, most: f64, input: &[u8], expected: &[u8]) {
    let dir = tempfile::tempdir().expect("a directory");
    let (output, report) = run(dir.path(), case, input);
    let moved = moved(&report, input.len());
    assert!(output == expected, "{} {shape:?} unique {}: wrong output", case.layout, case.unique);
    assert!(moved <= most, "{} {shape:?}: moves {moved:.2} N", case.layout);
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).expect("a directory").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

/// Records of 64 bytes: a key of eight, the record's number, filling.
fn fixed_records(keys: &[u64]) -> Vec<[u8; 64]> {
    let record = |(number, key): (usize, &u64)| {
        let mut record = [b'.'; 64];
        record[..8].copy_from_slice(&key.to_be_bytes());
        record[8..16].copy_from_slice(&(number as u64).to_le_bytes());
        record
    };
    keys.iter().enumerate().map(record).collect()
}

fn fixed(repeats: u64, unique: bool) {
    let ranges = vec![ByteRangeKey { start: 0, end: 8, descending: false }];
    for (shape, most) in SHAPES {
        for method in [Method::Merge, Method::Auto] {
            let case = Case {
                layout: Layout::Fixed { len: 64 },
                keys: Keys::Ranges(ranges.clone()),
                unique,
                method,
            };
            let mut records = fixed_records(&shaped(keys(BYTES / 64, repeats), shape));
            let input = records.concat();
            records.sort_by(|a, b| a[..8].cmp(&b[..8]));
            if unique {
                records.dedup_by(|a, b| a[..8] == b[..8]);
            }
            check(&case, shape, most, &input, &records.concat());
        }
    }
}

#[test]
fn fixed_records_move_little_and_stay_stable() {
    fixed(3, false);
}

#[test]
fn duplicates_are_left_out() {
    fixed(3, true);
}

#[test]
fn frequent_keys_stay_stable() {
    let ranges = vec![ByteRangeKey { start: 0, end: 8, descending: false }];
    for shape in [Shape::Sorted, Shape::Reversed, Shape::Displaced, Shape::Joined] {
        for repeats in [700, 60_000, 10_000_000] {
            let keys_of_case = Keys::Ranges(ranges.clone());
            let case = Case {
                layout: Layout::Fixed { len: 64 },
                keys: keys_of_case,
                unique: false,
                method: Method::Merge,
            };
            let mut records = fixed_records(&shaped(keys(BYTES / 128, repeats), shape));
            let input = records.concat();
            records.sort_by(|a, b| a[..8].cmp(&b[..8]));
            check(&case, shape, 4.2, &input, &records.concat());
        }
    }
}

#[test]
fn lines_move_little() {
    for (shape, most) in SHAPES {
        let options = KeyOptions::default();
        let layout = Layout::Lines { delimiter: b'\n' };
        let case = Case { layout, keys: Keys::Command(options), unique: false, method: Method::Merge };
        let line = |key: u64| format!("{key:010} {}\n", "x".repeat(key as usize % 80));
        let mut lines: Vec<String> = shaped(keys(BYTES / 52, 2), shape).into_iter().map(line).collect();
        let mut input = lines.concat().into_bytes();
        // The last line lacks its end.
        input.pop();
        lines.sort_unstable();
        check(&case, shape, most, &input, lines.concat().as_bytes());
    }
}

#[test]
fn numbers_move_little() {
    for (shape, most) in SHAPES {
        for (descending, kind) in [(false, NumberType::U64), (true, NumberType::I64)] {
            let layout = Layout::Number(NumberFormat { kind, endian: Endian::Little });
            let case = Case { layout, keys: Keys::Value { descending }, unique: false, method: Method::Auto };
            let mut values = shaped(keys(BYTES / 8, 3), shape);
            let bytes =
                |values: &[u64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
            let input = bytes(&values);
            values.sort_unstable();
            if descending {
                values.reverse();
            }
            check(&case, shape, most, &input, &bytes(&values));
        }
    }
}
