"""Predictions compared with measurements: the draw of jobs, the arithmetic, and a tiny run if there is a command."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from harness import plans


def test_a_draw_has_all_kinds_and_layouts_and_depends_on_its_seed() -> None:
    drawn = plans.draw(14, plans.FULL)
    assert len(drawn) == 20 and {job.kind for job in drawn} == set(plans.KINDS)
    assert {job.layout.name for job in drawn} == {layout.name for layout in plans.LAYOUTS}
    assert drawn == plans.draw(14, plans.FULL) != plans.draw(15, plans.FULL)
    for job in drawn:
        assert job.memory >= plans.FULL.small_memory
        assert (job.memory > 3 * job.size) == (job.kind == "in memory")


def test_quantiles_are_measured_values() -> None:
    values = [float(value) for value in range(1, 31)]
    assert (plans.quantile(values, 50), plans.quantile(values, 90)) == (15.0, 27.0)
    assert plans.quantile([3.0], 90) == 3.0


def test_errors_have_a_size_and_a_sign() -> None:
    found = plans.errors([{"error": error} for error in (-0.3, -0.1, 0.0, 0.1, 0.5)])
    assert found == {"median": 0.1, "90th percentile": 0.5, "signed median": 0.0}


def test_a_tiny_run_writes_its_result(tmp_path: Path) -> None:
    if not (ascot := os.environ.get("ASCOT_BIN")):
        pytest.skip("ASCOT_BIN names no command")
    out = tmp_path / "result"
    with tempfile.TemporaryDirectory(dir=os.environ.get("ASCOT_TEST_DIR")) as work:
        plans.write(out, plans.run(ascot, Path(work), plans.QUICK, 14))
    told = json.loads((out / "runs.json").read_text())
    assert len(told["jobs"]) == plans.QUICK.jobs and all(job["predicted_seconds"] > 0 for job in told["jobs"])
    page = (out / "overview.md").read_text()
    assert "90th percentile" in page and all(job["name"] in page for job in told["jobs"])
    assert json.loads((out / "machine.json").read_text())["cores"] > 0
    assert work not in page + (out / "runs.json").read_text(), "where it was run is nobody's business"
