"""Limits of functions on a cluster: memory, and time without progress."""

import io
import os
import re
import signal
import subprocess
import sys
import threading
import time

import ascot.cluster
import pytest
from ascot import errors
from ascot.cluster import functions, limits
from ascot.cluster.limits import MARGIN_BYTES
from ray_machines import PAIR, wait_until
from word_count import assert_nothing_left, count, lines_of, map_reduce, split, words_of

# The nodes share two processors; other load would make them seem lost.
pytestmark = pytest.mark.cluster(nodes=PAIR)


@pytest.mark.parametrize("shuffle", ["push", "pull"])
def test_a_function_that_eats_memory_is_named_with_the_limit(cluster, disk, shuffle):
    """Before the system ends its process, and the reason with it."""
    words_of(disk, 3000)

    def hoard(batch):
        kept = [bytes(1 << 20) for _ in range(16 << 10)]
        yield "key", str(len(kept))

    def gather(key, values):
        yield bytes(1 << 34)

    for changed, name in (({"map": hoard}, "map"), ({"reduce": gather}, "reduce")):
        with pytest.raises(
            errors.FunctionFailed, match=f"{name} needs more memory than a worker may have, "
        ) as caught:
            map_reduce(disk, disk / "text", shuffle=shuffle, **{"map": split, "reduce": count, **changed})
        assert "MemoryError" in caught.value.traceback and "memory_per_node=" in str(caught.value)
        assert_nothing_left(cluster, disk, ["text"])


GREEDY = """
import sys, pyarrow
from ascot.cluster.limits import memory_limit
# What a batch of Arrow reserves before the function is called.
kept = [eval(sys.argv[1])]
with memory_limit(64 << 20):
    try:
        while True:
            kept.append(eval(sys.argv[1]))
    except MemoryError:
        print(len(kept))
"""


def test_a_function_that_eats_memory_while_its_pairs_are_sorted_is_named(cluster, disk):
    """The sort that needs memory beside it does not end the process first."""
    words_of(disk, 3000)

    def hoard(batch):
        kept = []
        for line in batch.column(0).to_pylist():
            kept.append(bytes(4 << 20))
            yield line[:1000], b"x" * 50_000

    with pytest.raises(errors.FunctionFailed, match="map needs more memory than a worker may have, "):
        map_reduce(disk, disk / "text", shuffle="pull", map=hoard, reduce=count)
    assert_nothing_left(cluster, disk, ["text"])


@pytest.mark.parametrize("made", ["bytes(1 << 20)", "pyarrow.allocate_buffer(1 << 20)"])
def test_a_function_has_its_share_and_a_margin(made):
    """Also of the memory of Arrow, whose usual allocators reserve 1 GiB, of which the system sees nothing used."""
    command = [sys.executable, "-c", GREEDY, made]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    # The interpreter has some memory left that it reserved before.
    assert 64 < int(told) <= 64 + (MARGIN_BYTES >> 20) + 8


def busy(batch):
    while True:
        pass


def backtracking(batch):
    """Native code that does not let other threads run."""
    return re.match(r"(a+)+$", "a" * 60 + "b")


def locked(key, values):
    lock = threading.Lock()
    lock.acquire()
    # In native code, which no exception interrupts.
    lock.acquire()


@pytest.mark.parametrize(
    "shuffle, changed",
    [
        ("push", {"map": backtracking}),
        ("pull", {"reduce": locked}),
        pytest.param("push", {"map": busy}, marks=pytest.mark.long),
        pytest.param("push", {"reduce": locked}, marks=pytest.mark.long),
        pytest.param("push", {"combine": locked}, marks=pytest.mark.long),
        pytest.param("pull", {"map": busy}, marks=pytest.mark.long),
    ],
)
def test_a_function_that_never_returns_ends_the_job(cluster, disk, shuffle, changed):
    """The error says what it was called for and where it is, and the log says it earlier."""
    words_of(disk, 3000)
    began, seen = time.monotonic(), []
    with pytest.raises(errors.FunctionFailed) as caught:
        own = {"map": split, "reduce": count, **changed}
        map_reduce(disk, disk / "text", shuffle=shuffle, function_timeout=4, progress=seen.append, **own)
    assert 4 <= time.monotonic() - began < 60
    failed, (name,) = caught.value, changed
    if changed[name] is backtracking:
        # No other thread of the process had time to look which one.
        name_told = "a function"
    else:
        name_told = name
        where = f"{disk / 'text'}, records from byte 0 on" if name == "map" else "key b'w"
        assert where in str(failed)
        assert (failed.file, failed.offset) == ((str(disk / "text"), 0) if name == "map" else (None, None))
        assert name == "map" or failed.key.startswith(b"w")
    assert f"{name_told} has made no progress for " in str(failed) and "function_timeout=" in str(failed)
    # The frames of the program, and none of those that call it.
    lines = failed.traceback.splitlines()
    assert any(changed[name].__name__ in line and __file__ in line for line in lines)
    assert not any("ascot/cluster/" in line for line in lines)
    assert any(f"{name_told} has made no progress for " in one.detail for one in seen)
    assert_nothing_left(cluster, disk, ["text"])


@pytest.mark.parametrize("shuffle", ["push", "pull"])
def test_a_function_that_is_slow_does_not_end_the_job(cluster, disk, shuffle):
    """Pairs that it gives, values that it takes, and outputs that it gives are progress."""
    (disk / "text").write_text("a a a a a a a\nb\n")

    def slow_split(batch):
        for line in batch.column(0).to_pylist():
            for word in line.split():
                time.sleep(0.5)
                # More than the pipe of a merge holds.
                yield word, bytes(500_000)

    def slow_add(key, values):
        for value in values:
            time.sleep(0.5)
            yield value

    def slow_count(key, values):
        found = 0
        for _ in values:
            time.sleep(0.5)
            found += 1
        for one in (key, b" %d\n" % found):
            time.sleep(0.5)
            yield one

    done = map_reduce(
        disk, disk / "text", map=slow_split, combine=slow_add, reduce=slow_count, shuffle=shuffle,
        function_timeout=1.5, partitions=1,
    )  # fmt: skip
    assert lines_of(done) == ["a 7", "b 1"]
    # What bounds the node that had work are the functions.
    worked = [node.bounds for one in done.report.phases for node in one.nodes if node.bounds]
    bounds = [max(one, key=one.get) for one in worked]
    assert bounds == (["map", "reduce"] if shuffle == "pull" else ["reduce"])


class Slow(io.BytesIO):
    """A file that is slow, and looks for calls without progress meanwhile."""

    stalled = ()

    def read(self, size):
        time.sleep(0.5)
        self.stalled += tuple(limits.Notes().stalled([os.getpid()]))
        return super().read(size)


def test_the_time_in_which_values_are_read_does_not_count(monkeypatch):
    monkeypatch.setattr(limits, "LOOK_SECONDS", 0.05)
    record = functions.HEAD.pack(functions.HEAD.size // 2 + 2, 1) + b"kv"
    source = Slow(2 * record)
    calls = limits.Calls()
    calls.watch(0.6)
    try:
        own = functions.Functions(split, lambda key, values: [key, *values], None, None)
        assert list(functions.reduced(own, source, 0, calls)) == [b"k", b"v", b"v"]
        assert source.stalled == ()
    finally:
        calls.stop()


def test_only_the_time_in_which_a_function_runs_counts(monkeypatch):
    """Not that in which its batches are sent or its values are read."""
    monkeypatch.setattr(limits, "LOOK_SECONDS", 0.05)
    calls, notes = limits.Calls(), limits.Notes()
    calls.watch(0.6)
    try:
        calls.begin_key("reduce", b"k")
        outputs = calls.given(iter([b"one", b"two"]))
        next(outputs)
        time.sleep(1)
        assert notes.stalled([os.getpid()]) == []
        calls.resume()
        found = []
        wait_until(lambda: found.extend(notes.stalled([os.getpid()])) or found)
        assert (found[0].function, found[0].key, found[0].file) == ("reduce", b"k".hex(), None)
        calls.pause()
        wait_until(lambda: notes.stalled([os.getpid()]) == [])
    finally:
        calls.stop()


ENDLESS = """
import sys, ascot, ascot.cluster
def endless(batch):
    while True:
        pass
ascot.cluster.map_reduce(sys.argv[1], map=endless, reduce=endless, output=sys.argv[2], address=sys.argv[3],
                         memory_per_node="480MiB", progress=lambda p: print(p.phase, flush=True))
"""


def test_a_function_that_never_returns_is_interrupted(cluster, disk):
    (disk / "text").write_text("a\n")
    command = [sys.executable, "-c", ENDLESS, disk / "text", disk / "out", cluster.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as driver:
        # The second line comes while the function runs.
        assert [driver.stdout.readline() for _ in range(2)] == ["map and shuffle\n"] * 2
        began = time.monotonic()
        driver.send_signal(signal.SIGINT)
        _, told = driver.communicate(timeout=30)
    assert driver.returncode != 0 and "KeyboardInterrupt" in told
    assert time.monotonic() - began < 15
    assert not (disk / "out").exists()
    ascot.cluster.remove(disk / "out.job", address="auto")
    assert_nothing_left(cluster, disk, ["text"])
