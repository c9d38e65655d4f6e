"""`ascot lab net` sends all to all between peers that share a token, and names every peer that is at fault."""

import json
import signal
import socket
import time

import pytest
from support import clean_environment, run, start

QUICK = ("--bytes", "1MiB", "--block", "16KiB")
SECRET = "a secret that the peers of these tests share"


def addresses(count):
    """Free addresses of this machine."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [f"127.0.0.1:{held.getsockname()[1]}" for held in sockets]
    for held in sockets:
        held.close()
    return found


@pytest.fixture
def token(tmp_path):
    path = tmp_path / "token"
    path.write_text(SECRET + "\n")
    path.chmod(0o600)
    return path


def peer(names, rank, token, *flags):
    """A peer of a list, as a process."""
    return start("lab", "net", "--listen", names[rank], "--peers", ",".join(names), "--token-file", token, *flags)


def ends(*processes, timeout=40):
    """(exit status, standard output, standard error) of processes that must end by themselves."""
    try:
        found = []
        for process in processes:
            out, told = process.communicate(timeout=timeout)
            found.append((process.returncode, out.decode(), told.decode()))
        return found
    finally:
        for process in processes:
            process.kill()


def test_local_peers_are_measured_with_1_to_4_connections():
    done = run("lab", "net", "--local", "3", *QUICK, "--connections", "1,2,3,4", "--sweep", "--json")
    report = json.loads(done.stdout)
    rounds = [(found["peers"], found["connections"]) for found in report["rounds"]]
    assert rounds == [(peers, connections) for peers in (2, 3) for connections in (1, 2, 3, 4)]
    for found in report["rounds"]:
        rates = found["rates"]
        values = [member["bytes_per_s"] for member in rates["members"]]
        assert len(values) == found["peers"] and min(values) > 0
        mean = sum(values) / len(values)
        assert rates["mean"] == pytest.approx(mean)
        variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
        assert rates["deviation"] == pytest.approx(variance**0.5)
        assert rates["slowest"]["bytes_per_s"] == min(values)
    assert report["local"] and report["model"]["own_cost"]
    assert "about" in done.stderr


def test_the_model_extrapolates_what_was_measured():
    """1/R(n) = 1/R(N) + c (n - N) with one connection, and the published c."""
    report = json.loads(run("lab", "net", "--local", "2", *QUICK, "--json").stdout)
    measured = report["rounds"][0]["rates"]["mean"]
    model = report["model"]
    cost = model["model"]["peer_seconds_per_byte"]
    assert not model["own_cost"] and 1.0e-12 < cost < 1.1e-12
    for rate in model["rates"]:
        if 1 / measured > cost:
            wanted = 1 / (1 / measured + cost * (rate["peers"] - 2))
            assert rate["bytes_per_s"] == pytest.approx(wanted)


def test_the_text_names_the_slowest_peer():
    told = run("lab", "net", "--local", "2", *QUICK).stdout.decode()
    for words in ("MB/s of a peer", "deviation", "slowest", "127.0.0.1:", "by the model", "share one machine"):
        assert words in told, told


def test_every_peer_shows_the_result_of_the_first(token, tmp_path):
    names = addresses(3)
    report = tmp_path / "report.json"
    peers = [peer(names, rank, token, *QUICK, "--connections", "2", "--json") for rank in (1, 2)]
    first = peer(names, 0, token, *QUICK, "--connections", "2", "--json", "--report", report)
    results = ends(first, *peers)
    assert [status for status, _, _ in results] == [0, 0, 0], results
    told = [json.loads(out) for _, out, _ in results]
    assert told[0] == json.loads(report.read_text())
    for other in told[1:]:
        # A number that crosses the network as text may differ in its last bit.
        assert other.keys() == told[0].keys() and other["peers"] == told[0]["peers"]
        assert other["seconds"] == pytest.approx(told[0]["seconds"])
        for mine, firsts in zip(other["rounds"], told[0]["rounds"], strict=True):
            rates = [[member["bytes_per_s"] for member in found["rates"]["members"]] for found in (mine, firsts)]
            assert rates[0] == pytest.approx(rates[1])
    assert [member["name"] for member in told[0]["rounds"][0]["rates"]["members"]] == names
    assert not told[0]["local"]


def test_the_token_may_be_in_a_variable(token):
    names = addresses(2)
    words = ("lab", "net", "--listen", names[1], "--peers", ",".join(names), *QUICK)
    by_variable = start(*words, env=clean_environment(ASCOT_LAB_TOKEN=SECRET))
    results = ends(peer(names, 0, token, *QUICK), by_variable)
    assert [status for status, _, _ in results] == [0, 0], results


def test_another_token_is_an_error_on_both_sides_and_no_data_is_sent(token, tmp_path):
    names = addresses(2)
    other = tmp_path / "other"
    other.write_text("a secret that only one of the peers has\n")
    results = ends(peer(names, 0, token, *QUICK), peer(names, 1, other, *QUICK))
    for (status, out, told), name in zip(results, reversed(names), strict=True):
        assert status == 2 and out == "", told
        assert "the tokens differ" in told and name in told, told
        assert "all peers are there" not in told
        assert SECRET not in told and "only one of the peers" not in told


def test_the_token_does_not_cross_the_network(token):
    """A listener that is no peer sees a hello and a proof, but not the token."""
    names = addresses(2)
    host, port = names[0].split(":")
    with socket.create_server((host, int(port))) as listener:
        process = peer(names, 1, token, *QUICK, "--wait", "2")
        connection, _ = listener.accept()
        connection.settimeout(10)
        hello = connection.recv(64, socket.MSG_WAITALL)
        assert hello[:8] == b"ascotnet" and len(hello) == 64
        connection.sendall(hello[:10] + bytes([0, 0]) + bytes(4) + bytes(range(32)))
        proof = connection.recv(48, socket.MSG_WAITALL)
        assert len(proof) == 48 and SECRET.encode() not in hello + proof
        # Its own proof, sent back, does not make the listener a peer.
        connection.sendall(proof)
        [(status, _, told)] = ends(process)
    assert status == 2 and "the tokens differ" in told, told


@pytest.mark.parametrize("secret", ["", "short", None])
def test_tokens_that_are_none_are_refused(tmp_path, secret):
    names = addresses(2)
    words = ["lab", "net", "--listen", names[0], "--peers", ",".join(names)]
    if secret is not None:
        (tmp_path / "token").write_text(secret)
        words += ["--token-file", tmp_path / "token"]
    told = run(*words, expect=2).stderr
    assert "token" in told and "/dev/urandom" in told, told


def test_missing_peers_are_named(token):
    names = addresses(4)
    began = time.monotonic()
    results = ends(*[peer(names, rank, token, *QUICK, "--wait", "2") for rank in (0, 2)])
    assert time.monotonic() - began < 20
    for status, _, told in results:
        assert status == 2 and "missing after 2 s" in told, told
        assert f"{names[1]}, {names[3]}" in told, told
        assert f"waiting for {names[1]}" in told, told
    [(status, _, told)] = ends(peer(names, 3, token, *QUICK, "--wait", "1"))
    assert status == 2 and "missing after 1 s" in told and names[0] in told


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.long), 2])
@pytest.mark.parametrize("name", [signal.SIGKILL, signal.SIGINT])
def test_a_peer_that_ends_in_the_middle_is_named(token, victim, name):
    names = addresses(3)
    processes = [peer(names, rank, token, "--bytes", "1TiB") for rank in range(3)]
    try:
        # All say when everybody is there.
        for process in processes:
            while b"all peers are there" not in (line := process.stderr.readline()):
                assert line, "a peer ended before"
        time.sleep(0.3)
        processes[victim].send_signal(name)
        began = time.monotonic()
        results = ends(*processes, timeout=30)
        assert time.monotonic() - began < 12
    finally:
        for process in processes:
            process.kill()
    assert results[victim][0] == -name
    for rank, (status, out, told) in enumerate(results):
        if rank != victim:
            assert status == 2 and out == "", told
            wanted = "died" if name == signal.SIGKILL else "was interrupted"
            assert f"{names[victim]} {wanted}" in told, told


def test_local_peers_end_with_the_signal():
    process = start("lab", "net", "--local", "3", "--bytes", "1TiB")
    assert b"all peers are there" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    [(status, out, _)] = ends(process, timeout=15)
    assert status == -signal.SIGINT and out == ""


def test_other_parameters_are_named(token):
    names = addresses(2)
    for flags, told in (
        (["--bytes", "2MiB"], "--bytes 2097152b instead of 1048576b"),
        (["--connections", "2"], "--connections 2 instead of 1"),
        (["--sweep"], "--sweep given instead of not given"),
    ):
        for status, _, error in ends(peer(names, 0, token, *QUICK), peer(names, 1, token, *QUICK, *flags)):
            assert status == 2 and told in error and f"{names[1]} has other parameters than {names[0]}" in error, (
                error
            )


def test_a_port_in_use_is_named(token):
    names = addresses(2)
    host, port = names[0].split(":")
    with socket.create_server((host, int(port))):
        [(status, _, told)] = ends(peer(names, 0, token, *QUICK))
    assert status == 2 and names[0] in told and "another program listens there" in told


def test_it_listens_only_where_it_is_told(token):
    names = addresses(2)
    process = peer(names, 0, token, *QUICK, "--wait", "30")
    try:
        assert b"waiting" in process.stderr.readline()
        port = int(names[0].split(":")[1])
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.2", port), timeout=2).close()
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    finally:
        process.kill()
        process.communicate()


def test_a_stranger_does_not_disturb_a_run(token):
    names = addresses(2)
    first = peer(names, 0, token, *QUICK)
    host, port = names[0].split(":")
    strangers = []
    while len(strangers) < 3:
        try:
            stranger = socket.create_connection((host, int(port)), timeout=5)
        except OSError:
            time.sleep(0.05)
            continue
        stranger.sendall(b"\xff" * 200 if strangers else b"GET / HTTP/1.1\r\n\r\n")
        strangers.append(stranger)
    results = ends(first, peer(names, 1, token, *QUICK))
    assert [status for status, _, _ in results] == [0, 0], results
    for stranger in strangers:
        stranger.close()


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--local", "1"], "2 to 16"),
        (["--local", "1000"], "2 to 16"),
        (["--local", "2", "--connections", "5"], "1 to 4"),
        (["--local", "2", "--block", "1b"], "--block"),
        (["--local", "2", "--bytes", "1KiB"], "too little"),
        (["--local", "2", "--memory", "64KiB"], "does not hold the buffers"),
        (["--local", "2", "--wait", "long"], "--wait"),
        (["--local", "2", "--listen", "127.0.0.1:1"], "--local"),
        (["--listen", "127.0.0.1:1"], "--peers"),
        ([], "which peers"),
    ],
)
def test_impossible_values_are_refused(flags, told):
    assert told in run("lab", "net", *flags, expect=2).stderr


def test_a_peer_must_be_in_its_list(token):
    names = addresses(2)
    words = ("lab", "net", "--listen", "127.0.0.1:9", "--peers", ",".join(names), "--token-file", token)
    told = run(*words, expect=2).stderr
    assert "127.0.0.1:9 is not in the list" in told and "--name" in told
