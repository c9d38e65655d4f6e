"""The lab: studies of streams, merge sorts, disks and networks, whose results are tables.

Studies of streams and of merge sorts keep each finished measurement in the directory `out`, and continue after the
last one when they are started again; `read_streams` and `read_sorts` read such a directory, also that of the command.
Lists of numbers are written as in the command: `"1000,1e4"`, `"1e3..1e6"` in steps of ten, `"12..20"` for exponents.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from ascot import _native, arguments
from ascot.errors import SchemaMismatch, of_system
from ascot.progress import ProgressLike, reporter
from ascot.sources import PathLike
from ascot.tables import Cell, Table, table_of

__all__ = ["disk", "net", "read_disk", "read_net", "read_sorts", "read_streams", "sort", "streams"]

_BACKENDS = ("plain", "buffered", "sized", "mapped", "direct")


def streams(
    out: PathLike,
    *,
    elements: str | int = "1e3..1e6",
    streams: str | int = "1",
    exponents: str | int = "12..20",
    backends: str | Sequence[str] = _BACKENDS,
    direction: str | None = None,
    cache: str | None = None,
    loops: int = 6,
    params: PathLike | None = None,
    work: PathLike | None = None,
    memory: int | str | None = None,
    progress: ProgressLike = None,
) -> Table:
    """Measures element streams, and returns a row for each combination of the arguments.

    `elements` are the 32-bit integers of a stream, `streams` the streams open at once, `exponents` those of the block
    (2**12 bytes). `backends` are `plain`, `buffered`, `sized`, `mapped` and `direct`. `direction` is `read` or
    `write`, and `cache` is `cold` or `warm`; both by default. `loops` are the loops of a measurement, the first of
    which is left out. `params` is a file of parameters instead. Files are measured in `work`, by default `out`;
    results are kept in `out`. Columns with `_ms` are milliseconds of a loop; `formula_ios` stand beside
    `counted_ios`.

    Raises InvalidRequest, MemoryLimit, NoSpace and the subclasses of OSError.

    >>> import ascot, tempfile
    >>> table = ascot.lab.streams(tempfile.mkdtemp(), elements=1000, exponents=12, loops=2, cache="warm")
    >>> set(table["direction"]), len(table["mean_ms"]) == len(table)
    ({'...', '...'}, True)
    """
    options = {
        "elements": _numbers("elements", elements),
        "streams": _numbers("streams", streams),
        "exponents": _numbers("exponents", exponents),
        "backends": [backends] if isinstance(backends, str) else arguments.texts("backends", backends),
        "direction": arguments.maybe(arguments.word, "direction", direction, ("read", "write")),
        "loops": str(arguments.count("loops", loops)),
    }
    study = _study(out, work, cache, params, memory)
    with reporter(progress) as report:
        table, warnings = _native.lab_streams(study, options, report)
    return Table(table, "streams", notices=warnings)


def sort(
    out: PathLike,
    *,
    elements: str | int = "1e4,1e6",
    memory_elements: str | int = "1e3..1e6",
    fan_in: str | int = "10,25,30",
    read_stream: str = "mapped",
    write_stream: str = "mapped",
    exponents: str | int = 16,
    write_exponents: str | int | None = None,
    cache: str | None = None,
    descending: bool = False,
    loops: int = 5,
    seed: int = 1,
    params: PathLike | None = None,
    work: PathLike | None = None,
    memory: int | str | None = None,
    progress: ProgressLike = None,
) -> Table:
    """Measures merge sorts of random integers, and returns a row for each combination of the arguments.

    `elements` are sorted in runs of `memory_elements`, which are merged `fan_in` at once. Streams read and write in
    blocks of 2**`exponents` bytes; with `write_exponents`, all combinations of both ranges are measured. `memory` is
    the cap of one sort. The other arguments are those of `streams`.

    Raises InvalidRequest, MemoryLimit, NoSpace and the subclasses of OSError.
    """
    options = {
        "elements": _numbers("elements", elements),
        "memory_elements": _numbers("memory_elements", memory_elements),
        "fan_in": _numbers("fan_in", fan_in),
        "read_stream": arguments.word("read_stream", read_stream, _BACKENDS),
        "write_stream": arguments.word("write_stream", write_stream, _BACKENDS),
        "read_exponents": _numbers("exponents", exponents),
        "write_exponents": _numbers("write_exponents", exponents if write_exponents is None else write_exponents),
        "all_exponents": write_exponents is not None,
        "descending": arguments.flag("descending", descending),
        "loops": str(arguments.count("loops", loops)),
        "seed": arguments.count("seed", seed, bits=64),
    }
    study = _study(out, work, cache, params, memory)
    with reporter(progress) as report:
        table, warnings = _native.lab_sorts(study, options, report)
    return Table(table, "merge sorts", notices=warnings)


def _study(
    out: PathLike, work: PathLike | None, cache: str | None, params: PathLike | None, memory: int | str | None
) -> dict[str, Any]:
    directories = {"out": arguments.path("out", out), "work": arguments.path("work", out if work is None else work)}
    study = {
        "cache": arguments.maybe(arguments.word, "cache", cache, ("cold", "warm")),
        "params": arguments.maybe(arguments.path, "params", params),
        "memory": arguments.maybe(arguments.memory, "memory", memory),
    }
    for directory in directories.values():
        with of_system():
            os.makedirs(directory, exist_ok=True)
    return {**directories, **study}


def _numbers(name: str, given: str | int) -> str:
    """A list of numbers in the language of the command."""
    accepted = "a number, or a text such as '1e3..1e6'"
    return given if isinstance(given, str) else f"{arguments.real(name, given, accepted):.0f}"


def disk(
    inputs: PathLike | Sequence[PathLike],
    outputs: PathLike | Sequence[PathLike],
    *,
    size: int | str | None = None,
    request: int | str | None = None,
    memory: int | str | None = None,
    rounds: int = 3,
    seconds: float | None = None,
    progress: ProgressLike = None,
) -> Table:
    """Reads and writes as a sort does, in directories of input and output volumes, without sorting.

    `size` are the bytes of each input (1 GiB), `request` those of a request (4 MiB). A rate is the median of the
    `rounds`; `seconds` shortens the inputs to fit. A row is the rate of one volume in one pass, in bytes per second;
    `data` has all facts, as in the JSON of `ascot lab disk`.

    Raises InvalidRequest, AscotError if memory or space do not suffice, and the subclasses of FileError.
    """
    options = disk_options(inputs, outputs, size, request, memory, rounds, seconds)
    from json import loads

    with reporter(progress) as report:
        return _disk_table(loads(_native.lab_disk(options, report)))


def disk_options(
    inputs: PathLike | Sequence[PathLike],
    outputs: PathLike | Sequence[PathLike],
    size: int | str | None,
    request: int | str | None,
    memory: int | str | None,
    rounds: int,
    seconds: float | None,
) -> dict[str, Any]:
    """The options of a measurement of disks for the extension module."""
    return {
        "inputs": arguments.paths("inputs", inputs),
        "outputs": arguments.paths("outputs", outputs),
        "size": arguments.maybe(arguments.size, "size", size),
        "request": arguments.maybe(arguments.size, "request", request),
        "memory": arguments.maybe(arguments.memory, "memory", memory),
        "rounds": arguments.count("rounds", rounds, least=1),
        "seconds": arguments.maybe(arguments.real, "seconds", seconds),
    }


def net(
    peers: int = 4,
    *,
    size: int | str | None = None,
    block: int | str | None = None,
    connections: int | Sequence[int] = 1,
    sweep: bool = False,
    memory: int | str | None = None,
    progress: ProgressLike = None,
) -> Table:
    """Shuffles all to all between `peers` on this machine, without disks.

    `size` are the bytes from each peer to each other (1 GiB), `block` those of a block, `connections` the numbers of
    connections of a pair, each of which makes a round; `sweep` adds rounds with fewer peers. A row is the rate of one
    peer in one round, in bytes per second. `ascot lab net` measures several machines; `read_net` reads its report.

    Raises InvalidRequest, and AscotError if memory does not suffice or a peer fails.
    """
    options = net_options(peers, size, block, connections, sweep, memory)
    from json import loads

    with reporter(progress) as report:
        return _net_table(loads(_native.lab_net(options, report)))


def net_options(
    peers: int,
    size: int | str | None,
    block: int | str | None,
    connections: int | Sequence[int],
    sweep: bool,
    memory: int | str | None,
) -> dict[str, Any]:
    """The options of a measurement of a network for the extension module; without `participant`, on this machine."""
    return {
        "peers": arguments.count("peers", peers),
        "participant": None,
        "size": arguments.maybe(arguments.size, "size", size),
        "block": arguments.maybe(arguments.size, "block", block),
        "connections": _counts("connections", connections),
        "sweep": arguments.flag("sweep", sweep),
        "memory": arguments.maybe(arguments.memory, "memory", memory),
        "wait_seconds": None,
    }


def _counts(name: str, given: int | Sequence[int]) -> list[int]:
    """A number, or several."""
    several = isinstance(given, Iterable) and not isinstance(given, str | bytes)
    numbers: Iterable[Any] = given if several else [given]  # type: ignore[assignment]
    return [arguments.count(name, one, least=1) for one in numbers]


def read_streams(path: PathLike) -> Table:
    """The results of `streams` or of `ascot lab streams` in the directory `path`, or in its file `streams.csv`.

    Raises SchemaMismatch for a file that is not such a table, and the subclasses of FileError.
    """
    return Table(_native.read_lab_streams(arguments.path("path", path)), "streams")


def read_sorts(path: PathLike) -> Table:
    """The results of `sort` or of `ascot lab sort` in the directory `path`, or in its file `sorts.csv`.

    Raises SchemaMismatch for a file that is not such a table, and the subclasses of FileError.
    """
    return Table(_native.read_lab_sorts(arguments.path("path", path)), "merge sorts")


def read_disk(path: PathLike) -> Table:
    """The result in a file that `ascot lab disk --report` wrote.

    Raises SchemaMismatch for a file that is not such a report, and the subclasses of FileError.
    """
    return _read(path, _disk_table)


def read_net(path: PathLike) -> Table:
    """The result in a file that `ascot lab net --report` wrote.

    Raises SchemaMismatch for a file that is not such a report, and the subclasses of FileError.
    """
    return _read(path, _net_table)


def _read(path: PathLike, table: Any) -> Table:
    from json import load

    name = arguments.path("path", path)
    with of_system(), open(name, encoding="utf-8") as file:
        try:
            made: Table = table(load(file))
        except (KeyError, TypeError, ValueError) as error:
            raise SchemaMismatch(f"{name}: this is not a report of that study", file=name) from error
    return made


def _disk_table(report: dict[str, Any]) -> Table:
    return table_of(disk_rows(report), "disks", data=report, notices=report["notices"])


def disk_rows(report: dict[str, Any]) -> list[dict[str, Cell]]:
    """The rates in a report of `ascot lab disk`."""
    rows: list[dict[str, Cell]] = []
    for one in report["passes"]:
        facts = {name: one[name] for name in ("phase", "directions", "preallocated", "reads", "writes")}
        for role in ("reading", "writing"):
            for member in (one.get(role) or {"members": []})["members"]:
                rate = {"role": role, "volume": member["name"], "bytes_per_s": float(member["bytes_per_s"])}
                rows.append({**facts, **rate, "spread": float(one["relative_spread"])})
    return rows


def _net_table(report: dict[str, Any]) -> Table:
    rows: list[dict[str, Cell]] = [
        {
            "peers": one["peers"],
            "connections": one["connections"],
            "peer": member["name"],
            "bytes_per_s": float(member["bytes_per_s"]),
        }
        for one in report["rounds"]
        for member in one["rates"]["members"]
    ]
    return table_of(rows, "network", data=report)
