"""Spills are compressed where the volume is the bottleneck and the data shrinks, and a wrong choice is reversed.

Most tests give the job the profile of a slow volume (`--volume`): its time is that of the bytes moved, by its rates.
"""

import json
import os
import random
import re
import shutil

import pytest
from support import (
    FIXED,
    METHODS,
    MIB,
    clean_environment,
    digest,
    enter_cgroup,
    kill,
    run,
    small_disk,
    start,
    stop_where,
    throttled_cgroup,
)  # fmt: skip

SLOW_RATE = 40e6
RANDOM_BYTES, SHRINKING_BYTES = 48 * MIB, 48 * MIB


def lines(count, seed):
    """Lines that shrink to a third."""
    rng = random.Random(seed)
    words = [f"{rng.getrandbits(64):016x}" for _ in range(3000)]
    return "".join(f"{rng.randrange(10**9)} {rng.choice(words)} {rng.choice(words)}\n" for _ in range(count)).encode()


def hard_lines(number_bytes, seed):
    """Lines of random bytes, which do not shrink."""
    data = bytearray(random.Random(seed).randbytes(number_bytes).replace(b"\n", b"\r"))
    data[99::100] = b"\n" * len(data[99::100])
    return bytes(data) + b"\n"


@pytest.fixture(scope="module")
def made(module_disk):
    """Files of 48 MiB: `soft` shrinks, `hard` does not, `soft-hard` and `hard-soft` change in the middle."""
    soft = lines(48 * MIB // 44, 1)
    hard = hard_lines(48 * MIB, 2)
    files = {"soft": soft, "hard": hard, "soft-hard": soft + hard, "hard-soft": hard + soft}
    for name, content in files.items():
        (module_disk / name).write_bytes(content)
    return module_disk


def profile(path, rate):
    """The profile of a volume that reads and writes in turn."""
    rates = f"read_bytes_per_s = {rate}\nwrite_bytes_per_s = {rate}\n"
    path.write_text(f'name = "slow"\n{rates}switch_seconds = 0.0\n')
    return path


@pytest.fixture
def slow(tmp_path):
    return profile(tmp_path / "slow.toml", SLOW_RATE)


@pytest.fixture
def crawling(tmp_path):
    """A volume so slow that compression pays on the busiest machine."""
    return profile(tmp_path / "crawling.toml", SLOW_RATE / 20)


def sort(source, disk, report, *more, memory="8MiB", **options):
    """Sorts within little memory; returns the report and the digest of the output."""
    words = [source, "--memory", memory, "-o", disk / "out", "--temp", disk, "--report", report, *more]
    run("sort", *words, **options)
    found = digest(disk / "out")
    os.remove(disk / "out")
    return json.loads(report.read_text()), found


def device_seconds(report):
    moved = report["moved"]
    return (moved["read_bytes"] + moved["written_bytes"]) / SLOW_RATE


def codecs(report):
    """The codecs decided for, in order."""
    return [decision["to"] for decision in report["compression"]["decisions"]]


def spilled(report, *names):
    """Bytes of spills with these codecs, and bytes stored."""
    passes = [one for one in report["compression"]["passes"] if one["codec"] in names]
    return sum(one["bytes"] for one in passes), sum(one["stored_bytes"] for one in passes)


@pytest.mark.parametrize("method", METHODS)
def test_data_that_shrinks_takes_less_time_of_a_slow_volume(method, made, slow, disk, tmp_path):
    words = [made / "soft", disk, tmp_path / "r.json", "--method", method, "--volume", slow]
    plain, expected = sort(*words, "--compress", "none")
    told, found = sort(*words)
    assert found == expected
    assert codecs(told)[0] in ("lz4", "zstd")
    assert device_seconds(told) < 0.80 * device_seconds(plain)
    bytes_in, stored = spilled(told, "lz4", "zstd")
    assert stored < 0.6 * bytes_in
    first = told["compression"]["decisions"][0]
    assert first["from"] is None and first["after_bytes"] == 0
    assert re.search(r"shrinks to \d+ percent, and the volume writes 40.0 MB/s", first["reason"])
    # What is reported is what was moved: the spills' own streams count stored bytes and the padding of blocks.
    first_pass = told["passes"][0]
    [spills] = [stream for stream in first_pass["streams"] if stream["name"] == "spills"]
    of_pass = [one for one in told["compression"]["passes"] if one["pass"] == first_pass["name"]]
    stored = sum(one["stored_bytes"] for one in of_pass)
    assert stored <= spills["written_bytes"] <= 1.3 * stored


@pytest.mark.parametrize("method", METHODS)
def test_data_that_does_not_shrink_is_stored_as_it_is(method, made, slow, disk, tmp_path):
    told, _ = sort(made / "hard", disk, tmp_path / "r.json", "--method", method, "--volume", slow)
    assert codecs(told) == ["none"]
    assert "shrinks only to" in told["compression"]["decisions"][0]["reason"]
    assert spilled(told, "lz4", "zstd") == (0, 0)


def test_flash_is_not_the_bottleneck(made, disk, tmp_path):
    told, _ = sort(made / "soft", disk, tmp_path / "r.json", "--volume", "flash")
    assert told["compression"]["asked"] == "auto"
    assert spilled(told, "lz4", "zstd") == (0, 0) and spilled(told, "none")[0] > 40 * MIB


def test_a_codec_that_the_user_names_is_kept(made, slow, disk, tmp_path):
    told, _ = sort(made / "hard", disk, tmp_path / "r.json", "--volume", slow, "--compress", "lz4")
    assert [one["codec"] for one in told["compression"]["passes"]] == ["lz4"]
    assert codecs(told) == []


@pytest.mark.parametrize("method", METHODS)
def test_the_choice_follows_data_that_changes(method, made, crawling, disk, tmp_path):
    words = [disk, tmp_path / "r.json", "--method", method, "--volume", crawling]
    for name in ("hard-soft", "soft-hard"):
        plain, expected = sort(made / name, *words, "--compress", "none")
        told, found = sort(made / name, *words)
        assert found == expected
        if method == "distribute":
            # Each part has lines of both kinds, and blocks follow the input.
            continue
        seen = codecs(told)
        if name == "hard-soft":
            assert seen[0] == "none" and seen[1] in ("lz4", "zstd"), seen
        else:
            assert seen[0] in ("lz4", "zstd") and seen[-1] == "none", seen
        changes = told["compression"]["decisions"][1:]
        assert all(change["from"] and change["after_bytes"] > 0 for change in changes)
        # Few bytes are compressed in vain, and most that shrink are compressed.
        bytes_in, stored = spilled(told, "lz4", "zstd")
        assert bytes_in > 0.6 * SHRINKING_BYTES and stored < 0.75 * bytes_in, (bytes_in, stored)
        assert device_seconds(told) < 0.92 * device_seconds(plain)


def test_early_merges_compress_too(made, slow, disk, tmp_path):
    words = [made / "soft", disk, tmp_path / "r.json", "--method", "merge", "--volume", slow, "--batch-size", "3"]
    plain, expected = sort(*words, "--compress", "none")
    told, found = sort(*words)
    assert found == expected
    of_merges = [one for one in told["compression"]["passes"] if one["pass"] == "merge some"]
    assert of_merges and all(one["stored_bytes"] < 0.6 * one["bytes"] for one in of_merges)
    assert device_seconds(told) < 0.75 * device_seconds(plain)


@pytest.mark.parametrize("method", METHODS)
def test_a_killed_job_resumes_with_runs_of_several_codecs(method, made, crawling, disk, tmp_path):
    """The killed job has blocks of two codecs; the resumed one chooses anew."""
    source = made / "hard-soft"
    words = ["--memory", "8MiB", "--temp", disk, "--method", method, "--volume", crawling]
    _, expected = sort(source, disk, tmp_path / "r.json", *words[4:], "--compress", "none")
    process = start("sort", source, *words, "-o", disk / "out")
    whole = source.stat().st_size
    stop_where(process, disk, lambda manifest: manifest["read_upto"]["offset"] > whole * 0.8 or manifest["all_read"])
    kill(process)
    [job] = disk.glob("ascot-*")
    # Files that are being written have space ahead, which is zero.
    stored = sum(len(path.read_bytes().rstrip(b"\0")) for path in job.glob("*.run"))
    run("sort", "--resume", job, "--report", tmp_path / "r.json")
    assert digest(disk / "out") == expected
    told = json.loads((tmp_path / "r.json").read_text())
    assert told["resumed"] and stored < 0.78 * whole


def test_explain_says_whether_spills_are_compressed(made, slow):
    def spills(*words, source="soft"):
        told = run("sort", made / source, "--memory", "8MiB", "-o", made / "out", "--explain", *words)
        return re.findall(r"^  spills   (.*)$", told.stdout.decode(), re.MULTILINE)

    assert spills("--volume", slow) == ["compressed if the first sorted records shrink: the volume writes 40.0 MB/s"]
    assert spills("--volume", "flash") == ["as they are: the volume counts as flash"]
    assert spills("--compress", "lz4") == ["compressed with lz4 (--compress)"]
    assert spills("--compress", "none") == ["as they are (--compress none)"]
    assert spills("--memory", "1GiB") == []


# ---------------------------------------------------------------- volumes that turn out otherwise


def as_user(state):
    """The environment of a user whose volumes are looked up."""
    kept = clean_environment(XDG_STATE_HOME=state)
    del kept["ASCOT_VOLUME"]
    return kept


@pytest.mark.alone
@pytest.mark.privileged
def test_a_wrong_profile_is_corrected(made, disk, tmp_path):
    """A stored profile calls a fast disk slow: the job begins to compress, measures the disk, and stops."""
    from test_profiles import rewrite

    state = tmp_path / "state"
    state.mkdir()
    env = as_user(state)
    with small_disk(disk, 900 * MIB) as volume:
        run("probe", volume, "--seconds", "1", "--bytes", "32MiB", env=env)
        [file] = (state / "ascot/profiles").glob("*")
        rates = [(rf"^{name}_bytes_per_s = .*$", f"{name}_bytes_per_s = 2.0e7") for name in ("read", "write")]
        duplex = [(r"^duplex_bytes_per_s = .*\n", "")] if "duplex_bytes_per_s" in file.read_text() else []
        rewrite(file, *rates, *duplex)
        for number in range(4):
            shutil.copy(made / "soft", volume / f"in-{number}")
        words = ["--memory", "32MiB", "--verbose", "--method", "merge", "--temp", volume, "-o", volume / "out"]
        told = run("sort", *sorted(volume.glob("in-*")), *words, "--report", tmp_path / "r.json", env=env)
        report = json.loads((tmp_path / "r.json").read_text())
        assert codecs(report)[0] in ("lz4", "zstd")
        # On a busy machine the disk may look slow again later.
        assert "none" in codecs(report)[1:], report["compression"]["decisions"]
        assert re.search(r"\n +after [\d.]+ MB none: ", told.stderr), told.stderr
        assert spilled(report, "none")[0] > 0


@pytest.mark.alone
@pytest.mark.privileged
def test_a_volume_that_turns_out_slow_is_spared(made, disk, tmp_path):
    """The profile of the volume is old: now it writes at 20 MB/s. The job measures that and begins to compress."""
    state = tmp_path / "state"
    state.mkdir()
    run("probe", disk, "--seconds", "1", "--bytes", "32MiB", env=as_user(state))
    for number in range(4):
        shutil.copy(made / "soft", disk / f"in-{number}")
    words = ["--memory", "32MiB", "--method", "merge", "--temp", disk, "-o", disk / "out"]
    with throttled_cgroup(disk, 20_000_000, ("write",)) as group:
        run(
            "sort", *sorted(disk.glob("in-*")), *words, "--report", tmp_path / "r.json",
            env=as_user(state), preexec_fn=enter_cgroup(group),
        )  # fmt: skip
    report = json.loads((tmp_path / "r.json").read_text())
    assert codecs(report)[-1] in ("lz4", "zstd"), report["compression"]
    assert report["moved"]["written_bytes"] < 0.9 * 2 * report["bytes_in"]


def test_records_on_flash_move_the_bytes_that_they_moved(disk, tmp_path):
    """Integers and fixed records, the data of most binary jobs, are untouched by the default."""
    run("gen", "300k", "-o", disk / "in.rec")
    moved = []
    for how in ("none", "auto"):
        told, _ = sort(disk / "in.rec", disk, tmp_path / "r.json", *FIXED, "--compress", how)
        moved.append(told["moved"]["written_bytes"])
    assert abs(moved[0] - moved[1]) < MIB // 4
