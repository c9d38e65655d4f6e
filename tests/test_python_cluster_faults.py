"""Sorts on a cluster whose nodes, processes, disks and driver fail during the job.

After each fault the result has the checksum of the input and is in order, and no more was done twice than was lost:
the bytes that were on the node, or what was on its way.

ASCOT_CLUSTER_RECORDS is the number of records of 100 bytes, by default 400,000, and 5,120,000 in `./dev test --all`:
512 MB take minutes for each fault.
"""

import os
import signal
from contextlib import suppress

import ascot
import ascot.cluster
import pytest
from ascot import errors
from ascot.cluster import fleet, watching
from ray_machines import (
    MIB,
    NODES,
    RECORDS,
    At,
    assert_excluded,
    break_disk,
    cluster_sort,
    ext4,
    journal_of_killed,
    kill,
    memory_volume,
    processes_of,
    tell,
    unmount,
)
from support import long

# The nodes share two processors; other load would make them seem lost.
pytestmark = pytest.mark.cluster

COUNT = int(os.environ.get("ASCOT_CLUSTER_RECORDS", 400_000))
BYTES = 100 * COUNT
PARTITIONS = 6 * NODES
MAP, SORT = "map and shuffle", "sort and reduce"


@pytest.fixture(scope="module")
def records(module_disk):
    """A file of records, and its checksum."""
    ascot.gen(COUNT, to=module_disk / "records")
    return module_disk / "records", ascot.check(module_disk / "records", layout=RECORDS).checksum


def stored_sizes(directory):
    """The size of each file of a partition in a directory, whose files come and go."""
    found = []
    for path in directory.rglob("partition-*"):
        with suppress(FileNotFoundError):
            found.append(path.stat().st_size)
    return found


def stored_bytes(directory):
    return sum(stored_sizes(directory))


def assert_result(records, disk, done):
    path, checksum = records
    checked = ascot.check(list(done.outputs), layout=RECORDS)
    assert (checked.checksum, checked.records, checked.is_sorted) == (checksum, COUNT, True)
    assert sorted(os.listdir(disk / "out")) == [f"part-{number:05}" for number in range(PARTITIONS)]
    assert not (disk / "out.job").exists() and path.exists()
    assert not [name for name in os.listdir(disk) if name.startswith(".out.")]
    return done.report


def assert_bounded(report, lost_bytes, tasks=NODES):
    """No more was done twice than what was lost, and the chunks or partitions that workers had at that time: `tasks`,
    one for each worker."""
    tell(report, lost_bytes)
    chunk, part = report.bytes / report.chunks, report.bytes / report.partitions
    # Partitions differ in size, since their bounds come from a sample.
    on_their_way = tasks * 1.05 * chunk
    assert report.sent_again_bytes <= lost_bytes + on_their_way
    # Each chunk has records of what was lost, and is read once more.
    assert report.mapped_again_bytes <= report.bytes * (lost_bytes > 0) + on_their_way
    assert report.sorted_again_bytes <= lost_bytes + tasks * 1.5 * part


# ---------------------------------------------------------------- processes and nodes


@pytest.mark.parametrize("phase, share", [long("sample", 0), (MAP, 0.15), (SORT, 0.6)])
def test_a_node_is_killed_with_its_disk(cluster, disk, records, phase, share):
    node, lost = cluster.victim(), []

    temp = cluster.temp(node.node_ip_address)

    def kill_node():
        lost.append(stored_bytes(temp))
        cluster.kill(node)

    def has_a_complete_part():
        # The file of a partition is removed when its part is complete.
        return phase != SORT or len(stored_sizes(temp)) < PARTITIONS // NODES

    at = At(phase, share, kill_node, when=has_a_complete_part)
    report = assert_result(records, disk, cluster_sort(disk, records[0], partitions=PARTITIONS, progress=at))
    assert [node.node_id[:8] in name for name, _ in report.lost_nodes] == [True]
    assert (lost[0] > 0) == (phase != "sample")
    assert_bounded(report, lost[0])
    assert cluster.left_over() == []
    if phase == SORT:
        # Parts that were complete are not made again, and no chunk was on its way. Batches have headers, whose sum is
        # less than a hundredth of the records.
        assert 0 < report.sent_again_bytes <= 1.01 * lost[0]


@pytest.mark.parametrize(
    "kind, phase, share, transport",
    [
        long("Worker", MAP, 0.1, "direct"),
        ("Worker", SORT, 0.55, "direct"),
        ("Writer", MAP, 0.1, "direct"),
        long("Writer", MAP, 0.1, "ray"),
        long("Writer", SORT, 0.55, "direct"),
    ],
)
def test_a_process_is_killed_and_replaced(cluster, disk, records, kind, phase, share, transport):
    at = At(phase, share, lambda: kill(processes_of(kind, cluster)[0]))
    done = cluster_sort(disk, records[0], partitions=PARTITIONS, transport=transport, progress=at)
    report = assert_result(records, disk, done)
    assert at.acted and report.lost_nodes == ()
    # A writer finds the batches in its files: only chunks on their way to it are sent again. A worker had a chunk or
    # partition, and perhaps the next one.
    assert_bounded(report, 0, 2 if kind == "Worker" else NODES)
    assert cluster.left_over() == []


@pytest.mark.parametrize("kind", ["Worker", "Writer"])
def test_a_process_that_is_stopped_is_replaced(cluster, disk, records, monkeypatch, kind):
    monkeypatch.setattr(watching, "HUNG_SECONDS", 6.0)
    monkeypatch.setattr(fleet, "LATE_SECONDS", 10.0)
    stopped = []

    def stop():
        stopped.append(processes_of(kind, cluster)[0])
        os.kill(stopped[0], signal.SIGSTOP)

    at = At(MAP, 0.05, stop)
    try:
        done = cluster_sort(disk, records[0], partitions=PARTITIONS, progress=at)
    finally:
        for process in stopped:
            kill(process)
    assert stopped
    report = assert_result(records, disk, done)
    assert report.lost_nodes == ()
    assert cluster.left_over() == []


# ---------------------------------------------------------------- disks


def test_the_disk_of_a_node_is_full_while_batches_arrive(cluster, disk, records):
    address, size = cluster.victim().node_ip_address, BYTES // NODES // 3
    with memory_volume(cluster.temp(address), size):
        done = cluster_sort(disk, records[0], partitions=PARTITIONS)
        # The node is alive: its files are removed although it was excluded.
        assert cluster.left_over() == []
    report = assert_result(records, disk, done)
    assert_excluded(report, address, "no space left")
    assert_bounded(report, size)
    assert cluster.left_over() == []


def test_the_disk_of_a_node_is_full_while_a_partition_is_sorted(cluster, disk):
    # The only partition is larger than the memory of a worker. Its batches fit on the disk, and its spills do not.
    ascot.gen(1_500_000, to=disk / "a")
    address, size = cluster.cluster.head_node.node_ip_address, 220_000_000
    with memory_volume(cluster.temp(address), size):
        done = cluster_sort(disk, disk / "a", partitions=1)
        assert cluster.left_over() == []
    checked = ascot.check(list(done.outputs), layout=RECORDS)
    assert checked.is_sorted and checked.checksum == ascot.check(disk / "a", layout=RECORDS).checksum
    assert_excluded(done.report, address, "space")
    assert_bounded(done.report, 150_000_000)
    assert cluster.left_over() == []


@pytest.mark.parametrize("phase, share", [(MAP, 0.2), long(SORT, 0.55)])
def test_a_disk_returns_errors(cluster, disk, records, phase, share):
    address, lost = cluster.victim().node_ip_address, []
    with ext4(cluster, address, 2 * BYTES // NODES + 16 * MIB) as mount:

        def fail():
            lost.append(stored_bytes(mount))
            break_disk(mount)

        at = At(phase, share, fail)
        done = cluster_sort(disk, records[0], partitions=PARTITIONS, progress=at)
    report = assert_result(records, disk, done)
    assert_excluded(report, address, "Input/output error")
    assert lost[0] > 0
    assert_bounded(report, lost[0])
    assert cluster.left_over() == []


@pytest.mark.parametrize("phase, share", [long(MAP, 0.2), (SORT, 0.55)])
def test_a_volume_is_unmounted(cluster, disk, records, phase, share):
    address, lost = cluster.victim().node_ip_address, []
    with memory_volume(cluster.temp(address), BYTES) as mount:

        def go_away():
            lost.append(stored_bytes(mount))
            unmount(mount)

        at = At(phase, share, go_away)
        done = cluster_sort(disk, records[0], partitions=PARTITIONS, progress=at)
    report = assert_result(records, disk, done)
    assert_excluded(report, address, "No such file")
    assert lost[0] > 0
    assert_bounded(report, lost[0])
    # Nothing was written to the volume below.
    assert cluster.left_over() == [] and not os.listdir(cluster.temp(address))


@pytest.mark.parametrize("name", ["partition-*", "batches"])
def test_zeros_are_found_and_what_they_replaced_is_made_again(cluster, disk, records, name):
    node, lost = cluster.victim(), []

    def damage():
        # The last partition of the node, or the log of all its batches.
        path = sorted(cluster.temp(node.node_ip_address).rglob(name))[-1]
        size = path.stat().st_size
        lost.append(size if name != "batches" else stored_bytes(path.parent))
        with open(path, "r+b") as file:
            file.write(bytes(size))

    # The node sorts its partitions one at a time: the last one is not read yet.
    at = At(SORT, 0, damage)
    report = assert_result(records, disk, cluster_sort(disk, records[0], partitions=PARTITIONS, progress=at))
    assert report.lost_nodes == ()
    assert report.sent_again_bytes > 0
    assert_bounded(report, lost[0])
    # Also those whose log was damaged.
    assert cluster.left_over() == []


# ---------------------------------------------------------------- the driver


@pytest.mark.parametrize("phase, share", [(MAP, 0.15), (SORT, 0.6)])
def test_the_driver_is_killed_and_the_job_resumed(cluster, disk, records, phase, share):
    events = journal_of_killed(cluster, records[0], disk / "out", PARTITIONS, "push", phase, share)
    before = sum(event["bytes"] for event in events if event["event"] == "chunk")
    parts = [event["bytes"] for event in events if event["event"] == "part"]
    assert before > 0 and (len(parts) > 0) == (phase == SORT)
    with pytest.raises(errors.FileExists, match="another job"):
        cluster_sort(disk, records[0])
    done = ascot.cluster.resume(disk / "out.job", address="auto", progress=None)
    report = assert_result(records, disk, done)
    assert cluster.left_over() == []
    mapped = sum(one.bytes for one in report.phases if one.name == MAP)
    # Chunks that were done are not mapped again, and parts that were done are not sorted again.
    assert mapped == BYTES - before + report.mapped_again_bytes
    assert_bounded(report, 0)
    sorted_bytes = [one.bytes for one in report.phases if one.name == SORT][-1]
    assert sorted_bytes == BYTES - sum(parts)
