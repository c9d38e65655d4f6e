"""Installs the C library: install_c.py LIBRARIES PREFIX.

LIBRARIES is the directory of cargo's libascot.so and libascot.a. The files below PREFIX are

    include/ascot.h, ascot_mpi.h        share/ascot/ascot_mpi.c
    lib/libascot.so -> .so.ABI -> .so.VERSION, libascot.a
    lib/pkgconfig/ascot.pc              lib/cmake/Ascot/

Libraries are installed without debug information ($STRIP names the program that removes it). Each file is written
under another name and renamed, so a linker never reads a partial file.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CRATE = ROOT / "crates" / "ascot-capi"
# Libraries that a program needs with libascot.a (rustc --print native-static-libs).
STATIC_LIBS = ("gcc_s", "util", "rt", "pthread", "m", "dl", "c")


def version():
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


def strip(library):
    """Removes debug information, which is most of a library."""
    program = os.environ.get("STRIP", "strip")
    if not shutil.which(program):
        print(f"{program} is missing: {library.name} keeps its debug information", file=sys.stderr)
        return
    what = "--strip-unneeded" if ".so" in library.name else "--strip-debug"
    subprocess.run([program, what, library], check=True)


def put(source, target, text=None):
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    if text is None:
        shutil.copyfile(source, beside)
    else:
        beside.write_text(text)
    if target.name.startswith("libascot"):
        strip(beside)
    beside.chmod(0o755 if ".so" in target.name else 0o644)
    beside.replace(target)


def link(target, name):
    beside = target.with_name(f".{name}.{os.getpid()}")
    beside.symlink_to(target.name)
    beside.replace(target.with_name(name))


def install(libraries, prefix):
    full = version()
    abi = full.split(".")[0]
    words = {
        "PREFIX": str(prefix), "VERSION": full, "ABI": abi,
        "STATIC_LIBS": " ".join(f"-l{name}" for name in STATIC_LIBS),
        "STATIC_LIBS_CMAKE": ";".join(STATIC_LIBS),
    }  # fmt: skip
    lib = prefix / "lib"
    put(libraries / "libascot.so", lib / f"libascot.so.{full}")
    link(lib / f"libascot.so.{full}", f"libascot.so.{abi}")
    link(lib / f"libascot.so.{abi}", "libascot.so")
    put(libraries / "libascot.a", lib / "libascot.a")
    put(CRATE / "include" / "ascot.h", prefix / "include" / "ascot.h")
    put(CRATE / "mpi" / "ascot_mpi.h", prefix / "include" / "ascot_mpi.h")
    put(CRATE / "mpi" / "ascot_mpi.c", prefix / "share" / "ascot" / "ascot_mpi.c")
    places = {"ascot.pc": lib / "pkgconfig"}
    for template in sorted((CRATE / "install").glob("*.in")):
        text = template.read_text()
        for word, value in words.items():
            text = text.replace(f"@{word}@", value)
        name = template.name.removesuffix(".in")
        put(template, places.get(name, lib / "cmake" / "Ascot") / name, text)


def main(arguments):
    if len(arguments) != 2:
        sys.exit(__doc__.splitlines()[0])
    libraries, prefix = Path(arguments[0]), Path(arguments[1]).absolute()
    if not (libraries / "libascot.so").exists():
        sys.exit(f"{libraries} has no libascot.so: cargo build --release -p ascot-capi")
    install(libraries, prefix)
    print(f"installed {prefix}/lib/libascot.so, and what pkg-config and CMake look for")


if __name__ == "__main__":
    main(sys.argv[1:])
