"""Jobs on a cluster whose inputs and outputs are in an object store: a server of S3 on this machine."""

import errno
import json
import os
import random
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import ascot
import ascot.cluster
import pytest
from ascot import _native, errors, jobs
from ascot.cluster import manifest, nodes, object_files
from ascot.cluster.objects import Stores
from object_store import BUCKET, KEY, SECRET, ObjectStore
from ray_machines import MEMORY, MIB, PAIR, RECORDS, At, kill, processes_of, wait_until
from support import clean_environment, run

OUT = f"s3://{BUCKET}/out"


@pytest.fixture(scope="session")
def server():
    made = ObjectStore()
    yield made
    made.close()


@pytest.fixture
def store(server, disk, monkeypatch):
    """The server with an empty bucket; directories of jobs are on the disk of the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(disk / "state"))
    server.empty()
    yield server
    # Writers of the test may still run.
    server.fault = None


def objects_of(store, names, content, pieces):
    """The content as objects of uneven lengths; their URL."""
    bounds = [0, *sorted(random.Random(5).sample(range(1, len(content)), pieces - 1)), len(content)]
    for number, (start, end) in enumerate(pairwise(bounds)):
        store.put(f"{names}{number:04}", content[start:end])
    return f"s3://{BUCKET}/{names}*"


def generated(disk, count, **options):
    ascot.gen(count, to=disk / "records", **options)
    return (disk / "records").read_bytes()


def cluster_sort(store, inputs, output=OUT, **options):
    usual = {"layout": RECORDS, "memory_per_node": MEMORY, "progress": None, "storage_options": store.options}
    return ascot.cluster.sort(inputs, output, **{**usual, **options})


def assert_sorted(store, disk, done, content, layout=RECORDS):
    """The parts are the sort of one machine, and nothing else is left."""
    (disk / "all").write_bytes(content)
    ascot.sort(disk / "all", to=disk / "alone", layout=layout, memory="64MiB")
    assert b"".join(store.get(part) for part in done.outputs) == (disk / "alone").read_bytes()
    names = [f"/part-{number:05}" for number in range(len(done.outputs))]
    assert store.names("out") == ["/_SUCCESS", *names]
    told = json.loads(store.get(f"{OUT}/_SUCCESS"))
    assert (told["records"], told["checksum"]) == (done.report.records, done.report.checksum)
    assert not list((disk / "state").rglob("*.job"))


# ---------------------------------------------------------------- without a cluster


def files_of(store_options, disk, layout):
    options = jobs.Request([__file__], layout, None, False, {}).options
    record = int(layout.removeprefix("fixed:")) if layout.startswith("fixed") else 1
    shape = {"chunk_bytes": MIB, "sort_bytes": MIB}
    job = {"options": options, "record_bytes": record, "shape": shape, "job": "00" * 16}
    return object_files.ObjectFiles(Stores(store_options), job, lambda: [str(disk)]), options


@pytest.mark.parametrize(("layout", "end"), [("lines", b"\n"), ("lines:0x00", b"\0")])
def test_every_line_of_an_object_is_in_one_chunk(disk, monkeypatch, layout, end):
    # A store in the memory of this process answers thousands of requests in a second.
    url = "memory://lines/text"
    monkeypatch.setattr(object_files, "BLOCK_BYTES", 50)
    monkeypatch.setattr(object_files, "BEYOND_BYTES", 10)
    dice = random.Random(3)
    for ended in (True, False):
        lines = [b"x" * dice.choice([0, 1, 7, 40, 300]) + b"%d" % number for number in range(60)]
        content = end.join(lines) + end * ended
        files, options = files_of({}, disk, layout)
        files._stores.write(url, content)
        version = files._stores.find(url)[0].version
        for chunk_bytes in (len(content), 700, 97, 7):
            found = []
            for span in manifest.spans_of([(url, len(content), version)], chunk_bytes, 1):
                with files.chunk(span.to_native()) as local:
                    assert local["path"] != url
                    blocks = _native.read_chunk({**options, "any_format": True}, local, MIB)
                    found += [block for block, _ in blocks]
                    assert all(span.start <= at < span.end for _, at in blocks)
            assert b"".join(found) == end.join(lines) + end
    # Nothing is left of chunks.
    assert os.listdir(disk) == []


def test_a_chunk_reads_its_range_and_no_more(store, disk):
    content = generated(disk, 30_000)
    url = store.put("in", content)
    files, _ = files_of(store.options, disk, "fixed:100")
    version = files._stores.find(url)[0].version
    span = manifest.spans_of([(url, len(content), version)], MIB, 100)[1]
    store.requests.clear()
    with files.chunk(span.to_native()) as local:
        assert Path(local["path"]).read_bytes()[span.start : span.end] == content[span.start : span.end]
        assert files.fetched == span.bytes
    assert [(method, part) for method, _, part in store.requests] == [
        ("GET", f"bytes={span.start}-{span.end - 1}"), ("HEAD", None)
    ]  # fmt: skip


def test_samples_are_read_from_ranges(store, disk):
    records = 100_000
    content = generated(disk, records)
    url = store.put("in", content)
    files, options = files_of(store.options, disk, "fixed:100")
    version = files._stores.find(url)[0].version
    span = manifest.spans_of([(url, len(content), version)], len(content), 100)[0].to_native()
    found = files.samples(span, 1000, lambda one, some: _native.sample_chunk(options, one, some))
    count = sum(_native.count_partitions(one) - 1 for one in found)
    assert 900 < count < 1100 and files.fetched < 1.1 * MIB
    bounds = _native.choose_bounds(options, found, 8)
    assert _native.count_partitions(bounds) == 8
    # Lines that are longer than a place are sampled, too.
    store.put("long", b"".join(b"%d" % (number % 10) * 100_000 + b"\n" for number in range(400)))
    files, options = files_of(store.options, disk, "lines")
    found = files._stores.find(f"s3://{BUCKET}/long")[0]
    span = manifest.spans_of([found], found.size, 1)[0].to_native()
    found = files.samples(span, 100, lambda one, some: _native.sample_chunk(options, one, some))
    assert sum(_native.count_partitions(one) - 1 for one in found) > 50


def test_a_line_longer_than_the_memory_of_a_chunk_names_its_object(store, disk):
    url = store.put("in", b"a\n" + b"x" * (12 * MIB))
    files, options = files_of(store.options, disk, "lines")
    found = files._stores.find(url)[0]
    span = manifest.spans_of([found], MIB, 1)[0].to_native()
    with pytest.raises(errors.AscotError, match="s3://bucket/in") as failed, files.chunk(span) as local:
        _native.read_chunk(options, local, MIB)
    assert "/proc/" not in str(failed.value)
    # It was not read to its end.
    assert files.fetched < 9 * MIB


def test_an_object_that_changed_or_is_gone_is_named(store, disk):
    url = store.put("in", b"a" * 1000)
    files, _ = files_of(store.options, disk, "fixed:100")
    span = manifest.spans_of([files._stores.find(url)[0]], 1000, 100)[0].to_native()
    for content in (b"b" * 1000, b"b" * 300):
        store.put("in", content)
        with pytest.raises(errors.InvalidRequest, match="s3://bucket/in changed since the job began"):
            files.chunk(span).__enter__()
    store.system.rm_file(url)
    with pytest.raises(errors.FileMissing, match="s3://bucket/in: no such object"):
        files.chunk(span).__enter__()


def test_a_full_disk_is_a_fault_of_the_node_and_not_of_the_store(store, disk, monkeypatch):
    url = store.put("in", b"a" * 1000)
    files, _ = files_of(store.options, disk, "fixed:100")
    span = manifest.spans_of([files._stores.find(url)[0]], 1000, 100)[0].to_native()
    resources = {"CPU": 1}
    node = nodes.Node(None, {"NodeID": "n", "NodeManagerAddress": "127.0.0.1", "Resources": resources})
    node.temp = [str(disk)]

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(errors.FileError, match="No space left") as failed:
        patch.setattr(os, "pwrite", full)
        files.chunk(span).__enter__()
    assert node.has_file_of(failed.value, "00" * 16) and not node.has_file_of(failed.value, "11" * 16)
    store.fault = lambda method, path: "403 Forbidden" if method == "GET" else None
    with pytest.raises(errors.FileError, match="s3://bucket/in: cannot be read") as failed:
        files.chunk(span).__enter__()
    assert not node.has_file_of(failed.value, "00" * 16)


@pytest.mark.parametrize(
    ("inputs", "output", "kind", "told"),
    [
        ("s3://bucket/none", OUT, errors.FileMissing, "s3://bucket/none: no such object"),
        ("s3://bucket/none-*", OUT, errors.FileMissing, "no object matches s3://bucket/none-*"),
        ("s3://nowhere/in", OUT, errors.FileMissing, "s3://nowhere/in: no such object: The specified bucket"),
        ("s3://bucket/in", "s3://nowhere/out", errors.FileMissing, "s3://nowhere/out"),
        ("s3://bucket/in", "s3://bucket/full/", errors.FileExists, "s3://bucket/full: there are objects below it"),
        ("s3://bucket/cut", OUT, errors.SchemaMismatch, "s3://bucket/cut: "),
        ("gs://bucket/in", OUT, ImportError, "gcsfs"),
        ("nothing://bucket/in", OUT, errors.InvalidRequest, "fsspec knows no store for nothing://"),
        (f"s3://{KEY}:{SECRET}@bucket/in", OUT, errors.InvalidRequest, "leave the password out"),
    ],
)
def test_wrong_names_are_refused_before_a_cluster_starts(store, disk, inputs, output, kind, told):
    store.put("in", b"x" * 100)
    store.put("cut", b"x" * 150)
    store.put("full/part-00000", b"x" * 100)
    before = store.names()
    with pytest.raises(kind) as failed:
        cluster_sort(store, inputs, output, address="local:0")
    assert told in str(failed.value) and SECRET not in str(failed.value)
    assert store.names() == before and not list((disk / "state").rglob("*.job"))


@pytest.mark.parametrize("call", [ascot.cluster.resume, ascot.cluster.remove])
def test_a_job_that_is_not_kept_is_named_as_it_was_given(store, call):
    directory = r"/.*/jobs/out-[0-9a-f]{16}\.job"
    told = rf"^{OUT}/: no job with this output is kept: it has no directory {directory}\n  if the"
    with pytest.raises(errors.FileMissing, match=told):
        call(f"{OUT}/")
    with pytest.raises(errors.FileMissing, match=r"^the URL with a password: no job") as caught:
        call(f"s3://{KEY}:{SECRET}@bucket/out")
    assert SECRET not in str(caught.value)


def test_other_formats_and_views_in_a_store_are_refused(store):
    store.put("text", b"a\nb\n")
    packed = store.put("packed", b"\x1f\x8b\x08" + bytes(range(200)))
    with pytest.raises(errors.SchemaMismatch, match="s3://bucket/packed"):
        cluster_sort(store, [f"s3://{BUCKET}/text", packed], layout="lines", address="local:0")
    with pytest.raises(errors.InvalidRequest, match="output_as='views': a view reads files"):
        cluster_sort(store, f"s3://{BUCKET}/text", layout="lines", output_as="views", address="local:0")
    with pytest.raises(errors.InvalidRequest, match="address='local:0'"):
        cluster_sort(store, f"s3://{BUCKET}/text", layout="lines", address="local:0")
    assert store.names() == ["packed", "text"]


def test_the_packages_of_a_store_are_named_and_not_needed_without_one(disk):
    (disk / "in").write_bytes(b"a\n")
    program = (
        "import sys; sys.modules['fsspec'] = None\n"
        "import ascot.cluster\n"
        "for name in ('s3://bucket/in', 'in'):\n"
        "    try: ascot.cluster.sort(name, 'out', layout='lines', address='local:0')\n"
        "    except Exception as error: print(type(error).__name__, error)\n"
    )
    environment = clean_environment(PYTHONPATH=os.pathsep.join(sys.path))
    told = subprocess.run([sys.executable, "-c", program], cwd=disk, env=environment, capture_output=True, text=True)
    first, second = (line for line in told.stdout.splitlines() if not line.startswith(" "))
    assert first.startswith("ImportError s3://bucket/in is in an object store") and "pip install s3fs" in first
    assert second.startswith("InvalidRequest address='local:0'")


def test_secrets_are_left_out_of_errors(store):
    class Failing:
        async_impl = False

        def info(self, _):
            raise RuntimeError(f"the request with {SECRET} failed")

    stores = Stores(store.options)
    stores._systems["s3"] = Failing()
    with pytest.raises(errors.FileError, match=r"the request with \.\.\. failed") as failed:
        stores.facts(["s3://bucket/in"])
    assert SECRET not in repr(failed.value) and SECRET not in repr(stores)


# ---------------------------------------------------------------- with one


@pytest.mark.cluster(nodes=PAIR)
@pytest.mark.parametrize("shuffle", ["push", "pull"])
def test_a_sort_from_objects_to_objects(cluster, disk, store, shuffle):
    content = generated(disk, 83_333)
    # Objects of whole records, of uneven lengths.
    bounds = [0, 1_000, 1_001, 50_000, 83_333]
    for number, (start, end) in enumerate(pairwise(bounds)):
        store.put(f"in/{number}", content[100 * start : 100 * end])
    store.put("in/_SUCCESS", b"")
    done = cluster_sort(store, f"s3://{BUCKET}/in/", OUT + "/", shuffle=shuffle, partitions=9)
    assert_sorted(store, disk, done, content)
    report = done.report
    assert report.uploaded_bytes == len(content) == report.bytes
    # Chunks are read once, and samples besides.
    assert len(content) < report.fetched_bytes <= 2 * len(content)
    assert "object stores" in str(report) and report.to_json()["fetched_bytes"] == report.fetched_bytes
    assert any(stage.name == "upload" and stage.busy > 0 for stage in report.stages)
    assert report.peak_memory_bytes <= report.memory_per_node
    with done.open() as file:
        assert file.seek(0, 2) == len(content) and file.seek(5) == 5
        assert file.read(200) == store.get(f"{OUT}/part-00000")[5:205]
    assert cluster.left_over() == []


@pytest.mark.cluster(nodes=PAIR)
def test_tables_from_objects_to_objects(cluster, disk, store):
    dice = random.Random(6)
    layout = ascot.Csv(key=["n", ascot.desc("text")])
    tables = []
    for number in range(3):
        rows = (f'{dice.randrange(99)},"two\nlines, ""{dice.randrange(9)}"""\n' for _ in range(40_000))
        tables.append(("n,text\n" + "".join(rows)).encode())
        store.put(f"table-{number}", tables[-1])
        (disk / f"table-{number}").write_bytes(tables[-1])
    # The first object has no rows, from which types could be inferred.
    store.put("table--none", b"n,text\n")
    (disk / "table--none").write_bytes(b"n,text\n")
    done = cluster_sort(store, f"s3://{BUCKET}/table-*", layout=layout, partitions=4)
    ascot.sort(disk / "table-*", to=disk / "alone", layout=layout, memory="64MiB")
    alone = (disk / "alone").read_bytes()
    assert all(store.get(part).startswith(b"n,text\n") for part in done.outputs) and len(done.outputs) == 4
    assert done.open().read() == alone and done.report.records == 120_000
    with ascot.cluster.open_parts(OUT, layout=layout, storage_options=store.options) as whole:
        assert whole.read() == alone
    store.put("table-3", b"n,texts\n1,a\n")
    with pytest.raises(errors.InvalidRequest, match=r"different headers: column #2 is 'text' in the one, 'texts' in"):
        cluster_sort(store, f"s3://{BUCKET}/table-*", f"s3://{BUCKET}/other", layout=layout)


@pytest.mark.cluster(nodes=PAIR)
@pytest.mark.long
def test_lines_from_objects_to_a_directory_and_back(cluster, disk, store):
    dice = random.Random(7)
    lines = [f"{dice.choice('abc')} {'x' * dice.randrange(300)}{number}" for number in range(20_000)]
    content = "\n".join(lines).encode()
    url = objects_of(store, "many/", content, 60)
    pieces = [store.get(f"s3://{BUCKET}/many{name}") for name in store.names("many")]
    # The last line of an object gets its end, as that of a file does.
    wanted = b"".join(piece.removesuffix(b"\n") + b"\n" for piece in pieces)
    done = cluster_sort(store, url, disk / "sorted", layout="lines", partitions=5)
    (disk / "all").write_bytes(wanted)
    ascot.sort(disk / "all", to=disk / "alone", memory="64MiB")
    assert b"".join(Path(part).read_bytes() for part in done.outputs) == (disk / "alone").read_bytes()
    back = cluster_sort(store, [*done.outputs], OUT, layout="lines", partitions=3, shuffle="pull")
    assert b"".join(store.get(part) for part in back.outputs) == (disk / "alone").read_bytes()
    assert back.report.fetched_bytes == 0 and back.report.uploaded_bytes == len(wanted)
    assert cluster.left_over() == []


def split(batch):
    for line in batch.column("line").to_pylist():
        for word in line.split():
            yield word, b"1"


def count(key, values):
    yield f"{key.decode()} {sum(map(int, values))}\n"


@pytest.mark.cluster(nodes=PAIR)
@pytest.mark.parametrize("shuffle", [pytest.param("push", marks=pytest.mark.long), "auto"])
def test_words_of_objects_are_counted(cluster, disk, store, shuffle):
    dice = random.Random(9)
    lines = [" ".join(f"w{int(dice.paretovariate(0.7)) % 500}" for _ in range(8)) for _ in range(8_000)]
    for number in range(12):
        store.put(f"text-{number}", ("\n".join(lines[number::12]) + "\n").encode())
    done = ascot.cluster.map_reduce(
        f"s3://{BUCKET}/text-*", map=split, reduce=count, output=OUT, partitions=4, shuffle=shuffle,
        memory_per_node=MEMORY, storage_options=store.options, progress=None,
    )  # fmt: skip
    wanted = {}
    for word in " ".join(lines).split():
        wanted[word] = wanted.get(word, 0) + 1
    with done.open() as parts:
        found = dict(line.split() for line in parts.read().decode().splitlines())
    assert {word: int(number) for word, number in found.items()} == wanted
    assert (done.report.prediction is not None) == (shuffle == "auto")


@pytest.mark.cluster(nodes=PAIR)
@pytest.mark.long
def test_an_object_that_changes_after_the_sample_ends_the_job(cluster, disk, store):
    content = generated(disk, 40_000)
    store.put("in-a", content[:2_000_000])
    store.put("in-b", content[2_000_000:])
    change = At("sample", 0, lambda: store.put("in-b", content[2_000_000:][::-1]))
    phases = []

    def progress(now):
        phases.append(now.phase)
        if now.phase == "map and shuffle":
            change(now._replace(phase="sample", fraction=1))

    with pytest.raises(errors.Resumable, match="s3://bucket/in-b changed since the job began") as failed:
        cluster_sort(store, f"s3://{BUCKET}/in-*", partitions=4, progress=progress)
    assert "map and shuffle" in phases and failed.value.directory.startswith(str(disk / "state"))
    # Nor is it continued.
    with pytest.raises(errors.InvalidRequest, match="s3://bucket/in-b changed"):
        ascot.cluster.resume(failed.value.directory, storage_options=store.options, progress=None)
    ascot.cluster.remove(OUT, storage_options=store.options)
    assert store.names("out") == [] and cluster.left_over() == []


@pytest.mark.cluster(nodes=PAIR)
def test_requests_that_fail_for_a_moment_are_repeated_and_others_name_the_object(cluster, disk, store):
    content = generated(disk, 40_000)
    store.put("in", content)
    failed, lock = {}, threading.Lock()

    def sometimes(method, path):
        if path == "/bucket/in" or path.startswith("/bucket/out/part"):
            with lock:
                failed[path, method] = failed.get((path, method), 0) + 1
                return "500 Internal Server Error" if failed[path, method] % 3 == 1 else None
        return None

    store.fault = sometimes
    done = cluster_sort(store, f"s3://{BUCKET}/in", partitions=4)
    store.fault = None
    assert_sorted(store, disk, done, content)
    assert {method for _, method in failed} >= {"GET", "PUT"}
    store.system.rm(f"{BUCKET}/out", recursive=True)
    store.fault = lambda method, path: "403 Forbidden" if method == "PUT" and "part-00002" in path else None
    with pytest.raises(errors.Resumable, match=r"s3://bucket/out/part-00002: cannot be written"):
        cluster_sort(store, f"s3://{BUCKET}/in", partitions=4)
    store.fault = None
    done = ascot.cluster.resume(OUT, storage_options=store.options, progress=None)
    assert_sorted(store, disk, done, content)
    assert cluster.left_over() == []


@pytest.mark.cluster(nodes=PAIR)
@pytest.mark.long
@pytest.mark.parametrize("shuffle", ["push", "pull"])
def test_a_worker_is_killed_while_it_uploads(cluster, disk, store, shuffle):
    content = generated(disk, 400_000)
    store.put("in", content)
    seen, lock = [], threading.Lock()

    def kill_uploader(method, path):
        # Pieces of a part arrive at the same time, and the first one ends the workers.
        if method != "PUT" or not path.startswith("/bucket/out/part-"):
            return None
        with lock:
            if seen:
                return None
            seen.append((path, store.names("out")))
            for process in processes_of("SpillWorker" if shuffle == "pull" else "Worker", cluster):
                kill(process)
        return None

    store.fault = kill_uploader
    # One part is larger than what is written by one request.
    done = cluster_sort(store, f"s3://{BUCKET}/in", partitions=2, shuffle=shuffle)
    assert len(seen) == 1 and os.path.basename(seen[0][0]) not in "".join(seen[0][1])
    assert_sorted(store, disk, done, content)
    assert cluster.left_over() == []


DRIVER = """
import json, sys, ascot, ascot.cluster
source, output, address, memory, options = sys.argv[1:]
ascot.cluster.sort(source, output, layout=ascot.Fixed(100, key=slice(0, 10)), address=address, memory_per_node=memory,
                   partitions=16, storage_options=json.loads(options),
                   progress=lambda p: print(p.phase, p.fraction, flush=True))
"""


@pytest.mark.cluster(nodes=PAIR)
def test_a_killed_driver_is_resumed_and_no_secret_is_stored(cluster, disk, store):
    content = generated(disk, 200_000)
    source = objects_of_records(store, content)
    arguments = [source, OUT, cluster.address, MEMORY, json.dumps(store.options)]
    with subprocess.Popen([sys.executable, "-c", DRIVER, *arguments], stdout=subprocess.PIPE, text=True) as driver:
        for line in driver.stdout:
            *words, fraction = line.split()
            if " ".join(words) == "sort and reduce" and float(fraction) >= 0.6:
                break
        driver.kill()
    (job,) = (disk / "state").rglob("*.job")
    journal = [json.loads(line) for line in (job / "journal").read_text().splitlines()]
    parts = [event["number"] for event in journal if event["event"] == "part"]
    assert parts and "/_SUCCESS" not in store.names("out")
    for path in (path for path in (disk / "state").rglob("*") if path.is_file()):
        assert KEY.encode() not in path.read_bytes() and SECRET.encode() not in path.read_bytes(), path
    wait_until(lambda: processes_of("Worker", cluster) == [])
    # A part that is gone is made again, and no other.
    store.system.rm_file(f"{OUT}/part-{parts[0]:05}")
    store.requests.clear()
    done = ascot.cluster.resume(OUT, address=cluster.address, storage_options=store.options, progress=None)
    assert_sorted(store, disk, done, content)
    written = {path for method, path, _ in store.requests if method == "PUT" and "/part-" in path}
    assert f"/bucket/out/part-{parts[0]:05}" in written
    assert not written & {f"/bucket/out/part-{number:05}" for number in parts[1:]}
    assert SECRET not in json.dumps(done.report.to_json()) and SECRET not in done.report.to_html()
    assert cluster.left_over() == []


def objects_of_records(store, content):
    for number in range(7):
        share = len(content) // 100
        start, end = (share * at // 7 * 100 for at in (number, number + 1))
        store.put(f"in-{number}", content[start:end])
    return f"s3://{BUCKET}/in-*"


def environment_of(store, disk):
    return clean_environment(
        ASCOT_PYTHON=sys.executable, PYTHONPATH=os.pathsep.join(sys.path), XDG_STATE_HOME=str(disk / "state"),
        FSSPEC_S3=json.dumps(store.options),
    )  # fmt: skip


FLAGS = ["--format", "fixed:100", "--key", "0..10", "--memory", MEMORY]


def test_the_command_names_a_url_that_is_wrong(store, disk):
    environment = environment_of(store, disk)
    words = ["s3://bucket/none-*", "-o", OUT, "--cluster", "local:4", *FLAGS]
    told = run("sort", *words, cwd=disk, env=environment, expect=2, timeout=120).stderr
    assert told.startswith("ascot: no object matches s3://bucket/none-*"), told
    told = run("sort", OUT, "-o", OUT, "--cluster", "local:4", "--parts-as", "views", *FLAGS, cwd=disk,
               env=environment, expect=2, timeout=120).stderr  # fmt: skip
    assert told.startswith("ascot: s3://bucket/out: no such object"), told


@pytest.mark.cluster(nodes=PAIR)
@pytest.mark.long
def test_the_command_takes_urls(disk, store):
    content = generated(disk, 20_000)
    store.put("in-1", content)
    words = [f"s3://{BUCKET}/in-*", "-o", OUT, "--cluster", "local:1", *FLAGS]
    run("sort", *words, cwd=disk, env=environment_of(store, disk), timeout=300)
    parts = [name for name in store.names("out") if name.startswith("/part")]
    (disk / "all").write_bytes(content)
    ascot.sort(disk / "all", to=disk / "alone", layout=RECORDS, memory="64MiB")
    assert b"".join(store.get(OUT + name) for name in sorted(parts)) == (disk / "alone").read_bytes()
