"""A connected part of a graph: a seeded sample small enough to try things on, which still has the graph's structure."""

from __future__ import annotations

import numpy as np

from labeldeconv.errors import DataError
from labeldeconv.graph.attributed import AttributedGraph
from labeldeconv.graph.split import ROLES, Split
from labeldeconv.propagation.adjacency import Adjacency

FANOUT = 8  # neighbours a node may bring in per round, so that one hub does not fill the part
TRIES = 50  # components looked at


def connected_part(graph: AttributedGraph, max_nodes: int, seed: int) -> AttributedGraph:
    """At most `max_nodes` nodes that hang together, and the edges among them; labels and split are kept.

    Growth starts at an end of a random edge; each round every new node may bring in up to FANOUT random neighbours.
    """
    if max_nodes < 4:
        raise DataError(f"max-nodes: at least 4 expected, got {max_nodes}")
    if max_nodes >= graph.num_nodes:
        return graph
    adj = Adjacency.from_edges(graph.edges, graph.num_nodes)
    chosen = _grow(adj.indptr, adj.indices, max_nodes, np.random.default_rng(seed))
    split = Split(graph.split.roles[chosen])
    if empty := [role for role in ROLES if not len(split.ids(role))]:
        raise DataError(f"max-nodes {max_nodes}: no '{empty[0]}' nodes in the part; take more nodes or another seed")
    return graph.induced(chosen, f"{graph.name}-{len(chosen)}")


def _grow(indptr: np.ndarray, indices: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """Node numbers (m,), ascending, of a connected part with at most `most` nodes.

    A component that is used up too early is left for another one; the largest part found counts.
    """
    seen = np.zeros(len(indptr) - 1, dtype=bool)
    best = np.empty(0, dtype=np.int64)
    for _ in range(TRIES):
        ends = indices[~seen[indices]]  # a random end of an edge is seldom in a small component
        if not len(ends):
            break
        part = _grow_from(int(rng.choice(ends)), indptr, indices, most, rng)
        seen[part] = True
        best = max(best, part, key=len)
        if len(best) == most or len(best) >= (~seen).sum():
            break
    return best


def _grow_from(start: int, indptr: np.ndarray, indices: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    inside = np.zeros(len(indptr) - 1, dtype=bool)
    inside[start] = True
    frontier, count = np.array([start]), 1
    while count < most:
        sources, targets = _edges_of(frontier, indptr, indices)
        new = ~inside[targets]
        sources, targets = sources[new], targets[new]
        if not len(targets):
            if len(frontier) == count:
                break  # the component is used up
            frontier = np.flatnonzero(inside)
            continue
        order = rng.permutation(len(sources))
        order = order[np.argsort(sources[order], kind="stable")]
        rank = np.arange(len(order)) - np.searchsorted(sources[order], sources[order])
        picked = rng.permutation(np.unique(targets[order[rank < FANOUT]]))[: most - count]
        inside[picked] = True
        frontier, count = picked, count + len(picked)
    return np.flatnonzero(inside)


def _edges_of(nodes: np.ndarray, indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets of the edges that leave `nodes`."""
    degree = (indptr[1:] - indptr[:-1])[nodes].astype(np.int64)
    before = np.cumsum(degree) - degree
    flat = np.arange(degree.sum()) + np.repeat(indptr[nodes] - before, degree)
    return np.repeat(nodes, degree), indices[flat]
