"""The files of deploy/: what can be checked without other machines and without Docker."""

import json
import os
import re
import shlex
import subprocess

import pytest
import yaml
from support import ROOT

DOCKERFILE = ROOT / "deploy" / "Dockerfile"
YAML = ROOT / "deploy" / "ray.yaml"
# Instructions of a Dockerfile.
KNOWN = {"FROM", "RUN", "COPY", "WORKDIR", "USER", "ENV"}


def instructions(text):
    """The instructions of a Dockerfile with their arguments."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [line.split(None, 1) for line in joined.splitlines() if line.strip()]


def test_the_image_is_built_by_commands_that_exist():
    found = instructions(DOCKERFILE.read_text())
    assert {name for name, _ in found} <= KNOWN
    stages = [index for index, (name, _) in enumerate(found) if name == "FROM"]
    assert len(stages) == 2 and found[0][1].endswith(" AS build")
    own = [words for name, line in found if name == "RUN" for words in [shlex.split(line)] if words[0] == "./dev"]
    # The wheel is that of users: its command is one of ./dev, and it lies where the second stage takes it from.
    assert own == [["./dev", "wheel"]]
    dev = (ROOT / "dev").read_text()
    assert "cmd_wheel() {" in dev and "wheels=$TARGET/wheels\n" in dev
    copied = [shlex.split(line) for name, line in found if name == "COPY"]
    assert copied == [[".", "."], ["--from=build", "/src/target/wheels/", "/tmp/wheels/"]]
    rust = re.search(r"rust-version = \"([\d.]+)\"", (ROOT / "Cargo.toml").read_text())[1]
    assert found[0][1].startswith(f"rust:{rust}-")
    project = (ROOT / "pyproject.toml").read_text()
    python = re.match(r"python:([\d.]+)-slim", found[stages[1]][1])[1]
    assert f'requires-python = ">={python}"' in project and "\ncluster = [" in project
    installs = [line for name, line in found[stages[1] :] if name == "RUN" and "pip install" in line]
    assert len(installs) == 1 and '/ascot-*.whl)[cluster]"' in installs[0]


@pytest.mark.parametrize(
    ("tag", "fails"),
    [
        ("manylinux_2_28_x86_64", False),
        ("manylinux_2_17_aarch64", False),
        ("manylinux_2_5_x86_64", False),
        ("manylinux_2_34_x86_64", True),
        ("musllinux_1_2_x86_64", True),
        ("linux_x86_64", True),
    ],
)
def test_a_wheel_that_needs_a_newer_system_is_an_error(tag, fails, disk):
    told = json.dumps({"wheel": "a.whl", "overall_tag": tag, "sym_tag": "manylinux_2_5_x86_64"})
    auditwheel = disk / "auditwheel"
    auditwheel.write_text(f"#!/bin/sh\necho {shlex.quote(told)}\n")
    auditwheel.chmod(0o755)
    script = (ROOT / "dev").read_text().rpartition("\ncommand=")[0]
    (disk / "dev").write_text(f'{script}\naudit_wheel "$1"\n')
    environment = {**os.environ, "PATH": f"{disk}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", disk / "dev", "a.whl"], capture_output=True, text=True, env=environment)
    assert (done.returncode != 0) == fails and tag in done.stdout + done.stderr, done


def test_what_the_image_is_built_from_is_not_ignored():
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert {".git", "target", ".venv"} <= set(ignored)
    for name in ("dev", "crates", "python", "tools", "Cargo.toml", "Cargo.lock", "pyproject.toml", "README.md"):
        assert (ROOT / name).exists() and name not in ignored


def prepared(text):
    """The configuration as `ray up` takes it, with its defaults."""
    util = pytest.importorskip("ray.autoscaler._private.util")
    config = util.prepare_config(yaml.safe_load(text))
    util.validate_config(config)
    return config


def test_ray_takes_the_configuration():
    config = prepared(YAML.read_text())
    assert config["provider"]["type"] == "local"
    assert config["max_workers"] == len(config["provider"]["worker_ips"])
    assert config["docker"]["image"] == "ascot-cluster" and "-t ascot-cluster " in DOCKERFILE.read_text()
    # Ray would take a third of the memory, which is then not there for workers.
    for commands in ("head_start_ray_commands", "worker_start_ray_commands"):
        assert "--object-store-memory=200000000" in config[commands][-1]


def test_a_wrong_configuration_is_refused():
    with pytest.raises(Exception, match="no_such_field"):
        prepared(YAML.read_text() + "\nno_such_field: 1\n")
