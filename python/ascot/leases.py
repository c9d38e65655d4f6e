"""Leases: the time for which an open object, and all that reads from it, uses its memory.

```text
  View, Index ─▶ Lease ◀─ files and iterators of the object
                   └────▶ StreamEnd of each stream of batches, which a library may read
```
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import ClassVar, Generic, Self, TypeVar

from ascot._native import BatchStream, StreamEnd
from ascot.batches import Batches
from ascot.errors import InvalidRequest
from ascot.sources import PathLike

__all__ = ["Lease", "Leased"]

Native = TypeVar("Native")


class Lease:
    """Ends when the object that was opened has been closed, and its files and streams have been, too.

    Files hold the lease while they are open, and it knows the ends of streams. What is no longer used has let go of
    it as well.
    """

    __slots__ = ("__weakref__", "_streams")

    def __init__(self) -> None:
        self._streams: list[StreamEnd] = []

    def add(self, stream: StreamEnd) -> None:
        """Adds a stream of batches."""
        self._streams[:] = [one for one in self._streams if not one.is_over]
        self._streams.append(stream)

    def ending(self) -> Callable[[], bool]:
        """Tells whether it has ended."""
        holders, streams = weakref.ref(self), self._streams
        return lambda: holders() is None and all(one.is_over for one in streams)


class Leased(Generic[Native]):
    """An object that was opened from `path`, and holds a lease until it is closed."""

    __slots__ = ("_lease", "_native", "path")
    _noun: ClassVar[str]

    path: str

    def __init__(self, path: PathLike, native: Native) -> None:
        self.path = os.fspath(path)
        self._native: Native | None = native
        self._lease: Lease | None = Lease()

    def _ending(self) -> Callable[[], bool]:
        """Tells whether the object, its files and its streams are closed or no longer used."""
        return (lambda: True) if self._lease is None else self._lease.ending()

    def _batches(self, stream: BatchStream) -> Batches:
        """A stream of batches of the object."""
        if self._lease is not None:
            self._lease.add(stream.end())
        return Batches(stream)

    def _open(self) -> Native:
        if self._native is None:
            raise InvalidRequest(f"the {self._noun} {self.path} is closed")
        return self._native

    def close(self) -> None:
        """Closes the object."""
        self._native = self._lease = None

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
