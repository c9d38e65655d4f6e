"""Sorts on a cluster of Ray whose nodes are on this machine, by Ascot and by Ray Data.

    python cluster_sort.py SESSION.json

The session names the shape of the cluster and its jobs; each job prints one line of JSON as it ends. A node has one
directory for temporary files and a raylet of its own. While a job runs, the processes of the cluster are looked at
four times a second: processor seconds by kind of process, and the bytes in the object store of each node.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cluster_programs
import common

RECORD, KEY = 100, 10
ADDRESS = "127.0.0.{}"
ADDRESS_FIRST = 60
SAMPLE_SECONDS = 0.25
TICK = os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def cluster(session: dict[str, Any]) -> Iterator[Any]:
    """Nodes of Ray on this machine, to which this process is connected."""
    import ray
    from ray.cluster_utils import Cluster

    temp = Path(session["temp"])
    # Ray lowers the priority of its workers; here all programs have the same.
    os.environ.update({"RAY_worker_niceness": "0"})
    made = Cluster()
    try:
        for number in range(session["nodes"]):
            own = temp / f"node-{number}"
            own.mkdir(parents=True, exist_ok=True)
            more = {"object_spilling_directory": str(temp / "spilled")} if number == 0 else {}
            made.add_node(
                num_cpus=session["cpus"],
                object_store_memory=session["store"],
                node_ip_address=ADDRESS.format(ADDRESS_FIRST + number),
                include_dashboard=False,
                env_vars={"ASCOT_TMPDIR": str(own)},
                **more,
            )
        ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


# ---------------------------------------------------------------- the processes while a job runs


KINDS = {b"ray::Worker": "worker", b"ray::Writer": "writer", b"ray::SpillW": "worker", b"ray::SpillS": "writer"}


def _kind(process: int) -> str:
    """The kind of a process by the name that Ray gave it: an actor of Ascot, or `ray` for all others."""
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            return KINDS.get(file.read(11), "ray")
    except OSError:
        return "ray"


class Watch:
    """Looks at the processes of a cluster while a job runs."""

    def __init__(self, made: Any) -> None:
        import ray
        from ray._private import internal_api

        groups = [group for node in made.list_all_nodes() for group in node.all_processes.values()]
        self._roots = [one.process.pid for group in groups for one in group]
        self._raylets = [(node["NodeManagerAddress"], node["NodeManagerPort"]) for node in ray.nodes()]
        self._stats = internal_api.node_stats
        self._seconds: dict[int, tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.store_peak = 0
        self.spilled = 0

    def __enter__(self) -> Watch:
        # Raises an exception if Ray does not tell.
        self._look_at_stores()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self.seconds()
            self._look_at_stores()

    def _look_at_stores(self) -> None:
        spilled = 0
        for address, port in self._raylets:
            told = self._stats(address, port, include_memory_info=False).store_stats
            self.store_peak = max(self.store_peak, told.object_store_bytes_used)
            spilled += told.spilled_bytes_total
        self.spilled = max(self.spilled, spilled)

    def seconds(self) -> dict[str, float]:
        """Processor seconds by kind of process until now, also those of processes that have ended."""
        parents: dict[int, list[int]] = {}
        found: dict[int, float] = {}
        for name in os.listdir("/proc"):
            if not name.isdecimal():
                continue
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(name))
                found[int(name)] = (int(fields[11]) + int(fields[12])) / TICK
        tree, todo = set(), list(self._roots)
        while todo:
            one = todo.pop()
            tree.add(one)
            todo += parents.get(one, [])
        with self._lock:
            for one in tree & found.keys():
                kind = self._seconds[one][0] if one in self._seconds else "ray"
                # A process of Ray gets its name when it gets its actor.
                self._seconds[one] = (_kind(one) if kind == "ray" else kind, found[one])
            told: Counter[str] = Counter()
            for kind, seconds in self._seconds.values():
                told[kind] += seconds
        told["driver"] = time.process_time()
        return dict(told)


def _less(after: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    told = {kind: round(seconds - before.get(kind, 0.0), 3) for kind, seconds in after.items()}
    return {kind: seconds for kind, seconds in told.items() if seconds > 0}


# ---------------------------------------------------------------- Ascot


def ascot_sort(job: dict[str, Any], watch: Watch) -> dict[str, Any]:
    """A sort by Ascot; `shape` of the job replaces parts of the division that Ascot chose."""
    import ascot
    import ascot.cluster
    from ascot.cluster import jobs

    marks: dict[str, dict[str, float]] = {}

    def progress(now: Any) -> None:
        marks[now.phase] = watch.seconds()

    chosen: dict[str, Any] = {}
    original = jobs.shape_of

    def shape_of(*words: Any, **named: Any) -> Any:
        made = dataclasses.replace(original(*words, **named), **job.get("shape", {}))
        chosen.update(made.to_json())
        return made

    options = dict(job.get("options", {}))
    if "settings" in options:
        options["settings"] = ascot.cluster.Settings(**options["settings"])
    jobs.shape_of = shape_of
    try:
        done = ascot.cluster.sort(
            job["input"], job["output"], layout=ascot.Fixed(RECORD, key=slice(0, KEY)),
            memory_per_node=job["memory"], progress=progress, **options,
        )  # fmt: skip
    finally:
        jobs.shape_of = original
    report = done.report
    phases = [dataclasses.asdict(phase) for phase in report.phases]
    names = list(marks)
    cpu = {after: _less(marks[after], marks[before]) for before, after in itertools.pairwise(names)}
    checked = ascot.check(list(done.outputs), layout=ascot.Fixed(RECORD, key=slice(0, KEY)))
    if not checked.is_sorted or checked.records != report.records:
        raise RuntimeError("the output of Ascot is not sorted, or has other records")
    return {
        "seconds": report.seconds, "start": report.start_seconds, "phases": phases, "shape": chosen,
        "phase_cpu": cpu, "memory_peak": report.peak_memory_bytes, "records": checked.records,
        "checksum": checked.checksum,
    }  # fmt: skip


def without_transport(job: dict[str, Any], _watch: Watch) -> dict[str, Any]:
    """Maps the chunks and appends the batches in this process: the work of the phase without a transport."""
    import ascot
    from ascot import _native
    from ascot.cluster import jobs, manifest, memory

    options = jobs.Request([job["input"]], ascot.Fixed(RECORD, key=slice(0, KEY)), None, False, {}).options
    size = os.path.getsize(job["input"])
    shape = memory.shape_of(size, job["nodes"], job["memory"], job["store"], 1, None)
    bounds, identity = _native.uniform_bounds(options, shape.partitions), bytes(16)
    room = bytearray()
    since, used = time.monotonic(), time.process_time()
    mapper = _native.ChunkMapper(options, bounds, identity, shape.chunk_bytes, shape.batch_bytes)
    files = [_native.PartitionFiles(f"{job['temp']}/direct-{at}", identity, at) for at in range(job["nodes"])]
    owned = [list(range(at, shape.partitions, len(files))) for at in range(len(files))]
    for number, span in enumerate(manifest.spans_of([(job["input"], size)], shape.chunk_bytes, RECORD)):
        mapper.map(span.to_native())
        for destination, own in enumerate(files):
            count = mapper.batches(owned[destination])
            for turn in range(count):
                about = (number, destination, owned[destination], turn, count)
                if (length := mapper.batch(room, *about)) > len(room):
                    room = bytearray(length)
                    mapper.batch(room, *about)
                own.append(memoryview(room)[:length])
    for own in files:
        own.sync()
    told = {"seconds": time.monotonic() - since, "cpu": time.process_time() - used}
    for own in files:
        own.remove()
    return told


# ---------------------------------------------------------------- Ray Data


def _read(batch: dict[str, Any]) -> Any:
    """The records of a span as a table: the key as bytes, or as two integers of the same order."""
    import numpy as np
    import pyarrow as pa

    path, start, count = batch["path"][0], int(batch["start"][0]), int(batch["count"][0])
    rows = np.fromfile(path, np.uint8, count * RECORD, offset=start).reshape(-1, RECORD)

    def binary(columns: Any) -> Any:
        data = np.ascontiguousarray(columns)
        return pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(data.shape[1]), len(data), [None, pa.py_buffer(data.tobytes())]
        )

    if not bool(batch["numbers"][0]):
        return pa.table({"key": binary(rows[:, :KEY]), "payload": binary(rows[:, KEY:])})
    high = np.ascontiguousarray(rows[:, :8]).view(">u8").ravel().astype(np.uint64)
    low = np.ascontiguousarray(rows[:, 8:KEY]).view(">u2").ravel().astype(np.uint16)
    return pa.table({"high": high, "low": low, "payload": binary(rows[:, KEY:])})


class _Writing:
    """Writes a sorted block to a file whose name is its first key."""

    def __init__(self, output: str) -> None:
        self.output = output

    def __call__(self, table: Any) -> Any:
        import numpy as np
        import pyarrow as pa

        count = table.num_rows
        if count == 0:
            return pa.table({"rows": pa.array([], pa.int64())})
        rows = np.empty((count, RECORD), np.uint8)

        def plain(name: str, width: int) -> Any:
            column = table[name].combine_chunks()
            column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
            data = np.frombuffer(column.buffers()[1], np.uint8)
            return data[column.offset * width : (column.offset + count) * width].reshape(count, width)

        if "key" in table.column_names:
            rows[:, :KEY] = plain("key", KEY)
        else:
            rows[:, :8] = table["high"].to_numpy().astype(">u8").view(np.uint8).reshape(count, 8)
            rows[:, 8:KEY] = table["low"].to_numpy().astype(">u2").view(np.uint8).reshape(count, 2)
        rows[:, KEY:] = plain("payload", RECORD - KEY)
        rows.tofile(os.path.join(self.output, f"part-{rows[0].tobytes().hex()}"))
        return pa.table({"rows": pa.array([count])})


def ray_data(job: dict[str, Any], _watch: Watch) -> dict[str, Any]:
    """A sort by Ray Data of spans of the file, to raw files."""
    import ray.data
    from ray.data.context import DataContext, ShuffleStrategy

    context = DataContext.get_current()
    context.shuffle_strategy = ShuffleStrategy(job["strategy"])
    context.enable_progress_bars = False
    size, block = os.path.getsize(job["input"]), job["block"] // RECORD * RECORD
    numbers = bool(job["numbers"])
    spans = [
        {"path": job["input"], "start": at, "count": min(block, size - at) // RECORD, "numbers": numbers}
        for at in range(0, size, block)
    ]
    output = Path(job["output"])
    output.mkdir()
    began = time.monotonic()
    rows = (
        ray.data.from_items(spans, override_num_blocks=len(spans))
        .map_batches(_read, batch_size=1)
        .sort(["high", "low"] if numbers else "key")
        .map_batches(_Writing(str(output)).__call__, batch_size=None, batch_format="pyarrow")
        .sum("rows")
    )
    subprocess.run(["sync", "-f", str(output)], check=True)
    seconds = time.monotonic() - began
    import ascot

    checked = ascot.check(sorted(map(str, output.iterdir())), layout=ascot.Fixed(RECORD, key=slice(0, KEY)))
    if not checked.is_sorted or checked.records != rows:
        raise RuntimeError("the output of Ray Data is not sorted, or has other records")
    return {"seconds": seconds, "records": checked.records, "checksum": checked.checksum}


JOBS = {
    "ascot": ascot_sort,
    "direct": without_transport,
    "ray-data": ray_data,
    "configuration": cluster_programs.run,
}


def drop_caches() -> None:
    """Syncs, and empties the page cache where that is allowed."""
    os.sync()
    if os.environ.get("ASCOT_BENCH_WARM"):
        return
    with contextlib.suppress(OSError):
        Path("/proc/sys/vm/drop_caches").write_text("3")


def main() -> None:
    session = json.loads(Path(sys.argv[1]).read_text())
    began = time.monotonic()
    with cluster(session) as made:
        print(json.dumps({"job": "start", "seconds": time.monotonic() - began}), flush=True)
        for job in session["jobs"]:
            output = Path(job["output"])
            shutil.rmtree(output, ignore_errors=True)
            if job["program"] != "configuration":
                drop_caches()
            with Watch(made) as watch:
                before = watch.seconds()
                try:
                    told = JOBS[job["program"]](job, watch)
                except Exception as error:
                    text = " ".join(str(error).split())
                    told = {"error": f"{type(error).__name__}: {text[:400]}"}
                cpu = _less(watch.seconds(), before)
            about = {"job": job["name"], "store_peak": watch.store_peak, "spilled": watch.spilled}
            print(json.dumps({**about, "all_cpu": cpu, **told}), flush=True)
            shutil.rmtree(output, ignore_errors=True)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        common.fail(error)
