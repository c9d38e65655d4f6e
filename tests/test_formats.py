"""Files with unexpected contents: other formats than text, headers among the data, values of other types."""

import bz2
import datetime
import gzip
import json
import lzma
import sqlite3
import subprocess
import threading
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import TIMEOUT_SECONDS, ascot_binary, clean_environment, leftovers, run

TEXT = b"id,v\n2,b\n10,a\n"

# ---------------------------------------------------------------- files of other formats


def other_formats(directory):
    """Files of known formats: name -> (name of the format in the message, suggested command)."""
    (directory / "s.csv.gz").write_bytes(gzip.compress(TEXT))
    (directory / "s.csv.xz").write_bytes(lzma.compress(TEXT))
    (directory / "s.csv.bz2").write_bytes(bz2.compress(TEXT))
    (directory / "s.zst").write_bytes(bytes.fromhex("28b52ffd2005290000") + b"hello")
    (directory / "s.lz4").write_bytes(bytes.fromhex("04224d186440a7") + b"0000")
    (directory / "u.txt").write_bytes("id\nä\n".encode("utf-16"))
    (directory / "v.txt").write_bytes(b"\xfe\xff" + "id\nä\n".encode("utf-16-be"))
    (directory / "p").write_bytes(b"PAR1\x15\x04" + bytes(20) + b"\x06\0\0\0PAR1")
    (directory / "a.arrow").write_bytes(b"ARROW1\0\0\xff\xff\xff\xff")
    with zipfile.ZipFile(directory / "z.zip", "w") as archive:
        archive.writestr("t.csv", TEXT)
    with sqlite3.connect(directory / "d.db") as base:
        base.execute("create table t (x)")
    base.close()
    return {
        "s.csv.gz": ("gzip", "zcat s.csv.gz | ascot sort -k2"),
        "s.csv.xz": ("xz", "xz -dc s.csv.xz | ascot sort -k2"),
        "s.csv.bz2": ("bzip2", "bzip2 -dc s.csv.bz2 | ascot sort -k2"),
        "s.zst": ("Zstandard", "zstd -dc s.zst | ascot sort -k2"),
        "s.lz4": ("LZ4", "lz4 -dc s.lz4 | ascot sort -k2"),
        "u.txt": ("UTF-16", "iconv -f UTF-16 -t UTF-8 u.txt | ascot sort -k2"),
        "v.txt": ("UTF-16", "iconv -f UTF-16 -t UTF-8 v.txt | ascot sort -k2"),
        "p": ("Parquet", "p | ascot sort --csv --header -k2"),
        "a.arrow": ("Arrow", "a.arrow | ascot sort --csv --header -k2"),
        "z.zip": ("zip", "unzip -p z.zip | ascot sort -k2"),
        "d.db": ("SQLite", "sqlite3 -csv -header d.db 'SELECT * FROM TABLE' | ascot sort --csv --header -k2"),
    }


def test_other_formats_are_refused_with_a_command(disk):
    formats = other_formats(disk)
    before = leftovers(disk)
    for name, (words, command) in formats.items():
        told = run("sort", name, "-k2", "-o", "out", cwd=disk, expect=2).stderr
        assert f"{name}: this is" in told and words in told and "--format lines" in told
        assert command in told
        content = (disk / name).read_bytes()
        assert run("sort", name, "--format", "lines", cwd=disk).stdout == b"".join(
            line + b"\n" for line in sorted(content.removesuffix(b"\n").split(b"\n"))
        )
        assert words in run("sort", stdin=content, expect=2).stderr or name == "p"
    assert leftovers(disk) == before


def test_the_suggested_command_works(disk):
    (disk / "s.csv.gz").write_bytes(gzip.compress(TEXT))
    told = run("sort", "s.csv.gz", "--csv", "--key", "id:number", "-o", "out", cwd=disk, expect=2).stderr
    command = told.split("convert it to text first: ")[1].splitlines()[0].replace("ascot", str(ascot_binary()), 1)
    subprocess.run(["bash", "-c", command], cwd=disk, check=True, env=clean_environment())
    assert (disk / "out").read_bytes() == TEXT
    told = run("merge", "s.csv.gz", "s.csv.gz", cwd=disk, expect=2).stderr
    assert "zcat s.csv.gz > s.csv && ascot merge" in told
    (disk / "s.csv").write_bytes(b"precious")
    told = run("merge", "s.csv.gz", "s.csv.gz", cwd=disk, expect=2).stderr
    assert "> s.csv " not in told


@pytest.mark.parametrize(
    "words",
    [
        ["sort"],
        ["sort", "-m"],
        ["sort", "-c"],
        ["sort", "--explain"],
        ["sort", "--view", "v"],
        ["sort", "--csv", "--key", "#1"],
        ["merge"],
        ["merge", "--view", "v"],
        ["reshape", "--parts", "2", "-o", "r-{}"],
        ["split", "--parts", "2", "-o", "p-{}"],
        ["check", "--format", "csv", "--key", "#1"],
    ],
)
def test_every_command_for_text_refuses_other_formats(words, disk):
    (disk / "s.gz").write_bytes(gzip.compress(TEXT))
    (disk / "t").write_bytes(b"1\n2\n")
    files = ["s.gz"] if "-c" in words else ["t", "s.gz"]
    told = run(*words, *files, cwd=disk, expect=2).stderr
    assert "s.gz" in told and "gzip" in told
    assert not [name for name in leftovers(disk) if name.startswith(("v", "r-", "p-"))]


def test_recognition_keeps_the_first_bytes_of_a_pipe(disk):
    for text in (
        b"",
        b"P",
        b"PK\nPA\n",
        b"BZh9\nBZh\n",
        b"PAR1\na\n",
        b"\xff\xfe\n",
        b"\x1f\n\x1e\n",
        b"ARROW1\nb\n",
    ):
        for words in (["sort"], ["sort", "-m"], ["sort", "--csv", "--key", "#1:text"]):
            expected = text if "-m" in words else b"".join(sorted(line + b"\n" for line in text.split(b"\n") if line))
            if "-m" in words and sorted(text.split(b"\n")[:-1]) != text.split(b"\n")[:-1]:
                continue
            found = run(*words, stdin=text).stdout
            assert found == (expected if not expected or expected.endswith(b"\n") else expected + b"\n"), (
                words,
                text,
            )
    many = b"".join(b"PK %06d\n" % number for number in range(50_000, 0, -1))
    assert run("sort", "--memory", "8MiB", stdin=many).stdout == b"".join(sorted(many.splitlines(keepends=True)))


def test_a_slow_pipe_is_recognised_like_a_file(disk):
    for content, status in ((gzip.compress(TEXT), 2), (b"PK\nBZ\n", 0)):
        process = subprocess.Popen(
            [ascot_binary(), "sort"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=clean_environment(),
        )  # fmt: skip

        def feed(process=process, content=content):
            try:
                for byte in content:
                    process.stdin.write(bytes([byte]))
                    process.stdin.flush()
                process.stdin.close()
            except BrokenPipeError:
                pass

        writer = threading.Thread(target=feed)
        writer.start()
        process.wait(timeout=TIMEOUT_SECONDS)
        writer.join()
        output = process.stdout.read()
        assert process.returncode == status, process.stderr.read()
        assert output == (b"" if status else b"BZ\nPK\n")


def test_explicit_formats_accept_any_bytes(disk):
    content = gzip.compress(bytes(range(200)))
    content = content[: len(content) // 4 * 4]
    assert len(run("sort", "--format", "u32-le", stdin=content).stdout) == len(content)
    assert len(run("sort", "--format", "fixed:4", stdin=content).stdout) == len(content)


# ---------------------------------------------------------------- headers


def test_a_header_sorted_as_data_gives_a_warning(disk):
    (disk / "s.csv").write_text("id,name\n2,x\n10,y\n")
    told = run("sort", "s.csv", "-k1", cwd=disk).stderr
    assert "s.csv: the first row looks like a header (id, name)" in told and "--csv --header --key 'id'" in told
    told = run("sort", "s.csv", "-t,", "-k1,1nr", cwd=disk).stderr
    assert "--csv --header --key '-id:number'" in told
    for words in (
        ["--csv", "--key", "#1"],
        ["--csv"],
        ["--csv", "--key", "#1", "--memory", "16MiB", "--method", "merge"],
    ):
        told = run("sort", "s.csv", *words, cwd=disk).stderr
        assert "looks like a header (id, name)" in told and told.count("looks like") == 1, words
        assert "to keep it first: --header" in told
    assert "looks like a header" in run("sort", "--csv", "--key", "#1", stdin=(disk / "s.csv").read_bytes()).stderr
    assert (
        "looks like a header" in run("sort", "s.csv", "--csv", "--key", "#1", "--explain", cwd=disk).stdout.decode()
    )
    assert "looks like" not in run("sort", "s.csv", "-k1", "--quiet", cwd=disk).stderr
    assert "looks like" not in run("sort", "s.csv", "--csv", "--header", "--key", "#1", cwd=disk).stderr


@pytest.mark.parametrize("rows", ["1,x\n2,y\n", "id,name\na,b\n", "id,id\n1,2\n", "id,3\n1,2\n", "id,name\n", ""])
def test_other_first_rows_give_no_warning(rows, disk):
    (disk / "s.csv").write_text(rows)
    assert "looks like" not in run("sort", "s.csv", "-k1", cwd=disk).stderr
    assert "looks like" not in run("sort", "s.csv", "--csv", "--key", "#1", cwd=disk).stderr


def test_a_missing_column_is_an_error(disk):
    (disk / "s.csv").write_text("a,b,c\n1,2,3\n")
    for words in ([], ["--memory", "16MiB", "--method", "merge"], ["--explain"], ["-c"]):
        told = run("sort", "s.csv", "--csv", "--key", "#9", *words, cwd=disk, expect=2).stderr
        assert "s.csv: there is no column #9: row 1 has 3 columns" in told
    told = run("sort", "s.csv", "--csv", "--header", "--key", "#9", cwd=disk, expect=2).stderr
    assert "s.csv: there is no column #9: the header has 3" in told
    told = run("sort", "--csv", "--key", "#9", stdin=b"a,b\n", expect=2).stderr
    assert "standard input: there is no column #9: row 1 has 2 columns" in told
    assert run("sort", "--csv", "--key", "#9", stdin=b"").stdout == b""
    assert run("sort", "--csv", "--key", "#3:text", stdin=b"b\na,b,c\n").stdout == b"a,b,c\nb\n"


def test_the_first_nonempty_file_names_the_columns(disk):
    (disk / "empty.csv").write_bytes(b"")
    (disk / "full.csv").write_text("1,b\n2,a\n")
    for words in ([], ["--memory", "16MiB", "--method", "merge"]):
        found = run("sort", "empty.csv", "full.csv", "--csv", "--key", "#2", *words, cwd=disk).stdout
        assert found == b"2,a\n1,b\n"
    assert "no column #3" in run("sort", "empty.csv", "full.csv", "--csv", "--key", "#3", cwd=disk, expect=2).stderr


# ---------------------------------------------------------------- types of columns, and values of other types


def columns_of(disk, *words, expect=0, stdin=b""):
    done = run(*words, "--report", disk / "report.json", cwd=disk, expect=expect, stdin=stdin)
    return json.loads((disk / "report.json").read_text())["columns"], done.stderr


@pytest.mark.parametrize("memory", ["2GiB", "8MiB"])
def test_the_first_file_with_rows_has_the_types(disk, memory):
    (disk / "names.csv").write_bytes(b"id,text\n")
    (disk / "rows.csv").write_bytes(b"id,text\n" + b"".join(b"%d,x\n" % number for number in (10, 9, 100)))
    words = ["names.csv", "rows.csv", "--csv", "--header", "--key", "id"]
    done = run("sort", *words, "-o", "out.csv", "--memory", memory, "--verbose", cwd=disk)
    assert (disk / "out.csv").read_bytes() == b"id,text\n9,x\n10,x\n100,x\n"
    assert "id as number (inferred)" in done.stderr
    run("check", "names.csv", "out.csv", "--format", "csv", "--key", "id", cwd=disk)


def test_inferred_types_and_misfits_are_reported(disk):
    rows = "".join(f"{number},x\n" for number in range(1100))
    (disk / "t.csv").write_text("id,v\n" + rows + "$5,x\n7,y\n$6,x\n")
    columns, told = columns_of(disk, "sort", "t.csv", "--key", "id")
    assert columns == [
        {
            "column": 1,
            "name": "id",
            "type": "number",
            "inferred": True,
            "misfits": 2,
            "first_misfit": {"input": "t.csv", "row": 1102, "value": "$5"},
            "fallback": None,
        }
    ]
    assert "keys: id as number (inferred), 2 values are not of that type, the first '$5' in row 1102 of t.csv" in told
    assert told.count("\n") == 1
    assert run("sort", "t.csv", "--key", "id", "--quiet", cwd=disk).stderr == ""
    assert run("sort", "t.csv", "--key", "v:text", cwd=disk).stderr == ""
    assert (
        "keys     id as number (inferred)"
        in run("sort", "t.csv", "--key", "id", "--explain", cwd=disk).stdout.decode()
    )


@pytest.mark.parametrize(
    ("value", "kind", "fix"),
    [
        ("01.05.2024", "date(%d.%m.%Y)", "--key 'a:date(%d.%m.%Y)'"),
        ('"1,5"', "number(,)", "--key 'a:number(,)'"),
        ('"1.000,5"', "number(.,)", "--key 'a:number(.,)'"),
    ],
)
def test_text_columns_report_the_type_of_most_values(value, kind, fix, disk):
    (disk / "t.csv").write_text(f"a\n{value}\n{value}\n")
    (column,), told = columns_of(disk, "sort", "t.csv", "--csv", "--header", "--key", "a")
    assert (column["type"], column["fallback"]["type"], column["fallback"]["fix"]) == ("text", kind, fix)
    assert fix in told
    refused = run("sort", "t.csv", "--csv", "--header", "--key", "a", "--strict", cwd=disk, expect=2)
    assert "t.csv: row 2: " in refused.stderr and fix in refused.stderr and refused.stdout == b""
    (column,), told = columns_of(disk, "sort", "t.csv", "--key", f"a:{kind}", "--strict")
    assert (column["type"], column["misfits"]) == (kind, 0) and told == ""


def test_values_that_make_a_column_text_are_named(disk):
    (disk / "t.csv").write_text("a\n10\n\\N\n9\n")
    (column,), told = columns_of(disk, "sort", "t.csv", "--csv", "--header", "--key", "a")
    fallback = column["fallback"]
    assert (column["type"], fallback["values"], fallback["others"]) == ("text", 2, 1)
    assert fallback["first"]["row"] == 3 and "--null" in told
    run("sort", "t.csv", "--csv", "--header", "--key", "a", "--strict", cwd=disk, expect=2)
    sort = ["sort", "t.csv", "--csv", "--header", "--null", "\\N", "--strict", "--key"]
    assert run(*sort, "a", cwd=disk).stdout == b"a\n9\n10\n\\N\n"
    assert run(*sort, "a:nulls-first", cwd=disk).stdout == b"a\n\\N\n9\n10\n"
    assert run(*sort, "-a", cwd=disk).stdout == b"a\n10\n9\n\\N\n"


def test_strict_refuses_before_anything_is_written(disk):
    rows = [f"{number % 977},{number}\n" for number in range(60_000)]
    rows[55_000] = "$1,x\n"
    (disk / "t.csv").write_text("k,v\n" + "".join(rows))
    (disk / "m.csv").write_text("k,v\n1,x\nz,y\n")
    key = ["--csv", "--header", "--key", "k:number", "--strict"]
    small = ["--memory", "8MiB", "--threads", "2"]
    before = leftovers(disk)
    for words in (
        ["sort", "t.csv", *key],
        ["sort", "t.csv", *key, *small, "--method", "merge"],
        ["sort", "t.csv", *key, *small, "--method", "distribute"],
        ["sort", "t.csv", *key, *small, "-o", "out"],
        ["sort", "t.csv", *key, *small, "--view", "v"],
        ["split", "t.csv", *key, "--by", "hash", "--parts", "3", "-o", "p-{}"],
    ):
        refused = run(*words, cwd=disk, expect=2)
        assert "t.csv: row 55002: '$1' in column k is not of type number" in refused.stderr, words
        assert refused.stdout == b"" and leftovers(disk) == before, words
    with open(disk / "t.csv", "rb") as stdin:
        assert run("sort", *key, stdin=stdin.read(), expect=2).stdout == b""
    for words in (["merge", "m.csv", *key], ["merge", "m.csv", *key, "-o", "out"]):
        refused = run(*words, cwd=disk, expect=2)
        assert "m.csv: row 3: 'z' in column k is not of type number" in refused.stderr and refused.stdout == b""
    assert "read once" in run("merge", *key, stdin=b"k,v\n1,x\n", expect=2).stderr
    assert leftovers(disk) == before


@pytest.mark.parametrize("name", ["--null", "--strict"])
def test_flags_of_columns_need_columns(name, disk):
    words = [name, "x"] if name == "--null" else [name]
    assert "columns of CSV" in run("sort", *words, stdin=b"a\n", expect=2).stderr


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--memory", "8MiB", "--method", "merge", "--threads", "1"],
        ["--memory", "8MiB", "--method", "merge", "--threads", "3"],
        ["--memory", "8MiB", "--method", "distribute", "--threads", "2"],
        ["--memory", "8MiB", "--unique"],
        ["--memory", "8MiB", "--top", "5"],
    ],
)
def test_every_misfit_is_counted_once_with_every_method(words, disk):
    inputs, first = [], None
    total = {"n": 0, "d": 0}
    for number in range(5):
        rows = []
        for row in range((0, 17, 30_000, 3, 20_000)[number]):
            n, d = f"{row * 7919 % 10_007}", f"{1 + row % 28:02}.{1 + row % 12:02}.{1990 + row % 40}"
            if number >= 2 and row % 1009 == 1000:
                n, total["n"] = f"${n}", total["n"] + 1
                first = first or (number, row, n)
            if number == 3 and row == 2:
                d, total["d"] = "soon", total["d"] + 1
            rows.append(f'{n},{"" if row % 5 else "NULL"},{d},"{"x" * (row % 300)}\n"\n')
        (disk / f"in{number}.csv").write_text("n,e,d,t\n" + "".join(rows))
        inputs.append(f"in{number}.csv")
    key = ["--key", "d:date(%d.%m.%Y),-n:number,e:number", "--null", "NULL"]
    columns, _ = columns_of(disk, "sort", *inputs, *key, *words, "-o", "out")
    assert [column["misfits"] for column in columns] == [total["d"], total["n"], 0]
    assert columns[0]["first_misfit"] == {"input": "in3.csv", "row": 4, "value": "soon"}
    number, row, value = first
    assert columns[1]["first_misfit"] == {"input": f"in{number}.csv", "row": row + 2, "value": value}


def test_views_and_merges_count_misfits_too(disk):
    (disk / "a.csv").write_text("k\n" + "".join(f"{number}\n" for number in range(9_000)) + "x\n")
    (disk / "b.csv").write_text("k\n1\n2\nx\ny\n")
    for words in (["sort"], ["merge"], ["sort", "--view", "v"], ["sort", "-m"], ["sort", "-m", "--batch-size", "2"]):
        (column,), told = columns_of(disk, *words, "a.csv", "b.csv", "--key", "k:number")
        assert column["misfits"] == 3, words
        assert column["first_misfit"] == {"input": "a.csv", "row": 9002, "value": "x"}, words
        assert "3 values are not of that type" in told
    assert run("view", "v", "--tail", "3", cwd=disk).stdout.split() == [b"x", b"x", b"y"]


def test_views_keep_forms_of_dates_and_spellings_of_null(disk):
    (disk / "t.csv").write_text("d,n\n03.02.2024,1\nnone,2\n01.03.2023,3\n31.01.2024,4\n")
    run("sort", "t.csv", "--key", "d:date(%d.%m.%Y)", "--null", "none", "--view", "v", cwd=disk)
    assert run("view", "v", cwd=disk).stdout == b"d,n\n01.03.2023,3\n31.01.2024,4\n03.02.2024,1\nnone,2\n"


DIRECTIVES = ["%d.%m.%Y", "%m/%d/%Y %H:%M", "%Y%m%d%H%M%S", "%d %B %Y", "%b %d, %Y %I:%M:%S %p",
              "%Y-%j", "%d-%b-%y %H:%M:%S.%f",
              "%Y-%m-%dT%H:%M:%S%z", "%A, %d. %B %Y %H.%M"]  # fmt: skip


@settings(max_examples=25)
@given(
    form=st.sampled_from(DIRECTIVES),
    moments=st.lists(
        st.datetimes(
            min_value=datetime.datetime(1970, 1, 1),
            max_value=datetime.datetime(2060, 1, 1),
            timezones=st.sampled_from([datetime.timezone(datetime.timedelta(minutes=m)) for m in (-570, 0, 345)]),
        ),
        min_size=2,
        max_size=30,
    ),
)
def test_dates_are_read_as_strptime_reads_them(form, moments):
    texts = [moment.strftime(form) for moment in moments]

    def value(text):
        read = datetime.datetime.strptime(text, form)
        return (read if read.tzinfo else read.replace(tzinfo=datetime.UTC)).timestamp()

    rows = "".join(f"{text};{number}\n" for number, text in enumerate(texts)).encode()
    key = f"#1:date({form})"
    words = ["sort", "--csv", "--separator", ";", "--key", key, "--strict"]
    expected = [f"{text};{number}" for number, text in sorted(enumerate(texts), key=lambda it: value(it[1]))]
    assert run(*words, stdin=rows).stdout.decode().splitlines() == expected
