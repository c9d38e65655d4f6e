"""`ascot lab sort` as in Heinrich et al.: right outputs, I/Os of formulas, results that are kept."""

import array
import csv
import os
import random
import re
import signal
import subprocess
import time

import pytest
from support import MIB, clean_environment, kill, leftovers, limit_open_files, run, small_disk, start

SMALL = ("--n", "1e4", "--memory", "1e3,1e4", "--fan-in", "10,25", "--loops", "2", "--cache", "warm")
TINY = ("--n", "3000", "--memory", "100", "--fan-in", "4", "--loops", "1", "--cache", "warm")
IDENTITY = ("N", "M", "d", "Read stream", "Write stream", "Order", "Cache", "Input", "Output")
KEPT = ["index.html", "sorts-parameters.csv", "sorts.csv"]


def rows(directory):
    """The results that are kept."""
    with open(directory / "sorts.csv", newline="") as file:
        return list(csv.DictReader(file, delimiter=";"))


def integers(path, count, seed=1):
    """Writes random 32-bit integers; returns them."""
    values = array.array("i", (random.Random(seed).getrandbits(32) - (1 << 31) for _ in range(count)))
    path.write_bytes(values.tobytes())
    return list(values)


def stored(path):
    """The 32-bit integers in a file."""
    values = array.array("i")
    values.frombytes(path.read_bytes())
    return list(values)


def exact_ios(count, memory, fan_in, block_bytes):
    """Requests that read, computed file by file; as many write."""

    def blocks(elements):
        return -(-4 * elements // block_bytes)

    files = [min(memory, count - at) for at in range(0, count, memory)]
    total = blocks(count)
    while len(files) > 1:
        groups = [files[at : at + fan_in] for at in range(0, len(files), fan_in)]
        total += sum(blocks(file) for group in groups if len(group) > 1 for file in group)
        files = [sum(group) for group in groups]
    return total


def test_results_are_kept_with_the_ios_of_the_formulas(disk):
    words = ("--stream-read", "sized", "--stream-write", "buffered", "--b", "12")
    done = run("lab", "sort", *SMALL, *words, "--out", disk)
    kept = rows(disk)
    assert [f"{row['M']} {row['d']}" for row in kept] == ["1000 10", "1000 25", "10000 10", "10000 25"]
    for row in kept:
        reads = exact_ios(10_000, int(row["M"]), int(row["d"]), 4096)
        assert int(row["Reads counted"]) == int(row["Reads by formula"]) == reads
        assert int(row["Writes counted"]) == int(row["Writes by formula"])
        times = [int(ns) / 1e6 for ns in row["ns of loops"].split(",")]
        assert len(times) == 2 and float(row["Mean ms"]) == pytest.approx(sum(times) / 2, abs=0.001)
        assert float(row["In memory ms"]) > 0 and float(row["Planned ms"]) > 0
        assert row["Planned sort"] == "1 in memory" and int(row["Memory of the planned sort"]) >= 4 * MIB
    # 2 B(N) log_d(B(N)/M) of Heinrich et al., for blocks of 4096 bytes.
    assert float(kept[0]["Blocks by 2 B(N) log_d(B(N)/M)"]) == pytest.approx(2 * 10_000 * 4 / 4096, abs=0.1)
    assert leftovers(disk) == KEPT
    text = done.stdout.decode()
    assert re.search(r"M / d +10 +25\n +1000( +[\d.]+){2}\n +10000( +[\d.]+){2}\n", text), "the time of M against d"
    assert re.search(r"N +M +d +ms\n +10000 +(1000 +(10|25)|10000 +any) +[\d.]+\n", text), "the best M and d"
    assert re.search(r"\b4\b.*\d m?s\b.*\d [kM]?B\b", done.stderr), "measurements, time and space come first"


def test_a_file_of_parameters_sorts_files_of_the_user(disk):
    values = integers(disk / "in.dat", 10_007)
    (disk / "params.csv").write_text(
        "Read Stream Type(only 1 per row); Write Stream Type(only 1 per row); Nr of streams; Nr Integers in Memory; "
        "Buffer size range; Nr Loops; Input file; Output file; true\n"
        f"Mapping;Mapping;10;1000;12, 12;2;{disk}/in.dat;Test;true\n"
        f"simple;BUFFERB;3;100;4,5;1;{disk}/in.dat;reversed;false\n"
    )
    run("lab", "sort", "--params", disk / "params.csv", "--cache", "warm", "--out", disk / "results")
    assert stored(disk / "results" / "Test") == sorted(values)
    assert stored(disk / "results" / "reversed") == sorted(values, reverse=True)
    assert stored(disk / "in.dat") == values
    kept = rows(disk / "results")
    assert [(row["Read stream"], row["Write stream"], row["Order"]) for row in kept] == [
        ("mapped 2^12", "mapped 2^12", "ascending"),
        ("plain", "sized 2^4", "descending"),
        ("plain", "sized 2^5", "descending"),
    ]
    assert int(kept[1]["Reads counted"]) == exact_ios(10_007, 100, 3, 4)
    assert leftovers(disk / "results") == ["Test", "index.html", "reversed", *KEPT[1:]]


def test_every_back_end_sorts(disk):
    for name in ("plain", "Buffer", "BufferB", "Mapping", "direct"):
        words = ("--stream-read", name, "--stream-write", name, "--b", "12", "--descending")
        run("lab", "sort", *TINY, *words, "--out", disk)
    read = [row["Read stream"] for row in rows(disk)]
    assert read == ["plain", "buffered", "sized 2^12", "mapped 2^12", "direct 2^12"]


def test_b_of_both_directions(disk):
    words = ("--stream-read", "sized", "--stream-write", "sized", "--b-read", "10..11", "--b-write", "12")
    run("lab", "sort", *TINY, *words, "--out", disk)
    assert [(row["Read stream"], row["Write stream"]) for row in rows(disk)] == [
        ("sized 2^10", "sized 2^12"), ("sized 2^11", "sized 2^12"),
    ]  # fmt: skip
    identifiers = re.findall(r' id="([^"]+)"', (disk / "index.html").read_text())
    assert len(set(identifiers)) == len(identifiers) and "figure-30-group-2" in identifiers


def killed_after_rows(disk, count, words):
    """Kills a study once its table has this many finished rows."""
    process = start("lab", "sort", *words, "--out", disk)
    table = disk / "sorts.csv"
    while process.poll() is None and not (table.exists() and table.read_text().count("\n") > count):
        time.sleep(0.001)
    kill(process)


def test_a_killed_study_continues(disk):
    streams = ("--stream-read", "sized", "--stream-write", "sized")
    cells = ("--n", "5e4", "--memory", "100,200,400,800", "--fan-in", "2,3", "--cache", "warm")
    words = (*streams, *cells, "--loops", "3")
    killed_after_rows(disk, 2, words)
    before = rows(disk)
    assert 2 <= len(before) < 8
    assert any(name.startswith(".ascot-lab-") for name in leftovers(disk))
    # A row that the process could not finish.
    with open(disk / "sorts.csv", "a") as file:
        file.write("50000;400;2;siz")
    done = run("lab", "sort", *words, "--out", disk)
    after = rows(disk)
    assert after[: len(before)] == before and len(after) == 8
    assert len({tuple(row[name] for name in IDENTITY) for row in after}) == 8
    assert f"({len(before)} are finished already)" in done.stderr, done.stderr
    assert leftovers(disk) == KEPT
    run("lab", "sort", *words, "--out", disk)
    assert rows(disk) == after


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_study_leaves_finished_rows_only(disk, name):
    words = ("--n", "1e6", "--memory", "100", "--fan-in", "2,3,4,5", "--loops", "50")
    process = start("lab", "sort", *words, "--out", disk)
    while process.poll() is None and not [file for file in leftovers(disk) if "run-" in file]:
        time.sleep(0.001)
    process.send_signal(name)
    process.communicate(timeout=20)
    assert process.returncode == -name
    assert leftovers(disk) == ["sorts.csv"]


def test_wrong_parameters_are_named_by_row_and_column(disk):
    (disk / "odd.dat").write_bytes(bytes(9))
    integers(disk / "in.dat", 10)
    good = f"Mapping;Mapping;10;1000;12,12;1;{disk}/in.dat;;true"
    for row, place, problem in [
        (good.replace("Mapping;10", "Maping;10"), "column 2", "'Maping' is not a stream type"),
        (good.replace(";10;", ";1;"), "column 3", "from 2"),
        (good.replace("in.dat", "none.dat"), "column 7", "No such file"),
        (good.replace("in.dat", "odd.dat"), "column 7", "multiple of the 4 bytes"),
        (good.replace(";true", ""), "column 9", "is missing"),
    ]:
        (disk / "params.csv").write_text(f"{good}\n{row}\n")
        told = run("lab", "sort", "--params", disk / "params.csv", "--out", disk / "results", expect=2).stderr
        assert "row 2" in told and place in told and problem in told, told
    assert leftovers(disk) == ["in.dat", "odd.dat", "params.csv"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--n", "1e14"], "the study needs"),
        (["--memory", "0"], "--memory '0' is not a whole number from 1"),
        (["--fan-in", "1"], "--fan-in '1' is not a number of streams"),
        (["--stream-read", "pipes"], "--stream-read 'pipes' is not a stream type"),
        (["--stream-write", "direct", "--b", "11"], "--b '11' has blocks smaller than"),
        (["--loops", "0"], "--loops '0'"),
        (["--memory", "1e6", "--n", "1e6", "--memory-limit", "1MiB"], "--memory-limit"),
        (["--b", "16", "--b-read", "16"], "--b"),
    ],
)
def test_refusals_come_before_anything_is_written(disk, words, problem):
    told = run("lab", "sort", *words, "--out", disk, expect=2).stderr
    assert problem in told, told
    assert leftovers(disk) == []


def test_few_open_files_are_an_error_that_leaves_nothing(disk):
    words = ("--n", "1e4", "--memory", "100", "--fan-in", "100", "--loops", "1", "--out", disk)
    told = run("lab", "sort", *words, expect=2, preexec_fn=limit_open_files(40)).stderr
    assert "open" in told, told
    assert leftovers(disk) == ["sorts.csv"]


@pytest.mark.privileged
def test_a_volume_that_fills_up(disk):
    """Space is checked before the study begins; here another program takes it meanwhile."""
    (disk / "results").mkdir()
    with small_disk(disk, 64 * MIB) as volume:
        words = ("--n", "4e6", "--memory", "1e3", "--fan-in", "2", "--loops", "20", "--stream-write", "sized")
        told = run("lab", "sort", "--n", "1e7", "--out", disk / "results", "--work", volume, expect=2).stderr
        assert "the study needs" in told and leftovers(disk / "results") == [] and leftovers(volume) == []
        process = start("lab", "sort", *words, "--out", disk / "results", "--work", volume)
        while process.poll() is None and not [file for file in leftovers(volume) if "run-1-" in file]:
            time.sleep(0.001)
        with open(volume / "ballast", "wb") as file:
            try:
                while True:
                    os.write(file.fileno(), bytes(MIB // 4))
            except OSError:
                pass
        told = process.communicate(timeout=60)[1].decode()
        assert process.returncode == 2 and "space" in told.lower(), told
        assert leftovers(volume) == ["ballast"]
        assert leftovers(disk / "results") == ["sorts.csv"]


def test_a_cold_cache_is_one_of_both_states(disk):
    """Both are the default; each has its table and its figures on the page, and the I/Os are the same."""
    words = ("--n", "3000", "--memory", "100,300", "--fan-in", "4,8", "--loops", "1", "--out", disk)
    done = run("lab", "sort", *words)
    kept = rows(disk)
    assert sorted(row["Cache"] for row in kept) == ["cold"] * 4 + ["warm"] * 4
    cold, warm = ([row for row in kept if row["Cache"] == name] for name in ("cold", "warm"))
    for name in ("M", "d", "Reads counted", "Writes counted"):
        assert [row[name] for row in cold] == [row[name] for row in warm]
    page = (disk / "index.html").read_text()
    assert page.index("ascending, warm cache</h3>") < page.index("ascending, cold cache</h3>")
    assert 'id="figure-30-group-2"' in page
    assert b"ascending, cold cache" in done.stdout
    run("lab", "sort", *words, "--cache", "cold")
    assert rows(disk) == kept, "they are finished already"


def test_a_table_of_the_earlier_version_is_warm_and_gets_the_column(disk):
    words = ("--n", "3000", "--memory", "100", "--fan-in", "4", "--loops", "1", "--out", disk)
    run("lab", "sort", *words, "--cache", "warm")
    new = (disk / "sorts.csv").read_text()
    fields = [line.split(";") for line in new.splitlines()]
    (disk / "sorts.csv").write_text("".join(";".join(line[:6] + line[7:]) + "\n" for line in fields))
    run("lab", "sort", *words, "--cache", "warm")
    assert (disk / "sorts.csv").read_text() == new, "the row is not measured again"
    run("lab", "sort", *words, "--cache", "cold")
    assert (disk / "sorts.csv").read_text().startswith(new) and len(rows(disk)) == 2
    assert leftovers(disk) == KEPT


def test_the_parameters_of_the_page_are_a_file_that_measures_the_same(disk):
    integers(disk / "in.dat", 5000)
    (disk / "params.csv").write_text(
        f"Mapping;direct;3,10;1000,100;12,13;1;{disk}/in.dat;Test;false\n"
        f"Simple;Buffer;3;100;0,0;1;random 4e3 7;;true\n"
        f"BufferB;BufferB;4;700;10,11/12,12;2;random 4e3 7;;true\n"
    )
    run("lab", "sort", "--params", disk / "params.csv", "--out", disk / "one", "--cache", "warm")
    written = disk / "one" / "sorts-parameters.csv"
    assert "random 4000 7" in written.read_text() and "10,10/12,12" in written.read_text()
    run("lab", "sort", "--params", written, "--out", disk / "two", "--cache", "warm")

    def cells(name):
        return sorted(tuple(row[column] for column in (*IDENTITY, "Loops")) for row in rows(disk / name))

    assert cells("one") == cells("two") and len(cells("one")) == 8 + 1 + 2
    (disk / "two" / "sorts-parameters.csv").write_text("mine\n")
    told = run("lab", "sort", "--params", written, "--out", disk / "two", expect=2).stderr
    assert "sorts-parameters.csv" in told and (disk / "two" / "sorts-parameters.csv").read_text() == "mine\n"


@pytest.mark.privileged
def test_outputs_are_counted_on_their_volume(disk):
    integers(disk / "in.dat", 1_000_000)
    (disk / "p.csv").write_text(f"Buffer;Buffer;10;1e6;0,0;1;{disk}/in.dat;out;true\n")
    with small_disk(disk, 16 * MIB) as volume:
        taken = volume / "ballast"
        taken.write_bytes(bytes(12 * MIB))
        words = ("--params", disk / "p.csv", "--out", volume / "r", "--work", disk)
        told = run("lab", "sort", *words, expect=2).stderr
        assert "the study needs 4.00 MB" in told and "(--out DIR)" in told, told
        assert not (volume / "r").exists()
        taken.unlink()
        run("lab", "sort", *words, "--cache", "warm")
        assert (volume / "r" / "out").stat().st_size == 4_000_000


def test_samples_of_resources_are_on_the_page(disk):
    words = ("--n", "1e5", "--memory", "1e3", "--fan-in", "10", "--loops", "3", "--out", disk)
    told = run("lab", "sort", *words, "--monitor=50ms").stderr
    assert "resources, " in told and 'id="resources"' not in told
    page = (disk / "index.html").read_text()
    assert '<section id="resources">' in page and "process: resident" in page
    run("lab", "sort", *words)
    assert '<section id="resources">' not in (disk / "index.html").read_text(), "it is that of the last run"


def test_a_closed_pipe_is_no_crash(disk):
    process = start("lab", "sort", *SMALL, "--out", disk, stdout=subprocess.PIPE, env=clean_environment())
    process.stdout.close()
    process.stdout = None
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGPIPE
    assert len(rows(disk)) == 4


def test_time_falls_with_m_and_d_matters_little(disk):
    """The shape of figures 30 to 32 of Heinrich et al., from the work done: fewer files and I/Os, not a clock."""
    streams = ("--stream-read", "sized", "--stream-write", "sized", "--b", "12")
    words = ("--n", "1e5", "--memory", "1e2..1e5", "--fan-in", "10,25,30", "--loops", "1", "--cache", "warm")
    run("lab", "sort", *streams, *words, "--out", disk)
    counted = ("Reads counted", "Writes counted")
    ios = {(int(row["M"]), int(row["d"])): sum(int(row[name]) for name in counted) for row in rows(disk)}
    for fan_in in (10, 25, 30):
        by_memory = [ios[memory, fan_in] for memory in (100, 1000, 10_000, 100_000)]
        assert by_memory == sorted(by_memory, reverse=True) and by_memory[0] > 4 * by_memory[-1]
    assert ios[100, 30] > 0.5 * ios[100, 10]


OURS = ["sorts.csv", "sorts-parameters.csv", "index.html", "charts"]


@pytest.mark.parametrize("name", [*OURS, ".hidden", "../up", "/up", "."])
def test_an_output_has_no_name_of_a_file_of_the_study(disk, name):
    integers(disk / "in", 1000)
    (disk / "p.csv").write_text(f"Buffer;Buffer;10;100;12,12;1;{disk / 'in'};{name};true\n")
    done = run("lab", "sort", "--params", disk / "p.csv", "--out", disk / "out", expect=2)
    assert f"row 1, column 8 (output file): '{name}'" in done.stderr
    assert not (disk / "out").exists()
