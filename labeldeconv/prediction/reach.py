"""What leads to one node: rows of the powers of A-hat, the rows that every step of a GNN reads, and a part of A-hat.

Nothing here is larger than the neighbourhood of the node, whatever the graph. All of it is found on a `GrownAdjacency`,
so that a node may be one of the graph or one that was just added.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from labeldeconv.gnns.base import Step
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.edge_features import EdgeFeatures
from labeldeconv.propagation.grown import GrownAdjacency


def hop_weights(grown: GrownAdjacency, node: int, hops: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Row `node` of I, A-hat, ..., A-hat^hops: of each the nodes (s,) with an entry, ascending, and weights (s,)."""
    found = [(np.array([node]), np.ones(1))]
    for _ in range(hops):
        nodes, weights = found[-1]
        sources, rows = grown.rows(nodes)
        spread = (rows.transposed @ weights[:, None])[:, 0]  # (s,) float64
        order = np.argsort(sources)
        order = order[spread[order] != 0]
        found.append((sources[order], spread[order]))
    return found


def within(grown: GrownAdjacency, node: int, hops: int, most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The nodes (s,) from which at most `hops` edges lead to `node`, ascending, and how many edges (s,).

    With `most` the search ends as soon as more nodes than that are found.
    """
    nodes, distance = np.array([node]), np.zeros(1, np.int64)
    for step in range(1, hops + 1):
        last = nodes[distance == step - 1]
        if not len(last) or (most is not None and len(nodes) > most):
            break
        more = np.setdiff1d(grown.columns(last), nodes)
        order = np.argsort(np.concatenate([nodes, more]))
        distance = np.concatenate([distance, np.full(len(more), step)])[order]
        nodes = np.concatenate([nodes, more])[order]
    return nodes, distance


class Layers:
    """The rows of A-hat that lead to one node through the steps of a GNN; forward keeps the autograd tape.

    Args:
        steps: L of them.
        grown: A-hat.
        node: whose output is wanted.
    """

    def __init__(self, steps: Sequence[Step], grown: GrownAdjacency, node: int) -> None:
        self.steps = steps
        targets = [np.array([node])]
        for _ in range(len(steps) - 1):
            targets.insert(0, np.union1d(grown.columns(targets[0]), targets[0]))
        read = [grown.rows(each) for each in targets]
        self.sources = read[0][0]  # (s,) the nodes whose features go in
        self.rows = [rows for _, rows in read]
        self.places = [
            torch.from_numpy(np.searchsorted(known, sources))
            for known, (sources, _) in zip(targets, read[1:], strict=False)
        ]

    def __call__(self, x: Tensor) -> Tensor:
        """Features (s, d) of the sources to the last step's output (1, .) at the node."""
        for i, (step, rows) in enumerate(zip(self.steps, self.rows, strict=True)):
            x = step(x if i == 0 else x[self.places[i - 1]], rows)
        return x


def part_of_graph(grown: GrownAdjacency, nodes: np.ndarray) -> Adjacency:
    """A-hat (s, s) among `nodes` (s,), with the factors of the whole graph: rows that read nothing else are whole."""
    sources, rows = grown.rows(nodes)
    inside = rows.indices < len(nodes)
    owner = np.repeat(np.arange(len(nodes)), np.diff(rows.indptr))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(owner[inside], minlength=len(nodes)))])
    right = None if rows.right is None else rows.right[: len(nodes)]
    held = rows.edge_features
    features = None if held is None else EdgeFeatures(held.values, held.index[inside], held.fill)
    assert np.array_equal(sources[: len(nodes)], nodes)
    return Adjacency(indptr, rows.indices[inside], rows.left, right, symmetric=False, edge_features=features)
