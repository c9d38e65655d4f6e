"""merge, split and reshape, compared with the rate at which the volume reads and writes.

The limit is the duplex rate that fio measures before and after the runs: one pass reads and writes everything
once, so bytes of input per second can be as many as the slower direction carries.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
from pathlib import Path
from typing import Any

from . import limit, machine, measure
from .units import GIB, MIB, decimal

RECORD = 100
FIXED = ["--format", "fixed:100", "--key", "0..10"]
TIMEOUT_SECONDS = 600


def _sorted_files(ascot: str, work: Path, name: str, files: int, size: int) -> list[str]:
    """`files` sorted files of benchmark records, of `size` bytes together."""
    each = size // files // RECORD
    paths = []
    for number in range(files):
        path = work / f"{name}-{number:03}"
        subprocess.run([ascot, "gen", str(each), "--start", str(number * each), "-o", str(path)], check=True)
        subprocess.run([ascot, "sort", str(path), *FIXED, "-o", str(path), "--quiet"], check=True)
        paths.append(str(path))
    return paths


def _jobs(ascot: str, work: Path, size: int) -> dict[str, list[str]]:
    """Command lines by name; each leaves its outputs in `out/`."""
    many = _sorted_files(ascot, work, "in64", 64, size)
    few = _sorted_files(ascot, work, "in8", 8, size)
    big = str(work / "big")
    subprocess.run([ascot, "gen", str(size // RECORD), "-o", big], check=True)
    common = [*FIXED, "--memory", "1GiB"]
    out = str(work / "out" / "part-{:03}")
    return {
        "merge of 64 files": [ascot, "merge", *many, *common, "-o", str(work / "out" / "all")],
        "split into 64 by range": [ascot, "split", big, *common, "--by", "range", "--parts", "64", "-o", out],
        "split into 64 by hash": [ascot, "split", big, *common, "--by", "hash", "--parts", "64", "-o", out],
        "reshape of 8 into 16": [ascot, "reshape", *few, *common, "--parts", "16", "-o", out],
    }


def _measure_once(argv: list[str], work: Path, size: int) -> float:
    """Seconds of one run, its report checked: all of the input read once and written once."""
    out, report = work / "out", work / "report.json"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    command = measure.Command([*argv, "--report", str(report)])
    done = measure.run(command, limit=GIB + 512 * MIB, volume=work, timeout=TIMEOUT_SECONDS, log=work / "log")
    if done.error:
        raise RuntimeError(f"{' '.join(argv[:2])}: {done.error}")
    streams = [stream for one in json.loads(report.read_text())["passes"] for stream in one["streams"]]
    moved = [sum(stream[way] for stream in streams) for way in ("read_bytes", "written_bytes")]
    written = sum(path.stat().st_size for path in out.iterdir())
    if moved != [size, size] or written != size:
        raise RuntimeError(f"{' '.join(argv[:2])} moved {moved} bytes and left {written}, not {size}")
    return done.seconds


def run(ascot: str, work: Path, size: int, repeats: int) -> dict[str, Any]:
    """Measures all jobs `repeats` times, in turns, between two measurements of the volume."""
    size = size // (64 * RECORD) * 64 * RECORD
    say = lambda text: print(f"bench: {text}", flush=True)  # noqa: E731
    before = limit.measure(work, False, say)
    jobs = _jobs(ascot, work, size)
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, argv in jobs.items():
            seconds[name].append(_measure_once(argv, work, size))
            say(f"  {name}: {seconds[name][-1]:.1f} s, {size / seconds[name][-1] / 1e6:.0f} MB/s")
    shutil.rmtree(work / "out", ignore_errors=True)
    for path in work.glob("in*-*"):
        path.unlink()
    (work / "big").unlink()
    after = limit.measure(work, False, say)
    duplex = [found["duplex_bytes_per_s"] for found in (before, after)]
    return {
        "version": 1,
        "machine": machine.describe(work),
        "size": size,
        "duplex_bytes_per_s": duplex,
        "jobs": [
            {
                "name": name,
                "seconds": times,
                "bytes_per_s": size / statistics.median(times),
                "share": size / statistics.median(times) / statistics.mean(duplex),
            }
            for name, times in seconds.items()
        ],
    }


def markdown(result: dict[str, Any]) -> str:
    """The result as a page."""
    before, after = (rate / 1e6 for rate in result["duplex_bytes_per_s"])
    lines = [
        "# merge, split, reshape",
        "",
        f"{decimal(result['size'])} of 100-byte records within 1 GiB; cold cache, outputs synced; "
        "medians, interleaved.",
        f"fio reads and writes at once at {before:.0f} MB/s before and {after:.0f} MB/s after the runs; shares are",
        "relative to the mean. The report of every run shows that all of the input was read once and written once.",
        "",
        "| | MB/s | share of the volume's rate | runs, s |",
        "| --- | ---: | ---: | --- |",
    ]
    lines += [
        f"| {job['name']} | {job['bytes_per_s'] / 1e6:.0f} | {100 * job['share']:.0f}% | "
        f"{', '.join(f'{seconds:.1f}' for seconds in job['seconds'])} |"
        for job in result["jobs"]
    ]
    return "\n".join(lines) + "\n"
