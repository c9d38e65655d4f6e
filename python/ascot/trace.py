"""Traces: the I/O of any program, as recorded by `ascot trace record` or by the `--trace` of a job, as tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from html import escape
from json import loads
from typing import Any

from ascot import _native, arguments
from ascot._native import bytes_text, count_text, seconds_text
from ascot.errors import InvalidRequest
from ascot.reports import row, table
from ascot.sources import PathLike
from ascot.tables import Cell, Table, table_of

__all__ = ["Trace", "compare", "open"]

_COUNTS = ("opens", "reads", "writes", "read_bytes", "written_bytes", "attempts", "runs", "mean_run_bytes")


def open(path: PathLike) -> Trace:
    """Opens a trace.

    Raises FileNotFoundError, SchemaMismatch for a file that is not a trace, and Damaged.
    """
    name = arguments.path("path", path)
    return Trace(name, _native.open_trace(name))


class Trace:
    """A trace: its census, its files, its runs and its events. `len(trace)` is the number of events.

    A *run* is a sequence of requests of which each continues where the one before ended; it begins with a *switch*.
    """

    __slots__ = ("_counted", "_native", "path")

    path: str

    def __init__(self, path: str, native: _native.Trace) -> None:
        self.path, self._native = path, native
        self._counted: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self._native)

    @property
    def census(self) -> dict[str, Any]:
        """All counts, as in the JSON of `ascot trace show`. Times are nanoseconds, sizes are bytes."""
        if self._counted is None:
            self._counted = loads(self._native.census())
        return self._counted

    @property
    def files(self) -> Table:
        """A row for each file: its requests, bytes and runs, those with most bytes first."""
        names = ("path", "peak_bytes", "deleted", *_COUNTS)
        rows = [{name: one[name] for name in names} for one in self.census["by_file"]]
        return table_of(rows, "files")

    @property
    def runs(self) -> Table:
        """A row for each range of lengths of runs: from `from_bytes`, a power of two, to twice as many."""
        return table_of(self.census["run_lengths"], "runs")

    @property
    def bowties(self) -> Table:
        """A row for each bowtie of a job of Ascot: its shape, and how full its buckets were."""
        rows: list[dict[str, Cell]] = []
        for one in self.census["bowties"]:
            plain = {name: value for name, value in one.items() if not isinstance(value, dict)}
            distances = {f"{side}_distance": one[f"{side}_distance"]["mean"] for side in ("input", "output")}
            rows.append({**plain, **distances})
        return table_of(rows, "bowties")

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the trace does not show."""
        return tuple(self.census["remarks"])

    def events(self, start: float = 0.0, stop: float | None = None, *, kind: str | Sequence[str] = ()) -> Table:
        """The events from second `start` to second `stop` of the recording, a row for each.

        `kind` selects `read`, `write`, `open`, `close`, `seek`, `resize` or `delete`. All rows are in memory, about
        60 bytes each. Raises InvalidRequest for another kind or a time that no recording has, and Damaged.
        """
        first = _nanoseconds("start", start)
        last = (1 << 64) - 1 if stop is None else _nanoseconds("stop", stop)
        kinds = [kind] if isinstance(kind, str) else arguments.texts("kind", kind, "a kind or a list of kinds")
        return Table(self._native.events(first, last, kinds), "events")

    def plot(self, *, axes: Any = None) -> Any:
        """Draws the requests with matplotlib: the place of each on the volume over its number; returns the axes.

        Files lie one after the other, in the order of their first request. Raises ImportError without matplotlib.
        """
        from ascot.plots import offsets

        events = self.events(kind=("read", "write"))
        files, places = events["file"], events["offset"]
        ends: dict[Any, int] = {}
        for file, place, size in zip(files, places, events["bytes"], strict=True):
            ends[file] = max(ends.get(file, 0), _whole(place) + _whole(size))
        starts, at = {}, 0
        for file, end in ends.items():
            starts[file] = at
            at += end
        kinds: dict[str, tuple[list[int], list[int]]] = {"read": ([], []), "write": ([], [])}
        for number, (kind, file, place) in enumerate(zip(events["kind"], files, places, strict=True)):
            numbers, drawn = kinds[str(kind)]
            numbers.append(number)
            drawn.append(starts[file] + _whole(place))
        return offsets(kinds, os.path.basename(self.path), axes)

    def __repr__(self) -> str:
        return f"<ascot.trace.Trace {self.path}: {count_text(len(self))} events>"

    def __str__(self) -> str:
        return "\n".join([self.census["command"], *(f"  {name:<10}{value}" for name, value in self._facts().items())])

    def _facts(self) -> dict[str, str]:
        census = self.census
        return {
            "events": f"{count_text(census['events'])} in {seconds_text(census['duration_ns'] / 1e9)}",
            "files": count_text(census["files"]),
            "read": f"{bytes_text(census['read_bytes'])} in {count_text(census['reads'])} requests",
            "written": f"{bytes_text(census['written_bytes'])} in {count_text(census['writes'])} requests",
            "switches": f"{count_text(census['runs'])}, each before a run of {bytes_text(census['mean_run_bytes'])}",
        }

    def _repr_html_(self) -> str:
        rows = [row(escape(name), escape(value)) for name, value in self._facts().items()]
        return table(self.census["command"], ("", ""), rows)


def compare(paths: Iterable[PathLike], *, size: int | str | None = None, volume: PathLike | None = None) -> Table:
    """Traces side by side, a row for each.

    With the `size` of the data, `passes` is the number of times that it was read and written. With a `volume` (a
    profile, or a kind such as `rotational`) the requests are replayed on a virtual disk: `replay_seconds`.

    Raises InvalidRequest without a trace or for an unknown volume, SchemaMismatch for a file that is not a trace,
    Damaged, and the subclasses of FileError.
    """
    names = arguments.paths("paths", paths)
    if not names:
        raise InvalidRequest("paths has no trace: name at least one file")
    given = arguments.maybe(arguments.size, "size", size)
    replayed = arguments.maybe(arguments.path, "volume", volume, "a profile of a volume, or its kind")
    told, remarks = _native.compare_traces(names, given, replayed)
    rows: list[dict[str, Cell]] = []
    for one in loads(told):
        census, replay = one["census"], one["replay"] or {}
        rows.append(
            {
                "trace": one["trace"],
                "passes": one["passes"],
                **{name: census[name] for name in ("events", "processes", "files", *_COUNTS)},
                "seconds": census["duration_ns"] / 1e9,
                "replay_switches": replay.get("switches"),
                "replay_seconds": replay.get("seconds"),
            }
        )
    return table_of(rows, "traces", notices=remarks)


def _nanoseconds(name: str, seconds: float) -> int:
    accepted = "a time of a recording, in seconds"
    number = arguments.real(name, seconds, accepted)
    if not 0 <= number < 1e9:
        arguments.wrong_value(name, seconds, accepted)
    return round(number * 1e9)


def _whole(value: Cell) -> int:
    return value if isinstance(value, int) else 0
