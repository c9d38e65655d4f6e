"""The settings of a job on a cluster: how records are read, sent and written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ascot import _native, arguments
from ascot.errors import InvalidRequest

__all__ = ["USUAL", "Settings", "changed", "check_use", "settings_of", "settings_of_texts", "size_of"]

KIB, MIB = 1 << 10, 1 << 20
# The least and the most of each field. A writer notes at most 64 batches beyond one that is missing.
LIMITS = {
    "spare_cores": (0, (1 << 10) - 1),
    "batch": (64 * KIB, 256 * MIB),
    "ahead": (1, 64),
    "connections": (1, (1 << 16) - 1),
    "read_size": (64 * KIB, 64 * MIB),
    "write_size": (64 * KIB, 1 << 30),
    "write_depth": (1, 64),
    "write_memory": (MIB, 1 << 40),
}
# A call of Ray costs as much for a small batch as for a large one.
RAY_BATCH_MIN = 128 * KIB
SIZES = ("batch", "read_size", "write_size", "write_memory")
# Those whose usual value depends on the memory.
DERIVED = ("batch", "write_memory")
OF_CONNECTIONS = ("connections", "write_depth")


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of `ascot.cluster.sort` and `map_reduce`, and the usual values. Sizes are bytes, or texts such as
    `"4MiB"`; values are from and to:

    - `spare_cores` (0; 0 to 1023): processors of each node that get no worker, if `workers_per_node` is not given. A
      node has one worker at least.
    - `batch` (4 MiB or what the memory allows; 64 KiB, or 128 KiB with `transport="ray"`, to 256 MiB): the size of
      batches that are sent.
    - `ahead` (2; 1 to 64): the most batches for a destination that wait for an answer.
    - `connections` (64; 1 to 65535): the most connections that a worker has open at a time. With more destinations,
      it closes one before it opens the next.
    - `read_size` (1 MiB; 64 KiB to 64 MiB): what a worker reads and groups at a time.
    - `write_size` (4 MiB; 64 KiB to 1 GiB): what a disk gets of a partition in one run, in the mean. Runs are longer
      on a disk whose switches between files cost more, and shorter if `write_memory` does not suffice.
    - `write_depth` (4; 1 to 64): the most batches that a writer receives or writes at a time.
    - `write_memory` (an eighth of the memory, or less if workers need it; 1 MiB to 1 TiB): what waits for the disks
      of a node at most, of all partitions.

    All but `spare_cores` are those of `shuffle="push"`, and `connections` and `write_depth` those of
    `transport="direct"`. Buffers that a setting enlarges are part of `memory_per_node`. Raises InvalidRequest for a
    value out of range.
    """

    spare_cores: int = 0
    batch: int | str | None = None
    ahead: int = 2
    connections: int = 64
    read_size: int | str = "1MiB"
    write_size: int | str = "4MiB"
    write_depth: int = 4
    write_memory: int | str | None = None

    def __post_init__(self) -> None:
        for name in LIMITS:
            value = getattr(self, name)
            if name not in DERIVED or value is not None:
                object.__setattr__(self, name, _checked(name, value))

    def to_json(self) -> dict[str, Any]:
        """The same as plain values, sizes as bytes."""
        return asdict(self)


def _checked(name: str, value: int | str) -> int:
    """The value of a field as a number, within its limits."""
    least, most = LIMITS[name]
    accepted = f"a number from {least} to {most}"
    if name in SIZES:
        accepted = f"a size from {least // KIB} KiB to {most // MIB} MiB, as bytes or a text such as '4MiB'"
    try:
        is_size = name in SIZES
        number = _native.size_bytes(name, arguments.size(name, value)) if is_size else arguments.count(name, value)
    except InvalidRequest:
        number = -1
    if not least <= number <= most:
        arguments.wrong_value(name, value, accepted)
    return number


USUAL = Settings()


def settings_of(job: dict[str, Any]) -> Settings:
    """The settings of a job, as it describes itself."""
    return Settings(**job.get("settings", {}))


def settings_of_texts(texts: Mapping[str, str]) -> Settings:
    """The settings of a command, each by its name."""
    values: dict[str, Any] = {}
    for name, value in texts.items():
        if name not in LIMITS:
            raise InvalidRequest(f"{name!r} is no setting\n  give one of {', '.join(LIMITS)}")
        if name not in SIZES and not value.isdecimal():
            arguments.wrong_value(name, value, "a number")
        values[name] = value if name in SIZES else int(value)
    return Settings(**values)


def size_of(field: int | str) -> int:
    """A size of some settings, whose values are numbers once they are checked."""
    return int(field)


def changed(settings: Settings, names: Iterable[str]) -> list[str]:
    """Those of these fields that are not the usual ones."""
    return [name for name in names if getattr(settings, name) != getattr(USUAL, name)]


def check_use(settings: Settings, transport: str, shuffle: str, workers_per_node: int | None) -> None:
    """Raises InvalidRequest for a setting that would change nothing in a job."""
    spare = settings.spare_cores
    if workers_per_node is not None and spare:
        raise InvalidRequest(f"spare_cores={spare} and workers_per_node={workers_per_node}: give one of them")
    unused: dict[str, str] = {}
    if transport == "ray":
        unused |= dict.fromkeys(OF_CONNECTIONS, "transport='ray'")
    if shuffle == "pull":
        unused |= dict.fromkeys((name for name in LIMITS if name != "spare_cores"), "shuffle='pull'")
    for name in changed(settings, unused):
        raise InvalidRequest(f"{name}={getattr(settings, name)} changes nothing with {unused[name]}: leave it out")
    if transport == "ray" and settings.batch is not None and size_of(settings.batch) < RAY_BATCH_MIN:
        raise InvalidRequest(
            f"batch={settings.batch}: a call of Ray costs as much for a small batch as for a large one\n  give at "
            f"least {RAY_BATCH_MIN // KIB} KiB, or transport='direct'"
        )
