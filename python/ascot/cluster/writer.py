"""The writer of a node: the actor that appends batches to the files of the partitions of the node."""

from __future__ import annotations

import os
from contextlib import suppress
from threading import Lock
from time import monotonic, sleep
from typing import Any

from ascot import _native
from ascot.cluster.actors import (
    MARK,
    PAIRS_FILE,
    SPILLS,
    UNFINISHED,
    Peaks,
    guarded,
    raise_descriptor_limit,
    remove_files,
    runs,
)
from ascot.cluster.chunks import ChunkSet
from ascot.cluster.limits import Notes, StalledCall
from ascot.cluster.memory import WAITING_BYTES_MIN
from ascot.cluster.sampling import Sampler, Written
from ascot.cluster.settings import USUAL, Settings, size_of
from ascot.errors import Damaged

__all__ = ["Writer"]


class Writer:
    """Appends batches to the files of the destinations of a node."""

    def __init__(
        self,
        job: str,
        address: str = "",
        secret: bytes = b"",
        shape: dict[str, int] | None = None,
        settings: Settings = USUAL,
    ) -> None:
        self._job = bytes.fromhex(job)
        shape = shape or {}
        self._write_bytes = size_of(settings.write_size)
        # Jobs of earlier versions do not say it.
        self._waiting_bytes = shape.get("waiting_bytes", WAITING_BYTES_MIN)
        self._open: dict[int, Any] = {}
        self._address = address
        # What the server received counts eight times a second, or when a batch comes as a call.
        self._lock = Lock()
        self._written = Written()
        self._server: Any = None
        if secret:
            raise_descriptor_limit()
            self._server = _native.BatchServer(address, secret, shape.get("batch_bytes", 0), settings.write_depth)
        self._writing = self._waited = 0.0
        self._bytes = self._runs = 0
        self._peaks = Peaks()
        self._sampler = Sampler(address, self._look)
        self._notes = Notes()

    def exist(self, directories: list[str]) -> list[bool]:
        """Which of these directories of destinations this node has."""
        return [_is_destination(one) for one in directories]

    def open(self, number: int, directory: str) -> Any:
        """Opens or makes a destination. Returns the chunks that it has whole, a bit for each, and the address and
        port at which it takes batches, if it does."""

        def opened() -> Any:
            files = _native.PartitionFiles(directory, self._job, number)
            self._open[number] = files
            for one in self._open.values():
                one.limit_waiting(self._write_bytes, self._waiting_bytes // len(self._open))
            chunks = ChunkSet(files.complete_chunks()).to_bytes()
            if self._server is None:
                return chunks, None
            self._server.add(number, files)
            return chunks, (self._address, self._server.port)

        return guarded(opened)

    def append(self, number: int, batch: Any) -> Any:
        """Appends a batch, the bytes of a buffer; returns whether it is new."""
        began = monotonic()
        with memoryview(batch).cast("B") as view:
            size = view.nbytes
            done = guarded(lambda: self._open[number].append(view))
        with self._lock:
            self._writing += monotonic() - began
            self._bytes += size
            self._written.add(size)
        self._peaks.look()
        return done

    def sync(self, number: int) -> Any:
        """Makes the batches of a destination durable."""
        began = monotonic()
        done = guarded(lambda: self._open[number].sync())
        self._writing += monotonic() - began
        return done

    def remove_partition(self, number: int, partition: int) -> Any:
        """Removes the file of a partition that is done."""
        return guarded(lambda: self._open[number].remove_partition(partition))

    def remove(self, number: int, directory: str) -> Any:
        """Removes a destination, if it is on this node."""

        is_ours = os.path.basename(os.path.dirname(directory)) == f"ascot-cluster-{self._job.hex()}"

        def removed() -> None:
            files = self._open.pop(number, None)
            if files is not None:
                self._runs -= files.runs
                self._waited -= files.waited
            try:
                if files is None and _is_destination(directory):
                    files = _native.PartitionFiles(directory, self._job, number)
                if files is not None:
                    files.remove()
            except Damaged:
                if not is_ours:
                    raise
            if is_ours and os.path.isdir(directory):
                # A log that cannot be read, or is cut short, does not name all files; their own names do.
                for pattern in ("partition-*", "batches"):
                    remove_files(directory, pattern)
                os.rmdir(directory)

        return guarded(removed)

    def await_end(self, processes: list[int], seconds: float) -> None:
        """Waits until these processes of the node have ended: a killed one may still write for a moment."""
        until = monotonic() + seconds
        while any(map(runs, processes)) and monotonic() < until:
            sleep(0.01)

    def clean(self, destinations: list[tuple[int, str]]) -> Any:
        """Removes these destinations, what killed sorts left beside them, and the directories of the job."""

        def cleaned() -> None:
            failed = [error for _, error in (self.remove(*one) for one in destinations) if error is not None]
            for parent in {os.path.dirname(directory) for _, directory in destinations}:
                spills = os.path.join(parent, SPILLS)
                remove_files(parent, MARK + "*")
                _native.remove_leftovers([spills])
                for pattern in (PAIRS_FILE + "*", "*" + UNFINISHED):
                    remove_files(spills, pattern)
                for one in (spills, parent):
                    with suppress(OSError):
                        os.rmdir(one)
            if failed:
                raise failed[0]

        return guarded(cleaned)

    def account(self) -> dict[str, Any]:
        """Seconds of writing and of waiting for disks, bytes appended, the most memory that the process had, what was
        written within which seconds from the first to the last buffer, by workers if nothing was appended, and in how
        many runs the disks got what was appended; since the last account."""
        self._peaks.look()
        self._look()
        by_workers = self._sampler.written()
        with self._lock:
            told: dict[str, Any] = {"bytes": self._bytes, "peak": self._peaks.bytes}
            waited = sum(files.waited for files in self._open.values())
            # Several disks may be waited for at the same time.
            told["disk"] = min(self._writing, waited - self._waited)
            told["writing"], self._waited = self._writing - told["disk"], waited
            told["written"] = self._written.told() if self._bytes else by_workers
            until_now = sum(files.runs for files in self._open.values())
            told["runs"], self._runs = until_now - self._runs, until_now
            self._writing, self._bytes, self._written = 0.0, 0, Written()
        return told

    def _look(self) -> None:
        """Takes in what the server received since the last look."""
        with self._lock:
            size, writing = (0, 0.0) if self._server is None else self._server.account()
            self._bytes += size
            self._writing += writing
            if size:
                self._written.add(size)

    def begin(self, processes: list[int]) -> None:
        """Samples what these processes do from this moment on."""
        self._sampler.begin(processes)

    def samples(
        self, processes: list[int], is_last: bool = False, has_functions: bool = False
    ) -> tuple[float, list[list[float]], dict[int, float], list[StalledCall]]:
        """The time of this moment and the samples since the last call, which processes have not run for how many
        seconds, and the calls without progress if the job has functions. The samples to come are also of these
        processes. If it is the last call, they end at this moment."""
        self._sampler.watch(processes)
        stalled = self._notes.stalled(processes) if has_functions else []
        return *self._sampler.taken(is_last), self._sampler.still(), stalled


def _is_destination(directory: str) -> bool:
    return os.path.exists(os.path.join(directory, "batches"))
