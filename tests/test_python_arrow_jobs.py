"""The Python package: merges, splits, reshapes and checks of Arrow batches."""

import os

import ascot
import duckdb
import numpy
import pandas
import polars
import pyarrow
import pytest
from support import assert_acts_within_200_ms, leftovers, seconds_until_stopped

NUMBERS = ascot.Integers("u64")
PEOPLE = polars.DataFrame({"name": ["ape", "bee", "cow", "dog", "eel"], "age": [1, 2, 3, 4, 5]})


def sorted_numbers(count, seed):
    return numpy.sort(numpy.random.default_rng(seed).integers(0, 1 << 63, count, dtype="u8"))


def table(numbers):
    return pyarrow.table({"v": pyarrow.array(numbers, "uint64")})


def in_batches(numbers, rows=1000):
    """A generator of batches of these rows."""
    for first in range(0, len(numbers), rows):
        yield pyarrow.record_batch({"v": pyarrow.array(numbers[first : first + rows], "uint64")})


def written(directory, pattern, parts):
    return [numpy.fromfile(directory / pattern.format(part), "u8") for part in range(parts)]


SOURCES = {
    "pyarrow": table,
    "reader": lambda numbers: table(numbers).to_reader(max_chunksize=777),
    "polars": lambda numbers: polars.DataFrame({"v": numbers}),
    "pandas": lambda numbers: pandas.DataFrame({"v": numbers}),
    "duckdb": lambda numbers: duckdb.from_arrow(table(numbers)),
    "generator": in_batches,
    "list": lambda numbers: list(in_batches(numbers)),
    "sorted": lambda numbers: ascot.sort(table(numbers[::-1]), key="v"),
}


@pytest.mark.parametrize("other", SOURCES)
def test_a_merge_takes_batches_of_every_library_beside_files(other, disk):
    parts = [sorted_numbers(count, seed) for seed, count in enumerate([5000, 70_000, 30])]
    parts[1].tofile(disk / "file")
    sources = [SOURCES[other](parts[0]), disk / "file", in_batches(parts[2], 7)]
    job = ascot.merge(sources, layout=NUMBERS, to=disk / "all", memory="16MiB")
    assert job.report.records_in == 75_030 and job.report.memory_bytes == 16 << 20
    assert (numpy.fromfile(disk / "all", "u8") == numpy.sort(numpy.concatenate(parts))).all()
    assert leftovers(disk) == ["all", "file"]


@pytest.mark.parametrize("order", ["one after the other", "in turn"])
def test_a_merge_asks_each_source_as_its_records_are_needed(order, disk):
    """A source is not read ahead of the others by more than the job's reads and a few batches."""
    count, rows = 4_000_000, 10_000
    numbers = numpy.arange(count, dtype="u8")
    halves = numpy.split(numbers, 2) if order == "one after the other" else (numbers[::2], numbers[1::2])
    taken = [0, 0]
    ahead = 0

    def watched(number):
        nonlocal ahead
        for batch in in_batches(halves[number], rows):
            taken[number] += rows
            # Of two that are needed one after the other, only the second can be ahead.
            ahead = max(ahead, taken[1] - taken[0], taken[0] - taken[1] if order == "in turn" else 0)
            yield batch

    ascot.merge([watched(0), watched(1)], layout=NUMBERS, to=disk / "all", memory="16MiB")
    assert (numpy.fromfile(disk / "all", "u8") == numbers).all()
    # The reads of an input have at most its part of the 16 MiB; each input has as much.
    assert ahead * 8 < 8 << 20


def test_many_sources_are_merged_in_several_passes(disk):
    parts = [sorted_numbers(2000, seed) for seed in range(60)]
    sources = [in_batches(part) for part in parts]
    job = ascot.merge(sources, layout=NUMBERS, to=disk / "all", memory="128MiB", fan_in=7)
    assert len(job.report.passes) > 1
    assert (numpy.fromfile(disk / "all", "u8") == numpy.sort(numpy.concatenate(parts))).all()
    with pytest.raises(ascot.MemoryLimit) as caught:
        ascot.merge([in_batches(part) for part in parts], layout=NUMBERS, to=disk / "all", memory="16MiB")
    needed = caught.value.needed
    ascot.merge([in_batches(part) for part in parts], layout=NUMBERS, to=disk / "again", memory=needed)
    assert (disk / "again").read_bytes() == (disk / "all").read_bytes()


@pytest.mark.parametrize("by", ["hash", "range", "size", "boundaries"])
def test_a_split_of_batches_is_that_of_a_file_of_them(by, disk):
    numbers = numpy.random.default_rng(3).integers(0, 1 << 63, 100_000, dtype="u8")
    numbers.tofile(disk / "file")
    numpy.array([1 << 61, 1 << 62], "u8").tofile(disk / "bounds")
    rule = {"boundaries": disk / "bounds"} if by == "boundaries" else {"by": by}
    for name, source in (("file", disk / "file"), ("batches", in_batches(numbers)), ("table", table(numbers))):
        ascot.split(source, layout=NUMBERS, to=disk / f"{name}-{{}}", parts=3, memory="16MiB", **rule)
    job = ascot.split(disk / "file", layout=NUMBERS, to=disk / "named-{:03}", parts=3, by="hash")
    assert [*job.outputs] == [str(disk / f"named-{number:03}") for number in range(3)]
    assert all(os.path.exists(path) for path in job.outputs)
    wanted = written(disk, "file-{}", 3)
    assert sorted(numpy.concatenate(wanted)) == sorted(numbers) and all(len(part) > 1000 for part in wanted)
    for name in ("batches", "table"):
        assert all(map(numpy.array_equal, written(disk, name + "-{}", 3), wanted)), name
    assert len(leftovers(disk)) == 14


@pytest.mark.parametrize("by", ["hash", "range", "value"])
def test_a_reshape_of_batches_is_that_of_files_of_them(by, disk):
    parts = [numpy.sort(numpy.random.default_rng(seed).integers(0, 4, 50_000, dtype="u8")) for seed in range(2)]
    for number, part in enumerate(parts):
        part.tofile(disk / f"in-{number}")
    ascot.reshape(disk / "in-*", layout=NUMBERS, to=disk / "file-{}", parts=4, by=by)
    ascot.reshape([in_batches(part) for part in parts], layout=NUMBERS, to=disk / "batch-{}", parts=4, by=by)
    wanted = written(disk, "file-{}", 4)
    assert all(map(numpy.array_equal, written(disk, "batch-{}", 4), wanted))
    assert sum(map(len, wanted)) == 100_000 and len(leftovers(disk)) == 10


def test_batches_become_csv_with_a_header(disk):
    layout = ascot.Csv(key="age")
    ascot.merge([PEOPLE[::2], PEOPLE[1::2].to_pandas()], layout=layout, to=disk / "all.csv")
    assert polars.read_csv(disk / "all.csv").equals(PEOPLE)
    ascot.split(PEOPLE, layout=layout, by="range", to=disk / "part-{}.csv", parts=2)
    parts = [polars.read_csv(disk / f"part-{number}.csv") for number in range(2)]
    assert polars.concat(parts).sort("age").equals(PEOPLE)
    ascot.split(PEOPLE, layout=ascot.Csv(), by="size", to=disk / "size-{}.csv", parts=5)
    assert polars.read_csv(disk / "size-4.csv").rows() == [("eel", 5)]
    ascot.reshape([PEOPLE], layout=layout, by="value", by_key="name", to=disk / "name-{}.csv", parts=5)
    assert len({polars.read_csv(disk / f"name-{number}.csv")["name"][0] for number in range(5)}) == 5


@pytest.mark.parametrize("job", ["sort", "merge", "split", "reshape"])
def test_batches_without_rows_keep_their_header(job, disk):
    """A table without rows has no batches, and columns nevertheless."""
    table, csv = PEOPLE.clear(), ascot.Csv(header=True)
    jobs = {
        "sort": lambda: ascot.sort(table, to=disk / "0", key="age", layout=csv),
        "merge": lambda: ascot.merge([table, pyarrow.table(table)], to=disk / "0", key="age", layout=csv),
        "split": lambda: ascot.split(table, to=disk / "{}", parts=2, layout=csv),
        "reshape": lambda: ascot.reshape([table], to=disk / "{}", parts=2, key="age", layout=csv),
    }
    jobs[job]()
    found = {name: (disk / name).read_bytes() for name in leftovers(disk)}
    assert found == dict.fromkeys(["0", "1"] if job in ("split", "reshape") else ["0"], b"name,age\n")


def test_lines_keep_a_header(disk):
    names = [pyarrow.table({"name": ["a", "c"]}), pyarrow.table({"name": ["b"]})]
    ascot.merge(names, layout=ascot.Lines(header=True), to=disk / "lines")
    assert (disk / "lines").read_text().split() == ["name", "a", "b", "c"]


def test_a_check_of_batches_is_by_columns_or_by_a_layout(disk):
    numbers = sorted_numbers(100_000, 1)
    numbers.tofile(disk / "file")
    of_file = ascot.check(disk / "file", layout=NUMBERS)
    assert ascot.check(in_batches(numbers), layout=NUMBERS) == of_file and of_file.records == 100_000
    assert ascot.check(in_batches(numbers), key="v").is_sorted
    people = ascot.check(PEOPLE, key=[ascot.desc("age"), "name"])
    assert people.disorder == ("the batches", 1, None) and people.records == 5
    assert ascot.check(PEOPLE, key="age", reverse=True).disorder == people.disorder
    nulls = pyarrow.table({"k": pyarrow.array([None, 1, 1, 2]), "x": ["a", "b", "c", "d"]})
    assert ascot.check(nulls, key="k").disorder.record == 1
    first = ascot.check(nulls, key=ascot.asc("k", nulls="first"))
    assert first.is_sorted and first.duplicate_keys == 1
    assert ascot.check(ascot.sort(nulls, key="k"), key="k").is_sorted


def test_an_unordered_source_of_a_merge_is_named(disk):
    good, bad = table([1, 2, 3]), table([1, 3, 2])
    for sources, name in (([good, bad], "the batches in input 2"), ([bad], "the batches"), (bad, "the batches")):
        with pytest.raises(ascot.NotSorted) as caught:
            ascot.merge(sources, layout=NUMBERS, to=disk / "out")
        assert (caught.value.file, caught.value.record, caught.value.offset) == (name, 3, 16)
    for sources, name in (([PEOPLE, PEOPLE[::-1]], "the batches in input 2"), ([PEOPLE[::-1]], "the batches")):
        with pytest.raises(ascot.NotSorted) as caught:
            ascot.merge(sources, layout=ascot.Csv(key="age"), to=disk / "out")
        assert caught.value.file == name
    assert leftovers(disk) == []


JOBS = {
    "merge": lambda source, out: ascot.merge([in_batches(numpy.arange(9)), source], layout=NUMBERS, to=out),
    "merge of CSV": lambda source, out: ascot.merge([source], layout=ascot.Csv(key="v"), to=out),
    "hash": lambda source, out: ascot.split(source, layout=NUMBERS, by="hash", to=f"{out}-{{}}", parts=2),
    "size": lambda source, out: ascot.split(source, layout=NUMBERS, by="size", to=f"{out}-{{}}", parts=2),
    "reshape": lambda source, out: ascot.reshape([source], layout=NUMBERS, to=f"{out}-{{}}", parts=2),
    "check": lambda source, out: ascot.check(source, key="v"),
}


@pytest.mark.parametrize("job", JOBS)
def test_an_exception_of_a_generator_is_raised_and_leaves_nothing(job, disk):
    error = ZeroDivisionError("mine")

    def source():
        yield from in_batches(numpy.arange(5000, dtype="u8"))
        raise error

    with pytest.raises(ZeroDivisionError) as caught:
        JOBS[job](source(), disk / "out")
    assert caught.value is error and leftovers(disk) == []


@pytest.mark.parametrize("job", JOBS)
def test_a_schema_that_changes_is_an_error_and_leaves_nothing(job, disk):
    def source():
        yield pyarrow.record_batch({"v": pyarrow.array([1], "uint64")})
        yield pyarrow.record_batch({"w": ["text"]})

    with pytest.raises(ascot.SchemaMismatch):
        JOBS[job](source(), disk / "out")
    assert leftovers(disk) == []


def test_a_row_that_does_not_fit_is_named_by_its_number_in_the_source(disk):
    """Whatever the batches and the steps in which they are written."""
    texts = [pyarrow.table({"s": ["fine"] * 5000}), pyarrow.table({"s": ["fine"] * 5000 + ["two\nlines"]})]
    nulls = [texts[0], pyarrow.table({"s": ["fine", None]})]
    for source, place, fault in ((texts, 10_001, "cannot have format lines"), (nulls, 5002, "is null")):
        for write in (ascot.sort, lambda source, **options: ascot.merge([source], **options)):
            with pytest.raises(ascot.errors.SchemaMismatch, match=f"record {place} {fault}") as failed:
                write(source, layout="lines", to=disk / "out")
            assert failed.value.record == place
    with pytest.raises(ascot.errors.SchemaMismatch, match=f"record {place} {fault}") as failed:
        ascot.flow([nulls], [disk / "out"], lambda inputs: ((0, batch) for batch in inputs[0]), output_layout="lines")
    assert failed.value.record == place and os.listdir(disk) == []


@pytest.mark.parametrize("kind", ["timestamp[s]", "timestamp[ms]", "date64", "date32"])
def test_dates_beyond_the_calendar_are_no_empty_fields_of_csv(kind, disk):
    last, integer = (2**31 - 1, "int32") if kind == "date32" else (10**17, "int64")
    table = pyarrow.table({"at": pyarrow.array([0, None, last], integer).view(kind)})
    with pytest.raises(ascot.errors.SchemaMismatch, match=r"record 3 has a value in column 'at', of type") as failed:
        ascot.sort(table, key="at", layout=ascot.Csv(), to=disk / "out.csv")
    assert failed.value.record == 3 and os.listdir(disk) == []


def test_wrong_sources_and_layouts_are_named(disk):
    out, parts, one = disk / "out", disk / "out-{}", table([1])
    text = pyarrow.table({"s": ["a"]})
    cases = [
        (lambda: ascot.merge([one], to=out), ValueError, "needs a layout, such as"),
        (lambda: ascot.merge([one, 5], layout=NUMBERS, to=out), TypeError, "an element of sources is a path"),
        (lambda: ascot.merge([one, iter([])], layout=NUMBERS, to=out), ValueError, "has no batches"),
        (lambda: ascot.merge([one, text], layout=NUMBERS, to=out), ValueError, r"string.*takes uint64"),
        (lambda: ascot.split(text, layout=NUMBERS, by="hash", to=parts, parts=2), ValueError, "takes uint64"),
        (lambda: ascot.split(text, layout=NUMBERS, to=parts, parts=2), ValueError, r"^the batches: .*takes uint64"),
        (lambda: ascot.split(one, layout=NUMBERS, to=out, parts=2), ValueError, "no place for the number"),
        (lambda: ascot.check(one), ValueError, "a check of batches needs the columns"),
        (lambda: ascot.check(one, key="w"), ValueError, r"no column 'w'\n.*: v"),
        (lambda: ascot.check(one, key="v", layout=ascot.Csv()), ValueError, "no rows of CSV"),
        (lambda: ascot.flow([one], [out], list, merge=True), ValueError, "merged inputs are sorted files"),
    ]
    for call, kind, message in cases:
        with pytest.raises(kind, match=message):
            call()
    missing = disk / "missing"
    with pytest.raises(FileNotFoundError, match="missing"):
        ascot.split(one, layout=NUMBERS, to=parts, parts=2, by="size", temp=missing)
    assert leftovers(disk) == []


def test_batches_are_spilled_in_the_directories_of_the_job(disk, monkeypatch):
    """What is written first goes to `temp`, else where the variables say, else beside the output."""
    names = ("temp", "ascot", "system", "beside")
    for name in names:
        (disk / name).mkdir()
    seen = []
    monkeypatch.setattr(os, "unlink", lambda path, unlink=os.unlink: (seen.append(os.fspath(path)), unlink(path)))

    def split(**settings):
        pattern = disk / "beside" / "part-{}"
        ascot.split(table([1, 2]), layout=NUMBERS, by="size", to=pattern, parts=2, **settings)

    split()
    monkeypatch.setenv("TMPDIR", str(disk / "system"))
    split()
    monkeypatch.setenv("ASCOT_TMPDIR", f"{disk / 'ascot'}:{disk / 'system'}")
    split()
    split(temp=disk / "temp")
    assert [os.path.basename(os.path.dirname(path)) for path in seen] == ["beside", "system", "ascot", "temp"]
    assert all(leftovers(disk / name) == [] for name in ("temp", "ascot", "system"))


@pytest.mark.alone
@pytest.mark.parametrize("job", JOBS)
def test_ctrl_c_stops_a_job_whose_source_goes_on_for_ever(job, disk):
    script = f"""
        import itertools, os, signal, sys, threading, time
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        from test_python_arrow_jobs import JOBS, in_batches
        import numpy

        def stop():
            global at
            at = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)

        def source():
            for number in itertools.count():
                if number == 50:
                    threading.Timer(0.1, stop).start()
                yield from in_batches(numpy.arange(number * 50_000, (number + 1) * 50_000, dtype="u8"), 50_000)

        try:
            JOBS[{job!r}](source(), {str(disk / "out")!r})
        except KeyboardInterrupt:
            print(time.monotonic() - at, os.listdir({str(disk)!r}))
    """
    assert_acts_within_200_ms(lambda: seconds_until_stopped(script))
