"""Profiles of volumes are stored by `ascot probe`, found by every job, and assumed by the kind of a volume otherwise.

These tests take away the variables by which all others do the same on every machine (`support.same_everywhere`).
"""

import json
import os
import re
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import FIXED, MIB, as_root, clean_environment, leftovers, run, small_disk

QUICK = ("--seconds", "1", "--bytes", "32MiB")
PROFILES = "ascot/profiles"


@pytest.fixture
def state(tmp_path):
    """An empty directory for the state of a user."""
    path = tmp_path / "state"
    path.mkdir()
    return path


def environment(state, **extra):
    """The environment of a user with this state, whose volumes are looked up."""
    kept = clean_environment(XDG_STATE_HOME=state)
    del kept["ASCOT_VOLUME"]
    return {**kept, **{name: str(value) for name, value in extra.items()}}


def as_user(state, *words, **options):
    return run(*words, env=environment(state), **options)


def files_of(state):
    return sorted((state / PROFILES).glob("*"))


def volumes_line(told):
    """The line of --explain that names volumes."""
    [line] = re.findall(r"^  volumes  (.*)$", told, re.MULTILINE)
    return line


def crc32c(data):
    """CRC-32C, bit by bit."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def rewrite(path, *changes):
    """Changes a stored profile and makes its checksum right again, as docs/formats/profile.md describes it."""
    line, body = path.read_text().split("\n", 1)
    assert line == f'checksum = "crc32c:{crc32c(body.encode()):08x}"'
    for pattern, text in changes:
        body, count = re.subn(pattern, text, body, flags=re.MULTILINE)
        assert count == 1, pattern
    path.write_text(f'checksum = "crc32c:{crc32c(body.encode()):08x}"\n{body}')


@contextmanager
def probed_disk(disk, state, size=200 * MIB):
    """A small disk with a stored profile and a file of 20 MB records; yields its directory."""
    with small_disk(disk, size) as volume:
        as_user(state, "probe", volume, *QUICK)
        run("gen", "200k", "-o", volume / "in")
        yield volume


def explain(state, volume, *more, **options):
    words = ("sort", volume / "in", *FIXED, "--memory", "8MiB", "-o", volume / "out", "--explain", *more)
    return as_user(state, *words, **options)


@pytest.mark.privileged
def test_a_stored_profile_is_listed_found_and_forgotten(disk, state):
    with probed_disk(disk, state) as volume:
        [file] = files_of(state)
        assert (state / PROFILES).stat().st_mode & 0o777 == 0o700
        [listed] = json.loads(as_user(state, "probe", "--list", "--json").stdout)
        assert listed["mount"] == str(volume) and listed["file"] == str(file)
        assert listed["device"] == f"loop:{volume.parent / 'disk.img'}"
        assert listed["device_bytes"] == 200 * MIB
        assert listed["volume"]["measured"] is True
        today = time.strftime("%Y-%m-%d", time.gmtime())
        assert listed["date"][:10] <= today
        table = as_user(state, "probe", "--list").stdout.decode()
        for word in ("device", "mount", "reads", "a switch", "date", str(volume), listed["date"][:10]):
            assert word in table, table
        done = explain(state, volume, "--report", disk / "plan.json")
        told = done.stdout.decode()
        assert volumes_line(told) == f"inputs, spills and output on {volume}, probed on {listed['date'][:10]}"
        assert "as measured, within memory" in told and done.stderr == ""
        plan = json.loads((disk / "plan.json").read_text())
        assert plan["plan"]["volume"] == listed["volume"]
        # Every other command that moves data, too.
        split = ("split", volume / "in", *FIXED, "--by", "hash", "--parts", "3", "-o", volume / "p-{}", "--explain")
        merge = ("merge", volume / "in", *FIXED, "-o", volume / "out", "--explain")
        view = ("sort", volume / "in", *FIXED, "--memory", "8MiB", "--view", volume / "v", "--explain")
        for words in (split, merge, view):
            assert "probed on" in volumes_line(as_user(state, *words).stdout.decode())
        planned = json.loads(
            as_user(state, "plan", "merge", "--inputs", "9", "--input", "1GB", "--json", cwd=volume).stdout
        )
        assert planned["volume"]["measured"] is True and "probed on" in planned["volume"]["name"]
        # Files elsewhere have their own volume, and the inputs are apart from them.
        apart = as_user(state, "sort", volume / "in", *FIXED, "-o", disk / "out", "--temp", disk, "--explain")
        line = volumes_line(apart.stdout.decode())
        assert line.startswith(f"inputs on {volume}, probed on") and "; spills and output on" in line
        assert "a volume of their own" in apart.stdout.decode()
        # --volume wins.
        given = explain(state, volume, "--volume", "rotational").stdout.decode()
        assert volumes_line(given) == "all files: given by --volume"
        assert "rotational disk, assumed" in given
        assert str(volume) in as_user(state, "probe", "--forget", volume).stdout.decode()
        assert files_of(state) == []
        assert "recognised as" in volumes_line(explain(state, volume).stdout.decode())
        assert "no profile is stored" in as_user(state, "probe", "--forget", volume, expect=2).stderr


@pytest.mark.privileged
def test_devices_and_all_are_forgotten_by_name(disk, state):
    with probed_disk(disk, state) as volume:
        [listed] = json.loads(as_user(state, "probe", "--list", "--json").stdout)
        # A look-up opens the file of the device and searches no others.
        [file] = files_of(state)
        file.rename(file.with_name("other.toml"))
        assert "recognised as" in volumes_line(explain(state, volume).stdout.decode())
        assert len(json.loads(as_user(state, "probe", "--list", "--json").stdout)) == 1
        as_user(state, "probe", "--forget", listed["device"])
        assert files_of(state) == []
        as_user(state, "probe", volume, *QUICK)
        (state / PROFILES / "nonsense.toml").write_text("what?")
        told = as_user(state, "probe", "--list").stdout.decode()
        assert "nonsense.toml: it is damaged" in told
        as_user(state, "probe", "--forget", "nonsense.toml")
        assert len(files_of(state)) == 1
        as_user(state, "probe", "--forget", "all")
        assert files_of(state) == []
    assert b"no profiles are stored" in as_user(state, "probe", "--list").stdout
    assert json.loads(as_user(state, "probe", "--list", "--json").stdout) == []


UNUSABLE = {
    "it comes from another machine": (r"^machine = .*$", 'machine = "0123"'),
    "its device has changed": (r"^device_bytes = .*$", "device_bytes = 17"),
    "version 99": (r"^version = 1$", "version = 99"),
    "write_bytes_per_s": (r"^write_bytes_per_s = .*$", "write_bytes_per_s = -1.0"),
    "it is damaged": (r"^read_bytes_per_s = .*$", "read_bytes_per_s = 1.0e3"),
}


@pytest.mark.privileged
def test_an_unusable_profile_is_ignored_with_one_notice(disk, state):
    with probed_disk(disk, state) as volume:
        [file] = files_of(state)
        stored = file.read_text()
        for reason, change in UNUSABLE.items():
            file.write_text(stored)
            if reason == "it is damaged":
                body = re.sub(*change, stored, flags=re.MULTILINE)
                assert body != stored
                file.write_text(body)
            else:
                rewrite(file, change)
            done = explain(state, volume)
            assert "recognised as" in volumes_line(done.stdout.decode()), reason
            assert done.stderr.count("is ignored") == 1 and reason in done.stderr, done.stderr
            assert str(volume) in done.stderr and "ascot probe DIR" in done.stderr
            assert explain(state, volume, "--quiet").stderr == ""
        sort = ("sort", volume / "in", *FIXED, "--memory", "8MiB", "-o", volume / "out")
        assert as_user(state, *sort).stderr.count("is ignored") == 1
        run("check", volume / "out")
        as_user(state, *sort[:-2], "--view", volume / "view", "--quiet")
        shown = as_user(state, "view", volume / "view", "-o", volume / "out")
        assert shown.stderr.count("is ignored") == 1
        run("check", volume / "out")
        assert as_user(state, "sort", "-c", volume / "out", *FIXED).stderr.count("is ignored") == 1
        assert as_user(state, "sort", "-C", volume / "out", *FIXED).stderr == ""
        # A new measurement replaces it.
        as_user(state, "probe", volume, *QUICK)
        assert explain(state, volume).stderr == ""


@pytest.mark.privileged
def test_a_device_that_has_grown_is_another_one(disk, state):
    with probed_disk(disk, state):
        pass
    with open(disk / "disk.img", "r+b") as image:
        image.truncate(220 * MIB)
    mounted = subprocess.run([*as_root(), "mount", "-o", "loop", disk / "disk.img", disk / "disk"])
    assert mounted.returncode == 0
    try:
        assert "its device has changed" in explain(state, disk / "disk").stderr
    finally:
        subprocess.run([*as_root(), "umount", disk / "disk"], check=True)


def test_a_pipe_in_the_store_blocks_no_command(disk, state):
    (state / PROFILES).mkdir(parents=True)
    # Opening it would wait for ever.
    os.mkfifo(state / PROFILES / "a-pipe.toml")
    (disk / "in").write_bytes(b"b\na\n")
    as_user(state, "sort", disk / "in", "-o", disk / "out", timeout=20)
    assert (disk / "out").read_bytes() == b"a\nb\n"
    assert "a-pipe.toml" in as_user(state, "probe", "--list", timeout=20).stdout.decode()


def test_without_a_place_for_the_state_a_measurement_is_shown_and_not_stored(disk, tmp_path):
    (tmp_path / "file").write_text("not a directory")
    for state, home in [(tmp_path / "file", tmp_path), ("", ""), ("relative", tmp_path / "file")]:
        done = run("probe", disk, *QUICK, env=environment(state, HOME=home))
        assert b"reading" in done.stdout
        assert "the profile is not stored" in done.stderr and "-o FILE" in done.stderr, done.stderr
        assert "HOME" in done.stderr or "file" in done.stderr
    assert leftovers(disk) == [] and leftovers(tmp_path) == ["file"]
    # No job says anything about it.
    (disk / "in").write_bytes(b"b\na\n")
    sort = ("sort", disk / "in", "-o", disk / "out", "--explain")
    assert run(*sort, env=environment("", HOME="")).stderr == ""
    assert b"no profiles are stored" in run("probe", "--list", env=environment("", HOME="")).stdout


def test_the_state_is_below_home_by_default(disk, tmp_path):
    run("probe", disk, *QUICK, env=environment("", HOME=tmp_path))
    assert len(list((tmp_path / ".local/state" / PROFILES).glob("*.toml"))) == 1


@pytest.mark.privileged
def test_an_overlay_is_the_volume_of_its_upper_directory(disk, state):
    with probed_disk(disk, state) as volume:
        for name in ("lower", "upper", "work"):
            (volume / name).mkdir()
        at = disk / "overlay"
        at.mkdir()
        directories = f"lowerdir={volume}/lower,upperdir={volume}/upper,workdir={volume}/work"
        mounted = subprocess.run(
            [*as_root(), "mount", "-t", "overlay", "overlay", "-o", directories, at], capture_output=True
        )
        if mounted.returncode != 0:
            pytest.skip("overlays cannot be mounted here")
        try:
            (at / "in").write_bytes(b"b\na\n")
            told = as_user(state, "sort", at / "in", "-o", at / "out", "--explain").stdout.decode()
            assert volumes_line(told).startswith(f"inputs, spills and output on {at}, probed on ")
        finally:
            subprocess.run([*as_root(), "umount", at], check=True)


@pytest.mark.parametrize("words", [("--method", "merge"), ("--method", "distribute"), ("--merge",)])
def test_flash_and_virtual_disks_are_planned_as_without_a_profile(disk, state, words):
    run("gen", "200k", "-o", disk / "in")
    sort = ("sort", disk / "in", *FIXED, "--memory", "8MiB", "-o", disk / "out", "--explain", *words)
    told = as_user(state, *sort, "--report", disk / "found.json").stdout.decode()
    if not re.search("recognised as (flash|a virtual disk)$", volumes_line(told)):
        pytest.skip(f"this machine has other disks: {volumes_line(told)}")
    as_user(state, *sort, "--volume", "flash", "--report", disk / "flash.json")
    found, flash = (json.loads((disk / name).read_text()) for name in ("found.json", "flash.json"))
    assert found["plan"] == flash["plan"] and found["requests"] is None and found["input_volume"] is None


def test_memory_is_recognised(disk, state):
    if not os.path.ismount("/dev/shm"):
        pytest.skip("no tmpfs here")
    (disk / "in").write_bytes(b"b\na\n")
    target = Path("/dev/shm") / f"ascot-profiles-{os.getpid()}"
    told = as_user(state, "sort", disk / "in", "-o", target, "--explain").stdout.decode()
    assert "on /dev/shm, recognised as memory" in volumes_line(told)
    assert not target.exists()


def test_a_mounted_view_is_recognised_as_fuse(disk, state):
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("FUSE does not work here")
    run("gen", "200k", "-o", disk / "in")
    run("sort", disk / "in", *FIXED, "--memory", "8MiB", "--view", disk / "view")
    (disk / "at").mkdir()
    run("mount", disk / "view", disk / "at")
    try:
        [file] = [path for path in (disk / "at").iterdir() if path.stat().st_size == 20_000_000]
        told = as_user(state, "sort", file, *FIXED, "-o", disk / "out", "--explain").stdout.decode()
        line = volumes_line(told)
        assert line.startswith(f"inputs on {disk / 'at'}, recognised as a FUSE file system; "), line
        sort = ("sort", file, *FIXED, "--memory", "8MiB", "-o", disk / "out", "--report", disk / "report.json")
        as_user(state, *sort)
        run("check", disk / "out")
        report = json.loads((disk / "report.json").read_text())
        assert [volume["of"] for volume in report["volumes"]] == ["inputs", "spills and output"]
        assert report["volumes"][0]["predicted"]["name"] == "FUSE, assumed"
    finally:
        subprocess.run(["fusermount3", "-u", disk / "at"], check=True)


def test_a_kind_stands_for_its_profile(disk, state):
    run("gen", "200k", "-o", disk / "in")
    sort = ("sort", disk / "in", *FIXED, "--memory", "8MiB", "-o", disk / "out", "--explain")

    def plan(*words, **extra):
        done = run(*sort, *words, "--report", disk / "plan.json", env=environment(state, **extra))
        return done.stdout.decode(), json.loads((disk / "plan.json").read_text())["plan"]

    told, rotational = plan("--volume", "rotational")
    assert volumes_line(told) == "all files: given by --volume"
    assert rotational["volume"]["switch_seconds"] == 0.01
    told, variable = plan(ASCOT_VOLUME="rotational")
    assert volumes_line(told) == "all files: given by ASCOT_VOLUME" and variable == rotational
    _, flash = plan("--volume", "flash")
    assert flash["volume"]["name"] == "flash, assumed"
    # Long runs on a volume that seeks.
    switches = [sum(one["switches"] for one in plan["chosen"]["passes"]) for plan in (rotational, flash)]
    assert 2 * switches[0] < switches[1]
    told = run(*sort, "--volume", "no-such-kind", env=environment(state), expect=2).stderr
    assert "no-such-kind" in told


SLOW = [
    (r"^read_bytes_per_s = .*$", "read_bytes_per_s = 1.0e8"),
    (r"^write_bytes_per_s = .*$", "write_bytes_per_s = 1.0e8"),
    (r"^duplex_bytes_per_s = .*\n", ""),
    (r"^switch_seconds = .*$", "switch_seconds = 1.0"),
]


@pytest.mark.privileged
def test_a_job_corrects_a_found_profile_and_never_a_given_one(disk, state):
    with probed_disk(disk, state, 800 * MIB) as volume:
        [file] = files_of(state)
        rewrite(file, *SLOW)
        stored = file.read_bytes()
        # The same figures without `stored`, for --volume.
        text = stored.decode().split("\n", 1)[1].split("\n[stored]\n")[0]
        (disk / "slow.toml").write_text(text)
        run("gen", "2M", "-o", volume / "in")
        sort = ("sort", volume / "in", *FIXED, "--memory", "16MiB", "-o", volume / "out", "--method", "merge")

        def report(*words):
            done = as_user(state, *sort, *words, "--verbose", "--report", disk / "report.json", timeout=300)
            run("check", volume / "out")
            return done.stderr, json.loads((disk / "report.json").read_text())

        told, found = report()
        _, given = report("--volume", disk / "slow.toml")
        for of in (found, given):
            assert of["plan"]["volume"]["switch_seconds"] == 1.0
            [seen] = of["volumes"]
            assert seen["predicted"]["read_bytes_per_s"] == 1e8
            assert seen["measured"]["switch_seconds"] < 0.5
        assert found["volumes"][0]["corrected"] is True
        assert given["volumes"][0]["corrected"] is False
        assert "volume of all files: reads" in told and "later passes followed these figures" in told
        # The plan merges few runs at once; the job saw that switches cost little, and merged all of them.
        passes = [[one["name"] for one in of["passes"]] for of in (found, given)]
        assert passes == [["form runs", "merge"], ["form runs", "merge some", "merge"]]
        assert file.read_bytes() == stored


@pytest.mark.privileged
def test_later_passes_of_a_split_follow_what_the_first_measured(disk, state):
    with probed_disk(disk, state, 800 * MIB) as volume:
        [file] = files_of(state)
        rewrite(file, *SLOW)
        (disk / "slow.toml").write_text(file.read_text().split("\n", 1)[1].split("\n[stored]\n")[0])
        run("gen", "1M", "-o", volume / "in")
        split = ("split", volume / "in", *FIXED, "--by", "hash", "--parts", "60", "--memory", "8MiB")

        def runs(*words):
            words = (*split, "-o", volume / "part-{:02}", *words, "--report", disk / "report.json")
            as_user(state, *words, timeout=300)
            report = json.loads((disk / "report.json").read_text())
            assert report["plan"]["chosen"]["factors"] == given_factors
            later = [stream for one in report["passes"][1:] for stream in one["streams"]]
            return report["volumes"][0]["corrected"], sum(one["written_runs"] for one in later)

        told = as_user(state, *split, "-o", volume / "part-{:02}", "--explain", "--report", disk / "report.json")
        given_factors = json.loads((disk / "report.json").read_text())["plan"]["chosen"]["factors"]
        assert len(given_factors) > 1, told.stdout
        # Where switches cost little, blocks are written as they come, not in long runs.
        (followed, found), (stayed, given) = runs(), runs("--volume", disk / "slow.toml")
        assert found > 2 * given
        assert followed and not stayed
