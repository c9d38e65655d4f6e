"""The nodes that take part in a job: starting their actors, finding out which are lost, and replacing processes.

    a process is killed     another one takes its place on the node; a writer finds its batches in its files
    a process hangs         it does not answer, or does not run, for a minute: the same
    a node is lost          no actor of it answers, or no process can be started there: it is excluded
    a disk reports errors   the node is excluded

Invariant: an excluded node never gets work again in this run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from secrets import token_bytes
from typing import Any, NamedTuple

from ascot import _native, errors
from ascot._native import bytes_text
from ascot.cluster.actors import digest_of
from ascot.cluster.nodes import START_SECONDS, Node, all_answers
from ascot.cluster.objects import Stores, is_url
from ascot.cluster.settings import settings_of

__all__ = ["Fleet"]

# A process is lost if it is unavailable for so long, or if Ray says nothing and it does not answer for so long: a
# writer that waits for a slow disk answers late.
UNAVAILABLE_SECONDS = 8.0
LATE_SECONDS = 30.0
PING_SECONDS = 2.0
PAUSE_SECONDS = 0.2


class Volume(NamedTuple):
    """The volume of a directory for temporary files: the id of the node and the place of the directory there, the
    host, the number of the volume on it, and its free bytes."""

    node: str
    place: int
    host: str
    device: int
    free: int


class Fleet:
    """The nodes of a job that are not excluded."""

    def __init__(
        self, ray: Any, nodes: list[Node], job: dict[str, Any], functions: bytes | None, stores: Stores | None = None
    ) -> None:
        self._ray = ray
        self._functions: Any = functions
        self.nodes = nodes
        # Excluded nodes, each with the reason.
        self.lost: list[tuple[str, str]] = []
        self.excluded: list[Node] = []
        self._volumes: list[Volume] = []
        self._job: str = job["job"]
        self._workers: int = job["shape"]["workers"]
        # Counts exclusions and replacements of workers.
        self.changes = 0
        # Names of inputs travel with chunks.
        self._options = {**job["options"], "inputs": []}
        self._inputs: list[str] = job["options"]["inputs"]
        self._shuffle: str = job["shuffle"]
        names = ("job", "shape", "usual_temp", "transport", "views", "shuffle", "record_bytes", "output")
        # The secret is that of this run, and is stored nowhere.
        self._secret = token_bytes(32) if job["transport"] == "direct" else b""
        self._shape: dict[str, int] = job["shape"]
        self._own = settings_of(job)
        self._settings: Any = {"secret": self._secret, **{name: job[name] for name in names}}
        # With the options of the stores, which are stored nowhere either.
        self.stores = self._settings["stores"] = stores or Stores()
        # Jobs of earlier versions do not say these.
        self._settings["reduce_input"] = job.get("reduce_input", "merged")
        self._settings["header"] = job.get("header", "")
        self._settings["function_timeout"] = job.get("function_timeout")
        self._settings["settings"] = self._own.to_json()

    def start(self, sizes: list[int]) -> None:
        """Starts the actors, and checks that every node has the same versions and sees files of these sizes."""
        self._settings = self._ray.put({**self._settings, "options": self._options})
        if self._functions is not None:
            self._functions = self._ray.put(self._functions)
        for node in self.nodes:
            self.place_writer(node)
            count = min(self._workers, max(1, node.cpus - self._own.spare_cores))
            node.workers = [node.place_worker(self._shuffle, self._settings, self._functions) for _ in range(count)]
        facts = self._answers(lambda node: node.workers[0].facts.remote())
        self._take_facts(facts)
        for node, found in self._answers(lambda node: [worker.process.remote() for worker in node.workers]):
            for worker, process in zip(node.workers, found, strict=True):
                node.know(worker, process)
            # Before they work: what they do until the first samples would not count.
            node.writer.begin.remote(list(node.processes))
        named = zip(self._inputs, sizes, strict=True)
        paths, own = self._ray.put(self._inputs), digest_of(size for path, size in named if not is_url(path))
        for node, (seen, error) in self._answers(lambda node: node.workers[0].inputs.remote(paths)):
            if error is not None:
                raise errors.InvalidRequest(
                    f"node {node.name}: {error}\n  every node must see the inputs under the same names"
                ) from error
            if seen != own:
                raise errors.InvalidRequest(
                    f"node {node.name} sees other inputs than this process: their sizes differ\n"
                    "  put the inputs on storage that all nodes share"
                )

    def place_writer(self, node: Node) -> None:
        """Starts the writer of a node."""
        node.place_writer(self._job, self._shuffle, self._secret, self._shape, self._own)

    def _answers(self, call: Callable[[Node], Any]) -> list[tuple[Node, Any]]:
        """The answers of all nodes; a node without one is excluded."""
        found = []
        for node, answer, error in all_answers(self._ray, list(self.nodes), call):
            if error is None:
                found.append((node, answer))
            else:
                self.exclude(node, f"its processes do not start: {first_line(error)}")
        return found

    def _take_facts(self, facts: list[tuple[Node, Any]]) -> None:
        check_versions([(node.name, told["ascot"]) for node, told in facts], _native.__version__)
        for node, told in facts:
            if told["functions"] is not None:
                raise errors.InvalidRequest(f"node {node.name}: {told['functions']}") from told["functions"]
            for volume, error in told["volumes"]:
                if error is not None:
                    raise errors.FileError(
                        f"node {node.name}: no directory for temporary files: {error}\n  name another (temp=)",
                        filename=error.filename,
                    )
                directory, device, free = volume
                node.temp.append(directory)
                self._volumes.append(Volume(node.id, len(node.temp) - 1, told["host"], device, free))

    def check_space(self, needed: int) -> None:
        """Raises NoSpace if the volumes for temporary files do not hold `needed` bytes."""
        free = self._free_bytes()
        if free < needed:
            raise errors.NoSpace(
                f"the volumes for temporary files of all nodes have {bytes_text(free)} left, and the job "
                f"needs {bytes_text(needed)}\n  free some space, or name other directories (temp=)",
                filename=self.nodes[0].temp[0],
                needed=needed,
                free=free,
            )

    def _free_bytes(self) -> int:
        """Free bytes of all volumes. A host tells its volumes apart; one that several hosts share is that of a
        directory in which a node sees the marks of others."""
        if len({one.host for one in self._volumes}) == 1:
            return free_bytes(self._volumes, {})
        self._answers(lambda node: node.workers[0].mark.remote(node.id))
        marks = dict(self._answers(lambda node: node.workers[0].marks.remote()))
        self._answers(lambda node: node.workers[0].unmark.remote(node.id))
        return free_bytes(self._volumes, {node.id: found for node, found in marks.items()})

    def begin(self, bounds: Any) -> list[Node]:
        """Prepares all workers for mapping. Returns the nodes that do not answer."""
        calls = all_answers(
            self._ray, list(self.nodes), lambda node: [worker.begin.remote(bounds) for worker in node.workers]
        )
        return [node for node, answers, lost in calls if not _began(answers, lost)]

    def begins(self, node: Node, workers: list[Any], bounds: Any) -> bool:
        """Prepares workers of a node for mapping. Returns whether they answer."""
        calls = all_answers(self._ray, [node], lambda _: [worker.begin.remote(bounds) for worker in workers])
        return all(_began(answers, lost) for _, answers, lost in calls)

    def exclude(self, node: Node, reason: str) -> None:
        """Excludes a node. Raises AscotError if it was the last one."""
        if node not in self.nodes:
            return
        self.nodes.remove(node)
        self.changes += 1
        self.lost.append((node.name, reason))
        self.excluded.append(node)
        node.end()
        if not self.nodes:
            raise errors.AscotError(f"no node is left: the last one was excluded: {node.name}: {reason}")

    def repair(self, node: Node, busy: set[Any]) -> tuple[bool, list[Any]]:
        """Replaces the dead processes of a node, or excludes it.

        `busy` are workers whose call has no answer yet: they are replaced when that call fails. Returns whether the
        writer was replaced, and the new workers.
        """
        if node not in self.nodes:
            return False, []
        actors = [node.writer, *node.workers]
        dead = self._dead(actors, busy)
        if len(dead) == len(actors):
            self.exclude(node, "none of its processes answers")
            return False, []
        dead = [actor for actor in dead if actor not in busy]
        self.changes += bool(dead)
        replaced = []
        try:
            for worker in [one for one in node.workers if one in dead]:
                self._ray.kill(worker)
                made = node.place_worker(self._shuffle, self._settings, self._functions)
                node.know(made, node.answer(made.process.remote(), START_SECONDS))
                node.workers[node.workers.index(worker)] = made
                replaced.append(made)
            writer_died = node.writer in dead
            if writer_died:
                self._ray.kill(node.writer)
                self.place_writer(node)
                node.answer(node.writer.account.remote(), START_SECONDS)
        except self._ray.exceptions.RayError as error:
            self.exclude(node, f"no process can be started there: {first_line(error)}")
            return False, []
        return writer_died, replaced

    def stop_workers(self, seconds: float) -> None:
        """Ends all workers, and waits until their processes have ended, at most so long for each node."""
        for node in self.nodes:
            node.end_workers()
        for node in self.nodes:
            node.await_workers(seconds)

    def end_workers(self, node: Node, processes: list[int]) -> None:
        """Ends workers by their processes, also those that are stopped. Their calls fail, and others replace them."""
        for worker in node.workers:
            if node.process_of.get(worker) in processes:
                self._ray.kill(worker)

    def _dead(self, actors: list[Any], busy: set[Any]) -> list[Any]:
        """Those that are dead, or do not answer in time. Those that are busy answer late and are not dead."""
        exceptions = self._ray.exceptions
        began = time.monotonic()
        dead: list[Any] = []
        unavailable: set[Any] = set()
        silent = list(actors)
        while silent:
            pings = [(actor, actor.__ray_ready__.remote()) for actor in silent]
            self._ray.wait([ping for _, ping in pings], num_returns=len(pings), timeout=PING_SECONDS)
            waited = time.monotonic() - began
            silent = []
            for actor, ping in pings:
                patience = 0.0
                try:
                    self._ray.get(ping, timeout=0)
                    continue
                except exceptions.ActorUnavailableError:
                    unavailable.add(actor)
                    patience = UNAVAILABLE_SECONDS
                except exceptions.GetTimeoutError:
                    if actor in busy and actor not in unavailable:
                        continue
                    patience = UNAVAILABLE_SECONDS if actor in unavailable else LATE_SECONDS
                except exceptions.RayError:
                    pass
                (silent if waited < patience else dead).append(actor)
            if silent:
                time.sleep(PAUSE_SECONDS)
        return dead

    def end(self) -> None:
        """Ends all actors."""
        for node in self.nodes:
            node.end()


def _began(answers: list[Any], lost: Any) -> bool:
    if lost is not None:
        return False
    for _, error in answers:
        if error is not None:
            raise error
    return True


def free_bytes(volumes: list[Volume], marks: dict[str, list[list[str]]]) -> int:
    """Free bytes of volumes, each counted once. `marks` are the files that each node sees in its directories: those
    with the same ones are the same directory."""
    shared: dict[str, tuple[str, int]] = {}
    same: dict[tuple[str, int], tuple[str, int]] = {}
    counted: dict[tuple[str, int], int] = {}
    for one in volumes:
        found = marks.get(one.node, [])
        seen = found[one.place] if one.place < len(found) else []
        # The first node that was met with one of these marks stands for all of them.
        own = (one.host, one.device)
        key = next((shared[mark] for mark in seen if mark in shared), same.get(own, own))
        shared.update(dict.fromkeys(seen, key))
        same[own] = key
        counted[key] = min(one.free, counted.get(key, one.free))
    return sum(counted.values())


def check_versions(nodes: list[tuple[str, str]], own: str) -> None:
    """Raises InvalidRequest if a node has another version of Ascot than this process."""
    others = [f"{name} has {version}" for name, version in nodes if version != own]
    if others:
        raise errors.InvalidRequest(
            f"this process has Ascot {own}, but {', '.join(others[:5])}\n  install the same version on all nodes"
        )


def first_line(error: BaseException) -> str:
    """The first line of an error of Ray, which may have a page."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")
