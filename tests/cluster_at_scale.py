"""A sort of virtual data on virtual nodes by the real driver: what the driver needs, as JSON.

    python tests/cluster_at_scale.py DIRECTORY --nodes 1000 --bytes 100e12 --fault kill|resume|none
    python tests/cluster_at_scale.py DIRECTORY --nodes 296 --bytes 100e12 --machine published

The driver, the fleet, the journal and the shares are those of the package; only Ray and its actors are virtual
(`virtual_ray`).
"""

import argparse
import contextlib
import gc
import json
import os
import random
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import ascot
import virtual_ray
from ascot import _native
from ascot.cluster import checks, fleet, jobs, memory
from ascot.cluster.manifest import JobDirectory, Progress
from ascot.cluster.nodes import discover


@dataclass(frozen=True)
class Machine:
    """A node: its processors, the memory that a job takes, its object store, and the rate at which its disks read and
    write at once, bytes/s, with the deviation over the nodes."""

    cpus: int
    memory: int
    store: int
    bytes_per_s: float
    deviation: float = 0.0
    uniform: bool = False


MACHINES = {
    # Of the CloudSort benchmark: 122 GiB, of which a job takes half.
    "cloudsort": Machine(16, 61 << 30, 2 << 30, 1e9),
    # Of the published sort of 100 TB in 915 seconds (Conley et al., cluster B-296: 120 GB; DiskBench). It had no
    # sample. The network is faster than the disks (NetBench, 1237 MB/s).
    "published": Machine(32, 60 * 10**9, 2 << 30, 811.01e6, 3.83e6, uniform=True),
}
FILE_BYTES = 2_000_000_000
RECORDS = ascot.Fixed(100, key=slice(0, 10))


class Stop(Exception):
    """The end of a driver in the middle."""


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sampler(directory):
    """Keys of real records: each sampled chunk gets some of its own."""
    path = directory / "sample"
    records = 1 << 20
    ascot.gen(records, to=path)
    options = jobs.Request([path], RECORDS, None, False, {}).options
    options["inputs"] = []
    asked = iter(range(1 << 40))

    def sample(span, count):
        start = next(asked) * count * 100 % (records * 100)
        end = min(start + count * 100, records * 100)
        place = {"path": str(path), "start": start, "end": end, "size": records * 100}
        place |= {"records_at": 0, "position": span["position"]}
        return _native.sample_chunk(options, place, count)

    return sample


def described_job(directory, total, nodes, machine=MACHINES["cloudsort"]):
    """A job as `ascot.cluster.sort` describes it, and its world."""
    files = int(total // FILE_BYTES)
    shape = memory.shape_of(files * FILE_BYTES, nodes, machine.memory, machine.store, machine.cpus, None)
    options = jobs.Request([directory / "sample"], RECORDS, None, False, {}).options
    options["inputs"] = [f"/data/input-{number:06}" for number in range(files)]
    inputs = checks.Inputs([(FILE_BYTES, 1)] * files, [0] * files, b"", None)
    job = {
        "kind": "sort",
        **jobs._names(options, str(directory / "out"), inputs, False),
        "record_bytes": 100,
        "memory_per_node": machine.memory,
        "shape": shape.to_json(),
        "uniform": machine.uniform,
        "address": "auto",
        "transport": "ray",
        "shuffle": "push",
        "views": False,
    }
    dice = random.Random(915)
    rates = [dice.gauss(machine.bytes_per_s, machine.deviation) for _ in range(nodes)]
    world = virtual_ray.World(
        cpus=machine.cpus,
        memory=machine.memory,
        store=machine.store,
        # Those of a worker: the disks serve all of them.
        seconds_per_byte=[shape.workers / rate for rate in rates],
        sample=sampler(directory),
    )
    world.input_bytes = dict.fromkeys(options["inputs"], FILE_BYTES)
    world.total_bytes = files * FILE_BYTES
    return job, world


class Watch:
    """A function for progress: acts when half of the chunks are mapped, and looks at the memory."""

    def __init__(self, ray, job, act):
        self.ray, self.job, self.act = ray, job, act
        self.peak = self.journal = self.directory = 0
        # When each phase began, and when the last one ended, in virtual seconds.
        self.phases, self.ended = {}, 0.0

    def __call__(self, progress):
        self.peak = max(self.peak, resident())
        self.phases.setdefault(progress.phase, self.ray.now)
        self.ended = self.ray.now
        name = self.job["output"] + ".job"
        if os.path.isdir(name):
            sizes = {}
            for entry in os.scandir(name):
                # A file that is replaced has another name meanwhile.
                with contextlib.suppress(FileNotFoundError):
                    sizes[entry.name] = entry.stat().st_size
            self.journal, self.directory = sizes.get("journal", 0), sum(sizes.values())
        if self.act is not None and progress.phase == "map and shuffle" and progress.fraction >= 0.25:
            act, self.act = self.act, None
            act()


def attempt(ray, job, opened, done, watch):
    virtual = jobs.Attempt(ray, discover(ray), opened, job, done, None, watch, time.monotonic())
    return jobs._run(virtual).report


def run(directory, nodes, total, fault, machine):
    job, world = described_job(directory, total, nodes, MACHINES[machine])
    ray = virtual_ray.VirtualRay(world)
    fleet.time = ray
    lost = {}

    def kill():
        world.kill(nodes // 2)
        lost["mapped"] = world.mapped_bytes

    def stop():
        raise Stop

    gc.collect()
    before, began = resident(), time.process_time()
    watch = Watch(ray, job, {"kill": kill, "resume": stop, "none": None}[fault])
    opened, done = JobDirectory.create(job["output"] + ".job", job), Progress()
    resume_seconds = 0.0
    try:
        report = attempt(ray, job, opened, done, watch)
    except Stop:
        # The processes end with the driver; the files stay.
        own, at = ray.own_seconds, time.process_time()
        opened, job, done = JobDirectory.open(opened.path)
        resume_seconds = time.process_time() - at - (ray.own_seconds - own)
        lost["mapped"] = world.mapped_bytes
        report = attempt(ray, job, opened, done, watch)
    cpu = time.process_time() - began - ray.own_seconds
    calls = sum(ray.messages.values())
    return {
        "nodes": nodes,
        "bytes": world.total_bytes,
        "chunks": report.chunks,
        "chunk_bytes": job["shape"]["chunk_bytes"],
        "partitions": report.partitions,
        "workers": nodes * job["shape"]["workers"],
        "virtual_seconds": ray.now,
        "driver_cpu_seconds": cpu,
        "driver_cpu_us_per_chunk": cpu / report.chunks * 1e6,
        "journal_read_seconds": resume_seconds,
        "driver_memory_bytes": watch.peak - before,
        "process_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "calls": calls,
        "calls_by_name": ray.messages,
        "message_bytes_per_call": ray.message_bytes / calls,
        "handle_looks_per_call": virtual_ray.Actor.looks / calls,
        "put_bytes": ray.put_bytes,
        "waits": ray.waits,
        "journal_bytes": watch.journal,
        "job_directory_bytes": watch.directory,
        "batches": world.batches,
        "bytes_per_batch": world.sent_bytes / world.batches,
        "mapped_bytes": world.mapped_bytes,
        "sent_bytes": world.sent_bytes,
        "mapped_before_fault_bytes": lost.get("mapped", 0),
        "sorted_partitions": len(world.sorted),
        "lost_nodes": len(report.lost_nodes),
        "checksum_is_right": int(report.checksum, 16) == world.checksum and report.records * 100 == world.total_bytes,
        "outputs": os.path.isdir(job["output"]),
        "phases": watch.phases,
        "ended": watch.ended,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--bytes", type=float, default=100e12)
    parser.add_argument("--fault", choices=("none", "kill", "resume"), default="none")
    parser.add_argument("--machine", choices=MACHINES, default="cloudsort")
    given = parser.parse_args()
    # The list of jobs of the user is not for these.
    os.environ["XDG_STATE_HOME"] = str(given.directory)
    print(json.dumps(run(given.directory, given.nodes, given.bytes, given.fault, given.machine), indent=1))


if __name__ == "__main__":
    main()
