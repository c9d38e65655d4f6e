"""Runs the tests that coreutils has for its sort command with `ascot sort` in its place.

    python3 tools/coreutils_sort.py CHECKOUT [--revision REV] [--ascot FILE] [--expensive] [NAME...]

CHECKOUT is a clone of coreutils, with a work tree or bare. Nothing of it is kept. Each test runs in a directory of
its own with a `sort` on its PATH that is Ascot. NAMEs keep only tests whose names contain one of them.

Results and exit statuses are compared, and whether there is a message. The wording of messages is not: Ascot's name
the file and say what to do. Every test that fails is printed, with the reason where it is known. One that is not in
KNOWN makes this program fail. docs/sorting.md has the same list in words.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECONDS_EACH = 1500
SKIPPED = 77

KNOWN = {
    "sort.pl h1": "the suffixes R and Q, newer than coreutils 9.1, do not order sizes",
    "sort-buffer-size.sh": "the least memory of a job is 8 MiB, and -S of less is raised to it",
    "sort-compress.sh": "spills are compressed by Ascot itself: no program is run",
    "sort-compress-hang.sh": "spills are compressed by Ascot itself: no program is run",
    "sort-compress-proc.sh": "spills are compressed by Ascot itself: no program is run",
    "sort-continue.sh": "7 descriptors are too few",
    "sort-debug-keys.sh": "--debug marks nothing",
    "sort-debug-warn.sh": "--debug warns of nothing",
    "sort-exit-early.sh": "an output is replaced whole, so its directory has to be writable, and not the old file",
    "sort-merge-fdlimit.sh": "10 descriptors are too few",
}

# What tests/init.sh, which coreutils takes from another project, does for these tests.
INIT_SH = r"""
ME_=${0##*/}
say_() { printf '%s: %s\n' "$ME_" "$*" >&2; }
Exit() { exit "$1"; }
fail_() { say_ "failed test: $*"; Exit 1; }
skip_() { say_ "skipped test: $*"; Exit 77; }
fatal_() { say_ "hard error: $*"; Exit 99; }
framework_failure_() { say_ "set-up failure: $*"; Exit 99; }
returns_() { wanted_=$1; shift; "$@"; test $? -eq "$wanted_"; }
compare() { diff -u "$@"; }
path_prepend_() { :; }
test_dir_=$(pwd)
fail=0
. "$srcdir/init.cfg"
"""

# The fields of `cut -F`, which older versions do not have.
CUT_SH = r"""
test "$1" = -F && exec awk -v field="$2" '{{ print $field }}'
exec {cut} "$@"
"""

# In place of the comparison of messages: both are empty, or neither is.
MESSAGES_PM = r"""
package Messages;
use strict; use warnings;
my $compare = \&Coreutils::_compare_files;
no warnings 'redefine';
*Coreutils::_compare_files = sub {
    my ($program, $test, $what, $actual, $expected) = @_;
    return &$compare (@_) if !defined $what || $what ne 'err';
    return 0 if !(-s $actual) == !(-s $expected);
    warn "$program: test $test: " . (-s $actual ? "a message that is not expected\n" : "no message\n");
    return 1;
};
1;
"""

MODULES = ("Coreutils.pm", "CuSkip.pm", "CuTmpdir.pm")


def main():
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="ascot-coreutils-") as scratch:
        scratch = Path(scratch)
        source = tests_of(options.checkout, options.revision, scratch)
        install_sort(options.ascot, scratch / "src")
        names = sorted(path.name for path in (source / "tests/sort").iterdir() if path.suffix in (".pl", ".sh"))
        chosen = [name for name in names if not options.names or any(part in name for part in options.names)]
        if not chosen:
            sys.exit("no test has such a name")
        differing, skipped, ran = [], 0, 0
        for name in chosen:
            result = run_test(source, name, scratch, options.expensive)
            skipped += result is None
            ran += result is not None
            differing += result or []
    sys.exit(verdict(differing, ran, skipped))


def arguments():
    parser = argparse.ArgumentParser(description="runs the tests of coreutils' sort with ascot sort in its place")
    parser.add_argument("checkout", type=Path, help="a clone of coreutils, with a work tree or bare")
    parser.add_argument("--revision", default="HEAD", help="the commit whose tests are run, of a bare clone (HEAD)")
    parser.add_argument("--ascot", type=Path, default=ROOT / "target/release/ascot", help="target/release/ascot")
    parser.add_argument("--expensive", action="store_true", help="tests that take long, too")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only tests whose names contain one of these")
    options = parser.parse_intermixed_args()
    if not options.ascot.is_file():
        sys.exit(f"{options.ascot} is not there: build it, or name another (--ascot FILE)")
    return options


def tests_of(checkout, revision, scratch):
    """The tests of a checkout in a directory of their own, with what they load beside them."""
    source = scratch / "source"
    source.mkdir()
    wanted = ["tests/sort", "init.cfg", "tests/envvar-check", *(f"tests/{name}" for name in MODULES)]
    if (checkout / "tests/sort").is_dir():
        for name in wanted:
            copy = shutil.copytree if (checkout / name).is_dir() else shutil.copy
            (source / name).parent.mkdir(exist_ok=True)
            copy(checkout / name, source / name)
    else:
        # The clone may belong to somebody else.
        git = ["git", "-c", "safe.directory=*", "-C", str(checkout), "archive", revision, *wanted]
        archive = subprocess.run(git, capture_output=True)
        if archive.returncode:
            sys.exit(f"{checkout} is no clone of coreutils: {archive.stderr.decode().strip()}")
        subprocess.run(["tar", "x", "-C", str(source)], input=archive.stdout, check=True)
    (source / "tests/init.sh").write_text(INIT_SH)
    (source / "tests/Messages.pm").write_text(MESSAGES_PM)
    return source


def install_sort(ascot, programs):
    """`sort`, which is Ascot, and what the tests use of coreutils that a machine may not have."""
    programs.mkdir()
    (programs / "sort").symlink_to(ascot.resolve())
    limits = "cat <<'END'\n" + "\n".join(limits_of_types()) + "\nEND"
    for name, script in {"getlimits": limits, "cut": CUT_SH.format(cut=shutil.which("cut"))}.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    (programs.parent / "config.h").write_text("#define HAVE_PTHREAD_T 1\n")


def limits_of_types():
    signed = {"SCHAR": 8, "SHRT": 16, "INT": 32, "LONG": 64, "SSIZE": 64, "OFF_T": 64, "INTMAX": 64, "TIME_T": 64}
    unsigned = {"UCHAR": 8, "USHRT": 16, "UINT": 32, "ULONG": 64, "SIZE": 64, "UINTMAX": 64, "UID_T": 32, "GID_T": 32}
    for name, bits in signed.items():
        most = 2 ** (bits - 1) - 1
        yield from (f"{name}_MAX={most}", f"{name}_OFLOW={most + 1}")
        yield from (f"{name}_MIN={-most - 1}", f"{name}_UFLOW={-most - 2}")
    for name, bits in unsigned.items():
        yield from (f"{name}_MAX={2**bits - 1}", f"{name}_OFLOW={2**bits}")
    yield from ("FLT_MIN=1.175494e-38", "FLT_MAX=3.402823e+38", "DBL_MIN=2.225074e-308", "DBL_MAX=1.797693e+308")
    yield from ("LDBL_MIN=3.362103e-4932", "LDBL_MAX=1.189731e+4932")


def programs_named(source):
    """The programs that tests require, as far as this machine has them."""
    required = {"sort", "getlimits"}
    for test in (source / "tests/sort").glob("*.sh"):
        for names in re.findall(r"(?:require_built_|print_ver_) ([\w ]+)", test.read_text()):
            required.update(name for name in names.split() if shutil.which(name))
    return " ".join(sorted(required))


def run_test(source, name, scratch, expensive):
    """The cases of a test that differ; none where it was skipped."""
    directory = scratch / "run" / name
    directory.mkdir(parents=True)
    surroundings = dict(
        os.environ,
        PATH=f"{scratch / 'src'}:{os.environ['PATH']}:/usr/sbin:/sbin",
        LC_ALL="C",
        TMPDIR=str(directory),
        srcdir=str(source),
        abs_srcdir=str(source),
        abs_top_srcdir=str(source),
        top_srcdir=str(source),
        abs_top_builddir=str(scratch),
        built_programs=programs_named(source),
        CONFIG_HEADER=str(scratch / "config.h"),
        **(dict.fromkeys(("RUN_EXPENSIVE_TESTS", "RUN_VERY_EXPENSIVE_TESTS"), "yes") if expensive else {}),
        PERL="perl",
        SHELL="/bin/sh",
        AWK="awk",
        EGREP="grep -E",
        CC="false",
        **locales(),
    )
    surroundings.pop("VERBOSE", None)
    test = source / "tests/sort" / name
    if test.suffix == ".pl":
        command = ["perl", "-w", f"-I{source / 'tests'}", "-MCuSkip", "-MCoreutils", "-MMessages",
                   f"-MCuTmpdir qw({name})", str(test)]  # fmt: skip
    else:
        command = ["bash", "-c", 'exec 9>&2; exec bash "$0"', str(test)]
    log = directory / "log"
    with open(log, "wb") as out:
        process = subprocess.Popen(
            command, cwd=directory, env=surroundings, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            status = process.wait(SECONDS_EACH)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            status = process.wait()
    text = log.read_text(errors="replace")
    if status == SKIPPED:
        print(f"skipped  {name}: {last_line(text)}", flush=True)
        return None
    if status == 0:
        print(f"same     {name}", flush=True)
        return []
    cases = cases_of(text) if test.suffix == ".pl" else {}
    if not cases:
        cases = {"": last_line(text) if status > 0 else f"ended by signal {-status}"}
    return [report(f"{name} {case}".strip(), why) for case, why in cases.items()]


def cases_of(text):
    """The cases of a table that failed, and why. One with a pipe or `<` in the place of a file is the same case."""
    failed = re.findall(r"^[\w.-]+: test (\S+?):? (.*)$", text, re.M)
    return {re.sub(r"\.[rp]$", "", case): why for case, why in reversed(failed)}


def report(case, why):
    known = KNOWN.get(case)
    print(f"{'known' if known else 'DIFFERS'}    {case}: {known or why}", flush=True)
    return case


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("+")]
    return lines[-1] if lines else "no output"


def locales():
    """Locales other than C that this machine has, as the tests ask for them."""
    listed = subprocess.run(["locale", "-a"], capture_output=True, text=True).stdout.lower().split()
    french = {"LOCALE_FR": ("fr_fr", "fr_fr.iso88591"), "LOCALE_FR_UTF8": ("fr_fr.utf8", "fr_fr.utf-8")}
    names = {"fr_fr": "fr_FR", "fr_fr.iso88591": "fr_FR.ISO-8859-1"}
    return {
        variable: next((names.get(one, "fr_FR.UTF-8") for one in wanted if one in listed), "none")
        for variable, wanted in french.items()
    }


def verdict(differing, ran, skipped):
    """The exit status; prints the counts."""
    unknown = [case for case in differing if case not in KNOWN]
    known = len(differing) - len(unknown)
    print(f"{ran} tests ran, {skipped} skipped: {known} known differences, {len(unknown)} others")
    return 1 if unknown else 0


if __name__ == "__main__":
    main()
