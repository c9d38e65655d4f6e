"""`ascot trace`: namespaces, execs by threads, killed recordings, files of the program, space that is given back."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support import ascot_binary, census, clean_environment, run, start
from test_trace import events, file_of, python, record, requests

pytestmark = pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")

BLOCK = 4096


def may_unshare():
    done = subprocess.run(["unshare", "-p", "-f", "true"], capture_output=True)
    return done.returncode == 0


@pytest.mark.skipif(not shutil.which("unshare") or not may_unshare(), reason="needs PID namespaces")
def test_processes_in_a_pid_namespace_share_positions(disk):
    (disk / "in").write_bytes(bytes(1000))
    script = (
        "exec 3<in; head -c 100 <&3 >/dev/null; dd bs=10 count=1 status=none <&3; dd bs=10 count=1 status=none <&3"
    )
    trace, _ = record(disk, "unshare", "-p", "-f", "sh", "-c", f"{script} >/dev/null")
    read = [(offset, size) for name, kind, offset, size in requests(trace, disk) if (name, kind) == ("in", "read")]
    last = [offset for offset, size in read if size == 10]
    assert len(last) == 2 and last[1] == last[0] + 10, read
    counted = census(trace)
    assert counted["unseen_requests"] == 0 and not counted["incomplete"]


EXEC_BY_A_THREAD = """
import os, threading
f = os.open("in", os.O_RDONLY)
os.set_inheritable(f, True)
os.read(f, 10)
lost = os.open("lost", os.O_RDONLY)
threading.Thread(target=lambda: os.execv("/bin/sh", ["sh", "-c", f"cat <&{f} >out"])).start()
threading.Event().wait()
"""


def test_any_thread_may_run_another_program(disk):
    (disk / "in").write_bytes(bytes(5000))
    (disk / "lost").write_bytes(b"x")
    trace, _ = record(disk, *python(EXEC_BY_A_THREAD))
    assert ("in", "read", 10, 4990) in requests(trace, disk)
    assert ("out", "write", 0, 4990) in requests(trace, disk)
    counted = census(trace)
    assert counted["unseen_requests"] == 0 and not counted["incomplete"]


def test_killed_processes_end(disk):
    """Their descriptors are closed, so that removed files are gone."""
    script = "exec 3>f; rm f; sleep 50 & kill $!; wait; exec 3>&-; sh -c 'exec 3>g; rm g; kill -9 $$'; true"
    trace, _ = record(disk, "sh", "-c", script)
    assert [name for name, kind, _, _ in events(trace, disk) if kind == "delete"] == ["f", "g"]
    assert not census(trace)["incomplete"]


def child_of(process):
    return int(Path(f"/proc/{process}/task/{process}/children").read_text().split()[0])


def test_a_killed_strace_leaves_a_trace_that_says_so(disk):
    code = "import time\nfor n in range(600):\n open(f'f{n}', 'w').write('x'); time.sleep(0.1)"
    process = start("trace", "record", "-o", disk / "run.trace", "--", *python(code), cwd=disk)
    while not (disk / "f3").exists():
        assert process.poll() is None
        time.sleep(0.01)
    strace = child_of(process.pid)
    program = child_of(strace)
    os.kill(strace, signal.SIGKILL)
    _, told = process.communicate(timeout=60)
    with contextlib.suppress(ProcessLookupError):
        os.kill(program, signal.SIGKILL)
    assert process.returncode == 2
    assert b"strace was killed by signal 9" in told and b"incomplete" in told
    trace = disk / "run.trace"
    assert census(trace)["incomplete"]
    mark = "incomplete: the recording ended before the program did"
    assert mark in run("trace", "show", trace).stdout.decode()
    shutil.copy(trace, disk / "other.trace")
    page = disk / "page.html"
    assert f"run.trace: {mark}" in run("trace", "compare", trace, disk / "other.trace", "-o", page).stdout.decode()
    assert mark in page.read_text()
    run("trace", "plot", trace, "-o", page)
    assert mark in page.read_text()
    assert mark in run("trace", "replay", trace, "--on", "rotational").stderr
    run("trace", "cut", trace, "--from", "0s", "-o", disk / "part.trace")
    assert census(disk / "part.trace")["incomplete"]
    assert not census(record(disk, "true")[0])["incomplete"]


def test_a_trace_that_the_command_names_is_refused_before_it_runs(disk):
    (disk / "mine").write_text("mine")
    os.link(disk / "mine", disk / "same")
    for words in (["cat", "same"], ["sh", "-c", "exit", f"of={disk / 'mine'}"], ["sort", "-omine"]):
        done = run("trace", "record", "-o", "mine", "--", *words, cwd=disk, expect=2)
        assert "would replace the argument" in done.stderr and "did not run" in done.stderr
    done = run("trace", "record", "-o", "new", "--", "touch", "ran", "./new", cwd=disk, expect=2)
    assert "-o FILE" in done.stderr and not (disk / "ran").exists()
    with open(disk / "mine") as given:
        command = [ascot_binary(), "trace", "record", "-o", "same", "--", "touch", "ran"]
        done = subprocess.run(command, stdin=given, cwd=disk, env=clean_environment(), capture_output=True, text=True)
    assert done.returncode == 2 and "standard input" in done.stderr and not (disk / "ran").exists()
    assert (disk / "mine").read_text() == "mine"


def test_a_file_that_the_program_opened_is_not_replaced(disk):
    done = run("trace", "record", "-o", "result", "--", "sh", "-c", "echo mine > result", cwd=disk, expect=2)
    assert "has opened or made this file" in done.stderr and (disk / "result").read_text() == "mine\n"
    assert "ascot trace convert result.log -o result.trace" in done.stderr
    run("trace", "convert", "result.log", "-o", "result.trace", cwd=disk)
    assert file_of(census(disk / "result.trace"), "result")["written_bytes"] == 5
    for maker in ("mv", "ln"):
        (disk / "data").write_text("data")
        done = run("trace", "record", "-o", "made", "--", "sh", "-c", f"n=ade; {maker} data m$n", cwd=disk, expect=2)
        assert "has opened or made this file" in done.stderr and (disk / "made").read_text() == "data"
        (disk / "made").unlink()


def test_holes_and_truncation_give_space_back(disk):
    hole = f"""
import ctypes, os
f = os.open("a", os.O_RDWR | os.O_CREAT | os.O_EXCL)
os.write(f, bytes({100 * BLOCK}))
assert ctypes.CDLL(None, use_errno=True).fallocate(f, 3, ctypes.c_long(0), ctypes.c_long({90 * BLOCK})) == 0
os.write(os.open("b", os.O_RDWR | os.O_CREAT | os.O_EXCL), bytes({90 * BLOCK}))
os.ftruncate(f, 0)
os.write(os.open("c", os.O_RDWR | os.O_CREAT | os.O_EXCL), bytes({10 * BLOCK}))
g = os.open("d", os.O_RDWR | os.O_CREAT | os.O_EXCL)
os.pwrite(g, b"x", 0)
os.pwrite(g, b"x", 1 << 40)
"""
    trace, _ = record(disk, *python(hole))
    alone = disk / "alone.trace"
    run("trace", "record", "-o", alone, "--", *python("import ctypes, os"), cwd=disk)
    assert ("a", "hole", 0, 90 * BLOCK) in events(trace, disk)
    counted, before = census(trace), census(alone)
    assert counted["peak_live_bytes"] - before["peak_live_bytes"] <= 103 * BLOCK
    told = json.loads(run("trace", "replay", trace, "--on", "rotational", "--json").stdout)
    assert told["live_bytes"] == counted["peak_live_bytes"]
    # One block stays between two ranges of a file with a hole between them.
    assert 0 <= told["volume_bytes"] - told["live_bytes"] <= 2 * BLOCK


SHUFFLED = """
import os
f = os.open("a", os.O_RDWR)
for n in range(200):
    os.pread(f, 4096, n * 77 % 200 * 10 * 4096 + 4096)
"""


@pytest.mark.parametrize(
    "case", ["a hole behind the data", "grown by the program", "written whole, read in part", "holes"]
)
def test_reads_across_gaps_are_switches_in_the_replay(disk, case):
    (disk / "a").write_bytes(os.urandom(2000 * BLOCK))
    code = SHUFFLED
    if case == "a hole behind the data":
        os.truncate(disk / "a", 2000 * BLOCK + (1 << 20))
    elif case == "grown by the program":
        code = code.replace("for n", "os.ftruncate(f, 16 << 20)\nfor n", 1)
    elif case == "written whole, read in part":
        code = """
import os, time
f = os.open("a", os.O_RDWR | os.O_CREAT | os.O_EXCL)
os.write(f, bytes(401 * 4096))
time.sleep(0.5)
for n in range(200):
    os.pread(f, 4096, (2 * n + 1) * 4096)
"""
        (disk / "a").unlink()
    else:
        (disk / "a").write_bytes(b"")
        os.truncate(disk / "a", 2000 * BLOCK)
    trace, _ = record(disk, *python(code))
    if case == "written whole, read in part":
        lines = run("trace", "export", trace, "--csv", "-").stdout.decode(errors="replace").splitlines()
        written = next(int(line.split(",")[0]) for line in lines if line.endswith(f",write,0,{401 * BLOCK},{disk}/a"))
        run("trace", "cut", trace, "--from", f"{(written + 1) / 1e9:.9f}s", "-o", disk / "part.trace")
        trace = disk / "part.trace"
    assert file_of(census(trace), "a")["runs"] == 200
    told = json.loads(run("trace", "replay", trace, "--on", "rotational", "--json").stdout)
    # Other files are read as well, such as the library of the interpreter.
    assert 200 <= told["switches_without_cache"] <= census(trace)["runs"]


def test_a_file_with_holes_takes_what_was_written(disk):
    """It is not known to have been empty before, but it has holes afterwards."""
    code = "import os; f = os.open('a', os.O_RDWR | os.O_CREAT); os.pwrite(f, b'x', 0); os.pwrite(f, b'x', 1 << 40)"
    trace, _ = record(disk, *python(code))
    assert census(trace)["peak_live_bytes"] < 1 << 30


def test_a_replayed_scan_of_two_processes_reads_every_block_once_each(disk):
    (disk / "in").write_bytes(bytes(400_000))
    code = """
import os
def scan(f):
    for _ in range(400):
        os.read(f, 1000)
        yield
one, other = scan(os.open("in", os.O_RDONLY)), scan(os.open("in", os.O_RDONLY))
for _ in range(400):
    next(one), next(other)
"""
    trace, _ = record(disk, *python(code))
    run("trace", "record", "-o", disk / "alone.trace", "--", *python("import os"), cwd=disk)
    told = [
        json.loads(run("trace", "replay", path, "--on", "rotational", "--json").stdout)["read_bytes"]
        for path in (trace, disk / "alone.trace")
    ]
    assert told[0] - told[1] == 2 * (400_000 // BLOCK + 1) * BLOCK


def converted(disk, *lines):
    (disk / "log").write_text("".join(f"1 1700000000.00000{n} {line}\n" for n, line in enumerate(lines)))
    run("trace", "convert", disk / "log", "-o", disk / "run.trace")
    return disk / "run.trace"


def test_a_log_for_fio_is_whole_or_not_there(disk):
    opened = 'openat(AT_FDCWD</d>, "a", O_RDWR) = 3</d/a>'
    beyond = converted(
        disk, opened, 'pread64(3</d/a>, ""..., 5, 7) = 5', 'pread64(3</d/a>, ""..., 1, 9300000000000000000) = 1'
    )
    before = sorted(os.listdir(disk))
    done = run("trace", "export", beyond, "--fio", disk / "fio", expect=2)
    assert "/d/a: a request ends at byte 9300000000000000001" in done.stderr and sorted(os.listdir(disk)) == before
    other = 'openat(AT_FDCWD</d>, "b", O_RDWR) = 4</d/b>'
    long = converted(
        disk, opened, other, 'write(3</d/a>, ""..., 5) = 5', f'pread64(4</d/b>, ""..., 1, {1 << 62}) = 1'
    )
    done = run("trace", "export", long, "--fio", disk / "fio", expect=None)
    if done.returncode == 0:
        pytest.skip("the file system allows files of 2^62 bytes")
    assert sorted(os.listdir(disk)) == before


def test_a_closed_pipe_ends_an_export_quietly(disk):
    opened = 'openat(AT_FDCWD</d>, "a", O_RDWR) = 3</d/a>'
    with open(disk / "log", "w") as log:
        log.write(f"1 1700000000.000001 {opened}\n")
        log.writelines(f'1 1700000000.{n % 1000000:06} read(3</d/a>, ""..., 5) = 5\n' for n in range(200_000))
    run("trace", "convert", disk / "log", "-o", disk / "run.trace")
    words = [ascot_binary(), "trace", "export", disk / "run.trace", "--csv", "-"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.read(10) == b"time_ns,pi"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == -signal.SIGPIPE, "as other commands"


def test_text_and_bytes_do_not_mix(disk):
    (disk / "in").write_text("b\na\n")
    command = [ascot_binary(), "trace", "record", "-o", "-", "--", "cat", "in"]
    with open(disk / "out.trace", "wb") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, cwd=disk, env=clean_environment())
    assert done.returncode == 0 and b"b\na\n" in done.stderr
    assert file_of(census(disk / "out.trace"), "in")["read_bytes"] == 4
    trace = disk / "out.trace"
    assert "would mix" in run("trace", "compare", trace, "-o", "-", expect=2).stderr
    assert "would mix" in run("sort", disk / "in", "--trace", "-", expect=2).stderr
    done = run("trace", "export", trace, "--csv", "-", "--fio", "/dev/stdout", "--fio-dir", disk / "f", expect=2)
    assert "two outputs have this name" in done.stderr
    run("sort", disk / "in", "--trace", "-", "-o", disk / "sorted")


def test_a_trace_that_cannot_be_written_leaves_the_output(disk):
    (disk / "in").write_text("b\na\n")
    done = run("sort", "in", "--trace", "/dev/full", "-o", "out", cwd=disk, expect=2)
    assert "/dev/full: the job is done, but its trace cannot be written" in done.stderr
    assert (disk / "out").read_text() == "a\nb\n"


def test_traces_and_logs_come_through_pipes(disk):
    (disk / "in").write_bytes(bytes(10_000))
    trace, log = disk / "run.trace", disk / "run.trace.log"
    run("trace", "record", "--keep-log", "-o", trace, "--", "cat", "in", cwd=disk)

    def through_a_pipe(file, *words):
        return run("trace", *words, stdin=file.read_bytes(), cwd=disk).stdout

    assert through_a_pipe(trace, "export", "-", "--csv", "-") == run("trace", "export", trace, "--csv", "-").stdout
    assert b"<title>" in through_a_pipe(trace, "plot", "-", "-o", "-")
    assert b"mean run" in through_a_pipe(trace, "compare", "/dev/stdin", trace)
    run("trace", "convert", log, "-o", disk / "of-file.trace")
    through_a_pipe(log, "convert", "-", "-o", "of-pipe.trace")
    assert events(disk / "of-pipe.trace", disk) == events(disk / "of-file.trace", disk) != []


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="needs an unprivileged user")
def test_an_error_names_the_output_and_no_temporary_file(disk):
    trace, _ = record(disk, "true")
    locked = disk / "locked"
    locked.mkdir()
    locked.chmod(0o555)
    trace.chmod(0o644)
    disk.chmod(0o755)
    as_user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] if os.geteuid() == 0 else []
    for words in (["record", "-o", locked / "x", "--", "true"], ["export", trace, "--csv", locked / "x"]):
        command = [*as_user, ascot_binary(), "trace", *map(str, words)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), cwd="/")
        except PermissionError:
            pytest.skip("the command is not readable for others")
        if "Permission denied" not in done.stderr or "ascot: " not in done.stderr:
            pytest.skip(f"cannot be run by another user: {done.stderr}")
        assert str(locked / "x") in done.stderr and ".ascot" not in done.stderr


def test_jobs_name_files_as_recordings_do(disk):
    (disk / "in").write_bytes(os.urandom(30_000_000))
    (disk / "real").mkdir()
    (disk / "link").symlink_to("real")
    words = ["sort", "link/../in", "--format", "fixed:100", "--key", "0..10", "--memory", "8MiB"]
    words += ["--method", "merge", "--temp", "link", "-o", "link/out"]
    run(*words, "--trace", "job.trace", cwd=disk)
    run("trace", "record", "-o", "run.trace", "--", ascot_binary(), *words, cwd=disk)

    def kinds(trace):
        """Names without the random parts, of files with bytes."""
        below = [file for file in census(disk / trace)["by_file"] if file["path"].startswith(f"{disk}/")]
        return {re.split(r"/\.?ascot-", os.path.dirname(file["path"]))[0] for file in below}

    assert kinds("job.trace") == kinds("run.trace") == {str(disk), str(disk / "real")}


def test_a_job_that_replaces_its_input_ends_it(disk):
    (disk / "in").write_bytes(os.urandom(1_000_000))
    run("sort", "in", "--format", "fixed:100", "--key", "0..10", "-o", "in", "--trace", "t", cwd=disk)
    files = [file for file in census(disk / "t")["by_file"] if file["path"] == str(disk / "in")]
    assert sorted((file["deleted"], file["read_bytes"] > 0) for file in files) == [(False, False), (True, True)]


def test_a_merge_that_frees_its_runs_needs_no_space_for_both(disk):
    (disk / "in").write_bytes(os.urandom(40_000_000))
    words = ["--format", "fixed:100", "--key", "0..10", "--memory", "8MiB", "--method", "merge", "--temp", disk]
    run("sort", disk / "in", *words, "-o", disk / "out", "--trace", disk / "t")
    kinds = {kind for _, kind, _, _ in events(disk / "t", disk)}
    told = json.loads(run("trace", "replay", disk / "t", "--on", "rotational", "--json").stdout)
    assert told["volume_bytes"] == census(disk / "t")["peak_live_bytes"]
    assert "hole" in kinds and told["volume_bytes"] < 120_000_000
