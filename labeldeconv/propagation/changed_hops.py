"""Hops of a graph of which a little has changed: rows that can be others are computed, the rest is copied.

A row of A-hat^i x is another one where its own row of A-hat is, or where it reads a row that is another one at the hop
before. So rows spread from those whose x, entries or degree changed, one step along A-hat per hop. With symmetric
normalisation a degree is a factor of its column too, and changes every row that reads that node. What is computed comes
from the kernel of a fresh computation, in its order of additions, so that the result is equal to the bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from labeldeconv.propagation.adjacency import Adjacency
from labeldeconv.propagation.fixed_point import quantize
from labeldeconv.propagation.kernel.gather import LINE, count_classes, gather, may_tile, padded
from labeldeconv.propagation.outofcore import block_width, classes_of, release, row_chunks
from labeldeconv.settings.models import AdjacencyConfig
from labeldeconv.stages.memory_limit import room


class EarlierHops(NamedTuple):
    """Hops `values` (m, h, d) of a graph as it was, as float32 or uint16, and how it lies in the graph of now.

    `edges` (2, e) are those of then in the numbers of now, n for nodes that are gone; `rows` (n,) are the rows that the
    nodes of now have in `values`, -1 for new ones.
    """

    values: np.ndarray
    edges: np.ndarray
    rows: np.ndarray


def write_changed_hops(
    adj: Adjacency, config: AdjacencyConfig, edges: np.ndarray, x: np.ndarray, out: np.ndarray, earlier: EarlierHops
) -> int | None:
    """Fill out (n, h, d), float32 or uint16, as `write_hops` does, with rows of `earlier` where they are the same.

    Args:
        adj: A-hat of now, which `config` makes of the edges (2, e).
        x: (n, d), perhaps memory-mapped.

    Returns:
        How many rows of all h hops were computed, or None where nothing is written: half of them or more would be,
        or sums may be made otherwise than they were.
    """
    if not _comparable(adj, out, earlier):
        return None
    first = _other_inputs(x, out.dtype, earlier)
    counted = _counted_alike(adj, x, first, earlier.values[:, 0])
    if counted is None:
        return None
    if _count(_spread(adj, first, earlier.rows < 0, out.shape[1])) is None:
        return None  # before entries are compared, which takes a second A-hat
    touched = _other_entries(adj, config, edges, earlier)
    if adj.right is not None:
        touched |= _readers(adj, touched)
    spread = _spread(adj, first, touched, out.shape[1])
    count = _count(spread)
    if count is None:
        return None
    _copy(earlier, out)
    chosen = np.flatnonzero(first)
    out[chosen, 0] = _stored(x[chosen], out.dtype)
    width = block_width(len(x), out.dtype)
    for i, rows in enumerate(spread[1:], start=1):
        chosen = np.flatnonzero(rows)
        for columns in (slice(a, a + width) for a in range(0, x.shape[1] if len(chosen) else 0, width)):
            out[chosen, i, columns] = _rows_of_product(adj, chosen, out[:, i - 1, columns], counted and i == 1)
    return count


def _comparable(adj: Adjacency, out: np.ndarray, earlier: EarlierHops) -> bool:
    """Whether a row that reads the same is the same sum then as now, and there is memory to look for such rows.

    Nodes must stand in the same order, which sums follow. Tiles of sources divide a sum by numbers of nodes and
    entries, so that graphs as dense as that are left alone.
    """
    n, h, d = out.shape
    order = earlier.rows[earlier.rows >= 0]
    if not n or room() is not None or earlier.values.shape[1:] != (h, d) or earlier.values.dtype != out.dtype:
        return False  # a limit of memory is for what `write_hops` takes
    if not len(order) or (np.diff(order) <= 0).any():
        return False
    m, e, lines = len(earlier.values), earlier.edges.shape[1], -(-d * out.itemsize // LINE)
    return not (may_tile(n, len(adj.indices), lines) or may_tile(m, 2 * e + m, lines))  # entries of then at most


def _counted_alike(adj: Adjacency, x: np.ndarray, other: np.ndarray, then: np.ndarray) -> bool | None:
    """Whether hop 1 is counted of x (n, d), or summed, and None unless that was so of the stored x of `then`.

    Whole-number labels are counted where all rows of a block of columns are such, and blocks are as wide as memory
    allows: all of them must be counted, or none. Only fixed point rounds a count and a sum otherwise. Rows of x but the
    `other` ones (n,) are those of then.
    """
    if then.dtype != np.uint16 or adj.right is not None:
        return False
    counted = _counted(then)
    now = _counted(_stored(x[np.flatnonzero(other)] if counted else x, then.dtype))
    return counted if counted == now else None


def _counted(x: np.ndarray) -> bool | None:
    """Whether rows of x (n, d) are counted in blocks of columns of any width, or None where that depends on it."""
    if classes_of(x) is not None:
        return True
    least = LINE // x.itemsize
    return None if any(classes_of(x[:, a : a + least]) is not None for a in range(0, x.shape[1], least)) else False


def _other_inputs(x: np.ndarray, dtype: np.dtype, earlier: EarlierHops) -> np.ndarray:
    """Whether rows (n,) of x, as they are stored, are others than at hop 0 of then; new ones are."""
    other = earlier.rows < 0
    for lo, hi in row_chunks(x):
        now, then = _stored(x[lo:hi], dtype), np.asarray(earlier.values[earlier.rows[lo:hi], 0])
        other[lo:hi] |= (now.view(np.uint8) != then.view(np.uint8)).any(1)
    return other


def _other_entries(adj: Adjacency, config: AdjacencyConfig, edges: np.ndarray, earlier: EarlierHops) -> np.ndarray:
    """Whether rows (n,) of A-hat have other entries than then; those of new nodes have."""
    new = earlier.rows < 0
    if np.array_equal(edges, earlier.edges):
        return new
    then = Adjacency.from_edges(earlier.edges, adj.num_nodes + 1, config)  # nodes that are gone are one more column
    degree, before = np.diff(adj.indptr), np.diff(then.indptr)
    same = degree == before[:-1]
    theirs = then.indices[np.repeat(np.append(same, False), before)]
    differ = adj.indices[np.repeat(same, degree)] != theirs
    other = new | ~same
    other[np.repeat(np.flatnonzero(same), degree[same])[differ]] = True
    return other


def _spread(adj: Adjacency, first: np.ndarray, touched: np.ndarray, hops: int) -> list[np.ndarray]:
    """Whether rows (n,) of every hop can be others: `first` at hop 0, then `touched` ones and those that read such."""
    spread = [first]
    for _ in range(1, hops):
        spread.append(touched | _readers(adj, spread[-1]))
    return spread


def _count(spread: list[np.ndarray]) -> int | None:
    """Marked rows of all hops; None where they are half or more."""
    count = int(sum(np.count_nonzero(rows) for rows in spread))
    return count if 2 * count < sum(map(len, spread)) else None


def _readers(adj: Adjacency, nodes: np.ndarray) -> np.ndarray:
    """Whether rows (n,) of A-hat have one of the marked nodes (n,) as a column; no row is without entries."""
    return np.logical_or.reduceat(nodes[adj.indices], adj.indptr[:-1])


def _rows_of_product(adj: Adjacency, nodes: np.ndarray, x: np.ndarray, counted: bool) -> np.ndarray:
    """Rows `nodes` (t, d) of A-hat x, summed or `counted`; only the rows of x that they read are touched."""
    indptr, columns = adj.rows_of(nodes)
    read = np.zeros(adj.num_nodes, bool)
    read[columns] = True
    sources, number = np.flatnonzero(read), np.cumsum(read, dtype=np.int32) - 1
    inputs = padded(len(sources), x.shape[1], x.dtype)
    inputs[:] = x[sources] if adj.right is None else x[sources] * adj.right[sources, None]
    left = None if adj.left is None else adj.left[nodes]
    classes = classes_of(inputs) if counted else None
    if classes is None or left is None:
        return gather(indptr, number[columns], left, inputs, tiles=False)
    return count_classes(indptr, number[columns], left, classes, padded(len(nodes), x.shape[1], x.dtype))


def _copy(earlier: EarlierHops, out: np.ndarray) -> None:
    """Take the rows of then to where their nodes are now."""
    for lo, hi in row_chunks(out):
        rows = earlier.rows[lo:hi]
        if rows[0] >= 0 and rows[-1] - rows[0] == hi - lo - 1 and rows.min() >= 0:  # ascending: one after the other
            out[lo:hi] = earlier.values[rows[0] : rows[-1] + 1]
        else:
            out[lo:hi][rows >= 0] = earlier.values[rows[rows >= 0]]
        release(out, lo, hi)


def _stored(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """x as hop 0 keeps it."""
    out = np.empty(x.shape, dtype)
    for lo, hi in row_chunks(x):
        out[lo:hi] = quantize(x[lo:hi]) if dtype == np.uint16 else x[lo:hi]
    return out
