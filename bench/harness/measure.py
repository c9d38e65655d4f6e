"""Running one command and measuring it: cold cache, one cgroup, the sync of its output in the time.

What a run reports
    seconds      from start to exit plus `sync -f` of the volume, the same for everybody
    device_*     sectors the volume moved meanwhile (spills and write-back included), from /proc/diskstats;
                 other programs on the same volume count too, so the machine should be quiet
    process_*    what the kernel charged to the command and the children it waited for
    peak_cgroup  the group's high-water mark, page cache included
    peak_anon    the most anonymous memory seen in the group (sampled every 50 ms)
    max_resident the largest resident size of any one process
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .cgroup import MemoryGroup
from .units import binary

SECTOR = 512


@dataclass
class Command:
    """A command: an argument list (or a shell pipeline as `sh -c`), its variables, its output."""

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)


@dataclass
class Outcome:
    """One run, measured. `error` is empty when the command succeeded within its time."""

    seconds: float
    error: str = ""
    device_read: int | None = None
    device_written: int | None = None
    process_read: int = 0
    process_written: int = 0
    peak_cgroup: int = 0
    peak_anon: int = 0
    max_resident: int = 0
    cpu_seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.error

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def drop_caches() -> None:
    """Syncs all data and empties the page cache; prints a warning if that is not allowed. With ASCOT_BENCH_WARM, the
    cache stays: emptying it slows other programs of the machine."""
    os.sync()
    if os.environ.get("ASCOT_BENCH_WARM"):
        return
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        print("bench: cannot drop the page cache (not root): the runs are not cold", flush=True)


def disk_counters(volume: Path, stats: Path = Path("/proc/diskstats")) -> tuple[int, int] | None:
    """Bytes read and written so far by the device of `volume`, or None without a device."""
    device = os.stat(volume).st_dev
    return parse_diskstats(stats.read_text(), os.major(device), os.minor(device))


def parse_diskstats(text: str, major: int, minor: int) -> tuple[int, int] | None:
    """The (read, written) bytes of one device in the text of /proc/diskstats."""
    for line in text.splitlines():
        words = line.split()
        if len(words) > 9 and (int(words[0]), int(words[1])) == (major, minor):
            return int(words[5]) * SECTOR, int(words[9]) * SECTOR
    return None


class _Sampler:
    """Watches a group's anonymous memory while a command runs."""

    def __init__(self, group: MemoryGroup | None) -> None:
        self.peak = 0
        self._group = group
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while self._group and not self._stop.wait(0.05):
            self.peak = max(self.peak, self._group.resident())

    def __enter__(self) -> _Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def _wait(process: subprocess.Popen[bytes], timeout: float) -> tuple[int, Any, bool]:
    """Exit status, resource usage, and whether the time ran out (then the process group is killed)."""
    late = False
    descriptor = os.pidfd_open(process.pid)
    try:
        ready, _, _ = select.select([descriptor], [], [], timeout)
        if not ready:
            late = True
            _kill_session(process.pid)
    except BaseException:
        _kill_session(process.pid)
        os.wait4(process.pid, 0)
        process.returncode = -9
        raise
    finally:
        os.close(descriptor)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage, late


def _kill_session(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, 9)


def tail_of(log: Path, lines: int = 3, width: int = 400) -> str:
    """The last nonempty lines of a log, for an error message."""
    text = log.read_text(errors="replace") if log.exists() else ""
    useful = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(useful[-lines:])[-width:]


def explain_exit(code: int, late: bool, kills: int, limit: int, timeout: float, log: Path) -> str:
    """The reason of a failed run, or empty."""
    if late:
        return f"stopped: not done after {timeout:.0f} s (see how long a run may take, bench/README.md)"
    if code == 0:
        return ""
    if kills:
        return f"out of memory: killed by the kernel at the cgroup's {binary(limit)}"
    name = f"signal {-code}" if code < 0 else f"exit status {code}"
    return f"{name}: {tail_of(log)}".rstrip(": ")


def run(command: Command, *, limit: int | None, volume: Path, timeout: float, log: Path) -> Outcome:
    """Runs `command` cold inside a group limited to `limit` bytes (None: no group) and measures it."""
    group = MemoryGroup(f"ascot-bench-{os.getpid()}-{time.monotonic_ns()}", limit) if limit else None
    with contextlib.ExitStack() as stack:
        if group:
            stack.enter_context(group)
        drop_caches()
        return _run_in(group, command, volume, timeout, log)


def _run_in(group: MemoryGroup | None, command: Command, volume: Path, timeout: float, log: Path) -> Outcome:
    argv = group.wrap(command.argv) if group else command.argv
    before = disk_counters(volume)
    with log.open("wb") as output, _Sampler(group) as sampler:
        start = time.perf_counter()
        process = subprocess.Popen(
            argv,
            env={**os.environ, **command.env},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        code, usage, late = _wait(process, timeout)
        subprocess.run(["sync", "-f", str(volume)], check=True)
        seconds = time.perf_counter() - start
    kills, limit = (group.kills(), group.limit) if group else (0, 0)
    after = disk_counters(volume)
    moved = (after[0] - before[0], after[1] - before[1]) if before and after else (None, None)
    return Outcome(
        seconds=seconds,
        error=explain_exit(code, late, kills, limit, timeout, log),
        device_read=moved[0],
        device_written=moved[1],
        process_read=usage.ru_inblock * SECTOR,
        process_written=usage.ru_oublock * SECTOR,
        peak_cgroup=group.peak() if group else 0,
        peak_anon=sampler.peak,
        max_resident=usage.ru_maxrss * 1024,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
    )


@contextlib.contextmanager
def mounted(argv: list[str], at: Path) -> Iterator[Path]:
    """Mounts a directory with a command that serves it in the foreground, and unmounts it at the end."""
    at.mkdir(exist_ok=True)
    process = subprocess.Popen([*argv, str(at)])
    try:
        for _ in range(500):
            if os.path.ismount(at):
                break
            time.sleep(0.02)
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=False)
        process.wait(30)
