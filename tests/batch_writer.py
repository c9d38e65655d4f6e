"""Writers and workers in processes of their own, with as many descriptors as a test leaves them.

    python tests/batch_writer.py write DIRECTORY FIRST COUNT SPARE
    python tests/batch_writer.py work CONNECTIONS WORKERS CHUNKS PORT:FIRST:COUNT...

A writer has the destinations FIRST, FIRST + 1, ... and tells its port; a line of the standard input ends it. Each
worker sends CHUNKS chunks to all destinations.
"""

import os
import resource
import subprocess
import sys
from threading import Thread

from ascot import _native


def leave_descriptors(count):
    """Limits the files of this process to those that are open, and `count` more."""
    numbers = {int(name) for name in os.listdir("/proc/self/fd")}
    used = {number for number in numbers if os.path.exists(f"/proc/self/fd/{number}")}
    limit = next(limit for limit in range(4096) if limit - len({one for one in used if one < limit}) == count)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


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


def targets(port, numbers, chunk):
    """A batch of a chunk for each of these destinations of a writer."""
    made = _native.make_batch
    return [
        (one, "127.0.0.1", port, [made(bytes(16), chunk, one, 0, True, [(0, b"x" * 100)])]) for one in numbers
    ]


class BatchWriter:
    """A process with a server, which has descriptors for `spare` connections and not one more."""

    def __init__(self, directory, first, count, spare):
        words = [sys.executable, __file__, "write", str(directory), *map(str, (first, count, spare))]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.numbers = range(first, first + count)
        self.port = int(self.process.stdout.readline())

    def targets(self, chunk):
        """A batch of a chunk for each destination."""
        return targets(self.port, self.numbers, chunk)

    def end(self):
        """The chunks that its destinations have whole."""
        told, _ = self.process.communicate("\n", timeout=30)
        assert self.process.returncode == 0
        return int(told)


def sender(connections):
    return _native.BatchSender(bytes(32), 2, connections)


def work(connections, workers, chunks, *writers):
    """Workers in one process, which has a descriptor for each connection that they may have; prints what failed."""
    ways = [(port, range(first, first + count)) for port, first, count in writers]
    wrong = []

    def send(number):
        one = sender(connections)
        for chunk in range(number * chunks, (number + 1) * chunks):
            batches = [target for port, numbers in ways for target in targets(port, numbers, chunk)]
            _, repeated, failed = one.send_batches(batches)
            wrong.extend([f"{repeated} repeated"] * bool(repeated) + [str(fault) for fault in failed])

    threads = [Thread(target=send, args=(number,)) for number in range(workers)]
    leave_descriptors(workers * connections)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(*wrong, sep="\n", end="")


def send_from_process(writers, connections, workers, chunks):
    """What fails when so many workers send so many chunks each to all destinations of the writers."""
    ways = [f"{writer.port}:{writer.numbers.start}:{len(writer.numbers)}" for writer in writers]
    words = [sys.executable, __file__, "work", *map(str, (connections, workers, chunks)), *ways]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


if __name__ == "__main__":
    kind, *words = sys.argv[1:]
    if kind == "write":
        serve(words[0], *map(int, words[1:]))
    else:
        work(*map(int, words[:3]), *(tuple(map(int, way.split(":"))) for way in words[3:]))
