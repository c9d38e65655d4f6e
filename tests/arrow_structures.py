"""The C structures of Arrow's PyCapsule interface, built by hand: a producer that may report wrong things.

Every structure counts its releases in `released`, and is kept alive by the producer, so that a structure that is
released twice, or read after its release, is found by its count and not by a crash.
"""

import ctypes
import struct
from collections import Counter

POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)
RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
FILL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
TEXT = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class Schema(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_void_p) for name in ("format", "name", "metadata")],
        ("flags", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        *[(name, ctypes.c_void_p) for name in ("children", "dictionary", "release", "private_data")],
    ]


class Array(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")],
        *[(name, ctypes.c_void_p) for name in ("buffers", "children", "dictionary", "release", "private_data")],
    ]


class Stream(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_void_p) for name in ("get_schema", "get_next", "get_last_error", "release", "private_data")
    ]


KINDS = {Schema: "schema", Array: "array", Stream: "stream"}
CAPSULES = {Schema: b"arrow_schema", Array: b"arrow_array", Stream: b"arrow_array_stream"}


def capsule_of(structure):
    """A capsule that does not release its structure."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(structure), CAPSULES[type(structure)], None)


def address_of(callback):
    return ctypes.cast(callback, ctypes.c_void_p).value


class Producer:
    """Makes structures, and keeps their memory. `released` counts releases by kind, without those of parts."""

    def __init__(self):
        self.released = Counter()
        self._held = []
        self._release = {kind: self.keep(RELEASE(self._counter(kind))) for kind in KINDS}

    def keep(self, thing):
        self._held.append(thing)
        return thing

    def _counter(self, kind):
        def release(address):
            structure = kind.from_address(address)
            self.released[KINDS[kind]] += 1
            assert structure.release, "it was released before"
            structure.release = None

        return release

    def memory(self, content, shift=0):
        """The address of a copy of `content`, aligned to 64 bytes and then shifted."""
        block = self.keep(ctypes.create_string_buffer(len(content) + 128))
        address = (ctypes.addressof(block) + 63) // 64 * 64 + shift
        ctypes.memmove(address, bytes(content), len(content))
        return address

    def pointers(self, addresses):
        return self.memory(struct.pack(f"{len(addresses)}P", *[address or 0 for address in addresses]))

    def schema(self, format, name=b"", children=(), /, **fields):
        """A schema; `fields` replaces its fields."""
        structure = Schema(
            format=self.memory(format + b"\0"), name=self.memory(name + b"\0"), flags=2, n_children=len(children),
            children=self.pointers([ctypes.addressof(child) for child in children]),
            release=address_of(self._release[Schema]),
        )  # fmt: skip
        return self._with(structure, children, fields)

    def array(self, length, buffers, children=(), /, **fields):
        """An array whose buffers are addresses; `fields` replaces its fields."""
        structure = Array(
            length=length, n_buffers=len(buffers), buffers=self.pointers(buffers), n_children=len(children),
            children=self.pointers([ctypes.addressof(child) for child in children]),
            release=address_of(self._release[Array]),
        )  # fmt: skip
        return self._with(structure, children, fields)

    def _with(self, structure, children, fields):
        for field, value in fields.items():
            setattr(structure, field, ctypes.addressof(value) if isinstance(value, ctypes.Structure) else value)
        self.keep((structure, children, fields))
        return structure

    def integers(self, values, **fields):
        return self.array(len(values), [0, self.memory(struct.pack(f"{len(values)}q", *values))], **fields)

    def texts(self, values, ends=None, shift=0, **fields):
        """An array of strings; `ends` replaces their offsets, and `shift` moves these in memory."""
        data = b"".join(values)
        if ends is None:
            ends = [sum(map(len, values[:at])) for at in range(len(values) + 1)]
        offsets = self.memory(struct.pack(f"{len(ends)}i", *ends), shift)
        return self.array(len(values), [0, offsets, self.memory(data)], **fields)

    def table_schema(self, **columns):
        """The schema of a table: the format of each column."""
        parts = [self.schema(format, name.encode()) for name, format in columns.items()]
        return self.schema(b"+s", b"", parts)

    def stream(self, make_schema, make_arrays, text=b"the stream is broken"):
        """A stream. `make_schema` and the items of `make_arrays` are called; None for a failure."""
        arrays = iter(make_arrays)
        message = self.memory(text + b"\0")

        def fill(address, kind, structure):
            if structure is None:
                return 5
            ctypes.memmove(address, ctypes.addressof(structure), ctypes.sizeof(kind))
            return 0

        def get_next(_, address):
            make = next(arrays, None)
            if make is None:
                return fill(address, Array, self.keep(Array()))
            return fill(address, Array, make())

        structure = Stream(
            get_schema=address_of(self.keep(FILL(lambda _, address: fill(address, Schema, make_schema())))),
            get_next=address_of(self.keep(FILL(get_next))),
            get_last_error=address_of(self.keep(TEXT(lambda _: message))),
            release=address_of(self._release[Stream]),
        )
        return self.keep(structure)


class StreamOf:
    """An object that exports a stream."""

    def __init__(self, structure):
        self.structure = structure

    def __arrow_c_stream__(self, requested_schema=None):
        return capsule_of(self.structure)


class BatchOf:
    """An object that exports a batch."""

    def __init__(self, schema, array):
        self.schema, self.array = schema, array

    def __arrow_c_array__(self, requested_schema=None):
        return capsule_of(self.schema), capsule_of(self.array)
