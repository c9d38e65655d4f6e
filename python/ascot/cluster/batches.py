"""The records of a block as a batch of Arrow, as the functions of `map_reduce` get them.

    lines   one column `line`, without the newline
    fixed   one column `record`
    CSV     the columns of the table, by the names of its header, or column_1, column_2, ...
"""

from __future__ import annotations

import csv
import io
from importlib import import_module
from typing import Any, Protocol

from ascot import errors
from ascot.layouts import Csv

__all__ = ["Records", "columns_of", "records_of"]


class Records(Protocol):
    """Makes the batches of a layout."""

    def batch(self, block: bytes) -> Any:
        """The records of a block."""

    def offset(self, batch: Any, block: bytes, row: int) -> int:
        """Bytes of the block before a row."""


class FixedRecords:
    """Records of one length."""

    def __init__(self, length: int) -> None:
        self._arrow: Any = import_module("pyarrow")
        self._length = length

    def batch(self, block: bytes) -> Any:
        """One column of bytes."""
        buffers = [None, self._arrow.py_buffer(block)]
        kind = self._arrow.binary(self._length)
        column = self._arrow.FixedSizeBinaryArray.from_buffers(kind, len(block) // self._length, buffers)
        return self._arrow.record_batch([column], ["record"])

    def offset(self, batch: Any, block: bytes, row: int) -> int:
        """All have the same length."""
        return row * self._length


class Lines:
    """Lines, without their newline."""

    def __init__(self) -> None:
        self._arrow: Any = import_module("pyarrow")

    def batch(self, block: bytes) -> Any:
        """One column of bytes."""
        column = self._arrow.array(block.removesuffix(b"\n").split(b"\n"), self._arrow.binary())
        return self._arrow.record_batch([column], ["line"])

    def offset(self, batch: Any, block: bytes, row: int) -> int:
        """The lines before, with their newlines."""
        return sum(len(line.as_py()) + 1 for line in batch.column(0)[:row])


class Rows:
    """Rows of CSV. Their values are texts, or bytes as in the file, without quotes."""

    def __init__(self, separator: str, quote: str, names: list[str], is_binary: bool) -> None:
        arrow, self._csv = import_module("pyarrow"), import_module("pyarrow.csv")
        self._names, self._quote = names, quote.encode("latin-1")
        self._parse = self._csv.ParseOptions(
            delimiter=separator, quote_char=quote, newlines_in_values=True, ignore_empty_lines=False
        )
        kind = arrow.binary() if is_binary else arrow.string()
        self._convert = self._csv.ConvertOptions(
            column_types=dict.fromkeys(names, kind), strings_can_be_null=False, quoted_strings_can_be_null=False
        )

    def batch(self, block: bytes) -> Any:
        """A column for each of the table.

        Raises SchemaMismatch for a row with more or fewer values, and for text that is not UTF-8.
        """
        read = self._csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=self._names)
        try:
            table = self._csv.read_csv(io.BytesIO(block), read, self._parse, self._convert)
        except ValueError as error:
            raise errors.SchemaMismatch(
                f"rows do not fit the columns {', '.join(self._names)}: {error}\n  sort or mend the file first; for "
                "values that are not UTF-8: layout=ascot.Csv(binary=True)"
            ) from error
        return table.combine_chunks().to_batches()[0]

    def offset(self, batch: Any, block: bytes, row: int) -> int:
        """The rows before: a line with an open quote goes on in the next."""
        at = passed = quotes = 0
        for line in block.splitlines(keepends=True) if row else []:
            at, quotes = at + len(line), quotes + line.count(self._quote)
            if line.endswith(b"\n") and quotes % 2 == 0:
                passed += 1
                if passed == row:
                    break
        return at


def columns_of(layout: Csv, head: bytes) -> list[str]:
    """The names of the columns of a table that begins with `head`: those of its header, or numbers for the values of
    its first row.

    >>> columns_of(Csv(), b'id,"the name"\\n')
    ['id', 'the name']
    >>> columns_of(Csv(header=False), b"1,x,\\n2,y,\\n")
    ['column_1', 'column_2', 'column_3']
    """
    text = io.StringIO(head.decode("utf-8", "replace"), newline="")
    values = next(csv.reader(text, delimiter=layout.separator, quotechar=layout.quote), [])
    return values if layout.header else [f"column_{number}" for number, _ in enumerate(values, 1)]


def records_of(options: dict[str, Any]) -> Records:
    """The batches of the records that the options of a job describe."""
    records = options["records"]
    layout, _, code = records["layout"].partition(":")
    if layout == "fixed":
        return FixedRecords(int(code))
    if layout != "csv":
        return Lines()
    separator = chr(int(code, 16)) if code else ","
    return Rows(separator, chr(records["quote"]), options["columns"], options["binary"])
