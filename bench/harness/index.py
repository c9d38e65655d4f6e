"""Indexed directories compared with plain files and with other ways to find a record by its key.

Writing is timed from two ranks of one process, through the last sync, beside the same ranks writing plain files in
writes of 1 MiB. Queries are cold: the page cache is dropped, then files of a mounted directory are read, a new key
each time. They stand beside a full scan of the plain files by all cores. Peers get a tenth of the records, as Ascot
does beside them: RocksDB in batches, SQLite and Parquet an epoch at a time in the order of its keys, which is far
faster for them.
"""

from __future__ import annotations

import collections
import itertools
import json
import os
import random
import re
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
MEMORY_OF_A_RANK = 128 * MIB
QUERIES = 100
KEY = 8
BATCH = 100_000
MASK = (1 << 64) - 1


def _mix(numbers: np.ndarray) -> np.ndarray:
    """The finaliser of MurmurHash3, which `examples/epochs.rs` uses to make keys from numbers."""
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
    """Writes a directory or plain files; returns the output of the example."""
    shutil.rmtree(out, ignore_errors=True)
    measure.drop_caches()
    each = records // EPOCHS // RANKS
    words = [out, scheme, RANKS, EPOCHS, each, value, MEMORY_OF_A_RANK]
    done = subprocess.run([epochs, *map(str, words)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def _writing(epochs: str, work: Path, records: int, repeats: int) -> list[dict[str, Any]]:
    """Time and bytes of each scheme relative to plain files, interleaved."""
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


def _scan(scan: str, plain: Path, key: bytes, record: int) -> float:
    """Median of three times, in seconds, of reading all data for one key, cold."""
    times = []
    for _ in range(3):
        measure.drop_caches()
        done = subprocess.run([scan, plain, key.hex(), str(record)], check=True, capture_output=True, text=True)
        told = json.loads(done.stdout)
        assert told["found"] == EPOCHS, told
        times.append(told["seconds"])
    return statistics.median(times)


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


def _reads(ascot: str, directory: Path, keys: list[bytes]) -> dict[str, float]:
    """Reads and bytes of a query after opening, by epoch: mean and maximum over keys."""
    pattern = re.compile(r"in (\d+) reads: (\d+) to open, .*\((\d+) ranks? named\), .* of blocks \((\d+) in vain\)")
    found = []
    for key in keys:
        words = [ascot, "index", "get", directory, f"0x{key.hex()}", "--stats"]
        told = subprocess.run(words, check=True, capture_output=True, text=True).stderr
        match = pattern.search(told)
        assert match, told
        reads, opening, named, vain = (int(group) for group in match.groups())
        found.append((reads - opening - vain, named, vain))
    reads, named, vain = ([one[at] / EPOCHS for one in found] for at in range(3))
    return {
        "reads": statistics.mean(reads), "most_reads": max(reads),
        "ranks_named": statistics.mean(named), "in_vain": statistics.mean(vain),
    }  # fmt: skip


def _queries(ascot: str, examples: Path, work: Path, records: int, value: int) -> list[dict[str, Any]]:
    """Cold queries for all epochs of a key, by scheme, and the scan."""
    epochs = str(examples / "epochs")
    keys = _keys(random.Random(4).sample(range(records // EPOCHS), QUERIES))
    plain = work / "plain"
    _write(epochs, plain, "plain", records, value)
    scan = _scan(str(examples / "scan"), plain, keys[0], KEY + value)
    shutil.rmtree(plain)
    print(f"bench:   {records:,} records, full scan: {1000 * scan:.0f} ms", flush=True)
    rows = [{"records": records, "way": "full scan", "median_s": scan}]
    for scheme in SCHEMES:
        directory = work / "q"
        _write(epochs, directory, scheme, records, value)
        with measure.mounted([ascot, "mount", "-f", str(directory), "--memory", "256MiB"], work / "mnt") as at:
            for key in _keys(list(range(64))):
                (at / key.hex()).read_bytes()

            def query(key: bytes, at: Path = at) -> int:
                return len((at / key.hex()).read_bytes()) == EPOCHS * value

            row = {"records": records, "way": scheme, **_cold(query, keys)}
        row |= {"speedup": scan / row["median_s"], **_reads(ascot, directory, keys)}
        rows.append(row)
        print(f"bench:   {records:,} records, {scheme}: {1000 * row['median_s']:.2f} ms", flush=True)
        shutil.rmtree(directory)
    return rows


def _batches(records: int, value: int) -> Iterator[tuple[int, np.ndarray, bytes]]:
    """Epoch, keys, and the bytes of all values, a batch at a time."""
    rng = np.random.default_rng(5)
    for epoch in range(EPOCHS):
        for start in range(0, records // EPOCHS, BATCH):
            count = min(BATCH, records // EPOCHS - start)
            yield epoch, _mix(np.arange(start, start + count)), rng.bytes(count * value)


def _sent() -> int:
    """Bytes this process has sent to devices."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("write_bytes: "):
            return int(line.split()[1])
    raise RuntimeError("the system keeps no account of writes")


def _written(job: Callable[[], None]) -> dict[str, Any]:
    """Time and bytes of a peer's writing."""
    before, seconds = _sent(), _timed(job)
    return {"seconds": seconds, "written_bytes": _sent() - before}


def _making(records: int, value: int) -> float:
    """Seconds to make the records, which are part of the peers' times."""
    return min(_timed(lambda: collections.deque(_batches(records, value), maxlen=0)) for _ in range(3))


def _sorted_epochs(records: int, value: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Epoch, sorted keys, and values as rows, for peers that accept sorted keys much faster."""
    for epoch, parts in itertools.groupby(_batches(records, value), key=lambda batch: batch[0]):
        batches = list(parts)
        keys = np.concatenate([hashes for _, hashes, _ in batches])
        values = np.frombuffer(b"".join(body for _, _, body in batches), dtype=np.dtype(("V", value)))
        order = np.argsort(keys)
        yield epoch, keys[order], values[order]


def _sqlite(work: Path, records: int, value: int, keys: list[bytes]) -> dict[str, Any]:
    """A table for each epoch, in which the key is the rowid, filled in the order of keys."""
    path = work / "peer.sqlite"

    def write() -> None:
        db = sqlite3.connect(path)
        db.execute("pragma journal_mode = off")
        db.execute("pragma synchronous = off")
        for epoch, hashes, rows in _sorted_epochs(records, value):
            signed = hashes.astype(np.int64)
            order = np.argsort(signed)
            db.execute(f"create table t{epoch} (key integer primary key, value blob)")
            db.executemany(
                f"insert into t{epoch} values (?, ?)", zip(signed[order].tolist(), rows[order].tolist(), strict=True)
            )
        db.commit()
        db.close()
        with open(path, "rb") as file:
            os.fsync(file.fileno())

    row = {"way": "SQLite, by rowid", **_written(write), "bytes": path.stat().st_size}
    db = sqlite3.connect(path)
    queries = [f"select value from t{epoch} where key = ?" for epoch in range(EPOCHS)]

    def query(key: bytes) -> bool:
        number = int.from_bytes(key, "big", signed=True)
        return sum(len(db.execute(query, (number,)).fetchall()) for query in queries) == EPOCHS

    row |= _cold(query, keys)
    db.close()
    path.unlink()
    return row


def _parquet(work: Path, records: int, value: int, keys: list[bytes]) -> dict[str, Any]:
    """A sorted file with a page index for each epoch, read by DataFusion."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from datafusion import SessionConfig, SessionContext

    folder = work / "peer.parquet"
    folder.mkdir()

    def write() -> None:
        for epoch, hashes, rows in _sorted_epochs(records, value):
            values = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(value), len(rows), [None, pa.py_buffer(rows.tobytes())]
            )
            path = folder / f"{epoch}.parquet"
            table = pa.table({"key": hashes, "value": values})
            pq.write_table(
                table, path, write_page_index=True, compression=None, use_dictionary=False,
                data_page_size=32 << 10, sorting_columns=[pq.SortingColumn(0)],
            )  # fmt: skip
            with path.open("rb") as file:
                os.fsync(file.fileno())

    row = {"way": "Parquet by DataFusion", **_written(write), "bytes": _folder_bytes(folder)}
    config = SessionConfig({
        "datafusion.execution.parquet.enable_page_index": "true",
        "datafusion.execution.parquet.pushdown_filters": "true",
    })  # fmt: skip
    context = SessionContext(config)
    context.register_parquet("t", str(folder))

    def query(key: bytes) -> bool:
        asked = context.sql(f"select value from t where key = {int.from_bytes(key, 'big')}")
        return sum(batch.num_rows for batch in asked.collect()) == EPOCHS

    row |= _cold(query, keys)
    shutil.rmtree(folder)
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

    name = "RocksDB, compacted" if compact else "RocksDB, no compaction"
    row = {"way": name, **_written(write), "bytes": _folder_bytes(path)}
    db = Rdict(str(path), options, access_type=AccessType.read_only())

    def query(key: bytes) -> bool:
        return sum(db.get(key + bytes([epoch])) is not None for epoch in range(EPOCHS)) == EPOCHS

    row |= _cold(query, keys)
    db.close()
    shutil.rmtree(path)
    return row


def _peers(ascot: str, examples: Path, work: Path, records: int, value: int) -> list[dict[str, Any]]:
    """Total writing time, bytes and cold queries of all available peers."""
    keys = _keys(random.Random(6).sample(range(records // EPOCHS), QUERIES // 5))
    directory, rows = work / "p", []
    for scheme in SCHEMES:
        written = _write(str(examples / "epochs"), directory, scheme, records, value)
        with measure.mounted([ascot, "mount", "-f", str(directory), "--memory", "256MiB"], work / "mnt") as at:
            (at / keys[0].hex()).exists()

            def query(key: bytes, at: Path = at) -> bool:
                return len((at / key.hex()).read_bytes()) == EPOCHS * value

            row = {
                "way": f"Ascot, {scheme}", "seconds": written["seconds"],
                "written_bytes": written["written_bytes"], "bytes": written["stored_bytes"],
            }  # fmt: skip
            rows.append(row | _cold(query, keys[1:]))
        shutil.rmtree(directory)
    peers: list[Callable[[], dict[str, Any]]] = [
        lambda: _rocksdb(work, records, value, keys, True),
        lambda: _rocksdb(work, records, value, keys, False),
        lambda: _sqlite(work, records, value, keys),
        lambda: _parquet(work, records, value, keys),
    ]
    making = _making(records, value)
    for peer in peers:
        row = peer()
        row["making_s"] = making
        rows.append(row)
        print(f"bench:   {row['way']}: {row['seconds']:.1f} s, {1000 * row['median_s']:.2f} ms", flush=True)
    return rows


def run(ascot: str, examples: Path, work: Path, records: int, repeats: int) -> dict[str, Any]:
    """Runs all measurements; `records` is the larger of the two sizes that are queried."""
    print("bench: writing", flush=True)
    writing = _writing(str(examples / "epochs"), work, records, repeats)
    print("bench: queries", flush=True)
    queries = [row for size in (records // 10, records) for row in _queries(ascot, examples, work, size, VALUES[0])]
    print("bench: peers", flush=True)
    peers = _peers(ascot, examples, work, records // 10, VALUES[0])
    return {
        "version": 1, "machine": machine.describe(work), "records": records, "ranks": RANKS, "epochs": EPOCHS,
        "memory_of_a_rank": MEMORY_OF_A_RANK, "writing": writing, "queries": queries, "peers": peers,
    }  # fmt: skip


def _targets(result: dict[str, Any]) -> list[tuple[str, str, str, bool]]:
    """The targets: name, bound, measured value, whether it is met."""
    found = []
    for one in result["writing"]:
        time, size = {"records": (1.25, 1.10), "ranks": (1.15, 1.08)}.get(one["scheme"], (None, None))
        if time and size:
            name = f"{one['scheme']}, values of {one['value']} bytes"
            ratio, bytes_ratio = one["time_ratio"], one["bytes_ratio"]
            found.append((f"writing: {name}", f"at most {time} times plain", f"{ratio:.2f} times", ratio <= time))
            found.append((f"on disk: {name}", f"at most {size} times raw", f"{bytes_ratio:.3f}", bytes_ratio <= size))
    queries = {(one["records"], one["way"]): one for one in result["queries"]}
    large, small = result["records"], result["records"] // 10
    for scheme, least in (("records", 1000), ("pointers", 500), ("ranks", 500)):
        one, before = queries[large, scheme], queries[small, scheme]
        times = one["speedup"]
        found.append((f"query: {scheme}", f"{least} times faster than a scan", f"{times:,.0f} times", times >= least))
        asked = {"records": 2, "pointers": 3, "ranks": 2 + 2 * one["ranks_named"]}[scheme]
        reads = one["most_reads"]
        found.append((f"reads an epoch: {scheme}", f"at most {asked:g}", f"{reads:g}", reads <= asked))
        growth = one["median_s"] / before["median_s"]
        found.append((f"query: {scheme}, ten times the data", "flat", f"{growth:.2f} times", growth <= 1.5))
    peers = result["peers"]
    own = next(one for one in peers if one["way"] == "Ascot, records")
    for one in peers:
        if not one["way"].startswith("Ascot"):
            ahead = (one["seconds"] - one["making_s"]) / own["seconds"]
            found.append((f"writing beside {one['way']}", "3 times ahead", f"{ahead:.2f} times", ahead >= 3))
    return found


def markdown(result: dict[str, Any]) -> str:
    """The result as a page."""
    count = result["records"]
    lines = [
        "# Indexed directories",
        "",
        f"{count:,} records in {EPOCHS} epochs, with keys of 8 bytes, from {RANKS} ranks of "
        f"{MEMORY_OF_A_RANK // MIB} MiB each.",
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
        "| records | method | median, ms | 99th percentile, ms | faster than a scan | reads an epoch | vain reads "
        "| ranks |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for one in result["queries"]:
        p99 = f"{1000 * one['p99_s']:.2f}" if "p99_s" in one else ""
        less = f"{one['speedup']:,.0f} times" if "speedup" in one else ""
        counts = " |  | "
        if "reads" in one:
            reads = f"{one['reads']:.2f} (at most {one['most_reads']:.1f})"
            counts = f"{reads} | {one['in_vain']:.3f} | {one['ranks_named']:.2f}"
        lines.append(
            f"| {one['records']:,} | {one['way']} | {1000 * one['median_s']:.2f} | {p99} | {less} | {counts} |"
        )
    lines += ["", f"Other programs on {count // 10:,} records, passed to them in batches through Python:", ""]
    lines += [
        "| method | writing, s | of that making records, s | written to the device | on disk | query, ms "
        "| 99th percentile, ms |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for one in result["peers"]:
        times = f"{1000 * one['median_s']:.2f} | {1000 * one['p99_s']:.2f}"
        sizes = f"{decimal(one['written_bytes'])} | {decimal(one['bytes'])}"
        making = f"{one['making_s']:.2f}" if "making_s" in one else ""
        lines.append(f"| {one['way']} | {one['seconds']:.2f} | {making} | {sizes} | {times} |")
    lines += [
        "",
        "Ranks are threads of one process that exchange batches directly. Plain files use the page cache,",
        "directories bypass it; on a virtual machine that must first get the cache's memory from its host,",
        "plain files take longer. Queries of Ascot read files of a mounted directory, through the kernel;",
        "queries of the others are calls in the process that has the database open. If an epoch's filters",
        "or auxiliary tables exceed their share of a writer's memory, they have several parts, and each part",
        "costs one more read.",
    ]
    lines += ["", "| target | asked | measured | |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {what} | {asked} | {measured} | {'met' if met else 'missed'} |"
        for what, asked, measured, met in _targets(result)
    ]
    return "\n".join(lines) + "\n"
