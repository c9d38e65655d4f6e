"""Jobs that write their result as several files, one after another, are killed and resumed.

The tests stop a job at a known point, which they read from its manifest, or at the rename of a file.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support import (
    METHODS,
    MIB,
    ascot_binary,
    clean_environment,
    digest,
    end_by,
    job_directories,
    job_killed_after_moving,
    kill,
    leftovers,
    manifests,
    measure,
    run,
    start,
    stop_where,
)  # fmt: skip

RECORDS = 400_000
PARTS = 7
NAMES = [f"out-{number}" for number in range(PARTS)]
# Many records have the same key, so that parts end where a new key begins and not where they have their share.
FEW_KEYS = ["--format", "fixed:100", "--key", "0..1"]
KINDS = [*METHODS, "reshape"]


@pytest.fixture(scope="module")
def inputs(module_disk):
    """Benchmark records, and the same in twenty files sorted by the first byte."""
    whole = module_disk / "whole"
    run("gen", str(RECORDS), "-o", whole)
    files = []
    for number in range(20):
        path = module_disk / f"sorted-{number:02}"
        run("gen", "20000", "--start", str(20_000 * number), "-o", path)
        run("sort", path, *FEW_KEYS, "-o", path)
        files.append(path)
    return whole, files


def words_of(kind, inputs, disk, *more):
    whole, files = inputs
    if kind == "reshape":
        words = ["reshape", *files, *FEW_KEYS, "--batch-size", "4"]
    else:
        words = ["sort", whole, *FEW_KEYS, "--stable", "--method", kind]
    return [*words, "--memory", "8MiB", "--temp", disk, "--parts", str(PARTS), "-o", disk / "out-{}", *more]


@pytest.fixture(scope="module")
def right(inputs, module_disk):
    """The digests of the parts that an undisturbed job of each kind writes, and the bytes that it moves."""
    found = {}
    for kind in KINDS:
        place = module_disk / kind
        place.mkdir()
        done = measure(*words_of(kind, inputs, place))
        assert done.returncode == 0, done.stderr
        found[kind] = [digest(place / name) for name in NAMES], done.moved_bytes
        shutil.rmtree(place)
    return found


def in_first_pass(manifest):
    return (manifest["runs"] or manifest["parts"]) and not manifest["all_read"]


def sealed(manifest):
    output = manifest["output"]
    return len(output["durable"]["files"]["sealed"]) if output else -1


def in_last_pass(manifest):
    return sealed(manifest) >= 0


def past_three_parts(manifest):
    return sealed(manifest) >= 3


def check(kind, right, disk):
    assert leftovers(disk) == NAMES
    assert [digest(disk / name) for name in NAMES] == right[kind][0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("points", [[in_first_pass], [in_last_pass], [past_three_parts],
                                    [in_first_pass, in_last_pass, past_three_parts]],
                         ids=["first-pass", "last-pass", "later-part", "all"])  # fmt: skip
def test_a_killed_job_writes_the_same_parts(kind, points, inputs, right, disk):
    words = words_of(kind, inputs, disk)
    for point in points:
        job = start(*words)
        state = stop_where(job, disk, point)
        kill(job)
        assert not [name for name in leftovers(disk) if name in NAMES], "no part has its name before all are complete"
        (kept,) = job_directories(disk)
        words = ["sort", "--resume", kept]
    report = disk / "report.json"
    run(*words, "--report", report)
    told = json.loads(report.read_text())
    report.unlink()
    check(kind, right, disk)
    assert told["resumed"] and told["records_in"] == told["records_out"] == RECORDS
    if state["output"]:
        # What was durable is not written again. Manifests count, too.
        durable = state["output"]["durable"]["files"]["taken"]
        assert told["moved"]["written_bytes"] <= RECORDS * 100 - durable + 4 * MIB, (told["moved"], durable)


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_stopped_in_its_last_pass_is_kept_on_request(kind, inputs, right, disk):
    job = start(*words_of(kind, inputs, disk, "--keep-on-interrupt"))
    stop_where(job, disk, past_three_parts)
    told = end_by(job, signal.SIGINT)
    (kept,) = job_directories(disk)
    assert f"ascot sort --resume {kept}" in told
    run("sort", "--resume", kept)
    check(kind, right, disk)


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_stopped_in_its_last_pass_is_removed_by_default(kind, inputs, disk):
    job = start(*words_of(kind, inputs, disk))
    stop_where(job, disk, past_three_parts)
    assert end_by(job, signal.SIGTERM) == ""
    assert leftovers(disk) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_job_is_removed_with_its_parts(kind, inputs, disk):
    job = start(*words_of(kind, inputs, disk))
    stop_where(job, disk, past_three_parts)
    kill(job)
    (kept,) = job_directories(disk)
    run("clean", kept)
    assert leftovers(disk) == []


def killed_once(reached, words):
    """Runs a command, whose every rename takes long, and kills it once `reached()` holds."""
    slow = ["strace", "-f", "-o", "/dev/null", "-e", "trace=rename", "-e", "inject=rename:delay_exit=30000"]
    traced = subprocess.Popen([*slow, ascot_binary(), *words], env=clean_environment())
    while not reached():
        assert traced.poll() is None, "the job ended before"
        time.sleep(0.001)
    os.kill(int(Path(f"/proc/{traced.pid}/task/{traced.pid}/children").read_text()), signal.SIGKILL)
    assert traced.wait(timeout=60) == -signal.SIGKILL, "strace ends as its program does"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("named", [0, 4, PARTS])
def test_a_job_killed_while_parts_get_their_names_gives_the_others_theirs(kind, named, inputs, right, disk):
    for name in NAMES:
        (disk / name).write_bytes(b"old")

    def reached():
        complete = any(manifest["finished"] for manifest in manifests(disk))
        return complete and (named == 0 or (disk / NAMES[named - 1]).stat().st_size > 3)

    killed_once(reached, words_of(kind, inputs, disk))
    sizes = [(disk / name).stat().st_size for name in NAMES]
    assert [size > 3 for size in sizes] == [number < named for number in range(PARTS)], sizes
    (kept,) = job_directories(disk)
    report = disk / "report.json"
    run("sort", "--resume", kept, "--report", report)
    told = json.loads(report.read_text())
    report.unlink()
    check(kind, right, disk)
    assert told["records_out"] == RECORDS and told["resumed"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_and_resumed_job_moves_little_more(kind, inputs, right, disk):
    """Both runs move at most 1.1 times the bytes of an undisturbed job, plus one memory load."""
    whole = right[kind][1]
    first, kept = job_killed_after_moving(words_of(kind, inputs, disk), whole * 0.8, disk)
    second = measure("sort", "--resume", kept)
    assert second.returncode == 0, second.stderr
    check(kind, right, disk)
    total = first + second.moved_bytes
    assert total <= 1.1 * whole + 8 * MIB, f"{(total - whole) / MIB:.1f} MiB more than {whole / MIB:.1f}"


@pytest.mark.parametrize("change", ["missing", "another"])
def test_a_job_whose_complete_part_changed_is_refused(change, inputs, disk):
    job = start(*words_of("merge", inputs, disk))
    state = stop_where(job, disk, past_three_parts)
    kill(job)
    first = state["temporaries"][0]
    shutil.move(first, disk / "moved")
    if change == "another":
        shutil.copy(disk / "moved", first)
    (kept,) = job_directories(disk)
    refused = run("sort", "--resume", kept, expect=2)
    assert first.rsplit("/", 1)[1] in refused.stderr, refused
    assert job_directories(disk) == [kept]


def test_lines_of_equal_keys_share_a_part_also_after_a_kill(disk):
    """The last record of the open part is a line, and so is its key."""
    source = disk / "in"
    source.write_text("".join(f"{number % 90}\n" for number in range(9_000_000)))
    words = ["sort", source, "-n", "--memory", "8MiB", "--temp", disk, "--parts", "9", "-o", disk / "out-{}"]
    run(*words)
    undisturbed = [(disk / f"out-{number}").read_bytes() for number in range(9)]
    assert b"".join(undisturbed).count(b"\n") == 9_000_000
    for least in (0, 3, 6):
        job = start(*words)
        stop_where(job, disk, lambda manifest, least=least: sealed(manifest) >= least)
        kill(job)
        (kept,) = job_directories(disk)
        run("sort", "--resume", kept)
        assert [(disk / f"out-{number}").read_bytes() for number in range(9)] == undisturbed
    assert leftovers(disk) == ["in", *(f"out-{number}" for number in range(9))]
