"""Benchmark records that the nodes of a cluster make, and checks of files that the nodes read.

The nodes make files of consecutive records: one after another, they have the bytes of `ascot.gen` on one machine. A
check reads each file on one node, which returns its counts, its sum, and the keys of its first and last record. The
files are one sequence: between two of them, the last key of the first and the first key of the second are compared.

    file 0 ── node A ──▶ counts, sum, [first ... last]
                                              ╰── in order? equal? ──╮
    file 1 ── node B ──▶ counts, sum,                            [first ... last]
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from ascot import _native, arguments, errors
from ascot.cluster.helpers import Helpers, helpers
from ascot.cluster.manifest import sync_directory
from ascot.cluster.objects import Stores, is_url
from ascot.cluster.parts import check_output, remove_parts, remove_unfinished
from ascot.jobs import Request
from ascot.layouts import (
    Csv,
    Fixed,
    Floats,
    Integers,
    KeyLike,
    Layout,
    LayoutLike,
    Lines,
    layout_of,
    record_options,
)
from ascot.progress import ProgressLike, reporter
from ascot.sources import PathLike, Source, sources_of
from ascot.tools import Checked, Disorder

__all__ = ["check", "gen"]

RECORD_BYTES = 100


def gen(
    count: int,
    *,
    to: PathLike,
    files: int | None = None,
    start: int = 0,
    ascii: bool = False,
    skew: bool = False,
    address: str = "auto",
    workers_per_node: int | None = None,
    progress: ProgressLike = "auto",
) -> int:
    """Writes `count` records of the sort benchmark on the nodes of a cluster, to `files` files in the directory `to`.

    The files `part-00000`, ..., one after another, have the bytes that `ascot.gen` writes with the same `count`,
    `start`, `ascii` and `skew`. `to` is a directory that all nodes see under the same name; it must not exist or be
    empty, and appears when all files are complete. By default there is a file for each process; `address` and
    `workers_per_node` are those of `ascot.cluster.sort`. Returns the bytes written.

    Raises the exceptions of `ascot.gen`, with the name of the node.
    """
    whole = arguments.count("count", count, bits=64)
    first = arguments.count("start", start, bits=64)
    wanted = arguments.maybe(arguments.count, "files", files, least=1)
    per_node = arguments.maybe(arguments.count, "workers_per_node", workers_per_node, least=1)
    output = os.path.abspath(_file("to", arguments.path("to", to)))
    options = {
        "ascii": arguments.flag("ascii", ascii),
        "skewed": arguments.flag("skew", skew),
        "threads": 1,
    }
    check_output(output, whole * RECORD_BYTES, "to", Stores())
    parent, name = os.path.split(output)
    staging = os.path.join(parent, f".{name}.{secrets.token_hex(8)}")
    with reporter(progress) as report, helpers(arguments.text("address", address), per_node) as made:
        number = min(wanted or len(made.places), max(1, whole))
        tasks = [
            {
                **options,
                "output": os.path.join(staging, f"part-{at:05}"),
                "start": first + begin,
                "count": end - begin,
            }
            for at, (begin, end) in enumerate(shares_of(whole, number))
        ]
        os.makedirs(staging)
        try:
            _make(made, tasks, report)
            remove_unfinished(staging)
            _rename(staging, output)
        except BaseException:
            made.stop()
            remove_parts(staging, Stores())
            raise
    return whole * RECORD_BYTES


def _make(made: Helpers, tasks: Sequence[dict[str, Any]], report: Callable[..., object] | None) -> None:
    written = made.spread(len(tasks), lambda actor, at: actor.run.remote(_generate, tasks[at]), report, "generate")
    for task, size in zip(tasks, written, strict=True):
        there = os.path.getsize(task["output"]) if os.path.exists(task["output"]) else None
        if there != size:
            raise errors.InvalidRequest(
                f"{task['output']} is not the file that a node wrote\n"
                "  name a directory on storage that all nodes share"
            )


def _generate(options: dict[str, Any]) -> int:
    return _native.generate(options, None)


def shares_of(count: int, shares: int) -> list[tuple[int, int]]:
    """Equal shares of `count` records: the first record of each, and the end.

    >>> shares_of(10, 3)
    [(0, 3), (3, 6), (6, 10)]
    """
    bounds = [count * at // shares for at in range(shares + 1)]
    return list(pairwise(bounds))


def _rename(staging: str, output: str) -> None:
    sync_directory(staging)
    os.rename(staging, output)
    sync_directory(os.path.dirname(output))


class CheckedFile(NamedTuple):
    """A file that a node has checked. The bytes of `first_key` and `last_key` compare as the keys of its first and
    last record do; if `descending`, greater keys come first."""

    records: int
    size: int
    duplicate_keys: int
    checksum: int
    disorder: tuple[str, int, int | None] | None
    first_key: bytes
    last_key: bytes
    descending: bool


def check(
    source: Source,
    *,
    key: KeyLike | None = None,
    layout: LayoutLike = "lines",
    reverse: bool = False,
    address: str = "auto",
    workers_per_node: int | None = None,
    progress: ProgressLike = "auto",
) -> Checked:
    """Counts the records of files that are one sequence, sums them up, and finds the first out of order, as
    `ascot.check` does, on the nodes of a cluster.

    Each file is read on one node, and all files must be on storage that all nodes share. `key`, `layout` and
    `reverse` are those of `ascot.check`. Files of a table begin with the same header, as the parts of a job do.
    `address` and `workers_per_node` are those of `ascot.cluster.sort`.

    Raises the exceptions of `ascot.check`, with the name of the node.
    """
    found = layout_of(layout)
    described = record_options(found, key, reverse)
    per_node = arguments.maybe(arguments.count, "workers_per_node", workers_per_node, least=1)
    if isinstance(source, str | os.PathLike):
        _file("source", os.fspath(source))
    paths = [os.path.abspath(_file("source", path)) for path in sources_of(source).paths()]
    for path in paths:
        if os.path.isdir(path):
            raise errors.InvalidRequest(
                f"{path} is a directory, and a node checks files\n  check a directory or a view on one machine: "
                "ascot.check"
            )
        if not os.path.isfile(path):
            raise errors.FileMissing(f"{path}: no such file\n  nothing was started", filename=path)
    if isinstance(found, Csv) or (isinstance(found, Lines) and found.header):
        described |= _of_table(paths, found, key, reverse)
    work = partial(_check_part, described=described)
    with reporter(progress) as report, helpers(arguments.text("address", address), per_node) as made:
        told = made.spread(len(paths), lambda actor, at: actor.run.remote(work, paths[at]), report, "check")
    return combined(paths, [CheckedFile(*one) for one in told], record_bytes(found) is not None)


def _of_table(paths: Sequence[str], layout: Layout, key: KeyLike | None, reverse: bool) -> dict[str, Any]:
    """The changes that a table makes to the description of its records: the types of columns are inferred once for
    all files. Raises InvalidRequest if headers differ."""
    _, header, columns = _native.cluster_inputs(Request(paths, layout, key, reverse, {}).options)
    keys = {} if columns is None else {"keys": columns, "reverse": False}
    return {**keys, "header": bool(header)}


def _file(argument: str, path: str) -> str:
    """A path. Raises InvalidRequest for a URL."""
    if is_url(path):
        raise errors.InvalidRequest(
            f"{argument}={path!r}: records are not made or checked in an object store\n  name files on storage that "
            "all nodes share; ascot.cluster.sort and map_reduce take URLs"
        )
    return path


def record_bytes(layout: Layout) -> int | None:
    """Bytes of a record, if all have the same."""
    if isinstance(layout, Fixed):
        return layout.length
    return int(layout.type[1:3]) // 8 if isinstance(layout, Integers | Floats) else None


def _check_part(path: str, *, described: dict[str, Any]) -> tuple[Any, ...]:
    (records, size, duplicates, checksum, disorder), first, last, descending = _native.check_part(path, described)
    return records, size, duplicates, int(checksum, 16), disorder, first, last, descending


def combined(paths: Sequence[str], parts: Sequence[CheckedFile], has_offsets: bool) -> Checked:
    """The result for all files as one sequence. `has_offsets`: all records have the same length.

    >>> one = CheckedFile(2, 2, 0, 7, None, b"a", b"c", False)
    >>> combined(["x", "y"], [one, one._replace(first_key=b"c")], True).duplicate_keys
    1
    >>> combined(["x", "y"], [one, one], True).disorder
    Disorder(file='y', record=0, offset=0)
    """
    disorder, duplicates, before = None, sum(part.duplicate_keys for part in parts), None
    for path, part in zip(paths, parts, strict=True):
        if part.records == 0:
            continue
        if before is not None:
            duplicates += part.first_key == before
            comes_first = part.first_key > before if part.descending else part.first_key < before
            if comes_first and disorder is None:
                disorder = Disorder(path, 0, 0 if has_offsets else None)
        if part.disorder is not None and disorder is None:
            disorder = Disorder(*part.disorder)
        before = part.last_key
    records, size = sum(part.records for part in parts), sum(part.size for part in parts)
    checksum = sum(part.checksum for part in parts) % (1 << 128)
    return Checked(records, size, duplicates, f"{checksum:x}", disorder)
