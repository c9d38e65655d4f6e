"""Sizes, the cgroup wrapper, disk counters, exits explained, fio reports."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from harness import limit, measure, special
from harness.cgroup import CgroupUnavailable, MemoryGroup, locate
from harness.measure import Command
from harness.units import GIB, MIB, decimal, flag_size, parse_size, seconds

DISKSTATS = """\
 254       0 vda 10 0 800 5 20 0 1600 9 0 0 0 0
 254       1 vda1 1 0 8 5 2 0 16 9 0 0 0 0
"""


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("8GB", 8 * 10**9), ("1GiB", GIB), ("64M", 64 * MIB), ("1.5 GiB", GIB * 3 // 2), ("100", 100)],
)
def test_sizes_are_read(text: str, bytes_: int) -> None:
    assert parse_size(text) == bytes_


def test_a_size_without_sense_is_refused_with_examples() -> None:
    with pytest.raises(ValueError, match="8GB"):
        parse_size("plenty")


def test_sizes_are_written() -> None:
    assert (flag_size(GIB), flag_size(64 * MIB), flag_size(1000)) == ("1G", "64M", "1000b")
    assert (decimal(8 * 10**9), seconds(0.0034), seconds(15.24)) == ("8 GB", "3.40 ms", "15.2 s")


def test_disk_counters_are_those_of_the_device() -> None:
    assert measure.parse_diskstats(DISKSTATS, 254, 0) == (800 * 512, 1600 * 512)
    assert measure.parse_diskstats(DISKSTATS, 254, 1) == (8 * 512, 16 * 512)
    assert measure.parse_diskstats(DISKSTATS, 8, 0) is None


def test_the_cgroup_version_is_found(tmp_path: Path) -> None:
    with pytest.raises(CgroupUnavailable, match="no-cgroup"):
        locate(tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    assert locate(tmp_path) == (2, tmp_path)
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "cgroup.procs").write_text("")
    assert locate(tmp_path) == (1, tmp_path / "memory")


def _pretend_v2(root: Path) -> MemoryGroup:
    (root / "cgroup.controllers").write_text("memory")
    group = MemoryGroup("g", 3 * MIB, root)
    group.path.mkdir()
    return group


def test_version_2_files_are_read(tmp_path: Path) -> None:
    group = _pretend_v2(tmp_path)
    (group.path / "memory.peak").write_text("123\n")
    (group.path / "memory.events").write_text("low 0\noom 1\noom_kill 2\n")
    (group.path / "memory.stat").write_text("anon 77\nfile 5\n")
    assert (group.peak(), group.kills(), group.resident()) == (123, 2, 77)


def test_a_wrapped_command_joins_the_group_first(tmp_path: Path) -> None:
    group = _pretend_v2(tmp_path)
    argv = group.wrap(["printf", "%s", "a b"])
    assert os.spawnv(os.P_WAIT, argv[0], argv) == 0
    assert (group.path / "cgroup.procs").read_text().strip().isdigit()


def _group_or_skip() -> None:
    try:
        with MemoryGroup(f"ascot-bench-test-{os.getpid()}", 64 * MIB):
            pass
    except CgroupUnavailable as error:
        pytest.skip(str(error))


def test_a_run_is_measured_and_held_to_its_limit(tmp_path: Path) -> None:
    _group_or_skip()
    hog = Command([sys.executable, "-c", "x = bytearray(200 << 20)"])
    outcome = measure._run_in(None, Command(["true"]), tmp_path, 10, tmp_path / "log")
    assert outcome.ok
    with MemoryGroup(f"ascot-bench-test-{os.getpid()}", 64 * MIB) as group:
        outcome = measure._run_in(group, hog, tmp_path, 30, tmp_path / "log")
    assert "out of memory" in outcome.error
    assert not group.path.exists()


def test_a_slow_run_is_stopped(tmp_path: Path) -> None:
    outcome = measure._run_in(None, Command(["sh", "-c", "sleep 30 & sleep 30"]), tmp_path, 0.2, tmp_path / "log")
    assert outcome.error.startswith("stopped") and outcome.seconds < 10


def test_a_failure_carries_its_last_words(tmp_path: Path) -> None:
    command = Command(["sh", "-c", "echo no such thing >&2; exit 3"])
    outcome = measure._run_in(None, command, tmp_path, 10, tmp_path / "log")
    assert outcome.error == "exit status 3: no such thing"


def test_fio_rates_are_summed_over_jobs() -> None:
    jobs = [
        {"read": {"bw_bytes": 100}, "write": {"bw_bytes": 0}},
        {"read": {"bw_bytes": 0}, "write": {"bw_bytes": 250}},
    ]
    assert limit.rates({"jobs": jobs}) == (100, 250)


def test_the_best_point_is_that_of_the_fastest_slower_way() -> None:
    grid = [{"read_bytes_per_s": 9, "write_bytes_per_s": 1}, {"read_bytes_per_s": 3, "write_bytes_per_s": 4}]
    assert limit.best(grid) is grid[1]


def test_starting_is_timed_against_a_known_answer(tmp_path: Path) -> None:
    wrapper = tmp_path / "pretend"
    wrapper.write_text('#!/bin/sh\nshift\nexec sort "$@"\n')
    wrapper.chmod(0o755)
    found = {entry["name"]: entry for entry in special.startup(tmp_path, [str(wrapper)], 3)}
    assert found["Ascot"]["error"] == "" and found["Ascot"]["starts"] == 3
    wrapper.write_text("#!/bin/sh\necho nonsense\n")
    found = {entry["name"]: entry for entry in special.startup(tmp_path, [str(wrapper)], 3)}
    assert found["Ascot"]["error"] == "wrong output" and found["Ascot"]["median_s"] is None
