"""Watches the disk space of a running job from outside."""

import json
import time

from support import start, taken_below


def sort_watched(words, disk, report, *more_disks, pause=0.001):
    """Runs a sort whose files are all below `disk` and `more_disks`, and observes them every `pause` seconds.

    Returns the peak of their bytes on disk, and the report.
    """
    process = start("sort", *words, "--report", report)
    most = 0
    while process.poll() is None:
        most = max(most, taken_below(disk, *more_disks))
        time.sleep(pause)
    told = process.communicate()[1]
    assert process.returncode == 0, told
    return most, json.loads(report.read_text())
