"""The header that each part of a table begins with. Records travel without it; what writes a part adds it."""

from __future__ import annotations

from typing import Any

__all__ = ["header_of", "with_header"]


def header_of(settings: dict[str, Any]) -> bytes:
    """The header of the parts of a job; empty without one."""
    return str(settings.get("header", "")).encode("latin-1")


def with_header(options: dict[str, Any]) -> dict[str, Any]:
    """The same options for records after a header."""
    return {**options, "records": {**options["records"], "header": True}}
