"""The Python package: its stubs and types, its doctests, its examples, and the sessions of the guide."""

import doctest
import importlib
import inspect
import os
import pkgutil
import re
import struct
import subprocess
import sys

import ascot
import pytest
from ascot.layouts import Layout
from support import ROOT

MODULES = sorted({found.name for found in pkgutil.walk_packages(ascot.__path__, "ascot.")} - {"ascot._native"})
EXAMPLES = sorted((ROOT / "examples" / "python").glob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Modules whose public functions need no recorded trace, no second machine and no user.
WITH_EXAMPLES = {"batches", "estimates", "flows", "index", "jobs", "lab", "layouts", "plan", "session", "tables"}
WITH_EXAMPLES |= {"tools", "views"}
# Functions and methods that raise nothing of their own: they check no argument, and use no file.
RAISE_NOTHING = {
    "Batches.close",
    "ClusterReport.title",
    "ClusterReport.to_html",
    "ClusterReport.to_json",
    "FlowInput.close",
    "Index.close",
    "NodeShare.bound_by",
    "Phase.lines",
    "Phase.to_json",
    "Progress.share",
    "Report.title",
    "Series.add",
    "Series.column",
    "Series.from_json",
    "Series.last",
    "Series.rows",
    "Series.shift",
    "Series.to_json",
    "Settings.to_json",
    "Stage.shares",
    "Table.to_dict",
    "Table.to_list",
    "View.close",
}
OPTIONS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL


def public_functions():
    """The functions of the package and of its public modules, and the methods of their classes, with names."""
    modules = [ascot, *(getattr(ascot, name) for name in ("cluster", "index", "lab", "plan", "trace"))]
    for module in modules:
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isfunction(found):
                yield f"{module.__name__}.{name}", found
            # The methods of layouts are those that jobs call.
            elif inspect.isclass(found) and not issubclass(found, Layout):
                for method in inspect.classify_class_attrs(found):
                    own = method.defining_class.__module__.startswith("ascot")
                    if own and "method" in method.kind and not method.name.startswith("_"):
                        yield f"{name}.{method.name}", getattr(found, method.name)


def test_the_stub_of_the_extension_agrees_with_it(disk):
    command = [sys.executable, "-m", "mypy.stubtest", "ascot._native", "--ignore-disjoint-bases"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=disk)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_and_its_examples_are_typed(disk):
    for path in EXAMPLES:
        (disk / path.name).write_text(path.read_text())
    wrong = "import ascot\nascot.sort('a', to='b', memori=1)\nascot.sort(1, to='b').report.frob\n"
    wrong += "ascot.flow('a', None, lambda inputs: inputs[0].frob)\n"
    (disk / "wrong.py").write_text(wrong)
    right = "import ascot\nfile = open('a', 'rb')\n"
    right += "ascot.sort([file, file], to='o')\nascot.sort([b'x', b'y'], to='o')\nascot.check([b'x', b'y'])\n"
    right += "ascot.plan.merge([b'x', 'y', file])\nascot.plan.sort([file, file])\n"
    (disk / "right.py").write_text(right)
    check = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(disk / "cache")]
    done = subprocess.run([*check, "-p", "ascot"], capture_output=True, text=True, cwd=disk)
    assert done.returncode == 0, done.stdout
    names = [path.name for path in EXAMPLES]
    done = subprocess.run([*check, *names, "right.py", "wrong.py"], capture_output=True, text=True, cwd=disk)
    found = set(re.findall(r"^(\w+\.py):\d+: error", done.stdout, re.MULTILINE))
    assert found == {"wrong.py"} and len(re.findall(r": error", done.stdout)) == 4, done.stdout


@pytest.mark.parametrize("name", MODULES)
def test_doctests_run(name, disk, monkeypatch):
    monkeypatch.chdir(disk)
    monkeypatch.setattr("tempfile.tempdir", str(disk))
    module = importlib.import_module(name)
    failed, attempted = doctest.testmod(module, optionflags=OPTIONS)
    written = len(re.findall(r"^ *>>> ", inspect.getsource(module), re.MULTILINE))
    assert (failed, attempted) == (0, written)
    assert attempted > 0 or name.removeprefix("ascot.") not in WITH_EXAMPLES


def test_public_functions_and_classes_have_docstrings():
    for name in ascot.__all__:
        assert getattr(ascot, name).__doc__, name
    for name, called in public_functions():
        assert inspect.getdoc(called), name


def test_functions_name_their_exceptions():
    documented = {name: inspect.getdoc(called) for name, called in public_functions()}
    silent = {name for name, text in documented.items() if not re.search(r"\b[Rr]aises?\s", text)}
    assert silent == RAISE_NOTHING


def test_the_reference_is_that_of_the_docstrings():
    command = [sys.executable, ROOT / "tools" / "python_reference.py", "--print"]
    wanted = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    page = (ROOT / "docs" / "python" / "reference.md").read_text()
    assert page == wanted, "make it again: python tools/python_reference.py"
    for name in ascot.__all__:
        found = getattr(ascot, name)
        if not isinstance(found, type) or not issubclass(found, (Exception, Warning)):
            assert f"`ascot.{name}`" in page, name
    assert ascot.Batch.__doc__ in page and "`View.__getitem__`" in page


def test_the_settings_are_in_the_help_of_jobs_and_in_the_reference():
    page = (ROOT / "docs" / "python" / "reference.md").read_text()
    for name in ascot.Settings.__annotations__:
        assert f"    {name}: " in page and f"`{name}`" in ascot.Settings.__doc__ and f"`{name}`" in ascot.sort.__doc__


def check_routes(directory, said):
    """The files of the tenants have exactly the events of the days with a load of 50 or more."""
    days = [line for number in range(3) for line in (directory / f"day-{number}.csv").read_text().splitlines()[1:]]
    for tenant in ("red", "green", "blue"):
        wanted = sorted(day for day in days if day.startswith(f"{tenant},") and float(day.split(",")[2]) >= 50)
        found = (directory / f"{tenant}.csv").read_text().splitlines()
        assert found[0] == "tenant,event,load" and sorted(found[1:]) == wanted and wanted
        assert f"{tenant}: {len(wanted):,} events" in said


def check_means(directory, said):
    """Each of the 1,000 sensors has 100 readings, from 0 to 99."""
    wanted = [struct.pack(">I", sensor) + struct.pack("<dq", 49.5, 100) for sensor in range(1000)]
    assert (directory / "means").read_bytes() == b"".join(wanted)


def check_sorted(directory, said):
    records = [(directory / name).read_bytes() for name in ("events.rec", "sorted.rec")]
    source, target = ([data[at : at + 100] for at in range(0, len(data), 100)] for data in records)
    assert target == sorted(source, key=lambda record: record[:10]) and "is out of order, as it should be" in said


def check_particles(directory, said):
    places = [(one, step) for one in (7, 500) for step in range(5)]
    wanted = [f"particle {one} in step {step}: {one + step / 10:.1f} {-float(step):.1f}" for one, step in places]
    assert sorted(wanted) == sorted(line for line in said.splitlines() if line.startswith("particle"))


CHECKS = {
    "route_events": check_routes,
    "mean_of_sensors": check_means,
    "sort_with_progress": check_sorted,
    "follow_particles": check_particles,
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_run(path, disk):
    arguments = [disk / "run"] if path.stem == "follow_particles" else [disk, "100000"]
    command = [sys.executable, "-X", "dev", path, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout and not done.stderr.count("Warning"), done.stderr
    CHECKS[path.stem](disk, done.stdout)


def sessions(page):
    """The Python sessions of a page, as one."""
    return "\n".join(re.findall(r"^```pycon\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("page", [page for page in PAGES if sessions(page)], ids=lambda page: page.name)
def test_sessions_of_pages_run_as_shown(page, disk, monkeypatch):
    monkeypatch.chdir(disk)
    test = doctest.DocTestParser().get_doctest(sessions(page), {}, page.name, str(page), 0)
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    said = []
    runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)
    assert os.listdir(disk)
