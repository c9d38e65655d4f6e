"""Layouts: how the bytes of a file are divided into records; and the keys that order them.

A layout may hold the key of its records, so that it describes a file wholly:

>>> import ascot
>>> ascot.Fixed(100, key=slice(0, 10))
Fixed(100, key=slice(0, 10, None))

Everywhere a layout is taken, its text in the language of the command is, too:

>>> from ascot.layouts import layout_of
>>> layout_of("fixed:100")
Fixed(100)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from ascot import arguments
from ascot.errors import InvalidRequest

__all__ = [
    "Csv",
    "Fixed",
    "Floats",
    "Integers",
    "Key",
    "KeyLike",
    "Layout",
    "LayoutLike",
    "Lines",
    "Prefixed",
    "asc",
    "column",
    "desc",
]


class Key:
    """One key: its place in a record, its direction, and for columns of CSV its type and the place of nulls."""

    __slots__ = ("descending", "nulls", "target", "type")

    target: str | int | slice
    descending: bool
    type: str | None
    nulls: str | None

    def __init__(
        self,
        target: str | int | slice,
        *,
        descending: bool = False,
        type: str | None = None,
        nulls: str | None = None,
    ) -> None:
        if isinstance(target, bool) or not isinstance(target, str | int | slice):
            arguments.wrong_type("target", target, "a name, a number or a slice")
        self.target, self.descending = target, arguments.flag("descending", descending)
        self.type = arguments.maybe(_column_type, "type", type)
        self.nulls = arguments.maybe(arguments.word, "nulls", nulls, ("first", "last"))

    def __repr__(self) -> str:
        if self.type is None and self.nulls is None:
            return f"{'desc' if self.descending else 'asc'}({self.target!r})"
        return f"column({self.target!r}, type={self.type!r}, descending={self.descending}, nulls={self.nulls!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(repr(self))

    def _values(self) -> tuple[Any, ...]:
        return self.target, self.descending, self.type, self.nulls


KeyLike: TypeAlias = "str | int | slice | Key | Sequence[str | int | slice | Key]"


def asc(target: str | int | slice | Key, *, nulls: str | None = None) -> Key:
    """The key with the least first. `nulls` is `first` or `last`, the default. Raises InvalidRequest for others."""
    return _directed(target, False, nulls)


def desc(target: str | int | slice | Key, *, nulls: str | None = None) -> Key:
    """The key with the greatest first. `nulls` is `first` or `last`, the default. Raises InvalidRequest for others.

    >>> desc("ts")
    desc('ts')
    """
    return _directed(target, True, nulls)


def _directed(target: str | int | slice | Key, descending: bool, nulls: str | None) -> Key:
    if isinstance(target, Key):
        return Key(target.target, descending=descending, type=target.type, nulls=nulls or target.nulls)
    return Key(target, descending=descending, nulls=nulls)


def column(target: str | int, *, type: str | None = None, descending: bool = False, nulls: str | None = None) -> Key:
    """A column of CSV, by its name or by its number from 1.

    `type` is `text`, `number`, `date`, `number(,)` for a decimal comma, or `date(FORMAT)`; without one it is inferred
    from the first rows. `nulls` is `first` or `last`, the default. Raises InvalidRequest for others.

    >>> column("price", type="number", descending=True)
    column('price', type='number', descending=True, nulls=None)
    """
    return Key(target, descending=descending, type=type, nulls=nulls)


class Layout:
    """How bytes are divided into records, and the key of the records."""

    __slots__ = ("key",)

    key: KeyLike | None

    def text(self) -> str:
        """The layout in the language of the command, as in `--format`."""
        raise NotImplementedError

    def key_text(self, key: Key) -> str:
        """One key in the language of the command."""
        raise NotImplementedError

    def options(self) -> dict[str, Any]:
        """What else the extension module needs to know of records."""
        return {}

    def arrow_options(self) -> dict[str, Any]:
        """Options of the extension module for the records as Arrow columns."""
        return {}

    def _arguments(self) -> list[str]:
        return []

    def __repr__(self) -> str:
        words = self._arguments()
        if self.key is not None:
            words.append(f"key={self.key!r}")
        return f"{type(self).__name__}({', '.join(words)})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and repr(other) == repr(self)

    def __hash__(self) -> int:
        return hash(repr(self))


LayoutLike: TypeAlias = Layout | str


class Lines(Layout):
    r"""Lines, ordered by their bytes or as the sort command orders them.

    A key is a field, by its number from 1 (`2`), or a key of the sort command (`"2,2nr"`); without one the whole line
    counts. `separator` is the character between fields; without one a field begins where a blank follows a nonblank.
    `order` has letters of the sort command that apply to all keys: `b d f g h i M n V`. `end` ends a line; `header`
    keeps the first line of the first input at the top. As Arrow, lines are strings, and must be UTF-8; with
    `binary=True` they are bytes. Their column is `line`, or has the header as its name.

    >>> Lines(separator="\t", key=desc(2))
    Lines(separator='\t', key=desc(2))
    """

    __slots__ = ("binary", "end", "header", "order", "separator")

    def __init__(
        self,
        *,
        separator: str | None = None,
        order: str = "",
        header: bool = False,
        end: str = "\n",
        binary: bool = False,
        key: KeyLike | None = None,
    ) -> None:
        self.end, self.separator = _byte("end", end), arguments.maybe(_byte, "separator", separator)
        self.order = arguments.text("order", order, "letters of the sort command")
        self.header, self.binary = arguments.flag("header", header), arguments.flag("binary", binary)
        self.key = _checked_key(key)

    def text(self) -> str:
        return "lines" if self.end == "\n" else f"lines:0x{ord(self.end):02x}"

    def key_text(self, key: Key) -> str:
        if isinstance(key.target, slice) or key.type is not None or key.nulls is not None:
            raise InvalidRequest(f"{key!r}: a key of lines is the number of a field, or a text such as '2,2nr'")
        text = f"{key.target},{key.target}" if isinstance(key.target, int) else key.target
        return text + ("r" if key.descending else "")

    def options(self) -> dict[str, Any]:
        separator = None if self.separator is None else ord(self.separator)
        return {"order": self.order, "separator": separator, "header": self.header}

    def arrow_options(self) -> dict[str, Any]:
        return {"binary": self.binary}

    def _arguments(self) -> list[str]:
        words = [] if self.separator is None else [f"separator={self.separator!r}"]
        words += [f"order={self.order!r}"] if self.order else []
        words += ["header=True"] if self.header else []
        words += [f"end={self.end!r}"] if self.end != "\n" else []
        return words + (["binary=True"] if self.binary else [])


class Csv(Layout):
    """Rows of CSV, ordered by columns.

    A key is a column: its name in the header, its number from 1, `desc` of these, or `column(...)` with a type.
    Without a type, the first rows decide whether a column has numbers, dates or text. With `header=False` all rows
    are records, and columns have numbers only. Empty fields and those in `nulls` are null, and come last. With
    `strict=True` a value that is not of its column's type is an error. As Arrow, the columns of keys with
    `type="number"` are 64-bit floats, and all others are strings. A whole number that no float holds is an error.
    With `binary=True` all columns are bytes, as in the file.

    >>> Csv(key=["tenant", desc("ts")])
    Csv(key=['tenant', desc('ts')])
    """

    __slots__ = ("binary", "header", "nulls", "quote", "separator", "strict")

    def __init__(
        self,
        *,
        separator: str = ",",
        quote: str = '"',
        header: bool = True,
        nulls: Iterable[str] = (),
        strict: bool = False,
        binary: bool = False,
        key: KeyLike | None = None,
    ) -> None:
        self.separator, self.quote = _byte("separator", separator), _byte("quote", quote)
        self.header, self.strict = arguments.flag("header", header), arguments.flag("strict", strict)
        self.nulls, self.binary = tuple(arguments.texts("nulls", nulls)), arguments.flag("binary", binary)
        self.key = _checked_key(key)

    def text(self) -> str:
        return "csv" if self.separator == "," else f"csv:0x{ord(self.separator):02x}"

    def key_text(self, key: Key) -> str:
        if isinstance(key.target, slice):
            raise InvalidRequest(f"{key!r}: a key of CSV is a column, by its name or its number from 1")
        if isinstance(key.target, str) and not self.header:
            raise InvalidRequest(f"{key!r}: without a header columns have no names: give the number of a column")
        name = str(key.target).replace('"', '""')
        text = f"#{name}" if isinstance(key.target, int) else f'"{name}"'
        text += ":desc" if key.descending else ""
        text += f":{key.type}" if key.type is not None else ""
        return text + (f":nulls-{key.nulls}" if key.nulls is not None else "")

    def options(self) -> dict[str, Any]:
        return {"quote": ord(self.quote), "nulls": list(self.nulls), "header": self.header}

    def arrow_options(self) -> dict[str, Any]:
        return {"binary": self.binary}

    def _arguments(self) -> list[str]:
        words = [f"separator={self.separator!r}"] if self.separator != "," else []
        words += [f"quote={self.quote!r}"] if self.quote != '"' else []
        words += [] if self.header else ["header=False"]
        words += [f"nulls={self.nulls!r}"] if self.nulls else []
        words += ["strict=True"] if self.strict else []
        return words + (["binary=True"] if self.binary else [])


class _Bytes(Layout):
    """Records whose keys are ranges of their bytes."""

    __slots__ = ()

    def key_text(self, key: Key) -> str:
        if key.type is not None or key.nulls is not None or isinstance(key.target, int):
            raise InvalidRequest(f"{key!r}: a key of binary records is a range of bytes, such as slice(0, 10)")
        text = key.target if isinstance(key.target, str) else self._range(key.target)
        return text + (":desc" if key.descending else "")

    def _range(self, range: slice) -> str:
        start, stop = range.start or 0, range.stop
        if range.step not in (None, 1) or start < 0 or (stop is not None and stop <= start):
            raise InvalidRequest(f"{range!r} is not a range of bytes of a record: its bytes count from 0")
        return f"{start}..{'' if stop is None else stop}"


class Fixed(_Bytes):
    """Records of `length` bytes each, ordered by ranges of their bytes; without a key by all bytes.

    A key is a slice, as of a bytes object: `slice(0, 10)`, `desc(slice(10, 18))`, `slice(-4, None)`.

    `fields` names parts of the record by their first byte and their type: `u8` ... `u64`, `i8` ... `i64`, `f32` or
    `f64`, with `-be` for big endian, or `bytes:N`. As Arrow the record then has a column for each field; without
    fields it has one of fixed-size binary. A field whose bytes are ordered as its values may be a key: unsigned
    integers in big endian, and bytes.

    >>> Fixed(12, fields={"id": (0, "u64-be"), "tag": (8, "bytes:4")}, key="id")
    Fixed(12, fields={'id': (0, 'u64-be'), 'tag': (8, 'bytes:4')}, key='id')
    """

    __slots__ = ("fields", "length")

    def __init__(
        self, length: int, *, fields: Mapping[str, tuple[int, str]] | None = None, key: KeyLike | None = None
    ) -> None:
        self.length = arguments.count("length", length, least=1)
        self.key = _checked_key(key)
        self.fields = None if fields is None else _fields(fields, self.length)

    def text(self) -> str:
        return f"fixed:{self.length}"

    def key_text(self, key: Key) -> str:
        if isinstance(key.target, str) and self.fields is not None and key.target in self.fields:
            start, type = self.fields[key.target]
            if type != "u8" and not type.startswith("bytes:") and not (type[0] == "u" and type.endswith("-be")):
                raise InvalidRequest(
                    f"field {key.target!r} of type {type} cannot be a key: its bytes are not ordered as its values\n"
                    "  store it as an unsigned integer in big endian, or sort the batches of the file by this column"
                )
            width = int(type[6:]) if type.startswith("bytes:") else int(type[1:].removesuffix("-be")) // 8
            key = Key(slice(start, start + width), descending=key.descending, type=key.type, nulls=key.nulls)
        return super().key_text(key)

    def arrow_options(self) -> dict[str, Any]:
        fields = self.fields
        return {"fields": None if fields is None else [(name, *place) for name, place in fields.items()]}

    def _range(self, range: slice) -> str:
        def place(at: int | None, missing: int) -> int:
            return missing if at is None else at + self.length if at < 0 else at

        return super()._range(slice(place(range.start, 0), place(range.stop, self.length), range.step))

    def _arguments(self) -> list[str]:
        return [str(self.length)] + ([] if self.fields is None else [f"fields={self.fields!r}"])


class Prefixed(_Bytes):
    """Records after their length, an unsigned integer of type `u8`, `u16`, `u32` or `u64`, with `-be` for big endian.

    A key is a slice of the bytes after the length.
    """

    __slots__ = ("type",)

    def __init__(self, type: str, *, key: KeyLike | None = None) -> None:
        self.type = _number_type(type, ("u8", "u16", "u32", "u64"))
        self.key = _checked_key(key)

    def text(self) -> str:
        return f"prefixed:{self.type}"

    def _arguments(self) -> list[str]:
        return [repr(self.type)]


class _Numbers(Layout):
    """Bare numbers, which are their own keys."""

    __slots__ = ("type",)
    _types: tuple[str, ...] = ()

    def __init__(self, type: str) -> None:
        self.type, self.key = _number_type(type, self._types), None

    def text(self) -> str:
        return self.type

    def key_text(self, key: Key) -> str:
        raise InvalidRequest("a number is its own key: leave out the key, or give reverse=True")

    def _arguments(self) -> list[str]:
        return [repr(self.type)]


class Integers(_Numbers):
    """Integers of type `u32`, `u64`, `i32` or `i64`, with `-le` (the default) or `-be`.

    >>> Integers("u64-le")
    Integers('u64-le')
    """

    __slots__ = ()
    _types = ("u32", "u64", "i32", "i64")

    # A wrong argument is an error of this class.
    def __init__(self, type: str) -> None:
        super().__init__(type)


class Floats(_Numbers):
    """Floating-point numbers of type `f32` or `f64`, with `-le` (the default) or `-be`, in IEEE total order."""

    __slots__ = ()
    _types = ("f32", "f64")

    # A wrong argument is an error of this class.
    def __init__(self, type: str) -> None:
        super().__init__(type)


_FIELD_TYPES = ("u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f32", "f64")


def _fields(fields: Any, length: int) -> dict[str, tuple[int, str]]:
    places = fields.items() if isinstance(fields, Mapping) else [(None, None)]
    found: dict[str, tuple[int, str]] = {}
    ends: dict[str, int] = {}
    for name, place in places:
        start, type = place if isinstance(place, tuple) and len(place) == 2 else (None, None)
        if not (isinstance(name, str) and isinstance(start, int) and isinstance(type, str)):
            arguments.wrong_type("fields", fields, "a dict of names, first bytes and types, as {'id': (0, 'u64')}")
        size = _field_bytes(type)
        if size is None:
            raise InvalidRequest(
                f"the type of field {name!r}: {type!r} is not known\n  give u8 to u64, i8 to i64, f32 or f64, with "
                "-be for big endian, or bytes:N"
            )
        if start < 0 or start + size > length:
            place = f"bytes {start} to {start + size}"
            raise InvalidRequest(f"field {name!r}, {place}, extends beyond the record of {length} bytes")
        found[name] = (start, type)
        ends[name] = start + size
    _refuse_overlap(found, ends)
    return found


def _refuse_overlap(fields: Mapping[str, tuple[int, str]], ends: Mapping[str, int]) -> None:
    """Raises InvalidRequest for fields that share bytes: a record could not have the values of both."""
    names = sorted(fields, key=lambda name: fields[name][0])
    for name, after in pairwise(names):
        if fields[after][0] < ends[name]:
            both = (f"{one!r}, bytes {fields[one][0]} to {ends[one]}," for one in (name, after))
            raise InvalidRequest(f"fields {' and '.join(both)} overlap\n  leave one of them out")


def _field_bytes(type: str) -> int | None:
    """The length of a field; None for a type that no field has."""
    if type.startswith("bytes:"):
        return int(type[6:]) if type[6:].isascii() and type[6:].isdigit() and int(type[6:]) > 0 else None
    name = type.removesuffix("-le").removesuffix("-be")
    return int(name[1:]) // 8 if name in _FIELD_TYPES else None


def _column_type(argument: str, text: str) -> str:
    accepted = "'text', 'number', 'date', 'number(,)' or 'date(FORMAT)'"
    name, mark, rest = arguments.text(argument, text, accepted).partition("(")
    with_marks = name in ("number", "date") and rest.endswith(")")
    if not with_marks and (mark or name not in ("auto", "text", "number", "date")):
        arguments.wrong_value(argument, text, accepted)
    return text


def _byte(argument: str, text: str) -> str:
    one = "one character of one byte"
    if len(arguments.text(argument, text, one)) != 1 or ord(text) > 127:
        arguments.wrong_value(argument, text, one)
    return text


def _number_type(type: str, types: Sequence[str]) -> str:
    accepted = f"one of {', '.join(types)}, with -le or -be"
    if arguments.text("type", type, accepted).removesuffix("-le").removesuffix("-be") not in types:
        arguments.wrong_value("type", type, accepted)
    return type


def layout_of(layout: LayoutLike, argument: str = "layout") -> Layout:
    """The layout with this text in the language of the command, or the layout itself; of the `argument`."""
    if isinstance(layout, Layout):
        return layout
    accepted = "ascot.Lines(), Csv(), Fixed(100), ... or a text such as 'fixed:100'"
    found = _layout_of_text(arguments.text(argument, layout, accepted))
    if found is None:
        accepted = "lines, csv, tsv, fixed:BYTES, prefixed:u32, u64, i64-be, f64, ..."
        arguments.wrong_value(argument, layout, accepted)
    return found


def _layout_of_text(text: str) -> Layout | None:
    """The layout with a text; None if there is none."""
    name, _, argument = text.partition(":")
    bytes_by_name = {"": "\n", "nul": "\0", "tab": "\t", "newline": "\n"}
    byte = _hexadecimal(argument) if argument.startswith("0x") else bytes_by_name.get(argument, argument)
    if byte is None:
        return None
    if name == "lines":
        return Lines(end=byte)
    if name == "csv":
        return Csv(separator=byte if argument else ",")
    if name == "tsv":
        return Csv(separator="\t")
    if name == "fixed" and argument.isdecimal():
        return Fixed(int(argument))
    if name == "prefixed":
        return Prefixed(argument)
    kind = Floats if name.startswith("f") else Integers
    return kind(name) if name.removesuffix("-le").removesuffix("-be") in kind._types else None


def _hexadecimal(digits: str) -> str | None:
    try:
        return chr(int(digits, 16))
    except (ValueError, OverflowError):
        return None


def keys_of(key: KeyLike | None, argument: str = "key") -> list[Key]:
    """The keys of the `argument` as a list, the most important first."""
    if key is None:
        return []
    several = isinstance(key, Iterable) and not isinstance(key, str | bytes | bytearray | memoryview)
    given: Iterable[Any] = key if several else [key]  # type: ignore[assignment]
    return [_key_of(one, argument) for one in given]


def _key_of(one: Any, argument: str) -> Key:
    if isinstance(one, Key):
        return one
    if isinstance(one, bool) or not isinstance(one, str | int | slice):
        arguments.wrong_type(argument, one, "a name, a number, a slice, asc(...), desc(...), or a list of them")
    return Key(one)


def _checked_key(key: KeyLike | None) -> KeyLike | None:
    """The key of a layout, which may be used many times."""
    if isinstance(key, Iterable) and not isinstance(key, Sequence):
        key = list(key)
    keys_of(key)
    return key


def record_options(layout: Layout, key: KeyLike | None, reverse: bool, argument: str = "key") -> dict[str, Any]:
    """The description of records for the extension module. The key is that of the `argument`."""
    if key is not None and layout.key is not None:
        raise InvalidRequest(f"both the layout and the call have a key: {layout.key!r} and {key!r}; keep one")
    keys = keys_of(layout.key) if key is None else keys_of(key, argument)
    return {
        "layout": layout.text(),
        "keys": [layout.key_text(one) for one in keys],
        "order": "",
        "reverse": arguments.flag("reverse", reverse),
        "separator": None,
        "quote": None,
        "nulls": [],
        "header": False,
        **layout.options(),
    }


def arrow_options(layout: Layout, keys: Sequence[tuple[str, bool, bool]] = ()) -> dict[str, Any]:
    """The Arrow side of the records for the extension module; `keys` are those of columns."""
    return {"keys": list(keys), "fields": None, "binary": False, **layout.arrow_options()}


def column_keys(key: KeyLike | None, reverse: bool) -> list[tuple[str, bool, bool]]:
    """Keys of columns: name, whether descending, whether nulls come first."""
    keys = keys_of(key)
    for one in keys:
        if not isinstance(one.target, str) or one.type is not None:
            raise InvalidRequest(f"{one!r}: a key of Arrow batches is the name of a column")
    return [(str(one.target), one.descending != reverse, one.nulls == "first") for one in keys]
