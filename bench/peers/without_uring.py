"""Runs a program to which the kernel offers no io_uring: requests are then calls, and strace shows them.

    without_uring.py PROGRAM [ARGUMENT]...

A filter of system calls answers io_uring_setup with ENOSYS. It holds for the program and its children.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

IO_URING_SETUP = 425  # on every architecture
NO_NEW_PRIVS, SET_SECCOMP, FILTER_MODE = 38, 22, 2
LOAD_NUMBER, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.ENOSYS


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(f"usage: {sys.argv[0]} PROGRAM [ARGUMENT]...")
    steps = [(LOAD_NUMBER, 0, 0, 0), (EQUAL, 0, 1, IO_URING_SETUP), (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)]
    code = b"".join(struct.pack("<HBBI", *step) for step in steps)
    library = ctypes.CDLL(None, use_errno=True)
    given = _Filter(len(steps), code)
    if library.prctl(NO_NEW_PRIVS, 1, 0, 0, 0) or library.prctl(SET_SECCOMP, FILTER_MODE, ctypes.byref(given), 0, 0):
        sys.exit(f"cannot filter system calls: {os.strerror(ctypes.get_errno())}")
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
