"""The bench's command line: `run.py COMMAND [options]`; `run.py --help` lists the commands."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from . import (
    around,
    cluster,
    cluster_page,
    configurations,
    configurations_page,
    faults,
    guest_memory,
    index,
    machine,
    moves,
    plans,
    python,
    report,
    seeks,
    seeks_page,
    streams,
    traces,
    view,
)
from .cgroup import CgroupUnavailable, locate
from .session import WORKLOADS, Options, Session
from .units import GB, GIB, MB, MIB, decimal, parse_size

BENCH = Path(__file__).resolve().parent.parent


COMMANDS = "sort|around|moves|plan|view|index|streams|seeks|traces|python|cluster"


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _workloads(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in WORKLOADS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no workload '{unknown[0]}'; there are {', '.join(WORKLOADS)}")
    return [name for name in WORKLOADS if name in names]


def _sweeps(text: str) -> tuple[str, ...]:
    names = text.split(",")
    unknown = [name for name in names if name not in configurations.SWEEPS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no sweep '{unknown[0]}'; there are {', '.join(configurations.SWEEPS)}")
    return tuple(names)


def _default_ascot() -> Path:
    if built := os.environ.get("ASCOT_BIN"):
        return Path(built)
    target = Path(os.environ.get("CARGO_TARGET_DIR") or BENCH.parent / "target")
    return target / "release" / "ascot"


def _add_streams(commands: Any) -> None:
    elements = commands.add_parser("streams", help="streams of elements, compared with slices and with fio")
    elements.add_argument("--repeats", type=int, default=5, help="measured runs of each (5)")
    elements.add_argument("--dir", type=Path, default=BENCH / ".cache", help="where the files go")
    elements.add_argument("--out", type=Path, help="where the result goes (bench/results/DATE-streams)")
    elements.add_argument("--ascot", type=Path, default=_default_ascot(), help="the ascot binary, for its version")


def _add_traces(commands: Any) -> None:
    tracing = commands.add_parser("traces", help="what traces cost: recording, converting, opening the seek chart")
    add = tracing.add_argument
    add("--size", type=_size, default=2 * GIB, help="bytes that GNU sort sorts (2GiB)")
    add("--memory", type=_size, default=256 * MIB, help="memory of GNU sort (256MiB)")
    add("--calls", type=int, default=10_000_000, help="calls that are converted and drawn (10000000)")
    add("--repeats", type=int, default=5, help="measured runs of each (5)")
    add("--dir", type=Path, default=BENCH / ".cache", help="where data and traces go")
    add("--log", type=Path, help="the log of strace of all calls, from an earlier session")
    add("--out", type=Path, help="where the result goes (bench/results/DATE-traces)")
    add("--ascot", type=Path, default=_default_ascot(), help="the ascot binary to measure")


def _add_python(commands: Any) -> None:
    package = commands.add_parser("python", help="the Python package: against the command, DuckDB and Polars")
    add = package.add_argument
    add("--parts", default=",".join(python.PARTS), help=f"some of {','.join(python.PARTS)}")
    add("--files", type=_size, default=2 * GB, help="bytes of the file that is sorted (2GB)")
    add("--arrow", type=_size, default=2 * GB, help="bytes of the batches that are sorted within the cap (2GB)")
    add("--rich", type=_size, default=8 * GB, help="bytes of the batches that are sorted in memory (8GB)")
    add("--memory", type=_size, default=512 * MIB, help="the cap (512MiB)")
    add("--repeats", type=int, default=3, help="measured runs of each (3)")
    add("--dir", type=Path, default=BENCH / ".cache", help="where data and spills go")
    add("--out", type=Path, help="where the result goes (bench/results/DATE-python)")
    add("--ascot", type=Path, default=_default_ascot(), help="the ascot binary to measure")
    add(
        "--get", type=Path, default=BENCH.parent / "target" / "dist" / "examples" / "get",
        help="cargo build --profile dist -p ascot-index --example get",
    )  # fmt: skip


def _add_cluster(commands: Any) -> None:
    nodes = commands.add_parser("cluster", help="sorts on four local nodes: against Ray Data, Spark and one process")
    add = nodes.add_argument
    add(
        "--parts", default=",".join(cluster.PARTS),
        help=f"some of {','.join(cluster.PARTS)}; or alone: configurations (three of merging, of four programs), or "
        "faults",
    )  # fmt: skip
    add("--size", type=_size, help="bytes that are sorted (1GB; 400MB for configurations)")
    add(
        "--sweeps", type=_sweeps, default=configurations.SWEEPS,
        help=f"configurations: some of {','.join(configurations.SWEEPS)}",
    )  # fmt: skip
    add("--only", default="", help="faults: those whose names match, as -k of pytest")
    add("--sizes", default="", help="sizes at which the object store is looked at, such as 2GB,8GB,16GB")
    add("--memory", type=_size, help="memory of a node (1GiB; 384MiB for configurations)")
    add("--repeats", type=int, default=3, help="measured runs of each (3)")
    add("--dir", type=Path, default=BENCH / ".cache", help="where data and spills go")
    add("--out", type=Path, help="where the result goes (bench/results/DATE-cluster)")
    add("--ascot", type=Path, default=_default_ascot(), help="the ascot binary to measure")


def _add_seeks(commands: Any) -> None:
    seeking = commands.add_parser("seeks", help="requests and switches of external sorts, recorded and replayed")
    add = seeking.add_argument
    add("--size", type=_size, default=8 * GIB, help="bytes of each data set (8GiB)")
    add("--memory", type=_size, help="memory option of all programs (an eighth of the size)")
    add("--kinds", default=",".join(seeks.KINDS), help=f"some of {','.join(seeks.KINDS)}")
    add("--programs", default="", help="only these, by name, separated by semicolons")
    add("--repeats", type=int, default=3, help="timed runs and replays of each (3)")
    add("--keep-free", type=_size, default=8 * GB, help="least space to leave on the disk (8GB)")
    add("--no-replay-here", action="store_true", help="replay on the virtual disk only")
    add("--page-only", action="store_true", help="write the page of the result in --out again, and measure nothing")
    add("--dir", type=Path, default=BENCH / ".cache", help="where data, outputs, spills and traces go")
    add("--out", type=Path, help="where the result goes (bench/results/DATE-seeks)")
    add("--ascot", type=Path, default=_default_ascot(), help="the ascot binary to measure")
    add("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads of all programs (cores)")


def parser() -> argparse.ArgumentParser:
    """All flags."""
    flags = argparse.ArgumentParser(prog="./dev bench", description="Compares Ascot with its peers.")
    commands = flags.add_subparsers(dest="command", required=True, metavar=COMMANDS)
    sort = commands.add_parser("sort", help="sorting: speed, memory and bytes moved, compared with the peers")
    add = sort.add_argument
    add("--quick", action="store_true", help="1 GB within 128 MiB, one repeat, small data")
    add("--workloads", type=_workloads, default=list(WORKLOADS), help=f"some of {','.join(WORKLOADS)}")
    add("--size", type=_size, help="bytes of each data set (8GB)")
    add("--memory", type=_size, help="memory option of all programs (1GiB); the cgroup allows 512 MiB more")
    add("--repeats", type=int, help="measured runs of each (3)")
    add(
        "--repeat-within", type=float,
        help="run programs slower than the best peer once if they take more than this multiple of Ascot's time",
    )  # fmt: skip
    add("--contenders", default="", help="only these, by name: ascot,gnusort,duckdb,polars,...")
    add("--large", type=_size, help="bytes piped through by the scaling workload (60GB)")
    add("--dir", type=Path, default=BENCH / ".cache", help="where data, outputs and spills go")
    add("--disk", type=_size, default=64 * GB, help="maximum disk to use (64GB)")
    add("--out", type=Path, help="where the result goes (bench/results/DATE-WORKLOADS)")
    add("--ascot", type=Path, default=_default_ascot(), help="the ascot binary to measure")
    add("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads of all programs (cores)")
    add("--no-cgroup", action="store_true", help="run without a memory cgroup")
    add("--needs", action="store_true", help="print the disk that each workload needs, and stop")
    sizes = commands.add_parser("around", help="the cost of a sort around the size of the memory")
    sizes.add_argument("--memory", type=_size, default=256 * MIB, help="memory option of all programs (256MiB)")
    sizes.add_argument("--repeats", type=int, default=3, help="measured runs of each (3)")
    sizes.add_argument("--dir", type=Path, default=BENCH / ".cache", help="where data, outputs and spills go")
    sizes.add_argument("--out", type=Path, help="where the result goes (bench/results/DATE-around)")
    sizes.add_argument("--ascot", type=Path, default=_default_ascot(), help="the ascot binary to measure")
    cores = len(os.sched_getaffinity(0))
    sizes.add_argument("--threads", type=int, default=cores, help="threads of all programs (cores)")
    for add_command in (_add_streams, _add_seeks, _add_traces, _add_python, _add_cluster):
        add_command(commands)
    moving = commands.add_parser("moves", help="merge, split and reshape, compared with the volume's rate")
    moving.add_argument("--size", type=_size, default=4 * GB, help="bytes moved by each (4GB)")
    moving.add_argument("--repeats", type=int, default=3, help="measured runs of each (3)")
    moving.add_argument("--dir", type=Path, default=BENCH / ".cache", help="where inputs and outputs go")
    moving.add_argument("--out", type=Path, help="where the result goes (bench/results/DATE-moves)")
    moving.add_argument("--ascot", type=Path, default=_default_ascot(), help="the ascot binary to measure")
    planning = commands.add_parser("plan", help="predicted and measured times")
    planning.add_argument("--quick", action="store_true", help="small jobs, once, as a check of the bench")
    planning.add_argument("--seed", type=int, default=14, help="which jobs are drawn (14)")
    planning.add_argument("--jobs", type=int, help="number of jobs (20)")
    planning.add_argument("--repeats", type=int, help="measured runs of each (3)")
    planning.add_argument("--dir", type=Path, default=BENCH / ".cache", help="where inputs and outputs go")
    planning.add_argument("--out", type=Path, help="where the result goes (bench/results/DATE-plan)")
    planning.add_argument("--ascot", type=Path, default=_default_ascot(), help="the ascot binary to measure")
    viewing = commands.add_parser("view", help="views compared with files: read, mounted, made and read once")
    viewing.add_argument("--size", type=_size, default=8 * GB, help="bytes of each data set that is read (8GB)")
    viewing.add_argument("--sweep", type=_size, default=2 * GB, help="bytes of each that is made and read (2GB)")
    viewing.add_argument("--repeats", type=int, default=3, help="measured runs of each (3)")
    viewing.add_argument("--dir", type=Path, default=BENCH / ".cache", help="where data and views go")
    viewing.add_argument("--out", type=Path, help="where the result goes (bench/results/DATE-view)")
    viewing.add_argument("--ascot", type=Path, default=_default_ascot(), help="the ascot binary to measure")
    viewing.add_argument(
        "--passthrough", type=Path, default=BENCH.parent / "target" / "release" / "examples" / "passthrough",
        help="cargo build --release -p ascot-mount --example passthrough",
    )  # fmt: skip
    indexing = commands.add_parser("index", help="indexed directories compared with plain files, scans and databases")
    indexing.add_argument("--size", type=_size, default=100_000_000, help="records of the larger directory (100M)")
    indexing.add_argument("--repeats", type=int, default=3, help="measured runs of each way of writing (3)")
    indexing.add_argument("--dir", type=Path, default=BENCH / ".cache", help="where directories go")
    indexing.add_argument("--out", type=Path, help="where the result goes (bench/results/DATE-index)")
    indexing.add_argument("--ascot", type=Path, default=_default_ascot(), help="the ascot binary to measure")
    indexing.add_argument(
        "--examples", type=Path, default=BENCH.parent / "target" / "release" / "examples",
        help="cargo build --release -p ascot-index --examples",
    )  # fmt: skip
    return flags


def _plan(args: argparse.Namespace) -> int:
    scale = plans.QUICK if args.quick else plans.FULL
    if args.jobs:
        scale = dataclasses.replace(scale, jobs=args.jobs)
    if args.repeats:
        scale = dataclasses.replace(scale, repeats=args.repeats)
    args.dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="plan-", dir=args.dir.resolve()) as work:
        result = plans.run(str(args.ascot.resolve()), Path(work), scale, args.seed)
    name = f"{datetime.date.today().isoformat()}-plan{'-quick' if args.quick else ''}"
    folder = args.out or BENCH / "results" / name
    plans.write(folder, result)
    print(plans.markdown(result))
    return 0


def _view(args: argparse.Namespace) -> int:
    args.dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="view-", dir=args.dir.resolve()) as work:
        ascot, passthrough = (str(path.resolve()) for path in (args.ascot, args.passthrough))
        result = view.run(ascot, passthrough, Path(work), (args.size, args.sweep), args.repeats)
    view.write(args.out or BENCH / "results" / f"{datetime.date.today().isoformat()}-view", result)
    print(view.markdown(result))
    return 0


def _write_result(args: argparse.Namespace, name: str, result: dict[str, Any], page: str) -> int:
    """Writes the figures and the page of a session, and prints the page."""
    folder = args.out or BENCH / "results" / f"{datetime.date.today().isoformat()}-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    (folder / "README.md").write_text(page)
    print(page)
    return 0


def _index(args: argparse.Namespace) -> int:
    args.dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="index-", dir=args.dir.resolve()) as work:
        ascot, examples = str(args.ascot.resolve()), args.examples.resolve()
        result = index.run(ascot, examples, Path(work), args.size, args.repeats)
    return _write_result(args, "index", result, index.markdown(result))


def _around(args: argparse.Namespace) -> int:
    args.dir.mkdir(parents=True, exist_ok=True)
    result = around.run(str(args.ascot.resolve()), args.dir.resolve(), args.memory, args.repeats, args.threads)
    folder = args.out or BENCH / "results" / f"{datetime.date.today().isoformat()}-around"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "chart.svg").write_text(around.svg(result))
    return _write_result(args, "around", result, around.markdown(result))


def _streams(args: argparse.Namespace) -> int:
    args.dir.mkdir(parents=True, exist_ok=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR") or BENCH.parent / "target")
    with tempfile.TemporaryDirectory(prefix="streams-", dir=args.dir.resolve()) as work:
        result = streams.run(target / "release" / "examples" / "elements", Path(work), args.repeats)
    return _write_result(args, "streams", result, streams.markdown(result))


def _traces(args: argparse.Namespace) -> int:
    args.dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="traces-", dir=args.dir.resolve()) as work:
        options = traces.Options(
            ascot=str(args.ascot.resolve()), directory=Path(work), size=args.size, memory=args.memory,
            calls=args.calls, rounds=args.repeats, log=args.log and args.log.resolve(),
        )  # fmt: skip
        result = traces.run(options)
    return _write_result(args, "traces", result, traces.markdown(result))


def _seeks(args: argparse.Namespace) -> int:
    out = args.out or BENCH / "results" / f"{datetime.date.today().isoformat()}-seeks"
    if not args.page_only:
        _measure_seeks(args, out)
    print(seeks_page.write(out))
    return 0


def _measure_seeks(args: argparse.Namespace, out: Path) -> None:
    args.dir.mkdir(parents=True, exist_ok=True)
    session = seeks.Session(
        seeks.Options(
            ascot=str(args.ascot.resolve()), directory=args.dir.resolve(), out=out,
            size=args.size, memory=args.memory or args.size // 8, repeats=args.repeats, threads=args.threads,
            kinds=args.kinds.split(","), programs=[name for name in args.programs.split(";") if name],
            keep_free=args.keep_free, replay_here=not args.no_replay_here,
        )
    )  # fmt: skip
    session.run()
    for name, page in session.pages().items():
        shutil.copy(page, out / f"{name}.html")


def _moves(args: argparse.Namespace) -> int:
    args.dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="moves-", dir=args.dir.resolve()) as work:
        result = moves.run(str(args.ascot.resolve()), Path(work), args.size, args.repeats)
    return _write_result(args, "moves", result, moves.markdown(result))


def _python(args: argparse.Namespace) -> int:
    args.dir.mkdir(parents=True, exist_ok=True)
    sizes = {"files": args.files, "arrow": args.arrow, "memory": args.rich}
    with tempfile.TemporaryDirectory(prefix="python-", dir=args.dir.resolve()) as work:
        result = python.run(
            str(args.ascot.resolve()), args.get.resolve(), Path(work), sizes, args.memory, args.parts.split(","),
            args.repeats,
        )  # fmt: skip
    return _write_result(args, "python", result, python.markdown(result))


def _cluster(args: argparse.Namespace) -> int:
    args.dir.mkdir(parents=True, exist_ok=True)
    parts = args.parts.split(",")
    alone = parts == ["configurations"]
    size, memory = args.size or (400 * MB if alone else GB), args.memory or (384 * MIB if alone else GIB)
    sizes = [_size(text) for text in args.sizes.split(",") if text] or [size // 4, size // 2, size]
    with tempfile.TemporaryDirectory(prefix="cluster-", dir=args.dir.resolve()) as work:
        chosen = cluster.Options(
            ascot=str(args.ascot.resolve()), work=Path(work), size=size, sizes=sizes, memory=memory, parts=parts,
            repeats=args.repeats,
        )  # fmt: skip
        if alone:
            return _configurations(args, chosen)
        if parts == ["faults"]:
            return _write_result(args, "faults", result := faults.run(chosen, args.only), faults.markdown(result))
        cluster.run(chosen, lambda result: _write_result(args, "cluster", result, cluster_page.markdown(result)))
    return 0


def _configurations(args: argparse.Namespace, chosen: cluster.Options) -> int:
    """Goes on where an earlier session with the same result was interrupted."""
    folder = args.out or BENCH / "results" / f"{datetime.date.today().isoformat()}-merge-on-read"

    def save(result: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        configurations_page.write(folder, result)

    bench = cluster.Bench(chosen)
    result = configurations.read(folder / "result.json", configurations.start(bench))
    configurations.run(bench, result, save, args.sweeps)
    print((folder / "README.md").read_text())
    return 0


def options(args: argparse.Namespace) -> Options:
    """The session's options, defaults filled in by size of bench."""
    quick = args.quick
    return Options(
        workloads=args.workloads,
        size=args.size or (GB if quick else 8 * GB),
        memory=args.memory or (128 * MIB if quick else GIB),
        repeats=args.repeats or (1 if quick else 3),
        repeat_within=args.repeat_within,
        quick=quick,
        only=[name for name in args.contenders.split(",") if name],
        directory=args.dir.resolve(),
        disk_cap=args.disk,
        ascot=[str(args.ascot.resolve())],
        use_cgroup=not args.no_cgroup,
        large=args.large or (4 * GB if quick else 60 * GB),
        threads=args.threads,
    )


def _print_needs(session: Session) -> None:
    free = shutil.disk_usage(session.options.directory).free
    print(f"{decimal(free)} free, at most {decimal(session.options.disk_cap)} used; at its peak, each workload takes")
    for name in session.options.workloads:
        print(f"  {name:<10} {decimal(session.need(name))}")


def _folder(args: argparse.Namespace, date: str) -> Path:
    if args.out:
        return args.out
    whole = args.workloads == list(WORKLOADS)
    name = f"{date}-{'sort' if whole else '+'.join(args.workloads)}{'-quick' if args.quick else ''}"
    folder, number = BENCH / "results" / name, 2
    while folder.exists():
        folder = BENCH / "results" / f"{name}-{number}"
        number += 1
    return folder


def _interrupt(_signal: int, _frame: Any) -> None:
    raise KeyboardInterrupt


def main(argv: list[str] | None = None) -> int:
    """Measures what is asked."""
    args = parser().parse_args(argv)
    others = {
        "around": _around, "streams": _streams, "seeks": _seeks, "traces": _traces, "moves": _moves,
        "python": _python, "cluster": _cluster, "plan": _plan, "view": _view, "index": _index,
    }  # fmt: skip
    if getattr(args, "needs", False):
        return _sort(args)
    if getattr(args, "page_only", False):
        return _seeks(args)
    with guest_memory.kept() as would_go:
        if would_go:
            print("bench: free memory stays with this machine instead of going back to its host", flush=True)
        return others.get(args.command, _sort)(args)


def _sort(args: argparse.Namespace) -> int:
    """Runs the session and writes its result after every workload, so that an interrupt loses only one workload."""
    chosen = options(args)
    if chosen.use_cgroup:
        try:
            locate()
        except CgroupUnavailable as error:
            sys.exit(f"bench: {error}")
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, _interrupt)
    date = datetime.date.today().isoformat()
    try:
        with Session(chosen).opened() as session:
            _print_needs(session)
            if args.needs:
                return 0
            folder = _folder(args, date)
            _measure_all(session, folder, date)
    except KeyboardInterrupt:
        print("bench: stopped; outputs and spills are removed, finished workloads are kept", file=sys.stderr)
        return 130
    except CgroupUnavailable as error:
        sys.exit(f"bench: {error}")
    print((folder / "README.md").read_text())
    print(f"bench: result in {folder}", file=sys.stderr)
    return 0


def _measure_all(session: Session, folder: Path, date: str) -> None:
    o = session.options
    result: dict[str, Any] = {
        "version": 1,
        "date": date,
        "machine": machine.describe(o.directory),
        "options": {"size": o.size, "memory": o.memory, "repeats": o.repeats, "quick": o.quick, "threads": o.threads},
        "workloads": {},
    }
    for workload in o.workloads:
        result["workloads"][workload] = session.measure(workload)
        report.write(folder, result)
