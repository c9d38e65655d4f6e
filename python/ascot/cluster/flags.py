"""Texts of the package, which name arguments and calls, in the words of the command.

>>> in_command("give more (memory_per_node=), or name other directories (temp=)")
'give more (--memory), or name other directories (--temp)'
>>> in_command("send records by calls of Ray (transport='ray')")
'send records by calls of Ray (--transport ray)'
>>> in_command("address='local:0': ascot.cluster.resume('/a b.job') continues it")
"--cluster local:0: ascot sort --resume '/a b.job' continues it"
>>> in_command("batch='1GiB': give a size")
'--setting batch=1GiB: give a size'
"""

from __future__ import annotations

import re
from shlex import quote

__all__ = ["in_command"]

# Arguments, and the flags with the same meaning.
_FLAGS = {
    "address": "--cluster",
    "ahead": "--setting ahead=",
    "batch": "--setting batch=",
    "compress": "--compress",
    "connections": "--setting connections=",
    "inputs": "FILE",
    "key": "--key",
    "layout": "--format",
    "memory": "--memory",
    "memory_per_node": "--memory",
    "output": "-o",
    "output_as": "--parts-as",
    "partitions": "--parts",
    "read_size": "--setting read_size=",
    "shuffle": "--shuffle",
    "spare_cores": "--setting spare_cores=",
    "stable": "--stable",
    # The command has no flag for it.
    "storage_options": "the settings of fsspec",
    "temp": "--temp",
    "transport": "--transport",
    "workers_per_node": "--threads",
    "write_depth": "--setting write_depth=",
    "write_memory": "--setting write_memory=",
    "write_size": "--setting write_size=",
}
_CALLS = {"resume": "ascot sort --resume", "remove": "ascot clean"}
_PHRASES = {
    # The directory of a job has the name of its output.
    "name another (job=)": "name another output (-o)",
    "name one (job=), or set XDG_STATE_HOME": "set XDG_STATE_HOME",
    "lock files (job=)": "lock files: it is beside the output (-o)",
    "remove the job (ascot.cluster.remove)": "remove the job (ascot clean)",
}
_FOUND = re.compile(
    rf"(?P<phrase>{'|'.join(map(re.escape, _PHRASES))})"
    r"|ascot\.cluster\.(?P<call>resume|remove)\((?P<job>'[^']*'|\"[^\"]*\")\)"
    rf"|(?<![\w.])(?P<name>{'|'.join(_FLAGS)})=(?:'(?P<text>[^']*)'|\[(?P<list>[^\]]*)\]|(?P<plain>[A-Z0-9]\w*))?"
)


def in_command(text: str) -> str:
    """A text of the package in the words of the command."""
    return _FOUND.sub(_said, text)


def _said(found: re.Match[str]) -> str:
    if found["phrase"] is not None:
        return _PHRASES[found["phrase"]]
    if found["call"] is not None:
        return f"{_CALLS[found['call']]} {quote(found['job'][1:-1])}"
    flag = _FLAGS[found["name"]]
    if found["list"] is not None:
        return f"{flag} {found['list'].replace('...', 'repeatable')}"
    value = found["plain"] if found["text"] is None else found["text"]
    if value is None or value == "True":
        return flag
    return f"{flag}{value}" if flag.endswith("=") else f"{flag} {value}"
