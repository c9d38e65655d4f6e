//! The command from outside, as far as no record is sorted: words, exit statuses, files of its own.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

const ASCOT: &str = env!("CARGO_BIN_EXE_ascot");

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn ascot(arguments: &[&str]) -> Output {
    Command::new(ASCOT).args(arguments).env("ASCOT_VOLUME", "flash").stdin(Stdio::null()).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn help_goes_to_standard_output() {
    for arguments in [
        &["--help"][..],
        &["-h"],
        &["help"],
        &["sort", "--help"],
        &["sort", "a", "--help"],
        &["gen", "-h"],
        &["help", "clean"],
    ] {
        let output = ascot(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(out(&output).starts_with("Usage: ascot"), "{arguments:?}: {}", out(&output));
        assert!(out(&output).lines().count() <= 40 && err(&output).is_empty(), "{arguments:?}");
    }
    assert!(out(&ascot(&["sort", "--help"])).starts_with("Usage: ascot sort"));
}

#[test]
fn the_version_is_one_line() {
    for arguments in [&["--version"][..], &["-V"], &["sort", "--version"]] {
        assert_eq!(
            out(&ascot(arguments)),
            concat!("ascot ", env!("CARGO_PKG_VERSION"), "\n"),
            "{arguments:?}"
        );
    }
}

#[test]
fn mistakes_are_status_2_with_advice_and_no_output() {
    for (arguments, words) in [
        (&["sort", "--memry", "1G"][..], "did you mean --memory"),
        (&["sort", "--memory", "512"], "512MiB"),
        (&["srot"], "did you mean sort"),
        (&[], "no command given"),
        (&["gen"], "COUNT"),
        (&["gen", "many"], "100k"),
        (&["completions", "csh"], "fish"),
        (&["man", "srot"], "no command srot"),
        (&["sort", "-R", "--format", "u64"], "-R orders lines"),
        (&["sort", "--resume", "d", "-n"], "no other flags"),
        (&["sort", "--resume", "d", "file"], "no files"),
        (&["sort", "--progress", "loud"], "auto, none, bar, json"),
        (&["check", "--format", "fixed:0"], "fixed"),
    ] {
        let output = ascot(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", err(&output));
        assert!(
            err(&output).starts_with("ascot: ") && err(&output).contains(words),
            "{arguments:?}: {}",
            err(&output)
        );
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn pages_and_scripts_are_printed_or_written() {
    assert!(out(&ascot(&["man"])).contains(".TH"));
    assert!(out(&ascot(&["man", "sort"])).contains("ascot sort"));
    assert!(out(&ascot(&["completions", "bash"])).contains("complete"));
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("man1");
    assert!(ascot(&["man", "--dir", target.to_str().unwrap()]).status.success());
    assert!(target.join("ascot-sort.1").is_file());
}

#[test]
fn a_reader_that_leaves_ends_the_command_quietly() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(ASCOT).args(["man", "sort"]).stdout(writer).output().unwrap();
    assert_eq!(output.status.signal(), Some(13), "{output:?}");
    assert!(output.stderr.is_empty(), "{}", err(&output));
}

#[test]
fn called_sort_it_sorts() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("sort");
    std::os::unix::fs::symlink(ASCOT, &link).unwrap();
    let mut child =
        Command::new(&link).arg("-r").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"a\nb\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(out(&output), "b\na\n");
}
