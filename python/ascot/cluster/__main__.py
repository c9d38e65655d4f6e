"""The half of `ascot sort --cluster` in Python: it runs one request of the command.

The command starts `python3 -m ascot.cluster`. Both write JSON, one object on each line:

    this process                        the command
    hello: versions               ->
                                  <-    the request
    progress, notice              ->
    done, stopped or failed       ->

Invariants: the command gets these lines and nothing else, since what other packages print goes to standard error.
SIGINT stops the job, once: it may remove its files afterwards. The end of standard input, which is the end of the
command, stops it as well, and it is kept.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from time import monotonic
from typing import Any

from ascot import _native, errors
from ascot.cluster import jobs
from ascot.cluster.checks import named
from ascot.cluster.flags import in_command
from ascot.cluster.objects import Stores, absolute
from ascot.cluster.settings import settings_of_texts
from ascot.cluster.transport import TRANSPORTS
from ascot.jobs import Request
from ascot.progress import Progress

__all__: list[str] = []

Tell = Callable[..., None]
# Progress is told so often at most.
BETWEEN_SECONDS = 0.1
CALL_BYTES = 1 << 16


def main() -> None:
    """Runs the request on standard input."""
    tell = _own_output()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop_once)
    tell(hello={"ascot": _native.__version__, "ray": _version_of_ray()})
    request = _request()
    if request is None:
        return
    threading.Thread(target=_watch_command, daemon=True).start()
    answer = _answer(request, tell)
    _ignore_signals()
    tell(**answer)


def _own_output() -> Tell:
    """A function that writes a line to the command. Everything else that is printed goes to standard error."""
    own = os.dup(1)
    os.dup2(2, 1)

    def tell(**line: Any) -> None:
        left = json.dumps(line).encode() + b"\n"
        # A command that is gone is noticed by the end of its requests.
        with suppress(OSError):
            while left:
                left = left[os.write(own, left) :]

    return tell


def _stop_once(number: int, _: object) -> None:
    _ignore_signals()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    # The same as by the handler of Ray, once it is there.
    sys.exit(number)


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _version_of_ray() -> str | None:
    try:
        return version("ray")
    except PackageNotFoundError:
        return None


def _request() -> dict[str, Any] | None:
    """The request; None if the command is gone, or does not want this Python."""
    content = b""
    while not content.endswith(b"\n"):
        more = os.read(0, CALL_BYTES)
        if not more:
            return None
        content += more
    request: dict[str, Any] = json.loads(content)
    return request


def _watch_command() -> None:
    while os.read(0, CALL_BYTES):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _answer(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Runs the request; returns the last line for the command."""
    try:
        return {"done": _RUN[request["verb"]](request, tell)}
    except errors.Resumable as error:
        where = error.directory
        kept = f"the job is kept: ascot.cluster.resume({where!r})  continues it; ascot.cluster.remove({where!r})  "
        return {"failed": in_command(f"{error.__cause__}\n  {kept}removes it")}
    except (errors.AscotError, ImportError) as error:
        return {"failed": in_command(str(error))}
    except (KeyboardInterrupt, SystemExit):
        return {"stopped": _kept(request)}
    except (OSError, ValueError, TypeError) as error:
        return {"failed": in_command(f"{error}")}
    except Exception as error:
        return {"failed": f"internal error: {type(error).__name__}: {error}{_place_of(error)}; please report this"}


def _place_of(error: Exception) -> str:
    """Where an exception was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})"


def _kept(request: dict[str, Any]) -> str | None:
    """The directory of a job that was stopped and is kept."""
    job: str = request.get("job") or jobs.directory_of(absolute(request["output"]))
    return job if os.path.exists(os.path.join(job, "job.json")) else None


def _progress(tell: Tell) -> Callable[[Progress], object]:
    told = 0.0

    def progress(now: Progress) -> None:
        nonlocal told
        if monotonic() - told >= BETWEEN_SECONDS:
            told = monotonic()
            tell(progress=now._asdict())

    return progress


def _announce(address: str, tell: Tell) -> None:
    """Says what takes the first seconds."""
    if address.startswith("local:"):
        tell(notice="Ray starts on this machine: some seconds")


def _sort(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    began = monotonic()
    settings: Any = {
        "temp": request["temp"],
        "compress": request["compress"],
        "threads": 1,
        "any_format": request["any_format"],
        "progress": _progress(tell),
    }
    records = request["records"]
    # Object stores are those that the environment and the settings of fsspec describe.
    stores = Stores()
    sort = Request(named(request["inputs"], stores), records["layout"], None, False, settings, "inputs")
    # The records and keys are those that the command has read already.
    sort.set(records=records, stable=request["stable"], strict=request["strict"])
    cluster = jobs.Cluster(
        request["cluster"],
        request["memory"],
        request["threads"],
        request["parts"],
        request["transport"] or TRANSPORTS[0],
        request["shuffle"] or "push",
        settings=settings_of_texts(request["settings"]),
    )
    _announce(cluster.address, tell)
    done = jobs.start(
        sort,
        request["output"],
        None,
        cluster,
        None,
        began,
        stores,
        is_kept=request["keep"],
        uniform=request["uniform"],
        views=request["parts_as"] == "views",
    )
    return _told(done, request)


def _resume(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    address = request["cluster"] or jobs.address_of(request["job"])
    _announce(address, tell)
    way = request["transport"]
    return _told(jobs.resume(request["job"], address=address, transport=way, progress=_progress(tell)), request)


def _remove(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    _announce(jobs.address_of(request["job"]), tell)
    jobs.remove(request["job"])
    return {"report": {}, "text": "", "details": "", "page": None}


def _told(done: jobs.Finished, request: dict[str, Any]) -> dict[str, Any]:
    details = str(done.report)
    # The nodes of each phase, which begin with four spaces, are details.
    text = "\n".join(line for line in details.splitlines() if not line.startswith("    "))
    report = {**done.report.to_json(), "outputs": done.outputs}
    page = done.report.to_html() if request["page"] else None
    return {"report": report, "text": text, "details": details, "page": page}


_RUN = {"sort": _sort, "resume": _resume, "remove": _remove}

if __name__ == "__main__":
    main()
