"""The parts of the output of a job: in a directory beside the output, which becomes the output when all are there.

Parts that are objects have their final names at once, since a store does not rename them. When all are there, the
object `_SUCCESS` says so.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from functools import reduce
from glob import escape, glob
from secrets import token_hex
from typing import Any

from ascot import _native, errors
from ascot._native import bytes_text
from ascot.cluster.actors import UNFINISHED, part_bytes, remove_chunk, remove_files
from ascot.cluster.manifest import JobDirectory, Progress, Sum, sync_directory
from ascot.cluster.objects import Stores, is_url

__all__ = ["CHUNKS", "ObjectParts", "Parts", "check_output", "parts_of", "remove_parts", "remove_unfinished"]

# The directory of the chunks to which a view of all of them refers, beside it.
CHUNKS = "chunks"
# The object that a complete output has. Readers leave names with an underscore out.
COMPLETE = "_SUCCESS"
PART = re.compile(r"part-\d{5,}")


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

    def check_output(self, directory: str) -> None:
        """Checks that the output of a job that is complete is where the job left it, as it left it.

        Raises FileMissing, which says how to remove the rest of the job in `directory`.
        """
        if self._done.committed and (lost := self._lost()):
            name = os.path.join(self._output, f"part-{lost[0]:05}")
            raise errors.FileMissing(
                f"{name}: the job was complete, and this part of its output is gone since, or has another length\n"
                f"  ascot.cluster.remove({directory!r}) removes what is left of the job",
                filename=name,
            )

    def _lost(self) -> list[int]:
        """The complete parts that the output does not have."""
        return [number for number in self._done.part_bytes if not self._is_there(self._output, number)]

    def _has_name(self) -> bool:
        """Whether an earlier run was killed between the rename to the output and its line in the journal."""
        return not os.path.isdir(self._staging) and bool(self._done.part_bytes) and not self._lost()

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
            self._complete(written)
            self._done.take(self._directory.note(event="committed"))
        return written

    def _complete(self, _: Sum) -> None:
        """Gives the output its name."""
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


class ObjectParts(Parts):
    """Parts that are objects."""

    def __init__(self, directory: JobDirectory, job: dict[str, Any], done: Progress, stores: Stores) -> None:
        super().__init__(directory, job, done)
        self._stores = stores

    def name(self, partition: int) -> str:
        """The URL of a part."""
        return f"{self._output}/part-{partition:05}"

    def check(self) -> None:
        """Forgets parts of an earlier run that are gone or have another length."""
        if self._done.part_bytes and not self._done.committed:
            for number in self._lost():
                self._done.take(self._directory.note(event="part lost", number=number))

    def _lost(self) -> list[int]:
        sizes = self._stores.sizes(self._output)
        return [one for one, size in self._done.part_bytes.items() if sizes.get(f"part-{one:05}") != size]

    def _complete(self, whole: Sum) -> None:
        """Says that the output is complete, if all of its parts are still there."""
        if lost := self._lost():
            name = self.name(lost[0])
            raise errors.FileMissing(f"{name}: the part is gone, or not as the job wrote it", filename=name)
        told = {"parts": len(self._done.parts), "records": whole.records, "bytes": whole.bytes}
        content = json.dumps({**told, "checksum": f"{whole.checksum:032x}"})
        self._stores.write(f"{self._output}/{COMPLETE}", content.encode())


def parts_of(directory: JobDirectory, job: dict[str, Any], done: Progress, stores: Stores) -> Parts:
    """The parts of a job."""
    return ObjectParts(directory, job, done, stores) if is_url(job["output"]) else Parts(directory, job, done)


def check_output(output: str, total: int, argument: str, stores: Stores) -> None:
    """Raises an error if `output`, a directory or URL that `argument` names, cannot become that of `total` bytes."""
    if is_url(output):
        if stores.sizes(output):
            raise errors.FileExists(
                f"{output}: there are objects below it, which would be mixed with the result\n"
                f"  name another URL ({argument}=)",
                filename=output,
            )
        # A job that may not write there learns it before its work.
        trial = f"{output}/_ascot-{token_hex(8)}"
        stores.write(trial, b"")
        stores.remove([trial])
        return
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


def remove_parts(staging: str, stores: Stores) -> None:
    """Removes the parts of a job that will not be continued, also those that are not in the journal yet."""
    if is_url(staging):
        stores.remove(f"{staging}/{name}" for name in stores.sizes(staging) if PART.fullmatch(name))
        return
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
