"""The server of `ascot dash`: a live page of cluster jobs on the loopback.

The address that the command prints has a random key, without which nothing is shown: the first request puts it into a
cookie of the browser. Without `--control` the page only reads. With it, requests that change something need a token
that the command prints, too, in a header: this token is in no address, and nothing is logged.

Invariants: a request whose Host is not that of the loopback is refused, so that no page of another site reads this
one through a name of its own (DNS rebinding). A request that changes something has the token, the type of JSON, and
no Origin of another site, which a form of another site cannot give.
"""

from __future__ import annotations

import argparse
import hmac
import json
import os
import re
import secrets
import sys
from functools import partial
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any

from ascot import _native
from ascot.cluster import live
from ascot.cluster.control import Control, Refused
from ascot.cluster.watching import STATUS

__all__ = ["Server", "main"]

ADDRESS = "127.0.0.1"
PORT = 7817
BODY_BYTES_MAX = 1 << 16
REQUEST_SECONDS = 20
JOB_PATH = re.compile(r"/job/([0-9a-f]{32})(/parts)?")
HEADERS = {
    "Content-Security-Policy": f"{live.POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Server(ThreadingHTTPServer):
    """The server; `token` is None if the page only reads."""

    daemon_threads = True

    def __init__(self, port: int, token: str | None, directories: list[str]) -> None:
        self.token, self.directories = token, directories
        self.key = secrets.token_urlsafe(32)
        self.control = None if token is None else Control(directories)
        super().__init__((ADDRESS, port), Handler)
        self.hosts = frozenset(f"{name}:{self.server_port}" for name in (ADDRESS, "localhost"))

    @property
    def cookie(self) -> str:
        """The name of the cookie with the key: browsers keep one set of cookies for all ports of a machine."""
        return f"ascot-{self.server_port}"

    @property
    def url(self) -> str:
        """The address of the page, with its key."""
        return f"http://{ADDRESS}:{self.server_port}/?key={self.key}"


class Handler(BaseHTTPRequestHandler):
    """Answers a request."""

    server: Server
    server_version, sys_version = "ascot", ""
    protocol_version = "HTTP/1.1"
    timeout = REQUEST_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""

    def do_GET(self) -> None:
        """A page, or its changing parts."""
        if not self._is_for_us():
            return
        place, _, query = self.path.partition("?")
        if query.startswith("key=") and self._is_key(query.removeprefix("key=")):
            self._keep_key(place)
            return
        if not self._is_key(self._own_cookie()):
            self._answer(
                HTTPStatus.FORBIDDEN, "text/plain", "open the address that ascot dash printed, with its key\n"
            )
            return
        found = JOB_PATH.fullmatch(self.path)
        if self.path == "/":
            page = live.list_page(self.server.directories, control=self.server.control is not None)
            self._answer(HTTPStatus.OK, "text/html", page)
        elif self.path == "/parts":
            parts = live.list_parts(self.server.directories)
            if self.server.control is not None:
                parts["started"] = self.server.control.started()
            self._answer_json(HTTPStatus.OK, parts)
        elif found is not None:
            self._answer_job(found[1], bool(found[2]))
        elif self.path == "/style.css":
            self._answer(HTTPStatus.OK, "text/css", _native.page_style())
        elif self.path == "/live.js":
            script = resources.files("ascot.cluster").joinpath("live.js").read_text(encoding="utf-8")
            self._answer(HTTPStatus.OK, "text/javascript", script)
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "there is no such page\n")

    def _answer_job(self, identity: str, only_parts: bool) -> None:
        job = live.find(identity, self.server.directories)
        if job is None:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "there is no such job\n")
            return
        try:
            parts = live.job_parts(job)
            page = "" if only_parts else live.job_page(job, control=self.server.control is not None)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            told = f"the files of this job in {job.directory} are not what a job wrote\n"
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", told)
            return
        if only_parts:
            self._answer_json(HTTPStatus.OK, parts)
        else:
            self._answer(HTTPStatus.OK, "text/html", page)

    def do_POST(self) -> None:
        """A request to change something."""
        # A body that is not read must not be taken for the next request.
        self.close_connection = True
        if not self._is_for_us():
            return
        control, token = self.server.control, self.server.token
        if control is None or token is None:
            self._say(HTTPStatus.FORBIDDEN, "This page only reads: start it with ascot dash --control.")
            return
        if not self._is_from_us():
            self._say(HTTPStatus.FORBIDDEN, "The request comes from another site.")
            return
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(errors="replace"), f"Bearer {token}".encode()):
            self._say(HTTPStatus.FORBIDDEN, "The token is missing or wrong: give the one that ascot dash printed.")
            return
        kind, _, name = self.path.removeprefix("/").partition("/")
        length = self.headers.get("Content-Length", "")
        if kind != "control" or not length.isdecimal() or int(length) > BODY_BYTES_MAX:
            self._say(HTTPStatus.BAD_REQUEST, "This is no request of the page.")
            return
        try:
            said = control.do(name, json.loads(self.rfile.read(int(length))))
        except (Refused, ValueError, OSError) as error:
            self._say(HTTPStatus.BAD_REQUEST, f"Refused: {error}")
            return
        self._say(HTTPStatus.OK, said)

    def _is_key(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(errors="replace"), self.server.key.encode())

    def _own_cookie(self) -> str:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            return ""
        return "" if found is None else found.value

    def _keep_key(self, place: str) -> None:
        """Gives the browser the key, and sends it to the page without the key in its address."""
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Location", place if JOB_PATH.fullmatch(place) else "/")
        self.send_header("Set-Cookie", f"{self.server.cookie}={self.server.key}; Path=/; HttpOnly; SameSite=Strict")
        self.send_header("Content-Length", "0")
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()

    def _is_for_us(self) -> bool:
        """Whether the request names this server; if not, it is refused."""
        if self.headers.get("Host", "") in self.server.hosts:
            return True
        self.close_connection = True
        self._answer(
            HTTPStatus.FORBIDDEN,
            "text/plain",
            f"this is http://{ADDRESS}:{self.server.server_port}/, and no other name\n",
        )
        return False

    def _is_from_us(self) -> bool:
        """Whether a request to change something comes from a page of this server, or from no page."""
        origin = self.headers.get("Origin")
        own = origin is None or origin in {f"http://{host}" for host in self.server.hosts}
        site = self.headers.get("Sec-Fetch-Site", "same-origin")
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip()
        return own and site in ("same-origin", "none") and kind == "application/json"

    def _say(self, status: HTTPStatus, text: str) -> None:
        self._answer_json(status, {"said": text})

    def _answer_json(self, status: HTTPStatus, content: dict[str, str]) -> None:
        self._answer(status, "application/json", json.dumps(content))

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


def _no_job(directory: str) -> str:
    """The message for a directory that is not that of a job."""
    what = "this is no directory of a cluster job" if os.path.isdir(directory) else "no such directory"
    beside = f"{directory.rstrip('/')}.job"
    if os.path.exists(os.path.join(beside, "job.json")):
        return f"ascot: {directory}: {what}\n  name {beside}"
    return f"ascot: {directory}: {what}\n  without it, the page has all jobs of this user, also those that have ended"


def main(words: list[str] | None = None) -> int:
    """Serves until it is interrupted."""
    parser = argparse.ArgumentParser(prog="ascot dash", description="Serves a live page of jobs on clusters.")
    parser.add_argument("jobs", metavar="JOB", nargs="*", help="directories of jobs that other users run")
    parser.add_argument("--port", type=int, default=PORT, help="the port; 0 for any that is free")
    parser.add_argument("--control", action="store_true", help="also start and stop jobs and measure, with a token")
    given = parser.parse_args(words)
    token = secrets.token_urlsafe(32) if given.control else None
    for job in given.jobs:
        if not any(os.path.exists(os.path.join(job, name)) for name in ("job.json", STATUS)):
            print(_no_job(job), file=sys.stderr)
            return 2
    try:
        server = Server(given.port, token, [os.path.abspath(job) for job in given.jobs])
    except (OSError, OverflowError) as error:
        print(
            f"ascot: port {given.port} of {ADDRESS} cannot be used: {error}\n  name another (--port N)",
            file=sys.stderr,
        )
        return 2
    show = partial(print, flush=True)
    show(f"page   {server.url}")
    if token is not None:
        show(f"token  {token}")
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
