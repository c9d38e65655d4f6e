"""Leases: the time for which an open object, and all that reads from it, uses its memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable

__all__ = ["Lease"]


class Lease:
    """Ends when the object that was opened has been closed, and its files and streams have been, too.

    Each of them holds the lease while it is open. What is no longer used has let go of it as well.
    """

    __slots__ = ("__weakref__",)

    def when_ended(self, act: Callable[[], object]) -> None:
        """Calls `act` at the end."""
        weakref.finalize(self, act)
