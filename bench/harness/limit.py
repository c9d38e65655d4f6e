"""The limit of the volume: fio reads one file and writes another at once, over block sizes and depths.

The limit of a sort in two passes is half of the duplex rate: each pass reads and writes everything once, and
the slower of the two directions paces the pass. Both files are laid out before and accessed directly, past the
page cache: writes that make a file grow measure the file system, not the volume, and are several times slower.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .units import GIB

BLOCKS = ("256k", "1m", "4m")
DEPTHS = (4, 8, 16)


def missing() -> str:
    """The reason why the limit cannot be measured, or empty."""
    return "" if shutil.which("fio") else "fio is not installed"


def disk(quick: bool) -> int:
    """Bytes of disk the measurement takes: the file read, and one twice as long to write."""
    return 3 * _file_size(quick)


def _file_size(quick: bool) -> int:
    return GIB if quick else 4 * GIB


def arguments(work: Path, block: str, depth: int, seconds: int, size: int, ways: str) -> list[str]:
    """fio's command line; `ways` is `read`, `write` or `duplex`."""
    argv = ["fio", "--output-format=json", "--direct=1", "--ioengine=io_uring", "--time_based"]
    argv += [f"--runtime={seconds}", f"--bs={block}", f"--iodepth={depth}"]
    if ways != "write":
        argv += ["--name=read", "--rw=read", f"--filename={work / 'fio-read'}", f"--size={size}"]
    if ways != "read":
        argv += ["--name=write", "--rw=write", f"--filename={work / 'fio-write'}", f"--size={2 * size}"]
    return argv


def rates(report: dict[str, Any]) -> tuple[float, float]:
    """Bytes per second (read, written) of a fio report, summed over its jobs."""
    jobs = report["jobs"]
    return sum(j["read"]["bw_bytes"] for j in jobs), sum(j["write"]["bw_bytes"] for j in jobs)


def _lay_out(work: Path, size: int) -> None:
    """Writes both files in full."""
    for ways, file_size in (("read", size), ("write", 2 * size)):
        argv = ["fio", "--name=lay-out", "--rw=write", "--direct=1", "--bs=4m", "--fallocate=native"]
        done = subprocess.run(
            [*argv, f"--filename={work / f'fio-{ways}'}", f"--size={file_size}"], capture_output=True
        )
        if done.returncode:
            raise RuntimeError(f"fio failed: {done.stderr.decode(errors='replace').strip()[-300:]}")


def _measure(work: Path, block: str, depth: int, seconds: int, size: int, ways: str) -> tuple[float, float]:
    argv = arguments(work, block, depth, seconds, size, ways)
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        done = subprocess.run([word.replace("io_uring", "libaio") for word in argv], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"fio failed: {done.stderr.strip()[-300:]}")
    return rates(json.loads(done.stdout[done.stdout.index("{") :]))


def best(grid: list[dict[str, Any]]) -> dict[str, Any]:
    """The grid point whose slower direction is fastest."""
    return max(grid, key=lambda point: min(point["read_bytes_per_s"], point["write_bytes_per_s"]))


def measure(work: Path, quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """The volume's rates alone and at once, and the limit in bytes of input per second."""
    seconds, size = 2 if quick else 5, _file_size(quick)
    grid = []
    try:
        _lay_out(work, size)
        for block in BLOCKS:
            for depth in DEPTHS:
                read, written = _measure(work, block, depth, seconds, size, "duplex")
                say(f"  both at once, {block} x {depth}: read {read / 1e6:.0f}, write {written / 1e6:.0f} MB/s")
                grid.append({"block": block, "depth": depth, "read_bytes_per_s": read, "write_bytes_per_s": written})
        top = best(grid)
        read_alone, _ = _measure(work, top["block"], top["depth"], seconds, size, "read")
        _, write_alone = _measure(work, top["block"], top["depth"], seconds, size, "write")
    finally:
        for name in ("fio-read", "fio-write"):
            with contextlib.suppress(FileNotFoundError):
                (work / name).unlink()
    duplex = min(top["read_bytes_per_s"], top["write_bytes_per_s"])
    command = " ".join(arguments(work, top["block"], top["depth"], seconds, size, "duplex"))
    return {
        "command": command.replace(str(work), "DIR"),
        "grid": grid,
        "best": top,
        "read_alone_bytes_per_s": read_alone,
        "write_alone_bytes_per_s": write_alone,
        "duplex_bytes_per_s": duplex,
        "limit_bytes_per_s": duplex / 2,
    }
