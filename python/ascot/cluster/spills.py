"""The processes of a job that pulls, on a node: workers, which sort chunks to the disk of the node and merge
partitions, and one server, which merges the chunks of the node when a partition is fetched.

    map      chunk ─▶ sorted runs, a view ─▶ chunk-00012.0/ on the disk of the node
    fetch    chunks of the node ─▶ merged bytes of a partition ─▶ a pipe for each source ─▶ merge ─▶ part

A partition comes over a connection, which native code moves to the pipe. What does not, because nodes may not open
connections or one breaks, comes in batches by calls of Ray, whose errors name the cause. Such a call names the
chunks, the partition, the offset and the length: it may be repeated, and the server keeps nothing that it needs for
the next one.

Invariants: a record is written once until it is in a part. A worker asks for at most WINDOW batches of each source
ahead. An input that was not fetched whole gives no part.
"""

from __future__ import annotations

import json
import os
import resource
import struct
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from threading import Thread
from time import monotonic
from typing import Any

from ascot import _native
from ascot.cluster.actors import (
    BUFFER_BYTES,
    MARK,
    PAIRS_FILE,
    SPILLS,
    UNFINISHED,
    Worker,
    guarded,
    new_file,
    part_bytes,
    remove_chunk,
    remove_files,
    unfinished_name,
    with_remedy,
    write_all_of,
)
from ascot.cluster.functions import HEAD, PairMapper, pair_options, reduced
from ascot.cluster.headers import header_of, with_header
from ascot.cluster.writer import Writer
from ascot.errors import AscotError, FileMissing

__all__ = ["SOURCE_BYTES", "Group", "SpillServer", "SpillWorker"]

WINDOW = 2
# The shares of a worker's memory for the sort of a chunk, and for its longest record.
SPILL_SHARE = 5 / 8
LONGEST_SHARE = 1 / 16
LONGEST_BYTES_MIN = 1 << 20
# The least memory of a merge, bytes.
MERGE_BYTES_MIN = 8 << 20
# The shortest batch of a source, and the least memory of a worker for each source: batches are half of its memory.
FETCH_BYTES_MIN = 1 << 16
SOURCE_BYTES = 2 * (WINDOW + 1) * FETCH_BYTES_MIN
# Bytes of a source in which its header is searched.
HEAD_BYTES = 64 << 10
# A source is a pipe with two ends, and one of them is opened again by the merge.
SOURCE_DESCRIPTORS = 3
# Descriptors that are free when a merge begins, for its files.
OTHER_DESCRIPTORS = 64
# Pairs are sorted by partition first: its number comes before the key.
PARTITION = struct.Struct(">I")


class PairSpiller(PairMapper):
    """Maps chunks with the functions of a program, and sorts the pairs by partition and key."""

    def spill(
        self, span: dict[str, Any], options: dict[str, Any], directory: str
    ) -> tuple[dict[str, Any], list[int]]:
        """Sorts the pairs of a chunk to a view; returns its report and the bytes of each partition."""
        sizes = [0] * self._partitions
        self.reading = 0.0

        def records() -> Iterator[bytes]:
            waiting = bytearray()
            for key, value in self._combined(self._mapped(span)):
                partition = self._partition(key)
                head = HEAD.pack(HEAD.size // 2 + PARTITION.size + len(key) + len(value), PARTITION.size + len(key))
                record = head + PARTITION.pack(partition) + key + value
                sizes[partition] += len(record)
                waiting += record
                if len(waiting) >= BUFFER_BYTES:
                    yield bytes(waiting)
                    waiting.clear()
            yield bytes(waiting)

        with piped() as (read, write):
            own = {**pair_options(options), "inputs": [path_of(read)], "stable": True}

            def sorted_pairs() -> tuple[str, str, list[str]]:
                try:
                    return _native.make_view(own, directory, None)
                finally:
                    # Nothing more is read: writing ends with an error.
                    read.close()

            job = Job(sorted_pairs)
            try:
                with suppress(BrokenPipeError):
                    for one in records():
                        write_all(write.descriptor, one)
            finally:
                # The job ends at the end of the pipe, also if a function raised an exception.
                write.close()
                told = job.result()
        return bound_by(told, {"input": "map"}), sizes


def bound_by(result: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """The result in a report, with these names of what is at the ends of its pipes as bottlenecks."""
    for one in result["passes"]:
        one["bound_by"] = names.get(one["bound_by"], one["bound_by"])
    return result


class Descriptor:
    """An end of a pipe, closed once."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def close(self) -> None:
        """Closes it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1


@contextmanager
def piped() -> Iterator[tuple[Descriptor, Descriptor]]:
    """A pipe: its end for reading, and its end for writing."""
    read, write = map(Descriptor, os.pipe())
    try:
        yield read, write
    finally:
        read.close()
        write.close()


def path_of(end: Descriptor) -> str:
    """The name by which a job of this process opens a pipe."""
    return f"/proc/self/fd/{end.descriptor}"


def write_all(descriptor: int, content: bytes) -> None:
    """Writes bytes to a pipe."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def reserve_descriptors(wanted: int) -> None:
    """Raises the limit of open files of this process for `wanted` more files. AscotError if it may not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(os.listdir("/proc/self/fd")) + wanted
    if soft != resource.RLIM_INFINITY and needed > soft:
        if hard != resource.RLIM_INFINITY and needed > hard:
            raise AscotError(
                f"a merge needs {needed} open files, and a process may have {hard}\n  raise the limit (ulimit -Hn) "
                "before Ray is started, or sort with shuffle='push'"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


class Job:
    """A native job on a thread of its own."""

    def __init__(self, work: Callable[[], tuple[str, str, list[str]]]) -> None:
        self._told: dict[str, Any] = {}
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], tuple[str, str, list[str]]]) -> None:
        try:
            self._told = json.loads(work()[0])["result"]
        except BaseException as error:
            self._error = error

    def result(self) -> dict[str, Any]:
        """The result in its report. Waits for its end, and raises its exception."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._told


@dataclass(frozen=True, slots=True)
class Group:
    """A group of consecutive chunks: its server, and the address and port at which workers fetch it, if they do."""

    name: str
    server: Any
    address: tuple[str, int] | None


class Source(Thread):
    """Fetches a partition of a group, and writes it to a pipe, after the header that every input of the merge has."""

    def __init__(
        self, group: Group, partition: int, size: int, fetcher: Any, write: Descriptor, header: bytes = b""
    ) -> None:
        super().__init__(daemon=True)
        self._ray: Any = import_module("ray")
        self._group, self._partition, self._size, self._write = group, partition, size, write
        self._header = header
        self._fetcher: _native.Fetcher | None = fetcher
        self.error: BaseException | None = None
        self.bytes = 0

    def run(self) -> None:
        """Fetches the partition, from where the connection ended by calls."""
        try:
            write_all(self._write.descriptor, self._header)
            if not self._is_fetched():
                self._call()
        except BrokenPipeError:
            # The merge has ended with an error of its own.
            return
        except BaseException as error:
            # An exception of Ray may hold what another process cannot load.
            line = (str(error).splitlines() or [type(error).__name__])[0]
            self.error = error if isinstance(error, AscotError) else ConnectionError(line)
        finally:
            self._write.close()

    def _is_fetched(self) -> bool:
        """Fetches what comes over a connection. Returns whether nothing more is needed."""
        group = self._group
        if self._fetcher is None or group.address is None:
            return False
        self.bytes, end = self._fetcher.fetch(group.address, group.name, self._partition, self._write.descriptor)
        return end != "lost"

    def _call(self) -> None:
        """Fetches all batches by calls, each as soon as there is space in the window."""
        waiting: deque[Any] = deque()
        asked = self.bytes
        while True:
            while len(waiting) < WINDOW:
                fetch = self._group.server.fetch
                waiting.append(fetch.remote(self._group.name, self._partition, asked, self._size))
                asked += self._size
            batch, error = self._ray.get(waiting.popleft())
            if error is not None:
                raise error
            write_all(self._write.descriptor, batch)
            self.bytes += len(batch)
            if len(batch) < self._size:
                return


class SpillWorker(Worker):
    """Sorts chunks and merges partitions, one at a time."""

    def begin(self, bounds: bytes) -> Any:
        """Prepares the mapping of chunks."""
        options, shape = self._settings["options"], self._settings["shape"]
        job = bytes.fromhex(self._settings["job"])
        self._bounds = bounds
        if self._packed is None:
            return None, None
        self._mapper, error = guarded(
            lambda: PairSpiller(options, self._own_functions(), job, shape, calls=self._calls)
        )
        return None, error

    def spill(self, span: dict[str, Any], directory: str) -> Any:
        """Sorts a chunk to a view in a directory that is there; returns its records, its check and the seconds."""
        began = monotonic()
        share = self._settings["shape"]["sort_bytes"]
        options = {**self._settings["options"], "temp": [], "memory": int(share * SPILL_SHARE)}

        def spilled() -> dict[str, Any]:
            parent = os.path.dirname(directory)
            # The directory of a volume that was unmounted gets no chunks.
            if not os.path.isdir(parent):
                raise FileMissing(f"{parent}: No such file or directory", filename=parent)
            with self._objects.chunk(span) as local:
                if self._packed is None:
                    longest = max(LONGEST_BYTES_MIN, int(share * LONGEST_SHARE))
                    told, sizes = _native.spill_chunk(options, self._bounds, local, longest, directory)
                    result = json.loads(told[0])["result"]
                else:
                    with self._limit():
                        result, sizes = self._mapper.spill(local, options, directory)
            check = _native.seal_chunk(directory, sizes)
            sums = {name: result[name] for name in ("records_in", "bytes_in", "checksum")}
            work = {"seconds": monotonic() - began, "fetched_bytes": self._objects.fetched}
            work["passes"] = result["passes"]
            return {**sums, **work, "check": check, "directory": directory}

        result, error = guarded(spilled)
        self._peaks.look()
        return result, with_remedy(error, "pull")

    @cached_property
    def _fetcher(self) -> _native.Fetcher | None:
        return _native.Fetcher(self._settings["secret"]) if self._settings["secret"] else None

    def merge(self, options: dict[str, Any], sources: list[Group], partition: int) -> Any:
        """Merges a partition from the chunks of `sources` to the output of `options`.

        Returns the report, or the faults of sources: each a group and its exception.
        """
        began = monotonic()
        result, error = guarded(lambda: self._as_output(options, lambda own: self._merge(own, sources, partition)))
        self._peaks.look()
        if result is not None:
            result["took"] = monotonic() - began
        return result, error

    def _merge(self, options: dict[str, Any], sources: list[Group], partition: int) -> dict[str, Any]:
        shape, output = self._settings["shape"], options["output"]
        share = shape["sort_bytes"] // 2
        count = max(1, len(sources))
        # Batches that wait and that are written to the pipe have at most half of the memory.
        size = max(FETCH_BYTES_MIN, min(shape["batch_bytes"], share // (2 * count * (WINDOW + 1))))
        header = header_of(self._settings)
        # The merge reads the beginning of each source for its header.
        apart = count * ((WINDOW + 1) * size + (HEAD_BYTES if header else 0))
        own = {**options, "merge": True, "memory": max(MERGE_BYTES_MIN, share - apart)}
        own = with_header(own) if header else own
        for spills in options["temp"]:
            os.makedirs(spills, mode=0o700, exist_ok=True)
        reserve_descriptors(SOURCE_DESCRIPTORS * len(sources) + OTHER_DESCRIPTORS)
        unfinished = unfinished_name(output)
        with ExitStack() as stack:
            ends = [stack.enter_context(piped()) for _ in sources]
            own["inputs"] = [path_of(read) for read, _ in ends]
            threads = [
                Source(group, partition, size, self._fetcher, write, header)
                for group, (_, write) in zip(sources, ends, strict=True)
            ]

            def failed() -> list[tuple[str, BaseException]]:
                """Ends the sources; returns the faults of those that were not whole."""
                for read, _ in ends:
                    read.close()
                for thread in threads:
                    # One that has not begun has no identity.
                    if thread.ident is not None:
                        thread.join()
                named = zip(sources, threads, strict=True)
                return [(group.name, thread.error) for group, thread in named if thread.error is not None]

            def merged(options: dict[str, Any]) -> dict[str, Any]:
                told = bound_by(json.loads(_native.sort(options, None)[0])["result"], {"input": "fetching"})
                if faults := failed():
                    # Functions get no pairs of a partition that is not whole.
                    raise faults[0][1]
                return told

            try:
                try:
                    for thread in threads:
                        thread.start()
                    if self._packed is None:
                        result = merged({**own, "output": unfinished})
                    elif self._settings["reduce_input"] == "file":
                        result = self._reduce({**own, "output": unfinished}, partition, merged, PARTITION.size)
                    else:
                        result = self._reduce_merged(own, unfinished)
                except BaseException:
                    if faults := failed():
                        return {"faults": faults}
                    raise
                if faults := failed():
                    return {"faults": faults}
                os.rename(unfinished, output)
                fetched = sum(thread.bytes for thread in threads)
                return {**result, "file_bytes": part_bytes(output), "fetched": fetched}
            finally:
                with suppress(OSError):
                    os.unlink(unfinished)

    def _reduce_merged(self, options: dict[str, Any], output: str) -> dict[str, Any]:
        """Reduces the merged pairs as they come."""
        functions = self._own_functions()
        with piped() as (read, write):
            own = {**pair_options(options), "output": path_of(write), "stable": True}

            def merged() -> tuple[str, str, list[str]]:
                try:
                    return _native.sort(own, None)
                finally:
                    write.close()

            job = Job(merged)
            try:
                with (
                    open(read.descriptor, "rb", BUFFER_BYTES, closefd=False) as pairs,
                    new_file(output) as out,
                    self._limit(),
                ):
                    write_all_of(reduced(functions, pairs, PARTITION.size, self._calls), out)
            except BaseException:
                # The merge is not read any more.
                read.close()
                with suppress(AscotError):
                    job.result()
                raise
            return bound_by(job.result(), {"input": "fetching", "output": "reduce"})

    def join(self, chunks: list[tuple[str, int]], view: str) -> Any:
        """Makes one view of chunks, by reference; returns number, bytes and sum of its records, and its bytes."""

        def joined() -> tuple[int, int, str, int]:
            remove_chunk(view)
            return *_native.join_chunks(chunks, view, header_of(self._settings)), part_bytes(view)

        return guarded(joined)


class SpillServer(Writer):
    """Serves the chunks of a node."""

    def __init__(self, job: str, address: str, secret: bytes) -> None:
        super().__init__(job, address)
        self._groups: dict[str, _native.SpilledChunks] = {}
        self._fetches = _native.FetchServer(address, secret) if secret else None

    def prepare(self, directories: list[str]) -> Any:
        """Makes the directories for chunks."""

        def prepared() -> None:
            for directory in directories:
                os.makedirs(directory, mode=0o700, exist_ok=True)

        return guarded(prepared)

    def present(self, names: list[str]) -> list[bool]:
        """Whether each of the files and directories is there."""
        return [os.path.exists(name) for name in names]

    def open_chunks(self, group: str, chunks: list[tuple[str, int]], memory: int, readers: int) -> Any:
        """Opens consecutive chunks, which `readers` read at a time within `memory`. Returns the address and port at
        which workers fetch them, if they do."""

        def opened() -> tuple[str, int] | None:
            found = self._groups[group] = _native.SpilledChunks(chunks, memory, readers)
            if self._fetches is None:
                return None
            self._fetches.add(group, found)
            return self._address, self._fetches.port

        done = guarded(opened)
        self._peaks.look()
        return done

    def close_chunks(self) -> None:
        """Gives the memory of all chunks back."""
        self._groups = {}
        if self._fetches is not None:
            self._fetches.clear()

    def fetch(self, group: str, partition: int, offset: int, size: int) -> Any:
        """Merged bytes of a partition; fewer than `size` only at its end."""

        def read() -> bytes:
            if group not in self._groups:
                raise AscotError("this process was started in place of another one, and has no chunks open")
            found: bytes = self._groups[group].read(partition, offset, size)
            return found

        began = monotonic()
        done = guarded(read)
        with self._lock:
            self._writing += monotonic() - began
        self._peaks.look()
        return done

    def remove_chunks(self, places: list[str]) -> Any:
        """Removes all chunks of the job in these directories, and what killed sorts left beside them."""
        self.close_chunks()

        def removed() -> None:
            for place in places:
                if os.path.isdir(place):
                    _native.remove_leftovers([place])
                    for name in os.listdir(place):
                        remove_chunk(os.path.join(place, name))
                spills = os.path.join(os.path.dirname(place), SPILLS)
                remove_files(os.path.dirname(place), MARK + "*")
                if os.path.isdir(spills):
                    _native.remove_leftovers([spills])
                    for pattern in ("*" + UNFINISHED, PAIRS_FILE + "*"):
                        remove_files(spills, pattern)
                for one in (place, spills, os.path.dirname(place)):
                    with suppress(OSError):
                        os.rmdir(one)

        return guarded(removed)
