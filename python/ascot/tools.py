"""Benchmark records, and checks of files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from ascot import _native, arguments
from ascot.errors import InvalidRequest
from ascot.layouts import KeyLike, LayoutLike, Lines, arrow_options, column_keys, keys_of, layout_of, record_options
from ascot.open_files import named
from ascot.progress import Progress, reporter
from ascot.sources import ArrowSource, PathLike, Source, Sources, output_path, with_batches

__all__ = ["Checked", "Disorder", "check", "gen"]


def gen(
    count: int,
    *,
    to: PathLike,
    start: int = 0,
    ascii: bool = False,
    skew: bool = False,
    threads: int | None = None,
    progress: Literal["auto"] | Callable[[Progress], object] | None = None,
) -> int:
    """Writes `count` records of the sort benchmark, 100 bytes each with a key of 10, to the file `to`.

    `start` is the number of the first one. `ascii` makes them printable, `skew` makes keys repeat. Returns the bytes
    written. Raises InvalidRequest, NoSpace, and the subclasses of FileError.
    """
    options = {
        "output": output_path(to, remedy="give another name: the records are those of the sort benchmark"),
        "count": arguments.count("count", count, bits=64),
        "start": arguments.count("start", start, bits=64),
        "ascii": arguments.flag("ascii", ascii),
        "skewed": arguments.flag("skew", skew),
        "threads": arguments.maybe(arguments.count, "threads", threads, least=1),
    }
    with reporter(progress) as report:
        return _native.generate(options, report)


class Disorder(NamedTuple):
    """The first record that is less than the one before it.

    `file` has it, `record` is its number there from 0, and `offset` its position in bytes if all records have the
    same length.
    """

    file: str
    record: int
    offset: int | None


class Checked(NamedTuple):
    """The result of a check. `checksum` does not depend on the order of the records."""

    records: int
    bytes: int
    duplicate_keys: int
    checksum: str
    disorder: Disorder | None

    @property
    def is_sorted(self) -> bool:
        """Whether all records are in order."""
        return self.disorder is None


def check(
    source: Source | ArrowSource,
    *,
    key: KeyLike | None = None,
    layout: LayoutLike | None = None,
    reverse: bool = False,
    threads: int | None = None,
    progress: Literal["auto"] | Callable[[Progress], object] | None = None,
) -> Checked:
    """Counts the records of files that are one sequence, sums them up, and finds the first out of order.

    `layout` is that of the files, by default lines. For Arrow batches, `key` names the columns that should order the
    rows, and `bytes` and `checksum` describe an encoding of the rows. With a `layout`, batches are checked as its
    records.

    A directory stands for the files and views in it, in the order of their names, such as the output of
    `ascot.cluster.sort`. Views are merged as they are read. Raises FileMissing for a view whose files are not there.

    >>> import ascot, tempfile, pathlib
    >>> records = pathlib.Path(tempfile.mkdtemp(), "records")
    >>> ascot.gen(1000, to=records)
    100000
    >>> checked = ascot.check(records, layout=ascot.Fixed(100, key=slice(0, 10)))
    >>> checked.records, checked.is_sorted
    (1000, False)
    """
    threads = arguments.maybe(arguments.count, "threads", threads, least=1)
    files = with_batches(source)
    with reporter(progress) as report:
        records, size, duplicates, checksum, first = _checked(files, layout, key, reverse, threads, report)
    disorder = None if first is None else Disorder(named(first[0]), *first[1:])
    return Checked(records, size, duplicates, checksum, disorder)


def _checked(
    files: Sources,
    layout: LayoutLike | None,
    key: KeyLike | None,
    reverse: bool,
    threads: int | None,
    report: Callable[..., object] | None,
) -> tuple[int, int, int, str, tuple[str, int, int | None] | None]:
    if files.batches and layout is None:
        arguments.flag("reverse", reverse)
        if not keys_of(key):
            raise InvalidRequest(
                "a check of batches needs the columns that order them, such as key='id'\n"
                "  or give the layout of their records"
            )
        arrow = arrow_options(Lines(), column_keys(key, reverse))
        return _native.check_batches(files.batches[0], None, arrow, threads, report)
    described = layout_of("lines" if layout is None else layout)
    records = record_options(described, key, reverse)
    if files.batches:
        return _native.check_batches(files.batches[0], records, arrow_options(described, []), threads, report)
    return _native.check([file for file in files.files if file is not None], records, threads, report)
