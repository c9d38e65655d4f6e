"""The data sets: made once, kept with a stamp, reused when complete, dropped when room is needed.

    <dir>/data/<kind>-<bytes>/data.<ext>     one file
    <dir>/data/<kind>-<bytes>/complete.json  bytes, rows, sum, version; written last: no stamp, no data set

Everything is deterministic. Records are the sort benchmark's, made by `ascot gen`; integers are uniform below
2^63, so that signed and unsigned readers agree; events are a CSV file with quoted fields (commas and doubled
quotes within, no line ends), a time stamp of microseconds, an amount with cents.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from . import oracle
from .units import decimal

# Raise this if the contents of a kind or its checksum change; older files are then made again.
VERSION = 1

# A Parquet row group holds as many rows as DuckDB's own files, which suits readers with little memory.
ROW_GROUP = 122_880


@dataclass(frozen=True)
class DataSet:
    """A complete data set on disk."""

    kind: str
    path: Path
    bytes: int
    expected: oracle.Sum


class NotEnoughDisk(Exception):
    """The volume or the bench's cap has too little space; the message names the space needed."""


@dataclass(frozen=True)
class _Kind:
    name: str
    extension: str
    row_bytes: int
    source: str = ""
    """The kind it is made from, so that all formats hold the same rows."""


KINDS = {
    kind.name: kind
    for kind in (
        _Kind("records.bin", "rec", 100),
        _Kind("records.parquet", "parquet", 100, "records.bin"),
        _Kind("lines.txt", "txt", 100),
        _Kind("u64.bin", "u64", 8),
        _Kind("u64.parquet", "parquet", 8, "u64.bin"),
        _Kind("events.csv", "csv", 0),
    )
}


class Store:
    """The data directory, which never holds more than `disk_cap` bytes of data sets and scratch together."""

    def __init__(self, root: Path, disk_cap: int, ascot: list[str], say: Callable[[str], None]) -> None:
        self.root = root / "data"
        self.disk_cap = disk_cap
        self.ascot = ascot
        self.say = say
        self.root.mkdir(parents=True, exist_ok=True)

    def _home(self, kind: str, size: int) -> Path:
        return self.root / f"{kind}-{size}"

    def find(self, kind: str, size: int) -> DataSet | None:
        """The data set, if it exists and is complete."""
        home = self._home(kind, size)
        path = home / f"data.{KINDS[kind].extension}"
        try:
            stamp = json.loads((home / "complete.json").read_text())
            whole = stamp["version"] == VERSION and path.stat().st_size == stamp["bytes"]
        except (OSError, ValueError, KeyError):
            return None
        if not whole:
            return None
        return DataSet(kind, path, stamp["bytes"], oracle.Sum(stamp["rows"], stamp["total"]))

    def ensure(self, kind: str, size: int, keep: set[tuple[str, int]], scratch: int = 0) -> DataSet:
        """Finds or makes a data set; if space is short, it removes others that are not in `keep`."""
        found = self.find(kind, size)
        if found:
            return found
        self.drop(kind, size)
        self.make_room(size * 11 // 10 + scratch, keep)
        source_kind = KINDS[kind].source
        source = self.ensure(source_kind, size, keep | {(kind, size)}) if source_kind else None
        home = self._home(kind, size)
        home.mkdir()
        path = home / f"data.{KINDS[kind].extension}"
        self.say(f"making {kind}, {decimal(size)}")
        expected = _MAKERS[kind](path, size, self.ascot, source)
        made = DataSet(kind, path, path.stat().st_size, expected)
        stamp = {"version": VERSION, "bytes": made.bytes, **expected.as_dict()}
        (home / "complete.json").write_text(json.dumps(stamp))
        return made

    def used(self) -> int:
        """Bytes of all data sets, complete or not."""
        return sum(file.stat().st_size for file in self.root.rglob("*") if file.is_file())

    def make_room(self, needed: int, keep: set[tuple[str, int]]) -> None:
        """Drops data sets that are not in `keep`, oldest first, until `needed` bytes fit cap and volume."""
        names = {f"{kind}-{size}" for kind, size in keep}
        homes = sorted((h for h in self.root.iterdir() if h.name not in names), key=lambda h: h.stat().st_mtime)
        while True:
            free = shutil.disk_usage(self.root).free
            if self.used() + needed <= self.disk_cap and needed <= free * 95 // 100:
                return
            if not homes:
                raise NotEnoughDisk(
                    f"{decimal(needed)} more needed; {decimal(self.used())} of the bench's "
                    f"{decimal(self.disk_cap)} in use, {decimal(free)} free on the volume: "
                    "give --dir on a larger volume, a higher --disk, or a smaller --size"
                )
            shutil.rmtree(homes.pop(0))

    def drop(self, kind: str, size: int) -> None:
        """Removes a data set, if it exists."""
        shutil.rmtree(self._home(kind, size), ignore_errors=True)


def _generate(path: Path, size: int, ascot: list[str], flags: list[str]) -> oracle.Sum:
    done = subprocess.run(
        [*ascot, "gen", str(size // oracle.RECORD), *flags, "-o", str(path)], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"ascot gen failed: {done.stderr.strip()}")
    return oracle.sum_records(path)


def _make_records(path: Path, size: int, ascot: list[str], _source: DataSet | None) -> oracle.Sum:
    return _generate(path, size, ascot, [])


def _make_lines(path: Path, size: int, ascot: list[str], _source: DataSet | None) -> oracle.Sum:
    return _generate(path, size, ascot, ["--ascii"])


def _make_integers(path: Path, size: int, _ascot: list[str], _source: DataSet | None) -> oracle.Sum:
    random = np.random.default_rng(64)
    result, left = oracle.Sum(), size // 8
    with path.open("wb") as file:
        while left:
            values = random.integers(0, 2**63, min(left, 1 << 22), dtype=np.uint64)
            file.write(values.astype("<u8").data)
            result.add(oracle.mix(values))
            left -= len(values)
    return result


def _binary_column(rows: np.ndarray) -> pa.Array:
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    data = np.ascontiguousarray(rows)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _write_parquet(path: Path, schema: pa.Schema, source: Path, row_bytes: int, columns: Callable) -> None:
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    with pq.ParquetWriter(path, schema, **options) as writer, source.open("rb") as file:
        while chunk := file.read(ROW_GROUP * row_bytes):
            rows = np.frombuffer(chunk, np.uint8).reshape(-1, row_bytes)
            writer.write_table(pa.Table.from_arrays(columns(rows), schema=schema))


def _make_parquet_records(path: Path, _size: int, _ascot: list[str], source: DataSet | None) -> oracle.Sum:
    assert source
    schema = pa.schema([("key", pa.binary()), ("payload", pa.binary())])

    def columns(rows: np.ndarray) -> list[pa.Array]:
        return [_binary_column(rows[:, : oracle.KEY]), _binary_column(rows[:, oracle.KEY :])]

    _write_parquet(path, schema, source.path, oracle.RECORD, columns)
    return source.expected


def _make_parquet_integers(path: Path, _size: int, _ascot: list[str], source: DataSet | None) -> oracle.Sum:
    assert source
    schema = pa.schema([("value", pa.int64())])
    _write_parquet(path, schema, source.path, 8, lambda rows: [pa.array(rows.view("<i8").ravel())])
    return source.expected


_PHRASES = (
    "login ok", "login failed, wrong password", 'user said "later"', "cart, wish list, basket",
    "payment accepted", 'card refused: "limit reached", try again', "page view", "search: red shoes, size 42",
    "export finished", "nightly report, see attachment",
)  # fmt: skip


def _event_rows(random: np.random.Generator, first: int, count: int) -> pl.DataFrame:
    tenants = random.integers(0, 50_000, count)
    micros = random.integers(0, 365 * 86_400 * 10**6, count) + 1_735_689_600_000_000
    micros += micros % 10 == 0  # a fraction that never ends in 0, so that no program shortens it in print
    frame = pl.DataFrame(
        {
            "id": np.arange(first, first + count, dtype=np.int64),
            "tenant": tenants,
            "ts": micros,
            "cents": random.integers(-10_000_000, 10_000_000, count),
            "phrase": random.integers(0, len(_PHRASES), count),
            "session": random.integers(0, 2**63, count, dtype=np.int64),
        }
    )
    phrases = pl.Series(_PHRASES, dtype=pl.String)
    return frame.select(
        "id",
        tenant=pl.format("tenant-{}", pl.col("tenant").cast(pl.String).str.zfill(5)),
        ts=pl.col("ts").cast(pl.Datetime("us")).dt.strftime("%Y-%m-%dT%H:%M:%S%.6f"),
        amount=pl.col("cents") / 100,
        message=pl.format("{}; session {}", phrases.gather(frame["phrase"]), pl.col("session")),
    )


def _make_events(path: Path, size: int, _ascot: list[str], _source: DataSet | None) -> oracle.Sum:
    random, rows, step = np.random.default_rng(2026), 0, 1 << 20
    with path.open("wb") as file:
        while (left := size - file.tell()) > 0:
            step = min(step, max(1, left // 111))  # a row has some 110 bytes
            frame = _event_rows(random, rows, step)
            frame.write_csv(file, include_header=rows == 0, float_precision=2, quote_style="necessary")
            rows += step
    return oracle.sum_events(path)


_MAKERS = {
    "records.bin": _make_records,
    "records.parquet": _make_parquet_records,
    "lines.txt": _make_lines,
    "u64.bin": _make_integers,
    "u64.parquet": _make_parquet_integers,
    "events.csv": _make_events,
}
