"""A-hat of a graph with some nodes more, without building it anew: only rows that got an entry are written.

New nodes are n..n + m - 1, and every new edge has a new end, so entries among old nodes stay as they are. What changes
in the old part are the rows of the new nodes' neighbours: their entries and their degree, and with symmetric
normalisation, through the factor of their column, the weights in the rows of their neighbours too.

Several copies of the graph may grow at a time, each with new nodes and edges of its own that the others do not have:
node v of copy k is k (n + m) + v. Only rows that changed are written, so a copy costs what is new in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labeldeconv.errors import DataError
from labeldeconv.propagation.adjacency import Adjacency, scales
from labeldeconv.propagation.edge_features import EdgeFeatures
from labeldeconv.propagation.kernel.draw import number
from labeldeconv.settings.models import AdjacencyConfig


@dataclass(frozen=True, eq=False)
class GrownAdjacency:
    """A-hat (n + m, n + m), or some copies of it, as an `Adjacency` (n, n) and the rows that differ.

    Args:
        base: A-hat of the old nodes.
        config: how it was made.
        num_new: m, of every copy.
        changed: (r,) ascending: old rows with new entries, and all new rows.
        indptr, indices: these rows, whole.
        edges: (entries of these rows,) the given edge of every entry, old ones first; -1 for none.
        edge_features: those of the base, with `new_values` (k, .) of the new edges; None without.
        copies: of the graph; one where edges have features, since their mean is that of all.
    """

    base: Adjacency
    config: AdjacencyConfig
    num_new: int
    changed: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    edges: np.ndarray
    edge_features: EdgeFeatures | None = None
    new_values: np.ndarray | None = None
    copies: int = 1

    @classmethod
    def of(
        cls,
        base: Adjacency,
        config: AdjacencyConfig,
        num_new: int,
        edges: np.ndarray,
        values: np.ndarray | None = None,
        copies: int = 1,
    ) -> GrownAdjacency:
        """Add `num_new` nodes and edges (2, k), source above target, with features (k, .) where the base has them."""
        n, size = base.num_nodes, base.num_nodes + num_new
        total = copies * size
        edges = np.asarray(edges, dtype=np.int64).reshape(2, -1)
        if edges.size and not (edges.max() < total and edges.min() >= 0 and ((edges % size).max(0) >= n).all()):
            raise DataError(f"new edges: nodes 0..{total - 1} expected, one of {n} or more at an end of every edge")
        if (edges[0] // max(size, 1) != edges[1] // max(size, 1)).any() or (
            copies > 1 and base.edge_features is not None
        ):
            raise DataError("new edges: edges inside one copy expected, and one copy where edges have features")
        new = (np.arange(copies)[:, None] * size + np.arange(n, size)).ravel()
        real = np.flatnonzero(edges[0] != edges[1])
        rows, cols, given = edges[1, real], edges[0, real], len(_values(base)) + real
        if config.undirected:  # the first given edge of an entry's own direction goes before those of the opposite one
            rows, cols = np.concatenate([rows, cols]), np.concatenate([cols, rows])
            given = np.concatenate([given, given])
        changed = np.union1d(rows, new)
        old = changed[changed % max(size, 1) < n]
        counts, kept, of_base = _taken(base.indptr, base.indices, old % max(size, 1), base.edge_features)
        owner = np.repeat(old, counts)
        kept = kept + owner - owner % max(size, 1)
        stays = np.ones(len(kept), bool) if config.self_loops else kept != owner  # a lone node had itself
        loops = new if config.self_loops else np.empty(0, np.int64)
        rows = np.concatenate([owner[stays], rows, loops])
        cols = np.concatenate([kept[stays], cols, loops])
        given = np.concatenate([of_base[stays], given, np.full(len(loops), -1)])
        alone = np.setdiff1d(changed, rows)
        rows, cols = np.concatenate([rows, alone]), np.concatenate([cols, alone])
        given = np.concatenate([given, np.full(len(alone), -1)])
        keys, first = np.unique(rows * total + cols, return_index=True)
        degree = np.bincount(np.searchsorted(changed, keys // total), minlength=len(changed))
        indptr = np.concatenate([[0], np.cumsum(degree)])
        return cls(
            base,
            config,
            num_new,
            changed,
            indptr,
            keys % total,
            given[first],
            None if base.edge_features is None else _grown_features(base.edge_features, values),
            None if base.edge_features is None else values,
            copies,
        )

    @property
    def size(self) -> int:
        """n + m, of one copy."""
        return self.base.num_nodes + self.num_new

    @property
    def num_nodes(self) -> int:
        """n + m, of all copies together."""
        return self.copies * self.size

    @property
    def new_nodes(self) -> np.ndarray:
        """The new nodes (m,), copy after copy."""
        inside = np.arange(self.base.num_nodes, self.size)
        return (np.arange(self.copies)[:, None] * self.size + inside).ravel()

    def inside(self, nodes: np.ndarray) -> np.ndarray:
        """The numbers that nodes have in their copy: 0..n - 1 of old ones, n..n + m - 1 of new ones."""
        return nodes if self.copies == 1 else nodes % self.size

    @property
    def alone(self) -> np.ndarray:
        """Whether a new node (m,) has no neighbour but perhaps itself: nothing reaches it."""
        new = self.new_nodes
        counts, columns, _ = self._entries(new)
        others = np.add.reduceat(columns != np.repeat(new, counts), np.cumsum(counts) - counts) if len(new) else new
        return others == 0

    def degree(self, nodes: np.ndarray) -> np.ndarray:
        """Entries in the rows of `nodes` (m,)."""
        place = np.minimum(np.searchsorted(self.changed, nodes), len(self.changed) - 1)
        own = self.changed[place] == nodes if len(self.changed) else np.zeros(len(nodes), bool)
        old = np.where(own, 0, self.inside(nodes))
        from_base = self.base.indptr[old + 1] - self.base.indptr[old] if self.base.num_nodes else 0
        return np.where(own, self.indptr[place + 1] - self.indptr[place], from_base)

    def columns(self, targets: np.ndarray) -> np.ndarray:
        """All columns in the rows of `targets`, ascending, each once."""
        seen = np.zeros(self.num_nodes, bool)
        seen[self._entries(targets)[1]] = True
        return np.flatnonzero(seen)

    def readers(self, nodes: np.ndarray) -> np.ndarray:
        """Rows that have one of `nodes` as a column, ascending; perhaps some that had one before the graph grew."""
        if self.config.undirected:
            return self.columns(nodes)
        back, seen = self.base.transposed, np.zeros(self.num_nodes, bool)
        old = nodes[self.inside(nodes) < self.base.num_nodes]
        counts, readers, _ = _taken(back.indptr, back.indices, self.inside(old), None)
        seen[readers + np.repeat(old - self.inside(old), counts)] = True
        owners = np.repeat(self.changed, np.diff(self.indptr))
        seen[owners[np.isin(self.indices, nodes)]] = True
        return np.flatnonzero(seen)

    def rows(self, targets: np.ndarray) -> tuple[np.ndarray, Adjacency]:
        """Sources (s,), which begin with the `targets` (t,), distinct, and the rows (t, s) over them."""
        counts, columns, edges = self._entries(targets)
        sources, places = number(columns, targets, self.num_nodes)
        left, _ = scales(counts, self.config.normalization)
        _, right = scales(self.degree(sources), self.config.normalization)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        return sources, Adjacency(
            indptr, places, left, right, symmetric=False, sources=len(sources), edge_features=self._features(edges)
        )

    def _entries(self, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Entries (t,) of every row, and of all of them the columns and the given edges, row after row."""
        counts = self.degree(targets)
        starts = np.cumsum(counts) - counts
        columns, edges = np.empty(counts.sum(), np.int64), np.empty(counts.sum(), np.int64)
        own = np.isin(targets, self.changed)
        parts = (
            (~own, self.base.indptr, self.base.indices, self.inside(targets), self.base.edge_features),
            (own, self.indptr, self.indices, np.searchsorted(self.changed, targets), self.edges),
        )
        for chosen, indptr, indices, rows, given in parts:
            if chosen.any():
                some, taken, of = _taken(indptr, indices, rows[chosen], given)
                at = _ranges(starts[chosen], some)
                columns[at], edges[at] = taken, of
        if self.copies > 1:
            base = np.repeat(~own, counts)
            columns[base] += np.repeat(targets - self.inside(targets), counts)[base]
        return counts, columns, edges

    def _features(self, edges: np.ndarray) -> EdgeFeatures | None:
        """Features of entries that come from the given edges (e,)."""
        whole = self.edge_features
        if whole is None:
            return None
        old = len(whole.values)
        values = np.zeros((len(edges), whole.values.shape[1]), np.float32)
        before, after = (edges >= 0) & (edges < old), edges >= old
        values[before] = whole.values[edges[before]]
        if after.any() and self.new_values is not None:
            values[after] = self.new_values[edges[after] - old]
        return EdgeFeatures(values, np.where(edges >= 0, np.arange(len(edges)), -1), whole.fill)


def _values(adj: Adjacency) -> np.ndarray:
    return np.empty(0) if adj.edge_features is None else adj.edge_features.values


def _grown_features(base: EdgeFeatures, values: np.ndarray | None) -> EdgeFeatures:
    """The base's features with what self-loops get, the mean of all edges, after the new edges (k, .) came."""
    k = 0 if values is None else len(values)
    if values is None or not k:
        return base
    e = len(base.values)
    mean = (base.fill.astype(np.float64) * e + values.sum(0, dtype=np.float64)) / (e + k)
    return EdgeFeatures(base.values, base.index, mean.astype(np.float32))


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """starts[0], starts[0] + 1, ... of counts[0] numbers, then those of starts[1], ..."""
    return np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())


def _taken(
    indptr: np.ndarray, indices: np.ndarray, rows: np.ndarray, edges: EdgeFeatures | np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts (t,) of some rows of a CSR pattern, their columns, and the given edge of each; -1 where not known."""
    counts = indptr[rows + 1] - indptr[rows]
    at = _ranges(indptr[rows], counts)
    index = edges.index if isinstance(edges, EdgeFeatures) else edges
    return counts, indices[at].astype(np.int64), np.full(len(at), -1) if index is None else index[at].astype(np.int64)
