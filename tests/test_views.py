"""Views: runs that are merged when they are read, by the command and through a mount."""

import concurrent.futures
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
import tempfile
import time
from pathlib import Path

import pytest
import support
from support import FIXED, MIB, limit_open_files, mounted, needs_fuse


def run(*arguments, **options):
    return support.run(*map(str, arguments), **options)


@pytest.fixture
def made(disk):
    """A file of records, the sorted file, and a view of many runs."""
    run("gen", "300k", "-o", disk / "in.rec")
    run("sort", disk / "in.rec", *FIXED, "-o", disk / "sorted.rec")
    run("sort", disk / "in.rec", *FIXED, "--memory", "8MiB", "--view", disk / "v.view")
    return disk


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
    """Lines with many duplicates, in compressed and plain runs; each reader reads a different part."""
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


def test_one_of_the_runs_is_empty(disk):
    """A file of a view may have no records."""
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
    assert "not a view" in run("merge", made / "v.view", made / "in.rec", expect=2).stderr
    other = run("merge", made / "v.view", made / "w.view", "--view", made / "x.view", expect=2)
    assert "exists already" in other.stderr
    shutil.rmtree(made / "w.view")
    assert "is missing" in run("view", made / "x.view", expect=2).stderr


def test_errors_name_the_fault(made):
    view = made / "v.view"
    assert "exists already" in run("sort", made / "in.rec", *FIXED, "--view", view, expect=2).stderr
    assert "needs a file" in run("sort", made / "in.rec", *FIXED, "-u", "--view", made / "u", expect=2).stderr
    assert "not a view" in run("view", made, expect=2).stderr
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


def _killed_while_making(disk, *flags):
    """Kills a job that has written some runs of a view; returns their directory."""
    process = support.start("sort", str(disk / "big.rec"), *FIXED, "--memory", "8MiB", *flags)
    # Three complete runs, and one that is being written.
    while len(list(disk.glob("ascot-*/*.run"))) < 4:
        assert process.poll() is None
        time.sleep(0.005)
    process.kill()
    process.wait()
    (job,) = disk.glob("ascot-*")
    return job


def test_a_killed_job_is_resumed_or_removed(disk):
    run("gen", "3M", "-o", disk / "big.rec")
    job = _killed_while_making(disk, "--view", str(disk / "v.view"))
    assert not (disk / "v.view").exists()
    assert "--resume" in run("clean", "--dry-run", disk).stdout.decode()
    runs = {path: path.stat().st_mtime_ns for path in sorted(job.glob("*.run"))[:2]}
    run("sort", "--resume", job)
    assert not job.exists()
    kept = {path: (disk / "v.view" / path.name).stat().st_mtime_ns for path in runs}
    assert kept == runs, "what was there was not written again"
    run("sort", disk / "big.rec", *FIXED, "-o", disk / "sorted.rec")
    run("view", disk / "v.view", "-o", disk / "shown")
    subprocess.run(["cmp", disk / "shown", disk / "sorted.rec"], check=True)
    ours = {path.name for path in (disk / "v.view").iterdir()}
    assert {"view.index", "view.json"} <= ours, ours
    assert all(name.startswith(("run-", "view.")) for name in ours), ours
    shutil.rmtree(disk / "v.view")
    job = _killed_while_making(disk, "--view", str(disk / "v.view"))
    assert "removed" in run("clean", job).stdout.decode()
    assert sorted(path.name for path in disk.iterdir()) == ["big.rec", "shown", "sorted.rec"]


def test_an_interrupted_job_leaves_no_files(disk):
    run("gen", "3M", "-o", disk / "big.rec")
    process = support.start("sort", str(disk / "big.rec"), *FIXED, "--memory", "8MiB", "--view", str(disk / "v"))
    while len(list(disk.glob("ascot-*/*.run"))) < 2:
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    process.wait()
    assert sorted(path.name for path in disk.iterdir()) == ["big.rec"]


def test_sorted_files_are_parts_in_place(made):
    """A view of sorted files and a view copies nothing, and an error names a file changed later."""
    flags = [*FIXED, "--view", made / "x.view"]
    run("gen", "100k", "--start", "300k", "-o", made / "other.rec")
    run("sort", made / "other.rec", *FIXED, "-o", made / "other.sorted")
    run("sort", made / "in.rec", made / "other.rec", *FIXED, "-o", made / "both.rec")
    both = (made / "both.rec").read_bytes()
    said = run("merge", made / "sorted.rec", made / "other.sorted", *flags).stderr
    assert "400,000 records" in said and "nothing copied" in said, said
    assert run("view", made / "x.view").stdout == both
    assert run("view", made / "x.view", "--range", "1000050..2000050").stdout == both[1000050:2000050]
    assert sum(path.stat().st_size for path in (made / "x.view").iterdir()) < 100_000
    run("merge", made / "v.view", made / "other.sorted", "--view", made / "y.view")
    assert run("view", made / "y.view").stdout == both
    run("merge", made / "y.view", "--view", made / "z.view")
    assert run("view", made / "z.view", "--tail", 9).stdout == both[-900:]
    unsorted = run("merge", made / "other.rec", *FIXED, "--view", made / "w.view", expect=2)
    assert "not sorted: record " in unsorted.stderr
    assert not (made / "w.view").exists() and not list(made.glob("ascot-*"))
    otherwise = run(
        "merge", made / "v.view", made / "other.sorted", "--format", "fixed:50", "--view", made / "w", expect=2
    )
    assert "another order" in otherwise.stderr
    os.utime(made / "other.sorted")
    for view in ("x.view", "y.view", "z.view"):
        altered = run("view", made / view, expect=2).stderr
        assert "other.sorted" in altered and "changed since" in altered
    (made / "other.sorted").unlink()
    assert "is missing" in run("view", made / "x.view", expect=2).stderr


def test_a_file_without_a_last_line_end_is_a_part(disk):
    (disk / "one").write_bytes(b"b\nd\nf")
    (disk / "two").write_bytes(b"a\nd\ng\n")
    run("merge", disk / "one", disk / "two", "--view", disk / "v.view")
    assert run("view", disk / "v.view").stdout == b"a\nb\nd\nd\nf\ng\n"
    assert run("view", disk / "v.view", "--keys", "e..").stdout == b"f\ng\n"
    numbers = [b"%d" % number for number in range(50_000)]
    (disk / "n1").write_bytes(b"\n".join(numbers[::2]))
    (disk / "n2").write_bytes(b"\n".join(numbers[1::2]))
    run("merge", "-n", disk / "n1", disk / "n2", "--view", disk / "n.view")
    assert run("view", disk / "n.view").stdout == b"\n".join(numbers) + b"\n"
    header = b"id,text\n"
    (disk / "c1").write_bytes(header + b"1,a\n3,c\n")
    (disk / "c2").write_bytes(header + b"2,b\n10,d\n")
    flags = ["--format", "csv", "--header", "--key", "id"]
    run("merge", disk / "c1", disk / "c2", *flags, "--view", disk / "c.view")
    assert run("view", disk / "c.view").stdout == header + b"1,a\n2,b\n3,c\n10,d\n"


def test_other_directories_are_not_views(made):
    file = run("view", made / "in.rec", expect=2).stderr
    assert "a view is a directory" in file and "ascot merge FILE" in file
    assert "there is no such view" in run("view", made / "nothing", expect=2).stderr
    assert "not a view" in run("mount", made, made, expect=2).stderr
    for words in (["sort", made / "in.rec"], ["merge", made / "sorted.rec"]):
        nowhere = run(*words, *FIXED, "--view", made / "nodir" / "x", expect=2).stderr
        assert "nodir: there is no such directory" in nowhere and "mkdir" in nowhere, nowhere
    assert "no such directory" in run("sort", "--resume", made / "nothing", expect=2).stderr
    for records in ("1.5", ".", "1.0005k", "0.5"):
        assert "not a count" in run("view", made / "v.view", "--head", records, expect=2).stderr, records
    assert len(run("view", made / "v.view", "--head", "0.01k").stdout) == 1000
    piped = run("merge", "-", *FIXED, "--view", made / "p.view", expect=2, stdin=b"")
    assert "only a file" in piped.stderr
    top = run("sort", made / "in.rec", *FIXED, "--top", 3, "--view", made / "u", expect=2).stderr
    assert "--head" in top


def test_a_full_disk_leaves_no_view(disk):
    with support.small_disk(disk, 64 * MIB) as full:
        _fills_up(full)


def _fills_up(small_disk):
    run("gen", "200k", "-o", small_disk / "in.rec")
    size = (small_disk / "in.rec").stat().st_size
    free = os.statvfs(small_disk)
    spare = free.f_bavail * free.f_frsize - size // 2
    with (small_disk / "ballast").open("wb") as ballast:
        os.posix_fallocate(ballast.fileno(), 0, spare)
    done = run("sort", small_disk / "in.rec", *FIXED, "--memory", "8MiB", "--view", small_disk / "v", expect=2)
    assert "space for the runs of the view" in done.stderr and "--temp" not in done.stderr, done.stderr
    assert "--view DIR" in done.stderr
    with tempfile.TemporaryDirectory(dir=small_disk.parent) as roomy:
        roomy = Path(roomy)
        run("sort", small_disk / "in.rec", *FIXED, "--memory", "8MiB", "--view", roomy / "v")
        done = run("view", roomy / "v", "--materialize", small_disk / "out", expect=2)
        assert "not enough space for the output: 20" in done.stderr, done.stderr
        done = run("view", roomy / "v", "--head", "199k", "-o", small_disk / "out", expect=2)
        assert "not enough space for the output: 19.9" in done.stderr, done.stderr
        run("view", roomy / "v", "--head", "10", "-o", small_disk / "out")
        (small_disk / "out").unlink()
    assert sorted(it.name for it in small_disk.iterdir() if it.name != "lost+found") == ["ballast", "in.rec"]


def test_view_or_file_by_prediction(disk):
    run("gen", "600k", "-o", disk / "in.rec")
    common = ["sort", disk / "in.rec", *FIXED, "--memory", "8MiB", "-o", disk / "out", "--view", "auto"]
    explained = run(*common, "--explain")
    assert "out.view, a view" in explained.stdout.decode() and "a view, " in explained.stderr, explained
    explained = run(*common, "--explain", "--reads", "1000000")
    assert "view instead of a file" in explained.stdout.decode()
    assert "a file, not a view" in explained.stderr, explained
    assert [path.name for path in disk.iterdir()] == ["in.rec"], "what is explained is not done"
    said = run(*common, "--reads", "1").stderr
    assert "a view" in said and (disk / "out.view" / "view.json").exists(), said
    said = run(*common, "--reads", "1000000").stderr
    assert "a file, not a view" in said and (disk / "out").exists(), said


def test_flags_without_effect_on_views_are_refused(made):
    """Each flag has its effect or is refused with a remedy, before anything is written."""
    view = made / "v.view"
    before = sorted(made.iterdir())
    refused = {
        "--top": [3], "-u": [], "--report": [made / "r.json"], "-T": [made], "--explain": [], "--parts": [3],
        "--volume": [made / "p.toml"], "--batch-size": [4], "--compress": ["lz4"],
    }  # fmt: skip
    for flag, value in refused.items():
        for where in (["-o", made / "x{}"], [], ["--view", made / "x.view"]):
            said = run("merge", view, flag, *value, *where, expect=2)
            assert "views cannot be combined with --" in said.stderr and "\n  " in said.stderr, said
            assert not said.stdout, said
    for order in (["-r"], ["--format", "fixed:50"], ["-k", "0..4"], ["--header"], ["-s"], ["-n"]):
        for where in (["-o", made / "x"], ["--view", made / "x.view"]):
            assert run("merge", view, *order, *where, expect=2).stderr, order
    assert "another order" in run("merge", view, *FIXED, "-s", expect=2).stderr
    reshaped = run("reshape", view, "--parts", 3, "-o", made / "x{}", expect=2).stderr
    assert "--parts" in reshaped and "ascot reshape FILE" in reshaped
    for command in (["sort"], ["sort", "-m"], ["sort", "-c"], ["split", "--parts", 2, "-o", made / "x{}"]):
        said = run(*command, view, expect=2).stderr
        assert "is a view" in said and "ascot merge" in said, said
    mixed = run("merge", view, made / "sorted.rec", "-o", made / "x", expect=2).stderr
    assert "ascot merge FILE... --view DIR" in mixed and "ascot view DIR -o FILE" in mixed
    assert sorted(made.iterdir()) == before
    assert run("merge", view, *FIXED).stdout == (made / "sorted.rec").read_bytes()


def test_explain_shows_the_plan_of_the_view(made):
    words = ["sort", made / "in.rec", *FIXED, "--memory", "8MiB", "--view", made / "r.view"]
    told = run(*words, "--explain", "--report", made / "plan.json").stdout.decode()
    assert "form sorted runs" in told and "r.view, a view" in told and "at each reading" in told, told
    assert "file instead of a view" in told and not (made / "r.view").exists()
    plan = json.loads((made / "plan.json").read_text())["plan"]
    run(*words, "--report", made / "report.json")
    done = json.loads((made / "report.json").read_text())["plan"]
    for one in (plan, done):
        assert one["chosen"]["factors"] == [] and one["others"] == [] and not one["forced"], one
        assert [step["name"] for step in one["chosen"]["passes"]] == ["form runs"], one
    assert "distribute" in run(*words[:-1], made / "s", "--method", "distribute", expect=2).stderr
    assert "--view auto" in run(*words[:-1], made / "s", "--reads", 2, expect=2).stderr


def test_an_unwritable_output_is_an_error(made):
    for words in (["view", made / "v.view", "--head", "1"], ["merge", made / "v.view"]):
        process = subprocess.run(
            ["sh", "-c", '"$@" >&-', "sh", support.ascot_binary(), *map(str, words)], capture_output=True, check=False
        )
        assert process.returncode == 2 and b"standard output" in process.stderr, process


def test_exactly_half_the_writes(made):
    report = made / "report.json"
    run("sort", made / "in.rec", *FIXED, "--memory", "8MiB", "--view", made / "r.view", "--report", report)
    streams = [stream for one in json.loads(report.read_text())["passes"] for stream in one["streams"]]
    written = sum(stream["written_bytes"] for stream in streams)
    size = (made / "in.rec").stat().st_size
    assert size <= written < 1.02 * size


@needs_fuse
def test_a_mounted_file_is_an_ordinary_file(made):
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
        middle = one.stat().st_size // 2
        with one.open("r+b") as damaged:
            damaged.seek(middle)
            byte = damaged.read(1)
            damaged.seek(middle)
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


def test_few_open_files_suffice_or_are_named(made):
    done = run("view", made / "v.view", preexec_fn=limit_open_files(256), expect=None)
    assert done.returncode == 0 and done.stdout == (made / "sorted.rec").read_bytes()


@needs_fuse
def test_memory_of_a_mount_with_many_readers(made):
    """A dozen readers stay within the cap; when they pause, their memory serves the next."""
    whole = (made / "sorted.rec").read_bytes()
    with mounted(made / "v.view", "--memory", "48MiB") as (file, process):
        readers = [file.open("rb", buffering=0) for _ in range(12)]
        for at in range(0, 4 * MIB, MIB // 2):
            for reader in readers:
                assert reader.read(MIB // 2) == whole[at : at + MIB // 2]
        # They pause and stay open; a later reader reads the whole file.
        assert file.read_bytes() == whole
        for reader in readers:
            assert reader.read(1000) == whole[4 * MIB : 4 * MIB + 1000]
            reader.close()
        status = Path(f"/proc/{process.pid}/status").read_text()
        peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
        assert peak << 10 < 48 * MIB + 40 * MIB, f"{peak} KiB"


@needs_fuse
def test_unmounted_with_open_readers(made):
    """A lazy unmount lets readers finish; a plain one fails because the mount is busy."""
    whole = (made / "sorted.rec").read_bytes()
    with mounted(made / "v.view") as (file, process), file.open("rb", buffering=0) as reader:
        assert reader.read(5000) == whole[:5000]
        assert subprocess.run(["umount", file.parent], capture_output=True).returncode != 0
        subprocess.run(["umount", "-l", file.parent], check=True)
        assert reader.read(5000) == whole[5000:10000]
        reader.close()
        assert process.wait(20) == 0


def test_thousands_of_runs(disk):
    """A view of more than a thousand files, read in parts and as a whole, and with too few descriptors."""
    lines = [b"%06d\n" % number for number in range(40_000)]
    random.seed(1)
    random.shuffle(lines)
    for part in range(1200):
        (disk / f"{part:04}").write_bytes(b"".join(sorted(lines[part::1200])))
    files = sorted(path for path in disk.iterdir())
    run("merge", *files, "--view", disk / "v.view")
    whole = b"".join(sorted(lines))
    assert run("view", disk / "v.view").stdout == whole
    assert run("view", disk / "v.view", "--range", "100000..100070").stdout == whole[100_000:100_070]
    few = run("view", disk / "v.view", preexec_fn=limit_open_files(256), expect=None)
    assert few.returncode == 2 and "open" in few.stderr, few.stderr


@needs_fuse
def test_a_mount_is_served_in_the_background(made):
    at = made / "background"
    at.mkdir()
    # The server closes its pipes; otherwise this would hang.
    run("mount", made / "v.view", at)
    try:
        assert (at / os.listdir(at)[0]).read_bytes() == (made / "sorted.rec").read_bytes()
    finally:
        subprocess.run(["umount", at], check=True)
    # The command itself refuses a view that it cannot serve.
    for place, why in ((made / "in.rec", "not a directory"), (made / "nowhere", "No such file")):
        assert why in run("mount", made / "v.view", place, expect=2).stderr
    assert "not a view" in run("mount", made, at, expect=2).stderr
    assert not os.path.ismount(at)


@needs_fuse
def test_a_mount_ends_during_a_read(made):
    with mounted(made / "v.view") as (file, process):
        reader = os.open(file, os.O_RDONLY)
        assert os.read(reader, 100)
        process.terminate()
        assert process.wait(20) == -signal.SIGTERM
        assert not os.path.ismount(file.parent)
        with contextlib.suppress(OSError):
            os.close(reader)


@needs_fuse
def test_readers_wait_for_memory(disk):
    run("gen", "300k", "-o", disk / "in")
    run("sort", disk / "in", *FIXED, "--memory", "8MiB", "--view", disk / "v.view")
    whole = subprocess.run([support.ascot_binary(), "view", disk / "v.view"], check=True, capture_output=True).stdout
    with mounted(disk / "v.view", "--memory", "12MiB") as (file, _):

        def read(number):
            begin = number * 3_000_000
            with file.open("rb", buffering=0) as reader:
                reader.seek(begin)
                pieces = [reader.read(1 << 16) for _ in range(20)]
            return b"".join(pieces) == whole[begin : begin + (20 << 16)]

        with concurrent.futures.ThreadPoolExecutor(8) as readers:
            assert all(readers.map(read, range(8)))
