"""A volume that wants long runs and is faster with reading and writing at once: both take turns there, because
otherwise each block costs two switches. Jobs take the switches of their plans in every pass."""

import json

import pytest
from support import FIXED, run, sorted_files

NETWORK = """name = "network"
read_bytes_per_s = 400e6
write_bytes_per_s = 300e6
duplex_bytes_per_s = 250e6
switch_seconds = 0.005
"""


@pytest.fixture
def network(tmp_path):
    (tmp_path / "network.toml").write_text(NETWORK)
    return tmp_path / "network.toml"


@pytest.fixture(scope="module")
def records(module_disk):
    run("gen", "1500k", "-o", module_disk / "in.rec")
    return module_disk / "in.rec"


def check_switches(report, names):
    planned = {one["name"]: one for one in report["plan"]["chosen"]["passes"]}
    taken = {step["name"]: step for step in report["passes"]}
    assert list(taken) == list(planned) == names
    for name, plan in planned.items():
        assert taken[name]["switches"] == pytest.approx(plan["switches"], rel=0.10), (name, plan, taken[name])
        # Without turns, every block is a switch.
        assert taken[name]["switches"] < plan["requests"] / 3, (name, plan, taken[name])


SORTS = {
    "merge": ["form runs", "merge"],
    "distribute": ["split", "sort parts"],
}


@pytest.mark.parametrize("method", SORTS)
def test_sorts_take_the_planned_switches(method, network, records, tmp_path):
    words = [records, *FIXED, "--memory", "16MiB", "--method", method, "--volume", network]
    run("sort", *words, "--report", tmp_path / "run.json", "-o", tmp_path / "out.rec")
    run("check", tmp_path / "out.rec")
    check_switches(json.loads((tmp_path / "run.json").read_text()), SORTS[method])


def test_splits_take_the_planned_switches(network, records, tmp_path):
    words = [records, *FIXED, "--by", "hash", "--parts", "8", "--memory", "16MiB", "--volume", network]
    run("split", *words, "--report", tmp_path / "run.json", "-o", tmp_path / "{:02}")
    check_switches(json.loads((tmp_path / "run.json").read_text()), ["split"])


def test_merges_and_views_take_the_planned_switches(network, tmp_path):
    files = sorted_files(tmp_path, [80_000] * 16)
    words = ["--memory", "16MiB", "--volume", network]
    run("merge", *files, *FIXED, *words, "--report", tmp_path / "run.json", "-o", tmp_path / "out.rec")
    check_switches(json.loads((tmp_path / "run.json").read_text()), ["merge"])
    run("merge", *files, *FIXED, "--view", tmp_path / "all.view")
    words = [tmp_path / "all.view", *words, "-o", tmp_path / "copy.rec"]
    told = run("view", *words, "--explain", "--report", tmp_path / "plan.json").stdout.decode()
    assert "reading and writing take turns" in told
    plan = json.loads((tmp_path / "plan.json").read_text())
    run("view", *words, "--report", tmp_path / "run.json")
    assert (tmp_path / "copy.rec").read_bytes() == (tmp_path / "out.rec").read_bytes()
    _, step = json.loads((tmp_path / "run.json").read_text())["passes"]
    assert plan["pass"]["switches"] == pytest.approx(step["switches"], rel=0.10), (plan["pass"], step)


def test_plans_count_no_overlap_where_reading_and_writing_take_turns(network, tmp_path):
    """With the rates of one direction after the other."""
    alone = tmp_path / "alone.toml"
    alone.write_text("".join(line for line in NETWORK.splitlines(True) if not line.startswith("duplex")))
    words = ["plan", "sort", "--input", "8GB", "--memory", "256MiB", "--json", "--volume"]
    both, alone = (json.loads(run(*words, volume).stdout) for volume in (network, alone))
    assert both["seconds"] == pytest.approx(alone["seconds"])
