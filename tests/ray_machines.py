"""Nodes of Ray on this machine, which tests kill and whose disks they break.

Each node has a directory for temporary files of its own. A test may mount a small volume there.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import ascot.cluster
import pytest
import ray
from ray.cluster_utils import Cluster
from support import as_root, small_disk

MIB = 1 << 20
RECORDS = ascot.Fixed(100, key=slice(0, 10))
# Little more than two processes and the object store need.
MEMORY = "480MiB"
# As many as faults need.
NODES = 4
# Tests of what is sorted take two: each node of a job starts two processes, which is most of the time of a small job.
PAIR = 2
# EXT4_IOC_SHUTDOWN, and its flag that writes nothing to the journal any more.
SHUTDOWN_IOCTL = 0x8004587D
SHUTDOWN_WITHOUT_LOG = 2


def batch_of(mapper, *about):
    """A batch of a mapper, whose arguments are `about`."""
    room = bytearray(mapper.batch(bytearray(), *about))
    assert mapper.batch(room, *about) == len(room)
    return bytes(room)


class Machines:
    """Nodes of Ray on this machine, one processor each; at first the head alone."""

    def __init__(self, directory):
        self.directory = Path(directory)
        # Clusters of tests that run beside each other have addresses of their own.
        self.network = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        self.next_address = 20
        self.cluster = Cluster()
        self.add()

    @property
    def address(self):
        return self.cluster.address

    def add(self):
        address = f"127.0.{self.network}.{self.next_address}"
        self.next_address += 1
        (self.directory / address).mkdir()
        self.cluster.add_node(
            node_ip_address=address,
            num_cpus=1,
            object_store_memory=80 * MIB,
            include_dashboard=False,
            env_vars={"ASCOT_TMPDIR": str(self.temp(address))},
        )

    def temp(self, address):
        """The directory for temporary files of a node."""
        return self.directory / address / "temp"

    def others(self):
        """The nodes that neither are the head nor serve this process."""
        own = ray.get_runtime_context().get_node_id()
        return sorted((one for one in self.cluster.worker_nodes if one.node_id != own), key=lambda one: one.node_id)

    def victim(self):
        return self.others()[0]

    def kill(self, node):
        """Kills a node with all its processes, and removes its files."""
        workers = children(node.all_processes["raylet"][0].process.pid)
        self.cluster.remove_node(node, allow_graceful=False)
        for process in workers:
            kill(process)
        for process in workers:
            wait_until(lambda process=process: not os.path.exists(f"/proc/{process}"))
        empty(self.temp(node.node_ip_address))

    def resize(self, nodes):
        """Starts or ends nodes, also in place of those that were killed, and waits until Ray knows them."""
        while len(self.cluster.list_all_nodes()) < nodes:
            self.add()
        for node in self.others()[: len(self.cluster.list_all_nodes()) - nodes]:
            self.kill(node)
        own = {node.node_id for node in self.cluster.list_all_nodes()}
        wait_until(lambda: {node["NodeID"] for node in ray.nodes() if node["Alive"]} == own)

    def empty(self):
        """Removes the files of all nodes."""
        for directory in self.directory.glob("*/temp"):
            empty(directory)

    def left_over(self):
        """The files in the directories for temporary files of all nodes."""
        return [path for path in self.directory.rglob("*") if path.is_file()]

    def temporary_directories(self):
        """The directories of jobs in those for temporary files of all nodes."""
        return list(self.directory.glob("*/temp/ascot-cluster-*"))


@contextlib.contextmanager
def started(directory):
    """A cluster, to which this process is connected."""
    machines = Machines(directory)
    ray.init(address=machines.address, log_to_driver=False, logging_level="ERROR")
    try:
        yield machines
    finally:
        ray.shutdown()
        machines.cluster.shutdown()


def children(parent):
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:
                # The name of the program is in parentheses and may have any characters.
                found += [int(name)] * (int(file.read().rpartition(")")[2].split()[1]) == parent)
    return found


def processes_of(kind, machines):
    """The processes of `Worker` or `Writer` actors on the nodes of a cluster."""
    found = []
    for node in machines.cluster.list_all_nodes():
        for process in children(node.all_processes["raylet"][0].process.pid):
            with contextlib.suppress(OSError), open(f"/proc/{process}/cmdline", "rb") as file:
                found += [process] * file.read().startswith(f"ray::{kind}".encode())
    return sorted(found)


def kill(process):
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def wait_until(done, seconds=60):
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def empty(directory):
    for path in sorted(directory.rglob("*"), reverse=True):
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()


@contextlib.contextmanager
def memory_volume(directory, size_bytes):
    """A tmpfs of this size at `directory`; skips the test if mounting is not allowed."""
    if as_root() is None:
        pytest.skip("a mount needs root, or sudo without a password")
    directory.mkdir(exist_ok=True)
    options = f"size={size_bytes},uid={os.getuid()},mode=700"
    mounting = [*as_root(), "mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)]
    mounted = subprocess.run(mounting, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"mounts do not work here: {mounted.stderr.strip()}")
    try:
        yield directory
    finally:
        unmount(directory)


def unmount(directory):
    """Unmounts a volume, which may be in use."""
    subprocess.run([*as_root(), "umount", "-l", str(directory)], capture_output=True)


@contextlib.contextmanager
def ext4(cluster, address, size):
    """A volume of its own for the temporary files of a node."""
    place = cluster.directory / address
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(place / "temp")
    with small_disk(place, size) as mount:
        (place / "temp").symlink_to(mount)
        try:
            yield mount
        finally:
            (place / "temp").unlink()
    (place / "disk").rmdir()
    (place / "disk.img").unlink()


def break_disk(mount):
    """Makes an ext4 return errors for every call from now on."""
    descriptor = os.open(mount, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, SHUTDOWN_IOCTL, struct.pack("I", SHUTDOWN_WITHOUT_LOG))
    finally:
        os.close(descriptor)


def assert_excluded(report, address, reason):
    ((name, found),) = report.lost_nodes
    assert address in name and reason in found, report.lost_nodes


class At:
    """A function for progress that acts once, in a phase, when a share of the job is done and a condition holds."""

    def __init__(self, phase, share, act, when=lambda: True):
        self.phase, self.share, self.act, self.when, self.acted = phase, share, act, when, None

    def __call__(self, progress):
        is_due = self.acted is None and progress.phase == self.phase and (progress.fraction or 0) >= self.share
        if is_due and self.when():
            self.acted = self.act() or True


def tell(report, lost_bytes):
    """Appends what a job did twice to the file that the bench of faults reads, if it runs the test."""
    place = os.environ.get("ASCOT_FAULTS_TOLD")
    if place:
        file, _, name = os.environ["PYTEST_CURRENT_TEST"].removesuffix(" (call)").partition(".py::")
        told = {"test": f"{Path(file).name}.{name}", "seconds": report.seconds, "lost": lost_bytes}
        told |= {f"{what}_again": getattr(report, f"{what}_again_bytes") for what in ("mapped", "sent", "sorted")}
        told |= {"shuffle": report.shuffle, "nodes_lost": len(report.lost_nodes)}
        with open(place, "a") as out:
            print(json.dumps(told), file=out)


def cluster_sort(disk, inputs, **options):
    usual = {"layout": RECORDS, "memory_per_node": MEMORY, "progress": None}
    return ascot.cluster.sort(inputs, disk / "out", **{**usual, **options})


def assert_same(machines, disk, done, inputs, **options):
    """The parts, one after another, are the result of a sort on one machine; and nothing else is left."""
    ascot.sort(inputs, to=disk / "alone", memory="64MiB", **options)
    with open(disk / "alone", "rb") as alone:
        for part in done.outputs:
            content = Path(part).read_bytes()
            assert content == alone.read(len(content)), part
        assert alone.read(1) == b""
    # A check takes lines of equal keys as ordered by their bytes, which a stable sort does not do.
    checked = ascot.check(list(done.outputs), **{name: options[name] for name in options if name != "stable"})
    assert checked.is_sorted or options.get("stable")
    assert checked.records == done.report.records
    assert sorted(os.listdir(disk / "out")) == [os.path.basename(part) for part in done.outputs]
    assert not (disk / "out.job").exists()
    assert not [name for name in os.listdir(disk) if name.startswith(".out.")]
    assert machines.left_over() == []


DRIVER = """
import sys, ascot, ascot.cluster
source, output, address, memory, partitions, shuffle = sys.argv[1:]
ascot.cluster.sort(source, output, layout=ascot.Fixed(100, key=slice(0, 10)), address=address, memory_per_node=memory,
                   partitions=int(partitions), shuffle=shuffle,
                   progress=lambda p: print(p.phase, p.fraction, flush=True))
"""


def journal_of_killed(cluster, source, output, partitions, shuffle, phase, share):
    """The events in the journal of a sort whose driver is killed when so much is done."""
    arguments = [source, output, cluster.address, MEMORY, str(partitions), shuffle]
    with subprocess.Popen([sys.executable, "-c", DRIVER, *arguments], stdout=subprocess.PIPE, text=True) as driver:
        for line in driver.stdout:
            *words, fraction = line.split()
            if " ".join(words) == phase and float(fraction) >= share:
                break
        driver.kill()
    assert not output.exists()
    return [json.loads(line) for line in Path(f"{output}.job", "journal").read_text().splitlines()]
