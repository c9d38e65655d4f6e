"""Fixtures of the end-to-end tests."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support import ROOT, same_everywhere

# A shell that runs the tests in the background ignores SIGINT, and every command they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Run the same examples every time, unless `./dev fuzz` searches for new ones.
settings.register_profile(
    "ascot",
    deadline=None,
    derandomize="ASCOT_FUZZ" not in os.environ,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("ascot")


# Also for tests that start the command in an environment of their own.
os.environ.update(same_everywhere())


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="also run the tests that take minutes")


def pytest_configure(config):
    if config.getoption("--long"):
        # 512 MB for each fault of a cluster.
        os.environ.setdefault("ASCOT_CLUSTER_RECORDS", "5120000")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--long"):
        for item in items:
            if "long" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="takes minutes: ./dev test --all"))


def disk_directory():
    """A directory on a real disk: ASCOT_TEST_DIR, or the build directory (/tmp may be memory)."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    place = Path(os.environ.get("ASCOT_TEST_DIR", target / "test-files"))
    place.mkdir(parents=True, exist_ok=True)
    return place


@pytest.fixture
def disk(request):
    """An empty directory on disk, removed after the test."""
    # No hyphen: a message with the path would seem to name an option.
    with tempfile.TemporaryDirectory(prefix="t_", dir=disk_directory()) as path:
        yield Path(path)


@pytest.fixture(scope="module")
def module_disk():
    """The same, shared by the tests of a file."""
    path = Path(tempfile.mkdtemp(prefix="m_", dir=disk_directory()))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def machines():
    """Nodes of Ray on this machine, which all tests share."""
    # Only tests that need a cluster load Ray.
    from ray_machines import started

    directory = tempfile.mkdtemp(prefix="c_", dir=disk_directory())
    with started(directory) as found:
        yield found
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def cluster(machines, request):
    """The same, as many as the mark of the test asks for; nodes that a test killed are replaced."""
    from ray_machines import NODES

    machines.resize(request.node.get_closest_marker("cluster").kwargs.get("nodes", NODES))
    yield machines
    machines.empty()
