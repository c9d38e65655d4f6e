"""Memory of a virtual machine that gives its free pages back to the host.

The first touch of such a page waits for the host: two seconds per gigabyte were measured, twenty times as much as
clearing it. The next program finds the pages that the one before has freed for as long as the host has not taken them
back, so that the order of programs would decide their times. While the bench runs, free pages stay with the machine.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator
from pathlib import Path

from .units import GB

# The kernel reports free blocks of this order and larger ones to the host.
ORDER = Path("/sys/module/page_reporting/parameters/page_reporting_order")
# Larger than any block.
NEVER = 31
# Memory that is not touched: the system's.
LEFT_BYTES = 2 * GB


@contextlib.contextmanager
def kept(order: Path = ORDER) -> Iterator[bool]:
    """Keeps free pages in the machine; says whether they would have gone back to the host."""
    try:
        before = order.read_text()
        order.write_text(str(NEVER))
    except OSError:
        # No such kernel or no such right.
        yield False
        return
    try:
        touch(available_bytes() - LEFT_BYTES)
        yield True
    finally:
        order.write_text(before)


def available_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Memory that programs can have without swapping."""
    line = next(line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:"))
    return int(line.split()[1]) << 10


def touch(size: int) -> None:
    """Makes the host provide `size` bytes, and frees them."""
    if size <= 0:
        return
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE):
        pass
