"""`ascot view --explain`: how a view would be read, in the numbers of the reading itself."""

import json
import re

import pytest
from support import FIXED, MIB
from test_views import made as made  # a fixture
from test_views import run


def bytes_read(step):
    return sum(stream["read_bytes"] for stream in step["streams"])


ARRAY = 'name = "24 disks"\nread_bytes_per_s = 3.5e9\nwrite_bytes_per_s = 3.5e9\nswitch_seconds = 0.0155\n'


@pytest.mark.parametrize("volume, output", [("flash", False), ("array", False), ("array", True), ("flash", True)])
def test_explain_shows_how_a_view_would_be_read(volume, output, made):
    """In the words and numbers of the reading itself, and without reading a block of the view."""
    (made / "array.toml").write_text(ARRAY)
    profile = made / "array.toml" if volume == "array" else "flash"
    out = made / "out"
    words = ["view", made / "v.view", "--memory", "16MiB", "--threads", 2, "--volume", profile]
    words += ["-o", out] if output else []
    told = run(*words, "--explain", "--report", made / "plan.json").stdout.decode()
    assert not out.exists()
    run(*words, "--report", made / "report.json")
    plan, report = (json.loads((made / name).read_text()) for name in ("plan.json", "report.json"))
    _, read = report["passes"]
    assert plan["bytes"] == report["bytes_out"] == 30_000_000
    assert plan["view_runs"] == plan["reading"]["runs"] == read["inputs"]
    assert plan["seconds"] == report["predicted_seconds"]
    assert plan["memory_bytes"] == report["memory_bytes"] == 16 * MIB
    buffers = read["buffers"]
    assert (plan["reading"]["blocks"], plan["reading"]["block_bytes"]) == (buffers["blocks"], buffers["block_bytes"])
    assert plan["reading"]["stored_bytes"] == bytes_read(read)
    in_turns = volume == "array" and output
    assert plan["in_turns"] == in_turns == ("take turns" in told)
    order = "groups" if in_turns else "long-runs" if volume == "array" else "forecast"
    assert plan["reading"]["order"] == order
    assert {"groups": "by A4", "long-runs": "by A3", "forecast": "block by block"}[order] in told, told
    assert len(re.findall("^  volumes  all files: given by --volume$", told, re.M)) == 1, told
    name = "24 disks" if volume == "array" else "flash"
    assert f"volume {name}" in told and "16 MiB, 2 threads" in told and "  time     about" in told, told
    assert (f"  into     {out}" if output else "  into     standard output") in told, told


@pytest.mark.parametrize(
    "part",
    [
        ("--range", "3M..5M"),
        ("--keys", "0x41..0x59"),
        ("--head", 30_000),
        ("--tail", 30_000),
        ("--at-record", 270_000),
    ],
)
def test_explain_shows_about_what_a_part_reads(part, made):
    """Damaged blocks show that none is read: a reading refuses them, an explanation does not see them."""
    words = ["view", made / "v.view", *part, "--memory", "8MiB"]
    run(*words, "--report", made / "report.json")
    read = json.loads((made / "report.json").read_text())["passes"][1]
    read = bytes_read(read)
    for name in (made / "v.view").glob("run-*"):
        with open(name, "r+b") as file:
            for block in range(0, name.stat().st_size - 65536, 32768):
                file.seek(block + 99)
                file.write(b"damage")
    assert "damaged" in run(*words, expect=2).stderr
    told = run(*words, "--explain", "--report", made / "plan.json").stdout.decode()
    plan = json.loads((made / "plan.json").read_text())
    assert "about" in told and "of 30" in told, told
    assert plan["reading"]["stored_bytes"] == pytest.approx(read, rel=0.5), (plan, read)


def test_explain_refuses_what_the_reading_would(made):
    small = run("view", made / "v.view", "--explain", "--memory", "1MiB", expect=2)
    assert "memory" in small.stderr and not small.stdout
    again = run("view", made / "v.view", "--explain", "--report", made / "v.view" / "view.json", expect=2)
    assert "view.json" in again.stderr
    run("gen", "1", "-o", made / "one.rec")
    run("sort", made / "one.rec", *FIXED, "--view", made / "one.view")
    assert "merge 1 run" in run("view", made / "one.view", "--explain").stdout.decode()
    assert "0 B of 100 B" in run("view", made / "one.view", "--explain", "--head", 0).stdout.decode()
