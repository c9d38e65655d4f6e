"""The exceptions of the package.

Each derives from `AscotError` and from the built-in class that a program would catch otherwise. The text of an
exception names the file and a remedy; its fields have the same facts for programs, or None where a fact is not known.
"""

import errno as _errno
import os as _os
from collections.abc import Iterator as _Iterator
from contextlib import contextmanager as _contextmanager
from contextlib import suppress as _suppress
from typing import Any, ClassVar

__all__ = [
    "AscotError",
    "AscotWarning",
    "Damaged",
    "FileDenied",
    "FileError",
    "FileExists",
    "FileMissing",
    "FunctionFailed",
    "InternalError",
    "InvalidRequest",
    "MemoryLimit",
    "NoSpace",
    "NotSorted",
    "Resumable",
    "SchemaMismatch",
]


class AscotWarning(UserWarning):
    """A result may not be what was expected; the report has the same text among its notices."""


class AscotError(Exception):
    """A job failed. `message` is the text."""

    message: str

    # The fields that the class has, and their values without further knowledge.
    _fields: ClassVar[dict[str, Any]] = {}

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        values = {**self._fields, **fields}
        # Exceptions of other libraries may have something else there.
        if isinstance(values.get("errno"), int):
            values["strerror"] = _os.strerror(values["errno"])
        for name, value in values.items():
            setattr(self, name, value)

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {name: getattr(self, name) for name in self._fields}
        return _copied, (type(self), self.message, fields), vars(self)


class InvalidRequest(AscotError, ValueError):
    """The arguments contradict each other, or one of them is wrong."""


class MemoryLimit(AscotError, MemoryError):
    """The job does not fit in the memory that it was given.

    `given` and `needed` are bytes.
    """

    given: int | None
    needed: int | None
    _fields: ClassVar[dict[str, Any]] = {"given": None, "needed": None}


class SchemaMismatch(AscotError, ValueError):
    """Records or keys are not as described: a column is missing, a record is cut short, a file has another format.

    `file` is the input, `record` the number of the record from 1, and `offset` its position in bytes.
    """

    file: str | None
    record: int | None
    offset: int | None
    _fields: ClassVar[dict[str, Any]] = {"file": None, "record": None, "offset": None}


class NotSorted(AscotError, ValueError):
    """An input that should be sorted is not.

    `file` is the input, `record` the number from 1 of the first record that is less than the one before it, and
    `offset` its position in bytes.
    """

    file: str
    record: int
    offset: int
    _fields: ClassVar[dict[str, Any]] = {"file": None, "record": None, "offset": None}


class FileError(AscotError, OSError):
    """The system refused an operation on a file: `filename`, `errno`."""

    _fields: ClassVar[dict[str, Any]] = {"filename": None, "errno": None}


class FileMissing(FileError, FileNotFoundError):
    """A file or directory does not exist."""

    _fields: ClassVar[dict[str, Any]] = {"filename": None, "errno": _errno.ENOENT}


class FileDenied(FileError, PermissionError):
    """The permissions of a file do not allow an operation."""

    _fields: ClassVar[dict[str, Any]] = {"filename": None, "errno": _errno.EACCES}


class FileExists(FileError, FileExistsError):
    """A file or directory exists already."""

    _fields: ClassVar[dict[str, Any]] = {"filename": None, "errno": _errno.EEXIST}


class NoSpace(FileError):
    """A volume is full, or too small for the job.

    `needed` and `free` are bytes, `filename` a file or directory on the volume; `errno` is `ENOSPC`.
    """

    needed: int | None
    free: int | None
    _fields: ClassVar[dict[str, Any]] = {"filename": None, "errno": _errno.ENOSPC, "needed": None, "free": None}


class Damaged(AscotError, OSError):
    """A file does not hold the bytes that were written.

    `file` is the file, and `offset` the position of the damage in bytes; `errno` is `EIO`.
    """

    file: str
    offset: int | None
    _fields: ClassVar[dict[str, Any]] = {"file": None, "offset": None, "filename": None, "errno": _errno.EIO}


class Resumable(AscotError, OSError):
    """A job ended early, and its spills are kept: `ascot.resume(directory)` continues it.

    `directory` is the directory of the job; the reason is the `__cause__`.
    """

    directory: str
    _fields: ClassVar[dict[str, Any]] = {"directory": None}


class FunctionFailed(AscotError, RuntimeError):
    """A function of the program raised an exception on a node of a cluster, gave a wrong result, or made no progress.

    `traceback` is that of the exception as a text, or the stack of a function without progress; it is empty for a
    wrong result. For a function of records, `file` is the input and `offset` the position in bytes of the record, or
    of the first one of the batch; for a function of keys, `key` is the key, or its first 60 bytes.
    """

    traceback: str
    file: str | None
    offset: int | None
    key: bytes | None
    _fields: ClassVar[dict[str, Any]] = {"traceback": "", "file": None, "offset": None, "key": None}


class InternalError(AscotError, RuntimeError):
    """A fault of Ascot; please report it."""


@_contextmanager
def of_system() -> _Iterator[None]:
    """Raises the exceptions of the package for those of Python on files."""
    try:
        yield
    except OSError as error:
        known = {FileNotFoundError: FileMissing, PermissionError: FileDenied, FileExistsError: FileExists}
        made = known.get(type(error), FileError)
        text = f"{error.filename}: {error.strerror}"
        raise made(text, filename=error.filename, errno=error.errno) from error


def warn(texts: list[str]) -> None:
    """Issues warnings of the extension module to the caller of the package."""
    if not texts:
        return
    import sys
    import warnings

    from ascot.wording import in_python

    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("ascot."):
        level, frame = level + 1, frame.f_back
    for text in texts:
        warnings.warn(in_python(text), AscotWarning, stacklevel=level)


def _copied(kind: type[AscotError], message: str, fields: dict[str, Any]) -> AscotError:
    """A copy of an exception: the text is whole, and a subclass may have other arguments."""
    made = _allocated(kind, message)
    AscotError.__init__(made, message, **fields)
    return made


def _allocated(kind: type[AscotError], message: str) -> AscotError:
    # Only the base whose objects lie in memory as those of `kind` may make them: Exception for MemoryLimit, though
    # MemoryError comes before it.
    for base in kind.__mro__:
        if "__new__" in vars(base):
            allocate: Any = base.__new__
            with _suppress(TypeError):
                made: AscotError = allocate(kind, message)
                return made
    raise TypeError(f"no base of {kind.__name__} makes its objects")


def make(name: str, message: str, fields: dict[str, Any]) -> AscotError:
    """The exception of the class `name` with these fields, for a text of a library. The extension module calls it."""
    from ascot.open_files import named
    from ascot.wording import in_python

    known: dict[str, Any] = globals()
    plain = {key: _os.fspath(value) if hasattr(value, "__fspath__") else value for key, value in fields.items()}
    if plain.get("errno") == _errno.EISDIR:
        message += _advice_on_directory(plain.get("filename"), message)
    plain = {key: named(value) if isinstance(value, str) else value for key, value in plain.items()}
    if isinstance(plain.get("file"), str):
        plain.setdefault("filename", plain["file"])
    made: AscotError = known[name](in_python(message), **plain)
    return made


def _advice_on_directory(directory: Any, message: str) -> str:
    """What to name instead of a directory."""
    if "cannot create" in message:
        return "\n  name a file in it, or another name"
    if _os.path.exists(_os.path.join(directory or "", "view.json")):
        return f"\n  it is a view: ascot.view({directory!r}).write(FILE) writes its records to a file"
    return f"\n  name its files, such as {_os.path.join(directory or '', '*')!r}"
