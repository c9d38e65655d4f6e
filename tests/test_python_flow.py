"""`ascot.flow`: functions of the program between files. Their batches arrive, the engine takes the switches of the
theory however unevenly they read, memory is kept, and a function that fails leaves nothing behind."""

import contextlib
import gc
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from pathlib import Path

import ascot
import polars
import pyarrow
import pyarrow.compute
import pytest
from ascot import errors
from support import assert_acts_within_200_ms, run

MIB = 1 << 20
RECORDS = ascot.Fixed(64)


def copy(inputs):
    """Passes each input to the output of its number."""
    for number, batches in enumerate(inputs):
        for batch in batches:
            yield number, batch


def make_files(directory, count, size, record=64):
    names = [directory / f"in{number}" for number in range(count)]
    for number, name in enumerate(names):
        block = random.Random(number).randbytes(1024 * record)
        length = size // record * record
        name.write_bytes((block * (length // len(block) + 1))[:length])
    return names


def array(directory):
    """The profile of disks whose switches cost much."""
    path = directory / "array.toml"
    path.write_text(
        'name = "24 disks"\nread_bytes_per_s = 3.549e9\nwrite_bytes_per_s = 3.549e9\nswitch_seconds = 0.0155\n'
    )
    return path


# ---------------------------------------------------------------- batches in and out


def test_each_layout_comes_back_as_it_was(disk):
    files = {
        "lines": b"one\n\nthree\n",
        "u32": bytes(range(40)),
        "f64-be": bytes(range(80)),
        "fixed:7": bytes(70),
        "prefixed:u16": b"\x02\0ab\0\0",
        "csv": b'a,"b c"\n1,"x,y"\n,z\n',
    }
    for layout, content in files.items():
        (disk / "in").write_bytes(content)
        job = ascot.flow([disk / "in"], [disk / "out"], copy, layout=layout)
        written = (disk / "out").read_bytes().replace(b'"b c"', b"b c")
        assert written == content.replace(b'"b c"', b"b c"), layout
        assert job.report.bytes_in == len(content) and job.outputs == (str(disk / "out"),)


def test_columns_become_the_layout_of_the_output(disk):
    (disk / "in.csv").write_text("name,n\nred,1\nblue,20\n")

    def numbers(inputs):
        for batch in inputs[0]:
            table = pyarrow.record_batch(batch)
            assert table.schema.types == [pyarrow.string(), pyarrow.string()]
            numbers = table["n"].cast("uint32")
            yield "numbers", pyarrow.table({"n": numbers})
            rows = polars.DataFrame({"n": numbers, "twice": numbers})
            yield "rows.tsv", rows.with_columns(half=polars.col("n") / 2)

    outputs = {"numbers": disk / "numbers", "rows.tsv": disk / "rows.tsv"}
    ascot.flow(disk / "in.csv", outputs, numbers, output_layout=["u32-be", "tsv"])
    assert (disk / "numbers").read_bytes() == b"\0\0\0\1\0\0\0\x14"
    assert (disk / "rows.tsv").read_text() == "n\ttwice\thalf\n1\t1\t0.5\n20\t20\t10\n"


def test_libraries_read_an_input_as_a_stream(disk):
    (disk / "a.csv").write_text("k,v\n1,x\n2,y\n")
    seen = []

    def read(inputs):
        assert inputs[0].column_names == ["k", "v"]
        seen.append(pyarrow.table(inputs[0]).to_pylist())
        seen.append(polars.DataFrame(inputs[1])["k"].to_list())

    ascot.flow([disk / "a.csv"] * 2, None, read)
    assert seen == [[{"k": "1", "v": "x"}, {"k": "2", "v": "y"}], ["1", "2"]]


def test_arrow_sources_and_functions_are_streams_too(disk):
    (disk / "keys").write_text("b\nd\n")
    table = pyarrow.table({"k": ["a", "b", "c", "d"], "v": [1, 2, 3, 4]})
    dropped = []

    def join(inputs):
        keys = [line for batch in inputs[1] for line in pyarrow.record_batch(batch)["line"].to_pylist()]
        for batches in (inputs[0], inputs[2]):
            for batch in batches:
                rows = polars.DataFrame(batch)
                yield 0, rows.filter(polars.col("k").is_in(keys))
                yield "output 1", rows.filter(~polars.col("k").is_in(keys))

    sources = [table, disk / "keys", (batch for batch in table.to_batches(max_chunksize=1))]
    job = ascot.flow(sources, [disk / "out.csv", dropped.append], join)
    assert (disk / "out.csv").read_text() == "k,v\nb,2\nd,4\nb,2\nd,4\n"
    assert sum(len(rows) for rows in dropped) == 4 and job.report.bytes_in == 4


def test_a_flow_may_have_no_files_to_read_or_none_to_write(disk):
    numbers = pyarrow.table({"n": pyarrow.array(range(100_000), "uint64")})
    job = ascot.flow([numbers], disk / "part-{}", copy, parts=2, layout="u64")
    assert job.outputs == (str(disk / "part-0"), str(disk / "part-1"))
    assert (disk / "part-1").read_bytes() == b""
    total = []

    def add(inputs):
        total.append(sum(pyarrow.compute.sum(pyarrow.record_batch(one)["value"]).as_py() for one in inputs[0]))

    job = ascot.flow([disk / "part-*"], None, lambda inputs: add(inputs), layout="u64")
    assert total == [sum(range(100_000))] and job.report.bytes_out == 0


def test_sorted_inputs_are_merged(disk):
    layout = ascot.Csv(key=ascot.column("k", type="number"))
    for number in range(3):
        rows = "".join(f"{k},{number}\n" for k in range(number, 300, 3))
        (disk / f"{number}.csv").write_text(f"k,from\n{rows}")
    job = ascot.flow([disk / "?.csv"], [disk / "all.csv"], copy, layout=layout, merge=True)
    expected = "k,from\n" + "".join(f"{k},{k % 3}\n" for k in range(300))
    assert (disk / "all.csv").read_text() == expected and job.report.records_in == 300
    (disk / "0.csv").write_text("k,from\n2,0\n1,0\n")
    with pytest.raises(errors.NotSorted) as caught:
        ascot.flow([disk / "?.csv"], [disk / "all.csv"], copy, layout=layout, merge=True)
    assert caught.value.file.endswith("0.csv") and (disk / "all.csv").read_text() == expected


# ---------------------------------------------------------------- uneven reading, runs and memory


def uneven(inputs):
    """Reads input i 2**i times as often as input 0 until it ends, then the next."""
    iterators = [iter(batches) for batches in inputs]
    live, turn = set(range(len(iterators))), 0
    while live:
        for number in sorted(live):
            for _ in range(2 ** (number % 3)):
                batch = next(iterators[number], None)
                if batch is None:
                    live.discard(number)
                    break
                turn += 1
                yield turn % 6, batch


def in_turn(inputs):
    for turn, batch in enumerate(batch for batches in inputs for batch in batches):
        yield turn % 6, batch


def simulated(step, schedule=None):
    """Switches of the theory for the streams, bytes and buffers of a pass that copies."""
    blocks, block = step["buffers"]["blocks"], step["buffers"]["block_bytes"]
    moved = sum(stream["read_bytes"] + stream["written_bytes"] for stream in step["streams"])
    words = ["--inputs", str(step["inputs"]), "--outputs", str(step["outputs"]), "--memory", f"{blocks * block}b"]
    words += ["--block", f"{block}b", "--total", f"{moved}b", "--json"]
    return json.loads(run("simulate", *words, *(["--schedule", schedule] if schedule else [])).stdout)["switches"]


@pytest.mark.parametrize("fn", [uneven, in_turn])
def test_switches_are_bounded_by_the_plan_however_inputs_are_read(fn, disk):
    names = make_files(disk, 4, 40 * MIB)
    out = [disk / f"out{number}" for number in range(6)]
    job = ascot.flow(names, out, fn, layout=RECORDS, memory="12MiB", volume=array(disk))
    assert sum(name.stat().st_size for name in out) == sum(name.stat().st_size for name in names)
    assert sorted(b"".join(map(Path.read_bytes, out))[::64]) == sorted(b"".join(map(Path.read_bytes, names))[::64])
    [step] = job.report.data["passes"]
    # Of equal parts for all streams, and of blocks as they come, which the plan has to beat.
    assert step["switches"] <= 1.10 * simulated(step), (step["switches"], simulated(step))
    assert step["switches"] < 0.75 * simulated(step, "equal"), (step["switches"], simulated(step, "equal"))
    assert job.report.data["plan"]["chosen"]["summary"].startswith(f"run {fn.__name__} on 4 x 6 files by A")


def test_an_input_may_be_left_unread_or_read_to_its_end_first(disk):
    names = make_files(disk, 3, 8 * MIB)

    def some(inputs):
        for batch in inputs[2]:
            yield 0, batch
        yield 0, next(inputs[0])

    job = ascot.flow(names, [disk / "out"], some, layout=RECORDS, memory="12MiB", volume=array(disk))
    written = (disk / "out").read_bytes()
    whole = names[2].read_bytes()
    assert written[: len(whole)] == whole and names[0].read_bytes().startswith(written[len(whole) :])
    assert len(written) > len(whole) and job.report.bytes_in < 24 * MIB


def test_a_function_that_yields_nothing_writes_empty_files(disk):
    [name] = make_files(disk, 1, MIB)
    ascot.flow([name], [disk / "out"], lambda inputs: iter(()), layout=RECORDS)
    assert (disk / "out").read_bytes() == b""


class Large:
    """What a function has in memory."""


@pytest.mark.parametrize("fault", ["input", "output"])
def test_a_flow_that_failed_keeps_nothing(fault, disk):
    """Its exception has the frames of the function, and the flow had the exception."""
    kept = weakref.WeakSet()
    source = b"one\n\xff\n" if fault == "input" else b"one\n"

    def copy(inputs):
        large = Large()
        kept.add(large)
        for batch in inputs[0]:
            yield 0, batch

    with contextlib.suppress(ascot.AscotError):
        ascot.flow([source], [disk / "no/out" if fault == "output" else disk / "out"], copy)
        raise RuntimeError("the flow did not fail")
    gc.collect()
    assert not kept


def test_memory_is_that_of_the_report_and_batches_may_be_kept(disk):
    names = make_files(disk, 4, 16 * MIB)
    kept = []

    def keep(inputs):
        for number, batches in enumerate(inputs):
            for batch in batches:
                kept.append(batch)
                yield number % 2, batch

    out = [disk / "a", disk / "b"]
    job = ascot.flow(names, out, keep, layout=RECORDS, memory="16MiB")
    assert job.report.memory_bytes <= 16 * MIB and job.report.data["passes"][0]["buffers"]["blocks"] > 0
    read = b"".join(pyarrow.record_batch(one)["record"].buffers()[1].to_pybytes() for one in kept)
    assert read == b"".join(name.read_bytes() for name in names)
    # The memory of batches on their way is part of the cap.
    assert max(one.nbytes for one in kept) <= 16 * MIB // 32
    with pytest.raises(errors.MemoryLimit) as caught:
        ascot.flow(names, out, keep, layout=RECORDS, memory="9MiB")
    ascot.flow(names, out, keep, layout=RECORDS, memory=caught.value.needed)


def test_resident_memory_stays_within_the_cap(disk):
    make_files(disk, 4, 64 * MIB)
    script = f"""
        import ascot, resource, glob
        def copy(inputs):
            for number, batches in enumerate(inputs):
                for batch in batches:
                    yield number % 2, batch
        arguments = dict(layout="fixed:64", memory="24MiB")
        ascot.flow(["{disk}/in0"], ["{disk}/x"], copy, **arguments)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ascot.flow(["{disk}/in*"], ["{disk}/a", "{disk}/b"], copy, **arguments)
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10, before >> 10)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    grown, before = map(int, done.stdout.split())
    # The first flow has used its memory, so the interpreter's own is what `before` has above 24 MiB.
    assert grown <= 4, (grown, before)


# ---------------------------------------------------------------- mistakes and interruptions


def failing(inputs):
    for batch in inputs[0]:
        yield 0, batch
        raise ZeroDivisionError("mine")


CALLS = {
    "raises": (failing, ZeroDivisionError, "mine"),
    "no such number": (lambda inputs: [(2, next(inputs[0]))], IndexError, "no output 2"),
    "negative": (lambda inputs: [(-1, next(inputs[0]))], IndexError, "no output -1"),
    "no such name": (lambda inputs: [("c", next(inputs[0]))], KeyError, "no output 'c'"),
    "no output": (lambda inputs: [(1.5, next(inputs[0]))], TypeError, "number or its name"),
    "no pair": (lambda inputs: list(inputs[0]), TypeError, "pairs"),
    "returns none": (lambda inputs: None, TypeError, "pairs"),
    "returns a number": (lambda inputs: 7, TypeError, "pairs"),
    "no batch": (lambda inputs: [(0, [1, 2])], TypeError, "no Arrow batches"),
    "two columns": (lambda inputs: [(0, pyarrow.table({"a": [1], "b": [2]}))], errors.SchemaMismatch, "output 0"),
    "wrong type": (lambda inputs: [(0, pyarrow.table({"a": [1]}))], errors.SchemaMismatch, "output 0.*binary"),
    "changed type": (
        lambda inputs: [(0, next(inputs[0])), (0, polars.DataFrame({"record": ["x"]}))],
        errors.SchemaMismatch,
        "output 0.*another schema",
    ),
}


@pytest.mark.parametrize("kind", CALLS)
def test_a_function_that_fails_leaves_nothing_behind(kind, disk):
    fn, expected, text = CALLS[kind]
    names = make_files(disk, 2, 2 * MIB)
    (disk / "a").write_text("before")
    before = sorted(os.listdir(disk))
    with pytest.raises(expected, match=text) as caught:
        ascot.flow(names, [disk / "a", disk / "b"], fn, layout=RECORDS)
    assert caught.type is expected
    assert sorted(os.listdir(disk)) == before and (disk / "a").read_text() == "before"


def test_wrong_arguments_are_refused_before_anything_is_read(disk):
    (disk / "a").write_text("x\n")
    table = pyarrow.table({"n": [1]})
    here, there = [disk / "a"], [disk / "b"]
    wrong = [
        ([disk / "none"], there, {}, errors.FileMissing),
        (here, there, {"fn": 3}, TypeError),
        ([table], [print], {}, ValueError),
        ([table], there, {"merge": True}, ValueError),
        (here, there * 2, {}, ValueError),
        (here, there, {"layout": ["lines", "lines"]}, ValueError),
        (here, there, {"reverse": True}, ValueError),
        (here, there, {"alpha": 2}, errors.InvalidRequest),
        (here, "part", {"parts": 2}, ValueError),
        (here, [7], {}, TypeError),
    ]
    for inputs, outputs, arguments, expected in wrong:
        with pytest.raises(expected):
            ascot.flow(inputs, outputs, **{"fn": copy, **arguments})
    assert os.listdir(disk) == ["a"]


def test_faults_of_files_reach_the_function(disk):
    (disk / "bad").write_bytes(bytes(100))
    with pytest.raises(errors.SchemaMismatch, match="cut short"):
        ascot.flow([disk / "bad"], [disk / "out"], copy, layout="u64")
    (disk / "bad.csv").write_text("a,b\n1,2\n1,2,3\n")
    with pytest.raises(errors.SchemaMismatch, match="more than 2 fields"):
        ascot.flow([disk / "bad.csv"], [disk / "out"], copy)
    with pytest.raises(errors.FileError):
        ascot.flow([disk / "bad"], [disk / "none" / "out"], copy)
    assert sorted(os.listdir(disk)) == ["bad", "bad.csv"]


def test_inputs_end_with_their_flow(disk):
    [name] = make_files(disk, 1, 4 * MIB)
    kept = []

    def keep(inputs):
        kept.extend(inputs)
        yield 0, next(inputs[0])

    ascot.flow([name], [disk / "out"], keep, layout=RECORDS)
    with pytest.raises(ValueError, match="flow has ended"):
        list(kept[0])


@pytest.mark.alone
@pytest.mark.parametrize("place", ["reading", "computing"])
def test_ctrl_c_ends_a_flow_within_200_ms(place, disk):
    os.mkfifo(disk / "fifo")
    [name] = make_files(disk, 1, 2 * MIB)
    writer = os.open(disk / "fifo", os.O_RDWR)

    def wait(inputs):
        yield 0, next(inputs[1])
        while place == "computing":
            sum(range(1000))
        yield 0, next(inputs[0])

    def attempt():
        sent = []

        def interrupt():
            time.sleep(0.5)
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            ascot.flow([disk / "fifo", name], [disk / "out"], wait, layout=RECORDS)
        took = time.monotonic() - sent[0]
        thread.join()
        assert sorted(os.listdir(disk)) == ["fifo", "in0"]
        return took

    assert_acts_within_200_ms(attempt)
    os.close(writer)


def test_a_forked_process_leaves_the_flow_to_its_parent(disk):
    [name] = make_files(disk, 1, 8 * MIB)
    said = []

    def fork(inputs):
        yield 0, next(inputs[0])
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            faults = 0
            try:
                next(inputs[0])
            except ValueError:
                faults += 1
            os.write(write, bytes([faults]))
            os.close(write)
            raise SystemExit(0)
        os.close(write)
        said.append(os.read(read, 1))
        os.waitpid(child, 0)
        for batch in inputs[0]:
            yield 0, batch

    try:
        ascot.flow([name], [disk / "out"], fork, layout=RECORDS)
    except SystemExit:
        os._exit(0)
    assert said == [b"\1"] and (disk / "out").read_bytes() == name.read_bytes()


def test_progress_session_and_html(disk):
    names = make_files(disk, 2, 16 * MIB)
    seen = []

    def slow(inputs):
        for number, batch in copy(inputs):
            time.sleep(0.03)
            yield number, batch

    session = ascot.Session(memory="64MiB")
    out = [disk / "a", disk / "b"]
    job = session.run(ascot.flow, names, out, slow, layout=RECORDS, progress=seen.append)
    assert seen and seen[-1].done_bytes > 0 and job.report.memory_bytes <= 32 * MIB
    assert "streamed" in str(job) and "flow" in job._repr_html_() and "records" not in job._repr_html_()


def test_fields_find_their_columns_by_name(disk):
    layout = ascot.Fixed(8, fields={"x": (0, "u32-be"), "y": (4, "u32-be")}, key="x")
    columns = {"y": pyarrow.array([1, 4], "u4"), "x": pyarrow.array([3, 2], "u4")}
    wanted = b"\0\0\0\2\0\0\0\4" + b"\0\0\0\3\0\0\0\1"
    ascot.sort(pyarrow.table(columns), layout=layout, to=disk / "sorted")
    assert (disk / "sorted").read_bytes() == wanted
    rows = pyarrow.record_batch(columns).take([1, 0])
    ascot.flow([], [disk / "flowed"], lambda _: [(0, rows)], output_layout=layout)
    assert (disk / "flowed").read_bytes() == wanted
    with pytest.raises(ascot.SchemaMismatch, match="no column 'y'"):
        ascot.sort(pyarrow.table({"x": columns["x"], "z": columns["y"]}), layout=layout, to=disk / "other")
    assert sorted(os.listdir(disk)) == ["flowed", "sorted"]


def test_two_names_of_one_file_and_names_that_are_no_text_are_refused(disk):
    (disk / "a").write_text("a\n")
    (disk / "link").symlink_to("o")
    (disk / "o").write_text("old\n")
    for names in (["new", "./new"], ["o", "link"], ["new", f"../{disk.name}/new"]):
        outputs = [f"{disk}/{name}" for name in names]
        with pytest.raises(ValueError, match="name of another output"):
            ascot.flow([disk / "a"], outputs, lambda inputs: [])
    with pytest.raises(TypeError, match="name of an output is a text"):
        ascot.flow([disk / "a"], {1: disk / "x", 0: disk / "y"}, lambda inputs: [])
    with pytest.raises(ascot.SchemaMismatch, match="does not write Parquet"):
        ascot.flow([disk / "a"], [disk / "x.parquet"], copy)
    with pytest.raises(ascot.SchemaMismatch, match="does not write Parquet"):
        ascot.sort(disk / "a", to=disk / "x.parquet")
    assert (disk / "o").read_text() == "old\n" and sorted(os.listdir(disk)) == ["a", "link", "o"]


@pytest.mark.parametrize(
    "name, content, match",
    [
        ("open.csv", b'a,b\n1,"open\n', "row 1 has a quote that is never closed"),
        ("packed.csv", gzip.compress(b"a,b\n1,2\n", mtime=0), "gzip data, not text"),
        ("long", b"x" * 5_000_000, "longer than 1048576 bytes"),
        ("wide.csv", b"a,b\n1,2\n3,4,5\n", "wide.csv: row 2"),
    ],
)
def test_wrong_bytes_fail_a_flow_also_if_its_function_catches_the_error(name, content, match, disk):
    (disk / name).write_bytes(content)

    def deaf(inputs):
        with contextlib.suppress(ascot.AscotError):
            yield from copy(inputs)

    for function in (copy, deaf):
        with pytest.raises(ascot.AscotError, match=match):
            ascot.flow([disk / name], [disk / "out"], function, memory="16MiB")
    assert os.listdir(disk) == [name]


def test_inputs_out_of_order_fail_a_merge_also_if_its_function_catches_the_error(disk):
    (disk / "lines").write_text("b\na\n")

    def deaf(inputs):
        with contextlib.suppress(ascot.NotSorted):
            yield from copy(inputs)

    with pytest.raises(ascot.NotSorted, match="record 2"):
        ascot.flow([disk / "lines"], [disk / "out"], deaf, merge=True)
    assert os.listdir(disk) == ["lines"]


def test_a_failure_reaches_libraries_as_a_text_and_the_flow_as_its_exception(disk):
    (disk / "lines").write_text("b\na\n")
    for read, expected in ((pyarrow.table, pyarrow.ArrowInvalid), (polars.DataFrame, polars.exceptions.PolarsError)):
        with pytest.raises(expected, match="record 2 at offset 2"):
            ascot.flow([disk / "lines"], [disk / "out"], lambda inputs, read=read: [(0, read(inputs[0]))], merge=True)
    with pytest.raises(ascot.NotSorted, match="record 2") as caught:
        ascot.flow([disk / "lines"], [disk / "out"], lambda inputs: [(0, inputs[0])], merge=True)
    assert caught.value.record == 2 and "record 2" in str(caught.value.__cause__)
    assert os.listdir(disk) == ["lines"]


def test_a_quoted_last_field_without_a_line_end_is_whole(disk):
    (disk / "in.csv").write_text('a,b\n1,"x,y"')
    ascot.flow([disk / "in.csv"], [disk / "out.csv"], copy)
    assert (disk / "out.csv").read_text() == 'a,b\n1,"x,y"\n'


def test_a_batch_without_rows_writes_the_header(disk):
    batch = pyarrow.record_batch({"a": pyarrow.array([], "i8"), "b": pyarrow.array([], "utf8")})
    ascot.flow([], [disk / "out.csv"], lambda _: [(0, batch)])
    assert (disk / "out.csv").read_text() == "a,b\n"


def test_a_generator_is_closed_when_an_output_fails(disk):
    (disk / "a").write_text("a\n")
    closed = []

    def generator(inputs):
        try:
            for batch in inputs[0]:
                yield 7, batch
        finally:
            closed.append(True)

    with pytest.raises(IndexError) as held:
        ascot.flow([disk / "a"], [disk / "out"], generator)
    assert closed and held


def test_a_program_ends_while_a_thread_waits_for_an_input(disk):
    os.mkfifo(disk / "fifo")
    script = f"""
    import ascot, os, threading, time
    os.chdir({str(disk)!r})
    keep = os.open("fifo", os.O_RDWR)
    flow = lambda: ascot.flow(["fifo"], ["out"], lambda inputs: ((0, batch) for batch in inputs[0]))
    threading.Thread(target=flow, daemon=True).start()
    time.sleep(0.5)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=20)
