"""What the nodes of a job did in a phase, added up call by call."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from ascot.cluster.nodes import Node
from ascot.cluster.reports import NodeShare, Phase, Stage

__all__ = ["Shares"]

# The states of a worker that is at work in a call.
WORK = ("reading", "grouping", "sorting")
# Those of a writer: it writes to the page cache, or waits for its disks.
OF_WRITERS = ("writing", "disk")
# What the processes of nodes do in each phase.
STATES = {
    "sample": ("reading",),
    "map and shuffle": ("reading", "grouping", "blocked", "memory", *OF_WRITERS),
    "sort and reduce": ("sorting",),
}


@dataclass(slots=True)
class Shares:
    """What the nodes did in a phase."""

    began: float = field(default_factory=time.monotonic)
    bytes: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    # When the last call of each node ended, and what its writers wrote from the first to the last buffer.
    ended: dict[str, float] = field(default_factory=dict)
    written: dict[str, tuple[int, float]] = field(default_factory=dict)
    # What its writers appended, and in how many runs disks got it.
    appended: dict[str, tuple[int, int]] = field(default_factory=dict)
    # The seconds of the passes of sorts on each node, by their bottleneck.
    bounds: dict[str, dict[str, float]] = field(default_factory=dict)
    # The stages of sorts, whose threads are those of workers.
    stages: dict[str, list[float]] = field(default_factory=dict)

    def add(self, node: Node, size: int, **seconds: float) -> None:
        """Adds a call of a worker."""
        self.bytes[node.name] = self.bytes.get(node.name, 0) + size
        if size:
            self.ended[node.name] = time.monotonic() - self.began
        times = self.seconds.setdefault(node.name, {})
        for name, time_taken in seconds.items():
            times[name] = times.get(name, 0.0) + time_taken

    def add_written(self, node: Node, size: int, first_to_last: float, appended: tuple[int, int]) -> None:
        """Adds what the writers of a node wrote, the seconds from the first to the last buffer, the bytes that they
        appended, and how often disks turned to another file."""
        self.written[node.name] = (size, first_to_last)
        self.appended[node.name] = appended

    def add_passes(self, node: Node, passes: list[dict[str, Any]], **others: float) -> None:
        """Adds the stages of a sort, and the seconds of what was done with its result."""
        bounds = self.bounds.setdefault(node.name, {})
        for name, seconds in [*((one["bound_by"], one["seconds"]) for one in passes), *others.items()]:
            bounds[name] = bounds.get(name, 0.0) + seconds
        for stage in (stage for one in passes for stage in one["stages"]):
            if stage["name"] == "progress":
                continue
            times = self.stages.setdefault(stage["name"], [0.0] * 4)
            for at, name in enumerate(("busy", "waiting_input", "waiting_memory", "waiting_device")):
                times[at] += stage[f"{name}_seconds"]
        for name, seconds in others.items():
            if seconds:
                self.stages.setdefault(name, [0.0] * 4)[0] += seconds

    def phase(self, name: str, nodes: list[Node], job_began: float) -> Phase:
        """The phase until this moment, of a job that began at `job_began`."""
        elapsed = time.monotonic() - self.began
        shares = []
        for node in nodes:
            times = self.seconds.get(node.name, {})
            told = {state: times.get(state, 0.0) for state in STATES[name]}
            used = sum(value for state, value in told.items() if state not in OF_WRITERS)
            told["idle"] = max(0.0, elapsed * len(node.workers) - used)
            size, first_to_last = self.written.get(node.name, (0, 0.0))
            own = (self.bytes.get(node.name, 0), len(node.workers), told, self.ended.get(node.name, 0.0))
            written = (size, first_to_last, *self.appended.get(node.name, (0, 0)))
            shares.append(NodeShare(node.name, *own, *written, self.bounds.get(node.name, {})))
        stages = tuple(self._stages(name, shares, elapsed))
        return Phase(name, elapsed, sum(self.bytes.values()), tuple(shares), stages, self.began - job_began)

    def _stages(self, phase: str, shares: list[NodeShare], elapsed: float) -> list[Stage]:
        def whole(*states: str) -> float:
            return sum(share.seconds.get(state, 0.0) for share in shares for state in states)

        workers = sum(share.workers for share in shares)
        own = (whole(*WORK), whole("idle"), whole("blocked"), whole("memory"), 0.0)
        found = [Stage(phase, "workers", workers, *own)]
        if any("writing" in share.seconds for share in shares):
            writing, disk = whole("writing"), whole("disk")
            idle = max(0.0, elapsed * len(shares) - writing - disk)
            found.append(Stage(phase, "writers", len(shares), writing, idle, 0.0, 0.0, disk))
        for name, (busy, idle, memory, device) in self.stages.items():
            found.append(Stage(phase, name, workers, busy, idle, 0.0, memory, device))
        return found
