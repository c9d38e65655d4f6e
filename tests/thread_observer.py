"""Watches the threads of a running command from outside: how long they live, and what the scheduler gave them."""

import contextlib
import os
import subprocess
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from support import ascot_binary, clean_environment

# The kernel counts a thread's time to the nanosecond until it ends, and then forgets it.
PAUSE_SECONDS = 0.004
MAIN = "main"
# What /proc shows for a fault of a page, and the numbers of mmap, mprotect, munmap, brk, mremap and madvise.
MAPPING_CALLS = ["-1", *("9 10 11 12 25 28" if os.uname().machine == "x86_64" else "222 226 215 214 216 233").split()]


@dataclass
class Seen:
    """All threads of one name: bounds of the time they lived, and their time on processors and waiting for one."""

    least_seconds: float = 0.0
    most_seconds: float = 0.0
    processor_seconds: float = 0.0
    delay_seconds: float = 0.0
    # Time of which the kernel's counts are not known: from the last look at a thread to its end.
    unseen_seconds: float = 0.0
    # Time asleep in a fault of a page or in a call that changes the address space, as far as looks found it there: it
    # waits for other threads that do the same, is on no processor and waits for none.
    mapping_seconds: float = 0.0


@dataclass
class Watched:
    """A finished command."""

    returncode: int
    stderr: str
    # User and system time of the whole process.
    processor_seconds: float
    # Time that the host took from the processors of this machine while the command ran. The kernel counts it neither
    # as a thread's time on a processor nor as its time waiting for one.
    stolen_seconds: float
    threads: dict = field(default_factory=dict)


@dataclass
class _Thread:
    name: str
    before: float
    first: float
    last: float = 0.0
    after: float = 0.0
    processor: int = 0
    delay: int = 0
    mapping: float = 0.0


def _look(tasks, pid, threads, now, before):
    for entry in os.listdir(tasks):
        # A thread may end while it is looked at.
        with contextlib.suppress(OSError):
            processor, delay, _ = (tasks / entry / "schedstat").read_text().split()
            name = (tasks / entry / "comm").read_text().rstrip("\n")
            # It lived when its figures were read: at some time from `now` to this moment.
            thread = threads.setdefault(entry, _Thread(name, before, time.monotonic()))
            # A thread has the name of the one that started it until it gives itself its own.
            thread.name = MAIN if int(entry) == pid else name
            if _is_mapping(tasks / entry):
                thread.mapping += now - max(thread.last, before)
            thread.last, thread.processor, thread.delay = now, int(processor), int(delay)
    for thread in threads.values():
        if thread.last < now and not thread.after:
            thread.after = time.monotonic()


def _is_mapping(task):
    """Whether a thread sleeps uninterruptibly in a fault of a page or in a call that changes the address space."""
    state = (task / "stat").read_text().rpartition(")")[2].split()[0]
    # Not every system lets a program see the calls of its child.
    with contextlib.suppress(PermissionError):
        return state == "D" and (task / "syscall").read_text().split()[0] in MAPPING_CALLS
    return False


def _stolen_seconds():
    """Time that the host has taken from all processors of this machine since it started."""
    with open("/proc/stat") as stat:
        return int(stat.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


def watch(*arguments, cwd=None, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, preexec_fn=None):
    """Runs `ascot ARGUMENTS` to its end and looks at its threads every few milliseconds."""
    command = [ascot_binary(), *map(os.fspath, arguments)]
    stolen = _stolen_seconds()
    before = time.monotonic()
    process = subprocess.Popen(
        command, cwd=cwd, env=clean_environment(), stdin=stdin, stdout=stdout, stderr=subprocess.PIPE,
        preexec_fn=preexec_fn,
    )  # fmt: skip
    threads = {}
    tasks = Path(f"/proc/{process.pid}/task")
    ended = 0
    while not ended:
        now = time.monotonic()
        with contextlib.suppress(OSError):
            _look(tasks, process.pid, threads, now, before)
        before = now
        time.sleep(PAUSE_SECONDS)
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
    process.returncode = os.waitstatus_to_exitcode(status)
    told = process.stderr.read().decode(errors="replace")
    process.stderr.close()
    end = time.monotonic()
    by_name = defaultdict(Seen)
    for thread in threads.values():
        seen = by_name[thread.name]
        seen.least_seconds += thread.last - thread.first
        seen.most_seconds += (thread.after or end) - thread.before
        seen.processor_seconds += thread.processor / 1e9
        seen.delay_seconds += thread.delay / 1e9
        seen.mapping_seconds += thread.mapping
        seen.unseen_seconds += (thread.after or end) - thread.last
    stolen = _stolen_seconds() - stolen
    return Watched(process.returncode, told, usage.ru_utime + usage.ru_stime, stolen, dict(by_name))
