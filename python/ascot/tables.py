"""Tables of results: typed columns of equal length, with a text form, an HTML form, and Arrow's interface."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, TypeAlias

from ascot import _native
from ascot._native import count_text

__all__ = ["Cell", "Table"]

Cell: TypeAlias = "str | int | float | bool | None"

# Rows in the text and HTML forms.
_SHOWN = 20
_KINDS = ((bool, "flag"), (str, "text"), (int, "count"), (float, "number"))


class Table:
    """A table: columns of text, whole numbers, numbers or truth values, in which None is a null.

    `table["name"]` is a column as a list, `len(table)` the number of rows, and iteration gives each row as a dict.
    It exports Arrow's PyCapsule interface: `pyarrow.table(table)`, `polars.DataFrame(table)`. `data` has further
    facts of its source, and `notices` remarks for people.

    >>> table = table_of([{"k": 1, "ms": 0.5}, {"k": 2, "ms": None}], "times")
    >>> table.columns, table["ms"], len(table)
    (('k', 'ms'), [0.5, None], 2)
    >>> print(table)
    times: 2 rows
    k   ms
    1  0.5
    2
    """

    __slots__ = ("_native", "columns", "data", "notices", "title")

    title: str
    columns: tuple[str, ...]
    data: Mapping[str, Any]
    notices: tuple[str, ...]

    def __init__(
        self,
        native: _native.Table,
        title: str,
        *,
        data: Mapping[str, Any] | None = None,
        notices: Sequence[str] = (),
    ) -> None:
        self._native, self.title = native, title
        self.columns = tuple(native.names)
        self.data, self.notices = data or {}, tuple(notices)

    def __len__(self) -> int:
        return len(self._native)

    def __getitem__(self, name: str) -> list[Cell]:
        """The values of a column; KeyError if there is none of that name."""
        return self._native.values(name)

    def __iter__(self) -> Iterator[dict[str, Cell]]:
        return self._rows(0, len(self))

    def _rows(self, start: int, stop: int) -> Iterator[dict[str, Cell]]:
        columns = [self._native.values(name, start, stop) for name in self.columns]
        for row in zip(*columns, strict=True):
            yield dict(zip(self.columns, row, strict=True))

    def to_dict(self) -> dict[str, list[Cell]]:
        """The columns, each as a list."""
        return {name: self[name] for name in self.columns}

    def to_list(self) -> list[dict[str, Cell]]:
        """The rows, each as a dict."""
        return list(self)

    def __arrow_c_schema__(self) -> object:
        return self._native.batch().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._native.batch().__arrow_c_stream__(requested_schema)

    def plot(self, x: str, y: str, *, by: str | Sequence[str] = (), axes: Any = None) -> Any:
        """Draws the column `y` over the column `x` with matplotlib, a line for each value of `by`; returns the axes.

        Scales are logarithmic where all values are positive and span a factor of 100. Raises ImportError without
        matplotlib.
        """
        from ascot.plots import lines

        groups = (by,) if isinstance(by, str) else tuple(by)
        series: dict[str, list[tuple[Any, Any]]] = {}
        for row in self:
            if row[x] is not None and row[y] is not None:
                series.setdefault(", ".join(str(row[name]) for name in groups), []).append((row[x], row[y]))
        return lines({name: sorted(points) for name, points in series.items()}, x, y, self.title, axes)

    def __repr__(self) -> str:
        return f"<ascot.Table {self.title}: {count_text(len(self))} rows of {', '.join(self.columns)}>"

    def __str__(self) -> str:
        shown = list(self._rows(0, min(len(self), _SHOWN)))
        cells = [list(self.columns), *([_cell(value) for value in row.values()] for row in shown)]
        widths = [max(len(row[at]) for row in cells) for at in range(len(self.columns))]
        text = {name for name in self.columns if any(isinstance(row[name], str) for row in shown)}
        lines = [
            "  ".join(
                cell.ljust(width) if name in text else cell.rjust(width)
                for name, cell, width in zip(self.columns, row, widths, strict=True)
            ).rstrip()
            for row in cells
        ]
        more = [f"... {count_text(len(self) - _SHOWN)} more"] if len(self) > _SHOWN else []
        return "\n".join([f"{self.title}: {count_text(len(self))} rows", *lines, *more, *self.notices])

    def _repr_html_(self) -> str:
        from ascot.reports import row, table

        shown = [row(*(escape(_cell(value)) for value in one.values())) for one in self._rows(0, _SHOWN)]
        return table(f"{self.title}: {count_text(len(self))} rows", tuple(map(escape, self.columns)), shown)


def _cell(value: Cell) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def table_of(rows: Sequence[Mapping[str, Cell]], title: str, **facts: Any) -> Table:
    """The table of rows that have the same keys."""
    columns = []
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        found = {kind for kind in map(_kind, values) if kind is not None}
        kind = "number" if found == {"count", "number"} else min(found, default="text")
        columns.append((name, kind, [float(one) if kind == "number" and one is not None else one for one in values]))
    return Table(_native.Table(columns), title, **facts)


def _kind(value: Cell) -> str | None:
    return next((kind for type_, kind in _KINDS if isinstance(value, type_)), None)
