"""The report of a sort on a cluster: phases with their rates, and the bottleneck of each phase and node."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

from ascot._native import bytes_text, count_text, seconds_text
from ascot.reports import row, table

__all__ = ["ClusterReport", "NodeShare", "Phase"]


@dataclass(frozen=True, slots=True)
class NodeShare:
    """The share of a node in a phase: bytes, and the seconds of its workers and of its writer in each state.

    `workers` is the number of workers. The states of a phase of mapping are `reading`, `grouping`, `blocked` (waiting
    for writers), `writing` (of the writer) and `idle`; those of sorting are `sorting` and `idle`.
    """

    node: str
    bytes: int
    workers: int
    seconds: dict[str, float]

    def bound_by(self, elapsed: float) -> str:
        """The bottleneck in a phase of so many seconds."""
        times = self.seconds
        whole = max(elapsed * self.workers, 1e-9)
        if "sorting" in times:
            return "sorting" if times["sorting"] >= whole / 2 else "idle workers"
        if times["idle"] > whole / 2:
            return "idle workers"
        if times["blocked"] > max(times["reading"], times["grouping"]):
            return "writing" if times["writing"] > elapsed / 2 else "sending"
        return "reading" if times["reading"] > times["grouping"] else "grouping"


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of the job: its time, the bytes that it processed, its nodes and its bottleneck."""

    name: str
    seconds: float
    bytes: int
    nodes: tuple[NodeShare, ...]

    @property
    def bytes_per_s(self) -> float:
        """The rate of all nodes together."""
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def bound_by(self) -> str:
        """The bottleneck of most nodes."""
        found = [node.bound_by(self.seconds) for node in self.nodes]
        return max(sorted(set(found)), key=found.count) if found else ""


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """The report of a finished job on a cluster, whose `kind` is `sort` or `map_reduce`.

    `records`, `bytes` and `checksum` are those of the sorted records; for `map_reduce` these are the pairs that `map`
    or `combine` gave, with 8 bytes each besides their own.

    Times are seconds and sizes are bytes. `start_seconds` are those of connecting and of starting actors, which are
    not part of `seconds`. `mapped_again_bytes` are bytes of the input that were read more than once because of
    faults, `sent_again_bytes` those that were sent then, and `sorted_again_bytes` those of partitions that were begun
    more than once, each at most; `repeated_batches` arrived again and were ignored.
    `lost_nodes` were excluded, each with the reason. `peak_memory_bytes` is the most memory of the job's processes
    and the object store on a node, of `memory_per_node`.
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
    lost_nodes: tuple[tuple[str, str], ...] = field(default=())

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
            rate = f"{bytes_text(phase.bytes_per_s)}/s, bound by {phase.bound_by}"
            lines.append(f"  {phase.name:<16} {seconds_text(phase.seconds)}, {bytes_text(phase.bytes)}, {rate}")
            for share in phase.nodes:
                states = ", ".join(f"{name} {seconds_text(time)}" for name, time in share.seconds.items())
                bound = share.bound_by(phase.seconds)
                lines.append(f"    {share.node}: {bytes_text(share.bytes)}, bound by {bound}: {states}")
        lines.append(f"  start            {seconds_text(self.start_seconds)} for the cluster and its actors")
        peak, cap = bytes_text(self.peak_memory_bytes), bytes_text(self.memory_per_node)
        lines.append(f"  memory           {peak} of {cap} on the fullest node, with the object store")
        again = {"read": self.mapped_again_bytes, "sent": self.sent_again_bytes, "sorted": self.sorted_again_bytes}
        if any(again.values()) or self.repeated_batches:
            told = ", ".join(f"{bytes_text(size)} {done} again" for done, size in again.items())
            lines.append(f"  faults           {told}, {self.repeated_batches} repeated batches ignored")
        lines += [f"  excluded         {node}: {reason}" for node, reason in self.lost_nodes]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        heads = ("phase", "time", "bytes", "rate", "bound by")
        rows = [
            row(
                escape(phase.name),
                seconds_text(phase.seconds),
                bytes_text(phase.bytes),
                f"{bytes_text(phase.bytes_per_s)}/s",
                escape(phase.bound_by),
            )
            for phase in self.phases
        ]
        return table(self.title(), heads, rows)
