"""Merges of sorted files in several passes that end early and are resumed.

The tests stop a merge at a known point, which they read from its manifest.
"""

import hashlib
import json
import shutil
import signal
from pathlib import Path

import pytest
from support import FIXED, digest, end_by, job_directories, kill, leftovers, run, sorted_records, start, stop_where


@pytest.fixture(scope="module")
def sorted_files(module_disk):
    """Twenty sorted files, and the digest of the file that they are merged to."""
    files = []
    for number in range(20):
        path = module_disk / f"sorted-{number:02}"
        run("gen", "10000", "--start", str(10_000 * number), "-o", path)
        run("sort", path, *FIXED, "-o", path)
        files.append(path)
    right = hashlib.sha256(sorted_records(b"".join(path.read_bytes() for path in files))).hexdigest()
    return files, right


def in_last_pass(manifest):
    return manifest["output"] is not None


def merging(manifest):
    return manifest["merging"] is not None


def past_first_groups(manifest):
    return len(manifest["runs"]) >= 2 and not manifest["all_read"]


@pytest.mark.parametrize("points", [[past_first_groups], [merging], [in_last_pass],
                                    [past_first_groups, merging, in_last_pass]],
                         ids=["first", "between", "last", "all"])  # fmt: skip
def test_a_merge_in_several_passes_goes_on(points, sorted_files, disk):
    """Groups of four files become five runs, two of which are merged before the last pass."""
    files, right = sorted_files
    report = disk / "report.json"
    words = ["merge", *files, *FIXED, "--memory", "8MiB", "--batch-size", "4", "--temp", disk, "-o", disk / "out"]
    for point in points:
        job = start(*words)
        stop_where(job, disk, point)
        kill(job)
        (kept,) = job_directories(disk)
        words = ["sort", "--resume", kept]
    run(*words, "--report", report)
    told = json.loads(report.read_text())
    report.unlink()
    assert leftovers(disk) == ["out"]
    assert digest(disk / "out") == right
    assert told["resumed"]
    assert told["records_in"] == told["records_out"] == 200_000
    streams = [stream for one in told["passes"] if one["name"] == "merge some" for stream in one["streams"]]
    moved = sum(stream["read_bytes"] for stream in streams)
    # At most three groups of inputs, a merge of two or three runs, and blocks that are read again. A merge from the
    # start reads 28 MB in these passes.
    left = {past_first_groups: 12, merging: 0, in_last_pass: -12}[points[-1]] + 13
    assert moved <= left * 1_000_000, "what runs hold is not read from the inputs again"


def test_a_merge_in_several_passes_is_kept_on_request(sorted_files, disk):
    files, right = sorted_files
    words = ["--memory", "8MiB", "--batch-size", "4", "--temp", disk, "-o", disk / "out"]
    job = start("merge", *files, *FIXED, *words, "--keep-on-interrupt")
    stop_where(job, disk, past_first_groups)
    told = end_by(job, signal.SIGINT)
    (kept,) = job_directories(disk)
    assert f"ascot sort --resume {kept}" in told
    run("sort", "--resume", kept)
    assert leftovers(disk) == ["out"]
    assert digest(disk / "out") == right


def test_a_merge_whose_input_changed_is_not_resumed(sorted_files, disk):
    files = [Path(shutil.copy(path, disk)) for path in sorted_files[0]]
    job = start("merge", *files, *FIXED, "--memory", "8MiB", "--batch-size", "4", "--temp", disk, "-o", disk / "out")
    stop_where(job, disk, past_first_groups)
    kill(job)
    (kept,) = job_directories(disk)
    with files[0].open("r+b") as first:
        first.write(b"\x00")
    refused = run("sort", "--resume", kept, expect=2)
    assert "sorted-00 has changed since" in refused.stderr
    assert job_directories(disk) == [kept]
