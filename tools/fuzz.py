"""`./dev fuzz`: runs the property tests with other seeds, in rounds, until one fails or time is up.

    python3 tools/fuzz.py [--minutes M] [--seed N] [--rounds R] [NAME...]

A round runs all property tests of the crates (`proptest!`), then the randomised end-to-end tests, with one seed,
which it prints first. The next round uses the next seed. NAMEs select tests whose names contain one of them.

`./dev test` runs the same cases every time. Add each failing case to them: write a test with its values (proptest and
hypothesis print the smallest) beside the property, and commit it with the fix.
"""

import argparse
import os
import re
import secrets
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What a file of end-to-end tests names that draws its cases by chance.
MARKS_OF_CHANCE = ("from hypothesis import", "ASCOT_SORT_SEED")
SEEDS = 2**32


def main():
    options = arguments()
    seed = secrets.randbelow(SEEDS) if options.seed is None else options.seed
    rounds = options.rounds or (1 if options.seed is not None else None)
    end = time.monotonic() + 60 * options.minutes
    crates = property_tests(options.names)
    done = 0
    while done == 0 or (done < rounds if rounds else time.monotonic() < end):
        print(f"==> round {done + 1}, seed {seed}", flush=True)
        if not search(crates, options.names, seed):
            sys.exit(f"failed with seed {seed}: ./dev fuzz --seed {seed} {' '.join(options.names)}".rstrip())
        seed = (seed + 1) % SEEDS
        done += 1
    print(f"{done} {'round' if done == 1 else 'rounds'} passed, the last with seed {(seed - 1) % SEEDS}")


def arguments():
    parser = argparse.ArgumentParser(prog="./dev fuzz", description="searches for inputs that break a property")
    parser.add_argument("--minutes", type=float, default=30, help="start no new round after this time (30)")
    parser.add_argument("--seed", type=int, help="the first seed; without other options only this round")
    parser.add_argument("--rounds", type=int, help="number of rounds, regardless of time")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only tests whose names contain one of these")
    return parser.parse_args()


def property_tests(names):
    """Names of the property tests by crate, filtered by `names`."""
    found = {}
    for source in sorted(ROOT.glob("crates/*/**/*.rs")):
        tests = [name for name in tests_of(source.read_text()) if chosen(name, names)]
        if tests:
            found.setdefault(source.relative_to(ROOT).parts[1], set()).update(tests)
    return found


def tests_of(source):
    """Functions inside the blocks `proptest! { ... }` that are marked as tests."""
    for block in re.finditer(r"^( *)(?:proptest::)?proptest! \{$(.*?)^\1\}$", source, re.M | re.S):
        yield from re.findall(r"#\[test\]\s+fn (\w+)\(", block[2])


def randomised_files():
    """The files of end-to-end tests that draw their cases by chance."""
    files = sorted((ROOT / "tests").glob("test_*.py"))
    has_mark = [path for path in files if any(mark in path.read_text() for mark in MARKS_OF_CHANCE)]
    return [str(path.relative_to(ROOT)) for path in has_mark]


def chosen(name, names):
    return not names or any(part in name for part in names)


def search(crates, names, seed):
    """Runs one round; returns whether all tests passed."""
    environment = dict(os.environ, PROPTEST_RNG_SEED=str(seed), ASCOT_SORT_SEED=str(seed), ASCOT_FUZZ="1")
    commands = [
        ["cargo", "test", "--locked", "--quiet", "-p", "ascot-cli", "-p", crate, "--lib", "--tests", "--", *tests]
        for crate, tests in crates.items()
    ]
    keyword = ["-k", " or ".join(names)] if names else []
    commands.append(
        [sys.executable, "-m", "pytest", "-q", f"--hypothesis-seed={seed}", *keyword, *randomised_files()]
    )
    # Run all commands, also after a failure.
    results = [passes(command, environment) for command in commands]
    return all(results)


def passes(command, environment):
    result = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True)
    # Pytest ends with status 5 if the names select no test.
    passed = result.returncode in ((0, 5) if "pytest" in command else (0,))
    if not passed:
        print(result.stdout, result.stderr, sep="\n", flush=True)
    return passed


if __name__ == "__main__":
    main()
