"""The parts of an output, files or views, one after another as one file.

Parts of a table each begin with its header, which the file has once.

Invariant: at most one part is open at a time, and nothing is opened before it is read, so that the memory is that of
one view.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from typing import Any

from ascot import arguments, errors
from ascot.cluster.objects import Stores, absolute, is_url
from ascot.sources import PathLike
from ascot.views import view

__all__ = ["open_parts", "parts_in"]


def open_parts(
    output: PathLike, *, header: bool = False, storage_options: Mapping[str, Any] | None = None
) -> io.BufferedReader:
    """The parts in the directory of a finished job as one binary file that can be read and sought. With `header` they
    begin with a header, which the file has once.

    The directory may be the URL of one in an object store; `storage_options` are those of `sort`. Views are merged as
    they are read, within 256 MiB. Raises FileMissing if the directory has no parts.
    """
    directory = absolute(arguments.path("output", output))
    stores = Stores(arguments.maybe(arguments.options, "storage_options", storage_options))
    return parts_in(directory, stores, has_header=arguments.flag("header", header))


def parts_in(directory: str, stores: Stores, *, has_header: bool) -> io.BufferedReader:
    """The parts in a directory or below a URL as one file."""
    if is_url(directory):
        found = list(stores.sizes(directory))
    elif os.path.isdir(directory):
        found = os.listdir(directory)
    else:
        raise errors.FileMissing(f"{directory}: there is no such directory", filename=directory)
    names = sorted(name for name in found if name.removeprefix("part-").isdecimal())
    if not names:
        raise errors.FileMissing(f"{directory}: there are no parts of a job of ascot.cluster", filename=directory)
    parts = _Parts([os.path.join(directory, name) for name in names], stores, has_header)
    return io.BufferedReader(parts, buffer_size=1 << 20)


def _opened(path: str, stores: Stores) -> io.BufferedReader:
    if is_url(path):
        return stores.open(path)
    if not os.path.isdir(path):
        return open(path, "rb")
    with view(path) as found:
        # Files of a view stay open when it is closed.
        return found.open()


def _header_bytes(file: io.BufferedReader) -> int:
    """Bytes of the line at the start of a file. A newline within double quotes does not end it."""
    file.seek(0)
    line = file.readline()
    while line.count(b'"') % 2 and (more := file.readline()):
        line += more
    return len(line)


class _Parts(io.RawIOBase):
    """The raw file below `open_parts`."""

    def __init__(self, paths: list[str], stores: Stores, has_header: bool) -> None:
        self._paths, self._stores, self._has_header = paths, stores, has_header
        # Bytes of the header, which all parts have.
        self._header = 0
        # Bytes before each part, as far as they are known.
        self._starts = [0]
        self._at = 0
        self._number = -1
        self._file: io.BufferedReader | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._check()
        out = memoryview(buffer).cast("B")
        number = self._part_of(self._at)
        file = self._part(number)
        file.seek(self._at - self._starts[number] + (self._header if number else 0))
        count = file.readinto(out)
        self._at += count
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check()
        if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
            raise ValueError(f"whence={whence}: give 0, 1 or 2")
        if whence == io.SEEK_END:
            self._start(len(self._paths))
        at = (0, self._at, self._starts[-1])[whence] + offset
        if at < 0:
            raise OSError(22, "a position before the start of the file")
        self._at = at
        return at

    def tell(self) -> int:
        self._check()
        return self._at

    def close(self) -> None:
        if not self.closed:
            self._close_part()
        super().close()

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def _part_of(self, offset: int) -> int:
        """The last part that begins at or before an offset."""
        number = 0
        while number + 1 < len(self._paths) and self._start(number + 1) <= offset:
            number += 1
        return number

    def _start(self, number: int) -> int:
        """Bytes before a part."""
        while len(self._starts) <= number:
            last = len(self._starts) - 1
            file = self._part(last)
            if last == 0 and self._has_header:
                self._header = _header_bytes(file)
            own = file.seek(0, io.SEEK_END) - (self._header if last else 0)
            self._starts.append(self._starts[-1] + own)
        return self._starts[number]

    def _part(self, number: int) -> io.BufferedReader:
        if number != self._number or self._file is None:
            self._close_part()
            self._file, self._number = _opened(self._paths[number], self._stores), number
        return self._file

    def _close_part(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._number = None, -1
