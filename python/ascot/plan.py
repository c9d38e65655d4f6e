"""Plans of jobs that are not run: passes, bytes, time, and why other methods are worse."""

from __future__ import annotations

import os
from typing import Literal, Unpack

from ascot import _native
from ascot.jobs import Request, Settings
from ascot.layouts import KeyLike, LayoutLike
from ascot.reports import Plan, plan_of_explanation
from ascot.sources import PathLike, Source

__all__ = ["sort", "split"]


def sort(
    source: Source,
    *,
    to: PathLike | None = None,
    view: PathLike | None = None,
    key: KeyLike | None = None,
    layout: LayoutLike | None = None,
    reverse: bool = False,
    unique: bool = False,
    method: str = "auto",
    **settings: Unpack[Settings],
) -> Plan:
    """The plan of `ascot.sort` with these arguments. It reads a sample of the input, and writes nothing.

    >>> import ascot, tempfile, pathlib
    >>> records = pathlib.Path(tempfile.mkdtemp(), "records")
    >>> _ = ascot.gen(1000, to=records)
    >>> plan = ascot.plan.sort(records, layout=ascot.Fixed(100), to=records)
    >>> plan.chosen.method
    'in memory'
    """
    request = Request(source, layout, key, reverse, settings)
    output = None if to is None else os.fspath(to)
    request.set(output=output, unique=unique, method=method)
    told, text, _ = _native.explain(request.options, view=None if view is None else os.fspath(view))
    return plan_of_explanation(told, text)


def split(
    source: Source,
    *,
    to: PathLike,
    parts: int,
    by: Literal["range", "hash", "size"] = "range",
    key: KeyLike | None = None,
    layout: LayoutLike | None = None,
    **settings: Unpack[Settings],
) -> Plan:
    """The plan of `ascot.split` with these arguments."""
    request = Request(source, layout, key, False, settings)
    request.set(output=os.fspath(to), parts=parts)
    told, text, _ = _native.explain(request.options, by=by)
    return plan_of_explanation(told, text)
