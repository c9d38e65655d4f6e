"""Merge on read: the data and the right outputs, what a run moved, what is missing, and the page."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from harness import chart, configurations, configurations_page
from harness.configurations import KEY, Setting, programs

BASE = Setting("sort", 40_960, 64, 384 << 20, 8, 4)


def samples(ends, read, written):
    columns = {
        "seconds": ends, "job_read_bytes_per_s": read, "job_written_bytes_per_s": written,
        "job_processors": [0.5] * len(ends), "cpu_share": [1.0] * len(ends),
    }  # fmt: skip
    return SimpleNamespace(column=columns.__getitem__)


def test_bytes_of_a_run_are_rates_times_the_time_of_samples():
    # The first sample ends after the start of processes, and stands for a second.
    found = programs.moved({"a": samples([3.0, 4.0, 4.5], [10.0, 20.0, 40.0], [1.0, 0.0, 2.0])})
    assert found == {"a": {"read": 50.0, "written": 2.0, "processors": 1.25}}
    assert programs.moved({"b": samples([], [], [])})["b"]["read"] == 0


def test_energy_is_that_of_packages_and_begins_anew(tmp_path):
    assert programs.energy(tmp_path / "none") == {} and programs.energy_between({}, {}) is None
    for name, used, most in (("intel-rapl:0", 900, 1000), ("intel-rapl:0:0", 5, 1000), ("intel-rapl:1", 10, 1000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(f"{used}\n")
        (tmp_path / name / "max_energy_range_uj").write_text(f"{most}\n")
    before = programs.energy(tmp_path)
    assert set(before) == {"intel-rapl:0", "intel-rapl:1"}
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("99\n")
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("310\n")
    assert programs.energy_between(before, programs.energy(tmp_path)) == pytest.approx(500e-6)


def reduced(program, records):
    """A program in plain Python: its pairs by key, in the order of the inputs."""
    batch = SimpleNamespace(column=lambda _: SimpleNamespace(to_pylist=lambda: records))
    groups = {}
    for key, value in programs.PROGRAMS[program]["map"](batch):
        groups.setdefault(key, []).append(value)
    return [one for key in sorted(groups) for one in programs.PROGRAMS[program]["reduce"](key, iter(groups[key]))]


def records_of(parts):
    return [row.tobytes() for rows in parts for row in rows]


def test_a_join_is_that_of_its_program():
    setting = replace(BASE, workload="join")
    small, large = configurations.tables_of(setting)
    parts = list(large)
    right = records_of(configurations.joined(small, rows) for rows in parts)
    assert sorted(reduced("join", records_of([small, *parts]))) == sorted(right)
    # An eighth of the large table has no partner.
    assert len(right) == pytest.approx(640 * 7 / 8, abs=1)
    assert {len(one) for one in right} == {setting.record - 1 + programs.NAME}


def test_an_index_is_that_of_its_program():
    setting = replace(BASE, workload="index", record=512)
    right = sorted(configurations.index_of(configurations.parts_of(setting)))
    assert sorted(reduced("index", records_of(configurations.parts_of(setting)))) == right
    assert len(right) > 100 and all(len(line.split()[1]) >= programs.WORD_BYTES_MIN for line in right)
    keys = np.concatenate([rows[:, :KEY] for rows in configurations.parts_of(setting)])
    assert len(np.unique(keys, axis=0)) == len(keys) // configurations.PAGES_OF_SITE


def test_a_wrong_output_is_told():
    right = {"records": 10, "checksum": "0ff"}
    assert configurations.fault_of({"output_records": 10, "output_checksum": "ff"}, right) == ""
    assert "9 records" in configurations.fault_of({"output_records": 9, "output_checksum": "ff"}, right)
    assert "checksum fe" in configurations.fault_of({"output_records": 10, "output_checksum": "fe"}, right)


def run(seconds, moved, **more):
    series = {"n": [[0.5, 1.0], [moved, moved], [moved, 0.0], [1.0, 1.0], [1.0, 1.0]]}
    node = {"read": moved, "written": moved, "processors": 2.0}
    phases = [{"name": "map and shuffle", "began": 0.0, "seconds": seconds}]
    prediction = {
        "shuffle": "push", "records": 640, "bytes": 40_960, "merge_seconds": 1e-7, "merging_seconds": 1.0,
        "saved_bytes": 0, "saving_seconds": 0.0,
    }  # fmt: skip
    usual = {"seconds": seconds, "reading": 1.0, "nodes": {"n": node}, "series": series, "phases": phases}
    return {**usual, "load": 0.5, "joules": None, "prediction": prediction, **more}


def result_of(runs):
    sweeps = {name: [BASE.__dict__] for name in ("programs", "record size")}
    machine = {"cores": 2, "processor": "P", "memory_bytes": 1 << 30, "filesystem": "ext4"}
    return {"sweeps": sweeps, "runs": {BASE.name: runs}, "machine": machine, "versions": {"ray": "2"}}


def test_the_page_has_ratios_and_says_whether_predictions_were_right(tmp_path):
    runs = {"none": [run(2.0, 81_920)], "map": [run(3.0, 40_960)], "map and reduce": [run(1.0, 20_480)]}
    result = result_of({**runs, "auto": [run(2.0, 81_920)]})
    configurations_page.write(tmp_path, result)
    page = (tmp_path / "README.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| sort | ")]
    assert ["| 1.00 | 2.00 | 2.00 |" in rows[0], "| 1.50 | 1.00 | 1.00 |" in rows[1]] == [True, True]
    # Beside the published figures: 2 of 3 seconds with reading, and half of the bytes.
    assert "| 53.1 % |  | -33.3 % | 33.3 % |" in page
    assert "| sort: bytes written / data | merge sort 2.00, merge on read 1.00 | 2.00 | 1.00 | 0.50 |" in page
    assert "| push | 2.00 s | 3.00 s | push | right |" in page and "no RAPL" in page
    assert page.count("| right |") == 1 and "to views" not in page
    assert (tmp_path / f"chart-{BASE.name}.svg").read_text().count("map and shuffle") >= 3
    runs["map"] = [run(1.5, 40_960)]
    wrong = configurations_page.markdown(result_of({**runs, "auto": [run(2.0, 81_920)]}))
    assert "| pull | **wrong** |" in wrong
    pull = run(2.0, 40_960)
    pull["prediction"]["shuffle"] = "pull"
    views = configurations_page.markdown(result_of({**runs, "none, views": [run(2.5, 1)], "auto, views": [pull]}))
    assert "to views | 64 B | 100 ns | 1.00 s | 0 B | 0.00 s | pull | 2.50 s | 1.00 s | pull | right |" in views


def test_an_interrupted_session_goes_on(tmp_path):
    runs = {BASE.name: {"none": [run(1.0, 1)], "map": [{"error": "no space"}]}}
    left = configurations.missing([BASE], runs, 0)
    assert [name for _, name in left] == ["map and reduce", "auto", "none, views", "auto, views"]
    assert len(configurations.missing([BASE], runs, 1)) == 6
    assert len(configurations.missing([replace(BASE, workload="join")], runs, 0)) == 4
    fresh = {"version": 1, "size": 1, "memory": 2, "commit": "b"}
    path = tmp_path / "result.json"
    assert configurations.read(path, fresh) is fresh
    path.write_text(json.dumps({**fresh, "commit": "a", "runs": runs}))
    assert configurations.read(path, fresh)["runs"].keys() == runs.keys()
    assert configurations.read(path, {**fresh, "size": 3}) == {**fresh, "size": 3}


def test_a_failed_run_is_a_row_and_a_fault():
    page = configurations_page.markdown(result_of({"none": [run(1.0, 1)], "map": [{"error": "no space"}]}))
    assert (
        "| map | failed |" in page
        and "| map and reduce | not run |" in page
        and f"- {BASE.name}, map: no space" in page
    )


def test_rates_of_nodes_are_added_at_each_step():
    nodes = {"a": [[1.0, 2.0], [1e6, 3e6]], "b": [[0.6], [5e6]]}
    points = dict(configurations_page.over_time({"series": nodes}, 1))
    assert (points[0.125], points[0.625], points[1.125]) == (6.0, 1.0, 3.0)
    svg = chart.timelines(
        "t", "s", [chart.Timeline("one", [("phase", 0.0, 2.0)], [chart.Line("read", [(0, 1)], True)])]
    )
    assert "phase: 2.0 s" in svg and svg.startswith("<svg")
