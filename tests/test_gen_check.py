"""`ascot gen` and `ascot check` against known results of the sort benchmark's tools."""

import subprocess

import pytest
from support import ascot_binary, clean_environment, run

# Checksums of the benchmark's tools: records -> (binary, ASCII, binary skewed, ASCII skewed).
CHECKSUMS = {
    1: ("9ea593a0", "3fcaea0a", "9ea593a0", "3fcaea0a"),
    10: ("55fea8a1a", "469302dca", "5d95519b3", "46073c01c"),
    1000: ("1ea6370b955", "1f5dfb3631a", "1e96301166b", "1eef17d1cac"),
    1_000_000: ("7a0e0d4868cd4", "7a19cff467438", "79f9a7e6de673", "7a135fbce6df2"),
}
VARIANTS = [[], ["--ascii"], ["--skew"], ["--ascii", "--skew"]]


def told(*arguments, stdin=b"", expect=0):
    done = run("check", *arguments, stdin=stdin, expect=expect)
    return done.stdout.decode() + done.stderr


@pytest.mark.parametrize("count", CHECKSUMS)
@pytest.mark.parametrize(("variant", "flags"), list(enumerate(VARIANTS)))
def test_checksums(count, variant, flags, tmp_path):
    run("gen", str(count), *flags, "-o", tmp_path / "r")
    assert (tmp_path / "r").stat().st_size == 100 * count
    words = told(tmp_path / "r", expect=0 if count == 1 else 1)
    assert CHECKSUMS[count][variant] in words.split()


def test_first_records():
    assert run("gen", "1").stdout.hex().startswith("4a696d47726179524950" + "65080060836b")


def test_ascii_keys():
    lines = run("gen", "3", "--ascii").stdout
    keys = [lines[at : at + 10].decode() for at in range(0, 300, 100)]
    assert keys == ["AsfAGHM5om", "~sHd0jDv6X", "uI^EYm8s=|"]
    assert all(lines[at + 98 : at + 100] == b"\r\n" for at in range(0, 300, 100))


def test_far_records(tmp_path):
    run("gen", "2", "--start", "1000000000", "-o", tmp_path / "r")
    assert (tmp_path / "r").read_bytes()[:10].hex() == "46df6d7a85582021cfd7"
    assert "1c9a44bc5" in run("check", tmp_path / "r", expect=None).stdout.decode().split()


@pytest.mark.parametrize("flags", VARIANTS, ids=lambda flags: " ".join(flags) or "binary")
def test_pieces_make_the_whole(flags):
    whole = run("gen", "2500", *flags).stdout
    pieces = [run("gen", "1000", "--start", start, *flags).stdout for start in ("0", "1000")]
    pieces.append(run("gen", "500", "--start", "2000", *flags).stdout)
    assert b"".join(pieces) == whole


def test_threads_change_nothing():
    assert run("gen", "300k", "--threads", "1").stdout == run("gen", "300k", "--threads", "2").stdout


def test_gen_sort_check_in_a_pipe():
    words = [ascot_binary(), "gen", "200k"]
    gen = subprocess.Popen(words, stdout=subprocess.PIPE, env=clean_environment())
    sort = [ascot_binary(), "sort", "--format", "fixed:100", "--key", "0..10", "--memory", "16MiB"]
    sorting = subprocess.Popen(sort, stdin=gen.stdout, stdout=subprocess.PIPE, env=clean_environment())
    gen.stdout.close()
    check = run("check", stdin=sorting.stdout)
    assert gen.wait() == 0
    assert sorting.wait() == 0
    assert "200000" in check.stdout.decode().split()


def sorted_records(count=1000, flags=()):
    data = run("gen", str(count), *flags).stdout
    return sorted(data[at : at + 100] for at in range(0, len(data), 100))


def test_check_finds_disorder():
    records = sorted_records()
    assert "1ea6370b955" in told(stdin=b"".join(records)).split()
    records[500], records[501] = records[501], records[500]
    words = told(stdin=b"".join(records), expect=1)
    assert "1ea6370b955" in words.split(), "the sum does not depend on order"
    assert "501" in words or "502" in words, "the first record out of order is named"


def test_check_counts_duplicates():
    records = sorted_records(10)
    words = told(stdin=b"".join([records[0], *records, records[-1], records[-1]]))
    assert "13" in words.split()
    assert "3" in words.split(), "keys equal to the one before"


def test_check_takes_several_files_as_one_sequence(tmp_path):
    records = sorted_records()
    (tmp_path / "a").write_bytes(b"".join(records[:400]))
    (tmp_path / "b").write_bytes(b"".join(records[400:]))
    assert "1ea6370b955" in told(tmp_path / "a", tmp_path / "b").split()
    told(tmp_path / "b", tmp_path / "a", expect=1)


def test_check_of_an_empty_file(tmp_path):
    (tmp_path / "none").write_bytes(b"")
    assert "0" in told(tmp_path / "none").split()


def test_check_of_a_truncated_record(tmp_path):
    (tmp_path / "cut").write_bytes(run("gen", "10").stdout[:-63])
    words = run("check", tmp_path / "cut", expect=2).stderr
    assert "cut" in words
    assert "37" in words


def test_skew_has_hot_prefixes():
    data = run("gen", "100k", "--skew").stdout
    prefixes = [data[at : at + 2] for at in range(0, len(data), 100)]
    commonest = max(prefixes.count(prefix) for prefix in set(prefixes[:50]))
    assert commonest > 50 * len(prefixes) / 65536


@pytest.mark.parametrize("words", [["gen"], ["gen", "x"], ["gen", "-5"], ["gen", "1", "--start", "y"]])
def test_wrong_arguments(words):
    done = run(*words, expect=2)
    assert done.stdout == b""
    assert done.stderr
