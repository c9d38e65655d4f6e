"""Runs a job whose reducers pull: chunks are sorted where they are read, and stay there until partitions fetch them.

    inputs   0 1 2 | 3 4 5 | 6 7 8      chunks, consecutive ones on a node
    nodes      A       B       C        each chunk sorted to runs on the disk of its node, and not merged there
    fetch     012     345     678       the server of a node merges its chunks while a partition is fetched
    reduce      ╲      │      ╱         a worker merges as many streams as there are groups of consecutive chunks
               part-00000 ...

Equal keys keep the order of the inputs because a group has consecutive chunks, and groups are merged in their order,
whatever node has which chunk. Nodes begin with equal ranges of chunks; one that has no work left takes the last half
of the longest range, which adds at most a group.

A view as output is the chunks themselves: they are sorted beside the output, and `part-00000` refers to them.

A chunk whose node is lost, or whose bytes are damaged, is sorted again, and no other. Parts that are complete stay.

Invariants: the journal has a chunk, with the checksum that stands for its bytes, before a partition relies on it.
While a chunk is missing, no merge begins.
"""

from __future__ import annotations

import os
import re
import secrets
from collections import deque
from typing import Any

from ascot import _native, errors
from ascot.cluster.actors import SPILLS, remove_chunk
from ascot.cluster.calls import Call, Calls
from ascot.cluster.cleaning import clean_nodes
from ascot.cluster.driver import Driver
from ascot.cluster.manifest import Span, Sum
from ascot.cluster.nodes import START_SECONDS, Node
from ascot.cluster.parts import CHUNKS
from ascot.cluster.shares import Shares
from ascot.cluster.spills import SOURCE_BYTES, Group

__all__ = ["PullDriver"]

CHUNK_NAME = re.compile(r"/chunk-(\d+)\.[0-9a-f]+(/|$)")


class PullDriver(Driver):
    """A run of a job whose reducers pull."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # Whether chunks were lost, or a server has none open, since the phase began.
        self._is_stale = False
        self._groups: dict[str, Node] = {}
        # Where workers fetch each group, if they do.
        self._addresses: dict[str, tuple[str, int] | None] = {}
        if not self._spans:
            # Inputs without records are one chunk without records.
            self._spans = [Span(self._job["inputs"][0][0], 0, 0, 0, 0)]

    # ---------------------------------------------------------------- chunks and their places

    def _find_bounds(self) -> None:
        if self._job["views"]:
            # The only part refers to all chunks.
            self._bounds = _native.uniform_bounds(self._options, 1)
            self._partitions = 1
            return
        super()._find_bounds()

    def _places(self, node: Node) -> list[str]:
        """The directories for chunks of a node."""
        if self._job["views"]:
            return [os.path.join(self._job["staging"], CHUNKS)]
        return [os.path.join(self._place(directory), f"{CHUNKS}-{node.id[:8]}") for directory in node.temp]

    def _find_destinations(self) -> None:
        """Finds the chunks of an earlier run that are still there."""
        if not self._missing_parts():
            return
        missing = dict(self._done.spills)
        for node in list(self._fleet.nodes):
            names = sorted(missing, key=lambda chunk: missing[chunk].node != node.id)
            try:
                files = [os.path.join(missing[chunk].directory, "partitions") for chunk in names]
                seen = node.answer(node.writer.present.remote(files))
            except self._ray.exceptions.RayError:
                self._repair(node)
                continue
            for chunk in [chunk for chunk, there in zip(names, seen, strict=True) if there]:
                missing.pop(chunk).node = node.id
        self._lose_chunks(sorted(missing))

    def _lose_chunks(self, chunks: list[int]) -> None:
        if chunks:
            self._is_stale = True
            self._done.take(self._directory.note(event="spills lost", numbers=chunks))

    def _lose(self, node: Node) -> None:
        """Chunks of an excluded node are sorted again, unless they are beside the output."""
        if not self._job["views"]:
            self._lose_chunks([chunk for chunk, spill in self._done.spills.items() if spill.node == node.id])
        self._is_stale = True

    def _replace_lost(self) -> None:
        """A server that was started in place of another one has no chunks open."""
        self._is_stale = True

    # ---------------------------------------------------------------- map: chunks are sorted

    def _map_phase(self) -> None:
        missing = [chunk for chunk in range(len(self._spans)) if chunk not in self._done.spills]
        if not missing:
            return
        shares = Shares()
        self._is_mapping, self._is_stale = True, False
        for node in self._fleet.begin(self._bounds):
            self._repair(node)
        if self._job["views"]:
            # With the mode of the output, of which they become a part.
            os.makedirs(self._places(self._fleet.nodes[0])[0], exist_ok=True)
        for node in list(self._fleet.nodes):
            self._ask(node, node.writer.prepare.remote(self._places(node)))
        queues = self._queues(missing)
        running = self._begin_calls()
        while True:
            for node, worker in running.idle():
                chunk = self._next_chunk(node, queues)
                if chunk is not None:
                    name = self._new_name(node, chunk)
                    running.add(worker.spill.remote(self._spans[chunk].to_native(), name), Call(node, worker, chunk))
            if not running:
                break
            for call, answer in running.finished():
                again = queues.setdefault(call.node.id, deque())
                if answer is None:
                    self._mapped_again += self._spans[call.number].bytes
                    self._again("chunk", call.number, again, running)
                    self._repair(call.node, running)
                else:
                    self._take_spilled(call, answer, shares, again, running)
            self._tell_mapped(shares)
            if self._is_stale:
                self._is_stale = False
                known = {chunk for queue in queues.values() for chunk in queue} | self._done.spills.keys()
                known |= running.numbers()
                lost = [chunk for chunk in range(len(self._spans)) if chunk not in known]
                for name, more in self._queues(lost).items():
                    queues.setdefault(name, deque()).extend(more)
                running.offer_again()
        self._is_mapping = False
        self._take_accounts(shares)
        self._end_phase("map and shuffle", shares)

    def _tell_mapped(self, shares: Shares) -> None:
        done = sum(self._spans[chunk].bytes for chunk in self._done.spills)
        detail = f"{len(self._done.spills)} of {len(self._spans)} chunks"
        self._tell("map and shuffle", done, shares, detail, done / max(1, self._total) / 2)

    def _queues(self, chunks: list[int]) -> dict[str, deque[int]]:
        """A range of chunks for each node."""
        nodes = self._fleet.nodes
        bounds = [len(chunks) * number // len(nodes) for number in range(len(nodes) + 1)]
        return {node.id: deque(chunks[bounds[number] : bounds[number + 1]]) for number, node in enumerate(nodes)}

    def _next_chunk(self, node: Node, queues: dict[str, deque[int]]) -> int | None:
        """The next chunk of the range of a node, which takes half of the longest range when it has none left."""
        own = queues.setdefault(node.id, deque())
        if not own:
            longest = max(queues.values(), key=len)
            for _ in range((len(longest) + 1) // 2):
                own.appendleft(longest.pop())
        return own.popleft() if own else None

    def _new_name(self, node: Node, chunk: int) -> str:
        """A directory that no chunk has had."""
        places = self._places(node)
        return os.path.join(places[chunk % len(places)], f"chunk-{chunk:05}.{secrets.token_hex(4)}")

    def _take_spilled(self, call: Call, answer: Any, shares: Shares, queue: deque[int], running: Calls) -> None:
        told, error = answer
        if error is not None:
            self._take_fault_of(call.node, error)
            self._make_again("chunk", call.number, queue, running, str(error).splitlines()[0])
            return
        chunk = call.number
        self._accounts.fetched += told["fetched_bytes"]
        own = Sum(told["records_in"], told["bytes_in"], int(told["checksum"], 16))
        self._is_again(chunk, own)
        shares.add(call.node, self._spans[chunk].bytes, grouping=told["seconds"])
        shares.add_passes(call.node, told["passes"])
        if call.node not in self._fleet.nodes and not self._job["views"]:
            self._make_again("chunk", chunk, queue, running, "its node was excluded")
            return
        place = {"node": call.node.id, "directory": told["directory"], "check": told["check"]}
        sums = {"records": own.records, "bytes": own.bytes, "sum": told["checksum"]}
        self._done.take(self._directory.note(event="spill", number=chunk, **place, **sums))

    def _take_fault_of(self, node: Node, error: errors.AscotError) -> None:
        """A fault of the disk of a node: of a chunk, which is sorted again, or of all, and the node is excluded."""
        name = str(getattr(error, "filename", None) or getattr(error, "file", None) or "")
        found = CHUNK_NAME.search(name)
        if f"ascot-cluster-{self._job['job']}" not in name and not (self._job["views"] and found):
            raise error
        is_missing = isinstance(error, errors.FileMissing)
        if found and (isinstance(error, errors.Damaged) or (is_missing and self._has_places(node))):
            chunk = int(found[1])
            if chunk in self._done.spills:
                self._lose_chunks([chunk])
            return
        if node in self._fleet.nodes:
            self._exclude(node, str(error).splitlines()[0])

    def _has_places(self, node: Node) -> bool:
        """Whether the directories for chunks of a node are there."""
        try:
            return all(node.answer(node.writer.present.remote(self._places(node))))
        except self._ray.exceptions.RayError:
            return False

    def _ask(self, node: Node, call: Any) -> tuple[bool, Any]:
        """Waits for the answer of a server, and takes its fault. Returns whether there is none, and the answer."""
        try:
            told, error = node.answer(call, START_SECONDS)
        except self._ray.exceptions.RayError:
            self._repair(node)
            return False, None
        if isinstance(error, errors.MemoryLimit):
            raise error
        if error is not None:
            self._take_fault_of(node, error)
        return error is None, told

    # ---------------------------------------------------------------- reduce: partitions are merged

    def _sort_phase(self) -> None:
        self._is_stale = False
        if self._job["views"]:
            self._join_chunks()
            return
        if not self._open_groups():
            return
        queue = deque(self._missing_parts())
        shares = Shares()
        running = self._begin_calls()
        while True:
            for node, worker in running.idle():
                if queue and not self._is_stale:
                    self._merge_next(node, worker, queue.popleft(), running)
            if not running:
                break
            for call, answer in running.finished():
                if answer is None:
                    self._again("partition", call.number, queue, running)
                    self._repair(call.node, running)
                else:
                    self._take_merged(call, answer, shares, running)
            share = len(self._done.parts) / max(1, self._partitions)
            detail = f"{len(self._done.parts)} of {self._partitions} partitions"
            self._tell("sort and reduce", int(share * self._total), shares, detail, (1 + share) / 2)
        for node in list(self._fleet.nodes):
            node.writer.close_chunks.remote()
        self._take_accounts(shares)
        self._end_phase("sort and reduce", shares)

    def _open_groups(self) -> bool:
        """Opens all groups of consecutive chunks. Returns whether none of them is lost."""
        nodes = {node.id: node for node in self._fleet.nodes}
        groups: list[tuple[Node, list[int]]] = []
        for chunk in range(len(self._spans)):
            node = nodes.get(self._done.spills[chunk].node) if chunk in self._done.spills else None
            if node is None:
                return False
            if groups and groups[-1][0] is node:
                groups[-1][1].append(chunk)
            else:
                groups.append((node, [chunk]))
        self._check_memory(len(groups))
        self._groups = {}
        readers = sum(len(node.workers) for node in self._fleet.nodes)
        calls = []
        for node, chunks in groups:
            name = f"{chunks[0]}-{chunks[-1]}"
            self._groups[name] = node
            memory = len(node.workers) * (self._job["shape"]["sort_bytes"] // 2)
            memory //= sum(one is node for one, _ in groups)
            places = [(self._done.spills[chunk].directory, self._done.spills[chunk].check) for chunk in chunks]
            calls.append((name, node, node.writer.open_chunks.remote(name, places, memory, readers)))
        are_open = True
        for name, node, call in calls:
            is_open, self._addresses[name] = self._ask(node, call) if node in self._fleet.nodes else (False, None)
            are_open = are_open and is_open
        return are_open

    def _check_memory(self, groups: int) -> None:
        """Raises MemoryLimit if a worker cannot fetch from `groups` groups at once."""
        share = self._job["shape"]["sort_bytes"]
        # Half of the memory of workers belongs to the servers.
        missing = 2 * groups * SOURCE_BYTES - share
        if missing > 0:
            given = self._job["memory_per_node"]
            needed = given + missing * max(len(node.workers) for node in self._fleet.nodes)
            raise errors.MemoryLimit(
                f"{_native.bytes_text(share)} of memory for each worker are too little to merge {groups} streams: on "
                f"each node {_native.bytes_text(needed)} are needed\n  remove the job (ascot.cluster.remove) and "
                "give more (memory_per_node=), or fewer workers (workers_per_node=), or sort with shuffle='push'",
                given=given,
                needed=needed,
            )

    def _merge_next(self, node: Node, worker: Any, partition: int, running: Calls) -> None:
        spills = [os.path.join(self._place(directory), SPILLS) for directory in node.temp]
        options = {**self._options, "output": self._parts.name(partition), "temp": spills}
        sources = [Group(name, owner.writer, self._addresses[name]) for name, owner in self._groups.items()]
        running.add(worker.merge.remote(options, sources, partition), Call(node, worker, partition))

    def _take_merged(self, call: Call, answer: Any, shares: Shares, running: Calls) -> None:
        result, error = answer
        if error is not None:
            self._take_fault_of(call.node, error)
            self._make_again("partition", call.number, deque(), running, str(error).splitlines()[0])
            self._is_stale = True
            return
        if "faults" in result:
            self._take_failed_merge(call, result["faults"], running)
            self._is_stale = True
            for name, fault in result["faults"]:
                node = self._groups[name]
                if node not in self._fleet.nodes:
                    continue
                if isinstance(fault, errors.MemoryLimit):
                    raise fault
                if not isinstance(fault, errors.AscotError):
                    self._repair(node, running)
                elif getattr(fault, "filename", None) or getattr(fault, "file", None):
                    self._take_fault_of(node, fault)
            return
        event = {"records": result["records_out"], "bytes": result["bytes_out"], "sum": result["checksum"]}
        event["file_bytes"] = result["file_bytes"]
        self._done.take(self._directory.note(event="part", number=call.number, **event))
        attempts = self._attempts.count("partition", call.number)
        self._sorted_again += event["bytes"] * attempts
        self._sent_again += result["fetched"] * attempts
        shares.add(call.node, event["bytes"], sorting=result["took"])
        self._accounts.uploaded += result["uploaded_bytes"]
        self._add_passes(call.node, result, result["took"], shares)

    def _take_failed_merge(self, call: Call, faults: list[tuple[str, BaseException]], running: Calls) -> None:
        """Counts a merge whose sources had faults: of chunks, which are made again, or of servers that ended."""
        name, fault = faults[-1]
        reason = (str(fault).splitlines() or [type(fault).__name__])[0]
        if isinstance(fault, errors.AscotError):
            self._make_again("partition", call.number, deque(), running, reason)
        else:
            name = self._groups[name].name
            self._again("partition", call.number, deque(), running, f"the server of node {name}: {reason}")

    # ---------------------------------------------------------------- a view as output

    def _join_chunks(self) -> None:
        """Makes the only part: a view that refers to all chunks."""
        place = self._places(self._fleet.nodes[0])[0]
        spills = [self._done.spills[chunk] for chunk in range(len(self._spans)) if chunk in self._done.spills]
        if len(spills) < len(self._spans):
            return
        kept = {os.path.basename(spill.directory) for spill in spills}
        # Workers that were killed may have left chunks that the journal does not have.
        for name in os.listdir(place) if os.path.isdir(place) else []:
            if name not in kept:
                remove_chunk(os.path.join(place, name))
        shares = Shares()
        node = self._fleet.nodes[0]
        call = node.workers[0].join.remote([(spill.directory, spill.check) for spill in spills], self._parts.name(0))
        try:
            told, error = node.answer(call, START_SECONDS)
        except self._ray.exceptions.RayError:
            self._again("partition", 0, deque(), self._running)
            self._repair(node)
            return
        if error is not None:
            self._make_again("partition", 0, deque(), self._running, str(error).splitlines()[0])
            self._take_fault_of(node, error)
            return
        records, size, checksum, file_bytes = told
        event = {"records": records, "bytes": size, "sum": checksum, "file_bytes": file_bytes}
        self._done.take(self._directory.note(event="part", number=0, **event))
        self._tell("sort and reduce", self._total, shares, "1 of 1 partitions", 1.0)
        self._end_phase("sort and reduce", shares)

    # ---------------------------------------------------------------- the end

    def _remove_files(self) -> None:
        """Removes the chunks, also those of lost nodes that others see."""
        if self._job["views"] and self._done.committed:
            return
        spills = self._done.spill_places
        clean_nodes(
            self._ray,
            self._fleet,
            lambda node: node.writer.remove_chunks.remote(sorted(spills | set(self._places(node)))),
        )
