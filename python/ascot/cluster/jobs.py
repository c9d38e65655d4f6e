"""The calls of a program: sort, map_reduce, resume and remove; the checks before a job begins."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from io import BufferedReader
from time import monotonic
from typing import Any, NamedTuple

from ascot import _native, arguments, errors
from ascot.cluster import registry
from ascot.cluster.actors import is_too_long
from ascot.cluster.batches import columns_of
from ascot.cluster.checks import Inputs, check, check_memory, check_unchanged, named, record_bytes, usual_memory
from ascot.cluster.driver import Driver
from ascot.cluster.fleet import Fleet, first_line
from ascot.cluster.functions import Functions
from ascot.cluster.manifest import JobDirectory, Progress, chunks_of
from ascot.cluster.memory import check_partitions, shape_of
from ascot.cluster.nodes import START_SECONDS, Node, connected, discover, load_ray
from ascot.cluster.objects import PASSWORD, Stores, absolute, is_url
from ascot.cluster.parts import parts_of, remove_parts
from ascot.cluster.prediction import predicted
from ascot.cluster.pull import PullDriver
from ascot.cluster.reports import ClusterReport
from ascot.cluster.settings import USUAL, Settings, check_use
from ascot.cluster.transport import TRANSPORTS
from ascot.cluster.watching import Watch
from ascot.cluster.whole import parts_in
from ascot.jobs import Request
from ascot.layouts import Csv, Fixed, KeyLike, LayoutLike
from ascot.progress import ProgressLike, checked, reporter
from ascot.sources import PathLike, Source

__all__ = ["Finished", "map_reduce", "remove", "resume", "sort"]


class Finished:
    """A finished job on a cluster: its `report`, and the files or views that it wrote, in order, `outputs`."""

    __slots__ = ("_header", "_stores", "outputs", "report")

    report: ClusterReport
    outputs: tuple[str, ...]

    def __init__(self, report: ClusterReport, outputs: tuple[str, ...], stores: Stores, header: bytes) -> None:
        self.report, self.outputs, self._stores, self._header = report, outputs, stores, header

    def open(self) -> BufferedReader:
        """All outputs, one after another, as one binary file that can be read and sought. A header comes once.

        Raises FileMissing if they are gone.
        """
        return parts_in(os.path.dirname(self.outputs[0]), self._stores, self._header)

    def __repr__(self) -> str:
        return f"<ascot.cluster.Finished: {self.report.title()}>"

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
    transport: str = "direct",
    shuffle: str = "push",
    output_as: str = "files",
    settings: Settings | None = None,
    storage_options: Mapping[str, Any] | None = None,
    job: PathLike | None = None,
    progress: ProgressLike = "auto",
) -> Finished:
    """Sorts files on a cluster to the directory `output`, whose files `part-00000`, ... are the result one after
    another. With `output_as="views"` the parts are views: sorted runs, which are merged when they are read
    (`ascot.view`, or all parts at once: `open_parts`).

    `inputs` are paths or patterns of files that all nodes see under the same names, and so is `output`, which must
    not exist or be empty. Both may be URLs in an object store: of an object, a pattern or a directory, such as
    `"s3://bucket/day-*"`. `storage_options` are then the arguments of its file system in fsspec, such as `key`,
    `secret` and `endpoint_url` for S3; they are sent to the nodes and not stored.

    `layout`, `key`, `reverse` and `stable` are those of `ascot.sort`; the layout is `ascot.Fixed`, `Integers`,
    `Floats`, `Lines` or `Csv`. Each part begins with the header of the inputs, if they have one.

    `address` is that of a cluster of Ray, `"auto"` for the one that this machine belongs to, or `"local:4"` for a new
    one of 4 nodes on this machine. `memory_per_node` is the cap for each node, with the object store of Ray; by
    default half of its memory. `workers_per_node` are processes that map and sort, by default one for each processor;
    `partitions` is the number of files. `uniform` says that the first eight bytes of keys are spread evenly, so that
    no sample is taken. `temp` are directories on each node for the data between the two passes, by default
    `ASCOT_TMPDIR`, `TMPDIR` or the directory of the output. `compress` is that of `ascot.sort`, for the spills of
    partitions that do not fit in memory.

    `transport` is the way of records from node to node: `"direct"` for connections from port to port, or `"ray"` for
    calls of Ray where nodes may not open connections to each other. `settings` (`Settings`) say how records are
    read, sent and written; a job that is resumed keeps them.

    `shuffle` is `"push"`, `"pull"` or `"auto"`. With `"push"`, records are sent to the node of their partition as
    they are read, and sorted there. With `"pull"`, they are sorted where they are read and stay there; partitions are
    merged from all nodes, and need no memory of their size. A view is then one part, `part-00000`, whose runs are in
    the directory `chunks` beside it: every record is written once. `"auto"` predicts which of the two takes less
    time: pulling writes and reads less, and merges every record more often. To measure a merge, this process sorts
    and merges up to 4 MiB of the input. The report has the prediction.

    `job` is the directory of the job, by default `output` with `.job` at the end, and for a URL a directory in
    `$XDG_STATE_HOME/ascot/jobs` or `~/.local/state/ascot/jobs`. If the job is interrupted, or ends
    with `Resumable`, `ascot.cluster.resume` continues it and `ascot.cluster.remove` removes it.

    Raises the exceptions of `ascot.errors`, and ImportError without Ray, or without the packages of an object store.
    """
    began = monotonic()
    options: Any = {"temp": temp, "compress": compress, "threads": 1, "progress": progress}
    stores = stores_of(storage_options)
    request = Request(named(inputs, stores), layout, key, arguments.flag("reverse", reverse), options, "inputs")
    request.set_rows(False, stable=stable)
    own = _settings(settings)
    cluster = Cluster(address, memory_per_node, workers_per_node, partitions, transport, shuffle, settings=own)
    whole = arguments.flag("uniform", uniform)
    views = arguments.word("output_as", output_as, ("files", "views")) == "views"
    return start(request, output, job, cluster, None, began, stores, uniform=whole, views=views)


def stores_of(options: Mapping[str, Any] | None) -> Stores:
    """The object stores with these options."""
    return Stores(arguments.maybe(arguments.options, "storage_options", options))


def directory_of(output: str) -> str:
    """The directory of a job that is given none: beside the output, or among the files of the user's state if the
    output is in an object store."""
    if not is_url(output):
        return output + ".job"
    state = registry.state_directory()
    if state is None:
        raise errors.InvalidRequest(
            f"{output}: this user has no directory for the state of the job\n  name one (job=), or set XDG_STATE_HOME"
        )
    name, mark = os.path.basename(output), sha256(output.encode()).hexdigest()[:16]
    return os.path.join(os.path.dirname(state), "jobs", f"{name}-{mark}.job")


class Cluster(NamedTuple):
    """The arguments of a job that say how it uses a cluster."""

    address: str
    memory_per_node: int | str | None
    workers_per_node: int | None
    partitions: int | None
    transport: str = "direct"
    shuffle: str = "push"
    reduce_input: str = "merged"
    settings: Settings = USUAL
    function_timeout: float | None = None


def _bytes(name: str, value: Any) -> int:
    """The memory of a node as a number of bytes."""
    given = arguments.memory(name, value)
    if str(given).rstrip().endswith("%"):
        raise errors.InvalidRequest(
            f"{name}={given!r} is not a share on a cluster: nodes differ from this machine\n"
            f"  give the memory of each node: {name}='8GiB'; by default a job takes half of it"
        )
    # This process may have less memory than a node.
    return _native.size_bytes(name, given)


def _settings(settings: Settings | None) -> Settings:
    if settings is not None and not isinstance(settings, Settings):
        arguments.wrong_type("settings", settings, "ascot.cluster.Settings(...)")
    return settings or USUAL


def start(
    request: Request,
    output: PathLike,
    job: PathLike | None,
    cluster: Cluster,
    functions: Functions | None,
    began: float,
    stores: Stores,
    *,
    uniform: bool = False,
    views: bool = False,
    is_kept: bool = True,
) -> Finished:
    """Starts a new job and runs it to its end. `is_kept` says whether it stays, to be resumed, if KeyboardInterrupt
    stops it."""
    options = request.options
    options["inputs"] = [absolute(path) for path in options["inputs"]]
    options["temp"] = [os.path.abspath(path) for path in options["temp"]]
    output = absolute(arguments.path("output", output))
    directory = directory_of(output) if job is None else os.path.abspath(arguments.path("job", job))
    most_workers = arguments.maybe(arguments.count, "workers_per_node", cluster.workers_per_node, least=1)
    partitions = arguments.maybe(arguments.count, "partitions", cluster.partitions, least=1)
    check_partitions(partitions)
    cap = arguments.maybe(_bytes, "memory_per_node", cluster.memory_per_node)
    address = arguments.text("address", cluster.address)
    transport = arguments.word("transport", cluster.transport, TRANSPORTS)
    shuffle = arguments.word("shuffle", cluster.shuffle, ("push", "pull", "auto"))
    reduce_input = arguments.word("reduce_input", cluster.reduce_input, ("merged", "file"))
    settings = cluster.settings
    check_use(settings, transport, shuffle, most_workers)
    record = record_bytes(request.layout)
    found = check(options, output, stores, record, uniform=uniform, views=views)
    options["records"] |= found.records()
    if functions is not None and isinstance(request.layout, Csv):
        names = columns_of(request.layout, found.header or found.head(options["inputs"], stores))
        options |= {"columns": names, "binary": request.layout.binary}
    # Before the connection: it may take seconds, and new nodes even more.
    JobDirectory.check_free(directory)
    packed = None if functions is None else _packed(functions)
    with connected(address) as ray:
        nodes = discover(ray)
        memory = min(map(usual_memory, nodes)) if cap is None else cap
        cpus = max(node.cpus for node in nodes)
        workers = min(most_workers or cpus, max(1, cpus - settings.spare_cores))
        total, store = sum(size for size, _ in found.facts), max(node.store for node in nodes)
        check_memory(nodes, memory)
        objects = any(map(is_url, (output, *options["inputs"])))
        given = (total, len(nodes), memory, store, workers, partitions)
        division = partial(_division, given, objects, settings, transport, functions is not None)
        described = {
            "kind": "sort" if functions is None else "map_reduce",
            **_names(options, output, found, functions is not None),
            "record_bytes": record,
            "memory_per_node": memory,
            "shape": division(shuffle),
            "settings": settings.to_json(),
            "uniform": uniform,
            "views": views,
            "shuffle": shuffle,
            "reduce_input": reduce_input,
            "function_timeout": cluster.function_timeout,
            "address": address,
            "transport": transport,
        }
        if shuffle == "auto":
            described |= _chosen_shuffle(described, len(nodes), functions, stores)
            described["shape"] = division(described["shuffle"])
        opened = JobDirectory.create(directory, described)
        attempt = Attempt(ray, nodes, opened, described, Progress(), packed, request.progress, began, is_kept, stores)
        return _run(attempt)


def _division(
    given: tuple[int, int, int, int, int, int | None],
    objects: bool,
    settings: Settings,
    transport: str,
    has_functions: bool,
    shuffle: str,
) -> dict[str, Any]:
    """The division of the memory of a node, and of the input, as plain values."""
    shape = shape_of(*given, objects=objects, settings=settings, transport=transport, shuffle=shuffle)
    return (shape.with_functions() if has_functions else shape).to_json()


def _packed(functions: Functions) -> bytes:
    """The functions for the nodes. Raises ImportError without Ray, whose packages they use."""
    load_ray()
    return functions.packed()


def _chosen_shuffle(
    described: dict[str, Any], nodes: int, functions: Functions | None, stores: Stores
) -> dict[str, Any]:
    """The shuffle that is predicted to take less time, and the prediction."""
    found = predicted(described, chunks_of(described), nodes, functions, stores)
    if found is None:
        return {"shuffle": "push"}
    return {"shuffle": found.shuffle, "prediction": found.to_json()}


def map_reduce(
    inputs: Source,
    *,
    map: Callable[[Any], Any],
    reduce: Callable[[bytes, Iterator[bytes]], Any],
    output: PathLike,
    combine: Callable[[bytes, Iterator[bytes]], Any] | None = None,
    partition: Callable[[bytes, int], int] | None = None,
    layout: LayoutLike | None = None,
    address: str = "auto",
    memory_per_node: int | str | None = None,
    workers_per_node: int | None = None,
    partitions: int | None = None,
    temp: PathLike | Sequence[PathLike] = (),
    compress: str = "auto",
    transport: str = "direct",
    shuffle: str = "push",
    reduce_input: str = "merged",
    function_timeout: float | None = 600.0,
    settings: Settings | None = None,
    storage_options: Mapping[str, Any] | None = None,
    job: PathLike | None = None,
    progress: ProgressLike = "auto",
) -> Finished:
    """Calls functions on a cluster: `map` for the records of files, and `reduce` for the values of each key.

    `map(batch)` gets a batch of records: a `pyarrow.RecordBatch` with one column, `line` (without the newline) for
    lines and `record` for `ascot.Fixed`, and with the columns of the table for `ascot.Csv`: texts, or bytes with
    `binary=True`. It gives pairs of a key and a value, bytes or texts: an iterable of them, or
    a batch or table whose first two columns they are. `combine(key, values)` gives fewer values in place of those of
    a key, on the node of the map; `reduce(key, values)` gets all values of a key, an iterator of bytes in the order
    of the inputs, and gives bytes or texts, which are written as they are: bytes alone or an iterable of them. Keys
    come in the order of their bytes.

    `output` is a directory with `partitions` files `part-00000`, .... A key is in the file of its hash, or in that
    which `partition(key, partitions)` names, a number from 0 on.

    Functions must give the same pairs in the same order for the same records: what is lost is mapped again. They are
    sent to the nodes with the packages of Ray, and use modules that are installed there. With `shuffle="pull"` pairs
    stay sorted on the node of `map` until `reduce` gets them, merged as they come. With `reduce_input="file"` all
    pairs of a partition are merged to a file before `reduce` is called: nodes then have no merges open while a slow
    function works. With `shuffle="auto"`, `map` and `combine` are also called in this process, for up to 4 MiB of the
    input, without a limit of time. The other arguments are those of `sort`.

    A function that takes no value and gives none for `function_timeout` seconds ends the job; None sets no limit.

    Raises the exceptions of `sort`, and FunctionFailed, with the traceback and the position of the record, if a
    function raises an exception, makes no progress or needs too much memory; then nothing is left of the job.
    """
    began = monotonic()
    for name, value in (("map", map), ("reduce", reduce)):
        arguments.function(name, value)
    for name, maybe in (("combine", combine), ("partition", partition)):
        arguments.maybe(arguments.function, name, maybe)
    options: Any = {"temp": temp, "compress": compress, "threads": 1, "progress": progress}
    stores = stores_of(storage_options)
    request = Request(named(inputs, stores), layout, None, False, options, "inputs")
    if request.layout.text() != "lines" and not isinstance(request.layout, Fixed | Csv):
        raise errors.InvalidRequest(
            f"layout={request.layout!r}: functions get lines, rows of CSV or records of one length\n  give "
            "ascot.Lines(), ascot.Csv() or ascot.Fixed(LENGTH)"
        )
    functions = Functions(map, reduce, combine, partition)
    own = _settings(settings)
    given = (address, memory_per_node, workers_per_node, partitions, transport, shuffle, reduce_input, own)
    cluster = Cluster(*given, arguments.maybe(arguments.seconds, "function_timeout", function_timeout))
    return start(request, output, job, cluster, functions, began, stores)


def resume(
    job: PathLike,
    *,
    address: str | None = None,
    transport: str | None = None,
    map: Callable[[Any], Any] | None = None,
    reduce: Callable[[bytes, Iterator[bytes]], Any] | None = None,
    combine: Callable[[bytes, Iterator[bytes]], Any] | None = None,
    partition: Callable[[bytes, int], int] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: ProgressLike = "auto",
) -> Finished:
    """Continues a job whose driver was killed, or that raised `Resumable`, from its directory, or from the URL of its
    output.

    `address` is that of the cluster, and `transport` the way of records from node to node, by default those that the
    job began with. A job of `map_reduce` needs its functions again, and one on an object store its
    `storage_options`: they are not stored.

    Raises the exceptions of `sort`, InvalidRequest if an input changed since the job began, and FileMissing if the
    job was complete and its output is gone since.
    """
    began = monotonic()
    arguments.maybe(arguments.text, "address", address)
    for name, value in (("map", map), ("reduce", reduce), ("combine", combine), ("partition", partition)):
        arguments.maybe(arguments.function, name, value)
    found, report = arguments.path("job", job), checked(progress)
    way = arguments.maybe(arguments.word, "transport", transport, TRANSPORTS)
    stores = stores_of(storage_options)
    opened, described, done = _opened(found)
    described["transport"] = way or described.get("transport", TRANSPORTS[0])
    try:
        parts_of(opened, described, done, stores).check_output(opened.path)
        check_unchanged(described["inputs"], stores)
        packed = None
        if described["kind"] == "map_reduce":
            if map is None or reduce is None:
                raise errors.InvalidRequest(
                    f"{opened.path} is a job of map_reduce, whose functions are not stored\n  give them again: "
                    "resume(job, map=..., reduce=...)"
                )
            packed = _packed(Functions(map, reduce, combine, partition))
        with connected(described["address"] if address is None else address) as ray:
            nodes = discover(ray)
            check_memory(nodes, described["memory_per_node"])
            attempt = Attempt(ray, nodes, opened, described, done, packed, report, began, stores=stores)
            return _run(attempt)
    finally:
        opened.close()


def _opened(job: str) -> tuple[JobDirectory, dict[str, Any], Progress]:
    """Opens a job that is named by its directory, or by the URL of its output."""
    directory = directory_of(absolute(job)) if is_url(job) else os.path.abspath(job)
    try:
        return JobDirectory.open(directory)
    except errors.FileMissing as error:
        shown = "the URL with a password" if PASSWORD.match(job) else job
        told = f"{shown}: no job with this output is kept: it has no directory {directory}"
        advice = "if the job has ended, start it again; if it was given a directory, name that one"
        beside = directory_of(directory)
        if not is_url(job):
            if not os.path.exists(os.path.join(beside, "job.json")):
                raise
            told, advice = f"{directory}: this is the output of a job, and not its directory", f"name {beside}"
        raise errors.FileMissing(f"{told}\n  {advice}", filename=error.filename) from None


def address_of(job: PathLike) -> str:
    """The address of the cluster that a job began with."""
    opened, described, _ = _opened(os.fspath(job))
    opened.close()
    address: str = described["address"]
    return address


def remove(job: PathLike, *, address: str | None = None, storage_options: Mapping[str, Any] | None = None) -> None:
    """Removes a job that will not be continued: its files on the nodes of the cluster, its parts and its directory.

    The job is named by its directory, or by the URL of its output; `storage_options` are those of `sort`.
    `address` is that of the cluster, by default the one that the job began with. Files on nodes that are gone stay
    there.

    Raises FileMissing if there is no such job, AscotError if a node does not answer, and, once all others are
    removed, FileError with the node whose disk does not let go of files.
    """
    arguments.maybe(arguments.text, "address", address)
    stores = stores_of(storage_options)
    opened, described, done = _opened(arguments.path("job", job))
    try:
        with connected(described["address"] if address is None else address) as ray:
            silent, stayed = _remove_from_nodes(ray, described, done)
        if silent:
            raise errors.AscotError(
                f"{'; '.join(silent)}\n  remove the job again once all nodes answer, or when Ray has noticed that "
                "they are gone"
            )
        if not done.committed:
            remove_parts(described["staging"], stores)
        opened.remove()
        registry.forget(described["job"])
        if stayed:
            raise errors.FileError(
                f"the job is removed, but files on nodes stay: {'; '.join(stayed)}\n  remove the directories "
                f"ascot-cluster-{described['job']} there once the disks allow it"
            )
    finally:
        opened.close()


def _remove_from_nodes(ray: Any, described: dict[str, Any], done: Progress) -> tuple[list[str], list[str]]:
    """Removes the files of a job from all nodes. Returns the nodes that do not answer, and those whose files stay,
    with the reasons."""
    places = [(one.number, one.directory) for one in done.destinations.values()]
    silent, stayed = [], []
    for node in discover(ray):
        node.place_writer(described["job"], described["shuffle"])
        if described["shuffle"] == "pull":
            call = node.writer.remove_chunks.remote(sorted(done.spill_places))
        else:
            call = node.writer.clean.remote(places)
        try:
            _, error = node.answer(call, START_SECONDS)
            if error is not None:
                stayed.append(f"node {node.name}: {str(error).splitlines()[0]}")
        except ray.exceptions.RayError as lost:
            silent.append(f"node {node.name} does not answer: {first_line(lost)}")
        node.end()
    return silent, stayed


class Attempt(NamedTuple):
    """A run of a job, new or continued."""

    ray: Any
    nodes: list[Node]
    opened: JobDirectory
    described: dict[str, Any]
    done: Progress
    functions: bytes | None
    progress: ProgressLike
    began: float
    is_kept: bool = True
    stores: Stores | None = None

    def is_over(self, error: BaseException) -> bool:
        """Whether the job is of no use after an error."""
        if isinstance(error, KeyboardInterrupt):
            return not self.is_kept
        # The inputs stay as they are.
        if is_too_long(error) or isinstance(error, errors.SchemaMismatch):
            return True
        is_new = not (self.done.destinations or self.done.spills or self.done.parts)
        return isinstance(error, errors.FunctionFailed) or (isinstance(error, errors.AscotError) and is_new)


def _run(attempt: Attempt) -> Finished:
    opened, described = attempt.opened, attempt.described
    fleet = Fleet(attempt.ray, attempt.nodes, described, attempt.functions, attempt.stores)
    try:
        with reporter(attempt.progress) as report, Watch(attempt.ray, fleet, opened, described) as watch:
            finished = _attempt(attempt, fleet, report, watch)
    except BaseException as error:
        if attempt.is_over(error):
            opened.remove()
            remove_parts(described["staging"], fleet.stores)
            raise
        opened.close()
        if not isinstance(error, errors.AscotError):
            raise
        raise resumable(error, opened.path, described["kind"]) from error
    finally:
        fleet.end()
    opened.remove()
    names = (f"part-{number:05}" for number in range(finished.partitions))
    outputs = tuple(os.path.join(described["output"], name) for name in names)
    return Finished(finished, outputs, fleet.stores, str(described.get("header", "")).encode("latin-1"))


def resumable(error: errors.AscotError, directory: str, kind: str) -> errors.Resumable:
    """The error of a job that is kept, with the calls that continue and remove it."""
    more = ", with its functions (map=, reduce=)" if kind == "map_reduce" else ""
    return errors.Resumable(
        f"{error}\n  the job is kept: ascot.cluster.resume({directory!r}) continues it{more}; "
        f"ascot.cluster.remove({directory!r}) removes it",
        directory=directory,
    )


def _attempt(attempt: Attempt, fleet: Fleet, report: Callable[..., object] | None, watch: Watch) -> ClusterReport:
    described, done = attempt.described, attempt.done
    sizes = [size for _, size, _ in described["inputs"]]
    fleet.start(sizes)
    if not done.destinations and not done.spills and not (described["views"] and described["shuffle"] == "pull"):
        fleet.check_space(sum(sizes))
    kind = PullDriver if described["shuffle"] == "pull" else Driver
    driver = kind(attempt.ray, fleet, attempt.opened, described, done, report, watch)
    try:
        return driver.run(monotonic() - attempt.began)
    except (errors.AscotError, KeyboardInterrupt) as error:
        if attempt.is_over(error):
            driver.discard()
        raise


def _names(options: dict[str, Any], output: str, found: Inputs, has_functions: bool) -> dict[str, Any]:
    """The identity of a new job, its request, its inputs, its output, and the directory of parts until the end."""
    identity = secrets.token_hex(16)
    parent, name = os.path.split(output)
    staging = os.path.join(parent, f".{name}.{identity[:16]}")
    if is_url(output):
        staging, parent = output, tempfile.gettempdir()
    return {
        "job": identity,
        "ascot": _native.__version__,
        "options": options,
        "inputs": [(path, *fact) for path, fact in zip(options["inputs"], found.facts, strict=True)],
        "records_at": found.records_at,
        "header": "" if has_functions else found.header.decode("latin-1"),
        "output": output,
        "staging": staging,
        "usual_temp": parent,
    }
