"""`ascot plan` and `ascot simulate`: published and predicted figures, and refusals."""

import json
import re

import pytest
from support import ROOT, pass_seconds, run

ARRAY = """
name = "24 disks"
read_bytes_per_s = 3.549e9
write_bytes_per_s = 3.549e9
switch_seconds = 0.0155
cache_bytes = 2_000_000_000
"""

# What docs/published.md derives from figures outside the tables; one GB is 1,024 MB.
DERIVED = """
name = "24 disks"
read_bytes_per_s = 3.562e9
write_bytes_per_s = 3.562e9
switch_seconds = 0.01644
"""

# memory in GB, input in GB, files, passes and MB/s as published for a 24-disk array.
PUBLISHED = [
    (1, 8, 8, 1, 2962),
    (2, 128, 64, 1, 2114),
    (2, 1024, 512, 2, 1350),
    (2, 8192, 4096, 2, 1010),
    (8, 512, 64, 1, 2881),
    (8, 4096, 512, 1, 1891),
    (20, 1280, 64, 1, 3297),
]


@pytest.fixture
def array(tmp_path):
    path = tmp_path / "array.toml"
    path.write_text(ARRAY)
    return path


def asked(*words):
    return json.loads(run(*words, "--json").stdout)


@pytest.mark.parametrize(("memory", "size", "files", "passes", "rate"), PUBLISHED)
def test_published_passes_and_rates(tmp_path, memory, size, files, passes, rate):
    (tmp_path / "derived.toml").write_text(DERIVED)
    words = ["plan", "split", "--outputs", str(files), "--volume", tmp_path / "derived.toml"]
    told = asked(*words, "--input", f"{1024 * size}MB", "--memory", f"{1024 * memory}MB")
    assert len(told["passes"]) == passes
    assert told["bytes"] == pytest.approx(2048e6 * size * passes)
    assert 2048 * size / told["seconds"] == pytest.approx(rate, rel=0.15)


def test_one_bowtie(array):
    told = asked("plan", "bowtie", "--inputs", "3", "--outputs", "100", "--memory", "16GiB", "--volume", array)
    assert told["schedule"] == "a6r"
    assert told["run_bytes"] / (16 << 30) == pytest.approx(0.0294, abs=0.001)
    assert told["read_memory_bytes"] + told["write_memory_bytes"] == pytest.approx(16 << 30)
    assert told["rate_bytes_per_s"] > told["equal_parts_rate_bytes_per_s"]
    alone = asked("plan", "bowtie", "--inputs", "0", "--outputs", "1")
    assert alone["schedule"] == "a1" and alone["run_bytes"] is None


def test_an_object_store_has_a_price(tmp_path):
    (tmp_path / "store.toml").write_text(
        'name = "store"\nread_bytes_per_s = 1e9\nwrite_bytes_per_s = 1e9\nswitch_seconds = 0.03\n'
        "most_request_bytes = 8388608\n[prices]\nread_request = 4e-7\nwrite_request = 5e-6\nhour = 1.0\n"
    )
    words = ["plan", "split", "--outputs", "100", "--input", "1TB", "--volume", tmp_path / "store.toml"]
    told = asked(*words)
    assert told["switches"] >= 2e12 / 8388608
    assert told["money"] > 0
    assert b"money" in run(*words).stdout


@pytest.mark.parametrize(
    ("inputs", "outputs", "schedule"), [(0, 32, "a1"), (1, 32, "a2"), (32, 0, "a3"), (32, 1, "a4")]
)
def test_simulated_runs_are_as_long_as_the_formula_says(inputs, outputs, schedule):
    told = asked(
        "simulate", "--inputs", str(inputs), "--outputs", str(outputs), "--memory", "1GiB", "--schedule", schedule
    )
    assert told["run_bytes"] == pytest.approx(told["formula_run_bytes"], rel=0.02)
    assert told["peak_memory_bytes"] <= 1 << 30


@pytest.mark.parametrize(("inputs", "outputs"), [(0, 16), (16, 0), (1, 64), (64, 1), (8, 16)])
def test_equal_parts_are_simulated_for_comparison(inputs, outputs):
    words = ["simulate", "--inputs", str(inputs), "--outputs", str(outputs), "--memory", "1GiB"]
    equal, best = asked(*words, "--schedule", "equal"), asked(*words)
    assert equal["schedule"] == "equal"
    assert equal["formula_run_bytes"] == equal["equal_parts_run_bytes"] == (1 << 30) / (inputs + outputs)
    assert equal["run_bytes"] == pytest.approx(equal["formula_run_bytes"], rel=0.05)
    assert best["run_bytes"] > 1.4 * equal["run_bytes"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["plan"], "WHAT"),
        (["plan", "merge", "--inputs", "9"], "--input"),
        (["plan", "bowtie", "--inputs", "0", "--outputs", "0"], "streams"),
        (["plan", "bowtie", "--alpha", "2"], "--alpha"),
        (["plan", "bowtie", "--inputs", "4", "--outputs", "4", "--alpha", "1"], "--alpha"),
        (["plan", "bowtie", "--inputs", "5000", "--memory", "1MiB"], "--memory"),
        (["plan", "bowtie", "--volume", "/missing.toml"], "/missing.toml"),
        (["simulate", "--schedule", "a3"], "a3"),
        (["simulate", "--inputs", "500", "--memory", "1MiB", "--block", "64KiB"], "--block"),
        (["simulate", "--skew", "zipfy"], "zipf"),
        (["simulate", "--skew", "bursts:0"], "from 1 to"),
        (["simulate", "--inputs", "9", "--group", "0"], "from 1 to 9"),
        (["simulate", "--inputs", "9", "--group", "2", "--schedule", "equal"], "one of the two"),
        (["simulate", "--inputs", "9", "--group", "10"], "from 1 to 9"),
        (["simulate", "--memory", "1TiB", "--block", "4KiB"], "--block"),
    ],
)
def test_impossible_arguments_are_refused(words, told):
    assert told in run(*words, expect=2).stderr


def test_a_sort_is_planned_without_data(array):
    words = ["plan", "sort", "--input", "8TB", "--memory", "2GiB", "--volume", array]
    told = asked(*words)
    way, others = told["plan"]["chosen"], told["plan"]["others"]
    assert way["method"] == "merge", "writing parts block by block costs a switch each"
    assert len(way["passes"]) == len(way["factors"]) + 1 == 3
    assert 55 < way["merge_factor"] < 75 and max(way["factors"]) == way["merge_factor"]
    assert told["bytes"] == pytest.approx(16e12 * len(way["passes"]), rel=0.01)
    for other in others:
        assert told["seconds"] < sum(map(pass_seconds, other["passes"]))
    assert told["switches"] > 0
    small = asked("plan", "sort", "--input", "100MB", "--memory", "1GiB", "--record-bytes", "8")
    assert small["plan"]["chosen"]["method"] == "in memory" and small["plan"]["chosen"]["factors"] == []
    assert "record-bytes" in run("plan", "sort", "--input", "1GB", "--record-bytes", "0", expect=2).stderr


def runs_of(words, report, direction):
    """The runs of spills or parts in the pass with the most, from the report."""
    run(*words, "--report", report)
    passes = json.loads(report.read_text())["passes"]
    return max(stream[f"{direction}_runs"] for one in passes for stream in one["streams"])


@pytest.mark.parametrize(("method", "direction"), [("distribute", "written"), ("merge", "read")])
def test_sorts_on_an_array_move_in_long_runs(method, direction, array, module_disk):
    """The same code moves block by block on flash, and by a2 and a4 if switches cost time."""
    records = module_disk / "records"
    if not records.exists():
        run("gen", "1M", "-o", records)
    words = ["sort", records, "--format", "fixed:100", "--key", "0..10", "--memory", "16MiB", "--method", method]
    words += ["--temp", module_disk, "-o", module_disk / "sorted"]
    blocks = runs_of(words, module_disk / "report.json", direction)
    sorted_by_blocks = (module_disk / "sorted").read_bytes()
    long = runs_of([*words, "--volume", array], module_disk / "report.json", direction)
    assert (module_disk / "sorted").read_bytes() == sorted_by_blocks
    assert long < blocks / 2, (long, blocks)


def test_splits_on_an_array_move_in_long_runs(array, module_disk):
    records = module_disk / "records"
    if not records.exists():
        run("gen", "1M", "-o", records)
    words = ["split", records, "--format", "fixed:100", "--key", "0..10", "--memory", "32MiB", "--by", "hash"]
    words += ["--parts", "20", "-o", module_disk / "part{:02}"]
    blocks = runs_of(words, module_disk / "report.json", "written")
    parts = [path.read_bytes() for path in sorted(module_disk.glob("part??"))]
    long = runs_of([*words, "--volume", array], module_disk / "report.json", "written")
    assert [path.read_bytes() for path in sorted(module_disk.glob("part??"))] == parts
    assert long < blocks / 2, (long, blocks)


def test_commands_of_the_theory_draw_its_charts(tmp_path):
    page = (ROOT / "docs" / "theory.md").read_text()
    commands = re.findall(r"^\$ ascot (simulate .* --plot (\S+))$", page, re.MULTILINE)
    assert len(commands) >= 3
    for words, name in commands:
        run(*words.split(), cwd=tmp_path)
        drawn = (tmp_path / name).read_text()
        assert f"img/{name}" in page and drawn == (ROOT / "docs" / "img" / name).read_text(), name


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("read_bytes_per_s", "2e15"),
        ("write_bytes_per_s", "0.5"),
        ("duplex_bytes_per_s", "0.1"),
        ("most_request_bytes", "511"),
        ("most_request_bytes", "0"),
    ],
)
def test_impossible_profiles_are_refused_by_field(field, value, tmp_path):
    figures = {"name": '"x"', "read_bytes_per_s": "1e9", "write_bytes_per_s": "1e9", "switch_seconds": "0.001"}
    lines = [f"{name} = {figure}\n" for name, figure in {**figures, field: value}.items()]
    (tmp_path / "bad.toml").write_text("".join(lines))
    told = run("plan", "bowtie", "--volume", tmp_path / "bad.toml", expect=2).stderr
    assert f"bad.toml: {field} must be" in told, told
