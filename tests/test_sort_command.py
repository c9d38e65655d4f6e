"""`ascot sort` against the installed sort command under LC_ALL=C: the same bytes, the same exit status.

ASCOT_SORT_CASES multiplies the number of random command lines; ASCOT_SORT_SEED selects other ones.
"""

import os
import random
import subprocess
from functools import cache

import pytest
from sort_cases import LONG_FLAGS, SORT, Case, difference, exit_status_difference, random_case, verdict
from support import clean_environment, long, run, start

pytestmark = pytest.mark.skipif(SORT is None, reason="no sort command to compare with")

CASES_PER_PART = int(100 * float(os.environ.get("ASCOT_SORT_CASES", "1")))
SEED = int(os.environ.get("ASCOT_SORT_SEED", "0"))
# Of each family of cases, the parts in short tests, and with `./dev test --all`.
PARTS = {"whole": (5, 8), "keys": (7, 12), "merge": (3, 5), "check": (3, 4), "files": (2, 4)}


@pytest.mark.parametrize(
    ("family", "part"),
    [(f, p) if p < short else long(f, p) for f, (short, parts) in PARTS.items() for p in range(parts)],
)
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
        ["-S", "x"], ["-S", "1Q1"], ["-S", "1Z"], ["-S", "16E"], ["-S", "1Q"], ["-S", "b"], ["-S", "-1"],
        ["-S", ""],        ["--s"], ["--r"], ["--ra"], ["--ve"], ["--i"], ["--c"], ["--b=2"], ["--ba=1"], ["--=1"],
        ["-nR"], ["-RM"], ["-k1,1Rg"], ["-R", "--random-source=missing"], ["-R", "--random-source=empty"],
        ["-n", "--random-source=missing", "f0"], ["--random-source=f0", "--random-source=empty", "f0"],
        ["+0", "-0.1x"], ["+1", "-1"], ["+0", "-0"], ["+0.1", "-0.3"], ["+1.x", "f0"],
        ["+0.18446744073709551615", "f0"],
        ["+0.99999999999999999999n", "-1.18446744073709551615", "f0"], ["-c", "-o", "out"], ["-c", "f0", "f0"],
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


@pytest.mark.parametrize("size", ["1b", "32b", "0", "K", "+5", "1K", "2048", "1M", "7%", "0%", "200%", "1E", "100T"])
def test_any_buffer_size_works(size, tmp_path):
    """The sort command raises a size of -S that is too small to one that works."""
    told = verdict(Case([["-S", size]], {"f0": b"b\na\nc\n"}, ["f0"]), tmp_path)
    assert not told, told


@pytest.mark.parametrize("flag", LONG_FLAGS)
def test_every_abbreviation_works(flag, tmp_path):
    """Each prefix of each long flag, ambiguous ones too; with a value if the flag takes one."""
    values = {
        "batch-size": "2", "buffer-size": "1M", "check": "quiet", "compress-program": "gzip",
        "field-separator": "a", "files0-from": "names", "key": "2", "output": "f1", "parallel": "1",
        "random-source": "/dev/zero", "sort": "numeric", "temporary-directory": ".",
    }  # fmt: skip
    for end in range(1, len(flag) + 1):
        value = f"={values[flag]}" if flag in values else ""
        inputs = {"f0": b"a 2\nb 1\n", "names": b"f0\0"}
        operands = [] if flag == "files0-from" else ["f0"]
        # The output of these differs by design; only the exit status counts.
        own = any(name.startswith(flag[:end]) for name in ("help", "version", "debug"))
        case = Case([[f"--{flag[:end]}{value}"]], inputs, operands, output="f1" if flag == "output" else None)
        told = exit_status_difference(case, tmp_path) if own or flag == "random-sort" else verdict(case, tmp_path)
        assert not told, told


@pytest.mark.parametrize("order", ["-n", "-h", "-nr", "-fh", "-bn", "-g", "-M", "-V", "-d", "-i", "-f", "-b"])
def test_every_byte_at_every_position_of_a_number(order, tmp_path):
    """Uses -s, so that both commands must agree on equal keys."""
    numbers = [b"1", b"-12.5", b"1.25", b".5", b"0", b"007", b"1K", b"-3k", b"1e3", b"JAN", b"v1.2.tar.gz", b"-b c"]
    lines = list(numbers)
    for byte in bytes(range(256)).replace(b"\n", b""):
        odd = bytes([byte])
        for number in numbers:
            places = range(len(number) + 1)
            lines += [number[:at] + odd * times + number[at:] for at in places for times in (1, 2)]
    random.Random(11).shuffle(lines)
    for words in ([order, "-s"], [order, "-u"], [order, "-s", "-k1.2"]):
        told = difference(Case([words], {"f0": b"\n".join(lines)}, ["f0"]), tmp_path)
        assert not told, f"{words}: {told}"


def test_not_a_number_is_below_all_numbers(tmp_path):
    text = b"1\n-inf\nNaN\nx\n\n0\n-1e400\ninf\n"
    for words in (["-g"], ["-g", "-r"], ["-g", "-s"]):
        told = verdict(Case([words], {"f0": text}, ["f0"]), tmp_path)
        assert not told, told


def mixed_lines(rng, count):
    """Lines of a number, a word, a version and a tail, for all kinds of keys."""
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
            # The tail changes in each round, for near-duplicates but few duplicates.
            file.write(block.replace(b"\n", b"%d\n" % turn) if turn % 2 else block)
    return path


@cache
def _sorted_by_command(words, path):
    done = subprocess.run([SORT, *words, path], capture_output=True, env=clean_environment(), check=True)
    return done.stdout


def sorted_by_command(words, path):
    """The result of the sort command for a file, kept for several tests."""
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
    """The data is much larger than memory, so that both kinds of second pass run."""
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
