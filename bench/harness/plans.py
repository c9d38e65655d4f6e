"""Predicted and measured times of thirty jobs, planned with a profile of the volume from the same session.

Sorts of three sizes within three memories, by layout, and a merge and two splits. Each job is run with the profile
as `--volume`; its report holds what the plan said and what it took. The volume is measured again when all is done:
what it changed meanwhile nobody could have predicted.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import machine, measure
from .units import GB, MB, MIB, binary, decimal

RECORD = 100
MERGED_FILES = 16
PARTS = 32
TIMEOUT_SECONDS = 900
# What is asked: error beyond the volume's own spread, in the median and at the 90th percentile.
ASKED = {50: 0.20, 90: 0.40}
CHUNK = 4 * MIB
LETTERS = bytes(range(ord("a"), ord("z") + 1))

FIXED = ["--format", "fixed:100", "--key", "0..10"]
LAYOUTS = {"fixed:100": FIXED, "u64-le": ["--format", "u64-le"], "lines": []}


@dataclass(frozen=True)
class Scale:
    """The size of the session."""

    sizes: tuple[int, ...]
    memories: tuple[int, ...]
    repeats: int
    probe: tuple[str, ...]

    @property
    def largest(self) -> int:
        """Bytes of the largest job."""
        return max(self.sizes)


FULL = Scale((GB // 2, GB, 2 * GB), (64 * MIB, 256 * MIB, 1024 * MIB), 3, ())
QUICK = Scale((8 * MB, 16 * MB, 32 * MB), (8 * MIB, 16 * MIB, 64 * MIB), 1, ("--seconds", "2", "--bytes", "64MiB"))


@dataclass(frozen=True)
class Job:
    """A command line, which leaves its outputs in `out/`."""

    name: str
    argv: list[str]
    size: int


def disk(scale: Scale) -> int:
    """Bytes of disk it takes: inputs of every layout and size, those of the merge, an output and its spills."""
    return 3 * sum(scale.sizes) + 3 * scale.largest


def profile(ascot: str, work: Path, scale: Scale, name: str) -> dict[str, Any]:
    """Measures the volume and writes its profile to `name`."""
    subprocess.run([ascot, "probe", str(work), *scale.probe, "-o", str(work / name)], check=True, capture_output=True)
    return tomllib.loads((work / name).read_text())


def spread(profiles: Iterable[dict[str, Any]]) -> float:
    """How far the volume's speeds lie apart, as a share: half of the distance between the slowest and the fastest
    that any profile allows, of the speed that varies most."""
    shares = []
    figures = [(lambda one: one["measurement"]["duplex"])]
    figures += [(lambda one, way=way: one["measurement"][way]["rate"]) for way in ("read", "write")]
    found = list(profiles)
    for figure in figures:
        values = [figure(one) for one in found]
        low = min(value["value"] - value["spread"] for value in values)
        high = max(value["value"] + value["spread"] for value in values)
        shares.append((high - low) / 2 / statistics.mean(value["value"] for value in values))
    return max(shares)


def _random_file(path: Path, size: int) -> None:
    with path.open("wb") as out:
        while size > 0:
            size -= out.write(os.urandom(min(size, CHUNK)))


def _lines_file(path: Path, size: int) -> None:
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


def _gen(ascot: str, path: Path, size: int, start: int = 0) -> None:
    argv = [ascot, "gen", str(size // RECORD), "--start", str(start), "-o", str(path)]
    subprocess.run(argv, check=True, capture_output=True)


def _inputs(ascot: str, work: Path, scale: Scale, say: Callable[[str], None]) -> None:
    makers = {
        "fixed:100": lambda path, size: _gen(ascot, path, size),
        "u64-le": lambda path, size: _random_file(path, size // 8 * 8),
        "lines": _lines_file,
    }
    for layout, make in makers.items():
        for size in scale.sizes:
            say(f"  making {decimal(size)} of {layout}")
            make(work / f"{layout}-{size}", size)
    each = scale.largest // 2 // MERGED_FILES // RECORD
    for number in range(MERGED_FILES):
        path = work / f"sorted-{number:02}"
        _gen(ascot, path, each * RECORD, number * each)
        subprocess.run([ascot, "sort", str(path), *FIXED, "-o", str(path), "--quiet"], check=True)


def jobs(ascot: str, work: Path, scale: Scale) -> list[Job]:
    """All jobs: sorts by layout, size and memory; a merge; two splits."""
    out, volume = work / "out", ["--volume", str(work / "before.toml")]
    common = [*volume, "--temp", str(work)]
    sorted_to = ["-o", str(out / "sorted")]
    found = [
        Job(
            f"sort {decimal(size)} of {layout} within {binary(memory)}",
            [ascot, "sort", str(work / f"{layout}-{size}"), *words, "--memory", f"{memory}b", *common, *sorted_to],
            size,
        )
        for layout, words in LAYOUTS.items()
        for size in scale.sizes
        for memory in scale.memories
    ]
    memory = ["--memory", f"{scale.memories[-1]}b"]
    merged = sorted(str(path) for path in work.glob("sorted-*"))
    each = scale.largest // 2 // MERGED_FILES // RECORD * RECORD
    big, parts = str(work / f"fixed:100-{scale.largest}"), ["--parts", str(PARTS), "-o", str(out / "part-{:03}")]
    found.append(
        Job(
            f"merge of {MERGED_FILES} files",
            [ascot, "merge", *merged, *FIXED, *memory, *common, "-o", str(out / "merged")],
            MERGED_FILES * each,
        )
    )
    for by in ("range", "hash"):
        split = [ascot, "split", big, *FIXED, "--by", by, *parts, *memory, *volume]
        found.append(Job(f"split into {PARTS} by {by}", split, scale.largest))
    return found


def _measure_once(job: Job, work: Path) -> dict[str, Any]:
    out, report = work / "out", work / "report.json"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    command = measure.Command([*job.argv, "--report", str(report)])
    done = measure.run(command, limit=None, volume=work, timeout=TIMEOUT_SECONDS, log=work / "log")
    if done.error:
        raise RuntimeError(f"{job.name}: {done.error}")
    told = json.loads(report.read_text())
    way = told["plan"]["chosen"]
    return {
        "seconds": told["seconds"],
        "predicted_seconds": told["predicted_seconds"],
        "method": way["method"],
        "planned": [_pass(one) for one in way["passes"]],
        "passes": [{key: one[key] for key in ("name", "times", "seconds", "bound_by")} for one in told["passes"]],
    }


def _pass(one: dict[str, Any]) -> dict[str, Any]:
    return {key: one[key] for key in ("name", "times", "device_seconds", "compute_seconds")}


def quantile(values: Iterable[float], percent: int) -> float:
    """The smallest value that a percentage of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def device_share(planned: list[dict[str, Any]]) -> float:
    """Share of the predicted time in passes that wait for the device, which vary with the volume."""
    taken = [max(one["device_seconds"], one["compute_seconds"]) for one in planned]
    bound = [one["device_seconds"] for one in planned if one["device_seconds"] >= one["compute_seconds"]]
    return sum(bound) / max(sum(taken), 1e-9)


def judged(runs: dict[str, list[dict[str, Any]]], volume_spread: float) -> list[dict[str, Any]]:
    """For each job the medians, the error of the prediction, and the error beyond the volume's spread."""
    found = []
    for name, repeats in runs.items():
        seconds = statistics.median(run["seconds"] for run in repeats)
        predicted = statistics.median(run["predicted_seconds"] for run in repeats)
        error = predicted / seconds - 1
        found.append(
            {
                "name": name,
                "method": repeats[0]["method"],
                "seconds": seconds,
                "predicted_seconds": predicted,
                "error": error,
                "beyond": max(0.0, abs(error) - volume_spread * device_share(repeats[0]["planned"])),
                "runs": repeats,
            }
        )
    return found


def run(ascot: str, work: Path, scale: Scale) -> dict[str, Any]:
    """Measures the volume, runs all jobs in turns, and measures the volume again."""
    say = lambda text: print(f"bench: {text}", flush=True)  # noqa: E731
    if (free := shutil.disk_usage(work).free) < disk(scale):
        raise RuntimeError(f"{decimal(disk(scale))} of disk are needed, {decimal(free)} are free")
    _inputs(ascot, work, scale, say)
    say("measuring the volume")
    profiles = [profile(ascot, work, scale, "before.toml")]
    listed = jobs(ascot, work, scale)
    runs: dict[str, list[dict[str, Any]]] = {job.name: [] for job in listed}
    for _ in range(scale.repeats):
        for job in listed:
            runs[job.name].append(_measure_once(job, work))
            last = runs[job.name][-1]
            say(f"  {job.name}: {last['seconds']:.2f} s, predicted {last['predicted_seconds']:.2f}")
    say("measuring the volume again")
    profiles.append(profile(ascot, work, scale, "after.toml"))
    volume_spread = spread(profiles)
    told = judged(runs, volume_spread)
    for one in profiles:
        one["name"] = "the volume of the bench"
    return {
        "version": 1,
        "machine": machine.describe(work),
        "repeats": scale.repeats,
        "profiles": profiles,
        "volume_spread": volume_spread,
        "error": {str(percent): quantile((abs(job["error"]) for job in told), percent) for percent in ASKED},
        "beyond": {str(percent): quantile((job["beyond"] for job in told), percent) for percent in ASKED},
        "jobs": told,
    }


def markdown(result: dict[str, Any]) -> str:
    """The result as a page."""
    host, rates = result["machine"], result["profiles"][0]["measurement"]
    speed = lambda figure: f"{figure['value'] / 1e6:.0f} ± {figure['spread'] / 1e6:.0f}"  # noqa: E731
    lines = [
        "# Predicted and measured times",
        "",
        f"{host['cores']} cores ({host['processor']}), {binary(host['memory_bytes'])} of memory, {host['system']}, "
        f"kernel {host['kernel']}, {host['filesystem']}.",
        f"`ascot probe` before the runs: reads {speed(rates['read']['rate'])}, writes "
        f"{speed(rates['write']['rate'])}, both at once {speed(rates['duplex'])} MB/s each way.",
        f"Cold cache; medians of {result['repeats']}, interleaved. Spread of the volume's measurements before "
        f"and after the runs: {100 * result['volume_spread']:.0f}%.",
        "",
        "| error of the prediction | target | beyond the volume's spread | in all |",
        "| --- | ---: | ---: | ---: |",
    ]
    names = {50: "median", 90: "90th percentile"}
    lines += [
        f"| {names[percent]} | {100 * asked:.0f}% | {100 * result['beyond'][str(percent)]:.0f}% | "
        f"{100 * result['error'][str(percent)]:.0f}% |"
        for percent, asked in ASKED.items()
    ]
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
