"""Checks before a job begins, and what is known of its inputs."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from ascot import _native, arguments, errors
from ascot._native import bytes_text
from ascot.cluster.memory import PROCESS_BYTES
from ascot.cluster.nodes import Node
from ascot.cluster.object_files import check_objects
from ascot.cluster.objects import Stores, absolute, is_url
from ascot.cluster.parts import check_output
from ascot.layouts import Fixed, Floats, Integers, Layout
from ascot.sources import Source, Sources, sources_of

__all__ = ["check", "check_memory", "check_unchanged", "named", "record_bytes", "usual_memory"]

# Bytes in which the first row of a table ends.
HEAD_BYTES = 1 << 20
# The share of a node's memory that a job takes if nothing else is asked for.
MEMORY_SHARE = 0.5


def named(inputs: Source, stores: Stores) -> Sources:
    """The files and objects of inputs. Raises an error that names those that are not there, or have no name."""
    names = [absolute(name) if "://" in name else name for name in arguments.paths("inputs", inputs)]
    plain = [name for name in names if not is_url(name) and not set("*?[") & set(name)]
    missing = [name for name in plain if not os.path.exists(name)]
    if missing:
        raise errors.FileMissing(f"{_some(missing)}: no such file\n  nothing was started", filename=missing[0])
    denied = [name for name in plain if not os.access(name, os.R_OK)]
    if denied:
        raise errors.FileDenied(f"{_some(denied)}: may not be read\n  nothing was started", filename=denied[0])
    if not any(map(is_url, names)):
        return sources_of(names, "inputs")
    sources = Sources()
    for name in names:
        urls = [found.url for found in stores.find(name)] if is_url(name) else []
        for path in urls or sources_of(name, "inputs").paths():
            sources.add_path(path)
    return sources


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more


class Inputs(NamedTuple):
    """What is known of the inputs of a job before it begins.

    `facts` has the size of each, and its time of change or the version of an object; `records_at` where its records
    begin. `header` is that of the parts, empty without one. `columns` are the keys, if they are columns, each with
    the number and the type of its column.
    """

    facts: list[tuple[int, int | str]]
    records_at: list[int]
    header: bytes
    columns: list[str] | None

    def records(self) -> dict[str, Any]:
        """What changes in the options of the records: nodes get rows without a header, and all take the same columns
        and types."""
        keys = {} if self.columns is None else {"keys": self.columns, "reverse": False}
        return {"header": False, **keys}

    def head(self, paths: list[str], stores: Stores) -> bytes:
        """The beginning of the records of the first input that has any."""
        for path, (size, _), first in zip(paths, self.facts, self.records_at, strict=True):
            end = min(size, first + HEAD_BYTES)
            if end > first and is_url(path):
                return stores.read(path, first, end)
            if end > first:
                with open(path, "rb") as file:
                    file.seek(first)
                    return file.read(end - first)
        return b""


def check(
    options: dict[str, Any], output: str, stores: Stores, record: int, *, uniform: bool, views: bool
) -> Inputs:
    """Checks the request and its inputs."""
    if views and is_url(output):
        raise errors.InvalidRequest(
            f"output_as='views': a view reads files, and {output} is in an object store\n  leave it out, or name a "
            "directory (output=)"
        )
    files = [path for path in options["inputs"] if not is_url(path)]
    urls = [path for path in options["inputs"] if is_url(path)]
    facts: dict[str, tuple[int, int | str]] = {url: stores.listed[url][1:] for url in urls}
    begins: dict[str, int] = {}
    header, columns = b"", None
    if files or not urls:
        checked, header, columns = _native.cluster_inputs({**options, "inputs": files})
        facts |= {path: (size, changed) for path, (size, changed, _) in zip(files, checked, strict=True)}
        begins |= {path: first for path, (_, _, first) in zip(files, checked, strict=True)}
    heads = check_objects(stores, options, urls, record, [path for path in files if begins[path] > 0][:1])
    begins |= heads.records_at
    header = header or heads.header
    if heads.columns is not None and not any(facts[path][0] > begins[path] for path in files):
        # No file has rows.
        columns = heads.columns
    if uniform and options["records"]["layout"].startswith(("lines", "csv")):
        raise errors.InvalidRequest(
            "uniform=True: bytes of text are not spread evenly over all values\n  leave it out: a sample is taken"
        )
    found = [facts[path] for path in options["inputs"]]
    check_output(output, sum(size for size, _ in found), "output", stores)
    return Inputs(found, [begins.get(path, 0) for path in options["inputs"]], header, columns)


def check_unchanged(inputs: list[tuple[str, int, Any]], stores: Stores) -> None:
    """Raises an error if an input of a job that is continued changed since the job began."""
    for path, size, changed in inputs:
        if not is_url(path):
            _check_file(path, size, changed)
    objects = [one for one in inputs if is_url(one[0])]
    for found, (path, size, version) in zip(stores.facts(one[0] for one in objects), objects, strict=True):
        if found[1:] != (size, version):
            raise _changed(path)


def _check_file(path: str, size: int, changed: int) -> None:
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        raise errors.FileMissing(f"{path}: no such file: the job began with it", filename=path) from None
    if (stat.st_size, stat.st_mtime_ns) != (size, changed):
        raise _changed(path)


def _changed(path: str) -> errors.InvalidRequest:
    return errors.InvalidRequest(
        f"{path} changed since the job began\n  remove the job (ascot.cluster.remove) and start it again"
    )


def record_bytes(layout: Layout) -> int:
    """Bytes of a record, if all have the same; else 1."""
    if isinstance(layout, Fixed):
        return layout.length
    if isinstance(layout, Integers | Floats):
        return int(layout.type[1:3]) // 8
    return 1


def check_memory(nodes: list[Node], memory: int) -> None:
    """Raises MemoryLimit if a node has less memory than a job may take there, by what Ray says of the node."""
    smallest = min(nodes, key=lambda node: node.memory + node.store)
    has = smallest.memory + smallest.store
    # A node may be started without a word about its memory.
    if smallest.memory and memory > has:
        raise errors.MemoryLimit(
            f"node {smallest.name} has {bytes_text(has)} of memory for Ray, and the job may take "
            f"{bytes_text(memory)} on each node\n  ask for less "
            "(memory_per_node=), or start Ray there with more (ray start --memory)",
            given=memory,
            needed=has,
        )


def usual_memory(node: Node) -> int:
    """The memory of a node that a job takes if nothing else is asked for."""
    return max(int(node.memory * MEMORY_SHARE), node.store + 3 * PROCESS_BYTES)
