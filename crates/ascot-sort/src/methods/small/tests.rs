//! Compares the small path with the path for jobs of any size: same bytes, same sums, same errors.

use std::fs;
use std::path::{Path, PathBuf};

use ascot_record::keys::{ByteRangeKey, KeyOptions, parse_csv_keys};
use ascot_record::layout::Layout;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::api::observe::{Cancel, Silent};
use crate::api::request::{Input, Keys, Output};
use crate::jobs::sort::{sort, sort_large};

fn request(dir: &Path, layout: &str, keys: Keys, inputs: &[&[u8]]) -> SortRequest {
    let write = |(number, bytes): (usize, &&[u8])| {
        let path = dir.join(format!("in{number}"));
        fs::write(&path, bytes).unwrap();
        Input::Path(path)
    };
    let layout = Layout::parse(layout).unwrap();
    let inputs = inputs.iter().enumerate().map(write).collect();
    SortRequest {
        memory_bytes: Some(64 << 20),
        temp_dirs: vec![dir.to_path_buf()],
        compression: ascot_io::Compression::None,
        threads: Some(2),
        ..SortRequest::new(inputs, Output::Path(dir.join("out")), layout, keys)
    }
}

fn output_of(request: &SortRequest) -> PathBuf {
    let Output::Path(path) = &request.output else { panic!("a file") };
    path.clone()
}

/// The outcome of a request: the result and the counts of its report, or its error message.
fn outcome(
    request: &SortRequest,
    result: Result<Report, SortError>,
) -> Result<(Vec<u8>, [u64; 5], String), String> {
    let report = result.map_err(|error| error.to_string())?;
    let counts =
        [report.records_in, report.bytes_in, report.records_out, report.bytes_out, report.records_dropped];
    assert_eq!(report.plan.as_ref().map(|plan| plan.chosen.method.as_str()), Some("in memory"));
    let bytes = fs::read(output_of(request)).unwrap();
    fs::remove_file(output_of(request)).unwrap();
    Ok((bytes, counts, report.checksum))
}

/// Asserts that both paths give the same outcome, and returns it.
fn both(request: &SortRequest) -> Result<Vec<u8>, String> {
    let (options, cancel) = (RunOptions::default(), Cancel::new());
    let inputs = || Inputs::open(&request.inputs).unwrap();
    assert!(memory_of(request, &inputs()).is_some(), "{request:?}");
    let small = outcome(request, sort(request, &options, &Silent, &cancel));
    let large = outcome(
        request,
        sort_large(request, inputs(), &options, Caller { observer: &Silent, cancel: &cancel }),
    );
    assert_eq!(small, large, "{request:?}");
    let names =
        fs::read_dir(output_of(request).parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| !name.to_string_lossy().starts_with("in")).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    small.map(|(bytes, ..)| bytes)
}

fn lines(options: KeyOptions) -> Keys {
    Keys::Command(options)
}

fn numeric() -> KeyOptions {
    let mut options = KeyOptions::default();
    options.global.numeric = true;
    options
}

fn range(start: usize, end: usize) -> Keys {
    Keys::Ranges(vec![ByteRangeKey { start, end, descending: false }])
}

#[test]
fn lines_of_several_files_with_a_last_one_unended() {
    let dir = TempDir::new().unwrap();
    let mut asked = request(dir.path(), "lines", lines(KeyOptions::default()), &[b"b\na", b"", b"c\n\nb"]);
    assert_eq!(both(&asked), Ok(b"\na\nb\nb\nc\n".to_vec()));
    asked.unique = true;
    assert_eq!(both(&asked), Ok(b"\na\nb\nc\n".to_vec()));
    asked.top = Some(2);
    assert_eq!(both(&asked), Ok(b"\na\n".to_vec()));
    asked.top = Some(0);
    assert_eq!(both(&asked), Ok(Vec::new()));
}

#[test]
fn nothing_at_all_and_only_a_header() {
    let dir = TempDir::new().unwrap();
    let mut asked = request(dir.path(), "lines", lines(KeyOptions::default()), &[b"", b""]);
    assert_eq!(both(&asked), Ok(Vec::new()));
    asked.header = true;
    assert_eq!(both(&asked), Ok(Vec::new()));
    let mut asked = request(dir.path(), "lines", lines(KeyOptions::default()), &[b"head", b"head\nb\na"]);
    asked.header = true;
    assert_eq!(both(&asked), Ok(b"head\na\nb\n".to_vec()));
}

#[test]
fn the_first_of_equal_keys_stays() {
    let dir = TempDir::new().unwrap();
    let mut asked = request(dir.path(), "lines", lines(numeric()), &[b"10 x\n2 b\n", b"2 a\n1\n10 w"]);
    assert_eq!(both(&asked), Ok(b"1\n2 a\n2 b\n10 w\n10 x\n".to_vec()));
    asked.stable = true;
    assert_eq!(both(&asked), Ok(b"1\n2 b\n2 a\n10 x\n10 w\n".to_vec()));
    (asked.stable, asked.unique) = (false, true);
    assert_eq!(both(&asked), Ok(b"1\n2 b\n10 x\n".to_vec()));
}

#[test]
fn rows_with_headers_and_line_breaks() {
    let dir = TempDir::new().unwrap();
    let keys = Keys::Columns(parse_csv_keys("n:number").unwrap());
    let mut asked = request(dir.path(), "csv", keys, &[b"a,n\n\"x\ny\",10\r\nz,9\n", b"a,n\nq,9\nw,8"]);
    asked.header = true;
    assert_eq!(both(&asked), Ok(b"a,n\nw,8\nz,9\nq,9\n\"x\ny\",10\r\n".to_vec()));
    asked.unique = true;
    assert_eq!(both(&asked), Ok(b"a,n\nw,8\nz,9\n\"x\ny\",10\r\n".to_vec()));
}

#[test]
fn what_is_cut_short_is_told_alike() {
    let dir = TempDir::new().unwrap();
    let fixed = request(dir.path(), "fixed:4", range(0, 2), &[b"bbbbaaaa", b"ccccdd"]);
    let error = both(&fixed).unwrap_err();
    assert!(error.contains("in1: record 2 is cut short: 2 of 4 bytes at offset 4"), "{error}");
    let prefixed = request(dir.path(), "prefixed:u8", Keys::Ranges(Vec::new()), &[b"\x01b\x02a"]);
    assert!(both(&prefixed).unwrap_err().contains("record 2"));
    let keys = Keys::Columns(parse_csv_keys("#1").unwrap());
    let open = request(dir.path(), "csv", keys, &[b"a,b\n\"c,d\n"]);
    assert!(both(&open).unwrap_err().contains("record 2 is cut short: the quote opened at offset 4"));
    let number = request(dir.path(), "u32", Keys::Value { descending: false }, &[b"12345"]);
    assert!(both(&number).unwrap_err().contains("1 of 4 bytes at offset 4"));
}

#[test]
fn numbers_of_either_order() {
    let dir = TempDir::new().unwrap();
    for format in ["u32", "i64-be", "f64", "f32-be"] {
        for descending in [false, true] {
            let bytes: Vec<u8> =
                (0..4096u32).flat_map(|i| i.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
            let twice = [&bytes[..], &bytes[..800]];
            let mut asked = request(dir.path(), format, Keys::Value { descending }, &twice);
            assert_eq!(both(&asked).unwrap().len(), bytes.len() + 800);
            asked.unique = true;
            both(&asked).unwrap();
            asked.top = Some(77);
            both(&asked).unwrap();
        }
    }
}

#[test]
fn the_output_may_be_an_input() {
    let dir = TempDir::new().unwrap();
    let mut asked = request(dir.path(), "lines", lines(KeyOptions::default()), &[b"b\na\n"]);
    asked.output = Output::Path(dir.path().join("in0"));
    sort(&asked, &RunOptions::default(), &Silent, &Cancel::new()).unwrap();
    assert_eq!(fs::read(dir.path().join("in0")).unwrap(), b"a\nb\n");
}

#[test]
fn jobs_that_are_not_small_are_left_alone() {
    let dir = TempDir::new().unwrap();
    let many = b"\n".repeat(RECORDS_MAX + 1);
    let mut asked = request(dir.path(), "lines", lines(KeyOptions::default()), &[&many]);
    // Too many records: the small path begins, then leaves the job to the large path.
    assert_eq!(both(&asked), Ok(many));
    let small = |asked: &SortRequest| memory_of(asked, &Inputs::open(&asked.inputs).unwrap()).is_some();
    asked.memory_bytes = Some(1 << 20);
    assert!(!small(&asked), "too little memory is an error of the large way");
    asked.memory_bytes = None;
    assert!(small(&asked));
    asked.merge_only = true;
    assert!(!small(&asked));
    (asked.merge_only, asked.method) = (false, Method::Distribute);
    assert!(!small(&asked));
}

#[test]
fn a_cancelled_job_writes_nothing() {
    let dir = TempDir::new().unwrap();
    let asked = request(dir.path(), "lines", lines(KeyOptions::default()), &[b"b\na\n"]);
    let cancel = Cancel::new();
    cancel.cancel();
    let result = sort(&asked, &RunOptions::default(), &Silent, &cancel);
    assert!(matches!(result, Err(SortError::Cancelled)), "{result:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn faults_are_reported_and_leave_nothing() {
    use ascot_io::Effect;
    use ascot_testing::faults::{FaultPlan, Faults};
    let dir = TempDir::new().unwrap();
    let asked = request(dir.path(), "lines", lines(KeyOptions::default()), &[b"b\na\n", b"c\n"]);
    let counting = Faults::counting();
    sort(
        &asked,
        &RunOptions { faults: Some(counting.clone().into()), ..RunOptions::default() },
        &Silent,
        &Cancel::new(),
    )
    .unwrap();
    fs::remove_file(output_of(&asked)).unwrap();
    assert!(counting.counted() >= 8, "{}", counting.counted());
    for at in 0..counting.counted() {
        let plan = FaultPlan {
            at,
            effect: Effect::Eio,
            operations: Vec::new(),
            path_contains: String::new(),
            lasting: false,
        };
        let options = RunOptions { faults: Some(Faults::new(plan).into()), ..RunOptions::default() };
        let result = sort(&asked, &options, &Silent, &Cancel::new());
        // The very last operation syncs the directory of a result that is in place.
        let kept = fs::read(output_of(&asked)).ok();
        assert!(result.is_err(), "operation {at}");
        assert!(kept.is_none() || kept.as_deref() == Some(b"a\nb\nc\n"), "operation {at}");
        let _ = fs::remove_file(output_of(&asked));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "operation {at}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn lines_of_all_kinds(
        files in prop::collection::vec("[ab1 -]{0,6}(\n[ab12 ]{0,5}){0,20}", 1..4),
        (unique, stable, reverse, by_number) in any::<(bool, bool, bool, bool)>(),
        top in prop::option::of(0u64..20),
    ) {
        let dir = TempDir::new().unwrap();
        let mut options = if by_number { numeric() } else { KeyOptions::default() };
        options.global.reverse = reverse;
        let files: Vec<&[u8]> = files.iter().map(|file| file.as_bytes()).collect();
        let asked = SortRequest { unique, stable, top, ..request(dir.path(), "lines", lines(options), &files) };
        both(&asked).unwrap();
    }
}
