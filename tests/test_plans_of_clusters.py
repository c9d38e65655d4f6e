"""`ascot plan cluster`: phases, bottlenecks, time and cost of a sort on a cluster, and the cheapest cluster."""

import json

import pytest
from support import run

NODE = """
name = "small"
usd_per_hour = 1.0
cores = 4
memory_bytes = 16e9
data_disk_bytes = 4e12
disks = { bytes_per_s = 5e8, deviation = 1e7 }
[[network]]
peers = 4
connections = 1
bytes_per_s = 3e8
"""


def plan(disk, *words, expect=0):
    (disk / "node.toml").write_text(NODE)
    done = run("plan", "cluster", "--input", "10TB", *words, cwd=disk, expect=expect)
    return done.stderr if expect else json.loads(done.stdout)


def test_the_slowest_stage_binds_a_phase(disk):
    words = ["--nodes", "10", "--node-type", "node.toml", "--uniform", "--json"]
    measured = plan(disk, *words)
    shuffle, reduce = measured["phases"]
    assert (shuffle["bound_by"], reduce["bound_by"]) == ("network", "disks")
    # 1 TB a node; the slowest of ten disks has 1.54 deviations less than the mean, and 4 GB are a partition.
    assert shuffle["seconds"] >= 1e12 / 3e8
    assert reduce["seconds"] == pytest.approx(1.004e12 / (5e8 - 1.54 * 1e7), rel=0.002)
    assert measured["seconds"] == pytest.approx(2 + shuffle["seconds"] + reduce["seconds"])
    assert measured["usd"] == pytest.approx(10 * measured["seconds"] / 3600)
    unbound = plan(disk, *words, "--network", "infinite")
    assert unbound["phases"][0]["bound_by"] == "disks" and unbound["seconds"] < measured["seconds"]
    linear = plan(disk, *words, "--network", "linear")
    assert linear["phases"][0]["seconds"] == pytest.approx(1e12 / 3e8)


def test_the_cheapest_cluster_meets_its_deadline(disk):
    words = ["--node-type", "node.toml", "--json"]
    found = plan(disk, "--cheapest", "--within", "2h", *words)["plan"]
    assert found["seconds"] <= 7200
    for nodes in range(8, 200):
        other = plan(disk, "--nodes", str(nodes), *words)
        assert other["seconds"] > 7200 or other["usd"] >= found["usd"]
    told = plan(disk, "--cheapest", "--within", "1s", *words, expect=2)
    assert "no cluster of up to 1000 nodes meets the deadline: small takes at least" in told
    several = plan(disk, "--cheapest", "--json")
    assert {several["plan"]["node_type"], *(other["node_type"] for other in several["others"])} == {
        "gce-n1-standard-32",
        "ec2-i2.8xlarge",
    }


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--nodes", "3", "--node-type", "node.toml"], "at least 8 nodes are needed"),
        (["--node-type", "node.toml"], "the number of nodes is missing"),
        (["--nodes", "9"], "a plan needs one type of nodes"),
        (["--nodes", "9", "--node-type", "other.toml"], "there is no file and no node type other.toml"),
        (["--nodes", "9", "--node-type", "node.toml", "--within", "1h"], "give --cheapest, too"),
        (["--cheapest", "--within", "soon"], "--within 'soon' is not a time"),
        (["--nodes", "9", "--node-type", "node.toml", "--memory", "1GiB"], "--memory does not apply"),
        (["--nodes", "0", "--node-type", "node.toml"], "--nodes 0 is not a number of nodes\n  give at least 1"),
        (["--nodes", "0", "--cheapest"], "--nodes 0 is not a number of nodes\n  give at least 1"),
        (["--nodes", "9", "--node-type", "node.toml", "--connections", "0"], "--connections 0 is not a number of"),
    ],
)
def test_what_cannot_be_planned_is_refused(words, told, disk):
    assert told in plan(disk, *words, expect=2)


def test_flags_of_clusters_belong_to_clusters(disk):
    told = run("plan", "sort", "--input", "8TB", "--nodes", "3", cwd=disk, expect=2).stderr
    assert "--nodes does not apply to plan sort" in told
