"""Plots with matplotlib, which the package uses when it is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["bars", "lines", "offsets"]

# A scale is logarithmic if the values span this factor.
_DECADES = 100.0


def _axes(axes: Any) -> Any:
    if axes is not None:
        return axes
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("plots need matplotlib: python -m pip install matplotlib") from error
    return pyplot.subplots(layout="constrained")[1]


def lines(series: Mapping[str, Sequence[tuple[Any, Any]]], x: str, y: str, title: str, axes: Any = None) -> Any:
    """Draws a line for each series of points, and returns the axes."""
    axes = _axes(axes)
    for name, points in series.items():
        axes.plot([at for at, _ in points], [value for _, value in points], marker=".", label=name or None)
    for place, number in (("x", 0), ("y", 1)):
        values = [point[number] for points in series.values() for point in points]
        if values and not isinstance(values[0], str) and min(values) > 0 and max(values) >= _DECADES * min(values):
            getattr(axes, f"set_{place}scale")("log")
    axes.set(xlabel=x, ylabel=y, title=title)
    if any(series):
        axes.legend(fontsize="small")
    return axes


def bars(parts: Sequence[tuple[str, float, str]], label: str, title: str, axes: Any = None) -> Any:
    """Draws a horizontal bar for each part (its name, its length, its remark), the first at the top."""
    axes = _axes(axes)
    drawn = axes.barh([name for name, _, _ in parts], [length for _, length, _ in parts])
    axes.bar_label(drawn, [remark for _, _, remark in parts], padding=3, fontsize="small")
    axes.invert_yaxis()
    axes.margins(x=0.25)
    axes.set(xlabel=label, title=title)
    return axes


def offsets(kinds: Mapping[str, tuple[Sequence[int], Sequence[int]]], title: str, axes: Any = None) -> Any:
    """Draws requests as points: their number in the trace across, their place on the volume up."""
    axes = _axes(axes)
    for name, (numbers, places) in kinds.items():
        axes.plot(numbers, places, ".", markersize=2, label=name)
    axes.set(xlabel="request", ylabel="byte, files one after the other", title=title)
    axes.legend(fontsize="small", markerscale=4)
    return axes
