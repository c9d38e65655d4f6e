"""`ascot probe` measures a volume within its time and space, and leaves no files."""

import json
import os
import signal
import subprocess
import time
import tomllib
import xml.etree.ElementTree as ElementTree

import pytest
from support import (
    MIB,
    clean_environment,
    job_directories,
    kill,
    leftovers,
    limit_open_files,
    run,
    small_disk,
    start,
)  # fmt: skip

pytestmark = pytest.mark.alone

QUICK = ("--seconds", "2", "--bytes", "64MiB")


@pytest.fixture(scope="module")
def probed(module_disk):
    """A directory with the files of one quick measurement, and its output."""
    (module_disk / "measured").mkdir()
    files = ("-o", module_disk / "volume.toml", "--plot", module_disk / "volume.svg")
    began = time.monotonic()
    done = run("probe", module_disk / "measured", *QUICK, "--json", *files)
    return module_disk, json.loads(done.stdout), time.monotonic() - began


def test_every_figure_has_a_value_and_a_spread(probed):
    _, told, seconds = probed
    assert seconds < 10
    measured = told["measurement"]
    assert measured["repeats"] >= 2
    assert 0 < measured["used_bytes"] <= 64 * MIB
    for way in ("read", "write"):
        assert measured[way]["rate"]["value"] > 1e6
        assert measured[way]["rate"]["spread"] >= 0
        assert measured[way]["request_bytes"] >= 4096 and measured[way]["depth"] >= 1
        files = [point["files"] for point in measured[f"{way}_switches"]]
        assert files == [2**power for power in range(1, len(files) + 1)] and len(files) >= 3
    assert measured["duplex"]["value"] > 1e6
    assert told["volume"]["measured"] is True
    kernels = told["host"]["kernels"]
    assert [kernel["layout"] for kernel in kernels] == [
        "u64-le", "fixed:16", "fixed:2000", "lines", "lines", "csv", "csv",
    ]  # fmt: skip
    assert [kernel["keys"] for kernel in kernels] == [1, 1, 1, 1, 1, 1, 2]
    assert all(kernel[step]["value"] > 1e6 for kernel in kernels for step in ("sort", "merge", "merge_runs", "split"))


def test_no_files_are_left(probed):
    directory, _, _ = probed
    assert leftovers(directory / "measured") == []
    assert leftovers(directory) == ["measured", "volume.svg", "volume.toml"]


def test_the_profile_matches_the_output(probed):
    directory, told, _ = probed
    written = tomllib.loads((directory / "volume.toml").read_text())
    assert written["read_bytes_per_s"] == pytest.approx(told["volume"]["read_bytes_per_s"])
    assert written["measurement"] == told["measurement"]
    assert written["host"] == told["host"]
    assert str(directory / "measured") in written["name"]


def test_plans_are_made_with_the_profile(probed):
    directory, told, _ = probed
    words = ("plan", "bowtie", "--inputs", "3", "--outputs", "100", "--memory", "1GiB", "--json")
    plan = json.loads(run(*words, "--volume", directory / "volume.toml").stdout)
    assert plan["volume"]["measured"] is True
    assert plan["volume"]["name"] == told["volume"]["name"]


def test_a_sort_is_planned_with_the_profile(probed, disk):
    directory, told, _ = probed
    run("gen", "300k", "-o", disk / "records")
    words = ("sort", disk / "records", "--format", "fixed:100", "--key", "0..10", "--memory", "16MiB")
    volume = ("--volume", directory / "volume.toml")
    run(*words, *volume, "--explain", "--report", disk / "plan.json")
    plan = json.loads((disk / "plan.json").read_text())["plan"]
    assert plan["volume"]["measured"] is True
    assert plan["volume"]["read_bytes_per_s"] == pytest.approx(told["volume"]["read_bytes_per_s"])
    run(*words, *volume, "-o", disk / "sorted", "--report", disk / "report.json")
    assert json.loads((disk / "report.json").read_text())["plan"]["volume"]["measured"] is True
    run("check", disk / "sorted")
    run(*words, "--explain", "--report", disk / "plan.json")
    assert json.loads((disk / "plan.json").read_text())["plan"]["volume"]["measured"] is False


def test_the_chart_is_a_drawing(probed):
    directory, told, _ = probed
    svg = ElementTree.parse(directory / "volume.svg").getroot()
    assert svg.tag.endswith("svg")
    points = len(told["measurement"]["read_switches"])
    assert len(svg.findall(".//{*}circle")) == 2 * points
    assert "nan" not in (directory / "volume.svg").read_text().lower()


def test_the_table_has_all_figures(disk):
    told = run("probe", disk, *QUICK).stdout.decode()
    words = ["reading", "writing", "both", "each figure", "±", "lost by a switch", "u64-le", "lines of 20 bytes"]
    for word in words:
        assert word in told, told
    assert leftovers(disk) == []


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_leaves_no_files(disk, name):
    process = start("probe", disk, "--seconds", "60", "-o", disk / "volume.toml")
    time.sleep(1.5)
    process.send_signal(name)
    process.communicate(timeout=20)
    assert process.returncode == -name
    assert leftovers(disk) == []


def test_a_killed_measurement_leaves_only_what_clean_removes_by_itself(disk):
    """The inputs of its small jobs have no names, so that none of these jobs can be continued."""
    process = start("probe", disk, *QUICK)
    while process.poll() is None and not [job for job in job_directories(disk) if list(job.iterdir())]:
        time.sleep(0.001)
    kill(process)
    assert job_directories(disk)
    told = run("clean", cwd=disk, env=clean_environment(TMPDIR=str(disk)))
    assert leftovers(disk) == [], told.stdout


def test_a_tmpfs_is_refused():
    if not os.path.ismount("/dev/shm"):
        pytest.skip("no tmpfs here")
    told = run("probe", "/dev/shm", *QUICK, expect=2).stderr
    assert "tmpfs" in told and "disk" in told


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (["/no/such/place"], "/no/such/place"),
        ([".", "--bytes", "1MiB"], "32 MiB"),
        ([".", "--seconds", "0"], "--seconds"),
        ([".", "--bytes", "100"], "--bytes"),
        ([".", "-o", "/no/such/place/p.toml"], "/no/such/place"),
        ([], "DIR"),
    ],
)
def test_refusals_name_a_remedy(disk, words, word):
    told = run("probe", *words, cwd=disk, expect=2).stderr
    assert word in told, told
    assert leftovers(disk) == []


@pytest.mark.privileged
def test_a_nearly_full_volume(disk):
    with small_disk(disk, 160 * MIB) as volume:
        done = run("probe", volume, "--seconds", "2")
        assert "instead of" in done.stderr and "free" in done.stderr
        assert leftovers(volume) == []
        free = os.statvfs(volume).f_bavail * os.statvfs(volume).f_bsize
        with open(volume / "ballast", "wb") as file:
            file.write(bytes(free - 40 * MIB))
        told = run("probe", volume, "--seconds", "2", expect=2).stderr
        assert "64 MiB needed" in told and "free" in told, told
        assert leftovers(volume) == ["ballast"]


def test_few_open_files_suffice(disk):
    told = run("probe", disk, *QUICK, "--json", preexec_fn=limit_open_files(40))
    assert len(json.loads(told.stdout)["measurement"]["read_switches"]) >= 1


def test_a_closed_pipe_is_no_crash(disk):
    process = start("probe", disk, *QUICK, stdout=subprocess.PIPE)
    process.stdout.close()
    process.stdout = None
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGPIPE
    assert leftovers(disk) == []


def test_profiles_with_nonsense_are_refused(probed, tmp_path):
    directory, _, _ = probed
    text = (directory / "volume.toml").read_text()
    for old, new, word in [
        ("threads = ", "thraeds = ", "thraeds"),
        ("repeats = ", "repaets = ", "repaets"),
        ("measured = true", "measured = 7", "measured"),
    ]:
        (tmp_path / "bad.toml").write_text(text.replace(old, new))
        told = run("plan", "bowtie", "--volume", tmp_path / "bad.toml", expect=2, env=clean_environment()).stderr
        assert "bad.toml" in told and ("not a volume's profile" in told or word in told), told
