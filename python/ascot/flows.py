"""Functions of your own between files: n inputs, m outputs, any order, within a cap of memory.

The engine reads and writes the files in long runs that suit the volume, while the function sees Arrow batches. It
runs in the thread that calls `flow`, so its exceptions are raised unchanged, and Ctrl-C interrupts it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ascot import _native, arguments
from ascot._native import Batch
from ascot.batches import Batches
from ascot.errors import InvalidRequest, warn
from ascot.jobs import Job
from ascot.layouts import Csv, KeyLike, Layout, LayoutLike, Lines, arrow_options, layout_of, record_options
from ascot.progress import ProgressLike, reporter
from ascot.sources import (
    ArrowSource,
    FileRange,
    PathLike,
    Source,
    SourceFile,
    Sources,
    batches_of,
    output_path,
    part_path,
    sources_of,
)

__all__ = ["FlowInput", "FlowSource", "flow"]

_PARQUET = "give a function as the output, which writes each batch with pyarrow.parquet.ParquetWriter"

FlowSource: TypeAlias = "Source | ArrowSource"
# What receives the batches of an output: a file, or a function.
Sink: TypeAlias = "PathLike | Callable[[Any], object]"
Outputs: TypeAlias = "PathLike | Sequence[Sink] | Mapping[str, Sink] | None"
# What the function returns: pairs of an output, by its number or name, and an object with Arrow batches.
Yielded: TypeAlias = "Iterable[tuple[int | str, Any]] | None"


class FlowInput(Batches):
    """An input of a flow: a stream of batches, which is read once, while the function runs.

    A `for` loop gives `ascot.Batch` objects; libraries read it through Arrow's PyCapsule interface.
    """

    __slots__ = ("_poll",)

    # The flow ends; a source in Python may never return.
    _closes_at_exit = False

    def __init__(self, stream: _native.BatchStream, poll: Callable[[], object]) -> None:
        super().__init__(stream)
        self._poll = poll

    def __next__(self) -> Batch:
        self._poll()
        return super().__next__()


def copied(inputs: list[FlowInput]) -> Iterator[tuple[int, Batch]]:
    """Passes one input on. The output has its header even if there are no rows."""
    [batches] = inputs
    yield 0, batches._stream.without_rows()
    for batch in batches:
        yield 0, batch


def flow(
    inputs: FlowSource | Sequence[FlowSource],
    outputs: Outputs,
    fn: Callable[[list[FlowInput]], Yielded],
    *,
    layout: LayoutLike | Sequence[LayoutLike] | None = None,
    output_layout: LayoutLike | Sequence[LayoutLike] | None = None,
    parts: int | None = None,
    merge: bool = False,
    merge_by: KeyLike | None = None,
    reverse: bool = False,
    alpha: float | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    volume: PathLike | None = None,
    any_format: bool = False,
    progress: ProgressLike = None,
) -> Job:
    r"""Runs `fn` between n inputs and m outputs.

    `fn(inputs)` gets a list of n iterators of Arrow batches (`ascot.Batch`), and yields pairs `(output, batch)`. The
    output is its number from 0 or its name, the batch any object with `__arrow_c_array__` or `__arrow_c_stream__`: a
    batch or table of pyarrow, a data frame of polars. It may read its inputs in any order, unevenly, or not at all. A
    batch has at most 1 MiB, less if memory is small.

    `inputs` is a list of paths, of patterns such as `"day-*.csv"`, which stand for several inputs, and of objects
    with Arrow batches: tables, data frames, generators. The latter do not pass through the engine. `outputs` is a
    list of paths, a dictionary of names and paths, or with `parts=N` a pattern such as `"part-{}.csv"`. An output may
    also be a function, such as `list.append`, that is called with each batch; None stands for no outputs.

    `layout` says how inputs are divided into records (see `ascot.layouts`), for all or as a list with one for each
    file; without one, files named `.csv` or `.tsv` are CSV, and all others are lines. `output_layout` is that of the
    outputs; without one, the name of the file decides, then `layout`. The columns are those that the guide lists for
    each layout, and all batches of an output have the same. CSV is written from numbers, text, booleans, dates and
    timestamps, without the types that the guide lists under "Limits".

    `merge=True`, or `merge_by` with a key, merges sorted inputs into one ordered stream, the only input of `fn`;
    `reverse` says that they are in descending order. `alpha` is the share of bytes that is read, 0.01 to 0.99, with
    which the engine begins; it follows the share that it measures. `memory` is the cap in bytes, or a text such as
    `"512MiB"`; batches that the function keeps come on top. `threads`, `volume`, `any_format` and `progress` are
    those of `ascot.sort`.

    The files appear when `fn` has ended, all or none. If it raises an exception, nothing is left, and the exception
    is raised unchanged. The result has the report and the plan, as of other jobs.

    Raises SchemaMismatch for batches that do not fit an output, NotSorted with `merge`, TypeError if `fn` yields
    something else, IndexError or KeyError for an output that does not exist, and the exceptions of `ascot.errors`.

    >>> import ascot, tempfile, pathlib
    >>> directory = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (directory / "a").write_text("1\n2\n3\n")
    >>> def copy(inputs):
    ...     for batch in inputs[0]:
    ...         yield "kept", batch
    >>> job = ascot.flow([directory / "a"], {"kept": directory / "b"}, copy)
    >>> (directory / "b").read_text().split(), job.report.bytes_out
    (['1', '2', '3'], 6)
    """
    settings = {
        "alpha": arguments.maybe(arguments.real, "alpha", alpha, "a number from 0.01 to 0.99"),
        "memory": arguments.maybe(arguments.memory, "memory", memory),
        "threads": arguments.maybe(arguments.count, "threads", threads, least=1),
        "volume": arguments.maybe(arguments.path, "volume", volume, "a profile of a volume, or its kind"),
        **arguments.flags(any_format=any_format),
    }
    arguments.flags(merge=merge, reverse=reverse)
    arguments.function("fn", fn, "a function of a list of inputs")
    sources, sinks = _inputs_of(inputs), _outputs_of(outputs, parts)
    order = _Order(merged=merge or merge_by is not None, key=merge_by, reverse=reverse)
    return _flow(fn, sources, sinks, _Layouts(inputs=layout, outputs=output_layout), order, settings, progress)


@dataclass(frozen=True)
class _Layouts:
    """The layouts as the caller gave them: one, a list with one for each file, or none."""

    inputs: Any
    outputs: Any


@dataclass(frozen=True)
class _Order:
    """Whether the inputs are merged into one, by which key, and whether they are in descending order."""

    merged: bool
    key: KeyLike | None
    reverse: bool


def _flow(
    fn: Callable[[list[FlowInput]], Yielded],
    sources: _Inputs,
    sinks: list[tuple[str, Any]],
    layouts: _Layouts,
    order: _Order,
    settings: dict[str, Any],
    progress: ProgressLike,
) -> Job:
    if order.reverse and not order.merged:
        raise InvalidRequest("reverse=True is of sorted inputs: give merge=True or merge_by=KEY")
    files = [one for one in sources if isinstance(one, str | FileRange)]
    if order.merged and len(files) < len(sources):
        raise InvalidRequest("merged inputs are sorted files: write batches to a file first, or leave out merge")
    written = [sink for _, sink in sinks if isinstance(sink, str)]
    if not files and not written:
        raise InvalidRequest("no input and no output is a file: call the function itself")
    read = _files(files, _layouts(files, layouts.inputs, None, "layout"), order.key, order.reverse)
    if order.merged and any(file["records"] != read[0]["records"] for file in read):
        raise InvalidRequest("merged inputs have one layout: give layout=")
    usual = layout_of(layouts.inputs) if isinstance(layouts.inputs, Layout | str) else None
    options = {
        "name": getattr(fn, "__qualname__", None) or type(fn).__qualname__,
        "inputs": read,
        "outputs": _files(written, _layouts(written, layouts.outputs, usual, "output_layout"), None, False),
        "merged": order.merged,
        **settings,
    }
    with reporter(progress) as report:
        told, text, warnings = _run(fn, sources.arranged(order.merged), sinks, _native.begin_flow(options, report))
    warn(warnings)
    return Job(told, text, written)


def _run(
    fn: Callable[[list[FlowInput]], Yielded],
    arrange: Callable[[list[Any]], list[Any]],
    sinks: list[tuple[str, Any]],
    begun: tuple[_native.Flow, list[_native.BatchStream]],
) -> tuple[str, str, list[str]]:
    """Runs the function; returns what the flow tells at its end."""
    running, streams = begun
    puts: list[Any] = []
    for _, sink in sinks:
        number = sum(isinstance(other, str) for _, other in sinks[: len(puts)])
        puts.append(_put(running, number) if isinstance(sink, str) else sink)
    names = {name: number for number, (name, _) in enumerate(sinks)}
    items: Iterator[Any] = iter(())
    try:
        pairs: Any = fn([FlowInput(stream, running.poll) for stream in arrange(streams)])
        if pairs is None and not sinks:
            pairs = ()
        try:
            items = iter(pairs)
        except TypeError:
            raise TypeError(f"the function returned {pairs!r}: it yields pairs (output, batch)") from None
        for pair in items:
            output, batch = _pair(pair)
            puts[_number(output, names)](batch)
            running.poll()
        return running.finish()
    except BaseException:
        # The blocks of a generator that release something end before the exception reaches the caller.
        try:
            getattr(items, "close", lambda: None)()
        finally:
            running.stop()
        raise


def _put(running: _native.Flow, number: int) -> Callable[[Any], None]:
    return lambda batch: running.put(number, batch)


def _pair(pair: Any) -> tuple[Any, Any]:
    if isinstance(pair, tuple) and len(pair) == 2:
        return pair
    raise TypeError(f"the function yielded {type(pair).__name__}: it yields pairs (output, batch)")


def _number(output: Any, names: dict[str, int]) -> int:
    """The number of an output that is named by its number or name."""
    if isinstance(output, str):
        if output not in names:
            raise KeyError(f"there is no output {output!r}; there are {', '.join(names) or 'none'}")
        return names[output]
    if isinstance(output, bool) or not hasattr(output, "__index__"):
        raise TypeError(f"an output is its number or its name, not {output!r}")
    number = output.__index__()
    if not 0 <= number < len(names):
        raise IndexError(f"there is no output {number}; the last of {len(names)} is {len(names) - 1}")
    return int(number)


class _Inputs(list[Any]):
    """The inputs in order: paths, and streams of batches; and the files to keep open."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Sources] = []

    def arranged(self, merged: bool) -> Callable[[list[Any]], list[Any]]:
        """Puts the streams of the files at their places among the others."""
        if merged:
            return lambda streams: streams

        def arrange(streams: list[Any]) -> list[Any]:
            files = iter(streams)
            return [next(files) if isinstance(one, str | FileRange) else one for one in self]

        return arrange


def _inputs_of(inputs: Any) -> _Inputs:
    found = _Inputs()
    for one in inputs if isinstance(inputs, list | tuple) else [inputs]:
        batches, files = batches_of(one)
        if batches is not None:
            found.append(_native.pass_batches(batches))
        else:
            held = sources_of(files, "inputs")
            found.held.append(held)
            found.extend(held.files)
    return found


def _outputs_of(outputs: Any, parts: int | None) -> list[tuple[str, Any]]:
    """The outputs: name, and path or function."""
    if parts is not None:
        number = arguments.count("parts", parts, least=1)
        if not isinstance(outputs, str | os.PathLike):
            raise InvalidRequest("parts are files of one pattern, such as outputs='part-{}.csv'")
        return [(path, path) for path in _parts(output_path(outputs, "outputs", _PARQUET), number)]
    if isinstance(outputs, str | os.PathLike) or callable(outputs):
        outputs = [outputs]
    outputs = () if outputs is None else outputs
    if isinstance(outputs, bytes) or not isinstance(outputs, Iterable):
        arguments.wrong_type("outputs", outputs, "a path, a function, or a list or dict of them")
    named = outputs.items() if isinstance(outputs, Mapping) else ((None, one) for one in outputs)
    found: list[tuple[str, Any]] = []
    for name, one in named:
        if name is not None and not isinstance(name, str):
            raise TypeError(f"the name of an output is a text, not {name!r}: give a list for numbers")
        if callable(one):
            found.append((name or f"output {len(found)}", one))
        elif isinstance(one, str | os.PathLike):
            path = output_path(one, "an element of outputs", _PARQUET)
            found.append((path if name is None else name, path))
        else:
            arguments.wrong_type("an element of outputs", one, "a path or a function")
    if len({name for name, _ in found}) < len(found):
        raise InvalidRequest("two outputs have the same name")
    return found


def _parts(pattern: str, parts: int) -> list[str]:
    paths = [part_path(pattern, number) for number in range(parts)]
    if len(set(paths)) < parts:
        raise InvalidRequest(f"{pattern}: a pattern has the number of a part, such as 'part-{{}}.csv'")
    return paths


def _layouts(files: Sequence[SourceFile], given: Any, usual: Layout | None, argument: str) -> list[Layout]:
    """The layout of each file: the one given for it, else that of its name, else the usual one."""
    if given is None:
        return [_layout_of_name(file) or usual or Lines() for file in files]
    if isinstance(given, Layout | str):
        return [layout_of(given, argument)] * len(files)
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        arguments.wrong_type(argument, given, "a layout, a text such as 'fixed:100', or a list of them")
    layouts = [layout_of(one, f"an element of {argument}") for one in given]
    if len(layouts) != len(files):
        raise InvalidRequest(f"{argument}= has {len(layouts)} layouts for {len(files)} files: give one, or one each")
    return layouts


def _layout_of_name(file: SourceFile) -> Layout | None:
    for extension, separator in ((".csv", ","), (".tsv", "\t")):
        if isinstance(file, str) and file.lower().endswith(extension):
            return Csv(separator=separator)
    return None


def _files(
    files: Sequence[SourceFile], layouts: list[Layout], key: KeyLike | None, reverse: bool
) -> list[dict[str, Any]]:
    """The options of files."""
    return [
        {
            "path": file,
            "records": record_options(layout, key, reverse, "merge_by"),
            "arrow": arrow_options(layout),
            "strict": isinstance(layout, Csv) and layout.strict,
        }
        for file, layout in zip(files, layouts, strict=True)
    ]
