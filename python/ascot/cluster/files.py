"""Small files of text that are written whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress

__all__ = ["write_text"]


def write_text(path: str, text: str, mode: int = 0o666) -> None:
    """Writes a file under another name beside it, and renames it; it is not made durable. Raises OSError."""
    made = f"{path}.{os.getpid()}.new"
    try:
        opened = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with open(opened, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(made, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(made)
        raise
