"""The Python package in a notebook: the example notebook, its bar of progress, and interrupts of the kernel."""

import os
import re
import time
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient
from support import ROOT, leftovers

NOTEBOOK = ROOT / "examples" / "python" / "ascot.ipynb"
SECONDS = 120


@pytest.fixture
def kernel(disk, tmp_path, monkeypatch):
    """A client of a kernel that runs in the directory `disk`, and its process id."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    manager, client = start_new_kernel(cwd=str(disk))
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


class Cell:
    """A cell that runs in a kernel, and what it shows."""

    def __init__(self, client, code):
        self.client, self.messages = client, []
        self.number = client.execute(code)

    def until(self, found):
        """Collects messages until `found` is true of one, and returns that one."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            message = self.client.get_iopub_msg(timeout=SECONDS)
            if message["parent_header"].get("msg_id") == self.number:
                self.messages.append((message["msg_type"], message["content"]))
                if found(*self.messages[-1]):
                    return self.messages[-1][1]
        raise TimeoutError(self.messages)

    def end(self):
        self.until(lambda kind, content: kind == "status" and content["execution_state"] == "idle")
        return self

    def html(self):
        kinds = ("display_data", "update_display_data")
        return [content["data"].get("text/html") for kind, content in self.messages if kind in kinds]

    def text(self):
        return "".join(content["text"] for kind, content in self.messages if kind == "stream")


def outputs_of(book, words):
    """The outputs, as text by type, of the cell whose code has these words."""
    (cell,) = [cell for cell in book.cells if cell.cell_type == "code" and words in cell.source]
    found = {}
    for output in cell.outputs:
        for kind, content in output.get("data", {"text/plain": output.get("text", "")}).items():
            found[kind] = found.get(kind, "") + content
    return found


def test_the_example_notebook_runs_and_shows_its_results(disk, tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    book = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in book.cells), "the file has no outputs: they are made here"
    NotebookClient(book, timeout=SECONDS, resources={"metadata": {"path": str(disk)}}).execute()
    assert outputs_of(book, "ascot.gen(")["text/plain"] == "40000000"
    report = outputs_of(book, 'to="sorted.rec"')
    assert "<table>" in report["text/html"] and "sorted 400,000 records" in report["text/html"]
    assert outputs_of(book, "print(job.report)")["text/plain"].startswith("sorted 400,000 records, 40.0 MB, in ")
    plan = outputs_of(book, "ascot.plan.sort(")
    moved = [float(terabytes) for terabytes in re.findall(r"([\d.]+) TB", plan["text/html"])]
    assert moved and min(moved) >= 16.0 and "merge" in plan["text/html"], "all methods move 8 TB twice or more"
    assert outputs_of(book, '"tenant"')["text/plain"] == "{'tenant': ['blue', 'red', 'red'], 'ts': [12, 5, 3]}"
    assert outputs_of(book, "ascot.view(")["text/plain"] == "(400000, 300, [True, True])"
    assert outputs_of(book, "index.get_batch")["text/plain"] == "(['key', 'epoch', 'value'], 20)"
    for chart in ("plt.plot(", "job.report.plot()"):
        assert len(outputs_of(book, chart)["image/png"]) > 4000
    assert sorted(os.listdir(disk)) == ["events.rec", "events.view", "particles.dir", "sorted.rec"]


LARGE = """
import ascot, os, time
ascot.gen(3_000_000, to="large")
records = ascot.Fixed(100, key=slice(0, 10))
print("made", os.getpid())
"""
# The bar appears early in a sort: the interrupt must not come when the result has its name already.
ENDLESS = """
from ascot import progress
progress._FIRST_SECONDS = 0.1
try:
    while True:
        ascot.sort("large", to="out", layout=records, memory="16MiB", progress="auto")
        os.remove("out")
except KeyboardInterrupt:
    print("at", time.time())
    raise
"""


@pytest.mark.alone
def test_an_interrupt_of_the_kernel_stops_the_job_and_the_kernel_lives_on(kernel, disk):
    manager, client = kernel
    assert "made" in Cell(client, LARGE).end().text()
    cell = Cell(client, ENDLESS)
    shown = cell.until(lambda kind, content: kind == "display_data")
    assert "<progress" in shown["data"]["text/html"]
    began = time.time()
    manager.interrupt_kernel()
    cell.end()
    assert float(cell.text().split()[1]) - began < 0.2
    errors = [content for kind, content in cell.messages if kind == "error"]
    assert [error["ename"] for error in errors] == ["KeyboardInterrupt"]
    assert cell.html()[-1] == "", "the bar is gone"
    assert leftovers(disk) == ["large"]
    again = Cell(client, "print(ascot.sort('large', to='out', layout=records).report.records_out)").end()
    assert again.text() == "3000000\n"


def test_a_long_job_has_a_bar_of_html_below_the_cell(kernel, disk):
    _, client = kernel
    Cell(client, LARGE).end()
    slow = """
from ascot import progress
progress._FIRST_SECONDS = 0.0
job = ascot.sort("large", to="out", layout=records, memory="16MiB", progress="auto")
"""
    cell = Cell(client, slow).end()
    bars = cell.html()
    kinds = [kind for kind, _ in cell.messages if "display_data" in kind]
    assert kinds[0] == "display_data" and set(kinds[1:]) == {"update_display_data"}, "one output, updated in place"
    assert len(bars) > 2 and bars[-1] == "" and all("<progress" in bar for bar in bars[:-1])
    assert any(" of 300 MB" in bar and "/s" in bar for bar in bars[:-1]), bars
    assert cell.text() == "" and not [content for kind, content in cell.messages if kind == "error"]


def test_a_short_job_and_no_progress_show_nothing(kernel, disk):
    _, client = kernel
    (Path(disk) / "in").write_text("b\na\n")
    code = "import ascot; ascot.sort('in', to='out', progress='auto'); ascot.sort('in', to='out');"
    cell = Cell(client, code).end()
    assert cell.html() == [] and cell.text() == "" and os.path.exists(disk / "out")
