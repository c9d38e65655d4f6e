"""Directories that other users may write to: a file that another user puts in place of an output does not change.

The job runs as root and waits for its input, a pipe, while another user replaces its temporary file.
"""

import os
import stat
import subprocess
import time
from pathlib import Path

import pytest
from support import (
    TIMEOUT_SECONDS,
    ascot_binary,
    clean_environment,
    job_directories,
    kill,
    leftovers,
    run,
    start,
    stop_where,
)

OTHER_USER = 65534
TEXT = b"b\na\n"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as two users")


@pytest.fixture
def shared(disk):
    """A directory with mode 0777 that contains an old output of the other user, beside a secret of root."""
    disk.chmod(0o711)
    if subprocess.run(["test", "-x", disk], user=OTHER_USER, group=OTHER_USER, extra_groups=[], cwd="/").returncode:
        pytest.skip(f"the other user cannot enter {disk}: set ASCOT_TEST_DIR to a directory that all users can enter")
    shared = disk / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    secret = disk / "secret"
    secret.write_bytes(b"root's own")
    secret.chmod(0o600)
    out = shared / "out"
    out.write_bytes(b"the old result")
    os.chown(out, OTHER_USER, OTHER_USER)
    out.chmod(0o666)
    return shared


def as_other_user(code, *words):
    """Runs Python code as another user."""
    subprocess.run(
        ["python3", "-c", code, *map(str, words)], check=True, user=OTHER_USER, group=OTHER_USER, extra_groups=[],
        cwd="/",
    )  # fmt: skip


def waiting_job(shared, *words):
    """Starts a sort that has read TEXT and created its temporary output; returns the job and that file."""
    command = [ascot_binary(), "sort", "-", "-o", str(shared / "out"), "--memory", "16MiB", *map(str, words)]
    job = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment())
    # The job reads the start of its input before it creates a file.
    job.stdin.write(TEXT)
    job.stdin.flush()
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        found = list(shared.glob(".out.ascot-*.tmp"))
        if found:
            return job, found[0]
        time.sleep(0.005)
    raise AssertionError("the job has made no temporary file")


def is_untouched(secret):
    facts = secret.stat()
    mine = (facts.st_uid, facts.st_gid, stat.S_IMODE(facts.st_mode)) == (0, 0, 0o600)
    return mine and secret.read_bytes() == b"root's own"


REPLACE = {
    "link": "import os, sys; os.unlink(sys.argv[1]); os.symlink(sys.argv[2], sys.argv[1])",
    "file": "import os, sys; os.unlink(sys.argv[1]); open(sys.argv[1], 'w').write('planted')",
    "directory": "import os, sys; os.unlink(sys.argv[1]); os.mkdir(sys.argv[1])",
}


@pytest.mark.parametrize("by", REPLACE)
def test_a_temporary_file_that_was_replaced_is_left_alone(by, shared):
    secret = shared.parent / "secret"
    job, temporary = waiting_job(shared)
    as_other_user(REPLACE[by], temporary, secret)
    planted = os.lstat(temporary)
    told = job.communicate(timeout=TIMEOUT_SECONDS)[1].decode()
    assert job.returncode == 2, told
    assert "somebody put another in its place" in told and temporary.name in told
    assert is_untouched(secret), "the job does not write through the link"
    assert (shared / "out").read_bytes() == b"the old result"
    # The planted file is neither renamed nor removed nor changed.
    left = os.lstat(temporary)
    assert (left.st_ino, left.st_uid, left.st_mode) == (planted.st_ino, planted.st_uid, planted.st_mode)


def test_owner_and_mode_of_the_old_output_are_kept(shared):
    job, temporary = waiting_job(shared)
    assert temporary.stat().st_mode & 0o777 == 0o600, "the temporary file is private"
    told = job.communicate(timeout=TIMEOUT_SECONDS)[1].decode()
    assert job.returncode == 0, told
    facts = (shared / "out").stat()
    assert (facts.st_uid, facts.st_gid, stat.S_IMODE(facts.st_mode)) == (OTHER_USER, OTHER_USER, 0o666)
    assert (shared / "out").read_bytes() == b"a\nb\n"
    assert leftovers(shared) == ["out"]


SWAP = """
import os, sys
shared, secret = sys.argv[1:]
while True:
    for name in os.listdir(shared):
        if name.endswith(".tmp"):
            path = os.path.join(shared, name)
            try:
                os.unlink(path)
                os.symlink(secret, path)
            except OSError:
                pass
"""


def test_a_race_for_the_temporary_file_does_not_change_other_files(shared):
    """Another user replaces temporary files as fast as possible, whenever they appear."""
    secret = shared.parent / "secret"
    (shared / "in").write_bytes(TEXT * 1000)
    words = [ascot_binary(), "sort", str(shared / "in"), "-o", str(shared / "out")]
    rival = subprocess.Popen(
        ["python3", "-c", SWAP, str(shared), str(secret)], user=OTHER_USER, group=OTHER_USER, extra_groups=[], cwd="/"
    )
    out = shared / "out"
    try:
        for _ in range(60):
            out.unlink(missing_ok=True)
            out.write_bytes(b"the old result")
            os.chown(out, OTHER_USER, OTHER_USER)
            done = subprocess.run(words, capture_output=True, env=clean_environment(), timeout=TIMEOUT_SECONDS)
            assert is_untouched(secret)
            # If the link wins the race just before the rename, the job fails.
            if done.returncode == 0:
                assert not out.is_symlink() and out.read_bytes() == b"a\n" * 1000 + b"b\n" * 1000
            else:
                assert out.is_symlink() or out.read_bytes() == b"the old result"
    finally:
        rival.kill()
        rival.wait()


def test_a_log_is_not_written_through_a_link(shared):
    """Continuing an indexed directory does not truncate the target of a link."""
    secret, directory = shared.parent / "secret", shared / "run.dir"
    (shared / "in").write_bytes(TEXT * 100)
    build = ["index", "build", shared / "in", "--format", "fixed:2", "--key", "0..1", "-o", directory]
    run(*build)
    directory.chmod(0o777)
    log = max((path for path in directory.iterdir() if path.suffix == ".data"), key=lambda path: path.stat().st_size)
    as_other_user(REPLACE["link"], log, secret)
    secret.write_bytes(b"root's own" * 10_000)
    told = run(*build, "--append", expect=2).stderr
    assert log.name in told
    assert secret.read_bytes() == b"root's own" * 10_000


def test_resuming_refuses_another_unfinished_output(shared):
    """The unfinished output is replaced by another file of root before the resume."""
    records = shared.parent / "in"
    run("gen", "200k", "-o", records)
    words = ["sort", records, "--format", "fixed:100", "--key", "0..10", "--memory", "8MiB", "--method", "merge"]
    job = start(*words, "-o", shared / "out", "--temp", shared.parent)
    state = stop_where(job, shared.parent, lambda manifest: manifest["output"])
    kill(job)
    temporary = Path(state["temporary"])
    other = shared / "other"
    other.write_bytes(b"x" * temporary.stat().st_size)
    other.chmod(0o600)
    os.rename(other, temporary)
    told = run("sort", "--resume", job_directories(shared.parent)[0], expect=2).stderr
    assert "somebody put another in its place" in told and "--resume" in told
    assert set(temporary.read_bytes()) == {ord("x")}
    assert (shared / "out").read_bytes() == b"the old result"
