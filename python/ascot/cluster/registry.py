"""The jobs of this user: where the directory of each one is, and the report of each one that has ended.

A file of JSON for each job lies in `$XDG_STATE_HOME/ascot/cluster`, by default `~/.local/state/ascot/cluster`; the
name is the identity of the job. A job runs whether or not its file can be written.

Invariant: a file is whole or not there. At most ENDED_KEPT jobs that have ended stay.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from math import isfinite
from typing import Any

from ascot.cluster.files import write_text

__all__ = ["entries", "entry", "forget", "keep", "state_directory", "write_whole"]

VERSION = 1
ENDED_KEPT = 100
# Fields of an entry, with values of their types.
FIELDS: dict[str, Any] = {**dict.fromkeys(("kind", "directory", "output", "state", "error"), ""), "log": []}
IDENTITY = re.compile(r"[0-9a-f]{32}")


def state_directory() -> str | None:
    """The directory of the files; None if neither XDG_STATE_HOME nor HOME names a directory."""
    state, home = os.environ.get("XDG_STATE_HOME", ""), os.environ.get("HOME", "")
    if os.path.isabs(state):
        return os.path.join(state, "ascot", "cluster")
    return os.path.join(home, ".local", "state", "ascot", "cluster") if os.path.isabs(home) else None


def write_whole(name: str, content: dict[str, Any]) -> None:
    """Writes a file of JSON, whole or not at all. It is not made durable."""
    write_text(name, json.dumps(content, separators=(",", ":")), mode=0o600)


def keep(identity: str, content: dict[str, Any]) -> None:
    """Stores what is known of a job."""
    place = state_directory()
    if place is None:
        return
    with suppress(OSError):
        os.makedirs(place, mode=0o700, exist_ok=True)
        write_whole(os.path.join(place, f"{identity}.json"), {"version": VERSION, "job": identity, **content})
        if content["state"] != "running":
            _remove_old(place)


def forget(identity: str) -> None:
    """Removes a job from the list."""
    place = state_directory()
    if place is not None:
        with suppress(OSError):
            os.unlink(os.path.join(place, f"{identity}.json"))


def entry(identity: str) -> dict[str, Any] | None:
    """What is known of a job; None if nothing is."""
    place = state_directory()
    if place is None or not IDENTITY.fullmatch(identity):
        return None
    try:
        with open(os.path.join(place, f"{identity}.json")) as file:
            found: Any = json.load(file)
    except (OSError, ValueError):
        return None
    usable = isinstance(found, dict) and found.get("version") == VERSION and found.get("job") == identity
    return found if usable and _is_whole(found) else None


def _is_whole(found: dict[str, Any]) -> bool:
    """Whether the fields of an entry have the types that a job wrote."""
    report = found.get("report")
    if not all(isinstance(found.get(name, usual), type(usual)) for name, usual in FIELDS.items()):
        return False
    numbers = [found.get("began")]
    if report is not None:
        numbers += [report.get("seconds"), report.get("bytes_per_s")] if isinstance(report, dict) else [report]
    return all(isinstance(one, int | float) and isfinite(one) for one in numbers) and "state" in found


def entries() -> list[dict[str, Any]]:
    """The jobs, the newest first."""
    place = state_directory()
    names = _names(place) if place is not None else []
    found = [one for name in names if (one := entry(name)) is not None]
    return sorted(found, key=lambda one: float(one["began"]), reverse=True)


def _names(place: str) -> list[str]:
    try:
        return [name[:-5] for name in os.listdir(place) if name.endswith(".json")]
    except OSError:
        return []


def _remove_old(place: str) -> None:
    ended = [one for one in entries() if one["state"] in ("finished", "failed")]
    for one in ended[ENDED_KEPT:]:
        os.unlink(os.path.join(place, f"{one['job']}.json"))
