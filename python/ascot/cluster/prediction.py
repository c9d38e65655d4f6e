"""Predicts whether records are merged when they are fetched (`shuffle="pull"`) or wait in files (`"push"`).

A job that pulls writes and reads less, and merges every record twice more: on the node that has it, and on the one
that gets it. The bytes cost time of the disks, and the merges cost time of the processors: the smaller the records
are, the more. So small records fall back to files (section 3.2.3 of the ActiveSort paper):

    saving  = bytes that are not written and read / rates of the volume      on each node
    merging = records x seconds of a merge x 2 + bytes x seconds of a call   on each node, by its workers at once

The seconds of a merge are measured before the job begins: TRIAL_CHUNKS pieces of the input, or the pairs that `map`
gives for them, are sorted as a chunk is, and read merged. The rates are those of the profile of the volume, as for a
plan.

Invariant: a trial that fails decides for files; if the job meets the same fault, it tells it.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from time import process_time
from typing import Any, NamedTuple

from ascot import _native, errors
from ascot.cluster.functions import Functions
from ascot.cluster.manifest import Span
from ascot.cluster.object_files import ObjectFiles
from ascot.cluster.objects import Stores
from ascot.cluster.spills import PairSpiller

__all__ = ["Prediction", "Trial", "Volume", "predict", "predicted"]

TRIAL_CHUNKS = 4
TRIAL_CHUNK_BYTES = 1 << 20
TRIAL_MEMORY_BYTES = 32 << 20
# The merge of a trial is repeated in the same memory, as a job merges part after part: the first one also pays for
# pages that no one has touched, up to four times the merge. The fastest one has met the least of other programs.
TRIALS = 5
READ_BYTES = 1 << 20
# Processor seconds by which fetches by calls of Ray exceed connections of native code, for each byte: "Processor
# seconds per GB in map and shuffle" in bench/results/2026-11-26-cluster. Over connections a fetch costs no more than
# what a job that pushes sends.
CALL_SECONDS_PER_BYTE = 5.3e-9
# A record is merged by the server that has it and by the worker that gets it.
MERGES = 2
# A partition is sorted in memory if this multiple of its bytes is there: for its records and their index.
SORT_MEMORY = 1.25


class Trial(NamedTuple):
    """What merging a part of the input showed: the bytes that were read, the records and bytes that were merged, and
    the processor seconds of that."""

    read_bytes: int
    records: int
    bytes: int
    seconds: float


class Volume(NamedTuple):
    """The rates of the volume for temporary files, bytes per second."""

    read_bytes_per_s: float
    written_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """Why a job with `shuffle="auto"` pushes or pulls.

    `records` and `bytes` are those between the passes. `merge_seconds` are the measured processor seconds of merging
    a record once. `saved_bytes` are written and read only by a job that pushes; that takes `saving_seconds` of the
    disks of a node, and merging takes `merging_seconds` of its processors.
    """

    shuffle: str
    records: int
    bytes: int
    merge_seconds: float
    merging_seconds: float
    saved_bytes: int
    saving_seconds: float

    @property
    def record_bytes(self) -> float:
        """Mean bytes of a record."""
        return self.bytes / max(1, self.records)

    def to_json(self) -> dict[str, Any]:
        """The prediction as plain values."""
        return asdict(self)


def predict(
    trial: Trial,
    volume: Volume,
    total: int,
    nodes: int,
    shape: dict[str, Any],
    *,
    has_functions: bool,
    views: bool,
    transport: str = "direct",
) -> Prediction:
    """The prediction for `total` bytes of input on `nodes` nodes.

    >>> shape = {"workers": 1, "partitions": 64, "sort_bytes": 1 << 30, "chunk_bytes": 1 << 26}
    >>> small = Trial(read_bytes=1 << 22, records=1 << 18, bytes=1 << 22, seconds=0.1)
    >>> large = small._replace(records=1 << 10, seconds=0.002)
    >>> disk = Volume(150e6, 150e6)
    >>> def chosen(trial):
    ...     return predict(trial, disk, 10**9, 4, shape, has_functions=True, views=False).shuffle
    >>> chosen(small), chosen(large)
    ('push', 'pull')
    """
    whole = total / max(1, trial.read_bytes)
    records, size = round(trial.records * whole), round(trial.bytes * whole)
    merge = trial.seconds / max(1, trial.records)
    # The more streams a merge has, the more comparisons.
    chunks = max(TRIAL_CHUNKS, total / nodes / shape["chunk_bytes"])
    merge *= math.log2(chunks) / math.log2(TRIAL_CHUNKS)
    written = int(has_functions)
    if size / shape["partitions"] * SORT_MEMORY > shape["sort_bytes"]:
        # Partitions are sorted out of core.
        written += 1
    merging = 0.0
    if views:
        # Parts are views either way, and nothing is fetched; records are not written as partitions first.
        written = 1
    else:
        calls = CALL_SECONDS_PER_BYTE * size if transport == "ray" else 0.0
        merging = (MERGES * merge * records + calls) / nodes / shape["workers"]
    saving = written * size / nodes * (1 / volume.written_bytes_per_s + 1 / volume.read_bytes_per_s)
    return Prediction(
        shuffle="pull" if saving > merging else "push",
        records=records,
        bytes=size,
        merge_seconds=merge,
        merging_seconds=merging,
        saved_bytes=2 * written * size,
        saving_seconds=saving,
    )


def predicted(
    job: dict[str, Any], spans: Sequence[Span], nodes: int, functions: Functions | None, stores: Stores | None = None
) -> Prediction | None:
    """The prediction for a job that has `spans` as its chunks; None without records, and if the trial fails."""
    options, shape = job["options"], job["shape"]
    if not spans:
        return None
    usual = os.environ.get("ASCOT_TMPDIR") or os.environ.get("TMPDIR") or job["usual_temp"]
    place: str = (options["temp"] or [usual])[0]
    objects = ObjectFiles(stores or Stores(), job, lambda: [place])
    try:
        os.makedirs(place, exist_ok=True)
        trial = _tried(job, _beginnings(spans, job["record_bytes"]), functions, place, objects)
        # The volume does not depend on the bytes that are sorted.
        with objects.chunk(spans[0].to_native() | {"end": spans[0].start}) as first:
            bytes_alone = {"layout": "fixed:1", "keys": [], "order": "", "reverse": False, "header": False}
            records = {**options["records"], **bytes_alone}
            about = {**options, "records": records, "inputs": [first["path"]], "temp": [place]}
            found = json.loads(_native.explain(about)[0])["result"]["plan"]["volume"]
    except (OSError, errors.AscotError):
        return None
    volume = Volume(found["read_bytes_per_s"], found["write_bytes_per_s"])
    total = sum(span.bytes for span in spans)
    way = {"views": job["views"], "transport": job["transport"]}
    return predict(trial, volume, total, nodes, shape, has_functions=functions is not None, **way)


class TrialSpiller(PairSpiller):
    """Maps in the process of the program, where KeyboardInterrupt is Ctrl-C, and ends the job."""

    faults = (Exception, SystemExit)


def _tried(
    job: dict[str, Any], spans: Sequence[Span], functions: Functions | None, parent: str, objects: ObjectFiles
) -> Trial:
    """Sorts parts of the input to runs, each as a chunk, and measures a merge of them."""
    options = {**job["options"], "inputs": [], "temp": [], "memory": TRIAL_MEMORY_BYTES}
    longest = max(TRIAL_CHUNK_BYTES, job["record_bytes"])
    spiller = None
    if functions is not None:
        # A partition does not matter for the sizes of pairs.
        one = {**job["shape"], "chunk_bytes": 4 * longest, "partitions": 1}
        spiller = TrialSpiller(options, functions._replace(partition=None), bytes(16), one)
    bounds = _native.uniform_bounds(options, 1)
    read = records = size = 0
    chunks = []
    with tempfile.TemporaryDirectory(prefix=".ascot-trial-", dir=parent) as directory:
        for number, span in enumerate(spans):
            name = os.path.join(directory, f"chunk-{number}")
            with objects.chunk(span.to_native()) as local:
                if spiller is None:
                    told, sizes = _native.spill_chunk(options, bounds, local, longest, name)
                    result = json.loads(told[0])["result"]
                else:
                    result, sizes = spiller.spill(local, options, name)
            chunks.append((name, _native.seal_chunk(name, sizes)))
            read, records, size = read + span.bytes, records + result["records_in"], size + result["bytes_in"]
        return Trial(read, records, size, _seconds_of_merge(chunks))


def _seconds_of_merge(chunks: list[tuple[str, int]]) -> float:
    """The processor seconds of merging the only partition of `chunks`."""
    merged = _native.SpilledChunks(chunks, TRIAL_MEMORY_BYTES, 1)

    def merge() -> float:
        began, at = process_time(), 0
        while batch := merged.read(0, at, READ_BYTES):
            at += len(batch)
        return process_time() - began

    return min(merge() for _ in range(TRIALS))


def _beginnings(spans: Sequence[Span], record_bytes: int) -> list[Span]:
    """The beginnings of TRIAL_CHUNKS chunks that are spread evenly, in the order of the inputs and of whole records
    if all have the same length."""
    length = max(record_bytes, TRIAL_CHUNK_BYTES // record_bytes * record_bytes)
    count = min(TRIAL_CHUNKS, len(spans))
    chosen = [spans[at * len(spans) // count] for at in range(count)]
    return [replace(one, end=min(one.end, one.start + length)) for one in chosen]
