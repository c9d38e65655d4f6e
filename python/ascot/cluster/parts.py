"""The parts of the output of a job: in a directory beside the output, which becomes the output when all are there."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import reduce
from glob import escape, glob
from typing import Any

from ascot import _native, errors
from ascot._native import bytes_text
from ascot.cluster.actors import UNFINISHED, part_bytes, remove_chunk, remove_files
from ascot.cluster.manifest import JobDirectory, Progress, Sum, sync_directory

__all__ = ["CHUNKS", "Parts", "check_output", "remove_parts", "remove_unfinished"]

# The directory of the chunks to which a view of all of them refers, beside it.
CHUNKS = "chunks"


class Parts:
    """The parts of a job, of which the journal has those that are complete."""

    def __init__(self, directory: JobDirectory, job: dict[str, Any], done: Progress) -> None:
        self._directory, self._done = directory, done
        self._staging: str = job["staging"]
        self._output: str = job["output"]
        self._kind: str = job["kind"]

    def name(self, partition: int) -> str:
        """The file of a part."""
        return os.path.join(self._staging, f"part-{partition:05}")

    def check(self) -> None:
        """Forgets parts of an earlier run that are gone or have another length, and makes their directory."""
        if self._done.committed or self._has_name():
            return
        os.makedirs(self._staging, exist_ok=True)
        remove_unfinished(self._staging)
        for number in list(self._done.part_bytes):
            if not self._is_there(self._staging, number):
                self._done.take(self._directory.note(event="part lost", number=number))

    def _has_name(self) -> bool:
        """Whether an earlier run was killed between the rename to the output and its line in the journal."""
        if os.path.isdir(self._staging) or not self._done.part_bytes:
            return False
        return all(self._is_there(self._output, number) for number in self._done.part_bytes)

    def _is_there(self, directory: str, number: int) -> bool:
        name = os.path.join(directory, f"part-{number:05}")
        return os.path.exists(name) and part_bytes(name) == self._done.part_bytes[number]

    def commit(self) -> Sum:
        """Gives the output its name, if its parts have the records that were mapped."""
        none = Sum(0, 0, 0)
        read = reduce(Sum.__add__, self._done.chunk_sums.values(), none)
        written = reduce(Sum.__add__, self._done.parts.values(), none)
        if read != written and self._kind == "map_reduce":
            raise errors.InvalidRequest(
                f"pairs in and out differ: {read.records} in, {written.records} out: the functions gave different "
                "pairs for the same records when some were mapped again\n  they must give the same pairs in the same "
                "order each time: mend them, remove the job (ascot.cluster.remove) and start it again"
            )
        if read != written:
            raise errors.InternalError(
                f"records in and out differ: {read.records} in (checksum {read.checksum:032x}), {written.records} "
                f"out (checksum {written.checksum:032x})\n  nothing was written to the output; please report this"
            )
        if not self._done.committed and not os.path.isdir(self._staging) and os.path.isdir(self._output):
            # An earlier run was killed between the rename and its line in the journal.
            self._done.take(self._directory.note(event="committed"))
        if not self._done.committed:
            self._rename()
            self._done.take(self._directory.note(event="committed"))
        return written

    def _rename(self) -> None:
        # A worker that was killed may have left a part that is not complete.
        remove_unfinished(self._staging)
        try:
            sync_directory(self._staging)
            os.rename(self._staging, self._output)
        except OSError as error:
            raise errors.FileError(
                f"{self._output}: the parts cannot get this name: {error.strerror}\n  they are in {self._staging}",
                filename=self._output,
                errno=error.errno,
            ) from error
        sync_directory(os.path.dirname(self._output))


def check_output(output: str, total: int, argument: str) -> None:
    """Raises an error if the directory `output`, which `argument` names, cannot become that of `total` bytes."""
    parent = os.path.dirname(output)
    if not os.path.isdir(parent):
        raise errors.FileMissing(f"{output}: there is no directory {parent}\n  make it first", filename=parent)
    if os.path.lexists(output) and (not os.path.isdir(output) or os.listdir(output)):
        raise errors.FileExists(
            f"{output} is not an empty directory, and its files would be mixed with the result\n"
            f"  name another directory ({argument}=)",
            filename=output,
        )
    volume = os.statvfs(parent)
    free = volume.f_bavail * volume.f_frsize
    if free < total:
        raise errors.NoSpace(
            f"not enough space for the output: {bytes_text(total)} needed, {bytes_text(free)} left on {parent}\n"
            f"  free some space, or name another directory ({argument}=)",
            filename=parent,
            needed=total,
            free=free,
        )


def remove_parts(staging: str) -> None:
    """Removes the parts of a job that will not be continued, also those that are not in the journal yet."""
    if os.path.isdir(staging):
        remove_unfinished(staging)
        chunks = os.path.join(staging, CHUNKS)
        _native.remove_leftovers([chunks])
        for name in glob(os.path.join(escape(staging), "part-*")) + glob(os.path.join(escape(chunks), "chunk-*")):
            remove_chunk(name)
        with suppress(OSError):
            os.rmdir(chunks)
        remove_files(staging, "part-*")
    with suppress(OSError):
        os.rmdir(staging)


def remove_unfinished(staging: str) -> None:
    """Removes what processes that were killed left of files they were writing."""
    _native.remove_leftovers([staging])
    remove_files(staging, "part-*" + UNFINISHED)
