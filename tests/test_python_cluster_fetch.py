"""Partitions on their way from the server of their chunks to the pipe of a merge, by a connection and by calls."""

import os
from threading import Thread
from types import SimpleNamespace

import ascot
import pytest
from ascot import _native, errors
from ascot.cluster import jobs, manifest, spills
from ray_machines import RECORDS

SECRET = bytes(range(32))
RECORD_COUNT, CHUNKS, PARTITIONS = 60_000, 3, 2


@pytest.fixture(scope="module")
def chunks(tmp_path_factory):
    """Sorted chunks of a file of records: the directory and the check of each, and the bytes of their partitions."""
    place = tmp_path_factory.mktemp("chunks")
    ascot.gen(RECORD_COUNT, to=place / "records")
    options = jobs.Request([place / "records"], RECORDS, None, False, {}).options
    bounds = _native.uniform_bounds(options, PARTITIONS)
    size = 100 * RECORD_COUNT
    found = []
    for number, span in enumerate(manifest.spans_of([(str(place / "records"), size)], size // CHUNKS, 100)):
        name = str(place / f"chunk-{number:05}.0")
        own = {**options, "temp": [], "memory": 32 << 20}
        _, sizes = _native.spill_chunk(own, bounds, span.to_native(), 1 << 20, name)
        found.append((name, _native.seal_chunk(name, sizes)))
    ascot.sort(place / "records", to=place / "sorted", layout=RECORDS)
    whole = (place / "sorted").read_bytes()
    opened = _native.SpilledChunks(found, 64 << 20, 1)
    first = len(opened.read(0, 0, size))
    return found, [whole[:first], whole[first:]]


class Calls:
    """A server whose calls are counted, and the functions of Ray that a source uses."""

    def __init__(self, server):
        self.server, self.count = server, 0
        self.fetch = SimpleNamespace(remote=self._fetch)

    def _fetch(self, *arguments):
        self.count += 1
        return self.server.fetch(*arguments)

    def get(self, answer):
        return answer


def server_of(chunks):
    """A server with all chunks as one group, and that group without an address."""
    server = spills.SpillServer("ab" * 16, "127.0.0.1", SECRET)
    address, error = server.open_chunks("0-2", chunks, 64 << 20, 1)
    assert error is None
    return server, Calls(server), address


def fetched(group, fetcher, partition=0):
    """The bytes of a partition that come out of a pipe, and the source."""
    came = []
    with spills.piped() as (read, write):
        source = spills.Source(group, partition, 100_000, fetcher, write)
        source._ray = group.server

        def take():
            with open(read.descriptor, "rb", closefd=False) as pipe:
                came.append(pipe.read())

        reader = Thread(target=take)
        reader.start()
        source.start()
        source.join()
        reader.join()
    assert len(came[0]) == source.bytes
    return came[0], source


def test_partitions_come_over_connections_and_without_calls(chunks):
    found, wanted = chunks
    _server, calls, address = server_of(found)
    fetcher = _native.Fetcher(SECRET)
    for partition in (0, 1, 0):
        came, source = fetched(spills.Group("0-2", calls, address), fetcher, partition)
        assert source.error is None and came == wanted[partition]
    assert calls.count == 0


def test_partitions_come_by_calls_where_nodes_may_not_open_connections(chunks):
    found, wanted = chunks
    server, calls, address = server_of(found)
    for own, secret in ((None, SECRET), (("127.0.0.1", 1), SECRET), (address, bytes(32))):
        calls.count = 0
        came, source = fetched(spills.Group("0-2", calls, own), _native.Fetcher(secret))
        assert source.error is None and came == wanted[0] and calls.count >= len(came) // 100_000
    assert spills.SpillServer("ab" * 16, "127.0.0.1", b"").open_chunks("0-2", found, 64 << 20, 1) == (None, None)
    server.close_chunks()
    came, source = fetched(spills.Group("0-2", calls, address), _native.Fetcher(SECRET))
    assert came == b"" and "has no chunks open" in str(source.error)


def test_a_connection_that_breaks_is_continued_by_calls(chunks):
    found, wanted = chunks
    _server, calls, address = server_of(found)

    def fetch(address, group, partition, pipe):
        spills.write_all(pipe, wanted[partition][:123_456])
        return 123_456, "lost"

    came, source = fetched(spills.Group("0-2", calls, address), SimpleNamespace(fetch=fetch), 1)
    assert source.error is None and came == wanted[1]


def test_the_fault_of_a_chunk_names_its_file(chunks, tmp_path):
    found, wanted = chunks
    _server, calls, address = server_of(found)
    run = next(os.path.join(found[1][0], name) for name in os.listdir(found[1][0]) if name.endswith(".run"))
    with open(run, "r+b") as file:
        content = file.read()
        file.seek(len(content) // 2)
        file.write(bytes(20_000))
        file.flush()
        try:
            came, source = fetched(spills.Group("0-2", calls, address), _native.Fetcher(SECRET), 1)
        finally:
            file.seek(0)
            file.write(content)
    assert isinstance(source.error, errors.Damaged) and run in str(source.error)
    assert came == wanted[1][: len(came)] and len(came) < len(wanted[1])
