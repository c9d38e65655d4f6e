"""The requests of a user of the live page: to stop a job, to exclude a node, to resume or to start a job, and to
measure a cluster.

A job or a measurement that is started here runs in a process of its own (`python -m ascot.cluster.control`), which
outlives the page; the page shows the end of what it prints, and the rows that were measured.

Invariant: a request is checked whole before anything is done, and its answer is a sentence for the user.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from threading import Lock
from typing import Any, BinaryIO

from ascot.cluster import live, measured
from ascot.cluster.objects import is_url
from ascot.cluster.watching import ask

__all__ = ["Control", "Refused"]

STARTED_KEPT = 20
TAIL_BYTES = 4000


class Refused(Exception):
    """A request that cannot be done; the text says why."""


@dataclass(slots=True)
class Started:
    """A process that was started from the page."""

    number: int
    title: str
    process: subprocess.Popen[bytes]
    output: BinaryIO
    # The rows of a measurement; None for a job.
    result: BinaryIO | None = None

    def state(self) -> str:
        """Whether it runs, or how it ended."""
        status = self.process.poll()
        return "running" if status is None else "done" if status == 0 else f"failed with status {status}"

    def tail(self) -> str:
        """The end of what it printed."""
        descriptor = self.output.fileno()
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, TAIL_BYTES, max(0, size - TAIL_BYTES)).decode(errors="replace").strip()

    def shown(self) -> str:
        """Its part of the page."""
        state = self.state()
        head = f"<h3>{escape(self.title)}: {escape(state)}</h3>\n<pre>{escape(self.tail())}</pre>\n"
        if self.result is None or state != "done":
            return head
        return head + measured.table_of_result(f"measured-{self.number}", self.title, self.result.fileno())

    def close(self) -> None:
        """Closes its files when it is no longer shown."""
        self.output.close()
        if self.result is not None:
            self.result.close()


class Control:
    """Does the requests."""

    def __init__(self, directories: Sequence[str]) -> None:
        self._directories = directories
        self._started: list[Started] = []
        self._count = 0
        self._lock, self._measuring = Lock(), Lock()
        self._requests: dict[str, Callable[[dict[str, str]], str]] = {
            "stop": self._stop,
            "exclude": self._exclude,
            "resume": self._resume,
            "start": self._start,
            "diskbench": lambda fields: self._measure("diskbench", fields),
            "netbench": lambda fields: self._measure("netbench", fields),
        }

    def do(self, name: str, fields: Any) -> str:
        """Does a request; returns what was done. Raises Refused."""
        known = self._requests.get(name)
        if known is None:
            raise Refused(f"there is no request {name!r}")
        if not isinstance(fields, dict) or not all(isinstance(one, str) for pair in fields.items() for one in pair):
            raise Refused("a request is an object whose values are texts")
        return known(fields)

    def _job(self, fields: dict[str, str]) -> live.Job:
        job = live.find(fields.get("job", ""), self._directories)
        if job is None:
            raise Refused("there is no such job")
        return job

    def _running(self, fields: dict[str, str]) -> live.Job:
        job = self._job(fields)
        if not job.runs:
            raise Refused(f"the job does not run: it is {job.state}")
        return job

    def _stop(self, fields: dict[str, str]) -> str:
        job = self._running(fields)
        ask(job.directory, "stop")
        return "The job was asked to stop."

    def _exclude(self, fields: dict[str, str]) -> str:
        job, node = self._running(fields), fields.get("node", "")
        nodes = job.status["nodes"] if job.status is not None else []
        live_ones = [one["name"] for one in nodes if one["state"] != "excluded"]
        if node not in live_ones:
            raise Refused(f"the job has no node {node!r}")
        if len(live_ones) == 1:
            raise Refused("this is the last node of the job: stop the job instead")
        ask(job.directory, "exclude", node=node)
        return f"The job was asked to exclude {node}."

    def _resume(self, fields: dict[str, str]) -> str:
        job = self._job(fields)
        if not job.is_kept:
            raise Refused(f"the job cannot be resumed: it is {job.state}")
        if job.kind != "sort":
            raise Refused("the functions of map_reduce are not stored: resume it in a program (ascot.cluster.resume)")
        self._run(f"resume {job.output}", "resume", {"job": job.directory})
        return "The job is being resumed; the page of all jobs shows what it prints."

    def _start(self, fields: dict[str, str]) -> str:
        inputs = [line.strip() for line in fields.get("inputs", "").splitlines() if line.strip()]
        output = fields.get("output", "").strip()
        if not inputs or not output:
            raise Refused("name the inputs and the output")
        relative = [name for name in (*inputs, output) if not (os.path.isabs(name) or is_url(name))]
        if relative:
            name = "Output" if relative[0] == output else "Inputs"
            raise Refused(f"{name}: {relative[0]}: give whole paths, from / on, or URLs")
        wanted: dict[str, Any] = {"inputs": inputs, "output": output, "layout": fields.get("layout", "lines")}
        if wanted["layout"] == "fixed":
            try:
                wanted |= {name: int(fields.get(name, "")) for name in ("length", "start", "stop")}
            except ValueError:
                raise Refused("the length of a record and the bytes of its key are whole numbers") from None
        for name, argument in (("address", "address"), ("memory", "memory_per_node")):
            if fields.get(name, "").strip():
                wanted[argument] = fields[name].strip()
        self._run(f"sort to {output}", "sort", wanted)
        return "The job is being started."

    def _measure(self, call: str, fields: dict[str, str]) -> str:
        wanted, name = measured.wanted_of(call, fields), measured.NAMES[call]
        # Two requests at the same time start one measurement.
        with self._measuring:
            with self._lock:
                running = [
                    one.title for one in self._started if one.result is not None and one.process.poll() is None
                ]
            if running:
                raise Refused(f"{running[0]} is running, and a second measurement would disturb it: wait for its end")
            self._run(f"{name} on {wanted['address']}", call, wanted)
        return f"{name} is being started; its result is shown below."

    def _run(self, title: str, call: str, wanted: dict[str, Any]) -> None:
        # Both are closed when they are no longer shown.
        output = tempfile.TemporaryFile()  # noqa: SIM115
        result = tempfile.TemporaryFile() if call in measured.NAMES else None  # noqa: SIM115
        passed = () if result is None else (result.fileno(),)
        process = subprocess.Popen(
            [sys.executable, "-m", "ascot.cluster.control"], pass_fds=passed,
            stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        if process.stdin is not None:
            with process.stdin as pipe:
                pipe.write(json.dumps({"call": call, "arguments": wanted, "result": [*passed]}).encode())
        with self._lock:
            self._count += 1
            self._started = [Started(self._count, title, process, output, result), *self._started]
            for old in self._started[STARTED_KEPT:]:
                old.close()
            del self._started[STARTED_KEPT:]

    def started(self) -> str:
        """The processes that were started, as a part of the page."""
        with self._lock:
            return "".join(one.shown() for one in self._started)


def main() -> int:
    """Makes the call that standard input describes, and prints its report."""
    import ascot
    import ascot.cluster
    from ascot.errors import AscotError

    asked = json.load(sys.stdin)
    wanted: dict[str, Any] = asked["arguments"]
    try:
        if asked["call"] in measured.NAMES:
            print(measured.measure(asked["call"], wanted, asked["result"][0]))
            return 0
        if asked["call"] == "resume":
            print(ascot.cluster.resume(**wanted, progress=None))
            return 0
        layout: Any = wanted.pop("layout")
        if layout == "fixed":
            length, start, stop = (wanted.pop(name) for name in ("length", "start", "stop"))
            layout = ascot.Fixed(length, key=slice(start, stop))
        print(ascot.cluster.sort(**wanted, layout=layout, progress=None))
    except (AscotError, ImportError, OSError, TypeError, ValueError) as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
