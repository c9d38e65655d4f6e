"""Samples over time in bounded memory.

Invariant: every sample of a series stands for the same number of intervals, except the last one: when the series is
full, neighbours become one with their mean, so that a long job has the samples of a short one, evenly spread.
"""

from __future__ import annotations

from array import array
from typing import Any

__all__ = ["COLUMNS", "Series"]

# What a sample of a node has; rates and shares are means since the sample before.
COLUMNS = (
    "cpu_share",
    "job_processors",
    "job_memory_bytes",
    "store_bytes",
    "job_read_bytes_per_s",
    "job_written_bytes_per_s",
    "disk_read_bytes_per_s",
    "disk_written_bytes_per_s",
    "received_bytes_per_s",
    "sent_bytes_per_s",
    "busy_share",
    "idle_share",
    "blocked_share",
    "memory_share",
)


class Series:
    """The samples of a node over time, at most `most` of them.

    A sample is the time at which it ended, seconds, and a value for each of `COLUMNS`.

    >>> series = Series(4)
    >>> for second in range(9):
    ...     series.add([second, *[float(second)] * len(COLUMNS)])
    >>> series.column("seconds"), series.column("cpu_share")
    ([3.0, 7.0, 8.0], [1.5, 5.5, 8.0])
    """

    __slots__ = ("_counts", "_most", "_together", "_values")

    def __init__(self, most: int) -> None:
        self._most = max(2, most // 2 * 2)
        # How many intervals a whole sample stands for, and how many the last one has so far.
        self._together = 1
        self._counts = 0
        self._values = [array("d") for _ in range(1 + len(COLUMNS))]

    def __len__(self) -> int:
        return len(self._values[0])

    def add(self, row: list[float]) -> None:
        """Adds the sample of an interval."""
        if self._counts % self._together == 0:
            if len(self) == self._most:
                self._thin()
            self._counts = 1
            for values, value in zip(self._values, row, strict=True):
                values.append(value)
            return
        self._counts += 1
        self._values[0][-1] = row[0]
        for values, value in zip(self._values[1:], row[1:], strict=True):
            values[-1] += (value - values[-1]) / self._counts

    def shift(self, seconds: float) -> None:
        """Moves the times of all samples, none to before 0.

        >>> series = Series(4)
        >>> series.add([1.5, *[0.0] * len(COLUMNS)])
        >>> series.shift(-0.5)
        >>> series.column("seconds")
        [1.0]
        """
        ends = self._values[0]
        for at, end in enumerate(ends):
            ends[at] = max(0.0, end + seconds)

    def _thin(self) -> None:
        self._together *= 2
        ends, *columns = self._values
        self._values = [ends[1::2]]
        for values in columns:
            means = [(values[at] + values[at + 1]) / 2 for at in range(0, len(values), 2)]
            self._values.append(array("d", means))

    def rows(self) -> list[list[float]]:
        """The samples, the oldest first."""
        return [list(row) for row in zip(*self._values, strict=True)]

    def last(self) -> dict[str, float]:
        """The newest sample by column; empty if there is none."""
        if not len(self):
            return {}
        return {name: values[-1] for name, values in zip(("seconds", *COLUMNS), self._values, strict=True)}

    def column(self, name: str) -> list[float]:
        """The values of a column, or the times (`seconds`)."""
        return list(self._values[("seconds", *COLUMNS).index(name)])

    def to_json(self) -> dict[str, list[float]]:
        """The same as plain values, with four digits."""
        return {
            name: [float(f"{value:.4g}") if name != "seconds" else round(value, 2) for value in values]
            for name, values in zip(("seconds", *COLUMNS), self._values, strict=True)
        }

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Series:
        """The series that `to_json` gave."""
        made = cls(max(2, len(told["seconds"]) + 1))
        made._values = [array("d", told[name]) for name in ("seconds", *COLUMNS)]
        return made
