"""The sources of jobs: paths, patterns, open files, bytes, arrays that are files, lists of them, Arrow batches."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Protocol, TypeAlias

from ascot import arguments

__all__ = ["ArrowSource", "PathLike", "Source", "Sources", "batches_of", "sources_of"]

PathLike: TypeAlias = "str | os.PathLike[str]"
Source: TypeAlias = "PathLike | bytes | bytearray | memoryview | _OpenFile | Iterable[PathLike]"


class _OpenFile(Protocol):
    def fileno(self) -> int: ...


class _Stream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


class _Array(Protocol):
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...


ArrowSource: TypeAlias = "_Stream | _Array | Iterable[_Stream | _Array]"

_PATTERN = frozenset("*?[")


class Sources:
    """The files of a source, in order, and what keeps them open."""

    __slots__ = ("__weakref__", "_held", "paths")

    def __init__(self) -> None:
        self.paths: list[str] = []
        self._held: list[Any] = []

    def add_path(self, path: str) -> None:
        """Adds a file by its name."""
        _refuse_parquet(path)
        self.paths.append(path)

    def add_file(self, file: Any) -> None:
        """Adds an open file, which is read from its beginning."""
        number = file.fileno()
        position = file.tell() if file.seekable() else 0
        if position:
            raise ValueError(f"the file {file!r} was read up to byte {position}: seek(0) first, or name it")
        self._held.append(file)
        self.add_path(f"/proc/self/fd/{number}")

    def add_bytes(self, content: Any) -> None:
        """Adds bytes, which are copied to a file in memory."""
        view = memoryview(content).cast("B")
        number = os.memfd_create("ascot", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, number)
        while len(view) > 0:
            view = view[os.write(number, view) :]
        self.add_path(f"/proc/self/fd/{number}")


def batches_of(source: Any) -> Any:
    """The source itself if it has Arrow batches, else None; and the files of an iterator of names, else None.

    An iterator is asked for its first item. One without items counts as one of batches.
    """
    if _has_batches(source):
        return source, None
    if isinstance(source, list | tuple):
        return (source, None) if source and _has_batches(source[0]) else (None, source)
    if not isinstance(source, Iterator) or hasattr(source, "fileno"):
        return None, source
    for first in source:
        whole = chain([first], source)
        return (None, whole) if isinstance(first, str | os.PathLike) else (whole, None)
    return source, None


def _has_batches(source: Any) -> bool:
    return hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__")


def sources_of(source: Any, argument: str = "source") -> Sources:
    """The files of a source, in order; those of a pattern are in the order of their names.

    Raises FileNotFoundError if no file matches a pattern, and TypeError, with the name of the `argument`, for
    anything that is no file.
    """
    batches, source = batches_of(source)
    if batches is not None:
        raise TypeError(
            f"{argument} is of files, not of Arrow batches ({type(batches).__name__})\n"
            "  write a file first: ascot.sort(batches, layout=..., to=FILE)"
        )
    sources = Sources()
    _add(source, sources, argument, True)
    if not sources.paths:
        raise ValueError(f"{argument} has no input: name at least one file")
    return sources


def _add(source: Any, sources: Sources, argument: str, lists: bool) -> None:
    if isinstance(source, str | os.PathLike):
        for path in _matching(arguments.path(argument, source)):
            sources.add_path(path)
    elif (file := _file_of_array(source)) is not None:
        sources.add_path(file)
    elif isinstance(source, bytes | bytearray | memoryview):
        sources.add_bytes(source)
    elif hasattr(source, "getbuffer"):
        sources.add_bytes(source.getbuffer())
    elif hasattr(source, "fileno"):
        sources.add_file(source)
    elif lists and isinstance(source, Iterable) and not isinstance(source, dict):
        for one in source:
            _add(one, sources, f"an element of {argument}", False)
    else:
        one = "a path, an open file or bytes"
        arguments.wrong_type(argument, source, f"{one}, or a list of them" if lists else one)


def _matching(path: str) -> list[str]:
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


def _refuse_parquet(path: str) -> None:
    if path.lower().endswith((".parquet", ".pq")) or _is_parquet(path):
        from ascot.errors import SchemaMismatch

        raise SchemaMismatch(
            f"{path}: Ascot does not read Parquet\n  read its batches with pyarrow: "
            f"ascot.sort(pyarrow.parquet.ParquetFile({path!r}).iter_batches(), key=...)",
            file=path,
        )


def refuse_parquet_output(path: str) -> None:
    """Raises SchemaMismatch if the name of an output is that of a Parquet file."""
    if path.lower().endswith((".parquet", ".pq")):
        from ascot.errors import SchemaMismatch

        raise SchemaMismatch(
            f"{path}: Ascot does not write Parquet\n  leave out to=, and write the batches of the result with "
            "pyarrow.parquet.ParquetWriter",
            file=path,
        )


def _is_parquet(path: str) -> bool:
    """Whether a regular file begins and ends with the magic bytes of Parquet."""
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            if file.read(4) != b"PAR1":
                return False
            file.seek(-4, os.SEEK_END)
            return file.read(4) == b"PAR1"
    except OSError:
        return False
