"""The driver of a cluster job with virtual nodes and data: what it needs is bounded, and grows with chunks alone."""

import inspect
import json
import os
import re
import subprocess
import sys

import cluster_at_scale
import pytest
import virtual_ray
from ascot import errors
from ascot.cluster import chunks, fleet, memory
from ascot.cluster.actors import Worker
from ascot.cluster.manifest import JobDirectory, Progress
from ascot.cluster.settings import USUAL
from ascot.cluster.writer import Writer
from batch_writer import BatchWriter, send_from_process
from support import ROOT

MIB = 1 << 20


def simulated(disk, *arguments):
    """The figures of a job in a process of its own, whose memory is that of nothing else."""
    program = [sys.executable, ROOT / "tests" / "cluster_at_scale.py", disk, *map(str, arguments)]
    path = os.pathsep.join([str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(program, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_bounded(found):
    """The limits of docs/cluster.md."""
    assert found["checksum_is_right"] and found["outputs"]
    nodes, chunks, partitions = found["nodes"], found["chunks"], found["partitions"]
    # Bytes for a chunk: its place, its sum, a line of the journal, and a bit for each destination that lacks it.
    assert found["driver_memory_bytes"] < 128 * MIB + 3000 * chunks
    assert found["journal_bytes"] < 256 * (chunks + found["calls_by_name"]["map"] + 2 * partitions) + 4096 * nodes
    # A call for each chunk and partition, and some for each process.
    map_calls = found["calls_by_name"]["map"]
    assert found["calls"] < map_calls + chunks + 2 * partitions + 20 * nodes * (found["workers"] // nodes + 4)
    # No message has anything for each node, but for those that are made again.
    assert found["message_bytes_per_call"] < 185
    # The work for a call does not grow with nodes, workers or chunks.
    assert found["handle_looks_per_call"] < 20
    assert found["driver_cpu_seconds"] < 0.0005 * found["calls"]
    # Batches are large, whatever the number of nodes.
    assert found["bytes_per_batch"] > 100_000


def assert_only_the_lost_is_made_again(found):
    again = found["mapped_bytes"] - found["bytes"]
    on_their_way = found["workers"] * found["chunk_bytes"]
    assert 0 < again <= found["mapped_before_fault_bytes"] + on_their_way
    # Of the chunks that are read again, the share of one node is sent.
    assert found["sent_bytes"] - found["bytes"] <= 2 * again / found["nodes"] + on_their_way / found["nodes"]
    assert found["sorted_partitions"] == found["partitions"]


def test_a_node_is_lost_among_a_hundred(disk):
    found = simulated(disk, "--nodes", 100, "--bytes", 1e12, "--fault", "kill")
    assert_bounded(found)
    assert found["lost_nodes"] == 1
    assert_only_the_lost_is_made_again(found)


def test_a_driver_of_a_hundred_nodes_is_stopped_and_resumed(disk):
    found = simulated(disk, "--nodes", 100, "--bytes", 1e12, "--fault", "resume")
    assert_bounded(found)
    # What ran when the driver ended is mapped again, and nothing else.
    again = found["mapped_bytes"] - found["bytes"]
    assert 0 <= again <= found["workers"] * found["chunk_bytes"] and found["lost_nodes"] == 0
    assert found["sorted_partitions"] == found["partitions"]


@pytest.mark.long
@pytest.mark.parametrize("fault", ["kill", "resume"])
def test_a_thousand_nodes_sort_100_terabytes(disk, fault):
    found = simulated(disk, "--nodes", 1000, "--bytes", 100e12, "--fault", fault)
    assert_bounded(found)
    if fault == "kill":
        assert_only_the_lost_is_made_again(found)
    assert found["driver_memory_bytes"] < 512 * MIB
    assert found["journal_bytes"] < 64 * MIB


@pytest.mark.long
def test_the_published_sort_takes_about_as_long_as_published(disk):
    """100 TB on 296 nodes of the published disks took 469 and 444 seconds: phases within 20 percent, and their sum
    within 10. The driver must keep all workers busy, and their last chunks and partitions must be short."""
    found = simulated(disk, "--nodes", 296, "--bytes", 100e12, "--machine", "published")
    assert_bounded(found)
    began, ended = found["phases"], found["ended"]
    phases = (began["sort and reduce"] - began["map and shuffle"], ended - began["sort and reduce"])
    assert phases == pytest.approx((469, 444), rel=0.2)
    assert sum(phases) == pytest.approx(913, rel=0.1)


def test_chunks_grow_with_the_number_of_nodes():
    """So that a worker has no small message for each node."""
    for nodes in (4, 100, 300, 1000):
        shape = memory.shape_of(int(nodes * 1e11), nodes, 61 << 30, 2 << 30, 16, None)
        assert shape.chunk_bytes >= min(MIB * nodes, 256 * MIB) // 2
        assert shape.chunk_bytes / nodes >= MIB * 0.9
        # What a sender may have on its way fits in its store.
        assert shape.workers * shape.in_flight * shape.batch_bytes * 2 <= (2 << 30)


@pytest.mark.parametrize("nodes", [300, 1000])
def test_connections_of_a_node_do_not_grow_with_the_number_of_nodes(disk, nodes):
    shape = memory.shape_of(int(nodes * 1e11), nodes, 61 << 30, 2 << 30, 16, None)
    assert shape.workers * USUAL.connections == 1024
    # A worker sends to as many destinations, and has descriptors for its connections and no others.
    writer = BatchWriter(disk, 0, nodes, 2 * USUAL.connections)
    assert send_from_process([writer], USUAL.connections, workers=1, chunks=2) == ""
    assert writer.end() == 2 * nodes


def test_ports_that_nodes_cannot_reach_are_named_with_the_other_transport(disk, monkeypatch):
    def unreached(self, targets):
        fault = ConnectionError("connection to 10.0.0.1:4711: timed out")
        return (), [(one, fault) for one in self.routes], 0

    job, world = cluster_at_scale.described_job(disk, 20e9, 3)
    ray = virtual_ray.VirtualRay(world)
    world.delivered[()] = chunks.ChunkSet()
    monkeypatch.setattr(virtual_ray.VirtualWorker, "_reached", unreached)
    monkeypatch.setattr(fleet, "time", ray)
    monkeypatch.setenv("XDG_STATE_HOME", str(disk))
    opened = JobDirectory.create(job["output"] + ".job", job)
    told = r"timed out\n  let nodes open .*transport='ray'"
    with pytest.raises(errors.Resumable, match=told) as caught:
        cluster_at_scale.attempt(ray, job, opened, Progress(), None)
    # Also the place in the inputs.
    place = r"chunk \d+ \(/data/input-\d+, bytes \d+ to \d+\) failed 6 times: the connection to node 10\."
    assert re.match(place, str(caught.value)), caught.value


def test_files_are_removed_from_excluded_nodes_that_are_alive(disk, monkeypatch):
    job, world = cluster_at_scale.described_job(disk, 20e9, 4)
    ray = virtual_ray.VirtualRay(world)
    monkeypatch.setattr(fleet, "time", ray)
    monkeypatch.setenv("XDG_STATE_HOME", str(disk))
    opened_by_all, cleaned = virtual_ray.VirtualWriter.open, []

    def opened(self, number, directory):
        if self.node.number in (1, 2):
            return None, errors.FileError(f"{directory}: Input/output error", filename=directory)
        return opened_by_all(self, number, directory)

    def cleans(self, destinations):
        cleaned.append(self.node.number)
        return None, None

    monkeypatch.setattr(virtual_ray.VirtualWriter, "open", opened)
    monkeypatch.setattr(virtual_ray.VirtualWriter, "clean", cleans)
    watch = cluster_at_scale.Watch(ray, job, lambda: world.kill(2))
    made = JobDirectory.create(job["output"] + ".job", job)
    report = cluster_at_scale.attempt(ray, job, made, Progress(), watch)
    assert len(report.lost_nodes) == 2
    # Node 1 has a broken disk and is alive; node 2 is gone as well.
    assert sorted(cleaned) == [0, 1, 3]


@pytest.mark.parametrize("real", [Worker, Writer])
def test_virtual_actors_have_the_calls_of_real_ones(real):
    virtual = getattr(virtual_ray, f"Virtual{real.__name__}")
    called = [name for name in vars(virtual) if not name.startswith("_") and name != "seconds"]
    assert called
    for name in called:
        # Ray adds an argument of its own to the methods of actors.
        wanted = [one for one in inspect.signature(getattr(real, name)).parameters if one != "_ray_trace_ctx"]
        assert list(inspect.signature(getattr(virtual, name)).parameters) == wanted, name
