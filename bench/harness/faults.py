"""Faults of a cluster at full size: the tests of faults on more data, and what each job did twice.

The tests in `tests/` check the output against the input and bound what is done twice by what was lost. Here they run
once each, with `size` bytes, and tell what was lost, and what was read, sent and sorted again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from . import machine
from .cluster import RECORD, Options
from .units import decimal, seconds

ROOT = Path(__file__).resolve().parents[2]
FILES = ("test_python_cluster_faults", "test_python_cluster_pull_faults", "test_python_cluster_head")
# A sample is over before a fault is seen, and a job that is removed has no work to do twice.
LEFT_OUT = "not (sample or is_removed)"


def run(options: Options, chosen: str) -> dict[str, Any]:
    """Runs the tests whose names match `chosen`, as pytest's `-k`, or all of them."""
    log, told, outcomes = (options.work / name for name in ("faults.log", "told.jsonl", "outcomes.xml"))
    environment = {
        **os.environ,
        "ASCOT_BIN": options.ascot,
        "ASCOT_CLUSTER_RECORDS": str(options.size // RECORD),
        "ASCOT_FAULTS_TOLD": str(told),
        "ASCOT_TEST_DIR": str(options.work),
        "PYTHONPATH": "",
    }
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", "--long", "-m", "cluster"]
    words += ["-k", f"({chosen}) and {LEFT_OUT}" if chosen else LEFT_OUT, f"--junitxml={outcomes}"]
    words += [f"tests/{name}.py" for name in FILES]
    with log.open("wb") as output:
        # Tests that fail are in the table.
        subprocess.run(words, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False)
    if not outcomes.exists():
        raise RuntimeError(f"the tests of faults did not run:\n{log.read_text()[-2000:]}")
    return {
        "version": 1,
        "machine": machine.describe(options.work),
        "versions": {"ascot": machine.command_version([options.ascot, "--version"]),
                     "ray": machine.package_version("ray")},
        "size": options.size,
        "faults": _found(outcomes, told),
    }  # fmt: skip


def _found(outcomes: Path, told: Path) -> list[dict[str, Any]]:
    """Each test with its outcome, and what it told."""
    lines = [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []
    by_test = {one.pop("test"): one for one in lines}
    found = []
    for case in ElementTree.parse(outcomes).iter("testcase"):
        place = case.get("classname", "").rpartition(".")[2]
        skipped, failed = case.find("skipped"), [one for kind in ("failure", "error") for one in case.iter(kind)]
        outcome = "failed" if failed else "skipped" if skipped is not None else "passed"
        why = (failed[0] if failed else skipped).get("message", "") if outcome != "passed" else ""
        name = case.get("name", "")
        facts = by_test.get(f"{place}.{name}", {})
        found.append({"file": place, "name": name, "outcome": outcome, "why": why[:300], **facts})
    return found


# ---------------------------------------------------------------- the page


def _fault_of(one: dict[str, Any]) -> str:
    """The fault of a test in words: its name, and the phase or kind that it has in brackets."""
    name, _, case = one["name"].removeprefix("test_").removesuffix("]").partition("[")
    shuffle = one.get("shuffle") or ("pull" if "pull" in one["file"] else "push")
    return name.replace("_", " ") + (f" ({case})" if case else "") + f" | {shuffle}"


def _amount(one: dict[str, Any], field: str) -> str:
    return decimal(one[field]) if field in one else ""


def markdown(result: dict[str, Any]) -> str:
    """The page."""
    host, faults = result["machine"], result["faults"]
    used = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    passed = sum(one["outcome"] == "passed" for one in faults)
    lines = [
        "# Faults of a cluster",
        "",
        f"{host['cores']} cores ({host['processor']}), {decimal(host['memory_bytes'])} of memory,",
        f"{host['filesystem']}. {used}.",
        "",
        f"{decimal(result['size'])} of 100-byte records on four nodes of Ray on this machine, 480 MiB each.",
        f"Of {len(faults)} tests {passed} passed: the output has the checksum of the input and is in order, and",
        "what was done twice is within the bound of the test. In brackets: the process or file, the phase and the",
        "share of the job. `lost` is what the disk of the node held, or the files that were damaged. Chunks and",
        "partitions that were on their way at that time are done again, too. The disk that is full while a partition",
        "is sorted has data of its own, 150 MB; rows without amounts are of jobs that are resumed.",
        "",
        "| fault | shuffle | outcome | time | lost | read again | sent again | sorted again |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for one in faults:
        took = seconds(one["seconds"]) if "seconds" in one else ""
        amounts = [_amount(one, name) for name in ("lost", "mapped_again", "sent_again", "sorted_again")]
        lines.append(f"| {_fault_of(one)} | {one['outcome']} | {took} | {' | '.join(amounts)} |")
    if others := [one for one in faults if one["outcome"] != "passed"]:
        lines += ["", "## Not passed", ""]
        lines += [f"- {one['name']}: {' '.join(one['why'].split())}" for one in others]
    return "\n".join(lines) + "\n"
