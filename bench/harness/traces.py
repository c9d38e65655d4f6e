"""What traces cost: recording beside the program alone, converting ten million calls, opening their seek chart.

The calls are those of a program that reads and writes small blocks at random offsets of eight files, so that every
request begins a run: the page draws as many runs as there are calls.
"""

from __future__ import annotations

import contextlib
import os
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import machine

TESTS = Path(__file__).resolve().parents[2] / "tests"
CALLS_PROGRAM = Path(__file__).resolve().parents[1] / "peers" / "small_calls.c"

SLOWDOWN = 1.3
"""The most that recording may slow GNU sort."""
CONVERT_S = 20
CONVERT_BYTES = 1 << 30
OPEN_S = 3
PLAIN_CALLS = 50_000
"""Calls of the small program whose cost is measured with and without strace."""


def _run(argv: list[str], directory: Path) -> float:
    """Seconds of a command."""
    began = time.perf_counter()
    done = subprocess.run(argv, cwd=directory, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    if done.returncode:
        raise RuntimeError(f"{argv[0]} failed: {done.stderr.strip()[-300:]}")
    return time.perf_counter() - began


def _lines(ascot: str, directory: Path, size: int) -> None:
    _run([ascot, "gen", str(size // 100), "--ascii", "-o", "in.txt"], directory)
    os.sync()


def recording(ascot: str, directory: Path, size: int, memory: int, pairs: int) -> dict[str, Any]:
    """GNU sort alone and recorded, in turns; the one that begins alternates."""
    _lines(ascot, directory, size)
    sort = ["sort", "-S", f"{memory}b", "-T", ".", "in.txt", "-o", "out.txt"]
    commands = {"alone": sort, "recorded": [ascot, "trace", "record", "--keep-log", "-o", "sort.trace", "--", *sort]}
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(pairs):
        for name in sorted(commands, reverse=number % 2 == 1):
            os.sync()
            seconds[name].append(_run(commands[name], directory))
    with open(directory / "sort.trace.log", "rb") as log:
        calls = sum(1 for _ in log)
    for name in ("in.txt", "out.txt", "sort.trace", "sort.trace.log"):
        (directory / name).unlink()
    ratio = statistics.median(one / other for one, other in zip(seconds["recorded"], seconds["alone"], strict=True))
    medians = {name: statistics.median(of) for name, of in seconds.items()}
    return {"size": size, "memory": memory, "calls": calls, "seconds": seconds, "medians": medians, "ratio": ratio}


def _program(directory: Path) -> str:
    program = directory / "small_calls"
    subprocess.run(["cc", "-O2", "-o", str(program), str(CALLS_PROGRAM)], check=True)
    return str(program)


def call_cost(ascot: str, directory: Path, rounds: int) -> dict[str, Any]:
    """Seconds of one small call: of the program alone, under strace without output, and recorded."""
    program = [_program(directory), str(PLAIN_CALLS)]
    strace = ["strace", "-f", "--seccomp-bpf", "-e", "trace=pread64,pwrite64", "-e", "raw=all", "-o", "/dev/null"]
    commands = {
        "alone": program,
        "strace": [*strace, *program],
        "recorded": [ascot, "trace", "record", "-o", "calls.trace", "--", *program],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            seconds[name].append(_run(command, directory) / PLAIN_CALLS)
    return {name: statistics.median(of) for name, of in seconds.items()}


def _high_water(pid: int, program: str) -> int:
    """The most memory of a process so far, once it runs the program."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text()
        found = re.search(r"VmHWM:\s*(\d+) kB", status)
        if found and os.readlink(f"/proc/{pid}/exe") == program:
            return int(found.group(1)) * 1024
    return 0


def _peak(argv: list[str], directory: Path) -> tuple[float, int]:
    """Seconds of a command, and the most memory of its process, looked at until it ends.

    The maximum that the system reports after the end may be that of this process, from which the command started.
    """
    peak = 0
    began = time.perf_counter()
    with subprocess.Popen(argv, cwd=directory, stdout=subprocess.DEVNULL) as child:
        while child.poll() is None:
            peak = max(peak, _high_water(child.pid, argv[0]))
            time.sleep(0.005)
    seconds = time.perf_counter() - began
    if child.returncode:
        raise RuntimeError(f"{argv[0]} failed")
    return seconds, peak


def conversion(ascot: str, directory: Path, rounds: int) -> dict[str, Any]:
    """The log of all calls to a trace."""
    command = [ascot, "trace", "convert", "calls.log", "-o", "calls.trace"]
    measured = [_peak(command, directory) for _ in range(rounds)]
    return {
        "log_bytes": (directory / "calls.log").stat().st_size,
        "trace_bytes": (directory / "calls.trace").stat().st_size,
        "seconds": [seconds for seconds, _ in measured],
        "peak_bytes": max(peak for _, peak in measured),
    }


def page(ascot: str, directory: Path, rounds: int) -> dict[str, Any]:
    """The page of all calls, in a headless browser: from the navigation to the first drawn chart."""
    _run([ascot, "trace", "plot", "calls.trace", "-o", "calls.html"], directory)
    sys.path.insert(0, str(TESTS))
    import page_browser

    seconds, threads, state = [], [], ""
    for _ in range(rounds):
        with page_browser.opened(directory / "calls.html") as shown:
            timing = "performance.now()"
            seconds.append(shown.run(timing) / 1e3)
            metrics = {one["name"]: one["value"] for one in shown.call("Performance.getMetrics")["metrics"]}
            threads.append(metrics["TaskDuration"])
            state = shown.run("document.getElementById('state-0').textContent")
    runs = re.search(r"([\d,]+) runs?", state)
    return {
        "page_bytes": (directory / "calls.html").stat().st_size,
        "runs": int(runs.group(1).replace(",", "")) if runs else 0,
        "seconds": seconds,
        "thread_seconds": threads,
    }


def _record_calls(ascot: str, directory: Path, calls: int) -> None:
    """Makes the log of the small program."""
    command = [ascot, "trace", "record", "--keep-log", "-o", "all.trace", "--", _program(directory), str(calls)]
    _run(command, directory)
    (directory / "all.trace").unlink()
    (directory / "all.trace.log").rename(directory / "calls.log")


@dataclass
class Options:
    """What to measure."""

    ascot: str
    directory: Path
    size: int
    """Bytes that GNU sort sorts."""
    memory: int
    calls: int
    rounds: int
    log: Path | None
    """The log of all calls, if an earlier session made it."""


def run(o: Options) -> dict[str, Any]:
    """Measures everything, and returns the figures."""
    load = [os.getloadavg()[0]]
    if o.log:
        (o.directory / "calls.log").symlink_to(o.log)
    else:
        _record_calls(o.ascot, o.directory, o.calls)
    result = {
        "version": 1, "commit": machine.commit(), "machine": machine.describe(o.directory), "rounds": o.rounds,
        "calls": o.calls, "load": load,
        "recording": recording(o.ascot, o.directory, o.size, o.memory, o.rounds),
        "call_cost": call_cost(o.ascot, o.directory, o.rounds),
        "conversion": conversion(o.ascot, o.directory, o.rounds),
        "page": page(o.ascot, o.directory, o.rounds),
    }  # fmt: skip
    load.append(os.getloadavg()[0])
    return result


def _row(name: str, measured: str, asked: str, reached: bool) -> str:
    return f"| {name} | {measured} | {asked} | {'yes' if reached else 'no'} |"


def markdown(result: dict[str, Any]) -> str:
    """The page of the result."""
    record, cost, convert, opened = (result[name] for name in ("recording", "call_cost", "conversion", "page"))
    seconds = {name: statistics.median(one["seconds"]) for name, one in (("convert", convert), ("open", opened))}
    calls = result["calls"]
    rows = [
        _row(
            f"GNU sort of {record['size'] >> 20} MiB within {record['memory'] >> 20} MiB, recorded / alone",
            f"{record['ratio']:.2f}", f"at most {SLOWDOWN:g}", record["ratio"] <= SLOWDOWN,
        ),
        _row(f"conversion of {calls:,} calls", f"{seconds['convert']:.1f} s", f"< {CONVERT_S} s",
             seconds["convert"] < CONVERT_S),
        _row("its memory", f"{convert['peak_bytes'] / (1 << 20):.0f} MiB", f"< {CONVERT_BYTES >> 20} MiB",
             convert["peak_bytes"] < CONVERT_BYTES),
        _row(f"opening the chart of {opened['runs']:,} runs", f"{seconds['open']:.1f} s", f"< {OPEN_S} s",
             seconds["open"] < OPEN_S),
    ]  # fmt: skip
    alone, recorded = (record["medians"][name] for name in ("alone", "recorded"))
    times = zip(record["seconds"]["recorded"], record["seconds"]["alone"], strict=True)
    pairs = ", ".join(f"{recorded / alone:.1f}" for recorded, alone in times)
    before, after = result["load"]
    thread = statistics.median(opened["thread_seconds"])
    us = {name: f"{seconds * 1e6:.1f} us" for name, seconds in cost.items()}
    lines = [
        "# What traces cost",
        "",
        f"Measured at commit `{result['commit']}`; medians of {result['rounds']}. The load of the machine was",
        f"{before:.1f} at the beginning and {after:.1f} at the end; this bench alone makes about 1.",
        "",
        "| | measured | asked | reached |",
        "| --- | ---: | ---: | --- |",
        *rows,
        "",
        f"GNU sort takes {alone:.1f} s alone and {recorded:.1f} s recorded; the log has {record['calls']:,} lines.",
        f"The ratio is the median of those of pairs, of which each has both in turn: {pairs}. It includes the",
        "conversion.",
        "",
        "strace stops the program at the beginning and at the end of each call, so the cost of a stop decides.",
        f"A read or write of 512 bytes takes {us['alone']} alone, {us['strace']} under a strace that writes nothing,",
        f"and {us['recorded']} recorded: `record` keeps idle processors awake, if it may, and strace alone does not.",
        "GNU sort writes blocks of 4,096 bytes.",
        "",
        f"The log of {calls:,} calls has {convert['log_bytes'] / 1e6:.0f} MB, the trace "
        f"{convert['trace_bytes'] / 1e6:.0f} MB,",
        f"and the page {opened['page_bytes'] / 1e6:.0f} MB. The time to open it counts from the navigation to the",
        f"drawn chart. The thread of the page works for {thread:.1f} s of it; the disk and other threads of the",
        "browser take the rest.",
    ]
    return "\n".join(lines) + "\n"
