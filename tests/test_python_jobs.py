"""The Python package: jobs on files give the bytes of the command; progress, interrupts, errors."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from itertools import pairwise

import ascot
import numpy
import pytest
from ascot import errors
from support import (
    FIXED,
    job_killed_after_moving,
    leftovers,
    limit_file_size,
    random_records,
    run,
    small_disk,
    sorted_records,
)

MIB = 1 << 20
RECORDS = ascot.Fixed(100, key=slice(0, 10))


@pytest.fixture
def records(disk):
    path = disk / "records"
    path.write_bytes(random_records(3000))
    return path


def same_as_command(python, *command, disk):
    """Whether a file that the package wrote has the bytes that the command writes."""
    run(*command, "-o", disk / "by-command")
    return python.read_bytes() == (disk / "by-command").read_bytes()


def test_fixed_records_sort_as_in_the_command(records, disk):
    out = disk / "sorted"
    job = ascot.sort(records, to=out, layout=RECORDS)
    assert same_as_command(out, "sort", records, *FIXED, disk=disk)
    report = job.report
    assert (report.verb, report.records_in, report.bytes_out) == ("sorted", 3000, 300_000)
    assert job.outputs == (str(out),) and report.data["checksum"] == report.checksum
    assert str(report) in str(job) and "3,000 records" in repr(job)
    assert sum(one.written_bytes for one in report.passes) == 300_000
    assert "<table>" in job._repr_html_() and "3,000 records" in job._repr_html_()


def test_a_sort_larger_than_memory_has_passes_and_a_plan(disk):
    source, out = disk / "large", disk / "sorted"
    assert ascot.gen(600_000, to=source) == 60_000_000
    settings = {"memory": "16MiB", "method": "merge", "temp": disk}
    job = ascot.sort([source], to=out, layout="fixed:100", key=slice(0, 10), **settings)
    assert [one.name for one in job.report.passes][-1] == "merge"
    assert job.report.peak_disk_bytes > 0 and job.report.memory_bytes == 16 * MIB
    assert job.plan.chosen.method == "merge" and job.plan.chosen.summary in str(job.plan)
    checked = ascot.check(out, layout=RECORDS)
    assert checked.is_sorted and checked.records == 600_000
    assert checked.checksum == ascot.check(source, layout=RECORDS).checksum
    assert leftovers(disk) == ["large", "sorted"]


LINES = "b 10 x\na 9 y\nc 100 x\na 9 y\n"


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({}, []),
        ({"reverse": True}, ["-r"]),
        ({"unique": True}, ["-u"]),
        ({"top": 2}, ["--top", "2"]),
        ({"key": 2, "layout": ascot.Lines(order="n")}, ["-k2,2", "-n"]),
        ({"key": ["3,3", ascot.desc(1)], "stable": True}, ["-k3,3", "-k1,1r", "-s"]),
        ({"key": "2,2nr"}, ["-k2,2nr"]),
        ({"layout": ascot.Lines(separator=" ", key=3)}, ["-t", " ", "-k3,3"]),
        ({"layout": ascot.Lines(header=True)}, ["--header"]),
    ],
)
def test_lines_sort_as_in_the_command(options, flags, disk):
    source, out = disk / "lines", disk / "sorted"
    source.write_text(LINES)
    ascot.sort(source, to=out, **options)
    assert same_as_command(out, "sort", source, *flags, disk=disk)


CSV = 'tenant,ts,what\nblue,3,"login, again"\nred,1,start\nblue,12,stop\nblue,-,"a\nb"\n'


@pytest.mark.parametrize(
    ("layout", "key", "flags"),
    [
        (None, ["tenant", ascot.desc("ts")], ["--key", "tenant,-ts"]),
        (ascot.Csv(nulls=["-"]), ascot.column("ts", type="number", nulls="first"),
         ["--csv", "--null=-", "--key", "ts:number:nulls-first"]),
        (ascot.Csv(), ascot.column(3, type="text"), ["--csv", "--header", "--key", "#3:text"]),
    ],
)  # fmt: skip
def test_csv_sorts_by_columns(layout, key, flags, disk):
    source, out = disk / "events.csv", disk / "sorted"
    source.write_text(CSV)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ascot.AscotWarning)
        ascot.sort(str(source), to=out, layout=layout, key=key)
    assert same_as_command(out, "sort", source, *flags, disk=disk)


def test_values_that_are_not_of_their_type_warn_or_fail(disk):
    source = disk / "events.csv"
    source.write_text("a,b\n1,x\nten,y\n")
    key = ascot.column("a", type="number")
    with pytest.warns(ascot.AscotWarning, match="1 value is not of that type, the first 'ten' in row 3") as told:
        ascot.sort(source, to=disk / "out", key=key)
    assert told[0].filename == __file__
    with pytest.raises(ascot.SchemaMismatch, match="'ten'") as failed:
        ascot.sort(source, to=disk / "out", key=key, layout=ascot.Csv(strict=True))
    assert (failed.value.file, failed.value.record) == (str(source), 3)


def test_numbers_sort_by_value(disk):
    source, out = disk / "numbers", disk / "sorted"
    numbers = numpy.random.default_rng(1).integers(-(2**62), 2**62, 5000)
    numbers.tofile(source)
    ascot.sort(numpy.memmap(source, "i8", "r"), to=out, layout=ascot.Integers("i64-le"), reverse=True)
    assert (numpy.fromfile(out, "i8") == numpy.sort(numbers)[::-1]).all()
    numbers.astype(">f8").tofile(source)
    ascot.sort(source, to=out, layout=ascot.Floats("f64-be"))
    assert (numpy.diff(numpy.fromfile(out, ">f8")) >= 0).all()


def test_a_slice_from_the_end_is_a_key(records, disk):
    ascot.sort(records, to=disk / "sorted", layout=ascot.Fixed(100, key=[ascot.desc(slice(-4, None)), slice(0, 2)]))
    flags = ["--format", "fixed:100", "--key", "96..100:desc,0..2"]
    assert same_as_command(disk / "sorted", "sort", records, *flags, disk=disk)


def test_parts_merge_split_and_reshape(disk):
    for name, first in (("odd", 1), ("even", 2)):
        (disk / name).write_text("".join(f"{number:03}\n" for number in range(first, 1000, 2)))
    both = [disk / "odd", disk / "even"]
    merged = ascot.merge(both, to=disk / "all")
    lines = (disk / "all").read_text().split()
    assert lines == [f"{number:03}" for number in range(1, 1000)] and merged.report.verb == "merged"
    ascot.split(disk / "all", to=disk / "tenth-{:02}", parts=10)
    tenths = sorted(disk.glob("tenth-*"))
    assert len(tenths) == 10 and b"".join(path.read_bytes() for path in tenths) == (disk / "all").read_bytes()
    ascot.split(disk / "all", to=disk / "hash-{}", parts=3, by="hash", key=1)
    found = [path.read_text() for path in sorted(disk.glob("hash-*"))]
    assert sorted("".join(found).split()) == lines and all(found)
    ascot.reshape(str(disk / "tenth-*"), to=disk / "third-{}", parts=3)
    assert [path.read_text().count("\n") for path in sorted(disk.glob("third-*"))] == [333] * 3
    ascot.sort(both, to=disk / "range-{}", parts=2, reverse=True)
    assert (disk / "range-0").read_text().split()[0] == "999"


def test_a_merge_names_the_record_out_of_order(disk):
    (disk / "a").write_text("1\n3\n2\n")
    with pytest.raises(ascot.NotSorted, match="not sorted") as failed:
        ascot.merge([disk / "a", disk / "a"], to=disk / "out")
    error = failed.value
    assert isinstance(error, ValueError) and (error.file, error.record, error.offset) == (str(disk / "a"), 3, 4)
    assert leftovers(disk) == ["a"]
    assert vars(pickle.loads(pickle.dumps(error))) == vars(error)


def test_a_check_finds_the_first_disorder(disk):
    (disk / "a").write_text("1\n3\n2\n3\n")
    checked = ascot.check(disk / "a")
    assert not checked.is_sorted and checked.records == 4 and checked.bytes == 8
    assert (checked.disorder.file, checked.disorder.record) == (str(disk / "a"), 2)
    assert ascot.check(disk / "a", reverse=True).disorder.record == 1


def test_a_plan_reads_a_sample_and_writes_nothing(records, disk):
    plan = ascot.plan.sort(records, to=disk / "out", layout=RECORDS, memory="64MiB")
    assert plan.chosen.method == "in memory" and plan.seconds > 0
    assert "memory 64 MiB" in str(plan) and plan.data["plan"]["memory_bytes"] == 64 * MIB
    assert "<table>" in plan._repr_html_()
    parts = ascot.plan.split(records, to=disk / "part-{}", parts=4, key=slice(0, 10), layout="fixed:100")
    assert "4 files" in str(parts)
    assert leftovers(disk) == ["records"]


# ---------------------------------------------------------------- progress and interrupts


def test_progress_is_reported_while_other_threads_run(disk):
    source = disk / "large"
    ascot.gen(1_500_000, to=source)
    seen, ticks, done = [], [], threading.Event()

    def tick():
        while not done.wait(0.01):
            ticks.append(time.monotonic())

    other = threading.Thread(target=tick)
    other.start()
    ascot.sort(source, to=disk / "out", layout=RECORDS, memory="16MiB", progress=seen.append)
    done.set()
    other.join()
    assert seen and all(isinstance(one, ascot.Progress) for one in seen)
    assert {one.phase for one in seen} <= {"form runs", "merge", "distribute", "sort parts", "sort"}, seen
    assert all(0 <= one.share() <= 1 for one in seen if one.share() is not None)
    assert len(ticks) > 5 and max(later - earlier for earlier, later in pairwise(ticks)) < 1


def test_an_exception_of_the_callback_stops_the_job(disk):
    source = disk / "large"
    ascot.gen(1_500_000, to=source)

    def fail(progress):
        raise LookupError(progress.phase)

    with pytest.raises(LookupError):
        ascot.sort(source, to=disk / "out", layout=RECORDS, memory="16MiB", progress=fail)
    assert leftovers(disk) == ["large"]


INTERRUPTED = """
    import sys, time, ascot
    seen = []
    def tell(progress):
        if not seen:
            print("runs", flush=True)
        seen.append(progress)
    try:
        ascot.sort(sys.argv[1], to=sys.argv[2], layout=ascot.Fixed(100), memory="16MiB", progress=tell)
    except KeyboardInterrupt:
        print("interrupted", time.time(), flush=True)
        ascot.sort(sys.argv[3], to=sys.argv[2])
        print("sorted", flush=True)
"""


def python(script, *arguments, **options):
    command = [sys.executable, "-X", "dev", "-c", textwrap.dedent(script), *map(os.fspath, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


@pytest.mark.alone
@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_ctrl_c_stops_a_job_at_once_and_leaves_nothing(kind, disk):
    (disk / "small").write_text("b\na\n")
    large, out = disk / "large", disk / "out"
    ascot.gen(3_000_000, to=large)
    source = large
    if kind == "pipe":
        source = disk / "pipe"
        os.mkfifo(source)
    process = python(INTERRUPTED, source, out, disk / "small")
    if kind == "pipe":
        # The writer of the pipe stays open and silent, so that the job waits for it.
        writer = os.open(source, os.O_WRONLY)
        os.write(writer, b"x" * 1000)
    assert process.stdout.readline() == "runs\n", process.communicate()
    began = time.time()
    process.send_signal(signal.SIGINT)
    word, when = process.stdout.readline().split()
    assert word == "interrupted" and float(when) - began < 0.2
    assert process.stdout.readline() == "sorted\n", process.communicate()
    assert process.communicate(timeout=30)[1] == "" and process.returncode == 0
    assert out.read_text() == "a\nb\n"
    assert leftovers(disk) == sorted({"large", "out", source.name, "small"})


OTHERS = {
    "merge": 'ascot.merge(["pipe"], to="out", layout=LAYOUT, progress=tell)',
    "split": 'ascot.split("pipe", to="part-{}", parts=2, by="hash", layout=LAYOUT, progress=tell)',
    "reshape": 'ascot.reshape(["pipe"], to="part-{}", parts=2, by="hash", layout=LAYOUT, progress=tell)',
    "view": 'ascot.sort("pipe", view="view", layout=LAYOUT, progress=tell)',
    "check": 'ascot.check("pipe", layout=LAYOUT, progress=tell)',
    "gen": 'ascot.gen(1 << 26, to="out", progress=tell)',
}


@pytest.mark.alone
@pytest.mark.parametrize("job", OTHERS)
def test_ctrl_c_stops_every_job(job, disk):
    script = f"""
        import time, ascot
        LAYOUT = ascot.Fixed(100, key=slice(0, 10))
        told = []
        def tell(progress):
            if not told:
                told.append(print("runs", flush=True))
        try:
            {OTHERS[job]}
        except KeyboardInterrupt:
            print("interrupted", time.time(), flush=True)
    """
    os.mkfifo(disk / "pipe")
    process = python(script, cwd=disk)
    if job != "gen":
        # The writer stays open and silent, so that the job waits for it.
        writer = os.open(disk / "pipe", os.O_WRONLY)
        os.write(writer, sorted_records(random_records(100)))
    assert process.stdout.readline() == "runs\n", process.communicate()
    time.sleep(0.1)
    began = time.time()
    process.send_signal(signal.SIGINT)
    word, when = process.communicate(timeout=30)[0].split()
    assert word == "interrupted" and float(when) - began < 0.2 and process.returncode == 0
    assert leftovers(disk) == ["pipe"]


def test_a_killed_job_is_resumed(disk):
    source, out = disk / "large", disk / "out"
    ascot.gen(1_500_000, to=source)
    words = ["sort", source, *FIXED, "--memory", "16MiB", "--method", "merge", "--temp", disk, "-o", out]
    _, kept = job_killed_after_moving(words, 60e6, disk)
    script = """
        import sys, ascot
        try:
            ascot.resume(sys.argv[1])
        except ascot.Resumable as error:
            print(error.directory, isinstance(error, OSError), "the job is kept" in str(error))
            print(type(error.__cause__).__name__, error.__cause__.errno)
    """
    process = python(script, kept, preexec_fn=limit_file_size(MIB))
    assert process.communicate() == (f"{kept} True True\nFileError 27\n", "")
    job = ascot.resume(kept, memory="32MiB")
    assert job.report.data["resumed"] and job.outputs == (str(out),)
    assert ascot.check(out, layout=RECORDS).is_sorted
    assert leftovers(disk) == ["large", "out"]
    with pytest.raises(ascot.AscotError):
        ascot.resume(kept)


@pytest.mark.parametrize("kind", ["parts", "view"])
def test_a_resumed_job_names_its_parts_or_its_view(kind, disk):
    ascot.gen(1_500_000, to=disk / "large")
    parts = ["--method", "merge", "--temp", disk, "--parts", "3", "-o", disk / "out-{}"]
    words = ["sort", disk / "large", *FIXED, "--memory", "16MiB"]
    words += parts if kind == "parts" else ["--view", disk / "out"]
    _, kept = job_killed_after_moving(words, 60e6, disk)
    job = ascot.resume(kept)
    names = [f"out-{part}" for part in range(3)] if kind == "parts" else ["out"]
    assert job.outputs == tuple(str(disk / name) for name in names) and all(map(os.path.exists, job.outputs))


def test_a_process_forked_while_a_job_runs_is_refused_jobs(disk):
    (disk / "in").write_text("b\na\n")
    script = """
        import os, sys, warnings, ascot
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of a fork beside threads.
        children = []
        def fork(progress):
            if not children:
                children.append(os.fork())
                if children == [0]:
                    try:
                        ascot.sort("in", to="child")
                    except ascot.errors.InvalidRequest as error:
                        os.write(1, str(error).splitlines()[0].encode())
                    os._exit(0)
        while not children:  # A job that ends before its first report does not fork.
            ascot.gen(2_000_000, to="large", progress=fork)
        os.waitpid(children[0], 0)
        if os.fork() == 0:
            ascot.sort("in", to="child")
            os._exit(0)
        os.wait()
    """
    process = python(script, cwd=disk)
    assert process.communicate(timeout=60) == ("this process was forked while a job ran, and cannot run jobs", "")
    assert (disk / "child").read_text() == "a\nb\n", "a process forked between jobs runs jobs"


# ---------------------------------------------------------------- errors


def test_too_little_memory_says_what_is_needed(records, disk):
    with pytest.raises(ascot.MemoryLimit, match="too little") as failed:
        ascot.sort(records, to=disk / "out", memory=MIB, layout=RECORDS)
    assert isinstance(failed.value, MemoryError)
    assert failed.value.given == MIB and failed.value.needed > MIB


def test_missing_and_forbidden_files_are_the_errors_of_python(disk):
    with pytest.raises(FileNotFoundError, match="cannot open") as failed:
        ascot.sort(disk / "missing", to=disk / "out")
    assert isinstance(failed.value, ascot.AscotError) and failed.value.filename == str(disk / "missing")
    with pytest.raises(FileNotFoundError, match="no file matches"):
        ascot.sort(str(disk / "*.csv"), to=disk / "out")
    (disk / "a").write_text("a\n")
    with pytest.raises(FileNotFoundError, match="there is no directory"):
        ascot.sort(disk / "a", to=disk / "no" / "out")


def test_a_full_disk_names_the_bytes(disk):
    with small_disk(disk, 24 * MIB) as mount:
        ascot.gen(300_000, to=disk / "large")
        with pytest.raises(ascot.NoSpace, match="not enough space") as failed:
            ascot.sort(disk / "large", to=mount / "out", layout=RECORDS, memory="16MiB", temp=disk)
        assert isinstance(failed.value, OSError) and failed.value.errno == 28
        assert failed.value.needed > failed.value.free > 0
        assert leftovers(mount) == []


def test_a_file_size_limit_is_an_error_and_no_signal(disk):
    ascot.gen(20_000, to=disk / "large")
    script = """
        import sys, ascot
        try:
            ascot.sort(sys.argv[1], to=sys.argv[2], layout=ascot.Fixed(100))
        except OSError as error:
            print(type(error).__name__, error.errno)
    """
    process = python(script, disk / "large", disk / "out", preexec_fn=limit_file_size(MIB))
    assert process.communicate() == ("FileError 27\n", "")
    assert leftovers(disk) == ["large"]


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda: ascot.sort([], to="out"), ValueError, "name at least one file"),
        (lambda: ascot.sort("a", to="out", layout="frob"), ValueError, "give lines, csv"),
        (lambda: ascot.sort("a", to="out", key="x"), errors.InvalidRequest, "numbers of fields"),
        (lambda: ascot.sort("a", to="out", key=slice(0, 3)), ValueError, "a key of lines is"),
        (lambda: ascot.sort("a", to="out", memory="512"), errors.InvalidRequest, "512 needs a unit"),
        (lambda: ascot.sort("a", to="out", volume="frob"), errors.InvalidRequest, "no profile frob"),
        (lambda: ascot.sort("a", to="out", frob=1), TypeError, "unexpected argument 'frob'"),
        (lambda: ascot.sort("a", to="out", view="v"), ValueError, "to=FILE or view=DIRECTORY, not both"),
        (lambda: ascot.sort("a", to="out", layout=ascot.Fixed(4, key=slice(0, 9))), errors.InvalidRequest, "0..9"),
        (lambda: ascot.sort("a", to="out", layout=ascot.Lines(key=1), key=2), ValueError, "both the layout"),
        (lambda: ascot.Csv(separator=";;"), ValueError, "one character"),
        (lambda: ascot.Integers("u16"), ValueError, "u32, u64"),
        (lambda: ascot.sort("a.parquet", to="out"), ascot.SchemaMismatch, "pyarrow"),
        (lambda: ascot.frob, AttributeError, "no attribute 'frob'"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_together_are_named(make, kind, text, disk, monkeypatch):
    monkeypatch.chdir(disk)
    (disk / "a").write_text("12345678\n")
    with pytest.raises(kind, match=text):
        make()
    assert leftovers(disk) == ["a"]


def test_a_record_that_is_cut_short_is_named(disk):
    (disk / "a").write_bytes(b"x" * 250)
    with pytest.raises(ascot.SchemaMismatch, match="cut short: 50 of 100 bytes") as failed:
        ascot.sort(disk / "a", to=disk / "out", layout=ascot.Fixed(100))
    assert (failed.value.record, failed.value.offset) == (3, 200)


# ---------------------------------------------------------------- the package itself


def test_the_wheel_has_the_command():
    command = os.path.join(os.path.dirname(sys.executable), "ascot")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"ascot {ascot.__version__}\n"


def test_names_are_found_without_loading_them():
    assert set(ascot.__all__) <= set(dir(ascot))
    script = "import ascot, sys; print([name for name in sys.modules if name.startswith('ascot.')])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_sort_loads_no_module_of_reports(disk):
    (disk / "in").write_text("b\na\n")
    script = """
import ascot, sys
job = ascot.sort("in", to="out")
print([name for name in ("ascot.reports", "dataclasses", "inspect", "json") if name in sys.modules])
print(job.report.records_out, job.plan.chosen.method, "ascot.reports" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=disk, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n2 in memory True\n"


@pytest.mark.alone
def test_the_import_is_quick():
    script = "import time; began = time.perf_counter(); import ascot; print(time.perf_counter() - began)"
    times = []
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        times.append(float(done.stdout))
    assert min(times) < 0.05, times


def test_a_subinterpreter_sorts_or_refuses_the_import(disk):
    (disk / "in").write_text("b\na\n")
    script = """
import os
try:
    import ascot
    ascot.sort("in", to="out")
    os.write(1, open("out", "rb").read())
except ImportError as error:
    os.write(1, b"a\\nb\\n" if "subinterpreter" in str(error) else str(error).encode())
"""
    module = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    run_it = f"import {module} as subs; subs.run_string(subs.create(), {script!r})"
    done = subprocess.run([sys.executable, "-X", "dev", "-c", run_it], capture_output=True, cwd=disk)
    assert (done.returncode, done.stdout) == (0, b"a\nb\n"), done


DAEMON = """
    import sys, threading, time, ascot, pyarrow
    begun = threading.Event()

    def batches():
        yield pyarrow.table({"k": pyarrow.array(range(300_000), "uint64")})
        begun.set()
        for number in range(10**9):
            time.sleep(0.01)
            yield pyarrow.table({"k": pyarrow.array([number], "uint64")})

    def blocked():
        yield pyarrow.table({"k": pyarrow.array([1], "uint64")})
        begun.set()
        threading.Event().wait()

    def copy(inputs):
        for batch in inputs[0]:
            yield 0, batch

    def progress(told):
        begun.set()

    jobs = {
        "flow": lambda: ascot.flow([batches()], ["out"], copy, output_layout="u64", memory="32MiB"),
        "blocked": lambda: ascot.flow([blocked()], ["out"], copy, output_layout="u64", memory="32MiB"),
        "sort": lambda: ascot.sort("in", to="out", layout=ascot.Fixed(100), memory="16MiB", progress=progress),
        "view": lambda: ascot.sort("in", view="out", layout=ascot.Fixed(100), memory="16MiB", progress=progress),
        "batches": lambda: ascot.sort(batches(), to="out", layout="u64", memory="16MiB"),
    }
    threading.Thread(target=jobs[sys.argv[1]], daemon=True).start()
    assert begun.wait(60)
    time.sleep(0.2)
"""


@pytest.mark.parametrize("job", ["flow", "blocked", "sort", "view", "batches"])
def test_a_job_of_a_daemon_thread_leaves_no_file_at_the_end_of_the_program(job, disk):
    os.mkfifo(disk / "in")
    giver = subprocess.Popen(["sh", "-c", f"exec cat /dev/zero > {disk / 'in'}"], stderr=subprocess.PIPE)
    try:
        command = [sys.executable, "-c", textwrap.dedent(DAEMON), job]
        done = subprocess.run(command, cwd=disk, capture_output=True, text=True, timeout=120)
    finally:
        giver.kill()
        giver.communicate()
    # Python may show the exception of the thread.
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(disk)) == ["in"]
