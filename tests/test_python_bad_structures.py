"""Arrow structures of other libraries: each is released once, and malformed ones are refused.

`./dev test` runs this file in Python's development mode (`python -X dev`).
"""

import ctypes
import gc
import subprocess
import sys
import textwrap

import ascot
import numpy
import pyarrow
import pytest
from arrow_structures import BatchOf, Producer, Schema, StreamOf
from support import ROOT, leftovers

TABLE = pyarrow.table({"k": [3, 1, 2], "s": ["c", "a", "b"]})
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


@pytest.mark.alone
def test_interrupts_of_a_job_do_not_wait_for_the_release_of_its_stream(disk):
    """A thread of the job needs the interpreter for the functions of this stream, and to release it."""
    script = f"""
        import faulthandler, itertools, os, random, signal, sys, threading, time
        import ascot
        sys.path.insert(0, {str(ROOT / "tests")!r})
        from arrow_structures import Producer, StreamOf

        faulthandler.dump_traceback_later(60, exit=True)
        times = []

        def stop():
            global began
            began = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)

        for turn in range(12):
            producer = Producer()
            def array():
                return producer.array(1000, [0], [producer.integers(range(1000))])
            stream = producer.stream(lambda: producer.table_schema(k=b"l"), itertools.repeat(array))
            try:
                threading.Timer(0.02 + random.random() * 0.1, stop).start()
                ascot.sort(StreamOf(stream), key="k", temp={str(disk)!r})
            except KeyboardInterrupt:
                times.append(time.monotonic() - began)
        print(*times, os.listdir({str(disk)!r}))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *words, left = done.stdout.split()
    times = sorted(map(float, words))
    assert len(times) == 12 and left == "[]", done.stdout
    # A job that waits for such a thread gives up after 100 ms. Other programs may delay two of twelve.
    assert times[0] < 0.08 and times[-3] < 0.2 and times[-1] < 0.3, times


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
