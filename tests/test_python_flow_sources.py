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
