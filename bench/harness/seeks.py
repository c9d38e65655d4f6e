"""Requests of external sorts: the same sort by every program, its trace, the merge phase of it, replays of both.

A program sorts within `memory` bytes, and within a control group of `SPARE` more, as in `./dev bench sort`. The first
of its settings (`contenders.py`) that sorts the data is traced, and then timed without a trace. Every output is
checked. Traces are kept below the bench's directory. The result is written after each program, and a session with the
same options goes on where the one before stopped.

The array is the one of Stella and Loguinov, section VII: 24 disks in RAID-50. Its cache of 2 GB is scaled with the
data from their 8 GB, because a cache of 2 GB would hold half of 4 GiB.
"""

from __future__ import annotations

import json
import shlex
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import contenders, machine, measure, oracle, phase, seeks_page
from .contenders import BENCH, PYTHON, Contender, Job, Setting
from .data import DataSet, Store
from .measure import Command, Outcome
from .units import GB, MIB, decimal

KINDS = ("u64", "records", "lines")
SPARE = 512 * MIB
DISK = 64 * GB
TIMEOUT_SECONDS = 3600
ROW = {"u64": 8, "records": 100, "lines": 100}

ARRAY = """name = "24 disks in RAID-50"
read_bytes_per_s = 3.549e9
write_bytes_per_s = 3.549e9
switch_seconds = 0.0155
cache_bytes = {cache}
"""
FULL_CACHE, FULL_DATA = 2 * GB, 8 * GB

KEPT_FILES = 12
"""Files of each census that the result keeps, those with most bytes."""


@dataclass(frozen=True)
class Options:
    """What a session measures."""

    ascot: str
    directory: Path
    out: Path
    size: int
    memory: int
    repeats: int
    threads: int
    kinds: list[str]
    programs: list[str]
    keep_free: int
    replay_here: bool


@dataclass(frozen=True)
class Program:
    """A contender as it appears in the tables."""

    name: str
    contender: Contender
    own_trace: bool = False
    """It writes its trace itself; otherwise strace observes it."""
    at_disk: bool = False
    """The kernel's block tracepoints observe it (`--block`): requests below the page cache."""


class AscotOnArray(contenders.Ascot):
    """Ascot with the profile of the array, as a user of one runs it; or to whom the kernel offers no io_uring."""

    def __init__(self, program: list[str], profile: Path, *, calls: bool = False) -> None:
        super().__init__(program)
        self.profile = profile
        self.calls = calls

    def settings(self, job: Job) -> list[Setting]:
        (plain,) = super().settings(job)
        before = [PYTHON, str(contenders.PEERS / "without_uring.py")] if self.calls else []
        argv = [*before, *plain.command.argv, "--volume", str(self.profile)]
        return [Setting("profile of the array" + (", without io_uring" if self.calls else ""), Command(argv))]


def programs(ascot: str, profile: Path) -> list[Program]:
    """All programs, Ascot first."""
    peers = [
        contenders.GnuSort(), contenders.Stxxl(), contenders.ExtSort(), contenders.DuckDb(), contenders.Polars(),
        contenders.Spark(), contenders.Hadoop(),
    ]  # fmt: skip
    return [
        Program("Ascot", AscotOnArray([ascot], profile), own_trace=True),
        Program("Ascot, default profile", contenders.Ascot([ascot]), own_trace=True),
        Program("Ascot, by strace", AscotOnArray([ascot], profile, calls=True)),
        Program("Ascot, at the disk", AscotOnArray([ascot], profile), at_disk=True),
        Program("GNU sort, at the disk", contenders.GnuSort(), at_disk=True),
        *(Program(peer.name, peer) for peer in peers),
    ]


def output_file(output: Path) -> Path:
    """The file or directory that the oracle reads: Hadoop's only part, or the output itself."""
    part = output / "part-r-00000"
    return part if part.exists() else output


def _is_drawn(part: dict[str, Any]) -> bool:
    return part["census"]["files"] <= seeks_page.MOST_FILES


class Session:
    """One comparison; its state is the result, on disk after every program."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.say: Callable[[str], None] = lambda text: print(f"bench: {text}", flush=True)
        self.work = options.directory / f"seeks-{options.size}-{options.memory}"
        self.work.mkdir(parents=True, exist_ok=True)
        self.store = Store(options.directory, DISK, [options.ascot], self.say)
        self.profile = self.work / "array24.toml"
        cache = FULL_CACHE * options.size // FULL_DATA
        self.profile.write_text(ARRAY.format(cache=cache))
        self.no_cache = self.work / "array24-without-cache.toml"
        self.no_cache.write_text(ARRAY.format(cache=0))
        self.result = self._begun() or {
            "version": 1, "size": options.size, "memory": options.memory, "threads": options.threads,
            "cache_bytes": cache, "machine": machine.describe(options.directory), "runs": {},
        }  # fmt: skip

    def _begun(self) -> dict[str, Any] | None:
        path = self.options.out / "result.json"
        if not path.exists():
            return None
        found = json.loads(path.read_text())
        if (found["size"], found["memory"]) != (self.options.size, self.options.memory):
            raise SystemExit(f"bench: {path} has another size or memory: give another --out, or remove it")
        return found

    def run(self) -> dict[str, Any]:
        """Measures what the result does not have yet."""
        for kind in self.options.kinds:
            for program in programs(self.options.ascot, self.profile):
                if kind not in program.contender.formats or not self._wanted(program):
                    continue
                runs = self.result["runs"].setdefault(kind, {})
                if program.name not in runs:
                    self.say(f"{kind}: {program.name}")
                    runs[program.name] = self._measure(kind, program)
                    self._keep()
        return self.result

    def _wanted(self, program: Program) -> bool:
        return not self.options.programs or program.name in self.options.programs

    def _keep(self) -> None:
        self.options.out.mkdir(parents=True, exist_ok=True)
        text = self._neutral(json.dumps(self.result, indent=1))
        (self.options.out / "result.json").write_text(text + "\n")

    def _neutral(self, text: str) -> str:
        """Leaves out where the bench and its data lie."""
        places = ((self.work, "RUN"), (self.options.directory, "DATA"), (Path(self.options.ascot), "ascot"),
                  (PYTHON, "python3"), (BENCH, "bench"), (Path(sys.base_prefix), "PYTHON"))  # fmt: skip
        for place, name in places:
            text = text.replace(str(place), name)
        return text

    def _measure(self, kind: str, program: Program) -> dict[str, Any]:
        contender = program.contender
        entry: dict[str, Any] = {"version": contender.version(), "errors": []}
        if missing := contender.missing():
            return {**entry, "errors": [missing]}
        rows = self.options.size // ROW[kind] * ROW[kind]
        data = self.store.ensure(contender.formats[kind], rows, set())
        trace = self.trace(kind, program.name, "whole")
        for setting in contender.settings(self._job(kind, data)):
            outcome = self._sort(program, kind, setting, data, trace)
            if outcome.ok:
                seconds = [self._sort(program, kind, setting, data, None) for _ in range(self.options.repeats)]
                entry |= self._described(setting, seconds)
                entry |= self._studied(kind, program.name, trace)
                return entry
            entry["errors"].append(f"{setting.name}: {outcome.error}")
            self.say(f"  {entry['errors'][-1]}")
        return entry

    def _job(self, kind: str, data: DataSet) -> Job:
        o = self.options
        return Job(kind, data.path, self.work / "output", self.work / "temp", o.memory, o.threads)

    def trace(self, kind: str, name: str, part: str) -> Path:
        """Where a trace lies; its name is the heading of its column on the page."""
        path = self.work / part / kind / f"{name}.trace"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _clean(self) -> None:
        for left in (self.work / "output", self.work / "temp"):
            if left.is_dir():
                shutil.rmtree(left)
            left.unlink(missing_ok=True)

    def _sort(self, program: Program, kind: str, setting: Setting, data: DataSet, trace: Path | None) -> Outcome:
        """One run, its output checked; with a trace if a path is given."""
        self._clean()
        (self.work / "temp").mkdir()
        command = setting.command
        if trace and program.own_trace:
            command = Command([*command.argv, "--trace", str(trace)], command.env)
        elif trace:
            where = ["--block"] if program.at_disk else []
            argv = [self.options.ascot, "trace", "record", *where, "-o", str(trace), "--", *command.argv]
            command = Command(argv, command.env)
        log = self.work / "log"
        limit = self.options.memory + SPARE
        outcome = measure.run(command, limit=limit, volume=self.work, timeout=TIMEOUT_SECONDS, log=log)
        if outcome.ok:
            found = output_file(self.work / "output")
            outcome.error = oracle.verify(program.contender.formats[kind], found, data.expected)
        self._clean()
        self.say(f"  {'traced' if trace else 'timed'}: {outcome.error or f'{outcome.seconds:.1f} s'}")
        return outcome

    def _described(self, setting: Setting, timed: list[Outcome]) -> dict[str, Any]:
        right = [one.seconds for one in timed if one.ok]
        return {
            "setting": setting.name,
            "command": shlex.join(setting.command.argv),
            "seconds": [round(one, 2) for one in right],
            "sort_bytes_per_s": self.options.size / statistics.median(right) if right else None,
            "peak_anon": max((one.peak_anon for one in timed), default=0),
            "timed_errors": [one.error for one in timed if one.error],
        }

    def _studied(self, kind: str, name: str, whole: Path) -> dict[str, Any]:
        """The census and the replays of the whole trace and of its merge phase."""
        found: dict[str, Any] = {"whole": self._part(whole)}
        try:
            began = self._phase(whole)
        except phase.NoPhase as none:
            return {**found, "no_phase": str(none)}
        cut = self.trace(kind, name, "phase")
        self._ascot("trace", "cut", str(whole), "--from", f"{began.start_ns / 1e9:.9f}s", "-o", str(cut))
        found["phase_start_s"] = began.start_ns / 1e9
        found["spills"] = began.spills
        return {**found, "phase": self._part(cut)}

    def _phase(self, trace: Path) -> phase.Phase:
        argv = [self.options.ascot, "trace", "export", str(trace), "--csv", "-"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as export:
            assert export.stdout
            found = phase.find(export.stdout)
        if export.returncode:
            raise RuntimeError(f"ascot trace export failed with status {export.returncode}")
        return found

    def _part(self, trace: Path) -> dict[str, Any]:
        census = json.loads(self._ascot("trace", "show", str(trace), "--json"))
        census["by_file"] = [
            {key: value for key, value in file.items() if key != "run_lengths"}
            for file in census["by_file"][:KEPT_FILES]
        ]
        replays = {
            "array": self._replay(trace, self.profile, 1),
            "array_without_cache": self._replay(trace, self.no_cache, 1),
            "here": None,
        }
        if self.options.replay_here and self._has_room(census["peak_live_bytes"]):
            replays["here"] = self._replay(trace, self.work, max(1, self.options.repeats))
        return {"census": census, **replays}

    def _has_room(self, volume: int) -> bool:
        free = shutil.disk_usage(self.work).free
        if free >= volume + self.options.keep_free:
            return True
        self.say(f"  not replayed here: {decimal(volume)} needed, {decimal(free)} free")
        return False

    def _replay(self, trace: Path, where: Path, repeats: int) -> dict[str, Any]:
        words = ["--repeat", str(repeats)] if where.is_dir() else []
        return json.loads(self._ascot("trace", "replay", str(trace), "--on", str(where), *words, "--json"))

    def _ascot(self, *words: str) -> str:
        done = subprocess.run([self.options.ascot, *words], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"ascot {' '.join(words[:2])} failed: {done.stderr.strip()[-300:]}")
        return done.stdout

    def pages(self) -> dict[str, Path]:
        """Pages with the seek charts side by side, for each part of the job and kind of data."""
        made = {}
        for kind, runs in self.result["runs"].items():
            for part in seeks_page.PARTS:
                names = [
                    name for name in seeks_page.ordered(runs) if part in runs[name] and _is_drawn(runs[name][part])
                ]
                traces = [path for name in names if (path := self.trace(kind, name, part)).exists()]
                if traces:
                    made[f"{part}-{kind}"] = self._page(kind, part, traces)
        return made

    def _page(self, kind: str, part: str, traces: list[Path]) -> Path:
        page = self.work / f"{part}-{kind}.html"
        words = ["--data", f"{self.options.size}b", "--on", str(self.profile)]
        self._ascot("trace", "compare", *map(str, traces), *words, "-o", str(page))
        page.write_text(self._neutral(page.read_text()))
        return page
