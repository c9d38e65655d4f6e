"""Plans of jobs that are not run: passes, bytes, time, and why other methods are worse.

The plan of files that exist takes the arguments of the job. The plan of files that need not exist takes numbers
instead: `size` (bytes, or a text such as `"8TB"`), the number of files, and `memory` (`"1GiB"` by default). Such a
plan is for the volume of the working directory, or for `volume`: a profile, or a kind such as `rotational`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, Unpack, get_args, overload

from ascot import _native, arguments
from ascot.errors import InvalidRequest
from ascot.figures import (
    BowtiePlan,
    CheapestCluster,
    ClusterPlan,
    FilesPlan,
    bowtie_plan_of,
    cheapest_cluster_of,
    cluster_plan_of,
    files_plan_of,
)
from ascot.jobs import Request, Settings
from ascot.layouts import Fixed, Floats, Integers, KeyLike, LayoutLike, layout_of, record_options
from ascot.reports import Plan, plan_of_explanation
from ascot.sources import PathLike, Source

__all__ = ["bowtie", "cheapest_cluster", "cluster", "merge", "reshape", "sort", "split"]

_SHARE = "a number from 0 to 1"
_Form = TypeVar("_Form", bound=Callable[..., object])


def _form_of(name: str) -> Callable[[_Form], _Form]:
    """Marks a form of the function `name`, which has that name in the errors of Python for wrong arguments."""

    def named(form: _Form) -> _Form:
        form.__qualname__ = name
        return form

    return named


def bowtie(
    inputs: int = 1,
    outputs: int = 1,
    *,
    alpha: float = 0.5,
    memory: int | str | None = None,
    most_streams: int | None = None,
    volume: PathLike | None = None,
) -> BowtiePlan:
    """The schedule, the runs and the rate of one bowtie that reads `inputs` and writes `outputs` files at once.

    `alpha` is the share of bytes that is read, 0 to 1, and `memory` the bytes of all buffers, by default 1 GiB.
    `most_streams` limits the files at once. Raises InvalidRequest for a bowtie that does not fit.

    >>> import ascot
    >>> plan = ascot.plan.bowtie(inputs=3, outputs=100, memory="16GiB", volume="flash")
    >>> plan.schedule, round(plan.run_bytes / 1e6)
    ('a6r', 499)
    """
    given = {"inputs": inputs, "outputs": outputs, "alpha": arguments.real("alpha", alpha, _SHARE)}
    return bowtie_plan_of(*_plan("bowtie", memory, most_streams, volume, **given))


@overload
def sort(
    source: Source,
    *,
    to: PathLike | None = None,
    view: PathLike | None = None,
    key: KeyLike | None = None,
    layout: LayoutLike | None = None,
    reverse: bool = False,
    unique: bool = False,
    method: str = "auto",
    **settings: Unpack[Settings],
) -> Plan: ...
@overload
def sort(
    *,
    size: int | str,
    key: KeyLike | None = None,
    layout: LayoutLike | None = None,
    record_bytes: int | None = None,
    memory: int | str | None = None,
    most_streams: int | None = None,
    volume: PathLike | None = None,
) -> Plan: ...
def sort(source: Source | None = None, **arguments: Any) -> Plan:
    """The plan of a sort: `sort(source, ...)` with the arguments of `ascot.sort`, or `sort(size=BYTES, ...)`.

    With a `source` it reads a sample of the input, and writes nothing. With a `size`, `layout` describes the records
    (by default records of `record_bytes`, 100 bytes), `record_bytes` is their mean length, `memory` the cap (1 GiB),
    and `most_streams` limits the files at once.

    Raises InvalidRequest, MemoryLimit, and for the sample SchemaMismatch and the subclasses of FileError.

    >>> import ascot, tempfile, pathlib
    >>> records = pathlib.Path(tempfile.mkdtemp(), "records")
    >>> _ = ascot.gen(1000, to=records)
    >>> plan = ascot.plan.sort(records, layout=ascot.Fixed(100), to=records)
    >>> plan.chosen.method
    'in memory'
    >>> plan = ascot.plan.sort(size="8TB", memory="4GiB", volume="flash")
    >>> plan.seconds > 3600
    True
    """
    return _sort_of_size(**arguments) if source is None else _sort_of_files(source, **arguments)


@_form_of("sort")
def _sort_of_files(
    source: Source,
    *,
    to: PathLike | None = None,
    view: PathLike | None = None,
    key: KeyLike | None = None,
    layout: LayoutLike | None = None,
    reverse: bool = False,
    unique: bool = False,
    method: str = "auto",
    **settings: Unpack[Settings],
) -> Plan:
    request = Request(source, layout, key, reverse, settings)
    if to is not None:
        request.output(to)
    request.set_rows(unique)
    request.set_method(method)
    told, text, _ = _native.explain(request.options, view=arguments.maybe(arguments.path, "view", view))
    return plan_of_explanation(told, text)


@_form_of("sort")
def _sort_of_size(
    *,
    size: int | str,
    key: KeyLike | None = None,
    layout: LayoutLike | None = None,
    record_bytes: int | None = None,
    memory: int | str | None = None,
    most_streams: int | None = None,
    volume: PathLike | None = None,
) -> Plan:
    length = arguments.maybe(arguments.count, "record_bytes", record_bytes, least=1)
    form = Fixed(length or 100) if layout is None else layout_of(layout)
    if layout is not None and record_bytes is not None and isinstance(form, Fixed | Integers | Floats):
        raise InvalidRequest(f"{form!r} has the length of its records: leave out layout or record_bytes")
    records = record_options(form, key, False)
    given = {"size": arguments.size("size", size), "records": records, "record_bytes": length}
    return plan_of_explanation(*_plan("sort", memory, most_streams, volume, **given))


@overload
def split(
    source: Source,
    *,
    to: PathLike,
    parts: int,
    by: Literal["range", "hash", "size"] | None = None,
    key: KeyLike | None = None,
    boundaries: PathLike | None = None,
    layout: LayoutLike | None = None,
    reverse: bool = False,
    **settings: Unpack[Settings],
) -> Plan: ...
@overload
def split(
    *,
    size: int | str,
    parts: int,
    alpha: float | None = None,
    growth: float | str | None = None,
    memory: int | str | None = None,
    most_streams: int | None = None,
    volume: PathLike | None = None,
) -> FilesPlan: ...
def split(source: Source | None = None, **arguments: Any) -> Plan | FilesPlan:
    """The plan of a split: `split(source, ...)` with the arguments of `ascot.split`, or `split(size=BYTES, parts=N)`.

    The arguments of the second are those of `merge`. Raises the exceptions of `sort`, and InvalidRequest if the files
    do not fit in the memory.
    """
    return _split_of_size(**arguments) if source is None else _split_of_files(source, **arguments)


@_form_of("split")
def _split_of_files(
    source: Source,
    *,
    to: PathLike,
    parts: int,
    by: Literal["range", "hash", "size"] | None = None,
    key: KeyLike | None = None,
    boundaries: PathLike | None = None,
    layout: LayoutLike | None = None,
    reverse: bool = False,
    **settings: Unpack[Settings],
) -> Plan:
    request = Request(source, layout, key, reverse, settings)
    rule = request.split(by, boundaries)
    request.output(to, arguments.count("parts", parts, least=1))
    told, text, _ = _native.explain(request.options, by=rule)
    return plan_of_explanation(told, text)


@_form_of("split")
def _split_of_size(
    *,
    size: int | str,
    parts: int,
    alpha: float | None = None,
    growth: float | str | None = None,
    memory: int | str | None = None,
    most_streams: int | None = None,
    volume: PathLike | None = None,
) -> FilesPlan:
    number = arguments.count("parts", parts)
    given = {"size": arguments.size("size", size), "outputs": number, **_function(alpha, growth)}
    return files_plan_of(*_plan("split", memory, most_streams, volume, **given))


@overload
def merge(
    sources: Source,
    *,
    to: PathLike | None = None,
    key: KeyLike | None = None,
    layout: LayoutLike | None = None,
    reverse: bool = False,
    unique: bool = False,
    **settings: Unpack[Settings],
) -> Plan: ...
@overload
def merge(
    *,
    size: int | str,
    inputs: int,
    alpha: float | None = None,
    growth: float | str | None = None,
    memory: int | str | None = None,
    most_streams: int | None = None,
    volume: PathLike | None = None,
) -> FilesPlan: ...
def merge(sources: Source | None = None, **arguments: Any) -> Plan | FilesPlan:
    """The plan of a merge: `merge(sources, ...)` as of `ascot.merge`, or `merge(size=BYTES, inputs=N)`.

    The second is that of `inputs` sorted files of `size` bytes in all, which need not exist.

    `memory` are the bytes of the buffers, by default 1 GiB, and `most_streams` limits the files at once. `alpha` or
    `growth` plan a function of your own instead, which does not write what it reads: `alpha` is the share of bytes
    that is read in the pass with one file, `growth` the bytes that passes leave: `0.8`, or `"1:0.3,50:0.8"` for 1 and
    50 files. Raises the exceptions of `sort`, and InvalidRequest for a merge that does not fit.

    >>> import ascot
    >>> plan = ascot.plan.merge(inputs=100, size="1TB", memory="1GiB", volume="flash")
    >>> plan.bytes, len(plan.passes), plan.passes[0].inputs
    (2000000000000.0, 1, 100)
    """
    return _merge_of_size(**arguments) if sources is None else _merge_of_files(sources, **arguments)


@_form_of("merge")
def _merge_of_files(
    sources: Source,
    *,
    to: PathLike | None = None,
    key: KeyLike | None = None,
    layout: LayoutLike | None = None,
    reverse: bool = False,
    unique: bool = False,
    **settings: Unpack[Settings],
) -> Plan:
    request = Request(sources, layout, key, reverse, settings, "sources")
    if to is not None:
        request.output(to)
    request.set_rows(unique)
    request.set(merge=True)
    told, text, _ = _native.explain(request.options)
    return plan_of_explanation(told, text)


@_form_of("merge")
def _merge_of_size(
    *,
    size: int | str,
    inputs: int,
    alpha: float | None = None,
    growth: float | str | None = None,
    memory: int | str | None = None,
    most_streams: int | None = None,
    volume: PathLike | None = None,
) -> FilesPlan:
    given = {"size": arguments.size("size", size), "inputs": inputs, **_function(alpha, growth)}
    return files_plan_of(*_plan("merge", memory, most_streams, volume, **given))


@overload
def reshape(
    sources: Source,
    *,
    to: PathLike,
    parts: int,
    by: Literal["range", "hash", "value"] = "range",
    by_key: KeyLike | None = None,
    key: KeyLike | None = None,
    layout: LayoutLike | None = None,
    reverse: bool = False,
    **settings: Unpack[Settings],
) -> Plan: ...
@overload
def reshape(
    *,
    size: int | str,
    inputs: int,
    parts: int,
    by: Literal["range", "hash", "value"] | None = None,
    alpha: float | None = None,
    growth: float | str | None = None,
    growth_out: float | str | None = None,
    memory: int | str | None = None,
    most_streams: int | None = None,
    volume: PathLike | None = None,
) -> FilesPlan: ...
def reshape(sources: Source | None = None, **arguments: Any) -> Plan | FilesPlan:
    """The plan of a reshape: `reshape(sources, ...)` as of `ascot.reshape`, or `reshape(size=BYTES, ...)`.

    The second is that of `inputs` sorted files of `size` bytes in all to `parts` files.

    `by` decides on the file of a record, as in `ascot.reshape`; `growth_out` is the `growth` of the passes after the
    one with one file. The other arguments are those of `merge`. Raises the exceptions of `sort`, and InvalidRequest
    if the files do not fit in the memory.

    >>> import ascot
    >>> plan = ascot.plan.reshape(inputs=4, parts=3, size="1TB", by="hash", memory="2GiB", volume="flash")
    >>> plan.passes[0].inputs, plan.passes[0].outputs
    (4, 3)
    """
    return _reshape_of_size(**arguments) if sources is None else _reshape_of_files(sources, **arguments)


@_form_of("reshape")
def _reshape_of_files(
    sources: Source,
    *,
    to: PathLike,
    parts: int,
    by: Literal["range", "hash", "value"] = "range",
    by_key: KeyLike | None = None,
    key: KeyLike | None = None,
    layout: LayoutLike | None = None,
    reverse: bool = False,
    **settings: Unpack[Settings],
) -> Plan:
    request = Request(sources, layout, key, reverse, settings, "sources")
    request.reshape(by, by_key)
    request.output(to, arguments.count("parts", parts, least=1))
    told, text, _ = _native.explain(request.options)
    return plan_of_explanation(told, text)


@_form_of("reshape")
def _reshape_of_size(
    *,
    size: int | str,
    inputs: int,
    parts: int,
    by: Literal["range", "hash", "value"] | None = None,
    alpha: float | None = None,
    growth: float | str | None = None,
    growth_out: float | str | None = None,
    memory: int | str | None = None,
    most_streams: int | None = None,
    volume: PathLike | None = None,
) -> FilesPlan:
    function = _function(alpha, growth, growth_out)
    rule = arguments.maybe(arguments.word, "by", by, ("range", "hash", "value"))
    number = arguments.count("parts", parts)
    if by is not None and any(value is not None for value in function.values()):
        raise InvalidRequest("a function of your own has its own rule: leave out by, or alpha and growth")
    given = {"size": arguments.size("size", size), "inputs": inputs, "outputs": number, **function}
    return files_plan_of(*_plan("reshape", memory, most_streams, volume, by=rule or "range", **given))


def _function(
    alpha: float | None, growth: float | str | None, growth_out: float | str | None = None
) -> dict[str, Any]:
    """The options of a function of the user's own."""
    if alpha is not None and (growth is not None or growth_out is not None):
        raise InvalidRequest("both alpha and growth say how many bytes are written: give one of them")
    return {
        "alpha": arguments.maybe(arguments.real, "alpha", alpha, _SHARE),
        "growth": arguments.maybe(_growth, "growth", growth),
        "growth_out": arguments.maybe(_growth, "growth_out", growth_out),
    }


def _growth(name: str, growth: float | str) -> str:
    """A share, or shares by number of files, in the language of the command."""
    if isinstance(growth, str):
        return growth
    return str(arguments.real(name, growth, "a share such as 0.8, or a text such as '1:0.3,50:0.8'"))


def _plan(
    job: str, memory: int | str | None, most_streams: int | None, volume: PathLike | None, **given: Any
) -> tuple[str, str]:
    options = {
        "job": job,
        "inputs": 1,
        "outputs": 1,
        "size": None,
        "by": "range",
        "alpha": None,
        "growth": None,
        "growth_out": None,
        "records": None,
        "record_bytes": None,
        "memory": arguments.maybe(arguments.memory, "memory", memory),
        "most_streams": arguments.maybe(arguments.count, "most_streams", most_streams),
        "volume": arguments.maybe(arguments.path, "volume", volume, "a profile of a volume, or its kind"),
        **given,
    }
    for name in ("inputs", "outputs"):
        options[name] = arguments.count(name, options[name])
    told, text, _ = _native.plan(options)
    return told, text


Network = Literal["measured", "linear", "infinite"]


def cluster(
    size: int | str,
    *,
    nodes: int,
    node_type: PathLike,
    network: Network = "measured",
    connections: int = 1,
    uniform: bool = False,
) -> ClusterPlan:
    """The phases, the time and the price of a sort of `size` bytes on `nodes` nodes.

    `node_type` is the name of a known type, or a file with its speeds, its space and its price. `network` is the
    model of more nodes than were measured: the rate falls as `measured`, stays that of the best node (`linear`),
    or is no bottleneck (`infinite`). `connections` are those of each pair of nodes. Without `uniform` keys, a
    sample is taken first. Raises InvalidRequest for data that the nodes cannot hold.

    >>> import ascot
    >>> plan = ascot.plan.cluster("100TB", nodes=296, node_type="gce-n1-standard-32", uniform=True)
    >>> round(plan.seconds), round(plan.usd), plan.phases[0].bound_by
    (851, 144, 'disks')
    """
    node_count = arguments.count("nodes", nodes, least=1)
    types = [arguments.path("node_type", node_type, "the name of a type of nodes, or its file")]
    options = _cluster(size, types, network, connections, uniform)
    told, text, _ = _native.plan_cluster(options, node_count)
    return cluster_plan_of(told, text)


def cheapest_cluster(
    size: int | str,
    *,
    within: float | None = None,
    node_types: PathLike | Sequence[PathLike] = (),
    most_nodes: int = 1000,
    network: Network = "measured",
    connections: int = 1,
    uniform: bool = False,
) -> CheapestCluster:
    """The cheapest cluster of at most `most_nodes` nodes that sorts `size` bytes in at most `within` seconds.

    It compares the `node_types`, by default all that are known. The other arguments are those of `cluster`. Raises
    InvalidRequest if no cluster meets the deadline.

    >>> import ascot
    >>> found = ascot.plan.cheapest_cluster("100TB", within=20 * 60)
    >>> found.plan.nodes, found.plan.node_type, [other.node_type for other in found.others]
    (270, 'gce-n1-standard-32', ['ec2-i2.8xlarge'])
    """
    seconds = arguments.maybe(arguments.real, "within", within, "a number of seconds")
    if seconds is not None and seconds <= 0:
        arguments.wrong_value("within", within, "a number of seconds above 0")
    options = _cluster(size, arguments.paths("node_types", node_types), network, connections, uniform)
    most = arguments.count("most_nodes", most_nodes, least=1)
    told, text, _ = _native.cheapest_cluster(options, seconds, most)
    return cheapest_cluster_of(told, text)


def _cluster(size: int | str, node_types: list[str], network: str, connections: int, uniform: bool) -> dict[str, Any]:
    """The options of a sort on a cluster."""
    return {
        "size": arguments.size("size", size),
        "node_types": node_types,
        "network": arguments.word("network", network, get_args(Network)),
        "connections": arguments.count("connections", connections, least=1),
        "uniform": arguments.flag("uniform", uniform),
    }
