"""The Python package: objects that several threads use at the same time, also without a global interpreter lock."""

import threading

import ascot
import numpy
import pyarrow
import pytest
from ascot import errors

THREADS = 8
RECORDS = 200_000


def at_once(act, threads=THREADS):
    """Calls `act` with the number of each thread, in all threads at once; returns the exceptions."""
    raised = []
    ready = threading.Barrier(threads)

    def run(number):
        ready.wait()
        try:
            act(number)
        except Exception as error:
            raised.append(error)

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return raised


def numbers(seed, rows=100_000):
    return pyarrow.table({"k": numpy.random.default_rng(seed).integers(0, 1 << 60, rows).astype("u8")})


@pytest.fixture(scope="module")
def made(module_disk):
    """A view of records, and the bytes of the sorted file."""
    records, view = module_disk / "records", module_disk / "view"
    ascot.gen(RECORDS, to=records)
    ascot.sort(records, view=view, layout=ascot.Fixed(100, key=slice(0, 10)), memory="8MiB")
    with ascot.view(view) as opened:
        return view, bytes(opened)


def test_sorts_run_at_once():
    session = ascot.Session(memory="256MiB")

    def sort(number):
        got = pyarrow.table(session.run(ascot.sort, numbers(number), key="k", memory="32MiB"))
        assert got["k"].to_numpy().tolist() == sorted(numbers(number)["k"].to_numpy().tolist())

    assert at_once(sort) == []


def test_each_batch_goes_to_one_thread(made):
    view, whole = made
    got = []
    with ascot.view(view) as opened:
        batches = opened.batches()
        assert at_once(lambda _: got.extend(pyarrow.record_batch(batch) for batch in batches)) == []
    records = [record for batch in got for record in batch["record"].to_pylist()]
    assert sorted(records) == [whole[at : at + 100] for at in range(0, len(whole), 100)]


def test_a_view_and_its_file_serve_all_threads(made):
    view, whole = made
    with ascot.view(view) as opened, opened.open() as file:

        def read(number):
            for at in numpy.random.default_rng(number).integers(0, RECORDS - 500, 20).tolist():
                assert bytes(opened[at : at + 500]) == whole[100 * at : 100 * (at + 500)]
                file.seek(100 * at)
                assert len(file.read(100)) == 100, "another thread may have moved the position"

        assert at_once(read) == []


def test_writers_take_records_of_all_threads(disk):
    with ascot.index.writer(disk / "run", key_bytes=8, value_bytes=8) as writer:

        def append(number):
            for step in range(20):
                rows = numpy.arange(1000) + 1000 * (20 * number + step)
                writer.append(rows.astype(">u8"), rows.astype(">u8"))

        assert at_once(append) == []
    with ascot.index.open(disk / "run") as index:

        def find(number):
            wanted = numpy.random.default_rng(number).integers(0, THREADS * 20_000, 50).tolist()
            found = index.get([key.to_bytes(8, "big") for key in wanted])
            assert [int.from_bytes(record.value, "big") for record in found] == wanted

        assert at_once(find) == []


def test_batches_closed_by_another_thread_say_so():
    for seed in range(20):
        stream = ascot.sort((numbers(10 * seed + part) for part in range(3)), key="k", memory="32MiB")

        def use(number, stream=stream):
            if number == 0:
                stream.close()
            else:
                for _ in stream:
                    pass

        for error in at_once(use, threads=3):
            assert isinstance(error, errors.InvalidRequest), error
            assert str(error).startswith("the batches are closed")
