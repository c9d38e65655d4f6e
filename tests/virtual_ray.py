"""Ray in virtual time: as many nodes as wanted, whose actors answer as those of `ascot.cluster` do and move no bytes.

    driver ──call──▶ queue of the actor ──▶ event "ends at" ──▶ answer, once the clock is there

The clock moves when the driver waits. An actor works on one call at a time, in order. A mapped chunk is in the
destinations whose nodes are alive when it ends; a sort of a partition looks whether all chunks are there, and else
reports what is missing, as the real one does. Sums are those of the chunks, divided among the partitions.
"""

import functools
import heapq
import itertools
import pickle
import threading
import time
from hashlib import blake2b
from types import SimpleNamespace

from ascot import _native, errors
from ascot.cluster.actors import digest_of
from ascot.cluster.chunks import ChunkSet

RECORD_BYTES = 100
SUM_END = 1 << 128
# A call that does nothing, and what Ray takes to say that a process is gone.
CALL_SECONDS = 0.001
LOST_SECONDS = 2.0
# The driver looks no more often: so long it takes it to handle the answers of a look.
LOOK_SECONDS = 0.1


def locked(method):
    """One call at a time: the watch of a job has a thread of its own."""

    @functools.wraps(method)
    def alone(self, *arguments, **options):
        with self.lock:
            return method(self, *arguments, **options)

    return alone


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


class ActorUnavailableError(RayError):
    pass


class ActorDiedError(RayError):
    pass


class GetTimeoutError(RayError):
    pass


class Reference:
    """The answer of a call, or an object that was put."""

    __slots__ = ("failed", "ready", "value")

    def __init__(self, value=None, *, ready=False):
        self.value, self.ready, self.failed = value, ready, False

    def __reduce__(self):
        # What travels in a message: an id and the address of its owner.
        return bytes, (bytes(100),)


class Actor:
    """A process on a node, as the driver sees it."""

    def __init__(self, ray, node, process):
        self.ray, self.node, self.behind = ray, node, process
        self.free_at = 0.0
        self.killed = False

    # How often handles are compared or looked up: those of Ray do it in Python.
    looks = 0

    def __eq__(self, other):
        Actor.looks += 1
        return self is other

    def __hash__(self):
        Actor.looks += 1
        return id(self)

    def __reduce__(self):
        return bytes, (bytes(300),)

    def __getattr__(self, name):
        if name.startswith("__") and name != "__ray_ready__":
            raise AttributeError(name)
        return SimpleNamespace(remote=lambda *arguments: self.ray.call(self, name, arguments))

    @property
    def is_alive(self):
        return self.node.is_alive and not self.killed


class VirtualNode:
    def __init__(self, number, shape, seconds_per_byte):
        self.number, self.is_alive, self.shape, self.seconds_per_byte = number, True, shape, seconds_per_byte
        self.id = f"{number:08x}" + "0" * 48
        self.address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


class World:
    """The nodes and what is in their files.

    `seconds_per_byte` are those of a worker of each node.
    """

    def __init__(self, *, cpus, memory, store, seconds_per_byte, sample):
        shape = {"CPU": cpus, "memory": memory, "object_store_memory": store}
        self.nodes = [VirtualNode(number, shape, one) for number, one in enumerate(seconds_per_byte)]
        self.sample = sample
        # Chunks by the destinations that they went to: what a destination has is the union of those it is in.
        self.delivered = {}
        self.reached = {}
        self.faults = 0
        self.bounds = None
        self.all_partitions = 0
        self.partitions = {}
        self.places = {}
        # What was done, for the test.
        self.mapped_bytes = self.sent_bytes = self.batches = 0
        self.records = self.checksum = 0
        self.mapped = ChunkSet()
        self.sorted = []

    def kill(self, number):
        """Kills a node with its disk."""
        self.nodes[number].is_alive = False
        self.faults += 1

    def chunks_of(self, destination):
        """The chunks that a destination has."""
        found = ChunkSet()
        for destinations, chunks in self.delivered.items():
            if destination in destinations:
                found |= chunks
        return found


class VirtualWorker:
    def __init__(self, world, node, settings, functions):
        self.world, self.node, self.settings = world, node, settings
        self.routes = {}

    def facts(self):
        volumes = [((f"/disk/{self.node.number}", 1, 1 << 50), None)]
        return {
            "ascot": _native.__version__,
            "python": "3.11",
            "host": self.node.id,
            "volumes": volumes,
            "functions": None,
        }

    def process(self):
        return 1

    def mark(self, token):
        self.token = token

    def marks(self):
        return [[self.token]]

    def unmark(self, token):
        pass

    def inputs(self, paths):
        return digest_of([self.world.input_bytes[path] for path in paths]), None

    def sample(self, span, count):
        return ([self.world.sample(span, count)], 1.0, 0), None

    def begin(self, bounds):
        if self.world.bounds is not bounds:
            self.world.bounds, self.world.all_partitions = bounds, _native.count_partitions(bounds)
        return None, None

    def end(self):
        return 1 << 27

    def route(self, routes):
        self.routes = routes

    def map(self, number, span, targets):
        world, size = self.world, span["end"] - span["start"]
        alive, failed, share = self._reached(None if targets is None else tuple(targets))
        world.delivered[alive].add(number)
        checksum = int.from_bytes(blake2b(number.to_bytes(8, "little"), digest_size=16).digest(), "little")
        world.mapped_bytes += size
        sent = size * share // world.all_partitions
        world.sent_bytes += sent
        batches = max(len(alive), -(-sent // self.settings["shape"]["batch_bytes"]))
        world.batches += batches
        if number not in world.mapped:
            world.mapped.add(number)
            world.records += size // RECORD_BYTES
            world.checksum = (world.checksum + checksum) % SUM_END
        return {
            "records": size // RECORD_BYTES,
            "bytes": size,
            "sum": f"{checksum:032x}",
            "failed": failed,
            "repeated": 0,
            "fetched_bytes": 0,
            "sent_bytes": sent,
            "reading": 1.0,
            "grouping": 1.0,
            "blocked": 1.0,
            "memory": 0.0,
        }, None

    def _reached(self, targets):
        """The destinations that chunks reach, those that they do not with their errors, and how many partitions."""
        world = self.world
        state = id(self.routes), targets, world.faults
        if state not in world.reached:
            wanted = tuple(self.routes) if targets is None else targets
            alive = tuple(one for one in wanted if self.routes[one][1].is_alive)
            gone = [(one, ConnectionError("the writer is gone")) for one in wanted if one not in alive]
            if alive not in world.delivered:
                world.delivered[alive] = ChunkSet()
            for one in alive:
                world.partitions.setdefault(one, set()).update(self.routes[one][0])
            share = sum(len(self.routes[one][0]) for one in wanted)
            # The routes stay, so that no others get their id.
            world.reached[state] = (alive, gone, share), self.routes
        return world.reached[state][0]

    def sort(self, options, place, partition, chunks):
        world, number = self.world, place["number"]
        if partition not in world.partitions[number] or len(world.chunks_of(number)) < chunks:
            path = f"{place['directory']}/partition-{partition:05}"
            return None, errors.Damaged(f"{path}: batches of the chunk of this number are missing", filename=path)
        world.sorted.append(partition)
        count = world.all_partitions
        records, checksum = (
            value * (partition + 1) // count - value * partition // count for value in (world.records, world.checksum)
        )
        told = {
            "records_out": records,
            "bytes_out": records * RECORD_BYTES,
            "checksum": f"{checksum:032x}",
            "seconds": 1.0,
            "passes": [],
            "uploaded_bytes": 0,
            "upload_seconds": 0.0,
        }
        return (told, 1.0), None

    def seconds(self, name, arguments):
        """How long a call takes."""
        world = self.world
        if name == "map":
            # Chunks take up to a tenth more or less.
            jitter = 0.9 + arguments[0] * 7919 % 1000 / 5000
            return (arguments[1]["end"] - arguments[1]["start"]) * self.node.seconds_per_byte * jitter
        if name == "sort":
            return world.total_bytes / world.all_partitions * self.node.seconds_per_byte
        return CALL_SECONDS


class VirtualWriter:
    def __init__(self, world, node, job, address="", secret=b"", batch_bytes=0, settings=None):
        self.world, self.node = world, node

    def exist(self, directories):
        return [self.world.places.get(directory) is self.node for directory in directories]

    def open(self, number, directory):
        self.world.places[directory] = self.node
        return (self.world.chunks_of(number).to_bytes(), None), None

    def sync(self, number):
        return None, None

    def remove_partition(self, number, partition):
        return None, None

    def remove(self, number, directory):
        return None, None

    def clean(self, destinations):
        return None, None

    def account(self):
        return {"writing": 1.0, "disk": 0.5, "bytes": 0, "peak": 1 << 27, "written": (0, 0.0), "runs": 0}

    def begin(self, processes):
        return None

    def samples(self, processes, is_last=False, has_functions=False):
        return 0.0, [], {}, []

    def seconds(self, name, arguments):
        return CALL_SECONDS


class VirtualRay:
    """The functions of the package `ray` that a driver calls."""

    exceptions = SimpleNamespace(
        RayError=RayError,
        RayTaskError=RayTaskError,
        ActorUnavailableError=ActorUnavailableError,
        ActorDiedError=ActorDiedError,
        GetTimeoutError=GetTimeoutError,
    )

    def __init__(self, world):
        self.world = world
        self.lock = threading.RLock()
        self.now = 0.0
        self._events = []
        self._order = itertools.count()
        # Seconds of processor time of this class, which are not those of the driver.
        self.own_seconds = 0.0
        began = time.process_time()
        for _ in range(100):
            time.process_time()
        # A look at the clock, which may take long on virtual machines.
        self._clock_seconds = (time.process_time() - began) / 100
        self.messages = {}
        self.message_bytes = 0
        self.put_bytes = 0
        self.waits = 0

    def at(self, seconds, act):
        """Does something at a time."""
        heapq.heappush(self._events, (seconds, next(self._order), act))

    # ---- what the driver calls

    def nodes(self):
        return [
            {
                "Alive": node.is_alive,
                "NodeID": node.id,
                "NodeManagerAddress": node.address,
                "Resources": node.shape,
            }
            for node in self.world.nodes
        ]

    def remote(self, actor):
        kind = {"Worker": VirtualWorker, "Writer": VirtualWriter}[actor.__name__]

        def options(scheduling_strategy, **_):
            node = self.world.nodes[int(scheduling_strategy.node_id[:8], 16)]

            def made(*arguments):
                self._count("start", arguments)
                found = [one.value if isinstance(one, Reference) else one for one in arguments]
                return Actor(self, node, kind(self.world, node, *found))

            return SimpleNamespace(remote=made)

        return SimpleNamespace(options=options)

    def kill(self, actor):
        actor.killed = True

    def put(self, value):
        began = time.process_time()
        self.put_bytes += len(pickle.dumps(value))
        self.own_seconds += time.process_time() - began + self._clock_seconds
        return Reference(value, ready=True)

    @locked
    def call(self, actor, name, arguments):
        began = time.process_time()
        self._count(name, arguments)
        reference = Reference()
        if name == "samples":
            # It has a thread of its own there.
            reference.value, reference.ready = actor.behind.samples(*arguments), True
        elif not actor.is_alive:
            self.at(self.now + CALL_SECONDS, lambda: self._fail(reference))
        else:
            found = [one.value if isinstance(one, Reference) else one for one in arguments]
            seconds = CALL_SECONDS if name == "__ray_ready__" else actor.behind.seconds(name, found)
            actor.free_at = max(actor.free_at, self.now) + seconds
            self.at(actor.free_at, lambda: self._end(actor, name, found, reference))
        self.own_seconds += time.process_time() - began + self._clock_seconds
        return reference

    @locked
    def get(self, reference, timeout=None):
        if isinstance(reference, list):
            return [self.get(one, timeout) for one in reference]
        until = self.now + (1e9 if timeout is None else timeout)
        if not reference.ready:
            began = time.process_time()
            while not reference.ready and self._events and self._events[0][0] <= until:
                self._step()
            self.own_seconds += time.process_time() - began + self._clock_seconds
        if not reference.ready:
            self.now = until
            raise GetTimeoutError
        if reference.failed:
            raise reference.value
        return reference.value

    @locked
    def wait(self, references, num_returns=1, timeout=None):
        began = time.process_time()
        self.waits += 1
        until = self.now + timeout
        if timeout:
            self.run(self.now + LOOK_SECONDS)
        while not any(one.ready for one in references) and self._events and self._events[0][0] <= until:
            self._step()
        found = [one for one in references if one.ready][:num_returns]
        chosen = set(found)
        others = [one for one in references if one not in chosen]
        self.own_seconds += time.process_time() - began + self._clock_seconds
        return found, others

    # ---- the clock

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.run(self.now + seconds)

    def run(self, until):
        while self._events and self._events[0][0] <= until:
            self._step()
        self.now = max(self.now, until)

    def _step(self):
        at, _, act = heapq.heappop(self._events)
        self.now = max(self.now, at)
        act()

    def _end(self, actor, name, arguments, reference):
        if not actor.is_alive:
            self.at(self.now + LOST_SECONDS, lambda: self._fail(reference))
            return
        reference.value = None if name == "__ray_ready__" else getattr(actor.behind, name)(*arguments)
        reference.ready = True

    def _fail(self, reference):
        reference.value, reference.failed, reference.ready = ActorUnavailableError("gone"), True, True

    def _count(self, name, arguments):
        self.messages[name] = self.messages.get(name, 0) + 1
        self.message_bytes += len(pickle.dumps(arguments))
