"""A shuffle over Arrow Flight: processes stand for nodes, read their shares of a file, and append what they receive.

    flight_shuffle.py INPUT DIR NODES

Bytes are not looked at: equal shares go to all nodes, as in `tcp_shuffle ... move`, in batches of 4 MiB with a token.
Each node sends to each other by a call of DoPut. Bytes for the own node go to its file directly. The time begins when
all servers listen, and ends when all files are durable. Prints seconds, processor seconds and bytes received as JSON.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import secrets
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow
from pyarrow import flight

BATCH = 4 << 20
SCHEMA = pyarrow.schema([("bytes", pyarrow.binary(BATCH))])
TOKEN_HEADER = "authorization"


class TokenFactory(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Refuses calls without the token."""

    def __init__(self, token: str) -> None:
        self.token = token

    def start_call(self, _info: Any, headers: Any) -> None:
        if headers.get(TOKEN_HEADER) != [f"Bearer {self.token}"]:
            raise flight.FlightUnauthenticatedError("the token is wrong")


class Server(flight.FlightServerBase):  # type: ignore[misc]
    """Appends what a call brings to a file of its own."""

    def __init__(self, directory: Path, token: str) -> None:
        super().__init__("grpc://127.0.0.1:0", middleware={"token": TokenFactory(token)})
        self.directory, self.received = directory, 0

    def do_put(self, _context: Any, descriptor: Any, reader: Any, _writer: Any) -> None:
        """A stream of batches."""
        with (self.directory / descriptor.command.decode()).open("wb", buffering=0) as file:
            for chunk in reader:
                # Without the offsets, which this type does not have.
                rows = chunk.data.column(0)
                content = memoryview(rows.buffers()[1])[rows.offset * BATCH :][: len(rows) * BATCH]
                while content:
                    content = content[file.write(content) :]
                self.received += len(rows) * BATCH
            os.fsync(file.fileno())


def node(number: int, path: str, directory: str, nodes: int, token: str, pipe: Any) -> None:
    """One node: a server, and a thread that sends to each other node."""
    own = Path(directory) / str(number)
    own.mkdir()
    server = Server(own, token)
    pipe.send(server.port)
    ports = pipe.recv()
    began = time.process_time()
    size = os.path.getsize(path) // BATCH
    first, last = size * number // nodes, size * (number + 1) // nodes

    def send(other: int) -> None:
        begin, end = (first + (last - first) * at // nodes for at in (other, other + 1))
        with open(path, "rb", buffering=0) as source:
            source.seek(begin * BATCH)
            if other == number:
                with (own / f"from-{number}").open("wb", buffering=0) as file:
                    for _ in range(begin, end):
                        file.write(source.read(BATCH))
                    os.fsync(file.fileno())
                return
            client = flight.connect(f"grpc://127.0.0.1:{ports[other]}")
            options = flight.FlightCallOptions(headers=[(TOKEN_HEADER.encode(), f"Bearer {token}".encode())])
            to = flight.FlightDescriptor.for_command(f"from-{number}".encode())
            writer, _ = client.do_put(to, SCHEMA, options)
            for _ in range(begin, end):
                rows = pyarrow.Array.from_buffers(SCHEMA[0].type, 1, [None, pyarrow.py_buffer(source.read(BATCH))])
                writer.write_batch(pyarrow.record_batch([rows], schema=SCHEMA))
            writer.done_writing()
            writer.close()

    threads = [Thread(target=send, args=(other,)) for other in range(nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pipe.send("sent")
    pipe.recv()
    cpu = time.process_time() - began
    pipe.send((cpu, sum(one.stat().st_size for one in own.iterdir())))


def main() -> None:
    """Starts the nodes, and prints what they took."""
    path, directory, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    context, token = multiprocessing.get_context("spawn"), secrets.token_hex(32)
    pairs = [context.Pipe() for _ in range(count)]
    for number, (_, end) in enumerate(pairs):
        context.Process(target=node, args=(number, path, directory, count, token, end), daemon=True).start()
        # The end of a process that dies is closed.
        end.close()
    pipes = [own for own, _ in pairs]
    ports = [pipe.recv() for pipe in pipes]
    began = time.monotonic()
    for pipe in pipes:
        pipe.send(ports)
    for pipe in pipes:
        pipe.recv()
    seconds = time.monotonic() - began
    for pipe in pipes:
        pipe.send("end")
    told = [pipe.recv() for pipe in pipes]
    received = sum(size for _, size in told)
    print(json.dumps({"seconds": seconds, "cpu": sum(cpu for cpu, _ in told), "bytes": received}))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
