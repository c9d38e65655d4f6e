"""`--trace` of a job writes the requests that its ledger counts."""

import json
import signal

import pytest
from support import census, job_directories, random_records, run, small_disk, start, stop_where

FIXED = ["--format", "fixed:100", "--key", "0..10", "--memory", "8MiB"]

ARRAY = """name = "24 disks"
read_bytes_per_s = 3.549e9
write_bytes_per_s = 3.549e9
switch_seconds = 0.0155
"""


def moved(report):
    """Bytes read, bytes written and switches of a job's report."""
    streams = [stream for step in report["passes"] for stream in step["streams"]]
    return tuple(sum(stream[field] for stream in streams) for field in ("read_bytes", "written_bytes", "switches"))


@pytest.mark.parametrize("method", [["merge", "--batch-size", "4"], ["distribute"]], ids=["merge", "distribute"])
def test_the_trace_of_a_sort_has_the_requests_of_its_account(disk, method):
    (disk / "in").write_bytes(random_records(400_000))
    run("sort", disk / "in", *FIXED, "--method", *method, "--temp", disk, "-o", disk / "out",
        "--report", disk / "run.json", "--trace", disk / "run.trace")  # fmt: skip
    report = json.loads((disk / "run.json").read_text())
    counted = census(disk / "run.trace")
    assert (counted["read_bytes"], counted["written_bytes"], counted["runs"]) == moved(report)
    by_name = {file["path"].rsplit("/", 1)[-1]: file for file in counted["by_file"]}
    assert by_name["in"]["read_bytes"] == 40_000_000 and by_name["in"]["written_bytes"] == 0
    assert by_name["out"]["written_bytes"] == 40_000_000 == by_name["out"]["peak_bytes"]
    spills = [file for file in counted["by_file"] if file["path"].rsplit("/", 1)[-1] not in ("in", "out")]
    assert sum(file["deleted"] for file in spills) >= 2
    # The space of spills is reused: input, output and what is not deleted yet.
    assert counted["peak_live_bytes"] < 130_000_000
    # Another volume can be asked what the job would have cost there.
    (disk / "array.toml").write_text(ARRAY)
    told = run("trace", "replay", disk / "run.trace", "--on", disk / "array.toml", "--json").stdout
    # The output lies in pieces where runs were freed.
    assert counted["runs"] * 0.99 <= json.loads(told)["switches"] <= counted["runs"] * 1.06


def test_other_jobs_write_traces_too(disk):
    (disk / "in").write_bytes(random_records(20_000))
    run("split", disk / "in", *FIXED, "--by", "hash", "--parts", "4", "-o", disk / "part-{}", "--trace", disk / "a")
    assert census(disk / "a")["written_bytes"] == 2_000_000
    run("sort", disk / "in", *FIXED, "-o", disk / "sorted", "--trace", disk / "b")
    counted = census(disk / "b")
    assert (counted["read_bytes"], counted["written_bytes"]) == (2_000_000, 2_000_000)
    run("merge", disk / "sorted", disk / "sorted", *FIXED, "-o", disk / "merged", "--trace", disk / "c")
    counted = census(disk / "c")
    # Reads past the page cache end up to a block after the end of their file.
    assert 4_000_000 <= counted["read_bytes"] <= 4_000_000 + 2 * 4096
    assert counted["written_bytes"] == 4_000_000
    assert counted["command"].split()[1] == "merge"


def test_a_trace_replaces_no_file_of_the_job_and_a_failed_job_leaves_none(disk):
    (disk / "in").write_bytes(random_records(1000))
    done = run("sort", disk / "in", *FIXED, "-o", disk / "out", "--trace", disk / "in", expect=2)
    assert f"--trace {disk / 'in'} is the input" in done.stderr
    done = run("sort", disk / "in", *FIXED, "-o", disk / "out", "--trace", disk / "no" / "trace", expect=2)
    assert "no/trace" in done.stderr and not (disk / "out").exists()
    (disk / "bad").write_bytes(b"short")
    run("sort", disk / "bad", *FIXED, "-o", disk / "out", "--trace", disk / "t", expect=2)
    assert sorted(path.name for path in disk.iterdir()) == ["bad", "in"]
    with small_disk(disk, 8 << 20) as small:
        (disk / "big").write_bytes(random_records(60_000))
        done = run("sort", disk / "big", *FIXED, "-o", disk / "out", "--trace", small / "t")
        assert (small / "t").stat().st_size < 100_000


def test_a_stopped_job_leaves_no_part_of_its_trace(disk):
    (disk / "in").write_bytes(random_records(400_000))
    words = ["--temp", disk, "-o", disk / "out", "--trace", disk / "t"]
    process = start("sort", disk / "in", *FIXED, "--method", "merge", *words)
    stop_where(process, disk, lambda manifest: len(manifest["runs"]) > 2)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    assert process.wait(timeout=60) == -signal.SIGINT
    assert not job_directories(disk) and [path.name for path in disk.iterdir()] == ["in"]


def test_the_report_and_the_trace_are_two_files(disk):
    (disk / "in").write_bytes(random_records(10))
    words = ["-o", disk / "out", "--trace", disk / "x", "--report", disk / "x"]
    assert "is the file of --trace" in run("sort", disk / "in", *FIXED, *words, expect=2).stderr


def test_reading_a_view_writes_a_trace(disk):
    (disk / "in").write_bytes(random_records(200_000))
    run("sort", disk / "in", *FIXED, "--view", disk / "v.view")
    run("view", disk / "v.view", "-o", disk / "out", "--report", disk / "run.json", "--trace", disk / "a")
    counted = census(disk / "a")
    assert (counted["read_bytes"], counted["written_bytes"], counted["runs"]) == moved(
        json.loads((disk / "run.json").read_text())
    )
    assert counted["written_bytes"] == 20_000_000
    assert sum(bowtie["turns"] for bowtie in counted["bowties"]) > 0
    run_of_view = next((disk / "v.view").glob("*"))
    before = run_of_view.read_bytes()
    told = run("view", disk / "v.view", "-o", disk / "out", "--trace", run_of_view, expect=2).stderr
    assert "would replace" in told and run_of_view.read_bytes() == before


def test_building_and_querying_an_index_writes_a_trace(disk):
    (disk / "in").write_bytes(random_records(20_000))
    alike = ["--key", "0..10", "--format", "fixed:100"]
    run("index", "build", disk / "in", *alike, "-qo", disk / "dir", "--trace", disk / "a")
    counted = census(disk / "a")
    by_name = {file["path"].rsplit("/", 1)[-1]: file for file in counted["by_file"]}
    assert by_name["in"]["read_bytes"] == 2_000_000
    stored = sum(path.stat().st_size for path in (disk / "dir").rglob("*") if path.is_file())
    assert 0 < counted["written_bytes"] == pytest.approx(stored, rel=0.05)
    key = "0x" + random_records(20_000)[:10].hex()
    run("index", "get", disk / "dir", key, "--trace", disk / "b")
    asked = census(disk / "b")
    assert asked["written_bytes"] == 0 and 0 < asked["read_bytes"] < 1_000_000
    build = ["build", disk / "in", *alike, "--open", "append", "-qo", disk / "dir"]
    for words in (build, ["get", disk / "dir", key]):
        told = run("index", *words, "--trace", disk / "dir/t", expect=2).stderr
        assert "holds only files of its own" in told and not (disk / "dir/t").exists()


def test_a_trace_that_cannot_be_named_hints_at_no_other_output(disk):
    """The output is complete then: another one would not help."""
    (disk / "in").write_bytes(random_records(100))
    told = run("sort", disk / "in", *FIXED, "-o", disk / "out", "--trace", disk / "no/t", expect=2).stderr
    assert "no/t" in told and " -o" not in told
    assert not (disk / "out").exists()
