"""Indexed directories: what was appended is found again, whatever happened to the writer or to the files."""

import contextlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import time

import pytest
import support
from support import MIB, leftovers, small_disk

FIXED = ["--format", "fixed:56", "--key", "0..8"]
SCHEMES = ["records", "pointers", "ranks"]
MOUNTS = os.path.exists("/dev/fuse") and os.geteuid() == 0 and shutil.which("fusermount3")
needs_fuse = pytest.mark.skipif(not MOUNTS, reason="needs /dev/fuse, fusermount3 and root")


def run(*arguments, **options):
    return support.run("index", *map(str, arguments), **options)


def key_of(number):
    return struct.pack(">Q", number * 7919)


def value_of(epoch, number):
    return struct.pack("<QQd", epoch, number, float(number)) + bytes([epoch % 256]) * 24


def write_dump(path, epoch, numbers):
    """A file of records, one for each number."""
    with open(path, "wb") as out:
        for number in numbers:
            out.write(key_of(number) + value_of(epoch, number))
    return path


def dumps(disk, epochs, records, seed=1):
    order = list(range(records))
    files = []
    for epoch in range(epochs):
        random.Random(seed + epoch).shuffle(order)
        files.append(write_dump(disk / f"dump{epoch}.bin", epoch, order))
    return files


def get(directory, number, *arguments, expect=0):
    lines = run("get", directory, f"0x{key_of(number).hex()}", "--json", *arguments, expect=expect).stdout
    return [(entry["epoch"], bytes.fromhex(entry["value"])) for entry in map(json.loads, lines.splitlines())]


def expected(epochs, number):
    return [(epoch, value_of(epoch, number)) for epoch in epochs]


@pytest.fixture(params=SCHEMES)
def made(request, disk):
    """A directory of three epochs, by each scheme."""
    files = dumps(disk, 3, 5000)
    run(
        "build",
        *files,
        *FIXED,
        "--epoch-per-file",
        "--scheme",
        request.param,
        "--partitions",
        2,
        "-o",
        disk / "run.dir",
    )
    return disk / "run.dir"


def test_all_values_of_a_key_are_found_with_their_epochs(made):
    for number in (0, 17, 4999):
        assert get(made, number) == expected(range(3), number)
        assert get(made, number, "--epoch", 1) == expected([1], number)
    assert get(made, 5000, expect=1) == []
    raw = run("get", made, f"be:{17 * 7919}", "--raw").stdout
    assert raw == b"".join(value_of(epoch, 17) for epoch in range(3))
    assert run("verify", made).stdout.startswith(b"whole: ")


def test_many_keys_are_found_together(made, disk):
    numbers = random.Random(3).sample(range(6000), 300)
    keys = disk / "keys.txt"
    keys.write_text("".join(f"0x{key_of(number).hex()}\n" for number in numbers))
    lines = run("get", made, "--keys-file", keys, "--json").stdout.splitlines()
    found = [(entry["key"], entry["epoch"], entry["value"]) for entry in map(json.loads, lines)]
    there = [number for number in numbers if number < 5000]
    assert found == [
        (key_of(number).hex(), epoch, value_of(epoch, number).hex()) for number in there for epoch in range(3)
    ]


def test_a_range_is_in_the_order_of_keys(made):
    lines = run("range", made, f"be:{100 * 7919}..be:{103 * 7919}", "--json").stdout.splitlines()
    found = [(entry["key"], entry["epoch"], entry["value"]) for entry in map(json.loads, lines)]
    assert found == [
        (key_of(number).hex(), epoch, value_of(epoch, number).hex())
        for number in (100, 101, 102)
        for epoch in range(3)
    ]
    everything = run("range", made, "..", "--raw").stdout
    assert len(everything) == 3 * 5000 * 56
    unordered = run("range", made, "..", "--raw", "--unordered").stdout
    records = [everything[at : at + 56] for at in range(0, len(everything), 56)]
    assert records == sorted(records, key=lambda record: (record[:8], record[8:16]))
    assert sorted(records) == sorted(unordered[at : at + 56] for at in range(0, len(unordered), 56))


def test_partitions_by_range_and_numbers_in_values(disk):
    files = dumps(disk, 2, 20_000)
    arguments = ["--partition-by", "range", "--partitions", 4, "--attribute", "energy=16:f64", "--epoch-per-file"]
    run("build", *files, *FIXED, *arguments, "-o", disk / "run.dir")
    sizes = [path.stat().st_size for path in sorted(disk.glob("run.dir/*.data"))]
    assert len(sizes) == 4 and max(sizes) < 1.5 * min(sizes), sizes
    lines = run("range", disk / "run.dir", "..", "--where", "energy>=19998", "--epoch", 1, "--json").stdout
    found = [json.loads(line)["value"] for line in lines.splitlines()]
    assert found == [value_of(1, number).hex() for number in (19998, 19999)]
    wrong = run("range", disk / "run.dir", "..", "--where", "mass>1", expect=2).stderr
    assert "there is no attribute mass" in wrong and "energy" in wrong


def test_few_reads_for_a_key(made):
    most = {"records": 2, "pointers": 3, "ranks": 3}
    scheme = json.loads(run("info", made, "--json").stdout)["manifest"]["layout"]["scheme"]
    told = run("get", made, f"0x{key_of(4).hex()}", "--stats").stderr
    words = told.replace("(", "").split()
    all_reads = int(words[words.index("in") + 1])
    opening, vain = int(words[words.index("open,") - 2]), int(words[words.index("vain),") - 2])
    assert all_reads - opening - vain <= 3 * most[scheme], told


def test_append_goes_on_behind(made, disk):
    more = write_dump(disk / "more.bin", 3, range(100))
    run("build", more, *FIXED, "--append", "-o", made)
    assert get(made, 5) == expected(range(4), 5)
    assert get(made, 4000) == expected(range(3), 4000)
    assert run("verify", made).stdout.startswith(b"whole: ")
    there = run("build", more, *FIXED, "-o", made, expect=2).stderr
    assert "exists already" in there


@pytest.mark.parametrize("scheme", SCHEMES)
def test_complete_epochs_stay_whenever_the_writer_is_killed(disk, scheme):
    files = dumps(disk, 8, 30_000)
    arguments = [*FIXED, "--epoch-per-file", "--scheme", scheme, "--memory", "16MiB", "--partitions", "2"]
    seen = set()
    for attempt in range(12):
        directory = disk / f"run{attempt}.dir"
        process = support.start("index", "build", *files, *arguments, "-o", directory)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.02 + 0.05 * attempt)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if not (directory / "MANIFEST").exists():
            continue
        info = json.loads(run("info", directory, "--json").stdout)
        epochs = info["manifest"]["epochs"]
        seen.add(epochs)
        for number in (0, 123, 29_999):
            assert get(directory, number, expect=0 if epochs else 1) == expected(range(epochs), number)
        assert run("verify", directory).stdout.startswith(b"whole: ")
        run("build", files[0], *FIXED, "--append", "-o", directory)
        assert get(directory, 123) == [*expected(range(epochs), 123), (epochs, value_of(0, 123))]
        assert run("verify", directory).stdout.startswith(b"whole: ")
        shutil.rmtree(directory)
    assert len(seen) > 1, seen


def test_two_writers_do_not_share_a_directory(disk):
    os.mkfifo(disk / "slow")
    first = dumps(disk, 1, 100)[0]
    run("build", first, *FIXED, "-o", disk / "run.dir")
    process = support.start("index", "build", disk / "slow", *FIXED, "--append", "-o", disk / "run.dir")
    with open(disk / "slow", "wb") as slow:
        slow.write(key_of(1) + value_of(1, 1))
        slow.flush()
        deadline = time.time() + 20
        while run("build", first, *FIXED, "--append", "-o", disk / "run.dir", expect=None).returncode == 0:
            assert time.time() < deadline
        refused = run("build", first, *FIXED, "--append", "-o", disk / "run.dir", expect=2).stderr
        assert "is being written by another process" in refused
        assert len(get(disk / "run.dir", 1)) >= 1
    assert process.wait(20) == 0


def test_a_full_disk_keeps_the_epochs_before(disk):
    files = dumps(disk, 4, 100_000)
    with small_disk(disk, 24 * MIB) as volume:
        arguments = [*FIXED, "--epoch-per-file", "--memory", "16MiB", "-o", volume / "run.dir"]
        failed = run("build", *files, *arguments, expect=2).stderr
        assert "no space left" in failed and "epochs complete" in failed
        epochs = json.loads(run("info", volume / "run.dir", "--json").stdout)["manifest"]["epochs"]
        assert 0 < epochs < 4
        assert get(volume / "run.dir", 77) == expected(range(epochs), 77)
        assert run("verify", volume / "run.dir").stdout.startswith(b"whole: ")
        shutil.rmtree(volume / "run.dir")
        big = write_dump(disk / "big.bin", 0, range(600_000))
        failed = run("build", big, *arguments, expect=2).stderr
        assert "no space left" in failed and "nothing was kept" in failed
        assert [name for name in leftovers(volume) if not name.startswith("lost+found")] == []


def test_damage_is_told_and_never_a_wrong_value(made):
    for path in sorted(made.iterdir()):
        whole = path.read_bytes()
        if not whole:
            continue
        for at in random.Random(5).sample(range(len(whole)), 4):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
            done = run("get", made, f"0x{key_of(9).hex()}", "--json", expect=None)
            values = [json.loads(line) for line in done.stdout.splitlines()]
            found = [(entry["epoch"], bytes.fromhex(entry["value"])) for entry in values]
            assert done.returncode == 2 or found == expected(range(3), 9), path
            if done.returncode == 2:
                assert "damaged at byte" in done.stderr or "cut short" in done.stderr, done.stderr
        path.write_bytes(whole)
    assert get(made, 9) == expected(range(3), 9)


def test_what_is_wrong_with_a_directory_is_said(made, disk):
    data = next(iter(sorted(made.glob("*.data"))))
    aside = data.rename(disk / "aside")
    verified = run("verify", made, expect=1).stdout.decode()
    assert str(data) in verified and "is missing" in verified
    aside.rename(data)
    index = next(iter(sorted([*made.glob("*.index"), *made.glob("*.aux")])))
    os.truncate(index, 4096)
    assert "cut short" in run("verify", made, expect=1).stdout.decode()
    manifest = made / "MANIFEST"
    manifest.write_bytes(manifest.read_bytes().replace(b'"epochs":3', b'"epochs":4'))
    assert "its checksum is wrong" in run("get", made, "0x00", expect=2).stderr
    manifest.unlink()
    assert "is not an indexed directory" in run("get", made, "0x00", expect=2).stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--key", "0..8", "--format", "fixed:4"], "the key ends at byte 8"),
        (["--key", "8", "--format", "fixed:56"], "no range of bytes"),
        (["--key", "0..8", "--format", "csv"], "cannot be indexed"),
        (["--key", "0..8", "--format", "fixed:56", "--memory", "1MiB"], "allow more memory"),
        (["--key", "0..8", "--format", "fixed:56", "--attribute", "x"], "is no attribute"),
        (["--key", "0..8", "--format", "fixed:55"], "cut short"),
    ],
)
def test_wrong_wishes_leave_nothing(disk, arguments, said):
    file = write_dump(disk / "in.bin", 0, range(10))
    assert said in run("build", file, *arguments, "-o", disk / "run.dir", expect=2).stderr
    assert leftovers(disk) == ["in.bin"]


def test_memory_is_a_cap(disk):
    file = write_dump(disk / "in.bin", 0, range(600_000))
    for scheme in SCHEMES:
        arguments = [*FIXED, "--scheme", scheme, "--memory", "24MiB", "-o", disk / scheme]
        measured = support.measure("index", "build", file, *arguments)
        assert measured.returncode == 0 and measured.peak_resident_bytes < (24 + 32) * MIB
        measured = support.measure("index", "range", disk / scheme, "be:0..be:1000", "--memory", "16MiB")
        assert measured.returncode == 0 and measured.peak_resident_bytes < (16 + 32) * MIB


def test_records_of_any_length(disk):
    lines = [f"{number:06d} " + "x" * (number % 50) for number in range(3000)]
    lines[1234] = "001234 " + "long" * 300_000
    (disk / "in.txt").write_text("\n".join(lines) + "\n")
    run("build", disk / "in.txt", "--format", "lines", "--key", "0..6", "--memory", "8MiB", "-o", disk / "run.dir")
    for number in (0, 1233, 1234, 1235, 2999):
        raw = run("get", disk / "run.dir", f"{number:06d}", "--raw").stdout
        assert raw == lines[number][6:].encode()
    assert run("verify", disk / "run.dir").stdout.startswith(b"whole: ")


@pytest.mark.parametrize("ranks", [1, 8, 4096, 131_072])
def test_plans_of_routing(ranks):
    plan = json.loads(run("plan", "--ranks", ranks, "--ranks-per-node", 32, "--json").stdout)
    direct, three = plan["direct"], plan["three_hop"]
    assert direct["local_connections"] + direct["remote_connections"] == ranks - 1
    assert three["memory_bytes"] < 16_000_000
    assert direct["remote_bytes"] == pytest.approx(three["remote_bytes"], rel=0.01)


@needs_fuse
def test_keys_are_files(made, disk):
    at = disk / "mnt"
    at.mkdir()
    process = support.start("mount", "--foreground", str(made), str(at))
    try:
        deadline = time.time() + 20
        while not os.path.ismount(at):
            assert process.poll() is None and time.time() < deadline, process.stderr.read()
            time.sleep(0.02)
        for number in (0, 17, 4999):
            content = (at / key_of(number).hex()).read_bytes()
            assert content == b"".join(value_of(epoch, number) for epoch in range(3))
        for name in ("0000", key_of(5000).hex(), "ABCD", "no hexadecimal digits", "x" * 200):
            assert not (at / name).exists()
        names = sorted(os.listdir(at))
        assert names == sorted(key_of(number).hex() for number in range(5000))
        with pytest.raises(OSError, match="Read-only"):
            (at / names[0]).write_bytes(b"x")
        subprocess.run(["umount", at], check=True)
        assert process.wait(20) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if os.path.ismount(at):
            subprocess.run(["umount", "-l", at], check=False)
