"""Sorts on a cluster: real nodes of Ray on this machine. The result has the bytes of a sort on one machine."""

import os
import random
import shutil
import subprocess
import sys

import ascot
import ascot.cluster
import pytest
from ascot import _native, errors
from ascot.cluster import fleet, jobs, manifest, memory
from ray_machines import MIB, PAIR, RECORDS, At, assert_same, batch_of, cluster_sort

# The nodes share two processors; other load would make them seem lost.
pytestmark = pytest.mark.cluster(nodes=PAIR)


def gen(path, count, **options):
    ascot.gen(count, to=path, **options)
    return path


# ---------------------------------------------------------------- equal to a sort on one machine


@pytest.mark.parametrize(
    ("kind", "transport"), [("uniform", "direct"), ("uniform", "ray"), ("skewed", "direct"), ("all equal", "direct")]
)
def test_parts_are_the_sort_of_one_machine(cluster, disk, kind, transport):
    inputs = [gen(disk / "a", 40_000, skew=kind == "skewed"), gen(disk / "b", 25_000, start=40_000)]
    if kind == "all equal":
        records = [b"same key!!%090d" % number for number in range(65_000)]
        (disk / "a").write_bytes(b"".join(records[:40_000]))
        (disk / "b").write_bytes(b"".join(records[40_000:]))
    done = cluster_sort(disk, inputs, partitions=12, transport=transport)
    assert_same(cluster, disk, done, inputs, layout=RECORDS)
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
    assert_same(cluster, disk, done, disk / "text", layout=layout)
    shutil.rmtree(disk / "out")
    done = cluster_sort(disk, disk / "text", layout=layout, stable=True, reverse=True)
    assert_same(cluster, disk, done, disk / "text", layout=layout, stable=True, reverse=True)


def test_numbers_and_uniform_keys(cluster, disk):
    dice = random.Random(8)
    (disk / "numbers").write_bytes(b"".join(dice.randbytes(8) for _ in range(200_000)))
    done = cluster_sort(disk, disk / "numbers", layout="i64", uniform=True, partitions=5)
    assert_same(cluster, disk, done, disk / "numbers", layout="i64")
    assert [phase.name for phase in done.report.phases] == ["map and shuffle", "sort and reduce"]
    shutil.rmtree(disk / "out")
    done = cluster_sort(disk, disk / "numbers", layout="f32-be", reverse=True)
    assert_same(cluster, disk, done, disk / "numbers", layout="f32-be", reverse=True)
    assert done.report.phases[0].name == "sample"


def test_empty_inputs_and_more_partitions_than_records(cluster, disk):
    (disk / "none").write_bytes(b"")
    (disk / "few").write_bytes(b"b\nc\na")
    done = cluster_sort(disk, [disk / "none", disk / "few"], layout="lines", partitions=9)
    assert_same(cluster, disk, done, [disk / "none", disk / "few"], layout="lines")
    shutil.rmtree(disk / "out")
    done = cluster_sort(disk, disk / "none", layout="lines")
    assert_same(cluster, disk, done, disk / "none", layout="lines")


def test_partitions_larger_than_memory_are_sorted_out_of_core(cluster, disk):
    # A worker has about 100 MiB for a partition; all of it is one.
    gen(disk / "a", 1_500_000)
    done = cluster_sort(disk, disk / "a", partitions=1)
    assert_same(cluster, disk, done, disk / "a", layout=RECORDS)
    report = done.report
    assert report.peak_memory_bytes <= report.memory_per_node == 480 * MIB
    text = str(report)
    assert "bound by" in text and "map and shuffle" in text and "sort and reduce" in text
    for phase in report.phases:
        assert phase.seconds > 0 and len(phase.nodes) == PAIR and phase.bound_by in text
    assert sum(node.bytes for node in report.phases[1].nodes) == 150_000_000


def test_several_directories_of_a_node_are_used_and_emptied(cluster, disk):
    gen(disk / "a", 100_000)
    places, seen = [disk / "temp-1", disk / "temp-2"], []

    def look():
        seen.extend(len(list(place.rglob("partition-*"))) for place in places)

    temp = [str(place) for place in places]
    done = cluster_sort(disk, disk / "a", partitions=16, temp=temp, progress=At("sort and reduce", 0, look))
    assert_same(cluster, disk, done, disk / "a", layout=RECORDS)
    # Destinations take turns among the directories of all nodes.
    assert len(seen) == 2 and min(seen) >= 4
    assert [os.listdir(place) for place in places] == [[], []]


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
    new = [files.append(batch_of(mapper, 0, 0, [0, 1, 2, 3], number, count)) for number in arrivals]
    assert new == [True, True, False, True, False, True, True, False]
    assert files.nbytes == 100_000 and files.complete_chunks() == [0]


def test_a_batch_for_files_that_lost_their_names_is_refused(disk):
    """What is appended to a volume that was unmounted is lost, although its files are still open."""
    files = _native.PartitionFiles(disk / "d", bytes(16), 0)
    assert files.append(_native.make_batch(bytes(16), 0, 0, 0, False, [(0, b"x")]))
    (disk / "d").rename(disk / "gone")
    batch = _native.make_batch(bytes(16), 0, 0, 1, True, [(0, b"y")])
    with pytest.raises(errors.FileMissing, match="d/batches: No such file"):
        files.append(batch)
    # Nor are files of the same name its own.
    (disk / "d").mkdir()
    (disk / "d" / "batches").touch()
    with pytest.raises(errors.FileMissing, match="d/batches: No such file"):
        files.append(batch)
    assert (disk / "gone" / "partition-00000").read_bytes() == b"x"


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
    with pytest.raises(errors.InvalidRequest, match="cannot be found from the middle of a file"):
        cluster_sort(disk, disk / "a", layout=ascot.Prefixed("u32"))
    with pytest.raises(TypeError, match="inputs is a path or a list of paths"):
        cluster_sort(disk, b"bytes")
    with pytest.raises(errors.InvalidRequest, match="uniform"):
        cluster_sort(disk, disk / "a", layout="lines", uniform=True)
    assert sorted(os.listdir(disk)) == ["a", "packed"]


def test_inputs_that_may_not_be_read_are_named_before_work_starts(disk, monkeypatch):
    gen(disk / "a", 10)
    gen(disk / "mine", 10)
    # The user of the tests may read everything.
    monkeypatch.setattr(os, "access", lambda path, _: os.path.basename(path) != "mine")
    with pytest.raises(PermissionError, match=r"mine: may not be read\n  nothing was started"):
        cluster_sort(disk, [disk / "a", disk / "mine"], address="10.0.0.1:1")
    assert sorted(os.listdir(disk)) == ["a", "mine"]


def test_outputs_and_job_directories_of_others_are_refused(cluster, disk):
    gen(disk / "a", 10)
    (disk / "out").mkdir()
    (disk / "out" / "mine").write_text("mine")
    with pytest.raises(FileExistsError, match="not an empty directory"):
        cluster_sort(disk, disk / "a")
    (disk / "out" / "mine").unlink()
    (disk / "job").mkdir()
    (disk / "job" / "mine").write_text("mine")
    # Before a connection, which may take long.
    nowhere = {"address": "127.0.0.1:1"}
    with pytest.raises(FileExistsError, match="cannot become the job directory"):
        cluster_sort(disk, disk / "a", job=disk / "job", **nowhere)
    (disk / "job" / "job.json").write_text("{}")
    with pytest.raises(FileExistsError, match="the directory of another job"):
        cluster_sort(disk, disk / "a", job=disk / "job", **nowhere)
    (disk / "job" / "job.json").unlink()
    with pytest.raises(
        errors.FileError, match=r"a/job: the job directory cannot be made: [^\n]*\n  name another \(job"
    ):
        cluster_sort(disk, disk / "a", job=disk / "a" / "job")
    with pytest.raises(FileNotFoundError, match="no directory of a cluster job"):
        ascot.cluster.resume(disk / "job")
    shutil.copytree(disk / "job", disk / "out.job")
    (disk / "out.job" / "job.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"out: this is the output of a job[^\n]*\n  name /.*/out\.job$"):
        ascot.cluster.resume(disk / "out")
    shutil.rmtree(disk / "out.job")
    done = cluster_sort(disk, disk / "a")
    assert_same(cluster, disk, done, disk / "a", layout=RECORDS)


@pytest.mark.parametrize(
    ("shuffle", "mebibytes", "remedy"),
    [("push", 3, r"\(read_size="), ("pull", 12, r"more memory \(memory_per_node=.* shuffle='push' and ")],
)
def test_a_record_longer_than_what_a_worker_takes_is_said_with_the_remedy(cluster, disk, shuffle, mebibytes, remedy):
    (disk / "text").write_bytes(b"b\n" + b"x" * mebibytes * MIB + b"\na\n")
    told = rf"text: the record at offset 2 is longer [^\n]*\n[^\n]*{remedy}"
    with pytest.raises(errors.MemoryLimit, match=told) as caught:
        cluster_sort(disk, disk / "text", layout="lines", shuffle=shuffle)
    assert " memory=" not in str(caught.value) and "resume" not in str(caught.value)
    # The record would be too long each time.
    assert os.listdir(disk) == ["text"] and cluster.left_over() == [] and cluster.temporary_directories() == []
    settings = ascot.cluster.Settings(read_size="16MiB")
    done = cluster_sort(disk, disk / "text", layout="lines", settings=settings, memory_per_node="600MiB")
    assert_same(cluster, disk, done, disk / "text", layout="lines")


def test_too_little_memory_or_disk_is_said_with_what_is_needed(cluster, disk, monkeypatch):
    gen(disk / "a", 10)
    with pytest.raises(errors.MemoryLimit, match="need 368 MiB") as caught:
        cluster_sort(disk, disk / "a", memory_per_node="300MiB")
    assert caught.value.needed == 368 * MIB
    with pytest.raises(errors.MemoryLimit, match=r"node 127\..* of memory for Ray, and the job may take 1\.13 PB"):
        cluster_sort(disk, disk / "a", memory_per_node=1 << 50)
    # The output fits, and the data between the passes does not.
    with monkeypatch.context() as patch, pytest.raises(errors.NoSpace, match="temporary files of all nodes") as full:
        patch.setattr(fleet, "free_bytes", lambda *_: 999)
        cluster_sort(disk, disk / "a")
    assert (full.value.needed, full.value.free) == (1000, 999)
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
    assert sorted(os.listdir(disk)) == ["a"] and cluster.left_over() == []


def test_addresses_that_are_no_cluster(disk):
    gen(disk / "a", 10)
    for address in ("local:0", "local:four", "local:1000"):
        with pytest.raises(errors.InvalidRequest, match="local:4"):
            cluster_sort(disk, disk / "a", address=address)


# ---------------------------------------------------------------- without Ray


def test_the_package_needs_no_ray_until_a_job_begins(disk):
    gen(disk / "a", 10)
    program = """if True:
        import sys
        import ascot
        ascot.cluster.sort
        assert "ray" not in sys.modules
        sys.modules["ray"] = None
        try:
            ascot.cluster.sort("a", "out", layout=ascot.Fixed(100, key=slice(0, 10)))
        except ImportError as error:
            assert "pip install 'ascot[cluster]'" in str(error), error
        else:
            raise AssertionError("sorted without Ray")
    """
    done = subprocess.run([sys.executable, "-c", program], cwd=disk, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert os.listdir(disk) == ["a"]


# ---------------------------------------------------------------- parts of it


def test_a_job_directory_has_one_driver_and_survives_a_line_that_is_cut_short(disk):
    opened = manifest.JobDirectory.create(str(disk / "job"), {"job": "00"})
    with pytest.raises(errors.FileError, match="another process"):
        manifest.JobDirectory.open(str(disk / "job"))
    opened.note(event="destination", number=0, node="n", directory="d", partitions=[0, 1])
    opened.note(event="chunk", number=3, destinations=[[0, 0]], records=1, bytes=2, sum="ff")
    opened.close()
    with open(disk / "job" / "journal", "a") as file:
        file.write('{"event":"chunk","number":4,"dest')
    opened, _, done = manifest.JobDirectory.open(str(disk / "job"))
    assert list(done.chunks) == [3] and not done.incomplete and done.chunk_sums[3] == manifest.Sum(1, 2, 255)
    opened.note(event="lost", destinations=[0])
    opened.close()
    opened, _, done = manifest.JobDirectory.open(str(disk / "job"))
    assert done.destinations[0].lost
    opened.close()
    for line in ("[]", '{"event":"chunk"}', '{"event":"lost","destinations":[7]}', "{"):
        with open(disk / "job" / "journal", "w") as file:
            file.write(line + "\n")
        with pytest.raises(errors.Damaged, match="journal: this is not what a job wrote"):
            manifest.JobDirectory.open(str(disk / "job"))
    os.unlink(disk / "job" / "journal")
    for content in ("", "[]", "{}"):
        (disk / "job" / "job.json").write_text(content)
        with pytest.raises(errors.Damaged, match=r"job\.json: this is not what a job wrote"):
            manifest.JobDirectory.open(str(disk / "job"))
    (disk / "job" / "job.json").write_text('{"version": 99}')
    with pytest.raises(errors.InvalidRequest, match="another version of Ascot"):
        manifest.JobDirectory.open(str(disk / "job"))


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
