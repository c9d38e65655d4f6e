"""`ascot sort` against the installed sort command under LC_ALL=C: the same bytes, the same exit status.

ASCOT_SORT_CASES multiplies the number of random command lines; ASCOT_SORT_SEED moves on to others.
"""

import os
import random
import subprocess
from functools import cache

import pytest
from sort_cases import SORT, Case, random_case, verdict
from support import clean_environment, run, start

pytestmark = pytest.mark.skipif(SORT is None, reason="no sort command to compare with")

CASES_PER_PART = int(100 * float(os.environ.get("ASCOT_SORT_CASES", "1")))
SEED = int(os.environ.get("ASCOT_SORT_SEED", "0"))
PARTS = {"whole": 8, "keys": 12, "merge": 5, "check": 4, "files": 4}


@pytest.mark.parametrize(("family", "part"), [(f, p) for f, parts in PARTS.items() for p in range(parts)])
def test_random_command_lines(family, part, tmp_path):
    failures = []
    for at in range(CASES_PER_PART):
        told = verdict(random_case(SEED + part * CASES_PER_PART + at, family), tmp_path)
        if told:
            failures.append(told)
            if len(failures) == 3:
                break
    assert not failures, "\n\n".join(failures)


@pytest.mark.parametrize(
    "words",
    [
        ["-k"], ["-k0"], ["-k1.0"], ["-k1,1x"], ["-k", ""], ["-t", ""], ["-t", "ab"], ["-k1,"], ["-k-1"],
        ["-S", "x"], ["-S", "1Q1"], ["-c", "-o", "out"], ["-c", "f0", "f0"],
        ["-cC"], ["-ng"], ["-hn"], ["-nM"], ["-di", "-n"], ["-k1n,1g"], ["--parallel=0"], ["--parallel=x"],
        ["--batch-size=1"], ["--files0-from=f0", "f0"], ["--files0-from=missing"], ["missing"], ["."],
        ["-o", "missing/out", "f0"], ["-o", "out", "-o", "other", "f0"], ["--no-such-flag"], ["-t:", "-t,"],
        ["-k1.2.3"], ["-k1b.2"], ["-k99999999999999999999"], ["-k1,99999999999999999999"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_odd_command_lines(words, tmp_path):
    case = Case([words], {"f0": b"b 1\na 2\n", "empty": b""}, stdin=b"z\ny\n")
    told = verdict(case, tmp_path)
    assert not told, told


@pytest.mark.parametrize(
    "text",
    [
        b"", b"\n", b"a", b"a\n", b"\n\n", b"b\na", b"\0\n\0\0\n", b"a\r\nb\r\n", b"\xff\n\xfe\n",
        b"x" * 300_000 + b"\na\n",
    ],
    ids=["empty", "newline", "unended", "one", "newlines", "two", "nul", "crlf", "high", "long"],
)  # fmt: skip
@pytest.mark.parametrize("words", [[], ["-r"], ["-u"], ["-n"], ["-s", "-k2"], ["-z"]], ids=" ".join)
def test_small_inputs(text, words, tmp_path):
    told = verdict(Case([words], {"f0": text}, ["f0"]), tmp_path)
    assert not told, told


@pytest.mark.parametrize("size", ["1b", "1K", "2048", "1M", "7%", "1E", "100T"])
def test_any_buffer_size_works(size, tmp_path):
    """-S is a wish in the sort command: too little is raised to what works."""
    told = verdict(Case([["-S", size]], {"f0": b"b\na\nc\n"}, ["f0"]), tmp_path)
    assert not told, told


def test_not_a_number_is_below_all_numbers(tmp_path):
    text = b"1\n-inf\nNaN\nx\n\n0\n-1e400\ninf\n"
    for words in (["-g"], ["-g", "-r"], ["-g", "-s"]):
        told = verdict(Case([words], {"f0": text}, ["f0"]), tmp_path)
        assert not told, told


def mixed_lines(rng, count):
    """Lines of a number, a word, a version and a tail: something for every kind of key."""
    words = ["alpha", "Beta", "gamma", "DELTA", "epsilon", "zeta-1", "Eta_2", ""]
    return b"".join(
        b"%d.%02d %s v%d.%d.%d %dK%s\n"
        % (
            rng.randrange(-5000, 5000), rng.randrange(100), rng.choice(words).encode(),
            rng.randrange(12), rng.randrange(12), rng.randrange(200), rng.randrange(2000),
            b"." * rng.randrange(60),
        )
        for _ in range(count)
    )  # fmt: skip


@pytest.fixture(scope="module")
def large_lines(module_disk):
    path = module_disk / "lines"
    block = mixed_lines(random.Random(7), 120_000)
    with open(path, "wb") as file:
        for turn in range(6):
            # Another tail a turn, so that there are near-duplicates but few duplicates.
            file.write(block.replace(b"\n", b"%d\n" % turn) if turn % 2 else block)
    return path


@cache
def _sorted_by_command(words, path):
    done = subprocess.run([SORT, *words, path], capture_output=True, env=clean_environment(), check=True)
    return done.stdout


def sorted_by_command(words, path):
    """What the sort command makes of a file; kept, as several tests ask."""
    return _sorted_by_command(tuple(words), path)


@pytest.mark.parametrize("method", ["merge", "distribute"])
@pytest.mark.parametrize(
    "words",
    [
        [], ["-r"], ["-n"], ["-k2,2", "-s"], ["-k2,2"], ["-k2,2f", "-k1,1n"], ["-k3,3V"], ["-k4,4h", "-u"], ["-u"],
        ["-t.", "-k2,2nr"],
    ],
    ids=lambda words: " ".join(words) or "plain",
)  # fmt: skip
def test_spilling_agrees(words, method, large_lines, disk):
    """Far more data than memory, so that both kinds of second pass happen."""
    out = disk / "out"
    run("sort", *words, large_lines, "--memory", "16MiB", "--method", method, "--temp", disk, "-o", out)
    assert out.read_bytes() == sorted_by_command(words, large_lines)
    out.unlink()
    assert not list(disk.iterdir())


def test_spilling_from_a_pipe_to_a_pipe(large_lines, disk):
    with open(large_lines, "rb") as source:
        done = run("sort", "-S", "16M", "-T", disk, "-k2", stdin=source)
    assert done.stdout == sorted_by_command(["-k2"], large_lines)


def test_merging_many_files(disk):
    rng = random.Random(3)
    names = []
    for at in range(60):
        names.append(disk / f"part{at}")
        names[-1].write_bytes(b"".join(sorted(b"%d\n" % rng.randrange(10**9) for _ in range(5000))))
    expected = subprocess.run(
        [SORT, "-m", *names], capture_output=True, env=clean_environment(), check=True
    ).stdout
    assert run("sort", "-m", *names, "--memory", "16MiB", "--temp", disk).stdout == expected
    few = run("sort", "-m", *names, "--memory", "16MiB", "--temp", disk, "--batch-size", "4")
    assert few.stdout == expected


def test_disorder_is_named(tmp_path):
    (tmp_path / "f").write_bytes(b"a\nc\nb\n")
    told = run("sort", "-c", tmp_path / "f", expect=1).stderr
    assert "f:3: disorder: b" in told
    assert run("sort", "-C", tmp_path / "f", expect=1).stderr == ""


def test_disorder_in_binary_records_is_shown_with_escapes(tmp_path):
    (tmp_path / "f").write_bytes(bytes([0, 0, 0, 2, 0, 0, 0, 1]))
    told = run("sort", "-c", "--format", "fixed:4", tmp_path / "f", expect=1).stderr
    assert "f:2: disorder: \\x00\\x00\\x00\\x01\n" in told
    (tmp_path / "long").write_bytes(b"b" * 1000 + b"a" * 1000)
    told = run("sort", "-c", "--format", "fixed:1000", tmp_path / "long", expect=1).stderr
    assert f"long:2: disorder: {'a' * 40}...\n" in told


def test_a_closed_pipe_ends_quietly(large_lines):
    process = start("sort", large_lines)
    process.stdout.readline()
    process.stdout.close()
    told = process.stderr.read()
    process.wait(timeout=60)
    assert b"panic" not in told


def test_only_data_on_standard_output(tmp_path):
    (tmp_path / "f").write_bytes(b"b\na\n")
    done = run("sort", tmp_path / "f", "--verbose")
    assert done.stdout == b"a\nb\n"
    assert "2 records" in done.stderr


def test_top_gives_the_first_records(large_lines):
    expected = b"".join(sorted_by_command(["-n"], large_lines).splitlines(keepends=True)[:1000])
    assert run("sort", "-n", "--top", "1000", large_lines).stdout == expected
