"""Plans and simulations of data that need not exist, and profiles of volumes: their figures, with text and HTML."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from html import escape
from json import loads
from typing import TYPE_CHECKING, Any, TypeVar

from ascot import arguments
from ascot._native import bytes_text, count_text, seconds_text
from ascot.errors import of_system
from ascot.reports import Told, bar, in_python, row, table

if TYPE_CHECKING:
    from ascot.sources import PathLike

__all__ = [
    "Alternative",
    "BowtiePlan",
    "CheapestCluster",
    "ClusterPhase",
    "ClusterPlan",
    "FilesPass",
    "FilesPlan",
    "Profile",
    "Simulation",
]

# The heads of a table of facts.
_FACTS = ("", "")


@dataclass(frozen=True, slots=True)
class BowtiePlan(Told):
    """The plan of one bowtie, for any amount of data.

    `schedule` is the algorithm. `run_bytes` is the mean length of a run, None where a stream never switches.
    `bytes_per_s` are the bytes read and written in a second, `equal_parts_bytes_per_s` with equal parts of memory.
    `data` has all facts, as in the JSON of `ascot plan bowtie`.
    """

    inputs: int
    outputs: int
    schedule: str
    memory_bytes: int
    run_bytes: float | None
    bytes_per_s: float
    equal_parts_bytes_per_s: float
    data: dict[str, Any] = field(repr=False)
    text: str = field(repr=False)

    def _repr_html_(self) -> str:
        facts = {
            "schedule": self.schedule,
            "memory": bytes_text(self.memory_bytes),
            "runs": _run_text(self.run_bytes),
            "rate": f"{bytes_text(self.bytes_per_s)}/s",
            "with equal parts": f"{bytes_text(self.equal_parts_bytes_per_s)}/s",
        }
        return _table_of(f"bowtie {self.inputs} x {self.outputs}", facts)


@dataclass(frozen=True, slots=True)
class FilesPass:
    """One pass: `bowties` of `inputs` and `outputs` files each, one after the other; its time and its bytes."""

    inputs: int
    outputs: int
    bowties: int
    schedule: str
    seconds: float
    read_bytes: float
    written_bytes: float
    switches: float


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way to do a job, and what it costs: its time, the bytes it moves, its switches and its passes.

    `seconds` is None if the memory does not allow it.
    """

    name: str
    seconds: float | None
    bytes: float
    switches: float
    passes: int


@dataclass(frozen=True, slots=True)
class FilesPlan(Told):
    """The plan of a merge, split or reshape of files that need not exist.

    `seconds` is the predicted time, `bytes` are all bytes read and written. `data` has all facts, as in the JSON of
    `ascot plan merge`.
    """

    job: str
    seconds: float
    bytes: float
    switches: float
    memory_bytes: int
    passes: tuple[FilesPass, ...]
    alternatives: tuple[Alternative, ...]
    notes: tuple[str, ...]
    data: dict[str, Any] = field(repr=False)
    text: str = field(repr=False)

    def _repr_html_(self) -> str:
        longest = max(self.seconds, *(other.seconds or 0.0 for other in self.alternatives), 0.0) or 1.0
        chosen = Alternative("chosen", self.seconds, self.bytes, self.switches, len(self.passes))
        rows = [
            row(
                f"<b>{escape(one.name)}</b>" if one is chosen else escape(one.name),
                *_costs(one, longest),
            )
            for one in (chosen, *self.alternatives)
        ]
        return table(self.job, ("way", "predicted", "moved", "switches", "passes"), rows)


@dataclass(frozen=True, slots=True)
class ClusterPhase:
    """A phase of a sort on a cluster: its time, and the stage that binds it: disks, mappers or network."""

    name: str
    seconds: float
    bound_by: str


@dataclass(frozen=True, slots=True)
class ClusterPlan(Told):
    """The plan of a sort on a cluster.

    `seconds` is the predicted time with `overhead_seconds` before the first phase, `usd` its price. `data` has all
    facts, as in the JSON of `ascot plan cluster`.
    """

    node_type: str
    nodes: int
    seconds: float
    usd: float
    overhead_seconds: float
    phases: tuple[ClusterPhase, ...]
    data: dict[str, Any] = field(repr=False)
    text: str = field(repr=False)

    def _repr_html_(self) -> str:
        facts = {
            phase.name: f"{seconds_text(phase.seconds)}, bound by {phase.bound_by}" for phase in self.phases
        } | {"in all": f"{seconds_text(self.seconds)}, {self.usd:,.2f} USD"}
        return _table_of(f"{self.nodes} nodes of {self.node_type}", facts)


@dataclass(frozen=True, slots=True)
class CheapestCluster(Told):
    """The cheapest cluster, its `plan`, and the cheapest of `others`: types of nodes that meet the deadline, too.

    `too_slow` has the seconds of the fastest cluster of each other type, None if it cannot hold the data.
    """

    plan: ClusterPlan
    others: tuple[ClusterPlan, ...]
    too_slow: dict[str, float | None]
    data: dict[str, Any] = field(repr=False)
    text: str = field(repr=False)

    def _repr_html_(self) -> str:
        rows = [
            row(escape(one.node_type), f"{one.nodes:,}", seconds_text(one.seconds), f"{one.usd:,.2f} USD")
            for one in (self.plan, *self.others)
        ]
        return table("cheapest cluster", ("type", "nodes", "time", "price"), rows)


@dataclass(frozen=True, slots=True)
class Simulation(Told):
    """A simulated bowtie, beside the formulas.

    `run_bytes` is the mean run while all streams were live, None if that state was never reached;
    `formula_run_bytes` is that of the formula, None where a stream never switches. `data` has all facts, as in the
    JSON of `ascot simulate`.
    """

    inputs: int
    outputs: int
    schedule: str
    memory_bytes: int
    block_bytes: int
    moved_bytes: int
    switches: int
    run_bytes: float | None
    formula_run_bytes: float | None
    equal_parts_run_bytes: float
    peak_memory_bytes: int
    data: dict[str, Any] = field(repr=False)
    text: str = field(repr=False)

    def _repr_html_(self) -> str:
        facts = {
            "moved": f"{bytes_text(self.moved_bytes)} in {count_text(self.switches)} runs",
            "runs": _run_text(self.run_bytes),
            "by the formula": _run_text(self.formula_run_bytes),
            "with equal parts": _run_text(self.equal_parts_run_bytes),
            "most memory": bytes_text(self.peak_memory_bytes),
        }
        return _table_of(f"bowtie {self.inputs} x {self.outputs} by {self.schedule}", facts)


@dataclass(frozen=True, slots=True)
class Profile(Told):
    """A measured volume, and the speeds of the processors.

    Rates are bytes per second; `duplex_bytes_per_s` is that of each way while bytes are read and written at once,
    None if it is that of turns. `stored` is the file where the profile is kept for later jobs, None if it is not.
    `data` has all facts, as in the JSON of `ascot probe`, and `profile` is the text of a file for `volume=`.
    """

    read_bytes_per_s: float
    write_bytes_per_s: float
    duplex_bytes_per_s: float | None
    stored: str | None
    notices: tuple[str, ...]
    data: dict[str, Any] = field(repr=False)
    profile: str = field(repr=False)
    text: str = field(repr=False)

    def write(self, path: PathLike) -> None:
        """Writes the profile to a file, for the argument `volume` of jobs and plans.

        Raises the subclasses of FileError.
        """
        with of_system(), open(arguments.path("path", path), "w", encoding="utf-8") as file:
            file.write(self.profile)

    def _repr_html_(self) -> str:
        facts = {
            "reads": f"{bytes_text(self.read_bytes_per_s)}/s",
            "writes": f"{bytes_text(self.write_bytes_per_s)}/s",
        }
        if self.duplex_bytes_per_s is not None:
            facts["both at once"] = f"{bytes_text(self.duplex_bytes_per_s)}/s each"
        return _table_of(self.data["volume"]["name"], facts)


def _costs(way: Alternative, longest: float) -> tuple[str, ...]:
    """The cells of a way to do a job."""
    if way.seconds is None:
        return ("not possible", "", "", "")
    time = bar(way.seconds / longest) + f" {seconds_text(way.seconds)}"
    return time, bytes_text(way.bytes), count_text(round(way.switches)), count_text(way.passes)


def _run_text(run_bytes: float | None) -> str:
    return "no switches" if run_bytes is None else bytes_text(run_bytes)


def _table_of(title: str, facts: dict[str, str]) -> str:
    return table(title, _FACTS, [row(escape(name), escape(value)) for name, value in facts.items()])


def bowtie_plan_of(told: str, text: str) -> BowtiePlan:
    """The plan of a bowtie that the extension module returned."""
    data = loads(told)["result"]
    return BowtiePlan(
        inputs=data["shape"]["inputs"],
        outputs=data["shape"]["outputs"],
        schedule=data["schedule"],
        memory_bytes=data["memory_bytes"],
        run_bytes=data["run_bytes"],
        bytes_per_s=data["rate_bytes_per_s"],
        equal_parts_bytes_per_s=data["equal_parts_rate_bytes_per_s"],
        data=data,
        text=in_python(text),
    )


def files_plan_of(told: str, text: str) -> FilesPlan:
    """The plan of a job on files that the extension module returned."""
    data = loads(told)["result"]
    facts = {name: data[name] for name in ("job", "seconds", "bytes", "switches", "memory_bytes")}
    return FilesPlan(
        **facts,
        passes=tuple(_fields(FilesPass, one) for one in data["passes"]),
        alternatives=tuple(_fields(Alternative, one) for one in data["alternatives"]),
        notes=tuple(in_python(one) for one in data["notes"]),
        data=data,
        text=in_python(text),
    )


def cluster_plan_of(told: str, text: str) -> ClusterPlan:
    """The plan of a cluster that the extension module returned."""
    return _cluster_plan(loads(told), in_python(text))


def _cluster_plan(data: dict[str, Any], text: str) -> ClusterPlan:
    phases = tuple(_fields(ClusterPhase, phase) for phase in data["phases"])
    return _fields(ClusterPlan, {**data, "phases": phases, "data": data, "text": text})


def cheapest_cluster_of(told: str, text: str) -> CheapestCluster:
    """The cheapest cluster that the extension module returned."""
    data, text = loads(told), in_python(text)
    return CheapestCluster(
        plan=_cluster_plan(data["plan"], text),
        others=tuple(_cluster_plan(other, text) for other in data["others"]),
        too_slow={one["node_type"]: one["fastest_seconds"] for one in data["too_slow"]},
        data=data,
        text=text,
    )


def simulation_of(told: str, text: str) -> Simulation:
    """The simulation that the extension module returned."""
    data = loads(told)
    return _fields(Simulation, {**data, "data": data, "text": in_python(text)})


def profile_of(told: str, text: str, profile: str, stored: str | None, notices: list[str]) -> Profile:
    """The measurement that the extension module returned."""
    data = loads(told)
    volume = data["volume"]
    rates = {f"{way}_bytes_per_s": volume.get(f"{way}_bytes_per_s") for way in ("read", "write", "duplex")}
    told_notices = tuple(in_python(one) for one in notices)
    return Profile(
        **rates, stored=stored, notices=told_notices, data=data, profile=profile, text=in_python(text)
    )


Made = TypeVar("Made", FilesPass, Alternative, ClusterPhase, ClusterPlan, Simulation)


def _fields(kind: type[Made], data: dict[str, Any]) -> Made:
    """A dataclass with the fields that it has in `data`."""
    return kind(**{one.name: data[one.name] for one in fields(kind)})
