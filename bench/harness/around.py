"""The cost of a sort around the size of the memory: where is there a step, and how high is it?

Files from half of the memory to four times as much are sorted by Ascot and by the peer that suits them best: lines
by GNU sort, records by DuckDB. Every program runs with its best setting for each size (`rounds`), cold, in turns.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import chart, contenders, machine, rounds
from .data import Store
from .rounds import Plan, Rounds
from .units import GB, MIB, binary, seconds

SHARES = (0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0)
"""Sizes of the inputs, in memories."""

PAIRS = {"records": ("Ascot", "DuckDB"), "lines": ("Ascot", "GNU sort")}
"""The programs that sort each kind of data."""

KEPT = ("name", "version", "setting", "median_s", "min_s", "max_s", "counted", "bytes_read", "bytes_written")
"""The figures of a program that the result has."""

SPARE = 512 * MIB
DISK = 8 * GB
_ROW = 100


def _measure(kind: str, size: int, memory: int, repeats: int, threads: int, ascot: list[str], compare: Rounds) -> Any:
    everybody = [one for one in contenders.everybody(ascot) if one.name in PAIRS[kind]]
    plan = Plan(
        kind=kind, size=size, tuning_size=size, memory=memory, spare=SPARE, threads=threads, repeats=repeats,
        contenders=everybody,
    )  # fmt: skip
    return rounds.summary(plan, compare.compare(plan), lambda text: text.replace(str(compare.work), "RUN"))


def run(ascot: str, directory: Path, memory: int, repeats: int, threads: int) -> dict[str, Any]:
    """Measures every size, and returns the figures."""
    say: Callable[[str], None] = lambda text: print(f"bench: {text}", flush=True)  # noqa: E731
    store = Store(directory, DISK, [ascot], say)
    work = directory / "run"
    work.mkdir(parents=True, exist_ok=True)
    compare = Rounds(work, lambda kind, size: store.ensure(kind, size, set()), say)
    points = []
    for kind in PAIRS:
        for share in SHARES:
            size = int(share * memory) // _ROW * _ROW
            say(f"{kind}: {share:g} times {binary(memory)}")
            entries = _measure(kind, size, memory, repeats, threads, [ascot], compare)
            kept = [{key: entry.get(key) for key in KEPT} for entry in entries]
            points.append({"kind": kind, "share": share, "bytes": size, "contenders": kept})
    shutil.rmtree(work, ignore_errors=True)
    about = {"version": 1, "machine": machine.describe(directory), "memory": memory, "repeats": repeats}
    return {**about, "points": points}


def _median(point: dict[str, Any], name: str) -> float | None:
    return next((one["median_s"] for one in point["contenders"] if one["name"] == name), None)


def lines_of(result: dict[str, Any]) -> list[chart.Line]:
    """The curves: nanoseconds per byte against the size in memories."""
    curves = []
    for kind, names in PAIRS.items():
        for name in names:
            points = [
                (point["share"], time / point["bytes"] * 1e9)
                for point in result["points"]
                if point["kind"] == kind and (time := _median(point, name)) is not None
            ]
            curves.append(chart.Line(f"{name}, {kind}", points, name == "Ascot", kind != "records"))
    return curves


def svg(result: dict[str, Any]) -> str:
    """The chart of the curves."""
    memory = binary(result["memory"])
    subtitle = f"seconds per GB against the size of the input, in memories of {memory}; cold, medians"
    return chart.curves("Cost around the size of the memory", subtitle, lines_of(result))


def markdown(result: dict[str, Any]) -> str:
    """The result as a page."""
    lines = [
        "# Cost around the size of the memory",
        "",
        f"Inputs of 0.5 to 4 times {binary(result['memory'])} of memory, 100 bytes a record or line; cold cache,",
        f"output synced; medians of {result['repeats']}, programs in turns, each with its best setting at that size.",
        "",
        "![Seconds per GB against size](chart.svg)",
    ]
    for kind, (_, peer) in PAIRS.items():
        head = f"| {kind}, in memories | Ascot | min - max | {peer} | min - max | time / Ascot's |"
        lines += ["", head, "| --- | ---: | ---: | ---: | ---: | ---: |"]
        for point in (point for point in result["points"] if point["kind"] == kind):
            by_name = {one["name"]: one for one in point["contenders"]}
            cells = [f"{point['share']:g}"]
            for name in PAIRS[kind]:
                one = by_name.get(name, {})
                known = one.get("median_s") is not None
                cells.append(seconds(one["median_s"]) if known else "-")
                cells.append(f"{seconds(one['min_s'])} - {seconds(one['max_s'])}" if known else "")
            ours, theirs = (_median(point, name) for name in PAIRS[kind])
            cells.append(f"{theirs / ours:.1f}" if ours and theirs else "-")
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
