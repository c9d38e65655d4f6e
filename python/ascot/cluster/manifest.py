"""The job directory: what a job is, and what of it is done. It lies on storage that the driver sees.

    job.json   the request, the inputs with size and time of change, the division into chunks and partitions
    bounds     where the partitions begin, once they are sampled
    journal    a line of JSON for each event: destinations, chunks that are in them, nodes that were lost, parts
    lock       held by the driver that runs the job
    status.json, request-*.json   what a running job tells others, and what they ask of it (watching.py)

A line of the journal is durable before the job relies on it; lines that nothing relies on yet become durable
together. A last line that is cut short does not count.

What is done costs a bit for each chunk and destination at most, and nothing for a chunk that all destinations have.

Invariant: the journal only grows, and a job is what its lines say, read from the first to the last.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from glob import escape, glob
from typing import Any

from ascot import errors
from ascot.cluster.chunks import ChunkSet

__all__ = [
    "Destination",
    "JobDirectory",
    "Progress",
    "Span",
    "Spill",
    "Sum",
    "chunks_of",
    "spans_of",
    "sync_directory",
]

# Version 1 has neither headers nor where records begin.
VERSION = 2
VERSIONS_READ = (1, 2)
FILES = ("job.json", "bounds", "journal", "lock", "status.json")


@dataclass(slots=True)
class Span:
    """A chunk: a byte range of an input. `position` are the bytes of all inputs before it; `records_at` is where the
    records of the input begin, after a header; an object has a `version`."""

    path: str
    start: int
    end: int
    size: int
    position: int
    version: str = ""
    records_at: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of the range."""
        return self.end - self.start

    def to_native(self) -> dict[str, Any]:
        """The chunk for the extension module."""
        own = {
            "path": self.path,
            "start": self.start,
            "end": self.end,
            "records_at": self.records_at,
            "size": self.size,
            "position": self.position,
        }
        return {**own, "version": self.version} if self.version else own


def spans_of(
    inputs: Sequence[Sequence[Any]], chunk_bytes: int, record_bytes: int, records_at: Sequence[int] = ()
) -> list[Span]:
    """The chunks of files with these names and sizes, objects also with their version; each has at most
    `chunk_bytes`, in whole records of `record_bytes`. Records begin at `records_at` of each file, after a header.

    >>> [(span.start, span.end, span.position) for span in spans_of([("a", 10), ("b", 3)], 7, 2)]
    [(0, 6, 0), (6, 10, 6), (0, 3, 10)]
    """
    step = max(record_bytes, chunk_bytes // record_bytes * record_bytes)
    spans, position = [], 0
    for (path, size, *changed), first in zip(inputs, records_at or [0] * len(inputs), strict=True):
        # Of a file, it is the time of its last change.
        version = next((one for one in changed if isinstance(one, str)), "")
        for start in range(first, size, step):
            spans.append(Span(path, start, min(start + step, size), size, position + start, version, first))
        position += size
    return spans


def chunks_of(job: dict[str, Any]) -> list[Span]:
    """The chunks of a job."""
    return spans_of(job["inputs"], job["shape"]["chunk_bytes"], job["record_bytes"], job.get("records_at", ()))


@dataclass(slots=True)
class Destination:
    """Partitions in a directory of a node. `missing` are the chunks that are mapped, but not in it."""

    number: int
    node: str
    directory: str
    partitions: list[int]
    missing: ChunkSet = field(default_factory=ChunkSet)
    lost: bool = False


@dataclass(slots=True)
class Spill:
    """A sorted chunk in a directory of a node, and the checksum that stands for its bytes."""

    node: str
    directory: str
    check: int


@dataclass(slots=True)
class Sum:
    """Records, bytes, and a checksum that does not depend on the order of the records."""

    records: int
    bytes: int
    checksum: int

    def __add__(self, other: Sum) -> Sum:
        both = (self.checksum + other.checksum) % (1 << 128)
        return Sum(self.records + other.records, self.bytes + other.bytes, both)


@dataclass(slots=True)
class Progress:
    """What of a job is done."""

    destinations: dict[int, Destination] = field(default_factory=dict)
    # Those that are not lost, and those of them that lack a chunk that is mapped.
    live: dict[int, Destination] = field(default_factory=dict)
    incomplete: dict[int, Destination] = field(default_factory=dict)
    # The chunks that are mapped.
    chunks: ChunkSet = field(default_factory=ChunkSet)
    chunk_sums: dict[int, Sum] = field(default_factory=dict)
    # Sorted chunks, of a job that pulls.
    spills: dict[int, Spill] = field(default_factory=dict)
    # The directories that have or had them.
    spill_places: set[str] = field(default_factory=set)
    parts: dict[int, Sum] = field(default_factory=dict)
    # Bytes of the files of parts.
    part_bytes: dict[int, int] = field(default_factory=dict)
    committed: bool = False

    def take(self, event: dict[str, Any]) -> None:
        """Takes in a line of the journal."""
        kind = event["event"]
        if kind == "destination":
            made = Destination(event["number"], event["node"], event["directory"], event["partitions"])
            self.destinations[made.number] = self.live[made.number] = made
            self.found(made, ChunkSet())
        elif kind == "chunk":
            self._take_chunk(event)
        elif kind == "lost":
            for number in event["destinations"]:
                self.destinations[number].lost = True
                self.live.pop(number, None)
                self.incomplete.pop(number, None)
        elif kind == "spill":
            self.chunk_sums.setdefault(event["number"], _sum(event))
            self.spills[event["number"]] = Spill(event["node"], event["directory"], event["check"])
            self.spill_places.add(os.path.dirname(event["directory"]))
        elif kind == "spills lost":
            for number in event["numbers"]:
                self.spills.pop(number, None)
        elif kind == "part":
            self.parts[event["number"]] = _sum(event)
            self.part_bytes[event["number"]] = event["file_bytes"]
        elif kind == "part lost":
            self.parts.pop(event["number"], None)
            self.part_bytes.pop(event["number"], None)
        elif kind == "committed":
            self.committed = True

    def found(self, destination: Destination, chunks: ChunkSet) -> None:
        """A destination has these chunks, and no others."""
        destination.missing = self.chunks - chunks
        self._note_missing(destination)

    def _take_chunk(self, event: dict[str, Any]) -> None:
        chunk, ranges = event["number"], event["destinations"]
        if chunk in self.chunk_sums:
            for one in [one for one in self.incomplete.values() if _has(ranges, one.number)]:
                one.missing.discard(chunk)
                self._note_missing(one)
            return
        self.chunk_sums[chunk] = _sum(event)
        self.chunks.add(chunk)
        if sum(last - first + 1 for first, last in ranges) == len(self.live):
            return
        for one in self.live.values():
            if not _has(ranges, one.number):
                one.missing.add(chunk)
                self._note_missing(one)

    def _note_missing(self, destination: Destination) -> None:
        if destination.missing:
            self.incomplete[destination.number] = destination
        else:
            self.incomplete.pop(destination.number, None)


def _has(ranges: Any, number: int) -> bool:
    return any(first <= number <= last for first, last in ranges)


def _sum(event: dict[str, Any]) -> Sum:
    return Sum(event["records"], event["bytes"], int(event["sum"], 16))


class JobDirectory:
    """An open job directory, which no other driver can open meanwhile."""

    def __init__(self, path: str, lock: int) -> None:
        self.path = path
        self._lock = lock
        self._journal: int | None = None
        # Called with each event once it is durable.
        self.on_event: Callable[[dict[str, Any]], None] | None = None
        # Events whose lines are not written yet.
        self._later: list[dict[str, Any]] = []

    @classmethod
    def create(cls, path: str, job: dict[str, Any]) -> JobDirectory:
        """Makes the directory of a new job. Raises FileExists if there is one of a job already."""
        try:
            os.makedirs(path, mode=0o700)
        except FileExistsError:
            cls.check_free(path)
        except OSError as error:
            raise errors.FileError(
                f"{path}: the job directory cannot be made: {error.strerror}\n  name another (job=)",
                filename=path,
                errno=error.errno,
            ) from error
        made = cls(path, _locked(path))
        made._write("job.json", json.dumps({"version": VERSION, **job}, indent=1).encode())
        return made

    @staticmethod
    def check_free(path: str) -> None:
        """Raises FileExists if a directory cannot become that of a new job."""
        if os.path.exists(os.path.join(path, "job.json")):
            raise errors.FileExists(
                f"{path}: this is the directory of another job\n  continue it with ascot.cluster.resume("
                f"{path!r}), remove it with ascot.cluster.remove({path!r}), or name another (job=)",
                filename=path,
            ) from None
        # A driver that was killed before the job had its description leaves no more than this.
        if os.path.lexists(path) and (not os.path.isdir(path) or set(os.listdir(path)) - {"lock", "job.json.new"}):
            raise errors.FileExists(
                f"{path} exists and is not an empty directory: it cannot become the job directory\n"
                "  name another (job=)",
                filename=path,
            ) from None

    @classmethod
    def open(cls, path: str) -> tuple[JobDirectory, dict[str, Any], Progress]:
        """Opens the directory of a job that was begun; returns the job and what of it is done."""
        name = os.path.join(path, "job.json")
        if not os.path.exists(name):
            raise errors.FileMissing(
                f"{path}: this is no directory of a cluster job: it has no job.json\n"
                "  name the directory that the error of the job names",
                filename=name,
            )
        opened = cls(path, _locked(path))
        try:
            return opened, opened._job(), opened._progress()
        except BaseException:
            opened.close()
            raise

    def note(self, **event: Any) -> dict[str, Any]:
        """Adds a line to the journal and makes it, and those before it, durable."""
        self.note_later(**event)
        self.sync()
        return event

    def note_later(self, **event: Any) -> dict[str, Any]:
        """Adds a line that `sync` makes durable, or the end of the run."""
        self._later.append(event)
        return event

    def sync(self) -> None:
        """Makes all lines durable."""
        if not self._later:
            return
        if self._journal is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._journal = os.open(os.path.join(self.path, "journal"), flags, 0o600)
            sync_directory(self.path)
        events, self._later = self._later, []
        lines = b"".join(json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events)
        while lines:
            lines = lines[os.write(self._journal, lines) :]
        os.fdatasync(self._journal)
        if self.on_event is not None:
            for event in events:
                self.on_event(event)

    def write_bounds(self, bounds: bytes) -> None:
        """Stores the bounds of the partitions."""
        self._write("bounds", bounds)

    def bounds(self) -> bytes | None:
        """The bounds of the partitions, once they are known."""
        try:
            with open(os.path.join(self.path, "bounds"), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def remove(self) -> None:
        """Removes the files of the job and, if nothing else is in it, the directory."""
        self._later = []
        self.close()
        for name in FILES:
            _unlink(os.path.join(self.path, name))
        # A driver that was killed may have left a state that is not whole.
        for pattern in ("request-*.json*", "status.json.*", "*.new"):
            for name in glob(os.path.join(escape(self.path), pattern)):
                _unlink(name)
        _remove_empty(self.path)

    def close(self) -> None:
        """Writes the lines that are left, and gives the lock back."""
        with suppress(OSError):
            self.sync()
        for descriptor in (self._journal, self._lock):
            if descriptor is not None and descriptor >= 0:
                os.close(descriptor)
        self._journal, self._lock = None, -1

    def _write(self, name: str, content: bytes) -> None:
        final = os.path.join(self.path, name)
        with open(final + ".new", "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.rename(final + ".new", final)
        sync_directory(self.path)

    def _job(self) -> dict[str, Any]:
        """The job, as it was described when it began."""
        name = os.path.join(self.path, "job.json")
        try:
            with open(name, "rb") as file:
                job: dict[str, Any] = json.load(file)
            version = job["version"]
        except (ValueError, TypeError, KeyError) as error:
            raise _damaged(name, error) from error
        if version not in VERSIONS_READ:
            raise errors.InvalidRequest(
                f"{self.path}: a job of another version of Ascot ({version!r})\n  continue it with that version"
            )
        return job

    def _progress(self) -> Progress:
        """What the journal says. A last line that is cut short is removed."""
        name = os.path.join(self.path, "journal")
        progress = Progress()
        try:
            with open(name, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return progress
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(name, whole)
        try:
            for line in content[:whole].splitlines():
                progress.take(json.loads(line))
        except (ValueError, TypeError, KeyError) as error:
            raise _damaged(name, error) from error
        return progress


def _damaged(name: str, error: Exception) -> errors.Damaged:
    return errors.Damaged(
        f"{name}: this is not what a job wrote: {error}\n  remove the directory, also what else is left of the job: "
        "the directory of its parts beside the output, whose name begins with a dot and that of the output, and the "
        "directories ascot-cluster-... for temporary files on the nodes; then start it again",
        file=name,
    )


def _locked(path: str) -> int:
    lock = -1
    try:
        lock = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if lock >= 0:
            os.close(lock)
        if isinstance(error, BlockingIOError):
            raise errors.FileError(f"{path}: another process runs this job\n  wait for it, or end it first") from None
        raise errors.FileError(
            f"{path}: the job directory cannot be locked: {error.strerror}\n  name one on storage where this process "
            "may write and lock files (job=)",
            filename=path,
            errno=error.errno,
        ) from error
    return lock


def sync_directory(path: str) -> None:
    """Makes the names in a directory durable."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _remove_empty(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError:
        # Files of others are in it: they stay.
        return
