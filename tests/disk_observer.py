"""What the files of a running job take of the disk, seen from outside."""

import contextlib
import json
import os
import time

from support import start


def taken_below(*directories):
    """Bytes that the files below directories take."""
    total = 0
    for directory in directories:
        for place, _, names in os.walk(directory):
            for name in names:
                with contextlib.suppress(OSError):
                    total += os.lstat(os.path.join(place, name)).st_blocks * 512
    return total


def sort_watched(words, disk, report, *more_disks, pause=0.001):
    """Runs a sort whose files are all below `disk` and `more_disks`; what they took at most, by looks some seconds
    (`pause`) apart, and the report."""
    process = start("sort", *words, "--report", report)
    most = 0
    while process.poll() is None:
        most = max(most, taken_below(disk, *more_disks))
        time.sleep(pause)
    told = process.communicate()[1]
    assert process.returncode == 0, told
    return most, json.loads(report.read_text())
