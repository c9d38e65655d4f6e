"""Streams of Arrow batches: the result of a sort that writes no file, of views, and of indexes.

A `Batches` is an iterator of `Batch`, and exports Arrow's PyCapsule interface, so that pyarrow, polars, pandas and
duckdb read it without a copy of the data.
"""

from __future__ import annotations

import atexit
import sys
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
    files; one that a library reads belongs to the library. `report` and `plan` are those of the job, once it has
    ended.

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

    __slots__ = ("__weakref__", "_job", "_outcome", "_sources", "_stream")

    # Whether the end of the program closes it, which waits for a thread that reads it.
    _closes_at_exit: ClassVar[bool] = True

    def __init__(
        self, stream: _native.BatchStream, job: _native.StreamJob | None = None, sources: object = None
    ) -> None:
        # `sources` have the names of open files for the texts of errors.
        self._stream, self._job, self._sources = stream, job, sources
        self._outcome: Outcome | None = None
        if self._closes_at_exit:
            _open.add(self)

    def __del__(self) -> None:
        # Warnings of a job whose batches a library has read.
        if getattr(self, "_job", None) is not None and not sys.is_finalizing():
            self._ended_job()

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

    def _ending(self) -> Callable[[], bool]:
        """Tells whether the stream has ended, is closed or is no longer used, here and by a library."""
        end = self._stream.end()
        return lambda: end.is_over

    def close(self) -> None:
        """Ends the stream and its job, whose files are removed."""
        self._stream.close()

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Batch:
        try:
            return next(self._stream)
        except StopIteration:
            self._ended_job()
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
        return repr(self._stream).replace("BatchStream", "Batches", 1)


# The streams that are in use: at the end of the program their jobs remove their files.
_open: weakref.WeakSet[Batches] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for batches in list(_open):
        batches.close()
