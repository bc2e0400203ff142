"""The data card: what `inspect` says of a graph before anything is trained, and what is counted for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from labeldeconv.graph import missing
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import ROLES
from labeldeconv.propagation.adjacency import Adjacency


def data_card(graph: AttributedGraph) -> dict[str, Any]:
    """Nodes, undirected edges, degrees, classes, split, homophily and text lengths as plain values.

    Where labels are numbers, the card has 'targets' in place of 'classes'.
    """
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes)
    degree = degrees(adj)
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
        "isolated": int(isolated(adj).sum()),
        "task": graph.task,
        "targets" if graph.task == "regression" else "classes": graph.num_classes,
        "labelled": int(labelled(graph).sum()),
        "split": {role: len(graph.split.ids(role)) for role in ROLES},
        "homophily": homophily(graph, adj),
        "attributes": graph.attributes,
        "text_bytes": {"mean": round(float(lengths.mean()), 1), "max": int(lengths.max()), "total": int(lengths.sum())},
        "empty_texts": int((lengths == 0).sum()),
        "given_features": None if graph.features is None else int(graph.features.shape[1]),
        "edge_features": None if graph.edge_features is None else int(graph.edge_features.shape[1]),
    }


def isolated(adj: Adjacency) -> np.ndarray:
    """Whether a node (n,) has no neighbour but itself."""
    return (np.diff(adj.indptr) == 1) & (adj.indices[adj.indptr[:-1]] == np.arange(adj.num_nodes))


def degrees(adj: Adjacency) -> np.ndarray:
    """Neighbours of each node (n,); the diagonal that an isolated node gets does not count."""
    return np.where(isolated(adj), 0, np.diff(adj.indptr))


def labelled(graph: AttributedGraph) -> np.ndarray:
    """Whether a label of a node (n,) is known; of several labels or numbers, at least one."""
    return missing.labelled(graph.labels)


def homophily(graph: AttributedGraph, adj: Adjacency | None = None) -> float | None:
    """Share of edges whose ends agree: same class, or mean Jaccard index of the positives (multi-label).

    Edges with an unlabelled end do not count; the answer is None where no edge counts, and where labels are numbers.
    """
    if graph.task == "regression":
        return None
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
