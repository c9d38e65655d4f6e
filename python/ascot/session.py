"""A cap of memory that the jobs of several threads share."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition
from typing import Any, ParamSpec, TypeVar

from ascot import _native, arguments

__all__ = ["Session"]

# Time between two looks at whether what the session lent has ended.
_PAUSE_SECONDS = 0.02

P = ParamSpec("P")
R = TypeVar("R")


class Session:
    """Runs jobs of any number of threads within one cap of memory.

    `memory` is the cap, in bytes or as a text such as `"1GiB"`. A job gets the memory of its `memory=` argument, by
    default the cap divided by `jobs`; it waits until the session has that much left. A stream of batches keeps its
    memory until it has been read, closed or dropped, also by a library that reads it; a view, an index or a writer of
    one until it is closed, with all files and streams of it. A thread that keeps the memory for streams of its own
    and asks for more than is left waits until other threads give back theirs.

    >>> import ascot, tempfile, pathlib
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> directory = pathlib.Path(tempfile.mkdtemp())
    >>> for name in "abcd":
    ...     _ = (directory / name).write_text("2\\n1\\n")
    >>> session = ascot.Session(memory="256MiB", jobs=2)
    >>> with ThreadPoolExecutor() as pool:
    ...     files = [directory / name for name in "abcd"]
    ...     jobs = [pool.submit(session.run, ascot.sort, file, to=file) for file in files]
    ...     sum(job.result().report.records_out for job in jobs)
    8
    """

    __slots__ = ("_change", "_free", "_lent", "jobs", "memory")

    memory: int
    jobs: int

    def __init__(self, memory: int | str, *, jobs: int = 2) -> None:
        self.jobs = arguments.count("jobs", jobs, least=1)
        self.memory = self._free = _bytes(memory)
        self._change = Condition()
        # Memory of streams and of open objects, and whether they have ended: a library that reads a stream ends it
        # without a call of the package.
        self._lent: list[tuple[int, Callable[[], bool]]] = []

    @property
    def free(self) -> int:
        """Bytes that no job has now."""
        with self._change:
            self._collect()
            return self._free

    def run(self, job: Callable[P, R], *args: P.args, **settings: P.kwargs) -> R:
        """Calls `job`, such as `ascot.sort` or `ascot.view`, with these arguments and its share of the memory.

        Raises MemoryLimit if the job asks for more than the session has.
        """
        if not _takes_memory(arguments.function("job", job)):
            arguments.wrong_type("job", job, "a function with the argument memory, such as ascot.sort")
        given: dict[str, Any] = dict(settings)
        share = self._take(given.pop("memory", None))
        call: Any = job
        try:
            result: R = call(*args, memory=share, **given)
        except BaseException:
            self._give_back(share)
            raise
        ending = getattr(result, "_ending", None)
        if ending is None:
            self._give_back(share)
        else:
            # A stream, whose job goes on while it is read, or something open.
            with self._change:
                self._lent.append((share, ending()))
        return result

    def _take(self, asked: int | str | None) -> int:
        share = self.memory // self.jobs if asked is None else _bytes(asked)
        if share > self.memory:
            from ascot.errors import MemoryLimit

            raise MemoryLimit(
                f"the job asks for {share:,} bytes of memory, and its session has {self.memory:,}\n"
                "  give the session more, or the job less (memory=)",
                given=self.memory,
                needed=share,
            )
        with self._change:
            self._collect()
            while self._free < share:
                self._change.wait(_PAUSE_SECONDS)
                self._collect()
            self._free -= share
        return share

    def _collect(self) -> None:
        """Takes back the memory of what has ended."""
        over = [is_over() for _, is_over in self._lent]
        self._free += sum(share for (share, _), is_over in zip(self._lent, over, strict=True) if is_over)
        self._lent = [one for one, is_over in zip(self._lent, over, strict=True) if not is_over]

    def _give_back(self, share: int) -> None:
        with self._change:
            self._free += share
            self._change.notify_all()

    def __repr__(self) -> str:
        return f"<ascot.Session: {self.memory:,} bytes, {self.free:,} free>"


def _takes_memory(job: Any) -> bool:
    """Whether a function may be called with the argument `memory`."""
    import inspect

    try:
        found = inspect.signature(job).parameters
    except (TypeError, ValueError):
        # Python raises TypeError for what is no function, and knows no signature of some that are.
        return True
    return "memory" in found or any(one.kind is one.VAR_KEYWORD for one in found.values())


def _bytes(memory: int | str) -> int:
    return _native.memory_bytes(arguments.memory("memory", memory))
