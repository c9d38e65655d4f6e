"""The machine and the versions a result was measured with; no host, user or path names."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any


def _first_match(path: str, pattern: str) -> str:
    try:
        match = re.search(pattern, Path(path).read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return ""
    return match.group(1).strip() if match else ""


def commit() -> str:
    """The commit of the sources, with a sign for changes."""
    words = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


def filesystem(volume: Path) -> str:
    """The type of the file system under `volume` (`ext4`), empty if unknown."""
    done = subprocess.run(["stat", "-f", "-c", "%T", str(volume)], capture_output=True, text=True)
    name = done.stdout.strip()
    return "ext4" if name == "ext2/ext3" else name


def describe(volume: Path) -> dict[str, Any]:
    """Cores, memory, kernel and volume; the volume's speeds come from the `limit` measurement."""
    memory_kib = _first_match("/proc/meminfo", r"^MemTotal:\s+(\d+)")
    return {
        "processor": _first_match("/proc/cpuinfo", r"^model name\s*:\s*(.+)$") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": int(memory_kib or 0) * 1024,
        "swap_bytes": int(_first_match("/proc/meminfo", r"^SwapTotal:\s+(\d+)") or 0) * 1024,
        "kernel": ".".join(platform.release().split("-")[0].split(".")[:3]),
        "system": _first_match("/etc/os-release", r'^PRETTY_NAME="?([^"\n]+)'),
        "filesystem": filesystem(volume),
        "free_bytes": shutil.disk_usage(volume).free,
    }


def command_version(argv: list[str]) -> str:
    """The last word of the first line a command prints about its version."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    lines = (done.stdout or done.stderr).splitlines()
    return lines[0].split()[-1] if lines and lines[0].split() else "unknown"


def java_version() -> str:
    """Java's version as it prints it, for Spark's line."""
    try:
        done = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return "none"
    match = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
    return match.group(1) if match else "unknown"


def package_version(name: str) -> str:
    """The version of an installed Python package."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def package_of_system(name: str) -> str:
    """The version of a package of the system (Debian)."""
    return _output(["dpkg-query", "-W", "-f", "${Version}", name]) or "unknown"


def _output(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
