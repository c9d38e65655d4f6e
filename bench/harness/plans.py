"""Predicted and measured times of twenty jobs drawn by a seed, each planned with a profile taken just before.

A draw has sorts (in memory, in two passes, in three), merges, splits, and views that are made or read, of records of
every layout. For each job the volume and the processors are measured (`ascot probe`); then the job runs a few times,
cold, with this profile as `--volume`. Its report holds what the plan said and what it took. Nothing is subtracted for
the variation of the volume.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import machine, measure
from .units import GB, MB, MIB, binary, decimal

TIMEOUT_SECONDS = 900
CHUNK = 4 * MIB
LETTERS = bytes(range(ord("a"), ord("z") + 1))
# What is asked of the errors: median and 90th percentile of their size, and the median with its sign.
ASKED = {"median": 0.12, "90th percentile": 0.30, "signed median": 0.05}


@dataclass(frozen=True)
class Layout:
    """Records of one kind: the words that describe them to the command, and how a file of them is made."""

    name: str
    words: tuple[str, ...]
    make: Callable[[Path, int, random.Random], None]


def _noise(path: Path, size: int, record: int) -> None:
    with path.open("wb") as out:
        left = size // record * record
        while left > 0:
            left -= out.write(os.urandom(min(left, CHUNK)))


def _lines(path: Path, size: int, _: random.Random) -> None:
    """Lines of letters, of 16 to 79 of them."""
    letters = bytes.maketrans(bytes(range(256)), bytes(LETTERS[at % len(LETTERS)] for at in range(256)))
    with path.open("wb") as out:
        while size > 0:
            noise = os.urandom(min(size, CHUNK) + 1)
            chunk = bytearray(noise[:-1].translate(letters))
            at = 0
            while (at := at + 17 + noise[at] % 64) < len(chunk):
                chunk[at - 1] = ord("\n")
            chunk[-1] = ord("\n")
            size -= out.write(chunk)


def _rows(path: Path, size: int, draw: random.Random) -> None:
    """Rows of a time, a name, a number and a text."""
    with path.open("wb") as out:
        size -= out.write(b"ts,name,amount,note\n")
        while size > 0:
            bits = draw.getrandbits
            rows = "".join(
                f"{bits(40)},name{bits(12)},{bits(20) / 100:.2f},{'x' * (bits(5) + 1)}\n" for _ in range(20_000)
            ).encode()
            size -= out.write(rows[: rows.rfind(b"\n", 0, max(size, 60)) + 1] if size < len(rows) else rows)


def _fixed(record: int) -> Layout:
    make = lambda path, size, _: _noise(path, size, record)  # noqa: E731
    return Layout(f"fixed:{record}", ("--format", f"fixed:{record}", "--key", "0..10"), make)


LAYOUTS = (
    _fixed(16),
    _fixed(100),
    _fixed(4000),
    Layout("u64-le", ("--format", "u64-le"), lambda path, size, _: _noise(path, size, 8)),
    Layout("lines", (), _lines),
    Layout("csv", ("--csv", "--header", "--key", "ts:number"), _rows),
    Layout("csv, two keys", ("--csv", "--header", "--key", "name", "--key", "amount:number"), _rows),
)


@dataclass(frozen=True)
class Scale:
    """The size of the session."""

    sizes: tuple[int, ...]
    # In how many memories the data of a job in two passes fit, and the memory of one in three.
    memories: tuple[int, ...]
    small_memory: int
    jobs: int
    repeats: int
    probe: tuple[str, ...]


FULL = Scale((300 * MB, 600 * MB, GB), (3, 5, 12), 8 * MIB, 20, 3, ("--seconds", "8"))
QUICK = Scale((24 * MB, 48 * MB), (2, 3), 8 * MIB, 6, 1, ("--seconds", "2", "--bytes", "64MiB"))

# The kinds of a draw, in this order again and again.
KINDS = (
    *("in memory", "two passes", "three passes", "merge", "split by hash", "view made"),
    *("two passes", "in memory", "merge", "view read", "split by range", "three passes"),
)
MERGED = (8, 16, 64)
PARTS = (8, 32, 64)


@dataclass(frozen=True)
class Job:
    """A job: its kind, its records, their bytes, its memory, and the number of files that it merges or writes."""

    kind: str
    layout: Layout
    size: int
    memory: int
    files: int

    @property
    def name(self) -> str:
        """What is printed."""
        files = {"merge": f"merge of {self.files} files", "split": f"{self.kind} into {self.files}"}
        words = files.get(self.kind.split()[0], self.kind if "view" in self.kind else f"sort in {self.kind}")
        words = words.replace("in in", "in")
        return f"{words}, {decimal(self.size)} of {self.layout.name} within {binary(self.memory)}"


def draw(seed: int, scale: Scale) -> list[Job]:
    """The jobs of a seed: kinds in turn, layouts from a shuffled deck, sizes and memories at random."""
    dice = random.Random(seed)
    decks: Iterator[Layout] = (one for _ in range(scale.jobs) for one in dice.sample(LAYOUTS, len(LAYOUTS)))
    jobs = []
    for number in range(scale.jobs):
        kind, layout = KINDS[number % len(KINDS)], next(decks)
        size = max(scale.sizes) if kind == "three passes" else dice.choice(scale.sizes)
        part = size // dice.choice(scale.memories) // MIB * MIB
        memory = {"in memory": 4 * size // MIB * MIB, "three passes": scale.small_memory}.get(kind, part)
        files = dice.choice(MERGED if kind == "merge" else PARTS)
        jobs.append(Job(kind, layout, size, max(memory, scale.small_memory), files))
    return jobs


def disk(scale: Scale) -> int:
    """Bytes of disk that a job takes at most: its inputs twice, an output and its spills."""
    return 5 * max(scale.sizes) + 4 * GB


class Bench:
    """The directory of a session and the command that is measured."""

    def __init__(self, ascot: str, work: Path, scale: Scale, seed: int) -> None:
        self.ascot, self.work, self.scale, self.seed = ascot, work, scale, seed

    def probe(self) -> dict[str, Any]:
        """Measures the volume and the processors; returns the profile."""
        path = self.work / "volume.toml"
        argv = [self.ascot, "probe", str(self.work), *self.scale.probe, "-o", str(path)]
        own = {**os.environ, "XDG_STATE_HOME": str(self.work / "state")}
        subprocess.run(argv, check=True, capture_output=True, env=own)
        return tomllib.loads(path.read_text())

    def quietly(self, *words: str) -> None:
        """Runs the command without measuring it."""
        subprocess.run([self.ascot, *words, "--quiet"], check=True, capture_output=True)

    def command(self, job: Job) -> list[str]:
        """Makes the inputs of a job; returns its command line, which leaves its outputs in `out/`."""
        shutil.rmtree(self.work / "in", ignore_errors=True)
        made = self.work / "in"
        made.mkdir()
        words = list(job.layout.words)
        dice = random.Random(f"{self.seed} {job.name}")
        source, out = made / "data", self.work / "out"
        common = ["--memory", f"{job.memory}b", "--volume", str(self.work / "volume.toml")]
        if job.kind == "merge":
            for number in range(job.files):
                job.layout.make(source, job.size // job.files, dice)
                self.quietly("sort", str(source), *words, "-o", str(made / f"sorted-{number:02}"))
            source.unlink()
            files = [str(path) for path in sorted(made.iterdir())]
            return [self.ascot, "merge", *files, *words, *common, "-o", str(out / "merged")]
        job.layout.make(source, job.size, dice)
        if job.kind == "view read":
            view = made / "view"
            self.quietly("sort", str(source), *words, "--view", str(view), "--memory", f"{job.memory}b")
            source.unlink()
            return [self.ascot, "view", str(view), *common, "-o", str(out / "read")]
        if job.kind == "view made":
            return [self.ascot, "sort", str(source), *words, *common, "--view", str(out / "view")]
        if job.kind.startswith("split"):
            parts = ["--by", job.kind.split()[-1], "--parts", str(job.files), "-o", str(out / "part-{:03}")]
            return [self.ascot, "split", str(source), *words, *parts, *common]
        return [self.ascot, "sort", str(source), *words, *common, "-o", str(out / "sorted")]

    def run_once(self, argv: list[str]) -> dict[str, Any]:
        """Runs a job cold; returns what its report says."""
        out, report = self.work / "out", self.work / "report.json"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        command = measure.Command([*argv, "--report", str(report)])
        done = measure.run(command, limit=None, volume=self.work, timeout=TIMEOUT_SECONDS, log=self.work / "log")
        if done.error:
            raise RuntimeError(f"{' '.join(argv)}: {done.error}")
        told = json.loads(report.read_text())
        chosen = (told["plan"] or {"chosen": {"method": "view", "passes": []}})["chosen"]
        planned = ("name", "times", "device_seconds", "compute_seconds")
        return {
            "seconds": told["seconds"],
            "predicted_seconds": told["predicted_seconds"],
            "method": chosen["method"],
            "planned": [{key: one.get(key) for key in planned} for one in chosen["passes"]],
            "passes": [_pass(one) for one in told["passes"]],
        }

    def measured(self, job: Job) -> dict[str, Any]:
        """Measures the volume, then the job as often as asked; returns the medians and the error."""
        argv = self.command(job)
        profile = self.probe()
        runs = [self.run_once(argv) for _ in range(self.scale.repeats)]
        seconds = statistics.median(run["seconds"] for run in runs)
        predicted = statistics.median(run["predicted_seconds"] for run in runs)
        return {
            "name": job.name,
            "method": runs[0]["method"],
            "passes": sum(one["name"] not in ("open", "in memory") for one in runs[0]["passes"]),
            "seconds": seconds,
            "predicted_seconds": predicted,
            "error": predicted / seconds - 1,
            "profile": {**profile, "name": "the volume of the bench"},
            "runs": runs,
        }


def _pass(one: dict[str, Any]) -> dict[str, Any]:
    """What matters of a measured pass: its time, and the work of its stages."""
    kept = ("name", "threads", "processor_seconds", "busy_seconds", "waiting_device_seconds", "bytes")
    stages = [{key: stage[key] for key in kept} for stage in one["stages"]]
    told = ("name", "times", "seconds", "device_seconds", "bound_by")
    return {**{key: one[key] for key in told}, "stages": stages}


def quantile(values: Iterable[float], percent: int) -> float:
    """The smallest value that a percentage of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def errors(jobs: list[dict[str, Any]]) -> dict[str, float]:
    """The figures that are judged: a positive error is a prediction that is too long."""
    found = [job["error"] for job in jobs]
    sizes = [abs(error) for error in found]
    return {
        "median": statistics.median(sizes),
        "90th percentile": quantile(sizes, 90),
        "signed median": statistics.median(found),
    }


def run(ascot: str, work: Path, scale: Scale, seed: int) -> dict[str, Any]:
    """Runs the jobs of a seed one after another."""
    say = lambda text: print(f"bench: {text}", flush=True)  # noqa: E731
    if (free := shutil.disk_usage(work).free) < disk(scale):
        raise RuntimeError(f"{decimal(disk(scale))} of disk are needed, {decimal(free)} are free")
    bench = Bench(ascot, work, scale, seed)
    jobs = []
    for job in draw(seed, scale):
        jobs.append(bench.measured(job))
        done = jobs[-1]
        took = f"{done['seconds']:.2f} s, predicted {done['predicted_seconds']:.2f}"
        say(f"  {job.name}: {took}, {100 * done['error']:+.0f}%")
    return {
        "version": 3,
        "commit": machine.commit(),
        "seed": seed,
        "machine": machine.describe(work),
        "repeats": scale.repeats,
        "errors": errors(jobs),
        "jobs": jobs,
    }


def markdown(result: dict[str, Any]) -> str:
    """The result as a page."""
    host = result["machine"]
    rates = [job["profile"]["measurement"]["duplex"]["value"] / 1e6 for job in result["jobs"]]
    lines = [
        "# Predicted and measured times",
        "",
        f"Measured at commit `{result['commit']}`.",
        "",
        f"{len(result['jobs'])} jobs drawn with seed {result['seed']}, each planned with a profile of `ascot probe` "
        "taken just before.",
        f"{host['cores']} cores ({host['processor']}), {binary(host['memory_bytes'])} of memory, {host['system']}, "
        f"kernel {host['kernel']}, {host['filesystem']}.",
        f"Cold cache; medians of {result['repeats']}. The profiles found {min(rates):.0f} to {max(rates):.0f} MB/s "
        "each way for reading and writing at once.",
        "",
        "| error of the prediction | asked | found |",
        "| --- | ---: | ---: |",
    ]
    for name, asked in ASKED.items():
        found = result["errors"][name]
        shown = f"{100 * found:+.0f}%" if name.startswith("signed") else f"{100 * found:.0f}%"
        lines.append(f"| {name} | {100 * asked:.0f}% | {shown} |")
    lines += ["", "| job | method | predicted, s | measured, s | error |", "| --- | --- | ---: | ---: | ---: |"]
    lines += [
        f"| {job['name']} | {job['method']} | {job['predicted_seconds']:.2f} | {job['seconds']:.2f} | "
        f"{100 * job['error']:+.0f}% |"
        for job in result["jobs"]
    ]
    return "\n".join(lines) + "\n"


def write(folder: Path, result: dict[str, Any]) -> None:
    """Writes the page, the runs and the machine to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "overview.md").write_text(markdown(result))
    (folder / "machine.json").write_text(json.dumps(result["machine"], indent=1) + "\n")
    (folder / "runs.json").write_text(json.dumps(result, indent=1) + "\n")
