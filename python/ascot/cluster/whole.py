"""The parts of an output, files or views, one after another as one file.

Parts of a table each begin with its header, which the file has once.

Invariant: at most one part is open at a time, and nothing is opened before it is read, so that the memory is that of
one view.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Mapping
from typing import Any

from ascot import _native, arguments, errors
from ascot.cluster.objects import Stores, absolute, is_url
from ascot.jobs import Request
from ascot.layouts import Csv, Layout, LayoutLike, Lines, layout_of
from ascot.sources import PathLike
from ascot.views import view

__all__ = ["open_parts", "parts_in"]

# Bytes of a part in which its header ends.
HEAD_BYTES = 256 << 10


def open_parts(
    output: PathLike, *, layout: LayoutLike | None = None, storage_options: Mapping[str, Any] | None = None
) -> io.BufferedReader:
    """The parts in the directory of a finished job as one binary file that can be read and sought. With the `layout`
    of the job, `ascot.Csv()` or `ascot.Lines(header=True)`, the file has their header once.

    The directory may be the URL of one in an object store; `storage_options` are those of `sort`. Views are merged as
    they are read, within 256 MiB. Raises FileMissing if the directory has no parts, and InvalidRequest if a part does
    not begin with the header of the first.
    """
    directory = absolute(arguments.path("output", output))
    stores = Stores(arguments.maybe(arguments.options, "storage_options", storage_options))
    known = None if layout is None else layout_of(layout)
    names = _names_in(directory, stores)
    header = b"" if known is None else _header_of(names[0], known, stores)
    return _whole(names, stores, header)


def parts_in(directory: str, stores: Stores, header: bytes) -> io.BufferedReader:
    """The parts in a directory or below a URL, each of which begins with `header`, as one file, which has it once."""
    return _whole(_names_in(directory, stores), stores, header)


def _names_in(directory: str, stores: Stores) -> list[str]:
    """The parts in a directory or below a URL."""
    if is_url(directory):
        found = list(stores.sizes(directory))
    elif os.path.isdir(directory):
        found = os.listdir(directory)
    else:
        raise errors.FileMissing(f"{directory}: there is no such directory", filename=directory)
    names = sorted(name for name in found if name.removeprefix("part-").isdecimal())
    if not names:
        raise errors.FileMissing(f"{directory}: there are no parts of a job of ascot.cluster", filename=directory)
    return [os.path.join(directory, name) for name in names]


def _whole(names: list[str], stores: Stores, header: bytes) -> io.BufferedReader:
    return io.BufferedReader(_Parts(names, stores, header), buffer_size=1 << 20)


def _header_of(name: str, layout: Layout, stores: Stores) -> bytes:
    """The header of a part, if records of this layout have one."""
    if not isinstance(layout, Csv | Lines) or not layout.header:
        return b""
    with _opened(name, stores) as part, tempfile.NamedTemporaryFile() as head:
        head.write(part.read(HEAD_BYTES))
        head.flush()
        options = Request([head.name], layout, None, False, {}).options
        records = {**options["records"], "keys": []}
        _, header, _ = _native.cluster_inputs({**options, "records": records, "any_format": True})
    return header


def _opened(path: str, stores: Stores) -> io.BufferedReader:
    if is_url(path):
        return stores.open(path)
    if not os.path.isdir(path):
        return open(path, "rb")
    with view(path) as found:
        # Files of a view stay open when it is closed.
        return found.open()


class _Parts(io.RawIOBase):
    """The raw file below `open_parts`."""

    def __init__(self, paths: list[str], stores: Stores, header: bytes) -> None:
        self._paths, self._stores, self._header = paths, stores, header
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
        file.seek(self._at - self._starts[number] + (len(self._header) if number else 0))
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
            own = file.seek(0, io.SEEK_END) - (len(self._header) if last else 0)
            self._starts.append(self._starts[-1] + own)
        return self._starts[number]

    def _part(self, number: int) -> io.BufferedReader:
        if number != self._number or self._file is None:
            self._close_part()
            self._file, self._number = _opened(self._paths[number], self._stores), number
            self._check_header(number, self._file)
        return self._file

    def _check_header(self, number: int, file: io.BufferedReader) -> None:
        if not self._header:
            return
        file.seek(0)
        if file.read(len(self._header)) != self._header:
            raise errors.InvalidRequest(
                f"{self._paths[number]} does not begin with the header of {self._paths[0]}\n  open parts of one job, "
                "with its layout (layout=)"
            )

    def _close_part(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._number = None, -1
