"""Tables on a cluster: CSV, whose rows may have newlines in quotes, and headers, which each part has."""

import csv
import io
import os
import random
import shutil
from pathlib import Path

import ascot
import ascot.cluster
import pytest
from ascot import _native, errors
from ascot.cluster import jobs, manifest, object_files
from ascot.cluster.objects import Stores
from ray_machines import MEMORY, MIB, PAIR, At, cluster_sort

# The nodes share two processors; other load would make them seem lost.
pytestmark = pytest.mark.cluster(nodes=PAIR)

LAYOUT = ascot.Csv(key=["group", ascot.desc("when")])
HEADER = ["group", 'a "name"\nof two lines', "when", "price"]


def table(rows, seed=0, header=HEADER, **dialect):
    """CSV with quoted separators, quotes and newlines. Equal keys are frequent."""
    dice = random.Random(seed)
    out = io.StringIO()
    writer = csv.writer(out, **{"lineterminator": "\n", **dialect})
    if header:
        writer.writerow(header)
    for number in range(rows):
        text = dice.choice(["plain", "with, comma", 'quoted "x"', "two\nlines", '\n",\n"', ""]) + str(number % 7)
        day = f"2026-{dice.randrange(1, 13):02}-{dice.randrange(1, 29):02}"
        price = dice.choice([f"{dice.randrange(9999) / 100}", "1e3", "-7", ""])
        writer.writerow([dice.randrange(50), text * dice.randrange(1, 4), day, price])
    return out.getvalue().encode()


def assert_same_table(machines, disk, done, inputs, **options):
    """The parts, with their header once, are the result of a sort on one machine, and each part is a table."""
    ascot.sort(inputs, to=disk / "alone", memory="64MiB", **options)
    alone = (disk / "alone").read_bytes()
    with done.open() as whole:
        assert whole.read() == alone
        # A seek finds the same bytes.
        middle = len(alone) // 2
        assert (whole.seek(0, io.SEEK_END), whole.seek(middle)) == (len(alone), middle)
        assert whole.read(100) == alone[middle : middle + 100]
    with ascot.cluster.open_parts(disk / "out", layout=options["layout"]) as whole:
        assert whole.read() == alone
    checked = ascot.check(list(done.outputs), layout=options["layout"])
    assert (checked.is_sorted, checked.records) == (True, done.report.records)
    assert not (disk / "out.job").exists() and machines.left_over() == []
    return alone


# ---------------------------------------------------------------- chunks, without a cluster


def chunks_of(disk, url, content, layout, chunk_bytes):
    """The rows of each chunk of a file or an object, and the rows of the whole."""
    options = jobs.Request([__file__], layout, None, False, {}).options
    shape = {"chunk_bytes": MIB, "sort_bytes": MIB}
    job = {"options": options, "record_bytes": 1, "shape": shape, "job": "00" * 16}
    files = object_files.ObjectFiles(Stores({}), job, lambda: [str(disk)])
    first = len(content.partition(b"\n")[0]) + 1 if layout.header else 0
    if "://" in url:
        files._stores.write(url, content)
        inputs = [(url, len(content), files._stores.find(url)[0].version)]
    else:
        Path(url).write_bytes(content)
        inputs = [(url, len(content))]
    found = []
    options = {**options, "records": {**options["records"], "header": False, "keys": []}}
    for span in manifest.spans_of(inputs, chunk_bytes, 1, [first]):
        with files.chunk(span.to_native()) as local:
            found.append(b"".join(block for block, _ in _native.read_chunk(options, local, MIB)))
    return found, content[first:]


@pytest.mark.parametrize("url", ["a file", "memory://tables/rows"])
@pytest.mark.parametrize("header", [True, False])
def test_every_row_is_in_one_chunk(disk, url, header):
    url = url if "://" in url else str(disk / "rows")
    content = table(400, header=["a", "b", "c", "d"] if header else None)
    whole = set()
    for chunk_bytes in (len(content), 5000, 97, 7):
        found, rows = chunks_of(disk, url, content, ascot.Csv(header=header), chunk_bytes)
        assert b"".join(found) == rows
        # Rows are whole in their chunk, and chunks share the rows.
        parsed = [row for chunk in found for row in csv.reader(io.StringIO(chunk.decode(), newline=""))]
        whole.add(str(parsed))
        assert chunk_bytes == len(content) or sum(map(bool, found)) > len(content) / max(chunk_bytes, 200) / 4
    assert len(whole) == 1


@pytest.mark.parametrize("url", ["a file", "memory://tables/last"])
def test_a_last_row_is_completed_as_the_others_end(disk, url):
    url = url if "://" in url else str(disk / "rows")
    for end in ("\n", "\r\n"):
        content = table(20, header=None, lineterminator=end).removesuffix(end.encode())
        for chunk_bytes in (len(content), 50):
            found, _ = chunks_of(disk, url, content, ascot.Csv(header=False), chunk_bytes)
            assert b"".join(found) == content + end.encode()


@pytest.mark.parametrize("url", ["a file", "memory://tables/empty"])
@pytest.mark.parametrize("row", [b'1,"",20\n', b'1,",",2\n', b'1,"""",2\n', b"1,2,3\n"])
def test_quotes_beside_separators_are_no_obstacle(disk, url, row):
    url = url if "://" in url else str(disk / "rows")
    content = row * 3000
    for chunk_bytes in range(901, 901 + len(row)):
        found, _ = chunks_of(disk, url, content, ascot.Csv(header=False), chunk_bytes)
        assert b"".join(found) == content
        assert all(chunk.startswith(row) for chunk in found if chunk) and max(map(len, found)) < 1000


@pytest.mark.parametrize("url", ["a file", "memory://tables/unclear"])
def test_searches_that_contradict_each_other_are_an_error_and_no_row_is_there_twice(disk, url):
    # Quotes show the end of the long field from its front, and nothing shows it from its back. If its lines are taken
    # for rows, no quote is open at its end.
    url = url if "://" in url else str(disk / "rows")
    front, back = b'{""k"": ""v""},\n' * 100, b"a,line\n" * 90_000
    content = b"0,x\n" * 50 + b'1,"' + front + back + b'end",2\n' + b"3,y\n" * 50_000
    refused = []
    for chunk_bytes in (1100, 20_000, 150_000, 1 << 20):
        try:
            found, _ = chunks_of(disk, url, content, ascot.Csv(header=False), chunk_bytes)
        except (errors.SchemaMismatch, errors.MemoryLimit) as error:
            refused.append(chunk_bytes)
            assert "nodes cannot share this file: sort it on one machine" in str(error) or "longer than" in str(error)
        else:
            assert b"".join(found) == content
    assert 1100 in refused


def test_a_quote_that_is_never_closed_is_an_error(disk):
    content = b'1,a\n2,"b\n' + b"3,c\n" * 1000
    for chunk_bytes in (len(content), 100):
        with pytest.raises(errors.AscotError, match=r"offset 6"):
            chunks_of(disk, str(disk / "rows"), content, ascot.Csv(header=False), chunk_bytes)


def test_a_row_that_no_quote_shows_is_an_error_and_never_wrong(disk):
    # Within the quotes, all looks like rows without quotes.
    content = b'0,a\n1,"' + b"x,y\n" * 200_000 + b'",2\n' + b"3,c\n" * 1000
    told = r"(?s)field quoted from offset 6 on goes beyond offset .*one machine"
    with pytest.raises(errors.SchemaMismatch, match=told):
        chunks_of(disk, str(disk / "rows"), content, ascot.Csv(header=False), 300_000)


# ---------------------------------------------------------------- sorts


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"transport": "ray"},
        {"shuffle": "pull"},
        {"output_as": "views"},
        {"shuffle": "pull", "output_as": "views"},
    ],
    ids=["push", "ray", "pull", "views", "pulled views"],
)
def test_parts_are_the_table_of_one_machine(cluster, disk, options):
    inputs = [disk / f"in{number}.csv" for number in range(3)]
    for number, path in enumerate(inputs):
        path.write_bytes(table(25_000, seed=number))
    done = cluster_sort(disk, inputs, layout=LAYOUT, partitions=5, **options)
    assert_same_table(cluster, disk, done, inputs, layout=LAYOUT)
    assert done.report.records == 75_000
    if "output_as" not in options:
        assert len(done.outputs) == 5
        for part in done.outputs:
            content = Path(part).read_bytes()
            assert next(csv.reader(io.StringIO(content.decode(), newline=""))) == HEADER, part


def test_types_are_those_of_the_first_rows_on_all_nodes(cluster, disk):
    # A node that looked at its own rows would take these for text.
    rows = [b"n;when\n"] + [b"%d;%d.1.2026\n" % (number, number % 28 + 1) for number in range(5000, 0, -1)]
    rows += [b"'null';2.2.2026\n"] * 90_000 + [b"9;3.3.2026\n", b"10;1.1.2026\n"]
    (disk / "in.csv").write_bytes(b"".join(rows))
    keys = [ascot.column("when", type="date(%d.%m.%Y)", descending=True), "n"]
    layout = ascot.Csv(separator=";", quote="'", nulls=["null"], key=keys)
    done = cluster_sort(disk, disk / "in.csv", layout=layout, partitions=3, stable=True)
    alone = assert_same_table(cluster, disk, done, disk / "in.csv", layout=layout)
    assert alone.splitlines()[1] == b"9;3.3.2026"
    shutil.rmtree(disk / "out")
    done = cluster_sort(disk, disk / "in.csv", layout=ascot.Csv(separator=";", quote="'", nulls=["null"], key="n"))
    alone = assert_same_table(
        cluster, disk, done, disk / "in.csv", layout=ascot.Csv(separator=";", quote="'", nulls=["null"], key="n")
    )
    assert [line.split(b";")[0] for line in alone.splitlines()[9:12]] == [b"9", b"9", b"10"]


def test_lines_keep_their_header(cluster, disk):
    (disk / "a").write_text("name of the lines\n" + "".join(f"{number:06}\n" for number in range(90_000, 0, -1)))
    (disk / "b").write_text("name of the lines\nzz\nabc")
    layout = ascot.Lines(header=True)
    for shuffle in ("push", "pull"):
        done = cluster_sort(disk, [disk / "a", disk / "b"], layout=layout, partitions=3, shuffle=shuffle)
        alone = assert_same_table(cluster, disk, done, [disk / "a", disk / "b"], layout=layout)
        assert alone.startswith(b"name of the lines\n000001\n") and alone.endswith(b"abc\nzz\n")
        shutil.rmtree(disk / "out")


@pytest.mark.parametrize("shuffle", ["push", "pull"])
def test_tables_without_rows(cluster, disk, shuffle):
    (disk / "none.csv").write_bytes(b"")
    (disk / "names.csv").write_bytes(b"group,when\r\n")
    inputs = [disk / "none.csv", disk / "names.csv"]
    done = cluster_sort(disk, inputs, layout=LAYOUT, shuffle=shuffle)
    assert assert_same_table(cluster, disk, done, inputs, layout=LAYOUT) == b"group,when\r\n"
    assert done.report.records == 0


def test_a_table_is_continued_after_a_driver_that_failed(cluster, disk):
    (disk / "in.csv").write_bytes(table(90_000))

    class Stopped(Exception):
        pass

    def stop():
        raise Stopped

    with pytest.raises(Stopped):
        cluster_sort(disk, disk / "in.csv", layout=LAYOUT, partitions=8, progress=At("sort and reduce", 0.6, stop))
    done = ascot.cluster.resume(disk / "out.job", progress=None)
    assert_same_table(cluster, disk, done, disk / "in.csv", layout=LAYOUT)


# ---------------------------------------------------------------- wrong input


def test_wrong_tables_are_refused_before_anything_is_written(cluster, disk):
    (disk / "a.csv").write_bytes(b"group,when\n1,2026-01-01\n")
    (disk / "b.csv").write_bytes(b"group,then\n1,2026-01-01\n")
    before = sorted(os.listdir(disk))
    with pytest.raises(errors.InvalidRequest, match=r"different headers: column #2 is 'when' in the one"):
        cluster_sort(disk, [disk / "a.csv", disk / "b.csv"], layout=LAYOUT)
    with pytest.raises(errors.SchemaMismatch, match=r"no column 'price'; the header has: group, when"):
        cluster_sort(disk, disk / "a.csv", layout=ascot.Csv(key="price"))
    with pytest.raises(errors.InvalidRequest, match=r"uniform=True: bytes of text"):
        cluster_sort(disk, disk / "a.csv", layout=LAYOUT, uniform=True)
    assert sorted(os.listdir(disk)) == before


def test_a_value_of_another_type_is_named_if_the_table_is_strict(cluster, disk):
    rows = b"n\n" + b"".join(b"%d\n" % number for number in range(9000))
    (disk / "in.csv").write_bytes(rows + b"ten\n")
    told = rf"in\.csv: in the row at offset {len(rows)}, 'ten' in column #1 is not of type number"
    for shuffle in ("push", "pull"):
        with pytest.raises(errors.SchemaMismatch, match=told):
            cluster_sort(disk, disk / "in.csv", layout=ascot.Csv(key="n", strict=True), shuffle=shuffle)
        assert cluster.left_over() == [] and sorted(os.listdir(disk)) == ["in.csv"]
    layout = ascot.Csv(key="n")
    done = cluster_sort(disk, disk / "in.csv", layout=layout)
    assert assert_same_table(cluster, disk, done, disk / "in.csv", layout=layout).endswith(b"8999\nten\n")


# ---------------------------------------------------------------- functions


def by_group(batch):
    yield from zip(batch.column("group").to_pylist(), batch.column("price").to_pylist(), strict=True)


def total(key, values):
    yield f"{key.decode()} {sum(float(value or 0) for value in values):.2f}\n"


@pytest.mark.parametrize("shuffle", ["push", "pull"])
def test_functions_get_the_columns_of_a_table(cluster, disk, shuffle):
    wanted = {}
    for number in range(2):
        content = table(30_000, seed=number)
        (disk / f"in{number}.csv").write_bytes(content)
        for row in list(csv.reader(io.StringIO(content.decode(), newline="")))[1:]:
            wanted[row[0]] = wanted.get(row[0], 0) + float(row[3] or 0)
    usual = {"address": cluster.address, "memory_per_node": MEMORY, "progress": None, "shuffle": shuffle}
    done = ascot.cluster.map_reduce(
        disk / "in*.csv", map=by_group, reduce=total, output=disk / "out", layout=ascot.Csv(), partitions=3, **usual
    )
    with done.open() as whole:
        found = dict(line.decode().split() for line in whole)
    assert found == {key: f"{value:.2f}" for key, value in wanted.items()} and len(found) == 50


def test_tables_without_names_and_lines_after_a_header(cluster, disk):
    (disk / "in.csv").write_bytes(b'1;"x\n""y"""\n2;\xff\n')
    usual = {"address": cluster.address, "memory_per_node": MEMORY, "progress": None, "partitions": 1}

    def numbered(batch):
        return zip(batch.column("column_1").to_pylist(), batch.column(1).to_pylist(), strict=True)

    def shown(key, values):
        return b"".join(b"%s=%r\n" % (key, value) for value in values)

    layout = ascot.Csv(separator=";", header=False, binary=True)
    done = ascot.cluster.map_reduce(
        disk / "in.csv", map=numbered, reduce=shown, output=disk / "rows", layout=layout, **usual
    )
    assert done.open().read() == b"1=%r\n2=%r\n" % (b'x\n"y"', b"\xff")
    (disk / "lines").write_bytes(b"name\nb\na\n")

    def by_line(batch):
        return ((line, b"") for line in batch.column("line").to_pylist())

    def key_alone(key, _):
        return key + b"\n"

    layout = ascot.Lines(header=True)
    done = ascot.cluster.map_reduce(
        disk / "lines", map=by_line, reduce=key_alone, output=disk / "out", layout=layout, **usual
    )
    assert done.open().read() == b"a\nb\n"


def test_rows_and_functions_that_fail_are_named(cluster, disk):
    content = b'id,text\n1,"a\nb"\n2,c\n3,d\n'
    (disk / "in.csv").write_bytes(content)
    usual = {"reduce": total, "output": disk / "out", "layout": ascot.Csv(), "address": cluster.address}
    usual |= {"memory_per_node": MEMORY, "progress": None}

    def picky(batch):
        for number in batch.column("id").to_pylist():
            assert number != "3", "no threes"
            yield number, ""

    with pytest.raises(errors.FunctionFailed, match="no threes") as caught:
        ascot.cluster.map_reduce(disk / "in.csv", map=picky, **usual)
    assert caught.value.offset == content.index(b"3,d")
    (disk / "in.csv").write_bytes(content + b"4,e,f\n")
    told = r"in\.csv: in the rows from offset 8 on, rows do not fit the columns id, text"
    with pytest.raises(errors.SchemaMismatch, match=told):
        ascot.cluster.map_reduce(disk / "in.csv", map=picky, **usual)
    assert sorted(os.listdir(disk)) == ["in.csv"] and cluster.left_over() == []
