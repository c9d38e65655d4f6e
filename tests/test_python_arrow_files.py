"""The Python package: sorted files, views and indexes as Arrow batches, and batches as files."""

import contextlib
import gc
import io
import os

import ascot
import numpy
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest
from support import leftovers, random_records, sorted_records

TABLE = pyarrow.table({"k": [3, 1, None, 2], "s": ["c", "a", "z", "b"]})


def rows(batches):
    return pyarrow.table(batches).to_pylist()


# ---------------------------------------------------------------- files as batches, and batches as files


def test_fixed_records_stream_as_one_column(disk):
    data = random_records(2000)
    (disk / "records").write_bytes(data)
    found = pyarrow.table(ascot.sort(disk / "records", layout=ascot.Fixed(100, key=slice(0, 10))))
    assert found.schema.field("record").type == pyarrow.binary(100)
    assert b"".join(found["record"].to_pylist()) == sorted_records(data)


def test_fields_of_fixed_records_are_columns(disk):
    layout = ascot.Fixed(16, fields={"id": (0, "u32-be"), "x": (4, "f64"), "tag": (12, "bytes:4")}, key="id")
    dtype = numpy.dtype([("id", ">u4"), ("x", "<f8"), ("tag", "S4")])
    records = numpy.array([(7, 0.5, b"abcd"), (1 << 30, -1.0, b"efgh"), (2, 9.0, b"ijkl")], dtype)
    records.tofile(disk / "records")
    found = pyarrow.table(ascot.sort(disk / "records", layout=layout))
    assert found.to_pylist() == [
        {"id": 2, "x": 9.0, "tag": b"ijkl"},
        {"id": 7, "x": 0.5, "tag": b"abcd"},
        {"id": 1 << 30, "x": -1.0, "tag": b"efgh"},
    ]
    ascot.sort(found, layout=layout, to=disk / "again")
    assert (disk / "again").read_bytes() == numpy.sort(records, order="id").tobytes()
    assert rows(ascot.sort(found, key=ascot.desc("x")))[0]["tag"] == b"ijkl"
    plain = ascot.Fixed(16, fields=layout.fields)
    with pytest.raises(ValueError, match="field 'x' of type f64 cannot be a key"):
        ascot.sort(disk / "records", layout=plain, key="x")
    faults = [({"id": (14, "u32")}, "extends beyond the record"), ({"id": (0, "u24")}, "'u24' is not known")]
    for wrong, text in faults:
        with pytest.raises(ValueError, match=text):
            ascot.sort(disk / "records", layout=ascot.Fixed(16, fields=wrong))


@pytest.mark.parametrize("text", ["u32", "u64-be", "i64", "f32-be", "f64"])
def test_numbers_stream_as_their_arrays_and_come_back(text, disk):
    dtype = numpy.dtype((">" if text.endswith("-be") else "<") + text[0] + str(int(text[1:3]) // 8))
    numbers = numpy.random.default_rng(3).integers(0, 1000, 5000).astype(dtype)
    numbers.tofile(disk / "numbers")
    found = pyarrow.table(ascot.sort(disk / "numbers", layout=text))["value"]
    assert numpy.array_equal(found.to_numpy(), numpy.sort(numbers)) and found.type == dtype.newbyteorder("=").name
    job = ascot.sort(pyarrow.table({"n": found.take(numpy.arange(5000)[::-1])}), layout=text, to=disk / "sorted")
    assert numpy.array_equal(numpy.fromfile(disk / "sorted", dtype), numpy.sort(numbers))
    assert job.report.records_out == 5000


def test_a_small_file_of_many_lines_streams(disk):
    """More records than a sort of a small file takes at once."""
    lines = [f"{number:06}" for number in range(300_000)]
    (disk / "lines").write_text("\n".join(reversed(lines)) + "\n")
    assert pyarrow.table(ascot.sort(disk / "lines"))["line"].to_pylist() == lines


def test_lines_stream_as_strings_or_bytes(disk):
    (disk / "lines").write_text("b\na\n\nä\n")
    assert pyarrow.table(ascot.sort(disk / "lines"))["line"].to_pylist() == ["", "a", "b", "ä"]
    (disk / "wrong").write_bytes(b"b\n\xff\n")
    with pytest.raises(ascot.SchemaMismatch, match="record 2 is not UTF-8"):
        list(ascot.sort(disk / "wrong"))
    found = pyarrow.table(ascot.sort(disk / "wrong", layout=ascot.Lines(binary=True)))["line"]
    assert found.type == pyarrow.binary() and found.to_pylist() == [b"b", b"\xff"]
    ascot.sort(pyarrow.table({"s": ["x", "a"]}), layout=ascot.Lines(), to=disk / "out")
    assert (disk / "out").read_text() == "a\nx\n"
    with pytest.raises(ascot.SchemaMismatch, match="holds a delimiter"):
        ascot.sort(pyarrow.table({"s": ["x\ny"]}), layout=ascot.Lines(), to=disk / "out")


def test_csv_streams_as_columns(disk):
    (disk / "t.csv").write_text('name,price,"a, b"\nx,12.5,1\n"q""\n",3,\nNA,-1,2\n')
    layout = ascot.Csv(nulls=["NA"])
    found = pyarrow.table(ascot.sort(disk / "t.csv", layout=layout, key=ascot.column("price", type="number")))
    assert found.to_pylist() == [
        {"name": None, "price": -1.0, "a, b": "2"},
        {"name": 'q"\n', "price": 3.0, "a, b": None},
        {"name": "x", "price": 12.5, "a, b": "1"},
    ]
    (disk / "u.csv").write_text("2,b\n1,a\n")
    found = pyarrow.table(ascot.sort(disk / "u.csv", layout=ascot.Csv(header=False), key=1))
    assert found.to_pylist() == [{"column_1": "1", "column_2": "a"}, {"column_1": "2", "column_2": "b"}]
    (disk / "w.csv").write_text("a,b\n1,2\n1,2,3\n")
    with pytest.raises(ascot.SchemaMismatch, match="row 2 of the result has more than 2 fields"):
        list(ascot.sort(disk / "w.csv", key="a"))


def test_prefixed_records_stream_as_bytes(disk):
    (disk / "p").write_bytes(b"\x02\x00bb\x01\x00a")
    assert pyarrow.table(ascot.sort(disk / "p", layout="prefixed:u16"))["record"].to_pylist() == [b"a", b"bb"]


def test_a_file_larger_than_memory_streams(disk):
    ascot.gen(600_000, to=disk / "large")
    layout = ascot.Fixed(100, key=slice(0, 10))
    count, last = 0, b""
    for batch in ascot.sort(disk / "large", layout=layout, memory="16MiB", temp=disk):
        column = pyarrow.record_batch(batch)["record"]
        assert column[0].as_py()[:10] >= last
        last, count = column[-1].as_py()[:10], count + len(column)
    assert count == 600_000 and leftovers(disk) == ["large"]


def test_batches_that_do_not_fit_a_file_are_errors(disk):
    out = disk / "out"
    with pytest.raises(ValueError, match="needs a layout"):
        ascot.sort(TABLE, key="k", to=out)
    with pytest.raises(ascot.SchemaMismatch, match="has one column, and the source has 2: k, s"):
        ascot.sort(TABLE, layout="u64", to=out)
    with pytest.raises(ascot.SchemaMismatch, match=r"int64.*uint64"):
        ascot.sort(pyarrow.table({"k": [1]}), layout="u64", to=out)
    with pytest.raises(ascot.SchemaMismatch, match="record 2 is null, which format u64 cannot hold"):
        ascot.sort(
            pyarrow.table({"k": pyarrow.array([1, None], "u8").cast("u8").cast("uint64")}), layout="u64", to=out
        )
    assert leftovers(disk) == []


def test_bytes_are_copied_in_pieces_between_which_ctrl_c_acts(disk, monkeypatch):
    sizes, write = [], os.write
    monkeypatch.setattr(os, "write", lambda number, data: sizes.append(len(data)) or write(number, data))
    job = ascot.sort(bytes(40 << 20), layout=ascot.Fixed(1 << 20), to=disk / "out")
    assert job.report.bytes_out == 40 << 20 and len(sizes) == 3 and max(sizes) == 16 << 20


def test_open_files_buffers_and_lists_are_sources(disk):
    (disk / "a").write_text("c\na\n")
    for source in (b"c\na\n", bytearray(b"c\na\n"), memoryview(b"c\na\n"), io.BytesIO(b"c\na\n"), [disk / "a"]):
        assert pyarrow.table(ascot.sort(source))["line"].to_pylist() == ["a", "c"], source
    with open(disk / "a", "rb") as file:
        assert pyarrow.table(ascot.sort([file, b"b\n"]))["line"].to_pylist() == ["a", "b", "c"]
        file.read(1)
        with pytest.raises(ValueError, match="read up to byte"):
            ascot.sort(file)
    ascot.sort(b"2\n1\n", to=disk / "out")
    assert (disk / "out").read_text() == "1\n2\n"
    assert ascot.check(b"1\n2\n").records == 2
    names = iter([disk / "a", disk / "out"])
    assert pyarrow.table(ascot.sort(names))["line"].to_pylist() == ["1", "2", "a", "c"]


def test_parquet_names_the_reader_of_pyarrow(disk):
    pyarrow.parquet.write_table(TABLE, disk / "t.parquet")
    (disk / "hidden").write_bytes((disk / "t.parquet").read_bytes())
    for name in ("t.parquet", "hidden"):
        with pytest.raises(ascot.SchemaMismatch, match=r"ParquetFile\(.*\)\.iter_batches\(\)"):
            ascot.sort(disk / name, key="k")
    assert rows(ascot.sort(pyarrow.parquet.ParquetFile(disk / "t.parquet").iter_batches(), key="k"))[0]["k"] == 1


# ---------------------------------------------------------------- views and indexes


def test_views_stream_as_batches(disk):
    data = random_records(50_000)
    (disk / "records").write_bytes(data)
    ascot.sort(disk / "records", layout=ascot.Fixed(100, key=slice(0, 10)), view=disk / "v", memory="8MiB")
    whole = sorted_records(data)
    with ascot.view(disk / "v", memory="32MiB") as view:
        for part, first, last in ((view, 0, 50_000), (view[100:40_000], 100, 40_000), (view[7:7], 7, 7)):
            found = pyarrow.table(part)["record"]
            assert b"".join(found.to_pylist()) == whole[100 * first : 100 * last]
        fields = ascot.Fixed(100, fields={"key": (0, "bytes:10"), "rest": (98, "u16")})
        found = polars.DataFrame(view[5:9].batches(layout=fields))
        assert found["key"].to_list() == [whole[at * 100 : at * 100 + 10] for at in range(5, 9)]
        with pytest.raises(ValueError, match="layout fixed:100, not fixed:50"):
            view.batches(layout="fixed:50")
        batches = view.batches()
        next(batches)
        batches.close()
    with pytest.raises(ValueError, match="is closed"):
        view.batches()


def test_views_of_csv_have_columns(disk):
    (disk / "t.csv").write_text("name,n\nb,2\na,10\n")
    ascot.sort(disk / "t.csv", key=ascot.column("n", type="number"), view=disk / "v")
    with ascot.view(disk / "v") as view:
        assert pyarrow.table(view).to_pylist() == [{"name": "b", "n": 2.0}, {"name": "a", "n": 10.0}]
        assert pyarrow.table(view[1:]).to_pylist() == [{"name": "a", "n": 10.0}]
        # The key of another layout does not count.
        assert pyarrow.table(view.batches(layout=ascot.Csv(key="n"))).schema.field("n").type == pyarrow.float64()


@pytest.mark.parametrize("key_bytes", [4, None])
def test_indexes_answer_in_batches(key_bytes, disk):
    def key(number):
        return number.to_bytes(4, "big") if key_bytes else b"key %d" % number

    with ascot.index.writer(disk / "run", key_bytes=key_bytes) as writer:
        for step in range(3):
            writer.append([key(number) for number in range(1000)], [b"v%d" % step] * 1000)
            writer.end_epoch()
    with ascot.index.open(disk / "run") as index:
        batch = pyarrow.record_batch(index.get_batch([key(7), key(5000), key(3)]))
        assert batch.schema.field("key").type == pyarrow.binary(key_bytes or -1)
        wanted = index.get([key(7), key(5000), key(3)])
        assert [tuple(row.values()) for row in batch.to_pylist()] == [tuple(record) for record in wanted]
        assert index.get_batch(key(5000)).num_rows == 0
        found = pyarrow.table(index.batches(key(10), key(20), epoch=1)).to_pylist()
        wanted = list(index.range(key(10), key(20), epoch=1))
        assert [tuple(row.values()) for row in found] == [tuple(record) for record in wanted] and found
        assert sum(len(batch) for batch in index.batches()) == 3000
        assert polars.DataFrame(index.batches()).height == 3000
        next(index.batches())


# ---------------------------------------------------------------- headers of lines, types of several libraries


@pytest.mark.parametrize("end", ["\n", ";"])
def test_the_header_of_lines_is_the_name_of_their_column(disk, end):
    """In streams of files, of views and of flows; the outputs of flows begin with it."""
    layout = ascot.Lines(header=True, end=end)
    (disk / "in").write_text(end.join(["name", "c", "a", "b", ""]))
    assert pyarrow.table(ascot.sort(disk / "in", layout=layout)).to_pydict() == {"name": ["a", "b", "c"]}
    ascot.sort(disk / "in", layout=layout, view=disk / "view")
    with ascot.view(disk / "view") as view:
        assert pyarrow.table(view).to_pydict() == {"name": ["a", "b", "c"]}
        assert pyarrow.table(view[1:]).to_pydict() == {"name": ["b", "c"]}

    def copy(inputs):
        for batch in inputs[0]:
            assert batch.column_names == ["name"]
            yield 0, batch

    ascot.flow([disk / "in"], [disk / "out"], copy, layout=layout)
    assert (disk / "out").read_text() == (disk / "in").read_text()
    # Any column may become lines.
    other = pyarrow.table({"who": ["x"]})
    ascot.flow([], [disk / "other"], lambda inputs: [(0, other[:0]), (0, other)], output_layout=layout)
    assert (disk / "other").read_text() == f"who{end}x{end}"


def test_headers_that_cannot_be_kept_are_refused(disk):
    table = pyarrow.table({"a\nb": ["x"]})
    with pytest.raises(ascot.SchemaMismatch, match="is more than a line"):
        ascot.flow([], [disk / "out"], lambda inputs: [(0, table)], output_layout=ascot.Lines(header=True))
    with pytest.raises(ascot.SchemaMismatch, match=r"^the batches: .*is more than a line"):
        ascot.sort(table, to=disk / "out", layout=ascot.Lines(header=True))
    (disk / "in").write_bytes(b"\xff\nx\n")
    with pytest.raises(ascot.SchemaMismatch, match="the header is not UTF-8"):
        ascot.sort(disk / "in", layout=ascot.Lines(header=True), any_format=True)
    assert sorted(path.name for path in disk.iterdir()) == ["in"]


def test_batches_are_sorted_to_files_with_a_header(disk):
    table = pyarrow.table({"k": ["b", "c", "a"], "n": [1, 2, 3]})
    ascot.sort(table, key="k", to=disk / "out.csv", layout=ascot.Csv())
    assert (disk / "out.csv").read_text() == "k,n\na,3\nb,1\nc,2\n"
    ascot.sort(table.select(["k"]), to=disk / "lines", layout=ascot.Lines(header=True))
    assert (disk / "lines").read_text().split() == ["k", "a", "b", "c"]
    ascot.sort(table, key=ascot.desc("n"), view=disk / "view", layout=ascot.Csv())
    assert bytes(ascot.view(disk / "view")[0]).strip() == b"a,3"
    assert leftovers(disk / "view") and leftovers(disk)[:2] == ["lines", "out.csv"]


def test_sorted_batches_become_csv_with_a_header(disk):
    table = pyarrow.table({"k": pyarrow.array([3, None, 1], "int64"), "s": ["c", "n", "a"]})
    ascot.flow([ascot.sort(table, key="k")], [disk / "out.csv"], lambda inputs: ((0, batch) for batch in inputs[0]))
    assert (disk / "out.csv").read_text() == "k,s\n1,a\n3,c\n,n\n"


TEXTS = ["string", "large_string", "string_view"]
BYTES = ["binary", "large_binary", "binary_view"]


@pytest.mark.parametrize("types", [TEXTS, TEXTS[::-1], [TEXTS[1], TEXTS[2], TEXTS[0]], BYTES, BYTES[::-1]], ids=str)
def test_types_of_the_same_values_are_those_of_the_first_batch(types, disk):
    text = ["a", None, "x" * 20]
    values = text if types[0] in TEXTS else [one and one.encode() for one in text]
    arrays = [pyarrow.array(values, getattr(pyarrow, name)()) for name in types]
    tables = [pyarrow.table({"v": array, "n": [1, 2, 3]}) for array in arrays]
    found = pyarrow.table(ascot.sort(iter(tables), key="n"))
    assert found.column("v").to_pylist() == [one for one in values for _ in tables]
    assert found.schema.field("v").type == getattr(pyarrow, types[0])()
    ascot.flow([], [disk / "out.csv"], lambda inputs: [(0, table) for table in tables])
    assert (disk / "out.csv").read_text() == "v,n\n" + 3 * f"a,1\n,2\n{'x' * 20},3\n"


def open_files():
    """The names of the files that this process has open."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return found


@pytest.mark.parametrize("source", ["bytes", "open file", "both"])
@pytest.mark.parametrize("method", ["merge", "distribute"])
def test_a_library_reads_a_stream_whose_source_is_gone(source, method, disk):
    """The job reads natural runs again, from open files whose numbers other files may have got."""
    numbers = numpy.sort(numpy.random.default_rng(1).integers(0, 2**63, 4_000_000))
    numbers[:: 1 << 16] //= 3
    half = numbers.nbytes // 2 if source == "both" else 0 if source == "open file" else numbers.nbytes
    (disk / "rest").write_bytes(numbers.tobytes()[half:])
    (disk / "other").write_bytes(bytes(numbers.nbytes))
    with (disk / "rest").open("rb") as file:
        given = {"bytes": numbers.tobytes(), "open file": file, "both": [numbers.tobytes()[:half], file]}[source]
        sort = {"layout": "u64-le", "memory": "10MiB", "method": method, "temp": disk}
        reader = pyarrow.RecordBatchReader.from_stream(ascot.sort(given, **sort))
    del given, file
    gc.collect()
    others = [(disk / "other").open("rb") for _ in range(8)]
    found = numpy.concatenate([batch["value"].to_numpy() for batch in reader])
    assert (found == numpy.sort(numbers).astype("u8")).all()
    for other in others:
        other.close()
    del reader
    gc.collect()
    assert not [name for name in open_files() if "memfd:ascot" in name or name == str(disk / "rest")]
    assert leftovers(disk) == ["other", "rest"]


def test_batches_of_pyarrow_polars_and_pandas_share_an_output(disk):
    data = {"s": ["p", "q"], "n": [1, 2]}
    made = [pyarrow.table(data), polars.DataFrame(data), pandas.DataFrame(data)]
    for tables in (made, made[::-1]):
        ascot.flow([], [disk / "out.csv"], lambda inputs, tables=tables: [(0, table) for table in tables])
        assert (disk / "out.csv").read_text() == "s,n\n" + 3 * "p,1\nq,2\n"
    # Other values are still refused.
    for wrong in (pyarrow.table({"s": [1], "n": [1]}), pyarrow.table({"s": ["p"], "n": [1.0]})):
        with pytest.raises(ascot.SchemaMismatch, match="another schema than the first: column"):
            ascot.flow([], [disk / "out.csv"], lambda inputs, wrong=wrong: [(0, made[0]), (0, wrong)])


def test_csv_has_the_types_that_the_guide_names(disk):
    kept = [
        pyarrow.int8(), pyarrow.uint64(), pyarrow.float32(), pyarrow.float64(), pyarrow.decimal128(9, 1),
        pyarrow.decimal256(50, 1), pyarrow.string(), pyarrow.string_view(), pyarrow.binary(), pyarrow.bool_(),
        pyarrow.date32(), pyarrow.timestamp("ns"), pyarrow.dictionary(pyarrow.int8(), pyarrow.string()),
    ]  # fmt: skip
    refused = [
        pyarrow.timestamp("us", "UTC"), pyarrow.time32("s"), pyarrow.time64("us"), pyarrow.duration("s"),
        pyarrow.month_day_nano_interval(), pyarrow.float16(), pyarrow.decimal32(5, 1), pyarrow.decimal64(9, 1),
        pyarrow.binary(1), pyarrow.list_(pyarrow.int8()), pyarrow.struct({"a": pyarrow.int8()}),
        pyarrow.map_(pyarrow.string(), pyarrow.int8()),
    ]  # fmt: skip
    for of in kept + refused:
        table, told = pyarrow.table({"c": pyarrow.nulls(2, of)}), pytest.raises(ascot.SchemaMismatch, match="no form")
        with told if of in refused else contextlib.nullcontext():
            ascot.sort(table, layout=ascot.Csv(), to=disk / "out.csv")
