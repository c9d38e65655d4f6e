"""Predictions compared with measurements: the arithmetic, and a tiny run if there is a command."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from harness import plans


def _profile(read: float, write: float, duplex: float, spread: float) -> dict:
    figure = lambda value: {"value": value, "spread": spread}  # noqa: E731
    measured = {"read": {"rate": figure(read)}, "write": {"rate": figure(write)}, "duplex": figure(duplex)}
    return {"measurement": measured}


def test_the_spread_is_that_of_all_measurements_together() -> None:
    assert plans.spread([_profile(100, 100, 100, 5)]) == pytest.approx(0.05)
    drifted = [_profile(100, 100, 100, 5), _profile(100, 60, 100, 5)]
    assert plans.spread(drifted) == pytest.approx((105 - 55) / 2 / 80)


def test_quantiles_are_measured_values() -> None:
    values = [float(value) for value in range(1, 31)]
    assert (plans.quantile(values, 50), plans.quantile(values, 90)) == (15.0, 27.0)
    assert plans.quantile([3.0], 90) == 3.0


def test_errors_in_all_and_beyond_the_spread() -> None:
    planned = [{"device_seconds": 9.0, "compute_seconds": 1.0}]
    run = {"predicted_seconds": 12.0, "method": "merge", "planned": planned}
    runs = {"far": [{**run, "seconds": s} for s in (9.0, 10.0, 30.0)], "near": [{**run, "seconds": 11.5}]}
    far, near = plans.judged(runs, 0.05)
    assert (far["seconds"], far["error"], far["beyond"]) == (10.0, pytest.approx(0.2), pytest.approx(0.15))
    assert near["beyond"] == 0.0


def test_passes_bound_by_the_processor_do_not_vary_with_the_volume() -> None:
    half = [{"device_seconds": 3.0, "compute_seconds": 1.0}, {"device_seconds": 1.0, "compute_seconds": 3.0}]
    assert plans.device_share(half) == pytest.approx(0.5)
    assert plans.device_share([{"device_seconds": 1.0, "compute_seconds": 2.0}]) == 0.0


def test_there_are_thirty_jobs(tmp_path: Path) -> None:
    for number in range(plans.MERGED_FILES):
        (tmp_path / f"sorted-{number:02}").touch()
    listed = plans.jobs("ascot", tmp_path, plans.FULL)
    assert len(listed) == len({job.name for job in listed}) == 30
    merge = next(job for job in listed if job.name.startswith("merge"))
    assert sum("sorted-" in word for word in merge.argv) == plans.MERGED_FILES


def test_a_tiny_run_writes_its_result(tmp_path: Path) -> None:
    if not (ascot := os.environ.get("ASCOT_BIN")):
        pytest.skip("ASCOT_BIN names no command")
    out = tmp_path / "result"
    with tempfile.TemporaryDirectory(dir=os.environ.get("ASCOT_TEST_DIR")) as work:
        plans.write(out, plans.run(ascot, Path(work), plans.QUICK))
    told = json.loads((out / "runs.json").read_text())
    assert len(told["jobs"]) == 30 and all(job["predicted_seconds"] > 0 for job in told["jobs"])
    assert {job["method"] for job in told["jobs"]} >= {"in memory", "merge inputs", "split"}
    page = (out / "overview.md").read_text()
    assert "90th percentile" in page and "sort 32 MB of u64-le within 8 MiB" in page
    assert json.loads((out / "machine.json").read_text())["cores"] > 0
    assert work not in page + (out / "runs.json").read_text(), "where it was run is nobody's business"
