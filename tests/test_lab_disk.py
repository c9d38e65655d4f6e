"""`ascot lab disk` measures volumes with the requests of a sort, and leaves nothing on them."""

import json
import os
import signal
import subprocess
import tempfile
import time

import pytest
from support import (
    MIB,
    enter_cgroup,
    leave_free,
    leftovers,
    limit_file_size,
    run,
    small_disk,
    start,
    throttled_cgroup,
)  # fmt: skip

pytestmark = pytest.mark.alone

# Small enough for a loop-mounted image: 8 MiB in requests of 256 KiB.
QUICK = ("--bytes", "8MiB", "--request", "256KiB", "--rounds", "1")


@pytest.fixture(scope="module")
def volumes(module_disk):
    """Two mounted volumes of their own."""
    for name in ("a", "b"):
        (module_disk / name).mkdir()
    with small_disk(module_disk / "a", 96 * MIB) as first, small_disk(module_disk / "b", 96 * MIB) as second:
        yield first, second


def passes_of(report):
    return {(p["phase"], p["directions"], p["preallocated"]): p for p in report["passes"]}


def test_every_phase_is_measured_on_two_volumes(volumes, disk):
    first, second = volumes
    both = f"{first},{second}"
    words = ("lab", "disk", "--input", both, "--output", both, *QUICK, "--json", "--report", disk / "report.json")
    done = run(*words)
    report = json.loads(done.stdout)
    assert json.loads((disk / "report.json").read_text()) == report
    passes = passes_of(report)
    for phase, writes in (("map-and-shuffle", 4), ("sort-and-reduce", 2)):
        for preallocated in (False, True):
            found = passes[phase, "both", preallocated]
            assert (found["reads"], found["writes"]) == (2, writes)
            for direction in ("reading", "writing"):
                rates = found[direction]
                members = rates["members"]
                assert [member["name"] for member in members] == [str(first), str(second)]
                values = [member["bytes_per_s"] for member in members]
                assert rates["mean"] == pytest.approx(sum(values) / 2)
                assert rates["deviation"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
                slowest = min(members, key=lambda member: member["bytes_per_s"])
                assert rates["slowest"] == slowest and slowest["bytes_per_s"] > 0
            assert "writing" in passes[phase, "writing", preallocated]
    assert passes[None, "reading", False]["reading"]["mean"] > 0
    assert all(volume["direct"] for volume in report["inputs"] + report["outputs"])
    # Layout, and thirteen directions of nine passes, of two inputs.
    assert report["prediction"]["moved_bytes"] == 14 * 2 * 8 * MIB
    assert [space["bytes"] for space in report["prediction"]["space"]] == [16 * MIB, 16 * MIB]
    assert report["prediction"]["seconds"] > 0 and "first short measurement" in done.stderr
    assert leftovers(first) == leftovers(second) == []


def test_volumes_are_repeated_flags_too_and_the_text_names_the_slowest(volumes):
    first, second = volumes
    done = run("lab", "disk", "--input", first, "--output", second, "--output", first, *QUICK)
    told = done.stdout.decode()
    for words in ("map-and-shuffle, 2 reads and 4 writes in flight, preallocated", "sort-and-reduce, 2 reads and 2",
                  "reading", "writing", "deviation", str(second), "predicted: moves"):  # fmt: skip
        assert words in told, told
    assert leftovers(first) == leftovers(second) == []


def test_a_slow_volume_shows_as_slow(volumes):
    """The kernel limits the writes to one of them."""
    first, second = volumes
    words = ("--input", first, "--output", f"{first},{second}", *QUICK, "--memory", "16MiB", "--json")
    with throttled_cgroup(second, 8 * MIB, ("write",)) as group:
        done = run("lab", "disk", *words, preexec_fn=enter_cgroup(group))
    for found in json.loads(done.stdout)["passes"]:
        if found["directions"] != "reading":
            assert found["writing"]["slowest"]["name"] == str(second)
            assert found["writing"]["fastest"]["name"] == str(first)


def test_the_rates_are_those_of_the_device_not_of_the_cache(volumes):
    """The kernel counts the bytes that reach the loop devices."""
    first, second = volumes

    def sectors(mount):
        number = os.stat(mount).st_dev
        with open(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat") as file:
            fields = file.read().split()
        return int(fields[2]) * 512, int(fields[6]) * 512

    before = [sectors(first), sectors(second)]
    run("lab", "disk", "--input", first, "--output", second, *QUICK)
    after = [sectors(first), sectors(second)]
    read = after[0][0] - before[0][0]
    written = after[1][1] - before[1][1]
    # Five passes read 8 MiB, eight write; the first short measurement adds a little.
    assert 5 * 8 * MIB <= read <= 5 * 8 * MIB + 12 * MIB
    assert 8 * 8 * MIB <= written <= 8 * 8 * MIB + 20 * MIB


def test_a_full_volume_is_refused_before_anything_is_written(volumes):
    first, second = volumes
    done = run("lab", "disk", "--input", first, "--output", second, "--bytes", "1GiB", expect=2)
    assert "not enough space" in done.stderr and "nothing was written" in done.stderr
    assert str(first) in done.stderr and "GiB needed" in done.stderr
    assert leftovers(first) == leftovers(second) == []


def test_the_first_short_measurement_takes_no_more_space_than_the_rest(volumes):
    first, second = volumes
    leave_free(first, 35 * MIB)
    try:
        run("lab", "disk", "--input", first, "--output", second, "--bytes", "32MiB", "--rounds", "1")
    finally:
        (first / "filler").unlink()


def test_a_volume_that_becomes_full_is_named(volumes):
    """Another program takes the space after the check."""
    first, second = volumes
    words = ("--bytes", "32MiB", "--request", "1MiB", "--rounds", "1000")
    process = start("lab", "disk", "--input", first, "--output", second, *words)
    try:
        assert b"moves" in process.stderr.readline()
        leave_free(second, 4096)
        told = process.communicate(timeout=60)[1].decode()
    finally:
        process.kill()
        (second / "filler").unlink(missing_ok=True)
    assert process.returncode == 2, told
    assert str(second) in told and "the volume is full" in told
    assert leftovers(first) == leftovers(second) == []


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_leaves_no_files_and_no_space_taken(volumes, name):
    first, second = volumes
    free = [os.statvfs(mount).f_bfree for mount in volumes]
    words = ("--bytes", "16MiB", "--request", "1MiB", "--rounds", "1000")
    process = start("lab", "disk", "--input", first, "--output", second, *words)
    assert b"moves" in process.stderr.readline()
    time.sleep(0.3)
    process.send_signal(name)
    process.communicate(timeout=20)
    assert process.returncode == -name
    assert leftovers(first) == leftovers(second) == []
    # The last blocks of a killed process are freed when its requests have ended.
    until = time.monotonic() + 10
    while [os.statvfs(mount).f_bfree for mount in volumes] != free and time.monotonic() < until:
        time.sleep(0.05)
    assert [os.statvfs(mount).f_bfree for mount in volumes] == free


def test_a_time_limit_shortens_the_inputs(volumes):
    first, second = volumes
    words = ("lab", "disk", "--input", first, "--output", second, "--bytes", "32MiB", "--request", "64KiB")
    report = json.loads(run(*words, "--rounds", "100", "--seconds", "0.2", "--json").stdout)
    assert report["input_bytes"] < 32 * MIB
    assert any("--seconds" in notice for notice in report["notices"])


def test_a_stored_profile_predicts(volumes):
    first, _ = volumes
    run("probe", first, "--seconds", "2", "--bytes", "32MiB")
    try:
        done = run("lab", "disk", "--input", first, "--output", first, *QUICK, "--json")
        assert json.loads(done.stdout)["prediction"]["origin"] == "stored profiles"
    finally:
        run("probe", "--forget", first, expect=None)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--request", "1000b"], "multiple of 4 KiB"),
        (["--bytes", "1MiB"], "is the least"),
        (["--memory", "1MiB"], "does not hold the requests in flight"),
        (["--rounds", "0"], "--rounds"),
        (["--seconds", "never"], "--seconds"),
        (["--report", "/no/such/dir/r.json"], "cannot write the report"),
    ],
)
def test_impossible_values_are_refused(disk, flags, told):
    done = run("lab", "disk", "--input", disk, "--output", disk, *flags, expect=2)
    assert told in done.stderr
    assert leftovers(disk) == []


def test_directories_that_are_none_are_named(disk):
    for path in (disk / "missing", "/etc/passwd"):
        done = run("lab", "disk", "--input", path, "--output", disk, expect=2)
        assert str(path) in done.stderr
    assert "named twice" in run("lab", "disk", "--input", f"{disk},{disk}", "--output", disk, expect=2).stderr
    assert "--output" in run("lab", "disk", "--input", disk, expect=2).stderr


def test_a_limit_of_file_sizes_is_named(disk):
    words = ("lab", "disk", "--input", disk, "--output", disk, *QUICK)
    done = run(*words, expect=2, preexec_fn=limit_file_size(MIB))
    assert "ulimit -f" in done.stderr
    assert leftovers(disk) == []


def test_a_volume_without_direct_access_is_named(disk):
    """ext4 with data=journal accepts O_DIRECT and uses the page cache all the same."""
    with small_disk(disk, 96 * MIB, features="has_journal", mount_options="loop,data=journal") as volume:
        done = run("lab", "disk", "--input", volume, "--output", disk, *QUICK, "--json")
        report = json.loads(done.stdout)
        assert leftovers(volume) == []
    assert [found["direct"] for found in report["inputs"] + report["outputs"]] == [False, True]
    assert any(str(volume) in notice and "refuses O_DIRECT" in notice for notice in report["notices"])
    assert passes_of(report)["map-and-shuffle", "both", False]["reading"]["mean"] > 0


def test_a_volume_that_is_memory_is_named(disk):
    if subprocess.run(["findmnt", "-nt", "tmpfs", "/dev/shm"], capture_output=True).returncode != 0:
        pytest.skip("/dev/shm is not a tmpfs")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        done = run("lab", "disk", "--input", memory, "--output", disk, *QUICK)
        assert f"{memory} is memory" in done.stdout.decode()
        assert leftovers(memory) == []
