"""DiskBench and NetBench from the live page: a process measures and writes its result to a file, which is shown.

Invariant: a result that is not whole is not shown. A page has at most ROWS_SHOWN rows of a result.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from html import escape
from typing import Any

from ascot._native import bytes_text, count_text
from ascot.cluster import pages
from ascot.errors import InvalidRequest
from ascot.tables import Cell

__all__ = ["NAMES", "measure", "table_of_result", "wanted_of"]

# The calls of ascot.cluster, and their names for people.
NAMES = {"diskbench": "DiskBench", "netbench": "NetBench"}
ROWS_SHOWN = 100
# Heads of columns whose names are not those for people.
HEADS = {"bytes_per_s": "rate", "reads": "reads in flight", "writes": "writes in flight"}


def wanted_of(call: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of a call from the fields of the page. Raises InvalidRequest with a wrong one's name."""
    given = {name: fields.get(f"bench_{name}", "").strip() for name in ("address", "size", "request", "rounds")}
    wanted: dict[str, Any] = {"address": given["address"] or "auto"}
    if given["size"]:
        wanted["size"] = given["size"]
    if call == "netbench":
        return wanted
    if given["request"]:
        wanted["request"] = given["request"]
    if given["rounds"]:
        if not given["rounds"].isdecimal() or int(given["rounds"]) < 1:
            raise InvalidRequest(f"Rounds: {given['rounds']}: give a whole number from 1 on")
        wanted["rounds"] = int(given["rounds"])
    temp = [line.strip() for line in fields.get("bench_temp", "").splitlines() if line.strip()]
    relative = [name for name in temp if not os.path.isabs(name)]
    if relative:
        raise InvalidRequest(f"Directories for DiskBench: {relative[0]}: give whole paths, from / on")
    return wanted | ({"temp": temp} if temp else {})


def measure(call: str, wanted: dict[str, Any], result: int) -> str:
    """Measures, and writes the rows to the descriptor `result`; returns the measurement in a line."""
    import ascot.cluster

    if call == "diskbench":
        found = ascot.cluster.diskbench(**wanted, progress=None)
    else:
        found = ascot.cluster.netbench(**wanted, progress=None)
    rows = [list(row.values()) for row in found]
    with os.fdopen(result, "w") as file:
        json.dump({"columns": found.columns, "rows": rows, "notices": found.notices}, file)
    return f"{found.title}: {count_text(len(found))} rates"


def table_of_result(identifier: str, title: str, result: int) -> str:
    """The result in the descriptor `result` as a table for the page; nothing if there is none."""
    try:
        found = json.loads(os.pread(result, os.fstat(result).st_size, 0))
    except ValueError:
        return ""
    columns = found["columns"]
    rows = [[_text(name, value) for name, value in zip(columns, row, strict=True)] for row in found["rows"]]
    heads = [HEADS.get(name, name) for name in columns]
    notices = "".join(f"<li>{escape(notice)}</li>\n" for notice in found["notices"])
    left = len(rows) - ROWS_SHOWN
    more = f"<p>The first {ROWS_SHOWN} rows; ascot.cluster returns {count_text(left)} more.</p>\n" if left > 0 else ""
    return f"<ul>\n{notices}</ul>\n{pages.table(identifier, title, heads, rows[:ROWS_SHOWN])}{more}"


def _text(column: str, value: Cell) -> str:
    if column == "sender" and value is None:
        return "all others"
    if value is None:
        return ""
    if column == "bytes_per_s":
        return f"{bytes_text(float(value))}/s"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
