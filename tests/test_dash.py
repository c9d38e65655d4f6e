"""`ascot dash`: the live page of cluster jobs in a browser, for screen readers and keyboards; and its control."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import ascot
import ascot.cluster
import pytest
from ascot import errors
from ascot.cluster import control, registry, series, watching
from page_browser import opened
from ray_machines import PAIR, RECORDS, assert_same, cluster_sort
from support import ascot_binary, run

pytestmark = pytest.mark.cluster(nodes=PAIR)

READY = "window.refreshed"
CONTROLS = ("button", "combobox", "link", "textbox", "image", "region", "navigation", "progressbar")


# The keys of the servers by their ports.
KEYS = {}


def address_of(port, path="/"):
    """The address of a page with its key."""
    return f"http://127.0.0.1:{port}{path}?key={KEYS[port]}"


@contextlib.contextmanager
def dash(*words):
    """A server of the command; its port, and its token or None."""
    # As after an installation: the Python of the tests has the package.
    environment = {**os.environ, "ASCOT_PYTHON": sys.executable, "PYTHONPATH": package_path()}
    command = [ascot_binary(), "dash", "--port", "0", *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        address, _, key = process.stdout.readline().strip().partition("?key=")
        port = int(address.rpartition(":")[2].strip("/"))
        KEYS[port] = key
        token = process.stdout.readline().split()[1] if "--control" in words else None
        yield port, token
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0


def package_path():
    return os.path.dirname(os.path.dirname(ascot.__file__))


def ask(port, path, fields=None, **headers):
    """The status and the body of an answer; `fields` make it a request to change something."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    usual = {"Host": f"127.0.0.1:{port}", "Content-Type": "application/json", "Cookie": f"ascot-{port}={KEYS[port]}"}
    with contextlib.closing(connection):
        body = None if fields is None else json.dumps(fields)
        wanted = {**usual, **{name.replace("_", "-"): value for name, value in headers.items()}}
        connection.request("GET" if fields is None else "POST", path, body, wanted)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.getheaders())


class Job(threading.Thread):
    """A sort in a thread, which waits in its second phase each time that it tells its progress."""

    def __init__(self, cluster, disk):
        super().__init__()
        self.cluster, self.disk = cluster, disk
        self.reached, self.permits, self.is_free = threading.Event(), threading.Semaphore(0), False
        self.done = self.error = None

    def progress(self, told):
        if told.phase == "map and shuffle":
            self.reached.set()
            while not self.is_free and not self.permits.acquire(timeout=0.1):
                pass

    def run(self):
        options = {"address": self.cluster.address, "progress": self.progress}
        try:
            self.done = cluster_sort(self.disk, self.disk / "a", **options)
        except errors.AscotError as error:
            self.error = error

    def go_on(self):
        self.is_free = True

    def __enter__(self):
        self.start()
        assert self.reached.wait(120)
        return self

    def __exit__(self, *_):
        self.go_on()
        self.join(120)


@pytest.fixture(autouse=True)
def state(monkeypatch, disk):
    """A list of jobs of its own for each test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(disk / "state"))


def wait_for(shown, script, seconds=60):
    end = time.monotonic() + seconds
    while not (value := shown.run(script)):
        if time.monotonic() >= end:
            print(shown.run("document.body.innerText"))
            pytest.fail(f"not within {seconds} s: {script}")
        time.sleep(0.1)
    return value


def identity_of(disk):
    return json.loads((disk / "out.job" / "job.json").read_text())["job"]


def cells(shown, identifier, column):
    return shown.run(
        f"[...document.querySelectorAll('#{identifier} tbody tr')].map((row) => row.cells[{column}].textContent)"
    )


def wait_for_cells(shown, identifier, column, wanted):
    """Waits for the cells of a column: those of a slow machine say for a moment that a node or a driver is silent."""
    end = time.monotonic() + 60
    while (found := cells(shown, identifier, column)) != wanted:
        assert time.monotonic() < end, found
        time.sleep(0.1)


def assert_light_and_dark(shown):
    grounds = []
    for scheme in ("dark", "light"):
        shown.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        grounds.append(shown.run("getComputedStyle(document.body).backgroundColor"))
    assert grounds[1] == "rgb(255, 255, 255)" != grounds[0]


def test_the_page_follows_a_job(cluster, disk):
    ascot.gen(200_000, to=disk / "a")
    with dash() as (port, _), Job(cluster, disk) as job:
        identity = identity_of(disk)
        with opened(address_of(port), ready=READY) as shown:
            assert_light_and_dark(shown)
            assert cells(shown, "running-jobs", 0) == [f"sort to {disk}/out"]
            wait_for_cells(shown, "running-jobs", 1, ["running"])
        with opened(address_of(port, f"/job/{identity}"), ready=READY) as shown:
            wait_for_cells(shown, "live-nodes", 1, ["live"] * PAIR)
            assert shown.run("document.querySelectorAll('button').length") == 0, "without --control it only shows"
            assert_light_and_dark(shown)
            wait_for(shown, "document.querySelector('main svg') !== null")
            assert_usable(shown)
            log = shown.run("document.getElementById('log').textContent")
            job.go_on()
            wait_for(shown, "document.getElementById('state').textContent.includes('finished')")
            assert shown.run("document.getElementById('log').textContent") != log
            # The report is stored after the state, and shown by a later request.
            wait_for(shown, "document.querySelector('#part-report #phases tbody tr') !== null")
        job.join(120)
        with opened(address_of(port), ready=READY) as shown:
            assert f"sort to {disk}/out" in cells(shown, "past-jobs", 0)
        assert_same(cluster, disk, job.done, disk / "a", layout=RECORDS)


def assert_usable(shown, image=True):
    nodes = shown.accessible()
    assert not [node for node in nodes if node[0].lower() in CONTROLS and not node[1]]
    wanted = {"main", "navigation", "banner", "heading", "status"} | ({"table", "image"} if image else set())
    assert wanted <= {role for role, _ in nodes}
    levels = shown.run("[...document.querySelectorAll('h1,h2,h3')].map((one) => +one.tagName[1])")
    assert levels[0] == 1 and all(after <= before + 1 for before, after in zip(levels, levels[1:]))  # noqa: B905, RUF007
    wanted = shown.run("document.querySelectorAll('a,button,input,select,textarea,.wide').length")
    # The page may change meanwhile: elements are counted, not their places.
    shown.run("window.reached = new Set(); 0")
    for _ in range(3 * wanted):
        shown.press("Tab")
        outline = shown.run(
            "(() => { const one = document.activeElement; return one === document.body ? null : "
            "(reached.add(one), getComputedStyle(one).outlineStyle); })()"
        )
        if outline is None:
            break
        assert outline == "solid", outline
    assert shown.run("reached.size") >= wanted


def test_the_token_stops_and_resumes_jobs_and_excludes_nodes(cluster, disk):
    ascot.gen(200_000, to=disk / "a")
    with dash("--control") as (port, token), Job(cluster, disk) as job:
        url = address_of(port, f"/job/{identity_of(disk)}")
        with opened(url, ready=READY) as shown:
            # Charts need a sample of a node.
            wait_for(shown, "document.querySelector('main svg') !== null")
            assert_usable(shown)
            click = "document.querySelector('button[data-do={}]').click()"
            # The browser reports that an answer was no success, as it should be here.
            shown.run(click.format("stop"))
            told = wait_for(shown, "document.getElementById('answer').textContent")
            assert "token is missing or wrong" in told
            assert not list((disk / "out.job").glob("request-*"))
            shown.complaints.clear()
            shown.run(f"document.getElementById('token').value = {token!r}")
            node = shown.run("document.getElementById('node').value")
            shown.run(click.format("exclude"))
            wait_for(shown, "document.getElementById('answer').textContent.includes('asked to exclude')")
            # The job takes the request in its next step, and must not end before it is stopped.
            job.permits.release()
            wait_for(shown, "[...document.querySelectorAll('#live-nodes td')].some((one) => "
                     "one.textContent === 'excluded')")  # fmt: skip
            shown.run(click.format("stop"))
            wait_for(shown, "document.getElementById('answer').textContent.includes('asked to stop')")
            job.go_on()
            wait_for(shown, "document.getElementById('state').textContent.includes('interrupted')")
            job.join(120)
            assert "stopped by a request" in str(job.error)
            status = json.loads((disk / "out.job" / "status.json").read_text())
            assert status["state"] == "interrupted" and "stopped by a request" in status["error"]
            excluded = [one["name"] for one in status["nodes"] if one["state"] == "excluded"]
            assert excluded == [node]
        with opened(url, ready=READY) as shown:
            # A request to the run that has ended does not stop the next one. The token is known to a tab alone.
            watching.ask(str(disk / "out.job"), "stop")
            assert shown.run("document.getElementById('token').value") == ""
            shown.run(f"document.getElementById('token').value = {token!r}")
            shown.run(click.format("resume"))
            wait_for(shown, "document.getElementById('answer').textContent.includes('being resumed')")
            wait_for(shown, "document.getElementById('state').textContent.includes('finished')", 120)
    assert ascot.check(sorted((disk / "out").iterdir()), layout=RECORDS).records == 200_000


def test_a_sort_is_started_by_the_form(cluster, disk):
    ascot.gen(20_000, to=disk / "a")
    with dash("--control") as (port, token), opened(address_of(port), ready=READY) as shown:
        fields = {"inputs": disk / "a", "output": disk / "out", "layout": "fixed", "length": "100", "start": "0",
                  "stop": "10", "address": cluster.address, "memory": "480MiB"}  # fmt: skip
        for name, value in {**fields, "output": ""}.items():
            shown.run(f"document.querySelector('[name={name}]').value = {str(value)!r}")
        shown.run(f"document.getElementById('token').value = {token!r}")
        shown.run("document.querySelector('button[data-do=start]').click()")
        wait_for(shown, "document.getElementById('answer').textContent.includes('name the inputs and the output')")
        shown.complaints.clear()
        shown.run(f"document.querySelector('[name=output]').value = {str(fields['output'])!r}")
        shown.run("document.querySelector('button[data-do=start]').click()")
        wait_for(shown, "document.getElementById('answer').textContent.includes('being started')")
        wait_for(shown, "document.getElementById('part-started').textContent.includes('sorted 20,000 records')", 120)
    assert ascot.check(sorted((disk / "out").iterdir()), layout=RECORDS).is_sorted


def test_disks_and_network_are_measured_from_the_page(cluster):
    with dash() as (port, _), opened(address_of(port), ready=READY) as shown:
        assert shown.run("document.querySelectorAll('button, input').length") == 0, "without --control it only shows"
        assert ask(port, "/control/diskbench", {}, Authorization="Bearer ")[0] == 403
    with dash("--control") as (port, token), opened(address_of(port), ready=READY) as shown:
        assert_usable(shown, image=False)
        press = "document.querySelector('button[data-do={}]').click()".format
        answer = "document.getElementById('answer').textContent"
        # The browser reports that an answer was no success, as it should be here.
        shown.run(press("diskbench"))
        wait_for(shown, f"{answer}.includes('token is missing or wrong')")
        shown.run(f"document.getElementById('token').value = {token!r}")
        fill = "document.querySelector('[name=bench_{}]').value = {!r}".format
        shown.run(fill("rounds", "many"))
        shown.run(press("diskbench"))
        wait_for(shown, f"{answer}.includes('Refused: Rounds: many')")
        values = {"address": cluster.address, "size": "2MiB", "request": "256KiB", "rounds": "1"}
        for name, value in values.items():
            shown.run(fill(name, value))
        shown.run(press("diskbench"))
        wait_for(shown, f"{answer}.includes('DiskBench is being started')")
        shown.run(press("netbench"))
        wait_for(shown, f"{answer}.includes('DiskBench on {cluster.address} is running')")
        shown.complaints.clear()
        wait_for(shown, "document.querySelector('#measured-1 tbody tr') !== null", 120)
        nodes = set(cells(shown, "measured-1", 0))
        assert len(nodes) == PAIR
        assert all(rate.endswith("B/s") for rate in column(shown, "measured-1", "rate"))
        shown.run(press("netbench"))
        wait_for(shown, "document.querySelector('#measured-2 tbody tr') !== null", 120)
        assert set(column(shown, "measured-2", "receiver")) == nodes
        assert set(column(shown, "measured-2", "sender")) == {*nodes, "all others"}
        assert all(rate.endswith("B/s") for rate in column(shown, "measured-2", "rate"))
        assert "all to all: " in shown.run("document.getElementById('part-started').textContent")
        # A measurement that fails says why, and another one may follow.
        shown.run(fill("address", "local:0"))
        shown.run(press("diskbench"))
        wait_for(shown, "document.getElementById('part-started').textContent.includes('failed with status 1')", 120)
        told = shown.run("document.querySelector('#part-started pre').textContent")
        assert "local:0" in told and "nodes on this machine" in told and "Traceback" not in told, told
    assert cluster.left_over() == []


def column(shown, identifier, head):
    """The cells of the column with this head."""
    heads = shown.run(f"[...document.querySelectorAll('#{identifier} thead th')].map((one) => one.textContent)")
    return cells(shown, identifier, heads.index(head))


# ---------------------------------------------------------------- who may ask


@pytest.fixture
def kept(disk):
    """The list of jobs with a job that runs, as far as its files say."""
    identity, place = "a" * 32, disk / "<b onclick=x>&.job"
    place.mkdir()
    samples = series.Series(4)
    for second in range(3):
        samples.add([second, *[0.5] * len(series.COLUMNS)])
    node = {"name": "n0", "state": "live", "reason": "", "quiet_seconds": 0.1, "workers": 1, "now": {}}
    status = {
        "version": 1, "job": identity, "kind": "sort", "state": "running", "error": "", "output": str(place)[:-4],
        "total_bytes": 10, "began": time.time(), "written": time.time() + 600,
        "driver": {"host": os.uname().nodename, "process": os.getpid()}, "phase": "start", "detail": "",
        "done_bytes": 0, "bytes_per_s": 0, "share": 0, "bound_by": "", "nodes": [node, {**node, "name": "n1"}],
        "phases": [], "series": {"n0": samples.to_json()}, "log": [[0.5, "<script>alert(1)</script>"]],
    }  # fmt: skip
    (place / "status.json").write_text(json.dumps(status))
    registry.keep(identity, {"state": "running", "error": "", "began": 1, "changed": 1, "log": [], "kind": "sort",
                             "directory": str(place), "output": status["output"], "report": None})  # fmt: skip
    return identity, place


def test_requests_need_the_token_and_come_from_the_page(kept):
    identity, place = kept
    stop = ("/control/stop", {"job": identity})

    def asked():
        return [json.loads(path.read_text()) for path in place.glob("request-*.json")]

    with dash() as (port, _):
        status, told, _ = ask(port, *stop, Authorization="Bearer ")
        assert (status, "only reads" in told, asked()) == (403, True, [])
    with dash("--control") as (port, token):
        good = {"Authorization": f"Bearer {token}"}
        for wrong in (
            {}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {token}x"}, {"Authorization": token},
            {"Authorization": f"Bearer {token[:-1]}"}, {**good, "Origin": "http://evil.example"},
            {**good, "Origin": "null"}, {**good, "Sec_Fetch_Site": "cross-site"},
            {**good, "Content_Type": "text/plain"}, {**good, "Host": f"evil.example:{port}"},
            {**good, "Host": "127.0.0.1"}, {**good, "Origin": f"http://127.0.0.1:{port + 1}"},
        ):  # fmt: skip
            status, told, _ = ask(port, *stop, **wrong)
            assert (status, asked()) == (403, []), (wrong, told)
        for name, fields in (("stop", {"job": "b" * 32}), ("stop", []), ("stop", {"job": 1}), ("other", {}),
                             ("exclude", {"job": identity, "node": "n7"}), ("resume", {"job": identity}),
                             ("start", {"inputs": "relative", "output": "/x"})):  # fmt: skip
            status, told, _ = ask(port, f"/control/{name}", fields, **good)
            assert status == 400 and "Refused" in told, (name, told)
        assert ask(port, "/control/stop", {"job": "x" * 70_000}, **good)[0] == 400
        assert asked() == []
        # Nothing is changed by a request to read.
        assert ask(port, f"/control/stop?job={identity}&token={token}", **good)[0] == 404
        status, told, _ = ask(port, *stop, **good, Origin=f"http://localhost:{port}")
        assert status == 200 and asked() == [{"request": "stop"}], told
        status, told, _ = ask(port, "/control/exclude", {"job": identity, "node": "n1"}, **good)
        assert status == 200 and {"request": "exclude", "node": "n1"} in asked()


def test_pages_answer_to_names_of_the_loopback_alone(kept):
    identity, _ = kept
    with dash() as (port, _):
        for path in ("/", "/parts", f"/job/{identity}", f"/job/{identity}/parts", "/style.css", "/live.js"):
            status, body, headers = ask(port, path)
            assert status == 200 and headers["X-Content-Type-Options"] == "nosniff", path
            assert "default-src 'none'" in headers["Content-Security-Policy"]
            assert "<script>alert" not in body and "<b onclick" not in body
            assert ask(port, path, Host=f"evil.example:{port}")[0] == 403
        for path in ("/x", "/job/../x", f"/job/{'b' * 32}", "//evil.example", "/live.js/../dash.py"):
            assert ask(port, path)[0] == 404
        # It listens on the loopback alone.
        listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        assert f"0100007F:{port:04X}" in listening and f"00000000:{port:04X}" not in listening


def test_a_sort_of_the_form_takes_whole_paths_and_urls(monkeypatch):
    runs = []
    made = control.Control([])
    monkeypatch.setattr(made, "_run", lambda title, call, wanted: runs.append((call, wanted)))
    made.do("start", {"inputs": "s3://bucket/in-*\n/data/in", "output": "s3://bucket/out"})
    wanted = {"inputs": ["s3://bucket/in-*", "/data/in"], "output": "s3://bucket/out", "layout": "lines"}
    assert runs == [("sort", wanted)]
    for name, fields in (("Inputs", ("in", "/out")), ("Output", ("s3://bucket/in", "out"))):
        with pytest.raises(control.Refused, match=rf"^{name}: (in|out): give whole paths, from / on, or URLs$"):
            made.do("start", dict(zip(("inputs", "output"), fields, strict=True)))


def test_nothing_is_shown_without_the_key(kept):
    identity, _ = kept
    paths = ("/", "/parts", f"/job/{identity}", f"/job/{identity}/parts", "/style.css", "/live.js", "/x")
    with dash("--control") as (port, token):
        name, key = f"ascot-{port}", KEYS[port]
        for cookie in (
            "",
            f"{name}=",
            f"{name}={key}x",
            f"{name}={key[:-1]}",
            f"{name}={token}",
            f"other={key}",
            "=;",
        ):
            for path in paths:
                status, body, _ = ask(port, path, Cookie=cookie)
                assert (status, identity in body) == (403, False), (cookie, path)
        assert ask(port, f"/?key={key}x", Cookie="")[0] == 403
        # The key gives a cookie and goes out of the address, which stays on this server.
        for path, place in (("/", "/"), (f"/job/{identity}", f"/job/{identity}"), ("//evil.example", "/")):
            status, _, headers = ask(port, f"{path}?key={key}", Cookie="")
            assert (status, headers["Location"]) == (303, place)
            assert headers["Set-Cookie"] == f"{name}={key}; Path=/; HttpOnly; SameSite=Strict"


def test_readers_stay_in_their_place_while_the_page_changes(kept):
    identity, place = kept
    status = json.loads((place / "status.json").read_text())
    with dash() as (port, _), opened(address_of(port, f"/job/{identity}"), ready=READY) as shown:
        assert_light_and_dark(shown)
        assert_usable(shown)
        shown.run("document.querySelector('#part-nodes .wide').focus()")
        nodes = [{**node, "state": "excluded", "reason": "its disk is full"} for node in status["nodes"]]
        (place / "status.new").write_text(json.dumps({**status, "nodes": nodes[:1]}))
        (place / "status.new").rename(place / "status.json")
        wait_for(shown, "document.querySelectorAll('#live-nodes tbody tr').length === 1")
        assert cells(shown, "live-nodes", 2) == ["its disk is full"]
        assert shown.run("document.activeElement === document.querySelector('#part-nodes .wide')")


def test_drivers_that_are_gone_or_silent_are_shown_as_such(kept):
    identity, place = kept
    status = json.loads((place / "status.json").read_text())
    with dash(place) as (port, _):
        shown = {"pid": {"driver": {**status["driver"], "process": 1 << 22}}, "old": {"written": time.time() - 100}}
        for change, word in ((shown["pid"], "interrupted"), (shown["old"], "silent"), ({}, "running")):
            (place / "status.json").write_text(json.dumps({**status, **change}))
            assert word in json.loads(ask(port, f"/job/{identity}/parts")[1])["state"]
        for damaged in ("", "{", "[]", "{}", json.dumps({"version": 1}), json.dumps({**status, "nodes": 3})):
            (place / "status.json").write_text(damaged)
            assert ask(port, "/")[0] == 200
            assert ask(port, f"/job/{identity}")[0] in (200, 404, 500)
        # Directories that are named are shown without the list of jobs.
        registry.forget(identity)
        (place / "status.json").write_text(json.dumps(status))
        assert identity in ask(port, "/")[1]


def test_a_directory_that_is_not_that_of_a_job_is_refused(disk):
    environment = {**os.environ, "ASCOT_PYTHON": sys.executable, "PYTHONPATH": package_path()}

    def told(name):
        return run("dash", "--port", "0", disk / name, expect=2, env=environment, timeout=20).stderr

    advice = "\n  without it, the page has all jobs of this user, also those that have ended\n"
    assert told("none") == f"ascot: {disk}/none: no such directory{advice}"
    (disk / "out").mkdir()
    assert told("out") == f"ascot: {disk}/out: this is no directory of a cluster job{advice}"
    (disk / "out.job").mkdir()
    (disk / "out.job" / "job.json").write_text("{}")
    assert told("out") == f"ascot: {disk}/out: this is no directory of a cluster job\n  name {disk}/out.job\n"


def test_a_python_without_the_package_is_refused(disk):
    told = run("dash", expect=2, env={**os.environ, "ASCOT_PYTHON": str(disk / "none")}).stderr
    assert "ascot dash needs Python with Ascot" in told and "pip install 'ascot[cluster]==" in told
    told = run("dash", "--port", "70000", expect=2).stderr
    assert "--port 70000 is no port" in told
