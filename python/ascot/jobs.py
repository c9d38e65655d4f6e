"""Jobs on files and Arrow batches: sort, merge, split and reshape.

A job runs until its output is complete, and returns its report. Meanwhile other threads of the program run. Ctrl-C
stops the job, which removes its files, and raises KeyboardInterrupt.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict, Unpack, overload

from ascot import _native, arguments
from ascot.batches import Batches
from ascot.errors import InvalidRequest, warn
from ascot.layouts import (
    Csv,
    KeyLike,
    Layout,
    LayoutLike,
    Lines,
    arrow_options,
    column_keys,
    keys_of,
    layout_of,
    record_options,
)
from ascot.outcomes import Outcome
from ascot.progress import ProgressLike, checked, reporter
from ascot.sources import (
    ArrowSource,
    PathLike,
    Source,
    SourceFile,
    Sources,
    output_path,
    part_path,
    sources_of,
    with_batches,
)

__all__ = ["Job", "Settings", "merge", "reshape", "resume", "sort", "split"]


class Job(Outcome):
    """A finished job: its `report`, its `plan`, and the files or the view that it wrote, `outputs`."""

    __slots__ = ("outputs",)

    outputs: tuple[str, ...]

    def __init__(self, told: str, text: str, outputs: Sequence[str]) -> None:
        super().__init__(told, text)
        self.outputs = tuple(outputs)

    def __repr__(self) -> str:
        return f"<ascot.Job: {str(self.report).splitlines()[0]}>"

    def __str__(self) -> str:
        return str(self.report)

    def _repr_html_(self) -> str:
        return self.report._repr_html_()


class Settings(TypedDict, total=False):
    """Arguments that all jobs have.

    `memory` is the cap, as bytes or as a text such as `"512MiB"`, or `"25%"` of the machine's memory; by default
    `ASCOT_MEMORY`, or a share of the machine's memory. `temp` are the directories for spills; by default
    `ASCOT_TMPDIR`, `TMPDIR` or the directory of the output. `threads` is the number of compute threads, by default
    one per core. `fan_in` limits the files that are merged at once. `compress` is the compression of spills: `auto`,
    `none`, `lz4` or `zstd`. `volume` is a profile of the volume, or a kind such as `rotational`; by default Ascot
    finds it. `any_format` accepts files that are not text as lines. `progress` shows the progress: `"auto"` draws a
    bar in a terminal or a notebook, a function is called with each `Progress`.
    """

    memory: int | str | None
    temp: PathLike | Sequence[PathLike]
    threads: int | None
    fan_in: int | None
    compress: str
    volume: PathLike | None
    any_format: bool
    progress: ProgressLike


_PARQUET = "leave out to=, and write the batches of the result with pyarrow.parquet.ParquetWriter"
_SETTINGS = {
    "memory": None,
    "temp": (),
    "threads": None,
    "fan_in": None,
    "compress": "auto",
    "volume": None,
    "any_format": False,
}


@overload
def sort(
    source: Source | ArrowSource,
    *,
    to: None = None,
    view: None = None,
    key: KeyLike | None = None,
    layout: LayoutLike | None = None,
    reverse: bool = False,
    unique: bool = False,
    stable: bool = False,
    top: int | None = None,
    method: str = "auto",
    **settings: Unpack[Settings],
) -> Batches: ...


@overload
def sort(
    source: Source | ArrowSource,
    *,
    to: PathLike | None = None,
    view: PathLike | None = None,
    key: KeyLike | None = None,
    layout: LayoutLike | None = None,
    reverse: bool = False,
    unique: bool = False,
    stable: bool = False,
    top: int | None = None,
    parts: int | None = None,
    method: str = "auto",
    **settings: Unpack[Settings],
) -> Job: ...


def sort(
    source: Source | ArrowSource,
    *,
    to: PathLike | None = None,
    view: PathLike | None = None,
    key: KeyLike | None = None,
    layout: LayoutLike | None = None,
    reverse: bool = False,
    unique: bool = False,
    stable: bool = False,
    top: int | None = None,
    parts: int | None = None,
    method: str = "auto",
    **settings: Unpack[Settings],
) -> Job | Batches:
    """Sorts files or Arrow batches to the file `to`, to the view `view`, or to a stream of batches.

    `source` is a path, a pattern, an open file, bytes or a list of them; or any object with Arrow batches: a table or
    a data frame of pyarrow, polars or pandas, a relation of duckdb, an iterator of batches.

    Without `to` and `view` the result is a stream of Arrow batches (`ascot.Batches`). It begins when the source has
    been read; memory, spills included, stays within the cap however large the source is. The batches of an Arrow
    source have its columns, and `key` names columns: `"tenant"`, `ascot.desc("ts")`,
    `ascot.column("ts", nulls="first")`. The batches of a file have the columns of its layout.

    An Arrow source is written to a file or a view as the records of a layout: a column of integers, floats, text or
    fixed-size binary, the fields of `ascot.Fixed(length, fields={...})`, or CSV with a header. For CSV and for lines
    with a header it is written to a file in `temp` first.

    `key` is a key or a list of keys, and `layout` describes the records (see `ascot.layouts`); without one, files
    named `.csv` or `.tsv` have a header and are ordered by columns if there is a key, and all others are lines.
    `unique` keeps the first of records with equal keys, `stable` keeps the order of the input for equal keys, `top`
    keeps the first records. With `parts`, `to` is a pattern such as `part-{:03}`, and each part has a range of keys.
    `method` is `auto`, `merge` or `distribute`.

    `settings` are the arguments that all jobs have: `memory` (the cap), `temp` (directories for spills), `threads`,
    `fan_in`, `compress`, `volume`, `any_format` and `progress`. `ascot.Settings` describes them.

    Raises InvalidRequest, SchemaMismatch, MemoryLimit, NoSpace, Damaged, Resumable, and the subclasses of FileError.

    >>> import ascot, tempfile, pathlib
    >>> numbers = pathlib.Path(tempfile.mkdtemp(), "numbers")
    >>> _ = numbers.write_text("30\\n4\\n200\\n")
    >>> job = ascot.sort(numbers, layout=ascot.Lines(order="n"), to=numbers)
    >>> numbers.read_text().split()
    ['4', '30', '200']
    >>> job.report.records_out
    3
    """
    directory = arguments.maybe(arguments.path, "view", view)
    if to is not None:
        output_path(to, remedy=_PARQUET)
    number = arguments.maybe(arguments.count, "parts", parts, least=1)
    if to is not None and view is not None:
        raise InvalidRequest("give to=FILE or view=DIRECTORY, not both")
    streams = to is None and view is None
    request = _sort_of(source, layout, key, reverse, settings, streams)
    if number is not None and streams:
        raise InvalidRequest("parts are files: give to=PATTERN")
    request.set_rows(unique, top, stable=stable)
    if directory is not None and (number is not None or unique or top is not None):
        raise InvalidRequest("a view has all records: leave out parts, unique and top, or write a file (to=FILE)")
    request.set_method(method)
    if streams:
        return request.stream(column_keys(key, reverse) if request.files.batches else [])
    if request.files.batches and request.has_headers():
        request.write_batches(directory if to is None else output_path(to))
    if directory is None:
        return request.write(to, number, request.sorting(None))
    return request.run(request.sorting(directory), [directory])


def _sort_of(
    source: Any, layout: LayoutLike | None, key: KeyLike | None, reverse: bool, settings: Settings, streams: bool
) -> Request:
    """The request of a sort of files or of batches; of batches that stream, only their columns have keys."""
    sources = with_batches(source)
    if streams and sources.batches:
        if layout is not None:
            raise InvalidRequest("layout= describes files: leave it out to sort the batches, or give to=FILE")
        arguments.flag("reverse", reverse)
        layout, key, reverse = Lines(), None, False
    return Request(sources, layout, key, reverse, settings)


def merge(
    sources: Source | ArrowSource | Sequence[Source | ArrowSource],
    *,
    to: PathLike,
    key: KeyLike | None = None,
    layout: LayoutLike | None = None,
    reverse: bool = False,
    unique: bool = False,
    stable: bool = False,
    top: int | None = None,
    **settings: Unpack[Settings],
) -> Job:
    """Merges files or Arrow batches that are sorted by the same key to the file `to`.

    Each element of a list is an input: a path, a pattern, an open file, bytes, or an object with Arrow batches, such
    as a table or a generator. Batches become records of the `layout`; for CSV and for lines with a header they are
    written to files in `temp` first. The other arguments are those of `sort`, with the same `settings`
    (`ascot.Settings`).

    Raises NotSorted, with the input and the record, if an input is not in order, and the exceptions of `sort`.

    >>> import ascot, tempfile, pathlib
    >>> directory = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (directory / "a").write_text("ape\\ncow\\n")
    >>> _ = (directory / "b").write_text("bee\\n")
    >>> job = ascot.merge([directory / "a", directory / "b"], to=directory / "all")
    >>> (directory / "all").read_text().split()
    ['ape', 'bee', 'cow']
    """
    request = Request(with_batches(sources, "sources", several=True), layout, key, reverse, settings)
    request.set_rows(unique, top, stable=stable)
    request.set(merge=True)
    if request.has_headers():
        request.write_batches(output_path(to))
    return request.write(to, None, request.sorting(None))


def reshape(
    sources: Source | ArrowSource | Sequence[Source | ArrowSource],
    *,
    to: PathLike,
    parts: int,
    by: Literal["range", "hash", "value"] = "range",
    by_key: KeyLike | None = None,
    key: KeyLike | None = None,
    layout: LayoutLike | None = None,
    reverse: bool = False,
    **settings: Unpack[Settings],
) -> Job:
    """Merges sorted files or Arrow batches, as `merge` does, to `parts` sorted files, named by the pattern `to`.

    `by` decides on the file of a record: a range of its key, a hash of `by_key`, or each value of `by_key` in a file
    of its own. Without `by_key` the key that orders the records counts. For ranges, which are sampled, batches are
    written to files in `temp` first. The other arguments are those of `sort`, with the same `settings`
    (`ascot.Settings`).

    Raises NotSorted if an input is not in order, and the exceptions of `sort`.
    """
    request = Request(with_batches(sources, "sources", several=True), layout, key, reverse, settings)
    request.reshape(by, by_key)
    number = arguments.count("parts", parts, least=1)
    if by == "range" or request.has_headers():
        request.write_batches(output_path(to))
    return request.write(to, number, request.sorting(None))


def split(
    source: Source | ArrowSource,
    *,
    to: PathLike,
    parts: int,
    by: Literal["range", "hash", "size"] | None = None,
    key: KeyLike | None = None,
    boundaries: PathLike | None = None,
    layout: LayoutLike | None = None,
    reverse: bool = False,
    **settings: Unpack[Settings],
) -> Job:
    """Divides files or Arrow batches into `parts` files, named by the pattern `to`, without sorting them.

    `by` is `range` (each part has a range of keys; the default with a key), `hash` (equal keys share a part) or
    `size` (equal bytes each, in the order of the input; the default without a key). `boundaries` is a file of
    records whose keys bound the ranges. Batches become records of the `layout`; for parts of equal bytes, for ranges
    without `boundaries`, for CSV, and for lines with a header they are written to a file in `temp` first. The other
    arguments are those of `sort`, with the same `settings` (`ascot.Settings`).

    Raises the exceptions of `sort`.

    >>> import ascot, tempfile, pathlib
    >>> directory = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (directory / "words").write_text("ape\\nbee\\ncow\\ndog\\n")
    >>> job = ascot.split(directory / "words", to=directory / "part-{}", parts=2, by="size")
    >>> (directory / "part-1").read_text().split()
    ['cow', 'dog']
    """
    request = Request(with_batches(source), layout, key, reverse, settings)
    rule = request.split(by, boundaries)
    number = arguments.count("parts", parts, least=1)
    samples = rule == "size" or (rule == "range" and boundaries is None)
    if samples or request.has_headers():
        request.write_batches(output_path(to))
    return request.write(to, number, request.splitting(rule))


def resume(directory: PathLike, *, memory: int | str | None = None, progress: ProgressLike = None) -> Job:
    """Continues a job that was killed, or that raised `Resumable`, from its `directory`.

    `memory` is a new cap; by default the job keeps its own.

    Raises FileNotFoundError if there is no such directory, InvalidRequest if it has no job to continue, Resumable if
    the job fails again and is kept, and the exceptions of the job.
    """
    path = arguments.path("directory", directory)
    cap = arguments.maybe(arguments.memory, "memory", memory)
    with reporter(progress) as report:
        outputs, (told, text, warnings) = _native.resume(path, cap, report)
    warn(warnings)
    return Job(told, text, [os.fspath(output) for output in outputs])


class Request:
    """The request of a job: the options for the extension module, and how its progress is reported."""

    layout: Layout
    options: dict[str, Any]

    def __init__(
        self,
        source: Source | Sources,
        layout: LayoutLike | None,
        key: KeyLike | None,
        reverse: bool,
        settings: Settings,
        argument: str = "source",
    ) -> None:
        self.files = source if isinstance(source, Sources) else sources_of(source, argument)
        inputs = self.files.files
        if self.files.batches and layout is None:
            raise InvalidRequest(
                "a file of batches needs a layout, such as layout=ascot.Csv() or layout=ascot.Integers('u64')"
            )
        self.layout = _layout_for(inputs, layout, key)
        self.progress = checked(settings.get("progress"))
        self.options = {
            "inputs": inputs,
            "records": record_options(self.layout, key, reverse),
            "output": None,
            "parts": None,
            "route": None,
            "route_keys": [],
            "boundaries": None,
            "merge": False,
            "unique": False,
            "stable": False,
            "strict": isinstance(self.layout, Csv) and self.layout.strict,
            "top": None,
            "method": "auto",
            **_settings(settings),
        }

    def set(self, **options: Any) -> None:
        """Sets options."""
        self.options.update(options)

    def set_rows(self, unique: bool, top: int | None = None, *, stable: bool = False) -> None:
        """Sets which records are kept, and the order of equal ones."""
        self.set(**arguments.flags(unique=unique, stable=stable))
        self.set(top=arguments.maybe(arguments.count, "top", top, bits=64))

    def set_method(self, method: str) -> None:
        """Sets the method of a sort."""
        self.set(method=arguments.word("method", method, ("auto", "merge", "distribute")))

    def reshape(self, by: str, by_key: KeyLike | None) -> None:
        """Sets the rule of a reshape."""
        arguments.word("by", by, ("range", "hash", "value"))
        keys = keys_of(by_key, "by_key")
        if by == "range" and by_key is not None:
            raise InvalidRequest("ranges are of the key that orders the records: leave out by_key, or give by='hash'")
        route_keys = [self.layout.key_text(one) for one in keys]
        self.set(merge=True, route=by, route_keys=route_keys)

    def split(self, by: str | None, boundaries: PathLike | None) -> str:
        """Sets the boundaries of a split; returns its rule."""
        arguments.maybe(arguments.word, "by", by, ("range", "hash", "size"))
        bounds = arguments.maybe(arguments.path, "boundaries", boundaries)
        keyed = bool(self.options["records"]["keys"]) or boundaries is not None
        if by == "size" and keyed:
            raise InvalidRequest("by='size' uses no key: leave out key and boundaries, or split by 'range' or 'hash'")
        self.set(boundaries=bounds)
        return by or ("range" if keyed else "size")

    def output(self, to: PathLike, parts: int | None = None) -> str:
        """Sets the output: the file `to`, or several files of this pattern; returns its name."""
        path = output_path(to)
        self.set(output=path, parts=parts)
        return path

    def sorting(self, view: str | None) -> Callable[..., Any]:
        """The function that sorts or merges the files or batches to an output or to a view."""
        if self.files.batches:
            return self._on_batches(None, view)
        if view is None:
            return _native.sort
        return lambda options, progress: _native.make_view(options, view, progress)

    def splitting(self, rule: str) -> Callable[..., Any]:
        """The function that splits the files or batches by a rule."""
        if self.files.batches:
            return self._on_batches(rule, None)
        return lambda options, progress: _native.split(options, rule, progress)

    def _on_batches(self, rule: str | None, view: str | None) -> Callable[..., Any]:
        return lambda options, progress: _native.run_on_batches(
            options, arrow_options(self.layout), self.files.batches, progress, rule, view
        )

    def has_headers(self) -> bool:
        """Whether the records are looked at beforehand, as those of CSV and of lines with a header are."""
        return isinstance(self.layout, Csv) or (isinstance(self.layout, Lines) and self.layout.header)

    def write_batches(self, output: Any) -> None:
        """Writes the batches to files that lose their names, for a job that looks into its inputs."""
        from ascot.flows import copied, flow

        directory = os.fspath(_native.spill_directories(output, self.options["temp"])[0])
        shared = ("memory", "threads", "volume", "any_format")
        settings: dict[str, Any] = {name: self.options[name] for name in shared}

        def write(batches: Any, path: str) -> None:
            flow(
                [batches],
                [path],
                copied,
                output_layout=self.layout,
                progress=self.progress,
                **settings,
            )

        self.files.write_batches(directory, write)

    def stream(self, keys: list[tuple[str, bool, bool]]) -> Batches:
        """The sorted batches of the files, or of the source ordered by the columns `keys`."""
        with reporter(self.progress) as report:
            # A library may read the stream after all objects of the package are gone.
            opened = self.files.give_up_descriptors()
            source = self.files.batches[0] if self.files.batches else None
            stream, job = _native.sort_to_batches(
                opened, self.options, arrow_options(self.layout, keys), source, report
            )
        return Batches(stream, job, self.files)

    def write(self, to: Any, parts: int | None, work: Callable[..., Any]) -> Job:
        """Runs `work`, which writes the file `to`, or several files of this pattern."""
        path = self.output(to, parts)
        return self.run(work, [path] if parts is None else [part_path(path, number) for number in range(parts)])

    def run(self, work: Callable[..., Any], outputs: Sequence[str]) -> Job:
        """Runs `work` with the options and a function for progress."""
        with reporter(self.progress) as report:
            told, text, warnings = work(self.options, report)
        warn(warnings)
        return Job(told, text, outputs)


def _settings(given: Settings) -> dict[str, Any]:
    """The options of the extension module for the arguments that all jobs have."""
    unknown = given.keys() - _SETTINGS.keys() - {"progress"}
    if unknown:
        known = ", ".join(["key", "layout", "reverse", *_SETTINGS, "progress"])
        raise TypeError(f"unexpected argument {sorted(unknown)[0]!r}; there are {known}, and others (help)")
    whole: dict[str, Any] = {**_SETTINGS, **given}
    maybe = arguments.maybe
    return {
        "memory": maybe(arguments.memory, "memory", whole["memory"]),
        "temp": arguments.paths("temp", whole["temp"]),
        "threads": maybe(arguments.count, "threads", whole["threads"], least=1),
        "fan_in": maybe(arguments.count, "fan_in", whole["fan_in"], least=2),
        "compress": arguments.word("compress", whole["compress"], ("auto", "none", "lz4", "zstd")),
        "volume": maybe(arguments.path, "volume", whole["volume"], "a profile of a volume, or its kind"),
        "any_format": arguments.flag("any_format", whole["any_format"]),
    }


def _layout_for(inputs: list[SourceFile | None], layout: LayoutLike | None, key: KeyLike | None) -> Layout:
    """The layout given, or that of the names of the files."""
    if layout is not None:
        return layout_of(layout)
    for extension, separator in ((".csv", ","), (".tsv", "\t")):
        if key is not None and all(isinstance(file, str) and file.lower().endswith(extension) for file in inputs):
            return Csv(separator=separator)
    return Lines()
