"""The Python package: plans without files, simulations and measurements have the figures of the command."""

import json
import re
import signal
import subprocess
import sys
import textwrap
import time
import tomllib
from pathlib import Path

import ascot
import pytest
from ascot import errors
from ascot.wording import in_python
from support import assert_acts_within_200_ms, leftovers, run, small_disk
from test_plans_of_clusters import NODE

FLASH = {"volume": "flash"}


def by_command(*words):
    return json.loads(run(*words, "--json").stdout)


PLANS = [
    (
        lambda: ascot.plan.bowtie(inputs=3, outputs=100, memory="16GiB", **FLASH),
        "bowtie --inputs 3 --outputs 100 --memory 16GiB",
    ),
    (
        lambda: ascot.plan.bowtie(8, 1, alpha=0.7, memory=1 << 28, most_streams=9, **FLASH),
        "bowtie --inputs 8 --alpha 0.7 --memory 256MiB --most-streams 9",
    ),
    (lambda: ascot.plan.merge(inputs=8000, size="64TB", **FLASH), "merge --inputs 8000 --input 64TB"),
    (
        lambda: ascot.plan.merge(inputs=90, size="1TB", growth=0.8, memory="64MiB", **FLASH),
        "merge --inputs 90 --input 1TB --growth 0.8 --memory 64MiB",
    ),
    (
        lambda: ascot.plan.split(size="1TB", parts=500, most_streams=40, **FLASH),
        "split --outputs 500 --input 1TB --most-streams 40",
    ),
    (
        lambda: ascot.plan.reshape(inputs=512, parts=64, size=2 * 10**12, memory="2GiB", **FLASH),
        "reshape --inputs 512 --outputs 64 --input 2TB --memory 2GiB",
    ),
    (
        lambda: ascot.plan.reshape(inputs=5, parts=6, size="2TB", by="hash", **FLASH),
        "reshape --inputs 5 --outputs 6 --input 2TB --by hash",
    ),
    (
        lambda: ascot.plan.reshape(
            inputs=51, parts=64, size="2TB", growth="1:0.3,50:0.8", growth_out="1:0.9,9:1", **FLASH
        ),
        "reshape --inputs 51 --outputs 64 --input 2TB --growth 1:0.3,50:0.8 --growth-out 1:0.9,9:1",
    ),
    (lambda: ascot.plan.sort(size="8TB", memory="4GiB", **FLASH), "sort --input 8TB --memory 4GiB"),
    (
        lambda: ascot.plan.sort(size="1TB", layout=ascot.Lines(), record_bytes=60, key=2, **FLASH),
        "sort --input 1TB --format lines --record-bytes 60 -k 2",
    ),
    (
        lambda: ascot.plan.sort(size="20GB", layout="u64", volume="rotational"),
        "sort --input 20GB --format u64 --volume rotational",
    ),
]


@pytest.mark.parametrize(("planned", "words"), PLANS, ids=[words for _, words in PLANS])
def test_plans_are_those_of_the_command(planned, words):
    volume = [] if "--volume" in words else ["--volume", "flash"]
    plan = planned()
    assert plan.data == by_command("plan", *words.split(), *volume)
    assert str(plan) == in_python(run("plan", *words.split(), *volume).stdout.decode())
    assert "<table>" in plan._repr_html_()


CLUSTERS = [
    (
        lambda: ascot.plan.cluster("100TB", nodes=296, node_type="gce-n1-standard-32", uniform=True),
        "--nodes 296 --node-type gce-n1-standard-32 --uniform",
    ),
    (
        lambda: ascot.plan.cluster(
            100 * 10**12, nodes=100, node_type="ec2-i2.8xlarge", network="linear", connections=4
        ),
        "--nodes 100 --node-type ec2-i2.8xlarge --network linear --connections 4",
    ),
    (lambda: ascot.plan.cheapest_cluster("100TB", within=1200), "--cheapest --within 20min"),
    (
        lambda: ascot.plan.cheapest_cluster("100TB", node_types="ec2-i2.8xlarge", most_nodes=200, network="infinite"),
        "--cheapest --node-type ec2-i2.8xlarge --nodes 200 --network infinite",
    ),
]


@pytest.mark.parametrize(("planned", "words"), CLUSTERS, ids=[words for _, words in CLUSTERS])
def test_plans_of_clusters_are_those_of_the_command(planned, words):
    plan = planned()
    words = ["plan", "cluster", "--input", "100TB", *words.split()]
    assert plan.data == by_command(*words)
    assert str(plan) == run(*words).stdout.decode()
    assert "<table>" in plan._repr_html_()
    chosen = getattr(plan, "plan", plan)
    assert chosen.seconds == pytest.approx(chosen.overhead_seconds + sum(phase.seconds for phase in chosen.phases))


def test_a_file_describes_a_type_of_nodes(disk):
    (disk / "node.toml").write_text(NODE)
    plan = ascot.plan.cluster("10TB", nodes=10, node_type=disk / "node.toml")
    words = ["plan", "cluster", "--input", "10TB", "--nodes", "10", "--node-type", disk / "node.toml"]
    assert plan.node_type == "small" and plan.data == by_command(*words)
    (disk / "wrong.toml").write_text(NODE.replace("cores", "kernels"))
    with pytest.raises(errors.InvalidRequest, match=r"wrong\.toml"):
        ascot.plan.cluster("1TB", nodes=10, node_type=disk / "wrong.toml")


def test_plans_have_fields():
    bowtie = ascot.plan.bowtie(3, 100, memory="16GiB", **FLASH)
    assert (bowtie.inputs, bowtie.outputs, bowtie.memory_bytes) == (3, 100, 16 << 30)
    assert bowtie.run_bytes > bowtie.data["equal_parts_run_bytes"] and bowtie.schedule in bowtie._repr_html_()
    assert ascot.plan.bowtie(1, 0, **FLASH).run_bytes is None
    merge = ascot.plan.merge(inputs=8000, size="64TB", memory="256MiB", most_streams=100, **FLASH)
    assert sum(one.seconds for one in merge.passes) == pytest.approx(merge.seconds)
    assert sum(one.read_bytes + one.written_bytes for one in merge.passes) == pytest.approx(merge.bytes)
    assert merge.alternatives and merge.alternatives[0].name in merge._repr_html_()
    assert {one.seconds is None for one in merge.alternatives} == {
        True,
        False,
    } and "not possible" in merge._repr_html_()
    sort = ascot.plan.sort(size="8TB", **FLASH)
    assert isinstance(sort, ascot.Plan) and sort.seconds == pytest.approx(sort.data["seconds"])
    assert sort.others and sort.chosen.summary in str(sort)


REFUSED = [
    (lambda: ascot.plan.bowtie(9, 9, memory="1MiB"), "memory"),
    (lambda: ascot.plan.bowtie(0, 0), "needs streams"),
    (lambda: ascot.plan.bowtie(1, 1, alpha=2), "alpha=2"),
    (lambda: ascot.plan.bowtie(2_000_000, 1), "inputs=2000000 is too large"),
    (lambda: ascot.plan.bowtie(memory="lots"), "memory"),
    (lambda: ascot.plan.bowtie(volume="no-such-volume.toml"), "volume="),
    (lambda: ascot.plan.merge(inputs=9, size="much"), "size"),
    (lambda: ascot.plan.merge(inputs=0, size="1TB"), "need inputs"),
    (lambda: ascot.plan.merge(inputs=9, size="1TB", growth="often"), "growth"),
    (lambda: ascot.plan.reshape(inputs=9, parts=9, size="1TB", by="luck"), "by='luck'"),
    (lambda: ascot.plan.sort(size="1TB", layout=ascot.Csv(), key="a"), "columns of CSV"),
    (lambda: ascot.plan.sort(size="1TB", record_bytes=0), "record_bytes"),
    (lambda: ascot.plan.cluster("1TB", nodes=0, node_type="ec2-i2.8xlarge"), "nodes=0"),
    (lambda: ascot.plan.cluster("1PB", nodes=3, node_type="ec2-i2.8xlarge"), "632 nodes are needed"),
    (lambda: ascot.plan.cluster("1TB", nodes=3, node_type="no-such-type"), "node_type: "),
    (lambda: ascot.plan.cluster("1TB", nodes=3, node_type="ec2-i2.8xlarge", network="fast"), "network='fast'"),
    (lambda: ascot.plan.cheapest_cluster("1PB", within=1), "within="),
    (lambda: ascot.plan.cheapest_cluster("1PB", within=-1), "within=-1"),
    (lambda: ascot.simulate(inputs=16, memory=4096), "needs at least 19"),
    (lambda: ascot.simulate(schedule="a9"), "a9"),
    (lambda: ascot.simulate(skew="often"), "often"),
    (lambda: ascot.simulate(total="1PB", block="4KiB"), "too many"),
    (lambda: ascot.probe(".", seconds=0.1), "seconds=0.1"),
    (lambda: ascot.probe(".", seconds=float("nan")), "seconds"),
]


@pytest.mark.parametrize(("call", "told"), REFUSED, ids=[told for _, told in REFUSED])
def test_bad_requests_raise_exceptions_of_the_package(call, told):
    with pytest.raises(errors.InvalidRequest) as raised:
        call()
    assert told in str(raised.value)


def test_arguments_that_exclude_each_other_are_refused():
    with pytest.raises(ValueError, match="give one of them"):
        ascot.plan.merge(inputs=9, size="1TB", growth=0.8, alpha=0.5)
    with pytest.raises(ValueError, match="leave out by"):
        ascot.plan.reshape(inputs=9, parts=9, size="1TB", by="hash", alpha=0.5)
    with pytest.raises(ValueError, match="leave out layout"):
        ascot.plan.sort(size="1TB", layout="fixed:10", record_bytes=10)
    with pytest.raises(TypeError, match="inputs is a number"):
        ascot.plan.merge(inputs="9", size="1TB")
    with pytest.raises(ValueError, match="inputs=-1"):
        ascot.simulate(inputs=-1)
    with pytest.raises(TypeError, match="unexpected"):
        ascot.plan.sort(size="1TB", unique=True)


def test_simulations_are_those_of_the_command():
    given = {"alpha": 0.6, "memory": "16MiB", "block": "16KiB", "total": "200MB", "skew": "noise:0.3", "seed": 7}
    flags = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    words = ["simulate", "--inputs", "4", "--outputs", "6", *flags]
    result = ascot.simulate(4, 6, **given)
    assert result.data == by_command(*words) and str(result) == run(*words).stdout.decode()
    assert (result.inputs, result.outputs, result.block_bytes) == (4, 6, 16 << 10)
    assert "<table>" in result._repr_html_() and result.schedule in result._repr_html_()
    equal = ascot.simulate(4, 6, schedule="equal", memory="16MiB")
    assert equal.schedule == "equal" and equal.switches > ascot.simulate(4, 6, memory="16MiB").switches


LONG = """
    import ascot, sys, threading, time
    def tell():
        time.sleep(0.3)
        print("runs", flush=True)
    threading.Thread(target=tell).start()
    try:
        {call}
    except KeyboardInterrupt:
        print("interrupted", time.time(), flush=True)
"""


def test_plans_of_existing_files_are_those_of_the_command(disk):
    for name in "ab":
        (disk / name).write_text("".join(f"{number:06}\n" for number in range(5000)))
    one, two = str(disk / "a"), str(disk / "b")
    pattern = str(disk / "part-{}")
    told = {
        ("merge", "-o", "out"): ascot.plan.merge([one, two], to="out", memory="16MiB", volume="flash"),
        ("split", "-o", pattern, "--parts", "4", "--by", "size"): ascot.plan.split(
            [one, two], to=pattern, parts=4, memory="16MiB", volume="flash"
        ),
        ("reshape", "-o", pattern, "--parts", "3", "--by", "hash"): ascot.plan.reshape(
            [one, two], to=pattern, parts=3, by="hash", memory="16MiB", volume="flash"
        ),
        ("sort", "--view", str(disk / "view")): ascot.plan.sort(
            [one, two], view=disk / "view", memory="16MiB", volume="flash"
        ),
    }
    for words, plan in told.items():
        ends = ["--memory", "16MiB", "--volume", "flash", "--explain", one, two]
        # Others use the disk meanwhile.
        texts = in_python(run(*words, *ends).stdout.decode()), str(plan)
        told, shown = (re.sub(r"of \S+ \S+ free", "", text) for text in texts)
        assert shown == told.rstrip("\n"), words


def test_memory_may_be_a_share_of_the_machine(disk):
    (disk / "a").write_bytes(b"2\n1\n")
    shares = [ascot.sort(disk / "a", to=disk / "b", memory=share).report.memory_bytes for share in ("1%", "2%")]
    assert 1.99 <= shares[1] / shares[0] <= 2.01
    assert ascot.Session(memory="2%").memory == shares[1]
    assert ascot.plan.bowtie(2, 2, memory="2%", volume="flash").data["memory_bytes"] == shares[1]
    for wrong in ("0%", "200%", "5"):
        with pytest.raises(ascot.errors.InvalidRequest, match="memory"):
            ascot.sort(disk / "a", to=disk / "b", memory=wrong)


@pytest.mark.alone
@pytest.mark.parametrize(
    "call",
    [
        "ascot.plan.merge(inputs=1_000_000, size='1PB', memory='64MiB', volume='rotational')",
        "ascot.simulate(3000, 1000, total='600GB')",
        "ascot.probe(sys.argv[1], seconds=60, size='64MiB')",
    ],
)
def test_ctrl_c_stops_what_takes_long_while_other_threads_run(call, disk):
    command = [sys.executable, "-X", "dev", "-c", textwrap.dedent(LONG).format(call=call), disk]

    def attempt():
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "runs\n", process.communicate()
        time.sleep(0.5)
        began = time.time()
        process.send_signal(signal.SIGINT)
        word, when = process.stdout.readline().split()
        assert word == "interrupted"
        assert process.communicate(timeout=10)[1] == "" and process.returncode == 0
        assert leftovers(disk) == []
        return float(when) - began

    assert_acts_within_200_ms(attempt)


@pytest.mark.alone
def test_a_volume_is_measured_and_its_profile_is_a_volume(disk, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(disk / "state"))
    (disk / "measured").mkdir()
    seen = []
    began = time.monotonic()
    profile = ascot.probe(disk / "measured", size="64MiB", seconds=2, store=False, progress=seen.append)
    assert time.monotonic() - began < 15
    assert profile.stored is None and leftovers(disk / "measured") == [] and not (disk / "state").exists()
    shares = [one.fraction for one in seen]
    assert shares == sorted(shares) and 0 <= shares[0] <= shares[-1] <= 1
    assert profile.data["volume"]["measured"] and profile.data["measurement"]["used_bytes"] <= 64 << 20
    assert profile.read_bytes_per_s == profile.data["volume"]["read_bytes_per_s"] > 1e6
    assert "<table>" in profile._repr_html_() and str(profile)
    profile.write(disk / "volume.toml")
    assert tomllib.loads((disk / "volume.toml").read_text())["read_bytes_per_s"] == profile.read_bytes_per_s
    plan = ascot.plan.bowtie(3, 9, volume=disk / "volume.toml")
    assert plan.data["volume"]["measured"]
    words = ["plan", "bowtie", "--inputs", "3", "--outputs", "9"]
    assert plan.data == by_command(*words, "--volume", disk / "volume.toml")


@pytest.mark.alone
@pytest.mark.privileged
def test_a_stored_profile_is_that_of_later_jobs(disk, tmp_path, monkeypatch):
    monkeypatch.delenv("ASCOT_VOLUME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with small_disk(disk, 200 << 20) as volume:
        profile = ascot.probe(volume, size="64MiB", seconds=1)
        assert tomllib.loads(Path(profile.stored).read_text())["read_bytes_per_s"] == profile.read_bytes_per_s
        assert Path(profile.stored).is_relative_to(tmp_path) and leftovers(volume) == []
        monkeypatch.chdir(volume)
        planned = ascot.plan.bowtie(3, 9).data["volume"]
        assert planned["measured"] and planned["read_bytes_per_s"] == profile.read_bytes_per_s
        monkeypatch.chdir(disk)
    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    unstored = ascot.probe(disk, size="64MiB", seconds=1)
    assert unstored.stored is None and any("not stored" in notice for notice in unstored.notices)


def test_what_cannot_be_measured_raises_an_exception(disk):
    with pytest.raises(FileNotFoundError) as missing:
        ascot.probe(disk / "missing")
    assert missing.value.filename == str(disk / "missing")
    with pytest.raises(errors.FileError, match="memory"):
        ascot.probe("/dev/shm")
    with pytest.raises(errors.InvalidRequest, match="too little"):
        ascot.probe(disk, size="1MiB")


def test_plans_refuse_what_the_job_refuses(disk):
    (disk / "a").write_text("a\n")
    into = {"to": disk / "part-{}", "parts": 2}
    wrong = [
        ("reshape", [disk / "a"], {**into, "by": "range", "by_key": "1"}, "leave out by_key"),
        ("split", disk / "a", {**into, "by": "size", "key": "1"}, "uses no key"),
        ("sort", disk / "a", {"to": disk / "x.parquet"}, "does not write Parquet"),
    ]
    for verb, source, arguments, match in wrong:
        for owner in (ascot, ascot.plan):
            with pytest.raises(ValueError, match=match):
                getattr(owner, verb)(source, **arguments)
    assert leftovers(disk) == ["a"]
