"""The Python package refuses bad input with an exception, and never crashes.

`./dev test` runs this file in Python's development mode (`python -X dev`), which turns on faulthandler and the checks
of the allocators. With `--all` it also runs under valgrind.
"""

import contextlib
import ctypes
import gc
import io
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
import warnings

import ascot
import numpy
import pyarrow
import pytest
from arrow_structures import BatchOf, Producer, Schema, StreamOf
from support import ROOT, leftovers

TABLE = pyarrow.table({"k": [3, 1, 2], "s": ["c", "a", "b"]})
RECORDS = ascot.Fixed(100, key=slice(0, 10))
COLUMNS = {"k": b"l", "s": b"u"}


def sorted_rows(source, key="k"):
    return pyarrow.table(ascot.sort(source, key=key)).to_pylist()


# ---------------------------------------------------------------- structures of other libraries


def table_array(producer, keys=(3, 1, 2), texts=(b"c", b"a", b"b")):
    return producer.array(len(keys), [0], [producer.integers(keys), producer.texts(texts)])


def released(producer, **counts):
    gc.collect()
    return dict(producer.released) == {kind: count for kind, count in counts.items() if count}


def test_the_structures_of_a_stream_are_released_once():
    producer = Producer()
    stream = producer.stream(
        lambda: producer.table_schema(**COLUMNS),
        [lambda: table_array(producer), lambda: table_array(producer, [9, -1], [b"x", b"y"])],
    )
    found = sorted_rows(StreamOf(stream))
    assert [row["k"] for row in found] == [-1, 1, 2, 3, 9]
    assert released(producer, stream=1, schema=1, array=2)
    assert not stream.release, "the structure was moved out of its capsule"
    with pytest.raises(ascot.errors.InvalidRequest, match="read before"):
        sorted_rows(StreamOf(stream))
    assert released(producer, stream=1, schema=1, array=2)


def test_the_array_of_a_batch_is_released_once_and_its_schema_stays_in_the_capsule():
    producer = Producer()
    schema, array = producer.table_schema(**COLUMNS), table_array(producer)
    assert len(sorted_rows(BatchOf(schema, array))) == 3
    assert released(producer, array=1) and schema.release and not array.release
    with pytest.raises(ascot.SchemaMismatch, match="read before"):
        sorted_rows(BatchOf(schema, array))
    assert released(producer, array=1)


def test_structures_of_refused_jobs_are_released_once():
    producer = Producer()
    stream = producer.stream(lambda: producer.table_schema(**COLUMNS), [lambda: table_array(producer)])
    with pytest.raises(ascot.SchemaMismatch, match="no column 'frob'"):
        ascot.sort(StreamOf(stream), key="frob")
    assert released(producer, stream=1, schema=1)
    with pytest.raises(ascot.SchemaMismatch, match="no column 'frob'"):
        ascot.sort(BatchOf(producer.table_schema(**COLUMNS), table_array(producer)), key="frob")
    assert released(producer, stream=1, schema=1, array=1)


@pytest.mark.parametrize("after", [0, 2])
def test_a_stream_that_fails_tells_its_text_and_is_released_once(after, disk):
    producer = Producer()
    arrays = [*[lambda: table_array(producer)] * after, lambda: None]
    stream = producer.stream(lambda: producer.table_schema(**COLUMNS), arrays, b"no more \xff")
    with pytest.raises(ascot.AscotError, match="the Arrow stream failed: no more"):
        ascot.sort(StreamOf(stream), key="k", temp=disk)
    assert released(producer, stream=1, schema=1, array=after) and leftovers(disk) == []
    producer = Producer()
    with pytest.raises(ascot.AscotError, match="the Arrow stream failed"):
        ascot.sort(StreamOf(producer.stream(lambda: None, [])), key="k")
    assert released(producer, stream=1)


def test_a_stream_without_functions_is_an_error():
    for field in ("get_schema", "get_next"):
        producer = Producer()
        stream = producer.stream(lambda: producer.table_schema(**COLUMNS), [])  # noqa: B023
        setattr(stream, field, None)
        with pytest.raises(ascot.SchemaMismatch, match="has no functions"):
            ascot.sort(StreamOf(stream), key="k")
        assert released(producer, stream=1)
    producer = Producer()
    stream = producer.stream(lambda: None, [])
    stream.get_last_error = None
    with pytest.raises(ascot.AscotError, match="Input/output error"):
        ascot.sort(StreamOf(stream), key="k")
    assert released(producer, stream=1)


def endless(producer):
    """A list of lists of lists and so on."""
    schema = producer.schema(b"+l", b"k", [Schema()])
    schema.children = producer.pointers([ctypes.addressof(schema)])
    return schema


SCHEMAS = {
    "no format": (lambda p: p.schema(b"l", format=None), "has no format"),
    "an unknown format": (lambda p: p.schema(b"frob"), "not supported"),
    "a format of other letters": (lambda p: p.schema(b"\xff"), "not UTF-8"),
    "a name of other letters": (lambda p: p.schema(b"l", b"\xff"), "not UTF-8"),
    "a width that is no number": (lambda p: p.schema(b"w:x"), "integer"),
    "a union of other types": (lambda p: p.schema(b"+ud:0,0", b"", [p.schema(b"l"), p.schema(b"l")]), "malformed"),
    "a negative number of children": (lambda p: p.schema(b"+s", n_children=-1), "-1 children"),
    "a list without a child": (lambda p: p.schema(b"+l"), "0 children"),
    "runs without values": (lambda p: p.schema(b"+r", b"", [p.schema(b"i")]), "1 children"),
    "no pointer to children": (lambda p: p.schema(b"+s", n_children=1, children=None), "children are missing"),
    "a missing child": (lambda p: p.schema(b"+s", n_children=1, children=p.pointers([None])), "child 1 is missing"),
    "a released child": (lambda p: p.schema(b"+l", b"", [p.schema(b"l", release=None)]), "read before"),
    "a released dictionary": (lambda p: p.schema(b"i", dictionary=p.schema(b"u", release=None)), "read before"),
    "types without end": (endless, "more than 64 types"),
}


@pytest.mark.parametrize("how", ["batch", "stream"])
@pytest.mark.parametrize("case", SCHEMAS)
def test_malformed_schemas_are_errors(case, how):
    make, text = SCHEMAS[case]
    producer = Producer()

    def schema():
        return producer.schema(b"+s", b"", [make(producer)])

    source = BatchOf(schema(), table_array(producer)) if how == "batch" else StreamOf(producer.stream(schema, []))
    with pytest.raises(ascot.SchemaMismatch, match=text):
        ascot.sort(source, key="k")
    assert released(producer, **({} if how == "batch" else {"stream": 1, "schema": 1}))


def views(producer, lengths, address=True, **wrong):
    """An array of three string views."""
    views = producer.memory(b"".join(len(text).to_bytes(4, "little") + text.ljust(12, b"\0") for text in TEXTS))
    data = [producer.memory(b"x" * 64) for _ in lengths]
    sizes = producer.memory(b"".join(length.to_bytes(8, "little", signed=True) for length in lengths))
    return producer.array(3, [0, views, *data, sizes if address else None], **wrong)


TEXTS = [b"c", b"a", b"b"]
# By the format of the column: the column and how it contradicts itself.
ARRAYS = {
    "a negative length": (b"l", lambda p: p.integers([1, 2, 3], length=-1), "length of -1"),
    "a length beyond memory": (b"l", lambda p: p.integers([1, 2, 3], length=1 << 60), "length of"),
    "fewer values than the batch": (b"l", lambda p: p.integers([1, 2], length=2), "contradicts"),
    "a negative offset": (b"l", lambda p: p.integers([1, 2, 3], offset=-4), "offset of -4"),
    "an offset beyond the values": (b"l", lambda p: p.integers([1, 2, 3], offset=(1 << 63) - 1), "offset of"),
    "more nulls than values": (b"l", lambda p: p.integers([1, 2, 3], null_count=4), "4 nulls"),
    "another number of nulls": (b"l", lambda p: p.array(3, [p.memory(b"\7"), p.memory(bytes(24))], null_count=2),
                                "contradicts"),
    "no buffers": (b"l", lambda p: p.integers([1, 2, 3], n_buffers=0), "0 buffers"),
    "a negative number of buffers": (b"l", lambda p: p.integers([1, 2, 3], n_buffers=-2), "-2 buffers"),
    "too many buffers": (b"l", lambda p: p.integers([1, 2, 3], n_buffers=5, buffers=p.pointers([0] * 5)),
                         "contradicts"),
    "no pointer to buffers": (b"l", lambda p: p.integers([1, 2, 3], buffers=None), "buffers"),
    "no values": (b"l", lambda p: p.array(3, [0, 0]), "contradicts"),
    "children of numbers": (b"l", lambda p: p.integers([1, 2, 3], n_children=2), "2 children"),
    "a dictionary of numbers": (b"l", lambda p: p.array(3, [0, p.memory(bytes(24))], dictionary=p.texts([b"x"])),
                                "contradicts"),
    "a part that was released": (b"l", lambda p: p.integers([1, 2, 3], release=None), "read before"),
    "a width below zero": (b"w:-4", lambda p: p.array(3, [0, p.memory(bytes(24))]), "contradicts"),
    "a width beyond memory": (b"w:2147483647", lambda p: p.array(3, [0, p.memory(bytes(24))], length=1 << 53),
                              "contradicts"),
    "offsets that fall": (b"u", lambda p: p.texts(TEXTS, [0, 2, 1, 3]), "contradicts"),
    "an offset below zero": (b"u", lambda p: p.texts(TEXTS, [0, 1, 2, -1]), "offset of -1"),
    "no offsets": (b"u", lambda p: p.array(3, [0, 0, p.memory(b"cab")]), "offsets are missing"),
    "offsets that are not aligned": (b"u", lambda p: p.texts(TEXTS, shift=2), "not aligned"),
    "a long offset beyond memory": (b"U", lambda p: p.array(1, [0, p.memory((1 << 62).to_bytes(8, "little") * 4),
                                                                p.memory(b"cab")], length=3), "offset of"),
    "strings that are not UTF-8": (b"u", lambda p: p.texts([b"\xff", b"a", b"b"]), "(?i)utf-?8"),
    "views of fewer buffers": (b"vu", lambda p: views(p, [], n_buffers=2), "2 buffers"),
    "views whose lengths are missing": (b"vu", lambda p: views(p, [64], address=False), "lengths of its buffers"),
    "views of a buffer below zero": (b"vu", lambda p: views(p, [-8]), "-8 bytes"),
    "views of a buffer beyond memory": (b"vu", lambda p: views(p, [1 << 60]), "bytes"),
    "views of too many buffers": (b"vu", lambda p: views(p, [64], n_buffers=1 << 40), "buffers"),
    "a list beyond its child": (b"+l", lambda p: p.array(3, [0, p.memory(bytes(12) + b"\7\0\0\0")],
                                                        [p.integers([1])]), "contradicts"),
    "a list without a child": (b"+l", lambda p: p.array(3, [0, p.memory(bytes(16))]), "0 children"),
    "a list whose child is missing": (b"+l", lambda p: p.array(3, [0, p.memory(bytes(16))], n_children=1,
                                                              children=p.pointers([None])), "child 1 is missing"),
}  # fmt: skip


@pytest.mark.parametrize("how", ["batch", "stream"])
@pytest.mark.parametrize("case", ARRAYS)
def test_malformed_arrays_are_errors(case, how, disk):
    format, make, text = ARRAYS[case]
    producer = Producer()

    def schema():
        column = producer.schema(format, b"x", [producer.schema(b"l")] if format == b"+l" else ())
        return producer.schema(b"+s", b"", [producer.schema(b"l", b"k"), column])

    def array():
        return producer.array(3, [0], [producer.integers([3, 1, 2]), make(producer)])

    source = BatchOf(schema(), array()) if how == "batch" else StreamOf(producer.stream(schema, [array]))
    with pytest.raises(ascot.SchemaMismatch, match=text):
        ascot.sort(source, key="k", temp=disk)
    whole = {"array": 1} if how == "batch" else {"stream": 1, "schema": 1, "array": 1}
    assert released(producer, **whole) and leftovers(disk) == []


def test_dictionaries_of_other_libraries_are_checked():
    producer = Producer()

    def source(key_format, keys, dictionary):
        column = producer.schema(key_format, b"x", dictionary=producer.schema(b"u"))
        schema = producer.schema(b"+s", b"", [producer.schema(b"l", b"k"), column])
        array = producer.array(2, [0, producer.memory(keys)], dictionary=dictionary)
        return BatchOf(schema, producer.array(2, [0], [producer.integers([2, 1]), array]))

    words = producer.texts([b"x", b"y"])
    assert [row["x"] for row in sorted_rows(source(b"c", b"\0\1", words))] == ["y", "x"]
    for format, keys, dictionary, text in [
        (b"c", b"\0\2", producer.texts([b"x", b"y"]), "contradicts"),
        (b"c", b"\0\xff", producer.texts([b"x", b"y"]), "contradicts"),
        (b"c", b"\0\1", None, "dictionary is missing"),
        (b"c", b"\0\1", producer.texts([b"x"], [0, -1]), "offset of -1"),
        (b"g", bytes(16), producer.texts([b"x", b"y"]), "keys of type"),
    ]:
        with pytest.raises(ascot.SchemaMismatch, match=text):
            sorted_rows(source(format, keys, dictionary))


def test_batches_of_other_columns_than_their_stream_are_errors(disk):
    """The second batch has one child, or a column of another type."""
    for wrong in (
        lambda p: p.array(3, [0], [p.integers([1, 2, 3])]),
        lambda p: p.array(3, [0], [p.integers([1, 2, 3]), p.integers([1, 2, 3])]),
    ):
        producer = Producer()
        arrays = [lambda: table_array(producer), lambda: wrong(producer)]  # noqa: B023
        stream = producer.stream(lambda: producer.table_schema(**COLUMNS), arrays)  # noqa: B023
        with pytest.raises(ascot.SchemaMismatch, match="contradicts itself"):
            ascot.sort(StreamOf(stream), key="k", temp=disk)
        assert released(producer, stream=1, schema=1, array=2) and leftovers(disk) == []


def test_interrupts_of_a_job_do_not_wait_for_the_release_of_its_stream(disk):
    """The release of a stream needs the interpreter, also on a thread of the job that has just been interrupted."""
    script = f"""
        import faulthandler, os, random, signal, sys, threading, time
        import ascot
        sys.path.insert(0, {str(ROOT / "tests")!r})
        from arrow_structures import Producer, StreamOf

        faulthandler.dump_traceback_later(60, exit=True)
        count = 0
        for turn in range(150):
            producer = Producer()
            def array():
                return producer.array(1000, [0], [producer.integers(range(1000))])
            stream = producer.stream(lambda: producer.table_schema(k=b"l"), [array] * 20)
            def stop():
                os.kill(os.getpid(), signal.SIGINT)
            timer = threading.Timer(random.random() * 0.02, stop)
            try:
                timer.start()
                ascot.sort(StreamOf(stream), key="k", temp={str(disk)!r})
                time.sleep(1)
            except KeyboardInterrupt:
                count += 1
            timer.join()
        print(count, os.listdir({str(disk)!r}))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "150 []\n"), done.stderr


# ---------------------------------------------------------------- batches that outlive their job


def test_batches_outlive_their_job_and_session(disk):
    session = ascot.Session(memory="64MiB")
    kept = []
    stream = session.run(ascot.sort, TABLE, key="k")
    for batch in stream:
        kept += [pyarrow.record_batch(batch), batch]
    stream.close()
    source = disk / "numbers"
    numpy.arange(100_000, 0, -1, dtype="u8").tofile(source)
    with ascot.sort(source, layout="u64", memory="12MiB") as stream:
        column = pyarrow.table(stream)["value"]
    del stream, session
    gc.collect()
    assert column.to_numpy().tolist() == list(range(1, 100_001))
    assert [part.num_rows for part in kept] == [3, 3]
    assert kept[0].to_pylist() == pyarrow.record_batch(kept[1]).to_pylist() == sorted_rows(TABLE)


def test_capsules_that_nobody_reads_are_released():
    batches = list(ascot.sort(TABLE, key="k"))
    for _ in range(100):
        batches[0].__arrow_c_array__()
        batches[0].__arrow_c_schema__()
        batches[0].__arrow_c_stream__()
        ascot.sort(TABLE, key="k").__arrow_c_stream__()
    gc.collect()
    assert pyarrow.record_batch(batches[0]).num_rows == 3


# ---------------------------------------------------------------- wrong types


class Lying(list):
    """A list that reports another length."""

    def __init__(self, items, length):
        super().__init__(items)
        self.length = length

    def __len__(self):
        return self.length


class Mapped:
    """An array that says it is a whole file."""

    filename, offset = "in", 0

    def __init__(self, nbytes):
        self.nbytes = nbytes


class Raising:
    def __getattr__(self, name):
        raise LookupError(name)


class Path:
    def __fspath__(self):
        return 3


class File:
    def __init__(self, number):
        self.number = number

    def fileno(self):
        return self.number

    def seekable(self):
        return False


class Exported:
    def __init__(self, result):
        self.result = result

    def __arrow_c_array__(self, requested_schema=None):
        return self.result


JUNK = [
    None, True, 7, -1, 2.5, float("nan"), 10**30, -(10**30), 1j, "", "\0", "a\0b", "x\ud800", "é", b"", b"ab", b"\xff",
    bytearray(b"x"), [], [None], [[]], {}, {"a": 1}, {"a": (0,)}, object(), lambda *values: None, ..., type,
    slice(0, 3), slice(None), slice(5, 1, 2), Lying(["in"], 1000), Lying(["in"], -1), Path(), Raising(), File(-1),
    File(10**6), File("x"), File(2**40), Exported(None), Exported((1, 2)), Exported((1,)), Mapped(10**9), Mapped(-1),
    io.BytesIO(b"z\n"), io.StringIO("x"), numpy.array([1, 2]), numpy.zeros((0, 4)), numpy.array(["a"], dtype=object),
    memoryview(b"abcd"), memoryview(b"abcdefgh")[::2], TABLE, Exported(TABLE.to_batches()[0].__arrow_c_array__()[::-1]),
]  # fmt: skip


@pytest.fixture(scope="module")
def made(module_disk):
    """A view, an indexed directory and files."""
    before = os.getcwd()
    os.chdir(module_disk)
    module_disk.joinpath("in").write_text("b\na\n")
    module_disk.joinpath("ordered").write_text("a\nb\n")
    ascot.gen(1000, to="records")
    ascot.sort("records", layout=RECORDS, view="view")
    with ascot.index.writer("index", key_bytes=4) as writer:
        writer.append([b"aaaa", b"bbbb"], [b"1", b"2"])
    yield module_disk
    os.chdir(before)


def write_index(keys, values, **options):
    shutil.rmtree("written", ignore_errors=True)
    with ascot.index.writer("written", **options) as writer:
        writer.append(keys, values)


def of_view(use):
    def call(**arguments):
        with ascot.view("view") as view:
            use(view, **arguments)

    return call


def of_index(use):
    def call(**arguments):
        with ascot.index.open("index") as index:
            use(index, **arguments)

    return call


CALLS = {
    "sort": (ascot.sort, {"source": "in", "to": "out", "key": None, "layout": None, "view": None, "reverse": False,
                          "unique": False, "stable": False, "top": None, "parts": None, "method": "auto",
                          "memory": "64MiB", "temp": ".", "threads": 1, "fan_in": None, "compress": "auto",
                          "volume": None, "any_format": False, "progress": None}),
    "sort batches": (lambda **given: list(ascot.sort(**given)),
                     {"source": TABLE, "key": "k", "layout": None, "top": None, "memory": "64MiB", "progress": None}),
    "sort to batches": (lambda **given: list(ascot.sort(**given)),
                        {"source": "records", "layout": RECORDS, "key": None}),
    "merge": (ascot.merge, {"sources": ["ordered"], "to": "merged", "key": None}),
    "reshape": (ascot.reshape, {"sources": ["ordered"], "to": "r-{}", "parts": 2, "by": "range", "by_key": None}),
    "split": (ascot.split, {"source": "in", "to": "s-{}", "parts": 2, "by": "size", "key": None, "boundaries": None}),
    "resume": (ascot.resume, {"directory": "none", "memory": None}),
    "gen": (ascot.gen, {"to": "g", "start": 0, "threads": None}),
    "check": (ascot.check, {"source": "in", "key": None, "layout": "lines", "threads": None}),
    "view": (ascot.view, {"path": "view", "memory": "64MiB", "threads": 1}),
    "view[]": (of_view(lambda view, at: bytes(view[at])), {"at": 0}),
    "view.keys": (of_view(lambda view, start, stop: bytes(view.keys(start, stop))), {"start": None, "stop": None}),
    "view.open": (of_view(lambda view, mode: view.open(mode).close()), {"mode": "rb"}),
    "view.batches": (of_view(lambda view, layout: list(view.batches(layout=layout))), {"layout": None}),
    "view.write": (of_view(lambda view, **given: view.write(**given)), {"to": "w", "progress": None}),
    "index.open": (ascot.index.open, {"path": "index", "memory": None}),
    "index.get": (of_index(lambda index, **given: index.get(**given)), {"keys": [b"aaaa"], "epoch": None}),
    "index.get_batch": (of_index(lambda index, **given: index.get_batch(**given)), {"keys": [b"aaaa"], "epoch": None}),
    "index.range": (of_index(lambda index, **given: list(index.range(**given))),
                    {"start": None, "stop": None, "epoch": None}),
    "index.batches": (of_index(lambda index, **given: list(index.batches(**given))), {"start": None, "stop": None}),
    "index.writer": (write_index, {"keys": [b"aaaa"], "values": [b"x"], "key_bytes": 4, "value_bytes": None,
                                   "mode": "create", "partitions": None, "partition_by": None, "scheme": None,
                                   "rollback": None, "memory": None}),
    "Session": (ascot.Session, {"memory": "64MiB", "jobs": 2}),
    "Fixed": (lambda **given: list(ascot.sort("records", layout=ascot.Fixed(**given))),
              {"length": 100, "key": None, "fields": None}),
    "Csv": (lambda **given: list(ascot.sort("in", layout=ascot.Csv(**given), key=1)),
            {"separator": ",", "quote": '"', "nulls": (), "header": False}),
    "Lines": (lambda **given: list(ascot.sort("in", layout=ascot.Lines(**given))),
              {"separator": None, "order": "", "end": "\n", "key": None}),
    "Prefixed": (lambda **given: list(ascot.sort(b"\2ab\1c", layout=ascot.Prefixed(**given))),
                 {"type": "u8", "key": None}),
    "plan.sort": (ascot.plan.sort, {"size": "1TB", "memory": "1GiB", "volume": "flash", "layout": "fixed:100"}),
    "plan.bowtie": (ascot.plan.bowtie, {"inputs": 3, "outputs": 3, "memory": "1GiB", "volume": "flash"}),
    "simulate": (ascot.simulate, {"inputs": 4, "memory": "1MiB"}),
    "trace.open": (ascot.trace.open, {"path": "in"}),
    "lab.read_streams": (ascot.lab.read_streams, {"path": "in"}),
}  # fmt: skip
REFUSALS = (ascot.AscotError, TypeError, ValueError, OSError, IndexError)


@pytest.mark.parametrize("name", CALLS)
def test_arguments_of_any_type_are_refused_or_work(name, made):
    call, good = CALLS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name not in ("resume", "trace.open", "lab.read_streams"):
            call(**({"count": 10, **good} if name == "gen" else good))
        for argument in good:
            for junk in JUNK:
                given = {**good, argument: junk, **({"count": 10} if name == "gen" else {})}
                # A LookupError is the junk's own.
                with contextlib.suppress(*REFUSALS, LookupError):
                    call(**given)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ascot.Fixed(8, fields=["id"]), "fields have a name, a first byte and a type"),
        (lambda: ascot.Fixed(8, fields={"id": 4}), "fields have a name, a first byte and a type"),
        (lambda: ascot.Lines(separator=[";"]), "separator is one character"),
        (lambda: ascot.sort("in", to="out", temp=3), "temp is a directory or a list"),
        (lambda: ascot.sort(Lying(["in", 3], 1), to="out"), "not int"),
        (lambda: ascot.reshape(["in"], to="r-{}", parts=None), "parts is the number of files"),
        (lambda: ascot.split("in", to="r-{}", parts=2.5), "parts is a number"),
        (lambda: ascot.gen("7", to="out"), "count is a number"),
        (lambda: ascot.view("view", threads=2.5), "threads is a number"),
        (lambda: ascot.view("view")["a"], "interpreted as an integer"),
        (lambda: ascot.index.open("index").get([b"aaaa"], epoch="1"), "epoch is a number"),
        (lambda: ascot.index.open("index").batches([None]), "a key is bytes, not list"),
        (lambda: next(ascot.index.open("index").range("aaaa")), "a key is bytes, not text"),
        (lambda: ascot.Session("64MiB", jobs="2"), "jobs is a number"),
    ],
)
def test_arguments_of_wrong_types_are_named(make, text, made):
    with pytest.raises(TypeError, match=text):
        make()


def test_objects_that_report_another_length_are_read_as_they_are(made):
    ascot.sort(Lying(["in"], 1000), to="out")
    assert (made / "out").read_text() == "a\nb\n"
    with pytest.raises(ValueError, match="only a part of in"):
        ascot.sort(Mapped(10**9), to="out")
    assert sorted_rows(Lying([TABLE], 7)) == sorted_rows(TABLE)
    with ascot.index.open("index") as index:
        assert len(index.get(Lying([b"aaaa"], 50))) == 1


def test_exceptions_of_the_interface_are_raised_unchanged():
    class Own(Exception):
        pass

    class Broken:
        def __arrow_c_stream__(self, requested_schema=None):
            raise Own("no stream")

    with pytest.raises(Own, match="no stream"):
        ascot.sort(Broken(), key="k")
    with pytest.raises(Own, match="no stream"):
        ascot.sort([TABLE, Broken()], key="k")


# ---------------------------------------------------------------- generators that fail, columns that change


class Own(Exception):
    pass


def failing(batches, what):
    yield from batches
    raise what


LONG = [pyarrow.table({"k": numpy.arange(400_000, dtype="u8")})] * 20


@pytest.mark.parametrize("goal", [{"to": "out"}, {"view": "out"}], ids=str)
@pytest.mark.parametrize("batches", [0, 1, 20])
def test_the_exception_of_a_generator_leaves_no_file(batches, goal, disk, monkeypatch):
    monkeypatch.chdir(disk)
    what = Own("in the middle")
    with pytest.raises(Own) as caught:
        ascot.sort(failing(LONG[:batches], what), layout="u64", memory="16MiB", temp=disk, **goal)
    assert caught.value is what and leftovers(disk) == []


def test_the_exception_of_a_generator_of_names_is_raised(disk):
    (disk / "a").write_text("a\n")
    what = Own("no more names")
    for job in (ascot.sort, ascot.merge):
        with pytest.raises(Own) as caught:
            job(failing([disk / "a"], what), to=disk / "out")
        assert caught.value is what and leftovers(disk) == ["a"]


def test_columns_that_change_leave_no_file(disk):
    for goal in ({"to": disk / "out"}, {"view": disk / "out"}):
        for other in (pyarrow.table({"k": ["x"]}), pyarrow.table({"n": numpy.arange(3, dtype="u8")})):
            with pytest.raises(ascot.SchemaMismatch, match="another schema: column"):
                ascot.sort([*LONG, other], layout="u64", memory="16MiB", temp=disk, **goal)
            assert leftovers(disk) == []


# ---------------------------------------------------------------- closed and forked


def closed(thing):
    thing.close()
    return thing


VIEW_USES = [
    len, lambda view: view[0], lambda view: view[:], lambda view: view.keys("a", "b"), lambda view: view.open(),
    lambda view: view.batches(), lambda view: view.write("w"), lambda view: view.header, lambda view: view.nbytes,
    lambda view: view.runs, lambda view: view.layout, lambda view: view.__enter__(),
    lambda view: view.__arrow_c_stream__(),
]  # fmt: skip
PART_USES = [bytes, lambda part: part.open(), lambda part: part.batches(), lambda part: part.write("w")]
INDEX_USES = [
    lambda index: index.get([b"aaaa"]), lambda index: index.get_batch([b"aaaa"]), lambda index: list(index.range()),
    lambda index: index.batches(), lambda index: index.epochs, lambda index: index.manifest,
    lambda index: index.__enter__(),
]  # fmt: skip
WRITER_USES = [
    lambda writer: writer.append([b"aaaa"], [b"x"]), lambda writer: writer.end_epoch(), lambda writer: writer.close(),
]  # fmt: skip


def test_closed_views_indexes_and_writers_say_so(made):
    view = ascot.view("view")
    part, file, batches = view[:10], view[:10].open(), view[:10].batches()
    view.close()
    view.close()
    for use in VIEW_USES:
        with pytest.raises(ValueError, match="the view view is closed"):
            use(view)
    for use in PART_USES:
        with pytest.raises(ValueError, match="the view view is closed"):
            use(part)
    assert "closed" in repr(view) and view.closed and part.nbytes == 1000
    # What was opened before stays open.
    assert len(file.read()) == 1000 and sum(batch.num_rows for batch in batches) == 10
    file.close()
    with pytest.raises(ValueError, match="closed file"):
        file.read()
    index = closed(ascot.index.open("index"))
    for use in INDEX_USES:
        with pytest.raises(ValueError, match="the index index is closed"):
            use(index)
    shutil.rmtree("written", ignore_errors=True)
    writer = closed(ascot.index.writer("written", key_bytes=4))
    for use in WRITER_USES[:2]:
        with pytest.raises(ValueError, match="closed"):
            use(writer)
    writer.close()


def test_closing_while_other_threads_read_is_an_error_or_the_data(made):
    wrong = []

    def read(view, batches):
        try:
            for at in range(200):
                assert len(bytes(view[at % 100 : at % 100 + 5])) == 500
            assert sum(batch.num_rows for batch in batches) == 1000
        except ValueError as error:
            if "closed" not in str(error):
                wrong.append(error)
        except BaseException as error:
            wrong.append(error)

    for _ in range(10):
        view = ascot.view("view")
        batches = view.batches()
        threads = [threading.Thread(target=read, args=(view, batches)) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.01)
        view.close()
        batches.close()
        for thread in threads:
            thread.join()
    assert not [error for error in wrong if "read" not in str(error)], wrong


FORKED = """
    import faulthandler, os, sys, warnings
    import ascot
    warnings.simplefilter("ignore")
    faulthandler.dump_traceback_later(60, exit=True)
    children = []
    view, index = ascot.view("view"), ascot.index.open("index")
    writer, file = ascot.index.writer("forked", key_bytes=4), view.open()

    def uses():
        yield "bytes(view[:10])", lambda: bytes(part)
        yield "view.keys", lambda: view.keys(None, b"b")
        yield "view.batches", lambda: view.batches()
        yield "view.write", lambda: view.write("w")
        yield "file.read", lambda: file.read()
        yield "writer.append", lambda: writer.append([b"aaaa"], [b"x"])
        yield "writer.close", lambda: writer.close()
        yield "sort", lambda: ascot.sort("in", to="from-child")

    part = view[:10]
    def child():
        try:
            assert len(index.get([b"aaaa"])) == 1
            for name, use in uses():
                try:
                    use()
                    os.write(2, f"{name} worked".encode())
                except ValueError as error:
                    if "process was forked" not in str(error):
                        os.write(2, f"{name}: {error}".encode())
        except BaseException as error:
            os.write(2, repr(error).encode())

    def fork(progress):
        if not children:
            children.append(os.fork())
            if children[0] == 0:
                child()
                global view, part, file, writer
                del view, part, file, writer
                os._exit(0)

    writer.append([b"aaaa"], [b"x"])
    while not children:
        job = ascot.sort("large", to="sorted", layout=ascot.Fixed(100), memory="16MiB", progress=fork)
    assert os.waitpid(children[0], 0)[1] == 0
    assert len(bytes(part)) == 1000 and len(file.read()) == 100_000 and job.report.records_out == 300_000
    writer.close()
    file.close()
    print(ascot.index.open("forked").get(b"aaaa")[0].value)
"""


def test_a_forked_process_is_refused_what_needs_the_threads_of_its_parent(made):
    """Views, their files, writers and jobs; the parent goes on with all of them."""
    ascot.gen(300_000, to="large")
    shutil.rmtree("forked", ignore_errors=True)
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(FORKED)], capture_output=True, text=True, cwd=made
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "b'x'\n", "")


SUBINTERPRETERS = """
    import os
    try:
        import _interpreters as subs
        run = lambda number, script: subs.exec(number, script)
    except ImportError:
        import _xxsubinterpreters as subs
        run = subs.run_string
    import {before}
    for _ in range(2):
        number = subs.create()
        run(number, {script!r})
        subs.destroy(number)
    os.write(1, b"end")
"""


@pytest.mark.parametrize("before", ["os", "ascot"])
def test_subinterpreters_refuse_the_import(before, disk):
    """Also where the main interpreter uses the package."""
    (disk / "in").write_text("b\na\n")
    script = """
import os
try:
    import ascot
    ascot.sort("in", to="out")
    os.write(1, b"sorted ")
except ImportError as error:
    os.write(1, b"refused " if "subinterpreter" in str(error) else str(error).encode())
"""
    text = textwrap.dedent(SUBINTERPRETERS).format(before=before, script=script)
    done = subprocess.run([sys.executable, "-X", "dev", "-c", text], capture_output=True, cwd=disk)
    assert done.returncode == 0 and done.stdout in (b"refused refused end", b"sorted sorted end"), done
