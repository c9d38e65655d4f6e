"""Reading indexed directories with values longer than the memory, with few descriptors, and with damaged bytes."""

import hashlib
import json
import os
import random
import subprocess

import pytest
import support
from support import ALLOWANCE, MIB, limit_open_files, measure
from test_index import FIXED, SCHEMES, dumps, get, key_of, mounted, needs_fuse, run

# The minimum memory of a reader; values are longer than that plus the allowance of a process.
MEMORY_MIB = 4
LONG_BYTES = 56 * MIB + 12_345
LINES = ["--format", "lines", "--key", "0..4"]


def long_value():
    """Bytes without line ends and without repetitions."""
    return random.Random(3).randbytes(LONG_BYTES).translate(bytes(range(10)) + b"\x0b" + bytes(range(11, 256)))


@pytest.fixture(scope="module")
def value():
    return long_value()


@pytest.fixture(params=SCHEMES)
def long_directory(request, disk, value):
    """A directory with a record longer than the memory, between others."""
    with open(disk / "in", "wb") as out:
        out.write(b"aaaa first\nlong" + value + b"\nzzzz last\n")
    run("build", disk / "in", *LINES, "--scheme", request.param, "--memory", "24MiB", "-o", disk / "run.dir")
    (disk / "in").unlink()
    return disk / "run.dir"


def bounded(*arguments):
    measured = measure("index", *arguments, "--memory", f"{MEMORY_MIB}MiB")
    assert measured.returncode == 0, measured.stderr
    assert measured.peak_resident_bytes < MEMORY_MIB * MIB + ALLOWANCE, arguments


def printed(*arguments):
    """The number of bytes that a command prints within 4 MiB, and their digest."""
    command = [support.ascot_binary(), "index", *map(str, arguments), "--memory", f"{MEMORY_MIB}MiB"]
    digest, count = hashlib.blake2b(), 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=support.clean_environment()) as process:
        while part := process.stdout.read(MIB):
            digest.update(part)
            count += len(part)
    assert process.returncode == 0
    return count, digest.digest()


def facts(*parts):
    digest = hashlib.blake2b()
    for part in parts:
        digest.update(part)
    return sum(map(len, parts)), digest.digest()


def test_values_longer_than_memory_are_found_printed_and_verified(long_directory, value):
    bounded("get", long_directory, "long", "--raw")
    assert printed("get", long_directory, "long", "--raw") == facts(value)
    assert printed("get", long_directory, "long", "--json") == facts(
        b'{"epoch":0,"value":"', value.hex().encode(), b'"}\n'
    )
    bounded("range", long_directory, "..", "--raw")
    assert printed("range", long_directory, "..", "--raw") == facts(b"aaaa first", b"long", value, b"zzzz last")
    bounded("range", long_directory, "..", "--unordered")
    bounded("verify", long_directory)
    assert printed("verify", long_directory)[0] > 0


def test_no_part_of_a_damaged_long_value_is_printed(long_directory):
    data = max(long_directory.iterdir(), key=lambda file: file.stat().st_size)
    with open(data, "r+b") as file:
        file.seek(40 * MIB)
        byte = file.read(1)
        file.seek(40 * MIB)
        file.write(bytes([byte[0] ^ 1]))
    for form in ("--raw", "--json"):
        done = run("get", long_directory, "long", form, expect=2)
        assert done.stdout == b"" and f"{data} is damaged at byte" in done.stderr
    done = run("range", long_directory, "..", "--raw", expect=2)
    assert done.stdout == b"aaaa firstzzzz last" and f"{data} is damaged at byte" in done.stderr
    assert f"{data} is damaged at byte" in run("verify", long_directory, expect=1).stdout.decode()


@needs_fuse
def test_long_values_are_files(long_directory, value, disk):
    """A mount reads parts and the whole of a file larger than its memory."""
    at = disk / "mnt"
    at.mkdir()
    command = ["mount", "--foreground", "--memory", f"{MEMORY_MIB}MiB", str(long_directory), str(at)]
    with mounted(long_directory, at, command) as process, open(at / b"long".hex(), "rb") as file:
        assert os.fstat(file.fileno()).st_size == LONG_BYTES
        for place in (LONG_BYTES - 10, 0, 30_000_001):
            file.seek(place)
            assert file.read(100_000) == value[place : place + 100_000]
        file.seek(0)
        assert hashlib.file_digest(file, "blake2b").digest() == facts(value)[1]
        with open(f"/proc/{process.pid}/status") as status:
            peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
        assert peak < MEMORY_MIB * MIB + ALLOWANCE


def test_few_descriptors_are_enough(disk):
    """A reader closes and reopens files to stay within the limit on descriptors."""
    first = dumps(disk, 1, 2000)[0]
    run("build", first, *FIXED, "--partitions", 60, "--memory", "64MiB", "-o", disk / "run.dir")
    keys = disk / "keys"
    keys.write_text("".join(f"0x{key_of(number).hex()}\n" for number in range(0, 2000, 3)))

    directory = disk / "run.dir"
    for arguments in (["get", directory, "--keys-file", keys], ["range", directory, ".."], ["verify", directory]):
        wanted = run(*arguments)
        assert run(*arguments, preexec_fn=limit_open_files(24)).stdout == wanted.stdout


@pytest.mark.parametrize(("scheme", "opened"), [("records", 3), ("pointers", 4), ("ranks", 4)])
def test_a_query_opens_each_file_once(disk, scheme, opened):
    files = dumps(disk, 10, 300)
    run("build", *files, *FIXED, "--scheme", scheme, "--epoch-per-file", "-o", disk / "run.dir")
    told = run("get", disk / "run.dir", f"0x{key_of(7).hex()}", "--stats").stderr
    assert f"{opened} files opened, {opened + 2} other metadata calls" in told, told
    assert len(get(disk / "run.dir", 7)) == 10


@pytest.mark.parametrize("scheme", SCHEMES)
def test_verify_names_the_file_and_offset_of_a_changed_byte(disk, scheme):
    """Samples all kinds of bytes; the exhaustive test is beside the code."""
    run("build", *dumps(disk, 2, 30), *FIXED, "--scheme", scheme, "--epoch-per-file", "-o", disk / "run.dir")
    assert run("verify", disk / "run.dir").stdout.startswith(b"whole: ")
    for path in sorted((disk / "run.dir").iterdir()):
        whole = path.read_bytes()
        # The last byte before a footer and at a page's end is padding.
        for at in {0, len(whole) // 2, 4096 - 65, 4095, len(whole) - 1} & set(range(len(whole))):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
            told = json.loads(run("verify", disk / "run.dir", "--json", expect=1).stdout)
            assert any(f"{path} is damaged at byte" in problem for problem in told["problems"]), (path, at, told)
        path.write_bytes(whole)
