"""The report's account of time: the states of every thread add up, against what the kernel says about the threads."""

import base64
import json
import os
import random
import subprocess
from collections import defaultdict

import pytest
from support import FIXED, ascot_binary, clean_environment, enter_cgroup, run, throttled_cgroup
from thread_observer import MAIN, watch

pytestmark = pytest.mark.alone

STATES = ["busy_seconds", "waiting_input_seconds", "waiting_memory_seconds", "waiting_device_seconds"]
SMALL = ["--memory", "24MiB"]
MERGING = [*SMALL, "--method", "merge"]
U64 = ["--format", "u64"]
CSV = ["--csv", "--header", "--key", "key:number,name"]
RECORDS = 1_100_000
# A volume where long runs pay.
ARRAY = """
name = "array"
read_bytes_per_s = 3.549e9
write_bytes_per_s = 3.549e9
switch_seconds = 0.0155
"""

FILES = ["@sorted", "@again", *FIXED, *SMALL]
PARTS = ["--parts", "3", "-o", "part-{}"]

# Flags of jobs of more than 100 MB each; words that begin with @ are files of the fixture.
JOBS = {
    "records by merging": ["sort", "@records", *FIXED, *MERGING, "-o", "out"],
    "records by distribution": ["sort", "@records", *FIXED, *SMALL, "--method", "distribute", "-o", "out"],
    "records in memory": ["sort", "@records", *FIXED, "--memory", "400MiB", "-o", "out"],
    "records by one thread": ["sort", "@records", *FIXED, *SMALL, "--threads", "1", "-o", "out"],
    "records by several merges": ["sort", "@records", *FIXED, *MERGING, "--batch-size", "3", "-o", "out"],
    "records on an array": ["sort", "@records", *FIXED, *SMALL, "--volume", "@array", "-o", "out"],
    "numbers": ["sort", "@numbers", *U64, *SMALL, "-o", "out"],
    "lines": ["sort", "@lines", *SMALL, "-o", "out"],
    "csv": ["sort", "@csv", *CSV, *SMALL, "-o", "out"],
    "compressed spills": ["sort", "@lines", *MERGING, "--compress", "zstd", "-o", "out"],
    "parts": ["sort", "@records", *FIXED, *SMALL, *PARTS],
    "merge": ["merge", *FILES, "-o", "out"],
    "reshape": ["reshape", *FILES, *PARTS],
    "reshape by hash": ["reshape", *FILES, "--by", "hash", *PARTS],
    "split by hash": ["split", "@records", *FIXED, *SMALL, "--by", "hash", *PARTS],
    "split by range": ["split", "@records", *FIXED, *SMALL, "--by", "range", *PARTS],
    "split by size": ["split", "@records", *FIXED[:2], *SMALL, "--by", "size", *PARTS],
    "view": ["sort", "@records", *FIXED, *SMALL, "--view", "view.ascot"],
}  # fmt: skip


# Rate of a disk that is slower than any processor sorts.
SLOW_BYTES_PER_S = 40_000_000

# Processor time of starting and ending the program, which is no part of the job.
STARTING_SECONDS = 0.05
# Threads that live from the start of a job to its end.
OF_THE_JOB = ("merge", "device")
# Threads by which the kernel performs requests of io_uring that it cannot begin at once. The job does not start them.
OF_THE_KERNEL = "iou-wrk"


@pytest.fixture(scope="module")
def files(module_disk):
    """Files of more than 100 MB each."""
    rng = random.Random(5)
    run("gen", str(RECORDS), "-o", module_disk / "records")
    run("sort", module_disk / "records", *FIXED, "--memory", "400MiB", "-o", module_disk / "sorted")
    os.link(module_disk / "sorted", module_disk / "again")
    (module_disk / "numbers").write_bytes(rng.randbytes(104_000_000))
    with open(module_disk / "lines", "wb") as lines:
        for _ in range(13):
            lines.write(base64.encodebytes(rng.randbytes(6_000_000)))
    row = lambda: f"{rng.randrange(10**9)},{rng.randrange(10**6):x},some more text of a row\n"  # noqa: E731
    rows = "".join(row() for _ in range(100_000))
    with open(module_disk / "csv", "w") as table:
        table.write("key,name,text\n")
        for _ in range(27):
            table.write(rows)
    (module_disk / "array").write_text(ARRAY)
    return module_disk


def words_of(job, files):
    return [files / word[1:] if word.startswith("@") else word for word in JOBS[job]]


def job_watched(words, disk, **options):
    """Runs a job, and returns its report and what was seen of its threads."""
    watched = watch(*words, "--report", "run.json", cwd=disk, **options)
    assert watched.returncode == 0, watched.stderr
    return json.loads((disk / "run.json").read_text()), watched


def rows_of(report):
    """The rows of all threads: pass, stage, row."""
    for step in report["passes"]:
        for stage in step["stages"]:
            for row in stage["by_thread"]:
                yield step, stage, row


def check_sums(report):
    """States add up to the wall time, and threads to their stage."""
    for _, stage, row in rows_of(report):
        for one in (stage, row):
            assert all(one[state] >= 0 for state in STATES), one
            assert sum(one[state] for state in STATES) == pytest.approx(one["wall_seconds"], rel=0.03, abs=1e-4), one
            assert one["processor_seconds"] <= 1.1 * one["busy_seconds"] + 0.1 * one["wall_seconds"] + 0.01, one
        assert stage["threads"] == len(stage["by_thread"])
        for figure in (*STATES, "wall_seconds", "processor_seconds"):
            assert sum(row[figure] for row in stage["by_thread"]) == pytest.approx(stage[figure], abs=1e-6)
        assert row["wall_seconds"] <= 1.03 * report["seconds"] + 0.01


def check_main(report, watched):
    """The thread that runs the job is in one stage after the other, from its start to its end."""
    walls = [sum(row["wall_seconds"] for one, _, row in rows_of(report) if one is step and row["name"] == MAIN)
             for step in report["passes"]]  # fmt: skip
    for step, wall in zip(report["passes"], walls, strict=True):
        assert wall == pytest.approx(step["seconds"], rel=0.03, abs=0.002), step["name"]
    assert sum(walls) == pytest.approx(report["seconds"], rel=0.03, abs=0.01)
    assert sum(walls) <= watched.threads[MAIN].most_seconds


def check_against_kernel(report, watched):
    """Every thread that worked is in the report, with its time of life, and busy for as long as it had work."""
    told = defaultdict(lambda: defaultdict(float))
    stages = defaultdict(set)
    for step, _, row in rows_of(report):
        stages[row["name"]].add(step["name"])
        for figure in (*STATES, "wall_seconds", "processor_seconds"):
            told[row["name"]][figure] += row[figure]
    for name, seen in watched.threads.items():
        if name in ("progress", "watchdog") or name.startswith(OF_THE_KERNEL):
            continue
        if seen.processor_seconds < max(0.01, 0.01 * watched.processor_seconds):
            continue
        assert name in told, f"{name} worked for {seen.processor_seconds} s and is not in the report"
        mine = told[name]
        if name != MAIN:
            # A thread that is there and gets no processor has not begun to work.
            least = 0.97 * seen.least_seconds - 0.005 - seen.delay_seconds
            if name.startswith(OF_THE_JOB):
                # They live on after the report, and a pass leaves them out if they only wait for work.
                left_out = sum(step["seconds"] for step in report["passes"] if step["name"] not in stages[name])
                least -= left_out + watched.threads[MAIN].most_seconds - report["seconds"]
            assert least <= mine["wall_seconds"] <= 1.03 * seen.most_seconds + 0.005, (name, mine, seen)
        lost = seen.unseen_seconds
        at_work = seen.processor_seconds - (STARTING_SECONDS if name == MAIN else 0)
        assert mine["processor_seconds"] >= 0.9 * at_work - 0.005, (name, mine, seen)
        # A thread that waits takes a processor for a moment, before it sleeps and when it wakes up.
        assert mine["busy_seconds"] >= 0.5 * at_work - 0.003, (name, mine, seen)
        # On a processor, waiting for one, on one that the host had taken, or asleep until memory is mapped.
        scheduled = seen.processor_seconds + seen.delay_seconds + lost + watched.stolen_seconds + seen.mapping_seconds
        assert mine["busy_seconds"] <= 1.15 * scheduled + 0.05 * mine["wall_seconds"] + 0.03, (name, mine, seen)
    processor = sum(thread["processor_seconds"] for thread in told.values())
    busy = sum(thread["busy_seconds"] for thread in told.values())
    used = watched.processor_seconds
    assert 0.9 * used - STARTING_SECONDS <= processor <= 1.02 * used + 0.01
    assert busy >= 0.8 * used - STARTING_SECONDS


@pytest.mark.parametrize("job", JOBS)
def test_the_time_of_every_thread_adds_up(job, files, disk):
    report, watched = job_watched(words_of(job, files), disk)
    assert report["passes"]
    check_sums(report)
    check_main(report, watched)
    check_against_kernel(report, watched)
    for step in report["passes"]:
        for stage in step["stages"]:
            if stage["name"] in ("read", "write", "device", "sort", "split", "merge"):
                # The rate is that of the time at work, which is part of the wall time.
                least = stage["bytes"] * stage["threads"] / stage["wall_seconds"]
                assert stage["bytes"] > 0 and stage["bytes_per_s"] >= 0.99 * least, stage


def test_bytes_of_a_stage_are_those_of_the_pass(files, disk):
    report, _ = job_watched(words_of("records by merging", files), disk)
    size = RECORDS * 100
    form, merge = report["passes"]
    stages = {(step["name"], stage["name"]): stage for step in report["passes"] for stage in step["stages"]}
    assert stages["form runs", "sort"]["bytes"] == size == stages["merge", "merge"]["bytes"]
    for step in (form, merge):
        moved = [sum(stream[field] for stream in step["streams"]) for field in ("read_bytes", "written_bytes")]
        assert [stages[step["name"], name]["bytes"] for name in ("read", "write")] == moved
        assert stages[step["name"], "device"]["bytes"] == pytest.approx(sum(moved), rel=0.01)


def test_small_jobs_have_one_thread(disk):
    run("gen", "20k", "-o", disk / "in")
    run("sort", "in", *FIXED, "-o", "out", "--report", "run.json", cwd=disk)
    report = json.loads((disk / "run.json").read_text())
    [step] = report["passes"]
    assert {"read", "sort", "write"} <= {stage["name"] for stage in step["stages"]}
    assert {row["name"] for _, _, row in rows_of(report)} == {MAIN}
    check_sums(report)
    total = sum(stage["wall_seconds"] for stage in step["stages"])
    assert total == pytest.approx(step["seconds"], rel=0.03, abs=2e-4)


def test_programs_at_pipes_are_waited_for(files, disk):
    """A slow writer binds the first pass, a slow reader the last; both ends of the pipes are in the account."""
    command = [ascot_binary(), "sort", *FIXED, *SMALL, "--method", "merge", "--report", "run.json"]
    script = 'for i in 1 2 3 4 5 6 7 8 9; do sleep 0.3; tail -c +$((($i-1)*1000000+1)) "$1" | head -c 1000000; done'
    slow = ["sh", "-c", script, "sh", str(files / "records")]
    with (
        subprocess.Popen(slow, stdout=subprocess.PIPE) as writer,
        subprocess.Popen(["sh", "-c", "sleep 3; cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as reader,
    ):
        ends = {"stdin": writer.stdout, "stdout": reader.stdin}
        subprocess.run(command, **ends, env=clean_environment(), cwd=disk, check=True)
        reader.stdin.close()
    report = json.loads((disk / "run.json").read_text())
    check_sums(report)
    assert {"pipe in", "pipe out"} <= {stage["name"] for step in report["passes"] for stage in step["stages"]}
    assert report["passes"][0]["bound_by"] in ("input", "output")
    seconds = sum(step["seconds"] for step in report["passes"])
    waited = sum(
        stage["waiting_input_seconds"] for step in report["passes"] for stage in step["stages"]
        if stage["name"] == "pipe in"
    )  # fmt: skip
    assert waited >= 0.5 * min(2.7, seconds)


@pytest.mark.parametrize("ways", [("read", "write"), ("write",)], ids=["both", "writing"])
def test_a_slow_volume_is_the_bottleneck(ways, files, disk):
    """Also if it is slow to write: then threads wait for each other and for memory, only its requests are late."""
    with throttled_cgroup(disk, SLOW_BYTES_PER_S, ways) as group:
        options = {"preexec_fn": enter_cgroup(group)}
        report, watched = job_watched(words_of("records by merging", files), disk, **options)
    check_sums(report)
    assert report["seconds"] >= 1.5 * RECORDS * 100 / SLOW_BYTES_PER_S, "the volume is not slow"
    for step in report["passes"]:
        assert step["bound_by"] == "device", step
        assert step["device_seconds"] >= 0.4 * step["seconds"]
        device = next(stage for stage in step["stages"] if stage["name"] == "device")
        assert device["bytes_per_s"] <= 3 * SLOW_BYTES_PER_S
    assert watched.processor_seconds <= report["seconds"]


@pytest.mark.parametrize("threads", [1, 2])
def test_sorting_is_the_bottleneck_of_slow_keys(threads, disk):
    """A file that the page cache holds is sorted by several keys: the pass names the stage that computes."""
    rng = random.Random(3)
    with open(disk / "in", "w") as table:
        table.write("a,b,c\n")
        for _ in range(400_000):
            table.write(f"{rng.randrange(3)},{rng.randrange(5)}e{rng.randrange(9)},{rng.random()}\n")
    words = ["sort", "in", "--csv", "--header", "--key", "a:number,b:number,c:number", "--memory", "256MiB"]
    report, _ = job_watched([*words, "--threads", str(threads), "-o", "out"], disk)
    [step] = report["passes"]
    assert step["bound_by"] in ("sort", "merge"), step
    stage = next(stage for stage in step["stages"] if stage["name"] == step["bound_by"])
    assert stage["busy_seconds"] >= 0.4 * step["seconds"]


def test_the_summary_shows_the_stages(disk):
    run("gen", "200k", "-o", disk / "in")
    words = ["sort", disk / "in", *FIXED, "--memory", "8MiB", "-o", disk / "out"]
    told = run(*words, "--verbose", "--report", disk / "run.json").stderr
    report = json.loads((disk / "run.json").read_text())
    for step in report["passes"]:
        for stage in step["stages"]:
            shown = [line for line in told.splitlines() if line.startswith(f"    {stage['name']} ")]
            assert shown, (stage["name"], told)
            busy = f"busy {100 * stage['busy_seconds'] / stage['wall_seconds']:>3.0f} %"
            assert any(busy in line and "waits for input" in line for line in shown), (busy, shown)
    assert f"{report['passes'][0]['bound_by']} binds" in told
    assert "waits for input" not in run(*words, "--progress", "bar").stderr
