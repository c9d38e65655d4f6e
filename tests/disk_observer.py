"""Watches the disk space of a running job from outside."""

import json
import signal
import time

from support import start, taken_below


def sort_watched(words, disk, report, *more_disks, pause=0.001):
    """Runs a sort whose files are all below `disk` and `more_disks`, and observes them every `pause` seconds.

    Returns the peak of their bytes on disk, and the report.
    """
    process = start("sort", *words, "--report", report)
    most = 0
    while process.poll() is None:
        if taken_below(disk, *more_disks) > most:
            most = max(most, taken_by_stopped(process, disk, *more_disks))
        time.sleep(pause)
    told = process.communicate()[1]
    assert process.returncode == 0, told
    return most, json.loads(report.read_text())


def taken_by_stopped(process, *directories):
    """The bytes on disk of a job, which is stopped meanwhile: bytes that one file frees and another takes between two
    looks would count twice."""
    process.send_signal(signal.SIGSTOP)
    try:
        before, now = None, taken_below(*directories)
        # System calls that were running may still end.
        while now != before:
            before, now = now, taken_below(*directories)
        return now
    finally:
        process.send_signal(signal.SIGCONT)
