"""Unusual files: without a length, with two names, empty, growing, closed, and standard streams."""

import json
import os
import subprocess

import pytest
from support import FIXED, TIMEOUT_SECONDS, ascot_binary, clean_environment, leftovers, run, small_disk, start


@pytest.mark.parametrize("path", ["/proc/filesystems", "/sys/class/net/lo/mtu"])
def test_files_without_a_length_are_read_to_their_end(path, disk):
    if not os.path.exists(path):
        pytest.skip(f"there is no {path}")
    expected = subprocess.run(["sort", path], capture_output=True, check=True, env=clean_environment()).stdout
    assert expected
    assert run("sort", path).stdout == expected
    assert run("sort", "-u", path, path).stdout == b"".join(sorted(set(expected.splitlines(keepends=True))))


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1"])
def test_standard_output_by_name_is_written_at_its_position(name, disk):
    (disk / "in").write_text("b\na\n")
    with open(disk / "log", "wb") as log:
        log.write(b"head\n")
        log.flush()
        words = [ascot_binary(), "sort", disk / "in", "-o", name]
        subprocess.run(words, stdout=log, check=True, env=clean_environment())
        log.seek(0, os.SEEK_END)
        log.write(b"tail\n")
    assert (disk / "log").read_text() == "head\na\nb\ntail\n"


def test_a_column_of_an_empty_table_may_have_any_name(disk):
    (disk / "empty.csv").write_bytes(b"")
    assert run("sort", "--csv", "--header", "--key", "day,-n:number", disk / "empty.csv").stdout == b""
    (disk / "full.csv").write_text("day,n\n2,1\n1,1\n")
    both = run("sort", "--key", "day", disk / "empty.csv", disk / "full.csv").stdout
    assert both == b"day,n\n1,1\n2,1\n"


def test_a_plan_counts_what_is_merged_again(disk):
    for number in range(120):
        (disk / f"in{number:03}").write_text(f"{number:03}\n" * 200)
    files = sorted(disk.glob("in*"))
    size = 120 * 800
    words = ["merge", *files, "--batch-size", "4"]
    run(*words, "--explain", "--report", disk / "plan.json", "-o", disk / "out")
    run(*words, "--report", disk / "report.json", "-o", disk / "out")
    passes = json.loads((disk / "plan.json").read_text())["plan"]["chosen"]["passes"]
    planned = sum(one["read_bytes"] for one in passes)
    streams = [s for one in json.loads((disk / "report.json").read_text())["passes"] for s in one["streams"]]
    read = sum(stream["read_bytes"] for stream in streams)
    assert planned > 3 * size and 0.8 < planned / read < 1.25, (planned, read, size)


def test_a_key_with_a_split_by_size_is_a_mistake(disk):
    (disk / "in").write_text("b\na\n")
    failed = run("split", disk / "in", "-k1", "--by", "size", "--parts", "2", "-o", disk / "p{}", expect=2)
    assert "--by size does not use a key" in failed.stderr
    assert "missing: --parts N and --output FILE" in run("split", disk / "in", expect=2).stderr


@pytest.mark.parametrize("half", [b"", b"half of a li"])
def test_a_file_that_grows_is_read_to_its_end(half, disk):
    """The file is larger than a chunk, and grows after it was opened, after a partial line."""
    lines = [f"{number * 7919 % 1000003:07} of a log\n".encode() for number in range(400_000)]
    log, pipe = disk / "log", disk / "pipe"
    log.write_bytes(b"".join(lines) + half)
    os.mkfifo(pipe)
    job = start("sort", pipe, log, "--memory", "16MiB", "-o", disk / "out")
    with open(pipe, "wb") as feed:
        # More than a pipe holds: when this write returns, the job has opened both files.
        feed.write(b"from the pipe\n" * 20000)
        with open(log, "ab") as more:
            more.write(b"ne\n" + b"one more\n" * 1000)
    assert job.wait(TIMEOUT_SECONDS) == 0
    expected = sorted([*lines, half + b"ne\n", *[b"one more\n"] * 1000, *[b"from the pipe\n"] * 20000])
    assert (disk / "out").read_bytes() == b"".join(expected)


def test_a_file_on_standard_input_is_a_file(disk):
    """The job knows its size and reads it in any order; from the middle it reads the rest."""
    (disk / "in").write_text("".join(f"{number % 7}\n" for number in range(100000)))
    with open(disk / "in", "rb") as source:
        words = [ascot_binary(), "sort", "--explain", "--report", disk / "plan.json", "-o", disk / "out"]
        subprocess.run(words, stdin=source, check=True, env=clean_environment(), capture_output=True)
    assert json.loads((disk / "plan.json").read_text())["plan"]["input_bytes"] == 200000
    (disk / "few").write_text("c\nb\na\n")
    for words in ["sort", "sort --memory 8MiB --method merge", "split --by hash --parts 2 -o part{}"]:
        # The job consumes the file, as any program does.
        command = ["sh", "-c", f'{{ "$0" {words}; cat; }} < few', ascot_binary()]
        done = subprocess.run(command, cwd=disk, check=True, env=clean_environment(), capture_output=True)
        assert done.stdout == (b"" if "split" in words else b"a\nb\nc\n"), words
    with open(disk / "few", "rb", buffering=0) as source:
        source.read(2)
        words = [ascot_binary(), "sort"]
        done = subprocess.run(words, stdin=source, check=True, env=clean_environment(), capture_output=True)
    assert done.stdout == b"a\nb\n"


def test_streams_that_are_closed_are_an_error(disk):
    (disk / "in").write_text("b\na\n")

    def shell(words, expect):
        command = ["sh", "-c", f'"$0" {words}', ascot_binary()]
        done = subprocess.run(command, cwd=disk, env=clean_environment(), capture_output=True, check=False)
        assert done.returncode == expect, (words, done)
        return done

    for words in ["sort in >&-", "gen 10 >&-", "split --help >&-", "sort in --explain >&-"]:
        assert b"standard output: Bad file descriptor" in shell(words, 2).stderr
    for words in ["sort <&-", "sort -c <&-", "check <&-", "merge in - <&-"]:
        assert b"standard input: cannot be read: Bad file descriptor" in shell(words, 2).stderr
    assert shell("sort in -o out >&- <&-", 0).stderr == b""
    assert (disk / "out").read_text() == "a\nb\n"
    assert b"empty name" in shell("sort in -o ''", 2).stderr


@pytest.mark.parametrize("method", ["merge", "distribute"])
def test_paths_that_are_not_text_are_sorted_and_not_resumed(method, disk):
    """The state of a job is text; without one it cannot be resumed."""
    odd = os.fsencode(disk) + b"/\xff"
    os.mkdir(odd)
    run("gen", "200k", "-o", odd + b"/in")
    words = [*FIXED, "--memory", "8MiB", "--method", method, "--temp", odd]
    run("sort", odd + b"/in", *words, "-o", odd + b"/out")
    assert run("check", odd + b"/out", *FIXED).returncode == 0
    assert sorted(os.listdir(odd)) == [b"in", b"out"]
    refused = run("sort", odd + b"/in", *FIXED, "--view", odd + b"/view", expect=2)
    assert "is not UTF-8" in refused.stderr and "manifest" not in refused.stderr
    assert sorted(os.listdir(odd)) == [b"in", b"out"]


def test_records_that_do_not_fit_are_not_begun(disk):
    with small_disk(disk, 24 << 20) as small:
        refused = run("gen", "1M", "-o", small / "out", expect=2)
        assert "not enough space for the output: 100 MB needed" in refused.stderr, refused
        assert leftovers(small) == []
