"""Both shuffles of a sort on a cluster, and both forms of its output, have the bytes of a sort on one machine.

Also measured: the bytes that the processes of a job write to disks.
"""

import itertools
import os
import random
import struct
from pathlib import Path

import ascot
import ascot.cluster
import pytest
from ascot import errors
from ray_machines import MIB, PAIR, RECORDS, cluster_sort, processes_of

# The nodes share two processors; other load would make them seem lost.
pytestmark = pytest.mark.cluster(nodes=PAIR)

WAYS = [("pull", "files"), ("push", "views"), ("pull", "views")]


def uniform(dice):
    return RECORDS, b"".join(dice.randbytes(10) + b"%090d" % number for number in range(40_000)), {}


def all_equal(dice):
    # Only the place in the inputs orders these.
    return RECORDS, b"".join(b"same key!!%090d" % number for number in range(40_000)), {}


def zipf(dice):
    keys = [b"%010d" % (1 / (1e-4 + dice.random())) for _ in range(40_000)]
    return RECORDS, b"".join(key + b"%090d" % number for number, key in enumerate(keys)), {}


def numbers(dice):
    return "u64", struct.pack("<400000Q", *(dice.getrandbits(64) for _ in range(400_000))), {}


def lines(dice):
    text = "\n".join(f"{dice.choice('abc')} {'x' * dice.randrange(200)}{number}" for number in range(30_000))
    return ascot.Lines(key=1), text.encode(), {"stable": True, "reverse": True}


KINDS = [uniform, all_equal, zipf, numbers, lines]
# Every kind with every way: the long tests have those that are not here.
USUAL = {(uniform, "push", "views"), (all_equal, "pull", "views"), *((kind, "pull", "files") for kind in KINDS)}
CASES = [
    pytest.param(
        kind, *way, marks=[] if (kind, *way) in USUAL else pytest.mark.long, id=f"{kind.__name__}-{'-'.join(way)}"
    )
    for kind in KINDS
    for way in WAYS
]


@pytest.mark.parametrize("kind, shuffle, output_as", CASES)
def test_all_parts_are_the_sort_of_one_machine(cluster, disk, kind, shuffle, output_as):
    layout, content, options = kind(random.Random(5))
    cut = len(content) // 3 // 100 * 100
    inputs = [disk / "a", disk / "b"] if layout is RECORDS else [disk / "a"]
    (disk / "a").write_bytes(content[:cut] if layout is RECORDS else content)
    (disk / "b").write_bytes(content[cut:])
    done = cluster_sort(disk, inputs, layout=layout, partitions=6, shuffle=shuffle, output_as=output_as, **options)
    ascot.sort(inputs, to=disk / "alone", layout=layout, memory="64MiB", **options)
    wanted = (disk / "alone").read_bytes()
    with done.open() as whole:
        assert whole.read() == wanted
        assert whole.seek(-1000, os.SEEK_END) == len(wanted) - 1000
        assert whole.read(5000) == wanted[-1000:]
    for part in done.outputs:
        assert os.path.isdir(part) == (output_as == "views")
    if output_as == "views":
        with ascot.view(done.outputs[-1]) as view:
            assert bytes(view[-1]) == wanted[len(wanted) - len(bytes(view[-1])) :]
    assert done.report.bytes == len(wanted)
    assert done.report.records == ascot.check(disk / "alone", layout=layout).records
    assert cluster.left_over() == [] and not (disk / "out.job").exists()
    assert not [name for name in os.listdir(disk) if name.startswith(".out.")]


def test_inputs_without_records(cluster, disk):
    (disk / "none").write_bytes(b"")
    for output_as in ("files", "views"):
        done = cluster_sort(disk, disk / "none", shuffle="pull", output_as=output_as, partitions=3)
        with done.open() as whole:
            assert whole.read() == b""
        os.rename(disk / "out", disk / output_as)
    assert cluster.left_over() == []


def split(batch):
    for line in batch.column("line").to_pylist():
        for word in line.split():
            yield word, b"1"


def count(key, values):
    yield b"%s %d\n" % (key, sum(map(int, values)))


PAIRS = {
    "push": {},
    "merged": {"shuffle": "pull"},
    "file": {"shuffle": "pull", "reduce_input": "file"},
}


def test_reducers_pull_pairs_in_the_order_of_keys(cluster, disk):
    dice = random.Random(6)
    words = [f"word-{int(dice.paretovariate(0.3)) % 5000}" for _ in range(150_000)]
    (disk / "text").write_text("\n".join(" ".join(words[at : at + 10]) for at in range(0, len(words), 10)))
    found, written = {}, {}
    for name, options in PAIRS.items():
        moved = Written(cluster)
        done = ascot.cluster.map_reduce(
            disk / "text", map=split, reduce=count, output=disk / name, partitions=5, memory_per_node="480MiB",
            progress=moved, **options,
        )  # fmt: skip
        found[name], written[name] = [Path(part).read_bytes() for part in done.outputs], moved.bytes
    assert found["merged"] == found["file"] == found["push"] and len(found["push"]) == 5
    total = sum(int(line.split()[1]) for part in found["push"] for line in part.splitlines())
    assert total == len(words)
    # Pairs are written once, and once more to the files that are reduced; the pages that are not full are few.
    pairs = done.report.bytes
    assert written["merged"] < 1.7 * pairs < written["file"] < 2.7 * pairs
    assert cluster.left_over() == []


@pytest.mark.long
def test_a_partition_larger_than_memory_is_merged_without_spills(cluster, disk):
    # A worker has about 100 MiB; all records are one partition.
    ascot.gen(1_500_000, to=disk / "a")
    written = Written(cluster)
    done = cluster_sort(disk, disk / "a", partitions=1, shuffle="pull", progress=written)
    assert ascot.check(list(done.outputs), layout=RECORDS).is_sorted
    assert done.report.peak_memory_bytes <= done.report.memory_per_node == 480 * MIB
    # The chunks, and the part.
    assert written.bytes < 2.2 * done.report.bytes


class Written:
    """A function for progress that adds up the bytes that the processes of a job wrote to disks.

    Processes of the job before may still be ending when this one starts, and do not count.
    """

    def __init__(self, machines):
        self._machines, self._found = machines, {}
        self._earlier = set(self._processes())

    def _processes(self):
        for kind in ("Worker", "Writer", "SpillWorker", "SpillServer"):
            yield from processes_of(kind, self._machines)

    def __call__(self, progress):
        for process in self._processes():
            if process not in self._earlier:
                try:
                    fields = dict(line.split(": ") for line in Path(f"/proc/{process}/io").read_text().splitlines())
                except OSError:
                    continue
                self._found[process] = int(fields["write_bytes"])

    @property
    def bytes(self):
        return sum(self._found.values())


@pytest.mark.parametrize(
    "shuffle, output_as, times", [("push", "files", 2), ("pull", "files", 2), ("pull", "views", 1)]
)
def test_how_often_a_record_is_written(cluster, disk, shuffle, output_as, times):
    ascot.gen(400_000, to=disk / "a")
    written = Written(cluster)
    done = cluster_sort(disk, disk / "a", shuffle=shuffle, output_as=output_as, progress=written, uniform=True)
    assert (times - 0.1) * 40_000_000 < written.bytes < (times + 0.3) * 40_000_000
    # The samples of the report have the first bytes and the last ones.
    assert (times - 0.1) * 40_000_000 < sum(map(written_of, done.report.series.values())) < (times + 0.3) * 40_000_000


def written_of(samples):
    """Bytes that the processes of a node wrote, by its samples, which have a second each."""
    ends, rates = samples.column("seconds"), samples.column("job_written_bytes_per_s")
    lengths = [min(ends[0], 1.0), *(later - sooner for sooner, later in itertools.pairwise(ends))]
    return sum(length * rate for length, rate in zip(lengths, rates, strict=True))


def test_words_that_are_not_known(disk):
    ascot.gen(10, to=disk / "a")
    with pytest.raises(errors.InvalidRequest, match="give 'push', 'pull' or 'auto'"):
        cluster_sort(disk, disk / "a", shuffle="fetch")
    with pytest.raises(errors.InvalidRequest, match="give 'files' or 'views'"):
        cluster_sort(disk, disk / "a", output_as="view")
    with pytest.raises(FileNotFoundError, match="no parts"):
        ascot.cluster.open_parts(disk)
