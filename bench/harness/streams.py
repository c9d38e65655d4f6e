"""Streams of elements: beside a loop over a slice that is copied block by block, and direct ones beside fio.

The library's example `elements` times both loops in turns, in one process and from the page cache. Direct streams
and fio move the same file by the same blocks and depth, in turns, past the page cache.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import limit, machine
from .units import MIB

LOOP_BYTES = 256_000_000
LOOP_ROUNDS = 3
"""Rounds of the loops, which are short, for each round of the direct streams."""
DIRECT_BYTES = 3 << 30
BLOCKS = ((1 * MIB, 8), (4 * MIB, 4))
"""Bytes of a block, and requests in flight."""
HUGE_PAGES = 32
KEPT = Path("/proc/sys/vm/nr_hugepages")
ELEMENTS_SHARE = 0.8
DIRECT_SHARE = 0.9


def _run(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{argv[0]} failed: {done.stderr.strip()[-300:]}")
    return done.stdout


def _has_huge_pages() -> bool:
    """Whether the system keeps huge pages for the buffers of fio."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return any(line.startswith("HugePages_Free:") and int(line.split()[1]) >= HUGE_PAGES for line in lines)


@contextlib.contextmanager
def _huge_pages() -> Iterator[None]:
    """Has the system keep huge pages, with which fio is faster, if we may; afterwards it keeps as many as before."""
    before = KEPT.read_text()
    with contextlib.suppress(OSError):
        KEPT.write_text(str(2 * HUGE_PAGES))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            KEPT.write_text(before)


def _fio(path: Path, ways: str, block: int, depth: int) -> float:
    argv = ["fio", "--output-format=json", "--name=one", "--direct=1", "--ioengine=io_uring", "--fallocate=native"]
    argv += [f"--rw={ways}", f"--filename={path}", f"--size={DIRECT_BYTES}", f"--bs={block}", f"--iodepth={depth}"]
    argv += ["--iomem=shmhuge"] if _has_huge_pages() else []
    out = _run(argv)
    read, written = limit.rates(json.loads(out[out.index("{") :]))
    return read if ways == "read" else written


def _direct(example: str, directory: Path, ways: str, block: int, depth: int, rounds: int) -> dict[str, Any]:
    """fio and the stream in turns, on one file each: as whole blocks, as fio moves them, and element by element."""
    paths = {name: directory / f"streams-{name}" for name in ("blocks", "direct", "fio")}
    rates: dict[str, list[float]] = {name: [] for name in paths}
    for path in paths.values() if ways == "read" else ():
        _run([example, "blocks", "write", str(path), str(DIRECT_BYTES), str(block), str(depth)])
    for _ in range(rounds):
        for name, path in paths.items():
            if ways == "write":
                path.unlink(missing_ok=True)
            if name == "fio":
                rates[name].append(_fio(path, ways, block, depth))
            else:
                words = [name, ways, str(path), str(DIRECT_BYTES), str(block), str(depth)]
                rates[name].append(float(_run([example, *words])))
    for path in paths.values():
        path.unlink(missing_ok=True)

    def share(name: str) -> float:
        return statistics.median(one / other for one, other in zip(rates[name], rates["fio"], strict=True))

    return {
        "direction": ways, "block_bytes": block, "depth": depth,
        "blocks_share": share("blocks"), "elements_share": share("direct"),
        "blocks_bytes_per_s": statistics.median(rates["blocks"]),
        "elements_bytes_per_s": statistics.median(rates["direct"]),
        "fio_bytes_per_s": statistics.median(rates["fio"]), "rounds": rates,
    }  # fmt: skip


def run(example: Path, directory: Path, rounds: int) -> dict[str, Any]:
    """Measures everything, and returns the figures."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = _run([str(example), "loop", str(directory), str(LOOP_BYTES), str(LOOP_ROUNDS * rounds)]).splitlines()
    direct = []
    for keeps in (False, True):
        with _huge_pages() if keeps else contextlib.nullcontext():
            for block, depth in BLOCKS:
                for ways in ("write", "read"):
                    measured = _direct(str(example), directory, ways, block, depth, rounds)
                    direct.append({**measured, "fio_huge_pages": _has_huge_pages()})
    about = {"version": 2, "commit": machine.commit(), "machine": machine.describe(directory), "rounds": rounds}
    loops = [json.loads(line) for line in lines]
    return {**about, "loops": loops, "direct": direct}


def _reached(share: float, asked: float) -> str:
    return "yes" if round(share, 2) >= asked else "no"


def markdown(result: dict[str, Any]) -> str:
    """The page of the result."""
    lines = [
        "# Streams of elements",
        "",
        f"Measured at commit `{result['commit']}`.",
        "",
        f"{LOOP_BYTES // 10**6} MB of 32-bit integers through the page cache, beside a loop over a slice that is",
        f"copied block by block; medians of {LOOP_ROUNDS * result['rounds']} pairs. At least {ELEMENTS_SHARE:g} is",
        "asked.",
        "",
        "| stream | direction | elements | slices | rate of elements / slices | reached |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    for one in result["loops"]:
        times = [f"{one[key] * 1e3:.0f} ms" for key in ("elements_s", "slices_s")]
        share, reached = one["rate_share"], _reached(one["rate_share"], ELEMENTS_SHARE)
        lines.append(f"| {one['kind']} | {one['direction']} | {times[0]} | {times[1]} | {share:.2f} | {reached} |")
    lines += [
        "",
        f"{DIRECT_BYTES // MIB} MiB through direct streams and through fio, past the page cache; medians of pairs.",
        "fio runs with its usual buffers and with buffers in huge pages, which make this device faster.",
        "The stream moves whole blocks without looking into them, as fio does, and then single elements, which also",
        f"takes the time of the program's own loop. At least {DIRECT_SHARE:g} is asked.",
        "",
        "| block | depth | direction | buffers of fio | fio | blocks | elements | blocks / fio | elements / fio "
        "| reached |",
        "| ---: | ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for one in result["direct"]:
        rates = [f"{one[f'{name}_bytes_per_s'] / 1e6:.0f} MB/s" for name in ("fio", "blocks", "elements")]
        shares = [f"{one[f'{name}_share']:.2f}" for name in ("blocks", "elements")]
        pages = "huge pages" if one["fio_huge_pages"] else "usual"
        name = f"{one['block_bytes'] // MIB} MiB | {one['depth']} | {one['direction']} | {pages}"
        reached = _reached(one["blocks_share"], DIRECT_SHARE)
        lines.append(f"| {name} | {' | '.join([*rates, *shares])} | {reached} |")
    return "\n".join(lines) + "\n"
