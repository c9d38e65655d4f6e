"""Reports and plans of jobs, as objects with a text form and an HTML form for notebooks."""

from dataclasses import dataclass, field
from html import escape
from json import loads
from math import nan
from typing import Any

from ascot._native import bytes_text, count_text, seconds_text

__all__ = ["Method", "Pass", "Plan", "Report"]

# The fields of a report that are those of its JSON.
_FACTS = (
    "verb",
    "seconds",
    "predicted_seconds",
    "records_in",
    "records_out",
    "records_dropped",
    "bytes_in",
    "bytes_out",
    "checksum",
    "memory_bytes",
    "peak_memory_bytes",
    "peak_disk_bytes",
)
_UNKNOWN = "not known before all is read"
_STYLE = 'style="text-align:left"'


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over the data: its name, its time, the bytes it moved, and its bottleneck."""

    name: str
    seconds: float
    read_bytes: int
    written_bytes: int
    bound_by: str


@dataclass(frozen=True, slots=True)
class Method:
    """A method for a job, with its predicted cost; for pipes and batches, whose size is unknown, that of 8 GiB."""

    method: str
    summary: str
    remark: str
    seconds: float
    bound_by: str
    read_bytes: int
    written_bytes: int
    peak_disk_bytes: int


class Told:
    """An object that prints as its `text`, as the command prints it."""

    __slots__ = ()
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Plan(Told):
    """The plan of a job: the method chosen, and the others.

    `data` has all facts, as in the JSON of `ascot sort --explain --report`.
    """

    chosen: Method
    others: tuple[Method, ...]
    data: dict[str, Any] = field(repr=False)
    text: str = field(repr=False)

    @property
    def seconds(self) -> float:
        """The predicted time, seconds; NaN for pipes and batches, whose size is unknown."""
        return nan if self._is_of_unknown_size() else self.chosen.seconds

    def _is_of_unknown_size(self) -> bool:
        # An explanation has the plan of the job within it.
        plan = self.data.get("plan") or self.data
        return plan.get("input_bytes", 0) is None

    def _repr_html_(self) -> str:
        if self._is_of_unknown_size():
            return table("plan", ("method", "predicted"), [row(f"<b>{escape(self.chosen.summary)}</b>", _UNKNOWN)])
        longest = max(method.seconds for method in (self.chosen, *self.others)) or 1.0
        rows = [
            row(
                f"<b>{escape(method.summary)}</b>" if method is self.chosen else escape(method.summary),
                bar(method.seconds / longest) + f" {seconds_text(method.seconds)}",
                bytes_text(method.read_bytes),
                bytes_text(method.written_bytes),
                escape(method.bound_by),
            )
            for method in (self.chosen, *self.others)
        ]
        return table("plan", ("method", "predicted", "read", "written", "bound by"), rows)


@dataclass(frozen=True, slots=True)
class Report(Told):
    """The report of a finished job.

    Times are seconds and sizes are bytes. `checksum` is the sum of the records read, which equals that of the records
    written and left out. `data` has all facts, as in the JSON of `ascot sort --report` (docs/report.md).
    """

    verb: str
    seconds: float
    predicted_seconds: float | None
    records_in: int
    records_out: int
    records_dropped: int
    bytes_in: int
    bytes_out: int
    checksum: str
    passes: tuple[Pass, ...]
    memory_bytes: int
    peak_memory_bytes: int
    peak_disk_bytes: int
    notices: tuple[str, ...]
    data: dict[str, Any] = field(repr=False)
    text: str = field(repr=False)

    @property
    def bytes_per_s(self) -> float:
        """The bytes of the input per second."""
        return self.bytes_in / self.seconds if self.seconds else 0.0

    def plot(self, *, axes: Any = None) -> Any:
        """Draws the time of each pass and its bottleneck with matplotlib; returns the axes.

        Raises ImportError without matplotlib.
        """
        from ascot.plots import bars

        return bars([(one.name, one.seconds, one.bound_by) for one in self.passes], "seconds", self.title(), axes)

    def title(self) -> str:
        """The report in one line."""
        predicted = "" if self.predicted_seconds is None else f"; predicted {seconds_text(self.predicted_seconds)}"
        # A flow does not count records, unless it merges its inputs; nor does the copy of a range of keys.
        counted = self.records_in or not (self.data.get("flow") or self.bytes_in)
        records = f"{count_text(self.records_in)} records, " if counted else ""
        return (
            f"{self.verb} {records}{bytes_text(self.bytes_in)}, in "
            f"{seconds_text(self.seconds)} ({bytes_text(self.bytes_per_s)}/s{predicted})"
        )

    def _repr_html_(self) -> str:
        longest = max((one.seconds for one in self.passes), default=0.0) or 1.0
        rows = [
            row(
                escape(one.name),
                bar(one.seconds / longest) + f" {seconds_text(one.seconds)}",
                bytes_text(one.read_bytes),
                bytes_text(one.written_bytes),
                escape(one.bound_by),
            )
            for one in self.passes
        ]
        return table(self.title(), ("pass", "time", "read", "written", "bound by"), rows)


def bar(share: float) -> str:
    width = round(100 * min(1.0, max(0.0, share)))
    return f'<span style="display:inline-block;height:0.7em;width:{width}px;background:#4c78a8"></span>'


def row(*cells: str) -> str:
    return "<tr>" + "".join(f"<td {_STYLE}>{cell}</td>" for cell in cells) + "</tr>"


def table(title: str, heads: tuple[str, ...], rows: list[str]) -> str:
    head = "".join(f"<th {_STYLE}>{name}</th>" for name in heads)
    return f"<table><caption {_STYLE}>{escape(title)}</caption><tr>{head}</tr>{''.join(rows)}</table>"


def in_python(text: str) -> str:
    """A text of a library in the words of the package, whose rules are compiled when one is shown first."""
    from ascot import wording

    return wording.in_python(text)


def report_of(told: str, text: str) -> Report:
    """The report that the extension module returned."""
    data = loads(told)["result"]
    passes = tuple(
        Pass(
            name=one["name"],
            seconds=one["seconds"],
            read_bytes=sum(moved["read_bytes"] for moved in one["streams"]),
            written_bytes=sum(moved["written_bytes"] for moved in one["streams"]),
            bound_by=one["bound_by"],
        )
        for one in data["passes"]
    )
    facts = {name: data[name] for name in _FACTS}
    notices = tuple(in_python(one) for one in data["notices"])
    return Report(**facts, passes=passes, notices=notices, data=data, text=in_python(text))


def plan_of_report(told: str) -> Plan | None:
    """The plan that a job followed; None if it needed none."""
    shown = loads(told)
    if not shown["methods"]:
        return None
    chosen, *others = (Method(**one) for one in shown["methods"])
    data = shown["result"]["plan"]
    time = f"about {seconds_text(chosen.seconds)}, bound by {chosen.bound_by}"
    if data["input_bytes"] is None:
        time = f"the time is {_UNKNOWN}"
    return Plan(chosen, tuple(others), data, f"{chosen.summary}: {time}")


def plan_of_explanation(told: str, text: str) -> Plan:
    """The plan of a job that was not run."""
    shown = loads(told)
    chosen, *others = (Method(**one) for one in shown["methods"])
    return Plan(chosen, tuple(others), shown["result"], in_python(text))
