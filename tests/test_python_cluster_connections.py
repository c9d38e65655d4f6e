"""The server of a writer, its connections with workers and with other processes, and how many there are."""

import subprocess
import sys
from time import monotonic

from batch_writer import BatchWriter, send_from_process, sender

SERVER = """
import os, resource, socket, time
from ascot import _native

def descriptors():
    return len(os.listdir("/proc/self/fd"))

def connected(count):
    return [socket.create_connection(("127.0.0.1", server.port)) for _ in range(count)]

server = _native.BatchServer("127.0.0.1", bytes(32), 1 << 20)
before = descriptors()
strangers = connected(20)
for one in strangers:
    assert one.recv(8, socket.MSG_WAITALL) == b"ASCTCON2"
print((descriptors() - before) / len(strangers))
for one in strangers:
    one.close()

# All descriptors but one are taken, which the worker's end gets.
time.sleep(1)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
while True:
    try:
        taken.append(os.dup(0))
    except OSError:
        break
os.close(taken.pop())
late = connected(1)
began = time.process_time()
time.sleep(1)
print(time.process_time() - began)
os.close(taken.pop())
print(late[0].recv(8, socket.MSG_WAITALL).decode())
"""


def test_a_connection_has_one_descriptor_and_a_server_without_any_waits():
    done = subprocess.run([sys.executable, "-c", SERVER], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    each, seconds, greeting = done.stdout.split()
    # This process has both ends.
    assert float(each) == 2
    assert float(seconds) < 0.2
    assert greeting == "ASCTCON2"


def test_connections_of_a_node_are_bounded_when_all_workers_send_at_once(tmp_path):
    workers, connections, nodes = 6, 2, 12
    # Each writer has more than the mean, and less than one for each worker.
    writers = [BatchWriter(tmp_path, number, 1, 3 * workers * connections // nodes) for number in range(nodes)]
    assert send_from_process(writers, connections, workers, chunks=3) == ""
    assert [writer.end() for writer in writers] == [workers * 3] * nodes


def test_idle_connections_of_others_do_not_keep_a_worker_out(tmp_path):
    writer = BatchWriter(tmp_path, 0, 8, 4)
    first, second = sender(4), sender(4)
    # The first worker has all descriptors of the writer, and goes on to map its next chunk.
    assert first.send_batches(writer.targets(0))[2] == []
    began = monotonic()
    assert second.send_batches(writer.targets(1))[2] == []
    # Its connections are opened again.
    assert first.send_batches(writer.targets(2))[2] == []
    assert monotonic() - began < 8
    assert writer.end() == 3 * 8
