"""Simulations of bowties, and measurements of volumes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from ascot import _native, arguments
from ascot.figures import Profile, Simulation, profile_of, simulation_of
from ascot.progress import Progress, reporter
from ascot.sources import PathLike

__all__ = ["probe", "simulate"]


def simulate(
    inputs: int = 1,
    outputs: int = 1,
    *,
    alpha: float = 0.5,
    memory: int | str | None = None,
    block: int | str | None = None,
    total: int | str | None = None,
    schedule: str = "best",
    group: int | None = None,
    skew: str = "equal",
    seed: int = 1,
) -> Simulation:
    """Runs the schedule of a bowtie on numbers, and compares it with the formulas. It reads and writes no files.

    `alpha` is the share of bytes that is read, 0 to 1. `memory` (1 GiB), `block` (by the memory) and `total`, the
    data that move (40 times the memory), are bytes or texts such as `"16MiB"`. `schedule` is `best`, an algorithm
    (`a1` to `a5`, `a6r`, `a6w`) or `equal` for equal parts of memory; `group` are the streams filled or written
    together. `skew` says how fast streams are consumed and filled: `equal`, `zipf:1.0`, `fast:10`, `noise:0.5`,
    `bursts:1000` or `ends`; `seed` is that of the random ones.

    Other threads run meanwhile, and Ctrl-C stops it. Raises InvalidRequest for numbers that do not fit together.

    >>> import ascot
    >>> result = ascot.simulate(inputs=16, memory="16MiB")
    >>> result.schedule, result.run_bytes > 1.5 * result.equal_parts_run_bytes
    ('a4', True)
    """
    options = {
        "inputs": arguments.count("inputs", inputs),
        "outputs": arguments.count("outputs", outputs),
        "alpha": arguments.real("alpha", alpha, "a number from 0 to 1"),
        "memory": arguments.maybe(arguments.memory, "memory", memory),
        "block": arguments.maybe(arguments.size, "block", block),
        "total": arguments.maybe(arguments.size, "total", total),
        "schedule": arguments.text("schedule", schedule, "'best', 'equal' or an algorithm such as 'a4'"),
        "group": arguments.maybe(arguments.count, "group", group),
        "skew": arguments.text("skew", skew, "a text such as 'equal' or 'zipf:1.0'"),
        "seed": arguments.count("seed", seed, bits=64),
    }
    told, text, _ = _native.simulate(options)
    return simulation_of(told, text)


def probe(
    directory: PathLike,
    *,
    size: int | str | None = None,
    seconds: float | None = None,
    store: bool = True,
    progress: Literal["auto"] | Callable[[Progress], object] | None = None,
) -> Profile:
    """Measures the volume of `directory` and the processors.

    It writes, reads and removes files of up to `size` bytes (4 GiB) there, in about `seconds` (1 to 600, by default
    40). With `store`, later jobs of this user on the volume are planned with the profile. The `fraction` of the
    progress is known. Ctrl-C stops the measurement, which removes its files.

    Raises FileMissing, FileDenied, NoSpace, and FileError where there is no device to measure, as on a tmpfs.
    """
    path = arguments.path("directory", directory)
    most = arguments.maybe(arguments.size, "size", size)
    time = arguments.maybe(arguments.real, "seconds", seconds, "a number from 1 to 600")
    kept = arguments.flag("store", store)
    with reporter(progress) as report:
        return profile_of(*_native.probe(path, most, time, kept, report))
