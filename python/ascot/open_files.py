"""The names of open files, bytes and batches in texts of the libraries, which know them by numbers and as records."""

from __future__ import annotations

import re
from weakref import WeakValueDictionary

__all__ = ["BATCHES_FILE", "Names", "named"]

_PREFIX = "/proc/self/fd/"
# The start of the name of a file for batches, before 16 digits.
BATCHES_FILE = ".ascot-batches-"
_BATCHES = re.compile(rf"output 0 \(.*?{re.escape(BATCHES_FILE)}[0-9a-f]{{16}}\)|the records of the program")


class Names:
    """Names of open files, which are forgotten with this object."""

    __slots__ = ("__weakref__", "_names")

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def add(self, number: int, name: str) -> str:
        """Names the open file with this number; returns its path in /proc."""
        path = f"{_PREFIX}{number}"
        self._names[path] = name
        _names[path] = self
        return path

    def get(self, path: str) -> str:
        """The name of a path."""
        return self._names.get(path, path)


# Who named a path last: numbers are used again.
_names: WeakValueDictionary[str, Names] = WeakValueDictionary()


def named(text: str) -> str:
    """A text in which open files and batches have their names."""
    before, *others = text.split(_PREFIX)
    for rest in others:
        number = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        path = _PREFIX + number
        owner = _names.get(path)
        before += (path if owner is None else owner.get(path)) + rest[len(number) :]
    return _BATCHES.sub("the batches", before)
