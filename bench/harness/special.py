"""Measurements of starting and of growing data.

startup  the time from start to exit on a thousand lines, warm, in turns; Ascot also from a pipe: a job with a pipe is
         never taken for a small one, so that the two differ by the path for small jobs
scaling  gen | sort | check as one pipeline inside the cgroup, at two sizes: the cost per byte should hold
"""

from __future__ import annotations

import os
import shlex
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import measure
from .measure import Command
from .units import flag_size

LINES = 1000
PIPED = "Ascot, from a pipe"


def startup(work: Path, ascot: list[str], starts: int) -> list[dict[str, Any]]:
    """Medians over `starts` runs of each command, sorting a thousand lines to standard output."""
    source = work / "thousand.txt"
    source.write_text("".join(f"{(i * 7919) % LINES:05d} a line to sort\n" for i in range(LINES)))
    commands = {
        "Ascot": [*ascot, "sort", str(source)],
        PIPED: [*ascot, "sort", "-"],
        "GNU sort": ["sort", str(source)],
    }
    text = source.read_bytes()
    times: dict[str, list[float]] = {name: [] for name in commands}
    environment = {**os.environ, "LC_ALL": "C"}
    expected = "".join(sorted(source.read_text().splitlines(keepends=True)))
    errors = {name: _check_start(argv, environment, text, expected) for name, argv in commands.items()}
    for _ in range(starts):
        for name, argv in commands.items():
            if not errors[name]:
                times[name].append(_time_start(argv, environment, text if name == PIPED else b""))
    source.unlink()
    return [
        {
            "name": name,
            "command": " ".join([*argv[:-1], "-" if name == PIPED else "thousand.txt"]),
            "error": errors[name],
            "starts": len(times[name]),
            "median_s": statistics.median(times[name]) if times[name] else None,
            "min_s": min(times[name], default=None),
            "max_s": max(times[name], default=None),
        }
        for name, argv in commands.items()
    ]


def _check_start(argv: list[str], environment: dict[str, str], text: bytes, expected: str) -> str:
    given = text.decode()
    try:
        done = subprocess.run(argv, env=environment, input=given, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"
    if done.returncode:
        return f"exit status {done.returncode}: {done.stderr.strip()[-200:]}"
    return "" if done.stdout == expected else "wrong output"


def _time_start(argv: list[str], environment: dict[str, str], text: bytes) -> float:
    """The seconds of one run; its standard input is a pipe that holds `text`, which fits the buffer of a pipe."""
    program = shutil.which(argv[0]) or argv[0]
    null = os.open(os.devnull, os.O_WRONLY)
    given, filled = os.pipe()
    os.write(filled, text)
    os.close(filled)
    actions = [(os.POSIX_SPAWN_DUP2, given, 0), (os.POSIX_SPAWN_DUP2, null, 1), (os.POSIX_SPAWN_DUP2, null, 2)]
    try:
        start = time.perf_counter()
        pid = os.posix_spawn(program, argv, environment, file_actions=actions)
        os.waitpid(pid, 0)
        return time.perf_counter() - start
    finally:
        os.close(given)
        os.close(null)


def pipeline(ascot: list[str], size: int, memory: int, temp: Path) -> Command:
    """`gen | sort | check` over `size` bytes of benchmark records; any failure fails the whole."""
    name = " ".join(shlex.quote(word) for word in ascot)
    flags = f"--format fixed:100 --key 0..10 --memory {flag_size(memory)} --temp {shlex.quote(str(temp))}"
    line = f"{name} gen {size // 100} | {name} sort {flags} | {name} check"
    return Command(["bash", "-c", f"set -o pipefail; {line}"])


class Scaling:
    """The pipeline at two sizes."""

    def __init__(self, work: Path, ascot: list[str], memory: int, limit: int | None) -> None:
        self.work, self.ascot, self.memory, self.limit = work, ascot, memory, limit

    def run(self, size: int, timeout: float) -> dict[str, Any]:
        """One pipeline, measured; the number of records that `check` saw is verified."""
        temp = self.work / "temp"
        shutil.rmtree(temp, ignore_errors=True)
        temp.mkdir(parents=True)
        command, log = pipeline(self.ascot, size, self.memory, temp), self.work / "log.txt"
        outcome = measure.run(command, limit=self.limit, volume=self.work, timeout=timeout, log=log)
        shutil.rmtree(temp, ignore_errors=True)
        said = measure.tail_of(log, lines=6, width=1000)
        if outcome.ok and str(size // 100) not in said.replace(",", "").replace("_", ""):
            outcome.error = f"wrong output: check does not tell of {size // 100} records: {said[-200:]}"
        return {
            "bytes": size,
            "command": command.argv[-1],
            "ns_per_byte": outcome.seconds / size * 1e9,
            **outcome.as_dict(),
        }

    def both(self, small: int, large: int, repeats: int, say: Callable[[str], None]) -> dict[str, Any]:
        """The small size before and after the large one (`repeats` times in all), and the ratio per byte."""
        order = [small] * max(1, repeats // 2) + [large] + [small] * (repeats - max(1, repeats // 2))
        runs = []
        for size in order:
            runs.append(self.run(size, timeout=max(120.0, size / 20e6)))
            say(f"  {size / 1e9:.0f} GB: {runs[-1]['seconds']:.1f} s {runs[-1]['error']}")

        def cost(size: int) -> float | None:
            good = [run["ns_per_byte"] for run in runs if run["bytes"] == size and not run["error"]]
            return statistics.median(good) if good else None

        few, many = cost(small), cost(large)
        return {
            "small_bytes": small,
            "large_bytes": large,
            "runs": runs,
            "small_ns_per_byte": few,
            "large_ns_per_byte": many,
            "ratio": many / few if few and many else None,
        }
