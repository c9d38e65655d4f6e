"""The files of a job: paths, patterns of names, lists of them, and arrays that are files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeAlias

__all__ = ["PathLike", "Source", "paths_of"]

PathLike: TypeAlias = "str | os.PathLike[str]"
Source: TypeAlias = "PathLike | Iterable[PathLike]"

_PATTERN = frozenset("*?[")


def paths_of(source: Source) -> list[str]:
    """The files of a source, in order; those of a pattern are in the order of their names.

    Raises FileNotFoundError if no file matches a pattern, and TypeError for anything that is no file.
    """
    paths = list(_each(source))
    if not paths:
        raise ValueError("no input: name at least one file")
    for path in paths:
        if path.lower().endswith((".parquet", ".pq")):
            raise _parquet(path)
    return paths


def _each(source: Any) -> Iterable[str]:
    if isinstance(source, str | os.PathLike):
        return _matching(os.fspath(source))
    file = _file_of_array(source)
    if file is not None:
        return [file]
    if isinstance(source, bytes | dict) or not isinstance(source, Iterable):
        raise TypeError(f"an input is a path, a pattern or a list of them, not {type(source).__name__}")
    return [path for one in source for path in _of_list(one)]


def _of_list(source: Any) -> Iterable[str]:
    if not isinstance(source, str | os.PathLike) and _file_of_array(source) is None:
        raise TypeError(f"an input is a path, not {type(source).__name__}")
    return _each(source)


def _matching(path: Any) -> list[str]:
    if not isinstance(path, str):
        path = os.fsdecode(path)
    if not path:
        raise ValueError("an input has an empty name")
    if not _PATTERN.intersection(path) or os.path.exists(path):
        return [path]
    from glob import glob

    found = sorted(glob(path, recursive=True))
    if not found:
        from ascot.errors import FileMissing

        raise FileMissing(f"no file matches {path}", filename=path)
    return found


def _file_of_array(source: Any) -> str | None:
    """The file of a numpy.memmap of a whole file."""
    name = getattr(source, "filename", None)
    offset, length = getattr(source, "offset", None), getattr(source, "nbytes", None)
    if name is None or not isinstance(offset, int) or not isinstance(length, int):
        return None
    path = os.fspath(name)
    if offset != 0 or length != os.path.getsize(path):
        raise ValueError(f"the array has only a part of {path}: name the file, or write that part to its own file")
    return path if isinstance(path, str) else os.fsdecode(path)


def _parquet(path: str) -> Exception:
    from ascot.errors import SchemaMismatch

    return SchemaMismatch(
        f"{path}: Ascot does not read Parquet\n  convert it first, such as with "
        f"pyarrow.csv.write_csv(pyarrow.parquet.read_table({path!r}), 'table.csv')",
        file=path,
    )
