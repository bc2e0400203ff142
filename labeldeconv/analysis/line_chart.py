"""A line chart as one self-contained SVG: panels with an axis each, two lines or a few more per panel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")  # told apart by colour-blind readers (Okabe and Ito)
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 420, 260, 52, 34, 34


@dataclass(frozen=True)
class Curve:
    """A named line through (x, y)."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


def line_chart(panels: Sequence[tuple[str, Sequence[Curve]]], columns: int = 2) -> str:
    """An SVG of panels (title, curves) in rows of `columns`."""
    rows = -(-len(panels) // columns)
    body = "".join(
        f'<g transform="translate({i % columns * WIDTH},{i // columns * HEIGHT})">{_panel(title, curves)}</g>'
        for i, (title, curves) in enumerate(panels)
    )
    size = f'width="{columns * WIDTH}" height="{rows * HEIGHT}"'
    style = 'font-family="sans-serif" font-size="11" fill="#333"'
    background = '<rect width="100%" height="100%" fill="white"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{background}{body}</svg>\n'


def _panel(title: str, curves: Sequence[Curve]) -> str:
    low_x, high_x = _span([x for c in curves for x in c.x])
    low_y, high_y = _span([y for c in curves for y in c.y])

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (x - low_x) / (high_x - low_x) * (WIDTH - LEFT - 16)
        return across, HEIGHT - BOTTOM - (y - low_y) / (high_y - low_y) * (HEIGHT - TOP - BOTTOM)

    parts = [f'<text x="{LEFT}" y="18" font-size="13">{escape(title)}</text>']
    for k in range(5):
        x, y = low_x + k / 4 * (high_x - low_x), low_y + k / 4 * (high_y - low_y)
        (across, _), (_, down) = place(x, low_y), place(low_x, y)
        parts.append(f'<path d="M{LEFT} {down:.1f}H{WIDTH - 16}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{down + 4:.1f}" text-anchor="end">{y:.3g}</text>')
        parts.append(f'<text x="{across:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{x:.4g}</text>')
    for k, curve in enumerate(curves):
        color = COLORS[k % len(COLORS)]
        points = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in zip(curve.x, curve.y, strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        parts.append(f'<text x="{WIDTH - 20}" y="{TOP + 14 * (k + 1)}" text-anchor="end" fill="{color}">')
        parts.append(f"{escape(curve.name)}</text>")
    return "".join(parts)


def _span(values: Sequence[float]) -> tuple[float, float]:
    finite = [v for v in values if abs(v) < float("inf")] or [0.0]
    low, high = min(finite), max(finite)
    return (low, high) if high > low else (low - 0.5, low + 0.5)
