"""`ascot sort --cluster`: the command with real nodes of Ray on this machine, and its refusals without any."""

import ast
import json
import os
import random
import re
import signal
import subprocess
import sys
from itertools import pairwise

import ascot
import ascot.cluster
import pytest
from ascot import errors
from ascot.cluster.flags import in_command
from page_browser import opened
from ray_machines import MEMORY, PAIR, RECORDS, processes_of, wait_until
from support import FIXED, ROOT, clean_environment, leftovers, run, start

TABLE = [*FIXED, "--memory", MEMORY]


def environment(**extra):
    return clean_environment(ASCOT_PYTHON=sys.executable, **extra)


def sort(disk, *words, expect=0):
    return run("sort", *words, cwd=disk, env=environment(), expect=expect, timeout=120)


# ---------------------------------------------------------------- without a cluster


REFUSED = {
    "--unique": ["--unique"], "--top": ["--top", "3"], "--merge": ["-m"], "-c": ["-c"], "--explain": ["--explain"],
    "--view": ["--view", "v"], "--method": ["--method", "merge"], "--volume": ["--volume", "flash"],
    "--batch-size": ["--batch-size", "3"], "--trace": ["--trace", "t"], "--monitor": ["--monitor"],
}  # fmt: skip


SETTING = ["in", "-o", "out", "--cluster", "local:4", "--setting"]


@pytest.mark.parametrize("flag", REFUSED)
def test_flags_that_a_cluster_does_not_serve_are_named(flag, disk):
    (disk / "in").write_bytes(b"")
    told = sort(disk, "in", "-o", "out", "--cluster", "local:4", *FIXED, *REFUSED[flag], expect=2).stderr
    assert told.startswith(f"ascot: a cluster does not serve {flag}"), told
    assert leftovers(disk) == ["in"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["in", "--cluster", "local:4"], "--cluster needs a directory for the result\n  write: -o DIR"),
        (["-", "-o", "out", "--cluster", "local:4"], "a cluster sorts files, which every node reads"),
        (["in", "-o", "out", "--cluster", "local:4", "--memory", "10%"], "--memory is not a share on a cluster"),
        (["in", "-o", "out", "--cluster", "local:4", "-R"], "a cluster does not serve --random-sort"),
        (["in", "-o", "out", "--cluster", "local:4", "-k1R"], "a cluster does not serve random order (R)"),
        (
            ["in", "-o", "out", "--cluster", "local:0"],
            "--cluster local:0: give 'local:4' for 4 nodes on this machine",
        ),
        (
            ["in", "-o", "out", "--cluster", "local"],
            "--cluster local: give 'local:4' for 4 nodes on this machine",
        ),
        (
            # Nothing listens there.
            ["in", "-o", "out", "--cluster", "127.0.0.1:1", "--parts", "40000"],
            "--parts 40000: a job has 32,768 partitions at most",
        ),
        (["none", "-o", "out", "--cluster", "local:4"], "none: no such file\n  nothing was started"),
        (["in", "-o", "full", "--cluster", "local:4"], "full is not an empty directory"),
        (["in", "-o", "no/out", "--cluster", "local:4"], "no/out: there is no directory"),
        (["in", "-o", "out", "--cluster", "127.0.0.1:1"], "--cluster 127.0.0.1:1: no cluster of Ray is found there"),
        (
            ["in", "-o", "out", "--cluster", "local:4", "--format", "prefixed:u8"],
            "a cluster sorts lines, CSV, fixed records and numbers",
        ),
        (["in", "-o", "out", "--cluster", "local:4", "--csv", "--key", "x"], "no column 'x'"),
        (["in", "-o", "out", "--uniform"], "--uniform applies only with --cluster"),
        (["in", "-o", "out", "--transport", "ray"], "--transport applies only with --cluster"),
        (["in", "-o", "out", "--shuffle", "pull"], "--shuffle applies only with --cluster"),
        (["in", "-o", "out", "--parts-as", "views"], "--parts-as applies only with --cluster"),
        (["in", "-o", "out", "--setting", "ahead=4"], "--setting applies only with --cluster"),
        ([*SETTING, "ahead"], "--setting ahead has no value\n  write --setting NAME=VALUE"),
        ([*SETTING, "speed=1"], "'speed' is no setting\n  give one of spare_cores, batch, ahead, "),
        ([*SETTING, "ahead=x"], "--setting ahead=x: give a number"),
        ([*SETTING, "ahead=4", "--setting", "ahead=5"], "--setting ahead=5 is given twice"),
        ([*SETTING, "ahead=100"], "--setting ahead=100: give a number from 1 to 64"),
        ([*SETTING, "batch=1KiB"], "--setting batch=1KiB: give a size from 64 KiB to 256 MiB"),
        ([*SETTING, "ahead=4", "--shuffle", "pull"], "--setting ahead=4 changes nothing with --shuffle pull"),
        (["--resume", "full", "--transport", "ray"], "full is not the directory of a cluster job"),
        (["--resume", "full", "--cluster", "auto"], "full is not the directory of a cluster job"),
    ],
)
def test_wrong_requests_are_refused_before_a_cluster_starts(words, told, disk):
    (disk / "in").write_text("b\na\n")
    (disk / "full").mkdir()
    (disk / "full" / "file").write_bytes(b"")
    before = leftovers(disk)
    done = sort(disk, *words, expect=2)
    assert done.stderr.startswith("ascot: ") and told in done.stderr, done
    assert "Traceback" not in done.stderr and "=)" not in done.stderr, done
    assert leftovers(disk) == before


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (None, "No such file or directory"),
        ("echo 'No module named ascot' >&2; exit 1", "No module named ascot"),
        ("""echo '{"hello": {"ascot": "0.0.9", "ray": "2.60.0"}}'; cat""", "it has Ascot 0.0.9"),
        ("""echo '{"hello": {"ascot": "VERSION", "ray": null}}'; cat""", "it has no Ray"),
        ("""echo '{"hello": {"ascot": "VERSION", "ray": "2.9.0"}}'; cat""", "it has Ray 2.9.0, and 2.60 or newer"),
    ],
)
def test_a_python_that_lacks_something_is_told_with_what_to_install(program, told, disk):
    (disk / "in").write_text("b\na\n")
    python = disk / "python"
    if program is not None:
        python.write_text("#!/bin/sh\n" + program.replace("VERSION", ascot.__version__))
        python.chmod(0o755)
    done = run(
        "sort", "in", "-o", "out", "--cluster", "auto", cwd=disk, env=clean_environment(ASCOT_PYTHON=python), expect=2
    )
    assert f"{python}: " in done.stderr and told in done.stderr, done
    assert f"pip install 'ascot[cluster]=={ascot.__version__}'" in done.stderr, done


def test_a_process_that_ends_without_an_answer_is_an_error(disk):
    (disk / "in").write_text("b\na\n")
    hello = json.dumps({"hello": {"ascot": ascot.__version__, "ray": "2.60.0"}})
    for ending, told in (("echo 'out of luck' >&2; exit 1", "out of luck"), ("kill -9 $$", "by signal 9")):
        (disk / "python").write_text(f"#!/bin/sh\necho '{hello}'; read request; {ending}\n")
        (disk / "python").chmod(0o755)
        words = ["sort", "in", "-o", "out", "--cluster", "auto"]
        done = run(*words, cwd=disk, env=clean_environment(ASCOT_PYTHON=disk / "python"), expect=2)
        assert f"the process of the cluster job ended: {told}" in done.stderr, done


@pytest.mark.parametrize("program", ["exec sleep 60", "trap '' INT; sleep 1; echo HELLO; cat"])
def test_a_signal_ends_a_command_whose_python_has_not_said_hello(program, disk):
    (disk / "in").write_text("b\na\n")
    hello = json.dumps({"hello": {"ascot": ascot.__version__, "ray": "2.60.0"}})
    (disk / "python").write_text("#!/bin/sh\ntouch started\n" + program.replace("HELLO", f"'{hello}'") + "\n")
    (disk / "python").chmod(0o755)
    words = ["sort", "in", "-o", "out", "--cluster", "auto"]
    process = start(*words, cwd=disk, env=clean_environment(ASCOT_PYTHON=disk / "python"))
    try:
        wait_until((disk / "started").exists)
        process.terminate()
        process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == -signal.SIGTERM


def texts_of(path):
    """The texts of a module, with 7 for each value."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    inner = {id(one) for node in nodes if isinstance(node, ast.JoinedStr) for one in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            quoted = {-1: "7", 114: "'7'"}
            parts = [one.value if isinstance(one, ast.Constant) else quoted[one.conversion] for one in node.values]
            yield "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


def test_every_argument_in_a_text_of_the_package_becomes_a_flag():
    argument = re.compile(r"\b[a-z_]+=(?!')\)?(?![\w=])|ascot\.cluster\.(?:resume|remove)\(")
    found = []
    names = "actors attempts checks cleaning driver fleet jobs manifest memory nodes objects object_files parts pull"
    for name in [*names.split(), "spills"]:
        texts = texts_of(ROOT / "python" / "ascot" / "cluster" / f"{name}.py")
        # Functions and calls of resume for functions have no command.
        found += [text for text in texts if argument.search(text) and "map=" not in text and "    " not in text]
    assert len(found) > 5
    for text in found:
        assert not argument.search(in_command(text)), text


def test_a_directory_is_checked_as_one_sequence(disk):
    ascot.gen(1000, to=disk / "in")
    ascot.sort(disk / "in", to=disk / "sorted", layout=RECORDS)
    content = (disk / "sorted").read_bytes()
    (disk / "out").mkdir()
    # In the order of the numbers, not of the letters.
    for number, begin in ((2, 0), (9, 40_000), (10, 70_000)):
        end = {0: 40_000, 40_000: 70_000, 70_000: 100_000}[begin]
        (disk / "out" / f"part-{number}").write_bytes(content[begin:end])
    (disk / "out" / "_SUCCESS").write_bytes(b"")
    assert run("check", "out", cwd=disk).stdout == run("check", "sorted", cwd=disk).stdout
    (disk / "out" / "part-9").rename(disk / "out" / "part-11")
    assert "part-11" in run("check", "out", cwd=disk, expect=1).stdout.decode()
    (disk / "empty").mkdir()
    assert "empty has no files" in run("check", "empty", cwd=disk, expect=2).stderr


def test_views_are_checked_as_they_are_read(disk):
    ascot.gen(300_000, to=disk / "in")
    ascot.sort(disk / "in", to=disk / "sorted", layout=RECORDS)
    content, out = (disk / "sorted").read_bytes(), disk / "out"
    out.mkdir()
    for number, (begin, end) in enumerate(pairwise((0, 9_000_000, 20_000_000, 30_000_000))):
        (disk / "some").write_bytes(shuffled(content[begin:end]))
        run("sort", "some", *FIXED, "--memory", "8MiB", "--view", out / f"part-{number}", cwd=disk)
        with ascot.view(out / f"part-{number}") as view:
            assert view.runs > 1
    whole = run("check", "sorted", cwd=disk).stdout
    assert run("check", "out", cwd=disk).stdout == whole
    assert ascot.check(out, layout=RECORDS) == ascot.check(disk / "sorted", layout=RECORDS)
    with pytest.raises(errors.InvalidRequest, match="a directory, and a node checks files"):
        ascot.cluster.check(out, layout=RECORDS, address="local:0")
    # Files and views beside each other are one sequence, whose order is that of their names.
    run("view", out / "part-1", "-o", "file", cwd=disk)
    subprocess.run(["mv", out / "part-1", disk / "kept"], check=True)
    (disk / "file").rename(out / "part-1")
    assert run("check", "out", cwd=disk).stdout == whole
    wrong = run("check", out / "part-2", out / "part-0", cwd=disk, expect=1).stdout.decode()
    assert f"{out / 'part-0'}: record 0, at offset 0" in wrong and "Records: 190000" in wrong
    assert ascot.check([out / "part-2", out / "part-0"], layout=RECORDS).disorder == (str(out / "part-0"), 0, 0)
    # A view in another order is merged by its own, and checked by the one that is asked for.
    assert run("check", disk / "kept", "--format", "fixed:100", "--key", "10..20", expect=1).returncode == 1


def shuffled(content):
    """Records of 100 bytes without the order that makes one run of any number."""
    whole = [content[at : at + 100] for at in range(0, len(content), 100)]
    random.Random(1).shuffle(whole)
    return b"".join(whole)


def test_a_view_is_checked_by_its_own_layout_and_key(disk):
    (disk / "rows").write_text("name,age\n" + "".join(f"n{(number * 7) % 100},{number}\n" for number in range(100)))
    run("sort", "rows", "--csv", "--header", "--key", "-age:number", "--view", "v", cwd=disk)
    assert b"Records: 100\n" in run("check", "v", cwd=disk).stdout
    assert run("check", "v", "--format", "csv", "--key", "name", cwd=disk, expect=1).returncode == 1
    assert not ascot.check(disk / "v", layout=ascot.Csv(), key="age").is_sorted


def test_a_view_without_its_files_is_named_before_anything_is_read(disk):
    ascot.gen(1000, to=disk / "in")
    (disk / "out").mkdir()
    names = ("part-0", "part-1")
    for name in names:
        run("sort", "in", *FIXED, "--view", disk / "out" / name, cwd=disk)
    gone, cut = (max((disk / "out" / name).iterdir(), key=lambda path: path.stat().st_size) for name in names[::-1])
    gone.rename(disk / "elsewhere")
    # Reading would find this first.
    os.truncate(cut, 1000)
    told = run("check", "out", cwd=disk, expect=2).stderr
    assert told.startswith(f"ascot: out/part-1/{gone.name}: this run of the view out/part-1 is missing\n"), told
    assert "if it is on another machine, read the view there" in told
    with pytest.raises(errors.FileMissing, match="part-1 is missing"):
        ascot.check(disk / "out", layout=RECORDS)
    (disk / "out" / "other").mkdir()
    assert "out/other is a directory in out, not a part" in run("check", "out", cwd=disk, expect=2).stderr


# ---------------------------------------------------------------- with a cluster


@pytest.fixture
def records(disk):
    ascot.gen(40_000, to=disk / "a")
    ascot.gen(20_000, start=40_000, to=disk / "b")
    return disk


@pytest.fixture
def many(disk):
    """Records that take a few seconds, so that a job is interrupted before its end."""
    ascot.gen(1_200_000, to=disk / "a")
    ascot.gen(600_000, start=1_200_000, to=disk / "b")
    return disk


@pytest.mark.cluster(nodes=PAIR)
def test_a_sort_on_a_cluster_has_the_bytes_of_one_machine(cluster, records):
    words = ["a", "b", "-o", "out", "--cluster", cluster.address, *TABLE, "--parts", "5", "-r", "--shuffle", "auto"]
    done = sort(records, *words, "--progress", "json", "--report", "report.json")
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    kinds = {line["type"] for line in lines}
    assert kinds >= {"progress", "report"} and not done.stdout, done
    report = json.loads((records / "report.json").read_text())
    assert lines[-1] == {"type": "report", "report": report}
    assert (report["kind"], report["records"], report["partitions"]) == ("sort", 60_000, 5)
    assert report["prediction"]["shuffle"] == report["shuffle"]
    run("sort", "a", "b", "-o", "alone", *FIXED, "-r", cwd=records)
    parts = sorted((records / "out").iterdir())
    assert [part.name for part in parts] == [f"part-{number:05}" for number in range(5)]
    assert b"".join(part.read_bytes() for part in parts) == (records / "alone").read_bytes()
    assert run("check", "out", "--key", "0..10:desc", "--format", "fixed:100", cwd=records).returncode == 0
    again = sort(records, *words, expect=2).stderr
    assert "is not an empty directory" in again and "Traceback" not in again
    words = ["a", "-o", "few", "--cluster", cluster.address, *FIXED, "--memory", "1MiB", "--setting", "batch=8MiB"]
    few = sort(records, *words, expect=2).stderr
    assert "1 MiB of memory on each node are too little" in few and "(--memory)" in few
    assert "or less (--setting batch=)" in few
    assert leftovers(records) == ["a", "alone", "b", "out", *(f"out/{part.name}" for part in parts), "report.json"]
    assert cluster.left_over() == []


def interrupted(records, cluster, *words):
    """Interrupts a sort while it maps; returns its standard error."""
    command = ["sort", "a", "b", "-o", "out", "--cluster", cluster.address, *TABLE, "--progress", "json", *words]
    # A terminal would send the signal to both processes.
    process = start(*command, cwd=records, env=environment(), start_new_session=True)
    told = b""
    while b"map and shuffle" not in told:
        line = process.stderr.readline()
        assert line, told
        told += line
    process.send_signal(signal.SIGINT)
    told += process.communicate(timeout=60)[1]
    assert process.returncode == -signal.SIGINT, told
    assert b"Traceback" not in told
    return told.decode()


@pytest.mark.cluster(nodes=PAIR)
def test_an_interrupted_sort_leaves_nothing(cluster, many):
    before = leftovers(many)
    interrupted(many, cluster)
    assert leftovers(many) == before
    assert cluster.left_over() == []


@pytest.mark.cluster(nodes=PAIR)
def test_tables_keep_their_header_in_each_part(cluster, disk):
    rows = [f'{number * 7919 % 1000};"a;{number}\n";{number % 3 or "null"}\n' for number in range(30_000)]
    (disk / "a.csv").write_text("n;text;m\n" + "".join(rows[:20_000]))
    (disk / "b.csv").write_text("n;text;m\n" + "".join(rows[20_000:]))
    words = ["a.csv", "b.csv", "--csv", "-t", ";", "--null", "null", "--key", "-n,m"]
    sort(disk, *words, "-o", "out", "--cluster", cluster.address, "--parts", "3", "--memory", MEMORY)
    run("sort", *words, "-o", "alone.csv", cwd=disk)
    alone = (disk / "alone.csv").read_bytes()
    parts = [part.read_bytes() for part in sorted((disk / "out").iterdir())]
    # Samples are rows, and no lines within quotes: the parts are about equal.
    assert max(map(len, parts)) < 1.3 * len(alone) / 3
    assert len(parts) == 3 and all(part.startswith(b"n;text;m\n") for part in parts)
    assert b"n;text;m\n" + b"".join(part.removeprefix(b"n;text;m\n") for part in parts) == alone
    checks = [["--format", "csv:0x3b", "--key", "-n,m"], ["--format", "csv:0x3b", "--key", "-#1,#3", "--header"]]
    for check in checks:
        counted = run("check", "out", *check, cwd=disk)
        assert "Records: 30000" in counted.stdout.decode(), counted
    strict = [*words[:5], "--key", "m:number", "--strict", "-o", "strict", "--cluster", cluster.address]
    told = sort(disk, *strict, "--memory", MEMORY, expect=2).stderr
    assert re.search(r"[ab]\.csv: in the row at offset \d+, 'null' in column #3 is not of type number", told), told


@pytest.mark.cluster(nodes=PAIR)
@pytest.mark.parametrize("shuffle", ["push", "pull"])
def test_parts_that_are_views_are_read_like_the_sort_of_one_machine(cluster, records, shuffle):
    words = ["a", "b", "-o", "out", "--cluster", cluster.address, *TABLE, "--parts", "3", "--report", "report.html"]
    sort(records, *words, "--shuffle", shuffle, "--parts-as", "views", "--transport", "ray")
    run("sort", "a", "b", "-o", "alone", *FIXED, cwd=records)
    parts = sorted((records / "out").glob("part-*"))
    assert len(parts) == {"push": 3, "pull": 1}[shuffle]
    found = b"".join(run("view", part, cwd=records).stdout for part in parts)
    assert found == (records / "alone").read_bytes()
    assert run("check", "out", cwd=records).stdout == run("check", "alone", cwd=records).stdout
    assert ascot.check(records / "out", layout=RECORDS) == ascot.check(records / "alone", layout=RECORDS)
    with opened(records / "report.html", ready="document.getElementById('report')") as shown:
        report = json.loads(shown.run("document.getElementById('report').textContent"))
        assert (report["records"], report["bytes"]) == (60_000, 6_000_000)
        assert shown.run("document.getElementById('summary').textContent") == report["title"]
    # Parts on a machine without the files to which they refer.
    (records / "out" / "chunks" if shuffle == "pull" else next(parts[0].glob("run-*"))).rename(records / "gone")
    told = run("check", "out", cwd=records, expect=2).stderr
    assert "view out/part-00000 is missing\n  if it is on another machine" in told
    assert cluster.left_over() == []


@pytest.mark.cluster(nodes=PAIR)
def test_a_kept_sort_is_resumed_or_removed(cluster, many):
    told = interrupted(many, cluster, "--keep-on-interrupt")
    assert "ascot sort --resume" in told and "ascot clean" in told
    assert "found" in run("clean", "--dry-run", ".", cwd=many).stdout.decode()
    # It goes on the other way.
    sort(many, "--resume", "out.job", "--transport", "ray", "--report", "report.html")
    page = (many / "report.html").read_text()
    assert page.lower().startswith("<!doctype html>") and "sorted 1,800,000 records" in page
    (many / "report.html").unlink()
    assert run("check", "out", cwd=many).stdout.startswith(b"Records: 1800000\n")
    assert not (many / "out.job").exists() and cluster.left_over() == []
    subprocess.run(["rm", "-r", many / "out"], check=True)
    interrupted(many, cluster, "--keep-on-interrupt")
    done = run("clean", "out.job", cwd=many, env=environment(), timeout=120)
    assert done.stdout.startswith(b"removed  out.job"), done
    assert leftovers(many) == ["a", "b"]
    assert cluster.left_over() == []


@pytest.mark.cluster(nodes=PAIR)
def test_the_job_of_a_command_that_is_killed_stops_and_is_kept(cluster, many):
    command = ["sort", "a", "b", "-o", "out", "--cluster", cluster.address, *TABLE, "--progress", "json"]
    process = start(*command, cwd=many, env=environment())
    while b"map and shuffle" not in process.stderr.readline():
        pass
    process.kill()
    process.communicate()
    wait_until(lambda: processes_of("Worker", cluster) == [])
    sort(many, "--resume", "out.job")
    assert run("check", "out", cwd=many).stdout.startswith(b"Records: 1800000\n")
    assert cluster.left_over() == []


# It starts nodes of its own, beside which those of other tests would have no processor.
@pytest.mark.cluster(nodes=PAIR)
@pytest.mark.long
def test_new_nodes_on_this_machine_sort_with_no_word_about_memory(disk):
    run("gen", "300000", "-o", "in", cwd=disk)
    sort(disk, "in", "-o", "out", "--cluster", "local:4", *FIXED)
    run("sort", "in", "-o", "alone", *FIXED, cwd=disk)
    assert b"".join(part.read_bytes() for part in sorted((disk / "out").iterdir())) == (disk / "alone").read_bytes()
