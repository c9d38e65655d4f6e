//! `ascot sort` from outside: statuses, words and silence around real, small sorts.

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const ASCOT: &str = env!("CARGO_BIN_EXE_ascot");

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn sort(dir: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(ASCOT)
        .arg("sort")
        .args(arguments)
        .current_dir(dir)
        .env_remove("ASCOT_MEMORY")
        .env("ASCOT_VOLUME", "flash")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses its arguments may be gone before it reads.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn sorting_says_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let output = sort(dir.path(), &["-k2,2n", "-t=", "-o", "out"], b"a=10\nb=9\n");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{}", text(&output.stderr));
    assert_eq!(fs::read(dir.path().join("out")).unwrap(), b"b=9\na=10\n");
}

#[test]
fn checks_tell_by_status_and_line() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "a\nc\nb\n").unwrap();
    let loud = sort(dir.path(), &["-c", "f"], b"");
    assert_eq!((loud.status.code(), text(&loud.stderr).as_str()), (Some(1), "ascot: f:3: disorder: b\n"));
    let silent = sort(dir.path(), &["-C", "f"], b"");
    assert_eq!((silent.status.code(), silent.stderr.len()), (Some(1), 0));
    assert_eq!(sort(dir.path(), &["-c", "-r", "-"], b"c\nb\n").status.code(), Some(0));
}

#[test]
fn column_names_make_csv_of_files_called_so() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("t.csv"), "name,n\n\"x\ny\",2\na,10\n").unwrap();
    let output = sort(dir.path(), &["t.csv", "--key", "n:number"], b"");
    assert_eq!(text(&output.stdout), "name,n\n\"x\ny\",2\na,10\n");
    let wrong = sort(dir.path(), &["t.csv", "--key", "nane"], b"");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("name"), "{}", text(&wrong.stderr));
}

#[test]
fn reports_are_written_and_not_left_behind_by_failures() {
    let dir = tempfile::tempdir().unwrap();
    let done = sort(dir.path(), &["--report", "run.json", "--verbose"], b"b\na\n");
    assert_eq!(text(&done.stdout), "a\nb\n");
    assert!(text(&done.stderr).starts_with("sorted 2 records"), "{}", text(&done.stderr));
    let report: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.path().join("run.json")).unwrap()).unwrap();
    assert_eq!(report["records_out"], 2);
    let failed = sort(dir.path(), &["--report", "other.json", "no-such-file"], b"");
    assert_eq!(failed.status.code(), Some(2));
    assert!(!dir.path().join("other.json").exists());
}

#[test]
fn json_is_one_object_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let done = sort(dir.path(), &["--progress", "json"], b"b\na\n");
    let lines = text(&done.stderr);
    let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(last["type"], "report");
    let failed = sort(dir.path(), &["--progress", "json", "no-such-file"], b"");
    let error: serde_json::Value = serde_json::from_slice(&failed.stderr).unwrap();
    assert_eq!((failed.status.code(), error["type"].as_str()), (Some(2), Some("error")));
}

#[test]
fn a_plan_is_printed_and_nothing_done() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "b\na\n").unwrap();
    let output = sort(dir.path(), &["f", "-o", "out", "--explain"], b"");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("plan"), "{}", text(&output.stdout));
    assert!(!dir.path().join("out").exists());
}

#[test]
fn lists_of_files_and_memory_from_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "b\na\n").unwrap();
    assert_eq!(text(&sort(dir.path(), &["--files0-from=-"], b"f\0f\0").stdout), "a\na\nb\nb\n");
    let output = Command::new(ASCOT)
        .args(["sort", "f"])
        .current_dir(dir.path())
        .env("ASCOT_MEMORY", "12")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("ASCOT_MEMORY 12 needs a unit"), "{}", text(&output.stderr));
}

#[test]
fn signals_end_a_waiting_sort_by_the_signal() {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let dir = tempfile::tempdir().unwrap();
        // Tests in the background ignore interrupts, and a sort would too.
        let mut child = Command::new("env")
            .args(["--default-signal=INT,TERM", ASCOT, "sort", "-o", "out"])
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        // Until it reads, it may not watch for signals yet; after a pipe's worth it does.
        let mut input = child.stdin.take().unwrap();
        input.write_all(&b"line\n".repeat(100_000)).unwrap();
        let killed =
            Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        assert_eq!(child.wait().unwrap().signal(), Some(signal));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
        drop(input);
    }
}
