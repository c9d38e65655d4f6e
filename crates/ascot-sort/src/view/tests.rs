//! A view read in pieces, by several readers, against the sorted file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ascot_io::Compression;
use ascot_record::keys::{ByteRangeKey, KeyOptions, parse_csv_keys};
use ascot_record::layout::Layout;
use proptest::prelude::*;

use super::*;
use crate::error::SortError;
use crate::request::{Input, Keys, Method, Output, SortRequest};
use crate::{Cancel, RunOptions, Silent};

fn request(input: &Path, layout: Layout, keys: Keys) -> SortRequest {
    SortRequest {
        inputs: vec![Input::Path(input.to_path_buf())],
        output: Output::Stdout,
        layout,
        keys,
        header: false,
        unique: false,
        stable: false,
        merge_only: false,
        top: None,
        memory_bytes: Some(8 << 20),
        temp_dirs: Vec::new(),
        method: Method::Auto,
        compression: Compression::None,
        threads: Some(2),
        batch_size: None,
        volume: None,
        host: None,
    }
}

/// A layout, its keys, and data of about `bytes` bytes whose keys are one of `different`.
fn data(kind: usize, bytes: usize, different: u64, seed: u64) -> (Layout, Keys, Vec<u8>) {
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
    // Without `stable` lines are settled by all their bytes, which is the same for these.
    crate::sort(&sorted, &RunOptions::default(), &Silent, &Cancel::new()).expect("a sort");
    Case { view, sorted: std::fs::read(out).expect("an output"), _dir: dir }
}

fn open(case: &Case) -> Arc<dyn View> {
    OpenView { memory_bytes: Some(32 << 20), threads: Some(2), ..OpenView::default() }
        .open(&case.view)
        .expect("a view")
}

fn read(view: &dyn View, from: usize, to: usize) -> Vec<u8> {
    let mut out = vec![0; to - from + 10];
    let mut stream = view.stream(from as u64, to as u64, 8 << 20).expect("a stream");
    let count = stream.read(&mut out).expect("bytes");
    out.truncate(count);
    out
}

/// Requests for blocks of runs, by the ledger.
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
        assert!(cost.iter().all(|&blocks| blocks <= MOST_UNITS as u64), "{cost:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn a_view_in_pieces_is_the_sorted_file(
        kind in 0usize..5,
        megabytes in 1usize..30,
        different in prop_oneof![Just(1u64), Just(3), Just(1000), Just(u64::MAX)],
        seed: u64,
        places in proptest::collection::vec(0.0f64..1.0, 12),
    ) {
        check(&make(kind, megabytes << 20, different, seed), &places);
    }
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
    for key in [0u64, 1, 5_000, 1 << 19, 1 << 20, u64::MAX] {
        let before = case.sorted.chunks(100).take_while(|record| record[..8] < key.to_be_bytes()[..]).count();
        assert_eq!(view.offset_of_key(&key.to_be_bytes()).expect("a place"), before as u64 * 100);
    }
    let case = make(1, 12 << 20, 1 << 20, 7);
    let view = open(&case);
    let ends: Vec<usize> = memchr::memchr_iter(b'\n', &case.sorted).map(|at| at + 1).collect();
    assert_eq!(view.records(), ends.len() as u64);
    for record in [1, 2, 77, ends.len() / 2, ends.len() - 1, ends.len()] {
        assert_eq!(view.offset_of_record(record as u64).expect("a place"), ends[record - 1] as u64);
    }
}

#[test]
fn readers_share_memory_and_give_it_back() {
    let case = make(0, 20 << 20, 1 << 40, 3);
    let view = open(&case);
    let left = view.memory_left();
    std::thread::scope(|scope| {
        for reader in 0..4 {
            let (view, sorted) = (&view, &case.sorted);
            scope.spawn(move || {
                for piece in 0..5 {
                    let from = sorted.len() * ((reader + 3 * piece) % 5) / 5;
                    let mut stream =
                        view.stream(from as u64, sorted.len() as u64, 6 << 20).expect("a stream");
                    let mut out = vec![0; 2 << 20];
                    let count = stream.read(&mut out).expect("bytes");
                    assert!(out[..count] == sorted[from..from + count]);
                }
            });
        }
    });
    // What was asked of the device when a stream went comes back a moment later.
    let since = std::time::Instant::now();
    while view.memory_left() < left && since.elapsed().as_secs() < 10 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(view.memory_left(), left);
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
    let mut damaged = whole.clone();
    let at = damaged.len() - 100;
    damaged[at] ^= 1;
    std::fs::write(&run, &damaged).expect("written");
    named(opened(()).err().expect("another index"));
    let mut damaged = whole;
    damaged[70_000] ^= 1;
    std::fs::write(&run, &damaged).expect("written");
    let view = opened(()).expect("its index is whole");
    let mut stream = view.stream(0, view.bytes(), 8 << 20).expect("a stream");
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
    const TIMES: usize = 300;
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
        assert!(cost.iter().all(|&blocks| blocks <= MOST_UNITS as u64), "{:?}", cost.iter().max());
    }
}
