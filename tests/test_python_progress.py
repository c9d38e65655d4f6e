"""Progress of jobs of the Python package as a user sees it: a bar in a terminal, nothing in a pipe, a callback."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import textwrap

import ascot
import pytest

SORT = """
    import sys, ascot
    from ascot import progress
    progress._FIRST_SECONDS = float(sys.argv[2])
    layout = ascot.Fixed(100, key=slice(0, 10))
    job = ascot.sort("large", to="out", layout=layout, memory="16MiB", progress={progress})
    print("end", job.report.records_out)
"""


@pytest.fixture(scope="module")
def large(module_disk):
    ascot.gen(3_000_000, to=module_disk / "large")
    return module_disk


def in_terminal(directory, columns, first_seconds=0.0, progress="'auto'"):
    """What a program writes to a terminal of this width."""
    terminal, program = pty.openpty()
    fcntl.ioctl(program, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    script = textwrap.dedent(SORT.format(progress=progress))
    process = subprocess.Popen(
        [sys.executable, "-c", script, "-", str(first_seconds)],
        stdin=program, stdout=program, stderr=program, cwd=directory, env=environment,
    )  # fmt: skip
    os.close(program)
    written = b""
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # The program has closed its side.
            break
        if not part:
            break
        written += part
    os.close(terminal)
    assert process.wait() == 0, written
    return written.decode()


def screen(written):
    """The lines of the screen at the end: a carriage return begins a line again, and an escape clears its rest."""
    lines, at = [""], 0
    for part in re.findall(r"\x1b\[K|\r|\n|[^\x1b\r\n]+", written):
        if part == "\n":
            lines.append("")
            at = 0
        elif part == "\r":
            at = 0
        elif part == "\x1b[K":
            lines[-1] = lines[-1][:at]
        else:
            lines[-1] = lines[-1][:at] + part + lines[-1][at + len(part) :]
            at += len(part)
    return lines


def bars(written):
    return [bar for bar in re.findall(r"\r([^\r\n]*)\x1b\[K", written) if bar]


def test_a_bar_in_a_terminal_is_redrawn_and_removed(large):
    written = in_terminal(large, 120)
    drawn = bars(written)
    assert len(drawn) >= 2 and len(set(drawn)) >= 2
    for bar in drawn:
        assert re.fullmatch(r"  [a-z ]{12,}(\[#*-*\]  )?\d.*/s.*", bar), bar
    assert any(re.search(r"\[#+-*\]  [\d.]+ [kMG]?B of [\d.]+ [kMG]B   [\d.]+ [kMG]B/s", bar) for bar in drawn), drawn
    assert screen(written) == ["end 3000000", ""], "nothing is left of the bar"


def test_a_bar_is_never_wider_than_the_terminal(large):
    drawn = bars(in_terminal(large, 40))
    assert drawn and max(map(len, drawn)) <= 39


def test_nothing_is_drawn_in_the_first_seconds_of_a_job(large):
    assert bars(in_terminal(large, 120, first_seconds=1000.0)) == []


def test_no_progress_is_no_bar(large):
    assert bars(in_terminal(large, 120, progress="None")) == []


def test_nothing_is_drawn_when_the_output_is_piped(large):
    script = textwrap.dedent(SORT.format(progress="'auto'"))
    command = [sys.executable, "-c", script, "-", "0.0"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=large)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end 3000000\n", "")


def test_a_callback_gets_the_phases_in_order_with_figures_that_grow(large):
    seen = []
    ascot.sort(
        large / "large", to=large / "out", layout=ascot.Fixed(100), memory="16MiB", method="merge",
        progress=seen.append,
    )  # fmt: skip
    phases = list(dict.fromkeys(one.phase for one in seen))
    assert phases and [phase for phase in ("form runs", "merge") if phase in phases] == phases
    for phase in phases:
        done = [one.done_bytes for one in seen if one.phase == phase]
        assert done == sorted(done), "the bytes of a phase grow"
    assert all(one.bytes_per_s >= 0 and str(one) for one in seen)
    assert all(0 <= one.fraction <= 1 for one in seen if one.fraction is not None)
