"""The Python package: Ctrl-C in sorts of Arrow batches acts within the time that the guide promises."""

import subprocess
import sys
import textwrap

import pytest
from support import assert_acts_within_200_ms, leftovers


@pytest.mark.alone
@pytest.mark.parametrize("moment", ["generator", "sorting", "consuming"])
def test_ctrl_c_stops_within_200_ms(moment, disk):
    script = f"""
        import os, signal, sys, threading, time
        import ascot, numpy, pyarrow

        TEXT = pyarrow.array(["x" * 40] * 50_000)
        def batches():
            for number in range(1 << 40):
                if number == 20:
                    if {moment!r} == "generator":
                        threading.Timer(0.1, stop).start()
                        time.sleep(100)
                    elif {moment!r} == "sorting":
                        threading.Timer(0.3, stop).start()
                    else:
                        return
                keys = numpy.random.default_rng(number).integers(0, 1 << 63, 50_000, dtype="u8")
                yield pyarrow.record_batch([pyarrow.array(keys), TEXT], ["k", "s"])

        def stop():
            global at
            at = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)

        try:
            stream = ascot.sort(batches(), key="k", memory="16MiB", temp={str(disk)!r})
            threading.Timer(0.1, stop).start()
            for batch in stream:
                time.sleep(0.02)
            sys.exit("it was not interrupted")
        except KeyboardInterrupt:
            took = time.monotonic() - at
            del stream
        except NameError:
            pass
        left = os.listdir({str(disk)!r})
        took = max(took, time.monotonic() - at)
        print(took, left)
    """.replace("            del stream\n", "            stream = None\n")
    command = [sys.executable, "-c", textwrap.dedent(script)]

    def attempt():
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        took, left = done.stdout.split(maxsplit=1)
        assert left.strip() == "[]"
        return float(took)

    assert_acts_within_200_ms(attempt)


@pytest.mark.alone
def test_ctrl_c_does_not_wait_for_a_foreign_stream(disk):
    """The stream computes a batch for 100 seconds, on a thread of the job."""
    script = f"""
        import os, signal, threading, time
        import ascot, pyarrow

        def batches():
            yield pyarrow.record_batch({{"k": [1]}})
            threading.Timer(0.1, stop).start()
            time.sleep(100)

        def stop():
            global at
            at = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)

        class Foreign:
            def __arrow_c_stream__(self, requested_schema=None):
                schema = pyarrow.schema([("k", "int64")])
                return pyarrow.RecordBatchReader.from_batches(schema, batches()).__arrow_c_stream__()

        try:
            ascot.sort(Foreign(), key="k", temp={str(disk)!r})
        except KeyboardInterrupt:
            print(time.monotonic() - at, flush=True)
            os._exit(0)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]

    def attempt():
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert leftovers(disk) == []
        return float(done.stdout)

    assert_acts_within_200_ms(attempt)
