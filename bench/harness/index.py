"""Indexed directories held against plain files and against other ways to find a record by its key.

Writing is timed from two ranks of one process, through the last sync, beside the same ranks writing plain files in
writes of 1 MiB. Queries are cold: the page cache is dropped, then files of a mounted directory are read, a new key
each time. They stand beside a full scan of the plain files by all cores. Peers get the same records in batches
through their Python bindings.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import shutil
import sqlite3
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import machine, measure
from .units import MIB, decimal

SCHEMES = ("records", "pointers", "ranks")
VALUES = (40, 56)
RANKS = 2
EPOCHS = 10
MEMORY_OF_A_RANK = 64 * MIB
QUERIES = 100
KEY = 8
BATCH = 100_000
MASK = (1 << 64) - 1


def _mix(numbers: np.ndarray) -> np.ndarray:
    """The finaliser of MurmurHash3, as `examples/epochs.rs` makes keys of numbers."""
    x = numbers.astype(np.uint64)
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xFF51AFD7ED558CCD)
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


def _keys(numbers: list[int]) -> list[bytes]:
    return [int(key).to_bytes(8, "big") for key in _mix(np.array(numbers, dtype=np.uint64))]


def _timed(job: Callable[[], Any]) -> float:
    since = time.perf_counter()
    job()
    return time.perf_counter() - since


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _write(epochs: str, out: Path, scheme: str, records: int, value: int) -> dict[str, Any]:
    """Writes a directory or plain files; what the example says."""
    shutil.rmtree(out, ignore_errors=True)
    measure.drop_caches()
    each = records // EPOCHS // RANKS
    words = [out, scheme, RANKS, EPOCHS, each, value, MEMORY_OF_A_RANK]
    done = subprocess.run([epochs, *map(str, words)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def _writing(epochs: str, work: Path, records: int, repeats: int) -> list[dict[str, Any]]:
    """Time and bytes of each scheme over those of plain files, in turns."""
    found = []
    for value in VALUES:
        times: dict[str, list[dict[str, Any]]] = {}
        for _ in range(repeats):
            for scheme in ("plain", *SCHEMES):
                one = _write(epochs, work / "w", scheme, records, value)
                times.setdefault(scheme, []).append(one)
                print(f"bench:   {value}-byte values, {scheme}: {one['seconds']:.2f} s", flush=True)
        plain = statistics.median(one["seconds"] for one in times["plain"])
        for scheme in SCHEMES:
            seconds = statistics.median(one["seconds"] for one in times[scheme])
            last = times[scheme][-1]
            found.append({
                "value": value, "scheme": scheme, "seconds": seconds, "plain_seconds": plain,
                "time_ratio": seconds / plain, "bytes_ratio": last["stored_bytes"] / last["raw_bytes"],
                "peak_bytes_of_a_rank": last["peak_bytes_of_a_rank"],
            })  # fmt: skip
    shutil.rmtree(work / "w", ignore_errors=True)
    return found


@contextlib.contextmanager
def _mounted(argv: list[str], at: Path) -> Iterator[Path]:
    at.mkdir(exist_ok=True)
    process = subprocess.Popen([*argv, str(at)])
    try:
        for _ in range(500):
            if os.path.ismount(at):
                break
            time.sleep(0.02)
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=False)
        process.wait(30)


def _scan_file(job: tuple[str, bytes, int]) -> list[bytes]:
    """Records of a plain file with a key, read in pieces."""
    path, key, record = job
    wanted, found = np.frombuffer(key, dtype=">u8")[0], []
    with open(path, "rb") as file:
        while piece := file.read(record * (8 * MIB // record)):
            rows = np.frombuffer(piece, dtype=np.dtype([("key", ">u8"), ("value", f"V{record - KEY}")]))
            found += [row["value"].tobytes() for row in rows[rows["key"] == wanted]]
    return found


def _scan(plain: Path, key: bytes, record: int) -> list[bytes]:
    jobs = [(str(path), key, record) for path in sorted(plain.iterdir())]
    with multiprocessing.Pool(len(os.sched_getaffinity(0))) as pool:
        return [value for values in pool.map(_scan_file, jobs) for value in values]


def _cold(job: Callable[[bytes], int], keys: list[bytes]) -> dict[str, float]:
    """Median and 99th percentile of the time of a query, in seconds."""
    times = []
    for key in keys:
        measure.drop_caches()
        since = time.perf_counter()
        assert job(key), key.hex()
        times.append(time.perf_counter() - since)
    times.sort()
    return {"median_s": statistics.median(times), "p99_s": times[min(len(times) - 1, len(times) * 99 // 100)]}


def _stats(ascot: str, directory: Path, key: bytes) -> str:
    done = subprocess.run(
        [ascot, "index", "get", directory, f"0x{key.hex()}", "--stats"], check=True, capture_output=True, text=True
    )
    return done.stderr.strip()


def _queries(ascot: str, epochs: str, work: Path, records: int, value: int) -> list[dict[str, Any]]:
    """Cold queries for all epochs of a key, by scheme, beside the scan."""
    keys = _keys(random.Random(4).sample(range(records // EPOCHS), QUERIES))
    plain = work / "plain"
    _write(epochs, plain, "plain", records, value)
    measure.drop_caches()
    scan = _timed(lambda: _scan(plain, keys[0], KEY + value))
    shutil.rmtree(plain)
    rows = [{"records": records, "way": "full scan", "median_s": scan}]
    for scheme in SCHEMES:
        directory = work / "q"
        _write(epochs, directory, scheme, records, value)
        with _mounted([ascot, "mount", "-f", str(directory), "--memory", "256MiB"], work / "mnt") as at:
            for key in _keys(list(range(64))):
                (at / key.hex()).read_bytes()

            def query(key: bytes, at: Path = at) -> int:
                return len((at / key.hex()).read_bytes()) == EPOCHS * value

            row = {"records": records, "way": scheme, **_cold(query, keys)}
        row |= {"speedup": scan / row["median_s"], "told": _stats(ascot, directory, keys[0])}
        rows.append(row)
        print(f"bench:   {decimal(records)} records, {scheme}: {1000 * row['median_s']:.2f} ms", flush=True)
        shutil.rmtree(directory)
    return rows


def _batches(records: int, value: int) -> Iterator[tuple[int, np.ndarray, bytes]]:
    """Epoch, keys, and the bytes of all values, a batch at a time."""
    rng = np.random.default_rng(5)
    for epoch in range(EPOCHS):
        for start in range(0, records // EPOCHS, BATCH):
            count = min(BATCH, records // EPOCHS - start)
            yield epoch, _mix(np.arange(start, start + count)), rng.bytes(count * value)


def _sqlite(work: Path, records: int, value: int, keys: list[bytes]) -> dict[str, Any]:
    path = work / "peer.sqlite"

    def write() -> None:
        db = sqlite3.connect(path)
        db.execute("pragma journal_mode = off")
        db.execute("pragma synchronous = off")
        db.execute("create table t (key integer, epoch integer, value blob)")
        for epoch, hashes, body in _batches(records, value):
            signed = hashes.astype(np.int64).tolist()
            db.executemany(
                "insert into t values (?, ?, ?)",
                ((key, epoch, body[at * value : (at + 1) * value]) for at, key in enumerate(signed)),
            )
        db.execute("create index by_key on t (key)")
        db.commit()
        db.close()
        with open(path, "rb") as file:
            os.fsync(file.fileno())

    seconds = _timed(write)
    db = sqlite3.connect(path)

    def query(key: bytes) -> bool:
        number = int.from_bytes(key, "big", signed=True)
        return len(db.execute("select value from t where key = ? order by epoch", (number,)).fetchall()) == EPOCHS

    row = {"way": "SQLite, index by key", "seconds": seconds, "bytes": path.stat().st_size, **_cold(query, keys)}
    db.close()
    path.unlink()
    return row


def _parquet(work: Path, records: int, value: int, keys: list[bytes]) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    paths = [work / f"peer-{epoch}.parquet" for epoch in range(EPOCHS)]

    def write() -> None:
        parts: list[list[pa.Table]] = [[] for _ in paths]
        for epoch, hashes, body in _batches(records, value):
            values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(value), len(hashes), [None, pa.py_buffer(body)])
            parts[epoch].append(pa.table({"key": hashes, "value": values}))
            if (epoch + 1 == EPOCHS or len(parts[epoch]) * BATCH >= records // EPOCHS) and parts[epoch]:
                whole = pa.concat_tables(parts[epoch]).sort_by("key")
                pq.write_table(whole, paths[epoch], write_page_index=True, compression=None, row_group_size=1 << 17)
                parts[epoch] = []
        for path in paths:
            with path.open("rb") as file:
                os.fsync(file.fileno())

    seconds = _timed(write)
    opened = [pq.ParquetFile(path) for path in paths]

    def query(key: bytes) -> bool:
        number, found = int.from_bytes(key, "big"), 0
        for file in opened:
            for group in range(file.num_row_groups):
                bounds = file.metadata.row_group(group).column(0).statistics
                if bounds.min <= number <= bounds.max:
                    table = file.read_row_group(group)
                    found += table.filter(pc.equal(table["key"], pa.scalar(number, pa.uint64()))).num_rows
        return found == EPOCHS

    row = {"way": "Parquet, sorted", "seconds": seconds, "bytes": sum(path.stat().st_size for path in paths)}
    row |= _cold(query, keys)
    for path in paths:
        path.unlink()
    return row


def _rocksdb(work: Path, records: int, value: int, keys: list[bytes], compact: bool) -> dict[str, Any]:
    from rocksdict import AccessType, Options, Rdict, WriteBatch

    path = work / "peer.rocks"
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    if not compact:
        options.set_disable_auto_compactions(True)

    def write() -> None:
        db = Rdict(str(path), options)
        for epoch, hashes, body in _batches(records, value):
            batch, suffix = WriteBatch(raw_mode=True), bytes([epoch])
            names = hashes.astype(">u8").tobytes()
            for at in range(len(hashes)):
                batch.put(names[8 * at : 8 * at + 8] + suffix, body[at * value : (at + 1) * value])
            db.write(batch)
        db.flush()
        if compact:
            db.compact_range(None, None)
        db.close()
        os.sync()

    seconds = _timed(write)
    db = Rdict(str(path), options, access_type=AccessType.read_only())

    def query(key: bytes) -> bool:
        return sum(db.get(key + bytes([epoch])) is not None for epoch in range(EPOCHS)) == EPOCHS

    name = "RocksDB, compacted" if compact else "RocksDB, no compaction"
    row = {"way": name, "seconds": seconds, "bytes": _folder_bytes(path), **_cold(query, keys)}
    db.close()
    shutil.rmtree(path)
    return row


def _peers(ascot: str, epochs: str, work: Path, records: int, value: int) -> list[dict[str, Any]]:
    """Total time to write, bytes, and cold queries, of all who can do the job."""
    keys = _keys(random.Random(6).sample(range(records // EPOCHS), QUERIES // 5))
    directory, rows = work / "p", []
    for scheme in SCHEMES:
        written = _write(epochs, directory, scheme, records, value)
        with _mounted([ascot, "mount", "-f", str(directory), "--memory", "256MiB"], work / "mnt") as at:
            (at / keys[0].hex()).exists()

            def query(key: bytes, at: Path = at) -> bool:
                return len((at / key.hex()).read_bytes()) == EPOCHS * value

            row = {"way": f"Ascot, {scheme}", "seconds": written["seconds"], "bytes": written["stored_bytes"]}
            rows.append(row | _cold(query, keys[1:]))
        shutil.rmtree(directory)
    peers: list[Callable[[], dict[str, Any]]] = [
        lambda: _rocksdb(work, records, value, keys, True),
        lambda: _rocksdb(work, records, value, keys, False),
        lambda: _sqlite(work, records, value, keys),
        lambda: _parquet(work, records, value, keys),
    ]
    for peer in peers:
        row = peer()
        rows.append(row)
        print(f"bench:   {row['way']}: {row['seconds']:.1f} s, {1000 * row['median_s']:.2f} ms", flush=True)
    return rows


def run(ascot: str, epochs: str, work: Path, records: int, repeats: int) -> dict[str, Any]:
    """Measures all of it; `records` is the larger of the two sizes that are queried."""
    print("bench: writing", flush=True)
    writing = _writing(epochs, work, records, repeats)
    print("bench: queries", flush=True)
    queries = [row for size in (records // 10, records) for row in _queries(ascot, epochs, work, size, VALUES[0])]
    print("bench: peers", flush=True)
    peers = _peers(ascot, epochs, work, records // 10, VALUES[0])
    return {
        "version": 1, "machine": machine.describe(work), "records": records, "ranks": RANKS, "epochs": EPOCHS,
        "memory_of_a_rank": MEMORY_OF_A_RANK, "writing": writing, "queries": queries, "peers": peers,
    }  # fmt: skip


def markdown(result: dict[str, Any]) -> str:
    """The result as a page."""
    count = result["records"]
    lines = [
        "# Indexed directories",
        "",
        f"{count:,} records in {EPOCHS} epochs, keys of 8 bytes, from {RANKS} ranks",
        f"of {MEMORY_OF_A_RANK // MIB} MiB each.",
        "",
        "| value | scheme | time, s | plain files, s | time over plain | bytes over raw |",
        "| ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {one['value']} | {one['scheme']} | {one['seconds']:.2f} | {one['plain_seconds']:.2f} | "
        f"{one['time_ratio']:.2f} | {one['bytes_ratio']:.3f} |"
        for one in result["writing"]
    ]
    lines += [
        "",
        f"Cold queries for a key in all {EPOCHS} epochs, {QUERIES} of each; values of {VALUES[0]} bytes:",
        "",
    ]
    lines += [
        "| records | way | median, ms | 99th percentile, ms | less than the scan |",
        "| ---: | --- | ---: | ---: | ---: |",
    ]
    for one in result["queries"]:
        p99 = f"{1000 * one['p99_s']:.2f}" if "p99_s" in one else ""
        less = f"{one['speedup']:,.0f} times" if "speedup" in one else ""
        lines.append(f"| {one['records']:,} | {one['way']} | {1000 * one['median_s']:.2f} | {p99} | {less} |")
    lines += ["", f"The same job by others, {count // 10:,} records (theirs in batches through Python):", ""]
    lines += [
        "| way | written in, s | on disk | cold query, ms | 99th percentile, ms |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for one in result["peers"]:
        times = f"{1000 * one['median_s']:.2f} | {1000 * one['p99_s']:.2f}"
        lines.append(f"| {one['way']} | {one['seconds']:.1f} | {decimal(one['bytes'])} | {times} |")
    return "\n".join(lines) + "\n"
