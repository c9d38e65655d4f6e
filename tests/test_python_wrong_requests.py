"""Requests of the Python package that contradict themselves or the data are refused with what to give instead."""

import os

import ascot
import pyarrow
import pytest
from ascot import errors


@pytest.mark.parametrize("more", [{"unique": True}, {"top": 10}])
def test_parts_of_a_result_of_unknown_size_are_refused(more, disk, monkeypatch):
    monkeypatch.chdir(disk)
    ascot.gen(1000, to="in")
    with pytest.raises(errors.InvalidRequest, match=r"parts= cannot be combined(.|\n)*by='size'"):
        ascot.sort("in", to="part-{}", layout=ascot.Fixed(100), parts=4, **more)
    assert os.listdir() == ["in"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"a": (98, "u64")}, "field 'a', bytes 98 to 106, extends beyond the record of 100 bytes"),
        ({"a": (-1, "u8")}, "extends beyond"),
        ({"a": (0, "u7")}, "'u7' is not known"),
        ({"a": (0, "bytes:0")}, "'bytes:0' is not known"),
    ],
)
def test_fields_are_checked_when_they_are_named(fields, told):
    with pytest.raises(errors.InvalidRequest, match=told):
        ascot.Fixed(100, fields=fields)


def test_a_separator_is_one_byte_of_the_file():
    with pytest.raises(ValueError, match="one byte"):
        ascot.Csv(separator="\u00e9")


def test_a_number_is_no_key_of_a_view_of_bytes(disk):
    layout = ascot.Fixed(12, fields={"id": (0, "u64-be"), "tag": (8, "bytes:4")}, key="id")
    (disk / "in").write_bytes(b"".join(number.to_bytes(8, "big") + b"abcd" for number in range(100)))
    ascot.sort(disk / "in", layout=layout, view=disk / "view")
    with ascot.view(disk / "view") as view:
        with pytest.raises(errors.InvalidRequest, match="start=5: the keys of this view are bytes"):
            view.keys(5, 10)
        assert view.keys((5).to_bytes(8, "big"), (10).to_bytes(8, "big")).nbytes == 60


def test_what_is_advised_suffices():
    """The memory that an error names, which covers batches beside the job, too."""
    table = pyarrow.table({"k": ["x" * (5 << 20)] * 3})
    memory, given = "12MiB", 12 << 20
    for _ in range(3):
        try:
            found = pyarrow.table(ascot.sort(table, key="k", memory=memory))
            assert found.equals(table)
            return
        except errors.MemoryLimit as error:
            assert error.given == given and error.needed > given, error
            memory = given = error.needed
    raise AssertionError(f"{memory} does not suffice")


def test_columns_of_one_name_are_told_by_number(disk):
    (disk / "in.csv").write_text("x,x\n1,2\n")
    with pytest.raises(errors.SchemaMismatch, match="use key=1 or key=2"):
        ascot.sort(disk / "in.csv", key="x", to=disk / "out")
    ascot.sort(disk / "in.csv", key=2, to=disk / "out")


def test_a_new_index_without_an_epoch_is_removed_by_an_error(disk):
    def fail(**options):
        with ascot.index.writer(disk / "index", key_bytes=4, **options) as writer:
            writer.append([b"aaaa"], [b"x"])
            if options:
                writer.end_epoch()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert os.listdir(disk) == []
    with pytest.raises(ZeroDivisionError):
        fail(mode="auto")
    with ascot.index.open(disk / "index") as index:
        assert index.epochs == 1
    with pytest.raises(ZeroDivisionError), ascot.index.writer(disk / "index", mode="append") as writer:
        writer.append([b"bbbb"], [b"x"])
        raise ZeroDivisionError
    with ascot.index.open(disk / "index") as index:
        assert index.epochs == 1


def test_fields_that_share_bytes_are_refused():
    with pytest.raises(errors.InvalidRequest, match="fields 'b', bytes 2 to 6, and 'c', bytes 4 to 8, overlap"):
        ascot.Fixed(8, fields={"c": (4, "u32"), "a": (0, "u16"), "b": (2, "u32")})


def test_a_range_of_an_index_is_checked_when_it_is_asked_for(disk):
    with ascot.index.writer(disk / "index", key_bytes=4) as writer:
        writer.append([b"aaaa"], [b"1"])
    with ascot.index.open(disk / "index") as index:
        with pytest.raises(TypeError, match="a key is bytes, not text"):
            index.range("a")
        with pytest.raises(TypeError, match="epoch"):
            index.range(epoch="a")
        assert [record.key for record in index.range()] == [b"aaaa"]
