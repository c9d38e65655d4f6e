"""DiskBench and NetBench of the lab on the nodes of a cluster: what their disks and their network can do.

The network is measured in rounds. In each, a node sends to one other and receives from it, all nodes at once, until
all pairs had their turn; then all send to all, as a shuffle does:

    round 1   0 ⇄ 3   1 ⇄ 2            round 2   0 ⇄ 2   3 ⇄ 1            round 3   0 ⇄ 1   2 ⇄ 3

Bytes go by TCP between processes of the nodes, by NetBench's own protocol: each listens at the address of its node
and at no other, and both sides prove a token that is made for the call.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from typing import Any

from ascot import _native, arguments, errors
from ascot.cluster.helpers import Helper, Helpers, helpers, rates_of
from ascot.cluster.nodes import Node
from ascot.lab import disk_options, disk_rows, net_options
from ascot.progress import ProgressLike, reporter
from ascot.sources import PathLike
from ascot.tables import Cell, Table, table_of

__all__ = ["check_disk_options", "check_net_options", "check_nodes", "diskbench", "netbench", "rounds_of_pairs"]

KIB, MIB = 1 << 10, 1 << 20
# The limits of the lab, in which nodes would refuse a number after they were connected.
PAGE_BYTES = 4 * KIB
REQUEST_BYTES_MAX, REQUEST_BYTES = 64 * MIB, 4 * MIB
REQUESTS_MIN = 8
ROUNDS_MAX = 1000
SECONDS = (0.1, 1e6)
NET_BYTES_MIN = 64 * KIB
BLOCK_BYTES = (4 * KIB, 16 * MIB)
CONNECTIONS_MAX = 4


def diskbench(
    *,
    address: str = "auto",
    temp: PathLike | Sequence[PathLike] = (),
    size: int | str | None = None,
    request: int | str | None = None,
    memory: int | str | None = None,
    rounds: int = 3,
    seconds: float | None = None,
    progress: ProgressLike = None,
) -> Table:
    """Reads and writes on all nodes at the same time as a sort does, in the directories `temp` of each node.

    The other arguments are those of `ascot.lab.disk`; `temp` and `address` are those of `ascot.cluster.sort`. A row
    is the rate of one volume of a node in one pass, in bytes per second. The `notices` have the fastest node, the
    slowest one and the spread of each pass; `data` has the report of each node, as in the JSON of `ascot lab disk`.

    Raises the exceptions of `ascot.lab.disk`, with the name of the node.
    """
    named = [os.path.abspath(path) for path in arguments.paths("temp", temp)]
    options = disk_options([], [], size, request, memory, rounds, seconds)
    check_disk_options(options)
    with reporter(progress) as report, helpers(arguments.text("address", address), 1) as made:
        places = made.each(lambda _, actor: actor.directories.remote(named), None, "directories")
        given = {
            node.id: {**options, "inputs": own, "outputs": own} for node, own in zip(made.nodes, places, strict=True)
        }
        told = made.each(lambda node, actor: actor.run.remote(_disk, given[node.id]), report, "disks")
        reports = {node.name: json.loads(one) for node, one in zip(made.nodes, told, strict=True)}
    rows = [{"node": name, **row} for name, one in reports.items() for row in disk_rows(one)]
    summary = _summary_of_disks(rows)
    notices = [f"{what}: {text}" for what, (text, _) in summary.items()]
    facts = {"nodes": reports, "summary": {what: found for what, (_, found) in summary.items()}}
    return table_of(rows, f"disks of {len(reports)} nodes", data=facts, notices=notices)


def check_disk_options(options: dict[str, Any]) -> None:
    """Refuses before a connection what every node would refuse."""
    request = _bytes_of(options, "request", REQUEST_BYTES)
    if request % PAGE_BYTES or request > REQUEST_BYTES_MAX:
        arguments.wrong_value("request", options["request"], "a multiple of 4 KiB, at most 64 MiB")
    least = REQUESTS_MIN * request
    if _bytes_of(options, "size", least) < least:
        accepted = f"at least {REQUESTS_MIN} requests, {_native.bytes_text(least)}"
        arguments.wrong_value("size", options["size"], accepted)
    _bytes_of(options, "memory", 0)
    if options["rounds"] > ROUNDS_MAX:
        arguments.wrong_value("rounds", options["rounds"], f"a number from 1 to {ROUNDS_MAX}")
    least_seconds, most_seconds = SECONDS
    if options["seconds"] is not None and not least_seconds <= options["seconds"] <= most_seconds:
        accepted = f"a number from {least_seconds} to {most_seconds:.0f}"
        arguments.wrong_value("seconds", options["seconds"], accepted)


def check_net_options(options: dict[str, Any]) -> None:
    """Refuses before a connection what every node would refuse."""
    if _bytes_of(options, "size", NET_BYTES_MIN) < NET_BYTES_MIN:
        arguments.wrong_value("size", options["size"], "64 KiB or more")
    least, most = BLOCK_BYTES
    if not least <= _bytes_of(options, "block", least) <= most:
        arguments.wrong_value("block", options["block"], "4 KiB to 16 MiB")
    _bytes_of(options, "memory", 0)
    connections = options["connections"]
    if not connections or max(connections) > CONNECTIONS_MAX:
        shown = connections[0] if len(connections) == 1 else connections
        arguments.wrong_value("connections", shown, f"numbers from 1 to {CONNECTIONS_MAX}, such as [1, 2, 4]")


def check_nodes(nodes: Sequence[Node]) -> None:
    """Raises InvalidRequest for a cluster without a network."""
    if len(nodes) < 2:
        raise errors.InvalidRequest("the cluster has one node: there is no network to measure\n  start more nodes")


def _bytes_of(options: dict[str, Any], name: str, usual: int) -> int:
    """The bytes of an option, or the usual ones if it is not given. A share is refused: nodes differ."""
    given = options[name]
    if given is None:
        return usual
    try:
        return _native.size_bytes(name, given)
    except errors.InvalidRequest:
        arguments.wrong_value(name, given, "bytes, as a number or a text such as '512MiB'")


def _disk(options: dict[str, Any]) -> str:
    return _native.lab_disk(options, None)


def _summary_of_disks(rows: Sequence[dict[str, Cell]]) -> dict[str, tuple[str, dict[str, Any]]]:
    """For each pass and role: fastest, slowest and spread of the nodes, each with all of its volumes."""
    rates: dict[str, dict[str, float]] = {}
    for row in rows:
        phase = row["phase"] or "both phases"
        many = f"{row['reads']} reads and {row['writes']} writes in flight"
        allocated = ", preallocated" if row["preallocated"] else ""
        own = rates.setdefault(f"{phase}, {row['directions']}, {many}{allocated}, {row['role']}", {})
        own[str(row["node"])] = own.get(str(row["node"]), 0.0) + float(row["bytes_per_s"] or 0)
    return {what: rates_of(list(own.items())) for what, own in rates.items()}


def netbench(
    *,
    address: str = "auto",
    size: int | str | None = None,
    block: int | str | None = None,
    connections: int | Sequence[int] = 1,
    memory: int | str | None = None,
    progress: ProgressLike = None,
) -> Table:
    """Sends between all pairs of nodes, without disks: in rounds in which each node sends to one other and receives
    from it, and then all to all.

    `size` are the bytes from each node to each other (1 GiB), twice; `block`, `connections` and `memory` are those of
    `ascot.lab.net`. A row is the rate from one node to another in a round, in bytes per second; in the last round
    `sender` is None, and the rate is that of all others together. The `notices` have the fastest and the slowest
    pair and node, and the spread. `data` has the report of each round, as in the JSON of `ascot lab net`.

    Raises InvalidRequest if the cluster has one node only, and the exceptions of `ascot.lab.net`, with the name of
    the node.
    """
    options = net_options(2, size, block, connections, False, memory)
    check_net_options(options)
    with reporter(progress) as report, helpers(arguments.text("address", address), 1) as made:
        nodes = made.nodes
        check_nodes(nodes)
        groups = [[[nodes[one], nodes[other]] for one, other in pairs] for pairs in rounds_of_pairs(len(nodes))]
        reports = []
        for number, together in enumerate([*groups, [nodes]]):
            what = f"round {number + 1} of {len(groups) + 1}"
            reports.append(_shuffled(made, together, options, report, what))
    rows = [row for number, told in enumerate(reports) for row in _rows_of_round(number + 1, told, len(reports))]
    pairs = [
        (f"{row['sender']} to {row['receiver']}", float(row["bytes_per_s"] or 0)) for row in rows if row["sender"]
    ]
    whole = [(str(row["receiver"]), float(row["bytes_per_s"] or 0)) for row in rows if not row["sender"]]
    summary = {"pairs": rates_of(pairs), "all to all": rates_of(whole)}
    return table_of(
        rows,
        f"network of {len(nodes)} nodes",
        notices=[f"{what}: {text}" for what, (text, _) in summary.items()],
        data={
            "rounds": [[one for _, one in told] for told in reports],
            "summary": {what: facts for what, (_, facts) in summary.items()},
        },
    )


def rounds_of_pairs(count: int) -> list[list[tuple[int, int]]]:
    """Rounds in which `count` nodes meet in pairs, until all have met; with an odd number one node rests in each.

    The first one stays in its place, and all others move on by one place after each round.

    >>> rounds_of_pairs(4)
    [[(0, 3), (1, 2)], [(0, 2), (3, 1)], [(0, 1), (2, 3)]]
    """
    places = list(range(count + count % 2))
    rounds = []
    for _ in range(len(places) - 1):
        pairs = [(places[at], places[-1 - at]) for at in range(len(places) // 2)]
        rounds.append([pair for pair in pairs if max(pair) < count])
        places[1:] = [places[-1], *places[1:-1]]
    return rounds


def _shuffled(
    made: Helpers, groups: list[list[Node]], options: dict[str, Any], report: Callable[..., object] | None, what: str
) -> list[tuple[list[Node], dict[str, Any]]]:
    """Shuffles in each group of nodes, all groups at once; returns each group with its report."""
    listening = made.each(lambda node, actor: actor.run.remote(_free_address, node.address), None, what)
    place = {node.id: name for node, name in zip(made.nodes, listening, strict=True)}
    participants: dict[str, dict[str, Any]] = {}
    for group in groups:
        names, token = [place[node.id] for node in group], secrets.token_hex(32).encode()
        participants |= {node.id: {"listen": place[node.id], "list": names, "token": token} for node in group}

    def call(node: Node, actor: Helper) -> Any:
        participant = participants.get(node.id)
        run: Any = actor.run
        return None if participant is None else run.remote(_net, {**options, "participant": participant})

    told = dict(zip((node.id for node in made.nodes), made.each(call, report, what), strict=True))
    return [(group, json.loads(told[group[0].id])) for group in groups]


# In the process of a node: sockets that keep the ports of `_free_address` until `_net` has used them.
_held: list[socket.socket] = []


def _net(options: dict[str, Any]) -> str:
    try:
        return _native.lab_net(options, None)
    finally:
        while _held:
            _held.pop().close()


def _free_address(host: str) -> str:
    """The address of a node with a port that is free, and that no other process gets before `_net` listens there."""
    held = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    # The listener of `_net` has this option, too, so that it can bind a port that is bound already.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((host, 0))
    _held.append(held)
    port = held.getsockname()[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _rows_of_round(number: int, told: list[tuple[list[Node], dict[str, Any]]], last: int) -> list[dict[str, Cell]]:
    rows: list[dict[str, Cell]] = []
    # The last round is all to all. With two nodes it has one pair, too.
    is_of_pairs = number < last
    for group, report in told:
        for one in report["rounds"]:
            for at, member in enumerate(one["rates"]["members"]):
                sender = group[1 - at].name if is_of_pairs else None
                rate = {"sender": sender, "receiver": group[at].name, "bytes_per_s": float(member["bytes_per_s"])}
                rows.append({"round": number, "connections": one["connections"], **rate})
    return rows
