"""`ascot trace record --block` records what disks see, whichever way a program or the kernel asks for it.

Files lie on a small disk of their own, so that its requests are known exactly: a request that is too many, or that is
attributed to another place, fails a test.
"""

import contextlib
import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from support import MIB, ascot_binary, census, clean_environment, limit_open_files, run, small_disk, start

PAGE = 4096

HELPERS = """
import mmap, os, time
def direct(path, flags=os.O_RDWR):
    return os.open(path, flags | os.O_DIRECT)
def block(size):
    memory = mmap.mmap(-1, size)
    memory.write(os.urandom(size))
    return memory
"""


def why_not():
    """Why the kernel's tracing cannot be used here; none if it can."""
    if os.geteuid() != 0:
        return "needs root"
    tried = subprocess.run(
        ["unshare", "-m", "sh", "-c", "mount -t tracefs nodev /mnt && test -d /mnt/events/block"], capture_output=True
    )
    return None if tried.returncode == 0 else f"no tracefs with block events: {tried.stderr.decode().strip()}"


pytestmark = pytest.mark.skipif(bool(why_not()), reason=str(why_not()))


@pytest.fixture
def volume(disk):
    """A disk of its own with 64 MiB."""
    with small_disk(disk, 64 * MIB, block_bytes=PAGE) as mounted:
        yield mounted


@pytest.fixture
def instances(tmp_path):
    """A function that lists the instances of tracefs that a process has made; others may record at the same time."""
    subprocess.run(["mount", "-t", "tracefs", "nodev", tmp_path], check=True)
    try:
        parent = tmp_path / "instances"
        yield lambda pid: [parent / name for name in os.listdir(parent) if name.startswith(f"ascot-{pid}-")]
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def python(code):
    return [sys.executable, "-S", "-E", "-c", HELPERS + code]


def record(disk, volume, *command, expect=0, words=(), **options):
    """Records a command that runs in `volume`; the trace lies in `disk`."""
    trace = disk / "run.trace"
    done = run(
        "trace", "record", "--block", *words, "-o", trace, "--", *command, cwd=volume, expect=expect, **options
    )
    return trace, done


def requests(trace, below):
    """Requests as (file name, kind, offset, bytes, process), of the files below a directory."""
    text = run("trace", "export", trace, "--csv", "-").stdout.decode(errors="replace")
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row["path"].startswith(f"{below}/")]
    return [
        (row["path"][len(f"{below}/") :], row["kind"], int(row["offset"]), int(row["bytes"]), int(row["pid"]))
        for row in rows
        if row["kind"] in ("read", "write")
    ]


def pages(found, name, kind):
    """How often requests of a kind cover each page of a file."""
    count = {}
    for file, what, offset, size, _ in found:
        if (file, what) == (name, kind):
            assert offset % PAGE == size % PAGE == 0
            for page in range(offset // PAGE, (offset + size) // PAGE):
                count[page] = count.get(page, 0) + 1
    return count


def once(pages_of_file):
    return dict.fromkeys(pages_of_file, 1)


def uncached(path, size):
    """A file that the page cache does not have."""
    with open(path, "wb") as file:
        file.write(os.urandom(size))
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_direct_requests_are_those_that_were_made(disk, volume):
    code = """
f = direct("file", os.O_RDWR | os.O_CREAT)
os.posix_fallocate(f, 0, 1 << 20)
os.pwrite(f, block(4096), 8192)
os.pwrite(f, block(65536), 131072)
os.pwrite(f, block(8192), 0)
os.preadv(f, [block(4096)], 135168)
os.preadv(f, [block(16384)], 131072 + 20480)
"""
    trace, _ = record(disk, volume, *python(code))
    found = requests(trace, volume)
    assert [(kind, offset, size) for _, kind, offset, size, _ in found] == [
        ("write", 8192, 4096),
        ("write", 131072, 65536),
        ("write", 0, 8192),
        ("read", 135168, 4096),
        ("read", 131072 + 20480, 16384),
    ]
    assert len({pid for *_, pid in found}) == 1 and found[0][4] > 0, "one process, which is not the kernel"
    file = next(file for file in census(trace)["by_file"] if file["path"] == f"{volume}/file")
    assert (file["runs"], file["peak_bytes"], file["opens"], file["deleted"]) == (5, MIB, 1, False)


def test_dirty_pages_count_for_their_file_although_the_kernel_writes_them(disk, volume):
    code = """
with open("one", "wb") as one, open("two", "wb") as two:
    for _ in range(64):
        one.write(os.urandom(65536))
        two.write(os.urandom(32768))
os.sync()
with open("three", "wb") as three:
    three.write(os.urandom(65536))
"""
    trace, _ = record(disk, volume, *python(code))
    found = requests(trace, volume)
    # Each page is written once: nothing is missing at the end, nothing counts twice, and no page is another file's.
    assert pages(found, "one", "write") == once(range(64 * 16))
    assert pages(found, "two", "write") == once(range(64 * 8))
    assert pages(found, "three", "write") == once(range(16))
    # Process 0 is the kernel. The recorder, which has the last pages written, counts as the kernel.
    assert {pid for *_, pid in found} == {0}


def test_the_writes_of_an_earlier_program_do_not_count(disk, volume):
    (volume / "input").write_bytes(os.urandom(4 * MIB))
    trace, _ = record(disk, volume, *python("open('input', 'rb').read()"))
    assert not [request for request in requests(trace, volume) if request[1] == "write"]


def test_mapped_files_are_seen(disk, volume):
    uncached(volume / "scan", 3 * MIB + 100)
    uncached(volume / "holes", 4 * MIB)
    code = """
scan = open("scan", "rb")
view = mmap.mmap(scan.fileno(), 0, prot=mmap.PROT_READ)
sum(view[at] for at in range(0, len(view), 4096))
holes = open("holes", "r+b")
view = mmap.mmap(holes.fileno(), 0)
view.madvise(mmap.MADV_RANDOM)
for page in (3, 500, 700):
    view[page * 4096] = 1
"""
    trace, _ = record(disk, volume, *python(code))
    found = requests(trace, volume)
    # Reads ahead end with the file, and no page is read twice.
    assert pages(found, "scan", "read") == once(range(3 * 256 + 1))
    assert not pages(found, "scan", "write")
    assert pages(found, "holes", "write") == once([3, 500, 700])
    assert pages(found, "holes", "read").keys() >= {3, 500, 700}


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
@pytest.mark.parametrize("engine", ["io_uring", "libaio"])
def test_asynchronous_requests_are_seen(disk, volume, engine):
    uncached(volume / "file", 4 * MIB)
    job = [
        "--name=job",
        "--filename=file",
        f"--ioengine={engine}",
        "--direct=1",
        "--bs=16k",
        "--size=4m",
        "--iodepth=8",
    ]
    fio = ["fio", *job, "--rw=randread", "--norandommap=0", "--invalidate=0", "--allow_file_create=0"]
    trace, _ = record(disk, volume, *fio)
    found = requests(trace, volume)
    assert pages(found, "file", "read") == once(range(1024))
    plain = disk / "calls.trace"
    run("trace", "record", "-o", plain, "--", *fio, cwd=volume)
    assert not pages(requests(plain, volume), "file", "read"), "strace sees them, too: the page of traces is wrong"


def test_removed_files_keep_their_requests(disk, volume):
    """The second file gets blocks of the first: the disk has space for one of them."""
    code = """
for name in ("first", "second"):
    f = os.open(name, os.O_RDWR | os.O_CREAT)
    for _ in range(40):
        os.write(f, os.urandom(1 << 20))
    os.fsync(f)
    os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)
    os.pread(f, 8192, 1 << 20)
    if name == "first":
        os.unlink(name)
    os.close(f)
    # The recorder may keep the blocks for a moment.
    for _ in range(100):
        free = os.statvfs(".")
        if free.f_bavail * free.f_frsize > 45 << 20:
            break
        time.sleep(0.1)
f = os.open(".", os.O_TMPFILE | os.O_RDWR)
os.write(f, bytes(65536))
os.fsync(f)
"""
    trace, _ = record(disk, volume, *python(code))
    found = requests(trace, volume)
    for name in ("first", "second"):
        assert pages(found, name, "write") == once(range(40 * 256)), name
        assert pages(found, name, "read").keys() >= {256, 257}
    counted = {os.path.basename(file["path"]): file for file in census(trace)["by_file"]}
    assert counted["first"]["deleted"] and not counted["second"]["deleted"]
    nameless = [file for file in counted.values() if file["deleted"] and file["path"].startswith(str(volume))]
    assert sorted(file["written_bytes"] for file in nameless) == [65536, 40 * MIB]
    csv_text = run("trace", "export", trace, "--csv", "-").stdout.decode()
    kinds = [line.split(",")[2] for line in csv_text.splitlines() if f"{volume}/first" in line]
    assert kinds[0] == "open" and kinds[-1] == "delete"


def test_more_files_than_descriptors(disk, volume):
    """Opened files wait in the kernel, and not as descriptors of the command, while it is busy with others."""
    program = """
for n in range(3000):
    f = os.open(str(n), os.O_WRONLY | os.O_CREAT)
    os.write(f, bytes(10))
    os.close(f)
"""
    trace, _ = record(disk, volume, *python(program), preexec_fn=limit_open_files(512))
    written = [file for file in census(trace)["by_file"] if file["path"].startswith(f"{volume}/")]
    assert len(written) == 3000 and all(file["written_bytes"] >= PAGE for file in written)


def test_a_file_that_becomes_empty_keeps_its_requests(disk, volume):
    # Looks are 0.05 s apart; the pauses allow for a disk that other tests keep busy. In the first one, looks see a
    # file whose bytes have no place yet; they get one without a change of its length, its blocks or its time.
    code = """
f = os.open("file", os.O_RDWR | os.O_CREAT)
os.write(f, os.urandom(1 << 20))
time.sleep(1)
os.fsync(f)
time.sleep(3)
os.ftruncate(f, 0)
os.fsync(f)
time.sleep(3)
other = os.open("other", os.O_RDWR | os.O_CREAT)
os.write(other, os.urandom(50 << 20))
os.fsync(other)
"""
    trace, _ = record(disk, volume, *python(code))
    found = requests(trace, volume)
    assert pages(found, "file", "write") == once(range(256))
    assert pages(found, "other", "write") == once(range(50 * 256))


def test_children_and_inherited_files(disk, volume):
    uncached(volume / "input", 2 * MIB)
    with open(volume / "input", "rb") as source, open(volume / "output", "wb") as target:
        command = [ascot_binary(), "trace", "record", "--block", "-o", disk / "run.trace"]
        command += ["--", "sh", "-c", "(cat; :) | (cat; :)"]
        subprocess.run(
            command, stdin=source, stdout=target, stderr=subprocess.DEVNULL, check=True, env=clean_environment()
        )
    found = requests(disk / "run.trace", volume)
    assert pages(found, "input", "read") == once(range(512))
    assert pages(found, "output", "write") == once(range(512))
    readers = {pid for name, kind, _, _, pid in found if kind == "read"}
    shown = census(disk / "run.trace")
    assert len(readers) == 1 and 0 not in readers and shown["processes"] >= 3


def test_other_programs_are_left_out_but_counted(disk, volume):
    uncached(volume / "mine", MIB)
    code = """
os.mkfifo("done")
open("go", "w").close()
open("done").read()
open("mine", "rb").read()
"""
    trace = disk / "run.trace"
    process = start("trace", "record", "--block", "-o", trace, "--", *python(code), cwd=volume)
    while not (volume / "go").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    with open(volume / "theirs", "wb") as theirs:
        theirs.write(os.urandom(8 * MIB))
        os.fsync(theirs.fileno())
    (volume / "done").write_text("x")
    process.communicate(timeout=60)
    assert process.returncode == 0
    found = requests(trace, volume)
    assert pages(found, "mine", "read") == once(range(256))
    assert not [request for request in found if request[0] == "theirs"]
    counts = census(trace)["block"]
    assert counts["left_out"]["bytes"] >= 8 * MIB and counts["lost_events"] == 0


def test_the_share_without_a_file_is_stated(disk, volume):
    """Making directories writes metadata and no byte of a file."""
    code = """
for n in range(300):
    os.mkdir(f"directory-{n}")
f = os.open(".", os.O_RDONLY)
os.fsync(f)
with open("file", "wb") as file:
    file.write(bytes(1 << 20))
os.sync()
"""
    trace, done = record(disk, volume, *python(code))
    shown = census(trace)
    counts = shown["block"]
    assert counts["attributed"]["bytes"] == shown["read_bytes"] + shown["written_bytes"]
    without = [counts[name] for name in ("metadata", "kernel", "unknown")]
    # A directory has a block, and 300 inodes of 256 bytes take more.
    assert sum(part["bytes"] for part in without) >= 300 * PAGE
    assert sum(part["requests"] for part in without) > 0
    text = run("trace", "show", trace).stdout.decode()
    line = next(line for line in text.splitlines() if "attributed to no file" in line)
    assert line in done.stderr, "record and show do not agree"


def test_partitions_have_their_place_on_the_disk(disk):
    image, mount = disk / "disk.img", disk / "disk"
    mount.mkdir()
    with open(image, "wb") as file:
        file.truncate(64 * MIB)
    loop = subprocess.run(["losetup", "-f", "--show", image], check=True, capture_output=True, text=True)
    device = loop.stdout.strip()
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: subprocess.run(["losetup", "-d", device], check=True))
        subprocess.run(["addpart", device, "2", "43008", "88064"], check=True)
        stack.callback(lambda: subprocess.run(["delpart", device, "2"], check=True))
        subprocess.run(
            ["mkfs.ext4", "-q", "-b", "4096", f"{device}p2"],
            check=True,
            env={**os.environ, "PATH": "/usr/sbin:/sbin:/bin"},
        )
        subprocess.run(["mount", f"{device}p2", mount], check=True)
        stack.callback(lambda: subprocess.run(["umount", mount], check=True))
        code = """
f = direct("file", os.O_RDWR | os.O_CREAT)
os.posix_fallocate(f, 0, 1 << 20)
for at in (65536, 0, 500 * 1024):
    os.pwrite(f, block(4096), at)
"""
        trace, _ = record(disk, mount, *python(code))
        found = [(kind, offset, size) for _, kind, offset, size, _ in requests(trace, mount)]
        assert found == [("write", 65536, 4096), ("write", 0, 4096), ("write", 500 * 1024, 4096)]


def test_two_disks_do_not_mix(disk):
    """Files at the same place of two disks of the same size."""
    for name in ("a", "b"):
        (disk / name).mkdir()
    with small_disk(disk / "a", 32 * MIB) as one, small_disk(disk / "b", 32 * MIB) as two:
        code = f"""
files = [direct(path, os.O_RDWR | os.O_CREAT) for path in ("{one}/file", "{two}/file")]
for f in files:
    os.posix_fallocate(f, 0, 1 << 20)
time.sleep(0.3)
for f, count in zip(files, (3, 5)):
    for n in range(count):
        os.pwrite(f, block(4096), n * 8192)
"""
        trace, _ = record(disk, one, *python(code))
        assert [size for *_, size, _ in requests(trace, one)] == [4096] * 3
        assert [size for *_, size, _ in requests(trace, two)] == [4096] * 5


def test_a_program_that_fails_or_is_killed_has_a_trace(disk, volume):
    write = "f = direct('file', os.O_RDWR | os.O_CREAT); os.pwrite(f, block(4096), 0)\n"
    trace, _ = record(disk, volume, *python(write + "raise SystemExit(7)"), expect=7)
    assert pages(requests(trace, volume), "file", "write") == {0: 1}
    trace.unlink()
    trace, done = record(disk, volume, *python(write + "os.kill(os.getpid(), 9)"), expect=None)
    assert done.returncode == -signal.SIGKILL and "killed by signal 9" in done.stderr
    assert pages(requests(trace, volume), "file", "write") == {0: 1}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_stays_after_a_signal(disk, volume, instances, number):
    code = "f = direct('file', os.O_RDWR | os.O_CREAT); os.pwrite(f, block(4096), 0); open('go', 'w'); time.sleep(60)"
    process = start(
        "trace",
        "record",
        "--block",
        "-o",
        disk / "run.trace",
        "--",
        *python(code),
        cwd=volume,
        start_new_session=True,
    )
    while not (volume / "go").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    assert len(instances(process.pid)) == 1
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == -number
    assert not instances(process.pid)
    assert sorted(os.listdir(disk)) == ["disk", "disk.img", "run.trace"]
    assert pages(requests(disk / "run.trace", volume), "file", "write") == {0: 1}


def test_what_a_killed_recording_leaves_is_removed_by_the_next(disk, volume, instances):
    process = start("trace", "record", "--block", "-o", disk / "run.trace", "--", "sleep", "60", cwd=volume)
    while not instances(process.pid):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    time.sleep(0.3)
    running = instances(process.pid)
    record(disk, volume, "true")
    assert instances(process.pid) == running, "the instance of a recording that runs was removed"
    assert (running[0] / "tracing_on").read_text() == "1\n", "a recording that runs was stopped"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGKILL)
    process.communicate()
    assert instances(process.pid) == running
    assert sorted(os.listdir(disk)) == ["disk", "disk.img", "run.trace"]
    record(disk, volume, "true")
    assert not instances(process.pid)


def writes(count):
    """A program that says when it is ready, waits, and writes so many pages apart from each other."""
    return f"""
f = direct("file", os.O_RDWR | os.O_CREAT)
os.posix_fallocate(f, 0, 1 << 20)
open("ready", "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
data = block(4096)
for n in range({count}):
    os.pwrite(f, data, n % 100 * 8192)
open("done", "w").close()
"""


def test_an_incomplete_trace_says_so(disk, volume):
    """The recorder stands still while the program makes more requests than the smallest buffer holds."""
    words = ["trace", "record", "--block", "--buffer", "4KiB", "-o", disk / "run.trace", "--"]
    process = start(*words, *python(writes(3000)), cwd=volume)
    while not (volume / "ready").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    process.send_signal(signal.SIGSTOP)
    (volume / "go").touch()
    while not (volume / "done").exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGCONT)
    errors = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 2
    assert "--buffer" in errors, errors
    counted = census(disk / "run.trace")
    assert counted["incomplete"]
    seen = len([request for request in requests(disk / "run.trace", volume) if request[1] == "write"])
    assert seen < 3000 <= seen + counted["block"]["lost_events"]
    assert "incomplete" in run("trace", "show", disk / "run.trace").stdout.decode()


def test_processes_that_live_longer_than_the_recording_are_told(disk, volume):
    code = """
if os.fork() == 0:
    os.closerange(0, 3)
    while not os.path.exists("go"):
        time.sleep(0.01)
    os._exit(0)
"""
    trace, done = record(disk, volume, *python(code), expect=2)
    (volume / "go").touch()
    assert "1 process " in done.stderr and "still ran" in done.stderr
    assert census(trace)["incomplete"]
    assert "incomplete" in run("trace", "show", trace).stdout.decode()


def test_a_full_volume_ends_the_recording_and_not_the_program(disk, volume, tmp_path):
    """The requests wait on a volume that has no space for them."""
    (disk / "full").mkdir()
    with small_disk(disk / "full", MIB, block_bytes=PAGE) as full:
        words = ["trace", "record", "--block", "-o", full / "run.trace", "--", *python(writes(20_000))]
        process = start(*words, cwd=volume)
        while not (volume / "ready").exists():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.02)
        with contextlib.suppress(OSError), open(full / "filler", "wb", buffering=0) as filler:
            while True:
                filler.write(bytes(PAGE))
        (volume / "go").touch()
        errors = process.communicate(timeout=120)[1].decode()
        assert process.returncode == 2, errors
        assert str(full) in errors and "without recording" in errors, errors
        assert (volume / "done").exists()
        assert os.listdir(full) == ["filler"]


def test_the_other_commands_take_the_trace(disk, volume):
    code = """
f = direct("file", os.O_RDWR | os.O_CREAT)
os.posix_fallocate(f, 0, 1 << 20)
for n in range(20):
    os.pwrite(f, block(4096), n * 7 % 20 * 8192)
"""
    trace, _ = record(disk, volume, *python(code))
    run("trace", "cut", trace, "--from", "0s", "--to", "1h", "-o", disk / "cut.trace")
    assert census(disk / "cut.trace")["block"] == census(trace)["block"]
    assert census(disk / "cut.trace")["written_bytes"] == census(trace)["written_bytes"]
    rows = csv.DictReader(io.StringIO(run("trace", "export", trace, "--csv", "-").stdout.decode(errors="replace")))
    last = max(int(row["time_ns"]) for row in rows)
    run("trace", "cut", trace, "--to", f"{last / 1e9:.9f}s", "-o", disk / "part.trace")
    assert census(disk / "part.trace")["block"] is None
    beside = run("trace", "compare", disk / "part.trace", trace)
    assert "beside the calls" not in beside.stdout.decode() + beside.stderr
    run("trace", "plot", trace, "-o", disk / "page.html")
    run("trace", "compare", trace, disk / "cut.trace")
    replayed = json.loads(run("trace", "replay", trace, "--on", "rotational", "--json").stdout)
    assert replayed
    run("trace", "replay", trace, "--on", disk)


def test_rights_that_are_missing_are_named():
    """A user without rights, with a command that anybody may run."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o777)
        binary = shutil.copy(ascot_binary(), directory)
        os.chmod(binary, 0o755)
        command = [binary, "trace", "record", "--block", "-o", "run.trace", "--", "true"]
        done = subprocess.run(command, capture_output=True, user=65534, group=65534, cwd=directory)
        errors = done.stderr.decode()
        assert done.returncode == 2
        assert "CAP_SYS_ADMIN" in errors and "--block" in errors, errors
        assert os.listdir(directory) == [os.path.basename(binary)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["record", "--block", "-o", "x", "--", "no-such-program"], "no such program"),
        (["record", "--block", "-o", "no/such/x", "--", "true"], "no/such"),
        (["record", "--block", "--keep-log", "-o", "x", "--", "true"], "--keep-log"),
        (["record", "--buffer", "1MiB", "-o", "x", "--", "true"], "--block"),
        (["record", "--block", "--buffer", "much", "-o", "x", "--", "true"], "--buffer"),
    ],
)
def test_refusals(disk, words, message):
    done = run("trace", *words, cwd=disk, expect=2)
    assert message in done.stderr
    assert not os.listdir(disk)


def test_a_file_that_the_program_opened_is_not_replaced(disk, volume):
    words = ["trace", "record", "--block", "-o", volume / "mine", "--", "sh", "-c", "echo mine > mine; sync"]
    done = run(*words, cwd=volume, expect=2)
    assert (volume / "mine").read_text() == "mine\n"
    assert f"{volume}/mine.trace" in done.stderr
    assert any(file["path"] == f"{volume}/mine" for file in census(volume / "mine.trace")["by_file"])
    (volume / "given").write_text("given")
    done = run("trace", "record", "--block", "-o", volume / "given", "--", "cat", "given", cwd=volume, expect=2)
    assert "given" in done.stderr and (volume / "given").read_text() == "given"


def test_gaps_of_sparse_files_take_no_space(disk, volume):
    code = "f = os.open('a', os.O_RDWR | os.O_CREAT)\nfor n in range(3): os.pwrite(f, b'x', n << 30)"
    trace, _ = record(disk, volume, *python(code))
    assert {offset for file, kind, offset, *_ in requests(trace, volume) if file == "a"} == {0, 1 << 30, 2 << 30}
    assert census(trace)["peak_live_bytes"] < MIB
