"""The calls of a program: sort, resume and remove; the checks before a job begins."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

from ascot import _native, arguments, errors
from ascot._native import bytes_text
from ascot.cluster.driver import Driver
from ascot.cluster.fleet import Fleet, first_line
from ascot.cluster.manifest import JobDirectory, Progress, Sum
from ascot.cluster.memory import PROCESS_BYTES, shape_of
from ascot.cluster.nodes import Node, connected, discover
from ascot.cluster.reports import ClusterReport
from ascot.jobs import Request
from ascot.layouts import Fixed, Floats, Integers, KeyLike, Layout, LayoutLike
from ascot.progress import ProgressLike, checked, reporter
from ascot.sources import PathLike, Source

__all__ = ["Sorted", "remove", "resume", "sort"]

# The share of a node's memory that a job takes if nothing else is asked for.
MEMORY_SHARE = 0.5


class Sorted:
    """A finished sort on a cluster: its `report`, and the files that it wrote, in order, `outputs`."""

    __slots__ = ("outputs", "report")

    report: ClusterReport
    outputs: tuple[str, ...]

    def __init__(self, report: ClusterReport, outputs: tuple[str, ...]) -> None:
        self.report, self.outputs = report, outputs

    def __repr__(self) -> str:
        return f"<ascot.cluster.Sorted: {self.report.title()}>"

    def __str__(self) -> str:
        return str(self.report)

    def _repr_html_(self) -> str:
        return self.report._repr_html_()


def sort(
    inputs: Source,
    output: PathLike,
    *,
    layout: LayoutLike | None = None,
    key: KeyLike | None = None,
    reverse: bool = False,
    stable: bool = False,
    address: str = "auto",
    memory_per_node: int | str | None = None,
    workers_per_node: int | None = None,
    partitions: int | None = None,
    uniform: bool = False,
    temp: PathLike | Sequence[PathLike] = (),
    compress: str = "auto",
    job: PathLike | None = None,
    progress: ProgressLike = "auto",
) -> Sorted:
    """Sorts files on a cluster to the directory `output`, whose files `part-00000`, ... are the result one after
    another.

    `inputs` are paths or patterns of files that all nodes see under the same names, and so is `output`, which must
    not exist or be empty. `layout`, `key`, `reverse` and `stable` are those of `ascot.sort`; the layout is
    `ascot.Fixed`, `Integers`, `Floats` or `Lines` without a header.

    `address` is that of a cluster of Ray, `"auto"` for the one that this machine belongs to, or `"local:4"` for a new
    one of 4 nodes on this machine. `memory_per_node` is the cap for each node, with the object store of Ray; by
    default half of its memory. `workers_per_node` are processes that map and sort, by default one for each processor;
    `partitions` is the number of files. `uniform` says that the first eight bytes of keys are spread evenly, so that
    no sample is taken. `temp` are directories on each node for the data between the two passes, by default
    `ASCOT_TMPDIR`, `TMPDIR` or the directory of the output.

    `job` is the directory of the job, by default `output` with `.job` at the end. If the job is interrupted, or ends
    with `Resumable`, `ascot.cluster.resume` continues it and `ascot.cluster.remove` removes it.

    Raises the exceptions of `ascot.errors`, and ImportError without Ray.
    """
    began = monotonic()
    settings: Any = {"temp": temp, "compress": compress, "threads": 1, "progress": progress}
    request = Request(_named(inputs), layout, key, arguments.flag("reverse", reverse), settings, "inputs")
    request.set_rows(False, stable=stable)
    options = request.options
    options["inputs"] = [os.path.abspath(path) for path in options["inputs"]]
    options["temp"] = [os.path.abspath(path) for path in options["temp"]]
    output = os.path.abspath(arguments.path("output", output))
    directory = output + ".job" if job is None else os.path.abspath(arguments.path("job", job))
    arguments.maybe(arguments.count, "workers_per_node", workers_per_node, least=1)
    arguments.maybe(arguments.count, "partitions", partitions, least=1)
    given = arguments.maybe(arguments.memory, "memory_per_node", memory_per_node)
    arguments.text("address", address)
    facts = _check(options, output, arguments.flag("uniform", uniform))
    with connected(address) as ray:
        nodes = discover(ray)
        memory = min(map(_usual_memory, nodes)) if given is None else _native.memory_bytes(given)
        workers = min(workers_per_node or 1 << 16, max(node.cpus for node in nodes))
        total, store = sum(size for size, _ in facts), max(node.store for node in nodes)
        shape = shape_of(total, len(nodes), memory, store, workers, partitions)
        described = {
            **_names(options, output, facts),
            "record_bytes": _record_bytes(request.layout),
            "memory_per_node": memory,
            "shape": shape.to_json(),
            "uniform": uniform,
            "address": address,
        }
        opened = JobDirectory.create(directory, described)
        return _run(ray, nodes, opened, described, Progress(), progress, began)


def resume(job: PathLike, *, address: str | None = None, progress: ProgressLike = "auto") -> Sorted:
    """Continues a job whose driver was killed, or that raised `Resumable`, from its directory.

    `address` is that of the cluster, by default the one that the job began with.

    Raises the exceptions of `sort`, and InvalidRequest if an input changed since the job began.
    """
    began = monotonic()
    arguments.maybe(arguments.text, "address", address)
    found, report = arguments.path("job", job), checked(progress)
    opened, described, done = JobDirectory.open(os.path.abspath(found))
    try:
        for path, size, changed in described["inputs"]:
            _check_unchanged(path, size, changed)
        with connected(described["address"] if address is None else address) as ray:
            return _run(ray, discover(ray), opened, described, done, report, began)
    finally:
        opened.close()


def remove(job: PathLike, *, address: str | None = None) -> None:
    """Removes a job that will not be continued: its files on the nodes of the cluster, its parts and its directory.

    `address` is that of the cluster, by default the one that the job began with. Files on nodes that are gone stay
    there.
    """
    arguments.maybe(arguments.text, "address", address)
    opened, described, done = JobDirectory.open(os.path.abspath(arguments.path("job", job)))
    try:
        with connected(described["address"] if address is None else address) as ray:
            places = [(one.number, one.directory) for one in done.destinations.values()]
            for node in discover(ray):
                node.place_writer(described["job"])
                try:
                    _, error = node.answer(node.writer.clean.remote(places))
                except ray.exceptions.RayError as lost:
                    error = errors.AscotError(
                        f"node {node.name} does not answer: {first_line(lost)}\n  remove the job again once it does, "
                        "or when Ray has noticed that it is gone"
                    )
                node.end()
                if error is not None:
                    raise error
        if not done.committed:
            _remove_parts(described["staging"], done.parts)
        opened.remove()
    finally:
        opened.close()


def _remove_parts(staging: str, parts: dict[int, Sum]) -> None:
    if os.path.isdir(staging):
        _native.remove_leftovers([staging])
    for number in parts:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(staging, f"part-{number:05}"))
    with suppress(OSError):
        os.rmdir(staging)


def _run(
    ray: Any,
    nodes: list[Node],
    opened: JobDirectory,
    described: dict[str, Any],
    done: Progress,
    progress: ProgressLike,
    began: float,
) -> Sorted:
    fleet = Fleet(ray, nodes, described)
    try:
        with reporter(progress) as report:
            finished = _attempt(ray, fleet, opened, described, done, report, began)
    except errors.AscotError as error:
        if not done.destinations and not done.parts:
            # Nothing was done yet.
            opened.remove()
            _remove_parts(described["staging"], {})
            raise
        opened.close()
        where = opened.path
        raise errors.Resumable(
            f"{error}\n  the job is kept: ascot.cluster.resume({where!r}) continues it; "
            f"ascot.cluster.remove({where!r}) removes it",
            directory=where,
        ) from error
    except BaseException:
        opened.close()
        raise
    finally:
        fleet.end()
    opened.remove()
    names = (f"part-{number:05}" for number in range(finished.partitions))
    return Sorted(finished, tuple(os.path.join(described["output"], name) for name in names))


def _attempt(
    ray: Any,
    fleet: Fleet,
    opened: JobDirectory,
    described: dict[str, Any],
    done: Progress,
    report: Callable[..., object] | None,
    began: float,
) -> ClusterReport:
    sizes = [size for _, size, _ in described["inputs"]]
    fleet.start(sizes)
    if not done.destinations:
        fleet.check_space(sum(sizes))
    if len(done.parts) == 0:
        os.makedirs(described["staging"], exist_ok=True)
    driver = Driver(ray, fleet, opened, described, done, report)
    return driver.run(monotonic() - began)


def _names(options: dict[str, Any], output: str, facts: list[tuple[int, int]]) -> dict[str, Any]:
    """The identity of a new job, its request, its inputs, its output, and the directory of parts until the end."""
    identity = secrets.token_hex(16)
    parent, name = os.path.split(output)
    return {
        "job": identity,
        "ascot": _native.__version__,
        "options": options,
        "inputs": [(path, *fact) for path, fact in zip(options["inputs"], facts, strict=True)],
        "output": output,
        "staging": os.path.join(parent, f".{name}.{identity[:16]}"),
        "usual_temp": parent,
    }


# ---------------------------------------------------------------- checks before a job begins


def _named(inputs: Source) -> Source:
    """The same inputs. Raises an error that names those that are not there, or have no name."""
    names = arguments.paths("inputs", inputs)
    plain = [name for name in names if not set("*?[") & set(name)]
    missing = [name for name in plain if not os.path.exists(name)]
    if missing:
        raise errors.FileMissing(f"{_some(missing)}: no such file\n  nothing was started", filename=missing[0])
    denied = [name for name in plain if not os.access(name, os.R_OK)]
    if denied:
        raise errors.FileDenied(f"{_some(denied)}: may not be read\n  nothing was started", filename=denied[0])
    return names


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more


def _check(options: dict[str, Any], output: str, uniform: bool) -> list[tuple[int, int]]:
    """Checks the request; returns size and time of change of each input."""
    facts = _native.cluster_inputs(options)
    if uniform and options["records"]["layout"].startswith("lines"):
        raise errors.InvalidRequest(
            "uniform=True: bytes of text are not spread evenly over all values\n  leave it out: a sample is taken"
        )
    parent = os.path.dirname(output)
    if not os.path.isdir(parent):
        raise errors.FileMissing(f"{output}: there is no directory {parent}\n  make it first", filename=parent)
    if os.path.lexists(output) and (not os.path.isdir(output) or os.listdir(output)):
        raise errors.FileExists(
            f"{output} is not an empty directory, and its files would be mixed with the result\n"
            "  name another output",
            filename=output,
        )
    total = sum(size for size, _ in facts)
    volume = os.statvfs(parent)
    free = volume.f_bavail * volume.f_frsize
    if free < total:
        raise errors.NoSpace(
            f"not enough space for the output: {bytes_text(total)} needed, {bytes_text(free)} left on {parent}\n"
            "  free some space, or name another output",
            filename=parent,
            needed=total,
            free=free,
        )
    return facts


def _check_unchanged(path: str, size: int, changed: int) -> None:
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        raise errors.FileMissing(f"{path}: no such file: the job began with it", filename=path) from None
    if (stat.st_size, stat.st_mtime_ns) != (size, changed):
        raise errors.InvalidRequest(
            f"{path} changed since the job began\n  remove the job (ascot.cluster.remove) and start it again"
        )


def _record_bytes(layout: Layout) -> int:
    """Bytes of a record, if all have the same; else 1."""
    if isinstance(layout, Fixed):
        return layout.length
    if isinstance(layout, Integers | Floats):
        return int(layout.type[1:3]) // 8
    return 1


def _usual_memory(node: Node) -> int:
    return max(int(node.memory * MEMORY_SHARE), node.store + 3 * PROCESS_BYTES)
