"""The settings of a job on a cluster: their values, what they change, the memory that they need."""

import dataclasses
import json
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import ascot
import ascot.cluster
import cluster_at_scale
import pytest
import virtual_ray
from ascot import _native, errors
from ascot.cluster import Settings, actors, fleet, functions, jobs, manifest, memory, transport
from ascot.cluster.nodes import discover
from ascot.cluster.settings import LIMITS, USUAL, check_use, settings_of
from ascot.cluster.writer import Writer
from ray_machines import MIB, PAIR, RECORDS, assert_same, batch_of, cluster_sort
from support import enter_cgroup, memory_cgroup

KIB = 1 << 10
JOB = bytes(16)


@pytest.mark.parametrize("name", LIMITS)
def test_values_out_of_range_are_refused_with_their_name_and_the_range(name):
    least, most = LIMITS[name]
    assert getattr(Settings(**{name: least}), name) == least and getattr(Settings(**{name: most}), name) == most
    for wrong in (least - 1, most + 1):
        with pytest.raises(errors.InvalidRequest, match=rf"{name}={wrong}: give a (number|size) from "):
            Settings(**{name: wrong})


def test_sizes_are_numbers_or_texts_and_settings_are_kept_as_numbers():
    settings = Settings(batch="8MiB", read_size="256KiB", write_size=MIB)
    assert settings == Settings(batch=8 * MIB, read_size=256 * KIB, write_size="1MiB")
    assert settings_of({"settings": json.loads(json.dumps(settings.to_json()))}) == settings
    # A job of an earlier version has none.
    assert settings_of({}) == USUAL == Settings()
    with pytest.raises(errors.InvalidRequest, match=r"batch='much': give a size from 64 KiB to 256 MiB"):
        Settings(batch="much")
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.ahead = 3


def test_sizes_of_nodes_are_not_limited_by_the_memory_of_the_driver():
    program = (
        "from ascot.cluster import Settings, jobs\n"
        "print(jobs._bytes('memory_per_node', '8GiB'), Settings(write_size='1GiB').write_size)"
    )
    with memory_cgroup(256 * MIB) as group:
        command, limited = [sys.executable, "-c", program], enter_cgroup(group)
        done = subprocess.run(command, preexec_fn=limited, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(8 << 30), str(1 << 30)]


def sort(disk, **options):
    ascot.gen(1000, to=disk / "in")
    return ascot.cluster.sort(disk / "in", disk / "out", layout=RECORDS, address="local:0", **options)


@pytest.mark.parametrize(
    ("settings", "options", "told"),
    [
        (Settings(ahead=4), {"shuffle": "pull"}, r"ahead=4 changes nothing with shuffle='pull'"),
        (Settings(connections=4), {"transport": "ray"}, r"connections=4 changes nothing with transport='ray'"),
        (Settings(write_depth=2), {"transport": "ray"}, r"write_depth=2 changes nothing with transport='ray'"),
        (Settings(spare_cores=1), {"workers_per_node": 2}, r"spare_cores=1 and workers_per_node=2: give one of them"),
    ],
)
def test_settings_that_change_nothing_are_refused(disk, settings, options, told):
    with pytest.raises(errors.InvalidRequest, match=told):
        sort(disk, settings=settings, **options)
    with pytest.raises(TypeError, match=r"settings is ascot\.cluster\.Settings"):
        sort(disk, settings={"ahead": 4})


# ---------------------------------------------------------------- memory


def writer_bytes(settings):
    """The memory of a writer: its process, in which the usual buffers have space, and what others need more."""
    longest = 2 * (settings.batch or 4 * MIB) + MIB
    return memory.PROCESS_BYTES + max(0, settings.write_depth * longest - 4 * 9 * MIB)


@pytest.mark.parametrize(
    "settings",
    [
        Settings(batch="32MiB"),
        Settings(write_depth=16),
        Settings(read_size="16MiB"),
        Settings(batch="64KiB"),
        Settings(write_memory="500MiB"),
        Settings(write_memory="1MiB"),
    ],
)
def test_buffers_that_a_setting_enlarges_are_in_the_division_of_memory(settings):
    store, given = 80 * MIB, 2000 * MIB
    shape = memory.shape_of(10**10, 4, given, store, 4, 64, settings=settings)
    workers = shape.workers * (memory.PROCESS_BYTES + shape.sort_bytes)
    assert store + writer_bytes(settings) + shape.waiting_bytes + workers <= given
    assert shape.waiting_bytes == (settings.write_memory or given // 8)
    mapper = _native.mapper_bytes(shape.chunk_bytes, shape.partitions, settings.read_size)
    assert mapper + 2 * shape.batch_bytes <= shape.sort_bytes
    assert settings.batch is None or shape.batch_bytes == settings.batch


def test_only_what_is_pushed_waits_for_disks():
    given = (10**10, 4, 2000 * MIB, 80 * MIB, 4, 64)
    pushed, pulled = (memory.shape_of(*given, shuffle=name) for name in ("push", "pull"))
    assert (pushed.waiting_bytes, pulled.waiting_bytes) == (250 * MIB, 0)
    assert pulled.workers * pulled.sort_bytes == pushed.workers * pushed.sort_bytes + 250 * MIB
    # Workers come first.
    little = memory.shape_of(10**10, 4, 400 * MIB, 80 * MIB, 1, 64)
    assert little.workers == 1 and memory.WAITING_BYTES_MIN <= little.waiting_bytes < 400 * MIB // 8


def test_the_destinations_of_a_node_share_what_may_wait(tmp_path, monkeypatch):
    limits = {}

    class Files:
        def __init__(self, directory, job, number):
            self.number = number

        def complete_chunks(self):
            return []

        def limit_waiting(self, write_bytes, max_bytes):
            limits[self.number] = write_bytes, max_bytes

    monkeypatch.setattr(_native, "PartitionFiles", Files)
    writer = Writer("ab" * 16, shape={"waiting_bytes": 60 * MIB}, settings=Settings(write_size="1MiB"))
    for number, share in enumerate((60, 30, 20)):
        assert writer.open(number, str(tmp_path))[1] is None
        assert limits == dict.fromkeys(range(number + 1), (MIB, share * MIB))
    Writer("ab" * 16).open(7, str(tmp_path))
    assert limits[7] == (4 * MIB, memory.WAITING_BYTES_MIN)


def test_the_setting_that_needs_more_memory_is_named():
    def shape(transport="direct", **more):
        return memory.shape_of(10**9, 4, 480 * MIB, 80 * MIB, 1, None, settings=Settings(**more), transport=transport)

    with pytest.raises(errors.MemoryLimit, match=r"or less \(batch=\)") as caught:
        shape(batch="64MiB")
    # With so much it works.
    enough = caught.value.needed
    memory.shape_of(10**9, 4, enough + 200 * MIB, 80 * MIB, 1, None, settings=Settings(batch="64MiB"))
    with pytest.raises(errors.MemoryLimit, match=r"or less \(write_depth=\)"):
        shape(write_depth=64)
    with pytest.raises(errors.MemoryLimit, match=r"or less \(write_memory=\)"):
        shape(write_memory="128MiB")
    with pytest.raises(errors.MemoryLimit, match=r"or less \(read_size=\)"):
        shape(read_size="32MiB")
    with pytest.raises(errors.MemoryLimit, match=r"batch=16\.8 MB: an object store (.|\n)*smaller batch") as caught:
        shape("ray", batch="16MiB")
    assert caught.value.needed > 80 * MIB
    shape("ray", batch="8MiB")
    with pytest.raises(errors.MemoryLimit) as caught:
        memory.shape_of(10**9, 4, 200 * MIB, 80 * MIB, 1, None)
    assert "setting" not in str(caught.value)


# ---------------------------------------------------------------- what they change


def mapped(directory, settings):
    """A mapper of a chunk of 2 MB, and the calls in which it read it: the fewest of three times, as threads of other
    tests in this process read, too."""
    ascot.gen(20_000, to=directory / "in")
    options = jobs.Request([directory / "in"], RECORDS, None, False, {}).options
    shape = {"chunk_bytes": 4 * MIB, "batch_bytes": settings.batch or 4 * MIB}
    mapper = actors.RecordMapper(options, _native.uniform_bounds(options, 4), JOB, shape, settings.read_size)

    def calls():
        with open("/proc/self/io") as file:
            return int(next(line.split()[1] for line in file if line.startswith("syscr")))

    taken = []
    for _ in range(3):
        before = calls()
        native = mapper.read(manifest.spans_of([(str(directory / "in"), 2_000_000)], 4 * MIB, 100)[0].to_native())
        taken.append(calls() - before)
    return native, min(taken)


def test_a_worker_reads_and_sends_pieces_of_the_sizes_that_are_set(tmp_path):
    usual, few = mapped(tmp_path, Settings())
    small, many = mapped(tmp_path, Settings(read_size="64KiB", batch="100KiB"))
    assert few < 10 and 30 < many < 60, (few, many)
    assert (usual.batches([0, 1, 2, 3]), small.batches([0, 1, 2, 3])) == (1, 19)
    # The records of a partition do not depend on it.
    whole = batch_of(usual, 0, 0, [0, 1, 2, 3], 0, 1)
    pieces = b"".join(batch_of(small, 0, 0, [0, 1, 2, 3], number, 19) for number in range(19))
    assert len(pieces) - len(whole) < 19 * 200


def test_functions_get_batches_of_the_size_that_is_read(tmp_path):
    def blocks(settings):
        ascot.gen(20_000, to=tmp_path / "in")
        options = jobs.Request([tmp_path / "in"], RECORDS, None, False, {}).options
        seen = []
        both = functions.Functions(lambda batch: seen.append(batch.num_rows) or [], list, None, None)
        shape = {"chunk_bytes": 4 * MIB, "batch_bytes": MIB, "sort_bytes": 64 * MIB, "partitions": 1}
        mapper = functions.PairMapper(options, both, JOB, shape, settings.read_size)
        span = manifest.spans_of([(str(tmp_path / "in"), 2_000_000)], 4 * MIB, 100)[0]
        assert list(mapper.run(0, span.to_native(), [(0, [0])], set()))
        assert sum(seen) == 20_000
        return max(seen)

    assert blocks(Settings()) == MIB // 100 and blocks(Settings(read_size="64KiB")) == 64 * KIB // 100


def test_calls_of_ray_take_no_small_batches():
    check_use(Settings(batch="64KiB"), "direct", "push", None)
    check_use(Settings(batch="128KiB"), "ray", "push", None)
    with pytest.raises(errors.InvalidRequest, match=r"batch=65536: (.|\n)*at least 128 KiB, or transport='direct'"):
        check_use(Settings(batch="64KiB"), "ray", "push", None)


def test_batches_ahead_and_connections_are_those_of_the_transport(monkeypatch):
    made = []
    monkeypatch.setattr(_native, "BatchSender", lambda *given: made.append(given))
    job = {"shape": {"in_flight": 8}, "secret": bytes(32), "transport": "direct"}
    transport.transport_of({**job, "settings": Settings(ahead=5, connections=7).to_json()})
    transport.transport_of(job)
    assert made == [(bytes(32), 5, 7), (bytes(32), 2, 64)]


def test_calls_of_ray_are_as_far_ahead_as_is_set():
    running, most = set(), []

    def append(destination, batch):
        running.add(batch)
        most.append(len(running))
        return batch

    class Ray:
        exceptions = SimpleNamespace(RayError=ConnectionError)

        def get(self, answer):
            running.remove(answer)
            return True, None

    writer = SimpleNamespace(append=SimpleNamespace(remote=append))
    mapper = SimpleNamespace(run=lambda *_: iter([(0, b"%d" % number) for number in range(20)]))
    for ahead in (1, 5):
        calls = transport.RayCalls(16, ahead)
        calls._ray = Ray()
        most.clear()
        sent = calls.send(mapper, 0, {}, [(0, [0], writer)], lambda: None)
        assert (max(most), sent.failed) == (ahead, {})


def test_a_core_stays_free_on_every_node(disk, monkeypatch):
    job, world = cluster_at_scale.described_job(disk, 20e9, 3)
    world.nodes[1].shape = {**world.nodes[1].shape, "CPU": 3}
    job["settings"] = Settings(spare_cores=4).to_json()
    ray = virtual_ray.VirtualRay(world)
    made = fleet.Fleet(ray, discover(ray), job, None)
    made.start([cluster_at_scale.FILE_BYTES] * len(job["inputs"]))
    cpus = cluster_at_scale.MACHINES["cloudsort"].cpus
    assert [len(node.workers) for node in made.nodes] == [cpus - 4, 1, cpus - 4]


def test_a_new_job_has_its_settings_and_its_workers(disk, monkeypatch):
    ray = SimpleNamespace()
    node = SimpleNamespace(cpus=8, store=80 * MIB, memory=16 << 30, name="n")
    monkeypatch.setattr(jobs, "connected", lambda address: nullcontext(ray))
    monkeypatch.setattr(jobs, "discover", lambda _: [node] * 4)
    monkeypatch.setattr(jobs, "_run", lambda attempt: attempt.described)
    ascot.gen(1000, to=disk / "in")
    settings = Settings(spare_cores=3, batch="8MiB", ahead=4)
    options = {"layout": RECORDS, "memory_per_node": "8GiB"}
    described = ascot.cluster.sort(disk / "in", disk / "out", settings=settings, job=disk / "job", **options)
    assert described["shape"]["workers"] == 5 and described["shape"]["batch_bytes"] == 8 * MIB
    stored = json.loads((disk / "job" / "job.json").read_text())
    assert settings_of(stored) == settings
    described = ascot.cluster.sort(disk / "in", disk / "out", job=disk / "other", **options)
    assert described["shape"]["workers"] == 8


@pytest.mark.cluster(nodes=PAIR)
def test_a_sort_with_other_settings_has_the_same_bytes(cluster, disk):
    ascot.gen(60_000, to=disk / "a")
    settings = Settings(
        batch="64KiB", ahead=1, connections=1, read_size="64KiB", write_size="64KiB", write_depth=1, spare_cores=1,
        write_memory="1MiB",
    )
    done = cluster_sort(disk, [disk / "a"], partitions=12, settings=settings)
    assert_same(cluster, disk, done, [disk / "a"], layout=RECORDS)
    assert done.report.repeated_batches == 0 and done.report.mapped_again_bytes == 0
