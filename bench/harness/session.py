"""One bench session: the options, the working directory, and how each workload is measured.

The working directory holds `data/` (kept, see `data.Store`) and `run/` (outputs, spills, logs: removed after
each run and at the end, also after Ctrl-C). A lock keeps two sessions out of one directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import contenders, limit, rounds, special
from .data import KINDS, DataSet, NotEnoughDisk, Store
from .rounds import Plan, Rounds
from .units import GB, GIB, MIB, decimal

SPARE = 512 * MIB
"""What every cgroup allows beyond the memory option: for code, stacks and the page cache."""

SCRATCH = 4.0
"""Bytes of output and spills a comparison may need for each byte of input (the greediest peer's)."""

_ROUND = 100_000_000
"""Tuning sizes are whole multiples of this, so that they read well and suit every row length."""

SORTS = ("records", "u64", "lines", "lines-key", "csv")
WORKLOADS = ("limit", *SORTS, "memory", "tight", "startup", "scaling")


@dataclass
class Options:
    """The workloads and directories of a session."""

    workloads: list[str]
    size: int
    memory: int
    repeats: int
    repeat_within: float | None
    quick: bool
    only: list[str]
    directory: Path
    disk_cap: int
    ascot: list[str]
    use_cgroup: bool
    large: int
    threads: int

    @property
    def memory_size(self) -> int:
        """Bytes of the workload that fits in memory."""
        return GB // 4 if self.quick else GB

    @property
    def memory_option(self) -> int:
        """Its memory option."""
        return GIB if self.quick else 4 * GIB

    @property
    def tight(self) -> int:
        """Ascot's memory where it gets a sixteenth."""
        return max(self.memory // 16, 16 * MIB)


class Session:
    """Measures workloads one after the other."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.work = options.directory / "run"
        self.store = Store(options.directory, options.disk_cap, options.ascot, self.say)
        self.keep: set[tuple[str, int]] = set()
        self.rounds = Rounds(self.work, self._data, self.say)

    @staticmethod
    def say(words: str) -> None:
        """Prints a line of progress."""
        print(f"bench: {words}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Session]:
        """Holds the lock and the working directory; empties the latter at the end."""
        self.options.directory.mkdir(parents=True, exist_ok=True)
        with (self.options.directory / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                sys.exit(f"bench: another bench runs in {self.options.directory}: wait, or give another --dir")
            self._clear()
            try:
                yield self
            finally:
                self._clear()

    def _clear(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True, exist_ok=True)

    def _data(self, kind: str, size: int) -> DataSet:
        return self.store.ensure(kind, size, self.keep)

    def shown(self, text: str) -> str:
        """`text` without this machine's paths."""
        places = {
            str(self.work): "RUN",
            str(self.store.root): "DATA",
            contenders.PYTHON: "python",
            str(contenders.BENCH): "bench",
            " ".join(self.options.ascot): "ascot",
            str(Path.home()): "HOME",
        }
        for place in sorted(places, key=len, reverse=True):
            text = text.replace(place, places[place])
        return re.sub(r"(?<![\w./])/(?:[\w.+-]+/)+(?=[\w.+-])", "", text)

    def contenders(self, kind: str) -> list[contenders.Contender]:
        """The requested programs that can do a kind of sort."""
        everybody = contenders.everybody(self.options.ascot)
        wanted = {name.lower().replace(" ", "") for name in self.options.only}
        return [
            one
            for one in everybody
            if kind in one.formats and (not wanted or one.name.lower().replace(" ", "") in wanted)
        ]

    def plan(self, workload: str) -> Plan:
        """The comparison of a workload."""
        o = self.options
        kind = workload if workload in SORTS else "lines"
        size, memory = o.size, o.memory
        tuning = max(o.size // 4, min(o.size, 2 * o.memory))
        tuning = min(o.size, -(-tuning // _ROUND) * _ROUND)
        memory_of: dict[str, int] = {}
        if workload == "memory":
            size = tuning = o.memory_size
            memory = o.memory_option
        if workload == "tight":
            memory_of = {"Ascot": o.tight}
        return Plan(
            kind=kind, size=size, tuning_size=tuning, memory=memory, spare=SPARE if o.use_cgroup else None,
            threads=o.threads, repeats=o.repeats, repeat_within=o.repeat_within,
            contenders=self.contenders(kind), memory_of=memory_of,
        )  # fmt: skip

    def datasets(self, plan: Plan) -> set[tuple[str, int]]:
        """The data a comparison reads."""
        kinds = {one.formats[plan.kind] for one in plan.contenders}
        kinds |= {KINDS[kind].source for kind in kinds if KINDS[kind].source}
        return {(kind, size) for kind in kinds for size in (plan.size, plan.tuning_size)}

    def need(self, workload: str) -> int:
        """Bytes of disk a workload takes at its peak."""
        if workload == "limit":
            return limit.disk(self.options.quick)
        if workload == "startup":
            return MIB
        if workload == "scaling":
            return self.options.large * 102 // 100
        plan = self.plan(workload)
        return int(sum(size for _, size in self.datasets(plan)) * 1.02 + SCRATCH * plan.size)

    def measure(self, workload: str) -> dict[str, Any]:
        """One workload's part of the result; `skipped` says why there is none."""
        self.say(f"{workload}: up to {decimal(self.need(workload))} of disk")
        try:
            if workload == "limit":
                return self._limit()
            if workload == "startup":
                return self._startup()
            if workload == "scaling":
                return self._scaling()
            return self._compare(workload)
        except NotEnoughDisk as error:
            self.say(f"  skipped: {error}")
            return {"skipped": f"not enough disk: {error}"}

    def _limit(self) -> dict[str, Any]:
        reason = limit.missing()
        if reason:
            return {"skipped": reason}
        self.store.make_room(self.need("limit"), set())
        return limit.measure(self.work, self.options.quick, self.say)

    def _compare(self, workload: str) -> dict[str, Any]:
        plan = self.plan(workload)
        self.keep = self.datasets(plan)
        missing = [one for one in self.keep if self.store.find(*one) is None]
        scratch = int(SCRATCH * plan.size)
        self.store.make_room(sum(size for _, size in missing) * 102 // 100 + scratch, self.keep)
        for kind, size in sorted(missing):
            self.store.ensure(kind, size, self.keep)
        standings = self.rounds.compare(plan)
        return {
            "kind": plan.kind, "bytes": plan.size, "tuning_bytes": plan.tuning_size, "memory": plan.memory,
            "spare": plan.spare, "repeats": plan.repeats, "repeat_within": plan.repeat_within,
            "threads": plan.threads, "memory_of": plan.memory_of,
            "contenders": rounds.summary(plan, standings, self.shown),
        }  # fmt: skip

    def _startup(self) -> dict[str, Any]:
        entries = special.startup(self.work, self.options.ascot, 20 if self.options.quick else 100)
        for entry in entries:
            entry["command"] = self.shown(entry["command"])
            entry["error"] = self.shown(entry["error"])
            shown = f"{entry['median_s'] * 1000:.2f} ms" if entry["median_s"] else entry["error"]
            self.say(f"  {entry['name']}: {shown}")
        return {"contenders": entries}

    def _scaling(self) -> dict[str, Any]:
        o = self.options
        self.store.make_room(self.need("scaling"), set())
        limit_bytes = o.memory + SPARE if o.use_cgroup else None
        scaling = special.Scaling(self.work, o.ascot, o.memory, limit_bytes)
        found = scaling.both(o.size, o.large, o.repeats, self.say)
        for run in found["runs"]:
            run["command"], run["error"] = self.shown(run["command"]), self.shown(run["error"])
        return {"memory": o.memory, **found}
