"""How the batches of a chunk get from a worker to the writers of their destinations.

Invariants: at most WINDOW batches for a destination have no answer. `send` returns when every batch has an answer or
its destination failed, and keeps nothing of the chunk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from time import monotonic
from typing import Any, Protocol

from ascot.errors import AscotError

__all__ = ["Mapper", "RayCalls", "Sent", "Target", "Transport"]

WINDOW = 2

# A destination, its partitions, and the writer that has it.
Target = tuple[int, list[int], Any]


class Mapper(Protocol):
    """What makes batches of chunks."""

    def run(
        self, number: int, span: dict[str, Any], targets: list[tuple[int, list[int]]], skip: Container[int]
    ) -> Iterator[tuple[int, bytes]]:
        """The batches of a chunk, each with its destination, except those for destinations in `skip`."""


@dataclass(slots=True)
class Sent:
    """What was sent of a chunk: bytes, batches that the writers had already, the fault of each destination that
    failed, and the seconds in which the worker waited."""

    bytes: int = 0
    repeated: int = 0
    failed: dict[int, BaseException] = field(default_factory=dict)
    blocked: float = 0.0


class Transport(Protocol):
    """Sends the batches of a chunk."""

    def send(
        self, mapper: Mapper, number: int, span: dict[str, Any], targets: list[Target], look: Callable[[], None]
    ) -> Sent:
        """Maps chunk `number` and sends its batches to `targets`; calls `look` while there is a batch in memory."""


class RayCalls:
    """Each batch is a call of the writer's actor, and travels through the object stores of both nodes."""

    def __init__(self, in_flight: int) -> None:
        self._ray: Any = import_module("ray")
        # Batches without an answer at most, of all destinations.
        self._in_flight = in_flight

    def send(
        self, mapper: Mapper, number: int, span: dict[str, Any], targets: list[Target], look: Callable[[], None]
    ) -> Sent:
        """Maps a chunk and sends its batches."""
        sent = Sent()
        writers = {destination: writer for destination, _, writer in targets}
        wanted = [(destination, partitions) for destination, partitions, _ in targets]
        # Answers to come: for each destination, and all of them, the oldest first.
        waiting: dict[int, deque[Any]] = {destination: deque() for destination in writers}
        everyone: deque[tuple[int, Any]] = deque()

        def take(destination: int, answer: Any) -> None:
            self._take(destination, answer, sent)
            waiting[destination].remove(answer)
            everyone.remove((destination, answer))

        for destination, batch in mapper.run(number, span, wanted, sent.failed):
            look()
            while len(waiting[destination]) >= WINDOW:
                take(destination, waiting[destination][0])
            while len(everyone) >= self._in_flight:
                take(*everyone[0])
            if destination in sent.failed:
                continue
            began = monotonic()
            answer = writers[destination].append.remote(destination, batch)
            sent.blocked += monotonic() - began
            sent.bytes += len(batch)
            waiting[destination].append(answer)
            everyone.append((destination, answer))
        while everyone:
            take(*everyone[0])
        return sent

    def _take(self, destination: int, answer: Any, sent: Sent) -> None:
        began = monotonic()
        try:
            new, error = self._ray.get(answer)
            sent.repeated += new is False
        except self._ray.exceptions.RayError as lost:
            new, error = None, lost
        sent.blocked += monotonic() - began
        if error is not None:
            # An exception of Ray may hold what another process cannot load.
            told = error if isinstance(error, AscotError) else ConnectionError(str(error).splitlines()[0])
            sent.failed.setdefault(destination, told)
