"""What a job on a cluster tells: samples of nodes, states of stages, the page of its report, and its status."""

import itertools
import json
import os
import re
import subprocess
import sys
import time

import ascot
import ascot.cluster
import pytest
from ascot import _native
from ascot.cluster import Settings, manifest, pages, registry, reports, sampling, series, watching
from ascot.cluster.writer import Writer
from page_browser import opened
from ray_machines import MIB, NODES, At, assert_same, cluster_sort, wait_until

pytestmark = pytest.mark.cluster

# Names itself as a worker does, for as long as it is told.
WORKER = """
import sys, time
from ascot.cluster.sampling import doing
with doing(sys.argv[1]):
    print("ready", flush=True)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if sys.argv[1] == "blocked":
            time.sleep(1)
"""


# ---------------------------------------------------------------- samples


def worker(state):
    made = subprocess.Popen([sys.executable, "-c", WORKER, state], stdout=subprocess.PIPE)
    assert made.stdout.readline() == b"ready\n"
    return made


def test_a_sample_has_what_workers_do():
    busy, blocked = worker("sorting"), worker("blocked")
    sampler = sampling.Sampler("127.0.0.1")
    try:
        sampler.watch([busy.pid, blocked.pid])
        time.sleep(2.6)
        now, rows = sampler.taken()
        assert 1 <= len(rows) <= 3 and rows == sorted(rows)
        found = dict(zip(("at", *series.COLUMNS), rows[-1], strict=True))
        assert 0 <= now - found["at"] < 2.6
        assert (found["busy_share"], found["blocked_share"], found["idle_share"]) == (0.5, 0.5, 0)
        # One of them computes, as far as others leave it a processor.
        assert 0.02 < found["job_processors"] < 1.5
        assert found["job_memory_bytes"] > 3 * 2 * MIB and 0 < found["cpu_share"] <= 1
        blocked.kill()
        blocked.wait()
        time.sleep(2.2)
        found = dict(zip(("at", *series.COLUMNS), sampler.taken()[1][-1], strict=True))
        assert (found["busy_share"], found["blocked_share"], found["idle_share"]) == (0.5, 0, 0.5)
    finally:
        sampler.stop()
        for one in (busy, blocked):
            one.kill()
            one.wait()


def test_the_last_sample_has_what_was_done_just_before(disk):
    program = "import sys; out = open(sys.argv[1], 'wb', 0); print(flush=True); input(); out.write(bytes(8 << 20))"
    words = [sys.executable, "-c", program + "; print(flush=True); input()", disk / "written"]
    made = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    made.stdout.readline()
    sampler = sampling.Sampler("127.0.0.1")
    try:
        sampler.begin([made.pid])
        [(began, *_)] = sampler.taken()[1]
        made.stdin.write("\n")
        made.stdin.flush()
        made.stdout.readline()
        time.sleep(2 * sampling.SHORTEST_SECONDS)
        [(ended, *values)] = sampler.taken(is_last=True)[1]
        rate = dict(zip(series.COLUMNS, values, strict=True))["job_written_bytes_per_s"]
        assert 8 * MIB <= round(rate * (ended - began)) < 9 * MIB
    finally:
        sampler.stop()
        made.kill()
        made.wait()


def test_writers_count_from_their_first_to_their_last_buffer(disk):
    program = """if True:
        import os, sys, time
        out = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
        input()
        for _ in range(5):
            os.write(out, bytes(1 << 20))
            os.fsync(out)
            time.sleep(0.5)
        input()
    """
    command = [sys.executable, "-c", program, disk / "out"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    sampler = sampling.Sampler("127.0.0.1")
    try:
        sampler.watch([process.pid])
        time.sleep(1)
        process.stdin.write(b"\n")
        process.stdin.flush()
        time.sleep(4)
        size, seconds = sampler.written()
        # The first buffer counts for the begin alone.
        assert size == pytest.approx(4 * MIB, rel=0.02) and 1.7 < seconds < 3.5, (size, seconds)
        assert sampler.written() == (0, 0)
    finally:
        sampler.stop()
        process.kill()
        process.wait()


def test_a_long_series_keeps_its_means_in_bounded_memory():
    made = series.Series(64)
    for second in range(10_000):
        made.add([float(second), *[float(second)] * len(series.COLUMNS)])
    ends, values = made.column("seconds"), made.column("cpu_share")
    assert 32 <= len(made) <= 64 and ends[-1] == 9999
    steps = [after - before for before, after in itertools.pairwise(ends)]
    assert len(set(steps[:-1])) == 1
    assert values[0] == sum(range(int(ends[0]) + 1)) / (ends[0] + 1)
    again = series.Series.from_json(json.loads(json.dumps(made.to_json())))
    assert again.column("seconds") == ends


# ---------------------------------------------------------------- a job


def test_the_bytes_of_a_sample_are_keys_and_have_no_rate():
    share = reports.NodeShare("n", 107_000, 1, {"reading": 0.1, "idle": 0.0})
    phases = [reports.Phase(name, 0.1, 107_000, (share,)) for name in ("sample", "map and shuffle")]
    assert phases[0].lines()[0] == "  sample           0.1 s, 107 kB of keys, bound by reading"
    assert phases[1].lines()[0] == "  map and shuffle  0.1 s, 107 kB, 1.07 MB/s, bound by reading"
    page = pages.phases_table([phase.to_json() for phase in phases])
    cells = [re.findall(r">([^<]*)</t[dh]>", row) for row in page.split("<tr>")[2:]]
    assert [row[:5] for row in cells] == [
        ["sample", "0.1 s", "107 kB of keys", "", ""],
        ["map and shuffle", "0.1 s", "107 kB", "1.07 MB/s", "1.07 MB/s"],
    ]


def test_the_bottleneck_is_what_takes_most_of_the_time():
    """Of a writer that is busy, its disks or the copy; of sorts, what is the bottleneck of their passes."""
    mapping = {"reading": 1.0, "grouping": 1.0, "blocked": 7.0, "memory": 0.0, "idle": 1.0}
    for writing, disk, bound in ((2.0, 2.0, "sending"), (4.0, 2.0, "writing"), (2.0, 4.0, "disk")):
        share = reports.NodeShare("n", 1, 1, {**mapping, "writing": writing, "disk": disk})
        assert share.bound_by(10.0) == bound
    bounds = {"device": 5.0, "sort": 3.0}
    assert reports.NodeShare("n", 1, 1, {"sorting": 9.0, "idle": 1.0}, bounds=bounds).bound_by(10.0) == "device"
    assert reports.NodeShare("n", 1, 1, {"sorting": 2.0, "idle": 8.0}, bounds=bounds).bound_by(10.0) == "idle workers"
    # Chunks of a job that pulls are sorted.
    sorting = {
        "reading": 0.0,
        "grouping": 9.0,
        "blocked": 0.0,
        "memory": 0.0,
        "writing": 0.0,
        "disk": 0.0,
        "idle": 1.0,
    }
    assert reports.NodeShare("n", 1, 1, sorting, bounds=bounds).bound_by(10.0) == "device"


def test_a_writer_tells_apart_what_it_writes_and_what_it_waits_for(disk):
    writer = Writer(bytes(16).hex(), shape={"waiting_bytes": MIB}, settings=Settings(write_size=MIB))
    assert writer.open(0, str(disk / "d")) == ((b"", None), None)
    for number in range(8):
        batch = _native.make_batch(bytes(16), 0, 0, number, number == 7, [(0, bytes(MIB))])
        assert writer.append(0, batch) == (True, None)
    first = writer.account()
    # Nothing but the last mebibytes may wait in the page cache.
    assert first["disk"] > 0 and first["writing"] > 0
    assert writer.sync(0) == (None, None)
    second = writer.account()
    assert second["disk"] > 0
    # Each account has what came since the one before.
    assert (writer.account()["disk"], writer.account()["writing"]) == (0, 0)
    assert writer.remove(0, str(disk / "d")) == (None, None) and writer.account()["disk"] == 0


def test_a_report_has_stages_nodes_and_series(cluster, disk):
    # Enough for several samples, of which there is one a second.
    ascot.gen(8_000_000, to=disk / "a")
    statuses = []

    def look(progress):
        # The job waits for the status of its phase, which is written once a second: a phase may be shorter.
        def seen():
            found = json.loads((disk / "out.job" / "status.json").read_text())
            statuses.append((progress, found))
            return found["phase"] == progress.phase

        wait_until(seen)

    done = cluster_sort(disk, disk / "a", partitions=12, progress=look)
    report = done.report
    # Every state of a worker is accounted for, in every phase.
    for phase in report.phases:
        for node in phase.nodes:
            told = sum(seconds for state, seconds in node.seconds.items() if state not in ("writing", "disk"))
            assert told == pytest.approx(phase.seconds * node.workers, rel=0.05, abs=0.2), (phase.name, node)
        workers = phase.stages[0]
        assert (workers.name, workers.threads) == ("workers", NODES)
        assert sum(workers.shares().values()) == pytest.approx(1)
        assert 0 < phase.fastest.ended <= phase.mean_seconds <= phase.slowest.ended <= phase.seconds
        assert phase.spread_seconds <= phase.slowest.ended - phase.fastest.ended
    _, mapping, sorting = report.phases
    # All but the first buffers, which are few; no faster than a phase that is shorter than the whole one.
    assert report.bytes / 4 < sum(node.written_bytes for node in mapping.nodes) <= report.bytes * 1.01
    assert mapping.writers_bytes_per_s * mapping.seconds * NODES > report.bytes / 4
    # The memory of a node holds the runs of three partitions.
    assert sum(node.appended_bytes for node in mapping.nodes) == pytest.approx(report.bytes, rel=0.01)
    assert mapping.run_bytes >= 4 * MIB and sorting.run_bytes is None
    assert {"workers", "read", "sort", "write"} <= {stage.name for stage in sorting.stages}
    # The passes of the sorts of a node, each with its bottleneck.
    for node in sorting.nodes:
        assert 0 < sum(node.bounds.values()) <= node.seconds["sorting"]
    text = str(report)
    assert "map and shuffle: writers" in text and "from the first to the last buffer, in runs of" in text
    # The samples of all nodes, on the clock of the phases.
    assert len(report.series) == NODES
    for samples in report.series.values():
        seconds = samples.column("seconds")
        assert len(seconds) >= 2 and seconds == sorted(seconds)
        assert 0 < seconds[-1] <= report.start_seconds + report.seconds + 2
        assert all(value > 20 * MIB for value in samples.column("job_memory_bytes"))
        shares = zip(
            *(samples.column(f"{name}_share") for name in ("busy", "idle", "blocked", "memory")), strict=True
        )
        assert all(sum(one) == pytest.approx(1) or sum(one) == 0 for one in shares)
        assert max(samples.column("store_bytes")) <= 80 * MIB
    assert any(max(samples.column("busy_share")) > 0 for samples in report.series.values())
    assert any(max(samples.column("store_bytes")) > 0 for samples in report.series.values())
    assert json.loads(json.dumps(report.to_json()))["phases"][1]["bound_by"] == mapping.bound_by
    # The status of the running job.
    _, status = statuses[-1]
    assert status["state"] == "running" and status["total_bytes"] == 800_000_000
    assert [node["state"] for node in status["nodes"]] == ["live"] * NODES
    assert any("map and shuffle ended" in line for _, line in status["log"])
    assert {status["phase"] for _, status in statuses} >= {"map and shuffle", "sort and reduce"}
    # Afterwards the report is in the list of the user's jobs, and nothing is left in the place of the job.
    kept = registry.entry(status["job"])
    assert kept["state"] == "finished" and kept["report"] == json.loads(json.dumps(report.to_json()))
    assert any("part" in line and "is complete" in line for _, line in kept["log"])
    assert_same(cluster, disk, done, disk / "a", layout=ascot.Fixed(100, key=slice(0, 10)))
    report.save_html(disk / "report.html")
    for dark in (False, True):
        with opened(disk / "report.html", dark=dark, ready="document.getElementById('report')") as shown:
            assert_page(shown, report, dark)


def table(shown, identifier):
    of_row = "(row) => [...row.cells].map((cell) => cell.textContent)"
    return shown.run(f"[...document.querySelectorAll('#{identifier} tbody tr')].map({of_row})")


def assert_page(shown, report, dark):
    ground = shown.run("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") != dark
    assert shown.run("document.getElementById('summary').textContent") == report.title()
    rows = {row[0]: row[1:] for row in table(shown, "phases")}
    assert set(rows) == {*(phase.name for phase in report.phases), "other", "total"}
    assert [rows[phase.name][-1] for phase in report.phases] == [phase.bound_by for phase in report.phases]
    assert len(table(shown, "stages")) == len(report.stages)
    assert {row[0] for row in table(shown, "used")} == set(report.series)
    nodes = shown.accessible()
    images = [name for role, name in nodes if role == "image"]
    assert len(images) >= NODES and all("mean" in name and "over time" in name for name in images)
    unnamed = [node for node in nodes if node[0] in ("image", "region", "navigation", "link") and not node[1]]
    assert not unnamed
    assert {"main", "navigation", "banner", "heading", "table"} <= {role for role, _ in nodes}
    # The keyboard reaches every link and every table that may be wider than the window, visibly.
    wanted, reached = shown.run("document.querySelectorAll('a,.wide').length"), set()
    for _ in range(wanted):
        shown.press("Tab")
        place = shown.run(
            "(() => { const one = document.activeElement; return [[...document.querySelectorAll('*')].indexOf(one), "
            "getComputedStyle(one).outlineStyle]; })()"
        )
        assert place[1] == "solid"
        reached.add(place[0])
    assert len(reached) == wanted


# ---------------------------------------------------------------- requests


def test_a_node_is_excluded_on_request_and_the_job_goes_on(cluster, disk):
    ascot.gen(100_000, to=disk / "a")

    def exclude():
        status = json.loads((disk / "out.job" / "status.json").read_text())
        watching.ask(str(disk / "out.job"), "exclude", node=status["nodes"][1]["name"])
        watching.ask(str(disk / "out.job"), "exclude", node="none")
        return status["nodes"][1]["name"]

    at = At("map and shuffle", 0.1, exclude)
    done = cluster_sort(disk, disk / "a", progress=at)
    assert done.report.lost_nodes == ((at.acted, "a user asked for it"),)
    assert_same(cluster, disk, done, disk / "a", layout=ascot.Fixed(100, key=slice(0, 10)))
    log = registry.entries()[0]["log"]
    assert any("refused: exclude none" in line for _, line in log)
    assert any(f"{at.acted} is excluded: a user asked for it" in line for _, line in log)


def test_a_job_directory_is_removed_with_requests_and_states_that_are_not_whole(disk):
    opened_job = manifest.JobDirectory.create(str(disk / "job"), {"job": "00"})
    watching.ask(str(disk / "job"), "stop")
    for name in ("status.json", "status.json.7.new", "request-1.json.7.new"):
        (disk / "job" / name).write_text("{")
    opened_job.remove()
    assert os.listdir(disk) == []


def test_the_list_of_jobs_keeps_the_newest_that_have_ended(monkeypatch, disk):
    monkeypatch.setenv("XDG_STATE_HOME", str(disk))
    for number in range(registry.ENDED_KEPT + 5):
        registry.keep(f"{number:032x}", {"state": "finished", "began": number})
    registry.keep("f" * 32, {"state": "running", "began": -1})
    found = registry.entries()
    assert [one["began"] for one in found] == [*range(registry.ENDED_KEPT + 4, 4, -1), -1]
    # A file that is none of ours harms no other.
    (disk / "ascot" / "cluster" / f"{7:032x}.json").write_text("[")
    assert len(registry.entries()) == registry.ENDED_KEPT
    registry.forget("f" * 32)
    assert registry.entry("f" * 32) is None and registry.entry("../x") is None
    assert all(
        os.stat(path).st_mode & 0o077 == 0 for path in (disk / "ascot" / "cluster").iterdir() if "07" not in path.name
    )
