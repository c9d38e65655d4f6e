"""Indexed directories: records in any order are written in epochs, and a key is found in a few reads.

>>> import ascot, numpy, tempfile, pathlib
>>> path = pathlib.Path(tempfile.mkdtemp(), "run.dir")
>>> with ascot.index.writer(path, key_bytes=8) as writer:
...     for step in range(3):
...         particles = numpy.arange(1000, dtype=">u8")
...         energy = particles.astype("f8") * step
...         _ = writer.append(particles, energy)
...         _ = writer.end_epoch()
>>> with ascot.index.open(path) as index:
...     found = index.get([(7).to_bytes(8, "big")])
>>> [(record.epoch, numpy.frombuffer(record.value)[0].item()) for record in found]
[(0, 0.0), (1, 7.0), (2, 14.0)]
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from ascot import _native, arguments
from ascot.batches import Batch, Batches
from ascot.leases import Lease, Leased
from ascot.sources import PathLike

__all__ = ["Index", "Record", "Writer", "open", "writer"]


class Record(NamedTuple):
    """A record that a query found: its key, the epoch in which it was written (from 0), and its value."""

    key: bytes
    epoch: int
    value: bytes


def open(path: PathLike, *, memory: int | str | None = None) -> Index:
    """Opens the indexed directory `path` for reading, with the epochs that are complete now.

    Raises FileNotFoundError if it is not an indexed directory, and Damaged or MemoryLimit.
    """
    name = arguments.path("path", path)
    return Index(name, _native.open_index(name, arguments.maybe(arguments.memory, "memory", memory)))


def writer(
    path: PathLike,
    *,
    mode: str = "create",
    key_bytes: int | None = None,
    value_bytes: int | None = None,
    partitions: int | None = None,
    partition_by: str | None = None,
    scheme: str | None = None,
    rollback: int | None = None,
    memory: int | str | None = None,
) -> Writer:
    """Opens the indexed directory `path` for writing.

    `mode` is `create`, `append` (the directory exists, and is continued after its last complete epoch) or `auto`.
    `key_bytes` and `value_bytes` are the lengths of all keys and values, if these do not differ. `partition_by` is
    `hash` or `range`, `scheme` is `records`, `pointers` or `ranks`. `rollback` is the number of epochs to keep of a
    directory that is continued. `memory` is the cap, by default 64 MiB.

    Raises FileExistsError if `path` exists, is no directory without epochs and `mode` is `create`, FileNotFoundError
    if it is not an indexed directory and `mode` is `append`, InvalidRequest for lengths or epochs that it does not
    have, MemoryLimit and Damaged.
    """
    maybe = arguments.maybe
    name = arguments.path("path", path)
    options = {
        "mode": arguments.word("mode", mode, ("create", "append", "auto")),
        "rollback": maybe(arguments.count, "rollback", rollback, bits=64),
        "scheme": maybe(arguments.word, "scheme", scheme, ("records", "pointers", "ranks")),
        "partition_by": maybe(arguments.word, "partition_by", partition_by, ("hash", "range")),
        "partitions": maybe(arguments.count, "partitions", partitions, least=1),
        "key_bytes": maybe(arguments.count, "key_bytes", key_bytes),
        "value_bytes": maybe(arguments.count, "value_bytes", value_bytes),
        "memory": maybe(arguments.memory, "memory", memory),
    }
    return Writer(name, _native.open_writer(name, options))


class Index(Leased[_native.Index]):
    """An indexed directory open for reading. Any number of threads may query it at once.

    All but `close` raise InvalidRequest once it is closed.
    """

    __slots__ = ()
    _noun = "index"

    @property
    def epochs(self) -> int:
        """Number of complete epochs."""
        return self._open().epochs

    @property
    def manifest(self) -> dict[str, Any]:
        """The layout of the directory and its epochs (docs/formats/index.md)."""
        import json

        manifest: dict[str, Any] = json.loads(self._open().manifest())
        return manifest

    def get(self, keys: bytes | Sequence[bytes] | Any, *, epoch: int | None = None) -> list[Record]:
        """The records of a key or of many keys: bytes, a list of bytes, or an array with a row for each key.

        The records come in the order of the keys, those of a key by epoch. `epoch` selects one epoch. A key that was
        never written has no records.

        Raises SchemaMismatch for a key of another length than the index has, Damaged and MemoryLimit.
        """
        native = self._open()
        found = [Record(*record) for record in native.get(_keys(keys), _epoch(epoch))]
        self._warn(native)
        return found

    def range(
        self, start: bytes | None = None, stop: bytes | None = None, *, epoch: int | None = None
    ) -> Iterator[Record]:
        """The records with keys from `start` to `stop`, which is not included, by key and epoch.

        Keys are compared by their bytes. The records are read while the iterator is used, which raises Damaged and
        MemoryLimit.
        """
        native = self._open()
        found = native.range(_key("start", start) or b"", _key("stop", stop), _epoch(epoch))
        return self._records(native, found, self._lease)

    def _records(self, native: _native.Index, found: _native.Batches, _lease: Lease | None) -> Iterator[Record]:
        """The records that were found, while the iterator holds the lease."""
        for batch in found:
            for record in batch:
                yield Record(*record)
        self._warn(native)

    def get_batch(self, keys: bytes | Sequence[bytes] | Any, *, epoch: int | None = None) -> Batch:
        """The records of keys as an Arrow batch: `key`, `epoch` (64 bits) and `value` (binary).

        Keys are fixed-size binary if the index has keys of one length, else binary. Otherwise as `get`. Raises the
        exceptions of `get`.
        """
        native = self._open()
        found = _native.index_get(native, _keys(keys), _epoch(epoch))
        self._warn(native)
        return found

    def batches(self, start: bytes | None = None, stop: bytes | None = None, *, epoch: int | None = None) -> Batches:
        """The records of `range` as a stream of Arrow batches with the columns of `get_batch`.

        Reading the stream raises Damaged and MemoryLimit.
        """
        native = self._open()
        first, last = _key("start", start) or b"", _key("stop", stop)
        return self._batches(_native.index_range(native, first, last, _epoch(epoch)))

    def _warn(self, native: _native.Index) -> None:
        texts = native.take_warnings()
        if texts:
            import warnings

            from ascot.errors import AscotWarning

            for text in texts:
                warnings.warn(text, AscotWarning, stacklevel=3)

    def close(self) -> None:
        """Closes the index."""
        super().close()

    def __repr__(self) -> str:
        state = "closed" if self._native is None else f"{self._native.epochs} epochs"
        return f"<ascot.index.Index {self.path}: {state}>"


def _keys(keys: Any) -> Any:
    """The keys of a query; one key is a list of one."""
    return [_key("keys", keys)] if isinstance(keys, bytes | bytearray | str) else keys


def _key(name: str, key: Any) -> bytes | None:
    if isinstance(key, str):
        raise TypeError(f"{name}={key!r}: a key is bytes, not text: encode it")
    if key is not None and not isinstance(key, bytes | bytearray | memoryview):
        arguments.wrong_type(name, key, "a key, which is bytes")
    return None if key is None else bytes(key)


def _epoch(epoch: int | None) -> int | None:
    return arguments.maybe(arguments.count, "epoch", epoch, bits=64)


class Writer:
    """A writer of an indexed directory. An epoch is complete, and visible to readers, once `end_epoch` returns.

    An epoch is any number of calls of `append`, and then one of `end_epoch`. An epoch of one call is one line:
    `writer.append(keys, values); writer.end_epoch()`.

    As a context manager it is closed at the end; if an exception ends the block, the records since the last epoch are
    dropped, and a new directory without an epoch is removed. Records are dropped, too, with a ResourceWarning, if the
    writer is dropped, or the program ends, without `close`. An exception that interrupts a call, such as
    KeyboardInterrupt, closes the writer in the same way.
    """

    __slots__ = ("__weakref__", "_appended", "_native", "path")

    path: str

    def __init__(self, path: PathLike, native: _native.IndexWriter) -> None:
        self.path, self._native = os.fspath(path), native
        # Records since the last epoch.
        self._appended = 0
        _open_writers.add(self)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self._warn_of_lost_records()

    def _warn_of_lost_records(self) -> None:
        if getattr(self, "_appended", 0) > 0 and not self._native.is_stopped:
            import warnings

            records, verb = ("record", "is") if self._appended == 1 else ("records", "are")
            lost = f"its {self._appended} {records} since the last epoch {verb} lost"
            warnings.warn(f"{self!r} was not closed: {lost}", ResourceWarning, source=self, stacklevel=2)

    def _ending(self) -> Callable[[], bool]:
        """Tells whether the writer is closed or no longer used."""
        end = self._native.end()
        return lambda: end.is_over

    @property
    def epochs(self) -> int:
        """Number of complete epochs."""
        return self._native.epochs

    def append(self, keys: Sequence[bytes] | Any, values: Sequence[bytes] | Any) -> int:
        """Appends records to the epoch, and returns their number.

        Keys and values are lists of bytes, or contiguous arrays of any type with the buffer protocol: the rows along
        the first dimension are the keys and values, as their bytes in memory.

        Raises InvalidRequest if there are more of one than of the other or the writer is closed, SchemaMismatch for
        a key or value of another length than the directory has, NoSpace and the subclasses of FileError.
        """
        count = self._native.append(keys, values)
        self._appended += count
        return count

    def end_epoch(self) -> int:
        """Ends the epoch: it is durable and complete. Returns the number of complete epochs.

        Raises InvalidRequest if the writer is closed, NoSpace and the subclasses of FileError.
        """
        epochs = self._native.end_epoch()
        self._appended = 0
        return epochs

    def close(self) -> None:
        """Closes the directory. Records since the last epoch become an epoch.

        Raises the exceptions of `end_epoch`, unless it is closed already.
        """
        self._native.close()
        self._appended = 0

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._native.abandon()
            self._appended = 0

    def __repr__(self) -> str:
        return f"<ascot.index.Writer {self.path}>"


_open_writers: weakref.WeakSet[Writer] = weakref.WeakSet()


@atexit.register
def _abandon_all() -> None:
    for writer in list(_open_writers):
        writer._warn_of_lost_records()
        if not writer._native.is_stopped:
            writer._native.abandon()
