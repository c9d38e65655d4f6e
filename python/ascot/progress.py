"""Progress of a job: a bar in a terminal or a notebook, or a function of the user."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeAlias

from ascot import arguments
from ascot._native import bytes_text, seconds_text

__all__ = ["Progress", "ProgressLike"]

# As in the command: nothing is drawn in the first second of a job.
_FIRST_SECONDS = 1.0
_BETWEEN_SECONDS = 0.2
_BAR_LETTERS = 30


class Progress(NamedTuple):
    """The progress of a job.

    `phase` is its pass (`form runs`, `merge`), with `detail` (`6 of 9 runs`); `done_bytes` of `total_bytes` are those
    of the phase, `total_bytes` is None if it is not known. `bytes_per_s` is the rate, `bound_by` the bottleneck,
    `seconds_left` the time left of the whole job, and `fraction` the share of the whole job that is done, 0 to 1.
    """

    phase: str
    done_bytes: int
    total_bytes: int | None
    bytes_per_s: float
    detail: str
    bound_by: str
    seconds_left: float | None
    fraction: float | None

    def share(self) -> float | None:
        """The share of the phase that is done, 0 to 1; None if its size is not known."""
        if self.total_bytes:
            return min(1.0, self.done_bytes / self.total_bytes)
        return self.fraction

    def __str__(self) -> str:
        total = "" if self.total_bytes is None else f" of {bytes_text(self.total_bytes)}"
        words = [f"{bytes_text(self.done_bytes)}{total}", f"{bytes_text(self.bytes_per_s)}/s"]
        words += [self.detail, self.bound_by]
        words += [] if self.seconds_left is None else [f"{seconds_text(self.seconds_left)} left"]
        return "   ".join(word for word in words if word)


ProgressLike: TypeAlias = 'Literal["auto"] | Callable[[Progress], object] | None'


def checked(progress: Any) -> Any:
    """The same, if it is a value of the argument `progress`."""
    is_auto = isinstance(progress, str) and progress == "auto"
    if progress is not None and not callable(progress) and not is_auto:
        arguments.wrong_type("progress", progress, "'auto', a function or None")
    return progress


@contextmanager
def reporter(progress: Any) -> Iterator[Callable[..., object] | None]:
    """The function that the extension module calls with the values of a `Progress`, or None."""
    if checked(progress) is None:
        yield None
        return
    if callable(progress):
        yield lambda *values: progress(Progress(*values))
        return
    bar = _bar()
    if bar is None:
        yield None
        return
    try:
        yield bar.report
    finally:
        bar.close()


def _bar() -> _Bar | None:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and getattr(shell, "kernel", None) is not None:
        return _NotebookBar()
    error = sys.stderr
    return _TerminalBar() if error is not None and error.isatty() else None


class _Bar:
    """A bar that is drawn at most five times a second, and not in the first second."""

    def __init__(self) -> None:
        from time import monotonic

        self._now = monotonic
        self._next = monotonic() + _FIRST_SECONDS
        self._drawn = False

    def report(self, *values: Any) -> None:
        now = self._now()
        if now >= self._next:
            self._next = now + _BETWEEN_SECONDS
            self._drawn = True
            self.draw(Progress(*values))

    def draw(self, progress: Progress) -> None:
        raise NotImplementedError

    def close(self) -> None:
        if self._drawn:
            self.clear()

    def clear(self) -> None:
        raise NotImplementedError


class _TerminalBar(_Bar):
    """A line on standard error, redrawn."""

    def draw(self, progress: Progress) -> None:
        from shutil import get_terminal_size

        share = progress.share()
        filled = round((share or 0.0) * _BAR_LETTERS)
        bar = "" if share is None else f"[{'#' * filled}{'-' * (_BAR_LETTERS - filled)}]  "
        line = f"  {progress.phase:<12}{bar}{progress}"
        sys.stderr.write(f"\r{line[: get_terminal_size().columns - 1]}\x1b[K")
        sys.stderr.flush()

    def clear(self) -> None:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


class _NotebookBar(_Bar):
    """HTML below the cell, updated in place."""

    _handle: Any = None

    def draw(self, progress: Progress) -> None:
        from html import escape

        share = progress.share()
        bar = "<progress></progress>" if share is None else f'<progress max="1" value="{share:.3f}"></progress>'
        self._show(f"<div>{escape(progress.phase)} {bar} {escape(str(progress))}</div>")

    def clear(self) -> None:
        self._show("")

    def _show(self, text: str) -> None:
        from importlib import import_module

        shown: Any = import_module("IPython.display")

        if self._handle is None:
            self._handle = shown.display(shown.HTML(text), display_id=True)
        else:
            self._handle.update(shown.HTML(text))
