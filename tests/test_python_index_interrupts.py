"""The Python package: Ctrl-C in the writer of an index acts within the time that the guide promises."""

import subprocess
import sys
import textwrap

import ascot
import pytest
from ascot import errors
from support import assert_acts_within_200_ms

# The buffer of this writer has 256 MiB, and its 6 million records are sorted and written in far more than 200 ms.
SCRIPT = """
    import os, pathlib, signal, sys, threading, time
    import ascot, numpy

    directory, mode, call = sys.argv[1:]
    records = 20_000_000 if call == "append" else 6_000_000
    keys = numpy.random.default_rng(1).integers(0, 1 << 63, records, dtype="u8")
    values = numpy.zeros((records, 8), dtype="u1")
    session = ascot.Session(memory="2GiB", jobs=1)

    def stop():
        global at
        while "writer\\n" not in [path.read_text() for path in pathlib.Path("/proc/self/task").glob("*/comm")]:
            time.sleep(0.005)
        time.sleep(0.05)
        at = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)

    try:
        with session.run(ascot.index.writer, directory, mode=mode, key_bytes=8, value_bytes=8) as writer:
            if call != "append":
                writer.append(keys, values)
            threading.Thread(target=stop, daemon=True).start()
            if call == "append":
                writer.append(keys, values)
            else:
                getattr(writer, call)()
        sys.exit("it was not interrupted")
    except KeyboardInterrupt:
        took = time.monotonic() - at
    until = time.monotonic() + 20
    while session.free < session.memory and time.monotonic() < until:
        time.sleep(0.01)
    assert session.free == session.memory
    try:
        writer.append(keys[:1], values[:1])
        sys.exit("it was not closed")
    except ascot.errors.InvalidRequest as error:
        assert "the writer is closed" in str(error), error
    del writer
    print(took)
"""


@pytest.mark.alone
@pytest.mark.parametrize("mode", ["create", "append"])
@pytest.mark.parametrize("call", ["append", "end_epoch", "close"])
def test_ctrl_c_closes_a_writer_within_200_ms(call, mode, disk):
    path = disk / "run.dir"

    def attempt():
        if mode == "append" and not path.exists():
            with ascot.index.writer(path, key_bytes=8, value_bytes=8) as writer:
                writer.append([bytes(8)], [bytes(8)])
        command = [sys.executable, "-W", "error", "-c", textwrap.dedent(SCRIPT), path, mode, call]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and done.stderr == "", done.stderr
        if mode == "create":
            assert not path.exists()
        else:
            with ascot.index.open(path) as index:
                assert index.epochs == 1 and len(list(index.range())) == 1
        return float(done.stdout)

    assert_acts_within_200_ms(attempt)


def test_a_writer_goes_on_after_a_signal_whose_handler_raises_nothing(disk):
    script = """
        import os, signal, sys, threading
        import ascot, numpy

        seen = []
        signal.signal(signal.SIGINT, lambda *_: seen.append(1))
        keys = numpy.arange(3_000_000, dtype="u8")
        with ascot.index.writer(sys.argv[1], key_bytes=8, value_bytes=0) as writer:
            threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
            assert writer.append(keys, [b""] * len(keys)) == len(keys)
            assert writer.end_epoch() == 1
        assert seen == [1]
    """
    command = [sys.executable, "-c", textwrap.dedent(script), disk / "run.dir"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert sum(1 for _ in ascot.index.open(disk / "run.dir").range()) == 3_000_000


def test_a_closed_writer_refuses_every_call(disk):
    writer = ascot.index.writer(disk / "run.dir", key_bytes=1)
    writer.append([b"a"], [b"1"])
    writer.close()
    for call in (lambda: writer.append([b"a"], [b"1"]), writer.end_epoch, lambda: writer.epochs):
        with pytest.raises(errors.InvalidRequest, match="the writer is closed"):
            call()
    writer.close()
    assert ascot.index.open(disk / "run.dir").epochs == 1


def test_a_wrong_element_appends_nothing(disk):
    """Of many records, none is appended if one is wrong, wherever it is."""
    many = [number.to_bytes(4, "big") for number in range(100_000)]
    with ascot.index.writer(disk / "run.dir", key_bytes=4) as writer:
        for wrong, kind in ((b"12345", ascot.SchemaMismatch), ("text", TypeError), ([1, 2, 3, 4], TypeError)):
            for place in (0, 70_000, len(many)):
                keys = [*many[:place], wrong, *many[place:]]
                with pytest.raises(kind, match="a key of 5 bytes" if kind is not TypeError else "element of keys"):
                    writer.append(keys, [b""] * len(keys))
        assert writer.append([bytearray(b"abcd"), memoryview(b"efgh")], [b"1", b"2"]) == 2
        assert writer.append([], []) == 0
    with ascot.index.open(disk / "run.dir") as index:
        assert [(one.key, one.value) for one in index.range()] == [(b"abcd", b"1"), (b"efgh", b"2")]
        with pytest.raises(TypeError, match="an element of keys is bytes"):
            index.get([[1, 2, 3, 4]])


@pytest.mark.alone
@pytest.mark.parametrize("call", ["append", "get", "epochs"])
def test_ctrl_c_does_not_wait_for_long_lists_or_other_threads(call, disk):
    script = """
        import os, signal, sys, threading, time
        import ascot

        def stop():
            global at
            time.sleep(0.02)
            at = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)

        writer = ascot.index.writer(sys.argv[1], key_bytes=8, value_bytes=8, memory="2GiB")
        if sys.argv[2] == "epochs":
            import numpy
            keys = numpy.random.default_rng(1).integers(0, 1 << 63, 6_000_000, dtype="u8")
            writer.append(keys, keys)
            other = threading.Thread(target=writer.end_epoch)
            other.start()
            time.sleep(0.02)
            at = time.monotonic()
            writer.epochs
            took = time.monotonic() - at
            other.join()
            assert writer.epochs == 1
        else:
            keys = [bytes(8)] * 12_000_000
            call = writer.append
            if sys.argv[2] == "get":
                writer.close()
                index = ascot.index.open(sys.argv[1])
                call = lambda keys, _: index.get(keys)
            threading.Thread(target=stop).start()
            try:
                call(keys, keys)
                sys.exit("it was not interrupted")
            except KeyboardInterrupt:
                took = time.monotonic() - at
        print(took)
        os._exit(0)
    """

    def attempt():
        command = [sys.executable, "-c", textwrap.dedent(script).replace("print(took)", "print(took, flush=True)")]
        done = subprocess.run([*command, disk / "run.dir", call], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        subprocess.run(["rm", "-rf", disk / "run.dir"], check=True)
        return float(done.stdout)

    assert_acts_within_200_ms(attempt)


def test_a_writer_whose_close_fails_is_closed(disk):
    """Another writer may go on with the directory, and the memory of the session is back."""
    script = """
        import resource, signal, sys
        import ascot

        session = ascot.Session(memory="128MiB")
        writer = session.run(ascot.index.writer, sys.argv[1], mode="append", key_bytes=8)
        writer.append([number.to_bytes(8, "big") for number in range(20_000)], [bytes(100)] * 20_000)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, limits[1]))
        try:
            writer.close()
            sys.exit("it was written")
        except ascot.errors.FileError:
            pass
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert session.free == session.memory
        with ascot.index.writer(sys.argv[1], mode="append") as other:
            other.append([bytes(8)], [b"again"])
        writer.close()
        assert ascot.index.open(sys.argv[1]).epochs == 2
    """
    with ascot.index.writer(disk / "run.dir", key_bytes=8) as writer:
        writer.append([bytes(8)], [b"once"])
    command = [sys.executable, "-c", textwrap.dedent(script), disk / "run.dir"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
