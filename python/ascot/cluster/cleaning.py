"""The files of a job on nodes, at its end: of the nodes that take part, and of excluded ones that are alive.

The disk of an excluded node may be full, broken or gone. Nothing that goes wrong here is a fault of the job.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ascot.cluster.fleet import Fleet
from ascot.cluster.nodes import Node

__all__ = ["REMOVE_SECONDS", "clean_nodes"]

REMOVE_SECONDS = 60
# A process that starts on an excluded node, and removes files there, has so long.
EXCLUDED_SECONDS = 20


def clean_nodes(ray: Any, fleet: Fleet, clean: Callable[[Node], Any]) -> None:
    """Makes the call `clean` of the writer of each node, and waits for all of them."""
    calls = [clean(node) for node in fleet.nodes]
    ray.wait(calls, num_returns=len(calls), timeout=REMOVE_SECONDS)
    # Ray knows by now which of the others are gone.
    alive = {facts["NodeID"] for facts in ray.nodes() if facts["Alive"]}
    others = [node for node in fleet.excluded if node.id in alive]
    if not others:
        return
    calls = []
    for node in others:
        fleet.place_writer(node)
        calls.append(clean(node))
    ray.wait(calls, num_returns=len(calls), timeout=EXCLUDED_SECONDS)
    for node in others:
        node.end()
