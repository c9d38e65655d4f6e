"""Writes the particles of a simulation to an indexed directory, an epoch for each step, and follows a few of them.

Usage: python follow_particles.py DIRECTORY
"""

import struct
import sys
from pathlib import Path

import ascot


def step(number: int, particles: int) -> tuple[list[bytes], list[bytes]]:
    """The particles of one step, in an order of its own: identifiers and positions."""
    order = sorted(range(particles), key=lambda particle: particle * 7919 % 1009)
    keys = [struct.pack(">Q", particle) for particle in order]
    return keys, [struct.pack("<2d", particle + number / 10, -float(number)) for particle in order]


def main(path: Path) -> None:
    with ascot.index.writer(path, key_bytes=8, value_bytes=16) as writer:
        for number in range(5):
            writer.append(*step(number, 1000))
            writer.end_epoch()
    with ascot.index.open(path) as index:
        for record in index.get([struct.pack(">Q", particle) for particle in (7, 500)]):
            (particle,) = struct.unpack(">Q", record.key)
            x, y = struct.unpack("<2d", record.value)
            print(f"particle {particle} in step {record.epoch}: {x:.1f} {y:.1f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
