"""`-u` and `--top` leave fewer bytes: merges follow the share that the first pass measures, as reported."""

import json
import random
from array import array

import numpy
import pytest
from support import job_directories, kill, run, start, stop_where

ARRAY = """name = "24 disks"
read_bytes_per_s = 3.549e9
write_bytes_per_s = 3.549e9
switch_seconds = 0.001
"""
NUMBERS = ["--format", "u64-le", "--method", "merge", "--memory", "8MiB", "--verbose"]
COUNT = 5_000_000


def numbers(disk, below, count=COUNT):
    """Numbers, equally likely ones below `below`; the different ones, sorted."""
    values = array("Q", random.Random(3).choices(range(below), k=count))
    (disk / "in").write_bytes(values.tobytes())
    (disk / "array.toml").write_text(ARRAY)
    return numpy.unique(numpy.frombuffer(values, "u8")).tobytes()


def sort(disk, *words):
    """The report of a sort of these numbers on an array."""
    words = [disk / "in", *NUMBERS, *words, "--volume", disk / "array.toml", "--temp", disk]
    done = run("sort", *map(str, words), "-o", disk / "out", "--report", disk / "run.json")
    return json.loads((disk / "run.json").read_text()), done.stderr


def moved(step, field):
    return sum(stream[field] for stream in step["streams"])


@pytest.mark.parametrize("below", [40_000, 400_000, 2_400_000])
def test_the_first_pass_predicts_what_is_left(below, disk):
    """From runs of a few MiB the job knows how much the merge of all of them leaves. If the share of runs were taken
    for that of the output, the last would be off by a factor of 1.9."""
    wanted = numbers(disk, below)
    report, told = sort(disk, "-u")
    assert (disk / "out").read_bytes() == wanted
    duplicates = report["duplicates"]
    assert duplicates["predicted_bytes"] == pytest.approx(len(wanted), rel=0.03)
    # Where records were dropped, blocks of runs are padded to whole pages: the device reads up to 15 percent more
    # bytes than there are records, which adds 0.15 alpha (1 - alpha) to its share.
    last = report["passes"][-1]
    read = moved(last, "read_bytes")
    assert duplicates["alpha"] == pytest.approx(read / (read + len(wanted)), abs=0.0375)
    first = duplicates["first_pass"]
    share = first["run_kept_bytes"] / first["run_read_bytes"]
    assert f"duplicates: sorted runs kept {100 * share:.0f} percent of their bytes" in told
    assert sort(disk)[0]["duplicates"] is None


def test_runs_of_equal_records_are_merged_in_more_passes(disk):
    """Passes in between cost little if their files shrink, so fewer files at once are faster than all of the plan."""
    wanted = numbers(disk, 150_000, 2 * COUNT)
    report, _ = sort(disk, "-u")
    assert (disk / "out").read_bytes() == wanted
    planned = report["plan"]["chosen"]
    assert planned["merge_factor"] is None and len(planned["passes"]) == 2
    assert [step["name"] for step in report["passes"]] == ["form runs", "merge some", "merge"]
    assert max(step["inputs"] for step in report["passes"]) < planned["pieces"] / 2
    assert [step["name"] for step in sort(disk)[0]["passes"]] == ["form runs", "merge"]


def test_a_resumed_job_knows_the_duplicates(disk):
    wanted = numbers(disk, 150_000)
    whole, _ = sort(disk, "-u")
    words = [disk / "in", *NUMBERS, "-u", "--volume", disk / "array.toml", "--temp", disk, "-o", disk / "out"]
    process = start("sort", *map(str, words))
    stop_where(process, disk, lambda manifest: manifest["all_read"])
    kill(process)
    run("sort", "--resume", str(job_directories(disk)[0]), "--report", str(disk / "run.json"))
    assert (disk / "out").read_bytes() == wanted
    # The two may cut the end of the input into runs at other places.
    resumed, whole = json.loads((disk / "run.json").read_text())["duplicates"], whole["duplicates"]
    assert resumed["first_pass"]["read_bytes"] == whole["first_pass"]["read_bytes"] == 8 * COUNT
    assert resumed["predicted_bytes"] == pytest.approx(len(wanted), rel=0.03)
    assert resumed["alpha"] == pytest.approx(whole["alpha"], abs=0.02)


def test_plans_of_top_count_the_records_that_merges_keep(disk):
    """Runs of 4 MiB keep 1 MB each; so does each merge of several, in the plan as in the job."""
    numbers(disk, 2**60)
    report, _ = sort(disk, "--top", "125000", "--batch-size", "5")
    planned = {one["name"]: one for one in report["plan"]["chosen"]["passes"]}
    assert (disk / "out").stat().st_size == 1_000_000
    for step in report["passes"]:
        plan = planned[step["name"]]
        for field in ("read_bytes", "written_bytes"):
            # The end of the input may make one run more, or one less.
            assert moved(step, field) == pytest.approx(plan[field], abs=1_100_000), (step["name"], field)
    assert planned["merge some"]["written_bytes"] < planned["merge some"]["read_bytes"] / 2
