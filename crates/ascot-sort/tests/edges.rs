//! Random small files with all that is awkward: no records, one record, no newline at the end, NULs,
//! empty lines, lines longer than a block and than a chunk, several inputs, empty ones among them, pipes,
//! inputs that are the output, records cut short.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod common;

use std::fs;
use std::io::Write;
use std::path::Path;

use ascot_record::layout::Endian;
use ascot_sort::{Input, Method, Output, SortRequest};
use common::kinds::{Kind, csv, fixed, lines, lines_by_fields, lines_nul, numbers, prefixed};
use common::shapes::{Shape, data};
use common::{Data, JobDirs, Wanted, assert_same, expected, run};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

const MEMORY: u64 = 8 << 20;

/// A line without its end.
#[derive(Clone, Debug)]
enum Line {
    Short(Vec<u8>),
    Long(u8, usize),
}

impl Line {
    /// With `end`, which is not in it.
    fn bytes(&self, end: u8) -> Vec<u8> {
        let bytes = match self {
            Line::Short(bytes) => bytes.clone(),
            Line::Long(byte, len) => vec![*byte; *len],
        };
        let clean = bytes.into_iter().map(|byte| if byte == end { b'x' } else { byte });
        clean.chain([end]).collect()
    }
}

/// Lengths around that of a block (32 KiB) and of a chunk (128 KiB or somewhat more).
const LONG: [usize; 10] = [4095, 4096, 30_000, 32_767, 32_768, 40_000, 131_071, 140_000, 300_000, 700_000];

fn line(longest: usize) -> impl Strategy<Value = Line> {
    let short = prop::collection::vec(prop::sample::select(b"ab\0\xff \r".to_vec()), 0..6);
    let byte = prop::sample::select(b"ab\0".to_vec());
    let long = (byte, prop::sample::select(LONG.to_vec()));
    let any_length = (1u8.., 0usize..70_000);
    prop_oneof![
        20 => short.prop_map(Line::Short),
        2 => long.prop_map(move |(byte, len)| Line::Long(byte, len.min(longest))),
        2 => any_length.prop_map(|(byte, len)| Line::Long(byte, len)),
    ]
}

/// Lines, and whether the last one ends without a newline.
type File = (Vec<Line>, bool);

/// Several of them.
fn files(longest: usize) -> impl Strategy<Value = Vec<File>> {
    let file = (prop::collection::vec(line(longest), 0..30), any::<bool>());
    prop::collection::vec(file, 1..5)
}

fn options() -> impl Strategy<Value = (Method, Wanted, bool)> {
    let method = prop::sample::select(vec![Method::Auto, Method::Merge, Method::Distribute]);
    let top = prop::option::weighted(0.2, 0usize..20);
    (method, any::<bool>(), any::<bool>(), top, any::<bool>())
        .prop_map(|(method, unique, stable, top, reverse)| (method, Wanted { unique, stable, top }, reverse))
}

/// The records of files of lines, and what is in each file.
fn written(files: &[File], end: u8) -> (Data, Vec<Vec<u8>>) {
    let mut data = Data::default();
    let mut contents = Vec::new();
    for (lines, unended) in files {
        let mut content = Vec::new();
        for line in lines {
            let line = line.bytes(end);
            data.push(&line);
            content.extend_from_slice(&line);
        }
        // Without its newline an empty last line is none.
        if *unended && lines.last().is_some_and(|line| line.bytes(end).len() > 1) {
            content.pop();
        }
        contents.push(content);
    }
    (data, contents)
}

fn sorted(kind: &Kind, files: &[File], end: u8, method: Method, wanted: Wanted) -> TestCaseResult {
    let dirs = JobDirs::new();
    let (data, contents) = written(files, end);
    let inputs = contents.iter().enumerate().map(|(number, bytes)| dirs.input(number, &[bytes])).collect();
    let request = SortRequest {
        method,
        unique: wanted.unique,
        stable: wanted.stable,
        top: wanted.top.map(|top| top as u64),
        ..dirs.request(kind, inputs, MEMORY)
    };
    let report = run(&request, None);
    prop_assert!(report.is_ok(), "{}", report.unwrap_err());
    let found = fs::read(dirs.out()).unwrap();
    prop_assert!(found == expected(kind, &data.records(), wanted), "wrong output of {} bytes", found.len());
    prop_assert!(dirs.litter().is_empty(), "{:?}", dirs.litter());
    Ok(())
}

/// The same files, each sorted before it is merged with the others.
fn merged(kind: &Kind, files: &[File], end: u8, wanted: Wanted, batch: usize) -> TestCaseResult {
    let dirs = JobDirs::new();
    let mut all = Data::default();
    let mut inputs = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let (data, _) = written(std::slice::from_ref(file), end);
        let mut records = data.records();
        common::shapes::sort(kind, &mut records);
        let mut content = records.concat();
        if file.1 && records.last().is_some_and(|last| last.len() > 1) {
            content.pop();
        }
        inputs.push(dirs.input(number, &[&content]));
        records.iter().for_each(|record| all.push(record));
    }
    let request = SortRequest {
        merge_only: true,
        unique: wanted.unique,
        stable: wanted.stable,
        top: wanted.top.map(|top| top as u64),
        batch_size: Some(batch),
        ..dirs.request(kind, inputs, MEMORY)
    };
    let report = run(&request, None);
    prop_assert!(report.is_ok(), "{}", report.unwrap_err());
    let found = fs::read(dirs.out()).unwrap();
    prop_assert!(found == expected(kind, &all.records(), wanted), "wrong output of {} bytes", found.len());
    prop_assert!(dirs.litter().is_empty(), "{:?}", dirs.litter());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        max_shrink_iters: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_lines(files in files(300_000), (method, wanted, reverse) in options()) {
        sorted(&lines(reverse), &files, b'\n', method, wanted)?;
    }

    #[test]
    fn random_lines_ended_by_nul(files in files(300_000), (method, wanted, _) in options()) {
        sorted(&lines_nul(), &files, 0, method, wanted)?;
    }

    #[test]
    fn random_lines_merged(files in files(140_000), (_, wanted, reverse) in options(), batch in 2usize..4) {
        merged(&lines(reverse), &files, b'\n', wanted, batch)?;
    }
}

/// Records by number, so that all sizes from none on are met.
#[test]
fn few_records_of_every_layout() {
    let kinds = [
        lines_by_fields(false),
        csv(false),
        fixed(100, &[(0, 10, false)]),
        fixed(5000, &[(0, 9, true)]),
        prefixed(2, Endian::Big, &[(0, 8, false)]),
        numbers(common::kinds::number_formats()[11], true),
    ];
    for kind in &kinds {
        for (count, method) in (0..4).flat_map(|count| [(count, Method::Auto), (count, Method::Distribute)]) {
            let dirs = JobDirs::new();
            let all = data(kind, Shape::TwoKeys, 40_000, count as u64);
            let some = Data::of(&all.records()[..count]);
            let inputs = vec![dirs.input(0, &[kind.header.unwrap_or_default(), &some.bytes])];
            let request = SortRequest { method, ..dirs.request(kind, inputs, MEMORY) };
            let what = format!("{} records, {}, {method:?}", count, kind.name);
            run(&request, None).unwrap_or_else(|error| panic!("{what}: {error}"));
            let wanted = expected(kind, &some.records(), Wanted::default());
            assert_same(&fs::read(dirs.out()).unwrap(), &wanted, &what);
        }
    }
}

/// A last record cut short is an error that names the file; nothing is written.
#[test]
fn records_cut_short() {
    let kinds = [
        fixed(100, &[(0, 10, false)]),
        prefixed(4, Endian::Little, &[(0, 8, false)]),
        numbers(common::kinds::number_formats()[2], false),
    ];
    for kind in &kinds {
        for (bytes, merge_only) in [(40_000, false), (40_000, true), (12 << 20, false), (12 << 20, true)] {
            for method in [Method::Merge, Method::Distribute] {
                let dirs = JobDirs::new();
                let data = data(kind, Shape::Presorted, bytes, 3);
                let inputs = vec![dirs.input(0, &[&data.bytes[..data.bytes.len() - 3]])];
                let request = SortRequest { method, merge_only, ..dirs.request(kind, inputs, MEMORY) };
                let error = run(&request, None).expect_err(&kind.name).to_string();
                assert!(error.contains("in-000") && error.contains("cut short"), "{}: {error}", kind.name);
                assert!(!dirs.out().exists() && dirs.litter().is_empty(), "{:?}", dirs.litter());
            }
        }
    }
}

fn fifo(path: &Path) {
    let status = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(status.success());
}

/// A pipe has no size: what does not fit is found out on the way.
#[test]
fn pipes_of_any_size() {
    for kind in [lines(false), csv(false), fixed(100, &[(0, 10, false)])] {
        for bytes in [0, 1, 300_000, 7 << 20, 20 << 20] {
            let dirs = JobDirs::new();
            let data = data(&kind, Shape::Random, bytes, 8);
            let path = dirs.path().join("in-pipe");
            fifo(&path);
            let content = [kind.header.unwrap_or_default(), &data.bytes].concat();
            let into = path.clone();
            let writer = std::thread::spawn(move || {
                let mut pipe = fs::OpenOptions::new().write(true).open(into).unwrap();
                content.chunks(10_007).try_for_each(|chunk| pipe.write_all(chunk))
            });
            let request = dirs.request(&kind, vec![Input::Path(path)], MEMORY);
            run(&request, None).unwrap_or_else(|error| panic!("{} {bytes}: {error}", kind.name));
            writer.join().unwrap().unwrap();
            let wanted = expected(&kind, &data.records(), Wanted::default());
            assert_same(&fs::read(dirs.out()).unwrap(), &wanted, &format!("{} {bytes}", kind.name));
            assert!(dirs.litter().is_empty());
        }
    }
}

#[test]
fn the_output_may_be_an_input() {
    let kind = lines(false);
    for method in [Method::Merge, Method::Distribute] {
        let dirs = JobDirs::new();
        let data = data(&kind, Shape::Random, 12 << 20, 8);
        let first = dirs.input(0, &[&data.bytes]);
        let Input::Path(path) = first.clone() else { panic!() };
        let request = dirs.request(&kind, vec![first.clone(), first], MEMORY);
        let request = SortRequest { output: Output::Path(path.clone()), method, ..request };
        run(&request, None).unwrap();
        let records = [data.records(), data.records()].concat();
        assert_same(&fs::read(path).unwrap(), &expected(&kind, &records, Wanted::default()), &"onto itself");
    }
}

/// Rows and lines far longer than a chunk among many short ones, in data that spills.
#[test]
fn long_lines_among_short_ones_larger_than_memory() {
    for kind in [lines(false), lines_by_fields(false)] {
        for (method, batch_size) in [(Method::Merge, Some(2)), (Method::Distribute, None)] {
            let dirs = JobDirs::new();
            let mut all = Data::default();
            for (number, record) in data(&kind, Shape::Random, 14 << 20, 8).records().into_iter().enumerate()
            {
                all.push(record);
                if number % 20_000 == 77 {
                    let long =
                        [&record[..record.len() - 1], &vec![b'q'; 30_000 + 7 * number % 800_000], b"\n"]
                            .concat();
                    all.push(&long);
                }
            }
            let inputs = vec![dirs.input(0, &[&all.bytes])];
            let request = SortRequest { method, batch_size, ..dirs.request(&kind, inputs, MEMORY) };
            run(&request, None).unwrap_or_else(|error| panic!("{} {method:?}: {error}", kind.name));
            let wanted = expected(&kind, &all.records(), Wanted::default());
            assert_same(&fs::read(dirs.out()).unwrap(), &wanted, &format!("{} {method:?}", kind.name));
        }
    }
}
