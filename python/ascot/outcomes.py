"""The outcome of a finished job: its report and its plan, made of the extension module's texts when they are wanted.

A program that only sorts never loads the modules of reports, which would take longer than a small sort.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ascot.reports import Plan, Report

__all__ = ["Outcome"]


class Outcome:
    """A finished job, of which `told` is the report as JSON and `text` is the report as the command prints it."""

    __slots__ = ("_plan", "_report", "_text", "_told")

    def __init__(self, told: str, text: str) -> None:
        self._told, self._text = told, text
        self._report: Report | None = None
        self._plan: Plan | None = None

    @property
    def report(self) -> Report:
        """The report of the job."""
        if self._report is None:
            from ascot.reports import report_of

            self._report = report_of(self._told, self._text)
        return self._report

    @property
    def plan(self) -> Plan | None:
        """The plan that the job followed; None if it needed none."""
        if self._plan is None:
            from ascot.reports import plan_of_report

            self._plan = plan_of_report(self._told)
        return self._plan
