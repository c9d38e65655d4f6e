"""Shared code of the Python peers: their command line, and the sort of each kind of data.

    python PEER.py KIND INPUT OUTPUT --temp DIR --memory BYTES [--threads N] [peer's own settings]

KIND is `records` (Parquet: key, payload), `u64` (Parquet: value) or `csv` (id, tenant, ts, amount, message).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ORDER = {
    "records": [("key", False)],
    "u64": [("value", False)],
    "csv": [("tenant", False), ("ts", True)],
}
"""Columns and whether they fall."""

COLUMNS = ("id", "tenant", "ts", "amount", "message")


def parser(about: str) -> argparse.ArgumentParser:
    """The flags every peer has."""
    flags = argparse.ArgumentParser(description=about)
    flags.add_argument("kind", choices=ORDER)
    flags.add_argument("input", type=Path)
    flags.add_argument("output", type=Path)
    flags.add_argument("--temp", type=Path, required=True)
    flags.add_argument("--memory", type=int, required=True, help="bytes")
    flags.add_argument("--threads", type=int, default=2)
    return flags


def order_by(kind: str) -> str:
    """The ORDER BY list of a kind."""
    return ", ".join(f"{name} DESC" if falls else name for name, falls in ORDER[kind])


def fail(error: BaseException) -> None:
    """Ends the process with one line about `error`."""
    text = " ".join(str(error).split())
    sys.exit(f"{type(error).__name__}: {text[:300]}")
