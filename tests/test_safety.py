"""No data is lost: kills and resuming, signals, full disks, few descriptors, other users' files.

The tests compute the expected result of a sort in their own process, without Ascot.
"""

import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from layouts import BY_NAME, make_file, sorted_file
from support import (
    FIXED,
    METHODS,
    MIB,
    ROOT,
    ascot_binary,
    clean_environment,
    digest,
    io_of,
    job_directories,
    job_killed_after_moving,
    kill,
    kill_after_moving,
    leave_free,
    leftovers,
    limit_file_size,
    limit_open_files,
    measure,
    run,
    small_disk,
    sorted_records,
    start,
    taken_below,
)  # fmt: skip


@pytest.fixture(scope="module")
def records(module_disk):
    """A file of benchmark records, and the digest of the sorted file."""
    path = module_disk / "in"
    run("gen", "2M", "-o", path)
    return path, hashlib.sha256(sorted_records(path.read_bytes())).hexdigest()


def sort_words(source, out, temp, method, memory="32MiB"):
    return ["sort", source, *FIXED, "--memory", memory, "--method", method, "--temp", temp, "-o", out]


def kill_after(process, seconds):
    """Kills a process with SIGKILL after a time; False if it ended before."""
    try:
        process.communicate(timeout=seconds)
        return False
    except subprocess.TimeoutExpired:
        kill(process)
        return True


# ---------------------------------------------------------------- kill -9, then resume


@pytest.fixture(scope="module")
def usual_seconds(records, module_disk):
    """Time of an undisturbed job, for each method."""
    times = {}
    for method in METHODS:
        measured = measure(*sort_words(records[0], module_disk / "out", module_disk, method))
        assert measured.returncode == 0, measured.stderr
        times[method] = measured.seconds
    return times


@pytest.mark.slow
@pytest.mark.parametrize("turn", [*range(3), *(pytest.param(turn, marks=pytest.mark.long) for turn in range(3, 10))])
@pytest.mark.parametrize("method", METHODS)
def test_killed_at_any_moment_then_resumed(method, turn, records, usual_seconds, disk):
    source, right = records
    rng = random.Random(f"{method}{turn}")
    out = disk / "out"
    out.write_bytes(b"the old result")
    killed = kill_after(start(*sort_words(source, out, disk, method)), usual_seconds[method] * rng.random())
    jobs = job_directories(disk)
    resumes = 0
    while killed and jobs:
        assert digest(out) in (hashlib.sha256(b"the old result").hexdigest(), right), "whole or not at all"
        # A resumed job may be killed too; the third one runs to its end.
        resumes += 1
        patience = usual_seconds[method] * rng.random() if resumes < 3 else 60
        process = start("sort", "--resume", jobs[0])
        killed = kill_after(process, patience)
        jobs = job_directories(disk)
        assert killed or process.returncode == 0
    if killed:
        # If there is nothing to resume yet, the old result remains.
        assert out.read_bytes() == b"the old result" or digest(out) == right
        run("clean", disk)
        run(*sort_words(source, out, disk, method))
    assert digest(out) == right
    assert [name for name in leftovers(disk) if name != "out"] == []


@pytest.mark.parametrize("share", [0.6, 0.97])
def test_killed_amid_equal_keys(share, disk):
    """A job frees a part of equal keys while it writes it; a resumed job continues with the rest."""
    rng = random.Random(share)
    keys = [b"middle key" if rng.random() < 0.7 else b"%010d" % rng.randrange(10**10) for _ in range(1_500_000)]
    lines = [b"%s%090d" % (key, at) for at, key in enumerate(keys)]
    (disk / "in").write_bytes(b"".join(lines))
    lines.sort(key=lambda line: line[:10])
    right = hashlib.sha256(b"".join(lines)).hexdigest()
    words = sort_words(disk / "in", disk / "out", disk, "distribute")
    whole = measure(*words)
    assert whole.returncode == 0, whole.stderr
    assert digest(disk / "out") == right
    (disk / "out").unlink()
    process = start(*words)
    kill_after_moving(process, whole.moved_bytes * share)
    for job in job_directories(disk):
        run("sort", "--resume", job)
    assert digest(disk / "out") == right
    assert leftovers(disk) == ["in", "out"]


@pytest.mark.slow
@pytest.mark.parametrize("share", [pytest.param(0.5, marks=pytest.mark.long), 0.9])
@pytest.mark.parametrize("method", METHODS)
def test_resuming_moves_little_more(method, share, module_disk, disk):
    """A job killed at 50 or 90 percent and resumed moves at most 1.1 times the bytes of an undisturbed one."""
    source = module_disk / "larger"
    if not source.exists():
        run("gen", "4M", "-o", source)
    words = sort_words(source, disk / "out", disk, method)
    whole = measure(*words)
    assert whole.returncode == 0, whole.stderr
    right = digest(disk / "out")
    (disk / "out").unlink()
    first_life, job = job_killed_after_moving(words, whole.moved_bytes * share, disk)
    second_life = measure("sort", "--resume", job)
    assert second_life.returncode == 0, second_life.stderr
    assert digest(disk / "out") == right
    total = first_life + second_life.moved_bytes
    assert total <= 1.1 * whole.moved_bytes, f"{total / whole.moved_bytes:.2f} times an undisturbed job"
    assert leftovers(disk) == ["out"]


def killed_with_spills(source, out, temp, method="merge"):
    """Runs a job, kills it after it has written spills, and returns its directory."""
    process = start(*sort_words(source, out, temp, method))
    deadline = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < deadline:
        if sum(io_of(process.pid)[1:]) > 100 * MIB:
            break
    kill(process)
    (job,) = job_directories(temp)
    return job


def test_resuming_refuses_a_changed_input(records, disk):
    shutil.copy(records[0], disk / "in")
    job = killed_with_spills(disk / "in", disk / "out", disk)
    with open(disk / "in", "r+b") as file:
        file.write(b"something else")
    told = run("sort", "--resume", job, expect=2).stderr
    assert "changed" in told
    assert not (disk / "out").exists()
    run("clean", disk)
    assert leftovers(disk) == ["in"]


@pytest.mark.parametrize("damage", ["flipped", "zeroed", "cut", "misplaced", "missing"])
def test_damaged_spills_never_give_a_wrong_result(damage, records, disk):
    """After damage to a spill, a resumed job fails and names it, or repeats that part."""
    job = killed_with_spills(records[0], disk / "out", disk)
    spills = sorted((path for path in job.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    victim = spills[-1]
    assert victim.stat().st_size > MIB
    with open(victim, "r+b") as file:
        file.seek(300_000)
        if damage == "flipped":
            file.write(bytes([file.read(1)[0] ^ 1]))
        elif damage == "zeroed":
            file.write(bytes(4096))
        elif damage == "cut":
            file.truncate(300_000)
        elif damage == "misplaced":
            file.seek(0)
            blocks = file.read(MIB)
            file.seek(0)
            file.write(blocks[MIB // 2 :] + blocks[: MIB // 2])
        else:
            victim.unlink()
    done = run("sort", "--resume", job, expect=None)
    if done.returncode == 0:
        assert digest(disk / "out") == records[1]
    else:
        assert done.returncode == 2
        assert not (disk / "out").exists()
        assert job.name in done.stderr


def test_resuming_a_foreign_directory_is_refused(disk):
    (disk / "ascot-none").mkdir()
    (disk / "ascot-none" / "mine").write_text("mine")
    assert run("sort", "--resume", disk / "ascot-none", expect=2).stderr
    assert (disk / "ascot-none" / "mine").read_text() == "mine"


# ---------------------------------------------------------------- signals


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signals_clean_up(name, method, records, usual_seconds, disk):
    for share in (0.1, 0.4, 0.8):
        (disk / "out").write_bytes(b"the old result")
        process = start(*sort_words(records[0], disk / "out", disk, method))
        time.sleep(usual_seconds[method] * share)
        process.send_signal(getattr(signal, name))
        process.communicate(timeout=20)
        if process.returncode == 0:
            continue
        assert process.returncode == -getattr(signal, name) or process.returncode == 128 + getattr(signal, name)
        assert (disk / "out").read_bytes() == b"the old result"
        assert leftovers(disk) == ["out"]


# ---------------------------------------------------------------- the output


def test_the_output_may_replace_an_input(records, disk):
    shutil.copy(records[0], disk / "in")
    run(*sort_words(disk / "in", disk / "in", disk, "merge"))
    assert digest(disk / "in") == records[1]
    assert leftovers(disk) == ["in"]


def test_the_output_keeps_its_mode_and_follows_a_link(disk):
    (disk / "in").write_bytes(b"b\na\n")
    (disk / "in").chmod(0o640)
    (disk / "link").symlink_to("in")
    run("sort", disk / "link", "-o", disk / "link")
    assert (disk / "link").is_symlink()
    assert (disk / "in").read_bytes() == b"a\nb\n"
    assert (disk / "in").stat().st_mode & 0o777 == 0o640


def test_output_to_a_device_and_a_pipe(disk):
    (disk / "in").write_bytes(b"b\na\n")
    run("sort", disk / "in", "-o", "/dev/null")
    assert Path("/dev/null").is_char_device()
    os.mkfifo(disk / "pipe")
    reader = subprocess.Popen(["cat", disk / "pipe"], stdout=subprocess.PIPE)
    run("sort", disk / "in", "-o", disk / "pipe", timeout=20)
    assert reader.communicate(timeout=20)[0] == b"a\nb\n"


def test_an_unwritable_output_is_an_error_at_the_start(records, disk):
    began = time.monotonic()
    done = run(*sort_words(records[0], disk / "missing" / "out", disk, "merge"), expect=2)
    told = f"cannot create {disk}/missing/out: No such file"
    assert told in done.stderr and f"there is no directory {disk}/missing: make it" in done.stderr
    assert time.monotonic() - began < 2
    assert leftovers(disk) == []


def test_an_error_names_the_output_as_it_was_given(disk):
    (disk / "in").write_bytes(b"b\na\n")
    told = run("sort", "in", "-o", "missing/out", cwd=disk, expect=2).stderr
    assert "cannot create missing/out: No such file" in told and ".tmp" not in told
    assert "there is no directory missing: make it" in told
    told = run("sort", "in", "-o", "in/out", cwd=disk, expect=2).stderr
    assert "in/out: Not a directory" in told and ".tmp" not in told


def test_a_full_standard_output_is_an_error(disk):
    (disk / "in").write_bytes(b"b\na\n" * 100_000)
    with open("/dev/full", "wb") as full:
        process = subprocess.run(
            [ascot_binary(), "sort", disk / "in"], stdout=full, stderr=subprocess.PIPE, env=clean_environment()
        )
    assert process.returncode == 2
    assert b"standard output" in process.stderr


# ---------------------------------------------------------------- full disks


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("piped", [False, True], ids=["file", "pipe"])
def test_no_room_for_spills(piped, method, records, disk):
    source = records[0]
    (disk / "out").write_bytes(b"the old result")
    with small_disk(disk, 96 * MIB) as small:
        (small / "mine").write_text("mine")
        words = sort_words("-" if piped else source, disk / "out", small, method)
        with open(source, "rb") as stdin:
            done = run(*words, stdin=stdin, expect=2)
        assert str(small) in done.stderr
        assert leftovers(small) == ["mine"]
    assert (disk / "out").read_bytes() == b"the old result"


@pytest.mark.parametrize("method", METHODS)
def test_no_room_for_the_output(method, records, disk):
    with small_disk(disk, 96 * MIB) as small:
        (small / "out").write_bytes(b"the old result")
        (disk / "temp").mkdir()
        done = run(*sort_words(records[0], small / "out", disk / "temp", method), expect=2)
        assert str(small) in done.stderr
        assert leftovers(small) == ["out"]
        assert (small / "out").read_bytes() == b"the old result"
        assert leftovers(disk / "temp") == []


@pytest.mark.parametrize("method", METHODS)
def test_spills_use_the_directory_with_space(method, records, disk):
    """Two directories for spills, one of them small."""
    with small_disk(disk, 64 * MIB) as small:
        (disk / "roomy").mkdir()
        words = sort_words(records[0], disk / "out", small, method)
        run(*words, "--temp", disk / "roomy")
        assert digest(disk / "out") == records[1]
        assert leftovers(small) == []


def test_a_run_continues_in_another_directory(records, disk):
    """Another program fills a directory while a run is being written there."""
    with small_disk(disk, 400 * MIB) as small:
        (disk / "roomy").mkdir()
        words = sort_words(records[0], disk / "out", small, "merge", "128MiB")
        process = start(*words, "--temp", disk / "roomy")
        while process.poll() is None and taken_below(small) < 20 * MIB:
            time.sleep(0.001)
        leave_free(small, 4 * MIB)
        told = process.communicate(timeout=60)[1]
        assert process.returncode == 0, told
        assert digest(disk / "out") == records[1]
        assert leftovers(small) == ["filler"]


@pytest.mark.parametrize("method", METHODS)
def test_all_directories_for_spills_are_full(method, records, disk):
    """The error names every directory with its free space, and the space needed."""
    with small_disk(disk, 64 * MIB) as small:
        (small / "one").mkdir()
        (small / "other").mkdir()
        words = sort_words(records[0], disk / "out", small / "one", method)
        told = run(*words, "--temp", small / "other", expect=2).stderr
        needed = int(re.search(r"(\d+) MB needed", told)[1])
        # A merge holds the end of the input in memory.
        assert needed == 200 if method == "distribute" else 160 <= needed < 200
        assert f"left on {small / 'one'}" in told
        assert f"left on {small / 'other'}" in told
        assert leftovers(small) == ["one", "other"]


def test_files_may_not_grow(records, disk):
    done = run(
        *sort_words(records[0], disk / "out", disk, "merge"), expect=2, preexec_fn=limit_file_size(MIB)
    )
    assert "the limit of 1.05 MB (ulimit -f)" in done.stderr and "space" not in done.stderr, done.stderr
    assert leftovers(disk) == []


@pytest.mark.parametrize("method", METHODS)
def test_spills_freed_as_they_are_consumed(method, records, disk):
    """Spills and output together take little more than the data, and the report shows their peak."""
    report = disk / "report.json"
    process = start(*sort_words(records[0], disk / "out", disk, method), "--report", report)
    most = 0
    while process.poll() is None:
        most = max(most, taken_below(disk))
        time.sleep(0.005)
    process.communicate()
    assert process.returncode == 0
    assert most <= 1.35 * records[0].stat().st_size
    told = json.loads(report.read_text())
    assert most <= 1.02 * told["peak_disk_bytes"], "the report shows the peak"
    assert told["peak_disk_bytes"] <= 1.1 * told["plan"]["chosen"]["peak_disk_bytes"], "the plan predicts the peak"


# ---------------------------------------------------------------- few descriptors, many jobs, other users' files


@pytest.mark.parametrize("method", METHODS)
def test_few_open_files(method, records, disk):
    """With few descriptors a sort takes more passes or fewer parts, and has the same result."""
    words = sort_words(records[0], disk / "out", disk, method, "16MiB")
    run(*words, preexec_fn=limit_open_files(24))
    assert digest(disk / "out") == records[1]


def test_merging_more_files_than_may_be_open(disk):
    names = [disk / f"part{at:03}" for at in range(200)]
    for at, name in enumerate(names):
        name.write_bytes(b"%03d\n%03d\n" % (at, at + 500))
    done = run("sort", "-m", *names, preexec_fn=limit_open_files(32))
    assert done.stdout == b"".join(b"%03d\n" % at for at in [*range(200), *range(500, 700)])


def test_several_jobs_share_a_directory(records, disk):
    jobs = []
    for at in range(4):
        words = sort_words(records[0], disk / f"out{at}", disk, METHODS[at % 2])
        jobs.append(start(*words))
    for job in jobs:
        assert job.communicate(timeout=120)[1] == b""
        assert job.returncode == 0
    for at in range(4):
        assert digest(disk / f"out{at}") == records[1]
    assert leftovers(disk) == [f"out{at}" for at in range(4)]


def test_spills_are_private(records, disk):
    process = start(*sort_words(records[0], disk / "out", disk, "merge"))
    while process.poll() is None and not job_directories(disk):
        time.sleep(0.001)
    (job,) = job_directories(disk)
    assert job.stat().st_mode & 0o777 == 0o700
    kill(process)


def test_clean_removes_a_job_killed_during_its_cleanup(records, disk):
    """A job removes its directory in steps: it hides the name, then removes the files, the lock and the directory."""
    dead = killed_with_spills(records[0], disk / "out", disk)
    unseen = dead.rename(disk / f".{dead.name}.tmp")
    steps = sorted(unseen.iterdir(), key=lambda path: path.name == "lock")
    assert steps[-1].name == "lock" and len(steps) > 2
    for step in steps:
        shutil.copytree(unseen, disk / "left" / unseen.name)
        run("clean", disk / "left")
        assert leftovers(disk / "left") == []
        step.unlink()
    (disk / "left" / "ascot-0123456789ab").mkdir()
    shutil.copytree(unseen, disk / "left" / unseen.name)
    assert leftovers(disk / "left") != []
    run("clean", disk / "left")
    assert leftovers(disk / "left") == []


def test_clean_removes_leftovers_and_nothing_else(records, disk):
    dead = killed_with_spills(records[0], disk / "out", disk)
    foreign = {
        "ascot-notes.txt": "mine", "ascot-0123/deep/file": "mine", "ascot-7f3a/manifest.json": "{}",
        "ascot-ffff/run-0": "mine", "other/file": "mine",
    }  # fmt: skip
    for name, text in foreign.items():
        (disk / name).parent.mkdir(parents=True, exist_ok=True)
        (disk / name).write_text(text)
    (dead / "not-ours").write_text("mine")
    living = start(*sort_words(records[0], disk / "other" / "out", disk, "merge"))
    while living.poll() is None and len(job_directories(disk)) < 5:
        time.sleep(0.001)

    listed = run("clean", "--dry-run", disk)
    assert dead.name in listed.stdout.decode() + listed.stderr
    assert dead.exists()
    run("clean", disk)

    living.communicate()
    assert living.returncode == 0, "a running job is not removed"
    assert digest(disk / "other" / "out") == records[1]
    for name, text in foreign.items():
        assert (disk / name).read_text() == text
    if dead.exists():
        assert leftovers(dead) == ["not-ours"], "a foreign file in a job's directory stays"


def test_clean_names_the_command_that_resumes(records, disk):
    dead = killed_with_spills(records[0], disk / "out", disk)
    listed = run("clean", "--dry-run", disk)
    assert f"--resume {dead}" in listed.stdout.decode() + listed.stderr


@pytest.mark.parametrize("name", ["lines", "csv", "u64-le", "prefixed-u32"])
def test_other_layouts_resume_too(name, disk):
    layout = BY_NAME[name]
    right = sorted_file(layout, make_file(layout, disk / "in", 40 * MIB))
    words = ["sort", *layout.flags, disk / "in", "--memory", "8MiB", "--temp", disk, "-o", disk / "out"]
    whole = measure(*words)
    assert whole.returncode == 0, whole.stderr
    for share in (0.3, 0.7, 0.95):
        (disk / "out").unlink(missing_ok=True)
        process = start(*words)
        kill_after_moving(process, whole.moved_bytes * share)
        for job in job_directories(disk):
            run("sort", "--resume", job)
        if not (disk / "out").exists():
            run(*words)
        assert (disk / "out").read_bytes() == right
        assert leftovers(disk) == ["in", "out"]


def test_no_spills_in_the_repository():
    """No test leaves spills beside the sources."""
    assert not job_directories(ROOT)


@pytest.mark.parametrize("method", METHODS)
def test_a_volume_that_disappears_is_an_error(method, records, disk):
    source, _ = records
    out = disk / "out"
    out.write_bytes(b"old")
    with small_disk(disk, 700 * MIB) as volume:
        process = start(*sort_words(source, out, volume, method, "24MiB"), stderr=subprocess.PIPE)
        deadline = time.time() + 30
        while process.poll() is None and sum(io_of(process.pid)) < 80 * MIB and time.time() < deadline:
            time.sleep(0.005)
        # Truncate the image of the volume, so that its data disappears.
        os.truncate(disk / "disk.img", 20 * MIB)
        told = process.communicate(timeout=60)[1].decode()
        if process.returncode == 0:
            pytest.skip("done before the volume was gone")
        assert process.returncode == 2 and str(volume) in told, told
        assert out.read_bytes() == b"old"
        assert not [name for name in os.listdir(volume) if name.startswith("ascot-")]
