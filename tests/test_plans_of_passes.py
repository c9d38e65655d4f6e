"""Plans of jobs in several passes: those that the jobs carry out, also where data grows or shrinks in a pass."""

import json
import math

import pytest
from support import FIXED, run, sorted_files


@pytest.fixture(scope="module")
def array(tmp_path_factory):
    """A profile of the array."""

    def profile():
        path = tmp_path_factory.mktemp("profile") / "array.toml"
        rates = 'name = "24 disks"\nread_bytes_per_s = 3.549e9\nwrite_bytes_per_s = 3.549e9\n'
        path.write_text(f"{rates}switch_seconds = 0.0155\n")
        return path

    return profile


def plan(*words):
    return json.loads(run("plan", *map(str, words), "--json").stdout)


def test_a_reshape_is_planned_as_the_job_does_it(array):
    words = ["--inputs", 64, "--outputs", 16, "--input", "64GB", "--memory", "1GiB", "--volume", array()]
    by_range = plan("reshape", *words)
    assert all(one["outputs"] == 1 for one in by_range["passes"]), "n x 1"
    merge = plan("merge", *words[:2], *words[4:])["passes"]
    assert by_range["passes"][:-1] == merge[:-1]
    # Fifteen files are written after the first.
    for figure, more in [("read_bytes", 0), ("written_bytes", 0), ("switches", 15), ("seconds", 15 * 0.0155)]:
        assert by_range["passes"][-1][figure] == pytest.approx(merge[-1][figure] + more), figure
    by_hash = plan("reshape", *words, "--by", "hash")
    assert [(one["inputs"], one["outputs"], one["bowties"]) for one in by_hash["passes"]] == [(64, 16, 1)]
    told = run("plan", "reshape", "--inputs", "9000", "--outputs", "9000", "--input", "1TB", "--by", "value",
               "--memory", "64MiB", expect=2).stderr  # fmt: skip
    assert "9000 inputs and 9000 outputs at once" in told


def test_the_plan_of_a_reshape_by_hash_names_the_schedule_of_the_job(array, tmp_path):
    """A5: a merge consumes its inputs unevenly, which the formulas, by which A6w would be best, do not know."""
    files = sorted_files(tmp_path, [20_000] * 16)
    usual = ["--memory", "8MiB", "--volume", array()]
    told = plan("reshape", "--inputs", 16, "--outputs", 4, "--input", "32MB", "--by", "hash", *usual)
    words = ["reshape", *files, *FIXED, "--by", "hash", "--parts", 4, *usual, "-o", tmp_path / "out-{}"]
    run(*map(str, [*words, "--report", tmp_path / "run.json"]))
    report = json.loads((tmp_path / "run.json").read_text())
    [one], [step] = told["passes"], report["passes"]
    assert f"by {one['schedule'].upper()}" in report["plan"]["chosen"]["summary"], (told, report["plan"])
    assert one["switches"] == report["plan"]["chosen"]["passes"][0]["switches"]
    assert one["run_bytes"] == pytest.approx((one["read_bytes"] + one["written_bytes"]) / one["switches"])
    assert (step["inputs"], step["outputs"]) == (one["inputs"], one["outputs"])
    # Its inputs and files must be moved at once.
    assert "two files at a time" not in [other["name"] for other in told["alternatives"]]


def test_early_merges_are_planned_as_the_job_does_them(tmp_path):
    """The last merge has the facts about the blocks of all runs in memory, so it takes fewer runs than the first
    could. A plan without them has half of the early merges here."""
    run("gen", "3000k", "-o", tmp_path / "in")
    words = ["sort", tmp_path / "in", *FIXED, "--memory", "8MiB", "--method", "merge", "-o", tmp_path / "out"]
    run(*map(str, [*words, "--temp", tmp_path, "--report", tmp_path / "run.json"]))
    report = json.loads((tmp_path / "run.json").read_text())
    planned = {one["name"]: one for one in report["plan"]["chosen"]["passes"]}
    for step in report["passes"]:
        written = sum(stream["written_bytes"] for stream in step["streams"])
        assert planned[step["name"]]["written_bytes"] == pytest.approx(written, rel=0.03, abs=0.02 * 300e6)


@pytest.mark.parametrize("records, memory", [(640_000, "8MiB"), (640_000, "16MiB"), (900_000, "24MiB")])
def test_files_as_large_as_memory_are_split_with_the_switches_of_the_plan(records, memory, array, disk):
    """Files differ by a part, and by the error of the sample; a file that is larger than memory takes about twice the
    runs. A plan for equal files has 1.7 times the switches of the second pass."""
    run("gen", str(records), "-o", disk / "in")
    words = ["sort", disk / "in", *FIXED, "--method", "distribute", "--memory", memory, "--volume", array()]
    run(*map(str, [*words, "-o", disk / "out", "--report", disk / "run.json"]))
    report = json.loads((disk / "run.json").read_text())
    planned = {one["name"]: one["switches"] for one in report["plan"]["chosen"]["passes"]}
    taken = {step["name"]: step["switches"] for step in report["passes"]}
    assert list(planned) == list(taken) == ["split some", "split", "sort parts"]
    for name, switches in taken.items():
        assert abs(planned[name] - switches) <= max(0.10 * planned[name], 3), (name, planned, taken)
    assert sum(planned.values()) == pytest.approx(sum(taken.values()), rel=0.10)


@pytest.mark.long
def test_data_of_many_times_the_memory_are_sorted_as_planned(disk):
    """The facts about small blocks of 5 GB take more than 8 MiB, those of larger blocks most of it."""
    run("gen", "50M", "-o", disk / "in")
    for method in ("auto", "merge"):
        words = ["sort", disk / "in", *FIXED, "--memory", "8MiB", "--method", method, "-o", disk / "out"]
        run(*words, "--report", disk / "run.json", timeout=600)
        checked = run("check", disk / "out", *FIXED).stdout.decode()
        assert "Records: 50000000\n" in checked and checked.endswith("SUCCESS - all records are in order\n")
        report = json.loads((disk / "run.json").read_text())
        planned = sum(one["written_bytes"] for one in report["plan"]["chosen"]["passes"])
        written = sum(stream["written_bytes"] for step in report["passes"] for stream in step["streams"])
        assert written == pytest.approx(planned, rel=0.05)
        (disk / "out").unlink()


# Ends, memory and bytes.
COMPARED = [
    (["merge", "--inputs", 64], "256MiB", "16GB"),
    (["merge", "--inputs", 100], "1GiB", "1GB"),
    (["merge", "--inputs", 512], "1GiB", "64GB"),
    (["split", "--outputs", 16], "64MiB", "4GB"),
    (["split", "--outputs", 200], "256MiB", "1GB"),
    (["reshape", "--by", "hash", "--inputs", 64, "--outputs", 16], "256MiB", "8GB"),
]


@pytest.mark.parametrize("kind", ["array", "flash"])
@pytest.mark.parametrize("words, memory, size", COMPARED)
def test_alternatives_have_the_costs_of_the_plan(words, memory, size, kind, array):
    """So none is faster. By the formulas, which know no blocks and no ends, equal parts took 0.6 times a plan
    for a merge of 100 files, and requests of 4 MB on flash 0.8 times."""
    volume = array() if kind == "array" else kind
    told = plan(*words, "--input", size, "--memory", memory, "--volume", volume)
    others = {other["name"]: other for other in told["alternatives"]}
    assert "with equal parts of memory" in others and len(others) >= 2
    for other in others.values():
        assert other["seconds"] is None or other["seconds"] >= 0.99 * told["seconds"], (told["passes"], other)


@pytest.mark.parametrize("inputs, memory, sizes", [(16, "64MiB", ["8GB", "64GB"]), (40, "256MiB", ["32GB", "256GB"])])
def test_switches_of_long_passes_are_those_of_short_ones(inputs, memory, sizes, array):
    """A pass of more blocks than a plan simulates: eight times the bytes take about eight times the switches. By the
    formula for whole groups and blocks without size, they would be a tenth fewer."""
    usual = ["merge", "--inputs", inputs, "--memory", memory, "--volume", array()]
    short, long = (plan(*usual, "--input", size)["passes"] for size in sizes)
    assert [one["inputs"] for one in short] == [one["inputs"] for one in long]
    for less, more in zip(short, long, strict=True):
        assert more["switches"] == pytest.approx(8 * less["switches"], rel=0.05)


def test_growth_by_pass_is_in_every_pass(array):
    words = ["merge", "--inputs", 512, "--input", "1024GB", "--memory", "2GB", "--volume", array()]
    told = plan(*words, "--growth", "0.5")
    before = 1024e9
    for one in told["passes"]:
        assert one["read_bytes"] == pytest.approx(before)
        assert one["written_bytes"] == pytest.approx(before / 2)
        before /= 2
    assert len(told["passes"]) >= 2
    assert told["bytes"] == pytest.approx(sum(one["read_bytes"] + one["written_bytes"] for one in told["passes"]))
    usual = plan(*words, "--growth", "1")
    assert told["seconds"] < usual["seconds"]
    # The first pass has more bytes than the others: it merges fewer files at a time.
    factors = [one["inputs"] for one in told["passes"]]
    assert factors == sorted(factors) and factors[0] < factors[-1], factors
    first = plan(*words, "--growth", "0.1,1")["passes"]
    assert [round(one["read_bytes"] / 1e9, 1) for one in first] == [1024.0, *[102.4] * (len(first) - 1)]
    assert "to 512 GB" in run("plan", *map(str, words), "--growth", "0.5").stdout.decode()


def test_growth_by_files_is_the_paper_s(array):
    """By hand: of 512 files with 1024 GB, 23 have the share at the logarithm between 1 and 512 files."""
    words = ["merge", "--inputs", 512, "--input", "1024GB", "--memory", "2GB", "--volume", array()]
    told = plan(*words, "--growth", "1:0.1")
    *early, last = told["passes"]
    assert last["written_bytes"] == pytest.approx(102.4e9)
    for one, after in zip(early, told["passes"][1:], strict=True):
        assert one["written_bytes"] == pytest.approx(after["read_bytes"])
    share = 0.1 + 0.9 * math.log(512 / math.prod(one["inputs"] for one in early)) / math.log(512)
    assert last["read_bytes"] == pytest.approx(1024e9 * share, rel=0.02)
    split = plan("split", "--outputs", 512, *words[3:], "--growth", "512:3")
    assert split["passes"][-1]["written_bytes"] == pytest.approx(3 * 1024e9)
    assert split["passes"][0]["read_bytes"] == pytest.approx(1024e9)
    middle = plan("reshape", "--outputs", 512, *words[1:], "--growth", "1:0.5", "--growth-out", "512:2")
    assert middle["passes"][-1]["written_bytes"] == pytest.approx(1024e9)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["merge", "--growth", "0"], "is not a share"),
        (["merge", "--growth", "x"], "is not a share"),
        (["merge", "--growth", "1:0.5,0.9"], "mixes shares"),
        (["merge", "--growth", "9:0.5,3:0.9"], "must ascend"),
        (["merge", "--growth-out", "0.5"], "--growth-out does not apply to plan merge"),
        (["reshape", "--growth", "0.5"], "by number of files"),
        (["sort", "--growth", "0.5"], "--growth does not apply to plan sort"),
        (["merge", "--growth", "0.5", "--alpha", "0.5"], "--alpha cannot be combined"),
        (["split", "--by", "hash"], "--by does not apply to plan split"),
        (["reshape", "--by", "hash", "--alpha", "0.4"], "--by cannot be combined"),
    ],
)
def test_impossible_growths_are_refused(words, told):
    assert told in run("plan", *words, "--input", "1GB", expect=2).stderr
