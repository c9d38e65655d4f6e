"""Objects as files of a node: chunks that it reads, and parts that it makes.

    object   r1 r1 | r2 r2 r2 | r3 r3 | r4 ...
    chunk              [---------]                 has r3: it begins in it
    file     ........ [--------------]             from the byte before it to the end of its last record

The file of a chunk has no name, so that nothing is left of a process that is killed, and the rest of it is a hole. A
part is made beside the spills, and is an object when it is whole. The file of a chunk of CSV begins and ends where
searches from both ends of the chunk find rows, as those of the native reader do.

Invariants: the bytes of a chunk are those of the object that was listed: its version is looked at after the last byte
was read. At most REQUESTS blocks are in memory.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from time import monotonic
from typing import Any, NamedTuple

from ascot import _native, errors
from ascot._native import bytes_text
from ascot.cluster.objects import Stores, is_url
from ascot.cluster.sampling import doing

__all__ = ["ObjectFiles", "check_objects", "renamed"]

MIB = 1 << 20
BLOCK_BYTES = 4 * MIB
# Requests for blocks of a chunk at a time.
REQUESTS = 4
# What is read beyond the end of a chunk at first, to find the end of its last record.
BEYOND_BYTES = 64 << 10
# A chunk is sampled in `WINDOWS` places, each with several records. A second try finds longer lines.
WINDOWS = 16
WINDOW_BYTES = 64 << 10
LONG_WINDOW_BYTES = MIB
# Objects whose heads are looked at together, and the bytes of each; of CSV also the types of columns are inferred.
HEADS = 64
HEAD_BYTES = 64 << 10
TYPES_BYTES = 256 << 10
# Bytes in which quotes may show where a row starts.
SEARCH_BYTES = 256 << 10


class _File(NamedTuple):
    """A file without a name, and the directory that it lies in."""

    number: int
    directory: str

    @property
    def path(self) -> str:
        """A name by which this process opens it."""
        return f"/proc/self/fd/{self.number}"


class ObjectFiles:
    """The objects that a worker reads and writes, as files of its node. `fetched` and `uploaded` are the bytes that
    the last call read from stores or wrote there, and `seconds` the time that this took."""

    def __init__(self, stores: Stores, job: Mapping[str, Any], directories: Callable[[], list[str]]) -> None:
        self._stores, self._job, self._directories = stores, job, directories
        self._files = 0
        self.fetched = self.uploaded = 0
        self.seconds = 0.0

    @property
    def _end(self) -> bytes:
        """What ends a line; records of one length have none."""
        return _end_of(self._job["options"]["records"]["layout"])

    @property
    def _has_rows(self) -> bool:
        """Whether records are rows of CSV, whose ends are not those of lines."""
        return bool(self._job["options"]["records"]["layout"].startswith("csv"))

    @property
    def _longest(self) -> int:
        """More than the bytes of any record: it is too long before the native reader meets a hole."""
        shape = self._job["shape"]
        return int(max(shape["chunk_bytes"], shape["sort_bytes"])) + BLOCK_BYTES

    # ---------------------------------------------------------------- chunks

    @contextmanager
    def chunk(self, span: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """A chunk as the range of a local file, of which the native code reads nothing but the chunk."""
        self.fetched, self.seconds = 0, 0.0
        if not is_url(span["path"]):
            yield span
            return
        with self._file() as file:
            began = monotonic()
            with doing("reading"), self._unchanged(span):
                own = self._rows(span, file) if self._has_rows else {**span, "size": self._fill(span, file)}
            os.ftruncate(file.number, own["end"] if self._has_rows else own["size"])
            self.seconds = monotonic() - began
            with renamed(file.path, span["path"]):
                yield {**own, "path": file.path, "name": span["path"]}

    def samples(
        self, span: dict[str, Any], count: int, sample: Callable[[dict[str, Any], int], bytes]
    ) -> list[bytes]:
        """What `sample` gives for a chunk: for an object, for ranges of it that are spread evenly."""
        self.fetched, self.seconds = 0, 0.0
        if not is_url(span["path"]):
            return [sample(span, count)]
        with self._unchanged(span):
            found = self._samples(span, count, sample, WINDOW_BYTES)
            if self._end and not found:
                found = self._samples(span, count, sample, LONG_WINDOW_BYTES)
        return found

    def _samples(
        self, span: dict[str, Any], count: int, sample: Callable[[dict[str, Any], int], bytes], length: int
    ) -> list[bytes]:
        found = []
        windows = self._windows(span, length)
        sampled = sum(window["end"] - window["start"] for window in windows)
        for window in windows:
            with self._file() as file, renamed(file.path, span["path"]):
                size = self._fill_window(window, file)
                share = -(-count * (window["end"] - window["start"]) // max(1, sampled))
                if size > window["start"]:
                    end = min(size, window["end"])
                    places = sample({**window, "path": file.path, "size": size, "end": end}, share)
                    # Without a place there is one partition.
                    found += [places] * (_native.count_partitions(places) > 1)
        return found

    def _windows(self, span: dict[str, Any], length: int) -> list[dict[str, Any]]:
        """Ranges of a chunk that are spread evenly, of whole records if all have one length; the whole chunk if it is
        not much longer."""
        start, end, step = span["start"], span["end"], self._job["record_bytes"]
        own = max(step, length // step * step)
        if end - start <= 2 * WINDOWS * own:
            bounds = [(at, min(at + WINDOWS * own, end)) for at in range(start, end, WINDOWS * own)]
        else:
            places = ((end - start - own) * number // (WINDOWS - 1) // step * step for number in range(WINDOWS))
            bounds = [(start + place, start + place + own) for place in places]
        before = span["position"] - start
        return [{**span, "start": first, "end": last, "position": before + first} for first, last in bounds]

    def _fill_window(self, window: dict[str, Any], file: _File) -> int:
        """Reads a window; returns the end of its last whole line, or of the window."""
        first = self._first(window)
        self._fetch(window["path"], first, window["end"], file)
        end: int = window["end"]
        if self._end and end < window["size"]:
            end = self._last_end(file, first, end) + 1
        os.ftruncate(file.number, end)
        return end

    def _fill(self, span: dict[str, Any], file: _File) -> int:
        """Reads a chunk to the end of its last record; returns that end."""
        first, end, size = self._first(span), span["end"], span["size"]
        self._fetch(span["path"], first, end, file)
        if not self._end or not first < end < size:
            return int(end)
        last = self._last_end(file, first, end)
        # No line begins in it, or the last one ends with it.
        if last + 1 == end or (last < 0 and span["start"] > 0):
            return int(end)
        at, step = end, BEYOND_BYTES
        while at < size and at - end <= self._longest:
            block = self._stores.read(span["path"], at, min(at + step, size))
            self._write(file, block, at)
            self.fetched += len(block)
            found = block.find(self._end)
            if found >= 0:
                return int(at + found + 1)
            at, step = at + len(block), min(2 * step, BLOCK_BYTES)
        return int(size)

    def _rows(self, span: dict[str, Any], file: _File) -> dict[str, Any]:
        """Reads the rows of a chunk; returns the chunk with the bounds of its rows."""
        first, end = self._row_from(span, span["start"]), self._row_from(span, span["end"])
        if end < first:
            # One of the two searches was wrong. No chunk need end at the later one.
            raise errors.SchemaMismatch(
                f"{span['path']}: quotes do not show where rows start between offsets {end} and {first}\n  nodes "
                "cannot share this file: sort it on one machine",
                file=span["path"],
                offset=end,
            )
        if first < end == span["size"]:
            # The first row shows how the last one ends if it lacks its end.
            self._fetch(span["path"], 0, min(first, BEYOND_BYTES), file)
        if first < end:
            self._fetch(span["path"], first, end, file)
        # Both ends are starts of rows, for which nothing is searched.
        position = span["position"] + first - span["start"]
        return {**span, "start": first, "end": end, "records_at": end, "position": position}

    def _row_from(self, span: dict[str, Any], at: int) -> int:
        """The first start of a row from `at` on that a search finds; the end of the object if there is none."""
        size, records = int(span["size"]), self._job["options"]["records"]
        if at <= span["records_at"] or at >= size:
            return at
        search, searched, step = _native.RowSearch(records["layout"], records["quote"]), 0, BEYOND_BYTES
        while at + searched < size:
            block = self._stores.read(span["path"], at + searched, min(at + searched + step, size))
            searched, step = searched + len(block), min(2 * step, BLOCK_BYTES)
            self.fetched += len(block)
            found = search.go_on(block)
            if found is None and searched >= SEARCH_BYTES:
                found = search.likely()
            if found is not None:
                return at + found
            if searched > self._longest:
                raise errors.MemoryLimit(
                    f"{span['path']}: the row at offset {at} is longer than memory allows: {bytes_text(searched)} "
                    "without its end\n  give more memory (memory_per_node=), or check the record format (layout=)",
                    needed=4 * searched,
                )
        likely = search.likely()
        return size if likely is None else at + likely

    def _first(self, span: dict[str, Any]) -> int:
        """The first byte that is needed: whether a line begins with a chunk is seen by the byte before it."""
        return max(0, span["start"] - 1) if self._end else int(span["start"])

    def _last_end(self, file: _File, first: int, end: int) -> int:
        """The place of the last byte in a range of the file that ends a line; -1 if there is none."""
        while end > first:
            start = max(first, end - MIB)
            found = os.pread(file.number, end - start, start).rfind(self._end)
            if found >= 0:
                return start + found
            end = start
        return -1

    def _fetch(self, url: str, first: int, end: int, file: _File) -> None:
        """Reads a range in blocks, several at a time."""

        def fetched(at: int) -> None:
            self._write(file, self._stores.read(url, at, min(at + BLOCK_BYTES, end)), at)

        starts = range(first, end, BLOCK_BYTES)
        self.fetched += end - first
        if len(starts) == 1:
            fetched(first)
            return
        # The others are not begun once one has failed.
        with ThreadPoolExecutor(self._stores.at_once(url, REQUESTS), "ascot blocks") as pool:
            for _ in pool.map(fetched, starts):
                pass

    def _write(self, file: _File, block: bytes, at: int) -> None:
        try:
            left = memoryview(block)
            while left:
                count = os.pwrite(file.number, left, at)
                left, at = left[count:], at + count
        except OSError as error:
            raise self._disk_fault(file.directory, error) from error

    @contextmanager
    def _unchanged(self, span: dict[str, Any]) -> Iterator[None]:
        """Raises InvalidRequest if what was read in it is not of the object that was listed, whatever else failed."""
        url, size, version = span["path"], span["size"], span.get("version", "")
        try:
            yield
        except errors.FileError as error:
            # The node's own disk says nothing about the object.
            if str(error.filename) == url:
                with suppress(errors.FileError):
                    self._stores.check(url, size, version)
            raise
        if span["end"] > span["start"]:
            self._stores.check(url, size, version)

    @contextmanager
    def _file(self) -> Iterator[_File]:
        """A file without a name. It lies in the directories in turn."""
        directories = self._directories()
        self._files += 1
        directory = directories[self._files % len(directories)]
        try:
            made = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115
        except OSError as error:
            raise self._disk_fault(directory, error) from error
        with made:
            yield _File(made.fileno(), directory)

    def _disk_fault(self, directory: str, error: OSError) -> errors.FileError:
        """The error of a file: it names the directory of the job, by which the driver knows that the node is at
        fault."""
        name = os.path.join(directory, f"ascot-cluster-{self._job['job']}", "chunk")
        kind = errors.FileMissing if isinstance(error, FileNotFoundError) else errors.FileError
        return kind(f"{name}: {error.strerror}", filename=name, errno=error.errno)

    # ---------------------------------------------------------------- parts

    @contextmanager
    def part(self, options: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
        """The options of a sort whose output may be an object, with the local file `name` in its place. The file
        becomes the object at the end, if it was made."""
        url: str = options["output"]
        self.uploaded, self.seconds = 0, 0.0
        if not is_url(url):
            yield options
            return
        try:
            yield {**options, "output": name}
            if os.path.exists(name):
                began = monotonic()
                self.uploaded = self._stores.upload(name, url)
                self.seconds = monotonic() - began
        finally:
            with suppress(OSError):
                os.unlink(name)


def _end_of(layout: str) -> bytes:
    """What ends a line of a layout, or a row without quotes; empty for records of one length.

    >>> _end_of("lines"), _end_of("lines:0x00"), _end_of("csv:0x3b"), _end_of("fixed:100")
    (b'\\n', b'\\x00', b'\\n', b'')
    """
    name, _, end = layout.partition(":0x")
    return bytes.fromhex(end or "0a") if name == "lines" else b"\n" if name == "csv" else b""


@contextmanager
def renamed(path: str, url: str) -> Iterator[None]:
    """Errors in it name the object in place of the file."""
    own = re.compile(re.escape(path) + r"(?!\d)")

    def told(value: Any) -> Any:
        return own.sub(lambda _: url, value) if isinstance(value, str) else value

    try:
        yield
    except errors.AscotError as error:
        fields = {name: told(getattr(error, name)) for name in type(error)._fields}
        raise type(error)(told(str(error)), **fields) from error.__cause__


# ---------------------------------------------------------------- checks before a job begins


class Heads(NamedTuple):
    """What the heads of objects say: where their records begin, the header of the first one that has one, and the
    keys with the numbers and types of columns, if they are columns, by the first one that has records."""

    records_at: dict[str, int]
    header: bytes
    columns: list[str] | None


def check_objects(
    stores: Stores, options: dict[str, Any], urls: list[str], record_bytes: int, first: list[str]
) -> Heads:
    """Raises the error of the native check of inputs for objects that are not as the layout says: a last record that
    is cut short, another format than text, or another header than the file `first`, or else the first object, has."""
    records = options["records"]
    layout: str = records["layout"]
    has_heads = layout.startswith("csv") or records["header"]
    is_text = layout.startswith(("lines", "csv")) and (has_heads or not options["any_format"])
    urls = [url for url in urls if stores.listed[url].size > 0]
    if not is_text:
        urls = [url for url in urls if stores.listed[url].size % record_bytes]
    found, has_records, of_first = Heads({}, b"", None), False, ""
    with ExitStack() as stack:
        for at in range(0, len(urls), HEADS):
            some = urls[at : at + HEADS]

            def head(url: str) -> bytes:
                return stores.read(url, 0, min(TYPES_BYTES if has_heads else HEAD_BYTES, stores.listed[url].size))

            heads = stores.each(some, head) if is_text else [b""] * len(some)
            for url, content in zip(some, heads, strict=True):
                file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
                # The first one stays open: the others are compared with it.
                stays = has_heads and not first
                with nullcontext(stack.enter_context(file)) if stays else file:
                    file.write(content)
                    file.truncate(stores.listed[url].size)
                    path = _File(file.fileno(), "").path
                    with renamed(path, url), renamed(first[0], of_first) if of_first else nullcontext():
                        checked, header, columns = _native.cluster_inputs({**options, "inputs": [*first, path]})
                    begins = found.records_at[url] = checked[-1][2]
                    if not has_records:
                        found = Heads(found.records_at, found.header or header, columns)
                        has_records = stores.listed[url].size > begins
                    if stays:
                        first, of_first = [path], url
    return found
