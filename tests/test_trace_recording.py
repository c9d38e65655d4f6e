"""`ascot trace`: names through symbolic links, what outlives the program, and files that stay or do not stay."""

import contextlib
import json
import os
import platform
import pty
import shlex
import shutil
import signal
import subprocess
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


@pytest.mark.skipif(not os.access("/dev/cpu_dma_latency", os.W_OK), reason="needs the right to keep processors awake")
def test_processors_stay_awake_while_a_program_is_recorded(disk):
    """The program and strace wake each other at every call."""
    script = "open('allowed', 'wb').write(open('/dev/cpu_dma_latency', 'rb').read(4))"
    record(disk, *python(script))
    assert (disk / "allowed").read_bytes() == bytes(4)


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


def test_writes_through_maps_are_announced(disk):
    code = "import mmap; f = open('a', 'wb+'); f.truncate(8192); m = mmap.mmap(f.fileno(), 8192{}); m[0] = 1"
    _, done = record(disk, *python(code.format("")))
    assert f"maps files to write to them ({disk}/a)" in done.stderr and "--block" in done.stderr
    _, done = record(disk, *python(code.format(", mmap.MAP_PRIVATE")))
    assert "maps files" not in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change the root directory")
def test_another_root_directory_is_announced(disk):
    _, done = record(disk, *python("import os; os.chroot('.')"))
    assert "changed its root directory" in done.stderr


def test_rights_that_no_traced_program_gets_are_announced(disk):
    program = disk / "special"
    shutil.copy(shutil.which("true"), program)
    try:
        os.chown(program, 1, 1)
    except PermissionError:
        pytest.skip("needs root to make a program of another user")
    program.chmod(0o4755)
    told = f"{program}: a traced program does not get the rights of its owner (setuid); run it as that user: "
    told += "sudo -u '#1' ascot trace record ...\n"
    for command in ([program], ["sh", "-c", "./special; ./special; true"], ["sh", "-c", "exec ./special"]):
        assert record(disk, *command)[1].stderr.count(told) == 1
    program.chmod(0o755)
    assert "rights" not in record(disk, "sh", "-c", "./special; true")[1].stderr


def test_a_strace_that_is_too_old_is_named(disk):
    tools = disk / "tools"
    tools.mkdir()
    (tools / "strace").write_text("#!/bin/sh\necho 'strace -- version 5.4'\n")
    (tools / "strace").chmod(0o755)
    words = ["trace", "record", "-o", disk / "run.trace", "--", "touch", disk / "ran"]
    done = run(*words, env=clean_environment(PATH=f"{tools}:{os.environ['PATH']}"), expect=2)
    assert "strace 5.9 or newer is needed; this is 5.4\n" in done.stderr and "strace.io" in done.stderr
    assert os.listdir(disk) == ["tools"]


OF_32_BITS = """
static int call(int number, int a, int b, int c, int d) {
    int result;
    asm volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(0) : "memory");
    return result;
}
void _start(void) {
    long long at;
    char bytes[8];
    int file = call(5, (int)"a", 0102, 0644, 0);     /* open */
    call(4, file, (int)"0123456789", 10, 0);         /* write */
    call(140, file, 0, 4, (int)&at);                 /* _llseek */
    call(3, call(221, file, 0, 9, 0), (int)bytes, 3, 0); /* read, fcntl64 */
    call(194, file, 5, 0, 0);                        /* ftruncate64 */
    call(193, (int)"a", 2, 0, 0);                    /* truncate64 */
    call(1, 0, 0, 0, 0);                             /* exit */
}
"""


@pytest.mark.skipif(platform.machine() != "x86_64" or not shutil.which("cc"), reason="needs a compiler of x86-64")
def test_programs_of_32_bits_are_recorded(disk):
    (disk / "small.c").write_text(OF_32_BITS)
    flags = ["-m32", "-nostdlib", "-static", "-fno-pic", "-no-pie", "-fno-stack-protector"]
    made = subprocess.run(["cc", *flags, "-o", "small", "small.c"], cwd=disk, capture_output=True)
    if made.returncode or subprocess.run(["./small"], cwd=disk).returncode:
        pytest.skip("makes or runs no programs of 32 bits")
    (disk / "a").unlink()
    trace, _ = record(disk, "./small")
    assert [event for event in events(trace, disk) if event[1] not in ("open", "close")] == [
        ("a", "write", 0, 10), ("a", "seek", 4, 0), ("a", "read", 4, 3), ("a", "resize", 5, 0), ("a", "resize", 2, 0),
    ]  # fmt: skip


def test_a_replay_in_memory_says_so(disk):
    trace, _ = record(disk, "true")
    done = run("trace", "replay", trace, "--on", "/proc", expect=2)
    assert "/proc: no files can be made here" in done.stderr
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    if not any(mount[1:3] == ["/dev/shm", "tmpfs"] for mount in mounts):
        pytest.skip("/dev/shm is no tmpfs")
    done = run("trace", "replay", trace, "--on", "/dev/shm", expect=None)
    if "does not allow direct access" in done.stderr:
        pytest.skip("a tmpfs of Linux before 6.6")
    assert "the volume file is in memory (tmpfs)" in done.stderr and done.returncode == 0


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
