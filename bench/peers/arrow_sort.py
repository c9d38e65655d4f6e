#!/usr/bin/env python3
"""Sorts Arrow batches of a generator, a 64-bit key and a 40-byte string, and drops the sorted batches as they come.

arrow_sort.py ascot|duckdb|polars|polars-streaming ROWS [--memory BYTES] [--threads N] [--unordered] [--temp DIR]

Prints one line of JSON: the seconds from the first batch to the last, the resident bytes before them, and the most
afterwards. A result with rows out of order, or with fewer, is an error.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

ROWS = 1 << 16
STRING_BYTES = 40
SCHEMA = pa.schema([("key", pa.uint64()), ("text", pa.string())])


@functools.cache
def texts() -> np.ndarray:
    """Letters, of which every batch has a part. They are there before the sort, and count as the caller's memory."""
    return np.random.default_rng(18).integers(97, 123, size=(2 * ROWS) * STRING_BYTES, dtype=np.uint8)


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """Random keys and texts."""
    random = np.random.default_rng(17)
    letters = texts()
    offsets = pa.py_buffer(np.arange(0, (ROWS + 1) * STRING_BYTES, STRING_BYTES, dtype=np.int32))
    for begin in range(0, rows, ROWS):
        count = min(ROWS, rows - begin)
        keys = pa.array(random.integers(0, 1 << 63, size=count, dtype=np.uint64))
        first = int(random.integers(0, ROWS)) * STRING_BYTES
        data = pa.py_buffer(letters[first : first + count * STRING_BYTES])
        yield pa.record_batch([keys, pa.StringArray.from_buffers(count, offsets, data)], schema=SCHEMA)


def keys_of(sorted_batches: Iterable[Any]) -> Iterator[np.ndarray]:
    """The keys of batches, each of which is dropped before the next comes."""
    return (np.asarray(pa.record_batch(batch).column(0)) for batch in sorted_batches)


def check(all_keys: Iterable[np.ndarray], rows: int) -> None:
    """Counts the keys and compares neighbours."""
    found, last = 0, np.uint64(0)
    for keys in all_keys:
        if len(keys) and (keys[0] < last or not bool(np.all(keys[1:] >= keys[:-1]))):
            raise SystemExit(f"rows from {found} on are out of order")
        found += len(keys)
        last = keys[-1] if len(keys) else last
    if found != rows:
        raise SystemExit(f"{found} rows of {rows}")


def by_ascot(args: argparse.Namespace) -> None:
    """`ascot.sort`."""
    import ascot

    memory = {"memory": args.memory} if args.memory else {}
    result = ascot.sort(batches(args.rows), key="key", threads=args.threads, temp=args.temp, **memory)
    check(keys_of(result), args.rows)


def by_duckdb(args: argparse.Namespace) -> None:
    """`order by`, as a stream of batches in and out."""
    import duckdb

    settings = {"threads": args.threads, "temp_directory": args.temp}
    if args.memory:
        settings["memory_limit"] = f"{args.memory}B"
    settings["preserve_insertion_order"] = not args.unordered
    connection = duckdb.connect(config=settings)
    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches(args.rows))
    relation = connection.from_arrow(reader)
    check(keys_of(relation.order("key").to_arrow_reader(ROWS)), args.rows)


def by_polars(args: argparse.Namespace) -> None:
    """A data frame that is sorted in memory, or the streaming engine, which reads and gives batches and may spill."""
    import polars
    from polars.io.plugins import register_io_source

    if args.program == "polars":
        frame = polars.from_arrow(pa.RecordBatchReader.from_batches(SCHEMA, batches(args.rows)))
        sorted_batches = frame.sort("key").iter_slices(ROWS)
    else:
        # A scan may be asked for some columns, rows or values only; a sort asks for all.
        def scan(*_: Any) -> Iterator[polars.DataFrame]:
            return (polars.DataFrame(batch) for batch in batches(args.rows))

        schema = {"key": polars.UInt64, "text": polars.String}
        lazy = register_io_source(scan, schema=schema).sort("key")
        sorted_batches = lazy.collect_batches(chunk_size=ROWS, maintain_order=True, engine="streaming")
    check((part["key"].to_numpy() for part in sorted_batches), args.rows)


def status(name: str) -> int:
    """A figure of this process in bytes: VmRSS, or the most resident so far, VmHWM."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))


def main() -> None:
    """Sorts once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=["ascot", "duckdb", "polars", "polars-streaming"])
    parser.add_argument("rows", type=int)
    parser.add_argument("--memory", type=int, help="cap in bytes, which Polars may exceed; default: the program's")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--unordered", action="store_true", help="DuckDB may forget the order of its input")
    parser.add_argument("--temp", default=".", help="where spills go")
    args = parser.parse_args()
    sort = {"ascot": by_ascot, "duckdb": by_duckdb}.get(args.program, by_polars)
    os.environ["POLARS_MAX_THREADS"] = str(args.threads)
    if args.memory:
        os.environ["POLARS_OOC_SPILL_DIR"] = args.temp
        os.environ["POLARS_OOC_MEMORY_BUDGET_MB"] = str(args.memory >> 20)
        os.environ["POLARS_OVERRIDE_TOTAL_MEMORY_MB"] = str(args.memory >> 20)
    # Imports and the first batch count for no one.
    __import__(args.program.partition("-")[0])
    next(batches(1))
    before = status("VmRSS")
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    since = time.perf_counter()
    sort(args)
    seconds = time.perf_counter() - since
    print(json.dumps({"seconds": seconds, "before_bytes": before, "peak_bytes": status("VmHWM")}))


if __name__ == "__main__":
    main()
