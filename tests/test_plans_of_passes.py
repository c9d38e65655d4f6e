"""Plans of jobs in several passes: those that the jobs carry out, also where data grows or shrinks in a pass."""

import json
import math

import pytest
from support import run


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
    assert by_range["passes"] == plan("merge", *words[:2], *words[4:])["passes"]
    by_hash = plan("reshape", *words, "--by", "hash")
    assert [(one["inputs"], one["outputs"], one["bowties"]) for one in by_hash["passes"]] == [(64, 16, 1)]
    told = run("plan", "reshape", "--inputs", "9000", "--outputs", "9000", "--input", "1TB", "--by", "value",
               "--memory", "64MiB", expect=2).stderr  # fmt: skip
    assert "9000 inputs and 9000 outputs at once" in told


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
