"""The functions of a program in a job of `map_reduce`, and the pairs that they pass on.

    chunk ─▶ map(batch) ─▶ pairs ─▶ combine(key, values) ─▶ records "keyed:u32": length, length of the key, key, value
    sorted records of a partition ─▶ reduce(key, values) ─▶ bytes of the part

Invariants: what is combined and what is in a batch depends on the chunk alone, not on the time or on the other
destinations, so that a chunk that is mapped again gives the same batches. Memory is that of a chunk, of the pairs for
`combine`, and of one batch for each destination.
"""

from __future__ import annotations

import resource
import struct
import sys
import traceback
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from operator import index
from time import monotonic
from types import FunctionType
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

from ascot import _native, errors
from ascot._native import bytes_text
from ascot.arguments import shown
from ascot.cluster.batches import records_of
from ascot.cluster.limits import PACKAGE, Calls, where_of
from ascot.cluster.settings import USUAL, size_of

__all__ = ["Functions", "PairMapper", "pair_options", "reduced"]

Pair = tuple[bytes, bytes]
PAIRS = "keyed:u32"
HEAD = struct.Struct("<II")
# Bytes of memory of a value that waits for `combine`, besides its own.
VALUE_BYTES = 120


class Functions(NamedTuple):
    """The functions of a job."""

    map: Callable[[Any], Any]
    reduce: Callable[[bytes, Iterator[bytes]], Any]
    combine: Callable[[bytes, Iterator[bytes]], Any] | None
    partition: Callable[[bytes, int], int] | None

    def packed(self) -> bytes:
        """The functions for the nodes. Those of modules of the program travel with their modules' other functions."""
        pickle = import_module("ray.cloudpickle")
        named = {one.__module__ for one in self if isinstance(one, FunctionType)} - {"__main__"}
        modules = [sys.modules[name] for name in named if name in sys.modules]
        for module in modules:
            pickle.register_pickle_by_value(module)
        try:
            packed: bytes = pickle.dumps(tuple(self))
        except Exception as error:
            raise errors.InvalidRequest(
                f"a function cannot be sent to the nodes: {type(error).__name__}: {error}\n"
                "  it must not hold open files, locks or connections: make them in the function"
            ) from error
        finally:
            for module in modules:
                pickle.unregister_pickle_by_value(module)
        return packed

    @classmethod
    def unpacked(cls, packed: bytes) -> Functions:
        """The functions that a driver sent."""
        try:
            return cls(*import_module("ray.cloudpickle").loads(packed))
        except Exception as error:
            raise errors.InvalidRequest(
                f"a function cannot be loaded on a node: {type(error).__name__}: {error}\n"
                "  install the modules that it needs on all nodes"
            ) from error


def pair_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a job on the pairs between the functions."""
    records = {"layout": PAIRS, "keys": [], "order": "", "reverse": False, "header": False}
    return {**options, "records": {**options["records"], **records}}


# ---------------------------------------------------------------- what functions get and give


class WrongResult(Exception):
    """A function gave what it may not give; the text says what it may give."""


def as_bytes(value: Any, what: str) -> bytes:
    """Bytes, or a text as UTF-8."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise WrongResult(f"{what} is a text with letters that UTF-8 does not have: {shown(value)}") from error
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise WrongResult(f"{what} is bytes or a text, not {type(value).__name__}")


def several(result: Any, accepted: str) -> Iterator[Any]:
    """What a result has, one after another. A mapping would give its keys alone, and a text its letters."""
    if not isinstance(result, Mapping | bytes | str | bytearray | memoryview):
        with suppress(TypeError):
            return iter(result)
    raise WrongResult(f"{accepted}, not {shown(result)}")


def pairs_of(result: Any) -> Iterator[Pair]:
    """The pairs that `map` gave: an iterable of them, or a batch or table whose first two columns they are."""
    if result is None:
        return
    if hasattr(result, "num_columns"):
        if result.num_columns < 2:
            raise WrongResult(f"a batch or table has keys and values as its first two columns, not {shown(result)}")
        result = zip(result.column(0).to_pylist(), result.column(1).to_pylist(), strict=True)
    for pair in several(result, "map gives pairs of a key and a value, or a batch or table"):
        # A text of two letters would be a pair of letters.
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise WrongResult(f"a pair is a tuple of a key and a value, not {shown(pair)}")
        yield as_bytes(pair[0], "a key"), as_bytes(pair[1], "a value")


def values_of(result: Any, name: str) -> Iterator[bytes]:
    """What the function `name`, `combine` or `reduce`, gave: an iterable of bytes, or bytes alone."""
    if result is None:
        return
    if isinstance(result, bytes | str | bytearray | memoryview):
        result = (result,)
    for value in several(result, f"{name} gives bytes or a text, or an iterable of them"):
        yield as_bytes(value, f"an output of {name}")


def failure(name: str, where: str, error: BaseException, **fields: Any) -> errors.FunctionFailed:
    """The error for an exception of a function."""
    own = error.__traceback__
    while own is not None and own.tb_frame.f_code.co_filename.startswith(PACKAGE):
        own = own.tb_next
    told = "".join(traceback.format_exception(type(error), error, own)).rstrip()
    try:
        message = str(error)
    except Exception:
        message = "its text cannot be had"
    what = f"raised {type(error).__name__}" + (f": {message}" if message else "")
    advice = "mend the function, and start the job again"
    if isinstance(error, WrongResult):
        # No line of the program has raised it.
        what, told = f"gave a wrong result: {message}", ""
    if isinstance(error, MemoryError):
        most = resource.getrlimit(resource.RLIMIT_DATA)[0]
        what = f"needs more memory than a worker may have, {bytes_text(most)} with all that its process reserves"
        advice = "let it keep less, or give more (memory_per_node=), or fewer workers (workers_per_node=)"
    text = f"{where}: {name} {what}\n  {advice}\n{told}"
    return errors.FunctionFailed(text.rstrip(), traceback=told, **fields)


# ---------------------------------------------------------------- map


@dataclass(slots=True)
class Output:
    """The records for a destination that are in no batch yet."""

    partitions: dict[int, bytearray]
    bytes: int = 0
    batches: int = 0


class PairMapper:
    """Maps one chunk after another with the functions of a program."""

    # Every exception of a function is its fault: no user presses Ctrl-C in a process of Ray.
    faults: tuple[type[BaseException], ...] = (BaseException,)

    def __init__(
        self,
        options: dict[str, Any],
        functions: Functions,
        job: bytes,
        shape: dict[str, Any],
        read_bytes: int = size_of(USUAL.read_size),
        calls: Calls | None = None,
    ) -> None:
        self._options, self._functions, self._job = options, functions, job
        self._calls = calls or Calls()
        self._pair_options = pair_options(options)
        self._batch_bytes: int = shape["batch_bytes"]
        self._window_bytes: int = shape["sort_bytes"] // 4
        self._partitions: int = shape["partitions"]
        self._longest: int = shape["chunk_bytes"] // 4
        self._read_bytes = read_bytes
        self._records = records_of(options)
        self.sum = (0, 0, 0)
        self.reading = 0.0

    def read(self, span: dict[str, Any]) -> None:
        """Batches are made by `run` alone."""

    def run(
        self, number: int, span: dict[str, Any], targets: list[tuple[int, list[int]]], skip: Container[int]
    ) -> Iterator[tuple[int, bytes]]:
        """The batches of a chunk, each with its destination. `sum` has records, bytes and checksum afterwards."""
        self.sum, self.reading = (0, 0, 0), 0.0
        outputs: dict[int | None, Output] = {destination: Output({}) for destination, _ in targets}
        owners: dict[int, int] = {one: destination for destination, own in targets for one in own}
        # Records that no destination lacks count in the sum, too.
        outputs[None] = Output({})
        for key, value in self._combined(self._mapped(span)):
            partition = self._partition(key)
            destination = owners.get(partition)
            output = outputs[destination]
            record = HEAD.pack(HEAD.size // 2 + len(key) + len(value), len(key)) + key + value
            if len(record) > self._batch_bytes:
                raise errors.FunctionFailed(
                    f"{span['path']}: map gave a pair of {bytes_text(len(record))}, and a batch has at most "
                    f"{bytes_text(self._batch_bytes)}\n  give smaller values, or more memory (memory_per_node=) and "
                    "a larger object store",
                    file=span["path"],
                    offset=span["start"],
                    key=key[:60],
                )
            output.partitions.setdefault(partition, bytearray()).extend(record)
            output.bytes += len(record)
            if output.bytes >= self._batch_bytes:
                yield from self._batch(number, span, destination, output, skip, last=False)
        for destination, output in outputs.items():
            yield from self._batch(number, span, destination, output, skip, last=True)

    def _batch(
        self,
        chunk: int,
        span: dict[str, Any],
        destination: int | None,
        output: Output,
        skip: Container[int],
        *,
        last: bool,
    ) -> Iterator[tuple[int, bytes]]:
        pieces = [(partition, bytes(records)) for partition, records in sorted(output.partitions.items())]
        output.partitions, output.bytes = {}, 0
        for _, records in pieces:
            count, size, checksum = _native.sum_records(self._pair_options, records)
            both = (self.sum[2] + int(checksum, 16)) % (1 << 128)
            self.sum = (self.sum[0] + count, self.sum[1] + size, both)
        if destination is None:
            return
        if output.batches >= _native.BATCHES_MAX:
            given = bytes_text(output.batches * self._batch_bytes)
            raise errors.FunctionFailed(
                f"{span['path']}: map gave more than {given} for one node from "
                f"{bytes_text(span['end'] - span['start'])} of input\n  let it give less, or combine, or give more "
                "memory (memory_per_node=)",
                file=span["path"],
                offset=span["start"],
            )
        if destination not in skip:
            number = output.batches
            yield destination, _native.make_batch(self._job, chunk, destination, number, last, pieces)
        output.batches += 1

    def _partition(self, key: bytes) -> int:
        own = self._functions.partition
        if own is None:
            return crc32(key) % self._partitions
        self._calls.begin_key("partition", key)
        try:
            return self._checked(own(key, self._partitions))
        except self.faults as error:
            raise failure("partition", where_of(None, None, key), error, key=key) from error
        finally:
            self._calls.pause()

    def _checked(self, found: Any) -> int:
        """The number of a partition, also one of numpy."""
        with suppress(TypeError):
            number = index(found)
            if 0 <= number < self._partitions:
                return number
        raise WrongResult(f"a partition is a number from 0 to {self._partitions - 1}, not {shown(found)}")

    def _mapped(self, span: dict[str, Any]) -> Iterator[Pair]:
        began = monotonic()
        blocks = _native.read_chunk(self._options, span, self._longest, self._read_bytes)
        self.reading = monotonic() - began
        for block, offset in blocks:
            batch = self._batch_of(span["path"], block, offset)
            failed: BaseException | None = None
            pairs: list[Pair] = []
            # An object is a file without a name here.
            self._calls.begin_records("map", span.get("name", span["path"]), offset)
            try:
                pairs = list(self._calls.given(pairs_of(self._functions.map(batch))))
            except self.faults as error:
                failed = error
            finally:
                self._calls.pause()
            # After the handler, so that what a single record raises has no other exception as its context.
            if failed is not None:
                raise self._map_failure(span["path"], batch, block, offset, failed) from failed
            yield from pairs

    def _batch_of(self, path: str, block: bytes, offset: int) -> Any:
        try:
            return self._records.batch(block)
        except errors.SchemaMismatch as error:
            told = f"{path}: in the rows from offset {offset} on, {error}"
            raise errors.SchemaMismatch(told, file=path, offset=offset) from error

    def _map_failure(
        self, path: str, batch: Any, block: bytes, offset: int, error: BaseException
    ) -> errors.FunctionFailed:
        """The error with the first record with which `map` fails alone, or with the batch."""
        for row in range(batch.num_rows):
            self._calls.begin_records("map", path, offset)
            try:
                for _ in self._calls.given(pairs_of(self._functions.map(batch.slice(row, 1)))):
                    pass
            except self.faults as found:
                at = offset + self._records.offset(batch, block, row)
                return failure("map", f"{path}, record at byte {at}", found, file=path, offset=at)
            finally:
                self._calls.pause()
        where = f"{path}, {batch.num_rows} records from byte {offset} on"
        return failure("map", where, error, file=path, offset=offset)

    def _combined(self, pairs: Iterator[Pair]) -> Iterator[Pair]:
        if self._functions.combine is None:
            yield from pairs
            return
        waiting: dict[bytes, list[bytes]] = {}
        size = 0
        for key, value in pairs:
            waiting.setdefault(key, []).append(value)
            size += len(key) + len(value) + VALUE_BYTES
            if size >= self._window_bytes:
                yield from self._combine(waiting)
                waiting, size = {}, 0
        yield from self._combine(waiting)

    def _combine(self, waiting: dict[bytes, list[bytes]]) -> Iterator[Pair]:
        combine = self._functions.combine
        for key, values in waiting.items():
            self._calls.begin_key("combine", key)
            try:
                found = values
                if combine:
                    made = values_of(combine(key, self._calls.taken(values)), "combine")
                    found = list(self._calls.given(made))
            except self.faults as error:
                raise failure("combine", where_of(None, None, key), error, key=key) from error
            finally:
                self._calls.pause()
            for value in found:
                yield key, value


# ---------------------------------------------------------------- reduce


class Groups:
    """Reads sorted pairs, the values of one key after another."""

    def __init__(self, file: BinaryIO, prefix: int, calls: Calls) -> None:
        self._file, self._prefix, self._calls = file, prefix, calls
        # The error of the file: functions that ask for values see it first.
        self.failed: OSError | None = None
        self._next = self._read()

    def _read(self) -> Pair | None:
        try:
            head = self._file.read(HEAD.size)
            if not head:
                return None
            length, key_length = HEAD.unpack(head)
            rest = self._file.read(length - HEAD.size // 2)
        except OSError as error:
            if error.filename is None:
                # The name of the file decides whose fault it is.
                error.filename = getattr(self._file, "name", None)
            self.failed = error
            raise
        return rest[self._prefix : key_length], rest[key_length:]

    def __iter__(self) -> Iterator[tuple[bytes, Iterator[bytes]]]:
        while self._next is not None:
            key = self._next[0]
            values = self._values(key)
            yield key, values
            # Values that the function did not ask for.
            for _ in values:
                pass
            self._calls.pause()

    def _values(self, key: bytes) -> Iterator[bytes]:
        while self._next is not None and self._next[0] == key:
            value = self._next[1]
            self._calls.pause()
            self._next = self._read()
            self._calls.resume()
            yield value


def reduced(functions: Functions, source: BinaryIO, prefix: int = 0, calls: Calls | None = None) -> Iterator[bytes]:
    """What `reduce` gives for each key of a file of sorted pairs; the first `prefix` bytes are no part of a key."""
    own = calls or Calls()
    groups = Groups(source, prefix, own)
    for key, values in groups:
        own.begin_key("reduce", key)
        try:
            yield from own.given(values_of(functions.reduce(key, values), "reduce"))
        except GeneratorExit:
            raise
        except BaseException as error:
            if groups.failed is not None:
                raise groups.failed from None
            raise failure("reduce", where_of(None, None, key), error, key=key) from error
        finally:
            own.pause()
