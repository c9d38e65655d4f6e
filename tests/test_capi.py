"""The C library as a simulation uses it: installed, linked by pkg-config and CMake, written by eight MPI ranks
that act as four nodes; and the epochs that remain when a rank dies, abandons, or has a full disk."""

import json
import os
import random
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from support import MIB, ROOT, run, small_disk

SOURCES = ROOT / "tests" / "capi"
CRATE = ROOT / "crates" / "ascot-capi"
STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic")
RANKS = 8
# Four nodes of two ranks, on any machine.
NODES = "ranks_per_node=2 batch=4KiB memory=16MiB"
# A rank that ends without telling MPI does not end the others.
RECOVERING = ("--mca", "orte_enable_recovery", "1", "--mca", "orte_abort_on_non_zero_status", "0")

needs_mpi = pytest.mark.skipif(not shutil.which("mpicc") or not shutil.which("mpirun"), reason="needs MPI")


def libraries():
    """The directory of the built library: $ASCOT_CAPI_DIR, or the debug build of this checkout."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    place = Path(os.environ.get("ASCOT_CAPI_DIR", target / "debug"))
    if not (place / "libascot.so").exists():
        pytest.exit(f"{place} has no libascot.so: cargo build -p ascot-capi, or set ASCOT_CAPI_DIR", returncode=2)
    return place


@pytest.fixture(scope="module")
def prefix(module_disk):
    """The library, installed."""
    command = [ROOT / "dev", "install-c", "prefix", libraries().resolve()]
    done = subprocess.run(command, cwd=module_disk, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return module_disk / "prefix"


def pkg_config(prefix, *arguments):
    environment = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
    done = subprocess.run(["pkg-config", *arguments, "ascot"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def compiled(program, command):
    done = subprocess.run([*map(str, command), "-o", str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program


@pytest.fixture(scope="module")
def many_ranks(prefix, module_disk):
    """The program of eight ranks, built as described in ascot_mpi.h."""
    flags, source = pkg_config(prefix, "--cflags", "--libs"), pkg_config(prefix, "--variable=mpi_source")
    command = ["mpicc", "-std=c11", "-D_POSIX_C_SOURCE=200809L", *STRICT, SOURCES / "many_ranks.c", *flags, *source]
    return compiled(module_disk / "many_ranks", command)


@pytest.fixture(scope="module")
def look_up(prefix, module_disk):
    """The program that prints the contents of a directory."""
    flags = pkg_config(prefix, "--cflags", "--libs")
    return compiled(module_disk / "look_up", ["cc", "-std=c11", *STRICT, SOURCES / "look_up.c", *flags])


def mpirun(program, *arguments, ranks=RANKS, timeout=120, options=()):
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", *options, "-n", str(ranks), str(program)]
    return subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, timeout=timeout)


# ---------------------------------------------------------------- one process


def test_c_and_cxx_by_pkg_config(prefix, disk):
    flags = pkg_config(prefix, "--cflags", "--libs")
    source = SOURCES / "one_process.c"
    for name, compiler in (("c", ["cc", "-std=c11", source]), ("cxx", ["c++", "-std=c++17", "-x", "c++", source])):
        plain = ["-x", "none"] if name == "cxx" else []
        program = compiled(disk / name, [*compiler, *STRICT, *plain, *flags])
        done = subprocess.run([program, disk / f"{name}.dir"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "0 failures\n"


@pytest.mark.parametrize("scheme", ["records", "pointers", "ranks"])
def test_a_value_longer_than_memory_is_read_part_by_part(prefix, disk, scheme):
    flags = pkg_config(prefix, "--cflags", "--libs")
    program = compiled(disk / "long_value", ["cc", "-std=c11", *STRICT, SOURCES / "long_value.c", *flags])
    value = random.Random(5).randbytes(1000).replace(b"\n", b".") * 57_000
    (disk / "in").write_bytes(b"aaaa first\nlong" + value + b"\nzzzz last\n")
    lines = ["--format", "lines", "--key", "0..4", "--scheme", scheme, "--memory", "24MiB"]
    run("index", "build", disk / "in", *lines, "-o", disk / "run.dir")
    done = subprocess.run([program, disk / "run.dir", "long"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    told = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert told["bytes"].split()[0] == str(len(value))
    assert int(told["peak"]) < (4 + 32) << 20


def test_the_header_stands_alone(disk):
    for compiler, suffix in (("cc", "c"), ("c++", "cc")):
        source = disk / f"alone.{suffix}"
        source.write_text("#include <ascot.h>\nint main(void) { return ASCOT_OK; }\n")
        compiled(disk / suffix, [compiler, *STRICT, f"-I{CRATE / 'include'}", source])


@pytest.mark.skipif(not shutil.which("strip") or not shutil.which("nm"), reason="needs binutils")
def test_the_installed_library_has_its_functions_and_no_debug_information(prefix):
    header = (CRATE / "include" / "ascot.h").read_text()
    inline = set(re.findall(r"static inline int (ascot_\w+)\(", header))
    wanted = set(re.findall(r"\b(ascot_\w+)\(", header)) - inline
    assert len(wanted) > 20
    for name, *options in (("libascot.so", "-D"), ("libascot.a",)):
        file = prefix / "lib" / name
        assert file.stat().st_size < (libraries() / name).stat().st_size
        sections = subprocess.run(["readelf", "-SW", file], capture_output=True, text=True).stdout
        assert ".debug_info" not in sections and ".debug_line" not in sections
        # Programs link a static library by its symbols, a shared one by those of its functions alone.
        assert (".symtab" in sections) == (name == "libascot.a")
        symbols = subprocess.run(["nm", "--defined-only", *options, file], capture_output=True, text=True).stdout
        assert wanted <= {line.split()[-1] for line in symbols.splitlines() if line.strip()}


def test_static_library(prefix, disk):
    static = [prefix / "lib" / "libascot.a", *pkg_config(prefix, "--variable=includedir")]
    private = re.search(r"Libs.private: (.*)", (prefix / "lib/pkgconfig/ascot.pc").read_text()).group(1).split()
    command = ["cc", "-std=c11", SOURCES / "one_process.c", f"-I{static[1]}", static[0], *private]
    done = subprocess.run([compiled(disk / "static", command), disk / "run.dir"], capture_output=True, text=True)
    assert done.stdout == "0 failures\n", done.stderr


@pytest.mark.skipif(not shutil.which("cmake"), reason="needs CMake")
def test_cmake_package(prefix, disk):
    (disk / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(user C)\nfind_package(Ascot 0.1 REQUIRED)\n"
        f"add_executable(shared {SOURCES / 'one_process.c'})\ntarget_link_libraries(shared Ascot::ascot)\n"
        f"add_executable(static {SOURCES / 'one_process.c'})\ntarget_link_libraries(static Ascot::static)\n"
    )
    for command in (["-S", disk, "-B", disk / "build", f"-DCMAKE_PREFIX_PATH={prefix}"], ["--build", disk / "build"]):
        done = subprocess.run(["cmake", *map(str, command)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    for name in ("shared", "static"):
        done = subprocess.run([disk / "build" / name, disk / f"{name}.dir"], capture_output=True, text=True)
        assert done.stdout == "0 failures\n", done.stderr


def test_cmake_refuses_another_version(prefix, disk):
    (disk / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(user C)\nfind_package(Ascot 7.0 REQUIRED)\n"
    )
    command = ["cmake", "-S", disk, "-B", disk / "build", f"-DCMAKE_PREFIX_PATH={prefix}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and "0.1.0" in done.stderr


# ---------------------------------------------------------------- the guide


def guide(language):
    """The blocks of the guide in a language."""
    text = (ROOT / "docs" / "simulations.md").read_text()
    return [found[1] for found in re.finditer(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]


# The code around the guide's program: its particles, and its error function.
AROUND = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
%(includes)s
static struct { uint64_t id; unsigned char state[48]; } particle[100];
static void fail(const char *text) { fprintf(stderr, "%%s\\n", text); MPI_Abort(MPI_COMM_WORLD, 1); }
int main(int argc, char **argv)
{
    int steps = 2, step, i, count = 100, provided, rank;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (i = 0; i < count; i++)
        particle[i].id = (uint64_t)(rank * count + i);
    {
%(body)s
    }
    MPI_Finalize();
    return 0;
}
"""


@needs_mpi
@pytest.mark.skipif(not shutil.which("cmake"), reason="needs CMake")
def test_the_program_of_the_guide_works(prefix, look_up, disk):
    """Built by its commands and by its CMakeLists.txt, it writes records that can be read."""
    (program,) = guide("c")
    includes, body = program.split("\n", 1)
    (disk / "my_sim.c").write_text(AROUND % {"includes": includes, "body": body})
    shell, cmake = (block for block in guide("") if "mpicc" in block or "find_package" in block)
    environment = {**os.environ, "PREFIX": str(prefix)}
    done = subprocess.run(["bash", "-ec", shell], cwd=disk, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (disk / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.13)\nproject(sim C)\n{cmake}")
    for command in (["-S", disk, "-B", disk / "build", f"-DCMAKE_PREFIX_PATH={prefix}"], ["--build", disk / "build"]):
        done = subprocess.run(["cmake", *map(str, command)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    for built in (disk / "my_sim", disk / "build" / "my_sim"):
        place = disk / f"of-{built.parent.name}"
        place.mkdir()
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", built]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        check_epochs(look_up, place / "run.dir", 2, 300)


# ---------------------------------------------------------------- eight ranks


def counts(done):
    numbers = re.search(r"records (\d+) off_node (\d+) bytes (\d+) local (\d+) memory (\d+)", done.stdout)
    assert numbers, done.stdout + done.stderr
    return dict(zip(("records", "off_node", "bytes", "local", "memory"), map(int, numbers.groups()), strict=True))


@needs_mpi
@pytest.mark.parametrize("route", ["direct", "three-hop"])
@pytest.mark.parametrize("scheme", ["records", "pointers", "ranks"])
def test_eight_ranks_on_four_nodes(many_ranks, look_up, disk, scheme, route):
    options = f"scheme={scheme} key=8 value=48 route={route} {NODES}"
    done = mpirun(many_ranks, disk / "run.dir", options, 3, 20_000)
    assert done.returncode == 0 and "all values found" in done.stdout, done.stdout + done.stderr
    found = counts(done)
    assert found["records"] == 60_000
    # Three of four keys go to another node; with three hops some pass through a representative first.
    travels = {"records": 56, "pointers": 20, "ranks": 9}[scheme]
    assert 0.95 < found["bytes"] / (0.75 * 60_000 * travels) < 1.5
    assert found["off_node"] > 0 and (found["local"] > 0) == (route == "three-hop")
    check_epochs(look_up, disk / "run.dir", 3, 20_000)


@needs_mpi
@pytest.mark.parametrize("scheme", ["records", "pointers", "ranks"])
def test_runs_restart_with_another_number_of_ranks(many_ranks, look_up, disk, scheme):
    """Each run restarts from the checkpoint before the last epoch and writes that epoch again."""
    directory = disk / "run.dir"
    directory.mkdir()
    for ranks, kept, epochs in ((4, 0, 2), (2, 1, 4), (6, 3, 5)):
        options = f"open=auto rollback={kept} scheme={scheme} key=8 value=48 {NODES}"
        done = mpirun(many_ranks, directory, options, epochs, 4000, ranks=ranks)
        assert done.returncode == 0 and "all values found" in done.stdout, done.stdout + done.stderr
        check_epochs(look_up, directory, epochs, 4000)
        assert run("index", "verify", directory).stdout.startswith(b"whole: ")
    shapes = json.loads(run("index", "info", directory, "--json").stdout)["manifest"]
    assert [(one["epochs"], one["partitions"]) for one in shapes["earlier"]] == [(1, 4), (3, 2)]
    assert shapes["layout"]["partitions"] == 6
    # And one process, with files.
    more = disk / "more.bin"
    more.write_bytes(b"".join(struct.pack("<Q48x", key) for key in range(4000)))
    alike = ["--format", "fixed:56", "--key", "0..8", "--open", "auto", "-o", directory]
    run("index", "build", more, *alike)
    check_epochs(look_up, directory, 6, 4000)
    other = {"records": "ranks", "pointers": "records", "ranks": "records"}[scheme]
    done = mpirun(many_ranks, directory, f"append=yes scheme={other} key=8 value=48 {NODES}", 7, 4000, ranks=2)
    assert "ASCOT_INVALID" in done.stderr and f"directory was made with scheme {scheme}" in done.stderr, done.stderr
    check_epochs(look_up, directory, 6, 4000)


@needs_mpi
@pytest.mark.parametrize("mode", ["auto", "create", "append"])
def test_a_job_killed_in_its_first_epoch_can_restart(many_ranks, look_up, disk, mode):
    options = f"scheme=ranks key=8 value=48 {NODES}"
    assert mpirun(many_ranks, disk / "run.dir", f"open=auto {options}", 1, 2000, "die", 1, ranks=4).returncode != 0
    check_epochs(look_up, disk / "run.dir", 0, 2000)
    done = mpirun(many_ranks, disk / "run.dir", f"open={mode} {options}", 2, 2000, ranks=2)
    assert done.returncode == 0 and "all values found" in done.stdout, done.stdout + done.stderr
    check_epochs(look_up, disk / "run.dir", 2, 2000)


@needs_mpi
def test_nodes_found_by_mpi(many_ranks, disk):
    """All ranks are on one node here, so no message leaves it."""
    done = mpirun(many_ranks, disk / "run.dir", "key=8 value=48 memory=16MiB", 2, 5000)
    assert done.returncode == 0, done.stderr
    assert counts(done)["off_node"] == 0


@needs_mpi
def test_three_hops_need_fewer_buffers(many_ranks, disk):
    """With twelve ranks, four on a node, a rank has at most 3 + 3 + 1 connections; direct has 11."""
    memory = {}
    for route in ("direct", "three-hop"):
        options = f"key=8 value=48 route={route} ranks_per_node=4 batch=64KiB memory=16MiB spare=0"
        done = mpirun(many_ranks, disk / route, options, 1, 4000, ranks=12)
        memory[route] = counts(done)["memory"]
    assert memory["three-hop"] < memory["direct"]


@needs_mpi
def test_a_killed_rank_leaves_earlier_epochs(many_ranks, look_up, disk):
    done = mpirun(many_ranks, disk / "run.dir", f"scheme=ranks key=8 value=48 {NODES}", 3, 20_000, "die", 5)
    assert done.returncode != 0
    check_epochs(look_up, disk / "run.dir", 2, 20_000)


@needs_mpi
def test_the_others_learn_of_a_rank_that_abandons(many_ranks, look_up, disk):
    options = f"scheme=records key=8 value=48 patience=30 {NODES}"
    done = mpirun(many_ranks, disk / "run.dir", options, 2, 20_000, "quit", 6)
    assert done.returncode != 0
    assert "ASCOT_PEER" in done.stderr and "rank 6" in done.stderr, done.stderr
    check_epochs(look_up, disk / "run.dir", 1, 20_000)


@needs_mpi
@pytest.mark.parametrize("who", [0, 1, 6])
def test_the_others_learn_of_a_rank_that_leaves_after_an_epoch(many_ranks, look_up, disk, who):
    options = f"scheme=records key=8 value=48 {NODES}"
    done = mpirun(many_ranks, disk / "run.dir", options, 1, 2000, "leave", who, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"ASCOT_PEER: rank {who} gave up") == RANKS - 1, done.stderr
    check_epochs(look_up, disk / "run.dir", 1, 2000)


@needs_mpi
@pytest.mark.parametrize(
    ("mode", "own", "others", "said"),
    [
        ("differ", "ASCOT_INVALID", "ASCOT_INVALID", "rank 5 has batch=8192 and rank 2 has batch=32768"),
        ("cannot", "ASCOT_INVALID", "ASCOT_PEER", "batch=lots: bytes are wanted"),
    ],
)
def test_all_ranks_learn_at_once_of_a_rank_with_other_options(many_ranks, disk, mode, own, others, said):
    # Only rank 5 gets this option.
    options = "scheme=records key=8 value=48 memory=16MiB ranks_per_node=2"
    done = mpirun(many_ranks, disk / "run.dir", options, 1, 2000, mode, 5, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = sorted(line for line in done.stderr.splitlines() if line.startswith("rank "))
    assert len(lines) == RANKS and all(said in line for line in lines), done.stderr
    assert all((own if rank == 5 else others) in line for rank, line in enumerate(lines)), done.stderr
    assert not (disk / "run.dir").exists()


@needs_mpi
def test_a_killed_rank_when_mpi_does_not_end_the_others(many_ranks, look_up, disk):
    """MPI does not report it; the others stop when they have received nothing for `patience=` seconds."""
    options = f"scheme=records key=8 value=48 patience=2 {NODES}"
    done = mpirun(many_ranks, disk / "run.dir", options, 2, 20_000, "die", 3, options=RECOVERING, timeout=60)
    assert "all values found" not in done.stdout
    assert "ASCOT_PEER" in done.stderr and "no word for 2 s" in done.stderr, done.stderr
    check_epochs(look_up, disk / "run.dir", 1, 20_000)


@needs_mpi
@pytest.mark.parametrize("single_copy", ["cma", "none"])
@pytest.mark.parametrize("who", [0, 2])
def test_all_others_name_a_rank_that_dies_during_large_messages(many_ranks, look_up, disk, who, single_copy):
    """MPI sends a batch of 256 KiB after its head; only heads arrive from a dead sender."""
    patience, ranks = 2, 4
    options = f"scheme=records key=8 value=48 memory=32MiB batch=256KiB route=direct patience={patience}"
    mca = (*RECOVERING, "--mca", "btl_vader_single_copy_mechanism", single_copy)
    arguments = (disk / "run.dir", options, 2, 240_000, "vanish", who)
    done = mpirun(many_ranks, *arguments, ranks=ranks, options=mca, timeout=60)
    lines = sorted(line for line in done.stderr.splitlines() if line.startswith("rank "))
    assert len(lines) == ranks - 1, done.stdout + done.stderr
    for line in lines:
        assert "ASCOT_PEER" in line and f"no word for {patience} s from rank {who};" in line, done.stderr
    check_epochs(look_up, disk / "run.dir", 1, 240_000)


@needs_mpi
@pytest.mark.privileged
def test_a_full_disk_stops_all_ranks_at_the_same_epoch(many_ranks, look_up, disk):
    with small_disk(disk, 48 * MIB) as mount:
        options = f"scheme=ranks key=8 value=48 {NODES}"
        done = mpirun(many_ranks, mount / "run.dir", options, 0, 60_000, "fill")
        assert done.returncode == 0, done.stdout + done.stderr
        first, last = map(int, re.search(r"epochs (\d+) to (\d+)", done.stdout).groups())
        assert first == last and first > 0
        assert done.stderr.count("no space left") == RANKS, done.stderr
        check_epochs(look_up, mount / "run.dir", first, 60_000)


@needs_mpi
def test_two_jobs_on_one_directory(many_ranks, disk):
    options = f"key=8 value=48 {NODES}"
    assert mpirun(many_ranks, disk / "run.dir", options, 1, 1000).returncode == 0
    done = mpirun(many_ranks, disk / "run.dir", options, 1, 1000)
    assert done.returncode != 0
    # Another rank may end the job before the message of rank 0 is out; it has its text.
    assert re.search("ASCOT_EXISTS|ASCOT_PEER: rank 0 failed", done.stderr), done.stderr
    assert "exists already" in done.stderr, done.stderr


@needs_mpi
def test_the_particles_example(prefix, disk):
    """The example simulates, writes and searches both ways, and compares the results itself."""
    settings = [f"BUILD={disk}", "COLUMNS=32", "ROWS=16", "SIMULATE=--steps 60 --every 10 --pairs 8 --top 6"]
    environment = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
    command = ["make", "-C", ROOT / "examples" / "particles", "run", *settings]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "by index: 42 points of 6 particles" in done.stdout, done.stdout
    changes = [float(found) for found in re.findall(r"changed by ([-+.\d]+)%", done.stdout)]
    assert len(changes) == 14 and all(abs(change) < 0.5 for change in changes), "energy is kept"
    assert int(re.search(r"(\d+) moves to another rank", done.stdout).group(1)) > 1000
    assert (disk / "trajectories.svg").read_text().count("<circle") == 6


def check_epochs(look_up, path, epochs, keys):
    """The directory contains exactly the complete epochs."""
    asked = (0, 17, keys - 1)
    done = subprocess.run([look_up, path, *map(str, asked)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    told = " ".join(map(str, range(epochs)))
    lines = [f"epochs {epochs} records {epochs * keys}", *(f"{key}: {told}".strip() for key in asked)]
    assert [line.strip() for line in done.stdout.splitlines()] == lines


# ---------------------------------------------------------------- streams of elements


@pytest.fixture(scope="module")
def streams(prefix, module_disk):
    """The program that writes and reads a file element by element."""
    flags = pkg_config(prefix, "--cflags", "--libs")
    return compiled(module_disk / "streams", ["cc", "-std=c11", *STRICT, SOURCES / "streams.c", *flags])


def stream(program, *arguments, before=()):
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries())}
    command = [*before, str(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


RECORD = 12
KINDS = {
    "kind=plain": RECORD,
    "": 8192,
    "kind=sized block=1000": 1000,
    "kind=sized block=5": 5,
    "kind=mapped block=10000": 10_000,
    "kind=direct block=4KiB depth=3": 4096,
}


@pytest.mark.parametrize("writing", KINDS)
def test_elements_pass_from_c_to_a_file_and_back(streams, tmp_path, writing):
    for reading in KINDS:
        for count in (0, 1, 5000):
            done = stream(streams, tmp_path / "file", count, writing, reading)
            assert done.returncode == 0, (reading, done.stderr)
            requests = [-(-RECORD * count // KINDS[kind]) for kind in (writing, reading)]
            assert done.stdout.split() == [*map(str, requests), str(count)], reading
            assert (tmp_path / "file").stat().st_size == RECORD * count


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("kind=odd", "kind=odd: it can be plain, buffered, sized, mapped, direct"),
        ("kind=sized", "kind=sized needs block=BYTES"),
        ("kind=plain block=8KiB", "kind=plain has no block="),
        ("kind=sized block=8KiB depth=2", "kind=sized has no depth="),
        ("kind=direct block=1000", "multiple of 4096"),
        ("memory=1", 'there is no option "memory"'),
    ],
)
def test_wrong_options_of_a_stream_are_explained(streams, tmp_path, options, text):
    done = stream(streams, tmp_path / "file", 1, options, "")
    assert done.returncode == 1 and text in done.stderr
    assert not (tmp_path / "file").exists()


def test_a_missing_directory_is_named(streams, tmp_path):
    done = stream(streams, tmp_path / "no" / "file", 1, "", "")
    assert done.returncode == 1 and str(tmp_path / "no") in done.stderr


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_a_plain_stream_makes_one_system_call_of_any_kind_for_each_element(streams, tmp_path):
    def calls(kind, count):
        table = tmp_path / "calls"
        done = stream(streams, tmp_path / "file", count, kind, kind, before=["strace", "-f", "-c", "-o", str(table)])
        assert done.returncode == 0, done.stderr
        total = [line.split() for line in table.read_text().splitlines() if line.endswith("total")]
        return int(total[0][2 if len(total[0]) < 6 else 3])

    # A call to write each element, and one to read it.
    assert calls("kind=plain", 3000) - calls("kind=plain", 1000) == 2 * 2000
    assert calls("", 3000) - calls("", 1000) < 20


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "direct" not in kind])
def test_the_requests_that_a_stream_counts_are_those_that_the_kernel_sees(streams, tmp_path, kind):
    """System calls and windows of the file itself; io_uring, of direct streams, is not visible to strace."""
    log = tmp_path / "log"
    traced = ["strace", "-f", "-y", "-e", "trace=read,write,pread64,pwrite64,mmap", "-o", str(log)]
    done = stream(streams, tmp_path / "file", 5000, kind, kind, before=traced)
    assert done.returncode == 0, done.stderr
    written, read = map(int, done.stdout.split()[:2])
    calls = [line for line in log.read_text().splitlines() if f"<{tmp_path / 'file'}>" in line]
    windows = [line for line in calls if "mmap(" in line]
    if "mapped" in kind:
        assert len(windows) == written + read == 12
    else:
        assert not windows
        assert len([line for line in calls if "write" in line]) == written
        assert len([line for line in calls if "read" in line]) == read


def test_files_of_other_lengths_and_elements_of_other_sizes(streams, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(bytes(1 << 20))
    for element_bytes in (1, 4, 4096, 1 << 20):
        done = stream(streams, file, element_bytes, "kind=sized block=1000")
        assert done.stdout.split() == [str((1 << 20) // element_bytes)], done.stderr
    for element_bytes, text in ((0, "from 1 byte to 1 MiB"), (3, "not a multiple of 3 bytes"), (2 << 20, "1 MiB")):
        done = stream(streams, file, element_bytes, "")
        assert done.returncode == 1 and text in done.stderr
    done = stream(streams, file.with_name("none"), 4, "")
    assert done.returncode == 1 and "none" in done.stderr


def test_pointers_that_left_their_block_are_refused(streams, tmp_path):
    done = stream(streams, tmp_path / "file")
    assert done.returncode == 0, done.stderr


def test_a_file_on_a_volume_that_is_almost_full_is_exact_or_an_error(streams, disk):
    """An allocation ahead that fails may extend a file: a mapped stream cuts it off again, also at a window's end."""
    count = 16_384 * 14  # 42 windows: the file ends with one of them, and not with an allocation of a MiB
    exact = 0
    with small_disk(disk, 16 * MIB) as small:
        file, ballast = small / "file", small / "ballast"
        for kib in range(0, 520, 24):
            free = os.statvfs(small).f_bavail * os.statvfs(small).f_frsize
            with open(ballast, "wb") as taken:
                os.posix_fallocate(taken.fileno(), 0, free - RECORD * count - kib * 1024)
            done = stream(streams, file, count, "kind=mapped block=64KiB", "")
            if done.returncode == 0:
                exact += 1
                assert file.stat().st_size == RECORD * count, kib
            else:
                assert "no space left" in done.stderr, (kib, done.stderr)
            file.unlink()
            ballast.unlink()
    assert exact > 8


def test_a_full_volume_is_reported_to_c(streams, disk):
    with small_disk(disk, 4 * MIB) as small:
        for kind in ("kind=plain", "", "kind=mapped block=64KiB", "kind=direct block=64KiB"):
            done = stream(streams, small / "file", 1_000_000, kind, "")
            assert done.returncode == 1 and "no space left" in done.stderr, (kind, done.stderr)
            (small / "file").unlink()
