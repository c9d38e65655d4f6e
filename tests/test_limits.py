"""Limits of a process (`ulimit -v`, `ulimit -d`): the right result, or one clear error and no files.

The limits grow by a factor, from values that prevent the start of the program to values that suffice. So the system
refuses memory at many different points.
"""

import filecmp
import itertools
import random
import re
import resource
import shutil
import subprocess
from functools import cache

import pytest
from layouts import BY_NAME, make_file
from support import MIB, ascot_binary, clean_environment, leftovers

KINDS = {"address-space": resource.RLIMIT_AS, "data": resource.RLIMIT_DATA}
LIMITS = {
    "address-space": [int(24 * MIB * 1.55**step) for step in range(7)],
    "data": [int(MIB * 1.8**step) for step in range(7)],
}
# Long enough for a slow machine; a job that exceeds it hangs.
WATCHDOG_SECONDS = 300


def sort(layout, method):
    flags = BY_NAME[layout].flags
    return lambda place: ["sort", *flags, layout, "--method", method, "--temp", ".", "-o", place / "out"]


COMMANDS = {
    **{f"sort {layout} {method}": sort(layout, method)
       for layout in ("lines", "csv", "fixed-100", "u64-le") for method in ("merge", "distribute")},
    "split": lambda place: ["split", "fixed-100", *BY_NAME["fixed-100"].flags, "--by", "range", "--parts", "4",
                            "-o", place / "part-{}"],
    "view": lambda place: ["view", "view", "-o", place / "out"],
    "check": lambda place: ["sort", "-c", "sorted"],
    "index build": lambda place: ["index", "build", "fixed-100", *BY_NAME["fixed-100"].flags, "-qo", place / "index"],
}  # fmt: skip
MORE = [name for name in COMMANDS if name.startswith(("sort csv", "sort u64-le"))]


@pytest.fixture(scope="module")
def inputs(module_disk):
    """Files of some megabytes, a view and a sorted file of lines."""
    for layout in ("lines", "csv", "fixed-100", "u64-le"):
        make_file(BY_NAME[layout], module_disk / layout, 12 * MIB)
    limited(["sort", "lines", "--view", "view"], module_disk)
    limited(["sort", "lines", "-o", "sorted"], module_disk)
    return module_disk


def limited(words, cwd, limit=None):
    """Runs a command with 8 MiB of memory; `limit` is a kind and bytes."""
    memory = [] if words[0] == "--version" else ["--memory", "8MiB", "--threads", "2"]
    if words[0] == "index":
        memory = ["--memory", "16MiB"]
    before = (lambda: resource.setrlimit(limit[0], (limit[1], limit[1]))) if limit else None
    command = [ascot_binary(), *map(str, words), *memory]
    return subprocess.run(
        command, cwd=cwd, env=clean_environment(), capture_output=True, text=True, timeout=WATCHDOG_SECONDS,
        preexec_fn=before,
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in MORE)) for name in COMMANDS])
def test_memory_that_the_system_refuses(name, kind, inputs, disk):
    right, place = disk / "right", disk / "place"
    right.mkdir()
    done = limited(COMMANDS[name](right), inputs)
    assert done.returncode == 0, done.stderr
    there = leftovers(inputs)
    succeeded = 0
    for bytes_ in LIMITS[kind]:
        place.mkdir()
        done = limited(COMMANDS[name](place), inputs, (KINDS[kind], bytes_))
        told = f"{name}, {kind} {bytes_}: status {done.returncode}\n{done.stderr}"
        assert leftovers(inputs) == there, told
        if not starts((KINDS[kind], bytes_)):
            shutil.rmtree(place)
            continue
        assert done.returncode in (0, 2), told
        if done.returncode == 0:
            succeeded += 1
            if name != "index build":
                assert leftovers(place) == leftovers(right), told
                assert all(filecmp.cmp(right / file, place / file, False) for file in leftovers(right)), told
        else:
            assert leftovers(place) == [], told
            # The C library says first why a thread that has started cannot run.
            line = re.sub(r"\AFatal glibc error: .*out of memory\n", "", done.stderr)
            assert line.startswith("ascot: ") and done.stderr.count("ascot: ") == 1, told
        shutil.rmtree(place)
    assert succeeded, "the last limits suffice"


@cache
def starts(limit):
    """Whether the kernel and the loader can start the program at all under a limit."""
    return limited(["--version"], None, limit).returncode == 0


U64 = ["--format", "u64-le", "--memory", "32MiB", "--method", "merge", "--threads", "2"]
LONG_RECORDS = ["--format", "fixed:5000", "--key", "0..10", "--memory", "24MiB"]
# Limits under which jobs once hung: a limit, and the words of a sort.
WAITED = {
    "address-space": (resource.RLIMIT_AS, 300 * MIB, U64),
    "data": (resource.RLIMIT_DATA, 12_124_821, LONG_RECORDS),
}
MORE = {"plain": [], "report": ["--report", "report.json"], "zstd": ["--compress", "zstd"]}


def sort_under_limits(size_bytes, tries, disk):
    """Sorts random records under each of the limits; the job must end, and leave no files except its outputs."""
    size_bytes -= size_bytes % 5000
    with open(disk / "in", "wb") as file:
        rng = random.Random(11)
        while file.tell() < size_bytes:
            file.write(rng.randbytes(min(4 * MIB, size_bytes - file.tell())))
    for name, (kind, limit, words) in WAITED.items():
        size = size_bytes // 40_000 * 40_000
        with open(disk / "in", "r+b") as file:
            file.truncate(size)
        command = [ascot_binary(), "sort", "in", *words]
        options = {"cwd": disk, "env": clean_environment(), "capture_output": True, "text": True}
        subprocess.run([*command, "-o", "right"], check=True, **options)
        for more, _ in itertools.product(MORE.values(), range(tries)):
            done = subprocess.run(
                [*command, *more, "-o", "out"], timeout=WATCHDOG_SECONDS, **options,
                preexec_fn=lambda kind=kind, limit=limit: resource.setrlimit(kind, (limit, limit)),
            )  # fmt: skip
            told = f"{name}, {more}: status {done.returncode}\n{done.stderr}"
            left = [path for path in leftovers(disk) if path not in ("in", "right")]
            assert done.returncode in (0, 2), told
            if done.returncode == 0:
                assert filecmp.cmp(disk / "out", disk / "right", False), told
                assert left == ["out", *(["report.json"] if "--report" in more else [])], told
            else:
                assert left == [] and done.stderr.startswith("ascot: ") and done.stderr.count("ascot: ") == 1, told
            for path in left:
                (disk / path).unlink()


def test_limits_under_which_small_jobs_waited_for_ever(disk):
    sort_under_limits(MIB, 1, disk)


@pytest.mark.long
def test_limits_under_which_large_jobs_waited_for_ever(disk):
    sort_under_limits(160_000_000, 3, disk)


@pytest.mark.parametrize("name", WAITED)
def test_limits_under_which_jobs_waited_for_ever(name, inputs, disk):
    kind, limit, words = WAITED[name]
    layout = "u64-le" if name == "address-space" else "fixed-100"
    with open(disk / "in", "wb") as file:
        for _ in range(7):
            file.write((inputs / layout).read_bytes())
    if name == "data":
        # A layout with a sample.
        words = [*BY_NAME[layout].flags, "--memory", "32MiB", "--method", "merge", "--threads", "2"]
    done = subprocess.run(
        [ascot_binary(), "sort", *words, "in", "-o", "out"], cwd=disk, env=clean_environment(), capture_output=True,
        text=True, timeout=WATCHDOG_SECONDS, preexec_fn=lambda: resource.setrlimit(kind, (limit, limit)),
    )  # fmt: skip
    assert done.returncode in (0, 2), done.stderr
    assert leftovers(disk) == (["in", "out"] if done.returncode == 0 else ["in"])
