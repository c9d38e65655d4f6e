"""The Python package: Ctrl-C in sorts of Arrow batches acts within the time that the guide promises."""

import subprocess
import sys
import textwrap

import pytest
from support import assert_acts_within_200_ms, leftovers, seconds_until_stopped


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
    assert_acts_within_200_ms(lambda: seconds_until_stopped(script))


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


READS = {
    "pyarrow": "pyarrow.table(stream)",
    "reader": "pyarrow.RecordBatchReader.from_stream(stream).read_all()",
    "polars": "polars.DataFrame(stream)",
    "pandas": "pandas.DataFrame.from_arrow(stream)",
}


def script_of_reading(read, disk, handler=""):
    """Reads a stream of 15 million rows in one call, 0.2 seconds after whose start Ctrl-C comes."""
    return textwrap.dedent(f"""
        import os, signal, sys, threading, time
        import ascot, numpy, pandas, polars, pyarrow

        TEXT = pyarrow.array(["x" * 40] * 50_000)
        def batches():
            for number in range(300):
                keys = numpy.random.default_rng(number).integers(0, 1 << 63, 50_000, dtype="u8")
                yield pyarrow.record_batch([pyarrow.array(keys), TEXT], ["k", "s"])

        def stop():
            global at
            at = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)

        def read():
            return {read}

        told = []
        stream = ascot.sort(batches(), key="k", memory="32MiB", temp={str(disk)!r})
        end = stream._stream.end()
        {handler}
        threading.Timer(0.2, stop).start()
    """)


@pytest.mark.alone
@pytest.mark.parametrize("library", READS)
def test_ctrl_c_stops_a_stream_that_a_library_reads_in_one_call(library, disk):
    """The program's cleanup runs, as it does after any error of a library."""
    script = script_of_reading(READS[library], disk) + textwrap.dedent(f"""
        class Cleanup:
            def __enter__(self):
                pass

            def __exit__(self, kind, error, trace):
                told.append(1)

        try:
            with Cleanup():
                read()
            sys.exit("it was not interrupted")
        except Exception as error:
            took = time.monotonic() - at
            assert "KeyboardInterrupt" in str(error), error
        assert end.is_over and told == [1]
        print(took, os.listdir({str(disk)!r}))
    """)
    assert_acts_within_200_ms(lambda: seconds_until_stopped(script))


@pytest.mark.alone
def test_a_loop_over_the_reader_of_a_library_gets_the_interrupt(disk):
    script = script_of_reading("[*pyarrow.RecordBatchReader.from_stream(stream)]", disk) + textwrap.dedent(f"""
        reader = pyarrow.RecordBatchReader.from_stream(stream)
        try:
            for batch in reader:
                pass
            sys.exit("it was not interrupted")
        except KeyboardInterrupt:
            took = time.monotonic() - at
        reader.close()
        assert end.is_over
        print(took, os.listdir({str(disk)!r}))
    """)
    assert_acts_within_200_ms(lambda: seconds_until_stopped(script))


@pytest.mark.alone
def test_a_stream_goes_on_after_a_signal_whose_handler_raises_nothing(disk):
    script = script_of_reading(READS["pyarrow"], disk, "signal.signal(signal.SIGINT, lambda *_: told.append(1))")
    script += textwrap.dedent("""
        assert read().num_rows == 15_000_000
        assert told == [1] and end.is_over, told
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_an_uncaught_interrupt_of_a_library_that_reads_is_told(disk):
    """A script without a handler ends with the error of the library, which names the interrupt."""
    script = script_of_reading(READS["pyarrow"], disk) + "read()\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "KeyboardInterrupt" in done.stderr, done.stderr
    assert leftovers(disk) == []


def test_the_handler_of_a_signal_closes_the_stream_that_it_interrupts(disk):
    script = """
        import os, signal, sys, threading
        import ascot

        os.mkfifo(sys.argv[1])
        writer = os.open(sys.argv[1], os.O_RDWR)
        os.write(writer, b"a line" + bytes([10]))

        def read(inputs):
            signal.signal(signal.SIGUSR1, lambda *_: inputs[0].close())
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            return ((0, batch) for batch in inputs[0])

        try:
            ascot.flow([sys.argv[1]], [sys.argv[2]], read)
        except ascot.errors.InvalidRequest as error:
            assert "the batches are closed" in str(error), error
            print("closed")
    """
    command = [sys.executable, "-c", textwrap.dedent(script), disk / "pipe", disk / "out"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "closed\n", done.stderr
    assert leftovers(disk) == ["pipe"]
