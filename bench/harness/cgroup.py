"""A memory cgroup around one run: the same hard limit for every contender, page cache included.

Version 1 (a `memory` hierarchy) and version 2 (one hierarchy) are both spoken. A group is made fresh for
each run, so that its peak and its count of kills belong to that run, and it is killed empty and removed at
the end, whatever happened. Invariant: the directory this class removes is the one it made.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


class CgroupUnavailable(Exception):
    """The bench cannot make a memory cgroup; the message says why."""


def locate(root: Path = ROOT) -> tuple[int, Path]:
    """The cgroup version in use for memory, and the directory below which groups can be made."""
    if (root / "memory" / "memory.limit_in_bytes").exists() or (root / "memory" / "cgroup.procs").exists():
        return 1, root / "memory"
    controllers = root / "cgroup.controllers"
    if controllers.exists() and "memory" in controllers.read_text().split():
        return 2, root
    raise CgroupUnavailable(
        f"no memory cgroup under {root}: mount one (mount -t cgroup -o memory none {root}/memory), "
        "or run with --no-cgroup, which leaves the page cache unlimited"
    )


class MemoryGroup:
    """One limited group; use as a context manager."""

    def __init__(self, name: str, limit: int, root: Path = ROOT) -> None:
        self.version, parent = locate(root)
        self.path = parent / name
        self.limit = limit

    def __enter__(self) -> MemoryGroup:
        try:
            if self.version == 2:
                control = self.path.parent / "cgroup.subtree_control"
                if "memory" not in control.read_text().split():
                    control.write_text("+memory")
            self.path.mkdir()
        except OSError as error:
            raise CgroupUnavailable(f"cannot make the cgroup {self.path}: {error.strerror}; run as root") from error
        try:
            self._limit()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _limit(self) -> None:
        if self.version == 1:
            (self.path / "memory.limit_in_bytes").write_text(str(self.limit))
            with contextlib.suppress(OSError):  # kernels without swap accounting lack this file
                (self.path / "memory.memsw.limit_in_bytes").write_text(str(self.limit))
            return
        (self.path / "memory.max").write_text(str(self.limit))
        with contextlib.suppress(OSError):
            (self.path / "memory.swap.max").write_text("0")

    def wrap(self, argv: list[str]) -> list[str]:
        """The command that runs `argv` inside the group: a shell joins the group, then executes it."""
        procs = shlex.quote(str(self.path / "cgroup.procs"))
        return ["/bin/sh", "-c", f'echo $$ > {procs} && exec "$@"', "sh", *argv]

    def peak(self) -> int:
        """Peak bytes of the group, including page cache; 0 if the kernel does not count them."""
        name = "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"
        with contextlib.suppress(OSError, ValueError):
            return int((self.path / name).read_text())
        return 0

    def resident(self) -> int:
        """Current bytes of the group without page cache: anonymous memory, including huge pages."""
        key = "total_rss" if self.version == 1 else "anon"
        with contextlib.suppress(OSError, ValueError):
            for line in (self.path / "memory.stat").read_text().splitlines():
                name, value = line.split()
                if name == key:
                    return int(value)
        return 0

    def kills(self) -> int:
        """Number of processes that the kernel killed in this group for lack of memory."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        with contextlib.suppress(OSError, ValueError):
            for line in (self.path / name).read_text().splitlines():
                key, value = line.split()
                if key == "oom_kill":
                    return int(value)
        return 0

    def kill(self) -> None:
        """Kills every process in the group and waits until it is empty."""
        for _ in range(200):
            try:
                pids = [int(word) for word in (self.path / "cgroup.procs").read_text().split()]
            except OSError:
                return
            if not pids:
                return
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def close(self) -> None:
        """Empties and removes the group; a second call does nothing."""
        self.kill()
        for _ in range(100):
            try:
                self.path.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.02)
            else:
                return
