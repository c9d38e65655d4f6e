"""Sizes and times: parsing what people type, printing what people read.

KB, MB, GB are powers of 1000; K, M, G and KiB, MiB, GiB are powers of 1024, as the sort command has them.
"""

from __future__ import annotations

import re

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MB, GB = 10**6, 10**9

_FACTORS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": MB, "gb": GB, "tb": 10**12,
    "k": KIB, "m": MIB, "g": GIB, "t": 1 << 40,
    "kib": KIB, "mib": MIB, "gib": GIB, "tib": 1 << 40,
}  # fmt: skip


def parse_size(text: str) -> int:
    """Bytes meant by `8GB`, `1GiB`, `64M`, `1000`; ValueError says which forms there are."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    factor = _FACTORS.get(match.group(2).lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"'{text}' is not a size: write for example 8GB, 1GiB or 64M")
    return int(float(match.group(1)) * factor)


def decimal(count: float) -> str:
    """`8.00 GB`, for amounts of data."""
    for unit, size in (("GB", GB), ("MB", MB), ("kB", 1000)):
        if count >= size:
            return f"{count / size:.3g} {unit}" if count < 100 * size else f"{count / size:.0f} {unit}"
    return f"{count:.0f} B"


def binary(count: float) -> str:
    """`1.5 GiB`, for amounts of memory."""
    for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if count >= size:
            return f"{count / size:.3g} {unit}" if count < 1000 * size else f"{count / size:.0f} {unit}"
    return f"{count:.0f} B"


def flag_size(count: int) -> str:
    """The shortest spelling that both Ascot and the sort command read as exactly `count` bytes."""
    for unit, size in (("G", GIB), ("M", MIB), ("K", KIB)):
        if count % size == 0:
            return f"{count // size}{unit}"
    return f"{count}b"


def seconds(value: float) -> str:
    """`15.2 s`, or `3.4 ms` below a tenth of a second."""
    if value < 0.1:
        return f"{value * 1000:.2f} ms"
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"
