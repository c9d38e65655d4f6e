"""The limits of functions of a program in a process of a node: memory, and time without progress.

    function ─ steps ─▶ Calls ─ memory with a name, once a second ─▶ writer of the node ─ samples ─▶ driver

A step is a call, a value that a function takes, or a pair or an output that it gives. A process cannot end a function
that runs in native code or waits for a lock, and answers no call of Ray meanwhile. So a thread of it notes the call
that runs in a file in memory (`memfd_create`), which the writer of the node opens by /proc, and the driver ends the
job. If native code keeps the interpreter for itself, the thread cannot run: then the age of the note counts, and the
stack is that which `faulthandler` writes without the interpreter. Nothing is left when a process ends.

Invariant: only the time in which a function runs counts, not that in which batches are sent or pairs are read.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from threading import Event, Thread, main_thread
from time import monotonic
from typing import Any

from ascot import errors

__all__ = ["PACKAGE", "Calls", "Notes", "StalledCall", "memory_limit", "where_of"]

# What threads and allocators may reserve besides what a function uses: stacks have 8 MiB each.
MARGIN_BYTES = 256 << 20
# A call without progress for so long is reported.
STALL_SECONDS = 60.0
LOOK_SECONDS = 1.0
# The files in memory, of the call that runs and of a stack.
NOTE, STACK = "ascot-call", "ascot-stack"
# Frames of this package are not the program's.
PACKAGE = os.path.dirname(__file__) + os.sep


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
        where = "" if self.file is None and key is None else where_of(self.file, self.offset, key) + ": "
        return f"{where}{self.function} has made no progress for {self.seconds:.0f} s"

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


# A call that began after the last look, in native code that keeps the interpreter for itself.
UNKNOWN = StalledCall("a function", None, None, None, 0.0, "")


def where_of(file: str | None, offset: int | None, key: bytes | None) -> str:
    """What a function is called for."""
    return f"key {key[:60]!r}" if key is not None else f"{file}, records from byte {offset} on"


class Calls:
    """The calls of functions in this process, one at a time."""

    __slots__ = ("_stop", "_thread", "file", "function", "key", "offset", "runs", "steps")

    def __init__(self) -> None:
        self.function, self.file, self.offset, self.key = "", "", 0, b""
        # Whether the function runs at this moment, and how many steps were made.
        self.runs, self.steps = False, 0
        self._thread: Thread | None = None
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

    def taken(self, items: Iterable[Any]) -> Iterator[Any]:
        """What a function takes, one after another, each a step."""
        for one in items:
            self.steps += 1
            yield one

    def watch(self, limit_seconds: float | None) -> None:
        """Starts the thread, which notes the call that runs. A call is reported after STALL_SECONDS without progress,
        or after half of the limit that ends the job if that is shorter."""
        told_after = STALL_SECONDS if limit_seconds is None else min(STALL_SECONDS, limit_seconds / 2)
        if self._thread is None:
            self._thread = Thread(target=self._run, args=(told_after,), name="ascot calls", daemon=True)
            self._thread.start()

    def _run(self, told_after: float) -> None:
        steps, since = -1, monotonic()
        with open(os.memfd_create(NOTE), "r+") as note, open(os.memfd_create(STACK), "r+") as stack:
            # The first note is there before the first call.
            is_over = False
            while not is_over:
                if self.steps != steps or not self.runs:
                    steps, since = self.steps, monotonic()
                # Unless the next look is in time.
                faulthandler.dump_traceback_later(told_after, file=stack)
                seconds = monotonic() - since
                call = self._call(seconds, seconds >= told_after) if self.runs else UNKNOWN
                thread = f"0x{main_thread().ident or 0:016x}"
                about = {"written": monotonic(), "told_after": told_after, "thread": thread}
                text = json.dumps({**asdict(call), **about})
                note.seek(0)
                note.truncate()
                note.write(text)
                note.flush()
                is_over = self._stop.wait(LOOK_SECONDS)
            faulthandler.cancel_dump_traceback_later()

    def _call(self, seconds: float, has_stack: bool) -> StalledCall:
        by_key = not self.file
        return StalledCall(
            self.function,
            None if by_key else self.file,
            None if by_key else self.offset,
            self.key[:60].hex() if by_key else None,
            seconds,
            _stack_of_main_thread() if has_stack else "",
        )

    def stop(self) -> None:
        """Ends the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()


def _stack_of_main_thread() -> str:
    """Where the program is: the frames of this package are not its own."""
    frame = sys._current_frames().get(main_thread().ident or 0)
    found = traceback.extract_stack(frame) if frame else []
    # Those of Ray come first.
    ray = os.path.dirname(sys.modules["ray"].__file__ or "") + os.sep if "ray" in sys.modules else PACKAGE
    last = max((at for at, one in enumerate(found) if one.filename.startswith(ray)), default=-1)
    own = [one for one in found[last + 1 :] if not one.filename.startswith(PACKAGE)]
    listed = "".join(traceback.format_list(own)).rstrip()
    return f"Stack (most recent call last):\n{listed}" if listed else ""


class Notes:
    """The notes of processes of this node, which their own threads write."""

    def __init__(self) -> None:
        # The names of both files of each process by /proc.
        self._names: dict[int, dict[str, str]] = {}

    def stalled(self, processes: Iterable[int]) -> list[StalledCall]:
        """The calls without progress of these processes. A note that is just written counts the next time."""
        found = []
        for process in processes:
            names = self._names_of(process)
            with suppress(OSError, ValueError, TypeError, KeyError), open(names[NOTE]) as file:
                told = json.load(file)
                age, thread = monotonic() - told.pop("written"), told.pop("thread")
                told["seconds"] += max(0.0, age)
                if told["seconds"] >= told.pop("told_after"):
                    told["stack"] = told["stack"] or _stack_in(names[STACK], thread)
                    found.append(StalledCall(**told))
        return found

    def _names_of(self, process: int) -> dict[str, str]:
        if len(self._names.get(process, {})) < 2:
            found: dict[str, str] = {}
            place = f"/proc/{process}/fd"
            with suppress(OSError):
                for number in os.listdir(place):
                    with suppress(OSError):
                        name = os.readlink(f"{place}/{number}")
                        for wanted in (NOTE, STACK):
                            if name.startswith(f"/memfd:{wanted} "):
                                found[wanted] = f"{place}/{number}"
            self._names[process] = found
        return self._names[process]


def _stack_in(name: str, thread: str) -> str:
    """The stack of a thread in a file of `faulthandler`; empty without one."""
    with suppress(OSError), open(name, errors="replace") as file:
        for part in reversed(file.read().split("\n\n")):
            if thread in part.partition("\n")[0]:
                lines = [line for line in part.splitlines()[1:] if PACKAGE not in line]
                return "\n".join(["Stack (most recent call first):", *lines])
    return ""
