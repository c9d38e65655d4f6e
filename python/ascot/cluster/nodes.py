"""The nodes of a job and its actors: connecting to a cluster, starting one on this machine, placing, replacing.

Actors are pinned to nodes by the id of the node. Ray may call a dead node alive for a while: a node is lost if an
actor on it does not answer in time, whatever Ray says. The actors are not detached: Ray ends them when the driver
ends, also if it is killed. The batches are in files, which the next driver finds.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from ascot import _native, errors
from ascot.cluster.actors import Worker
from ascot.cluster.settings import USUAL, Settings
from ascot.cluster.spills import SpillServer, SpillWorker
from ascot.cluster.writer import Writer

__all__ = ["START_SECONDS", "Node", "connected", "discover", "load_ray"]

# An actor that does not answer for so long is lost.
ANSWER_SECONDS = 60.0
# Ray starts a process in a few seconds, or in minutes on a busy machine; of a node that is lost it says so.
START_SECONDS = 300.0
# The head of a cluster that is there accepts a connection within this time.
HEAD_SECONDS = 10.0
# A node on this machine needs this object store at least, and batches need no more.
LOCAL_STORE_BYTES = 80 << 20
# Ray replaces 127.0.0.1 and then waits for minutes; other addresses of the loopback work.
LOCAL_ADDRESS = "127.0.0.{}"
LOCAL_ADDRESS_FIRST = 10


def load_ray() -> Any:
    """The package ray."""
    try:
        return import_module("ray")
    except ImportError as error:
        raise ImportError("ascot.cluster needs Ray 2.60 or newer: pip install 'ascot[cluster]'") from error


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """The package ray, connected to the cluster at `address`; `local:N` is a new one of N nodes on this machine."""
    ray = load_ray()
    if address == "local":
        # Ray would start a node with an object store of a third of the memory.
        raise errors.InvalidRequest("address='local': give 'local:4' for 4 nodes on this machine")
    if not address.startswith("local:"):
        ours = not ray.is_initialized()
        if ours:
            _connect(ray, address)
        else:
            _check_cluster(ray, address)
        try:
            yield ray
        finally:
            if ours:
                ray.shutdown()
        return
    count = _local_count(address)
    if ray.is_initialized():
        raise errors.InvalidRequest(
            f"address={address!r}: this process is connected to a cluster already\n"
            "  use that one (address='auto'), or call ray.shutdown() first"
        )
    cluster = _local_cluster(count)
    try:
        _connect(ray, cluster.address)
        yield ray
    finally:
        ray.shutdown()
        cluster.shutdown()


def _connect(ray: Any, address: str) -> None:
    try:
        _await_head(address)
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (OSError, ValueError, RuntimeError) as error:
        # The next sentence of Ray is advice in the words of Ray.
        reason = f"{error}\n".splitlines()[0].partition(". ")[0].rstrip(".")
        raise errors.InvalidRequest(
            f"address={address!r}: no cluster of Ray is found there: {reason}\n"
            "  start one (ray start --head), name its address, or give 'local:4' for one on this machine"
        ) from error


def _check_cluster(ray: Any, address: str) -> None:
    """Raises InvalidRequest if this process is connected to another cluster than that at `address`."""
    own = ray.get_runtime_context().gcs_address
    if address == "auto" or address.startswith("ray://") or _resolved(address) == _resolved(own):
        return
    raise errors.InvalidRequest(
        f"address={address!r}: this process is connected to the cluster at {own} already\n"
        "  use that one (address='auto'), or call ray.shutdown() first"
    )


def _resolved(address: str) -> str:
    """HOST:PORT with the number of the host, if its name has one."""
    host, _, port = address.rpartition(":")
    try:
        return f"{socket.gethostbyname(host)}:{port}"
    except (OSError, UnicodeError):
        return address


def _await_head(address: str) -> None:
    """Raises an OSError if nothing listens at HOST:PORT: Ray would try for many minutes."""
    host, colon, port = address.rpartition(":")
    if colon and host and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=HEAD_SECONDS).close()


def _local_count(address: str) -> int:
    text = address.removeprefix("local:")
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise errors.InvalidRequest(f"address={address!r}: give 'local:4' for 4 nodes on this machine, at most 64")
    return int(text)


def _local_cluster(count: int) -> Any:
    made = import_module("ray.cluster_utils").Cluster()
    cpus = max(1, (os.cpu_count() or 1) // count)
    # Ray would give all memory of the machine to each of them.
    memory = max(0, _native.memory_bytes("100%") // count - LOCAL_STORE_BYTES)
    try:
        for number in range(count):
            made.add_node(
                num_cpus=cpus,
                memory=memory,
                object_store_memory=LOCAL_STORE_BYTES,
                node_ip_address=LOCAL_ADDRESS.format(LOCAL_ADDRESS_FIRST + number),
                include_dashboard=False,
                # Ray starts workers with the least priority.
                env_vars={"RAY_worker_niceness": "0"},
            )
    except BaseException:
        made.shutdown()
        raise
    return made


class Node:
    """A node: its writer and its workers."""

    def __init__(self, ray: Any, facts: dict[str, Any]) -> None:
        self._ray = ray
        self.id: str = facts["NodeID"]
        self.address: str = facts["NodeManagerAddress"]
        resources = facts["Resources"]
        self.cpus = int(resources.get("CPU", 0))
        self.memory = int(resources.get("memory", 0))
        self.store = int(resources.get("object_store_memory", 0))
        self.writer: Any = None
        self.workers: list[Any] = []
        # Directories for temporary files.
        self.temp: list[str] = []
        # Those of workers, also of some that have ended.
        self.processes: set[int] = set()
        self.process_of: dict[Any, int] = {}

    def __repr__(self) -> str:
        return f"<node {self.id[:8]} at {self.address}>"

    @property
    def name(self) -> str:
        """Its name in messages and reports."""
        return f"{self.address} ({self.id[:8]})"

    def _place(self, actor: type, cpus: int, *arguments: Any, max_concurrency: int = 1) -> Any:
        strategies = import_module("ray.util.scheduling_strategies")
        here = strategies.NodeAffinitySchedulingStrategy(self.id, soft=False)
        options = {"num_cpus": cpus, "scheduling_strategy": here, "max_restarts": 0, "max_task_retries": 0}
        options["max_concurrency"] = max_concurrency
        return _remote(self._ray, actor).options(**options).remote(*arguments)

    def place_writer(
        self, job: str, shuffle: str, secret: bytes = b"", shape: Any = None, settings: Settings = USUAL
    ) -> None:
        """Starts the writer; it listens for workers that have a secret if there is one. A job that pulls has a server
        in its place."""
        if shuffle == "pull":
            self.writer = self._place(SpillServer, 0, job, self.address, secret)
        else:
            self.writer = self._place(Writer, 0, job, self.address, secret, shape, settings)

    def place_worker(self, shuffle: str, settings: Any, functions: Any) -> Any:
        """Starts a worker of a sort, or of a job with functions. The last arguments are references to objects of Ray,
        so that they travel once to a node; `functions` may be None."""
        return self._place(SpillWorker if shuffle == "pull" else Worker, 1, settings, functions)

    def place_helper(self, actor: type) -> Any:
        """Starts a process for work that is no job. It can be stopped by a second call."""
        return self._place(actor, 0, max_concurrency=2)

    def answer(self, call: Any, seconds: float = ANSWER_SECONDS) -> Any:
        """The answer of an actor of this node. Raises RayError if there is none in time."""
        return self._ray.get(call, timeout=seconds)

    def has_file_of(self, error: errors.AscotError, job: str) -> bool:
        """Whether an error is of a file of a job on the disks of the node."""
        name = str(getattr(error, "filename", None) or "")
        return any(name.startswith(os.path.join(one, f"ascot-cluster-{job}", "")) for one in self.temp)

    def know(self, worker: Any, process: int) -> None:
        """Takes in the process of a worker."""
        self.processes.add(process)
        self.process_of[worker] = process

    def end(self) -> None:
        """Ends the actors."""
        self.end_workers()
        if self.writer is not None:
            self._ray.kill(self.writer)
        self.writer = None

    def end_workers(self) -> None:
        """Ends the workers, whatever they do."""
        for worker in self.workers:
            self._ray.kill(worker)
        self.workers = []

    def await_workers(self, seconds: float) -> None:
        """Waits until the processes of workers that were ended have ended."""
        self._ray.wait([self.writer.await_end.remote(list(self.processes), seconds)], timeout=2 * seconds)


def discover(ray: Any) -> list[Node]:
    """The nodes of the cluster that have processors and are alive."""
    nodes = [Node(ray, facts) for facts in ray.nodes() if facts["Alive"]]
    found = sorted((node for node in nodes if node.cpus > 0), key=lambda node: (node.address, node.id))
    if not found:
        raise errors.InvalidRequest("no node of the cluster has a processor for jobs\n  start nodes with processors")
    return found


@cache
def _remote(ray: Any, actor: type) -> Any:
    """The class of actors, which Ray pickles once and not for each actor."""
    return ray.remote(actor)


def all_answers(
    ray: Any, nodes: list[Node], call: Callable[[Node], Any], seconds: float = START_SECONDS
) -> list[tuple[Node, Any, Any]]:
    """Calls all nodes at once, and waits `seconds` for each at most. For each: the node, its answer or None, and the
    error of Ray or None."""
    calls = [(node, call(node)) for node in nodes]
    found = []
    for node, made in calls:
        try:
            found.append((node, node.answer(made, seconds), None))
        except ray.exceptions.RayError as error:
            found.append((node, None, error))
    return found
