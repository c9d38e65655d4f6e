"""The head of a cluster is killed during a job and started again, with its state in Redis: the job goes on."""

import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import ascot
import pytest
from ray_machines import RECORDS
from support import ROOT, long

pytestmark = pytest.mark.cluster

COUNT = int(os.environ.get("ASCOT_CLUSTER_RECORDS", 400_000))
MAP, SORT = "map and shuffle", "sort and reduce"


@contextmanager
def redis(directory):
    """The address of a Redis without files."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", directory]
    with subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL) as server:
        try:
            end = time.monotonic() + 30
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    assert server.poll() is None and time.monotonic() < end
                    time.sleep(0.1)
            yield f"127.0.0.1:{port}"
        finally:
            server.kill()


@pytest.mark.parametrize(
    "shuffle, phase, share",
    [("push", MAP, 0.15), long("push", SORT, 0.6), long("pull", MAP, 0.15), long("pull", SORT, 0.6)],
)
def test_the_head_is_killed_and_started_again(disk, shuffle, phase, share):
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    ascot.gen(COUNT, to=disk / "records")
    wanted = ascot.check(disk / "records", layout=RECORDS).checksum
    with redis(disk) as address:
        path = os.pathsep.join([str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "RAY_REDIS_ADDRESS": address, "PYTHONPATH": path}
        program = [sys.executable, ROOT / "tests" / "head_restart.py"]
        program += [disk / "records", disk, shuffle, phase, str(share)]
        done = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # No node is lost with the head.
    assert done.stdout.split()[-3:] == [wanted, str(COUNT), "0"], done.stdout
    assert not (disk / "out.job").exists()
