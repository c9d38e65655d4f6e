"""Every command ends: readers that stop early, signals while a pipe is silent, too few threads, too little memory."""

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from support import (
    MIB,
    ascot_binary,
    clean_environment,
    enter_cgroup,
    job_directories,
    leftovers,
    limit_processes,
    run,
    start,
    tasks_cgroup,
)  # fmt: skip

# Long enough for a busy machine; a command that exceeds it hangs.
PATIENCE_SECONDS = 120
NUMBERS = ["--format", "u64-le", "--memory", "8MiB"]
NOBODY = 65534


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """Numbers that do not fit in 8 MiB, sorted numbers, a view and an indexed directory of records."""
    place = tmp_path_factory.mktemp("numbers")
    place.chmod(0o755)
    (place / "in").write_bytes(random.Random(1).randbytes(20 * MIB))
    run("sort", place / "in", *NUMBERS, "-o", place / "sorted")
    run("sort", place / "in", *NUMBERS, "--view", place / "v")
    run("gen", "20k", "-o", place / "records")
    return place


# ---------------------------------------------------------------- readers that stop early


@pytest.mark.parametrize(("lines", "length"), [(40, 400_000), (200, 70_000)])
def test_part_of_a_view_of_long_records(tmp_path, lines, length):
    expected = sorted(b"%d %s\n" % (number, b"x" * length) for number in range(lines))
    (tmp_path / "in").write_bytes(b"".join(reversed(expected)))
    run("sort", tmp_path / "in", "--memory", "8MiB", "--view", tmp_path / "v")
    parts = {"--head=3": b"".join(expected[:3]), "--range=100..999": b"".join(expected)[100:999]}
    for threads in (1, 2, 4):
        for part, wanted in parts.items():
            words = ["view", tmp_path / "v", part, "--threads", str(threads)]
            assert run(*words, timeout=PATIENCE_SECONDS).stdout == wanted


# ---------------------------------------------------------------- signals while a job waits for another program


@contextlib.contextmanager
def running(*arguments, **options):
    process = start(*arguments, **options)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def stop(process):
    """Sends SIGINT to a process after a second, when it waits; returns its exit status."""
    time.sleep(1.0)
    assert process.poll() is None, process.stderr.read()
    process.send_signal(signal.SIGINT)
    try:
        return process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.fail(f"{process.args} ignores a signal")


def test_a_signal_ends_a_job_whose_output_is_not_read(numbers, tmp_path):
    commands = {
        "sort, merged": ["sort", numbers / "in", *NUMBERS, "--method=merge", "--temp", tmp_path],
        "sort, distributed": ["sort", numbers / "in", *NUMBERS, "--method=distribute", "--temp", tmp_path],
        "sort in memory": ["sort", numbers / "in", "--format=u64-le", "--memory=128MiB"],
        "merge": ["merge", numbers / "sorted", numbers / "sorted", *NUMBERS],
        "view": ["view", numbers / "v"],
        "gen": ["gen", "10M"],
    }
    for name, words in commands.items():
        read, write = os.pipe()
        with running(*words, stdout=write) as process:
            os.close(write)
            assert stop(process) == -signal.SIGINT, name
        os.close(read)
        assert leftovers(tmp_path) == [], name


def test_a_signal_ends_a_job_whose_input_is_silent(numbers, tmp_path):
    commands = {
        "sort": ["sort", "-", *NUMBERS, "-o", tmp_path / "out"],
        "merge": ["merge", "-", numbers / "sorted", *NUMBERS, "-o", tmp_path / "out"],
        "check": ["check", "-", "--format=u64-le"],
    }
    for name, words in commands.items():
        with running(*words, stdin=subprocess.PIPE) as process:
            process.stdin.write(bytes(64))
            process.stdin.flush()
            assert stop(process) == -signal.SIGINT, name
        assert leftovers(tmp_path) == [], name


# ---------------------------------------------------------------- too few threads


def threaded_commands(numbers, out):
    """Commands that start threads, by name."""
    records = ["--format=fixed:100", "--key=0..10"]
    return {
        "sort": ["sort", numbers / "in", *NUMBERS, "--method=merge", "-o", out / "sorted"],
        "distribute": ["sort", numbers / "in", *NUMBERS, "--method=distribute", "-o", out / "sorted"],
        "merge": ["merge", numbers / "sorted", numbers / "sorted", *NUMBERS, "-o", out / "merged"],
        "split": ["split", numbers / "in", *NUMBERS, "--parts=3", "-o", out / "part-{}"],
        "make a view": ["sort", numbers / "in", *NUMBERS, "--view", out / "v"],
        "view": ["view", numbers / "v", "--memory=32MiB", "-o", out / "viewed"],
        "check": ["check", numbers / "sorted", "--format=u64-le"],
        "gen": ["gen", "100k", "-o", out / "made"],
        "index": ["index", "build", numbers / "records", *records, "-o", out / "run.dir"],
    }


def check_few_threads(numbers, out, expected, launch):
    """Each command gives the usual result, or an error that names a remedy."""
    done, refused = set(), set()
    for name, words in threaded_commands(numbers, out).items():
        result = launch(words)
        assert result.returncode in (0, 2), f"{name}: {result}"
        assert job_directories(out) == [], name
        if result.returncode == 0:
            done.add(name)
            for file, wanted in expected.get(name, {}).items():
                assert (out / file).read_bytes() == wanted, f"{name}: {file}"
        else:
            refused.add(name)
            assert "threads" in result.stderr and "pids.max" in result.stderr, f"{name}: {result}"
            assert leftovers(out) == [], name
        for path in sorted(out.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    return done, refused


@pytest.fixture(scope="module")
def expected(numbers):
    """The files that the commands write without a limit on threads."""
    everything = (numbers / "sorted").read_bytes()
    twice = numbers / "merged"
    run("merge", numbers / "sorted", numbers / "sorted", *NUMBERS, "-o", twice)
    run("split", numbers / "in", *NUMBERS, "--parts=3", "-o", numbers / "part-{}")
    parts = sorted(numbers.glob("part-*"))
    assert sum(path.stat().st_size for path in parts) == 20 * MIB
    return {
        "sort": {"sorted": everything},
        "distribute": {"sorted": everything},
        "merge": {"merged": twice.read_bytes()},
        "split": {path.name: path.read_bytes() for path in parts},
        "view": {"viewed": everything},
    }


def test_few_tasks_in_a_control_group(numbers, expected, tmp_path):
    everything = set(threaded_commands(numbers, tmp_path))
    # The smallest limit refuses all commands that need a thread beside the first; the largest refuses none.
    for limit in (1, 2, 3, 5, 8, 40):
        with tasks_cgroup(limit) as group:

            def launch(words, group=group):
                threads = [] if words[0] == "index" else ["--threads=3"]
                enter = enter_cgroup(group)
                return run(*words, *threads, expect=None, timeout=PATIENCE_SECONDS, preexec_fn=enter)

            done, refused = check_few_threads(numbers, tmp_path, expected, launch)
        assert limit > 1 or {"sort", "merge", "view", "check", "gen"} <= refused
        assert "split" in done, "a split needs no thread beside the first"
        assert limit < 40 or done == everything, refused


def test_a_job_runs_with_fewer_threads_and_says_so(numbers, expected, tmp_path):
    # Enough memory for the share of every thread.
    words = ["sort", numbers / "in", "--format=u64-le", "--memory=128MiB", "--threads=12", "-o", tmp_path / "sorted"]
    with tasks_cgroup(8) as group:
        result = run(*words, timeout=PATIENCE_SECONDS, preexec_fn=enter_cgroup(group))
    assert "fewer threads than wanted" in result.stderr and "pids.max" in result.stderr
    assert (tmp_path / "sorted").read_bytes() == expected["sort"]["sorted"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user whose processes are counted")
def test_a_user_with_few_processes(numbers, expected):
    # A directory and a program that the other user may use.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        place = Path(directory)
        out = place / "out"
        out.mkdir()
        for file in ("in", "sorted", "records"):
            shutil.copy(numbers / file, place / file)
        binary = shutil.copy(ascot_binary(), place / "ascot")
        for path in (place, out, binary):
            os.chmod(path, 0o777)
        command = [binary, *threaded_commands(place, out)["sort"]]
        for limit in (1, 4, 60):
            done = subprocess.run(
                command, capture_output=True, timeout=PATIENCE_SECONDS, env=clean_environment(),
                preexec_fn=limit_processes(limit, NOBODY),
            )  # fmt: skip
            allowed = {1: (2,), 4: (0, 2), 60: (0,)}[limit]
            assert done.returncode in allowed, done.stderr
            assert job_directories(out) == []
            if done.returncode == 0:
                assert (out / "sorted").read_bytes() == expected["sort"]["sorted"]


# ---------------------------------------------------------------- too little memory


@pytest.mark.parametrize("method", ["merge", "distribute"])
def test_a_job_does_not_hang_when_the_system_refuses_memory(numbers, tmp_path, method):
    big = tmp_path / "in"
    big.write_bytes((numbers / "in").read_bytes() * 4)
    words = ["sort", big, "--format=u64-le", "--memory=32MiB", "--method", method, "--threads=2"]
    # Builds need different amounts of memory to start; the limits grow from below that.
    for limit_bytes in range(2 * MIB, 90 * MIB, 8 * MIB):

        def limit(limit_bytes=limit_bytes):
            resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))

        result = run(*words, "-o", tmp_path / "out", expect=None, timeout=PATIENCE_SECONDS, preexec_fn=limit)
        if result.returncode == 0:
            break
    assert result.returncode == 0 and (tmp_path / "out").stat().st_size == big.stat().st_size
