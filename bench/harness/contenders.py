"""The measured programs, their jobs and settings.

A contender turns a job into several settings, each a command line; the bench tries all of them on a smaller
size and takes the best on. Ascot has one setting, its own choice: what it plans is part of what is measured.

Jobs: `records`, `u64`, `lines` (whole lines), `lines-key` (-k1.1,1.10), `csv` (tenant, then ts downwards).
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from . import machine
from .measure import Command
from .units import MIB, flag_size

BENCH = Path(__file__).resolve().parent.parent
PEERS = BENCH / "peers"
PYTHON = sys.executable


@dataclass(frozen=True)
class Job:
    """One sort to do."""

    kind: str
    input: Path
    output: Path
    temp: Path
    memory: int
    threads: int


@dataclass(frozen=True)
class Setting:
    """A way to run a contender, named as it appears in the result."""

    name: str
    command: Command = field(compare=False)


class Contender(ABC):
    """A program that sorts."""

    name: str
    formats: ClassVar[dict[str, str]]
    """For each job it can do, the kind of data set it reads and writes (see `data.KINDS`)."""

    @abstractmethod
    def version(self) -> str:
        """Version for the result."""

    @abstractmethod
    def settings(self, job: Job) -> list[Setting]:
        """All settings for this job."""

    def missing(self) -> str:
        """The reason why it cannot run, or empty."""
        return ""


class Ascot(Contender):
    """This project, with its own plan."""

    name = "Ascot"
    formats: ClassVar[dict[str, str]] = {
        "records": "records.bin", "u64": "u64.bin", "csv": "events.csv",
        "lines": "lines.txt", "lines-key": "lines.txt",
    }  # fmt: skip

    _FLAGS: ClassVar[dict[str, list[str]]] = {
        "records": ["--format", "fixed:100", "--key", "0..10"],
        "u64": ["--format", "u64-le"],
        "csv": ["--csv", "--header", "--key", "tenant,-ts"],
        "lines": [],
        "lines-key": ["-k1.1,1.10"],
    }

    def __init__(self, program: list[str]) -> None:
        self.program = program

    def version(self) -> str:
        return machine.command_version([*self.program, "--version"])

    def missing(self) -> str:
        return "" if os.access(self.program[-1], os.R_OK) else "no ascot binary: cargo build --release"

    def settings(self, job: Job) -> list[Setting]:
        flags = [*self._FLAGS[job.kind], "--memory", flag_size(job.memory), "--temp", str(job.temp)]
        argv = [*self.program, "sort", str(job.input), *flags, "-o", str(job.output)]
        return [Setting("as it plans", Command(argv))]


class GnuSort(Contender):
    """The sort command, in byte order."""

    name = "GNU sort"
    formats: ClassVar[dict[str, str]] = {"lines": "lines.txt", "lines-key": "lines.txt"}

    def version(self) -> str:
        return machine.command_version(["sort", "--version"])

    def settings(self, job: Job) -> list[Setting]:
        def setting(buffer: int, *more: str) -> Setting:
            flags = [f"-S{flag_size(buffer)}", f"--parallel={job.threads}", *more]
            key = ["-k1.1,1.10"] if job.kind == "lines-key" else []
            argv = ["sort", *key, *flags, "-T", str(job.temp), "-o", str(job.output), str(job.input)]
            return Setting(" ".join(flags), Command(argv, {"LC_ALL": "C"}))

        half = job.memory // 2
        return [
            setting(job.memory),
            setting(job.memory, "--batch-size=64"),
            setting(half),
            setting(half, "--batch-size=64"),
        ]


class PythonPeer(Contender):
    """A peer that a script in bench/peers runs."""

    script: str
    package: str
    formats: ClassVar[dict[str, str]] = {"records": "records.parquet", "u64": "u64.parquet", "csv": "events.csv"}

    def version(self) -> str:
        return machine.package_version(self.package)

    def setting(self, job: Job, words: list[str], name: str = "", env: dict[str, str] | None = None) -> Setting:
        """The script with the job's flags and `words`; the name is the words unless given."""
        argv = [PYTHON, str(PEERS / self.script), job.kind, str(job.input), str(job.output)]
        argv += ["--temp", str(job.temp), "--memory", str(job.memory), *words]
        return Setting(name or " ".join(words) or "defaults", Command(argv, env or {}))


class DuckDb(PythonPeer):
    name, script, package = "DuckDB", "duckdb_sort.py", "duckdb"

    def settings(self, job: Job) -> list[Setting]:
        threads = str(job.threads)
        choices = [["--threads", threads], ["--threads", threads, "--unordered"], ["--threads", "1", "--unordered"]]
        if job.kind == "csv":
            choices += [["--threads", threads, "--unordered", "--varchar"]]
        return [self.setting(job, words) for words in choices]


class Polars(PythonPeer):
    name, script, package = "Polars", "polars_sort.py", "polars"

    def settings(self, job: Job) -> list[Setting]:
        def setting(share: float, words: list[str], threads: int = job.threads) -> Setting:
            budget = int(job.memory * share) // MIB
            env = {
                "POLARS_MAX_THREADS": str(threads),
                "POLARS_OOC_SPILL_DIR": str(job.temp),
                "POLARS_OOC_MEMORY_BUDGET_MB": str(budget),
                "POLARS_OVERRIDE_TOTAL_MEMORY_MB": str(job.memory // MIB),
            }
            return self.setting(job, words, " ".join([f"budget {budget} MiB, {threads} threads", *words]), env)

        choices = [setting(1.0, []), setting(0.5, []), setting(0.5, ["--low-memory"]), setting(0.25, [], 1)]
        if job.kind == "csv":
            choices += [setting(0.5, ["--text"])]
        return choices


class DataFusion(PythonPeer):
    name, script, package = "DataFusion", "datafusion_sort.py", "datafusion"

    def settings(self, job: Job) -> list[Setting]:
        threads = str(job.threads)
        choices = [
            ["--threads", "1", "--pool", "greedy"],
            ["--threads", threads, "--pool", "greedy"],
            ["--threads", threads, "--pool", "fair"],
            ["--threads", "1", "--pool", "greedy", "--reserve", str(job.memory // 8)],
        ]
        if job.kind == "csv":
            choices += [["--threads", "1", "--pool", "greedy", "--text"]]
        return [self.setting(job, words) for words in choices]


class Spark(PythonPeer):
    name, script, package = "Spark", "spark_sort.py", "pyspark"
    formats: ClassVar[dict[str, str]] = {"records": "records.parquet", "u64": "u64.parquet"}

    # Spark refuses to start with less heap than this.
    LEAST_HEAP = 512 * MIB

    def version(self) -> str:
        return f"{super().version()} (Java {machine.java_version()})"

    def missing(self) -> str:
        return "no Java" if machine.java_version() == "none" else ""

    def settings(self, job: Job) -> list[Setting]:
        def words(heap: int, *more: str) -> list[str]:
            return ["--threads", str(job.threads), "--heap", str(max(heap, self.LEAST_HEAP)), *more]

        choices = [
            words(job.memory),
            words(job.memory, "--compress"),
            words(job.memory * 3 // 4, "--partitions", "64"),
            words(job.memory * 5 // 8, "--off-heap", str(job.memory // 4)),
        ]
        return [self.setting(job, choice) for choice in choices]


class ExtSort(Contender):
    """The extsort crate, through the program in bench/peers/extsort."""

    name = "extsort"
    formats: ClassVar[dict[str, str]] = {"records": "records.bin", "u64": "u64.bin"}
    program = PEERS / "extsort" / "target" / "release" / "extsort-peer"

    def version(self) -> str:
        lines = (PEERS / "extsort" / "Cargo.toml").read_text().splitlines()
        return next(line.split('"=')[1].rstrip('"') for line in lines if line.startswith("extsort = "))

    def missing(self) -> str:
        return "" if self.program.exists() else "not built: bench/setup.sh"

    def settings(self, job: Job) -> list[Setting]:
        def setting(segment: int, *more: str) -> Setting:
            words = [job.kind, str(job.input), str(job.output), str(job.temp), str(segment), *more]
            name = " ".join([f"segments of {flag_size(segment)}", *more])
            return Setting(name, Command([str(self.program), *words]))

        return [
            setting(job.memory, "parallel"),
            setting(job.memory * 3 // 4, "parallel"),
            setting(job.memory // 2, "parallel"),
            setting(job.memory // 2),
        ]


class Stxxl(Contender):
    """STXXL, through the program in bench/peers/stxxl."""

    name = "STXXL"
    formats: ClassVar[dict[str, str]] = {"records": "records.bin", "u64": "u64.bin"}
    program = PEERS / "stxxl" / "target" / "stxxl-peer"

    def version(self) -> str:
        header = Path("/usr/include/stxxl/version.h")
        return machine.package_of_system("libstxxl-dev") if header.exists() else "not installed"

    def missing(self) -> str:
        return "" if self.program.exists() else "not built: bench/setup.sh seeks (needs libstxxl-dev)"

    def settings(self, job: Job) -> list[Setting]:
        # It writes logs into the current directory unless they have names.
        quiet = {"STXXLLOGFILE": "/dev/null", "STXXLERRLOGFILE": "/dev/null", "OMP_NUM_THREADS": str(job.threads)}

        def setting(memory: int) -> Setting:
            words = [job.kind, str(job.input), str(job.output), str(job.temp), str(memory)]
            return Setting(f"{flag_size(memory)} for each phase", Command([str(self.program), *words], quiet))

        return [setting(job.memory), setting(job.memory * 3 // 4), setting(job.memory // 2)]


class Hadoop(Contender):
    """MapReduce in Hadoop's local job runner, through the program in bench/peers/hadoop."""

    name = "Hadoop"
    formats: ClassVar[dict[str, str]] = {"records": "records.bin", "u64": "u64.bin"}
    home = PEERS / "hadoop" / "target"

    FACTOR = 100
    FILL = 0.95
    """The share of the sort buffer that is full when a map task spills (mapreduce.map.sort.spill.percent)."""
    BUFFERED: ClassVar[dict[str, int]] = {"u64": 24, "records": 124}
    """Bytes of a record in the sort buffer: its parts, their lengths, and 16 bytes that find them."""
    RECORD: ClassVar[dict[str, int]] = {"u64": 8, "records": 100}

    def version(self) -> str:
        jars = sorted((self.home / "lib").glob("hadoop-client-api-*.jar"))
        found = jars[0].stem.rpartition("-")[2] if jars else "unknown"
        return f"{found} (Java {machine.java_version()})"

    def missing(self) -> str:
        return "" if (self.home / "classes" / "HadoopSort.class").exists() else "not built: bench/setup.sh seeks"

    def settings(self, job: Job) -> list[Setting]:
        def setting(buffer: int) -> Setting:
            # A map task gets what its buffer holds, so that it spills once and merges nothing.
            records = int(buffer * self.FILL) // self.BUFFERED[job.kind]
            split = records * self.RECORD[job.kind]
            words = [job.kind, job.input, job.output, job.temp, buffer // MIB, split, self.FACTOR, 1]
            classes = f"{self.home / 'classes'}:{self.home / 'lib'}/*"
            argv = ["java", f"-Xmx{flag_size(job.memory).lower()}", "-cp", classes, "HadoopSort", *map(str, words)]
            return Setting(f"heap {flag_size(job.memory)}, sort buffer {flag_size(buffer)}", Command(argv))

        return [setting(job.memory // MIB // part * MIB) for part in (2, 4)]


def everybody(ascot: list[str]) -> list[Contender]:
    """All contenders, Ascot first: its time bounds how long the others may take."""
    return [Ascot(ascot), GnuSort(), DuckDb(), Polars(), DataFusion(), Spark(), ExtSort()]
