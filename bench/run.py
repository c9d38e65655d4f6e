#!/usr/bin/env python3
"""Entry of the bench: sets itself up on first use (setup.sh), then runs inside bench/.venv.

python3 bench/run.py sort [--quick]       or       ./dev bench sort [--quick]
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parent
PYTHON = BENCH / ".venv" / "bin" / "python"


def main() -> int:
    """Sets up, moves into the environment, runs."""
    asked_only = {"-h", "--help", "--needs", "--page-only"} & set(sys.argv[1:])
    if not asked_only or not PYTHON.exists():
        done = subprocess.run([str(BENCH / "setup.sh"), *sys.argv[1:2]])
        if done.returncode:
            print("bench: setting up failed; what it said is above", file=sys.stderr)
            return 2
    if Path(sys.prefix).resolve() != PYTHON.parent.parent.resolve():
        os.execv(PYTHON, [str(PYTHON), str(BENCH / "run.py"), *sys.argv[1:]])
    sys.path.insert(0, str(BENCH))
    from harness import cli

    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
