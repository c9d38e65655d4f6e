"""How often each chunk and partition failed, and why: what keeps failing ends the job with the cause and the place.

Two kinds of failures are told apart. A process that ended or a connection that broke counts against the chunk or the
partition, since the next attempt may end the same way. Bytes that were damaged, or lost with a node, are made again
elsewhere: that is progress, and only an absurd number of them ends the job.
"""

from __future__ import annotations

from ascot import errors
from ascot.cluster.manifest import Span

__all__ = ["Attempts"]

# What fails so often is not tried again: for a reason of its own, or because its bytes were damaged.
FAILURES_MAX = 6
DAMAGES_MAX = 60
CONNECTIONS = (
    "let nodes open connections to all ports of each other, or send records by calls of Ray (transport='ray')"
)
PROCESSES = (
    "the processes that worked on it ended: look at the logs of Ray (/tmp/ray/session_latest/logs), and whether the "
    "nodes have enough memory"
)
DISKS = "look at the disks and the network of the nodes: bytes arrive there that were not sent"


class Attempts:
    """The attempts of a job that failed."""

    def __init__(self, spans: list[Span]) -> None:
        self._spans = spans
        self._failures: dict[tuple[str, int], int] = {}
        self._damages: dict[tuple[str, int], int] = {}

    def count(self, kind: str, number: int) -> int:
        """How often a chunk or partition was tried in vain."""
        return self._failures.get((kind, number), 0) + self._damages.get((kind, number), 0)

    def failed(self, kind: str, number: int, reason: str, *, is_connection: bool = False) -> None:
        """A process or a connection failed. Raises AscotError, with this reason, if it was one time too often."""
        count = self._failures[kind, number] = self._failures.get((kind, number), 0) + 1
        if count >= FAILURES_MAX:
            raise self._error(kind, number, count, reason, CONNECTIONS if is_connection else PROCESSES)

    def damaged(self, kind: str, number: int, reason: str) -> None:
        """Bytes were damaged or lost, and are made again."""
        count = self._damages[kind, number] = self._damages.get((kind, number), 0) + 1
        if count >= DAMAGES_MAX:
            raise self._error(kind, number, count, reason, DISKS)

    def _error(self, kind: str, number: int, count: int, reason: str, advice: str) -> errors.AscotError:
        place = f"{kind} {number}"
        if kind == "chunk":
            span = self._spans[number]
            place += f" ({span.path}, bytes {span.start} to {span.end})"
        return errors.AscotError(f"{place} failed {count} times: {reason}\n  {advice}")
