"""The names of open files and bytes in texts of the libraries, which know them by their numbers in /proc."""

from __future__ import annotations

from weakref import WeakValueDictionary

__all__ = ["Names", "named"]

_PREFIX = "/proc/self/fd/"


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
    """A text in which open files have their names."""
    before, *others = text.split(_PREFIX)
    for rest in others:
        number = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        path = _PREFIX + number
        owner = _names.get(path)
        before += (path if owner is None else owner.get(path)) + rest[len(number) :]
    return before
