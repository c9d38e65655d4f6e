"""Builds the wheel: the backend that pyproject.toml names. It is maturin's, after the command is in its place.

The wheel carries the command as a script, so `pip install .` gives both the package and `ascot`. By default the
command is built with the profile of the extension; ASCOT_WHEEL_COMMAND names one that is built already.
"""

import os
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).resolve().parent.parent
# `data` of [tool.maturin].
SCRIPTS = ROOT / "target" / "wheel-data" / "scripts"


def place_command():
    """Puts the command where maturin finds it."""
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    built = os.environ.get("ASCOT_WHEEL_COMMAND")
    if built:
        shutil.copy2(built, SCRIPTS / "ascot")
        return
    # A build of a package installs no packages of the system.
    environment = {**os.environ, "ASCOT_NO_APT": "1", "ASCOT_PROFILE": "wheel"}
    subprocess.run(["bash", str(ROOT / "dev"), "install", str(SCRIPTS)], check=True, env=environment)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds the wheel."""
    place_command()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds a wheel that refers to the sources of this checkout."""
    place_command()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Writes the metadata of the wheel; maturin wants its data directory for that."""
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


if __name__ == "__main__":
    place_command()
