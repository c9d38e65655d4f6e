"""Processes on the nodes for work that is no job: they measure, generate records and check files.

    each    one call on every node, all at the same time
    spread  many calls, each on any process that is free; one whose process is lost is made again on another node

Invariant: nothing runs on the nodes after `helpers` has ended. Work that is stopped removes its files first.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ascot import _native, errors
from ascot.cluster.actors import guarded
from ascot.cluster.fleet import check_versions, first_line
from ascot.cluster.nodes import Node, all_answers, connected, discover

__all__ = ["Helper", "Helpers", "helpers"]

# A call that fails so often, each time with its process, is not made again.
ATTEMPTS_MAX = 3
WAIT_SECONDS = 0.5
# Work that is stopped removes its files within this time.
STOP_SECONDS = 20.0


def _with_temp(error: errors.AscotError | None) -> errors.AscotError | None:
    """The error of a directory for temporary files, with what to do."""
    if error is None:
        return None
    told = error.message.splitlines()[0].replace(": File exists", ": it is not a directory")
    advice = "name a directory of each node in which files may be made (temp=)"
    return type(error)(f"{told}\n  {advice}", **{name: getattr(error, name) for name in type(error)._fields})


class Helper:
    """A process on a node. A fault of a call is a result: a pair of None and the exception."""

    def version(self) -> str:
        """The version of Ascot there."""
        return _native.__version__

    def directories(self, temp: list[str]) -> Any:
        """The directories for temporary files: those given, or the usual one of the node."""
        usual = os.environ.get("ASCOT_TMPDIR") or os.environ.get("TMPDIR") or tempfile.gettempdir()

        def made() -> list[str]:
            for directory in temp or [usual]:
                os.makedirs(directory, exist_ok=True)
            return [os.path.abspath(directory) for directory in temp or [usual]]

        told, error = guarded(made)
        return told, _with_temp(error)

    def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a function of the package."""
        return guarded(lambda: work(*arguments))

    def stop(self) -> None:
        """Stops what runs; returns when it has ended."""
        _native.stop_all()


class Helpers:
    """The processes on the nodes of a cluster."""

    def __init__(self, ray: Any, nodes: list[Node], per_node: int | None) -> None:
        self._ray = ray
        self.nodes = nodes
        self.places = [
            (node, node.place_helper(Helper)) for node in nodes for _ in range(min(per_node or 1 << 16, node.cpus))
        ]

    def first_of(self, node: Node) -> Any:
        """The first process of a node."""
        return next(actor for where, actor in self.places if where is node)

    def check(self) -> None:
        """Checks that all nodes have the version of this process."""
        found = []
        for node, told, lost in all_answers(self._ray, self.nodes, lambda one: self.first_of(one).version.remote()):
            if lost is not None:
                raise _lost(node, lost)
            found.append((node.name, told))
        check_versions(found, _native.__version__)

    def each(self, call: Callable[[Node, Any], Any], report: Callable[..., object] | None, what: str) -> list[Any]:
        """The results of a call on the first process of every node; None for a node without a call.

        Raises the error of the first node that has one, with its name.
        """
        calls = {node.id: call(node, self.first_of(node)) for node in self.nodes}
        waiting = [one for one in calls.values() if one is not None]
        while waiting:
            _, waiting = self._ray.wait(waiting, num_returns=len(waiting), timeout=WAIT_SECONDS)
            _tell(report, what, len(self.nodes) - len(waiting), len(self.nodes), "nodes")
        return [None if calls[node.id] is None else self._result(node, calls[node.id]) for node in self.nodes]

    def _result(self, node: Node, call: Any) -> Any:
        try:
            told, error = self._ray.get(call)
        except self._ray.exceptions.RayError as lost:
            raise _lost(node, lost) from lost
        if error is not None:
            raise _named(node, error)
        return told

    def spread(
        self, count: int, call: Callable[[Any, int], Any], report: Callable[..., object] | None, what: str
    ) -> list[Any]:
        """The results of `count` calls."""
        results: dict[int, Any] = {}
        attempts: dict[int, int] = {}
        queue, free, running = deque(range(count)), deque(self.places), {}
        while len(results) < count:
            while queue and free:
                node, actor = free.popleft()
                number = queue.popleft()
                running[call(actor, number)] = (node, actor, number)
            for one in self._ray.wait(list(running), num_returns=1, timeout=WAIT_SECONDS)[0]:
                node, actor, number = running.pop(one)
                try:
                    told, error = self._ray.get(one)
                except self._ray.exceptions.RayError as lost:
                    attempts[number] = attempts.get(number, 0) + 1
                    if attempts[number] >= ATTEMPTS_MAX or not (free or running):
                        raise _lost(node, lost) from lost
                    queue.append(number)
                    continue
                if error is not None:
                    raise _named(node, error)
                results[number] = told
                free.append((node, actor))
            _tell(report, what, len(results), count, "files")
        return [results[number] for number in range(count)]

    def stop(self) -> None:
        """Stops what runs, and waits until it has removed its files."""
        calls = [actor.stop.remote() for _, actor in self.places]
        with suppress(self._ray.exceptions.RayError):
            self._ray.wait(calls, num_returns=len(calls), timeout=STOP_SECONDS)

    def end(self) -> None:
        """Ends the processes."""
        for _, actor in self.places:
            self._ray.kill(actor)


@contextmanager
def helpers(address: str, per_node: int | None = None) -> Iterator[Helpers]:
    """Processes on all nodes of a cluster: at most `per_node` on each, one for each of its processors."""
    with connected(address) as ray:
        made = Helpers(ray, discover(ray), per_node)
        try:
            made.check()
            yield made
        except BaseException:
            made.stop()
            raise
        finally:
            made.end()


def rates_of(rates: Sequence[tuple[str, float]]) -> tuple[str, dict[str, Any]]:
    """Fastest, slowest and spread of named rates, bytes/s, as a text and as facts."""
    slowest, fastest = min(rates, key=lambda one: one[1]), max(rates, key=lambda one: one[1])
    mean = sum(rate for _, rate in rates) / len(rates)
    spread = (fastest[1] - slowest[1]) / mean if mean else 0.0
    text = (
        f"fastest {fastest[0]} {_native.bytes_text(fastest[1])}/s, slowest {slowest[0]} "
        f"{_native.bytes_text(slowest[1])}/s, spread {spread:.0%} of the mean"
    )
    facts = {"fastest": fastest[0], "slowest": slowest[0], "mean_bytes_per_s": mean, "relative_spread": spread}
    return text, facts


def _tell(report: Callable[..., object] | None, what: str, done: int, count: int, noun: str) -> None:
    if report is not None:
        report(what, 0, None, 0.0, f"{done} of {count} {noun}", "", None, done / max(1, count))


def _lost(node: Node, lost: BaseException) -> errors.AscotError:
    return errors.AscotError(
        f"node {node.name}: its process ended: {first_line(lost)}\n"
        "  look at the logs of Ray there, or leave the node out"
    )


def _named(node: Node, error: errors.AscotError) -> errors.AscotError:
    """The same error with the name of the node."""
    fields = {name: getattr(error, name) for name in type(error)._fields}
    return type(error)(f"node {node.name}: {error}", **fields)
