"""Merges of inputs that are not sorted: the first record out of order of an input is named, wherever it is."""

import itertools
import json
import random

import pytest
from support import MIB, leftovers, run

CSV = ["--csv", "--header", "-k", "name,amount:number"]
HEADER = b"id,name,amount\n"
# The flags of each layout, its header, and a function that makes a record of a key.
LAYOUTS = {
    "csv": (CSV, HEADER, lambda key, at: b"%d,n%07d,%d\n" % (at, key // 3, key)),
    "lines": (["-k1,1"], b"", lambda key, at: b"%08d %d\n" % (key, at)),
    "reversed": (["-s", "-k1,1nr"], b"", lambda key, at: b"%d %d\n" % (-key, at)),
    "fixed": (["--format", "fixed:24", "--key", "0..8"], b"", lambda key, at: b"%08d%16d" % (key, at)),
    "numbers": (["--format", "u64"], b"", lambda key, at: key.to_bytes(8, "little")),
}


def records_of(layout, count, seed):
    """Sorted records, many of them of equal keys."""
    keys = sorted(random.Random(seed).choices(range(1000, 10_000_000, 50), k=count))
    return [LAYOUTS[layout][2](key, at) for at, key in enumerate(keys)]


def write(path, layout, records):
    path.write_bytes(LAYOUTS[layout][1] + b"".join(records))


def message(path, layout, records, at):
    """The error for record `at`, from 0."""
    offset = len(LAYOUTS[layout][1]) + sum(map(len, records[:at]))
    return f"{path}: not sorted: record {at + 1} at offset {offset} belongs before the previous record\n"


def small(layout):
    """A record that sorts before all others."""
    return LAYOUTS[layout][2](1, 0)


def merge(disk, layout, *more, expect=2):
    return run("merge", disk / "a", disk / "b", *LAYOUTS[layout][0], "--memory", "8MiB", *more, expect=expect)


def block_bytes(disk, layout):
    merge(disk, layout, "-o", disk / "out", "--report", disk / "r.json", expect=0)
    [step] = json.loads((disk / "r.json").read_text())["passes"]
    (disk / "out").unlink()
    (disk / "r.json").unlink()
    return step["buffers"]["block_bytes"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_record_out_of_order_is_named_wherever_it_is(layout, disk):
    records = records_of(layout, 120_000, 1)
    write(disk / "a", layout, records_of(layout, 120_000, 2))
    write(disk / "b", layout, records)
    block = block_bytes(disk, layout)
    offsets = [0, *itertools.accumulate(map(len, records), initial=len(LAYOUTS[layout][1]))]
    places = [1, 2, len(records) // 2, len(records) - 1]
    for boundary in range(block, offsets[-1], block * max(1, offsets[-1] // block // 4)):
        # The record before the boundary, the one across it or after it, and the next.
        first = next(at for at, offset in enumerate(offsets) if offset >= boundary)
        places += range(first - 3, first + 2)
    for at in places:
        broken = [*records[:at], small(layout), *records[at + 1 :]]
        write(disk / "b", layout, broken)
        assert message(disk / "b", layout, broken, at) in merge(disk, layout, "-o", disk / "out").stderr, at
    assert leftovers(disk) == ["a", "b"]
    # The first record is too large.
    broken = [records[-1], *records[1:]]
    write(disk / "b", layout, broken)
    assert message(disk / "b", layout, broken, 1) in merge(disk, layout, "-o", disk / "out").stderr


@pytest.mark.parametrize("more", [["-u"], ["--top", "10"], ["--batch-size", "2"], ["--threads", "1"]])
def test_the_first_of_several_is_named(more, disk):
    records = records_of("csv", 100_000, 3)
    rng = random.Random(4)
    for _ in range(6):
        places = sorted(rng.sample(range(1, len(records)), 3))
        broken = records.copy()
        for at in places:
            broken[at] = small("csv")
        write(disk / "a", "csv", broken)
        write(disk / "b", "csv", records)
        # A later fault of another kind does not hide it.
        with open(disk / "a", "ab") as file:
            file.write(b'"open')
        assert message(disk / "a", "csv", broken, places[0]) in merge(disk, "csv", *more, "-o", disk / "out").stderr


@pytest.mark.parametrize("strict", [[], ["--strict"]])
def test_disorder_comes_before_a_later_value_that_is_no_number(strict, disk):
    records = records_of("csv", 50_000, 5)
    write(disk / "a", "csv", records)
    for first in (1000, 30_000):
        broken = [*records[:first], small("csv"), *records[first + 1 :], b"1,z,nothing\n"]
        write(disk / "b", "csv", broken)
        assert message(disk / "b", "csv", broken, first) in merge(disk, "csv", *strict, "-o", disk / "out").stderr


def test_misfits_are_counted_where_inputs_are_merged(disk):
    for name in "ab":
        tail = [b"1,zz%05d,no number\n" % at for at in range(5000)]
        write(disk / name, "csv", [*records_of("csv", 50_000, 6), *tail])
    done = merge(disk, "csv", "-o", disk / "out", "--report", disk / "r.json", expect=0)
    column = json.loads((disk / "r.json").read_text())["columns"][1]
    assert column["misfits"] == 10_000, done.stderr
    assert column["first_misfit"] == {"input": str(disk / "a"), "row": 50_002, "value": "no number"}
    strict = merge(disk, "csv", "--strict", "-o", disk / "out2")
    assert "no number" in strict.stderr and "50002" in strict.stderr.replace(",", "")


def test_inputs_sorted_by_their_keys_alone_are_merged(disk):
    """Equal keys in any order, over many blocks: only the keys must be in order."""
    rng = random.Random(7)
    lines = {
        name: sorted(
            (b"%d %06d\n" % (at // 50_000, rng.randrange(10**6)) for at in range(250_000)), key=lambda line: line[0]
        )
        for name in "ab"
    }
    for name in "ab":
        (disk / name).write_bytes(b"".join(lines[name]))
    merge(disk, "lines", "-o", disk / "out", expect=0)
    merged = (disk / "out").read_bytes().splitlines(keepends=True)
    assert sorted(merged) == sorted(lines["a"] + lines["b"])
    assert [line[0] for line in merged] == sorted(line[0] for line in merged)


def test_nothing_after_disorder_reaches_a_pipe(disk):
    records = records_of("lines", 400_000, 8)
    write(disk / "a", "lines", records)
    write(disk / "b", "lines", [*records[:200_000], small("lines"), *records[200_001:]])
    done = merge(disk, "lines")
    keys = [line.split()[0] for line in done.stdout.splitlines()]
    assert len(done.stdout) < 2 * sum(map(len, records)) - MIB
    assert keys == sorted(keys)


def test_a_block_of_equal_keys_is_compared_with_the_next(disk, request):
    """Such a block is merged before the next one is read."""
    flags = ["--format", "fixed:16", "--key", "0..8", "--memory", "8MiB", "-o", disk / "out"]
    records = [b"%08d%8d" % (5, at) for at in range(300_000)]
    (disk / "a").write_bytes(b"".join(records))
    (disk / "b").write_bytes(b"".join(records[:9]))
    run("merge", disk / "a", disk / "b", *flags, "--report", disk / "r.json")
    [step] = json.loads((disk / "r.json").read_text())["passes"]
    block = step["buffers"]["block_bytes"]
    # Short tests take every fifth boundary.
    stride = block if request.config.getoption("--long") else 5 * block
    for boundary in range(block, 16 * len(records), stride):
        at = boundary // 16
        (disk / "a").write_bytes(b"".join([*records[:at], b"%08d%8d" % (4, at), *records[at + 1 :]]))
        done = run("merge", disk / "a", disk / "b", *flags, expect=2)
        assert f"{disk / 'a'}: not sorted: record {at + 1} at offset {16 * at} belongs" in done.stderr, at
