"""Requests of external sorts: the rule of the merge phase, the tables with their claims, and a tiny session."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from harness import cgroup, contenders, phase, seeks, seeks_page

HEADING = "time_ns,pid,kind,offset,bytes,path"


def events(*rows: tuple[int, str, int, str]) -> list[str]:
    """Lines of an export: time, kind, bytes, path."""
    return [HEADING, *(f"{time},7,{kind},0,{size},{path}\n" for time, kind, size, path in rows)]


def test_the_phase_begins_with_the_first_spill_that_is_read() -> None:
    job = events(
        (10, "read", 500, "in"), (20, "write", 250, "run,1"), (30, "read", 500, "in"), (40, "write", 250, "run,2"),
        (50, "read", 0, "run,1"), (60, "read", 250, "run,2"), (70, "read", 250, "run,1"), (80, "write", 500, "out"),
    )  # fmt: skip
    assert phase.find(job) == phase.Phase(start_ns=60, spills=2, reread_bytes=500)


def test_a_small_file_that_is_read_again_is_no_spill() -> None:
    large = events((5, "write", 9, "m"), (10, "read", 9, "m"), (20, "write", 901, "r"), (30, "read", 901, "r"))
    assert phase.find(large).start_ns == 30
    even = events((5, "write", 9, "m"), (10, "read", 9, "m"), (20, "write", 900, "r"), (30, "read", 900, "r"))
    assert phase.find(even).start_ns == 10, "a hundredth is enough"


def test_a_thousand_small_spills_are_spills() -> None:
    files = [f"run{number}" for number in range(2000)]
    job = [(at, "write", 50, name) for at, name in enumerate(files)]
    job += [(5000 + at, "read", 50, name) for at, name in enumerate(files)]
    assert phase.find(events(*job)) == phase.Phase(start_ns=5000, spills=2000, reread_bytes=100_000)


def test_inputs_are_no_spills_nor_are_files_of_the_same_name() -> None:
    job = events(
        (10, "write", 50, "a"), (20, "delete", 0, "a"), (30, "read", 90, "a"), (40, "write", 50, "b"),
        (50, "read", 50, "b"),
    )  # fmt: skip
    assert phase.find(job) == phase.Phase(start_ns=50, spills=1, reread_bytes=50)


def test_bytes_read_before_the_job_writes_to_the_file_do_not_count() -> None:
    job = events((10, "read", 90, "a"), (20, "write", 10, "a"), (30, "read", 40, "a"))
    assert phase.find(job) == phase.Phase(start_ns=30, spills=1, reread_bytes=40)


def test_a_job_in_memory_has_no_phase() -> None:
    with pytest.raises(phase.NoPhase, match="stayed in memory"):
        phase.find(events((10, "read", 90, "in"), (20, "write", 90, "out")))


def run_of(whole: int, merge: int) -> dict[str, Any]:
    def part(switches: int) -> dict[str, Any]:
        census = {
            "runs": switches, "read_bytes": 400, "written_bytes": 400, "attempts": 5,
            "mean_run_bytes": 800 // switches,
        }  # fmt: skip
        return {"census": census, "array": {"seconds": 0.0001}, "array_without_cache": None, "here": None}

    parts = {"whole": part(whole), "phase": part(merge)}
    return {**parts, "version": "1", "setting": "defaults", "errors": [], "sort_bytes_per_s": 5e6}


def result_of(kind: str, **runs: dict[str, Any]) -> dict[str, Any]:
    named = {name.replace("_", " "): run for name, run in runs.items()}
    return {"size": 400, "memory": 50, "threads": 2, "runs": {kind: named}}


def test_claims_compare_switches_with_those_of_ascot() -> None:
    result = result_of("u64", Ascot=run_of(20, 10), STXXL=run_of(20, 200), extsort=run_of(999, 199))
    found = {claim["program"]: (claim["ratio"], claim["holds"]) for claim in seeks_page.claims(result)}
    assert found == {"STXXL": (20.0, True), "extsort": (19.9, False)}
    result = result_of("lines", Ascot=run_of(10, 999), GNU_sort=run_of(22, 1))
    (claim,) = seeks_page.claims(result)
    assert (claim["part"], claim["ratio"], claim["holds"]) == ("whole", 2.2, True)


def test_a_program_that_failed_keeps_its_reason_and_meets_no_claim() -> None:
    failed = {"version": "9", "errors": ["4M: out of memory"]}
    result = result_of("u64", Ascot=run_of(20, 10), STXXL=failed)
    assert [claim["holds"] for claim in seeks_page.claims(result)] == [False, False]
    page = seeks_page.markdown(result, {})
    assert "| STXXL | 9 | - | 4M: out of memory |" in page


def test_programs_stand_in_the_order_of_their_switches() -> None:
    failed = {"version": "9", "errors": ["no"]}
    runs = {"Spark": failed, "STXXL": run_of(300, 9), "extsort": run_of(200, 9), "Ascot, x": run_of(400, 9)}
    assert list(seeks_page.ordered({**runs, "Ascot": run_of(1, 1)})) == [
        "Ascot", "Ascot, x", "extsort", "STXXL", "Spark",
    ]  # fmt: skip


def test_rates_of_the_phase_count_input_and_output() -> None:
    runs = {"Ascot": run_of(20, 10), "GNU sort": run_of(44, 8)}
    merge, whole = (seeks_page.row(runs, "GNU sort", part, 400) for part in ("phase", "whole"))
    assert merge == "| GNU sort | 1.00 | 800 B | 5 | 8 | 0.8 | - | 100 B | 8 | - | - | - | 5 |"
    assert whole == "| GNU sort | 1.00 | 800 B | 5 | 44 | 2.2 | - | 18 B | 4 | - | - | - | 5 |"


def test_switches_are_compared_with_those_at_the_disk_too() -> None:
    runs = {"Ascot": run_of(20, 10), "Ascot, at the disk": run_of(40, 25), "STXXL": run_of(60, 300)}
    result = {"size": 400, "memory": 50, "threads": 2, "runs": {"u64": runs}}
    (claim, _) = seeks_page.claims(result)
    assert (claim["ratio"], claim["at_disk"], claim["holds"]) == (30.0, 12.0, True)
    page = seeks_page.markdown(result, {})
    assert "| the merge phase | 64-bit integers | STXXL | 30.0 | 20 | yes | 12.0 |" in page
    assert "| STXXL | 1.00 | 800 B | 5 | 300 | 30.0 | 12.0 | 2 B |" in page


def test_the_pieces_of_a_volume_file_are_shown() -> None:
    runs = {"Ascot": run_of(20, 10)}
    here = {"median_seconds": 0.0001, "extents": {"pieces": 1200, "physical_offset": 4096}}
    runs["Ascot"]["phase"]["here"] = here
    assert seeks_page.row(runs, "Ascot", "phase", 400).endswith("| 8 | 1,200 | 5 |")
    here["extents"] = None
    assert seeks_page.row(runs, "Ascot", "phase", 400).endswith("| 8 | - | 5 |")


def test_a_page_has_the_table_before_its_charts() -> None:
    runs = {"GNU sort": run_of(44, 8), "Ascot": run_of(20, 10)}
    runs["GNU sort"]["phase"]["here"] = {"median_seconds": 0.0001, "spread_seconds": 0.00005}
    table = seeks_page.html_table(runs, "phase", 400)
    assert table.index('row">Ascot<') < table.index('row">GNU sort<')
    assert "<td>8 ± 4</td><td>-</td><td>5</td>" in table and table.count('<th scope="col">') == len(seeks_page.HEAD)


def test_the_table_takes_no_name_of_the_page() -> None:
    runs = {"Ascot": run_of(20, 10)}
    ids = re.findall(r'id="([^"]+)"', seeks_page.html_table(runs, "phase", 400))
    pages = contenders.BENCH.parent / "crates" / "ascot-trace" / "src" / "page"
    taken = {name for source in pages.glob("*.rs") for name in re.findall(r'id=\\?"([^"\\]+)', source.read_text())}
    taken |= {name for source in pages.glob("*.rs") for name in re.findall(r'\("([a-z-]+)", "', source.read_text())}
    assert "rates" in taken
    assert len(set(ids)) == len(ids) and not taken & set(ids)


def test_programs_without_a_chart_are_named_with_the_reason() -> None:
    runs = {name: run_of(20, 10) for name in ("Ascot", "Polars", "Spark", "DuckDB", "Hadoop")}
    runs["Polars"]["phase"]["census"]["files"] = 1001
    del runs["DuckDB"]["phase"]
    runs["DuckDB"]["no_phase"] = "all data stayed in memory"
    runs["Hadoop"] = {"version": "9", "errors": ["no Java"]}
    page = seeks_page.markdown(result_of("u64", **runs), {"phase-u64": ["Ascot"], "whole-u64": list(runs)[:4]})
    merge, whole = page.split("### The whole job")
    assert [line for line in merge.splitlines() if line.startswith("Without a chart")] == [
        "Without a chart, because their files would be thinner than a pixel: Polars (1,001 files).",
        "Without a chart, because their traces were not kept: Spark.",
        "Without a chart, because they have no merge phase: DuckDB (all data stayed in memory).",
        "Without a chart, because they did not sort the data: Hadoop.",
    ]
    assert whole.count("Without a chart") == 1 and "](whole-u64.html)" in whole
    none = seeks_page.markdown(result_of("u64", **runs), {})
    assert "](phase-u64.html)" not in none and none.count("The result has no page with these seek charts.") == 2


CHART = '<canvas role="img" aria-label="Seek chart of {}.trace; the tables have its numbers"></canvas>'


def test_a_page_is_written_again_from_the_result(tmp_path: Path) -> None:
    runs = {"Ascot": run_of(20, 10), 'STXXL, a "b"': run_of(30, 300), "GNU sort": run_of(40, 30)}
    result = {"size": 400, "memory": 50, "threads": 2, "runs": {"lines": runs}}
    (tmp_path / "result.json").write_text(json.dumps(result))
    shown = CHART.format("Ascot") + CHART.format("STXXL, a &quot;b&quot;")
    old = '<main>\n<section id="sort-rates">old</section>\n<section>kept</section>'
    (tmp_path / "phase-lines.html").write_text(f"{old}{shown}</main>")
    page = seeks_page.write(tmp_path)
    assert seeks_page.PREFACE in page and page == (tmp_path / "README.md").read_text()
    merge = page.split("### The whole job")[0]
    assert "](phase-lines.html)" in merge and "were not kept: GNU sort." in merge
    (tmp_path / "preface.md").write_text("By hand,\nin *two* lines.\n")
    page = seeks_page.write(tmp_path)
    assert "side by side" in page and "\nBy hand,\nin *two* lines.\n\n| part |" in page
    assert seeks_page.PREFACE not in page
    html = (tmp_path / "phase-lines.html").read_text()
    assert html.count('id="sort-rates"') == 1 and "old" not in html
    assert "<section>kept</section>" in html and html.endswith(f"{shown}</main>")


def test_requests_at_the_disk_have_rows(tmp_path: Path) -> None:
    named = {program.name: program for program in seeks.programs("ascot", tmp_path)}
    assert named["GNU sort, at the disk"].at_disk and named["Ascot, at the disk"].at_disk
    assert [claim[2] for claim in seeks_page.CLAIMS] == ["STXXL", "extsort", "GNU sort"], "these rows make no claim"


def test_hadoop_gives_a_map_task_what_its_buffer_holds() -> None:
    job = contenders.Job("records", Path("in"), Path("out"), Path("temp"), 64 << 20, 2)
    words = contenders.Hadoop().settings(job)[0].command.argv
    buffer, split = (int(words[words.index("records") + at]) for at in (4, 5))
    assert buffer == 32 and split % 100 == 0
    assert split // 100 * 124 <= 0.95 * (buffer << 20) < (split // 100 + 1) * 124


def test_a_program_without_io_uring_runs_on() -> None:
    setup = "import ctypes; print(ctypes.CDLL(None, use_errno=True).syscall(425, 1, 0), ctypes.get_errno())"
    wrapper = str(contenders.PEERS / "without_uring.py")
    done = subprocess.run([sys.executable, wrapper, sys.executable, "-c", setup], capture_output=True, text=True)
    assert done.stdout.split() == ["-1", "38"], done.stderr


def test_a_tiny_session_goes_on_where_it_stopped(tmp_path: Path) -> None:
    if not (ascot := os.environ.get("ASCOT_BIN")):
        pytest.skip("ASCOT_BIN names no command")
    try:
        cgroup.locate()
    except cgroup.CgroupUnavailable as error:
        pytest.skip(str(error))

    def session(work: str, *names: str) -> dict[str, Any]:
        options = seeks.Options(
            ascot=ascot, directory=Path(work), out=tmp_path, size=64_000_000, memory=8 << 20, repeats=1, threads=2,
            kinds=["lines"], programs=list(names), keep_free=0, replay_here=True,
        )  # fmt: skip
        opened = seeks.Session(options)
        opened.run()
        assert names[0] != "GNU sort" or opened.pages()["phase-lines"].stat().st_size > 10_000
        return json.loads((tmp_path / "result.json").read_text())

    with tempfile.TemporaryDirectory(dir=os.environ.get("ASCOT_TEST_DIR")) as work:
        first = session(work, "Ascot")["runs"]["lines"]["Ascot"]
        both = session(work, "GNU sort", "Ascot")["runs"]["lines"]
        assert work not in (tmp_path / "result.json").read_text(), "where it was run is nobody's business"
    assert both["Ascot"] == first, "it was not measured again"
    for run in both.values():
        assert run["errors"] == [] and run["timed_errors"] == []
        merge, whole = (run[part]["census"] for part in ("phase", "whole"))
        assert 64_000_000 <= merge["read_bytes"] < whole["read_bytes"] - 60_000_000, "the input is not in the phase"
        assert merge["written_bytes"] >= 64_000_000 and run["phase"]["here"]["median_seconds"] > 0
        assert run["phase"]["array"]["switches"] <= run["phase"]["array_without_cache"]["switches"]
    assert both["GNU sort"]["phase"]["census"]["runs"] > both["Ascot"]["phase"]["census"]["runs"]
