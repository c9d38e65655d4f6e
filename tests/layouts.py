"""All record layouts in the same form: how to make records, and how to sort them.

The oracle is plain Python: `sorted` with a key function that defines the order in a few lines.
"""

import random
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy

WORDS = [b"ant", b"bee", b"Cat", b"dog-7", b"", b"zebra zoo", b"\xc3\xa9tude", b"quote,\"it\"", b"two\nlines"]


@dataclass(frozen=True)
class Layout:
    """`record(rng, rank)` makes one record; records of a larger rank tend to sort later."""

    name: str
    flags: tuple
    record: Callable
    key: Callable
    head: bytes = b""
    # For files of numbers: their numpy type, because numpy sorts millions of them faster.
    dtype: str = ""

    def records(self, rng, count, style):
        return [self.record(rng, rank) for rank in STYLES[style](rng, count)]

    def file(self, records):
        return self.head + b"".join(records)

    def sorted(self, records):
        return sorted(records, key=self.key)

    def __str__(self):
        return self.name


# ---------------------------------------------------------------- styles of ranks


def _zipf(rng, count):
    return [int(1 / (rng.random() + 1e-9)) % (1 << 20) for _ in range(count)]


def _displaced(rng, count):
    ranks = list(range(count))
    for _ in range(count // 200 + (count > 0)):
        a, b = rng.randrange(count), rng.randrange(count)
        ranks[a], ranks[b] = ranks[b], ranks[a]
    return ranks


STYLES = {
    "random": lambda rng, count: [rng.randrange(1 << 40) for _ in range(count)],
    "equal": lambda rng, count: [7] * count,
    "two": lambda rng, count: [rng.choice((3, 1 << 30)) for _ in range(count)],
    "zipf": _zipf,
    "presorted": lambda rng, count: list(range(count)),
    "reversed": lambda rng, count: list(range(count, 0, -1)),
    "displaced": _displaced,
    "joined": lambda rng, count: [rank * 10 % count for rank in range(count)],
}


# ---------------------------------------------------------------- layouts


def _line(rng, rank):
    return b"%014d %s\n" % (rank, b"x" * rng.randrange(60))


def _csv_quote(text):
    return b'"' + text.replace(b'"', b'""') + b'"' if any(c in text for c in b',"\n\r') else text


def _csv_row(rng, rank):
    name = WORDS[rank % len(WORDS)]
    return b"%s,%d,%s%s" % (_csv_quote(name), rank - 1000, b"y" * rng.randrange(50), rng.choice([b"\n", b"\r\n"]))


def _csv_key(row):
    """By name (text, empty last), then by number, descending."""
    if row.startswith(b'"'):
        end = row.index(b'",', 1)
        name, rest = row[1:end].replace(b'""', b'"'), row[end + 2 :]
    else:
        name, _, rest = row.partition(b",")
    return (name == b"", name, -int(rest.split(b",")[0]))


def _fixed_100(rng, rank):
    tail_of_key = rng.randbytes(2) if rank % 3 else bytes(2)
    return struct.pack(">Q", rank << 20) + tail_of_key + rng.randbytes(90)


def _fixed_13(rng, rank):
    return rng.randbytes(4) + struct.pack(">Q", rank) + rng.randbytes(1)


def _total_order(code, width):
    """The key of IEEE 754's total order: flip all bits of negatives, the sign bit of the rest."""
    sign = 1 << (8 * width - 1)
    return lambda raw: (lambda bits: ~bits & (2 * sign - 1) if bits & sign else bits | sign)(
        int.from_bytes(raw, "little" if code[0] == "<" else "big")
    )


SPECIAL_FLOATS = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), -float("nan"), 5e-324, 1.5]


def _float(code):
    def make(rng, rank):
        value = rng.choice(SPECIAL_FLOATS) if rank % 50 == 49 else (rank - 1000) / 8
        return struct.pack(code, value)

    return make


def _integer(code, low, span):
    return lambda rng, rank: struct.pack(code, low + (rank * 104729 if rank > 1 << 23 else rank) % span)


def _number(name, code, make, key=None):
    key = key or (lambda raw: struct.unpack(code, raw)[0])
    dtype = code[0] + {"Q": "u8", "I": "u4", "q": "i8", "i": "i4", "d": "f8", "f": "f4"}[code[1]]
    return Layout(name, ("--format", name), make, key, dtype=dtype)


def _prefixed(code):
    def make(rng, rank):
        body = struct.pack(">Q", rank) + rng.randbytes(rng.randrange(80))
        return struct.pack(code, len(body)) + body

    return make


def _keyed(code):
    def make(rng, rank):
        key = struct.pack(">Q", rank) + rng.randbytes(rng.randrange(4))
        rest = rng.randbytes(rng.randrange(80))
        return struct.pack(code + "I", 4 + len(key) + len(rest)) + struct.pack(code + "I", len(key)) + key + rest

    return make


def _keyed_key(code):
    return lambda record: record[8 : 8 + struct.unpack_from(code + "I", record, 4)[0]]


LAYOUTS = [
    Layout("lines", (), _line, lambda record: record),
    Layout("lines-stable", ("-s", "-k1,1n"), _line, lambda record: int(record.split(b" ")[0])),
    Layout(
        "csv", ("--csv", "--header", "--key", "name:text,-n:number"), _csv_row, _csv_key, head=b"name,n,tail\n"
    ),
    Layout("fixed-100", ("--format", "fixed:100", "--key", "0..10"), _fixed_100, lambda record: record[:10]),
    Layout("fixed-13", ("--format", "fixed:13", "--key", "4..12"), _fixed_13, lambda record: record[4:12]),
    _number("u64-le", "<Q", _integer("<Q", 0, 1 << 64)),
    _number("u32-be", ">I", _integer(">I", 0, 1 << 32)),
    _number("i64-be", ">q", _integer(">q", -(1 << 10), 1 << 62)),
    _number("i32-le", "<i", _integer("<i", -(1 << 10), 1 << 30)),
    _number("f64-le", "<d", _float("<d"), _total_order("<d", 8)),
    _number("f32-be", ">f", _float(">f"), _total_order(">f", 4)),
    Layout(
        "prefixed-u16", ("--format", "prefixed:u16-le", "--key", "0..8"), _prefixed("<H"), lambda record: record[2:10]
    ),
    Layout(
        "prefixed-u32", ("--format", "prefixed:u32-be", "--key", "0..8"), _prefixed(">I"), lambda record: record[4:12]
    ),
    Layout("keyed-u32", ("--format", "keyed:u32-le"), _keyed("<"), _keyed_key("<")),
]  # fmt: skip
BY_NAME = {layout.name: layout for layout in LAYOUTS}


def make_file(layout, path, size_bytes, style="random", seed=1):
    """Writes about `size_bytes` of a layout; returns the records (for numbers: an array of them)."""
    rng = random.Random(f"{layout.name}:{style}:{seed}")
    if layout.dtype:
        records = _numbers(layout, rng, size_bytes, style)
        path.write_bytes(records.tobytes())
        return records
    sample = layout.records(rng, 64, "random")
    count = max(1, size_bytes * len(sample) // sum(map(len, sample)))
    records = layout.records(rng, count, style)
    path.write_bytes(layout.file(records))
    return records


def _numbers(layout, rng, size_bytes, style):
    """Copies of a hundred thousand numbers: enough to spill, and fast to make."""
    dtype = numpy.dtype(layout.dtype)
    count = size_bytes // dtype.itemsize
    few = numpy.frombuffer(layout.file(layout.records(rng, min(count, 100_000), style)), dtype)
    if style in ("presorted", "reversed", "displaced"):
        return numpy.repeat(few, count // len(few) + 1)[:count]
    many = numpy.tile(few, count // len(few) + 1)[:count]
    if style == "random" and dtype.kind != "f":
        noise = numpy.random.default_rng(rng.randrange(1 << 32)).integers(0, 1 << 30, count)
        many = (many.astype(many.dtype.newbyteorder("=")) ^ noise.astype(many.dtype.newbyteorder("="))).astype(dtype)
    return many


def _sorted_numbers(records):
    """By value; floats by the total order of their bits."""
    native = records.astype(records.dtype.newbyteorder("="))
    if native.dtype.kind != "f":
        return numpy.sort(native).astype(records.dtype)
    bits = native.view(f"u{native.itemsize}")
    sign = bits.dtype.type(1 << (8 * native.itemsize - 1))
    order = numpy.argsort(numpy.where(bits & sign, ~bits, bits | sign), kind="stable")
    return records[order]


def sorted_file(layout, records):
    """The sorted bytes of a file of `make_file`."""
    if layout.dtype:
        return _sorted_numbers(records).tobytes()
    return layout.file(layout.sorted(records))


# Tests of both methods follow each other, and Python takes longer to make and sort a file than the command.
@lru_cache(maxsize=1)
def file_and_sorted(layout, size_bytes, style="random"):
    """The bytes of a file of `make_file`, and the same sorted."""
    with tempfile.NamedTemporaryFile() as file:
        records = make_file(layout, Path(file.name), size_bytes, style)
        return Path(file.name).read_bytes(), sorted_file(layout, records)
