"""A `numpy.memmap` of a part of a file is read from that part of the file, in every job that reads files."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import ascot
import numpy
import pyarrow
import pytest
from support import job_directories, kill_after_moving, leftovers, random_records, sorted_records

RECORDS = ascot.Fixed(100, key=slice(0, 10))
MIB = 1 << 20
# No multiple of a page or of a record.
BEFORE = 12_345


@pytest.fixture
def inside(disk):
    """Makes a file with other bytes before and after `data`; returns the array of the data."""

    def make(data, name="whole"):
        path = disk / name
        path.write_bytes(b"\xff" * BEFORE + bytes(data) + b"\n\0" * 5000)
        return numpy.memmap(path, "u1", "r", offset=BEFORE, shape=(len(data),))

    return make


def test_slices_of_any_map_are_read_where_they_are(inside, disk):
    data = random_records(3000)
    array = inside(data)
    rows = array.reshape(-1, 100)
    for part, expected in (
        (array, data),
        (array[500:10_000], data[500:10_000]),
        (array[500:10_000][100:300], data[600:800]),
        (rows[7:2000], data[700:200_000]),
        (array[100:200].view("S10"), data[100:200]),
        (array[:0], b""),
    ):
        ascot.sort(part, to=disk / "out", layout=RECORDS)
        assert (disk / "out").read_bytes() == sorted_records(expected)
    two = [array[:200], disk / "out", array[200:300]]
    (disk / "out").write_bytes(data[-100:])
    ascot.sort(two, to=disk / "both", layout=RECORDS)
    assert (disk / "both").read_bytes() == sorted_records(data[:300] + data[-100:])
    with pytest.raises(ascot.errors.InvalidRequest, match="not contiguous"):
        ascot.sort(rows[::2], to=disk / "out", layout=RECORDS)


def moved(job, what):
    return sum(getattr(one, what) for one in job.report.passes)


def resident_bytes(path):
    """Bytes of this process's maps of a file that are in memory."""
    total, is_of_path = 0, False
    for line in Path("/proc/self/smaps").read_text(errors="replace").splitlines():
        if "-" in line.split()[0]:
            is_of_path = line.endswith(str(path))
        elif is_of_path and line.startswith("Rss:"):
            total += int(line.split()[1]) << 10
    return total


@pytest.mark.parametrize("method", ["merge", "distribute"])
@pytest.mark.parametrize("memory", ["8MiB", "24MiB", "1GiB"])
@pytest.mark.parametrize("nearly_sorted", [False, True])
def test_parts_larger_than_memory_sort_as_files_do(inside, disk, method, memory, nearly_sorted):
    numbers = numpy.random.default_rng(1).integers(0, 2**63, 3 * MIB)
    if nearly_sorted:
        # Natural runs, which are read again from the file when they are merged.
        numbers.sort()
        numbers[:: 1 << 16] //= 3
    array = inside(numbers.tobytes()).view("u8")
    settings = {"layout": "u64-le", "memory": memory, "method": method, "temp": disk}
    job = ascot.sort(array, to=disk / "out", **settings)
    # The job read the file: pages of the array that it touched would be in memory beside its own.
    assert resident_bytes(disk / "whole") < MIB
    assert (numpy.fromfile(disk / "out", "u8") == numpy.sort(numbers)).all()
    (disk / "same").write_bytes(array.tobytes())
    whole = ascot.sort(disk / "same", to=disk / "out", **settings)
    # Not more than a file of the same bytes: the pages at both ends of a request may be read twice.
    assert moved(job, "read_bytes") <= 1.02 * moved(whole, "read_bytes") + MIB
    if nearly_sorted and method == "merge" and memory != "1GiB":
        assert moved(job, "written_bytes") < 1.1 * array.nbytes
    assert moved(job, "written_bytes") <= 1.02 * moved(whole, "written_bytes")
    plans = [str(ascot.plan.sort(source, to=disk / "out", **settings)) for source in (array, disk / "same")]
    # Other programs change the free space.
    assert len({re.sub(" of .* free", "", plan) for plan in plans}) == 1


def test_rows_of_text_end_where_the_part_ends(inside, disk):
    text = "".join(f"{number},{number % 7}\r\n" for number in range(9999, 1000, -1))
    array = inside(f"n,rest\r\n{text}999,5".encode())
    key = ascot.column("n", type="number")
    assert ascot.sort(array, to=disk / "out", layout=ascot.Csv(), key=key).report.records_in == 9000
    rows = (disk / "out").read_bytes().split(b"\r\n")
    assert rows[:3] == [b"n,rest", b"999,5", b"1001,0"] and rows[-2:] == [b"9999,3", b""]
    table = pyarrow.table(ascot.sort(array, layout=ascot.Csv(), key=key))
    assert table.num_rows == 9000 and table["n"][0].as_py() == 999
    with pytest.raises(ascot.SchemaMismatch) as failed:
        ascot.sort(array, to=disk / "out", layout=ascot.Csv(strict=True), key=ascot.column("rest", type="date"))
    assert failed.value.file == f"bytes {BEFORE}..{BEFORE + len(array)} of {disk / 'whole'}"
    assert failed.value.record == 2


def test_every_job_reads_parts(inside, disk):
    odd, even = (b"".join(b"%05d\n" % number for number in range(first, 20_000, 2)) for first in (1, 0))
    halves = [inside(odd, "odd"), inside(even, "even")]
    every = b"".join(b"%05d\n" % number for number in range(20_000))

    ascot.merge(halves, to=disk / "merged")
    assert (disk / "merged").read_bytes() == every
    ascot.reshape(halves, to=disk / "part-{}", parts=3)
    assert b"".join((disk / f"part-{number}").read_bytes() for number in range(3)) == every
    ascot.split(halves[0], to=disk / "split-{}", parts=4, by="range")
    assert b"".join((disk / f"split-{number}").read_bytes() for number in range(4)) == odd
    ascot.sort(halves, view=disk / "view")
    with ascot.view(disk / "view") as view:
        assert bytes(view[7]) == b"00007\n" and len(view) == 20_000
    checked = ascot.check(halves[0])
    assert (checked.records, checked.is_sorted) == (10_000, True)
    assert ascot.check(halves).disorder.file == f"bytes {BEFORE}..{BEFORE + len(even)} of {disk / 'even'}"

    def pairs(inputs):
        assert not isinstance(inputs[0], bytes)
        return (("out", batch) for one in inputs for batch in one)

    ascot.flow(halves, {"out": str(disk / "flow")}, pairs)
    assert (disk / "flow").read_bytes() == odd + even
    ascot.flow(halves, {"out": str(disk / "flow")}, pairs, merge=True)
    assert (disk / "flow").read_bytes() == every


def test_an_array_with_its_own_changes_is_read_from_memory(disk):
    (disk / "in").write_bytes(b"c\nb\na\n")
    array = numpy.memmap(disk / "in", "u1", "c")
    array[0] = ord("x")
    ascot.sort(array, to=disk / "out")
    assert (disk / "out").read_bytes() == b"a\nb\nx\n"
    # Changes that are those of the file are read from the file, written back or not.
    shared = numpy.memmap(disk / "in", "u1", "r+")
    shared[2] = ord("y")
    ascot.sort(shared[2:], to=disk / "out")
    assert (disk / "out").read_bytes() == b"a\ny\n"


def test_a_file_that_is_not_the_mapped_one_is_refused(inside, disk):
    array = inside(b"b\na\n")
    (disk / "other").write_bytes(bytes(100_000))
    (disk / "other").rename(disk / "whole")
    for change in (lambda: None, (disk / "whole").unlink):
        change()
        with pytest.raises(ascot.errors.InvalidRequest, match="whole: it was moved, removed or replaced"):
            ascot.sort(array, to=disk / "out")
    assert leftovers(disk) == []


def test_a_file_that_ends_before_the_part_is_an_error(inside, disk):
    array = inside(b"b\na\n" * 10_000)
    with (disk / "whole").open("r+b") as file:
        file.truncate(BEFORE + 20_000)
    with pytest.raises(ascot.Damaged, match="whole") as failed:
        ascot.sort(array, to=disk / "out")
    assert failed.value.file == str(disk / "whole")
    assert leftovers(disk) == ["whole"]


def test_a_killed_job_of_a_part_resumes(inside, disk):
    data = random_records(600_000)
    inside(data)
    script = f"""
        import ascot, numpy
        array = numpy.memmap("whole", "u1", "r", offset={BEFORE}, shape=({len(data)},))
        ascot.sort(array, to="out", layout="fixed:100", key="0..10", memory="16MiB", temp=".")
    """
    for _ in range(20):
        kill_after_moving(subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], cwd=disk), 60e6)
        if job_directories(disk):
            break
    (kept,) = job_directories(disk)
    job = ascot.resume(kept)
    assert job.report.data["resumed"] and (disk / "out").read_bytes() == sorted_records(data)
