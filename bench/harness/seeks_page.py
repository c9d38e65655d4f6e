"""The page of a comparison of requests (`seeks`): tables of counts and rates, and whether the claims hold."""

from __future__ import annotations

from html import escape
from typing import Any

from .units import binary, decimal

ASCOT = "Ascot"

CLAIMS = (
    ("phase", ("u64", "records"), "STXXL", 20.0),
    ("phase", ("u64", "records"), "extsort", 20.0),
    ("whole", ("lines",), "GNU sort", 2.2),
)
"""Part of the job, kinds of data, the program, and how many times Ascot's switches it should take at least."""

TITLES = {"u64": "64-bit integers", "records": "100-byte records", "lines": "Lines of 100 bytes"}
MOST_FILES = 1000
"""A trace of more files is not on the page: their bands would be thinner than a pixel, and the page large."""

PARTS = {"phase": "The merge phase", "whole": "The whole job"}


def switches(run: dict[str, Any], part: str) -> int | None:
    """Switches of a run in one part of the job, if it has the part."""
    return run[part]["census"]["runs"] if part in run else None


def moved(run: dict[str, Any], part: str) -> int:
    """Bytes of all requests."""
    census = run[part]["census"]
    return census["read_bytes"] + census["written_bytes"]


def ratio(runs: dict[str, Any], name: str, part: str) -> float | None:
    """A program's switches divided by those of Ascot."""
    theirs, ours = (switches(runs.get(one, {}), part) for one in (name, ASCOT))
    return theirs / ours if theirs and ours else None


def claims(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The claims, with what was measured; those whose programs did not run have no ratio."""
    return [
        {"part": part, "kind": kind, "program": name, "asked": asked,
         "ratio": (found := ratio(result["runs"].get(kind, {}), name, part)),
         "holds": found is not None and found >= asked}
        for part, kinds, name, asked in CLAIMS
        for kind in kinds
        if kind in result["runs"]
    ]  # fmt: skip


def ordered(runs: dict[str, Any]) -> dict[str, Any]:
    """Runs in the order of the tables: Ascot's first, then by their switches in the whole job, those without last."""

    def place(name: str) -> tuple[bool, int]:
        return (not name.startswith(ASCOT), switches(runs[name], "whole") or 1 << 62)

    return {name: runs[name] for name in sorted(runs, key=place)}


def _rate(value: float | None) -> str:
    return f"{value / 1e6:,.0f}" if value else "-"


def _seconds(replay: dict[str, Any] | None) -> float | None:
    return (replay.get("median_seconds") or replay.get("seconds")) if replay else None


def _replay_rate(replay: dict[str, Any] | None, size: int) -> str:
    """The rate, with the spread of repetitions if there were several."""
    seconds = _seconds(replay)
    if not replay or not seconds:
        return "-"
    spread = replay.get("spread_seconds", 0) / seconds * size / seconds
    return _rate(size / seconds) + (f" ± {spread / 1e6:,.0f}" if spread else "")


HEAD = (
    "program", "passes", "moved", "attempted", "switches", "/ Ascot's", "mean run", "replay on the array, MB/s",
    "on the array without cache, MB/s", "on this machine, MB/s", "sort, MB/s",
)  # fmt: skip
"""Columns: replay rates count the input and the output of the phase, and the input of a whole job; the sort rate is
that of the whole job without a trace, in both tables."""


def cells(runs: dict[str, Any], name: str, part: str, size: int) -> list[str]:
    """One line of a table."""
    run = runs[name]
    census = run[part]["census"]
    data = 2 * size if part == "phase" else size
    return [
        name,
        f"{moved(run, part) / (2 * size):.2f}",
        decimal(moved(run, part)),
        "-" if census.get("block") else f"{census['attempts']:,}",
        f"{census['runs']:,}",
        f"{found:.1f}" if (found := ratio(runs, name, part)) else "-",
        decimal(census["mean_run_bytes"]),
        *(_replay_rate(run[part][where], data) for where in ("array", "array_without_cache", "here")),
        _rate(run.get("sort_bytes_per_s")),
    ]


def row(runs: dict[str, Any], name: str, part: str, size: int) -> str:
    """One line of a table in Markdown."""
    return f"| {' | '.join(cells(runs, name, part, size))} |"


def _table(runs: dict[str, Any], part: str, size: int) -> list[str]:
    lines = [f"| {' | '.join(HEAD)} |", f"| --- |{' ---: |' * (len(HEAD) - 1)}"]
    return lines + [row(runs, name, part, size) for name, run in runs.items() if part in run]


def html_table(runs: dict[str, Any], part: str, size: int) -> str:
    """The table of a page with seek charts."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in HEAD)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in rest)}</tr>\n'
        for name, *rest in (cells(runs, one, part, size) for one, run in ordered(runs).items() if part in run)
    )
    title = f"{PARTS[part]}: passes, bytes, switches, mean runs, replay rates and sort rates"
    return (
        f'\n<section id="sort-rates"><h2>{PARTS[part]}</h2>\n<div class="wide" tabindex="0" role="region" '
        f'aria-label="{title}">\n<table id="sort-table"><caption>{title}</caption><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div></section>\n"
    )


def _not_drawn(runs: dict[str, Any], part: str) -> list[str]:
    """Programs without a chart, and why."""
    many = [
        f"{name} ({run[part]['census']['files']:,} files)"
        for name, run in runs.items()
        if part in run and run[part]["census"].get("files", 0) > MOST_FILES
    ]
    return (
        ["", f"Without a chart, because their files would be thinner than a pixel: {', '.join(many)}."]
        if many
        else []
    )


def _notes(runs: dict[str, Any]) -> list[str]:
    lines = ["", "| program | version | setting | not used |", "| --- | --- | --- | --- |"]
    for name, run in runs.items():
        failed = "; ".join([*run["errors"], *run.get("timed_errors", [])]).replace("|", "/")
        lines.append(f"| {name} | {run['version']} | {run.get('setting', '-')} | {failed[:300]} |")
    return lines


def markdown(result: dict[str, Any], pages: list[str]) -> str:
    """The page."""
    size = result["size"]
    lines = [
        "# Requests of external sorts",
        "",
        f"{decimal(size)} within {binary(result['memory'])} of memory (M = N/{size / result['memory']:g}), "
        f"{result['threads']} threads.",
        "The [bench](../../README.md#requests-of-external-sorts) describes the method.",
        "Counts are exact; sort rates and rates of this machine depend on other work on it.",
        "",
        "| part | data | program | switches / Ascot's | at least | |",
        "| --- | --- | --- | ---: | ---: | --- |",
    ]
    for claim in claims(result):
        found = f"{claim['ratio']:.1f}" if claim["ratio"] else "-"
        holds = "yes" if claim["holds"] else "no"
        words = [PARTS[claim["part"]].lower(), TITLES[claim["kind"]], claim["program"], found, f"{claim['asked']:g}"]
        lines.append(f"| {' | '.join(words)} | {holds} |")
    for kind, measured in result["runs"].items():
        runs = ordered(measured)
        lines += ["", f"## {TITLES[kind]}"]
        for part, title in PARTS.items():
            lines += ["", f"### {title}", "", *_table(runs, part, size)]
            if f"{part}-{kind}" in pages:
                lines += ["", f"[This table and all seek charts side by side]({part}-{kind}.html)"]
            lines += _not_drawn(runs, part)
        lines += _notes(runs)
    return "\n".join(lines) + "\n"
