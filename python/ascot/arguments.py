"""Checks of arguments, with one form of message.

Each check returns the value in the form that the extension module takes. A value of a wrong type raises TypeError, a
wrong value of the right type InvalidRequest. Both messages have the name of the argument, the value, and what is
accepted.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from ascot.errors import InvalidRequest

__all__ = [
    "count",
    "flag",
    "flags",
    "function",
    "maybe",
    "memory",
    "path",
    "paths",
    "real",
    "shown",
    "size",
    "text",
    "texts",
    "word",
    "wrong_type",
    "wrong_value",
]

T = TypeVar("T")
# Letters of a value in a message.
_SHOWN_LETTERS = 60


def maybe(check: Callable[..., T], name: str, value: Any, *accepted: Any, **limits: Any) -> T | None:
    """None, or the value that the `check` accepts."""
    return None if value is None else check(name, value, *accepted, **limits)


def wrong_type(name: str, value: Any, accepted: str) -> NoReturn:
    """Raises TypeError for the argument `name`."""
    raise TypeError(f"{name} is {accepted}, not {shown(value)}")


def wrong_value(name: str, value: Any, accepted: str) -> NoReturn:
    """Raises InvalidRequest for the argument `name`."""
    raise InvalidRequest(f"{name}={shown(value)}: give {accepted}")


def shown(value: Any) -> str:
    """A value in a message: as Python writes it, or its type if that is long."""
    if isinstance(value, str | bytes | bytearray) and len(value) > _SHOWN_LETTERS:
        return repr(value[:_SHOWN_LETTERS]) + "..."
    try:
        written = repr(value)
    except Exception:
        written = ""
    if not written or len(written) > 2 * _SHOWN_LETTERS or "\n" in written:
        return f"a value of type {type(value).__name__}"
    return written


def flag(name: str, value: Any) -> bool:
    """True or False, also of numpy."""
    if isinstance(value, bool):
        return value
    if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    wrong_type(name, value, "True or False")


def flags(**values: Any) -> dict[str, bool]:
    """Several arguments that are True or False."""
    return {name: flag(name, value) for name, value in values.items()}


def count(name: str, value: Any, *, least: int = 0, bits: int = 32) -> int:
    """A whole number of `bits` bits, at least `least`; also one of numpy."""
    number = _whole(value)
    if number is None:
        wrong_type(name, value, f"a number{_from(least)}")
    if not least <= number < 1 << bits:
        wrong_value(name, number, f"a number from {least} to {(1 << bits) - 1}")
    return number


def _from(least: int) -> str:
    return f" of at least {least}" if least > 0 else ""


def _whole(value: Any) -> int | None:
    """A whole number; None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except Exception:
        return None


def real(name: str, value: Any, accepted: str = "a number") -> float:
    """A finite number."""
    if isinstance(value, bool | str | bytes | bytearray) or not hasattr(type(value), "__float__"):
        wrong_type(name, value, accepted)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        wrong_type(name, value, accepted)
    if not math.isfinite(number):
        wrong_value(name, value, accepted)
    return number


def seconds(name: str, value: Any) -> float:
    """A time greater than 0, seconds."""
    accepted = "a number of seconds greater than 0"
    number = real(name, value, accepted)
    if number <= 0:
        wrong_value(name, value, accepted)
    return number


def memory(name: str, value: Any) -> int | str:
    """An amount of memory: a number of bytes, or a text such as `512MiB`, which the extension module reads."""
    return _bytes(name, value, "a number of bytes, or a text such as '512MiB'")


def size(name: str, value: Any) -> int | str:
    """An amount of data: a number of bytes, or a text such as `8TB`, which the extension module reads."""
    return _bytes(name, value, "a number of bytes, or a text such as '8TB'")


def _bytes(name: str, value: Any, accepted: str) -> int | str:
    if isinstance(value, str):
        return value
    number = _whole(value)
    if number is None:
        wrong_type(name, value, accepted)
    if not 0 < number < 1 << 63:
        wrong_value(name, number, accepted)
    return number


def text(name: str, value: Any, accepted: str = "a text") -> str:
    """A text."""
    if not isinstance(value, str):
        wrong_type(name, value, accepted)
    return value


def word(name: str, value: Any, words: Sequence[str]) -> str:
    """One of the `words`."""
    *others, last = map(repr, words)
    accepted = f"{', '.join(others)} or {last}"
    if text(name, value, accepted) not in words:
        wrong_value(name, value, accepted)
    return str(value)


def texts(name: str, value: Any, accepted: str = "a list of texts") -> list[str]:
    """Several texts. One text is not a list of its letters."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        wrong_type(name, value, accepted)
    return [text(f"an element of {name}", one) for one in value]


def function(name: str, value: Any, accepted: str = "a function") -> Callable[..., Any]:
    """A function, or any other object that can be called."""
    if not callable(value):
        wrong_type(name, value, accepted)
    called: Callable[..., Any] = value
    return called


def path(name: str, value: Any, accepted: str = "a path") -> str:
    """The path of a file or a directory."""
    if not isinstance(value, str | os.PathLike):
        wrong_type(name, value, accepted)
    found = os.fsdecode(value)
    if not found:
        wrong_value(name, value, f"{accepted} that is not empty")
    if "\0" in found or not _has_encoding(found):
        wrong_value(name, value, f"{accepted} that the system can name")
    return found


def _has_encoding(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def paths(name: str, value: Any) -> list[str]:
    """A path, or several."""
    accepted = "a path or a list of paths"
    if isinstance(value, str | os.PathLike):
        return [path(name, value)]
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        wrong_type(name, value, accepted)
    return [path(f"an element of {name}", one) for one in value]


def options(name: str, value: Any) -> dict[str, Any]:
    """A dictionary by names. Its values, which may be secret, are in no message."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is a dictionary, not {type(value).__name__}")
    found = dict(value)
    if not all(isinstance(one, str) for one in found):
        raise TypeError(f"{name} is a dictionary whose keys are texts")
    return found
