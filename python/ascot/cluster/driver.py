"""Runs a job: map and shuffle, then sort and reduce, until every partition is a part of the output.

    chunks of the input          destinations                          parts
    0 1 2 3 4 5 ...  ──map──▶    0 (node A): partitions 0 3 6  ──sort──▶ part-00000 ...
                                 1 (node B): partitions 1 4 7
                                 2 (node C): partitions 2 5 8
                                 3 (node A): 1 7, 4 (node C): 4         in place of 1, which was lost

A chunk is done for a destination once the writer has all of its batches. A destination that is lost is replaced by
new ones for those of its partitions that are no parts yet, on the nodes that are left, and every chunk is mapped
again for them alone. Nothing else is repeated.

Invariants: the journal names what is done before anything relies on it. A part is whole or not there. The output
appears under its name when all parts are there and their checksum is that of the input.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ascot import _native, errors
from ascot.cluster.actors import SPILLS
from ascot.cluster.fleet import Fleet, first_line
from ascot.cluster.manifest import Destination, JobDirectory, Progress, Sum, spans_of
from ascot.cluster.nodes import Node
from ascot.cluster.parts import Parts
from ascot.cluster.reports import ClusterReport, Phase
from ascot.cluster.shares import Shares
from ascot.cluster.watching import Watch

__all__ = ["Driver"]

# Samples for each partition: the largest partition is then within about a fifth of the mean.
SAMPLES_PER_PARTITION = 256
SAMPLES_MAX = 1 << 16
# Chunks that are sampled at most: one place in a chunk is as good as one in another.
SAMPLED_CHUNKS_MAX = 1 << 12
# A chunk or a partition that fails so often is not tried again.
ATTEMPTS_MAX = 6
WAIT_SECONDS = 0.5
REMOVE_SECONDS = 60


@dataclass(slots=True)
class Call:
    """A call of a worker without an answer yet."""

    node: Node
    worker: Any
    number: int
    destination: int | None = None


class Driver:
    """A run of a job, from its beginning or from where an earlier run was when it ended."""

    def __init__(
        self,
        ray: Any,
        fleet: Fleet,
        directory: JobDirectory,
        job: dict[str, Any],
        done: Progress,
        report: Callable[..., object] | None,
        watch: Watch,
    ) -> None:
        self._ray, self._fleet, self._directory, self._job, self._done = ray, fleet, directory, job, done
        self._report, self._watch = report, watch
        self._parts = Parts(directory, job, done)
        self._options: dict[str, Any] = job["options"]
        sizes = [(path, size) for path, size, _ in job["inputs"]]
        self._spans = spans_of(sizes, job["shape"]["chunk_bytes"], job["record_bytes"])
        self._total = sum(size for _, size in sizes)
        self._bounds = b""
        self._partitions = 0
        # The destination of each partition.
        self._owner: dict[int, int] = {}
        self._nodes: dict[int, Node] = {}
        # Where the batches of each destination are sent.
        self._writers: dict[int, Any] = {}
        self._attempts: dict[tuple[str, int], int] = {}
        # Why the last connection ended, if one did.
        self._connection_fault = ""
        self._phases: list[Phase] = []
        self._is_mapping = False
        self._mapped_again = self._sent_again = self._sorted_again = self._repeated = 0
        self._peaks: dict[str, dict[Any, int]] = {}

    # ---------------------------------------------------------------- the whole job

    def run(self, start_seconds: float) -> ClusterReport:
        """Runs the job to its end."""
        began = time.monotonic()
        self._parts.check()
        self._find_bounds()
        self._find_destinations()
        while self._missing_parts():
            self._map_phase()
            self._sort_phase()
        whole = self._parts.commit()
        report = ClusterReport(
            kind=self._job["kind"],
            seconds=time.monotonic() - began,
            start_seconds=start_seconds,
            records=whole.records,
            bytes=whole.bytes,
            checksum=f"{whole.checksum:032x}",
            partitions=self._partitions,
            chunks=len(self._spans),
            phases=tuple(self._phases),
            memory_per_node=self._job["memory_per_node"],
            peak_memory_bytes=self._peak(),
            mapped_again_bytes=self._mapped_again,
            sent_again_bytes=self._sent_again,
            sorted_again_bytes=self._sorted_again,
            repeated_batches=self._repeated,
            lost_nodes=tuple(self._fleet.lost),
            series=self._watch.series,
        )
        self._watch.report = report
        self._remove_files()
        return report

    def _missing_parts(self) -> list[int]:
        return [one for one in range(self._partitions) if one not in self._done.parts]

    def _tell(self, phase: str, done: int, shares: Shares, detail: str, share: float) -> None:
        rate = done / max(time.monotonic() - shares.began, 1e-9)
        self._watch.progress(phase, done, rate, detail, share, lambda: self._phase(phase, shares))
        if self._report is not None:
            self._report(phase, done, self._total, rate, detail, "", None, share)
        for node in self._watch.asked_to_exclude():
            self._exclude(node, "a user asked for it")

    def _phase(self, name: str, shares: Shares) -> Phase:
        """A phase until this moment."""
        return shares.phase(name, list(self._fleet.nodes), self._watch.began)

    def _end_phase(self, name: str, shares: Shares) -> None:
        self._phases.append(self._phase(name, shares))
        self._watch.phase(self._phases[-1])

    # ---------------------------------------------------------------- bounds

    def _find_bounds(self) -> None:
        if self._job["kind"] == "map_reduce":
            self._partitions = self._job["shape"]["partitions"]
            return
        stored = self._directory.bounds()
        if stored is None:
            shares = Shares()
            stored = self._new_bounds(shares)
            self._directory.write_bounds(stored)
            if not self._job["uniform"]:
                self._end_phase("sample", shares)
        self._bounds = stored
        self._partitions = _native.count_partitions(stored)

    def _new_bounds(self, shares: Shares) -> bytes:
        wanted = self._job["shape"]["partitions"]
        if self._job["uniform"]:
            return _native.uniform_bounds(self._options, wanted)
        samples = min(SAMPLES_MAX, SAMPLES_PER_PARTITION * wanted)
        stride = max(1, len(self._spans) // SAMPLED_CHUNKS_MAX)
        chosen = range(0, len(self._spans), stride)
        whole = sum(self._spans[number].end - self._spans[number].start for number in chosen)
        found: dict[int, bytes] = {}
        queue = deque(chosen)
        running: dict[Any, Call] = {}
        while True:
            for node, worker in self._idle(running):
                if queue:
                    number = queue.popleft()
                    span = self._spans[number]
                    count = -(-samples * (span.end - span.start) // max(1, whole))
                    running[worker.sample.remote(span.to_native(), count)] = Call(node, worker, number)
            if not running:
                break
            for call, answer in self._finished(running):
                if answer is None:
                    self._again("chunk", call.number, queue)
                    self._repair(call.node, running)
                    continue
                (places, seconds), error = answer
                if error is not None:
                    raise error
                found[call.number] = places
                shares.add(call.node, len(places), reading=seconds)
            self._tell("sample", 0, shares, f"{len(found)} of {len(chosen)} chunks", 0.0)
        return _native.choose_bounds(self._options, [found[number] for number in sorted(found)], wanted)

    # ---------------------------------------------------------------- calls of workers

    def _idle(self, running: dict[Any, Call]) -> list[tuple[Node, Any]]:
        busy = [call.worker for call in running.values()]
        return [(node, one) for node in self._fleet.nodes for one in node.workers if one not in busy]

    def _finished(self, running: dict[Any, Call]) -> list[tuple[Call, Any]]:
        """The calls that have ended, each with its answer; None if the worker is lost."""
        ready, _ = self._ray.wait(list(running), num_returns=1, timeout=WAIT_SECONDS)
        found = []
        for one in ready:
            call = running.pop(one)
            try:
                found.append((call, self._ray.get(one)))
            except self._ray.exceptions.RayTaskError as error:
                raise errors.InternalError(f"node {call.node.name}: {error}") from error
            except self._ray.exceptions.RayError:
                found.append((call, None))
        return found

    def _again(self, kind: str, number: int, queue: deque[int]) -> None:
        """Puts a chunk or a partition that failed into the queue."""
        attempts = self._attempts[kind, number] = self._attempts.get((kind, number), 0) + 1
        if attempts >= ATTEMPTS_MAX and self._connection_fault:
            raise errors.AscotError(
                f"{kind} {number} failed {attempts} times: {self._connection_fault}\n  let nodes open connections to "
                "all ports of each other, or send records by calls of Ray (transport='ray')"
            )
        if attempts >= ATTEMPTS_MAX:
            raise errors.AscotError(
                f"{kind} {number} failed {attempts} times\n  the processes that worked on it ended: look at the logs "
                "of Ray (/tmp/ray/session_latest/logs), and whether the nodes have enough memory"
            )
        queue.append(number)

    def _repair(self, node: Node, running: dict[Any, Call]) -> None:
        """Replaces the dead processes of a node, or excludes it with its destinations."""
        busy = [call.worker for call in running.values()]
        writer_replaced, workers = self._fleet.repair(node, busy)
        if node not in self._fleet.nodes:
            self._lose(node)
            return
        if self._is_mapping and not all(self._begin(node, worker) for worker in workers):
            self._exclude(node, "a process that was started in place of another one ended at once")
            return
        if writer_replaced:
            for number in [one for one, owner in self._nodes.items() if owner is node]:
                self._open(node, self._done.destinations[number])
            self._replace_lost()

    def _exclude(self, node: Node, reason: str) -> None:
        self._fleet.exclude(node, reason)
        self._lose(node)

    def _begin(self, node: Node, worker: Any) -> bool:
        """Prepares a worker for mapping. Returns whether it answers."""
        try:
            _, error = node.answer(worker.begin.remote(self._bounds))
        except self._ray.exceptions.RayError:
            return False
        if error is not None:
            raise error
        return True

    # ---------------------------------------------------------------- destinations

    def _find_destinations(self) -> None:
        """Opens the destinations of an earlier run that are still there, and makes new ones for all other
        partitions."""
        for destination in self._done.destinations.values():
            for partition in destination.partitions:
                self._owner[partition] = destination.number
        for destination in list(self._done.destinations.values()):
            if not destination.lost:
                self._find(destination)
        self._replace_lost()

    def _find(self, destination: Destination) -> None:
        load = {node.id: 0 for node in self._fleet.nodes}
        for node in self._nodes.values():
            load[node.id] = load.get(node.id, 0) + 1
        nodes = sorted(self._fleet.nodes, key=lambda node: (node.id != destination.node, load[node.id]))
        for node in nodes:
            if self._has(node, destination):
                self._nodes[destination.number] = node
                self._open(node, destination)
                return
        self._forget(destination)

    def _has(self, node: Node, destination: Destination) -> bool:
        """Whether the directory of a destination is on a node."""
        try:
            return bool(node.answer(node.writer.exists.remote(destination.directory)))
        except self._ray.exceptions.RayError:
            return False

    def _open(self, node: Node, destination: Destination) -> None:
        """Opens a destination; the chunks that its files have, and whose sum is known, are done, and no others.

        One whose log is damaged is lost; for other faults the node is excluded.
        """
        try:
            opened, error = node.answer(node.writer.open.remote(destination.number, destination.directory))
        except self._ray.exceptions.RayError as lost:
            opened, error = None, errors.AscotError(first_line(lost))
        if isinstance(error, errors.Damaged):
            self._forget(destination)
            return
        if error is not None:
            self._exclude(node, str(error).splitlines()[0])
            return
        # If the sum of a chunk never arrived, it is mapped again, and the writers ignore its batches.
        chunks, address = opened
        destination.chunks = set(chunks) & self._done.chunk_sums.keys()
        self._writers[destination.number] = address or node.writer

    def _forget(self, destination: Destination) -> None:
        self._done.take(self._directory.note(event="lost", destinations=[destination.number]))
        self._nodes.pop(destination.number, None)

    def _lose(self, node: Node) -> None:
        """Replaces the destinations of an excluded node."""
        for number in [one for one, owner in self._nodes.items() if owner is node]:
            self._forget(self._done.destinations[number])
        self._replace_lost()

    def _replace_lost(self) -> None:
        """Makes destinations for the partitions that have none and are no parts yet."""
        wanted = [partition for partition in self._missing_parts() if not self._has_owner(partition)]
        if wanted:
            self._make_destinations(wanted)

    def _has_owner(self, partition: int) -> bool:
        number = self._owner.get(partition)
        return number is not None and not self._done.destinations[number].lost

    def _make_destinations(self, partitions: list[int]) -> None:
        """Divides partitions among the directories of the nodes, which take turns."""
        places = [(node, directory) for node in self._fleet.nodes for directory in node.temp]
        # Partitions that are made again one by one begin at different places.
        first = len(self._done.destinations) % len(places)
        places = places[first:] + places[:first]
        for at, (node, directory) in enumerate(places):
            # If a node before this one was lost meanwhile, its partitions and these have destinations already.
            own = [partition for partition in partitions[at :: len(places)] if not self._has_owner(partition)]
            if not own or node not in self._fleet.nodes:
                continue
            number = max(self._done.destinations, default=-1) + 1
            name = os.path.join(self._place(directory), f"{node.id[:8]}-{number}")
            self._done.take(
                self._directory.note(event="destination", number=number, node=node.id, directory=name, partitions=own)
            )
            for partition in own:
                self._owner[partition] = number
            self._nodes[number] = node
            self._open(node, self._done.destinations[number])

    def _place(self, directory: str) -> str:
        """The directory of the job in one for temporary files."""
        return os.path.join(directory, f"ascot-cluster-{self._job['job']}")

    # ---------------------------------------------------------------- map and shuffle

    def _targets(self, chunk: int, needed: set[int] | None = None) -> list[int]:
        """The destinations that lack a chunk and still need it."""
        needed = self._needed() if needed is None else needed
        return sorted(number for number in needed if chunk not in self._done.destinations[number].chunks)

    def _needed(self) -> set[int]:
        return {self._owner[partition] for partition in self._missing_parts()}

    def _lacking(self) -> list[int]:
        """The chunks that a destination lacks."""
        needed = self._needed()
        return [chunk for chunk in range(len(self._spans)) if self._targets(chunk, needed)]

    def _map_phase(self) -> None:
        queue = deque(self._lacking())
        if not queue:
            return
        shares = Shares()
        self._is_mapping = True
        for node in list(self._fleet.nodes):
            begun = [self._begin(node, worker) for worker in node.workers]
            if not all(begun):
                self._repair(node, {})
        running: dict[Any, Call] = {}
        while True:
            for node, worker in self._idle(running):
                self._map_next(node, worker, queue, running)
            if not running:
                break
            for call, answer in self._finished(running):
                if answer is None:
                    # At most so much of it was read already.
                    self._mapped_again += self._spans[call.number].bytes
                    self._again("chunk", call.number, queue)
                    self._repair(call.node, running)
                else:
                    self._take_mapped(call, answer, shares, queue, running)
            # Destinations that were made meanwhile need chunks that are done for others.
            if not queue and not running:
                queue.extend(self._lacking())
            done = sum(self._spans[chunk].bytes for chunk in self._done.chunk_sums)
            detail = f"{len(self._done.chunk_sums)} of {len(self._spans)} chunks"
            self._tell("map and shuffle", done, shares, detail, done / max(1, self._total) / 2)
        self._is_mapping = False
        self._end_mapping(shares)

    def _map_next(self, node: Node, worker: Any, queue: deque[int], running: dict[Any, Call]) -> None:
        while queue:
            chunk = queue.popleft()
            numbers = self._targets(chunk)
            if numbers:
                destinations = [self._done.destinations[number] for number in numbers]
                targets = [(one.number, one.partitions, self._writers[one.number]) for one in destinations]
                span = self._spans[chunk].to_native()
                running[worker.map.remote(chunk, span, targets)] = Call(node, worker, chunk)
                return

    def _take_mapped(
        self, call: Call, answer: Any, shares: Shares, queue: deque[int], running: dict[Any, Call]
    ) -> None:
        told, error = answer
        if error is not None:
            raise error
        chunk, own = call.number, Sum(told["records"], told["bytes"], int(told["sum"], 16))
        if self._is_again(chunk, own):
            self._sent_again += told["sent_bytes"]
        self._repeated += told["repeated"]
        done = [one for one in told["done"] if not self._done.destinations[one].lost]
        if done:
            event = {"number": chunk, "destinations": done, "records": own.records, "bytes": own.bytes}
            self._done.take(self._directory.note(event="chunk", sum=told["sum"], **event))
        times = {name: told[name] for name in ("reading", "grouping", "blocked", "memory")}
        shares.add(call.node, self._spans[chunk].bytes, **times)
        for number, fault in told["failed"]:
            self._take_fault(number, fault, running)
        if self._targets(chunk):
            self._again("chunk", chunk, queue)

    def _is_again(self, chunk: int, own: Sum) -> bool:
        """Whether a chunk that was mapped had been mapped before."""
        before = self._done.chunk_sums.get(chunk)
        if before is None:
            return False
        self._mapped_again += self._spans[chunk].bytes
        if before != own:
            raise errors.InvalidRequest(
                f"{self._spans[chunk].path}: a chunk that was mapped again gave other records\n  start the job "
                "again when no program writes to its inputs, and with functions that give the same each time"
            )
        return True

    def _take_fault(self, number: int, fault: BaseException, running: dict[Any, Call]) -> None:
        """A writer did not append a batch."""
        node = self._nodes.get(number)
        if node is None or node not in self._fleet.nodes:
            return
        if isinstance(fault, errors.Damaged):
            # The batch was damaged on its way: the chunk is mapped again.
            return
        if isinstance(fault, errors.AscotError):
            self._exclude(node, str(fault).splitlines()[0])
        else:
            self._connection_fault = f"to node {node.name}: {fault}"
            self._repair(node, running)

    def _end_mapping(self, shares: Shares) -> None:
        for number, node in list(self._nodes.items()):
            if self._done.destinations[number].lost:
                continue
            try:
                _, error = node.answer(node.writer.sync.remote(number))
            except self._ray.exceptions.RayError:
                self._repair(node, {})
                continue
            if error is not None:
                self._exclude(node, str(error).splitlines()[0])
        for node in list(self._fleet.nodes):
            self._take_account(node, shares)
        self._end_phase("map and shuffle", shares)

    def _take_account(self, node: Node, shares: Shares) -> None:
        try:
            account = node.answer(node.writer.account.remote())
            peaks = self._peaks.setdefault(node.name, {})
            peaks["writer"] = account["peak"]
            shares.add(node, 0, writing=account["writing"])
            shares.add_written(node, *account["written"])
            for worker in node.workers:
                peaks[worker] = node.answer(worker.end.remote())
        except self._ray.exceptions.RayError:
            self._repair(node, {})

    def _peak(self) -> int:
        stores = {node.name: node.store for node in self._fleet.nodes}
        return max((stores.get(name, 0) + sum(peaks.values()) for name, peaks in self._peaks.items()), default=0)

    # ---------------------------------------------------------------- sort and reduce

    def _sort_phase(self) -> None:
        queues: dict[str, deque[int]] = {}
        for partition in self._missing_parts():
            if self._owner[partition] in self._nodes:
                node = self._nodes[self._owner[partition]]
                queues.setdefault(node.id, deque()).append(partition)
        shares = Shares()
        running: dict[Any, Call] = {}
        while True:
            for node, worker in self._idle(running):
                self._sort_next(node, worker, queues.get(node.id, deque()), running)
            if not running:
                break
            for call, answer in self._finished(running):
                if answer is None:
                    self._again("partition", call.number, queues[call.node.id])
                    self._repair(call.node, running)
                else:
                    self._take_sorted(call, answer, shares)
            share = len(self._done.parts) / max(1, self._partitions)
            detail = f"{len(self._done.parts)} of {self._partitions} partitions"
            self._tell("sort and reduce", int(share * self._total), shares, detail, (1 + share) / 2)
        for node in list(self._fleet.nodes):
            self._take_account(node, shares)
        self._end_phase("sort and reduce", shares)

    def _sort_next(self, node: Node, worker: Any, queue: deque[int], running: dict[Any, Call]) -> None:
        while queue:
            partition = queue.popleft()
            number = self._owner[partition]
            if self._nodes.get(number) is not node:
                continue
            # A writer that was replaced may have lost batches; then the destination is filled first.
            destination = self._done.destinations[number]
            if len(destination.chunks) < len(self._spans):
                continue
            spills = [os.path.join(self._place(directory), SPILLS) for directory in node.temp]
            options = {**self._options, "output": self._parts.name(partition), "temp": spills}
            options["memory"] = self._job["shape"]["sort_bytes"]
            place = {"directory": destination.directory, "number": number}
            call = worker.sort.remote(options, place, partition, len(self._spans))
            running[call] = Call(node, worker, partition, number)
            return

    def _take_sorted(self, call: Call, answer: Any, shares: Shares) -> None:
        told, error = answer
        if error is not None:
            self._take_loss(call, error)
            return
        result, seconds = told
        event = {"records": result["records_out"], "bytes": result["bytes_out"], "sum": result["checksum"]}
        event["file_bytes"] = result.get("file_bytes", result["bytes_out"])
        self._done.take(self._directory.note(event="part", number=call.number, **event))
        # At most so much was sorted when workers or nodes ended.
        self._sorted_again += event["bytes"] * self._attempts.get(("partition", call.number), 0)
        shares.add(call.node, event["bytes"], sorting=seconds)
        reducing = max(0.0, seconds - result["seconds"]) if self._job["kind"] == "map_reduce" else 0.0
        shares.add_passes(result["passes"], reducing)
        if call.destination is not None and call.node in self._fleet.nodes:
            call.node.writer.remove_partition.remote(call.destination, call.number)

    def _take_loss(self, call: Call, error: errors.AscotError) -> None:
        """A partition could not be sorted. If its bytes are not there or damaged, they are made again; a node whose
        disk is full, reports errors or is gone is excluded."""
        if call.node not in self._fleet.nodes or self._owner[call.number] != call.destination:
            return
        name = str(getattr(error, "filename", None) or "")
        if not any(name.startswith(self._place(directory) + os.sep) for directory in call.node.temp):
            raise error
        self._again("partition", call.number, deque())
        is_missing = isinstance(error, errors.FileMissing)
        destination = self._done.destinations[self._owner[call.number]]
        if isinstance(error, errors.Damaged) or (is_missing and self._has(call.node, destination)):
            del self._owner[call.number]
            self._make_destinations([call.number])
        else:
            self._exclude(call.node, str(error).splitlines()[0])

    # ---------------------------------------------------------------- the end

    def discard(self) -> None:
        """Ends what runs, and removes the destinations of a job that will not be continued."""
        for node in self._fleet.nodes:
            node.end_workers()
        for node in self._fleet.nodes:
            node.await_workers(REMOVE_SECONDS / 2)
        self._remove_files()

    def _remove_files(self) -> None:
        """Removes the destinations, also those that nodes lost and that others see. What is left is no fault."""
        calls = []
        for number, node in self._nodes.items():
            if node in self._fleet.nodes:
                calls.append(node.writer.remove.remote(number, self._done.destinations[number].directory))
        if calls:
            self._ray.wait(calls, num_returns=len(calls), timeout=REMOVE_SECONDS)
        places = [(one.number, one.directory) for one in self._done.destinations.values()]
        for node in self._fleet.nodes:
            self._ray.wait([node.writer.clean.remote(places)], timeout=REMOVE_SECONDS)
