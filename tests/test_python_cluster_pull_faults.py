"""Sorts that pull, on a cluster whose nodes, processes, disks and driver fail during the job.

As in test_python_cluster_faults.py the result has the checksum of the input and is in order, and no more is done
twice than was lost: the chunks of a node, or one chunk, and what was on its way.
"""

import os
from contextlib import suppress

import ascot
import ascot.cluster
import pytest
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

# The nodes share two processors; other load would make them seem lost.
pytestmark = pytest.mark.cluster

COUNT = int(os.environ.get("ASCOT_CLUSTER_RECORDS", 400_000))
BYTES = 100 * COUNT
PARTITIONS = 6 * NODES
MAP, SORT = "map and shuffle", "sort and reduce"
# Push has the usual tests of faults while chunks are read; the long tests have those of pull.
MAPPING = pytest.param(MAP, 0.2, marks=pytest.mark.long)


@pytest.fixture(scope="module")
def records(module_disk):
    """A file of records, and its checksum."""
    ascot.gen(COUNT, to=module_disk / "records")
    return module_disk / "records", ascot.check(module_disk / "records", layout=RECORDS).checksum


def pull_sort(disk, records, **options):
    return cluster_sort(disk, records[0], shuffle="pull", partitions=PARTITIONS, **options)


def chunk_bytes(directory):
    """Bytes of the runs of chunks in a directory, whose files come and go."""
    found = 0
    for path in directory.rglob("run-*.run"):
        with suppress(FileNotFoundError):
            found += path.stat().st_size
    return found


def assert_result(records, disk, done):
    checked = ascot.check(list(done.outputs), layout=RECORDS)
    assert (checked.checksum, checked.records, checked.is_sorted) == (records[1], COUNT, True)
    assert sorted(os.listdir(disk / "out")) == [f"part-{number:05}" for number in range(PARTITIONS)]
    assert not (disk / "out.job").exists()
    assert not [name for name in os.listdir(disk) if name.startswith(".out.")]
    return done.report


def assert_bounded(report, lost_bytes):
    """No more was done twice than what was lost, and a chunk and a partition of each worker, twice if two faults met
    them."""
    tell(report, lost_bytes)
    chunk, part = report.bytes / report.chunks, report.bytes / report.partitions
    assert report.mapped_again_bytes <= lost_bytes + 2 * NODES * chunk
    assert report.sent_again_bytes <= 2 * NODES * (part + MIB)
    assert report.sorted_again_bytes <= 2 * NODES * (part + MIB)


@pytest.mark.parametrize("phase, share", [MAPPING, (SORT, 0.6)])
def test_a_node_is_killed_with_its_disk(cluster, disk, records, phase, share):
    node, lost = cluster.victim(), []

    def kill_node():
        lost.append(chunk_bytes(cluster.temp(node.node_ip_address)))
        cluster.kill(node)

    at = At(phase, share, kill_node)
    report = assert_result(records, disk, pull_sort(disk, records, progress=at))
    assert [node.node_id[:8] in name for name, _ in report.lost_nodes] == [True]
    assert_bounded(report, lost[0])
    if phase == SORT:
        # Its chunks are mapped again, and not those of the others.
        assert 0 < report.mapped_again_bytes < BYTES / 2
    assert cluster.left_over() == []


@pytest.mark.parametrize("kind", ["SpillWorker", "SpillServer"])
@pytest.mark.parametrize("phase, share", [MAPPING, (SORT, 0.55)])
def test_a_process_is_killed_and_replaced(cluster, disk, records, kind, phase, share):
    at = At(phase, share, lambda: kill(processes_of(kind, cluster)[0]))
    report = assert_result(records, disk, pull_sort(disk, records, progress=at))
    assert at.acted and report.lost_nodes == ()
    # Chunks are in files, which the next server finds.
    assert_bounded(report, 0)
    assert cluster.left_over() == []


@pytest.mark.parametrize(
    "name", ["run-*.run", *(pytest.param(name, marks=pytest.mark.long) for name in ("partitions", "view.json"))]
)
def test_zeros_are_found_and_the_chunk_is_made_again(cluster, disk, records, name):
    node, damaged = cluster.victim(), []

    def damage():
        # All of a chunk that is open already, or the facts about it before it is opened.
        path = sorted(cluster.temp(node.node_ip_address).rglob(name))[0]
        size = path.stat().st_size
        with open(path, "r+b") as file:
            file.write(bytes(size))
            os.fsync(file.fileno())
        damaged.append(path)

    at = At(SORT, 0, damage) if name == "run-*.run" else At(MAP, 0.4, damage)
    report = assert_result(records, disk, pull_sort(disk, records, progress=at))
    assert damaged and report.lost_nodes == ()
    assert report.mapped_again_bytes == pytest.approx(report.bytes / report.chunks, rel=0.2)
    assert_bounded(report, 0)
    assert cluster.left_over() == []


def test_the_disk_of_a_node_is_full_while_chunks_are_sorted(cluster, disk, records):
    address, size = cluster.victim().node_ip_address, BYTES // NODES // 3
    with memory_volume(cluster.temp(address), size):
        report = assert_result(records, disk, pull_sort(disk, records))
    assert_excluded(report, address, "space")
    assert_bounded(report, size)
    assert cluster.left_over() == []


@pytest.mark.parametrize("phase, share", [(MAP, 0.2), pytest.param(SORT, 0.55, marks=pytest.mark.long)])
def test_a_disk_returns_errors(cluster, disk, records, phase, share):
    address, lost = cluster.victim().node_ip_address, []
    with ext4(cluster, address, 2 * BYTES // NODES + 16 * MIB) as mount:

        def fail():
            lost.append(chunk_bytes(mount))
            break_disk(mount)

        report = assert_result(records, disk, pull_sort(disk, records, progress=At(phase, share, fail)))
    assert_excluded(report, address, "Input/output error")
    assert lost[0] > 0
    assert_bounded(report, lost[0])
    assert cluster.left_over() == []


@pytest.mark.long
def test_a_volume_is_unmounted(cluster, disk, records):
    address, lost = cluster.victim().node_ip_address, []
    with memory_volume(cluster.temp(address), BYTES) as mount:

        def go_away():
            lost.append(chunk_bytes(mount))
            unmount(mount)

        report = assert_result(records, disk, pull_sort(disk, records, progress=At(MAP, 0.2, go_away)))
    ((name, _),) = report.lost_nodes
    assert address in name
    assert_bounded(report, lost[0])
    # Nothing was written to the volume below.
    assert cluster.left_over() == [] and not os.listdir(cluster.temp(address))


@pytest.mark.parametrize("phase, share", [MAPPING, (SORT, 0.6)])
def test_the_driver_is_killed_and_the_job_resumed(cluster, disk, records, phase, share):
    events = journal_of_killed(cluster, records[0], disk / "out", PARTITIONS, "pull", phase, share)
    before = sum(event["bytes"] for event in events if event["event"] == "spill")
    parts = [event["bytes"] for event in events if event["event"] == "part"]
    assert before > 0 and (len(parts) > 0) == (phase == SORT)
    done = ascot.cluster.resume(disk / "out.job", address="auto", progress=None)
    report = assert_result(records, disk, done)
    assert cluster.left_over() == []
    # Chunks that were done are not mapped again, and parts that were done are not merged again.
    assert sum(one.bytes for one in report.phases if one.name == MAP) == BYTES - before
    assert [one.bytes for one in report.phases if one.name == SORT][-1] == BYTES - sum(parts)


@pytest.mark.long
def test_a_job_is_removed_with_its_chunks(cluster, disk, records):
    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        pull_sort(disk, records, progress=At(SORT, 0, fail))
    assert chunk_bytes(cluster.directory) >= BYTES
    ascot.cluster.remove(disk / "out.job", address="auto")
    assert os.listdir(disk) == [] and cluster.left_over() == []
