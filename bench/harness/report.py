"""A result as tables (Markdown) and bars (SVG); the JSON beside them contains everything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from . import chart, targets
from .units import binary, decimal, seconds

TITLES = {
    "limit": "What the volume allows",
    "records": "100-byte records, 10-byte key",
    "u64": "64-bit integers",
    "lines": "The records as text lines, whole line",
    "lines-key": "The records as text lines, -k1.1,1.10",
    "csv": "CSV with header, by tenant, then ts downwards",
    "memory": "Lines that fit in memory",
    "tight": "Lines, Ascot with a sixteenth of GNU sort's memory",
    "startup": "Start to exit on a thousand lines",
    "scaling": "gen | sort | check, from small to large",
}


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return ["| " + " | ".join(cells) + " |" for cells in [head, rule, *rows]]


def _failure(entry: dict[str, Any]) -> str:
    if entry.get("unavailable"):
        return f"not run: {entry['unavailable']}"
    errors = [run["error"] for run in entry.get("failures", []) + entry.get("tuning", []) if run["error"]]
    return f"failed: {_short(errors[0])}" if errors else "not run"


def _short(text: str, width: int = 160) -> str:
    """The beginning of a long message; the whole of it is in result.json."""
    return text if len(text) <= width else text[: width - 1] + "…"


def _comparison(workload: dict[str, Any]) -> list[str]:
    head = ["", "MB/s", "median", "min - max", "runs", "time / Ascot's", "read + written", "memory", "peak in cgroup"]
    rows = []
    for entry in workload["contenders"]:
        name = f"{entry['name']} {entry['version']}".strip()
        if entry["median_s"] is None:
            rows.append([name, "-", _failure(entry).replace("|", "/"), "", "", "", "", "", ""])
            continue
        ratio = f"{entry['times_ascot']:.2f}" if entry["times_ascot"] else "-"
        rows.append(
            [
                name,
                f"{entry['mb_per_s']:.0f}",
                seconds(entry["median_s"]),
                f"{seconds(entry['min_s'])} - {seconds(entry['max_s'])}",
                str(entry["counted"]),
                ratio,
                f"{decimal(entry['bytes_read'])} + {decimal(entry['bytes_written'])}",
                binary(entry["peak_memory"]),
                binary(entry["peak_cgroup"]),
            ]
        )
    spare = workload["spare"]
    within = f"a cgroup of {binary(workload['memory'] + spare)}" if spare is not None else "no cgroup"
    words = f"{decimal(workload['bytes'])}, memory option {binary(workload['memory'])}, {within}, "
    words += "one run each" if workload["repeats"] == 1 else f"{workload['repeats']} runs each"
    if workload.get("repeat_within"):
        words += f", one of those behind the best peer that took {workload['repeat_within']:g} times Ascot's time"
    for name, memory in workload.get("memory_of", {}).items():
        words += f"; {name} with {binary(memory)}"
    return [words + ".", "", *_table(head, rows)]


def _settings(workload: dict[str, Any]) -> list[str]:
    """All tried settings, their command lines, and the chosen one."""
    lines = ["", "<details><summary>Settings tried, with their command lines</summary>", ""]
    for entry in workload["contenders"]:
        for attempt in entry["tuning"] + entry["failures"]:
            rate = f"{attempt['bytes'] / attempt['seconds'] / 1e6:.0f} MB/s"
            taken = not attempt["error"] and attempt["setting"] == entry.get("setting")
            outcome = attempt["error"] or rate
            lines.append(f"- {entry['name']}, {attempt['setting']}, on {decimal(attempt['bytes'])}: {outcome}")
            lines[-1] += " **(taken)**" if taken else ""
            lines.append(f"  - `{attempt['command']}`")
    return [*lines, "", "</details>"]


def _limit(found: dict[str, Any]) -> list[str]:
    top = found["best"]
    return [
        f"Reading and writing at once, best of {len(found['grid'])} block sizes and depths "
        f"({top['block']} x {top['depth']}): read {top['read_bytes_per_s'] / 1e6:.0f} MB/s, "
        f"write {top['write_bytes_per_s'] / 1e6:.0f} MB/s. Alone: read "
        f"{found['read_alone_bytes_per_s'] / 1e6:.0f} MB/s, write {found['write_alone_bytes_per_s'] / 1e6:.0f} MB/s. "
        f"**Limit of a sort in two passes: {found['limit_bytes_per_s'] / 1e6:.0f} MB/s of input.**",
        "",
        f"`{found['command']}`",
    ]


def _startup(found: dict[str, Any]) -> list[str]:
    rows = [
        [e["name"], seconds(e["median_s"]), f"{seconds(e['min_s'])} - {seconds(e['max_s'])}", str(e["starts"])]
        if e["median_s"] is not None
        else [e["name"], f"failed: {e['error']}", "", ""]
        for e in found["contenders"]
    ]
    return _table(["", "median", "min - max", "starts"], rows)


def _scaling(found: dict[str, Any]) -> list[str]:
    rows = [
        [
            decimal(run["bytes"]),
            seconds(run["seconds"]) if not run["error"] else f"failed: {run['error']}".replace("|", "/"),
            f"{run['ns_per_byte']:.2f}",
            f"{run['bytes'] / run['seconds'] / 1e6:.0f}",
            binary(run["peak_cgroup"]),
        ]
        for run in found["runs"]
    ]
    ratio = f"{found['ratio']:.2f}" if found["ratio"] else "unknown"
    words = f"Memory option {binary(found['memory'])}. Cost per byte, large against small: **{ratio}**."
    return [words, "", *_table(["", "time", "ns per byte", "MB/s", "peak in cgroup"], rows)]


def _targets(result: dict[str, Any]) -> list[str]:
    judged = targets.judge(result)
    if not judged:
        return []
    marks = {True: "met", False: "**missed**", None: "-"}
    rows = [[t["what"], t["asked"], t["measured"], marks[t["met"]]] for t in judged]
    return ["## Targets", "", *_table(["", "asked", "measured", ""], rows), ""]


def markdown(result: dict[str, Any]) -> str:
    """The whole result as a page."""
    m = result["machine"]
    lines = [
        f"# Bench of {result['date']}",
        "",
        f"{m['cores']} cores ({m['processor']}), {binary(m['memory_bytes'])} of memory, {m['system']}, "
        f"kernel {m['kernel']}, {m['filesystem']}. Cold cache before every run, times with the sync of the "
        "output, contenders interleaved, every output checked. `memory` is the most anonymous memory held, "
        "`read + written` what the volume moved, write-back included.",
        "",
        *(line for note in result.get("notes", []) for line in (f"Note: {note}", "")),
        "![Results](chart.svg)",
        "",
        *_targets(result),
    ]
    for name, found in result["workloads"].items():
        lines += [f"## {TITLES.get(name, name)} (`{name}`)", ""]
        if found.get("skipped"):
            lines.append(f"Skipped: {found['skipped']}")
        elif name == "limit":
            lines += _limit(found)
        elif name == "startup":
            lines += _startup(found)
        elif name == "scaling":
            lines += _scaling(found)
        else:
            lines += _comparison(found) + _settings(found)
        lines.append("")
    return "\n".join(lines)


def _panel(name: str, found: dict[str, Any], limit: float | None) -> chart.Panel | None:
    if found.get("skipped") or name in ("limit", "scaling"):
        return None
    bars = []
    for entry in found["contenders"]:
        if entry["median_s"] is None:
            note = f"failed: {entry['error']}" if entry.get("error") else _failure(entry)
            bars.append(chart.Bar(entry["name"], None, note=note))
        elif name == "startup":
            bars.append(chart.Bar(entry["name"], entry["median_s"] * 1000))
        else:
            size = found["bytes"] / 1e6
            bars.append(chart.Bar(entry["name"], entry["mb_per_s"], size / entry["max_s"], size / entry["min_s"]))
    title, unit = TITLES.get(name, name), "MB/s"
    if name == "startup":
        return chart.Panel(f"{title} (shorter is better)", "ms", bars)
    two_passes = name in ("records", "u64", "lines", "lines-key", "csv")
    return chart.Panel(
        f"{title}: {decimal(found['bytes'])}, {binary(found['memory'])}", unit, bars, limit if two_passes else None
    )


def picture(result: dict[str, Any]) -> str:
    """The chart of a result."""
    limit = result["workloads"].get("limit", {}).get("limit_bytes_per_s")
    panels = [
        panel
        for name, found in result["workloads"].items()
        if (panel := _panel(name, found, limit / 1e6 if limit else None))
    ]
    m = result["machine"]
    subtitle = f"MB/s of input, median; {m['cores']} cores, {m['filesystem']}, cold cache, sync included"
    return chart.svg(f"Sorting: Ascot and others, {result['date']}", subtitle, panels)


def overview(result: dict[str, Any]) -> str:
    """One table for all comparisons, MB/s of input (milliseconds for starting): for the README."""
    workloads = {
        name: {entry["name"]: entry for entry in found["contenders"]}
        for name, found in result["workloads"].items()
        if found.get("contenders")
    }
    names = list(dict.fromkeys(name for entries in workloads.values() for name in entries))

    def cell(workload: str, entry: dict[str, Any] | None) -> str:
        if entry is None:
            return ""
        if entry["median_s"] is None:
            return "failed"
        return f"{entry['median_s'] * 1000:.2f} ms" if workload == "startup" else f"{entry['mb_per_s']:.0f}"

    rows = []
    for workload, entries in workloads.items():
        found = result["workloads"][workload]
        size = "" if workload == "startup" else f", {decimal(found['bytes'])}"
        cells = [cell(workload, entries.get(name)) for name in names]
        rows.append([TITLES.get(workload, workload) + size, *cells])
    return "\n".join(_table(["MB/s", *names], rows)) + "\n"


def write(folder: Path, result: dict[str, Any]) -> None:
    """result.json, README.md, overview.md and chart.svg into `folder`; an earlier state of the run is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = {**result, "targets": targets.judge(result)}
    (folder / "result.json").write_text(json.dumps(whole, indent=1) + "\n")
    (folder / "README.md").write_text(markdown(result))
    (folder / "overview.md").write_text(overview(result))
    (folder / "chart.svg").write_text(picture(result))
