"""Bytes, counts and times as text for people, in the form of the command."""

__all__ = ["bytes_text", "count_text", "seconds_text"]


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
