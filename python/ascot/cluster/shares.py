"""What the nodes of a job did in a phase, added up call by call."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ascot.cluster.nodes import Node
from ascot.cluster.reports import NodeShare, Phase

__all__ = ["Shares"]


@dataclass(slots=True)
class Shares:
    """What the nodes did in a phase."""

    began: float = field(default_factory=time.monotonic)
    bytes: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, node: Node, size: int, **seconds: float) -> None:
        """Adds a call of a worker."""
        self.bytes[node.name] = self.bytes.get(node.name, 0) + size
        times = self.seconds.setdefault(node.name, {})
        for name, time_taken in seconds.items():
            times[name] = times.get(name, 0.0) + time_taken

    def phase(self, name: str, nodes: list[Node], states: tuple[str, ...]) -> Phase:
        """The phase, which has ended."""
        elapsed = time.monotonic() - self.began
        shares = []
        for node in nodes:
            times = self.seconds.get(node.name, {})
            told = {state: times.get(state, 0.0) for state in states}
            used = sum(value for state, value in told.items() if state != "writing")
            told["idle"] = max(0.0, elapsed * len(node.workers) - used)
            shares.append(NodeShare(node.name, self.bytes.get(node.name, 0), len(node.workers), told))
        return Phase(name, elapsed, sum(self.bytes.values()), tuple(shares))
