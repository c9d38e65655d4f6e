"""Sorts that pull, without Ray: how many streams there are, what they need, and what the log says of chunks."""

import contextlib
import errno
import gc
import itertools
import os
import random
import subprocess
import sys
from collections import deque
from threading import Lock
from types import SimpleNamespace

import pytest
from ascot import errors
from ascot.cluster import pull, series, spills, watching
from ray_machines import MIB


def ranges(owners):
    """The series of consecutive chunks that one node has."""
    return sum(before != after for before, after in itertools.pairwise(owners)) + 1


def test_nodes_without_work_add_few_streams():
    dice = random.Random(8)
    nodes = [SimpleNamespace(id=str(number)) for number in range(8)]
    owners = [None] * 4000
    queues = {node.id: deque(range(500 * number, 500 * number + 500)) for number, node in enumerate(nodes)}
    # Two nodes are slow.
    speeds = [0.01, 0.02, 1, 1, 1, 1, 1, 1]
    while None in owners:
        (node,) = dice.choices(nodes, speeds)
        chunk = pull.PullDriver._next_chunk(None, node, queues)
        if chunk is not None:
            assert owners[chunk] is None
            owners[chunk] = node.id
    assert ranges(owners) < 100


def driver(sort_bytes):
    job = {"shape": {"sort_bytes": sort_bytes}, "memory_per_node": 480 * MIB}
    nodes = [SimpleNamespace(workers=[None] * count) for count in (1, 3)]
    return SimpleNamespace(_job=job, _fleet=SimpleNamespace(nodes=nodes))


def test_more_streams_than_memory_are_refused_with_what_is_needed():
    least = 2 * 1000 * spills.SOURCE_BYTES
    pull.PullDriver._check_memory(driver(least), 1000)
    with pytest.raises(errors.MemoryLimit, match=r"too little to merge 1000 streams.*\n.*shuffle='push'") as failed:
        pull.PullDriver._check_memory(driver(least - MIB), 1000)
    assert (failed.value.given, failed.value.needed) == (480 * MIB, 483 * MIB)


def merge(directory, count):
    """Merges as a worker does, which has no cluster."""
    worker = object.__new__(spills.SpillWorker)
    shape = {"sort_bytes": 64 * MIB, "batch_bytes": MIB}
    worker._settings, worker._packed = {"shape": shape, "secret": b""}, None
    options = {"output": str(directory / "part"), "temp": [], "inputs": []}
    worker._merge(options, [spills.Group("0-0", None, None)] * count, 0)


def pipes():
    """The open pipes of this process, in which other threads may open and close sockets meanwhile."""
    gc.collect()
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return {(number, name) for number, name in found if name.startswith("pipe:")}


def test_a_merge_that_cannot_have_its_pipes_leaves_no_pipes(disk, monkeypatch):
    pipe, made = os.pipe, []

    def few():
        if len(made) == 5:
            raise OSError(errno.EMFILE, "Too many open files")
        made.append(pipe())
        return made[-1]

    monkeypatch.setattr(os, "pipe", few)
    before = pipes()
    with pytest.raises(OSError, match="Too many open files"):
        merge(disk, 8)
    assert len(made) == 5 and not pipes() - before


def test_a_merge_that_cannot_start_its_threads_leaves_no_pipes(disk, monkeypatch):
    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(spills.Source, "start", start)
    before = pipes()
    with pytest.raises(RuntimeError):
        merge(disk, 8)
    assert not pipes() - before


LIMITS = """
import resource
from ascot import errors
from ascot.cluster.spills import reserve_descriptors

resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))
reserve_descriptors(50)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
reserve_descriptors(200)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
try:
    reserve_descriptors(400)
except errors.AscotError as error:
    print(error)
"""


def test_descriptors_are_reserved_or_the_limit_is_named():
    done = subprocess.run([sys.executable, "-c", LIMITS], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    few, more, *text = done.stdout.splitlines()
    assert few == "100" and 200 < int(more) < 300
    assert "open files, and a process may have 300" in text[0] and "ulimit -Hn" in text[1]


def test_a_slow_answer_makes_no_sample_shorter(monkeypatch):
    watch = object.__new__(watching.Watch)
    watch.began, watch._lock, watch.series = 100.0, Lock(), {"a": series.Series(10)}
    watch._still, watch._stalled, watch._answered, watch._apart = {}, {}, {}, {}
    # The clock of the node is 100 s behind, and its answers take a while, the first one longest.
    for ended, late in [(1.0, 0.5), (2.0, 0.0), (3.0, 0.25)]:
        monkeypatch.setattr(watching, "time", SimpleNamespace(monotonic=lambda came=100.0 + ended + late: came))
        watch._take(SimpleNamespace(name="a"), ended, [[ended, *[0.0] * len(series.COLUMNS)]], {}, [])
    assert watch.series["a"].column("seconds") == [1.0, 2.0, 3.0]


def test_the_log_has_chunks_that_are_sorted_and_lost():
    watch = object.__new__(watching.Watch)
    watch.began, watch._lost = 0.0, 0
    watch._work, watch._events, watch._fleet = deque(), deque(), SimpleNamespace(lost=[])
    watch._take_event({"event": "spill", "number": 7, "node": "0123456789abcdef", "bytes": 2_000_000})
    watch._take_event({"event": "spills lost", "numbers": [7, 9]})
    texts = [text for _, text in watch._log()]
    assert texts == [
        "chunk 7 is sorted: 2.00 MB, on node 01234567",
        "lost: chunk 7, 9; sorted again on the nodes that are left",
    ]
