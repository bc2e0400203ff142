"""The data card: what `inspect` says of a graph before anything is trained."""

from __future__ import annotations

from typing import Any

import numpy as np

from labeldeconv.adjacency import Adjacency
from labeldeconv.graph import AttributedGraph
from labeldeconv.split import ROLES


def data_card(graph: AttributedGraph) -> dict[str, Any]:
    """Nodes, undirected edges, degrees, classes, split, homophily and text lengths as plain values."""
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes)
    degree = np.diff(adj.indptr)
    isolated = (degree == 1) & (adj.indices[adj.indptr[:-1]] == np.arange(graph.num_nodes))
    degree = np.where(isolated, 0, degree)
    lengths = graph.texts.lengths()
    return {
        "name": graph.name,
        "nodes": graph.num_nodes,
        "edges": int(degree.sum()) // 2,
        "degree": {
            "mean": round(float(degree.mean()), 3),
            "median": float(np.median(degree)),
            "max": int(degree.max()),
        },
        "isolated": int(isolated.sum()),
        "task": graph.task,
        "classes": graph.num_classes,
        "labelled": int((graph.labels >= 0).sum() if graph.task == "multiclass" else (graph.labels >= 0).any(1).sum()),
        "split": {role: len(graph.split.ids(role)) for role in ROLES},
        "homophily": homophily(graph, adj),
        "attributes": graph.attributes,
        "text_bytes": {"mean": round(float(lengths.mean()), 1), "max": int(lengths.max()), "total": int(lengths.sum())},
        "empty_texts": int((lengths == 0).sum()),
        "given_features": None if graph.features is None else int(graph.features.shape[1]),
        "edge_features": None if graph.edge_features is None else int(graph.edge_features.shape[1]),
    }


def homophily(graph: AttributedGraph, adj: Adjacency | None = None) -> float | None:
    """Share of edges whose ends agree: same class, or mean Jaccard index of the positives (multi-label).

    Edges with an unlabelled end do not count; None where no edge counts.
    """
    adj = adj or Adjacency.from_edges(graph.edges, graph.num_nodes)
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(adj.indptr))
    kept = rows < adj.indices
    rows, cols = rows[kept], adj.indices[kept]
    if graph.task == "multiclass":
        a, b = graph.labels[rows], graph.labels[cols]
        known = (a >= 0) & (b >= 0)
        return round(float((a[known] == b[known]).mean()), 4) if known.any() else None
    total, count = 0.0, 0
    for start in range(0, len(rows), 1 << 16):
        a, b = (graph.labels[ids[start : start + (1 << 16)]] > 0 for ids in (rows, cols))
        union = (a | b).sum(1)
        total += float(((a & b).sum(1)[union > 0] / union[union > 0]).sum())
        count += int((union > 0).sum())
    return round(total / count, 4) if count else None
