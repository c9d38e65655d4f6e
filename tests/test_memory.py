"""Memory is a hard cap: the peak resident size is at most `--memory` plus 32 MiB, alone and in a cgroup.

Every layout is sorted by both methods with 64 MiB, and by one of them with 512 MiB, where an excess that grows with
the memory shows; `./dev test --all` sorts all by both, also with 256 and 1024 MiB. The files are some times larger
than the smallest of these and a little larger than the largest, so that every case spills; they are made once.
"""

import random
import shutil
import subprocess

import pytest
from layouts import BY_NAME
from support import (
    ALLOWANCE,
    METHODS,
    MIB,
    ascot_binary,
    clean_environment,
    leftovers,
    measure,
    memory_cgroup,
    out_of_memory_kills,
    run,
)

# Of each layout, the methods that sort it with 512 MiB in short tests: each method sorts text, records and numbers.
METHODS_OF_MUCH = {
    "lines": ["merge"],
    "csv": ["distribute"],
    "fixed-100": METHODS,
    "u64-le": ["distribute"],
    "u32-be": ["merge"],
    "f64-le": [],
    "prefixed-u16": [],
}
FILE_MIB = {64: 160, 256: 300, 512: 560, 1024: 1090}
MUCH_MIB = 512
MEMORY_MIB = [64, pytest.param(256, marks=pytest.mark.long), 512, pytest.param(1024, marks=pytest.mark.long)]
BLOCK_BYTES = 8 * MIB


def block_of(layout, seed):
    """Some megabytes of records; lines have no two alike within a block."""
    rng = random.Random(seed)
    if layout.dtype:
        return rng.randbytes(BLOCK_BYTES)
    sample = layout.records(rng, 256, "random")
    count = BLOCK_BYTES * len(sample) // sum(map(len, sample))
    return b"".join(layout.records(rng, count, "random"))


@pytest.fixture(scope="module", params=METHODS_OF_MUCH)
def source(request, module_disk):
    """A layout, and a function that returns its file grown to a size in MiB."""
    layout = BY_NAME[request.param]
    path = module_disk / "in"
    blocks = [block_of(layout, seed) for seed in range(3)]
    path.write_bytes(layout.head)

    def at_least(mib):
        with open(path, "ab") as file:
            turn = 0
            while file.tell() < mib * MIB:
                file.write(blocks[turn % len(blocks)])
                turn += 1
        return path

    if shutil.disk_usage(module_disk).free < 8 << 30:
        pytest.skip("needs 8 GiB of disk")
    yield layout, at_least
    path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("memory_mib", MEMORY_MIB)
def test_peak_stays_below_the_cap(source, memory_mib, method, disk, request):
    layout, at_least = source
    is_long = memory_mib == MUCH_MIB and method not in METHODS_OF_MUCH[layout.name]
    if is_long and not request.config.getoption("--long"):
        pytest.skip("takes minutes: ./dev test --all")
    path = at_least(FILE_MIB[memory_mib])
    cap = memory_mib * MIB + ALLOWANCE
    with memory_cgroup(cap) as group:
        words = ["--memory", f"{memory_mib}MiB", "--method", method, "--temp", disk, "-o", disk / "out"]
        measured = measure("sort", *layout.flags, path, *words, cgroup=group)
        assert out_of_memory_kills(group) == 0
    assert measured.returncode == 0, measured.stderr
    assert measured.peak_resident_bytes <= cap
    assert (disk / "out").stat().st_size == path.stat().st_size
    assert leftovers(disk) == ["out"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "words", [["-u", "-k1,1"], ["--top", "100000"], ["-s", "-k2", "--compress", "lz4"]], ids=" ".join
)
def test_options_keep_the_cap(words, method, disk):
    source = disk / "in"
    source.write_bytes(block_of(BY_NAME["lines"], 9) * 20)
    more = ["--memory", "64MiB", "--method", method, "--temp", disk, "-o", disk / "out"]
    measured = measure("sort", *words, source, *more)
    assert measured.returncode == 0, measured.stderr
    assert measured.peak_resident_bytes <= 64 * MIB + ALLOWANCE


def test_long_lines_keep_the_cap(disk):
    rng = random.Random(4)
    with open(disk / "in", "wb") as file:
        for _ in range(150):
            file.write(rng.randbytes(MIB).replace(b"\n", b"-") + b"\n")
    measured = measure("sort", disk / "in", "--memory", "64MiB", "--temp", disk, "-o", disk / "out")
    assert measured.returncode == 0, measured.stderr
    assert measured.peak_resident_bytes <= 64 * MIB + ALLOWANCE


def test_empty_lines_keep_the_cap(disk):
    """Lines of one byte give the most records."""
    (disk / "in").write_bytes(b"\n" * (96 * MIB))
    measured = measure("sort", disk / "in", "--memory", "64MiB", "--temp", disk, "-o", disk / "out")
    assert measured.returncode == 0, measured.stderr
    assert measured.peak_resident_bytes <= 64 * MIB + ALLOWANCE
    assert (disk / "out").stat().st_size == 96 * MIB


def test_a_pipe_keeps_the_cap(disk):
    (disk / "in").write_bytes(block_of(BY_NAME["fixed-100"], 9)[: 8_000_000] * 24)
    with open(disk / "in", "rb") as stdin:
        words = ["--format", "fixed:100", "--key", "0..10", "--memory", "64MiB", "--temp", disk, "-o", disk / "out"]
        measured = measure("sort", *words, stdin=stdin)
    assert measured.returncode == 0, measured.stderr
    assert measured.peak_resident_bytes <= 64 * MIB + ALLOWANCE
    assert (disk / "out").stat().st_size == 192_000_000


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_heaps_of_threads_grow_in_few_steps(disk):
    """A step waits for the faults of pages in other threads: small ones kept sorting threads waiting."""
    run("gen", "3M", "-o", disk / "in")
    words = ["sort", disk / "in", "--format", "fixed:100", "--key", "0..10", "--memory", "1GiB", "-o", disk / "out"]
    traced = ["strace", "-f", "-e", "trace=mprotect", "-o", disk / "calls", ascot_binary(), *words, "--threads", "2"]
    subprocess.run(traced, check=True, env=clean_environment(), timeout=120)
    steps = (disk / "calls").read_text().count("PROT_READ|PROT_WRITE")
    assert steps <= 30, steps


def test_merging_keeps_the_cap(disk):
    names = []
    for at in range(40):
        names.append(disk / f"part{at}")
        rng = random.Random(at)
        lines = (b"%014d %s\n" % (rng.randrange(1 << 40), b"x" * 40) for _ in range(60_000))
        names[-1].write_bytes(b"".join(sorted(lines)))
    measured = measure("sort", "-m", *names, "--memory", "64MiB", "--temp", disk, "-o", disk / "out")
    assert measured.returncode == 0, measured.stderr
    assert measured.peak_resident_bytes <= 64 * MIB + ALLOWANCE


def test_without_the_flag_the_limit_of_the_cgroup_counts(disk):
    (disk / "in").write_bytes(block_of(BY_NAME["fixed-100"], 9)[: 8_000_000] * 40)
    with memory_cgroup(192 * MIB) as group:
        words = ["--format", "fixed:100", "--key", "0..10", "--temp", disk, "-o", disk / "out"]
        measured = measure("sort", *words, disk / "in", cgroup=group)
        assert out_of_memory_kills(group) == 0
    assert measured.returncode == 0, measured.stderr
    assert (disk / "out").stat().st_size == 320_000_000


def test_the_error_for_too_little_memory_names_the_minimum(disk):
    (disk / "in").write_bytes(block_of(BY_NAME["fixed-100"], 9)[:8_000_000])
    done = run("sort", "--format", "fixed:100", disk / "in", "--memory", "100KiB", "-o", disk / "out", expect=2)
    assert "MiB" in done.stderr
    assert not (disk / "out").exists()
