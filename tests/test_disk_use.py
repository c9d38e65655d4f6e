"""What a sort takes of the disk: no more than --explain says, and not much less; a disk as large as that will do."""

import json
import os
import random
import struct
import time

import pytest
from disk_observer import sort_watched
from support import MIB, job_directories, leftovers, run, small_disk, start

# What a small job may have been promised beside the twentieth: the room for its manifest and what is laid out ahead;
# with parts, the difference of a part to the largest that memory sorts, a fourth of the memory.
BESIDE_BYTES = 2 * MIB
SIZE = 24_000_000

FLAGS = {
    "u32": ["--format", "u32-le"],
    "u64": ["--format", "u64-le"],
    "f64": ["--format", "f64-le"],
    "fixed:100": ["--format", "fixed:100", "--key", "0..10"],
    "fixed:5000": ["--format", "fixed:5000", "--key", "0..10"],
    "lines": [],
    "skewed lines": [],
    "csv": ["--csv", "--header", "--key", "name"],
    "prefixed": ["--format", "prefixed:u32", "--key", "0..8"],
}
METHODS = {
    "merge": ["--method", "merge"],
    "merge by threes": ["--method", "merge", "--batch-size", "3"],
    "distribute": ["--method", "distribute"],
}


def make(name, rng):
    """About SIZE bytes of records."""
    if name.startswith(("u32", "u64", "fixed")):
        return rng.randbytes(SIZE // 5000 * 5000)
    if name == "f64":
        return b"".join(struct.pack("<d", rng.gauss(0, 1)) for _ in range(SIZE // 8))
    one = {
        "lines": lambda: b"%s\n" % rng.randbytes(rng.randrange(1, 40)).hex().encode(),
        # Long ones come first: parts by key differ in size.
        "skewed lines": lambda: b"%0*x\n" % (rng.randrange(1, 80), rng.getrandbits(60)),
        "csv": lambda: b'%d,"na,%x",%d\n' % (rng.getrandbits(30), rng.getrandbits(60), rng.getrandbits(16)),
        "prefixed": lambda: (lambda body: struct.pack("<I", len(body)) + body)(rng.randbytes(rng.randrange(8, 200))),
    }[name]
    out = bytearray(b"id,name,amount\n" if name == "csv" else b"")
    while len(out) < SIZE:
        out += one()
    return bytes(out)


@pytest.fixture(scope="module")
def files(module_disk):
    """A file of each layout, made when it is first asked for."""

    def file(name):
        path = module_disk / name
        if not path.exists():
            path.write_bytes(make(name, random.Random(name)))
        return path

    return file


def check_bound(seen, report, exact=True):
    told, predicted = report["peak_disk_bytes"], report["predicted_peak_disk_bytes"]
    assert seen <= told + MIB // 4, "the job's own account"
    assert seen <= predicted and told <= predicted, f"{max(seen, told) / predicted:.3f} of what was predicted"
    if exact:
        beside = BESIDE_BYTES
        if report["plan"]["chosen"]["method"] == "distribute":
            beside += report["memory_bytes"] // 4
        assert predicted <= 1.05 * told + beside, f"predicted {predicted}, taken {told}"


SEVERAL_PASSES = ["u64", "lines", "skewed lines"]


@pytest.mark.parametrize(
    ("layout", "method"),
    [
        (layout, method)
        for layout in FLAGS
        for method in METHODS
        if "threes" not in method or layout in SEVERAL_PASSES
    ],
)
def test_no_more_than_predicted(layout, method, files, disk, tmp_path):
    words = [files(layout), *FLAGS[layout], *METHODS[method], "--memory", "8MiB", "--threads", "2"]
    seen, report = sort_watched([*words, "-o", disk / "out", "--temp", disk], disk, tmp_path / "report.json")
    assert report["plan"]["chosen"]["pieces"] > 3
    check_bound(seen, report)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("memory", ["12MiB", "16MiB"])
def test_whatever_the_memory(memory, method, files, disk, tmp_path):
    words = [files("u64"), *FLAGS["u64"], *METHODS[method], "--memory", memory]
    seen, report = sort_watched([*words, "-o", disk / "out", "--temp", disk], disk, tmp_path / "report.json")
    check_bound(seen, report)


@pytest.mark.parametrize(
    "more",
    [
        ["--unique"],
        ["--compress", "lz4"],
        ["--compress", "zstd", "--method", "distribute"],
        ["--stable", "--method", "merge"],
    ],
    ids=" ".join,
)
def test_a_bound_where_less_may_be_taken(more, files, disk, tmp_path):
    words = [files("skewed lines"), *more, "--memory", "8MiB", "-o", disk / "out", "--temp", disk]
    check_bound(*sort_watched(words, disk, tmp_path / "report.json"), exact=False)


def test_several_places_and_parts(files, disk, tmp_path):
    for place in ("a", "b"):
        (disk / place).mkdir()
    words = [files("fixed:100"), *FLAGS["fixed:100"], "--memory", "8MiB"]
    places = ["--temp", disk / "a", "--temp", disk / "b"]
    for output in (["-o", disk / "out"], ["-o", disk / "part{}", "--parts", "5"]):
        for method in ("merge", "distribute"):
            check_bound(
                *sort_watched([*words, *places, *output, "--method", method], disk, tmp_path / "report.json"),
                exact=method == "merge",
            )
            for path in disk.glob("[op]*"):
                path.unlink()


def test_spills_alone_where_the_output_is_elsewhere(files, disk, tmp_path):
    words = [files("u64"), *FLAGS["u64"], "--memory", "8MiB", "--method", "merge", "--temp", disk]
    seen, report = sort_watched([*words, "-o", "/dev/null"], disk, tmp_path / "report.json")
    check_bound(seen, report)


@pytest.mark.parametrize("method", ["merge", "distribute"])
def test_what_is_left_out_takes_no_room(method, files, disk, tmp_path):
    words = [files("u64"), *FLAGS["u64"], "--memory", "8MiB", "--top", "100000", "--method", method]
    seen, report = sort_watched([*words, "-o", disk / "out", "--temp", disk], disk, tmp_path / "report.json")
    check_bound(seen, report, exact=False)
    assert method == "distribute" or seen < SIZE


@pytest.mark.parametrize(("layout", "is_estimate"), [("u64", False), ("lines", True)])
def test_an_estimate_is_called_one(layout, is_estimate, files, tmp_path):
    words = [files(layout), *FLAGS[layout], "--memory", "8MiB", "-o", tmp_path / "out"]
    for more, wanted in (([], False), (["--top", "1000"], is_estimate)):
        told, plan = explained([*words, *more], tmp_path / "plan.json")
        assert ("(an estimate: lengths vary)" in told, plan["disk_is_estimate"]) == (wanted, wanted)


@pytest.mark.parametrize("layout", ["u64", "lines", "fixed:100", "csv"])
@pytest.mark.parametrize("memory", ["8MiB", "64MiB"])
def test_a_view(layout, memory, files, disk, tmp_path):
    words = [files(layout), *FLAGS[layout], "--memory", memory, "--view", disk / "view"]
    seen, report = sort_watched(words, disk, tmp_path / "report.json")
    check_bound(seen, report)


def test_a_part_larger_than_memory_is_freed_as_it_is_sorted(files, disk, tmp_path):
    """Keys are sampled by records, and the long lines come first: the first parts are larger than memory sorts."""
    words = [files("skewed lines"), "--memory", "8MiB", "--method", "distribute", "--temp", disk, "-o", disk / "out"]
    seen, report = sort_watched(words, disk, tmp_path / "report.json")
    assert "form runs" in [step["name"] for step in report["passes"]]
    check_bound(seen, report)
    right = sorted(files("skewed lines").read_bytes().splitlines(keepends=True))
    assert (disk / "out").read_bytes() == b"".join(right)


# ---------------------------------------------------------------- a disk that is just large enough, or not


def leave_free(mount, wanted):
    """Fills a disk until no more than so many bytes are free."""
    left = os.statvfs(mount)
    filler = left.f_bavail * left.f_frsize - wanted
    with open(mount / "filler", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, filler)


def explained(words, report, status=0):
    told = run("sort", *words, "--explain", "--report", report, expect=status).stdout.decode()
    return told, json.loads(report.read_text())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("layout", ["u64", "skewed lines"])
def test_a_disk_as_large_as_predicted_will_do(layout, method, files, disk, tmp_path):
    with small_disk(disk, 80 * MIB) as mount:
        words = [
            files(layout),
            *FLAGS[layout],
            *METHODS[method],
            "--memory",
            "8MiB",
            "-o",
            mount / "out",
            "--temp",
            mount,
        ]
        _, plan = explained(words, tmp_path / "plan.json")
        # The file system's own: a block of extents for each file.
        leave_free(mount, plan["plan"]["chosen"]["peak_disk_bytes"] + 64 * 4096)
        run("sort", *words)
        assert (mount / "out").stat().st_size == files(layout).stat().st_size
        run("sort", "-c", mount / "out", *FLAGS[layout])


@pytest.mark.parametrize("method", ["merge", "distribute"])
def test_a_job_that_cannot_fit_is_refused(method, files, disk, tmp_path):
    with small_disk(disk, 80 * MIB) as mount:
        words = [
            files("u64"),
            *FLAGS["u64"],
            *METHODS[method],
            "--memory",
            "8MiB",
            "-o",
            mount / "out",
            "--temp",
            mount,
        ]
        _, plan = explained(words, tmp_path / "plan.json")
        # Enough for the spills, and for the output, but not for both as one becomes the other.
        leave_free(mount, plan["plan"]["chosen"]["disk"]["least_bytes"] - MIB // 2)
        told, plan = explained(words, tmp_path / "plan.json", status=2)
        assert "needed for spills and the output together" in told and f"free on {mount}" in told
        assert plan["shortage"]["needed_bytes"] == plan["plan"]["chosen"]["disk"]["least_bytes"]
        refused = run("sort", *words, expect=2).stderr
        assert "not enough room for spills and the output together" in refused and f"left on {mount}" in refused
        assert leftovers(mount) == ["filler"]
        # With the spills elsewhere it fits.
        run("sort", *words[:-1], tmp_path)
        (mount / "out").unlink()
        # So little that not even one of them fits.
        (mount / "more").write_bytes(bytes(8 * MIB))
        assert "no room" in explained(words, tmp_path / "plan.json", status=2)[0]


# ---------------------------------------------------------------- killed while something is half freed


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("merging", ["--method", "merge", "--batch-size", "2"]),
        ("merging", ["--method", "merge", "--batch-size", "2", "--unique"]),
        ("large", ["--method", "distribute"]),
        ("large", ["--method", "distribute", "--batch-size", "2", "--unique"]),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[2:]),
)
def test_a_job_killed_while_it_frees_goes_on(state, words, disk, tmp_path):
    rng = random.Random(11)
    # Of few values, so that some are equal; the long ones come first and make parts larger than memory.
    lines = [b"%0*x\n" % (rng.randrange(1, 80), rng.getrandbits(18)) for _ in range(600_000)]
    (tmp_path / "in").write_bytes(b"".join(lines))
    expected = b"".join(sorted(set(lines) if "--unique" in words else lines))
    command = ["sort", tmp_path / "in", "--memory", "8MiB", *words]
    command += ["--temp", disk, "-o", disk / "out"]
    kills = 0
    while kills < 4:
        process = start(*command)
        wait_for_state(process, disk, state, rng.random() * 0.1)
        process.kill()
        process.communicate()
        left = job_directories(disk)
        if not left:
            break
        kills += 1
        command = ["sort", "--resume", left[0]]
    if job_directories(disk):
        run(*command)
    assert kills > 0, "it was never seen in that state"
    assert (disk / "out").read_bytes() == expected
    assert leftovers(disk) == ["out"]


def wait_for_state(process, disk, state, seconds):
    """Waits until the manifest tells of something under way, and some time more; or until the job has ended."""
    while process.poll() is None:
        for directory in job_directories(disk):
            try:
                manifest = json.loads((directory / "manifest.json").read_text().splitlines()[0])
            except (OSError, ValueError, IndexError):
                continue
            if manifest[state]:
                time.sleep(seconds)
                return
        time.sleep(0.002)
