"""Memory of a virtual machine that gives its free pages back to the host.

The first touch of such a page waits for the host: two seconds per gigabyte were measured, twenty times as much as
clearing it. The next program finds the pages that the one before has freed for as long as the host has not taken them
back, so that the order of programs would decide their times. While the bench runs, free pages stay with the machine:
the kernel reports no blocks, or, where it insists on reporting them, is without the balloon through which it does.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator
from pathlib import Path

from .units import GB

# The kernel reports free blocks of this order and larger ones to the host.
ORDER = Path("/sys/module/page_reporting/parameters/page_reporting_order")
# Larger than any block. Some kernels refuse it.
NEVER = 31
# The driver of the device that takes the reports.
BALLOON = Path("/sys/bus/virtio/drivers/virtio_balloon")
# Memory that is not touched: the system's.
LEFT_BYTES = 2 * GB


@contextlib.contextmanager
def kept(order: Path = ORDER, balloon: Path = BALLOON) -> Iterator[bool]:
    """Keeps free pages in the machine; says whether they would have gone back to the host."""
    undo = _keep(order, balloon)
    try:
        if undo:
            touch(available_bytes() - LEFT_BYTES)
        yield bool(undo)
    finally:
        for file, text in undo:
            file.write_text(text)


def _keep(order: Path, balloon: Path) -> list[tuple[Path, str]]:
    """Ends the reports of free pages; returns the files and texts that begin them again."""
    try:
        before = order.read_text()
    except OSError:
        # No such kernel.
        return []
    with contextlib.suppress(OSError):
        order.write_text(str(NEVER))
        return [(order, before)]
    undo = []
    for device in balloon.glob("virtio*"):
        # Without the right to do so, pages go on going back.
        with contextlib.suppress(OSError):
            (balloon / "unbind").write_text(device.name)
            undo.append((balloon / "bind", device.name))
    return undo


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
