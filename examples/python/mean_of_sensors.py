"""Aggregates: merges sorted files of readings, and writes the mean of each sensor.

All readings of a sensor come one after the other, so memory holds one sensor at a time, however many there are.

Usage: python mean_of_sensors.py DIRECTORY [READINGS]
"""

import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import ascot
import polars

READING = ascot.Fixed(12, fields={"sensor": (0, "u32-be"), "value": (4, "f64")}, key="sensor")
MEAN = ascot.Fixed(20, fields={"sensor": (0, "u32-be"), "mean": (4, "f64"), "readings": (12, "i64")})


def make_readings(directory: Path, readings: int) -> list[Path]:
    """Writes readings, ordered by sensor in each of four files."""
    files = [directory / f"readings-{number}" for number in range(4)]
    for number, file in enumerate(files):
        rows = range(number, readings, len(files))
        file.write_bytes(b"".join(struct.pack(">I", row // 100) + struct.pack("<d", row % 100) for row in rows))
    return files


def means(inputs: list[ascot.FlowInput]) -> Iterator[tuple[int, polars.DataFrame]]:
    """Yields the mean of each sensor once the next sensor begins."""
    (readings,) = inputs
    left = polars.DataFrame(schema={"sensor": polars.UInt32, "value": polars.Float64, "readings": polars.Int64})
    for batch in readings:
        rows = polars.DataFrame(batch).with_columns(readings=polars.lit(1, polars.Int64))
        sums = polars.concat([left, rows]).group_by("sensor", maintain_order=True).sum()
        # More readings of the last sensor may come.
        left = sums[-1:]
        yield 0, mean(sums[:-1])
    yield 0, mean(left)


def mean(sums: polars.DataFrame) -> polars.DataFrame:
    """The sums of sensors, divided."""
    return sums.select("sensor", mean=polars.col("value") / polars.col("readings"), readings="readings")


def main(directory: Path, readings: int) -> None:
    files = make_readings(directory, readings)
    job = ascot.flow(
        files, [directory / "means"], means, layout=READING, output_layout=MEAN, merge=True, memory="64MiB"
    )
    print(job.report)
    found = polars.DataFrame(ascot.sort(directory / "means", layout=MEAN))
    print(f"{len(found):,} sensors, of {found['readings'].sum():,} readings")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
