"""A table of shares as SVG: a cell is green below one, brown above it, the deeper the further away."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH, LABEL, PAD, ROW, TOP = 860, 130, 20, 40, 74
INK, PALE, BELOW, ABOVE = "#1d2830", "#5c6b76", (11, 110, 110), (180, 83, 75)


def _text(x: float, y: float, text: str, size: int, fill: str, more: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{fill}" {more}>{escape(text)}</text>'


def _colour(share: float) -> str:
    """White at one, full at half of it and at twice as much."""
    end = BELOW if share < 1 else ABOVE
    depth = min(1.0, abs(1 - (share if share < 1 else 1 / share)) * 2)
    mixed = (round(255 + (part - 255) * depth * 0.7) for part in end)
    return "#" + "".join(f"{part:02x}" for part in mixed)


def svg(
    title: str, subtitle: str, columns: Sequence[str], rows: Sequence[str], cells: Sequence[Sequence[float]]
) -> str:
    """The whole table; `cells` by row."""
    step = (WIDTH - LABEL - 2 * PAD) / max(1, len(columns))
    height = TOP + ROW * (len(rows) + 1) + PAD
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="system-ui, sans-serif" role="img" aria-label="{escape(title)}">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(PAD, 32, title, 19, INK, 'font-weight="700"'),
        _text(PAD, 54, subtitle, 12, PALE),
    ]
    middle = 'text-anchor="middle"'
    for at, name in enumerate(columns):
        body.append(_text(LABEL + PAD + (at + 0.5) * step, TOP + 24, name, 13, PALE, middle))
    for number, (name, shares) in enumerate(zip(rows, cells, strict=True)):
        y = TOP + ROW * (number + 1)
        body.append(_text(LABEL + 6, y + 25, name, 13, INK, 'text-anchor="end"'))
        for at, share in enumerate(shares):
            x = LABEL + PAD + at * step
            body.append(
                f'<rect x="{x + 2:.0f}" y="{y + 2}" width="{step - 4:.0f}" height="{ROW - 4}" rx="3" '
                f'fill="{_colour(share)}"/>'
            )
            body.append(_text(x + step / 2, y + 26, f"{100 * share:.0f}%", 14, INK, middle))
    return "\n".join([*body, "</svg>", ""])
