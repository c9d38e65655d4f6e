"""`ascot trace`: names through symbolic links, what outlives the program, and files that stay or do not stay."""

import contextlib
import json
import os
import platform
import pty
import shlex
import shutil
import signal
import time
from pathlib import Path

import pytest
from support import ascot_binary, clean_environment, run, start
from test_trace import census, events, line_maker, python, record, requests

pytestmark = pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")

THROUGH_A_LINK = """
import os
for n in range(10):
    f = os.open(f"link/{n}", os.O_RDWR | os.O_CREAT)
    os.write(f, bytes(100_000))
    os.close(f)
    os.unlink(f"link/{n}")
f = os.open("link/one", os.O_WRONLY | os.O_CREAT)
os.write(f, bytes(10))
os.rename("link/one", "link/two")
os.close(f)
os.truncate("link/two", 5)
os.chdir("link")
f = os.open("three", os.O_WRONLY | os.O_CREAT)
os.close(f)
os.unlink("three")
os.open("two", os.O_RDONLY)
"""


def test_names_through_a_link_to_a_directory_are_those_of_its_files(disk):
    (disk / "real").mkdir()
    (disk / "link").symlink_to("real")
    trace, _ = record(disk, *python(THROUGH_A_LINK))
    seen = events(trace, disk)
    deleted = [name for name, kind, _, _ in seen if kind == "delete"]
    assert deleted == [*[f"real/{n}" for n in range(10)], "real/three"]
    assert ("real/two", "resize", 5, 0) in seen
    assert {name for name, kind, _, _ in seen if kind == "open" and "t" in name[5:]} == {"real/two", "real/three"}
    below = [file for file in census(trace)["by_file"] if file["path"].startswith(f"{disk}/")]
    assert len(below) == 12
    alone = disk / "python.trace"
    run("trace", "record", "-o", alone, "--", *python("pass"), cwd=disk)
    # Of the ten files, one was there at a time.
    assert census(trace)["peak_live_bytes"] - census(alone)["peak_live_bytes"] < 200_000


def test_signals_reach_what_the_program_has_left_behind(disk):
    words = ["-o", disk / "run.trace", "--", "sh", "-c", "sleep 60 & echo x > done"]
    process = start("trace", "record", *words, cwd=disk)
    while not (disk / "done").exists() or traced_below(process.pid) != ["sleep"]:
        assert process.poll() is None
        time.sleep(0.01)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=50)
    assert process.returncode == 0 and time.monotonic() - began < 30
    assert ("done", "write", 0, 2) in requests(disk / "run.trace", disk)


def traced_below(ascot):
    """The names of the processes that a process's children trace."""
    tracers = Path(f"/proc/{ascot}/task/{ascot}/children").read_text().split()
    names = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            lines = (process / "status").read_text().splitlines()
            fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
            if fields["TracerPid"] in tracers:
                names.append(fields["Name"])
    return names


def test_the_log_stays_if_it_cannot_be_converted(disk):
    trace = disk / "run.trace"
    done = run("trace", "record", "-o", trace, "--", "sh", "-c", "exec mkdir run.trace", cwd=disk, expect=2)
    assert f"ascot trace convert {trace}.log -o {trace}" in done.stderr
    trace.rmdir()
    run("trace", "convert", f"{trace}.log", "-o", trace)
    assert json.loads(run("trace", "show", trace, "--json").stdout)["processes"] == 1
    assert sorted(os.listdir(disk)) == ["run.trace", "run.trace.log"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the number of the call is that of x86-64")
def test_asynchronous_requests_are_announced(disk):
    code = "import ctypes\nc = ctypes.c_ulong(0)\nassert ctypes.CDLL(None).syscall(206, 1, ctypes.byref(c)) == 0"
    _, done = record(disk, *python(code))
    assert "strace does not see" in done.stderr and "--block" in done.stderr
    assert "does not see" not in record(disk, "true")[1].stderr


def test_a_range_without_events_leaves_the_trace_before(disk):
    trace, _ = record(disk, "true")
    other = disk / "other.trace"
    other.write_bytes(b"mine")
    done = run("trace", "cut", trace, "--from", "1000s", "-o", other, expect=2)
    assert "no event is in that range" in done.stderr and other.read_bytes() == b"mine"


def test_outputs_with_one_name_are_refused(disk):
    trace, _ = record(disk, "true")
    done = run("trace", "export", trace, "--csv", disk / "a", "--fio", disk / "a", expect=2)
    assert "two outputs have this name" in done.stderr and not (disk / "a").exists()


@pytest.mark.parametrize("words", [["export", "--csv"], ["cut", "--from", "0s", "-o"]], ids=["export", "cut"])
def test_a_signal_leaves_no_files(disk, words):
    log = disk / "log"
    with open(log, "w") as to:
        to.writelines(line_maker(1_000_000))
    trace = disk / "run.trace"
    run("trace", "convert", log, "-o", trace)
    before = sorted(os.listdir(disk))
    process = start("trace", words[0], trace, *words[1:], disk / "out")
    while sorted(os.listdir(disk)) == before:
        assert process.poll() is None, "nothing was stopped"
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert sorted(os.listdir(disk)) == before


def test_lines_that_were_not_understood_are_shown_wherever_the_trace_is(disk):
    log = disk / "log"
    log.write_text('1 1700000000.000001 openat(AT_FDCWD</d>, "in", O_RDONLY) = 3</d/in>\nnonsense\n')
    run("trace", "convert", log, "-o", disk / "odd.trace")
    record(disk, "true")
    remark = "1 line of the log was not understood"
    assert remark in run("trace", "show", disk / "odd.trace").stdout.decode()
    words = ["trace", "compare", disk / "odd.trace", disk / "run.trace", "-o", disk / "page.html"]
    assert f"odd.trace: {remark}" in run(*words).stdout.decode()
    assert f"odd.trace: {remark}" in (disk / "page.html").read_text()


def test_outputs_that_cannot_be_made_are_named_before_the_program_runs(disk):
    for output, reason in ((disk / ("a" * 300), "File name too long"), (disk / "in" / "x", "Not a directory")):
        (disk / "in").write_text("")
        done = run("trace", "record", "-o", output, "--", "touch", disk / "ran", expect=2)
        assert str(output) in done.stderr and reason in done.stderr and "at path" not in done.stderr
        assert sorted(os.listdir(disk)) == ["in"]


def test_the_census_has_the_command_as_a_shell_reads_it(disk):
    trace, _ = record(disk, "sh", "-c", "echo 'a b' > out")
    command = json.loads(run("trace", "show", trace, "--json").stdout)["command"]
    assert shlex.split(command) == ["sh", "-c", "echo 'a b' > out"]
    assert run("trace", "show", trace).stdout.decode().startswith(command)


def test_a_log_for_fio_on_standard_output_needs_a_directory_for_the_files(disk):
    trace, _ = record(disk, "true")
    done = run("trace", "export", trace, "--fio", "-", cwd=disk, expect=2)
    assert "--fio-dir DIR" in done.stderr
    assert sorted(os.listdir(disk)) == ["run.trace"]
    log = run("trace", "export", trace, "--fio", "-", "--fio-dir", disk / "files").stdout.decode()
    assert log.startswith("fio version 2 iolog") and str(disk / "files") in log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_a_signal_of_kill_reaches_the_program_in_front_of_a_terminal(disk, number):
    """Only those of the keyboard reach it without help."""
    command = [ascot_binary(), "trace", "record", "-o", "run.trace", "--", "sh", "-c", "touch ready; exec sleep 30"]
    pid, terminal = pty.fork()
    if pid == 0:
        # A shell starts what runs in the background with these signals ignored, and then so do all programs.
        signal.signal(number, signal.SIG_DFL)
        os.chdir(disk)
        os.execve(command[0], [str(word) for word in command], clean_environment())
    while not (disk / "ready").exists():
        time.sleep(0.02)
    time.sleep(0.2)
    began = time.monotonic()
    os.kill(pid, number)
    ended, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert ended == pid and time.monotonic() - began < 15
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == number
