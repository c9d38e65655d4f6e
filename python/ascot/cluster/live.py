"""The live page of `ascot dash`: the jobs of this user, and each job while it runs and afterwards.

Everything comes from files: the list of the user's jobs (registry.py), the status in each job directory
(watching.py) and the reports of past jobs. The page is made here; its script only fetches the parts that change.

Invariant: a file that is not what a job wrote shows as such, and harms no other job.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ascot._native import bytes_text, seconds_text
from ascot.cluster import pages, registry
from ascot.cluster.watching import STATUS

__all__ = ["Job", "find", "job_page", "job_parts", "jobs", "list_page", "list_parts"]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'"
)
HEAD = '<link rel="stylesheet" href="/style.css"><script src="/live.js" defer></script>'
# A driver writes its state about once a second; with more nodes, less often.
QUIET_SECONDS = 10.0
# What a status has at least.
FIELDS: dict[str, Any] = {
    **dict.fromkeys(("job", "kind", "state", "error", "output", "phase", "detail", "bound_by"), str),
    **dict.fromkeys(("began", "written", "done_bytes", "total_bytes", "bytes_per_s", "share"), int | float),
    **dict.fromkeys(("nodes", "phases", "log"), list),
    **dict.fromkeys(("driver", "series"), dict),
}


@dataclass(frozen=True, slots=True)
class Job:
    """A job: its identity, state in words, directory, output, begin (seconds since 1970), status or report."""

    identity: str
    state: str
    why: str
    kind: str
    directory: str
    output: str
    began: float
    status: Mapping[str, Any] | None
    report: Mapping[str, Any] | None
    log: Sequence[Sequence[Any]]

    @property
    def runs(self) -> bool:
        """Whether its driver is there, as far as it is known."""
        return self.state in ("running", "silent")

    @property
    def is_kept(self) -> bool:
        """Whether it can be continued."""
        return self.state == "interrupted"

    @property
    def title(self) -> str:
        """Its name on pages."""
        return f"{self.kind} to {self.output}"


def jobs(directories: Sequence[str]) -> list[Job]:
    """The jobs of this user and those in `directories`, the newest first."""
    found = {one.identity: one for entry in registry.entries() if (one := _listed(entry)) is not None}
    for directory in directories:
        status = _status(directory)
        if status is not None and status["job"] not in found:
            found[status["job"]] = _of_status(status, directory)
    return sorted(found.values(), key=lambda one: one.began, reverse=True)


def find(identity: str, directories: Sequence[str]) -> Job | None:
    """The job with this identity."""
    entry = registry.entry(identity)
    if entry is not None:
        return _listed(entry)
    return next((one for one in jobs(directories) if one.identity == identity), None)


def _status(directory: str) -> dict[str, Any] | None:
    try:
        with open(os.path.join(directory, STATUS)) as file:
            found: Any = json.load(file)
    except (OSError, ValueError):
        return None
    usable = isinstance(found, dict) and found.get("version") == 1
    return found if usable and all(isinstance(found.get(name), kind) for name, kind in FIELDS.items()) else None


def _listed(entry: Mapping[str, Any]) -> Job | None:
    try:
        directory = entry["directory"]
        status = None if entry["state"] in ("finished", "failed") else _status(directory)
        if status is not None and status["job"] == entry["job"]:
            return _of_status(status, directory)
        state, why = entry["state"], entry["error"]
        if state in ("running", "interrupted"):
            state, why = "removed", why or f"{directory} has no state of this job any more"
        rest = (entry["kind"], directory, entry["output"], float(entry["began"]))
        return Job(entry["job"], state, why, *rest, None, entry["report"], entry["log"])
    except (KeyError, TypeError, ValueError):
        return None


def _of_status(status: Mapping[str, Any], directory: str) -> Job:
    state, why = status["state"], status["error"]
    quiet = time.time() - status["written"]
    driver = status["driver"]
    if state == "running":
        on_this_host = driver.get("host") == socket.gethostname()
        if on_this_host and not os.path.exists(f"/proc/{driver.get('process')}"):
            state, why = "interrupted", "its driver has ended without a word"
        elif quiet > QUIET_SECONDS:
            state, why = "silent", f"no word of its driver for {seconds_text(quiet)}"
    rest = (status["kind"], directory, status["output"], float(status["began"]))
    return Job(status["job"], state, why, *rest, status, None, status["log"])


# ---------------------------------------------------------------- the list


def list_parts(directories: Sequence[str]) -> dict[str, str]:
    """The parts of the list that change."""
    every = jobs(directories)
    running = [_row(one) for one in every if one.runs]
    past = [_row(one) for one in every if not one.runs]
    return {
        "running": _jobs_table("running-jobs", "Running jobs", running),
        "past": _jobs_table("past-jobs", "Past jobs", past),
    }


def _row(job: Job) -> tuple[Job, list[str]]:
    status, report = job.status, job.report
    told = ["", "", ""]
    if report is not None:
        told = ["", seconds_text(report["seconds"]), f"{bytes_text(report['bytes_per_s'])}/s"]
    elif status is not None:
        rate = f"{bytes_text(status['bytes_per_s'])}/s"
        told = [f"{status['phase']}, {status['share']:.0%}", seconds_text(status["written"] - status["began"]), rate]
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job.began))
    return job, [job.state, began, *told, job.why]


def _jobs_table(identifier: str, caption: str, rows: Sequence[tuple[Job, list[str]]]) -> str:
    if not rows:
        return f"<p>No {caption.lower()}.</p>"
    heads = ("state", "began", "phase", "time", "rate", "remark")
    head = "".join(f'<th scope="col">{name}</th>' for name in ("job", *heads))
    body = "".join(
        f'<tr><th scope="row"><a href="/job/{job.identity}">{escape(job.title)}</a></th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>\n"
        for job, cells in rows
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{caption}"><table id="{identifier}">'
        f"<caption>{caption}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
    )


def list_page(directories: Sequence[str], *, control: bool) -> str:
    """The page of all jobs."""
    parts = list_parts(directories)
    sections = [("running", "Running jobs"), ("past", "Past jobs")]
    body = "".join(_section(name, head, parts[name]) for name, head in sections)
    return _page("Jobs on clusters", "", "/parts", sections, body, START if control else "")


# ---------------------------------------------------------------- a job


def job_parts(job: Job) -> dict[str, str]:
    """The parts of the page of a job that change."""
    if job.status is not None:
        return _parts_of_status(job, job.status)
    told = f'<p id="state" role="status">{escape(job.state)}. {escape(job.why)}</p>'
    if job.report is None:
        return {"state": told, "log": pages.log_of(job.log)}
    summary = f"<p>{escape(job.report['title'])}</p>"
    return {"state": told + summary, "report": pages.parts_of_report(job.report), "log": pages.log_of(job.log)}


def _parts_of_status(job: Job, status: Mapping[str, Any]) -> dict[str, str]:
    bound = f", bound by {status['bound_by']}" if status["bound_by"] and job.runs else ""
    done, total = bytes_text(status["done_bytes"]), bytes_text(status["total_bytes"])
    words = [f"{done} of {total}", f"{bytes_text(status['bytes_per_s'])}/s", status["detail"],
             f"{seconds_text(status['written'] - status['began'])} since its begin"]  # fmt: skip
    state = (
        f'<p id="state" role="status">{escape(job.state)}: {escape(status["phase"])}{escape(bound)}. '
        f"{escape(job.why)}</p>\n"
        f'<p><label>whole job <progress max="1" value="{float(status["share"]):.3f}"></progress></label> '
        f"{escape(', '.join(word for word in words if word))}</p>"
    )
    phases = status["phases"]
    return {
        "state": state,
        "nodes": _nodes_table(status["nodes"]),
        "phases": pages.phases_table(phases) + pages.stages_table(phases),
        "charts": pages.charts_of_nodes(status["series"], phases) + pages.use_table(status["series"]),
        "log": pages.log_of(status["log"]),
    }


def _nodes_table(nodes: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for node in nodes:
        now, state = node["now"], node["state"]
        if state == "silent":
            state = f"silent for {seconds_text(node['quiet_seconds'])}"
        cells = [text(now[column]) if column in now else "" for _, column, text in pages.QUANTITIES]
        rows.append([node["name"], state, node["reason"], str(node["workers"]), *cells])
    heads = ("node", "state", "reason", "workers", *(name for name, _, _ in pages.QUANTITIES))
    return pages.table("live-nodes", "Nodes", heads, rows)


def job_page(job: Job, *, control: bool) -> str:
    """The page of a job."""
    parts = job_parts(job)
    names = {"nodes": "Nodes", "phases": "Phases", "charts": "Nodes over time", "log": "Log"}
    sections = [(name, names[name]) for name in names if name in parts]
    body = (
        f'<div id="part-state">{parts["state"]}</div>\n' + f'<div id="part-report">{parts.get("report", "")}</div>\n'
    )
    body += "".join(_section(name, head, parts[name]) for name, head in sections)
    return _page(
        job.title, job.identity, f"/job/{job.identity}/parts", sections, body, _control(job) if control else ""
    )


def _control(job: Job) -> str:
    nodes = job.status["nodes"] if job.status is not None else []
    options = "".join(
        f"<option>{escape(node['name'])}</option>" for node in nodes if node["state"] != "excluded" and job.runs
    )
    forms = TOKEN
    if job.runs:
        forms += (
            '<p><button type="button" data-do="stop">Stop the job</button> It can be resumed.</p>\n'
            f'<p class="choice"><label>Node <select id="node" name="node">{options}</select></label>'
            '<button type="button" data-do="exclude">Exclude the node</button></p>\n'
        )
    elif job.is_kept and job.kind == "sort":
        forms += '<p><button type="button" data-do="resume">Resume the job</button></p>\n'
    return f'<section id="control" aria-label="Control"><h2>Control</h2>\n{forms}{ANSWER}</section>\n'


def _section(name: str, head: str, content: str) -> str:
    return f'<section id="{name}"><h2>{head}</h2>\n<div id="part-{name}">{content}</div></section>\n'


def _page(
    title: str, identity: str, parts: str, sections: Sequence[tuple[str, str]], body: str, control: str
) -> str:  # fmt: skip
    shown = [*sections, ("control", "Control")] if control else sections
    links = '<li><a href="/">All jobs</a></li>' if identity else ""
    links += "".join(f'<li><a href="#{name}">{head}</a></li>' for name, head in shown)
    whole = (
        f'<body class="one report" data-parts="{parts}" data-job="{identity}">\n<header><h1>{escape(title)}</h1>'
        f'<p id="word" role="status"></p></header>\n<nav aria-label="Parts of the page"><ul>{links}</ul></nav>\n'
        f"<main>\n{body}{control}</main>\n</body>"
    )
    return pages.page(title, whole, policy=POLICY, head=HEAD)


TOKEN = (
    '<p><label>Token <input type="password" id="token" autocomplete="off"></label> '
    "It was printed when ascot dash was started.</p>\n"
)
ANSWER = '<p id="answer" role="status"></p>\n'
START = f"""<section id="control" aria-label="Control"><h2>Control</h2>
{TOKEN}<fieldset id="start"><legend>Start a sort</legend>
<p><label>Inputs, a path, pattern or URL a line <textarea name="inputs" rows="3" cols="60"></textarea></label></p>
<p><label>Output <input name="output" size="60"></label></p>
<p><label>Records <select name="layout"><option value="lines">lines</option>
<option value="fixed">of one length</option></select></label>
<label>Bytes of a record <input name="length" size="6" value="100"></label>
<label>Key from byte <input name="start" size="6" value="0"></label>
<label>to byte <input name="stop" size="6" value="10"></label></p>
<p><label>Cluster <input name="address" value="auto"></label>
<label>Memory of a node <input name="memory" placeholder="half of it"></label>
<button type="button" data-do="start">Start</button></p></fieldset>
<fieldset id="measure"><legend>Measure a cluster</legend>
<p><label>Measured cluster <input name="bench_address" value="auto"></label>
<label>Bytes to move <input name="bench_size" placeholder="the usual size"></label></p>
<p><label>Directories for DiskBench on each node, one a line <textarea name="bench_temp" rows="2" cols="60"
placeholder="that of temporary files"></textarea></label></p>
<p><label>Bytes of a request <input name="bench_request" size="8" placeholder="4MiB"></label>
<label>Rounds <input name="bench_rounds" size="4" value="3"></label>
<button type="button" data-do="diskbench">Run DiskBench</button>
<button type="button" data-do="netbench">Run NetBench</button></p>
<p>A measurement takes processors, disks and network of the nodes, also from jobs that run.</p></fieldset>
{ANSWER}<div id="part-started"></div></section>
"""
