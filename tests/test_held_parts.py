"""A distribution does not spill what memory still holds when all other records are split: it sorts that from memory,
part by part."""

import json
import random

import pytest
from layouts import BY_NAME
from support import (
    FIXED,
    MIB,
    digest,
    digest_of_sorted,
    job_directories,
    kill,
    leftovers,
    long,
    moved_share,
    random_input,
    run,
    start,
    stop_where,
)  # fmt: skip

MEMORY_MIB = 256


def distribution(source, disk, memory, *more):
    words = ["sort", source, *more, "--memory", memory, "--temp", disk, "--method", "distribute", "-o", disk / "out"]
    return [str(word) for word in words]


def run_holding(disk, *flags):
    """Sorts `disk / "in"` by a distribution within 12 MiB that holds the end of it."""
    run(*distribution(disk / "in", disk, "12MiB", *flags, "--report", disk / "run.json"))
    assert json.loads((disk / "run.json").read_text())["plan"]["chosen"]["held_bytes"] > 4 * MIB


# 2 is the input and the output alone, 4 is spilling everything.
@pytest.mark.parametrize(
    "kind, share, most",
    [
        ("fixed-100", 0.85, 2.05), ("fixed-100", 1.1, 2.4), ("fixed-100", 1.5, 3.0),
        long("u64-le", 0.85, 2.05), ("u64-le", 1.1, 2.4), ("u64-le", 1.5, 3.0),
        long("lines", 0.85, 2.05), ("lines", 1.1, 2.4), ("lines", 1.5, 3.0),
    ],
)  # fmt: skip
def test_only_what_memory_cannot_hold_is_spilled(kind, share, most, disk):
    flags = BY_NAME[kind].flags
    random_input(kind, disk / "in", int(share * MEMORY_MIB * MIB))
    words = distribution(disk / "in", disk, f"{MEMORY_MIB}MiB", *flags)
    told = run(*words, "--explain").stdout.decode()
    assert "with its records among" in told and "held in memory" in told
    run(*words, "--report", disk / "run.json")
    report = json.loads((disk / "run.json").read_text())
    assert moved_share(report) <= most
    planned = report["plan"]["chosen"]
    in_plan = sum(one["read_bytes"] + one["written_bytes"] for one in planned["passes"]) / report["bytes_in"]
    assert abs(in_plan / moved_share(report) - 1) <= 0.02
    names = [one["name"] for one in planned["passes"]]
    assert names == ["split", "sort rest", "sort parts"] == [one["name"] for one in report["passes"]][:3]
    assert report["peak_disk_bytes"] <= report["predicted_peak_disk_bytes"]
    run("check", disk / "out", *(flags or ["--format", "lines"]))
    assert (disk / "out").stat().st_size == (disk / "in").stat().st_size


@pytest.mark.parametrize("kind", ["lines", "csv"])
def test_parts_of_short_records_are_sorted_in_memory(kind, disk):
    """Nothing is held: the input has more than three memories. Records have no fixed length."""
    rng = random.Random(11)
    flags = {"lines": [], "csv": ["--csv", "--key", "id:number"]}[kind]
    one = {
        "lines": lambda: f"{rng.getrandbits(64):016x} {'x' * rng.randrange(90)}\n",
        "csv": lambda: f"{rng.getrandbits(60)},name{rng.randrange(1000)},{'x' * rng.randrange(60)}\n",
    }[kind]
    lines = [one() for _ in range(900_000)]
    header = "id,name,more\n" if kind == "csv" else ""
    (disk / "in").write_text(header + "".join(lines))
    run(*distribution(disk / "in", disk, "16MiB", *flags, "--report", disk / "run.json"))
    report = json.loads((disk / "run.json").read_text())
    assert report["plan"]["chosen"]["held_bytes"] == 0
    assert [one["name"] for one in report["passes"]] == ["split", "sort parts"]
    assert moved_share(report) <= 4.05
    lines.sort(key=None if kind == "lines" else lambda line: int(line.split(",")[0]))
    assert (disk / "out").read_text() == header + "".join(lines)


# Whole lines break ties, or they do not: then parts of one key need no sort.
@pytest.mark.parametrize("flags", [["-k1,1"], ["-s", "-k1,1"], ["-s", "-r", "-k1,1"]])
@pytest.mark.parametrize("keys", [3, 50, 10**6])
def test_held_records_come_last_among_equals(flags, keys, disk):
    rng = random.Random(5)
    lines = [f"{rng.randrange(keys):07} {number * 7919 % 100_003:09} {'x' * 80}\n" for number in range(120_000)]
    (disk / "in").write_text("".join(lines))
    run_holding(disk, *flags)
    by_key = sorted(lines, key=lambda line: line if "-s" not in flags else line[:7], reverse="-r" in flags)
    if "-r" in flags:
        # Equal records keep their order.
        by_key = sorted(lines, key=lambda line: -int(line[:7]))
    elif "-s" not in flags:
        by_key = sorted(lines, key=lambda line: (line[:7], line))
    assert (disk / "out").read_text() == "".join(by_key)


@pytest.mark.parametrize("keys", [1, 40, 60_000])
def test_distinct_and_first_records_with_some_held(keys, disk):
    rng = random.Random(6)
    numbers = [rng.randrange(keys) for _ in range(1_600_000)]
    (disk / "in").write_text("".join(f"{number:09}\n" for number in numbers))
    run_holding(disk, "-u")
    assert (disk / "out").read_text() == "".join(f"{number:09}\n" for number in sorted(set(numbers)))
    run_holding(disk, "--top", "1000000")
    assert (disk / "out").read_text() == "".join(f"{number:09}\n" for number in sorted(numbers)[:1_000_000])


def test_keys_of_the_end_alone(disk):
    """All records that memory holds belong to one part, and no record on disk does; and the reverse."""
    rng = random.Random(9)
    for low_first in (True, False):
        low = [f"{rng.randrange(10**5):07} {'x' * 90}\n" for _ in range(60_000)]
        high = [f"{rng.randrange(9 * 10**6, 10**7):07} {'x' * 90}\n" for _ in range(60_000)]
        lines = low + high if low_first else high + low
        (disk / "in").write_text("".join(lines))
        run_holding(disk)
        assert (disk / "out").read_text() == "".join(sorted(lines))


def all_read(manifest):
    return manifest["all_read"]


def in_last_pass(manifest):
    return manifest["output"] is not None


def read_of_input(report):
    streams = [stream for one in report["passes"] for stream in one["streams"]]
    return sum(stream["read_bytes"] for stream in streams if stream["name"] == "input")


# With less memory the end of the input is split, too.
@pytest.mark.parametrize("memory", ["32MiB", "64MiB", "8MiB"])
@pytest.mark.parametrize("point", [all_read, in_last_pass], ids=lambda point: point.__name__)
def test_a_resumed_job_reads_again_what_was_held(point, memory, disk):
    run("gen", "600k", "-o", disk / "in")
    job = start(*distribution(disk / "in", disk, "32MiB", *FIXED))
    manifest = stop_where(job, disk, point)
    kill(job)
    left = 600_000 * 100 - manifest["held"]["start"]["offset"]
    assert left > 8 * MIB
    (kept,) = job_directories(disk)
    again = lambda one: one["output"] is not None and one["moved"] != manifest["moved"]  # noqa: E731
    job = start("sort", "--resume", str(kept), "--memory", memory)
    stop_where(job, disk, again)
    kill(job)
    run("sort", "--resume", str(kept), "--memory", memory, "--report", str(disk / "run.json"))
    assert digest(disk / "out") == digest_of_sorted(disk / "in")
    assert set(leftovers(disk)) == {"in", "out", "sorted", "run.json"}
    report = json.loads((disk / "run.json").read_text())
    assert read_of_input(report) <= left + MIB


def test_a_job_killed_while_it_splits_the_end_goes_on(disk):
    run("gen", "600k", "-o", disk / "in")
    job = start(*distribution(disk / "in", disk, "32MiB", *FIXED))
    stop_where(job, disk, in_last_pass)
    kill(job)
    (kept,) = job_directories(disk)
    job = start("sort", "--resume", str(kept), "--memory", "8MiB")
    manifest = stop_where(job, disk, lambda manifest: not manifest["all_read"] and manifest["parts"])
    kill(job)
    assert manifest["held"] is None and len(manifest["parts"]) <= len(manifest["way"]["Distribute"])
    # With memory for what is left again.
    run("sort", "--resume", str(kept), "--memory", "32MiB")
    assert digest(disk / "out") == digest_of_sorted(disk / "in")
    assert set(leftovers(disk)) == {"in", "out", "sorted"}


@pytest.mark.parametrize("flags", [["-k1,1"], ["-s", "-k1,1"]])
@pytest.mark.parametrize("memory", ["8MiB", "32MiB"])
def test_a_job_killed_in_a_part_of_one_key_goes_on(flags, memory, disk):
    rng = random.Random(12)
    lines = [f"{rng.randrange(3)} {number:09} {'x' * 90}\n" for number in range(400_000)]
    (disk / "in").write_text("".join(lines))
    job = start(*distribution(disk / "in", disk, "24MiB", *flags))
    stop_where(job, disk, lambda manifest: manifest["held"] and manifest["output"] is not None)
    kill(job)
    (kept,) = job_directories(disk)
    run("sort", "--resume", str(kept), "--memory", memory)
    assert (disk / "out").read_text() == "".join(sorted(lines, key=lambda line: line[0]))
    assert set(leftovers(disk)) == {"in", "out"}


def test_long_records_and_an_unfinished_line_are_held_and_read_again(disk):
    """Two lines of 200 KB, longer than what a chunk keeps for a record that it cuts, among short ones at the end."""
    rng = random.Random(8)
    lines = [f"{rng.getrandbits(64):016x}{'y' * rng.randrange(200)}\n" for _ in range(340_000)]
    for at in (300_000, 320_000):
        lines[at] = f"{rng.getrandbits(64):016x}{'y' * 200_000}\n"
    (disk / "in").write_text("".join(lines).removesuffix("\n"))
    job = start(*distribution(disk / "in", disk, "32MiB"))
    assert stop_where(job, disk, all_read)["held"]
    kill(job)
    (kept,) = job_directories(disk)
    run("sort", "--resume", str(kept), "--report", disk / "run.json")
    assert (disk / "out").read_text() == "".join(sorted(lines))
    assert "sort rest" in [one["name"] for one in json.loads((disk / "run.json").read_text())["passes"]]


def test_long_records_are_not_held(disk):
    """How many of them memory holds is not known before they are read."""
    rng = random.Random(8)
    lines = [f"{rng.getrandbits(64):016x}{'y' * rng.randrange(200_000)}\n" for _ in range(400)]
    (disk / "in").write_text("".join(lines))
    run(*distribution(disk / "in", disk, "32MiB", "--report", disk / "run.json"))
    report = json.loads((disk / "run.json").read_text())
    assert report["plan"]["chosen"]["held_bytes"] == 0
    assert "sort rest" not in [one["name"] for one in report["passes"]]
    assert (disk / "out").read_text() == "".join(sorted(lines))


def test_an_input_that_changed_is_not_read_again(disk):
    run("gen", "300k", "-o", disk / "in")
    job = start(*distribution(disk / "in", disk, "16MiB", *FIXED))
    assert stop_where(job, disk, all_read)["held"]
    kill(job)
    with open(disk / "in", "r+b") as file:
        file.write(b"\x00" * 100)
    (kept,) = job_directories(disk)
    assert "has changed" in run("sort", "--resume", str(kept), expect=2).stderr
