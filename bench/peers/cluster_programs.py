"""Four programs on a cluster in three configurations of merging: none, map, map and reduce.

    sort       the records in the order of their keys; in the third configuration the output is a view
    terasort   the same by functions: keys are divided by range, and every record is a pair
    join       the records of a large table and of a small one with the same key, by functions
    index      an inverted index of the pages of each site: words and the pages that have them

A record has a key of ten bytes. A job tells its times, the bytes that its nodes read and wrote, and records and
checksum of what it made, which the bench compares with those of the input.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

KEY = 10
TAG = 11
# The value of a record of the small table.
NAME = 16
WORD_BYTES_MIN = 12
SAMPLE_SECONDS = 1.0
COLUMNS = ("seconds", "job_read_bytes_per_s", "job_written_bytes_per_s", "job_processors", "cpu_share")


# ---------------------------------------------------------------- the functions


def keyed(batch: Any) -> Iterator[tuple[bytes, bytes]]:
    for record in batch.column("record").to_pylist():
        yield record[:KEY], record[KEY:]


def whole(key: bytes, values: Iterator[bytes]) -> Iterator[bytes]:
    for value in values:
        yield key + value


def by_range(key: bytes, partitions: int) -> int:
    return int.from_bytes(key[:4], "big") * partitions >> 32


def joined(key: bytes, values: Iterator[bytes]) -> Iterator[bytes]:
    """The small table comes first, since its file does."""
    name = None
    for value in values:
        if value[:1] == b"S":
            name = value[1 : 1 + NAME]
        elif name is not None:
            yield key + name + value[1:]


def indexed(key: bytes, values: Iterator[bytes]) -> Iterator[bytes]:
    """A line for each word of the site that is long enough: the site, the word, and the numbers of its pages."""
    found: dict[bytes, list[str]] = {}
    for number, page in enumerate(values):
        for word in dict.fromkeys(page.split()):
            if len(word) >= WORD_BYTES_MIN:
                found.setdefault(word, []).append(str(number))
    site = key.hex().encode()
    for word in sorted(found):
        yield b"%s %s %s\n" % (site, word, ",".join(found[word]).encode())


PROGRAMS: dict[str, dict[str, Any]] = {
    "terasort": {"map": keyed, "reduce": whole, "partition": by_range},
    "join": {"map": keyed, "reduce": joined},
    "index": {"map": keyed, "reduce": indexed},
}
OPTIONS = {
    "none": {},
    "map": {"shuffle": "pull", "reduce_input": "file"},
    "map and reduce": {"shuffle": "pull"},
    "auto": {"shuffle": "auto"},
    "none, views": {"output_as": "views"},
    "auto, views": {"shuffle": "auto", "output_as": "views"},
}


def options_of(program: str, configuration: str) -> dict[str, Any]:
    """The arguments of `ascot.cluster` for a configuration."""
    found: dict[str, Any] = dict(OPTIONS[configuration])
    if program == "sort":
        found.pop("reduce_input", None)
        if configuration == "map and reduce":
            found["output_as"] = "views"
    return found


def layout_of_output(program: str, record: int) -> Any:
    """The layout of what a program writes."""
    import ascot

    if program == "index":
        return "lines"
    length = record - 1 + NAME if program == "join" else record
    return ascot.Fixed(length, key=slice(0, KEY))


# ---------------------------------------------------------------- a job


def forget(paths: list[str]) -> None:
    """Takes inputs out of the page cache; programs stay in it."""
    os.sync()
    for path in paths:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run(job: dict[str, Any], _watch: Any) -> dict[str, Any]:
    """Runs a program in a configuration."""
    import ascot
    import ascot.cluster

    program, inputs = job["workload"], job["input"]
    forget(inputs)
    usual = {"memory_per_node": job["memory"], "partitions": job["partitions"], "compress": "none", "progress": None}
    usual |= {"layout": ascot.Fixed(job["record"], key=slice(0, KEY) if program == "sort" else None)}
    usual |= options_of(program, job["configuration"])
    before, load = energy(), os.getloadavg()[0]
    if program == "sort":
        done = ascot.cluster.sort(inputs, job["output"], **usual)
    else:
        done = ascot.cluster.map_reduce(inputs, output=job["output"], **PROGRAMS[program], **usual)
    used = energy_between(before, energy())
    report = done.report
    told = {
        "seconds": report.seconds, "start": report.start_seconds, "records": report.records, "bytes": report.bytes,
        "chunks": report.chunks, "shuffle": report.shuffle, "prediction": report.prediction, "joules": used,
        "load": load, "memory_peak": report.peak_memory_bytes, "nodes": moved(report.series),
        "phases": [{"name": one.name, "began": one.began, "seconds": one.seconds} for one in report.phases],
        "series": {name: [one.column(column) for column in COLUMNS] for name, one in report.series.items()},
    }  # fmt: skip
    return {**told, **output_of(done, program, job)}


def output_of(done: Any, program: str, job: dict[str, Any]) -> dict[str, Any]:
    """Reads the output once as it is, and then checks it."""
    import ascot

    outputs = list(done.outputs)
    is_view = os.path.isdir(outputs[0])
    forget([str(path) for path in Path(job["output"]).rglob("*") if path.is_file()])
    began, size = time.monotonic(), 0
    with done.open() as file:
        while block := file.read(1 << 20):
            size += len(block)
    reading = time.monotonic() - began
    if is_view:
        outputs = [job["output"] + ".whole"]
        with done.open() as file, open(outputs[0], "wb") as out:
            shutil.copyfileobj(file, out, 1 << 20)
    layout = layout_of_output(program, job["record"])
    # Parts of the sorts are one sequence; those of other programs are in order each.
    groups = [outputs] if program in ("sort", "terasort") else [[one] for one in outputs]
    found = [ascot.check(group, layout=layout) for group in groups]
    if is_view:
        os.unlink(outputs[0])
    if program != "index" and not all(one.is_sorted for one in found):
        raise RuntimeError("the output is not in order")
    checksum = sum(int(one.checksum, 16) for one in found) % (1 << 128)
    made = {"output_records": sum(one.records for one in found), "output_checksum": f"{checksum:x}"}
    return {**made, "output_bytes": size, "reading": reading}


def moved(series: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Bytes that the processes of each node read from and wrote to storage, and their processor seconds."""
    found = {}
    for name, one in series.items():
        ends = one.column("seconds")
        # A sample stands for the time since the one before; the first one for a second at most.
        lengths = (
            [min(ends[0], SAMPLE_SECONDS), *(later - sooner for sooner, later in pairwise(ends))] if ends else []
        )
        sums = [
            sum(length * value for length, value in zip(lengths, one.column(column), strict=True))
            for column in COLUMNS[1:4]
        ]
        found[name] = dict(zip(("read", "written", "processors"), sums, strict=True))
    return found


# ---------------------------------------------------------------- energy


POWERCAP = Path("/sys/class/powercap")


def energy(powercap: Path = POWERCAP) -> dict[str, tuple[int, int]]:
    """The counters of RAPL of each package, microjoules, and where they begin anew; empty without RAPL."""
    found = {}
    for zone in sorted(powercap.glob("intel-rapl:*")) if powercap.is_dir() else []:
        # Zones with a second number are parts of a package.
        if zone.name.count(":") == 1 and os.access(zone / "energy_uj", os.R_OK):
            counts = [int((zone / name).read_text()) for name in ("energy_uj", "max_energy_range_uj")]
            found[zone.name] = (counts[0], counts[1])
    return found


def energy_between(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> float | None:
    """Joules of all packages; None without RAPL."""
    if not before:
        return None
    return sum((after[name][0] - used) % (most + 1) for name, (used, most) in before.items()) / 1e6
