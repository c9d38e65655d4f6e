"""Views: runs that are merged when they are read, by the command and through a mount."""

import contextlib
import hashlib
import itertools
import json
import mmap
import os
import random
import shutil
import signal
import subprocess
import time

import pytest
import support
from support import MIB, limit_open_files

FIXED = ["--format", "fixed:100", "--key", "0..10"]
MOUNTS = os.path.exists("/dev/fuse") and os.geteuid() == 0 and shutil.which("fusermount3")
needs_fuse = pytest.mark.skipif(not MOUNTS, reason="needs /dev/fuse, fusermount3 and root")


def run(*arguments, **options):
    return support.run(*map(str, arguments), **options)


@pytest.fixture
def made(disk):
    """A file of records, the sorted file, and a view of many runs."""
    run("gen", "300k", "-o", disk / "in.rec")
    run("sort", disk / "in.rec", *FIXED, "-o", disk / "sorted.rec")
    run("sort", disk / "in.rec", *FIXED, "--memory", "8MiB", "--view", disk / "v.view")
    return disk


@contextlib.contextmanager
def mounted(view, *arguments):
    """The mounted file and the process that serves it."""
    at = view.parent / f"mnt-{view.name}"
    at.mkdir(exist_ok=True)
    process = support.start("mount", str(view), str(at), *arguments)
    try:
        deadline = time.time() + 20
        while not os.path.ismount(at):
            assert process.poll() is None and time.time() < deadline, process.stderr.read()
            time.sleep(0.02)
        yield at / os.listdir(at)[0], process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(20)
        if os.path.ismount(at):
            subprocess.run(["umount", "-l", at], check=False)


def test_a_view_is_the_sorted_file(made):
    whole = (made / "sorted.rec").read_bytes()
    view = made / "v.view"
    assert len(list(view.glob("*.run"))) > 4
    assert run("view", view).stdout == whole
    assert run("view", view, "--memory", "8MiB").stdout == whole
    run("view", view, "--materialize", made / "file")
    assert (made / "file").read_bytes() == whole
    assert not list(made.glob("*ascot-*"))


def test_parts_are_found_exactly(made):
    whole = (made / "sorted.rec").read_bytes()
    view = made / "v.view"
    for seed in range(12):
        random.seed(seed)
        start = random.randrange(len(whole))
        end = min(len(whole), start + random.choice([0, 1, 99, 100, 5000, 3_000_000]))
        assert run("view", view, "--range", f"{start}..{end}").stdout == whole[start:end], (start, end)
    assert run("view", view, "--range", "29MB..").stdout == whole[29_000_000:]
    assert run("view", view, "--head", 7).stdout == whole[:700]
    assert run("view", view, "--tail", 7).stdout == whole[-700:]
    assert run("view", view, "--tail", "1G").stdout == whole
    assert run("view", view, "--at-record", 299_990).stdout == whole[-1000:]
    records = [whole[at : at + 100] for at in range(0, len(whole), 100)]
    wanted = b"".join(record for record in records if b"\x41" <= record < b"\x42")
    assert run("view", view, "--keys", "0x41..0x42").stdout == wanted
    run("view", view, "--range", "5..1", expect=2)
    run("view", view, "--head", 1, "--tail", 1, expect=2)


@pytest.mark.parametrize("layout", ["lines", "csv", "u64-le"])
def test_other_layouts(disk, layout):
    random.seed(layout)
    source = disk / "in.csv"
    flags = ["--memory", "8MiB"]
    if layout == "lines":
        source.write_bytes(b"".join(b"%d %d\n" % (random.randrange(50), i) for i in range(700_000)))
        flags += ["-k1,1n", "-s"]
    elif layout == "csv":
        rows = ["id,text,n\n", *(f'{i},"a\n{i % 7}",{random.randrange(10**6)}\n' for i in range(400_000))]
        source.write_text("".join(rows))
        flags += ["--key", "n:desc"]
    else:
        source.write_bytes(random.randbytes(16 * MIB))
        flags += ["--format", layout]
    run("sort", source, *flags, "-o", disk / "sorted")
    run("sort", source, *flags, "--view", disk / "v.view")
    whole = (disk / "sorted").read_bytes()
    assert run("view", disk / "v.view").stdout == whole
    middle = len(whole) // 2
    part = run("view", disk / "v.view", "--range", f"{middle}..{middle + 1000}").stdout
    assert part == whole[middle : middle + 1000]
    assert run("view", disk / "v.view", "--range", "0..100").stdout == whole[:100]
    if layout == "u64-le":
        numbers = memoryview(whole).cast("Q")
        low = numbers[1000]
        assert run("view", disk / "v.view", "--keys", f"{low}..{numbers[1010]}").stdout == whole[8000:8080]


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_pieces_read_by_several_at_a_time(compression, disk):
    """Lines with many duplicates, in runs that are compressed or not; each reader has a piece of its own."""
    random.seed(compression)
    lines = [b"%03d %s\n" % (random.randrange(300), b"x" * random.randrange(60)) for _ in range(400_000)]
    (disk / "in").write_bytes(b"".join(lines))
    run("sort", disk / "in", "--memory", "8MiB", "--compress", compression, "--view", disk / "v.view")
    assert len(list((disk / "v.view").glob("*.run"))) > 2
    whole = b"".join(sorted(lines))
    for _ in range(3):
        ends = sorted(random.sample(range(len(whole)), 5))
        parts = list(itertools.pairwise([0, *ends, len(whole)]))
        readers = [support.start("view", str(disk / "v.view"), "--range", f"{a}..{b}") for a, b in parts]
        assert b"".join(reader.communicate()[0] for reader in readers) == whole


def test_runs_of_which_one_is_empty(disk):
    """Of views of several files one may have no records."""
    for name, text in [("full", b"b\nd\n"), ("empty", b""), ("more", b"a\nc\n")]:
        (disk / name).write_bytes(text)
        run("sort", disk / name, "--view", disk / f"{name}.view")
    views = [disk / f"{name}.view" for name in ("full", "empty", "more")]
    run("merge", *views, "--view", disk / "all.view")
    assert run("view", disk / "all.view").stdout == b"a\nb\nc\nd\n"
    assert run("view", disk / "all.view", "--range", "3..7").stdout == b"\nc\nd"
    assert run("view", disk / "all.view", "--tail", 1).stdout == b"d\n"


def test_small_and_empty_inputs(disk):
    for name, text in [("empty", b""), ("one", b"a\n"), ("few", b"c\nb\na\n")]:
        (disk / name).write_bytes(text)
        run("sort", disk / name, "--view", disk / f"{name}.view")
        assert run("view", disk / f"{name}.view").stdout == b"".join(sorted(text.splitlines(True)))
    assert run("sort", "--view", disk / "pipe.view", stdin=b"2\n1\n").returncode == 0
    assert run("view", disk / "pipe.view").stdout == b"1\n2\n"


def test_a_view_of_views(made):
    run("gen", "100k", "--start", "300k", "-o", made / "other.rec")
    run("sort", made / "other.rec", *FIXED, "--memory", "8MiB", "--view", made / "w.view")
    run("sort", made / "in.rec", made / "other.rec", *FIXED, "-o", made / "both.rec")
    both = (made / "both.rec").read_bytes()
    run("merge", made / "v.view", made / "w.view", "--view", made / "x.view")
    assert run("view", made / "x.view").stdout == both
    assert run("view", made / "x.view", "--tail", 3).stdout == both[-300:]
    assert run("merge", made / "v.view", made / "w.view").stdout == both
    run("merge", made / "x.view", "-o", made / "again.rec")
    assert (made / "again.rec").read_bytes() == both
    assert sum(path.stat().st_size for path in (made / "x.view").iterdir()) < 100_000, "nothing is copied"
    assert "no view" in run("merge", made / "v.view", made / "in.rec", expect=2).stderr
    shutil.rmtree(made / "w.view")
    assert "is missing" in run("view", made / "x.view", expect=2).stderr


def test_what_goes_wrong_is_named(made):
    view = made / "v.view"
    assert "there already" in run("sort", made / "in.rec", *FIXED, "--view", view, expect=2).stderr
    assert "need a file" in run("sort", made / "in.rec", *FIXED, "-u", "--view", made / "u", expect=2).stderr
    assert "no view" in run("view", made, expect=2).stderr
    one = sorted(view.glob("*.run"))[2]
    whole = one.read_bytes()
    one.write_bytes(whole[:-4096])
    assert one.name in run("view", view, expect=2).stderr
    one.write_bytes(whole[:70_000] + bytes([whole[70_000] ^ 1]) + whole[70_001:])
    assert one.name in run("view", view, expect=2).stderr
    one.unlink()
    assert "is missing" in run("view", view, expect=2).stderr
    one.write_bytes(whole)
    manifest = view / "view.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"records"', b'"record5"', 1))
    assert "view.json" in run("view", view, expect=2).stderr


def test_a_killed_job_leaves_what_clean_finds(disk):
    run("gen", "3M", "-o", disk / "big.rec")
    process = support.start("sort", disk / "big.rec", *FIXED, "--memory", "8MiB", "--view", disk / "v.view")
    while not list(disk.glob("ascot-*/*.keys")):
        assert process.poll() is None
        time.sleep(0.005)
    process.kill()
    process.wait()
    assert not (disk / "v.view").exists()
    assert "removed" in run("clean", disk).stdout.decode()
    assert sorted(path.name for path in disk.iterdir()) == ["big.rec"]
    process = support.start("sort", disk / "big.rec", *FIXED, "--memory", "8MiB", "--view", disk / "v.view")
    while not list(disk.glob("ascot-*/*.keys")):
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    process.wait()
    assert sorted(path.name for path in disk.iterdir()) == ["big.rec"]


def test_view_or_file_by_prediction(disk):
    run("gen", "600k", "-o", disk / "in.rec")
    common = ["sort", disk / "in.rec", *FIXED, "--memory", "8MiB", "-o", disk / "out", "--view", "auto"]
    assert "view instead of a file" in run(*common, "--explain").stdout.decode()
    said = run(*common, "--reads", "1").stderr
    assert "a view" in said and (disk / "out.view" / "view.json").exists(), said
    said = run(*common, "--reads", "1000000").stderr
    assert "a file, not a view" in said and (disk / "out").exists(), said


def test_exactly_half_the_writes(made):
    report = made / "report.json"
    run("sort", made / "in.rec", *FIXED, "--memory", "8MiB", "--view", made / "r.view", "--report", report)
    streams = [stream for one in json.loads(report.read_text())["passes"] for stream in one["streams"]]
    written = sum(stream["written_bytes"] for stream in streams)
    size = (made / "in.rec").stat().st_size
    assert size <= written < 1.02 * size


@needs_fuse
def test_the_mounted_file_is_an_ordinary_one(made):
    whole = (made / "sorted.rec").read_bytes()
    with mounted(made / "v.view", "--memory", "64MiB") as (file, process):
        assert file.name == "in.rec" and file.stat().st_size == len(whole)
        assert not os.access(file, os.W_OK) or os.geteuid() == 0
        with pytest.raises(OSError):
            file.open("r+b")
        digest = subprocess.run(["sha256sum", file], capture_output=True, check=True).stdout
        assert digest.split()[0].decode() == hashlib.sha256(whole).hexdigest()
        subprocess.run(["cp", file, made / "copy"], check=True)
        subprocess.run(["cmp", made / "copy", made / "sorted.rec"], check=True)
        block = subprocess.run(
            ["dd", f"if={file}", "bs=4096", "skip=1234", "count=3"], capture_output=True, check=True
        ).stdout
        assert block == whole[1234 * 4096 : 1237 * 4096]
        both = (file, made / "copy")
        shown, copied = (subprocess.run(["grep", "-ac", "AA", it], capture_output=True) for it in both)
        assert shown.stdout == copied.stdout
        assert subprocess.run(["tail", "-c", "100", file], capture_output=True).stdout == whole[-100:]
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as memory:
            random.seed(1)
            for _ in range(100):
                at = random.randrange(len(whole) - 300)
                assert memory[at : at + 300] == whole[at : at + 300]
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        assert not os.path.ismount(file.parent)


@needs_fuse
def test_many_readers_and_one_that_is_killed(made):
    whole = hashlib.sha256((made / "sorted.rec").read_bytes()).hexdigest().encode()
    with mounted(made / "v.view", "--memory", "48MiB") as (file, process):
        slow = ["dd", f"if={file}", "of=/dev/null", "bs=100", "iflag=direct"]
        victim = subprocess.Popen(slow, stderr=subprocess.DEVNULL)
        readers = [subprocess.Popen(["sha256sum", file], stdout=subprocess.PIPE) for _ in range(7)]
        time.sleep(0.1)
        victim.kill()
        victim.wait()
        for reader in readers:
            assert reader.communicate(timeout=50)[0].split()[0] == whole
        assert process.poll() is None
        subprocess.run(["fusermount3", "-u", file.parent], check=True)
        assert process.wait(20) == 0


@needs_fuse
def test_damage_while_mounted_is_an_error(made):
    whole = (made / "sorted.rec").read_bytes()
    with mounted(made / "v.view") as (file, process):
        assert file.open("rb").read(100) == whole[:100]
        one = sorted((made / "v.view").glob("*.run"))[1]
        with one.open("r+b") as damaged:
            damaged.seek(70_000)
            byte = damaged.read(1)
            damaged.seek(70_000)
            damaged.write(bytes([byte[0] ^ 1]))
        with pytest.raises(OSError) as error, file.open("rb", buffering=0) as opened:
            at = 0
            while piece := opened.read(65536):
                assert piece == whole[at : at + len(piece)]
                at += len(piece)
        assert error.value.errno == 5
        assert process.poll() is None
        process.terminate()
        assert one.name in process.communicate(timeout=20)[1].decode()


def test_few_open_files_are_enough_or_named(made):
    done = run("view", made / "v.view", preexec_fn=limit_open_files(256), expect=None)
    assert done.returncode == 0 and done.stdout == (made / "sorted.rec").read_bytes()
