"""Functions on a cluster: known programs against their results in plain Python, faults, and functions that fail."""

import collections
import functools
import io
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import ascot
import ascot.cluster
import pyarrow
import pytest
from ascot import errors
from ascot.cluster import actors, functions, jobs, limits, manifest
from ascot.cluster.objects import Stores
from ascot.cluster.parts import remove_parts
from ascot.cluster.writer import Writer
from ray_machines import MIB, NODES, PAIR, RECORDS, At, kill, processes_of, wait_until
from word_count import add, assert_nothing_left, count, lines_of, map_reduce, split, words_of

# The nodes share two processors; other load would make them seem lost.
pytestmark = pytest.mark.cluster(nodes=PAIR)

SORT = "sort and reduce"


# ---------------------------------------------------------------- known programs


@pytest.mark.parametrize("combine, transport", [(None, "direct"), (functools.partial(add), "ray")])
def test_words_are_counted(cluster, disk, combine, transport):
    text = words_of(disk)
    done = map_reduce(disk, disk / "text", map=split, reduce=count, combine=combine, transport=transport)
    wanted = collections.Counter(word for line in text for word in line.split())
    assert lines_of(done) == sorted(f"{word} {number}" for word, number in wanted.items())
    pairs = done.report.records
    assert pairs == sum(wanted.values()) if combine is None else pairs < sum(wanted.values()) / 4
    assert len(done.outputs) == 5
    assert_nothing_left(cluster, disk, ["out", "text"])


def test_an_inverted_index_has_the_documents_in_the_order_of_the_inputs(cluster, disk):
    dice, wanted = random.Random(4), collections.defaultdict(list)
    for number in range(3):
        lines = []
        for line in range(4000):
            words = {f"w{dice.randrange(500)}" for _ in range(5)}
            lines.append(f"d{number}-{line}\t{' '.join(sorted(words))}")
            for word in words:
                wanted[word].append(f"d{number}-{line}")
        (disk / f"in-{number}").write_text("\n".join(lines) + "\n")

    def index(batch):
        for line in batch.column("line").to_pylist():
            name, _, words = line.partition(b"\t")
            yield from ((word, name) for word in words.split())

    def gather(key, values):
        return key + b" " + b",".join(values) + b"\n"

    done = map_reduce(disk, str(disk / "in-*"), map=index, reduce=gather)
    assert lines_of(done) == sorted(f"{word} {','.join(names)}" for word, names in wanted.items())
    assert_nothing_left(cluster, disk, ["in-0", "in-1", "in-2", "out"])


def test_two_files_are_joined(cluster, disk):
    dice = random.Random(5)
    users = [(f"u{number}", f"name-{number}") for number in range(3000)]
    visits = [(f"u{dice.randrange(4000)}", f"page-{number}") for number in range(20_000)]
    (disk / "users").write_text("".join(f"U\t{user}\t{name}\n" for user, name in users))
    (disk / "visits").write_text("".join(f"V\t{user}\t{page}\n" for user, page in visits))

    def tag(batch):
        import pyarrow

        rows = [line.split(b"\t") for line in batch.column(0).to_pylist()]
        return pyarrow.table({"key": [row[1] for row in rows], "value": [row[0] + row[2] for row in rows]})

    def join(key, values):
        name = None
        for value in values:
            if value[:1] == b"U":
                name = value[1:].decode()
            elif name is not None:
                yield f"{key.decode()} {name} {value[1:].decode()}\n"

    # The users come first, since their file does.
    done = map_reduce(disk, [disk / "users", disk / "visits"], map=tag, reduce=join)
    names = dict(users)
    wanted = sorted(f"{user} {names[user]} {page}" for user, page in visits if user in names)
    found = []
    for part in done.outputs:
        with open(part) as file:
            found += file.read().splitlines()
    assert sorted(found) == wanted


def test_records_are_sorted_by_a_program(cluster, disk):
    ascot.gen(100_000, to=disk / "records")

    def keyed(batch):
        return ((record[:10], record[10:]) for record in batch.column("record").to_pylist())

    def record(key, values):
        return (key + value for value in values)

    def by_range(key, partitions):
        return int.from_bytes(key[:4], "big") * partitions >> 32

    done = map_reduce(disk, disk / "records", map=keyed, reduce=record, partition=by_range, layout=RECORDS)
    checked = ascot.check(list(done.outputs), layout=RECORDS)
    assert checked.is_sorted and checked.records == 100_000
    assert checked.checksum == ascot.check(disk / "records", layout=RECORDS).checksum


def test_functions_that_give_nothing(cluster, disk):
    (disk / "empty").write_bytes(b"")
    (disk / "text").write_text("a\nb")
    done = map_reduce(disk, [disk / "empty", disk / "text"], map=lambda batch: None, reduce=count)
    assert [os.path.getsize(part) for part in done.outputs] == [0] * 5
    assert done.report.records == 0


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize(
    "fault, phase, share",
    [pytest.param("node", "map and shuffle", 0.15, marks=pytest.mark.long), ("Worker", SORT, 0.6)],
)
@pytest.mark.cluster(nodes=NODES)
def test_words_are_counted_although_a_node_or_a_worker_is_killed(cluster, disk, fault, phase, share):
    text = words_of(disk, 100_000)

    def act():
        if fault == "node":
            cluster.kill(cluster.victim())
        else:
            kill(processes_of(fault, cluster)[0])

    at = At(phase, share, act)
    done = map_reduce(disk, disk / "text", map=split, reduce=count, combine=add, partitions=24, progress=at)
    wanted = collections.Counter(word for line in text for word in line.split())
    assert at.acted and lines_of(done) == sorted(f"{word} {number}" for word, number in wanted.items())
    assert len(done.report.lost_nodes) == (fault == "node")
    assert_nothing_left(cluster, disk, ["out", "text"])


def test_a_job_is_resumed_with_its_functions(cluster, disk):
    text = words_of(disk, 10_000)

    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        map_reduce(disk, disk / "text", map=split, reduce=count, progress=At(SORT, 0.6, fail))
    with pytest.raises(errors.InvalidRequest, match="give them again"):
        ascot.cluster.resume(disk / "out.job", address="127.0.0.1:1")
    done = ascot.cluster.resume(disk / "out.job", address="auto", map=split, reduce=count, progress=None)
    wanted = collections.Counter(word for line in text for word in line.split())
    assert lines_of(done) == sorted(f"{word} {number}" for word, number in wanted.items())
    assert sum(one.bytes for one in done.report.phases if one.name == "map and shuffle") == 0
    assert_nothing_left(cluster, disk, ["out", "text"])


# ---------------------------------------------------------------- functions that fail


def test_what_a_failed_job_has_written_is_removed(disk):
    """Parts whose end was not told yet, those that are not complete, and nothing before the processes have ended."""
    (disk / "staging").mkdir()
    for name in ("part-00000", "part-00007", "part-00001" + actors.UNFINISHED):
        (disk / "staging" / name).write_text("x")
    with subprocess.Popen(["sh", "-c", "sleep 0.5; touch staging/part-00002"], cwd=disk) as late:
        assert actors.runs(late.pid)
        writer = Writer("00")
        writer.await_end([late.pid], 0.01)
        assert not (disk / "staging" / "part-00002").exists()
        writer.await_end([late.pid], 20)
        assert not actors.runs(late.pid)
        remove_parts(str(disk / "staging"), Stores())
    assert os.listdir(disk) == []


def test_a_process_runs_until_its_last_thread_has_ended():
    exit_of_a_thread = 60 if os.uname().machine == "x86_64" else 93
    program = f"""if True:
        import ctypes, threading
        threading.Thread(target=input).start()
        print(flush=True)
        ctypes.CDLL(None).syscall({exit_of_a_thread}, 0)
    """
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as made:
        made.stdout.readline()
        wait_until(lambda: " Z " in Path(f"/proc/{made.pid}/stat").read_text())
        assert actors.runs(made.pid)
        made.kill()
        wait_until(lambda: not actors.runs(made.pid))


def test_an_exception_of_map_names_the_record(cluster, disk):
    lines = [b"%d" % number for number in range(300_000)]
    lines[234_567] = b"no number"
    (disk / "numbers").write_bytes(b"\n".join(lines))

    def parse(batch):
        for line in batch.column(0).to_pylist():
            yield b"%d" % (int(line) % 10), line

    with pytest.raises(errors.FunctionFailed, match="map raised ValueError: invalid literal") as caught:
        map_reduce(disk, disk / "numbers", map=parse, reduce=count)
    error = caught.value
    assert (error.file, error.offset) == (str(disk / "numbers"), len(b"\n".join(lines[:234_567])) + 1)
    assert f"record at byte {error.offset}" in str(error)
    assert "in parse" in error.traceback and "int(line)" in error.traceback
    assert "cluster/functions.py" not in error.traceback and "During handling" not in error.traceback
    assert_nothing_left(cluster, disk, ["numbers"])


@pytest.mark.parametrize("name", ["map", "combine", "partition"])
def test_an_interrupt_that_a_function_raises_is_its_own(disk, name):
    """Ray would call it a task that somebody cancelled."""
    (disk / "text").write_text("a\nb\n")

    def interrupt(*given):
        if name != "map" or b"b" in given[0].column(0).to_pylist():
            raise KeyboardInterrupt("mine")
        return ()

    made = functions.Functions(split, count, None, None)._replace(**{name: interrupt})
    options = jobs.Request([str(disk / "text")], None, None, False, {}).options
    shape = {"batch_bytes": MIB, "sort_bytes": MIB, "partitions": 2, "chunk_bytes": MIB}
    mapper = functions.PairMapper(options, made, bytes(16), shape)
    span = manifest.spans_of([(str(disk / "text"), 4)], MIB, 1)[0].to_native()
    where = "text, record at byte 2: map" if name == "map" else f"key b'a': {name}"
    with pytest.raises(errors.FunctionFailed, match=f"{where} raised KeyboardInterrupt: mine") as caught:
        list(mapper.run(0, span, [(0, [0, 1])], ()))
    assert "in interrupt" in caught.value.traceback


@pytest.mark.parametrize("name", ["reduce", "combine", pytest.param("partition", marks=pytest.mark.long)])
def test_an_exception_of_another_function_names_the_key(cluster, disk, name):
    words_of(disk, 1000)

    def fail(key, _):
        raise KeyError(f"no {key.decode()}")

    given = {"map": split, "reduce": count, name: fail}
    told = rf"key b'w\d+'[^\n]*: {name} raised KeyError: 'no w\d+'"
    with pytest.raises(errors.FunctionFailed, match=told) as caught:
        map_reduce(disk, disk / "text", **given)
    assert caught.value.key.startswith(b"w") and "in fail" in caught.value.traceback
    assert_nothing_left(cluster, disk, ["text"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([(1, b"x")], "a key is bytes or a text, not int"),
        ([("x", None)], "a value is bytes or a text, not NoneType"),
        ([b"xyz"], "a pair is a tuple of a key and a value, not b'xyz'"),
        ([("\udc80", "x")], "a key is a text with letters that UTF-8 does not have: "),
        (["ab", "cd"], "a pair is a tuple of a key and a value, not 'ab'"),
        (("key", "value"), "a pair is a tuple of a key and a value, not 'key'"),
        ([("key",)], r"a pair is a tuple of a key and a value, not \('key',\)"),
        ({"ab": b"x"}, r"map gives pairs of a key and a value, or a batch or table, not \{'ab': b'x'\}"),
        (3, "map gives pairs of a key and a value, or a batch or table, not 3"),
        (pyarrow.table({"key": ["a"]}), "keys and values as its first two columns, not a value of type Table"),
    ],
)
def test_results_of_another_kind_are_told(disk, given, message):
    (disk / "text").write_text("a\nb\n")
    options = jobs.Request([str(disk / "text")], None, None, False, {}).options
    shape = {"batch_bytes": MIB, "sort_bytes": MIB, "partitions": 2, "chunk_bytes": MIB}
    made = functions.Functions(lambda batch: given, count, None, None)
    mapper = functions.PairMapper(options, made, bytes(16), shape)
    span = manifest.spans_of([(str(disk / "text"), 4)], MIB, 1)[0].to_native()
    with pytest.raises(errors.FunctionFailed, match=f"map gave a wrong result: .*{message}") as caught:
        list(mapper.run(0, span, [(0, [0, 1])], ()))
    assert caught.value.offset == 0
    assert "Traceback" not in str(caught.value), "no line of the program raised it"


class Number:
    """A whole number of another package."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


@pytest.mark.parametrize("found", [1, Number(1), 2, -1, Number(2), "0", None, 0.5])
def test_a_partition_is_a_whole_number_of_any_type(disk, found):
    (disk / "text").write_text("a\nb\n")
    options = jobs.Request([str(disk / "text")], None, None, False, {}).options
    shape = {"batch_bytes": MIB, "sort_bytes": MIB, "partitions": 2, "chunk_bytes": MIB}
    made = functions.Functions(split, count, None, lambda key, partitions: found)
    mapper = functions.PairMapper(options, made, bytes(16), shape)
    span = manifest.spans_of([(str(disk / "text"), 4)], MIB, 1)[0].to_native()
    if found == 1 or (isinstance(found, Number) and found.value == 1):
        assert [destination for destination, _ in mapper.run(0, span, [(0, [0]), (1, [1])], ())] == [0, 1]
        assert mapper.sum[0] == 2
        return
    told = "key b'a': partition gave a wrong result: a partition is a number from 0 to 1, not "
    with pytest.raises(errors.FunctionFailed, match=told):
        list(mapper.run(0, span, [(0, [0, 1])], ()))


class Unspeakable(Exception):
    """An exception without a text."""

    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (5, "gave a wrong result: reduce gives bytes or a text, or an iterable of them, not 5"),
        ({"sum": 5}, r"gave a wrong result: reduce gives .* not \{'sum': 5\}"),
        ([5], "gave a wrong result: an output of reduce is bytes or a text, not int"),
        (AssertionError(), r"raised AssertionError\n  mend the function"),
        (Unspeakable(), "raised Unspeakable: its text cannot be had"),
        (KeyboardInterrupt("stop"), "raised KeyboardInterrupt: stop"),
    ],
)
def test_results_of_reduce_of_another_kind_are_told(given, message):
    def give(key, values):
        if isinstance(given, BaseException):
            raise given
        return given

    pairs = io.BytesIO(functions.HEAD.pack(4 + 3 + 1, 3) + b"keyv")
    with pytest.raises(errors.FunctionFailed, match=f"^key b'key': reduce {message}"):
        list(functions.reduced(functions.Functions(split, give, None, None), pairs))


def test_files_of_reduce_that_fail_are_named():
    """The name decides whether the disk of a node is at fault, or that of the output."""
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"), actors.new_file("/dev/full") as out:
        actors.write_all_of([b"x"], out)
    _, error = actors.guarded(lambda: (_ for _ in ()).throw(OSError(28, "No space left on device", "/a")))
    assert str(error) == "/a: No space left on device\n  free some space, or name another volume"
    _, error = actors.guarded(lambda: os.mkdir("/dev/full"))
    assert isinstance(error, errors.FileError) and str(error) == "/dev/full: File exists"
    with open("/proc/self/mem", "rb") as unreadable, pytest.raises(OSError, match="'/proc/self/mem'"):
        functions.Groups(unreadable, 0, limits.Calls())


def test_a_chunk_that_is_mapped_again_gives_the_same_batches_and_sum(disk):
    text = words_of(disk, 3000)
    size = (disk / "text").stat().st_size
    options = jobs.Request([str(disk / "text")], None, None, False, {}).options
    shape = {"batch_bytes": 5000, "sort_bytes": MIB, "partitions": 6, "chunk_bytes": MIB}
    span = manifest.spans_of([(str(disk / "text"), size)], MIB, 1)[0].to_native()
    for combine in (None, add):
        mapper = functions.PairMapper(options, functions.Functions(split, count, combine, None), bytes(16), shape)
        first = list(mapper.run(0, span, [(0, [0, 2, 4]), (1, [1, 3, 5])], ()))
        whole = mapper.sum
        assert whole[0] == sum(len(line.split()) for line in text) or combine
        # Only one destination, which also lacks nothing of the other.
        again = list(mapper.run(0, span, [(1, [1, 3, 5])], ()))
        assert again == [one for one in first if one[0] == 1] and len(again) > 1
        assert mapper.sum == whole


def test_too_long_a_pair_and_too_much_for_a_node_are_told(disk):
    (disk / "text").write_text("a\n" * 5000)
    options = jobs.Request([str(disk / "text")], None, None, False, {}).options
    shape = {"batch_bytes": 30, "sort_bytes": MIB, "partitions": 1, "chunk_bytes": MIB}
    span = manifest.spans_of([(str(disk / "text"), 10_000)], MIB, 1)[0].to_native()

    def mapped(value_bytes):
        def long(batch):
            return ((line, bytes(value_bytes)) for line in batch.column(0).to_pylist())

        made = functions.Functions(long, count, None, None)
        return list(functions.PairMapper(options, made, bytes(16), shape).run(0, span, [(0, [0])], ()))

    # Two in each batch, and the end.
    assert len(mapped(20)) == 2501
    with pytest.raises(errors.FunctionFailed, match="a batch has at most"):
        mapped(22)
    with pytest.raises(errors.FunctionFailed, match="more than 123 kB for one node"):
        mapped(21)


def test_functions_and_layouts_that_do_not_work_are_refused_before_work_starts(cluster, disk):
    (disk / "text").write_text("a\n")
    lock = threading.Lock()
    # Before a connection, which may take long, also to a cluster that is not there.
    nowhere = {"address": "127.0.0.1:1"}
    with pytest.raises(errors.InvalidRequest, match="cannot be sent to the nodes"):
        map_reduce(disk, disk / "text", map=lambda batch: lock, reduce=count, **nowhere)
    with pytest.raises(errors.InvalidRequest, match=r'^memory_per_node: "lots" is not a size'):
        map_reduce(disk, disk / "text", map=split, reduce=count, memory_per_node="lots", **nowhere)
    with pytest.raises(errors.InvalidRequest, match=r"^memory_per_node=0: give a number of bytes"):
        map_reduce(disk, disk / "text", map=split, reduce=count, memory_per_node=0, **nowhere)
    with pytest.raises(errors.InvalidRequest, match=r"^memory_per_node='50%' is not a share on a cluster"):
        map_reduce(disk, disk / "text", map=split, reduce=count, memory_per_node="50%", **nowhere)
    with pytest.raises(errors.InvalidRequest, match=r"^function_timeout=0: give a number of seconds"):
        map_reduce(disk, disk / "text", map=split, reduce=count, function_timeout=0, **nowhere)
    with pytest.raises(TypeError, match="reduce is a function, not 3"):
        map_reduce(disk, disk / "text", map=split, reduce=3)
    with pytest.raises(errors.InvalidRequest, match="lines, rows of CSV or records of one length"):
        map_reduce(disk, disk / "text", map=split, reduce=count, layout="i64")
    assert_nothing_left(cluster, disk, ["text"])
