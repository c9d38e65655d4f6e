"""Files that are not what they seem: without a length, under two names, empty, being standard output."""

import json
import os
import subprocess

import pytest
from support import ascot_binary, clean_environment, run


@pytest.mark.parametrize("path", ["/proc/filesystems", "/sys/class/net/lo/mtu"])
def test_files_whose_length_says_nothing_are_read_to_their_end(path, disk):
    if not os.path.exists(path):
        pytest.skip(f"there is no {path}")
    expected = subprocess.run(["sort", path], capture_output=True, check=True, env=clean_environment()).stdout
    assert expected
    assert run("sort", path).stdout == expected
    assert run("sort", "-u", path, path).stdout == b"".join(sorted(set(expected.splitlines(keepends=True))))


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1"])
def test_standard_output_by_name_is_written_where_it_stands(name, disk):
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
    assert "--by size looks at no key" in failed.stderr
    assert "missing: --parts N and --output FILE" in run("split", disk / "in", expect=2).stderr
