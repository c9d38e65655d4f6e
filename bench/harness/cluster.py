"""Sorts on four nodes of Ray on this machine, beside Ray Data, Spark, one process, and limits of disk and network.

sorts     every program in turns: `ascot.cluster.sort` with each shuffle and transport that it has, Ray Data, Spark
          and `ascot sort`; beside them DiskBench and a shuffle over plain TCP
skew      keys of the benchmark's skew, Zipf's law and one key, in turns with uniform ones
sizes     files of several sizes: the object store, and the time beside that of `ascot sort`
settings  one setting changed at a time, in turns with the usual ones

All programs have the same data, cores and memory: one node has `memory`, one process has that of all nodes. Times are
without the start of Ray, of Spark's JVM and of processes, which are measured apart; they include the sync of outputs.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from . import machine, measure, oracle
from .data import Store
from .units import MIB, binary, decimal, flag_size

PEERS = Path(__file__).resolve().parent.parent / "peers"
PARTS = ("sorts", "skew", "sizes", "settings")
STORE = 80 * MIB
"""The object store of a node, bytes."""
TIMEOUT = 900.0
RECORD, KEY = oracle.RECORD, oracle.KEY
PARTITIONS = 16
"""Those of the shuffle over TCP; Ascot makes as many for four workers."""
WARM_UP_BYTES = 10_000_000
ZIPF_EXPONENT = 1.2
THREADS = (1, 2, 4)


@dataclass(frozen=True)
class Options:
    """What is measured. Sizes are bytes."""

    ascot: str
    work: Path
    size: int
    sizes: list[int]
    memory: int
    parts: list[str]
    repeats: int
    nodes: int = 4


def _say(text: str) -> None:
    print(f"bench: {text}", flush=True)


def variants() -> dict[str, dict[str, Any]]:
    """The shuffles and transports of `ascot.cluster.sort`, each with its arguments. The first is the default."""
    from ascot import cluster

    takes = inspect.signature(cluster.sort).parameters
    found: dict[str, dict[str, Any]] = {"push": {}}
    if "transport" in takes:
        found = {"push, direct": {"transport": "direct"}, "push, Ray's calls": {"transport": "ray"}}
    if "shuffle" in takes:
        found["pull"] = {"shuffle": "pull"}
    return found


@dataclass
class Bench:
    """A session: its data, and how each program is run once."""

    options: Options
    temp: Path = field(init=False)
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.temp = self.options.work / "temp"
        self.store = Store(self.options.work, 1 << 62, [self.options.ascot], _say)

    # ------------------------------------------------------------ data

    def uniform(self, size: int) -> Path:
        """Records of the sort benchmark."""
        return self.store.ensure("records.bin", size, set()).path

    def skewed(self, kind: str, size: int) -> Path:
        """Records whose keys are skewed: those of the benchmark, by Zipf's law, or all equal."""
        path = self.options.work / f"{kind.replace(' ', '-')}-{size}.rec"
        if path.exists():
            return path
        if kind == "skew":
            words = [self.options.ascot, "gen", str(size // RECORD), "--skew", "-o", str(path)]
            subprocess.run(words, check=True)
            return path
        dice = np.random.default_rng(18)
        with self.uniform(size).open("rb") as source, path.open("wb") as target:
            while chunk := source.read(RECORD << 16):
                rows = np.frombuffer(chunk, np.uint8).reshape(-1, RECORD).copy()
                ranks = dice.zipf(ZIPF_EXPONENT, len(rows)) if kind == "zipf" else np.ones(len(rows), np.int64)
                # Frequent keys are anywhere among the others.
                keys = oracle.mix(ranks.astype(np.uint64)).astype(">u8")
                rows[:, :KEY] = 0
                rows[:, :8] = keys.view(np.uint8).reshape(-1, 8)
                rows.tofile(target)
        return path

    # ------------------------------------------------------------ a run of each program

    def clear(self) -> None:
        """Removes temporary files and outputs, also those of a job that failed."""
        shutil.rmtree(self.temp, ignore_errors=True)
        self.temp.mkdir()

    def session(
        self, jobs: list[dict[str, Any]], *, store: int = STORE, cpus: int = 1, nodes: int | None = None
    ) -> list[dict[str, Any]]:
        """Starts a cluster for some jobs, and returns what it tells: the start first, then each job."""
        self.clear()
        described = {
            "nodes": nodes or self.options.nodes, "cpus": cpus, "store": store, "temp": str(self.temp),
            "jobs": [{"output": str(self.temp / "out"), **job} for job in jobs],
        }  # fmt: skip
        path = self.temp / "session.json"
        path.write_text(json.dumps(described))
        log = self.options.work / "session.log"
        with log.open("wb") as errors:
            done = subprocess.run(
                [sys.executable, str(PEERS / "cluster_sort.py"), str(path)],
                stdout=subprocess.PIPE, stderr=errors, timeout=TIMEOUT + 120 * len(jobs),
            )  # fmt: skip
        told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
        if done.returncode:
            raise RuntimeError(f"a session of the cluster failed: {measure.tail_of(log)}")
        for one in told:
            if one["job"] != "start":
                _say(f"  {one['job']}: {one.get('error') or format(one['seconds'], '.2f') + ' s'}")
        self.clear()
        return told

    def job(self, name: str, path: Path, **more: Any) -> dict[str, Any]:
        """A sort by Ascot."""
        return {"name": name, "program": "ascot", "input": str(path), "memory": self.options.memory, **more}

    def ray_data(self, name: str, path: Path, setting: dict[str, Any]) -> dict[str, Any]:
        """A sort by Ray Data."""
        return {"name": name, "program": "ray-data", "input": str(path), **setting}

    def ray_data_settings(self) -> dict[str, dict[str, Any]]:
        """Ray Data has half of a node's memory for objects, so that it spills little."""
        pull, push = "sort_shuffle_pull_based", "sort_shuffle_push_based"
        return {
            "pull, keys as integers": {"strategy": pull, "block": 16 * MIB, "numbers": True},
            "push, keys as integers": {"strategy": push, "block": 16 * MIB, "numbers": True},
            "pull, keys as bytes, larger blocks": {"strategy": pull, "block": 64 * MIB, "numbers": False},
        }

    def spark_settings(self) -> dict[str, list[str]]:
        """Spark's executors have the memory of a node as their heap."""
        heap = ["--heap", str(max(self.options.memory, 512 * MIB))]
        return {
            "64 partitions": [*heap, "--partitions", "64"],
            "64 partitions, compressed": [*heap, "--partitions", "64", "--compress"],
            "16 partitions": [*heap, "--partitions", "16"],
        }

    def spark(self, size: int, setting: list[str]) -> dict[str, Any]:
        """A sort by Spark on a local cluster of as many nodes, from Parquet to Parquet."""
        data = self.store.ensure("records.parquet", size, {("records.bin", size)})
        self.clear()
        output, log = self.temp / "out", self.options.work / "spark.log"
        words = [sys.executable, str(PEERS / "spark_sort.py"), "records", str(data.path), str(output)]
        words += ["--temp", str(self.temp), "--memory", "0", "--nodes", str(self.options.nodes), *setting]
        told = measure.run(measure.Command(words), limit=None, volume=self.temp, timeout=TIMEOUT, log=log)
        error = told.error or oracle.verify("records.parquet", output, data.expected)
        self.clear()
        if error:
            return {"error": error}
        line = next(line for line in log.read_text().splitlines() if line.startswith("sorted in "))
        return {"seconds": float(line.split()[2]), "whole": told.seconds, "cpu": told.cpu_seconds}

    def alone(self, path: Path, memory: int) -> dict[str, Any]:
        """A sort by one process."""
        self.clear()
        words = [self.options.ascot, "sort", str(path), "-o", str(self.temp / "out"), "--format", f"fixed:{RECORD}"]
        words += ["--key", f"0..{KEY}", "--memory", flag_size(memory), "--temp", str(self.temp), "--quiet"]
        log = self.options.work / "alone.log"
        told = measure.run(measure.Command(words), limit=None, volume=self.temp, timeout=TIMEOUT, log=log)
        self.clear()
        return {"error": told.error} if told.error else {"seconds": told.seconds, "cpu": told.cpu_seconds}

    def tcp(self, path: Path, threads: int, mode: str) -> dict[str, Any]:
        """The shuffle over plain TCP."""
        self.clear()
        measure.drop_caches()
        program = PEERS / "target" / "tcp_shuffle"
        words = [
            str(program),
            str(path),
            str(self.temp),
            str(self.options.nodes),
            str(PARTITIONS),
            str(threads),
            mode,
        ]
        told: dict[str, Any] = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
        if told["bytes"] != path.stat().st_size:
            raise RuntimeError(f"tcp_shuffle moved {told['bytes']} bytes of {path.stat().st_size}")
        self.clear()
        return told

    def flight(self, path: Path) -> dict[str, Any]:
        """The shuffle over Arrow Flight, which moves bytes."""
        self.clear()
        measure.drop_caches()
        words = [sys.executable, str(PEERS / "flight_shuffle.py"), str(path), str(self.temp), str(self.options.nodes)]
        told: dict[str, Any] = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
        # Whole batches of 4 MiB.
        if told["bytes"] != path.stat().st_size // (4 * MIB) * 4 * MIB:
            raise RuntimeError(f"flight_shuffle moved {told['bytes']} bytes of {path.stat().st_size}")
        self.clear()
        return told

    def disk(self, size: int) -> dict[str, Any]:
        """DiskBench: the rate at which the volume reads and writes at once, as each phase does, bytes/s."""
        self.clear()
        words = [self.options.ascot, "lab", "disk", "--input", str(self.temp), "--output", str(self.temp)]
        words += ["--bytes", f"{size}b", "--rounds", "1", "--json"]
        told = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
        self.clear()
        return {
            one["phase"]: min(one["reading"]["mean"], one["writing"]["mean"])
            for one in told["passes"]
            if one["directions"] == "both" and not one["preallocated"]
        }


def build_tcp() -> None:
    """Builds the shuffle over plain TCP."""
    (PEERS / "target").mkdir(exist_ok=True)
    source, program = PEERS / "tcp_shuffle.c", PEERS / "target" / "tcp_shuffle"
    subprocess.run(["cc", "-O3", "-o", str(program), str(source), "-pthread"], check=True)


# ---------------------------------------------------------------- the parts


def _chosen(bench: Bench, size: int) -> dict[str, Any]:
    """The settings of Ray Data and of Spark on less data, and the best of each."""
    path, settings = bench.uniform(size), bench.ray_data_settings()
    jobs = [bench.ray_data(name, path, setting) for name, setting in settings.items()]
    found = {"ray-data": dict(zip(settings, _ray_data_session(bench, jobs), strict=True))}
    found["spark"] = {name: bench.spark(size, setting) for name, setting in bench.spark_settings().items()}
    for name, one in found["spark"].items():
        _say(f"  Spark, {name}: {one.get('error') or format(one['seconds'], '.2f') + ' s'}")
    best = {}
    for program, tried in found.items():
        good = [(one["seconds"], name) for name, one in tried.items() if "seconds" in one]
        best[program] = min(good)[1] if good else None
    return {"size": size, "tried": found, "best": best}


def _ray_data_session(bench: Bench, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # The first job starts the processes of Ray Data.
    small = {**jobs[0], "name": "Ray Data, the start of its processes", "input": str(bench.uniform(WARM_UP_BYTES))}
    try:
        return bench.session([small, *jobs], store=bench.options.memory // 2)[2:]
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return [{"error": str(error)}] * len(jobs)


def _sorts(bench: Bench, keep: Callable[[Any], None]) -> dict[str, Any]:
    o = bench.options
    size, path = o.size, bench.uniform(o.size)
    expected = _checksum(path)
    choice = _chosen(bench, size // 4)
    names = variants()
    told: dict[str, Any] = {"choice": choice, "variants": list(names), "starts": [], "turns": []}
    for turn in range(o.repeats):
        _say(f"turn {turn + 1} of {o.repeats}")
        jobs = [bench.job(name, path, options=options) for name, options in names.items()]
        direct = {"name": "no transport", "program": "direct", "input": str(path), "temp": str(bench.temp)}
        jobs.append({**direct, "memory": o.memory, "store": STORE, "nodes": o.nodes})
        start, *runs = bench.session(jobs)
        told["starts"].append(start["seconds"])
        now: dict[str, Any] = {one["job"]: one for one in runs}
        # The first sort after the nodes have ended takes up to twice as long as the next one.
        bench.alone(path, o.memory * o.nodes)
        now["one process"] = bench.alone(path, o.memory * o.nodes)
        now["one process, little memory"] = bench.alone(path, max(size // 4 // MIB, 64) * MIB)
        if best := choice["best"]["ray-data"]:
            job = bench.ray_data("Ray Data", path, bench.ray_data_settings()[best])
            now["Ray Data"] = _ray_data_session(bench, [job])[0]
        if best := choice["best"]["spark"]:
            now["Spark"] = bench.spark(size, bench.spark_settings()[best])
        for mode in ("group", "move"):
            now[f"TCP, {mode}"] = min((bench.tcp(path, one, mode) for one in THREADS), key=lambda one: one["seconds"])
        now["Arrow Flight"] = bench.flight(path)
        now["disk"] = bench.disk(size // 2)
        for name, one in now.items():
            if "checksum" in one and one["checksum"] != expected:
                raise RuntimeError(f"the output of {name} has other records than the input")
            if name not in {job["job"] for job in runs} and "seconds" in one:
                _say(f"  {name}: {one['seconds']:.2f} s")
        told["turns"].append(now)
        keep(told)
    return told


def _checksum(path: Path) -> str:
    import ascot

    return ascot.check(path, layout=ascot.Fixed(RECORD, key=slice(0, KEY))).checksum


def _skew(bench: Bench, _keep: Any) -> list[dict[str, Any]]:
    o = bench.options
    paths = {"uniform": bench.uniform(o.size)} | {
        kind: bench.skewed(kind, o.size) for kind in ("skew", "zipf", "all equal")
    }
    jobs = [bench.job(kind, path) for _ in range(o.repeats) for kind, path in paths.items()]
    return bench.session(jobs)[1:]


def _sizes(bench: Bench, _keep: Any) -> list[dict[str, Any]]:
    found = []
    for size in bench.options.sizes:
        path = bench.uniform(size)
        runs = bench.session([bench.job(name, path, options=options) for name, options in variants().items()])[1:]
        # The first of them is slow, as above.
        tries = [bench.alone(path, bench.options.memory * bench.options.nodes) for _ in range(2)]
        alone = min((one["seconds"] for one in tries if "seconds" in one), default=None)
        found += [{"size": size, "alone": alone, **one} for one in runs]
        if size != bench.options.size:
            bench.store.drop("records.bin", size)
    return found


SETTINGS: dict[str, tuple[int | str, ...]] = {
    "batch": ("256KiB", "1MiB", "16MiB"),
    "ahead": (1, 4, 16),
    "connections": (1, 2, 3),
    "read_size": ("256KiB", "4MiB", "16MiB"),
    "write_size": ("1MiB", "16MiB", "256MiB"),
    "write_depth": (1, 2, 8),
    "write_memory": ("8MiB", "64MiB", "512MiB"),
}
"""Values of `ascot.cluster.Settings` beside the usual ones."""
PREDICTED = {"a sample of keys": [], "no sample": ["--uniform"], "4 connections of each pair": ["--connections", "4"]}
"""The settings that the model of a cluster has, with the flags of `ascot plan cluster`."""
PUBLISHED = ["--input", "100TB", "--nodes", "296"]
PUBLISHED_TYPE = "gce-n1-standard-32"
PUBLISHED_CORES = 32
SPARE_CORE = "2 processors, spare_cores 1"
PUBLISHED_FILE = """\
name = "gce-n1-standard-32, mappers as measured here"
usd_per_hour = 2.052
coordinator_usd_per_hour = 1.60
cores = 32
memory_bytes = 120e9
data_disk_bytes = 750e9
spill_disk_bytes = 750e9
disks = { bytes_per_s = 811.01e6, deviation = 3.83e6 }
network = [
    { peers = 100, connections = 1, bytes_per_s = 1654.82e6 },
    { peers = 299, connections = 1, bytes_per_s = 1237.19e6 },
    { peers = 100, connections = 4, bytes_per_s = 1531.76e6 },
]
"""


def settings(bench: Bench) -> dict[str, dict[str, Any]]:
    """One setting changed at a time; `shape` replaces a part of the division that Ascot chose."""
    usual = {"workers_per_node": 1}
    two = [str(bench.temp / "a"), str(bench.temp / "b")]
    changed = {
        f"{name} {value}": {"options": {**usual, "settings": {name: value}}}
        for name, values in SETTINGS.items()
        for value in values
    }
    return {
        "as it is": {},
        **changed,
        "2 workers per node": {"options": {"workers_per_node": 2}},
        SPARE_CORE: {"options": {"settings": {"spare_cores": 1}}},
        "no sample": {"options": {**usual, "uniform": True}},
        "chunks of 4 MB": {"shape": {"chunk_bytes": 4_000_000}},
        "chunks of 32 MB": {"shape": {"chunk_bytes": 32_000_000}},
        "4 partitions": {"options": {**usual, "partitions": 4}},
        "64 partitions": {"options": {**usual, "partitions": 64}},
        "two directories per node": {"options": {**usual, "temp": two}},
    }


def _settings(bench: Bench, _keep: Any) -> dict[str, Any]:
    predicted = {name: _predicted(bench, flags) for name, flags in PREDICTED.items()}
    # With mappers that are never the bottleneck, the file of the type has the times of its name.
    if _at_rate(bench, 1e15)["seconds"] != predicted["a sample of keys"]["seconds"]:
        raise RuntimeError(f"PUBLISHED_FILE is not the type {PUBLISHED_TYPE}")
    path, usual = bench.uniform(bench.options.size), {"options": {"workers_per_node": 1}}
    all_jobs = [bench.job(name, path, **{**usual, **more}) for name, more in settings(bench).items()]
    all_jobs.append(all_jobs[0])
    jobs = [job for turn in range(2) for job in (all_jobs if turn == 0 else all_jobs[::-1])]
    runs = bench.session(jobs, cpus=2)[1:]
    # The rates of the phases suffice: nodes and stages of so many runs are a megabyte.
    for phase in (phase for one in runs for phase in one.get("phases", [])):
        del phase["nodes"], phase["stages"]
    at_rates = {name: _at_rate(bench, rate) for name, rate in mapper_rates(runs).items()}
    return {"predicted": predicted, "at_rates": at_rates, "runs": runs}


def mapper_rates(runs: list[dict[str, Any]]) -> dict[str, float]:
    """For each setting, the rate at which the processors of a published node map and shuffle if each byte takes them
    as long as here, bytes/s: those of all processes but the driver, on all cores that have workers."""
    found: dict[str, list[float]] = {}
    for one in runs:
        if "phase_cpu" in one:
            phase = next(share for share in one["phases"] if share["name"] == "map and shuffle")
            kinds = one["phase_cpu"]["map and shuffle"]
            spent = sum(seconds for kind, seconds in kinds.items() if kind != "driver")
            cores = PUBLISHED_CORES - (one["job"] == SPARE_CORE)
            found.setdefault(one["job"], []).append(cores * phase["bytes"] / spent)
    return {name: statistics.median(rates) for name, rates in found.items()}


def _at_rate(bench: Bench, rate: float) -> dict[str, Any]:
    """The plan of the published sort if the mappers of a node have this rate."""
    path = bench.options.work / "node-type.toml"
    path.write_text(f"{PUBLISHED_FILE}mappers = {{ bytes_per_s = {rate:.0f} }}\n")
    return {"mappers_bytes_per_s": rate, **_predicted(bench, ["--node-type", str(path)])}


def _predicted(bench: Bench, flags: list[str]) -> dict[str, Any]:
    """The plan of the published sort of 100 TB with these flags."""
    known = [] if "--node-type" in flags else ["--node-type", PUBLISHED_TYPE]
    words = [bench.options.ascot, "plan", "cluster", *PUBLISHED, *known, *flags, "--json"]
    told: dict[str, Any] = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
    return told


def run(options: Options, save: Callable[[dict[str, Any]], None]) -> None:
    """Measures the parts, and saves the result after each part and each turn: an interrupt loses only one."""
    if "sorts" in options.parts:
        build_tcp()
    bench = Bench(options)
    versions = {"ascot": machine.command_version([options.ascot, "--version"])}
    versions |= {name: machine.package_version(name) for name in ("ray", "pyspark", "pyarrow")}
    versions["java"] = machine.java_version()
    result: dict[str, Any] = {
        "version": 1, "machine": machine.describe(options.work), "versions": versions, "size": options.size,
        "memory": options.memory, "store": STORE, "nodes": options.nodes, "repeats": options.repeats,
        "cold": not os.environ.get("ASCOT_BENCH_WARM"),
    }  # fmt: skip
    todo: dict[str, Callable[[Bench, Any], Any]] = {
        "sorts": _sorts,
        "skew": _skew,
        "sizes": _sizes,
        "settings": _settings,
    }
    for part in options.parts:
        _say(f"{part}: {decimal(options.size)}, {binary(options.memory)} on each of {options.nodes} nodes")
        result[part] = todo[part](bench, lambda told, part=part: save({**result, part: told}))
        save(result)
