"""The Python package: results of studies and traces as tables, their plots, and texts in the words of the package."""

import builtins
import json
import subprocess
import sys
import textwrap

import ascot
import pytest
from ascot import errors
from support import random_records, run

pyarrow = pytest.importorskip("pyarrow")

STREAMS = {"elements": 1000, "exponents": "12", "loops": 2, "cache": "warm"}


def test_a_study_of_streams_is_a_table_and_is_read_again(disk):
    seen = []
    table = ascot.lab.streams(disk / "out", backends=["buffered", "sized"], progress=seen.append, **STREAMS)
    assert len(table) == 4 and table["backend"].count("sized") == 2
    assert all(ms > 0 for ms in table["mean_ms"])
    blocks = set(zip(table["backend"], table["block_bytes"], strict=True))
    assert blocks == {("buffered", None), ("sized", 4096)}
    again = ascot.lab.read_streams(disk / "out")
    assert again.to_dict() == table.to_dict() == ascot.lab.read_streams(disk / "out" / "streams.csv").to_dict()
    began = (disk / "out" / "streams.csv").read_text()
    continued = ascot.lab.streams(disk / "out", backends="sized", **STREAMS)
    assert len(continued) == 2 and (disk / "out" / "streams.csv").read_text() == began, "nothing is measured twice"
    words = ["--n", "1000", "--b", "12", "--loops", "2", "--cache", "warm", "--stream", "buffered,sized"]
    run("lab", "streams", "--out", disk / "by-command", *words)
    by_command = ascot.lab.read_streams(disk / "by-command")
    assert by_command["formula_ios"] == table["formula_ios"]
    assert by_command["counted_ios"] == table["counted_ios"]


def test_a_table_exports_lists_text_html_and_arrow(disk):
    table = ascot.lab.streams(disk, backends="sized", **STREAMS)
    assert table.to_list() == list(table) and table.to_list()[0]["elements"] == 1000
    arrow = pyarrow.table(table)
    assert arrow.to_pydict() == table.to_dict()
    assert str(arrow.schema.field("mean_ms").type) == "double"
    assert "backend" in str(table) and "sized" in str(table) and "2 rows" in repr(table)
    assert table._repr_html_().count("<tr>") == 3
    with pytest.raises(KeyError):
        table["frob"]


def test_a_study_of_merge_sorts_is_a_table(disk):
    given = {"elements": 2000, "memory_elements": 500, "fan_in": 10, "exponents": 12, "loops": 2, "cache": "warm"}
    table = ascot.lab.sort(disk, **given)
    assert (len(table), table["fan_in"], table["merge_passes"]) == (1, [10], [1])
    assert table["counted_reads"][0] > 0 and table["planned_method"]
    assert ascot.lab.read_sorts(disk).to_list() == table.to_list()


def test_measurements_of_disks_and_networks_are_tables_as_are_the_reports_of_the_command(disk):
    table = ascot.lab.disk(disk, disk, size="8MiB", request="64KiB", rounds=1)
    assert {*table["role"]} == {"reading", "writing"} and min(table["bytes_per_s"]) > 0
    assert table.data["request_bytes"] == 64 << 10
    flags = ["--input", disk, "--output", disk, "--bytes", "8MiB", "--request", "64KiB", "--rounds", "1"]
    run("lab", "disk", *flags, "--report", disk / "disk.json")
    read = ascot.lab.read_disk(disk / "disk.json")
    assert read.columns == table.columns and read["phase"] == table["phase"]
    table = ascot.lab.net(2, size="1MiB", connections=[1, 2])
    assert sorted(table["connections"]) == [1, 1, 2, 2] and min(table["bytes_per_s"]) > 0
    with pytest.raises(errors.SchemaMismatch, match="not a report"):
        ascot.lab.read_net(disk / "disk.json")


@pytest.fixture
def trace(disk):
    (disk / "records").write_bytes(random_records(3000))
    words = ["--format", "fixed:100", "--trace", disk / "sort.trace"]
    run("sort", disk / "records", "-o", disk / "sorted", *words)
    return disk / "sort.trace"


def test_a_trace_has_the_figures_of_the_command(trace):
    opened = ascot.trace.open(trace)
    shown = json.loads(run("trace", "show", trace, "--json").stdout)
    assert {name: opened.census[name] for name in shown} == shown
    assert opened.files["path"] == [one["path"] for one in shown["by_file"]]
    assert sum(opened.runs["runs"]) == shown["runs"]
    events = opened.events()
    assert len(events) == len(opened)
    assert sum(opened.events(kind="read")["bytes"]) == shown["read_bytes"] == 300_000
    assert set(events["path"]) >= {*opened.files["path"]}
    assert pyarrow.table(events).column("kind").to_pylist() == events["kind"]
    half = max(events["time_ns"]) / 2e9
    assert len(opened.events(stop=half)) + len(opened.events(start=half + 1e-9)) == len(events)
    assert len(opened.bowties) == len(shown["bowties"])
    assert "switches" in str(opened) and "<table>" in opened._repr_html_()


def test_traces_are_compared(trace):
    table = ascot.trace.compare([trace, trace], size=300_000, volume="rotational")
    assert len(table) == 2 and table["passes"] == [1.0, 1.0] and min(table["replay_seconds"]) > 0
    assert ascot.trace.compare([trace])["replay_seconds"] == [None]


def test_plots_are_drawn_with_matplotlib(trace, disk):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = ascot.trace.open(trace).plot()
    drawn = sum(len(line.get_xdata()) for line in axes.get_lines())
    assert drawn == len(ascot.trace.open(trace).events(kind=["read", "write"]))
    job = ascot.sort(disk / "records", to=disk / "sorted", layout=ascot.Fixed(100))
    axes = job.report.plot()
    assert [label.get_text() for label in axes.get_yticklabels()] == [one.name for one in job.report.passes]
    table = ascot.lab.streams(disk / "lab", elements="1e3,1e4", exponents="12..14", loops=2, backends="sized")
    axes = table.plot("block_bytes", "mean_ms", by=["direction", "cache"])
    assert len(axes.get_lines()) == 4
    axes.figure.savefig(disk / "chart.png")


def test_plots_without_matplotlib_name_it(trace, monkeypatch):
    imported = builtins.__import__

    def missing(name, *rest):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        ascot.trace.open(trace).plot()


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda at: ascot.lab.streams(at, elements="x"), errors.InvalidRequest, "elements='x' is not a number"),
        (lambda at: ascot.lab.streams(at, backends="frob"), errors.InvalidRequest, "backend='frob'"),
        (lambda at: ascot.lab.streams(at, cache="hot"), errors.InvalidRequest, "cache='hot'"),
        (lambda at: ascot.lab.streams(at, direction="up"), errors.InvalidRequest, "direction='up'"),
        (lambda at: ascot.lab.disk(at, at, rounds=0), errors.InvalidRequest, "rounds=0"),
        (lambda at: ascot.lab.disk([at, at], at), errors.InvalidRequest, "named twice"),
        (lambda at: ascot.lab.net(connections=9), errors.InvalidRequest, "connections"),
        (lambda at: ascot.lab.read_streams(at / "none"), FileNotFoundError, "streams.csv"),
        (lambda at: ascot.trace.open(at / "none"), FileNotFoundError, "none"),
        (lambda at: ascot.trace.compare([]), ValueError, "no trace"),
    ],
)
def test_wrong_arguments_are_named(make, kind, text, disk):
    with pytest.raises(kind, match=text) as failed:
        make(disk)
    assert "--" not in str(failed.value)


def test_files_that_are_no_traces_and_no_results_are_refused(disk, trace):
    (disk / "streams.csv").write_text("my notes\n")
    with pytest.raises(errors.SchemaMismatch, match="the columns are not"):
        ascot.lab.read_streams(disk)
    with pytest.raises(errors.SchemaMismatch, match="not a trace"):
        ascot.trace.open(disk / "streams.csv")
    damaged = bytearray(trace.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    trace.write_bytes(damaged)
    with pytest.raises(ascot.Damaged):
        ascot.trace.open(trace).events()


# ---------------------------------------------------------------- texts in the words of the package


def test_errors_name_arguments_instead_of_flags(disk):
    (disk / "records").write_bytes(b"x" * 250)
    with pytest.raises(ascot.MemoryLimit, match=r"give more \(memory='\d+MiB'\)"):
        ascot.sort(disk / "records", to=disk / "out", layout="fixed:50", memory=1 << 20)
    with pytest.raises(ascot.SchemaMismatch, match=r"the record length is wrong \(layout=\)"):
        ascot.sort(disk / "records", to=disk / "out", layout="fixed:100")
    with pytest.raises(errors.InvalidRequest, match="the minimum is most_streams=18"):
        ascot.plan.bowtie(9, 9, most_streams=4, volume="flash")
    with pytest.raises(errors.InvalidRequest, match=r"19: give more memory=, or smaller blocks \(block=\)"):
        ascot.simulate(inputs=16, memory=4096)


INTERRUPTED = """
    import ascot, sys, threading, _thread
    threading.Timer(1.0, _thread.interrupt_main).start()
    try:
        ascot.lab.streams(sys.argv[1], elements="1e6", loops=1000)
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.alone
def test_ctrl_c_stops_a_study_whose_results_stay(disk):
    command = [sys.executable, "-X", "dev", "-c", textwrap.dedent(INTERRUPTED), disk]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("interrupted\n", 0), done.stderr
    assert {path.name for path in disk.iterdir()} == {"streams.csv"}
