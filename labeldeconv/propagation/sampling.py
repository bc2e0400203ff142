"""Rows of A-hat for mini-batches: sampled neighbours, all neighbours, or the edges inside a set of nodes.

Written by hand: PyG's NeighborLoader and ClusterData need compiled extensions. What is left out of a row is made up for
by a larger weight, so that a sampled row is an unbiased estimate of the full one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numba
import numpy as np

from labeldeconv.errors import MissingExtra
from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.kernel.draw import draw, number
from labeldeconv.settings.models import AdjacencyConfig


def sample_rows(
    adj: Adjacency, targets: np.ndarray, fanout: int | None, generator: np.random.Generator | None = None
) -> tuple[np.ndarray, Adjacency]:
    """The rows of `targets` (t,), distinct, with at most `fanout` neighbours each, drawn without replacement.

    Returns the sources (s,), which begin with the targets, and the rows (t, s) over them. A `fanout` needs a
    `generator`, of which one number is taken, however many neighbours are drawn.
    """
    key = 0
    if fanout is not None:
        if generator is None:
            raise ValueError("sample_rows: a generator is needed to draw a fan-out of neighbours")
        key = int(generator.integers(1 << 63))
    features = adj.edge_features
    starts, columns, edges = draw(
        adj.indptr, adj.indices, targets, fanout, key, None if features is None else features.index
    )
    sources, places = number(columns, targets, adj.num_sources)
    return sources, _part(adj, targets, sources, starts, places, edges)


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


def row_blocks(adj: Adjacency, targets: np.ndarray, most_entries: int, most_sources: int) -> list[np.ndarray]:
    """Targets (m,) in order, in blocks whose rows have so many entries and sources at most; one row may have more."""
    count = most_sources < adj.num_sources  # else no block can have too many
    stamps = np.zeros(adj.num_sources if count else 0, np.int32)
    bounds = _cut(adj.indptr, adj.indices, np.ascontiguousarray(targets), most_entries, most_sources, stamps)
    return [targets[lo:hi] for lo, hi in pairwise(bounds.tolist())]


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
    edges = None if adj.edge_features is None else adj.edge_features.index[borrowed[order]]
    return _part(adj, nodes, nodes, indptr, columns[order], edges)


def metis() -> Any:
    """The module pymetis of the extra 'metis'."""
    try:
        import pymetis
    except ImportError:
        raise MissingExtra("cluster batches", "metis") from None
    return pymetis


METIS_BYTES = 120  # memory of `partition` per entry of A-hat, at its peak: 113 measured on 8 million entries


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


def _part(
    adj: Adjacency,
    targets: np.ndarray,
    sources: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
    edges: np.ndarray | None,
) -> Adjacency:
    """Rows of A-hat with some of their entries (m,); weights grow by full / kept degree. `edges` are the given ones."""
    full = adj.indptr[targets + 1] - adj.indptr[targets]
    grown = (full / np.maximum(np.diff(indptr), 1)).astype(np.float32)
    return Adjacency(
        indptr,
        indices,
        grown if adj.left is None else adj.left[targets] * grown,
        None if adj.right is None else adj.right[sources],
        symmetric=False,
        sources=len(sources),
        edge_features=None if adj.edge_features is None or edges is None else replace(adj.edge_features, index=edges),
    )


@numba.njit(cache=True, nogil=True)
def _cut(
    indptr: np.ndarray, indices: np.ndarray, targets: np.ndarray, entries: int, sources: int, stamps: np.ndarray
) -> np.ndarray:
    """Bounds of blocks of at most so many entries and sources; empty `stamps` say that sources need not be counted.

    A row goes into the open block unless that would be too much for it; then it opens the next one.
    """
    bounds, blocks = np.empty(len(targets) + 1, np.int64), 0
    bounds[0] = 0
    held, used = 0, 0
    for i in range(len(targets)):
        first, end = indptr[targets[i]], indptr[targets[i] + 1]
        new = _stamp(indices, first, end, targets[i], blocks + 1, stamps)
        if i > bounds[blocks] and (held + end - first > entries or used + new > sources):
            blocks += 1
            bounds[blocks], held, used = i, 0, 0
            new = _stamp(indices, first, end, targets[i], blocks + 1, stamps)
        held, used = held + end - first, used + new
    if len(targets):
        blocks += 1
        bounds[blocks] = len(targets)
    return bounds[: blocks + 1]


@numba.njit(cache=True, nogil=True)
def _stamp(indices: np.ndarray, first: int, end: int, target: int, block: int, stamps: np.ndarray) -> np.int64:
    """Stamp a row's target and columns with the number of the block; returns how many had another stamp."""
    if len(stamps) == 0:
        return np.int64(0)
    new = np.int64(stamps[target] != block)
    stamps[target] = block
    for p in range(first, end):
        column = np.uint64(indices[p])
        new += stamps[column] != block
        stamps[column] = block
    return new
