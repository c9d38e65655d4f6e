"""Indexed directories: appended records are found, also after kills of the writer and damage to files."""

import contextlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import time
import zlib

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
    words = ["--epoch-per-file", "--scheme", request.param, "--partitions", 2]
    run("build", *files, *FIXED, *words, "-o", disk / "run.dir")
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


def test_append_adds_an_epoch(made, disk):
    more = write_dump(disk / "more.bin", 3, range(100))
    run("build", more, *FIXED, "--append", "-o", made)
    assert get(made, 5) == expected(range(4), 5)
    assert get(made, 4000) == expected(range(3), 4000)
    assert run("verify", made).stdout.startswith(b"whole: ")
    there = run("build", more, *FIXED, "-o", made, expect=2).stderr
    assert "exists already" in there


@pytest.mark.parametrize("scheme", SCHEMES)
def test_complete_epochs_survive_a_killed_writer(disk, scheme):
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
            # Killed before the first manifest: a new build accepts the directory.
            run("build", files[0], *FIXED, "-o", directory)
            shutil.rmtree(directory)
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


def test_a_directory_without_a_manifest_is_accepted(disk):
    first, directory = dumps(disk, 1, 100)[0], disk / "run.dir"
    directory.mkdir()
    (directory / "LOCK").touch()
    (directory / ".MANIFEST.ascot-1-2.tmp").write_bytes(b"half")
    run("build", first, *FIXED, "-o", directory)
    assert run("verify", directory).stdout.startswith(b"whole: ")
    assert not list(directory.glob("*.tmp")) and not list(directory.glob(".*tmp"))


def test_append_refuses_a_missing_part(disk):
    first, directory = dumps(disk, 1, 100)[0], disk / "run.dir"
    run("build", first, *FIXED, "--partitions", "2", "-o", directory)
    (directory / "part-00000001.data").unlink()
    before = sorted(os.listdir(directory))
    assert "part-00000001.data" in run("build", first, *FIXED, "--append", "-o", directory, expect=2).stderr
    assert sorted(os.listdir(directory)) == before


def test_impossible_requests_are_refused(disk):
    first, directory = dumps(disk, 1, 100)[0], disk / "run.dir"
    value = len(value_of(0, 0))
    beyond = ["--attribute", f"x={value - 7}:f64"]
    assert "behind the end" in run("build", first, *FIXED, *beyond, "-o", directory, expect=2).stderr
    run("build", first, *FIXED, "-o", directory)
    for words in (["--scheme", "ranks"], ["--attribute", "x=0:f64"]):
        run("build", first, *FIXED, "--append", *words, "-o", directory, expect=2)
    for epoch in ("1", str(2**64 - 1)):
        for words in (["get", directory, "0x" + key_of(1).hex()], ["range", directory, ".."]):
            refused = run(*words, "--epoch", epoch, expect=2).stderr
            assert f"there is no epoch {epoch}: 1 epoch is complete" in refused
    for memory in ("1KiB", "1b"):
        assert "needs 4096 KiB" in run("info", directory, "--memory", memory, expect=2).stderr
    assert "a key of 1 byte," in run("get", directory, "0x00", expect=2).stderr


def test_conditions_are_numbers(disk):
    run("build", dumps(disk, 1, 100)[0], *FIXED, "--attribute", "energy=16:f64", "-o", disk / "run.dir")
    for text in ("energy>nan", "energy>-NaN", "energy>", "energy=5"):
        assert "is not a condition" in run("range", disk / "run.dir", "..", "--where", text, expect=2).stderr
    assert run("range", disk / "run.dir", "..", "--where", "energy<inf").stdout.count(b"\n") == 100
    assert run("range", disk / "run.dir", "..", "--where", "energy>=98", "--stats").stderr.startswith("read ")


def test_append_needs_the_same_format_and_key(disk):
    first, directory = dumps(disk, 1, 100)[0], disk / "run.dir"
    run("build", first, *FIXED, "-o", directory)
    for words, said in (
        (["--format", "fixed:56", "--key", "8..16"], "fixed:56 8..16"),
        (["--format", "fixed:112", "--key", "0..8"], "fixed:112 0..8"),
        (["--format", "lines", "--key", "0..8"], "lines 0..8"),
    ):
        refused = run("build", first, *words, "--append", "-o", directory, expect=2).stderr
        assert "made of records of fixed:56 0..8" in refused and said in refused
    assert json.loads(run("info", directory, "--json").stdout)["manifest"]["epochs"] == 1
    run("build", first, *FIXED, "--append", "-o", directory)


def test_standard_input_is_a_file_named_minus(disk):
    first, directory = dumps(disk, 1, 100)[0], disk / "run.dir"
    run("build", "-", *FIXED, "-o", directory, stdin=first.read_bytes())
    with open(first, "rb") as file:
        run("build", "-", *FIXED, "--append", "-o", directory, stdin=file)
    keys = f"0x{key_of(4).hex()}\nbe:{7 * 7919}\n".encode()
    found = run("get", directory, "--keys-file", "-", "--json", stdin=keys).stdout.splitlines()
    assert [json.loads(line)["epoch"] for line in found] == [0, 1, 0, 1]
    assert "- is named twice" in run("build", "-", "-", *FIXED, "-o", disk / "other", expect=2).stderr
    assert not (disk / "other").exists()


def test_available_results_are_printed_and_missing_ones_named(made, disk):
    scheme = json.loads(run("info", made, "--json").stdout)["manifest"]["layout"]["scheme"]
    numbers = list(range(0, 5000, 50))
    keys = disk / "keys.txt"
    keys.write_text("".join(f"0x{key_of(number).hex()}\n" for number in numbers))
    whole = run("get", made, "--keys-file", keys, "--json").stdout.splitlines()
    ranged = run("range", made, "..", "--json").stdout.splitlines()
    gone = made / ("part-00000001.aux" if scheme == "ranks" else "part-00000001.index")
    aside = gone.rename(disk / "aside")
    some = run("get", made, "--keys-file", keys, "--json", expect=2)
    assert set(some.stdout.splitlines()) < set(whole) and len(some.stdout.splitlines()) > len(whole) // 4
    assert str(gone) in some.stderr and "is missing" in some.stderr
    assert "in epochs 0 to 2" in some.stderr and "like it" in some.stderr
    info = run("info", made, expect=2)
    assert b"3 epochs" in info.stdout and str(gone) in info.stderr
    some = run("range", made, "..", "--json", expect=2 if scheme != "ranks" else 0)
    if scheme != "ranks":
        assert set(some.stdout.splitlines()) < set(ranged) and len(some.stdout.splitlines()) > len(ranged) // 4
        assert str(gone) in some.stderr and "records of all other files" in some.stderr
    aside.rename(gone)
    # Only the records of a damaged block are missing.
    data = next(iter(sorted(made.glob("*.data"))))
    whole_data = data.read_bytes()
    data.write_bytes(b"\xff" + whole_data[1:])
    for order in ([], ["--unordered"]):
        some = run("range", made, "..", "--json", *order, expect=2)
        lines = set(some.stdout.splitlines())
        assert lines < set(ranged) and len(lines) > len(ranged) - 3000 and "damaged at byte 0" in some.stderr
    data.write_bytes(whole_data)
    assert run("range", made, "..", "--json").stdout.splitlines() == ranged


def manifest_with(directory, boundaries=(), **layout):
    """Replaces fields of the manifest."""
    path = directory / "MANIFEST"
    manifest = json.loads(path.read_text().splitlines()[0])
    manifest["layout"] |= layout
    manifest["boundaries"] = boundaries
    line = json.dumps(manifest, separators=(",", ":"))
    path.write_text(f'{line}\n{{"crc32":"{zlib.crc32(line.encode()):08x}"}}\n')


def test_a_manifest_with_too_many_partitions_is_refused_soon(disk):
    run("build", dumps(disk, 1, 100)[0], *FIXED, "-o", disk / "run.dir")
    manifest_with(disk / "run.dir", partitions=2**24)
    began = time.time()
    verified = json.loads(run("verify", disk / "run.dir", "--json", expect=1).stdout)
    assert verified["logs"] == 2**24 and len(verified["problems"]) == 100
    assert verified["more_problems"] > 2**24 - 200 and time.time() - began < 30


@pytest.mark.parametrize("count", [2**20, 5_000_000, 10_000_000])
def test_many_empty_boundaries_take_little_memory(disk, count):
    """Empty boundaries take more memory than text, so the reader limits their number."""
    directory = disk / "run.dir"
    run("build", dumps(disk, 1, 100)[0], *FIXED, "-o", directory)
    manifest_with(directory, [[""] * count], partitions=2**24, partition_by="range")
    measured = support.measure("index", "get", directory, "0x00", "--memory", "4MiB")
    assert measured.returncode == 2 and "MANIFEST is damaged" in measured.stderr
    assert measured.peak_resident_bytes < 128 * MIB


@pytest.mark.parametrize("command", ["info", "verify"])
def test_json_is_one_line(made, command):
    printed = run(command, made, "--json").stdout
    assert printed.count(b"\n") == 1 and printed.endswith(b"}\n")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_more_memory_than_the_machine_has_is_an_error(disk, scheme):
    first = dumps(disk, 1, 100)[0]
    for number, memory in enumerate(["64GiB", "1000000GiB"]):
        arguments = [*FIXED, "--scheme", scheme, "--memory", memory, "-o", disk / str(number)]
        done = run("build", first, *arguments, expect=None)
        assert done.returncode == 0 or (done.returncode == 2 and "memory" in done.stderr), str(done)


def test_verify_checks_the_ends_of_all_epochs(made):
    """Readers opened earlier and continuing writers still use roots that later ones replaced."""
    for index in sorted([*made.glob("*.index"), *made.glob("*.aux")]):
        whole = index.read_bytes()
        roots = [at for at in range(len(whole)) if whole.startswith(b"ASCOTEPO", at)]
        assert len(roots) == 3
        for at in roots:
            index.write_bytes(whole[: at + 41] + bytes([whole[at + 41] ^ 1]) + whole[at + 42 :])
            assert index.name in run("verify", made, expect=1).stdout.decode()
        ends = [at for at in range(len(whole)) if whole.startswith(b"ASCOTEND", at)]
        for at in ends[:-1]:
            index.write_bytes(whole[:at] + bytes(64) + whole[at + 64 :])
            assert "footer" in run("verify", made, expect=1).stdout.decode()
        index.write_bytes(whole)
    assert run("verify", made).stdout.startswith(b"whole: ")


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
        assert "is open in another writer" in refused
        assert len(get(disk / "run.dir", 1)) >= 1
    assert process.wait(20) == 0


def test_a_full_disk_keeps_earlier_epochs(disk):
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


def test_damage_never_gives_a_wrong_value(made):
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


def test_errors_name_the_fault_of_a_directory(made, disk):
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
        (["--key", "8", "--format", "fixed:56"], "not a range of bytes"),
        (["--key", "0..8", "--format", "csv"], "cannot be indexed"),
        (["--key", "0..8", "--format", "fixed:56", "--memory", "1MiB"], "allow more memory"),
        (["--key", "0..8", "--format", "fixed:56", "--attribute", "x"], "is not an attribute"),
        (["--key", "0..8", "--format", "fixed:55"], "cut short"),
    ],
)
def test_wrong_arguments_leave_no_files(disk, arguments, said):
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


def test_plans_have_a_limit():
    for flags in (["--ranks", 2**24 + 1, "--ranks-per-node", 1], ["--ranks", 8, "--ranks-per-node", 0]):
        assert "from 1 to 16,777,216" in run("plan", *flags, expect=2).stderr
    assert run("plan", "--ranks", 1, "--ranks-per-node", 1).stdout.startswith(b"1 rank on 1 node,")


@contextlib.contextmanager
def mounted(directory, at, command=None):
    """Mounts the directory while the block runs; yields the process."""
    at.mkdir(exist_ok=True)
    process = support.start(*(command or ["mount", "--foreground", str(directory), str(at)]))
    try:
        deadline = time.time() + 20
        while not os.path.ismount(at):
            assert process.poll() is None and time.time() < deadline, process.stderr.read()
            time.sleep(0.02)
        yield process
    finally:
        if os.path.ismount(at):
            subprocess.run(["umount", "-l", at], check=False)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(20)


@needs_fuse
def test_a_mount_shows_epochs_as_they_are_completed(disk):
    first, second = dumps(disk, 2, 300)
    more = write_dump(disk / "more.bin", 2, range(200, 400))
    os.mkfifo(disk / "slow")
    build = ["index", "build", first, disk / "slow", *FIXED, "--epoch-per-file", "-o", disk / "run.dir"]
    writer = support.start(*build)
    with open(disk / "slow", "wb") as slow:
        deadline = time.time() + 20
        while run("get", disk / "run.dir", f"0x{key_of(7).hex()}", expect=None).returncode != 0:
            assert time.time() < deadline
        with mounted(disk / "run.dir", disk / "mnt"):
            file = disk / "mnt" / key_of(7).hex()
            assert file.read_bytes() == value_of(0, 7)
            with open(file, "rb") as held:
                slow.write(second.read_bytes())
                slow.close()
                assert writer.wait(20) == 0
                assert file.read_bytes() == value_of(0, 7) + value_of(1, 7), "at once: the directory was not closed"
                # An open file does not change.
                assert held.read() == value_of(0, 7)
            run("build", more, *FIXED, "--append", "-o", disk / "run.dir")
            assert len(os.listdir(disk / "mnt")) == 400
            assert (disk / "mnt" / key_of(399).hex()).read_bytes() == value_of(2, 399)
            time.sleep(1.2)
            assert (disk / "mnt" / key_of(250).hex()).stat().st_size == 3 * 48
            assert file.read_bytes() == value_of(0, 7) + value_of(1, 7)


@needs_fuse
def test_a_mount_shows_what_is_written_in_the_place_of_a_dropped_epoch(disk):
    first, second = dumps(disk, 2, 300)
    other = write_dump(disk / "other.bin", 7, range(300))
    run("build", first, second, *FIXED, "--epoch-per-file", "-o", disk / "run.dir")
    with mounted(disk / "run.dir", disk / "mnt"):
        file = disk / "mnt" / key_of(7).hex()
        before, after = (value_of(0, 7) + value_of(epoch, 7) for epoch in (1, 7))
        assert file.read_bytes() == before and len(before) == len(after)
        with open(file, "rb") as held:
            # As many epochs as before, and values of the same length: only the directory's manifest shows the change.
            run("build", other, *FIXED, "--append", "--rollback", 1, "-o", disk / "run.dir")
            # Names of a closed directory may be a second out of date.
            time.sleep(1.2)
            assert file.read_bytes() == after
            assert held.read() == before
        run("rollback", disk / "run.dir", "--to-epoch", 1)
        time.sleep(1.2)
        assert file.read_bytes() == value_of(0, 7)


@needs_fuse
def test_a_listing_shows_available_names_then_an_error(made, disk):
    gone = sorted([*made.glob("part-*.index"), *made.glob("writer-*.index")])[0]
    scheme = json.loads(run("info", made, "--json").stdout)["manifest"]["layout"]["scheme"]
    gone.unlink()
    with mounted(made, disk / "mnt") as process:
        done = subprocess.run(["ls", disk / "mnt"], capture_output=True, text=True)
        assert done.returncode != 0 and "Input/output error" in done.stderr
        # The only writer of scheme ranks has all records.
        assert (len(done.stdout.split()) > 1000) == (scheme != "ranks")
    assert gone.name.encode() in process.stderr.read()


@needs_fuse
def test_keys_are_files(made, disk):
    at = disk / "mnt"
    with mounted(made, at) as process:
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


@needs_fuse
@pytest.mark.privileged
@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv")
def test_a_user_who_is_not_root_mounts_and_unmounts(disk):
    """Through fusermount3; other users do not see the mount."""
    nobody = 65534
    first = dumps(disk, 1, 50)[0]
    at = disk / "mnt"
    at.mkdir()
    disk.chmod(0o755)
    run("build", first, *FIXED, "-o", disk / "run.dir")
    for place in (at, disk / "run.dir", *(disk / "run.dir").iterdir()):
        os.chown(place, nobody, nobody)
    binary = disk / "ascot"
    shutil.copy(support.ascot_binary(), binary)
    user = ["setpriv", "--reuid", str(nobody), "--regid", str(nobody), "--clear-groups"]

    def as_user(*command):
        return subprocess.run([*user, *map(str, command)], cwd="/", capture_output=True, timeout=60)

    if as_user("test", "-x", binary).returncode != 0 or as_user("test", "-w", "/dev/fuse").returncode != 0:
        pytest.skip("the test directory or /dev/fuse is closed to other users")
    try:
        done = as_user(binary, "mount", disk / "run.dir", at)
        assert done.returncode == 0, done.stderr.decode()
        done = as_user("cat", at / key_of(7).hex())
        assert done.stdout == value_of(0, 7), done.stderr
        with pytest.raises(PermissionError):
            os.listdir(at)
        done = as_user("fusermount3", "-u", at)
        assert done.returncode == 0, done.stderr
        assert not os.path.ismount(at)
    finally:
        if os.path.ismount(at):
            subprocess.run(["umount", "-l", at], check=False)
