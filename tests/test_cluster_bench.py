"""Measurements, records and checks on the nodes of a cluster: real nodes of Ray on this machine."""

import os
import re
import signal
import socket
from itertools import pairwise

import ascot
import ascot.cluster
import pytest
from ascot import errors
from ascot.cluster import bench, helpers, node_types, reports
from ascot.cluster.bench import rounds_of_pairs
from ray_machines import MEMORY, NODES, PAIR, RECORDS, processes_of

pytestmark = pytest.mark.cluster(nodes=PAIR)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("file", "file: it is not a directory"),
        ("file/x", "file/x: Not a directory"),
        ("/proc/x", "/proc/x: No such file or directory"),
    ],
)
def test_a_directory_that_a_node_cannot_use_is_told_with_a_remedy(disk, name, told):
    (disk / "file").touch()
    found, error = helpers.Helper().directories([str(disk / name)])
    assert found is None and isinstance(error, errors.FileError)
    assert str(error).endswith(f"{told}\n  name a directory of each node in which files may be made (temp=)")
    assert error.filename == str(disk / name)


@pytest.mark.parametrize("count", range(2, 12))
def test_all_nodes_meet_in_pairs_once(count):
    rounds = rounds_of_pairs(count)
    pairs = [tuple(sorted(pair)) for pairs in rounds for pair in pairs]
    assert sorted(pairs) == [(one, other) for one in range(count) for other in range(one + 1, count)]
    for pairs in rounds:
        busy = [node for pair in pairs for node in pair]
        assert len(busy) == len(set(busy)) == count - count % 2


@pytest.mark.parametrize(
    ("measure", "name", "value", "accepted"),
    [
        *(("diskbench", name, "10%", "bytes, as a number or a text") for name in ("size", "request", "memory")),
        *(("netbench", name, "10%", "bytes, as a number or a text") for name in ("size", "block", "memory")),
        ("diskbench", "size", "1XB", "bytes, as a number or a text such as '512MiB'"),
        ("diskbench", "size", "1MiB", "at least 8 requests, 33.6 MB"),
        ("diskbench", "request", 5000, "a multiple of 4 KiB, at most 64 MiB"),
        ("diskbench", "request", "1GiB", "a multiple of 4 KiB, at most 64 MiB"),
        ("diskbench", "rounds", 1001, "a number from 1 to 1000"),
        ("diskbench", "seconds", 0.05, "a number from 0.1 to 1000000"),
        ("netbench", "size", "1KiB", "64 KiB or more"),
        ("netbench", "block", "1KiB", "4 KiB to 16 MiB"),
        ("netbench", "connections", 5, r"numbers from 1 to 4, such as \[1, 2, 4\]"),
        ("netbench", "connections", [], r"numbers from 1 to 4, such as \[1, 2, 4\]"),
    ],
)
def test_what_every_node_would_refuse_is_refused_before_a_connection(measure, name, value, accepted):
    with pytest.raises(errors.InvalidRequest, match=f"^{name}={re.escape(repr(value))}: give {accepted}"):
        # Nothing listens there.
        getattr(ascot.cluster, measure)(address="127.0.0.1:1", **{name: value})


def test_disks_of_all_nodes_are_measured(cluster):
    found = ascot.cluster.diskbench(address=cluster.address, size="2MiB", request="256KiB", rounds=1)
    assert len(set(found["node"])) == PAIR == len(found.data["nodes"])
    # Each node measures in its own directory.
    volumes = {(row["node"].split(" ")[0], row["volume"]) for row in found}
    assert all(str(cluster.temp(address)) in volume for address, volume in volumes), volumes
    assert min(found["bytes_per_s"]) > 0
    assert len(found.notices) == len(found.data["summary"]) > 4
    for facts in found.data["summary"].values():
        assert facts["fastest"] in set(found["node"]) and facts["relative_spread"] >= 0
    assert "fastest" in str(found) and "<table" in found._repr_html_()
    assert cluster.left_over() == []
    with pytest.raises(errors.AscotError, match=r"node 127\.0\.\d\.\d+ .*: No such .*\n .*\(temp=\)"):
        ascot.cluster.diskbench(address=cluster.address, temp="/proc/none", size="2MiB", request="256KiB")


def test_a_port_for_a_measurement_is_kept_from_other_processes():
    host, _, port = bench._free_address("127.0.0.1").rpartition(":")
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((host, int(port)))
    bench._held.pop().close()
    with socket.socket() as other:
        other.bind((host, int(port)))


@pytest.mark.parametrize("count", [PAIR, pytest.param(NODES, marks=pytest.mark.cluster(nodes=NODES))])
def test_the_network_is_measured_between_all_pairs(cluster, count):
    found = ascot.cluster.netbench(address=cluster.address, size="1MiB", connections=2)
    names = {row["receiver"] for row in found}
    assert len(names) == count
    pairs = [row for row in found if row["sender"] is not None]
    assert {(row["sender"], row["receiver"]) for row in pairs} == {(a, b) for a in names for b in names if a != b}
    for number in range(1, count):
        senders = [row["sender"] for row in pairs if row["round"] == number]
        assert sorted(senders) == sorted(names)
    assert [row["round"] for row in found if row["sender"] is None] == [count] * count
    assert set(found["connections"]) == {2} and min(found["bytes_per_s"]) > 0
    # Peers listen at the addresses of their nodes, and nowhere else.
    listening = {peer.rpartition(":")[0] for one in found.data["rounds"] for run in one for peer in run["peers"]}
    assert listening == {name.split(" ")[0] for name in names}
    assert [notice.split(":")[0] for notice in found.notices] == ["pairs", "all to all"]


def test_rates_of_a_node_type_are_those_of_the_slower_phase_and_of_all_to_all():
    usual = {"directions": "both", "preallocated": False, "role": "reading"}
    rates = {"map": {"a": (6.0, 5.0), "b": (9.0, 7.0)}, "sort": {"a": (8.0, 9.0), "b": (8.0, 9.0)}}
    disks = [
        {**usual, "phase": phase, "node": node, "role": role, "bytes_per_s": rate}
        for phase, nodes in rates.items()
        for node, own in nodes.items()
        for role, rate in zip(("reading", "writing"), own, strict=True)
    ]
    others = [{"directions": "reading"}, {"preallocated": True}]
    disks += [{**usual, **other, "phase": "map", "node": "a", "bytes_per_s": 1.0} for other in others]
    # Each node has two volumes.
    assert node_types._disks([*disks, *disks]) == (12.0, 2.0)
    network = [{"sender": "a", "connections": 1, "bytes_per_s": 9.0}]
    for count in (1, 2):
        network += [{"sender": None, "connections": count, "bytes_per_s": count * rate} for rate in (2.0, 4.0)]
    assert node_types._network(network) == [(2, 1, 3.0), (2, 2, 6.0)]


@pytest.mark.parametrize(
    ("place", "told"), [("none/type", "none: there is no such directory"), ("", "it is a directory")]
)
def test_a_place_where_no_file_may_be_is_told_before_a_connection(disk, place, told):
    with pytest.raises(errors.FileError, match=told):
        ascot.cluster.node_type(disk / place, usd_per_hour=2, address="127.0.0.1:1")


def whole_sort(**changed):
    phases = [reports.Phase(name, 2.0, 100, ()) for name in ("sample", "map and shuffle", "sort and reduce")]
    facts = {"kind": "sort", "seconds": 5.0, "start_seconds": 1.0, "records": 1, "bytes": 100, "checksum": "0"}
    facts |= {"partitions": 1, "chunks": 1, "memory_per_node": 1, "peak_memory_bytes": 1, "phases": phases}
    return reports.ClusterReport(**{**facts, **changed})


def test_only_a_sort_of_the_whole_input_on_all_nodes_gives_rates():
    """The rates of a phase that was repeated, or that an earlier run began, would be too high."""
    whole = node_types._small_sort(whole_sort())
    assert (whole["input_bytes"], whole["map_shuffle_seconds"], whole["sort_reduce_seconds"]) == (100, 2.0, 2.0)
    sample, mapping, sorting = whole_sort().phases
    half = reports.Phase(mapping.name, 1.0, 50, ())
    for changed in (
        {"phases": (sample, half, sorting)},
        {"phases": (sample, mapping, half, sorting)},
        {"phases": (sample, sorting)},
        {"lost_nodes": (("a", "its disk is full"),)},
        {"shuffle": "pull"},
        {"kind": "map_reduce"},
    ):
        with pytest.raises(errors.InvalidRequest, match="a sort that pushes, once each, on all nodes"):
            node_types._small_sort(whole_sort(**changed))


def test_the_type_of_the_nodes_is_measured_and_planned_with(cluster, disk):
    ascot.gen(100_000, to=disk / "a")
    done = ascot.cluster.sort(
        disk / "a", disk / "out", layout=RECORDS, address=cluster.address, memory_per_node=MEMORY, progress=None
    )
    given = {"usd_per_hour": 2, "coordinator_usd_per_hour": 0.5, "address": cluster.address, "size": "40MB"}
    file = disk / "mine.toml"
    text = ascot.cluster.node_type(file, **given, sort=done, name='a "name"')
    assert file.read_text() == text and text.startswith('name = "a \\"name\\""\nusd_per_hour = 2.0\n')
    assert "\ncores = 1\n" in text and f"\npeers = {PAIR}\nconnections = 1\n" in text
    # The plan has the phases of the sort, and without it the rates of disks and network.
    own = {"nodes": PAIR, "node_type": file, "uniform": True}
    plan = ascot.plan.cluster("10MB", **own, network="infinite")
    phases = [one.seconds for one in done.report.phases if one.name != "sample"]
    assert [one.seconds for one in plan.phases] == pytest.approx(phases, rel=0.02)
    assert str(plan).splitlines()[1] == f'cluster   {PAIR} nodes of a "name"'
    file.write_text("".join(line for line in text.splitlines(True) if not line.startswith("small_sort")))
    assert {one.bound_by for one in ascot.plan.cluster("10MB", **own).phases} <= {"disks", "network"}
    assert sorted(os.listdir(disk)) == ["a", "mine.toml", "out"] and cluster.left_over() == []


def test_nodes_make_the_records_of_one_machine_and_check_them(cluster, disk):
    written = ascot.cluster.gen(20_003, to=disk / "in", files=7, start=5, skew=True, address=cluster.address)
    parts = sorted((disk / "in").iterdir())
    ascot.gen(20_003, to=disk / "alone", start=5, skew=True)
    assert (written, len(parts)) == (2_000_300, 7)
    assert b"".join(part.read_bytes() for part in parts) == (disk / "alone").read_bytes()
    with pytest.raises(FileExistsError, match="not an empty directory"):
        ascot.cluster.gen(10, to=disk / "in", address=cluster.address)
    # Each key is there three times, also across files; a part is empty, and another one has one record.
    records_of_keys = [b"%010d%089d\n" % (number // 3, number) for number in range(10_000)]
    for number, (begin, end) in enumerate(pairwise([0, 1, 3_500, 3_500, 7_000, 10_000])):
        (disk / f"part-{number}").write_bytes(b"".join(records_of_keys[begin:end]))
    names = sorted(disk.glob("part-*"))
    alone = ascot.check(names, layout=RECORDS)
    assert (alone.records, alone.duplicate_keys, alone.is_sorted) == (10_000, 6_666, True)
    assert ascot.cluster.check(names, layout=RECORDS, address=cluster.address) == alone
    turned = [names[0], names[3], names[1]]
    assert ascot.cluster.check(turned, layout=RECORDS, address=cluster.address) == ascot.check(turned, layout=RECORDS)
    assert sorted(path.name for path in disk.iterdir() if path.name.startswith(".")) == []


def test_records_of_a_process_that_is_killed_are_made_again(cluster, disk):
    killed = []

    def kill(progress):
        if not killed and progress.fraction:
            killed.append(processes_of("Helper", cluster)[0])
            os.kill(killed[0], signal.SIGKILL)

    ascot.cluster.gen(200_000, to=disk / "in", files=40, address=cluster.address, progress=kill)
    ascot.gen(200_000, to=disk / "alone")
    assert killed
    content = b"".join(part.read_bytes() for part in sorted((disk / "in").iterdir()))
    assert content == (disk / "alone").read_bytes()


def test_an_exception_leaves_no_records(cluster, disk):
    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ascot.cluster.gen(200_000, to=disk / "in", files=8, address=cluster.address, progress=stop)
    assert list(disk.iterdir()) == []


ROWS = [f'{number // 3},"a ""name"",\n{number}",{number % 7}\n' for number in range(3_000)]
SEQUENCES = {
    "numbers": (ascot.Csv(key="id"), "id,what,seventh\n", ROWS),
    # The last file alone has texts, of which 999 comes after 1000.
    "numbers and a text": (ascot.Csv(key="id"), "id,what,seventh\n", [*ROWS[:2990], "none,,\n", *ROWS[2990:]]),
    "descending": (ascot.Csv(key=ascot.desc("id")), "id,what,seventh\n", ROWS[::-1]),
    "text": (ascot.Csv(key=[ascot.column("id", type="text"), "what"]), "id,what,seventh\n", sorted(ROWS)),
    "without a header": (ascot.Csv(header=False, key=1), "", ROWS),
    "lines": (ascot.Lines(header=True), "# a title\n", [f"{number // 3:09}\n" for number in range(3_000)]),
}


@pytest.mark.parametrize("kind", SEQUENCES)
def test_tables_are_checked_by_the_types_that_all_files_have(kind, cluster, disk):
    layout, header, rows = SEQUENCES[kind]
    for number, (begin, end) in enumerate(pairwise([0, 0, 1, 1_000, 2_900, len(rows)])):
        (disk / f"part-{number}").write_text(header + "".join(rows[begin:end]))
    names = sorted(disk.glob("part-*"))
    for order in ([0, 1, 2, 3, 4], [2, 1, 3, 3]):
        found = [names[number] for number in order]
        alone = ascot.check(found, layout=layout)
        assert alone.records > 0
        assert ascot.cluster.check(found, layout=layout, address=cluster.address) == alone


def test_records_of_varying_length_are_checked(cluster, disk):
    records = [f"{number // 2:06}".encode() + b"x" * (number % 50) for number in range(2_000)]
    prefixed = [len(record).to_bytes(4, "little") + record for record in records]
    for number, (begin, end) in enumerate(pairwise([0, 701, 702, 2_000])):
        (disk / f"part-{number}").write_bytes(b"".join(prefixed[begin:end]))
    layout = ascot.Prefixed("u32", key=slice(0, 6))
    for order in ([0, 1, 2], [2, 0]):
        found = [disk / f"part-{number}" for number in order]
        alone = ascot.check(found, layout=layout)
        assert (alone.duplicate_keys > 0, alone.is_sorted) == (True, order == [0, 1, 2])
        assert ascot.cluster.check(found, layout=layout, address=cluster.address) == alone


def test_tables_with_other_headers_are_no_sequence(cluster, disk):
    (disk / "a").write_text("id,what\n1,x\n")
    (disk / "b").write_text("id,other\n2,x\n")
    with pytest.raises(ascot.errors.InvalidRequest, match="header"):
        ascot.cluster.check([disk / "a", disk / "b"], layout=ascot.Csv(key="id"), address=cluster.address)
