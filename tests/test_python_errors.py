"""Errors of the Python package: their classes, and texts that name what was given and what to give instead."""

import array
import copy
import errno
import gzip
import io
import mmap
import os
import pickle
import socket
import subprocess
import sys
import textwrap
import warnings
from collections import deque

import ascot
import numpy
import polars
import pyarrow
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet
import pytest
from ascot.errors import FileError, FileMissing, InvalidRequest

TABLE = pyarrow.table({"k": [3, 1, 2], "s": ["c", "a", "b"]})
BATCHES = TABLE.select(["k"])


@pytest.fixture(scope="module", autouse=True)
def made(module_disk):
    """Files, a view and an indexed directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(module_disk)
        module_disk.joinpath("in").write_text("b\na\n")
        module_disk.joinpath("in.csv").write_text("a,b\n2,x\n1,y\n")
        ascot.sort("in", view="view")
        with ascot.index.writer("index", key_bytes=1) as writer:
            writer.append([b"a"], [b"1"])
        pyarrow.parquet.write_table(TABLE, "t.parquet")
        pyarrow.feather.write_feather(TABLE, "t.feather")
        with pyarrow.OSFile("t.stream", "wb") as file, pyarrow.ipc.new_stream(file, TABLE.schema) as writer:
            writer.write_table(TABLE)
        yield module_disk


def closed(thing):
    thing.close()
    return thing


def read_twice():
    batches = ascot.sort(TABLE, key="k")
    pyarrow.table(batches)
    return next(batches)


def flow(inputs, outputs, fn=lambda inputs: (), **options):
    return ascot.flow(inputs, outputs, fn, **options)


def sort_the_rest_of_a_file():
    with open("in", "rb") as file:
        file.read(1)
        ascot.sort(file, to="o")


def sort_after_a_loop():
    with open("in") as file:
        next(file)
        ascot.sort(file, to="o")


def sort_a_socket():
    for end in socket.socketpair():
        with end:
            ascot.sort(end, to="o")


CSV = ascot.Csv()
# Calls whose arguments contradict each other.
INVALID = {
    "to and view": lambda: ascot.sort("in", to="o", view="v"),
    "parts of a stream": lambda: ascot.sort("in", parts=2),
    "part of a view": lambda: ascot.sort("in", view="v", top=1),
    "layout of batches": lambda: ascot.sort(TABLE, key="k", layout="u64"),
    "file of batches": lambda: ascot.sort(TABLE, key="k", to="o"),
    "check of batches as CSV": lambda: ascot.check(TABLE, key="k", layout=CSV),
    "ranges of another key": lambda: ascot.reshape("in", to="o-{}", parts=2, by_key=1),
    "size with a key": lambda: ascot.split("in", to="o-{}", parts=2, by="size", key=1),
    "key of batches": lambda: ascot.sort(TABLE, key=1),
    "key of lines": lambda: ascot.sort("in", key=slice(0, 1), to="o"),
    "key of CSV": lambda: ascot.sort("in.csv", layout=CSV, key=slice(0, 1), to="o"),
    "name without a header": lambda: ascot.sort("in.csv", layout=ascot.Csv(header=False), key="a", to="o"),
    "key of numbers": lambda: ascot.sort("in", layout="u32", key=1, to="o"),
    "key of records": lambda: ascot.sort("in", layout="fixed:2", key=1, to="o"),
    "range of bytes": lambda: ascot.sort("in", layout="fixed:2", key=slice(1, 0), to="o"),
    "two keys": lambda: ascot.sort("in", layout=ascot.Lines(key=1), key=2, to="o"),
    "no file": lambda: ascot.sort([], to="o"),
    "strided memory": lambda: ascot.sort(memoryview(b"abcd")[::2], to="o"),
    "file read before": sort_the_rest_of_a_file,
    "file read by a loop": sort_after_a_loop,
    "socket": sort_a_socket,
    "volume": lambda: ascot.sort("in", to="o", volume="frob"),
    "method": lambda: ascot.sort("in", to="o", method="frob"),
    "reverse flow": lambda: flow("in", "o", reverse=True),
    "merged batches": lambda: flow([TABLE], "o", merge=True),
    "flow of no file": lambda: flow([TABLE], [lambda batch: None]),
    "pattern": lambda: flow("in", "o", parts=2),
    "parts of a list": lambda: flow("in", ["o"], parts=2),
    "equal outputs": lambda: flow("in", ["o", "o"]),
    "layouts": lambda: flow("in", "o", layout=["lines", "lines"]),
    "plan with two lengths": lambda: ascot.plan.sort(size="1TB", layout="fixed:2", record_bytes=3),
    "plan with two growths": lambda: ascot.plan.merge(size="1TB", inputs=2, alpha=0.5, growth=0.5),
    "plan with a rule": lambda: ascot.plan.reshape(size="1TB", inputs=2, parts=2, by="hash", alpha=0.5),
    "no trace": lambda: ascot.trace.compare([]),
    "step of a view": lambda: ascot.view("view")[::2],
    "range of a view": lambda: ascot.view("view").keys("b", "a"),
    "layout of a view": lambda: ascot.view("view").batches(layout="u32"),
    "closed view": lambda: len(closed(ascot.view("view"))),
    "closed index": lambda: closed(ascot.index.open("index")).get(b"a"),
    "closed writer": lambda: closed(ascot.index.writer("closed")).append([b"a"], [b"1"]),
    "keys without values": lambda: ascot.index.writer("pairs").append([b"a"], []),
    "strided keys": lambda: ascot.index.writer("strides").append(numpy.arange(4)[::2], [b"1", b"2"]),
    "stream read before": read_twice,
    "closed stream": lambda: next(closed(ascot.sort(TABLE, key="k"))),
}  # fmt: skip


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_request_is_an_error_of_the_package(name):
    with pytest.raises(InvalidRequest) as caught:
        INVALID[name]()
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, ascot.AscotError)


def seek(file):
    file.raw.seek(-1)


# Python's own exceptions, where its protocols have them.
OWN = {
    "record": (IndexError, lambda: ascot.view("view")[9]),
    "number of an output": (IndexError, lambda: flow("in", "o", lambda inputs: [(1, BATCHES)])),
    "name of an output": (KeyError, lambda: flow("in", "o", lambda inputs: [("p", BATCHES)])),
    "closed file": (ValueError, lambda: closed(ascot.view("view").open()).read()),
    "position": (OSError, lambda: seek(ascot.view("view").open())),
}


@pytest.mark.parametrize("name", OWN)
def test_exceptions_of_pythons_protocols_stay(name):
    error, call = OWN[name]
    with pytest.raises(error) as caught:
        call()
    assert not isinstance(caught.value, ascot.AscotError)


# ---------------------------------------------------------------- Parquet, Arrow files and objects that make batches

PARQUET_OUTPUTS = {
    "sort": (lambda to: ascot.sort("in", to=to), "leave out to="),
    "sort of batches": (lambda to: ascot.sort(TABLE, key="k", to=to), "leave out to="),
    "merge": (lambda to: ascot.merge(["in"], to=to), "without to= gives batches"),
    "gen": (lambda to: ascot.gen(3, to=to), "give another name"),
    "flow": (lambda to: flow("in", [to]), "a function as the output"),
    "parts of a flow": (lambda to: flow("in", "{}" + to, parts=2), "a function as the output"),
    "view": (lambda to: ascot.view("view").write(to), r"its batches\(\)"),
    "part": (lambda to: ascot.view("view")[:1].write(to), r"its batches\(\)"),
}


@pytest.mark.parametrize("name", PARQUET_OUTPUTS)
def test_an_output_of_parquet_is_refused_with_the_way_to_write_it(name):
    call, remedy = PARQUET_OUTPUTS[name]
    with pytest.raises(ascot.SchemaMismatch, match=f"o.parquet: Ascot does not write Parquet\n.*{remedy}"):
        call("o.parquet")
    assert not os.path.exists("o.parquet")


def test_a_file_of_batches_without_a_layout_names_some():
    with pytest.raises(InvalidRequest, match=r"such as layout=ascot\.Csv\(\)"):
        ascot.sort(TABLE, key="k", to="o.csv")


@pytest.mark.parametrize(
    ("source", "method"),
    [
        (lambda: pyarrow.dataset.dataset("t.parquet"), "to_batches"),
        (lambda: pyarrow.dataset.dataset("t.parquet").scanner(), "to_batches"),
        (lambda: pyarrow.parquet.ParquetFile("t.parquet"), "iter_batches"),
        (lambda: polars.LazyFrame({"k": [2, 1]}), "collect_batches"),
    ],
    ids=["dataset", "scanner", "parquet", "lazy"],
)
def test_objects_that_make_batches_name_their_method(source, method):
    with pytest.raises(TypeError, match=rf"or its {method}\(\)"):
        ascot.sort(source(), key="k")
    with pytest.raises(TypeError, match=rf"give the result of its {method}\(\)"):
        ascot.sort([TABLE, source()], key="k")
    assert pyarrow.table(ascot.sort(getattr(source(), method)(), key="k")).num_rows in (2, 3)


@pytest.mark.parametrize("file", ["t.feather", "t.stream"])
def test_a_file_of_arrow_names_the_call_that_reads_it(file):
    with pytest.raises(ascot.SchemaMismatch) as caught:
        ascot.sort(file, to="o")
    call = str(caught.value).splitlines()[1].partition("pyarrow: ")[2]
    assert "pyarrow.ipc" in call and "ascot sort" not in str(caught.value)
    batches = eval(call.replace("key=...", "key='k'"), {"ascot": ascot, "pyarrow": pyarrow})
    assert pyarrow.table(batches)["k"].to_pylist() == [1, 2, 3]


# ---------------------------------------------------------------- sources


def test_any_iterable_of_batches_is_a_source(made):
    for source in (deque([TABLE]), {"a": TABLE}.values(), iter([TABLE]), (TABLE,)):
        assert pyarrow.table(ascot.sort(source, key="k"))["k"].to_pylist() == [1, 2, 3]
    ascot.sort({"in": 1}.keys(), to="o")
    assert (made / "o").read_text() == "a\nb\n"


def test_arrays_and_mapped_memory_are_bytes(made):
    numbers = [3, 1, 2]
    sources = [array.array("I", numbers), numpy.array(numbers, "<u4"), numpy.array([[3], [1], [2]], "<u4")]
    with open("numbers", "wb") as file:
        numpy.array(numbers, "<u4").tofile(file)
    with open("numbers", "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for source in [*sources, mapped]:
            assert pyarrow.table(ascot.sort(source, layout="u32"))["value"].to_pylist() == [1, 2, 3]
    big = numpy.array(numbers, ">u4")
    assert pyarrow.table(ascot.sort(big, layout="u32-be"))["value"].to_pylist() == [1, 2, 3]
    records = numpy.array([(2, 7), (1, 8)], dtype=[("id", ">u2"), ("x", "<u2")])
    sorted_records = ascot.sort(records, layout=ascot.Fixed(4, key=slice(0, 2)))
    assert pyarrow.table(sorted_records)["record"].to_pylist() == [b"\0\1\x08\0", b"\0\2\x07\0"]
    # Names stay names.
    ascot.sort(numpy.array(["in"]), to="o")
    assert (made / "o").read_text() == "a\nb\n"


class Descriptor:
    """An object that has nothing but a descriptor."""

    def __init__(self, number):
        self.number = number

    def fileno(self):
        return self.number


def test_a_descriptor_alone_is_read_as_a_pipe(made):
    ours, theirs = os.pipe()
    os.write(theirs, b"b\na\n")
    os.close(theirs)
    try:
        ascot.sort(Descriptor(ours), to="o")
    finally:
        os.close(ours)
    assert (made / "o").read_text() == "a\nb\n"


def test_a_file_whose_position_is_not_known_names_the_loop():
    with pytest.raises(InvalidRequest, match="read by a loop: open it again, or name it") as caught:
        sort_after_a_loop()
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(InvalidRequest, match=r"source is a socket, .*\n  write what it receives to a file"):
        sort_a_socket()


class Capsule:
    def __init__(self, result):
        self.result = result

    def __arrow_c_stream__(self, requested_schema=None):
        return self.result


class Pair:
    def __arrow_c_array__(self, requested_schema=None):
        return 3


def test_other_objects_are_named_with_the_argument():
    no_capsule = "the source gives no capsule 'arrow_array_stream', but"
    for source, text in [
        (io.StringIO("x"), "source is a path, an open file of the system or bytes, not"),
        (Capsule(3), f"{no_capsule} int"),
        (Capsule(TABLE.schema.__arrow_c_schema__()), f"{no_capsule} PyCapsule"),
        (Pair(), "__arrow_c_array__ of the source gives no two capsules, but int"),
    ]:
        with pytest.raises(TypeError, match=text):
            ascot.sort(source, key="k", **({"to": "o"} if isinstance(source, io.StringIO) else {}))
    with pytest.raises(TypeError, match="job is a function with the argument memory, such as"):
        ascot.Session("64MiB").run(ascot.gen, 3, to="o")
    with pytest.raises(TypeError, match="there are key, layout, reverse, memory"):
        ascot.sort(TABLE, kye="k")
    with ascot.index.writer("arrays") as writer:
        for keys in (pyarrow.array([1]), polars.Series([1])):
            with pytest.raises(TypeError, match=r"such as its to_numpy\(\)"):
                writer.append(keys, [b"x"])
        with pytest.raises(TypeError, match=r"a type with a buffer, such as its view\('i8'\) if it has dates"):
            writer.append(numpy.array(["2026-01-01"], "datetime64[s]"), [b"x"])


def test_a_compressed_file_is_named_without_a_warning():
    with gzip.open("in.gz", "wb") as file:
        file.write(b"b\n")
    with warnings.catch_warnings(), gzip.open("in.gz") as file:
        warnings.simplefilter("error")
        with pytest.raises(ascot.SchemaMismatch, match=r"^in\.gz: this is gzip data") as caught:
            ascot.sort(file, to="o")
    assert caught.value.file == "in.gz"


# ---------------------------------------------------------------- names and remedies


def test_open_files_and_bytes_have_names():
    with open("in", "rb") as file:
        content, given = b"b\na\n", "the bytes given"
        for source, name in ((file, "in"), (content, given), (io.BytesIO(content), given)):
            with pytest.raises(ascot.NotSorted, match=f"^{name}: not sorted") as caught:
                ascot.merge([source], to="o")
            assert caught.value.file == name
    # A descriptor without a name.
    with os.fdopen(os.open("in", os.O_RDONLY), "rb") as file, pytest.raises(ascot.NotSorted, match="the open file:"):
        ascot.merge([file], to="o")


def test_a_check_of_batches_says_what_it_needs():
    for key in (None, []):
        with pytest.raises(InvalidRequest, match=r"a check of batches needs the columns .*, such as key='id'"):
            ascot.check(TABLE, key=key)


def test_a_volume_that_is_not_known_has_the_name_of_its_argument():
    with pytest.raises(InvalidRequest, match="volume='frob': there is no profile frob\n"):
        ascot.sort("in", to="o", volume="frob")


def test_lines_that_are_not_utf_8_have_a_number_and_a_layout():
    # Several batches.
    lines = b"".join(b"%06d\n" % number for number in range(400_000)) + b"\xff\n"
    with pytest.raises(ascot.SchemaMismatch, match=r"layout=ascot\.Lines\(binary=True\)") as caught:
        list(ascot.sort(lines))
    assert caught.value.record == 400_001 and "record 400001 is not UTF-8" in str(caught.value)


DIRECTORIES = {
    "source": (lambda: ascot.sort("empty", to="o"), "name its files, such as 'empty/\\*'"),
    "source of a flow": (lambda: flow("empty", "o"), "name its files, such as 'empty/\\*'"),
    "view as a source": (lambda: ascot.merge(["view"], to="o"), r"it is a view: ascot\.view\('view'\)\.write"),
    "output": (lambda: ascot.sort("in", to="empty"), "name a file in it, or another name"),
    "output of gen": (lambda: ascot.gen(1, to="empty"), "name a file in it, or another name"),
}


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_directory_has_a_remedy_in_words_of_python(name, made):
    (made / "empty").mkdir(exist_ok=True)
    call, remedy = DIRECTORIES[name]
    with pytest.raises(FileError, match=f": Is a directory\n  {remedy}") as caught:
        call()
    assert "os error" not in str(caught.value)


class Mine(FileError):
    """An exception of a program, with arguments of its own."""

    def __init__(self, path, *, hint):
        super().__init__(f"{path}: mine", filename=path, errno=errno.EIO)
        self.hint = hint


def test_copies_of_exceptions_are_equal(made):
    (made / "empty").mkdir(exist_ok=True)
    with pytest.raises(FileError) as caught:
        ascot.sort("empty", to="o")
    assert caught.value.strerror == os.strerror(errno.EISDIR)
    assert FileError("x", errno="a library's own").strerror is None
    classes = [one for one in vars(ascot.errors).values() if isinstance(one, type)]
    kinds = [kind for kind in classes if issubclass(kind, ascot.AscotError)]
    assert len(kinds) > 10
    for error in (caught.value, Mine("a", hint="b"), *(kind("a text\n  and a remedy") for kind in kinds)):
        for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
            for name in ("errno", "filename", "strerror", "hint"):
                assert getattr(again, name, None) == getattr(error, name, None)


def test_what_is_no_indexed_directory_says_so():
    for path in ("none", "in"):
        with pytest.raises(FileMissing, match=f"^{path} is not an indexed directory") as caught:
            ascot.index.open(path)
        assert caught.value.filename == path


def test_types_have_the_names_of_pyarrow():
    with pytest.raises(ascot.SchemaMismatch, match=r"type int64 cannot .* takes uint32\n  cast the column"):
        ascot.sort(BATCHES, layout="u32", to="o")
    with pytest.raises(ascot.SchemaMismatch, match="column 'k' has type string instead of int64: cast it"):
        list(ascot.sort([BATCHES, pyarrow.table({"k": ["x"]})], key="k"))
    types = [
        pyarrow.float64(), pyarrow.float32(), pyarrow.bool_(), pyarrow.string(), pyarrow.large_string(),
        pyarrow.binary(), pyarrow.binary(3), pyarrow.date32(), pyarrow.timestamp("us"),
        pyarrow.timestamp("ns", "UTC"), pyarrow.time64("us"), pyarrow.duration("ms"), pyarrow.decimal128(9, 2),
        pyarrow.list_(pyarrow.int8()), pyarrow.struct({"a": pyarrow.uint16()}), pyarrow.null(),
    ]  # fmt: skip
    for of in types:
        table = pyarrow.table({"x": pyarrow.array([None], of)})
        with pytest.raises(ascot.SchemaMismatch) as caught:
            list(ascot.sort([BATCHES.rename_columns(["x"]), table], key="x"))
        assert f"has type {of} instead of int64" in str(caught.value)


# ---------------------------------------------------------------- writers and reports


def test_a_writer_that_is_dropped_warns_of_its_open_epoch():
    writer = ascot.index.writer("dropped")
    writer.append([b"a"], [b"1"])
    writer.end_epoch()
    writer.append([b"b", b"c"], [b"2", b"3"])
    with pytest.warns(ResourceWarning, match="dropped> was not closed: its 2 records since the last epoch are lost"):
        del writer
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer = ascot.index.writer("dropped", mode="append")
        writer.end_epoch()
        del writer
    with ascot.index.open("dropped") as index:
        assert index.epochs == 2 and index.get(b"b") == []


def test_a_writer_that_is_open_at_the_end_of_the_program_warns_and_leaves_nothing():
    script = """
        import ascot
        writer = ascot.index.writer("unfinished")
        writer.append([b"a"], [b"1"])
        ended = ascot.index.writer("ended")
        ended.append([b"a"], [b"1"])
        ended.end_epoch()
    """
    command = [sys.executable, "-X", "dev", "-c", textwrap.dedent(script)]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stderr
    assert told.count("Warning: <ascot") == 1 and "unfinished> was not closed: its 1 record since the last" in told
    assert not os.path.exists("unfinished")
    with ascot.index.open("ended") as index:
        assert index.epochs == 1


def test_reports_of_views_count_what_was_written():
    with ascot.view("view") as view:
        whole, record, keys = view.write("w1"), view[0].write("w2"), view.keys("a", "b").write("w3")
        assert bytes(view) == b"a\nb\n"
    assert (whole.records_in, whole.records_out, whole.bytes_in, whole.bytes_out) == (2, 2, 4, 4)
    assert len(whole.checksum) == 32 and f"records in and out agree (checksum {whole.checksum})" in str(whole)
    assert (record.records_in, record.records_out, record.bytes_in, record.bytes_out) == (1, 1, 2, 2)
    assert keys.bytes_out == 2 and "records" not in keys.title()
    for part in (record, keys):
        assert part.checksum == "" and "agree" not in str(part) and "2 records" not in str(part)
