"""What a node does over time: a thread of its writer looks at /proc about once a second.

A worker says what it does by the name of its main thread (`doing`), which the thread of the writer reads several
times a second. Nothing is shared, and nothing is left when a process is killed.

Invariants: a sample has a value for every column. At most SAMPLES_KEPT samples wait for the driver: of older ones,
neighbours become one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any

from ascot.cluster.series import COLUMNS, Series

__all__ = ["Sampler", "Written", "doing"]

SAMPLE_SECONDS = 1.0
# Looks at the states of workers for each sample.
LOOKS = 8
# Processors have ticks of this length, and nothing shorter has a share of them.
SHORTEST_SECONDS = 0.01
SAMPLES_KEPT = 256
# A process without processor time for so long may be stopped; one of Ray uses some all the time.
STILL_SECONDS = 3.0
# The name of a thread has at most 15 bytes.
PREFIX = "ascot:"
# States in which a worker works; in any other one without the prefix it has no call.
BUSY = ("reading", "grouping", "sorting", "reducing", "sampling")
PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
SECTOR = 512
LOOPBACK = "lo"


@contextmanager
def doing(state: str) -> Iterator[None]:
    """Names what this process does while the block runs, for the writer of its node."""
    name = f"/proc/{os.getpid()}/comm"
    before = _read(name).strip()
    _say(name, PREFIX + state)
    try:
        yield
    finally:
        _say(name, before)


def _say(name: str, state: str) -> None:
    # A system without this file has no states in its series.
    with suppress(OSError), open(name, "w") as file:
        file.write(state)


def _read(name: str) -> str:
    try:
        with open(name) as file:
            return file.read()
    except OSError:
        return ""


class Process:
    """Counters of a process of the job."""

    def __init__(self, number: int) -> None:
        self._place = f"/proc/{number}/"
        self.seconds = self.read = self.written = 0.0
        self.memory = 0
        # For how long it used no processor: that of Ray's threads is used also by one that waits.
        self.still_seconds = 0.0
        self._looked = monotonic()
        self.look()

    def state(self) -> str:
        """What it says that it does; empty without a call."""
        name = _read(self._place + "comm").strip()
        return name[len(PREFIX) :] if name.startswith(PREFIX) else ""

    def look(self) -> tuple[float, float, float]:
        """Processor seconds, and bytes read and written, since the last look."""
        before = (self.seconds, self.read, self.written)
        fields = _read(self._place + "stat").rpartition(")")[2].split()
        if len(fields) > 12:
            self.seconds = (int(fields[11]) + int(fields[12])) / TICKS
        self._look_at_rest(self.seconds == before[0] and len(fields) > 12 and fields[0] not in ("Z", "X"))
        sizes = _read(self._place + "statm").split()
        self.memory = (int(sizes[1]) - int(sizes[2])) * PAGE if sizes else 0
        moved = self.moved()
        self.read, self.written = moved if moved is not None else before[1:]
        return self.seconds - before[0], self.read - before[1], self.written - before[2]

    def _look_at_rest(self, is_still: bool) -> None:
        # While the process that looks does not run itself, it learns nothing of others.
        elapsed = min(monotonic() - self._looked, 2 * SAMPLE_SECONDS)
        self._looked = monotonic()
        self.still_seconds = self.still_seconds + elapsed if is_still else 0.0

    def moved(self) -> tuple[int, int] | None:
        """Bytes that it read from and wrote to storage; None where the system does not tell."""
        counted = dict(line.split(": ") for line in _read(self._place + "io").splitlines())
        return (int(counted["read_bytes"]), int(counted["write_bytes"])) if "write_bytes" in counted else None


class Machine:
    """Counters of the whole machine, whose network is the loopback if the node's address is on it."""

    def __init__(self, address: str) -> None:
        self._on_loopback = address.startswith("127.")
        self._disks = [name for name in _names("/sys/block") if os.path.exists(f"/sys/block/{name}/device")]
        self._store = ""
        self._counts = self._now()

    def _now(self) -> tuple[float, ...]:
        """Busy and all ticks of processors, bytes of disks read and written, bytes received and sent."""
        ticks = [int(one) for one in _read("/proc/stat").partition("\n")[0].split()[1:9]] or [0] * 8
        # Waiting for disks (the fifth) is not work of a processor.
        idle = ticks[3] + ticks[4]
        disks = [_read(f"/sys/block/{name}/stat").split() for name in self._disks]
        read = sum(int(fields[2]) for fields in disks if len(fields) > 6)
        written = sum(int(fields[6]) for fields in disks if len(fields) > 6)
        received = sent = 0
        for line in _read("/proc/net/dev").splitlines()[2:]:
            name, _, counts = line.partition(":")
            if (name.strip() == LOOPBACK) == self._on_loopback:
                fields = counts.split()
                received, sent = received + int(fields[0]), sent + int(fields[8])
        return sum(ticks) - idle, sum(ticks), read * SECTOR, written * SECTOR, received, sent

    def look(self) -> tuple[float, ...]:
        """The same since the last look, with the share of busy ticks in place of both."""
        now, before = self._now(), self._counts
        self._counts = now
        busy, ticks, *moved = (max(0.0, new - old) for new, old in zip(now, before, strict=True))
        return (busy / ticks if ticks else 0.0, *moved)

    def store_bytes(self) -> int:
        """Memory of the node's object store: of the file that Ray's process has open, the parent of this one."""
        for _ in range(2):
            with suppress(OSError):
                if self._store and "plasma" in os.readlink(self._store):
                    return os.stat(self._store).st_blocks * SECTOR
            self._store = self._find_store()
        return 0

    @staticmethod
    def _find_store() -> str:
        place = f"/proc/{os.getppid()}/fd"
        for name in _names(place):
            with suppress(OSError):
                if "plasma" in os.readlink(f"{place}/{name}") and os.stat(f"{place}/{name}").st_blocks:
                    return f"{place}/{name}"
        return ""


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


class Written:
    """What was written from the first to the last buffer.

    Of the first one it is known when it was there, not when it was begun: its bytes do not count.
    """

    def __init__(self) -> None:
        self._bytes = 0
        self._first = self._last = 0.0

    def add(self, size: int) -> None:
        """Takes in a buffer, or those since the last look."""
        self._last = monotonic()
        if self._first:
            self._bytes += size
        else:
            self._first = self._last

    def told(self) -> tuple[int, float]:
        """The bytes, and the seconds from the first to the last."""
        return self._bytes, self._last - self._first


class Sampler:
    """Samples of a node, for the processes of the job that it is told of."""

    def __init__(self, address: str, look: Callable[[], None] = lambda: None) -> None:
        self._machine = Machine(address)
        self._look = look
        self._own = Process(os.getpid())
        self._workers: dict[int, Process] = {}
        self._series = Series(SAMPLES_KEPT)
        self._lock = Lock()
        self._stop = Event()
        self._sampled = monotonic()
        # Those that workers were seen in since the last sample.
        self._states: list[str] = []
        self._written = Written()
        Thread(target=self._run, name="ascot sampler", daemon=True).start()

    def begin(self, processes: Iterable[int]) -> None:
        """Looks at these processes, which begin to work. A sample ends here, so that the next one has their beginning
        and no time before it."""
        with self._lock:
            if monotonic() > self._sampled:
                self._sample()
        self.watch(processes)

    def watch(self, processes: Iterable[int]) -> None:
        """Also looks at these processes."""
        with self._lock:
            for number in processes:
                if number not in self._workers:
                    self._workers[number] = Process(number)

    def taken(self, is_last: bool = False) -> tuple[float, list[list[float]]]:
        """The samples since the last call, each the time at which it ended and its columns; and the time of this
        moment, by the clock of the node. The last sample ends now, unless it would be too short for a rate. `is_last`
        has it nevertheless: only the work of the last hundredth of a second is missing."""
        least = SHORTEST_SECONDS if is_last else SAMPLE_SECONDS / LOOKS
        with self._lock:
            if monotonic() - self._sampled >= least:
                self._sample()
            rows = self._series.rows()
            self._series = Series(SAMPLES_KEPT)
        return monotonic(), rows

    def still(self) -> dict[int, float]:
        """The workers that are there and have used no processor for some seconds, and for how many."""
        with self._lock:
            found = {number: worker.still_seconds for number, worker in self._workers.items()}
        return {number: seconds for number, seconds in found.items() if seconds >= STILL_SECONDS}

    def written(self) -> tuple[int, float]:
        """Bytes that workers wrote, and the seconds from the first to the last buffer, since the last call."""
        with self._lock:
            written, self._written = self._written, Written()
        return written.told()

    def _run(self) -> None:
        moved: dict[int, int] = {}
        while not self._stop.wait(SAMPLE_SECONDS / LOOKS):
            self._look()
            with self._lock:
                self._states += [worker.state() for worker in self._workers.values()]
                self._look_at_writes(moved)
                if monotonic() - self._sampled >= SAMPLE_SECONDS:
                    self._sample()

    def _look_at_writes(self, moved: dict[int, int]) -> None:
        for number, worker in self._workers.items():
            found = worker.moved()
            if found is None:
                continue
            new = found[1] - moved.get(number, found[1])
            moved[number] = found[1]
            if new > 0:
                self._written.add(new)

    def _sample(self) -> None:
        now, states = monotonic(), self._states
        self._states = []
        seconds, self._sampled = now - self._sampled, now
        everyone = [self._own, *self._workers.values()]
        used = [sum(column) for column in zip(*(one.look() for one in everyone), strict=True)]
        cpu, *moved = self._machine.look()
        memory = sum(one.memory for one in everyone)
        count = max(1, len(states))
        share = {name: sum(state in wanted for state in states) / count for name, wanted in
                 (("busy", BUSY), ("blocked", ("blocked",)), ("memory", ("memory",)))}  # fmt: skip
        idle = max(0.0, 1.0 - sum(share.values())) if states else 0.0
        found: dict[str, Any] = {
            "cpu_share": cpu,
            "job_processors": used[0] / seconds,
            "job_memory_bytes": memory,
            "store_bytes": self._machine.store_bytes(),
            "job_read_bytes_per_s": used[1] / seconds,
            "job_written_bytes_per_s": used[2] / seconds,
            "disk_read_bytes_per_s": moved[0] / seconds,
            "disk_written_bytes_per_s": moved[1] / seconds,
            "received_bytes_per_s": moved[2] / seconds,
            "sent_bytes_per_s": moved[3] / seconds,
            "busy_share": share["busy"],
            "idle_share": idle,
            "blocked_share": share["blocked"],
            "memory_share": share["memory"],
        }
        self._series.add([now, *(float(found[name]) for name in COLUMNS)])

    def stop(self) -> None:
        """Ends the thread."""
        self._stop.set()
