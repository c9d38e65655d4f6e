//! Complete checks of files, and of the output of `generate`.

use std::fs;
use std::path::PathBuf;

use ascot_record::gensort::Encoding;
use ascot_record::keys::{ByteRangeKey, KeyOptions, parse_csv_keys};
use ascot_record::layout::{Endian, NumberFormat, NumberType};

use super::*;
use crate::api::SortError;
use crate::api::observe::Silent;
use crate::api::request::Output;
use crate::jobs::generate::{GenerateRequest, generate};

const BENCHMARK: Layout = Layout::Fixed { len: 100 };

fn benchmark_key() -> Keys {
    Keys::Ranges(vec![ByteRangeKey { start: 0, end: 10, descending: false }])
}

fn check_files(paths: &[PathBuf], layout: Layout, keys: Keys) -> Result<CheckReport, SortError> {
    let inputs = paths.iter().cloned().map(Input::Path).collect();
    let request = CheckRequest { inputs, layout, keys, header: false, threads: Some(2) };
    check(&request, &Silent, &Cancel::new())
}

fn check_bytes(bytes: &[u8], layout: Layout, keys: Keys) -> Result<CheckReport, SortError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("records");
    fs::write(&path, bytes).unwrap();
    check_files(&[path], layout, keys)
}

fn generate_to(path: PathBuf, count: u64, encoding: Encoding, skewed: bool) -> u64 {
    let request =
        GenerateRequest { count, start: 0, encoding, skewed, output: Output::Path(path), threads: Some(2) };
    generate(&request, &Silent, &Cancel::new()).unwrap()
}

#[test]
fn a_million_records_have_the_published_sums() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("records");
    let sums = [
        (Encoding::Binary, false, 0x7_a0e0_d486_8cd4),
        (Encoding::Ascii, false, 0x7_a19c_ff46_7438),
        (Encoding::Binary, true, 0x7_9f9a_7e6d_e673),
    ];
    for (encoding, skewed, sum) in sums {
        assert_eq!(generate_to(path.clone(), 1_000_000, encoding, skewed), 100_000_000);
        let report = check_files(std::slice::from_ref(&path), BENCHMARK, benchmark_key()).unwrap();
        assert_eq!((report.validation.checksum, report.bytes), (sum, 100_000_000));
        assert_eq!(report.validation.records, 1_000_000);
        assert!(!report.is_ordered());
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "only the output is left");
}

#[test]
fn no_records_make_an_empty_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("records");
    assert_eq!(generate_to(path.clone(), 0, Encoding::Binary, false), 0);
    let report = check_files(&[path], BENCHMARK, benchmark_key()).unwrap();
    assert_eq!(
        report.to_string(),
        "Records: 0\nChecksum: 0\nDuplicate keys: 0\nSUCCESS - all records are in order"
    );
}

#[test]
fn more_than_a_file_holds_is_refused() {
    let output = Output::Path("/nonexistent/records".into());
    let request = GenerateRequest {
        count: u64::MAX,
        start: 0,
        encoding: Encoding::Binary,
        skewed: false,
        output,
        threads: None,
    };
    let error = generate(&request, &Silent, &Cancel::new()).unwrap_err();
    assert!(matches!(error, SortError::Request(_)), "{error}");
    let error = generate(&GenerateRequest { count: 1, ..request }, &Silent, &Cancel::new()).unwrap_err();
    assert!(error.to_string().contains("/nonexistent"), "{error}");
}

#[test]
fn a_stopped_job_leaves_the_old_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("records");
    fs::write(&path, "old").unwrap();
    let cancel = Cancel::new();
    cancel.cancel();
    let output = Output::Path(path.clone());
    let request = GenerateRequest {
        count: 10_000_000,
        start: 0,
        encoding: Encoding::Binary,
        skewed: false,
        output,
        threads: None,
    };
    assert!(matches!(generate(&request, &Silent, &cancel), Err(SortError::Cancelled)));
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn several_files_are_one_sequence() {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = (0..4).map(|i| dir.path().join(format!("part{i}"))).collect();
    let contents = ["a\nb\n", "", "b\nc", "a\nz\n"];
    for (path, content) in paths.iter().zip(contents) {
        fs::write(path, content).unwrap();
    }
    let keys = Keys::Command(KeyOptions::default());
    let report = check_files(&paths, Layout::LINES, keys).unwrap();
    assert_eq!((report.validation.records, report.validation.duplicates), (6, 1));
    assert_eq!(report.validation.first_unordered, Some(4));
    let place = report.unordered.clone().unwrap();
    assert_eq!((place.input, place.record, place.offset), (paths[3].display().to_string(), 0, None));
    let shown = report.to_string();
    assert!(shown.starts_with("First unordered record is record 4\n"), "{shown}");
    assert!(shown.ends_with("ERROR - there are 1 unordered records"), "{shown}");
}

#[test]
fn a_cut_record_is_an_error_with_its_place() {
    let error = check_bytes(&[7; 250], BENCHMARK, benchmark_key()).unwrap_err();
    match error {
        SortError::CutShort { record, offset, have, .. } => assert_eq!((record, offset, have), (3, 200, 50)),
        other => panic!("{other}"),
    }
}

#[test]
fn an_unordered_fixed_record_has_an_offset() {
    let report = check_bytes(b"a1c2b3", Layout::Fixed { len: 2 }, Keys::Ranges(vec![])).unwrap();
    assert_eq!(report.unordered.unwrap().offset, Some(4));
    let descending = Keys::Ranges(vec![ByteRangeKey { start: 0, end: 1, descending: true }]);
    assert!(check_bytes(b"c1b2b3", Layout::Fixed { len: 2 }, descending).unwrap().is_ordered());
}

#[test]
fn numbers_go_by_value() {
    let format = NumberFormat { kind: NumberType::I32, endian: Endian::Little };
    let bytes: Vec<u8> = [-5_i32, -1, 0, 0, 70_000].iter().flat_map(|number| number.to_le_bytes()).collect();
    let report = check_bytes(&bytes, Layout::Number(format), Keys::Value { descending: false }).unwrap();
    assert!(report.is_ordered());
    assert_eq!(report.validation.duplicates, 1);
    let report = check_bytes(&bytes, Layout::Number(format), Keys::Value { descending: true }).unwrap();
    assert_eq!(report.validation.unordered, 3);
}

#[test]
fn rows_go_by_column_and_headers_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["a.csv", "b.csv"].map(|name| dir.path().join(name));
    fs::write(&paths[0], "name,size\nz,9\n\"a\nb\",10\n").unwrap();
    fs::write(&paths[1], "name,size\nx,10\ny,11").unwrap();
    let layout = Layout::Csv { separator: b',', quote: b'"' };
    let report = check_files(&paths, layout, Keys::Columns(parse_csv_keys("size").unwrap())).unwrap();
    assert!(report.is_ordered());
    assert_eq!((report.validation.records, report.validation.duplicates), (4, 1));
    let by_name = Keys::Columns(parse_csv_keys("name").unwrap());
    let report = check_files(&paths, layout, by_name).unwrap();
    assert_eq!(report.validation.first_unordered, Some(1));
    assert!(check_files(&paths, layout, Keys::Columns(parse_csv_keys("sise").unwrap())).is_err());
}

#[test]
fn headers_without_names_in_keys_are_left_out_if_there_are_any() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["a", "b"].map(|name| dir.path().join(name));
    fs::write(&paths[0], "the name\na\nb\n").unwrap();
    fs::write(&paths[1], "the name\nc\nd").unwrap();
    let lines = Layout::Lines { delimiter: b'\n' };
    let csv = Layout::Csv { separator: b',', quote: b'"' };
    let by_column = Keys::Columns(parse_csv_keys("#1").unwrap());
    for (layout, keys) in [(lines, Keys::Command(KeyOptions::default())), (csv, by_column)] {
        let inputs = paths.iter().cloned().map(Input::Path).collect();
        let request = CheckRequest { inputs, layout, keys: keys.clone(), header: true, threads: Some(1) };
        let report = check(&request, &Silent, &Cancel::new()).unwrap();
        assert_eq!((report.is_ordered(), report.validation.records), (true, 4));
        let report = check_files(&paths, layout, keys).unwrap();
        assert_eq!((report.is_ordered(), report.validation.records), (false, 6));
    }
}

/// A pipe and the path of its writing end.
fn pipe() -> (std::io::PipeReader, std::io::PipeWriter, PathBuf) {
    let (reader, writer) = std::io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer)).into();
    (reader, writer, path)
}

#[test]
fn a_pipe_is_written_and_checked() {
    let (reader, writer, to) = pipe();
    let from = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader)).into();
    let maker = std::thread::spawn(move || {
        let bytes = generate_to(to, 100_000, Encoding::Ascii, false);
        drop(writer);
        bytes
    });
    let report = check_files(&[from], BENCHMARK, benchmark_key()).unwrap();
    assert_eq!(maker.join().unwrap(), 10_000_000);
    assert_eq!(report.validation.records, 100_000);
}

#[test]
fn a_job_stops_though_nobody_reads_or_writes_the_pipe() {
    let (reader, _writer, to) = pipe();
    let from: PathBuf = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader)).into();
    let cancel = Cancel::new();
    let stopper = cancel.clone();
    let stopping = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        stopper.cancel();
    });
    // First the pipe has no writer, then no reader.
    let keys = benchmark_key();
    let inputs = vec![Input::Path(from)];
    let request = CheckRequest { inputs, layout: BENCHMARK, keys, header: false, threads: None };
    assert!(matches!(check(&request, &Silent, &cancel), Err(SortError::Cancelled)));
    for count in [1000, 10_000_000] {
        let output = Output::Path(to.clone());
        let encoding = Encoding::Binary;
        let request = GenerateRequest { count, start: 0, encoding, skewed: false, output, threads: None };
        assert!(matches!(generate(&request, &Silent, &cancel), Err(SortError::Cancelled)));
    }
    stopping.join().unwrap();
}

#[test]
fn keys_that_do_not_fit_the_layout_are_refused() {
    let beyond = Keys::Ranges(vec![ByteRangeKey { start: 90, end: 101, descending: false }]);
    assert!(check_bytes(b"", BENCHMARK, beyond).is_err());
    assert!(check_bytes(b"", Layout::LINES, benchmark_key()).is_err());
}
