"""The Python package: views and indexed directories as objects, and the memory of a session."""

import io
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import ascot
import numpy
import pyarrow
import pytest
from support import (
    FIXED,
    assert_acts_within_200_ms,
    measure,
    mounted,
    needs_fuse,
    random_records,
    run,
    sorted_records,
)

MIB = 1 << 20
RECORDS = ascot.Fixed(100, key=slice(0, 10))
COUNT = 200_000


@pytest.fixture(scope="module")
def made(module_disk):
    """A view of several runs, and the bytes of the sorted file."""
    data = random_records(COUNT)
    (module_disk / "records").write_bytes(data)
    path = module_disk / "records.view"
    job = ascot.sort(module_disk / "records", view=path, layout=RECORDS, memory="8MiB")
    assert job.outputs == (str(path),) and path.is_dir()
    return path, sorted_records(data)


@pytest.fixture
def view(made):
    with ascot.view(made[0], memory="32MiB") as opened:
        yield opened


def test_slices_are_those_of_the_sorted_file(view, made):
    whole = made[1]
    assert (len(view), view.nbytes, view.layout) == (COUNT, len(whole), "fixed:100") and view.runs > 1
    some = [slice(0, 1), slice(123, 456), slice(-5, None), slice(5, 5), slice(9, 3), slice(COUNT, None)]
    for cut in (*some, slice(None)):
        records = range(COUNT)[cut]
        assert bytes(view[cut]) == whole[records.start * 100 : max(records.start, records.stop) * 100], cut
    assert bytes(view[-1]) == whole[-100:] and view[7].nbytes == 100
    assert "200,000 records" in repr(view) and "bytes 700 to 800" in repr(view[7])
    for wrong in (COUNT, -COUNT - 1):
        with pytest.raises(IndexError, match="the view has 200000"):
            view[wrong]
    with pytest.raises(ValueError, match="no step"):
        view[::2]
    with pytest.raises(TypeError):
        view["a"]


def test_key_ranges_hold_the_keys(view, made):
    whole = made[1]
    keys = [whole[at : at + 10] for at in range(0, len(whole), 100)]
    first, last = keys[1000], keys[2000]
    found = bytes(view.keys(first, last))
    wanted = b"".join(whole[100 * at : 100 * at + 100] for at, key in enumerate(keys) if first <= key < last)
    assert found == wanted
    assert bytes(view.keys(stop=keys[0])) == b"" and view.keys(start=keys[0]).nbytes == len(whole)
    with pytest.raises(ValueError, match="ends before it begins"):
        view.keys(last, first)
    with pytest.raises(TypeError, match="stop is a key: text, bytes or a number"):
        view.keys(None, [1])


def test_a_file_object_reads_and_seeks(view, made):
    whole = made[1]
    with view.open("rb") as file:
        assert isinstance(file, io.BufferedReader) and file.read() == whole and file.read(1) == b""
        for at in (0, 1_234_567, 50, len(whole) - 3, len(whole) + 10):
            assert file.seek(at) == at and file.read(5000) == whole[at : at + 5000]
        assert file.seek(-100, io.SEEK_END) == len(whole) - 100
        out = bytearray(64)
        assert file.readinto(out) == 64 and out == whole[-100:-36]
        assert numpy.frombuffer(whole[-36:], "u1").tolist() == numpy.frombuffer(file.read(), "u1").tolist()
        file.seek(0)
        for _ in range(200):
            file.read(10_000)
        assert file.tell() == 2_000_000
        with pytest.raises(OSError, match="before the start"):
            file.seek(-1)
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")
    with pytest.raises(ValueError, match="closed"):
        file.read()
    with view[10:20].open() as file:
        assert file.read() == whole[1000:2000] and file.seek(5) == 5 and file.read(10) == whole[1005:1015]
    with pytest.raises(ValueError, match="read only"):
        view.open("r")


def test_a_part_is_written_as_a_file(view, made, disk):
    report = view.write(disk / "whole")
    assert (disk / "whole").read_bytes() == made[1] and report.bytes_out == len(made[1])
    view[100:200].write(disk / "part")
    assert (disk / "part").read_bytes() == made[1][10_000:20_000]


def drop_from_cache(directory):
    """Makes the next reads of the files of a directory come from the disk."""
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.parametrize("records", [1000, 15_000])
def test_a_slice_reads_no_more_than_the_command(records, made):
    """Both counts include the opening of the view; that of Python begins after its modules are loaded."""
    script = f"""
import ascot
def read():
    return int(open("/proc/self/io").read().split("read_bytes: ")[1].split()[0])
open_view = ascot.view
before = read()
view = open_view({str(made[0])!r})
opened = read()
bytes(view[10_000:10_000 + {records}])
print(opened - before, read() - before)
"""
    command = ("view", made[0], "--range", f"1000000..{1_000_000 + 100 * records}")
    # The pages of the command itself are in memory for the next run.
    measure(*command)
    drop_from_cache(made[0])
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    drop_from_cache(made[0])
    by_command = measure(*command).read_bytes
    by_opening, by_python = map(int, told.split())
    assert 0 < by_opening < by_python <= by_command


def test_readers_in_threads_share_a_view(view, made):
    def read(first):
        return bytes(view[first : first + 5000]) == made[1][first * 100 : (first + 5000) * 100]

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(0, 25_000, 1000)))


def test_a_closed_view_and_no_view_are_errors(made, disk):
    view = ascot.view(made[0])
    file = view.open()
    view.close()
    assert file.read(100) == made[1][:100], "a file that was opened before stays open"
    for use in (lambda: len(view), lambda: view[0], lambda: view.open(), lambda: view.keys("a"), view.__enter__):
        with pytest.raises(ValueError, match="is closed"):
            use()
    assert view.closed and "closed" in repr(view)
    with pytest.raises(OSError, match="view"):
        ascot.view(disk)
    with pytest.raises(ascot.MemoryLimit):
        ascot.view(made[0], memory="1MiB")


def test_a_view_of_numbers_has_keys_that_are_numbers(disk):
    numpy.arange(1000, -1000, -1, dtype="i8").tofile(disk / "numbers")
    ascot.sort(disk / "numbers", view=disk / "view", layout=ascot.Integers("i64"))
    with ascot.view(disk / "view") as view:
        assert numpy.frombuffer(bytes(view.keys(-3, 4)), "i8").tolist() == list(range(-3, 4))


# ---------------------------------------------------------------- indexed directories


def rows(array):
    return [array[at : at + 1].tobytes() for at in range(len(array))]


def test_arrays_and_lists_become_the_records_of_epochs(disk):
    generator = numpy.random.default_rng(3)
    keys = generator.permutation(5000).astype(">u8")
    steps = [generator.random((5000, 3)) for _ in range(3)]
    with ascot.index.writer(disk / "run", key_bytes=8, value_bytes=24) as writer:
        assert writer.append(keys, steps[0]) == 5000 and writer.end_epoch() == 1
        assert writer.append(rows(keys), rows(steps[1])) == 5000 and writer.end_epoch() == 2
        writer.append(keys.reshape(-1, 1).view("u1"), steps[2])
        assert writer.epochs == 2
    with ascot.index.open(disk / "run") as index:
        assert index.epochs == 3 and index.manifest["layout"]["key_bytes"] == 8
        for at in (0, 77, 4999):
            key = keys[at : at + 1].tobytes()
            found = index.get(key)
            assert [(one.key, one.epoch) for one in found] == [(key, epoch) for epoch in range(3)]
            assert [one.value for one in found] == [step[at].tobytes() for step in steps]
        many = index.get(keys[:1000], epoch=1)
        assert [one.value for one in many] == rows(steps[1][:1000])
        assert index.get(b"\xff" * 8) == [] and index.get([]) == []
        wanted = [(key, epoch) for key in sorted(rows(keys))[100:2100] for epoch in range(3)]
        bounds = [int(number).to_bytes(8, "big") for number in (100, 2100)]
        assert [(one.key, one.epoch) for one in index.range(*bounds)] == wanted
        assert sum(1 for _ in index.range(epoch=2)) == 5000
        started = index.range()
        assert next(started).key == bytes(8)
        del started
    with ascot.index.writer(disk / "run", mode="append") as writer:
        writer.append([bytes(8)], [bytes(24)])
    assert ascot.index.open(disk / "run").epochs == 4
    assert run("index", "get", disk / "run", "0x" + bytes(8).hex()).returncode == 0


def test_an_exception_drops_the_open_epoch(disk):
    with pytest.raises(LookupError), ascot.index.writer(disk / "run") as writer:
        writer.append([b"a"], [b"1"])
        writer.end_epoch()
        writer.append([b"b"], [b"2"])
        raise LookupError
    with ascot.index.open(disk / "run") as index:
        assert index.epochs == 1 and index.get(b"b") == []


def test_wrong_records_are_named(disk):
    writer = ascot.index.writer(disk / "run", key_bytes=8)
    numbers = numpy.arange(10)
    for keys, values, kind, text in [
        (numbers, numbers[:5], ValueError, "10 keys and 5 values"),
        (numbers[::2], numbers[:5], ValueError, "ascontiguousarray"),
        (b"12345678", [b"x"], TypeError, "a list of bytes"),
        ([1], [b"x"], TypeError, "an element of keys is bytes"),
        (7, [b"x"], TypeError, "keys is a list of bytes, or an array"),
        (numpy.array(7), [b"x"], TypeError, "keys is a list of bytes, or an array"),
        ([b"short"], [b"x"], ascot.SchemaMismatch, "a key of 5 bytes"),
    ]:
        with pytest.raises(kind, match=text):
            writer.append(keys, values)
    writer.append(numpy.arange(3), [b"x"] * 3)
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="the writer is closed"):
        writer.append([b"12345678"], [b"x"])
    with pytest.raises(FileExistsError):
        ascot.index.writer(disk / "run")
    with pytest.raises(ascot.errors.InvalidRequest, match="give 'create', 'append' or 'auto'"):
        ascot.index.writer(disk / "other", mode="frob")


def test_damage_and_other_directories_are_errors(disk):
    with pytest.raises(FileNotFoundError, match="not an indexed directory"):
        ascot.index.open(disk)
    with ascot.index.writer(disk / "run") as writer:
        writer.append([b"%04d" % number for number in range(1000)], [b"value"] * 1000)
    index = ascot.index.open(disk / "run")
    with pytest.raises(TypeError, match="bytes, not text"):
        index.get("0001")
    for data in (disk / "run").glob("*"):
        if "MANIFEST" not in data.name:
            content = bytearray(data.read_bytes())
            content[: len(content) // 2] = bytes(len(content) // 2)
            data.write_bytes(content)
    with pytest.raises(ascot.Damaged, match="damaged") as failed:
        index = ascot.index.open(disk / "run")
        list(index.range())
    assert isinstance(failed.value, OSError) and failed.value.file.startswith(str(disk / "run"))
    index.close()
    with pytest.raises(ValueError, match="is closed"):
        index.get(b"0001")


# ---------------------------------------------------------------- through a mount


@pytest.mark.alone
@pytest.mark.parametrize("query", [ascot.index.Index.get, ascot.index.Index.get_batch])
def test_a_signal_does_not_wait_for_a_query_of_many_keys(query, disk):
    keys = numpy.arange(400_000, dtype=">u4")
    with ascot.index.writer(disk / "run.dir", key_bytes=4) as writer:
        writer.append(keys, keys)

    class Stopped(Exception):
        pass

    def stop(*_):
        raise Stopped

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with ascot.index.open(disk / "run.dir") as index:

            def attempt():
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                began = time.monotonic()
                with pytest.raises(Stopped):
                    query(index, keys)
                return time.monotonic() - began - 0.1

            assert_acts_within_200_ms(attempt)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_long_read_of_a_view_is_several_short_ones_so_that_signals_are_seen(view, made):
    with view.open() as file:
        part = bytearray(4 * MIB)
        assert file.raw.readinto(part) == MIB
        file.seek(0)
        assert file.readinto(part) == 4 * MIB and part == made[1][: 4 * MIB]


@needs_fuse
def test_numpy_maps_a_mounted_view(made):
    """The file of the mount is an array of records, whatever part of it is touched first."""
    path, whole = made
    kind = numpy.dtype([("key", "S10"), ("rest", "V90")])
    wanted = numpy.frombuffer(whole, kind)
    with mounted(path, "--memory", "32MiB") as (file, _):
        found = numpy.memmap(file, kind, "r")
        assert found.shape == (COUNT,)
        places = numpy.random.default_rng(3).integers(0, COUNT, 50)
        assert (found[places] == wanted[places]).all() and found[-1] == wanted[-1]
        assert (found[1000:150_000:777]["key"] == wanted[1000:150_000:777]["key"]).all()
        assert (found["key"][:-1] <= found["key"][1:]).all() and (found == wanted).all()
        later = numpy.memmap(file, "u1", "r", offset=12_345, shape=(100_000,))
        assert later.tobytes() == whole[12_345:112_345]
        # Nobody writes to a view.
        with pytest.raises(OSError):
            numpy.memmap(file, kind, "r+")
        # The mapping of the whole file is a source, too: it is read by its name.
        checked = ascot.check(found, layout=RECORDS)
        assert checked.is_sorted and checked.records == COUNT
        del found, later


# ---------------------------------------------------------------- sessions


def test_jobs_of_a_session_share_its_memory(disk):
    for number in range(4):
        (disk / f"in-{number}").write_bytes(random_records(1000))
    session = ascot.Session("64MiB", jobs=2)
    running, most = [], []
    lock = threading.Lock()

    def job(number, memory):
        with lock:
            running.append(memory)
            most.append(sum(running))
        done = ascot.sort(disk / f"in-{number}", to=disk / f"out-{number}", layout=RECORDS, memory=memory)
        time.sleep(0.05)
        with lock:
            running.remove(memory)
        return done.report.memory_bytes

    ran = []
    work = lambda number: ran.append(session.run(lambda memory: job(number, memory)))  # noqa: E731
    # Threads that wait for memory which never comes do not keep the tests from ending.
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert ran == [32 * MIB] * 4
    assert max(most) == 64 * MIB and session.free == session.memory == 64 * MIB
    big = session.run(ascot.sort, disk / "in-0", to=disk / "out", layout=RECORDS, memory="48MiB")
    assert big.report.memory_bytes == 48 * MIB
    with pytest.raises(ascot.MemoryLimit, match="its session has 67,108,864"):
        session.run(ascot.sort, disk / "in-0", to=disk / "out", memory="65MiB")
    with pytest.raises(FileNotFoundError):
        session.run(ascot.sort, disk / "missing", to=disk / "out")
    assert session.free == session.memory


WAITING = """
    import os, threading, time, ascot
    ascot.sort("in", view="view", layout=ascot.Fixed(100))
    view = ascot.view("view")
    threading.Thread(target=view[:].write, args=("pipe",)).start()
    # The pipe is full after 64 KiB, and the thread keeps its turn.
    reader = os.open("pipe", os.O_RDONLY)
    time.sleep(0.3)
    try:
        print("waits", flush=True)
        bytes(view[:10_000])
    except KeyboardInterrupt:
        print("interrupted", time.time(), flush=True)
    while os.read(reader, 1 << 20):
        pass
"""


@pytest.mark.alone
def test_ctrl_c_ends_a_slice_that_waits_for_its_turn(disk):
    ascot.gen(20_000, to=disk / "in")
    os.mkfifo(disk / "pipe")
    command = [sys.executable, "-X", "dev", "-c", textwrap.dedent(WAITING)]
    process = subprocess.Popen(command, cwd=disk, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "waits\n"
    time.sleep(0.2)
    began = time.time()
    process.send_signal(signal.SIGINT)
    word, when = process.communicate(timeout=30)[0].split()
    assert word == "interrupted" and float(when) - began < 0.2 and process.returncode == 0


def test_what_a_session_opens_keeps_its_memory_until_all_of_it_is_closed(made, disk):
    session = ascot.Session("64MiB", jobs=2)
    view = session.run(ascot.view, made[0])
    assert session.free == 32 * MIB and len(view) == COUNT
    file, batches, rest = view.open(), view[:100].batches(), view[:10].batches()
    view.close()
    assert session.free == 32 * MIB
    file.close()
    assert sum(batch.num_rows for batch in batches) == 100 and session.free == 32 * MIB
    rest.close()
    assert session.free == 64 * MIB
    # What is no longer used counts as closed, and what a library reads does not.
    del view, file, batches, rest
    view = session.run(ascot.view, made[0])
    reader = pyarrow.RecordBatchReader.from_stream(view[:100])
    view.close()
    del view
    assert session.free == 32 * MIB and reader.read_all().num_rows == 100
    assert session.free == 64 * MIB
    view = session.run(ascot.view, made[0])
    del view
    assert session.free == 64 * MIB
    with session.run(ascot.index.writer, disk / "run", key_bytes=1) as writer:
        assert session.free == 32 * MIB
        writer.append([b"a", b"b"], [b"1", b"2"])
    assert session.free == 64 * MIB
    with session.run(ascot.index.open, disk / "run", memory="40MiB") as index:
        records = index.range()
        assert next(records).key == b"a" and session.free == 24 * MIB
    assert session.free == 24 * MIB
    assert next(records).key == b"b"
    records.close()
    assert session.free == 64 * MIB


def test_the_command_reads_what_the_package_writes(made, disk):
    run("sort", made[0].parent / "records", *FIXED, "-o", disk / "sorted")
    assert subprocess.run(["cmp", disk / "sorted", "-"], input=made[1]).returncode == 0
