"""The Python package refuses bad input with an exception, and never crashes.

`./dev test` runs this file in Python's development mode (`python -X dev`), which turns on faulthandler and the checks
of the allocators.
"""

import contextlib
import errno
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
from support import leftovers

TABLE = pyarrow.table({"k": [3, 1, 2], "s": ["c", "a", "b"]})
RECORDS = ascot.Fixed(100, key=slice(0, 10))


def sorted_rows(source, key="k"):
    return pyarrow.table(ascot.sort(source, key=key)).to_pylist()


# ---------------------------------------------------------------- wrong types


class Lying(list):
    """A list that reports another length."""

    def __init__(self, items, length):
        super().__init__(items)
        self.length = length

    def __len__(self):
        return self.length


class Mapped:
    """An object with the attributes of a map of a file, which is none."""

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
    None, True, 7, -1, 2.5, float("nan"), 10**30, -(10**30), 1j, "", "\0", "a\0b", "x\ud800", "é", b"", b"ab",
    b"\xff",
    bytearray(b"x"), [], [None], [[]], {}, {"a": 1}, {"a": (0,)}, object(), lambda *values: None, ..., type,
    slice(0, 3), slice(None), slice(5, 1, 2), Lying(["in"], 1000), Lying(["in"], -1), Path(), Raising(), File(-1),
    File(10**6), File("x"), File(2**40), Exported(None), Exported((1, 2)), Exported((1,)), Mapped(10**9), Mapped(-1),
    io.BytesIO(b"z\n"), io.StringIO("x"), numpy.array([1, 2]), numpy.zeros((0, 4)), numpy.array(["a"], dtype=object),
    memoryview(b"abcd"), memoryview(b"abcdefgh")[::2], TABLE,
    Exported(TABLE.to_batches()[0].__arrow_c_array__()[::-1]),
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


def copy(inputs):
    for batch in inputs[0]:
        yield 0, batch


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
    "index.get_batch": (of_index(lambda index, **given: index.get_batch(**given)),
                        {"keys": [b"aaaa"], "epoch": None}),
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
    "flow": (lambda **given: ascot.flow(fn=copy, **given),
             {"inputs": ["in"], "outputs": ["out"], "layout": None, "output_layout": None, "parts": None,
              "merge": False, "merge_by": None, "reverse": False, "alpha": None, "memory": "64MiB", "threads": 1,
              "volume": None, "any_format": False, "progress": None}),
    "flow of batches": (lambda batch: ascot.flow(["in"], ["out"], lambda inputs: [(0, batch)]),
                        {"batch": TABLE.select(["s"])}),
    "output of a flow": (lambda output: ascot.flow(["in"], ["out"], lambda inputs: [(output, TABLE.select(["s"]))]),
                         {"output": 0}),
    "Session.run": (lambda job, memory: ascot.Session("64MiB").run(job, "view", memory=memory),
                    {"job": ascot.view, "memory": None}),
    "probe": (ascot.probe, {"directory": "none", "size": "64MiB", "seconds": 1, "store": False, "progress": None}),
    "plan.merge": (ascot.plan.merge, {"size": "1TB", "inputs": 4, "alpha": None, "growth": None, "volume": "flash",
                                      "memory": "1GiB", "most_streams": None}),
    "plan.split": (ascot.plan.split, {"size": "1TB", "parts": 4, "alpha": None, "growth": None, "volume": "flash"}),
    "plan.reshape": (ascot.plan.reshape, {"size": "1TB", "inputs": 4, "parts": 4, "by": None, "growth_out": None,
                                          "volume": "flash"}),
    "lab.streams": (ascot.lab.streams, {"out": "lab", "elements": 1000, "streams": 1, "exponents": 12, "loops": 2,
                                        "backends": "sized", "direction": "read", "cache": "warm", "params": None,
                                        "work": None, "memory": None}),
    "lab.disk": (ascot.lab.disk, {"inputs": "none", "outputs": "none", "size": "1MiB", "request": "64KiB",
                                  "rounds": 1, "seconds": None}),
    "plan.sort": (ascot.plan.sort, {"size": "1TB", "memory": "1GiB", "volume": "flash", "layout": "fixed:100"}),
    "plan.bowtie": (ascot.plan.bowtie, {"inputs": 3, "outputs": 3, "memory": "1GiB", "volume": "flash"}),
    "simulate": (ascot.simulate, {"inputs": 4, "memory": "1MiB"}),
    "trace.open": (ascot.trace.open, {"path": "in"}),
    "lab.read_streams": (ascot.lab.read_streams, {"path": "in"}),
}  # fmt: skip
# Calls whose file or directory does not exist, or is no such file.
WITHOUT_RESULT = ("resume", "trace.open", "lab.read_streams", "lab.disk", "probe")
REFUSALS = (ascot.AscotError, TypeError, ValueError, OSError, IndexError)


@pytest.mark.parametrize("name", CALLS)
def test_arguments_of_any_type_are_refused_or_work(name, made):
    call, good = CALLS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name not in WITHOUT_RESULT:
            call(**({"count": 10, **good} if name == "gen" else good))
        for argument in good:
            for junk in JUNK:
                given = {**good, argument: junk, **({"count": 10} if name == "gen" else {})}
                # A LookupError is the junk's own.
                with contextlib.suppress(*REFUSALS, LookupError):
                    try:
                        call(**given)
                    except (ValueError, OSError) as error:
                        # Python's own is that of the list that reports a negative length.
                        is_ours = isinstance(error, ascot.AscotError)
                        assert is_ours or "__len__() should return" in str(error), (argument, junk, error)


def test_what_is_no_argument_is_named_too(made):
    """`test_python_arguments.py` has the arguments."""
    with pytest.raises(TypeError, match="an element of source is a path, an open file or bytes, not 3"):
        ascot.sort(Lying(["in", 3], 1), to="out")
    with ascot.view("view") as view, pytest.raises(TypeError, match="an index of a view is the number"):
        view["a"]


def test_objects_that_report_another_length_are_read_as_they_are(made):
    ascot.sort(Lying(["in"], 1000), to="out")
    assert (made / "out").read_text() == "a\nb\n"
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


# ---------------------------------------------------------------- files that do not exist

MISSING = {
    "view": ascot.view,
    "view in it": lambda path: ascot.sort("in", view=path / "view"),
    "index.open": ascot.index.open,
    "index.writer": lambda path: ascot.index.writer(path, mode="append"),
    "sort": lambda path: ascot.sort(path, to="out"),
    "sort to batches": lambda path: list(ascot.sort(path)),
    "sort, one of two": lambda path: ascot.sort(["in", path], to="out"),
    "sort, pattern": lambda path: ascot.sort(f"{path}/*.csv", to="out"),
    "merge": lambda path: ascot.merge(["ordered", path], to="out"),
    "reshape": lambda path: ascot.reshape(["ordered", path], to="r-{}", parts=2),
    "split": lambda path: ascot.split(path, to="s-{}", parts=2),
    "boundaries": lambda path: ascot.split("in", to="s-{}", parts=2, boundaries=path),
    "check": ascot.check,
    "flow": lambda path: ascot.flow([path], ["out"], lambda inputs: ()),
    "output": lambda path: ascot.sort("in", to=path / "out"),
    "resume": ascot.resume,
    "plan": lambda path: ascot.plan.sort(path, to="out"),
    "probe": ascot.probe,
    "trace": ascot.trace.open,
    "lab.read_streams": ascot.lab.read_streams,
    "lab.read_disk": ascot.lab.read_disk,
    "lab.params": lambda path: ascot.lab.streams("lab", params=path),
}


@pytest.mark.parametrize("name", MISSING)
def test_what_is_missing_raises_file_not_found_error(name, made):
    path = made / "none"
    with pytest.raises(FileNotFoundError) as caught:
        MISSING[name](path)
    error = caught.value
    assert isinstance(error, ascot.AscotError)
    assert error.errno == errno.ENOENT and str(path) in str(error.filename) and str(path) in str(error)


def test_what_is_no_directory_or_no_view_has_its_number(made, disk):
    with pytest.raises(OSError, match="not a view but a file") as caught:
        ascot.view("in")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOTDIR, "in")
    with pytest.raises(FileNotFoundError, match="not a view: there is no") as caught:
        ascot.view(disk)
    with pytest.raises(FileExistsError, match="it exists already") as caught:
        ascot.sort("in", view="view")
    assert (caught.value.errno, caught.value.filename) == (errno.EEXIST, "view")
    with pytest.raises(OSError, match="not a directory") as caught:
        ascot.probe("in")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOTDIR, "in")


def test_an_altered_view_is_damaged_and_a_run_that_is_missing_is_named(disk):
    (disk / "in").write_text("b\na\n")
    ascot.sort(disk / "in", view=disk / "altered")
    manifest = disk / "altered" / "view.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"version":4', b'"version":3'))
    with pytest.raises(ascot.Damaged, match="its checksum is wrong") as caught:
        ascot.view(disk / "altered")
    assert (caught.value.errno, caught.value.file) == (errno.EIO, str(manifest))
    ascot.sort(disk / "in", view=disk / "cut")
    (run,) = (disk / "cut").glob("*.run")
    run.unlink()
    with pytest.raises(FileNotFoundError) as caught:
        ascot.view(disk / "cut")
    assert caught.value.filename == str(run)


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
    lambda index: index.get([b"aaaa"]), lambda index: index.get_batch([b"aaaa"]), lambda index: index.range(),
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
    import faulthandler, os, sys, threading, time, warnings
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
        yield "index.get", lambda: index.get([b"aaaa"])
        yield "index.range", lambda: list(index.range())
        yield "index.batches", lambda: index.batches()
        yield "writer.append", lambda: writer.append([b"aaaa"], [b"x"])
        yield "writer.close", lambda: writer.close()
        yield "sort", lambda: ascot.sort("in", to="from-child")

    part = view[:10]
    def child():
        try:
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
                global view, part, file, writer, index
                del view, part, file, writer, index
                os._exit(0)

    # The job waits for its input until the process is forked.
    os.mkfifo("large")
    given = []

    def give():
        with open("large", "wb") as large:
            while not (children and len(given) > 100):
                large.write(os.urandom(100_000))
                given.append(1000)
                time.sleep(0 if len(given) < 100 else 0.01)

    giver = threading.Thread(target=give)
    giver.start()
    writer.append([b"aaaa"], [b"x"])
    # Its threads have begun.
    assert len(index.get([b"aaaa"])) == 1
    job = ascot.sort("large", to="sorted", layout=ascot.Fixed(100), memory="16MiB", progress=fork)
    giver.join()
    os.remove("large")
    assert os.waitpid(children[0], 0)[1] == 0
    assert len(index.get([b"aaaa"])) == 1
    assert len(bytes(part)) == 1000 and len(file.read()) == 100_000 and job.report.records_out == sum(given)
    writer.close()
    file.close()
    print(ascot.index.open("forked").get(b"aaaa")[0].value)
"""


def test_a_forked_process_is_refused_what_needs_the_threads_of_its_parent(made):
    """Views, their files, indexes, writers and jobs; the parent goes on with all of them."""
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
