"""The merge phase of an external sort, found in its trace: what Stella and Loguinov measure (Tables I to III).

A file that the job wrote and reads again later is a spill. The phase begins with the first request that reads a
spill, and ends with the job. Small files are no spills: of one that counts, at least a hundredth as many bytes are
read again as of the file of which most are (`SHARE`), so that manifests and settings do not begin the phase early.

The rule is the same for all programs. Where reading the input and merging overlap (Hadoop's map tasks, merges of
several passes), what is left to read of the input belongs to the phase.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

SHARE = 100
"""The bytes read again of a spill, times this, are at least those of the largest spill."""


class NoPhase(Exception):
    """The trace shows no file that the job reads again; the message says so."""


@dataclass(frozen=True)
class Phase:
    """Where the phase begins."""

    start_ns: int
    spills: int
    """Files that count as spills."""
    reread_bytes: int
    """Bytes read of all files that the job wrote before."""


@dataclass
class _File:
    written: bool = False
    first_ns: int = -1
    reread_bytes: int = 0


def find(lines: Iterable[str]) -> Phase:
    """The phase in the lines of `ascot trace export --csv`, the heading included."""
    live: dict[str, _File] = {}
    own: list[_File] = []
    for line in lines:
        time, _, kind, _, size, path = line.rstrip("\n").split(",", 5)
        if kind == "write":
            file = live.get(path)
            if file is None:
                file = live[path] = _File()
            if not file.written:
                file.written = True
                own.append(file)
        elif kind == "read":
            file = live.get(path)
            if file is not None and int(size):
                if file.first_ns < 0:
                    file.first_ns = int(time)
                file.reread_bytes += int(size)
        elif kind == "delete":
            live.pop(path, None)  # the next file of this name is another one
    total = sum(file.reread_bytes for file in own)
    most = max((file.reread_bytes for file in own), default=0)
    spills = [file for file in own if file.reread_bytes and file.reread_bytes * SHARE >= most]
    if not spills:
        raise NoPhase("the job reads nothing that it wrote: it stayed in memory, or the trace misses its requests")
    return Phase(min(file.first_ns for file in spills), len(spills), total)
