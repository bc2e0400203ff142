"""Scores against varied settings: the paper's figures over N and alpha, and its encoder scaling."""

from __future__ import annotations

import math
from typing import Any

from labeldeconv.report.blocks import Block, Figure, Section, axis, score_axis, series
from labeldeconv.report.source import Entry, ReportSource, short

TITLES = {"labels.hops": "hops N", "labels.alpha": "alpha", "encoder.name": "encoder"}


def sweeps(source: ReportSource) -> Section | None:
    """A figure per varied setting; None where nothing was varied."""
    blocks: list[Block] = [figure for name in source.varied if (figure := _sweep(source, name))]
    return Section("sweeps", "Sweeps", blocks) if blocks else None


def _sweep(source: ReportSource, name: str) -> Figure | None:
    """Test score over the values of one setting, a line per method and value of the other settings."""
    values = list(dict.fromkeys(str(e.varied[name]) for e in source.entries))
    if len(values) < 2:
        return None
    numbers = [_as_number(v) for v in values]
    numeric = all(v is not None for v in numbers)
    several = len({e.method for e in source.entries}) > 1
    variants: dict[str, dict[str, list[Entry]]] = {}
    for entry in source.entries:
        others = ", ".join(f"{short(k)} {v}" for k, v in entry.varied.items() if k != name)
        variant = entry.gnn
        line = ", ".join(filter(None, [entry.method if several or not others else "", others]))
        variants.setdefault(variant, {}).setdefault(line, []).append(entry)
    title = TITLES.get(name, short(name))
    drawn = []
    for gnn, lines in variants.items():
        shown = []
        for place, (label, entries) in enumerate(list(lines.items())[:9]):
            color = entries[0].color if several and len(source.varied) == 1 else place
            points: list[list[Any]] = []
            for e in entries:
                across = _as_number(str(e.varied[name])) if numeric else values.index(str(e.varied[name]))
                if not math.isnan(e.test[0]):
                    points.append([across, e.test[0], e.test[1] if len(e.tests) > 1 else None])
            shown.append(series(label, color, sorted(points, key=lambda p: p[0]), marks=True))
        x = axis(title, "num", at=numbers) if numeric else axis(title, names=values)
        drawn.append((gnn, {"type": "lines", "x": x, "y": score_axis("test", source.metric), "series": shown}))
    note = "Mean over seeds; bars: one standard deviation." if source.seeds > 1 else "One seed."
    return Figure(f"Test {source.metric} over {title}", drawn, note, wide=True, choose="GNN")


def _as_number(text: str) -> float | None:
    """A value of a setting as a place on an axis; None where it is a word."""
    try:
        return float(text)
    except ValueError:
        return None
