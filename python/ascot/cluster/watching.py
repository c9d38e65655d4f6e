"""What a running job tells others, and what they may ask of it; both by files in the job directory.

    status.json        the state of the job, written about once a second by a thread of the driver
    request-*.json     a request: to stop, or to exclude a node; the driver removes it when it takes it

Who may write to the job directory may ask. The thread also collects the samples of the nodes.

Invariants: a file is whole or not there. Writing takes at most a twentieth of the time, however many nodes there are.
A fault of the thread never ends the job.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from glob import escape, glob
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any

from ascot import errors
from ascot._native import bytes_text
from ascot.cluster import registry
from ascot.cluster.fleet import Fleet
from ascot.cluster.limits import StalledCall
from ascot.cluster.manifest import JobDirectory
from ascot.cluster.nodes import Node
from ascot.cluster.reports import ClusterReport, Phase
from ascot.cluster.series import Series

__all__ = ["STATUS", "Watch", "ask"]

VERSION = 1
STATUS = "status.json"
REQUESTS = "request-*.json"
EVERY_SECONDS = 1.0
# More often at first: a short job has a few samples, too.
FIRST_SECONDS = 0.125
WRITING_SHARE = 0.05
ANSWER_SECONDS = 0.3
# The end of a job waits longer: what is not there then is not in the report.
LAST_ANSWER_SECONDS = 2.0
# A node that has not answered for so long is silent.
SILENT_SECONDS = 5.0
# A process that has not answered, or has not run, for so long may hang, and the driver looks at it.
HUNG_SECONDS = 60.0
# Samples of all nodes together, and the bounds for one of them.
SAMPLES_OF_ALL, SAMPLES_MIN, SAMPLES_MAX = 1 << 16, 64, 512
# Lines of the log: of chunks and parts, of which there are many, and of all other events.
LINES_OF_WORK, LINES_OF_EVENTS = 40, 200


def ask(directory: str, request: str, **details: str) -> None:
    """Asks the driver of the job in `directory`."""
    name = os.path.join(directory, f"request-{secrets.token_hex(8)}.json")
    registry.write_whole(name, {"request": request, **details})


class Watch:
    """Watches a job while it runs."""

    def __init__(self, ray: Any, fleet: Fleet, directory: JobDirectory, job: dict[str, Any]) -> None:
        self._ray, self._fleet, self._directory, self._job = ray, fleet, directory, job
        self.report: ClusterReport | None = None
        self._everyone = list(fleet.nodes)
        count = len(self._everyone)
        most = max(SAMPLES_MIN, min(SAMPLES_MAX, SAMPLES_OF_ALL // max(1, count)))
        self.series: dict[str, Series] = {node.name: Series(most) for node in self._everyone}
        self._answered = {node.name: time.monotonic() for node in self._everyone}
        # When the driver was told that a node is silent, and the processes of each node that have not run.
        self._told = dict(self._answered)
        self._still: dict[str, dict[int, float]] = {}
        # Calls of functions without progress on each node, and those that the log has.
        self._stalled: dict[str, list[StalledCall]] = {}
        self._logged: set[tuple[Any, ...]] = set()
        # How far the clock of each node is behind that of this process.
        self._apart: dict[str, float] = {}
        self._calls: dict[str, tuple[Node, Any, Any]] = {}
        self.began, self._began_at = time.monotonic(), time.time()
        self._progress: dict[str, Any] = {"phase": "start", "detail": "", "done_bytes": 0, "bytes_per_s": 0.0,
                                          "share": 0.0}  # fmt: skip
        self._phases: list[dict[str, Any]] = []
        self._current: dict[str, Any] | None = None
        self._looked = 0.0
        self._work: deque[tuple[float, str]] = deque(maxlen=LINES_OF_WORK)
        self._events: deque[tuple[float, str]] = deque(maxlen=LINES_OF_EVENTS)
        self._lost = 0
        self._lock, self._collecting, self._stop = Lock(), Lock(), Event()
        self._thread = Thread(target=self._run, name="ascot status", daemon=True)
        directory.on_event = self._take_event

    # ---------------------------------------------------------------- what the driver calls

    def __enter__(self) -> Watch:
        # Requests to an earlier run are no requests to this one.
        for name in self._requests():
            _remove(name)
        self._keep("running")
        self._write("running", "")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._directory.on_event = None
        told = "" if error is None else reason_of(error)
        if error is None:
            state = "finished"
        elif isinstance(error, errors.FunctionFailed):
            state = "failed"
        else:
            state = "interrupted"
        self._write(state, told)
        self._keep(state, told)

    def _keep(self, state: str, error: str = "") -> None:
        content = {
            "state": state,
            "error": error,
            "began": self._began_at,
            "changed": time.time(),
            "kind": self._job["kind"],
            "directory": self._directory.path,
            "output": self._job["output"],
            "log": self._log(),
            "report": self.report and self.report.to_json(),
        }
        registry.keep(self._job["job"], content)

    def progress(
        self, phase: str, done: int, rate: float, detail: str, share: float, now: Callable[[], Phase]
    ) -> None:
        """Takes in how far the job is; `now` gives the phase until this moment, once a second."""
        told = {"phase": phase, "detail": detail, "done_bytes": done, "bytes_per_s": rate, "share": share}
        due = time.monotonic() - self._looked >= EVERY_SECONDS
        current = now().to_json() if due else None
        with self._lock:
            self._progress = told
            if current is not None:
                self._looked, self._current = time.monotonic(), current

    def phase(self, phase: Phase) -> None:
        """Takes in a phase that has ended."""
        with self._lock:
            self._phases.append(phase.to_json())
            self._current = None
        self.event(f"{phase.name} ended: {bytes_text(phase.bytes)}, {bytes_text(phase.bytes_per_s)}/s")

    def last_series(self) -> dict[str, Series]:
        """The samples of all nodes up to this moment."""
        # Samples that were asked for before this moment may be on their way, and end before it.
        for _ in range(2):
            with suppress(Exception):
                self._collect(LAST_ANSWER_SECONDS, is_last=True)
        return self.series

    def event(self, text: str) -> None:
        """Adds a line to the log."""
        self._events.append((time.monotonic() - self.began, text))

    def asked_to_exclude(self) -> Iterator[Node]:
        """The nodes that users asked to exclude since the last call. Raises AscotError if they asked to stop."""
        for name in self._requests():
            request: Any = None
            with suppress(OSError, ValueError), open(name) as file:
                request = json.load(file)
            _remove(name)
            asked = request if isinstance(request, dict) else {}
            if asked.get("request") == "stop":
                raise errors.AscotError("the job was stopped by a request")
            wanted = asked.get("node")
            found = [node for node in self._fleet.nodes if wanted in (node.name, node.id)]
            if asked.get("request") != "exclude" or not found:
                self.event(f"a request was refused: {asked.get('request')} {wanted or ''}")
            elif len(self._fleet.nodes) == 1:
                self.event(f"a request was refused: {wanted} is the last node")
            else:
                yield found[0]

    def silent(self) -> list[Node]:
        """The nodes that have not answered for HUNG_SECONDS. One that stays silent is told again after as long."""
        now = time.monotonic()
        found = []
        for node in self._fleet.nodes:
            last = max(self._answered[node.name], self._told[node.name])
            if now - last >= HUNG_SECONDS:
                self._told[node.name] = now
                self.event(f"node {node.name} has not answered for {now - self._answered[node.name]:.0f} s")
                found.append(node)
        return found

    def stopped(self) -> list[tuple[Node, list[int]]]:
        """The processes of workers that have not run for HUNG_SECONDS, with their nodes."""
        found = []
        for node in self._fleet.nodes:
            still = self._still.get(node.name, {})
            if any(seconds >= HUNG_SECONDS for seconds in still.values()):
                found.append((node, [number for number, seconds in still.items() if seconds >= HUNG_SECONDS]))
                self._still[node.name] = {}
        return found

    def stalled(self) -> str:
        """The call of a function that has made no progress for the longest time, to follow other words; empty without
        one. The log has each call once. Raises FunctionFailed if it takes longer than it may."""
        live = {node.name for node in self._fleet.nodes}
        found = [(call, name) for name, calls in list(self._stalled.items()) if name in live for call in calls]
        for call, name in found:
            known = (name, call.function, call.file, call.offset, call.key)
            if known not in self._logged:
                self._logged.add(known)
                self.event(f"node {name}: {call.told()}")
        if not found:
            return ""
        longest, _ = max(found, key=lambda one: one[0].seconds)
        limit = self._job.get("function_timeout")
        if limit is not None and longest.seconds >= limit:
            raise longest.failure()
        return f"; {longest.told()}"

    def _requests(self) -> list[str]:
        return sorted(glob(os.path.join(escape(self._directory.path), REQUESTS)))

    def _take_event(self, event: dict[str, Any]) -> None:
        """Takes in a line of the journal."""
        kind, at = event["event"], time.monotonic() - self.began
        if kind == "chunk":
            size, places = bytes_text(event["bytes"]), sum(last - first + 1 for first, last in event["destinations"])
            self._work.append((at, f"chunk {event['number']} is mapped: {size}, to {_plural(places, 'destination')}"))
        elif kind == "spill":
            size, node = bytes_text(event["bytes"]), event["node"][:8]
            self._work.append((at, f"chunk {event['number']} is sorted: {size}, on node {node}"))
        elif kind == "spills lost":
            names = ", ".join(map(str, event["numbers"]))
            self.event(f"lost: chunk {names}; sorted again on the nodes that are left")
        elif kind == "part":
            self._work.append((at, f"part {event['number']} is complete: {bytes_text(event['file_bytes'])}"))
        elif kind == "destination":
            count = _plural(len(event["partitions"]), "partition")
            self.event(f"destination {event['number']} on node {event['node'][:8]} has {count}")
        elif kind == "lost":
            names = ", ".join(map(str, event["destinations"]))
            self.event(f"lost: destination {names}; other nodes get its partitions")
        elif kind == "part lost":
            self.event(f"part {event['number']} of an earlier run is gone; it is made again")
        elif kind == "committed":
            self.event("all parts are complete, and the output has its name")

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        every = pause = FIRST_SECONDS
        while not self._stop.wait(pause):
            began = time.monotonic()
            with suppress(Exception):
                self._collect()
            collected = time.monotonic()
            self._write("running", "")
            every = min(2 * every, EVERY_SECONDS)
            pause = max(every - (collected - began), (time.monotonic() - collected) / WRITING_SHARE)

    def _collect(self, seconds: float = ANSWER_SECONDS, is_last: bool = False) -> None:
        """Asks for samples, and takes in those that arrive within so long. The last ones end at this moment."""
        with self._collecting:
            self._ask_nodes(is_last)
            self._take_answers(seconds)

    def _ask_nodes(self, is_last: bool) -> None:
        for node in list(self._fleet.nodes):
            writer = node.writer
            if writer is not None and node.name not in self._calls:
                has_functions = self._job["kind"] == "map_reduce"
                call = writer.samples.remote(list(node.processes), is_last, has_functions)
                self._calls[node.name] = node, writer, call
        # A writer that was replaced because it hung may never answer.
        for name, (node, writer, _) in list(self._calls.items()):
            if node.writer is not writer:
                del self._calls[name]

    def _take_answers(self, seconds: float) -> None:
        if not self._calls:
            return
        waiting = [call for _, _, call in self._calls.values()]
        ready, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=seconds)
        for name, (node, _, call) in list(self._calls.items()):
            if call not in ready:
                continue
            del self._calls[name]
            with suppress(self._ray.exceptions.RayError):
                self._take(node, *self._ray.get(call))

    def _take(
        self, node: Node, now: float, rows: list[list[float]], still: dict[int, float], stalled: list[StalledCall]
    ) -> None:
        self._still[node.name], self._stalled[node.name] = still, stalled
        came = self._answered[node.name] = time.monotonic()
        # The answer that came fastest tells best how far the clocks are apart, also for the samples before it.
        before = self._apart.get(node.name, came - now)
        apart = self._apart[node.name] = min(came - now, before)
        series = self.series[node.name]
        with self._lock:
            series.shift(apart - before)
            for at, *values in rows:
                ended = max(at + apart - self.began, series.last().get("seconds", 0.0))
                series.add([ended, *values])

    # ---------------------------------------------------------------- the status

    def _log(self) -> list[list[Any]]:
        lost = list(self._fleet.lost)
        for name, reason in lost[self._lost :]:
            self.event(f"node {name} is excluded: {reason}")
        self._lost = len(lost)
        lines = sorted([*self._work.copy(), *self._events.copy()])
        return [[round(at, 1), text] for at, text in lines]

    def _nodes(self) -> list[dict[str, Any]]:
        reasons, live = dict(self._fleet.lost), {node.name for node in self._fleet.nodes}
        found = []
        for node in self._everyone:
            quiet = time.monotonic() - self._answered[node.name]
            state = "excluded" if node.name not in live else "silent" if quiet > SILENT_SECONDS else "live"
            told = {"name": node.name, "state": state, "reason": reasons.get(node.name, ""),
                    "quiet_seconds": round(quiet, 1), "workers": len(node.workers)}  # fmt: skip
            found.append({**told, "now": self.series[node.name].last()})
        return found

    def status(self, state: str, error: str) -> dict[str, Any]:
        """The state of the job as plain values (docs/formats/cluster.md)."""
        log = self._log()
        with self._lock:
            phases = [*self._phases, *([self._current] if self._current is not None else [])]
            series = {name: one.to_json() for name, one in self.series.items()}
            return {
                "version": VERSION,
                "job": self._job["job"],
                "kind": self._job["kind"],
                "state": state,
                "error": error,
                "output": self._job["output"],
                "total_bytes": sum(size for _, size, _ in self._job["inputs"]),
                "began": self._began_at,
                "written": time.time(),
                "driver": {"host": socket.gethostname(), "process": os.getpid()},
                **self._progress,
                "bound_by": self._current["bound_by"] if self._current is not None else "",
                "nodes": self._nodes(),
                "phases": phases,
                "series": series,
                "log": log,
            }

    def _write(self, state: str, error: str) -> None:
        # A full disk or a directory that is gone stops the display, not the job.
        with suppress(OSError):
            registry.write_whole(os.path.join(self._directory.path, STATUS), self.status(state, error))


def reason_of(error: BaseException) -> str:
    """Why a job has ended, for people.

    >>> reason_of(KeyboardInterrupt()), reason_of(errors.NoSpace("the disk is full")), reason_of(KeyError("a"))
    ('it was interrupted (Ctrl-C)', 'the disk is full', "KeyError: 'a'")
    """
    if isinstance(error, KeyboardInterrupt):
        return "it was interrupted (Ctrl-C)"
    if isinstance(error, SystemExit):
        return "its program was ended by a signal or by itself"
    return str(error) if isinstance(error, errors.AscotError) else f"{type(error).__name__}: {error}".rstrip(": ")


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _remove(name: str) -> None:
    with suppress(OSError):
        os.unlink(name)
