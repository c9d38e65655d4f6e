"""The result of merge on read in MapReduce as a page: tables, a chart of each run over time, published figures."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .chart import Line, Timeline, timelines
from .configurations import CONFIGURATIONS, Setting
from .units import KIB, MB, binary, decimal

THREE = CONFIGURATIONS[:3]
# `reference/merge_on_read.csv`: facts of the ActiveSort paper, for 2,048 MB within 1 GB.
PUBLISHED = {
    "merge_sort_read": 4085.9,
    "merge_sort_written": 4096.7,
    "merge_on_read_read": 2048.3,
    "merge_on_read_written": 2048.4,
    "elapsed_saved_at_1GB_memory": 53.1,
    "merged_read_loss_128B_record_vs_32KB": 84.9,
    "hadoop_elapsed_saved_best": 36.1,
    "hadoop_written_saved_best": 40.4,
}
PUBLISHED_MB = 2048.0
# A point of a chart for each so many seconds.
STEP = 0.25

Run = dict[str, Any]


class Result:
    """The runs of a session by setting and configuration."""

    def __init__(self, result: dict[str, Any]) -> None:
        self._runs = result.get("runs", {})
        self.sweeps = {
            name: [Setting(**one) for one in settings] for name, settings in result.get("sweeps", {}).items()
        }

    def settings(self) -> list[Setting]:
        """All settings, each once."""
        return list(dict.fromkeys(one for settings in self.sweeps.values() for one in settings))

    def good(self, setting: Setting, configuration: str) -> list[Run]:
        """The runs whose output was right."""
        found: list[Run] = self._runs.get(setting.name, {}).get(configuration, [])
        return [one for one in found if "error" not in one]

    def lack(self, setting: Setting, configuration: str) -> str:
        """Why there is no good run."""
        return "failed" if self._runs.get(setting.name, {}).get(configuration) else "not run"

    def faults(self) -> list[str]:
        """What went wrong."""
        return [
            f"- {setting}, {name}: {one['error'][:200]}"
            for setting, own in self._runs.items() for name, runs in own.items() for one in runs if "error" in one
        ]  # fmt: skip

    def median(self, setting: Setting, configuration: str, of: Callable[[Run], float]) -> float | None:
        """The median of a figure of the runs; None without runs."""
        values = [of(one) for one in self.good(setting, configuration)]
        return statistics.median(values) if values else None

    def saved(self, setting: Setting, of: Callable[[Run], float], other: str = "map and reduce") -> float | None:
        """Per cent of a figure by which a configuration is below none."""
        none, found = self.median(setting, "none", of), self.median(setting, other, of)
        return None if none is None or found is None else 100 * (1 - found / none)


def seconds(run: Run) -> float:
    """The time of the job."""
    return float(run["seconds"])


def with_reading(run: Run) -> float:
    """The time of the job, and of reading its output once."""
    return float(run["seconds"] + run["reading"])


def summed(name: str) -> Callable[[Run], float]:
    """A figure of all nodes together."""
    return lambda run: float(sum(node[name] for node in run["nodes"].values()))


read, written, processors = summed("read"), summed("written"), summed("processors")


# ---------------------------------------------------------------- tables


def _cell(value: float | None, form: str = ".2f") -> str:
    return "" if value is None else format(value, form)


def _of(setting: Setting, sweep: str) -> str:
    if sweep == "programs":
        return setting.workload
    if sweep == "memory":
        return binary(setting.memory)
    if sweep == "record size":
        return binary(setting.record)
    if sweep == "reduce tasks":
        return str(setting.partitions)
    return f"{setting.nodes}, {decimal(setting.size)}"


def _sweep(result: Result, sweep: str) -> list[str]:
    lines = [
        f"| {sweep} | configuration | time | with reading the output | time / none | read / input | written / input "
        "| read, written by a node, MB | processor s | records/s | chart |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: | --- |",
    ]
    for setting in result.sweeps[sweep]:
        base = result.median(setting, "none", seconds)
        for name in THREE:
            runs = result.good(setting, name)
            if not runs:
                lines.append(
                    f"| {_of(setting, sweep)} | {name} | {result.lack(setting, name)} |  |  |  |  |  |  |  |  |"
                )
                continue
            time = statistics.median(map(seconds, runs))
            cells = [
                f"{time:.2f} s",
                f"{_cell(result.median(setting, name, with_reading))} s",
                _cell(time / base if base else None),
                _cell(statistics.median(map(read, runs)) / setting.size),
                _cell(statistics.median(map(written, runs)) / setting.size),
                _of_nodes(runs[0]),
                _cell(result.median(setting, name, processors), ".1f"),
                f"{setting.size / setting.record / time:,.0f}",
                f"[over time](chart-{setting.name}.svg)" if name == "none" else "",
            ]
            lines.append(f"| {_of(setting, sweep)} | {name} | {' | '.join(cells)} |")
    return lines


def _of_nodes(run: Run) -> str:
    """The least and the most that a node read and wrote, MB."""

    def span(name: str) -> str:
        values = [node[name] / MB for node in run["nodes"].values()]
        low, high = f"{min(values):.0f}", f"{max(values):.0f}"
        return low if low == high else f"{low}-{high}"

    return f"{span('read')}, {span('written')}"


def _published(result: Result) -> list[str]:
    """Published figures, and those of the same kind here."""
    sort = result.sweeps["programs"][0]
    of = {name: [_ratio(result, sort, name, what) for what in (read, written)] for name in THREE}
    both = {name: PUBLISHED[f"{name}_read"] / PUBLISHED_MB for name in ("merge_sort", "merge_on_read")}
    wrote = {name: PUBLISHED[f"{name}_written"] / PUBLISHED_MB for name in ("merge_sort", "merge_on_read")}
    lines = ["| figure | published | here, none | here, map | here, map and reduce |"]
    lines.append("| --- | ---: | ---: | ---: | ---: |")
    for number, (what, ratios) in enumerate((("read", both), ("written", wrote))):
        here = " | ".join(_cell(of[name][number]) for name in THREE)
        told = f"merge sort {ratios['merge_sort']:.2f}, merge on read {ratios['merge_on_read']:.2f}"
        lines.append(f"| sort: bytes {what} / data | {told} | {here} |")
    functions = [one for one in result.sweeps["programs"] if one.workload != "sort"]
    pairs = [
        (
            "sort: time saved (lost if below 0), reading of the output included",
            "elapsed_saved_at_1GB_memory",
            [sort],
            with_reading,
        ),
        ("MapReduce: most time saved (least lost if below 0)", "hadoop_elapsed_saved_best", functions, seconds),
        ("MapReduce: most bytes saved that are written", "hadoop_written_saved_best", functions, written),
    ]
    for text, fact, settings, figure in pairs:
        cells = []
        for name in ("map", "map and reduce"):
            known = [value for one in settings if (value := result.saved(one, figure, name)) is not None]
            cells.append(f"{max(known):.1f} %" if known else "")
        lines.append(f"| {text} | {PUBLISHED[fact]} % |  | {' | '.join(cells)} |")
    sizes = {one.record: one for one in result.sweeps["record size"]}
    rates = {size: _rate_of_view(result, sizes.get(size)) for size in (128, 32 * KIB)}
    loss = f"{100 * (1 - rates[128] / rates[32 * KIB]):.1f} %" if all(rates.values()) else ""
    fact = PUBLISHED["merged_read_loss_128B_record_vs_32KB"]
    lines.append(f"| rate of reading merged records of 128 B, below that of 32 KiB | {fact} % |  |  | {loss} |")
    return lines


def _ratio(result: Result, setting: Setting, name: str, of: Callable[[Run], float]) -> float | None:
    value = result.median(setting, name, of)
    return None if value is None else value / setting.size


def _rate_of_view(result: Result, setting: Setting | None) -> float:
    if setting is None:
        return 0.0
    time = result.median(setting, "map and reduce", lambda run: float(run["reading"]))
    return setting.size / time if time else 0.0


# A choice of `auto`, the configurations that it chooses from, and the programs.
CHOICES = (
    ("auto", "none", "map", ("sort",)),
    ("auto, views", "none, views", "map and reduce", ("sort",)),
    ("auto", "none", "map and reduce", ("terasort", "join", "index")),
)


def _predictions(result: Result) -> list[str]:
    lines = [
        "| setting | records or pairs of | merging a record | merges | bytes saved | saving | predicted | push "
        "| pull | faster | prediction |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: | --- | --- |",
    ]
    for setting in result.settings():
        for auto, files, merged, programs in CHOICES:
            if setting.workload in programs:
                lines += _prediction(result, setting, auto, files, merged)
    return lines


def _prediction(result: Result, setting: Setting, auto: str, files: str, merged: str) -> list[str]:
    runs = [one for one in result.good(setting, auto) if one["prediction"]]
    push, pull = result.median(setting, files, seconds), result.median(setting, merged, seconds)
    if not runs or push is None or pull is None:
        return []
    told = runs[0]["prediction"]
    faster = "push" if push <= pull else "pull"
    title = setting.title() + (", to views" if auto.endswith("views") else "")
    return [
        f"| {title} | {told['bytes'] / max(1, told['records']):.0f} B | {told['merge_seconds'] * 1e9:.0f} ns "
        f"| {told['merging_seconds']:.2f} s | {decimal(told['saved_bytes'])} | {told['saving_seconds']:.2f} s "
        f"| {told['shuffle']} | {push:.2f} s | {pull:.2f} s | {faster} "
        f"| {'right' if faster == told['shuffle'] else '**wrong**'} |"
    ]


# ---------------------------------------------------------------- charts


def over_time(run: Run, column: int) -> list[tuple[float, float]]:
    """A rate of all nodes together over time, MB/s: their samples, added up at each STEP."""
    end = max((node[0][-1] for node in run["series"].values() if node[0]), default=0.0)
    points = []
    for step in range(int(end / STEP) + 1):
        at, total = (step + 0.5) * STEP, 0.0
        for node in run["series"].values():
            total += next((value for sample, value in zip(node[0], node[column], strict=True) if sample >= at), 0.0)
        points.append((at, total / MB))
    return points


def svg(result: Result, setting: Setting) -> str:
    """The first run of each configuration over time."""
    panels = []
    for name in THREE:
        for run in result.good(setting, name)[:1]:
            phases = [(one["name"], one["began"], one["began"] + one["seconds"]) for one in run["phases"]]
            lines = [Line("read", over_time(run, 1), ours=True), Line("written", over_time(run, 2), ours=False)]
            panels.append(Timeline(name, phases, lines))
    about = "MB/s of all nodes; the time from the start of the job's processes on; below, the phases."
    return timelines(setting.title(), about, panels)


# ---------------------------------------------------------------- the page


HEAD = """\
| | none | map | map and reduce |
| --- | --- | --- | --- |
| ActiveSort paper | a map task merges its spills to a file, and a reduce task what it fetched, in passes \
| spills stay and are merged when they are fetched | the input of `reduce` is merged as it is read, too |
| here, of records (sort) | `shuffle="push"`: records wait in a file for each partition; it is sorted to a part \
| `shuffle="pull"`: sorted runs stay on their node and are merged when they are fetched; parts are files \
| the same with `output_as="views"`: the output is merged when it is read |
| here, of pairs (others) | `shuffle="push"`: a partition is sorted to a file, which `reduce` reads \
| `shuffle="pull", reduce_input="file"`: what is fetched is merged to a file, which `reduce` reads \
| `shuffle="pull"`: `reduce` gets pairs as they are merged |

In none, a map task has no spills to merge: its records are sent as they are read. So none here writes less than the
original Hadoop, whose map tasks write every record twice. Outputs are read once, that of a sort in map and reduce
merged as it is read; `with reading` has that time."""


def markdown(result: dict[str, Any]) -> str:
    """The page."""
    found = Result(result)
    host = result["machine"]
    used = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    every = [
        one for setting in found.settings() for name in setting.configurations() for one in found.good(setting, name)
    ]
    loads = [one["load"] for one in every]
    joules = [one["joules"] for one in every if one["joules"] is not None]
    power = (
        f"RAPL counted {min(joules):.0f} to {max(joules):.0f} J for a run" if joules else "the machine has no RAPL"
    )
    lines = [
        "# Merge on read in MapReduce", "",
        f"{host['cores']} cores ({host['processor']}), {decimal(host['memory_bytes'])} of memory,",
        f"{host['filesystem']}. {used}.", "",
        "Nodes of Ray on this machine with one worker each; one thing is changed at a time. Inputs are taken out of",
        "the page cache before each run. Records and checksum of each output are compared with the right ones.",
        f"{len(every)} runs; the load of the machine before a run was {min(loads, default=0):.1f} to",
        f"{max(loads, default=0):.1f} (median {statistics.median(loads or [0]):.1f}).",
        "Bytes and processor time are those of the job's processes, by the samples of its report.",
        f"Energy: {power}.", "", "## Configurations", "", HEAD,
    ]  # fmt: skip
    for sweep in found.sweeps:
        lines += ["", f"## By {sweep}", "", *_sweep(found, sweep)]
        if sweep == "programs":
            lines += [f"\n![{one.title()}](chart-{one.name}.svg)" for one in found.sweeps[sweep]]
    lines += ["", "## Beside published figures", "", *_published(found)]
    about = (
        '`shuffle="auto"` chooses before the job, by what it measures of its records; merges and saving are '
        "predicted seconds of a node."
    )
    lines += ["", "## Files or merges", "", about, "", *_predictions(found)]
    if faults := found.faults():
        lines += ["", "## Faults", "", *faults]
    return "\n".join(lines) + "\n"


def write(folder: Path, result: dict[str, Any]) -> None:
    """Writes figures, charts and page."""
    found = Result(result)
    (folder / "result.json").write_text(json.dumps(result) + "\n")
    for setting in found.settings():
        if any(found.good(setting, name) for name in THREE):
            (folder / f"chart-{setting.name}.svg").write_text(svg(found, setting))
    (folder / "README.md").write_text(markdown(result))
