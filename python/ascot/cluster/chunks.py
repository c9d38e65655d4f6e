"""Sets of chunks, a bit for each: a job has up to millions of chunks, and up to thousands of destinations.

Invariant: a set takes one byte for eight chunks below its largest one, and nothing per chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

__all__ = ["ChunkSet", "Ranges", "ranges_of"]

# Consecutive numbers, each with its first and its last one, in rising order.
Ranges = tuple[tuple[int, int], ...]


class ChunkSet:
    """A set of chunks.

    >>> some = ChunkSet([3, 8])
    >>> some.add(1000)
    >>> 8 in some, 9 in some, len(some), list(some - ChunkSet([8]))
    (True, False, 3, [3, 1000])
    >>> list(ChunkSet.from_bytes(some.to_bytes()))
    [3, 8, 1000]
    """

    __slots__ = ("_bits", "_count")

    def __init__(self, chunks: Iterable[int] = ()) -> None:
        self._bits = bytearray()
        self._count = 0
        for chunk in chunks:
            self.add(chunk)

    @classmethod
    def from_bytes(cls, content: bytes) -> ChunkSet:
        """The set that `to_bytes` gave."""
        return cls._from_int(int.from_bytes(content, "little"))

    @classmethod
    def _from_int(cls, bits: int) -> ChunkSet:
        made = cls()
        made._bits = bytearray(bits.to_bytes(-(-bits.bit_length() // 8), "little"))
        made._count = bits.bit_count()
        return made

    def to_bytes(self) -> bytes:
        """Bit `n % 8` of byte `n // 8` for each chunk n."""
        return bytes(self._bits)

    def _as_int(self) -> int:
        return int.from_bytes(self._bits, "little")

    def add(self, chunk: int) -> None:
        """Adds a chunk, which may be there."""
        at, bit = chunk >> 3, 1 << (chunk & 7)
        if at >= len(self._bits):
            self._bits.extend(bytes(max(at + 1 - len(self._bits), len(self._bits))))
        self._count += not self._bits[at] & bit
        self._bits[at] |= bit

    def discard(self, chunk: int) -> None:
        """Removes a chunk, which may not be there."""
        if chunk in self:
            self._bits[chunk >> 3] ^= 1 << (chunk & 7)
            self._count -= 1

    def __contains__(self, chunk: int) -> bool:
        at = chunk >> 3
        return at < len(self._bits) and bool(self._bits[at] >> (chunk & 7) & 1)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for at, byte in enumerate(self._bits):
            if byte:
                yield from (8 * at + bit for bit in range(8) if byte >> bit & 1)

    def __sub__(self, other: ChunkSet) -> ChunkSet:
        return self._from_int(self._as_int() & ~other._as_int())

    def __or__(self, other: ChunkSet) -> ChunkSet:
        return self._from_int(self._as_int() | other._as_int())


@lru_cache(maxsize=256)
def ranges_of(numbers: tuple[int, ...]) -> Ranges:
    """Rising numbers as ranges.

    >>> ranges_of((0, 1, 2, 5, 7, 8))
    ((0, 2), (5, 5), (7, 8))
    """
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)
