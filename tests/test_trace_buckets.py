"""The buckets of a job's bowties: recorded with `--trace`, counted, cut, exported, and drawn beside the staircase."""

import csv
import io
from collections import defaultdict

import pytest
from page_browser import opened
from support import census, random_records, run

FIXED = ["--format", "fixed:100", "--key", "0..10", "--memory", "8MiB"]

# Switches cost much: jobs keep the staircase of the theory.
ARRAY = """name = "disks"
read_bytes_per_s = 3.549e9
write_bytes_per_s = 3.549e9
switch_seconds = 0.001
"""


def rows(trace):
    text = run("trace", "export", trace, "--buckets", "-").stdout.decode()
    return list(csv.DictReader(io.StringIO(text)))


def turns(trace):
    """The rows of each turn."""
    by_turn = defaultdict(list)
    for row in rows(trace):
        by_turn[int(row["turn"])].append(row)
    return [by_turn[turn] for turn in sorted(by_turn)]


@pytest.fixture(scope="module")
def split_trace(tmp_path_factory):
    """A split into 12 parts, on a volume where switches cost much."""
    disk = tmp_path_factory.mktemp("split")
    (disk / "array.toml").write_text(ARRAY)
    (disk / "in").write_bytes(random_records(400_000))
    run("split", disk / "in", *FIXED, "--by", "hash", "--parts", "12", "--volume", disk / "array.toml",
        "-o", disk / "part-{}", "--trace", disk / "split.trace")  # fmt: skip
    for part in disk.glob("part-*"):
        part.unlink()
    (disk / "in").unlink()
    return disk / "split.trace"


def test_the_buckets_of_a_split_are_near_the_staircase(split_trace):
    """Equal parts would be 0.33 away or more (ascot-bowtie/tests/staircase.rs)."""
    [split] = census(split_trace)["bowties"]
    assert (split["name"], split["inputs"], split["outputs"]) == ("split", 0, 12)
    assert split["largest_bucket_bytes"] < split["peak_bytes"] <= 8 << 20
    distance = split["output_distance"]
    assert distance["turns"] > 10 and distance["mean"] < 0.2, distance
    told = run("trace", "show", split_trace).stdout.decode()
    assert f"outputs {distance['mean'] * 100:.0f}%" in told and "0 x 12" in told


def test_the_csv_has_the_buckets_that_the_census_counts(split_trace):
    [split] = census(split_trace)["bowties"]
    every = turns(split_trace)
    assert len(every) == split["turns"]
    held = [[int(row["bytes"]) for row in turn] for turn in every]
    assert max(map(sum, held)) == split["peak_bytes"] and max(map(max, held)) == split["largest_bucket_bytes"]
    assert {row["stream"] for row in every[0]} == {f"output {k}" for k in range(12)}
    for turn in every:
        assert sum(int(row["next"]) for row in turn) <= 1
        by_size = sorted(turn, key=lambda row: -int(row["bytes"]))
        predicted = [int(row["predicted_bytes"]) for row in by_size]
        assert predicted == sorted(predicted, reverse=True), "the fullest bucket stands beside the largest size"
    # The mean distance follows from the rows, where the buckets hold nine tenths of the memory.
    sizes = [[int(row["predicted_bytes"]) for row in turn] for turn in every]
    far = [
        sum(abs(a - b) for a, b in zip(now, size, strict=True)) / sum(size)
        for now, size in zip(held, sizes, strict=True)
        if sum(now) >= 0.9 * sum(size)
    ]
    assert split["output_distance"]["mean"] == pytest.approx(sum(far) / len(far), rel=0.001)


def test_a_cut_keeps_the_turns_of_its_range(split_trace, disk):
    every = rows(split_trace)
    times = sorted({int(row["time_ns"]) for row in every})
    middle = times[len(times) // 2]
    run("trace", "cut", split_trace, "--from", f"{middle / 1e9}s", "-o", disk / "late")
    late = [row for row in every if int(row["time_ns"]) >= middle]
    kept = rows(disk / "late")
    moved = {row["time_ns"]: str(int(row["time_ns"]) - middle) for row in late}
    assert [(row["time_ns"], row["stream"], row["bytes"]) for row in kept] == [
        (moved[row["time_ns"]], row["stream"], row["bytes"]) for row in late
    ]


def test_merges_reshapes_and_flows_record_buckets_too(disk):
    (disk / "array.toml").write_text(ARRAY)
    (disk / "in").write_bytes(random_records(200_000))
    volume = ["--volume", disk / "array.toml"]
    run("sort", disk / "in", *FIXED, *volume, "--method", "merge", "--temp", disk, "-o", disk / "out",
        "--trace", disk / "sort.trace")  # fmt: skip
    [merge] = census(disk / "sort.trace")["bowties"]
    assert merge["name"] == "merge" and merge["inputs"] > 2 and merge["input_distance"]["turns"] > 0
    run("split", disk / "out", *FIXED, *volume, "--by", "range", "--parts", "4", "-o", disk / "part-{}")
    parts = sorted(disk.glob("part-*"))
    run("reshape", *parts, "--format", "fixed:100", "--key", "0..10", "--memory", "8MiB", *volume, "--by", "hash",
        "--parts", "3", "-o", disk / "other-{}", "--trace", disk / "reshape.trace")  # fmt: skip
    [reshape] = census(disk / "reshape.trace")["bowties"]
    assert (reshape["name"], reshape["inputs"], reshape["outputs"]) == ("reshape", 4, 3)
    # Where switches cost nothing, a job keeps no staircase, and says so.
    run("sort", disk / "in", *FIXED, "--volume", "flash", "--method", "merge", "--temp", disk, "-o", disk / "out",
        "--trace", disk / "flash.trace")  # fmt: skip
    [merge] = census(disk / "flash.trace")["bowties"]
    assert merge["turns"] > 0 and merge["input_distance"]["turns"] == 0
    assert "keeps none" in run("trace", "show", disk / "flash.trace").stdout.decode()


def test_a_trace_without_bowties_has_no_buckets(disk):
    (disk / "in").write_bytes(random_records(100))
    run("sort", disk / "in", *FIXED, "-o", disk / "out", "--trace", disk / "run.trace")
    told = run("trace", "export", disk / "run.trace", "--buckets", disk / "csv", expect=2).stderr
    assert "has no buckets" in told and not (disk / "csv").exists()


def table(shown, identifier):
    of_row = "(row) => [...row.cells].map((cell) => cell.textContent)"
    return shown.run(f"[...document.querySelectorAll('#{identifier} tbody tr')].map({of_row})")


def number(text):
    value, unit = text.split()
    return float(value) * 1000 ** ["B", "kB", "MB", "GB"].index(unit)


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_draws_the_buckets_of_the_chosen_turn(split_trace, disk, dark):
    run("trace", "plot", split_trace, "-o", disk / "page.html")
    every = turns(split_trace)
    with opened(disk / "page.html", dark=dark) as shown:
        at = len(every) // 2
        for moved in range(2):
            turn = sorted(every[at + moved], key=lambda row: -int(row["bytes"]))
            seen = table(shown, "streams-0")
            assert [number(row[1]) for row in seen] == pytest.approx([int(row["bytes"]) for row in turn], rel=1e-3)
            assert [number(row[3]) for row in seen] == pytest.approx(
                [int(row["predicted_bytes"]) for row in turn], rel=1e-3, abs=1
            )
            text = shown.run("document.getElementById('buckets-state-0').textContent")
            assert text.startswith(f"Turn {at + moved + 1} at "), text
            shown.run("document.getElementById('turn-0').focus()")
            shown.press("ArrowRight")
        # Bars and the staircase: the colours of outputs and of the line are there.
        drawn = shown.run(
            """(() => {
                const canvas = document.getElementById('staircase-0'), {width, height} = canvas;
                const data = new Uint32Array(
                    canvas.getContext('2d').getImageData(0, 0, width, height).data.buffer);
                const counts = {};
                for (const word of data) counts[word & 0xffffff] = (counts[word & 0xffffff] || 0) + 1;
                return counts;
            })()"""
        )
        style = shown.run(
            "['--write', '--text'].map((name) => "
            "getComputedStyle(document.documentElement).getPropertyValue(name).trim())"
        )
        for text in style:
            assert drawn.get(str(int(text[5:7] + text[3:5] + text[1:3], 16)), 0) > 100, (text, len(drawn))
        names = dict(shown.accessible())
        assert names.get("slider") == "Turn" and names.get("combobox") == "Bowtie", names
