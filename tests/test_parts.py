"""merge, split and reshape: several files in, several out, each record in exactly one."""

import collections
import csv
import hashlib
import io
import itertools
import json
import os
import random
import signal
import struct
import subprocess
import time

import pytest
import support
from support import FIXED, MIB, leftovers, limit_file_size, limit_open_files, small_disk


def run(*arguments, **options):
    return support.run(*map(str, arguments), **options)


def start(*arguments):
    return support.start(*map(str, arguments))


def record_key(record):
    return record[:10]


def records_of(data, size=100):
    return [data[at : at + size] for at in range(0, len(data), size)]


def sorted_files(disk, counts):
    """Files of sorted benchmark records, one for each count; returns their paths and all records in order."""
    paths, everything = [], []
    for number, count in enumerate(counts):
        path = disk / f"in-{number:03}"
        run("gen", count, "--start", 1_000_000 * number, "-o", path)
        records = sorted(records_of(path.read_bytes()), key=record_key)
        path.write_bytes(b"".join(records))
        paths.append(path)
        everything += records
    return paths, sorted(everything, key=record_key)


def parts_in(disk, pattern="out-*"):
    return [path.read_bytes() for path in sorted(disk.glob(pattern))]


# ---------------------------------------------------------------- reshape


@pytest.mark.parametrize("parts", [1, 2, 5, 16])
def test_reshape_cuts_the_merged_file_into_equal_ranges(parts, disk):
    paths, everything = sorted_files(disk, [3000, 1, 20_000, 0, 7001])
    run("reshape", *paths, *FIXED, "--parts", parts, "-o", disk / "out-{:05}")
    got = parts_in(disk)
    assert len(got) == parts
    assert b"".join(got) == b"".join(everything)
    share = 100 * len(everything) / parts
    assert all(abs(len(part) - share) <= 200 for part in got), [len(part) for part in got]


def test_reshape_reads_and_writes_its_input_once(disk):
    paths, everything = sorted_files(disk, [30_000] * 8)
    report = disk / "report.json"
    run("reshape", *paths, *FIXED, "--parts", 16, "-o", disk / "out-{:05}", "--report", report)
    streams = [stream for one in json.loads(report.read_text())["passes"] for stream in one["streams"]]
    size = 100 * len(everything)
    assert sum(stream["read_bytes"] for stream in streams) == size
    assert sum(stream["written_bytes"] for stream in streams) == size


def test_equal_keys_share_a_part(disk):
    rng = random.Random(4)
    lines = sorted(f"{rng.choice([1, 2, 2, 2, 2, 3, 9])} {rng.random()}\n" for _ in range(20_000))
    (disk / "in").write_text("".join(lines))
    run("reshape", disk / "in", "-s", "-k1,1", "--parts", 4, "-o", disk / "out-{}")
    got = [part.decode().splitlines() for part in parts_in(disk)]
    homes = collections.defaultdict(set)
    for number, part in enumerate(got):
        for line in part:
            homes[line.split()[0]].add(number)
    assert all(len(home) == 1 for home in homes.values()), homes
    assert [line for part in got for line in part] == [line.rstrip("\n") for line in lines]


def test_long_records_and_more_parts_than_records(disk):
    lines = sorted(chr(97 + at) * (3 * MIB if at % 2 else 5) + "\n" for at in range(8))
    (disk / "in").write_text("".join(lines))
    for parts in (3, 40):
        run("reshape", disk / "in", "--memory", "64MiB", "--parts", parts, "-o", disk / f"out{parts}-{{:03}}")
        got = parts_in(disk, f"out{parts}-*")
        assert len(got) == parts and b"".join(got) == "".join(lines).encode()
        assert all(part == b"" or part.endswith(b"\n") for part in got), "no record is cut in two"


def test_each_part_of_a_table_has_its_header(disk):
    rows = sorted(([f"k{at % 977:04}", str(at), 'a "quoted",\nfield'] for at in range(5000)), key=lambda row: row[0])
    for number in range(2):
        with open(disk / f"in{number}.csv", "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([["key", "n", "text"], *rows[number::2]])
    run("reshape", disk / "in0.csv", disk / "in1.csv", "--key", "key", "--parts", 3, "-o", disk / "out-{}.csv")
    tables = [list(csv.reader(io.StringIO(part.decode()))) for part in parts_in(disk)]
    assert [table[0] for table in tables] == [["key", "n", "text"]] * 3
    got = [row for table in tables for row in table[1:]]
    assert sorted(got) == sorted(rows) and [row[0] for row in got] == [row[0] for row in rows]
    keys = [{row[0] for row in table[1:]} for table in tables]
    assert not keys[0] & keys[1] and not keys[1] & keys[2]


def test_big_endian_numbers_keep_their_bytes(disk):
    rng = random.Random(8)
    numbers = sorted(rng.randrange(-(2**63), 2**63) for _ in range(50_000))
    (disk / "in").write_bytes(struct.pack(f">{len(numbers)}q", *numbers))
    run("reshape", disk / "in", "--format", "i64-be", "--parts", 7, "-o", disk / "out-{}")
    assert b"".join(parts_in(disk)) == (disk / "in").read_bytes()


def test_a_sort_can_write_parts(disk):
    run("gen", 60_000, "-o", disk / "in")
    run("sort", disk / "in", *FIXED, "--memory", "8MiB", "--parts", 6, "-o", disk / "out-{}")
    whole = sorted(records_of((disk / "in").read_bytes()), key=record_key)
    got = parts_in(disk)
    assert b"".join(got) == b"".join(whole) and len(got) == 6
    assert leftovers(disk) == ["in", *(f"out-{at}" for at in range(6))]


# ---------------------------------------------------------------- merge


@pytest.mark.parametrize("more", [[], ["--batch-size", "2"], ["--memory", "8MiB"]])
def test_merge_takes_any_number_of_files(more, disk):
    paths, everything = sorted_files(disk, [200 + at for at in range(40)])
    run("merge", *paths, *FIXED, *more, "-o", disk / "out", preexec_fn=limit_open_files(64))
    assert (disk / "out").read_bytes() == b"".join(everything)


def test_merge_is_the_sort_commands(disk):
    rng = random.Random(2)
    for name in "abc":
        lines = [f"{rng.randrange(100)} {rng.randrange(10)}\n" for _ in range(1000)]
        (disk / name).write_text("".join(sorted(lines, key=lambda line: (int(line.split()[1]), line), reverse=True)))
    files = [disk / name for name in "abc"]
    expected = subprocess.run(
        ["sort", "-m", "-k2,2nr", "-u", *files], capture_output=True, check=True, env={**os.environ, "LC_ALL": "C"}
    )
    assert run("merge", "-k2,2nr", "-u", *files).stdout == expected.stdout


@pytest.mark.parametrize("verb", ["merge", "reshape"])
def test_disorder_is_named_and_nothing_written(verb, disk):
    paths, _ = sorted_files(disk, [5000, 5000, 5000])
    records = records_of(paths[1].read_bytes())
    records[3000], records[1000] = records[1000], records[3000]
    paths[1].write_bytes(b"".join(records))
    words = ["--parts", 4, "-o", disk / "out-{}"] if verb == "reshape" else ["-o", disk / "out-0"]
    (disk / "out-0").write_bytes(b"the old result")
    failed = run(verb, *paths, *FIXED, *words, expect=2)
    assert f"{paths[1]}: not sorted: record 1002 at offset 100100" in failed.stderr
    assert (disk / "out-0").read_bytes() == b"the old result"
    assert leftovers(disk) == ["in-000", "in-001", "in-002", "out-0"]


# ---------------------------------------------------------------- split


def lines_for_splitting(disk):
    rng = random.Random(6)
    lines = [f"{rng.randrange(5000):05} {at}\n" for at in range(60_000)]
    (disk / "in").write_text("".join(lines))
    return lines


def test_split_by_size_cuts_between_records(disk):
    lines = lines_for_splitting(disk)
    run("split", disk / "in", "--parts", 7, "-o", disk / "out-{}")
    got = [part.decode() for part in parts_in(disk)]
    assert "".join(got) == "".join(lines) and len(got) == 7
    share = len("".join(lines)) / 7
    assert all(part.endswith("\n") and abs(len(part) - share) < 40 for part in got)


@pytest.mark.parametrize("by", ["hash", "range"])
@pytest.mark.parametrize("parts", [1, 3, 64])
def test_split_by_key_keeps_order_and_equal_keys_together(by, parts, disk):
    lines = lines_for_splitting(disk)
    run("split", disk / "in", "-k1,1", "--by", by, "--parts", parts, "--memory", "16MiB", "-o", disk / "out-{:02}")
    got = [part.decode().splitlines(keepends=True) for part in parts_in(disk)]
    assert len(got) == parts
    assert sorted(line for part in got for line in part) == sorted(lines)
    place = {line: at for at, line in enumerate(lines)}
    assert all([place[line] for line in part] == sorted(place[line] for line in part) for part in got)
    keys = [{line.split()[0] for line in part} for part in got]
    assert sum(map(len, keys)) == len(set.union(*keys)), "a key is in one part"
    assert max(map(len, got)) < 2.5 * len(lines) / parts, "parts are about as large"
    if by == "range":
        filled = [part for part in keys if part]
        assert all(max(one) < min(next_) for one, next_ in itertools.pairwise(filled))


@pytest.mark.parametrize("count, parts", [(10, 2), (1000, 3), (10_000, 4), (200_000, 16)])
def test_ranges_of_a_sorted_file_have_similar_sizes(count, parts, disk):
    (disk / "in").write_text("".join(f"{at}\n" for at in range(count)))
    run("split", disk / "in", "-k1,1n", "--parts", parts, "-o", disk / "out-{:02}")
    sizes = [part.count(b"\n") for part in parts_in(disk)]
    assert sum(sizes) == count and max(sizes) < 1.5 * count / parts + 2, sizes


@pytest.mark.parametrize("count, parts", [(10, 2), (1000, 3), (100_000, 7)])
def test_ranges_of_sorted_numbers_have_similar_sizes(count, parts, disk):
    (disk / "in").write_bytes(struct.pack(f"<{count}Q", *range(count)))
    run("split", disk / "in", "--format", "u64-le", "--by", "range", "--parts", parts, "-o", disk / "out-{}")
    sizes = [len(part) // 8 for part in parts_in(disk)]
    assert sum(sizes) == count and max(sizes) < 1.5 * count / parts + 2, sizes


@pytest.mark.parametrize("memory", [16, pytest.param(64, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "words",
    [
        ["split", "--by", "hash", "--parts", 4], ["split", "-k1,1", "--by", "range", "--parts", 4],
        ["split", "--parts", 4], ["reshape", "--parts", 4], ["sort", "--parts", 4],
    ],
)  # fmt: skip
def test_the_cap_holds_for_the_shortest_records(words, memory, disk):
    (disk / "in").write_bytes(b"\n" * 30_000_000)
    verb, *more = words
    done = support.measure(
        *map(str, [verb, disk / "in", *more, "--memory", f"{memory}MiB", "--threads", 4, "-o", disk / "out-{}"])
    )
    assert done.returncode == 0, done.stderr
    assert done.peak_resident_bytes <= memory * MIB + support.ALLOWANCE


def test_hashes_do_not_change(disk):
    """Parts by hash that different versions wrote can be joined part by part."""
    (disk / "in").write_text("".join(f"{at}\n" for at in range(1000)))
    run("split", disk / "in", "--by", "hash", "--parts", 3, "-o", disk / "out-{}")
    digests = [hashlib.sha256(part).hexdigest()[:12] for part in parts_in(disk)]
    assert digests == ["6f44e3d1d2ba", "87ac41950b08", "490db0a0412b"]


def test_a_pipe_can_be_split_by_hash_only(disk):
    text = b"".join(b"%d\n" % at for at in range(1000))
    run("split", "--by", "hash", "--parts", 2, "-o", disk / "out-{}", stdin=text)
    assert sorted(b"".join(parts_in(disk)).split()) == sorted(text.split())
    for by in ("size", "range"):
        failed = run("split", "--by", by, "--parts", 2, "-o", disk / "p-{}", stdin=text, expect=2)
        assert "write it to a file first" in failed.stderr
    assert leftovers(disk) == ["out-0", "out-1"]


def test_an_empty_file_makes_empty_parts(disk):
    (disk / "in").write_bytes(b"")
    for verb, more in [("split", []), ("split", ["--by", "hash"]), ("split", ["--by", "range"]), ("reshape", [])]:
        run(verb, disk / "in", *more, "--parts", 3, "-o", disk / "out-{}")
        assert parts_in(disk) == [b"", b"", b""]
        for path in disk.glob("out-*"):
            path.unlink()


# ---------------------------------------------------------------- refusals and leftovers


@pytest.mark.parametrize(
    "words, told",
    [
        (["--parts", "3", "-o", "out"], "has no place for the number"),
        (["--parts", "3", "-o", "{}-{}"], "more than one place"),
        (["--parts", "0", "-o", "out-{}"], "at least 1"),
        (["--parts", "x", "-o", "out-{}"], "at least 1"),
        (["--parts", "3", "-o", "nowhere/out-{}"], "nowhere"),
        (["--by", "hash", "--parts", "3000", "-o", "out-{}"], "raise the limit (ulimit -n"),
    ],
)
def test_impossible_requests_are_refused(words, told, disk):
    (disk / "in").write_text("a\nb\n")
    failed = run("split", "in", *words, cwd=disk, expect=2, preexec_fn=limit_open_files(1024))
    assert told in failed.stderr, failed.stderr
    assert leftovers(disk) == ["in"]


def test_parts_must_be_files(disk):
    (disk / "in").write_text("a\nb\n")
    os.mkfifo(disk / "p1")
    for words in (["--by", "hash"], ["--by", "size"]):
        failed = run("split", disk / "in", *words, "--parts", 3, "-o", disk / "p{}", expect=2)
        assert "p1 is no regular file" in failed.stderr
        assert leftovers(disk) == ["in", "p1"]


def test_more_parts_than_files_can_be_open_are_refused(disk):
    (disk / "in").write_text("a\nb\n")
    for verb in ("split", "reshape", "sort"):
        failed = run(
            verb, disk / "in", "--parts", 4_000_000_000, "-o", disk / "p{}", expect=2,
            preexec_fn=limit_open_files(256),
        )  # fmt: skip
        assert "raise the limit (ulimit -n)" in failed.stderr
    assert leftovers(disk) == ["in"]


def test_clean_keeps_the_parts_of_a_running_job(disk):
    run("gen", "2M", "-o", disk / "in")
    process = start("split", disk / "in", *FIXED, "--by", "hash", "--parts", 50, "-o", disk / "out-{:02}")
    while process.poll() is None and len(leftovers(disk)) < 20:
        time.sleep(0.001)
    run("clean", disk)
    process.communicate()
    assert process.returncode == 0
    assert sum(map(len, parts_in(disk))) == 200_000_000


@pytest.mark.parametrize("verb", ["split", "reshape"])
def test_parts_of_a_killed_job_are_cleaned_up(verb, disk):
    run("gen", "2M", "-o", disk / "in")
    if verb == "reshape":
        run("sort", disk / "in", *FIXED, "-o", disk / "in")
    # On a busy machine the command may be complete before it is killed.
    for _ in range(10):
        process = start(verb, disk / "in", *FIXED, "--parts", 9, "-o", disk / "out-{}")
        while process.poll() is None and len(leftovers(disk)) < 5:
            time.sleep(0.001)
        process.kill()
        process.communicate()
        named = list(disk.glob("out-*"))
        if not named:
            break
        for path in named:
            path.unlink()
        run("clean", disk)
    assert len(leftovers(disk)) > 1
    run("clean", disk)
    assert leftovers(disk) == ["in"]


def test_a_split_explains_itself(disk):
    run("gen", 1000, "-o", disk / "in")
    told = run("split", disk / "in", *FIXED, "--parts", 3, "-o", disk / "out-{}", "--explain").stdout.decode()
    assert "split into 3 parts in one pass" in told and leftovers(disk) == ["in"]
    assert f"3 files, {disk}/out-0 to {disk}/out-2: a range of keys each" in told
    run("sort", disk / "in", *FIXED, "-o", disk / "sorted")
    told = run("reshape", disk / "sorted", *FIXED, "--parts", 2, "-o", disk / "out-{}", "--explain").stdout.decode()
    assert f"2 files, {disk}/out-0 to {disk}/out-1: a range of keys each, of equal bytes" in told


@pytest.mark.parametrize("more", [["-u"], ["--top", "3"]])
def test_parts_by_size_need_files(more, disk):
    (disk / "in").write_text("a\nb\n")
    refused = run("sort", disk / "in", *more, "--parts", 2, "-o", "x{}", expect=2)
    assert "--parts cannot be combined with" in refused.stderr


def test_a_sort_refuses_parts_without_names(disk):
    (disk / "in").write_text("a\nb\n")
    assert "part-{:05}" in run("sort", disk / "in", "--parts", 2, expect=2).stderr


@pytest.mark.parametrize("verb", ["split", "reshape"])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_leaves_no_files(verb, name, disk):
    run("gen", "4M", "-o", disk / "in")
    if verb == "reshape":
        run("sort", disk / "in", *FIXED, "-o", disk / "in")
    more = ["--by", "hash"] if verb == "split" else []
    process = start(verb, disk / "in", *FIXED, *more, "--parts", 8, "-o", disk / "out-{}")
    while process.poll() is None and len(leftovers(disk)) < 2:
        time.sleep(0.001)
    process.send_signal(getattr(signal, name))
    process.communicate()
    assert process.returncode == -getattr(signal, name)
    assert leftovers(disk) == ["in"]


def test_a_full_disk_leaves_no_files(disk):
    with small_disk(disk, 24 * MIB) as full:
        run("gen", 300_000, "-o", disk / "in")
        for more in ([*FIXED, "--by", "hash"], [*FIXED, "--by", "range"], FIXED[:2]):
            failed = run("split", disk / "in", *more, "--parts", 4, "-o", full / "out-{}", expect=2)
            assert "room" in failed.stderr or "space" in failed.stderr, failed.stderr
            assert leftovers(full) == []


@pytest.mark.parametrize("verb, more", [("split", FIXED), ("split", FIXED[:2]), ("reshape", FIXED)])
def test_an_unwritable_part_leaves_no_files(verb, more, disk):
    paths, _ = sorted_files(disk, [200_000])
    failed = run(
        verb, *paths, *more, "--parts", 3, "-o", disk / "out-{}", expect=2,
        preexec_fn=limit_file_size(4 * MIB),
    )  # fmt: skip
    assert "out-" in failed.stderr and "(ulimit -f)" in failed.stderr, failed.stderr
    assert "space" not in failed.stderr, failed.stderr
    assert leftovers(disk) == ["in-000"]


def test_a_part_may_replace_an_input(disk):
    paths, everything = sorted_files(disk, [4000, 4000])
    run("reshape", *paths, *FIXED, "--parts", 2, "-o", disk / "in-{:03}")
    assert b"".join(path.read_bytes() for path in paths) == b"".join(everything)


# ---------------------------------------------------------------- boundaries


def test_parts_are_cut_at_given_keys(disk):
    """Each record is in the part of its key, in the order of the inputs, from files and from a pipe."""
    lines = lines_for_splitting(disk)
    names = sorted({line.split()[0] for line in lines})
    bounds = names[len(names) // 4 :: len(names) // 4]
    (disk / "bounds").write_text("\n".join(bounds))
    parts = len(bounds) + 1
    words = ["-k1,1", "--boundaries", disk / "bounds", "--parts", parts, "-o", disk / "out-{:02}"]
    wanted = [
        [line for line in lines if sum(bound <= line.split()[0] for bound in bounds) == part] for part in range(parts)
    ]
    for source in ("file", "pipe"):
        words_of = [disk / "in"] if source == "file" else []
        run("split", *words_of, *words, stdin=b"" if words_of else (disk / "in").read_bytes())
        assert [part.decode().splitlines(keepends=True) for part in parts_in(disk)] == wanted


def test_boundaries_of_numbers_that_descend(disk):
    numbers = [n * 7919 % 100_003 for n in range(50_000)]
    (disk / "in").write_text("".join(f"{n}\n" for n in numbers))
    (disk / "bounds").write_text("70000\n500\n")
    words = ["-n", "-r", "-k1,1", "--boundaries", disk / "bounds", "--parts", 3]
    run("split", disk / "in", *words, "-o", disk / "out-{}")
    got = [[int(line) for line in part.splitlines()] for part in parts_in(disk)]
    first, second = ([n for n in numbers if n > 70_000], [n for n in numbers if 500 < n <= 70_000])
    assert got == [first, second, [n for n in numbers if n <= 500]]


@pytest.mark.parametrize(
    ("bounds", "words", "told"),
    [
        ("b\nc\n", ["--parts", 2, "-k1,1"], "--parts 3"),
        ("c\nb\n", ["--parts", 3, "-k1,1"], "boundary 2 does not come after"),
        ("b\nb\n", ["--parts", 3, "-k1,1"], "boundary 2 does not come after"),
        ("b\n", ["--parts", 2, "-k1,1", "--by", "hash"], "--by range"),
        ("x" * (1 << 20), ["--parts", 2, "-k1,1", "--memory", "8MiB"], "more memory"),
    ],
)
def test_wrong_boundaries_are_refused(bounds, words, told, disk):
    (disk / "in").write_text("a\nb\nc\n")
    (disk / "bounds").write_text(bounds)
    failed = run("split", disk / "in", "--boundaries", disk / "bounds", *words, "-o", disk / "out-{}", expect=2)
    assert told in failed.stderr
    assert not list(disk.glob("out-*"))


def test_boundaries_without_end_are_refused(disk):
    (disk / "in").write_bytes(b"a\nb\n")
    words = ["--boundaries", "/dev/zero", "--parts", 2, "--memory", "16MiB", "-o", disk / "out-{}"]
    failed = run("split", disk / "in", *words, expect=2)
    assert "more than a sixteenth of the memory" in failed.stderr
    assert not list(disk.glob("out-*"))
