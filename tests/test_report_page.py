"""`--report FILE.html`: the report of a job as a page, as a browser and a screen reader meet it."""

import itertools
import json
import re

import pytest
from page_browser import opened
from support import ALLOWANCE, bytes_text, measure, random_records, run

FIXED = ["--format", "fixed:100", "--key", "0..10", "--memory", "16MiB"]
CONTROLS = {"button", "checkbox", "combobox", "radio", "slider", "link", "spinbutton", "textbox"}


def report_of(done):
    """The report that `--progress json` prints."""
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    return next(line["report"] for line in lines if line["type"] == "report")


def table(shown, identifier):
    of_row = "(row) => [...row.cells].map((cell) => cell.textContent)"
    return shown.run(f"[...document.querySelectorAll('#{identifier} tbody tr')].map({of_row})")


def merged(disk, *more):
    """A sort with spills and its page; the report and the trace of the same job."""
    (disk / "in").write_bytes(random_records(600_000))
    done = run("sort", disk / "in", *FIXED, "--method", "merge", "--volume", "rotational", "--temp", disk,
               "-o", disk / "sorted.rec", "--report", disk / "run.html", "--trace", disk / "run.trace",
               "--progress", "json", *more)  # fmt: skip
    return report_of(done)


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_has_the_values_of_the_report(disk, dark):
    report = merged(disk)
    counted = json.loads(run("trace", "show", disk / "run.trace", "--json").stdout)
    with opened(disk / "run.html", dark=dark) as shown:
        inside = shown.run("JSON.parse(document.getElementById('report').textContent)")
        monitor = inside.pop("monitor")
        assert monitor["interval_seconds"] == 0.25 and monitor["seconds"]
        assert inside == {name: value for name, value in report.items() if name != "monitor"}
        assert report["monitor"] is None, "resources are only on the page, unless --monitor asks for them"
        # Plan beside account.
        planned = {row[0]: row[1:] for row in table(shown, "planned")}
        assert planned["read"][1] == bytes_text(report["moved"]["read_bytes"])
        assert planned["written"][1] == bytes_text(report["moved"]["written_bytes"])
        assert planned["switches"][1] == f"{report['moved']['switches']:,}"
        chosen = report["plan"]["chosen"]["passes"]
        assert planned["read"][0] == bytes_text(sum(one["read_bytes"] for one in chosen))
        assert [row[0] for row in table(shown, "planned-passes")] == [one["name"] for one in chosen]
        assert [row[0] for row in table(shown, "passes")] == [one["name"] for one in report["passes"]]
        # Stages and threads.
        stages = {row[0]: row[1:] for row in table(shown, "stages")}
        for step in report["passes"]:
            for stage in step["stages"]:
                row = stages[f"{step['name']}: {stage['name']}"]
                waits = ("busy", "waiting_input", "waiting_memory", "waiting_device", "processor")
                assert row[1:6] == [f"{stage[f'{wait}_seconds']:.3f} s" for wait in waits]
        threads = sum(len(stage["by_thread"]) for step in report["passes"] for stage in step["stages"])
        assert len(table(shown, "threads")) == threads
        rows = [[step["name"], f"{step['began_seconds']:.3f} s", f"{step['ended_seconds']:.3f} s"]
                for step in report["passes"]]  # fmt: skip
        assert [row[:3] for row in table(shown, "timeline")] == rows
        # The same requests as in the trace, by their final names; and the buckets.
        requests = counted["reads"] + counted["writes"]
        assert f"of {requests:,} requests" in shown.run("document.getElementById('state-0').textContent")
        bands = {band["path"] for band in shown.run("seekCharts.shared.charts[0].data.bands")}
        assert str(disk / "sorted.rec") in bands and str(disk / "in") in bands
        assert [row[3] for row in table(shown, "bowties-0")] == [f"{counted['bowties'][0]['turns']:,}"]
        # Resources.
        used = {row[0] for row in table(shown, "used")}
        assert {"process: resident", "process: processors"} <= used
        ground = shown.run("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") != dark
    assert not [path.name for path in disk.iterdir() if path.name.startswith(".")], "the page's trace is gone"


def test_a_screen_reader_finds_names_and_landmarks(disk):
    merged(disk)
    with opened(disk / "run.html") as shown:
        nodes = shown.accessible()
        unnamed = [node for node in nodes if node[0] in CONTROLS | {"image", "region", "navigation"} and not node[1]]
        assert not unnamed
        roles = {role for role, _ in nodes}
        assert {"main", "navigation", "banner", "heading", "table", "slider", "combobox", "button", "radio"} <= roles
        headings = [name for role, name in nodes if role == "heading"]
        assert headings[:4] == ["Report of sorted.rec", "Plan", "Time", "Bytes and runs"], headings
        levels = shown.run("[...document.querySelectorAll('h1,h2,h3,h4')].map((one) => +one.tagName[1])")
        assert levels.count(1) == 1 and all(b - a <= 1 for a, b in itertools.pairwise(levels)), levels
        # Every chart is named, and a table has its numbers.
        charts = shown.run(
            "[...document.querySelectorAll('svg,canvas')].map((one) => "
            "[one.getAttribute('role'), one.getAttribute('aria-label'), "
            "!!(one.id === 'chart-0' ? document.getElementById('files-0') "
            ": one.closest('section').querySelector('table'))])"
        )
        assert len(charts) > 5 and all(role == "img" and label and near for role, label, near in charts), charts
        assert shown.run("document.documentElement.lang") == "en"


def test_the_keyboard_reaches_every_control(disk):
    merged(disk)
    with opened(disk / "run.html") as shown:
        shown.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        wanted = shown.run(
            "document.querySelectorAll('button,select,input:not([type=radio]),input[type=radio]:checked,a,summary,"
            "canvas[tabindex],.wide').length"
        )
        reached = set()
        for _ in range(3 * wanted):
            shown.press("Tab")
            place = shown.run(
                """(() => {
                    const one = document.activeElement;
                    if (one === document.body) return null;
                    const all = [...document.querySelectorAll('*')];
                    return [all.indexOf(one), one.tagName, getComputedStyle(one).outlineStyle];
                })()"""
            )
            if place is None and reached:
                break
            if place:
                assert place[2] == "solid", f"the focus is visible: {place}"
                reached.add(place[0])
        assert len(reached) == wanted


def jobs(disk):
    (disk / "in").write_bytes(random_records(20_000))
    sort = ["sort", disk / "in", *FIXED]
    run(*sort, "-o", disk / "sorted")
    run(*sort, "--view", disk / "view")
    by_hash = ["--by", "hash", "--parts", "3"]
    yield "sort", [*sort, "-o", disk / "out"]
    yield "merge", ["merge", disk / "sorted", disk / "sorted", *FIXED, "-o", disk / "out"]
    yield "split", ["split", disk / "in", *FIXED, *by_hash, "-o", disk / "part-{}"]
    yield "reshape", ["reshape", disk / "sorted", *FIXED, *by_hash, "-o", disk / "other-{}"]
    yield "view", ["view", disk / "view", "-o", disk / "out"]
    copy = "cat /dev/fd/$ASCOT_IN_0 > /dev/fd/$ASCOT_OUT_0"
    ends = ["--inputs", disk / "in", "--outputs", disk / "out"]
    yield "flow", ["flow", *ends, "--memory", "8MiB", "--", "sh", "-c", copy]


def test_every_job_writes_a_page(disk):
    for name, job in jobs(disk):
        page = disk / f"{name}.html"
        run(job[0], "--report", page, *job[1:])
        assert page.stat().st_mode & 0o444
        with opened(page) as shown:
            assert " requests, " in shown.run("document.getElementById('state-0').textContent"), name
            verb = shown.run("JSON.parse(document.getElementById('report').textContent).verb")
            assert shown.run("document.getElementById('summary').textContent").startswith(verb), name
            assert table(shown, "passes"), name


@pytest.mark.parametrize("width", [360, 1400])
def test_nothing_is_wider_than_the_window(disk, width):
    """Long names and wide tables wrap, or scroll in boxes of their own."""
    deep = disk / ("a-long-name-without-a-space-" * 4) / ("another-" * 12)
    deep.mkdir(parents=True)
    (deep / "in").write_bytes(random_records(300_000))
    run("sort", deep / "in", *FIXED, "--method", "merge", "--temp", disk, "-o", deep / "out",
        "--report", disk / "run.html", "--trace", disk / "run.trace")  # fmt: skip
    run("trace", "plot", disk / "run.trace", "-o", disk / "plot.html")
    run("trace", "compare", disk / "run.trace", disk / "run.trace", "-o", disk / "both.html")
    for page in ("run.html", "plot.html", "both.html"):
        with opened(disk / page, width=width) as shown:
            shown.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            wide = shown.run(
                """[...document.querySelectorAll('body *')].filter((one) => {
                    const box = one.closest('.wide,.timeline');
                    return one.getBoundingClientRect().right > innerWidth + 1 && (!box || box === one);
                }).map((one) => one.outerHTML.slice(0, 80))"""
            )
            assert not wide, (page, wide)
            assert shown.run("document.documentElement.scrollWidth") <= width, page


def test_names_on_the_page_are_text(disk):
    name = "<b onclick=x>&"
    (disk / name).write_bytes(random_records(100))
    run("sort", disk / name, *FIXED, "-o", disk / f"{name}.out", "--report", disk / "run.html")
    with opened(disk / "run.html") as shown:
        assert shown.run("document.querySelectorAll('b').length") == 0
        assert shown.run("document.querySelector('h1').textContent") == f"Report of {name}.out"


def test_a_page_keeps_the_job_within_its_memory(disk):
    (disk / "in").write_bytes(random_records(600_000))
    peaks = []
    for page in ([], ["--report", disk / "run.html"]):
        done = measure("sort", disk / "in", *FIXED, "--method", "merge", "--temp", disk, "-o", disk / "out", *page)
        peaks.append(done.peak_resident_bytes)
    assert peaks[1] <= (16 << 20) + ALLOWANCE and peaks[1] - peaks[0] < 8 << 20, peaks


def test_a_page_that_cannot_be_written_leaves_the_old_output(disk):
    (disk / "in").write_bytes(random_records(100))
    (disk / "out").write_text("old")
    told = run("sort", disk / "in", *FIXED, "-o", disk / "out", "--report", disk / "no/run.html", expect=2).stderr
    assert "run.html" in told and (disk / "out").read_text() == "old"


def test_what_makes_no_requests_has_neither_page_nor_trace(disk):
    (disk / "in").write_bytes(random_records(100))
    sort = ["sort", disk / "in", *FIXED]
    for words, told in [
        ([*sort, "--explain", "--trace", disk / "t"], "'--explain' and '--trace' are incompatible"),
        ([*sort, "--explain", "--report", disk / "t.html"], "a plan has no page"),
        ([*sort, "-c", "--trace", disk / "t"], "'-c' and '--trace' are incompatible"),
        ([*sort, "-C", "--trace", disk / "t"], "'-C' and '--trace' are incompatible"),
    ]:
        assert told in run(*words, expect=2).stderr
        assert not (disk / "t").exists() and not (disk / "t.html").exists()
    assert re.search(r"\bplan\b", run(*sort, "--explain").stdout.decode())
