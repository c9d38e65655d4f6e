"""What the processes of a job tell: at the end of a phase, how long writers wrote and how much memory each had; with
each call, the bytes that they read from object stores and wrote there.
"""

from __future__ import annotations

from typing import Any

from ascot.cluster.nodes import Node, all_answers
from ascot.cluster.shares import Shares

__all__ = ["Accounts"]


class Accounts:
    """The accounts of all processes of a job."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        # The most memory of each process of a node, bytes.
        self._peaks: dict[str, dict[Any, int]] = {}
        self.fetched = self.uploaded = 0

    def take(self, nodes: list[Node], shares: Shares) -> list[Node]:
        """Asks all processes of nodes, and adds what they did to a phase. Returns the nodes that do not answer."""
        answers = all_answers(
            self._ray,
            nodes,
            lambda node: [node.writer.account.remote(), *(worker.end.remote() for worker in node.workers)],
        )
        silent = []
        for node, told, lost in answers:
            if lost is not None:
                silent.append(node)
                continue
            account, *workers = told
            peaks = self._peaks.setdefault(node.name, {})
            peaks["writer"] = account["peak"]
            peaks.update(zip(node.workers, workers, strict=True))
            shares.add(node, 0, writing=account["writing"], disk=account["disk"])
            size, first_to_last = account["written"]
            runs = account["runs"]
            shares.add_written(node, size, first_to_last, (account["bytes"] if runs else 0, runs))
        return silent

    def peak(self, nodes: list[Node]) -> int:
        """The most memory of a node with its object store, bytes."""
        stores = {node.name: node.store for node in nodes}
        return max((stores.get(name, 0) + sum(peaks.values()) for name, peaks in self._peaks.items()), default=0)
