"""Random command lines and inputs for comparisons with the sort command, and shrinking of failing cases.

A case is a list of option groups (each a list of words that stay together), named inputs, and
perhaps standard input. The same seed always gives the same case.
"""

import random
import shutil
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path

from support import Done, ascot_binary, clean_environment

SORT = shutil.which("sort")
ORDERINGS = "bdfgiMhnRrV"
# A key has at most one of these orders; the sort command refuses more.
KINDS = "gMhnRV"
LONG_NAMES = {
    "b": "--ignore-leading-blanks", "d": "--dictionary-order", "f": "--ignore-case",
    "g": "--general-numeric-sort", "i": "--ignore-nonprinting", "M": "--month-sort",
    "h": "--human-numeric-sort", "n": "--numeric-sort", "R": "--random-sort", "r": "--reverse", "V": "--version-sort",
    "u": "--unique", "s": "--stable",
}  # fmt: skip
SORT_WORDS = {
    "g": "general-numeric", "M": "month", "h": "human-numeric", "n": "numeric", "R": "random",
    "V": "version",
}  # fmt: skip
# All long flags of the sort command.
LONG_FLAGS = [
    "batch-size", "buffer-size", "check", "compress-program", "debug", "dictionary-order", "field-separator",
    "files0-from", "general-numeric-sort", "help", "human-numeric-sort", "ignore-case", "ignore-leading-blanks",
    "ignore-nonprinting", "key", "merge", "month-sort", "numeric-sort", "output", "parallel", "random-sort",
    "random-source", "reverse", "sort", "stable", "temporary-directory", "unique", "version", "version-sort",
    "zero-terminated",
]  # fmt: skip
# Files that exist on every machine, for the same random order in both commands.
RANDOM_SOURCES = ["/dev/zero", SORT]
SIZES = ["16M", "50%", "20480", "16m", "20000000b", "1G", "32b", "K", "0", "+20M", "0%", "3t"]


@dataclass
class Case:
    options: list
    inputs: dict = field(default_factory=dict)
    operands: list = field(default_factory=list)
    stdin: bytes = b""
    output: str | None = None
    delimiter: bytes = b"\n"

    def words(self):
        return [word for group in self.options for word in group] + self.operands

    def run(self, program, directory):
        """(exit status, standard output, file of -o); the inputs are written again, because -o may change them."""
        for old in Path(directory).iterdir():
            old.unlink()
        for name, content in self.inputs.items():
            (Path(directory) / name).write_bytes(content)
        done = subprocess.run(
            [*program, *self.words()], input=self.stdin, capture_output=True, cwd=directory,
            timeout=60, env=clean_environment(),
        )  # fmt: skip
        target = Path(directory) / self.output if self.output else None
        written = target.read_bytes() if target and target.exists() else b""
        return Done(self.words(), done.returncode, done.stdout, done.stderr.decode(errors="replace")), written


def difference(case, directory):
    """None if both commands agree, otherwise a short description of the difference."""
    theirs, their_file = case.run([SORT], directory)
    mine, my_file = case.run([ascot_binary(), "sort"], directory)
    if theirs.returncode != mine.returncode:
        return f"exit status {mine.returncode}, sort has {theirs.returncode}\n{mine.stderr}{theirs.stderr}"
    if theirs.stdout != mine.stdout:
        return f"ascot {mine.stdout[:400]!r}\nsort  {theirs.stdout[:400]!r}"
    if their_file != my_file:
        return f"file: ascot {my_file[:400]!r}\n      sort  {their_file[:400]!r}"
    return None


def exit_status_difference(case, directory):
    """The same for commands whose output differs by design: compares only the exit status."""
    theirs, mine = case.run([SORT], directory)[0], case.run([ascot_binary(), "sort"], directory)[0]
    if theirs.returncode == mine.returncode:
        return None
    statuses = f"exit status {mine.returncode}, sort has {theirs.returncode}"
    return f"{case.words()}: {statuses}\n{mine.stderr}{theirs.stderr}"


def smaller(case):
    """Simpler cases to try in place of a failing one."""
    for at, group in enumerate(case.options):
        # Without its source a random order differs in every run.
        if group[0].startswith("--random-sou"):
            continue
        yield replace(case, options=case.options[:at] + case.options[at + 1 :])
    contents = [*((name, text) for name, text in case.inputs.items()), (None, case.stdin)]
    for name, text in contents:
        lines = text.split(case.delimiter)
        step = max(1, len(lines) // 2)
        while step:
            for at in range(0, len(lines), step):
                fewer = case.delimiter.join(lines[:at] + lines[at + step :])
                if name is None:
                    yield replace(case, stdin=fewer)
                else:
                    yield replace(case, inputs={**case.inputs, name: fewer})
            step //= 2


def shrink(case, directory, tries=400):
    """The smallest case found that still fails."""
    progress = True
    while progress and tries > 0:
        progress = False
        for candidate in smaller(case):
            tries -= 1
            if tries <= 0:
                break
            if difference(candidate, directory):
                case, progress = candidate, True
                break
    return case


def verdict(case, directory):
    """None, or the smallest failing case, as commands to paste into a terminal."""
    if not difference(case, directory):
        return None
    least = shrink(case, directory)
    inputs = "".join(f"\n  {name}: {text[:300]!r}" for name, text in least.inputs.items())
    stdin = f"\n  standard input: {least.stdin[:300]!r}" if least.stdin else ""
    return f"sort {' '.join(map(repr, least.words()))}{inputs}{stdin}\n{difference(least, directory)}"


# ---------------------------------------------------------------- contents of lines


ODD_NUMBERS = ["-0", "-", "+1", ".5", "-.5", "-.0", "", " 3", "  -2", "1,000", "--4", "1-", "0x1f"]


def number(rng):
    return rng.choice(
        [
            lambda: str(rng.randrange(-50, 50)),
            lambda: str(rng.randrange(-(10**22), 10**22)),
            lambda: f"{rng.uniform(-100, 100):.{rng.randrange(6)}f}",
            lambda: "0" * rng.randrange(4) + str(rng.randrange(30)) + rng.choice(["", ".", ".0", ".50", ".5"]),
            lambda: rng.choice(ODD_NUMBERS),
            lambda: str(rng.randrange(100)) + rng.choice(["a", "b", " ", "e", "-"]),
            lambda: with_odd_byte(rng, f"{rng.choice(['', '-'])}{rng.randrange(3000)}.{rng.randrange(30)}"),
        ]
    )()


def with_odd_byte(rng, text):
    """A number with inserted bytes; in the sort command 0x80 does not end a number."""
    for _ in range(rng.choice([1, 1, 2])):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice("\x80\x80\x80\x81\x7f\xff") + text[at:]
    return text


def general_number(rng):
    """No NaN: some releases of the sort command order several of them by chance."""
    return rng.choice(
        [
            lambda: f"{rng.randrange(-9, 9)}e{rng.randrange(-30, 30)}",
            lambda: f"{rng.uniform(-1, 1) * 10.0 ** rng.randrange(-8, 8):.4g}",
            lambda: rng.choice(["inf", "-inf", "Infinity", "iNf", "0x10", "0x1p4", "1e", "e1", "+2", "+-2"]),
            lambda: rng.choice(["1e400", "-1e400", "1e-400", "0", "-0", ".e1", "x", "", " 1", "1E2", "infx"]),
            lambda: number(rng),
        ]
    )()


def human_number(rng):
    suffix = rng.choice(["", "K", "M", "G", "T", "P", "E", "Z", "Y", "k", "Ki", "KiB", "m", "R", "Q", "B", " K"])
    digits = rng.choice(["0", "1", "2.5", "10", "1023", "00.4", ".5"])
    if rng.random() < 0.1:
        digits = with_odd_byte(rng, digits)
    return rng.choice(["", "", "-"]) + digits + suffix


def month(rng):
    names = ["jan", "FEB", "Mar", "apr", "MAY", "jun", "July", "aug", "sep", "oct", "nov", "Dec", "", "foo", "ja"]
    return rng.choice(["", " ", "\t"]) + rng.choice(names) + rng.choice(["", "", "x", " 3"])


def version(rng):
    parts = [rng.choice(["1", "01", "10", "2", "0", "rc", "a", "~", "~beta", ".", "-", "+", "_"]) for _ in range(4)]
    ending = rng.choice(["", ".tar.gz", ".c", ".~1~", ".7z"])
    return rng.choice(["", "v", "lib-", ".hidden", "."]) + "".join(parts) + ending


def word(rng):
    letters = rng.choice(["ab", "aAbB", "abc-_. ", "aB1 \t", "\x01\x7fab", "éßa"])
    return "".join(rng.choice(letters) for _ in range(rng.randrange(6)))


def raw(rng):
    return bytes(rng.randrange(256) for _ in range(rng.randrange(12))).decode("latin-1")


CONTENTS = {"n": number, "g": general_number, "h": human_number, "M": month, "V": version}


def text_of(rng, kind, separator, delimiter, lines):
    """`lines` records of 1 to 4 fields of a kind, with repeats; the last may lack its delimiter."""
    content = CONTENTS.get(kind, rng.choice([word, word, raw, number, version]))
    records = []
    for _ in range(lines):
        if records and rng.random() < 0.2:
            records.append(rng.choice(records))
            continue
        fields = [rng.choice([content, word])(rng) for _ in range(rng.randrange(1, 5))]
        between = separator if separator else rng.choice([" ", "  ", "\t", " \t"])
        record = between.join(fields).encode("latin-1")
        records.append(record.replace(delimiter, b"") if delimiter != b"\n" else record.replace(b"\n", b""))
    text = delimiter.join(records)
    return text + delimiter if records and rng.random() < 0.8 else text


# ---------------------------------------------------------------- command lines


def ordering(rng):
    """Ordering letters that mostly can be combined, and the kind of content they need."""
    kind = rng.choice([*KINDS, "", "", "", ""])
    others = "bfr" if kind else "bdfir"
    letters = kind + "".join(letter for letter in others if rng.random() < 0.25)
    if rng.random() < 0.01:
        letters += rng.choice(KINDS)
    letters = "".join(rng.sample(letters, len(letters)))
    return letters, kind


def position(rng, end):
    text = str(rng.randrange(1, 5))
    if rng.random() < 0.4:
        text += f".{rng.randrange(0 if end else 1, 5)}"
    return text


def key(rng):
    """A -k definition and the kind of its content."""
    letters, kind = ordering(rng) if rng.random() < 0.6 else ("", "")
    split = rng.randrange(len(letters) + 1)
    text = position(rng, end=False) + letters[:split]
    if rng.random() < 0.7:
        text += "," + position(rng, end=True) + letters[split:]
    else:
        text += letters[split:]
    return rng.choice([["-k", text], [f"-k{text}"], ["--key", text], [f"--key={text}"]]), kind


def ordering_words(rng, letters):
    """Letters as words: bundled, one by one, spelled out, or by --sort."""
    style = rng.random()
    if not letters:
        return []
    if style < 0.4:
        return [["-" + letters]]
    if style < 0.6:
        return [["-" + letter] for letter in letters]
    named = []
    for letter in letters:
        if letter in SORT_WORDS and rng.random() < 0.3:
            named.append([f"--sort={SORT_WORDS[letter]}"])
        else:
            named.append([abbreviated(rng, LONG_NAMES[letter])])
    return named


def abbreviated(rng, word):
    """An unambiguous abbreviation of a long flag."""
    name, *value = word.removeprefix("--").split("=", 1)
    shortest = next(
        end for end in range(1, len(name) + 1)
        if sum(flag.startswith(name[:end]) for flag in LONG_FLAGS) == 1 or end == len(name)
    )  # fmt: skip
    return "--" + "=".join([name[: rng.randrange(shortest, len(name) + 1)], *value])


def separator_words(rng, separator):
    if rng.random() < 0.1 and separator == "\0":
        return [["-t", "\\0"]]
    if separator == "\0":
        return [["-t\\0"]]
    return [rng.choice([["-t", separator], [f"-t{separator}"], [f"--field-separator={separator}"]])]


def random_case(seed, family):
    """A case of a family: `whole`, `keys`, `merge`, `check`, `files`."""
    rng = random.Random(f"{family}:{seed}")
    options, kinds = [], []
    letters, kind = ordering(rng)
    options += ordering_words(rng, letters)
    kinds.append(kind)
    separator = rng.choice(["", "", ":", ",", "\t", "a", " ", "\0"]) if family != "whole" else ""
    if separator:
        options += separator_words(rng, separator)
    if family == "keys" or (family != "whole" and rng.random() < 0.5):
        for _ in range(rng.choice([1, 1, 2, 3])):
            words, kind = key(rng)
            options.append(words)
            kinds.append(kind)
    options += [[flag] for flag in ("-u", "-s") if rng.random() < 0.25]
    delimiter = b"\n"
    if rng.random() < 0.12:
        options.append([rng.choice(["-z", "--zero-terminated"])])
        delimiter = b"\0"
    options += rng.choice([[], [], [], [["-S", rng.choice(SIZES)]], [[abbreviated(rng, "--buffer-size=1M")]]])
    options += rng.choice([[], [], [[abbreviated(rng, "--parallel=1")]], [[abbreviated(rng, "--parallel"), "2"]]])
    if any("R" in word or "random" in word for group in options for word in group):
        source = rng.choice(RANDOM_SOURCES)
        options.append([abbreviated(rng, f"--random-source={source}")])
    rng.shuffle(options)
    lines = rng.choice([0, 1, 2, 5, 20, 20, 60, 300])
    texts = [
        text_of(rng, rng.choice(kinds), separator, delimiter, rng.choice([lines, lines, 3]))
        for _ in range(rng.choice([1, 1, 2, 3]) if family != "check" else 1)
    ]
    case = Case(options, {f"f{at}": text for at, text in enumerate(texts)}, delimiter=delimiter)
    case.operands = list(case.inputs)
    return FAMILIES[family](rng, case)


def _plain(rng, case):
    if rng.random() < 0.5:
        case.stdin, case.operands = case.inputs.pop("f0"), case.operands[1:]
        if case.operands or rng.random() < 0.5:
            case.operands.insert(rng.randrange(len(case.operands) + 1), "-")
    return case


def _merge(rng, case):
    """A merge, with inputs sorted by the sort command with the same options."""
    plain = [group for group in case.options if group[0] not in ("-u", "--unique")]
    environment = clean_environment()
    for name, text in case.inputs.items():
        words = [word for group in plain for word in group]
        done = subprocess.run([SORT, *words], input=text, capture_output=True, env=environment)
        case.inputs[name] = done.stdout
    case.options.insert(rng.randrange(len(case.options) + 1), [rng.choice(["-m", "--merge"])])
    if rng.random() < 0.2:
        case.options.append(["--batch-size=2"])
    return case


def _check(rng, case):
    if rng.random() < 0.6:
        case = _merge(rng, case)
        case.options = [group for group in case.options if group[0] not in ("-m", "--merge", "--batch-size=2")]
    spelling = ["-c", "-C", "--check", "--check=quiet", "--check=silent", "--check=diagnose-first"]
    case.options.append([rng.choice(spelling)])
    return case


def _files(rng, case):
    style = rng.randrange(5)
    if style == 0:
        case.output = rng.choice(list(case.inputs))
        case.options.append(["-o", case.output])
    elif style == 1:
        case.output = "out"
        case.operands += rng.choice([["-oout"], ["-o", "out"], ["--output=out"]])
    elif style == 2:
        case.inputs["names"] = "\0".join(case.operands).encode() + rng.choice([b"", b"\0"])
        case.operands = ["--files0-from=names"]
    elif style == 3:
        case.stdin = "\0".join(case.operands).encode() + b"\0"
        case.operands = ["--files0-from=-"]
    else:
        case.operands.insert(0, "--")
        case.operands.append(rng.choice(["missing", case.operands[-1]]))
    return case


FAMILIES = {"whole": _plain, "keys": _plain, "merge": _merge, "check": _check, "files": _files}
