"""Views: sorted files that are merged when they are read.

`ascot.sort(source, view="big.view")` makes one. A slice counts records, `keys` selects a range of keys, and `open`
gives a file object; each reads only the blocks that it needs.
"""

from __future__ import annotations

import io
import operator
from typing import Any

from ascot import _native, arguments
from ascot.batches import Batches
from ascot.errors import InvalidRequest
from ascot.layouts import LayoutLike, arrow_options, layout_of
from ascot.leases import Lease, Leased
from ascot.progress import reporter
from ascot.reports import Report, report_of
from ascot.sources import PathLike, output_path

__all__ = ["Part", "View", "view"]

# Maximum bytes of one read of the raw file.
_READ_BYTES = 1 << 20


def view(path: PathLike, *, memory: int | str | None = None, threads: int | None = None) -> View:
    """Opens the view `path`, and verifies its runs.

    `memory` is the cap for the view and all that reads it, by default 256 MiB; `threads` is the number of threads
    that merge. Raises FileNotFoundError, Damaged or MemoryLimit.

    >>> import ascot, tempfile, pathlib
    >>> directory = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (directory / "numbers").write_text("".join(f"{number:03}\\n" for number in range(999, -1, -1)))
    >>> _ = ascot.sort(directory / "numbers", view=directory / "numbers.view")
    >>> with ascot.view(directory / "numbers.view") as view:
    ...     len(view), bytes(view[10:12]), bytes(view.keys("500", "502"))
    (1000, b'010\\n011\\n', b'500\\n501\\n')
    """
    name = arguments.path("path", path)
    cap = arguments.maybe(arguments.memory, "memory", memory)
    count = arguments.maybe(arguments.count, "threads", threads, least=1)
    return View(name, _native.open_view(name, cap, count))


class View(Leased[_native.View]):
    """An open view. Close it with `close`, or use it in a `with` statement.

    All but `close` and `closed` raise InvalidRequest once it is closed.
    """

    __slots__ = ()
    _noun = "view"

    @property
    def nbytes(self) -> int:
        """Bytes of the view, read as a file."""
        return self._open().nbytes

    @property
    def runs(self) -> int:
        """Number of sorted runs that are merged."""
        return self._open().runs

    @property
    def layout(self) -> str:
        """The layout of the records, in the language of the command."""
        return self._open().layout

    @property
    def header(self) -> bytes:
        """The bytes before the first record; empty without a header."""
        native = self._open()
        return native.read(0, native.header_bytes)

    @property
    def closed(self) -> bool:
        """Whether the view is closed."""
        return self._native is None

    def __len__(self) -> int:
        """Number of records."""
        return self._open().records

    def __getitem__(self, index: int | slice) -> Part:
        """The records of a slice with step 1, or one record.

        Their place is looked up in the runs. Raises InvalidRequest for another step, IndexError for a record that the
        view does not have, and Damaged.
        """
        native, count = self._open(), len(self)
        if isinstance(index, slice):
            first, last, step = index.indices(count)
            if step != 1:
                raise InvalidRequest(f"a slice of a view has no step, not {step}")
        else:
            at = _record_number(index)
            first = at + count if at < 0 else at
            if not 0 <= first < count:
                raise IndexError(f"there is no record {at}: the view has {count}")
            last = first + 1
        last = max(first, last)
        return Part(self, native.offset_of_record(first), native.offset_of_record(last), last - first)

    def __bytes__(self) -> bytes:
        """All bytes of the view in memory. They do not count as memory of the view."""
        native = self._open()
        return native.read(0, native.nbytes)

    def keys(self, start: str | bytes | int | None = None, stop: str | bytes | int | None = None) -> Part:
        """The records with keys from `start` to `stop`, which is not included.

        A key is text, bytes, or a number for a view of numbers. With a descending order `start` is the greater one.
        Raises InvalidRequest for a range that ends before it begins, or a key that the view cannot have, and Damaged.
        """
        native = self._open()
        if native.layout.startswith(("fixed", "prefixed")):
            for name, key in (("start", start), ("stop", stop)):
                if isinstance(key, int | float):
                    raise InvalidRequest(
                        f"{name}={key!r}: the keys of this view are bytes of its records\n  give bytes, such as "
                        "(5).to_bytes(8, 'big')"
                    )
        first = native.header_bytes if start is None else native.offset_of_key(_key_text("start", start))
        last = native.nbytes if stop is None else native.offset_of_key(_key_text("stop", stop))
        if first > last:
            raise InvalidRequest(f"the range from {start!r} to {stop!r} ends before it begins in the view's order")
        return Part(self, first, last)

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """The whole view as a binary file that can be read and sought. Sequential reads are merged ahead.

        Raises InvalidRequest for another mode. Reading it raises Damaged.
        """
        native = self._open()
        return Part(self, 0, native.nbytes).open(mode)

    def batches(self, *, layout: LayoutLike | None = None) -> Batches:
        """The whole view as a stream of Arrow batches; `layout` may name fields, or read text as bytes.

        Raises the exceptions of `Part.batches`.
        """
        return self[:].batches(layout=layout)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.batches().__arrow_c_stream__(requested_schema)

    def write(self, to: PathLike, *, progress: Any = None) -> Report:
        """Writes the whole view to the file `to`, checks its checksum, and returns the report.

        Raises Damaged, NoSpace and the subclasses of FileError.
        """
        native = self._open()
        return Part(self, 0, native.nbytes).write(to, progress=progress)

    def close(self) -> None:
        """Closes the view. Files that were opened from it stay open."""
        super().close()

    def __repr__(self) -> str:
        if self._native is None:
            return f"<ascot.View {self.path}, closed>"
        return f"<ascot.View {self.path}: {self._native.summary()}, {self._native.runs} runs>"


class Part:
    """Some records of a view, in sequence: the bytes from `start` to `stop`.

    The view has looked up in its runs where they begin and end. The records are read when they are needed.
    """

    __slots__ = ("_records", "start", "stop", "view")

    view: View
    start: int
    stop: int

    def __init__(self, view: View, start: int, stop: int, records: int | None = None) -> None:
        self.view, self.start, self.stop = view, start, stop
        # Their number; None if it is not known.
        self._records = records

    @property
    def nbytes(self) -> int:
        """Bytes of the part."""
        return self.stop - self.start

    def __bytes__(self) -> bytes:
        """The bytes in memory. They do not count as memory of the view."""
        return self.view._open().read(self.start, self.stop)

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """The part as a binary file that can be read and sought.

        Raises InvalidRequest for another mode. Reading it raises Damaged.
        """
        if arguments.text("mode", mode, "'rb'") not in ("rb", "br"):
            raise InvalidRequest(f"mode={mode!r}: a view is read only, as bytes: give 'rb'")
        reader = self.view._open().reader()
        return io.BufferedReader(_File(reader, self.start, self.stop, self.view._lease), buffer_size=1 << 16)

    def batches(self, *, layout: LayoutLike | None = None) -> Batches:
        """The records as a stream of Arrow batches, merged while they are read.

        Their columns are those of a sorted file of this layout (`ascot.sort`). `layout` is the layout of the view
        with named fields, or with `binary=True`. Its key does not count: the view has its own, which decides on the
        types of the columns of CSV. Raises InvalidRequest for another layout, and MemoryLimit. Reading the stream
        raises Damaged, and SchemaMismatch for records that are not as described.

        >>> import ascot, tempfile, pathlib
        >>> directory = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (directory / "words").write_text("pear\\napple\\nfig\\n")
        >>> _ = ascot.sort(directory / "words", view=directory / "words.view")
        >>> with ascot.view(directory / "words.view") as view:
        ...     [(batch.num_rows, batch.column_names) for batch in view[1:].batches()]
        [(2, ['line'])]
        """
        native = self.view._open()
        of_view = layout_of(native.layout)
        given = of_view if layout is None else layout_of(layout)
        if of_view.text() != given.text():
            raise InvalidRequest(f"the view has records of layout {native.layout}, not {given.text()}")
        return self.view._batches(_native.view_batches(native, self.start, self.stop, arrow_options(given)))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.batches().__arrow_c_stream__(requested_schema)

    def write(self, to: PathLike, *, progress: Any = None) -> Report:
        """Writes the part to the file `to`, and returns the report, which does not count the records of `keys`.

        Raises Damaged, NoSpace and the subclasses of FileError.
        """
        path = output_path(to, remedy="write the batches of its batches() with pyarrow.parquet.ParquetWriter")
        with reporter(progress) as report:
            told, text, _ = self.view._open().write(self.start, self.stop, self._records, path, report)
        return report_of(told, text)

    def __repr__(self) -> str:
        return f"<ascot.Part of {self.view.path}: bytes {self.start} to {self.stop}>"


class _File(io.RawIOBase):
    """The raw file below `Part.open`."""

    def __init__(self, reader: _native.ViewReader, start: int, stop: int, lease: Lease | None) -> None:
        self._reader, self._lease = reader, lease
        self._start, self._stop, self._at = start, stop, start

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._check()
        out = memoryview(buffer).cast("B")
        # A long read is several: Python looks at signals in between.
        read = self._reader.read(self._at, min(len(out), _READ_BYTES, max(0, self._stop - self._at)))
        out[: len(read)] = read
        self._at += len(read)
        return len(read)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check()
        if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
            raise ValueError(f"whence={whence}: give 0, 1 or 2")
        base = (self._start, self._at, self._stop)[whence]
        if base + offset < self._start:
            raise OSError(22, "a position before the start of the file")
        self._at = base + offset
        return self.tell()

    def tell(self) -> int:
        self._check()
        return self._at - self._start

    def close(self) -> None:
        if not self.closed:
            # Its stream returns its memory to the view.
            del self._reader, self._lease
        super().close()

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")


def _record_number(index: Any) -> int:
    """The number of a record, which may count from the end."""
    try:
        return operator.index(index)
    except TypeError:
        raise TypeError(f"an index of a view is the number of a record or a slice, not {index!r}") from None


def _key_text(argument: str, key: str | bytes | int) -> str:
    """A key in the language of the command, in which 0x begins hexadecimal digits."""
    if isinstance(key, bytes):
        return "0x" + key.hex()
    if isinstance(key, str):
        try:
            encoded = key.encode()
        except UnicodeEncodeError:
            arguments.wrong_value(argument, key, "a key: text that has an encoding, or bytes")
        return "0x" + encoded.hex() if key.startswith("0x") else key
    if isinstance(key, int | float) and not isinstance(key, bool):
        return repr(key)
    arguments.wrong_type(argument, key, "a key: text, bytes or a number")
