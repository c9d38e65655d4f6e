"""Splits in several passes: what the plan says is what the job does, and a killed job goes on from its intermediate
files."""

import bisect
import csv
import io
import json
import os
import random
import shutil
import signal
import struct
import time
import zlib

import pytest
from support import (
    FIXED,
    MIB,
    digest,
    end_by,
    job_directories,
    kill,
    leave_free,
    leftovers,
    limit_open_files,
    measure,
    run,
    small_disk,
    start,
    stop_where,
)  # fmt: skip

ARRAY = """name = "24 disks"
read_bytes_per_s = 3.549e9
write_bytes_per_s = 3.549e9
"""


@pytest.fixture(scope="module")
def array(module_disk):
    """A profile of the array, with these seconds a switch."""

    def profile(switch_seconds=0.0155):
        path = module_disk / f"array-{switch_seconds}.toml"
        path.write_text(f"{ARRAY}switch_seconds = {switch_seconds}\n")
        return path

    return profile


@pytest.fixture(scope="module")
def records(module_disk):
    run("gen", "1M", "-o", module_disk / "in.rec")
    return module_disk / "in.rec"


def parts_in(disk, prefix="out"):
    return [path.read_bytes() for path in sorted(disk.glob(f"{prefix}-*"))]


def passes_of(report):
    return [(one["name"], one["times"], one["outputs"]) for one in report["passes"]]


def moved_of(step):
    return sum(stream["read_bytes"] + stream["written_bytes"] for stream in step["streams"])


# ---------------------------------------------------------------- the same parts


LAYOUTS = {
    "fixed": ["--format", "fixed:100", "--key", "0..10"],
    "lines": ["-k1,1"],
    "descending": ["-k1,1nr"],
    "numbers": ["--format", "i64-be"],
    "rows": ["--key", "key"],
}


def make_input(layout, path):
    rng = random.Random(11)
    if layout == "fixed":
        run("gen", "60k", "-o", path)
    elif layout == "numbers":
        path.write_bytes(struct.pack(">300000q", *(rng.randrange(-(2**63), 2**63) for _ in range(300_000))))
    elif layout == "rows":
        with open(path, "w", newline="") as file:
            rows = ([f"k{rng.randrange(9000)}", str(at), 'a "quoted",\nfield'] for at in range(60_000))
            csv.writer(file, lineterminator="\n").writerows([["key", "n", "text"], *rows])
    else:
        lines = (f"{rng.randrange(90_000)} {'x' * rng.choice([1, 9, 200, 70_000 if at % 999 == 0 else 3])}\n"
                 for at in range(60_000))  # fmt: skip
        path.write_text("".join(lines))


@pytest.mark.parametrize("by", ["hash", "range"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_parts_are_those_of_one_pass(layout, by, array, disk):
    """Byte for byte: each part has its header, its records, and these in the order of the inputs."""
    source = disk / ("in.csv" if layout == "rows" else "in")
    make_input(layout, source)
    words = [source, *LAYOUTS[layout], "--by", by, "--parts", 75]
    run(*map(str, ["split", *words, "-o", disk / "one-{:02}", "--memory", "64MiB"]))
    several = [*words, "-o", disk / "out-{:02}", "--memory", "8MiB", "--volume", array()]
    run(*map(str, ["split", *several, "--report", disk / "run.json"]))
    report = json.loads((disk / "run.json").read_text())
    assert len(report["plan"]["chosen"]["factors"]) == len(report["passes"]) >= 2, report["plan"]["chosen"]
    # By range, too: both samples are read from the same places.
    assert parts_in(disk) == parts_in(disk, "one")
    if layout == "rows":
        tables = [list(csv.reader(io.StringIO(part.decode()))) for part in parts_in(disk)]
        assert all(table[0] == ["key", "n", "text"] for table in tables)
    assert not job_directories(disk) and len(parts_in(disk)) == 75


def test_boundaries_hold_over_several_passes(array, disk):
    rng = random.Random(3)
    lines = [f"{rng.randrange(10_000):05} {at}\n" for at in range(40_000)]
    (disk / "in").write_text("".join(lines))
    bounds = [f"{at:05}" for at in range(200, 10_000, 130)]
    (disk / "bounds").write_text("\n".join(bounds))
    words = ["split", disk / "in", "-k1,1", "--boundaries", disk / "bounds", "--parts", len(bounds) + 1]
    words += ["--memory", "8MiB", "--volume", array(), "-o", disk / "out-{:02}", "--report", disk / "run.json"]
    run(*map(str, words))
    assert len(json.loads((disk / "run.json").read_text())["passes"]) >= 2
    wanted = [[] for _ in range(len(bounds) + 1)]
    for line in lines:
        wanted[bisect.bisect_right(bounds, line.split()[0])].append(line)
    assert [part.decode().splitlines(keepends=True) for part in parts_in(disk)] == wanted


def test_few_keys_leave_parts_empty(array, disk):
    """All records of a part, of an intermediate file, or of most of them, are missing."""
    (disk / "in").write_text("".join(f"{at % 3}\n" for at in range(50_000)))
    for by in ("hash", "range"):
        words = ["split", disk / "in", "-k1,1", "--by", by, "--parts", 80, "--memory", "8MiB"]
        run(*map(str, [*words, "--volume", array(), "-o", disk / "out-{:02}", "--report", disk / "run.json"]))
        assert len(json.loads((disk / "run.json").read_text())["passes"]) >= 2
        parts = parts_in(disk)
        assert len(parts) == 80 and sum(map(len, parts)) == 100_000 and sum(part != b"" for part in parts) <= 3


def test_a_pipe_is_split_in_several_passes(array, disk):
    text = b"".join(b"%d\n" % at for at in range(200_000))
    words = ["split", "--by", "hash", "--parts", "40", "--memory", "8MiB", "--volume", array()]
    run(*map(str, words), "-o", str(disk / "out-{:02}"), "--report", str(disk / "run.json"), stdin=text)
    assert len(json.loads((disk / "run.json").read_text())["passes"]) >= 2
    assert sorted(b"".join(parts_in(disk)).split()) == sorted(text.split())
    assert not job_directories(disk)


# ---------------------------------------------------------------- what memory does not allow at once


def test_more_parts_than_memory_holds_take_several_passes(records, disk):
    """On flash, too; within the cap of memory."""
    words = ["split", records, *FIXED, "--by", "hash", "--parts", "300", "--memory", "8MiB"]
    done = measure(*map(str, [*words, "-o", disk / "out-{:03}", "--report", disk / "run.json"]))
    assert done.returncode == 0, done.stderr
    assert done.peak_resident_bytes <= 8 * MIB + 32 * MIB
    report = json.loads((disk / "run.json").read_text())
    assert [name for name, _, _ in passes_of(report)] == ["split some", "split"]
    assert report["peak_disk_bytes"] <= report["predicted_peak_disk_bytes"]
    run(*map(str, ["split", records, *FIXED, "--by", "hash", "--parts", "300", "--memory", "128MiB"]), "-o",
        str(disk / "one-{:03}"))  # fmt: skip
    assert parts_in(disk) == parts_in(disk, "one")


def test_parts_that_cannot_be_open_at_once_take_several_passes(disk):
    run("gen", "30k", "-o", disk / "in")
    words = ["split", disk / "in", *FIXED, "--by", "hash", "--parts", "100", "--memory", "64MiB"]
    run(*map(str, [*words, "-o", disk / "one-{:03}"]))
    words += ["-o", disk / "out-{:03}", "--report", disk / "run.json"]
    run(*map(str, words), preexec_fn=limit_open_files(250))
    assert len(json.loads((disk / "run.json").read_text())["passes"]) == 2
    assert parts_in(disk) == parts_in(disk, "one")


# ---------------------------------------------------------------- switches


def simulated(step, *flags):
    """Switches of `ascot simulate` for the files, the memory and the bytes of one split of a pass."""
    blocks, block_bytes = step["buffers"]["blocks"], step["buffers"]["block_bytes"]
    words = ["--inputs", 1, "--outputs", -(-step["outputs"] // step["times"]), "--memory", f"{blocks * block_bytes}b"]
    sizes = ["--block", f"{block_bytes}b", "--total", f"{moved_of(step) // step['times']}b"]
    return json.loads(run("simulate", *map(str, words), *sizes, "--json", *flags).stdout)["switches"]


@pytest.mark.parametrize("parts, memory", [(64, "16MiB"), (100, "32MiB"), (16, "8MiB")])
@pytest.mark.parametrize("by", ["hash", "range"])
def test_each_pass_takes_the_switches_of_the_simulation_and_of_the_plan(by, parts, memory, array, module_disk, disk):
    source = module_disk / "large.rec"
    if not source.exists():
        run("gen", "2M", "-o", source)
    words = ["split", source, *FIXED, "--by", by, "--parts", parts, "--memory", memory, "--volume", array()]
    run(*map(str, [*words, "-o", disk / "out-{:03}", "--report", disk / "run.json"]))
    report = json.loads((disk / "run.json").read_text())
    planned = {one["name"]: one for one in report["plan"]["chosen"]["passes"]}
    passes = ["split some", "split some again", "split"] if parts == 64 else ["split some", "split"]
    assert [step["name"] for step in report["passes"]] == list(planned) == passes
    for step in report["passes"]:
        plan = planned[step["name"]]
        assert (step["times"], step["inputs"]) == (plan["times"], plan["inputs"])
        switches = step["switches"] / step["times"]
        assert switches <= 1.10 * simulated(step), (step["name"], switches, simulated(step))
        assert abs(plan["switches"] / step["switches"] - 1) <= 0.10, (plan, step["switches"])
        equal = simulated(step, "--schedule", "equal")
        assert equal > 1.5 * switches, (step["name"], switches, equal)
    # One pass would take far longer on this volume.
    switches = sum(step["switches"] for step in report["passes"])
    one = ["simulate", "--inputs", "1", "--outputs", str(parts), "--memory", f"{memory[:-3]}MiB"]
    block = report["passes"][0]["buffers"]["block_bytes"]
    alone = json.loads(run(*one, "--block", f"{block}b", "--total", "400MB", "--json").stdout)["switches"]
    seconds = [count * 0.0155 + moved / 3.549e9 for count, moved in [(switches, len(passes) * 4e8), (alone, 4e8)]]
    assert seconds[0] < seconds[1], (switches, alone)


def test_the_plan_of_the_command_is_that_of_the_job(array, records, disk):
    """--explain, the report and `ascot plan split` have the same passes and switches."""
    words = ["--memory", "16MiB", "--volume", array()]
    split = ["split", records, *FIXED, "--by", "hash", "--parts", "64", "-o", disk / "out-{:03}", *words]
    run(*map(str, [*split, "--explain", "--report", disk / "plan.json"]))
    explained = json.loads((disk / "plan.json").read_text())["plan"]["chosen"]["passes"]
    threads = ["--json", "--input", f"{records.stat().st_size}b", "--outputs", "64"]
    ahead = json.loads(run(*map(str, ["plan", "split", *threads, *words])).stdout)
    assert [one["switches"] for one in ahead["passes"]] == [one["switches"] for one in explained]
    shapes = [(one["inputs"], one["outputs"], one["bowties"]) for one in ahead["passes"]]
    assert shapes == [(one["inputs"], one["outputs"], one["times"]) for one in explained] == [(1, 8, 1), (1, 8, 8)]
    run(*map(str, [*split, "--report", disk / "run.json"]))
    done = json.loads((disk / "run.json").read_text())["passes"]
    assert [(step["inputs"], step["outputs"] // step["times"], step["times"]) for step in done] == shapes


# ---------------------------------------------------------------- jobs that end early


def in_first_pass(manifest):
    return manifest["split"] is not None and not manifest["all_read"]


def in_last_pass(manifest):
    return manifest["all_read"] and len(manifest["split"]["done"]) >= 8


def in_middle_pass(manifest):
    return manifest["all_read"] and any(node["pass"] == 2 for node in manifest["split"]["nodes"])


def split_words(source, disk, array, *more, parts=64):
    """A split in three passes."""
    words = ["split", source, *FIXED, "--by", "hash", "--parts", parts, "--memory", "8MiB"]
    return [*map(str, [*words, "--volume", array(), "--temp", disk, "-o", disk / "out-{:02}", *more])]


@pytest.fixture(scope="module")
def right(records, module_disk):
    (module_disk / "right").mkdir()
    words = ["split", records, *FIXED, "--by", "hash", "--parts", "64", "--memory", "128MiB"]
    run(*map(str, [*words, "-o", module_disk / "right" / "out-{:02}"]))
    return parts_in(module_disk / "right")


def read_by_stream(report):
    read = {}
    for step in report["passes"]:
        for stream in step["streams"]:
            read[stream["name"]] = read.get(stream["name"], 0) + stream["read_bytes"]
    return read


@pytest.mark.parametrize("point", [in_first_pass, in_middle_pass, in_last_pass], ids=lambda point: point.__name__)
def test_a_killed_split_goes_on(point, records, right, array, disk):
    job = start(*split_words(records, disk, array))
    stop_where(job, disk, point)
    kill(job)
    assert not list(disk.glob("out-*")), "no part has its name"
    (kept,) = job_directories(disk)
    manifest = json.loads((kept / "manifest.json").read_text().splitlines()[0])
    left = sum(run["bytes"] for run in manifest["runs"])
    run("sort", "--resume", str(kept), "--report", str(disk / "run.json"))
    report = json.loads((disk / "run.json").read_text())
    read = read_by_stream(report)
    if point is not in_first_pass:
        assert report["resumed"]
        assert read.get("input", 0) == 0, "what was split once is not read again"
        passes_left = 2 if point is in_middle_pass else 1
        assert read["spills"] <= passes_left * left * 1.01
    assert parts_in(disk) == right
    assert leftovers(disk) == [*(f"out-{at:02}" for at in range(64)), "run.json"]


def test_a_split_goes_on_with_less_memory_than_blocks_were_made_for(large, array, disk):
    """Blocks of 128 KiB that are read ahead take all that the parts leave within 8 MiB by the plan."""
    source, _ = large
    words = ["split", source, *FIXED, "--by", "hash", "--parts", 300, "--memory", "64MiB", "--volume", array()]
    job = start(*map(str, [*words, "--temp", disk, "-o", disk / "out-{:03}"]))
    stop_where(job, disk, lambda manifest: manifest["all_read"] and manifest["split"]["nodes"])
    kill(job)
    (kept,) = job_directories(disk)
    run("sort", "--resume", str(kept), "--memory", "8MiB")
    assert sum(path.stat().st_size for path in disk.glob("out-*")) == source.stat().st_size


@pytest.mark.parametrize("threads", [4, 16])
def test_a_distribution_in_passes_has_memory_for_many_threads(threads, large, array, disk):
    """The merging threads, and the blocks that are read ahead, leave memory for the chunks that are split."""
    source, right = large
    more = ["--threads", threads, "--report", disk / "run.json"]
    run(*distribution(source, disk, array, *more, memory="32MiB"))
    steps = json.loads((disk / "run.json").read_text())["passes"]
    assert [step["name"] for step in steps if step["name"].startswith("split")] == ["split some", "split"]
    assert digest(disk / "out") == right


def has_checkpoint(manifest):
    return not manifest["all_read"] and manifest["parts"]


@pytest.mark.parametrize("parts, memory", [(16, "8MiB"), (64, "16MiB")])
def test_a_job_killed_in_a_first_pass_in_long_runs_goes_on(parts, memory, module_disk, array, disk):
    """The pass is too small for writing all parts at a checkpoint: that would take a tenth more switches."""
    source = module_disk / "large.rec"
    if not source.exists():
        run("gen", "2M", "-o", source)
    words = ["split", source, *FIXED, "--by", "hash", "--parts", parts]
    run(*map(str, [*words, "--memory", "256MiB", "-o", disk / "one-{:02}"]))
    words += ["--memory", memory, "--volume", array(), "-o", disk / "out-{:02}"]
    job = start(*map(str, words))
    manifest = stop_where(job, disk, has_checkpoint)
    kill(job)
    (kept,) = job_directories(disk)
    assert manifest["read_upto"]["offset"] > 0
    assert any(part["skip"] > 0 for part in manifest["parts"]), "records after that position are on disk"
    run("sort", "--resume", str(kept), "--report", str(disk / "run.json"))
    read = read_by_stream(json.loads((disk / "run.json").read_text()))
    assert read["input"] <= source.stat().st_size - manifest["read_upto"]["offset"] + MIB
    assert parts_in(disk) == parts_in(disk, "one")


@pytest.mark.parametrize("kind", ["long lines", "few keys", "text"])
def test_any_records_can_be_resumed_in_a_first_pass_in_long_runs(kind, array, disk):
    """Lines longer than a block, parts that are hardly ever written, and usual ones; killed several times."""
    rng = random.Random(10)
    key = {"long lines": 10**6, "few keys": 3, "text": 10**6}[kind]
    lines = [f"{rng.randrange(key):07} {'x' * rng.randrange(80)}\n" for _ in range(1_200_000)]
    if kind == "long lines":
        lines[::3000] = [f"{rng.randrange(key):07} {'y' * rng.randrange(300_000)}\n" for _ in lines[::3000]]
    (disk / "in").write_text("".join(lines))
    words = ["split", disk / "in", "-k1,1", "--by", "hash", "--parts", 40]
    run(*map(str, [*words, "--memory", "256MiB", "-o", disk / "one-{:02}"]))
    words += ["--memory", "8MiB", "--volume", array(), "-o", disk / "out-{:02}"]
    job = start(*map(str, words))
    for _ in range(3):
        seen = []
        try:
            stop_where(job, disk, lambda manifest, seen=seen: seen.append(manifest) or has_checkpoint(manifest))
        finally:
            kill(job)
        (kept,) = job_directories(disk)
        job = start("sort", "--resume", str(kept))
        if seen[-1]["read_upto"]["offset"] > (disk / "in").stat().st_size / 2:
            break
    job.communicate(timeout=120)
    assert job.returncode == 0
    assert parts_in(disk) == parts_in(disk, "one")


def test_a_split_killed_again_and_again_goes_on(records, right, array, disk):
    """With as much memory as before, with more, and with less."""
    rng = random.Random(8)
    kept = None
    for _ in range(6):
        words = split_words(records, disk, array) if kept is None else ["sort", "--resume", str(kept)]
        if kept is not None and rng.random() < 0.5:
            words += ["--memory", rng.choice(["8MiB", "24MiB"])]
        job = start(*words)
        time.sleep(rng.uniform(0.2, 1.2))
        kill(job)
        if not job_directories(disk):
            if parts_in(disk):
                break
            continue
        (kept,) = job_directories(disk)
    if kept is not None and job_directories(disk):
        run("sort", "--resume", str(kept))
    elif not parts_in(disk):
        run(*split_words(records, disk, array))
    assert parts_in(disk) == right
    assert leftovers(disk) == [f"out-{at:02}" for at in range(64)]


def test_a_split_killed_while_its_parts_get_names_goes_on(records, right, array, disk):
    job = start(*split_words(records, disk, array))
    stop_where(job, disk, lambda manifest: manifest["all_read"] and len(manifest["split"]["done"]) == 64)
    kill(job)
    (kept,) = job_directories(disk)
    manifest = json.loads((kept / "manifest.json").read_text().splitlines()[0])
    for part in range(20):
        temporary = manifest["split"]["temporaries"][part]
        if os.path.exists(temporary):
            os.rename(temporary, disk / f"out-{part:02}")
    run("sort", "--resume", str(kept))
    assert parts_in(disk) == right


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("point", [in_first_pass, in_last_pass], ids=lambda point: point.__name__)
def test_a_signal_leaves_nothing(point, name, records, array, disk):
    job = start(*split_words(records, disk, array))
    stop_where(job, disk, point)
    end_by(job, getattr(signal, name))
    assert job.returncode == -getattr(signal, name)
    assert leftovers(disk) == []


def test_a_stopped_split_is_kept_on_request(records, right, array, disk):
    job = start(*split_words(records, disk, array, "--keep-on-interrupt"))
    stop_where(job, disk, in_last_pass)
    told = end_by(job, signal.SIGINT)
    (kept,) = job_directories(disk)
    assert f"ascot sort --resume {kept}" in told
    run("sort", "--resume", str(kept))
    assert parts_in(disk) == right
    assert leftovers(disk) == [f"out-{at:02}" for at in range(64)]


def test_a_killed_split_can_be_cleaned_up(records, array, disk):
    kept = killed_in_last_pass(records, disk, array)
    assert f"ascot sort --resume {kept}" in run("clean", "--dry-run", str(disk)).stdout.decode()
    run("clean", str(disk))
    assert leftovers(disk) == []


def killed_in_last_pass(records, disk, array):
    job = start(*split_words(records, disk, array))
    stop_where(job, disk, in_last_pass)
    kill(job)
    (kept,) = job_directories(disk)
    return kept


def damage(manifest):
    text = manifest.read_bytes()
    manifest.write_bytes(text[: len(text) // 2] + b"x" + text[len(text) // 2 + 1 :])


def test_a_damaged_manifest_is_refused(records, array, disk):
    kept = killed_in_last_pass(records, disk, array)
    damage(kept / "manifest.json")
    told = run("sort", "--resume", str(kept), expect=2).stderr
    assert "its manifest is damaged" in told
    assert not list(disk.glob("out-*"))


def test_a_manifest_that_does_not_fit_its_split_is_refused(records, array, disk):
    """With a right checksum, but a file too few."""
    kept = killed_in_last_pass(records, disk, array)
    path = kept / "manifest.json"
    manifest = json.loads(path.read_text().splitlines()[0])
    manifest["runs"].pop()
    line = json.dumps(manifest).encode()
    path.write_bytes(line + b'\n{"crc32":"%08x"}\n' % zlib.crc32(line))
    told = run("sort", "--resume", str(kept), expect=2).stderr
    assert "its manifest is damaged" in told, told
    assert not list(disk.glob("out-*"))


def test_a_part_that_was_changed_is_refused(records, array, disk):
    kept = killed_in_last_pass(records, disk, array)
    manifest = json.loads((kept / "manifest.json").read_text().splitlines()[0])
    changed = manifest["split"]["temporaries"][manifest["split"]["done"][0]["part"]]
    shutil.copy(changed, f"{changed}.copy")
    os.replace(f"{changed}.copy", changed)
    told = run("sort", "--resume", str(kept), expect=2).stderr
    assert changed.rsplit("/", 1)[1] in told, told
    assert not list(disk.glob("out-*"))


def told_without_space(records, full, array, point):
    """What a split says whose disk fills up at `point`."""
    for _ in range(20):
        job = start(*split_words(records, full, array))
        stop_where(job, full, point)
        leave_free(full, 1 * MIB)
        job.send_signal(signal.SIGCONT)
        told = job.communicate(timeout=60)[1].decode()
        (full / "filler").unlink()
        if job.returncode == 2:
            return told
        # It was stopped so late that it needed no more space.
        assert job.returncode == 0, told
        for part in full.glob("out-*"):
            part.unlink()
    raise AssertionError("the split always ended before its disk was full")


@pytest.mark.privileged
def test_a_disk_that_fills_up_ends_the_split_cleanly(records, array, disk):
    """Free space is short from the start, or another program takes it: in the first pass, and in the last."""
    with small_disk(disk, 120 * MIB) as full:
        told = run(*split_words(records, full, array), expect=2).stderr
        assert "room" in told or "space" in told, told
        assert leftovers(full) == []
    (disk / "other").mkdir()
    with small_disk(disk / "other", 260 * MIB) as full:
        for point in (in_first_pass, in_last_pass):
            told = told_without_space(records, full, array, point)
            assert "room" in told or "space" in told, told
            assert leftovers(full) == []


# ---------------------------------------------------------------- distributions


def distribution(source, disk, array, *more, memory="16MiB"):
    words = ["sort", source, *FIXED, "--memory", memory, "--method", "distribute", "--volume", array()]
    return [*map(str, [*words, "--temp", disk, "-o", disk / "out", *more])]


@pytest.fixture(scope="module")
def large(module_disk):
    source = module_disk / "large.rec"
    if not source.exists():
        run("gen", "2M", "-o", source)
    run("sort", str(source), *FIXED, "--memory", "512MiB", "-o", str(module_disk / "large.sorted"))
    return source, digest(module_disk / "large.sorted")


def test_a_distribution_splits_in_the_passes_of_its_plan(large, array, disk):
    run(*distribution(large[0], disk, array, "--report", disk / "run.json"))
    assert digest(disk / "out") == large[1]
    report = json.loads((disk / "run.json").read_text())
    planned = {one["name"]: one for one in report["plan"]["chosen"]["passes"]}
    assert [step["name"] for step in report["passes"]] == list(planned) == ["split some", "split", "sort parts"]
    assert report["peak_disk_bytes"] <= report["predicted_peak_disk_bytes"]
    for step in report["passes"][:2]:
        switches = step["switches"] / step["times"]
        assert switches <= 1.10 * simulated(step), (step["name"], switches, simulated(step))
        assert abs(planned[step["name"]]["switches"] / step["switches"] - 1) <= 0.10, (planned, step["switches"])


@pytest.mark.parametrize("memory", ["16MiB", "64MiB"])
def test_sorting_parts_takes_two_switches_a_part(memory, large, array, disk):
    """One to read a part, one to write it: a part that is read in two turns takes three."""
    run(*distribution(large[0], disk, array, "--report", disk / "run.json", memory=memory))
    assert digest(disk / "out") == large[1]
    report = json.loads((disk / "run.json").read_text())
    planned = {one["name"]: one for one in report["plan"]["chosen"]["passes"]}["sort parts"]
    assert planned["switches"] == 2 * report["plan"]["chosen"]["pieces"]
    (step,) = [step for step in report["passes"] if step["name"] == "sort parts"]
    assert abs(step["switches"] / planned["switches"] - 1) <= 0.10, (planned, step)


def test_a_distribution_in_passes_is_stable_and_knows_frequent_keys(array, disk):
    rng = random.Random(4)
    lines = [f"{rng.choice([7, 7, rng.randrange(10**6)])} {at} {'x' * 20}\n" for at in range(1_100_000)]
    (disk / "in").write_text("".join(lines))
    words = ["sort", disk / "in", "-s", "-k1,1n", "--memory", "8MiB", "--method", "distribute", "--volume", array()]
    run(*map(str, [*words, "--temp", disk, "-o", disk / "out", "--report", disk / "run.json"]))
    assert "split some" in [step["name"] for step in json.loads((disk / "run.json").read_text())["passes"]]
    assert (disk / "out").read_text() == "".join(sorted(lines, key=lambda line: int(line.split()[0])))


def in_first_split(manifest):
    return manifest["groups"] and not manifest["all_read"]


def between_splits(manifest):
    return manifest["all_read"] and any(group["count"] > 1 for group in manifest["groups"][1:])


def after_splits(manifest):
    return manifest["output"] is not None


@pytest.mark.parametrize("point", [in_first_split, between_splits, after_splits], ids=lambda point: point.__name__)
def test_a_killed_distribution_in_passes_goes_on(point, large, array, disk):
    job = start(*distribution(large[0], disk, array))
    manifest = stop_where(job, disk, point)
    kill(job)
    (kept,) = job_directories(disk)
    run("sort", "--resume", str(kept), "--report", str(disk / "run.json"))
    assert digest(disk / "out") == large[1]
    assert leftovers(disk) == ["out", "run.json"]
    read = read_by_stream(json.loads((disk / "run.json").read_text()))
    if point is not in_first_split:
        assert read.get("input", 0) == 0
        left = sum(group["bytes"] for group in manifest["runs"])
        again = sum(run["bytes"] for run, group in zip(manifest["runs"], manifest["groups"], strict=False)
                    if group["count"] > 1)  # fmt: skip
        assert read["spills"] <= 1.02 * (left + again) + MIB
