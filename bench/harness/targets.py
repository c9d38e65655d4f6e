"""The targets of this project, compared with a result: target, measured value, met or not.

A target whose measurement is absent from the result is left out; one that lacks a partner to compare with
(no peer finished) says so.
"""

from __future__ import annotations

from typing import Any


def _entries(result: dict[str, Any], workload: str) -> dict[str, dict[str, Any]]:
    found = result["workloads"].get(workload, {})
    return {entry["name"]: entry for entry in found.get("contenders", [])}


def _rate(entry: dict[str, Any] | None) -> float | None:
    return entry.get("mb_per_s") if entry else None


def _target(what: str, asked: str, measured: str, met: bool | None) -> dict[str, Any]:
    return {"what": what, "asked": asked, "measured": measured, "met": met}


def _against_best(result: dict[str, Any], workload: str) -> list[dict[str, Any]]:
    """The lower of 4 times the best peer and 85 percent of the limit."""
    entries = _entries(result, workload)
    if "Ascot" not in entries:
        return []
    own = _rate(entries.pop("Ascot"))
    peers = {name: rate for name, entry in entries.items() if (rate := _rate(entry))}
    bounds = []
    if peers:
        best = max(peers, key=lambda name: peers[name])
        bounds.append((4 * peers[best], f"4 times {best}, {4 * peers[best]:.0f} MB/s"))
    limit = result["workloads"].get("limit", {}).get("limit_bytes_per_s")
    if limit:
        bounds.append((0.85 * limit / 1e6, f"85% of the limit, {0.85 * limit / 1e6:.0f} MB/s"))
    if not bounds:
        return []
    bound, asked = min(bounds)
    met = None if own is None else own >= bound
    return [_target(workload, f"at least {asked}", f"{own:.0f} MB/s" if own else "failed", met)]


def _against_one(result: dict[str, Any], workload: str, peer: str, factor: float) -> list[dict[str, Any]]:
    entries = _entries(result, workload)
    if "Ascot" not in entries:
        return []
    own, other = _rate(entries["Ascot"]), _rate(entries.get(peer))
    asked = f"at least {factor:g} times {peer}" if factor != 1 else f"faster than {peer}"
    if not own or not other:
        missing = "Ascot failed" if not own else f"{peer} gave no time"
        return [_target(workload, asked, missing, False if not own else None)]
    return [_target(workload, asked, f"{own / other:.2f} times ({own:.0f}, {other:.0f} MB/s)", own / other >= factor)]


def _startup(result: dict[str, Any]) -> list[dict[str, Any]]:
    entries = _entries(result, "startup")
    own, other = (entries.get(name, {}).get("median_s") for name in ("Ascot", "GNU sort"))
    if not own or not other:
        return []
    words = f"{own * 1000:.2f} ms, GNU sort {other * 1000:.2f} ms"
    return [_target("startup", "no slower than GNU sort", words, own <= other)]


def _scaling(result: dict[str, Any]) -> list[dict[str, Any]]:
    ratio = result["workloads"].get("scaling", {}).get("ratio")
    if ratio is None:
        return []
    return [_target("scaling", "at most 1.3 times per byte", f"{ratio:.2f} times", ratio <= 1.3)]


def judge(result: dict[str, Any]) -> list[dict[str, Any]]:
    """All targets that the result covers."""
    return [
        *_against_best(result, "records"),
        *_against_best(result, "u64"),
        *_against_one(result, "lines", "GNU sort", 3),
        *_against_one(result, "lines-key", "GNU sort", 3),
        *_against_one(result, "csv", "DuckDB", 1),
        *_against_one(result, "memory", "GNU sort", 3),
        *_startup(result),
        *_scaling(result),
        *_against_one(result, "tight", "GNU sort", 1),
    ]
