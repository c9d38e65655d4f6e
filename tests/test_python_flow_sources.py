"""The Python package: objects with Arrow batches as inputs of `ascot.flow`."""

import ascot
import duckdb
import polars
import pyarrow
import pytest


def of_generator():
    yield pyarrow.table({"k": [1, 2]})
    yield pyarrow.record_batch({"k": [3]})


SOURCES = {
    "generator": of_generator,
    "table": lambda: pyarrow.table({"k": [1, 2, 3]}),
    "frame": lambda: polars.DataFrame({"k": [1, 2, 3]}),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_arrow_sources_are_streams_for_libraries(source, disk):
    def read(inputs):
        assert pyarrow.schema(inputs[0]).names == ["k"] and inputs[0].column_names == ["k"]
        reader = pyarrow.RecordBatchReader.from_stream(inputs[0])
        assert reader.read_all()["k"].to_pylist() == [1, 2, 3]
        assert polars.DataFrame(inputs[1])["k"].to_list() == [1, 2, 3]
        found = []
        connection = duckdb.connect()
        connection.register("numbers", inputs[2])
        assert connection.sql("select sum(k) from numbers").fetchall() == [(6,)]
        with inputs[3] as stream:
            found += [value for batch in stream for value in pyarrow.record_batch(batch)["k"].to_pylist()]
        with pytest.raises(ValueError, match="another library reads these batches"):
            next(inputs[0])
        yield 0, pyarrow.table({"k": [str(value) for value in found]})

    ascot.flow([source() for _ in range(4)], [disk / "out"], read)
    assert (disk / "out").read_text().split() == ["1", "2", "3"]


@pytest.mark.parametrize("end", ["for loop", "library"])
def test_the_exception_of_a_source_reaches_the_function(disk, end):
    def failing():
        yield pyarrow.table({"k": [1]})
        raise LookupError("no more rows")

    def read(inputs):
        if end == "library":
            with pytest.raises(pyarrow.ArrowInvalid, match="LookupError: no more rows"):
                pyarrow.RecordBatchReader.from_stream(inputs[0]).read_all()
        for _ in inputs[0] if end != "library" else ():
            pass
        yield 0, pyarrow.table({"k": ["x"]})

    if end == "library":
        ascot.flow([failing()], [disk / "out"], read)
        return
    with pytest.raises(LookupError, match="no more rows"):
        ascot.flow([failing()], [disk / "out"], read)
    assert list(disk.iterdir()) == []


def test_a_source_that_reads_itself_is_an_error(disk):
    inputs_of = []

    def own():
        yield pyarrow.table({"k": ["a"]})
        next(inputs_of[0][0])

    def read(inputs):
        inputs_of.append(inputs)
        for batch in inputs[0]:
            yield 0, batch

    with pytest.raises(ValueError, match="the source of these batches reads them itself"):
        ascot.flow([own()], [disk / "out"], read)


# ---------------------------------------------------------------- numbers as keys


NUMBERS = ascot.column("n", type="number")


def copy(inputs):
    for batch in inputs[0]:
        yield 0, batch


def test_keys_of_numbers_that_floats_do_not_hold_are_kept_or_refused(disk):
    """A float would be another number: 9007199254740993 would become 9007199254740992."""
    rows = ["n,who", "9007199254740991,a", "9007199254740992,b", "9007199254740993,c", "9223372036854775807,d"]
    for number, part in enumerate((rows[:3], [rows[0], *rows[3:]])):
        (disk / f"{number}.csv").write_text("\n".join(part) + "\n")
    files = [disk / "0.csv", disk / "1.csv"]
    with pytest.raises(ascot.SchemaMismatch, match="'9007199254740993', which 64-bit floats do not hold exactly"):
        ascot.flow(files, [disk / "out.csv"], copy, merge_by=NUMBERS)
    assert not (disk / "out.csv").exists()
    # As the message says.
    ascot.flow(files, [disk / "out.csv"], copy, merge_by=NUMBERS, layout=ascot.Csv(binary=True))
    assert (disk / "out.csv").read_text().splitlines() == rows
    found = pyarrow.table(ascot.sort(files, layout=ascot.Csv(binary=True), key=NUMBERS))
    assert found.column("n").to_pylist() == [row.split(",")[0].encode() for row in rows[1:]]
    with pytest.raises(ascot.SchemaMismatch, match=r"layout=ascot\.Csv\(binary=True\)"):
        list(ascot.sort(files, key=NUMBERS))


def test_keys_of_numbers_that_floats_hold_are_floats(disk):
    (disk / "in.csv").write_text("n\n0.1\n2\n9007199254740992\n1e300\n")
    assert pyarrow.table(ascot.sort(disk / "in.csv", key=NUMBERS))["n"].to_pylist() == [0.1, 2, 2**53, 1e300]
