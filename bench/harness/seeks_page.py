"""The page of a comparison of requests (`seeks`): tables of counts and rates, and whether the claims hold.

It is made of files in the directory of the result alone: `result.json`, pages with seek charts, and `preface.md`,
which stands before the tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html import escape, unescape
from pathlib import Path
from typing import Any

from .units import binary, decimal

ASCOT = "Ascot"
AT_DISK = "Ascot, at the disk"
"""Ascot's requests below the page cache. A program that goes around it has about the same requests there."""

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
PREFACE = "Counts are exact; sort rates and rates of this machine depend on other work on it."
"""What stands before the tables of a result without `preface.md`."""


def switches(run: dict[str, Any], part: str) -> int | None:
    """Switches of a run in one part of the job, if it has the part."""
    return run[part]["census"]["runs"] if part in run else None


def moved(run: dict[str, Any], part: str) -> int:
    """Bytes of all requests."""
    census = run[part]["census"]
    return census["read_bytes"] + census["written_bytes"]


def ratio(runs: dict[str, Any], name: str, part: str, to: str = ASCOT) -> float | None:
    """A program's switches divided by those of Ascot, in its ledger or at the disk."""
    theirs, ours = (switches(runs.get(one, {}), part) for one in (name, to))
    return theirs / ours if theirs and ours else None


def claims(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The claims, with what was measured; those whose programs did not run have no ratio."""
    return [
        {"part": part, "kind": kind, "program": name, "asked": asked,
         "ratio": (found := ratio(runs, name, part)), "at_disk": ratio(runs, name, part, AT_DISK),
         "holds": found is not None and found >= asked}
        for part, kinds, name, asked in CLAIMS
        for kind in kinds
        if (runs := result["runs"].get(kind))
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
    "program", "passes", "moved", "attempts", "switches", "/ Ascot's", "/ Ascot's at the disk", "mean run",
    "replay on the array, MB/s", "on the array without cache, MB/s", "on this machine, MB/s",
    "pieces of its volume file", "sort, MB/s",
)  # fmt: skip
"""Columns: replay rates count the input and the output of the phase, and the input of a whole job; the pieces are
those in which the file for the replay on this machine lies; the sort rate is that of the whole job without a trace,
in both tables."""


def _times(value: float | None) -> str:
    return f"{value:.1f}" if value else "-"


def _pieces(replay: dict[str, Any] | None) -> str:
    extents = (replay or {}).get("extents")
    return f"{extents['pieces']:,}" if extents else "-"


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
        *(_times(ratio(runs, name, part, to)) for to in (ASCOT, AT_DISK)),
        decimal(census["mean_run_bytes"]),
        *(_replay_rate(run[part][where], data) for where in ("array", "array_without_cache", "here")),
        _pieces(run[part]["here"]),
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


def with_table(page: str, table: str) -> str:
    """A page of `ascot trace compare` with a table before its charts, instead of the one that it may have."""
    head, tail = page.split("<main>", 1)
    tail = re.sub(r'\A\n<section id="sort-rates">.*?</section>\n', "", tail, flags=re.DOTALL)
    return f"{head}<main>{table}{tail}"


def charts(page: str) -> list[str]:
    """The programs whose seek charts a page has."""
    return [unescape(name) for name in re.findall(r'aria-label="Seek chart of ([^"]+)\.trace; ', page)]


def _without_chart(run: dict[str, Any], part: str) -> tuple[str, str]:
    """Why a program has no chart, and what belongs to its name."""
    if part not in run:
        if "no_phase" in run:
            return "they have no merge phase", f" ({run['no_phase']})"
        return "they did not sort the data", ""
    files = run[part]["census"].get("files", 0)
    if files > MOST_FILES:
        return "their files would be thinner than a pixel", f" ({files:,} files)"
    return "their traces were not kept", ""


def _not_drawn(runs: dict[str, Any], part: str, drawn: list[str]) -> list[str]:
    """Programs without a chart on the page of a part, and why."""
    reasons: dict[str, list[str]] = {}
    for name, run in runs.items():
        if name not in drawn:
            reason, detail = _without_chart(run, part)
            reasons.setdefault(reason, []).append(name + detail)
    lines = (f"Without a chart, because {reason}: {'; '.join(names)}." for reason, names in reasons.items())
    return [text for line in lines for text in ("", line)]


def _notes(runs: dict[str, Any]) -> list[str]:
    lines = ["", "| program | version | setting | not used |", "| --- | --- | --- | --- |"]
    for name, run in runs.items():
        failed = "; ".join([*run["errors"], *run.get("timed_errors", [])]).replace("|", "/")
        lines.append(f"| {name} | {run['version']} | {run.get('setting', '-')} | {failed[:300]} |")
    return lines


def write(out: Path) -> str:
    """Writes the page of the result in a directory, and the tables on its pages with seek charts."""
    result = json.loads((out / "result.json").read_text())
    drawn = {}
    for kind, runs in result["runs"].items():
        for part in PARTS:
            if (path := out / f"{part}-{kind}.html").exists():
                page = path.read_text()
                path.write_text(with_table(page, html_table(runs, part, result["size"])))
                drawn[path.stem] = charts(page)
    preface = out / "preface.md"
    page = markdown(result, drawn, preface.read_text() if preface.exists() else PREFACE)
    (out / "README.md").write_text(page)
    return page


def markdown(result: dict[str, Any], drawn: Mapping[str, list[str]], preface: str = PREFACE) -> str:
    """The page; `drawn` has the programs on each page with seek charts."""
    size = result["size"]
    lines = [
        "# Requests of external sorts",
        "",
        f"{decimal(size)} within {binary(result['memory'])} of memory (M = N/{size / result['memory']:g}), "
        f"{result['threads']} threads.",
        "The [bench](../../README.md#requests-of-external-sorts) describes the method.",
        *preface.strip().splitlines(),
        "",
        "| part | data | program | switches / Ascot's | at least | | / Ascot's at the disk |",
        "| --- | --- | --- | ---: | ---: | --- | ---: |",
    ]
    for claim in claims(result):
        holds = "yes" if claim["holds"] else "no"
        words = [PARTS[claim["part"]].lower(), TITLES[claim["kind"]], claim["program"], _times(claim["ratio"])]
        words += [f"{claim['asked']:g}", holds, _times(claim["at_disk"])]
        lines.append(f"| {' | '.join(words)} |")
    for kind, measured in result["runs"].items():
        runs = ordered(measured)
        lines += ["", f"## {TITLES[kind]}"]
        for part, title in PARTS.items():
            lines += ["", f"### {title}", "", *_table(runs, part, size)]
            if (name := f"{part}-{kind}") in drawn:
                lines += ["", f"[This table and the seek charts side by side]({name}.html)"]
                lines += _not_drawn(runs, part, drawn[name])
            else:
                lines += ["", "The result has no page with these seek charts."]
        lines += _notes(runs)
    return "\n".join(lines) + "\n"
