"""Spectra too large to decompose: kernel polynomial (KPM) densities and the lower end of a symmetric A-hat.

KPM: a density over [-1, 1] is expanded in Chebyshev polynomials T_k. Its moments are x^T T_k(A-hat) x, one product with
A-hat for two of them; random x give the density of eigenvalues, a signal's columns that of its energy. Jackson's
factors keep the sum positive and blur it by about pi / (number of moments). Bins are integrated in closed form. No kept
library has this part; the end of the spectrum comes from scipy's eigsh.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from labeldeconv.propagation.adjacency import Adjacency

TOLERANCE, RESTARTS = 1e-6, 50  # of ARPACK, about 10 products a restart


def chebyshev_moments(adj: Adjacency, x: np.ndarray, count: int) -> np.ndarray:
    """mu_k = sum_j x_j^T T_k(A-hat) x_j (count,) for the columns of x (n, d) float64, with count / 2 products."""
    mu = np.zeros(count + 1)
    before, now = x, adj @ x
    mu[0], mu[1] = (x * x).sum(), (x * now).sum()
    for k in range(1, count // 2 + 1):
        mu[2 * k] = 2 * (now * now).sum() - mu[0]
        if 2 * k + 1 > count:
            break
        before, now = now, 2 * (adj @ now) - before
        mu[2 * k + 1] = 2 * (now * before).sum() - mu[1]
    return mu[:count]


def binned(moments: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Mass (b,) of the density with these moments between the bin edges (b + 1,) in [-1, 1], at least 0."""
    k = np.arange(1, len(moments))
    m = len(moments) + 1
    jackson = ((m - k) * np.cos(np.pi * k / m) + np.sin(np.pi * k / m) / np.tan(np.pi / m)) / m
    theta = np.arccos(np.clip(edges, -1.0, 1.0))
    # primitive of the density in theta, lambda = cos(theta)
    waves = np.sin(np.outer(theta, k)) @ (jackson * moments[1:] / k)
    primitive = (moments[0] * theta + 2 * waves) / np.pi
    return np.maximum(primitive[:-1] - primitive[1:], 0.0)


def lowest_eigenvalue(adj: Adjacency, start: np.ndarray) -> float:
    """The lowest eigenvalue of A-hat less its residual, by ARPACK's restarted Lanczos from a vector (n,), n > 1.

    An eigenvalue lies within the residual of the value found. Where ARPACK finds none, as on a long cycle whose
    eigenvalues are dense at the end, the answer is -1, which bounds every A-hat.
    """
    n = adj.num_nodes
    operator = LinearOperator((n, n), matvec=lambda x: (adj @ x.reshape(n, 1))[:, 0], dtype=np.float64)
    try:
        value, vector = eigsh(operator, k=1, which="SA", v0=start, tol=TOLERANCE, maxiter=RESTARTS)
    except ArpackNoConvergence:
        return -1.0
    return max(-1.0, float(value[0] - np.linalg.norm(adj @ vector - value * vector)))
