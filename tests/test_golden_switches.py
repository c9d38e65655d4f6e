"""Golden numbers: the switches that `ascot simulate` takes for the merges, splits and reads of measured jobs, and for
every schedule at three shares of reading. They may only fall: a schedule that became worse fails here, and one that
became better asks for smaller numbers.

`python tests/test_golden_switches.py ASCOT` writes the numbers anew.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).with_name("golden_switches.json")

KIB, MIB = 1 << 10, 1 << 20

# Real jobs: files in and out, bytes of blocks, bytes of a block, bytes moved.
JOBS = {
    "merge of 19 runs, 2 GB within 256 MiB": (19, 1, 491 * 512 * KIB, 512 * KIB, 4_004_000_000),
    "merge of 9 runs, a ninth of 2 GB within 64 MiB": (9, 1, 488 * 128 * KIB, 128 * KIB, 445_000_000),
    "merge of 9 runs, 2 GB within 64 MiB": (9, 1, 488 * 128 * KIB, 128 * KIB, 4_004_000_000),
    "merge of 16 files, 1 GB within 256 MiB": (16, 1, 490 * 512 * KIB, 512 * KIB, 2_000_000_000),
    "merge of 8 of 64 files, 125 MB within 256 MiB": (8, 1, 490 * 512 * KIB, 512 * KIB, 250_000_000),
    "merge of 64 files, 1 GB within 256 MiB": (64, 1, 490 * 512 * KIB, 512 * KIB, 2_000_000_000),
    "merge of 16 files, 35 MB within 8 MiB": (16, 1, 220 * 32 * KIB, 32 * KIB, 70_000_000),
    "split into 32, 32 MB within 8 MiB": (1, 32, 220 * 32 * KIB, 32 * KIB, 64_000_000),
    "view read, 16 files, 38 MB within 8 MiB": (16, 0, 220 * 32 * KIB, 32 * KIB, 38_000_000),
    "merge of 16 files, 400 MB within 8 MiB": (16, 1, 220 * 32 * KIB, 32 * KIB, 800_000_000),
    "split into 32, 100 MB within 8 MiB": (1, 32, 220 * 32 * KIB, 32 * KIB, 200_000_000),
    "view read, 16 files, 100 MB within 8 MiB": (16, 0, 220 * 32 * KIB, 32 * KIB, 100_000_000),
}

# Every algorithm on the shapes that it serves; 130 blocks for each file, 60 times the memory moved.
SHAPES = {
    "a1": [(0, 8), (0, 32)],
    "a2": [(1, 8), (1, 32)],
    "a3": [(8, 0), (32, 0)],
    "a4": [(8, 1), (32, 1)],
    "a5": [(4, 6), (16, 16)],
    "a6r": [(4, 6), (16, 16)],
    "a6w": [(6, 4), (16, 16)],
}
ALPHAS = (0.2, 0.5, 0.8)
BLOCKS_PER_FILE, MEMORIES = 130, 60


def cases():
    """Flags of `ascot simulate` by the name of the case."""
    found = {}
    for name, (inputs, outputs, memory, block, moved) in JOBS.items():
        sizes = ["--memory", f"{memory}b", "--block", f"{block}b", "--total", f"{moved}b"]
        for schedule in ("best", "equal"):
            chosen = [] if schedule == "best" else ["--schedule", schedule]
            found[f"{name}, {schedule}"] = ["--inputs", inputs, "--outputs", outputs, *sizes, *chosen]
    for schedule, shapes in SHAPES.items():
        for inputs, outputs in shapes:
            memory = BLOCKS_PER_FILE * (inputs + outputs) * 64 * KIB
            sizes = ["--memory", f"{memory}b", "--block", "64KiB", "--total", f"{MEMORIES * memory}b"]
            for alpha in ALPHAS if inputs and outputs else (None,):
                shares = [] if alpha is None else ["--alpha", alpha]
                for one in (schedule, "equal"):
                    words = ["--inputs", inputs, "--outputs", outputs, *sizes, "--schedule", one, *shares]
                    kind = one if one != "equal" else f"equal beside {schedule}"
                    found[f"{kind}, {inputs} x {outputs}, alpha {alpha}"] = words
    return found


def switches(ascot, words):
    told = subprocess.run([ascot, "simulate", *map(str, words), "--json"], capture_output=True, text=True, check=True)
    return json.loads(told.stdout)["switches"]


def golden():
    return json.loads(GOLDEN.read_text())


@pytest.mark.parametrize("name", cases())
def test_switches_only_fall(name):
    from support import ascot_binary

    now, before = switches(ascot_binary(), cases()[name]), golden()[name]
    assert now <= before, f"{name}: {now} switches, {before} before"
    assert now >= 0.98 * before, f"{name}: {now} switches, {before} before: lower the golden number"


def test_every_golden_number_has_its_case():
    assert set(golden()) == set(cases())


if __name__ == "__main__":
    numbers = {name: switches(sys.argv[1], words) for name, words in cases().items()}
    GOLDEN.write_text(json.dumps(numbers, indent=1) + "\n")
