"""Pieces of the cluster package without Ray: files that are left, memory, space, attempts, parts, job directories."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from types import SimpleNamespace

import ascot
import ascot.cluster
import pytest
from ascot import _native, errors
from ascot.cluster import (
    actors,
    attempts,
    fleet,
    functions,
    jobs,
    live,
    manifest,
    memory,
    nodes,
    parts,
    records,
    registry,
    sampling,
    spills,
)
from ascot.cluster.writer import Writer
from ray_machines import MIB, RECORDS, batch_of, wait_until

JOB = "ab" * 16


def writer_with_batches(directory, number=0):
    """A writer with a batch in a destination."""
    ascot.gen(1000, to=directory / "records")
    options = jobs.Request([directory / "records"], RECORDS, None, False, {}).options
    bounds = _native.uniform_bounds(options, 4)
    mapper = _native.ChunkMapper(options, bounds, bytes.fromhex(JOB), 4 * MIB, 200_000)
    mapper.map(manifest.spans_of([(str(directory / "records"), 100_000)], MIB, 100)[0].to_native())
    place = str(directory / f"ascot-cluster-{JOB}" / f"n-{number}")
    writer = Writer(JOB)
    assert writer.open(number, place)[1] is None
    count = mapper.batches([0, 1, 2, 3])
    for at in range(count):
        batch = batch_of(mapper, 0, number, [0, 1, 2, 3], at, count)
        assert writer.append(number, batch) == (True, None)
    # One process at a time may have a destination open.
    writer._open.clear()
    return place


# ---------------------------------------------------------------- what is left on nodes


@pytest.mark.parametrize("content", [b"", bytes(200), b"x" * 64])
def test_a_destination_is_removed_although_its_log_is_damaged(tmp_path, content):
    place = writer_with_batches(tmp_path)
    assert len(os.listdir(place)) == 5
    with open(os.path.join(place, "batches"), "wb") as file:
        file.write(content)
    writer = Writer(JOB)
    # A log without bytes is that of a destination without batches.
    assert isinstance(writer.open(0, place)[1], errors.Damaged) == bool(content)
    assert writer.clean([(0, place)]) == (None, None)
    assert os.listdir(tmp_path) == ["records"]


def test_a_directory_that_is_none_of_the_job_stays(tmp_path):
    place = tmp_path / "mine" / "n-0"
    place.mkdir(parents=True)
    (place / "batches").write_bytes(b"mine")
    (place / "partition-00000").write_bytes(b"mine")
    assert isinstance(Writer(JOB).remove(0, str(place))[1], errors.Damaged)
    assert sorted(os.listdir(place)) == ["batches", "partition-00000"]


class Machine:
    """A node whose writer gives an answer, or is gone."""

    def __init__(self, name, answer):
        self.name, self.given = name, answer
        self.writer = SimpleNamespace(clean=SimpleNamespace(remote=lambda places: None))

    def place_writer(self, job, shuffle):
        pass

    def answer(self, call, seconds):
        if self.given is None:
            raise ConnectionError("gone")
        return None, self.given if isinstance(self.given, Exception) else None

    def end(self):
        self.given = "ended"


def job_to_remove(disk, monkeypatch, *answers):
    machines = [Machine(f"n{number}", answer) for number, answer in enumerate(answers)]
    described = {"job": JOB, "shuffle": "push", "address": "auto", "staging": str(disk / ".out.1")}
    manifest.JobDirectory.create(str(disk / "job"), described).close()
    ray = SimpleNamespace(exceptions=SimpleNamespace(RayError=ConnectionError))
    monkeypatch.setattr(jobs, "connected", lambda address: nullcontext(ray))
    monkeypatch.setattr(jobs, "discover", lambda _: machines)
    return machines


def test_a_job_is_removed_although_the_disk_of_a_node_is_broken(disk, monkeypatch):
    broken = errors.FileError("d/batches: Input/output error")
    machines = job_to_remove(disk, monkeypatch, "", broken, "")
    with pytest.raises(errors.FileError, match=rf"node n1: d/batches: Input/output(.|\n)*ascot-cluster-{JOB}"):
        ascot.cluster.remove(disk / "job")
    assert [one.given for one in machines] == ["ended"] * 3 and os.listdir(disk) == []


def test_a_job_stays_while_a_node_does_not_answer(disk, monkeypatch):
    machines = job_to_remove(disk, monkeypatch, None, "", None)
    with pytest.raises(errors.AscotError, match=r"n0 does not answer.*n2 does not answer(.|\n)*remove the job again"):
        ascot.cluster.remove(disk / "job")
    assert [one.given for one in machines] == ["ended"] * 3 and "job.json" in os.listdir(disk / "job")


# ---------------------------------------------------------------- workers


def settings(**more):
    shape = {"in_flight": 2, "sort_bytes": 64 * MIB, "batch_bytes": MIB, "chunk_bytes": MIB, "partitions": 1}
    usual = {"job": JOB, "transport": "ray", "shape": shape, "views": False, "usual_temp": "/tmp"}
    return {**usual, "options": {"temp": [], "inputs": []}, **more}


def test_a_worker_that_was_given_up_does_not_break_the_part_of_another_one(tmp_path):
    calls = []

    def reduce(key, values):
        # In the middle of a part, a worker that hung ends the same one.
        if not calls:
            calls.append(key)
            reduce_part()
        yield key + b"\n"

    def reduce_part():
        worker = actors.Worker(settings(), None)
        worker._functions = functions.Functions(lambda batch: (), reduce, None, None)
        options = {"output": str(tmp_path / "part-00000"), "temp": [str(tmp_path)], "records": {}}
        return worker._reduce(options, 0, write_pairs)

    def write_pairs(options):
        head = functions.HEAD.pack(functions.HEAD.size // 2 + 4, 3)
        with open(options["output"], "wb") as file:
            file.write(head + b"keyv")
        return {}

    assert reduce_part()["file_bytes"] == 4
    assert calls == [b"key"] and os.listdir(tmp_path) == ["part-00000"]
    assert (tmp_path / "part-00000").read_bytes() == b"key\n"


def test_the_peak_of_memory_has_what_native_code_uses_meanwhile(tmp_path, monkeypatch):
    def sort_partition(*_):
        held = bytearray(b"x") * (200 * MIB)
        time.sleep(4 * actors.PEAK_SECONDS)
        del held
        return ['{"result": {"file_bytes": 0}}']

    monkeypatch.setattr(_native, "sort_partition", sort_partition)
    worker = actors.Worker(settings(), None)
    before = worker.end()
    options = {"temp": [str(tmp_path)], "output": str(tmp_path / "out")}
    assert worker.sort(options, {"directory": str(tmp_path), "number": 0}, 0, 1)[1] is None
    assert worker.end() >= before + 150 * MIB


def test_a_process_that_is_stopped_does_not_run_and_others_do():
    program = "import time, threading\nwhile True: time.sleep(0.001)"
    with (
        subprocess.Popen([sys.executable, "-c", program]) as stopped,
        subprocess.Popen([sys.executable, "-c", program]) as running,
    ):
        try:
            sampler = sampling.Sampler("127.0.0.1")
            sampler.watch([stopped.pid, running.pid])
            os.kill(stopped.pid, signal.SIGSTOP)
            wait_until(lambda: stopped.pid in sampler.still())
            assert running.pid not in sampler.still()
            stopped.kill()
            # One that has ended is not one that hangs.
            wait_until(lambda: stopped.pid not in sampler.still())
            sampler.stop()
        finally:
            stopped.kill()
            running.kill()


# ---------------------------------------------------------------- memory and space


def node(name, megabytes, store=80):
    resources = {"CPU": 1, "memory": megabytes * MIB, "object_store_memory": store * MIB}
    return nodes.Node(None, {"NodeID": name * 8, "NodeManagerAddress": name, "Resources": resources})


def test_more_memory_than_a_node_has_is_refused_with_its_name():
    machines = [node("big", 8000), node("small", 500), node("mid", 4000)]
    jobs.check_memory(machines, 580 * MIB)
    with pytest.raises(
        errors.MemoryLimit, match=r"node small \(smallsma\) has 608 MB (.|\n)*memory_per_node="
    ) as caught:
        jobs.check_memory(machines, 581 * MIB)
    assert (caught.value.given, caught.value.needed) == (581 * MIB, 580 * MIB)
    # A node without a word about its memory is taken to have enough.
    jobs.check_memory([node("quiet", 0)], 1 << 50)


@pytest.mark.parametrize("count", [1, 4])
def test_new_nodes_on_this_machine_share_its_memory(count, monkeypatch):
    given = []

    class Cluster:
        def add_node(self, *, memory, object_store_memory, **_):
            given.append(memory + object_store_memory)

    monkeypatch.setitem(sys.modules, "ray.cluster_utils", SimpleNamespace(Cluster=Cluster))
    nodes._local_cluster(count)
    machine = _native.memory_bytes("100%")
    assert len(given) == count and 0.99 * machine <= sum(given) <= machine


def test_more_partitions_than_there_may_be_are_refused():
    assert memory.shape_of(10**9, 4, 8 << 30, 80 * MIB, 4, 32_768).partitions == 32_768
    with pytest.raises(errors.InvalidRequest, match="32,768 partitions at most"):
        memory.shape_of(10**9, 4, 8 << 30, 80 * MIB, 4, 32_769)


def test_space_that_nodes_share_counts_once():
    hosts = [fleet.Volume(f"n{number}", 0, f"h{number}", 7, 100) for number in range(10)]
    own = {f"n{number}": [[f"seen-by-n{number}-0"]] for number in range(10)}
    assert fleet.free_bytes(hosts, own) == 1000
    everyone = sorted(f"seen-by-n{number}-0" for number in range(10))
    assert fleet.free_bytes(hosts, {one.node: [everyone] for one in hosts}) == 100
    # Nodes of one host, with directories of their own on its volume.
    assert fleet.free_bytes([one._replace(host="h") for one in hosts], own) == 100
    # A second directory on each node, which is its own.
    more = hosts + [one._replace(place=1, device=8) for one in hosts]
    assert fleet.free_bytes(more, {one.node: [everyone, [f"seen-by-{one.node}-1"]] for one in hosts}) == 1100


def test_nodes_see_the_marks_of_each_other(tmp_path):
    shared = {"temp": [str(tmp_path / "shared")], "inputs": []}
    workers = [actors.Worker(settings(options=shared), None) for _ in range(2)]
    workers += [actors.Worker(settings(options={**shared, "temp": [str(tmp_path / "own")]}), None)]
    for number, worker in enumerate(workers):
        worker.mark(str(number))
    assert [worker.marks() for worker in workers] == [[["seen-by-0-0", "seen-by-1-0"]]] * 2 + [[["seen-by-2-0"]]]
    for number, worker in enumerate(workers):
        worker.unmark(str(number))
    assert not os.listdir(tmp_path / "shared") and not os.listdir(tmp_path / "own")


# ---------------------------------------------------------------- attempts


def test_what_keeps_failing_is_named_with_its_place_and_the_last_reason():
    spans = manifest.spans_of([("/in/a", 100), ("/in/b", 100)], 50, 10)
    made = attempts.Attempts(spans)
    for _ in range(attempts.FAILURES_MAX - 1):
        made.failed("chunk", 3, "the connection to node n: refused", is_connection=True)
        # What is made again elsewhere is no failure.
        made.damaged("chunk", 3, "batches were damaged")
        made.damaged("partition", 3, "zeros")
    with pytest.raises(errors.AscotError) as caught:
        made.failed("chunk", 3, "its process ended")
    assert str(caught.value).startswith("chunk 3 (/in/b, bytes 50 to 100) failed 6 times: its process ended\n")
    assert "enough memory" in str(caught.value) and "transport" not in str(caught.value)
    assert made.count("partition", 3) == 5 and made.count("chunk", 3) == 11
    with pytest.raises(errors.AscotError, match=r"partition 1 failed 60 times: zeros\n  look at the disks"):
        for _ in range(60):
            made.damaged("partition", 1, "zeros")


# ---------------------------------------------------------------- parts


def parts_of(disk, kind="sort", sizes=(3, 4)):
    """A job whose parts of these sizes are in the journal."""
    job = {"job": JOB, "staging": str(disk / ".out.1"), "output": str(disk / "out"), "kind": kind}
    opened, done = manifest.JobDirectory.create(str(disk / "job"), job), manifest.Progress()
    for number, size in enumerate(sizes):
        event = {"number": number, "records": 1, "bytes": size, "sum": "01", "file_bytes": size}
        done.take(opened.note(event="part", **event))
        chunk = {"number": number, "records": 1, "bytes": size, "sum": "01", "destinations": []}
        done.take(opened.note(event="chunk", **chunk))
    return opened, done, parts.Parts(opened, job, done)


def fill(directory, *sizes):
    directory.mkdir()
    for number, size in enumerate(sizes):
        (directory / f"part-{number:05}").write_bytes(bytes(size))


def test_parts_whose_directory_is_gone_are_made_again(disk):
    _, done, found = parts_of(disk)
    found.check()
    assert done.parts == {} and os.listdir(disk / ".out.1") == []


def test_parts_in_an_output_of_others_are_made_again(disk):
    fill(disk / "out", 3, 5)
    _, done, found = parts_of(disk)
    found.check()
    assert done.parts == {} and (disk / ".out.1").is_dir()


def test_an_output_that_has_its_name_already_is_committed(disk):
    fill(disk / "out", 3, 4)
    _, done, found = parts_of(disk)
    found.check()
    assert sorted(done.parts) == [0, 1] and not (disk / ".out.1").exists()
    found.commit()
    assert done.committed


@pytest.mark.parametrize("is_moved", [True, False], ids=["moved", "another length"])
def test_a_complete_job_whose_output_changed_is_not_resumed(is_moved, disk):
    """Its driver was killed before it removed the files of the job."""
    fill(disk / ".out.1", 3, 4)
    opened, _, found = parts_of(disk)
    found.commit()
    found.check_output(opened.path)
    opened.close()
    if is_moved:
        (disk / "out").rename(disk / "elsewhere")
    else:
        (disk / "out" / "part-00000").write_bytes(b"")
    with pytest.raises(errors.FileMissing, match=r"out/part-00000: the job was complete, (.|\n)*remove\('.*/job'\)"):
        jobs.resume(disk / "job")
    assert (disk / "job").is_dir()


def test_functions_that_give_other_pairs_are_told(disk):
    fill(disk / ".out.1", 3, 4)
    _, done, found = parts_of(disk, "map_reduce")
    done.chunk_sums[0] = manifest.Sum(2, 3, 9)
    with pytest.raises(
        errors.InvalidRequest, match=r"functions gave different pairs(.|\n)*in the same order"
    ) as caught:
        found.commit()
    assert "report" not in str(caught.value) and "ascot.cluster.remove" in str(caught.value)


# ---------------------------------------------------------------- the job directory


def test_a_directory_of_a_driver_that_was_killed_at_once_counts_as_empty(disk):
    (disk / "job").mkdir()
    (disk / "job" / "lock").touch()
    (disk / "job" / "job.json.new").write_text("{")
    opened = manifest.JobDirectory.create(str(disk / "job"), {"job": JOB})
    (disk / "job" / "bounds.new").write_text("")
    opened.remove()
    assert os.listdir(disk) == []


def test_storage_without_locks_is_told(disk, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(errors.FileError, match=r"cannot be locked: No locks available\n.*job=") as caught:
        manifest.JobDirectory.create(str(disk / "job"), {"job": JOB})
    assert caught.value.errno == errno.ENOLCK


def test_the_name_of_the_journal_is_durable(disk, monkeypatch):
    opened = manifest.JobDirectory.create(str(disk / "job"), {"job": JOB})
    synced = []
    monkeypatch.setattr(manifest, "sync_directory", lambda path: synced.append(os.listdir(path)))
    opened.note(event="committed")
    opened.note(event="committed")
    assert len(synced) == 1 and "journal" in synced[0]


def test_a_damaged_job_tells_what_else_is_left(disk):
    manifest.JobDirectory.create(str(disk / "job"), {"job": JOB}).close()
    (disk / "job" / "job.json").write_text("[]")
    with pytest.raises(errors.Damaged, match=r"beside the output(.|\n)*ascot-cluster-"):
        manifest.JobDirectory.open(str(disk / "job"))


# ---------------------------------------------------------------- the list of jobs


@pytest.mark.parametrize(
    "field", [{"began": "x"}, {"began": None}, {"state": 7}, {"log": 1}, {"report": {}}, {"directory": []}]
)
def test_a_malformed_entry_of_a_job_harms_no_other(disk, monkeypatch, field):
    monkeypatch.setenv("XDG_STATE_HOME", str(disk))
    whole = {"kind": "sort", "directory": "d", "output": "o", "state": "finished", "error": "", "began": 1.0,
             "log": [], "report": None}  # fmt: skip
    registry.keep("a" * 32, whole)
    entry = {"version": 1, "job": "b" * 32, **whole, **field}
    (disk / "ascot" / "cluster" / ("b" * 32 + ".json")).write_text(json.dumps(entry))
    (disk / "ascot" / "cluster" / ("c" * 32 + ".json")).write_text(json.dumps({"version": 1, "job": "c" * 32}))
    # A job that ends looks at all entries.
    registry.keep("d" * 32, whole)
    assert sorted(one["job"][0] for one in registry.entries()) == ["a", "d"]
    assert len(live.jobs([])) == 2
    live.list_parts([])


# ---------------------------------------------------------------- the cluster


def test_another_cluster_than_the_connected_one_is_refused(monkeypatch):
    context = SimpleNamespace(gcs_address="127.0.0.1:6379")
    fake = SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: context)
    monkeypatch.setattr(nodes, "load_ray", lambda: fake)
    for address in ("auto", "127.0.0.1:6379", "localhost:6379", "ray://10.0.0.1:10001"):
        with nodes.connected(address) as found:
            assert found is fake
    for address in ("127.0.0.1:6380", "10.0.0.1:6379"):
        with (
            pytest.raises(errors.InvalidRequest, match=r"connected to the cluster at 127\.0\.0\.1:6379 already"),
            nodes.connected(address),
        ):
            raise AssertionError


@pytest.mark.parametrize(("kind", "more"), [("sort", ""), ("map_reduce", ", with its functions (map=, reduce=)")])
def test_the_call_that_continues_a_job_has_the_functions_that_it_needs(kind, more):
    error = jobs.resumable(errors.AscotError("no node is left"), "/a b.job", kind)
    assert str(error) == (
        f"no node is left\n  the job is kept: ascot.cluster.resume('/a b.job') continues it{more}; "
        "ascot.cluster.remove('/a b.job') removes it"
    )
    assert error.directory == "/a b.job"


def test_a_cluster_that_is_not_found_is_told_without_the_advice_of_ray(monkeypatch):
    def init(**_):
        raise ConnectionError(
            "Could not find any running Ray instance. Please specify the one to connect to by setting `--address` "
            "flag or `RAY_ADDRESS` environment variable."
        )

    monkeypatch.setattr(nodes, "load_ray", lambda: SimpleNamespace(is_initialized=lambda: False, init=init))
    with pytest.raises(errors.InvalidRequest) as caught, nodes.connected("auto"):
        raise AssertionError
    assert str(caught.value) == (
        "address='auto': no cluster of Ray is found there: Could not find any running Ray instance\n"
        "  start one (ray start --head), name its address, or give 'local:4' for one on this machine"
    )


def test_an_unfinished_file_of_a_killed_process_is_no_part_of_generated_records(tmp_path, monkeypatch):
    def spread(count, call, report, what):
        for at in range(count):
            # The name of a file that `ascot.gen` has begun.
            task = call(SimpleNamespace(run=SimpleNamespace(remote=lambda _, task: task)), at)
            directory, name = os.path.split(task["output"])
            with open(os.path.join(directory, f".{name}.ascot-{at:016x}.tmp"), "wb") as begun:
                begun.write(b"half a record")
            yield call(SimpleNamespace(run=SimpleNamespace(remote=lambda work, task: work(task))), at)

    made = SimpleNamespace(places=[None] * 3, spread=lambda *arguments: list(spread(*arguments)), stop=lambda: None)
    monkeypatch.setattr(records, "helpers", lambda *_: nullcontext(made))
    assert records.gen(1000, to=tmp_path / "in", progress=None) == 100_000
    assert sorted(os.listdir(tmp_path / "in")) == ["part-00000", "part-00001", "part-00002"]


# ---------------------------------------------------------------- a merge whose source has a fault


@pytest.mark.parametrize("reduce_input", ["file", "merged"])
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_partition_that_is_not_whole_gives_no_part(tmp_path, monkeypatch, reduce_input, is_whole):
    monkeypatch.setattr(spills, "import_module", lambda _: SimpleNamespace(get=lambda answer: answer))
    reduced = []

    def reduce(key, values):
        reduced.append(key)
        return b"%s %d\n" % (key, len(list(values)))

    # Batches are of whole pairs: one that is missing leaves no pair in two.
    shape = {"sort_bytes": 64 * MIB, "batch_bytes": 4096 * (8 + 4 + 5 + 11), "in_flight": 2}
    own = {"reduce_input": reduce_input, "shape": shape, "transport": "ray", "secret": b"", "job": JOB}
    worker = spills.SpillWorker(own, b"")
    worker._functions = functions.Functions(None, reduce, None, None)
    heads = [
        functions.HEAD.pack(4 + 4 + 5 + 11, 4 + 5) + spills.PARTITION.pack(3) + b"%05d" % at for at in range(100_000)
    ]
    content = b"".join(head + b"value-value" for head in heads)

    def fetch(group, partition, offset, size):
        if offset > 0 and not is_whole:
            return None, errors.Damaged("run-1: damaged", file="run-1")
        return content[offset : offset + size], None

    server = SimpleNamespace(fetch=SimpleNamespace(remote=fetch))
    options = jobs.Request([tmp_path / "none"], "lines", None, False, {}, "inputs").options
    options |= {"temp": [str(tmp_path / "spills")], "output": str(tmp_path / "part")}
    found = worker._merge(options, [spills.Group("0-0", server, None)], 3)
    assert os.listdir(tmp_path / "spills") == []
    if is_whole:
        assert len(reduced) == found["records_out"] == 100_000
        assert (tmp_path / "part").stat().st_size == found["file_bytes"] == 100_000 * 8
        return
    ((group, fault),) = found["faults"]
    assert group == "0-0" and isinstance(fault, errors.Damaged)
    assert os.listdir(tmp_path) == ["spills"]
    # Pairs of a file are complete before functions get them.
    assert reduce_input == "merged" or reduced == []
