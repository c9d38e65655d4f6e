"""What is refused before anything is written: a report over other files, files that do not fit each other."""

import json
import os

import pytest
from support import leftovers, run

# ---------------------------------------------------------------- a report in the place of another file


@pytest.mark.parametrize("name", ["in", "./in", "soft", "hard"])
def test_a_report_is_no_input(name, disk):
    (disk / "in").write_bytes(b"b\na\n")
    (disk / "soft").symlink_to("in")
    os.link(disk / "in", disk / "hard")
    before = leftovers(disk)
    for words in ([], ["-o", "out"], ["-m"], ["--explain"]):
        told = run("sort", "in", "--report", name, *words, cwd=disk, expect=2).stderr
        assert f"--report {name} is the input in" in told
    with open(disk / "in", "rb") as stdin:
        told = run("sort", "--report", name, stdin=stdin, cwd=disk, expect=2).stderr
    assert "is the file on standard input" in told
    assert (disk / "in").read_bytes() == b"b\na\n"
    assert leftovers(disk) == before


@pytest.mark.parametrize("there", [False, True])
def test_a_report_is_not_the_output(there, disk):
    (disk / "in").write_bytes(b"b\na\n")
    if there:
        (disk / "out").write_bytes(b"old")
    before = leftovers(disk)
    told = run("sort", "in", "-o", "out", "--report", "./out", cwd=disk, expect=2).stderr
    assert "--report ./out is the output out" in told
    assert leftovers(disk) == before
    assert not there or (disk / "out").read_bytes() == b"old"
    (disk / "list").write_bytes(b"in\0")
    told = run("sort", "--files0-from", "list", "--report", "list", cwd=disk, expect=2).stderr
    assert "is the list of --files0-from" in told
    assert (disk / "list").read_bytes() == b"in\0"


def test_a_report_beside_the_others_is_written(disk):
    (disk / "in").write_bytes(b"b\na\n")
    run("sort", "in", "-o", "in", "--report", "run.json", cwd=disk)
    run("sort", "in", "-o", "/dev/null", "--report", "/dev/null", cwd=disk)
    assert json.loads((disk / "run.json").read_text())["records_out"] == 2
    assert (disk / "in").read_bytes() == b"a\nb\n"
