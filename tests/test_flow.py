"""`ascot flow`: a user's program between n inputs and m outputs. Its bytes arrive, the engine takes the switches of
the theory, and a program that fails leaves nothing behind."""

import json
import signal
import subprocess
import sys
import time

import pytest
from flows import array_of, expected, make_inputs, simulated, swelling
from support import (
    ALLOWANCE,
    FIXED,
    MIB,
    clean_environment,
    leave_free,
    leftovers,
    measure,
    run,
    small_disk,
    sorted_files,
    start,
)

NO_FILE = "no file was written"


@pytest.fixture
def array(tmp_path):
    return array_of(tmp_path)


# ---------------------------------------------------------------- runs


SHAPES = [(shape, alpha) for shape in [(4, 6), (1, 9), (9, 1)] for alpha in [0.2, 0.5, 0.8]]
SHAPES += [(shape, 0.2) for shape in [(7, 2), (2, 2), (5, 3), (3, 5)]] + [((7, 2), 0.5)]


@pytest.mark.parametrize("shape, alpha", SHAPES)
def test_a_flow_takes_the_switches_of_the_simulation(shape, alpha, array, disk):
    inputs, outputs = shape
    factor = (1 - alpha) / alpha
    # Forty times the memory moves, of which alpha is read.
    names = make_inputs(disk, inputs, int(40 * 8 * MIB * alpha / inputs))
    out = [disk / f"out{number}" for number in range(outputs)]
    words = ["--inputs", *names, "--outputs", *out, "--memory", "8MiB", "--volume", array]
    run("flow", *words, "--report", disk / "run.json", *swelling(factor), timeout=300)
    assert [name.read_bytes() for name in out] == expected(names, outputs, factor)
    report = json.loads((disk / "run.json").read_text())
    [step] = report["passes"]
    assert report["flow"]["alpha"] == pytest.approx(alpha, abs=0.01)
    theory = simulated(step, alpha)
    assert step["switches"] <= 1.10 * theory, (step["switches"], theory)
    equal = simulated(step, alpha, "--schedule", "equal")
    assert step["switches"] < 0.75 * equal, (step["switches"], equal)
    assert step["buffers"]["memory_share"] >= 0.9


def test_the_share_of_reading_is_measured_and_not_only_guessed(array, disk):
    names = make_inputs(disk, 8, 12 * MIB)
    out = [disk / f"out{number}" for number in range(8)]
    words = ["--inputs", *names, "--outputs", *out, "--memory", "8MiB", "--volume", array]
    switches = {}
    for guess in ["0.9", "0.5", "0.2"]:
        run("flow", *words, "--alpha", guess, "--report", disk / "run.json", *swelling(4), timeout=300)
        switches[guess] = json.loads((disk / "run.json").read_text())["passes"][0]["switches"]
    assert max(switches.values()) <= 1.05 * switches["0.2"], switches


def test_without_a_volume_whose_switches_cost_blocks_are_moved_as_they_come(disk):
    names = make_inputs(disk, 3, 3 * MIB + 17)
    out = [disk / f"out{number}" for number in range(2)]
    run("flow", "--inputs", *names, "--outputs", *out, *swelling(1.5))
    assert [name.read_bytes() for name in out] == expected(names, 2, 1.5)


def test_a_merged_flow_gives_one_ordered_stream(array, disk):
    names = sorted_files(disk, [150_000] * 6)
    merged = run("merge", *names, *FIXED).stdout
    out = [disk / f"out{number}" for number in range(4)]
    words = ["--inputs", *names, "--merge-by", "0..10", "--format", "fixed:100", "--memory", "8MiB"]
    words += ["--volume", array, "--report", disk / "run.json", "--outputs", *out]
    run("flow", *words, *swelling(1), timeout=300)
    portions = [merged[at : at + 4096] for at in range(0, len(merged), 4096)]
    assert [name.read_bytes() for name in out] == [b"".join(portions[number::4]) for number in range(4)]
    report = json.loads((disk / "run.json").read_text())
    [step] = report["passes"]
    assert report["records_in"] == 900_000
    theory, equal = simulated(step, 0.5), simulated(step, 0.5, "--schedule", "equal")
    assert step["switches"] <= 1.10 * theory, (step["switches"], theory)
    assert step["switches"] < 0.75 * equal, (step["switches"], equal)


def test_a_merged_flow_refuses_an_input_out_of_order(disk):
    (disk / "a").write_text("1\n2\n")
    (disk / "b").write_text("2\n1\n")
    words = ["--inputs", disk / "a", disk / "b", "--merge-by", "1n", "--outputs", disk / "out"]
    done = run("flow", *words, "--", "cat", expect=2)
    assert "not sorted" in done.stderr and "record 2" in done.stderr
    assert leftovers(disk) == ["a", "b"]
    (disk / "b").write_text("1\n3\n")
    run("flow", *words, "--", "cat")
    assert (disk / "out").read_text() == "1\n1\n2\n3\n"


# ---------------------------------------------------------------- any order


def test_a_program_may_read_and_write_in_any_order(disk):
    names = make_inputs(disk, 3, 5 * MIB)
    code = (
        "import os, subprocess\n"
        "i = [int(os.environ[f'ASCOT_IN_{k}']) for k in range(3)]\n"
        "o = [int(os.environ[f'ASCOT_OUT_{k}']) for k in range(2)]\n"
        "read = lambda k: open(i[k], 'rb').read()\n"
        "outs = [open(k, 'wb') for k in o]\n"
        "last = read(2); outs[1].write(last); outs[0].write(read(0)); outs[1].write(read(1))\n"
    )
    out = [disk / "x", disk / "y"]
    words = ["--inputs", *names, "--outputs", *out, "--memory", "8MiB"]
    for volume in [[], ["--volume", array_of(disk)]]:
        run("flow", *words, *volume, "--", sys.executable, "-c", code)
        a, b, c = (name.read_bytes() for name in names)
        assert [name.read_bytes() for name in out] == [a, c + b]


def test_a_program_that_reads_all_before_it_writes(array, disk):
    names = make_inputs(disk, 4, 6 * MIB)
    out = [disk / f"out{number}" for number in range(3)]
    code = (
        "import os\n"
        "i = [open(int(os.environ[f'ASCOT_IN_{k}']), 'rb') for k in range(4)]\n"
        "o = [open(int(os.environ[f'ASCOT_OUT_{k}']), 'wb') for k in range(3)]\n"
        "data = [f.read() for f in i]\n"
        "[o[(at // 4096) % 3].write(d[at:at + 4096]) for d in data for at in range(0, len(d), 4096)]\n"
    )
    words = ["--inputs", *names, "--outputs", *out, "--memory", "8MiB", "--volume", array]
    run("flow", *words, "--", sys.executable, "-c", code)
    assert sum(name.stat().st_size for name in out) == 24 * MIB


def test_one_stream_is_a_standard_stream(disk):
    (disk / "in").write_bytes(b"b\na\n")
    words = ["--inputs", disk / "in", "--outputs", disk / "out"]
    run("flow", *words, "--", "sh", "-c", "echo $ASCOT_INPUTS $ASCOT_IN_0 $ASCOT_OUTPUTS $ASCOT_OUT_0; sort")
    assert (disk / "out").read_text() == "1 0 1 1\na\nb\n"


def test_a_program_has_no_other_descriptor(disk):
    names = make_inputs(disk, 2, 10)
    code = "import os; print(*sorted(map(int, os.listdir('/proc/self/fd')))); print(os.environ['ASCOT_IN_0'])"
    read = "; [os.read(int(os.environ[f'ASCOT_IN_{k}']), 99) for k in (0, 1)]"
    run("flow", "--inputs", *names, "--outputs", disk / "out", "--", sys.executable, "-c", code + read)
    listed, _ = (disk / "out").read_text().split("\n", 1)
    # Standard streams, the two inputs, and the directory that is being listed.
    assert len(listed.split()) == 6, listed


def test_descriptors_count_from_three_so_that_any_shell_can_redirect_them(disk):
    names = make_inputs(disk, 2, 1000)
    outputs = [disk / "out0", disk / "out1"]
    script = "echo $ASCOT_IN_0 $ASCOT_IN_1 $ASCOT_OUT_0 $ASCOT_OUT_1; cat <&4 >&5; cat <&3 >&6"
    done = run("flow", "--inputs", *names, "--outputs", *outputs, "--", "sh", "-c", script)
    assert done.stdout.split() == [b"3", b"4", b"5", b"6"], done.stdout
    assert [path.read_bytes() for path in outputs] == [path.read_bytes() for path in reversed(names)]


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("volume", [False, True])
def test_a_flow_keeps_the_cap(merged, volume, array, disk):
    names = []
    lines = b"".join(b"%012d %040d\n" % (7 * k, k) for k in range(250_000))
    for number in range(8):
        names.append(disk / f"in{number}")
        names[-1].write_bytes(lines)
    out = [disk / f"out{number}" for number in range(8)]
    words = ["--inputs", *names, "--outputs", *out, "--memory", "64MiB"]
    words += ["--merge-by", "1n"] if merged else []
    words += ["--volume", array] if volume else []
    measured = measure("flow", *words, *swelling(2), timeout=120)
    assert measured.returncode == 0, measured.stderr
    assert measured.peak_resident_bytes <= 64 * MIB + ALLOWANCE
    assert sum(name.stat().st_size for name in out) == 2 * sum(name.stat().st_size for name in names)


def test_too_little_memory_names_what_suffices(disk):
    names = make_inputs(disk, 150, 10)
    done = run("flow", "--inputs", *names, "--outputs", disk / "out", "--memory", "8MiB", "--", "cat", expect=2)
    assert "needs at least" in done.stderr


# ---------------------------------------------------------------- programs that fail


@pytest.mark.parametrize(
    "script, words",
    [
        ("cat > /dev/null; exit 3", "sh ended with exit status 3"),
        ("kill -9 $$", "sh was killed by signal 9"),
        ("head -c 1000", "sh ended before it had read all of input 0"),
        ("echo early; exec >&-; sleep 0.2; cat > /dev/null; sleep 60", "sh closed output 0"),
        ("cat; echo more > /dev/fd/99", "sh ended with exit status"),
        ("cat; echo more >&$ASCOT_OUT_1", "sh ended with exit status"),
    ],
)
def test_a_program_that_fails_leaves_nothing(script, words, disk):
    make_inputs(disk, 1, 20 * MIB)
    flow = ["flow", "--inputs", disk / "in0", "--outputs", disk / "out", "--", "sh", "-c", script]
    done = run(*flow, expect=2, timeout=30)
    assert words in done.stderr and NO_FILE in done.stderr
    assert leftovers(disk) == ["in0"]
    assert not running(script)


def running(script):
    """Whether a shell still runs this script."""
    return f"sh -c {script}" in commands_running()


def commands_running():
    """The command lines of all processes, to be compared as a whole: that of a flow contains that of its program."""
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()


def ends_soon(command):
    """Whether a process ends that was killed: the system may take a moment."""
    deadline = time.monotonic() + 20
    while command in commands_running() and time.monotonic() < deadline:
        time.sleep(0.02)
    return command not in commands_running()


def test_a_program_that_does_not_exist(disk):
    make_inputs(disk, 1, 10)
    done = run("flow", "--inputs", disk / "in0", "--outputs", disk / "out", "--", "./nosuch", expect=2)
    assert "the program ./nosuch cannot be started" in done.stderr
    assert leftovers(disk) == ["in0"]


def test_inputs_may_be_left_unread_only_if_asked(disk):
    make_inputs(disk, 1, 5 * MIB)
    words = ["--inputs", disk / "in0", "--outputs", disk / "out"]
    run("flow", *words, "--allow-unread", "--", "head", "-c", "9")
    assert (disk / "out").stat().st_size == 9
    assert "--allow-unread" in run("flow", "--help").stdout.decode()


@pytest.mark.parametrize(
    "script, words",
    [("exec sleep 600", "input 0"), ("cat > /dev/null; exec sleep 600", "output 0"), ("sleep 600; :", "input 0")],
)
def test_a_program_that_does_nothing_ends_with_a_timeout(script, words, disk):
    make_inputs(disk, 1, MIB)
    flow = ["--inputs", disk / "in0", "--outputs", disk / "out", "--idle-timeout", "500ms"]
    done = run("flow", *flow, "--", "sh", "-c", script, expect=2, timeout=30)
    assert "sh has neither read nor written for" in done.stderr and words in done.stderr
    assert leftovers(disk) == ["in0"]
    assert not running(script)


def test_what_a_program_left_behind_ends_with_a_flow_that_fails(disk):
    """The program itself has ended, with success; a process of its group keeps the output open."""
    make_inputs(disk, 1, MIB)
    script = "cat; sleep 612 & exit 0"
    flow = ["--inputs", disk / "in0", "--outputs", disk / "out", "--idle-timeout", "500ms"]
    done = run("flow", *flow, "--", "sh", "-c", script, expect=2, timeout=30)
    assert "sh has neither read nor written for" in done.stderr
    assert leftovers(disk) == ["in0"]
    assert ends_soon("sleep 612")


def test_a_full_disk_ends_the_program(disk):
    script = "cat; exec cat /dev/zero"
    with small_disk(disk, 64 * MIB) as small:
        make_inputs(small, 1, MIB)
        leave_free(small, 4 * MIB)
        before = leftovers(small)
        words = ["--inputs", small / "in0", "--outputs", small / "out"]
        done = run("flow", *words, "--", "sh", "-c", script, expect=2, timeout=60)
        assert "no space left on the volume" in done.stderr
        assert leftovers(small) == before
    assert not running(script)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_program_and_removes_the_files(number, disk):
    make_inputs(disk, 1, 9 * MIB)
    script = "head -c 100; trap '' TERM; sleep 611; :"
    words = ["--inputs", disk / "in0", "--outputs", disk / "out", "--", "sh", "-c", script]
    process = start("flow", *words)
    deadline = time.monotonic() + 20
    # A shell that has yet to start its commands has children with its own command line.
    while "sleep 611" not in commands_running() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert running(script) and "sleep 611" in commands_running()
    process.send_signal(number)
    assert process.wait(20) == -number
    assert leftovers(disk) == ["in0"]
    assert not running(script)
    assert ends_soon("sleep 611")


def test_a_program_does_not_outlive_a_flow_that_is_killed(disk):
    make_inputs(disk, 2, 9)
    script = "trap '' TERM PIPE; while sleep 0.2; do :; done"
    words = ["--inputs", disk / "in0", disk / "in1", "--outputs", disk / "out", "--", "sh", "-c", script]
    process = start("flow", *words)
    deadline = time.monotonic() + 20
    while not running(script) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert running(script)
    process.kill()
    process.wait(20)
    while running(script) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not running(script)


# ---------------------------------------------------------------- requests


@pytest.mark.parametrize(
    "words, told",
    [
        (["--inputs", "in0"], "no program"),
        (["--", "cat"], "without streams"),
        (["--inputs", "in0", "--outputs", "x", "x", "--", "cat"], "name of another output"),
        (["--inputs", "nosuch", "--outputs", "x", "--", "cat"], "nosuch"),
        (["--inputs", "in0", "--format", "fixed:9", "--outputs", "x", "--", "cat"], "--merge-by"),
        (["--inputs", "in0", "--outputs", "x", "--report", "x", "--", "cat"], "the report would replace it"),
        (["--inputs", "in0", "--outputs", "nodir/x", "--", "cat"], "nodir"),
    ],
)
def test_requests_that_cannot_be(words, told, disk):
    make_inputs(disk, 1, 10)
    done = run("flow", *words, expect=2, cwd=disk)
    assert told in done.stderr
    assert leftovers(disk) == ["in0"]


def test_explain_runs_nothing(array, disk):
    names = make_inputs(disk, 4, MIB)
    words = ["--inputs", *names, "--outputs", disk / "x", disk / "y", "--volume", array, "--memory", "8MiB"]
    told = run("flow", *words, "--explain", "--", "./nosuch").stdout.decode()
    assert "4 x 2 files by A6" in told and "switches" in told and "./nosuch" in told
    assert leftovers(disk) == [f"in{number}" for number in range(4)]


def test_an_output_may_replace_an_input(disk):
    (disk / "file").write_bytes(b"abc" * 100_000)
    run("flow", "--inputs", disk / "file", "--outputs", disk / "file", "--", "tr", "a", "x", env=clean_environment())
    assert (disk / "file").read_bytes() == b"xbc" * 100_000
