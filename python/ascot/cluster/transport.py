"""How the batches of a chunk get from a worker to the writers of their destinations.

    Connections   TCP from the memory of the worker to the files of the writer, in native code
    RayCalls      calls of the writer's actor, through the object stores of Ray

Invariants: at most `ahead` batches for a destination (a setting) have no answer. `send` returns when every batch has
an answer or its destination failed, and keeps nothing of the chunk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pickle import PickleBuffer
from time import monotonic
from typing import Any, Protocol

from ascot import _native
from ascot.cluster.sampling import doing
from ascot.cluster.settings import Settings, settings_of
from ascot.errors import AscotError, Damaged

__all__ = ["TRANSPORTS", "Mapper", "Sent", "Target", "Transport", "transport_of"]

TRANSPORTS = ("direct", "ray")

# The bytes of a batch.
Batch = bytes | memoryview

# A destination, its partitions, and its writer: the address and port at which it listens, or its actor.
Target = tuple[int, list[int], Any]


def transport_of(settings: dict[str, Any]) -> Transport:
    """The transport of a job."""
    in_flight: int = settings["shape"]["in_flight"]
    own = settings_of(settings)
    if settings["transport"] == "direct":
        return Connections(settings["secret"], in_flight, own)
    return RayCalls(in_flight, own.ahead)


class Mapper(Protocol):
    """What makes batches of chunks."""

    def read(self, span: dict[str, Any]) -> _native.ChunkMapper | None:
        """Reads a chunk whose batches native code can make; None if it must be asked for them."""

    def run(
        self, number: int, span: dict[str, Any], targets: list[tuple[int, list[int]]], skip: Container[int]
    ) -> Iterator[tuple[int, Batch]]:
        """The batches of a chunk, each with its destination, except those for destinations in `skip`. A batch may be
        in the memory of the next one."""


@dataclass(slots=True)
class Sent:
    """What was sent of a chunk: bytes, batches that the writers had already, the fault of each destination that
    failed, and the seconds in which the worker waited: `blocked`, of which `memory` for space in the object store."""

    bytes: int = 0
    repeated: int = 0
    failed: dict[int, BaseException] = field(default_factory=dict)
    blocked: float = 0.0
    memory: float = 0.0


class Transport(Protocol):
    """Sends the batches of a chunk."""

    def send(
        self, mapper: Mapper, number: int, span: dict[str, Any], targets: list[Target], look: Callable[[], None]
    ) -> Sent:
        """Maps chunk `number` and sends its batches to `targets`; calls `look` while there is a batch in memory."""


class RayCalls:
    """Each batch is a call of the writer's actor, and travels through the object stores of both nodes."""

    def __init__(self, in_flight: int, ahead: int) -> None:
        self._ray: Any = import_module("ray")
        self._ahead = ahead
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

        def take(destination: int, answer: Any, state: str = "blocked") -> None:
            with doing(state):
                self._take(destination, answer, sent)
            waiting[destination].remove(answer)
            everyone.remove((destination, answer))

        for destination, batch in mapper.run(number, span, wanted, sent.failed):
            look()
            while len(waiting[destination]) >= self._ahead:
                take(destination, waiting[destination][0])
            while len(everyone) >= self._in_flight:
                before = sent.blocked
                take(*everyone[0], "memory")
                sent.memory += sent.blocked - before
            if destination in sent.failed:
                continue
            began = monotonic()
            with doing("blocked"):
                # Ray copies the bytes of a buffer to the object store, and the writer reads them there.
                answer = writers[destination].append.remote(destination, PickleBuffer(batch))
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


class Connections:
    """Connections to writers. Batches of native mappers never become objects of Python."""

    def __init__(self, secret: bytes, in_flight: int, settings: Settings) -> None:
        self._sender = _native.BatchSender(secret, settings.ahead, settings.connections)
        # Batches of other mappers in memory at most.
        self._in_flight = in_flight

    def send(
        self, mapper: Mapper, number: int, span: dict[str, Any], targets: list[Target], look: Callable[[], None]
    ) -> Sent:
        """Maps a chunk and sends its batches."""
        sent = Sent()
        native = mapper.read(span)
        if native is not None:
            look()
            places = [(destination, partitions, *address) for destination, partitions, address in targets]
            self._take(sent, lambda: self._sender.send_chunk(native, number, places))
            return sent
        addresses = {destination: address for destination, _, address in targets}
        wanted = [(destination, partitions) for destination, partitions, _ in targets]
        waiting: dict[int, list[bytes]] = {}
        for destination, batch in mapper.run(number, span, wanted, sent.failed):
            waiting.setdefault(destination, []).append(bytes(batch))
            if sum(map(len, waiting.values())) >= self._in_flight:
                look()
                self._push(sent, waiting, addresses)
        look()
        self._push(sent, waiting, addresses)
        return sent

    def _push(self, sent: Sent, waiting: dict[int, list[bytes]], addresses: dict[int, tuple[str, int]]) -> None:
        targets = [(destination, *addresses[destination], batches) for destination, batches in waiting.items()]
        self._take(sent, lambda: self._sender.send_batches(targets))
        waiting.clear()

    def _take(self, sent: Sent, send: Callable[[], tuple[int, int, list[tuple[int, str, str]]]]) -> None:
        began = monotonic()
        with doing("blocked"):
            size, repeated, failed = send()
        sent.blocked += monotonic() - began
        sent.bytes += size
        sent.repeated += repeated
        for destination, kind, text in failed:
            sent.failed[destination] = _fault(kind, text)


def _fault(kind: str, text: str) -> BaseException:
    if kind == "lost":
        return ConnectionError(text)
    return Damaged(text) if kind == "damaged" else AscotError(text)
