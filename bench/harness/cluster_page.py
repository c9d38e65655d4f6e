"""The result of the bench of clusters as a page: tables, and for each figure that was asked whether it was met.

Ratios are medians of the ratios within turns, so that a slow minute affects both sides.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from .units import GB, MB, binary, decimal, seconds

PHASES = ("map and shuffle", "sort and reduce")
DISK_PHASES = {"map and shuffle": "map-and-shuffle", "sort and reduce": "sort-and-reduce"}
SKEW_MAX = 1.3


def _good(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in runs if "seconds" in one]


def _spread(values: list[float]) -> str:
    return f"{min(values):.2f} - {max(values):.2f}"


def _runs(result: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return _good([turn[name] for turn in result["sorts"]["turns"] if name in turn])


def _rate(one: dict[str, Any], phase: str) -> float:
    found = next(share for share in one["phases"] if share["name"] == phase)
    return float(found["bytes"] / found["seconds"])


def _ratio(result: dict[str, Any], of: Callable[[dict[str, Any]], float | None]) -> list[float]:
    return [value for turn in result["sorts"]["turns"] if (value := of(turn)) is not None]


def _cpu(one: dict[str, Any]) -> float | None:
    """Processor seconds of a run. For sorts by Ascot, of the phases from the map on, without the start of processes;
    those of Spark are not known."""
    if "whole" in one:
        return None
    if "phase_cpu" in one:
        return sum(map(_without_driver, one["phase_cpu"].values()))
    return _without_driver(one["all_cpu"]) if "all_cpu" in one else one.get("cpu")


def _without_driver(kinds: dict[str, float]) -> float:
    """The driver's processor time has that of the bench, which looks at all processes."""
    return sum(seconds for kind, seconds in kinds.items() if kind != "driver")


# ---------------------------------------------------------------- tables


def _programs(result: dict[str, Any]) -> list[str]:
    size, sorts = result["size"], result["sorts"]
    first = sorts["variants"][0]
    lines = ["| program | time | min - max | rate | time / Ascot's | processor seconds per GB |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: |")
    choice = sorts["choice"]["best"]
    labels = {name: f"`ascot.cluster.sort`, {name}" for name in sorts["variants"]}
    labels |= {"Ray Data": f"Ray Data, {choice['ray-data']}", "Spark": f"Spark, {choice['spark']}"}
    labels |= {"one process": f"`ascot sort` within {binary(result['memory'] * result['nodes'])}"}
    labels |= {"one process, little memory": "`ascot sort` within a quarter of the data"}
    labels |= {"TCP, group": "plain TCP, records grouped", "TCP, move": "plain TCP, sendfile (bytes moved only)"}
    labels |= {"Arrow Flight": "Arrow Flight (bytes moved only)"}
    for name, label in labels.items():
        runs = _runs(result, name)
        if not runs:
            failed = [turn[name]["error"] for turn in sorts["turns"] if "error" in turn.get(name, {})]
            tried = sorts["choice"]["tried"].get({"Ray Data": "ray-data", "Spark": "spark"}.get(name, ""), {})
            failed += [one["error"] for one in tried.values() if "error" in one]
            lines.append(f"| {label} | failed: {(failed or ['not run'])[0][:160]} |  |  |  |  |")
            continue
        times = [one["seconds"] for one in runs]
        median = statistics.median(times)
        pairs = _ratio(result, lambda turn, name=name: _times(turn, name, first))  # type: ignore[misc]
        used = [value for one in runs if (value := _cpu(one)) is not None]
        cpu = f"{statistics.median(used) / size * GB:.1f}" if used else ""
        lines.append(
            f"| {label} | {median:.2f} s | {_spread(times)} | {size / median / MB:.0f} MB/s "
            f"| {statistics.median(pairs):.2f} | {cpu} |"
        )
    return lines


def _times(turn: dict[str, Any], name: str, base: str) -> float | None:
    if "seconds" not in turn.get(name, {}) or "seconds" not in turn.get(base, {}):
        return None
    return float(turn[name]["seconds"] / turn[base]["seconds"])


def _phases(result: dict[str, Any]) -> list[str]:
    lines = [
        "| phase | shuffle | rate | min - max | share of workers' time | DiskBench |",
        "| --- | --- | ---: | ---: | --- | ---: |",
    ]
    for phase in PHASES:
        disks = [turn["disk"].get(DISK_PHASES[phase], 0.0) for turn in result["sorts"]["turns"]]
        for name in result["sorts"]["variants"]:
            runs = _runs(result, name)
            if not runs:
                continue
            rates = [_rate(one, phase) / MB for one in runs]
            states = _states([next(p for p in one["phases"] if p["name"] == phase) for one in runs])
            lines.append(
                f"| {phase} | {name} | {statistics.median(rates):.0f} MB/s | {min(rates):.0f} - {max(rates):.0f} "
                f"| {states} | {statistics.median(disks) / MB:.0f} MB/s |"
            )
    return lines


def _states(phases: list[dict[str, Any]]) -> str:
    """The mean share of each state in the time of the workers; `writing` and `disk` are of the writers."""
    found: dict[str, list[float]] = {}
    for phase in phases:
        whole = sum(phase["seconds"] * node["workers"] for node in phase["nodes"]) or 1.0
        for state in phase["nodes"][0]["seconds"]:
            found.setdefault(state, []).append(sum(node["seconds"][state] for node in phase["nodes"]) / whole)
    return ", ".join(f"{state} {statistics.mean(values):.0%}" for state, values in found.items())


def _transports(result: dict[str, Any]) -> list[str]:
    size = result["size"]
    base = (
        statistics.median(one["cpu"] for one in _runs(result, "no transport"))
        if _runs(result, "no transport")
        else 0.0
    )
    lines = [
        "| transport | map and shuffle | of workers | of writers | of Ray | beyond the work without a transport |"
    ]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in result["sorts"]["variants"]:
        told = [cpu for one in _runs(result, name) if (cpu := one["phase_cpu"].get("map and shuffle"))]
        if not told:
            continue
        kinds = {kind: statistics.median(one.get(kind, 0.0) for one in told) for kind in ("worker", "writer", "ray")}
        whole = statistics.median(map(_without_driver, told))
        parts = " | ".join(f"{value / size * 1e9:.2f}" for value in (whole, *kinds.values(), whole - base))
        lines.append(f"| {name} | {parts} |")
    lines.append(f"| none: one process maps and appends | {base / size * 1e9:.2f} |  |  |  | 0.00 |")
    moved = {"TCP, group": "plain TCP, group", "TCP, move": "plain TCP, move", "Arrow Flight": "Arrow Flight, move"}
    for name, label in moved.items():
        if runs := _runs(result, name):
            cpu = statistics.median(one["cpu"] for one in runs) / size * 1e9
            lines.append(f"| {label} | {cpu:.2f} |  |  |  |  |")
    return lines


def _choices(result: dict[str, Any]) -> list[str]:
    choice = result["sorts"]["choice"]
    lines = [f"Settings of the peers, with {decimal(choice['size'])}:", ""]
    lines += ["| program | setting | time |", "| --- | --- | ---: |"]
    for program, tried in choice["tried"].items():
        for name, one in tried.items():
            told = f"{one['seconds']:.2f} s" if "seconds" in one else f"failed: {one['error'][:160]}"
            lines.append(f"| {program} | {name} | {told} |")
    return lines


def _skew(result: dict[str, Any]) -> list[str]:
    lines = ["| keys | time | min - max | time / uniform, medians of turns |", "| --- | ---: | ---: | ---: |"]
    for name, ratios in _skew_ratios(result).items():
        times = [one["seconds"] for one in result["skew"] if one["job"] == name and "seconds" in one]
        lines.append(
            f"| {name} | {statistics.median(times):.2f} s | {_spread(times)} | {statistics.median(ratios):.2f} |"
        )
    failed = [f"- {one['job']}: {one['error'][:200]}" for one in result["skew"] if "error" in one]
    return lines + [""] * bool(failed) + failed


def _skew_ratios(result: dict[str, Any]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    uniform = None
    for one in result["skew"]:
        if one["job"] == "uniform":
            uniform = one.get("seconds")
        if uniform and "seconds" in one:
            found.setdefault(one["job"], []).append(one["seconds"] / uniform)
    return found


def _sizes(result: dict[str, Any]) -> list[str]:
    store = result["store"]
    memory = binary(result["memory"])
    columns = (f"most in an object store, of {binary(store)}", "spilled by Ray", f"memory of a node, of {memory}")
    lines = [f"| data | shuffle | time | `ascot sort` | {' | '.join(columns)} |"]
    lines.append("| ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    for one in result["sizes"]:
        if "error" in one:
            lines.append(f"| {decimal(one['size'])} | {one['job']} | failed: {one['error'][:160]} |  |  |  |  |")
            continue
        alone = seconds(one["alone"]) if one.get("alone") else ""
        lines.append(
            f"| {decimal(one['size'])} | {one['job']} | {seconds(one['seconds'])} | {alone} "
            f"| {binary(one['store_peak'])} | {decimal(one['spilled'])} | {binary(one['memory_peak'])} |"
        )
    return lines


def _settings(result: dict[str, Any]) -> list[str]:
    runs = result["settings"]["runs"]
    names = list(dict.fromkeys(one["job"] for one in runs))
    usual = {phase: _median_rate(runs, "as it is", phase) for phase in PHASES}
    usual_time = _median_time(runs, "as it is")
    lines = [
        "| setting | time | time / as it is | map and shuffle | sort and reduce |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name in names:
        good = [one for one in runs if one["job"] == name and "seconds" in one]
        if not good:
            error = next(one["error"] for one in runs if one["job"] == name)
            lines.append(f"| {name} | failed: {error[:160]} |  |  |  |")
            continue
        time = _median_time(runs, name)
        parts = []
        for phase in PHASES:
            rate = _median_rate(runs, name, phase)
            parts.append(f"{rate / MB:.0f} MB/s ({rate / usual[phase]:.2f})")
        lines.append(f"| {name} | {time:.2f} s | {time / usual_time:.2f} | {' | '.join(parts)} |")
    return lines


def _predictions(result: dict[str, Any]) -> list[str]:
    lines = [
        "| predicted: 100 TB on 296 nodes | mappers of a node | start | map and shuffle | sort and reduce | in all |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, plan in [*result["settings"]["predicted"].items(), *result["settings"].get("at_rates", {}).items()]:
        phases = [f"{one['seconds']:.0f} s, {one['bound_by']}" for one in plan["phases"]]
        start, whole = f"{plan['overhead_seconds']:.0f} s", f"{plan['seconds']:.0f} s"
        rate = plan.get("mappers_bytes_per_s")
        mappers = "" if rate is None else f"{rate / GB:.1f} GB/s"
        lines.append(f"| {name} | {mappers} | {start} | {' | '.join(phases)} | {whole} |")
    return lines


def _median_time(runs: list[dict[str, Any]], name: str) -> float:
    return statistics.median(one["seconds"] for one in _good(runs) if one["job"] == name)


def _median_rate(runs: list[dict[str, Any]], name: str, phase: str) -> float:
    return statistics.median(_rate(one, phase) for one in _good(runs) if one["job"] == name)


# ---------------------------------------------------------------- what was asked


def _line(what: str, values: list[float], wanted: float, *, at_most: bool = False) -> str:
    if not values:
        return f"| {what} | {wanted:.2f} | not measured |  |"
    median = statistics.median(values)
    spread = _spread(values) if len(values) > 1 else "one run"
    met = median <= wanted if at_most else median >= wanted
    sign = "at most" if at_most else "at least"
    return f"| {what} | {sign} {wanted:.2f} | {median:.2f} ({spread}) | {'met' if met else '**missed**'} |"


def _share_of_one_process(name: str) -> float:
    """The share of the rate of `ascot sort` that is asked of a shuffle."""
    return 0.5 if "direct" in name else 0.3


def _asked(result: dict[str, Any]) -> list[str]:
    lines = ["| asked | wanted | measured, median of turns (min - max) | |", "| --- | ---: | ---: | --- |"]
    if "sorts" in result:
        lines += _asked_of_sorts(result)
    if "skew" in result:
        for name, ratios in _skew_ratios(result).items():
            if name != "uniform":
                lines.append(_line(f"time with keys {name} / uniform", ratios, SKEW_MAX, at_most=True))
    if "sizes" in result:
        good = [one for one in result["sizes"] if "seconds" in one]
        for one in good:
            # One process sorts less in its memory, without spills.
            if one.get("alone") and one["size"] > result["memory"] * result["nodes"]:
                what = f"{one['job']}: rate / that of `ascot sort`, {decimal(one['size'])}"
                lines.append(_line(what, [one["alone"] / one["seconds"]], _share_of_one_process(one["job"])))
        fullest: dict[int, int] = {}
        for one in good:
            fullest[one["size"]] = max(fullest.get(one["size"], 0), one["store_peak"])
        peaks = ", ".join(f"{binary(peak)} at {decimal(size)}" for size, peak in fullest.items())
        bounded = good and all(one["store_peak"] <= result["store"] and one["spilled"] == 0 for one in good)
        lines.append(
            f"| object store, bounded whatever the data size | at most {binary(result['store'])} | {peaks} "
            f"| {'met at these sizes' if bounded else '**missed**'} |"
        )
    return lines


def _asked_of_sorts(result: dict[str, Any]) -> list[str]:
    lines = []
    for name in result["sorts"]["variants"]:
        is_direct = "direct" in name
        for peer in ("Ray Data", "Spark"):
            ratios = _ratio(result, lambda turn, name=name, peer=peer: _times(turn, peer, name))  # type: ignore[misc]
            lines.append(_line(f"{name}: rate / {peer}'s", ratios, 3.0))
        ratios = _ratio(result, lambda turn, name=name: _times(turn, "one process", name))  # type: ignore[misc]
        lines.append(_line(f"{name}: rate / that of `ascot sort`", ratios, _share_of_one_process(name)))
        phase = "sort and reduce"
        shares = _ratio(result, lambda turn, name=name: _of_disk(turn, name))  # type: ignore[misc]
        lines.append(_line(f"{name}: {phase} / DiskBench", shares, 0.85))
        shares = _ratio(result, lambda turn, name=name: _of_limit(turn, name, result["size"]))  # type: ignore[misc]
        what = f"{name}: map and shuffle / the lower of DiskBench and the grouping TCP shuffle"
        lines.append(_line(what if is_direct else f"{what} (asked of direct only)", shares, 0.85))
    return lines


def _of_disk(turn: dict[str, Any], name: str) -> float | None:
    if "seconds" not in turn[name]:
        return None
    return _rate(turn[name], "sort and reduce") / float(turn["disk"]["sort-and-reduce"])


def _of_limit(turn: dict[str, Any], name: str, size: int) -> float | None:
    if "seconds" not in turn[name]:
        return None
    limit = min(turn["disk"]["map-and-shuffle"], size / turn["TCP, group"]["seconds"])
    return _rate(turn[name], "map and shuffle") / float(limit)


def markdown(result: dict[str, Any]) -> str:
    """The page."""
    host = result["machine"]
    used = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    lines = [
        "# Clusters",
        "",
        f"{host['cores']} cores ({host['processor']}), {decimal(host['memory_bytes'])} of memory,",
        f"{host['filesystem']}. {used}.",
        "",
        f"{decimal(result['size'])} of 100-byte records on {result['nodes']} nodes of Ray on this machine, with",
        f"{binary(result['memory'])} of memory and one worker each; programs in turns ({result['repeats']}),",
        f"{'cold' if result['cold'] else 'with what the page cache has'}.",
        "Times are without the start of clusters, JVMs and processes, and with the sync of outputs.",
        "",
        "## What was asked",
        "",
        *_asked(result),
    ]
    if sorts := result.get("sorts"):
        runs = _runs(result, sorts["variants"][0])
        starts = [one["start"] for one in runs]
        lines += [
            "", "## Programs", "", *_programs(result), "",
            f"Start of the nodes: {statistics.median(sorts['starts']):.1f} s ({_spread(sorts['starts'])}); of the",
            f"processes of a job: {statistics.median(starts):.1f} s ({_spread(starts)})." if starts else "",
            "", *_choices(result),
            "", "## Phases", "", *_phases(result), "",
            "`writing` and `disk` are of the writers, beside the workers.",
            "", "## Processor seconds per GB in map and shuffle", "", *_transports(result),
        ]  # fmt: skip
    if "skew" in result:
        lines += ["", "## Skew", "", *_skew(result)]
    if "sizes" in result:
        lines += ["", "## Object store", "", *_sizes(result)]
    if "settings" in result:
        about = "One setting changed at a time, two turns, the second in reverse order; in brackets: rate / as it is."
        lines += [
            "", "## Settings", "", about, "", *_settings(result), "",
            "`ascot plan cluster` has two of these settings: the sample, and the connections of a pair of nodes,",
            "which are here the workers of a node times the directories of `temp`. The others are predicted by their",
            "processor time alone: the 32 cores of a published node are taken to need as long for a byte as all",
            "processes here, except the driver. The disks have the published rate with every setting.", "",
            *_predictions(result),
        ]  # fmt: skip
    return "\n".join(lines) + "\n"
