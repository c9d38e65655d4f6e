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
from typing import Any

from ascot import _native, errors
from ascot.cluster.accounts import Accounts
from ascot.cluster.actors import SPILLS
from ascot.cluster.attempts import Attempts
from ascot.cluster.calls import Call, Calls
from ascot.cluster.chunks import ChunkSet, ranges_of
from ascot.cluster.cleaning import REMOVE_SECONDS, clean_nodes
from ascot.cluster.fleet import Fleet, first_line
from ascot.cluster.manifest import Destination, JobDirectory, Progress, Sum, chunks_of
from ascot.cluster.nodes import Node, all_answers
from ascot.cluster.parts import parts_of
from ascot.cluster.reports import ClusterReport, Phase, facts_of
from ascot.cluster.routes import Routes
from ascot.cluster.shares import Shares
from ascot.cluster.watching import Watch

__all__ = ["Driver"]

# Samples for each partition: the largest partition is then within about a fifth of the mean. With 32,768 partitions
# there are 32 for each: the largest one is less than twice the mean.
SAMPLES_PER_PARTITION = 256
SAMPLES_MAX = 1 << 20
# Bytes of input for each sample at least: partitions of less than 16 KiB, which have fewer samples, need no balance.
SAMPLE_BYTES = 64
# Chunks that are sampled at most: one place in a chunk is as good as one in another.
SAMPLED_CHUNKS_MAX = 1 << 12
ENDED = "the process that worked on it ended"


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
        self._parts = parts_of(directory, job, done, fleet.stores)
        # The names of the inputs travel with chunks, or not at all.
        self._options: dict[str, Any] = {**job["options"], "inputs": []}
        self._spans = chunks_of(job)
        self._total = sum(size for _, size, _ in job["inputs"])
        self._bounds: Any = b""
        self._partitions = 0
        # The destination of each partition.
        self._owner: dict[int, int] = {}
        self._nodes: dict[int, Node] = {}
        # Where the batches of each destination are sent.
        self._writers: dict[int, Any] = {}
        self._routes = Routes(ray, done, self._writers)
        # Bytes of chunks that are mapped.
        self._mapped = 0
        self._attempts = Attempts(self._spans)
        # The calls of the phase.
        self._running = Calls(ray, fleet)
        self._phases: list[Phase] = []
        self._is_mapping = False
        self._mapped_again = self._sent_again = self._sorted_again = self._repeated = 0
        self._accounts = Accounts(ray)

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
            **facts_of(self._job),
            seconds=time.monotonic() - began,
            start_seconds=start_seconds,
            records=whole.records,
            bytes=whole.bytes,
            checksum=f"{whole.checksum:032x}",
            partitions=self._partitions,
            chunks=len(self._spans),
            phases=tuple(self._phases),
            peak_memory_bytes=self._accounts.peak(self._fleet.nodes),
            mapped_again_bytes=self._mapped_again,
            sent_again_bytes=self._sent_again,
            sorted_again_bytes=self._sorted_again,
            repeated_batches=self._repeated,
            fetched_bytes=self._accounts.fetched,
            uploaded_bytes=self._accounts.uploaded,
            lost_nodes=tuple(self._fleet.lost),
            series=self._watch.last_series(),
        )
        self._watch.report = report
        self._remove_files()
        return report

    def _missing_parts(self) -> list[int]:
        return [one for one in range(self._partitions) if one not in self._done.parts]

    def _tell(self, phase: str, done: int, shares: Shares, detail: str, share: float) -> None:
        rate = done / max(time.monotonic() - shares.began, 1e-9)
        detail += self._watch.stalled()
        self._watch.progress(phase, done, rate, detail, share, lambda: self._phase(phase, shares))
        if self._report is not None:
            self._report(phase, done, self._total, rate, detail, "", None, share)
        for node in self._watch.asked_to_exclude():
            self._exclude(node, "a user asked for it")
        for node, processes in self._watch.stopped():
            self._fleet.end_workers(node, processes)
        for node in self._watch.silent():
            self._repair(node, self._running)

    def _begin_calls(self) -> Calls:
        self._running = Calls(self._ray, self._fleet)
        return self._running

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
        self._bounds = self._ray.put(stored)
        self._partitions = _native.count_partitions(stored)

    def _new_bounds(self, shares: Shares) -> bytes:
        wanted = self._job["shape"]["partitions"]
        if self._job["uniform"]:
            return _native.uniform_bounds(self._options, wanted)
        stride = max(1, len(self._spans) // SAMPLED_CHUNKS_MAX)
        chosen = range(0, len(self._spans), stride)
        whole = sum(self._spans[number].end - self._spans[number].start for number in chosen)
        samples = min(SAMPLES_MAX, SAMPLES_PER_PARTITION * wanted, -(-whole // SAMPLE_BYTES))
        found: dict[int, list[bytes]] = {}
        queue = deque(chosen)
        running = self._begin_calls()
        while True:
            for node, worker in running.idle():
                if queue:
                    number = queue.popleft()
                    span = self._spans[number]
                    count = -(-samples * (span.end - span.start) // max(1, whole))
                    running.add(worker.sample.remote(span.to_native(), count), Call(node, worker, number))
            if not running:
                break
            for call, answer in running.finished():
                if answer is None:
                    self._again("chunk", call.number, queue, running)
                    self._repair(call.node, running)
                    continue
                told, error = answer
                if error is not None:
                    raise error
                found[call.number], seconds, fetched = told
                self._accounts.fetched += fetched
                shares.add(call.node, sum(map(len, found[call.number])), reading=seconds)
            self._tell("sample", 0, shares, f"{len(found)} of {len(chosen)} chunks", 0.0)
        places = [one for number in sorted(found) for one in found[number]]
        return _native.choose_bounds(self._options, places, wanted)

    # ---------------------------------------------------------------- calls of workers

    def _again(self, kind: str, number: int, queue: deque[int], running: Calls, reason: str = ENDED) -> None:
        """Puts a chunk or a partition into the queue whose process failed."""
        self._attempts.failed(kind, number, reason)
        queue.append(number)
        running.offer_again()

    def _make_again(self, kind: str, number: int, queue: deque[int], running: Calls, reason: str) -> None:
        """Puts a chunk or a partition into the queue whose bytes were damaged or lost with a node."""
        self._attempts.damaged(kind, number, reason)
        queue.append(number)
        running.offer_again()

    def _repair(self, node: Node, running: Calls | None = None) -> None:
        """Replaces the dead processes of a node, or excludes it with its destinations."""
        busy = set() if running is None else running.busy()
        writer_replaced, workers = self._fleet.repair(node, busy)
        if node not in self._fleet.nodes:
            self._lose(node)
            return
        if self._is_mapping and not self._fleet.begins(node, workers, self._bounds):
            self._exclude(node, "a process that was started in place of another one ended at once")
            return
        if writer_replaced:
            self._open([number for number, owner in self._nodes.items() if owner is node])
            self._replace_lost()

    def _exclude(self, node: Node, reason: str) -> None:
        self._fleet.exclude(node, reason)
        self._lose(node)

    # ---------------------------------------------------------------- destinations

    def _find_destinations(self) -> None:
        """Opens the destinations of an earlier run that are still there, and makes new ones for all other
        partitions."""
        for destination in self._done.destinations.values():
            for partition in destination.partitions:
                self._owner[partition] = destination.number
        self._find_live()
        self._replace_lost()

    def _find_live(self) -> None:
        """Opens the destinations that nodes still have; the others are lost."""
        live = self._done.live
        directories = self._ray.put([one.directory for one in live.values()])
        answers = all_answers(self._ray, self._fleet.nodes, lambda node: node.writer.exist.remote(directories))
        load = dict.fromkeys(self._fleet.nodes, 0)
        for at, destination in enumerate(live.values()):
            # Several nodes may see a directory; one alone writes to it.
            seen = [node for node, exist, error in answers if error is None and exist[at]]
            if seen:
                node = min(seen, key=lambda node: (node.id != destination.node, load[node]))
                load[node] += 1
                self._nodes[destination.number] = node
        self._forget([number for number in live if number not in self._nodes])
        self._open(list(self._nodes))

    def _has(self, node: Node, destination: Destination) -> bool:
        """Whether the directory of a destination is on a node."""
        try:
            return bool(node.answer(node.writer.exist.remote([destination.directory]))[0])
        except self._ray.exceptions.RayError:
            return False

    def _open(self, numbers: list[int]) -> None:
        """Opens destinations; the chunks that their files have, and whose sum is known, are done, and no others.

        One whose log is damaged is lost; for other faults the node is excluded.
        """
        calls = []
        for number in numbers:
            node, directory = self._nodes[number], self._done.destinations[number].directory
            calls.append((number, node, node.writer.open.remote(number, directory)))
        for number, node, call in calls:
            try:
                opened, error = node.answer(call)
            except self._ray.exceptions.RayError as lost:
                opened, error = None, errors.AscotError(first_line(lost))
            # If a node before this one was lost meanwhile, what is made in its place is open already.
            if self._nodes.get(number) is not node:
                continue
            if isinstance(error, errors.Damaged):
                self._forget([number])
            elif error is not None:
                self._exclude(node, str(error).splitlines()[0])
            else:
                # If the sum of a chunk never arrived, it is mapped again, and the writers ignore its batches.
                chunks, address = opened
                self._done.found(self._done.destinations[number], ChunkSet.from_bytes(chunks))
                self._writers[number] = address or node.writer
        self._routes.change()

    def _forget(self, numbers: list[int]) -> None:
        if numbers:
            self._done.take(self._directory.note(event="lost", destinations=numbers))
        for number in numbers:
            self._nodes.pop(number, None)
        self._routes.change()

    def _lose(self, node: Node) -> None:
        """Replaces the destinations of an excluded node."""
        self._forget([number for number, owner in self._nodes.items() if owner is node])
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
        made = []
        for at, (node, directory) in enumerate(places):
            own = partitions[at :: len(places)]
            if not own:
                break
            number = len(self._done.destinations)
            name = os.path.join(self._place(directory), f"{node.id[:8]}-{number}")
            event = {"number": number, "node": node.id, "directory": name, "partitions": own}
            self._done.take(self._directory.note_later(event="destination", **event))
            self._owner.update(dict.fromkeys(own, number))
            self._nodes[number] = node
            made.append(number)
        self._directory.sync()
        self._open(made)

    def _place(self, directory: str) -> str:
        """The directory of the job in one for temporary files."""
        return os.path.join(directory, f"ascot-cluster-{self._job['job']}")

    # ---------------------------------------------------------------- map and shuffle

    def _needed(self) -> set[int]:
        return {self._owner[partition] for partition in self._missing_parts()}

    def _lacking(self) -> list[int]:
        """The chunks that a destination lacks."""
        needed, done = self._needed(), self._done.chunks
        found = {chunk for chunk in range(len(self._spans)) if chunk not in done} if needed else set()
        for number, destination in self._done.incomplete.items():
            if number in needed:
                found.update(destination.missing)
        return sorted(found)

    def _map_phase(self) -> None:
        queue = deque(self._lacking())
        if not queue:
            return
        shares = Shares()
        self._is_mapping = True
        self._routes.change()
        self._mapped = sum(self._spans[chunk].bytes for chunk in self._done.chunk_sums)
        for node in self._fleet.begin(self._bounds):
            self._repair(node)
        running = self._begin_calls()
        while True:
            for node, worker in running.idle():
                self._map_next(node, worker, queue, running)
            # Workers go on while the journal is written.
            self._directory.sync()
            detail = f"{len(self._done.chunk_sums)} of {len(self._spans)} chunks"
            self._tell("map and shuffle", self._mapped, shares, detail, self._mapped / max(1, self._total) / 2)
            if not running:
                break
            lost = []
            for call, answer in running.finished():
                if answer is None:
                    lost.append(call)
                else:
                    self._take_mapped(call, answer, shares, queue, running)
            for call in lost:
                # At most so much of it was read already.
                self._mapped_again += self._spans[call.number].bytes
                self._again("chunk", call.number, queue, running)
                self._repair(call.node, running)
            # Destinations that were made meanwhile need chunks that are done for others.
            if not queue and not running:
                queue.extend(self._lacking())
                running.offer_again()
        self._is_mapping = False
        self._end_mapping(shares)

    def _map_next(self, node: Node, worker: Any, queue: deque[int], running: Calls) -> None:
        while queue:
            chunk = queue.popleft()
            if self._routes.changed:
                # Parts do not change while chunks are mapped.
                self._routes.find(self._needed())
            self._routes.tell(worker)
            numbers = self._routes.of_chunk(chunk)
            if numbers:
                some = None if numbers is self._routes.targets else list(numbers)
                call = worker.map.remote(chunk, self._spans[chunk].to_native(), some)
                running.add(call, Call(node, worker, chunk, numbers))
                return

    def _take_mapped(self, call: Call, answer: Any, shares: Shares, queue: deque[int], running: Calls) -> None:
        told, error = answer
        if error is not None:
            self._take_fault_of_chunk(call, error, queue, running)
            return
        chunk, own = call.number, Sum(told["records"], told["bytes"], int(told["sum"], 16))
        is_again = self._is_again(chunk, own)
        if is_again:
            self._sent_again += told["sent_bytes"]
        self._repeated += told["repeated"]
        self._accounts.fetched += told["fetched_bytes"]
        done, failed = call.targets, dict(told["failed"])
        if failed or self._routes.changed or done is not self._routes.targets:
            done = tuple(one for one in done if one not in failed and one in self._done.live)
        if done:
            event = {"number": chunk, "destinations": ranges_of(done), "records": own.records, "bytes": own.bytes}
            self._done.take(self._directory.note_later(event="chunk", sum=told["sum"], **event))
            self._mapped += 0 if is_again else self._spans[chunk].bytes
        times = {name: told[name] for name in ("reading", "grouping", "blocked", "memory")}
        shares.add(call.node, self._spans[chunk].bytes, **times)
        faults = [one for number, fault in failed.items() if (one := self._take_fault(number, fault, running))]
        if self._routes.of_chunk(chunk):
            if faults:
                self._attempts.failed("chunk", chunk, faults[-1], is_connection=True)
                queue.append(chunk)
                running.offer_again()
            else:
                self._make_again("chunk", chunk, queue, running, "its batches were damaged, or lost with a node")

    def _take_fault_of_chunk(self, call: Call, error: errors.AscotError, queue: deque[int], running: Calls) -> None:
        """A chunk of an object may not fit on the disk of its node, which is excluded then."""
        if not call.node.has_file_of(error, self._job["job"]):
            raise error
        self._make_again("chunk", call.number, queue, running, first_line(error))
        self._exclude(call.node, str(error).splitlines()[0])

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

    def _take_fault(self, number: int, fault: BaseException, running: Calls) -> str:
        """A writer did not append a batch. Returns the fault of its connection, if the node is not excluded."""
        node = self._nodes.get(number)
        if node is None or node not in self._fleet.nodes or isinstance(fault, errors.Damaged):
            # A batch that was damaged on its way is made again with its chunk.
            return ""
        if isinstance(fault, errors.AscotError):
            self._exclude(node, str(fault).splitlines()[0])
            return ""
        self._repair(node, running)
        return f"the connection to node {node.name}: {fault}" if node in self._fleet.nodes else ""

    def _end_mapping(self, shares: Shares) -> None:
        own: dict[Node, list[int]] = {}
        for number, node in self._nodes.items():
            own.setdefault(node, []).append(number)
        calls = all_answers(
            self._ray, list(own), lambda node: [node.writer.sync.remote(number) for number in own[node]]
        )
        for node, answers, lost in calls:
            if lost is not None:
                self._repair(node)
                continue
            for _, error in answers:
                if error is not None:
                    self._exclude(node, str(error).splitlines()[0])
        self._take_accounts(shares)
        self._end_phase("map and shuffle", shares)

    def _take_accounts(self, shares: Shares) -> None:
        for node in self._accounts.take(list(self._fleet.nodes), shares):
            self._repair(node)

    # ---------------------------------------------------------------- sort and reduce

    def _sort_phase(self) -> None:
        queues: dict[str, deque[int]] = {}
        for partition in self._missing_parts():
            if self._owner[partition] in self._nodes:
                node = self._nodes[self._owner[partition]]
                queues.setdefault(node.id, deque()).append(partition)
        shares = Shares()
        sorted_calls: list[Call] = []
        running = self._begin_calls()
        while True:
            for node, worker in running.idle():
                self._sort_next(node, worker, queues.get(node.id, deque()), running)
            # Workers go on while the journal is written.
            self._directory.sync()
            for call in sorted_calls:
                if call.node in self._fleet.nodes:
                    call.node.writer.remove_partition.remote(*call.targets, call.number)
            if not running:
                break
            answers = running.finished()
            sorted_calls = [call for call, answer in answers if self._take_part(call, answer, shares)]
            for call, answer in answers:
                if answer is None:
                    self._again("partition", call.number, queues[call.node.id], running)
                    self._repair(call.node, running)
                elif answer[1] is not None:
                    self._take_loss(call, answer[1], running)
            share = len(self._done.parts) / max(1, self._partitions)
            detail = f"{len(self._done.parts)} of {self._partitions} partitions"
            self._tell("sort and reduce", int(share * self._total), shares, detail, (1 + share) / 2)
        self._take_accounts(shares)
        self._end_phase("sort and reduce", shares)

    def _sort_next(self, node: Node, worker: Any, queue: deque[int], running: Calls) -> None:
        while queue:
            partition = queue.popleft()
            number = self._owner[partition]
            if self._nodes.get(number) is not node:
                continue
            # A writer that was replaced may have lost batches; then the destination is filled first.
            destination = self._done.destinations[number]
            if destination.missing or len(self._done.chunks) < len(self._spans):
                continue
            spills = [os.path.join(self._place(directory), SPILLS) for directory in node.temp]
            options = {**self._options, "output": self._parts.name(partition), "temp": spills}
            options["memory"] = self._job["shape"]["sort_bytes"]
            place = {"directory": destination.directory, "number": number}
            call = worker.sort.remote(options, place, partition, len(self._spans))
            running.add(call, Call(node, worker, partition, (number,)))
            return

    def _take_part(self, call: Call, answer: Any, shares: Shares) -> bool:
        """Notes a partition that was sorted. Returns whether it was."""
        if answer is None or answer[1] is not None:
            return False
        result, seconds = answer[0]
        event = {"records": result["records_out"], "bytes": result["bytes_out"], "sum": result["checksum"]}
        event["file_bytes"] = result.get("file_bytes", result["bytes_out"])
        self._done.take(self._directory.note_later(event="part", number=call.number, **event))
        self._accounts.uploaded += result["uploaded_bytes"]
        # At most so much was sorted when workers or nodes ended.
        self._sorted_again += event["bytes"] * self._attempts.count("partition", call.number)
        shares.add(call.node, event["bytes"], sorting=seconds)
        self._add_passes(call.node, result, seconds, shares)
        return True

    def _add_passes(self, node: Node, result: dict[str, Any], seconds: float, shares: Shares) -> None:
        """Takes in the report of the sort or merge of a partition, which took so long with its upload."""
        uploading = result["upload_seconds"]
        others = max(0.0, seconds - result["seconds"] - uploading) if self._job["kind"] == "map_reduce" else 0.0
        shares.add_passes(node, result["passes"], reduce=others, upload=uploading)

    def _take_loss(self, call: Call, error: errors.AscotError, running: Calls) -> None:
        """A partition could not be sorted. If its bytes are not there or damaged, they are made again; a node whose
        disk is full, reports errors or is gone is excluded."""
        if call.node not in self._fleet.nodes or (self._owner[call.number],) != call.targets:
            return
        if not call.node.has_file_of(error, self._job["job"]):
            raise error
        self._make_again("partition", call.number, deque(), running, str(error).splitlines()[0])
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
        self._fleet.stop_workers(REMOVE_SECONDS / 2)
        self._remove_files()

    def _remove_files(self) -> None:
        """Removes the destinations, also those that nodes lost and that others see. What is left is no fault."""
        directories = {number: self._done.destinations[number].directory for number in self._nodes}
        calls = [node.writer.remove.remote(number, directories[number]) for number, node in self._nodes.items()]
        if calls:
            self._ray.wait(calls, num_returns=len(calls), timeout=REMOVE_SECONDS)
        places = self._ray.put([(one.number, one.directory) for one in self._done.destinations.values()])
        clean_nodes(self._ray, self._fleet, lambda node: node.writer.clean.remote(places))
