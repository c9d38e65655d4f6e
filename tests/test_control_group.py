"""A job survives in a control group with a limit of exactly `--memory`, and in one without the flag.

The group is so small that every job spills within a second. The memory that the kernel counts there beside the cap
(code, stacks, small allocations, files in the page cache) must fit, too: a job that does not fit is killed.
"""

import json
import os
import random
import shutil
import subprocess
import sys

import pytest
import support
from layouts import BY_NAME
from support import (
    METHODS,
    MIB,
    enter_cgroup,
    leftovers,
    measure,
    memory_cgroup,
    out_of_memory_kills,
    run,
    small_disk,
)  # fmt: skip

LAYOUTS = ["lines", "csv", "fixed-100", "u64-le", "u32-be", "prefixed-u16"]
GROUP_BYTES = 48 * MIB
FILE_BYTES = 56 * MIB
CAPS = {"exact": ["--memory", "48MiB"], "without": []}
NOTICE = "memory is lowered from 48 MiB to "


def write_records(layout, path):
    """Writes more records than the group's memory holds, by repeating a block."""
    rng = random.Random(7)
    if layout.dtype:
        block = rng.randbytes(4 * MIB)
    else:
        sample = layout.records(rng, 256, "random")
        block = b"".join(layout.records(rng, 2 * MIB * len(sample) // sum(map(len, sample)), "random"))
    with open(path, "wb") as file:
        file.write(layout.head)
        while file.tell() < FILE_BYTES:
            file.write(block)


@pytest.fixture(scope="module", params=LAYOUTS)
def source(request, module_disk):
    """A layout, a file of it, and the sorted result."""
    layout = BY_NAME[request.param]
    path = module_disk / "in"
    write_records(layout, path)
    run("sort", *layout.flags, path, "--memory", "512MiB", "--quiet", "-o", module_disk / "sorted")
    yield layout, path, module_disk / "sorted"
    path.unlink()


@pytest.fixture
def own_binary(disk, monkeypatch):
    """A copy of the command outside the page cache, so that its code counts in the group, as in a container."""
    copy = disk / "bin" / "ascot"
    copy.parent.mkdir()
    shutil.copy(support.ascot_binary(), copy)
    with open(copy, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    monkeypatch.setattr(support, "ascot_binary", lambda: str(copy))


def survive(*words, limit=GROUP_BYTES, **options):
    """Runs a command in a group, where it must succeed."""
    with memory_cgroup(limit) as group:
        measured = measure(*words, cgroup=group, **options)
        assert out_of_memory_kills(group) == 0, measured.stderr
    assert measured.returncode == 0, measured.stderr
    return measured


def same(one, other):
    return subprocess.run(["cmp", one, other]).returncode == 0


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("method", METHODS)
def test_a_spilling_sort_survives(source, method, cap, disk, own_binary, request):
    layout, path, right = source
    # Half of the combinations in short tests: each layout with each method and each cap.
    turn = LAYOUTS.index(layout.name) + METHODS.index(method) + list(CAPS).index(cap)
    if turn % 2 and not request.config.getoption("--long"):
        pytest.skip("takes minutes: ./dev test --all")
    words = [*CAPS[cap], "--method", method, "--temp", disk / "spills", "-o", disk / "out"]
    (disk / "spills").mkdir()
    measured = survive("sort", *layout.flags, path, *words)
    # A merge does not spill what memory holds at the end of the input.
    spilled = FILE_BYTES if method == "distribute" else FILE_BYTES // 3
    assert measured.written_bytes > FILE_BYTES + spilled, "it must spill"
    assert (NOTICE in measured.stderr) == (cap == "exact"), measured.stderr
    assert same(disk / "out", right)
    assert leftovers(disk / "spills") == []


MORE = {"threads": ["--threads", "16"], "zstd": ["--compress", "zstd"], "lz4": ["--compress", "lz4"]}


@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("method", METHODS)
def test_what_takes_memory_beside_the_cap_survives(more, method, disk, own_binary):
    layout = BY_NAME["lines"]
    write_records(layout, disk / "in")
    words = [*CAPS["exact"], *MORE[more], "--method", method, "--temp", disk]
    survive("sort", *layout.flags, disk / "in", *words, "-o", disk / "out")
    run("sort", *layout.flags, "-c", disk / "out")
    assert (disk / "out").stat().st_size == (disk / "in").stat().st_size


# A process in a group whose memory use grows and shrinks a little all the time.
NEIGHBOUR = """
import sys, time
kept, spare = bytearray(8 << 20), []
print("ready", flush=True)
while True:
    spare = b"x" * (512 << 10) if not spare else []
    time.sleep(0.001)
"""


@pytest.mark.parametrize("method", METHODS)
def test_a_neighbour_in_the_group_counts(method, disk, own_binary):
    """The job uses the cap that it reports, although the neighbour's memory changes all the time."""
    layout = BY_NAME["fixed-100"]
    write_records(layout, disk / "in")
    with memory_cgroup(GROUP_BYTES) as group:
        enter = enter_cgroup(group)
        words = [sys.executable, "-I", "-S", "-c", NEIGHBOUR]
        neighbour = subprocess.Popen(words, stdout=subprocess.PIPE, preexec_fn=enter)
        try:
            assert neighbour.stdout.readline() == b"ready\n"
            words = [*CAPS["exact"], "--method", method, "--temp", disk, "--report", disk / "report"]
            measured = measure("sort", *layout.flags, disk / "in", *words, "-o", disk / "out", cgroup=group)
            assert out_of_memory_kills(group) == 0, measured.stderr
        finally:
            neighbour.kill()
            neighbour.communicate()
    assert measured.returncode == 0, measured.stderr
    told = float(measured.stderr.partition(NOTICE)[2].partition(" MiB")[0])
    used = json.loads((disk / "report").read_text())["memory_bytes"] / MIB
    assert abs(told - used) < 0.01 and used < 33, measured.stderr
    run("sort", *layout.flags, "-c", disk / "out")


@pytest.mark.parametrize("cap", CAPS)
def test_other_commands_survive(cap, disk, own_binary):
    layout = BY_NAME["fixed-100"]
    records, flags, words = disk / "in", layout.flags, CAPS[cap]
    write_records(layout, records)
    survive("sort", *flags, records, *words, "--temp", disk, "-o", disk / "out")
    survive("split", *flags, records, *words, "--by", "range", "--parts", "5", "-o", disk / "part-{}")
    survive("split", *flags, records, *words, "--by", "hash", "--parts", "40", "-o", disk / "hash-{:02}")
    parts = sorted(disk.glob("part-*"))
    assert len(parts) == 5
    survive("sort", *flags, *words, *parts[:1], "--temp", disk, "-o", disk / "first")
    survive("merge", *flags, disk / "first", disk / "out", *words, "-o", disk / "merged")
    survive("reshape", *flags, disk / "out", *words, "--parts", "3", "-o", disk / "third-{}")
    survive("sort", *flags, "-c", disk / "out", *words)
    survive("check", "--format", "fixed:100", "--key", "0..10", disk / "out")
    survive("sort", *flags, records, *words, "--view", disk / "view")
    survive("view", disk / "view", *words, "-o", disk / "viewed")
    assert same(disk / "viewed", disk / "out")
    survive("index", "build", records, *flags, *words, "-qo", disk / "index")
    survive("index", "verify", disk / "index", *words)
    survive("gen", "500k", "-o", disk / "made")


def test_a_limit_of_an_ancestor_counts(disk):
    layout = BY_NAME["u64-le"]
    write_records(layout, disk / "in")
    with memory_cgroup(GROUP_BYTES) as group:
        below = group / "below"
        below.mkdir()
        try:
            measured = measure("sort", *layout.flags, disk / "in", *CAPS["exact"], "-o", disk / "out", cgroup=below)
        finally:
            below.rmdir()
        assert out_of_memory_kills(group) == 0
    assert measured.returncode == 0 and NOTICE in measured.stderr, measured.stderr


def test_page_cache_of_a_volume_without_direct_access_fits(tmp_path, disk):
    """With data in the journal, ext4 always writes through the page cache."""
    layout = BY_NAME["fixed-100"]
    write_records(layout, disk / "in")
    with small_disk(disk, 256 * MIB, features="has_journal", mount_options="loop,data=journal") as volume:
        words = [*CAPS["exact"], "--temp", volume, "-o", volume / "out"]
        survive("sort", *layout.flags, disk / "in", *words)
        assert (volume / "out").stat().st_size == (disk / "in").stat().st_size


def test_a_group_too_small_for_any_job_is_an_error(disk):
    layout = BY_NAME["u64-le"]
    write_records(layout, disk / "in")
    with memory_cgroup(14 * MIB) as group:
        measured = measure("sort", *layout.flags, disk / "in", "-o", disk / "out", cgroup=group)
        assert out_of_memory_kills(group) == 0
    assert measured.returncode == 2
    assert "control group" in measured.stderr, measured.stderr
    assert leftovers(disk) == ["in"]
