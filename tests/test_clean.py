"""`ascot clean` removes jobs that cannot be resumed, and keeps the others unless told otherwise."""

import signal
import subprocess
import time

import pytest
from support import MIB, clean_environment, io_of, job_directories, leftovers, run, start

FIXED = ["--format", "fixed:100", "--key", "0..10", "--memory", "8MiB", "--method", "merge"]


@pytest.fixture(scope="module")
def records(module_disk):
    path = module_disk / "in"
    run("gen", "400k", "-o", path)
    run("sort", *FIXED, path, "-o", module_disk / "right", "--temp", module_disk)
    return path, (module_disk / "right").read_bytes()


def killed(source, *words, temps, cwd=None, stdin=None):
    """Kills a job that has written spills; returns its directories in `temps`."""
    places = [word for temp in temps for word in ("--temp", temp)]
    process = start("sort", *FIXED, source, *words, *places, cwd=cwd, **({"stdin": stdin} if stdin else {}))
    deadline = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < deadline and io_of(process.pid)[1] < 20 * MIB:
        time.sleep(0.001)
    process.kill()
    process.wait()
    process.stdout.close()
    process.stderr.close()
    return [job for temp in temps for job in job_directories(temp)]


def clean(*words, cwd, **variables):
    """The output of `ascot clean`; TMPDIR keeps it away from other jobs in /tmp."""
    return run("clean", *words, cwd=cwd, env=clean_environment(TMPDIR=cwd, **variables)).stdout.decode()


def test_resumable_jobs_are_kept_and_listed(records, disk):
    for name in ("spills", "elsewhere"):
        (disk / name).mkdir()
    (job,) = killed(records[0], "-o", disk / "out", temps=[disk / "spills"])
    with subprocess.Popen(["cat", records[0]], stdout=subprocess.PIPE) as pipe:
        jobs = killed("-", "-o", disk / "other", temps=[disk / "spills"], stdin=pipe.stdout)
        pipe.stdout.close()
    (hopeless,) = [path for path in jobs if path != job]

    told = clean("--dry-run", cwd=disk, ASCOT_TMPDIR=disk / "spills")
    assert f"found  {job}" in told and f"found  {hopeless}" in told
    assert hopeless.exists()

    told = clean(cwd=disk, ASCOT_TMPDIR=f"{disk / 'elsewhere'}:{disk / 'spills'}")
    assert f"removed  {hopeless}" in told and not hopeless.exists()
    assert f"kept  {job}" in told and job.exists()
    assert f"ascot sort --resume {job}" in told and f"ascot clean {job}" in told

    told = run("sort", "--resume", disk / "spills", expect=2).stderr
    assert f"{disk / 'spills'}: " in told and "'ascot clean'" in told
    run("sort", "--resume", job)
    assert (disk / "out").read_bytes() == records[1]


def test_a_job_with_a_file_on_standard_input_is_resumable(records, disk):
    with open(records[0], "rb") as stdin:
        (job,) = killed("-", "-o", disk / "out", temps=[disk], stdin=stdin)
    run("sort", "--resume", job, stdin=b"something else\n")
    assert (disk / "out").read_bytes() == records[1]


def test_an_unfinished_output_without_its_job_is_kept(disk):
    (disk / "here").mkdir()
    orphan = disk / "here" / ".out.ascot-0123456789abcdef.tmp"
    orphan.write_bytes(b"x")
    told = clean(cwd=disk / "here")
    assert f"kept  {orphan}" in told and f"remove: ascot clean {disk / 'here'}" in told
    assert orphan.exists()
    told = clean(".", cwd=disk / "here")
    assert f"removed  ./{orphan.name}" in told and not orphan.exists()


def test_all_directories_of_a_job_are_kept(records, disk):
    places = [disk / "one", disk / "other"]
    for place in places:
        place.mkdir()
    jobs = killed(records[0], "-o", disk / "out", temps=places)
    assert len(jobs) == 2
    told = clean(cwd=disk, ASCOT_TMPDIR=places[1])
    assert f"kept  {jobs[1]}" in told and f"ascot sort --resume {jobs[0]}" in told
    run("sort", "--resume", jobs[0])
    assert (disk / "out").read_bytes() == records[1]
    assert leftovers(disk) == ["one", "other", "out"]


@pytest.mark.parametrize("how", ["place", "job", "all"])
def test_named_directories_are_cleaned(how, records, disk):
    (disk / "spills").mkdir()
    (job,) = killed(records[0], "-o", disk / "out", temps=[disk / "spills"])
    words = {"place": [disk / "spills"], "job": [job], "all": ["--all"]}[how]
    told = clean(*words, cwd=disk, ASCOT_TMPDIR=disk / "spills") if how == "all" else clean(*words, cwd=disk)
    assert f"removed  {job}" in told
    assert leftovers(disk) == ["spills"]


def test_the_searched_directories_are_named(disk):
    (disk / "spills").mkdir()
    told = clean(cwd=disk, ASCOT_TMPDIR=disk / "spills")
    assert f"{disk / 'spills'}, {disk}, ." in told.splitlines()[0] and "ascot clean DIR" in told
    told = clean(disk, cwd=disk)
    assert told.strip().endswith(str(disk)) and str(disk / "spills") not in told
    (disk / "spills" / ".out.ascot-0123456789abcdef.tmp").write_bytes(b"x")
    told = run("clean", disk / "missing", disk / "spills", expect=2).stderr
    assert f"{disk / 'missing'}: " in told and "No such file or directory" in told and "ascot clean --dry-run" in told
    assert len(leftovers(disk / "spills")) == 1, "nothing is removed if a directory cannot be searched"


def test_a_running_job_is_reported_as_running(records, disk):
    process = start("sort", *FIXED, records[0], "-o", disk / "out", "--temp", disk)
    deadline = time.monotonic() + 30
    while not job_directories(disk) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGSTOP)
    (job,) = job_directories(disk)
    try:
        told = run("clean", job, expect=2).stderr
        assert f"{job}: " in told and "running" in told and job.exists()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("words", [[], ["."], ["--dry-run"]])
def test_files_of_a_killed_study_are_found_and_those_of_a_running_one_are_kept(words, disk):
    study = ["lab", "sort", "--n", "1e6", "--memory", "100", "--fan-in", "2", "--loops", "50", "--cache", "warm"]
    processes = [start(*study, "--out", disk / name, "--work", disk) for name in ("one", "two")]
    deadline = time.monotonic() + 60
    while len(studies := [path for path in disk.glob(".ascot-lab-*") if any(path.glob("run-*"))]) < 2:
        assert time.monotonic() < deadline and all(process.poll() is None for process in processes)
        time.sleep(0.01)
    try:
        processes[0].kill()
        processes[0].communicate()
        told = clean(*words, cwd=disk)
    finally:
        processes[1].send_signal(signal.SIGINT)
        processes[1].communicate(timeout=60)
    done = "found" if words == ["--dry-run"] else "removed"
    assert told.count(f"{done}  ") == told.count("files of a study of ascot lab") == 1, told
    left = [path for path in studies if path.exists()]
    assert len(left) == (1 if words == ["--dry-run"] else 0), "the running study removes its own"
