"""Every layout with both methods and little memory gives the same bytes as Python's `sorted`."""

import random
import re
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import BY_NAME, LAYOUTS, STYLES, file_and_sorted, make_file, sorted_file
from support import METHODS, MIB, leftovers, run

# The smallest memory of a spilling test; the data is several times as large.
TINY = "8MiB"
SPILL_BYTES = 20 * MIB


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@settings(max_examples=40)
@given(data=st.data())
def test_small_files(layout, data):
    """Any number of records in any of the styles, through standard input and output."""
    rng = random.Random(data.draw(st.integers(0, 1 << 32)))
    count, style = data.draw(st.integers(0, 400)), data.draw(st.sampled_from(sorted(STYLES)))
    records = layout.records(rng, count, style)
    done = run("sort", *layout.flags, stdin=layout.file(records))
    assert done.stdout == layout.file(layout.sorted(records))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_spilling(layout, method, disk):
    source, right = file_and_sorted(layout, SPILL_BYTES)
    (disk / "in").write_bytes(source)
    spill(layout, method, disk)
    assert (disk / "out").read_bytes() == right


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("style", [style for style in STYLES if style != "random"])
@pytest.mark.parametrize("name", ["lines", "fixed-100", "u64-le", "csv"])
def test_spilling_uneven(name, style, method, disk, request):
    """Skewed, duplicate and presorted records; in short tests each style with two layouts for each method."""
    turn = list(BY_NAME).index(name) + list(STYLES).index(style) + METHODS.index(method)
    if turn % 2 and not request.config.getoption("--long"):
        pytest.skip("takes minutes: ./dev test --all")
    layout = BY_NAME[name]
    source, right = file_and_sorted(layout, SPILL_BYTES, style)
    (disk / "in").write_bytes(source)
    spill(layout, method, disk)
    assert (disk / "out").read_bytes() == right


def spill(layout, method, disk, *more):
    words = ["--memory", TINY, "--method", method, "--temp", disk]
    run("sort", *layout.flags, disk / "in", *words, *more, "-o", disk / "out")
    assert sorted(path.name for path in disk.iterdir()) == ["in", "out"], "no spills are left"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("compress", ["lz4", "zstd", "auto"])
def test_spilling_compressed(compress, method, disk):
    layout = BY_NAME["lines"]
    source, right = file_and_sorted(layout, SPILL_BYTES)
    (disk / "in").write_bytes(source)
    spill(layout, method, disk, "--compress", compress)
    assert (disk / "out").read_bytes() == right


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["lines-stable", "fixed-100", "prefixed-u32", "csv"])
def test_unique_keeps_the_first_of_equals(name, method, disk):
    layout = BY_NAME[name]
    records = make_file(layout, disk / "in", SPILL_BYTES, "zipf")
    spill(layout, method, disk, "-u")
    first = {}
    for record in records:
        first.setdefault(layout.key(record), record)
    expected = [first[key] for key in sorted(first)]
    assert (disk / "out").read_bytes() == layout.file(expected)


@pytest.mark.parametrize("name", ["fixed-100", "u64-le", "prefixed-u16", "f64-le"])
def test_reverse_keeps_equals_in_order(name, disk):
    layout = BY_NAME[name]
    records = layout.records(random.Random(5), 2000, "zipf")
    done = run("sort", *layout.flags, "-r", stdin=layout.file(records))
    assert done.stdout == layout.file(sorted(records, key=layout.key, reverse=True))


@pytest.mark.parametrize("name", ["fixed-100", "u64-le", "lines", "prefixed-u32", "csv"])
def test_several_passes(name, disk):
    """A fan-in so small that runs are merged more than once."""
    layout = BY_NAME[name]
    records = make_file(layout, disk / "in", SPILL_BYTES)
    spill(layout, "merge", disk, "--batch-size", "2")
    assert (disk / "out").read_bytes() == sorted_file(layout, records)


def test_several_inputs_and_directories_for_spills(disk):
    layout = BY_NAME["fixed-100"]
    names, records = [], []
    for at in range(5):
        names.append(disk / f"in{at}")
        records += make_file(layout, names[-1], SPILL_BYTES // 5, seed=at)
    places = [disk / "a", disk / "b"]
    for place in places:
        place.mkdir()
    temp = [word for place in places for word in ("--temp", place)]
    run("sort", *layout.flags, *names, "--memory", TINY, *temp, "-o", disk / "out")
    assert (disk / "out").read_bytes() == b"".join(layout.sorted(records))
    assert not any(list(place.iterdir()) for place in places)


@pytest.mark.parametrize("name", [layout.name for layout in LAYOUTS if layout.name != "lines-stable"])
def test_check_flag(name):
    layout = BY_NAME[name]
    records = layout.sorted(layout.records(random.Random(2), 500, "random"))
    run("sort", *layout.flags, "-c", stdin=layout.file(records))
    records[100], records[400] = records[400], records[100]
    run("sort", *layout.flags, "-C", stdin=layout.file(records), expect=1)


# ---------------------------------------------------------------- unusual lines and rows


@pytest.mark.parametrize("method", METHODS)
def test_lines_of_any_length(method, disk):
    """Empty lines to lines of a megabyte, with NULs, the last without a newline."""
    rng = random.Random(11)
    lengths = [0, 1, 0, 7, 4095, 4096, 4097, 65_536, 1_000_000]
    lines = [rng.randbytes(rng.choice(lengths)).replace(b"\n", b"\0") for _ in range(600)]
    # If the last line were empty, the file would end in a newline.
    lines.append(b"the last")
    (disk / "in").write_bytes(b"\n".join(lines))
    spill(BY_NAME["lines"], method, disk, "--memory", "32MiB")
    assert (disk / "out").read_bytes() == b"".join(line + b"\n" for line in sorted(lines))


@pytest.mark.parametrize("method", METHODS)
def test_lines_too_long_for_the_memory_are_sorted_or_refused(method, disk):
    """With lines of a megabyte in 8 MiB the job sorts or refuses with advice, and never hangs."""
    rng = random.Random(12)
    lines = [rng.randbytes(MIB).replace(b"\n", b"\0") for _ in range(40)]
    (disk / "in").write_bytes(b"\n".join(lines))
    words = ["--memory", TINY, "--method", method, "--temp", disk, "-o", disk / "out"]
    done = run("sort", disk / "in", *words, expect=None)
    if done.returncode == 0:
        assert (disk / "out").read_bytes() == b"".join(line + b"\n" for line in sorted(lines))
    else:
        assert done.returncode == 2
        assert "memory" in done.stderr


def test_a_line_beyond_all_memory_is_refused(disk):
    (disk / "in").write_bytes(b"a\n" + b"x" * (24 * MIB) + b"\nb\n")
    done = run("sort", disk / "in", "--memory", TINY, "--temp", disk, "-o", disk / "out", expect=None)
    if done.returncode == 0:
        assert (disk / "out").stat().st_size == 24 * MIB + 5
    else:
        assert done.returncode == 2
        assert "memory" in done.stderr
        assert sorted(path.name for path in disk.iterdir()) == ["in"]


@pytest.mark.parametrize("method", METHODS)
def test_lines_of_a_fourth_of_the_memory(method, disk):
    rng = random.Random(13)
    lines = [rng.randbytes(n).replace(b"\n", b"\0") for n in [2 * MIB - 1000] * 8 + [100] * 9000 + [50_000] * 40]
    rng.shuffle(lines)
    (disk / "in").write_bytes(b"".join(line + b"\n" for line in lines))
    spill(BY_NAME["lines"], method, disk)
    assert (disk / "out").read_bytes() == b"".join(line + b"\n" for line in sorted(lines))


@pytest.mark.parametrize("words", [["--method", "merge"], ["--method", "distribute"], ["-m"]], ids=" ".join)
def test_the_memory_advised_for_a_long_line_suffices(words, disk):
    """The error names the offset of the line, and with the memory it advises the command succeeds."""
    (disk / "in").write_bytes(b"a\n" * 1_000_000 + b"b" * (10 * MIB) + b"\nc\n")
    more = [*words, "--temp", disk, "-o", disk / "out"]
    told = run("sort", disk / "in", "--memory", TINY, *more, expect=2).stderr
    assert f"{disk / 'in'}: the record at offset 2000000 is longer than memory allows: 10.5 MB" in told
    run("sort", disk / "in", "--memory", re.search(r"--memory (\d+MiB) or more", told)[1], *more)
    assert (disk / "out").read_bytes() == (disk / "in").read_bytes()


def test_a_header_stays_first():
    done = run("sort", "--header", stdin=b"z title\nb\na\n")
    assert done.stdout == b"z title\na\nb\n"


def test_headers_of_several_files(tmp_path):
    (tmp_path / "a").write_bytes(b"id,n\n3,x\n1,y\n")
    (tmp_path / "b").write_bytes(b"id,n\n2,z\n")
    done = run("sort", "--csv", "--header", "--key", "id:number", tmp_path / "a", tmp_path / "b")
    assert done.stdout == b"id,n\n1,y\n2,z\n3,x\n"


def test_csv_types_and_nulls():
    rows = [b"b,10,2024-01-05\n", b"a,9,2023-12-31T10:00\n", b",,\n", b'"a",-1.5e1,2024-01-05T00:00:01\n']
    data = b"k,n,d\n" + b"".join(rows)

    def order(key):
        body = run("sort", "--csv", "--header", "--key", key, stdin=data).stdout[6:]
        return [rows.index(line) for line in body.splitlines(keepends=True)]

    assert order("n:number") == [3, 1, 0, 2]
    assert order("n:number:desc") == [0, 1, 3, 2]
    assert order("n:number:nulls-first") == [2, 3, 1, 0]
    assert order("d:date") == [1, 0, 3, 2]
    assert order("k,n:number") == [3, 1, 0, 2]
    assert order("k,-n:number") == [1, 3, 0, 2]
    assert order("#2:number") == [3, 1, 0, 2]


def test_csv_rows_with_line_breaks():
    done = run("sort", "--csv", "--key", "#2:number", stdin=b'"b\nb",2\n"a ""x""\n",1\nc,0')
    assert done.stdout == b'c,0\n"a ""x""\n",1\n"b\nb",2\n'


def test_an_unknown_column_is_named():
    done = run("sort", "--csv", "--header", "--key", "tenat", stdin=b"tenant,ts\na,1\n", expect=2)
    assert "tenat" in done.stderr
    assert "tenant" in done.stderr


# ---------------------------------------------------------------- impossible records


@pytest.mark.parametrize(
    ("flags", "data", "words"),
    [
        (["--format", "fixed:100", "--key", "0..10"], bytes(250), ["cut short", "50", "100"]),
        (["--format", "u64-le"], bytes(13), ["cut short", "5", "8"]),
        (["--format", "prefixed:u16-le", "--key", "0..1"], struct.pack("<H", 5) + b"abc", ["cut short"]),
        (["--format", "prefixed:u32-le", "--key", "0..1"], b"\1\0", ["cut short"]),
        (["--format", "prefixed:u16-le", "--key", "0..8"], struct.pack("<H", 3) + b"abc", ["key"]),
        (["--format", "prefixed:u64-le", "--key", "0..1"], b"\xff" * 8 + b"a", []),
        (["--format", "fixed:10", "--key", "5..11"], bytes(20), ["key"]),
        (["--csv", "--key", "#1"], b'a,"unfinished\n', ["quot"]),
    ],
)
def test_damaged_records_are_errors(flags, data, words, tmp_path):
    (tmp_path / "in").write_bytes(data)
    done = run("sort", *flags, tmp_path / "in", "-o", tmp_path / "out", expect=2)
    assert not (tmp_path / "out").exists()
    for word in words:
        assert word in done.stderr, done.stderr


DAMAGED = [
    (["--format", "fixed:100", "--key", "0..10"], bytes(100), bytes(37), ["is cut short: 37 of 100 bytes at offset"]),
    (["--format", "prefixed:u16-le", "--key", "0..4"], b"\4\0abcd", b"\5\0abc", ["is cut short: 5 of 7 bytes"]),
    (["--format", "prefixed:u16-le", "--key", "0..4"], b"\4\0abcd", b"\3\0abc", ["key beyond the record: record"]),
    (["--csv", "--key", "#1"], b"a,1\n", b'b,"x\ny\n', ["the quote opened at offset"]),
]


@pytest.mark.parametrize("words", [[], ["--method", "distribute"], ["-m"], ["-c"]], ids=" ".join)
@pytest.mark.parametrize("count", [3, 2_500_000], ids=["small", "large"])
@pytest.mark.parametrize(("flags", "whole", "damaged", "told"), DAMAGED, ids=["fixed", "prefixed", "key", "quote"])
def test_every_method_names_the_damage(flags, whole, damaged, told, count, words, disk):
    count = min(count, 12 * MIB // len(whole))
    (disk / "in").write_bytes(whole * count + damaged)
    more = [] if words == ["-c"] else ["--temp", disk, "-o", disk / "out"]
    done = run("sort", *flags, *words, disk / "in", "--memory", TINY, *more, expect=2)
    assert str(disk / "in") in done.stderr
    for word in told:
        assert word in done.stderr, done.stderr
    assert str(len(whole) * count + (2 if "--csv" in flags else 0)) in done.stderr, done.stderr
    assert sorted(path.name for path in disk.iterdir()) == ["in"]


@pytest.mark.parametrize(
    "flags",
    [
        ["--format", "fixed:0"], ["--format", "fixed:x"], ["--format", "u65"], ["--format", "prefixed:u3"],
        ["--format", "fixed:10", "--key", "5..2"], ["--format", "fixed:10", "-n"],
        ["--format", "u64-le", "--key", "0..4"], ["--csv", "--format", "fixed:10"],
        ["--memory", "1"], ["--memory", "x"], ["--method", "odd"],
        ["--compress", "odd"], ["--top", "x"], ["--progress", "odd"], ["--resume", "/nonexistent"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_wrong_arguments_are_refused(flags):
    done = run("sort", *flags, stdin=b"", expect=2)
    assert done.stdout == b""
    assert done.stderr.startswith("ascot")


@pytest.mark.parametrize("method", ["auto", *METHODS])
def test_a_key_that_extends_beyond_its_keyed_record_is_an_error(disk, method):
    good = b"\x03\x02ab"
    for wrong in (b"\x03\x09ab", b"\x00"):
        (disk / "in").write_bytes(good * 1000 + wrong + good)
        done = run("sort", "in", "--format", "keyed:u8", "--method", method, "-o", "out", cwd=disk, expect=None)
        told = "in: key beyond the record: record 1001 at offset 4000"
        assert done.returncode == 2 and told in done.stderr, str(done)
    assert leftovers(disk) == ["in"]


def test_unique_and_top_of_keyed_records(disk):
    keys = [b"bb", b"a", b"bb", b"", b"a"]
    records = [b"%c%c%s%02d" % (3 + len(key), len(key), key, at) for at, key in enumerate(keys)]
    (disk / "in").write_bytes(b"".join(records))
    for flags, wanted in ((("-u",), [3, 1, 0]), (("-s", "--top", "3"), [3, 1, 4]), (("-u", "--top", "2"), [3, 1])):
        out = run("sort", "in", "--format", "keyed:u8", *flags, cwd=disk).stdout
        assert out == b"".join(records[at] for at in wanted), flags
