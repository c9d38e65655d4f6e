"""Views held against files: read through a pipe beside `cat`, through a mount beside a passthrough of the same
library, to the first byte, and 4 KiB at a time anywhere; made and read beside sorted and read, over sizes of
records and of memory, and beside what the planner says of both.

Everything that is compared is measured in turns, cold, in one run. What a number of readings takes is the
making and so many times the reading, as measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import heat, machine, measure
from .units import MIB, decimal

RUNS = 64
RECORDS = (100, 4000)
SWEEP = (100, 500, 2000, 4000, 8000, 32000)
MEMORIES = ("128MiB", "512MiB", "1GiB")
READINGS = (1, 2, 4, 8, 16)
MEMORY = "1GiB"
RANDOM_READS = 200


def _make_input(ascot: str, path: Path, size: int, record: int) -> None:
    """Records of `record` bytes that begin with the ten key bytes of benchmark records."""
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
    with measure.mounted(argv, at):
        yield next(at.iterdir())


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
    """Memory that makes 64 runs; a run buffer is about two fifths of it."""
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
        with _mounted([ascot, "mount", "-f", str(view), "--memory", MEMORY], work / "mnt") as shown:
            note("view mount", _timed(f"cat {shown} > /dev/null"))
    first = [_first_byte([ascot, "view", str(view)]) for _ in range(max(3, repeats))]
    with _mounted([ascot, "mount", "-f", str(view)], work / "mnt") as shown:
        few_bytes = _random_reads(shown)
    runs = len(list(view.glob("*.run")))
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
        "random_reads_s": few_bytes,
    }


def _swept(ascot: str, work: Path, size: int, record: int, repeats: int) -> list[dict[str, Any]]:
    """Making a view and reading it, beside sorting and reading the file, over sizes of memory."""
    source, out, view, found = work / "in", work / "out", work / "once.view", []
    _make_input(ascot, source, size, record)
    for memory in MEMORIES:
        flags = [*_flags(record), "--memory", memory]
        ways: dict[str, Callable[[], float]] = {
            "make_file": lambda flags=flags: _timed([ascot, "sort", str(source), *flags, "-o", str(out)]),
            "read_file": lambda: _timed(f"cat {out} > /dev/null"),
            "make_view": lambda flags=flags: _timed([ascot, "sort", str(source), *flags, "--view", str(view)]),
            "read_view": lambda memory=memory: _timed(f"{ascot} view {view} --memory {memory} > /dev/null"),
        }
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(repeats):
            for name, way in ways.items():
                taken[name].append(way())
            shutil.rmtree(view)
            out.unlink()
        row = {"record": record, "memory": memory, "seconds": taken, "predicted": _predicted(ascot, source, flags)}
        found.append(row)
        print(f"bench:   {record} bytes, {memory}: one reading of a view takes {_share(row, 1):.0%}", flush=True)
    source.unlink()
    return found


def _predicted(ascot: str, source: Path, flags: list[str]) -> dict[str, float] | None:
    """Predicted seconds by the name of the measurement; empty if all data fits in memory."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        argv = [
            ascot,
            "sort",
            str(source),
            *flags,
            "-o",
            str(source) + ".sorted",
            "--explain",
            "--report",
            report.name,
        ]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        cost = json.loads(Path(report.name).read_text()).get("view")
    if cost is None:
        return None
    names = {"make_view": "make", "read_view": "read", "make_file": "file", "read_file": "file_read"}
    return {ours: cost[f"{theirs}_seconds"] for ours, theirs in names.items()}


def _share(row: dict[str, Any], readings: int) -> float:
    """The time of a view with a number of readings, relative to a file."""
    took = {name: statistics.median(seconds) for name, seconds in row["seconds"].items()}
    view = took["make_view"] + readings * took["read_view"]
    return view / (took["make_file"] + readings * took["read_file"])


def run(ascot: str, passthrough: str, work: Path, sizes: tuple[int, int], repeats: int) -> dict[str, Any]:
    """Runs all measurements: reading views of the first size, and making and reading views of the second."""
    size, swept = sizes
    results, sweep = [], []
    for record in RECORDS:
        print(f"bench: reading records of {record} bytes", flush=True)
        results.append(_size(ascot, work, size // record * record, record, repeats, passthrough))
    for record in SWEEP:
        print(f"bench: making and reading, records of {record} bytes", flush=True)
        sweep += _swept(ascot, work, swept // record * record, record, repeats)
    return {
        "version": 2,
        "machine": machine.describe(work),
        "size": size,
        "sweep_size": swept,
        "records": results,
        "sweep": sweep,
    }


def write(folder: Path, result: dict[str, Any]) -> None:
    """The result as figures, as a page and as a chart."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    (folder / "README.md").write_text(markdown(result))
    (folder / "pays.svg").write_text(pays(result))


def pays(result: dict[str, Any]) -> str:
    """A table of when a view pays: record sizes in columns, readings in rows, for the middle memory."""
    memory = MEMORIES[len(MEMORIES) // 2]
    rows = {row["record"]: row for row in result["sweep"] if row["memory"] == memory}
    cells = [[_share(row, readings) for row in rows.values()] for readings in READINGS]
    return heat.svg(
        "Time of a view, as a share of a sorted file's",
        f"{decimal(result['sweep_size'])}, {memory} of memory: made and read so many times, from end to end, cold",
        [f"{record} B" for record in rows],
        [f"read {readings} times" if readings > 1 else "read once" for readings in READINGS],
        cells,
    )


def _reading(result: dict[str, Any]) -> list[str]:
    lines = [
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
    return lines


def _sweep(result: dict[str, Any]) -> list[str]:
    names = {"make_file": "file made", "read_file": "read", "make_view": "view made", "read_view": "read"}
    lines = [
        "| records | memory | "
        + " | ".join(f"{name}, s" for name in names.values())
        + " | read once, saved | cheaper |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in result["sweep"]:
        took = {name: statistics.median(row["seconds"][name]) for name in names}
        said = row["predicted"] or {}

        def shown(name: str, took: dict[str, float] = took, said: dict[str, float] = said) -> str:
            return f"{took[name]:.1f}" + (f" ({said[name]:.1f})" if name in said else "")

        cells = " | ".join(shown(name) for name in names)
        saved = 100 * (1 - _share(row, 1))
        lines.append(f"| {row['record']} bytes | {row['memory']} | {cells} | {saved:.0f}% | {_cheaper(row)} |")
    return lines


def _cheaper(row: dict[str, Any]) -> str:
    """Number of readings up to which a view is cheaper, measured and predicted."""

    def upto(took: dict[str, float]) -> str:
        more = took["read_view"] - took["read_file"]
        ahead = took["make_file"] - took["make_view"]
        if more <= 0:
            return "always" if ahead > 0 else "never"
        return f"to {ahead / more:.0f} readings" if ahead > more else "never"

    measured = upto({name: statistics.median(seconds) for name, seconds in row["seconds"].items()})
    return measured + (f" ({upto(row['predicted'])})" if row["predicted"] else "")


def markdown(result: dict[str, Any]) -> str:
    """The result as a page."""
    lines = [
        "# Views",
        "",
        f"{decimal(result['size'])}, cold, {MEMORY} for readers; medians, interleaved. Shares are relative to `cat`",
        "of the sorted file through a pipe, and to a file through the same mount library.",
        "",
        *_reading(result),
        "",
        f"Made and read, {decimal(result['sweep_size'])}; in brackets the prediction with the profile of the volume.",
        "The last column shows the number of readings up to which the view is cheaper.",
        "",
        *_sweep(result),
        "",
        "![when a view pays](pays.svg)",
    ]
    return "\n".join(lines) + "\n"
