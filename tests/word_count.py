"""Jobs of `map_reduce` on a cluster of this machine, and a count of words."""

import os
import random

import ascot.cluster
from ray_machines import MEMORY


def map_reduce(disk, inputs, **options):
    usual = {"output": disk / "out", "memory_per_node": MEMORY, "partitions": 5, "progress": None}
    return ascot.cluster.map_reduce(inputs, **{**usual, **options})


def lines_of(done):
    found = []
    for part in done.outputs:
        with open(part) as file:
            lines = file.read().splitlines()
        assert lines == sorted(lines), "keys of a part are in order"
        found += lines
    return sorted(found)


def assert_nothing_left(cluster, disk, names):
    assert sorted(os.listdir(disk)) == sorted(names)
    assert cluster.left_over() == []


def words_of(disk, lines=60_000):
    """A text with frequent and rare words, and a line that is longer than most."""
    dice = random.Random(3)
    words = [f"w{int(dice.paretovariate(0.6)) % 5000}" for _ in range(8 * lines)]
    text = [" ".join(words[8 * at : 8 * at + 8]) for at in range(lines)]
    text[lines // 2] = " ".join(words[:5000])
    (disk / "text").write_text("\n".join(text))
    return text


def split(batch):
    for line in batch.column(0).to_pylist():
        for word in line.split():
            yield word, b"1"


def add(key, values):
    yield b"%d" % sum(map(int, values))


def count(key, values):
    yield b"%s %d\n" % (key, sum(map(int, values)))
