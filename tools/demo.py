"""`./dev demo`: generates benchmark records, sorts them in little memory, checks and draws the result.

    python3 tools/demo.py ASCOT DIRECTORY RECORDS

It needs only the standard library. All its files are in one new directory, which it removes at the end.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RECORD_BYTES = 100
MEMORY = "256MiB"
# Memory that a process may take in addition to its cap.
ALLOWANCE = 32 << 20
# Input, spills (which are freed while the output grows), and some space for other programs.
DISK_PER_INPUT = 2.15
BAR_COLUMNS = 46


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    ascot, parent, records = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    parent.mkdir(parents=True, exist_ok=True)
    require_room(parent, count(records) * RECORD_BYTES)
    with tempfile.TemporaryDirectory(prefix="ascot-demo-", dir=parent) as work:
        report, before, after = run_session(ascot, Path(work), records)
    draw(report, before, after)


def count(text):
    powers = {"k": 10**3, "m": 10**6, "g": 10**9}
    return int(text[:-1]) * powers[text[-1].lower()] if text[-1].lower() in powers else int(text)


def require_room(directory, input_bytes):
    free, needed = shutil.disk_usage(directory).free, int(input_bytes * DISK_PER_INPUT)
    if free < needed:
        sys.exit(
            f"demo: {directory} has {free / 1e9:.1f} GB free, {needed / 1e9:.1f} GB are needed\n"
            "  set ASCOT_DEMO_DIR=DIR to another directory, or ASCOT_DEMO_RECORDS=10M to sort less"
        )


def run_session(ascot, work, records):
    """Runs and shows the four commands. Returns the report and the outputs of `check`."""
    show(ascot, ["gen", records, "-o", "big.rec"], work)
    # The records are not in order yet, so the status is 1; the session needs the checksum.
    before = show(ascot, ["check", "big.rec"], work, exit_codes=(0, 1), lines=("Records", "Checksum"))
    sort = ["sort", "big.rec", "--format", "fixed:100", "--key", "0..10", "--memory", MEMORY]
    words = ["--progress", "bar"] if sys.stderr.isatty() else ["--verbose"]
    show(ascot, [*sort, "-o", "sorted.rec", "--temp", ".", "--report", "run.json", *words], work)
    after = show(ascot, ["check", "sorted.rec"], work)
    return json.loads((work / "run.json").read_text()), before, after


def show(ascot, arguments, work, exit_codes=(0,), lines=("",)):
    """Runs a command; shows it and the lines of its output that begin with `lines`; returns the output."""
    print(f"\n$ ascot {' '.join(arguments)}", flush=True)
    began = time.monotonic()
    done = subprocess.run([ascot.resolve(), *arguments], cwd=work, stdout=subprocess.PIPE, text=True)
    print("".join(line for line in done.stdout.splitlines(keepends=True) if line.startswith(lines)), end="")
    print(f"  ({time.monotonic() - began:.1f} s)", flush=True)
    if done.returncode not in exit_codes:
        sys.exit(f"demo: the command above ended with status {done.returncode}")
    return done.stdout


def checksum(words):
    """The checksum in the output of `ascot check`."""
    return next(line.split()[-1] for line in words.splitlines() if "checksum" in line.lower())


def draw(report, before, after):
    """Draws the report: a bar of time for each pass, one of memory, and whether the checksums agree."""
    size, seconds = report["bytes_in"], report["seconds"]
    print(f"\n  {size / 1e9:.1f} GB in {seconds:.1f} s, {size / seconds / 1e6:,.0f} MB/s")
    longest = max(step["seconds"] for step in report["passes"])
    for step in report["passes"]:
        read, written = bytes_of(step)
        bar = "#" * max(1, round(BAR_COLUMNS * step["seconds"] / longest))
        moved = f"read {read / 1e9:.1f}, wrote {written / 1e9:.1f} GB; {step['bound_by'] or 'nothing'} binds"
        print(f"  {step['name']:<12.12} {bar:<{BAR_COLUMNS}} {step['seconds']:5.1f} s   {moved}")
    total = sum(sum(bytes_of(step)) for step in report["passes"])
    print(f"  bytes moved  {total / size:.2f} times the input (one pass: 2, two: 4)")
    peak, cap = report["peak_memory_bytes"], report["memory_bytes"]
    full = "#" * round(BAR_COLUMNS * min(1.0, peak / (cap + ALLOWANCE)))
    print(f"  memory       {full:-<{BAR_COLUMNS}} {peak >> 20} MiB of {cap >> 20} (and {ALLOWANCE >> 20})")
    same = checksum(before) == checksum(after)
    verdict = "equal" if same else "NOT EQUAL"
    print(f"  checksum     {checksum(before)} before, {checksum(after)} after: {verdict}")
    if not same:
        sys.exit(1)


def bytes_of(step):
    streams = step["streams"]
    return sum(s["read_bytes"] for s in streams), sum(s["written_bytes"] for s in streams)


if __name__ == "__main__":
    main()
