"""`-R` gives the order of the sort command, keeps equal keys together, and does not depend on the method."""

import subprocess
from collections import Counter

import pytest
from sort_cases import SORT
from support import clean_environment, job_directories, kill, leftovers, run, start, stop_where

SOURCE = "--random-source=salt"
SALT = b"sixteen bytes or more, of which sixteen count"


@pytest.fixture(scope="module")
def lines(module_disk):
    """About 11 MB of lines with 20,000 different keys, and their order by the sort command."""
    (module_disk / "salt").write_bytes(SALT)
    block = b"".join(
        b"key%d %d %s\n" % (at % 20_000, at * 7919 % 1_000_003, b"." * (at % 50)) for at in range(160_000)
    )
    (module_disk / "in").write_bytes(block + block[: len(block) // 2].rsplit(b"\n", 1)[0] + b"\n")
    return module_disk


def by_sort_command(directory, *words):
    if SORT is None:
        pytest.skip("no sort command to compare with")
    done = subprocess.run(
        [SORT, *words, SOURCE, "in"], cwd=directory, capture_output=True, env=clean_environment(), check=True
    )
    return done.stdout


def small_memory(directory, method="auto"):
    return ["--memory", "8MiB", "--temp", directory, "--method", method]


@pytest.mark.parametrize("method", ["merge", "distribute"])
@pytest.mark.parametrize("words", [["-R"], ["-k1,1R"], ["-k1,1R", "-u"]], ids=" ".join)
def test_spilling_agrees_with_the_sort_command(words, method, lines, disk):
    words = [*words, SOURCE]
    run("sort", *words, "in", *small_memory(disk, method), "-o", disk / "out", cwd=lines)
    assert (disk / "out").read_bytes() == by_sort_command(lines, *words[:-1])
    assert leftovers(disk) == ["out"]


def test_another_order_each_time_with_equal_keys_together(disk):
    text = b"".join(b"%d %d\n" % (at % 100, at) for at in range(1000))
    orders = [
        run("sort", *words, stdin=text).stdout for words in (["-k1,1R"], ["-k1,1R"], ["-k1,1", "--sort=random"])
    ]
    assert orders[0] != orders[1]
    for order in orders:
        assert sorted(order.splitlines()) == sorted(text.splitlines())
    keys = [line.split()[0] for line in orders[0].splitlines()]
    groups = [key for key, before in zip(keys, [None, *keys], strict=False) if key != before]
    assert Counter(groups) == Counter(set(keys)), "equal keys are together"
    assert groups != sorted(groups)


def test_a_view_keeps_its_order(lines, disk):
    run("sort", "-R", SOURCE, "in", "--memory", "8MiB", "--view", disk / "view", cwd=lines)
    expected = by_sort_command(lines, "-R")
    assert run("view", disk / "view").stdout == expected
    assert run("view", disk / "view", "--tail", "3").stdout == b"".join(expected.splitlines(keepends=True)[-3:])


def test_a_resumed_job_keeps_its_salt(lines, disk):
    """The job stores its salt, so the source is not read again and may be missing."""
    (disk / "salt").write_bytes(SALT)
    words = ["sort", "-R", SOURCE, lines / "in", *small_memory(disk, "merge"), "-o", disk / "out"]
    process = start(*words, cwd=disk)
    stop_where(process, disk, lambda manifest: manifest["all_read"])
    kill(process)
    (disk / "salt").write_bytes(b"another sixteen b" * 2)
    (kept,) = job_directories(disk)
    run("sort", "--resume", kept)
    assert (disk / "out").read_bytes() == by_sort_command(lines, "-R")


def test_merging_and_checking_need_the_source(disk):
    (disk / "salt").write_bytes(SALT)
    for name, lines in (("a", range(0, 100, 2)), ("b", range(1, 100, 2))):
        text = b"".join(b"%d\n" % line for line in lines)
        (disk / name).write_bytes(run("sort", "-R", SOURCE, stdin=text, cwd=disk).stdout)
    merged = run("sort", "-m", "-R", SOURCE, "a", "b", cwd=disk).stdout
    assert merged == run("sort", "-R", SOURCE, "a", "b", cwd=disk).stdout
    assert run("merge", "-R", SOURCE, "a", "b", cwd=disk).stdout == merged
    run("sort", "-c", "-R", SOURCE, cwd=disk, stdin=merged)
    run("sort", "-C", "-R", SOURCE, cwd=disk, stdin=merged[::-1].strip() + b"\n", expect=1)
    assert "--random-source" in run("sort", "-m", "-R", "a", "b", cwd=disk, expect=2).stderr


def test_sources_without_a_salt_are_refused(disk):
    (disk / "short").write_bytes(b"fifteen bytes..")
    assert "short: end of file" in run("sort", "-R", "--random-source=short", cwd=disk, expect=2).stderr
    assert "none" in run("sort", "-R", "--random-source=none", cwd=disk, expect=2).stderr
    run("sort", "-n", "--random-source=none", cwd=disk)
