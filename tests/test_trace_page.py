"""`ascot trace plot` and `compare`, as a browser shows their pages: charts, tables, keyboard, light and dark."""

import csv
import io
import json
import random
import re

import pytest
from page_browser import opened
from support import bytes_text, census, run

PROFILE = """
name = "array"
read_bytes_per_s = 1e9
write_bytes_per_s = 1e9
switch_seconds = 0.01
"""


def spelled(name):
    """A name as strace shows it behind a descriptor."""
    return name.replace("<", "\\74").replace(">", "\\76")


def trace_of(disk, requests, name="run", microseconds=1):
    """A trace of (file, "pread64" or "pwrite64", offset, bytes)."""
    log, trace = disk / f"{name}.log", disk / f"{name}.trace"
    with open(log, "w") as to:
        to.write('100 1700000000.000000 execve("/bin/x", [...], 0x1 /* 9 vars */) = 0\n')
        files = {}
        for n, (file, call, offset, size) in enumerate(requests):
            time = f"{1700000000 + n * microseconds // 1_000_000}.{n * microseconds % 1_000_000:06d}"
            if file not in files:
                files[file] = len(files) + 3
                to.write(f'100 {time} openat(AT_FDCWD</d>, "{file}", O_RDWR) = {files[file]}</d/{spelled(file)}>\n')
            to.write(f'100 {time} {call}({files[file]}</d/{spelled(file)}>, ""..., {size}, {offset}) = {size}\n')
        to.write(f"100 {time} +++ exited with 0 +++\n")
    run("trace", "convert", log, "-o", trace)
    log.unlink()
    return trace


def read(file, offset, size):
    return (file, "pread64", offset, size)


def write(file, offset, size):
    return (file, "pwrite64", offset, size)


def plotted(trace):
    page = trace.with_suffix(".html")
    run("trace", "plot", trace, "-o", page)
    return page


def cells(shown, rows):
    """The text of the cells of the rows that a selector names."""
    of_row = "(row) => [...row.cells].map((cell) => cell.textContent)"
    return shown.run(f"[...document.querySelectorAll('{rows}')].map({of_row})")


def table(shown, identifier):
    """The cells of a table by the name of their row."""
    rows = cells(shown, f"#{identifier} tr")
    return {row[0]: row[1:] for row in rows}


def pixels(shown, chart=0):
    """The plot of a chart as a function: the colour at (column, row), counted from its lower left corner."""
    width, height, data = shown.run(
        f"""(() => {{
            const {{canvas, plot}} = seekCharts.shared.charts[{chart}];
            const image = canvas.getContext('2d').getImageData(plot.left, plot.top, plot.width, plot.height).data;
            const words = new Uint32Array(image.buffer);
            return [plot.width, plot.height, [...words].map((word) => word & 0xffffff)];
        }})()"""
    )
    return width, height, lambda column, row: data[(height - 1 - row) * width + column]


def colours(shown):
    """The colours of reads, of writes and of both, as numbers like those of pixels."""
    names = "['--read', '--write', '--both']"
    texts = shown.run(
        f"{names}.map((name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim())"
    )
    return [int(text[5:7] + text[3:5] + text[1:3], 16) for text in texts]


def state(shown, chart=0):
    return shown.run(f"document.getElementById('state-{chart}').textContent")


def view(shown):
    return shown.run("seekCharts.shared.view")


@pytest.mark.parametrize("dark", [False, True])
def test_a_lone_seek_in_a_million_sequential_requests_is_seen(disk, dark):
    scan = [read("in", n * 4096, 4096) for n in range(1_000_000)]
    scan.insert(300_000, write("in", 3_000_000_000, 1))
    page = plotted(trace_of(disk, scan))
    assert page.stat().st_size < 100_000, "a scan is stored as runs"
    with opened(page, dark=dark) as shown:
        width, height, at = pixels(shown)
        reads, writes, _ = colours(shown)
        column, row = 300_000 * width // 1_000_001, 3_000_000_000 * height // 4_096_000_000
        # The scan does not come near it: its pixels are those of the write alone.
        assert at(column, row) == writes
        assert [at(column + side, row) for side in (-1, 1)] == [at(column, row + 5)] * 2
        assert at(width // 4, height // 4) == reads and at(width // 2, height // 2) == reads
        assert "Requests 1 to 1,000,001: 1,000,001 of 1,000,001 requests, 3 runs, at whatever offset." in state(shown)
        assert re.search(rf"A column of pixels stands for {-(-1_000_001 // width):,} requests at most", state(shown))
        ground = shown.run("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") != dark
        brightness = sum(at(5, height - 5).to_bytes(3, "little"))
        assert brightness < 200 if dark else brightness > 600


def expected_pixels(shown, trace):
    """(column, row, kind) of the start of every request that the view contains."""
    text = run("trace", "export", trace, "--csv", "-").stdout.decode()
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row["kind"] in ("read", "write")]
    bands = {band["path"]: band for band in shown.run("seekCharts.shared.charts[0].data.bands")}
    plot, seen = shown.run("seekCharts.shared.charts[0].plot"), view(shown)
    for number, row in enumerate(rows):
        band = bands[row["path"]]
        y = band["start"] + int(row["offset"]) - band["low"]
        column = (number - seen["x0"]) * plot["width"] / (seen["x1"] - seen["x0"])
        line = (y - seen["y0"]) * plot["height"] / (seen["y1"] - seen["y0"])
        # Rounding decides about places on the edge of two pixels: these may be either.
        if 1 <= column < plot["width"] - 1 and 1 <= line < plot["height"] - 1:
            yield column, line, row["kind"]


def either(place):
    """The pixel of a place, and the one at its nearer edge."""
    return (int(place), int(place) + (1 if place % 1 >= 0.5 else -1))


@pytest.mark.parametrize("count", [3_000, 130_000])
def test_every_run_has_a_pixel_at_every_zoom(disk, count):
    """Below and above the number of pieces from which on views come from an overview."""
    chance = random.Random(7)
    calls = [
        (read, write)[chance.random() < 0.5](chance.choice("abc"), chance.randrange(1 << 30), 4096)
        for _ in range(count)
    ]
    trace = trace_of(disk, calls)
    with opened(plotted(trace)) as shown:
        marks = set(colours(shown))
        for zooms in range(4):
            _, _, at = pixels(shown)
            found = list(expected_pixels(shown, trace))
            assert len(found) > count / 5.1**zooms / 2, "a view has its share of the requests"
            # A view of the overview may move a mark by a cell, which is less than a pixel.
            near = [
                [at(x, y) for x in either(column) for y in either(line)] for column, line, _ in found
            ]  # fmt: skip
            hidden = [place for place, seen in zip(found, near, strict=True) if not marks & set(seen)]
            assert not hidden, (zooms, len(hidden), hidden[:3])
            shown.run("document.querySelector('canvas').focus()")
            for _ in range(2):
                shown.press("+")
        assert f"of {count:,} requests" in state(shown)
        # A view by time counts the same requests.
        shown.press("0")
        shown.run("document.querySelector('[value=time]').click()")
        assert f"{count:,} of {count:,} requests, {count:,} runs" in state(shown)


def test_the_keyboard_zooms_moves_and_resets(disk):
    page = plotted(trace_of(disk, [read("in", n * 100, 100) for n in range(1000)]))
    with opened(page) as shown:
        whole = view(shown)
        for _ in range(40):
            shown.press("Tab")
            if shown.run("document.activeElement.tagName") == "CANVAS":
                break
        assert shown.run("document.activeElement.tagName") == "CANVAS"
        assert shown.run("getComputedStyle(document.activeElement).outlineStyle") == "solid", "the focus is visible"
        shown.press("+")
        zoomed = view(shown)
        assert zoomed["x1"] - zoomed["x0"] == pytest.approx(1000 / 1.5)
        assert zoomed["y1"] - zoomed["y0"] == pytest.approx((whole["y1"] - whole["y0"]) / 1.5)
        shown.press("ArrowLeft")
        assert view(shown)["x0"] < zoomed["x0"] and view(shown)["y0"] == zoomed["y0"]
        before = view(shown)
        shown.press("ArrowRight", shift=True)
        shown.press("ArrowRight", shift=True)
        assert view(shown)["x1"] - view(shown)["x0"] == pytest.approx((before["x1"] - before["x0"]) / 2.25)
        assert view(shown)["y1"] == before["y1"]
        shown.press("-")
        assert view(shown)["x1"] - view(shown)["x0"] == pytest.approx((before["x1"] - before["x0"]) / 1.5)
        shown.press("0")
        assert view(shown) == whole
        for _ in range(30):
            shown.press("+")
        found = re.match(r"Requests (\d+) to (\d+): \d of 1,000 requests, 1 run, .* 1 request at most", state(shown))
        assert found and int(found[2]) - int(found[1]) < 6, "zooming in reveals single requests"


def test_single_requests_are_boxes_hollow_for_reads_and_filled_for_writes(disk):
    requests = [read("in", 0, 1000), write("in", 1000, 1000), read("in", 2000, 1000), write("in", 3000, 1000)]
    with opened(plotted(trace_of(disk, requests))) as shown:
        width, height, at = pixels(shown)
        reads, writes, _ = colours(shown)
        for number, colour in enumerate([reads, writes, reads, writes]):
            left, right = number * width // 4, (number + 1) * width // 4
            # The diagonal of the chart passes through the middle of each box; its other corners are empty or filled.
            inside = at(left + (right - left) // 8, number * height // 4 + height // 5)
            assert inside == writes if colour == writes else inside not in (reads, writes), number
        shown.run("document.getElementById('writes').click()")
        shown.press("0")
        _, _, at = pixels(shown)
        counted = {at(column, row) for column in range(width) for row in range(0, height, 3)}
        assert reads in counted and writes not in counted


def test_every_control_has_a_name_and_works(disk):
    page = plotted(trace_of(disk, [read("in", n * 100, 100) for n in range(1000)]))
    with opened(page) as shown:
        nodes = shown.call("Accessibility.getFullAXTree")["nodes"]
        nodes = [node for node in nodes if not node.get("ignored")]
        named = [(node["role"]["value"], node.get("name", {}).get("value")) for node in nodes]
        for role in ("button", "radio", "checkbox"):
            names = [name for one, name in named if one == role]
            assert names and all(names) and len(set(names)) == len(names), (role, names)
        charts = [name for role, name in named if role in ("image", "img") and "Seek chart" in (name or "")]
        assert len(charts) == 1 and "tables" in charts[0]
        assert {name for role, name in named if role == "table"} >= {"Census", "Runs of each file", "Length of runs"}
        for action in ("in", "right", "up", "out", "left", "down"):
            before = view(shown)
            shown.run(f"document.querySelector('[data-do={action}]').click()")
            assert view(shown) != before, action
        shown.run("document.querySelector('[data-do=reset]').click()")
        assert view(shown)["x1"] == 1000
        shown.run("document.querySelector('canvas').focus()")
        box = shown.run("(({x, y, width, height}) => ({x: x + width / 2, y: y + height / 2}))"
                        "(document.querySelector('canvas').getBoundingClientRect())")  # fmt: skip
        shown.call("Input.dispatchMouseEvent", type="mouseWheel", deltaX=0, deltaY=-100, **box)
        assert view(shown)["x1"] - view(shown)["x0"] == pytest.approx(1000 / 1.5)
        x0 = view(shown)["x0"]
        shown.call("Input.dispatchMouseEvent", type="mousePressed", button="left", clickCount=1, **box)
        aside = {"x": box["x"] + 50, "y": box["y"]}
        shown.call("Input.dispatchMouseEvent", type="mouseMoved", button="left", buttons=1, **aside)
        shown.call("Input.dispatchMouseEvent", type="mouseReleased", button="left", clickCount=1, **aside)
        assert view(shown)["x0"] < x0


def test_tables_have_the_numbers_of_the_census(disk):
    chance = random.Random(3)
    calls = [(read, write)[n % 3 == 0](f"f{n % 5}", n * 100, chance.randrange(1, 5000)) for n in range(2000)]
    trace = trace_of(disk, calls)
    counted = census(trace)
    with opened(plotted(trace)) as shown:
        found = table(shown, "census")
        assert found["switches"] == [f"{counted['runs']:,}"]
        assert found["switches attempted"] == [f"{counted['attempts']:,}"]
        assert found["requests"] == [f"{counted['reads'] + counted['writes']:,}"]
        assert found["events"] == [f"{counted['events']:,}"]
        assert found["bytes read"] == [bytes_text(counted["read_bytes"])]
        assert found["bytes written"] == [bytes_text(counted["written_bytes"])]
        assert found["mean run"] == [bytes_text(counted["mean_run_bytes"])]
        files = table(shown, "files-0")
        assert len(files) == 6
        for file in counted["by_file"]:
            assert files[file["path"]] == [
                bytes_text(file["read_bytes"]), bytes_text(file["written_bytes"]),
                f"{file['reads'] + file['writes']:,}", f"{file['runs']:,}", bytes_text(file["mean_run_bytes"]),
            ]  # fmt: skip
        lengths = table(shown, "lengths-0")
        assert [row[0] for row in lengths.values()][1:] == [f"{one['runs']:,}" for one in counted["run_lengths"]]
        assert f"{counted['runs']:,} runs" in state(shown), "the chart has the runs of the census"


def test_rates_are_those_of_the_requests(disk):
    # A second of reading at 1 MB/s, then a second of writing at 2 MB/s.
    calls = [read("in", n * 1000, 1000) for n in range(1000)] + [write("out", n * 2000, 2000) for n in range(1000)]
    with opened(plotted(trace_of(disk, calls, microseconds=1000))) as shown:
        rows = cells(shown, ".rates tbody tr")
        assert len(rows) == 24
        units = {"B/s": 1e-6, "kB/s": 1e-3, "MB/s": 1}
        megabytes = [[float(number) * units[unit] for number, unit in map(str.split, row[1:])] for row in rows]
        for read_rate, written_rate in megabytes[:11]:
            assert (read_rate, written_rate) == (pytest.approx(1, rel=0.02), 0)
        for read_rate, written_rate in megabytes[13:]:
            assert (read_rate, written_rate) == (0, pytest.approx(2, rel=0.02))


def test_traces_are_compared_at_equal_scales(disk):
    few = trace_of(disk, [read("in", n * 1000, 1000) for n in range(500)], "few")
    many = trace_of(disk, [read("in", n % 2 * 500_000 + n * 500, 1000) for n in range(1000)], "many")
    profile = disk / "array.toml"
    profile.write_text(PROFILE)
    page = disk / "page.html"
    words = ["trace", "compare", few, many, "--on", profile, "--data", "500kB"]
    found = json.loads(run(*words, "-o", page, "--json").stdout)
    assert [one["census"] for one in found] == [census(few), census(many)]
    assert [one["census"]["runs"] for one in found] == [1, 1000]
    assert [one["passes"] for one in found] == [0.5, 1.0]
    for one, trace in zip(found, (few, many), strict=True):
        assert one["replay"] == json.loads(run("trace", "replay", trace, "--on", profile, "--json").stdout)
    text = run(*words).stdout.decode()
    rows = {line[:20].strip(): line[20:].split() for line in text.splitlines()[1:]}
    assert rows["switches"] == ["1", "1,000"] and rows["passes over the data"] == ["0.50", "1.00"]
    assert max(len(line) for line in text.splitlines()) <= 80
    with opened(page) as shown:
        shown_rows = table(shown, "census")
        assert [" ".join(row) for row in shown_rows.values()][1:] == [" ".join(row) for row in rows.values()]
        reads = colours(shown)[0]
        # The scan of 500 kB in 500 requests ends in the middle of an axis of 1,000 requests.
        width, height, at = pixels(shown, 0)
        last = max(column for column in range(width) for row in range(height) if at(column, row) == reads)
        assert last == pytest.approx(width / 2, abs=2)
        top = max(row for row in range(height) for column in range(width) if at(column, row) == reads)
        reach = shown.run("seekCharts.shared.charts[1].data.bands[0].high")
        assert top == pytest.approx(height * 500_000 / reach, abs=2)
        shown.run("document.getElementById('chart-1').focus()")
        shown.press("+")
        assert "of 500 requests" in state(shown, 0) and "of 1,000 requests" in state(shown, 1)
        assert "Requests 167 to 500" in state(shown, 0) and "Requests 167 to 834" in state(shown, 1)


def test_a_short_trace_beside_a_long_one_fills_its_chart(disk):
    few = trace_of(disk, [read("in", n * 1000, 1000) for n in range(30)], "few")
    many = trace_of(disk, [read("in", n * 1000, 1000) for n in range(1000)], "many")
    run("trace", "compare", few, many, "-o", disk / "page.html")

    def last_column(shown):
        reads = colours(shown)[0]
        width, height, at = pixels(shown, 0)
        return max(column for column in range(width) for row in range(height) if at(column, row) == reads) / width

    with opened(disk / "page.html") as shown:
        assert last_column(shown) > 0.98 and not shown.run("document.getElementById('equal').checked")
        shown.run("document.getElementById('equal').click()")
        shown.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert last_column(shown) == pytest.approx(0.03, abs=0.01)


def test_names_of_files_are_text_and_damage_is_told(disk):
    name = "</script><img src=http:x onerror=alert(1)>"
    trace = trace_of(disk, [read(name, 0, 10), read("b", 0, 10)])
    page = plotted(trace)
    with opened(page) as shown:
        assert shown.run("document.images.length") == 0
        assert any(name in row for row in table(shown, "files-0"))
    whole = page.read_text()
    assert 'http-equiv="Content-Security-Policy" content="default-src \'none\'' in whole
    page.write_text(re.sub(r'<script type="text/plain".*?</script>', "", whole, flags=re.DOTALL))
    with opened(page) as shown:
        assert "cannot be drawn" in state(shown) and "tables" in state(shown)


def test_long_names_hide_no_numbers(disk):
    name = "directory-of-a-job/" * 12 + "part.parquet"
    trace = trace_of(disk, [read(name, 0, 10), read("b", 0, 10)])
    with opened(plotted(trace), width=1600) as shown:
        assert any(name in row for row in table(shown, "files-0")), "the whole name is text"
        hidden = shown.run(
            """[...document.querySelectorAll('#files-0')].map((table) => {
                const region = table.closest('.wide');
                return region.scrollWidth - region.clientWidth;
            })"""
        )
        assert hidden == [0]


def test_labels_of_the_axis_are_whole(disk):
    trace = trace_of(disk, [read("a", n * 8192, 10) for n in range(100_001)])
    count = """(() => {
        const ends = [], chart = seekCharts.shared.charts[0], context = chart.canvas.getContext('2d');
        context.fillText = function (text, x) {
            const width = this.measureText(text).width;
            ends.push({centre: this.textAlign === 'center', end: x + width / 2 - this.canvas.width});
        };
        chart.drawAxis(context);
        return ends.filter(({centre}) => centre).map(({end}) => end);
    })()"""
    with opened(plotted(trace)) as shown:
        ends = shown.run(count)
        assert len(ends) > 5 and max(ends) <= 0.5, ends


def test_long_names_of_bands_end_with_an_ellipsis(disk):
    trace = trace_of(disk, [read("x" * 200, 0, 1_000_000), read("short", 0, 1_000_000)])
    labels = """(() => {
        const found = [], chart = seekCharts.shared.charts[0], context = chart.canvas.getContext('2d');
        context.fillText = function (text, x, y, most) {
            found.push({text, squeezed: most !== undefined && this.measureText(text).width > most});
        };
        chart.drawBands(context);
        return found;
    })()"""
    with opened(plotted(trace)) as shown:
        found = shown.run(labels)
        assert not [label for label in found if label["squeezed"]], found
        assert "short" in [label["text"] for label in found]
        [long] = [label["text"] for label in found if label["text"].startswith("xxx")]
        assert long.endswith("x…") and 20 < len(long) < 200


def test_a_trace_without_requests_has_a_page(disk):
    log = disk / "log"
    log.write_text('100 1700000000.000000 execve("/bin/x", [...], 0x1 /* 9 vars */) = 0\n')
    run("trace", "convert", log, "-o", disk / "run.trace")
    with opened(plotted(disk / "run.trace")) as shown:
        assert "0 of 0 requests" in state(shown)


def test_mistakes_are_named(disk):
    trace = trace_of(disk, [read("in", 0, 10)])
    for words, told in [
        (["plot", trace, "-o", trace], "would replace what it is made of"),
        (["compare", trace, "-o", trace], "would replace what it is made of"),
        (["plot", trace], "--output"),
        (["compare", trace, "--data", "5"], "unit"),
        (["compare", trace, "--on", "nowhere"], "there is no profile"),
        (["compare", trace, "missing"], "missing"),
    ]:
        assert told in run("trace", *words, expect=2).stderr
    assert census(trace)["reads"] == 1


def test_ten_million_runs_open_in_three_seconds(disk):
    """A tenth of them, in the time of all. The time of the page's thread counts: the machine may be busy."""
    count = 1_000_000
    trace = trace_of(disk, (read("in", n % 8 * 1_000_000_000 + n // 8 * 65536, 65536) for n in range(count)))
    with opened(plotted(trace)) as shown:
        assert f"{count:,} of {count:,} requests, {count:,} runs" in state(shown)
        # The time of the thread that runs the page, until now.
        metrics = {one["name"]: one["value"] for one in shown.call("Performance.getMetrics")["metrics"]}
        assert metrics["TaskDuration"] < 3, metrics
