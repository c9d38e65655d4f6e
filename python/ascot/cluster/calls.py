"""The calls of workers without an answer, and the workers that may take the next one.

The work of the driver for a call does not grow with the number of workers: answers are taken together, all that are
there, and a worker without a call is offered work once, until something changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ascot import errors
from ascot.cluster.fleet import Fleet, first_line
from ascot.cluster.nodes import Node

__all__ = ["Call", "Calls"]

WAIT_SECONDS = 0.5


@dataclass(slots=True)
class Call:
    """A call of a worker without an answer yet: a chunk for these destinations, or a partition of a destination."""

    node: Node
    worker: Any
    number: int
    targets: tuple[int, ...] = ()


class Calls:
    """The calls of a phase."""

    def __init__(self, ray: Any, fleet: Fleet) -> None:
        self._ray, self._fleet = ray, fleet
        self._running: dict[Any, Call] = {}
        # Workers whose calls have ended since work was offered.
        self._ended: list[tuple[Node, Any]] = []
        self._changes = -1

    def __bool__(self) -> bool:
        return bool(self._running)

    def add(self, reference: Any, call: Call) -> None:
        """Adds a call that was made."""
        self._running[reference] = call

    def busy(self) -> set[Any]:
        """The workers that have not answered."""
        return {call.worker for call in self._running.values()}

    def numbers(self) -> set[int]:
        """The chunks or partitions of the calls."""
        return {call.number for call in self._running.values()}

    def idle(self) -> list[tuple[Node, Any]]:
        """The workers without a call to offer work to: those whose calls have ended since the last time, or all of
        them after a change."""
        ended, self._ended = self._ended, []
        if self._changes == self._fleet.changes:
            return ended
        self._changes, busy = self._fleet.changes, self.busy()
        return [(node, one) for node in self._fleet.nodes for one in node.workers if one not in busy]

    def offer_again(self) -> None:
        """There is work that idle workers were not offered."""
        self._changes = -1

    def finished(self) -> list[tuple[Call, Any]]:
        """Waits for an answer. Returns the calls that have ended, with their answers: None if the worker is lost."""
        ready, others = self._ray.wait(list(self._running), num_returns=1, timeout=WAIT_SECONDS)
        if ready and others:
            more, _ = self._ray.wait(others, num_returns=len(others), timeout=0)
            ready += more
        found = []
        for one in ready:
            call = self._running.pop(one)
            self._ended.append((call.node, call.worker))
            try:
                found.append((call, self._ray.get(one)))
            except self._ray.exceptions.RayTaskError as error:
                # The page of Ray, with the traceback, is the cause of the exception.
                raise errors.InternalError(f"node {call.node.name}: {first_line(error.cause or error)}") from error
            except self._ray.exceptions.RayError:
                found.append((call, None))
        return found
