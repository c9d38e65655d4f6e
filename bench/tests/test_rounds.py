"""The two rounds with simulated contenders, and their result pages."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("polars")
pytest.importorskip("pyarrow")

from harness import chart, measure, oracle, report, rounds, targets
from harness.contenders import Contender, Job, Setting
from harness.data import DataSet
from harness.measure import Command


class Pretend(Contender):
    """Copies its input after a while; settings are (name, seconds, size from which it fails)."""

    formats = {"lines": "lines.txt"}  # noqa: RUF012

    def __init__(self, name: str, *settings: tuple[str, float, int]) -> None:
        self.name, self._settings = name, settings

    def version(self) -> str:
        return "1.0"

    def settings(self, job: Job) -> list[Setting]:
        size = job.input.stat().st_size
        return [
            Setting(name, Command(["sh", "-c", f"sleep {wait}; " + self._end(size, fails, job)]))
            for name, wait, fails in self._settings
        ]

    @staticmethod
    def _end(size: int, fails: int, job: Job) -> str:
        return "echo too much >&2; exit 1" if size >= fails else f"cp {job.input} {job.output}"


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    """A comparison of Ascot, a peer whose fastest setting fails on the full size, and one that always fails."""
    monkeypatch.setattr(measure, "drop_caches", lambda: None)

    def data(kind: str, size: int) -> DataSet:
        path = tmp_path / f"data-{size}.txt"
        path.write_bytes(b"x" * size)
        return DataSet(kind, path, size, oracle.Sum(1, 1))

    never = 10**9
    peers = [
        Pretend("Ascot", ("as it plans", 0.0, never)),
        Pretend("Slow", ("wrong choice", 0.0, 800), ("right choice", 0.05, never), ("slower", 0.1, never)),
        Pretend("Broken", ("only", 0.0, 0)),
    ]
    work = tmp_path / "run"
    work.mkdir()
    plan = rounds.Plan("lines", 1000, 500, 1 << 20, None, 2, 3, peers)
    standings = rounds.Rounds(work, data, lambda _: None, lambda *_: "").compare(plan)
    assert [path.name for path in work.iterdir()] == ["log.txt"]
    found = rounds.summary(plan, standings, lambda text: text.replace(str(tmp_path), "DIR"))
    workload = {"bytes": 1000, "memory": 1 << 20, "spare": None, "repeats": 3, "contenders": found}
    return {
        "date": "2026-01-02",
        "machine": {
            "cores": 2, "processor": "P <1>", "memory_bytes": 1 << 34, "system": "S", "kernel": "6.1",
            "filesystem": "ext4",
        },
        "workloads": {"limit": _limit(), "lines": workload},
    }  # fmt: skip


def _limit() -> dict:
    top = {"block": "1m", "depth": 8, "read_bytes_per_s": 1.2e9, "write_bytes_per_s": 1.3e9}
    return {
        "command": "fio", "grid": [top], "best": top, "read_alone_bytes_per_s": 2e9,
        "write_alone_bytes_per_s": 2e9, "duplex_bytes_per_s": 1.2e9, "limit_bytes_per_s": 6e8,
    }  # fmt: skip


def test_the_next_best_setting_takes_over_and_failures_are_reported(compared: dict) -> None:
    ascot, slow, broken = compared["workloads"]["lines"]["contenders"]
    assert len(ascot["runs"]) == 3 and ascot["times_ascot"] == 1.0
    assert slow["setting"] == "right choice" and len(slow["runs"]) == 3
    assert [run["error"] for run in slow["failures"]] == ["exit status 1: too much"]
    assert broken["median_s"] is None and not broken["runs"]
    assert slow["min_s"] <= slow["median_s"] <= slow["max_s"]
    assert "DIR/data-1000.txt" in slow["runs"][0]["command"]


def test_slow_programs_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "drop_caches", lambda: None)
    (tmp_path / "data").write_bytes(b"x" * 100)
    never = 10**9
    peers = [
        Pretend("Ascot", ("as it plans", 0.02, never)),
        Pretend("Best", ("only", 0.2, never)),
        Pretend("Behind", ("only", 0.4, never)),
        Pretend("Broken", ("only", 0.0, 0)),
    ]
    work = tmp_path / "run"
    work.mkdir()
    source = DataSet("lines.txt", tmp_path / "data", 100, oracle.Sum(1, 1))
    plan = rounds.Plan("lines", 100, 100, 1 << 20, None, 2, 3, peers, repeat_within=2.0)
    found = rounds.Rounds(work, lambda *_: source, lambda _: None, lambda *_: "").compare(plan)
    assert [len(standing.runs) for standing in found] == [3, 3, 1, 0]


def test_the_pages_are_written(compared: dict, tmp_path: Path) -> None:
    report.write(tmp_path / "out", compared)
    page = (tmp_path / "out" / "README.md").read_text()
    assert "failed: exit status 1: too much" in page
    assert "right choice, on 500 B" in page and "**(taken)**" in page
    assert "600 MB/s of input" in page
    assert str(tmp_path) not in page
    overview = (tmp_path / "out" / "overview.md").read_text()
    assert "whole line, 1 kB | " in overview and "| failed |" in overview
    assert json.loads((tmp_path / "out" / "result.json").read_text())["targets"]
    ElementTree.parse(tmp_path / "out" / "chart.svg")


def test_the_chart_escapes_and_scales() -> None:
    bars = [chart.Bar("Ascot", 500.0, 480.0, 510.0), chart.Bar("a < b", None, note="failed & gone")]
    root = ElementTree.fromstring(chart.svg("T", "S", [chart.Panel("P", "MB/s", bars, limit=600.0)]))
    words = " ".join(root.itertext())
    assert "a < b" in words and "failed & gone" in words and "600 MB/s" in words


def _entry(name: str, rate: float) -> dict:
    return {"name": name, "mb_per_s": rate, "median_s": 8000 / rate}


@pytest.mark.parametrize(("own", "met"), [(505, False), (520, True)])
def test_the_lower_bound_counts(own: float, met: bool) -> None:
    entries = [_entry("Ascot", own), _entry("DuckDB", 130.0), {"name": "Spark", "median_s": None}]
    result = {"workloads": {"records": {"contenders": entries}, "limit": {"limit_bytes_per_s": 6e8}}}
    (judged,) = targets.judge(result)
    assert judged["met"] is met and "85% of the limit, 510" in judged["asked"]


def test_a_missing_program_gives_no_verdict() -> None:
    entries = [_entry("Ascot", 300.0), {"name": "GNU sort", "median_s": None}]
    (judged,) = targets.judge({"workloads": {"lines": {"contenders": entries}}})
    assert judged["met"] is None and "gave no time" in judged["measured"]
