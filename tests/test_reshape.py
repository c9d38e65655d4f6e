"""`ascot reshape --by hash` and `--by value`: n sorted inputs become m sorted outputs, ordered by one key and routed
by another, in one pass with the switches of an interconnect."""

import json
import random

import pytest
from support import ALLOWANCE, FIXED, MIB, leftovers, measure, run, sorted_files

ARRAY = """name = "24 disks"
read_bytes_per_s = 3.549e9
write_bytes_per_s = 3.549e9
switch_seconds = 0.0155
"""


@pytest.fixture
def array(tmp_path):
    (tmp_path / "array.toml").write_text(ARRAY)
    return tmp_path / "array.toml"


def sorted_lines(directory, files, lines):
    """Lines of a number, by which they are sorted, and a word."""
    names = []
    for number in range(files):
        rng = random.Random(number)
        rows = sorted((rng.randrange(10**6), rng.choice(["red", "green", "blue"])) for _ in range(lines))
        names.append(directory / f"in{number}")
        names[-1].write_text("".join(f"{value:06d} {word}\n" for value, word in rows))
    return names


def simulated(step, *flags):
    blocks, block_bytes = step["buffers"]["blocks"], step["buffers"]["block_bytes"]
    moved = sum(stream["read_bytes"] + stream["written_bytes"] for stream in step["streams"])
    words = ["--inputs", step["inputs"], "--outputs", step["outputs"], "--memory", f"{blocks * block_bytes}b"]
    sizes = ["--block", f"{block_bytes}b", "--total", f"{moved}b"]
    return json.loads(run("simulate", *map(str, words), *sizes, "--json", *flags).stdout)["switches"]


SHAPES = [(4, 16, "8MiB"), (12, 12, "8MiB")]
MORE_SHAPES = [(16, 4, "32MiB"), (3, 5, "8MiB"), (8, 8, "8MiB"), (16, 4, "8MiB"), (7, 2, "8MiB"), (12, 12, "32MiB")]
SHAPES += [pytest.param(*shape, marks=pytest.mark.long) for shape in MORE_SHAPES]


@pytest.mark.parametrize("inputs, outputs, memory", SHAPES)
def test_a_reshape_by_hash_takes_the_switches_of_an_interconnect(inputs, outputs, memory, array, disk):
    names = sorted_files(disk, [1_600_000 // inputs] * inputs)
    words = [*names, *FIXED, "--by", "hash:20..30", "--parts", str(outputs), "--memory", memory]
    words += ["--volume", array, "--report", disk / "run.json", "-o", disk / "out{:02}"]
    run("reshape", *words, timeout=300)
    report = json.loads((disk / "run.json").read_text())
    [step], [plan] = report["passes"], report["plan"]["chosen"]["passes"]
    assert (step["inputs"], step["outputs"]) == (inputs, outputs)
    theory, equal = simulated(step), simulated(step, "--schedule", "equal")
    assert step["switches"] <= 1.10 * theory, (step["switches"], theory)
    assert step["switches"] < 0.75 * equal, (step["switches"], equal)
    assert abs(plan["switches"] / step["switches"] - 1) <= 0.10, (plan["switches"], step["switches"])
    assert step["buffers"]["memory_share"] >= 0.9
    check_routing(disk, names, outputs, lambda record: record[20:30])


def check_routing(disk, names, outputs, key_of):
    """Every output is sorted, each key is in one output, and no record is lost."""
    records_in = sorted(record for name in names for record in cut(name.read_bytes()))
    home = {}
    records_out = []
    for number in range(outputs):
        out = disk / f"out{number:02}"
        run("check", out)
        for record in cut(out.read_bytes()):
            assert home.setdefault(key_of(record), number) == number
            records_out.append(record)
    assert sorted(records_out) == records_in
    # As ascot split does.
    joined = disk / "joined"
    joined.write_bytes(b"".join(records_in))
    run("split", joined, "--format", "fixed:100", "--key", "20..30", "--by", "hash", "--parts", str(outputs),
        "-o", disk / "split{:02}")  # fmt: skip
    for number in range(outputs):
        parts = [sorted(cut((disk / f"{stem}{number:02}").read_bytes())) for stem in ("out", "split")]
        assert parts[0] == parts[1]


def cut(data):
    return [data[at : at + 100] for at in range(0, len(data), 100)]


def test_each_value_has_a_file(disk):
    names = sorted_lines(disk, 5, 4000)
    run("reshape", *names, "-k1,1n", "--by", "value:2,2", "--parts", "3", "-o", disk / "out{}")
    lines = sorted(line for name in names for line in name.read_text().splitlines())
    outputs = [(disk / f"out{number}").read_text().splitlines() for number in range(3)]
    values = {frozenset(line.split()[1] for line in output) for output in outputs}
    assert values == {frozenset([word]) for word in ("red", "green", "blue")}
    for number, output in enumerate(outputs):
        run("sort", "-c", "-s", "-k1,1n", disk / f"out{number}")
        assert sorted(output) == [line for line in lines if line.split()[1] == output[0].split()[1]]


def test_more_values_than_files_are_refused(disk):
    names = sorted_lines(disk, 2, 100)
    words = ["-k1,1n", "--by", "value:2,2", "--parts", "2", "-o", disk / "out{}"]
    done = run("reshape", *names, *words, expect=2)
    assert "more than 2 values" in done.stderr and "--parts" in done.stderr
    assert leftovers(disk) == ["in0", "in1"]


def test_columns_and_headers(disk):
    (disk / "a.csv").write_text("ts,tenant\n1,x\n3,y\n5,x\n")
    (disk / "b.csv").write_text("ts,tenant\n2,y\n4,x\n")
    words = [disk / "a.csv", disk / "b.csv", "--key", "ts:number", "--by", "value:tenant", "--parts", "2"]
    run("reshape", *words, "-o", disk / "{}.csv")
    assert (disk / "0.csv").read_text() == "ts,tenant\n1,x\n4,x\n5,x\n"
    assert (disk / "1.csv").read_text() == "ts,tenant\n2,y\n3,y\n"


@pytest.mark.parametrize("layout", ["u64-le", "prefixed:u32"])
def test_binary_layouts(layout, disk):
    names = []
    for number in range(3):
        rng = random.Random(number)
        values = sorted(rng.randrange(1 << 62) for _ in range(20_000))
        body = [value.to_bytes(8, "little" if layout == "u64-le" else "big") for value in values]
        head = b"" if layout == "u64-le" else (8).to_bytes(4, "little")
        names.append(disk / f"in{number}")
        names[-1].write_bytes(b"".join(head + one for one in body))
    run("reshape", *names, "--format", layout, "--by", "hash", "--parts", "4", "-o", disk / "out{}")
    for number in range(4):
        run("check", disk / f"out{number}", "--format", layout)
    assert sum((disk / f"out{number}").stat().st_size for number in range(4)) == sum(
        name.stat().st_size for name in names
    )


def test_records_longer_than_a_block(disk):
    rng = random.Random(3)
    for number in range(2):
        lines = sorted(f"{rng.randrange(10**9):09d} {'x' * rng.choice([10, 300_000])}\n" for _ in range(60))
        (disk / f"in{number}").write_text("".join(lines))
    words = [disk / "in0", disk / "in1", "-k1,1", "--by", "hash", "--parts", "3", "--memory", "16MiB"]
    run("reshape", *words, "-o", disk / "out{}")
    gotten = [line for number in range(3) for line in (disk / f"out{number}").read_text().splitlines()]
    given = [line for number in range(2) for line in (disk / f"in{number}").read_text().splitlines()]
    assert sorted(gotten) == sorted(given)
    for number in range(3):
        run("sort", "-c", "-s", "-k1,1", disk / f"out{number}")


def test_an_input_out_of_order_leaves_nothing(disk):
    (disk / "a").write_text("1\n3\n2\n")
    done = run("reshape", disk / "a", "-n", "--by", "hash", "--parts", "2", "-o", disk / "out{}", expect=2)
    assert "not sorted: record 3" in done.stderr
    assert leftovers(disk) == ["a"]


@pytest.mark.parametrize("by, told", [("size", "accepted"), ("hash:0..9", "byte"), ("value:", "invalid")])
def test_rules_that_do_not_exist(by, told, disk):
    (disk / "a").write_text("1\n")
    done = run("reshape", disk / "a", "--by", by, "--parts", "2", "-o", disk / "out{}", expect=2)
    assert done.stderr.startswith("ascot: ") and told
    assert leftovers(disk) == ["a"]


def test_explain_names_the_interconnect(array, disk):
    names = sorted_lines(disk, 4, 100)
    words = [*names, "-n", "--by", "hash:2,2", "--parts", "6", "-o", disk / "out{}", "--volume", array]
    told = run("reshape", *words, "--explain").stdout.decode()
    assert "merge 4 sorted files and split them into 6, in one pass by A6" in told
    told = run("reshape", *names, "-n", "--parts", "6", "-o", disk / "out{}", "--volume", array, "--explain")
    assert "a range of keys each" in told.stdout.decode()


@pytest.mark.parametrize("volume", [False, True])
def test_a_reshape_keeps_the_cap(volume, array, disk):
    names = sorted_files(disk, [250_000] * 8)
    words = [*names, *FIXED, "--by", "hash:10..20", "--parts", "16", "--memory", "64MiB", "-o", disk / "out{}"]
    measured = measure("reshape", *words, *(["--volume", array] if volume else []))
    assert measured.returncode == 0, measured.stderr
    assert measured.peak_resident_bytes <= 64 * MIB + ALLOWANCE


def test_plans_say_which_reshape_is_an_interconnect():
    words = ["--inputs", "20", "--outputs", "5", "--input", "2GB"]
    told = run("plan", "reshape", *words).stdout.decode()
    assert "20 x 1" in told and "by range is a merge, n x 1" in told
    told = run("plan", "reshape", *words, "--by", "hash").stdout.decode()
    assert "20 x 5" in told and "by hash or value is n x m" in told
    split = run("plan", "split", *words[2:]).stdout.decode()
    assert "1 x 5" in split and "n x m" not in split
