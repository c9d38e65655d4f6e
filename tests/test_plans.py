"""`ascot plan sort` and `ascot sort --explain` give the same plan, and jobs follow it."""

import json
import math
import pathlib
import random
import re
import shutil
import subprocess
import tempfile

import pytest
from support import MIB, ascot_binary, clean_environment, pass_seconds, run

FLASH = """
name = "flash"
read_bytes_per_s = 1.4e9
write_bytes_per_s = 1.2e9
duplex_bytes_per_s = 0.8e9
switch_seconds = [[2, 0.0], [64, 0.00002]]
"""
# Switches are so expensive that even these small files are merged few at a time.
ARRAY = """
name = "an array"
read_bytes_per_s = 3.549e9
write_bytes_per_s = 3.549e9
switch_seconds = 0.0155
"""
SLOW_HOST = """
[host]
threads = 2
[[host.kernels]]
layout = "fixed:100"
class = "Fixed"
record_bytes = 100.0
sort = { value = 2e7, spread = 0.0 }
merge = { value = 3e7, spread = 0.0 }
"""
LAYOUTS = {
    "fixed:100": ["--format", "fixed:100", "--key", "0..10"],
    "u64-le": ["--format", "u64-le"],
    "lines": ["--format", "lines"],
}
SIZE = 40 * MIB


@pytest.fixture(scope="module")
def files(module_disk):
    """A file of each layout, and the mean length of its records."""
    noise = random.Random(5)
    run("gen", str(SIZE // 100), "-o", module_disk / "fixed:100")
    (module_disk / "u64-le").write_bytes(noise.randbytes(SIZE))
    lines = b"".join(b"%0*x\n" % (47, noise.getrandbits(180)) for _ in range(SIZE // 48))
    (module_disk / "lines").write_bytes(lines)
    for name, text in [("flash", FLASH), ("array", ARRAY), ("slow", ARRAY + SLOW_HOST)]:
        (module_disk / f"{name}.toml").write_text(text)
    return module_disk


def ahead(files, layout, memory, volume, *words):
    size = (files / layout).stat().st_size
    told = run(
        "plan", "sort", "--input", f"{size}b", "--memory", f"{memory}MiB", "--volume", files / f"{volume}.toml",
        *(["--record-bytes", "48"] if layout == "lines" else []), *LAYOUTS[layout], "--json", *words,
    )  # fmt: skip
    return json.loads(told.stdout)


def explained(files, layout, memory, volume, *words):
    run(
        "sort", files / layout, *LAYOUTS[layout], "--memory", f"{memory}MiB", "--volume", files / f"{volume}.toml",
        "--explain", "--report", files / "plan.json", "-o", files / "out", *words,
    )  # fmt: skip
    return json.loads((files / "plan.json").read_text())["plan"]


@pytest.mark.parametrize("volume", ["flash", "array", "slow"])
@pytest.mark.parametrize("memory", [8, 16, 100])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_plan_without_a_file_is_the_plan_of_the_file(files, layout, memory, volume):
    told, real = ahead(files, layout, memory, volume), explained(files, layout, memory, volume)
    plan = told["plan"]
    assert set(plan) == set(real)
    assert plan["input_bytes"] == real["input_bytes"]
    for one, other in zip([plan["chosen"], *plan["others"]], [real["chosen"], *real["others"]], strict=True):
        for field in ("method", "pieces", "factors", "merge_factor"):
            assert one[field] == other[field]
        for mine, its in zip(one["passes"], other["passes"], strict=True):
            for field in ("name", "times", "read_bytes", "written_bytes", "switches", "inputs", "outputs"):
                assert mine[field] == its[field], (mine, its)
            for field in ("device_seconds", "compute_seconds"):
                assert mine[field] == pytest.approx(its[field], rel=0.03)
    # A distribution also reads a sample of the keys: 8 places for each part.
    sample, passes = real["chosen"]["sample"], real["chosen"]["passes"]
    assert (sample is not None) == (real["chosen"]["method"] == "distribute")
    assert sample is None or sample["switches"] == 8 * real["chosen"]["pieces"]
    steps = [*passes, *([sample] if sample else [])]
    assert told["bytes"] == sum(one["read_bytes"] + one["written_bytes"] for one in steps)
    assert told["switches"] == sum(one["switches"] for one in steps)


def test_the_slower_of_volume_and_processors_counts(files):
    told, fast = ahead(files, "fixed:100", 8, "slow"), ahead(files, "fixed:100", 8, "array")
    assert told["host_measured"] and not fast["host_measured"]
    passes = told["plan"]["chosen"]["passes"]
    assert told["seconds"] == pytest.approx(sum(map(pass_seconds, passes)))
    assert any(one["compute_seconds"] > one["device_seconds"] for one in passes)
    assert told["seconds"] > 1.5 * fast["seconds"]


def moved(report, name, field):
    steps = [step for step in report["passes"] if step["name"] == name]
    return sum(stream[field] for step in steps for stream in step["streams"])


def test_merges_follow_the_factor_of_the_plan(files, disk):
    # Runs are as large as the memory: so many bytes need two levels of merges.
    run("gen", str(5 * SIZE // 200), "-o", disk / "in")
    words = [disk / "in", *LAYOUTS["fixed:100"], "--memory", "8MiB", "--method", "merge"]
    sort = ["sort", *words, "--temp", files, "--report", files / "run.json", "-o", files / "sorted"]
    run(*sort, "--volume", files / "array.toml")
    run("check", files / "sorted")
    report = json.loads((files / "run.json").read_text())
    way = report["plan"]["chosen"]
    factor = way["merge_factor"]
    assert factor and len(way["factors"]) >= 2 and max(way["factors"]) == factor < way["pieces"]
    assert math.prod(way["factors"]) >= way["pieces"], "the levels of the plan merge all runs"
    some, last = (next(step for step in report["passes"] if step["name"] == name) for name in ("merge some", "merge"))
    planned = next(one for one in way["passes"] if one["name"] == "merge some")
    assert some["inputs"] <= factor and last["inputs"] <= factor * 5 // 4
    assert abs(some["times"] - planned["times"]) <= 1
    # Blocks are read in long runs, with the switches of the plan, not one for each block.
    switches = moved(report, "merge", "read_runs") + moved(report, "merge", "written_runs")
    assert switches <= 1.10 * way["passes"][-1]["switches"]
    run(*sort, "--volume", files / "flash.toml")
    on_flash = json.loads((files / "run.json").read_text())
    assert on_flash["plan"]["chosen"]["merge_factor"] is None
    assert [step["name"] for step in on_flash["passes"]] == ["form runs", "merge"]
    assert switches < moved(on_flash, "merge", "read_runs") / 5


@pytest.mark.parametrize("method", ["merge", "distribute"])
def test_reading_and_writing_alternate_if_switches_cost_time(method, files, tmp_path):
    run("gen", "600k", "-o", tmp_path / "in")
    words = ["sort", tmp_path / "in", *LAYOUTS["fixed:100"], "--memory", "16MiB", "--method", method]
    switches = {}
    for volume in ("array", "flash"):
        run(*words, "--volume", files / f"{volume}.toml", "--report", tmp_path / "run.json", "-o", tmp_path / volume)
        report = json.loads((tmp_path / "run.json").read_text())
        switches[volume] = {step["name"]: step["switches"] for step in report["passes"]}
        if volume == "array":
            planned = {one["name"]: one["switches"] for one in report["plan"]["chosen"]["passes"]}
    assert (tmp_path / "array").read_bytes() == (tmp_path / "flash").read_bytes()
    name = {"merge": "form runs", "distribute": "sort parts"}[method]
    # Few runs are formed: one more is more than a tenth.
    assert switches["array"][name] <= max(1.10 * planned[name], planned[name] + 1), (switches, planned)
    assert switches["array"][name] < switches["flash"][name] / 2, switches


def test_merges_of_files_follow_the_factor(files):
    paths = []
    for number in range(40):
        paths.append(files / f"part-{number:02}")
        run("gen", "5k", "--start", str(5000 * number), "-o", paths[-1])
        run("sort", paths[-1], *LAYOUTS["fixed:100"], "-o", paths[-1])
    merge = ["merge", *paths, *LAYOUTS["fixed:100"], "--memory", "8MiB", "--report", files / "run.json"]
    run(*merge, "-o", files / "merged", "--volume", files / "array.toml")
    run("check", files / "merged")
    report = json.loads((files / "run.json").read_text())
    way = report["plan"]["chosen"]
    assert way["merge_factor"] and len(way["factors"]) >= 2, way
    assert all(step["inputs"] <= way["merge_factor"] * 5 // 4 for step in report["passes"])
    read = sum(stream["read_bytes"] for step in report["passes"] for stream in step["streams"])
    assert read == pytest.approx(sum(one["read_bytes"] for one in way["passes"]), rel=0.25)
    run(*merge, "-o", files / "merged-at-once", "--volume", files / "flash.toml")
    assert (files / "merged-at-once").read_bytes() == (files / "merged").read_bytes()


def test_a_refusal_names_the_memory_that_suffices(files):
    words = ["--input", "1GB", "--memory", "1MiB"]
    assert "8 MiB" in run("plan", "sort", *words, expect=2).stderr
    # A split takes more passes instead.
    split = ["split", files / "fixed:100", *LAYOUTS["fixed:100"], "--parts", "5000", "--explain", "--memory"]
    assert "in 3 passes" in run(*split, "8MiB", "-o", files / "p{}").stdout.decode()
    assert "in one pass" in run(*split, "1GiB", "-o", files / "p{}").stdout.decode()


def test_inputs_larger_than_any_disk_can_be_planned(files):
    words = ["plan", "sort", "--memory", "8MiB", "--volume", files / "array.toml", "--json"]
    most = json.loads(run(*words, "--input", "99PB").stdout)
    assert most["bytes"] > 1e18 and most["seconds"] > 1e8
    assert "can be computed" in run(*words, "--input", "1EB", expect=2).stderr


def test_rows_of_a_table_are_planned_with_their_file():
    assert "--format lines" in run("plan", "sort", "--input", "1GB", "--format", "csv", expect=2).stderr


def test_flags_without_effect_are_refused():
    size = ["--input", "1GB"]
    for words, told in [
        (["sort", *size, "--inputs", "3"], "--inputs does not apply to plan sort"),
        (["merge", *size, "--outputs", "3"], "--outputs does not apply to plan merge"),
        (["split", *size, "--inputs", "3"], "--inputs does not apply to plan split"),
        (["merge", *size, "--record-bytes", "3"], "--record-bytes does not apply to plan merge"),
        (["bowtie", *size], "--input does not apply to plan bowtie"),
        (["sort", *size, "--record-bytes", "3", "--format", "u64"], "determines the length"),
        (["sort", *size, "--record-bytes", "3M", "--memory", "8MiB"], "--memory 12MiB"),
        (["merge", *size, "--inputs", "100", "--most-streams", "2"], "minimum is --most-streams 3"),
        (["bowtie", "--inputs", "9", "--most-streams", "4"], "minimum is --most-streams 10"),
    ]:
        assert told in run("plan", *words, expect=2).stderr, words


def test_an_empty_plan_takes_no_time():
    for words in (["merge", "--inputs", "1"], ["split", "--outputs", "1"]):
        text = run("plan", *words, "--input", "1GB").stdout.decode()
        assert "in all    0 " in text and "-0" not in text, text
        told = run("plan", *words, "--input", "1GB", "--json").stdout.decode()
        assert "-0" not in told and json.loads(told)["seconds"] == 0
    words = ["--inputs", "1", "--outputs", "1", "--input", "1GB", "--by", "hash", "--json"]
    one = json.loads(run("plan", "reshape", *words).stdout)
    assert one["alternatives"] and all(other["seconds"] > 0 for other in one["alternatives"])


def test_fixed_requests_reshape_in_one_pass_if_they_fit():
    words = ["plan", "reshape", "--inputs", "20", "--outputs", "10", "--input", "1TB", "--by", "hash", "--json"]
    words += ["--memory"]

    def by_requests(memory):
        others = json.loads(run(*words, memory).stdout)["alternatives"]
        return next(other for other in others if "4 MB" in other["name"])

    assert by_requests("260MB")["passes"] == 1 and by_requests("260MB")["bytes"] == pytest.approx(2e12)
    assert by_requests("230MB")["passes"] == 2


MEASUREMENT = """
[measurement]
duplex = { value = 1e9, spread = 0.0 }
run_bytes = 262144
used_bytes = 4294967296
repeats = 5
seconds = 38.0
read = { rate = { value = 1.4e9, spread = 0.0 }, request_bytes = 4194304, depth = 16 }
write = { rate = { value = 1.2e9, spread = 0.0 }, request_bytes = 262144, depth = 4 }
read_switches = []
write_switches = []
"""


def explain(*words, **options):
    """The output of `--explain`, and the plan it writes."""
    told = run("sort", *words, "--explain", "--report", words[0].parent / "plan.json", **options).stdout.decode()
    return told, json.loads((words[0].parent / "plan.json").read_text())


def test_plans_note_that_they_assume_distinct_keys(files, disk):
    (disk / "in").write_bytes((files / "fixed:100").read_bytes())
    words = [disk / "in", *LAYOUTS["fixed:100"], "-o", disk / "out", "--memory", "8MiB"]
    told, plan = explain(*words, "-u")
    (notice,) = plan["notices"]
    assert "-u" in notice and notice in told
    assert explain(*words)[1]["notices"] == []


def test_requests_are_those_measured_within_memory(files, disk):
    (disk / "measured.toml").write_text(FLASH + MEASUREMENT)
    (disk / "plain.toml").write_text(FLASH)
    (disk / "in").write_bytes((files / "fixed:100").read_bytes())
    words = [disk / "in", *LAYOUTS["fixed:100"], "-o", disk / "out", "--temp", disk]
    _, plan = explain(*words, "--memory", "1GiB", "--volume", disk / "measured.toml")
    # Requests are at most a block, and the bytes in flight are the same as without a measurement.
    assert plan["requests"] == {"read": {"bytes": MIB, "depth": 64}, "write": {"bytes": MIB // 4, "depth": 32}}
    told, plan = explain(*words, "--memory", "16MiB", "--volume", disk / "measured.toml")
    assert all(plan["requests"][way] == {"bytes": MIB // 16, "depth": 32} for way in ("read", "write"))
    assert told.count("64 KiB, 32 in flight") == 2, told
    _, plan = explain(*words, "--memory", "1GiB", "--volume", disk / "plain.toml")
    assert plan["requests"] is None
    outputs = []
    for volume in ("measured", "plain"):
        run("sort", *words, "--memory", "16MiB", "--volume", disk / f"{volume}.toml")
        outputs.append((disk / "out").read_bytes())
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize(
    ("there", "instead", "field"),
    [
        ("value = 1.4e9", "value = -5.0", "measurement.read.rate.value"),
        ("4194304", "0", "measurement.read.request_bytes"),
        ("depth = 4", "depth = 0", "measurement.write.depth"),
        ("repeats = 5", "repeats = 0", "measurement.repeats"),
    ],
)
def test_impossible_measurements_are_refused_by_field(there, instead, field, tmp_path):
    (tmp_path / "bad.toml").write_text((FLASH + MEASUREMENT).replace(there, instead))
    words = ["plan", "sort", "--input", "1GB", "--volume", tmp_path / "bad.toml"]
    told = run(*words, expect=2).stderr
    assert "bad.toml" in told and field in told, told


STORE = """
name = "store"
read_bytes_per_s = 1.2e9
write_bytes_per_s = 1.0e9
switch_seconds = 0.03
most_request_bytes = 67108864
[prices]
read_request = 4e-7
write_request = 5e-6
"""


def test_every_pass_over_a_store_counts_its_requests(tmp_path):
    (tmp_path / "store.toml").write_text(STORE)
    for size, memory in [("8GB", "16GiB"), ("10TB", "32GiB"), ("10TB", "256MiB")]:
        words = ["--input", size, "--memory", memory, "--volume", tmp_path / "store.toml", "--json"]
        told = json.loads(run("plan", "sort", *words).stdout)
        assert told["money"] > 0
        for way in [told["plan"]["chosen"], *told["plan"]["others"]]:
            for one in way["passes"]:
                least = (one["read_bytes"] + one["written_bytes"]) / 67108864
                assert one["switches"] >= least, one
                assert one["device_seconds"] > 0.03 * least


def test_a_bowtie_over_a_store_is_as_fast_as_the_split_of_its_shape(tmp_path):
    (tmp_path / "store.toml").write_text(STORE)
    words = ["--outputs", "4", "--memory", "1GiB", "--volume", tmp_path / "store.toml", "--json"]
    bowtie = json.loads(run("plan", "bowtie", "--inputs", "1", *words).stdout)
    split = json.loads(run("plan", "split", "--input", "1TB", *words).stdout)
    assert bowtie["run_bytes"] <= 67108864
    assert bowtie["rate_bytes_per_s"] == pytest.approx(split["bytes"] / split["seconds"], rel=0.01)


@pytest.fixture
def elsewhere(disk):
    """A directory on another volume than the tests'."""
    shm = pathlib.Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == disk.stat().st_dev:
        pytest.skip("needs a second volume")
    directory = pathlib.Path(tempfile.mkdtemp(dir=shm))
    yield directory
    shutil.rmtree(directory)


def test_inputs_elsewhere_do_not_wait_for_writing(files, disk, elsewhere):
    """The first pass takes the time of its slower side; jobs of all kinds give the right result."""
    (elsewhere / "in").write_bytes((files / "fixed:100").read_bytes())
    array, fixed = files / "array.toml", LAYOUTS["fixed:100"]
    usual = ["--memory", "16MiB", "--temp", disk, "--volume", array]
    words = [elsewhere / "in", *fixed, "-o", disk / "out", *usual, "--method", "merge"]
    _, alone = explain(*words)
    told, apart = explain(*words, "--volume-in", array)
    assert "inputs   on an array" in told
    assert apart["input_volume"]["name"] == "an array"
    before, after = (plan["plan"]["chosen"]["passes"] for plan in (alone, apart))
    # Where reading does not wait for writing, a run has half of the memory, so that both go on all the time.
    assert 1.7 < after[0]["outputs"] / before[0]["outputs"] <= 2.5
    moving = after[0]["written_bytes"] / 3.549e9 + after[0]["outputs"] * 0.0155
    assert after[0]["device_seconds"] == pytest.approx(moving, rel=0.05)
    assert before[0]["device_seconds"] > 1.7 * (moving * before[0]["outputs"] / after[0]["outputs"])
    for method in ("merge", "distribute"):
        run("sort", *words[:-1], method, "--volume-in", array)
        run("check", disk / "out", *fixed)
    run("split", elsewhere / "in", *fixed, "--by", "hash", "--parts", "5", "-o", elsewhere / "part{}")
    parts = [elsewhere / f"part{number}" for number in range(5)]
    for part in parts:
        run("sort", part, *fixed, "-o", part)
    run("merge", *parts, *fixed, "-o", disk / "merged", *usual, "--volume-in", array)
    assert (disk / "merged").read_bytes() == (disk / "out").read_bytes()
    by_hash = ["--by", "hash", "--parts", "5", "-o", disk / "p{}", "--memory", "16MiB"]
    run("split", elsewhere / "in", *fixed, *by_hash, "--volume", array, "--volume-in", array)
    for number, part in enumerate(parts):
        run("sort", disk / f"p{number}", *fixed, "-o", disk / f"p{number}")
        assert (disk / f"p{number}").read_bytes() == part.read_bytes()


def test_inputs_must_be_on_another_volume(files, disk):
    array = files / "array.toml"
    words = [files / "fixed:100", *LAYOUTS["fixed:100"], "-o", disk / "out", "--volume-in", array]
    told = run("sort", *words, expect=2).stderr
    assert str(files / "fixed:100") in told and "(--volume)" in told, told
    assert not (disk / "out").exists()


def test_a_split_in_two_passes_explains_itself(files):
    words = ["--input", "1024GB", "--memory", "2GB", "--volume", files / "array.toml"]
    told = run("plan", "split", "--outputs", "512", *words).stdout.decode()
    assert re.search(r"pass 1    1 x (\d+) by a2, once.*pass 2    1 x \d+ by a2, \1 times", told, re.DOTALL), told
    assert "in one pass:" in told


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.parametrize("method", ["merge", "distribute"])
def test_a_job_makes_the_checkpoints_of_its_plan(method, disk):
    """Each of them replaces the manifest."""
    run("gen", "500k", "-o", disk / "in")
    words = ["sort", disk / "in", *LAYOUTS["fixed:100"], "--memory", "8MiB", "--method", method, "--temp", disk]
    words += ["-o", disk / "out", "--report", disk / "report.json"]
    traced = ["strace", "-f", "-e", "trace=rename", "-o", disk / "calls", ascot_binary(), *words]
    subprocess.run(traced, check=True, env=clean_environment(), timeout=120)
    made = (disk / "calls").read_text().count("manifest.json.new")
    told = json.loads((disk / "report.json").read_text())
    planned = sum(one["checkpoints"] for one in told["plan"]["chosen"]["passes"])
    assert abs(planned - made) <= 0.15 * made, (planned, made)
