"""Aggregates: merges sorted files of readings, and writes the mean of each sensor.

All readings of a sensor come one after the other, so memory holds one sensor at a time, however many there are.

Usage: python mean_of_sensors.py DIRECTORY [READINGS]
"""

import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ascot
import pyarrow
import pyarrow.compute

READING = ascot.Fixed(12, fields={"sensor": (0, "u32-be"), "value": (4, "f64")}, key="sensor")
MEAN = ascot.Fixed(20, fields={"sensor": (0, "u32-be"), "mean": (4, "f64"), "readings": (12, "i64")})


def make_readings(directory: Path, readings: int) -> list[Path]:
    """Writes readings, ordered by sensor in each of four files."""
    files = [directory / f"readings-{number}" for number in range(4)]
    for number, file in enumerate(files):
        rows = range(number, readings, len(files))
        file.write_bytes(b"".join(struct.pack(">I", row // 100) + struct.pack("<d", row % 100) for row in rows))
    return files


def means(inputs: list[Any]) -> Iterator[tuple[int, pyarrow.Table]]:
    """Yields the sum and the number of readings of each sensor, once the next sensor begins."""
    (readings,) = inputs
    left = None
    for batch in readings:
        table = pyarrow.Table.from_batches([pyarrow.record_batch(batch)])
        table = table.append_column("readings", pyarrow.array([1] * table.num_rows, "int64"))
        if left is not None:
            table = pyarrow.concat_tables([left, table])
        sums = table.group_by("sensor", use_threads=False).aggregate([("value", "sum"), ("readings", "sum")])
        sums = sums.rename_columns(["sensor", "value", "readings"])
        # More readings of the last sensor may come.
        left = sums.slice(sums.num_rows - 1)
        yield 0, mean(sums.slice(0, sums.num_rows - 1))
    if left is not None:
        yield 0, mean(left)


def mean(sums: pyarrow.Table) -> pyarrow.Table:
    values = pyarrow.compute.divide(sums["value"], sums["readings"])
    return pyarrow.table({"sensor": sums["sensor"], "mean": values, "readings": sums["readings"]})


def main(directory: Path, readings: int) -> None:
    files = make_readings(directory, readings)
    job = ascot.flow(
        files, [directory / "means"], means, layout=READING, output_layout=MEAN, merge=True, memory="64MiB"
    )
    print(job.report)
    found = pyarrow.table(ascot.sort(directory / "means", layout=MEAN))
    print(f"{found.num_rows:,} sensors, of {pyarrow.compute.sum(found['readings']).as_py():,} readings")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
