"""Views held against files: read through a pipe beside `cat`, through a mount beside a passthrough of the same
library, made and read once beside sorted and read once, to the first byte, and 4 KiB at a time anywhere.

Everything that is compared is measured in turns, cold, in one run.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import machine, measure
from .units import MIB, decimal

RUNS = 64
RECORDS = {"100 bytes": 100, "4 KB": 4000}
MEMORY = "1GiB"
RANDOM_READS = 200


def _make_input(ascot: str, path: Path, size: int, record: int) -> None:
    """Records of `record` bytes whose first ten are those of the benchmark's."""
    if record == 100:
        subprocess.run([ascot, "gen", str(size // 100), "-o", str(path)], check=True)
        return
    rng = random.Random(1)
    body = rng.randbytes(record - 10)
    with path.open("wb") as out:
        for _ in range(size // record):
            out.write(rng.randbytes(10) + body)


def _flags(record: int) -> list[str]:
    return ["--format", f"fixed:{record}", "--key", "0..10"]


def _timed(argv: list[str] | str) -> float:
    measure.drop_caches()
    since = time.perf_counter()
    subprocess.run(argv, check=True, shell=isinstance(argv, str), stdout=subprocess.DEVNULL)
    return time.perf_counter() - since


@contextlib.contextmanager
def _mounted(argv: list[str], at: Path) -> Iterator[Path]:
    """The one file that a mount shows."""
    at.mkdir(exist_ok=True)
    process = subprocess.Popen([*argv, str(at)])
    try:
        for _ in range(500):
            if os.path.ismount(at):
                break
            time.sleep(0.02)
        yield next(at.iterdir())
    finally:
        subprocess.run(["umount", str(at)], check=False)
        process.wait(30)


def _first_byte(argv: list[str]) -> float:
    measure.drop_caches()
    since = time.perf_counter()
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.read(1)
        took = time.perf_counter() - since
        process.kill()
    return took


def _random_reads(file: Path) -> list[float]:
    """Seconds of each read of 4 KiB, cold."""
    rng, times = random.Random(2), []
    size = file.stat().st_size
    for number in range(RANDOM_READS):
        if number % 20 == 0:
            measure.drop_caches()
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        since = time.perf_counter()
        os.pread(descriptor, 4096, rng.randrange(size - 4096))
        times.append(time.perf_counter() - since)
        os.close(descriptor)
    return times


def _memory_for(size: int) -> str:
    """Memory that makes 64 runs: a load is about two fifths of it."""
    return f"{max(8, int(size / RUNS / 0.4 / MIB))}MiB"


def _size(ascot: str, work: Path, size: int, record: int, repeats: int, passthrough: str) -> dict[str, Any]:
    source, file, view = work / "in", work / "sorted", work / "v.view"
    _make_input(ascot, source, size, record)
    few = [*_flags(record), "--memory", _memory_for(size)]
    subprocess.run([ascot, "sort", str(source), *few, "--view", str(view)], check=True)
    subprocess.run([ascot, "view", str(view), "-o", str(file), "--memory", MEMORY], check=True)
    read = f"{ascot} view {view} --memory {MEMORY} | cat > /dev/null"
    times: dict[str, list[float]] = {}

    def note(name: str, seconds: float) -> None:
        times.setdefault(name, []).append(seconds)
        print(f"bench:   {name}: {seconds:.2f} s, {size / seconds / 1e6:.0f} MB/s", flush=True)

    for _ in range(repeats):
        note("cat of the file", _timed(f"cat {file} | cat > /dev/null"))
        note("view", _timed(read))
        with _mounted([passthrough, str(file)], work / "mnt") as shown:
            note("passthrough mount", _timed(f"cat {shown} > /dev/null"))
        with _mounted([ascot, "mount", str(view), "--memory", MEMORY], work / "mnt") as shown:
            note("view mount", _timed(f"cat {shown} > /dev/null"))
    first = [_first_byte([ascot, "view", str(view)]) for _ in range(max(3, repeats))]
    with _mounted([ascot, "mount", str(view)], work / "mnt") as shown:
        few_bytes = _random_reads(shown)
    runs = len(list(view.glob("*.run")))
    once = _made_and_read(ascot, work, source, record, repeats)
    shutil.rmtree(view)
    for path in (source, file):
        path.unlink()
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    return {
        "record": record,
        "runs": runs,
        "seconds": times,
        "pipe_share": medians["cat of the file"] / medians["view"],
        "mount_share": medians["passthrough mount"] / medians["view mount"],
        "first_byte_s": first,
        "random_read_s": statistics.median(few_bytes),
        "once": once,
    }


def _made_and_read(ascot: str, work: Path, source: Path, record: int, repeats: int) -> list[dict[str, Any]]:
    """Making a view and reading it, beside sorting and reading the file, over sizes of memory."""
    out, view, found = work / "out", work / "once.view", []
    for memory in ("128MiB", "512MiB", "1GiB"):
        flags = [*_flags(record), "--memory", memory]
        ways: dict[str, Callable[[], float]] = {
            "file": lambda flags=flags: (
                _timed([ascot, "sort", str(source), *flags, "-o", str(out)]) + _timed(f"cat {out} > /dev/null")
            ),
            "view": lambda flags=flags, memory=memory: (
                _timed([ascot, "sort", str(source), *flags, "--view", str(view)])
                + _timed(f"{ascot} view {view} --memory {memory} > /dev/null")
            ),
        }
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(repeats):
            for name, way in ways.items():
                taken[name].append(way())
                shutil.rmtree(view, ignore_errors=True)
                out.unlink(missing_ok=True)
        found.append({"memory": memory, **taken})
    return found


def run(ascot: str, passthrough: str, work: Path, size: int, repeats: int) -> dict[str, Any]:
    """Measures all of it for each size of record."""
    results = []
    for name, record in RECORDS.items():
        print(f"bench: records of {name}", flush=True)
        results.append(_size(ascot, work, size // record * record, record, repeats, passthrough))
    return {"version": 1, "machine": machine.describe(work), "size": size, "records": results}


def markdown(result: dict[str, Any]) -> str:
    """The result as a page."""
    lines = [
        "# Views",
        "",
        f"{decimal(result['size'])}, cold, {MEMORY} for readers; medians, in turns. Shares of the rate of `cat`",
        "of the sorted file through a pipe, and of a file through the same mount library.",
        "",
        "| records | runs | through a pipe | through a mount | first byte, ms | 4 KiB anywhere, ms |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for one in result["records"]:
        first = 1000 * statistics.median(one["first_byte_s"])
        lines.append(
            f"| {one['record']} bytes | {one['runs']} | {100 * one['pipe_share']:.0f}% | "
            f"{100 * one['mount_share']:.0f}% | "
            f"{first:.0f} | {1000 * one['random_read_s']:.1f} |"
        )
    lines += [
        "",
        "Made and read once:",
        "",
        "| records | memory | file, s | view, s | saved |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for one in result["records"]:
        for row in one["once"]:
            file, view = statistics.median(row["file"]), statistics.median(row["view"])
            lines.append(
                f"| {one['record']} bytes | {row['memory']} | {file:.1f} | {view:.1f} | "
                f"{100 * (1 - view / file):.0f}% |"
            )
    return "\n".join(lines) + "\n"
