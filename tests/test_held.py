"""A sort does not spill what memory still holds when it has read its input: it merges that from memory. So cost grows
with the size of the input without a step at the size of the memory."""

import json
import random
import shutil
import signal
import subprocess
from contextlib import suppress

import pytest
from layouts import BY_NAME
from support import (
    FIXED,
    MIB,
    ascot_binary,
    clean_environment,
    digest,
    digest_of_sorted,
    job_directories,
    kill,
    leftovers,
    long,
    manifests,
    moved_share,
    random_input,
    run,
    start,
    stop_where,
)  # fmt: skip

MEMORY_MIB = 128


# 2 is the input and the output alone, 4 is spilling everything.
@pytest.mark.parametrize(
    "kind, share, most",
    [
        ("fixed-100", 0.85, 2.01), ("fixed-100", 1.1, 2.4), ("fixed-100", 1.5, 3.0), ("fixed-100", 4.0, 3.65),
        long("u64-le", 0.85, 2.01), ("u64-le", 1.1, 2.4), ("u64-le", 1.5, 3.0), long("u64-le", 4.0, 3.65),
        long("lines", 0.85, 2.01), ("lines", 1.1, 2.4), ("lines", 1.5, 3.0), long("lines", 4.0, 3.65),
    ],
)  # fmt: skip
def test_only_what_memory_cannot_hold_is_spilled(kind, share, most, disk):
    layout = BY_NAME[kind]
    source = disk / "in"
    random_input(kind, source, int(share * MEMORY_MIB * MIB))
    words = [source, *layout.flags, "--memory", f"{MEMORY_MIB}MiB", "--temp", disk, "-o", disk / "out"]
    run("sort", *words, "--method", "merge", "--report", disk / "run.json")
    report = json.loads((disk / "run.json").read_text())
    assert moved_share(report) <= most
    planned = report["plan"]["chosen"]
    in_plan = sum(one["read_bytes"] + one["written_bytes"] for one in planned["passes"]) / report["bytes_in"]
    assert abs(in_plan / moved_share(report) - 1) <= 0.02
    run("check", disk / "out", *(layout.flags or ["--format", "lines"]))
    assert (disk / "out").stat().st_size == source.stat().st_size


# Smaller memories have blocks of as many bytes as pages allow, and chunks of which a carry is much.
@pytest.mark.parametrize("memory", [24, 32, 64, 80])
@pytest.mark.parametrize("kind", ["fixed-100", "u64-le", "lines"])
def test_a_tenth_more_than_memory_moves_no_more_within_less_memory(kind, memory, disk):
    layout = BY_NAME[kind]
    random_input(kind, disk / "in", int(1.1 * memory * MIB))
    words = [disk / "in", *layout.flags, "--memory", f"{memory}MiB", "--temp", disk, "--method", "merge"]
    run("sort", *words, "-o", disk / "out", "--report", disk / "run.json")
    assert moved_share(json.loads((disk / "run.json").read_text())) <= 2.4
    run("check", disk / "out", *(layout.flags or ["--format", "lines"]))


# Lines without a last newline, whose last read fills a chunk, or misses it by less than a page.
@pytest.mark.parametrize("short", [0, 1, 4095, 4096])
def test_a_last_line_is_completed_where_the_input_fills_its_chunks(short, disk):
    """Chunks within 24 MiB have 256 KiB, of which a page is for a line that was cut."""
    filled = (256 << 10) - 4096
    size = 110 * filled - short
    rng = random.Random(short)
    lines = b"".join(b"%016x %s\n" % (rng.getrandbits(64), b"x" * (rng.getrandbits(6))) for _ in range(size // 18))
    (disk / "in").write_bytes(lines[: size - 1] + b"z")
    words = [disk / "in", "--memory", "24MiB", "--temp", disk, "--method", "merge", "-o", disk / "out"]
    run("sort", *words)
    expected = sorted((disk / "in").read_bytes().split(b"\n"))
    assert (disk / "out").read_bytes() == b"".join(line + b"\n" for line in expected)


# So many records that a chunk is sorted in several parts.
@pytest.mark.parametrize("memory, most", [pytest.param("46MiB", 2.4, marks=pytest.mark.long), ("32MiB", 3.0)])
def test_short_lines_are_held_too(memory, most, disk):
    rng = random.Random(4)
    numbers = [rng.randrange(10**7, 10**8) for _ in range(5_500_000)]
    (disk / "in").write_text("".join(f"{number}\n" for number in numbers))
    words = ["sort", disk / "in", "--memory", memory, "--temp", disk, "--method", "merge", "-o", disk / "out"]
    job = start(*words)
    stop_where(job, disk, lambda manifest: manifest["all_read"])
    kill(job)
    (kept,) = job_directories(disk)
    run("sort", "--resume", kept)
    right = "".join(f"{number}\n" for number in sorted(numbers))
    assert (disk / "out").read_text() == right
    run(*words, "--report", disk / "run.json")
    assert (disk / "out").read_text() == right
    report = json.loads((disk / "run.json").read_text())
    assert moved_share(report) <= most
    planned = report["plan"]["chosen"]
    in_plan = sum(one["read_bytes"] + one["written_bytes"] for one in planned["passes"]) / report["bytes_in"]
    assert abs(in_plan / moved_share(report) - 1) <= 0.02


def test_equal_keys_keep_their_order(disk):
    """Records of few keys, of which some are spilled and the others held."""
    rng = random.Random(5)
    lines = [f"{rng.randrange(50):02} {number:09} {'x' * 80}\n" for number in range(120_000)]
    (disk / "in").write_text("".join(lines))
    words = ["-s", "-k1,1", "--memory", "8MiB", "--temp", disk, "--method", "merge", "-o", disk / "out"]
    run("sort", disk / "in", *words, "--report", disk / "run.json")
    assert json.loads((disk / "run.json").read_text())["plan"]["chosen"]["held_bytes"] > MIB
    assert (disk / "out").read_text() == "".join(sorted(lines, key=lambda line: line[:2]))


def test_distinct_and_first_records_with_some_held(disk):
    numbers = [random.Random(6).randrange(60_000) for _ in range(1_600_000)]
    (disk / "in").write_text("".join(f"{number:09}\n" for number in numbers))
    words = [disk / "in", "--memory", "8MiB", "--temp", disk, "--method", "merge", "-o", disk / "out"]
    run("sort", *words, "-u")
    assert (disk / "out").read_text() == "".join(f"{number:09}\n" for number in sorted(set(numbers)))
    run("sort", *words, "--top", "1000000")
    assert (disk / "out").read_text() == "".join(f"{number:09}\n" for number in sorted(numbers)[:1_000_000])


# Its size is not known: whenever memory is full, an eighth of it is spilled, and half of it after eight times. At
# four times the memory nothing is asked: everything may be spilled.
@pytest.mark.parametrize(
    "memory, share, most",
    [
        (64, 0.85, 2.01), (64, 1.1, 2.4), (64, 1.5, 3.0), (64, 4.0, 4.01),
        long(200, 0.85, 2.01), (200, 1.1, 2.4), (200, 1.5, 3.0), long(200, 4.0, 4.01),
    ],
)  # fmt: skip
def test_the_end_of_a_pipe_is_held_too(share, most, memory, disk):
    run("gen", str(int(share * memory * MIB) // 100), "-o", disk / "in")
    words = ["sort", "-", *FIXED, "--memory", f"{memory}MiB", "--temp", disk, "-o", disk / "out"]
    words += ["--report", disk / "r"]
    with open(disk / "in", "rb") as file:
        cat = subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE)
        words = [ascot_binary(), *map(str, words)]
        subprocess.run(words, stdin=cat.stdout, check=True, timeout=60, env=clean_environment())
        cat.communicate()
    report = json.loads((disk / "r").read_text())
    assert moved_share(report) <= most
    # Nothing was predicted before the size was known.
    assert report["predicted_seconds"] is None and report["plan"]["chosen"]["passes"] == []
    assert digest(disk / "out") == digest_of_sorted(disk / "in")


# The chunks of 64 MiB are larger than those of 8.
@pytest.mark.parametrize("first, memory", [(16, 16), (16, 64), (16, 8), (64, 8)])
def test_a_resumed_job_reads_again_what_was_held(first, memory, disk):
    """A job that is killed in its last pass, before and after its first step there."""
    run("gen", f"{600 * first // 16}k", "-o", disk / "in")
    words = ["--memory", f"{first}MiB", "--temp", disk, "--method", "merge", "-o", disk / "out"]
    job = start("sort", disk / "in", *FIXED, *words)
    memory = f"{memory}MiB"
    stop_where(job, disk, lambda manifest: manifest["all_read"])
    kill(job)
    (manifest,) = manifests(disk)
    held = [one for one in manifest["runs"] if one["input"]]
    assert sum(one["bytes"] for one in held) > 8 * MIB
    (kept,) = job_directories(disk)
    job = start("sort", "--resume", kept, "--memory", memory)
    stop_where(job, disk, lambda manifest: manifest["output"] is not None)
    kill(job)
    run("sort", "--resume", kept, "--memory", memory)
    right = digest_of_sorted(disk / "in")
    assert digest(disk / "out") == right
    assert set(leftovers(disk)) == {"in", "out", "sorted"}


def test_long_records_and_an_unfinished_line_are_held_and_read_again(disk):
    """Lines of up to 200 KB, longer than what a chunk keeps for a record that it cuts."""
    rng = random.Random(8)
    lines = [f"{rng.getrandbits(64):016x}{'y' * rng.randrange(200_000)}\n" for _ in range(400)]
    (disk / "in").write_text("".join(lines).removesuffix("\n"))
    words = ["--memory", "32MiB", "--temp", disk, "--method", "merge", "-o", disk / "out"]
    job = start("sort", disk / "in", *words)
    stop_where(job, disk, lambda manifest: manifest["all_read"])
    kill(job)
    (manifest,) = manifests(disk)
    held = [chunk["span"] for one in manifest["runs"] if one["input"] for chunk in one["input"]["chunks"]]
    assert any(span["unfinished"] for span in held)
    (kept,) = job_directories(disk)
    run("sort", "--resume", kept)
    assert (disk / "out").read_text() == "".join(sorted(lines))


# Files of two or three chunks, whose last chunks are not full; and of a part of a chunk, which share chunks.
@pytest.mark.parametrize("files", [40, 300])
@pytest.mark.parametrize("kind", ["fixed-100", "u64-le"])
@pytest.mark.parametrize("share, most", [(0.9, 2.01), (1.1, 2.4)])
def test_many_inputs_fill_memory_as_one_does(kind, files, share, most, disk):
    layout = BY_NAME[kind]
    inputs = [disk / f"in{number}" for number in range(files)]
    random_input(kind, disk / "all", 54 * MIB)
    size = int(share * 48 * MIB) // files // 800 * 800
    with open(disk / "all", "rb") as every:
        for path in inputs:
            path.write_bytes(every.read(size))
    (disk / "all").unlink()
    words = [*inputs, *layout.flags, "--memory", "48MiB", "--temp", disk, "-o", disk / "out"]
    run("sort", *words, "--method", "merge", "--report", disk / "run.json")
    report = json.loads((disk / "run.json").read_text())
    assert moved_share(report) <= most
    planned = sum(one["read_bytes"] + one["written_bytes"] for one in report["plan"]["chosen"]["passes"])
    assert abs(planned / report["bytes_in"] / moved_share(report) - 1) <= 0.02
    run("check", disk / "out", *layout.flags)
    assert (disk / "out").stat().st_size == files * size


@pytest.mark.parametrize("memory", ["16MiB", "64MiB"])
@pytest.mark.parametrize("flags, header", [([], ""), (["--csv", "--header", "--key", "id"], "id,what\r\n")])
def test_a_resumed_job_reads_again_chunks_of_several_inputs(flags, header, memory, disk):
    """Of some files the last line has no end, and those of CSV begin with a header."""
    rng, end = random.Random(9), "\r\n" if header else "\n"
    rows = [[f"{rng.getrandbits(64):016x},{'z' * rng.randrange(120)}{end}" for _ in range(500)] for _ in range(450)]
    for number, some in enumerate(rows):
        text = header + "".join(some)
        (disk / f"in{number}").write_text(text.removesuffix(end) if number % 3 == 0 else text, newline="")
    inputs = [disk / f"in{number}" for number in range(len(rows))]
    words = [*inputs, *flags, "--memory", "16MiB", "--temp", disk, "--method", "merge", "-o", disk / "out"]
    job = start("sort", *words)
    stop_where(job, disk, lambda manifest: manifest["all_read"])
    kill(job)
    (manifest,) = manifests(disk)
    held = [chunk for one in manifest["runs"] if one["input"] for chunk in one["input"]["chunks"]]
    assert sum(len(chunk["others"]) > 2 for chunk in held) > 10
    (kept,) = job_directories(disk)
    shutil.copytree(kept, disk / "copy")
    # The merge takes so little time that it may end before it is stopped; then a copy of the job is resumed.
    for _ in range(50):
        job = start("sort", "--resume", kept, "--memory", memory)
        with suppress(AssertionError):
            stop_where(job, disk, lambda manifest: manifest["output"] is not None)
        kill(job)
        if job.returncode != 0:
            break
        (disk / "out").unlink()
        shutil.copytree(disk / "copy", kept)
    assert job.returncode == -signal.SIGKILL
    run("sort", "--resume", kept, "--memory", memory)
    right = header + "".join(sorted(row for some in rows for row in some))
    assert (disk / "out").read_bytes() == right.encode()


def test_an_input_that_changed_is_not_read_again(disk):
    run("gen", "300k", "-o", disk / "in")
    job = start(
        "sort", disk / "in", *FIXED, "--memory", "16MiB", "--temp", disk, "--method", "merge", "-o", disk / "out"
    )
    stop_where(job, disk, lambda manifest: manifest["all_read"])
    kill(job)
    with open(disk / "in", "r+b") as file:
        file.write(b"\x00" * 100)
    (kept,) = job_directories(disk)
    assert "has changed" in run("sort", "--resume", kept, expect=2).stderr
