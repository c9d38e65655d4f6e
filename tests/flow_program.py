"""The program of the tests of `ascot flow`: reads all inputs in turn, a portion of each, and writes `factor` times as
many bytes to all outputs in turn. The environment names its descriptors."""

import os
import sys

PORTION = 4096


def streams(name, mode):
    count = int(os.environ[f"ASCOT_{name}PUTS"])
    return [os.fdopen(int(os.environ[f"ASCOT_{name}_{number}"]), mode) for number in range(count)]


def swell(data, count):
    return (data * (count // len(data) + 1))[:count]


def pieces(inputs, factor):
    """What is written, in order, for these inputs: files, or their bytes."""
    owed = 0.0
    live = list(inputs)
    while live:
        for file in list(live):
            data = file.read(PORTION)
            if not data:
                live.remove(file)
                continue
            owed += len(data) * factor
            count = int(owed)
            owed -= count
            yield swell(data, count)


if __name__ == "__main__":
    inputs, outputs = streams("IN", "rb"), streams("OUT", "wb")
    for turn, piece in enumerate(pieces(inputs, float(sys.argv[1]))):
        outputs[turn % len(outputs)].write(piece)
