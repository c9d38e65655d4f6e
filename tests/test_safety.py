"""Nothing is lost: kills and resuming, signals, full disks, few descriptors, other people's files.

Expected results are kept outside the victim: a file's right order is computed before anything is killed.
"""

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from layouts import BY_NAME, make_file, sorted_file
from support import (
    MIB,
    ROOT,
    ascot_binary,
    clean_environment,
    io_of,
    job_directories,
    leftovers,
    limit_file_size,
    limit_open_files,
    measure,
    run,
    small_disk,
    start,
)  # fmt: skip

FIXED = ["--format", "fixed:100", "--key", "0..10"]
METHODS = ["merge", "distribute"]


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@pytest.fixture(scope="module")
def records(module_disk):
    """A file of benchmark records, and the digest of its right order."""
    path, right = module_disk / "in", module_disk / "right"
    run("gen", "3M", "-o", path)
    data = path.read_bytes()
    keyed = sorted(range(0, len(data), 100), key=lambda at: data[at : at + 10])
    right.write_bytes(b"".join(data[at : at + 100] for at in keyed))
    return path, digest(right)


def sort_words(source, out, temp, method, memory="32MiB"):
    return ["sort", source, *FIXED, "--memory", memory, "--method", method, "--temp", temp, "-o", out]


def kill_after(process, seconds):
    """Kills with SIGKILL after a time; False if it had ended by itself."""
    try:
        process.wait(timeout=seconds)
        return False
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    finally:
        process.stdout.close()
        process.stderr.close()


# ---------------------------------------------------------------- kill -9, then go on


@pytest.fixture(scope="module")
def usual_seconds(records, module_disk):
    """How long the job takes undisturbed, for each method."""
    times = {}
    for method in METHODS:
        measured = measure(*sort_words(records[0], module_disk / "out", module_disk, method))
        assert measured.returncode == 0, measured.stderr
        times[method] = measured.seconds
    return times


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(10))
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
        # A resumed job may be killed too; the third time it is let through.
        resumes += 1
        patience = usual_seconds[method] * rng.random() if resumes < 3 else 60
        process = start("sort", "--resume", jobs[0])
        killed = kill_after(process, patience)
        jobs = job_directories(disk)
        assert killed or process.returncode == 0
    if killed:
        # Killed before there was anything to resume: the old result stands.
        assert out.read_bytes() == b"the old result" or digest(out) == right
        run("clean", disk)
        run(*sort_words(source, out, disk, method))
    assert digest(out) == right
    assert [name for name in leftovers(disk) if name != "out"] == []


@pytest.mark.parametrize("share", [0.6, 0.97])
def test_killed_amid_equal_keys(share, disk):
    """A part of equal keys is freed as it goes out; a killed job finds what is left of it."""
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
    moved_until(process, whole.moved_bytes * share)
    process.stdout.close()
    process.stderr.close()
    for job in job_directories(disk):
        run("sort", "--resume", job)
    assert digest(disk / "out") == right
    assert leftovers(disk) == ["in", "out"]


def moved_until(process, enough):
    """Bytes moved when a running process has moved `enough`, and it is killed then."""
    moved = 0
    while process.poll() is None and moved < enough:
        try:
            moved = sum(io_of(process.pid))
        except (FileNotFoundError, ProcessLookupError):
            break
        time.sleep(0.002)
    if process.poll() is None:
        process.send_signal(signal.SIGSTOP)
        moved = sum(io_of(process.pid))
        process.kill()
    process.wait()
    return moved


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize("method", METHODS)
def test_resuming_moves_little_more(method, share, module_disk, disk):
    """Killed at 50 and at 90 percent, both lives together move at most 1.1 times the bytes of one."""
    source = module_disk / "larger"
    if not source.exists():
        run("gen", "8M", "-o", source)
    words = sort_words(source, disk / "out", disk, method, "64MiB")
    whole = measure(*words)
    assert whole.returncode == 0, whole.stderr
    right = digest(disk / "out")
    (disk / "out").unlink()
    process = start(*words)
    first_life = moved_until(process, whole.moved_bytes * share)
    process.stdout.close()
    process.stderr.close()
    (job,) = job_directories(disk)
    second_life = measure("sort", "--resume", job)
    assert second_life.returncode == 0, second_life.stderr
    assert digest(disk / "out") == right
    total = first_life + second_life.moved_bytes
    assert total <= 1.1 * whole.moved_bytes, f"{total / whole.moved_bytes:.2f} times an uninterrupted job"
    assert leftovers(disk) == ["out"]


def killed_with_spills(source, out, temp, method="merge"):
    """Runs a job and kills it when it has written spills; the job's directory."""
    process = start(*sort_words(source, out, temp, method))
    deadline = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < deadline:
        if sum(io_of(process.pid)[1:]) > 150 * MIB:
            break
    process.kill()
    process.wait()
    process.stdout.close()
    process.stderr.close()
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
def test_damaged_spills_never_pass(damage, records, disk):
    """After damage to a spill the job fails and says where, or does that part again; never a wrong result."""
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


def test_resuming_what_is_no_job(disk):
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


def test_output_onto_an_input(records, disk):
    shutil.copy(records[0], disk / "in")
    run(*sort_words(disk / "in", disk / "in", disk, "merge"))
    assert digest(disk / "in") == records[1]
    assert leftovers(disk) == ["in"]


def test_output_keeps_mode_and_goes_through_a_link(disk):
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


def test_an_unwritable_output_is_told_first(records, disk):
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
def test_spills_go_where_there_is_room(method, records, disk):
    """Two temporary places, one of them small."""
    with small_disk(disk, 64 * MIB) as small:
        (disk / "roomy").mkdir()
        words = sort_words(records[0], disk / "out", small, method)
        run(*words, "--temp", disk / "roomy")
        assert digest(disk / "out") == records[1]
        assert leftovers(small) == []


def test_a_run_goes_on_where_there_is_room(records, disk):
    """The room of a place is taken by others while a run is being written there."""
    with small_disk(disk, 400 * MIB) as small:
        (disk / "roomy").mkdir()
        words = sort_words(records[0], disk / "out", small, "merge", "128MiB")
        process = start(*words, "--temp", disk / "roomy")
        while process.poll() is None and blocks_below(small) < 20 * MIB:
            time.sleep(0.001)
        with open(small / "foreign", "wb") as foreign:
            left = os.statvfs(small)
            os.posix_fallocate(foreign.fileno(), 0, left.f_bavail * left.f_frsize - 4 * MIB)
        told = process.communicate(timeout=60)[1]
        assert process.returncode == 0, told
        assert digest(disk / "out") == records[1]
        assert leftovers(small) == ["foreign"]


@pytest.mark.parametrize("method", METHODS)
def test_no_room_anywhere(method, records, disk):
    """The error names every place, what was needed and what each has left."""
    with small_disk(disk, 64 * MIB) as small:
        (small / "one").mkdir()
        (small / "other").mkdir()
        words = sort_words(records[0], disk / "out", small / "one", method)
        told = run(*words, "--temp", small / "other", expect=2).stderr
        assert "300 MB needed" in told
        assert f"left on {small / 'one'}" in told
        assert f"left on {small / 'other'}" in told
        assert leftovers(small) == ["one", "other"]


def test_files_may_not_grow(records, disk):
    done = run(
        *sort_words(records[0], disk / "out", disk, "merge"), expect=2, preexec_fn=limit_file_size(MIB)
    )
    assert done.stderr.startswith("ascot")
    assert leftovers(disk) == []


@pytest.mark.parametrize("method", METHODS)
def test_spills_freed_as_they_are_consumed(method, records, disk):
    """Spills and output together never take much more than the data itself, and the report says how much."""
    report = disk / "report.json"
    process = start(*sort_words(records[0], disk / "out", disk, method), "--report", report)
    most = 0
    while process.poll() is None:
        most = max(most, blocks_below(disk))
        time.sleep(0.005)
    process.communicate()
    assert process.returncode == 0
    assert most <= 1.35 * records[0].stat().st_size
    told = json.loads(report.read_text())
    assert most <= 1.02 * told["peak_disk_bytes"], "what was really taken"
    assert told["peak_disk_bytes"] <= 1.1 * told["plan"]["chosen"]["peak_disk_bytes"], "as planned"


def blocks_below(directory):
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.stat(os.path.join(place, name)).st_blocks * 512
    return total


# ---------------------------------------------------------------- few descriptors, many jobs, other people's files


@pytest.mark.parametrize("method", METHODS)
def test_few_open_files(method, records, disk):
    """Many runs, few descriptors: more passes or fewer parts, the same result."""
    words = sort_words(records[0], disk / "out", disk, method, "16MiB")
    run(*words, preexec_fn=limit_open_files(24))
    assert digest(disk / "out") == records[1]


def test_merging_more_files_than_may_be_open(disk):
    names = [disk / f"part{at:03}" for at in range(200)]
    for at, name in enumerate(names):
        name.write_bytes(b"%03d\n%03d\n" % (at, at + 500))
    done = run("sort", "-m", *names, preexec_fn=limit_open_files(32))
    assert done.stdout == b"".join(b"%03d\n" % at for at in [*range(200), *range(500, 700)])


def test_several_jobs_in_one_place(records, disk):
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
    process.kill()
    process.communicate()


def test_clean_removes_what_a_job_killed_at_its_very_end_left(records, disk):
    """A job goes the way of its directory: a name nobody sees, then its files, its lock, itself."""
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
    assert living.returncode == 0, "a job at work is left alone"
    assert digest(disk / "other" / "out") == records[1]
    for name, text in foreign.items():
        assert (disk / name).read_text() == text
    if dead.exists():
        assert leftovers(dead) == ["not-ours"], "a foreign file in a job's directory stays"


def test_a_later_job_tells_of_a_killed_one(records, disk):
    """Not a promise of every job; `clean --dry-run` is: it names the command that goes on."""
    dead = killed_with_spills(records[0], disk / "out", disk)
    listed = run("clean", "--dry-run", disk)
    assert f"--resume {dead}" in listed.stdout.decode() + listed.stderr


@pytest.mark.parametrize("name", ["lines", "csv", "u64-le", "prefixed-u32"])
def test_other_layouts_resume_too(name, disk):
    layout = BY_NAME[name]
    records = make_file(layout, disk / "in", 40 * MIB)
    words = ["sort", *layout.flags, disk / "in", "--memory", "8MiB", "--temp", disk, "-o", disk / "out"]
    whole = measure(*words)
    assert whole.returncode == 0, whole.stderr
    for share in (0.3, 0.7, 0.95):
        (disk / "out").unlink(missing_ok=True)
        process = start(*words)
        moved_until(process, whole.moved_bytes * share)
        process.stdout.close()
        process.stderr.close()
        for job in job_directories(disk):
            run("sort", "--resume", job)
        if not (disk / "out").exists():
            run(*words)
        assert (disk / "out").read_bytes() == sorted_file(layout, records)
        assert leftovers(disk) == ["in", "out"]


def test_the_repository_stays_as_it_is():
    """No test leaves spills beside the sources."""
    assert not job_directories(ROOT)


@pytest.mark.parametrize("method", METHODS)
def test_a_volume_that_vanishes_is_an_error(method, records, disk):
    source, _ = records
    out = disk / "out"
    out.write_bytes(b"old")
    with small_disk(disk, 700 * MIB) as volume:
        process = start(*sort_words(source, out, volume, method, "24MiB"), stderr=subprocess.PIPE)
        deadline = time.time() + 30
        while process.poll() is None and sum(io_of(process.pid)) < 80 * MIB and time.time() < deadline:
            time.sleep(0.005)
        # The image behind the volume is cut: what was written is gone, what is read is not there.
        os.truncate(disk / "disk.img", 20 * MIB)
        told = process.communicate(timeout=60)[1].decode()
        if process.returncode == 0:
            pytest.skip("done before the volume was gone")
        assert process.returncode == 2 and str(volume) in told, told
        assert out.read_bytes() == b"old"
        assert not [name for name in os.listdir(volume) if name.startswith("ascot-")]
