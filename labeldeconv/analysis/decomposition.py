"""All eigenvalues of a symmetric A-hat and the energy of signals at each of them, exactly and without eigenvectors.

Connected components are decomposed one by one, since the spectrum of a graph is the union of theirs. A component of m
nodes goes A-hat = Q T Q^T with T tridiagonal (LAPACK's sytrd) and T = Z diag(lambda) Z^T, and the energies are the
squares of Z^T Q^T x. Q is applied to x and never made, and the QL iteration rotates x instead of Z, which takes m^2
steps: what eigh spends beyond sytrd (four fifths of its time) is saved, and the one large array is A-hat (m, m)
float64. LAPACK's own QL (steqr) is not reachable from Python; its stemr is, and failed on citeseer's cluster of zeros.
4,772 nodes take 20 s of one core, 15,096 nodes 380 s and 2.5 GB in all, and 20,000 would take 15 minutes and 3.9 GB.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numba
import numpy as np
from scipy.linalg.lapack import dormqr, dsytrd, dsytrd_lwork
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from labeldeconv.progress import logger
from labeldeconv.propagation.adjacency import Adjacency

SMALL = 500  # up to so many nodes a component is decomposed by eigh, in less than 0.1 s
SWEEPS = 60  # of QL per eigenvalue at most; 2 are usual, and LAPACK allows 30
EPSILON = float(np.finfo(np.float64).eps)
REFLECTORS = 256  # columns of Q applied at a time: LAPACK wants them contiguous, so they are copied


def largest_component(adj: Adjacency) -> int:
    """Number of nodes of the largest connected component of an undirected A-hat."""
    return int(np.bincount(_component_of(adj)).max())


def decompose(adj: Adjacency, signals: Mapping[str, np.ndarray]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Eigenvalues (n,) of a symmetric A-hat in ascending order, and by name the energy (n,) of signals (n, d) at each.

    The energy at eigenvector u is |u^T x|^2. Where an eigenvalue is multiple only the sum over its eigenvectors means
    something, since they may be turned.
    """
    names, widths = list(signals), [x.shape[1] for x in signals.values()]
    table = np.concatenate([np.zeros((adj.num_nodes, 0)), *(x.astype(np.float64) for x in signals.values())], axis=1)
    values, energies = [], []
    for nodes in _components(adj):
        found, spread = _component(_block(adj, nodes), table[nodes])
        values.append(found)
        parts = np.split(np.square(spread), np.cumsum(widths)[:-1], axis=1) if names else []
        energies.append(np.stack([part.sum(1) for part in parts], axis=1) if names else np.zeros((len(found), 0)))
    order = np.argsort(np.concatenate(values), kind="stable")
    energy = np.concatenate(energies)[order]
    return np.concatenate(values)[order], {name: energy[:, i] for i, name in enumerate(names)}


def _component_of(adj: Adjacency) -> np.ndarray:
    n = adj.num_nodes
    pattern = csr_array((np.ones(len(adj.indices), dtype=np.int8), adj.indices, adj.indptr), shape=(n, n))
    labels: np.ndarray = connected_components(pattern, directed=False)[1]
    return labels


def _components(adj: Adjacency) -> Iterator[np.ndarray]:
    """Node ids of every connected component."""
    labels = _component_of(adj)
    order = np.argsort(labels, kind="stable")
    yield from np.split(order, np.cumsum(np.bincount(labels))[:-1])


def _block(adj: Adjacency, nodes: np.ndarray) -> np.ndarray:
    """Rows and columns `nodes` (m,) of A-hat, which have no entries elsewhere: (m, m) in Fortran's order."""
    place = np.zeros(adj.num_nodes, dtype=np.int64)
    place[nodes] = np.arange(len(nodes))
    out = np.zeros((len(nodes), len(nodes)), order="F")
    for i, node in enumerate(nodes):
        columns = adj.indices[adj.indptr[node] : adj.indptr[node + 1]]
        left = 1.0 if adj.left is None else adj.left[node]
        out[i, place[columns]] = left * (1.0 if adj.right is None else adj.right[columns])
    return out


def _component(matrix: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (m,) of a symmetric matrix (m, m), which is overwritten, and U^T x (m, d)."""
    m = len(matrix)
    if m <= SMALL:
        values, U = np.linalg.eigh(matrix)
        return values, U.T @ x
    logger.info(f"spectrum: a component of {m:,} nodes needs {m * m * 8 / 1e9:.1f} GB")
    lwork = int(dsytrd_lwork(m, lower=1)[0])
    Q, diagonal, beside, tau, _ = dsytrd(matrix, lower=1, lwork=lwork, overwrite_a=1)
    x = np.asfortranarray(x)
    for j in range(0, m - 1, REFLECTORS if x.shape[1] else m):
        part = np.asfortranarray(Q[j + 1 :, j : min(j + REFLECTORS, m - 1)])
        turned, _, _ = dormqr("L", "T", part, tau[j : j + REFLECTORS], x[j + 1 :], lwork=64 * max(x.shape[1], 1))
        x[j + 1 :] = turned
    x = np.ascontiguousarray(x)
    if not _rotate(diagonal, np.append(beside, 0.0), x):
        raise RuntimeError(f"spectrum: the QL iteration did not converge on a component of {m:,} nodes")
    return diagonal, x


@numba.njit(cache=True, nogil=True)
def _rotate(d: np.ndarray, e: np.ndarray, x: np.ndarray) -> bool:
    """Implicit QL on the tridiagonal T with diagonal d (m,) and e (m,) beside it (the last one idle), of norm 1 or so.

    In place: d becomes the eigenvalues, in no order, and x (m, k) becomes Z^T x. False: no convergence.
    """
    m = len(d)
    for low in range(m):
        for _ in range(SWEEPS + 1):
            high = low
            while high < m - 1 and not abs(e[high]) <= EPSILON:  # the norm is 1, so T is kept to the last bit
                high += 1
            if high == low:
                break
            g = (d[low + 1] - d[low]) / (2 * e[low])
            r = math.hypot(g, 1.0)
            g = d[high] - d[low] + e[low] / (g + math.copysign(r, g))  # Wilkinson's shift
            s, c, p = 1.0, 1.0, 0.0
            i = high - 1
            while i >= low:
                f, b = s * e[i], c * e[i]
                r = math.hypot(f, g)
                e[i + 1] = r
                if r == 0.0:
                    break
                s, c = f / r, g / r
                g = d[i + 1] - p
                r = (d[i] - g) * s + 2 * c * b
                p = s * r
                d[i + 1] = g + p
                g = c * r - b
                for k in range(x.shape[1]):
                    above, below = x[i, k], x[i + 1, k]
                    x[i + 1, k] = s * above + c * below
                    x[i, k] = c * above - s * below
                i -= 1
            if i >= low:
                d[i + 1] -= p
            else:
                d[low] -= p
                e[low] = g
            e[high] = 0.0
        else:
            return False
    return True
