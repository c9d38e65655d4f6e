"""Streams of Arrow batches: the result of a sort that writes no file, of views, and of indexes.

A `Batches` is an iterator of `Batch`, and exports Arrow's PyCapsule interface, so that pyarrow, polars, pandas and
duckdb read it without a copy of the data.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar

from ascot import _native
from ascot._native import Batch
from ascot.errors import warn
from ascot.outcomes import Outcome

if TYPE_CHECKING:
    from ascot.reports import Plan, Report

__all__ = ["Batch", "Batches"]


class Batches:
    """A stream of batches, which is read once: by a `for` loop, or by a library.

    `pyarrow.RecordBatchReader.from_stream(batches)`, `pyarrow.table(batches)`, `polars.DataFrame(batches)` and
    `duckdb.sql("from batches")` read it. A stream that is closed, or no longer used, ends its job, which removes its
    files. `report` and `plan` are those of the job, once it has ended.

    >>> import ascot, tempfile, pathlib
    >>> numbers = pathlib.Path(tempfile.mkdtemp(), "numbers")
    >>> _ = numbers.write_bytes(bytes([3, 0, 0, 0, 1, 0, 0, 0]))
    >>> with ascot.sort(numbers, layout=ascot.Integers("u32")) as batches:
    ...     for batch in batches:
    ...         print(batch.num_rows, batch.column_names)
    2 ['value']
    >>> batches.report.records_out
    2
    """

    __slots__ = ("__weakref__", "_end", "_held", "_job", "_outcome", "_stream")

    # Whether the end of the program closes it, which waits for a thread that reads it.
    _closes_at_exit: ClassVar[bool] = True

    def __init__(
        self, stream: _native.BatchStream, job: _native.StreamJob | None = None, held: object = None
    ) -> None:
        # `held` are files that the job may read again, or the lease of what the batches are read from.
        self._stream, self._job, self._held = stream, job, held
        self._outcome: Outcome | None = None
        self._end: Callable[[], object] | None = None
        if self._closes_at_exit:
            _open.add(self)

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""
        return self._stream.column_names

    @property
    def report(self) -> Report | None:
        """The report of the job; None before its end, or if there is none."""
        outcome = self._ended_job()
        return None if outcome is None else outcome.report

    @property
    def plan(self) -> Plan | None:
        """The plan that the job followed; None before its end, or if there is none."""
        outcome = self._ended_job()
        return None if outcome is None else outcome.plan

    def _ended_job(self) -> Outcome | None:
        if self._outcome is None and self._job is not None:
            found = self._job.report()
            if found is not None:
                told, text, warnings = found
                self._outcome = Outcome(told, text)
                warn(warnings)
        return self._outcome

    def _when_ended(self, act: Callable[[], object]) -> None:
        """Calls `act` once the stream has ended, is closed or is no longer used."""
        self._end = weakref.finalize(self, act)

    def close(self) -> None:
        """Ends the stream and its job, whose files are removed."""
        self._stream.close()
        self._ended()

    def _ended(self) -> None:
        self._held = None
        if self._end is not None:
            self._end()

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Batch:
        try:
            return next(self._stream)
        except BaseException as error:
            if isinstance(error, StopIteration):
                self._ended_job()
            self._ended()
            raise

    def __enter__(self) -> Batches:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __arrow_c_schema__(self) -> object:
        return self._stream.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._stream.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return repr(self._stream).replace("BatchStream", "Batches")


# The streams that are in use: at the end of the program their jobs remove their files.
_open: weakref.WeakSet[Batches] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for batches in list(_open):
        batches.close()
