"""Sorts on a cluster: real nodes of Ray on this machine, which are killed during the job.

The result is held against that of a sort on one machine, byte for byte. Nodes that a test kills are replaced by new
ones, so that all tests share one cluster.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import ascot
import ascot.cluster
import pytest
import ray
from ascot import _native, errors
from ascot.cluster import fleet, jobs, manifest, memory

MIB = 1 << 20
# The least memory of a node here is that of two processes and of the object store.
MEMORY = "480MiB"
RECORDS = ascot.Fixed(100, key=slice(0, 10))


class Machines:
    """Nodes of Ray on this machine."""

    def __init__(self):
        from ray.cluster_utils import Cluster

        self.cluster = Cluster()
        self.next_address = 20
        for _ in range(3):
            self.add()

    def add(self):
        address = f"127.0.0.{self.next_address}"
        self.next_address += 1
        options = {"num_cpus": 1, "object_store_memory": 80 * MIB, "include_dashboard": False}
        return self.cluster.add_node(node_ip_address=address, **options)

    def kill_one(self):
        """Kills a node that is not the head, with all its processes; returns its id."""
        node = min(self.cluster.worker_nodes, key=lambda one: one.node_id)
        raylet = node.all_processes["raylet"][0].process.pid
        workers = children(raylet)
        self.cluster.remove_node(node, allow_graceful=False)
        for process in workers:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return node.node_id

    def fill_up(self):
        """Starts nodes in place of those that were killed."""
        while len(self.cluster.list_all_nodes()) < 3:
            self.add()


def children(parent):
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/stat") as file:
                # The name of the program is in parentheses and may have any characters.
                found += [int(name)] * (int(file.read().rpartition(")")[2].split()[1]) == parent)
    return found


@pytest.fixture(scope="module")
def machines():
    started = Machines()
    ray.init(address=started.cluster.address, log_to_driver=False, logging_level="ERROR")
    yield started
    ray.shutdown()
    started.cluster.shutdown()


@pytest.fixture
def cluster(machines, disk):
    machines.fill_up()
    # Ray calls a node alive for a while after it was killed.
    own = {node.node_id for node in machines.cluster.list_all_nodes()}
    wait_until(lambda: {node["NodeID"] for node in ray.nodes() if node["Alive"]} == own)
    return machines


def wait_until(done, seconds=60):
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.2)


def gen(path, count, **options):
    ascot.gen(count, to=path, **options)
    return path


def cluster_sort(disk, inputs, **options):
    usual = {"layout": RECORDS, "memory_per_node": MEMORY, "temp": disk / "temp", "progress": None}
    return ascot.cluster.sort(inputs, disk / "out", **{**usual, **options})


def assert_same(disk, done, inputs, **options):
    """The parts, one after another, are the result of a sort on one machine; and nothing else is left."""
    ascot.sort(inputs, to=disk / "alone", memory="64MiB", **options)
    assert b"".join(Path(part).read_bytes() for part in done.outputs) == (disk / "alone").read_bytes()
    # A check takes lines of equal keys as ordered by their bytes, which a stable sort does not do.
    checked = ascot.check(list(done.outputs), **{name: options[name] for name in options if name != "stable"})
    assert checked.is_sorted or options.get("stable")
    assert checked.records == done.report.records
    assert sorted(os.listdir(disk / "out")) == [os.path.basename(part) for part in done.outputs]
    assert not (disk / "out.job").exists()
    assert not [name for name in os.listdir(disk) if name.startswith(".out.")]


# ---------------------------------------------------------------- equal to a sort on one machine


@pytest.mark.parametrize("kind", ["uniform", "skewed", "all equal"])
def test_parts_are_the_sort_of_one_machine(cluster, disk, kind):
    inputs = [gen(disk / "a", 40_000, skew=kind == "skewed"), gen(disk / "b", 25_000, start=40_000)]
    if kind == "all equal":
        records = [b"same key!!%090d" % number for number in range(65_000)]
        (disk / "a").write_bytes(b"".join(records[:40_000]))
        (disk / "b").write_bytes(b"".join(records[40_000:]))
    done = cluster_sort(disk, inputs, partitions=12)
    assert_same(disk, done, inputs, layout=RECORDS)
    assert not os.listdir(disk / "temp")
    report = done.report
    assert (report.records, report.bytes, len(done.outputs)) == (65_000, 6_500_000, 12)
    # Also a frequent key is divided: no part is much larger than the others.
    sizes = [os.path.getsize(part) for part in done.outputs]
    assert max(sizes) < 2 * 6_500_000 / 12, sizes


def test_lines_with_ties_are_ordered_as_on_one_machine(cluster, disk):
    dice = random.Random(7)
    lines = [f"{dice.choice('abc')} {'x' * dice.randrange(300)}{number}" for number in range(30_000)]
    (disk / "text").write_text("\n".join(lines))
    layout = ascot.Lines(key=1)
    done = cluster_sort(disk, disk / "text", layout=layout, partitions=7)
    assert_same(disk, done, disk / "text", layout=layout)
    shutil.rmtree(disk / "out")
    done = cluster_sort(disk, disk / "text", layout=layout, stable=True, reverse=True)
    assert_same(disk, done, disk / "text", layout=layout, stable=True, reverse=True)


def test_numbers_and_uniform_keys(cluster, disk):
    dice = random.Random(8)
    (disk / "numbers").write_bytes(b"".join(dice.randbytes(8) for _ in range(200_000)))
    done = cluster_sort(disk, disk / "numbers", layout="i64", uniform=True, partitions=5)
    assert_same(disk, done, disk / "numbers", layout="i64")
    assert [phase.name for phase in done.report.phases] == ["map and shuffle", "sort and reduce"]
    shutil.rmtree(disk / "out")
    done = cluster_sort(disk, disk / "numbers", layout="f32-be", reverse=True)
    assert_same(disk, done, disk / "numbers", layout="f32-be", reverse=True)
    assert done.report.phases[0].name == "sample"


def test_empty_inputs_and_more_partitions_than_records(cluster, disk):
    (disk / "none").write_bytes(b"")
    (disk / "few").write_bytes(b"b\nc\na")
    done = cluster_sort(disk, [disk / "none", disk / "few"], layout="lines", partitions=9)
    assert_same(disk, done, [disk / "none", disk / "few"], layout="lines")
    shutil.rmtree(disk / "out")
    done = cluster_sort(disk, disk / "none", layout="lines")
    assert_same(disk, done, disk / "none", layout="lines")


def test_partitions_larger_than_memory_are_sorted_out_of_core(cluster, disk):
    # A worker has about 100 MiB for a partition; all of it is one.
    gen(disk / "a", 1_500_000)
    done = cluster_sort(disk, disk / "a", partitions=1)
    assert_same(disk, done, disk / "a", layout=RECORDS)
    report = done.report
    assert report.peak_memory_bytes <= report.memory_per_node == 480 * MIB
    text = str(report)
    assert "bound by" in text and "map and shuffle" in text and "sort and reduce" in text
    for phase in report.phases:
        assert phase.seconds > 0 and len(phase.nodes) == 3 and phase.bound_by in text
    assert sum(node.bytes for node in report.phases[1].nodes) == 150_000_000


# ---------------------------------------------------------------- faults


class At:
    """A function for progress that acts once, in a phase, when a share of the whole job is done."""

    def __init__(self, phase, share, act):
        self.phase, self.share, self.act, self.acted = phase, share, act, None

    def __call__(self, progress):
        if self.acted is None and progress.phase == self.phase and (progress.fraction or 0) >= self.share:
            self.acted = self.act() or True


@pytest.mark.parametrize("phase, share", [("sample", 0), ("map and shuffle", 0.15), ("sort and reduce", 0.6)])
def test_a_node_is_killed_with_its_disk(cluster, disk, phase, share):
    gen(disk / "a", 200_000)

    def kill():
        name = cluster.kill_one()
        for directory in disk.glob(f"temp/*/{name[:8]}-*"):
            shutil.rmtree(directory)
        return name

    at = At(phase, share, kill)
    done = cluster_sort(disk, disk / "a", partitions=24, progress=at)
    assert at.acted
    assert_same(disk, done, disk / "a", layout=RECORDS)
    assert [at.acted[:8] in node for node, _ in done.report.lost_nodes] == [True]
    # What the node had is made again, about a third of the data, and not all of it.
    assert done.report.sent_again_bytes < 0.6 * done.report.bytes
    if phase == "sort and reduce":
        assert done.report.sent_again_bytes > 0


@pytest.mark.parametrize("which", ["Worker", "Writer"])
def test_a_process_is_killed_and_replaced(cluster, disk, which):
    gen(disk / "a", 200_000)

    def kill():
        os.kill(min(number for number, name in processes_of_ray() if name == f"ray::{which}"), signal.SIGKILL)

    at = At("map and shuffle", 0.1, kill)
    done = cluster_sort(disk, disk / "a", partitions=12, progress=at)
    assert at.acted and done.report.lost_nodes == ()
    assert_same(disk, done, disk / "a", layout=RECORDS)
    # A writer finds the batches in its files; a chunk of a lost worker is mapped again.
    assert done.report.sent_again_bytes < 0.3 * done.report.bytes


def processes_of_ray():
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
                found.append((int(name), file.read().split(b"\0")[0].decode().split(".")[0]))
    return found


def test_zeros_in_a_partition_are_found_and_it_is_made_again(cluster, disk):
    gen(disk / "a", 100_000)

    def damage():
        for path in disk.glob("temp/*/*/partition-00022"):
            path.write_bytes(bytes(path.stat().st_size))

    # Partitions are sorted one at a time on a node, and this is the last one of its node.
    at = At("sort and reduce", 0, damage)
    done = cluster_sort(disk, disk / "a", partitions=24, progress=at)
    assert at.acted
    assert_same(disk, done, disk / "a", layout=RECORDS)
    assert 0 < done.report.sent_again_bytes < 0.1 * done.report.bytes


DRIVER = """
import sys, ascot, ascot.cluster
source, output, temp, address = sys.argv[1:]
ascot.cluster.sort(source, output, layout=ascot.Fixed(100, key=slice(0, 10)), address=address, temp=temp,
                   memory_per_node="480MiB", partitions=24, progress=lambda p: print(p.phase, p.fraction, flush=True))
"""


@pytest.mark.parametrize("phase, share", [("map and shuffle", 0.15), ("sort and reduce", 0.6)])
def test_the_driver_is_killed_and_the_job_resumed(cluster, disk, phase, share):
    gen(disk / "a", 200_000)
    arguments = [disk / "a", disk / "out", disk / "temp", cluster.cluster.address]
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, *arguments], stdout=subprocess.PIPE, text=True
    ) as driver:
        for line in driver.stdout:
            *words, fraction = line.split()
            if " ".join(words) == phase and float(fraction) >= share:
                break
        driver.kill()
    assert not (disk / "out").exists()
    events = [json.loads(line) for line in (disk / "out.job" / "journal").read_text().splitlines()]
    before = sum(event["bytes"] for event in events if event["event"] == "chunk")
    parts = sum(event["event"] == "part" for event in events)
    assert before > 0 and (parts > 0) == (phase == "sort and reduce")
    with pytest.raises(errors.FileExists, match="another job"):
        cluster_sort(disk, disk / "a")
    done = ascot.cluster.resume(disk / "out.job", address="auto", progress=None)
    assert_same(disk, done, disk / "a", layout=RECORDS)
    assert not os.listdir(disk / "temp")
    mapped = sum(phase.bytes for phase in done.report.phases if phase.name == "map and shuffle")
    # Chunks that were done are not mapped again, and parts that were done are not sorted again.
    assert mapped == done.report.bytes - before + done.report.mapped_again_bytes
    assert done.report.sent_again_bytes < 0.3 * done.report.bytes
    sorted_bytes = [phase.bytes for phase in done.report.phases if phase.name == "sort and reduce"][-1]
    done_bytes = sum(event["bytes"] for event in events if event["event"] == "part")
    assert sorted_bytes == done.report.bytes - done_bytes


def test_a_repeated_batch_is_ignored(disk):
    gen(disk / "a", 1000)
    options = jobs.Request([disk / "a"], RECORDS, None, False, {}).options
    bounds = _native.uniform_bounds(options, 4)
    job = bytes(16)
    mapper = _native.ChunkMapper(options, bounds, job, 4 * MIB, 20_000)
    mapper.map(manifest.spans_of([(str(disk / "a"), 100_000)], MIB, 100)[0].to_native())
    count = mapper.batches([0, 1, 2, 3])
    assert count == 5
    files = _native.PartitionFiles(disk / "d", job, 0)
    arrivals = [0, 1, 0, 2, 2, 3, 4, 1]
    new = [files.append(mapper.batch(0, 0, [0, 1, 2, 3], number, count)) for number in arrivals]
    assert new == [True, True, False, True, False, True, True, False]
    assert files.nbytes == 100_000 and files.complete_chunks() == [0]


# ---------------------------------------------------------------- bad input


def test_inputs_that_are_missing_or_of_another_kind_are_named_before_work_starts(disk):
    gen(disk / "a", 10)
    (disk / "packed").write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + bytes(90))
    with pytest.raises(FileNotFoundError, match=r"no-1.*no-2"):
        cluster_sort(disk, [disk / "no-1", disk / "a", disk / "no-2"], address="10.0.0.1:1")
    with pytest.raises(errors.SchemaMismatch, match="cut short"):
        cluster_sort(disk, disk / "a", layout=ascot.Fixed(99, key=slice(0, 9)), address="10.0.0.1:1")
    with pytest.raises(errors.SchemaMismatch, match="gzip"):
        cluster_sort(disk, disk / "packed", layout="lines")
    with pytest.raises(errors.InvalidRequest, match="middle of a file"):
        cluster_sort(disk, disk / "a", layout=ascot.Csv(key="x"))
    with pytest.raises(TypeError, match="by their names"):
        cluster_sort(disk, b"bytes")
    with pytest.raises(errors.InvalidRequest, match="uniform"):
        cluster_sort(disk, disk / "a", layout="lines", uniform=True)
    assert sorted(os.listdir(disk)) == ["a", "packed"]


def test_outputs_and_job_directories_of_others_are_refused(cluster, disk):
    gen(disk / "a", 10)
    (disk / "out").mkdir()
    (disk / "out" / "mine").write_text("mine")
    with pytest.raises(FileExistsError, match="not an empty directory"):
        cluster_sort(disk, disk / "a")
    (disk / "out" / "mine").unlink()
    (disk / "job").mkdir()
    (disk / "job" / "mine").write_text("mine")
    with pytest.raises(FileExistsError, match="cannot become the job directory"):
        cluster_sort(disk, disk / "a", job=disk / "job")
    with pytest.raises(FileNotFoundError, match="no directory of a cluster job"):
        ascot.cluster.resume(disk / "job")
    done = cluster_sort(disk, disk / "a")
    assert_same(disk, done, disk / "a", layout=RECORDS)


def test_too_little_memory_or_disk_is_said_with_what_is_needed(cluster, disk, monkeypatch):
    gen(disk / "a", 10)
    with pytest.raises(errors.MemoryLimit, match="need 360 MiB") as caught:
        cluster_sort(disk, disk / "a", memory_per_node="300MiB")
    assert caught.value.needed == 360 * MIB
    (disk / "a").write_bytes(b"")
    os.truncate(disk / "a", 10**13)
    with pytest.raises(errors.NoSpace, match=r"not enough space for the output: 10\.0 TB needed"):
        cluster_sort(disk, disk / "a")
    assert sorted(os.listdir(disk)) == ["a"]


def test_nodes_with_other_versions_are_named():
    with pytest.raises(errors.InvalidRequest, match=r"n2 has 0\.0\.9"):
        fleet.check_versions([("n1", "0.1.0"), ("n2", "0.0.9")], "0.1.0")
    fleet.check_versions([("n1", "0.1.0")], "0.1.0")


def test_an_input_that_changed_since_the_job_began_is_refused(cluster, disk):
    gen(disk / "a", 100_000)

    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cluster_sort(disk, disk / "a", progress=At("map and shuffle", 0, fail))
    os.utime(disk / "a", (1, 1))
    with pytest.raises(errors.InvalidRequest, match="changed since the job began"):
        ascot.cluster.resume(disk / "out.job", address="auto")
    ascot.cluster.remove(disk / "out.job", address="auto")
    assert sorted(os.listdir(disk)) == ["a", "temp"] and not os.listdir(disk / "temp")


def test_addresses_that_are_no_cluster(disk):
    gen(disk / "a", 10)
    for address in ("local:0", "local:four", "local:1000"):
        with pytest.raises(errors.InvalidRequest, match="local:4"):
            cluster_sort(disk, disk / "a", address=address)


# ---------------------------------------------------------------- parts of it


def test_a_job_directory_has_one_driver_and_survives_a_line_that_is_cut_short(disk):
    opened = manifest.JobDirectory.create(str(disk / "job"), {"job": "00"})
    with pytest.raises(errors.FileError, match="another process"):
        manifest.JobDirectory.open(str(disk / "job"))
    opened.note(event="destination", number=0, node="n", directory="d", partitions=[0, 1])
    opened.note(event="chunk", number=3, destinations=[0], records=1, bytes=2, sum="ff")
    opened.close()
    with open(disk / "job" / "journal", "a") as file:
        file.write('{"event":"chunk","number":4,"dest')
    opened, _, done = manifest.JobDirectory.open(str(disk / "job"))
    assert done.destinations[0].chunks == {3} and done.chunk_sums[3] == manifest.Sum(1, 2, 255)
    opened.note(event="lost", destinations=[0])
    opened.close()
    opened, _, done = manifest.JobDirectory.open(str(disk / "job"))
    assert done.destinations[0].lost
    opened.remove()
    assert os.listdir(disk) == []


def test_memory_of_a_node_is_never_exceeded_by_its_division():
    for megabytes in (400, 480, 1000, 4000, 30_000):
        for total in (0, 10**6, 10**10, 10**13):
            for nodes, workers in ((1, 1), (4, 8), (300, 32)):
                store = 80 * MIB
                shape = memory.shape_of(total, nodes, megabytes * MIB, store, workers, None)
                one = memory.PROCESS_BYTES + shape.sort_bytes
                assert store + memory.PROCESS_BYTES + shape.workers * one <= megabytes * MIB
                mapping = _native.mapper_bytes(shape.chunk_bytes, shape.partitions) + 2 * shape.batch_bytes
                assert mapping <= shape.sort_bytes and shape.workers >= 1
