"""The Python package against the command, the libraries, and sorts of Arrow batches by DuckDB and Polars.

files   `ascot.sort` of a file, timed in its process, beside the command from its start to its end
arrow   batches of a generator, sorted within a cap in a control group, each program with its best setting; the peers
        also without a group, because Polars does not stay within one
memory  the same with so much memory that everything fits
index   `index.get` of a thousand keys at once beside the call of the Rust library

Programs take turns; figures are medians. Rows are 8 bytes of key and 40 of text.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from . import machine, measure
from .units import MIB, binary, decimal

SCRIPT = Path(__file__).resolve().parent.parent / "peers" / "arrow_sort.py"
PARTS = ("files", "arrow", "memory", "index")
ROW_BYTES = 48
INTERPRETER = 192 * MIB
"""What interpreter, libraries and input may take in the group beside the cap."""
BATCH = 4 * MIB
TIMEOUT = 900.0
KEYS = 1000
GETS = 30


def _say(text: str) -> None:
    print(f"bench: {text}", flush=True)


def _files(ascot: str, work: Path, size: int, memory: int, repeats: int) -> dict[str, Any]:
    """Seconds of `ascot.sort` of a file of records, and of the command from its start to its end.

    They take turns, and the one that begins changes: what a run leaves to the next one falls on both.
    """
    source, target = work / "in.rec", work / "out.rec"
    subprocess.run([ascot, "gen", str(size // 100), "-o", str(source)], check=True)
    code = (
        "import time, sys, ascot; source, target, temp, memory = sys.argv[1:]; since = time.perf_counter();"
        "ascot.sort(source, layout=ascot.Fixed(100, key=slice(0, 10)), to=target, memory=int(memory), temp=temp);"
        "print(time.perf_counter() - since)"
    )
    words = ["--format", "fixed:100", "--key", "0..10", "--memory", f"{memory}b", "--temp", str(work)]
    command = [ascot, "sort", str(source), *words, "-o", str(target), "--quiet"]
    package = [sys.executable, "-c", code, str(source), str(target), str(work), str(memory)]

    def run_command() -> float:
        since = time.perf_counter()
        subprocess.run(command, check=True)
        return time.perf_counter() - since

    def run_package() -> float:
        return float(subprocess.run(package, check=True, capture_output=True, text=True).stdout)

    runs = {"command": run_command, "package": run_package}
    found: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(4 * repeats):
        for name in sorted(runs, reverse=repeat % 2 == 1):
            measure.drop_caches()
            found[name].append(runs[name]())
            target.unlink()
        _say(f"  files: command {found['command'][-1]:.2f} s, package {found['package'][-1]:.2f} s")
    source.unlink()
    return {"size": size, "memory": memory, **found}


def _once(program: str, settings: list[str], rows: int, work: Path, limit: int | None) -> dict[str, Any]:
    temp = work / "temp"
    shutil.rmtree(temp, ignore_errors=True)
    temp.mkdir()
    log = work / "log"
    words = [sys.executable, str(SCRIPT), program, str(rows), "--temp", str(temp), *settings]
    told = measure.run(measure.Command(words), limit=limit, volume=work, timeout=TIMEOUT, log=log)
    shutil.rmtree(temp, ignore_errors=True)
    if told.error:
        _say(f"  {program} {' '.join(settings)}: {told.error}")
        return {"error": told.error}
    figures = json.loads(log.read_text().splitlines()[-1])
    more = figures["peak_bytes"] - figures["before_bytes"]
    _say(f"  {program} {' '.join(settings)}: {figures['seconds']:.2f} s, {binary(more)} more resident")
    return {**figures, "more_bytes": more}


def _candidates(memory: int | None) -> dict[str, list[list[str]]]:
    """The settings of each program. DuckDB and Polars exceed their limit, so they also get less than the cap."""
    if memory is None:
        return {
            "ascot": [["--memory", str(12 << 30)]],
            "duckdb": [["--unordered"], []],
            "polars": [[]],
            "polars-streaming": [[]],
        }
    limits = [memory, memory * 3 // 4, memory // 2]
    orders: list[list[str]] = [["--unordered"], []]
    return {
        "ascot": [["--memory", str(memory)]],
        "duckdb": [["--memory", str(limit), *order] for limit in limits for order in orders],
        "polars": [[]],
        "polars-streaming": [[], *(["--memory", str(limit)] for limit in limits)],
    }


def _arrow(
    work: Path, rows: int, memory: int | None, repeats: int, limits: list[int | None]
) -> list[dict[str, Any]]:
    """Every program with its best setting, in turns, in a group of each limit (none: without a group)."""
    chosen = []
    for limit in limits:
        for program, settings in _candidates(memory).items():
            if program == "ascot" and limit is None and len(limits) > 1:
                continue
            tried = [(one, _once(program, one, rows, work, limit)) for one in settings]
            good = [(told["seconds"], one) for one, told in tried if "seconds" in told]
            best = min(good)[1] if good else None
            tries = [{"setting": " ".join(one), **told} for one, told in tried]
            chosen.append({"program": program, "limit": limit, "best": best, "tried": tries, "runs": []})
    for repeat in range(repeats):
        # The one that begins changes: a machine slows down and recovers.
        for one in chosen if repeat % 2 == 0 else reversed(chosen):
            if one["best"] is not None:
                one["runs"].append(_once(one["program"], one["best"], rows, work, one["limit"]))
    return chosen


def _index(ascot: str, get: Path, work: Path, repeats: int) -> dict[str, Any]:
    """Seconds of a thousand keys at once, by the package and by the Rust library: warm, medians of each process.

    They take turns as those of files.
    """
    directory, keys = work / "run.dir", work / "keys"
    code = (
        "import random, sys, ascot; writer = ascot.index.writer(sys.argv[1], key_bytes=8, value_bytes=40)\n"
        "for epoch in range(4):\n"
        "    numbers = random.Random(epoch).sample(range(500_000), 500_000)\n"
        "    writer.append([n.to_bytes(8, 'big') for n in numbers], [n.to_bytes(40, 'big') for n in numbers])\n"
        "    writer.end_epoch()\n"
        "writer.close()"
    )
    subprocess.run([sys.executable, "-c", code, str(directory)], check=True)
    keys.write_bytes(b"".join(n.to_bytes(8, "big") for n in random.Random(5).sample(range(500_000), KEYS)))
    query = (
        "import json, sys, time, ascot\n"
        "index = ascot.index.open(sys.argv[1]); data = open(sys.argv[2], 'rb').read()\n"
        "keys = [data[at : at + 8] for at in range(0, len(data), 8)]; seconds = []\n"
        "for _ in range(int(sys.argv[3])):\n"
        "    since = time.perf_counter(); found = index.get(keys); seconds.append(time.perf_counter() - since)\n"
        "print(json.dumps({'found': len(found), 'seconds': seconds}))"
    )
    commands = {
        "rust": [str(get), str(directory), str(keys), "8", str(GETS)],
        "package": [sys.executable, "-c", query, str(directory), str(keys), str(GETS)],
    }
    found: dict[str, list[float]] = {name: [] for name in commands}
    for repeat in range(4 * repeats):
        for name in sorted(commands, reverse=repeat % 2 == 1):
            told = json.loads(subprocess.run(commands[name], check=True, capture_output=True, text=True).stdout)
            if told["found"] != 4 * KEYS:
                raise RuntimeError(f"{name} found {told['found']} records of {4 * KEYS}")
            # The first query fills the cache.
            found[name].append(statistics.median(told["seconds"][1:]))
        rust, package = (1000 * found[name][-1] for name in ("rust", "package"))
        _say(f"  index: {rust:.2f} ms by the library, {package:.2f} ms by the package")
    shutil.rmtree(directory)
    return found


def run(
    ascot: str, get: Path, work: Path, sizes: dict[str, int], memory: int, parts: list[str], repeats: int
) -> dict[str, Any]:
    """Measures the `parts`; `sizes` are the bytes of the parts that have any."""
    versions = {name: machine.package_version(name) for name in ("ascot", "duckdb", "polars", "pyarrow")}
    about = {"version": 2, "commit": machine.commit(), "machine": machine.describe(work), "versions": versions}
    result: dict[str, Any] = {**about, "memory": memory, "sizes": sizes, "repeats": repeats}
    if "files" in parts:
        _say("files")
        result["files"] = _files(ascot, work, sizes["files"], memory, repeats)
    if "arrow" in parts:
        _say(f"arrow: {decimal(sizes['arrow'])} within {binary(memory)}")
        limit = memory + 2 * BATCH + INTERPRETER
        result["limit"] = limit
        result["arrow"] = _arrow(work, sizes["arrow"] // ROW_BYTES, memory, repeats, [limit, None])
    if "memory" in parts:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if free < 2 * sizes["memory"]:
            need = decimal(2 * sizes["memory"])
            _say(f"memory: left out, it needs {need} of free memory, and {decimal(free)} are free")
        else:
            _say(f"memory: {decimal(sizes['memory'])} in memory")
            result["rich"] = _arrow(work, sizes["memory"] // ROW_BYTES, None, repeats, [None])
    if "index" in parts:
        _say("index")
        result["index"] = _index(ascot, get, work, repeats)
    return result


def _table(rows: list[dict[str, Any]]) -> list[str]:
    ours = [run["seconds"] for one in rows if one["program"] == "ascot" for run in one["runs"] if "seconds" in run]
    lines = ["| program | setting | group | median | min - max | time / Ascot's | resident, beyond imports |"]
    lines.append("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for one in rows:
        good = [run for run in one["runs"] if "seconds" in run]
        group = binary(one["limit"]) if one["limit"] else "none"
        if not good:
            failed = [run["error"] for run in [*one["tried"], *one["runs"]] if "error" in run]
            reason = (failed or ["not run"])[-1].splitlines()[-1][:120]
            lines.append(f"| {one['program']} |  | {group} | failed: {reason} |  |  |  |")
            continue
        seconds = [run["seconds"] for run in good]
        median = statistics.median(seconds)
        ratio = f"{median / statistics.median(ours):.2f}" if ours else ""
        most = binary(max(run["more_bytes"] for run in good))
        setting = " ".join(one["best"]) or "as it is"
        spread = f"{min(seconds):.2f} - {max(seconds):.2f}"
        if len(good) < len(one["runs"]):
            spread += f", {len(one['runs']) - len(good)} of {len(one['runs'])} failed"
        lines.append(f"| {one['program']} | `{setting}` | {group} | {median:.2f} s | {spread} | {ratio} | {most} |")
    return lines


def markdown(result: dict[str, Any]) -> str:
    """The result as a page."""
    host, versions, sizes = result["machine"], result["versions"], result["sizes"]
    held = decimal(host["memory_bytes"])
    used = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = [
        "# The Python package",
        "",
        f"Measured at commit `{result['commit']}`.",
        "",
        f"{host['cores']} cores ({host['processor']}), {held} of memory, {host['filesystem']}.",
        f"{used}. Medians of {result['repeats']}; programs in turns.",
    ]
    if files := result.get("files"):
        command, package = (statistics.median(files[name]) for name in ("command", "package"))
        size, cap = decimal(files["size"]), binary(files["memory"])
        pairs = [after / before for before, after in zip(files["command"], files["package"], strict=True)]
        lines += [
            "", "## Files", "",
            f"{size} of records within {cap}, cold: the command {command:.2f} s as",
            f"a whole process, `ascot.sort` {package:.2f} s, the import not",
            f"counted; the median of the ratios of {len(pairs)} pairs is {statistics.median(pairs):.3f}.",
        ]  # fmt: skip
    if arrow := result.get("arrow"):
        size, cap = decimal(sizes["arrow"]), binary(result["memory"])
        lines += [
            "", "## Arrow batches within a cap", "",
            f"{size} (a 64-bit key and 40 characters) from a generator, sorted batches dropped as they",
            f"come, within {cap}. A group allows the cap, two batches of {binary(BATCH)}, and",
            f"{binary(INTERPRETER)} for interpreter, libraries and input.",
            "", *_table(arrow),
        ]  # fmt: skip
    if rich := result.get("rich"):
        about = f"{decimal(sizes['memory'])} of the same rows."
        lines += ["", "## Arrow batches in memory", "", about, "", *_table(rich)]
    if index := result.get("index"):
        rust, package = (1000 * statistics.median(index[name]) for name in ("rust", "package"))
        pairs = [after / before for before, after in zip(index["rust"], index["package"], strict=True)]
        lines += [
            "", "## Keys of an index", "",
            f"{KEYS:,} keys at once in four epochs of 500,000 records, warm: {rust:.2f} ms by the Rust call,",
            f"{package:.2f} ms by `index.get`; the median of the ratios of {len(pairs)} pairs of processes is",
            f"{statistics.median(pairs):.3f} ({min(pairs):.3f} to {max(pairs):.3f}).",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"
