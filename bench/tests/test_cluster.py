"""The page of clusters: ratios are of turns, and a figure that was asked is met or missed."""

from harness import cluster, cluster_page


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
    assert "2.50 (one run) | **missed**" in found["push: rate / Ray Data's"]
    assert "0.10 (one run) | **missed**" in found["push: rate / that of `ascot sort`"]
    assert "0.20 (one run) | **missed**" in found["push: sort and reduce / DiskBench"]
    # The shuffle over TCP, with 0.5 GB/s, is slower than the disk.
    limit = "the lower of DiskBench and the grouping TCP shuffle (asked of direct only)"
    shuffled = found[f"push: map and shuffle / {limit}"]
    assert "0.40 (one run) | **missed**" in shuffled


def test_skew_is_held_against_the_uniform_run_of_the_same_turn():
    names = ["uniform", "zipf", "uniform", "zipf"]
    runs = [{"job": name, "seconds": seconds} for name, seconds in zip(names, [1.0, 1.2, 5.0, 7.0], strict=True)]
    lines = cluster_page._asked({"skew": runs})
    assert any("zipf" in line and "1.30 (1.20 - 1.40) | met" in line for line in lines), lines


def test_only_data_larger_than_all_memory_is_held_against_one_process_that_spills():
    run = {"seconds": 10.0, "store_peak": 1, "spilled": 0, "memory_peak": 1}
    sizes = [
        {"size": 2, "alone": 1.0, "job": "push, direct", **run},
        {"size": 8, "alone": 4.0, "job": "push, direct", **run},
        {"size": 8, "alone": 4.0, "job": "pull", **run},
        {"size": 16, "alone": None, "job": "pull", **run},
    ]
    result = {"sizes": sizes, "memory": 1, "nodes": 4, "store": 1}
    lines = [line for line in cluster_page._asked(result) if "`ascot sort`" in line]
    assert [line.split(" | ", 1)[1] for line in lines] == [
        "at least 0.50 | 0.40 (one run) | **missed** |",
        "at least 0.30 | 0.40 (one run) | met |",
    ]
    assert len(cluster_page._sizes(result)) == 2 + len(sizes)


def test_settings_are_held_against_the_usual_ones_and_predictions_are_shown():
    runs = [{"job": "as it is", **sort(4.0)}, {"job": "ahead 1", **sort(5.0)}]
    runs.append({"job": "batch 16MiB", "error": "no memory"})
    phase = {"seconds": 422.3, "bound_by": "disks"}
    plan = {"overhead_seconds": 45, "seconds": 894.0, "phases": [phase, phase]}
    result = {"settings": {"runs": runs, "predicted": {"a sample of keys": plan}}}
    lines = "\n".join(cluster_page._settings(result))
    assert "| ahead 1 | 5.00 s | 1.25 | 400 MB/s (0.80) | 400 MB/s (0.80) |" in lines
    assert "| batch 16MiB | failed: no memory" in lines
    assert "| a sample of keys |  | 45 s | 422 s, disks | 422 s, disks | 894 s |" in cluster_page._predictions(result)
    # One gigabyte with two seconds of the nodes' processors; the driver does not count.
    phases = [{"name": "map and shuffle", "bytes": 10**9, "seconds": 3.0}]
    spent = {"map and shuffle": {"worker": 1.5, "writer": 0.5, "driver": 9.0}}
    names = ("as it is", "2 processors, spare_cores 1")
    rates = cluster.mapper_rates([{"job": name, "phases": phases, "phase_cpu": spent} for name in names])
    assert rates == {"as it is": 16e9, "2 processors, spare_cores 1": 15.5e9}
    result["settings"]["at_rates"] = {"as it is": {"mappers_bytes_per_s": 16e9, **plan}}
    line = "| as it is | 16.0 GB/s | 45 s | 422 s, disks | 422 s, disks | 894 s |"
    assert line in cluster_page._predictions(result)


def test_every_setting_has_values_that_the_package_takes():
    from ascot.cluster.settings import LIMITS, USUAL, Settings

    assert {*cluster.SETTINGS, "spare_cores"} == LIMITS.keys()
    for name, values in cluster.SETTINGS.items():
        assert len({getattr(one, name) for one in (USUAL, *(Settings(**{name: value}) for value in values))}) == 4
