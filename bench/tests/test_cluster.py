"""The page of clusters: ratios are of turns, and a figure that was asked is met or missed."""

from harness import cluster_page


def sort(seconds):
    share = {"seconds": seconds / 2, "bytes": 1_000_000_000, "nodes": []}
    phases = [{"name": name, **share} for name in cluster_page.PHASES]
    return {"seconds": seconds, "phases": phases}


def turn(push, peer, one):
    disk = {"map-and-shuffle": 1e9, "sort-and-reduce": 1e9}
    programs = {"push": sort(push), "Ray Data": {"seconds": peer}, "Spark": {"error": "no Java"}}
    return {**programs, "one process": {"seconds": one}, "TCP, group": {"seconds": 2.0}, "disk": disk}


def asked(turns):
    lines = cluster_page._asked({"size": 1_000_000_000, "sorts": {"variants": ["push"], "turns": turns}})
    return {line.split("|")[1].strip(): line for line in lines[2:]}


def test_ratios_are_taken_within_turns():
    # The second turn is slow for all: medians of times would make the ratio 2.
    found = asked([turn(2.0, 8.0, 1.0), turn(20.0, 80.0, 10.0), turn(2.0, 8.0, 1.0)])
    assert "4.00 (4.00 - 4.00) | met" in found["push: rate / Ray Data's"]
    assert "0.50 (0.50 - 0.50) | met" in found["push: rate / that of `ascot sort`"]
    assert "not measured" in found["push: rate / Spark's"]


def test_what_is_too_slow_is_missed():
    found = asked([turn(10.0, 25.0, 1.0)])
    assert "2.50 (2.50 - 2.50) | **missed**" in found["push: rate / Ray Data's"]
    assert "0.10 (0.10 - 0.10) | **missed**" in found["push: rate / that of `ascot sort`"]
    assert "0.20 (0.20 - 0.20) | **missed**" in found["push: sort and reduce / DiskBench"]
    # The shuffle over TCP, with 0.5 GB/s, is slower than the disk.
    limit = "the lower of DiskBench and the grouping TCP shuffle (asked of direct only)"
    shuffled = found[f"push: map and shuffle / {limit}"]
    assert "0.40 (0.40 - 0.40) | **missed**" in shuffled


def test_skew_is_held_against_the_uniform_run_of_the_same_turn():
    names = ["uniform", "zipf", "uniform", "zipf"]
    runs = [{"job": name, "seconds": seconds} for name, seconds in zip(names, [1.0, 1.2, 5.0, 7.0], strict=True)]
    lines = cluster_page._asked({"skew": runs})
    assert any("zipf" in line and "1.30 (1.20 - 1.40) | met" in line for line in lines), lines
