"""The Python package: Arrow batches in and out, with the libraries that users have."""

import contextlib
import gc
import math
import os
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import ascot
import duckdb
import numpy
import pandas
import polars
import pyarrow
import pyarrow.compute
import pytest
from ascot import errors
from hypothesis import given, settings
from hypothesis import strategies as st
from support import leftovers

MIB = 1 << 20
TABLE = pyarrow.table({"k": [3, 1, None, 2], "s": ["c", "a", "z", "b"]})
OBJECTS = pandas.Series(["c", "a", "z", "b"], dtype=object)


def rows(batches):
    return pyarrow.table(batches).to_pylist()


def large_batches(count=40, rows=50_000, seed=0):
    """Batches of random 64-bit keys and strings: 2.4 MB each."""
    rng = numpy.random.default_rng(seed)
    for _ in range(count):
        keys = rng.integers(0, 1 << 63, rows, dtype="u8")
        texts = numpy.char.zfill(keys.astype("U20"), 40)
        yield pyarrow.record_batch({"k": pyarrow.array(keys), "s": pyarrow.array(texts.tolist())})


def has_ended():
    """Whether no thread of a job is left soon; those that end take a moment."""
    for _ in range(200):
        names = []
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):
                names.append((task / "comm").read_text().strip())
        if not any(name.startswith(("job", "pipe in", "range", "sort", "emit")) for name in names):
            return True
        time.sleep(0.01)
    return False


# ---------------------------------------------------------------- sources and consumers


SOURCES = {
    "pyarrow table": lambda: TABLE,
    "pyarrow batch": lambda: TABLE.to_batches()[0],
    "pyarrow reader": lambda: TABLE.to_reader(),
    "pyarrow dataset scanner": lambda: pyarrow.dataset.dataset(TABLE).scanner().to_reader(),
    "list of batches": lambda: TABLE.to_batches(max_chunksize=1),
    "tuple of tables": lambda: (TABLE.slice(0, 2), TABLE.slice(2)),
    "generator": lambda: (batch for batch in TABLE.to_batches(max_chunksize=3)),
    "polars": lambda: polars.DataFrame(TABLE),
    "polars chunks": lambda: polars.concat([polars.DataFrame(TABLE[:1]), polars.DataFrame(TABLE[1:])], rechunk=False),
    "generator of frames": lambda: (polars.DataFrame(TABLE[at : at + 1]) for at in range(4)),
    "pandas": lambda: TABLE.to_pandas(types_mapper=pandas.ArrowDtype),
    "pandas default types": lambda: pandas.DataFrame({"k": [3, 1, None, 2], "s": list("cazb")}),
    "pandas objects": lambda: pandas.DataFrame({"k": numpy.array([3, 1, numpy.nan, 2]), "s": OBJECTS}),
    "pandas rows of a frame": lambda: pandas.DataFrame({"k": [0, 3, 1, None, 2], "s": list("-cazb")})[1:],
    "duckdb": lambda: duckdb.from_arrow(TABLE),
    "ascot": lambda: ascot.sort(TABLE, key="s"),
    "ascot batches": lambda: list(ascot.sort(TABLE, key="s")),
}


def test_columns_of_nulls_of_every_library_are_taken():
    """Polars exports them with a buffer, which the format does not have."""
    table = pyarrow.table({"k": [2, 1], "n": [None, None], "l": pyarrow.array([[None], []])})
    frame = polars.DataFrame({"k": [2, 1], "n": [None, None], "l": [[None], []]})
    for source in (table, frame, frame.to_pandas(), duckdb.from_arrow(table)):
        found = polars.DataFrame(ascot.sort(source, key="k"))
        assert found["k"].to_list() == [1, 2] and found["n"].to_list() == [None, None]
        assert [[*one] for one in found["l"]] == [[], [None]]
    assert polars.DataFrame(ascot.sort(frame.clear(), key="k")).schema == frame.schema


def test_the_time_of_a_sort_of_unknown_size_is_not_predicted(disk):
    batches = ascot.sort(pyarrow.table({"k": [2, 1]}), key="k")
    list(batches)
    ours, theirs = os.pipe()
    os.write(theirs, b"b\na\n")
    os.close(theirs)
    with open(ours, "rb") as pipe:
        explained = ascot.plan.sort(pipe, to=disk / "out")
    for plan in (batches.plan, explained):
        assert math.isnan(plan.seconds) and "not known before all is read" in str(plan)
        assert "not known before all is read" in plan._repr_html_() and " s<" not in plan._repr_html_()
    (disk / "in").write_text("b\na\n")
    assert ascot.plan.sort(disk / "in", to=disk / "out").seconds > 0


@pytest.mark.parametrize("kind", SOURCES)
def test_objects_of_libraries_are_sources(kind):
    import pyarrow.dataset  # noqa: F401

    found = rows(ascot.sort(SOURCES[kind](), key=["k", "s"]))
    assert found == [{"k": 1, "s": "a"}, {"k": 2, "s": "b"}, {"k": 3, "s": "c"}, {"k": None, "s": "z"}]


CONSUMERS = {
    "pyarrow table": lambda batches: pyarrow.table(batches)["s"].to_pylist(),
    "pyarrow reader": lambda batches: pyarrow.RecordBatchReader.from_stream(batches).read_all()["s"].to_pylist(),
    "pyarrow batch": lambda batches: [s for one in batches for s in pyarrow.record_batch(one)["s"].to_pylist()],
    "polars": lambda batches: polars.DataFrame(batches)["s"].to_list(),
    "polars batch": lambda batches: [s for one in batches for s in polars.DataFrame(one)["s"].to_list()],
    "pandas": lambda batches: pandas.DataFrame.from_arrow(batches)["s"].tolist(),
    "duckdb": lambda batches: [s for (s,) in duckdb.sql("select s from batches").fetchall()],
}


@pytest.mark.parametrize("kind", CONSUMERS)
def test_libraries_read_the_batches(kind):
    assert CONSUMERS[kind](ascot.sort(TABLE, key="s")) == ["a", "b", "c", "z"]


def test_batches_describe_themselves():
    batches = ascot.sort(TABLE, key="s")
    assert batches.column_names == ["k", "s"] and "k: int64" in repr(batches)
    assert pyarrow.schema(batches).names == ["k", "s"] and batches.report is None
    (batch,) = batches
    assert (batch.num_rows, len(batch), batch.num_columns, batch.column_names) == (4, 4, 2, ["k", "s"])
    assert batch.nbytes > 0 and "4 rows" in repr(batch) and pyarrow.schema(batch).names == ["k", "s"]
    assert list(batches) == [] and batches.report.records_out == 4 and batches.plan.chosen.method
    with pytest.raises(AttributeError):
        batches.frob = 1


def test_a_stream_is_read_once():
    batches = ascot.sort(TABLE, key="s")
    reader = pyarrow.RecordBatchReader.from_stream(batches)
    with pytest.raises(ValueError, match="another library reads"):
        next(batches)
    with pytest.raises(ValueError, match="another library reads"):
        batches.__arrow_c_stream__()
    assert reader.read_all().num_rows == 4
    closed = ascot.sort(TABLE, key="s")
    closed.close()
    with pytest.raises(ValueError, match="closed"):
        next(closed)


# ---------------------------------------------------------------- order


KEYS = [
    ("k", [("k", "ascending")], "at_end"),
    (ascot.desc("k"), [("k", "descending")], "at_end"),
    (ascot.asc("k", nulls="first"), [("k", "ascending")], "at_start"),
    (["s", ascot.desc("k")], [("s", "ascending"), ("k", "descending")], "at_end"),
]

COLUMNS = {
    "ints": (pyarrow.int64(), st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 3)),
    "unsigned": (pyarrow.uint16(), st.integers(0, 9)),
    "floats": (pyarrow.float64(), st.floats(allow_nan=False)),
    "texts": (pyarrow.string(), st.text(max_size=4)),
    "views": (pyarrow.string_view(), st.text(max_size=20)),
    "bytes": (pyarrow.binary(), st.binary(max_size=4)),
    "dates": (pyarrow.date32(), st.dates()),
    "times": (pyarrow.timestamp("us"), st.datetimes()),
    "decimals": (pyarrow.decimal128(10, 2), st.decimals(-9999, 9999, places=2)),
    "bools": (pyarrow.bool_(), st.booleans()),
}


@pytest.mark.parametrize("kind", COLUMNS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_order_is_that_of_pyarrow(kind, data):
    data_type, values = COLUMNS[kind]
    column = data.draw(st.lists(st.none() | values, min_size=1, max_size=30))
    key, order, nulls = data.draw(st.sampled_from(KEYS))
    texts = [str(number % 3) for number in range(len(column))]
    table = pyarrow.table({"k": pyarrow.array(column, data_type), "s": texts, "at": range(len(column))})
    step = data.draw(st.integers(1, 40))
    found = pyarrow.table(ascot.sort(table.to_batches(max_chunksize=step), key=key, stable=True))
    found.validate(full=True)
    if data_type == pyarrow.string_view():
        table = table.set_column(0, "k", table["k"].cast("string"))
        found = found.set_column(0, "k", found["k"].cast("string"))
    options = pyarrow.compute.SortOptions(
        [(name, direction, nulls) for name, direction in [*order, ("at", "ascending")]]
    )
    # pyarrow takes both zeros for equal; IEEE total order does not.
    ranked = table
    if kind == "floats":
        ranks = [None if value is None else total_order(value) for value in column]
        ranked = table.set_column(0, "k", pyarrow.array(ranks, pyarrow.int64()))
    wanted = table.take(pyarrow.compute.sort_indices(ranked, options=options))
    assert str(found.to_pylist()) == str(wanted.to_pylist())


def total_order(value):
    """An integer that orders as the float does in IEEE total order."""
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return bits if bits >= 0 else bits ^ ((1 << 63) - 1)


def test_floats_are_in_ieee_total_order():
    values = [math.nan, 1.0, -0.0, 0.0, -math.inf, -math.nan, math.inf]
    found = pyarrow.table(ascot.sort(pyarrow.table({"k": values}), key="k"))["k"].to_pylist()
    shown = [math.copysign(1, value) * (9 if math.isnan(value) else min(abs(value), 8)) for value in found]
    assert [(sign, math.copysign(1, sign)) for sign in shown] == [
        (value, math.copysign(1, value)) for value in (-9, -8, -0.0, 0.0, 1, 8, 9)
    ]


def test_dictionaries_nested_columns_and_metadata_survive():
    schema = pyarrow.schema(
        [
            pyarrow.field("d", pyarrow.dictionary(pyarrow.int8(), pyarrow.string()), metadata={"unit": "m"}),
            pyarrow.field("l", pyarrow.list_(pyarrow.int32())),
        ],
        metadata={"source": "test"},
    )
    table = pyarrow.table({"d": ["b", "a", None, "b"], "l": [[1], None, [], [2, 3]]}, schema=schema)
    found = pyarrow.table(ascot.sort(table, key="d", stable=True))
    assert found.schema.equals(schema, check_metadata=True)
    assert found["d"].to_pylist() == ["a", "b", "b", None] and found["l"].to_pylist() == [None, [1], [2, 3], []]


def test_reverse_unique_and_top():
    table = pyarrow.table({"s": ["b", "a", "b", "c", "a"], "at": range(5)})
    sort = ascot.sort
    assert [row["s"] for row in rows(sort(table, key="s", reverse=True))] == list("cbbaa")
    assert [row["at"] for row in rows(sort(table, key="s", unique=True, stable=True))] == [1, 0, 3]
    assert [row["s"] for row in rows(sort(table, key=ascot.desc("s"), top=2))] == ["c", "b"]


@pytest.mark.parametrize("options", [{"unique": True, "stable": True}, {"top": 100}], ids=["unique", "top"])
def test_unique_and_top_of_keys_of_any_length_spill(options, disk):
    """Text keys are records of the layout `keyed`."""

    def batches():
        rng = numpy.random.default_rng(5)
        for number in range(30):
            keys = [f"{key:0{key % 9 + 1}}" for key in rng.integers(0, 20_000, 20_000)]
            yield pyarrow.record_batch(
                {"s": keys, "at": numpy.arange(20_000) + 20_000 * number, "pad": ["x" * 20] * 20_000}
            )

    found = pyarrow.table(ascot.sort(batches(), key="s", memory="12MiB", temp=disk, **options))
    all_rows = sorted((row["s"], row["at"]) for batch in batches() for row in batch.select(["s", "at"]).to_pylist())
    wanted, seen = [], set()
    if "top" in options:
        assert found["s"].to_pylist() == [key for key, _ in all_rows[:100]]
    else:
        for key, at in all_rows:
            if key not in seen:
                seen.add(key)
                wanted.append((key, at))
        assert list(zip(found["s"].to_pylist(), found["at"].to_pylist(), strict=True)) == wanted
    assert leftovers(disk) == []


# ---------------------------------------------------------------- larger than memory


def test_a_source_larger_than_memory_spills_and_leaves_nothing(disk):
    batches = ascot.sort(large_batches(), key="k", memory="16MiB", temp=disk)
    assert leftovers(disk) != []
    last, count = -1, 0
    for batch in batches:
        keys = pyarrow.record_batch(batch)["k"].to_numpy()
        assert keys[0] >= last and (keys[1:] >= keys[:-1]).all()
        last, count = keys[-1], count + len(keys)
    assert count == 2_000_000 and leftovers(disk) == [] and has_ended()
    report = batches.report
    assert report.records_in == report.records_out == 2_000_000 and report.memory_bytes == 16 * MIB
    assert report.peak_disk_bytes > 0 and batches.plan is not None


@pytest.mark.parametrize("ending", ["close", "with", "del", "reader"])
def test_a_consumer_may_stop_early(ending, disk):
    batches = ascot.sort(large_batches(), key="k", memory="16MiB", temp=disk)
    next(batches)
    began = time.monotonic()
    if ending == "close":
        batches.close()
    elif ending == "with":
        with batches:
            pass
    elif ending == "reader":
        reader = pyarrow.RecordBatchReader.from_stream(batches)
        reader.read_next_batch()
        reader.close()
        del reader
    del batches
    gc.collect()
    assert time.monotonic() - began < 5 and leftovers(disk) == [] and has_ended()


def test_streams_end_with_the_program(disk):
    script = f"""
        import ascot, pyarrow
        table = pyarrow.table({{"k": list(range(300_000)), "s": ["x" * 60] * 300_000}})
        batches = ascot.sort(table, key="k", memory="12MiB", temp={str(disk)!r})
        next(batches)
        kept = [batches]
        kept.append(kept)
        print("ready")
    """
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(script)], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "ready\n"), done.stderr
    assert leftovers(disk) == []


@pytest.mark.parametrize("cap", [16 * MIB, 64 * MIB])
def test_memory_is_within_the_cap_and_two_batches(cap, disk):
    """Peak resident memory for a source of 480 MB.

    The process itself needs what is resident before the job, after a job of ten rows: the interpreter, the libraries,
    and the column that all batches share. The job adds its cap, and the two batches of the source that come on top:
    one that is being read, and one that the generator makes. The batch that the consumer holds is no larger than the
    second. Ten rows leave no free memory that the job could use uncounted. The peak is that of the program alone:
    `getrusage` begins with that of the process that starts it.
    """
    script = f"""
        import ascot, numpy, pyarrow

        TEXT = pyarrow.array(["x" * 40] * 20_000)
        def batches(count, rows):
            rng = numpy.random.default_rng(1)
            for _ in range(count):
                keys = pyarrow.array(rng.integers(0, 1 << 63, rows, dtype="u8"))
                yield pyarrow.record_batch([keys, TEXT[:rows]], ["k", "s"])

        def status(name):
            with open("/proc/self/status") as lines:
                return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))
        for batch in ascot.sort(batches(1, 10), key="k"):
            pass
        before = status("VmRSS:")
        count = 0
        for batch in ascot.sort(batches(500, 20_000), key="k", memory={cap}, temp={str(disk)!r}):
            count += batch.num_rows
        assert count == 500 * 20_000
        print(status("VmHWM:") - before, next(batches(1, 20_000)).nbytes)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    used, batch = map(int, done.stdout.split())
    assert cap // 2 < used < cap + 2 * batch and leftovers(disk) == []


# ---------------------------------------------------------------- errors


class Custom(Exception):
    pass


def failing(after, what):
    for number, batch in enumerate(large_batches(after + 5)):
        if number == after:
            raise what
        yield batch


@pytest.mark.parametrize("after", [0, 1, 20])
@pytest.mark.parametrize(
    "wrap", [iter, lambda g: pyarrow.RecordBatchReader.from_batches(LARGE, g)], ids=["generator", "reader"]
)
def test_the_exception_of_a_generator_is_raised_unchanged(after, wrap, disk):
    what = Custom("in the middle")
    with pytest.raises(Custom) as caught:
        ascot.sort(wrap(failing(after, what)), key="k", memory="16MiB", temp=disk)
    assert caught.value is what and leftovers(disk) == [] and has_ended()


LARGE = pyarrow.schema([("k", pyarrow.uint64()), ("s", pyarrow.string())])


def test_a_schema_that_changes_is_an_error(disk):
    first = pyarrow.record_batch({"k": [1], "s": ["a"]})
    for other, text in [
        (pyarrow.record_batch({"k": ["x"], "s": ["a"]}), "column 'k' has type string instead of int64: cast it"),
        (pyarrow.record_batch({"k": [1], "t": ["a"]}), "column 2 is 't' instead of 's'"),
        (pyarrow.record_batch({"k": [1]}), "1 columns instead of 2"),
    ]:
        with pytest.raises(ascot.SchemaMismatch, match=text):
            ascot.sort([first, other], key="k", temp=disk)
    assert leftovers(disk) == []


class Fake:
    """An object that exports what it is told."""

    def __init__(self, stream):
        self.stream = stream

    def __arrow_c_stream__(self, requested_schema=None):
        return self.stream


def wrong_length(part, length):
    """A batch whose array, or one of its children, reports another length."""
    import ctypes

    class Array(ctypes.Structure):
        pass

    Array._fields_ = [
        *[(name, ctypes.c_int64) for name in ("length", "nulls", "offset", "buffers", "children")],
        ("buffer", ctypes.c_void_p),
        ("child", ctypes.POINTER(ctypes.POINTER(Array))),
    ]
    schema, array = pyarrow.record_batch({"k": [1, 2, 3], "s": ["a", "b", "c"]}).__arrow_c_array__()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    raw = Array.from_address(get(array, b"arrow_array"))
    one = raw if part == "batch" else raw.child[0][0]
    setattr(one, *length)

    class Batch:
        def __arrow_c_array__(self, requested_schema=None):
            return schema, array

    return Batch()


WRONG = [("length", -1), ("length", 1 << 62), ("offset", -5), ("buffers", 0)]


@pytest.mark.parametrize(
    ("part", "length"), [*((part, one) for part in ("batch", "column") for one in WRONG), ("batch", ("children", 1))]
)
def test_wrong_lengths_are_errors(part, length):
    with pytest.raises(ascot.SchemaMismatch, match="contradicts itself"):
        ascot.sort([wrong_length(part, length)], key="k")
    with pytest.raises(ascot.SchemaMismatch, match="contradicts itself"):
        ascot.sort([wrong_length("column", ("length", 2))], key="k")


def test_wrong_sources_are_errors():
    cases = [
        ([TABLE, 3], TypeError, "item 2 of the source, of type int, has no Arrow batches"),
        ((number for number in [1]), TypeError, "item 1 of the source"),
        (iter([]), errors.InvalidRequest, "no batches"),
        (pyarrow.array([1]), errors.InvalidRequest, "no columns"),
        (pyarrow.chunked_array([[1]]), errors.InvalidRequest, "no columns"),
        (Fake(3), TypeError, "no capsule .*, but int"),
        (Fake(TABLE.to_batches()[0].__arrow_c_array__()[0]), TypeError, "no capsule .*, but PyCapsule"),
        (3, TypeError, "source is a path"),
        ({"k": [1]}, TypeError, "source is a path"),
    ]
    for source, kind, text in cases:
        with pytest.raises(kind, match=text):
            ascot.sort(source, key="k")
    used = Fake(TABLE.__arrow_c_stream__())
    assert rows(ascot.sort(used, key="k"))
    with pytest.raises(errors.InvalidRequest, match="read before"):
        ascot.sort(used, key="k")


def test_wrong_keys_are_errors():
    with pytest.raises(ascot.SchemaMismatch, match=r"no column 'tenant'\n.*: k, s"):
        ascot.sort(TABLE, key=["k", "tenant"])
    with pytest.raises(errors.InvalidRequest, match="needs a key"):
        ascot.sort(TABLE)
    for wrong in (3, slice(0, 4), ascot.column("k", type="number")):
        with pytest.raises(ValueError, match="name of a column"):
            ascot.sort(TABLE, key=wrong)
    with pytest.raises(errors.InvalidRequest, match="no order"):
        ascot.sort(pyarrow.table({"k": pyarrow.array([(1, 2, 3)], pyarrow.month_day_nano_interval())}), key="k")
    with pytest.raises(ValueError, match="layout= describes files"):
        ascot.sort(TABLE, key="k", layout="lines")
    with pytest.raises(ascot.MemoryLimit) as caught:
        ascot.sort(TABLE, key="k", memory="1MiB")
    assert caught.value.needed > MIB == caught.value.given
    assert rows(ascot.sort(TABLE, key="k", memory=caught.value.needed))


def test_plans_are_of_files():
    plans = (ascot.plan.sort, ascot.plan.merge, lambda source: ascot.plan.split(source, to="part-{}", parts=2))
    for plan in plans:
        with pytest.raises(TypeError, match="is of files, not of Arrow batches"):
            plan(TABLE)


def test_the_error_of_a_foreign_stream_is_told():
    def batches():
        yield pyarrow.record_batch({"k": [1]})
        raise Custom("in the middle")

    reader = pyarrow.RecordBatchReader.from_batches(pyarrow.schema([("k", "int64")]), batches())
    with pytest.raises(errors.AscotError, match=r"the Arrow stream failed: .*in the middle"):
        ascot.sort(Fake(reader.__arrow_c_stream__()), key="k")


@pytest.mark.parametrize("ending", ["read", "close", "del"])
def test_a_stream_keeps_its_memory_of_a_session(ending):
    session = ascot.Session(memory="64MiB")
    batches = session.run(ascot.sort, TABLE, key="k")
    assert session.free == 32 * MIB
    if ending == "read":
        assert len(list(batches)) == 1
    elif ending == "close":
        batches.close()
    else:
        del batches
        gc.collect()
    assert session.free == 64 * MIB
    with pytest.raises(ascot.SchemaMismatch):
        session.run(ascot.sort, TABLE, key="frob")
    assert session.free == 64 * MIB


@pytest.mark.parametrize("ending", ["read", "del", "closed before"])
def test_a_stream_that_a_library_reads_keeps_its_memory_of_a_session(ending):
    session = ascot.Session(memory="64MiB")
    batches = session.run(ascot.sort, large_batches(8), key="k")
    reader = pyarrow.RecordBatchReader.from_stream(batches)
    if ending == "closed before":
        batches.close()
    del batches
    gc.collect()
    assert session.free == 32 * MIB
    # Another thread gets the memory when the library has read the stream.
    waiting = threading.Thread(target=session.run, args=(ascot.sort, TABLE), kwargs={"key": "k", "memory": "64MiB"})
    waiting.start()
    waiting.join(timeout=0.2)
    assert waiting.is_alive()
    if ending == "read":
        assert sum(batch.num_rows for batch in reader) == 8 * 50_000
    else:
        del reader
    waiting.join(timeout=30)
    assert not waiting.is_alive()
    gc.collect()
    assert session.free == 64 * MIB


def test_warnings_of_a_stream_that_a_library_reads_are_told(disk):
    (disk / "in.csv").write_text("n\n3\nzz\n")
    key = ascot.column("n", type="number")
    with pytest.warns(ascot.AscotWarning, match="1 value is not of that type, the first 'zz'"):
        table = pyarrow.table(ascot.sort(disk / "in.csv", key=key, layout=ascot.Csv(binary=True)))
    assert table.num_rows == 2


def test_other_threads_run_meanwhile(disk):
    """The calling thread of a sort does not hold the interpreter while the job works, and two may sort at once."""
    found = []

    def work(seed):
        found.append(
            sum(batch.num_rows for batch in ascot.sort(large_batches(10, seed=seed), key="k", memory="16MiB"))
        )

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert found == [500_000, 500_000]


def test_a_forked_child_does_not_wait_for_the_stream(disk):
    batches = ascot.sort(large_batches(10), key="k", memory="16MiB", temp=disk)
    # Each child may be forked while a thread of the job holds a lock.
    for _ in range(50):
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            try:
                next(batches)
            except ValueError as error:
                code = 0 if "forked" in str(error) else 2
            else:
                code = 1
            del batches
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
    assert sum(batch.num_rows for batch in batches) == 500_000
