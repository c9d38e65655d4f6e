"""The destinations that chunks go to. A worker is told them once, not with each chunk: they are the same for nearly
all chunks, and as many as nodes.

Invariant: a worker knows the routes of a call before it gets the call, since its calls are in order.
"""

from __future__ import annotations

from typing import Any

from ascot.cluster.manifest import Progress

__all__ = ["Routes"]


class Routes:
    """The routes of a phase of mapping, until destinations change."""

    def __init__(self, ray: Any, done: Progress, writers: dict[int, Any]) -> None:
        self._ray, self._done, self._writers = ray, done, writers
        # The destinations of chunks that no destination has, rising.
        self.targets: tuple[int, ...] = ()
        self._shared: Any = None
        self._told: dict[Any, Any] = {}

    @property
    def changed(self) -> bool:
        """Whether destinations have changed since `find`."""
        return self._shared is None

    def change(self) -> None:
        """Destinations change, or their writers."""
        self._shared = None

    def find(self, needed: set[int]) -> None:
        """Finds the routes to the destinations that are needed."""
        self.targets, self._told = tuple(sorted(needed)), {}
        found = [self._done.destinations[number] for number in self.targets]
        self._shared = self._ray.put({one.number: (one.partitions, self._writers[one.number]) for one in found})

    def tell(self, worker: Any) -> None:
        """Tells a worker the routes, unless it knows them."""
        if worker not in self._told:
            self._told[worker] = worker.route.remote(self._shared)

    def of_chunk(self, chunk: int) -> tuple[int, ...]:
        """The destinations that lack a chunk and need it: `targets` itself if none has it."""
        if chunk not in self._done.chunks:
            return self.targets
        incomplete = self._done.incomplete
        if not incomplete:
            return ()
        return tuple(one for one in self.targets if one in incomplete and chunk in incomplete[one].missing)
