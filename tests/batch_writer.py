"""A writer in a process of its own, with as many descriptors as a test leaves it.

    python tests/batch_writer.py DIRECTORY FIRST COUNT SPARE

It has the destinations FIRST, FIRST + 1, ... and tells its port; a line of the standard input ends it.
"""

import os
import resource
import subprocess
import sys
from contextlib import contextmanager

from ascot import _native


def leave_descriptors(count):
    """Limits the files of this process to those that are open, and `count` more. Returns the limit before."""
    numbers = {int(name) for name in os.listdir("/proc/self/fd")}
    used = {number for number in numbers if os.path.exists(f"/proc/self/fd/{number}")}
    limit = next(limit for limit in range(4096) if limit - len({one for one in used if one < limit}) == count)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    return before


def serve(directory, first, count, spare):
    """A writer in a process of its own: tells its port, and at the end the chunks that its destinations have."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server = _native.BatchServer("127.0.0.1", bytes(32), 1 << 20)
    destinations = []
    for number in range(first, first + count):
        destinations.append(_native.PartitionFiles(f"{directory}/{number}", bytes(16), number))
        # The file of its partition is open from here on.
        destinations[-1].append(_native.make_batch(bytes(16), 1000, number, 0, True, [(0, b"x")]))
        server.add(number, destinations[-1])
    leave_descriptors(spare)
    print(server.port, flush=True)
    input()
    print(sum(len(one.complete_chunks()) - 1 for one in destinations))


class BatchWriter:
    """A process with a server, which has descriptors for `spare` connections and not one more."""

    def __init__(self, directory, first, count, spare):
        words = [sys.executable, __file__, str(directory), *map(str, (first, count, spare))]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.numbers = range(first, first + count)
        self.port = int(self.process.stdout.readline())

    def targets(self, chunk):
        """A batch of a chunk for each destination."""
        made = _native.make_batch
        return [
            (one, "127.0.0.1", self.port, [made(bytes(16), chunk, one, 0, True, [(0, b"x" * 100)])])
            for one in self.numbers
        ]

    def end(self):
        """The chunks that its destinations have whole."""
        told, _ = self.process.communicate("\n", timeout=30)
        assert self.process.returncode == 0
        return int(told)


def sender(connections):
    return _native.BatchSender(bytes(32), 2, connections)


@contextmanager
def descriptors(count):
    """So many more for this process, and none beyond them."""
    before = leave_descriptors(count)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


if __name__ == "__main__":
    serve(sys.argv[1], *map(int, sys.argv[2:]))
