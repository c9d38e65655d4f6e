//! Reading a view always ends, for any record length, memory, number of threads and stopping point of the
//! reader. A watchdog turns a hang into a failure.

use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use ascot_record::checksum::RecordSum;
use ascot_record::keys::KeyOptions;
use ascot_record::layout::Layout;
use proptest::prelude::*;

use super::*;
use crate::api::request::{Input, Keys, Output, SortRequest};
use crate::{Cancel, RunOptions, Silent};

/// Far longer than any case takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;
/// Memory of a reader beyond that in which the view was made, MiB: enough for records of any length here.
const MEMORY_BESIDE: usize = 32;

/// Runs `work` on a thread of its own, and fails if it does not end in time.
fn within_patience(what: &str, work: impl FnOnce() + Send + 'static) {
    let (done, wait) = channel();
    let thread = std::thread::spawn(move || {
        work();
        // The test may have given up.
        let _ = done.send(());
    });
    let ended = wait.recv_timeout(PATIENCE);
    assert!(!matches!(ended, Err(std::sync::mpsc::RecvTimeoutError::Timeout)), "{what} hangs");
    thread.join().expect("no panic");
}

/// Lines in order, each of about `len` bytes, and a view made of them within `memory` MiB.
fn made(dir: &Path, len: usize, memory: u64) -> Vec<u8> {
    let lines = (6 * MIB as usize / len).clamp(12, 20_000);
    let line = |number: usize| {
        let mut line = format!("{number:07} ").into_bytes();
        line.resize((len + number % 7).max(9), b'x');
        line.push(b'\n');
        line
    };
    let sorted: Vec<u8> = (0..lines).flat_map(line).collect();
    let input: Vec<u8> = (0..lines).map(|at| at * 7919 % lines).flat_map(line).collect();
    std::fs::write(dir.join("in"), input).expect("an input");
    let asked: SortRequest = serde_json::from_value(serde_json::json!({
        "inputs": [Input::Path(dir.join("in"))], "output": "Stdout",
        "layout": Layout::Lines { delimiter: b'\n' }, "keys": Keys::Command(KeyOptions::default()),
        "header": false, "unique": false, "stable": false, "merge_only": false, "top": null,
        "memory_bytes": memory * MIB, "temp_dirs": [], "method": "auto", "compression": "none",
        "threads": 2, "batch_size": null
    }))
    .expect("a request");
    crate::make_view(&asked, &dir.join("v"), &RunOptions::default(), &Silent, &Cancel::new())
        .expect("a view");
    sorted
}

/// Reads parts of the view that begin or end at the fraction `stop`, and stops reading streams early.
fn read_and_stop(dir: &Path, sorted: &[u8], (memory, threads): (u64, usize), stop: f64) {
    let opening = OpenView {
        memory_bytes: Some((memory + MEMORY_BESIDE as u64) * MIB),
        threads: Some(threads),
        ..OpenView::default()
    };
    let view = opening.open(&dir.join("v")).expect("a view");
    let bytes = sorted.len();
    let at = (bytes as f64 * stop) as usize;
    // Of each kind of part: its beginning, its middle, its end, all of it.
    for (from, to) in [(0, at), (at / 2, at), (at, bytes), (0, bytes)] {
        let out = dir.join("out");
        let output = Output::Path(out.clone());
        let cancel = Cancel::new();
        let part = from as u64..to as u64;
        match write_part(&*view, part, &output, &RunOptions::default(), &Silent, &cancel) {
            Ok(_) => assert!(std::fs::read(&out).expect("an output") == sorted[from..to], "{from} to {to}"),
            // Long records of many runs at once may need more memory than there is: that is not a hang.
            Err(error) => assert!(error.is_out_of_memory(), "{error}"),
        }
    }
    // A reader that stops in the middle, without and with asking for the sum.
    let memory = MEMORY_BESIDE * MIB as usize;
    let stream = |to: usize, sums| {
        view.stream(0, to as u64, Reading { memory, sums, in_turns: false }).expect("a stream")
    };
    let mut some = vec![0; at];
    let mut left_early = stream(bytes, false);
    assert_eq!(left_early.read(&mut some).expect("bytes"), at);
    assert!(some == sorted[..at]);
    drop(left_early);
    let mut short = stream(at, true);
    assert_eq!(short.read(&mut some).expect("bytes"), at);
    short.sum().expect("no thread has died");
    drop(short);
    let mut whole = stream(bytes, true);
    let mut all = vec![0; bytes];
    assert_eq!(whole.read(&mut all).expect("bytes"), bytes);
    assert_eq!(whole.sum().expect("no thread has died").map(|sum: RecordSum| sum.bytes), Some(bytes as u64));
}

fn check(len: usize, memory: u64, threads: usize, stop: f64) {
    within_patience(&format!("{len} bytes, {memory} MiB, {threads} threads, {stop}"), move || {
        let dir = tempfile::tempdir().expect("a directory");
        let sorted = made(dir.path(), len, memory);
        read_and_stop(dir.path(), &sorted, (memory, threads), stop);
    });
}

#[test]
fn long_records_and_a_reader_that_stops_early() {
    for (len, threads) in [(400_000, 1), (400_000, 4), (70_000, 2)] {
        check(len, 8, threads, 0.05);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn reading_a_view_always_ends(
        len in prop_oneof![9usize..200, 4_000usize..70_000, 70_000usize..500_000],
        memory in 8u64..24,
        threads in 1usize..5,
        stop in 0.0f64..1.0,
    ) {
        check(len, memory, threads, stop);
    }
}
