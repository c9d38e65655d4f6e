"""Runs every session shown in the README and the guide, and checks that the flags and commands they name exist.

A fenced block tagged `console` contains commands (lines that begin with `$ `; a trailing backslash continues on
the next line) and their output. All blocks of a page run in order in one empty directory. Words
after the tag:

    ```console              the commands must succeed; their output is not compared
    ```console output       they must print the shown output; `...` matches anything
    ```console status=2     the last command must end with this status
"""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
from support import ROOT, ascot_binary, clean_environment, run

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SUBCOMMANDS = [
    "sort", "merge", "split", "reshape", "flow", "view", "mount", "gen", "check", "clean", "probe", "plan",
    "simulate", "lab", "lab-all", "lab-streams", "lab-sort", "lab-disk", "lab-net", "trace", "trace-record",
    "trace-convert", "trace-plot", "trace-compare", "trace-replay", "trace-show", "trace-cut", "trace-export", "man",
    "completions", "dash", "index",
    "index-build", "index-get", "index-range", "index-info", "index-verify", "index-rollback", "index-plan",
]  # fmt: skip
# Flags of other programs on the pages.
FOREIGN_FLAGS = {"--release", "--example", "--path", "--locked", "--help", "--version"}


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def blocks(text):
    """(words after the tag, lines) of every console block."""
    for found in re.finditer(r"^```console([^\n]*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield found[1].split(), found[2].splitlines()


def commands(lines):
    """(command, lines shown after it) of a block."""
    found = []
    continues = False
    for line in lines:
        if continues:
            found[-1][0] += line
        elif line.startswith("$ "):
            found.append([line[2:], []])
        elif found:
            found[-1][1].append(line)
        continues = (continues or line.startswith("$ ")) and line.endswith("\\")
        if continues:
            found[-1][0] = found[-1][0][:-1]
    return found


def matches(shown, printed):
    """Whether the output matches the lines shown; `...` matches anything, also several lines."""
    parts = "\n".join(line.rstrip() for line in shown).strip("\n").split("...")
    pattern = ".*?".join(re.escape(part) for part in parts)
    lines = "\n".join(line.rstrip() for line in printed.splitlines()).strip("\n")
    return re.fullmatch(pattern, lines, re.DOTALL) is not None


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_sessions_run_as_shown(page, disk, tmp_path):
    (tmp_path / "ascot").symlink_to(Path(ascot_binary()).resolve())
    environment = clean_environment()
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    for words, lines in blocks(page.read_text()):
        status = next((int(word[7:]) for word in words if word.startswith("status=")), 0)
        session = commands(lines)
        for at, (command, shown) in enumerate(session):
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command], cwd=disk, env=environment, text=True, timeout=120,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            wanted = status if at == len(session) - 1 else 0
            assert done.returncode == wanted, f"{name_of(page)}: {command}\n{done.stdout}"
            if "output" in words:
                difference = f"{name_of(page)}: {command} printed\n{done.stdout}\ninstead of\n" + "\n".join(shown)
                assert matches(shown, done.stdout), difference


@cache
def flags_of(subcommand):
    """All flags of a subcommand, from its manual page and its help screen."""
    page = re.sub(r"\\f.", " ", run("man", subcommand).stdout.decode()).replace("\\-", "-")
    page += run(*subcommand.split("-"), "--help").stdout.decode()
    return set(re.findall(r"(?<![\w-])--[a-z0-9][a-z0-9-]*", page))


def named_flags(page):
    """Flags in inline code and in commands of ascot on a page."""
    code = re.findall(r"`[^`\n]+`", page.read_text()) + re.findall(r"^\$? *ascot .*$", page.read_text(), re.MULTILINE)
    return {flag for text in code for flag in re.findall(r"(?<![\w-])--[a-z0-9][a-z0-9-]*", text)}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_flags_named_exist(page):
    known = set().union(*(flags_of(name) for name in SUBCOMMANDS)) | FOREIGN_FLAGS
    assert named_flags(page) <= known


def test_the_guide_names_every_flag_of_sort():
    named = set().union(*(named_flags(page) for page in PAGES))
    missing = flags_of("sort") - named - FOREIGN_FLAGS
    assert not missing, f"no page names {sorted(missing)}"


def test_dots_match_anything():
    assert matches(["a ... c", "..."], "a b\nx c\nmore\n")
    assert not matches(["a"], "a b")
    assert commands(["$ one \\", "  two", "out", "$ three"]) == [["one   two", ["out"]], ["three", []]]


def test_named_commands_of_dev_exist():
    script = (ROOT / "dev").read_text()
    known = set(re.search(r"^([a-z |-]+)\) \"cmd_", script, re.MULTILINE)[1].split(" | ")) | {"help"}
    pages = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "bench" / "README.md", ROOT / "dev"]
    for page in pages:
        named = set(re.findall(r"\./dev ([a-z]+(?:-[a-z]+)*)", page.read_text()))
        assert named <= known, f"{name_of(page)} names ./dev {sorted(named - known)}"
    helped = set(re.findall(r"^\./dev ([a-z]+(?:-[a-z]+)*)", script, re.MULTILINE))
    assert known <= helped, "./dev help lists them all"
    functions = {name.replace("_", "-") for name in re.findall(r"^cmd_([a-z_]+)\(\)", script, re.MULTILINE)}
    assert known - {"help"} <= functions
