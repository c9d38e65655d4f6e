"""Jobs that end early and can be resumed (signals, full disks, unwritable reports), and the cost of resuming.

The tests stop a job at a known point, which they read from its manifest, and send the signal there.
"""

import hashlib
import json
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest
from support import (
    FIXED,
    METHODS,
    MIB,
    clean_environment,
    digest,
    end_by,
    job_directories,
    job_killed_after_moving,
    kill,
    leave_free,
    leftovers,
    limit_file_size,
    measure,
    memory_cgroup,
    out_of_memory_kills,
    run,
    small_disk,
    sorted_records,
    start,
    stop_where,
)  # fmt: skip

OLD = b"the old result"


def make_records(directory, count):
    """A file of benchmark records, and the digest of the sorted file."""
    path = directory / f"in-{count}"
    run("gen", str(count), "-o", path)
    return path, hashlib.sha256(sorted_records(path.read_bytes())).hexdigest()


@pytest.fixture(scope="module")
def records(module_disk):
    return make_records(module_disk, 200_000)


def words_of(kind, source, disk, *more):
    """A sort with spills in `disk`; with the kind "view" it makes a view."""
    words = ["sort", source, *FIXED, "--memory", "8MiB", *more]
    if kind == "view":
        return [*words, "--view", disk / "out.view"]
    return [*words, "--method", kind, "--temp", disk, "-o", disk / "out"]


def in_first_pass(manifest):
    return (manifest["runs"] or manifest["parts"]) and not manifest["all_read"]


def in_last_pass(manifest):
    return manifest["output"] is not None


def written_by(manifest):
    return manifest["output"]["durable"]["bytes"]


def check_result(kind, disk, right):
    if kind == "view":
        run("view", disk / "out.view", "-o", disk / "out")
        assert not job_directories(disk)
    else:
        assert leftovers(disk) == ["out"]
    assert digest(disk / "out") == right


# In the first pass the tests use SIGTERM and the variable, in the last pass SIGINT and the flag.
POINTS = [(kind, point) for kind in METHODS for point in (in_first_pass, in_last_pass)] + [("view", in_first_pass)]
at_each_point = pytest.mark.parametrize(
    "kind, point", POINTS, ids=lambda it: it if isinstance(it, str) else it.__name__
)  # fmt: skip


# ---------------------------------------------------------------- signals


@at_each_point
def test_a_stopped_job_is_kept_on_request(kind, point, records, disk):
    source, right = records
    name = "SIGTERM" if point is in_first_pass else "SIGINT"
    if kind != "view":
        (disk / "out").write_bytes(OLD)
    flag = ["--keep-on-interrupt"] if name == "SIGINT" else []
    variable = {} if flag else {"ASCOT_KEEP_ON_INTERRUPT": "1"}
    job = start(*words_of(kind, source, disk, *flag), env=clean_environment(**variable))
    stop_where(job, disk, point)
    told = end_by(job, getattr(signal, name))
    assert job.returncode == -getattr(signal, name), "the shell gets the signal"
    (kept,) = job_directories(disk)
    assert (
        told == f"ascot: stopped\n  the job is kept: ascot sort --resume {kept}  continues it; "
        f"ascot clean {kept}  removes it\n"
    )
    assert kind == "view" or (disk / "out").read_bytes() == OLD
    listed = run("clean", "--dry-run", disk).stdout.decode()
    assert f"continue: ascot sort --resume {kept}" in listed
    run("sort", "--resume", kept)
    check_result(kind, disk, right)


@at_each_point
def test_a_stopped_job_is_removed_by_default(kind, point, records, disk):
    job = start(*words_of(kind, records[0], disk))
    stop_where(job, disk, point)
    assert end_by(job, signal.SIGTERM) == ""
    assert job.returncode == -signal.SIGTERM
    assert leftovers(disk) == []


@pytest.mark.parametrize("kind", METHODS)
def test_a_stopped_resumed_job_can_be_resumed_again(kind, records, disk):
    """A resumed job is always kept, without a flag."""
    source, right = records
    job = start(*words_of(kind, source, disk))
    stop_where(job, disk, in_first_pass)
    kill(job)
    written = 0
    for _ in range(2):
        (kept,) = job_directories(disk)
        job = start("sort", "--resume", kept)
        now = stop_where(job, disk, lambda it, least=written: in_last_pass(it) and written_by(it) > least)
        written = written_by(now)
        told = end_by(job, signal.SIGTERM)
        assert job.returncode == -signal.SIGTERM
        assert f"ascot sort --resume {kept}" in told
    run("sort", "--resume", kept)
    check_result(kind, disk, right)


def test_a_job_that_cannot_be_resumed_says_so(records, disk):
    words = ["sort", "-", *FIXED, "--memory", "8MiB", "--temp", disk, "-o", disk / "out", "--keep-on-interrupt"]
    job = start(*words, stdin=subprocess.PIPE)
    job.stdin.write(records[0].read_bytes()[: 30 * MIB])
    job.send_signal(signal.SIGTERM)
    job.stdin.close()
    told = job.stderr.read().decode()
    job.wait(timeout=60)
    assert job.returncode == -signal.SIGTERM
    assert told.startswith("ascot: stopped; no files are kept") and "reads a pipe" in told
    assert leftovers(disk) == []


def test_clean_removes_files_left_by_a_second_signal(records, disk):
    job = start(*words_of("merge", records[0], disk))
    stop_where(job, disk, in_first_pass)
    # The kernel delivers the lower number first: SIGINT asks the job to stop, SIGTERM is the second signal.
    job.send_signal(signal.SIGINT)
    job.send_signal(signal.SIGTERM)
    job.send_signal(signal.SIGCONT)
    job.communicate(timeout=60)
    assert job.returncode in (-signal.SIGTERM, -signal.SIGINT)
    run("clean", disk)
    assert leftovers(disk) == []


# ---------------------------------------------------------------- full disks


@at_each_point
def test_resuming_on_a_full_disk_keeps_the_job(kind, point, records, disk):
    source, right = records
    with small_disk(disk, 120 * MIB) as small:
        job = start(*words_of(kind, source, small))
        state = stop_where(job, small, point)
        kill(job)
        (kept,) = job_directories(small)
        for _ in range(2):
            leave_free(small, MIB)
            # Consumed parts free space for the output; there the test limits the size of the file instead.
            freed = (kind, point) == ("distribute", in_last_pass)
            limit = {"preexec_fn": limit_file_size(written_by(state) + MIB)} if freed else {}
            failed = run("sort", "--resume", kept, expect=2, **limit)
            # The limited file may also fill the volume before a part is freed.
            lacking = ["enough space", "no space left", *(["(ulimit -f)"] if freed else [])]
            assert any(words in failed.stderr for words in lacking), failed.stderr
            assert f"the job is kept: ascot sort --resume {kept}" in failed.stderr
            assert "no spills are left" not in failed.stderr and "nothing is left" not in failed.stderr
            assert job_directories(small) == [kept]
            assert not (small / "out").exists() and not (small / "out.view").exists()
        (small / "filler").unlink()
        run("sort", "--resume", kept)
        check_result(kind, small, right)


def test_resuming_without_an_input_keeps_the_job(records, disk):
    source = disk / "in"
    source.write_bytes(records[0].read_bytes())
    job = start(*words_of("merge", source, disk))
    stop_where(job, disk, in_first_pass)
    kill(job)
    (kept,) = job_directories(disk)
    source.rename(disk / "elsewhere")
    run("sort", "--resume", kept, expect=2)
    (disk / "elsewhere").rename(source)
    run("sort", "--resume", kept)
    source.unlink()
    check_result("merge", disk, records[1])


# ---------------------------------------------------------------- no memory at all


def take_all_memory(process):
    """Lets the system refuse a stopped process all memory, except for the stack of its first thread.

    Returns the error, or None for a job that needed no more memory.
    """
    resource.prlimit(process.pid, resource.RLIMIT_DATA, (1 << 16, 1 << 16))
    process.send_signal(signal.SIGCONT)
    told = process.communicate(timeout=60)[1].decode()
    sys.stderr.write(told)
    if process.returncode == 0:
        return None
    # The command, the C library or the Rust library reports the failure.
    by_whom = ("ascot: ", "Fatal glibc error: ", "memory allocation of ")
    assert process.returncode == 2 and told.startswith(by_whom), f"{process.returncode} {told}"
    return told


def begun(_):
    return True


@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize("point", [begun, in_first_pass])
def test_without_memory_a_job_that_begins_is_removed(kind, point, records, disk):
    job = start(*words_of(kind, records[0], disk))
    stop_where(job, disk, point)
    assert take_all_memory(job)
    assert leftovers(disk) == []


def catches(process, number):
    """Whether a process has a handler for a signal yet."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16) >> (number - 1) & 1


def abort(process):
    """The C library aborts if a starting thread finds no memory."""
    if not catches(process, signal.SIGABRT):
        # The test waited for the old manifest, so the process has only just begun.
        process.send_signal(signal.SIGCONT)
        while process.poll() is None and not catches(process, signal.SIGABRT):
            time.sleep(0.001)
    process.send_signal(signal.SIGABRT)
    process.send_signal(signal.SIGCONT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2 and b"ascot: aborted, probably for lack of memory\n" in said


@pytest.mark.parametrize("kind", METHODS)
def test_an_abort_for_want_of_memory_leaves_what_can_go_on_and_nothing_else(kind, records, disk):
    job = start(*words_of(kind, records[0], disk))
    stop_where(job, disk, in_first_pass)
    abort(job)
    assert leftovers(disk) == []
    job = start(*words_of(kind, records[0], disk, "--keep-on-interrupt"))
    stop_where(job, disk, lambda manifest: manifest["all_read"])
    abort(job)
    (kept,) = job_directories(disk)
    job = start("sort", "--resume", kept)
    stop_where(job, disk, in_last_pass)
    abort(job)
    run("sort", "--resume", kept)
    check_result(kind, disk, records[1])


# A merge near its end needs no more memory.
@pytest.mark.parametrize("kind, point", [("merge", in_first_pass), ("distribute", in_first_pass),
                                         ("distribute", in_last_pass)])  # fmt: skip
def test_without_memory_a_resumed_job_is_kept(kind, point, records, disk):
    job = start(*words_of(kind, records[0], disk))
    before = stop_where(job, disk, in_first_pass)["read_upto"]["offset"]
    kill(job)
    (kept,) = job_directories(disk)
    job = start("sort", "--resume", kept)
    # The job has resumed its work, and is past its start.
    stop_where(job, disk, point if point is in_last_pass else lambda it: it["read_upto"]["offset"] > before)
    assert take_all_memory(job)
    assert job_directories(disk) == [kept]
    run("sort", "--resume", kept)
    check_result(kind, disk, records[1])


@pytest.mark.parametrize("kind", METHODS)
def test_without_memory_a_job_to_be_kept_is_kept_past_its_first_pass(kind, records, disk):
    # A merge that is stopped a little later needs no more memory.
    for _ in range(100):
        job = start(*words_of(kind, records[0], disk, "--keep-on-interrupt"))
        stop_where(job, disk, lambda manifest: manifest["all_read"])
        if take_all_memory(job):
            break
        (disk / "out").unlink()
    (kept,) = job_directories(disk)
    run("sort", "--resume", kept)
    check_result(kind, disk, records[1])


# ---------------------------------------------------------------- less memory than before


def split_with(parts, source, disk):
    """A killed job that distributes its records to `parts` parts, like a job that began with far more memory."""
    for _ in range(10):
        job = start(*words_of("distribute", source, disk))
        stop_where(job, disk, lambda manifest: manifest["way"] != "Merge")
        kill(job)
        (kept,) = job_directories(disk)
        path = kept / "manifest.json"
        manifest = json.loads(path.read_text().splitlines()[0])
        if not manifest["parts"] and not manifest["runs"]:
            break
        run("clean", disk)
    bounds = [(number << 80) // parts for number in range(1, parts)]
    manifest["way"]["Distribute"] = [list(bound.to_bytes(10)) for bound in bounds]
    line = json.dumps(manifest).encode()
    path.write_bytes(line + b'\n{"crc32":"%08x"}\n' % zlib.crc32(line))
    return kept


@pytest.mark.parametrize("parts", [112, 400])
def test_many_parts_go_on_in_little_memory(parts, records, disk):
    """Two blocks per part leave the reader no memory (112 parts), or exceed the memory (400)."""
    kept = split_with(parts, records[0], disk)
    run("sort", "--resume", kept)
    check_result("distribute", disk, records[1])


def test_too_many_parts_say_what_memory_they_need(records, disk):
    kept = split_with(1200, records[0], disk)
    told = run("sort", "--resume", kept, expect=2).stderr
    needed = re.search(r"8 MiB of memory is too little: .* give more \(--memory (\S+)\)", told, re.DOTALL)
    assert needed and f"the job is kept: ascot sort --resume {kept}" in told, told
    with memory_cgroup(18 * MIB) as group:
        refused = measure("sort", "--resume", kept, "--memory", needed[1], cgroup=group)
        assert refused.returncode == 2 and out_of_memory_kills(group) == 0
    assert "the control group leaves" in refused.stderr and "of them for itself" in refused.stderr
    assert "allow the group more memory" in refused.stderr and "--memory" not in refused.stderr
    run("sort", "--resume", kept, "--memory", needed[1])
    check_result("distribute", disk, records[1])


@pytest.mark.parametrize("kind", METHODS)
def test_a_job_goes_on_in_a_smaller_control_group(kind, larger, disk):
    source, moved = larger
    words = bounded_job(kind, source, disk)
    words[words.index("16MiB")] = "64MiB"
    job = start(*words)
    # Memory may hold all that is left before the first checkpoint.
    stop_where(job, disk, lambda manifest: in_first_pass(manifest) or manifest["held"])
    kill(job)
    (kept,) = job_directories(disk)
    with memory_cgroup(14 * MIB) as group:
        refused = measure("sort", "--resume", kept, cgroup=group)
        assert refused.returncode == 2 and "allow the group more memory" in refused.stderr
    with memory_cgroup(28 * MIB) as group:
        done = measure("sort", "--resume", kept, cgroup=group)
        assert out_of_memory_kills(group) == 0, done.stderr
    assert done.returncode == 0 and "memory is lowered from 64 MiB to " in done.stderr
    check_result(kind, disk, moved[kind][1])


# ---------------------------------------------------------------- counts of misfits


def make_misfits(path):
    """A CSV whose column of numbers has misfits everywhere."""
    with open(path, "w") as file:
        file.write("k,n,t\n")
        for row in range(300_000):
            k = f"${row}" if row % 4999 == 4000 else f"{row * 7919 % 300_007}"
            n = "none" if row % 70_000 == 60_000 else f"{row}.5"
            file.write(f"{k},{n},{'x' * (row % 100)}\n")


def columns_of(report):
    columns = json.loads(report.read_text())["columns"]
    report.unlink()
    return columns


@pytest.mark.parametrize("keys", ["k:auto,n:number", "n:auto,-k:number"])
@pytest.mark.parametrize("kind, points", [(kind, (in_first_pass, in_last_pass)) for kind in METHODS]
                         + [("view", (in_first_pass,))])  # fmt: skip
def test_a_resumed_job_counts_each_misfit_once(kind, points, keys, disk):
    source, report, temp = disk / "in.csv", disk / "report", disk / "temp"
    make_misfits(source)
    words = ["sort", source, "--key", keys, "--memory", "8MiB"]
    into = ["--view", temp / "view"] if kind == "view" else ["--method", kind, "--temp", temp, "-o", disk / "out"]
    words += into
    temp.mkdir()
    run(*words, "--report", report)
    right = columns_of(report)
    assert sum(column["misfits"] for column in right) >= 60
    if kind == "view":
        shutil.rmtree(temp / "view")
    job = start(*words)
    reached = 0

    def further(manifest):
        return manifest["read_upto"]["offset"] > reached and in_first_pass(manifest)

    # Killed twice before all input is read, if possible, and once after that.
    for point in (further, further, points[-1]):
        try:
            manifest = stop_where(job, temp, point)
        except AssertionError:
            assert job.returncode == 0, "it was done before"
            break
        reached = manifest["read_upto"]["offset"]
        kill(job)
        (kept,) = job_directories(temp)
        job = start("sort", "--resume", kept, "--report", report)
    assert job.wait(timeout=60) == 0
    assert columns_of(report) == right


# ---------------------------------------------------------------- reports


@pytest.mark.parametrize("kind", METHODS)
def test_an_unwritable_report_leaves_the_old_output_and_the_job(kind, records, disk):
    source, right = records
    (disk / "out").write_bytes(OLD)
    told = run(*words_of(kind, source, disk, "--report", "/dev/full"), expect=2).stderr
    assert told.startswith("ascot: /dev/full: cannot write the report: No space left on device")
    assert (disk / "out").read_bytes() == OLD
    (kept,) = job_directories(disk)
    assert f"ascot sort --resume {kept}" in told
    told = run("sort", "--resume", kept, "--report", "/dev/full", expect=2).stderr
    assert (disk / "out").read_bytes() == OLD and f"--resume {kept}" in told
    before = measure("sort", "--resume", kept, "--report", disk / "report")
    assert before.returncode == 0, before.stderr
    assert before.moved_bytes < 0.6 * source.stat().st_size * 4, "little was left to do"
    (disk / "report").unlink()
    check_result(kind, disk, right)


@pytest.mark.parametrize("more", [["-o", "out"], ["--parts", "2", "-o", "out-{}"], ["--view", "out.view"]])
def test_an_unwritable_report_of_other_jobs_leaves_nothing(more, disk):
    (disk / "in").write_bytes(b"b\na\n" * 1000)
    told = run("sort", "in", *more, "--report", "/dev/full", cwd=disk, expect=2).stderr
    assert "cannot write the report" in told
    for job in job_directories(disk):
        run("clean", job)
    assert leftovers(disk) == ["in"]


def test_a_report_on_a_full_disk_leaves_the_old_output(disk):
    (disk / "in").write_bytes(b"b\na\n" * 1000)
    (disk / "out").write_bytes(OLD)
    with small_disk(disk, 8 * MIB) as small:
        (small / "report").write_bytes(b"{}")
        leave_free(small, 0)
        told = run("sort", disk / "in", "-o", disk / "out", "--report", small / "report", expect=2).stderr
        assert "cannot write the report" in told
        assert (small / "report").read_bytes() == b"{}", "the old report does not change"
        assert leftovers(small) == ["filler", "report"]
    assert (disk / "out").read_bytes() == OLD


# ---------------------------------------------------------------- the cost of resuming


@pytest.fixture(scope="module")
def larger(module_disk):
    """A file of 80 MB, and for each method the bytes moved by sorting it in a fifth of that memory."""
    source = module_disk / "larger"
    run("gen", "800k", "-o", source)
    moved = {}
    for kind in METHODS:
        whole = measure(*bounded_job(kind, source, module_disk))
        assert whole.returncode == 0, whole.stderr
        moved[kind] = whole.moved_bytes, digest(module_disk / "out")
        (module_disk / "out").unlink()
    return source, moved


MEMORY = 16 * MIB


def bounded_job(kind, source, disk):
    return ["sort", source, *FIXED, "--memory", "16MiB", "--method", kind, "--temp", disk, "-o", disk / "out"]


@pytest.mark.parametrize("share", [0.15, 0.3, 0.45, 0.6, 0.75, 0.9])
@pytest.mark.parametrize("kind", METHODS)
def test_resuming_moves_at_most_a_tenth_and_a_memory_load_more(kind, share, larger, disk):
    """Both runs move at most 1.1 times the bytes of an undisturbed job, plus one memory load."""
    source, moved = larger
    whole, right = moved[kind]
    first, kept = job_killed_after_moving(bounded_job(kind, source, disk), whole * share, disk)
    second = measure("sort", "--resume", kept)
    assert second.returncode == 0, second.stderr
    assert digest(disk / "out") == right
    total = first + second.moved_bytes
    sys.stderr.write(f"{kind} killed at {share:.0%}: {total / whole:.3f} times, {(total - whole) / MIB:+.1f} MiB\n")
    assert total <= 1.1 * whole + MEMORY, f"{(total - whole) / MIB:.1f} MiB more than {whole / MIB:.1f}"
