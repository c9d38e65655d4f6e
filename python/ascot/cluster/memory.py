"""How the memory of a node is divided, and how the input of a job is divided into chunks and partitions.

    memory of a node   object store | processes | what waits for disks | one share for each worker
    processes          each 128 MiB, of which a writer has its buffers
    what waits         bytes of partitions in the page cache that the disks do not have yet
    share, mapping     a chunk | its index | a batch
    share, sorting     a sort within this cap

Invariant: the sum is at most the memory of a node, whatever the data is. The object store and the processes of the
job are part of it; Ray's own processes (raylet, head) are not.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from ascot import _native
from ascot._native import bytes_text
from ascot.cluster.settings import USUAL, Settings, changed, size_of
from ascot.errors import InvalidRequest, MemoryLimit

__all__ = ["Shape", "check_partitions", "shape_of"]

MIB = 1 << 20
# A Python process with Ray and this package, and the usual batches that it receives.
PROCESS_BYTES = 128 * MIB
# More of it in a worker that uses an object store: the packages of the store, and blocks on their way.
OBJECTS_BYTES = 64 * MIB
# What waits for the disks of a node at least, and the share of its memory that it may be. The more waits, the less
# often disks turn to another file.
WAITING_BYTES_MIN = 8 * MIB
WAITING_SHARE = 8
# A worker needs this for a sort and for the smallest chunks.
SHARE_BYTES_MIN = 24 * MIB
CHUNK_BYTES_MIN = MIB
CHUNK_BYTES_MAX = 256 * MIB
# With many nodes chunks may be larger: so much for each node, if the memory allows it.
CHUNK_NODE_BYTES = MIB
# Ray moves batches of this size well; small messages cost as much as large ones. The last batch of a chunk may be
# twice as long.
BATCH_BYTES = 4 * MIB
BATCH_BYTES_MIN = MIB // 4
# With many nodes the object store of a writer does not hold two batches of every worker; Ray brings them one after
# another. Batches are then no smaller than this, if the store of a sender holds two for each of its workers.
BATCH_BYTES_MANY = MIB
# The share of the object store that batches on their way may fill, on the side of the sender and of the receiver
# each.
STORE_SHARE = 0.4
# The batches of each worker that the store of a sender holds at least.
IN_FLIGHT_MIN = 2
# Every worker gets several chunks and partitions, so that a slow one does little harm.
TASKS_PER_WORKER = 4
# A partition fits a worker's share, with room for uneven samples and for the index of a sort.
PARTITION_SHARE = 3
PARTITIONS_MAX = 1 << 15


@dataclass(frozen=True, slots=True)
class Shape:
    """The division of a job: bytes of a chunk, of a batch, of a sort and of what waits for the disks of a node, and
    numbers of workers and partitions."""

    workers: int
    chunk_bytes: int
    batch_bytes: int
    sort_bytes: int
    partitions: int
    in_flight: int
    waiting_bytes: int

    def with_functions(self) -> Shape:
        """The same for functions on records: the records of a chunk are copied for them, and they may give more than
        they get."""
        most = min(self.sort_bytes // 6, self.batch_bytes * _native.BATCHES_MAX // 4)
        return replace(self, chunk_bytes=max(CHUNK_BYTES_MIN, min(self.chunk_bytes, most)))

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)


def check_partitions(partitions: int | None) -> None:
    """Raises InvalidRequest for more partitions than a job has."""
    if partitions is not None and partitions > PARTITIONS_MAX:
        raise InvalidRequest(
            f"partitions={partitions}: a job has {PARTITIONS_MAX:,} partitions at most\n  ask for fewer"
        )


def shape_of(
    total: int,
    nodes: int,
    memory: int,
    store: int,
    workers: int,
    partitions: int | None,
    *,
    objects: bool = False,
    settings: Settings = USUAL,
    transport: str = "direct",
    shuffle: str = "push",
) -> Shape:
    """The division of `total` bytes among `nodes` of `memory` bytes, `store` of which are the object store of Ray.

    `workers` are those of a node at most; `objects` says whether inputs or outputs are objects of another store.
    Raises MemoryLimit if not even one worker fits, and InvalidRequest for too many partitions.

    >>> shape = shape_of(10**9, 4, 1 << 30, 80 << 20, 4, None)
    >>> shape.workers, shape.partitions >= 16
    (4, True)
    """
    check_partitions(partitions)
    # What is pulled stays where it was sorted.
    least = 0 if shuffle == "pull" else size_of(settings.write_memory or WAITING_BYTES_MIN)
    writer = PROCESS_BYTES + _more_of_a_writer(settings) + least
    free = memory - store - writer
    own = PROCESS_BYTES + OBJECTS_BYTES * objects
    workers = min(workers, free // (own + SHARE_BYTES_MIN))
    if workers < 1:
        needed = store + writer + own + SHARE_BYTES_MIN
        raise MemoryLimit(
            f"{memory // MIB} MiB of memory on each node are too little: a worker, a writer and the object store of "
            f"{store // MIB} MiB need {-(-needed // MIB)} MiB\n  give more (memory_per_node=), or start Ray with a "
            f"smaller object store{_or_less_of(settings, 'batch', 'write_depth', 'write_memory')}",
            given=memory,
            needed=needed,
        )
    spare = free - workers * (own + SHARE_BYTES_MIN + _more_of_a_worker(settings))
    waiting = least if settings.write_memory or not least else _waiting_bytes(memory, spare)
    free -= waiting - least
    share = free // workers - own
    everyone = workers * nodes
    wanted = partitions or max(TASKS_PER_WORKER * everyone, -(-total * PARTITION_SHARE // share))
    count = max(1, min(wanted, PARTITIONS_MAX))
    batch = size_of(settings.batch or _batch_bytes(nodes, store, workers, share))
    in_flight = int(store * STORE_SHARE) // (2 * batch * workers)
    if settings.batch is not None and transport == "ray" and in_flight < IN_FLIGHT_MIN:
        raise MemoryLimit(
            f"batch={bytes_text(batch)}: an object store of {bytes_text(store)} does not hold {IN_FLIGHT_MIN} of "
            f"them for each of {workers} workers\n  give a smaller batch, or start Ray with a larger object store",
            given=store,
            needed=int(IN_FLIGHT_MIN * 2 * batch * workers / STORE_SHARE),
        )
    in_flight = max(IN_FLIGHT_MIN, in_flight)
    # Also a chunk all of whose records are for one destination has no longer batches.
    longest = min(max(CHUNK_BYTES_MAX, CHUNK_NODE_BYTES * nodes), batch * _native.BATCHES_MAX)
    even = min(-(-total // (TASKS_PER_WORKER * everyone)), longest)
    chunk = _chunk_bytes(even, share - 2 * batch, count, settings)
    return Shape(workers, chunk, batch, share, count, in_flight, waiting)


def _batch_bytes(nodes: int, store: int, workers: int, share: int) -> int:
    """Bytes of a batch, unless they are given."""
    room = int(store * STORE_SHARE) // (2 * IN_FLIGHT_MIN * workers)
    batch = max(room // nodes, min(room, BATCH_BYTES_MANY))
    return max(min(BATCH_BYTES, share // 8, batch), BATCH_BYTES_MIN)


def _waiting_bytes(memory: int, spare: int) -> int:
    """Bytes that may wait for the disks of a node, unless they are given; `spare` are those that no worker needs."""
    return max(WAITING_BYTES_MIN, min(memory // WAITING_SHARE, spare // 2))


def _more_of_a_writer(settings: Settings) -> int:
    """Bytes of the buffers of a writer beyond the usual ones."""
    longest = 2 * size_of(settings.batch or BATCH_BYTES) + MIB
    return max(0, settings.write_depth * longest - USUAL.write_depth * (2 * BATCH_BYTES + MIB))


def _more_of_a_worker(settings: Settings) -> int:
    """Bytes of the buffers of a worker beyond the usual ones: its batches, and what it reads and groups at a time,
    which takes up to nine times the size of a read."""
    return 2 * size_of(settings.batch or 0) + 9 * max(0, size_of(settings.read_size) - size_of(USUAL.read_size))


def _or_less_of(settings: Settings, *names: str) -> str:
    """The advice to lower those of some settings that are not the usual ones."""
    return "".join(f", or less ({name}=)" for name in changed(settings, names))


def _chunk_bytes(wanted: int, share: int, partitions: int, settings: Settings) -> int:
    """Bytes of a chunk, at most those wanted, whose mapper fits in a share of the memory."""
    chunk, read = max(CHUNK_BYTES_MIN, wanted), size_of(settings.read_size)
    while (needed := _native.mapper_bytes(chunk, partitions, read)) > share:
        if chunk == CHUNK_BYTES_MIN:
            raise MemoryLimit(
                f"{bytes_text(max(0, share))} of memory for each worker are too little for {partitions} partitions: "
                f"a chunk needs {bytes_text(needed)}\n  give more (memory_per_node=), or fewer workers "
                f"(workers_per_node=){_or_less_of(settings, 'batch', 'read_size', 'write_memory')}",
                given=share,
                needed=needed,
            )
        chunk = max(CHUNK_BYTES_MIN, chunk * 7 // 8)
    return chunk
