"""Bytes, counts and times as text for people, in the form of the command."""

__all__ = ["bytes_text", "count_argument", "count_text", "memory_argument", "seconds_text", "size_argument"]


def memory_argument(memory: int | str | None) -> int | str | None:
    """The same, if it can be an amount of memory: a number of bytes, a text such as `512MiB`, or None."""
    if memory is not None and (isinstance(memory, bool) or not isinstance(memory, int | str)):
        raise TypeError(f"memory is a number of bytes, or a text such as '512MiB', not {memory!r}")
    if isinstance(memory, int) and not 0 < memory < 1 << 63:
        raise ValueError(f"memory={memory}: give bytes, such as '512MiB'")
    return memory


def size_argument(size: int | str) -> int | str:
    """The same, if it can be an amount of data: a number of bytes, or a text such as `8TB`."""
    if isinstance(size, bool) or not isinstance(size, int | str):
        raise TypeError(f"an amount of data is a number of bytes, or a text such as '8TB', not {size!r}")
    if isinstance(size, int) and not 0 < size < 1 << 63:
        raise ValueError(f"{size} is no amount of data: give bytes, such as '8TB'")
    return size


def count_argument(name: str, count: int | None, bits: int = 32) -> int | None:
    """The same, if the argument `name` can be a count of so many bits, or None."""
    if count is not None and (isinstance(count, bool) or not isinstance(count, int)):
        raise TypeError(f"{name} is a number, not {count!r}")
    if count is not None and not 0 <= count < 1 << bits:
        raise ValueError(f"{name}={count} is not a number from 0 to {(1 << bits) - 1}")
    return count


def bytes_text(count: float) -> str:
    """Bytes with three significant digits, in powers of 1000.

    >>> bytes_text(8_000_000_000)
    '8.00 GB'
    """
    unit = "B"
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if count < 999.5 or unit == "PB":
            break
        count /= 1000
    digits = 0 if unit == "B" or count >= 99.95 else 1 if count >= 9.995 else 2
    return f"{count:.{digits}f} {unit}"


def count_text(count: int) -> str:
    """A count with commas.

    >>> count_text(1234567)
    '1,234,567'
    """
    return f"{count:,}"


def seconds_text(seconds: float) -> str:
    """A time.

    >>> seconds_text(0.3), seconds_text(12.4), seconds_text(600)
    ('0.3 s', '12 s', '10 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 180:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 10_800 else f"{seconds / 3600:.1f} h"
