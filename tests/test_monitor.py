"""`--monitor`: samples agree with the account of the job and with the kernel, and the thread ends with the job."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import (
    ALLOWANCE,
    FIXED,
    MIB,
    ROOT,
    ascot_binary,
    clean_environment,
    io_of,
    job_directories,
    leftovers,
    measure,
    run,
    sorted_files,
    start,
)
from thread_observer import watch

pytestmark = pytest.mark.alone

INTERVAL = 0.05
BLOCKS = "▁▂▃▄▅▆▇█"


@pytest.fixture(scope="module")
def records(module_disk):
    path = module_disk / "in"
    run("gen", "700k", "-o", path)
    return path


@pytest.fixture(scope="module")
def monitored(records, module_disk):
    """The report of a sort of two passes, and the kernel's counters of its process."""
    words = [*FIXED, records, "-o", module_disk / "out", "--memory", "16MiB", "--method", "merge"]
    words += ["--compress", "none", "--temp", module_disk, "--report", module_disk / "run.json"]
    measured = measure("sort", *words, f"--monitor={INTERVAL}s")
    return json.loads((module_disk / "run.json").read_text()), measured


def column(report, of, measure_name):
    found = [one for one in report["monitor"]["columns"] if (one["of"], one["measure"]) == (of, measure_name)]
    assert len(found) <= 1
    return found[0] if found else None


def durations(monitor):
    ends = monitor["seconds"]
    return [end - since for since, end in zip([0, *ends], ends, strict=False)]


def total(report, of, measure_name):
    """A rate, times the time of its samples."""
    samples = column(report, of, measure_name)["samples"]
    return sum(rate * seconds for rate, seconds in zip(samples, durations(report["monitor"]), strict=True))


def test_the_page_describes_the_samples(monitored):
    page = (ROOT / "docs" / "report.md").read_text()
    section = page.split("\n## Monitor\n")[1].split("\n## ")[0]
    described = set(re.findall(r"`(\w+)`", section))
    monitor = monitored[0]["monitor"]
    for part in [monitor, *monitor["columns"]]:
        assert set(part) <= described
    values = {one[name] for one in monitor["columns"] for name in ("resource", "measure", "unit")}
    assert values <= described


def test_times_increase_and_lie_in_the_job(monitored):
    report, measured = monitored
    ends = report["monitor"]["seconds"]
    assert ends == sorted(set(ends))
    assert ends[0] > 0
    # The last sample ends after the account is made and before the process ends.
    assert report["seconds"] <= ends[-1] <= measured.seconds
    assert report["monitor"]["interval_seconds"] == INTERVAL
    # No sample is shorter than half an interval, and the thread takes one whenever it gets a processor.
    assert min(durations(report["monitor"])) >= INTERVAL / 2 - 1e-6
    assert 3 <= len(ends) <= report["seconds"] / INTERVAL * 2


def test_passes_are_on_the_same_clock(monitored):
    report, _ = monitored
    end = 0
    for step in report["passes"]:
        assert step["times"] == 1
        assert step["began_seconds"] == pytest.approx(end, abs=1e-9)
        # The last pass also counts the time in which the output becomes durable.
        end = step["ended_seconds"]
        assert end - step["began_seconds"] == pytest.approx(step["seconds"], abs=1e-6)
    assert end <= report["seconds"] <= report["monitor"]["seconds"][-1]


def test_bytes_of_the_process_are_those_of_the_report(monitored):
    """Requests are whole pages, so each file and each block of a spill may move a page more than it holds; other
    reads and writes (names, manifest, allocation of blocks) are small."""
    report, _ = monitored
    if report["notices"]:
        pytest.skip(f"this volume is not read and written directly: {report['notices']}")
    for measure_name, field in (("read", "read_bytes"), ("written", "written_bytes")):
        seen, told = total(report, "process", measure_name), report["moved"][field]
        assert told > 100 * MIB
        assert abs(seen - told) <= 0.02 * told + MIB, (seen, told)


def test_disks_move_at_least_the_bytes_of_the_process(monitored, module_disk):
    report, _ = monitored
    major = os.major(module_disk.stat().st_dev)
    names = {one["of"] for one in report["monitor"]["columns"] if one["resource"] == "disk"} - {"process"}
    if report["notices"] or not major:
        pytest.skip("the files are on no disk that the kernel lists, or are not read and written directly")
    for measure_name in ("read", "written"):
        by_disks = sum(total(report, name, measure_name) for name in names)
        assert by_disks >= 0.98 * total(report, "process", measure_name) - MIB
    assert all(0 <= one <= 1 for name in names for one in column(report, name, "busy")["samples"])


LOOPBACK_BYTES = 48 * MIB
TALKING = f"""
import os, shutil, socket, threading
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
peer, _ = server.accept()
sender = threading.Thread(target=lambda: (client.sendall(bytes({LOOPBACK_BYTES})), client.close()))
sender.start()
while peer.recv(1 << 20):
    pass
sender.join()
descriptor = lambda name: int(os.environ[name])
with open(descriptor("ASCOT_IN_0"), "rb") as source, open(descriptor("ASCOT_OUT_0"), "wb") as output:
    shutil.copyfileobj(source, output)
"""


def loopback_bytes():
    lines = Path("/proc/net/dev").read_text().splitlines()
    fields = next(line.split(":")[1].split() for line in lines if line.strip().startswith("lo:"))
    return int(fields[0])


def test_network_bytes_are_those_of_the_kernel(disk):
    """A program in `ascot flow` sends over the loopback interface, whose counter has all that it moved meanwhile."""
    (disk / "in").write_bytes(b"x" * 1000)
    (disk / "talk.py").write_text(TALKING)
    flags = ["--inputs", disk / "in", "--outputs", disk / "out", "--report", disk / "r.json"]
    flags += [f"--monitor={INTERVAL}s"]
    before = loopback_bytes()
    run("flow", *flags, "--", sys.executable, disk / "talk.py", timeout=120)
    moved = loopback_bytes() - before
    report = json.loads((disk / "r.json").read_text())
    assert 1.001 * total(report, "lo", "received") >= LOOPBACK_BYTES
    assert total(report, "lo", "received") <= 1.001 * moved


def test_processor_time_is_that_of_the_account(monitored):
    """The account has the processor time of the threads that took part in a pass. The process has that of the others
    too: they waited for all but a thousandth of each pass, or start and end threads."""
    report, _ = monitored
    used = total(report, "process", "used") - report["monitor"]["processor_seconds"]
    told = sum(stage["processor_seconds"] for step in report["passes"] for stage in step["stages"])
    assert told > 0.1
    assert told - 0.02 <= used <= 1.1 * told + 0.05, (used, told)


def test_memory_is_that_of_the_report(monitored):
    report, measured = monitored
    resident, peak = (column(report, "process", name) for name in ("resident", "peak_resident"))
    assert resident["maximum"] <= peak["maximum"] <= measured.peak_resident_bytes + 2 * MIB
    assert abs(peak["maximum"] - report["peak_memory_bytes"]) <= 2 * MIB
    # The kernel adds up counters of processors that may lag by some pages.
    most = 0
    for bytes_then in peak["samples"]:
        assert bytes_then >= most - MIB
        most = max(most, bytes_then)
    assert column(report, "machine", "available")["minimum"] > 0
    assert measured.peak_resident_bytes <= 16 * MIB + ALLOWANCE


def test_means_and_extremes_are_those_of_the_samples(monitored):
    monitor = monitored[0]["monitor"]
    assert monitor["intervals_per_sample"] == 1
    assert sum(one["resource"] == "processor" for one in monitor["columns"]) == os.cpu_count() + 1
    for one in monitor["columns"]:
        assert len(one["samples"]) == len(monitor["seconds"])
        known = [(value, seconds) for value, seconds in zip(one["samples"], durations(monitor), strict=True)
                 if value is not None]  # fmt: skip
        mean = sum(value * seconds for value, seconds in known) / sum(seconds for _, seconds in known)
        # Samples are rounded, and their ends to microseconds.
        step = 1 if one["unit"].startswith("bytes") else 1e-4
        clock = len(known) * 1e-6 / monitor["seconds"][-1] * one["maximum"]
        assert abs(mean - one["mean"]) <= step + clock
        assert abs(max(value for value, _ in known) - one["maximum"]) <= step
        assert abs(min(value for value, _ in known) - one["minimum"]) <= step


def test_samples_are_compact(monitored, module_disk):
    text = (module_disk / "run.json").read_text()
    monitor = monitored[0]["monitor"]
    assert len(re.findall(r'^ *"samples": \[[^\n]*\]$', text, re.MULTILINE)) == len(monitor["columns"])


def test_there_is_a_thread_only_with_the_flag(records, disk):
    words = ["sort", *FIXED, records, "-o", disk / "out", "--memory", "16MiB", "--temp", disk]
    without = watch(*words)
    assert without.returncode == 0
    assert "sort" in without.threads or any(name.startswith("sort") for name in without.threads)
    assert "monitor" not in without.threads
    seen = watch(*words, f"--monitor={INTERVAL}s")
    assert "monitor" in seen.threads
    assert "resources, " in seen.stderr


def wait_until_moved(process, enough_bytes):
    while process.poll() is None:
        with contextlib.suppress(OSError):
            if sum(io_of(process.pid)) >= enough_bytes:
                return
        time.sleep(0.001)
    raise AssertionError(f"the job ended before: {process.communicate()}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_no_file_and_no_thread(number, records, disk):
    words = ["sort", *FIXED, records, "-o", disk / "out", "--memory", "16MiB", "--temp", disk]
    process = start(*words, "--report", disk / "r", f"--monitor={INTERVAL}s")
    wait_until_moved(process, 20 * MIB)
    process.send_signal(number)
    try:
        told = process.communicate(timeout=20)[1].decode()
    finally:
        process.kill()
    assert process.returncode == -number, told
    assert "resources" not in told
    assert leftovers(disk) == []
    assert not os.path.exists(f"/proc/{process.pid}/task")


def test_an_error_ends_the_samples(disk):
    (disk / "in").write_bytes(b"\n".join(b"%d" % number for number in range(100_000, 0, -1)) + b"\n")
    done = run("merge", disk / "in", "-n", "-o", disk / "out", "--monitor", "--report", disk / "r", expect=2)
    assert "not sorted" in done.stderr
    assert "resources" not in done.stderr
    assert leftovers(disk) == ["in"]


def sampled(*words, cwd, expect=0):
    """The lines of the samples that a command shows; its report has as many samples, if there is one."""
    done = run(*words, "--monitor=0.2", cwd=cwd, expect=expect)
    lines = [line for line in done.stderr.splitlines() if re.match(r"    \S.*  mean +\S.* (most|least) +\S", line)]
    heads = re.findall(r"^  resources, (\d+) samples? of 0\.2 s$", done.stderr, re.MULTILINE)
    assert len(heads) == 1, done.stderr
    assert any("processors" in line for line in lines), done.stderr
    assert any("resident" in line for line in lines), done.stderr
    return int(heads[0])


def test_every_command_with_a_job_shows_samples(disk):
    small = [*FIXED, "--memory", "16MiB"]
    sorted_files(disk, [50_000, 60_000])
    sampled("gen", "200k", "-o", "in", cwd=disk)
    reported = {
        "sort": ["sort", "in", *small, "-o", "out"],
        "small sort": ["sort", "0.rec", *FIXED, "-o", "small"],
        "view made": ["sort", "in", *small, "--view", "made.view"],
        "merge": ["merge", "0.rec", "1.rec", *small, "-o", "merged"],
        "split": ["split", "in", *small, "--parts", "3", "-o", "part-{}"],
        "reshape": ["reshape", "0.rec", "1.rec", *small, "--parts", "3", "-o", "shape-{}"],
        "flow": ["flow", "--inputs", "in", "--outputs", "copy", "--memory", "16MiB"],
        "view": ["view", "made.view", "-o", "viewed"],
    }
    for name, words in reported.items():
        program = ["--", "cat"] if name == "flow" else []
        head = run(*words, "--monitor=0.2", "--report", "r", *program, cwd=disk).stderr
        monitor = json.loads((disk / "r").read_text())["monitor"]
        assert f"resources, {len(monitor['seconds'])} sample" in head, name
        assert monitor["interval_seconds"] == 0.2
        assert monitor["seconds"] and {"processor", "memory"} <= {one["resource"] for one in monitor["columns"]}
        (disk / "r").unlink()
    sampled("check", "out", cwd=disk)
    sampled("check", "in", cwd=disk, expect=1)
    sampled("sort", "-c", "out", *FIXED, cwd=disk)
    sampled("merge", "made.view", "-o", "again", cwd=disk)
    sampled("merge", "0.rec", "1.rec", *FIXED, "--view", "both.view", cwd=disk)
    sampled("index", "build", "in", "--format", "fixed:100", "--key", "0..10", "-o", "dir", cwd=disk)
    sampled("index", "verify", "dir", cwd=disk)


def test_studies_show_samples_at_their_end_and_in_their_result(disk):
    sorted_files(disk, [20_000])
    (disk / "volume").mkdir()
    run("sort", "0.rec", *FIXED, "-o", "out", "--trace", "t", "--memory", "16MiB", cwd=disk)
    sampled("lab", "streams", "--stream", "buffered", "--n", "1e5", "--loops", "3", "--out", "r", cwd=disk)
    assert '<section id="resources">' in (disk / "r" / "index.html").read_text()
    small = ["--bytes", "8MiB", "--request", "256KiB", "--rounds", "1"]
    results = {
        "disk": ["lab", "disk", "--input", "volume", "--output", "volume", *small],
        "net": ["lab", "net", "--local", "2", "--bytes", "8MiB"],
        "replay": ["trace", "replay", "t", "--on", "volume"],
    }
    for name, words in results.items():
        done = run(*words, "--monitor=0.05", "--json", cwd=disk)
        monitor = json.loads(done.stdout)["monitor"]
        assert f"resources, {len(monitor['seconds'])} sample" in done.stderr, name
        assert monitor["interval_seconds"] == 0.05 and monitor["columns"], name
        assert "monitor" not in json.loads(run(*words, "--json", cwd=disk).stdout), name
    assert "virtual disk has a clock of its own" in run(
        "trace", "replay", "t", "--on", "flash", "--monitor", cwd=disk, expect=2
    ).stderr


def test_a_resumed_job_is_sampled_from_its_resumption(records, disk):
    words = ["sort", *FIXED, records, "-o", disk / "out", "--memory", "16MiB", "--temp", disk, "--method", "merge"]
    process = start(*words, "--keep-on-interrupt")
    wait_until_moved(process, 70 * MIB)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    [kept] = job_directories(disk)
    done = run("sort", "--resume", kept, f"--monitor={INTERVAL}", "--report", disk / "r")
    report = json.loads((disk / "r").read_text())
    assert report["resumed"]
    assert "resources, " in done.stderr
    # `seconds` has the time before the kill too.
    assert report["passes"][0]["began_seconds"] == 0
    assert report["passes"][-1]["ended_seconds"] <= report["monitor"]["seconds"][-1] < report["seconds"] + 1


def test_quiet_shows_samples_only_in_the_report(records, disk):
    words = ["sort", *FIXED, records, "-o", disk / "out", "--memory", "16MiB", "--temp", disk, "--monitor"]
    assert run(*words, "--quiet", "--report", disk / "r").stderr == ""
    assert json.loads((disk / "r").read_text())["monitor"]["columns"]
    assert run("check", disk / "out", "--quiet", "--monitor").stderr == ""
    lines = [json.loads(line) for line in run(*words, "--progress", "json").stderr.splitlines()]
    assert lines[-1]["type"] == "report"
    assert lines[-1]["report"]["monitor"]["interval_seconds"] == 1
    without = [word for word in words if word != "--monitor"]
    run(*without, "--report", disk / "r")
    assert json.loads((disk / "r").read_text())["monitor"] is None


def told_on_a_terminal(locale, cwd):
    main, other = pty.openpty()
    process = subprocess.Popen(
        [ascot_binary(), "gen", "100k", "-o", "out", "--monitor=0.05"],
        env=clean_environment(LC_ALL=locale, TERM="xterm"), cwd=cwd, stdin=subprocess.DEVNULL, stderr=other,
    )  # fmt: skip
    os.close(other)
    told = b""
    # The end of a terminal whose other side is closed is an error.
    with contextlib.suppress(OSError):
        while more := os.read(main, 4096):
            told += more
    os.close(main)
    assert process.wait() == 0
    return told.decode()


def test_blocks_need_a_terminal_of_utf8(disk):
    with_blocks = told_on_a_terminal("C.UTF-8", disk)
    assert "resources, " in with_blocks
    assert set(BLOCKS) & set(with_blocks)
    plain = told_on_a_terminal("C", disk)
    assert "resources, " in plain
    assert plain.isascii()
    assert run("gen", "10k", "-o", disk / "o", "--monitor", env=clean_environment(LC_ALL="C.UTF-8")).stderr.isascii()


@pytest.mark.parametrize("time_given", ["0.01s", "2h", "soon", ""])
def test_intervals_out_of_range_are_refused(time_given, disk):
    told = run("gen", "10", "-o", disk / "out", f"--monitor={time_given}", expect=2).stderr
    assert "--monitor" in told
    assert "50ms to 1h" in told
    assert leftovers(disk) == []
