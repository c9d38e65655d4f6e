"""Inputs of flows, what the program of their tests writes, and the switches that are due."""

import io
import json
import random
import sys
from pathlib import Path

from flow_program import pieces
from support import MIB, run

PROGRAM = Path(__file__).with_name("flow_program.py")
ARRAY = """name = "24 disks"
read_bytes_per_s = 3.549e9
write_bytes_per_s = 3.549e9
switch_seconds = 0.0155
"""


def make_inputs(directory, count, size):
    names = [directory / f"in{number}" for number in range(count)]
    for number, name in enumerate(names):
        block = random.Random(number).randbytes(MIB + number)
        name.write_bytes((block * (size // len(block) + 1))[:size])
    return names


def array_of(directory):
    """A profile of the array."""
    (directory / "array.toml").write_text(ARRAY)
    return directory / "array.toml"


def swelling(factor):
    return ["--", sys.executable, PROGRAM, str(factor)]


def expected(inputs, outputs, factor):
    """The bytes of each output of the program."""
    files = [io.BytesIO(name.read_bytes()) for name in inputs]
    written = [bytearray() for _ in range(outputs)]
    for turn, piece in enumerate(pieces(files, factor)):
        written[turn % outputs] += piece
    return [bytes(output) for output in written]


def simulated(step, alpha, *flags):
    """Switches of `ascot simulate` for the streams, bytes and buffers of a pass."""
    blocks, block_bytes = step["buffers"]["blocks"], step["buffers"]["block_bytes"]
    moved = sum(stream["read_bytes"] + stream["written_bytes"] for stream in step["streams"])
    words = ["--inputs", step["inputs"], "--outputs", step["outputs"], "--alpha", alpha]
    sizes = ["--memory", f"{blocks * block_bytes}b", "--block", f"{block_bytes}b", "--total", f"{moved}b"]
    return json.loads(run("simulate", *map(str, words), *sizes, "--json", *flags).stdout)["switches"]
