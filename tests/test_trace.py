"""`ascot trace` records what programs do to their files, whatever way they do it."""

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import MIB, ascot_binary, census, clean_environment, measure, run, small_disk, start

pytestmark = pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")


def record(disk, *command, expect=0, **options):
    """Records a command in the directory `disk`; the trace and the events of files below the directory."""
    trace = disk / "run.trace"
    done = run("trace", "record", "-o", trace, "--", *command, cwd=disk, expect=expect, **options)
    return trace, done


def python(code):
    return [sys.executable, "-S", "-E", "-c", code]


def events(trace, below):
    """Events as (file name, kind, offset, bytes), without those of files elsewhere and of the trace itself."""
    text = run("trace", "export", trace, "--csv", "-").stdout.decode(errors="replace")
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row["path"].startswith(f"{below}/")]
    return [(row["path"][len(f"{below}/") :], row["kind"], int(row["offset"]), int(row["bytes"])) for row in rows]


def requests(trace, below):
    return [event for event in events(trace, below) if event[1] in ("read", "write") and event[3] > 0]


def file_of(counted, name):
    return next(file for file in counted["by_file"] if file["path"].endswith(f"/{name}"))


def test_every_way_to_a_byte(disk):
    (disk / "in").write_bytes(bytes(10_000))
    code = """
import os, fcntl
f = os.open("in", os.O_RDWR)
os.read(f, 100)
os.pread(f, 50, 4000)
os.lseek(f, 200, os.SEEK_CUR)
d = os.dup(f)
os.readv(d, [bytearray(10), bytearray(20)])
os.lseek(d, -1000, os.SEEK_END)
os.write(f, b"x" * 5)
e = fcntl.fcntl(f, fcntl.F_DUPFD, 30)
os.dup2(e, 31)
os.pwritev(31, [b"y" * 7], 50)
o = os.open("out", os.O_RDWR | os.O_CREAT)
os.sendfile(o, f, 20, 30)
os.copy_file_range(f, o, 40, 0)
os.read(f, 20_000)
os.close(f)
n = os.open("next", os.O_WRONLY | os.O_CREAT)
assert n == f
os.write(n, b"z")
os.rename("next", "renamed")
os.write(n, b"zz")
os.unlink("out")
r, w = os.pipe()
os.write(w, b"pipe")
os.read(r, 4)
try:
    os.read(99, 1)
except OSError:
    pass
"""
    trace, _ = record(disk, *python(code))
    assert requests(trace, disk) == [
        ("in", "read", 0, 100),
        ("in", "read", 4000, 50),
        ("in", "read", 300, 30),
        ("in", "write", 9000, 5),
        ("in", "write", 50, 7),
        ("in", "read", 20, 30),
        ("out", "write", 0, 30),
        ("in", "read", 0, 40),
        ("out", "write", 30, 40),
        ("in", "read", 9005, 995),
        ("renamed", "write", 0, 1),
        ("renamed", "write", 1, 2),
    ]  # fmt: skip
    counted = census(trace)
    assert file_of(counted, "out")["deleted"] and not file_of(counted, "renamed")["deleted"]
    assert file_of(counted, "in")["peak_bytes"] == 10_000
    assert counted["unseen_requests"] == counted["guessed_appends"] == counted["skipped_lines"] == 0


def test_a_run_continued_by_another_process_is_one_run(disk):
    (disk / "in").write_bytes(bytes(3000))
    code = """
import os
f = os.open("in", os.O_RDONLY)
os.read(f, 1000)
os.lseek(f, 0, os.SEEK_END)
if (pid := os.fork()) == 0:
    g = os.open("in", os.O_RDONLY)
    os.lseek(g, 1000, os.SEEK_SET)
    os.read(g, 500)
    os._exit(0)
os.waitpid(pid, 0)
os.pread(f, 500, 1500)
"""
    trace, _ = record(disk, *python(code))
    file = file_of(census(trace), "in")
    assert (file["runs"], file["read_bytes"], file["reads"]) == (1, 2000, 3)
    # Two seeks of descriptors, and a positioned read elsewhere than its descriptor ended.
    assert file["attempts"] == 3


def test_positions_are_shared_after_a_fork(disk):
    code = """
import os
f = os.open("out", os.O_WRONLY | os.O_CREAT)
os.write(f, b"a" * 10)
if (pid := os.fork()) == 0:
    os.write(f, b"b" * 20)
    os._exit(0)
os.waitpid(pid, 0)
os.write(f, b"c" * 5)
"""
    trace, _ = record(disk, *python(code))
    assert requests(trace, disk) == [("out", "write", 0, 10), ("out", "write", 10, 20), ("out", "write", 30, 5)]


def test_threads_share_descriptors(disk):
    (disk / "in").write_bytes(bytes(5000))
    code = """
import os, _thread, time
f = []
done = []
def other():
    f.append(os.open("in", os.O_RDONLY))
    os.read(f[0], 1000)
    done.append(1)
_thread.start_new_thread(other, ())
while not done:
    time.sleep(0.001)
os.read(f[0], 500)
"""
    trace, _ = record(disk, *python(code))
    assert requests(trace, disk) == [("in", "read", 0, 1000), ("in", "read", 1000, 500)]


def test_appends_go_to_the_end_of_the_file(disk):
    (disk / "log").write_bytes(bytes(700))
    trace, done = record(disk, "sh", "-c", "echo one >> log; echo three >> log; echo new >> fresh")
    assert requests(trace, disk) == [("log", "write", 700, 4), ("log", "write", 704, 6), ("fresh", "write", 0, 4)]
    assert "unknown length" not in done.stderr
    counted = census(trace)
    assert counted["guessed_appends"] == 0 and file_of(counted, "log")["peak_bytes"] == 710


def test_inherited_outputs_are_files_too(disk):
    with open(disk / "out", "wb") as out:
        out.write(b"head\n")
        out.flush()
        command = [ascot_binary(), "trace", "record", "-o", disk / "run.trace", "--", "sh", "-c", "echo line; cat in"]
        (disk / "in").write_bytes(bytes(100))
        subprocess.run(command, stdout=out, cwd=disk, check=True, env=clean_environment())
    moved = requests(disk / "run.trace", disk)
    assert [event for event in moved if event[0] == "out"] == [("out", "write", 5, 5), ("out", "write", 10, 100)]


def test_a_file_made_again_is_another_file(disk):
    code = """
import os
for size in (30, 20):
    f = os.open("spill", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(f, bytes(size))
    os.close(f)
    os.unlink("spill")
os.mkdir("dir")
f = os.open("dir/kept", os.O_WRONLY | os.O_CREAT)
os.write(f, bytes(5))
os.rename("dir", "moved")
os.write(f, bytes(5))
os.close(f)
f = os.open("moved/kept", os.O_RDONLY)
os.read(f, 100)
"""
    trace, _ = record(disk, *python(code))
    counted = census(trace)
    spills = [file for file in counted["by_file"] if file["path"].endswith("/spill")]
    assert [(file["peak_bytes"], file["deleted"]) for file in spills] == [(30, True), (20, True)]
    kept = [file for file in counted["by_file"] if file["path"].endswith("/kept")]
    assert [(file["path"], file["written_bytes"], file["read_bytes"]) for file in kept] == [
        (f"{disk}/moved/kept", 10, 10)
    ]
    deletions = [event for event in events(trace, disk) if event[1] == "delete"]
    assert deletions == [("spill", "delete", 0, 0)] * 2


@pytest.mark.parametrize(
    ("program", "status"), [("exit 7", 7), ("kill -9 $$", -signal.SIGKILL), ("kill -TERM $$", -signal.SIGTERM)]
)
def test_the_end_of_the_program_is_passed_on(disk, program, status):
    (disk / "in").write_bytes(bytes(100))
    trace, done = record(disk, "sh", "-c", f"cat in > out; {program}", expect=status)
    assert ("out", "write", 0, 100) in requests(trace, disk)
    assert ("killed by signal" in done.stderr) == (status < 0)
    assert sorted(os.listdir(disk)) == ["in", "out", "run.trace"]


def test_signals_reach_the_program(disk):
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (open('caught', 'w').write('x' * 9), os._exit(5)))\n"
        "open('ready', 'w').close()\n"
        "time.sleep(60)\n"
    )
    process = start("trace", "record", "-o", disk / "run.trace", "--", *python(code), cwd=disk)
    while not (disk / "ready").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 5
    assert ("caught", "write", 0, 9) in requests(disk / "run.trace", disk)


def test_the_log_is_kept_on_request(disk):
    run("trace", "record", "--keep-log", "-o", disk / "run.trace", "--", "true", cwd=disk)
    assert "execve(" in (disk / "run.trace.log").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["record", "-o", "x.trace", "--", "no-such-program"], "no such program"),
        (["record", "-o", "x.trace", "--", "./text"], "not a program that can be executed"),
        (["record", "-o", "x.trace", "--", "./"], "not a program that can be executed"),
        (["record", "-o", "x.trace", "sort", "-u"], "follow --: ascot trace record -o TRACE -- PROGRAM"),
        (["record", "-o", "x.trace", "-u", "--", "sort"], "follow --: ascot trace record -o TRACE -- PROGRAM"),
        (["record", "-o", "none/x.trace", "--", "true"], "none"),
        ([], "commands: see ascot trace --help"),
        (["record", "--block=3", "-o", "x.trace", "--", "true"], "--block takes no value, and got '3'"),
        (["show", "."], ".: this is a directory, not a trace"),
        (["convert", ".", "-o", "y"], ".: this is a directory, not a log of strace"),
        (["export", "text", "--csv", "y", "--timing", "recorded"], "--timing needs --fio"),
        (["show", "text"], "not a trace"),
        (["show", "missing"], "missing"),
        (["cut", "text", "--from", "5s", "--to", "5s", "-o", "y"], "--to is not after --from"),
        (["cut", "text", "--from", "soon", "-o", "y"], "not a time"),
        (["export", "text"], "--csv FILE, --fio FILE or --buckets FILE"),
    ],
)
def test_mistakes_are_named(disk, words, told):
    (disk / "text").write_text("hello " * 100)
    done = run("trace", *words, cwd=disk, expect=2)
    assert told in done.stderr
    # A file that is missing needs no advice.
    assert "\n  " in done.stderr or told == "missing"
    assert os.listdir(disk) == ["text"]


def test_a_trace_that_was_cut_off_or_altered_is_refused(disk):
    trace, _ = record(disk, "true")
    whole = trace.read_bytes()
    for damaged in (whole[:-1], whole[:100], whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]):
        trace.write_bytes(damaged)
        done = run("trace", "show", trace, expect=2)
        assert "damaged" in done.stderr or "not a trace" in done.stderr


def test_one_phase_is_cut_out(disk):
    (disk / "in").write_bytes(bytes(1000))
    code = (
        "import os, time\nf = os.open('in', os.O_RDONLY)\nos.read(f, 100)\n"
        "time.sleep(0.3)\no = os.open('out', os.O_WRONLY | os.O_CREAT)\nos.write(o, bytes(300))\n"
    )
    trace, _ = record(disk, *python(code))
    text = run("trace", "export", trace, "--csv", "-").stdout.decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    wrote = next(int(row["time_ns"]) for row in rows if row["path"] == f"{disk}/out")
    late = disk / "late.trace"
    run("trace", "cut", trace, "--from", f"{wrote / 1e9 - 0.1:.9f}s", "-o", late)
    assert requests(late, disk) == [("out", "write", 0, 300)]
    early = disk / "early.trace"
    run("trace", "cut", trace, "--to", f"{wrote / 1e9 - 0.1:.9f}s", "-o", early)
    assert requests(early, disk) == [("in", "read", 0, 100)]
    assert census(early)["events"] + census(late)["events"] == census(trace)["events"]


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
def test_fio_replays_the_requests(disk):
    (disk / "in").write_bytes(os.urandom(200_000))
    code = """
import os
f = os.open("in", os.O_RDONLY)
o = os.open("out", os.O_WRONLY | os.O_CREAT)
for block in (7, 3, 5, 1, 0):
    os.write(o, os.pread(f, 20_000, block * 20_000))
os.unlink("out")
"""
    trace, _ = record(disk, *python(code))
    log, files = disk / "log", disk / "files"
    run("trace", "export", trace, "--fio", log, "--fio-dir", files)
    replayed = subprocess.run(
        ["fio", "--name=replay", f"--read_iolog={log}", "--ioengine=psync", "--output-format=json"],
        cwd=disk, capture_output=True, check=True, timeout=120,
    )  # fmt: skip
    job = json.loads(replayed.stdout)["jobs"][0]
    counts = census(trace)
    assert job["error"] == 0
    assert (job["read"]["io_bytes"], job["read"]["total_ios"]) == (counts["read_bytes"], counts["reads"])
    assert (job["write"]["io_bytes"], job["write"]["total_ios"]) == (counts["written_bytes"], counts["writes"])
    assert (disk / "in").stat().st_size == 200_000 and not (disk / "out").exists()


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
def test_fio_keeps_the_recorded_times(disk):
    """The replay takes as long as the recording. Times in another unit would end it at once, or much later."""
    code = """
import os, time
o = os.open("out", os.O_WRONLY | os.O_CREAT)
for pause in (0, 0.3, 0.6):
    time.sleep(pause)
    os.write(o, bytes(4096))
"""
    trace, _ = record(disk, *python(code))
    rows = csv.DictReader(io.StringIO(run("trace", "export", trace, "--csv", "-").stdout.decode()))
    times = [int(row["time_ns"]) for row in rows if row["path"] == f"{disk}/out" and row["kind"] == "write"]
    run("trace", "export", trace, "--fio", disk / "fast", "--fio-dir", disk / "a")
    assert (disk / "fast").read_text().startswith("fio version 2 iolog\n")
    run("trace", "export", trace, "--fio", disk / "log", "--fio-dir", disk / "b", "--timing", "recorded")
    replayed = subprocess.run(
        ["fio", "--name=replay", f"--read_iolog={disk / 'log'}", "--ioengine=psync", "--output-format=json"],
        cwd=disk, capture_output=True, check=True, timeout=100,
    )  # fmt: skip
    job = json.loads(replayed.stdout)["jobs"][0]
    assert job["error"] == 0 and job["write"]["total_ios"] == 3
    # fio counts whole milliseconds, and waits for whole microseconds.
    assert job["job_runtime"] >= times[-1] // 1_000_000 - 2 and times[-1] - times[0] >= 900_000_000


def test_the_screen_shows_the_totals(disk):
    (disk / "in").write_bytes(bytes(3 * MIB))
    trace, done = record(disk, "cp", "--sparse=never", "in", "out")
    assert "recorded" in done.stderr and "run.trace" in done.stderr
    text = run("trace", "show", trace).stdout.decode()
    for told in ("switches", "attempted", "length of runs", "3.15 MB", "cp --sparse=never in out", "/out"):
        assert told in text, text


PROFILE = """
name = "array"
read_bytes_per_s = 1e9
write_bytes_per_s = 1e9
switch_seconds = 0.01
cache_bytes = {cache}
"""


def merge_of_eight(disk):
    """Records a merge of eight files in blocks of 64 KiB."""
    code = """
import os
ins = [os.open(f"in{n}", os.O_RDWR | os.O_CREAT) for n in range(8)]
for f in ins:
    os.ftruncate(f, 1 << 20)
o = os.open("out", os.O_WRONLY | os.O_CREAT)
for block in range(16):
    for f in ins:
        os.write(o, os.read(f, 65536))
"""
    trace, _ = record(disk, *python(code))
    merge = disk / "merge.trace"
    text = run("trace", "export", trace, "--csv", "-").stdout.decode()
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row["path"].startswith(f"{disk}/in")]
    run("trace", "cut", trace, "--from", f"{int(rows[0]['time_ns']) / 1e9:.9f}s", "-o", merge)
    return merge


def test_a_merge_takes_its_switches_on_the_virtual_disk(disk):
    merge = merge_of_eight(disk)
    assert census(merge)["runs"] == 256
    profile = disk / "array.toml"
    replayed = {}
    for cache in (0, 96 * MIB):
        profile.write_text(PROFILE.format(cache=cache))
        replayed[cache] = json.loads(run("trace", "replay", merge, "--on", profile, "--json").stdout)
        assert replayed[cache]["switches_without_cache"] == 256
    moved = 16 * MIB
    assert replayed[0]["switches"] == 256
    assert replayed[0]["seconds"] == pytest.approx(256 * 0.01 + moved / 1e9)
    # Each of the nine streams fits into its share of the cache.
    assert replayed[96 * MIB]["switches"] == 9
    assert replayed[96 * MIB]["seconds"] == pytest.approx(9 * 0.01 + moved / 1e9)
    assert replayed[0]["volume_bytes"] == moved
    text = run("trace", "replay", merge, "--on", profile).stdout.decode()
    assert "switches 9 of 256" in text and "array" in text


def test_a_merge_is_replayed_on_a_real_volume(disk):
    merge = merge_of_eight(disk)
    before = sorted(os.listdir(disk))
    (disk / "mount").mkdir()
    with small_disk(disk / "mount", 64 * MIB) as volume:
        replayed = json.loads(run("trace", "replay", merge, "--on", volume, "--repeat", "3", "--json").stdout)
        assert os.listdir(volume) in ([], ["lost+found"])
    assert not any("in memory" in notice for notice in replayed["notices"])
    assert len(replayed["seconds"]) == 3 and min(replayed["seconds"]) > 0
    assert replayed["median_seconds"] == sorted(replayed["seconds"])[1]
    assert (replayed["requests"], replayed["bytes"]) == (256, 16 * MIB)
    assert replayed["read_bytes"] == replayed["written_bytes"] == 8 * MIB
    assert 1 <= replayed["extents"]["pieces"] <= 4 and replayed["extents"]["physical_offset"] > 0
    assert sorted(set(os.listdir(disk)) - {"mount"}) == before


def test_a_volume_that_is_too_small_is_named(disk):
    merge = merge_of_eight(disk)
    (disk / "mount").mkdir()
    with small_disk(disk / "mount", 16 * MIB) as volume:
        done = run("trace", "replay", merge, "--on", volume, expect=2)
    assert "not enough space" in done.stderr and "the trace need 16.8 MB" in done.stderr


CALLS_AFTER_FILLING = """
import os, sys
f = os.open("in", os.O_RDONLY)
filler = sys.argv[1] + "/filler"
if sys.argv[1] != ".":
    o = os.open(filler, os.O_WRONLY | os.O_CREAT)
    try:
        while os.write(o, bytes(1 << 16)):
            pass
    except OSError:
        pass
    os.close(o)
for n in range(int(sys.argv[2])):
    os.pread(f, 10, n)
if sys.argv[1] != ".":
    os.unlink(filler)
for n in range(100):
    os.pread(f, 10, n)
open("done", "w").close()
"""


@pytest.mark.parametrize(("mebibytes", "comes_back", "calls"), [(2, False, 50_000), (16, True, 90_000)])
def test_a_volume_that_fills_with_the_log_is_named(disk, mebibytes, comes_back, calls):
    """Also if the space comes back: then the log of strace looks complete, although lines are missing."""
    (disk / "in").write_bytes(bytes(1000))
    with small_disk(disk, mebibytes * MIB) as volume:
        run("trace", "record", "-o", volume / "run.trace", "--", "true", cwd=disk)
        before = (volume / "run.trace").read_bytes()
        code = [*python(CALLS_AFTER_FILLING), volume if comes_back else ".", str(calls)]
        done = run("trace", "record", "-o", volume / "run.trace", "--", *code, cwd=disk, expect=2)
        assert f"not enough space on the volume of {volume} for the log of strace" in done.stderr
        assert done.stderr.count("the program goes on without recording") == 1 and "strace: " not in done.stderr
        assert (disk / "done").exists()
        assert os.listdir(volume) == ["run.trace"] and (volume / "run.trace").read_bytes() == before


def test_directories_of_a_log_are_no_files(disk):
    """Programs may open a directory without O_DIRECTORY; other calls show that it is one."""
    lines = [
        'execve("/bin/x", [...], 0x1 /* 9 vars */) = 0',
        'openat(AT_FDCWD</>, "/parent", O_RDONLY) = 3</parent>',
        'openat(AT_FDCWD</>, "/listed", O_RDONLY) = 4</listed>',
        'openat(AT_FDCWD</>, "/base", O_RDONLY) = 5</base>',
        'openat(AT_FDCWD</>, "/entered", O_RDONLY) = 6</entered>',
        "getdents64(4</listed>, 0x55, 32768) = 48",
        'openat(5</base>, "gone", O_RDONLY|O_CREAT|O_TMPFILE, 0600) = 7</base/#3>(deleted)',
        "fchdir(6</entered>) = 0",
        'openat(AT_FDCWD</entered>, "/parent/in", O_RDONLY) = 8</parent/in>',
        'read(8</parent/in>, ""..., 100) = 100',
        'openat(AT_FDCWD</entered>, "/alone", O_RDONLY) = 9</alone>',
    ]
    (disk / "log").write_text("".join(f"7 1700000000.{at:06d} {line}\n" for at, line in enumerate(lines)))
    run("trace", "convert", disk / "log", "-o", disk / "x.trace")
    names = sorted(file["path"] for file in census(disk / "x.trace")["by_file"])
    assert names == ["/alone", "/base/#3", "/parent/in"]


def test_what_the_virtual_disk_cannot_do_is_refused(disk):
    trace, _ = record(disk, "true")
    for flag in (("--timing", "recorded"), ("--repeat", "2")):
        assert "needs a directory" in run("trace", "replay", trace, "--on", "disk", *flag, expect=2).stderr
    assert "there is no profile" in run("trace", "replay", trace, "--on", "nowhere", expect=2).stderr
    # Data, and a device that never ends, are not read as a profile. Without a bound, memory would end first.
    with open(disk / "data", "wb") as data:
        data.truncate(1 << 40)
    for endless in (disk / "data", "/dev/zero"):
        assert "too long for a profile" in run("trace", "replay", trace, "--on", endless, expect=2).stderr
    for device in [entry for entry in Path("/dev").iterdir() if entry.is_block_device()][:1]:
        assert "a device is no profile" in run("trace", "replay", trace, "--on", device, expect=2).stderr


def line_maker(calls):
    """A log of strace in which one program reads a file in blocks from alternating places."""
    head = '100 1700000000.000000 execve("/bin/x", [...], 0x1 /* 9 vars */) = 0\n'
    head += '100 1700000000.000001 openat(AT_FDCWD</d>, "in", O_RDONLY) = 3</d/in>\n'
    yield head
    for first in range(0, calls, 10_000):
        yield "".join(
            f"100 {1700000000 + n // 1_000_000}.{n % 1_000_000:06d} "
            f'pread64(3</d/in>, ""..., 65536, {(n % 8) * 1000000000 + n // 8 * 65536}) = 65536\n'
            for n in range(first, min(calls, first + 10_000))
        )


def test_ten_million_events_are_converted_in_bounded_memory(disk):
    """A tenth of them. The time has the bound of all, for loaded machines; memory does not grow with events."""
    calls = 1_000_000
    with open(disk / "log", "w") as log:
        log.writelines(line_maker(calls))
    began = time.monotonic()
    measured = measure("trace", "convert", "log", "-o", "big.trace", cwd=disk, timeout=120)
    seconds = time.monotonic() - began
    (disk / "log").unlink()
    assert seconds < 20
    # The program, a block of the log, a section of events and its compression.
    assert measured.peak_resident_bytes < 64 * MIB
    counted = census(disk / "big.trace")
    assert (counted["reads"], counted["runs"]) == (calls, calls)
    assert (disk / "big.trace").stat().st_size < calls * 4
    assert os.listdir(disk) == ["big.trace"]


def test_standard_output_is_written_where_it_stands(disk):
    (disk / "in").write_bytes(bytes(1000))
    trace, _ = record(disk, "cat", "in")
    (disk / "kept").write_text("before\n")
    for name in ("-", "/dev/stdout"):
        with (disk / "kept").open("ab") as kept:
            subprocess.run([ascot_binary(), "trace", "export", trace, "--csv", name], stdout=kept, check=True)
    lines = (disk / "kept").read_text().splitlines()
    assert lines[0] == "before" and lines.count("time_ns,pid,kind,offset,bytes,path") == 2


def test_no_output_replaces_what_it_is_made_of(disk):
    (disk / "in").write_bytes(bytes(1000))
    trace, _ = record(disk, "cat", "in")
    (disk / "log").write_text("1 1795501673.1 close(3</in>) = 0\n")
    before = trace.read_bytes()
    for words in (
        ["export", trace, "--csv", trace],
        ["export", trace, "--fio", trace],
        ["cut", trace, "--from", "0s", "-o", trace],
        ["convert", disk / "log", "-o", disk / "log"],
    ):
        assert "would replace what it is made of" in run("trace", *words, expect=2).stderr
    assert trace.read_bytes() == before and (disk / "log").read_text().startswith("1 ")
    (disk / "mine").mkdir()
    (disk / "mine" / "000000").write_text("mine")
    done = run("trace", "export", trace, "--fio", disk / "fio", "--fio-dir", disk / "mine", expect=2)
    assert "not empty" in done.stderr and (disk / "mine" / "000000").read_text() == "mine"


def test_a_program_that_cannot_run_leaves_the_trace_before(disk):
    (disk / "script").write_text("#!/no/interpreter\n")
    (disk / "script").chmod(0o755)
    (disk / "run.trace").write_text("before")
    _, done = record(disk, "./script", expect=2)
    assert "did not run" in done.stderr and (disk / "run.trace").read_text() == "before"


def test_record_and_show_count_the_same_files(disk):
    """A file that is only renamed has no event."""
    (disk / "renamed").write_bytes(b"x")
    trace, done = record(disk, *python("import os; os.rename('renamed', 'other'); open('file', 'w').write('y')"))
    assert f" of {census(trace)['files']} files in " in done.stderr


def test_a_trace_on_standard_output_has_its_log_beside_the_user(disk):
    before = set(os.listdir("/dev"))
    with open(disk / "out.trace", "wb") as output:
        command = [ascot_binary(), "trace", "record", "--keep-log", "-o", "/dev/stdout", "--", "true"]
        done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, cwd=disk, env=clean_environment())
    assert set(os.listdir("/dev")) == before
    assert done.returncode == 2 and b"--keep-log" in done.stderr
    with open(disk / "out.trace", "wb") as output:
        command.remove("--keep-log")
        subprocess.run(command, stdout=output, check=True, cwd=disk, env=clean_environment())
    assert census(disk / "out.trace")["events"] > 0
    assert os.listdir(disk) == ["out.trace"]
