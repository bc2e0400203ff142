"""The node explorer's data: a bounded sample of nodes with texts, neighbours, labels by hop and predictions.

Everything is cut to stated bounds, so that the page stays small whatever the graph: nodes, characters of a text and of
an id, neighbours of a node and classes of a bar chart. Values are whole percents, or numbers in the unit of the labels
(`node_numbers`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from labeldeconv.analysis.card import degrees
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.task import RegressionTask, Task
from labeldeconv.labels.inverse import InverseLabels
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.fixed_point import dequantize
from labeldeconv.report.blocks import Explorer, Section, embedded
from labeldeconv.report.source import Entry, ReportSource
from labeldeconv.report.tabs.explained import explained
from labeldeconv.report.tabs.node_numbers import (
    TARGETS,
    far_off,
    known_numbers,
    mean_prediction,
    number_predictions,
    number_slices,
    unit_of,
)
from labeldeconv.report.wording import shortened
from labeldeconv.runs.directory import RunDirectory

MOST_NODES = 4_000
MOST_BYTES = 3_000_000  # of all nodes as JSON
TEXT = 800  # characters
ID = 60
NEIGHBOURS = 24
CLASSES = 5  # rows of the bars of a node
ENTRIES = 24  # predictions of a node
TOP = 5  # labels of a multi-label prediction


def nodes(source: ReportSource, adj: Adjacency, most: int = MOST_NODES, most_bytes: int = MOST_BYTES) -> Section | None:
    """The explorer tab; None without a node."""
    graph = source.graph
    assert graph is not None
    if graph.num_nodes == 0:
        return None
    numbers = source.task if isinstance(source.task, RegressionTask) else None
    entries = [e for e in source.entries if e.runs][:ENTRIES]
    while True:
        chosen, how = sample(source, entries, adj, most)
        stacked, slices, origin = _slices(source, chosen)
        bars = _bars(stacked) if numbers is None else number_slices(numbers, stacked, np.asarray(graph.labels[chosen]))
        rows = _rows(source, adj, chosen, bars, _predictions(source, entries, chosen))
        size = sum(len(embedded(row).encode()) + 1 for row in rows)
        if size <= most_bytes or len(rows) <= 1:
            break
        most = max(1, min(len(rows) - 1, int(0.95 * len(rows) * most_bytes / size)))
    n = graph.num_nodes
    note = f"All {n:,} nodes." if len(rows) == n else f"{len(rows):,} of {n:,} nodes: {how}."
    note += f" Texts are cut at {TEXT} characters." if any(row["cut"] for row in rows) else ""
    shown = graph.class_names if numbers is None else graph.class_names[:TARGETS]
    note += f" The first {TARGETS} of {graph.num_classes} targets are shown." if len(shown) < graph.num_classes else ""
    reasons = explained(source.reference, chosen, graph.split.test)
    for place, told in reasons.items():
        rows[place]["e"] = told
    note += f" What carried the prediction is told of {len(reasons):,} of them." if reasons else ""
    data = {
        "task": graph.task,
        "classes": [shortened(name, 48) for name in shown],
        **({} if numbers is None else {"unit": unit_of(numbers)}),
        "entries": [{"name": source.name(e), "color": e.color, "seeds": len(e.runs)} for e in entries],
        "reference": next((i for i, e in enumerate(entries) if e is source.reference), 0),
        "slices": slices,
        "origin": origin,
        "nodes": rows,
    }
    return Section("nodes", "Nodes", [Explorer(data, note)])


def sample(source: ReportSource, entries: list[Entry], adj: Adjacency, most: int) -> tuple[np.ndarray, str]:
    """Nodes to show and how they were chosen: test nodes, first the notable ones, then neighbours."""
    graph = source.graph
    assert graph is not None
    n = graph.num_nodes
    if n <= most:
        return np.arange(n), "all"
    rng = np.random.default_rng(0)
    pool = graph.split.test if len(graph.split.test) else np.arange(n)
    pool = np.sort(rng.choice(pool, min(len(pool), 50 * most), replace=False))
    quarter = most // 4
    if isinstance(source.task, RegressionTask):
        first = _farthest(source, source.task, pool)[:quarter]
        notable = f"with the largest errors of {source.name(source.reference)}"
    else:
        first, notable = rng.permutation(pool[_disputed(entries, pool)])[:quarter], "on which methods disagree"
    second = rng.permutation(np.setdiff1d(pool, first))[: 2 * quarter - len(first)]
    seeds = np.concatenate([first, second])
    near = [adj.indices[adj.indptr[i] : adj.indptr[i + 1]][:NEIGHBOURS] for i in seeds]
    around = np.setdiff1d(np.concatenate([np.empty(0, adj.indices.dtype), *near]), seeds)
    rest = rng.permutation(around)[: most - len(seeds)]
    taken = np.concatenate([seeds, rest])
    more = rng.permutation(np.setdiff1d(rng.choice(n, min(n, 2 * most), replace=False), taken))[: most - len(taken)]
    parts = (
        (first, f"test nodes {notable}"),
        (second, "other test nodes drawn at random"),
        (rest, "neighbours of these"),
        (more, "nodes drawn at random"),
    )
    how = ", ".join(f"{len(ids):,} {words}" for ids, words in parts if len(ids))
    return np.concatenate([taken, more]).astype(np.int64), how


def _farthest(source: ReportSource, task: RegressionTask, pool: np.ndarray) -> np.ndarray:
    """Nodes of the pool (m,) by the error of the reference, the largest first; those whose error is known."""
    graph = source.graph
    assert graph is not None
    if not source.reference.runs:
        return pool[:0]
    predicted, _ = mean_prediction(task, source.reference, pool)
    far = far_off(task, predicted, np.asarray(graph.labels[pool]))
    order = np.argsort(-far, kind="stable")  # NaN comes last
    return pool[order[: int((~np.isnan(far)).sum())]]


def _disputed(entries: list[Entry], pool: np.ndarray) -> np.ndarray:
    """Whether two entries predict different classes for a node (m,); multi-label: different first labels."""
    first = None
    differs = np.zeros(len(pool), dtype=bool)
    for entry in entries:
        best = np.asarray(entry.runs[0].logits[pool]).argmax(1)
        first = best if first is None else first
        differs |= best != first
    return differs


def _slices(source: ReportSource, chosen: np.ndarray) -> tuple[np.ndarray, list[str], str]:
    """Labels of nodes (m,) by slice as targets (m, slices, c), NaN where missing; names of the slices; their run."""
    graph = source.graph
    assert graph is not None
    truth = source.task.targets(np.asarray(graph.labels[chosen]))  # (m, c)
    slices, values, origin = ["true"], [truth], ""
    run = _label_run(source)
    K = None if run is None else run.pseudo_labels if run.hop_labels is None else run.hop_labels
    if run is not None and K is not None:
        place = np.full(graph.num_nodes, -1)
        place[run.label_nodes] = np.arange(len(K))
        known = place[chosen] >= 0
        K = dequantize(np.array(K[place[chosen].clip(0)]))  # (m, h, c)
        K = K[:, None] if K.ndim == 2 else K
        K[~known] = np.nan
        slices += ["K0 pseudo", *(f"K{i}" for i in range(1, K.shape[1]))]
        values += [K[:, i] for i in range(K.shape[1])]
        if run.gamma and len(run.gamma) == K.shape[1]:
            inverse = InverseLabels(K, run.result["alpha"], source.task, run.gamma)
            slices.append("inverse")
            values.append(inverse(np.arange(len(chosen))).detach().numpy())
        origin = f"{run.method}, {run.gnn}, seed {run.seed}"
    return np.stack(values, axis=1), slices, origin


def _bars(stacked: np.ndarray) -> list[Any]:
    """Per node [classes, values by slice in percent], from shares (m, slices, c)."""
    top = np.argsort(-np.nan_to_num(stacked).max(1), axis=1, kind="stable")[:, :CLASSES]
    out: list[Any] = []
    for i, classes in enumerate(top):
        shown = [int(k) for k in classes if np.nan_to_num(stacked[i, :, k]).max() >= 0.005]
        percents = [[None if np.isnan(v) else round(100 * float(v)) for v in stacked[i, :, k]] for k in shown]
        out.append([shown, percents])
    return out


def _label_run(source: ReportSource) -> RunDirectory | None:
    """The run whose labels are shown: the first with several hops, else the first with pseudo labels."""
    runs = [run for entry in (source.reference, *source.entries) for run in entry.runs[:1]]
    many = (run for run in runs if (K := run.hop_labels) is not None and K.shape[1] > 1)
    return next(many, None) or next((run for run in runs if run.pseudo_labels is not None), None)


def _predictions(source: ReportSource, entries: list[Entry], chosen: np.ndarray) -> list[list[Any]]:
    """Per node and entry: multi-class [class, percent, seeds that are right]; multi-label [[label, percent], ...].

    Of a regression see `number_predictions`.
    """
    graph = source.graph
    assert graph is not None
    labels = np.asarray(graph.labels[chosen])
    if isinstance(source.task, RegressionTask):
        return number_predictions(source.task, entries, chosen, labels)
    out: list[list[Any]] = [[] for _ in chosen]
    for entry in entries:
        logits = [np.asarray(run.logits[chosen], dtype=np.float32) for run in entry.runs]
        first = source.task.probabilities(torch.from_numpy(logits[0])).numpy()
        if graph.task == "multiclass":
            right = sum((x.argmax(1) == labels).astype(int) for x in logits)
            for i, row in enumerate(first):
                best = int(row.argmax())
                out[i].append([best, round(100 * float(row[best])), int(np.asarray(right)[i])])
        else:
            for i, row in enumerate(first):
                top = np.argsort(-row, kind="stable")[:TOP]
                out[i].append([[int(k), round(100 * float(row[k]))] for k in top])
    return out


def _rows(
    source: ReportSource, adj: Adjacency, chosen: np.ndarray, bars: list[Any], predicted: list[list[Any]]
) -> list[dict[str, Any]]:
    """What the page knows of each node; neighbours in the sample by place, others by id and label."""
    graph, task = source.graph, source.task
    assert graph is not None
    place = {int(node): i for i, node in enumerate(chosen)}
    degree = degrees(adj)
    rows = []
    for i, node in enumerate(map(int, chosen)):
        near = [int(j) for j in adj.indices[adj.indptr[node] : adj.indptr[node + 1]] if j != node]
        inside = [place[j] for j in near if j in place][:NEIGHBOURS]
        outside = [j for j in near if j not in place][: NEIGHBOURS - len(inside)]
        text = _text(graph, node)
        rows.append(
            {
                "id": shortened(graph.node_id(node), ID),
                "t": text[:TEXT],
                "cut": int(graph.texts.offsets[node + 1] - graph.texts.offsets[node]) if len(text) > TEXT else 0,
                "r": int(graph.split.roles[node]),
                "d": int(degree[node]),
                "y": _label(graph, task, node),
                "n": inside,
                "o": [[shortened(graph.node_id(j), ID), _label(graph, task, j)] for j in outside],
                "b": bars[i],
                "p": predicted[i],
            }
        )
    return rows


def _text(graph: AttributedGraph, node: int) -> str:
    """The beginning of a node's text: enough bytes for one character more than is shown, decoded with care."""
    start, stop = int(graph.texts.offsets[node]), int(graph.texts.offsets[node + 1])
    return bytes(graph.texts.buffer[start : min(stop, start + 4 * (TEXT + 1))]).decode("utf-8", "ignore")


def _label(graph: AttributedGraph, task: Task, node: int) -> Any:
    """The class of a node, its positive labels, at most 20, or its numbers; None where none is known."""
    label = graph.labels[node]
    if isinstance(task, RegressionTask):
        return known_numbers(task, label)
    if graph.task == "multiclass":
        return int(label) if label >= 0 else None
    return [int(k) for k in np.flatnonzero(label > 0)[:20]] if (label >= 0).any() else None
