"""Lets the tests import the harness as `bench/run.py` does."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
