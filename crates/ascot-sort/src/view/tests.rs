//! A view read in chunks, by several readers, against the sorted file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ascot_io::Compression;
use ascot_record::keys::{ByteRangeKey, KeyOptions, parse_csv_keys};
use ascot_record::layout::Layout;
use proptest::prelude::*;

use super::*;
use crate::api::error::SortError;
use crate::api::request::{Input, Keys, Method, Output, SortRequest};
use crate::view::copy::PartPlan;
use crate::{Cancel, RunOptions, Silent};

pub(super) fn request(input: &Path, layout: Layout, keys: Keys) -> SortRequest {
    SortRequest {
        memory_bytes: Some(8 << 20),
        compression: Compression::None,
        threads: Some(2),
        ..SortRequest::new(vec![Input::Path(input.to_path_buf())], Output::Stdout, layout, keys)
    }
}

/// A layout, its keys, and about `bytes` bytes of data with `different` distinct keys.
pub(super) fn data(kind: usize, bytes: usize, different: u64, seed: u64) -> (Layout, Keys, Vec<u8>) {
    let mut state = seed | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut data = Vec::new();
    let mut number = 0u64;
    let range = |end| Keys::Ranges(vec![ByteRangeKey { start: 0, end, descending: false }]);
    while data.len() < bytes {
        let key = next() % different;
        number += 1;
        match kind {
            0 => {
                data.extend_from_slice(&key.to_be_bytes());
                data.extend_from_slice(&[number as u8; 92]);
            }
            1 => data.extend_from_slice(
                format!("{key:x} {number} {}\n", "x".repeat((next() % 60) as usize)).as_bytes(),
            ),
            2 => {
                let len = 8 + next() % 300;
                data.extend_from_slice(&(len as u32).to_le_bytes());
                data.extend_from_slice(&key.to_be_bytes());
                data.extend(std::iter::repeat_n(number as u8, len as usize - 8));
            }
            3 => data.extend_from_slice(&key.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()),
            _ => data.extend_from_slice(format!("{number},\"a\n{key}\",{key}\n").as_bytes()),
        }
    }
    match kind {
        0 => (Layout::Fixed { len: 100 }, range(8), data),
        1 => (Layout::LINES, Keys::Command(KeyOptions::default()), data),
        2 => ("prefixed:u32".parse().expect("a layout"), range(8), data),
        3 => ("u64-le".parse().expect("a layout"), Keys::Value { descending: seed.is_multiple_of(2) }, data),
        _ => {
            let csv = Layout::Csv { separator: b',', quote: b'"' };
            (csv, Keys::Columns(parse_csv_keys("#3").expect("a column")), data)
        }
    }
}

struct Case {
    _dir: tempfile::TempDir,
    view: PathBuf,
    sorted: Vec<u8>,
}

/// Reading within this memory.
fn within(memory: usize) -> Reading {
    Reading { memory, ..Reading::default() }
}

fn make(kind: usize, bytes: usize, different: u64, seed: u64) -> Case {
    let dir = tempfile::tempdir().expect("a directory");
    let (layout, keys, data) = data(kind, bytes, different, seed);
    let input = dir.path().join("input");
    std::fs::write(&input, &data).expect("an input");
    let made = request(&input, layout, keys);
    let view = dir.path().join("v.view");
    let report =
        crate::make_view(&made, &view, &RunOptions::default(), &Silent, &Cancel::new()).expect("a view");
    assert_eq!(report.records_in, report.records_out);
    let out = dir.path().join("sorted");
    let sorted =
        SortRequest { output: Output::Path(out.clone()), stable: true, method: Method::Merge, ..made };
    // Without `stable`, all bytes of a line break ties, which gives the same order here.
    crate::sort(&sorted, &RunOptions::default(), &Silent, &Cancel::new()).expect("a sort");
    Case { view, sorted: std::fs::read(out).expect("an output"), _dir: dir }
}

/// A view of sorted files, each a part of the data, and of a view of a further part.
fn make_of_files(kind: usize, bytes: usize, different: u64, seed: u64, files: u64) -> Case {
    let dir = tempfile::tempdir().expect("a directory");
    let (cancel, options) = (Cancel::new(), RunOptions::default());
    let (mut all, mut parts) = (Vec::new(), Vec::new());
    for number in 0..files {
        let (layout, keys, data) = data(kind, bytes / files as usize, different, seed ^ (number << 40));
        let input = dir.path().join(format!("input-{number}"));
        std::fs::write(&input, &data).expect("an input");
        all.extend_from_slice(&data);
        let asked = SortRequest { memory_bytes: None, ..request(&input, layout, keys) };
        let part = dir.path().join(format!("part-{number}"));
        if number == 1 {
            crate::make_view(&asked, &part, &options, &Silent, &cancel).expect("a view");
        } else {
            let output = Output::Path(part.clone());
            crate::sort(&SortRequest { output, ..asked }, &options, &Silent, &cancel).expect("a sort");
            std::fs::remove_file(&input).expect("removed");
        }
        parts.push(part);
    }
    let (layout, keys, _) = data(kind, 1, different, seed);
    let input = dir.path().join("all");
    std::fs::write(&input, &all).expect("an input");
    let asked = request(&input, layout, keys);
    let (view, out) = (dir.path().join("v.view"), dir.path().join("sorted"));
    let given = (files < 2).then_some(&asked);
    let made = join_parts(&parts, given, &view, &Silent, &cancel).expect("a view of files");
    assert_eq!(made.sum.bytes, all.len() as u64);
    let sorted = SortRequest { output: Output::Path(out.clone()), stable: kind != 1, ..asked };
    crate::sort(&sorted, &options, &Silent, &cancel).expect("a sort");
    Case { view, sorted: std::fs::read(out).expect("an output"), _dir: dir }
}

fn open(case: &Case) -> Arc<dyn View> {
    OpenView { memory_bytes: Some(32 << 20), threads: Some(2), ..OpenView::default() }
        .open(&case.view)
        .expect("a view")
}

fn read(view: &dyn View, from: usize, to: usize) -> Vec<u8> {
    let mut out = vec![0; to - from + 10];
    let mut stream = view.stream(from as u64, to as u64, within(8 << 20)).expect("a stream");
    let count = stream.read(&mut out).expect("bytes");
    out.truncate(count);
    out
}

/// Number of requests for blocks of runs, from the ledger.
fn requests(view: &dyn View) -> u64 {
    view.ledger()
        .account()
        .iter()
        .filter(|stream| stream.name == "run read")
        .map(|stream| stream.requests)
        .sum()
}

fn check(case: &Case, places: &[f64]) {
    let view = open(case);
    let len = case.sorted.len();
    assert_eq!(view.bytes(), len as u64);
    assert!(read(&*view, 0, len) == case.sorted, "the whole of it");
    for pair in places.windows(2) {
        let from = (len as f64 * pair[0]) as usize;
        let to = from.max((len as f64 * pair[1]) as usize).min(from + (300 << 10));
        let few = view.read_at(from as u64, to - from).expect("bytes");
        assert!(few == case.sorted[from..to], "bytes {from} to {to}");
        assert!(read(&*view, from, to) == case.sorted[from..to], "stream {from} to {to}");
        let before = requests(&*view);
        let cost = view.seek_cost(from as u64).expect("a place");
        assert_eq!(requests(&*view) - before, cost.iter().sum::<u64>(), "what the ledger saw");
        assert!(cost.iter().all(|&blocks| blocks <= MAX_UNITS as u64), "{cost:?}");
    }
}

/// A view is read in its small blocks and written in the large ones of the output.
#[test]
fn planned_requests_are_those_of_the_copy() {
    let case = make(1, 16 << 20, u64::MAX, 5);
    let view = open(&case);
    let out = Output::Path(case.view.with_extension("out"));
    let planned = PartPlan::new(&*view, &(0..view.bytes()), &out).expect("a plan").pass.requests;
    let all = |view: &dyn View| view.ledger().account().iter().map(|stream| stream.requests).sum::<u64>();
    let opened = all(&*view);
    let (cancel, options) = (Cancel::new(), RunOptions::default());
    write_part(&*view, 0..view.bytes(), &out, &options, &Silent, &cancel).expect("a copy");
    let taken = all(&*view) - opened;
    assert!(planned.abs_diff(taken) * 5 < taken, "{planned} requests planned, {taken} taken");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn a_view_in_chunks_is_the_sorted_file(
        kind in 0usize..5,
        megabytes in 1usize..30,
        different in prop_oneof![Just(1u64), Just(3), Just(1000), Just(u64::MAX)],
        seed: u64,
        places in proptest::collection::vec(0.0f64..1.0, 12),
    ) {
        check(&make(kind, megabytes << 20, different, seed), &places);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn a_view_of_sorted_files_is_the_sorted_file(
        kind in 0usize..5,
        kilobytes in 0usize..6000,
        different in prop_oneof![Just(1u64), Just(1000), Just(u64::MAX)],
        seed: u64,
        files in 1u64..5,
        places in proptest::collection::vec(0.0f64..1.0, 8),
    ) {
        check(&make_of_files(kind, kilobytes << 10, different, seed, files), &places);
    }
}

#[test]
fn files_as_parts_of_a_view_in_every_layout() {
    for kind in 0..5 {
        check(&make_of_files(kind, 5 << 20, 1 << 20, 5, 3), &[0.0, 0.1, 0.100_001, 0.5, 0.999_99, 1.0]);
        check(&make_of_files(kind, 1, 10, 1, 1), &[0.0, 0.5, 1.0]);
    }
}

#[test]
fn records_longer_than_a_block_and_a_last_line_without_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut lines: Vec<Vec<u8>> =
        (0..40u8).map(|it| [&[b'a' + it % 26][..], &vec![b'x'; usize::from(it) * 9000]].concat()).collect();
    lines.sort();
    let text = lines.join(&b'\n');
    let file = dir.path().join("lines");
    std::fs::write(&file, &text).expect("a file");
    let asked = request(&file, Layout::LINES, Keys::Command(KeyOptions::default()));
    let view = dir.path().join("v.view");
    join_parts(&[file.clone(), file], Some(&asked), &view, &Silent, &Cancel::new()).expect("a view");
    let sorted: Vec<u8> = lines.iter().flat_map(|line| [&line[..], b"\n", line, b"\n"].concat()).collect();
    let case = Case { view, sorted, _dir: dir };
    let view = open(&case);
    assert!(read(&*view, 0, case.sorted.len()) == case.sorted);
    for from in [0, 1, 123_456, 5_000_000, case.sorted.len() - 10] {
        let to = case.sorted.len().min(from + 1_000_000);
        assert!(view.read_at(from as u64, to - from).expect("bytes") == case.sorted[from..to], "{from}");
    }
}

#[test]
fn what_is_wrong_with_a_file_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let (layout, keys, mut data) = data(0, 3 << 20, u64::MAX, 1);
    let mut records: Vec<_> = data.chunks_exact(100).map(<[u8]>::to_vec).collect();
    records.sort();
    data = records.concat();
    let file = path("file");
    std::fs::write(&file, &data).expect("a file");
    let asked = request(&file, layout, keys);
    let join = |view: &str| {
        join_parts(std::slice::from_ref(&file), Some(&asked), &path(view), &Silent, &Cancel::new())
    };
    join("v.view").expect("in order");
    let opened = || OpenView { memory_bytes: Some(32 << 20), ..OpenView::default() }.open(&path("v.view"));
    let view = opened().expect("a view");
    let modified = std::fs::metadata(&file).and_then(|stat| stat.modified()).expect("a time");
    let write = |data: &[u8], same_time: bool| {
        let mut options = std::fs::OpenOptions::new();
        let mut open = options.write(true).truncate(true).open(&file).expect("a file");
        std::io::Write::write_all(&mut open, data).expect("written");
        let time = if same_time { modified } else { modified + std::time::Duration::from_secs(1) };
        open.set_modified(time).expect("a time");
    };
    let mut damaged = data.clone();
    damaged[1_234_567] ^= 1;
    write(&damaged, true);
    let error = view.read_at(1_234_500, 100).expect_err("damage");
    assert!(error.to_string().contains("file") && error.to_string().contains("checksum"), "{error}");
    write(&data, false);
    assert!(opened().err().expect("altered").to_string().contains("modification time"));
    write(&data[..data.len() - 100], true);
    assert!(opened().err().expect("cut off").to_string().contains("truncated"));
    write(&data, true);
    opened().expect("as it was");
    data.swap(500_000, 1_500_000);
    write(&data, true);
    let error = join("w.view").expect_err("a disorder").to_string();
    assert!(error.contains("record 5002"), "{error}");
    std::fs::remove_file(&file).expect("removed");
    assert!(opened().err().expect("missing").to_string().contains("is missing"));
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("a listing").flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn every_layout_once() {
    for kind in 0..5 {
        check(&make(kind, 24 << 20, 1 << 20, 42), &[0.0, 0.1, 0.100_001, 0.5, 0.999_99, 1.0]);
    }
}

#[test]
fn nothing_and_one_record() {
    for kind in 0..5 {
        check(&make(kind, 0, 10, 1), &[0.0, 1.0]);
        check(&make(kind, 1, 10, 1), &[0.0, 0.3, 1.0]);
    }
}

#[test]
fn records_and_keys_are_found() {
    let case = make(0, 20 << 20, 1 << 20, 7);
    let view = open(&case);
    let most = MAX_UNITS as u64 * view.seek_cost(0).expect("a place").len() as u64;
    for record in [0, 1, 777, 100_000, view.sum().count] {
        let seen = requests(&*view);
        assert_eq!(view.offset_of_record(record).expect("a place"), record * 100);
        assert!(requests(&*view) - seen <= most, "record {record}");
    }
    for key in [0u64, 1, 5_000, 1 << 19, 1 << 20, u64::MAX] {
        let seen = requests(&*view);
        view.offset_of_key(&key.to_be_bytes()).expect("a place");
        assert!(requests(&*view) - seen <= most, "key {key}");
        let before = case.sorted.chunks(100).take_while(|record| record[..8] < key.to_be_bytes()[..]).count();
        assert_eq!(view.offset_of_key(&key.to_be_bytes()).expect("a place"), before as u64 * 100);
    }
    let case = make(1, 12 << 20, 1 << 20, 7);
    let view = open(&case);
    let ends: Vec<usize> = memchr::memchr_iter(b'\n', &case.sorted).map(|at| at + 1).collect();
    assert_eq!(view.sum().count, ends.len() as u64);
    for record in [1, 2, 77, ends.len() / 2, ends.len() - 1, ends.len()] {
        assert_eq!(view.offset_of_record(record as u64).expect("a place"), ends[record - 1] as u64);
    }
}

#[test]
fn readers_share_memory_and_give_it_back() {
    let case = make(0, 20 << 20, 1 << 40, 3);
    let view = open(&case);
    let left = view.pool().available();
    std::thread::scope(|scope| {
        for reader in 0..4 {
            let (view, sorted) = (&view, &case.sorted);
            scope.spawn(move || {
                for chunk in 0..5 {
                    let from = sorted.len() * ((reader + 3 * chunk) % 5) / 5;
                    let mut stream =
                        view.stream(from as u64, sorted.len() as u64, within(6 << 20)).expect("a stream");
                    let mut out = vec![0; 2 << 20];
                    let count = stream.read(&mut out).expect("bytes");
                    assert!(out[..count] == sorted[from..from + count]);
                }
            });
        }
    });
    // The memory of reads that were under way when a stream was dropped comes back a moment later.
    let since = std::time::Instant::now();
    while view.pool().available() < left && since.elapsed().as_secs() < 10 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(view.pool().available(), left);
}

#[test]
fn what_was_altered_is_named() {
    let case = make(0, 20 << 20, 1 << 40, 3);
    let run = case.view.join("run-000002.run");
    let whole = std::fs::read(&run).expect("a run");
    let opened = |_: ()| OpenView { memory_bytes: Some(32 << 20), ..OpenView::default() }.open(&case.view);
    let named = |error: SortError| assert!(error.to_string().contains("run-000002"), "{error}");
    std::fs::write(&run, &whole[..whole.len() - 4096]).expect("written");
    named(opened(()).err().expect("cut off"));
    std::fs::remove_file(&run).expect("removed");
    named(opened(()).err().expect("missing"));
    std::fs::write(&run, &whole).expect("written");
    let index = case.view.join("view.index");
    let kept = std::fs::read(&index).expect("indexes");
    let members = ViewManifest::load(&case.view).expect("a manifest").members;
    let (_, range) = members[1].in_index().expect("a place");
    for at in [range.start, range.start + members[1].index_len() as u64, range.end - 1] {
        let mut damaged = kept.clone();
        damaged[at as usize] ^= 1;
        std::fs::write(&index, &damaged).expect("written");
        named(opened(()).err().expect("another index"));
    }
    std::fs::write(&index, &kept[..kept.len() - 1]).expect("written");
    assert!(opened(()).err().expect("cut off").to_string().contains("view.index"));
    std::fs::write(&index, &kept).expect("written");
    let mut damaged = whole;
    damaged[70_000] ^= 1;
    std::fs::write(&run, &damaged).expect("written");
    let view = opened(()).expect("its index is whole");
    let mut stream = view.stream(0, view.bytes(), within(8 << 20)).expect("a stream");
    let mut out = vec![0; case.sorted.len()];
    let error = stream.read(&mut out).expect_err("damaged");
    assert!(error.to_string().contains("run-000002"), "{error}");
}

#[test]
fn a_view_takes_the_place_of_nothing() {
    let case = make(0, 1 << 10, 10, 1);
    let input = case.view.with_file_name("input");
    let (layout, keys, _) = data(0, 1, 1, 1);
    let again = crate::make_view(
        &request(&input, layout, keys),
        &case.view,
        &RunOptions::default(),
        &Silent,
        &Cancel::new(),
    );
    assert!(matches!(again, Err(SortError::View { .. })));
}

#[test]
fn more_than_a_thousand_runs_of_equal_records() {
    const TIMES: usize = 1100;
    let case = make(0, 6 << 20, 1 << 30, 11);
    let views = vec![case.view.clone(); TIMES];
    let joined = join_views(&views, Path::new("many")).expect("one order");
    assert!(joined.members.len() > 1000, "{}", joined.members.len());
    let opening = OpenView { memory_bytes: Some(1 << 30), threads: Some(1), ..OpenView::default() };
    let view = opening.open_manifest(joined, Path::new("many")).expect("a view");
    assert_eq!(view.bytes(), (case.sorted.len() * TIMES) as u64);
    for share in [0.0, 0.3, 0.77] {
        let from = (view.bytes() as f64 * share) as u64;
        let bytes = view.read_at(from, 50_000).expect("bytes");
        let expected = (from..from + 50_000).map(|at| {
            let (record, inside) = (at as usize / 100 / TIMES, at as usize % 100);
            case.sorted[record * 100 + inside]
        });
        assert!(bytes.iter().copied().eq(expected), "at {from}");
        let cost = view.seek_cost(from).expect("a place");
        assert!(cost.iter().all(|&blocks| blocks <= MAX_UNITS as u64), "{:?}", cost.iter().max());
    }
}
