"""Texts of the libraries, which name flags of the command, in the words of the package.

A flag becomes an argument: `--memory 512MiB` becomes `memory='512MiB'`, `--temp DIR` becomes `temp=DIR`, and
`--strict` becomes `strict=True`. A command becomes a call. A command that has no call stays whole, as the package
installs it.

>>> in_python("give more (--memory 2MiB), or check the record format (--format)")
"give more (memory='2MiB'), or check the record format (layout=)"
"""

from __future__ import annotations

import re

from ascot.open_files import named

__all__ = ["in_python"]

# The number of an error, which is a field of its exception.
_NUMBER = re.compile(r" \(os error \d+\)")

# Flags, and the arguments with the same meaning where that is not their name.
_ARGUMENTS = {
    "--bytes": "size",
    "--format": "layout",
    "--input": "size",
    "--local": "peers",
    "--memory-limit": "memory",
    "--null": "nulls",
}
# Flags whose arguments have their names.
_SAME = frozenset([
    "--alpha", "--block", "--by", "--compress", "--connections", "--group", "--growth", "--growth-out", "--header",
    "--inputs", "--key", "--memory", "--method", "--most-streams", "--out", "--outputs", "--parts",
    "--record-bytes", "--request", "--schedule", "--seconds", "--separator", "--skew", "--strict", "--temp",
    "--threads", "--top", "--total", "--unique", "--view", "--volume", "--work",
])  # fmt: skip
_SWITCHES = frozenset(["--header", "--strict", "--unique"])

# Commands that stay whole.
_COMMANDS = (
    r"'ascot clean --dry-run'",
    r"ascot probe --list",
    r"ascot merge FILE\.\.\. --view DIR",
    r"\| ascot sort(?: --csv --header)? \.\.\.",
    r"ascot trace record -o FILE -- COMMAND",
)
# The keys of each layout.
_KEYS = "lines take numbers of fields, CSV takes columns, fixed and prefixed records take slices, numbers take none"
# Commands and other texts, and those with the same meaning.
_PHRASES = {
    "ascot sort FILE... --view DIR": "ascot.sort(FILE, view=DIR)",
    "ascot sort --view DIR": "ascot.sort(..., view=DIR)",
    "ascot sort FILE --explain": "ascot.plan.sort(FILE)",
    "(ascot sort -u)": "(ascot.sort with unique=True)",
    "(ascot sort)": "(ascot.sort)",
    "(ascot merge)": "(ascot.merge)",
    "ascot view DIR --head N": "ascot.view(DIR)[:N]",
    "ascot probe DIR -o FILE": "ascot.probe(DIR).write(FILE)",
    "ascot probe DIR": "ascot.probe(DIR)",
    "ascot probe measures": "ascot.probe measures",
    "ascot plan bowtie": "ascot.plan.bowtie",
    "ascot flow runs": "ascot.flow runs",
    "keep it with -o FILE": "keep it with its write(FILE)",
    "split --by hash": "split by='hash'",
    "--format lines sorts its bytes": "any_format=True sorts its bytes",
    "--at-record N, --range A..B": "view[N], or the file view.open()",
    "--key START..END": "key=slice(START, END)",
    "(--key COLUMN:TYPE)": "(key=ascot.column(COLUMN, type=TYPE))",
    ", or :text if it is text": ", or type='text' if it is text",
    "(--temp DIR, repeatable)": "(temp=[DIR, ...])",
    "(-o, --temp)": "(to=, temp=)",
    "(-o)": "(to=FILE)",
    "-o FILE": "to=FILE",
    "-u drops": "unique=True drops",
}
_RESUME = r"ascot sort --resume (?P<job>\S.*?)(?=  |$)"
_COLUMNS = r"--csv --header(?: -t (?P<between>tab|'.'))? --key '(?P<columns>[^']*)' \(without -k and order letters\)"
_SEPARATOR = r"-t (?P<separator>tab|,|'.') \(--separator\)"
_ARROW = r"convert it to text first: python3 -c '[^']*ipc\.open_(?P<ipc>file|stream)[^']*' (?P<arrow>.*) \| ascot .*"
_LAYOUTS = (
    r"(?P<layouts>lines take -k[;,] csv takes --key COLUMN,\.\.\.[;,] fixed and prefixed (?:records )?take "
    r"--key START\.\.END[;,] numbers take (?:none|-r only))"
)
_COLUMN = r"--key '(?P<column>[^':]*):(?P<type>[^']+)'"
_FLAG = r"(?<![\w-])(?P<flag>--[a-z][a-z-]*)"
_PHRASE = "|".join(re.escape(phrase) for phrase in sorted(_PHRASES, key=len, reverse=True))
_COMMAND = "|".join(_COMMANDS)
_FOUND = re.compile(
    f"{_ARROW}|(?P<command>{_COMMAND})|{_RESUME}|{_COLUMNS}|{_SEPARATOR}|{_LAYOUTS}|{_COLUMN}|(?P<phrase>{_PHRASE})|{_FLAG}",
    re.MULTILINE,
)
# Columns of one name.
_BY_NUMBER = re.compile(r"use #(\d+) or #(\d+)")
# A value after a flag: a text in quotes, a placeholder, a number with its unit, or a word that is a value.
_VALUE = re.compile(
    r" (?:'(?P<text>[^']*)'|(?P<plain>[A-Z][A-Z_]*(?:\.\.\.)?(?![\w:.])|\d+(?:\.\d+)?(?!\w|[.:,]\w| [kKMGT]?i?B\b))"
    r"|(?P<word>(?:\d[\w.,:]*|[a-z0-9]+:[\w.]+|zstd|none|lz4|lines|auto|hash|value|equal|rotational|flash)\b"
    r"(?: [kKMGT]?i?B\b)?))"
)


def in_python(text: str) -> str:
    """A text of a library in the words of the package."""
    text = _BY_NUMBER.sub(r"use key=\1 or key=\2", _NUMBER.sub("", named(text)))
    out, at = [], 0
    while found := _FOUND.search(text, at):
        out.append(text[at : found.start()])
        at = found.end()
        if found["flag"] is None:
            out.append(_said(found))
            continue
        value = _VALUE.match(text, at)
        argument = _argument(found["flag"], value)
        out.append(found["flag"] if argument is None else argument)
        if argument is not None and value is not None and found["flag"] not in _SWITCHES:
            at = value.end()
    return "".join([*out, text[at:]])


def _argument(flag: str, value: re.Match[str] | None) -> str | None:
    """A flag with a value as an argument; None for a flag without an argument."""
    if flag in _SAME:
        name = flag[2:].replace("-", "_")
    elif flag in _ARGUMENTS:
        name = _ARGUMENTS[flag]
    else:
        return None
    if flag in _SWITCHES:
        return f"{name}=True"
    if value is None:
        return f"{name}="
    given = value["plain"] or repr(value["word"] if value["text"] is None else value["text"])
    return f"{name}=[{given}]" if name == "nulls" else f"{name}={given}"


def _said(found: re.Match[str]) -> str:
    """A command or another text, in Python."""
    if found["phrase"] is not None:
        return _PHRASES[found["phrase"]]
    if found["layouts"] is not None:
        return _KEYS
    if found["ipc"] is not None:
        read = f"pyarrow.ipc.open_{found['ipc']}({_unquoted(found['arrow'])!r})"
        batches = f"{read}.read_all()" if found["ipc"] == "file" else read
        return f"read its batches with pyarrow: ascot.sort({batches}, key=...)"
    if found["job"] is not None:
        return f"ascot.resume({_unquoted(found['job'])!r})"
    if found["columns"] is not None:
        separator = found["between"]
        words = [] if separator is None else [f"separator={_character(separator)!r}"]
        keys = ", ".join(_key(one) for one in found["columns"].split(","))
        return f"layout=ascot.Csv({', '.join([*words, f'key=[{keys}]'])}), without another key"
    if found["separator"] is not None:
        return f"separator={_character(found['separator'])!r}"
    if found["column"] is not None:
        return f"key={_column(found['column'], found['type'], False)}"
    return found[0]


def _unquoted(word: str) -> str:
    """A word of a shell."""
    quoted = len(word) > 1 and word[0] == word[-1] == "'"
    return word[1:-1].replace("'\\''", "'") if quoted else word


def _character(text: str) -> str:
    return "\t" if text == "tab" else text.strip("'")


def _key(text: str) -> str:
    """A key of columns: a name or `#` and a number, after `-` for descending order, perhaps with a type."""
    name, _, type = text.removeprefix("-").partition(":")
    return _column(name, type, text.startswith("-"))


def _column(name: str, type: str, descending: bool) -> str:
    target = name[1:] if name.startswith("#") and name[1:].isdecimal() else repr(name)
    if type:
        more = ", descending=True" if descending else ""
        return f"ascot.column({target}, type={type!r}{more})"
    return f"ascot.desc({target})" if descending else target
