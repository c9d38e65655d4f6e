"""The two rounds of a comparison: find each contender's best setting, then repeat, interleaved.

    tuning    every setting once, on a smaller size with the same memory; those that fail fall out
    repeats   round robin over the contenders, so that a slow minute of the machine hits everybody;
              a setting that fails on the full size hands over to the contender's next best one;
              who is far behind after the first round may be spared the others (`Plan.repeat_within`)

Every output is checked (`oracle`). What a failed run said is part of the result.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import measure, oracle
from .contenders import Contender, Job, Setting
from .data import DataSet
from .measure import Outcome

SLOWEST = 20
"""A contender may take this many times Ascot's time."""
LEAST_TIMEOUT_S = 60.0
"""And at least this long, because a JVM takes seconds to start."""
PATIENCE_BYTES_PER_S = 5e6
"""The rate below which a run is stopped if Ascot has no time."""


@dataclass
class Plan:
    """A comparison: job, programs and repetitions."""

    kind: str
    size: int
    tuning_size: int
    memory: int
    spare: int | None
    """Bytes of the cgroup beyond the memory option, including page cache; None runs without a cgroup."""
    threads: int
    repeats: int
    contenders: list[Contender]
    repeat_within: float | None = None
    """Programs that take more than this multiple of Ascot's time run once, except the best of them."""
    memory_of: dict[str, int] = field(default_factory=dict)
    """Contenders that get another memory option than `memory`."""

    def memory_for(self, contender: Contender) -> int:
        """The memory option a contender is given."""
        return self.memory_of.get(contender.name, self.memory)

    def limit_for(self, contender: Contender) -> int | None:
        """The cgroup limit a contender runs under."""
        return None if self.spare is None else self.memory_for(contender) + self.spare


@dataclass
class Attempt:
    """A run of a setting."""

    setting: Setting
    outcome: Outcome
    size: int


@dataclass
class Standing:
    """The state of a contender in a comparison."""

    contender: Contender
    tuning: list[Attempt] = field(default_factory=list)
    runs: list[Attempt] = field(default_factory=list)
    failures: list[Attempt] = field(default_factory=list)
    unavailable: str = ""

    def ranked(self) -> list[str]:
        """Names of the remaining settings, best first."""
        gone = {attempt.setting.name for attempt in self.failures}
        good = [attempt for attempt in self.tuning if attempt.outcome.ok and attempt.setting.name not in gone]
        return [attempt.setting.name for attempt in sorted(good, key=lambda a: a.outcome.seconds)]

    def counted(self) -> list[Outcome]:
        """The successful runs of the final setting."""
        best = self.ranked()
        return [run.outcome for run in self.runs if best and run.setting.name == best[0]]

    def median(self) -> float | None:
        """The median time of the counted runs."""
        times = [outcome.seconds for outcome in self.counted()]
        return statistics.median(times) if times else None


class Rounds:
    """Runs comparisons in one working directory."""

    def __init__(
        self,
        work: Path,
        data: Callable[[str, int], DataSet],
        say: Callable[[str], None],
        check: Callable[[str, Path, oracle.Sum], str] = oracle.verify,
    ) -> None:
        self.work = work
        self.data = data
        self.say = say
        self.check = check

    def compare(self, plan: Plan) -> list[Standing]:
        """Both rounds; the standings in the contenders' order."""
        standings = [Standing(contender, unavailable=contender.missing()) for contender in plan.contenders]
        present = [standing for standing in standings if not standing.unavailable]
        reference: float | None = None
        for standing in present:
            self._tune(plan, standing, reference)
            if standing.contender.name == "Ascot":
                reference = min((a.outcome.seconds for a in standing.tuning if a.outcome.ok), default=None)
        for repeat in range(plan.repeats):
            going = present if repeat == 0 else self._worth_repeating(plan, present)
            turn = repeat % max(1, len(going))
            for standing in going[turn:] + going[:turn]:
                self._repeat(plan, standing, present)
        return standings

    @staticmethod
    def _worth_repeating(plan: Plan, present: list[Standing]) -> list[Standing]:
        ascot = next((s.median() for s in present if s.contender.name == "Ascot"), None)
        if plan.repeat_within is None or ascot is None:
            return present
        times = {s.contender.name: median for s in present if (median := s.median()) is not None}
        best = min((time for name, time in times.items() if name != "Ascot"), default=ascot)
        most = max(best, plan.repeat_within * ascot)
        return [s for s in present if times.get(s.contender.name, 0.0) <= most]

    def _tune(self, plan: Plan, standing: Standing, reference: float | None) -> None:
        settings = self._settings(plan, standing.contender, plan.tuning_size)
        for setting in settings:
            attempt = self._run(plan, standing, setting, plan.tuning_size, reference)
            standing.tuning.append(attempt)

    def _repeat(self, plan: Plan, standing: Standing, present: list[Standing]) -> None:
        ascot = next((s.median() for s in present if s.contender.name == "Ascot"), None)
        while best := standing.ranked():
            settings = self._settings(plan, standing.contender, plan.size)
            setting = next(s for s in settings if s.name == best[0])
            attempt = self._run(plan, standing, setting, plan.size, ascot)
            if attempt.outcome.ok:
                standing.runs.append(attempt)
                return
            standing.failures.append(attempt)

    def _settings(self, plan: Plan, contender: Contender, size: int) -> list[Setting]:
        data = self.data(contender.formats[plan.kind], size)
        output = self.work / f"output{data.path.suffix}"
        return contender.settings(
            Job(plan.kind, data.path, output, self.work / "temp", plan.memory_for(contender), plan.threads)
        )

    def _run(self, plan: Plan, standing: Standing, setting: Setting, size: int, ascot: float | None) -> Attempt:
        contender = standing.contender
        data = self.data(contender.formats[plan.kind], size)
        output, temp = self.work / f"output{data.path.suffix}", self.work / "temp"
        self.clean()
        temp.mkdir(parents=True)
        timeout = max(LEAST_TIMEOUT_S, SLOWEST * ascot if ascot else size / PATIENCE_BYTES_PER_S)
        log = self.work / "log.txt"
        limit = plan.limit_for(contender)
        outcome = measure.run(setting.command, limit=limit, volume=self.work, timeout=timeout, log=log)
        if outcome.ok:
            outcome.error = self.check(data.kind, output, data.expected)
        word = f"{size / outcome.seconds / 1e6:.0f} MB/s" if outcome.ok else outcome.error
        self.say(f"  {contender.name} [{setting.name}]: {outcome.seconds:.1f} s, {word}")
        self.clean()
        return Attempt(setting, outcome, size)

    def clean(self) -> None:
        """Removes outputs and spills of the last run."""
        shutil.rmtree(self.work / "temp", ignore_errors=True)
        for output in self.work.glob("output*"):
            if output.is_dir():
                shutil.rmtree(output, ignore_errors=True)
            else:
                with contextlib.suppress(FileNotFoundError):
                    output.unlink()


def summary(plan: Plan, standings: list[Standing], shown: Callable[[str], str]) -> list[dict[str, Any]]:
    """The standings as the result file holds them; `shown` takes paths out of command lines and messages."""
    ascot = next((s.median() for s in standings if s.contender.name == "Ascot"), None)
    return [_summarise(plan, standing, ascot, shown) for standing in standings]


def _summarise(plan: Plan, standing: Standing, ascot: float | None, shown: Callable[[str], str]) -> dict[str, Any]:
    def attempt(one: Attempt) -> dict[str, Any]:
        command = one.setting.command
        line = " ".join([*(f"{k}={v}" for k, v in command.env.items()), *command.argv])
        measured = {**one.outcome.as_dict(), "error": shown(one.outcome.error)}
        return {"setting": one.setting.name, "command": shown(line), "bytes": one.size, **measured}

    counted, median = standing.counted(), standing.median()
    entry: dict[str, Any] = {
        "name": standing.contender.name,
        "version": standing.contender.version() if not standing.unavailable else "",
        "unavailable": standing.unavailable,
        "format": standing.contender.formats[plan.kind],
        "memory": plan.memory_for(standing.contender),
        "cgroup": plan.limit_for(standing.contender),
        "tuning": [attempt(one) for one in standing.tuning],
        "runs": [attempt(one) for one in standing.runs],
        "failures": [attempt(one) for one in standing.failures],
        "median_s": median,
    }
    if median is None:
        return entry
    middle = min(counted, key=lambda outcome: abs(outcome.seconds - median))
    entry |= {
        "setting": standing.ranked()[0],
        "counted": len(counted),
        "min_s": min(outcome.seconds for outcome in counted),
        "max_s": max(outcome.seconds for outcome in counted),
        "mb_per_s": plan.size / median / 1e6,
        "times_ascot": median / ascot if ascot else None,
        "bytes_read": middle.device_read if middle.device_read is not None else middle.process_read,
        "bytes_written": middle.device_written if middle.device_written is not None else middle.process_written,
        "peak_cgroup": max(outcome.peak_cgroup for outcome in counted),
        "peak_memory": max(outcome.peak_anon or outcome.max_resident for outcome in counted),
    }
    return entry
