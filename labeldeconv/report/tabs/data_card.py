"""The data card: size, degrees, classes, split, homophily and texts of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from labeldeconv.analysis.card import data_card, degrees
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import ROLES
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.report.blocks import Block, Cell, Facts, Figure, PageTable, Section, axis
from labeldeconv.report.wording import NOTHING, TO, shortened

MOST_CLASSES = 40
ROLE_COLORS = (8, 9, 6)  # of the palette: train, val, test


def data_section(graph: AttributedGraph, adj: Adjacency) -> Section:
    """The data card with two distributions."""
    blocks: list[Block] = [Facts(_facts(data_card(graph)))]
    if graph.num_nodes:
        blocks += [_targets(graph) if graph.task == "regression" else _classes(graph), _degrees(degrees(adj))]
    return Section("data", "Data", blocks)


def degree_bins(degree: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Bin of each node (m,) and names of the bins: 0, 1, 2, 3-4, 5-8, 9-16, ..."""
    bins = np.where(degree < 3, degree, np.ceil(np.log2(np.maximum(degree, 1))).astype(int) + 1)
    last = int(bins.max(initial=0))
    names = ["0", "1", "2", *(f"{2 ** (b - 2) + 1:,}{TO}{2 ** (b - 1):,}" for b in range(3, last + 1))]
    return bins, names[: last + 1]


def class_counts(graph: AttributedGraph) -> np.ndarray:
    """Nodes of each class, or positives of each label, by role (3, c)."""
    counts = np.zeros((3, graph.num_classes), dtype=np.int64)
    for role in range(3):
        labels = graph.labels[graph.split.roles == role]
        if graph.task == "multiclass":
            counts[role] = np.bincount(labels[labels >= 0], minlength=graph.num_classes)
        else:
            counts[role] = (labels > 0).sum(0)
    return counts


def _facts(card: dict[str, Any]) -> list[tuple[str, str]]:
    size, text = card["degree"], card["text_bytes"]
    split = ", ".join(f"{role} {count:,}" for role, count in card["split"].items())
    facts = [
        ("name", card["name"]),
        ("nodes", f"{card['nodes']:,}"),
        ("undirected edges", f"{card['edges']:,}"),
        ("degree", f"mean {size['mean']:.2f}, median {size['median']:g}, max {size['max']:,}"),
        ("isolated nodes", f"{card['isolated']:,}"),
        ("task", {"multiclass": "multi-class", "multilabel": "multi-label"}.get(card["task"], card["task"])),
        *((kind, f"{card[kind]:,}") for kind in ("classes", "targets") if kind in card),
        ("labelled nodes", f"{card['labelled']:,}"),
        ("split", split),
        ("homophily", NOTHING if card["homophily"] is None else f"{card['homophily']:.3f}"),
        ("attributes", card["attributes"]),
        ("text length (bytes)", f"mean {text['mean']:,.0f}, max {text['max']:,}"),
        ("empty texts", f"{card['empty_texts']:,}"),
    ]
    given = [(key, card[key]) for key in ("given_features", "edge_features") if card[key] is not None]
    return facts + [(key.replace("_", " "), f"{columns:,} columns") for key, columns in given]


def _classes(graph: AttributedGraph) -> Figure:
    counts = class_counts(graph)
    order = np.argsort(-counts.sum(0), kind="stable")
    shown = order[:MOST_CLASSES]
    rows = [{"name": shortened(graph.class_names[k]), "parts": counts[:, k].tolist()} for k in shown]
    what = "nodes" if graph.task == "multiclass" else "positive nodes"
    note = f"The {MOST_CLASSES} largest of {len(order):,}." if len(order) > MOST_CLASSES else ""
    parts = [{"name": role, "color": color} for role, color in zip(ROLES, ROLE_COLORS, strict=True)]
    spec = {"type": "stacked", "x": axis(what, "int"), "parts": parts, "rows": rows}
    return Figure("Class sizes" if graph.task == "multiclass" else "Positives by label", [("", spec)], note)


def _targets(graph: AttributedGraph) -> PageTable:
    """What is known of every number that is to be predicted."""
    rows = []
    for name, column in list(zip(graph.class_names, graph.labels.T, strict=True))[:MOST_CLASSES]:
        y = column[~np.isnan(column)]
        told = [f"{value:.4g}" for value in (y.mean(), y.std(), y.min(), np.median(y), y.max())] if len(y) else []
        rows.append([Cell(shortened(name)), Cell(f"{len(y):,}"), *map(Cell, told or [NOTHING] * 5)])
    columns = ["target", "known", "mean", "standard deviation", "least", "median", "largest"]
    note = f"The first {MOST_CLASSES} of {graph.num_classes:,}." if graph.num_classes > MOST_CLASSES else ""
    return PageTable("Targets", columns, rows, [False, *[True] * 6], f"Over all nodes with a number. {note}".strip())


def _degrees(degree: np.ndarray) -> Figure:
    bins, names = degree_bins(degree)
    counts = np.bincount(bins, minlength=len(names)).tolist()
    spec = {"type": "bars", "x": axis("degree"), "y": axis("nodes", "int"), "names": names, "values": counts}
    return Figure("Degrees", [("", spec)], "Neighbours of a node, edges taken both ways; bins double from 3 on.")
