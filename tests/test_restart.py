"""Restarting writers of indexed directories: one command creates or continues, and rolls back to a checkpoint."""

import json
import os
import time

import pytest
import support
from test_index import FIXED, SCHEMES, dumps, expected, get, key_of, run, value_of
from test_index import made as made  # a fixture


def test_an_empty_directory_is_accepted_and_stays_after_an_error(disk):
    first, directory = dumps(disk, 1, 100)[0], disk / "run.dir"
    directory.mkdir()
    (disk / "short.bin").write_bytes(b"x" * 57)
    run("build", disk / "short.bin", *FIXED, "-o", directory, expect=2)
    assert not list(directory.iterdir())
    run("build", first, *FIXED, "-o", directory)
    assert get(directory, 7) == expected([0], 7)
    assert "exists already" in run("build", first, *FIXED, "-o", directory, expect=2).stderr
    (disk / "other").mkdir()
    (disk / "other" / "notes").write_text("mine")
    for mode in ("create", "auto"):
        refused = run("build", first, *FIXED, "--open", mode, "-o", disk / "other", expect=2).stderr
        assert "exists already" in refused
    assert [path.name for path in (disk / "other").iterdir()] == ["notes"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_option_creates_and_continues_a_directory(disk, scheme):
    """The same command every time; after an older checkpoint, no epoch exists twice."""
    files, directory = dumps(disk, 4, 1000), disk / "run.dir"
    words = [*FIXED, "--open", "auto", "--scheme", scheme, "-o", directory]
    for epoch in (0, 1, 2, 1, 2, 3):
        run("build", files[epoch], *words, "--rollback", epoch)
        assert get(directory, 77) == expected(range(epoch + 1), 77)
        assert run("verify", directory).stdout.startswith(b"whole: ")
    refused = run("build", files[0], *words, "--rollback", 5, expect=2).stderr
    assert "cannot roll back to 5 epochs" in refused and "4 complete epochs" in refused
    other = {"records": "ranks", "pointers": "ranks", "ranks": "records"}[scheme]
    for how in (["--append"], ["--open", "auto"]):
        refused = run("build", files[0], *FIXED, *how, "--scheme", other, "-o", directory, expect=2).stderr
        assert f"made with scheme {scheme}, and scheme {other} was given" in refused
    # More partitions from this epoch.
    run("build", files[0], *words, "--partitions", 3, "--rollback", 2)
    told = json.loads(run("info", directory, "--json").stdout)["manifest"]
    assert (told["version"], told["epochs"], told["layout"]["partitions"]) == (2, 3, 3)
    assert get(directory, 77) == [*expected([0, 1], 77), (2, value_of(0, 77))]
    assert b"epochs      0 to 1: 1 partition, 1 writer" in run("info", directory).stdout


def test_rollback_drops_the_last_epochs(made):
    before = {path.name: path.stat().st_size for path in made.iterdir()}
    said = run("rollback", made, "--to-epoch", 1).stderr
    assert "1 epoch is complete, 2 dropped" in said and "the next is epoch 1" in said
    assert get(made, 17) == expected([0], 17)
    assert run("verify", made).stdout.startswith(b"whole: ")
    info = json.loads(run("info", made, "--json").stdout)
    assert info["tail_bytes"] == 0 and info["manifest"]["closed"]
    for path in made.iterdir():
        assert path.stat().st_size < before[path.name] or path.name in ("LOCK", "MANIFEST"), path
    told = json.loads(run("rollback", made, "--to-epoch", 1, "--json").stdout)
    assert told == {"epochs": 1, "dropped": 0, "freed_bytes": 0}
    assert "1 complete epoch" in run("rollback", made, "--to-epoch", 2, expect=2).stderr
    run("rollback", made, "--to-epoch", 0)
    assert get(made, 17, expect=1) == []
    assert "--to-epoch" in run("rollback", made, expect=2).stderr


def test_a_build_killed_in_its_first_epoch_can_restart(disk):
    for mode in ("auto", "create", "append"):
        directory, slow = disk / f"{mode}.dir", disk / f"{mode}.slow"
        os.mkfifo(slow)
        process = support.start("index", "build", slow, *FIXED, "-o", directory)
        with open(slow, "wb") as pipe:
            pipe.write(key_of(1) + value_of(9, 1))
            pipe.flush()
            deadline = time.time() + 20
            while not list(directory.glob("part-*.index")):
                assert time.time() < deadline
                time.sleep(0.01)
            process.kill()
            process.wait()
        assert json.loads(run("info", directory, "--json").stdout)["manifest"]["epochs"] == 0
        run("build", dumps(disk, 1, 100)[0], *FIXED, "--open", mode, "-o", directory)
        assert get(directory, 1) == expected([0], 1)
