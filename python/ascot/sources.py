"""The sources of jobs: paths, patterns, open files, bytes, arrays, lists of them, Arrow batches."""

from __future__ import annotations

import os
import re
import stat
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple, Protocol, TypeAlias

from ascot import arguments
from ascot.errors import InvalidRequest
from ascot.open_files import BATCHES_FILE, Names

__all__ = [
    "ArrowSource",
    "Buffer",
    "FileRange",
    "PathLike",
    "Source",
    "SourceFile",
    "Sources",
    "batches_of",
    "output_path",
    "part_path",
    "sources_of",
    "with_batches",
]

PathLike: TypeAlias = "str | os.PathLike[str]"
Source: TypeAlias = "PathLike | Buffer | _OpenFile | Iterable[PathLike | Buffer | _OpenFile]"


class _OpenFile(Protocol):
    def fileno(self) -> int: ...


class Buffer(Protocol):
    """An object with the buffer protocol: bytes, `array.array`, `mmap.mmap`, an array of numpy."""

    def __buffer__(self, flags: int, /) -> memoryview: ...


class _Stream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


class _Array(Protocol):
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...


ArrowSource: TypeAlias = "_Stream | _Array | Iterable[_Stream | _Array]"

_PATTERN = frozenset("*?[")
_WRITE_BYTES = 16 << 20


class FileRange(NamedTuple):
    """The bytes from `start` to `end` of a file."""

    path: str
    start: int
    end: int


SourceFile: TypeAlias = "str | FileRange"


class Sources:
    """The files of a source, in order. Open files and bytes have descriptors, which are closed with this object.

    None in `files` is an input of Arrow batches, and `batches` has these in order.
    """

    __slots__ = ("__weakref__", "_descriptors", "_names", "batches", "files")

    def __init__(self) -> None:
        self.files: list[SourceFile | None] = []
        self.batches: list[Any] = []
        # What closes each of them.
        self._descriptors: list[weakref.finalize[[int], Sources]] = []
        self._names = Names()

    def paths(self) -> list[str]:
        """The names of the files. Raises InvalidRequest if one is only a range of a file."""
        for file in self.files:
            if isinstance(file, FileRange):
                raise InvalidRequest(
                    f"the array has only bytes {file.start} to {file.end} of {file.path}; nodes read whole files\n"
                    "  write the array to a file: ARRAY.tofile(FILE)"
                )
        return [file for file in self.files if isinstance(file, str)]

    def add_path(self, path: str) -> None:
        """Adds a file by its name."""
        _refuse_parquet(path)
        self.files.append(path)

    def add_range(self, range: FileRange) -> None:
        """Adds a range of a file."""
        self.files.append(range)

    def add_file(self, file: Any, argument: str) -> None:
        """Adds an open file, which is read from its beginning."""
        try:
            # The file may be closed before the job has ended.
            number = self._owned(os.dup(file.fileno()))
        except (OSError, OverflowError):
            # A stream of Python, such as io.StringIO, or a closed file of the system.
            arguments.wrong_type(argument, file, "a path, an open file of the system or bytes")
        if stat.S_ISSOCK(os.fstat(number).st_mode):
            raise InvalidRequest(
                f"{argument} is a socket, which a job cannot open\n  write what it receives to a file, or to a pipe"
            )
        position = _position(file)
        if position:
            raise InvalidRequest(f"the file {file!r} was read up to byte {position}: seek(0) first, or name it")
        name = getattr(file, "name", None)
        self._add_open(number, name if isinstance(name, str) else "the open file")

    def add_batches(self, batches: Any) -> None:
        """Adds Arrow batches."""
        self.files.append(None)
        self.batches.append(batches)

    def write_batches(self, directory: str, write: Callable[[Any, str], object]) -> None:
        """Replaces batches by files in `directory` that lose their names; `write` writes some to a file."""
        batches, self.batches = self.batches, []
        for place in [place for place, file in enumerate(self.files) if file is None]:
            path = os.path.join(directory, BATCHES_FILE + os.urandom(8).hex())
            try:
                write(batches.pop(0), path)
                number = self._owned(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(path)
            # As jobs name batches that they take as they come.
            name = "the batches" if len(self.files) == 1 else f"the batches in input {place + 1}"
            self.files[place] = self._names.add(number, name)

    def add_bytes(self, view: memoryview) -> None:
        """Adds bytes, which are copied to a file in memory."""
        number = self._owned(os.memfd_create("ascot", os.MFD_CLOEXEC))
        while len(view) > 0:
            # A long write would hold Ctrl-C back.
            view = view[os.write(number, view[:_WRITE_BYTES]) :]
        self._add_open(number, "the bytes given")

    def _owned(self, number: int) -> int:
        self._descriptors.append(weakref.finalize(self, os.close, number))
        return number

    def _add_open(self, number: int, name: str) -> None:
        self.add_path(self._names.add(number, name))

    def give_up_descriptors(self) -> list[int]:
        """The descriptors, which the caller closes from now on."""
        found = [one.detach() for one in self._descriptors]
        return [number for one in found if one is not None for number in one[2]]


def _position(file: Any) -> int:
    """The position of an open file; 0 for one that has none, as a pipe."""
    # An object may have no more than a descriptor.
    if not hasattr(file, "seekable") or not file.seekable():
        return 0
    try:
        position: int = file.tell()
    except OSError as error:
        # A loop reads ahead, so that the position of its line is not known.
        raise InvalidRequest(f"the file {file!r} was read by a loop: open it again, or name it") from error
    return position


def batches_of(source: Any) -> Any:
    """The source itself if it has Arrow batches, else None; and the files of an iterator of names, else None.

    An iterator is asked for its first item. One without items counts as one of batches.
    """
    if _has_batches(source):
        return source, None
    if isinstance(source, list | tuple):
        return (source, None) if source and _has_batches(source[0]) else (None, source)
    if not isinstance(source, Iterable) or isinstance(source, str | os.PathLike | dict) or _is_file(source):
        return None, source
    items = iter(source)
    for first in items:
        whole = chain([first], items)
        is_name = isinstance(first, str | os.PathLike)
        if _has_batches(first) or (isinstance(source, Iterator) and not is_name):
            return whole, None
        return None, whole
    return (source, None) if isinstance(source, Iterator) else (None, source)


def _has_batches(source: Any) -> bool:
    return hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__")


def _is_file(source: Any) -> bool:
    """Whether an object that may be iterated over is one file."""
    if hasattr(source, "fileno") or hasattr(source, "getbuffer") or _buffer_of(source) is not None:
        return True
    return _is_map(source)


def _buffer_of(source: Any) -> memoryview | None:
    """The memory of bytes, or of an array of numbers or of records of numbers; None for anything else."""
    try:
        view = memoryview(source)
    except (TypeError, ValueError, BufferError):
        return None
    is_of_numbers = view.format.lstrip("<>=@!") in tuple("?bBcdefghHiIlLnNqQ")
    return view if is_of_numbers or (view.format.startswith("T{") and "O" not in view.format) else None


def sources_of(source: Any, argument: str = "source") -> Sources:
    """The files of a source, in order; those of a pattern are in the order of their names.

    Raises FileNotFoundError if no file matches a pattern, and TypeError, with the name of the `argument`, for
    anything that is no file.
    """
    sources = with_batches(source, argument)
    for batches in sources.batches:
        raise TypeError(
            f"{argument} is of files, not of Arrow batches ({type(batches).__name__})\n"
            "  write a file first: ascot.sort(batches, layout=..., to=FILE)"
        )
    return sources


def with_batches(source: Any, argument: str = "source", *, several: bool = False) -> Sources:
    """The files of a source, or its Arrow batches. If it is `several` sources, each element of a list is one.

    Raises the exceptions of `sources_of`, but takes batches.
    """
    sources = Sources()
    for one in source if several and isinstance(source, list | tuple) else [source]:
        batches, files = batches_of(one)
        if batches is not None:
            sources.add_batches(batches)
        elif one is source:
            _add(files, sources, argument, True)
        else:
            _add(files, sources, f"an element of {argument}", False)
    if not sources.files:
        raise InvalidRequest(f"{argument} has no input: name at least one file")
    return sources


def _add(source: Any, sources: Sources, argument: str, lists: bool) -> None:
    if isinstance(source, str | os.PathLike):
        for path in _matching(arguments.path(argument, source)):
            sources.add_path(path)
    elif (mapped := _mapped_range(source)) is not None:
        if mapped.start == 0 and mapped.end == os.path.getsize(mapped.path):
            sources.add_path(mapped.path)
        else:
            sources.add_range(mapped)
    elif (buffer := _buffer_of(source)) is not None:
        if not buffer.c_contiguous:
            raise InvalidRequest(f"{argument}: the array is not contiguous: give its tobytes()")
        # Other byte orders and arrays without elements have no view of their bytes.
        is_plain = buffer.nbytes > 0 and buffer.format[0] not in "<>=!T"
        sources.add_bytes(buffer.cast("B") if is_plain else memoryview(buffer.tobytes()))
    elif hasattr(source, "getbuffer"):
        sources.add_bytes(source.getbuffer())
    elif hasattr(source, "fileno"):
        sources.add_file(source, argument)
    elif lists and isinstance(source, Iterable) and not isinstance(source, dict):
        for one in source:
            _add(one, sources, f"an element of {argument}", False)
    else:
        one = "a path, an open file or bytes"
        accepted = f"{one}, or a list of them" if lists else one
        # Objects of pyarrow and polars that make batches when they are asked.
        methods = [name for name in ("to_batches", "iter_batches", "collect_batches") if hasattr(source, name)]
        arguments.wrong_type(argument, source, f"{accepted}, or its {methods[0]}()" if methods else accepted)


def _matching(path: str) -> list[str]:
    if not _PATTERN.intersection(path) or os.path.exists(path):
        return [path]
    from glob import glob

    found = sorted(glob(path, recursive=True))
    if not found:
        from ascot.errors import FileMissing

        raise FileMissing(f"no file matches {path}", filename=path)
    return found


def _is_map(source: Any) -> bool:
    """Whether an array has the bytes of a file and no changes of its own (mode `c`)."""
    numpy = sys.modules.get("numpy")
    is_map = numpy is not None and isinstance(source, numpy.memmap)
    return is_map and source.mode != "c" and source.filename is not None


def _mapped_range(source: Any) -> FileRange | None:
    """The range of a file that a `numpy.memmap` maps; None for anything else.

    The attribute `offset` of a slice is that of the whole array, so the system is asked where the memory is mapped
    from. Raises InvalidRequest if the file has another name now, or none.
    """
    if not _is_map(source) or not source.flags.c_contiguous or source.nbytes == 0:
        return None
    path = os.fsdecode(source.filename)
    address = source.__array_interface__["data"][0]
    inode, start = _mapping_at(address)
    try:
        is_same = os.stat(path).st_ino == inode
    except FileNotFoundError:
        is_same = False
    if not is_same:
        raise InvalidRequest(
            f"the array maps a file that is no longer at {path}: it was moved, removed or replaced\n"
            "  map the file again, or give the array's bytes: numpy.array(ARRAY)"
        )
    return FileRange(path, start, start + source.nbytes)


def _mapping_at(address: int) -> tuple[int, int]:
    """The inode of the file that is mapped at an address, 0 if none is, and the offset in it (proc_pid_maps(5))."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as mappings:
        for mapping in mappings:
            bounds, _, offset, _, inode = mapping.split(maxsplit=5)[:5]
            low, high = (int(bound, 16) for bound in bounds.split("-"))
            if low <= address < high:
                return int(inode), int(offset, 16) + address - low
    return 0, 0


def _refuse_parquet(path: str) -> None:
    if path.lower().endswith((".parquet", ".pq")) or _is_parquet(path):
        from ascot.errors import SchemaMismatch

        raise SchemaMismatch(
            f"{path}: Ascot does not read Parquet\n  read its batches with pyarrow: "
            f"ascot.sort(pyarrow.parquet.ParquetFile({path!r}).iter_batches(), key=...)",
            file=path,
        )


def output_path(
    path: Any,
    argument: str = "to",
    remedy: str = "give another name; ascot.sort without to= gives batches for pyarrow.parquet.ParquetWriter",
) -> str:
    """The path of an output. Raises SchemaMismatch with the `remedy` if its name is that of a Parquet file."""
    name = arguments.path(argument, path)
    if name.lower().endswith((".parquet", ".pq")):
        from ascot.errors import SchemaMismatch

        raise SchemaMismatch(f"{name}: Ascot does not write Parquet\n  {remedy}", file=name)
    return name


def part_path(pattern: str, number: int) -> str:
    """The name of a part: `{}` or `{:05}` in the name of the file stands for its number."""
    folder, name = os.path.split(pattern)
    field = re.compile(r"\{(?::(\d+))?\}")
    return os.path.join(folder, field.sub(lambda found: format(number, found[1] or ""), name, count=1))


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
