"""The report of a job on a cluster: phases with their rates, the bottleneck of each phase and node, what each stage's
threads did, and what the nodes did over time.

Invariant: the text, the page and the JSON have the same values.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ascot import arguments
from ascot._native import bytes_text, count_text, seconds_text
from ascot.cluster.files import write_text
from ascot.cluster.series import Series
from ascot.sources import PathLike

__all__ = ["SAMPLE", "ClusterReport", "NodeShare", "Phase", "Stage", "facts_of", "shuffle_of"]

# With more nodes, the text has the fastest and the slowest one of each phase.
NODES_LISTED = 8
SAMPLE = "sample"


@dataclass(frozen=True, slots=True)
class Stage:
    """What the threads of a stage did in a phase, of all nodes together, seconds.

    They were busy, idle (waiting for work), blocked (waiting for the stage after it), or waiting for memory or for a
    disk. `threads` is the number of threads at the same time.
    """

    phase: str
    name: str
    threads: int
    busy: float
    idle: float
    blocked: float
    memory: float
    device: float

    def shares(self) -> dict[str, float]:
        """The share of each state in the time of the threads, 0 to 1."""
        times = {name: getattr(self, name) for name in ("busy", "idle", "blocked", "memory", "device")}
        whole = sum(times.values()) or 1.0
        return {name: value / whole for name, value in times.items()}


@dataclass(frozen=True, slots=True)
class NodeShare:
    """The share of a node in a phase: bytes, and the seconds of its workers and of its writer in each state.

    `workers` is the number of workers. The states of a phase of mapping are `reading`, `grouping`, `blocked` (waiting
    for writers), `memory` (waiting for space in the object store), `idle`, and of the writer `writing` (to the page
    cache) and `disk` (waiting for one of its disks); those of sorting are `sorting` and `idle`. `bounds` are the
    seconds of the passes of sorts by their bottleneck. `ended` are the seconds from the beginning of the phase to the
    end of the node's last work. `written_bytes` were written within `written_seconds`, those from the first to the
    last buffer. While records are pushed, writers append `appended_bytes`, which disks get in `written_runs` runs,
    each of one file.
    """

    node: str
    bytes: int
    workers: int
    seconds: dict[str, float]
    ended: float = 0.0
    written_bytes: int = 0
    written_seconds: float = 0.0
    appended_bytes: int = 0
    written_runs: int = 0
    bounds: dict[str, float] = field(default_factory=dict)

    @property
    def written_bytes_per_s(self) -> float | None:
        """The rate of its writers from the first to the last buffer; None for less than two buffers."""
        return self.written_bytes / self.written_seconds if self.written_seconds > 0 else None

    def bound_by(self, elapsed: float) -> str:
        """The bottleneck in a phase of `elapsed` seconds."""
        times = self.seconds
        whole = max(elapsed * self.workers, 1e-9)
        if "grouping" not in times and "sorting" not in times:
            return "reading" if times["reading"] >= whole / 2 else "idle workers"
        of_passes = max(self.bounds, key=lambda one: self.bounds[one], default="")
        if "sorting" in times:
            return of_passes or "sorting" if times["sorting"] >= whole / 2 else "idle workers"
        if times["idle"] > whole / 2:
            return "idle workers"
        if times.get("memory", 0.0) > max(times["reading"], times["grouping"], times["blocked"]):
            return "memory"
        if times["blocked"] > max(times["reading"], times["grouping"]):
            if times["writing"] + times["disk"] <= elapsed / 2:
                return "sending"
            return "disk" if times["disk"] > times["writing"] else "writing"
        return "reading" if times["reading"] > times["grouping"] else of_passes or "grouping"


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of the job: its time, the bytes that it processed, its nodes, its stages and its bottleneck.

    The bytes of a sample are those of the keys that were taken, with their places. `began` are seconds from the
    beginning of the job.
    """

    name: str
    seconds: float
    bytes: int
    nodes: tuple[NodeShare, ...]
    stages: tuple[Stage, ...] = ()
    began: float = 0.0

    @property
    def bytes_per_s(self) -> float:
        """The rate of all nodes together."""
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def bound_by(self) -> str:
        """The bottleneck of most nodes."""
        found = [node.bound_by(self.seconds) for node in self.nodes]
        return max(sorted(set(found)), key=found.count) if found else ""

    @property
    def fastest(self) -> NodeShare | None:
        """The node whose work ended first; None if none had work."""
        return min(self._worked(), key=lambda node: node.ended, default=None)

    @property
    def slowest(self) -> NodeShare | None:
        """The node whose work ended last; None if none had work."""
        return max(self._worked(), key=lambda node: node.ended, default=None)

    @property
    def mean_seconds(self) -> float:
        """The mean time until the work of a node ended."""
        return statistics.fmean(node.ended for node in self._worked()) if self._worked() else 0.0

    @property
    def spread_seconds(self) -> float:
        """The standard deviation of this time."""
        return statistics.pstdev(node.ended for node in self._worked()) if self._worked() else 0.0

    @property
    def writers_bytes_per_s(self) -> float | None:
        """The mean rate of the writers of a node from the first to the last buffer; None if it is not known."""
        known = [rate for node in self.nodes if (rate := node.written_bytes_per_s) is not None]
        return statistics.fmean(known) if known else None

    @property
    def run_bytes(self) -> float | None:
        """The mean length of the runs in which disks got what was pushed; None in other phases."""
        runs = sum(node.written_runs for node in self.nodes)
        return sum(node.appended_bytes for node in self.nodes) / runs if runs else None

    def _worked(self) -> list[NodeShare]:
        return [node for node in self.nodes if node.bytes]

    def to_json(self) -> dict[str, Any]:
        """The phase as plain values."""
        nodes = [
            {**asdict(node), "bound_by": node.bound_by(self.seconds), "written_bytes_per_s": node.written_bytes_per_s}
            for node in self.nodes
        ]
        return {
            "name": self.name,
            "began": self.began,
            "seconds": self.seconds,
            "bytes": self.bytes,
            "bytes_per_s": self.bytes_per_s,
            "bound_by": self.bound_by,
            "fastest": self.fastest and {"node": self.fastest.node, "seconds": self.fastest.ended},
            "slowest": self.slowest and {"node": self.slowest.node, "seconds": self.slowest.ended},
            "mean_seconds": self.mean_seconds,
            "spread_seconds": self.spread_seconds,
            "writers_bytes_per_s": self.writers_bytes_per_s,
            "run_bytes": self.run_bytes,
            "nodes": nodes,
            "stages": [asdict(stage) | {"shares": stage.shares()} for stage in self.stages],
        }

    def lines(self) -> list[str]:
        """The text of the phase."""
        moved = f"{bytes_text(self.bytes)}, {bytes_text(self.bytes_per_s)}/s"
        if self.name == SAMPLE:
            # A rate of what was taken would say nothing about the input.
            moved = f"{bytes_text(self.bytes)} of keys"
        lines = [f"  {self.name:<16} {seconds_text(self.seconds)}, {moved}, bound by {self.bound_by}"]
        fastest, slowest = self.fastest, self.slowest
        if fastest is not None and slowest is not None:
            ends = f"{seconds_text(fastest.ended)} ({fastest.node}) to {seconds_text(slowest.ended)} ({slowest.node})"
            spread = f"mean {seconds_text(self.mean_seconds)}, deviation {seconds_text(self.spread_seconds)}"
            lines.append(f"    nodes end after {ends}, {spread}")
        if (writers := self.writers_bytes_per_s) is not None:
            runs = f", in runs of {bytes_text(self.run_bytes)}" if self.run_bytes else ""
            lines.append(f"    writers of a node: {bytes_text(writers)}/s from the first to the last buffer{runs}")
        listed = self.nodes if len(self.nodes) <= NODES_LISTED else [one for one in (fastest, slowest) if one]
        for share in listed:
            states = ", ".join(f"{name} {seconds_text(time)}" for name, time in share.seconds.items())
            bound = share.bound_by(self.seconds)
            lines.append(f"    {share.node}: {bytes_text(share.bytes)}, bound by {bound}: {states}")
        return lines


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """The report of a finished job on a cluster, whose `kind` is `sort` or `map_reduce`.

    `records`, `bytes` and `checksum` are those of the sorted records; for `map_reduce` these are the pairs that `map`
    or `combine` gave, with 8 bytes each besides their own.

    Times are seconds and sizes are bytes. `start_seconds` are those of connecting and of starting actors, which are
    not part of `seconds`. `mapped_again_bytes` are bytes of the input that were read more than once because of
    faults, `sent_again_bytes` those that were sent then, and `sorted_again_bytes` those of partitions that were begun
    more than once, each at most; `repeated_batches` arrived again and were ignored. `fetched_bytes` were read from
    object stores, and `uploaded_bytes` written there.
    `lost_nodes` were excluded, each with the reason. `peak_memory_bytes` is the most memory of the job's processes
    and the object store on a node, of `memory_per_node`. `series` has the samples of each node over time; their times
    are seconds from the beginning of the job. `shuffle` is `push` or `pull`, and `prediction` the reason with
    `shuffle="auto"`: the fields of `ascot.cluster.prediction.Prediction`.
    """

    kind: str
    seconds: float
    start_seconds: float
    records: int
    bytes: int
    checksum: str
    partitions: int
    chunks: int
    phases: tuple[Phase, ...]
    memory_per_node: int
    peak_memory_bytes: int
    mapped_again_bytes: int = 0
    sent_again_bytes: int = 0
    sorted_again_bytes: int = 0
    repeated_batches: int = 0
    fetched_bytes: int = 0
    uploaded_bytes: int = 0
    lost_nodes: tuple[tuple[str, str], ...] = field(default=())
    series: dict[str, Series] = field(default_factory=dict, repr=False)
    shuffle: str = "push"
    prediction: dict[str, Any] | None = None

    @property
    def bytes_per_s(self) -> float:
        """The bytes of the sorted records per second."""
        return self.bytes / self.seconds if self.seconds else 0.0

    def title(self) -> str:
        """The report in one line."""
        done = "sorted" if self.kind == "sort" else "reduced"
        noun = "records" if self.kind == "sort" else "pairs"
        return (
            f"{done} {count_text(self.records)} {noun}, {bytes_text(self.bytes)}, in {seconds_text(self.seconds)} "
            f"({bytes_text(self.bytes_per_s)}/s)"
        )

    def __str__(self) -> str:
        lines = [self.title()]
        for phase in self.phases:
            lines += phase.lines()
        lines.append(f"  start            {seconds_text(self.start_seconds)} for the cluster and its actors")
        peak, cap = bytes_text(self.peak_memory_bytes), bytes_text(self.memory_per_node)
        lines.append(f"  memory           {peak} of {cap} on the fullest node, with the object store")
        if self.fetched_bytes or self.uploaded_bytes:
            moved = f"{bytes_text(self.fetched_bytes)} read, {bytes_text(self.uploaded_bytes)} written"
            lines.append(f"  object stores    {moved}")
        if self.prediction is not None:
            lines.append(f"  shuffle          {shuffle_of(self.to_json())}")
        again = {"read": self.mapped_again_bytes, "sent": self.sent_again_bytes, "sorted": self.sorted_again_bytes}
        if any(again.values()) or self.repeated_batches:
            told = ", ".join(f"{bytes_text(size)} {done} again" for done, size in again.items())
            lines.append(f"  faults           {told}, {self.repeated_batches} repeated batches ignored")
        lines += [f"  excluded         {node}: {reason}" for node, reason in self.lost_nodes]
        return "\n".join(lines + self._stage_lines())

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What the stages of all phases did."""
        return tuple(stage for phase in self.phases for stage in phase.stages)

    def _stage_lines(self) -> list[str]:
        if not self.stages:
            return []
        lines = [f"  {'stage':<32}{'threads':>8}{'busy':>8}{'idle':>8}{'blocked':>9}{'memory':>8}{'disk':>8}"]
        for stage in self.stages:
            busy, idle, blocked, memory, device = (f"{share:.0%}" for share in stage.shares().values())
            name = f"{stage.phase}: {stage.name}"
            lines.append(f"  {name:<32}{stage.threads:>8}{busy:>8}{idle:>8}{blocked:>9}{memory:>8}{device:>8}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """The report as plain values (docs/formats/cluster.md)."""
        plain = ("kind", "seconds", "start_seconds", "records", "bytes", "checksum", "partitions", "chunks",
                 "memory_per_node", "peak_memory_bytes", "mapped_again_bytes", "sent_again_bytes",
                 "sorted_again_bytes", "repeated_batches", "fetched_bytes", "uploaded_bytes", "shuffle",
                 "prediction")  # fmt: skip
        return {
            "title": self.title(),
            **{name: getattr(self, name) for name in plain},
            "bytes_per_s": self.bytes_per_s,
            "phases": [phase.to_json() for phase in self.phases],
            "lost_nodes": [list(one) for one in self.lost_nodes],
            "series": {node: series.to_json() for node, series in self.series.items()},
        }

    def to_html(self) -> str:
        """The page that `save_html` writes."""
        from ascot.cluster.pages import report_page

        return report_page(self.to_json())

    def save_html(self, path: PathLike) -> None:
        """Writes the report to `path` as a page that needs nothing else: tables, and charts of each node over time.

        Raises OSError if it cannot be written.
        """
        whole, target = self.to_html(), arguments.path("path", path)
        write_text(target, whole)

    def _repr_html_(self) -> str:
        from ascot.cluster.pages import notebook

        return notebook(self.to_json())


def facts_of(job: dict[str, Any]) -> dict[str, Any]:
    """What the report of a job has from its request."""
    named = {name: job[name] for name in ("kind", "memory_per_node", "shuffle")}
    return {**named, "prediction": job.get("prediction")}


def shuffle_of(report: Mapping[str, Any]) -> str:
    """The shuffle of a report as plain values, with the prediction that chose it."""
    # Reports of earlier versions have none of both.
    shuffle, prediction = report.get("shuffle", "push"), report.get("prediction")
    if prediction is None:
        return str(shuffle)
    mean = prediction["bytes"] / max(1, prediction["records"])
    one = f"{prediction['merge_seconds'] * 1e9:.0f} ns"
    return (
        f"{shuffle}: merging {count_text(prediction['records'])} records of {mean:.0f} B, {one} each, "
        f"{seconds_text(prediction['merging_seconds'])}; {bytes_text(prediction['saved_bytes'])} less to write and "
        f"read, {seconds_text(prediction['saving_seconds'])}"
    )
