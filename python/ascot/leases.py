"""Leases: the time for which an open object, and all that reads from it, uses its memory."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import ClassVar, Generic, Self, TypeVar

from ascot.errors import InvalidRequest
from ascot.sources import PathLike

__all__ = ["Lease", "Leased"]

Native = TypeVar("Native")


class Lease:
    """Ends when the object that was opened has been closed, and its files and streams have been, too.

    Each of them holds the lease while it is open. What is no longer used has let go of it as well.
    """

    __slots__ = ("__weakref__",)

    def when_ended(self, act: Callable[[], object]) -> None:
        """Calls `act` at the end."""
        weakref.finalize(self, act)


class Leased(Generic[Native]):
    """An object that was opened from `path`, and holds a lease until it is closed."""

    __slots__ = ("_lease", "_native", "path")
    _noun: ClassVar[str]

    path: str

    def __init__(self, path: PathLike, native: Native) -> None:
        self.path = os.fspath(path)
        self._native: Native | None = native
        self._lease: Lease | None = Lease()

    def _when_ended(self, act: Callable[[], object]) -> None:
        """Calls `act` once the object, its files and its streams are closed or no longer used."""
        if self._lease is None:
            act()
        else:
            self._lease.when_ended(act)

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
