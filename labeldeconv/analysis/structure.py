"""Eigenvalues of A-hat that the graph's structure gives away, at any size.

1 comes once per connected component, -1 once per bipartite one. Nodes with the same neighbours make 0: the difference
of two of them is an eigenvector, so m such nodes give it m - 1 times. These are exact, or lower bounds for 0.
"""

from __future__ import annotations

import numba
import numpy as np

from labeldeconv.adjacency import Adjacency


def known_eigenvalues(adj: Adjacency) -> dict[float, int]:
    """Eigenvalues 1, -1 and 0 of an undirected A-hat with their multiplicity (of 0: at least); absent ones left out."""
    components, bipartite = _components(adj.indptr, adj.indices)
    known = {1.0: int(components), -1.0: int(bipartite), 0.0: same_neighbours(adj)}
    return {value: count for value, count in known.items() if count}


def same_neighbours(adj: Adjacency) -> int:
    """How many nodes could be left out because another one has the same neighbours (by a 64-bit hash)."""
    names = np.random.default_rng(0).integers(0, 2**63, adj.num_nodes, dtype=np.uint64)
    sums = np.add.reduceat(names[adj.indices], adj.indptr[:-1])  # no row is empty
    return adj.num_nodes - len(np.unique(np.stack([sums, np.diff(adj.indptr).astype(np.uint64)]), axis=1).T)


@numba.njit(cache=True, nogil=True)
def _components(indptr: np.ndarray, indices: np.ndarray) -> tuple[int, int]:
    """Connected components, and how many of them can be coloured with two colours."""
    n = len(indptr) - 1
    colour = np.full(n, -1, np.int8)
    queue = np.empty(n, np.int64)
    components = bipartite = 0
    for root in range(n):
        if colour[root] >= 0:
            continue
        components += 1
        colour[root] = 0
        queue[0] = root
        head, tail, two = 0, 1, True
        while head < tail:
            i = queue[head]
            head += 1
            for p in range(indptr[i], indptr[i + 1]):
                j = indices[p]
                if colour[j] < 0:
                    colour[j] = 1 - colour[i]
                    queue[tail] = j
                    tail += 1
                elif colour[j] == colour[i]:
                    two = False
        bipartite += two
    return components, bipartite
