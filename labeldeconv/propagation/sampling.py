"""Rows of A-hat for mini-batches: sampled neighbours, all neighbours, or the edges inside a set of nodes.

Written by hand: PyG's NeighborLoader and ClusterData need compiled extensions. What is left out of a row is made up for
by a larger weight, so that a sampled row is an unbiased estimate of the full one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from labeldeconv.errors import MissingExtra
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.settings.models import AdjacencyConfig


def sample_rows(
    adj: Adjacency, targets: np.ndarray, fanout: int | None, generator: np.random.Generator | None = None
) -> tuple[np.ndarray, Adjacency]:
    """The rows of `targets` (t,), distinct, with at most `fanout` neighbours each, drawn without replacement.

    Returns the sources (s,), which begin with the targets, and the rows (t, s) over them.
    """
    first = adj.indptr[targets]
    degree = adj.indptr[targets + 1] - first
    counts = degree if fanout is None else np.minimum(degree, fanout)
    start = np.cumsum(counts) - counts
    entries = np.repeat(first - start, counts) + np.arange(counts.sum())  # the first neighbours of every row
    if fanout is not None and generator is not None:
        cut = np.flatnonzero(degree > fanout)
        places = start[cut, None] + np.arange(fanout)
        entries[places] = first[cut, None] + _distinct(degree[cut], fanout, generator)
    columns = adj.indices[entries].astype(np.int64)
    sources = np.concatenate([targets, np.setdiff1d(columns, targets)])
    order = np.argsort(sources, kind="stable")
    local = order[np.searchsorted(sources, columns, sorter=order)]
    return sources, _part(adj, targets, sources, np.append(start, len(entries)), local, entries)


def sample_blocks(
    adj: Adjacency, seeds: np.ndarray, fanouts: Sequence[int | None], generator: np.random.Generator
) -> tuple[np.ndarray, list[Adjacency]]:
    """Node ids (s,) of the input and rows of A-hat per convolution, first to last, that lead to the seeds (b,)."""
    blocks: list[Adjacency] = []
    nodes = seeds
    for fanout in reversed(fanouts):
        nodes, rows = sample_rows(adj, nodes, fanout, generator)
        blocks.insert(0, rows)
    return nodes, blocks


def induced(adj: Adjacency, nodes: np.ndarray) -> Adjacency:
    """A-hat (m, m) among the distinct `nodes` (m,); a node that keeps no neighbour gets itself."""
    local = np.full(adj.num_nodes, -1, dtype=np.int64)
    local[nodes] = np.arange(len(nodes))
    first = adj.indptr[nodes]
    degree = adj.indptr[nodes + 1] - first
    entries = np.repeat(first - np.cumsum(degree) + degree, degree) + np.arange(degree.sum())
    rows, columns = np.repeat(np.arange(len(nodes)), degree), local[adj.indices[entries]]
    kept = columns >= 0
    alone = np.flatnonzero(np.bincount(rows[kept], minlength=len(nodes)) == 0)
    # A lone node borrows its first entry, which carries its edge features, and points it at itself.
    borrowed = np.concatenate([entries[kept], first[alone]])
    rows, columns = np.concatenate([rows[kept], alone]), np.concatenate([columns[kept], alone])
    order = np.argsort(rows, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(nodes)))])
    return _part(adj, nodes, nodes, indptr, columns[order], borrowed[order])


def metis() -> Any:
    """The module pymetis of the extra 'metis'."""
    try:
        import pymetis
    except ImportError:
        raise MissingExtra("cluster batches", "metis") from None
    return pymetis


def partition(adj: Adjacency, parts: int) -> list[np.ndarray]:
    """Node ids of `parts` clusters with few edges between them (METIS)."""
    pymetis = metis()
    rows = np.repeat(np.arange(adj.num_nodes, dtype=adj.indices.dtype), np.diff(adj.indptr))
    if not adj.symmetric:
        adj = Adjacency.from_edges(np.stack([adj.indices, rows]), adj.num_nodes, AdjacencyConfig())
        rows = np.repeat(np.arange(adj.num_nodes, dtype=adj.indices.dtype), np.diff(adj.indptr))
    kept = rows != adj.indices
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=adj.num_nodes))])
    _, part = pymetis.part_graph(parts, pymetis.CSRAdjacency(starts, adj.indices[kept]))
    order = np.argsort(part, kind="stable")
    bounds = np.searchsorted(np.asarray(part)[order], np.arange(1, parts))
    return [ids for ids in np.split(order, bounds) if len(ids)]


def _distinct(sizes: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """(r, count) distinct numbers below sizes[r] >= count, uniform: Floyd's algorithm over all rows at once."""
    drawn = np.empty((len(sizes), count), dtype=np.int64)
    for j in range(count):
        last = sizes - count + j
        new = generator.integers(0, last + 1)
        taken = (drawn[:, :j] == new[:, None]).any(1)
        drawn[:, j] = np.where(taken, last, new)
    return drawn


def _part(
    adj: Adjacency,
    targets: np.ndarray,
    sources: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
    entries: np.ndarray,
) -> Adjacency:
    """Rows of A-hat with some of their entries, given by position; weights grow by full / kept degree."""
    full = adj.indptr[targets + 1] - adj.indptr[targets]
    grown = (full / np.maximum(np.diff(indptr), 1)).astype(np.float32)
    return Adjacency(
        indptr,
        indices,
        grown if adj.left is None else adj.left[targets] * grown,
        None if adj.right is None else adj.right[sources],
        symmetric=False,
        sources=len(sources),
        edge_features=None if adj.edge_features is None else adj.edge_features.select(entries),
    )
