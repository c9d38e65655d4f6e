"""The study of streams as a user runs it: rows that stay, a page that a browser shows, and wrong input."""

import contextlib
import csv
import os
import pty
import re
import shutil
import signal
import subprocess
import time
from html.parser import HTMLParser

import pytest
from support import MIB, ascot_binary, clean_environment, kill, leftovers, run, small_disk, start

HEADER = (
    "Direction;Stream;N;k;B;Cache;Loops;Mean ms;Min ms;Max ms;Deviation ms;I/Os by formula;I/Os counted;ns of loops;"
    "Place"
)
# The whole study of smaller files takes about two minutes, more on a loaded machine.
QUICK_SECONDS = 900


def rows_of(directory):
    """The rows of a table of results."""
    with open(directory / "streams.csv", newline="") as table:
        return list(csv.DictReader(table, delimiter=";"))


def keys_of(rows):
    return [tuple(row[name] for name in ("Direction", "Stream", "N", "k", "B", "Cache")) for row in rows]


def browser():
    """A headless browser, or a failure: the setup of the tests installs one."""
    names = ("chromium-headless-shell", "chromium", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    assert found, "no headless browser: install chromium-headless-shell"
    return found


def seconds_of(text):
    """The seconds of a time as the command prints it: `1 min 30 s`."""
    units = {"h": 3600, "min": 60, "s": 1, "ms": 1e-3}
    words = text.split()
    return sum(float(count) * units[unit] for count, unit in zip(words[::2], words[1::2], strict=True))


class Elements(HTMLParser):
    """The elements of a page: those with an id, and for each what it contains."""

    # Elements without an end.
    VOID = ("meta", "link", "br", "img", "hr", "input")

    def __init__(self, text):
        super().__init__()
        self.open, self.inside, self.all = [], {}, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.all.append((tag, dict(attributes)))
        identifier = dict(attributes).get("id")
        if identifier:
            assert identifier not in self.inside, f"two elements are called {identifier}"
            self.inside[identifier] = []
        for name in {name for _, name in self.open if name}:
            self.inside[name].append(tag)
        if tag not in self.VOID:
            self.open.append((tag, identifier))

    def handle_endtag(self, tag):
        while self.open and self.open.pop()[0] != tag:
            pass


def shown(page):
    """The elements of a page as a browser shows it; an error or a request to the outside is a failure."""
    options = ["--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    command = [browser(), *options, page.resolve().as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line or "Refused" in line]
    assert not complaints, complaints
    return Elements(done.stdout)


def test_the_quick_study_ends_in_a_page_with_every_table_and_figure(disk):
    out = disk / "results"
    since = time.monotonic()
    done = run("lab", "all", "--quick", "--out", out, "--plot", timeout=QUICK_SECONDS)
    seconds = time.monotonic() - since
    # The loops themselves, the shortest of each measurement, take less than two minutes also on a loaded machine; the
    # prediction is right within a factor of four even there.
    with open(out / "sorts.csv", newline="") as table:
        sorts = list(csv.DictReader(table, delimiter=";"))
    loops = [[int(ns) for ns in row["ns of loops"].split(",")] for row in rows_of(out) + sorts]
    measured = sum((len(times) + 1) * min(times) for times in loops) / 1e9
    assert measured < 120
    predicted = seconds_of(re.search(r"about ([^,]+),", done.stderr).group(1))
    assert seconds / 4 < predicted < seconds * 4, (predicted, seconds)
    assert "measurements to make: about" in done.stderr
    assert "predicted" in done.stdout.decode() and "index.html" in done.stdout.decode()
    rows = rows_of(out)
    assert {row["Stream"] for row in rows} == {"plain", "buffered", "sized", "mapped", "direct"}
    assert {(row["Direction"], row["Cache"]) for row in rows} == {
        (direction, cache) for direction in ("read", "write") for cache in ("cold", "warm")
    }
    assert len(set(keys_of(rows))) == len(rows)
    table = out / "sorts.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:-3]))
    again = run("lab", "all", "--quick", "--out", out, timeout=QUICK_SECONDS)
    assert "ascot: 3 measurements to make (" in again.stderr, "the study continues after its finished measurements"
    for row in rows:
        # The formula rounds the blocks of all streams up once, each stream has a last block of its own.
        formula, counted = int(row["I/Os by formula"]), int(row["I/Os counted"])
        assert formula <= counted <= formula + int(row["k"]) - 1, row
        assert len(row["ns of loops"].split(",")) == int(row["Loops"]) - 1

    page = shown(out / "index.html")
    for number in (2, 3, 4, 5, 6, 8, 9):
        assert page.inside[f"table-{number}"].count("td") > 2, number
    for number in range(4, 34):
        figure = page.inside[f"figure-{number}"]
        assert "svg" in figure and figure.count("circle") > 1, number
    assert not [tag for tag, attributes in page.all if "src" in attributes or tag in ("script", "link")]
    charts = {path.name for path in (out / "charts").iterdir()}
    assert {"figure-4-warm.svg", "figure-29-cold.svg"} <= charts
    assert {f"figure-{number}.svg" for number in range(30, 34)} <= charts
    hidden = [name for name in leftovers(out) if name.startswith(".ascot")]
    assert not hidden


SMALL = ["--stream", "plain,sized,mapped,direct", "--n", "1e3..1e4", "--k", "1,3", "--b", "12..13", "--loops", "2"]


def test_flags_and_a_file_of_parameters_measure_the_same_cells(disk):
    run("lab", "streams", *SMALL, "--out", disk / "flags")
    text = "".join(
        f"{name};1000,1e4;1,3;12,13;2\n" for name in ("Simple", "BufferB", "MAPPING", "direct")
    )
    header = "Stream Type;Total integers per file;Nr of streams;Buffer size range;Nr Loops\n"
    (disk / "p.csv").write_text(header + text)
    run("lab", "streams", "--params", disk / "p.csv", "--out", disk / "file", "--quiet")
    assert (disk / "file" / "streams-parameters.csv").read_text().splitlines()[0] == header.strip()
    written = disk / "flags" / "streams-parameters.csv"
    run("lab", "streams", "--params", written, "--out", disk / "again", "--quiet")
    assert sorted(keys_of(rows_of(disk / "again"))) == sorted(keys_of(rows_of(disk / "flags")))
    by_flags, by_file = (keys_of(rows_of(disk / name)) for name in ("flags", "file"))
    assert by_flags == by_file and len(by_flags) == 2 * 2 * (4 + 3 * 8)
    assert (disk / "flags" / "streams.csv").read_text().splitlines()[0] == HEADER


def test_a_study_stopped_before_its_first_row_leaves_nothing(disk):
    process = start("lab", "all", "--out", disk / "out", "--work", disk)
    while not list(disk.glob(".ascot-lab-*")):
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert not list(disk.glob(".ascot-lab-*"))
    if not (disk / "out" / "streams.csv").exists():
        assert leftovers(disk) == [], said


def test_a_page_of_sorts_has_no_empty_sections(disk):
    run("lab", "sort", "--n", "1000", "--memory", "100", "--fan-in", "4", "--loops", "1", "--out", disk)
    page = (disk / "index.html").read_text()
    assert "Merge sorts</h2>" in page and "streams</h2>" not in page and 'id="fits-n"' not in page


def test_the_page_has_the_numbers_of_the_table(disk):
    flags = ["--stream", "plain,sized", "--b", "12", "--n", "1000,2000", "--k", "1,3", "--loops", "3", "--out", disk]
    run("lab", "streams", *flags)
    page = (disk / "index.html").read_text()
    for row in rows_of(disk):
        name = f"{row['Direction']} {row['Stream']}" + (", B = 2^12" if row["B"] else "")
        name += f", N = {row['N']}, k = {row['k']}, {row['Cache']}"
        cells = re.search(rf'<th scope="row">{re.escape(name)}</th>(.*?)</tr>', page).group(1)
        values = re.findall(r"<td>(.*?)</td>", cells)
        assert float(values[0]) == pytest.approx(float(row["Mean ms"]), rel=0.06, abs=0.001), name
        assert values[-2:] == [row["I/Os by formula"], row["I/Os counted"]], name


def test_a_finished_study_is_not_measured_again(disk):
    run("lab", "streams", *SMALL, "--out", disk)
    before = (disk / "streams.csv").read_bytes()
    run("lab", "streams", *SMALL, "--out", disk)
    assert (disk / "streams.csv").read_bytes() == before and len(rows_of(disk)) == 112
    run("lab", "streams", *SMALL[:-1], "3", "--out", disk)
    assert len(rows_of(disk)) == 2 * 112, "other loops are other measurements"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_study_continues_after_its_last_row(disk, how):
    # A cell of a million system calls takes much longer than the others.
    flags = ["lab", "streams", "--stream", "plain", "--n", "100,1000,1e6", "--direction", "read", "--out", disk]
    process = start(*flags)
    table = disk / "streams.csv"
    deadline = time.monotonic() + 60
    while not table.exists() or len(table.read_text().splitlines()) < 5:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.2)
    if how == signal.SIGKILL:
        kill(process)
    else:
        process.send_signal(how)
        _, said = process.communicate(timeout=60)
        assert process.returncode == -how, said
        assert b"streams.csv" in said, said
        assert leftovers(disk) == ["streams.csv"], "files of the interrupted measurement are left"
    finished = keys_of(rows_of(disk))
    assert 4 <= len(finished) < 6
    again = run(*flags, timeout=120)
    assert f"{len(finished)} are finished" in again.stderr, again.stderr
    rows = keys_of(rows_of(disk))
    assert len(rows) == 6 and rows[: len(finished)] == finished and len(set(rows)) == 6
    assert leftovers(disk) == ["index.html", "streams-parameters.csv", "streams.csv"]


@pytest.mark.parametrize(
    ("row", "place", "problem"),
    [
        ("Bufer;1000;1;0,2;6", "row 2, column 1", "'Bufer' is not a stream type"),
        ("BufferB;-1;1;0,2;6", "row 2, column 2", "'-1' is not a whole number"),
        ("BufferB;0;1;0,2;6", "row 2, column 2", "'0' is not a whole number from 1"),
        ("BufferB;1000;0;0,2;6", "row 2, column 3", "not a number of streams"),
        ("Mapping;1000;1;0,2;6", "row 2, column 4", "smaller than the 4 bytes"),
        ("BufferB;1000;1;0,31;6", "row 2, column 4", "exponents from 0 to 30"),
        ("BufferB;1000;1;0,2;many", "row 2, column 5", "not a number of loops"),
        ("BufferB;1000;1;0,2", "row 2, column 5", "is missing"),
    ],
)
def test_impossible_parameters_are_named_by_row_and_column(disk, row, place, problem):
    (disk / "p.csv").write_text(f"Simple;10;1;0,0;2\n{row}\n")
    done = run("lab", "streams", "--params", disk / "p.csv", "--out", disk / "out", expect=2)
    assert place in done.stderr and problem in done.stderr and "p.csv" in done.stderr
    assert not (disk / "out").exists(), "nothing is written for a wrong file"


def test_a_cell_stands_once_on_the_page_with_most_loops(disk):
    flags = ["--stream", "sized", "--b", "12", "--n", "1000", "--cache", "cold", "--direction", "read", "--out", disk]
    for loops in ("4", "2"):
        run("lab", "streams", *flags, "--loops", loops)
    assert len(rows_of(disk)) == 2
    page = (disk / "index.html").read_text()
    assert page.count("read sized, B = 2^12, N = 1000, k = 1, cold") == 1
    # The best B is on the page, although nothing was measured with a warm cache.
    best = page[page.index("Best B of sized streams for each k and N (table 4") :]
    assert "<td>2^12</td>" in best[: best.index("</div>")]


def test_blocks_of_several_streams_have_tables_and_fits(disk):
    flags = ["--stream", "sized", "--b", "12", "--n", "1000", "--k", "1,2,5", "--loops", "2", "--out", disk]
    run("lab", "streams", *flags, "--cache", "warm", "--direction", "write")
    page = (disk / "index.html").read_text()
    assert all(f"ms by B and N, {k}" in page for k in ("one stream", "2 streams", "5 streams"))
    # Each time is beside the I/Os: one request for each of 1, 2 and 5 files of 4000 bytes; the formula joins them.
    assert re.search(r"<td>[\d.]+ \(1\)</td>", page) and re.search(r"<td>[\d.]+ \(5\)</td>", page)
    best = page[page.index('id="table-3"') :]
    assert re.findall(r'<th scope="row">(\d+)</th><td>1000</td>', best[: best.index("</div>")]) == ["1", "2", "5"]
    fits = page[page.index('id="fits-k"') :]
    assert "write sized, warm, B = 2^12" in fits[: fits.index("</div>")]


def test_a_page_of_others_stays(disk):
    (disk / "index.html").write_text("mine")
    flags = ["lab", "streams", "--n", "100", "--loops", "2", "--stream", "buffered", "--out", disk]
    done = run(*flags, expect=2)
    assert "index.html" in done.stderr
    assert (disk / "index.html").read_text() == "mine" and leftovers(disk) == ["index.html"]
    (disk / "index.html").unlink()
    run(*flags)
    run(*flags)  # Its own page is replaced.


def test_the_directory_of_the_measured_files_is_made(disk):
    flags = ["--n", "100", "--loops", "2", "--stream", "buffered", "--out", disk / "out"]
    run("lab", "streams", *flags, "--work", disk / "new" / "work")
    assert leftovers(disk / "new" / "work") == []


def test_wrong_flags_are_explained(disk):
    for flags, text in [
        (["--stream", "odd"], "--stream 'odd' is not a kind of stream"),
        (["--n", "ten"], "--n 'ten' is not a number"),
        (["--stream", "direct", "--b", "4..10"], "smaller than the 4096 bytes"),
        (["--loops", "1"], "the first is left out"),
        (["--stream", "sized", "--b", "30", "--n", "1e9", "--memory", "64MiB"], "--memory"),
    ]:
        done = run("lab", "streams", *flags, "--out", disk / "out", expect=2)
        assert text in done.stderr, done.stderr
        assert not (disk / "out").exists()


def test_files_that_do_not_fit_are_refused_before_anything_is_written(disk):
    with small_disk(disk, 16 * MIB) as small:
        flags = ["lab", "streams", "--stream", "sized", "--b", "16", "--work", small, "--out", disk / "out"]
        done = run(*flags, "--n", "1e8", expect=2)
        assert "the study needs 800 MB" in done.stderr and str(small) in done.stderr
        assert not [name for name in leftovers(small) if name != "lost+found"]
        assert not (disk / "out").exists()
        # Two files of 4 MB fit.
        run(*flags, "--n", "1e6", "--loops", "2", "--cache", "warm")


def test_a_volume_that_fills_up_meanwhile_is_an_error_that_keeps_rows(disk):
    with small_disk(disk, 32 * MIB) as small:
        flags = ["lab", "streams", "--stream", "plain", "--n", "1000,4e6", "--direction", "write", "--loops", "2"]
        process = start(*flags, "--cache", "warm", "--work", small, "--out", disk / "out")
        while not (disk / "out" / "streams.csv").exists() or len(rows_of(disk / "out")) < 1:
            assert process.poll() is None
            time.sleep(0.01)
        with open(small / "foreign", "wb") as foreign:
            try:
                while True:
                    foreign.write(b"x" * MIB)
                    foreign.flush()
            except OSError:
                pass
        _, said = process.communicate(timeout=60)
        assert process.returncode == 2 and str(small).encode() in said and b"no space left" in said, said
        assert len(rows_of(disk / "out")) == 1
        assert [name for name in leftovers(small) if name != "lost+found"] == ["foreign"]


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "my notes"])
def test_a_file_that_is_no_table_of_results_is_left_alone(disk, text):
    (disk / "streams.csv").write_text(text)
    done = run("lab", "streams", *SMALL, "--out", disk, expect=2)
    assert "streams.csv" in done.stderr and "line 1" in done.stderr and HEADER[:16] in done.stderr, done.stderr
    assert (disk / "streams.csv").read_text() == text


def test_two_studies_do_not_write_one_table(disk):
    slow = ["lab", "streams", "--stream", "plain", "--n", "1e6", "--direction", "write", "--out", disk]
    first = start(*slow)
    while not (disk / "streams.csv").exists():
        assert first.poll() is None
        time.sleep(0.01)
    second = run("lab", "streams", *SMALL, "--out", disk, expect=2)
    assert "streams.csv" in second.stderr and "another study" in second.stderr
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)


def test_results_of_another_volume_are_not_taken_for_those_of_this_one(disk):
    flags = ["lab", "streams", "--stream", "sized", "--b", "12", "--n", "1000", "--loops", "2", "--out", disk / "out"]
    for name in ("a", "b"):
        (disk / name).mkdir()
        run(*flags, "--work", disk / name)
        page = (disk / "out" / "index.html").read_text()
        assert f"{disk / name} (" in page and "4 in all" in page
    run(*flags, "--work", disk / "a")
    rows = rows_of(disk / "out")
    assert len(rows) == 2 * 4 and len({row["Place"] for row in rows}) == 2


def test_the_page_keeps_what_other_studies_measured(disk):
    flags = ["--out", disk, "--loops", "2"]
    run("lab", "sort", "--n", "1000", "--memory", "100", "--fan-in", "10", *flags)
    run("lab", "streams", "--stream", "sized", "--b", "12", "--n", "1000", *flags, "--cache", "warm")
    run("lab", "streams", "--stream", "sized", "--b", "13", "--n", "1000", *flags, "--cache", "warm")
    page = shown(disk / "index.html")
    assert "td" in page.inside["table-9"]
    text = (disk / "index.html").read_text()
    assert "B = 2^12" in text and "B = 2^13" in text


def test_the_examples_of_the_help_work(disk):
    for command in ("streams", "all", "sort"):
        screen = run("lab", command, "--help").stdout.decode()
        assert "Examples:" in screen
    # The first example, with fewer integers.
    flags = ["--stream", "sized,mapped", "--n", "1e3", "--b", "0..20", "--loops", "2", "--plot"]
    run("lab", "streams", *flags, "--out", disk)
    found = {(row["Stream"], row["B"]) for row in rows_of(disk)}
    assert ("sized", "2^0") in found and ("mapped", "2^2") in found and ("mapped", "2^1") not in found


@pytest.mark.alone
def test_a_terminal_shows_the_time_left_while_a_measurement_runs(disk):
    """A measurement of some seconds, whose line is redrawn meanwhile and cleared in the end."""
    ours, terminal = pty.openpty()
    flags = ["--stream", "plain", "--n", "3e6", "--direction", "write", "--cache", "warm", "--loops", "4"]
    process = start("lab", "streams", *flags, "--out", disk, stderr=terminal)
    os.close(terminal)
    shown_text = b""
    with contextlib.suppress(OSError):
        while chunk := os.read(ours, 4096):
            shown_text += chunk
    os.close(ours)
    assert process.wait(timeout=60) == 0
    lines = re.findall(r"1 of 1   (\d+) s, about (\d+) s left   write plain", shown_text.decode())
    assert len(lines) >= 2 and int(lines[-1][0]) > int(lines[0][0]), shown_text
    assert shown_text.endswith(b"\r\x1b[K")


def test_cold_writing_ends_on_the_device_and_warm_writing_does_not(disk):
    """Both sync each file before it is removed, outside the time; only cold writing syncs it within the loop, too."""
    assert shutil.which("strace"), "no strace: the setup of the tests installs it"

    def syncs(cache, loops):
        out, calls = disk / f"{cache}-{loops}", disk / "calls"
        flags = ["--stream", "sized", "--b", "12", "--n", "1000", "--k", "2", "--direction", "write"]
        flags += ["--cache", cache, "--loops", str(loops), "--out", str(out)]
        traced = ["strace", "-f", "-e", "trace=fdatasync", "-o", str(calls), ascot_binary(), "lab", "streams", *flags]
        done = subprocess.run(traced, capture_output=True, text=True, timeout=60, env=clean_environment())
        assert done.returncode == 0, done.stderr
        return calls.read_text().count("fdatasync(")

    more = {cache: syncs(cache, 5) - syncs(cache, 2) for cache in ("warm", "cold")}
    assert more == {"warm": 3 * 2, "cold": 2 * 3 * 2}
