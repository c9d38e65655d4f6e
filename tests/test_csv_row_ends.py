"""A last CSV row without a line end gets the line end of its file, CR LF or LF, with every method."""

import pytest
from support import run

ENDS = {"crlf": b"\r\n", "lf": b"\n"}


def table(end, numbers, header=b"id,note"):
    rows = ([header] if header else []) + [b'%d,"a%s"' % (number, b"x" * (number % 40)) for number in numbers]
    return end.join(rows)


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("piped", [False, True], ids=["file", "pipe"])
def test_a_small_file(piped, end, disk):
    text = table(end, [3, 1, 2])
    (disk / "in.csv").write_bytes(text)
    operand = "-" if piped else disk / "in.csv"
    done = run("sort", "--csv", "--key", "id", operand, stdin=text if piped else b"")
    assert done.stdout == table(end, [1, 2, 3]) + end
    bare = table(end, [3, 1, 2], header=None)
    assert run("sort", "--csv", "--key", "#1", stdin=bare).stdout == table(end, [1, 2, 3], header=None) + end


@pytest.mark.parametrize("method", ["merge", "distribute"])
@pytest.mark.parametrize("numbers", [range(400_000, 0, -1), range(400_000)], ids=["turned", "in-order"])
def test_a_spilling_file(numbers, method, disk):
    text = table(b"\r\n", numbers)
    (disk / "in.csv").write_bytes(text)
    words = ["--memory", "8MiB", "--method", method, "--temp", disk, "-o", disk / "out"]
    run("sort", "--csv", "--key", "id:number", disk / "in.csv", *words)
    header, *rows = text.split(b"\r\n")
    rows.sort(key=lambda row: int(row.split(b",")[0]))
    assert (disk / "out").read_bytes() == b"".join(row + b"\r\n" for row in [header, *rows])


def test_each_file_has_its_own_line_end(disk):
    (disk / "dos").write_bytes(table(b"\r\n", [1, 3]))
    (disk / "unix").write_bytes(table(b"\n", [2, 4]))
    expected = b'id,note\r\n1,"ax"\r\n2,"axx"\n3,"axxx"\r\n4,"axxxx"\n'
    for command in (["sort"], ["sort", "-m"], ["merge"]):
        done = run(*command, "--csv", "--key", "id:number", disk / "dos", disk / "unix")
        assert done.stdout == expected, command


def test_a_last_carriage_return_is_completed(disk):
    done = run("sort", "--csv", "--key", "#1", stdin=b"2\r\n1\r")
    assert done.stdout == b"1\r\n2\r\n"


def test_a_row_longer_than_a_piece(disk):
    text = b'2,"%s"\r\n1,"%s"' % (b"b" * 100, b"a" * 1_500_000)
    (disk / "in.csv").write_bytes(text)
    done = run("sort", "--csv", "--key", "#1:number", disk / "in.csv", "--memory", "8MiB")
    assert done.stdout == b"".join(row + b"\r\n" for row in reversed(text.split(b"\r\n")))


def test_parts_of_a_split(disk):
    text = table(b"\r\n", range(100), header=None)
    (disk / "in.csv").write_bytes(text)
    run("split", "--csv", disk / "in.csv", "--parts", "3", "-o", disk / "part{}")
    assert b"".join((disk / f"part{at}").read_bytes() for at in range(3)) == text + b"\r\n"


def test_a_quote_left_open_is_no_row(disk):
    done = run("sort", "--csv", "--key", "#1", stdin=b'2\r\n"1', expect=2)
    assert "quote" in done.stderr


def test_lines_are_completed_as_the_sort_command_does(disk):
    assert run("sort", stdin=b"b\r\na").stdout == b"a\nb\r\n"
