"""The type of a cluster's nodes, as `ascot.plan.cluster` reads it: measured by DiskBench and NetBench.

    disks       the rate at which the volumes of a node read and write at once, in the slower of both phases
    network     what a node gets from all others together, when all send to all
    small sort  the phases of a sort on these nodes, whose rates replace those of disks in a plan

The file has the format of docs/formats/node-type.md.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from ascot import arguments, errors
from ascot.cluster.bench import check_disk_options, check_net_options, check_nodes, diskbench, netbench
from ascot.cluster.files import write_text
from ascot.cluster.helpers import helpers
from ascot.cluster.jobs import Finished
from ascot.cluster.reports import SAMPLE, ClusterReport
from ascot.lab import disk_options, net_options
from ascot.progress import ProgressLike, checked
from ascot.sources import PathLike

__all__ = ["node_type"]


def node_type(
    to: PathLike,
    *,
    usd_per_hour: float,
    coordinator_usd_per_hour: float = 0.0,
    name: str | None = None,
    sort: Finished | ClusterReport | None = None,
    address: str = "auto",
    temp: PathLike | Sequence[PathLike] = (),
    size: int | str | None = None,
    progress: ProgressLike = None,
) -> str:
    """Measures the nodes of a cluster, and writes their type to the file `to`, for `ascot.plan.cluster` and `ascot
    plan cluster --node-type`. Returns the text of the file.

    The disks are measured as by `diskbench`, in the directories `temp` of each node, and the network as by
    `netbench`, both with `size`. Processors and memory are the least of a node, as Ray says, and space that of the
    volumes of `temp`. Prices are US dollars an hour, of a node and of one further node that coordinates the others.
    `name` is by default that of the file. With `sort`, a finished sort on these nodes or its report, plans have the
    rates of its phases in place of those of the disks.

    Raises the exceptions of `diskbench` and `netbench`, and InvalidRequest for a `sort` without both phases.
    """
    path = arguments.path("to", to)
    _check_place(path)
    given = {"usd_per_hour": usd_per_hour, "coordinator_usd_per_hour": coordinator_usd_per_hour}
    prices = {what: arguments.real(what, price) for what, price in given.items()}
    for what, price in prices.items():
        if price < 0:
            arguments.wrong_value(what, given[what], "a price of at least 0, US dollars an hour")
    usual = os.path.basename(path).removesuffix(".toml")
    title = usual if name is None else arguments.text("name", name)
    small = None if sort is None else _small_sort(sort)
    named = [os.path.abspath(one) for one in arguments.paths("temp", temp)]
    check_disk_options(disk_options([], [], size, None, None, 1, None))
    check_net_options(net_options(2, size, None, 1, False, None))
    checked(progress)
    with helpers(arguments.text("address", address), 1) as made:
        check_nodes(made.nodes)
        # Both use the connection that is there.
        disks = _disks(diskbench(temp=temp, size=size, progress=progress))
        network = _network(netbench(size=size, progress=progress))
        places = made.each(lambda _, actor: actor.directories.remote(named), None, "directories")
        own = {node.id: found for node, found in zip(made.nodes, places, strict=True)}
        space = made.each(lambda node, actor: actor.run.remote(volume_bytes, own[node.id]), None, "space")
        facts = {
            "cores": min(node.cpus for node in made.nodes),
            "memory_bytes": min(node.memory + node.store for node in made.nodes),
            "data_disk_bytes": min(space),
        }
        lines = [f"{field} = {_toml(value)}" for field, value in {"name": title, **prices, **facts}.items()]
        lines.append(f"disks = {{ bytes_per_s = {disks[0]:.0f}, deviation = {disks[1]:.0f} }}")
        if small is not None:
            lines.append("small_sort = { " + ", ".join(f"{field} = {value}" for field, value in small.items()) + " }")
        for peers, connections, rate in network:
            lines += ["", "[[network]]", f"peers = {peers}", f"connections = {connections}"]
            lines.append(f"bytes_per_s = {rate:.0f}")
    text = "\n".join(lines) + "\n"
    write_text(path, text)
    return text


def _check_place(path: str) -> None:
    """Raises an error for a place where no file may be made, before minutes of measuring."""
    parent = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise errors.FileError(f"{path}: it is a directory\n  name a file (to=)", filename=path)
    if not os.path.isdir(parent):
        told = f"{parent}: there is no such directory\n  make it, or name another file (to=)"
        raise errors.FileMissing(told, filename=parent)
    if not os.access(parent, os.W_OK):
        raise errors.FileDenied(f"{parent}: no file may be made there\n  name another file (to=)", filename=parent)


def _toml(value: Any) -> str:
    # A text of JSON is one of TOML.
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


def _disks(rows: Iterable[Any]) -> tuple[float, float]:
    """The mean rate of the nodes, and its deviation, bytes/s."""
    rates: dict[str, dict[str, dict[str, float]]] = {}
    for row in rows:
        if row["directions"] == "both" and not row["preallocated"]:
            roles = rates.setdefault(row["phase"] or "", {}).setdefault(row["node"], {})
            roles[row["role"]] = roles.get(row["role"], 0.0) + row["bytes_per_s"]
    phases = [[min(roles.values()) for roles in nodes.values()] for nodes in rates.values()]
    slower = min(phases, key=statistics.fmean)
    return statistics.fmean(slower), statistics.pstdev(slower)


def _network(rows: Iterable[Any]) -> list[tuple[int, int, float]]:
    """The peers, the connections of each pair, and the mean rate of a node, of each measurement of all to all."""
    rates: dict[int, list[float]] = {}
    for row in rows:
        if row["sender"] is None:
            rates.setdefault(row["connections"], []).append(row["bytes_per_s"])
    return [(len(own), connections, statistics.fmean(own)) for connections, own in rates.items()]


def _small_sort(sort: Finished | ClusterReport) -> dict[str, Any]:
    report = sort.report if isinstance(sort, Finished) else sort
    if not isinstance(report, ClusterReport):
        arguments.wrong_type("sort", sort, "a finished sort, or its report")
    phases = [one for one in report.phases if one.name != SAMPLE]
    is_whole = [one.name for one in phases] == ["map and shuffle", "sort and reduce"]
    # What was done before a job was resumed, or again after a fault, is in no phase or in several.
    is_whole = is_whole and all(one.bytes > 0.99 * report.bytes for one in phases) and not report.lost_nodes
    if report.kind != "sort" or report.shuffle != "push" or not is_whole:
        raise errors.InvalidRequest(
            "sort: plans have the phases of a sort that pushes, once each, on all nodes\n  give one that was not "
            "resumed and lost no node, or leave it out"
        )
    return {
        "nodes": len(phases[0].nodes),
        "input_bytes": report.bytes,
        "map_shuffle_seconds": phases[0].seconds,
        "sort_reduce_seconds": phases[1].seconds,
    }


def volume_bytes(directories: list[str]) -> int:
    """The space of the volumes of directories, each volume once, bytes."""
    found = {os.stat(one).st_dev: os.statvfs(one) for one in directories}
    return sum(one.f_blocks * one.f_frsize for one in found.values())
