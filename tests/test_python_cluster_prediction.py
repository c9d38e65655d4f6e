"""`shuffle="auto"`: small records wait in files, large ones are merged when they are fetched, by what is measured."""

import os
import random

import ascot
import ascot.cluster
import pytest
from ascot.cluster import jobs, manifest, pages, prediction
from ascot.cluster.functions import Functions
from ray_machines import MIB, RECORDS, cluster_sort

SHAPE = {"workers": 1, "partitions": 100, "sort_bytes": 100 * MIB, "chunk_bytes": 10 * MIB, "batch_bytes": MIB}
TOTAL = 1000 * MIB
ROTATIONAL = prediction.Volume(150e6, 150e6)
# 200 ns for a record, and 0.5 ns for a byte of it.
NANOSECONDS = (200, 0.5)


def trial(record_bytes):
    count = 4 * MIB // record_bytes
    seconds = count * (NANOSECONDS[0] + NANOSECONDS[1] * record_bytes) * 1e-9
    return prediction.Trial(4 * MIB, count, 4 * MIB, seconds)


def predict(record_bytes, volume=ROTATIONAL, has_functions=True, views=False, transport="direct", **shape):
    more = {"has_functions": has_functions, "views": views, "transport": transport}
    return prediction.predict(trial(record_bytes), volume, TOTAL, 4, {**SHAPE, **shape}, **more)


def test_small_records_fall_back_to_files():
    assert [predict(size).shuffle for size in (16, 32, 128, 4096)] == ["push", "push", "pull", "pull"]
    # Fetches by calls take more of the processors than connections.
    assert [predict(size, transport="ray").shuffle for size in (128, 4096)] == ["push", "pull"]
    # A fast disk saves little, and several workers merge at once.
    fast = prediction.Volume(2e9, 2e9)
    assert predict(4096, volume=fast).shuffle == "push"
    assert (predict(32).shuffle, predict(32, workers=4).shuffle) == ("push", "pull")


def test_what_is_saved_is_what_only_files_move():
    found = predict(4096)
    # The pairs of a partition, which are written to a file before they are reduced, and read.
    assert found.bytes == TOTAL and found.saved_bytes == 2 * TOTAL
    assert found.saving_seconds == pytest.approx(2 * TOTAL / 4 / 150e6)
    assert predict(4096, partitions=8).saved_bytes == 4 * TOTAL, "and the spills of a large partition"
    assert predict(4096, has_functions=False).saved_bytes == 0
    assert predict(4096, has_functions=False).shuffle == "push"
    assert predict(4096, has_functions=False, partitions=8).saved_bytes == 2 * TOTAL
    views = predict(16, views=True)
    assert (views.shuffle, views.saved_bytes, views.merging_seconds) == ("pull", 2 * TOTAL, 0)


def test_more_chunks_of_a_node_make_merges_longer():
    one = predict(128).merge_seconds
    assert one == pytest.approx(264e-9 * 2.32, rel=0.01), "25 chunks, which have log 25 / log 4 times the comparisons"
    assert predict(128, chunk_bytes=250 * MIB).merge_seconds == pytest.approx(264e-9, rel=0.01)


def predicted(directory, record_bytes, functions=None):
    """The prediction for 8 MiB in chunks of 2 MiB, of which a half is merged."""
    path = directory / f"records-{record_bytes}"
    path.write_bytes(random.Random(1).randbytes(8 * MIB // record_bytes * record_bytes))
    layout = ascot.Fixed(record_bytes, key=None if functions else slice(0, 10))
    options = jobs.Request([str(path)], layout, None, False, {}, "inputs").options
    options["temp"] = [str(directory / "temp")]
    about = {"record_bytes": record_bytes, "shape": {**SHAPE, "partitions": 4}, "views": False, "transport": "direct"}
    spans = manifest.spans_of([(str(path), path.stat().st_size)], 2 * MIB, record_bytes)
    return prediction.predicted({"options": options, "usual_temp": "", **about}, spans, 4, functions)


def test_the_merge_of_a_record_is_measured(tmp_path):
    small, large = predicted(tmp_path, 15), predicted(tmp_path, 4000)
    assert (small.records, large.records) == (8 * MIB // 15, 8 * MIB // 4000)
    assert (small.bytes, large.bytes) == (8 * MIB // 15 * 15, 8 * MIB // 4000 * 4000)
    # A small record takes less, and for each byte more.
    assert 0 < small.merge_seconds < large.merge_seconds / 10
    assert small.merge_seconds / 15 > 1.2 * large.merge_seconds / 4000
    assert os.listdir(tmp_path / "temp") == []


def pairs(batch):
    for record in batch.column("record").to_pylist():
        yield record[:10], record[10:]
        yield record[10:20], b""


def join(key, values):
    yield from values


def fail(batch):
    raise ZeroDivisionError


def test_pairs_of_functions_are_measured(tmp_path):
    found = predicted(tmp_path, 128, Functions(pairs, join, None, None))
    # Two pairs for each record, with 8 bytes each besides their own.
    assert found.records == 2 * (8 * MIB // 128) and found.bytes == (8 * MIB // 128) * (128 + 10 + 16 + 8)
    assert found.saved_bytes == 2 * found.bytes


def test_a_trial_that_fails_decides_nothing(tmp_path):
    assert predicted(tmp_path, 128, Functions(fail, join, None, None)) is None
    assert os.listdir(tmp_path / "temp") == []


def test_ctrl_c_ends_a_trial(tmp_path):
    def interrupt(batch):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predicted(tmp_path, 128, Functions(interrupt, join, None, None))
    assert os.listdir(tmp_path / "temp") == []


@pytest.mark.cluster
def test_a_job_is_run_as_predicted(cluster, disk):
    ascot.gen(100_000, to=disk / "a")
    ascot.sort(disk / "a", to=disk / "alone", layout=RECORDS)
    for output_as, shuffle in (("files", "push"), ("views", "pull")):
        done = cluster_sort(disk, disk / "a", shuffle="auto", output_as=output_as)
        report = done.report
        assert report.shuffle == report.prediction["shuffle"] == shuffle
        assert (report.prediction["records"], report.prediction["bytes"]) == (100_000, 10_000_000)
        assert f"shuffle          {shuffle}: merging 100,000 records of 100 B" in str(report)
        assert report.to_json()["prediction"] == report.prediction
        assert f"{shuffle}: merging 100,000 records of 100 B" in pages.report_page(report.to_json())
        with done.open() as whole:
            assert whole.read() == (disk / "alone").read_bytes()
        assert os.path.isdir(disk / "out" / "chunks") == (shuffle == "pull")
        os.rename(disk / "out", disk / output_as)
    assert sorted(os.listdir(disk)) == ["a", "alone", "files", "views"] and cluster.left_over() == []
