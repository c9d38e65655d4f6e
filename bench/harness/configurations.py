"""Merge on read in MapReduce: four programs in three configurations, over memory, record size, reduce tasks, nodes.

    none             records wait in files, and reducers merge their input to a file: `shuffle="push"`
    map              sorted runs stay where they are made and are merged as they are fetched; reducers merge to files
    map and reduce   reducers get their input merged as it comes; the output of a sort is left as views
    auto             a prediction chooses files or merges; of sorts also with views as output, beside none with views

One thing is changed at a time. All configurations of a setting run one after another on the same cluster, and each
output is compared with the input. The programs are in `peers/cluster_programs.py`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from . import machine
from .cluster import PEERS, STORE, Bench, _say
from .units import KIB, MB, MIB, binary, decimal

sys.path.append(str(PEERS))
import cluster_programs as programs

CONFIGURATIONS = ("none", "map", "map and reduce", "auto")
# Those of a sort alone.
VIEWS = ("none, views", "auto, views")
SWEEPS = ("programs", "memory", "record size", "reduce tasks", "nodes")
WORKLOADS = ("sort", "terasort", "join", "index")
KEY = programs.KEY
PAGES_OF_SITE = 8
# Records of the large table for one of the small table, and for one without a partner there.
LARGE_TO_SMALL, LARGE_TO_MISSING = 64, 8
ROWS_AT_ONCE = 64 * MIB
# Letters of pages, and spaces.
LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz    ", np.uint8)


@dataclass(frozen=True)
class Setting:
    """What is run: bytes of input, of a record and of a node's memory, and numbers of reduce tasks and nodes."""

    workload: str
    size: int
    record: int
    memory: int
    partitions: int
    nodes: int

    @property
    def name(self) -> str:
        """The name of its chart, and the key of its runs."""
        sizes = f"{self.size // MB}mb-{self.record}b-{self.memory // MIB}mib"
        return f"{self.workload}-{sizes}-{self.partitions}r-{self.nodes}n"

    def configurations(self) -> tuple[str, ...]:
        """Those that are run."""
        return CONFIGURATIONS + (VIEWS if self.workload == "sort" else ())

    def title(self) -> str:
        """The setting in words."""
        return (
            f"{self.workload}: {decimal(self.size)} of {self.record}-byte records, {binary(self.memory)} on each of "
            f"{self.nodes} node{'s' * (self.nodes > 1)}, {self.partitions} reduce tasks"
        )


def sweeps(size: int, memory: int) -> dict[str, list[Setting]]:
    """The settings of each sweep: the base, and one thing changed."""
    base = Setting("sort", size, 4 * KIB, memory, 8, 4)
    tera = replace(base, workload="terasort")
    return {
        "programs": [replace(base, workload=name) for name in WORKLOADS],
        "memory": [replace(base, memory=memory + more * MIB) for more in (0, 64, 128, 384)],
        "record size": [replace(base, record=one) for one in (16, 128, KIB, 4 * KIB, 32 * KIB)],
        "reduce tasks": [replace(tera, partitions=count) for count in (4, 8, 16, 64)],
        "nodes": [
            replace(tera, nodes=count, size=size * count // 4, partitions=2 * count) for count in (1, 2, 4)
        ],
    }  # fmt: skip


# ---------------------------------------------------------------- data


def keys(dice: Any, count: int) -> Any:
    return dice.integers(0, 256, (count, KEY), np.uint8)


def rows_of(setting: Setting, count: int, dice: Any) -> Any:
    """Records with random keys. Pages have words, and PAGES_OF_SITE pages have one key; other values are random."""
    rows = dice.integers(0, 256, (count, setting.record), np.uint8)
    if setting.workload == "index":
        rows[:, KEY:] = LETTERS[rows[:, KEY:] % len(LETTERS)]
        rows[:, :KEY] = np.repeat(keys(dice, -(-count // PAGES_OF_SITE)), PAGES_OF_SITE, axis=0)[:count]
        dice.shuffle(rows)
    return rows


def parts_of(setting: Setting) -> Iterator[Any]:
    """The records of a file, part by part."""
    dice = np.random.default_rng(18)
    left, most = setting.size // setting.record, ROWS_AT_ONCE // setting.record
    while left:
        count = min(left, most)
        yield rows_of(setting, count, dice)
        left -= count


def tables_of(setting: Setting) -> tuple[Any, Iterator[Any]]:
    """The small table of a join, and the parts of the large one."""
    dice = np.random.default_rng(19)
    count = max(1, setting.size // setting.record // LARGE_TO_SMALL)
    small = dice.integers(0, 256, (count, setting.record), np.uint8)
    small[:, KEY] = ord("S")

    def large() -> Iterator[Any]:
        for rows in parts_of(setting):
            known = np.arange(len(rows)) % LARGE_TO_MISSING != 0
            rows[known, :KEY] = small[dice.integers(0, count, int(known.sum())), :KEY]
            rows[:, KEY] = ord("B")
            yield rows

    return small, large()


def keys_of(rows: Any) -> Iterator[bytes]:
    return (row.tobytes() for row in rows[:, :KEY])


def joined(small: Any, rows: Any) -> Any:
    """The join of the small table with records of the large one."""
    record = small.shape[1]
    places = {key: at for at, key in enumerate(keys_of(small))}
    found = np.array([places.get(key, -1) for key in keys_of(rows)])
    kept = rows[found >= 0]
    out = np.empty((len(kept), record - 1 + programs.NAME), np.uint8)
    out[:, :KEY] = kept[:, :KEY]
    out[:, KEY : KEY + programs.NAME] = small[found[found >= 0], KEY + 1 : KEY + 1 + programs.NAME]
    out[:, KEY + programs.NAME :] = kept[:, KEY + 1 :]
    return out


def index_of(parts: Iterator[Any]) -> Iterator[bytes]:
    """The index, made in one process."""
    sites: dict[bytes, list[bytes]] = {}
    for rows in parts:
        for row in rows:
            sites.setdefault(row[:KEY].tobytes(), []).append(row[KEY:].tobytes())
    for site, pages in sites.items():
        yield from programs.indexed(site, iter(pages))


class Data:
    """The inputs of settings in a directory, each with records and checksum of what the program makes of it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def ensure(self, setting: Setting) -> dict[str, Any]:
        """The files of a setting, and the records and the checksum of the right output."""
        kind = "sort" if setting.workload == "terasort" else setting.workload
        name = f"{kind}-{setting.record}-{setting.size}"
        facts = self._directory / f"{name}.json"
        if not facts.exists():
            _say(f"making {name}")
            facts.write_text(json.dumps(self._made(name, replace(setting, workload=kind))))
        return dict(json.loads(facts.read_text()))

    def _made(self, name: str, setting: Setting) -> dict[str, Any]:
        path, right = self._directory / name, self._directory / f"{name}.right"
        inputs = [str(path)]
        if setting.workload == "join":
            small, large = tables_of(setting)
            inputs = [str(self._directory / f"{name}-small"), str(path)]
            small.tofile(inputs[0])
            with path.open("wb") as file, right.open("wb") as out:
                for rows in large:
                    rows.tofile(file)
                    joined(small, rows).tofile(out)
        else:
            with path.open("wb") as file:
                for rows in parts_of(setting):
                    rows.tofile(file)
        if setting.workload == "index":
            with right.open("wb") as out:
                out.writelines(index_of(parts_of(setting)))
        layout = programs.layout_of_output(setting.workload, setting.record)
        found = checked(right if right.exists() else path, layout)
        right.unlink(missing_ok=True)
        return {"inputs": inputs, "records": found[0], "checksum": found[1]}

    def drop(self, setting: Setting) -> None:
        """Removes the files of a setting."""
        kind = "sort" if setting.workload == "terasort" else setting.workload
        for path in self._directory.glob(f"{kind}-{setting.record}-{setting.size}*"):
            path.unlink()


def checked(path: Path, layout: Any) -> tuple[int, str]:
    """Records and checksum of a file."""
    import ascot

    found = ascot.check(str(path), layout=layout)
    return found.records, found.checksum


def fault_of(told: dict[str, Any], right: dict[str, Any]) -> str:
    """How the output of a run differs from the right one; empty if it does not."""
    if told["output_records"] != right["records"]:
        return f"{told['output_records']} records in place of {right['records']}"
    if int(told["output_checksum"], 16) != int(right["checksum"], 16):
        return f"checksum {told['output_checksum']} in place of {right['checksum']}"
    return ""


# ---------------------------------------------------------------- the runs


def missing(settings: list[Setting], runs: dict[str, Any], turn: int) -> list[tuple[Setting, str]]:
    """The runs of a turn that are not there yet."""
    wanted = [(setting, name) for setting in settings for name in setting.configurations()]
    return [(setting, name) for setting, name in wanted if len(runs.get(setting.name, {}).get(name, [])) <= turn]


def run(
    bench: Bench, result: dict[str, Any], save: Callable[[dict[str, Any]], None], chosen: tuple[str, ...] = SWEEPS
) -> None:
    """Runs the settings of the chosen sweeps in turns, those that `result` does not have. It is saved after each
    cluster."""
    o = bench.options
    data = Data(o.work)
    runs = result.setdefault("runs", {})
    plan = sweeps(o.size, o.memory)
    result["sweeps"] = {name: [asdict(one) for one in settings] for name, settings in plan.items()}
    for turn in range(o.repeats):
        for sweep in chosen:
            settings = plan[sweep]
            todo = missing(settings, runs, turn)
            if turn % 2:
                todo.reverse()
            for count in sorted({setting.nodes for setting, _ in todo}):
                own = [(setting, name) for setting, name in todo if setting.nodes == count]
                _say(f"turn {turn + 1} of {o.repeats}, {sweep}, {count} nodes: {len(own)} runs")
                _run_on(bench, data, own, runs)
                save(result)
            for setting in settings if turn == o.repeats - 1 else []:
                if setting.record != 4 * KIB:
                    data.drop(setting)


def _run_on(bench: Bench, data: Data, todo: list[tuple[Setting, str]], runs: dict[str, Any]) -> None:
    rights = {setting: data.ensure(setting) for setting, _ in todo}
    jobs = [
        {
            "name": f"{setting.name}, {name}", "program": "configuration", "workload": setting.workload,
            "configuration": name, "input": rights[setting]["inputs"], "memory": setting.memory,
            "record": setting.record, "partitions": setting.partitions,
        }
        for setting, name in todo
    ]  # fmt: skip
    told = bench.session(jobs, store=STORE, nodes=todo[0][0].nodes)[1:]
    for (setting, name), one in zip(todo, told, strict=True):
        if "error" not in one and (fault := fault_of(one, rights[setting])):
            one = {"error": f"the output is wrong: {fault}"}
        runs.setdefault(setting.name, {}).setdefault(name, []).append(one)


def versions(ascot: str) -> dict[str, str]:
    """The versions of what takes part."""
    found = {"ascot": machine.command_version([ascot, "--version"])}
    return found | {name: machine.package_version(name) for name in ("ray", "pyarrow", "numpy")}


def start(bench: Bench) -> dict[str, Any]:
    """A result without runs."""
    o = bench.options
    return {
        "version": 1, "commit": machine.commit(), "machine": machine.describe(o.work), "versions": versions(o.ascot),
        "size": o.size, "memory": o.memory, "store": STORE,
    }  # fmt: skip


def read(path: Path, fresh: dict[str, Any]) -> dict[str, Any]:
    """The result of an earlier session of the same size and memory, to which runs are added, or the fresh one."""
    if not path.exists():
        return fresh
    found: dict[str, Any] = json.loads(path.read_text())
    same = all(found.get(name) == fresh[name] for name in ("version", "size", "memory"))
    return found if same else fresh
