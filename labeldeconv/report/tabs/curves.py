"""Curves over training: gamma and loss by encoder step, loss and validation score by GNN epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from labeldeconv.analysis.weights import GammaCurve, gamma_curve
from labeldeconv.report.blocks import Block, Figure, Section, axis, number, score_axis, series, thinned
from labeldeconv.report.source import Entry, ReportSource
from labeldeconv.report.wording import GAMMA
from labeldeconv.runs.directory import RunDirectory

MOST_VARIANTS = 30  # charts to choose from in one figure
MOST_SEEDS = 5  # lines per method
WINDOW = 0.04  # of the steps: the moving mean of the encoder's loss

Rows = list[dict[str, Any]]  # of a log
Points = list[list[float]]


def training(source: ReportSource) -> Section | None:
    """The tab of curves; None where no run left a log."""
    found = [_gamma(source), _encoder_loss(source), *_gnn_curves(source)]
    blocks: list[Block] = [figure for figure in found if figure]
    return Section("training", "Training", blocks) if blocks else None


def moving_mean(values: Sequence[float], window: int) -> list[float]:
    """Centred mean over `window` values, fewer at both ends."""
    half = window // 2
    total = np.concatenate([[0.0], np.cumsum(values)])
    start = np.maximum(np.arange(len(values)) - half, 0)
    stop = np.minimum(np.arange(len(values)) + half + 1, len(values))
    return ((total[stop] - total[start]) / (stop - start)).tolist()


def _gamma(source: ReportSource) -> Figure | None:
    """The paper's weight figure: gamma_i over the steps of the encoder, one chart per LD entry."""
    variants: list[tuple[str, dict[str, Any]]] = []
    for entry in source.entries:
        curves = [curve for run in entry.runs[:MOST_SEEDS] if (curve := gamma_curve(run))]
        found = [curve for curve in curves if len(curve.final) > 1]
        if found and len(variants) < MOST_VARIANTS:
            variants.append((source.name(entry), _gamma_chart(found)))
    if not variants:
        return None
    note = "gamma_i weighs the labels i hops away in the inverse labels (all positive, sum 1); it starts where stated "
    note += "in the settings, uniform by default. Thin lines: single seeds." if source.seeds > 1 else "in the settings."
    return Figure("Weights gamma over training", variants, note, choose="Entry")


def _gamma_chart(curves: list[GammaCurve]) -> dict[str, Any]:
    lines = []
    shortest = min(len(curve.steps) for curve in curves)
    for i in range(len(curves[0].final)):
        each = [[[step, gamma[i]] for step, gamma in zip(c.steps, c.gamma, strict=True)] for c in curves]
        if len(each) > 1:
            lines += [series(f"{GAMMA}{i}", i, thinned(points), faint=True) for points in each]
        mean = [[each[0][t][0], float(np.mean([points[t][1] for points in each]))] for t in range(shortest)]
        lines.append(series(f"{GAMMA}{i}", i, thinned(mean), label=f"{GAMMA}{_below(i)}"))
    return {"type": "lines", "x": axis("encoder step", "int"), "y": axis("weight gamma"), "series": lines}


def _encoder_loss(source: ReportSource) -> Figure | None:
    def points(log: Rows) -> Points:
        window = max(1, round(WINDOW * len(log)))
        means = moving_mean([number(row["loss"]) for row in log], window)
        return [[row["step"], mean] for row, mean in zip(log, means, strict=True)]

    variants = _by_group(source, RunDirectory.steps, points, axis("encoder step", "int"), axis("loss"))
    note = f"Moving mean over {100 * WINDOW:.0f}% of the steps. Targets differ: compare shapes, not heights."
    return Figure("Encoder loss", variants, note) if variants else None


def _gnn_curves(source: ReportSource) -> list[Figure | None]:
    def loss(log: Rows) -> Points:
        return [[t, number(row["loss"])] for t, row in zip(_epochs(log), log, strict=True)]

    def val(log: Rows) -> Points:
        scores = [[t, number(row.get("val"))] for t, row in zip(_epochs(log), log, strict=True)]
        return [point for point in scores if not math.isnan(point[1])]

    across = axis("GNN epoch", "int")
    losses = _by_group(source, RunDirectory.epochs, loss, across, axis("loss"))
    scores = _by_group(source, RunDirectory.epochs, val, across, score_axis("validation", source.metric))
    return [
        Figure("GNN training loss", losses, "The final GNN on the features of each method.") if losses else None,
        Figure("GNN validation score", scores, "The best epoch on the validation nodes is kept.") if scores else None,
    ]


def _by_group(
    source: ReportSource,
    log: Callable[[RunDirectory], Rows],
    points: Callable[[Rows], Points],
    x: dict[str, Any],
    y: dict[str, Any],
) -> list[tuple[str, dict[str, Any]]]:
    """A chart per GNN and varied settings, a line per method and seed."""
    variants = []
    for name, entries in list(source.groups.items())[:MOST_VARIANTS]:
        lines = [line for entry in entries for line in _lines(entry, log, points)]
        if lines:
            variants.append((name, {"type": "lines", "x": x, "y": y, "series": lines}))
    return variants


def _lines(entry: Entry, log: Callable[[RunDirectory], Rows], points: Callable[[Rows], Points]) -> list[dict[str, Any]]:
    """One line per seed, the first one strong."""
    found = [points(rows) for run in entry.runs[:MOST_SEEDS] if (rows := log(run))]
    return [series(entry.method, entry.color, thinned(p), faint=seed > 0) for seed, p in enumerate(found) if len(p) > 1]


def _epochs(log: Rows) -> list[int]:
    """Epochs counted through: stages of self-training, which count from 1 each, follow one another."""
    out, before, last = [], 0, 0
    for row in log:
        before += last if row["epoch"] < last else 0
        last = row["epoch"]
        out.append(before + last)
    return out


def _below(i: int) -> str:
    """A number as subscript."""
    return "".join("₀₁₂₃₄₅₆₇₈₉"[int(digit)] for digit in str(i))
