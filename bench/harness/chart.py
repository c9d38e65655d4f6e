"""Charts as SVG, written by hand: curves; and bars, one panel per workload, longer is faster, the limit dashed.

Text uses the reader's sans-serif; colours hold in light and dark (a white card lies under the bars).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LABEL, PAD = 860, 130, 20
BAR, GAP, HEAD, FOOT = 22, 8, 46, 26
ASCOT, PEER, FAILED, LINE, INK, PALE = "#0b6e6e", "#9fb3c1", "#b4534b", "#c4702b", "#1d2830", "#5c6b76"


@dataclass(frozen=True)
class Bar:
    """One contender; `value` None with a note for one that failed. `low` and `high` draw a whisker."""

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Panel:
    """One workload's bars, all in `unit`."""

    title: str
    unit: str
    bars: Sequence[Bar]
    limit: float | None = None


def _text(x: float, y: float, text: str, size: int = 13, fill: str = INK, more: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{fill}" {more}>{escape(text)}</text>'


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 20 else f"{value:.2g}"


def _chart(title: str, subtitle: str, height: float, body: Sequence[str]) -> str:
    """A chart of this height, with its title above `body`."""
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
        f'height="{height:.0f}" font-family="system-ui, sans-serif" role="img" aria-label="{escape(title)}">',
        f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>',
        _text(PAD, 32, title, 19, more='font-weight="700"'),
        _text(PAD, 54, subtitle, 12, PALE),
    ]
    return "\n".join([*head, *body, "</svg>", ""])


def _curve(line: Line, places: Sequence[tuple[float, float]]) -> str:
    """A line through places of the chart."""
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    dash = 'stroke-dasharray="6 4" ' if line.dashed else ""
    return f'<path d="{path}" stroke="{_colour_of(line)}" stroke-width="2" {dash}fill="none"/>'


def _colour_of(line: Line) -> str:
    return ASCOT if line.ours else LINE


def _bar(bar: Bar, y: float, scale: float, unit: str) -> list[str]:
    middle = y + BAR * 0.72
    out = [_text(LABEL - 10, middle, bar.label, more='text-anchor="end"')]
    if bar.value is None:
        note = bar.note if len(bar.note) <= 96 else bar.note[:95] + "…"
        return [*out, _text(LABEL + 4, middle, note, 12, FAILED)]
    colour = ASCOT if bar.label == "Ascot" else PEER
    width = max(1.0, bar.value * scale)
    out.append(
        f'<rect x="{LABEL}" y="{y:.0f}" width="{width:.1f}" height="{BAR}" rx="3" fill="{colour}">'
        f"<title>{escape(bar.label)}: {_number(bar.value)} {unit}</title></rect>"
    )
    end = width
    if bar.low is not None and bar.high is not None and bar.high > bar.low:
        low, high, line = LABEL + bar.low * scale, LABEL + bar.high * scale, y + BAR / 2
        out.append(f'<path d="M{low:.1f} {line:.1f}H{high:.1f}" stroke="{INK}" stroke-width="1.5"/>')
        end = max(end, bar.high * scale)
    label = f"{_number(bar.value)} {unit}" + (f"  {bar.note}" if bar.note else "")
    return [*out, _text(LABEL + end + 8, middle, label, 12, PALE)]


def _panel(panel: Panel, top: float) -> tuple[list[str], float]:
    known = [bar.high or bar.value for bar in panel.bars if bar.value is not None]
    longest = max([*known, panel.limit or 0.0, 1e-9])
    room = WIDTH - LABEL - PAD - 150
    scale = room / longest
    out = [_text(PAD, top + 26, panel.title, 15, more='font-weight="600"')]
    y = top + HEAD
    for bar in panel.bars:
        out += _bar(bar, y, scale, panel.unit)
        y += BAR + GAP
    if panel.limit:
        x = LABEL + panel.limit * scale
        out.append(
            f'<path d="M{x:.1f} {top + HEAD - 6:.0f}V{y:.0f}" stroke="{LINE}" stroke-width="1.5" '
            'stroke-dasharray="5 4"/>'
        )
        label = f"limit of two passes: {_number(panel.limit)} {panel.unit}"
        out.append(_text(min(x, WIDTH - PAD), y + 14, label, 12, LINE, 'text-anchor="end"'))
    return out, y + FOOT


def svg(title: str, subtitle: str, panels: Sequence[Panel]) -> str:
    """The whole chart."""
    body: list[str] = []
    y = 64.0
    for panel in panels:
        drawn, y = _panel(panel, y)
        body += drawn
    return _chart(title, subtitle, y, body)


@dataclass(frozen=True)
class Line:
    """A curve through points (x, y)."""

    label: str
    points: Sequence[tuple[float, float]]
    ours: bool
    dashed: bool = False


CURVES_HEIGHT, CURVES_TOP, CURVES_RIGHT = 380, 80, 190


def curves(title: str, subtitle: str, lines: Sequence[Line]) -> str:
    """Curves over one pair of axes that begin at zero, each labelled at its end."""
    known = [point for line in lines for point in line.points]
    x_max, y_max = max((x for x, _ in known), default=1.0), 1.05 * max((y for _, y in known), default=1.0)
    width, height = WIDTH - PAD - 40 - CURVES_RIGHT, CURVES_HEIGHT
    left, bottom = PAD + 40, CURVES_TOP + height
    at = lambda x, y: (left + width * x / x_max, bottom - height * y / y_max)  # noqa: E731
    body = [f'<path d="M{left} {CURVES_TOP}V{bottom}H{left + width}" stroke="{PALE}" fill="none"/>']
    for step in range(int(x_max) + 1):
        body.append(_text(at(step, 0)[0], bottom + 18, f"{step}", 12, PALE, 'text-anchor="middle"'))
    for step in range(1, 5):
        value = y_max * step / 4.2
        body.append(_text(left - 6, at(0, value)[1] + 4, _number(value), 12, PALE, 'text-anchor="end"'))
    for line in (line for line in lines if line.points):
        places = [at(x, y) for x, y in line.points]
        body.append(_curve(line, places))
        body.append(_text(places[-1][0] + 8, places[-1][1] + 4, line.label, 12, _colour_of(line)))
    return _chart(title, subtitle, bottom + 40, body)


@dataclass(frozen=True)
class Timeline:
    """A run over time: its phases, each a name with begin and end, and its curves of the same unit."""

    title: str
    phases: Sequence[tuple[str, float, float]]
    lines: Sequence[Line]


TIMELINE_HEIGHT, TIMELINE_GAP, PHASE_HEIGHT = 110, 74, 18
PHASE_COLOURS = ("#d7dee3", "#bcd8d8", "#ecd9c6", "#dcd3e6")


def timelines(title: str, subtitle: str, panels: Sequence[Timeline]) -> str:
    """Runs below one another over the same axes, with their phases as bars under the curves."""
    known = [point for panel in panels for line in panel.lines for point in line.points]
    ends = [end for panel in panels for _, _, end in panel.phases]
    x_max = max([*(x for x, _ in known), *ends], default=1.0) or 1.0
    y_max = 1.05 * max((y for _, y in known), default=1.0) or 1.0
    left, width = PAD + 44, WIDTH - 2 * PAD - 44 - 120

    def at(seconds: float) -> float:
        return left + width * seconds / x_max

    body, top = [], 78.0
    for panel in panels:
        bottom = top + TIMELINE_HEIGHT
        body.append(_text(left, top - 6, panel.title, 13, more='font-weight="600"'))
        body.append(f'<path d="M{left} {top:.0f}V{bottom:.0f}H{left + width}" stroke="{PALE}" fill="none"/>')
        body.append(_text(left - 6, top + 10, _number(y_max), 12, PALE, 'text-anchor="end"'))
        for number, (name, began, end) in enumerate(panel.phases):
            x, y = at(began), bottom
            colour, length = PHASE_COLOURS[number % len(PHASE_COLOURS)], max(1.0, at(end) - x)
            body.append(
                f'<rect x="{x:.1f}" y="{y + 3:.1f}" width="{length:.1f}" height="{PHASE_HEIGHT}" fill="{colour}">'
                f"<title>{escape(name)}: {end - began:.1f} s</title></rect>"
            )
            if length > 7 * len(name):
                body.append(_text(x + 4, y + 16, name, 11))
        for number, line in enumerate(panel.lines):
            if line.points:
                body.append(_curve(line, [(at(x), bottom - TIMELINE_HEIGHT * y / y_max) for x, y in line.points]))
            body.append(_text(left + width + 12, top + 14 + 18 * number, line.label, 12, _colour_of(line)))
        top = bottom + TIMELINE_GAP
    for step in range(0, int(x_max) + 1, max(1, int(x_max) // 10)):
        body.append(
            _text(at(step), top - TIMELINE_GAP + 38, f"{step} s", 12, PALE, 'text-anchor="middle"')
        )
    return _chart(title, subtitle, top, body)
