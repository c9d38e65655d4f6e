"""Pages of cluster jobs: the report of a finished job, and the parts of the live page. They have the style of the
pages of other reports.

Invariants: every text that comes from a job is escaped. A page loads nothing, and needs no script to be read. What a
chart shows is in a table as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ascot import _native
from ascot._native import bytes_text, count_text, seconds_text
from ascot.cluster.reports import SAMPLE, shuffle_of

__all__ = ["charts_of_nodes", "log_of", "notebook", "page", "phases_table", "report_page", "stages_table", "table",
           "use_table"]  # fmt: skip

WIDTH, HEIGHT = 360.0, 90.0
# Nodes with charts; all have rows in the tables.
NODES_DRAWN = 12
POINTS = 120
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def _rate(value: float) -> str:
    return f"{bytes_text(value)}/s"


def _share(value: float) -> str:
    return f"{value:.0%}"


def _count(value: float) -> str:
    return f"{value:.2f}"


# A chart: its name, the columns of its solid and of its dashed line with their names, and the text of a value.
CHARTS = (
    ("CPU", (("cpu_share", "CPU busy"),), _share),
    ("CPU of the job", (("job_processors", "CPUs that the job uses"),), _count),
    ("Memory", (("job_memory_bytes", "memory of the job"), ("store_bytes", "object store")), bytes_text),
    ("Storage of the job", (("job_read_bytes_per_s", "job reads"), ("job_written_bytes_per_s", "job writes")), _rate),
    (
        "Disks of the node",
        (("disk_read_bytes_per_s", "disks read"), ("disk_written_bytes_per_s", "disks write")),
        _rate,
    ),
    ("Network", (("received_bytes_per_s", "net in"), ("sent_bytes_per_s", "net out")), _rate),
    ("Workers", (("busy_share", "workers busy"), ("blocked_share", "blocked by writers")), _share),
    ("Workers without work", (("idle_share", "workers idle"), ("memory_share", "wait for memory")), _share),
)
# The quantities of all charts: name, column and text of a value.
QUANTITIES = [(name, column, text) for _, lines, text in CHARTS for column, name in lines]


def table(identifier: str, caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the first cell of each row names the row."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>\n"
        for first, *cells in rows
    )
    name = escape(caption, quote=True)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{name}"><table id="{identifier}">'
        f"<caption>{name}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
    )


def phases_table(phases: Sequence[Mapping[str, Any]], whole: float | None = None) -> str:
    """The phases as rows; with the time of the whole job, also the rest and the sum."""
    heads = ("phase", "time", "bytes", "rate", "rate of a node", "workers idle", "writers of a node",
             "first node ends", "last node ends", "mean", "spread", "bound by")  # fmt: skip
    rows = []
    for one in phases:
        nodes = max(1, len(one["nodes"]))
        workers = next((stage["shares"]["idle"] for stage in one["stages"] if stage["name"] == "workers"), 0.0)
        writers = one["writers_bytes_per_s"]
        ends = ["", "", "", ""]
        if one["fastest"] and one["slowest"]:
            ends = [f"{seconds_text(end['seconds'])}, {end['node']}" for end in (one["fastest"], one["slowest"])]
            ends += [seconds_text(one["mean_seconds"]), seconds_text(one["spread_seconds"])]
        moved = [bytes_text(one["bytes"]), _rate(one["bytes_per_s"]), _rate(one["bytes_per_s"] / nodes)]
        if one["name"] == SAMPLE:
            moved = [f"{bytes_text(one['bytes'])} of keys", "", ""]
        rows.append([one["name"], seconds_text(one["seconds"]), *moved, _share(workers),
                     "" if writers is None else _rate(writers), *ends, one["bound_by"]])  # fmt: skip
    if whole is not None:
        rest = max(0.0, whole - sum(one["seconds"] for one in phases))
        rows.append(["other", seconds_text(rest), *[""] * (len(heads) - 2)])
        rows.append(["total", seconds_text(whole), *[""] * (len(heads) - 2)])
    return table("phases", "Phases", heads, rows)


def stages_table(phases: Sequence[Mapping[str, Any]]) -> str:
    """What the threads of each stage did."""
    rows = [
        [f"{stage['phase']}: {stage['name']}", str(stage["threads"])] + [
            f"{seconds_text(stage[state])} ({_share(stage['shares'][state])})"
            for state in ("busy", "idle", "blocked", "memory", "device")
        ]
        for one in phases for stage in one["stages"]
    ]  # fmt: skip
    heads = ("stage", "threads", "busy", "idle", "blocked", "for memory", "for the disk")
    return table("stages", "What the threads of each stage did", heads, rows)


def shares_table(phases: Sequence[Mapping[str, Any]]) -> str:
    """The share of each node in each phase."""
    rows = []
    for one in phases:
        for node in one["nodes"]:
            states = ", ".join(f"{name} {seconds_text(seconds)}" for name, seconds in node["seconds"].items())
            rate = node["written_bytes_per_s"]
            rows.append([f"{one['name']}: {node['node']}", bytes_text(node["bytes"]), seconds_text(node["ended"]),
                         "" if rate is None else _rate(rate), node["bound_by"], states])  # fmt: skip
    heads = ("node", "bytes", "ends after", "writers", "bound by", "seconds of its workers and writer")
    return table("shares", "Nodes in each phase", heads, rows)


def use_table(series: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """The mean and the most of each quantity on each node."""
    rows = []
    for node, samples in series.items():
        if not samples["seconds"]:
            continue
        cells = [
            f"{text(_mean(samples[column]))}, at most {text(max(samples[column]))}" for _, column, text in QUANTITIES
        ]
        rows.append([node, *cells])
    return table("used", "Use of nodes, mean and most", ["node", *(name for name, _, _ in QUANTITIES)], rows)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def charts_of_nodes(
    series: Mapping[str, Mapping[str, Sequence[float]]], phases: Sequence[Mapping[str, Any]], level: int = 3
) -> str:
    """The charts of nodes over time, all of a quantity with one scale."""
    drawn = {node: samples for node, samples in list(series.items())[:NODES_DRAWN] if samples["seconds"]}
    end = max((samples["seconds"][-1] for samples in drawn.values()), default=0.0)
    parts = []
    for name, lines, text in CHARTS:
        columns = [samples[column] for samples in drawn.values() for column, _ in lines]
        full = max((max(values) for values in columns), default=0.0)
        full = max(full, 1.0) if text is _share else full or 1.0
        marks = ("solid", "dashed")
        key = ", ".join(f'{escape(told)} <span class="sample {mark}"></span>'
                        for (_, told), mark in zip(lines, marks, strict=False))  # fmt: skip
        figures = "".join(
            _chart(name, node, [(told, samples[column]) for column, told in lines], samples["seconds"], text, full,
                   end, phases) for node, samples in drawn.items()
        )  # fmt: skip
        parts.append(
            f'<h{level}>{escape(name)}</h{level}>\n<p>{key}</p>\n<div class="resource-charts">{figures}</div>\n'
        )
    left = len(series) - NODES_DRAWN
    if left > 0:
        parts.append(f"<p>The first {NODES_DRAWN} nodes have charts; the table has all.</p>")
    return "".join(parts)


def _chart(
    name: str, node: str, lines: Sequence[tuple[str, Sequence[float]]], seconds: Sequence[float],
    text: Any, full: float, end: float, phases: Sequence[Mapping[str, Any]],
) -> str:  # fmt: skip
    told = "; ".join(f"{what}: mean {text(_mean(values))}, at most {text(max(values))}" for what, values in lines)
    drawn = "".join(
        _line(kind, colour, values, seconds, full, end)
        for (_, values), (kind, colour) in zip(lines, (("read", "#0a5cad"), ("write", "#b34700")), strict=False)
    )
    begins = "".join(f"M{one['began'] / end * WIDTH:.1f} 0V{HEIGHT}" for one in phases if 0 < one["began"] < end)
    label = escape(f"{name} of {node} over time. {told}. The table has the numbers.", quote=True)
    return (
        f'<figure><svg viewBox="-2 -14 {WIDTH + 4} {HEIGHT + 30}" role="img" aria-label="{label}">'
        f'<path class="axis" fill="none" stroke="#999" d="M0 0V{HEIGHT}H{WIDTH}{begins}"/>{drawn}'
        f'<text x="2" y="-3" font-size="12">{escape(text(full))}</text><text x="{WIDTH}" y="{HEIGHT + 14}" '
        f'font-size="12" text-anchor="end">{escape(seconds_text(end))}</text></svg>'
        f"<figcaption>{escape(node)}</figcaption></figure>\n"
    )


def _line(kind: str, colour: str, values: Sequence[float], seconds: Sequence[float], full: float, end: float) -> str:
    """A line of steps: a value holds from the sample before to its own."""
    together = -(-len(values) // POINTS)
    # Nothing is known of the time before the interval of the first sample.
    first = max(0.0, 2 * seconds[0] - seconds[1]) if len(seconds) > 1 else 0.0
    points, before = [], first / end * WIDTH
    for at in range(0, len(values), together):
        to = seconds[min(at + together, len(values)) - 1] / end * WIDTH
        y = HEIGHT - min(1.0, _mean(values[at : at + together]) / full) * HEIGHT
        points.append(f"{before:.1f},{y:.1f} {to:.1f},{y:.1f}")
        before = to
    dashes = "" if kind == "read" else ' stroke-dasharray="6 3"'
    return f'<polyline class="{kind}" fill="none" stroke="{colour}"{dashes} points="{" ".join(points)}"/>'


def log_of(lines: Sequence[Sequence[Any]]) -> str:
    """The newest events, the last one first."""
    items = "".join(f"<li>{escape(seconds_text(at))}: {escape(text)}</li>\n" for at, text in reversed(lines))
    return f'<ol id="log" reversed>{items}</ol>\n' if items else '<p id="log">Nothing has happened yet.</p>\n'


def page(title: str, body: str, *, policy: str = POLICY, head: str = "") -> str:
    """A page with this body; `head` are further elements of the head."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="generator" content="ascot">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy, quote=True)}">\n'
        f'<meta name="viewport" content="width=device-width"><title>{escape(title)}</title>\n'
        f"{head}</head>\n{body}</html>\n"
    )


def parts_of_report(report: Mapping[str, Any]) -> str:
    """The sections of a report."""
    peak, cap = bytes_text(report["peak_memory_bytes"]), bytes_text(report["memory_per_node"])
    facts = [
        ["records", count_text(report["records"])], ["bytes", bytes_text(report["bytes"])],
        ["checksum", report["checksum"]], ["partitions", count_text(report["partitions"])],
        ["chunks", count_text(report["chunks"])], ["start of actors", seconds_text(report["start_seconds"])],
        ["shuffle", shuffle_of(report)], ["memory of the fullest node", f"{peak} of {cap}"],
        ["read again", bytes_text(report["mapped_again_bytes"])],
        ["sent again", bytes_text(report["sent_again_bytes"])],
        ["sorted again", bytes_text(report["sorted_again_bytes"])],
        ["repeated batches ignored", count_text(report["repeated_batches"])],
    ]  # fmt: skip
    lost = report["lost_nodes"]
    excluded = table("excluded", "Excluded nodes", ["node", "reason"], lost) if lost else ""
    phases, series = report["phases"], report["series"]
    return (
        f'<section id="time"><h2>Phases</h2>\n{phases_table(phases, report["seconds"])}'
        f"{stages_table(phases)}</section>\n"
        f'<section id="nodes"><h2>Nodes</h2>\n{shares_table(phases)}{excluded}</section>\n'
        f'<section id="resources"><h2>Nodes over time</h2>\n<p>Vertical lines are the beginnings of phases.</p>\n'
        f"{charts_of_nodes(series, phases)}{use_table(series)}</section>\n"
        f'<section id="facts"><h2>Work</h2>\n{table("work", "The job", ["measure", "value"], facts)}</section>\n'
    )


def report_page(report: Mapping[str, Any]) -> str:
    """The page of a finished job; it also has the report as JSON."""
    links = "".join(
        f'<li><a href="#{name}">{text}</a></li>'
        for name, text in (
            ("time", "Phases"),
            ("nodes", "Nodes"),
            ("resources", "Nodes over time"),
            ("facts", "Work"),
        )
    )
    data = json.dumps(report).replace("<", "\\u003c")
    title = "Report of a job on a cluster"
    body = (
        f'<body class="one report">\n<header><h1>{title}</h1><p id="summary">{escape(report["title"])}</p></header>\n'
        f'<nav aria-label="Parts of the report"><ul>{links}</ul></nav>\n<main>\n{parts_of_report(report)}</main>\n'
        f'<script type="application/json" id="report">{data}</script>\n</body>'
    )
    return page(title, body, head=f"<style>{_native.page_style()}</style>")


def notebook(report: Mapping[str, Any]) -> str:
    """The phases and the charts for a notebook."""
    charts = charts_of_nodes(report["series"], report["phases"], level=4)
    return (
        f"<p>{escape(report['title'])}</p>{phases_table(report['phases'], report['seconds'])}"
        f"<details><summary>Nodes over time</summary>{charts}</details>"
    )
