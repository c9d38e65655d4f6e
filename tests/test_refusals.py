"""Refusals before anything is written: reports over other files, files that do not match, wrong flags."""

import gzip
import json
import os
import pty
import subprocess

import pytest
from support import ascot_binary, clean_environment, leftovers, run

# ---------------------------------------------------------------- reports over other files


@pytest.mark.parametrize("name", ["in", "./in", "soft", "hard"])
def test_a_report_over_an_input_is_refused(name, disk):
    (disk / "in").write_bytes(b"b\na\n")
    (disk / "soft").symlink_to("in")
    os.link(disk / "in", disk / "hard")
    before = leftovers(disk)
    for words in ([], ["-o", "out"], ["-m"], ["--explain"]):
        told = run("sort", "in", "--report", name, *words, cwd=disk, expect=2).stderr
        assert f"--report {name} is the input in" in told
    with open(disk / "in", "rb") as stdin:
        told = run("sort", "--report", name, stdin=stdin, cwd=disk, expect=2).stderr
    assert "is the file on standard input" in told
    assert (disk / "in").read_bytes() == b"b\na\n"
    assert leftovers(disk) == before


@pytest.mark.parametrize("there", [False, True])
def test_a_report_over_the_output_is_refused(there, disk):
    (disk / "in").write_bytes(b"b\na\n")
    if there:
        (disk / "out").write_bytes(b"old")
    before = leftovers(disk)
    told = run("sort", "in", "-o", "out", "--report", "./out", cwd=disk, expect=2).stderr
    assert "--report ./out is the output out" in told
    assert leftovers(disk) == before
    assert not there or (disk / "out").read_bytes() == b"old"
    (disk / "list").write_bytes(b"in\0")
    told = run("sort", "--files0-from", "list", "--report", "list", cwd=disk, expect=2).stderr
    assert "is the list of --files0-from" in told
    assert (disk / "list").read_bytes() == b"in\0"


def test_a_report_in_another_file_is_written(disk):
    (disk / "in").write_bytes(b"b\na\n")
    run("sort", "in", "-o", "in", "--report", "run.json", cwd=disk)
    run("sort", "in", "-o", "/dev/null", "--report", "/dev/null", cwd=disk)
    assert json.loads((disk / "run.json").read_text())["records_out"] == 2
    assert (disk / "in").read_bytes() == b"a\nb\n"


# ---------------------------------------------------------------- CSV files of different columns


@pytest.mark.parametrize("words", [[], ["-m"], ["--memory", "8MiB", "--method", "distribute"]], ids=" ".join)
@pytest.mark.parametrize(
    ("other", "told"),
    [
        (b"v,id\n", "column #1 is 'id' in the one, 'v' in the other"),
        (b"id,V\n", "column #2 is 'v' in the one, 'V' in the other"),
        (b"id\n", "column #2 is 'v' in the one, missing in the other"),
        (b"id,v,w\n", "column #3 is missing in the one, 'w' in the other"),
    ],
)
def test_csv_headers_must_agree(other, told, words, disk):
    (disk / "a").write_bytes(b"id,v\n2,x\n")
    (disk / "same").write_bytes(b'"id",v\r\n1,y\r\n')
    (disk / "b").write_bytes(other + b"y,1\n")
    before = leftovers(disk)
    done = run("sort", "--csv", "-k", "#1", "--header", "a", "same", "b", "-o", "out", *words, cwd=disk, expect=2)
    assert "a and b have different headers" in done.stderr and told in done.stderr
    assert leftovers(disk) == before
    done = run("sort", "--csv", "-k", "id", "-", "b", *words, stdin=b"id,v\n1,x\n", cwd=disk, expect=2)
    assert "standard input and b have different headers" in done.stderr
    assert "a and b have" in run("check", "--format", "csv", "-k", "id", "a", "b", cwd=disk, expect=2).stderr


def test_a_column_by_number_is_suggested():
    data = b"name,count\nx,10\ny,9\n"
    told = run("sort", "--csv", "--header", "-k", "2,2n", stdin=data, expect=2).stderr
    assert "no column '2'" in told and "'#2:number'" in told
    assert run("sort", "--csv", "--header", "-k", "#2:number", stdin=data).stdout == b"name,count\ny,9\nx,10\n"


@pytest.mark.parametrize("words", [[], ["-m"], ["--method", "distribute"]], ids=" ".join)
def test_csv_headers_that_agree(words, disk):
    (disk / "empty").write_bytes(b"")
    (disk / "a").write_bytes(b"id,v\n2,x\n")
    (disk / "b").write_bytes(b'\xef\xbb\xbf"id","v"\r\n1,y\n')
    (disk / "c").write_bytes(b"id,v")
    done = run("sort", "--csv", "-k", "id", "empty", "a", "b", "c", *words, cwd=disk)
    assert done.stdout == b"id,v\n1,y\n2,x\n"


# ---------------------------------------------------------------- messages that name the right flag


def refused(*words, **options):
    return run(*words, expect=2, **options).stderr


@pytest.mark.parametrize("separator", [";", "|", ",", "\\t"])
def test_d_is_not_the_separator(separator, tmp_path):
    (tmp_path / "x.csv").write_text("id;v\n1;2\n")
    told = refused("sort", "-d", separator, "x.csv", cwd=tmp_path)
    assert f"-d '{separator}': -d is dictionary order" in told
    assert f"--separator '{separator}'" in told
    # If a file has that name, it is the input.
    if separator != "\\t":
        (tmp_path / separator).write_text("b\na\n")
        assert run("sort", "-d", separator, cwd=tmp_path).stdout == b"a\nb\n"


def test_directories_and_json_are_recognised(tmp_path):
    (tmp_path / "dir").mkdir()
    (tmp_path / "events.json").write_text("")
    (tmp_path / "events").write_text('  [{"tenant": 1}]\n')
    told = refused("sort", "dir", "--key", "tenant", cwd=tmp_path)
    assert "dir is a directory" in told and "dir/*" in told
    for name in ("events.json", "events"):
        told = refused("sort", name, "--key", "tenant", cwd=tmp_path)
        assert f"{name} is JSON" in told and "jq" in told
    (tmp_path / "plain").write_text("a\n")
    told = refused("sort", "plain", "--key", "tenant", cwd=tmp_path)
    assert "--key 'tenant': " in told and "--csv --header" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["sort", "--limit", "10"], "--top"),
        (["sort", "--limit=10"], "--top"),
        (["sort", "--delimiter", ";"], "--separator"),
        (["sort", "--where", "a > 3"], "does not select records"),
        (["sort", "--keep", "last"], "--unique always keeps the first"),
        (["view", "v", "--limit", "3"], "--head"),
        (["sort", "--column", "3"], "did you mean --key"),
        (["sort", "--skip-header"], "did you mean --header"),
        (["sort", "--ascending"], "without --reverse"),
        (["sort", "--random-s"], "write one of: --random-sort, --random-source"),
        (["sort", "--csv", "--quote", ";", "-t", ";"], "';' cannot be both separator and quote"),
        (["sort", ""], "an input has an empty name"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_flags_of_other_programs(words, told):
    assert told in refused(*words)


def test_a_full_device_is_not_a_full_volume():
    for words in (["-o", "/dev/full"], []):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [ascot_binary(), "sort", *words], input=b"b\na\n", stdout=full, stderr=subprocess.PIPE, timeout=60
            )
        told = done.stderr.decode()
        assert done.returncode == 2 and "B left" not in told and "needed" not in told, told
        assert "takes no more bytes" in told


@pytest.mark.parametrize(("separator", "flag"), [(";", "-t ';'"), ("\t", "-t tab")])
def test_a_header_of_one_column_suggests_its_separator(separator, flag, tmp_path):
    (tmp_path / "x.csv").write_text(f"id{separator}name\n2{separator}b\n1{separator}a\n")
    for key in ("name", "#2"):
        told = refused("sort", "x.csv", "--csv", "--header", "--key", key, cwd=tmp_path)
        assert flag in told and "--separator" in told
    done = run("sort", "x.csv", "--csv", "--key", "name", "-t", "tab" if separator == "\t" else ";", cwd=tmp_path)
    assert done.stdout.splitlines()[1].startswith(b"1")


def test_check_recognises_formats_by_file_names(tmp_path):
    (tmp_path / "x.csv").write_text("id,name\n2,a\n10,b\n")
    assert "records are in order" in run("check", "x.csv", "--key", "id:number", cwd=tmp_path).stdout.decode()
    assert run("check", "x.csv", "--key", "id:text", cwd=tmp_path, expect=1)
    (tmp_path / "lines.txt").write_text("a\nb\n")
    assert "Records: 2" in run("check", "lines.txt", cwd=tmp_path).stdout.decode()
    assert "Records: 3" in run("check", "x.csv", cwd=tmp_path, expect=None).stdout.decode()
    # Without a column in the key, .csv is read as lines, as by the sort command.
    run("sort", "x.csv", "-o", "sorted.csv", cwd=tmp_path)
    run("check", "sorted.csv", cwd=tmp_path)


def test_check_says_what_a_file_is_that_holds_no_records(tmp_path):
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"a\nb\n"))
    told = refused("check", "x.gz", cwd=tmp_path)
    assert "x.gz: this is gzip data" in told and "zcat x.gz | ascot check --format lines" in told
    told = refused("check", stdin=b"a\nb\n")
    assert "cut short" in told and "benchmark records" in told and "--format lines" in told
    assert "benchmark" not in refused("check", "--format", "fixed:3", stdin=b"a\nb\n")
    # Its length is a multiple of a record's, so it is read as records, whatever its first bytes.
    (tmp_path / "x.rec").write_bytes(gzip.compress(b"a\n").ljust(100, b"\0"))
    assert "Records: 1" in run("check", "x.rec", cwd=tmp_path).stdout.decode()


def test_no_job_and_no_disk_are_named_as_such(tmp_path):
    (tmp_path / "x").write_text("b\na\n")
    assert "it is a file, and a job is kept as a directory" in refused("sort", "--resume", "x", cwd=tmp_path)
    told = run("sort", "x", "--explain", cwd=tmp_path).stdout.decode()
    assert "no disk taken" in told and "free" not in told
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes").write_text("mine")
    words = ["index", "build", "x", "--format", "lines", "--key", "0..1", "--open", "auto", "-o", "other"]
    assert "is not an indexed directory" in refused(*words, cwd=tmp_path)


# ---------------------------------------------------------------- terminals


def on_terminal(*words, cwd):
    """Runs a command on a terminal; returns its exit status, output and errors."""
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [ascot_binary(), *map(str, words)], stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE,
            cwd=cwd, timeout=60, env=clean_environment(),
        )  # fmt: skip
        os.set_blocking(ours, False)
        try:
            shown = os.read(ours, 1 << 16)
        except BlockingIOError:
            shown = b""
    finally:
        os.close(ours)
        os.close(theirs)
    return done.returncode, shown, done.stderr.decode()


def test_binary_output_to_a_terminal_is_refused(tmp_path):
    (tmp_path / "x.u64").write_bytes(bytes([2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]))
    (tmp_path / "text").write_bytes(b"bb\naa\n")
    (tmp_path / "keyed").write_bytes(b"k1\0\0\0\1k2\0\0\0\2")
    run("sort", "x.u64", "--format", "u64-le", "--view", "v", cwd=tmp_path)
    run("index", "build", "keyed", "--format", "fixed:6", "--key", "0..2", "-o", "run.dir", cwd=tmp_path)
    commands = [
        ["sort", "x.u64", "--format", "u64-le"],
        ["sort", "x.u64", "--format", "fixed:8"],
        ["view", "v"],
        ["index", "get", "run.dir", "k1", "--raw"],
        ["index", "range", "run.dir", "k1..k2", "--raw"],
        ["sort", "text", "x.u64", "--format", "lines"],
        ["gen", "2"],
    ]
    for words in commands:
        status, shown, told = on_terminal(*words, cwd=tmp_path)
        assert (status, shown) == (2, b""), words
        assert told.startswith("ascot: binary records would go to the terminal"), told
        assert run(*words, cwd=tmp_path).stdout != b"", "a pipe takes them"
    assert on_terminal("sort", "x.u64", "--format", "u64-le", "-o", "/dev/stdout", cwd=tmp_path)[0] == 0
    for words in (["sort", "text"], ["sort", "text", "--format", "fixed:3"]):
        status, shown, _ = on_terminal(*words, cwd=tmp_path)
        assert (status, shown) == (0, b"aa\r\nbb\r\n"), words


# ---------------------------------------------------------------- completion


def completed(line, cwd):
    """The completions of bash at the end of a line, with the script that ascot prints."""
    script = run("completions", "bash").stdout.decode()
    words = line.split(" ")
    ask = f"""{script}
PATH={os.path.dirname(ascot_binary())}:$PATH
COMP_WORDS=({" ".join("'" + word + "'" for word in words)}); COMP_CWORD={len(words) - 1}; COMP_LINE='{line}'
_ascot_with_values ascot "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", ask], capture_output=True, cwd=cwd, timeout=60, env=clean_environment())
    return done.stdout.decode().split("\n")[:-1]


def test_shells_complete_values(tmp_path):
    (tmp_path / "x.csv").write_text("tenant,ts,what\n")
    assert completed("ascot sort x.csv --key t", tmp_path) == ["tenant", "ts"]
    assert completed("ascot sort x.csv -k tenant,-t", tmp_path) == ["tenant,-tenant", "tenant,-ts"]
    assert completed("ascot sort --format u64", tmp_path) == ["u64-le", "u64-be"]
    assert "1GiB" in completed("ascot sort --memory ", tmp_path)
    assert completed("ascot sort --sort ran", tmp_path) == ["random"]
    assert "sort" in completed("ascot so", tmp_path), "commands are completed"


def test_the_summary_separates_the_cap_and_the_program(tmp_path):
    (tmp_path / "in").write_bytes(b"".join(b"%07d\n" % (i * 7919 % 1_000_003) for i in range(1_200_000)))
    told = run("sort", "in", "-o", "out", "--memory", "8MiB", "--verbose", cwd=tmp_path).stderr
    assert "memory within the 8 MiB cap, and " in told and "for the program itself" in told
    assert "predicted" in told.split("disk", 1)[1]


def test_a_missing_directory_for_spills_is_named(disk):
    (disk / "in").write_bytes(b"".join(b"%d\n" % number for number in range(3_000_000)))
    told = run("sort", "in", "-o", "out", "-T", "nodir", "--memory", "8MiB", cwd=disk, expect=2).stderr
    assert told.startswith(f"ascot: there is no directory {disk}/nodir for spills\n"), told
    assert "--temp DIR" in told and ".ascot-" not in told, told
    assert leftovers(disk) == ["in"]


def test_an_unknown_volume_lists_the_kinds(disk):
    told = run("sort", "--volume", "frob", "/dev/null", cwd=disk, expect=2).stderr
    assert "no profile frob" in told and "rotational, flash, network" in told, told


@pytest.mark.parametrize("command", ["sort", "merge"])
def test_an_interval_without_its_equals_sign_is_named(command, disk):
    (disk / "in").write_bytes(b"b\na\n")
    told = run(command, "--monitor", "0.5s", "in", "-o", "out", cwd=disk, expect=2).stderr
    assert "there is no file 0.5s" in told and "--monitor=0.5s" in told
    (disk / "0.5s").write_bytes(b"c\n")
    if command == "sort":
        run(command, "--monitor", "0.5s", "in", "-o", "out", "--quiet", cwd=disk)
        assert (disk / "out").read_bytes() == b"a\nb\nc\n"
