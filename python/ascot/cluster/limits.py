"""The limits of functions of a program in a process of a node: memory, and time without progress.

    function ─ steps ─▶ Calls ─ a file beside the spills ─▶ writer of the node ─ samples ─▶ driver

A step is a call, a value that a function takes, or a pair or an output that it gives. A process cannot end a function
that runs in native code or waits for a lock, and answers no call of Ray meanwhile. So a thread of it writes the call
to a file, and the driver ends the job.

Invariants: only the time in which a function runs counts, not that in which batches are sent or pairs are read. A
file is whole or not there, and there only while its call makes no progress.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from glob import escape, glob
from importlib import import_module
from threading import Event, Thread, main_thread
from time import monotonic
from typing import Any

from ascot import errors
from ascot.cluster.registry import write_whole

__all__ = ["CALLS", "Calls", "StalledCall", "memory_limit", "stalled_calls", "where_of"]

# What threads and allocators may reserve besides what a function uses: stacks have 8 MiB each.
MARGIN_BYTES = 256 << 20
# A call without progress for so long is reported.
STALL_SECONDS = 60.0
LOOK_SECONDS = 1.0
# The files of calls without progress, in the directory of the job on a node.
CALLS = "call-"


@contextmanager
def memory_limit(share: int) -> Iterator[None]:
    """In it, allocations of this process fail with MemoryError once they are `share` bytes, and a margin: a process
    that the system or Ray ends for its memory takes the reason with it."""
    arrow = import_module("pyarrow")
    # The other allocators of Arrow reserve 1 GiB at once, and a worker has one processor.
    arrow.set_memory_pool(arrow.system_memory_pool())
    arrow.set_cpu_count(1)
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[5])
    before = resource.getrlimit(resource.RLIMIT_DATA)
    most = pages * resource.getpagesize() + share + MARGIN_BYTES
    if before[1] != resource.RLIM_INFINITY:
        most = min(most, before[1])
    resource.setrlimit(resource.RLIMIT_DATA, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


@dataclass(frozen=True, slots=True)
class StalledCall:
    """A call without progress: what the function was called for, the seconds since its last step, and where it is.

    `offset` is that of the first record of the batch in `file`; a function of keys has the first bytes of its `key`
    instead, as hexadecimal digits.
    """

    function: str
    file: str | None
    offset: int | None
    key: str | None
    seconds: float
    stack: str

    def told(self) -> str:
        """The call for people."""
        key = None if self.key is None else bytes.fromhex(self.key)
        return (
            f"{where_of(self.file, self.offset, key)}: {self.function} has made no progress for {self.seconds:.0f} s"
        )

    def failure(self) -> errors.FunctionFailed:
        """The error that ends the job."""
        advice = "mend the function, start the job again, or give it more time (function_timeout=)"
        key = None if self.key is None else bytes.fromhex(self.key)
        return errors.FunctionFailed(
            f"{self.told()}\n  {advice}\n{self.stack}".rstrip(),
            traceback=self.stack,
            file=self.file,
            offset=self.offset,
            key=key,
        )


def where_of(file: str | None, offset: int | None, key: bytes | None) -> str:
    """What a function is called for."""
    return f"key {key[:60]!r}" if key is not None else f"{file}, records from byte {offset} on"


class Calls:
    """The calls of functions in this process, one at a time."""

    __slots__ = ("_directory", "_stop", "file", "function", "key", "offset", "runs", "steps")

    def __init__(self) -> None:
        self.function, self.file, self.offset, self.key = "", "", 0, b""
        # Whether the function runs at this moment, and how many steps were made.
        self.runs, self.steps = False, 0
        self._directory = ""
        self._stop = Event()

    def begin_records(self, function: str, file: str, offset: int) -> None:
        """A function is called for the records from an offset on."""
        self.function, self.file, self.offset, self.key = function, file, offset, b""
        self.resume()

    def begin_key(self, function: str, key: bytes) -> None:
        """A function is called for a key."""
        self.function, self.file, self.key = function, "", key
        self.resume()

    def pause(self) -> None:
        """The function waits for this process, or has ended."""
        self.runs = False

    def resume(self) -> None:
        """The function goes on."""
        self.steps += 1
        self.runs = True

    def given(self, items: Iterable[Any]) -> Iterator[Any]:
        """What a function gives, one after another, each a step."""
        for one in items:
            self.runs = False
            yield one
            self.steps += 1
            self.runs = True

    def watch(self, directory: str, limit_seconds: float | None) -> None:
        """Starts the thread, which writes a call without progress to a file in a directory, at the latest after half
        of the time that ends the job, if there is a limit."""
        stall_seconds = STALL_SECONDS if limit_seconds is None else min(STALL_SECONDS, limit_seconds / 2)
        if not self._directory:
            self._directory = directory
            Thread(target=self._run, args=(stall_seconds,), name="ascot calls", daemon=True).start()

    def _run(self, stall_seconds: float) -> None:
        name = os.path.join(self._directory, f"{CALLS}{os.getpid()}.json")
        steps, since, is_there = -1, monotonic(), False
        while not self._stop.wait(LOOK_SECONDS):
            if not self.runs or self.steps != steps:
                steps, since = self.steps, monotonic()
                if is_there:
                    _remove(name)
                    is_there = False
                continue
            seconds = monotonic() - since
            if seconds >= stall_seconds:
                found = self._stalled(seconds)
                # A full disk loses the word, and not the process.
                with suppress(OSError):
                    os.makedirs(self._directory, mode=0o700, exist_ok=True)
                    is_there = True
                    write_whole(name, asdict(found))

    def _stalled(self, seconds: float) -> StalledCall:
        by_key = not self.file
        return StalledCall(
            self.function,
            None if by_key else self.file,
            None if by_key else self.offset,
            self.key[:60].hex() if by_key else None,
            seconds,
            _stack_of_main_thread(),
        )

    def stop(self) -> None:
        """Ends the thread."""
        self._stop.set()


def _stack_of_main_thread() -> str:
    """Where the program is: the frames of this package are not its own."""
    frame = sys._current_frames().get(main_thread().ident or 0)
    package = os.path.dirname(__file__) + os.sep
    own = [one for one in traceback.extract_stack(frame) if not one.filename.startswith(package)] if frame else []
    # Those of Ray come first.
    last = max((at for at, one in enumerate(own) if f"{os.sep}ray{os.sep}" in one.filename), default=-1)
    listed = "".join(traceback.format_list(own[last + 1 :])).rstrip()
    return f"Stack (most recent call last):\n{listed}" if listed else ""


def stalled_calls(directories: Iterable[str]) -> list[tuple[int, StalledCall]]:
    """The calls without progress of which there are files in these directories, each with its process."""
    found = []
    for directory in directories:
        for name in glob(os.path.join(escape(directory), f"{CALLS}*.json")):
            number = os.path.basename(name).removeprefix(CALLS).removesuffix(".json")
            with suppress(OSError, ValueError, TypeError), open(name) as file:
                found.append((int(number), StalledCall(**json.load(file))))
    return found


def _remove(name: str) -> None:
    with suppress(OSError):
        os.unlink(name)
