"""The processes of a job on a node: workers, which map chunks and sort partitions, and one writer, which appends
batches to the files of its destinations.

A fault of a call is a result, not an exception: a pair of None and the exception, or of the value and None.

Invariant: a worker works on one chunk or partition at a time, and keeps nothing of it afterwards.
"""

from __future__ import annotations

import json
import os
import resource
import secrets
import sys
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from errno import ENOSPC
from functools import partial
from glob import escape, glob
from hashlib import sha256
from socket import gethostname
from threading import Thread
from time import monotonic, sleep
from typing import Any, BinaryIO, TypeGuard

from ascot import _native
from ascot.cluster.functions import Functions, PairMapper, pair_options, reduced
from ascot.cluster.headers import header_of, with_header
from ascot.cluster.limits import Calls, memory_limit
from ascot.cluster.object_files import ObjectFiles
from ascot.cluster.objects import Stores, is_url
from ascot.cluster.sampling import doing
from ascot.cluster.settings import settings_of, size_of
from ascot.cluster.transport import Transport, transport_of
from ascot.errors import AscotError, FileError, FileMissing, InvalidRequest, MemoryLimit

__all__ = [
    "SPILLS",
    "UNFINISHED",
    "Worker",
    "digest_of",
    "is_too_long",
    "part_bytes",
    "remove_chunk",
    "remove_files",
    "unfinished_name",
    "with_remedy",
]

# The directory for spills of sorts, beside destinations.
SPILLS = "sorting"
# The sorted pairs of a partition, there, and a part that is not complete.
PAIRS_FILE = "pairs-"
UNFINISHED = ".unfinished"
# A file of a node in a directory that several nodes may share; its name ends with the id of the node and the place
# of the directory there.
MARK = "seen-by-"
BUFFER_BYTES = 1 << 20
PEAK_SECONDS = 0.125


def guarded(work: Callable[[], Any]) -> tuple[Any, AscotError | None]:
    """The value of `work` and None, or None and its exception."""
    try:
        return work(), None
    except AscotError as error:
        return None, error
    except OSError as error:
        kind = FileMissing if isinstance(error, FileNotFoundError) else FileError
        is_named = error.filename is not None and error.filename2 is None
        told = f"{error.filename}: {error.strerror}" if is_named else str(error)
        told += "\n  free some space, or name another volume" if error.errno == ENOSPC else ""
        return None, kind(told, filename=error.filename, errno=error.errno)


def is_too_long(error: BaseException) -> TypeGuard[MemoryLimit]:
    """Whether a record is longer than a worker may have: it is so each time, whatever nodes do."""
    return isinstance(error, MemoryLimit) and "longer than memory allows" in error.message


def with_remedy(error: AscotError | None, shuffle: str) -> AscotError | None:
    """The error of a mapper. The length of a record is limited by the bytes that are read at a time, which have a
    setting, if it pushes, and by the memory of a worker if it pulls."""
    if error is None or not is_too_long(error):
        return error
    advice = (
        "let workers read more at a time, as the longest record has (read_size='64MiB' at most), with memory for it "
        "(memory_per_node=)"
    )
    if shuffle == "pull":
        advice = (
            "give more memory (memory_per_node=) or fewer workers (workers_per_node=), or sort with shuffle='push' "
            "and let workers read more at a time (read_size='64MiB' at most)"
        )
    told = f"{error.message.splitlines()[0]}\n  {advice}, or check the record format (layout=)"
    return MemoryLimit(told, given=error.given, needed=error.needed)


def digest_of(sizes: Iterable[int]) -> str:
    """A digest of the sizes of inputs, in their order."""
    return sha256(b"".join(size.to_bytes(8, "little") for size in sizes)).hexdigest()


class Peaks:
    """The most memory of a process. A thread looks at it eight times a second, also while native code runs. Pages
    shared with other processes do not count."""

    def __init__(self) -> None:
        self.bytes = 0
        Thread(target=self._run, name="ascot peaks", daemon=True).start()

    def _run(self) -> None:
        while True:
            sleep(PEAK_SECONDS)
            self.look()

    def look(self) -> None:
        """Looks at the memory that the process has now."""
        with open("/proc/self/statm") as file:
            _, resident, shared, *_ = map(int, file.read().split())
        self.bytes = max(self.bytes, (resident - shared) * os.sysconf("SC_PAGE_SIZE"))


def runs(process: int) -> bool:
    """Whether a process of this machine runs: one of its threads is there, and not only its exit status.

    When a process is killed, its first thread may end before others that are within a system call. They still make
    files, and hold locks.
    """
    try:
        with open(f"/proc/{process}/stat") as file:
            state, *others = file.read().rpartition(")")[2].split()
    except OSError:
        return False
    threads = int(others[16])
    return state != "X" and (state != "Z" or threads > 1)


def remove_files(directory: str, pattern: str) -> None:
    """Removes the files of a directory whose names match a pattern."""
    for name in glob(os.path.join(escape(directory), pattern)):
        with suppress(OSError):
            os.unlink(name)


def raise_descriptor_limit() -> None:
    """Raises the limit of open files of this process as far as it may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def unfinished_name(output: str) -> str:
    """A name for a part until it is complete, which no other process uses: one that was given up may still run."""
    return f"{output}.{secrets.token_hex(4)}{UNFINISHED}"


def part_bytes(name: str) -> int:
    """Bytes of a part: of a file, or of all files of a view."""
    if not os.path.isdir(name):
        return os.path.getsize(name)
    with os.scandir(name) as files:
        return sum(one.stat().st_size for one in files)


def remove_chunk(name: str) -> None:
    """Removes a part or a chunk that is a view, if there is one."""
    for pattern in ("view.*", "run-*.run", "partitions"):
        remove_files(name, pattern)
    with suppress(OSError):
        os.rmdir(name)


class RecordMapper:
    """Maps one chunk after another of a sort."""

    def __init__(
        self, options: dict[str, Any], bounds: bytes, job: bytes, shape: dict[str, Any], read_bytes: int
    ) -> None:
        sizes = (shape["chunk_bytes"], shape["batch_bytes"], read_bytes)
        self._mapper = _native.ChunkMapper(options, bounds, job, *sizes)
        self._room = bytearray()
        self.sum = (0, 0, 0)
        self.reading = 0.0

    def read(self, span: dict[str, Any]) -> _native.ChunkMapper:
        """Reads a chunk. `sum` has its records, bytes and checksum."""
        with doing("reading"):
            records, size, checksum, self.reading, _ = self._mapper.map(span)
        self.sum = (records, size, int(checksum, 16))
        return self._mapper

    def run(
        self, number: int, span: dict[str, Any], targets: list[tuple[int, list[int]]], skip: Container[int]
    ) -> Iterator[tuple[int, memoryview]]:
        """The batches of a chunk, each with its destination. A batch is in the memory of the next one."""
        self.read(span)
        counts = [self._mapper.batches(partitions) for _, partitions in targets]
        # The destinations take turns, so that all writers have work.
        for turn in range(max(counts, default=0)):
            for (destination, partitions), count in zip(targets, counts, strict=True):
                if turn < count and destination not in skip:
                    of_batch = (number, destination, partitions, turn, count)
                    size = self._mapper.batch(self._room, *of_batch)
                    if size > len(self._room):
                        self._room = bytearray(size)
                        self._mapper.batch(self._room, *of_batch)
                    yield destination, memoryview(self._room)[:size]


class Worker:
    """Maps chunks and sorts partitions, one at a time."""

    def __init__(self, settings: dict[str, Any], functions: bytes | None) -> None:
        self._settings = settings
        # The functions of `map_reduce`, as the driver sent them; None for a sort.
        self._packed = functions
        self._functions: Functions | None = None
        self._calls = Calls()
        self._mapper: Any = None
        self._stores: Stores = settings.get("stores") or Stores()
        self._objects = ObjectFiles(self._stores, settings, self._temp)
        self._transport: Transport = transport_of(settings)
        # The destinations that chunks go to: partitions of each, and where its batches are sent.
        self._routes: dict[int, tuple[list[int], Any]] = {}
        self._peaks = Peaks()

    def facts(self) -> dict[str, Any]:
        """Versions, and the directories for temporary files with their volume and its free bytes."""
        volumes = [guarded(partial(_volume, directory)) for directory in self._temp()]
        return {
            "ascot": _native.__version__,
            "python": ".".join(map(str, sys.version_info[:2])),
            "host": gethostname(),
            "volumes": volumes,
            "functions": None if self._packed is None else guarded(self._own_functions)[1],
        }

    def mark(self, token: str) -> None:
        """Leaves a file in each directory for temporary files, by which others see that they share it."""
        for place, directory in enumerate(self._job_directories()):
            with suppress(OSError):
                os.makedirs(directory, mode=0o700, exist_ok=True)
                open(os.path.join(directory, f"{MARK}{token}-{place}"), "wb").close()

    def marks(self) -> list[list[str]]:
        """The files that nodes left in each of the directories."""
        found = []
        for directory in self._job_directories():
            with suppress(OSError):
                found.append(sorted(name for name in os.listdir(directory) if name.startswith(MARK)))
                continue
            found.append([])
        return found

    def unmark(self, token: str) -> None:
        """Removes its own files again."""
        for place, directory in enumerate(self._job_directories()):
            remove_files(directory, f"{MARK}{token}-{place}")
            with suppress(OSError):
                os.rmdir(directory)

    def _job_directories(self) -> list[str]:
        return [os.path.join(one, f"ascot-cluster-{self._settings['job']}") for one in self._temp()]

    def _temp(self) -> list[str]:
        given: list[str] = self._settings["options"]["temp"]
        usual = os.environ.get("ASCOT_TMPDIR") or os.environ.get("TMPDIR") or self._settings["usual_temp"]
        return given or [usual or tempfile.gettempdir()]

    def process(self) -> int:
        """The number of its process."""
        return os.getpid()

    def inputs(self, paths: list[str]) -> Any:
        """The digest of the sizes of the inputs that are files, as this node sees them. Of the objects, which are
        looked at when they are read, the first one must be there."""
        objects = [path for path in paths if is_url(path)]
        options = {**self._settings["options"], "inputs": [path for path in paths if not is_url(path)]}

        def digest() -> str:
            try:
                self._stores.facts(objects[:1])
                if is_url(self._settings["output"]):
                    self._stores.system(self._settings["output"])
            except ImportError as error:
                raise InvalidRequest(str(error)) from error
            return digest_of([size for size, *_ in _native.cluster_inputs(options)[0]] if options["inputs"] else [])

        return guarded(digest)

    def sample(self, span: dict[str, Any], count: int) -> Any:
        """Places of some records of a chunk, the seconds that this took, and the bytes read from a store."""
        began, options = monotonic(), self._settings["options"]

        def sample(part: dict[str, Any], some: int) -> bytes:
            return _native.sample_chunk(options, part, some)

        with doing("sampling"):
            places, error = guarded(lambda: self._objects.samples(span, count, sample))
        return (places, monotonic() - began, self._objects.fetched), error

    def begin(self, bounds: bytes) -> Any:
        """Makes the memory of the mapper, which all chunks use."""
        options, shape = self._settings["options"], self._settings["shape"]
        job, read_bytes = bytes.fromhex(self._settings["job"]), size_of(settings_of(self._settings).read_size)

        def mapper() -> Any:
            if self._packed is None:
                return RecordMapper(options, bounds, job, shape, read_bytes)
            return PairMapper(options, self._own_functions(), job, shape, read_bytes, self._calls)

        self._mapper, error = guarded(mapper)
        return None, error

    def _own_functions(self) -> Functions:
        if self._functions is None:
            self._functions = Functions.unpacked(self._packed or b"")
            self._calls.watch(self._settings["function_timeout"])
        return self._functions

    def _limit(self) -> AbstractContextManager[None]:
        """The limit of memory for functions."""
        return nullcontext() if self._packed is None else memory_limit(self._settings["shape"]["sort_bytes"])

    def end(self) -> int:
        """Gives the memory of the mapper back; returns the most memory that the process had, bytes."""
        self._peaks.look()
        self._mapper = None
        return self._peaks.bytes

    def route(self, routes: dict[int, tuple[list[int], Any]]) -> None:
        """Takes the destinations of the calls of `map` that follow: the partitions and the writer of each."""
        self._routes = routes

    def map(self, number: int, span: dict[str, Any], targets: list[int] | None) -> Any:
        """Maps a chunk and pushes its batches to the writers of these destinations, or of all."""
        with doing("grouping"):
            told, error = guarded(lambda: self._map(number, span, self._routes if targets is None else targets))
        return told, with_remedy(error, "push")

    def _map(self, number: int, span: dict[str, Any], targets: Iterable[int]) -> dict[str, Any]:
        began = monotonic()
        chosen = [(one, *self._routes[one]) for one in targets]
        with self._objects.chunk(span) as local, self._limit():
            sent = self._transport.send(self._mapper, number, local, chosen, self._peaks.look)
        seconds = monotonic() - began
        reading = self._mapper.reading + self._objects.seconds
        records, size, checksum = self._mapper.sum
        return {
            "records": records,
            "bytes": size,
            "sum": f"{checksum:032x}",
            "failed": list(sent.failed.items()),
            "repeated": sent.repeated,
            "sent_bytes": sent.bytes,
            "fetched_bytes": self._objects.fetched,
            "reading": reading,
            # Also the time of functions.
            "grouping": max(0.0, seconds - reading - sent.blocked),
            "blocked": sent.blocked - sent.memory,
            "memory": sent.memory,
        }

    def sort(self, options: dict[str, Any], place: dict[str, Any], partition: int, chunks: int) -> Any:
        """Sorts a partition to the output of `options`, a file, an object or a view; returns the report."""
        directory = place["directory"]
        destination = {**place, "job": bytes.fromhex(self._settings["job"]), "chunks": chunks}
        began = monotonic()

        def sorted_partition(options: dict[str, Any]) -> dict[str, Any]:
            # The directory of a volume that was unmounted gets no spills.
            if not os.path.isdir(directory):
                raise FileMissing(f"{directory}: No such file or directory", filename=directory)
            for spills in options["temp"]:
                os.makedirs(spills, mode=0o700, exist_ok=True)
            if self._packed is None:
                return sort(options)
            result: dict[str, Any]
            output = options["output"]
            unfinished = unfinished_name(output)
            try:
                result = self._reduce({**options, "output": unfinished}, partition, sort)
                os.rename(unfinished, output)
            finally:
                with suppress(OSError):
                    os.unlink(unfinished)
            return result

        def sort(options: dict[str, Any]) -> dict[str, Any]:
            as_view: bool = self._settings["views"]
            if as_view:
                # A worker that ended before the journal had the part may have left it.
                remove_chunk(options["output"])
            header = header_of(self._settings)
            own = with_header(options) if header else options
            told = _native.sort_partition(own, destination, partition, as_view, header)[0]
            result: dict[str, Any] = json.loads(told)["result"]
            if as_view or header:
                result["file_bytes"] = part_bytes(options["output"])
            return result

        with doing("sorting"):
            result, error = guarded(lambda: self._as_output(options, sorted_partition))
        self._peaks.look()
        return result and (result, monotonic() - began), error

    def _as_output(self, options: dict[str, Any], work: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
        """The report of `work`, which writes the output of the options: a file, which becomes an object if the output
        is a URL."""
        local = unfinished_name(os.path.join(options["temp"][0], os.path.basename(options["output"])))
        with self._objects.part(options, local) as own:
            result = work(own)
        return {**result, "uploaded_bytes": self._objects.uploaded, "upload_seconds": self._objects.seconds}

    def _reduce(
        self, options: dict[str, Any], partition: int, sort: Callable[[dict[str, Any]], Any], prefix: int = 0
    ) -> Any:
        """Sorts the pairs of a partition to a file beside the spills, and reduces it to the output of `options`. The
        first `prefix` bytes are no part of a key."""
        functions = self._own_functions()
        pairs = os.path.join(options["temp"][0], f"{PAIRS_FILE}{partition:05}.{secrets.token_hex(4)}")
        try:
            result = sort({**pair_options(options), "output": pairs, "stable": True})
            with (
                open(pairs, "rb", buffering=BUFFER_BYTES) as source,
                new_file(options["output"]) as out,
                self._limit(),
            ):
                write_all_of(reduced(functions, source, prefix, self._calls), out)
                result["file_bytes"] = out.tell()
        finally:
            with suppress(OSError):
                os.unlink(pairs)
        return result


@contextmanager
def new_file(path: str) -> Iterator[BinaryIO]:
    """A new file. Errors of its writes have its name, also those of what the end of the file writes."""
    try:
        with open(path, "wb") as out:
            yield out
    except OSError as error:
        if error.filename is None and not isinstance(error, AscotError):
            error.filename = path
        raise


def write_all_of(outputs: Iterable[bytes], out: BinaryIO) -> None:
    """Writes what functions gave, durably."""
    for one in outputs:
        out.write(one)
    out.flush()
    os.fsync(out.fileno())


def _volume(directory: str) -> tuple[str, int, int]:
    os.makedirs(directory, exist_ok=True)
    free = os.statvfs(directory)
    return os.path.abspath(directory), os.stat(directory).st_dev, free.f_bavail * free.f_frsize
