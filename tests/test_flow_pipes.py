"""Pipes and sockets as ends of `ascot flow`: they cost no switch, and files are moved as if there were none."""

import json
import os
import socket
import subprocess
import threading
import time

import pytest
from flows import array_of, expected, make_inputs, simulated, swelling
from support import FIXED, MIB, run, sorted_files, start


@pytest.fixture
def array(tmp_path):
    return array_of(tmp_path)


def test_pipes_on_both_ends(array, disk):
    [name] = make_inputs(disk, 1, 3 * MIB)
    with open(name, "rb") as file:
        source = subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE)
        done = run("flow", "--inputs", "-", "--outputs", "-", "--volume", array, "--", "tr", "a-z", "A-Z",
                   stdin=source.stdout)  # fmt: skip
        source.stdout.close()
        source.wait()
    assert done.stdout == name.read_bytes().translate(bytes.maketrans(*(bytes(range(97, 123)), bytes(range(65, 91)))))


def connection():
    """The two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    return ours, theirs


@pytest.mark.parametrize("merged", [False, True])
def test_tcp_sockets_on_both_ends(merged, array, disk):
    """A service that is started for a connection has it as its standard streams."""
    [name] = sorted_files(disk, [100_000])
    asked, stdin = connection()
    told, stdout = connection()
    words = ["--inputs", "-", "--outputs", "-", "--volume", array, *(["--merge-by", "0..10", *FIXED[:2]] * merged)]
    with stdin, stdout, start("flow", *words, "--", "cat", stdin=stdin, stdout=stdout) as process:
        stdin.close()
        stdout.close()

        def send():
            with asked:
                asked.sendall(name.read_bytes())

        threading.Thread(target=send, daemon=True).start()
        with told, told.makefile("rb") as answer:
            received = answer.read()
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert received == name.read_bytes()


def test_files_pipes_and_sockets_are_ends_of_one_flow(array, disk):
    """Files are moved in the runs of their own number, and the other ends cost nothing."""
    files = make_inputs(disk, 4, 20 * MIB)
    gotten = [b""] * 4
    pipe_in, socket_in, pipe_out, socket_out = ends = [disk / f"end{number}" for number in range(4)]
    serving = [
        ("pipe", "inputs", pipe_in, files[2]),
        ("socket", "inputs", socket_in, files[3]),
        ("pipe", "outputs", pipe_out, files[2]),
        ("socket", "outputs", socket_out, files[3]),
    ]
    threads = []
    for kind, side, end, file in serving:
        if kind == "pipe":
            os.mkfifo(end)
        number = files.index(file)
        threads.append(threading.Thread(target=serve, args=(kind, side, end, file, gotten, number), daemon=True))
        threads[-1].start()
    wait_for_files(ends)
    out = [disk / "out0", disk / "out1"]
    words = ["--inputs", *files[:2], pipe_in, socket_in, "--outputs", *out, pipe_out, socket_out]
    words += ["--memory", "8MiB", "--volume", array, "--report", disk / "run.json", *swelling(1)]
    run("flow", *words, timeout=300)
    for thread in threads:
        thread.join(20)
    assert [*(name.read_bytes() for name in out), *gotten[2:]] == expected(files, 4, 1)
    report = json.loads((disk / "run.json").read_text())
    [step] = report["passes"]
    assert (step["inputs"], step["outputs"]) == (2, 2)
    assert report["flow"]["alpha"] == pytest.approx(0.5, abs=0.01)
    assert step["switches"] <= 1.10 * simulated(step, 0.5)


@pytest.mark.parametrize("kind", ["pipe", "socket"])
@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_the_other_side_of_pipes_and_sockets_takes_its_own_schedule(kind, side, array, disk):
    """Inputs from pipes: the outputs are written by A1. Outputs to pipes: the inputs are read by A3."""
    count, factor = 6, 1
    files = make_inputs(disk, count, 40 * MIB // count)
    ends = [disk / f"end{number}" for number in range(count)]
    gotten = [b""] * count
    threads = [
        threading.Thread(target=serve, args=(kind, side, ends[number], files[number], gotten, number), daemon=True)
        for number in range(count)
    ]
    for end in ends if kind == "pipe" else []:
        os.mkfifo(end)
    for thread in threads:
        thread.start()
    wait_for_files(ends)
    out = [disk / f"out{number}" for number in range(count)]
    inputs, outputs = (ends, out) if side == "inputs" else (files, ends)
    words = ["--inputs", *inputs, "--outputs", *outputs, "--memory", "8MiB", "--volume", array]
    run("flow", *words, "--report", disk / "run.json", *swelling(factor), timeout=300)
    for thread in threads:
        thread.join(20)
    written = gotten if side == "outputs" else [name.read_bytes() for name in out]
    assert written == expected(files, count, factor)
    report = json.loads((disk / "run.json").read_text())
    [step] = report["passes"]
    moved = sum(stream["read_bytes"] + stream["written_bytes"] for stream in step["streams"])
    # Only files are moved by the engine, in the runs of an n x 0 or 0 x m bowtie.
    assert moved == sum(name.stat().st_size for name in files)
    assert (step["inputs"], step["outputs"]) == ((0, count) if side == "inputs" else (count, 0))
    assert report["flow"]["alpha"] == (0 if side == "inputs" else 1)
    theory = simulated(step, report["flow"]["alpha"])
    assert step["switches"] <= 1.10 * theory, (step["switches"], theory)


@pytest.mark.parametrize("kind, count", [("pipe", 1), ("pipe", 6), ("socket", 6)])
def test_beside_merged_pipes_the_outputs_are_written_by_a1(kind, count, array, disk):
    """Pipes that are merged hold a few blocks, and all other memory is for the runs of outputs."""
    names = sorted_files(disk, [1_200_000 // count] * count)
    merged = run("merge", *names, *FIXED).stdout
    ends = [disk / f"end{number}" for number in range(count)]
    for end, name in zip(ends, names, strict=True):
        if kind == "pipe":
            os.mkfifo(end)
        threading.Thread(target=serve, args=(kind, "inputs", end, name, [], 0), daemon=True).start()
    wait_for_files(ends)
    out = [disk / f"out{number}" for number in range(4)]
    words = ["--inputs", *ends, "--merge-by", "0..10", "--format", "fixed:100", "--memory", "8MiB"]
    words += ["--volume", array, "--outputs", *out]
    told = run("flow", *words, "--report", disk / "run.json", *swelling(1), timeout=300)
    portions = [merged[at : at + 4096] for at in range(0, len(merged), 4096)]
    assert [name.read_bytes() for name in out] == [b"".join(portions[number::4]) for number in range(4)], told
    report = json.loads((disk / "run.json").read_text())
    [step] = report["passes"]
    assert report["records_in"] == len(merged) // 100 and report["flow"]["alpha"] == 0
    assert (step["inputs"], step["outputs"]) == (0, 4)
    buffers, written = step["buffers"], {"streams": [{"read_bytes": 0, "written_bytes": len(merged)}]}
    buffers["blocks"] -= 4 * count
    theory = simulated({**step, **written, "buffers": buffers}, 0)
    assert step["switches"] <= 1.10 * theory, (step["switches"], theory)


@pytest.mark.parametrize("outputs", [3, 0])
def test_files_that_are_merged_with_pipes_move_in_the_runs_of_their_own_number(outputs, array, disk):
    """Of ten inputs four are files. The pipes and sockets among them get a few blocks and cost no switch: the
    schedule is that of four files, and of the outputs that are files."""
    names = sorted_files(disk, [240_000] * 10)
    merged = run("merge", *names, *FIXED).stdout
    are_files = [0, 3, 4, 8]
    inputs = [name if number in are_files else disk / f"end{number}" for number, name in enumerate(names)]
    ends = [end for number, end in enumerate(inputs) if number not in are_files]
    for end, name in zip(inputs, names, strict=True):
        if end in ends:
            kind = ["pipe", "socket"][ends.index(end) % 2]
            if kind == "pipe":
                os.mkfifo(end)
            threading.Thread(target=serve, args=(kind, "inputs", end, name, [], 0), daemon=True).start()
    wait_for_files(ends)
    out = [disk / f"out{number}" for number in range(outputs)]
    words = ["--inputs", *inputs, "--merge-by", "0..10", "--format", "fixed:100", "--memory", "8MiB"]
    words += ["--volume", array, "--outputs", *(out or ["-"]), "--report", disk / "run.json"]
    done = run("flow", *words, *swelling(1), timeout=300)
    portions = [merged[at : at + 4096] for at in range(0, len(merged), 4096)]
    assert [name.read_bytes() for name in out] == [b"".join(portions[number::3]) for number in range(outputs)]
    assert out or done.stdout == merged
    report = json.loads((disk / "run.json").read_text())
    [step] = report["passes"]
    read, written = 4 * len(merged) // 10, len(merged) if outputs else 0
    alpha = report["flow"]["alpha"]
    assert alpha == pytest.approx(read / (read + written), abs=0.01)
    assert (step["inputs"], step["outputs"]) == (4, outputs)
    buffers, moved = step["buffers"], {"streams": [{"read_bytes": read, "written_bytes": written}]}
    buffers["blocks"] -= 4 * len(ends)
    theory = simulated({**step, **moved, "buffers": buffers}, alpha)
    assert step["switches"] <= 1.10 * theory, (step["switches"], theory)


def wait_for_files(paths):
    deadline = time.monotonic() + 10
    while not all(path.exists() for path in paths) and time.monotonic() < deadline:
        time.sleep(0.01)


def serve(kind, side, end, file, gotten, number):
    """Gives the bytes of a file to whoever reads `end`, or takes those written there."""
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            # The name appears when connections are accepted.
            listener.bind(f"{end}.new")
            listener.listen()
            os.rename(f"{end}.new", end)
            peer, _ = listener.accept()
        stream = peer.makefile("wb" if side == "inputs" else "rb")
        peer.close()
    else:
        stream = open(end, "wb" if side == "inputs" else "rb")  # noqa: SIM115
    with stream:
        if side == "inputs":
            stream.write(file.read_bytes())
        else:
            gotten[number] = stream.read()
