"""Checks an output: order, number of rows, and a sum over all rows that does not depend on their order.

The sum of a data set is taken once when it is made; every output of every contender is held against it, so
a contender that drops, repeats or damages rows is found out. Nothing here uses a contender's own code,
Polars's row hash for CSV excepted (it hashes both sides alike).

    fixed rows   h = sum of (16-bit words times odd constants), mixed; the same for a raw record and for its
                 (key, payload) columns in Parquet, since both are taken over the same 50 words
    integers     the value, mixed
    CSV rows     fields parsed and typed first, so that quoting and number spelling may differ
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq

RECORD, KEY = 100, 10
_CHUNK_ROWS = 1 << 20
_WEIGHTS = np.random.default_rng(2_718_281).integers(0, 2**63, RECORD // 2, dtype=np.uint64) * 2 + 1
_MIX = np.uint64(0x9E3779B97F4A7C15)


class WrongOutput(Exception):
    """An output that is not the sorted input; the message says where."""


@dataclass
class Sum:
    """Rows and their order-independent sum, modulo 2^64."""

    rows: int = 0
    total: int = 0

    def add(self, hashes: np.ndarray) -> None:
        self.rows += len(hashes)
        self.total = (self.total + int(hashes.sum(dtype=np.uint64))) % 2**64

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


def mix(values: np.ndarray) -> np.ndarray:
    """Mixes u64 values so that their sum distinguishes multisets."""
    values = (values ^ (values >> np.uint64(32))) * _MIX
    return (values ^ (values >> np.uint64(29))) * _MIX


def _weigh(rows: np.ndarray, first_word: int) -> np.ndarray:
    words = np.ascontiguousarray(rows).view("<u2").astype(np.uint64)
    return words @ _WEIGHTS[first_word : first_word + words.shape[1]]


def hash_records(rows: np.ndarray) -> np.ndarray:
    """One hash per 100-byte row of a (n, 100) byte matrix."""
    return mix(_weigh(rows, 0))


def hash_columns(keys: np.ndarray, payloads: np.ndarray) -> np.ndarray:
    """The same hash as `hash_records`, from the key and payload matrices apart."""
    return mix(_weigh(keys, 0) + _weigh(payloads, KEY // 2))


class _Order:
    """Checks that rows ascend by their first `width` bytes, within and across chunks."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.last: np.ndarray | None = None
        self.row = 0

    def see(self, rows: np.ndarray) -> None:
        if not len(rows):
            return
        keys = rows[:, : self.width]
        if self.last is not None:
            keys = np.concatenate([self.last, keys])
        prefix = np.ascontiguousarray(keys[:, :8]).view(">u8").ravel().astype(np.uint64)
        if (prefix[1:] < prefix[:-1]).any():
            at = int(np.argmax(prefix[1:] < prefix[:-1]))
            raise WrongOutput(f"not sorted near row {self.row + at + 1}")
        for equal in np.flatnonzero(prefix[1:] == prefix[:-1]):
            if keys[equal].tobytes() > keys[equal + 1].tobytes():
                raise WrongOutput(f"not sorted near row {self.row + int(equal) + 1}")
        self.last = keys[-1:].copy()
        self.row += len(rows)


def _fixed_chunks(path: Path, width: int) -> Iterator[np.ndarray]:
    size = path.stat().st_size
    if size % width:
        raise WrongOutput(f"{size} bytes are no whole number of {width}-byte rows")
    with path.open("rb") as file:
        while chunk := file.read(width * _CHUNK_ROWS // 4):
            yield np.frombuffer(chunk, np.uint8).reshape(-1, width)


def sum_records(path: Path, ordered_by: int = 0) -> Sum:
    """The sum of a file of 100-byte rows; with `ordered_by`, checks the order of that many leading bytes."""
    result, order = Sum(), _Order(ordered_by)
    for rows in _fixed_chunks(path, RECORD):
        if ordered_by:
            order.see(rows)
        result.add(hash_records(rows))
    return result


def sum_integers(path: Path, ordered: bool = False) -> Sum:
    """The sum of a file of little-endian 64-bit integers."""
    result, last = Sum(), None
    for rows in _fixed_chunks(path, 8):
        values = np.ascontiguousarray(rows).view("<u8").ravel()
        last = _see_integers(result, values, last) if ordered else None
        if not ordered:
            result.add(mix(values))
    return result


def _see_integers(result: Sum, values: np.ndarray, last: np.uint64 | None) -> np.uint64 | None:
    if not len(values):
        return last
    if (last is not None and values[0] < last) or (values[1:] < values[:-1]).any():
        raise WrongOutput(f"not sorted after row {result.rows}")
    result.add(mix(values))
    return values[-1]


def parquet_files(path: Path) -> list[Path]:
    """The files of a Parquet output in order: itself, or the parts of a directory."""
    if path.is_dir():
        return sorted(part for part in path.rglob("*.parquet") if not part.name.startswith((".", "_")))
    return [path]


def _parquet_batches(path: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
    for part in parquet_files(path):
        file = pq.ParquetFile(part, memory_map=False)
        yield from file.iter_batches(batch_size=_CHUNK_ROWS // 8, columns=columns)


def _matrix(column: pa.Array, width: int) -> np.ndarray:
    """A column of byte strings of one length as a byte matrix."""
    if column.null_count:
        raise WrongOutput("nulls where there were none")
    binary = column.cast(pa.large_binary())
    offsets = np.frombuffer(binary.buffers()[1], np.int64)[binary.offset : binary.offset + len(binary) + 1]
    if len(binary) and (np.diff(offsets) != width).any():
        raise WrongOutput(f"a value that is not {width} bytes long")
    data = np.frombuffer(binary.buffers()[2], np.uint8) if len(binary) else np.empty(0, np.uint8)
    return data[offsets[0] : offsets[-1]].reshape(-1, width)


def check_parquet_records(path: Path) -> Sum:
    """Order by key and sum of Parquet records (columns `key`, `payload`)."""
    result, order = Sum(), _Order(KEY)
    for batch in _parquet_batches(path, ["key", "payload"]):
        keys = _matrix(batch.column("key"), KEY)
        order.see(keys)
        result.add(hash_columns(keys, _matrix(batch.column("payload"), RECORD - KEY)))
    return result


def check_parquet_integers(path: Path) -> Sum:
    """Order and sum of Parquet integers (column `value`)."""
    result, last = Sum(), None
    for batch in _parquet_batches(path, ["value"]):
        values = batch.column("value").to_numpy(zero_copy_only=False).astype(np.uint64)
        last = _see_integers(result, values, last)
    return result


CSV_TYPES = {
    "id": pa.int64(),
    "tenant": pa.string(),
    "ts": pa.timestamp("us"),
    "amount": pa.float64(),
    "message": pa.string(),
}


def _csv_batches(path: Path) -> Iterator[pa.RecordBatch]:
    return pyarrow.csv.open_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(block_size=32 << 20),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=CSV_TYPES, include_columns=list(CSV_TYPES), strings_can_be_null=False
        ),
    )


def _hash_events(batch: pa.RecordBatch) -> np.ndarray:
    import polars

    cents = pc.cast(pc.round(pc.multiply(batch.column("amount"), 100.0)), pa.int64())
    frame = polars.DataFrame(batch.set_column(batch.schema.get_field_index("amount"), "amount", cents))
    return frame.hash_rows(seed=1).to_numpy()


def _check_event_order(tenant: pa.Array, ts: pa.Array, row: int) -> None:
    """Order by tenant ascending, then by ts descending."""
    before, after = tenant.slice(0, len(tenant) - 1), tenant.slice(1)
    falls = pc.less(ts.slice(0, len(ts) - 1), ts.slice(1))
    wrong = pc.or_(pc.greater(before, after), pc.and_(pc.equal(before, after), falls))
    if pc.any(wrong).as_py():
        at = pc.index(wrong, True).as_py()
        raise WrongOutput(f"not sorted near row {row + at + 1}")


def sum_events(path: Path, ordered: bool = False) -> Sum:
    """The sum of a CSV file of events; `ordered` checks the order by tenant, then ts downwards."""
    result = Sum()
    last: tuple[pa.Array, pa.Array] | None = None
    for batch in _csv_batches(path):
        if not batch.num_rows:
            continue
        tenant, ts = batch.column("tenant"), batch.column("ts")
        if ordered:
            keys = (tenant, ts)
            if last:
                keys = (pa.concat_arrays([last[0], tenant]), pa.concat_arrays([last[1], ts]))
            _check_event_order(keys[0], keys[1], result.rows)
            last = (tenant.slice(len(tenant) - 1), ts.slice(len(ts) - 1))
        result.add(_hash_events(batch))
    return result


def check(kind: str, path: Path) -> Sum:
    """Order and sum of an output of the given kind (see `data.OUTPUT_KINDS`); WrongOutput if out of order."""
    checks: dict[str, Any] = {
        "records.bin": lambda: sum_records(path, KEY),
        "records.parquet": lambda: check_parquet_records(path),
        "lines.txt": lambda: sum_records(path, RECORD - 2),
        "u64.bin": lambda: sum_integers(path, ordered=True),
        "u64.parquet": lambda: check_parquet_integers(path),
        "events.csv": lambda: sum_events(path, ordered=True),
    }
    try:
        return checks[kind]()
    except (pa.ArrowException, OSError) as error:
        raise WrongOutput(f"cannot be read: {str(error).splitlines()[0]}") from error


def verify(kind: str, path: Path, expected: Sum) -> str:
    """Empty if the output is the sorted input, otherwise the fault."""
    try:
        found = check(kind, path)
    except WrongOutput as wrong:
        return f"wrong output: {wrong}"
    if found.rows != expected.rows:
        return f"wrong output: {found.rows} rows instead of {expected.rows}"
    return "" if found.total == expected.total else "wrong output: the rows are not those of the input"
