"""Where methods are right: confusion or AUC by label, and the score by degree, by homophily and by class size.

Of a regression: predicted against true numbers, the scores of every target, and the score by degree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeldeconv.analysis.card import degrees, labelled
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.metrics import METRICS, TITLES, regression_score, roc_auc
from labeldeconv.graph.task import RegressionTask
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.report.blocks import Block, Cell, Figure, PageTable, Section, axis, score_axis, series, shown
from labeldeconv.report.source import Entry, ReportSource
from labeldeconv.report.tabs.data_card import class_counts, degree_bins
from labeldeconv.report.wording import TO, shortened

MOST_NODES = 200_000  # test nodes looked at
MOST_CLASSES = 30  # of a confusion matrix
NARROW = 12  # classes of a matrix that fits beside another chart
MOST_LABELS = 30  # of the AUC chart
MOST_VARIANTS = 30
MOST_POINTS = 500  # nodes of a chart of numbers
MOST_TARGETS = 4  # of the same
LEAST = 10  # nodes of a bin that is shown
HOMOPHILY = tuple(f"{20 * b}{TO}{20 * (b + 1)}%" for b in range(5))


@dataclass(frozen=True, eq=False)
class Tested:
    """Test nodes with labels: their ids (m,), labels (m,) or (m, c), degree (m,) and homophily (m,), NaN if unknown."""

    ids: np.ndarray
    labels: np.ndarray
    degree: np.ndarray
    homophily: np.ndarray
    note: str


def predictions(source: ReportSource, adj: Adjacency) -> Section | None:
    """The tab of errors; None without run directories or test labels."""
    graph = source.graph
    assert graph is not None
    tested = _tested(graph, adj)
    entries = [e for e in source.entries if e.runs]
    if not entries or len(tested.ids) == 0:
        return None
    if graph.task == "regression":
        told: list[Block] = [_against_truth(source, entries, tested), _by_target(source, entries, tested)]
        return Section("predictions", "Predictions", _drawn([*told, _by_degree(source, tested)]))
    multiclass = graph.task == "multiclass"
    blocks: list[Block] = [_confusion(source, entries, tested)] if multiclass else [_areas(source, entries, tested)]
    blocks.append(_by_degree(source, tested))
    known = ~np.isnan(tested.homophily)
    bins = np.where(known, np.minimum((np.nan_to_num(tested.homophily) * 5).astype(int), 4), -1)
    what = "neighbours with the node's class" if multiclass else "mean Jaccard index with the neighbours' labels"
    if known.any():
        blocks.append(_by_bin(source, tested, bins, list(HOMOPHILY), "homophily", what))
    blocks.append(_by_class(source, tested))
    return Section("predictions", "Predictions", _drawn(blocks))


def _drawn(blocks: Sequence[Block]) -> list[Block]:
    """The blocks without figures that show nothing."""
    return [b for b in blocks if not isinstance(b, Figure) or b.variants]


def _by_degree(source: ReportSource, tested: Tested) -> Figure:
    bins, names = degree_bins(tested.degree)
    return _by_bin(source, tested, bins, names, "degree", "degree of the node")


def _against_truth(source: ReportSource, entries: list[Entry], tested: Tested) -> Figure:
    """Predicted against true numbers of test nodes, a chart per entry and a colour per target; of the first seed."""
    graph, task = source.graph, source.task
    assert graph is not None
    assert isinstance(task, RegressionTask)
    chosen = np.arange(len(tested.ids))
    if len(chosen) > MOST_POINTS:
        chosen = np.sort(np.random.default_rng(0).choice(chosen, MOST_POINTS, replace=False))
    variants = []
    for entry in entries[:MOST_VARIANTS]:
        values = task.values(_logits(entry, tested.ids[chosen])[0])
        lines = []
        for k, name in enumerate(graph.class_names[:MOST_TARGETS]):
            pairs = zip(tested.labels[chosen, k], values[:, k], strict=True)
            points = [[float(true), float(said)] for true, said in pairs if not math.isnan(true)]
            lines += [series(shortened(name), k, points)] if points else []
        x, y = axis("true number"), axis("predicted number")
        variants.append((source.name(entry), {"type": "scatter", "x": x, "y": y, "series": lines}))
    note = "Test nodes, first seed; a perfect prediction lies on the diagonal."
    note += f" {MOST_POINTS} of {len(tested.ids):,} nodes, drawn at random." if len(tested.ids) > MOST_POINTS else ""
    note += f" The first {MOST_TARGETS} of {graph.num_classes} targets." if graph.num_classes > MOST_TARGETS else ""
    return Figure("Predicted against true", variants, note, wide=True, choose="Entry")


def _by_target(source: ReportSource, entries: list[Entry], tested: Tested) -> PageTable:
    """R2, MAE and RMSE of every target on the test nodes, means over seeds."""
    graph, task = source.graph, source.task
    assert graph is not None
    assert isinstance(task, RegressionTask)
    rows = []
    for entry in entries[:MOST_VARIANTS]:
        values = [task.values(logits) for logits in _logits(entry, tested.ids)]
        for k, name in enumerate(graph.class_names[:MOST_LABELS]):
            truth = tested.labels[:, k : k + 1]
            cells = [
                shown(TITLES[m], float(np.mean([regression_score(m, v[:, k : k + 1], truth) for v in values])))
                for m in METRICS["regression"]
            ]
            rows.append([Cell(source.name(entry)), Cell(shortened(name)), *map(Cell, cells)])
    columns = ["entry", "target", *(TITLES[m] for m in METRICS["regression"])]
    note = "On test nodes, means over seeds; MAE and RMSE in the unit of the labels." + tested.note
    return PageTable("Scores by target", columns, rows, [False, False, True, True, True], note)


def node_homophily(graph: AttributedGraph, adj: Adjacency, ids: np.ndarray) -> np.ndarray:
    """Share of a node's labelled neighbours with its class, or mean Jaccard index of labels; NaN if unknown (m,)."""
    counts = np.diff(adj.indptr)[ids]
    rows = np.repeat(np.arange(len(ids)), counts)
    first = np.cumsum(counts) - counts
    cols = adj.indices[np.arange(counts.sum()) + np.repeat(adj.indptr[ids] - first, counts)]
    own = ids[rows]
    kept = own != cols
    rows, cols, own = rows[kept], cols[kept], own[kept]
    agree, count = np.zeros(len(ids)), np.zeros(len(ids))
    for start in range(0, len(rows), 1 << 18):
        part = slice(start, start + (1 << 18))
        a, b = graph.labels[own[part]], graph.labels[cols[part]]
        if graph.task == "multiclass":
            known, same = (a >= 0) & (b >= 0), (a == b).astype(float)
        else:
            union = ((a > 0) | (b > 0)).sum(1)
            known, same = union > 0, ((a > 0) & (b > 0)).sum(1) / np.maximum(union, 1)
        agree += np.bincount(rows[part][known], same[known], minlength=len(ids))
        count += np.bincount(rows[part][known], minlength=len(ids))
    return np.where(count > 0, agree / np.maximum(count, 1), np.nan)


def _tested(graph: AttributedGraph, adj: Adjacency) -> Tested:
    ids = graph.split.test
    ids = ids[labelled(graph)[ids]]
    note = ""
    if len(ids) > MOST_NODES:
        note = f" {MOST_NODES:,} of {len(ids):,} test nodes, drawn at random."
        ids = np.sort(np.random.default_rng(0).choice(ids, MOST_NODES, replace=False))
    homophily = np.full(len(ids), np.nan) if graph.task == "regression" else node_homophily(graph, adj, ids)
    return Tested(ids, np.asarray(graph.labels[ids]), degrees(adj)[ids], homophily, note)


def _logits(entry: Entry, ids: np.ndarray) -> list[np.ndarray]:
    """Logits (m, c) of every seed."""
    return [np.asarray(run.logits[ids], dtype=np.float32) for run in entry.runs]


def _confusion(source: ReportSource, entries: list[Entry], tested: Tested) -> Figure:
    assert source.graph is not None
    c = source.graph.num_classes
    sizes = np.bincount(tested.labels, minlength=c)
    order = np.argsort(-sizes, kind="stable")[:MOST_CLASSES]
    order = np.sort(order[sizes[order] > 0]) if c <= MOST_CLASSES else order[sizes[order] > 0]
    place = np.full(c, len(order))
    place[order] = np.arange(len(order))
    names = [shortened(source.graph.class_names[k], 18) for k in order]
    others = len(order) < c
    variants = []
    for entry in entries[:MOST_VARIANTS]:
        matrix = np.zeros((len(order) + 1, len(order) + 1))
        for logits in _logits(entry, tested.ids):
            np.add.at(matrix, (place[tested.labels], place[logits.argmax(1)]), 1)
        rows = matrix[: len(order)]
        shares = rows / np.maximum(rows.sum(1, keepdims=True), 1)
        columns = [*names, "others"] if others and rows[:, -1].any() else names
        values = np.round(shares[:, : len(columns)], 3).tolist()
        heat = {"type": "heat", "x": axis("predicted class"), "y": axis("true class"), "rows": names, "form": "pct"}
        variants.append((source.name(entry), {**heat, "columns": columns, "values": values}))
    note = "Share of a true class (row, in percent) that was predicted as a class (column), over test nodes and seeds."
    if c > MOST_CLASSES:
        note += f" The {len(order)} most frequent of {c:,} classes."
    shown = [source.name(entry) for entry in entries[:MOST_VARIANTS]]
    first = source.name(source.reference)
    start = shown.index(first) if first in shown else 0
    wide = len(order) > NARROW
    return Figure("Confusion matrix", variants, note + tested.note, wide=wide, choose="Entry", start=start)


def _areas(source: ReportSource, entries: list[Entry], tested: Tested) -> Figure:
    """AUC of each label, by group; the labels with most test positives where there are many."""
    assert source.graph is not None
    positives = (tested.labels > 0).sum(0)
    shown = np.argsort(-positives, kind="stable")[:MOST_LABELS]
    variants = []
    for name, members in list(source.groups.items())[:MOST_VARIANTS]:
        rows = []
        areas = {e.method: _label_areas(e, tested) for e in members if e in entries}
        for k in shown:
            points = [
                {"name": e.method, "color": e.color, "value": areas[e.method][k]}
                for e in members
                if e.method in areas and not math.isnan(areas[e.method][k])
            ]
            if points:
                rows.append({"name": shortened(source.graph.class_names[k]), "points": points})
        if rows:
            variants.append((name, {"type": "strip", "x": axis("ROC-AUC (%)", "pct", mark=0.5), "rows": rows}))
    note = "Area under the ROC curve of each label on the test nodes, mean over seeds; 50% is chance."
    if len(positives) > MOST_LABELS:
        note += f" The {MOST_LABELS} of {len(positives):,} labels with most positive test nodes."
    return Figure("ROC-AUC by label", variants, note + tested.note, wide=True)


def _label_areas(entry: Entry, tested: Tested) -> np.ndarray:
    """ROC-AUC of each label (c,), mean over seeds; NaN where a label has one class only."""
    out = []
    for logits in _logits(entry, tested.ids):
        areas = np.full(tested.labels.shape[1], np.nan)
        for k, column in enumerate(tested.labels.T):
            known = column >= 0
            if known.any() and 0 < (column[known] > 0).sum() < known.sum():
                areas[k] = roc_auc(logits[known, k], column[known] > 0)
        out.append(areas)
    return np.mean(out, axis=0)


def _by_bin(
    source: ReportSource, tested: Tested, bins: np.ndarray, names: list[str], title: str, across: str
) -> Figure:
    """The score in each bin of test nodes, a line per method; the standard error where it is an accuracy."""
    counts = np.bincount(bins[bins >= 0], minlength=len(names))
    shown = [b for b in range(len(names)) if counts[b] >= LEAST]
    variants = []
    for group, entries in list(source.groups.items())[:MOST_VARIANTS]:
        lines = []
        for entry in entries:
            every = _logits(entry, tested.ids)
            points = []
            for place, b in enumerate(shown if every else []):
                inside = bins == b
                score = float(np.mean([source.task.score(x[inside], tested.labels[inside]) for x in every]))
                error = math.sqrt(score * (1 - score) / counts[b]) if source.task.metric_name == "accuracy" else None
                if not math.isnan(score):
                    points.append([place, score, error])
            if points:
                lines.append(series(entry.method, entry.color, points, marks=True))
        if lines and len(shown) > 1:
            x = axis(across, names=[names[b] for b in shown], counts=counts[shown].tolist())
            y = score_axis("test", source.metric)
            variants.append((group, {"type": "lines", "x": x, "y": y, "series": lines}))
    note = f"Bins with fewer than {LEAST} test nodes are left out."
    if source.task.metric_name == "accuracy":
        note += " Bars: one standard error."
    return Figure(f"{source.metric[0].upper()}{source.metric[1:]} by {title}", variants, note + tested.note)


def _by_class(source: ReportSource, tested: Tested) -> Figure:
    """Recall of each class, or AUC of each label, against the number of its train nodes."""
    graph = source.graph
    assert graph is not None
    trained = class_counts(graph)[0]
    multiclass = graph.task == "multiclass"
    variants = []
    for group, entries in list(source.groups.items())[:MOST_VARIANTS]:
        lines = []
        for entry in entries:
            if not entry.runs:
                continue
            scores = _recalls(entry, tested, graph.num_classes) if multiclass else _label_areas(entry, tested)
            points: list[list[Any]] = [
                [int(trained[k]), float(scores[k]), None, shortened(graph.class_names[k])]
                for k in range(graph.num_classes)
                if not math.isnan(scores[k]) and trained[k] > 0
            ]
            if points:
                lines.append(series(entry.method, entry.color, points))
        if lines:
            x = axis("train nodes of the class" if multiclass else "positive train nodes of the label", "int", log=True)
            y = axis("recall on test nodes (%)" if multiclass else "ROC-AUC (%)", "pct")
            variants.append((group, {"type": "scatter", "x": x, "y": y, "series": lines}))
    what = "Share of a class's test nodes that is found" if multiclass else "ROC-AUC of a label"
    return Figure(
        "By class size" if multiclass else "By label size", variants, f"{what}; one mark per class and method."
    )


def _recalls(entry: Entry, tested: Tested, c: int) -> np.ndarray:
    sizes = np.bincount(tested.labels, minlength=c)
    hits = [np.bincount(tested.labels[x.argmax(1) == tested.labels], minlength=c) for x in _logits(entry, tested.ids)]
    return np.where(sizes > 0, np.mean(hits, axis=0) / np.maximum(sizes, 1), np.nan)
