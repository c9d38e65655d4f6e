"""Starts a command and prints the kernel's counters for it: peak memory, bytes moved, time.

    python3 -I -S launch.py CGROUP|- COMMAND...

It is small because the peak resident size of a child starts at that of its parent. The figures go to standard
error as one JSON object after `@@`, following the command's own messages.
"""

import json
import os
import sys
import time


def spawn(group, command):
    if group != "-":
        with open(os.path.join(group, "cgroup.procs"), "w") as procs:
            procs.write(str(os.getpid()))
    return os.posix_spawn(command[0], command, os.environ)


def io_counters(pid):
    with open(f"/proc/{pid}/io") as lines:
        return dict(line.strip().split(": ") for line in lines)


def main():
    began = time.monotonic()
    pid = spawn(sys.argv[1], sys.argv[2:])
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    seconds = time.monotonic() - began
    moved = io_counters(pid)
    _, status, usage = os.wait4(pid, 0)
    facts = {
        "returncode": os.waitstatus_to_exitcode(status),
        "peak_resident_bytes": usage.ru_maxrss * 1024,
        "read_bytes": int(moved["read_bytes"]),
        "written_bytes": int(moved["write_bytes"]),
        "seconds": seconds,
    }
    sys.stderr.write("\n@@" + json.dumps(facts))


main()
