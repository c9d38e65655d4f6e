"""The server of a writer, and connections of processes that are no workers."""

import subprocess
import sys

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
