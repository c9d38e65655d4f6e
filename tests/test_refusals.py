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


# ---------------------------------------------------------------- CSV files of different columns


@pytest.mark.parametrize("words", [[], ["-m"], ["--memory", "8MiB", "--method", "distribute"]], ids=" ".join)
@pytest.mark.parametrize(
    ("other", "told"),
    [
        (b"v,id\n", "column #1 is 'id' in the one, 'v' in the other"),
        (b"id,V\n", "column #2 is 'v' in the one, 'V' in the other"),
        (b"id\n", "column #2 is 'v' in the one, missing in the other"),
        (b"id,v,w\n", "column #3 is missing in the one, 'w' in the other"),
    ],
)
def test_csv_headers_must_agree(other, told, words, disk):
    (disk / "a").write_bytes(b"id,v\n2,x\n")
    (disk / "same").write_bytes(b'"id",v\r\n1,y\r\n')
    (disk / "b").write_bytes(other + b"y,1\n")
    before = leftovers(disk)
    done = run("sort", "--csv", "-k", "#1", "--header", "a", "same", "b", "-o", "out", *words, cwd=disk, expect=2)
    assert "a and b have different headers" in done.stderr and told in done.stderr
    assert leftovers(disk) == before
    done = run("sort", "--csv", "-k", "id", "-", "b", *words, stdin=b"id,v\n1,x\n", cwd=disk, expect=2)
    assert "standard input and b have different headers" in done.stderr
    assert "a and b have" in run("check", "--format", "csv", "-k", "id", "a", "b", cwd=disk, expect=2).stderr


def test_a_column_by_number_is_suggested():
    data = b"name,count\nx,10\ny,9\n"
    told = run("sort", "--csv", "--header", "-k", "2,2n", stdin=data, expect=2).stderr
    assert "no column '2'" in told and "'#2:number'" in told
    assert run("sort", "--csv", "--header", "-k", "#2:number", stdin=data).stdout == b"name,count\ny,9\nx,10\n"


@pytest.mark.parametrize("words", [[], ["-m"], ["--method", "distribute"]], ids=" ".join)
def test_csv_headers_that_agree(words, disk):
    (disk / "empty").write_bytes(b"")
    (disk / "a").write_bytes(b"id,v\n2,x\n")
    (disk / "b").write_bytes(b'\xef\xbb\xbf"id","v"\r\n1,y\n')
    (disk / "c").write_bytes(b"id,v")
    done = run("sort", "--csv", "-k", "id", "empty", "a", "b", "c", *words, cwd=disk)
    assert done.stdout == b"id,v\n1,y\n2,x\n"
